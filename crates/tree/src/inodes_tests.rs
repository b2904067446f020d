//! The inode table: numbers that collide, what is newest, and what goes.

use proptest::prelude::*;

use super::*;
use crate::etag::Etag;
use crate::listing::Held;

const LIVE: Lifetimes = Lifetimes { attributes_ms: 1000, negative_ms: 500 };

fn file(told_ms: u64, size: u64) -> Fact {
    Fact { size, told_ms, etag: Etag::None, modified_s: 1, source: Source::Listing }
}

fn found(table: &Table, name: &str, now_ms: u64) -> Option<Result<u64, ()>> {
    table.known(ROOT, name, now_ms, LIVE).map(|finding| match finding {
        Finding::There(_, fact) => Ok(fact.size),
        Finding::Absent(_) => Err(()),
    })
}

#[test]
fn an_inode_takes_little() {
    assert!(size_of::<Inode>() <= 120, "{}", size_of::<Inode>());
}

#[test]
fn what_is_forgotten_takes_no_room() {
    const COUNT: usize = 60_000;
    let mut table = Table::new(u64::MAX);
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
    let mut table = Table::new(u64::MAX);
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
fn a_version_is_another_when_its_etag_is() {
    let mut table = Table::new(u64::MAX);
    let with = |etag: &str, told_ms| Fact { etag: Etag::of(Some(etag)), ..file(told_ms, 7) };
    let ino = table.keep(ROOT, "a", FileKind::File, with("\"x\"", 1));
    let version = |table: &Table| table.get(ino).expect("kept").version;
    let first = version(&table);
    table.learn(ino, with("\"x\"", 2));
    // Where one does not say its ETag, size and time must do.
    table.learn(ino, file(3, 7));
    assert_eq!(version(&table), first);
    table.learn(ino, file(4, 8));
    assert_ne!(version(&table), first);
    table.learn(ino, with("\"y\"", 5));
    let third = version(&table);
    table.learn(ino, with("\"x\"", 4));
    assert_eq!(version(&table), third, "what is older teaches nothing");
}

#[test]
fn what_a_listing_said_before_does_not_come_back() {
    struct One;
    impl crate::store::Pages for One {
        fn next_page(&mut self) -> Result<(Vec<flatout_engine::Entry>, bool), flatout_engine::Error> {
            let listed =
                flatout_engine::Listed { key: "a".into(), size: 7, last_modified: 1, ..Default::default() };
            Ok((vec![flatout_engine::Entry::Object(listed)], true))
        }
    }
    let mut table = Table::new(u64::MAX);
    let listing = Arc::new(FolderListing::new(Box::new(One), "", 100, Arc::<Held>::default()));
    listing.page_with(0, || 100, &crate::stats::Counters::default()).expect("a page");
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
    Keep(usize, usize, bool),
    Forget(usize),
    Drop,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// With two bits of hash nearly everything collides: each name has its number as long as it is looked up, and no two the same.
    #[test]
    fn numbers_that_collide_are_told_apart(steps in proptest::collection::vec(
        prop_oneof![
            6 => (0..8usize, 0..8usize, any::<bool>()).prop_map(|(at, name, kind)| Step::Keep(at, name, kind)),
            3 => (0..64usize).prop_map(Step::Forget),
            1 => Just(Step::Drop),
        ],
        0..80,
    )) {
        let mut table = Table::new(0b11 << 40);
        let mut looked_up: Vec<(u64, u64, String, FileKind)> = Vec::new();
        for step in steps {
            match step {
                Step::Keep(at, name, is_folder) => {
                    let folders: Vec<u64> = looked_up.iter().filter(|row| row.3 == FileKind::Folder).map(|row| row.0).collect();
                    let parent = folders.get(at).copied().unwrap_or(ROOT);
                    let (name, kind) = (format!("n{name}"), if is_folder { FileKind::Folder } else { FileKind::File });
                    let wanted = table.number(parent, kind, &name);
                    let ino = table.keep(parent, &name, kind, file(1, 1));
                    prop_assert_eq!(ino, wanted);
                    table.look_up(ino);
                    looked_up.push((ino, parent, name, kind));
                }
                Step::Forget(at) if !looked_up.is_empty() => {
                    let row = looked_up.swap_remove(at % looked_up.len());
                    table.forget(row.0, 1, 5);
                }
                Step::Forget(_) => {}
                Step::Drop => while table.drop_idle(5) {},
            }
            for (ino, parent, name, kind) in &looked_up {
                // A parent that was forgotten is needed by its child.
                prop_assert!(table.get(*parent).is_some());
                prop_assert_eq!(table.find(*parent, *kind, name), Some(*ino));
            }
        }
        for (ino, ..) in looked_up {
            table.forget(ino, 1, 5);
        }
        while table.drop_idle(5) {}
        prop_assert_eq!(table.counts().0, 1);
        prop_assert!(table.displaced.is_empty());
        prop_assert_eq!(table.bytes(), Table::new(0).bytes());
    }
}
