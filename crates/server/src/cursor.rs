//! A walk over the sorted keys of a listing that jumps over folded ones.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::collections::btree_map::Range;
use std::iter::Peekable;
use std::ops::Bound;

/// The keys of a map after one of them, as long as they start with a prefix.
pub(crate) struct KeyCursor<'a, K, T> {
    map: &'a BTreeMap<K, T>,
    prefix: &'a str,
    rest: Peekable<Range<'a, K, T>>,
    last_skipped: Option<String>,
}

impl<'a, K: Borrow<str> + Ord, T> KeyCursor<'a, K, T> {
    pub(crate) fn new(map: &'a BTreeMap<K, T>, prefix: &'a str, after: &str) -> KeyCursor<'a, K, T> {
        let start = if after >= prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
        let rest = map.range::<str, _>((start, Bound::Unbounded)).peekable();
        KeyCursor { map, prefix, rest, last_skipped: None }
    }

    /// The next key that is at most `limit`; without a limit the next one.
    pub(crate) fn next_through(&mut self, limit: Option<&str>) -> Option<(&'a str, &'a T)> {
        loop {
            let key: &str = self.rest.peek()?.0.borrow();
            if !key.starts_with(self.prefix) || limit.is_some_and(|limit| key > limit) {
                return None;
            }
            let (key, value) = self.rest.next()?;
            if self.skipped(key.borrow()).is_none() {
                return Some((key.borrow(), value));
            }
        }
    }

    /// Leaves out the keys that start with this.
    pub(crate) fn skip(&mut self, folded: String) {
        // Jumps over nearly all of them; keys after the last character there is are left out one by one.
        let end = format!("{folded}\u{10ffff}");
        // A key before the cursor must not come again.
        if self.rest.peek().is_some_and(|(key, _)| Borrow::<str>::borrow(*key) < end.as_str()) {
            self.rest =
                self.map.range::<str, _>((Bound::Excluded(end.as_str()), Bound::Unbounded)).peekable();
        }
        self.last_skipped = Some(folded);
    }

    /// What was skipped last, if the key starts with it.
    pub(crate) fn skipped(&self, key: &str) -> Option<&str> {
        self.last_skipped.as_deref().filter(|skipped| key.starts_with(skipped))
    }
}
