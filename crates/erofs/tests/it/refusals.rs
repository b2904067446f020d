//! What the writer refuses.

use std::io::Cursor;

use flatout_erofs::{Index, Options, Unnamable, WriteError, Writer};

type InMemory = Writer<Cursor<Vec<u8>>, Cursor<Vec<u8>>>;

fn writer() -> InMemory {
    Writer::new(Cursor::new(Vec::new()), Cursor::new(Vec::new()), Options::default()).unwrap()
}

#[test]
fn keys_that_cannot_be_added_change_nothing() {
    let mut writer = writer();
    writer.add(b"b/c/d", 1, 1, None).unwrap();
    let long = [&b"b/c/"[..], &[b'x'; 256]].concat();
    for (key, why) in [
        (&b"b/c//d"[..], Unnamable::Empty),
        (b"b/c/../d", Unnamable::Dots),
        (&long, Unnamable::TooLong),
        (b"b/c/e\0", Unnamable::Nul),
        (b"", Unnamable::Empty),
    ] {
        let refused = writer.add(key, 1, 1, None).unwrap_err();
        assert!(matches!(refused, WriteError::Unnamable { why: is, .. } if is == why), "{refused}");
    }
    assert!(matches!(writer.add(b"b/c/d", 1, 1, None), Err(WriteError::Twice { .. })));
    assert!(matches!(writer.add(b"b/c", 1, 1, None), Err(WriteError::Order { .. })));
    assert!(matches!(writer.add_folder(b"b/", 1), Err(WriteError::Order { .. })));
    assert!(matches!(writer.add_folder(b"c", 1), Err(WriteError::Unnamable { .. })));
    writer.add_folder(b"b/c/e/", 1).unwrap();
    assert!(matches!(writer.add_folder(b"b/c/e/", 1), Err(WriteError::Twice { .. })));
    writer.add(b"b/c/e/f", 2, 1, None).unwrap();
    let (file, summary) = writer.finish().unwrap();
    assert_eq!((summary.files, summary.folders, summary.file_bytes), (2, 4, 3));
    Index::open(&file.into_inner()[..]).unwrap().verify().unwrap();
}

#[test]
fn sixteen_tib_are_the_most() {
    let most = (u64::from(u32::MAX) - u64::from(flatout_erofs::DATA_BLOCK)) * 4096;
    let mut full = writer();
    full.add(b"a", most - 4096, 1, None).unwrap();
    full.add(b"b", 4096, 1, None).unwrap();
    full.add(b"c", 0, 1, None).unwrap();
    let (file, _) = full.finish().unwrap();
    let bytes = file.into_inner();
    let index = Index::open(&bytes[..]).unwrap();
    assert_eq!(index.object_at(u32::MAX - 1).unwrap().unwrap().path, b"b");
    assert_eq!(index.object_at(u32::MAX - 2).unwrap().unwrap().path, b"a");
    assert_eq!(index.object_at(u32::MAX).unwrap(), None);

    let mut over = writer();
    over.add(b"a", most, 1, None).unwrap();
    over.add(b"b", 1, 1, None).unwrap();
    over.add(b"c", 4 << 40, 1, None).unwrap();
    over.add(b"d/e", u64::MAX, 1, None).unwrap();
    let refused = over.finish().unwrap_err().to_string();
    assert!(
        refused.contains("the files take 16777216.00 TiB") || refused.contains("TiB in blocks"),
        "{refused}"
    );

    let mut over = writer();
    over.add(b"a", 20 << 40, 1, None).unwrap();
    let refused = over.finish().unwrap_err().to_string();
    assert_eq!(
        refused,
        "the files take 20.00 TiB in blocks of 4 KiB, 15.94 TiB at most fit one index: make several, by prefix"
    );
}
