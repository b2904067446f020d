//! Listing ahead: the next page of what is read, and the next folders of a walk, by a few threads of the tree's own.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crate::inodes::{Folder, Walk};
use crate::listing::FolderListing;
use crate::store::Store;
use crate::tree::Core;

/// Requests on their way at most, beside those that somebody waits for: as many folders as 20 ms a request list in 1.3 ms each.
const THREADS_MAX: usize = 16;
/// A thread without work leaves after that time.
const IDLE: Duration = Duration::from_secs(2);
/// A walk is one when so many subfolders of a folder were opened one after the other.
const RUN_LEAST: u32 = 2;
/// Folders that are listed before anybody has read one of them, ...
const AHEAD_LEAST: u32 = 8;
/// ... for each that somebody has read, so many more, ...
const AHEAD_EACH: u32 = 4;
/// ... and this is the most.
const AHEAD_MAX: u32 = 128;

pub(crate) enum Job {
    /// The next page of a listing.
    Page(Arc<FolderListing>),
    /// The first page of a folder. Its inode is pinned.
    Folder(u64),
}

#[derive(Default)]
pub(crate) struct Ahead {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    is_closed: bool,
}

impl Ahead {
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        state.jobs.clear();
        drop(state);
        self.wake.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a job waits or is being done.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.lock();
        !state.jobs.is_empty() || state.threads > state.idle
    }

    /// The next job; `None` when the thread is to leave.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                break;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state.idle += 1;
            let (woken, timeout) =
                self.wake.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.idle -= 1;
            if timeout.timed_out() && state.jobs.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        None
    }
}

impl<S: Store> Core<S> {
    /// Does a job some time; not at all where no thread can be had.
    pub(crate) fn ahead(self: &Arc<Self>, job: Job) {
        let mut state = self.ahead.lock();
        if state.is_closed {
            return;
        }
        match job {
            // Somebody reads there already.
            Job::Page(_) => state.jobs.push_front(job),
            Job::Folder(_) => state.jobs.push_back(job),
        }
        let has_hands = state.idle >= state.jobs.len() || state.threads >= THREADS_MAX;
        if !has_hands {
            state.threads += 1;
        }
        drop(state);
        if has_hands {
            self.ahead.wake.notify_one();
            return;
        }
        let (ahead, core) = (self.ahead.clone(), Arc::downgrade(self));
        let work = move || drive_jobs(&ahead, &core);
        if thread::Builder::new().name("tree-ahead".into()).spawn(work).is_err() {
            self.ahead.lock().threads -= 1;
        }
    }

    fn do_job(self: &Arc<Self>, job: Job) {
        match job {
            Job::Page(listing) => {
                // Its reader meets the error.
                let _ = self.next_page(&listing);
            }
            Job::Folder(ino) => {
                let _pinned = Pinned { core: self, ino };
                self.list_ahead(ino);
            }
        }
    }

    fn list_ahead(self: &Arc<Self>, ino: u64) {
        let place = self.place(&self.table(), ino);
        let listing = place.and_then(|place| self.listing_of(ino, &place, self.lifetimes.attributes_ms));
        let Ok(listing) = listing else { return };
        if listing.answers() == 0 {
            self.counters.listed_ahead.count();
        }
        if self.next_page_if_none(&listing) && self.is_in_deep_walk(ino) {
            self.plan(ino, "");
        }
    }

    fn next_page_if_none(&self, listing: &Arc<FolderListing>) -> bool {
        listing.answers() > 0 || self.next_page(listing).is_ok()
    }

    /// Whether the walk goes through the subfolders of `ino`'s siblings too.
    fn is_in_deep_walk(&self, ino: u64) -> bool {
        let mut table = self.table();
        let parent = table.get(ino).map(|inode| inode.parent);
        let walk = parent.and_then(|parent| table.folder_mut(parent)).map(|folder| folder.walk);
        walk.is_some_and(|walk| walk.is_deep && walk.run >= RUN_LEAST)
    }

    /// Notes that a folder is read; where its siblings were too, those behind it are listed ahead.
    pub(crate) fn on_folder_opened(self: &Arc<Self>, ino: u64) {
        if self.lifetimes.attributes_ms == 0 || ino == crate::ROOT {
            return;
        }
        let now_ms = self.now_ms();
        let mut table = self.table();
        let Some(inode) = table.get(ino) else { return };
        let (parent, name) = (inode.parent, inode.name.clone());
        let above = table.get(parent).map_or(parent, |inode| inode.parent);
        let was_ahead = table.folder_mut(ino).is_some_and(|folder| std::mem::take(&mut folder.is_ahead));
        let Some(Folder { walk, .. }) = table.folder_mut(parent) else { return };
        walk.note(ino, was_ahead, now_ms, self.lifetimes.attributes_ms);
        let run = walk.run;
        let mut is_walk = run >= RUN_LEAST;
        // The walk came from a folder whose siblings it has walked through: it will do so here.
        if parent != crate::ROOT
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

    /// Plans to list the subfolders of `parent` that stand behind `name`, as far as its listing is there.
    fn plan(self: &Arc<Self>, parent: u64, name: &str) {
        let (listing, room) = {
            let mut table = self.table();
            let Some(folder) = table.folder_mut(parent) else { return };
            let Some(listing) = folder.listing.clone() else { return };
            (listing, folder.walk.room())
        };
        if room == 0 || self.is_over() {
            return;
        }
        let folders = listing.folders_behind(name, AHEAD_MAX as usize);
        let mut planned = Vec::new();
        let mut table = self.table();
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
            self.ahead(Job::Folder(ino));
        }
    }

    /// The inode of a folder that is to be listed ahead, pinned; `None` where it is listed, or will be.
    fn planned(
        &self,
        table: &mut crate::inodes::Table,
        parent: u64,
        name: &str,
        listing: &FolderListing,
    ) -> Option<u64> {
        let fact = crate::fact::Fact::folder(listing.started_ms);
        let ino = table.keep(parent, name, crate::FileKind::Folder, fact);
        let folder = table.folder_mut(ino)?;
        if folder.is_ahead
            || folder
                .listing
                .as_deref()
                .is_some_and(|listing| self.is_young(listing, self.lifetimes.attributes_ms))
        {
            return None;
        }
        folder.is_ahead = true;
        table.pin(ino);
        Some(ino)
    }
}

impl Walk {
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

    /// How many folders more may be listed ahead now.
    fn room(&self) -> u32 {
        let most = AHEAD_LEAST.saturating_add(self.hits.saturating_mul(AHEAD_EACH)).min(AHEAD_MAX);
        most.saturating_sub(self.outstanding)
    }
}

fn drive_jobs<S: Store>(ahead: &Ahead, core: &Weak<Core<S>>) {
    while let Some(job) = ahead.next() {
        let lost = LostHand(ahead);
        if let Some(core) = core.upgrade() {
            core.do_job(job);
        }
        std::mem::forget(lost);
    }
}

/// Lets go of an inode that was pinned for a job, also where that panics.
struct Pinned<'a, S: Store> {
    core: &'a Core<S>,
    ino: u64,
}

impl<S: Store> Drop for Pinned<'_, S> {
    fn drop(&mut self) {
        let now_ms = self.core.now_ms();
        self.core.table().unpin(self.ino, now_ms);
    }
}

/// Counts out a thread that panics: another takes its place.
struct LostHand<'a>(&'a Ahead);

impl Drop for LostHand<'_> {
    fn drop(&mut self) {
        self.0.lock().threads -= 1;
    }
}
