//! Files: written under a temporary name beside their own, put in place only when they are whole, removed
//! otherwise.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flatout_settings::format_size;
use rustix::fs::{AtFlags, FileType, Mode, RenameFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{Feature, Word, text};
use crate::disk::folder::{self, Folder};
use crate::disk::journal::{self, DownloadIdentity, Journal, Kept, Log, Unreadable};
use crate::disk::temporary::{Earlier, Temporary};
use crate::disk::writeback::WriteBack;

/// Below this a reservation costs as much as the write itself, and a full disk is found by the first write.
const SMALL_BYTES: u64 = 1 << 20;

/// A file that is written under a temporary name, and removed unless it is committed.
pub(crate) struct FileSink {
    temporary: Temporary,
    folder: Arc<OwnedFd>,
    name: OsString,
    /// As errors name it.
    shown: PathBuf,
    reserved_bytes: AtomicU64,
    write_back: WriteBack,
    /// The temporary name leads to this file no more: it has its own, or was removed. It may be another's by
    /// now.
    is_unnamed: AtomicBool,
    process: u32,
    resume: bool,
    /// What stands under the name by the end is not replaced.
    pub(crate) keep_existing: bool,
    /// The time that it is to have, in nanoseconds since 1970.
    pub(crate) modified_ns: Option<i128>,
    /// What an earlier run left, until it is known what is wanted now.
    earlier: Mutex<Option<Earlier>>,
    journal: OnceLock<Log>,
    /// Why nothing, or not all, of what an earlier run left is used.
    note: Mutex<Option<String>>,
}

impl FileSink {
    /// A file at `path`, whose links are followed. With `resume` what a killed run left of it is taken over;
    /// what else it left is cleared, unless the whole folder `is_swept`.
    pub(crate) fn create(path: &Path, resume: bool, is_swept: bool) -> Result<FileSink, Error> {
        let path = final_path(path)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = folder::open(parent).map_err(refused_there)?;
        let name = path.file_name().unwrap_or_default().to_os_string();
        let sink = FileSink::create_in(Arc::new(folder), name, path, resume)?;
        if !is_swept {
            sink.temporary.clear_others(&sink.folder, &sink.name);
        }
        Ok(sink)
    }

    /// A file beneath `folder`, at the relative path `name`; folders on the way are made. A link under the
    /// file's own name is replaced, not followed.
    pub(crate) fn create_beneath(folder: &Folder, name: &str, resume: bool) -> Result<FileSink, Error> {
        let shown = folder.path().join(name);
        let (parent, file_name) = name.rsplit_once('/').unwrap_or(("", name));
        let opened = folder
            .below(parent)
            .and_then(|opened| FileSink::create_in(opened, file_name.into(), shown.clone(), resume));
        opened.map_err(|error| error.during("write", shown.display()))
    }

    fn create_in(
        folder: Arc<OwnedFd>,
        name: OsString,
        shown: PathBuf,
        resume: bool,
    ) -> Result<FileSink, Error> {
        let created = Temporary::create(&folder, &name, resume);
        let mut temporary = created.map_err(|refused| refused_there(refused.into()))?;
        let earlier = Mutex::new(temporary.earlier.take());
        Ok(FileSink {
            temporary,
            folder,
            name,
            shown,
            reserved_bytes: AtomicU64::new(0),
            write_back: WriteBack::default(),
            is_unnamed: AtomicBool::new(false),
            process: std::process::id(),
            resume,
            keep_existing: false,
            modified_ns: None,
            earlier,
            journal: OnceLock::new(),
            note: Mutex::default(),
        })
    }

    /// Where the file will be, for messages.
    pub(crate) fn shown(&self) -> std::path::Display<'_> {
        self.shown.display()
    }

    /// Reserves the space, so that a full disk is found before the transfer and writes do not extend the
    /// file.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), Error> {
        if bytes < SMALL_BYTES {
            return Ok(());
        }
        let refused = |refused: Errno| {
            Error::local(&format!("cannot reserve {bytes} bytes"), refused.into())
                .during("write", self.shown())
        };
        loop {
            match rustix::fs::fallocate(&self.temporary.file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
                Ok(()) => {
                    self.reserved_bytes.store(bytes, Ordering::Relaxed);
                    return Ok(());
                }
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(refused(error)),
            }
        }
    }

    /// What an earlier run noted of this file, if it may be of use.
    pub(crate) fn earlier(&self) -> Option<Arc<Journal>> {
        self.lock_earlier().as_ref().and_then(|earlier| earlier.journal.as_ref().ok()).cloned()
    }

    /// The earlier journal, if its identity is this one and it can be resumed from. Only this function
    /// decides.
    pub(crate) fn noted_of(&self, identity: &DownloadIdentity) -> Option<Arc<Journal>> {
        self.earlier().filter(|noted| self.keeps_journal_of(identity) && noted.identity == *identity)
    }

    fn keeps_journal_of(&self, identity: &DownloadIdentity) -> bool {
        self.resume && identity.bytes() >= journal::SMALL_BYTES
    }

    /// A handle to read what an earlier run left.
    pub(crate) fn content(&self) -> &File {
        &self.temporary.file
    }

    /// It is known what the file is to be a copy of, and that it has `kept` of that: what else an earlier run
    /// left is cut off, and the journal begins or goes on. Without an `identity`, without ranges, or for a
    /// small one, there is none.
    pub(crate) fn begin(
        &self,
        identity: Option<&DownloadIdentity>,
        has_ranges: bool,
        kept: &Kept,
    ) -> Result<(), Error> {
        let large = identity.filter(|identity| has_ranges && self.keeps_journal_of(identity));
        let noted = large.and_then(|identity| self.noted_of(identity));
        let earlier = self.lock_earlier().take();
        let log = match (earlier, noted) {
            (Some(Earlier { file, .. }), Some(noted)) => {
                self.note_losses(&noted, kept);
                self.cut(noted.identity.bytes())?;
                Some(Log::go_on(file, &noted, &kept.ranges))
            }
            (Some(Earlier { file, journal }), None) => {
                self.note_start_over(&journal, identity, has_ranges);
                self.cut(0)?;
                self.begin_journal(file, large)
            }
            (None, _) => large.and_then(|identity| {
                let Some(file) = self.temporary.journal_file(&self.folder) else {
                    self.note_missing_journal();
                    return None;
                };
                self.begin_journal(file, Some(identity))
            }),
        };
        if let Some(log) = log {
            let fresh = self.journal.set(log).is_ok();
            assert!(fresh, "a transfer begins its landing once");
        }
        Ok(())
    }

    /// Cuts off what an earlier run left behind so many bytes.
    fn cut(&self, bytes: u64) -> Result<(), Error> {
        let file = &self.temporary.file;
        let is_longer = file.metadata().map(|found| found.len() > bytes);
        let cut = is_longer.and_then(|is_longer| if is_longer { file.set_len(bytes) } else { Ok(()) });
        cut.map_err(|refused| Error::local("cannot cut off what an earlier run left", refused))
    }

    /// A download goes on without a journal that cannot be written.
    fn begin_journal(&self, file: File, identity: Option<&DownloadIdentity>) -> Option<Log> {
        let removed = file.try_clone();
        let log = identity.and_then(|identity| Log::begin(file, identity).ok().flatten());
        if let (None, Ok(file)) = (&log, removed) {
            self.temporary.remove_journal(&self.folder, &file);
        }
        log
    }

    fn note_losses(&self, noted: &Journal, kept: &Kept) {
        let note = match (kept.bad_blocks as u64, noted.damaged) {
            (0, 0) => return,
            (0, 1) => "the journal of an earlier run is damaged: one of its blocks is fetched again".into(),
            (0, damaged) => {
                format!("the journal of an earlier run is damaged: {damaged} of its blocks are fetched again")
            }
            (bad, _) => {
                let bytes = format_size(bad * journal::BLOCK_BYTES);
                format!("{bytes} of what an earlier run left is not as it was, and is fetched again")
            }
        };
        self.set_note(note);
    }

    fn note_start_over(
        &self,
        journal: &Result<Arc<Journal>, Unreadable>,
        identity: Option<&DownloadIdentity>,
        has_ranges: bool,
    ) {
        let why = match (journal, identity) {
            (Err(why), _) => format!("its journal cannot be read: {why}"),
            (Ok(noted), Some(identity)) => noted.identity.difference(identity, has_ranges),
            (Ok(_), None) => "the origin does not tell by an ETag which version it sends".into(),
        };
        self.set_note(format!("started over: what an earlier run left is of no use: {why}"));
    }

    /// Said where the user can do something about it; a file system whose locks say nothing has no journals.
    fn note_missing_journal(&self) {
        if let Some(name) = self.temporary.in_its_journals_place(&self.folder) {
            let path = self.shown.with_file_name(name);
            let path = path.display();
            self.set_note(format!(
                "resume is off: {path} is no file and stands where its journal would: remove it"
            ));
        }
    }

    fn set_note(&self, note: String) {
        *self.note.lock().unwrap_or_else(PoisonError::into_inner) = Some(note);
    }

    pub(crate) fn note(&self) -> Option<String> {
        self.note.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where it is noted what has landed.
    pub(crate) fn journal(&self) -> Option<&Log> {
        self.journal.get()
    }

    fn lock_earlier(&self) -> MutexGuard<'_, Option<Earlier>> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> Result<(), Error> {
        self.temporary
            .file
            .write_all_at(bytes, at)
            .map_err(|refused| Error::local("cannot write", refused).during("write", self.shown()))
    }

    /// A piece of a part, or its rest, has been written: write-back of it may start.
    pub(crate) fn on_written(&self, piece: Range<u64>) {
        let reserved = self.reserved_bytes.load(Ordering::Relaxed);
        self.write_back.on_written(&self.temporary.file, piece, reserved);
    }

    /// Puts the whole file under its name. Where that takes an earlier file's place, its mode is kept, and
    /// the bytes are on disk before.
    pub(crate) fn commit(&self, bytes: u64) -> Result<(), Error> {
        let file = &self.temporary.file;
        if self.reserved_bytes.load(Ordering::Relaxed) > bytes {
            file.set_len(bytes).map_err(|refused| Error::local("cannot set the length", refused))?;
        }
        if let Some(ns) = self.modified_ns {
            match set_modified(file, ns) {
                Err(refused) if !keeps_no_times(refused) => {
                    return Err(Error::local("cannot set its time", refused.into()));
                }
                Ok(()) | Err(_) => {}
            }
        }
        if !self.temporary.is_ours(&self.folder) {
            return Err(match self.is_folder_gone() {
                true => Error::local("cannot put the file under its name", Errno::NOENT.into()),
                false => {
                    Error::new(ErrorKind::LocalIo, "its temporary file was taken away while it was written")
                }
            });
        }
        // Where nothing stands under the name this is all, and nothing that appears meanwhile is overwritten.
        let (folder, from) = (&*self.folder, &self.temporary.name);
        if rustix::fs::renameat_with(folder, from, folder, &self.name, RenameFlags::NOREPLACE).is_ok() {
            self.on_named();
            return Ok(());
        }
        if self.keep_existing {
            return self.link();
        }
        if let Some(mode) = self.earlier_mode()? {
            rustix::fs::fchmod(file, mode).map_err(|refused| {
                Error::local("cannot keep the earlier file's permissions", refused.into())
            })?;
            file.sync_all().map_err(|refused| Error::local("cannot sync to disk", refused))?;
        }
        rustix::fs::renameat(folder, from, folder, &self.name)
            .map_err(|refused| Error::local("cannot put the file under its name", refused.into()))?;
        self.on_named();
        Ok(())
    }

    /// Names the file without replacing anything, as link(2) does also where rename has no such flag.
    fn link(&self) -> Result<(), Error> {
        let (folder, from) = (&*self.folder, &self.temporary.name);
        match rustix::fs::linkat(folder, from, folder, &self.name, AtFlags::empty()) {
            Ok(()) => {
                let _ = rustix::fs::unlinkat(folder, from, AtFlags::empty());
                self.on_named();
                Ok(())
            }
            Err(Errno::EXIST) => {
                // The next run will leave it out: nothing is to go on from.
                self.let_go(false);
                let cause = "a file of that name appeared while this one was written: it stays as it is";
                Err(Error::new(ErrorKind::LocalIo, cause).with_hint([
                    text("leave out "),
                    Word::Feature(Feature::KeepExisting),
                    text(" to replace it"),
                ]))
            }
            Err(refused) => Err(Error::local("cannot put the file under its name", refused.into())),
        }
    }

    /// The file has its own name: the journal has served.
    fn on_named(&self) {
        self.is_unnamed.store(true, Ordering::Relaxed);
        self.remove_journal();
    }

    fn remove_journal(&self) {
        if let Some(log) = self.journal.get() {
            self.temporary.remove_journal(&self.folder, log.file());
        }
        if let Some(earlier) = self.lock_earlier().take() {
            self.temporary.remove_journal(&self.folder, &earlier.file);
        }
    }

    /// A folder that was removed can be held, and has no name any more.
    fn is_folder_gone(&self) -> bool {
        rustix::fs::fstat(&self.folder).is_ok_and(|stat| stat.st_nlink == 0)
    }

    /// The mode of the regular file that stands there; what is neither a file nor a link is not to be
    /// replaced.
    fn earlier_mode(&self) -> Result<Option<Mode>, Error> {
        let stat: Stat = match rustix::fs::statat(&*self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(refused) => return Err(Error::local("cannot look at the target", refused.into())),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Some(Mode::from_raw_mode(stat.st_mode))),
            FileType::Symlink => Ok(None),
            FileType::Directory => Err(is_folder()),
            _ => Err(is_special()),
        }
    }

    /// Lets go of a file that was not committed: with `keep` it stays for the next run where that is worth
    /// while, and is removed otherwise. The bytes that the next run will find; 0 when nothing stays, or the
    /// file has its name. Once at most; in a forked child it is not ours.
    pub(crate) fn let_go(&self, keep: bool) -> u64 {
        let is_named = self.process == std::process::id() && !self.is_unnamed.swap(true, Ordering::Relaxed);
        if !is_named {
            return 0;
        }
        if !self.temporary.is_ours(&self.folder) {
            // Somebody took the file away: what was noted of it says nothing.
            self.remove_journal();
            return 0;
        }
        let kept_bytes = if keep { self.worth() } else { 0 };
        if kept_bytes >= journal::WORTH_KEEPING_BYTES {
            return kept_bytes;
        }
        let _ = rustix::fs::unlinkat(&*self.folder, &self.temporary.name, AtFlags::empty());
        self.remove_journal();
        0
    }

    /// Bytes in the journal's blocks; what was reserved behind the last of them is given back.
    fn worth(&self) -> u64 {
        if let Some(log) = self.journal.get() {
            let (bytes, end) = log.flush();
            // Where that fails the file is longer than it need be, and good.
            let _ = self.temporary.file.set_len(end);
            return bytes;
        }
        // It failed before anything was known: what was there is there still.
        self.earlier().map_or(0, |noted| noted.bytes())
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        self.let_go(true);
    }
}

fn set_modified(file: &File, ns: i128) -> Result<(), Errno> {
    const SECOND_NS: i128 = 1_000_000_000;
    let time = Timespec {
        tv_sec: i64::try_from(ns.div_euclid(SECOND_NS)).map_err(|_| Errno::RANGE)?,
        tv_nsec: ns.rem_euclid(SECOND_NS) as _,
    };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::futimens(file, &times)
}

/// Whether the file system refuses to set times even to a file's owner, as some network and FUSE file systems
/// do. The file is whole all the same.
fn keeps_no_times(refused: Errno) -> bool {
    matches!(refused, Errno::PERM | Errno::ACCESS | Errno::NOSYS | Errno::OPNOTSUPP | Errno::INVAL)
}

fn refused_there(refused: io::Error) -> Error {
    Error::local("cannot create a file there", refused)
}

fn is_folder() -> Error {
    let error = Error::new(ErrorKind::LocalIo, "the target is a folder");
    error.with_hint("name a file, or end the path with `/` to keep the object's name")
}

fn is_special() -> Error {
    let error =
        Error::new(ErrorKind::LocalIo, "the target is not a regular file, and would be replaced by one");
    error.with_hint([text("use "), Word::Feature(Feature::Read), text(" and redirect its output there")])
}

/// The path that a rename may replace: links are followed, and only regular files or nothing may be there.
fn final_path(path: &Path) -> Result<PathBuf, Error> {
    // Nothing is there, not even a link: one look, where the walk below takes one for each folder on the way.
    if path.symlink_metadata().is_err_and(|missing| missing.kind() == io::ErrorKind::NotFound) {
        return Ok(path.to_path_buf());
    }
    let path = match std::fs::canonicalize(path) {
        Ok(real) => real,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            // A link to nothing yet: what it names is what is written.
            return Ok(match std::fs::read_link(path) {
                Ok(named) => path.parent().unwrap_or(Path::new("")).join(named),
                Err(_) => path.to_path_buf(),
            });
        }
        Err(refused) => return Err(Error::local("cannot look at the target", refused)),
    };
    let kind = std::fs::metadata(&path)
        .map_err(|refused| Error::local("cannot look at the target", refused))?
        .file_type();
    if kind.is_dir() {
        return Err(is_folder());
    }
    if kind.is_char_device() || kind.is_block_device() || kind.is_fifo() || kind.is_socket() {
        return Err(is_special());
    }
    Ok(path)
}
