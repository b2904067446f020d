//! Files that are objects made by appends (OSS): what is written to them is appended.

use std::sync::atomic::Ordering::Relaxed;

use flatout_engine::ErrorKind;
use flatout_tree::{Files, OpenMode, TreeOf};

use crate::memory::Memory;
use crate::writes::{closed, create, open, read, to_write, write};
use crate::{find, ino, minute};

const MIB: usize = 1 << 20;

fn sync(tree: &TreeOf<Memory>, handle: u64) -> Result<(), i32> {
    tree.sync(handle).map_err(|error| error.errno)
}

fn bytes(memory: &Memory) -> Vec<u8> {
    memory.object("log").unwrap().bytes
}

fn is_appendable(memory: &Memory) -> bool {
    memory.0.appendable.lock().unwrap().contains("log")
}

/// The requests that have changed something: appends, and all others.
fn requests(memory: &Memory) -> (u64, u64) {
    (memory.0.appends.load(Relaxed), memory.0.writes.load(Relaxed) + memory.0.uploads.load(Relaxed))
}

#[test]
fn what_is_written_at_the_end_is_appended() {
    let memory = Memory::new();
    memory.append("log", b"first\n");
    let tree = memory.oss_tree(minute());
    let handle = open(&tree, "log", OpenMode { reads: true, ..to_write() }).unwrap().handle;
    let reader = open(&tree, "log", OpenMode::read(false)).unwrap().handle;
    write(&tree, handle, 6, b"second\n").unwrap();
    write(&tree, handle, 13, b"third\n").unwrap();
    assert_eq!((bytes(&memory), find(&tree, "log").unwrap().attributes.size), (b"first\n".to_vec(), 19));
    for handle in [reader, handle] {
        assert_eq!(read(&tree, handle, 3, 100).unwrap(), b"st\nsecond\nthird\n", "also before it is sent");
        assert_eq!(read(&tree, handle, 13, 3).unwrap(), b"thi");
    }
    assert_eq!(requests(&memory), (0, 0));
    sync(&tree, handle).unwrap();
    assert_eq!((bytes(&memory), requests(&memory)), (b"first\nsecond\nthird\n".to_vec(), (1, 0)));
    assert_eq!(read(&tree, reader, 6, 13).unwrap(), b"second\nthird\n", "a reader goes on");
    write(&tree, handle, 19, b"fourth\n").unwrap();
    assert_eq!(read(&tree, handle, 19, 7).unwrap(), b"fourth\n");
    closed(&tree, handle).unwrap();
    sync(&tree, reader).unwrap();
    assert_eq!((bytes(&memory), requests(&memory)), (b"first\nsecond\nthird\nfourth\n".to_vec(), (2, 0)));
    assert!(is_appendable(&memory));
    // By the next writer, too; and what adds nothing sends nothing.
    let handle = open(&tree, "log", to_write()).unwrap().handle;
    sync(&tree, handle).unwrap();
    write(&tree, handle, 26, b"fifth\n").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!((bytes(&memory).len(), requests(&memory)), (32, (3, 0)));
}

#[test]
fn more_than_is_kept_is_appended_while_it_is_written() {
    let memory = Memory::new();
    memory.append("log", b"x");
    let tree = memory.oss_tree(minute());
    let handle = open(&tree, "log", to_write()).unwrap().handle;
    let reader = open(&tree, "log", OpenMode::read(false)).unwrap().handle;
    let piece = vec![b'y'; MIB / 2 + 1];
    for number in 0..4 {
        write(&tree, handle, 1 + (number * piece.len()) as u64, &piece).unwrap();
        assert_eq!(bytes(&memory).len(), 1 + number * piece.len(), "all but the last");
    }
    assert_eq!(read(&tree, reader, 0, 3).unwrap(), b"xyy");
    closed(&tree, handle).unwrap();
    assert!(bytes(&memory) == [&b"x"[..], &piece, &piece, &piece, &piece].concat());
    assert_eq!((requests(&memory), is_appendable(&memory)), ((4, 0), true));
}

#[test]
fn an_append_of_another_client_meanwhile_is_an_error_and_stays() {
    let tell = |when: &str, meanwhile: &dyn Fn(&Memory)| {
        let memory = Memory::new();
        memory.append("log", b"first\n");
        let tree = memory.oss_tree(minute());
        let handle = open(&tree, "log", to_write()).unwrap().handle;
        if when == "before the first write" {
            meanwhile(&memory);
        }
        let first = write(&tree, handle, 6, b"lost\n");
        if when == "before the end" {
            meanwhile(&memory);
        }
        let there = bytes(&memory);
        let failed = first.and_then(|()| sync(&tree, handle));
        assert_eq!(failed, Err(libc::ESTALE), "{when}");
        assert_eq!(write(&tree, handle, 11, b"more"), Err(libc::ESTALE), "{when}");
        let _ = tree.release(handle);
        assert!(bytes(&memory) == there, "{when}");
        assert_eq!(find(&tree, "log").unwrap().attributes.size, there.len() as u64, "it is asked for again");
    };
    for when in ["before the first write", "before the end"] {
        tell(when, &|memory| drop(memory.append("log", b"theirs\n")));
        tell(when, &|memory| {
            memory.delete("log");
            memory.append("log", b"another");
        });
    }
    tell("before the end", &|memory| drop(memory.put("log", "no appends")));
}

#[test]
fn an_append_that_fails_is_told_at_every_later_call() {
    let memory = Memory::new();
    memory.append("log", b"first\n");
    let tree = memory.oss_tree(minute());
    let handle = open(&tree, "log", to_write()).unwrap().handle;
    write(&tree, handle, 6, b"lost\n").unwrap();
    memory.refuse(ErrorKind::Network);
    assert_eq!(sync(&tree, handle), Err(libc::EIO));
    memory.refuse(None);
    assert_eq!(sync(&tree, handle), Err(libc::EIO));
    assert_eq!(write(&tree, handle, 11, b"more"), Err(libc::EIO));
    let _ = tree.release(handle);
    assert_eq!(bytes(&memory), b"first\n");
}

#[test]
fn a_file_that_is_cut_or_new_is_no_appendable_object() {
    let memory = Memory::new();
    memory.append("log", b"first\n");
    let tree = memory.oss_tree(minute());
    let handle = open(&tree, "log", OpenMode { truncates: true, ..to_write() }).unwrap().handle;
    write(&tree, handle, 0, b"new").unwrap();
    sync(&tree, handle).unwrap();
    write(&tree, handle, 3, b"er").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!((bytes(&memory), is_appendable(&memory)), (b"newer".to_vec(), false));
    let handle = create(&tree, "other");
    write(&tree, handle, 0, b"x").unwrap();
    closed(&tree, handle).unwrap();
    let handle = open(&tree, "other", to_write()).unwrap().handle;
    write(&tree, handle, 1, b"y").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!((memory.object("other").unwrap().bytes, memory.0.appends.load(Relaxed)), (b"xy".to_vec(), 0));
}

#[test]
fn s3_has_no_such_objects() {
    let memory = Memory::new();
    memory.append("log", b"x");
    let tree = memory.tree(minute());
    let handle = open(&tree, "log", to_write()).unwrap().handle;
    write(&tree, handle, 1, b"y").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!((bytes(&memory), requests(&memory), is_appendable(&memory)), (b"xy".to_vec(), (0, 1), false));
}

#[test]
fn a_renamed_or_removed_file_is_as_any_other() {
    let memory = Memory::new();
    memory.append("log", b"x");
    let tree = memory.oss_tree(minute());
    let handle = open(&tree, "log", to_write()).unwrap().handle;
    write(&tree, handle, 1, b"y").unwrap();
    tree.rename((crate::ROOT, "log".as_ref()), (crate::ROOT, "named".as_ref()), false).unwrap();
    write(&tree, handle, 2, b"z").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("named").unwrap().bytes, b"xyz");
    memory.append("log", b"x");
    memory.turn_clock(60_000);
    ino(&tree, "log");
    let handle = open(&tree, "log", to_write()).unwrap().handle;
    write(&tree, handle, 1, b"y").unwrap();
    tree.remove_file(crate::ROOT, "log".as_ref()).unwrap();
    assert_eq!(write(&tree, handle, 2, b"z"), Err(libc::ESTALE));
    let _ = tree.release(handle);
    assert!(memory.object("log").is_none());
}
