//! Joins and decisions against a model: two trees as maps, of which some names cannot be read.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use crate::decide::{Compare, Decision, Rules, Way};
use crate::item::{Covers, Entry, Item};
use crate::join::{Join, Joined, Side, Which};

/// What a tree holds, and where it cannot be read.
#[derive(Clone, Debug)]
struct Tree {
    /// Names and sizes.
    files: BTreeMap<String, u64>,
    unreadable: BTreeSet<String>,
    /// The walk breaks off before this name.
    breaks_at: Option<String>,
}

impl Tree {
    /// The walk of it, as an origin's listing or a folder would be told.
    fn items(&self) -> Vec<Item<()>> {
        let mut items = BTreeMap::new();
        for (name, size) in &self.files {
            let hidden = self.unreadable.iter().find(|folder| is_below(name, folder));
            let (place, item) = match hidden {
                Some(place) if place.ends_with('/') => {
                    (place.clone(), Item::Unknown { covers: Covers::Below(place.clone()), why: () })
                }
                Some(place) => {
                    (place.clone(), Item::Unknown { covers: Covers::Path(place.clone()), why: () })
                }
                None => (name.clone(), Item::Present(entry(name, *size))),
            };
            items.insert(place, item);
        }
        let Some(end) = &self.breaks_at else { return items.into_values().collect() };
        let mut told: Vec<_> =
            items.into_iter().filter(|(place, _)| place < end).map(|(_, item)| item).collect();
        told.push(Item::Unknown { covers: Covers::Rest, why: () });
        told
    }

    /// What is known of a name.
    fn side(&self, name: &str) -> Side {
        let is_hidden =
            |folder: &String| is_below(name, folder) && self.files.keys().any(|file| is_below(file, folder));
        // Behind the last that was told, wherever the walk broke off.
        let told = self.items().into_iter().rev().find_map(|item| match item {
            Item::Present(entry) => Some(entry.name),
            Item::Unknown { covers: Covers::Rest, .. } => None,
            Item::Unknown { covers, .. } => Some(covers.place().to_owned()),
            _ => None,
        });
        let is_behind = self.breaks_at.is_some() && told.is_none_or(|told| name > told.as_str());
        if is_behind || self.unreadable.iter().any(is_hidden) {
            return Side::Unknown;
        }
        self.files.get(name).map_or(Side::Absent, |size| Side::Present(entry(name, *size)))
    }
}

fn is_below(name: &str, place: &str) -> bool {
    match place.ends_with('/') {
        true => name.starts_with(place),
        false => Covers::Path(place.to_owned()).has(name),
    }
}

fn entry(name: &str, size: u64) -> Entry {
    Entry { name: name.to_owned(), size, modified_ns: Some(0), etag: None, file: None }
}

/// Few letters, and those on both sides of `/`.
fn names() -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(vec!["a", "b", "a!", "a.", "a0", "ä"]), 1..4)
        .prop_map(|words| words.join("/"))
}

fn trees() -> impl Strategy<Value = Tree> {
    let files = proptest::collection::btree_map(names(), 0..3_u64, 0..20);
    let places = proptest::collection::btree_set((names(), any::<bool>()), 0..3);
    (files, places, proptest::option::weighted(0.3, names())).prop_map(|(files, places, breaks_at)| {
        // In a folder a name is a file or a folder.
        let is_clear = |name: &String| !files.keys().any(|other| name.starts_with(&format!("{other}/")));
        let files: BTreeMap<_, _> = files
            .iter()
            .filter(|(name, _)| is_clear(name))
            .map(|(name, size)| (name.clone(), *size))
            .collect();
        let place = |(name, is_folder): (String, bool)| if is_folder { format!("{name}/") } else { name };
        Tree { files, unreadable: places.into_iter().map(place).collect(), breaks_at }
    })
}

fn is_disjoint(tree: &Tree) -> bool {
    // One place within another is never told.
    tree.unreadable.iter().all(|one| {
        tree.unreadable.iter().all(|other| {
            one == other || !is_below(one, other) && one.trim_end_matches('/') != other.trim_end_matches('/')
        })
    })
}

const RULES: Rules = Rules { way: Way::Down, compare: Compare::SizeAndTime, target_ahead_ns: 0 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1_000) })]

    #[test]
    fn each_name_is_told_once_with_what_is_known_of_it(source in trees(), target in trees()) {
        prop_assume!(is_disjoint(&source) && is_disjoint(&target));
        let mut told = BTreeMap::new();
        let mut last = String::new();
        for joined in Join::new(source.items().into_iter(), target.items().into_iter(), false) {
            match joined {
                Joined::Pair { name, source, target } => {
                    prop_assert!(name > last, "{name} behind {last}");
                    last.clone_from(&name);
                    told.insert(name, (source, target));
                }
                Joined::Unknown { .. } => {}
                other => prop_assert!(false, "{other:?}"),
            }
        }
        let all: BTreeSet<&String> = source.files.keys().chain(target.files.keys()).collect();
        for name in all {
            let (of_source, of_target) = (source.side(name), target.side(name));
            let is_told = [&of_source, &of_target].iter().any(|side| matches!(side, Side::Present(_)));
            prop_assert_eq!(told.remove(name), is_told.then_some((of_source, of_target)), "{}", name);
        }
        prop_assert!(told.is_empty(), "{told:?}");
    }

    #[test]
    fn no_run_deletes_or_replaces_what_it_does_not_know_and_a_clean_one_converges(
        source in trees(),
        target in trees(),
    ) {
        prop_assume!(is_disjoint(&source) && is_disjoint(&target));
        let before = target.files.clone();
        let after = run(&source, &target);
        for (name, size) in &before {
            let (is_known, is_wanted) = (!is_hidden(&source, name), source.files.get(name));
            match (after.get(name), is_wanted) {
                // It is what it was, or what the source has.
                (Some(now), wanted) => prop_assert!(now == size || Some(now) == wanted),
                (None, wanted) => prop_assert!(is_known && wanted.is_none(), "{name} was deleted"),
            }
            if is_hidden(&target, name) {
                prop_assert_eq!(after.get(name), Some(size), "{} is unknown, and was touched", name);
            }
        }
        let clean = |files: &BTreeMap<String, u64>| Tree {
            files: files.clone(), unreadable: BTreeSet::new(), breaks_at: None,
        };
        prop_assert_eq!(run(&clean(&source.files), &clean(&after)), source.files);
    }

    #[test]
    fn names_out_of_order_end_what_is_known(
        names in proptest::collection::btree_set(names(), 2..8),
        target in trees(),
    ) {
        let mut names: Vec<String> = names.into_iter().collect();
        names.rotate_left(1);
        let source = names.iter().map(|name| Item::<()>::Present(entry(name, 1)));
        let mut is_disorder = false;
        for joined in Join::new(source, target.items().into_iter(), false) {
            is_disorder |= matches!(joined, Joined::Disorder { which: Which::Source, .. });
            if let (true, Joined::Pair { source, .. }) = (is_disorder, &joined) {
                prop_assert_eq!(source, &Side::Unknown);
            }
        }
        prop_assert!(is_disorder);
    }
}

/// Whether the tree's walk does not tell of the name.
fn is_hidden(tree: &Tree, name: &str) -> bool {
    tree.side(name) == Side::Unknown
}

/// A run with deletions: these only where all is known.
fn run(source: &Tree, target: &Tree) -> BTreeMap<String, u64> {
    let mut files = target.files.clone();
    let mut extras = Vec::new();
    let mut is_whole = true;
    for joined in Join::new(source.items().into_iter(), target.items().into_iter(), false) {
        let Joined::Pair { name, source, target } = joined else {
            is_whole = false;
            continue;
        };
        match RULES.decide(source, target) {
            Decision::Copy { source, .. } => {
                files.insert(name, source.size);
            }
            Decision::Extra { .. } => extras.push(name),
            _ => {}
        }
    }
    if is_whole {
        files.retain(|name, _| !extras.contains(name));
    }
    files
}

#[test]
fn what_cannot_be_copied_keeps_all_below_its_name() {
    let present = |name: &&str| Item::<()>::Present(entry(name, 1));
    let source = [Item::Taken { name: "a".to_owned(), by: "a symbolic link".into() }, present(&"a.b")];
    let target = ["a", "a.b", "a/b", "a/c/d", "a0"].iter().map(present);
    let kept: Vec<String> = Join::new(source.into_iter(), target, false)
        .filter_map(|joined| match joined {
            Joined::Pair { name, source: Side::Taken(_), .. } => Some(name),
            _ => None,
        })
        .collect();
    assert_eq!(kept, ["a", "a/b", "a/c/d"]);
}

#[test]
fn a_file_where_a_folder_has_to_be_blocks_all_below_it() {
    let of = |names: &[&str]| -> Vec<Item<()>> {
        names.iter().map(|name| Item::Present(entry(name, 1))).collect()
    };
    let join = Join::new(of(&["a.b", "a/b", "a/c/d", "ab"]).into_iter(), of(&["a", "a.b"]).into_iter(), true);
    let blocked: Vec<String> = join
        .filter_map(|joined| match joined {
            Joined::Pair { name, target: Side::Taken(_), .. } => Some(name),
            _ => None,
        })
        .collect();
    assert_eq!(blocked, ["a/b", "a/c/d"]);
    // A folder takes its own name, and blocks nothing below it.
    let target =
        [Item::Taken { name: "a".to_owned(), by: "a folder".into() }, Item::Folder { name: "a/".to_owned() }];
    let mut join = Join::new(of(&["a.b", "a/b"]).into_iter(), target.into_iter(), true);
    assert!(join.all(|joined| match joined {
        Joined::Pair { name, source, target } =>
            matches!(source, Side::Absent) || (target == Side::Absent && name != "a"),
        _ => false,
    }));
}
