//! A listing of which many pages are in flight. [`flatout_policy::listing`] decides which;
//! here they are asked for, and handed out in order.
//!
//! ```text
//! reader's thread:  take ◀── Sections ──▶ next_request ──┐   whenever nothing is there, and now and then
//!                               ▲                        ▼
//! shards:                     page ◀─ one request a page, again where it is lost or throttled
//! ```

use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flatout_policy::listing::{ListingLimits, PageFrom, PageRequest, Sections, Taken};
use flatout_policy::retry::Fault;
use flatout_wire::listing::PageStart;
use flatout_wire::location::Location;

use crate::api::account::Operation;
use crate::api::refusal::Failure;
use crate::base::cancellation::Cancellation;
use crate::base::error::Error;
use crate::client::list::{Entry, SerialListing, page_of, repeats_a_page};
use crate::client::listed_page::{ListedPage, PageReader};
use crate::memory::plan::MemoryPlan;
use crate::shard::Shard;
use crate::shard::call::call_watched;
use crate::shard::shards::{Job, Shards, Task};
use crate::shard::shared::Shared;

/// Far origins need as many (docs/decisions/listing.md).
const IN_FLIGHT_MAX: u32 = 128;
/// What a page takes while it arrives, roughly: 1,000 keys as XML.
const ARRIVING_BYTES: u64 = 256 << 10;
/// A mount lists many folders at a time, each of which is one level, and each for a reader that may stop.
const LEVELS_AT_ONCE: u64 = 16;
const IN_FLIGHT_OF_LEVEL: u32 = 32;
/// Pages are parsed by so many shards.
const SHARDS_MAX: usize = 4;
/// Entries that are handed out between two looks at what has come.
const ENTRIES_A_LOOK: u32 = 256;

pub(crate) struct ParallelListing {
    shards: Arc<Shards>,
    shared: Arc<Shared>,
    under: Location,
    /// Of one level.
    delimiter: Option<char>,
    sections: Sections<ListedPage, Error>,
    /// The page that is being handed out.
    reading: Option<PageReader>,
    /// When the origin was asked for it.
    asked: Instant,
    until_look: u32,
    requests: usize,
    tell: Sender<Event>,
    /// Never locked: it is there for a listing to be `Sync`.
    told: Mutex<Receiver<Event>>,
    stop: Arc<Cancellation>,
    began: Instant,
}

enum Event {
    /// A page, and the token of the next one.
    Page(u64, ListedPage, Option<String>),
    /// It cannot be had; whether that is what the origin answered.
    Failed(u64, Error, bool),
    /// A request that left then was too much for the origin. It will be sent again.
    Throttled(Instant),
    /// A shard let go of it.
    Gone(u64),
}

impl ParallelListing {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        shards: Arc<Shards>,
        under: Location,
        delimiter: Option<char>,
    ) -> ParallelListing {
        let (tell, told) = mpsc::channel();
        let mut limits = limits(&shared.memory_plan, shared.settings.parallel);
        if delimiter.is_some() {
            limits.bytes /= LEVELS_AT_ONCE;
            limits.in_flight = limits.in_flight.min(IN_FLIGHT_OF_LEVEL);
        }
        ParallelListing {
            sections: Sections::new(under.key(), delimiter, limits),
            shards,
            shared: shared.clone(),
            under,
            delimiter,
            reading: None,
            asked: Instant::now(),
            until_look: ENTRIES_A_LOOK,
            requests: 0,
            tell,
            told: Mutex::new(told),
            stop: Arc::new(Cancellation::new()),
            began: Instant::now(),
        }
    }

    /// A listing of what this one lists, one page after the other.
    pub(crate) fn serial(&self) -> SerialListing {
        SerialListing::new(&self.shared, self.shards.clone(), self.under.clone(), self.delimiter)
    }

    /// How long ago the origin was asked for the page that is handed out.
    pub(crate) fn page_age(&self) -> Duration {
        self.asked.elapsed()
    }

    /// Whether everything has been handed out.
    pub(crate) fn is_done(&self) -> bool {
        self.reading.as_ref().is_none_or(|reading| reading.size_hint().0 == 0) && self.sections.is_done()
    }

    /// The next entry; waits for it.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            if let Some(entry) = self.reading.as_mut().and_then(Iterator::next) {
                self.look_now_and_then();
                return Ok(Some(entry));
            }
            if !self.read_next_page()? {
                return Ok(None);
            }
        }
    }

    /// What is left of the page that is being handed out, or else the next one; waits for it. Nothing behind
    /// the last.
    pub(crate) fn page(&mut self) -> Result<Vec<Entry>, Error> {
        let is_read = self.reading.as_ref().is_none_or(|reading| reading.size_hint().0 == 0);
        if is_read {
            self.read_next_page()?;
        }
        Ok(self.reading.take().into_iter().flatten().collect())
    }

    /// Waits for the next page; false behind the last.
    fn read_next_page(&mut self) -> Result<bool, Error> {
        self.reading = None;
        loop {
            match self.sections.take() {
                Taken::Page(page) => {
                    self.asked = page.asked();
                    self.reading = Some(page.read());
                    self.look();
                    return Ok(true);
                }
                Taken::Failed(error) => return Err(error),
                Taken::End => return Ok(false),
                Taken::Wait => {
                    self.ask();
                    // Where nothing could be asked for, that is what is taken next.
                    if self.sections.in_flight() > 0 {
                        let event = self.told().recv().expect("this thread holds a sender");
                        self.on_event(event);
                    }
                    self.hear();
                }
            }
        }
    }

    fn look_now_and_then(&mut self) {
        self.until_look -= 1;
        if self.until_look == 0 {
            self.until_look = ENTRIES_A_LOOK;
            self.look();
        }
    }

    /// Takes what has come, and asks for more. The second page is asked for only when the first one has been
    /// read: nobody may want it.
    fn look(&mut self) {
        if self.sections.is_cut() {
            self.hear();
            self.ask();
        }
    }

    fn told(&mut self) -> &mut Receiver<Event> {
        self.told.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&mut self) {
        while let Ok(event) = self.told().try_recv() {
            self.on_event(event);
        }
    }

    fn on_event(&mut self, event: Event) {
        let now = self.began.elapsed();
        match event {
            Event::Page(section, page, next) => self.sections.on_page(section, page, next, now),
            Event::Failed(section, error, is_refused) => {
                self.sections.on_failure(section, error, is_refused);
            }
            Event::Throttled(asked) => {
                self.sections.on_throttled(asked.saturating_duration_since(self.began), now);
            }
            Event::Gone(section) => self.sections.on_failure(section, self.shards.unanswered(), false),
        }
    }

    fn ask(&mut self) {
        while let Some(PageRequest { section, from }) = self.sections.next_request(self.began.elapsed()) {
            let start = match from {
                PageFrom::Start => PageStart::First,
                PageFrom::After(key) => PageStart::After(key),
                PageFrom::Token(token) => PageStart::Token(token),
            };
            let shards = (self.shared.settings.shards as usize).clamp(1, SHARDS_MAX);
            let shard = if self.sections.is_cut() { self.requests % shards } else { 0 };
            self.requests += 1;
            match self.shards.way_to(shard) {
                Ok(way) => {
                    // A shard that has stopped drops it, and the reply with it.
                    let _ = way.send(Job::Task(self.task(section, start)));
                }
                Err(error) => self.sections.on_failure(section, error, false),
            }
        }
    }

    fn task(&self, section: u64, start: PageStart) -> Task {
        let reply = Reply { tell: self.tell.clone(), section, is_sent: false };
        let (under, delimiter, stop) = (self.under.clone(), self.delimiter, self.stop.clone());
        Task::new(move |shard| async move {
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = fetch(&shard, under, delimiter, start, reply) => {}
            }
        })
    }
}

impl Drop for ParallelListing {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Pages that wait may hold as much as names that are read ahead; as many may be in flight as have room in
/// the memory of control answers.
fn limits(plan: &MemoryPlan, parallel: Option<u32>) -> ListingLimits {
    let by_memory = u32::try_from(plan.answer / ARRIVING_BYTES).unwrap_or(IN_FLIGHT_MAX);
    let in_flight = by_memory.min(parallel.unwrap_or(IN_FLIGHT_MAX)).clamp(1, IN_FLIGHT_MAX);
    ListingLimits { in_flight, bytes: plan.names }
}

/// Asks for a page, and tells what came of it.
async fn fetch(shard: &Rc<Shard>, under: Location, delimiter: Option<char>, start: PageStart, reply: Reply) {
    let token = if let PageStart::Token(token) = &start { Some(token.clone()) } else { None };
    let operation = Operation::Page { under: under.clone(), delimiter, start, most: None };
    let asked = Instant::now();
    let on_failure = |failure: &Failure, asked: Instant| {
        if matches!(failure.fault, Fault::Throttled | Fault::Unavailable) {
            // Whoever asked may have gone.
            let _ = reply.tell.send(Event::Throttled(asked));
        }
    };
    let answered = call_watched(shard, operation, on_failure).await;
    let page = answered.map_err(|failure| {
        let is_refused = failure.fault == Fault::Final && failure.status.is_some();
        (failure.error, is_refused)
    });
    let page = page.and_then(|(_, body)| page_of(&under, &body).map_err(|error| (error, true)));
    let section = reply.section;
    reply.send(match page {
        Ok(mut page) => match page.next.take() {
            next if next.is_some() && next == token => Event::Failed(section, repeats_a_page(), false),
            next => Event::Page(section, ListedPage::of(page, asked, shard.shared.pool.charge(0)), next),
        },
        Err((error, is_refused)) => Event::Failed(section, error, is_refused),
    });
}

/// Who waits for a page, and hears of it even if nothing comes of it.
struct Reply {
    tell: Sender<Event>,
    section: u64,
    is_sent: bool,
}

impl Reply {
    fn send(mut self, event: Event) {
        self.is_sent = true;
        let _ = self.tell.send(event);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_sent {
            let _ = self.tell.send(Event::Gone(self.section));
        }
    }
}
