//! The keys of an index from elsewhere than a listing: a bucket inventory, or names. Neither has an order.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatout_engine::{Client, Error, ErrorKind, Get, Landing, StreamReader, Transfer, plain, stream};
use flatout_volume::{
    AskedFor, InventoryError, KeyList, ListedObjects, Manifest, Record, Rows, Separator, Sorter, asked_for,
};
use flatout_wire::location::Location;

use super::build::Report;
use super::find;
use crate::args::IndexedFrom;
use crate::console::Console;
use crate::failure::Failure;
use crate::origin;
use crate::progress::KeysBar;

/// The longest manifest that is read.
const MANIFEST_MOST: u64 = 64 << 20;

/// Where an inventory lies.
enum Place {
    Folder(PathBuf),
    Bucket(Location),
}

impl Place {
    /// One of its files, from its start.
    fn open(&self, name: &str, client: &Client) -> Result<Box<dyn Read>, Failure> {
        match self {
            Place::Folder(folder) => {
                // A manifest names keys of a bucket; a copy of it has the files beside it, or below.
                let beside = name.rsplit('/').next().unwrap_or(name);
                let paths = [folder.join(name), folder.join("data").join(beside), folder.join(beside)];
                let path = paths.iter().find(|path| path.is_file()).unwrap_or(&paths[2]);
                let file = File::open(path).map_err(|error| {
                    Failure::local("read", path.display(), &error)
                        .with_hint("a copy of an inventory has its data files beside the manifest")
                })?;
                Ok(Box::new(file))
            }
            Place::Bucket(bucket) => {
                let location = bucket.with_key(name).ok_or_else(|| {
                    Failure::usage(format!("read: {bucket}: {name}: the bucket takes no such key"))
                })?;
                read(&location, client)
            }
        }
    }
}

/// An object as a stream.
pub fn read(location: &Location, client: &Client) -> Result<Box<dyn Read>, Failure> {
    let (writer, reader) = stream();
    // It ends with its stream.
    let transfer = client.get(Get::new(location.clone(), Landing::Stream(writer)))?;
    Ok(Box::new(StreamOf { reader, piece: Vec::new(), taken: 0, transfer: Some(transfer) }))
}

/// The bytes of an object; the error of its transfer is that of the last read: see [`unread`].
struct StreamOf {
    reader: StreamReader,
    piece: Vec<u8>,
    /// Bytes of the piece that were read.
    taken: usize,
    transfer: Option<Transfer>,
}

impl Read for StreamOf {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.piece.len() {
            self.piece.clear();
            self.taken = 0;
            match self.reader.next() {
                Some(piece) => self.piece.extend_from_slice(piece),
                None => {
                    if let Some(transfer) = self.transfer.take() {
                        transfer.wait().map_err(io::Error::other)?;
                    }
                    return Ok(0);
                }
            }
        }
        let read = bytes.len().min(self.piece.len() - self.taken);
        bytes[..read].copy_from_slice(&self.piece[self.taken..self.taken + read]);
        self.taken += read;
        Ok(read)
    }
}

pub type Records = Box<dyn Iterator<Item = Result<Record, Error>>>;

/// What an index is built of and where, while its keys are gathered.
pub struct Gathering<'a> {
    pub doing: &'static str,
    /// A bucket or a folder of one.
    pub source: &'a Location,
    /// The index's path. Keys that do not fit in memory are sorted in an unnamed file beside it.
    pub target: &'a Path,
    /// Of `--memory`: so much is sorted in memory.
    pub memory_bytes: usize,
    pub client: &'a Arc<Client>,
    pub console: &'a Console,
    pub report: &'a mut Report,
    pub bar: &'a KeysBar,
}

impl Gathering<'_> {
    /// The keys of the index.
    ///
    /// # Errors
    /// What names them cannot be read; the origin's refusal; a signal.
    pub fn records(self, from: &IndexedFrom) -> Result<Records, Failure> {
        match (&from.inventory, &from.names) {
            (Some(manifest), _) => self.of_inventory(manifest),
            (None, Some(names)) => self.of_names(names),
            (None, None) => Ok(Box::new(ListedObjects::under(self.client, self.source)?)),
        }
    }

    /// Those of an inventory.
    ///
    /// # Errors
    /// It cannot be read, or is none of this bucket.
    fn of_inventory(mut self, typed: &str) -> Result<Records, Failure> {
        let source = self.source;
        let about =
            |error: InventoryError| Failure::usage(format!("read: {}: {error}", origin::masked(typed)));
        let mut bytes = Vec::new();
        let place = match typed.contains("://") {
            false => {
                let refused = |error| not_read(typed, &error);
                let file = File::open(typed).map_err(refused)?;
                file.take(MANIFEST_MOST).read_to_end(&mut bytes).map_err(refused)?;
                Place::Folder(Path::new(typed).parent().unwrap_or(Path::new("")).to_owned())
            }
            true => {
                let location = find::in_bucket("read", typed)?;
                let reader = read(&location, self.client)?;
                let all = reader.take(MANIFEST_MOST).read_to_end(&mut bytes);
                all.map_err(|error| unread(typed, error))?;
                Place::Bucket(location)
            }
        };
        let manifest = Manifest::parse(&bytes).map_err(about)?;
        let bucket = source.bucket().unwrap_or_default();
        if manifest.source_bucket != bucket {
            return Err(Failure::usage(format!(
                "read: {}: it is an inventory of the bucket {}, not of {bucket}",
                origin::masked(typed),
                manifest.source_bucket
            ))
            .with_hint("name the bucket that it is of, or another inventory"));
        }
        let (mut sorter, mut rows) = (self.sorter(), 0);
        for file in &manifest.files {
            let wrong = |error: &InventoryError| Failure::usage(format!("read: {}: {error}", file.key));
            let body = file.check(place.open(&file.key, self.client)?);
            for row in Rows::new(body, &manifest.schema, file.is_gzip()) {
                rows += 1;
                self.came(rows)?;
                match row {
                    Ok(Some(record)) if record.key.starts_with(source.key()) => {
                        sorter.push(record).map_err(|error| unsorted(self.target, &error))?;
                    }
                    Ok(_) => {}
                    Err(error) if error.is_skippable() => {
                        self.left_out(&file.key, &error.to_string())?;
                    }
                    Err(InventoryError::Read { line, source }) => {
                        return Err(match source.downcast::<Error>() {
                            Ok(error) => error.into(),
                            Err(source) => wrong(&InventoryError::Read { line, source }),
                        });
                    }
                    Err(error) => return Err(wrong(&error)),
                }
            }
        }
        sorted(sorter, self.target)
    }

    /// Those of a list, each of which the origin is asked for. One that is not there is left out.
    ///
    /// # Errors
    /// The list cannot be read, or the origin cannot be asked.
    fn of_names(mut self, names: &Path) -> Result<Records, Failure> {
        let source = self.source;
        let input: Box<dyn BufRead + Send> = match names == Path::new("-") {
            true => Box::new(BufReader::new(io::stdin())),
            false => {
                let file =
                    File::open(names).map_err(|error| not_read(&names.display().to_string(), &error))?;
                Box::new(BufReader::new(file))
            }
        };
        let prefix = source.key().to_owned();
        let (wrong, wrongs) = std::sync::mpsc::channel();
        let keys = KeyList::new(input, Separator::Newline).map_while(move |key| match key {
            Ok(key) => Some(Some(format!("{prefix}{key}"))),
            Err(error) => {
                let goes_on = error.is_skippable();
                // The receiver is gone where the build has ended.
                let _ = wrong.send(error);
                goes_on.then_some(None)
            }
        });
        let mut sorter = self.sorter();
        let asked: AskedFor = asked_for(self.client, source, keys.flatten())?;
        for (answer, keys) in asked.zip(1..) {
            self.came(keys)?;
            match answer {
                Ok(record) => sorter.push(record).map_err(|error| unsorted(self.target, &error))?,
                Err((key, error)) if error.kind() == ErrorKind::NotFound => {
                    self.left_out(&key, "the origin has no such object")?;
                }
                // What could not be asked is unknown, not absent.
                Err((_, error)) => return Err(error.into()),
            }
        }
        for error in wrongs.try_iter() {
            let name = names.display().to_string();
            if !error.is_skippable() {
                return Err(Failure::usage(format!("read: {name}: {error}")));
            }
            self.left_out(&name, &error.to_string())?;
        }
        let mut last = String::new();
        let is_new = move |record: &Result<Record, Error>| match record {
            // A name that comes twice is one file.
            Ok(record) => {
                let is_new = last != record.key;
                last.clone_from(&record.key);
                is_new
            }
            Err(_) => true,
        };
        Ok(Box::new(sorted(sorter, self.target)?.filter(is_new)))
    }

    fn left_out(&mut self, key: &str, why: &str) -> Result<(), Failure> {
        let Gathering { bar, report, console, .. } = self;
        Ok(bar.above(|| report.add(key, why, console))?)
    }

    /// Shows how many keys there were; a signal ends it.
    fn came(&self, keys: u64) -> Result<(), Failure> {
        self.bar.show(keys);
        match self.console.interrupt.raised() {
            true => Err(Failure::interrupted(format!("{}: interrupted: no index was written", self.doing))),
            false => Ok(()),
        }
    }

    fn sorter(&self) -> Sorter {
        let folder = self.target.parent().filter(|folder| !folder.as_os_str().is_empty());
        Sorter::new(folder.unwrap_or(Path::new(".")), self.memory_bytes)
    }
}

fn sorted(sorter: Sorter, target: &Path) -> Result<Records, Failure> {
    let target = target.to_owned();
    let sorted = sorter.finish().map_err(|error| unsorted(&target, &error))?;
    Ok(Box::new(sorted.map(move |record| {
        record.map_err(|error| {
            Error::new(ErrorKind::LocalIo, plain(&error)).during("sort keys beside", target.display())
        })
    })))
}

/// A file that names keys.
fn not_read(name: &str, error: &io::Error) -> Failure {
    let failure = Failure::local("read", name, error);
    match error.kind() {
        io::ErrorKind::NotFound => failure.with_hint("name a file that is there"),
        _ => failure,
    }
}

fn unsorted(target: &Path, error: &io::Error) -> Failure {
    Failure::local("sort keys beside", target.display(), error)
}

/// Why reading failed: the transfer's error, if [`read`] has opened it, or the system's.
pub fn unread(typed: &str, error: io::Error) -> Failure {
    match error.downcast::<Error>() {
        Ok(error) => error.into(),
        Err(error) => Failure::local("read", origin::masked(typed), &error),
    }
}
