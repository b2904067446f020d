//! The inode table: numbers that collide, what is newest, and what goes.

use proptest::prelude::*;

use super::*;
use crate::etag::Etag;
use crate::fact::NameStatus;
use crate::listing::ListingBytes;

const LIVE: Lifetimes = Lifetimes { attributes_ms: 1000, negative_ms: 500 };

fn file(asked_ms: u64, size: u64) -> Fact {
    Fact { size, asked_ms, etag: Etag::None, modified_s: 1, source: AttributeSource::Listing }
}

fn found(table: &InodeTable, name: &str, now_ms: u64) -> Option<Result<u64, ()>> {
    table.known(ROOT, name, now_ms, LIVE).map(|status| match status {
        NameStatus::Present(_, fact) => Ok(fact.size),
        NameStatus::Absent(_) => Err(()),
    })
}

#[test]
fn an_inode_takes_little() {
    assert!(size_of::<Inode>() <= 120, "{}", size_of::<Inode>());
}

#[test]
fn what_is_forgotten_takes_no_room() {
    const COUNT: usize = 60_000;
    let mut table = InodeTable::new(u64::MAX);
    let name = |n: usize| format!("name {n}");
    let inos: Vec<u64> =
        (0..COUNT).map(|n| table.keep(ROOT, &name(n), FileKind::File, file(1, n as u64))).collect();
    inos.iter().for_each(|&ino| table.look_up(ino));
    assert!(table.inodes.capacity() >= COUNT);
    // Every hundredth stays.
    for (_, &ino) in inos.iter().enumerate().filter(|(n, _)| n % 100 != 0) {
        table.forget(ino, 1, 2);
    }
    table.tidy(2000, LIVE);
    assert_eq!(table.counts().0, 1 + COUNT as u64 / 100);
    assert!(table.inodes.capacity() <= 8192, "{}", table.inodes.capacity());
    assert!(table.index.capacity() <= 8192, "{}", table.index.capacity());
    for (n, &ino) in inos.iter().enumerate() {
        assert_eq!(table.find(ROOT, FileKind::File, &name(n)), (n % 100 == 0).then_some(ino));
        assert!(table.get(ino).is_none_or(|inode| inode.ino == ino && inode.fact.size == n as u64));
    }
}

#[test]
fn the_newest_is_the_truth() {
    let mut table = InodeTable::new(u64::MAX);
    assert_eq!(found(&table, "a", 0), None);
    table.note_absent(ROOT, "a", 100);
    assert_eq!([found(&table, "a", 599), found(&table, "a", 600)], [Some(Err(())), None]);
    let ino = table.keep(ROOT, "a", FileKind::File, file(200, 7));
    assert_eq!([found(&table, "a", 1199), found(&table, "a", 1200)], [Some(Ok(7)), None]);
    // An answer that was asked for before says nothing new.
    table.keep(ROOT, "a", FileKind::File, file(150, 8));
    assert_eq!(found(&table, "a", 300), Some(Ok(7)));
    table.note_absent(ROOT, "a", 190);
    assert_eq!(found(&table, "a", 300), Some(Ok(7)));
    table.distrust(ROOT, "a", 250);
    assert_eq!(found(&table, "a", 300), None);
    table.keep(ROOT, "a", FileKind::File, file(300, 9));
    assert_eq!(found(&table, "a", 300), Some(Ok(9)));
    // A folder came in its place.
    let folder = table.keep(ROOT, "a", FileKind::Folder, Fact::folder(300));
    assert_ne!(ino, folder);
    assert_eq!(found(&table, "a", 300), Some(Ok(0)));
    assert!(
        !table.is_newest(ROOT, "a", FileKind::File, 299) && table.is_newest(ROOT, "a", FileKind::File, 300)
    );
}

#[test]
fn a_version_that_was_opened_gives_its_name_to_the_next() {
    let mut table = InodeTable::new(u64::MAX);
    let with = |etag: &str, asked_ms| Fact { etag: Etag::of(Some(etag)), ..file(asked_ms, 7) };
    let keep = |table: &mut InodeTable, fact: Fact| {
        let ino = table.keep(ROOT, "a", FileKind::File, fact);
        let inode = table.get(ino).expect("kept");
        assert_eq!(
            (inode.number, table.find(ROOT, FileKind::File, "a")),
            (table.number(ROOT, FileKind::File, "a"), Some(ino))
        );
        (ino, inode.number, inode.generation)
    };
    let first = keep(&mut table, with("\"x\"", 1));
    // Nobody has opened it.
    assert_eq!(keep(&mut table, with("\"y\"", 2)), first);
    assert!(table.get(first.0).is_some_and(|inode| inode.has_changed));
    table.open(first.0);
    // Where one does not say its ETag, size and time must do; that which is known stays.
    assert_eq!([keep(&mut table, with("\"y\"", 3)), keep(&mut table, file(4, 7))], [first; 2]);
    let second = keep(&mut table, with("\"x\"", 5));
    assert!(second.0 != first.0 && second.1 == first.1 && second.2 != first.2, "{second:?}");
    assert!(table.get(first.0).is_some_and(Inode::is_replaced));
    assert_eq!(keep(&mut table, with("\"y\"", 4)), second, "what is older teaches nothing");
    table.look_up(second.0);
    table.open(second.0);
    let third = keep(&mut table, file(6, 8));
    assert!(![first.0, second.0].contains(&third.0) && third.1 == first.1, "{third:?}");
    // Those that are closed and forgotten go, and what they had is free.
    table.unpin(second.0, 7);
    assert!(table.get(second.0).is_some_and(Inode::is_replaced), "it is looked up");
    table.forget(second.0, 1, 7);
    table.unpin(first.0, 7);
    assert!(table.get(first.0).is_none() && table.get(second.0).is_none());
    table.open(third.0);
    table.retire(third.0, 8);
    assert_eq!((table.find(ROOT, FileKind::File, "a"), found(&table, "a", 8)), (None, None));
    assert_eq!(keep(&mut table, file(9, 8)).1, first.1);
    table.unpin(third.0, 9);
    let last = table.find(ROOT, FileKind::File, "a").expect("kept");
    table.rest(last, 9);
    while table.drop_idle(9) {}
    assert_eq!((table.counts().0, table.displaced.len()), (1, 0));
}

/// A folder of which so many names were asked for in vain that none of these is remembered: what was there
/// before is not there again.
#[test]
fn what_was_noted_of_a_name_outlives_the_notes() {
    let mut table = InodeTable::new(u64::MAX);
    for name in ["gone", "there"] {
        table.keep(ROOT, name, FileKind::File, file(100, 7));
    }
    table.note_absent(ROOT, "gone", 150);
    table.keep(ROOT, "there", FileKind::File, file(200, 7));
    assert_eq!([found(&table, "gone", 200), found(&table, "there", 200)], [Some(Err(())), Some(Ok(7))]);
    for n in 0..10_000 {
        table.note_absent(ROOT, &format!("none {n}"), 200);
    }
    assert_eq!([found(&table, "gone", 200), found(&table, "there", 200)], [None, Some(Ok(7))]);
}

/// Versions that come one after the other while nobody keeps the one before leave nothing behind.
#[test]
fn versions_that_nobody_needs_go_at_once() {
    let mut table = InodeTable::new(u64::MAX);
    let mut before = None;
    for version in 0..10_000 {
        let ino = table.keep(ROOT, "a", FileKind::File, file(version, version));
        table.look_up(ino);
        table.open(ino);
        if let Some(old) = before.replace(ino) {
            table.unpin(old, version);
            table.forget(old, 1, version);
        }
        assert!(table.counts().0 <= 3);
    }
    assert!(table.displaced.values().map(Vec::len).sum::<usize>() <= 1, "{:?}", table.displaced);
}

#[test]
fn what_a_listing_said_before_does_not_come_back() {
    struct One;
    impl crate::store::ListingPages for One {
        fn next_page(&mut self) -> Result<(Vec<flatout_engine::Entry>, bool), flatout_engine::Error> {
            let listed =
                flatout_engine::Listed { key: "a".into(), size: 7, last_modified: 1, ..Default::default() };
            Ok((vec![flatout_engine::Entry::Object(listed)], true))
        }
    }
    let mut table = InodeTable::new(u64::MAX);
    let listing = Arc::new(FolderListing::new(Box::new(One), "", 100, Arc::<ListingBytes>::default()));
    listing.page_with(0, || 100, &crate::stats::TreeCounters::default()).expect("a page");
    table.set_listing(ROOT, listing);
    assert_eq!(found(&table, "a", 200), Some(Ok(7)));
    for (size, after) in [(7, Some(Ok(7))), (9, None)] {
        let ino = table.keep(ROOT, "a", FileKind::File, file(200, size));
        assert_eq!(found(&table, "a", 300), Some(Ok(size)));
        table.look_up(ino);
        table.forget(ino, 1, 300);
        while table.drop_idle(300) {}
        assert!(table.get(ino).is_none());
        assert_eq!(found(&table, "a", 300), after, "{size}");
    }
}

/// What a table holds, as one with all the memory there is would.
#[derive(Clone, Debug)]
enum Step {
    Keep(usize, usize, bool, u64),
    Open(usize),
    Close(usize),
    Forget(usize),
    Drop,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// With two bits of hash nearly everything collides: each name has its number as long as it is looked up,
    /// and no two the same.
    #[test]
    fn numbers_that_collide_are_told_apart(steps in proptest::collection::vec(
        prop_oneof![
            6 => (0..8usize, 0..8usize, any::<bool>(), 0..3u64)
                .prop_map(|(at, name, kind, size)| Step::Keep(at, name, kind, size)),
            2 => (0..64usize).prop_map(Step::Open),
            1 => (0..64usize).prop_map(Step::Close),
            3 => (0..64usize).prop_map(Step::Forget),
            1 => Just(Step::Drop),
        ],
        0..80,
    )) {
        let mut table = InodeTable::new(0b11 << 40);
        let mut looked_up: Vec<(u64, u64, String, FileKind)> = Vec::new();
        // With what was opened by them: that is what they are to the end.
        let mut open: Vec<(u64, u64)> = Vec::new();
        for (step, now_ms) in steps.into_iter().zip(1..) {
            match step {
                Step::Keep(at, name, is_folder, size) => {
                    let folders: Vec<u64> = looked_up.iter().filter(|row| row.3 == FileKind::Folder).map(|row| row.0).collect();
                    let parent = folders.get(at).copied().unwrap_or(ROOT);
                    let (name, kind) = (format!("n{name}"), if is_folder { FileKind::Folder } else { FileKind::File });
                    let number = table.number(parent, kind, &name);
                    let ino = table.keep(parent, &name, kind, file(now_ms, if is_folder { 0 } else { size }));
                    prop_assert_eq!(table.get(ino).map(|inode| inode.number), Some(number));
                    table.look_up(ino);
                    looked_up.push((ino, parent, name, kind));
                }
                Step::Forget(at) if !looked_up.is_empty() => {
                    let row = looked_up.swap_remove(at % looked_up.len());
                    table.forget(row.0, 1, 5);
                }
                Step::Open(at) if !looked_up.is_empty() => {
                    let (ino, kind) = { let row = &looked_up[at % looked_up.len()]; (row.0, row.3) };
                    let inode = table.get(ino).expect("looked up");
                    if kind == FileKind::File && !inode.is_replaced() {
                        open.push((ino, inode.fact.size));
                        table.open(ino);
                    }
                }
                Step::Close(at) if !open.is_empty() => {
                    let (ino, _) = open.swap_remove(at % open.len());
                    table.unpin(ino, 5);
                }
                Step::Forget(_) | Step::Open(_) | Step::Close(_) => {}
                Step::Drop => while table.drop_idle(5) {},
            }
            for (ino, parent, name, kind) in &looked_up {
                // A parent that was forgotten is needed by its child.
                prop_assert!(table.get(*parent).is_some());
                let inode = table.get(*ino).expect("looked up");
                prop_assert_eq!((inode.parent, inode.kind, &*inode.name), (*parent, *kind, &**name));
                prop_assert_eq!(table.find(*parent, *kind, name) == Some(*ino), !inode.is_replaced());
            }
            for (ino, size) in &open {
                prop_assert_eq!(table.get(*ino).map(|inode| inode.fact.size), Some(*size));
            }
        }
        for (ino, _) in open {
            table.unpin(ino, 5);
        }
        for (ino, ..) in looked_up {
            table.forget(ino, 1, 5);
        }
        while table.drop_idle(5) {}
        prop_assert_eq!(table.counts().0, 1);
        prop_assert!(table.displaced.is_empty());
        prop_assert_eq!(table.bytes(), InodeTable::new(0).bytes());
    }
}
