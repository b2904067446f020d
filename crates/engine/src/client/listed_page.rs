//! A page of a listing as it waits for its turn: some 30 bytes a key, where an [`Entry`] takes 250.
//!
//! Each entry is what its key shares with the one before (bytes), the rest of the key, and a tag of what
//! follows; of an object its size, its time, its class and its ETag. Numbers are LEB128.

use std::time::Instant;

use flatout_policy::listing::NamedPage;
use flatout_wire::listing::{Listed, Page};

use crate::client::list::Entry;
use crate::memory::lease::MemoryCharge;

/// A prefix, and objects by what their ETag is: none, 32 hexadecimal digits in quotes, or some other text.
const PREFIX: u8 = 0;
const NO_ETAG: u8 = 1;
const HEX_ETAG: u8 = 2;
const TEXT_ETAG: u8 = 3;

/// As many names of a page are shown as samples, about.
const SAMPLES: usize = 64;

/// Entries in the order of their names.
pub(crate) struct ListedPage {
    bytes: Vec<u8>,
    count: usize,
    /// Names of the first and the last entry; empty where there are none.
    first: String,
    last: String,
    /// Storage classes, which entries name by their number.
    classes: Vec<String>,
    is_in_order: bool,
    /// When the origin was asked for it.
    asked: Instant,
    /// Of all that.
    weight: MemoryCharge,
}

impl ListedPage {
    /// What a page shows that was asked for then; `weight` is charged with what this takes.
    pub(crate) fn of(page: Page, asked: Instant, weight: MemoryCharge) -> ListedPage {
        let mut entries: Vec<Entry> = page.prefixes.into_iter().map(Entry::Prefix).collect();
        entries.extend(page.objects.into_iter().map(Entry::Object));
        let is_in_order = entries.is_sorted_by(|one, other| one.name() < other.name());
        if !is_in_order {
            entries.sort_by(|one, other| one.name().cmp(other.name()));
        }
        let mut packed = ListedPage {
            bytes: Vec::with_capacity(entries.len() * 32),
            count: entries.len(),
            first: entries.first().map_or_else(String::new, |entry| entry.name().to_owned()),
            last: entries.last().map_or_else(String::new, |entry| entry.name().to_owned()),
            classes: Vec::new(),
            is_in_order,
            asked,
            weight,
        };
        let mut before = "";
        for entry in &entries {
            packed.push(before, entry);
            before = entry.name();
        }
        packed.bytes.shrink_to_fit();
        packed.charge();
        packed
    }

    fn charge(&mut self) {
        let classes: usize = self.classes.iter().map(|class| class.len() + size_of::<String>()).sum();
        let texts = self.bytes.capacity() + self.first.len() + self.last.len() + classes;
        self.weight.set((size_of::<ListedPage>() + texts) as u64);
    }

    fn push(&mut self, before: &str, entry: &Entry) {
        let name = entry.name();
        let shared = shared_bytes(before, name);
        push_number(&mut self.bytes, shared as u64);
        push_text(&mut self.bytes, &name[shared..]);
        let Entry::Object(object) = entry else {
            self.bytes.push(PREFIX);
            return;
        };
        let hex = object.etag.as_deref().and_then(hex_etag);
        self.bytes.push(match (&object.etag, hex) {
            (None, _) => NO_ETAG,
            (Some(_), Some(_)) => HEX_ETAG,
            (Some(_), None) => TEXT_ETAG,
        });
        push_number(&mut self.bytes, object.size);
        push_number(&mut self.bytes, object.last_modified);
        let class = object.storage_class.as_deref().map_or(0, |class| self.class_number(class));
        push_number(&mut self.bytes, class as u64);
        match (&object.etag, hex) {
            (_, Some(hex)) => self.bytes.extend_from_slice(&hex),
            (Some(etag), None) => push_text(&mut self.bytes, etag),
            (None, None) => {}
        }
    }

    /// The number of a class, from 1 on.
    fn class_number(&mut self, class: &str) -> usize {
        let known = self.classes.iter().position(|known| known == class);
        1 + known.unwrap_or_else(|| {
            self.classes.push(class.to_owned());
            self.classes.len() - 1
        })
    }

    /// When the origin was asked for it.
    pub(crate) fn asked(&self) -> Instant {
        self.asked
    }

    /// Reads the entries.
    pub(crate) fn read(self) -> PageReader {
        PageReader { page: self, at: Position::default() }
    }
}

impl NamedPage for ListedPage {
    fn first(&self) -> Option<&str> {
        (self.count > 0).then_some(self.first.as_str())
    }

    fn last(&self) -> Option<&str> {
        (self.count > 0).then_some(self.last.as_str())
    }

    fn names(&self) -> u64 {
        self.count as u64
    }

    fn bytes(&self) -> u64 {
        self.weight.bytes()
    }

    fn is_in_order(&self) -> bool {
        self.is_in_order
    }

    fn sample(&self, visit: &mut dyn FnMut(&str)) {
        let step = self.count.div_ceil(SAMPLES).max(1);
        let mut at = Position::default();
        while at.count < self.count {
            let number = at.count;
            at.skip(&self.bytes);
            if number.is_multiple_of(step) || at.count == self.count {
                visit(&at.name);
            }
        }
    }

    fn split_behind(&mut self, cut: &str) -> Option<ListedPage> {
        if self.count == 0 || self.last.as_str() <= cut {
            return None;
        }
        let mut before = Position::default();
        let mut at = Position::default();
        loop {
            at.skip(&self.bytes);
            if at.name.as_str() > cut {
                break;
            }
            before.clone_from(&at);
        }
        // The first entry behind the cut has its whole name: there is none before it.
        let mut bytes = Vec::with_capacity(self.bytes.len() - before.bytes + at.name.len() + 2);
        let tag = before.tag_of_next(&self.bytes);
        push_number(&mut bytes, 0);
        push_text(&mut bytes, &at.name);
        bytes.extend_from_slice(&self.bytes[tag..]);
        let mut tail = ListedPage {
            bytes,
            count: self.count - before.count,
            first: at.name,
            last: std::mem::take(&mut self.last),
            classes: self.classes.clone(),
            is_in_order: self.is_in_order,
            asked: self.asked,
            weight: self.weight.another(),
        };
        tail.charge();
        self.bytes.truncate(before.bytes);
        self.bytes.shrink_to_fit();
        (self.count, self.last) = (before.count, before.name);
        self.charge();
        Some(tail)
    }
}

/// A place between two entries.
#[derive(Clone, Default)]
struct Position {
    bytes: usize,
    /// Entries before it.
    count: usize,
    /// Of the entry before it.
    name: String,
}

impl Position {
    /// Reads the name of the next entry, and its tag.
    fn read_name(&mut self, bytes: &[u8]) -> u8 {
        let shared = self.number(bytes) as usize;
        let rest = self.number(bytes) as usize;
        self.name.truncate(shared);
        self.name.push_str(text(&bytes[self.bytes..self.bytes + rest]));
        self.bytes += rest + 1;
        self.count += 1;
        bytes[self.bytes - 1]
    }

    /// Where the tag of the next entry is.
    fn tag_of_next(&self, bytes: &[u8]) -> usize {
        let mut next = self.clone();
        next.read_name(bytes);
        next.bytes - 1
    }

    fn skip(&mut self, bytes: &[u8]) {
        let tag = self.read_name(bytes);
        if tag == PREFIX {
            return;
        }
        for _ in ["size", "time", "class"] {
            self.number(bytes);
        }
        match tag {
            HEX_ETAG => self.bytes += 16,
            TEXT_ETAG => {
                let length = self.number(bytes) as usize;
                self.bytes += length;
            }
            _ => {}
        }
    }

    fn number(&mut self, bytes: &[u8]) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = bytes[self.bytes];
            self.bytes += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return number;
            }
            shift += 7;
        }
    }
}

/// The entries of a page, one after the other.
pub(crate) struct PageReader {
    page: ListedPage,
    at: Position,
}

impl Iterator for PageReader {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let (page, at) = (&self.page, &mut self.at);
        if at.count == page.count {
            return None;
        }
        let tag = at.read_name(&page.bytes);
        let key = at.name.clone();
        if tag == PREFIX {
            return Some(Entry::Prefix(key));
        }
        let (size, last_modified) = (at.number(&page.bytes), at.number(&page.bytes));
        let class = at.number(&page.bytes) as usize;
        let etag = match tag {
            HEX_ETAG => {
                at.bytes += 16;
                Some(quoted_hex(&page.bytes[at.bytes - 16..at.bytes]))
            }
            TEXT_ETAG => {
                let length = at.number(&page.bytes) as usize;
                at.bytes += length;
                Some(text(&page.bytes[at.bytes - length..at.bytes]).to_owned())
            }
            _ => None,
        };
        let storage_class = class.checked_sub(1).and_then(|class| page.classes.get(class).cloned());
        Some(Entry::Object(Listed { key, size, etag, last_modified, storage_class }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.page.count - self.at.count;
        (left, Some(left))
    }
}

/// What two names begin with, in whole characters.
fn shared_bytes(one: &str, other: &str) -> usize {
    let mut shared = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    while !other.is_char_boundary(shared) || !one.is_char_boundary(shared) {
        shared -= 1;
    }
    shared
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    push_number(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("texts are packed whole")
}

/// The bytes of an ETag that is 32 lower-case hexadecimal digits in quotes.
fn hex_etag(etag: &str) -> Option<[u8; 16]> {
    let digits = etag.strip_prefix('"')?.strip_suffix('"')?.as_bytes();
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if digits.len() != 32 {
        return None;
    }
    let mut hex = [0; 16];
    for (byte, pair) in hex.iter_mut().zip(digits.chunks(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(hex)
}

fn quoted_hex(hex: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut etag = String::with_capacity(34);
    etag.push('"');
    for byte in hex {
        etag.push(DIGITS[usize::from(byte >> 4)].into());
        etag.push(DIGITS[usize::from(byte & 15)].into());
    }
    etag.push('"');
    etag
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::lease::Pool;

    fn objects(keys: &[&str]) -> Page {
        let etags = [None, Some("\"70ee1738b6b21e2c8a43f3a5ab0eee71\""), Some("\"x-2\"")];
        let classes = [None, Some("STANDARD"), Some("IA")];
        let object = |(number, key): (usize, &&str)| Listed {
            key: (*key).to_owned(),
            size: 1 << (number * 5),
            etag: etags[number % 3].map(str::to_owned),
            last_modified: number as u64 * 1_000_000_000,
            storage_class: classes[number % 3].map(str::to_owned),
        };
        Page { objects: keys.iter().enumerate().map(object).collect(), ..Page::default() }
    }

    fn packed(page: Page) -> ListedPage {
        ListedPage::of(page, Instant::now(), Arc::<Pool>::default().charge(0))
    }

    const KEYS: [&str; 7] = ["a", "a/b", "a/bc", "a/bä", "a/bö/1", "a/bö/2", "z"];

    #[test]
    fn a_page_is_read_as_it_was_packed() {
        let page = objects(&KEYS);
        let expected: Vec<Entry> = page.objects.iter().cloned().map(Entry::Object).collect();
        let packed = packed(page);
        assert!(packed.is_in_order() && packed.bytes() > 0);
        assert_eq!((packed.first(), packed.last(), packed.names()), (Some("a"), Some("z"), 7));
        assert_eq!(packed.read().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_page_is_split_behind_any_name() {
        let all: Vec<Entry> = objects(&KEYS).objects.into_iter().map(Entry::Object).collect();
        for cut in ["", "a", "a/b", "a/bb", "a/bä", "a/bö/1", "q", "z", "zz"] {
            let mut own = packed(objects(&KEYS));
            let tail = own.split_behind(cut);
            let count = KEYS.iter().filter(|key| **key <= cut).count();
            assert_eq!((own.last(), own.names()), (KEYS[..count].last().copied(), count as u64), "{cut}");
            let first = tail.as_ref().and_then(|tail| tail.first());
            assert_eq!(first, KEYS.get(count).copied(), "{cut}");
            let tail = tail.into_iter().flat_map(ListedPage::read);
            assert_eq!(own.read().chain(tail).collect::<Vec<_>>(), all, "{cut}");
        }
    }

    #[test]
    fn prefixes_and_disorder_are_kept() {
        let page = Page { prefixes: vec!["b/".to_owned()], ..objects(&["c", "a"]) };
        let packed = packed(page);
        assert!(!packed.is_in_order());
        let mut seen = Vec::new();
        packed.sample(&mut |name| seen.push(name.to_owned()));
        assert_eq!(seen, ["a", "b/", "c"]);
        let names: Vec<String> = packed.read().map(|entry| entry.name().to_owned()).collect();
        assert_eq!(names, ["a", "b/", "c"]);
    }
}
