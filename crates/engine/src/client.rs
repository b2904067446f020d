//! The client: it owns everything. No statics, threads at the first use, nothing left when it is dropped.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use flatout_settings::Settings;
use flatout_wire::endpoint::Endpoint;
use flatout_wire::head::Head;
use flatout_wire::listing;
use flatout_wire::location::{Location, LocationError};
use flatout_wire::range::Span;
use flatout_wire::request::Request;
use flatout_wire::sign::Credentials;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedSender;

use crate::account::{Account, Dialect, Errand, OssSettings, Pen};
use crate::control::{Call, Patience, Question, Reply};
use crate::credentials::{Anonymous, Grant, Keys, Provider, Refused};
use crate::endpoint::Endpoints;
use crate::error::{Error, ErrorKind, SETTINGS};
use crate::folder::Folder;
use crate::gate::{Bandwidth, FoundPace, Gate, Gates, OriginStats, Team, origin_of};
use crate::get::Get;
use crate::handle::Transfer;
use crate::hold::Hold;
use crate::interface::Binds;
use crate::landing::{Landing, Memory};
use crate::lease::Pool;
use crate::list::{Bucket, Listing, repeats_a_page};
use crate::many::{Batch, Many, Wanted};
use crate::memory::Shares;
use crate::proxy::{Proxies, Routes};
use crate::reader::{Object, Reader, ReaderStats, Readers, Weight};
use crate::shard::{Job, ShardHandle};
use crate::stall::STALL_TICKS;
use crate::stats::{Report, Stat, Version};
use crate::survey::{self, Clock, Survey, Way};
use crate::tls::Tls;
use crate::transfer::{Care, Running};

/// What a client is made from.
#[derive(Clone, Debug)]
pub struct Config {
    /// Every knob.
    pub settings: Settings,
    /// Who is asked for the keys of S3 calls.
    pub aws_credentials: Arc<dyn Provider>,
    /// Who is asked for the keys of OSS calls.
    pub oss_credentials: Arc<dyn Provider>,
    /// Proxies found around, for where the settings name none.
    pub proxies: Proxies,
    /// Settings in which `oss://` differs.
    pub oss: OssSettings,
    /// What earlier runs found of origins; see [`Client::paces`].
    pub paces: Vec<FoundPace>,
}

impl Default for Config {
    /// The default of every knob, and no keys.
    fn default() -> Config {
        let nobody: Arc<dyn Provider> = Arc::new(Anonymous { why: "no keys were given".into() });
        Config {
            settings: Settings::default(),
            aws_credentials: nobody.clone(),
            oss_credentials: nobody,
            proxies: Proxies::default(),
            oss: OssSettings::default(),
            paces: Vec::new(),
        }
    }
}

/// Reads objects. Cheap to make: threads start at the first use, and end when the client is dropped.
pub struct Client {
    core: Arc<Core>,
}

impl Client {
    /// A client of its own, sharing nothing with any other.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for settings that make no sense. Where it is about one of them, [`Error::doing`] is `settings`
    /// and [`Error::object`] the name of its knob.
    pub fn new(config: Config) -> Result<Client, Error> {
        let usage = |why: String| Error::new(ErrorKind::Usage, why);
        let settings = config.settings;
        settings.check().map_err(|why| usage(why.to_string()))?;
        let (aws, oss) = match settings.no_sign_request {
            true => {
                let nobody = Arc::new(Anonymous { why: "--no-sign-request is on".into() });
                (nobody.clone() as Arc<dyn Provider>, nobody as Arc<dyn Provider>)
            }
            false => (config.aws_credentials, config.oss_credentials),
        };
        let shares = Shares::of(&settings)?;
        let account = Account::new(&settings, &config.oss, aws, oss)
            .map_err(|why| usage(why.to_string()).during(SETTINGS, knob_of(&why)))?;
        let pool = Arc::new(Pool::new(shares.limit, shares.set_aside));
        let core = Core {
            account: Arc::new(account),
            endpoints: Endpoints::new(&settings.resolve, longest_trial(&settings))?,
            binds: Binds::new(&settings.bind)?,
            routes: Routes::new(settings.proxy.as_deref(), settings.no_proxy.as_deref(), &config.proxies)?,
            tls: Tls::new(settings.ca_bundle.as_deref())?,
            clock: Clock::default(),
            bandwidth: settings.bandwidth_bytes.map(Bandwidth::new),
            readers: Readers::new(&pool, &shares),
            pool,
            shares,
            gates: Gates::new(config.paces, shares),
            settings,
            shards: Mutex::new(Some(Vec::new())),
            process: std::process::id(),
        };
        Ok(Client { core: Arc::new(core) })
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Starts a get.
    ///
    /// # Errors
    /// What can be known before anything is sent: a target that cannot be written.
    pub fn get(&self, get: Get) -> Result<Transfer, Error> {
        check_object(&get.location)?;
        check_span(&get.span).map_err(|error| error.during("read", &get.location))?;
        let (account, care) = (self.core.account.clone(), self.core.care());
        let gate = self.core.gate_of(&get.location);
        let turns = gate.turns(gate.new_asker(), get.priority);
        let running = Arc::new(Running::start(get, account, gate.clone(), care, turns)?);
        // Before anybody holds it: what could not be begun has no end.
        let jobs = self.core.jobs(0)?;
        let post = gate.join(Team::Transfer(Arc::downgrade(&running)), 0);
        if let Err(unsent) = jobs.send(Job::Lead(Hold::new(running.clone()), post)) {
            running.end.forget_call();
            drop(unsent);
            return Err(self.core.unanswered().during("read", &running.name));
        }
        Ok(Transfer::new(running))
    }

    /// Starts a get of many objects of the origin of `source`, which land beneath `folder`, or nowhere. `wanted` is read by a
    /// thread of its own, ahead of the transfer and with bounded memory; its first error ends it ([`Many::incomplete`]).
    ///
    /// # Errors
    /// [`ErrorKind::LocalIo`] when no thread can be started.
    pub fn get_many(
        &self,
        source: &Location,
        wanted: impl Iterator<Item = Result<Wanted, Error>> + Send + 'static,
        folder: Option<Folder>,
    ) -> Result<Many, Error> {
        let batch = Batch::new(&self.core, self.core.gate_of(source), folder);
        Many::start(batch, wanted, &self.core)
    }

    /// Fills `buffer` with a range of an object and returns when it is filled; the buffer may be longer.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] when the buffer is too short; whatever the transfer meets.
    pub fn get_into(&self, location: &Location, span: Span, buffer: &mut [u8]) -> Result<Report, Error> {
        // SAFETY: the buffer is borrowed mutably until this function returns, and `wait` (or the drop of the transfer,
        // if something panics) returns only when no shard touches it any more.
        let memory = unsafe { Memory::new(buffer.as_mut_ptr(), buffer.len()) };
        self.get(Get::new(location.clone(), Landing::Memory(memory)).with_span(span))?.wait()
    }

    /// What the origin tells of an object, by one HEAD.
    ///
    /// # Errors
    /// The origin's refusal, or the network's.
    pub fn stat(&self, location: &Location) -> Result<Stat, Error> {
        check_object(location)?;
        let called = self.core.call(Call::new(Errand::Head(location.clone())));
        let (head, _) = called.map_err(|error| error.during("stat", location))?;
        Ok(Stat {
            version: Version::of(&head, head.content_length),
            content_type: head.content_type,
            checksums: head.checksums,
            storage_class: head.storage_class,
            object_type: head.object_type,
            metadata: head.metadata,
            parts_count: head.parts_count,
        })
    }

    /// The objects under a prefix: with `deep` all of them, else those up to the next `/` and the prefixes behind it.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what is no bucket; the network's errors come with the items.
    pub fn list(&self, location: &Location, deep: bool) -> Result<Listing, Error> {
        Listing::start(self.core.clone(), location, deep)
    }

    /// The GET that reads an object, signed with the keys of now: what a measurement sends that does without the engine.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] when a provider that is configured fails; [`ErrorKind::Usage`] for settings that lead nowhere.
    pub fn signed_get(&self, location: &Location) -> Result<Request, Error> {
        let pen = self.core.pen(Dialect::of(location));
        let request = pen.and_then(|pen| self.core.account.request(&Errand::Get(location.clone()), &pen));
        request.map_err(|error| error.during("read", location))
    }

    /// A URL by which whoever has it reads an object for `expires_s` seconds, 1 to 604,800 (of OSS's version 1, as many as a `u32`
    /// has), by a plain GET: signed with the keys of now, whose own end is its end too. It is a secret. No origin is asked.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] without keys, or when a provider that is configured fails; [`ErrorKind::Usage`] for a time that is
    /// out of bounds, for what is no object and for settings that lead nowhere; [`ErrorKind::Unsupported`] for a plain URL.
    pub fn presign(&self, location: &Location, expires_s: u64) -> Result<String, Error> {
        check_object(location)?;
        let pen = self.core.pen(Dialect::of(location));
        let url = pen.and_then(|pen| self.core.account.presigned(location, &pen, expires_s));
        url.map_err(|error| error.during("presign", location))
    }

    /// The keys that S3 calls are signed with now, asked for if need be; `None` when they leave unsigned.
    ///
    /// # Errors
    /// [`ErrorKind::Denied`] when a provider that is configured fails.
    pub fn aws_keys(&self) -> Result<Option<Credentials>, Error> {
        self.core.keys(&self.core.account.aws_keys)
    }

    /// As [`Client::aws_keys`], for OSS calls.
    ///
    /// # Errors
    /// As [`Client::aws_keys`].
    pub fn oss_keys(&self) -> Result<Option<Credentials>, Error> {
        self.core.keys(&self.core.account.oss_keys)
    }

    /// Asks who has the keys for S3, past those that are kept: for whoever shows how things stand. Requests after it are
    /// signed with these.
    ///
    /// # Errors
    /// Each provider that was tried, and why it had nothing.
    pub fn who_has_aws_keys(&self) -> Result<Grant, Refused> {
        self.core.account.aws_keys.ask(&self.core)
    }

    /// As [`Client::who_has_aws_keys`], for OSS.
    ///
    /// # Errors
    /// As [`Client::who_has_aws_keys`].
    pub fn who_has_oss_keys(&self) -> Result<Grant, Refused> {
        self.core.account.oss_keys.ask(&self.core)
    }

    /// What requests for `location` are sent to. Nothing is sent.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for settings that lead nowhere.
    pub fn way(&self, location: &Location) -> Result<Way, Error> {
        survey::way_to(&self.core, location).map_err(|error| error.during("examine", location))
    }

    /// What requests that are about no bucket are sent to. Nothing is sent.
    ///
    /// # Errors
    /// As [`Client::way`]; [`ErrorKind::Unsupported`] for a dialect without buckets.
    pub fn way_to_buckets(&self, dialect: Dialect) -> Result<Way, Error> {
        survey::way_to_buckets(&self.core, dialect)
    }

    /// Connects to every address of `way`, `connects` times each, and shakes hands once where TLS is spoken; no request is
    /// sent. Look-up, connects and handshake may each take the connect timeout. What an address refuses stands with it.
    ///
    /// # Errors
    /// [`ErrorKind::Network`] and [`ErrorKind::Timeout`] when the name has no address.
    pub fn survey(&self, way: &Way, connects: u32) -> Result<Survey, Error> {
        survey::survey(&self.core, way, connects)
    }

    /// By how many seconds the clock of the origin that answered last is ahead of this machine's, negative where it is
    /// behind; a second more or less, as it states whole ones. `None` before an answer that had a date.
    pub fn origin_ahead_s(&self) -> Option<i64> {
        self.core.clock.ahead_s()
    }

    /// What has been found of the origins that were read from, worth being remembered for the next client: nothing of one
    /// that was not read from for long enough, or with a fixed `--parallel`.
    pub fn paces(&self) -> Vec<FoundPace> {
        self.core.gates.found()
    }

    /// Bytes that this client holds now, by its own account: what `Settings::memory_bytes` bounds. The caller's buffers and
    /// files are no part of it, idle memory that is kept for the next part is none either.
    pub fn memory_held(&self) -> u64 {
        self.core.pool.held_bytes()
    }

    /// Reads of one version of an object, here and there. Nothing is sent yet. Readers of the same location and ETag share what
    /// they fetch, as long as any of them lives.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for what is no object.
    pub fn reader(&self, object: Object) -> Result<Reader, Error> {
        check_object(&object.location)?;
        Ok(Reader(Arc::new(Readers::open(&self.core, object))))
    }

    /// What reading has come to so far, of all objects.
    pub fn reader_stats(&self) -> ReaderStats {
        self.core.readers.stats()
    }

    /// The origins that were asked for anything, by name: what is in flight there, and what holds it back.
    pub fn origins(&self) -> Vec<OriginStats> {
        self.core.gates.stats()
    }

    /// Bytes of the caller's own, such as names, that are to count as this client's memory.
    pub fn weight(&self) -> Weight {
        Weight::new(self.core.pool.charge(0))
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
            let page = page.map_err(|error| error.during("list", self.core.account.endpoint(dialect)))?;
            buckets.extend(page.buckets.into_iter().map(|(name, created)| Bucket { name, created }));
            match page.next {
                None => return Ok(buckets),
                next if next == marker => return Err(repeats_a_page()),
                next => marker = next,
            }
        }
    }

    fn bucket_page(&self, dialect: Dialect, marker: Option<String>) -> Result<listing::Buckets, Error> {
        let (_, body) = self.core.call(Call::new(Errand::Buckets { dialect, marker }))?;
        listing::parse_buckets(&body).map_err(|nonsense| {
            Error::new(ErrorKind::Network, format!("the answer is no list of buckets: {nonsense}")).with_hint(
                format!("does this endpoint speak {}?", if dialect == Dialect::Oss { "OSS" } else { "S3" }),
            )
        })
    }
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

impl Drop for Client {
    fn drop(&mut self) {
        self.core.readers.close();
        self.core.stop();
    }
}

/// For a thread of the caller's that waits for keys.
fn keys_runtime() -> Result<Runtime, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.map_err(|refused| Error::local("cannot wait for keys", refused))
}

/// What it takes at most to see that an address is dead: nobody is there, then nobody takes the request, then nothing comes
/// of an answer, which is noticed a tick after its time.
fn longest_trial(settings: &Settings) -> Duration {
    let (connect_ms, stall_ms) = (settings.connect_timeout_ms, settings.stall_timeout_ms);
    Duration::from_millis(connect_ms + 2 * stall_ms + stall_ms / u64::from(STALL_TICKS))
}

/// An object has a key; a bucket or a folder cannot be read.
pub(crate) fn check_object(location: &Location) -> Result<(), Error> {
    match location {
        Location::S3 { key, .. } | Location::Oss { key, .. } if key.is_empty() => {
            Err(Error::new(ErrorKind::Usage, "this is a bucket, not an object")
                .during("read", location)
                .with_hint(format!("name an object: {location}/KEY; `flatout ls` shows what is there")))
        }
        _ => Ok(()),
    }
}

/// A range without a byte cannot be asked for.
fn check_span(span: &Span) -> Result<(), Error> {
    match span {
        Span::Slice(range) if range.is_empty() => Err(Error::new(ErrorKind::Usage, "the range is empty")),
        Span::From(u64::MAX) => Err(Error::new(ErrorKind::Usage, "no object reaches that far")),
        _ => Ok(()),
    }
}

/// What the shards of a client share.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) account: Arc<Account>,
    pub(crate) endpoints: Endpoints,
    pub(crate) binds: Binds,
    pub(crate) routes: Routes,
    pub(crate) tls: Tls,
    pub(crate) clock: Clock,
    pub(crate) pool: Arc<Pool>,
    pub(crate) shares: Shares,
    pub(crate) readers: Readers,
    gates: Gates,
    /// `--bandwidth`, for all transfers together.
    pub(crate) bandwidth: Option<Bandwidth>,
    /// The shards that have been started; `None` once the client is closed, so that nothing starts any after.
    shards: Mutex<Option<Vec<ShardHandle>>>,
    process: u32,
}

impl Core {
    /// Takes shards that are served elsewhere instead of starting its own.
    #[cfg(test)]
    pub(crate) fn adopt(&self, handles: Vec<ShardHandle>) {
        *self.shards.lock().unwrap_or_else(PoisonError::into_inner) = Some(handles);
    }

    /// The gate toward the origin of a location.
    pub(crate) fn gate_of(&self, location: &Location) -> Arc<Gate> {
        // Whatever keeps a request from being made is told to whoever makes one.
        let way = survey::way_to(self, location).ok();
        let bucket = location.in_bucket().map_or("", |(bucket, _)| bucket);
        self.gates.of(way.map(|way| origin_of(&way.endpoint, bucket)), &self.settings)
    }

    /// The gate toward the origin behind an endpoint, which may be that of a `bucket`.
    pub(crate) fn gate_at(&self, endpoint: &Endpoint, bucket: &str) -> Arc<Gate> {
        self.gates.of(Some(origin_of(endpoint, bucket)), &self.settings)
    }

    pub(crate) fn care(&self) -> Care {
        let Settings { verify, resume, .. } = self.settings;
        Care { verify, resume }
    }

    pub(crate) fn connect_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.connect_timeout_ms)
    }

    pub(crate) fn stall_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.stall_timeout_ms)
    }

    /// A control request and its whole answer.
    pub(crate) fn call(self: &Arc<Core>, call: Call) -> Result<(Head, Bytes), Error> {
        let (reply, answer) = std::sync::mpsc::channel();
        self.send(0, Job::Call(call, reply))?;
        answer.recv().map_err(|_gone| self.unanswered())?
    }

    /// What a service that is no origin answers; blocks, so no shard may call it.
    pub(crate) fn ask(
        self: &Arc<Core>,
        request: Request,
        body: Bytes,
        patience: Patience,
    ) -> Result<Reply, Error> {
        let (reply, answer) = std::sync::mpsc::channel();
        self.send(0, Job::Ask(Question { request, body, patience }, reply))?;
        answer.recv().map_err(|_gone| self.unanswered())?
    }

    /// Why a shard let go of a question.
    fn unanswered(&self) -> Error {
        match self.shards.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            true => Error::new(ErrorKind::Internal, "a shard stopped: this is a defect of flatout"),
            false => Error::new(ErrorKind::Cancelled, "the client was closed meanwhile"),
        }
    }

    /// What requests are signed with now; blocks while a provider is asked.
    fn pen(self: &Arc<Core>, dialect: Dialect) -> Result<Pen, Error> {
        keys_runtime()?.block_on(self.account.pen(self, dialect))
    }

    fn keys<S: Send + Sync + 'static>(
        self: &Arc<Core>,
        keys: &Arc<Keys<S>>,
    ) -> Result<Option<Credentials>, Error> {
        let held = keys_runtime()?.block_on(keys.current(self))?;
        Ok(held.credentials().cloned())
    }

    /// Sends a job to a shard, starting shards up to it.
    pub(crate) fn send(self: &Arc<Core>, shard: usize, job: Job) -> Result<(), Error> {
        // Without the lock: with a job that is dropped its transfer ends, which may want to send another.
        let _ = self.jobs(shard)?.send(job);
        Ok(())
    }

    /// Where a shard takes its jobs, starting shards up to it. Threads do not survive a fork: a child process needs a client
    /// of its own.
    fn jobs(self: &Arc<Core>, shard: usize) -> Result<UnboundedSender<Job>, Error> {
        if self.process != std::process::id() {
            return Err(Error::new(
                ErrorKind::Internal,
                "this client belongs to the process that forked this one",
            )
            .with_hint("make a new client after the fork"));
        }
        let mut guard = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(shards) = guard.as_mut() else {
            return Err(Error::new(ErrorKind::Cancelled, "the client was closed"));
        };
        while shards.len() <= shard {
            let number = u32::try_from(shards.len()).expect("shards are few");
            shards.push(ShardHandle::start(self.clone(), number)?);
        }
        Ok(shards[shard].jobs())
    }

    fn stop(&self) {
        if self.process != std::process::id() {
            return;
        }
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner).take();
        for shard in shards.into_iter().flatten() {
            shard.stop();
        }
    }
}
