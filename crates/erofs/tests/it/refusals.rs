//! Refusals of the writer, and disks that fail.

use std::cell::{Cell, RefCell, RefMut};
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::rc::Rc;

use flatout_erofs::{DATA_BLOCK, Index, IndexError, Options, ROOT, Unnamable, WriteError, Writer};

type InMemory = Writer<Cursor<Vec<u8>>, Cursor<Vec<u8>>>;

fn writer() -> InMemory {
    Writer::new(Cursor::new(Vec::new()), Cursor::new(Vec::new()), Options::default()).unwrap()
}

#[test]
fn keys_that_cannot_be_added_leave_the_others() {
    let mut writer = writer();
    let refused = |result: Result<(), WriteError>| match result.unwrap_err() {
        WriteError::Unnamable { why, .. } => Some(why),
        WriteError::Twice { .. } => None,
        other => panic!("{other}"),
    };
    let long = [&b"b/c/"[..], &[b'x'; 256]].concat();
    let table = [
        (&b""[..], Some(Unnamable::Empty)),
        (b"/a", Some(Unnamable::Empty)),
        (b"b/c/../d", Some(Unnamable::Dots)),
        (b"b/c//d", Some(Unnamable::Empty)),
        (b"b/c/e\0", Some(Unnamable::Nul)),
        (&long, Some(Unnamable::TooLong)),
        (&long, None),
        (b"c//", Some(Unnamable::Empty)),
    ];
    writer.add(b"#", 1, 1, None).unwrap();
    for (key, why) in table {
        assert_eq!(refused(writer.add(key, 1, 1, None)), why, "{key:?}");
    }
    writer.add_folder(b"d/e/", 1).unwrap();
    assert_eq!(refused(writer.add_folder(b"d/e/", 1)), None);
    writer.add(b"d/e/f", 2, 1, None).unwrap();
    let WriteError::Unnamable { key, .. } = writer.add(b"e\xff//", 1, 1, None).unwrap_err() else {
        panic!("a component is empty");
    };
    assert_eq!(key, b"e\xff//", "its bytes, although they are not UTF-8");
    let (file, summary) = writer.finish().unwrap();
    // The root, b, b/c, c, d, d/e and e\xff.
    assert_eq!((summary.files, summary.folders, summary.file_bytes), (2, 7, 3));
    Index::open(&file.into_inner()[..]).unwrap().verify().unwrap();
}

#[test]
fn keys_out_of_order_leave_no_index() {
    type Add = fn(&mut InMemory) -> Result<(), WriteError>;
    let rows: [Add; 4] = [
        |writer| writer.add(b"b/c", 1, 1, None),
        |writer| writer.add(b"a", 1, 1, None),
        |writer| writer.add_folder(b"b/", 1),
        |writer| writer.add_folder(b"", 1),
    ];
    for (row, add) in rows.into_iter().enumerate() {
        let mut writer = writer();
        writer.add(b"b/c/d", 1, 1, None).unwrap();
        let error = add(&mut writer).unwrap_err();
        assert!(matches!(error, WriteError::Order { .. }) && !error.is_of_key(), "row {row}: {error}");
        for outcome in [writer.add(b"c", 1, 1, None), writer.add_folder(b"d", 1), writer.add_folder(b"", 1)] {
            assert!(matches!(outcome, Err(WriteError::Broken)), "row {row}: {outcome:?}");
        }
        assert!(matches!(writer.finish(), Err(WriteError::Broken)), "row {row}");
    }
}

#[test]
fn markers_of_folders() {
    let root_time = |marked_s: Option<i64>| {
        let mut writer = writer();
        if let Some(marked_s) = marked_s {
            writer.add_folder(b"", marked_s).unwrap();
            let twice = writer.add_folder(b"", marked_s).unwrap_err();
            assert!(matches!(twice, WriteError::Twice { .. }), "{twice}");
        }
        let error = writer.add_folder(b"a", 1).unwrap_err();
        assert_eq!(error.to_string(), "\"a\" does not end in a slash, so it marks no folder");
        assert!(error.is_of_key());
        writer.add(b"a/b", 1, 77, None).unwrap();
        writer.add_folder(b"c/", 0).unwrap();
        writer.add(b"c/d", 1, 66, None).unwrap();
        let bytes = writer.finish().unwrap().0.into_inner();
        let index = Index::open(&bytes[..]).unwrap();
        let root = index.inode(ROOT).unwrap();
        let c = index.lookup(&root, b"c").unwrap().unwrap();
        assert_eq!(index.inode(c.nid).unwrap().modified_s, 66);
        root.modified_s
    };
    let table = [(None, 77), (Some(5), 5), (Some(99), 99), (Some(0), 77), (Some(-3), 77)];
    for (marked_s, expected) in table {
        assert_eq!(root_time(marked_s), expected, "{marked_s:?}");
    }
}

#[test]
fn long_keys_and_etags_are_errors_of_their_keys() {
    let mut writer = writer();
    let key = |bytes: usize| b"a/".iter().copied().cycle().take(bytes).collect::<Vec<u8>>();
    let etag = "x".repeat(1024);
    writer.add(&key(4095), 1, 1, Some(&etag)).unwrap();
    writer.add_folder(&[&key(4095)[..], b"b/"].concat(), 1).unwrap();
    let error = writer.add(&[&key(4095)[..], b"bb"].concat(), 1, 1, None).unwrap_err();
    assert!(matches!(error, WriteError::KeyTooLong { most: 4096, .. }) && error.is_of_key(), "{error}");
    let error = writer.add(b"b/c", 1, 1, Some(&"x".repeat(1025))).unwrap_err();
    assert_eq!(error.to_string(), "the ETag of \"b/c\" has 1025 bytes, 1024 at most fit an index");
    assert!(error.is_of_key());
    let bytes = writer.finish().unwrap().0.into_inner();
    let index = Index::open(&bytes[..]).unwrap();
    let object = index.object_at(DATA_BLOCK).unwrap().unwrap();
    assert_eq!((object.path, object.etag), (key(4095), Some(etag)));
}

#[test]
fn sources_are_short() {
    let built = |bytes: usize| {
        let options = Options { source: "x".repeat(bytes), ..Options::default() };
        Writer::new(Cursor::new(Vec::new()), Cursor::new(Vec::new()), options)
    };
    let mut writer = built(2048).unwrap();
    writer.add(b"a", 1, 1, Some("odd")).unwrap();
    let bytes = writer.finish().unwrap().0.into_inner();
    let index = Index::open(&bytes[..]).unwrap();
    assert_eq!(index.source(), "x".repeat(2048));
    assert_eq!(index.object_at(DATA_BLOCK).unwrap().unwrap().etag.as_deref(), Some("odd"));
    let error = built(2049).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "the source of the index has 2049 bytes, 2048 at most fit an index");
    assert!(!error.is_of_key());
}

#[test]
fn paths_of_all_shadowed_files_are_named() {
    let mut writer = writer();
    let mut seen = Vec::new();
    for number in 0..1500 {
        let key = format!("p/{number:04}");
        writer.add(key.as_bytes(), 1, 1, None).unwrap();
        writer.add(format!("{key}/x").as_bytes(), 1, 1, None).unwrap();
        seen.append(&mut writer.take_shadowed());
    }
    assert_eq!(seen.len(), 0, "the folder is not complete");
    writer.add(b"q", 1, 1, None).unwrap();
    let expected: Vec<_> = (0..1500).map(|number| format!("p/{number:04}").into_bytes()).collect();
    assert_eq!(writer.take_shadowed(), expected);
    writer.add(b"q/x", 1, 1, None).unwrap();
    let summary = writer.finish().unwrap().1;
    assert_eq!((summary.shadowed, summary.shadowed_paths), (1501, vec![b"q".to_vec()]));
}

/// A file that others can look at, on a disk that fails.
#[derive(Clone, Debug)]
struct Failing {
    file: Rc<RefCell<Cursor<Vec<u8>>>>,
    room: u64,
    /// Reads, writes and seeks that succeed before one fails.
    operations: Rc<Cell<u32>>,
}

impl Failing {
    fn new(room: u64, operations: u32) -> Failing {
        let file = Rc::new(RefCell::new(Cursor::new(Vec::new())));
        Failing { file, room, operations: Rc::new(Cell::new(operations)) }
    }

    fn operate(&self) -> io::Result<RefMut<'_, Cursor<Vec<u8>>>> {
        let left = self.operations.get();
        // One failure: a writer that went on would make an index with a gap.
        self.operations.set(if left == 0 { u32::MAX } else { left - 1 });
        if left == 0 { Err(io::Error::other("the disk failed")) } else { Ok(self.file.borrow_mut()) }
    }

    /// Asserts that no reader takes the bytes for an index.
    fn check_no_index(&self, case: &str) {
        let opened = Index::open(&self.file.borrow().get_ref()[..]).map(drop);
        assert!(matches!(opened, Err(IndexError::NotAnIndex)), "{case}: {opened:?}");
    }
}

impl Read for Failing {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.operate()?.read(bytes)
    }
}

impl Seek for Failing {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.operate()?.seek(to)
    }
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut file = self.operate()?;
        if file.position() + bytes.len() as u64 > self.room {
            return Err(io::ErrorKind::StorageFull.into());
        }
        file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Builds an index of this many keys, a thousand to a folder. The caller of `add` goes on after errors.
fn build_on(file: &Failing, scratch: &Failing, keys: u32) -> Result<(), WriteError> {
    let mut writer = Writer::new(file.clone(), scratch.clone(), Options::default())?;
    let mut failed = 0;
    for number in 0..keys {
        let key = format!("{}/{number:08}", number / 1000 + 10);
        let added = writer.add(key.as_bytes(), 1, 1, Some("neither MD5 nor parts"));
        failed += u32::from(added.is_err_and(|error| !error.is_of_key()));
    }
    let finished = writer.finish().map(drop);
    let is_broken = matches!(finished, Err(WriteError::Broken));
    assert_eq!(is_broken, failed > 0, "{finished:?}");
    finished
}

#[test]
fn a_full_disk_makes_no_index() {
    for room in [0, 1 << 20, 3 << 20] {
        let (disk, scratch) = (Failing::new(room, u32::MAX), Failing::new(u64::MAX, u32::MAX));
        build_on(&disk, &scratch, 60_000).unwrap_err();
        disk.check_no_index(&format!("{room} bytes"));
    }
}

#[test]
fn a_disk_that_fails_once_makes_no_index() {
    // More than one buffer of metadata and of each long stream.
    let keys = 20_000;
    let healthy = || Failing::new(u64::MAX, u32::MAX);
    let (file, scratch) = (healthy(), healthy());
    build_on(&file, &scratch, keys).unwrap();
    Index::open(&file.file.borrow().get_ref()[..]).unwrap().verify().unwrap();
    let operations = |disk: &Failing| u32::MAX - disk.operations.get();
    let (of_file, of_scratch) = (operations(&file), operations(&scratch));
    assert!(of_file >= 10 && of_scratch >= 8, "{of_file} and {of_scratch}: too few to say much");
    for operation in 0..of_file {
        let file = Failing::new(u64::MAX, operation);
        build_on(&file, &healthy(), keys).unwrap_err();
        file.check_no_index(&format!("operation {operation} of the file"));
    }
    for operation in 0..of_scratch {
        let file = healthy();
        build_on(&file, &Failing::new(u64::MAX, operation), keys).unwrap_err();
        file.check_no_index(&format!("operation {operation} of the scratch file"));
    }
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
    assert!(refused.starts_with("the files take 16777216.00 TiB in blocks"), "{refused}");

    let mut over = writer();
    over.add(b"a", 20 << 40, 1, None).unwrap();
    let refused = over.finish().unwrap_err().to_string();
    assert_eq!(
        refused,
        "the files take 20.00 TiB in blocks of 4 KiB, 15.94 TiB at most fit one index: make several, by prefix"
    );
}
