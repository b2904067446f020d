//! Damaged indexes: an error or the right answer, and never a panic.

use std::io;

use flatout_erofs::{DATA_BLOCK, Index, IndexError, Kind, Object, Options, ROOT, ReadAt};
use proptest::prelude::*;

use crate::model::{File, Tree, build, file, trees};

/// The objects of a full walk, or its first error.
fn walk(bytes: &[u8]) -> Result<Vec<Object>, IndexError> {
    let index = Index::open(bytes)?;
    let mut found = Vec::new();
    let mut open = vec![ROOT];
    let mut steps = 0;
    while let Some(nid) = open.pop() {
        let folder = index.inode(nid)?;
        for entry in index.entries(&folder) {
            let entry = entry?;
            steps += 1;
            assert!(steps < 100_000, "it does not end");
            let inode = index.inode(entry.nid)?;
            let _ = index.lookup(&folder, &entry.name)?;
            if inode.kind == Kind::Folder {
                open.push(entry.nid);
            } else {
                let object = index.object(inode.number)?.expect("a file is an object");
                let _ = index.object_at(inode.start_block)?;
                found.push(object);
            }
        }
    }
    let mut files = index.files().collect::<Result<Vec<_>, _>>()?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    files.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(files == found, "two walks find different files");
    Ok(found)
}

const SOURCE: &str = "s3://bucket/prefix/";

fn small() -> Vec<u8> {
    let named = |number: u64| {
        let etag =
            if number.is_multiple_of(3) { format!("\"{number:032x}\"") } else { format!("odd {number}") };
        let key = format!("f{}/{number}/x", number % 10).into_bytes();
        (key, File { size: number * 3000, modified_s: number as i64, etag: Some(etag) })
    };
    let options = Options { source: SOURCE.into(), ..Options::default() };
    build(&(0..100).map(named).collect(), options).0
}

#[test]
fn every_byte_counts() {
    let whole = small();
    let expected = walk(&whole).unwrap();
    assert_eq!(expected.len(), 100);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        match walk(&bytes) {
            Ok(found) => assert!(found == expected, "byte {at} makes another answer"),
            Err(IndexError::Checksum { .. } | IndexError::NotAnIndex) => {}
            Err(error) => panic!("byte {at}: {error}"),
        }
        let verified = Index::open(&bytes[..]).and_then(|index| index.verify());
        assert!(verified.is_err(), "byte {at} is covered by no checksum");
    }
}

#[test]
fn truncated_ones_say_so() {
    let whole = small();
    for length in (8..whole.len()).step_by(97) {
        let error = walk(&whole[..length]).unwrap_err();
        assert!(matches!(error, IndexError::Truncated { .. }), "{length} bytes: {error}");
    }
    let longer = [&whole[..], &[0]].concat();
    assert!(matches!(walk(&longer), Err(IndexError::TooLong { .. })));
    assert!(matches!(walk(b""), Err(IndexError::NotAnIndex)));
    assert!(matches!(walk(&[0; 8192]), Err(IndexError::NotAnIndex)));
}

#[test]
fn other_versions_say_so() {
    for (version, advice) in [(2, ": use a newer program, or build it again"), (0, " 1: build it again")] {
        let mut bytes = small();
        bytes[8] = version;
        rechecked(&mut bytes);
        let error = walk(&bytes).unwrap_err();
        assert!(matches!(error, IndexError::Version { supported: 1, .. }), "{error}");
        assert!(error.to_string().ends_with(advice), "{error}");
    }
}

/// Gives all blocks the checksums of what they hold: what somebody can do who means harm.
fn rechecked(bytes: &mut [u8]) {
    let crc = |bytes: &[u8]| crc32c(bytes).to_le_bytes();
    let blocks = bytes.len() / 4096;
    let count = (0..blocks).find(|count| count + count.div_ceil(1024) == blocks).unwrap();
    for block in 1..count {
        let checksum = crc(&bytes[block * 4096..][..4096]);
        bytes[count * 4096 + block * 4..][..4].copy_from_slice(&checksum);
    }
    let checksums = crc(&bytes[count * 4096..]);
    bytes[64..68].copy_from_slice(&checksums);
    bytes[12..16].fill(0);
    let first = crc(&bytes[..4096]);
    bytes[12..16].copy_from_slice(&first);
}

/// Asserts that the object at the start of the data is refused.
fn check_refused(mut bytes: Vec<u8>, why: &str) {
    rechecked(&mut bytes);
    let error = Index::open(bytes).and_then(|index| index.object_at(DATA_BLOCK)).unwrap_err();
    assert_eq!(error.to_string(), format!("the index is malformed: {why}: build it again"));
}

#[test]
fn longer_paths_and_etags_than_the_writer_makes_are_refused() {
    let folders = [&b"folder/".repeat(584)[..], b"1234/"].concat();
    let tree = [b"aaa", b"bbb"].map(|name| ([&folders[..], name].concat(), file(1)));
    let whole = build(&Tree::from(tree), Options::default()).0;
    let longest = Index::open(&whole[..]).unwrap().object_at(DATA_BLOCK).unwrap().unwrap();
    assert_eq!(longest.path.len(), 4096);

    // The first name takes a byte of the second.
    let mut bytes = whole.clone();
    let names = bytes.windows(9).position(|names| names == b"...aaabbb").unwrap();
    bytes[names - 12 + 8] += 1;
    check_refused(bytes, "a path is longer than the format allows");

    let mut bytes = whole;
    let records = u32::from_le_bytes(bytes[44..48].try_into().unwrap()) as usize * 4096;
    let record = records + 21;
    assert_eq!(bytes[record..record + 5], *[&DATA_BLOCK.to_le_bytes()[..], &[0]].concat());
    bytes[record + 4] = 3;
    bytes[record + 13..record + 17].copy_from_slice(&1025_u32.to_le_bytes());
    check_refused(bytes, "an ETag is longer than the format allows");
}

#[test]
fn sources_that_the_writer_does_not_make_are_refused() {
    let whole = small();
    let at = whole.windows(SOURCE.len()).position(|bytes| bytes == SOURCE.as_bytes()).unwrap();
    let source_bytes = |bytes: u32| bytes.to_le_bytes();
    let table = [
        (at, [0xff; 4], Some("its source is not UTF-8")),
        (68, source_bytes(5), None),
        // An ETag is in it then.
        (68, source_bytes(40), Some("the address of an ETag lies outside the strings")),
        (68, source_bytes(2049), Some("a section is longer than the format allows")),
        (68, source_bytes(u32::MAX), Some("a section is longer than the format allows")),
    ];
    for (at, value, why) in table {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&value);
        rechecked(&mut bytes);
        match (walk(&bytes), why) {
            (Ok(found), None) => assert_eq!(found.len(), 100),
            (Err(error), Some(why)) => {
                assert_eq!(error.to_string(), format!("the index is malformed: {why}: build it again"));
            }
            (outcome, _) => panic!("{value:?} at {at}: {outcome:?}"),
        }
    }
}

#[test]
fn cycles_of_folders_end_the_walk() {
    // Two folders of a folder; then the second is the first, or the root, again.
    let tree = ["a/b/x", "a/c/y", "a/c/z"].map(|key| (key.as_bytes().to_vec(), file(1)));
    let whole = build(&Tree::from(tree), Options::default()).0;
    let index = Index::open(&whole[..]).unwrap();
    let find =
        |folder: u64, name: &[u8]| index.lookup(&index.inode(folder).unwrap(), name).unwrap().unwrap().nid;
    let a = find(ROOT, b"a");
    let (b, c) = (find(a, b"b"), find(a, b"c"));
    let more = "its folders list more files and folders than it has";
    for (nid, why) in [(b, "its folders list fewer files and folders than it has"), (a, more), (ROOT, more)] {
        let mut bytes = whole.clone();
        // The dirent of c follows that of b.
        let is_of_c = |found: &[u8]| found[..8] == b.to_le_bytes() && found[12..] == c.to_le_bytes();
        let at = whole.windows(20).position(is_of_c).unwrap() + 12;
        bytes[at..at + 8].copy_from_slice(&nid.to_le_bytes());
        rechecked(&mut bytes);
        let index = Index::open(&bytes[..]).unwrap();
        let mut files = index.files();
        let error = files.by_ref().find_map(Result::err).unwrap();
        assert_eq!(error.to_string(), format!("the index is malformed: {why}: build it again"));
        assert!(files.next().is_none(), "it ends after an error");
    }
}

#[test]
fn longer_sections_than_the_format_allows_are_refused() {
    // Counts of files and folders; lengths of metadata, records, folders and strings.
    for (field, bytes_of_field) in [(24, 4), (28, 4), (44, 4), (48, 4), (52, 4), (56, 8)] {
        for value in [u64::MAX, u64::MAX >> 1, (1 << 36) + (1 << 24) + 1] {
            let mut bytes = small();
            bytes[field..field + bytes_of_field].copy_from_slice(&value.to_le_bytes()[..bytes_of_field]);
            rechecked(&mut bytes);
            let error = Index::open(&bytes[..]).map(drop).unwrap_err();
            assert!(matches!(error, IndexError::Malformed { .. }), "{value} at {field}: {error}");
        }
    }
}

/// An index that claims to be as long as files can be.
#[derive(Debug)]
struct Endless(Vec<u8>);

impl ReadAt for Endless {
    fn length(&self) -> io::Result<u64> {
        Ok(u64::MAX)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_at(bytes, at)
    }
}

#[test]
fn a_length_near_the_end_of_numbers_is_refused() {
    for string_bytes in [u64::MAX, u64::MAX - 4096, 1 << 63, 9] {
        let mut bytes = small();
        bytes[16..24].fill(0xff);
        bytes[56..64].copy_from_slice(&string_bytes.to_le_bytes());
        rechecked(&mut bytes);
        let error = Index::open(Endless(bytes)).map(drop).unwrap_err();
        assert!(matches!(error, IndexError::Malformed { .. }), "{string_bytes}: {error}");
    }
}

fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}

#[test]
fn the_checksums_are_those_of_the_writer() {
    let whole = small();
    let mut bytes = whole.clone();
    rechecked(&mut bytes);
    assert!(bytes == whole);
    for at in [12, 64, whole.len() - 4096 + 5] {
        bytes[at] ^= 1;
    }
    flatout_erofs::mend(&mut bytes);
    assert!(bytes == whole, "mend");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn malformed_ones_with_right_checksums_end_without_a_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    ) {
        let mut bytes = small();
        for (at, value) in flips {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        rechecked(&mut bytes);
        let _ = walk_anywhere(&bytes);
    }

    #[test]
    fn random_bytes_in_random_trees(
        tree in trees(20),
        at in any::<prop::sample::Index>(),
        length in any::<prop::sample::Index>(),
        value in 1..=255_u8,
    ) {
        let whole = build(&tree, Options::default()).0;
        let expected = walk(&whole).unwrap();
        let mut bytes = whole.clone();
        bytes[at.index(whole.len())] ^= value;
        if let Ok(found) = walk(&bytes) {
            prop_assert!(found == expected);
        }
        prop_assert!(walk(&whole[..length.index(whole.len())]).is_err());
    }
}

/// Like [`walk`], where folders may contain themselves.
fn walk_anywhere(bytes: &[u8]) -> Result<(), IndexError> {
    let index = Index::open(bytes)?;
    let files = index.files().take_while(Result::is_ok).count();
    assert!(files as u64 <= index.totals().files);
    let mut inodes = index.inodes();
    for nid in 0..index.metadata_bytes() / 32 + 2 {
        assert_eq!(inodes.inode(nid).ok(), index.inode(nid).ok());
        let Ok(inode) = index.inode(nid) else { continue };
        for entry in index.entries(&inode).take(1000) {
            let Ok(entry) = entry else { break };
            let _ = index.lookup(&inode, &entry.name);
        }
        let _ = index.object(inode.number);
        let _ = index.object_at(inode.start_block);
    }
    for nid in [u64::MAX, u64::MAX / 32, u64::MAX / 32 + 1, index.metadata_bytes() / 32] {
        assert!(index.inode(nid).is_err());
    }
    for number in 0..300 {
        let _ = index.object(number);
        let _ = index.etag(number);
    }
    Ok(())
}

#[test]
fn the_smallest_one() {
    let bytes = build(&Tree::from([(b"a".to_vec(), file(1))]), Options::default()).0;
    assert_eq!(bytes.len(), 6 * 4096, "superblock, dirents, records, folders, fences, checksums");
}
