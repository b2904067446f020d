//! The listing of one folder, shared by all who read it: pages are fetched as somebody reads them, by one of the readers, and
//! stay as they are. An entry's number is its place for as long as the listing lives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use flatout_engine::{Entry, Error, ErrorKind};

use crate::fault::Fault;
use crate::names;
use crate::page::{Binder, Page, Said};
use crate::stats::Counters;
use crate::store::Pages;

pub(crate) struct FolderListing {
    /// When the origin was asked for the first page, or will have been.
    pub(crate) started_ms: u64,
    state: Mutex<State>,
    arrived: Condvar,
    held: Arc<Held>,
}

/// Bytes of all listings of a tree that somebody still has.
#[derive(Default)]
pub(crate) struct Held(AtomicU64);

impl Held {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Of a listing beside its pages.
const LISTING_BYTES: u64 = 512;

struct State {
    pages: Vec<Arc<Page>>,
    /// Entries before the first page, which were dropped for want of memory, and the name of the last of them.
    dropped: u64,
    dropped_to: String,
    /// Handles that read it.
    readers: u32,
    binder: Binder,
    source: Feed,
    /// Requests that were answered.
    answers: u64,
    weight: u64,
}

enum Feed {
    Waits(Box<dyn Pages>),
    /// Somebody fetches a page.
    Fetching,
    Done,
    Failed(Arc<Error>),
}

/// What a listing knows of a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was told in a page that was asked for then.
    There(Said, u64),
    /// It is not there: a listing that was begun then has gone past it.
    Absent(u64),
    /// The listing has not come that far.
    Unread,
}

impl FolderListing {
    /// A listing that has not been begun, of a folder of that key.
    pub(crate) fn new(pages: Box<dyn Pages>, prefix: &str, now_ms: u64, held: Arc<Held>) -> FolderListing {
        let state = State {
            pages: Vec::new(),
            dropped: 0,
            dropped_to: String::new(),
            readers: 0,
            binder: Binder::new(prefix),
            source: Feed::Waits(pages),
            answers: 0,
            weight: LISTING_BYTES,
        };
        held.0.fetch_add(LISTING_BYTES, Ordering::Relaxed);
        FolderListing { started_ms: now_ms, state: Mutex::new(state), arrived: Condvar::new(), held }
    }

    /// The page that has entry number `entry`, which was not dropped, asked for where it is not there yet, or waited for where somebody else has
    /// asked; `None` behind the last entry. `now_ms` is asked before each request.
    pub(crate) fn page_with(
        &self,
        entry: u64,
        now_ms: impl Fn() -> u64,
        counters: &Counters,
    ) -> Result<Option<Arc<Page>>, Fault> {
        let mut state = self.lock();
        loop {
            if entry < state.entries() {
                let at = state.pages.partition_point(|page| page.end() <= entry);
                return Ok(state.pages.get(at).cloned());
            }
            match std::mem::replace(&mut state.source, Feed::Fetching) {
                Feed::Waits(pages) => {
                    drop(state);
                    self.fetch(pages, &now_ms, counters);
                    state = self.lock();
                }
                Feed::Fetching => {
                    state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                Feed::Done => {
                    state.source = Feed::Done;
                    return Ok(None);
                }
                Feed::Failed(why) => {
                    state.source = Feed::Failed(why.clone());
                    return Err(why.into());
                }
            }
        }
    }

    fn fetch(&self, mut pages: Box<dyn Pages>, now_ms: &dyn Fn() -> u64, counters: &Counters) {
        let lost = LostPage { listing: self, counters };
        let asked_ms = now_ms();
        counters.pages.count();
        let answer = pages.next_page();
        let mut state = self.lock();
        state.source = match answer {
            Ok((entries, is_last)) => {
                state.answers += 1;
                let bytes = state.bind(entries, is_last, asked_ms, counters);
                self.held.0.fetch_add(bytes, Ordering::Relaxed);
                if is_last { Feed::Done } else { Feed::Waits(pages) }
            }
            Err(why) => {
                counters.failures.count();
                Feed::Failed(Arc::new(why))
            }
        };
        drop(state);
        std::mem::forget(lost);
        self.arrived.notify_all();
    }

    /// What is known of a name by now.
    pub(crate) fn find(&self, name: &str) -> Answer {
        let state = self.lock();
        let is_done = matches!(state.source, Feed::Done);
        let found = |page: &Arc<Page>| page.find(name).map(|at| Answer::There(page.said(at), page.asked_ms));
        if state.binder.is_unordered {
            let mut answers: Vec<Answer> = state.pages.iter().filter_map(found).collect();
            // A folder's name may come twice, and it wins.
            answers.sort_by_key(|answer| !matches!(answer, Answer::There(Said::Folder, _)));
            let is_all = is_done && state.dropped == 0;
            let absent = if is_all { Answer::Absent(self.started_ms) } else { Answer::Unread };
            return answers.into_iter().next().unwrap_or(absent);
        }
        if state.dropped > 0 && names::order(name, &state.dropped_to).is_le() {
            return Answer::Unread;
        }
        let at = state.pages.partition_point(|page| names::order(page.last_name(), name).is_lt());
        match state.pages.get(at) {
            Some(page) => found(page).unwrap_or(Answer::Absent(self.started_ms)),
            None if is_done => Answer::Absent(self.started_ms),
            None => Answer::Unread,
        }
    }

    /// The first `most` folders behind a name, as far as pages are there.
    pub(crate) fn folders_behind(&self, name: &str, most: usize) -> Vec<String> {
        let state = self.lock();
        let first = match state.binder.is_unordered || name.is_empty() {
            true => 0,
            false => state.pages.partition_point(|page| names::order(page.last_name(), name).is_le()),
        };
        let pages = state.pages[first..].iter().enumerate();
        let rows = pages.flat_map(|(number, page)| {
            let start = if number == 0 && !name.is_empty() { page.behind(name) } else { 0 };
            (start..page.len()).map(move |at| (page, at))
        });
        let folders = rows.filter(|(page, at)| page.is_folder(*at));
        folders.take(most).map(|(page, at)| page.name(at).to_owned()).collect()
    }

    /// Drops the pages before the one that has entry number `entry`, unless somebody else reads them; but for one: a reader may
    /// step back a little.
    pub(crate) fn drop_before(&self, entry: u64) {
        let mut state = self.lock();
        if state.readers > 1 {
            return;
        }
        let keep = state.pages.partition_point(|page| page.end() <= entry).saturating_sub(1);
        let Some(last) = keep.checked_sub(1) else { return };
        state.dropped = state.pages[last].end();
        state.dropped_to = state.pages[last].last_name().to_owned();
        let bytes: u64 = state.pages.drain(..keep).map(|page| page.weight()).sum();
        state.weight -= bytes;
        self.held.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Entries at the start that are not there any more.
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// Entries that are there, or were.
    pub(crate) fn entries(&self) -> u64 {
        self.lock().entries()
    }

    /// Requests that were answered, those which brought nothing to show included.
    pub(crate) fn answers(&self) -> u64 {
        self.lock().answers
    }

    /// Whether a page behind the last is there to be asked for, and nobody asks for it now.
    pub(crate) fn may_go_on(&self) -> bool {
        matches!(self.lock().source, Feed::Waits(_))
    }

    /// It ended with an error: whoever comes next begins another.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.lock().source, Feed::Failed(_))
    }

    /// The error that it ended with, where nobody else has it.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        let mut state = self.lock();
        match std::mem::replace(&mut state.source, Feed::Done) {
            Feed::Failed(why) => Arc::into_inner(why),
            source => {
                state.source = source;
                None
            }
        }
    }

    /// Whether the listing has not come as far as a name.
    pub(crate) fn is_unread(&self, name: &str) -> bool {
        self.find(name) == Answer::Unread
    }

    /// When the folder's marker was put, in seconds since 1970, where the listing told of one.
    pub(crate) fn marker_s(&self) -> Option<u32> {
        self.lock().binder.marker_s
    }

    /// Whether anything lies in the folder, as far as is known: names, or its marker.
    pub(crate) fn is_proof(&self) -> bool {
        let state = self.lock();
        state.entries() > 0 || state.binder.marker_s.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fails the listing of who panics while a page is fetched: the others would wait for it.
struct LostPage<'a> {
    listing: &'a FolderListing,
    counters: &'a Counters,
}

impl Drop for LostPage<'_> {
    fn drop(&mut self) {
        self.counters.failures.count();
        let why = Error::new(ErrorKind::Internal, "a listing panicked: this is a defect of flatout");
        self.listing.lock().source = Feed::Failed(Arc::new(why));
        self.listing.arrived.notify_all();
    }
}

impl State {
    fn entries(&self) -> u64 {
        self.pages.last().map_or(self.dropped, |page| page.end())
    }

    /// The bytes that it takes.
    fn bind(&mut self, entries: Vec<Entry>, is_last: bool, asked_ms: u64, counters: &Counters) -> u64 {
        let Some(page) = self.binder.bind(entries, is_last, asked_ms, counters) else { return 0 };
        let bytes = page.weight();
        self.weight += bytes;
        self.pages.push(Arc::new(page));
        bytes
    }
}

/// A listing that a handle reads: its pages stay while there is another reader.
pub(crate) struct Read(Arc<FolderListing>);

impl Read {
    pub(crate) fn new(listing: Arc<FolderListing>) -> Read {
        listing.lock().readers += 1;
        Read(listing)
    }

    pub(crate) fn listing(&self) -> &Arc<FolderListing> {
        &self.0
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        self.0.lock().readers -= 1;
    }
}

impl Drop for FolderListing {
    fn drop(&mut self) {
        let bytes = self.lock().weight;
        self.held.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Panics when it is told to.
    struct Panics {
        asked: mpsc::Sender<()>,
        goes: mpsc::Receiver<()>,
    }

    impl Pages for Panics {
        fn next_page(&mut self) -> Result<(Vec<Entry>, bool), Error> {
            self.asked.send(()).expect("the test listens");
            self.goes.recv().expect("the test tells");
            panic!("as a test")
        }
    }

    /// Everybody waited for it without end.
    #[test]
    fn a_listing_that_panics_fails_for_who_waits_and_who_comes() {
        let (asked, is_asked) = mpsc::channel();
        let (go, goes) = mpsc::channel();
        let pages = Box::new(Panics { asked, goes });
        let listing = Arc::new(FolderListing::new(pages, "", 0, Arc::<Held>::default()));
        let counters = Arc::new(Counters::default());
        let (tell, told) = mpsc::channel();
        let read = || {
            let (listing, counters, tell) = (listing.clone(), counters.clone(), tell.clone());
            std::thread::spawn(move || {
                let page = listing.page_with(0, || 0, &counters);
                tell.send(page.map(|page| page.is_some()).map_err(|fault| fault.errno))
                    .expect("the test listens");
            })
        };
        let panics = read();
        is_asked.recv().expect("it asks");
        let waits = read();
        go.send(()).expect("it waits to be told");
        assert!(panics.join().is_err());
        // A guard against hanging, no measure.
        let patience = std::time::Duration::from_secs(30);
        assert_eq!(told.recv_timeout(patience).expect("who waits is answered"), Err(libc::EIO));
        waits.join().expect("no panic");
        read().join().expect("no panic");
        assert_eq!(told.recv_timeout(patience).expect("who comes is answered"), Err(libc::EIO));
        assert!(listing.has_failed() && counters.failures.get() == 1);
    }
}
