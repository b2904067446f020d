//! The file of an index, as `flatout volume build` writes it: each file of it by the place of its inode, and
//! those places in the order of keys.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use flatout_engine::{Entry, Error, ErrorKind, Listed, plain, remedy};
use flatout_erofs::{Kind, Object, Totals};
use flatout_volume::index_error;
use flatout_wire::location::Location;
use pyo3::prelude::*;

use crate::errors::{Failure, OrRaise};
use crate::object_meta::ObjectMeta;
use crate::waiting;

/// Files between two checks for signals.
const AT_ONCE: usize = 8192;

/// What is being done, for errors.
const DOING: &str = "open";

/// An index of remote objects: a file that ``flatout volume build`` has written. Only what is asked for is
/// read of it, and compared with its checksum.
#[pyclass(frozen, module = "flatout._native")]
pub struct Index {
    path: PathBuf,
    index: flatout_erofs::Index<File>,
    /// The file that was opened: device, inode, bytes, and nanoseconds of its last change.
    #[pyo3(get)]
    identity: (u64, u64, u64, i128),
    /// The bucket that the objects are in, as a URL.
    bucket: String,
    /// What their keys begin with.
    prefix: String,
}

impl Index {
    fn open(path: PathBuf) -> Result<Index, Error> {
        let file = File::open(&path).map_err(|error| local(&path, &error))?;
        let metadata = file.metadata().map_err(|error| local(&path, &error))?;
        let index = flatout_erofs::Index::open(file);
        let index = index.map_err(|error| index_error(&error).during(DOING, path.display()))?;
        let changed_ns = i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec());
        let identity = (metadata.dev(), metadata.ino(), metadata.len(), changed_ns);
        let bucket_of = |source: &str| {
            let location = Location::parse(source).ok()?;
            location.bucket()?;
            Some((ObjectMeta::bucket_of(&location), location.key().to_owned()))
        };
        let Some((bucket, prefix)) = bucket_of(index.source()) else {
            let cause = format!("the index is of {:?}, which is no place of objects", index.source());
            return Err(Error::new(ErrorKind::Usage, cause).during(DOING, path.display()));
        };
        Ok(Index { path, index, identity, bucket, prefix })
    }

    fn info(&self, object: Object) -> Result<ObjectMeta, Error> {
        let Object { path, size, modified_s, etag, .. } = object;
        let path = String::from_utf8(path)
            .map_err(|_| Error::new(ErrorKind::Corrupt, "a key is not UTF-8: build the index again"))?;
        let (key, last_modified) = (format!("{}{path}", self.prefix), u64::try_from(modified_s).unwrap_or(0));
        let listed = Listed { key, size, last_modified, etag, ..Default::default() };
        Ok(ObjectMeta::of_entry(&self.bucket, Entry::Object(listed)))
    }

    /// The file whose inode is there.
    fn at(&self, place: u32) -> Result<ObjectMeta, Error> {
        let malformed = || Error::new(ErrorKind::Corrupt, "no file of the index is there: open it anew");
        let inode = self.index.inode(place.into()).map_err(|error| index_error(&error))?;
        if inode.kind != Kind::File {
            return Err(malformed());
        }
        let object = self.index.object(inode.number).map_err(|error| index_error(&error))?;
        self.info(object.ok_or_else(malformed)?)
    }
}

#[pymethods]
impl Index {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Index> {
        waiting::without_gil(py, || Index::open(path))?.or_raise(py)
    }

    fn __len__(&self) -> usize {
        self.index.totals().files as usize
    }

    /// The URL of the prefix whose objects it has.
    #[getter]
    fn source(&self) -> &str {
        self.index.source()
    }

    /// How many files and folders it has, and the bytes of all files.
    #[getter]
    fn totals(&self) -> (u64, u64, u64) {
        let Totals { files, folders, file_bytes, .. } = self.index.totals();
        (files, folders, file_bytes)
    }

    /// Writes to the file ``path`` where the inode of each file is, in the order of keys, as 4 bytes in the
    /// machine's order. All of the index is read, and an error raised where it is damaged.
    ///
    /// Args:
    ///     path: of a file, which is there.
    ///     matches: is called with what follows the prefix in each key, and returns whether it is wanted.
    ///
    /// Returns:
    ///     How many there are.
    #[pyo3(signature = (path, matches=None))]
    fn write_places(
        &self,
        py: Python<'_>,
        path: PathBuf,
        matches: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<u64> {
        let unwritten = |error: &std::io::Error| local(&path, error);
        let unread = |error: Error| error.during(DOING, self.path.display());
        let file = OpenOptions::new().write(true).truncate(true).open(&path);
        let mut file = BufWriter::new(file.map_err(|error| unwritten(&error)).or_raise(py)?);
        let (mut files, mut count) = (self.index.files(), 0);
        loop {
            py.check_signals()?;
            let some = waiting::without_gil(py, || {
                files.by_ref().take(AT_ONCE).collect::<Result<Vec<Object>, _>>()
            })?;
            let some = some.map_err(|error| unread(index_error(&error))).or_raise(py)?;
            if some.is_empty() {
                file.flush().map_err(|error| unwritten(&error)).or_raise(py)?;
                return Ok(count);
            }
            for object in some {
                let Ok(place) = u32::try_from(object.nid) else {
                    let cause = "an inode lies behind what an index can have: build the index again";
                    return Err(Failure::from(unread(Error::new(ErrorKind::Corrupt, cause))).raise(py));
                };
                let name = str::from_utf8(&object.path).map_err(|_| {
                    unread(Error::new(ErrorKind::Corrupt, "a key is not UTF-8: build the index again"))
                });
                let name = name.or_raise(py)?;
                let is_wanted = match matches {
                    None => true,
                    Some(matches) => matches.call1((name,))?.is_truthy()?,
                };
                if is_wanted {
                    file.write_all(&place.to_ne_bytes()).map_err(|error| unwritten(&error)).or_raise(py)?;
                    count += 1;
                }
            }
        }
    }

    /// The files whose inodes are at these places, as a listing would tell of them.
    fn infos(&self, py: Python<'_>, places: Vec<u32>) -> PyResult<Vec<ObjectMeta>> {
        let infos = waiting::without_gil(py, || {
            places.into_iter().map(|place| self.at(place)).collect::<Result<Vec<_>, _>>()
        })?;
        infos.map_err(|error| error.during(DOING, self.path.display())).or_raise(py)
    }
}

fn local(path: &Path, error: &std::io::Error) -> Error {
    let refused = Error::new(ErrorKind::LocalIo, plain(error)).during(DOING, path.display());
    if let Some(hint) = remedy(error) { refused.with_hint(hint) } else { refused }
}
