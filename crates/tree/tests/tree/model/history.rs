//! What a bucket was like at every moment.

use std::collections::BTreeSet;

use flatout_tree::{Attributes, FileKind};

use crate::memory::StoredObject;

/// What stands under a path, as far as attributes show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Folder,
    File { size: u64, modified_s: i64 },
}

#[derive(Default)]
pub struct History {
    /// When, key, and what it became.
    changes: Vec<(u64, String, Option<Version>)>,
    versions: u64,
}

#[derive(Clone)]
struct Version {
    number: u64,
    object: StoredObject,
}

impl Seen {
    pub fn of(attributes: &Attributes) -> Seen {
        match attributes.kind {
            FileKind::Folder => Seen::Folder,
            FileKind::File => Seen::File { size: attributes.size, modified_s: attributes.modified_s },
        }
    }

    pub fn kind(&self) -> FileKind {
        match self {
            Seen::Folder => FileKind::Folder,
            Seen::File { .. } => FileKind::File,
        }
    }
}

impl Version {
    fn seen(&self) -> Seen {
        let StoredObject { bytes, modified_s, .. } = &self.object;
        Seen::File { size: bytes.len() as u64, modified_s: *modified_s as i64 }
    }
}

impl History {
    /// Numbers that one byte holds tell 255 versions apart: more than a run has steps.
    pub fn next_version(&mut self) -> u64 {
        self.versions += 1;
        self.versions
    }

    pub fn put(&mut self, at_ms: u64, key: &str, number: u64, object: StoredObject) {
        self.changes.push((at_ms, key.to_owned(), Some(Version { number, object })));
    }

    pub fn delete(&mut self, at_ms: u64, key: &str) {
        self.changes.push((at_ms, key.to_owned(), None));
    }

    /// Whether at some moment of `from..=to` what stood under `path` was so.
    pub fn was(&self, path: &str, from: u64, to: u64, so: impl Fn(Option<&Seen>) -> bool) -> bool {
        self.moments(from, to).any(|at| so(self.at(path, at).as_ref()))
    }

    /// What is there of the object with that key, whether a folder hides it or not.
    pub fn object_was(&self, key: &str, from: u64, to: u64, seen: &Seen) -> bool {
        self.moments(from, to).any(|at| self.object(key, at).is_some_and(|version| version.seen() == *seen))
    }

    /// How many kinds of thing stood under `path` meanwhile.
    pub fn kinds(&self, path: &str, from: u64, to: u64) -> usize {
        let kinds =
            self.moments(from, to).filter_map(|at| self.at(path, at)).map(|seen| seen == Seen::Folder);
        kinds.collect::<BTreeSet<bool>>().len()
    }

    /// The versions of the object `key` that were current meanwhile.
    pub fn versions(&self, key: &str, from: u64, to: u64) -> Vec<u64> {
        let versions = self.moments(from, to).filter_map(|at| Some(self.object(key, at)?.number));
        versions.collect::<BTreeSet<u64>>().into_iter().collect()
    }

    /// Whether the object `key` was there all the time, as one version.
    pub fn was_one_version(&self, key: &str, from: u64, to: u64) -> bool {
        let numbers = self.moments(from, to).map(|at| self.object(key, at).map(|version| version.number));
        let numbers: BTreeSet<Option<u64>> = numbers.collect();
        numbers.len() == 1 && !numbers.contains(&None)
    }

    pub fn size(&self, number: u64) -> u64 {
        let mut versions = self.changes.iter().filter_map(|change| change.2.as_ref());
        versions.find(|version| version.number == number).unwrap().object.bytes.len() as u64
    }

    /// Every name that ever stood in a folder.
    pub fn names_under(&self, folder: &str) -> Vec<String> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let below = self.changes.iter().filter_map(|(_, key, _)| key.strip_prefix(&prefix));
        let names = below.filter_map(|rest| rest.split('/').next()).filter(|name| !name.is_empty());
        names.map(str::to_owned).collect::<BTreeSet<String>>().into_iter().collect()
    }

    /// All changes that touch a path, to be shown.
    pub fn all(&self, path: &str) -> Vec<(u64, String, Option<u64>)> {
        let about = self.changes.iter().filter(|(_, key, _)| key.starts_with(path));
        about.map(|(at, key, version)| (*at, key.clone(), version.as_ref().map(|v| v.number))).collect()
    }

    /// The first moment, and each at which something changed.
    fn moments(&self, from: u64, to: u64) -> impl Iterator<Item = u64> {
        let changes = self.changes.iter().map(|change| change.0).filter(move |at| (from..=to).contains(at));
        std::iter::once(from).chain(changes)
    }

    fn at(&self, path: &str, at_ms: u64) -> Option<Seen> {
        let below = format!("{path}/");
        let keys: BTreeSet<&String> =
            self.changes.iter().map(|change| &change.1).filter(|key| key.starts_with(&below)).collect();
        if keys.iter().any(|key| self.object(key, at_ms).is_some()) {
            return Some(Seen::Folder);
        }
        self.object(path, at_ms).map(Version::seen)
    }

    fn object(&self, key: &str, at_ms: u64) -> Option<&Version> {
        let until = self.changes.iter().rev().filter(|change| change.0 <= at_ms);
        until.into_iter().find(|change| change.1 == key)?.2.as_ref()
    }
}
