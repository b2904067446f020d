//! Random trees: the reader lists what the model shows, and equal trees make equal bytes.

use flatout_erofs::{Index, Object, Options, ROOT, ReadAt, Totals};
use proptest::prelude::*;

use crate::model::{Shown, Tree, build, file, folder_times, is_namable, listed, shown, trees};

fn check(tree: &Tree, options: Options) {
    let (bytes, summary) = build(tree, options.clone());
    let index = Index::open(&bytes[..]).unwrap();
    index.verify().unwrap();
    assert_eq!(index.source(), options.source);
    let expected = shown(tree);
    assert_eq!(listed(&index), expected);

    check_files(&index, &expected);
    let files: Vec<_> = expected.values().flatten().collect();
    let objects = tree.keys().filter(|key| !key.ends_with(b"/") && is_namable(key)).count();
    assert_eq!(summary.files, files.len() as u64);
    assert_eq!(summary.folders, (expected.len() - files.len() + 1) as u64);
    assert_eq!(summary.shadowed, (objects - files.len()) as u64);
    let mut shadowed: Vec<_> = tree.keys().filter(|key| expected.get(*key) == Some(&None)).collect();
    shadowed.truncate(1000);
    let mut paths: Vec<_> = summary.shadowed_paths.iter().collect();
    paths.sort();
    assert_eq!(paths, shadowed);
    assert_eq!(summary.file_bytes, files.iter().map(|file| file.size).sum::<u64>());
    assert_eq!(summary.index_bytes, bytes.len() as u64);
    let Totals { files, folders, file_bytes, .. } = index.totals();
    assert_eq!((files, folders, file_bytes), (summary.files, summary.folders, summary.file_bytes));
    assert_eq!(index.metadata_bytes(), summary.metadata_bytes);
    assert!(bytes == build(tree, options).0, "the bytes differ");

    for (path, time) in folder_times(tree) {
        let mut nid = ROOT;
        for name in path.split(|&byte| byte == b'/') {
            let folder = index.inode(nid).unwrap();
            nid = index.lookup(&folder, name).unwrap().expect("a folder of the model").nid;
        }
        assert_eq!(index.inode(nid).unwrap().modified_s, time, "{path:?}");
    }
    let root = index.inode(ROOT).unwrap();
    for name in [&b"."[..], b"..", b"", b"no such", b"\xff\xff"] {
        assert_eq!(index.lookup(&root, name).unwrap().is_some(), expected.contains_key(name), "{name:?}");
    }
    let end = (index.image_bytes() / 4096) as u32;
    for block in [0, 1, flatout_erofs::DATA_BLOCK - 1, end, end + 1, u32::MAX] {
        assert_eq!(index.object_at(block).unwrap(), None, "block {block}");
    }
}

/// The walk has the files of the model in the order of their keys.
fn check_files<R: ReadAt>(index: &Index<R>, expected: &Shown) {
    let mut found = index.files();
    for (path, file) in expected {
        let Some(file) = file else { continue };
        let object = found.next().unwrap().unwrap();
        assert_eq!(object.path, *path);
        let Object { size, modified_s, ref etag, .. } = object;
        assert_eq!((size, modified_s, etag), (file.size, file.modified_s, &file.etag), "{path:?}");
        let inode = index.inode(object.nid).unwrap();
        assert_eq!((inode.size, inode.start_block), (size, object.start_block));
        assert_eq!(index.object(inode.number).unwrap(), Some(object));
    }
    assert!(found.next().is_none() && found.next().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(150) })]

    #[test]
    fn the_reader_lists_what_the_model_shows(
        tree in trees(100),
        (uid, gid) in prop_oneof![Just((0, 0)), Just((1000, 70_000))],
        source in "(s3://\\PC{0,200})?",
    ) {
        check(&tree, Options { source, uid, gid, ..Options::default() });
    }
}

#[test]
fn nothing_at_all() {
    check(&Tree::new(), Options::default());
}

#[test]
fn every_size_of_one_folder() {
    // Around each boundary: of the inode's block, of the tail, of whole pages.
    for count in (0..400).chain([4_999, 5_000]) {
        let named = |number: usize| (format!("in/{number:020}").into_bytes(), file(number as u64));
        check(&(0..count).map(named).collect(), Options::default());
    }
}

#[test]
fn names_around_the_slash() {
    // Folders that wait for names that continue theirs, at several depths, on both sides of a page's end.
    let tails = ["", "\u{1}", "!", "-", "--", "-.", ".", "..", ".a", "0", "a", "~", "\u{ff}", "!!!!"];
    for fill in [0, 100, 300] {
        let mut tree = Tree::new();
        for (first, second) in tails.iter().flat_map(|first| tails.iter().map(move |second| (first, second)))
        {
            for inside in ["", "/x", "/x!/y", "/x/y", "/x0", "/x-"] {
                let key = format!("n/a{first}{second}{inside}").into_bytes();
                tree.insert(key, file((first.len() * 5000 + second.len()) as u64));
            }
        }
        let filled = |name: usize| (format!("n/a-{name:040}{}", "/z".repeat(name % 2)).into_bytes(), file(3));
        tree.extend((0..fill).map(filled));
        check(&tree, Options::default());
    }
    // Each of them waits for the next.
    let long = vec![b'!'; 255];
    let keys =
        (1..=255).flat_map(|bytes| [[&long[..bytes], b"/x"].concat(), [&long[..bytes], b"/y"].concat()]);
    check(&keys.map(|key| (key, file(1))).collect(), Options::default());
}

#[test]
fn a_file_and_a_folder_of_one_name() {
    let keys = [&b"a"[..], b"a-b", b"a-b/x", b"a/x", b"a0", b"b", b"b.", b"b/"];
    check(&keys.iter().map(|key| (key.to_vec(), file(5000))).collect(), Options::default());
}

#[test]
fn names_before_the_dots() {
    let long = vec![b'!'; 255];
    let keys: Vec<Vec<u8>> = (1..=255).map(|bytes| long[..bytes].to_vec()).collect();
    check(&keys.iter().map(|key| (key.clone(), file(1))).collect(), Options::default());
    let after = keys.iter().map(|key| [&b".-"[..], &key[..250.min(key.len())]].concat());
    check(&after.map(|key| (key, file(1))).collect(), Options::default());
}

#[test]
fn many_folders() {
    // More than 16 bits of links, and patches that reach far back.
    let named = |number: usize| (format!("many/{number:06}/{}", number % 7).into_bytes(), file(9));
    check(&(0..70_000).map(named).collect(), Options::default());
}

#[test]
fn other_trees_and_options_have_other_uuids() {
    let uuid = |size: u64, options: Options| {
        let bytes = build(&Tree::from([(b"a".to_vec(), file(size)), (b"b".to_vec(), file(9))]), options).0;
        bytes[1024 + 48..][..16].to_vec()
    };
    let plain = uuid(8, Options::default());
    assert_eq!(uuid(8, Options::default()), plain);
    assert_ne!(uuid(7, Options::default()), plain, "a size");
    assert_ne!(uuid(8, Options { source: "x".into(), ..Options::default() }), plain, "the source");
    assert_ne!(uuid(8, Options { uid: 1, ..Options::default() }), plain, "the uid");
    assert_ne!(uuid(8, Options { file_mode: 0o400, ..Options::default() }), plain, "the mode");
}
