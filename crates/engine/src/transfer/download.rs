//! A get on its way: what is asked for, what its first answer settles, the parts that are left, and how it
//! ends.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flatout_settings::format_size;
use flatout_wire::head::Head;
use flatout_wire::range::Span;
use tokio::time::Instant;

use crate::api::account::Account;
use crate::api::pinned::Pinned;
use crate::api::refusal::Failure;
use crate::api::template::RequestTemplate;
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{Feature, Word, text};
use crate::base::report::{PartRecord, Progress, Report, Stat};
use crate::base::version::Version;
use crate::disk::file::FileSink;
use crate::disk::journal::{self, DownloadIdentity, Kept};
use crate::gate::slots::{Slot, at_once};
use crate::memory::lease::Pool;
use crate::sink::check;
use crate::sink::end::End;
use crate::sink::landing::Sink;
use crate::sink::stream::reader_has_gone;
use crate::sink::verify::{ExpectedChecksum, Ledger, PartHash};
use crate::transfer::get::Get;
use crate::transfer::resources::Resources;
use crate::transfer::{ActiveTransfer, Running, TransferOwner};
use flatout_policy::flight::InFlightParts;
use flatout_policy::plan::{Plan, Taken};
use flatout_policy::queue::Priority;

/// A part whose turn it is.
pub(crate) struct Turn {
    pub(crate) taken: Taken,
    pub(crate) slot: Slot,
}

/// What is asked for.
struct Request {
    name: String,
    object: Arc<RequestTemplate>,
    span: Span,
    known: Option<Arc<Pinned>>,
}

/// A get on its way: what its shards share.
pub(crate) struct Download {
    pub(crate) transfer: ActiveTransfer,
    /// One for all segments of a reader's object.
    pub(crate) object: Arc<RequestTemplate>,
    pub(crate) span: Span,
    pub(crate) sink: Sink,
    pub(crate) ledger: Ledger,
    pub(crate) in_flight_parts: InFlightParts,
    /// Whether it is asked for as if it were small, though nobody knows.
    is_guess: bool,
    /// The version to be read, where it is known before the first answer.
    known: Option<Arc<Pinned>>,
    /// Empty while the first answer is waited for.
    settled: OnceLock<Settled>,
    /// Of a transfer that failed: what the next run will find.
    pub(crate) kept_bytes: AtomicU64,
}

/// No object is as long as that.
const UNKNOWN: u64 = u64::MAX;

/// How far a download is.
enum Phase<'a> {
    /// Its first answer has not come.
    Asking,
    /// Version, range and plan are fixed.
    Settled,
    /// Every byte has landed.
    Whole(&'a Settled),
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
    /// Any number of workers may take its parts.
    is_open: AtomicBool,
    /// [`UNKNOWN`] until the end where the origin sends one stream and does not say how long it is.
    total_bytes: AtomicU64,
    resumed_bytes: u64,
    /// Those that an earlier run left included.
    bytes_done: AtomicU64,
}

impl Settled {
    fn new(version: Version, range: Range<u64>, plan: Plan, total_bytes: Option<u64>) -> Settled {
        Settled {
            version,
            stat: None,
            pin: None,
            range,
            plan: Mutex::new(plan),
            is_open: AtomicBool::new(false),
            total_bytes: AtomicU64::new(total_bytes.unwrap_or(UNKNOWN)),
            resumed_bytes: 0,
            bytes_done: AtomicU64::new(0),
        }
    }

    fn is_whole(&self) -> bool {
        self.total_bytes.load(Ordering::Acquire) == self.bytes_done.load(Ordering::Acquire)
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Download {
    /// Opens the landing; nothing is sent yet.
    pub(crate) fn start(get: Get, account: Arc<Account>, resources: Resources) -> Result<Download, Error> {
        let name = get.location.to_string();
        let pinned = get.if_match.map(|etag| Pinned::of_etag(name.clone(), &etag)).transpose();
        let known = pinned.map_err(|error| error.during("read", &name))?.map(Arc::new);
        let mut sink = Sink::open_swept(get.landing, resources.care.resume, get.folder_is_swept)?;
        if let Sink::File(file) = &mut sink {
            (file.keep_existing, file.modified_ns) = (get.keep_existing, get.modified_ns);
        }
        let mut object = RequestTemplate::of_object(account, get.location, get.version_id);
        if get.in_one_answer && get.span == Span::All {
            object.ask_for_the_whole();
        }
        let asked = Request { name, object: Arc::new(object), span: get.span, known };
        let mut download = Download::new(asked, sink, resources);
        download.guess_small(get.likely_small);
        download.transfer.records = get.record_parts.then(Mutex::default);
        download.transfer.end = End::new(get.on_end);
        Ok(download)
    }

    /// A range of a version that is known: no answer is needed to settle it. Of a whole object by one plain
    /// GET the answer says more, and settles it.
    pub(crate) fn of_version(
        object: Arc<RequestTemplate>,
        known: Arc<Pinned>,
        range: Range<u64>,
        sink: Sink,
        resources: Resources,
    ) -> Download {
        let asks_for_the_whole = object.asks_for_the_whole();
        let span = if asks_for_the_whole { Span::All } else { Span::Slice(range.clone()) };
        let asked = Request { name: known.name.clone(), object, span, known: Some(known.clone()) };
        let download = Download::new(asked, sink, resources);
        if !asks_for_the_whole {
            download.ledger.state(ExpectedChecksum::Nothing("a part of the object was read"));
            let plan = Plan::new(std::iter::once(range.clone()));
            let length = range.end - range.start;
            let settled = Settled::new(known.version(), range, plan, Some(length));
            let fresh = download.settled.set(Settled { pin: known.pin.clone(), ..settled }).is_ok();
            assert!(fresh, "it was made a moment ago");
        }
        download
    }

    fn new(asked: Request, sink: Sink, resources: Resources) -> Download {
        let Request { name, object, span, known } = asked;
        let ledger = Ledger::default();
        if !resources.care.verify {
            ledger.state(ExpectedChecksum::Nothing("switched off"));
        }
        let transfer = ActiveTransfer::new(name, resources);
        sink.stop_when_abandoned(&transfer.stop);
        Download {
            transfer,
            object,
            span,
            sink,
            ledger,
            in_flight_parts: InFlightParts::default(),
            is_guess: false,
            known,
            settled: OnceLock::new(),
            kept_bytes: AtomicU64::new(0),
        }
    }

    /// Asks for the whole by one plain GET, until the answer says that it is longer than a part. What an
    /// earlier run left was large for its parts.
    fn guess_small(&mut self, is_guess: bool) {
        self.is_guess = is_guess && self.span == Span::All && !self.may_resume();
        if self.is_guess
            && let Some(object) = Arc::get_mut(&mut self.object)
        {
            object.ask_for_the_whole();
        }
    }

    /// Whether the first answer shows that the guess was wrong.
    pub(crate) fn was_guessed_small(&self, object_bytes: Option<u64>) -> bool {
        self.is_guess && object_bytes.is_none_or(|bytes| bytes > self.first_part_bytes())
    }

    /// Makes it one of many objects; with `whole` it is asked for by one plain GET.
    pub(crate) fn owned_by(mut self, owner: Box<dyn TransferOwner>, whole: bool) -> Download {
        self.transfer.owner = Some(owner);
        if whole && let Some(object) = Arc::get_mut(&mut self.object) {
            object.ask_for_the_whole();
        }
        self
    }

    /// Whether an earlier run has left something that may be of use.
    pub(crate) fn may_resume(&self) -> bool {
        self.location_left().is_some_and(|location| location == self.transfer.name)
    }

    /// Whether what an earlier run left is of another object, and still there.
    fn is_of_another(&self) -> bool {
        self.location_left().is_some_and(|location| location != self.transfer.name)
    }

    /// Of which object an earlier run left something.
    fn location_left(&self) -> Option<String> {
        Some(self.sink.file()?.earlier()?.identity.location.clone())
    }

    /// What of `range` an earlier run left in the file, if that was of the version that answers now. Reads
    /// it, which may take a while.
    pub(crate) async fn kept(self: &Arc<Download>, head: &Head, range: &Range<u64>) -> Kept {
        let identity = self.identity(head, range);
        let noted = self.sink.file().zip(identity).and_then(|(file, identity)| file.noted_of(&identity));
        let Some(noted) = noted else { return Kept::default() };
        let (tell, told) = tokio::sync::oneshot::channel();
        let download = self.clone();
        let reader = std::thread::Builder::new().name("flatout-check".into()).spawn(move || {
            let on_block = |bytes| {
                download.transfer.counters.checked_bytes.fetch_add(bytes, Ordering::Relaxed);
                !download.transfer.is_stopped()
            };
            let Some(file) = download.sink.file() else { return };
            // Who asked may have been stopped meanwhile.
            let _ = tell.send(check::check(file.content(), &noted, &download.ledger, &on_block));
        });
        match reader {
            Ok(_) => told.await.unwrap_or_default(),
            // Without a thread to read it nothing is kept.
            Err(_) => Kept::default(),
        }
    }

    /// What the file is to be a copy of. Without an ETag that tells versions apart, old bytes could be taken
    /// for new ones: nothing is noted then.
    fn identity(&self, head: &Head, range: &Range<u64>) -> Option<DownloadIdentity> {
        head.strong_etag()?;
        let version = Version::of(head, head.object_bytes());
        Some(DownloadIdentity { location: self.transfer.name.clone(), version, range: range.clone() })
    }

    /// A part of an object has no checksum that an origin would state.
    pub(crate) fn note_span(&self, head: &Head, range: &Range<u64>) {
        let whole = self.span == Span::All || (range.start == 0 && head.object_bytes() == Some(range.end));
        if !whole {
            self.ledger.state(ExpectedChecksum::Nothing("a part of the object was read"));
        }
    }

    /// Fixes the version and the plan by the first answer, and makes room in the landing, which has `kept` of
    /// it. `total_bytes` is `None` where the end of the range is not known.
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
        if let Some(file) = self.sink.file() {
            let (identity, has_ranges) = (self.identity(head, &range), head.status == 206);
            let begun = file.begin(identity.as_ref(), has_ranges, kept);
            begun.map_err(|error| error.during("write", file.shown()))?;
        }
        self.sink.prepare(pool, self.transfer.gate.read_ahead(), total_bytes)?;
        let settled = Settled {
            stat: Some(Stat::of(head, head.object_bytes())),
            pin: head.strong_etag().map(String::from),
            resumed_bytes: kept.bytes,
            bytes_done: AtomicU64::new(kept.bytes),
            ..Settled::new(version, range.clone(), Plan::new(kept.missing(&range)), total_bytes)
        };
        let fresh = self.settled.set(settled).is_ok();
        assert!(fresh, "only the lead settles, once");
        Ok(())
    }

    /// Writes the journal every now and then, on the shard of whoever calls, for as long as anybody has a
    /// hold.
    pub(crate) fn keep_journal(self: &Arc<Download>) {
        if self.sink.file().and_then(FileSink::journal).is_none() {
            return;
        }
        let download = Arc::downgrade(self);
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(journal::BATCH_AGE).await;
                let held = download.upgrade().filter(|download| download.transfer.is_held());
                let Some(download) = held else { break };
                if let Some(journal) = download.sink.file().and_then(FileSink::journal) {
                    journal.flush();
                }
            }
        });
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
        settled.plan().left(self.transfer.gate.usual_part_bytes().min(self.part_bytes_max()))
    }

    /// Lets the gate give its parts to as many workers as it sees fit.
    pub(crate) fn open(&self) {
        if let Some(settled) = self.settled.get() {
            settled.is_open.store(true, Ordering::Release);
        }
    }

    /// How many more workers could take a part now, and how urgent that is.
    pub(crate) fn wants_workers(&self) -> (u64, Priority) {
        let is_open = |settled: &Settled| settled.is_open.load(Ordering::Acquire);
        let is_open = self.settled.get().is_some_and(is_open) && !self.transfer.is_stopped();
        let more = self.transfer.more_workers();
        (if is_open { self.parts_left().min(more) } else { 0 }, self.transfer.slots.priority())
    }

    /// A part has been carried by that slot: it stays as long as something is left and no other's turn has
    /// come. The end game is worth a slot, too.
    pub(crate) fn keep_slot(&self, shard: u32, slot: Option<Slot>) -> Option<Slot> {
        let parts = self.parts_left().clamp(1, self.transfer.more_workers() + 1);
        self.transfer.slots.keep(slot?, parts, shard as usize)
    }

    /// How long the first part may be, asked for before anything is known of the object.
    pub(crate) fn first_part_bytes(&self) -> u64 {
        self.part_bytes(u64::MAX)
    }

    /// How long the next part may be, of an object of which `left` bytes have not been taken.
    fn part_bytes(&self, left: u64) -> u64 {
        self.transfer.gate.part_bytes(left).min(self.part_bytes_max())
    }

    fn part_bytes_max(&self) -> u64 {
        match self.sink.is_stream() {
            true => self.transfer.gate.streamed_part_bytes_max().min(self.sink.part_bytes_max()),
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

    /// Holds the version of an answer against the one that all transfers of it are to read, and adds what
    /// that one lacks.
    pub(crate) fn hold_against_known(&self, found: &Version) -> Result<(), Failure> {
        match self.known.as_ref().and_then(|known| known.learn(found)) {
            Some(difference) => Err(Failure::changed(&difference)),
            None => Ok(()),
        }
    }

    /// The next part that nobody has taken, once there is room for it and a slot; `None` when all are taken.
    /// Room comes before the number: parts that wait for room are then the next in order, and a window cannot
    /// fill with parts behind one that waits. It comes before the slot, too: who waits for a reader keeps no
    /// slot from others. `slot` is one that whoever asks, on shard `shard`, has already.
    pub(crate) async fn take_part(&self, shard: u32, slot: Option<Slot>) -> Result<Option<Turn>, Error> {
        let Some(settled) = self.settled.get() else { return Ok(None) };
        let left = settled.plan().left(1);
        match left {
            0 => Ok(self.take_rest(slot).await),
            _ => self.take_part_of(shard, self.part_bytes(left).min(left), slot).await,
        }
    }

    /// The next part of at most `part_bytes` bytes: what was asked for before there was a plan.
    pub(crate) async fn take_part_of(
        &self,
        shard: u32,
        part_bytes: u64,
        mut slot: Option<Slot>,
    ) -> Result<Option<Turn>, Error> {
        let mut admitted = std::pin::pin!(self.sink.admit(part_bytes, || self.transfer.gate.window_bytes()));
        let room = match at_once(admitted.as_mut()).await {
            Some(room) => room?,
            None => {
                slot = None;
                let _waits = self.transfer.gate.cell(shard).waiting(self.sink.waits_for());
                admitted.await?
            }
        };
        let slot = match slot {
            Some(slot) => slot,
            None => self.transfer.slots.acquire().await,
        };
        let Some(taken) = self.settled.get().and_then(|settled| settled.plan().take(part_bytes)) else {
            return Ok(self.take_rest(Some(slot)).await);
        };
        if let Some(room) = room {
            room.seat(taken.number);
        }
        Ok(Some(Turn { taken, slot }))
    }

    /// The end game: all parts are taken, and the rest of the slowest is shared with whoever has a slot, or
    /// finds one free: it is not worth waiting for, nor a request where others wait for theirs. The parts of
    /// a stream have their rooms.
    async fn take_rest(&self, slot: Option<Slot>) -> Option<Turn> {
        let settled = self.settled.get()?;
        let waits = self.transfer.owner.as_ref().is_some_and(|owner| owner.has_more());
        if waits || self.sink.is_stream() || self.transfer.gate.has_requests_waiting() {
            return None;
        }
        let slot = match slot {
            Some(slot) => slot,
            None => at_once(self.transfer.slots.acquire()).await?,
        };
        let rest = self.in_flight_parts.split(Instant::now().into_std())?;
        self.transfer.counters.shared.fetch_add(1, Ordering::Relaxed);
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
        self.transfer.record(record);
        if let Some(settled) = self.settled.get() {
            settled.bytes_done.fetch_add(bytes, Ordering::AcqRel);
        }
    }

    /// Whether every byte has landed.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.phase(), Phase::Whole(_))
    }

    /// The body of a single answer of unknown length has ended: what has landed is the whole.
    pub(crate) fn finish_unplanned(&self) {
        if let Some(settled) = self.settled.get() {
            settled.total_bytes.store(settled.bytes_done.load(Ordering::Acquire), Ordering::Release);
        }
    }

    fn phase(&self) -> Phase<'_> {
        match self.settled.get() {
            None => Phase::Asking,
            Some(settled) if settled.is_whole() => Phase::Whole(settled),
            Some(_) => Phase::Settled,
        }
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

    fn conclude(&self) -> Result<Report, Error> {
        let Phase::Whole(settled) = self.phase() else {
            if self.sink.is_abandoned() {
                return Err(reader_has_gone());
            }
            // Every other end has left its error: only a job that was never begun leaves none.
            return Err(Error::new(ErrorKind::Cancelled, "the client was closed while the transfer ran"));
        };
        let bytes = settled.bytes_done.load(Ordering::Acquire);
        let verified = self.ledger.conclude()?;
        self.sink.commit(bytes)?;
        let (transfer, start) = (&self.transfer, settled.range.start);
        Ok(Report {
            version: settled.version.clone(),
            stat: settled.stat.clone(),
            range: start..start + bytes,
            bytes,
            fetched_bytes: transfer.counters.fetched_bytes(),
            resumed_bytes: settled.resumed_bytes,
            resume_note: self.sink.file().and_then(FileSink::note),
            verified,
            seconds: transfer.clock_s(),
            retries: transfer.counters.retries.load(Ordering::Relaxed),
            tails: transfer.counters.tails(),
            connections: transfer.counters.connections.load(Ordering::Relaxed),
            shards: transfer.shards_seen.load(Ordering::Relaxed).count_ones(),
            limited_by: transfer.limited_by(),
            parts: transfer.take_records(),
        })
    }
}

impl Running for Download {
    fn transfer(&self) -> &ActiveTransfer {
        &self.transfer
    }

    fn progress(&self) -> Progress {
        let total_bytes = self.settled.get().map(|settled| settled.total_bytes.load(Ordering::Relaxed));
        let total_bytes = total_bytes.filter(|bytes| *bytes != UNKNOWN);
        let kept_bytes = self.kept_bytes.load(Ordering::Relaxed);
        let limited_by = self.transfer.gate.tally().now();
        Progress { kept_bytes, ..self.transfer.counters.progress(total_bytes, limited_by) }
    }

    fn fail(&self, error: Error) {
        let error = match error.kind() {
            // Nothing was read yet: the object was another one from the start.
            ErrorKind::Changed if matches!(self.phase(), Phase::Asking) => self.of_another_version(error),
            _ => error,
        };
        self.transfer.fail(error);
    }

    fn finish(&self) {
        // One of many counts as the whole batch there, which goes on.
        if self.transfer.owner.is_none() {
            self.transfer.gate.leave(self.transfer.slots.transfer());
        }
        let result = self.transfer.take_failure().map_or_else(|| self.conclude(), Err);
        let kept_bytes = match result.as_ref().err() {
            // It says nothing about what was left of another object, or range: a slip in what was typed loses
            // nothing.
            Some(error) if self.is_of_another() || error.kind() == ErrorKind::Usage => {
                self.sink.close(true);
                0
            }
            error => self.sink.close(error.is_some_and(Error::keeps_partial_data)),
        };
        self.kept_bytes.store(kept_bytes, Ordering::Relaxed);
        let result = result.map_err(|error| {
            let error = error.during("read", &self.transfer.name);
            match kept_bytes {
                0 => error,
                _ => {
                    error.with_further_hint(format!("run it again to go on from {}", format_size(kept_bytes)))
                }
            }
        });
        if let Some(owner) = &self.transfer.owner {
            return owner.on_end(self, result);
        }
        if let Sink::Shared(memory) = &self.sink {
            return memory.on_end(result.map(drop), self.transfer.counters.fetched_bytes());
        }
        self.transfer.end.settle(result);
    }
}
