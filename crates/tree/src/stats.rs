//! A tree's counters: requests to the origin, answers without one, keys that are not shown.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a tree, since the mount; those named `now` are current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeStats {
    /// Pages of folder listings that were requested.
    pub pages: u64,
    /// Requests about one name.
    pub lookups: u64,
    /// HEADs, at opens.
    pub heads: u64,
    /// HEADs for modes, owners, times, links and extended attributes.
    pub attribute_heads: u64,
    /// Requests that failed, after the engine's retries.
    pub failures: u64,
    /// Lookups and attributes that were answered from memory.
    pub answered: u64,
    /// Questions that joined the same question in flight.
    pub joined: u64,
    /// Folders that were listed before a program read them.
    pub listed_ahead: u64,
    /// Reads that found their object replaced.
    pub replaced: u64,
    /// Versions of files that this mount has published.
    pub published: u64,
    /// Files that are being written now.
    pub written_now: u64,
    /// Listed keys that cannot be shown as names.
    pub hidden: Hidden,
    /// Inodes in memory now.
    pub inodes_now: u64,
    /// Inodes that the kernel has looked up and not forgotten.
    pub looked_up_now: u64,
    /// Folders whose listing is in memory now.
    pub listings_now: u64,
    /// Files open now.
    pub open_files_now: u64,
    /// Folders open now.
    pub open_folders_now: u64,
    /// Bytes of names, inodes and listings now, as charged to the client's memory.
    pub held_bytes_now: u64,
}

/// Keys that cannot be shown, by reason. A key in several listings counts each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// An object of the same name as a folder: the folder is shown.
    pub shadowed: u64,
    /// An empty component: `a//b`.
    pub empty: u64,
    /// A component `.` or `..`.
    pub dots: u64,
    /// A component of more than 255 bytes.
    pub too_long: u64,
    /// A component with a NUL.
    pub nul: u64,
    /// Not under the listed prefix: the origin ignores what it was asked for.
    pub foreign: u64,
}

impl Hidden {
    pub fn total(&self) -> u64 {
        self.shadowed + self.empty + self.dots + self.too_long + self.nul + self.foreign
    }
}

#[derive(Default)]
pub(crate) struct TreeCounters {
    pub(crate) pages: Counter,
    pub(crate) lookups: Counter,
    pub(crate) heads: Counter,
    pub(crate) attribute_heads: Counter,
    pub(crate) failures: Counter,
    pub(crate) answered: Counter,
    pub(crate) joined: Counter,
    pub(crate) listed_ahead: Counter,
    pub(crate) replaced: Counter,
    pub(crate) published: Counter,
    pub(crate) shadowed: Counter,
    pub(crate) empty: Counter,
    pub(crate) dots: Counter,
    pub(crate) too_long: Counter,
    pub(crate) nul: Counter,
    pub(crate) foreign: Counter,
}

#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl TreeCounters {
    pub(crate) fn hidden(&self) -> Hidden {
        Hidden {
            shadowed: self.shadowed.get(),
            empty: self.empty.get(),
            dots: self.dots.get(),
            too_long: self.too_long.get(),
            nul: self.nul.get(),
            foreign: self.foreign.get(),
        }
    }
}
