//! Open files: which version an open gets, and what becomes of it when another client replaces the object.

use flatout_tree::OpenMode;
use std::ffi::OsStr;

use crate::memory::Memory;
use crate::nobody;
use crate::*;

fn close_to_open() -> Config {
    Config { close_to_open: true, ..minute() }
}

#[test]
fn within_the_lifetime_an_open_believes_what_is_known() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(minute());
    let a = ino(&tree, "a");
    let asked = memory.asked();
    let handle = tree.open_known(a, OpenMode::read(false)).expect("known").unwrap().handle;
    assert_eq!(memory.asked(), asked);
    memory.put("a", "another");
    assert_eq!(bytes(&tree, handle, 0, 9), Err(libc::ESTALE), "its version is gone");
    // Whoever looks it up after that gets the version of now, by an inode of its own; the kernel does, where
    // an open is stale.
    assert!(tree.lookup_known(ROOT, OsStr::new("a")).is_none());
    assert_eq!(tree.open(a, OpenMode::read(false), nobody()).unwrap_err().errno, libc::ESTALE);
    assert_eq!(content(&tree, "a").unwrap(), b"another");
    assert_eq!(bytes(&tree, handle, 0, 9), Err(libc::ESTALE), "never a mixture");
    assert_eq!(tree.stats().replaced, 1);
}

#[test]
fn behind_the_lifetime_an_open_asks() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(minute());
    let a = ino(&tree, "a");
    memory.put("a", "another");
    memory.turn_clock(60_000);
    assert!(tree.open_known(a, OpenMode::read(false)).is_none());
    let opened = tree.open(a, OpenMode::read(false), nobody()).unwrap();
    assert!(opened.has_changed, "the size that was told is another version's");
    assert_eq!(bytes(&tree, opened.handle, 0, 99).unwrap(), b"another");
    // Whether a folder hides it now is another question.
    assert!(tree.attributes_known(a).is_none());
    assert_eq!(tree.attributes(a).unwrap().attributes.size, 7);
    assert!(!tree.open(a, OpenMode::read(false), nobody()).unwrap().has_changed);
}

#[test]
fn close_to_open_asks_at_each_open() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(close_to_open());
    let mut a = ino(&tree, "a");
    for number in 0..5 {
        memory.put("a", format!("number {number}"));
        assert!(tree.open_known(a, OpenMode::read(false)).is_none());
        let before = memory.asked();
        if number > 0 {
            assert_eq!(
                tree.open(a, OpenMode::read(false), nobody()).unwrap_err().errno,
                libc::ESTALE,
                "another was opened by it"
            );
            a = ino(&tree, "a");
        }
        let opened = tree.open(a, OpenMode::read(false), nobody()).unwrap();
        assert_eq!(
            memory.asked() - before,
            1 + number.min(1),
            "each open asks, a lookup after that does not"
        );
        assert_eq!(bytes(&tree, opened.handle, 0, 99).unwrap(), format!("number {number}").as_bytes());
    }
}

/// What broke once: the listing tells of 100 bytes, another client puts 10, and the file is looked up, opened
/// and read. The lookup may believe the listing for as long as attributes live. So may the open, unless
/// close-to-open is on; where it does, the first read says that the version is gone, and everything after it
/// asks.
#[test]
fn a_file_that_shrank_between_listing_and_open() {
    for on in [true, false] {
        let memory = Memory::new();
        memory.put("a", [1; 100]);
        let tree = memory.tree(Config { close_to_open: on, ..minute() });
        let handle = tree.open_folder(ROOT).unwrap();
        read(&tree, handle, 0, true);
        memory.turn_clock(1_000);
        memory.put("a", [2; 10]);
        assert_eq!(find(&tree, "a").unwrap().attributes.size, 100);
        let want = if on { Ok(vec![2; 10]) } else { Err(libc::ESTALE) };
        assert_eq!(content(&tree, "a"), want);
        assert_eq!(content(&tree, "a"), Ok(vec![2; 10]));
        assert_eq!(find(&tree, "a").unwrap().attributes.size, 10);
    }
}

#[test]
fn once_another_version_is_told_old_handles_are_stale() {
    let memory = Memory::with(&["a", "b"]);
    let tree = memory.tree(close_to_open());
    let (a, b) = (ino(&tree, "a"), ino(&tree, "b"));
    let (of_a, of_b) = (
        tree.open(a, OpenMode::read(false), nobody()).unwrap().handle,
        tree.open(b, OpenMode::read(false), nobody()).unwrap().handle,
    );
    memory.turn_clock(60_000);
    memory.put("a", "another");
    assert_eq!(tree.attributes(a).unwrap_err().errno, libc::ESTALE, "another version has another inode");
    let reads = memory.0.reads.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(bytes(&tree, of_a, 0, 9), Err(libc::ESTALE));
    assert_eq!(memory.0.reads.load(std::sync::atomic::Ordering::Relaxed), reads, "nothing was asked for");
    assert_eq!(bytes(&tree, of_b, 0, 7).unwrap(), b"content");
}

#[test]
fn a_version_that_was_opened_keeps_its_inode_and_its_page_cache() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(close_to_open());
    let old = find(&tree, "a").unwrap();
    let cached = |node: u64| {
        tree.open(node, OpenMode::read(false), nobody()).map(|opened| (opened.direct, opened.keep_cache))
    };
    let old_handle = tree.open(old.id, OpenMode::read(false), nobody()).unwrap().handle;
    assert_eq!(cached(old.id).unwrap(), (false, true));
    memory.put("a", "another");
    assert_eq!(cached(old.id).unwrap_err().errno, libc::ESTALE);
    let new = find(&tree, "a").unwrap();
    assert_ne!((new.id, new.generation), (old.id, old.generation));
    assert_eq!(new.attributes.ino, old.attributes.ino, "to stat(2) it is the same file");
    assert_eq!(cached(new.id).unwrap(), (false, true));
    let new_handle = tree.open(new.id, OpenMode::read(false), nobody()).unwrap().handle;
    for _ in 0..2 {
        assert_eq!(bytes(&tree, new_handle, 0, 9).unwrap(), b"another");
        assert_eq!(bytes(&tree, old_handle, 0, 9), Err(libc::ESTALE));
        assert_eq!(tree.attributes(old.id).unwrap_err().errno, libc::ESTALE);
    }
}

/// What fresh seeds found: the node of the version before last was stale, and so was that which the lookup
/// told then.
#[test]
fn an_open_is_stale_once_however_often_the_object_was_replaced() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(close_to_open());
    let first = ino(&tree, "a");
    tree.open(first, OpenMode::read(false), nobody()).unwrap();
    memory.put("a", "second");
    assert_eq!(content(&tree, "a").unwrap(), b"second");
    memory.put("a", "third");
    assert_eq!(tree.open(first, OpenMode::read(false), nobody()).unwrap_err().errno, libc::ESTALE);
    let opened = tree.open(ino(&tree, "a"), OpenMode::read(false), nobody()).unwrap();
    assert_eq!(bytes(&tree, opened.handle, 0, 9).unwrap(), b"third");
}

/// The kernel has no page of it: no inode is lost, and no open stale, for what nobody has read.
#[test]
fn what_nobody_has_opened_becomes_the_next_version_by_the_same_inode() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(close_to_open());
    let known = find(&tree, "a").unwrap();
    memory.put("a", "another");
    let opened = tree.open(known.id, OpenMode::read(false), nobody()).unwrap();
    assert!(opened.has_changed && opened.keep_cache);
    assert_eq!(bytes(&tree, opened.handle, 0, 9).unwrap(), b"another");
    let again = find(&tree, "a").unwrap();
    assert_eq!((again.id, again.generation), (known.id, known.generation));
}

#[test]
fn versions_that_nothing_tells_apart_pass_the_page_cache() {
    let memory = Memory::with(&["a"]);
    memory.0.has_no_etags.store(true, std::sync::atomic::Ordering::Relaxed);
    memory.0.has_no_times.store(true, std::sync::atomic::Ordering::Relaxed);
    let tree = memory.tree(close_to_open());
    let opened = tree.open(ino(&tree, "a"), OpenMode::read(false), nobody()).unwrap();
    assert_eq!((opened.direct, opened.keep_cache), (true, false));
}

#[test]
fn a_listing_without_etags_does_not_hide_the_next_version() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(close_to_open());
    let a = ino(&tree, "a");
    let old = tree.open(a, OpenMode::read(false), nobody()).unwrap().handle;
    memory.0.has_no_etags.store(true, std::sync::atomic::Ordering::Relaxed);
    memory.turn_clock(60_000);
    assert_eq!(ino(&tree, "a"), a, "it has no other size or time");
    memory.0.has_no_etags.store(false, std::sync::atomic::Ordering::Relaxed);
    let modified_s = memory.object("a").unwrap().modified_s;
    memory.put_at("a", "CONTENT OF A", modified_s);
    assert_eq!(
        tree.open(a, OpenMode::read(false), nobody()).unwrap_err().errno,
        libc::ESTALE,
        "another ETag is another version"
    );
    assert_eq!(bytes(&tree, old, 0, 99), Err(libc::ESTALE));
}

#[test]
fn without_etags_the_time_tells_versions_apart() {
    let memory = Memory::with(&["a"]);
    memory.0.has_no_etags.store(true, std::sync::atomic::Ordering::Relaxed);
    for config in [minute(), close_to_open()] {
        memory.put("a", "one");
        let tree = memory.tree(config);
        let a = ino(&tree, "a");
        let handle = tree.open(a, OpenMode::read(false), nobody()).unwrap().handle;
        assert_eq!(bytes(&tree, handle, 0, 9).unwrap(), b"one");
        assert!(tree.open(a, OpenMode::read(false), nobody()).unwrap().keep_cache);
        memory.put("a", "two");
        assert_eq!(bytes(&tree, handle, 0, 9), Err(libc::ESTALE), "as long as it was, and another");
        let opened = tree.open(ino(&tree, "a"), OpenMode::read(false), nobody()).unwrap();
        assert_ne!(ino(&tree, "a"), a);
        assert_eq!(bytes(&tree, opened.handle, 0, 9).unwrap(), b"two");
    }
}

#[test]
fn large_files_and_those_asked_for_are_direct() {
    let memory = Memory::new();
    memory.put("large", [0; 100]);
    memory.put("small", [0; 99]);
    for (least, large) in [(Some(100), true), (None, false)] {
        let tree = memory.tree(Config { direct_bytes: least, ..minute() });
        let direct =
            |name: &str, asked| tree.open(ino(&tree, name), OpenMode::read(asked), nobody()).unwrap().direct;
        assert_eq!([direct("large", false), direct("small", false)], [large, false]);
        assert_eq!([direct("large", true), direct("small", true)], [true, true]);
    }
}

#[test]
fn what_is_gone_is_stale_where_it_is_open_and_absent_elsewhere() {
    let memory = Memory::with(&["a", "b"]);
    let tree = memory.tree(minute());
    let (a, b) = (ino(&tree, "a"), ino(&tree, "b"));
    let handle = tree.open(a, OpenMode::read(false), nobody()).unwrap().handle;
    memory.delete("a");
    memory.delete("b");
    assert_eq!(bytes(&tree, handle, 0, 9), Err(libc::ESTALE));
    assert_eq!(tree.attributes(a).unwrap_err().errno, libc::ESTALE);
    assert_eq!(find(&tree, "a").unwrap_err(), libc::ENOENT);
    memory.turn_clock(60_000);
    assert_eq!(tree.open(b, OpenMode::read(false), nobody()).unwrap_err().errno, libc::ENOENT);
    tree.release(handle).unwrap();
    assert_eq!(bytes(&tree, handle, 0, 9), Err(libc::EBADF));
    assert_eq!(tree.stats().open_files_now, 0);
}

#[test]
fn a_folder_that_came_in_place_of_a_file_is_another_inode() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(never());
    let file = ino(&tree, "a");
    memory.delete("a");
    memory.put("a/b", "");
    let folder = ino(&tree, "a");
    assert_ne!(file, folder);
    assert_eq!(tree.attributes(file).unwrap_err().errno, libc::ENOENT);
    assert_eq!(tree.attributes(folder).unwrap().attributes.kind, FileKind::Folder);
}

#[test]
fn an_object_that_a_folder_hides_is_no_proof_of_its_name() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(Config { close_to_open: true, ..minute() });
    let file = ino(&tree, "a");
    memory.turn_clock(59_000);
    memory.put("a/b", "");
    assert!(tree.open(file, OpenMode::read(false), nobody()).is_ok(), "the object is there");
    assert_eq!(find(&tree, "a").unwrap().lifetime, Duration::from_secs(1));
    memory.turn_clock(1_000);
    assert_eq!(find(&tree, "a").unwrap().attributes.kind, FileKind::Folder);
    memory.delete("a");
    assert_eq!(tree.open(file, OpenMode::read(false), nobody()).unwrap_err().errno, libc::ENOENT);
    assert_eq!(find(&tree, "a").unwrap().attributes.kind, FileKind::Folder, "only the object is gone");
}

/// What fresh seeds found: it went and came back, and the listing that had said so was believed by the lookup
/// after the stale open.
#[test]
fn what_a_head_has_found_is_not_said_to_be_missing() {
    let memory = Memory::with(&["a", "b"]);
    let tree = memory.tree(close_to_open());
    let a = ino(&tree, "a");
    tree.open(a, OpenMode::read(false), nobody()).unwrap();
    memory.turn_clock(60_000);
    memory.delete("a");
    assert_eq!(names(&tree, ROOT), ["b"]);
    memory.turn_clock(1);
    memory.put("a", "another");
    assert_eq!(tree.open(a, OpenMode::read(false), nobody()).unwrap_err().errno, libc::ESTALE);
    assert_eq!(content(&tree, "a").unwrap(), b"another");
}

/// What fresh seeds found: a read had found the version gone, and the HEAD of the next open made a file of
/// what a folder hides.
#[test]
fn an_open_after_a_stale_read_does_not_bring_back_what_a_folder_hides() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(close_to_open());
    let file = ino(&tree, "a");
    let handle = tree.open(file, OpenMode::read(false), nobody()).unwrap().handle;
    memory.put("a/b", "");
    memory.put("a", "another");
    memory.turn_clock(1);
    assert_eq!(bytes(&tree, handle, 0, 9), Err(libc::ESTALE));
    assert_eq!(tree.open(file, OpenMode::read(false), nobody()).unwrap_err().errno, libc::ESTALE);
    assert_eq!(find(&tree, "a").unwrap().attributes.kind, FileKind::Folder);
}

#[test]
fn reads_are_clipped_to_the_file() {
    let memory = Memory::with(&["a"]);
    memory.put("empty", "");
    let tree = memory.tree(minute());
    let handle = tree.open(ino(&tree, "a"), OpenMode::read(false), nobody()).unwrap().handle;
    let empty = tree.open(ino(&tree, "empty"), OpenMode::read(false), nobody()).unwrap().handle;
    assert_eq!(bytes(&tree, handle, 8, 99).unwrap(), b"of a");
    assert_eq!(bytes(&tree, handle, 99, 9).unwrap(), b"");
    assert_eq!(bytes(&tree, empty, 0, 9).unwrap(), b"");
}

#[test]
fn the_next_of_a_series_is_named_from_the_listing() {
    let keys = ["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors", "other.bin"];
    let memory = Memory::with(&keys);
    let tree = memory.tree(minute());
    names(&tree, ROOT);
    let before = memory.asked();
    for key in keys {
        tree.open(ino(&tree, key), OpenMode::read(false), nobody()).unwrap();
    }
    let next = memory.0.next.lock().unwrap();
    assert_eq!(next.len(), 1);
    let object = memory.object(keys[1]).unwrap();
    let version = next[0].1.as_ref().expect("the listing knows it");
    assert_eq!((version.location.key(), version.etag.as_deref()), (keys[1], Some(&*object.etag)));
    assert_eq!(memory.asked(), before);
}
