//! Keys to names.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use flatout_engine::{Dialect, ErrorKind};
use flatout_tree::TreeRoot;
use flatout_wire::location::Location;

use crate::memory::{BUCKET, Memory};
use crate::*;

/// What is shown of a bucket, by listings and by lookups alike.
#[track_caller]
fn check(keys: &[&str], folder: &str, want: &[&str]) {
    let memory = Memory::with(keys);
    for page in [1, 2, 1000] {
        memory.0.page.store(page, std::sync::atomic::Ordering::Relaxed);
        for config in [minute(), never()] {
            let tree = memory.tree(config.clone());
            assert_eq!(names(&tree, ino(&tree, folder)), want, "pages of {page}");
            // From the listing, and one by one.
            let asking = memory.tree(config);
            for name in want {
                let (bare, is_folder) = (name.trim_end_matches('/'), name.ends_with('/'));
                let path = format!("{folder}/{bare}");
                let kind = if is_folder { FileKind::Folder } else { FileKind::File };
                assert_eq!(find(&tree, &path).unwrap().attributes.kind, kind, "{path}");
                assert_eq!(find(&asking, &path).unwrap().attributes.kind, kind, "{path}, asked");
            }
        }
    }
}

#[test]
fn a_slash_makes_a_folder() {
    check(&["a/b/c", "a/d", "e"], "", &["a/", "e"]);
    check(&["a/b/c", "a/d", "e"], "a", &["b/", "d"]);
    check(&["a/b/c", "a/d", "e"], "a/b", &["c"]);
}

#[test]
fn a_folder_hides_a_file_of_its_name() {
    check(&["a", "a/b"], "", &["a/"]);
    check(&["a", "a-b", "a.c", "a/b", "a0"], "", &["a-b", "a.c", "a/", "a0"]);
    let many: Vec<String> = (0..40).map(|number| format!("a-{number:02}")).collect();
    let mut keys: Vec<&str> = many.iter().map(String::as_str).chain(["a", "a/b"]).collect();
    keys.sort_unstable();
    // The folder is not on the first page that a lookup asks for.
    let memory = Memory::with(&keys);
    let tree = memory.tree(never());
    let before = memory.asked();
    assert_eq!(find(&tree, "a").unwrap().attributes.kind, FileKind::Folder);
    assert_eq!(memory.asked() - before, 2);
    memory.delete("a/b");
    assert_eq!(find(&tree, "a").unwrap().attributes.kind, FileKind::File);
    memory.delete("a");
    assert_eq!(find(&tree, "a").unwrap_err(), libc::ENOENT);
}

#[test]
fn a_marker_makes_a_folder_and_tells_its_time() {
    check(&["a/"], "", &["a/"]);
    check(&["a/"], "a", &[]);
    let memory = Memory::with(&["a/b"]);
    let marker = memory.put("a/", "");
    let tree = memory.tree(minute());
    let ino = ino(&tree, "a");
    let before = tree.attributes(ino).unwrap().attributes;
    assert_eq!((before.modified_s, before.source), (1_600_000_000, AttributeSource::Implied));
    assert_eq!(names(&tree, ino), ["b"]);
    let after = tree.attributes(ino).unwrap().attributes;
    assert_eq!(after.modified_s, marker.modified_s as i64);
    // tar(1) compares this, before and behind.
    assert_eq!(before.changed_s, after.changed_s);
}

#[test]
fn keys_that_are_no_names_are_counted_and_not_shown() {
    let long = "x".repeat(256);
    let fits = "y".repeat(255);
    let keys = [
        "a/b",
        "a//c",
        "/d",
        "a/./e",
        "a/../f",
        "./g",
        "../h",
        "a/n\0l",
        &format!("{long}/i"),
        &long,
        &fits,
        "z\nz",
    ];
    check(&keys, "", &["a/", fits.as_str(), "z\nz"]);
    check(&keys, "a", &["b"]);
    let tree = Memory::with(&keys).tree(minute());
    names(&tree, ino(&tree, "a"));
    let hidden = tree.stats().hidden;
    assert_eq!((hidden.empty, hidden.dots, hidden.nul, hidden.too_long), (2, 4, 1, 2));
    assert_eq!((hidden.shadowed, hidden.total()), (0, 9));
}

#[test]
fn names_that_no_key_has_are_not_asked_for() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(never());
    let asked = memory.asked();
    let long = "x".repeat(256);
    for (name, errno) in [
        (&b""[..], libc::ENOENT),
        (b".", libc::ENOENT),
        (b"..", libc::ENOENT),
        (b"a/b", libc::ENOENT),
        (b"a\0", libc::ENOENT),
        (b"\xff\xfe", libc::ENOENT),
        (long.as_bytes(), libc::ENAMETOOLONG),
    ] {
        let error = tree.lookup(ROOT, OsStr::from_bytes(name)).unwrap_err();
        assert_eq!(error.errno, errno, "{name:?}");
        let known = tree.lookup_known(ROOT, OsStr::from_bytes(name)).unwrap();
        assert_eq!(known.unwrap_err().errno, errno, "{name:?}");
    }
    assert_eq!(memory.asked(), asked);
    let file = ino(&tree, "a");
    assert_eq!(tree.lookup(file, OsStr::new("b")).unwrap_err().errno, libc::ENOTDIR);
    assert_eq!(tree.lookup(77, OsStr::new("b")).unwrap_err().errno, libc::ESTALE);
}

#[test]
fn a_prefix_is_a_root() {
    let memory = Memory::with(&["x/y/a", "x/y/b/c", "x/yz", "x/y"]);
    for prefix in ["x/y", "x/y/"] {
        let tree = memory.tree_under(prefix, minute());
        assert_eq!(names(&tree, ROOT), ["a", "b/"]);
        assert_eq!(content(&tree, "b/c").unwrap(), b"content of x/y/b/c");
    }
}

#[test]
fn every_bucket_is_a_folder() {
    let memory = Memory::with(&["a/b"]);
    memory.put_in("another", "c", "in another");
    memory.put_in("foreign", "d", "in foreign");
    let tree = TreeOf::new(Arc::new(memory.clone()), TreeRoot::Buckets(Dialect::S3), minute()).unwrap();
    assert_eq!(names(&tree, ROOT), ["another/", &format!("{BUCKET}/")]);
    assert_eq!(content(&tree, "another/c").unwrap(), b"in another");
    assert_eq!(content(&tree, "bucket/a/b").unwrap(), b"content of a/b");
    // One that the account does not list is entered by its name.
    assert_eq!(content(&tree, "foreign/d").unwrap(), b"in foreign");
    let asked = memory.asked();
    for name in [".Trash", ".git", "autorun.INF", "x"] {
        assert_eq!(find(&tree, name).unwrap_err(), libc::ENOENT);
    }
    assert_eq!(memory.asked(), asked);
    assert_eq!(find(&tree, "missing").unwrap_err(), libc::ENOENT);
    assert!(memory.asked() > asked);
}

#[test]
fn a_root_that_cannot_be_listed_is_refused() {
    let memory = Memory::new();
    let new = |bucket: &str| {
        let root = TreeRoot::Under(Location::S3 { bucket: bucket.into(), key: String::new() });
        TreeOf::new(Arc::new(memory.clone()), root, minute()).map(|_| ()).unwrap_err()
    };
    assert_eq!(new("missing").kind(), ErrorKind::NotFound);
    memory.refuse(ErrorKind::Denied);
    assert_eq!(new(BUCKET).kind(), ErrorKind::Denied);
    assert_eq!(new(BUCKET).cause(), "as the test says");
}

#[test]
fn numbers_are_the_same_in_every_mount() {
    let memory = Memory::with(&["a/b/c", "d"]);
    let (one, two) = (memory.tree(minute()), memory.tree(never()));
    names(&one, ROOT);
    for path in ["", "a", "a/b", "a/b/c", "d"] {
        assert_eq!(number(&one, path), number(&two, path), "{path}");
    }
    // As readdir without attributes shows them.
    let handle = one.open_folder(ROOT).unwrap();
    let mut shown = Vec::new();
    one.read_folder(handle, 0, false, &mut |entry| {
        shown.push((entry.name.to_owned(), entry.node.attributes.ino));
        true
    })
    .unwrap();
    assert_eq!(shown[..2], [(".".into(), ROOT), ("..".into(), ROOT)]);
    assert_eq!(shown[2..], [("a".into(), number(&two, "a")), ("d".into(), number(&two, "d"))]);
}
