//! A transfer: what its shards share while it runs. What its caller holds is in `handle`.

pub(crate) mod attempt;
pub(crate) mod drive;
pub(crate) mod get;
pub(crate) mod handle;
pub(crate) mod hold;
mod owner;
pub(crate) mod part;
pub(crate) mod resources;
pub(crate) mod single;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use flatout_settings::format_size;
use flatout_wire::head::Head;
use flatout_wire::range::Span;

use crate::api::account::Account;
use crate::api::object::ObjectRequests;
use crate::api::pinned::Pinned;
use crate::api::refusal::Failure;
use crate::base::cancellation::Cancellation;
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{Feature, Word, text};
use crate::base::limited_by::Tally;
use crate::base::report::{Counters, PartRecord, Progress, Report, Stat};
use crate::base::version::Version;
use crate::disk::file::FileGround;
use crate::disk::journal::{self, DownloadIdentity, Kept};
use crate::gate::Gate;
use crate::gate::slots::{Slot, Turns, at_once};
use crate::memory::lease::Pool;
use crate::policy::flight::Flights;
use crate::policy::plan::{Plan, Taken};
use crate::policy::queue::Priority;
use crate::shard::shards::Shards;
use crate::sink::check;
use crate::sink::end::End;
use crate::sink::landing::Ground;
use crate::sink::stream::reader_has_gone;
use crate::sink::verify::{Ledger, PartHash, Statement};
use crate::transfer::get::Get;
use crate::transfer::resources::Resources;

pub(crate) use owner::Owner;

/// A part whose turn it is.
pub(crate) struct Turn {
    pub(crate) taken: Taken,
    pub(crate) slot: Slot,
}

/// What is asked for.
struct Request {
    name: String,
    object: Arc<ObjectRequests>,
    span: Span,
    known: Option<Arc<Pinned>>,
}

/// What the shards of a transfer share.
pub(crate) struct Running {
    pub(crate) name: String,
    /// One for all segments of a reader's object.
    pub(crate) object: Arc<ObjectRequests>,
    pub(crate) span: Span,
    pub(crate) ground: Ground,
    pub(crate) gate: Arc<Gate>,
    /// Where its workers are started.
    pub(crate) shards: Arc<Shards>,
    pub(crate) turns: Turns,
    /// What had held the gate back when it began.
    tally: Tally,
    /// Its parts may be taken by any number of workers.
    is_open: AtomicBool,
    pub(crate) ledger: Ledger,
    pub(crate) counters: Counters,
    pub(crate) flights: Flights,
    /// One bit per shard that took part; shards beyond 64 share bits.
    shards_seen: AtomicU64,
    started: Instant,
    pub(crate) process: u32,
    record_parts: bool,
    records: Mutex<Vec<PartRecord>>,
    settled: OnceLock<Settled>,
    /// The version to be read, where somebody knows it before the first answer.
    known: Option<Arc<Pinned>>,
    whole: AtomicBool,
    bytes_done: AtomicU64,
    resumed_bytes: AtomicU64,
    /// Of a transfer that failed: what the next run will find.
    pub(crate) kept_bytes: AtomicU64,
    failure: Mutex<Option<Error>>,
    stop: Arc<Cancellation>,
    pub(crate) holds: AtomicU32,
    pub(crate) end: End,
    /// Set where this is one of many objects.
    pub(crate) owner: Option<Box<dyn Owner>>,
}

/// What the first answer settles.
struct Settled {
    version: Version,
    /// What else it told of the object; nothing where the version was known before.
    stat: Option<Stat>,
    /// The ETag that pins later requests: a strong one, or none.
    pin: Option<String>,
    /// Of the object, where the landing's first byte is its first.
    range: Range<u64>,
    /// One short lock a part, which is a mebibyte and more.
    plan: Mutex<Plan>,
    /// Unknown where the origin sends one stream and does not say how long it is.
    total_bytes: Option<u64>,
}

impl Settled {
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Opens the landing; nothing is sent yet.
    pub(crate) fn start(get: Get, account: Arc<Account>, resources: Resources) -> Result<Running, Error> {
        let name = get.location.to_string();
        let pinned = get.if_match.map(|etag| Pinned::of_etag(name.clone(), &etag)).transpose();
        let known = pinned.map_err(|error| error.during("read", &name))?.map(Arc::new);
        let mut ground = Ground::open(get.landing, resources.care.resume)?;
        ground.set_keep_existing(get.keep_existing);
        let mut object = ObjectRequests::new(account, get.location).of_version(get.version_id);
        if get.in_one_answer && get.span == Span::All {
            object.ask_for_the_whole();
        }
        let asked = Request { name, object: Arc::new(object), span: get.span, known };
        let running = Running::new(asked, ground, resources);
        Ok(Running { record_parts: get.record_parts, end: End::new(get.on_end), ..running })
    }

    /// A range of a version that is known: no answer is needed to settle it. Of a whole object by one plain GET the answer
    /// says more, and settles it.
    pub(crate) fn of_version(
        object: Arc<ObjectRequests>,
        known: Arc<Pinned>,
        range: Range<u64>,
        ground: Ground,
        resources: Resources,
    ) -> Running {
        let asks_for_the_whole = object.asks_for_the_whole();
        let span = if asks_for_the_whole { Span::All } else { Span::Slice(range.clone()) };
        let asked = Request { name: known.name.clone(), object, span, known: Some(known.clone()) };
        let running = Running::new(asked, ground, resources);
        if !asks_for_the_whole {
            running.ledger.state(Statement::Nothing("a part of the object was read"));
            let settled = Settled {
                version: known.version(),
                stat: None,
                pin: known.pin.clone(),
                plan: Mutex::new(Plan::new(std::iter::once(range.clone()))),
                total_bytes: Some(range.end - range.start),
                range,
            };
            let fresh = running.settled.set(settled).is_ok();
            assert!(fresh, "it was made a moment ago");
        }
        running
    }

    fn new(asked: Request, ground: Ground, resources: Resources) -> Running {
        let Request { name, object, span, known } = asked;
        let Resources { gate, shards, turns, care } = resources;
        let stop = Arc::new(Cancellation::new());
        ground.stop_when_abandoned(&stop);
        let ledger = Ledger::default();
        if !care.verify {
            ledger.state(Statement::Nothing("switched off"));
        }
        Running {
            name,
            object,
            span,
            ground,
            tally: gate.tally(),
            gate,
            turns,
            is_open: AtomicBool::new(false),
            ledger,
            counters: Counters::default(),
            flights: Flights::default(),
            shards_seen: AtomicU64::new(0),
            shards,
            started: Instant::now(),
            process: std::process::id(),
            record_parts: false,
            records: Mutex::default(),
            settled: OnceLock::new(),
            known,
            whole: AtomicBool::new(false),
            bytes_done: AtomicU64::new(0),
            resumed_bytes: AtomicU64::new(0),
            kept_bytes: AtomicU64::new(0),
            failure: Mutex::default(),
            stop,
            holds: AtomicU32::new(0),
            end: End::new(None),
            owner: None,
        }
    }

    /// The same as one of many objects; with `whole` it is asked for by one plain GET.
    pub(crate) fn owned_by(mut self, owner: Box<dyn Owner>, whole: bool) -> Running {
        self.owner = Some(owner);
        if whole && let Some(object) = Arc::get_mut(&mut self.object) {
            object.ask_for_the_whole();
        }
        self
    }

    /// Whether an earlier run has left something that may be of use.
    pub(crate) fn may_resume(&self) -> bool {
        self.location_left().is_some_and(|location| location == self.name)
    }

    /// Whether what an earlier run left is of another object, and still there.
    fn is_of_another(&self) -> bool {
        self.location_left().is_some_and(|location| location != self.name)
    }

    /// Of which object an earlier run left something.
    fn location_left(&self) -> Option<String> {
        Some(self.ground.file()?.earlier()?.identity.location.clone())
    }

    /// What of `range` an earlier run left in the file, if that was of the version that answers now. Reads it, which may
    /// take a while.
    pub(crate) async fn kept(self: &Arc<Running>, head: &Head, range: &Range<u64>) -> Kept {
        let identity = self.identity(head, range);
        let noted = self.ground.file().zip(identity).and_then(|(file, identity)| file.noted_of(&identity));
        let Some(noted) = noted else { return Kept::default() };
        let (tell, told) = tokio::sync::oneshot::channel();
        let running = self.clone();
        let reader = std::thread::Builder::new().name("flatout-check".into()).spawn(move || {
            let on_block = |bytes| {
                running.counters.landed_bytes.fetch_add(bytes, Ordering::Relaxed);
                !running.is_stopped()
            };
            let Some(file) = running.ground.file() else { return };
            // Who asked may have been stopped meanwhile.
            let _ = tell.send(check::check(file.content(), &noted, &running.ledger, &on_block));
        });
        match reader {
            Ok(_) => told.await.unwrap_or_default(),
            // Without a thread to read it nothing is kept.
            Err(_) => Kept::default(),
        }
    }

    /// What the file is to be a copy of. Without an ETag that tells versions apart, old bytes could be taken for new ones:
    /// nothing is noted then.
    fn identity(&self, head: &Head, range: &Range<u64>) -> Option<DownloadIdentity> {
        head.strong_etag()?;
        let version = Version::of(head, head.object_bytes());
        Some(DownloadIdentity { location: self.name.clone(), version, range: range.clone() })
    }

    /// A part of an object has no checksum that an origin would state.
    pub(crate) fn note_span(&self, head: &Head, range: &Range<u64>) {
        let whole = self.span == Span::All || (range.start == 0 && head.object_bytes() == Some(range.end));
        if !whole {
            self.ledger.state(Statement::Nothing("a part of the object was read"));
        }
    }

    /// Fixes the version and the plan by the first answer, and makes room in the landing, which has `kept` of it.
    /// `total_bytes` is `None` where the end of the range is not known.
    pub(crate) fn settle(
        &self,
        head: &Head,
        range: Range<u64>,
        total_bytes: Option<u64>,
        kept: &Kept,
        pool: &Arc<Pool>,
    ) -> Result<(), Error> {
        let version = Version::of(head, head.object_bytes());
        self.hold_against_known(&version).map_err(|failure| failure.error)?;
        if let Some(file) = self.ground.file() {
            let (identity, has_ranges) = (self.identity(head, &range), head.status == 206);
            let begun = file.begin(identity.as_ref(), has_ranges, kept);
            begun.map_err(|error| error.during("write", file.shown()))?;
        }
        self.ground.prepare(pool, total_bytes)?;
        self.resumed_bytes.store(kept.bytes, Ordering::Relaxed);
        self.bytes_done.store(kept.bytes, Ordering::Release);
        if total_bytes == Some(kept.bytes) {
            self.whole.store(true, Ordering::Release);
        }
        let plan = Mutex::new(Plan::new(kept.missing(&range)));
        let pin = head.strong_etag().map(String::from);
        let stat = Some(Stat::of(head, head.object_bytes()));
        let fresh = self.settled.set(Settled { version, stat, pin, range, plan, total_bytes }).is_ok();
        assert!(fresh, "only the lead settles, once");
        Ok(())
    }

    /// Writes the journal every now and then, on the shard of whoever calls, for as long as anybody has a hold.
    pub(crate) fn keep_journal(self: &Arc<Running>) {
        if self.ground.file().and_then(FileGround::journal).is_none() {
            return;
        }
        let running = Arc::downgrade(self);
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(journal::BATCH_AGE).await;
                let Some(running) = running.upgrade().filter(|running| running.is_held()) else { break };
                if let Some(journal) = running.ground.file().and_then(FileGround::journal) {
                    journal.flush();
                }
            }
        });
    }

    fn is_held(&self) -> bool {
        self.holds.load(Ordering::Acquire) > 0
    }

    pub(crate) fn version(&self) -> Option<&Version> {
        self.settled.get().map(|settled| &settled.version)
    }

    /// What is read of the object; known once it is settled.
    pub(crate) fn range(&self) -> Option<&Range<u64>> {
        self.settled.get().map(|settled| &settled.range)
    }

    /// How many parts nobody has taken yet, if they stay as long as they are now.
    pub(crate) fn parts_left(&self) -> u64 {
        let Some(settled) = self.settled.get() else { return 0 };
        settled.plan().left(self.gate.usual_part_bytes().min(self.part_bytes_max()))
    }

    /// Lets the gate give its parts to as many workers as it sees fit.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// How many more workers could take a part now, and how urgent that is.
    pub(crate) fn wants_workers(&self) -> (u64, Priority) {
        let is_open = self.is_open.load(Ordering::Acquire) && !self.is_stopped();
        (if is_open { self.parts_left() } else { 0 }, self.turns.priority())
    }

    /// How long the first part may be, asked for before anything is known of the object.
    pub(crate) fn first_part_bytes(&self) -> u64 {
        self.part_bytes(u64::MAX)
    }

    /// How long the next part may be, of an object of which `left` bytes have not been taken.
    fn part_bytes(&self, left: u64) -> u64 {
        self.gate.part_bytes(left).min(self.part_bytes_max())
    }

    fn part_bytes_max(&self) -> u64 {
        match self.ground.is_stream() {
            true => self.gate.streamed_part_bytes_max(),
            false => u64::MAX,
        }
    }

    /// The ETag that pins later requests; a weak one cannot (RFC 9110 §13.1.1).
    pub(crate) fn if_match(&self) -> Option<&str> {
        match (self.settled.get(), &self.known) {
            (Some(settled), _) => settled.pin.as_deref(),
            (None, known) => known.as_ref()?.pin.as_deref(),
        }
    }

    /// Holds the version of an answer against the one that all transfers of it are to read, and adds what that one lacks.
    pub(crate) fn hold_against_known(&self, found: &Version) -> Result<(), Failure> {
        match self.known.as_ref().and_then(|known| known.learn(found)) {
            Some(difference) => Err(Failure::changed(&difference)),
            None => Ok(()),
        }
    }

    /// A slot of its origin's, once it is its turn.
    pub(crate) async fn slot(&self) -> Slot {
        self.turns.slot().await
    }

    /// The next part that nobody has taken, once there is room for it and a slot; `None` when all are taken.
    /// Room comes before the number: parts that wait for room are then the next in order, and a window cannot fill with
    /// parts behind one that waits. It comes before the slot, too: who waits for a reader keeps no slot from others.
    /// `slot` is one that whoever asks, on shard `shard`, has already.
    pub(crate) async fn take_part(&self, shard: u32, slot: Option<Slot>) -> Result<Option<Turn>, Error> {
        let Some(settled) = self.settled.get() else { return Ok(None) };
        let left = settled.plan().left(1);
        match left {
            0 => Ok(self.take_rest(slot).await),
            _ => self.take_part_of(shard, self.part_bytes(left).min(left), slot).await,
        }
    }

    /// The same for a part of at most so many bytes: what was asked for before there was a plan.
    pub(crate) async fn take_part_of(
        &self,
        shard: u32,
        part_bytes: u64,
        mut slot: Option<Slot>,
    ) -> Result<Option<Turn>, Error> {
        let mut admitted = std::pin::pin!(self.ground.admit(part_bytes, || self.gate.window_bytes()));
        let room = match at_once(admitted.as_mut()).await {
            Some(room) => room?,
            None => {
                slot = None;
                let _waits = self.gate.cell(shard).waiting(self.ground.waits_for());
                admitted.await?
            }
        };
        let slot = match slot {
            Some(slot) => slot,
            None => self.slot().await,
        };
        let Some(taken) = self.settled.get().and_then(|settled| settled.plan().take(part_bytes)) else {
            return Ok(self.take_rest(Some(slot)).await);
        };
        if let Some(room) = room {
            room.seat(taken.number);
        }
        Ok(Some(Turn { taken, slot }))
    }

    /// The end game: all parts are taken, and the rest of the slowest is shared with whoever has a slot, or finds one free:
    /// it is not worth waiting for, nor a request where others wait for theirs. The parts of a stream have their rooms.
    async fn take_rest(&self, slot: Option<Slot>) -> Option<Turn> {
        let settled = self.settled.get()?;
        let waits = self.owner.as_ref().is_some_and(|owner| owner.has_more());
        if waits || self.ground.is_stream() || self.gate.has_requests_waiting() {
            return None;
        }
        let slot = match slot {
            Some(slot) => slot,
            None => at_once(self.slot()).await?,
        };
        let rest = self.flights.split()?;
        self.counters.shared.fetch_add(1, Ordering::Relaxed);
        let taken = settled.plan().take_rest(rest);
        Some(Turn { taken, slot })
    }

    /// The part that begins at `start` of the object is whole at its landing.
    pub(crate) fn finish_part(
        &self,
        start: u64,
        bytes: u64,
        hash: &PartHash,
        record: impl FnOnce() -> PartRecord,
    ) {
        self.ledger.finish_part(start, hash);
        if self.record_parts {
            self.records.lock().unwrap_or_else(PoisonError::into_inner).push(record());
        }
        let done = self.bytes_done.fetch_add(bytes, Ordering::AcqRel) + bytes;
        if self.range().is_some_and(|range| range.end - range.start == done) {
            self.whole.store(true, Ordering::Release);
        }
    }

    /// Whether every byte has landed.
    pub(crate) fn is_whole(&self) -> bool {
        self.whole.load(Ordering::Acquire)
    }

    /// The body of a single answer of unknown length has ended: what has landed is the whole.
    pub(crate) fn finish_unplanned(&self) {
        self.whole.store(true, Ordering::Release);
    }

    /// Shard `number` takes part.
    pub(crate) fn join_shard(&self, number: u32) {
        self.shards_seen.fetch_or(1 << (number % 64), Ordering::Relaxed);
    }

    /// Seconds since the start.
    pub(crate) fn clock_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Stops the transfer with an error; the first one stays.
    pub(crate) fn fail(&self, error: Error) {
        let error = match error.kind() {
            // Nothing was read yet: the object was another one from the start.
            ErrorKind::Changed if self.settled.get().is_none() => self.of_another_version(error),
            _ => error,
        };
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop.cancel();
    }

    /// Of an object that was asked for by the ETag of another version.
    fn of_another_version(&self, error: Error) -> Error {
        let condition = self.known.as_ref().filter(|known| known.is_condition);
        let asked_for = condition.and_then(|known| known.version().etag);
        let Some(etag) = asked_for else { return error };
        Error::new(ErrorKind::Changed, format!("the object's ETag is not {etag}")).with_hint([
            Word::Feature(Feature::Stat),
            text(" tells the ETag of the version that is there now"),
        ])
    }

    /// Whether it is to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Ready when the transfer is to stop.
    pub(crate) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    pub(crate) fn progress(&self) -> Progress {
        let total_bytes = self.settled.get().and_then(|settled| settled.total_bytes);
        let kept_bytes = self.kept_bytes.load(Ordering::Relaxed);
        Progress { kept_bytes, ..self.counters.progress(total_bytes, self.gate.tally().now()) }
    }

    /// The last shard has let go: decides how it ended, commits the landing, tells who waits, calls who wants to be called.
    pub(crate) fn finish(&self) {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take();
        let result = match failure {
            Some(error) => Err(error),
            None => self.conclude(),
        };
        let kept_bytes = match result.as_ref().err() {
            // It says nothing about what was left of another object, or range: a slip in what was typed loses nothing.
            Some(error) if self.is_of_another() || error.kind() == ErrorKind::Usage => {
                self.ground.close(true);
                0
            }
            error => self.ground.close(error.is_some_and(Error::keeps_partial_data)),
        };
        self.kept_bytes.store(kept_bytes, Ordering::Relaxed);
        let result = result.map_err(|error| {
            let error = error.during("read", &self.name);
            match kept_bytes {
                0 => error,
                _ => {
                    error.with_further_hint(format!("run it again to go on from {}", format_size(kept_bytes)))
                }
            }
        });
        if let Some(owner) = &self.owner {
            return owner.on_end(self, result);
        }
        if let Ground::Shared(memory) = &self.ground {
            return memory.on_end(result.map(drop), self.counters.fetched_bytes.load(Ordering::Relaxed));
        }
        self.end.settle(result);
    }

    fn conclude(&self) -> Result<Report, Error> {
        let Some(settled) = self.settled.get().filter(|_| self.is_whole()) else {
            if self.ground.is_abandoned() {
                return Err(reader_has_gone());
            }
            // Every other end has left its error: only a job that was never begun leaves none.
            return Err(Error::new(ErrorKind::Cancelled, "the client was closed while the transfer ran"));
        };
        let bytes = self.bytes_done.load(Ordering::Acquire);
        let verified = self.ledger.conclude()?;
        self.ground.commit(bytes)?;
        let start = settled.range.start;
        let mut parts = std::mem::take(&mut *self.records.lock().unwrap_or_else(PoisonError::into_inner));
        parts.sort_by_key(|part| part.index);
        Ok(Report {
            version: settled.version.clone(),
            stat: settled.stat.clone(),
            range: start..start + bytes,
            bytes,
            fetched_bytes: self.counters.fetched_bytes.load(Ordering::Relaxed),
            resumed_bytes: self.resumed_bytes.load(Ordering::Relaxed),
            resume_note: self.ground.file().and_then(FileGround::note),
            verified,
            seconds: self.clock_s(),
            retries: self.counters.retries.load(Ordering::Relaxed),
            tails: self.counters.tails(),
            connections: self.counters.connections.load(Ordering::Relaxed),
            shards: self.shards_seen.load(Ordering::Relaxed).count_ones(),
            limited_by: self.gate.tally().since(&self.tally),
            parts,
        })
    }
}
