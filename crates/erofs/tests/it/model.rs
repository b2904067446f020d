//! A tree as a map of keys, the files and folders that an index of it must show, and random trees.

use std::collections::BTreeMap;
use std::io::Cursor;

use flatout_erofs::{Index, Inode, Kind, Options, ROOT, ReadAt, Summary, WriteError, Writer, check_path};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

/// An object without its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    pub size: u64,
    pub modified_s: i64,
    pub etag: Option<String>,
}

/// Objects by key. A key that ends in a slash marks a folder.
pub type Tree = BTreeMap<Vec<u8>, File>;

/// Files and folders by path: `None` for a folder.
pub type Shown = BTreeMap<Vec<u8>, Option<File>>;

pub fn build(tree: &Tree, options: Options) -> (Vec<u8>, Summary) {
    let mut writer = Writer::new(Cursor::new(Vec::new()), Cursor::new(Vec::new()), options).unwrap();
    for (key, file) in tree {
        let added = if key.ends_with(b"/") {
            writer.add_folder(key, file.modified_s)
        } else {
            writer.add(key, file.size, file.modified_s, file.etag.as_deref())
        };
        match added {
            Ok(()) => assert!(is_namable(key), "{key:?}"),
            Err(WriteError::Unnamable { .. }) => assert!(!is_namable(key), "{key:?}"),
            Err(error) => panic!("{error}"),
        }
    }
    let (file, summary) = writer.finish().unwrap();
    (file.into_inner(), summary)
}

/// Whether a key, or the folder that it marks, has a name.
pub fn is_namable(key: &[u8]) -> bool {
    check_path(key.strip_suffix(b"/").unwrap_or(key)).is_ok()
}

/// The model: folders shadow files of their name. Keys that have none show the folders before that.
pub fn shown(tree: &Tree) -> Shown {
    let mut shown = Shown::new();
    for (key, file) in tree {
        let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        for (slash, _) in slashes {
            if check_path(&key[..slash]).is_ok() {
                shown.insert(key[..slash].to_vec(), None);
            }
        }
        if !key.ends_with(b"/") && is_namable(key) {
            shown.insert(key.clone(), Some(file.clone()));
        }
    }
    shown
}

/// The times of folders: of their marks, or else the newest of what they contain.
pub fn folder_times(tree: &Tree) -> BTreeMap<Vec<u8>, i64> {
    let shown = shown(tree);
    let mut times: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
    // Longest paths first: children before their parents. Files that are shadowed count, too.
    let mut below: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
    let note = |path: &[u8], time: i64, below: &mut BTreeMap<Vec<u8>, i64>| {
        let parent = path.iter().rposition(|&byte| byte == b'/').map_or(&b""[..], |slash| &path[..slash]);
        let newest = below.entry(parent.to_vec()).or_insert(time);
        *newest = time.max(*newest);
    };
    for (key, file) in tree.iter().filter(|(key, _)| !key.ends_with(b"/") && is_namable(key)) {
        note(key, file.modified_s, &mut below);
    }
    let mut folders: Vec<Vec<u8>> =
        shown.iter().filter(|row| row.1.is_none()).map(|row| row.0.clone()).collect();
    folders.sort_by_key(|path| std::cmp::Reverse(path.iter().filter(|&&byte| byte == b'/').count()));
    for path in folders {
        let mark = tree.get(&[&path[..], b"/"].concat()).map(|mark| mark.modified_s).filter(|&at| at > 0);
        let time = mark.or(below.get(&path).copied()).unwrap_or(0);
        note(&path, time, &mut below);
        times.insert(path, time);
    }
    times
}

/// Everything that the reader lists.
pub fn listed<R: ReadAt>(index: &Index<R>) -> Shown {
    let mut found = Shown::new();
    let mut open = vec![(Vec::new(), ROOT)];
    while let Some((path, nid)) = open.pop() {
        let folder = index.inode(nid).unwrap();
        let mut last: Option<Vec<u8>> = None;
        let mut folders = 0;
        for entry in index.entries(&folder) {
            let entry = entry.unwrap();
            assert!(last.as_ref().is_none_or(|last| *last < entry.name), "{last:?} before {entry:?}");
            assert_eq!(index.lookup(&folder, &entry.name).unwrap().as_ref(), Some(&entry));
            let mut path = path.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&entry.name);
            let inode = index.inode(entry.nid).unwrap();
            assert_eq!(inode.kind, entry.kind);
            match entry.kind {
                Kind::Folder => {
                    folders += 1;
                    open.push((path.clone(), entry.nid));
                    assert_eq!(index.object(inode.number).unwrap(), None);
                    found.insert(path, None);
                }
                Kind::File => {
                    let file = check_file(index, &path, &inode);
                    found.insert(path, Some(file));
                }
            }
            last = Some(entry.name);
        }
        assert_eq!(folder.links, 2 + folders);
    }
    found
}

/// Compares a file with the object at its addresses.
fn check_file<R: ReadAt>(index: &Index<R>, path: &[u8], inode: &Inode) -> File {
    let object = index.object(inode.number).unwrap().unwrap();
    assert_eq!((&*object.path, object.nid), (path, inode.nid));
    assert_eq!((object.size, object.modified_s), (inode.size, inode.modified_s));
    let blocks = inode.size.div_ceil(4096) as u32;
    if blocks == 0 {
        assert_eq!(inode.start_block, 0);
    } else {
        for block in [0, blocks / 2, blocks - 1] {
            assert_eq!(index.object_at(inode.start_block + block).unwrap().as_ref(), Some(&object));
        }
    }
    assert_eq!(index.etag(inode.number).unwrap(), object.etag);
    File { size: object.size, modified_s: object.modified_s, etag: object.etag }
}

pub fn file(size: u64) -> File {
    File { size, modified_s: 1_700_000_000, etag: None }
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => "[ab!.\\-/0]{1,3}".prop_map(String::into_bytes),
        2 => "[a-z]{1,20}".prop_map(String::into_bytes),
        1 => vec(1..=255_u8, 1..8),
        1 => vec(1..=255_u8, 240..=255),
        1 => prop::sample::select(vec![&b""[..], b".", b"..", b"a\0"]).prop_map(<[u8]>::to_vec),
        1 => Just(b".-".to_vec()),
        1 => Just(b"...".to_vec()),
    ]
}

/// A key, some of which mark folders.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    (vec(names(), 1..5), prop::bool::weighted(0.1)).prop_map(|(names, is_mark)| {
        let mut key = names.join(&b'/');
        if is_mark {
            key.push(b'/');
        }
        key
    })
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        0..20_000_u64,
        Just(4096),
        0..(10_u64 << 30),
        Just(u64::from(u32::MAX)),
        Just(u64::from(u32::MAX) + 1),
    ]
}

fn times() -> impl Strategy<Value = i64> {
    let small = i64::from(u32::MAX);
    prop_oneof![8 => 0..small, 1 => Just(small), 1 => Just(small + 1), 1 => -1_000_000_000..0_i64]
}

fn etags() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        1 => Just(None),
        4 => "\"[0-9a-f]{32}\"".prop_map(Some),
        1 => "\"[0-9A-F]{32}\"".prop_map(Some),
        2 => "\"[0-9a-f]{32}-[1-9][0-9]{0,2}\"".prop_map(Some),
        1 => "\\PC{0,40}".prop_map(Some),
    ]
}

pub fn files() -> impl Strategy<Value = File> {
    (sizes(), times(), etags()).prop_map(|(size, modified_s, etag)| File { size, modified_s, etag })
}

/// Trees with keys that have no name among them.
pub fn trees(keys_most: usize) -> impl Strategy<Value = Tree> {
    let small = btree_map(keys(), files(), 0..keys_most);
    let wide = (0..5000_usize.min(keys_most * 50), "[a-z]{0,12}", files());
    let deep = prop_oneof![4 => Just(0), 1 => 1..80_usize];
    (small, prop::option::weighted(0.3, wide), deep).prop_map(|(mut tree, wide, deep)| {
        if let Some((count, prefix, mut file)) = wide {
            // All together fit an index.
            file.size = file.size.min(2 << 30);
            for number in 0..count {
                // Some of them folders, and most of their names as long as the others.
                let inside = if number % 97 == 0 { "/x" } else { "" };
                let file = File { size: file.size + number as u64 * 333, ..file.clone() };
                tree.insert(format!("wide/{prefix}{number:04}{inside}").into_bytes(), file);
            }
        }
        if deep > 0 {
            tree.insert([&b"d/".repeat(deep)[..], b"end"].concat(), file(7));
        }
        tree
    })
}
