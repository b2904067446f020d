//! Modes, owners, times, links and extended attributes in the metadata of objects, as s3fs keeps them.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use flatout_engine::ErrorKind;
use flatout_tree::{
    AttributeChanges, AttributeKeeping, Attributes, Caller, Config, Files, NOT_LOOKED_UP, OpenMode, Process,
    Time, TimeChange, TreeOf, XattrNeeds,
};
use flatout_wire::object_options::ObjectOptions;

use crate::memory::{Memory, StoredObject};
use crate::writes::{closed, open, to_write, write};
use crate::{ROOT, find, ino, minute, names, nobody};

pub fn kept() -> Config {
    Config { attributes: AttributeKeeping::Metadata, ..minute() }
}

pub fn user() -> Caller {
    Caller { thread: 0, look: |_| Process::default(), uid: 1000, gid: 100 }
}

pub fn os(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn create(tree: &TreeOf<Memory>, name: &str, permissions: u32) -> u64 {
    let mode = OpenMode { permissions, reads: true, ..to_write() };
    let (node, opened) = tree.create(ROOT, os(name), false, mode, user()).unwrap();
    assert_eq!(owned(&node.attributes), (permissions, 1000, 100));
    opened.handle
}

pub fn shown(tree: &TreeOf<Memory>, path: &str) -> Attributes {
    find(tree, path).unwrap().attributes
}

fn owned(of: &Attributes) -> (u32, u32, u32) {
    (of.mode, of.uid, of.gid)
}

pub fn metadata(memory: &Memory, key: &str) -> Vec<(String, String)> {
    let all = memory.object(key).unwrap().metadata;
    all.into_iter().filter(|(name, _)| name != "ctime").collect()
}

pub fn rows(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

pub fn change(tree: &TreeOf<Memory>, path: &str, changes: AttributeChanges) -> Result<(), i32> {
    tree.change_attributes(ino(tree, path), changes).map(drop).map_err(|error| error.errno)
}

pub fn mode(mode: u32) -> AttributeChanges {
    AttributeChanges { mode: Some(mode), ..AttributeChanges::default() }
}

pub fn modified(s: i64, ns: u32) -> AttributeChanges {
    AttributeChanges { time: TimeChange::To(Time { s, ns }), ..AttributeChanges::default() }
}

#[test]
fn what_is_made_has_its_makers_attributes() {
    let memory = Memory::new();
    let tree = memory.tree(kept());
    let handle = create(&tree, "f", 0o640);
    write(&tree, handle, 0, b"content").unwrap();
    assert_eq!(owned(&shown(&tree, "f")), (0o640, 1000, 100));
    closed(&tree, handle).unwrap();
    assert_eq!(metadata(&memory, "f"), rows(&[("mode", "33184"), ("uid", "1000"), ("gid", "100")]));
    tree.make_folder(ROOT, os("d"), 0o750, user()).unwrap();
    assert_eq!(metadata(&memory, "d/"), rows(&[("mode", "16872"), ("uid", "1000"), ("gid", "100")]));
    // Another mount reads them.
    let other = memory.tree(kept());
    assert_eq!(owned(&shown(&other, "f")), (0o640, 1000, 100));
    assert_eq!(owned(&shown(&other, "d")), (0o750, 1000, 100));
    let without = memory.tree(minute());
    assert_eq!(owned(&shown(&without, "f")), (0o444, 0, 0));
}

#[test]
fn attributes_of_a_closed_file_are_changed_by_a_copy_of_it() {
    let memory = Memory::new();
    memory.put("f", "content");
    let tree = memory.tree(kept());
    let before = shown(&tree, "f");
    change(&tree, "f", mode(0o600)).unwrap();
    let after = shown(&tree, "f");
    assert_eq!((after.mode, after.modified_s), (0o600, before.modified_s), "the content is as old as before");
    assert_eq!(memory.object("f").unwrap().bytes, b"content");
    change(&tree, "f", AttributeChanges { uid: Some(7), gid: Some(8), ..AttributeChanges::default() })
        .unwrap();
    change(&tree, "f", modified(1_234_567_890, 5)).unwrap();
    let accessed = TimeChange::To(Time { s: 99, ns: 1 });
    change(&tree, "f", AttributeChanges { accessed, ..AttributeChanges::default() }).unwrap();
    for tree in [&tree, &memory.tree(kept())] {
        let now = shown(tree, "f");
        assert_eq!(owned(&now), (0o600, 7, 8));
        assert_eq!((now.modified_s, now.modified_ns), (1_234_567_890, 5));
        assert_eq!(now.accessed, Some(Time { s: 99, ns: 1 }));
    }
    // What is written since has its own time, and keeps the rest.
    let handle = open(&tree, "f", to_write()).unwrap().handle;
    write(&tree, handle, 7, b" and more").unwrap();
    closed(&tree, handle).unwrap();
    let now = shown(&tree, "f");
    assert!(now.modified_s > 1_234_567_890 && owned(&now) == (0o600, 7, 8), "{now:?}");
    let left = [("mode", "33152"), ("uid", "7"), ("gid", "8"), ("atime", "99.000000001")];
    assert_eq!(metadata(&memory, "f"), rows(&left));
}

/// cp -p, tar and rsync set them while the file is open: one request has all.
#[test]
fn attributes_of_an_open_file_go_with_its_content() {
    let memory = Memory::new();
    let tree = memory.tree(kept());
    let handle = create(&tree, "f", 0o600);
    write(&tree, handle, 0, b"content").unwrap();
    change(&tree, "f", mode(0o755)).unwrap();
    change(&tree, "f", modified(1_000_000_000, 0)).unwrap();
    assert_eq!(shown(&tree, "f").mode, 0o755);
    let writes = memory.0.writes.load(Relaxed);
    closed(&tree, handle).unwrap();
    assert_eq!(memory.0.writes.load(Relaxed), writes + 1);
    let expected = [("mode", "33261"), ("uid", "1000"), ("gid", "100"), ("mtime", "1000000000")];
    assert_eq!(metadata(&memory, "f"), rows(&expected));
    assert_eq!((shown(&tree, "f").mode, shown(&tree, "f").modified_s), (0o755, 1_000_000_000));
    // Of a stream what is set since it has begun is set after it.
    let handle = create(&tree, "long", 0o600);
    for number in 0..3 {
        write(&tree, handle, number << 20, &[7; 1 << 20]).unwrap();
    }
    change(&tree, "long", mode(0o640)).unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("long").unwrap().bytes.len(), 3 << 20);
    assert_eq!(metadata(&memory, "long")[0], ("mode".to_owned(), "33184".to_owned()));
    assert_eq!(shown(&memory.tree(kept()), "long").mode, 0o640);
}

/// As on a disk, for folders that a group works in together.
#[test]
fn a_folder_with_the_group_bit_gives_its_group_to_what_is_made_in_it() {
    let memory = Memory::new();
    let tree = memory.tree(kept());
    let folder = tree.make_folder(ROOT, os("d"), 0o755, user()).unwrap().id;
    change(&tree, "d", AttributeChanges { gid: Some(7), ..mode(0o2775) }).unwrap();
    // Also in a mount that has not seen the folder.
    for (tree, name) in [(&tree, "here"), (&memory.tree(kept()), "there")] {
        let parent = ino(tree, "d");
        assert_eq!(parent, folder);
        let inner = tree.make_folder(parent, os(name), 0o750, user()).unwrap();
        assert_eq!(owned(&inner.attributes), (0o2750, 1000, 7));
        let mode = OpenMode { permissions: 0o640, ..to_write() };
        let (file, opened) = tree.create(parent, os(&format!("{name}.txt")), false, mode, user()).unwrap();
        assert_eq!(owned(&file.attributes), (0o640, 1000, 7));
        closed(tree, opened.handle).unwrap();
        let link = tree.make_link(inner.id, os("link"), os("x"), user()).unwrap();
        assert_eq!(owned(&link.attributes), (0o777, 1000, 7));
    }
    let other = memory.tree(kept());
    assert_eq!(owned(&shown(&other, "d/here")), (0o2750, 1000, 7));
    assert_eq!(owned(&shown(&other, "d/there.txt")), (0o640, 1000, 7));
}

/// As on a disk, until its times are set.
#[test]
fn a_folder_tells_when_its_names_were_changed() {
    let memory = Memory::new();
    let tree = memory.tree(kept());
    let folder = tree.make_folder(ROOT, os("d"), 0o755, user()).unwrap().id;
    let times = |tree: &TreeOf<Memory>| (shown(tree, "d").modified_s, shown(tree, "d").changed_s);
    let made_s = times(&tree).0;
    assert_eq!(times(&tree), (made_s, made_s));
    let later = |work: &dyn Fn()| {
        memory.0.clock_ms.fetch_add(10_000, Relaxed);
        work();
        let (modified_s, changed_s) = times(&tree);
        (modified_s - made_s, changed_s - made_s)
    };
    let opened = |name: &str| tree.create(folder, os(name), false, to_write(), user()).unwrap().1.handle;
    assert_eq!(later(&|| closed(&tree, opened("f")).unwrap()), (10, 10));
    let written = || {
        let handle = open(&tree, "d/f", to_write()).unwrap().handle;
        write(&tree, handle, 0, b"x").unwrap();
        closed(&tree, handle).unwrap();
    };
    assert_eq!(later(&written), (10, 10), "the content of a file is no name");
    let link = || assert!(tree.make_link(folder, os("l"), os("f"), user()).is_ok());
    assert_eq!(later(&link), (30, 30));
    assert_eq!(later(&|| tree.rename((folder, os("f")), (ROOT, os("f")), false).unwrap()), (40, 40));
    assert_eq!(later(&|| tree.remove_file(folder, os("l")).unwrap()), (50, 50));
    let made = || assert!(tree.make_folder(folder, os("e"), 0o700, user()).is_ok());
    assert_eq!(later(&made), (60, 60));
    // A change of its mode tells others, too.
    assert_eq!(later(&|| change(&tree, "d", mode(0o700)).unwrap()), (60, 70));
    assert_eq!(times(&memory.tree(kept())), (made_s + 60, made_s + 70));
    // cp -a sets the time that a folder had when all is in it.
    assert_eq!(later(&|| tree.remove_folder(folder, os("e")).unwrap()), (80, 80));
    assert_eq!(later(&|| change(&tree, "d", modified(made_s + 5, 0)).unwrap()), (5, 90));
    assert_eq!(times(&memory.tree(kept())), (made_s + 5, made_s + 90));
}

/// As on a disk: whoever changes a program cannot make it run as its owner by that.
#[test]
fn what_somebody_else_writes_does_not_run_as_its_owner() {
    let memory = Memory::new();
    let tree = memory.tree(kept());
    let truncating = OpenMode { truncates: true, ..to_write() };
    let rows = [
        ("written", to_write(), user(), 0o777),
        ("cut", truncating, user(), 0o777),
        ("of root", to_write(), nobody(), 0o6777),
        ("cut by root", truncating, nobody(), 0o6777),
    ];
    for (name, how, caller, expected) in rows {
        closed(&tree, create(&tree, name, 0o6777)).unwrap();
        let handle = tree.open(ino(&tree, name), how, caller).unwrap().handle;
        if !how.truncates {
            assert_eq!(shown(&tree, name).mode, 0o6777, "{name}: nothing is written yet");
            let wrote = tree.write_known(handle, 0, b"x", caller);
            let wrote = wrote.unwrap_or_else(|| tree.write(handle, 0, b"x", caller, &mut |_| true));
            assert_eq!(wrote.unwrap(), expected != 0o6777, "{name}: the kernel is told");
        }
        assert_eq!(shown(&tree, name).mode, expected, "{name}");
        closed(&tree, handle).unwrap();
        assert_eq!(shown(&tree, name).mode, expected, "{name}");
        assert_eq!(shown(&memory.tree(kept()), name).mode, expected, "{name}");
    }
}

/// A disk changes it where a file is read, and nowhere else.
#[test]
fn what_is_written_keeps_the_time_of_access() {
    let memory = Memory::new();
    memory.put("f", "content");
    let tree = memory.tree(kept());
    let set = Time { s: 99, ns: 1 };
    change(&tree, "f", AttributeChanges { accessed: TimeChange::To(set), ..AttributeChanges::default() })
        .unwrap();
    for how in [to_write(), OpenMode { truncates: true, ..to_write() }] {
        let handle = open(&tree, "f", how).unwrap().handle;
        let at = if how.truncates { 0 } else { 7 };
        write(&tree, handle, at, b"more").unwrap();
        closed(&tree, handle).unwrap();
        assert_eq!(metadata(&memory, "f"), rows(&[("atime", "99.000000001")]));
        assert_eq!(shown(&tree, "f").accessed, Some(set));
    }
}

/// Without a byte of content.
#[test]
fn links_whose_target_is_in_metadata_are_read() {
    let memory = Memory::new();
    let object = memory.put("link", "");
    let stated = rows(&[("mode", "41471"), ("symlink-target", "header:6:a%20%C3%BCb%25")]);
    memory.put_again("link", StoredObject { metadata: stated, ..object });
    let tree = memory.tree(kept());
    let link = shown(&tree, "link");
    assert!(link.is_link && link.size == 6, "{link:?}");
    assert_eq!(tree.read_link(link.ino).unwrap(), "a üb%".as_bytes());
}

#[test]
fn symbolic_links_are_objects() {
    let memory = Memory::new();
    let tree = memory.tree(kept());
    let link = tree.make_link(ROOT, os("link"), os("../some/target"), user()).unwrap();
    assert!(link.attributes.is_link && link.attributes.mode == 0o777);
    assert_eq!(memory.object("link").unwrap().bytes, b"../some/target");
    assert_eq!(metadata(&memory, "link")[0], ("mode".to_owned(), "41471".to_owned()));
    assert_eq!(tree.read_link(link.id).unwrap(), b"../some/target");
    let twice = tree.make_link(ROOT, os("link"), os("x"), user()).map(drop);
    assert_eq!(twice.map_err(|error| error.errno), Err(libc::EEXIST));
    let other = memory.tree(kept());
    assert!(shown(&other, "link").is_link);
    assert_eq!(other.read_link(ino(&other, "link")).unwrap(), b"../some/target");
    other.rename((ROOT, os("link")), (ROOT, os("moved")), false).unwrap();
    assert!(shown(&other, "moved").is_link);
    other.remove_file(ROOT, os("moved")).unwrap();
    assert_eq!(memory.objects().len(), 0);
    let without = memory.tree(minute());
    let spaces = tree.make_link(ROOT, os("spaces"), os(" a "), user()).unwrap();
    assert_eq!(tree.read_link(spaces.id).unwrap(), b" a ");
    let refused = without.make_link(ROOT, os("link"), os("x"), nobody()).map(drop);
    assert_eq!(refused.map_err(|error| error.errno), Err(libc::EOPNOTSUPP));
}

#[test]
fn extended_attributes_are_kept() {
    let memory = Memory::new();
    memory.put("f", "content");
    let tree = memory.tree(kept());
    let node = ino(&tree, "f");
    let set = |name: &str, value: Option<&[u8]>, needs| {
        tree.set_xattr(node, os(name), value, needs).map_err(|error| error.errno)
    };
    set("user.a", Some(b"1"), XattrNeeds::Absent).unwrap();
    assert_eq!(set("user.a", Some(b"2"), XattrNeeds::Absent), Err(libc::EEXIST));
    assert_eq!(set("user.b", Some(b"2"), XattrNeeds::Present), Err(libc::ENODATA));
    set("user.b", Some(&[0, 255]), XattrNeeds::Nothing).unwrap();
    assert_eq!(set("trusted.x", Some(b"1"), XattrNeeds::Nothing), Err(libc::EOPNOTSUPP));
    assert_eq!(set("user.long", Some(&[7; 2000]), XattrNeeds::Nothing), Err(libc::ENOSPC));
    for tree in [&tree, &memory.tree(kept())] {
        let node = ino(tree, "f");
        assert_eq!(tree.xattrs(node).unwrap(), ["user.a", "user.b"]);
        assert_eq!(tree.xattr(node, os("user.b")).unwrap(), [0, 255]);
    }
    set("user.a", None, XattrNeeds::Nothing).unwrap();
    assert_eq!(set("user.a", None, XattrNeeds::Nothing), Err(libc::ENODATA));
    assert_eq!(tree.xattr(node, os("user.a")).map_err(|error| error.errno), Err(libc::ENODATA));
    assert_eq!(memory.object("f").unwrap().bytes, b"content");
}

#[test]
fn a_folder_of_many_files_costs_a_head_each_and_none_the_second_time() {
    let memory = Memory::new();
    for number in 0..300 {
        memory.put(&format!("d/{number:03}"), "x");
    }
    memory.0.unix_s.store(1_800_000_000, Relaxed);
    let tree = memory.tree(kept());
    let folder = ino(&tree, "d");
    let list = || {
        let handle = tree.open_folder(folder).unwrap();
        let (mut names, mut offset) = (0, 0);
        loop {
            let before = offset;
            let mut room = 50;
            tree.read_folder(handle, offset, true, &mut |entry| {
                room -= 1;
                if room < 0 {
                    return false;
                }
                (names, offset) = (names + 1, entry.next);
                true
            })
            .unwrap();
            if offset == before {
                break;
            }
        }
        tree.release_folder(handle);
        names
    };
    let heads = memory.0.heads.load(Relaxed);
    assert_eq!(list(), 302);
    assert_eq!(memory.0.heads.load(Relaxed) - heads, 300);
    assert_eq!(list(), 302);
    assert_eq!(memory.0.heads.load(Relaxed) - heads, 300);
    // A minute later the listing tells which are the same.
    memory.0.clock_ms.fetch_add(61_000, Relaxed);
    assert_eq!(list(), 302);
    assert_eq!(memory.0.heads.load(Relaxed) - heads, 300);
}

#[test]
fn what_another_client_sets_is_seen() {
    let memory = Memory::new();
    memory.put("f", "content");
    let (tree, other) = (memory.tree(kept()), memory.tree(kept()));
    assert_eq!(shown(&tree, "f").mode, 0o444);
    change(&other, "f", mode(0o600)).unwrap();
    assert_eq!(shown(&tree, "f").mode, 0o444, "within the lifetime");
    memory.0.clock_ms.fetch_add(61_000, Relaxed);
    assert_eq!(shown(&tree, "f").mode, 0o600);
    // One that has been replaced meanwhile is not changed.
    memory.put("f", "of another client");
    assert_eq!(change(&tree, "f", mode(0o640)), Err(libc::ESTALE));
    assert_eq!(memory.object("f").unwrap().bytes, b"of another client");
}

/// Neither the ETag nor the time tells that something has changed.
#[test]
fn what_another_client_sets_within_a_second_is_seen() {
    let memory = Memory::new();
    let object = memory.put("f", "content");
    memory.0.unix_s.store(object.modified_s - memory.now_ms() / 1_000, Relaxed);
    let tree = memory.tree(kept());
    assert_eq!(shown(&tree, "f").mode, 0o444);
    memory.put_again("f", StoredObject { metadata: rows(&[("mode", "33152")]), ..object });
    let a_minute_later = || {
        memory.0.clock_ms.fetch_add(61_000, Relaxed);
        let heads = memory.0.heads.load(Relaxed);
        (shown(&tree, "f").mode, memory.0.heads.load(Relaxed) - heads)
    };
    assert_eq!(a_minute_later(), (0o600, 1));
    assert_eq!(a_minute_later(), (0o600, 0), "what is set now has another time");
}

/// Also where that is longer than it is believed.
#[test]
fn what_was_asked_for_is_shown_however_long_it_took() {
    let memory = Memory::new();
    memory.tree(kept()).make_folder(ROOT, os("d"), 0o700, user()).unwrap();
    memory.0.head_ms.store(5_000, Relaxed);
    for lifetime in [Duration::ZERO, Duration::from_secs(2)] {
        let tree = memory.tree(Config { attribute_lifetime: lifetime, ..kept() });
        assert_eq!(owned(&shown(&tree, "d")), (0o700, 1000, 100));
        assert_eq!(tree.attributes(ino(&tree, "d")).unwrap().attributes.mode, 0o700);
    }
}

#[test]
fn an_answer_about_the_version_before_is_not_that_of_the_next() {
    let memory = Memory::new();
    let put = |mode: &'static str, bytes: &str| {
        let object = memory.put("f", bytes);
        memory.put_again("f", StoredObject { metadata: rows(&[("mode", mode)]), ..object });
    };
    put("33152", "old");
    let tree = Arc::new(memory.tree(kept()));
    names(&tree, ROOT);
    let (other, replaced) = (tree.clone(), memory.clone());
    *memory.0.before_head_is_told.lock().unwrap() = Some(Box::new(move || {
        let object = replaced.put("f", "newer");
        replaced.put_again("f", StoredObject { metadata: rows(&[("mode", "33188")]), ..object });
        replaced.turn_clock(61_000);
        assert_eq!((shown(&other, "f").mode, shown(&other, "f").size), (0o644, 5));
    }));
    assert_eq!((shown(&tree, "f").mode, shown(&tree, "f").size), (0o644, 5));
    assert_eq!(shown(&tree, "f").mode, 0o644);
}

#[test]
fn what_cannot_be_asked_for_is_not_made_up() {
    let memory = Memory::new();
    memory.put("f", "content");
    let tree = memory.tree(kept());
    // The listing is known, the HEAD is not.
    assert!(names(&tree, ROOT).contains(&"f".to_owned()));
    memory.refuse(ErrorKind::Denied);
    assert_eq!(find(&tree, "f").map(drop), Err(libc::EACCES));
    // Its name is told all the same, and whoever looks at it is told why not.
    let folder = tree.open_folder(ROOT).unwrap();
    let list = || {
        let mut entries = Vec::new();
        let read = tree.read_folder(folder, 2, true, &mut |entry| {
            entries.push((entry.name.to_owned(), entry.node.id == NOT_LOOKED_UP));
            true
        });
        read.map(|()| entries).map_err(|error| error.errno)
    };
    assert_eq!(list(), Ok(vec![("f".into(), true)]));
    memory.refuse(ErrorKind::Network);
    assert_eq!(list(), Err(libc::EIO));
    memory.refuse(None);
    assert_eq!(list(), Ok(vec![("f".into(), false)]));
    find(&tree, "f").unwrap();
}

/// A listing tells of a newer version than the one whose metadata is known.
#[test]
fn modes_of_the_version_before_are_not_taken_for_those_of_the_next() {
    let memory = Memory::new();
    memory.put("d/f", "content");
    let (tree, other) = (memory.tree(kept()), memory.tree(kept()));
    change(&other, "d/f", mode(0o600)).unwrap();
    assert_eq!(shown(&tree, "d/f").mode, 0o600);
    let (folder, node) = (ino(&tree, "d"), ino(&tree, "d/f"));
    for (at, bits) in [(1, 0o640), (2, 0o644)] {
        change(&other, "d/f", mode(bits)).unwrap();
        memory.0.clock_ms.fetch_add(61_000, Relaxed);
        assert_eq!(crate::names(&tree, folder), ["f"]);
        let known = match at {
            1 => tree.lookup_known(folder, os("f")),
            _ => tree.attributes_known(node),
        };
        assert!(known.is_none(), "{known:?}");
        assert_eq!(tree.attributes(node).unwrap().attributes.mode, bits);
        let known = tree.lookup_known(folder, os("f")).unwrap().unwrap();
        assert_eq!(known.attributes.mode, bits);
    }
}

#[test]
fn a_file_that_is_gone_lends_nothing_to_the_next_of_its_name() {
    let memory = Memory::new();
    memory.put("f", "");
    let tree = memory.tree(kept());
    let node = ino(&tree, "f");
    tree.remove_file(ROOT, os("f")).unwrap();
    memory.put("f", "");
    memory.0.clock_ms.fetch_add(61_000, Relaxed);
    assert_ne!(ino(&tree, "f"), node);
    let set = tree.set_xattr(node, os("user.a"), Some(b"1"), XattrNeeds::Nothing);
    assert_eq!(set.map_err(|error| error.errno), Err(libc::ESTALE));
    assert_eq!(metadata(&memory, "f"), []);
}

#[test]
fn what_is_cut_to_nothing_has_the_time_of_that() {
    let memory = Memory::new();
    memory.put("f", "content");
    let tree = memory.tree(kept());
    change(&tree, "f", mode(0o600)).unwrap();
    change(&tree, "f", modified(1_000_000_000, 0)).unwrap();
    let handle = open(&tree, "f", OpenMode { truncates: true, ..to_write() }).unwrap().handle;
    closed(&tree, handle).unwrap();
    assert!(shown(&tree, "f").modified_s > 1_000_000_000);
    assert_eq!(metadata(&memory, "f"), rows(&[("mode", "33152")]));
}

#[test]
fn a_folder_is_not_renamed_while_attributes_in_it_change() {
    let memory = Memory::new();
    memory.put("d/f", "content");
    let tree = Arc::new(memory.tree(kept()));
    let node = ino(&tree, "d/f");
    memory.shut();
    let changing = {
        let tree = tree.clone();
        std::thread::spawn(move || tree.change_attributes(node, mode(0o600)).map(drop))
    };
    memory.wait_for(1);
    let renamed = tree.rename((ROOT, os("d")), (ROOT, os("e")), false);
    memory.open();
    assert_eq!(renamed.map_err(|error| error.errno), Err(libc::EBUSY));
    changing.join().unwrap().unwrap();
    assert_eq!(metadata(&memory, "d/f")[0], ("mode".to_owned(), "33152".to_owned()));
    // Not EBUSY: it is moved file by file.
    let renamed = tree.rename((ROOT, os("d")), (ROOT, os("e")), false);
    assert_eq!(renamed.map_err(|error| error.errno), Err(libc::EXDEV));
}

/// The object is there, and what was set since its upload began could not be told it.
#[test]
fn a_mode_that_was_refused_is_not_shown_as_set() {
    let memory = Memory::new();
    let tree = memory.tree(kept());
    let handle = create(&tree, "f", 0o640);
    for at in 0..3 {
        write(&tree, handle, at << 20, &[7; 1 << 20]).unwrap();
    }
    change(&tree, "f", mode(0o600)).unwrap();
    memory.0.refuses_descriptions.store(true, Relaxed);
    assert_eq!(closed(&tree, handle), Err(libc::EIO));
    assert_eq!(shown(&tree, "f").mode, 0o640);
    assert_eq!(memory.object("f").unwrap().bytes.len(), 3 << 20);
}

/// A copy at the origin has a time of its own.
#[test]
fn a_rename_keeps_the_time_of_the_content() {
    let memory = Memory::new();
    let before = memory.put("old", "content");
    let tree = memory.tree(kept());
    for (from, to) in [("old", "new"), ("new", "newer")] {
        let shown_before = shown(&tree, from);
        tree.rename((ROOT, os(from)), (ROOT, os(to)), false).unwrap();
        assert!(memory.object(to).unwrap().modified_s > before.modified_s);
        for tree in [&tree, &memory.tree(kept())] {
            assert_eq!(shown(tree, to).modified_s, shown_before.modified_s);
        }
    }
    assert_eq!(metadata(&memory, "newer"), rows(&[("mtime", &before.modified_s.to_string())]));
    // A mount without attributes adds nothing.
    memory.put("other", "content");
    memory.tree(minute()).rename((ROOT, os("other")), (ROOT, os("another")), false).unwrap();
    assert_eq!(metadata(&memory, "another"), []);
}

/// What is copied is the version that is there, not the one that was seen.
#[test]
fn a_rename_of_what_another_client_has_replaced_has_the_attributes_of_that() {
    let memory = Memory::new();
    memory.put("old", "content");
    let tree = memory.tree(kept());
    assert_eq!(shown(&tree, "old").mode, 0o444);
    memory.put("old", "of another client");
    let theirs = ObjectOptions { metadata: rows(&[("mode", "33152")]), ..ObjectOptions::default() };
    memory.describe_as("bucket", "old", &theirs);
    tree.rename((ROOT, os("old")), (ROOT, os("new")), false).unwrap();
    assert_eq!(shown(&tree, "new").mode, 0o600);
}
