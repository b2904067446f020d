//! Memory: what is held is told, and what nobody needs goes where it is too much.

use flatout_tree::OpenMode;
use std::ffi::OsStr;
use std::sync::atomic::Ordering;

use crate::memory::Memory;
use crate::nobody;
use crate::*;

fn wide(folders: usize, files: usize) -> Memory {
    let memory = Memory::new();
    for number in 0..folders * files {
        memory.put(&format!("{:03}/{:05}", number / files, number % files), "");
    }
    memory
}

fn read_all(tree: &TreeOf<Memory>, folders: usize, plus: bool) -> Vec<u64> {
    let mut inos = Vec::new();
    for number in 0..folders {
        let handle = tree.open_folder(ino(tree, &format!("{number:03}"))).unwrap();
        tree.read_folder(handle, 2, plus, &mut |entry| {
            inos.push(entry.node.id);
            true
        })
        .unwrap();
        tree.release_folder(handle);
    }
    inos
}

#[test]
fn a_looked_up_inode_is_small() {
    let memory = wide(4, 5000);
    let tree = memory.tree(minute());
    let before = tree.stats().held_bytes_now;
    let inos = read_all(&tree, 4, true);
    let listings = tree.stats().held_bytes_now - before;
    assert!(listings / 20_000 < 250, "{} bytes each with the listing", listings / 20_000);
    // The listings go, the inodes stay.
    memory.turn_clock(60_000);
    tree.forget(ROOT, 0);
    read_all(&tree, 1, false);
    memory.turn_clock(60_000);
    tree.release_folder(tree.open_folder(ROOT).unwrap());
    let held = tree.stats().held_bytes_now;
    assert!(held / 20_000 < 200, "{} bytes each", held / 20_000);
    assert_eq!(tree.stats().looked_up_now, 20_000 + 4);
    assert!(memory.0.charged.load(Ordering::Relaxed).abs_diff(held) <= 64 << 10);
    for ino in inos {
        tree.forget(ino, 1);
    }
    for number in 0..4 {
        let folder = ino(&tree, &format!("{number:03}"));
        tree.forget(folder, 100);
    }
    // Files first, then their folders, which nobody needs any more then.
    for _ in 0..2 {
        memory.turn_clock(60_000);
        tree.forget(ROOT, 0);
    }
    let stats = tree.stats();
    assert_eq!((stats.inodes_now, stats.looked_up_now), (1, 0));
    assert!(stats.held_bytes_now < 4096, "{stats:?}");
}

#[test]
fn too_much_drops_listings_first_and_never_what_is_looked_up() {
    let memory = wide(50, 400);
    let tree = memory.tree(minute());
    let kept = ino(&tree, "000/00007");
    let handle = tree.open_folder(ino(&tree, "001")).unwrap();
    assert_eq!(read(&tree, handle, 0, false).len(), 400);
    memory.0.is_over.store(true, Ordering::Relaxed);
    read_all(&tree, 50, false);
    let stats = tree.stats();
    assert!(stats.listings_now < 25, "{stats:?}");
    assert!(stats.held_bytes_now < 300 << 10, "of a megabyte: {stats:?}");
    assert_eq!(tree.attributes(kept).unwrap().attributes.ino, kept);
    // A folder that is open is read on as it was.
    let before = memory.asked();
    assert_eq!(read(&tree, handle, 2, false).len(), 400);
    assert_eq!(memory.asked(), before);
}

#[test]
fn a_folder_that_is_too_large_is_read_in_little_memory() {
    let memory = wide(1, 50_000);
    let tree = memory.tree(minute());
    let folder = ino(&tree, "000");
    memory.0.is_over.store(true, Ordering::Relaxed);
    let handle = tree.open_folder(folder).unwrap();
    let (mut offset, mut count, mut most) = (0, 0, 0);
    loop {
        let before = count;
        tree.read_folder(handle, offset, false, &mut |entry| {
            if count - before == 300 {
                return false;
            }
            (offset, count) = (entry.next, count + 1);
            true
        })
        .unwrap();
        most = most.max(tree.stats().held_bytes_now);
        if count == before {
            break;
        }
    }
    assert_eq!(count, 50_002);
    assert!(most < 1 << 20, "{most} of three megabytes");
    assert_eq!(tree.stats().pages, 1 + 50);
    // What was dropped is not taken for missing, and to step far back is to list anew.
    assert!(tree.lookup(folder, OsStr::new("00007")).is_ok());
    assert_eq!(read(&tree, handle, 1002, false).len(), 49_000);
}

#[test]
fn inodes_that_nobody_needs_go() {
    let memory = wide(1, 40_000);
    let tree = memory.tree(minute());
    let folder = ino(&tree, "000");
    for ino in read_all(&tree, 1, true) {
        tree.forget(ino, 1);
    }
    let stats = tree.stats();
    assert!(stats.inodes_now <= (16 << 10) + 2, "{stats:?}");
    assert_eq!(stats.looked_up_now, 1);
    assert!(tree.lookup_known(folder, OsStr::new("00000")).is_some(), "the listing knows it");
}

#[test]
fn forgetting_is_counted() {
    let memory = wide(1, 3);
    let tree = memory.tree(minute());
    let file = ino(&tree, "000/00001");
    for _ in 0..4 {
        ino(&tree, "000/00001");
    }
    tree.forget(file, 4);
    assert_eq!(tree.stats().looked_up_now, 2);
    tree.forget(file, 1);
    assert_eq!(tree.stats().looked_up_now, 1);
    // Too often, or never looked up: no harm.
    tree.forget(file, 9);
    tree.forget(1234, 1);
    tree.forget(ROOT, u64::MAX);
    assert!(tree.attributes(ROOT).is_ok());
    // An open file needs its inode.
    let file = ino(&tree, "000/00002");
    let handle = tree.open(file, OpenMode::read(false), nobody()).unwrap().handle;
    tree.forget(file, 1);
    memory.turn_clock(60_000);
    tree.forget(ROOT, 0);
    assert_eq!(bytes(&tree, handle, 0, 9).unwrap(), b"");
    tree.release(handle).unwrap();
}

#[test]
fn names_that_are_not_there_take_little() {
    let memory = wide(1, 3);
    let tree = memory.tree(Config { negative_lifetime: Duration::from_secs(1000), ..minute() });
    let folder = ino(&tree, "000");
    memory.refuse(None);
    for number in 0..20_000 {
        assert!(tree.lookup(folder, OsStr::new(&format!("no {number}"))).is_err());
        if number % 1000 == 0 {
            memory.turn_clock(30_000);
        }
    }
    assert!(tree.stats().held_bytes_now < 1 << 20);
}
