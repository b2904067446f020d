//! Open files: which version an open gets, and what becomes of it when another client replaces the object.

use std::ffi::OsStr;

use crate::memory::Memory;
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
    let handle = tree.open_known(a, false).expect("known").unwrap().handle;
    assert_eq!(memory.asked(), asked);
    memory.put("a", "another");
    assert_eq!(bytes(&tree, handle, 0, 9), Err(libc::ESTALE), "its version is gone");
    // Whoever looks it up or opens it after that gets the version of now.
    assert!(tree.lookup_known(ROOT, OsStr::new("a")).is_none() && tree.open_known(a, false).is_none());
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
    assert!(tree.open_known(a, false).is_none());
    let opened = tree.open(a, false).unwrap();
    assert!(opened.is_news, "the size that was told is another version's");
    assert_eq!(bytes(&tree, opened.handle, 0, 99).unwrap(), b"another");
    // Whether a folder hides it now is another question.
    assert!(tree.attributes_known(a).is_none());
    assert_eq!(tree.attributes(a).unwrap().attributes.size, 7);
    assert!(!tree.open(a, false).unwrap().is_news);
}

#[test]
fn close_to_open_asks_at_each_open() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(close_to_open());
    let a = ino(&tree, "a");
    for number in 0..5 {
        memory.put("a", format!("number {number}"));
        assert!(tree.open_known(a, false).is_none());
        let before = memory.asked();
        let opened = tree.open(a, false).unwrap();
        assert_eq!(memory.asked() - before, 1);
        assert_eq!(bytes(&tree, opened.handle, 0, 99).unwrap(), format!("number {number}").as_bytes());
    }
}

/// What broke once: the listing tells of 100 bytes, another client puts 10, and the file is looked up, opened and read. The
/// lookup may believe the listing for as long as attributes live. So may the open, unless close-to-open is on; where it does,
/// the first read says that the version is gone, and everything after it asks.
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
    let (of_a, of_b) = (tree.open(a, false).unwrap().handle, tree.open(b, false).unwrap().handle);
    memory.turn_clock(60_000);
    memory.put("a", "another");
    // The kernel has been told another size.
    assert_eq!(tree.attributes(a).unwrap().attributes.size, 7);
    let reads = memory.0.reads.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(bytes(&tree, of_a, 0, 9), Err(libc::ESTALE));
    assert_eq!(memory.0.reads.load(std::sync::atomic::Ordering::Relaxed), reads, "nothing was asked for");
    assert_eq!(bytes(&tree, of_b, 0, 7).unwrap(), b"content");
}

#[test]
fn the_page_cache_is_kept_for_the_same_version_only() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(close_to_open());
    let a = ino(&tree, "a");
    let keeps = || {
        let opened = tree.open(a, false).unwrap();
        tree.release(opened.handle);
        opened.keep_cache
    };
    assert_eq!([keeps(), keeps(), keeps()], [false, true, true]);
    memory.put("a", "another");
    assert_eq!([keeps(), keeps()], [false, true]);
}

#[test]
fn beside_an_old_handle_the_page_cache_is_nobodys() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(close_to_open());
    let a = ino(&tree, "a");
    let old = tree.open(a, false).unwrap();
    assert!(!old.direct);
    memory.put("a", "another");
    for _ in 0..2 {
        let new = tree.open(a, false).unwrap();
        assert_eq!((new.direct, new.keep_cache), (true, false), "the old one would read what it left there");
        assert_eq!(bytes(&tree, new.handle, 0, 9).unwrap(), b"another");
        tree.release(new.handle);
    }
    assert_eq!(bytes(&tree, old.handle, 0, 9), Err(libc::ESTALE));
    tree.release(old.handle);
    let now = [tree.open(a, false).unwrap(), tree.open(a, false).unwrap()];
    assert_eq!(now.map(|opened| (opened.direct, opened.keep_cache)), [(false, false), (false, true)]);
}

#[test]
fn without_etags_the_time_tells_versions_apart() {
    let memory = Memory::with(&["a"]);
    memory.0.has_no_etags.store(true, std::sync::atomic::Ordering::Relaxed);
    for config in [minute(), close_to_open()] {
        memory.put("a", "one");
        let tree = memory.tree(config);
        let a = ino(&tree, "a");
        let handle = tree.open(a, false).unwrap().handle;
        assert_eq!(bytes(&tree, handle, 0, 9).unwrap(), b"one");
        assert!(tree.open(a, false).unwrap().keep_cache);
        memory.put("a", "two");
        assert_eq!(bytes(&tree, handle, 0, 9), Err(libc::ESTALE), "as long as it was, and another");
        let opened = tree.open(ino(&tree, "a"), false).unwrap();
        assert!(!opened.keep_cache);
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
        let direct = |name: &str, asked| tree.open(ino(&tree, name), asked).unwrap().direct;
        assert_eq!([direct("large", false), direct("small", false)], [large, false]);
        assert_eq!([direct("large", true), direct("small", true)], [true, true]);
    }
}

#[test]
fn what_is_gone_is_stale_where_it_is_open_and_absent_elsewhere() {
    let memory = Memory::with(&["a", "b"]);
    let tree = memory.tree(minute());
    let (a, b) = (ino(&tree, "a"), ino(&tree, "b"));
    let handle = tree.open(a, false).unwrap().handle;
    memory.delete("a");
    memory.delete("b");
    assert_eq!(bytes(&tree, handle, 0, 9), Err(libc::ESTALE));
    assert_eq!(tree.attributes(a).unwrap_err().errno, libc::ENOENT);
    memory.turn_clock(60_000);
    assert_eq!(tree.open(b, false).unwrap_err().errno, libc::ENOENT);
    tree.release(handle);
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
    assert!(tree.open(file, false).is_ok(), "the object is there");
    assert_eq!(find(&tree, "a").unwrap().lifetime, Duration::from_secs(1));
    memory.turn_clock(1_000);
    assert_eq!(find(&tree, "a").unwrap().attributes.kind, FileKind::Folder);
    memory.delete("a");
    assert_eq!(tree.open(file, false).unwrap_err().errno, libc::ENOENT);
    assert_eq!(find(&tree, "a").unwrap().attributes.kind, FileKind::Folder, "only the object is gone");
}

#[test]
fn reads_are_clipped_to_the_file() {
    let memory = Memory::with(&["a"]);
    memory.put("empty", "");
    let tree = memory.tree(minute());
    let handle = tree.open(ino(&tree, "a"), false).unwrap().handle;
    let empty = tree.open(ino(&tree, "empty"), false).unwrap().handle;
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
        tree.open(ino(&tree, key), false).unwrap();
    }
    let next = memory.0.next.lock().unwrap();
    assert_eq!(next.len(), 1);
    let object = memory.object(keys[1]).unwrap();
    let version = next[0].1.as_ref().expect("the listing knows it");
    assert_eq!((version.location.key(), version.etag.as_deref()), (keys[1], Some(&*object.etag)));
    assert_eq!(memory.asked(), before);
}
