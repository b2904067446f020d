//! The two sides of each name, from two walks in one order. Nothing is held but the head of each.

use std::cmp::Ordering;

use crate::item::{By, Covers, Entry, Item};

/// Which tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Source,
    Target,
}

/// One side of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    Present(Entry),
    /// A folder, or the object that marks one: the name ends with `/`.
    Folder,
    /// Something else has the name.
    Taken(By),
    /// It could not be read.
    Unknown,
    Absent,
}

/// What the join tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly all of them are pairs")]
pub enum Joined<F> {
    /// Both sides of a name; at least one is neither absent nor unknown.
    Pair { name: String, source: Side, target: Side },
    /// Something of a tree could not be read.
    Unknown { which: Which, covers: Covers, why: F },
    /// A tree's names do not come in the order of their bytes: all that come behind this one are unknown.
    Disorder { which: Which, name: String },
    /// Something that can have no counterpart.
    LeftOut { which: Which, shown: String, why: &'static str },
}

/// Two walks as one.
pub struct Join<S: Iterator, T: Iterator> {
    source: Walked<S>,
    target: Walked<T>,
    /// Names of the target that a later name of the source may need as a folder, where they are files: each
    /// is the beginning of the next.
    files: Option<Vec<String>>,
}

/// A walk, its head, and what it could not read.
struct Walked<I: Iterator> {
    items: I,
    head: Option<I::Item>,
    /// The name that the head had before.
    last: Option<String>,
    unknown: Vec<Covers>,
    /// What else has a name of the source: the target keeps what lies below it, too.
    taken: Option<Vec<(Covers, By)>>,
    is_over: bool,
}

impl<F: 'static, S, T> Join<S, T>
where
    S: Iterator<Item = Item<F>>,
    T: Iterator<Item = Item<F>>,
{
    /// With `target_is_folder` a name of the target is a file or a folder, as in file systems; in buckets
    /// `a` and `a/b` are two objects.
    pub fn new(source: S, target: T, target_is_folder: bool) -> Join<S, T> {
        Join {
            source: Walked { taken: Some(Vec::new()), ..Walked::new(source) },
            target: Walked::new(target),
            files: target_is_folder.then(Vec::new),
        }
    }

    /// Whether a file of the target stands where the name needs a folder.
    fn is_below_a_file(&mut self, name: &str, target: &Side) -> bool {
        let Some(files) = &mut self.files else { return false };
        while files.last().is_some_and(|file| !name.starts_with(file.as_str())) {
            files.pop();
        }
        let is_below = files.iter().any(|file| name.as_bytes().get(file.len()) == Some(&b'/'));
        match target {
            Side::Present(_) | Side::Taken(_) => files.push(name.to_owned()),
            // A folder's own name is told as taken before.
            Side::Folder => files.retain(|file| file != name.trim_end_matches('/')),
            Side::Unknown | Side::Absent => {}
        }
        is_below
    }
}

impl<F: 'static, I: Iterator<Item = Item<F>>> Walked<I> {
    fn new(items: I) -> Walked<I> {
        Walked { items, head: None, last: None, unknown: Vec::new(), taken: None, is_over: false }
    }

    /// Reads the next item where there is none. `Err` for one that does not come behind the one before.
    fn fill(&mut self) -> Result<(), String> {
        if self.head.is_some() || self.is_over {
            return Ok(());
        }
        let Some(item) = self.items.next() else {
            self.is_over = true;
            return Ok(());
        };
        if let Some(name) = name(&item) {
            if self.last.as_deref().is_some_and(|last| name <= last) {
                let name = name.to_owned();
                self.is_over = true;
                self.unknown.push(Covers::Rest);
                return Err(name);
            }
            self.last = Some(name.to_owned());
        }
        self.head = Some(item);
        Ok(())
    }

    /// Takes a head that stands outside of the order, or is unknown from before the other side's place on.
    fn take_aside(&mut self, other: Option<&str>) -> Option<Item<F>> {
        let is_aside = |head: &mut Item<F>| match head {
            Item::LeftOut { .. } => true,
            Item::Unknown { covers, .. } => other.is_none_or(|other| covers.place() <= other),
            Item::Present(_) | Item::Folder { .. } | Item::Taken { .. } => false,
        };
        let item = self.head.take_if(is_aside)?;
        if let Item::Unknown { covers, .. } = &item {
            self.unknown.push(covers.clone());
            self.is_over |= *covers == Covers::Rest;
        }
        Some(item)
    }

    fn name(&self) -> Option<&str> {
        self.head.as_ref().and_then(name)
    }

    /// Where the head stands in the order.
    fn place(&self) -> Option<&str> {
        match self.head.as_ref()? {
            Item::Unknown { covers, .. } => Some(covers.place()),
            item => name(item),
        }
    }

    /// The side of this name, which is the head's or not there.
    fn side(&mut self, wanted: &str) -> Side {
        self.unknown.retain(|unknown| !unknown.is_behind(wanted));
        let is_unknown = self.unknown.iter().any(|unknown| unknown.has(wanted));
        match self.head.take_if(|head| name(head) == Some(wanted)) {
            Some(Item::Present(entry)) => Side::Present(entry),
            Some(Item::Folder { .. }) => Side::Folder,
            Some(Item::Taken { name, by }) => {
                if let Some(taken) = &mut self.taken {
                    taken.push((Covers::Path(name), by.clone()));
                }
                Side::Taken(by)
            }
            // A name that the walk tells is known, whatever covers it.
            Some(Item::Unknown { .. } | Item::LeftOut { .. }) | None if is_unknown => Side::Unknown,
            Some(Item::Unknown { .. } | Item::LeftOut { .. }) | None => self.below_taken(wanted),
        }
    }
}

impl<I: Iterator> Walked<I> {
    /// The side of a name that was not told.
    fn below_taken(&mut self, wanted: &str) -> Side {
        let Some(taken) = &mut self.taken else { return Side::Absent };
        taken.retain(|(covers, _)| !covers.is_behind(wanted));
        let above = taken.iter().find(|(covers, _)| covers.has(wanted));
        above.map_or(Side::Absent, |(_, by)| Side::Taken(by.clone()))
    }
}

/// The name in the order, where the item has one.
fn name<F>(item: &Item<F>) -> Option<&str> {
    match item {
        Item::Present(entry) => Some(&entry.name),
        Item::Folder { name } | Item::Taken { name, .. } => Some(name),
        Item::Unknown { .. } | Item::LeftOut { .. } => None,
    }
}

fn aside<F>(which: Which, item: Item<F>) -> Option<Joined<F>> {
    match item {
        Item::Unknown { covers, why } => Some(Joined::Unknown { which, covers, why }),
        Item::LeftOut { shown, why } => Some(Joined::LeftOut { which, shown, why }),
        Item::Present(_) | Item::Folder { .. } | Item::Taken { .. } => None,
    }
}

impl<F: 'static, S, T> Iterator for Join<S, T>
where
    S: Iterator<Item = Item<F>>,
    T: Iterator<Item = Item<F>>,
{
    type Item = Joined<F>;

    fn next(&mut self) -> Option<Joined<F>> {
        if let Err(name) = self.source.fill() {
            return Some(Joined::Disorder { which: Which::Source, name });
        }
        if let Err(name) = self.target.fill() {
            return Some(Joined::Disorder { which: Which::Target, name });
        }
        if let Some(item) = self.source.take_aside(self.target.place()) {
            return aside(Which::Source, item);
        }
        if let Some(item) = self.target.take_aside(self.source.place()) {
            return aside(Which::Target, item);
        }
        let name = match (self.source.name(), self.target.name()) {
            (None, None) => return None,
            (Some(name), None) | (None, Some(name)) => name,
            (Some(source), Some(target)) => match source.cmp(target) {
                Ordering::Greater => target,
                Ordering::Less | Ordering::Equal => source,
            },
        };
        let name = name.to_owned();
        let (source, mut target) = (self.source.side(&name), self.target.side(&name));
        if self.is_below_a_file(&name, &target) && target == Side::Absent {
            target = Side::Taken("a file, where a folder would have to be".into());
        }
        Some(Joined::Pair { name, source, target })
    }
}
