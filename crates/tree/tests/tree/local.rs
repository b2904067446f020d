//! The tree beside a folder of the local file system with the same files.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use proptest::prelude::*;

use crate::memory::Memory;
use crate::*;

/// What is found of each path: a folder's names, or a file's bytes.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Folder(Vec<String>),
    File(Vec<u8>),
}

type All = BTreeMap<String, Found>;

fn local(at: &Path, path: &str, all: &mut All) {
    let mut names = Vec::new();
    for entry in fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let below = format!("{path}/{name}");
        if entry.file_type().unwrap().is_dir() {
            local(&entry.path(), &below, all);
            names.push(name + "/");
        } else {
            let bytes = fs::read(entry.path()).unwrap();
            assert_eq!(entry.metadata().unwrap().size(), bytes.len() as u64);
            all.insert(below, Found::File(bytes));
            names.push(name);
        }
    }
    names.sort();
    all.insert(path.to_owned(), Found::Folder(names));
}

fn ours(tree: &TreeOf<Memory>, folder: u64, path: &str, plus: bool, all: &mut All) {
    let handle = tree.open_folder(folder).unwrap();
    let mut names: Vec<String> = read(tree, handle, 0, plus).into_iter().map(|(name, _)| name).collect();
    tree.release_folder(handle);
    for name in &names {
        let bare = name.trim_end_matches('/');
        let (below, known) =
            (format!("{path}/{bare}"), tree.lookup(folder, std::ffi::OsStr::new(bare)).unwrap());
        match name.ends_with('/') {
            true => ours(tree, known.id, &below, plus, all),
            false => {
                let bytes = content(tree, &below).unwrap();
                assert_eq!(known.attributes.size, bytes.len() as u64);
                all.insert(below, Found::File(bytes));
            }
        }
    }
    names.sort();
    all.insert(path.to_owned(), Found::Folder(names));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn shows_what_a_local_folder_shows(
        keys in proptest::collection::btree_map("[ab\\-.0ü]{1,3}(/[ab\\-0 ]{1,2}){0,3}", 0..200usize, 0..25),
        page in 1..5usize,
        plus: bool,
        lives: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let memory = Memory::new();
        memory.0.page.store(page, std::sync::atomic::Ordering::Relaxed);
        for (key, bytes) in &keys {
            // What a file system cannot have besides is shown otherwise: docs/semantics.md.
            let is_folder = keys.keys().any(|other| other.starts_with(&format!("{key}/")));
            if is_folder || key.split('/').any(|name| name == "." || name == "..") {
                continue;
            }
            let path = folder.path().join(key);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let bytes = vec![b'x'; *bytes];
            fs::write(path, &bytes).unwrap();
            memory.put(key, bytes);
        }
        let (mut theirs, mut found) = (All::new(), All::new());
        local(folder.path(), "", &mut theirs);
        let tree = memory.tree(if lives { minute() } else { never() });
        ours(&tree, ROOT, "", plus, &mut found);
        prop_assert_eq!(found, theirs);
    }
}
