//! What the kernel knows of a tree: nodes, how often it has looked each up, handles. It is kept where it
//! outlives this process, so that another one goes on with the mount.
//!
//! Each row is written before the kernel hears of what it says, and removed after the kernel has let go. So a
//! process that dies in between leaves a row too many, never one too few.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, OnceLock};

use flatout_engine::Object;
use flatout_wire::location::Location;

use crate::attributes::{AttributeSource, FileKind};
use crate::etag::Etag;
use crate::fact::Fact;
use crate::posix::Posix;

/// A table of small values that outlives its process.
pub trait SharedTable: Send + Sync + Debug {
    /// Sets the value of a key. It is there when this returns, even if this process dies then.
    fn put(&self, kind: u8, id: u64, value: &[u8]);

    fn remove(&self, kind: u8, id: u64);

    /// All that is there; `None` where something could not be kept.
    fn rows(&self) -> Option<Vec<(u8, u64, Vec<u8>)>>;
}

/// The kinds of rows; the id is a node's or a handle's.
mod kind {
    pub(super) const NODE: u8 = 1;
    pub(super) const LOOKUPS: u8 = 2;
    pub(super) const VERSION: u8 = 3;
    pub(super) const MADE_HERE: u8 = 4;
    pub(super) const WRITER: u8 = 5;
    pub(super) const FILE: u8 = 6;
    pub(super) const FOLDER: u8 = 7;
    pub(super) const FOLDER_PLACES: u8 = 8;
    pub(super) const PROCESSES: u8 = 9;
}

/// Writes the rows; nothing where no other process is to go on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept(Arc<OnceLock<Arc<dyn SharedTable>>>);

/// A node's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptNode {
    pub(crate) number: u64,
    pub(crate) parent: u64,
    pub(crate) generation: u32,
    pub(crate) kind: FileKind,
    pub(crate) name: Box<str>,
}

/// A version that the kernel may have pages of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptVersion {
    pub(crate) size: u64,
    pub(crate) modified_s: u32,
    pub(crate) etag: Option<String>,
}

/// What another process can do for the handles that write a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeptWriter {
    /// Nothing has been written yet: it goes on as a new file.
    New { exclusive: bool, posix: Option<Arc<Posix>> },
    /// All that was written is in this version.
    Published(KeptVersion),
    /// Bytes were taken that are in this process alone.
    Unsent,
}

/// An open file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptFile {
    pub(crate) ino: u64,
    /// The number of the request that opened it.
    pub(crate) request: u64,
    pub(crate) use_: FileUse,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FileUse {
    /// It reads this version.
    Reads(KeptVersion),
    /// It reads what is being written.
    ReadsWriter,
    /// With `is_first` its open has begun the writer.
    Writes { reads: bool, is_first: bool },
    /// What it read was replaced by this mount.
    Stale,
}

/// How far a folder has been read: the last name that was handed out, and the offset after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FolderPlace {
    pub(crate) offset: u64,
    /// The name exists in the mount alone: it comes behind those of the listing.
    pub(crate) is_local: bool,
    pub(crate) name: Box<str>,
}

/// All that a process has left.
#[derive(Debug, Default)]
pub(crate) struct KeptState {
    pub(crate) nodes: BTreeMap<u64, KeptNode>,
    pub(crate) lookups: BTreeMap<u64, u32>,
    /// And whether it was replaced.
    pub(crate) versions: BTreeMap<u64, (KeptVersion, bool)>,
    pub(crate) made_here: Vec<u64>,
    pub(crate) writers: BTreeMap<u64, KeptWriter>,
    pub(crate) files: BTreeMap<u64, KeptFile>,
    /// By handle: the node, and the number of the request that opened it.
    pub(crate) folders: BTreeMap<u64, (u64, u64)>,
    pub(crate) places: BTreeMap<u64, Vec<FolderPlace>>,
    /// How many processes there were.
    pub(crate) processes: u64,
}

impl Kept {
    /// From now on rows are written there. Once is enough.
    pub(crate) fn keep_in(&self, table: Arc<dyn SharedTable>) {
        let _ = self.0.set(table);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.get().is_some()
    }

    fn put(&self, kind: u8, id: u64, value: impl FnOnce(&mut Row)) {
        if let Some(table) = self.0.get() {
            let mut row = Row(Vec::with_capacity(64));
            value(&mut row);
            table.put(kind, id, &row.0);
        }
    }

    fn remove(&self, kind: u8, id: u64) {
        if let Some(table) = self.0.get() {
            table.remove(kind, id);
        }
    }

    pub(crate) fn node(&self, ino: u64, parts: (u64, u64, u32, FileKind), name: &str) {
        let (number, parent, generation, kind) = parts;
        self.put(kind::NODE, ino, |row| {
            row.u64(number);
            row.u64(parent);
            row.u32(generation);
            row.u8(u8::from(kind == FileKind::Folder));
            row.text(name);
        });
    }

    pub(crate) fn node_gone(&self, ino: u64) {
        self.remove(kind::NODE, ino);
    }

    pub(crate) fn lookups(&self, ino: u64, count: u32) {
        match count {
            0 => self.remove(kind::LOOKUPS, ino),
            _ => self.put(kind::LOOKUPS, ino, |row| row.u32(count)),
        }
    }

    pub(crate) fn version(&self, ino: u64, fact: &Fact, is_replaced: bool) {
        self.put(kind::VERSION, ino, |row| {
            row.u8(u8::from(is_replaced));
            row.version(&KeptVersion::of(fact));
        });
    }

    pub(crate) fn no_version(&self, ino: u64) {
        self.remove(kind::VERSION, ino);
    }

    pub(crate) fn made_here(&self, ino: u64, made_here: bool) {
        match made_here {
            true => self.put(kind::MADE_HERE, ino, |_| {}),
            false => self.remove(kind::MADE_HERE, ino),
        }
    }

    pub(crate) fn writer(&self, ino: u64, writer: &KeptWriter) {
        self.put(kind::WRITER, ino, |row| match writer {
            KeptWriter::New { exclusive, posix } => {
                row.u8(u8::from(*exclusive));
                row.posix(posix.as_deref());
            }
            KeptWriter::Published(version) => {
                row.u8(2);
                row.version(version);
            }
            KeptWriter::Unsent => row.u8(3),
        });
    }

    pub(crate) fn writer_gone(&self, ino: u64) {
        self.remove(kind::WRITER, ino);
    }

    pub(crate) fn file(&self, handle: u64, file: &KeptFile) {
        self.put(kind::FILE, handle, |row| {
            row.u64(file.ino);
            row.u64(file.request);
            match &file.use_ {
                FileUse::Reads(version) => {
                    row.u8(0);
                    row.version(version);
                }
                FileUse::ReadsWriter => row.u8(1),
                FileUse::Stale => row.u8(2),
                FileUse::Writes { reads, is_first } => {
                    row.u8(3);
                    row.u8(u8::from(*reads));
                    row.u8(u8::from(*is_first));
                }
            }
        });
    }

    pub(crate) fn file_gone(&self, handle: u64) {
        self.remove(kind::FILE, handle);
    }

    pub(crate) fn folder(&self, handle: u64, ino: u64, request: u64) {
        self.put(kind::FOLDER, handle, |row| {
            row.u64(ino);
            row.u64(request);
        });
    }

    pub(crate) fn folder_places(&self, handle: u64, places: &[Option<FolderPlace>]) {
        self.put(kind::FOLDER_PLACES, handle, |row| {
            for place in places.iter().flatten() {
                row.u64(place.offset);
                row.u8(u8::from(place.is_local));
                row.text(&place.name);
            }
        });
    }

    pub(crate) fn folder_gone(&self, handle: u64) {
        self.remove(kind::FOLDER_PLACES, handle);
        self.remove(kind::FOLDER, handle);
    }

    /// What the process before has left, this one being counted; `None` where there was none, or not all
    /// of it is there.
    pub(crate) fn take_over(&self) -> Option<KeptState> {
        let mut state = KeptState::default();
        for (kind, id, value) in self.0.get()?.rows()? {
            state.read(kind, id, &mut Reader(&value))?;
        }
        state.processes += 1;
        self.put(kind::PROCESSES, 0, |row| row.u64(state.processes));
        Some(state)
    }
}

impl KeptState {
    fn read(&mut self, kind: u8, id: u64, row: &mut Reader<'_>) -> Option<()> {
        match kind {
            kind::NODE => {
                let (number, parent, generation) = (row.u64()?, row.u64()?, row.u32()?);
                let kind = if row.u8()? == 1 { FileKind::Folder } else { FileKind::File };
                self.nodes.insert(id, KeptNode { number, parent, generation, kind, name: row.text()? });
            }
            kind::LOOKUPS => drop(self.lookups.insert(id, row.u32()?)),
            kind::VERSION => {
                let is_replaced = row.u8()? == 1;
                self.versions.insert(id, (row.version()?, is_replaced));
            }
            kind::MADE_HERE => self.made_here.push(id),
            kind::WRITER => {
                let writer = match row.u8()? {
                    2 => KeptWriter::Published(row.version()?),
                    3 => KeptWriter::Unsent,
                    exclusive => KeptWriter::New { exclusive: exclusive == 1, posix: row.posix()? },
                };
                self.writers.insert(id, writer);
            }
            kind::FILE => {
                let (ino, request) = (row.u64()?, row.u64()?);
                let use_ = match row.u8()? {
                    0 => FileUse::Reads(row.version()?),
                    1 => FileUse::ReadsWriter,
                    2 => FileUse::Stale,
                    _ => FileUse::Writes { reads: row.u8()? == 1, is_first: row.u8()? == 1 },
                };
                self.files.insert(id, KeptFile { ino, request, use_ });
            }
            kind::FOLDER => drop(self.folders.insert(id, (row.u64()?, row.u64()?))),
            kind::FOLDER_PLACES => {
                let places = self.places.entry(id).or_default();
                while !row.0.is_empty() {
                    let (offset, is_local) = (row.u64()?, row.u8()? == 1);
                    places.push(FolderPlace { offset, is_local, name: row.text()? });
                }
            }
            kind::PROCESSES => self.processes = row.u64()?,
            // A newer program's.
            _ => {}
        }
        Some(())
    }
}

impl KeptVersion {
    pub(crate) fn of(fact: &Fact) -> KeptVersion {
        KeptVersion { size: fact.size, modified_s: fact.modified_s, etag: fact.etag.sent() }
    }

    pub(crate) fn of_object(object: &Object, modified_s: i64) -> KeptVersion {
        let modified_s = u32::try_from(modified_s).unwrap_or(u32::MAX);
        KeptVersion { size: object.size, modified_s, etag: object.etag.clone() }
    }

    /// As it was known at no time: the origin is asked before it is believed.
    pub(crate) fn fact(&self) -> Fact {
        let etag = Etag::of(self.etag.as_deref());
        let (size, modified_s) = (self.size, self.modified_s);
        Fact { size, asked_ms: 0, etag, modified_s, source: AttributeSource::Listing }
    }

    pub(crate) fn object(&self, location: Location) -> Object {
        self.fact().version(location)
    }
}

/// The bytes of a row: numbers in the machine's own order, texts behind their length.
struct Row(Vec<u8>);

impl Row {
    fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_ne_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u32(text.len() as u32);
        self.0.extend(text.as_bytes());
    }

    fn version(&mut self, version: &KeptVersion) {
        self.u64(version.size);
        self.u32(version.modified_s);
        self.u8(u8::from(version.etag.is_some()));
        self.text(version.etag.as_deref().unwrap_or_default());
    }

    /// The last of its row.
    fn posix(&mut self, posix: Option<&Posix>) {
        let Some(options) = posix.map(|posix| posix.options(FileKind::File)) else { return };
        self.text(options.content_type.as_deref().unwrap_or_default());
        for (name, value) in &options.metadata {
            self.text(name);
            self.text(value);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<Box<str>> {
        let length = self.u32()? as usize;
        Some(std::str::from_utf8(self.bytes(length)?).ok()?.into())
    }

    fn version(&mut self) -> Option<KeptVersion> {
        let (size, modified_s, has_etag) = (self.u64()?, self.u32()?, self.u8()? == 1);
        let etag = self.text()?;
        Some(KeptVersion { size, modified_s, etag: has_etag.then(|| etag.into_string()) })
    }

    fn posix(&mut self) -> Option<Option<Arc<Posix>>> {
        if self.0.is_empty() {
            return Some(None);
        }
        let (content_type, mut metadata) = (self.text()?, Vec::new());
        while !self.0.is_empty() {
            metadata.push((self.text()?.into_string(), self.text()?.into_string()));
        }
        let content_type = Some(&*content_type).filter(|content_type| !content_type.is_empty());
        Some(Some(Arc::new(Posix::read(&metadata, content_type))))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct InMemory(Mutex<BTreeMap<(u8, u64), Vec<u8>>>);

    impl SharedTable for InMemory {
        fn put(&self, kind: u8, id: u64, value: &[u8]) {
            self.0.lock().unwrap().insert((kind, id), value.to_vec());
        }

        fn remove(&self, kind: u8, id: u64) {
            self.0.lock().unwrap().remove(&(kind, id));
        }

        fn rows(&self) -> Option<Vec<(u8, u64, Vec<u8>)>> {
            let rows = self.0.lock().unwrap();
            Some(rows.iter().map(|(&(kind, id), value)| (kind, id, value.clone())).collect())
        }
    }

    fn kept_in(table: Arc<InMemory>) -> Kept {
        let kept = Kept::default();
        kept.keep_in(table);
        kept
    }

    #[test]
    fn what_is_kept_comes_back() {
        let kept = kept_in(Arc::new(InMemory::default()));
        let version = KeptVersion { size: 7, modified_s: 9, etag: Some("\"a\"".into()) };
        let nameless = KeptVersion { etag: None, ..version.clone() };
        kept.node(5, (6, 1, 3, FileKind::File), "ä b");
        kept.lookups(5, 2);
        kept.version(5, &version.fact(), true);
        kept.made_here(8, true);
        kept.made_here(9, true);
        kept.made_here(9, false);
        let posix = Posix { mode: Some(0o600), content_type: Some("text/plain".into()), ..Posix::default() };
        let writers = [
            KeptWriter::New { exclusive: true, posix: Some(Arc::new(posix)) },
            KeptWriter::New { exclusive: false, posix: None },
            KeptWriter::Published(version.clone()),
            KeptWriter::Unsent,
        ];
        let uses = [
            FileUse::Reads(nameless),
            FileUse::ReadsWriter,
            FileUse::Writes { reads: true, is_first: false },
            FileUse::Writes { reads: false, is_first: true },
            FileUse::Stale,
        ];
        let file = |use_: &FileUse| KeptFile { ino: 5, request: 12, use_: use_.clone() };
        (0..).zip(&writers).for_each(|(ino, writer)| kept.writer(ino, writer));
        (0..).zip(&uses).for_each(|(handle, use_)| kept.file(handle, &file(use_)));
        kept.folder(4, 8, 14);
        let place = FolderPlace { offset: 22, is_local: true, name: "z".into() };
        kept.folder_places(4, &[None, Some(place.clone())]);
        let state = kept.take_over().expect("nothing is missing");
        let node =
            KeptNode { number: 6, parent: 1, generation: 3, kind: FileKind::File, name: "ä b".into() };
        assert_eq!(state.nodes, BTreeMap::from([(5, node)]));
        assert_eq!(state.lookups, BTreeMap::from([(5, 2)]));
        assert_eq!(state.versions, BTreeMap::from([(5, (version, true))]));
        assert_eq!(state.made_here, [8]);
        assert_eq!(state.writers, (0..).zip(writers).collect());
        assert_eq!(state.files, (0..).zip(uses.iter().map(file)).collect());
        assert_eq!(state.folders, BTreeMap::from([(4, (8, 14))]));
        assert_eq!(state.places, BTreeMap::from([(4, vec![place])]));
        assert_eq!([state.processes, kept.take_over().unwrap().processes], [1, 2]);
    }

    #[test]
    fn a_row_that_is_cut_off_is_no_state() {
        let table = Arc::new(InMemory::default());
        let kept = kept_in(table.clone());
        assert!(Kept::default().take_over().is_none());
        table.put(kind::NODE, 5, &[0; 9]);
        assert!(kept.take_over().is_none());
    }
}
