//! Files that are written: what appears when, what is read meanwhile, and what happens to what fails.

use std::ffi::OsStr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flatout_engine::ErrorKind;
use flatout_tree::{
    AttributeChanges, AttributeKeeping, Caller, Config, Files, OpenMode, OpenedFile, Process, Time,
    TimeChange, TreeOf, WriteMoment,
};

use crate::memory::Memory;
use crate::{ROOT, find, ino, minute, names, nobody};

const MIB: usize = 1 << 20;

pub fn to_write() -> OpenMode {
    OpenMode { writes: true, ..OpenMode::default() }
}

fn to_read_and_write() -> OpenMode {
    OpenMode { reads: true, ..to_write() }
}

/// Thread 10 to 19 is of process 1, and so on; thread 19, 29, … was killed.
fn thread(thread: u32) -> Caller {
    let look = |thread| Process { id: thread / 10, is_killed: thread % 10 == 9 };
    Caller { thread, look, uid: 0, gid: 0 }
}

pub fn create(tree: &TreeOf<Memory>, name: &str) -> u64 {
    tree.create(ROOT, OsStr::new(name), false, to_read_and_write(), nobody()).unwrap().1.handle
}

pub fn write(tree: &TreeOf<Memory>, handle: u64, at: u64, bytes: &[u8]) -> Result<(), i32> {
    let written = match tree.write_known(handle, at, bytes, nobody()) {
        Some(written) => written,
        None => tree.write(handle, at, bytes, nobody(), &mut |_| true),
    };
    written.map(drop).map_err(|error| error.errno)
}

pub fn closed(tree: &TreeOf<Memory>, handle: u64) -> Result<(), i32> {
    let flushed = tree.flush(handle, nobody());
    let released = tree.release(handle);
    flushed.and(released).map_err(|error| error.errno)
}

/// As the session reads: from the writer, or from the version.
pub fn read(tree: &TreeOf<Memory>, handle: u64, at: u64, bytes: usize) -> Result<Vec<u8>, i32> {
    if tree.is_written(handle, at, bytes) {
        return tree.read_written(handle, at, bytes).map_err(|error| error.errno);
    }
    let (send, receive) = mpsc::channel();
    tree.read(handle, at, bytes, move |read| {
        let read = read.map(|slices| slices.flat_map(<[u8]>::to_vec).collect::<Vec<u8>>());
        send.send(read.map_err(|error| error.errno)).unwrap();
    });
    receive.recv_timeout(Duration::from_secs(60)).unwrap()
}

pub fn open(tree: &TreeOf<Memory>, name: &str, mode: OpenMode) -> Result<OpenedFile, i32> {
    let node = find(tree, name)?.id;
    match tree.open_known(node, mode) {
        Some(opened) => opened.map_err(|error| error.errno),
        None => tree.open(node, mode, nobody()).map_err(|error| error.errno),
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn a_file_appears_when_it_is_closed() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    let handle = create(&tree, "new");
    write(&tree, handle, 0, b"hello ").unwrap();
    write(&tree, handle, 6, b"world").unwrap();
    assert_eq!(memory.object("new"), None, "others see it when it is whole");
    assert_eq!(find(&tree, "new").unwrap().attributes.size, 11, "here it is seen at once");
    assert_eq!(names(&tree, ROOT), ["new"]);
    tree.flush(handle, nobody()).unwrap();
    assert_eq!(memory.object("new").unwrap().bytes, b"hello world");
    let writes = memory.0.writes.load(Relaxed);
    tree.flush(handle, nobody()).unwrap();
    tree.sync(handle).unwrap();
    tree.release(handle).unwrap();
    assert_eq!(memory.0.writes.load(Relaxed), writes, "once is enough");
    assert_eq!(names(&tree, ROOT), ["new"]);
    assert_eq!(find(&tree, "new").unwrap().attributes.size, 11);
    assert_eq!(tree.stats().written_now, 0);
}

#[test]
fn a_file_of_no_bytes_appears() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    closed(&tree, create(&tree, "empty")).unwrap();
    assert_eq!(memory.object("empty").unwrap().bytes, b"");
}

#[test]
fn a_long_file_is_sent_while_it_is_written() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    let (handle, bytes) = (create(&tree, "long"), pattern(5 * MIB + 3));
    for (at, piece) in bytes.chunks(300_000).enumerate() {
        write(&tree, handle, at as u64 * 300_000, piece).unwrap();
    }
    assert_eq!(memory.0.uploads.load(Relaxed), 1);
    assert_eq!(memory.object("long"), None);
    tree.sync(handle).unwrap();
    assert_eq!(memory.object("long").unwrap().bytes, bytes);
    // After that it goes on: by its bytes, and once it is longer, by the origin's own copy.
    write(&tree, handle, bytes.len() as u64, &bytes[..MIB]).unwrap();
    tree.sync(handle).unwrap();
    let mut all = [&bytes, &bytes[..MIB]].concat();
    assert_eq!(memory.object("long").unwrap().bytes, all);
    for _ in 0..4 {
        write(&tree, handle, all.len() as u64, &bytes[..MIB]).unwrap();
        all.extend_from_slice(&bytes[..MIB]);
    }
    tree.sync(handle).unwrap();
    write(&tree, handle, all.len() as u64, b"end").unwrap();
    all.extend_from_slice(b"end");
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("long").unwrap().bytes, all);
    assert_eq!(memory.0.uploads.load(Relaxed), 0);
    assert!(tree.stats().held_bytes_now < 10_000, "what was kept is let go");
}

#[test]
fn a_write_elsewhere_is_refused_and_changes_nothing() {
    let memory = Memory::with(&["old"]);
    let tree = memory.tree(minute());
    let handle = create(&tree, "new");
    write(&tree, handle, 0, b"0123456789").unwrap();
    for at in [0, 5, 9, 11, 1 << 40] {
        assert_eq!(write(&tree, handle, at, b"x"), Err(libc::EOPNOTSUPP), "{at}");
    }
    write(&tree, handle, 10, b"a").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("new").unwrap().bytes, b"0123456789a");
    let handle = open(&tree, "old", to_write()).unwrap().handle;
    assert_eq!(write(&tree, handle, 0, b"x"), Err(libc::EOPNOTSUPP));
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("old").unwrap().bytes, b"content of old");
}

/// The kernel sends the parts of a long write side by side.
#[test]
fn parts_of_a_write_that_come_in_another_order_wait_for_each_other() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    let handle = create(&tree, "new");
    std::thread::scope(|scope| {
        let later = scope.spawn(|| write(&tree, handle, 3, b"def"));
        std::thread::sleep(Duration::from_millis(20));
        write(&tree, handle, 0, b"abc").unwrap();
        later.join().unwrap().unwrap();
    });
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("new").unwrap().bytes, b"abcdef");
}

#[test]
fn what_was_written_can_be_read() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    let (handle, bytes) = (create(&tree, "new"), pattern(3 * MIB));
    write(&tree, handle, 0, &bytes[..100]).unwrap();
    assert_eq!(read(&tree, handle, 90, 100).unwrap(), bytes[90..100]);
    assert_eq!(read(&tree, handle, 100, 100).unwrap(), b"");
    let reader = open(&tree, "new", OpenMode::read(false)).unwrap();
    assert!(reader.direct, "its pages would be out of date at once");
    assert_eq!(read(&tree, reader.handle, 0, 10).unwrap(), bytes[..10]);
    write(&tree, handle, 100, &bytes[100..MIB]).unwrap();
    write(&tree, handle, MIB as u64, &bytes[MIB..2 * MIB]).unwrap();
    // It has left memory, and is not published: only its writer may have it published for that.
    assert_eq!(read(&tree, reader.handle, 0, 10), Err(libc::EBUSY));
    assert_eq!(memory.object("new"), None);
    assert_eq!(read(&tree, handle, 5, 10).unwrap(), bytes[5..15]);
    assert_eq!(memory.object("new").unwrap().bytes, bytes[..2 * MIB]);
    // The published bytes stay readable while more are added.
    write(&tree, handle, 2 * MIB as u64, &bytes[2 * MIB..]).unwrap();
    assert_eq!(read(&tree, reader.handle, 7, 10).unwrap(), bytes[7..17]);
    closed(&tree, handle).unwrap();
    assert_eq!(read(&tree, reader.handle, 2 * MIB as u64, 10).unwrap(), bytes[2 * MIB..2 * MIB + 10]);
    tree.release(reader.handle).unwrap();
    let only = tree.create(ROOT, OsStr::new("only"), false, to_write(), nobody()).unwrap().1.handle;
    assert_eq!(read(&tree, only, 0, 1), Err(libc::EBADF));
    closed(&tree, only).unwrap();
}

/// What a reviewer found: it was left without a version when its writer went.
#[test]
fn a_reader_that_came_while_it_was_written_reads_on_when_its_writer_has_gone() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    for bytes in [10, 2 * MIB] {
        let (handle, content) = (create(&tree, "new"), pattern(bytes));
        for (at, piece) in content.chunks(MIB).enumerate() {
            write(&tree, handle, (at * MIB) as u64, piece).unwrap();
        }
        tree.sync(handle).unwrap();
        let reader = open(&tree, "new", OpenMode::read(false)).unwrap().handle;
        closed(&tree, handle).unwrap();
        assert_eq!(read(&tree, reader, 1, 5).unwrap(), content[1..6]);
        tree.release(reader).unwrap();
        tree.remove_file(ROOT, OsStr::new("new")).unwrap();
    }
}

/// The kernel did not take the answer: its process was killed.
#[test]
fn an_open_that_was_given_up_publishes_nothing() {
    let memory = Memory::with(&["old"]);
    let tree = memory.tree(minute());
    let handle = create(&tree, "new");
    assert!(tree.release_unopened(handle).is_err());
    let handle = open(&tree, "old", OpenMode { truncates: true, ..to_write() }).unwrap().handle;
    assert!(tree.release_unopened(handle).is_err());
    assert_eq!(
        (memory.object("new"), memory.object("old").unwrap().bytes),
        (None, b"content of old".to_vec())
    );
    assert_eq!(find(&tree, "old").unwrap().attributes.size, 14);
}

/// The last two handles are released side by side.
#[test]
fn releases_beside_a_rename_end_and_publish() {
    let memory = Memory::with(&["target"]);
    let tree = memory.tree(minute());
    for round in 0..200_u64 {
        ino(&tree, "target");
        let handle = create(&tree, "tmp");
        write(&tree, handle, 0, &round.to_le_bytes()).unwrap();
        tree.flush(handle, nobody()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| tree.release(handle).unwrap());
            scope.spawn(|| {
                tree.rename((ROOT, OsStr::new("tmp")), (ROOT, OsStr::new("target")), false).unwrap();
            });
        });
        assert_eq!(memory.object("target").unwrap().bytes, round.to_le_bytes());
        assert_eq!(tree.stats().written_now, 0);
    }
}

#[test]
fn an_append_goes_on_from_the_version_that_is_there() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    for size in [0, 10, MIB, 3 * MIB, 9 * MIB] {
        let name = format!("file {size}");
        memory.put(&name, pattern(size));
        memory.turn_clock(60_000);
        let handle = open(&tree, &name, to_write()).unwrap().handle;
        write(&tree, handle, size as u64, b"more").unwrap();
        closed(&tree, handle).unwrap();
        assert!(memory.object(&name).unwrap().bytes == [&pattern(size)[..], b"more"].concat(), "{size}");
    }
}

#[test]
fn an_append_to_what_another_client_replaced_fails_and_keeps_it() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    for size in [10, 3 * MIB, 9 * MIB] {
        memory.put("file", pattern(size));
        memory.turn_clock(60_000);
        let handle = open(&tree, "file", to_write()).unwrap().handle;
        let first = write(&tree, handle, size as u64, b"more");
        memory.put("file", "of another client");
        let end = size as u64 + 4;
        let failed =
            first.and_then(|()| write(&tree, handle, end, b"x")).and_then(|()| closed(&tree, handle));
        assert_eq!(failed, Err(libc::ESTALE), "{size}");
        let _ = tree.release(handle);
        assert_eq!(memory.object("file").unwrap().bytes, b"of another client");
        assert_eq!(find(&tree, "file").unwrap().attributes.size, 17, "it is asked for again");
    }
}

#[test]
fn what_is_truncated_is_replaced_when_it_is_closed() {
    let memory = Memory::with(&["old"]);
    let tree = memory.tree(minute());
    let reader = open(&tree, "old", OpenMode::read(false)).unwrap().handle;
    assert_eq!(read(&tree, reader, 0, 3).unwrap(), b"con");
    let handle = open(&tree, "old", OpenMode { truncates: true, ..to_write() }).unwrap().handle;
    assert_eq!(find(&tree, "old").unwrap().attributes.size, 0);
    write(&tree, handle, 0, b"new").unwrap();
    assert_eq!(memory.object("old").unwrap().bytes, b"content of old", "it stays until then");
    assert_eq!(read(&tree, reader, 0, 3), Err(libc::ESTALE), "never a mixture");
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("old").unwrap().bytes, b"new");
    assert_eq!(read(&tree, reader, 0, 3), Err(libc::ESTALE));
    tree.release(reader).unwrap();
    let reader = open(&tree, "old", OpenMode::read(false)).unwrap().handle;
    assert_eq!(read(&tree, reader, 0, 9).unwrap(), b"new");
    tree.release(reader).unwrap();
    // By its name, and by a handle.
    let to_nothing = AttributeChanges { size: Some(0), ..AttributeChanges::default() };
    assert_eq!(tree.change_attributes(ino(&tree, "old"), to_nothing).unwrap().attributes.size, 0);
    assert_eq!(memory.object("old").unwrap().bytes, b"");
    let handle = create(&tree, "new");
    write(&tree, handle, 0, b"abc").unwrap();
    tree.change_attributes(ino(&tree, "new"), to_nothing).unwrap();
    write(&tree, handle, 0, b"x").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("new").unwrap().bytes, b"x");
    let to_two = AttributeChanges { size: Some(2), ..AttributeChanges::default() };
    assert_eq!(tree.change_attributes(ino(&tree, "new"), to_two).unwrap_err().errno, libc::EOPNOTSUPP);
    let as_it_is = AttributeChanges { size: Some(1), ..AttributeChanges::default() };
    tree.change_attributes(ino(&tree, "new"), as_it_is).unwrap();
}

#[test]
fn an_exclusive_file_replaces_nothing() {
    let memory = Memory::with(&["old"]);
    let tree = memory.tree(minute());
    let exclusive = |name: &str| {
        let made = tree.create(ROOT, OsStr::new(name), true, to_write(), nobody());
        made.map(|made| made.1.handle).map_err(|error| error.errno)
    };
    assert_eq!(exclusive("old"), Err(libc::EEXIST));
    let handle = exclusive("new").unwrap();
    assert_eq!(exclusive("new"), Err(libc::EEXIST), "also what is not closed yet");
    memory.put("new", "of another client");
    assert!(closed(&tree, handle).is_err());
    let _ = tree.release(handle);
    assert_eq!(memory.object("new").unwrap().bytes, b"of another client");
}

#[test]
fn what_could_not_be_published_is_told_and_forgotten() {
    let memory = Memory::with(&["old"]);
    for (kind, errno) in [
        (ErrorKind::Network, libc::EIO),
        (ErrorKind::Denied, libc::EACCES),
        (ErrorKind::Timeout, libc::ETIMEDOUT),
        (ErrorKind::NotFound, libc::EIO),
    ] {
        for bytes in [10, 2 * MIB] {
            let tree = memory.tree(minute());
            let handle = create(&tree, "new");
            let bytes = pattern(bytes);
            for (at, piece) in bytes.chunks(MIB).enumerate() {
                write(&tree, handle, (at * MIB) as u64, piece).unwrap();
            }
            memory.refuse(kind);
            let errnos = [
                tree.sync(handle).map_err(|error| error.errno),
                write(&tree, handle, bytes.len() as u64, b"x"),
                tree.flush(handle, nobody()).map_err(|error| error.errno),
            ];
            assert_eq!(errnos, [Err(errno); 3]);
            memory.refuse(None);
            assert_eq!(tree.flush(handle, nobody()).unwrap_err().errno, errno, "nothing makes it good");
            let _ = tree.release(handle);
            assert_eq!(memory.object("new"), None);
            assert_eq!(find(&tree, "new").map(drop), Err(libc::ENOENT));
            assert_eq!(names(&tree, ROOT), ["old"]);
        }
    }
}

#[test]
fn only_who_writes_publishes_by_closing() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    let made =
        |name: &str, caller| tree.create(ROOT, OsStr::new(name), false, to_write(), caller).unwrap().1.handle;
    let handle = made("new", thread(10));
    tree.write_known(handle, 0, b"abc", thread(11)).unwrap().unwrap();
    tree.flush(handle, thread(20)).unwrap();
    assert_eq!(memory.object("new"), None, "a child that was forked meanwhile has ended");
    tree.flush(handle, thread(15)).unwrap();
    assert_eq!(memory.object("new").unwrap().bytes, b"abc");
    // A child that writes has what it wrote published.
    tree.write_known(handle, 3, b"def", thread(20)).unwrap().unwrap();
    tree.flush(handle, thread(21)).unwrap();
    assert_eq!(memory.object("new").unwrap().bytes, b"abcdef");
    tree.release(handle).unwrap();
    // Whoever goes without closing is told nothing, and what it wrote is not lost.
    let handle = made("left", thread(10));
    tree.write_known(handle, 0, b"abc", thread(10)).unwrap().unwrap();
    tree.flush(handle, thread(30)).unwrap();
    tree.release(handle).unwrap();
    assert_eq!(memory.object("left").unwrap().bytes, b"abc");
}

#[test]
fn a_killed_writer_publishes_no_new_file() {
    let memory = Memory::with(&["log", "old"]);
    let tree = memory.tree(minute());
    for bytes in [3, 2 * MIB] {
        let handle = tree.create(ROOT, OsStr::new("new"), false, to_write(), thread(10)).unwrap().1.handle;
        for (at, piece) in pattern(bytes).chunks(MIB).enumerate() {
            tree.write(handle, (at * MIB) as u64, piece, thread(10), &mut |_| true).unwrap();
        }
        tree.flush(handle, thread(19)).unwrap();
        assert!(tree.release(handle).is_err(), "the log hears of it");
        assert_eq!(memory.object("new"), None);
        assert_eq!(find(&tree, "new").map(drop), Err(libc::ENOENT));
        assert_eq!(memory.0.uploads.load(Relaxed), 0);
    }
    let truncates = OpenMode { truncates: true, ..to_write() };
    let handle = tree.open(ino(&tree, "old"), truncates, thread(10)).unwrap().handle;
    tree.flush(handle, thread(19)).unwrap();
    let _ = tree.release(handle);
    assert_eq!(memory.object("old").unwrap().bytes, b"content of old");
    assert_eq!(find(&tree, "old").unwrap().attributes.size, 14);
    // What was added to a log is of use by itself.
    let handle = tree.open(ino(&tree, "log"), to_write(), thread(10)).unwrap().handle;
    tree.write(handle, 14, b"+", thread(10), &mut |_| true).unwrap();
    tree.flush(handle, thread(19)).unwrap();
    tree.release(handle).unwrap();
    assert_eq!(memory.object("log").unwrap().bytes, b"content of log+");
}

#[test]
fn a_write_that_is_given_up_has_written_nothing() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    let (handle, bytes) = (create(&tree, "new"), pattern(4 * MIB));
    memory.set_room(Some(2 * MIB));
    write(&tree, handle, 0, &bytes[..MIB]).unwrap();
    write(&tree, handle, MIB as u64, &bytes[MIB..2 * MIB]).unwrap();
    let mut asked = 0;
    let given_up = tree.write(handle, 2 * MIB as u64, &bytes[2 * MIB..3 * MIB], nobody(), &mut |moment| {
        asked += 1;
        moment == WriteMoment::Wait && asked < 3
    });
    assert_eq!(given_up.unwrap_err().errno, libc::EINTR);
    assert_eq!(find(&tree, "new").unwrap().attributes.size, 2 * MIB as u64);
    memory.set_room(None);
    for at in [2, 3] {
        write(&tree, handle, (at * MIB) as u64, &bytes[at * MIB..(at + 1) * MIB]).unwrap();
    }
    closed(&tree, handle).unwrap();
    assert!(memory.object("new").unwrap().bytes == bytes);
}

#[test]
fn a_write_that_waits_in_vain_is_told_so() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    let (handle, bytes) = (create(&tree, "new"), pattern(3 * MIB));
    memory.set_room(Some(2 * MIB));
    write(&tree, handle, 0, &bytes[..MIB]).unwrap();
    write(&tree, handle, MIB as u64, &bytes[MIB..2 * MIB]).unwrap();
    let waits = tree.write(handle, 2 * MIB as u64, &bytes[2 * MIB..], nobody(), &mut |_| {
        memory.turn_clock(60_000);
        true
    });
    assert_eq!(waits.unwrap_err().errno, libc::ENOMEM);
    closed(&tree, handle).unwrap();
    assert!(memory.object("new").unwrap().bytes == bytes[..2 * MIB], "what was taken is there");
}

#[test]
fn files_that_are_kept_whole_have_a_limit_together() {
    let memory = Memory::new();
    let tree = memory.tree(Config { buffers_bytes: MIB as u64, ..minute() });
    let handles = [create(&tree, "a"), create(&tree, "b")];
    write(&tree, handles[0], 0, &pattern(700_000)).unwrap();
    assert_eq!(write(&tree, handles[1], 0, &pattern(700_000)), Err(libc::ENOMEM));
    closed(&tree, handles[0]).unwrap();
    write(&tree, handles[1], 0, &pattern(700_000)).unwrap();
    closed(&tree, handles[1]).unwrap();
    assert_eq!(memory.object("b").unwrap().bytes.len(), 700_000);
}

#[test]
fn two_handles_write_one_file() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    let first = create(&tree, "log");
    write(&tree, first, 0, b"a").unwrap();
    let second = open(&tree, "log", to_write()).unwrap().handle;
    write(&tree, second, 1, b"b").unwrap();
    write(&tree, first, 2, b"c").unwrap();
    closed(&tree, first).unwrap();
    assert_eq!(memory.object("log").unwrap().bytes, b"abc");
    write(&tree, second, 3, b"d").unwrap();
    closed(&tree, second).unwrap();
    assert_eq!(memory.object("log").unwrap().bytes, b"abcd");
}

#[test]
fn attributes_that_no_object_has_are_refused_or_ignored() {
    let memory = Memory::with(&["file"]);
    let tree = memory.tree(Config { file_mode: 0o644, uid: 5, gid: 6, ..minute() });
    let file = ino(&tree, "file");
    let change = |changes| tree.change_attributes(file, changes).map(drop).map_err(|error| error.errno);
    let none = AttributeChanges::default();
    let modified_s = find(&tree, "file").unwrap().attributes.modified_s;
    for kept in [
        AttributeChanges { mode: Some(0o644), uid: Some(5), gid: Some(6), ..none },
        AttributeChanges { time: TimeChange::To(Time { s: modified_s, ns: 0 }), ..none },
    ] {
        assert_eq!(change(kept), Ok(()), "so it is");
    }
    let others = [
        AttributeChanges { mode: Some(0o600), ..none },
        AttributeChanges { uid: Some(0), ..none },
        AttributeChanges { gid: Some(0), ..none },
        AttributeChanges { time: TimeChange::To(Time { s: 1, ns: 0 }), ..none },
        AttributeChanges { time: TimeChange::Now, ..none },
    ];
    for other in others {
        assert_eq!(change(other), Err(libc::EOPNOTSUPP), "{other:?}");
    }
    let ignoring = memory.tree(Config { attributes: AttributeKeeping::Ignore, ..minute() });
    for other in others {
        ignoring.change_attributes(ino(&ignoring, "file"), other).unwrap();
    }
    // A file that was made just now has the time of now.
    let handle = create(&tree, "new");
    let now = AttributeChanges { time: TimeChange::Now, ..none };
    tree.change_attributes(ino(&tree, "new"), now).unwrap();
    closed(&tree, handle).unwrap();
}

#[test]
fn a_removed_file_of_which_nothing_is_kept_is_stale() {
    let memory = Memory::with(&["f"]);
    let tree = memory.tree(minute());
    let handle = open(&tree, "f", OpenMode { reads: true, ..to_write() }).unwrap().handle;
    tree.remove_file(ROOT, OsStr::new("f")).unwrap();
    assert_eq!(read(&tree, handle, 0, 1), Err(libc::ESTALE));
    closed(&tree, handle).unwrap();
    assert_eq!(memory.objects().len(), 0);
}

/// As a second process does that opens a database, and asks for the log of it.
#[test]
fn a_read_goes_on_with_what_another_handle_has_published_meanwhile() {
    let memory = Memory::new();
    let tree = Arc::new(memory.tree(minute()));
    let handle = create(&tree, "log");
    let page = vec![7; 1 << 20];
    for at in 0..2 {
        write(&tree, handle, at << 20, &page).unwrap();
    }
    tree.sync(handle).unwrap();
    let reader = open(&tree, "log", to_read_and_write()).unwrap().handle;
    let other = tree.clone();
    *memory.0.before_read.lock().unwrap() = Some(Box::new(move || {
        write(&other, handle, 2 << 20, b"more").unwrap();
        other.sync(handle).unwrap();
    }));
    assert_eq!(read(&tree, reader, 0, 4).unwrap(), [7; 4]);
    assert_eq!(read(&tree, reader, 2 << 20, 10).unwrap(), b"more");
    // What another client has put there is no version of this mount.
    memory.put("log", vec![1; 3 << 20]);
    assert_eq!(read(&tree, reader, 0, 4), Err(libc::ESTALE));
    closed(&tree, reader).unwrap();
}
