//! How many requests operations cost.

use flatout_tree::OpenMode;
use std::ffi::OsStr;
use std::sync::atomic::Ordering;

use crate::memory::Memory;
use crate::nobody;
use crate::*;

fn files(folder: &str, count: usize) -> Memory {
    let memory = Memory::new();
    for number in 0..count {
        memory.put(&format!("{folder}{number:05}"), "x");
    }
    memory
}

#[test]
fn what_a_listing_told_is_not_asked_again() {
    let memory = files("f/", 2500);
    let tree = memory.tree(minute());
    let folder = ino(&tree, "f");
    let before = memory.asked();
    let handle = tree.open_folder(folder).unwrap();
    assert_eq!(read(&tree, handle, 0, true).len(), 2500);
    tree.release_folder(handle);
    assert_eq!(memory.asked() - before, 3, "one request a page");
    for number in 0..2500 {
        let known = tree.lookup(folder, OsStr::new(&format!("{number:05}"))).unwrap();
        assert_eq!(known.attributes.source, AttributeSource::Listing);
        let opened = tree.open(known.id, OpenMode::read(false), nobody()).unwrap();
        tree.attributes(known.id).unwrap();
        tree.release(opened.handle).unwrap();
    }
    // Again, and names that are not there.
    assert_eq!(names(&tree, folder).len(), 2500);
    for name in ["x", "00000x", "", "02500"] {
        assert_eq!(tree.lookup(folder, OsStr::new(name)).unwrap_err().errno, libc::ENOENT);
        assert!(tree.lookup_known(folder, OsStr::new(name)).is_some());
    }
    assert_eq!(memory.asked() - before, 3);
}

#[test]
fn what_is_too_old_is_asked_again() {
    let memory = files("f/", 10);
    let tree = memory.tree(minute());
    let folder = ino(&tree, "f");
    names(&tree, folder);
    let asked = |what: &dyn Fn()| {
        let before = memory.asked();
        what();
        memory.asked() - before
    };
    let absent = || assert!(tree.lookup(folder, OsStr::new("x")).is_err());
    let there = || assert!(tree.lookup(folder, OsStr::new("00001")).is_ok());
    assert_eq!((asked(&absent), asked(&there)), (0, 0));
    // Half of the negative lifetime is the kernel's.
    memory.turn_clock(9_999);
    assert_eq!(tree.negative_lifetime(), Duration::from_secs(10));
    assert_eq!((asked(&absent), asked(&there)), (0, 0));
    memory.turn_clock(1);
    assert_eq!((asked(&absent), asked(&there)), (1, 0));
    assert_eq!((asked(&absent), asked(&there)), (0, 0));
    memory.turn_clock(49_999);
    assert_eq!(asked(&there), 0);
    let left = tree.lookup(folder, OsStr::new("00001")).unwrap().lifetime;
    assert_eq!(left, Duration::from_millis(1));
    memory.turn_clock(1);
    assert!(tree.lookup_known(folder, OsStr::new("00001")).is_none());
    assert_eq!(asked(&there), 1);
}

#[test]
fn one_request_tells_file_folder_or_nothing() {
    let memory = Memory::with(&[
        "f/file",
        "f/folder/x",
        "f/mixed",
        "f/mixed-1",
        "f/mixed/x",
        "f/10",
        "f/100",
        "f/1000",
    ]);
    for (name, want) in
        [("file", Ok(false)), ("folder", Ok(true)), ("mixed", Ok(true)), ("10", Ok(false)), ("1", Err(()))]
    {
        let tree = memory.tree(minute());
        let folder = ino(&tree, "f");
        let before = memory.asked();
        let known = tree.lookup(folder, OsStr::new(name));
        let found = known.map(|known| known.attributes.kind == FileKind::Folder).map_err(drop);
        assert_eq!(found, want, "{name}");
        assert_eq!(memory.asked() - before, 1, "{name}");
    }
}

#[test]
fn a_folder_whose_names_are_asked_for_is_listed() {
    for count in [20, 900] {
        let memory = files("f/", count);
        let tree = memory.tree(minute());
        let folder = ino(&tree, "f");
        let before = memory.asked();
        for number in 0..count {
            let known = tree.lookup(folder, OsStr::new(&format!("{number:05}"))).unwrap();
            tree.release(tree.open(known.id, OpenMode::read(false), nobody()).unwrap().handle).unwrap();
        }
        assert_eq!(memory.asked() - before, 4, "three names, then a page");
    }
}

#[test]
fn a_large_folder_costs_a_page_for_three_names_that_it_did_not_know() {
    let memory = files("f/", 20_000);
    let tree = memory.tree(minute());
    let folder = ino(&tree, "f");
    let before = memory.asked();
    for number in (0..20_000).rev() {
        tree.lookup(folder, OsStr::new(&format!("{number:05}"))).unwrap();
    }
    let asked = memory.asked() - before;
    assert!(asked < 100, "{asked} requests for 20 pages");
    // Two names of a folder are no reason to list it.
    let tree = memory.tree(minute());
    let folder = ino(&tree, "f");
    let before = memory.asked();
    for number in [19_999, 19_998] {
        tree.lookup(folder, OsStr::new(&format!("{number:05}"))).unwrap();
    }
    assert_eq!(memory.asked() - before, 2);
    assert_eq!(tree.stats().pages, 1, "the root's");
}

/// As programs look for what they import, under many names and in many folders.
#[test]
fn names_that_are_not_there_cost_a_listing_in_each_lifetime() {
    let memory = files("f/", 500);
    let tree = memory.tree(minute());
    let folder = ino(&tree, "f");
    let absent = |number: u32| {
        let name = format!("no {number}");
        assert_eq!(tree.lookup(folder, OsStr::new(&name)).unwrap_err().errno, libc::ENOENT);
    };
    let before = memory.asked();
    (0..1000).for_each(absent);
    assert_eq!(memory.asked() - before, 4);
    for lifetime in 1..4 {
        memory.turn_clock(10_000);
        (0..1000).for_each(absent);
        assert_eq!(memory.asked() - before, 4 + lifetime);
    }
}

/// They cost a request each until they are as many as the folder has pages.
#[test]
fn many_missing_names_of_a_large_folder_cost_a_listing() {
    let memory = files("f/", 5_000);
    let tree = memory.tree(minute());
    let folder = ino(&tree, "f");
    assert_eq!(names(&tree, folder).len(), 5_000);
    let before = memory.asked();
    for lifetime in 0..5 {
        for number in 0..600 {
            let name = format!("no {lifetime} {number}");
            assert_eq!(tree.lookup(folder, OsStr::new(&name)).unwrap_err().errno, libc::ENOENT);
        }
        memory.turn_clock(10_000);
    }
    let asked = memory.asked() - before;
    assert!(asked < 5 * 20, "{asked} requests for 3,000 names");
}

/// What failed in one of twenty runs: a listing says that a folder is gone, is too old to say so, and makes
/// room for the next one; what a lookup had told before it was true again.
#[test]
fn what_a_listing_said_last_outlives_it() {
    let memory = Memory::new();
    let lifetimes = Config {
        attribute_lifetime: Duration::from_secs(4),
        negative_lifetime: Duration::from_secs(2),
        ..Config::default()
    };
    let tree = memory.tree(lifetimes);
    let there = |name: &str| tree.lookup(ROOT, OsStr::new(name)).map(drop).map_err(|error| error.errno);
    memory.turn_clock(1000);
    memory.put("c/d", "x");
    assert_eq!(["x", "y", "c"].map(there), [Err(libc::ENOENT), Err(libc::ENOENT), Ok(())]);
    memory.turn_clock(1);
    memory.delete("c/d");
    assert_eq!(there("b"), Err(libc::ENOENT), "by a listing of all names");
    assert!(tree.lookup_known(ROOT, OsStr::new("c")).is_some_and(|known| known.is_err()));
    memory.turn_clock(1000);
    assert!(tree.lookup_known(ROOT, OsStr::new("c")).is_none());
    let asked = memory.asked();
    assert_eq!(there("c"), Err(libc::ENOENT));
    assert!(memory.asked() > asked);
}

#[test]
fn lookups_of_one_name_join() {
    let memory = files("f/", 10);
    let tree = memory.tree(minute());
    let folder = ino(&tree, "f");
    let before = memory.asked();
    memory.shut();
    std::thread::scope(|scope| {
        let lookups: Vec<_> =
            (0..16).map(|_| scope.spawn(|| tree.lookup(folder, OsStr::new("00003")).unwrap().id)).collect();
        memory.wait_for(1);
        memory.open();
        let inos: Vec<u64> = lookups.into_iter().map(|lookup| lookup.join().unwrap()).collect();
        assert!(inos.iter().all(|ino| *ino == inos[0]));
        tree.forget(inos[0], 15);
        assert!(tree.attributes_known(inos[0]).is_some());
    });
    assert_eq!(memory.asked() - before, 1);
}

#[test]
fn readers_of_one_folder_join() {
    let memory = files("f/", 3000);
    let tree = memory.tree(minute());
    let folder = ino(&tree, "f");
    let before = memory.asked();
    memory.shut();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..8).map(|_| scope.spawn(|| names(&tree, folder).len())).collect();
        memory.wait_for(1);
        memory.open();
        for reader in readers {
            assert_eq!(reader.join().unwrap(), 3000);
        }
    });
    assert_eq!(memory.asked() - before, 3);
}

#[test]
fn nothing_is_asked_for_a_handle_and_the_root() {
    let memory = files("f/", 3);
    let tree = memory.tree(never());
    let folder = ino(&tree, "f");
    let before = memory.asked();
    let handle = tree.open_folder(folder).unwrap();
    tree.release_folder(handle);
    tree.attributes(ROOT).unwrap();
    tree.statfs();
    tree.forget(folder, 1);
    assert_eq!(memory.asked(), before);
}

#[test]
fn an_error_of_the_origin_is_told_and_not_kept() {
    let memory = files("f/", 3);
    let tree = memory.tree(minute());
    let folder = ino(&tree, "f");
    let handle = tree.open_folder(folder).unwrap();
    for (kind, errno) in [
        (flatout_engine::ErrorKind::Denied, libc::EACCES),
        (flatout_engine::ErrorKind::Timeout, libc::ETIMEDOUT),
        (flatout_engine::ErrorKind::Network, libc::EIO),
    ] {
        memory.refuse(kind);
        let error = tree.lookup(folder, OsStr::new("00001")).unwrap_err();
        assert_eq!((error.errno, error.cause.unwrap().kind()), (errno, kind));
        assert_eq!(tree.read_folder(handle, 0, false, &mut |_| true).unwrap_err().errno, errno);
        memory.refuse(None);
        assert_eq!(read(&tree, handle, 0, false).len(), 3);
        memory.turn_clock(60_000);
    }
    assert_eq!(tree.stats().failures, 6);
    assert_eq!(memory.0.reads.load(Ordering::Relaxed), 0);
}
