//! Names that are made, removed and changed by the mount.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use flatout_engine::ErrorKind;
use flatout_tree::{Config, FileKind, Files, OpenMode, TreeOf};
use proptest::prelude::*;

use crate::memory::Memory;
use crate::renames::Records;
use crate::takeovers::Process;
use crate::writes::{closed, create, open, read, to_write, write};
use crate::{ROOT, find, ino, minute, names, nobody};

fn os(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn remove(tree: &TreeOf<Memory>, folder: u64, name: &str) -> Result<(), i32> {
    tree.remove_file(folder, os(name)).map_err(|error| error.errno)
}

fn make_folder(tree: &TreeOf<Memory>, folder: u64, name: &str) -> Result<u64, i32> {
    tree.make_folder(folder, os(name), 0o755, nobody()).map(|node| node.id).map_err(|error| error.errno)
}

fn remove_folder(tree: &TreeOf<Memory>, folder: u64, name: &str) -> Result<(), i32> {
    tree.remove_folder(folder, os(name)).map_err(|error| error.errno)
}

fn rename(tree: &TreeOf<Memory>, from: &str, to: &str) -> Result<(), i32> {
    tree.rename((ROOT, os(from)), (ROOT, os(to)), false).map_err(|error| error.errno)
}

fn with_folders(most: u64) -> Config {
    Config { rename_most: most, rename_journal: Some(Arc::new(Records::of(&Memory::new()))), ..minute() }
}

#[test]
fn a_removed_file_is_gone_here_and_there() {
    let memory = Memory::with(&["a", "f/only"]);
    let tree = memory.tree(minute());
    names(&tree, ROOT);
    assert_eq!(remove(&tree, ROOT, "a"), Ok(()));
    assert_eq!((memory.object("a"), find(&tree, "a").map(drop)), (None, Err(libc::ENOENT)));
    assert_eq!(remove(&tree, ROOT, "a"), Err(libc::ENOENT));
    assert_eq!(remove(&tree, ROOT, "f"), Err(libc::EISDIR));
    // A folder that lost its last file is there until it is removed, too.
    let folder = ino(&tree, "f");
    assert_eq!(remove(&tree, folder, "only"), Ok(()));
    assert_eq!(names(&tree, ROOT), ["f/"]);
    memory.turn_clock(120_000);
    assert_eq!((names(&tree, ROOT), names(&tree, ino(&tree, "f"))), (vec!["f/".into()], vec![]));
    assert_eq!(remove_folder(&tree, ROOT, "f"), Ok(()));
    assert_eq!((names(&tree, ROOT), find(&tree, "f").map(drop)), (vec![], Err(libc::ENOENT)));
}

#[test]
fn a_file_that_is_written_can_be_removed() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    for publishes in [false, true] {
        let handle = create(&tree, "x");
        write(&tree, handle, 0, b"abc").unwrap();
        if publishes {
            tree.sync(handle).unwrap();
        }
        let node = find(&tree, "x").unwrap();
        assert_eq!((remove(&tree, ROOT, "x"), node.attributes.links), (Ok(()), 1));
        assert_eq!(find(&tree, "x").map(drop), Err(libc::ENOENT));
        assert_eq!(tree.attributes(node.id).unwrap().attributes.links, 0);
        // Temporary files are used like this.
        write(&tree, handle, 3, b"def").unwrap();
        assert_eq!(read(&tree, handle, 0, 9).unwrap(), b"abcdef");
        assert_eq!(closed(&tree, handle), Ok(()));
        assert_eq!((memory.object("x"), names(&tree, ROOT)), (None, vec![]));
    }
    // Its name is free meanwhile.
    let first = create(&tree, "x");
    write(&tree, first, 0, b"first").unwrap();
    remove(&tree, ROOT, "x").unwrap();
    let second = create(&tree, "x");
    write(&tree, second, 0, b"second").unwrap();
    assert_eq!((closed(&tree, second), closed(&tree, first)), (Ok(()), Ok(())));
    assert_eq!(memory.object("x").unwrap().bytes, b"second");
    assert_eq!(find(&tree, "x").unwrap().attributes.size, 6);
}

/// Not at its close, when what was written is lost.
#[test]
fn a_key_that_is_too_long_is_refused_before_anything_is_written() {
    let memory = Memory::with(&["there"]);
    let tree = memory.tree(minute());
    let make = |parent: u64, name: &str| {
        let made = tree.make_folder(parent, OsStr::new(name), 0o755, nobody());
        made.map(|node| node.id).map_err(|error| error.errno)
    };
    let create = |parent: u64, name: &str| {
        let made = tree.create(parent, OsStr::new(name), false, to_write(), nobody());
        made.map(|(_, opened)| closed(&tree, opened.handle).unwrap()).map_err(|error| error.errno)
    };
    // 999 bytes with the `/` at its end.
    let mut parent = ROOT;
    for bytes in [249, 249, 249, 248] {
        parent = make(parent, &"x".repeat(bytes)).unwrap();
    }
    assert_eq!(create(parent, &"f".repeat(1025 - 999)), Err(libc::ENAMETOOLONG));
    assert_eq!(create(parent, &"f".repeat(1024 - 999)), Ok(()));
    assert_eq!(make(parent, &"d".repeat(1024 - 999)), Err(libc::ENAMETOOLONG));
    assert!(make(parent, &"d".repeat(1023 - 999)).is_ok());
    let (from, to) = (OsStr::new("there"), "t".repeat(1025 - 999));
    let renamed = tree.rename((ROOT, from), (parent, OsStr::new(&to)), false);
    assert_eq!(renamed.map_err(|error| error.errno), Err(libc::ENAMETOOLONG));
    assert_eq!(memory.object("there").unwrap().bytes, b"content of there");
}

#[test]
fn a_folder_that_was_made_is_empty_and_costs_nothing() {
    let memory = Memory::with(&["there/x"]);
    let tree = memory.tree(minute());
    assert_eq!(make_folder(&tree, ROOT, "there"), Err(libc::EEXIST));
    let folder = make_folder(&tree, ROOT, "new").unwrap();
    assert_eq!(find(&tree, "new").unwrap().attributes.kind, FileKind::Folder);
    let asked = memory.asked();
    for name in 0..100 {
        let made = tree.create(folder, os(&format!("{name}")), true, OpenMode::read(false), nobody());
        closed(&tree, made.unwrap().1.handle).unwrap();
    }
    assert_eq!(
        memory.asked(),
        asked,
        "nothing has to be asked about the names of a folder that was made here"
    );
    assert_eq!(names(&tree, folder).len(), 100);
    assert_eq!(remove_folder(&tree, ROOT, "new"), Err(libc::ENOTEMPTY));
    assert_eq!(memory.object("new/"), None);
    // Another client's objects are found, too.
    make_folder(&tree, ROOT, "empty").unwrap();
    memory.put("empty/x", "x");
    assert_eq!(remove_folder(&tree, ROOT, "empty"), Err(libc::ENOTEMPTY));
    memory.delete("empty/x");
    assert_eq!(remove_folder(&tree, ROOT, "empty"), Ok(()));
    assert_eq!(remove_folder(&tree, ROOT, "empty"), Err(libc::ENOENT));
    // A folder with a folder in it, and one with a file that is being written.
    let outer = make_folder(&tree, ROOT, "outer").unwrap();
    make_folder(&tree, outer, "inner").unwrap();
    assert_eq!(names(&tree, outer), ["inner/"]);
    assert_eq!(remove_folder(&tree, ROOT, "outer"), Err(libc::ENOTEMPTY));
    remove_folder(&tree, outer, "inner").unwrap();
    let handle = tree.create(outer, os("x"), false, OpenMode::read(false), nobody()).unwrap().1.handle;
    assert_eq!(remove_folder(&tree, ROOT, "outer"), Err(libc::ENOTEMPTY));
    remove(&tree, outer, "x").unwrap();
    closed(&tree, handle).unwrap();
    assert_eq!(remove_folder(&tree, ROOT, "outer"), Ok(()));
}

#[test]
fn a_marker_is_made_and_removed_where_it_is_asked_for() {
    let memory = Memory::new();
    let tree = memory.tree(Config { folder_markers: true, ..minute() });
    make_folder(&tree, ROOT, "new").unwrap();
    assert_eq!(memory.object("new/").unwrap().bytes, b"");
    let other = memory.tree(minute());
    assert_eq!(names(&other, ROOT), ["new/"]);
    assert_eq!(remove_folder(&other, ROOT, "new"), Ok(()));
    assert_eq!(memory.object("new/"), None);
}

#[test]
fn a_file_is_renamed_with_what_is_open() {
    let memory = Memory::with(&["a", "b", "f/x"]);
    let tree = memory.tree(minute());
    let reader = open(&tree, "a", OpenMode::read(false)).unwrap().handle;
    let number = find(&tree, "a").unwrap().attributes.ino;
    rename(&tree, "a", "c").unwrap();
    assert_eq!(memory.object("a"), None);
    assert_eq!(memory.object("c").unwrap().bytes, b"content of a");
    assert_eq!(find(&tree, "a").map(drop), Err(libc::ENOENT));
    assert_eq!(find(&tree, "c").unwrap().attributes.ino, number, "a rename keeps the inode");
    assert_eq!(read(&tree, reader, 0, 7).unwrap(), b"content");
    tree.release(reader).unwrap();
    // Over another.
    rename(&tree, "c", "b").unwrap();
    assert_eq!(memory.object("b").unwrap().bytes, b"content of a");
    assert_eq!(names(&tree, ROOT), ["b", "f/"]);
    assert_eq!(rename(&tree, "b", "f"), Err(libc::EISDIR));
    assert_eq!(rename(&tree, "f", "b"), Err(libc::ENOTDIR));
    assert_eq!(rename(&tree, "none", "x"), Err(libc::ENOENT));
    assert_eq!(rename(&tree, "b", "b"), Ok(()));
    // Into a folder, and not over what is there.
    let folder = ino(&tree, "f");
    let exclusive = tree.rename((ROOT, os("b")), (folder, os("x")), true);
    assert_eq!(exclusive.unwrap_err().errno, libc::EEXIST);
    tree.rename((ROOT, os("b")), (folder, os("y")), true).unwrap();
    assert_eq!(names(&tree, folder), ["x", "y"]);
    assert_eq!(memory.object("f/y").unwrap().bytes, b"content of a");
}

#[test]
fn a_file_that_is_written_is_renamed_with_its_writer() {
    let memory = Memory::new();
    let tree = memory.tree(minute());
    for bytes in [3_usize, 3 << 20, 9 << 20] {
        let content = vec![b'x'; bytes];
        let handle = create(&tree, "new");
        for (at, piece) in content.chunks(1 << 20).enumerate() {
            write(&tree, handle, (at << 20) as u64, piece).unwrap();
        }
        rename(&tree, "new", "named").unwrap();
        assert!(memory.object("named").unwrap().bytes == content);
        write(&tree, handle, bytes as u64, b"+").unwrap();
        closed(&tree, handle).unwrap();
        assert!(memory.object("named").unwrap().bytes == [&content[..], b"+"].concat());
        assert_eq!((memory.object("new"), names(&tree, ROOT)), (None, vec!["named".into()]));
    }
}

#[test]
fn a_source_that_another_client_replaces_stays() {
    let memory = Memory::with(&["a"]);
    let tree = memory.tree(minute());
    ino(&tree, "a");
    memory.0.replaces_after_copy.store(true, Relaxed);
    assert_eq!(rename(&tree, "a", "b"), Err(libc::ESTALE));
    assert_eq!(memory.object("a").unwrap().bytes, b"of another client");
    assert_eq!(names(&tree, ROOT), ["a", "b"]);
}

#[test]
fn a_folder_is_renamed_within_its_limit() {
    let memory = Memory::with(&["f/a", "f/b", "f/g/c", "other/x"]);
    let tree = memory.tree(with_folders(2));
    assert_eq!(rename(&tree, "f", "new"), Err(libc::EXDEV), "mv(1) copies it then");
    let tree = memory.tree(with_folders(3));
    let reader = open(&tree, "f/a", OpenMode::read(false)).unwrap().handle;
    assert_eq!(rename(&tree, "f", "other"), Err(libc::ENOTEMPTY));
    rename(&tree, "f", "new").unwrap();
    assert_eq!(names(&tree, ROOT), ["new/", "other/"]);
    let folder = ino(&tree, "new");
    assert_eq!(
        (names(&tree, folder), names(&tree, ino(&tree, "new/g"))),
        (vec!["a".into(), "b".into(), "g/".into()], vec!["c".into()])
    );
    assert_eq!(memory.object("new/g/c").unwrap().bytes, b"content of f/g/c");
    assert_eq!((memory.object("f/a"), memory.object("f/g/c")), (None, None));
    assert_eq!(find(&tree, "f").map(drop), Err(libc::ENOENT));
    tree.release(reader).unwrap();
    let inside = tree.rename((ROOT, os("new")), (ino(&tree, "new/g"), os("x")), false);
    assert_eq!(inside.unwrap_err().errno, libc::EINVAL);
    // One that exists here only.
    let tree = memory.tree(with_folders(0));
    make_folder(&tree, ROOT, "mine").unwrap();
    rename(&tree, "mine", "yours").unwrap();
    assert_eq!(names(&tree, ROOT), ["new/", "other/", "yours/"]);
    let handle =
        tree.create(ino(&tree, "yours"), os("x"), false, OpenMode::read(false), nobody()).unwrap().1.handle;
    assert_eq!(rename(&tree, "yours", "theirs"), Err(libc::EBUSY));
    closed(&tree, handle).unwrap();
}

#[test]
fn a_folder_whose_copy_fails_is_as_it_was() {
    let memory = Memory::with(&["f/a", "f/b", "f/c"]);
    let tree = memory.tree(with_folders(10));
    memory.0.copies_before_failure.store(2, Relaxed);
    assert_eq!(rename(&tree, "f", "new"), Err(libc::EIO));
    for key in ["f/a", "f/b", "f/c"] {
        assert!(memory.object(key).is_some(), "{key}");
        assert_eq!(memory.object(&key.replace("f/", "new/")), None);
    }
    assert_eq!(names(&tree, ROOT), ["f/"]);
}

#[test]
fn what_the_origin_refuses_changes_nothing() {
    let memory = Memory::with(&["a", "f/x"]);
    let tree = memory.tree(with_folders(10));
    names(&tree, ROOT);
    names(&tree, ino(&tree, "f"));
    memory.refuse(ErrorKind::Denied);
    let folder = ino(&tree, "f");
    let refused = [remove(&tree, ROOT, "a"), rename(&tree, "a", "b"), remove(&tree, folder, "x")];
    assert_eq!(refused, [Err(libc::EACCES); 3]);
    memory.refuse(None);
    assert_eq!((names(&tree, ROOT), names(&tree, folder)), (vec!["a".into(), "f/".into()], vec!["x".into()]));
}

#[test]
fn names_that_no_key_can_have_are_refused() {
    let tree = Memory::new().tree(minute());
    let long = "x".repeat(256);
    for (name, errno) in [(os(&long), libc::ENAMETOOLONG), (os("a/b"), libc::EILSEQ)] {
        let created = tree.create(ROOT, name, false, OpenMode::read(false), nobody());
        assert_eq!(created.map(drop).unwrap_err().errno, errno);
        assert_eq!(tree.make_folder(ROOT, name, 0o755, nobody()).map(drop).unwrap_err().errno, errno);
    }
}

/// What a program does to a folder.
#[derive(Clone, Debug)]
enum Step {
    Write(usize, Vec<u8>),
    Append(usize, Vec<u8>),
    Remove(usize),
    MakeFolder(usize),
    RemoveFolder(usize),
    Rename(usize, usize),
    Look,
    Later(u64),
}

const NAMES: [&str; 6] = ["a", "b", "f", "f/a", "f/g", "f/g/x"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0..NAMES.len();
    let bytes = proptest::collection::vec(any::<u8>(), 0..20);
    let step = prop_oneof![
        3 => (name.clone(), bytes.clone()).prop_map(|(name, bytes)| Step::Write(name, bytes)),
        2 => (name.clone(), bytes).prop_map(|(name, bytes)| Step::Append(name, bytes)),
        2 => name.clone().prop_map(Step::Remove),
        2 => name.clone().prop_map(Step::MakeFolder),
        2 => name.clone().prop_map(Step::RemoveFolder),
        3 => (name.clone(), name).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => Just(Step::Look),
        1 => (0_u64..70_000).prop_map(Step::Later),
    ];
    proptest::collection::vec(step, 1..40)
}

/// The folder of a path, and the name in it.
fn place(tree: &TreeOf<Memory>, path: &'static str) -> Result<(u64, &'static OsStr), i32> {
    match path.rsplit_once('/') {
        Some((folder, name)) => Ok((find(tree, folder)?.id, os(name))),
        None => Ok((ROOT, os(path))),
    }
}

fn on_tree(tree: &TreeOf<Memory>, memory: &Memory, step: &Step) -> Result<(), i32> {
    let errno = |error: flatout_tree::FsError| error.errno;
    match step {
        Step::Write(name, bytes) | Step::Append(name, bytes) => {
            let (folder, name) = place(tree, NAMES[*name])?;
            let appends = matches!(step, Step::Append(..));
            let mode = OpenMode { writes: true, truncates: !appends, ..OpenMode::default() };
            let (node, opened) = tree.create(folder, name, false, mode, nobody()).map_err(errno)?;
            let at = if appends { tree.attributes(node.id).map_err(errno)?.attributes.size } else { 0 };
            write(tree, opened.handle, at, bytes)?;
            closed(tree, opened.handle)
        }
        Step::Remove(name) => {
            let (folder, name) = place(tree, NAMES[*name])?;
            tree.remove_file(folder, name).map_err(errno)
        }
        Step::MakeFolder(name) => {
            let (folder, name) = place(tree, NAMES[*name])?;
            tree.make_folder(folder, name, 0o755, nobody()).map(drop).map_err(errno)
        }
        Step::RemoveFolder(name) => {
            let (folder, name) = place(tree, NAMES[*name])?;
            tree.remove_folder(folder, name).map_err(errno)
        }
        Step::Rename(from, to) => {
            let (from, to) = (place(tree, NAMES[*from])?, place(tree, NAMES[*to])?);
            tree.rename(from, to, false).map_err(errno)
        }
        Step::Look => Ok(()),
        Step::Later(ms) => {
            memory.turn_clock(*ms);
            Ok(())
        }
    }
}

fn on_disk(root: &Path, step: &Step) -> Result<(), i32> {
    use std::io::Write;
    let path = |name: &usize| root.join(NAMES[*name]);
    let done = match step {
        Step::Write(name, bytes) => std::fs::write(path(name), bytes),
        Step::Append(name, bytes) => std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path(name))
            .and_then(|mut file| file.write_all(bytes)),
        Step::Remove(name) => std::fs::remove_file(path(name)),
        Step::MakeFolder(name) => std::fs::create_dir(path(name)),
        Step::RemoveFolder(name) => std::fs::remove_dir(path(name)),
        Step::Rename(from, to) => std::fs::rename(path(from), path(to)),
        Step::Look | Step::Later(_) => Ok(()),
    };
    done.map_err(|error| error.raw_os_error().unwrap())
}

/// Every path below, with the bytes of a file.
fn all_of_disk(root: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            match path.is_dir() {
                true => {
                    all.insert(name, None);
                    folders.push(path);
                }
                false => {
                    all.insert(name, Some(std::fs::read(path).unwrap()));
                }
            }
        }
    }
    all
}

fn all_of_tree(tree: &TreeOf<Memory>) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut all = BTreeMap::new();
    let mut folders = vec![(ROOT, String::new())];
    while let Some((folder, above)) = folders.pop() {
        for name in names(tree, folder) {
            let path = format!("{above}{}", name.trim_end_matches('/'));
            let before = all.insert(path.clone(), None);
            assert_eq!(before, None, "{path} is shown twice");
            match name.ends_with('/') {
                true => folders.push((ino(tree, &path), format!("{path}/"))),
                false => {
                    let handle = open(tree, &path, OpenMode::read(false)).unwrap().handle;
                    all.insert(path, Some(read(tree, handle, 0, 1 << 20).unwrap()));
                    tree.release(handle).unwrap();
                }
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Without another client, programs see what they see on a disk: the same names, bytes and errors, also
    /// when the process dies between two calls.
    #[test]
    fn does_what_a_local_folder_does(steps in steps(), page in 1_usize..4, dies_every in 1_usize..9) {
        let memory = Memory::new();
        memory.0.page.store(page, Relaxed);
        let disk = tempfile::tempdir().unwrap();
        let mut process = Process::new(&memory, with_folders(100));
        for (at, step) in steps.iter().enumerate() {
            if at % dies_every == dies_every - 1 {
                process = process.dies();
            }
            let tree = &process.tree;
            let (got, want) = (on_tree(tree, &memory, step), on_disk(disk.path(), step));
            prop_assert_eq!(got, want, "{:?} of {:?}", step, steps);
            if matches!(step, Step::Look) {
                prop_assert_eq!(all_of_tree(tree), all_of_disk(disk.path()), "{:?}", &steps);
            }
        }
        prop_assert_eq!(all_of_tree(&process.tree), all_of_disk(disk.path()), "{:?}", &steps);
        // Each file is an object, and nothing else is one.
        let files: BTreeMap<String, Vec<u8>> = all_of_disk(disk.path())
            .into_iter()
            .filter_map(|(name, bytes)| Some((name, bytes?)))
            .collect();
        prop_assert_eq!(memory.objects(), files);
    }
}
