//! The tree over the engine's client, against the development origin: a folder whose files another program
//! changes.
#![allow(clippy::unwrap_used)] // Test code throughout; clippy.toml's exception knows only functions marked #[test].

use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flatout_engine::credentials::Fixed;
use flatout_engine::{Client, Dialect, ErrorKind};
use flatout_server::{Options, Origin, Store};
use flatout_tree::{
    Caller, Config, FileKind, Files, FsError, OpenMode, Process, ROOT, Slices, Tree, TreeRoot,
};
use flatout_wire::location::Location;
use flatout_wire::sign::Credentials;

/// A thread of a process that is not known.
fn nobody() -> Caller {
    Caller { thread: 0, look: |_| Process::default(), uid: 0, gid: 0 }
}

/// A folder that is a bucket, served, and a client of it.
struct Lab {
    folder: tempfile::TempDir,
    _origin: Origin,
    client: Arc<Client>,
}

impl Lab {
    fn start(files: &[(&str, Vec<u8>)]) -> Lab {
        let folder = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            write(folder.path(), path, bytes);
        }
        let origin = Origin::start(Options::new(Store::Root(folder.path().to_path_buf()))).unwrap();
        let keys = Credentials { access_key: "a".into(), secret_key: "s".into(), session_token: None };
        let mut config = flatout_engine::Config {
            aws_credentials: Arc::new(Fixed(keys.clone())),
            oss_credentials: Arc::new(Fixed(keys)),
            ..flatout_engine::Config::default()
        };
        config.settings.endpoint_url = Some(origin.url());
        config.settings.oss_endpoint = Some(origin.url());
        let client = Arc::new(Client::new(config).unwrap());
        Lab { folder, _origin: origin, client }
    }

    fn tree(&self, location: &str, config: Config) -> Tree {
        Tree::new(self.client.clone(), TreeRoot::Under(Location::parse(location).unwrap()), config).unwrap()
    }
}

fn write(folder: &Path, path: &str, bytes: &[u8]) {
    let path = folder.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn find(tree: &Tree, path: &str) -> Result<u64, FsError> {
    let mut at = ROOT;
    for name in path.split('/') {
        at = tree.lookup(at, OsStr::new(name))?.id;
    }
    Ok(at)
}

fn read(tree: &Tree, handle: u64, at: u64, bytes: usize) -> Result<Vec<u8>, i32> {
    let (sender, receiver) = mpsc::channel();
    let done = move |result: Result<Slices<'_, '_>, FsError>| {
        sender.send(result.map(|slices| slices.flatten().copied().collect())).unwrap();
    };
    let _cancel = tree.read(handle, at, bytes, done);
    receiver.recv_timeout(Duration::from_secs(60)).unwrap().map_err(|error| error.errno)
}

fn content(tree: &Tree, path: &str) -> Result<Vec<u8>, i32> {
    let open = || tree.open(find(tree, path)?, OpenMode::read(false), nobody()).map(|opened| opened.handle);
    // As the kernel does: what cannot be opened any more is looked up again, once.
    let again = |error: FsError| if error.errno == libc::ESTALE { open() } else { Err(error) };
    let handle = open().or_else(again).map_err(|error| error.errno)?;
    let bytes = read(tree, handle, 0, 4 << 20);
    tree.release(handle).unwrap();
    bytes
}

fn walk(tree: &Tree, folder: u64, path: &str, found: &mut Vec<(String, u64)>) {
    let handle = tree.open_folder(folder).unwrap();
    let mut below = Vec::new();
    tree.read_folder(handle, 2, true, &mut |entry| {
        let path = format!("{path}{}", entry.name.to_str().unwrap());
        match entry.node.attributes.kind {
            FileKind::Folder => below.push((entry.node.id, path + "/")),
            FileKind::File => found.push((path, entry.node.attributes.size)),
        }
        true
    })
    .unwrap();
    tree.release_folder(handle);
    for (ino, path) in below {
        walk(tree, ino, &path, found);
    }
}

#[test]
fn both_dialects_show_the_same_tree() {
    let large: Vec<u8> = (0..2_000_000u32).map(|number| (number % 251) as u8).collect();
    let lab = Lab::start(&[
        ("bucket/a/b c.bin", large.clone()),
        ("bucket/a/empty", Vec::new()),
        ("bucket/ü/+%.txt", b"text".to_vec()),
        ("bucket/z", b"last".to_vec()),
        ("other/x", b"another".to_vec()),
    ]);
    for location in ["s3://bucket", "oss://bucket"] {
        let tree = lab.tree(location, Config::default());
        let mut found = Vec::new();
        walk(&tree, ROOT, "", &mut found);
        found.sort();
        let want = [("a/b c.bin", 2_000_000), ("a/empty", 0), ("z", 4), ("ü/+%.txt", 4)];
        assert_eq!(found, want.map(|(path, size)| (path.to_owned(), size)));
        assert!(content(&tree, "a/b c.bin").unwrap() == large);
        assert_eq!(content(&tree, "a/empty").unwrap(), b"");
        assert_eq!(content(&tree, "ü/+%.txt").unwrap(), b"text");
        assert_eq!(content(&tree, "none").unwrap_err(), libc::ENOENT);
    }
    for dialect in [Dialect::S3, Dialect::Oss] {
        let tree = Tree::new(lab.client.clone(), TreeRoot::Buckets(dialect), Config::default()).unwrap();
        assert_eq!(content(&tree, "other/x").unwrap(), b"another");
    }
}

#[test]
fn names_are_asked_for_one_by_one_by_short_listings() {
    let lab = Lab::start(&[
        ("bucket/f/a", b"1".to_vec()),
        ("bucket/f/a-1/x", b"2".to_vec()),
        ("bucket/f/folder/x", b"3".to_vec()),
    ]);
    let tree = lab.tree("s3://bucket/f", Config::default());
    let fresh = Config { attribute_lifetime: Duration::ZERO, ..Config::default() };
    let asking = lab.tree("oss://bucket/f/", fresh);
    for tree in [&tree, &asking] {
        assert_eq!(content(tree, "a").unwrap(), b"1");
        assert_eq!(content(tree, "a-1/x").unwrap(), b"2");
        assert_eq!(content(tree, "folder/x").unwrap(), b"3");
        assert_eq!(find(tree, "fold").unwrap_err().errno, libc::ENOENT);
    }
    assert!(asking.stats().lookups >= 6 && tree.stats().pages >= 1);
}

#[test]
fn a_file_that_is_replaced_is_stale_and_then_new() {
    let lab = Lab::start(&[("bucket/a", vec![1; 3_000_000])]);
    let tree = lab.tree("s3://bucket", Config::default());
    let ino = find(&tree, "a").unwrap();
    let handle = tree.open(ino, OpenMode::read(false), nobody()).unwrap().handle;
    write(lab.folder.path(), "bucket/a", &[2; 2_000_000]);
    assert_eq!(read(&tree, handle, 0, 1 << 20), Err(libc::ESTALE));
    assert!(content(&tree, "a").unwrap() == vec![2; 2_000_000]);
    assert_eq!(read(&tree, handle, 0, 1 << 20), Err(libc::ESTALE));
    let checking = lab.tree("s3://bucket", Config { close_to_open: true, ..Config::default() });
    for number in 3..6 {
        write(lab.folder.path(), "bucket/a", &vec![number; 1000 + usize::from(number)]);
        assert_eq!(content(&checking, "a").unwrap(), vec![number; 1000 + usize::from(number)]);
    }
}

#[test]
fn a_bucket_that_is_not_there_is_refused() {
    let lab = Lab::start(&[("bucket/a", b"1".to_vec())]);
    for (root, kind) in [
        (TreeRoot::Under(Location::parse("s3://missing").unwrap()), ErrorKind::NotFound),
        (TreeRoot::Under(Location::parse("http://127.0.0.1:1/x").unwrap()), ErrorKind::Unsupported),
    ] {
        let refused = Tree::new(lab.client.clone(), root, Config::default()).map(|_| ()).unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
    }
}
