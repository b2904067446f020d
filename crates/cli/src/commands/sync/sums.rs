//! Checksums of local files, kept from run to run, so that `sync --checksum` reads only what has changed.
//!
//! One file for each folder, in the user's cache folder: a head, and records in the order of their keys,
//! which are looked up without being read into memory. It only saves time: what cannot be used is made anew.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use flatout_sync::item::Entry;
use tempfile::NamedTempFile;

use crate::hashing::{self, Algorithm};

/// How the file begins.
const HEAD: [u8; 16] = *b"flatout-sums 1\n\n";
/// A key and a checksum.
const RECORD_BYTES: usize = 8 + 16;
/// New checksums that are held in memory before they are written.
const NEW_MOST: usize = 1 << 20;
/// A file that was changed so shortly before may change again without another time.
const SETTLED_NS: i128 = 1_000_000_000;

/// The checksums of the files below one folder.
#[derive(Default)]
pub struct Sums {
    /// Where they are kept; nowhere when there is no cache folder.
    path: Option<PathBuf>,
    kept: Option<Kept>,
    new: BTreeMap<u64, u128>,
}

/// What earlier runs have written.
struct Kept {
    file: File,
    records: u64,
    /// Which of them this run has asked for.
    used: Vec<u64>,
}

impl Sums {
    /// Those of the files below `folder`, from the cache folder.
    pub fn open(cache_folder: Option<PathBuf>, folder: &Path) -> Sums {
        let mut hasher = DefaultHasher::new();
        folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf()).hash(&mut hasher);
        let path = cache_folder.map(|cache| cache.join("sums").join(format!("{:016x}", hasher.finish())));
        let kept = path.as_deref().and_then(Kept::open);
        Sums { path, kept, new: BTreeMap::new() }
    }

    pub fn get(&mut self, file: &Entry, algorithm: Algorithm) -> Option<u128> {
        let key = key(file, algorithm)?;
        self.new.get(&key).copied().or_else(|| self.kept.as_mut()?.find(key))
    }

    pub fn put(&mut self, file: &Entry, algorithm: Algorithm, sum: u128) {
        let Some(key) = key(file, algorithm) else { return };
        self.new.insert(key, sum);
        if self.new.len() >= NEW_MOST {
            self.keep(false);
        }
    }

    /// Writes what is new; with `is_whole` without what this run did not ask for.
    pub fn keep(&mut self, is_whole: bool) {
        let is_stale = is_whole && self.kept.as_ref().is_some_and(Kept::has_unused);
        let Some(path) = self.path.as_deref().filter(|_| is_stale || !self.new.is_empty()) else { return };
        // A full disk or a folder of somebody else's: the next run reads the files again.
        if self.write(path, is_whole).is_ok() {
            self.new.clear();
            self.kept = Kept::open(path);
            // Which of the earlier ones were asked for is forgotten: all of them stay.
            if let Some(kept) = &mut self.kept {
                kept.used.fill(u64::MAX);
            }
        }
    }

    fn write(&self, path: &Path, is_whole: bool) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder)?;
        let mut out = BufWriter::new(NamedTempFile::new_in(folder)?);
        out.write_all(&HEAD)?;
        let mut new = self.new.iter().map(|(key, sum)| (*key, *sum)).peekable();
        for (at, (key, sum)) in self.kept.iter().flat_map(Kept::records).enumerate() {
            while let Some(record) = new.next_if(|(new, _)| *new < key) {
                write_record(&mut out, record)?;
            }
            let is_used = self.kept.as_ref().is_some_and(|kept| kept.is_used(at));
            if (is_used || !is_whole) && new.peek().is_none_or(|(new, _)| *new != key) {
                write_record(&mut out, (key, sum))?;
            }
        }
        for record in new {
            write_record(&mut out, record)?;
        }
        out.into_inner().map_err(io::IntoInnerError::into_error)?.persist(path)?;
        Ok(())
    }
}

impl Kept {
    fn open(path: &Path) -> Option<Kept> {
        let file = File::open(path).ok()?;
        let found = file.metadata().ok().filter(|found| found.is_file())?;
        let mut head = [0; HEAD.len()];
        file.read_exact_at(&mut head, 0).ok()?;
        let records = found.len().checked_sub(HEAD.len() as u64)? / RECORD_BYTES as u64;
        (head == HEAD).then(|| Kept { file, records, used: vec![0; records.div_ceil(64) as usize] })
    }

    /// The record's sum, by halving.
    fn find(&mut self, key: u64) -> Option<u128> {
        let (mut low, mut high) = (0, self.records);
        while low < high {
            let middle = low + (high - low) / 2;
            let mut record = [0; RECORD_BYTES];
            self.file.read_exact_at(&mut record, HEAD.len() as u64 + middle * RECORD_BYTES as u64).ok()?;
            let (found, sum) = read_record(&record);
            match found.cmp(&key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    self.used[(middle / 64) as usize] |= 1 << (middle % 64);
                    return Some(sum);
                }
            }
        }
        None
    }

    fn records(&self) -> impl Iterator<Item = (u64, u128)> {
        let file = self.file.try_clone().ok().and_then(|mut file| {
            io::Seek::seek(&mut file, io::SeekFrom::Start(HEAD.len() as u64)).ok()?;
            Some(file)
        });
        let mut input = file.map(BufReader::new);
        std::iter::from_fn(move || {
            let mut record = [0; RECORD_BYTES];
            input.as_mut()?.read_exact(&mut record).ok()?;
            Some(read_record(&record))
        })
    }

    fn is_used(&self, at: usize) -> bool {
        self.used.get(at / 64).is_some_and(|bits| bits >> (at % 64) & 1 == 1)
    }

    fn has_unused(&self) -> bool {
        (0..self.records as usize).any(|at| !self.is_used(at))
    }
}

fn read_record(record: &[u8; RECORD_BYTES]) -> (u64, u128) {
    let (key, sum) = record.split_at(8);
    let key = u64::from_le_bytes(key.try_into().expect("8 bytes"));
    (key, u128::from_le_bytes(sum.try_into().expect("16 bytes")))
}

fn write_record(out: &mut impl Write, (key, sum): (u64, u128)) -> io::Result<()> {
    out.write_all(&key.to_le_bytes())?;
    out.write_all(&sum.to_le_bytes())
}

/// What tells a version of a file from all others. `None` of what is no file.
fn key(file: &Entry, algorithm: Algorithm) -> Option<u64> {
    let id = file.file?;
    let mut hasher = DefaultHasher::new();
    (id.device, id.inode, file.size, file.modified_ns?, id.changed_ns).hash(&mut hasher);
    algorithm.name().hash(&mut hasher);
    Some(hasher.finish())
}

/// Whether a later change would show in the file's times.
pub fn is_settled(file: &Entry) -> bool {
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i128);
    file.file.is_some_and(|id| now_ns > id.changed_ns + SETTLED_NS)
}

/// Reads the file.
pub fn compute(path: &Path, algorithm: Algorithm) -> io::Result<u128> {
    let (_, sums) = hashing::read_to_end(&mut File::open(path)?, &[algorithm])?;
    Ok(sums[0])
}

#[cfg(test)]
mod tests {
    use flatout_sync::item::FileId;
    use flatout_wire::checksum;

    use super::*;

    fn file(inode: u64) -> Entry {
        let id = FileId { device: 1, inode, changed_ns: 5 };
        Entry { name: "a".into(), size: 3, modified_ns: Some(4), etag: None, file: Some(id) }
    }

    #[test]
    fn are_kept_from_run_to_run_and_forgotten_when_nobody_asks() {
        let cache = tempfile::tempdir().unwrap();
        let open = || Sums::open(Some(cache.path().to_path_buf()), Path::new("/data"));
        let mut sums = open();
        (0..1_000).for_each(|inode| sums.put(&file(inode), Algorithm::Md5, u128::from(inode) << 64));
        sums.keep(true);
        let mut sums = open();
        for inode in (0..1_000).rev() {
            assert_eq!(sums.get(&file(inode), Algorithm::Md5), Some(u128::from(inode) << 64));
        }
        assert_eq!(sums.get(&file(1_000), Algorithm::Md5), None);
        assert_eq!(sums.get(&file(1), Algorithm::Crc(checksum::Algorithm::Crc32c)), None);
        assert_eq!(sums.get(&Entry { size: 4, ..file(1) }, Algorithm::Md5), None, "another size");
        let mut sums = open();
        assert!(sums.get(&file(7), Algorithm::Md5).is_some());
        sums.put(&file(2_000), Algorithm::Md5, 1);
        sums.keep(true);
        let mut sums = open();
        let mut has = |inode| sums.get(&file(inode), Algorithm::Md5).is_some();
        assert_eq!([has(7), has(2_000), has(8)], [true, true, false]);
        let mut other = Sums::open(Some(cache.path().to_path_buf()), Path::new("/other"));
        assert_eq!(other.get(&file(7), Algorithm::Md5), None, "of another folder");
    }

    #[test]
    fn a_run_that_broke_off_forgets_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let open = || Sums::open(Some(cache.path().to_path_buf()), Path::new("/data"));
        let mut sums = open();
        (0..10).for_each(|inode| sums.put(&file(inode), Algorithm::Md5, 1));
        sums.keep(true);
        let mut sums = open();
        sums.put(&file(10), Algorithm::Md5, 2);
        sums.keep(false);
        let mut sums = open();
        assert!((0..=10).all(|inode| sums.get(&file(inode), Algorithm::Md5).is_some()));
    }

    #[test]
    fn what_is_no_such_file_is_nothing() {
        let cache = tempfile::tempdir().unwrap();
        let mut sums = Sums::open(Some(cache.path().to_path_buf()), Path::new("/data"));
        let path = sums.path.clone().unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        for content in [&b"x"[..], b"flatout-sums 2\n\n", &HEAD, &[&HEAD[..], b"short"].concat()] {
            fs::write(&path, content).unwrap();
            let mut found = Sums::open(Some(cache.path().to_path_buf()), Path::new("/data"));
            assert_eq!(found.get(&file(1), Algorithm::Md5), None);
        }
        sums.put(&file(1), Algorithm::Md5, 1);
        sums.keep(true);
        let mut found = Sums::open(Some(cache.path().to_path_buf()), Path::new("/data"));
        assert_eq!(found.get(&file(1), Algorithm::Md5), Some(1));
    }

    #[test]
    fn are_those_that_origins_state() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "123456789").unwrap();
        let hex = |sum: u128| format!("{sum:032x}");
        assert_eq!(hex(compute(&path, Algorithm::Md5).unwrap()), "25f9e794323b453885f5181f1b624d0b");
        let crc = |algorithm| compute(&path, Algorithm::Crc(algorithm)).unwrap();
        assert_eq!(crc(checksum::Algorithm::Crc32c), 0xe306_9283);
        assert_eq!(crc(checksum::Algorithm::Crc64Xz), 0x995d_c9bb_df19_39fa);
    }
}
