//! The gate toward an origin: its [`Pace`], and what moves by it. All transfers to the origin share it.
//!
//! ```text
//!   shards:   Cell  Cell  Cell …      bytes, attempts in flight, moving, waiting: each thread writes its own
//!                \   |   /
//!   tick:     Sample → Pace → limit   every 25 ms while anybody works
//!                               |
//!   presence: while the origin is away requests wait, and one at a time looks whether it is back
//!   slots:    as many are handed out; each is a part on its way, and a worker that carries it
//! ```

pub(crate) mod slots;

mod bandwidth;
mod cells;
mod limited;
mod origins;
mod presence;
mod requests;
mod upload_checksum;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use flatout_settings::Settings;
use flatout_wire::body_checksum::ChecksumForm;
use flatout_wire::endpoint::Endpoint;

use crate::api::refusal::Failure;
use crate::base::limited_by::{Bound, Host, LimitedBy, TimeByLimit};
use crate::base::operation::{Class, Direction, Load};
use crate::base::time::{now, unix_seconds};
use crate::memory::plan::{MemoryPlan, ParallelBy};
use flatout_policy::latency::{Latency, ReadAhead};
use flatout_policy::pace::{Limits, Pace, Remembered, Seed};
use flatout_policy::queue::{Priority, TransferId};

use crate::gate::slots::{Seat, SlotQueue, TransferSlots, WorkSource};
pub(crate) use bandwidth::Bandwidth;
pub(crate) use cells::Cell;
use cells::{Cores, Sums};
use limited::{RequestRate, limited_by};
pub(crate) use origins::OpenConnection;
pub use origins::{OriginOutage, OriginStats};
pub use presence::OutageNews;
pub(crate) use presence::Ruling;
use presence::{Newsroom, Presence};
use requests::Requests;
pub(crate) use upload_checksum::TrailerUse;

/// Rounds are 100 ms and more; a tick costs some microseconds.
const TICK: Duration = Duration::from_millis(25);

/// Figures for people are smoothed over so many seconds.
const SMOOTHED_S: f64 = 0.5;

const MIB: u64 = 1 << 20;

/// An origin is near whose first bytes come sooner than that.
const NEAR: Duration = Duration::from_millis(5);
/// So many of its parts fill the link, and that is as short as is worth a request.
const NEAR_PARALLEL: u32 = 16;
const NEAR_PART_BYTES: u64 = 1 << 20;

/// What a run found of an origin, for the next one to begin with. Plain values: whoever keeps them decides
/// where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundPace {
    /// As in `https://s3.eu-west-1.amazonaws.com:443`: no bucket, no secret.
    pub origin: String,
    /// Of which direction.
    pub direction: Direction,
    /// How many parts in flight carried most.
    pub parallel: u32,
    /// What one connection carried, bytes a second.
    pub connection_bytes: u64,
    /// How long parts were.
    pub part_bytes: u64,
    /// When, in seconds since 1970.
    pub when_s: u64,
}

impl FoundPace {
    fn remembered(&self) -> Remembered {
        Remembered {
            level: self.parallel.max(1),
            connection_rate: self.connection_bytes,
            part_bytes: self.part_bytes,
            when: self.when_s,
        }
    }
}

/// The gates of a client: two for each origin, one for each direction.
pub(crate) struct Gates {
    gates: Mutex<HashMap<(Endpoint, Direction), Arc<Gate>>>,
    known: Vec<FoundPace>,
    memory_plan: MemoryPlan,
    pub(crate) newsroom: Newsroom,
    /// Origins have answered before, to another process.
    pub(crate) are_known: AtomicBool,
}

impl Gates {
    /// `known` is what earlier runs found.
    pub(crate) fn new(known: Vec<FoundPace>, memory_plan: MemoryPlan) -> Gates {
        let (newsroom, are_known) = (Newsroom::default(), AtomicBool::new(false));
        Gates { gates: Mutex::default(), known, memory_plan, newsroom, are_known }
    }

    /// The gate of an origin in one direction, made at its first use; of one that nothing leads to, a gate
    /// for whoever asks alone. Both directions share what is known of an outage.
    pub(crate) fn of(
        &self,
        origin: Option<Endpoint>,
        direction: Direction,
        settings: &Settings,
    ) -> Arc<Gate> {
        let new_presence = |host| {
            let presence = Presence::new(settings.outage_timeout(), host, self.newsroom.clone());
            if self.are_known.load(Ordering::Relaxed) {
                presence.on_answered();
            }
            Arc::new(presence)
        };
        let Some(origin) = origin else {
            let host = Host::new("nowhere");
            return Arc::new(Gate::new(settings, host, new_presence(host), self.memory_plan, None));
        };
        let mut gates = self.lock();
        if let Some(gate) = gates.get(&(origin.clone(), direction)) {
            return gate.clone();
        }
        let name = origin.to_string();
        let known = self.known.iter().find(|known| known.origin == name && known.direction == direction);
        let other = match direction {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        };
        let (host, presence) = match gates.get(&(origin.clone(), other)) {
            Some(other) => (other.host, other.presence.clone()),
            None => {
                let host = Host::new(&format!("{}:{}", origin.host, origin.port));
                (host, new_presence(host))
            }
        };
        let remembered = known.map(FoundPace::remembered);
        let gate = Arc::new(Gate::new(settings, host, presence, self.memory_plan, remembered));
        gates.insert((origin, direction), gate.clone());
        gate
    }

    /// What has been found; nothing of an origin that was not asked for long enough, or where it was fixed.
    pub(crate) fn found(&self) -> Vec<FoundPace> {
        let found = |((origin, direction), gate): (&(Endpoint, Direction), &Arc<Gate>)| {
            let Remembered { level, connection_rate, part_bytes, when } =
                gate.measured().pace.remember(unix_seconds())?;
            Some(FoundPace {
                origin: origin.to_string(),
                direction: *direction,
                parallel: level,
                connection_bytes: connection_rate,
                part_bytes,
                when_s: when,
            })
        };
        let mut found: Vec<FoundPace> = self.lock().iter().filter_map(found).collect();
        found.sort_by(|one, other| (&one.origin, one.direction).cmp(&(&other.origin, other.direction)));
        found
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(Endpoint, Direction), Arc<Gate>>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The endpoint without the bucket that may stand before its name: all buckets of a store share what is known
/// of it.
pub(crate) fn origin_of(endpoint: &Endpoint, bucket: &str) -> Endpoint {
    let store = endpoint.host.strip_prefix(bucket).and_then(|rest| rest.strip_prefix('.'));
    match store.filter(|store| !bucket.is_empty() && !store.is_empty()) {
        Some(store) => Endpoint { host: store.to_owned(), ..endpoint.clone() },
        None => endpoint.clone(),
    }
}

/// The gate toward one origin, in one direction.
pub(crate) struct Gate {
    cells: Vec<Cell>,
    measured: Mutex<Measured>,
    slots: Arc<SlotQueue>,
    next_transfer: AtomicU64,
    /// What the pace says, for whoever asks between ticks.
    limit: AtomicU32,
    /// There was less to do than there might have been, at some time since the last tick.
    is_starved: AtomicBool,
    is_ticking: AtomicBool,
    is_climbing: AtomicBool,
    pub(crate) latency: Arc<Latency>,
    /// Without streams.
    limits: Limits,
    memory_plan: MemoryPlan,
    window_bytes: Option<u64>,
    requests: Requests,
    host: Host,
    presence: Arc<Presence>,
    counts: origins::Counts,
    upload_checksum: upload_checksum::UploadChecksum,
    trailers: upload_checksum::Trailers,
}

struct Measured {
    pace: Pace,
    limits: Limits,
    sums: Sums,
    ticked: Instant,
    /// Smoothed: what the shards' threads have of the cores, and bytes received a second.
    cores: Cores,
    rate: f64,
    tally: TimeByLimit,
    /// What was found is kept when the origin is not limited any more, for what waits yet.
    request_rate: RequestRate,
}

impl Gate {
    fn new(
        settings: &Settings,
        host: Host,
        presence: Arc<Presence>,
        memory_plan: MemoryPlan,
        remembered: Option<Remembered>,
    ) -> Gate {
        let limits = Limits {
            most: memory_plan.parallel_max,
            parallel: settings.parallel,
            part_bytes: settings.part_bytes,
            memory: None,
        };
        // A seed of the simulation is to be the same run on every machine.
        let cores =
            if cfg!(test) { 2 } else { std::thread::available_parallelism().map_or(1, usize::from) as u32 };
        let now = now();
        let pace = Pace::new(Seed { remembered, cores }, limits, now);
        let shards = settings.shards.max(1) as usize;
        Gate {
            cells: (0..shards).map(|_| Cell::default()).collect(),
            slots: Arc::new(SlotQueue::new(pace.limit(), shards)),
            next_transfer: AtomicU64::new(0),
            limit: AtomicU32::new(pace.limit()),
            is_climbing: AtomicBool::new(pace.is_climbing()),
            latency: Arc::new(Latency::new(now)),
            measured: Mutex::new(Measured {
                pace,
                limits,
                sums: Sums::default(),
                ticked: now,
                cores: Cores::default(),
                rate: 0.0,
                tally: TimeByLimit::default(),
                request_rate: RequestRate { asked_for: settings.request_rate, found: None },
            }),
            is_starved: AtomicBool::new(false),
            is_ticking: AtomicBool::new(false),
            limits,
            memory_plan,
            window_bytes: settings.window_bytes.map(|bytes| bytes.min(memory_plan.window_max())),
            requests: Requests::new(settings.request_rate, now),
            host,
            presence,
            counts: origins::Counts::default(),
            upload_checksum: upload_checksum::UploadChecksum::default(),
            trailers: upload_checksum::Trailers::default(),
        }
    }

    /// What the thread of that shard counts.
    pub(crate) fn cell(&self, shard: u32) -> &Cell {
        &self.cells[shard as usize % self.cells.len()]
    }

    /// How many attempts should be in flight.
    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// How long to make the next part of an object of which `left` bytes have not been given out.
    pub(crate) fn part_bytes(&self, left: u64) -> u64 {
        self.measured().pace.part_bytes(left)
    }

    /// What has held the speed back so far.
    pub(crate) fn tally(&self) -> TimeByLimit {
        self.measured().tally
    }

    /// Whether the level is still being looked for.
    pub(crate) fn is_climbing(&self) -> bool {
        self.is_climbing.load(Ordering::Relaxed)
    }

    /// How long parts are just now, give or take a quarter.
    pub(crate) fn usual_part_bytes(&self) -> u64 {
        self.measured().pace.usual_part_bytes()
    }

    /// How far a stream may be read ahead at most.
    fn window_max(&self) -> u64 {
        self.window_bytes.unwrap_or_else(|| self.memory_plan.window_unset_max())
    }

    /// How a stream is read ahead that begins now. An origin that is near is read no further ahead than its
    /// bytes stay in the caches, until a reader waits for the way; what `--window` says, or a `--parallel`
    /// that is too few for parts so short, is kept to.
    pub(crate) fn read_ahead(&self) -> Option<ReadAhead> {
        let is_near = self.window_bytes.is_none()
            && self.limits.parallel.is_none_or(|parallel| parallel >= NEAR_PARALLEL)
            && self.latency.first().is_some_and(|first| first < NEAR);
        is_near.then(|| ReadAhead {
            latency: self.latency.clone(),
            parts: 2 * u64::from(self.limit().max(NEAR_PARALLEL)),
            part_bytes: self.limits.part_bytes.unwrap_or(NEAR_PART_BYTES),
        })
    }

    /// How far a stream is read ahead just now.
    pub(crate) fn window_bytes(&self) -> u64 {
        let part_bytes = || self.usual_part_bytes().min(self.streamed_part_bytes_max());
        self.window_bytes.unwrap_or_else(|| self.memory_plan.window(self.limit(), part_bytes()))
    }

    /// How long a part of a stream may be: two of them have room for each that is in flight, as long as they
    /// are a MiB; and two have room in any case, or reader and network would take turns.
    pub(crate) fn streamed_part_bytes_max(&self) -> u64 {
        let half = (self.window_max() / 2).max(1);
        match self.limits.part_bytes {
            Some(part_bytes) => part_bytes.min(half),
            None => (half / u64::from(self.limit()) / MIB * MIB).max(MIB).min(half),
        }
    }

    /// A number for a transfer, or for many that are to count as one where turns are taken.
    pub(crate) fn new_transfer(&self) -> TransferId {
        self.next_transfer.fetch_add(1, Ordering::Relaxed)
    }

    /// What a transfer of that number has to do with slots.
    pub(crate) fn slots(&self, transfer: TransferId, priority: Priority) -> TransferSlots {
        TransferSlots::new(&self.slots, transfer, priority)
    }

    /// Waits until a request may leave; when that was.
    ///
    /// # Errors
    /// The origin was away for too long.
    pub(crate) async fn start_request(&self, class: Class, shard: u32) -> Result<Instant, Failure> {
        self.presence.admit().await?;
        Ok(self.requests.start(class, self.cell(shard)).await)
    }

    /// Whether requests for objects wait to be sent.
    pub(crate) fn has_requests_waiting(&self) -> bool {
        self.requests.are_waiting(Class::Read) || self.requests.are_waiting(Class::Write)
    }

    /// A request that left at `sent` was answered.
    pub(crate) fn on_answer(&self, class: Class, sent: Instant, load: Load) {
        self.presence.on_answered();
        self.counts.on_answer();
        match load {
            Load::Fine => drop(self.requests.on_answer(class, sent, load)),
            Load::TooMuch => {
                self.counts.on_throttled();
                self.slow_down(class, sent);
            }
        }
    }

    /// A request that left at `sent` was too much for the origin.
    fn slow_down(&self, class: Class, sent: Instant) {
        if self.requests.on_answer(class, sent, Load::TooMuch) && class.carries_bytes() {
            let mut measured = self.measured();
            measured.pace.on_throttled(now());
            self.follow(&measured.pace);
        }
    }

    /// Bytes of a body have come through the shard that counts in `cell`; writing them to a file took
    /// `writing`.
    pub(crate) fn on_received(&self, cell: &Cell, bytes: u64, writing: Duration) {
        cell.on_received(bytes, writing);
        self.presence.on_progress();
    }

    /// Bytes of a body have gone to the system. `is_taken`: the origin takes them; otherwise they may be on
    /// the way, and an origin that is away would look the same.
    pub(crate) fn on_sent(&self, cell: &Cell, bytes: u64, is_taken: bool) {
        cell.on_sent(bytes);
        if is_taken {
            cell.on_progress();
            self.presence.on_progress();
        }
    }

    /// What the origin is to compare an upload with; nothing where it takes no checksum.
    pub(crate) fn upload_checksum(&self) -> Option<ChecksumForm> {
        self.upload_checksum.get()
    }

    /// Leave to send a part with its checksum behind it.
    pub(crate) fn try_trailer(&self) -> Option<TrailerUse<'_>> {
        self.trailers.begin()
    }

    /// The origin refused that form of a checksum: whether there is another one to try.
    pub(crate) fn on_checksum_refused(&self, tried: ChecksumForm) -> bool {
        self.upload_checksum.on_refused(tried)
    }

    /// The origin refuses the same without a checksum.
    pub(crate) fn on_checksum_blameless(&self) {
        self.upload_checksum.on_blameless();
    }

    /// It is tried again.
    pub(crate) fn on_retry(&self) {
        self.counts.on_retry();
    }

    /// A connection for objects was opened: it counts as long as it holds what this returns.
    pub(crate) fn on_connected(&self) -> OpenConnection {
        self.counts.on_connected()
    }

    /// A transfer with its first worker, on `shard`.
    pub(crate) fn join(&self, transfer: TransferId, source: Weak<dyn WorkSource>, shard: usize) -> Seat {
        let is_stream = source.upgrade().is_some_and(|source| source.is_stream());
        let seat = self.slots.join(transfer, source, Some(shard));
        if is_stream {
            self.fit_windows(&self.slots.sources());
        }
        seat
    }

    /// [`Gate::join`] of a source without a stream, on the shard where there is least to do.
    pub(crate) fn join_idlest(&self, transfer: TransferId, source: Weak<dyn WorkSource>) -> Seat {
        self.slots.join(transfer, source, None)
    }

    /// One more worker that asks for its slots itself, where there is least to do.
    pub(crate) fn seat(&self) -> Seat {
        self.slots.seat()
    }

    /// A transfer has ended.
    pub(crate) fn leave(&self, transfer: TransferId) {
        self.slots.leave(transfer);
    }

    /// A transfer has parts left for other workers: one is started for each slot that nobody waits for.
    pub(crate) fn open(&self, transfer: TransferId, wants: (u64, Priority)) {
        self.slots.offer([(transfer, wants)]);
    }

    /// Starts workers until as many parts are in flight as may be, or nothing is left for more of them.
    pub(crate) fn start_workers(&self) {
        self.offer(&self.slots.sources());
    }

    fn offer(&self, sources: &[(TransferId, Arc<dyn WorkSource>)]) {
        let limit = self.limit();
        // Asked without the lock of slots: they have locks of their own.
        let wanted: Vec<_> = sources.iter().map(|(transfer, source)| (*transfer, source.wants())).collect();
        self.slots.offer(wanted);
        let mut is_served = false;
        for (_, source) in sources {
            is_served |= source.clone().on_limit(limit);
        }
        let waiting: u32 = self.cells.iter().map(Cell::waiting_without_slot).sum();
        if !is_served && self.slots.running() + waiting < limit {
            self.is_starved.store(true, Ordering::Relaxed);
        }
    }

    /// Ticks on the calling shard from now on, until nobody works, unless that is done already.
    pub(crate) fn keep_time(self: &Arc<Gate>) {
        if self.is_ticking.swap(true, Ordering::AcqRel) {
            return;
        }
        // Nobody worked until now: that was nobody's limit.
        self.measured().ticked = now();
        let gate = self.clone();
        tokio::task::spawn_local(async move {
            loop {
                tokio::time::sleep(TICK).await;
                if gate.slots.workers() == 0 {
                    gate.is_ticking.store(false, Ordering::Release);
                    // Somebody may have come between the two, and found that there is a tick.
                    if gate.slots.workers() == 0 || gate.is_ticking.swap(true, Ordering::AcqRel) {
                        return;
                    }
                }
                gate.tick();
            }
        });
    }

    fn tick(&self) {
        let sources = self.slots.sources();
        self.fit_windows(&sources);
        let mut measured = self.measured();
        let now = now();
        let elapsed = now.saturating_duration_since(measured.ticked);
        measured.ticked = now;
        let (mut sample, cores) = measured.sums.advance(&self.cells, elapsed, self.slots.running());
        let idle = self.limit().saturating_sub(sample.in_flight);
        // One that goes from part to part has no slot for a moment.
        let outage = self.presence.outage();
        let is_starved = self.is_starved.swap(false, Ordering::Relaxed) || outage.is_some();
        sample.starved = is_starved || idle > (self.limit() / 10).max(1);
        measured.pace.on_tick(now, sample);
        self.follow(&measured.pace);
        measured.request_rate.found = self.requests.per_second_of_bytes().or(measured.request_rate.found);
        let bound = self.bound(&measured.limits);
        let outage = outage.map(|(waited, _)| LimitedBy::Outage { origin: self.host, waited });
        measured.note(elapsed, sample.bytes, cores, bound, outage);
        drop(measured);
        self.offer(&sources);
    }

    /// What keeps more from being in flight.
    fn bound(&self, limits: &Limits) -> Bound {
        match limits.bound() < limits.parallel.unwrap_or(limits.most) {
            true if self.window_bytes.is_some() => Bound::Window,
            true => Bound::Memory,
            false => match self.memory_plan.parallel_by {
                ParallelBy::Setting => Bound::Parallel,
                ParallelBy::Memory => Bound::Memory,
                ParallelBy::Files => Bound::Files,
                ParallelBy::Level => Bound::Most,
            },
        }
    }

    /// As many slots are handed out as the pace says.
    fn follow(&self, pace: &Pace) {
        self.is_climbing.store(pace.is_climbing(), Ordering::Relaxed);
        let limit = pace.limit();
        self.limit.store(limit, Ordering::Relaxed);
        self.slots.set_limit(limit);
    }

    /// Where all that comes goes through windows, these bound what may be in flight.
    fn fit_windows(&self, sources: &[(TransferId, Arc<dyn WorkSource>)]) {
        let are_streams = || sources.iter().all(|(_, source)| source.is_stream());
        let all_stream = !sources.is_empty() && are_streams() && !self.slots.has_others();
        let streams = all_stream.then_some(sources.len() as u64);
        let memory =
            streams.map(|count| self.window_max().saturating_mul(count).min(self.memory_plan.parts()));
        let limits = Limits { memory, ..self.limits };
        let mut measured = self.measured();
        if limits != measured.limits {
            measured.limits = limits;
            measured.pace.set_limits(limits, now());
            self.follow(&measured.pace);
            drop(measured);
            self.slots.offer([]);
        }
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measured {
    /// Notes what held the speed back in the tick that has ended.
    fn note(&mut self, elapsed: Duration, bytes: u64, cores: Cores, bound: Bound, outage: Option<LimitedBy>) {
        let seconds = elapsed.as_secs_f64().max(1e-6);
        let weight = (seconds / SMOOTHED_S).min(1.0);
        self.cores.used += (cores.used - self.cores.used) * weight;
        self.cores.queued += (cores.queued - self.cores.queued) * weight;
        self.rate += (bytes as f64 / seconds - self.rate) * weight;
        let by = outage.unwrap_or_else(|| {
            limited_by(self.pace.limited_by(), self.cores, self.rate, self.request_rate, bound)
        });
        self.tally.add(by, elapsed, bytes);
    }
}
