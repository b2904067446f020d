//! Renames of folders that a mount has begun: where it is killed, the next mount of the same source finishes
//! or undoes them.
//!
//! Each rename has a file, which its mount holds a lock on. It is written whole under another name first:
//!
//! ```text
//! flatout rename 1
//! from    s3://bucket/old/
//! to      s3://bucket/new/
//! object  KEY                  behind the folder's; one line for each, numbered from 0
//! all     COUNT                what stands up to here is on disk before the first copy
//! begun   NUMBER
//! made    NUMBER  ETAG  ETAG   of the version that was copied, of the copy
//! copied                       on disk before the first deletion
//! undoing                      instead, or after it
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flatout_engine::{Client, Error, ErrorKind, plain};
use flatout_tree::{
    CopyState, FolderRename, MadeCopy, RenameEnd, RenameJournal, RenameRecord, RenameState, end_rename,
};
use flatout_wire::location::Location;

use crate::log::MountLog;
use crate::plan::MountPlan;
use crate::unfinished;

const FIRST_LINE: &str = "flatout rename 1";
/// Of a file that is being written for the first time.
const NEW: &str = ".new";
/// How long a mount waits until renames have ended before it is served.
const WAIT: Duration = Duration::from_secs(10);
/// Clocks of the machine and of the origin may differ by so much.
const CLOCKS_APART_S: u64 = 120;
/// How long readers of a mount wait for that where another process goes on with it.
const WAIT_OF_READERS: Duration = Duration::from_secs(1);
/// The origin may still work on a rename's copies until this long after the last line of its record.
const RECENT: Duration = Duration::from_secs(120);

/// The records of a mount.
#[derive(Debug)]
pub(crate) struct RenameRecords {
    folder: PathBuf,
    prefix: String,
    count: AtomicU64,
    is_ending_others: Arc<AtomicBool>,
}

impl RenameRecords {
    /// For a mount of `source` at `origin`.
    pub(crate) fn new(
        folder: &Path,
        (source, origin): (&str, &str),
        is_ending_others: Arc<AtomicBool>,
    ) -> RenameRecords {
        let (folder, prefix) = (folder.to_owned(), prefix(source, origin));
        RenameRecords { folder, prefix, count: AtomicU64::new(0), is_ending_others }
    }

    fn write(&self, rename: &FolderRename) -> io::Result<RenameFile> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.join(format!("{}{since}-{}-{number}", self.prefix, std::process::id()));
        let new = path.with_extension(&NEW[1..]);
        let mut file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(&new)?;
        let written = file.try_lock().map_err(io::Error::from).and_then(|()| {
            file.write_all(head(rename)?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.folder)?.sync_all()
        });
        if let Err(error) = written {
            let _ = fs::remove_file(&new);
            let _ = fs::remove_file(&path);
            return Err(error);
        }
        Ok(RenameFile { path, file: Mutex::new(file), is_short: AtomicBool::new(false) })
    }
}

impl RenameJournal for RenameRecords {
    fn begin(&self, rename: &FolderRename) -> Result<Box<dyn RenameRecord>, Error> {
        match self.write(rename) {
            Ok(file) => Ok(Box::new(file)),
            Err(error) => Err(failed(&self.folder, &error)),
        }
    }

    fn is_ending_others(&self) -> bool {
        self.is_ending_others.load(Ordering::Acquire)
    }
}

fn failed(path: &Path, error: &io::Error) -> Error {
    Error::new(ErrorKind::LocalIo, plain(error)).during("write", path.display())
}

/// The record of one rename.
struct RenameFile {
    path: PathBuf,
    file: Mutex<File>,
    /// A line is missing.
    is_short: AtomicBool,
}

impl RenameFile {
    fn note(&self, line: &str) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // Behind a line that was cut off nothing is read as it was meant.
        if self.is_short.load(Ordering::Relaxed) || file.write_all(line.as_bytes()).is_err() {
            self.is_short.store(true, Ordering::Relaxed);
        }
    }
}

impl RenameFile {
    fn note_durably(&self, line: &str) -> Result<(), Error> {
        self.note(line);
        if self.is_short.load(Ordering::Relaxed) {
            return Err(failed(&self.path, &io::Error::from(io::ErrorKind::WriteZero)));
        }
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.sync_all().map_err(|error| failed(&self.path, &error))
    }
}

impl RenameRecord for RenameFile {
    fn begun(&self, number: usize) {
        self.note(&format!("begun\t{number}\n"));
    }

    fn made(&self, number: usize, copy: &MadeCopy) {
        let etag = |etag: &Option<String>| escaped(etag.as_deref().unwrap_or(""));
        self.note(&format!("made\t{number}\t{}\t{}\n", etag(&copy.from_etag), etag(&copy.to_etag)));
    }

    fn all_made(&self) -> Result<(), Error> {
        self.note_durably("copied\n")
    }

    fn undoing(&self) -> Result<(), Error> {
        // Where a line is missing, it is not noted that all were made either.
        match self.is_short.load(Ordering::Relaxed) {
            true => Ok(()),
            false => self.note_durably("undoing\n"),
        }
    }

    fn ended(self: Box<Self>) {
        // One that stays is found to be done by the next mount.
        let _ = fs::remove_file(&self.path);
    }
}

fn prefix(source: &str, origin: &str) -> String {
    format!("rename-{}-", unfinished::name(source, origin))
}

/// What stands in a file before the first copy.
fn head(rename: &FolderRename) -> io::Result<String> {
    let mut text = format!("{FIRST_LINE}\n");
    for (word, folder) in [("from", &rename.source), ("to", &rename.target)] {
        let shown = folder.to_string();
        if Location::parse(&shown).ok().as_ref() != Some(folder) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no record can name the folder"));
        }
        text += &format!("{word}\t{}\n", escaped(&shown));
    }
    for name in &rename.names {
        text += &format!("object\t{}\n", escaped(name));
    }
    text += &format!("all\t{}\n", rename.names.len());
    Ok(text)
}

/// Without control characters, which end lines and words.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '%' | '\0'..='\x1f' | '\x7f' => out += &format!("%{:02x}", letter as u32),
            _ => out.push(letter),
        }
    }
    out
}

fn unescaped(text: &str) -> Option<String> {
    let mut pieces = text.split('%');
    let mut out = pieces.next()?.to_owned();
    for piece in pieces {
        let byte = u8::from_str_radix(piece.get(..2)?, 16).ok().filter(u8::is_ascii)?;
        out.push(byte.into());
        out += &piece[2..];
    }
    Some(out)
}

/// What a file says; `None` for one that is not understood. Lines after the head count up to the first that
/// is cut off or is none.
fn parse(text: &str, noted: SystemTime) -> Option<(FolderRename, RenameState)> {
    let mut lines = text.split_inclusive('\n').map_while(|line| line.strip_suffix('\n'));
    if lines.next()? != FIRST_LINE {
        return None;
    }
    let mut folder = |word: &str| {
        let shown = unescaped(lines.next()?.strip_prefix(word)?.strip_prefix('\t')?)?;
        Location::parse(&shown).ok().filter(|folder| folder.in_bucket().is_some())
    };
    let (source, target) = (folder("from")?, folder("to")?);
    let mut names = Vec::new();
    loop {
        match lines.next()?.split_once('\t')? {
            ("object", name) => names.push(unescaped(name)?),
            ("all", count) if count.parse() == Ok(names.len()) => break,
            _ => return None,
        }
    }
    let mut copies = vec![CopyState::Outstanding; names.len()];
    let mut is_all_made = false;
    for line in lines {
        let words: Vec<&str> = line.split('\t').collect();
        let copy = words.get(1).and_then(|number| copies.get_mut(number.parse::<usize>().ok()?));
        match (words[0], copy, words.len()) {
            ("begun", Some(copy), 2) => *copy = CopyState::Begun,
            ("made", Some(copy), 4) => {
                let (Some(from), Some(to)) = (unescaped(words[2]), unescaped(words[3])) else { break };
                let etag = |etag: String| Some(etag).filter(|etag| !etag.is_empty());
                *copy = CopyState::Made(MadeCopy { from_etag: etag(from), to_etag: etag(to) });
            }
            ("copied", _, 1) => is_all_made = true,
            ("undoing", _, 1) => is_all_made = false,
            _ => break,
        }
    }
    // Copies of which nothing is known are undone, whatever else the file says.
    is_all_made &= copies.iter().all(|copy| matches!(copy, CopyState::Made(_)));
    let until_s = noted.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() + CLOCKS_APART_S;
    let is_recent = noted.elapsed().unwrap_or_default() < RECENT;
    let state = RenameState { copies, is_all_made, until_s, is_recent };
    Some((FolderRename { source, target, names }, state))
}

/// Ends the renames that killed mounts of this source have left, before the mount is served: half of the
/// objects of such a folder are at another place. Where that takes longer than some seconds it goes on beside
/// the mount, and no rename of a folder is begun meanwhile.
pub fn end_renames(client: &Arc<Client>, plan: &MountPlan, log: &Arc<MountLog>) {
    end_within(client, plan, log, WAIT);
}

/// As [`end_renames`], of a mount that stands: its readers wait.
pub(crate) fn end_renames_of_standing(client: &Arc<Client>, plan: &MountPlan, log: &Arc<MountLog>) {
    end_within(client, plan, log, WAIT_OF_READERS);
}

fn end_within(client: &Arc<Client>, plan: &MountPlan, log: &Arc<MountLog>, wait: Duration) {
    let Some(folder) = plan.state_folder.clone().filter(|_| !plan.settings.mount.read_only) else { return };
    let (source, origin) = plan.identity();
    let left = left_in(&folder, &prefix(&source, &origin));
    if left.is_empty() {
        return;
    }
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let (client, its_log, is_ending) = (client.clone(), log.clone(), plan.is_ending_renames.clone());
    is_ending.store(true, Ordering::Release);
    let ended = is_ending.clone();
    let work = move || {
        let _tell = tell;
        left.into_iter().for_each(|left| left.end(&client, &its_log));
        ended.store(false, Ordering::Release);
    };
    // Without a thread the next mount does it.
    let begun = std::thread::Builder::new().name("renames".to_owned()).spawn(work);
    if begun.is_err() {
        is_ending.store(false, Ordering::Release);
    }
    if begun.is_ok() && told.recv_timeout(wait) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
        log.say(
            "renames of folders that a killed mount has left are still being ended: until then, objects \
                 of them are at either place or at both",
        );
    }
}

/// A file whose mount is gone, with its lock.
struct Left {
    path: PathBuf,
    file: File,
}

fn left_in(folder: &Path, prefix: &str) -> Vec<Left> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix)))
        .map(|entry| entry.path())
        .collect();
    // The names begin with the time: what was renamed later comes later.
    paths.sort();
    paths.into_iter().filter_map(|path| take(path).ok().flatten()).collect()
}

/// None for one of a mount that lives, and for one that was never begun.
fn take(path: PathBuf) -> io::Result<Option<Left>> {
    let file = OpenOptions::new().read(true).append(true).open(&path)?;
    if file.try_lock().is_err() {
        return Ok(None);
    }
    if path.to_str().is_some_and(|path| path.ends_with(NEW)) {
        fs::remove_file(&path)?;
        return Ok(None);
    }
    // Another mount may have ended it between our look at the folder and the lock.
    Ok(path.exists().then_some(Left { path, file }))
}

impl Left {
    fn read(&self) -> io::Result<Option<(FolderRename, RenameState)>> {
        let (mut bytes, noted) = (Vec::new(), self.file.metadata()?.modified()?);
        (&self.file).read_to_end(&mut bytes)?;
        // What is no text any more has no line that is whole.
        let text = match std::str::from_utf8(&bytes) {
            Ok(text) => text,
            Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
        };
        Ok(parse(text, noted))
    }

    fn end(self, client: &Client, log: &MountLog) {
        let Ok(Some((rename, state))) = self.read() else {
            log.say(&format!(
                "{}: the record of a rename of a folder is not understood: it stays as it is",
                self.path.display()
            ));
            return;
        };
        let end = end_rename(client, &rename, &state);
        log.say(&said(&rename, &state, &end));
        if end.failed.is_none() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn said(rename: &FolderRename, state: &RenameState, end: &RenameEnd) -> String {
    let FolderRename { source, target, names } = rename;
    let about =
        format!("the rename of {source} to {target}, {} objects, by a mount that was killed", names.len());
    let done = if state.is_all_made { "finished" } else { "undone" };
    match (&end.failed, end.left.first()) {
        (Some(error), _) => format!("{about}, could not be {done}; the next mount tries again: {error}"),
        (None, Some(first)) => {
            let count = end.left.len();
            let why = "they have changed since, or may not be copies of each other";
            format!("{about}, was {done}; {count} objects stay as they are, such as {first}: {why}")
        }
        (None, None) if !end.unseen.is_empty() => {
            let count = end.unseen.len();
            format!("{about}, was {done}; {count} copies that were asked for may still appear at {target}")
        }
        (None, None) => format!("{about}, was {done}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABOUT: (&str, &str) = ("s3://b/", "http://x");

    fn rename() -> FolderRename {
        let folder = |at: &str| Location::parse(at).unwrap();
        let names = ["", "a b", "c\td\n%41", "e/ü"].map(str::to_owned).to_vec();
        FolderRename { source: folder("s3://b/f%2F x/"), target: folder("s3://b/g/"), names }
    }

    fn made(from: &str, to: &str) -> MadeCopy {
        MadeCopy { from_etag: Some(from.to_owned()), to_etag: Some(to.to_owned()) }
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    fn left(folder: &Path) -> Vec<Left> {
        left_in(folder, &prefix(ABOUT.0, ABOUT.1))
    }

    /// A file as it is after these steps of its rename, whose mount was killed then.
    fn file_after(steps: impl Fn(&dyn RenameRecord)) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let record = RenameRecords::new(folder.path(), ABOUT, Arc::default()).begin(&rename()).unwrap();
        steps(&*record);
        drop(record);
        let path = files(folder.path()).remove(0);
        (folder, path)
    }

    #[test]
    fn a_record_says_how_far_a_rename_came() {
        let check = |steps: &dyn Fn(&dyn RenameRecord), copies: &[CopyState], is_all_made: bool| {
            let (folder, _) = file_after(steps);
            let (read, state) = left(folder.path()).remove(0).read().unwrap().unwrap();
            assert_eq!((read, &state.copies[..], state.is_all_made), (rename(), copies, is_all_made));
        };
        use CopyState::{Begun, Made, Outstanding};
        check(&|_| {}, &[Outstanding, Outstanding, Outstanding, Outstanding], false);
        let some = |record: &dyn RenameRecord| {
            [0, 2].iter().for_each(|number| record.begun(*number));
            record.made(2, &made("\"x\"", "\"y\tz\""));
        };
        check(&some, &[Begun, Outstanding, Made(made("\"x\"", "\"y\tz\"")), Outstanding], false);
        let all = |record: &dyn RenameRecord| {
            (0..4).for_each(|number| record.made(number, &made("x", "y")));
            record.all_made().unwrap();
        };
        check(
            &all,
            &[Made(made("x", "y")), Made(made("x", "y")), Made(made("x", "y")), Made(made("x", "y"))],
            true,
        );
        let undone = |record: &dyn RenameRecord| {
            (0..4).for_each(|number| record.made(number, &made("x", "y")));
            record.all_made().unwrap();
            record.undoing().unwrap();
        };
        let copies = [(); 4].map(|()| Made(made("x", "y")));
        check(&undone, &copies, false);
    }

    #[test]
    fn a_record_that_was_cut_off_anywhere_says_no_more_than_is_so() {
        let (_folder, path) = file_after(|record| {
            (0..4).for_each(|number| record.made(number, &made("x", "y")));
            record.all_made().unwrap();
        });
        let text = fs::read_to_string(path).unwrap();
        let begin = text.find("made").unwrap();
        for end in 0..text.len() {
            let Some(text) = text.get(..end) else { continue };
            match parse(text, UNIX_EPOCH) {
                None => assert!(end < begin, "{text}"),
                Some((read, state)) => {
                    assert_eq!(read, rename());
                    let count = state.copies.iter().filter(|copy| **copy != CopyState::Outstanding).count();
                    assert_eq!(count, text.matches("\ty\n").count(), "{text}");
                    assert!(!state.is_all_made, "{text}");
                }
            }
        }
        // "copied" without all that was copied.
        assert!(!parse(&text.replace("made\t2\tx\ty\n", ""), UNIX_EPOCH).unwrap().1.is_all_made);
        for garbage in ["nonsense\ncopied\n", "made\t9\tx\ty\ncopied\n", "made\t0\tx\ncopied\n", "\0\0\0\n"] {
            let text = format!("{}{garbage}", &text[..text.find("copied").unwrap()]);
            assert!(!parse(&text, UNIX_EPOCH).unwrap().1.is_all_made, "{garbage:?}");
        }
    }

    #[test]
    fn what_is_not_understood_stays() {
        let (folder, path) = file_after(|_| {});
        for text in [&b"flatout rename 2\nfrom\ts3://b/f/\n"[..], b"", b"\xff\xfe", b"flatout rename 1\n"] {
            fs::write(&path, text).unwrap();
            assert!(left(folder.path()).remove(0).read().unwrap().is_none());
            assert!(path.exists());
        }
        let web = "flatout rename 1\nfrom\thttp://x/y\nto\ts3://b/g/\nall\t0\n";
        assert_eq!(parse(web, UNIX_EPOCH), None);
    }

    #[test]
    fn records_of_mounts_that_live_and_of_other_sources_are_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let records = RenameRecords::new(folder.path(), ABOUT, Arc::default());
        let (one, other) = (records.begin(&rename()).unwrap(), records.begin(&rename()).unwrap());
        let elsewhere = RenameRecords::new(folder.path(), ("s3://b/", "http://y"), Arc::default())
            .begin(&rename())
            .unwrap();
        assert_eq!((files(folder.path()).len(), left(folder.path()).len()), (3, 0));
        one.ended();
        drop((other, elsewhere));
        assert_eq!(files(folder.path()).len(), 2);
        let taken = left(folder.path());
        assert_eq!((taken.len(), left(folder.path()).len()), (1, 0), "one mount alone ends it");
        drop(taken);
        // One that was killed before its record was whole.
        let new = folder.path().join(format!("{}1-1-1{NEW}", prefix(ABOUT.0, ABOUT.1)));
        fs::write(&new, "flatout re").unwrap();
        assert_eq!((left(folder.path()).len(), new.exists()), (1, false));
    }

    #[test]
    fn a_folder_that_cannot_be_written_to_has_no_records() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        assert!(RenameRecords::new(&path.join("below"), ABOUT, Arc::default()).begin(&rename()).is_err());
    }
}
