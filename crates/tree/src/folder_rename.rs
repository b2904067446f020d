//! The rename of a folder: all its objects are copied, then each is deleted where it was. A record outside of
//! the store says how far that came, so that a rename whose mount was killed can be ended.
//!
//! ```text
//! record ─ copies ─ "all made" ─ deletions ─ record removed
//!        └─ killed, failed: undo             └─ killed, failed: finish
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flatout_engine::{Entry, Error, ErrorKind};
use flatout_wire::checksum::Algorithm;
use flatout_wire::location::Location;
use flatout_wire::object_options::Condition;

use crate::store::{Head, ObjectStore, UploadNotes};

/// Objects of a folder that are copied or deleted at once.
const AT_ONCE: usize = 32;
/// Between two looks for a copy that may still be made.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long the store may work on a small copy after its client is gone.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);
const COPIED_A_SECOND: u64 = 13 << 20;
const SETTLES_WITHIN_MOST: Duration = Duration::from_secs(20);

/// Which objects are renamed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FolderRename {
    /// The folder, with a slash at its end.
    pub source: Location,
    /// The folder's new name, with a slash at its end. No object lay in it when the rename began.
    pub target: Location,
    /// The keys of its objects behind that of the folder. The folder's marker is the empty one.
    pub names: Vec<String>,
}

/// The version that was copied, and the one that was made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeCopy {
    /// As sent, with its quotes.
    pub from_etag: Option<String>,
    /// As sent, with its quotes.
    pub to_etag: Option<String>,
}

/// How far the copy of one object came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CopyState {
    /// Nothing was made.
    #[default]
    Outstanding,
    /// It may have been made.
    Begun,
    /// It was.
    Made(MadeCopy),
}

/// How far a rename came whose mount was killed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RenameState {
    /// In the order of the names.
    pub copies: Vec<CopyState>,
    /// All copies were made: originals may have been deleted.
    pub is_all_made: bool,
    /// The end of the mount, in seconds since 1970: younger copies whose making was not noted are of others.
    pub until_s: u64,
    /// The mount has died a short time ago: the store may still be at work on copies that were begun.
    pub is_recent: bool,
}

/// Keeps records of renames for as long as they are under way.
pub trait RenameJournal: Send + Sync + std::fmt::Debug {
    /// Begins a record. It outlives a crash of the machine from when this returns; nothing is copied before.
    ///
    /// # Errors
    /// There is no record.
    fn begin(&self, rename: &FolderRename) -> Result<Box<dyn RenameRecord>, Error>;

    /// Renames that another process has left are being ended: until then none is begun.
    fn is_ending_others(&self) -> bool {
        false
    }
}

/// The record of a rename. One that is dropped without its end is for the next mount.
pub trait RenameRecord: Send + Sync {
    /// The object of that number among the names is about to be copied. May be lost in a crash of the
    /// machine, as the next.
    fn begun(&self, number: usize);

    /// It was copied.
    fn made(&self, number: usize, copy: &MadeCopy);

    /// Every copy has been noted. Outlives a crash of the machine from when this returns; nothing is deleted
    /// before.
    ///
    /// # Errors
    /// The record may say so, or not.
    fn all_made(&self) -> Result<(), Error>;

    /// The copies are being deleted again, whatever was noted before.
    ///
    /// # Errors
    /// It is not noted: nothing may be undone.
    fn undoing(&self) -> Result<(), Error>;

    /// Nothing is left to be done.
    fn ended(self: Box<Self>);
}

/// What became of a rename that was finished or undone.
#[derive(Debug, Default)]
pub struct RenameEnd {
    /// Objects that stay at both places, or at the old one, since they have changed, or since it is not known
    /// that one is the copy of the other. Their old names.
    pub left: Vec<Location>,
    /// Why it has to be tried again: the origin's refusal, or the network's.
    pub failed: Option<Error>,
    /// Copies that were begun and have not been seen. Their numbers.
    pub unseen: Vec<usize>,
}

impl FolderRename {
    fn source_of(&self, name: &str) -> Result<Location, Error> {
        below(&self.source, name)
    }

    fn target_of(&self, name: &str) -> Result<Location, Error> {
        below(&self.target, name)
    }
}

fn below(folder: &Location, name: &str) -> Result<Location, Error> {
    let key = format!("{}{name}", folder.key());
    folder.with_key(key).ok_or_else(|| Error::new(ErrorKind::Internal, "a folder outside of every bucket"))
}

/// Renames a folder under that record, with `keeps_times` as [`ObjectStore::copy`]. Where a copy fails, the
/// others are deleted again.
///
/// # Errors
/// The first refusal of the origin, or failure of the network.
pub(crate) fn rename<S: ObjectStore>(
    store: &S,
    rename: &FolderRename,
    record: Box<dyn RenameRecord>,
    keeps_times: bool,
    notes: Option<Arc<dyn UploadNotes>>,
) -> Result<(), Error> {
    let (copies, copied) = copy_all(store, rename, &*record, keeps_times, notes);
    let copied = copied.and_then(|()| check_copies(store, rename, &copies));
    if let Err(failed) = copied.and_then(|()| record.all_made()) {
        if let Err(unnoted) = record.undoing() {
            // It may be noted that all were made: nothing is deleted.
            return Err(unnoted.with_hint("the copies stay until the next mount"));
        }
        let end = undo(store, rename, &copies, u64::MAX);
        if end.failed.is_none() {
            record.ended();
        }
        return Err(told(failed, rename, &end));
    }
    let deleted = many(&rename.names, |number, name| {
        let source = rename.source_of(name)?;
        match from_etag(&copies, number) {
            Some(etag) => store.delete_version(&source, etag),
            None => store.delete(&source),
        }
    });
    let failed = deleted.into_iter().filter_map(Result::err);
    let mut failed: Vec<Error> = failed.filter(|error| !is_gone(error)).collect();
    // What another client has put there since stays.
    if failed.iter().all(|error| error.kind() == ErrorKind::Changed) {
        record.ended();
    }
    if failed.is_empty() {
        return Ok(());
    }
    let left = "all copies were made; the next mount deletes the objects that are left at the old name";
    Err(failed.swap_remove(0).with_hint(left))
}

/// Whether the objects at the new name are the copies that were made, and all are there: not every server
/// heeds the condition that nothing is.
///
/// # Errors
/// `Changed`; the origin's refusal, or the network's.
fn check_copies<S: ObjectStore>(store: &S, rename: &FolderRename, copies: &[CopyState]) -> Result<(), Error> {
    let bare = |etag: &str| etag.trim_matches('"').to_ascii_lowercase();
    let (mut pages, mut found) = (store.list_deep(&rename.target)?, HashMap::new());
    loop {
        let (entries, is_last) = pages.next_page()?;
        for entry in entries {
            if let Entry::Object(object) = entry
                && let Some(name) = object.key.strip_prefix(rename.target.key())
            {
                found.insert(name.to_owned(), object.etag.as_deref().map(bare));
            }
        }
        if is_last {
            break;
        }
    }
    for (name, copy) in rename.names.iter().zip(copies) {
        let CopyState::Made(made) = copy else { continue };
        let made = made.to_etag.as_deref().map(bare);
        let is_ours =
            found.get(name).is_some_and(|there| there.is_none() || made.is_none() || *there == made);
        if !is_ours {
            let cause = "another client has changed the copies before all were made";
            return Err(Error::new(ErrorKind::Changed, cause).during("rename", rename.target_of(name)?));
        }
    }
    Ok(())
}

/// Ends a rename whose mount was killed: finishes it where all copies were made, else deletes them again. An
/// object is deleted only where one of the same bytes is seen at the other place. It can be repeated.
pub fn end_rename<S: ObjectStore>(store: &S, rename: &FolderRename, state: &RenameState) -> RenameEnd {
    if state.is_all_made {
        return finish(store, rename, &state.copies);
    }
    let mut end = undo(store, rename, &state.copies, state.until_s);
    if state.is_recent {
        settle(store, rename, state.until_s, &mut end);
    }
    match copies_left(store, rename) {
        Ok(left) => end.left = left,
        Err(error) => end.failed = end.failed.or(Some(error)),
    }
    end
}

/// Undoes copies that the store makes only now.
fn settle<S: ObjectStore>(store: &S, rename: &FolderRename, until_s: u64, end: &mut RenameEnd) {
    let bytes = |number: &usize| {
        let source = rename.source_of(&rename.names[*number]).ok()?;
        look(store, &source).ok()?.map(|head| head.size)
    };
    let largest = end.unseen.iter().filter_map(bytes).max().unwrap_or(0);
    let longest = SETTLES_WITHIN + Duration::from_secs(largest / COPIED_A_SECOND);
    let settled = Instant::now() + longest.min(SETTLES_WITHIN_MOST);
    while !end.unseen.is_empty() && Instant::now() < settled {
        std::thread::sleep(LOOK_AGAIN);
        let mut unseen = vec![CopyState::Outstanding; rename.names.len()];
        end.unseen.iter().for_each(|number| unseen[*number] = CopyState::Begun);
        let later = undo(store, rename, &unseen, until_s);
        end.failed = end.failed.take().or(later.failed);
        end.unseen = later.unseen;
    }
}

/// The old names of objects that have one of the new names, too: also of those whose notes were lost in a
/// crash of the machine.
fn copies_left<S: ObjectStore>(store: &S, rename: &FolderRename) -> Result<Vec<Location>, Error> {
    let names: HashSet<&str> = rename.names.iter().map(String::as_str).collect();
    let (mut pages, mut left) = (store.list_deep(&rename.target)?, Vec::new());
    loop {
        let (entries, is_last) = pages.next_page()?;
        for entry in &entries {
            let name = entry.name().strip_prefix(rename.target.key());
            if let Some(name) = name.and_then(|name| names.get(name)) {
                left.push(rename.source_of(name)?);
            }
        }
        if is_last {
            return Ok(left);
        }
    }
}

fn from_etag(copies: &[CopyState], number: usize) -> Option<&str> {
    match copies.get(number)? {
        CopyState::Made(made) => made.from_etag.as_deref(),
        CopyState::Outstanding | CopyState::Begun => None,
    }
}

/// Copies all objects until one fails; how far each came.
fn copy_all<S: ObjectStore>(
    store: &S,
    rename: &FolderRename,
    record: &dyn RenameRecord,
    keeps_times: bool,
    notes: Option<Arc<dyn UploadNotes>>,
) -> (Vec<CopyState>, Result<(), Error>) {
    let (is_over, takes_no_condition) = (AtomicBool::new(false), AtomicBool::new(false));
    let copy = |name: &str| {
        let (source, target) = (rename.source_of(name)?, rename.target_of(name)?);
        if !takes_no_condition.load(Ordering::Relaxed) {
            match store.copy(&source, &target, Condition::Absent, keeps_times, notes.clone()) {
                // A server without such a condition: the folder was empty.
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    takes_no_condition.store(true, Ordering::Relaxed);
                }
                copied => return copied,
            }
        }
        store.copy(&source, &target, Condition::None, keeps_times, notes.clone())
    };
    let copied = many(&rename.names, |number, name| {
        if is_over.load(Ordering::Relaxed) {
            return (CopyState::Outstanding, None);
        }
        record.begun(number);
        match copy(name) {
            Ok(copied) => {
                let made = MadeCopy { from_etag: copied.from_etag, to_etag: copied.stored.etag };
                record.made(number, &made);
                (CopyState::Made(made), None)
            }
            Err(error) => {
                is_over.store(true, Ordering::Relaxed);
                let state = if made_nothing(&error) { CopyState::Outstanding } else { CopyState::Begun };
                (state, Some(error))
            }
        }
    });
    let (mut copies, failed): (Vec<CopyState>, Vec<Option<Error>>) = copied.into_iter().unzip();
    let mut failed: Vec<Error> = failed.into_iter().flatten().collect();
    if failed.iter().any(|error| error.kind() == ErrorKind::Changed) {
        // Another client works there: what may have been made may also be of that one.
        copies
            .iter_mut()
            .filter(|copy| **copy == CopyState::Begun)
            .for_each(|copy| *copy = CopyState::Outstanding);
    }
    let result = if failed.is_empty() { Ok(()) } else { Err(failed.swap_remove(0)) };
    (copies, result)
}

/// Whether a copy that failed so has surely made nothing.
fn made_nothing(error: &Error) -> bool {
    use ErrorKind::{Changed, Denied, NotFound, Unsupported, Usage};
    matches!(error.kind(), Changed | Denied | NotFound | Unsupported | Usage)
}

/// What became of one object.
enum Ended {
    Done,
    /// It was begun, and has not been made.
    Unseen,
    Left(Location),
}

fn finish<S: ObjectStore>(store: &S, rename: &FolderRename, copies: &[CopyState]) -> RenameEnd {
    ended(many(&rename.names, |number, name| {
        let (source, target) = (rename.source_of(name)?, rename.target_of(name)?);
        let Some(original) = look(store, &source)? else { return Ok(Ended::Done) };
        let etag = from_etag(copies, number);
        let is_copy = |there: Head| match copies.get(number) {
            Some(CopyState::Made(made)) if made.to_etag.is_some() && made.to_etag == there.etag => true,
            _ => have_same_bytes(&original, &there),
        };
        // A new version of the original, or a copy that another client has removed or replaced since.
        if etag.is_none() || original.etag.as_deref() != etag || !look(store, &target)?.is_some_and(is_copy) {
            return Ok(Ended::Left(source));
        }
        delete_seen(store, &source, etag.unwrap_or_default(), &source)
    }))
}

fn undo<S: ObjectStore>(store: &S, rename: &FolderRename, copies: &[CopyState], until_s: u64) -> RenameEnd {
    ended(many(&rename.names, |number, name| {
        let state = copies.get(number).unwrap_or(&CopyState::Outstanding);
        if *state == CopyState::Outstanding {
            return Ok(Ended::Done);
        }
        let (source, target) = (rename.source_of(name)?, rename.target_of(name)?);
        let Some(copy) = look(store, &target)? else {
            return Ok(if *state == CopyState::Begun { Ended::Unseen } else { Ended::Done });
        };
        let Some(original) = look(store, &source)? else { return Ok(Ended::Left(source)) };
        let is_ours = match state {
            CopyState::Made(made) if made.to_etag == copy.etag && made.from_etag == original.etag => true,
            CopyState::Made(_) => false,
            _ => copy.modified_s <= until_s && have_same_bytes(&original, &copy),
        };
        match copy.etag.as_deref().filter(|_| is_ours) {
            Some(etag) => delete_seen(store, &target, etag, &source),
            None => Ok(Ended::Left(source)),
        }
    }))
}

fn ended(objects: Vec<Result<Ended, Error>>) -> RenameEnd {
    let mut end = RenameEnd::default();
    for (number, object) in objects.into_iter().enumerate() {
        match object {
            Ok(Ended::Done) => {}
            Ok(Ended::Unseen) => end.unseen.push(number),
            Ok(Ended::Left(source)) => end.left.push(source),
            Err(error) => end.failed = end.failed.or(Some(error)),
        }
    }
    end
}

/// Deletes a version that was just seen.
fn delete_seen<S: ObjectStore>(
    store: &S,
    object: &Location,
    etag: &str,
    source: &Location,
) -> Result<Ended, Error> {
    match store.delete_version(object, etag) {
        Err(error) if error.kind() == ErrorKind::Changed => Ok(Ended::Left(source.clone())),
        Err(error) if !is_gone(&error) => Err(error),
        _ => Ok(Ended::Done),
    }
}

fn look<S: ObjectStore>(store: &S, object: &Location) -> Result<Option<Head>, Error> {
    match store.head(object) {
        Ok(head) => Ok(Some(head)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_gone(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound && !error.is_missing_bucket()
}

/// By a checksum of 64 bits that the store states of both, else by their ETags. Copies of objects that were
/// sent in parts have other ETags.
fn have_same_bytes(one: &Head, other: &Head) -> bool {
    let pairs = [Algorithm::Crc64Nvme, Algorithm::Crc64Xz].iter().filter_map(|algorithm| {
        let stated = |head: &Head| head.checksums.iter().find(|(of, _)| of == algorithm).map(|(_, crc)| *crc);
        Some((stated(one)?, stated(other)?))
    });
    let mut pairs = pairs.peekable();
    one.size == other.size
        && match pairs.peek() {
            Some(_) => pairs.all(|(one, other)| one == other),
            None => one.etag.is_some() && one.etag == other.etag,
        }
}

/// The failure of a rename, with what became of the copies.
fn told(failed: Error, rename: &FolderRename, end: &RenameEnd) -> Error {
    let more = match (&end.failed, end.left.first()) {
        (Some(why), _) => {
            format!("what was copied could not be deleted, which the next mount of this source does: {why}")
        }
        (None, Some(first)) => format!("{} objects stay at both places, such as {first}", end.left.len()),
        (None, None) => return failed,
    };
    let told = Error::new(failed.kind(), format!("{failed}; {more}")).during("rename", &rename.source);
    match failed.hint() {
        Some(hint) => told.with_hint(hint.clone()),
        None => told,
    }
}

/// Calls `each` for all items with their numbers, several at a time; the results in their order.
fn many<T: Sync, R: Send>(items: &[T], each: impl Fn(usize, &T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else { return };
            let result = each(at, item);
            results.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..AT_ONCE.min(items.len()) {
            // Where there is no thread, the others do it all.
            let _ = std::thread::Builder::new().name("tree-rename".into()).spawn_scoped(scope, work);
        }
        work();
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
