//! Indexes of remote objects: whatever the bytes, each call of the reader ends, none panics, and their
//! answers agree with each other.

use flatout_erofs::{DATA_BLOCK, Index, Inode, Kind, Object, ROOT, Totals, check_path, mend};

type Reader<'a> = Index<&'a [u8]>;

const BLOCK: u64 = 4096;
/// The longest packed index: larger ones have nothing that these lack, and take longer.
const BLOCKS_MAX: usize = 24;
/// Zeros that a packed index keeps, because the next run would take as many bytes.
const ZEROS_KEPT: usize = 4;
const SOURCE_BYTES_MAX: usize = 2048;
const PATH_BYTES_MAX: usize = 4096;
const ETAG_BYTES_MAX: usize = 1024;
/// Files that are looked up one by one.
const FILES_ASKED: usize = 50;

/// `bytes` are an index as it is, and the [`packed`] form of one. That gets right checksums, so that what
/// lies behind them is read.
pub fn indexes(bytes: &[u8]) {
    check(bytes, false);
    check(&unpacked(bytes), true);
}

/// The form of an index that a fuzzer can change: the number of its blocks, then runs of bytes, each with its
/// place (3 bytes) and length (1 byte). Everything else is zero.
pub fn packed(index: &[u8]) -> Vec<u8> {
    let blocks = index.len() / BLOCK as usize;
    let mut packed = vec![u8::try_from(blocks).expect("an index of few blocks")];
    let mut at = 0;
    while at < index.len() {
        let rest = &index[at..index.len().min(at + usize::from(u8::MAX))];
        let length =
            rest.windows(ZEROS_KEPT).position(|bytes| bytes == [0; ZEROS_KEPT]).unwrap_or(rest.len());
        if length > 0 {
            packed.extend_from_slice(&(at as u32).to_le_bytes()[..3]);
            packed.push(length as u8);
            packed.extend_from_slice(&rest[..length]);
        }
        at += length.max(1);
    }
    packed
}

fn unpacked(packed: &[u8]) -> Vec<u8> {
    let Some((&blocks, mut rest)) = packed.split_first() else { return Vec::new() };
    let mut index = vec![0; usize::from(blocks).min(BLOCKS_MAX) * BLOCK as usize];
    while let [low, middle, high, length, behind @ ..] = rest {
        let (run, next) = behind.split_at(behind.len().min(usize::from(*length)));
        let at = u32::from_le_bytes([*low, *middle, *high, 0]) as usize;
        let place = index.get_mut(at..).unwrap_or_default();
        place.iter_mut().zip(run).for_each(|(to, from)| *to = *from);
        rest = next;
    }
    mend(&mut index);
    index
}

fn check(bytes: &[u8], is_mended: bool) {
    let Ok(index) = Index::open(bytes) else { return };
    assert!(index.source().len() <= SOURCE_BYTES_MAX, "{} bytes of source", index.source().len());
    assert!(index.metadata_bytes() <= bytes.len() as u64, "metadata beyond the end");
    assert!(index.image_bytes() >= u64::from(DATA_BLOCK) * BLOCK, "data before their place");
    let is_verified = index.verify().is_ok();
    assert!(is_verified || !is_mended, "a block does not have the checksum that it was given");
    let (files, is_whole) = walk(&index);
    if is_whole {
        let Totals { files: count, .. } = index.totals();
        assert_eq!(files.len() as u64, count, "files of a whole walk");
        assert_eq!(walk_by_entries(&index), sorted_paths(&files), "the two walks");
    }
    for file in files.iter().take(FILES_ASKED) {
        if is_whole {
            assert_eq!(found(&index, &file.path), file.nid, "{:?}", lossy(&file.path));
        }
        check_address(&index, file.start_block);
        let last = u64::from(file.start_block) + file.size.div_ceil(BLOCK).saturating_sub(1);
        check_address(&index, last.min(u32::MAX.into()) as u32);
    }
    for block in [0, 1, DATA_BLOCK - 1, DATA_BLOCK, DATA_BLOCK + 1, u32::MAX - 1, u32::MAX] {
        check_address(&index, block);
    }
    check_inodes(&index);
}

/// The files until an error, and whether there was none.
fn walk(index: &Reader<'_>) -> (Vec<Object>, bool) {
    let mut files: Vec<Object> = Vec::new();
    let mut walk = index.files();
    for file in walk.by_ref() {
        let Ok(file) = file else {
            assert!(walk.next().is_none(), "it goes on after an error");
            return (files, false);
        };
        assert!((files.len() as u64) < index.totals().files, "more files than there are");
        let before = files.last().map_or(&[][..], |file| &file.path);
        assert!(*before < *file.path, "{:?} after {:?}", lossy(&file.path), lossy(before));
        check_object(&file);
        files.push(file);
    }
    (files, true)
}

fn check_object(object: &Object) {
    let Object { path, size, etag, start_block, .. } = object;
    assert!(path.len() <= PATH_BYTES_MAX && check_path(path).is_ok(), "{:?}", lossy(path));
    assert!(etag.as_ref().is_none_or(|etag| etag.len() <= ETAG_BYTES_MAX), "an ETag of {etag:?}");
    assert!(*size > 0 || *start_block == 0, "an empty file has an address");
}

fn sorted_paths(files: &[Object]) -> Vec<&[u8]> {
    files.iter().map(|file| &*file.path).collect()
}

/// The paths of all files in their order, of an index whose walk has met no error.
fn walk_by_entries(index: &Reader<'_>) -> Vec<Vec<u8>> {
    let (mut open, mut found) = (vec![(Vec::new(), ROOT)], Vec::new());
    let mut inodes = index.inodes();
    while let Some((prefix, nid)) = open.pop() {
        let folder = inodes.inode(nid).expect("a folder that was walked");
        for entry in index.entries(&folder) {
            let entry = entry.expect("an entry that was walked");
            let mut path: Vec<u8> = [&prefix[..], &entry.name].concat();
            match entry.kind {
                Kind::File => found.push(path),
                Kind::Folder => {
                    path.push(b'/');
                    open.push((path, entry.nid));
                }
            }
        }
    }
    found.sort();
    found
}

/// The nid at the end of a path that a walk has found.
fn found(index: &Reader<'_>, path: &[u8]) -> u64 {
    let mut inodes = index.inodes();
    path.split(|&byte| byte == b'/').fold(ROOT, |folder, name| {
        let folder = inodes.inode(folder).expect("a folder that was walked");
        let entry = index.lookup(&folder, name).expect("a folder that was walked");
        entry.unwrap_or_else(|| panic!("{:?} is listed, and not found", lossy(path))).nid
    })
}

/// The object with data in a block has data there.
fn check_address(index: &Reader<'_>, block: u32) {
    let Ok(Some(object)) = index.object_at(block) else { return };
    check_object(&object);
    let start = u64::from(object.start_block);
    let blocks = start..start + object.size.div_ceil(BLOCK);
    assert!(blocks.contains(&block.into()), "block {block} of {blocks:?}");
}

/// All addresses that an inode can have, whoever names them, and all numbers.
fn check_inodes(index: &Reader<'_>) {
    let mut inodes = index.inodes();
    let end = index.metadata_bytes() / 32;
    for nid in (0..=end).chain([u64::MAX / 32, u64::MAX / 32 + 1, u64::MAX]) {
        let inode = inodes.inode(nid).ok();
        assert_eq!(inode, index.inode(nid).ok(), "inode {nid}, from the cache and not");
        assert!(inode.is_none() || nid < end, "inode {nid} lies outside the metadata");
        if let Some(folder) = inode.filter(|inode| inode.kind == Kind::Folder) {
            check_folder(index, &folder);
        }
    }
    let Totals { files, folders, .. } = index.totals();
    for number in (0..(files + folders).min(300) as u32).chain([u32::MAX]) {
        let etag = index.etag(number);
        let Ok(Some(object)) = index.object(number) else { continue };
        check_object(&object);
        assert_eq!(etag.ok(), Some(object.etag), "the ETag of {number}");
        assert_eq!(index.inode(object.nid).ok().map(|inode| inode.number), Some(number));
    }
}

/// What may be no folder.
fn check_folder(index: &Reader<'_>, folder: &Inode) {
    for entry in index.entries(folder).take(FILES_ASKED) {
        let Ok(entry) = entry else { break };
        assert!(check_path(&entry.name).is_ok() && !entry.name.contains(&b'/'), "{:?}", lossy(&entry.name));
        if let Ok(Some(found)) = index.lookup(folder, &entry.name) {
            assert_eq!(found.name, entry.name);
        }
    }
}

fn lossy(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_corpus_is_of_indexes() {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/indexes");
        let mut whole = 0;
        for file in fs::read_dir(corpus).expect("a folder") {
            let bytes = fs::read(file.expect("a file").path()).expect("a file");
            let index = unpacked(&bytes);
            whole += usize::from(Index::open(&index[..]).is_ok_and(|index| walk(&index).1));
        }
        assert!(whole >= 10, "{whole}: run `cargo run -p flatout-properties --example indexes`");
    }

    /// What chance finds late: a size of 0 beside an address, a folder that is the root again.
    #[test]
    fn every_byte_of_small_indexes() {
        let mut tried = 0;
        for name in ["one", "source", "strings", "folders"] {
            let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/indexes");
            let whole = fs::read(format!("{corpus}/{name}")).expect("a file");
            for (at, value) in
                (0..whole.len()).flat_map(|at| [0, 1, ROOT as u8, 0xff].map(|value| (at, value)))
            {
                let mut bytes = whole.clone();
                bytes[at] = value;
                indexes(&bytes);
                tried += 1;
            }
        }
        assert!(tried > 5000, "{tried}");
    }

    #[test]
    fn packed_and_unpacked_again() {
        let mut index = vec![0; 3 * BLOCK as usize];
        for at in [0, 1, 300, 305, 900, 4096, 8191] {
            index[at..at + at % 7].fill(7);
        }
        index[5000..6000].fill(9);
        index[6000..6500].iter_mut().step_by(3).for_each(|byte| *byte = 1);
        mend(&mut index);
        assert!(unpacked(&packed(&index)) == index);
    }
}
