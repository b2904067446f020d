//! Listing ahead: the next page of a folder that is read, and the next folders of a walk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatout_engine::BlockingPool;

use crate::ROOT;
use crate::attributes::FileKind;
use crate::fact::Fact;
use crate::inodes::{Folder, FolderWalk, InodeTable};
use crate::listing::FolderListing;
use crate::namespace::Namespace;
use crate::store::ObjectStore;

/// Requests in flight at most, beside those that a caller waits for: at 20 ms a request, 16 at a time list a
/// folder in 1.3 ms.
const REQUESTS_MAX: usize = 16;
/// This many subfolders of a folder, opened one after the other, are a walk.
const RUN_LEAST: u32 = 2;
/// How many folders are listed before a program has read one of them, ...
const AHEAD_LEAST: u32 = 8;
/// ... how many more for each that it has read, ...
const AHEAD_EACH: u32 = 4;
/// ... and at most.
const AHEAD_MAX: u32 = 128;

/// Lists what will probably be read next, on threads of its own.
pub(crate) struct ListAhead<S: ObjectStore> {
    names: Arc<Namespace<S>>,
    threads: BlockingPool,
    /// Pages and folders that wait or are being listed.
    under_way: AtomicUsize,
}

/// One page or folder that is to be listed. However that ends, it is counted out, and its folder unpinned.
struct UnderWay<S: ObjectStore> {
    ahead: Arc<ListAhead<S>>,
    pinned: Option<u64>,
}

impl<S: ObjectStore> ListAhead<S> {
    pub(crate) fn new(names: Arc<Namespace<S>>) -> Arc<ListAhead<S>> {
        let threads = BlockingPool::at_most(REQUESTS_MAX, "tree-ahead");
        Arc::new(ListAhead { names, threads, under_way: AtomicUsize::new(0) })
    }

    /// Drops what has not begun, and begins nothing more. A thread that waits for an origin ends with its
    /// request.
    pub(crate) fn close(&self) {
        self.threads.close(Duration::ZERO);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }

    /// Fetches the next page of a listing, before any folder: a program reads there already.
    pub(crate) fn fetch_page(self: &Arc<Self>, listing: Arc<FolderListing>) {
        let job = self.under_way(None);
        self.threads.run_first(move || {
            // Its reader meets the error.
            let _ = job.ahead.names.next_page(&listing);
        });
    }

    /// Lists a folder, whose inode is pinned, and unpins it in the end.
    fn list_folder(self: &Arc<Self>, ino: u64) {
        let job = self.under_way(Some(ino));
        self.threads.run(move || job.ahead.list(ino));
    }

    fn under_way(self: &Arc<Self>, pinned: Option<u64>) -> UnderWay<S> {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay { ahead: self.clone(), pinned }
    }

    /// Fetches the first page of a folder, unless it is there already.
    fn list(self: &Arc<Self>, ino: u64) {
        let names = &self.names;
        let location = names.location_of(&names.table(), ino);
        let listing = location
            .and_then(|location| names.current_listing_of(ino, &location, names.lifetimes.attributes_ms));
        let Ok(listing) = listing else { return };
        if listing.answers() == 0 {
            names.counters.listed_ahead.count();
            if names.next_page(&listing).is_err() {
                return;
            }
        }
        if self.is_in_deep_walk(ino) {
            self.plan(ino, "");
        }
    }

    /// Whether the walk goes through the subfolders of `ino`'s siblings too.
    fn is_in_deep_walk(&self, ino: u64) -> bool {
        let mut table = self.names.table();
        let parent = table.get(ino).map(|inode| inode.parent);
        let walk = parent.and_then(|parent| table.folder_mut(parent)).map(|folder| folder.walk);
        walk.is_some_and(|walk| walk.is_deep && walk.run >= RUN_LEAST)
    }

    /// Notes that a folder is read. If its siblings were too, the next ones are listed ahead.
    pub(crate) fn on_folder_opened(self: &Arc<Self>, ino: u64) {
        if self.names.lifetimes.attributes_ms == 0 || ino == ROOT {
            return;
        }
        let now_ms = self.names.now_ms();
        let mut table = self.names.table();
        let Some(inode) = table.get(ino) else { return };
        let (parent, name) = (inode.parent, inode.name.clone());
        let above = table.get(parent).map_or(parent, |inode| inode.parent);
        let was_ahead = table.folder_mut(ino).is_some_and(|folder| std::mem::take(&mut folder.is_ahead));
        let Some(Folder { walk, .. }) = table.folder_mut(parent) else { return };
        walk.note(ino, was_ahead, now_ms, self.names.lifetimes.attributes_ms);
        let run = walk.run;
        let mut is_walk = run >= RUN_LEAST;
        // The walk comes from a folder whose subfolders it has walked through, and will do so here.
        if parent != ROOT
            && let Some(above) = table.folder_mut(above)
        {
            above.walk.is_deep |= above.walk.run > 0;
            is_walk |= above.walk.is_deep && above.walk.run >= RUN_LEAST;
        }
        drop(table);
        if is_walk {
            self.plan(parent, &name);
        }
        if self.is_in_deep_walk(ino) {
            self.plan(ino, "");
        }
    }

    /// Lists the subfolders of `parent` after `name` ahead, as far as its listing is there.
    fn plan(self: &Arc<Self>, parent: u64, name: &str) {
        let (listing, room) = {
            let mut table = self.names.table();
            let Some(folder) = table.folder_mut(parent) else { return };
            let Some(listing) = folder.listing.clone() else { return };
            (listing, folder.walk.room())
        };
        if room == 0 || self.names.is_over() {
            return;
        }
        let folders = listing.folders_behind(name, AHEAD_MAX as usize);
        let mut planned = Vec::new();
        let mut table = self.names.table();
        for name in folders {
            if planned.len() as u32 >= room {
                break;
            }
            planned.extend(self.planned(&mut table, parent, &name, &listing));
        }
        if let Some(folder) = table.folder_mut(parent) {
            folder.walk.outstanding += planned.len() as u32;
        }
        drop(table);
        for ino in planned {
            self.list_folder(ino);
        }
    }

    /// The pinned inode of a folder that is to be listed ahead; `None` if it is listed, or will be.
    fn planned(
        &self,
        table: &mut InodeTable,
        parent: u64,
        name: &str,
        listing: &FolderListing,
    ) -> Option<u64> {
        let fact = Fact::folder(listing.started_ms);
        let ino = table.keep(parent, name, FileKind::Folder, fact);
        let folder = table.folder_mut(ino)?;
        if folder.is_ahead
            || folder
                .listing
                .as_deref()
                .is_some_and(|listing| self.names.is_young(listing, self.names.lifetimes.attributes_ms))
        {
            return None;
        }
        folder.is_ahead = true;
        table.pin(ino);
        Some(ino)
    }
}

impl FolderWalk {
    fn note(&mut self, ino: u64, was_ahead: bool, now_ms: u64, lifetime_ms: u64) {
        if was_ahead {
            self.outstanding = self.outstanding.saturating_sub(1);
            self.hits += 1;
        }
        if now_ms.saturating_sub(self.last_ms) >= lifetime_ms {
            (self.run, self.hits, self.is_deep) = (0, 0, false);
        }
        if self.last != ino {
            self.run = self.run.saturating_add(1);
        }
        (self.last, self.last_ms) = (ino, now_ms);
    }

    /// How many more folders may be listed ahead now.
    fn room(&self) -> u32 {
        let most = AHEAD_LEAST.saturating_add(self.hits.saturating_mul(AHEAD_EACH)).min(AHEAD_MAX);
        most.saturating_sub(self.outstanding)
    }
}

impl<S: ObjectStore> Drop for UnderWay<S> {
    fn drop(&mut self) {
        if let Some(ino) = self.pinned {
            self.ahead.names.unpin(ino);
        }
        self.ahead.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}
