//! Files that are written in any order: what is read of them, what is sent, and what outlives a failure, a
//! kill and a conflict.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use flatout_engine::ErrorKind;
use flatout_tree::{
    AttributeChanges, AttributeKeeping, Caller, Config, Files, FsError, OpenMode, Process, StagingFolder,
    Tell, TreeOf,
};
use flatout_wire::object_options::ObjectOptions;
use tempfile::TempDir;

use crate::attributes::{change, metadata, mode, modified, rows, user};
use crate::memory::Memory;
use crate::writes::{closed, create, open, read, to_write, write};
use crate::{ROOT, ino, minute, names, nobody};

const MIB: usize = 1 << 20;

fn staging(folder: &Path, most: Option<u64>) -> Arc<StagingFolder> {
    StagingFolder::open(folder, ("s3://bucket/", "http://origin"), most, Tell(Box::new(|_| {}))).unwrap()
}

pub fn with(folder: &Path) -> Config {
    Config { staging: Some(staging(folder, None)), ..minute() }
}

fn to_read_and_write() -> OpenMode {
    OpenMode { reads: true, ..to_write() }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// All files below a folder.
fn files_below(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<String> = entries
        .flat_map(|path| match path.is_dir() {
            true => files_below(&path),
            false => vec![path.file_name().unwrap().to_str().unwrap().to_owned()],
        })
        .collect();
    files.sort();
    files
}

/// Tries to upload what is pending; how much could not be.
fn failed(tree: &TreeOf<Memory>) -> usize {
    tree.publish_pending().iter().filter(|(_, outcome)| outcome.is_err()).count()
}

fn cut(tree: &TreeOf<Memory>, name: &str, size: u64) -> Result<u64, i32> {
    let changes = AttributeChanges { size: Some(size), ..AttributeChanges::default() };
    let changed = tree.change_attributes(ino(tree, name), changes);
    changed.map(|node| node.attributes.size).map_err(|error| error.errno)
}

#[test]
fn a_new_file_is_written_in_any_order() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "new");
    write(&tree, handle, 0, b"0123456789").unwrap();
    write(&tree, handle, 3, b"abc").unwrap();
    write(&tree, handle, 20, b"end").unwrap();
    let expected = b"012abc6789\0\0\0\0\0\0\0\0\0\0end";
    assert_eq!(read(&tree, handle, 0, 100).unwrap(), expected);
    assert_eq!(read(&tree, handle, 8, 4).unwrap(), b"89\0\0");
    assert_eq!(memory.objects().len(), 0, "nothing appears before it is closed");
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("new").unwrap().bytes, expected);
    drop(tree);
    assert_eq!(files_below(folder.path()), Vec::<String>::new());
}

#[test]
fn of_a_long_object_what_has_changed_is_sent() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let mut content = pattern(64 * MIB);
    memory.put("db", content.clone());
    let tree = memory.tree(with(folder.path()));
    let handle = open(&tree, "db", to_read_and_write()).unwrap().handle;
    write(&tree, handle, 30 << 20, b"changed").unwrap();
    content[30 * MIB..30 * MIB + 7].copy_from_slice(b"changed");
    assert_eq!(read(&tree, handle, (30 << 20) - 10, 30).unwrap(), content[30 * MIB - 10..30 * MIB + 20]);
    tree.sync(handle).unwrap();
    assert!(memory.object("db").unwrap().bytes == content);
    let (sent, copied) = (&memory.0.sent_of_files, &memory.0.copied_of_files);
    assert_eq!((sent.load(Relaxed), copied.load(Relaxed)), (5 << 20, 59 << 20));
    // What was read and written is on the disk: nothing of it is read again.
    let reads = memory.0.reads.load(Relaxed);
    assert_eq!(read(&tree, handle, 30 << 20, 7).unwrap(), b"changed");
    assert_eq!(memory.0.reads.load(Relaxed), reads);
    // Nothing has changed since.
    closed(&tree, handle).unwrap();
    assert_eq!(sent.load(Relaxed), 5 << 20);
}

/// Bytes that are cut off do not come back when the file grows.
#[test]
fn a_file_is_cut_and_made_longer() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("f", pattern(1000));
    let tree = memory.tree(with(folder.path()));
    assert_eq!(cut(&tree, "f", 100), Ok(100));
    assert_eq!(memory.object("f").unwrap().bytes, pattern(100), "nobody has it open: it is published");
    let handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
    assert_eq!(cut(&tree, "f", 50), Ok(50));
    assert_eq!(cut(&tree, "f", 200), Ok(200));
    let expected = [pattern(50), vec![0; 150]].concat();
    assert_eq!(read(&tree, handle, 0, 1000).unwrap(), expected);
    assert_eq!(memory.object("f").unwrap().bytes.len(), 100);
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("f").unwrap().bytes, expected);
    let without = memory.tree(minute());
    assert_eq!(cut(&without, "f", 7), Err(libc::EOPNOTSUPP));
}

/// Bytes that were sent as a stream cannot be read back before they are an object.
#[test]
fn a_long_stream_that_is_written_elsewhere_is_published_and_goes_on() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "film");
    let mut content = pattern(20 * MIB);
    for (number, piece) in content.chunks(MIB).enumerate() {
        write(&tree, handle, (number * MIB) as u64, piece).unwrap();
    }
    assert_eq!(memory.objects().len(), 0);
    write(&tree, handle, 0, b"header").unwrap();
    content[..6].copy_from_slice(b"header");
    closed(&tree, handle).unwrap();
    assert!(memory.object("film").unwrap().bytes == content);
    assert_eq!(memory.0.sent_of_files.load(Relaxed), 5 << 20);
}

#[test]
fn what_cannot_be_published_is_kept_and_tried_again() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("f", pattern(1000));
    let told = Arc::new(Mutex::new(Vec::new()));
    let heard = told.clone();
    let tell = Tell(Box::new(move |error| heard.lock().unwrap().push(error.to_string())));
    let staging = StagingFolder::open(folder.path(), ("a", "b"), None, tell).unwrap();
    let tree = memory.tree(Config { staging: Some(staging), ..minute() });
    let handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
    write(&tree, handle, 10, b"new").unwrap();
    memory.refuse(ErrorKind::Network);
    assert_eq!(tree.sync(handle).map_err(|error| error.errno), Err(libc::EIO));
    // It is not lost by that: it can be written on.
    write(&tree, handle, 20, b"more").unwrap();
    assert_eq!(closed(&tree, handle), Err(libc::EIO));
    assert_eq!(tree.pending(), [("f".to_owned(), 1000)]);
    assert_eq!(files_below(folder.path()), ["0.data", "0.record", "lock"]);
    assert_eq!(failed(&tree), 1);
    assert!(told.lock().unwrap()[0].contains("as the test says"));
    // Whoever opens it finds it as it was written.
    memory.refuse(None);
    let again = open(&tree, "f", to_read_and_write()).unwrap().handle;
    assert_eq!(
        read(&tree, again, 8, 6).unwrap(),
        [&pattern(1000)[8..10], b"new", &pattern(1000)[13..14]].concat()
    );
    write(&tree, again, 0, b"x").unwrap();
    closed(&tree, again).unwrap();
    let mut expected = pattern(1000);
    expected[10..13].copy_from_slice(b"new");
    expected[20..24].copy_from_slice(b"more");
    expected[0] = b'x';
    assert_eq!(memory.object("f").unwrap().bytes, expected);
    assert_eq!((tree.pending(), tree.publish_pending().len()), (Vec::new(), 0));
    assert_eq!(files_below(folder.path()), ["lock"]);
}

#[test]
fn the_next_mount_uploads_what_a_killed_one_has_left() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let mut old = pattern(40 * MIB);
    memory.put("deep/old", old.clone());
    {
        let tree = memory.tree(with(folder.path()));
        let changed = open(&tree, "deep/old", to_read_and_write()).unwrap().handle;
        write(&tree, changed, 20 << 20, b"changed").unwrap();
        let new = create(&tree, "new");
        write(&tree, new, 5, b"tail").unwrap();
        write(&tree, new, 0, b"head").unwrap();
        let never_synced = create(&tree, "never");
        write(&tree, never_synced, 5, b"x").unwrap();
        memory.refuse(ErrorKind::Network);
        tree.sync(changed).unwrap_err();
        tree.sync(new).unwrap_err();
        // A killed process says nothing more.
    }
    memory.refuse(None);
    assert_eq!(memory.objects().len(), 1);
    let tree = memory.tree(with(folder.path()));
    let mut pending = tree.pending();
    pending.sort();
    assert_eq!(pending, [("deep/old".to_owned(), 40 << 20), ("new".to_owned(), 9)]);
    // It is shown before it is uploaded.
    assert!(names(&tree, ROOT).contains(&"new".to_owned()));
    let reader = open(&tree, "new", OpenMode::read(false)).unwrap().handle;
    assert_eq!(read(&tree, reader, 0, 20).unwrap(), b"head\0tail");
    assert_eq!(failed(&tree), 0);
    old[20 * MIB..20 * MIB + 7].copy_from_slice(b"changed");
    assert!(memory.object("deep/old").unwrap().bytes == old);
    assert_eq!(memory.object("new").unwrap().bytes, b"head\0tail");
    assert_eq!(memory.objects().len(), 2, "what was never to be published is not");
    assert_eq!(read(&tree, reader, 0, 4).unwrap(), b"head");
    tree.release(reader).unwrap();
    assert_eq!(files_below(folder.path()), ["lock"]);
}

/// The answer to the upload was lost with the mount: what it has made is not taken for another client's.
#[test]
fn what_was_published_just_before_the_kill_is_not_published_twice() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("f", pattern(100));
    {
        let tree = memory.tree(with(folder.path()));
        let handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
        write(&tree, handle, 5, b"new").unwrap();
        // The object is made, and the answer is lost.
        memory.0.steps_left.store(1, SeqCst);
        tree.sync(handle).unwrap_err();
    }
    memory.0.steps_left.store(i64::MAX, SeqCst);
    let made = memory.object("f").unwrap();
    assert_eq!(&made.bytes[5..8], b"new");
    let tree = memory.tree(with(folder.path()));
    assert_eq!(tree.pending().len(), 1);
    // The version that it was made of is gone: what is left of it is in the new one.
    let reader = open(&tree, "f", OpenMode::read(false)).unwrap().handle;
    assert_eq!(read(&tree, reader, 0, 100).unwrap(), made.bytes);
    tree.release(reader).unwrap();
    assert_eq!(failed(&tree), 0);
    assert_eq!(memory.object("f").unwrap().etag, made.etag);
    assert_eq!(files_below(folder.path()), ["lock"]);
}

#[test]
fn what_another_client_has_replaced_stays_and_so_does_what_was_written() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("f", pattern(100));
    let tree = memory.tree(with(folder.path()));
    let handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
    write(&tree, handle, 5, b"new").unwrap();
    read(&tree, handle, 0, 100).unwrap();
    memory.put("f", b"of another client".to_vec());
    assert_eq!(tree.sync(handle).map_err(|error| error.errno), Err(libc::ESTALE));
    assert_eq!(write(&tree, handle, 0, b"x"), Err(libc::ESTALE));
    assert_eq!(closed(&tree, handle), Err(libc::ESTALE));
    assert_eq!(memory.object("f").unwrap().bytes, b"of another client");
    // It is tried no more, and kept for people.
    assert_eq!(failed(&tree), 0);
    assert_eq!(files_below(folder.path()), ["0.conflict", "0.data", "lock"]);
}

fn away(memory: &Memory, tree: &TreeOf<Memory>, handle: u64) {
    memory.refuse(ErrorKind::Network);
    assert_eq!(closed(tree, handle), Err(libc::EIO));
    memory.refuse(None);
}

fn to_replace() -> OpenMode {
    OpenMode { truncates: true, ..to_read_and_write() }
}

/// Something that a stream cannot do.
fn scribble(tree: &TreeOf<Memory>, handle: u64) {
    write(tree, handle, 5, b"tail").unwrap();
    write(tree, handle, 0, b"head").unwrap();
}

/// A file that is uploaded late replaces nothing that is newer, whatever the origin keeps of conditions.
#[test]
fn what_is_uploaded_late_replaces_nothing_that_is_newer() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    for name in ["cut", "old", "gone"] {
        memory.put(name, pattern(100));
    }
    let tree = memory.tree(with(folder.path()));
    // A new file, and one that was cut to nothing: another client makes an object of the name meanwhile.
    for name in ["new", "cut"] {
        let handle = match name {
            "new" => create(&tree, name),
            _ => open(&tree, name, to_replace()).unwrap().handle,
        };
        scribble(&tree, handle);
        away(&memory, &tree, handle);
        memory.put(name, b"of another client".to_vec());
        assert_eq!(failed(&tree), 1, "{name}");
        assert_eq!(memory.object(name).unwrap().bytes, b"of another client", "{name}");
        assert_eq!(tree.pending(), [], "it is tried no more");
    }
    // What was to be replaced is replaced, however young it is.
    let handle = open(&tree, "old", to_replace()).unwrap().handle;
    scribble(&tree, handle);
    away(&memory, &tree, handle);
    assert_eq!(failed(&tree), 0);
    assert_eq!(memory.object("old").unwrap().bytes, b"head\0tail");
    // One that another client has removed meanwhile stays removed.
    let handle = open(&tree, "gone", to_read_and_write()).unwrap().handle;
    write(&tree, handle, 5, b"x").unwrap();
    read(&tree, handle, 0, 100).unwrap();
    away(&memory, &tree, handle);
    memory.delete("gone");
    assert_eq!(failed(&tree), 1);
    assert_eq!(memory.object("gone"), None);
    // No later mount takes the three, nor shows what was in them.
    drop(tree);
    let next = memory.tree(with(folder.path()));
    assert_eq!(next.pending(), []);
    assert_eq!(files_below(folder.path()).iter().filter(|name| name.ends_with("conflict")).count(), 3);
    let reader = open(&next, "new", OpenMode::read(false)).unwrap().handle;
    assert_eq!(read(&next, reader, 0, 100).unwrap(), b"of another client");
}

/// The answer was lost, and the program writes on: what it had written is not taken for another client's.
#[test]
fn an_answer_that_was_lost_is_found_whatever_was_written_since() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("f", pattern(100));
    let tree = memory.tree(with(folder.path()));
    for name in ["f", "new"] {
        let handle = match name {
            "f" => open(&tree, name, to_read_and_write()).unwrap().handle,
            _ => create(&tree, name),
        };
        scribble(&tree, handle);
        read(&tree, handle, 0, 100).unwrap();
        memory.0.steps_left.store(1, SeqCst);
        tree.sync(handle).unwrap_err();
        memory.0.steps_left.store(i64::MAX, SeqCst);
        let made = memory.object(name).unwrap();
        assert_eq!(&made.bytes[..4], b"head", "it was made");
        write(&tree, handle, 1, b"EA").unwrap();
        assert_eq!(cut(&tree, name, 8), Ok(8));
        closed(&tree, handle).unwrap();
        let expected = [b"hEAd", &made.bytes[4..8]].concat();
        assert_eq!(memory.object(name).unwrap().bytes, expected, "{name}");
    }
    assert_eq!(files_below(folder.path()), ["lock"]);
}

#[test]
fn who_opens_a_file_that_waits_and_is_killed_takes_nothing_back() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    scribble(&tree, handle);
    away(&memory, &tree, handle);
    let node = ino(&tree, "f");
    let look = |_| Process { id: 1, is_killed: true };
    let killed = Caller { thread: 19, look, uid: 0, gid: 0 };
    let opened = tree.open(node, to_read_and_write(), killed).unwrap().handle;
    let _ = tree.flush(opened, killed);
    let _ = tree.release(opened);
    assert_eq!(memory.object("f").unwrap().bytes, b"head\0tail");
}

/// truncate(2) by path: there is no close that would publish it.
#[test]
fn a_file_that_waits_is_cut_by_its_path() {
    for size in [0, 3] {
        let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
        memory.put("f", pattern(100));
        let tree = memory.tree(with(folder.path()));
        let handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
        scribble(&tree, handle);
        away(&memory, &tree, handle);
        assert_eq!(cut(&tree, "f", size), Ok(size));
        assert_eq!(memory.object("f").unwrap().bytes, b"head"[..size as usize]);
        assert_eq!(tree.pending(), []);
        assert_eq!(files_below(folder.path()), ["lock"]);
    }
}

#[test]
fn a_file_that_was_cut_is_not_longer_after_a_kill() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    {
        let tree = memory.tree(with(folder.path()));
        let handle = create(&tree, "f");
        write(&tree, handle, 5, &[7; 1000]).unwrap();
        memory.refuse(ErrorKind::Network);
        tree.sync(handle).unwrap_err();
        assert_eq!(cut(&tree, "f", 10), Ok(10));
    }
    memory.refuse(None);
    let tree = memory.tree(with(folder.path()));
    assert_eq!(tree.pending(), [("f".to_owned(), 10)]);
    assert_eq!(failed(&tree), 0);
    assert_eq!(memory.object("f").unwrap().bytes, b"\0\0\0\0\0\x07\x07\x07\x07\x07");
}

/// Bytes of the version that come after it was cut and made longer mean nothing any more.
#[test]
fn a_read_that_was_under_way_keeps_nothing_that_was_cut_off() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("f", vec![7; 1000]);
    let tree = Arc::new(memory.tree(with(folder.path())));
    let handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
    write(&tree, handle, 0, &[7; 20]).unwrap();
    write(&tree, handle, 900, b"x").unwrap();
    memory.hold_reads(true);
    let reader = tree.clone();
    let under_way = std::thread::spawn(move || read(&reader, handle, 100, 100));
    memory.wait_for_reads(1);
    assert_eq!(cut(&tree, "f", 10), Ok(10));
    assert_eq!(cut(&tree, "f", 1000), Ok(1000));
    tree.sync(handle).unwrap();
    memory.hold_reads(false);
    assert_eq!(under_way.join().unwrap().unwrap(), [0; 100]);
    assert_eq!(read(&tree, handle, 0, 100).unwrap(), [[7; 10].as_slice(), &[0; 90]].concat());
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("f").unwrap().bytes, [[7; 10].as_slice(), &[0; 990]].concat());
}

#[test]
fn a_file_without_a_name_may_be_long() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    tree.remove_file(ROOT, OsStr::new("f")).unwrap();
    let piece = pattern(MIB);
    for number in 0..70 {
        write(&tree, handle, (number * MIB) as u64, &piece).unwrap();
    }
    write(&tree, handle, 3, b"abc").unwrap();
    assert_eq!(read(&tree, handle, 1, 5).unwrap(), [&piece[1..3], b"abc"].concat());
    assert!(read(&tree, handle, (69 * MIB) as u64, MIB).unwrap() == piece);
    closed(&tree, handle).unwrap();
    assert_eq!(memory.objects().len(), 0);
}

#[test]
fn a_full_disk_is_told_and_loses_nothing() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("f", pattern(3 * MIB));
    let staging = staging(folder.path(), Some(MIB as u64));
    let tree = memory.tree(Config { staging: Some(staging.clone()), ..minute() });
    let handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
    write(&tree, handle, 0, &[1; MIB]).unwrap();
    assert_eq!(write(&tree, handle, 2 << 20, b"x"), Err(libc::ENOSPC));
    // What is there can be changed, and read, and published.
    write(&tree, handle, 7, b"again").unwrap();
    assert_eq!(read(&tree, handle, 2 << 20, 4).unwrap(), pattern(3 * MIB)[2 * MIB..2 * MIB + 4]);
    tree.sync(handle).unwrap();
    let mut expected = pattern(3 * MIB);
    expected[..MIB].fill(1);
    expected[7..12].copy_from_slice(b"again");
    assert!(memory.object("f").unwrap().bytes == expected);
    closed(&tree, handle).unwrap();
    assert_eq!(staging.used_bytes(), 0);
}

#[test]
fn a_file_whose_name_is_removed_is_published_by_nobody() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    write(&tree, handle, 5, b"x").unwrap();
    write(&tree, handle, 0, b"y").unwrap();
    memory.refuse(ErrorKind::Network);
    tree.sync(handle).unwrap_err();
    memory.refuse(None);
    tree.remove_file(ROOT, OsStr::new("f")).unwrap();
    assert_eq!(read(&tree, handle, 0, 10).unwrap(), b"y\0\0\0\0x");
    write(&tree, handle, 1, b"z").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!(memory.objects().len(), 0);
    assert_eq!(files_below(folder.path()), ["lock"]);
}

#[test]
fn a_file_that_waits_goes_with_its_name() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    scribble(&tree, handle);
    away(&memory, &tree, handle);
    tree.remove_file(ROOT, OsStr::new("f")).unwrap();
    assert_eq!((tree.pending(), memory.objects().len()), (Vec::new(), 0));
    assert_eq!(files_below(folder.path()), ["lock"]);
}

/// How an upload and what takes the name of its file end that comes meanwhile. Where nobody stops the upload,
/// it goes on after a while, and its bytes are sent.
fn meanwhile(
    memory: &Memory,
    upload: impl FnOnce() -> Result<(), FsError> + Send,
    take_name: impl FnOnce() -> Result<(), FsError> + Send,
) -> [Result<(), i32>; 2] {
    let errno = |error: FsError| error.errno;
    memory.shut();
    let (over, is_over) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_over.recv_timeout(Duration::from_secs(5)).is_err() {
                memory.open();
            }
        });
        let uploaded = scope.spawn(|| upload().map_err(errno));
        memory.wait_for(1);
        let taken = take_name().map_err(errno);
        let ends = [uploaded.join().unwrap(), taken];
        let _ = over.send(());
        ends
    })
}

fn remove(tree: &TreeOf<Memory>) -> Result<(), FsError> {
    tree.remove_file(ROOT, OsStr::new("f"))
}

#[test]
fn the_upload_of_a_file_whose_name_is_removed_is_given_up() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    scribble(&tree, handle);
    assert_eq!(meanwhile(&memory, || tree.sync(handle), || remove(&tree)), [Ok(()), Ok(())]);
    assert_eq!((memory.objects().len(), memory.0.sent_of_files.load(Relaxed)), (0, 0));
    write(&tree, handle, 1, b"z").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!((memory.objects().len(), files_below(folder.path())), (0, vec!["lock".to_owned()]));
}

/// It appears, and is removed then.
#[test]
fn an_upload_whose_object_may_have_been_made_is_waited_for() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    scribble(&tree, handle);
    memory.0.stops_too_late.store(true, Relaxed);
    assert_eq!(meanwhile(&memory, || tree.sync(handle), || remove(&tree)), [Ok(()), Ok(())]);
    assert_eq!((memory.objects().len(), memory.0.sent_of_files.load(Relaxed)), (0, 9));
    closed(&tree, handle).unwrap();
    assert_eq!((memory.objects().len(), files_below(folder.path())), (0, vec!["lock".to_owned()]));
}

#[test]
fn an_upload_goes_on_when_the_name_could_not_be_removed() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    scribble(&tree, handle);
    memory.0.refuses_deletions.store(true, Relaxed);
    assert_eq!(meanwhile(&memory, || tree.sync(handle), || remove(&tree)), [Ok(()), Err(libc::EACCES)]);
    let object = memory.object("f").expect("it is published").bytes;
    assert_eq!(object, b"head\0tail");
    assert_eq!(read(&tree, handle, 0, object.len()).unwrap(), object);
    closed(&tree, handle).unwrap();
    assert_eq!(tree.pending(), []);
}

#[test]
fn a_close_whose_upload_is_given_up_leaves_nothing() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    scribble(&tree, handle);
    assert_eq!(meanwhile(&memory, || tree.release(handle), || remove(&tree)), [Ok(()), Ok(())]);
    assert_eq!((tree.pending(), memory.objects().len()), (Vec::new(), 0));
    assert_eq!(files_below(folder.path()), ["lock"]);
}

/// What fails afterwards is told, and told once.
#[test]
fn a_close_whose_upload_was_given_up_in_vain_is_made_up_for() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    scribble(&tree, handle);
    memory.0.refuses_deletions.store(true, Relaxed);
    let ends = meanwhile(&memory, || tree.release(handle), || remove(&tree));
    assert_eq!(ends, [Ok(()), Err(libc::EACCES)]);
    assert_eq!(tree.pending(), [("f".to_owned(), 9)]);
    let handle = open(&tree, "f", to_replace()).unwrap().handle;
    write(&tree, handle, 0, b"new").unwrap();
    memory.refuse(ErrorKind::Denied);
    assert_eq!(closed(&tree, handle), Err(libc::EACCES));
    memory.refuse(None);
    assert_eq!((tree.pending(), memory.objects().len()), (Vec::new(), 0));
}

#[test]
fn what_was_given_up_in_vain_is_uploaded_later() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    scribble(&tree, handle);
    memory.0.refuses_deletions.store(true, Relaxed);
    meanwhile(&memory, || tree.release(handle), || remove(&tree))[1].unwrap_err();
    assert_eq!(files_below(folder.path()).len(), 3, "a record, the bytes, and the lock");
    assert_eq!((failed(&tree), tree.pending()), (0, Vec::new()));
    assert_eq!(memory.object("f").unwrap().bytes, b"head\0tail");
}

#[test]
fn the_upload_of_a_file_that_another_replaces_is_given_up() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    closed(&tree, {
        let new = create(&tree, "new");
        write(&tree, new, 0, b"new").unwrap();
        new
    })
    .unwrap();
    let handle = create(&tree, "f");
    scribble(&tree, handle);
    let replace = || tree.rename((ROOT, OsStr::new("new")), (ROOT, OsStr::new("f")), false);
    assert_eq!(meanwhile(&memory, || tree.release(handle), replace), [Ok(()), Ok(())]);
    assert_eq!((tree.pending(), memory.0.sent_of_files.load(Relaxed)), (Vec::new(), 0));
    assert_eq!(memory.objects().into_iter().collect::<Vec<_>>(), [("f".to_owned(), b"new".to_vec())]);
    assert_eq!(files_below(folder.path()), ["lock"]);
}

/// All of it is sent each time, and brought once.
#[test]
fn a_log_that_is_synchronized_again_and_again_is_brought_once() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "log");
    let mut expected = pattern(2 * MIB);
    write(&tree, handle, 0, &expected[..MIB]).unwrap();
    write(&tree, handle, MIB as u64, &expected[MIB..]).unwrap();
    tree.sync(handle).unwrap();
    for line in 0..10_u8 {
        write(&tree, handle, expected.len() as u64, &[line; 100]).unwrap();
        expected.extend([line; 100]);
        tree.sync(handle).unwrap();
        assert!(memory.object("log").unwrap().bytes == expected);
    }
    assert!(memory.0.reads.load(Relaxed) <= 2, "{}", memory.0.reads.load(Relaxed));
    closed(&tree, handle).unwrap();
}

#[test]
fn a_sequential_writer_stages_nothing() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    let tree = memory.tree(with(folder.path()));
    let handle = create(&tree, "f");
    for at in 0..3 {
        write(&tree, handle, (at * MIB) as u64, &pattern(MIB)).unwrap();
        assert_eq!(files_below(folder.path()), ["lock"]);
    }
    closed(&tree, handle).unwrap();
    let handle = open(&tree, "f", to_write()).unwrap().handle;
    write(&tree, handle, 3 << 20, b"more").unwrap();
    assert_eq!(files_below(folder.path()), ["lock"]);
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("f").unwrap().bytes.len(), 3 * MIB + 4);
}

#[test]
fn handles_that_only_read_see_what_is_written() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("f", pattern(100));
    let tree = memory.tree(with(folder.path()));
    let before = open(&tree, "f", OpenMode::read(false)).unwrap().handle;
    let writer = open(&tree, "f", to_write()).unwrap().handle;
    write(&tree, writer, 5, b"new").unwrap();
    let after = open(&tree, "f", OpenMode::read(false)).unwrap().handle;
    for handle in [before, after] {
        assert_eq!(read(&tree, handle, 4, 5).unwrap(), [&pattern(5)[4..], b"new", &pattern(9)[8..]].concat());
    }
    closed(&tree, writer).unwrap();
    for handle in [before, after] {
        assert_eq!(read(&tree, handle, 5, 3).unwrap(), b"new");
        tree.release(handle).unwrap();
    }
}

/// Beside a vector of bytes, whatever is done to a file, and whatever fails in between.
#[test]
fn does_what_a_vector_does() {
    for seed in 0..12_u64 {
        let mut state = seed * 2 + 1;
        let mut chance = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
        let mut file = pattern(chance(24 << 20) as usize);
        memory.put("f", file.clone());
        let mut tree = memory.tree(with(folder.path()));
        let mut handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
        for step in 0..60 {
            let at = chance(file.len() as u64 + (1 << 20)) as usize;
            let most = if chance(4) == 0 { 1 << 20 } else { 9000 };
            let count = 1 + chance(most) as usize;
            match chance(10) {
                0..4 => {
                    let bytes: Vec<u8> = (0..count).map(|byte| (byte + step) as u8).collect();
                    write(&tree, handle, at as u64, &bytes).unwrap();
                    if file.len() < at + count {
                        file.resize(at + count, 0);
                    }
                    file[at..at + count].copy_from_slice(&bytes);
                }
                4..7 => {
                    let end = (at + count).min(file.len());
                    let expected = file.get(at..end).unwrap_or_default();
                    assert!(read(&tree, handle, at as u64, count).unwrap() == expected, "{seed} {step}");
                }
                7 => {
                    // Cut to nothing it would be a new file.
                    let size = at.max(1);
                    assert_eq!(cut(&tree, "f", size as u64), Ok(size as u64));
                    file.resize(size, 0);
                }
                8 => {
                    tree.sync(handle).unwrap();
                    assert!(memory.object("f").unwrap().bytes == file, "{seed} {step}");
                }
                _ => {
                    let is_away = chance(2) == 0;
                    memory.refuse(is_away.then_some(ErrorKind::Network));
                    let ended = closed(&tree, handle);
                    memory.refuse(None);
                    if is_away && chance(2) == 0 {
                        let was_pending = ended.is_err();
                        drop(tree);
                        tree = memory.tree(with(folder.path()));
                        assert_eq!(tree.pending().len(), usize::from(was_pending), "{seed} {step}");
                    }
                    handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
                }
            }
        }
        closed(&tree, handle).unwrap();
        assert!(memory.object("f").unwrap().bytes == file, "{seed}");
    }
}

/// What was not asked to be published when the power went is as it was before.
#[test]
fn a_record_of_another_boot_is_believed_only_if_it_was_synchronized() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("f", pattern(100));
    {
        let tree = memory.tree(with(folder.path()));
        let handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
        write(&tree, handle, 5, b"new").unwrap();
        memory.refuse(ErrorKind::Network);
        tree.sync(handle).unwrap_err();
        memory.refuse(None);
        assert_eq!(
            tree.open(1, to_write(), nobody()).map(drop).map_err(|error| error.errno),
            Err(libc::EISDIR)
        );
    }
    let session = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    // The next mount fails as well: what it notes before each attempt holds as long.
    {
        let tree = memory.tree(with(folder.path()));
        memory.refuse(ErrorKind::Network);
        assert_eq!((tree.pending().len(), failed(&tree)), (1, 1));
        memory.refuse(None);
    }
    let record = std::fs::read_to_string(session.join("0.record")).unwrap();
    assert!(!record.contains("boot "), "it was synchronized: {record}");
    std::fs::write(session.join("0.record"), record.replacen("\n", "\nboot of-another-time\n", 1)).unwrap();
    let tree = memory.tree(with(folder.path()));
    assert_eq!(tree.pending(), []);
    assert_eq!(memory.object("f").unwrap().bytes, pattern(100));
    assert_eq!(files_below(folder.path()), ["lock"], "nothing is left for ever");
}

/// What it is to be described by is on the disk beside it, for whoever uploads it.
#[test]
fn what_is_left_keeps_its_attributes() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("old", pattern(1000));
    let described = rows(&[("mode", "33152"), ("uid", "7"), ("gid", "8"), ("mtime", "1000000000")]);
    memory.describe_as("bucket", "old", &ObjectOptions { metadata: described, ..ObjectOptions::default() });
    {
        let tree = memory.tree(Config { attributes: AttributeKeeping::Metadata, ..with(folder.path()) });
        let mode_of = OpenMode { permissions: 0o640, ..to_read_and_write() };
        let new = tree.create(ROOT, OsStr::new("new"), false, mode_of, user()).unwrap().1.handle;
        write(&tree, new, 5, b"tail").unwrap();
        let old = open(&tree, "old", to_read_and_write()).unwrap().handle;
        write(&tree, old, 5, b"new").unwrap();
        memory.refuse(ErrorKind::Network);
        tree.sync(new).unwrap_err();
        tree.sync(old).unwrap_err();
        // Later than it is noted.
        change(&tree, "new", mode(0o600)).unwrap();
        change(&tree, "new", modified(1_234_567_890, 0)).unwrap();
    }
    memory.refuse(None);
    let tree = memory.tree(with(folder.path()));
    assert_eq!(failed(&tree), 0);
    let new = rows(&[("mode", "33152"), ("uid", "1000"), ("gid", "100"), ("mtime", "1234567890")]);
    assert_eq!(metadata_of(&memory, "new"), new);
    // Its content is newer than the time that was set.
    assert_eq!(metadata_of(&memory, "old"), rows(&[("mode", "33152"), ("uid", "7"), ("gid", "8")]));
    // A mount that keeps none has noted none: they are asked for.
    {
        let tree = memory.tree(with(folder.path()));
        let old = open(&tree, "old", to_read_and_write()).unwrap().handle;
        write(&tree, old, 50, b"newer").unwrap();
        memory.refuse(ErrorKind::Network);
        tree.sync(old).unwrap_err();
    }
    memory.refuse(None);
    let tree = memory.tree(Config { attributes: AttributeKeeping::Metadata, ..with(folder.path()) });
    assert_eq!(failed(&tree), 0);
    assert_eq!(memory.object("old").unwrap().bytes[50..55], *b"newer");
    assert_eq!(metadata_of(&memory, "old"), rows(&[("mode", "33152"), ("uid", "7"), ("gid", "8")]));
}

/// But for what says which upload it was.
fn metadata_of(memory: &Memory, key: &str) -> Vec<(String, String)> {
    let mut all = metadata(memory, key);
    all.retain(|(name, _)| name != "flatout-staged");
    all
}

#[test]
fn what_no_service_takes_is_too_large() {
    let (memory, folder) = (Memory::new(), TempDir::new().unwrap());
    memory.put("f", "content");
    let tree = memory.tree(with(folder.path()));
    let handle = open(&tree, "f", to_read_and_write()).unwrap().handle;
    let most = 10_000 * (5 << 30);
    assert_eq!(write(&tree, handle, most, b"x"), Err(libc::EFBIG));
    assert_eq!(cut(&tree, "f", most + 1), Err(libc::EFBIG));
    write(&tree, handle, 0, b"C").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!(memory.object("f").unwrap().bytes, b"Content");
}
