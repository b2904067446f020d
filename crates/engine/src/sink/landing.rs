//! Landings: where bytes finally live. Memory, lent or made, a file, an ordered stream, nowhere.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::cancellation::Cancellation;
use crate::base::error::{Error, ErrorKind};
use crate::disk::file::FileSink;
use crate::disk::folder::Folder;
use crate::disk::writeback::PIECE_BYTES;
use crate::memory::lease::Pool;
use crate::sink::made::{AllocatedBuffer, Allocating};
use crate::sink::stream::{Room, StreamWriter};
use crate::sink::verify::PartHash;
use flatout_policy::latency::ReadAhead;
use flatout_policy::pace::WaitReason;

/// Where the bytes of a transfer land.
pub enum Landing {
    /// They are counted, verified and dropped.
    Nowhere,
    /// The caller's memory.
    Memory(Memory),
    /// Memory made as long as what comes, which is the caller's when it is whole and verified.
    Allocated(AllocatedBuffer),
    /// A file, which appears under its name only when it is whole and verified.
    File(PathBuf),
    /// A file beneath a folder, at this relative path, whose folders are made.
    Beneath(Folder, String),
    /// In order, through a bounded window; the other end is a [`crate::StreamReader`].
    Stream(StreamWriter),
}

/// The caller's memory, lent to a transfer until it reports its end.
pub struct Memory {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: `Memory::new` obliges the caller to leave the bytes to the transfer, on whichever thread it runs.
unsafe impl Send for Memory {}
// SAFETY: as above; the engine's shards write to ranges that do not overlap.
unsafe impl Sync for Memory {}

impl Memory {
    /// Lends `bytes` bytes at `start`.
    ///
    /// # Safety
    /// They must be initialised, writable, and touched by nobody else until [`crate::Transfer::wait`] has
    /// returned or the transfer has been dropped. [`crate::Client::get_into`] is the safe form.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> Memory {
        Memory { start, bytes }
    }
}

/// Memory that others read while it is filled: a segment of a reader's.
pub(crate) trait SharedMemory: Send + Sync {
    /// Whether so many bytes have their place.
    fn prepare(&self, total_bytes: Option<u64>) -> Result<(), Error>;

    /// Where the byte `at` lands, and those after it.
    fn place(&self, at: u64) -> *mut u8;

    /// The first `bytes` bytes have landed.
    fn on_landed(&self, bytes: u64);

    /// Nothing more will land.
    fn on_end(&self, result: Result<(), Error>, fetched_bytes: u64);
}

/// An open landing.
pub(crate) enum Sink {
    Nowhere,
    Memory(Memory),
    Allocated(Allocating),
    File(Box<FileSink>),
    Stream(StreamWriter),
    /// Memory that others read while it is filled.
    Shared(Box<dyn SharedMemory>),
}

impl Sink {
    /// Opens the landing before anything is asked of the network, so that a bad target costs nothing.
    /// With `resume` a file takes over what a killed run left of it.
    #[cfg(test)]
    pub(crate) fn open(landing: Landing, resume: bool) -> Result<Sink, Error> {
        Sink::open_swept(landing, resume, false)
    }

    /// With `is_swept` somebody has cleared the folder of a file.
    pub(crate) fn open_swept(landing: Landing, resume: bool, is_swept: bool) -> Result<Sink, Error> {
        Ok(match landing {
            Landing::Nowhere => Sink::Nowhere,
            Landing::Memory(memory) => Sink::Memory(memory),
            Landing::Allocated(made) => Sink::Allocated(Allocating::new(made)),
            Landing::File(path) => {
                let opened = FileSink::create(&path, resume, is_swept)
                    .map_err(|error| error.during("write", path.display()))?;
                Sink::File(Box::new(opened))
            }
            Landing::Beneath(folder, name) => {
                Sink::File(Box::new(FileSink::create_beneath(&folder, &name, resume)?))
            }
            Landing::Stream(writer) => Sink::Stream(writer),
        })
    }

    /// The file, where it is one.
    pub(crate) fn file(&self) -> Option<&FileSink> {
        match self {
            Sink::File(file) => Some(file),
            _ => None,
        }
    }

    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Sink::Stream(_))
    }

    /// How long a part may be that lands here.
    pub(crate) fn part_bytes_max(&self) -> u64 {
        match self {
            Sink::Stream(writer) => writer.0.part_bytes_max(),
            _ => u64::MAX,
        }
    }

    /// Makes room, once the first answer has told how many bytes will come (`None`: the origin does not say).
    pub(crate) fn prepare(
        &self,
        pool: &Arc<Pool>,
        ahead: Option<ReadAhead>,
        total_bytes: Option<u64>,
    ) -> Result<(), Error> {
        match self {
            Sink::Nowhere => Ok(()),
            Sink::Memory(memory) => match total_bytes {
                Some(total) if total > memory.bytes as u64 => Err(too_small(memory, total)),
                Some(_) => Ok(()),
                None => Err(untold()),
            },
            Sink::Allocated(making) => making.prepare(total_bytes.ok_or_else(untold)?),
            Sink::File(file) => file.reserve(total_bytes.unwrap_or(0)),
            Sink::Stream(writer) => writer.0.prepare(pool, ahead),
            Sink::Shared(memory) => memory.prepare(total_bytes),
        }
    }

    /// Room for one more part of so many bytes, which a stream has to wait for; the others need none.
    ///
    /// # Errors
    /// Nobody wants the bytes any more, or the machine has no memory.
    pub(crate) async fn admit(
        &self,
        part_bytes: u64,
        window_bytes: impl FnOnce() -> u64,
    ) -> Result<Option<Room<'_>>, Error> {
        match self {
            Sink::Stream(writer) => writer.0.admit(part_bytes, window_bytes()).await.map(Some),
            _ => Ok(None),
        }
    }

    /// What a stream that has no room for another part waits for.
    pub(crate) fn waits_for(&self) -> WaitReason {
        match self {
            Sink::Stream(writer) if writer.0.is_mostly_unread() => WaitReason::Reader,
            _ => WaitReason::Memory,
        }
    }

    /// Cancels `stop` when nobody wants the bytes any more, at once where that is so already.
    pub(crate) fn stop_when_abandoned(&self, stop: &Arc<Cancellation>) {
        if let Sink::Stream(writer) = self {
            writer.0.stop_when_abandoned(stop);
        }
    }

    /// Whether nobody wants the bytes any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        matches!(self, Sink::Stream(writer) if writer.0.is_abandoned())
    }

    /// The place of part `index`, which lands at `at` bytes from the start of the landing, and is hashed on
    /// its way.
    pub(crate) fn place(&self, index: u64, at: u64, hash: PartHash) -> PartWriter<'_> {
        let start = match self {
            Sink::Nowhere | Sink::File(_) => None,
            // SAFETY: `at` is within the caller's memory: `prepare` refused a range that is longer.
            Sink::Memory(memory) => Some(unsafe { memory.start.add(at as usize) }),
            // SAFETY: `at` is within what `prepare` made, which stays until the last hold on the transfer is
            // gone.
            Sink::Allocated(making) => Some(unsafe { making.start().add(at as usize) }),
            Sink::Stream(writer) => Some(writer.0.start_of(index)),
            Sink::Shared(memory) => Some(memory.place(at)),
        };
        let hash = match self.file().and_then(FileSink::journal) {
            Some(_) => hash.for_journal(at),
            None => hash,
        };
        PartWriter { sink: self, index, at, start, filled: 0, written_back: 0, hash, writing: Duration::ZERO }
    }

    /// Makes the landing final. Nothing is visible under a file's name before.
    pub(crate) fn commit(&self, bytes: u64) -> Result<(), Error> {
        match self {
            Sink::File(file) => file.commit(bytes).map_err(|error| error.during("write", file.shown())),
            Sink::Allocated(making) => {
                making.commit();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Nothing more will come: a waiting reader is told, a file that was not committed is removed, or with
    /// `keep` left for the next run. The bytes that this one will find.
    pub(crate) fn close(&self, keep: bool) -> u64 {
        match self {
            Sink::Stream(writer) => writer.0.end(),
            Sink::File(file) => return file.let_go(keep),
            Sink::Allocated(making) => making.close(),
            Sink::Nowhere | Sink::Memory(_) | Sink::Shared(_) => {}
        }
        0
    }
}

fn too_small(memory: &Memory, total: u64) -> Error {
    let cause = format!("the buffer holds {} bytes, the range has {total}", memory.bytes);
    Error::new(ErrorKind::Usage, cause).with_hint("pass a larger buffer, or a shorter range")
}

fn untold() -> Error {
    Error::new(ErrorKind::Unsupported, "the origin does not tell how much will come")
        .with_hint("land in a stream or a file instead of memory")
}

/// Where one part lands. At most one attempt at a time holds it, so each byte has one writer.
pub(crate) struct PartWriter<'a> {
    sink: &'a Sink,
    index: u64,
    at: u64,
    /// Where the part begins in a landing that is memory; `None` where a scratch is consumed at once.
    start: Option<*mut u8>,
    filled: u64,
    /// How much of that has been passed on to the file's write-back.
    written_back: u64,
    hash: PartHash,
    /// Spent in writing to a file since somebody asked.
    writing: Duration,
}

impl PartWriter<'_> {
    /// Bytes of the part that have landed.
    pub(crate) fn filled(&self) -> u64 {
        self.filled
    }

    /// How long writing to a file has taken since this was asked last.
    pub(crate) fn take_writing(&mut self) -> Duration {
        std::mem::take(&mut self.writing)
    }

    /// Where the next bytes are received, at most `bytes`: the landing itself, or `scratch` where it consumes
    /// at once.
    pub(crate) fn spare<'a>(&'a mut self, scratch: &'a mut [u8], bytes: u64) -> &'a mut [u8] {
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX).min(scratch.len());
        match self.landing_start() {
            None => &mut scratch[..wanted],
            // SAFETY: initialised memory of the landing; this part is the only writer of its range. The
            // callers keep `bytes` within the part, and the part within the memory that `prepare` or `admit`
            // found large enough.
            Some(start) => unsafe { std::slice::from_raw_parts_mut(start, wanted) },
        }
    }

    /// Takes over the first `bytes` of what `spare` lent: hashes them while they are hot, and hands them on.
    pub(crate) fn fill(&mut self, scratch: &[u8], bytes: usize) -> Result<(), Error> {
        let received = match self.landing_start() {
            None => &scratch[..bytes],
            // SAFETY: the bytes that `spare` lent from the landing, now received and only read.
            Some(start) => unsafe { std::slice::from_raw_parts(start, bytes) },
        };
        self.hash.update(received);
        if let Sink::File(file) = self.sink {
            let begun = Instant::now();
            file.write(received, self.at + self.filled)?;
            note(file, &mut self.hash);
            self.writing += begun.elapsed();
        }
        self.filled += bytes as u64;
        if self.filled - self.written_back >= PIECE_BYTES {
            self.write_back();
        }
        match self.sink {
            Sink::Stream(writer) => writer.0.publish(self.index, self.filled as usize),
            Sink::Shared(memory) => {
                memory.on_landed(self.at + self.filled);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Of what has landed.
    pub(crate) fn hash(&self) -> &PartHash {
        &self.hash
    }

    /// The part is whole.
    pub(crate) fn complete(&mut self) {
        match self.sink {
            Sink::Stream(writer) => writer.0.complete(self.index),
            Sink::File(file) => {
                self.hash.cut();
                note(file, &mut self.hash);
                self.write_back();
            }
            Sink::Nowhere | Sink::Memory(_) | Sink::Allocated(_) | Sink::Shared(_) => {}
        }
    }

    /// Passes what has been written since the last call on to the file's write-back.
    fn write_back(&mut self) {
        if let Sink::File(file) = self.sink {
            file.on_written(self.at + self.written_back..self.at + self.filled);
        }
        self.written_back = self.filled;
    }

    /// Where the part goes on in a landing that is memory.
    fn landing_start(&self) -> Option<*mut u8> {
        // SAFETY: what has been filled is within the part, and the part within the caller's memory or its
        // room.
        self.start.map(|start| unsafe { start.add(self.filled as usize) })
    }
}

/// Notes the blocks that have been written, if a journal is kept.
fn note(file: &FileSink, hash: &mut PartHash) {
    if hash.has_pieces()
        && let Some(journal) = file.journal()
    {
        journal.on_pieces(hash.take_pieces());
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sink::verify::Ledger;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder can be read");
        let mut names: Vec<String> = entries
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("model");
        std::fs::write(&target, b"earlier").expect("the earlier file");
        for committed in [false, true] {
            let sink = Sink::open(Landing::File(target.clone()), true).expect("a new file");
            sink.prepare(&Arc::new(Pool::default()), None, Some(3)).expect("room");
            sink.place(0, 0, Ledger::default().start_part()).fill(b"new", 3).expect("a write");
            assert_eq!(std::fs::read(&target).expect("the earlier file"), b"earlier");
            if committed {
                sink.commit(3).expect("a rename");
            }
            drop(sink);
            let expected: &[u8] = if committed { b"new" } else { b"earlier" };
            assert_eq!(std::fs::read(&target).expect("the file"), expected);
            assert_eq!(names(folder.path()), ["model"], "nothing is left behind");
        }
    }

    #[test]
    fn a_link_is_followed_and_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        std::fs::write(&file, b"earlier").expect("a file");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        let sink = Sink::open(Landing::File(link.clone()), true).expect("a new file");
        sink.place(0, 0, Ledger::default().start_part()).fill(b"new", 3).expect("a write");
        sink.commit(3).expect("a rename");
        assert_eq!(std::fs::read(&file).expect("the file"), b"new");
        assert!(link.symlink_metadata().expect("the link").is_symlink());
    }

    #[test]
    fn targets_that_cannot_be_replaced_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        for (target, why) in [
            (folder.path().to_path_buf(), "is a folder"),
            (PathBuf::from("/dev/null"), "not a regular file"),
            (folder.path().join("missing/file"), "No such file"),
        ] {
            let error = Sink::open(Landing::File(target), true).err().expect("a refusal");
            assert_eq!(error.kind(), ErrorKind::LocalIo);
            assert!(error.cause().contains(why) && error.hint().is_some(), "{error}");
        }
    }
}
