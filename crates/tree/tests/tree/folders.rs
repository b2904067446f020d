//! Reading folders: streams, offsets, and what another client changes meanwhile.

use flatout_tree::OpenMode;
use std::ffi::OsStr;
use std::sync::atomic::Ordering;

use crate::memory::Memory;
use crate::nobody;
use crate::*;

#[test]
fn dots_come_first() {
    let memory = Memory::with(&["a/b/c"]);
    let tree = memory.tree(minute());
    let (a, b) = (ino(&tree, "a"), ino(&tree, "a/b"));
    for (folder, above) in [(ROOT, ROOT), (a, ROOT), (b, a)] {
        let handle = tree.open_folder(folder).unwrap();
        let mut seen = Vec::new();
        tree.read_folder(handle, 0, true, &mut |entry| {
            seen.push((entry.name.to_owned(), entry.node.id, entry.next));
            entry.next < 2
        })
        .unwrap();
        assert_eq!(seen, [(".".into(), folder, 1), ("..".into(), above, 2)]);
        tree.release_folder(handle);
    }
    // `.` and `..` count no lookup.
    assert_eq!(tree.stats().looked_up_now, 2);
}

#[test]
fn a_folder_streams() {
    let memory = Memory::new();
    for number in 0..50 {
        memory.put(&format!("{number:02}"), "");
    }
    memory.0.page.store(10, Ordering::Relaxed);
    let tree = memory.tree(never());
    let handle = tree.open_folder(ROOT).unwrap();
    let before = memory.asked();
    let mut taken = 0;
    tree.read_folder(handle, 0, false, &mut |_| {
        taken += 1;
        taken <= 5
    })
    .unwrap();
    // One is held back in case a folder follows; another page is fetched ahead at most.
    let asked = memory.asked() - before;
    assert!((1..=2).contains(&asked), "{asked}");
    assert_eq!(read(&tree, handle, 0, false).len(), 50);
}

#[test]
fn an_entry_that_was_not_taken_comes_again() {
    let memory = Memory::with(&["a", "b", "c/d", "e"]);
    memory.0.page.store(2, Ordering::Relaxed);
    let tree = memory.tree(minute());
    let handle = tree.open_folder(ROOT).unwrap();
    let (mut seen, mut offset) = (Vec::new(), 0);
    loop {
        // Room for one entry at a time, as a small buffer has.
        let mut taken = 0;
        tree.read_folder(handle, offset, true, &mut |entry| {
            taken += 1;
            if taken == 1 {
                seen.push(entry.name.to_str().unwrap().to_owned());
                offset = entry.next;
            }
            taken == 1
        })
        .unwrap();
        if taken == 0 {
            break;
        }
    }
    assert_eq!(seen, [".", "..", "a", "b", "c", "e"]);
    assert_eq!(tree.stats().looked_up_now, 4);
}

#[test]
fn places_stay_while_another_client_changes_the_folder() {
    for config in [minute(), never()] {
        let memory = Memory::new();
        for number in 0..30 {
            memory.put(&format!("{number:02}"), "");
        }
        memory.0.page.store(7, Ordering::Relaxed);
        let tree = memory.tree(config);
        let handle = tree.open_folder(ROOT).unwrap();
        let first = read(&tree, handle, 0, false);
        assert_eq!(first.len(), 30);
        for number in 0..30 {
            memory.delete(&format!("{number:02}"));
            memory.put(&format!("{number:02}x"), "");
        }
        memory.turn_clock(120_000);
        for (at, (_, next)) in first.iter().enumerate() {
            assert_eq!(read(&tree, handle, *next, false), first[at + 1..]);
        }
        // From the start again it is read as it is now.
        let again: Vec<String> = read(&tree, handle, 0, false).into_iter().map(|(name, _)| name).collect();
        assert_eq!(again, (0..30).map(|number| format!("{number:02}x")).collect::<Vec<_>>());
        tree.release_folder(handle);
        assert_eq!(tree.read_folder(handle, 0, false, &mut |_| true).unwrap_err().errno, libc::EBADF);
    }
}

#[test]
fn what_is_shown_can_be_used_without_asking() {
    let memory = Memory::with(&["a", "b/c"]);
    let object = memory.put("d", "four");
    let tree = memory.tree(minute());
    let handle = tree.open_folder(ROOT).unwrap();
    let mut shown = Vec::new();
    tree.read_folder(handle, 0, true, &mut |entry| {
        shown.push((entry.name.to_owned(), entry.node));
        true
    })
    .unwrap();
    let before = memory.asked();
    for (name, known) in &shown[2..] {
        assert_eq!(tree.lookup_known(ROOT, name).unwrap().unwrap().attributes, known.attributes);
        assert_eq!(tree.attributes_known(known.id).unwrap().unwrap().attributes, known.attributes);
        assert_eq!(known.lifetime, Duration::from_secs(60));
    }
    let d = shown.last().unwrap().1.attributes;
    assert_eq!((d.size, d.modified_s, d.mode, d.links), (4, object.modified_s as i64, 0o444, 1));
    assert_eq!(memory.asked(), before);
}

#[test]
fn what_is_known_newer_is_shown_instead_of_what_was_listed() {
    let memory = Memory::with(&["a", "b", "c"]);
    let tree = memory.tree(Config { close_to_open: true, ..minute() });
    names(&tree, ROOT);
    memory.turn_clock(10_000);
    memory.put("a", "longer than it was before");
    memory.delete("b");
    let (a, b) = (ino(&tree, "a"), ino(&tree, "b"));
    tree.open(a, OpenMode::read(false), nobody()).unwrap();
    assert_eq!(tree.open(b, OpenMode::read(false), nobody()).unwrap_err().errno, libc::ENOENT);
    let handle = tree.open_folder(ROOT).unwrap();
    let mut shown = Vec::new();
    tree.read_folder(handle, 2, true, &mut |entry| {
        shown.push((entry.name.to_owned(), entry.node.attributes.size, entry.node.lifetime.as_secs()));
        true
    })
    .unwrap();
    assert_eq!(shown, [("a".into(), 25, 50), ("b".into(), 12, 0), ("c".into(), 12, 50)]);
    assert_eq!(tree.lookup(ROOT, OsStr::new("b")).unwrap_err().errno, libc::ENOENT);
}

#[test]
fn files_are_no_folders() {
    let tree = Memory::with(&["a", "b/c"]).tree(minute());
    assert_eq!(tree.open_folder(ino(&tree, "a")).unwrap_err().errno, libc::ENOTDIR);
    assert_eq!(tree.open(ino(&tree, "b"), OpenMode::read(false), nobody()).unwrap_err().errno, libc::EISDIR);
    assert_eq!(tree.open_folder(99).unwrap_err().errno, libc::ESTALE);
    assert_eq!(tree.open(99, OpenMode::read(false), nobody()).unwrap_err().errno, libc::ESTALE);
    assert_eq!(tree.attributes(99).unwrap_err().errno, libc::ESTALE);
}
