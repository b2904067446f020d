//! From keys in their order to the file of an index, which appears under its name when it is whole.

use std::cmp::Ordering;
use std::fmt;
use std::fs::File;
use std::io::{self, Seek};
use std::path::{Path, PathBuf};

use flatout_engine::{Error, ErrorKind, plain, remedy};
use flatout_erofs::{
    Index, IndexError, Kind, Object, Options, ReadAt, Summary, WriteError, Writer, check_path,
};

use crate::new_file::NewFile;
use crate::open::index_error;
use crate::record::Record;

/// How often progress is told, in keys.
const TOLD_EVERY: u64 = 4096;

/// What is to be indexed, and how its files look.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The verb of its errors.
    pub doing: &'static str,
    /// What the keys begin with.
    pub prefix: String,
    /// The URL of that, the file modes and owners.
    pub options: Options,
}

/// What happens while an index is built.
#[derive(Debug)]
pub enum BuildEvent<'a> {
    /// So many keys have come.
    Keys(u64),
    /// The file has this name until it is whole, since the file system has no files without one.
    Named(&'a Path),
    /// No file stands for this key.
    LeftOut { key: &'a str, why: String },
}

/// An index that is whole, and not yet under its name. Dropping it leaves nothing.
#[derive(Debug)]
pub struct BuiltIndex {
    doing: &'static str,
    new: NewFile,
    target: PathBuf,
    pub summary: Summary,
    /// Keys without a file, those that a folder shadows included.
    pub left_out: u64,
}

/// How an index differs from the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
}

impl Difference {
    /// Whether all files are the same.
    pub fn is_none(&self) -> bool {
        *self == Difference::default()
    }
}

/// Refuses to replace what is no index.
///
/// # Errors
/// [`ErrorKind::Usage`] for a folder or another file at `target`; the system's, for what cannot be looked at.
pub fn check_target(target: &Path) -> Result<(), Error> {
    let metadata = match target.metadata() {
        // Also a link to nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(|error| local("build", target, &error))?,
    };
    let is_replaceable = match metadata.is_file() {
        false => false,
        true if metadata.len() == 0 => true,
        true => is_replaceable(File::open(target).map_err(|error| local("build", target, &error))?),
    };
    match is_replaceable {
        true => Ok(()),
        false => Err(not_replaceable(target.display())),
    }
}

/// That a build does not replace what is at `target`, a file or an object.
pub fn not_replaceable(target: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Usage, "something else than an index is there")
        .during("build", target)
        .with_hint("name another place, or remove what is there")
}

/// Whether this is an index, in whose place a new one may come: also a damaged one, or one of another
/// version. What cannot be read is unknown.
pub fn is_replaceable(content: impl ReadAt) -> bool {
    !matches!(Index::open(content), Err(IndexError::NotAnIndex | IndexError::Io(_)))
}

/// Builds an index of `records`, which come in the order of their keys, for the file `target`. `each` hears
/// of progress, and ends it by an error.
///
/// # Errors
/// That of `records` or `each`; what makes it no index.
pub fn build_index(
    target: &Path,
    wanted: &Wanted,
    records: impl Iterator<Item = Result<Record, Error>>,
    mut each: impl FnMut(BuildEvent<'_>) -> Result<(), Error>,
) -> Result<BuiltIndex, Error> {
    let failed = |error: WriteError| write_failed(&error).during(wanted.doing, target.display());
    let new = NewFile::create(target).map_err(|error| local(wanted.doing, target, &error))?;
    if let Some(path) = new.named() {
        each(BuildEvent::Named(path))?;
    }
    let scratch = new.scratch().map_err(|error| local(wanted.doing, target, &error))?;
    let file = new.file().try_clone().map_err(|error| local(wanted.doing, target, &error))?;
    let mut writer = Writer::new(file, scratch, wanted.options.clone()).map_err(failed)?;
    let (mut keys, mut left_out) = (0, 0);
    for record in records {
        let Record { key, size, modified_s, etag } = record?;
        keys += 1;
        if keys % TOLD_EVERY == 0 {
            each(BuildEvent::Keys(keys))?;
            for path in writer.take_shadowed() {
                each(BuildEvent::LeftOut { key: &full(wanted, &path), why: SHADOWED.to_owned() })?;
            }
        }
        let modified_s = i64::try_from(modified_s).unwrap_or(i64::MAX);
        let why = match key.strip_prefix(&wanted.prefix) {
            None => Some("it does not lie under the source".to_owned()),
            Some(path) if path.is_empty() || path.ends_with('/') => {
                let added = writer.add_folder(path.as_bytes(), modified_s);
                match (reason(added).map_err(failed)?, size) {
                    (None, 1..) => Some("its name ends in a slash, so it is shown as a folder".to_owned()),
                    (why, _) => why,
                }
            }
            // Nothing would tell its bytes from those of another version.
            Some(_) if etag.is_none() && modified_s == 0 => {
                Some("neither ETag nor time tell which version it is".to_owned())
            }
            Some(path) => {
                let added = writer.add(path.as_bytes(), size, modified_s, etag.as_deref());
                reason(added).map_err(failed)?
            }
        };
        if let Some(why) = why {
            left_out += 1;
            each(BuildEvent::LeftOut { key: &key, why })?;
        }
    }
    each(BuildEvent::Keys(keys))?;
    let (_, mut summary) = writer.finish().map_err(failed)?;
    for path in std::mem::take(&mut summary.shadowed_paths) {
        each(BuildEvent::LeftOut { key: &full(wanted, &path), why: SHADOWED.to_owned() })?;
    }
    let left_out = left_out + summary.shadowed;
    Ok(BuiltIndex { doing: wanted.doing, new, target: target.to_owned(), summary, left_out })
}

const SHADOWED: &str = "a folder has its name";

fn full(wanted: &Wanted, path: &[u8]) -> String {
    format!("{}{}", wanted.prefix, String::from_utf8_lossy(path))
}

/// Why a key is left out, if it is.
fn reason(added: Result<(), WriteError>) -> Result<Option<String>, WriteError> {
    match added {
        Ok(()) => Ok(None),
        Err(WriteError::Unnamable { why, .. }) => Ok(Some(why.to_string())),
        Err(WriteError::Twice { .. }) => Ok(Some("it comes twice".to_owned())),
        Err(error) if error.is_of_key() => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}

fn write_failed(error: &WriteError) -> Error {
    match error {
        WriteError::Io(io) => {
            let refused = Error::new(ErrorKind::LocalIo, plain(io));
            if let Some(hint) = remedy(io) { refused.with_hint(hint) } else { refused }
        }
        WriteError::Order { .. } => Error::new(ErrorKind::Unsupported, error.to_string())
            .with_hint("the origin does not list in the order of keys: give the names by --names"),
        _ => Error::new(ErrorKind::Usage, error.to_string()),
    }
}

fn local(doing: &'static str, path: &Path, error: &io::Error) -> Error {
    let refused = Error::new(ErrorKind::LocalIo, plain(error)).during(doing, path.display());
    if let Some(hint) = remedy(error) { refused.with_hint(hint) } else { refused }
}

impl BuiltIndex {
    /// The file, from its start.
    ///
    /// # Errors
    /// The system's.
    pub fn file(&self) -> Result<File, Error> {
        let file = self.new.file().try_clone().and_then(|mut file| file.rewind().map(|()| file));
        file.map_err(|error| local(self.doing, &self.target, &error))
    }

    /// How it differs from `before`.
    ///
    /// # Errors
    /// An index that cannot be read.
    pub fn difference(&self, before: &Index<File>) -> Result<Difference, Error> {
        let index = Index::open(self.file()?).map_err(|error| index_error(&error))?;
        let records = index.files().map(|file| {
            let Object { path, size, modified_s, etag, .. } = file.map_err(|error| index_error(&error))?;
            let key = String::from_utf8_lossy(&path).into_owned();
            Ok(Record { key, size, modified_s: u64::try_from(modified_s).unwrap_or(0), etag })
        });
        compare(before, "", records, |_, _| {})
    }

    /// Gives it its name, in place of what is there.
    ///
    /// # Errors
    /// The system's; what was there stays.
    pub fn publish(self) -> Result<Summary, Error> {
        self.new.publish(&self.target).map_err(|error| local(self.doing, &self.target, &error))?;
        Ok(self.summary)
    }
}

/// Compares the files of an index with `records`, which come in the order of their keys and begin with
/// `prefix`. `each` hears of every difference: what has become of a file, and its path.
///
/// # Errors
/// That of `records`; an index that cannot be read.
pub fn compare(
    index: &Index<File>,
    prefix: &str,
    records: impl Iterator<Item = Result<Record, Error>>,
    mut each: impl FnMut(&str, &str),
) -> Result<Difference, Error> {
    let mut files = index.files().map(|file| file.map_err(|error| index_error(&error)));
    // Folders' markers, and what no file stands for, are in no index.
    let mut records = records.filter_map(|record| match record {
        Err(error) => Some(Err(error)),
        Ok(record) => {
            let path = record.key.strip_prefix(prefix)?.to_owned();
            let is_file = !path.is_empty() && !path.ends_with('/') && check_path(path.as_bytes()).is_ok();
            is_file.then_some(Ok((path, record)))
        }
    });
    let (mut file, mut record) = (files.next().transpose()?, records.next().transpose()?);
    let mut seen = Difference::default();
    loop {
        let order = match (&file, &record) {
            (None, None) => return Ok(seen),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(file), Some((path, _))) => file.path.as_slice().cmp(path.as_bytes()),
        };
        match (order, &file, &record) {
            (Ordering::Less, Some(file), _) => {
                seen.removed += 1;
                each("it is gone", &String::from_utf8_lossy(&file.path));
            }
            (Ordering::Greater, _, Some((path, _))) if !is_shadowed(index, path)? => {
                seen.added += 1;
                each("it is new", path);
            }
            (Ordering::Equal, Some(file), Some((path, record))) if !is_same(file, record) => {
                seen.changed += 1;
                each("it has changed", path);
            }
            _ => {}
        }
        if order.is_le() {
            file = files.next().transpose()?;
        }
        if order.is_ge() {
            record = records.next().transpose()?;
        }
    }
}

/// Whether a folder has its name: then no file stands for it.
fn is_shadowed(index: &Index<File>, path: &str) -> Result<bool, Error> {
    let found = index.find(path.as_bytes()).map_err(|error| index_error(&error))?;
    Ok(found.is_some_and(|inode| inode.kind == Kind::Folder))
}

fn is_same(file: &Object, record: &Record) -> bool {
    let is_known = file.etag.is_some() && record.etag.is_some();
    let is_same_time = u64::try_from(file.modified_s) == Ok(record.modified_s);
    file.size == record.size && if is_known { file.etag == record.etag } else { is_same_time }
}
