//! The client: it owns everything. No statics, threads at the first use, nothing left when it is dropped.

pub(crate) mod append;
pub(crate) mod buckets;
pub(crate) mod config;
mod copy;
pub(crate) mod delete;
pub(crate) mod list;
pub(crate) mod listed_page;
pub(crate) mod parallel_listing;
mod parts;
pub(crate) mod survey;
pub(crate) mod uploads;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flatout_settings::Settings;
use flatout_wire::listing;
use flatout_wire::location::{Location, LocationError};
use flatout_wire::range::Span;
use flatout_wire::request::Request;
use flatout_wire::sign::Credentials;
use tokio::runtime::Runtime;

use crate::api::account::{Account, Dialect, Operation, RequestSigner, Target, check_object};
use crate::api::credentials::{Anonymous, Grant, Keys, Provider, Refused};
use crate::base::blocking_pool::BlockingPool;
use crate::base::clock::Clock;
use crate::base::error::{Error, ErrorKind, SETTINGS};
use crate::base::files::OpenFiles;
use crate::base::hint::{Hint, setting_to, text};
use crate::base::operation::Direction;
use crate::base::report::{Report, Stat};
use crate::base::version::Object;
use crate::batch::puts::{ManyPuts, WantedPut};
use crate::batch::{Batch, Many, Wanted};
use crate::client::config::Config;
use crate::client::list::{Bucket, Listing, repeats_a_page};
use crate::client::survey::{Survey, Way};
use crate::disk::folder::Folder;
use crate::gate::{Bandwidth, FoundPace, Gates, OriginStats, OutageNews};
use crate::memory::lease::MemoryCharge;
use crate::memory::lease::Pool;
use crate::memory::plan::MemoryPlan;
use crate::net::endpoint::Endpoints;
use crate::net::interface::Binds;
use crate::net::proxy::Routes;
use crate::net::stall::STALL_TICKS;
use crate::net::tls::Tls;
use crate::read::{Reader, ReaderStats, Readers};
use crate::shard::shards::{Job, LaterShards, Shards, Task};
use crate::shard::shared::Shared;
use crate::sink::landing::{Landing, Memory};
use crate::transfer::Download;
use crate::transfer::get::Get;
use crate::transfer::guard::TransferGuard;
use crate::transfer::handle::Transfer;
use crate::transfer::put::Put;
use crate::transfer::resources::{Resources, TransferOptions};
use crate::transfer::workers::{run_lead, work_source};

/// Reads objects. Cheap to make: threads start at the first use, and end when the client is dropped.
pub struct Client {
    shared: Arc<Shared>,
    shards: Arc<Shards>,
    readers: Arc<Readers>,
    note: Option<Hint>,
}

impl Client {
    /// A client of its own, sharing nothing with any other.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for settings that make no sense. Where it is about one of them,
    /// [`Error::setting`] has its name.
    pub fn new(config: Config) -> Result<Client, Error> {
        let usage = |why: String| Error::new(ErrorKind::Usage, why);
        let mut settings = config.settings;
        settings.check().map_err(|why| usage(why.to_string()))?;
        let (aws, oss) = match settings.no_sign_request {
            true => {
                let nobody = Arc::new(Anonymous);
                (nobody.clone() as Arc<dyn Provider>, nobody as Arc<dyn Provider>)
            }
            false => (config.aws_credentials, config.oss_credentials),
        };
        let files = OpenFiles::now(settings.shards)?;
        settings.shards = files.shards;
        let memory_plan = MemoryPlan::of(&settings, &files)?;
        let asked_for = settings.parallel.filter(|asked| *asked > memory_plan.parallel_max);
        settings.parallel = settings.parallel.map(|asked| asked.min(memory_plan.parallel_max));
        let note = asked_for.map(|asked| {
            let (most, limit) = (memory_plan.parallel_max, files.limit);
            let why =
                format!(": {most} at a time, since this process may have {limit} files open (ulimit -n)");
            Hint::from([setting_to("parallel", asked.to_string()), text(why)])
        });
        let later = Arc::new(LaterShards::default());
        let account = Account::new(&settings, &config.oss, aws, oss, later.clone())
            .map_err(|why| usage(why.to_string()).during(SETTINGS, knob_of(&why)))?;
        let pool = Arc::new(Pool::new(memory_plan.limit, memory_plan.set_aside));
        let shared = Shared {
            account: Arc::new(account),
            endpoints: Endpoints::new(&settings.resolve, longest_trial(&settings))?,
            binds: Binds::new(&settings.bind)?,
            routes: Routes::new(settings.proxy.as_deref(), settings.no_proxy.as_deref(), &config.proxies)?,
            tls: Tls::new(settings.ca_bundle.as_deref())?,
            clock: Clock::default(),
            hashing: BlockingPool::at_most(hashing_threads(&settings), "flatout-hash"),
            upload_journals: config.upload_journals,
            bandwidth: settings.bandwidth_bytes.map(Bandwidth::new),
            pool,
            memory_plan,
            gates: Gates::new(config.paces, memory_plan),
            settings,
        };
        let shared = Arc::new(shared);
        let shards = Arc::new(Shards::new(shared.clone()));
        later.are(&shards);
        let readers = Arc::new(Readers::new(shared.clone(), shards.clone()));
        Ok(Client { shared, shards, readers, note })
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    #[cfg(test)]
    pub(crate) fn shards(&self) -> &Arc<Shards> {
        &self.shards
    }

    /// Starts a get.
    ///
    /// # Errors
    /// What can be known before anything is sent: a target that cannot be written.
    pub fn get(&self, get: Get) -> Result<Transfer, Error> {
        check_object(&get.location)?;
        check_span(&get.span).map_err(|error| error.during("read", &get.location))?;
        target(&get.location, get.version_id.as_deref())
            .map_err(|error| error.during("read", &get.location))?;
        let gate = self.shared.gate_of(&get.location, Direction::Read);
        let resources = Resources {
            slots: gate.slots(gate.new_transfer(), get.priority),
            gate: gate.clone(),
            shards: self.shards.clone(),
            care: TransferOptions::of(&self.shared.settings),
        };
        let running = Arc::new(Download::start(get, self.shared.account.clone(), resources)?);
        // Before anybody holds it: what could not be begun has no end.
        let first = self.shards.way_to(0)?;
        let seat = gate.join(running.transfer.slots.transfer(), work_source(&running), 0);
        let hold = TransferGuard::new(running.clone());
        let lead = Task::new(move |shard| run_lead(shard, hold, Some(seat)));
        if let Err(unsent) = first.send(Job::Task(lead)) {
            running.transfer.end.forget_call();
            drop(unsent);
            return Err(self.shards.unanswered().during("read", &running.transfer.name));
        }
        Ok(Transfer::new(running))
    }

    /// Starts a put.
    ///
    /// # Errors
    /// What can be known before anything is sent: a source that cannot be read, a location that cannot be
    /// written to.
    pub fn put(&self, put: Put) -> Result<Transfer, Error> {
        put.start(&self.shared, &self.shards)
    }

    /// Starts puts of many files. `wanted` is read by a thread of its own, a little ahead of what is sent;
    /// its first error ends it ([`ManyPuts::incomplete`]).
    ///
    /// # Errors
    /// [`ErrorKind::LocalIo`] when no thread can be started.
    pub fn put_many(
        &self,
        wanted: impl Iterator<Item = Result<WantedPut, Error>> + Send + 'static,
    ) -> Result<ManyPuts, Error> {
        ManyPuts::start(self.shared.clone(), self.shards.clone(), wanted)
    }

    /// Starts a get of many objects of the origin of `source`, which land beneath `folder`, or nowhere.
    /// `wanted` is read by a thread of its own, ahead of the transfer and with bounded memory; its first
    /// error ends it ([`Many::incomplete`]).
    ///
    /// # Errors
    /// [`ErrorKind::LocalIo`] when no thread can be started.
    pub fn get_many(
        &self,
        source: &Location,
        wanted: impl Iterator<Item = Result<Wanted, Error>> + Send + 'static,
        folder: Option<Folder>,
    ) -> Result<Many, Error> {
        Many::start(
            Batch::new(
                &self.shared,
                self.shards.clone(),
                self.shared.gate_of(source, Direction::Read),
                folder,
            ),
            wanted,
        )
    }

    /// Fills `buffer` with a range of an object and returns when it is filled; the buffer may be longer.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] when the buffer is too short; whatever the transfer meets.
    pub fn get_into(&self, location: &Location, span: Span, buffer: &mut [u8]) -> Result<Report, Error> {
        // SAFETY: the buffer is borrowed mutably until this function returns, and `wait` (or the drop of the
        // transfer, if something panics) returns only when no shard touches it any more.
        let memory = unsafe { Memory::new(buffer.as_mut_ptr(), buffer.len()) };
        self.get(Get::new(location.clone(), Landing::Memory(memory)).with_span(span))?.wait()
    }

    /// What the origin tells of an object, by one HEAD.
    ///
    /// # Errors
    /// The origin's refusal, or the network's.
    pub fn stat(&self, location: &Location) -> Result<Stat, Error> {
        self.stat_version(location, None)
    }

    /// [`Client::stat`] of the version `version_id`; of the newest where that is `None`.
    ///
    /// # Errors
    /// As [`Client::stat`].
    pub fn stat_version(&self, location: &Location, version_id: Option<&str>) -> Result<Stat, Error> {
        check_object(location)?;
        let target = target(location, version_id).map_err(|error| error.during("stat", location))?;
        let called = self.shards.call(Operation::Head(target));
        let (head, _) = called.map_err(|error| error.during("stat", location))?;
        Ok(Stat::of(&head, head.content_length))
    }

    /// The objects under a prefix: with `deep` all of them, else those up to the next `/` and the prefixes
    /// behind it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what is no bucket; the network's errors come with the items.
    pub fn list(&self, location: &Location, deep: bool) -> Result<Listing, Error> {
        Listing::start(&self.shared, self.shards.clone(), location, deep)
    }

    /// What the caller should know: a setting that this process cannot have as it was asked for.
    pub fn note(&self) -> Option<&Hint> {
        self.note.as_ref()
    }

    /// The GET that reads an object, signed with the keys of now: what a measurement sends that does without
    /// the engine.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] when a provider that is configured fails; [`ErrorKind::Usage`] for settings that
    /// lead nowhere.
    pub fn signed_get(&self, location: &Location) -> Result<Request, Error> {
        let signer = self.signer(Dialect::of(location));
        let request = signer.and_then(|signer| {
            self.shared.account.request(&Operation::Get(location.clone().into()), &signer)
        });
        request.map_err(|error| error.during("read", location))
    }

    /// A presigned GET URL, valid for `expires_s` seconds (1 to 604,800; up to `u32::MAX` with OSS's V1
    /// signature) and never longer than the current keys. Treat it as a secret. Sends no request.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] without keys, or when a provider that is configured fails; [`ErrorKind::Usage`]
    /// for a time that is out of bounds, for what is no object and for settings that lead nowhere;
    /// [`ErrorKind::Unsupported`] for a plain URL.
    pub fn presign(&self, location: &Location, expires_s: u64) -> Result<String, Error> {
        self.presign_version(location, None, expires_s)
    }

    /// [`Client::presign`] for the version of that id, where one is named.
    ///
    /// # Errors
    /// As [`Client::presign`].
    pub fn presign_version(
        &self,
        location: &Location,
        version_id: Option<&str>,
        expires_s: u64,
    ) -> Result<String, Error> {
        check_object(location)?;
        let target = target(location, version_id).map_err(|error| error.during("presign", location))?;
        let signer = self.signer(Dialect::of(location));
        let operation = Operation::Get(target);
        let url = signer.and_then(|signer| self.shared.account.presigned(&operation, &signer, expires_s));
        url.map_err(|error| error.during("presign", location))
    }

    /// The keys that S3 calls are signed with now, asked for if need be; `None` when they leave unsigned.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] when a provider that is configured fails.
    pub fn aws_keys(&self) -> Result<Option<Credentials>, Error> {
        self.keys(&self.shared.account.aws_keys)
    }

    /// As [`Client::aws_keys`], for OSS calls.
    ///
    /// # Errors
    /// As [`Client::aws_keys`].
    pub fn oss_keys(&self) -> Result<Option<Credentials>, Error> {
        self.keys(&self.shared.account.oss_keys)
    }

    /// Asks who has the keys for S3, past those that are kept: for whoever shows how things stand. Requests
    /// after it are signed with these.
    ///
    /// # Errors
    /// Each provider that was tried, and why it had nothing.
    pub fn who_has_aws_keys(&self) -> Result<Grant, Refused> {
        self.shared.account.aws_keys.ask()
    }

    /// As [`Client::who_has_aws_keys`], for OSS.
    ///
    /// # Errors
    /// As [`Client::who_has_aws_keys`].
    pub fn who_has_oss_keys(&self) -> Result<Grant, Refused> {
        self.shared.account.oss_keys.ask()
    }

    /// What requests for `location` are sent to. Nothing is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for settings that lead nowhere.
    pub fn way(&self, location: &Location) -> Result<Way, Error> {
        survey::way_to(&self.shared, location).map_err(|error| error.during("examine", location))
    }

    /// What requests that are about no bucket are sent to. Nothing is sent.
    ///
    /// # Errors
    /// As [`Client::way`]; [`ErrorKind::Unsupported`] for a dialect without buckets.
    pub fn way_to_buckets(&self, dialect: Dialect) -> Result<Way, Error> {
        survey::way_to_buckets(&self.shared, dialect)
    }

    /// Connects to every address of `way`, `connects` times each, and shakes hands once where TLS is spoken;
    /// no request is sent. Look-up, connects and handshake may each take the connect timeout. What an address
    /// refuses stands with it.
    ///
    /// # Errors
    /// [`ErrorKind::Network`] and [`ErrorKind::Timeout`] when the name has no address.
    pub fn survey(&self, way: &Way, connects: u32) -> Result<Survey, Error> {
        survey::survey(&self.shared, way, connects)
    }

    /// By how many seconds the clock of the origin that answered last is ahead of this machine's, negative
    /// where it is behind; a second more or less, as it states whole ones. `None` before an answer that had a
    /// date.
    pub fn origin_ahead_s(&self) -> Option<i64> {
        self.shared.clock.ahead_s()
    }

    /// What has been found of the origins that were read from, worth being remembered for the next client:
    /// nothing of one that was not read from for long enough, or with a fixed `--parallel`.
    pub fn paces(&self) -> Vec<FoundPace> {
        self.shared.gates.found()
    }

    /// Bytes that this client holds now, by its own account: what `Settings::memory_bytes` bounds. The
    /// caller's buffers and files are no part of it, idle memory that is kept for the next part is none
    /// either.
    pub fn memory_held(&self) -> u64 {
        self.shared.pool.held_bytes()
    }

    /// Reads of one version of an object, here and there. Nothing is sent yet. Readers of the same location
    /// and ETag share what they fetch, as long as any of them lives.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for what is no object.
    pub fn reader(&self, object: Object) -> Result<Reader, Error> {
        self.reader_of_version(object, None)
    }

    /// [`Client::reader`] of the version `version_id`; of the newest where that is `None`.
    ///
    /// # Errors
    /// As [`Client::reader`].
    pub fn reader_of_version(&self, object: Object, version_id: Option<&str>) -> Result<Reader, Error> {
        check_object(&object.location)?;
        let version_id = target(&object.location, version_id)?.version_id;
        Ok(Reader(Arc::new(self.readers.open(object, version_id))))
    }

    /// What reading has come to so far, of all objects.
    pub fn reader_stats(&self) -> ReaderStats {
        self.readers.stats()
    }

    /// The origins that were asked for anything, by name: what is in flight there, and what holds it back.
    pub fn origins(&self) -> Vec<OriginStats> {
        self.shared.gates.stats()
    }

    /// From now on `hear` is told of outages as they begin and end, one after the other, in a thread of its
    /// own: it may block. The first one that is given stays.
    ///
    /// # Errors
    /// The system has no thread left.
    pub fn on_outages(&self, mut hear: impl FnMut(OutageNews) + Send + 'static) -> io::Result<()> {
        let (newsroom, news) = std::sync::mpsc::channel();
        if self.shared.gates.newsroom.set(newsroom).is_ok() {
            let thread = std::thread::Builder::new().name("flatout-news".to_owned());
            thread.spawn(move || news.iter().for_each(&mut hear))?;
        }
        Ok(())
    }

    /// From now on origins are taken to have answered another process, for which this one goes on: where they
    /// are silent they are away, not mistyped.
    pub fn know_origins(&self) {
        self.shared.gates.are_known.store(true, Ordering::Relaxed);
    }

    /// Bytes of the caller's own, such as names, that are to count as this client's memory.
    pub fn memory_charge(&self) -> MemoryCharge {
        self.shared.pool.charge(0)
    }

    /// The buckets of the account in one dialect.
    ///
    /// # Errors
    /// The origin's refusal, or the network's; [`ErrorKind::Unsupported`] for a dialect without buckets.
    pub fn buckets(&self, dialect: Dialect) -> Result<Vec<Bucket>, Error> {
        if dialect == Dialect::Plain {
            return Err(Error::new(ErrorKind::Unsupported, "a plain http server has no buckets"));
        }
        let mut buckets = Vec::new();
        let mut marker = None;
        loop {
            let page = self.bucket_page(dialect, marker.clone());
            let page = page.map_err(|error| error.during("list", self.shared.account.endpoint(dialect)))?;
            buckets.extend(page.buckets.into_iter().map(|(name, created)| Bucket { name, created }));
            match page.next {
                None => return Ok(buckets),
                next if next == marker => return Err(repeats_a_page()),
                next => marker = next,
            }
        }
    }

    fn bucket_page(&self, dialect: Dialect, marker: Option<String>) -> Result<listing::Buckets, Error> {
        let (_, body) = self.shards.call(Operation::Buckets { dialect, marker })?;
        listing::parse_buckets(&body).map_err(|nonsense| {
            let error =
                Error::new(ErrorKind::Network, format!("the answer is no list of buckets: {nonsense}"));
            let name = if dialect == Dialect::Oss { "OSS" } else { "S3" };
            let note = self.shared.account.note_on_path(dialect);
            error.with_hint(note.unwrap_or_else(|| format!("does this endpoint speak {name}?")))
        })
    }
}

/// One thread can hash about what two shards send.
fn hashing_threads(settings: &Settings) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.min(2 * settings.shards.max(1) as usize)
}

/// The knob whose value a location's error is about.
fn knob_of(error: &LocationError) -> &'static str {
    match error {
        LocationError::BadRegion { .. } => "region",
        LocationError::BadAddressing { .. } => "addressing",
        LocationError::BadSignature { .. } => "oss-signature",
        _ => "endpoint-url",
    }
}

impl Client {
    /// What requests are signed with now; blocks while a provider is asked.
    fn signer(&self, dialect: Dialect) -> Result<RequestSigner, Error> {
        keys_runtime()?.block_on(self.shared.account.signer(dialect))
    }

    fn keys<S: Send + Sync + 'static>(&self, keys: &Arc<Keys<S>>) -> Result<Option<Credentials>, Error> {
        let held = keys_runtime()?.block_on(keys.current())?;
        Ok(held.credentials().cloned())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.readers.close();
        self.shards.stop();
    }
}

/// For a thread of the caller's that waits for keys.
fn keys_runtime() -> Result<Runtime, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.map_err(|refused| Error::local("cannot wait for keys", refused))
}

/// What it takes at most to see that an address is dead: nobody is there, then nobody takes the request, then
/// nothing comes of an answer, which is noticed a tick after its time.
fn longest_trial(settings: &Settings) -> Duration {
    let (connect_ms, stall_ms) = (settings.connect_timeout_ms, settings.stall_timeout_ms);
    Duration::from_millis(connect_ms + 2 * stall_ms + stall_ms / u64::from(STALL_TICKS))
}

/// Only buckets keep versions.
fn target(location: &Location, version_id: Option<&str>) -> Result<Target, Error> {
    if let (Location::Http { .. }, Some(_)) = (location, version_id) {
        return Err(Error::new(ErrorKind::Usage, "a plain URL has no version ids")
            .with_hint("name the object by s3:// or oss://"));
    }
    Ok(Target { location: location.clone(), version_id: version_id.map(Arc::from) })
}

/// A range without a byte cannot be asked for.
fn check_span(span: &Span) -> Result<(), Error> {
    match span {
        Span::Slice(range) if range.is_empty() => Err(Error::new(ErrorKind::Usage, "the range is empty")),
        Span::From(u64::MAX) => Err(Error::new(ErrorKind::Usage, "no object reaches that far")),
        _ => Ok(()),
    }
}
