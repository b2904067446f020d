//! The listing of one folder, shared by its readers. One of them fetches the next page when it needs it;
//! fetched pages never change. An entry keeps its number as long as the listing lives.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use flatout_engine::{Entry, Error, ErrorKind};

use crate::fs_error::FsError;
use crate::names;
use crate::page::{ListingPage, PageBuilder, PageEntry};
use crate::stats::TreeCounters;
use crate::store::ListingPages;

pub(crate) struct FolderListing {
    /// A time just before the origin is asked for the first page.
    pub(crate) started_ms: u64,
    state: Mutex<State>,
    arrived: Condvar,
    total: Arc<ListingBytes>,
}

/// Bytes of all listings of a tree that are still in use.
#[derive(Default)]
pub(crate) struct ListingBytes(AtomicU64);

impl ListingBytes {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bytes of a listing without its pages.
const LISTING_BYTES: u64 = 512;

struct State {
    pages: Vec<Arc<ListingPage>>,
    /// How many entries before the first page were dropped for lack of memory, and the name of the last of
    /// them.
    dropped: u64,
    dropped_to: String,
    /// How many handles read it.
    readers: u32,
    builder: PageBuilder,
    source: PageSource,
    /// How many requests were answered.
    answers: u64,
    weight: u64,
}

enum PageSource {
    Waits(Box<dyn ListingPages>),
    /// A reader fetches a page.
    Fetching,
    Done,
    Failed(Arc<Error>),
}

/// What a listing says about a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NameInListing {
    /// The entry, and when its page was requested.
    Present(PageEntry, u64),
    /// The listing has passed the name, and began at this time.
    Absent(u64),
    /// The listing has not come as far as the name.
    NotYet,
}

impl FolderListing {
    /// The listing of the folder with this prefix, before its first request.
    pub(crate) fn new(
        pages: Box<dyn ListingPages>,
        prefix: &str,
        now_ms: u64,
        total: Arc<ListingBytes>,
    ) -> FolderListing {
        FolderListing::of(PageSource::Waits(pages), prefix, now_ms, total)
    }

    /// The listing of a folder that had no entries at that time.
    pub(crate) fn empty(asked_ms: u64, total: Arc<ListingBytes>) -> FolderListing {
        FolderListing::of(PageSource::Done, "", asked_ms, total)
    }

    fn of(source: PageSource, prefix: &str, now_ms: u64, total: Arc<ListingBytes>) -> FolderListing {
        let state = State {
            pages: Vec::new(),
            dropped: 0,
            dropped_to: String::new(),
            readers: 0,
            builder: PageBuilder::new(prefix),
            source,
            answers: 0,
            weight: LISTING_BYTES,
        };
        total.0.fetch_add(LISTING_BYTES, Ordering::Relaxed);
        FolderListing { started_ms: now_ms, state: Mutex::new(state), arrived: Condvar::new(), total }
    }

    /// The page with entry number `entry`, which must not have been dropped; `None` after the last entry. A
    /// page that is not there is requested, or waited for if another reader has requested it. `now_ms` is
    /// called before each request.
    pub(crate) fn page_with(
        &self,
        entry: u64,
        now_ms: impl Fn() -> u64,
        counters: &TreeCounters,
    ) -> Result<Option<Arc<ListingPage>>, FsError> {
        let mut state = self.lock();
        loop {
            if entry < state.entries() {
                let at = state.pages.partition_point(|page| page.end() <= entry);
                return Ok(state.pages.get(at).cloned());
            }
            match std::mem::replace(&mut state.source, PageSource::Fetching) {
                PageSource::Waits(pages) => {
                    drop(state);
                    self.fetch(pages, &now_ms, counters);
                    state = self.lock();
                }
                PageSource::Fetching => {
                    state = self.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
                PageSource::Done => {
                    state.source = PageSource::Done;
                    return Ok(None);
                }
                PageSource::Failed(why) => {
                    state.source = PageSource::Failed(why.clone());
                    return Err(why.into());
                }
            }
        }
    }

    fn fetch(&self, mut pages: Box<dyn ListingPages>, now_ms: &dyn Fn() -> u64, counters: &TreeCounters) {
        let lost = LostPage { listing: self, counters };
        let asked_ms = now_ms();
        counters.pages.count();
        let answer = pages.next_page();
        // Some pages are asked for before anybody wants them.
        let asked_ms = asked_ms.min(now_ms().saturating_sub(pages.page_age_ms()));
        let mut state = self.lock();
        state.source = match answer {
            Ok((entries, is_last)) => {
                state.answers += 1;
                let bytes = state.bind(entries, is_last, asked_ms, counters);
                self.total.0.fetch_add(bytes, Ordering::Relaxed);
                if is_last { PageSource::Done } else { PageSource::Waits(pages) }
            }
            Err(why) => {
                counters.failures.count();
                PageSource::Failed(Arc::new(why))
            }
        };
        drop(state);
        std::mem::forget(lost);
        self.arrived.notify_all();
    }

    /// What the fetched pages say about a name.
    pub(crate) fn find(&self, name: &str) -> NameInListing {
        let state = self.lock();
        let is_done = matches!(state.source, PageSource::Done);
        let found = |page: &Arc<ListingPage>| {
            page.find(name).map(|at| NameInListing::Present(page.entry(at), page.asked_ms))
        };
        if state.builder.is_unordered {
            let mut answers: Vec<NameInListing> = state.pages.iter().filter_map(found).collect();
            // The name may come twice; the folder wins.
            answers.sort_by_key(|answer| !matches!(answer, NameInListing::Present(PageEntry::Folder, _)));
            let is_all = is_done && state.dropped == 0;
            let absent = if is_all { NameInListing::Absent(self.started_ms) } else { NameInListing::NotYet };
            return answers.into_iter().next().unwrap_or(absent);
        }
        if state.dropped > 0 && names::order(name, &state.dropped_to).is_le() {
            return NameInListing::NotYet;
        }
        let at = state.pages.partition_point(|page| names::order(page.last_name(), name).is_lt());
        match state.pages.get(at) {
            Some(page) => found(page).unwrap_or(NameInListing::Absent(self.started_ms)),
            None if is_done => NameInListing::Absent(self.started_ms),
            None => NameInListing::NotYet,
        }
    }

    /// The first `most` folders after a name in the fetched pages.
    pub(crate) fn folders_behind(&self, name: &str, most: usize) -> Vec<String> {
        let state = self.lock();
        let first = match state.builder.is_unordered || name.is_empty() {
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

    /// Drops the pages before entry number `entry`, unless there is another reader. The last of them stays: a
    /// reader may step back a little.
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
        self.total.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// How many entries at the start were dropped.
    pub(crate) fn dropped(&self) -> u64 {
        self.lock().dropped
    }

    /// How many entries have come, those that were dropped included.
    pub(crate) fn entries(&self) -> u64 {
        self.lock().entries()
    }

    /// How many requests were answered, with or without entries to show.
    pub(crate) fn answers(&self) -> u64 {
        self.lock().answers
    }

    /// Whether there is another page that no reader is fetching.
    pub(crate) fn may_go_on(&self) -> bool {
        matches!(self.lock().source, PageSource::Waits(_))
    }

    /// Whether it ended with an error: the next reader begins another listing.
    pub(crate) fn has_failed(&self) -> bool {
        matches!(self.lock().source, PageSource::Failed(_))
    }

    /// The error that it ended with, unless another reader has a copy.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        let mut state = self.lock();
        match std::mem::replace(&mut state.source, PageSource::Done) {
            PageSource::Failed(why) => Arc::into_inner(why),
            source => {
                state.source = source;
                None
            }
        }
    }

    /// Whether the listing has not come as far as this name.
    pub(crate) fn is_unread(&self, name: &str) -> bool {
        self.find(name) == NameInListing::NotYet
    }

    /// When the folder's marker object was written, in seconds since 1970, if the listing has one.
    pub(crate) fn marker_s(&self) -> Option<u32> {
        self.lock().builder.marker_s
    }

    /// Whether the folder has an entry or a marker object.
    pub(crate) fn is_proof(&self) -> bool {
        let state = self.lock();
        state.entries() > 0 || state.builder.marker_s.is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fails the listing if the fetching reader panics: the others would wait for ever.
struct LostPage<'a> {
    listing: &'a FolderListing,
    counters: &'a TreeCounters,
}

impl Drop for LostPage<'_> {
    fn drop(&mut self) {
        self.counters.failures.count();
        let why = Error::new(ErrorKind::Internal, "a listing panicked: this is a defect of flatout");
        self.listing.lock().source = PageSource::Failed(Arc::new(why));
        self.listing.arrived.notify_all();
    }
}

impl State {
    fn entries(&self) -> u64 {
        self.pages.last().map_or(self.dropped, |page| page.end())
    }

    /// Adds a page; returns its bytes.
    fn bind(&mut self, entries: Vec<Entry>, is_last: bool, asked_ms: u64, counters: &TreeCounters) -> u64 {
        let Some(page) = self.builder.bind(entries, is_last, asked_ms, counters) else { return 0 };
        let bytes = page.weight();
        self.weight += bytes;
        self.pages.push(Arc::new(page));
        bytes
    }
}

/// A listing that a handle reads: as long as there are two of these, no page is dropped.
pub(crate) struct ListingReader(Arc<FolderListing>);

impl ListingReader {
    pub(crate) fn new(listing: Arc<FolderListing>) -> ListingReader {
        listing.lock().readers += 1;
        ListingReader(listing)
    }

    pub(crate) fn listing(&self) -> &Arc<FolderListing> {
        &self.0
    }
}

impl Drop for ListingReader {
    fn drop(&mut self) {
        self.0.lock().readers -= 1;
    }
}

impl Drop for FolderListing {
    fn drop(&mut self) {
        let bytes = self.lock().weight;
        self.total.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Panics when the test says so.
    struct Panics {
        asked: mpsc::Sender<()>,
        go: mpsc::Receiver<()>,
    }

    impl ListingPages for Panics {
        fn next_page(&mut self) -> Result<(Vec<Entry>, bool), Error> {
            self.asked.send(()).expect("the test listens");
            self.go.recv().expect("the test sends");
            panic!("as a test")
        }
    }

    /// A page that was asked for before anybody wanted it.
    struct Ahead;

    impl ListingPages for Ahead {
        fn next_page(&mut self) -> Result<(Vec<Entry>, bool), Error> {
            Ok((vec![Entry::Prefix("a/".to_owned())], true))
        }

        fn page_age_ms(&self) -> u64 {
            700
        }
    }

    #[test]
    fn facts_are_as_old_as_their_page() {
        let listing = FolderListing::new(Box::new(Ahead), "", 0, Arc::default());
        let page = listing.page_with(0, || 1_000, &TreeCounters::default()).expect("it comes");
        assert_eq!(page.expect("a page").asked_ms, 300);
    }

    #[test]
    fn a_panic_fails_a_listing_for_all_readers() {
        let (asked, is_asked) = mpsc::channel();
        let (start, go) = mpsc::channel();
        let pages = Box::new(Panics { asked, go });
        let listing = Arc::new(FolderListing::new(pages, "", 0, Arc::<ListingBytes>::default()));
        let counters = Arc::new(TreeCounters::default());
        let (sender, receiver) = mpsc::channel();
        let read = || {
            let (listing, counters, sender) = (listing.clone(), counters.clone(), sender.clone());
            std::thread::spawn(move || {
                let page = listing.page_with(0, || 0, &counters);
                let answer = page.map(|page| page.is_some()).map_err(|error| error.errno);
                sender.send(answer).expect("the test listens");
            })
        };
        let panics = read();
        is_asked.recv().expect("it asks");
        let waits = read();
        start.send(()).expect("it waits for this");
        assert!(panics.join().is_err());
        // A guard against hanging, no measure.
        let patience = std::time::Duration::from_secs(30);
        assert_eq!(receiver.recv_timeout(patience).expect("a waiting reader is answered"), Err(libc::EIO));
        waits.join().expect("no panic");
        read().join().expect("no panic");
        assert_eq!(receiver.recv_timeout(patience).expect("a later reader is answered"), Err(libc::EIO));
        assert!(listing.has_failed() && counters.failures.get() == 1);
    }
}
