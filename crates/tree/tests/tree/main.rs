//! The tree over a store in memory: what each operation answers, what it asks, and what it never mixes.
#![allow(clippy::unwrap_used)] // Test code throughout; clippy.toml's exception knows only functions marked #[test].

mod ahead;
mod appends;
mod attributes;
mod changes;
mod folders;
mod local;
mod memory;
mod model;
mod names;
mod opens;
mod renames;
mod requests;
mod room;
mod staging;
mod takeovers;
mod writes;

use std::ffi::OsStr;
use std::time::Duration;

use flatout_tree::store::ObjectStore;
use flatout_tree::{
    AttributeSource, Attributes, Caller, Config, FileKind, Files, FsError, Node, OpenMode, Process, Slices,
    TreeOf,
};

const ROOT: u64 = flatout_tree::ROOT;

/// A thread of a process that is not known.
fn nobody() -> Caller {
    Caller { thread: 0, look: |_| Process::default(), uid: 0, gid: 0 }
}

fn minute() -> Config {
    Config { negative_lifetime: Duration::from_secs(20), ..Config::default() }
}

/// Lifetimes of nothing: everything is asked for.
fn never() -> Config {
    Config { attribute_lifetime: Duration::ZERO, negative_lifetime: Duration::ZERO, ..Config::default() }
}

/// Looks a path up from the root.
fn find<S: ObjectStore>(tree: &TreeOf<S>, path: &str) -> Result<Node, i32> {
    let mut at = ROOT;
    let mut known = tree.attributes(ROOT).map_err(|error| error.errno)?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        known = tree.lookup(at, OsStr::new(name)).map_err(|error| error.errno)?;
        at = known.id;
    }
    Ok(known)
}

fn ino<S: ObjectStore>(tree: &TreeOf<S>, path: &str) -> u64 {
    find(tree, path).unwrap_or_else(|errno| panic!("{path}: errno {errno}")).id
}

/// What stat(2) shows.
fn number<S: ObjectStore>(tree: &TreeOf<S>, path: &str) -> u64 {
    find(tree, path).unwrap_or_else(|errno| panic!("{path}: errno {errno}")).attributes.ino
}

/// The names of a folder as `ls -p` shows them, `.` and `..` left out; the folder is opened, read and
/// released.
fn names<S: ObjectStore>(tree: &TreeOf<S>, folder: u64) -> Vec<String> {
    let handle = tree.open_folder(folder).unwrap();
    let names = read(tree, handle, 0, false).into_iter().map(|(name, _)| name).collect();
    tree.release_folder(handle);
    names
}

/// Names and offsets behind them, from an offset on.
fn read<S: ObjectStore>(tree: &TreeOf<S>, handle: u64, offset: u64, plus: bool) -> Vec<(String, u64)> {
    let mut names = Vec::new();
    let read = tree.read_folder(handle, offset, plus, &mut |entry| {
        let name = entry.name.to_str().unwrap();
        if name != "." && name != ".." {
            let slash = if entry.node.attributes.kind == FileKind::Folder { "/" } else { "" };
            names.push((format!("{name}{slash}"), entry.next));
        }
        true
    });
    read.unwrap();
    names
}

/// All that a file says, by one open. As the kernel does: what cannot be opened any more is looked up again,
/// once.
fn content(tree: &TreeOf<memory::Memory>, path: &str) -> Result<Vec<u8>, i32> {
    let open = || tree.open(ino(tree, path), OpenMode::read(false), nobody()).map_err(|error| error.errno);
    let again = |errno: i32| if errno == libc::ESTALE { open() } else { Err(errno) };
    let handle = open().or_else(again)?.handle;
    let bytes = bytes(tree, handle, 0, 1 << 20);
    tree.release(handle).unwrap();
    bytes
}

fn bytes(tree: &TreeOf<memory::Memory>, handle: u64, at: u64, bytes: usize) -> Result<Vec<u8>, i32> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let done = move |result: Result<Slices<'_, '_>, FsError>| {
        sender.send(result.map(|slices| slices.flatten().copied().collect())).unwrap();
    };
    let _cancel = tree.read(handle, at, bytes, done);
    receiver.recv_timeout(Duration::from_secs(60)).unwrap().map_err(|error| error.errno)
}
