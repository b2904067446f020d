//! The writer: keys in their order become folders, and each folder is written when it is complete.

mod folder;

use std::io::{Read, Seek, Write};

use crate::error::WriteError;
use crate::etag::{ETAG_BYTES_MAX, PackedEtag};
use crate::fields::put;
use crate::header::{FOLDERS_A_BLOCK, Header, SOURCE_BYTES_MAX};
use crate::names::{self, PATH_BYTES_MAX, Unnamable};
use crate::open_folder::{Child, OpenFolder};
use crate::output::Output;
use crate::record::{PADDING, RECORDS_A_BLOCK, Record};
use crate::spool::{Spool, Stream};
use crate::superblock::METADATA_AT;
use crate::{BLOCK, DATA_BLOCK, blocks, seal};

/// The last address is EROFS's word for none.
const DATA_BLOCKS_MAX: u64 = (u32::MAX - DATA_BLOCK) as u64;

/// What the index says of its objects, and the fields that all files and folders have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The location that was listed, or whatever the caller wants [`crate::Index::source`] to return; at most
    /// 2,048 bytes.
    pub source: String,
    pub uid: u32,
    pub gid: u32,
    /// Permissions.
    pub file_mode: u16,
    pub folder_mode: u16,
}

impl Default for Options {
    fn default() -> Options {
        Options { source: String::new(), uid: 0, gid: 0, file_mode: 0o444, folder_mode: 0o555 }
    }
}

/// Counts and lengths of an index that was written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    pub files: u64,
    /// The root included.
    pub folders: u64,
    /// Files that are not shown because a folder has their name.
    pub shadowed: u64,
    /// Their paths since the last [`Writer::take_shadowed`].
    pub shadowed_paths: Vec<Vec<u8>>,
    /// Of the files that are shown.
    pub file_bytes: u64,
    pub metadata_bytes: u64,
    pub index_bytes: u64,
}

/// Writes an index. The keys come in the order of their bytes, as a listing brings them; memory holds the
/// folders on the path to the current key.
///
/// Equal input makes equal bytes.
#[derive(Debug)]
pub struct Writer<W, S> {
    output: Output<W>,
    spool: Spool<S>,
    options: Options,
    /// The folders on the current path, from the root down.
    path: Vec<OpenFolder>,
    /// The prefix of the last of them.
    prefix: Vec<u8>,
    last_key: Vec<u8>,
    /// Whether the marker of the root has come.
    is_root_marked: bool,
    /// Memory for the next folder.
    spare: OpenFolder,
    /// The next number of a file or folder, and the next block of data.
    next_number: u32,
    next_block: u32,
    /// The blocks of all files so far, however many.
    wanted_blocks: u64,
    header: Header,
    /// The start block of the first record of each block, and the first number of each block of folders.
    record_fences: Vec<u32>,
    folder_fences: Vec<u32>,
    shadowed: u64,
    /// Those that the caller has not taken.
    shadowed_paths: Vec<Vec<u8>>,
    /// An error has left it without something.
    is_broken: bool,
}

impl<W: Read + Write + Seek, S: Read + Write + Seek> Writer<W, S> {
    /// An index in `file`, which is empty. `scratch` is empty, too, and grows to about a third of it.
    pub fn new(file: W, scratch: S, options: Options) -> Result<Writer<W, S>, WriteError> {
        let source_bytes = options.source.len();
        if source_bytes > SOURCE_BYTES_MAX {
            return Err(WriteError::SourceTooLong { bytes: source_bytes, most: SOURCE_BYTES_MAX });
        }
        let mut writer = Writer {
            output: Output::new(file),
            spool: Spool::new(scratch),
            options,
            path: vec![OpenFolder::default()],
            prefix: Vec::new(),
            last_key: Vec::new(),
            is_root_marked: false,
            spare: OpenFolder::default(),
            next_number: 0,
            next_block: DATA_BLOCK,
            wanted_blocks: 0,
            // At most 2,048.
            header: Header { folders: 1, source_bytes: source_bytes as u32, ..Header::default() },
            record_fences: Vec::new(),
            folder_fences: Vec::new(),
            shadowed: 0,
            shadowed_paths: Vec::new(),
            is_broken: false,
        };
        writer.output.append(&[0; METADATA_AT as usize])?;
        writer.spool.append(Stream::Strings, writer.options.source.as_bytes())?;
        writer.push_record(PackedEtag::NONE)?;
        Ok(writer)
    }

    /// Adds the object `key`; slashes separate its folders. `etag` is as the origin sends it, in quotes.
    ///
    /// Files beyond the 16 TiB for data are only counted: `finish` says how much they would have taken. Files
    /// that a folder shadows count, too.
    pub fn add(
        &mut self,
        key: &[u8],
        size: u64,
        modified_s: i64,
        etag: Option<&str>,
    ) -> Result<(), WriteError> {
        let added = self.try_add(key, size, modified_s, etag);
        self.kept(added)
    }

    fn try_add(
        &mut self,
        key: &[u8],
        size: u64,
        modified_s: i64,
        etag: Option<&str>,
    ) -> Result<(), WriteError> {
        let name_at = self.turn_to(key, key)?;
        let etag_bytes = etag.map_or(0, str::len);
        if etag_bytes > ETAG_BYTES_MAX {
            return Err(WriteError::EtagTooLong {
                key: key.to_vec(),
                bytes: etag_bytes,
                most: ETAG_BYTES_MAX,
            });
        }
        self.wanted_blocks = self.wanted_blocks.saturating_add(blocks(size));
        if self.wanted_blocks > DATA_BLOCKS_MAX {
            return Ok(());
        }
        let etag = self.packed(etag)?;
        let folder = self.path.last_mut().expect("the root is always there");
        folder.push(&key[name_at..], Child::File { size, modified_s, etag })?;
        folder.saw(modified_s);
        Ok(())
    }

    /// Adds the folder `key`, which ends in a slash: the object that marks it, at its place in the order of
    /// keys. Folders that contain something need none. The empty key marks the root.
    ///
    /// A time of 0 or less does not count, as in the mount (`crates/tree/src/page.rs`).
    pub fn add_folder(&mut self, key: &[u8], modified_s: i64) -> Result<(), WriteError> {
        let entered = self.enter_marked(key);
        self.kept(entered)?;
        let folder = self.path.last_mut().expect("the root is always there");
        folder.marked_s = Some(modified_s).filter(|&at| at > 0);
        Ok(())
    }

    /// Enters the folder that the object `key` marks.
    fn enter_marked(&mut self, key: &[u8]) -> Result<(), WriteError> {
        if key.is_empty() {
            return self.mark_root();
        }
        let Some(path) = key.strip_suffix(b"/") else {
            return Err(if self.is_broken {
                WriteError::Broken
            } else {
                WriteError::NoSlash { key: key.to_vec() }
            });
        };
        self.turn_to(key, path)?;
        self.enter(key.len());
        Ok(())
    }

    /// The marker of the root comes once, before all other keys.
    fn mark_root(&mut self) -> Result<(), WriteError> {
        let (key, last) = (Vec::new(), self.last_key.clone());
        match std::mem::replace(&mut self.is_root_marked, true) {
            _ if self.is_broken => Err(WriteError::Broken),
            _ if !last.is_empty() => Err(WriteError::Order { key, last }),
            true => Err(WriteError::Twice { key }),
            false => Ok(()),
        }
    }

    /// Takes the paths of files that are not shown because a folder has their name. They become known when
    /// the folder that contains both is complete, and wait in memory until they are taken.
    pub fn take_shadowed(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.shadowed_paths)
    }

    /// The outcome, which is remembered if the index cannot become whole any more.
    fn kept<T>(&mut self, outcome: Result<T, WriteError>) -> Result<T, WriteError> {
        self.is_broken |= outcome.as_ref().is_err_and(|error| !error.is_of_key());
        outcome
    }

    /// Leaves the folders that `key` is not in, enters those that it is in, and says where its name begins.
    fn turn_to(&mut self, key: &[u8], path: &[u8]) -> Result<usize, WriteError> {
        let unnamable = |why| WriteError::Unnamable { key: key.to_vec(), why };
        if self.is_broken {
            return Err(WriteError::Broken);
        }
        if path.is_empty() {
            return Err(unnamable(Unnamable::Empty));
        }
        if key <= &*self.last_key {
            return Err(match key == self.last_key {
                true => WriteError::Twice { key: key.to_vec() },
                false => WriteError::Order { key: key.to_vec(), last: self.last_key.clone() },
            });
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        if path.len() > PATH_BYTES_MAX {
            return Err(WriteError::KeyTooLong { key: key.to_vec(), most: PATH_BYTES_MAX });
        }
        while !key.starts_with(&self.prefix) {
            self.leave()?;
        }
        let mut name_at = self.prefix.len();
        loop {
            let slash = path[name_at..].iter().position(|&byte| byte == b'/');
            let end = slash.map_or(path.len(), |slash| name_at + slash);
            names::check(&path[name_at..end]).map_err(unnamable)?;
            if slash.is_none() {
                return Ok(name_at);
            }
            name_at = end + 1;
            self.enter(name_at);
        }
    }

    /// Enters the folder whose prefix are the first bytes of the current key.
    fn enter(&mut self, prefix_bytes: usize) {
        self.prefix.extend_from_slice(&self.last_key[self.prefix.len()..prefix_bytes]);
        let mut folder = std::mem::take(&mut self.spare);
        folder.prefix_bytes = prefix_bytes;
        self.path.push(folder);
        self.header.folders += 1;
    }

    /// Writes the last folder on the path, which is complete.
    fn leave(&mut self) -> Result<(), WriteError> {
        let folder = self.path.pop().expect("only folders below the root are left");
        let parent = self.path.last().expect("the root is above").prefix_bytes;
        let written = self.write_folder(&folder)?;
        let name = &self.prefix[parent..folder.prefix_bytes - 1];
        let parent_folder = self.path.last_mut().expect("the root is above");
        parent_folder.push(name, written)?;
        parent_folder.saw(folder.modified_s());
        self.prefix.truncate(parent);
        self.spare = folder.cleared();
        Ok(())
    }

    /// Ends the index, and returns its file. Until then its header is missing, and no reader takes it.
    ///
    /// Nothing is synced: the caller has to call `sync_all` on the file before it renames it to its final
    /// name. A crash may otherwise leave that name with parts of an index.
    pub fn finish(mut self) -> Result<(W, Summary), WriteError> {
        if self.is_broken {
            return Err(WriteError::Broken);
        }
        if self.wanted_blocks > DATA_BLOCKS_MAX {
            let bytes = self.wanted_blocks.saturating_mul(BLOCK);
            return Err(WriteError::TooLarge { bytes, most: DATA_BLOCKS_MAX * BLOCK });
        }
        while self.path.len() > 1 {
            self.leave()?;
        }
        let folder = self.path.pop().expect("the root is always there");
        let root = self.write_root(&folder)?;
        self.output.pad(BLOCK)?;
        let header = Header {
            data_blocks: self.next_block - DATA_BLOCK,
            metadata_blocks: (self.output.end() / BLOCK) as u32,
            records: self.next_number,
            string_bytes: self.spool.bytes(Stream::Strings),
            ..self.header
        };
        if !header.is_within_limits() {
            let bytes = header.sections().end * BLOCK;
            return Err(WriteError::IndexTooLarge { bytes, most: u64::from(DATA_BLOCK) * BLOCK });
        }
        for fence in self.record_fences.iter().chain(&self.folder_fences) {
            self.spool.append(Stream::Fences, &fence.to_le_bytes())?;
        }
        let (shadowed, shadowed_paths) = (self.shadowed, self.take_shadowed());
        self.spool.pour(&mut self.output)?;
        let file = seal::seal(self.output.finish()?, header, &root)?;
        let summary = Summary {
            files: header.files.into(),
            folders: header.folders.into(),
            shadowed,
            shadowed_paths,
            file_bytes: header.file_bytes,
            metadata_bytes: u64::from(header.metadata_blocks) * BLOCK,
            index_bytes: header.sections().end * BLOCK,
        };
        Ok((file, summary))
    }

    /// Takes the next number.
    fn push_record(&mut self, etag: PackedEtag) -> Result<(), WriteError> {
        if self.next_number.is_multiple_of(RECORDS_A_BLOCK) {
            self.record_fences.push(self.next_block);
        }
        let record = Record { start_block: self.next_block, etag };
        self.spool.append(Stream::Records, &record.bytes())?;
        self.next_number =
            self.next_number.checked_add(1).ok_or(WriteError::TooMany { most: u32::MAX.into() })?;
        if self.next_number.is_multiple_of(RECORDS_A_BLOCK) {
            self.spool.append(Stream::Records, &[0; PADDING])?;
        }
        Ok(())
    }

    /// Notes which folder the children with these numbers are in.
    fn push_parent(&mut self, first_number: u32, nid: u64) -> Result<(), WriteError> {
        let mut bytes = [0; 8];
        put(&mut bytes, 0, first_number.to_le_bytes());
        // The metadata have less than 2^31 slots.
        put(&mut bytes, 4, (nid as u32).to_le_bytes());
        if self.header.folders_with_children.is_multiple_of(FOLDERS_A_BLOCK) {
            self.folder_fences.push(first_number);
        }
        self.header.folders_with_children += 1;
        self.spool.append(Stream::Folders, &bytes)
    }

    fn packed(&mut self, etag: Option<&str>) -> Result<PackedEtag, WriteError> {
        if let Some(packed) = PackedEtag::of(etag) {
            return Ok(packed);
        }
        let bytes = etag.unwrap_or_default().as_bytes();
        let at = self.spool.bytes(Stream::Strings);
        self.spool.append(Stream::Strings, bytes)?;
        // At most 1,024.
        Ok(PackedEtag::string(at, bytes.len() as u32))
    }
}
