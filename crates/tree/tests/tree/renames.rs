//! Renames of folders whose mount is killed at any step, and what the next mount makes of them.

use std::ffi::OsStr;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex};

use flatout_engine::{Error, ErrorKind};
use flatout_tree::store::ObjectStore;
use flatout_tree::{
    Config, CopyState, Files, FolderRename, MadeCopy, RenameEnd, RenameJournal, RenameRecord, RenameState,
    end_rename,
};

use crate::memory::Memory;
use crate::{ROOT, find, minute};

/// Records that outlive their mount. Writing one is a step of its store.
#[derive(Clone)]
pub struct Records {
    memory: Memory,
    files: Arc<Mutex<Vec<Option<Noted>>>>,
}

type Noted = (FolderRename, RenameState);

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Records")
    }
}

impl Records {
    pub fn of(memory: &Memory) -> Records {
        Records { memory: memory.clone(), files: Arc::default() }
    }

    fn left(&self) -> Vec<(FolderRename, RenameState)> {
        self.files.lock().unwrap().iter().flatten().cloned().collect()
    }

    /// As the next mount does.
    fn end(&self) -> Vec<RenameEnd> {
        let (mut ends, count) = (Vec::new(), self.files.lock().unwrap().len());
        for number in 0..count {
            let Some((rename, state)) = self.files.lock().unwrap()[number].clone() else { continue };
            let end = end_rename(&self.memory, &rename, &state);
            if end.failed.is_none() && self.memory.step().is_ok() {
                self.files.lock().unwrap()[number] = None;
            }
            ends.push(end);
        }
        ends
    }
}

impl RenameJournal for Records {
    fn begin(&self, rename: &FolderRename) -> Result<Box<dyn RenameRecord>, Error> {
        self.memory.step()?;
        let mut files = self.files.lock().unwrap();
        let copies = vec![CopyState::Outstanding; rename.names.len()];
        files.push(Some((
            rename.clone(),
            RenameState { copies, until_s: u64::MAX, ..RenameState::default() },
        )));
        Ok(Box::new(Record { records: self.clone(), number: files.len() - 1 }))
    }
}

struct Record {
    records: Records,
    number: usize,
}

impl Record {
    fn note(&self, note: impl FnOnce(&mut RenameState)) -> Result<(), Error> {
        self.records.memory.step()?;
        note(&mut self.records.files.lock().unwrap()[self.number].as_mut().unwrap().1);
        Ok(())
    }
}

impl RenameRecord for Record {
    fn begun(&self, number: usize) {
        let _ = self.note(|state| state.copies[number] = CopyState::Begun);
    }

    fn made(&self, number: usize, copy: &MadeCopy) {
        let _ = self.note(|state| state.copies[number] = CopyState::Made(copy.clone()));
    }

    fn all_made(&self) -> Result<(), Error> {
        self.note(|state| state.is_all_made = true)?;
        self.records.memory.step()
    }

    fn undoing(&self) -> Result<(), Error> {
        self.note(|state| state.is_all_made = false)
    }

    fn ended(self: Box<Self>) {
        if self.records.memory.step().is_ok() {
            self.records.files.lock().unwrap()[self.number] = None;
        }
    }
}

const NAMES: [&str; 4] = ["a", "b", "g/c", "g/d"];

fn folder() -> (Memory, Records) {
    let memory = Memory::with(&["f/a", "f/b", "f/g/c", "f/g/d", "other"]);
    memory.0.copies_keep_etags.store(true, Relaxed);
    let records = Records::of(&memory);
    (memory, records)
}

fn config(records: &Records) -> Config {
    Config { rename_most: 100, rename_journal: Some(Arc::new(records.clone())), ..minute() }
}

fn rename(memory: &Memory, records: &Records) -> Result<(), i32> {
    // The mount stood already.
    let steps = memory.0.steps_left.swap(i64::MAX, SeqCst);
    let tree = memory.tree(config(records));
    find(&tree, "f")?;
    memory.0.steps_left.store(steps, SeqCst);
    tree.rename((ROOT, OsStr::new("f")), (ROOT, OsStr::new("new")), false).map_err(|error| error.errno)
}

/// The mount is killed after so many steps; the next one lives.
fn killed_after<T>(memory: &Memory, steps: i64, what: impl FnOnce() -> T) -> bool {
    memory.0.steps_left.store(steps, SeqCst);
    what();
    memory.0.steps_left.swap(i64::MAX, SeqCst) < 0
}

/// At which of the two places each object is. Its bytes are what they were.
fn places(memory: &Memory) -> [(bool, bool); 4] {
    NAMES.map(|name| {
        ["f/", "new/"]
            .map(|folder| {
                let object = memory.object(&format!("{folder}{name}"));
                object.is_some_and(|object| {
                    assert_eq!(object.bytes, format!("content of f/{name}").into_bytes());
                    true
                })
            })
            .into()
    })
}

const AT_SOURCE: [(bool, bool); 4] = [(true, false); 4];
const AT_TARGET: [(bool, bool); 4] = [(false, true); 4];

#[track_caller]
fn is_nowhere_lost(memory: &Memory, about: &str) {
    for (name, (source, target)) in NAMES.iter().zip(places(memory)) {
        assert!(source || target, "{name} is lost: {about}");
    }
}

#[test]
fn a_killed_rename_is_all_at_one_place_after_the_next_mount() {
    let (mut finished, mut undone, mut steps) = (0, 0, 0);
    loop {
        let (memory, records) = folder();
        let killed = killed_after(&memory, steps, || rename(&memory, &records));
        is_nowhere_lost(&memory, &format!("killed after {steps} steps"));
        let ends = records.end();
        assert!(ends.iter().all(|end| end.left.is_empty() && end.failed.is_none()), "{steps}: {ends:?}");
        match places(&memory) {
            AT_SOURCE => undone += 1,
            AT_TARGET => finished += 1,
            places => panic!("killed after {steps} steps: {places:?}"),
        }
        assert!(records.left().is_empty() && memory.object("other").is_some());
        if !killed {
            break;
        }
        steps += 1;
    }
    assert!(finished > 8 && undone > 16, "{finished} {undone}");
}

#[test]
fn a_mount_that_is_killed_while_it_ends_a_rename_leaves_that_to_the_next() {
    for steps in (0..50).step_by(3) {
        let mut again = 0;
        loop {
            let (memory, records) = folder();
            killed_after(&memory, steps, || rename(&memory, &records));
            let killed = killed_after(&memory, again, || records.end());
            let about = format!("killed after {steps} steps, then after {again}");
            is_nowhere_lost(&memory, &about);
            records.end();
            assert!([AT_SOURCE, AT_TARGET].contains(&places(&memory)), "{about}: {:?}", places(&memory));
            assert!(records.left().is_empty(), "{about}");
            if !killed {
                break;
            }
            again += 1;
        }
    }
}

/// Where copies have ETags of their own, one that was made and not noted may be of anybody.
#[test]
fn a_copy_that_may_be_of_another_client_stays() {
    let mut left = 0;
    for steps in 0..60 {
        let (memory, records) = folder();
        memory.0.copies_keep_etags.store(false, Relaxed);
        killed_after(&memory, steps, || rename(&memory, &records));
        let both = records.end().into_iter().map(|end| end.left.len()).sum::<usize>();
        let found = places(&memory);
        assert_eq!(found.iter().filter(|at| **at == (true, true)).count(), both, "{steps} {found:?}");
        is_nowhere_lost(&memory, &format!("killed after {steps} steps"));
        left += both;
    }
    assert!(left > 0, "no kill came between a copy and its note");
}

#[test]
fn notes_that_a_crash_of_the_machine_lost_cost_no_object() {
    for steps in 0..60 {
        let (memory, records) = folder();
        killed_after(&memory, steps, || rename(&memory, &records));
        for (_, state) in records.files.lock().unwrap().iter_mut().flatten() {
            if !state.is_all_made {
                state.copies.fill(CopyState::Outstanding);
            }
        }
        let both = records.end().into_iter().map(|end| end.left.len()).sum::<usize>();
        assert_eq!(places(&memory).iter().filter(|at| **at == (true, true)).count(), both, "{steps}");
        is_nowhere_lost(&memory, &format!("killed after {steps} steps"));
    }
}

/// A killed rename whose objects are all at both places, with all that was noted of that or without the last
/// note.
fn left_behind(is_all_made: bool) -> (Memory, Records) {
    for steps in 0..100 {
        let (memory, records) = folder();
        killed_after(&memory, steps, || rename(&memory, &records));
        let left = records.left();
        let Some((_, state)) = left.first() else { continue };
        let is_noted = state.copies.iter().all(|copy| matches!(copy, CopyState::Made(_)));
        if is_noted && state.is_all_made == is_all_made && places(&memory) == [(true, true); 4] {
            return (memory, records);
        }
    }
    panic!("no kill comes between the copies and the deletions");
}

/// Such a rename, with what another client does before the next mount, and its end.
fn interrupted(is_all_made: bool, meanwhile: impl FnOnce(&Memory)) -> (Memory, RenameEnd) {
    let (memory, records) = left_behind(is_all_made);
    meanwhile(&memory);
    let end = records.end().remove(0);
    assert!(records.left().is_empty());
    (memory, end)
}

#[test]
fn what_another_client_has_changed_meanwhile_stays() {
    let left = |end: &RenameEnd| -> Vec<String> { end.left.iter().map(|at| at.key().to_owned()).collect() };
    let bytes = |memory: &Memory, key: &str| memory.object(key).map(|object| object.bytes);
    let theirs = || Some(b"theirs".to_vec());
    // To be finished: a new version of an original, a copy that is gone, an original that is gone.
    let (memory, end) = interrupted(true, |memory| {
        memory.put("f/a", "theirs");
        memory.delete("new/b");
        memory.delete("f/g/c");
    });
    assert_eq!(left(&end), ["f/a", "f/b"]);
    assert_eq!((bytes(&memory, "f/a"), bytes(&memory, "f/b").is_some()), (theirs(), true));
    assert!(bytes(&memory, "new/a").is_some() && bytes(&memory, "new/g/c").is_some());
    assert_eq!(bytes(&memory, "f/g/d"), None);
    // To be undone.
    let (memory, end) = interrupted(false, |memory| {
        memory.put("f/a", "theirs");
        memory.delete("f/b");
        memory.put("new/g/c", "theirs");
        memory.delete("new/g/d");
    });
    assert_eq!(left(&end), ["f/a", "f/b", "f/g/c"]);
    assert_eq!((bytes(&memory, "f/a"), bytes(&memory, "new/g/c")), (theirs(), theirs()));
    assert!(bytes(&memory, "new/a").is_some() && bytes(&memory, "new/b").is_some());
    assert!(bytes(&memory, "f/g/c").is_some() && bytes(&memory, "f/g/d").is_some());
}

#[test]
fn a_young_copy_that_was_not_noted_is_of_another_client() {
    let (memory, records) = folder();
    let rename = one_object();
    let (from, to) = (rename.source.with_key("f/a").unwrap(), rename.target.with_key("new/a").unwrap());
    ObjectStore::copy(&memory, &from, &to, flatout_wire::object_options::Condition::None, false, None)
        .unwrap();
    let made_s = memory.object("new/a").unwrap().modified_s;
    for (until_s, left) in [(made_s - 1, 1), (made_s, 0)] {
        let state = RenameState { copies: vec![CopyState::Begun], until_s, ..RenameState::default() };
        assert_eq!(end_rename(&memory, &rename, &state).left.len(), left, "{until_s}");
    }
    drop(records);
}

/// The store is still at work on it when the mount is dead.
#[test]
fn a_copy_that_is_made_late_is_undone_too() {
    for is_recent in [true, false] {
        let (memory, rename) = (folder().0, one_object());
        let (from, to) = (rename.source.with_key("f/a").unwrap(), rename.target.with_key("new/a").unwrap());
        let state = RenameState {
            copies: vec![CopyState::Begun],
            until_s: u64::MAX,
            is_recent,
            ..RenameState::default()
        };
        let end = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(200));
                let condition = flatout_wire::object_options::Condition::None;
                ObjectStore::copy(&memory, &from, &to, condition, false, None).unwrap();
            });
            end_rename(&memory, &rename, &state)
        });
        assert_eq!(memory.object("new/a").is_none(), is_recent);
        assert_eq!((end.left.len(), end.unseen.len()), (0, usize::from(!is_recent)));
    }
}

/// All copies were made, and the mount was killed. Then another client has replaced one of them.
#[test]
fn a_copy_that_was_replaced_keeps_its_original() {
    let (memory, rename) = (folder().0, one_object());
    let (from, to) = (rename.source.with_key("f/a").unwrap(), rename.target.with_key("new/a").unwrap());
    let condition = flatout_wire::object_options::Condition::None;
    let made = ObjectStore::copy(&memory, &from, &to, condition, false, None).unwrap();
    let made = MadeCopy { from_etag: made.from_etag, to_etag: made.stored.etag };
    let state =
        RenameState { copies: vec![CopyState::Made(made)], is_all_made: true, ..RenameState::default() };
    let whole = memory.object("new/a").unwrap();
    memory.put("new/a", "of another client");
    assert_eq!(end_rename(&memory, &rename, &state).left.len(), 1);
    assert!(memory.object("f/a").is_some(), "nowhere else is its content");
    memory.put_again("new/a", whole);
    assert_eq!(end_rename(&memory, &rename, &state).left.len(), 0);
    assert!(memory.object("f/a").is_none());
}

#[test]
fn copies_that_are_replaced_at_once_keep_their_originals() {
    let (memory, records) = folder();
    memory.0.replaces_copy.store(true, SeqCst);
    assert_eq!(rename(&memory, &records), Err(libc::ESTALE));
    assert!(NAMES.iter().all(|name| memory.object(&format!("f/{name}")).is_some()));
    let theirs = NAMES.iter().filter_map(|name| memory.object(&format!("new/{name}")));
    assert_eq!(theirs.map(|object| object.bytes).collect::<Vec<_>>(), [b"of another client"]);
}

fn one_object() -> FolderRename {
    FolderRename {
        source: flatout_wire::location::Location::parse("s3://bucket/f/").unwrap(),
        target: flatout_wire::location::Location::parse("s3://bucket/new/").unwrap(),
        names: vec!["a".to_owned()],
    }
}

#[test]
fn an_origin_that_is_away_is_asked_again_by_the_next_mount() {
    for is_all_made in [true, false] {
        let (memory, records) = left_behind(is_all_made);
        for kind in [ErrorKind::Network, ErrorKind::Denied, ErrorKind::Throttled] {
            memory.refuse(kind);
            assert!(records.end()[0].failed.is_some());
            assert_eq!(records.left().len(), 1, "{kind:?}");
        }
        memory.refuse(None);
        records.end();
        assert_eq!(places(&memory), if is_all_made { AT_TARGET } else { AT_SOURCE });
    }
}

#[test]
fn a_copy_that_fails_leaves_no_record() {
    let (memory, records) = folder();
    memory.0.copies_before_failure.store(2, Relaxed);
    assert_eq!(rename(&memory, &records), Err(libc::EIO));
    assert_eq!((places(&memory), records.left().len()), (AT_SOURCE, 0));
}

#[test]
fn a_folder_is_renamed_onto_nothing_that_another_client_has_made() {
    let (memory, records) = folder();
    let tree = memory.tree(config(&records));
    let rename = |to: &str| {
        let renamed = tree.rename((ROOT, OsStr::new("f")), (ROOT, OsStr::new(to)), false);
        renamed.map_err(|error| error.errno)
    };
    // It was found missing a moment ago.
    for to in ["new", "new2"] {
        assert_eq!(find(&tree, to).map(drop), Err(libc::ENOENT));
    }
    memory.put("new/theirs", "theirs");
    assert_eq!(rename("new"), Err(libc::ENOTEMPTY));
    assert_eq!((places(&memory), records.left().len()), (AT_SOURCE, 0));
    rename("new2").unwrap();
    assert_eq!((memory.object("new2/a").is_some(), memory.object("new/theirs").is_some()), (true, true));
}

#[test]
fn a_folder_is_renamed_with_a_record_only() {
    let (memory, records) = folder();
    let without = || {
        let tree = memory.tree(Config { rename_journal: None, ..config(&records) });
        tree.rename((ROOT, OsStr::new("f")), (ROOT, OsStr::new("new")), false).unwrap_err()
    };
    let error = without();
    assert_eq!((error.errno, places(&memory)), (libc::EXDEV, AT_SOURCE));
    assert!(error.to_string().contains("no record of it can be kept"), "{error}");
}
