//! Folders of 1 to 100,000 odd names, with files of up to many GiB: what a walk and single answers say.

use std::collections::BTreeMap;

use flatout_erofs::{Index, Object, Options, ROOT};
use proptest::prelude::*;

use crate::model::{File, Tree, build, shown};

/// Numbers that follow from a seed: proptest would keep a value for each.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Mostly short, of all bytes that a name can have, and often around the slash.
    fn name(&mut self) -> Vec<u8> {
        let bytes = match self.below(50) {
            0 => 1 + self.below(255),
            1..=10 => 1 + self.below(3),
            _ => 4 + self.below(8),
        };
        let around = b"!,-.0a~\xff";
        let mut name: Vec<u8> = (0..bytes)
            .map(|_| match self.below(3) {
                0 => 1 + self.below(255) as u8,
                _ => around[self.below(8) as usize],
            })
            .map(|byte| if byte == b'/' { b'_' } else { byte })
            .collect();
        if name == b"." || name == b".." {
            name.push(b'-');
        }
        name
    }

    /// 100,000 of them fit an index.
    fn file(&mut self) -> File {
        let size = match self.below(100) {
            0..=9 => 0,
            10..=89 => self.below(200_000),
            90..=98 => self.below(8 << 20),
            _ => self.below(20 << 30),
        };
        let etag = match self.below(4) {
            0 => None,
            1 => Some(format!("odd {}", self.below(1000))),
            _ => Some(format!("\"{:032x}\"", self.next())),
        };
        File { size, modified_s: self.below(1 << 33) as i64, etag }
    }
}

/// `count` names in one folder; `folders` of a hundred are folders.
fn tree(seed: u64, count: usize, folders: u64, prefix: &str) -> Tree {
    let mut numbers = Numbers(seed);
    let mut tree = Tree::new();
    for _ in 0..count {
        let mut key = prefix.as_bytes().to_vec();
        key.extend(numbers.name());
        if numbers.below(100) < folders {
            key.push(b'/');
            key.extend(numbers.name());
        }
        tree.insert(key, numbers.file());
    }
    tree
}

fn check(tree: &Tree) {
    let bytes = build(tree, Options::default()).0;
    let index = Index::open(&bytes[..]).unwrap();
    index.verify().unwrap();
    let files: BTreeMap<Vec<u8>, File> =
        shown(tree).into_iter().filter_map(|(path, file)| Some((path, file?))).collect();
    let found: Vec<Object> = index.files().map(Result::unwrap).collect();
    assert_eq!(found.len(), files.len());
    let mut inodes = index.inodes();
    for (place, (object, (path, file))) in found.iter().zip(&files).enumerate() {
        let Object { size, modified_s, ref etag, .. } = *object;
        assert_eq!((&object.path, size, modified_s, etag), (path, file.size, file.modified_s, &file.etag));
        assert_eq!(inodes.inode(object.nid).unwrap(), index.inode(object.nid).unwrap());
        if place % 101 != 0 {
            continue;
        }
        let nid = path.split(|&byte| byte == b'/').fold(ROOT, |folder, name| {
            index.lookup(&index.inode(folder).unwrap(), name).unwrap().expect("a name of the model").nid
        });
        assert_eq!(nid, object.nid);
        let blocks = size.div_ceil(4096) as u32;
        for block in [0, blocks / 2, blocks.saturating_sub(1)].into_iter().filter(|_| blocks > 0) {
            assert_eq!(index.object_at(object.start_block + block).unwrap().as_ref(), Some(object));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    #[test]
    fn folders_of_many_odd_names(
        seed in any::<u64>(),
        // 1 to 100,000, as many below 300 as above.
        magnitude in 0.0..=5.0_f64,
        folders in prop::sample::select(vec![0_u64, 3, 50]),
        prefix in "(in/)?",
    ) {
        check(&tree(seed, 10_f64.powf(magnitude) as usize, folders, &prefix));
    }
}

#[test]
fn a_folder_of_a_hundred_thousand_odd_names() {
    check(&tree(7, 100_000, 10, "in/"));
}
