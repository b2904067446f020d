//! Folders that are listed before somebody reads them.

use std::ffi::OsStr;

use crate::memory::Memory;
use crate::*;

/// `outer` folders of `inner` folders of two files.
fn folders(outer: usize, inner: usize) -> Memory {
    let memory = Memory::new();
    for number in 0..outer * inner {
        for file in ["x", "y"] {
            memory.put(&format!("{:03}/{:03}/{file}", number / inner, number % inner), "");
        }
    }
    memory
}

/// Reads a folder and all below it, as `ls -lR` does; how many files there were.
fn walk(tree: &TreeOf<Memory>, folder: u64) -> usize {
    let handle = tree.open_folder(folder).unwrap();
    let (mut below, mut files) = (Vec::new(), 0);
    tree.read_folder(handle, 2, true, &mut |entry| {
        match entry.node.attributes.kind {
            FileKind::Folder => below.push(entry.node.id),
            FileKind::File => files += 1,
        }
        true
    })
    .unwrap();
    tree.release_folder(handle);
    files + below.into_iter().map(|folder| walk(tree, folder)).sum::<usize>()
}

/// Waits until so many requests were sent, and a little for one too many. Guards against hanging, no
/// assertions about time.
#[track_caller]
fn reaches(memory: &Memory, requests: u64) {
    for _ in 0..6_000 {
        if memory.asked() >= requests {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(memory.asked(), requests);
}

#[test]
fn a_walk_asks_once_for_each_folder_and_again_for_nothing() {
    let memory = folders(20, 20);
    let tree = memory.tree(minute());
    assert_eq!(walk(&tree, ROOT), 800);
    reaches(&memory, 1 + 20 + 400);
    let stats = tree.stats();
    assert!(stats.listed_ahead > 0, "{stats:?}");
    assert_eq!(walk(&tree, ROOT), 800);
    assert_eq!(memory.asked(), 421);
    // Attributes of all of it.
    memory.turn_clock(60_000);
    assert_eq!(walk(&tree, ROOT), 800);
    reaches(&memory, 2 * 421);
}

#[test]
fn siblings_are_listed_many_at_once() {
    let memory = folders(1, 400);
    let tree = memory.tree(minute());
    let parent = ino(&tree, "000");
    let all = names(&tree, parent);
    assert_eq!(all.len(), 400);
    let open =
        |name: &str| tree.release_folder(tree.open_folder(ino(&tree, &format!("000/{name}"))).unwrap());
    let before = memory.asked();
    open(&all[0]);
    reaches(&memory, before); // One is no walk.
    open(&all[1]);
    reaches(&memory, before + 8); // The first pages of those behind it.
    // Who goes on is followed, sixteen at once.
    memory.shut();
    for name in &all[2..10] {
        open(name);
    }
    memory.wait_for(16);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(memory.open(), 16);
    // Each that was read lets four more be.
    reaches(&memory, before + 8 + 8 + 8 * 4);
    for name in &all[2..50] {
        assert_eq!(names(&tree, ino(&tree, &format!("000/{name}"))).len(), 2);
    }
}

#[test]
fn who_does_not_walk_is_not_followed() {
    let memory = folders(1, 400);
    let tree = memory.tree(minute());
    names(&tree, ino(&tree, "000"));
    let before = memory.asked();
    assert_eq!(names(&tree, ino(&tree, "000/007")).len(), 2);
    for _ in 0..5 {
        assert_eq!(names(&tree, ino(&tree, "000/007")).len(), 2);
    }
    reaches(&memory, before + 1);
    // What is fetched for nobody is little: eight folders.
    names(&tree, ino(&tree, "000/300"));
    reaches(&memory, before + 2 + 8);
}

#[test]
fn without_lifetimes_nothing_is_listed_ahead() {
    let memory = folders(2, 5);
    let tree = memory.tree(never());
    assert_eq!(walk(&tree, ROOT), 20);
    assert_eq!(tree.stats().listed_ahead, 0);
}

/// What the model once took for a contradiction, in one of twenty runs: a page that was asked for ahead lands
/// between the question what is known of a name and the lookup of it, which then asks for nothing.
#[test]
fn a_page_that_lands_between_two_questions_answers_the_second() {
    let memory = Memory::with(&["a", "b", "c"]);
    memory.0.page.store(1, std::sync::atomic::Ordering::Relaxed);
    let tree = memory.tree(minute());
    memory.shut();
    let handle = tree.open_folder(ROOT).unwrap();
    tree.read_folder(handle, 2, false, &mut |_| false).unwrap();
    memory.wait_for(1);
    assert!(tree.is_listing_ahead());
    assert!(tree.lookup_known(ROOT, OsStr::new("b")).is_none());
    memory.open();
    while tree.is_listing_ahead() {
        std::thread::yield_now();
    }
    let asked = memory.asked();
    assert!(tree.lookup(ROOT, OsStr::new("b")).is_ok());
    assert_eq!(memory.asked(), asked);
}

#[test]
fn a_folder_that_cannot_be_listed_ahead_tells_its_reader() {
    let memory = folders(1, 50);
    let tree = memory.tree(minute());
    let all = names(&tree, ino(&tree, "000"));
    let inos: Vec<u64> = all.iter().map(|name| ino(&tree, &format!("000/{name}"))).collect();
    names(&tree, inos[0]);
    memory.refuse(flatout_engine::ErrorKind::Network);
    let before = memory.asked();
    let handle = tree.open_folder(inos[1]).unwrap();
    assert!(tree.read_folder(handle, 0, false, &mut |_| true).is_err());
    reaches(&memory, before + 1 + 8);
    memory.refuse(None);
    for ino in &inos[1..] {
        assert_eq!(names(&tree, *ino).len(), 2, "what failed is asked for again");
    }
}

#[test]
fn a_panic_ahead_leaves_no_folder_behind() {
    let memory = folders(1, 50);
    let tree = memory.tree(minute());
    let outer = ino(&tree, "000");
    let all = names(&tree, outer);
    let inos: Vec<u64> = all.iter().map(|name| ino(&tree, &format!("000/{name}"))).collect();
    memory.0.panics_ahead.store(true, std::sync::atomic::Ordering::Relaxed);
    let before = memory.asked();
    for ino in &inos[..2] {
        assert_eq!(names(&tree, *ino).len(), 2);
    }
    reaches(&memory, before + 2 + 8);
    inos.iter().chain([&outer]).for_each(|ino| tree.forget(*ino, 100));
    // Once all have panicked. Subfolders first, then the one that they lie in.
    for _ in 0..1_000 {
        memory.turn_clock(60_000);
        tree.forget(ROOT, 0);
        if tree.stats().inodes_now == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(tree.stats().failures, 8);
    assert_eq!(tree.stats().inodes_now, 1, "{:?}", tree.stats());
}

#[test]
fn a_tree_that_is_dropped_leaves_no_threads() {
    let memory = folders(1, 100);
    let tree = memory.tree(minute());
    walk(&tree, ROOT);
    drop(tree);
    // Their only hold on the store goes with them.
    for _ in 0..3_000 {
        if std::sync::Arc::strong_count(&memory.0) == 1 {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{} still hold the store", std::sync::Arc::strong_count(&memory.0) - 1);
}
