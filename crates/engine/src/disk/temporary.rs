//! Temporary files: each is locked for as long as its owner lives, so that whoever comes next can tell the
//! dead from the living (docs/decisions/temporary-files-are-locked.md).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flatout_wire::checksum::Algorithm;
use rustix::fs::{Access, AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::disk::folder::{self, Folder};
use crate::disk::journal::{self, Journal, Unreadable};

/// The number of the file that a later run goes on from.
const RESUMABLE: u32 = 0;
/// Numbers that the next run looks at, one openat(2) each. Where all have an owner, or locks say nothing, one
/// is drawn.
const NUMBERS: std::ops::Range<u32> = RESUMABLE..16;

/// Behind the name of a temporary file: that of its journal.
const JOURNAL: &str = ".journal";
/// Of a name, how many characters are shown: it may have 255 bytes; ours adds up to 32, and its journal's 8.
const SHOWN_CHARS: usize = 50;
/// A journal of 40 TiB is shorter; one that is longer is not read.
const JOURNAL_BYTES_MAX: u64 = 1 << 30;
/// How long a sweep leaves what the next run could go on from.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// A new file under a temporary name, `.NAME.flatout-HASH-NUMBER` in the folder of its own, so that a rename
/// can replace the target at once. It has the first number without a living owner, so that what a killed run
/// left is found without reading the folder. Only the first number has a journal, and is resumed.
pub(crate) struct Temporary {
    pub(crate) file: File,
    pub(crate) name: OsString,
    number: u32,
    /// Where it was taken over from a dead owner: what he noted.
    pub(crate) earlier: Option<Earlier>,
}

/// A dead owner's journal, and the file of it, locked.
pub(crate) struct Earlier {
    pub(crate) file: File,
    pub(crate) journal: Result<Arc<Journal>, Unreadable>,
}

impl Temporary {
    /// For the file `name` in `folder`. With `resume` one that a dead owner left with a journal is taken
    /// over, whatever it is of; else it is removed.
    ///
    /// # Errors
    /// The reason why no file can be made there.
    pub(crate) fn create(folder: &OwnedFd, name: &OsStr, resume: bool) -> Result<Temporary, Errno> {
        // Reading is for whoever takes it over.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let stem = stem(name);
        let mut number = RESUMABLE;
        loop {
            let name = numbered(&stem, number);
            match rustix::fs::openat(folder, &name, flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => match lock(&file) {
                    // Who clears may have taken it for a dead one before it was locked, and removed it.
                    Lock::Held if !is_linked(&file) => {}
                    Lock::Taken => number = after(number),
                    Lock::Held | Lock::Unknown => {
                        return Ok(Temporary { file: file.into(), name, number, earlier: None });
                    }
                },
                Err(Errno::EXIST) => {
                    // Where nothing can be made nothing can be put in place either: that is known before all
                    // is fetched.
                    if let Err(refused @ (Errno::ACCESS | Errno::ROFS)) = may_write(folder) {
                        return Err(refused);
                    }
                    let is_resumed = resume && number == RESUMABLE;
                    let taken_over = if is_resumed { take_over(folder, &name) } else { None };
                    if let Some((file, earlier)) = taken_over {
                        return Ok(Temporary { file: file.into(), name, number, earlier: Some(earlier) });
                    }
                    if clear(folder, &name) == Found::Kept {
                        number = after(number);
                    }
                }
                Err(refused) => return Err(refused),
            }
        }
    }

    /// A new file for this one's journal, locked; `None` where none can be had, or where no later run could
    /// take it over.
    pub(crate) fn journal_file(&self, folder: &OwnedFd) -> Option<File> {
        if self.number != RESUMABLE {
            return None;
        }
        let known = rustix::fs::fstat(&self.file).ok()?;
        if !reaches_every_owner(&self.file, &known) {
            return None;
        }
        let name = journal_name(&self.name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // A dead owner's may stand there, whose file has its own name by now.
        let file = rustix::fs::openat(folder, &name, flags, Mode::from_raw_mode(0o666)).ok()?;
        lock_dead(folder, &name, &file, true).then(|| file.into())
    }

    /// What stands where the journal would, and is no file that could be one.
    pub(crate) fn in_its_journals_place(&self, folder: &OwnedFd) -> Option<OsString> {
        let name = journal_name(&self.name);
        let there = rustix::fs::statat(folder, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (FileType::from_raw_mode(there.st_mode) != FileType::RegularFile).then_some(name)
    }

    /// Removes the journal; without the file it says nothing.
    pub(crate) fn remove_journal(&self, folder: &OwnedFd, journal: &File) {
        let name = journal_name(&self.name);
        let is_ours = rustix::fs::fstat(journal).is_ok_and(|known| leads_to(folder, &name, &known));
        if is_ours {
            let _ = rustix::fs::unlinkat(folder, &name, AtFlags::empty());
        }
    }

    /// Clears what dead owners left under the other numbers, and the journal of one that died at the very
    /// end. Our own has our lock.
    pub(crate) fn clear_others(&self, folder: &OwnedFd, name: &OsStr) {
        let stem = stem(name);
        clear_one(folder, &journal_name(&self.name));
        for number in NUMBERS.filter(|number| *number != self.number) {
            clear(folder, &numbered(&stem, number));
        }
    }

    /// Whether the name still leads to this file. Its lock keeps other runs from it, and nobody from `rm`:
    /// the name is then free, and the next run's.
    pub(crate) fn is_ours(&self, folder: &OwnedFd) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|known| leads_to(folder, &self.name, &known))
    }
}

/// Up to the number: the name, shortened, for whoever looks; its hash for us, which tells long names apart.
fn stem(name: &OsStr) -> String {
    let hash = Algorithm::Crc64Nvme.of(name.as_bytes());
    format!(".{}.flatout-{hash:016x}-", shown(name))
}

/// What a killed run leaves of the file `name` beside it, as a shell's pattern: the file so far, and its
/// journal.
pub fn left_behind_as(name: &OsStr) -> String {
    format!(".{}.flatout-*", shown(name))
}

fn shown(name: &OsStr) -> String {
    name.to_string_lossy().chars().take(SHOWN_CHARS).collect()
}

fn numbered(stem: &str, number: u32) -> OsString {
    format!("{stem}{number}").into()
}

/// The number to look at where this one has an owner.
fn after(number: u32) -> u32 {
    if number < NUMBERS.end - 1 { number + 1 } else { drawn() }
}

/// A number by chance: each hasher of the standard library has keys of its own.
fn drawn() -> u32 {
    RandomState::new().hash_one(()) as u32
}

fn journal_name(name: &OsStr) -> OsString {
    let mut journal = name.to_owned();
    journal.push(JOURNAL);
    journal
}

/// Whether a file's name has the form of those that a later run may remove, as what a killed run left:
/// nothing else may bear it.
pub fn is_temporary_name(name: &str) -> bool {
    shown_and_hash(name).is_some()
}

/// What a name of that form shows of the file's own, and the hash.
fn shown_and_hash(name: &str) -> Option<(&str, &str)> {
    let (shown, end) = name.strip_prefix('.')?.rsplit_once(".flatout-")?;
    let (hash, number) = end.strip_suffix(JOURNAL).unwrap_or(end).split_once('-')?;
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_number = number.parse::<u32>().is_ok_and(|value| value.to_string() == number);
    (hash.len() == 16 && hash.bytes().all(is_hex) && is_number).then_some((shown, hash))
}

/// Whether the name is one that we would make: of that form, and the hash is that of what is shown, where
/// that is the whole name. Somebody else's file that only looks like ours is left alone.
fn is_made_by_us(name: &str) -> bool {
    shown_and_hash(name).is_some_and(|(shown, hash)| {
        let is_cut = shown.chars().count() >= SHOWN_CHARS || shown.contains(char::REPLACEMENT_CHARACTER);
        is_cut || format!("{:016x}", Algorithm::Crc64Nvme.of(shown.as_bytes())) == hash
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    Held,
    Taken,
    /// The file system has none.
    Unknown,
}

/// The lock belongs to the open file, not to the process: it ends with the last descriptor, whatever the end.
fn lock(file: &OwnedFd) -> Lock {
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Lock::Held,
            Err(Errno::WOULDBLOCK) => return Lock::Taken,
            Err(Errno::INTR) => {}
            Err(_) => return Lock::Unknown,
        }
    }
}

fn is_linked(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).is_ok_and(|known| known.st_nlink > 0)
}

fn leads_to(folder: &OwnedFd, name: &OsStr, known: &Stat) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|there| (there.st_dev, there.st_ino) == (known.st_dev, known.st_ino))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Cleared,
    /// It has an owner, or nobody can tell, or it is not to be removed by us.
    Kept,
}

/// For writing, as NFS wants it of who locks alone; a pipe or a link of that name is not waited for, and not
/// followed.
const FOUND: OFlags = OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Removes a temporary file whose owner is certainly dead, and its journal.
fn clear(folder: &OwnedFd, name: &OsStr) -> Found {
    let found = clear_one(folder, name);
    if found == Found::Cleared {
        clear_one(folder, &journal_name(name));
    }
    found
}

fn clear_one(folder: &OwnedFd, name: &OsStr) -> Found {
    let file = match rustix::fs::openat(folder, name, FOUND, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Found::Nothing,
        Err(_) => return Found::Kept,
    };
    let is_dead = lock_dead(folder, name, &file, false);
    match is_dead && rustix::fs::unlinkat(folder, name, AtFlags::empty()).is_ok() {
        true => Found::Cleared,
        false => Found::Kept,
    }
}

/// Whether the file of that name has no owner, and is ours from here on. While we hold the lock a name that
/// leads to it has no other: one who made it just now finds the lock taken. With `own` it has to be our
/// user's, too.
fn lock_dead(folder: &OwnedFd, name: &OsStr, file: &OwnedFd, own: bool) -> bool {
    let Ok(known) = rustix::fs::fstat(file) else { return false };
    let is_plain = FileType::from_raw_mode(known.st_mode) == FileType::RegularFile && known.st_nlink == 1;
    is_plain
        && (!own || known.st_uid == rustix::process::geteuid().as_raw())
        && reaches_every_owner(file, &known)
        && lock(file) == Lock::Held
        && leads_to(folder, name, &known)
}

fn may_write(folder: &OwnedFd) -> Result<(), Errno> {
    rustix::fs::accessat(folder, ".", Access::WRITE_OK, AtFlags::EACCESS)
}

/// Takes a dead owner's file over, if there is a journal with it. What others may have written into a shared
/// folder is nothing to go on from: both have to be our user's.
fn take_over(folder: &OwnedFd, name: &OsStr) -> Option<(OwnedFd, Earlier)> {
    let journal_name = journal_name(name);
    let noted = rustix::fs::openat(folder, &journal_name, FOUND, Mode::empty()).ok()?;
    let file = rustix::fs::openat(folder, name, FOUND, Mode::empty()).ok()?;
    let is_ours = lock_dead(folder, name, &file, true) && lock_dead(folder, &journal_name, &noted, true);
    is_ours.then(|| {
        let noted = File::from(noted);
        let journal = read_journal(&noted);
        (file, Earlier { file: noted, journal })
    })
}

fn read_journal(file: &File) -> Result<Arc<Journal>, Unreadable> {
    let mut bytes = Vec::new();
    match file.take(JOURNAL_BYTES_MAX).read_to_end(&mut bytes) {
        Ok(_) => journal::read(&bytes).map(Arc::new),
        Err(_) => Err(Unreadable::Damaged),
    }
}

/// File systems that one kernel alone has mounted: whoever can have a file there open sees the same locks. By
/// `f_type` of statfs(2): ext2 to ext4, XFS, Btrfs, tmpfs, overlayfs, F2FS, ZFS, bcachefs, ramfs.
const LOCAL: [u32; 9] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0x794C_7630,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
    0x8584_58F6,
];
const NFS: u32 = 0x6969;

/// Whether a lock here is seen by every owner that the file may have: where another host may have it open and
/// its locks stay there, a lock that we get says nothing.
fn reaches_every_owner(file: &impl AsFd, known: &Stat) -> bool {
    let Ok(system) = rustix::fs::fstatfs(file) else { return false };
    match system.f_type as u32 {
        NFS => {
            let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            asks_the_server(&mounts, (rustix::fs::major(known.st_dev), rustix::fs::minor(known.st_dev)))
        }
        system => LOCAL.contains(&system),
    }
}

/// Whether flock(2) goes to the server of the NFS that is this device: `nolock` and `local_lock=` keep it
/// here.
fn asks_the_server(mounts: &str, (major, minor): (u32, u32)) -> bool {
    let device = format!("{major}:{minor}");
    let options = |line: &str| line.rsplit(' ').next().map(String::from).unwrap_or_default();
    let mut of_device =
        mounts.lines().filter(|line| line.split(' ').nth(2) == Some(&device)).map(options).peekable();
    of_device.peek().is_some() && of_device.all(|all| all.split(',').any(|one| one == "local_lock=none"))
}

/// Removes what killed runs left in the folder at `path`, as a get of many objects into it does first; a
/// folder that cannot be read has nothing for us. For whoever gets many objects one by one
/// ([`crate::Get::into_swept_folder`]).
pub fn sweep_folder(path: &Path) {
    if let Ok(folder) = folder::open(path) {
        sweep(&folder);
    }
}

/// Removes what dead owners left in the folder; what cannot be read or removed stays, and for a while what
/// somebody could go on from.
fn sweep(folder: &OwnedFd) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(readable) = rustix::fs::openat(folder, ".", flags, Mode::empty()) else { return };
    let Ok(entries) = Dir::new(readable) else { return };
    for entry in entries.map_while(Result::ok) {
        let Some(name) = entry.file_name().to_str().ok().filter(|name| is_made_by_us(name)) else {
            continue;
        };
        match name.strip_suffix(JOURNAL) {
            Some(file) if is_there(folder, file) => {}
            Some(_) => drop(clear_one(folder, name.as_ref())),
            None if is_worth_keeping(folder, name.as_ref()) => {}
            None => drop(clear(folder, name.as_ref())),
        }
    }
}

fn is_there(folder: &OwnedFd, name: &str) -> bool {
    rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
}

/// Whether there is a journal beside it that was written not long ago.
fn is_worth_keeping(folder: &OwnedFd, name: &OsStr) -> bool {
    let Ok(known) = rustix::fs::statat(folder, journal_name(name), AtFlags::SYMLINK_NOFOLLOW) else {
        return false;
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let written = Duration::from_secs(u64::try_from(known.st_mtime).unwrap_or(0));
    known.st_size > 0 && now.saturating_sub(written) < KEPT_FOR
}

/// Sweeps each folder that a sorted list of files goes into once, before its first file.
pub(crate) struct Sweeper {
    beneath: Folder,
    last_name: String,
    /// Folders that were swept and may come again: each holds the next, as a sorted list leaves a folder for
    /// good.
    open: Vec<String>,
}

impl Sweeper {
    pub(crate) fn new(beneath: Folder) -> Sweeper {
        Sweeper { beneath, last_name: String::new(), open: Vec::new() }
    }

    /// To be told of every file, by its relative path.
    pub(crate) fn before(&mut self, name: &str) {
        if self.is_new(name)
            && let Ok(folder) = self.beneath.existing(parent(name))
        {
            sweep(&folder);
        }
    }

    /// Whether the file's folder has not been swept. In a list without order a folder could come again for
    /// each of its files: a name that belongs before one that was there makes none new.
    fn is_new(&mut self, name: &str) -> bool {
        if *name < *self.last_name {
            return false;
        }
        name.clone_into(&mut self.last_name);
        let parent = parent(name);
        while self.open.last().is_some_and(|open| !holds(open, parent)) {
            self.open.pop();
        }
        if self.open.last().is_some_and(|open| open == parent) {
            return false;
        }
        self.open.push(parent.to_owned());
        true
    }
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

/// Whether `path` is the folder or lies in it.
fn holds(folder: &str, path: &str) -> bool {
    folder.is_empty()
        || path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
#[path = "temporary_tests.rs"]
mod tests;
