//! One run: the engine's own futures on one thread, in a world whose clock jumps to whatever comes next.
//!
//! Nothing here blocks: the clock stands still until every task waits. What a caller would wait for with a
//! thread of his own is looked at again and again in virtual time, and a stream is read by a task.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flatout_settings::Settings;
use flatout_wire::location::Location;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::line;
use super::put_run::{PutEnded, RunningPut, run_put};
use super::scenario::{From, Interruption, Land, Scenario, Task};
use super::world::{Window, World};
use crate::api::account::Dialect;
use crate::base::error::{Error, ErrorKind};
use crate::base::operation::Direction;
use crate::base::report::Report;
use crate::batch::{Batch, Finished, ManyProgress, WEIGHT_STEP_BYTES, Wanted};
use crate::client::Client;
use crate::client::config::Config;
use crate::disk::folder::Folder;
use crate::memory::lease::{Lease, Pool};
use crate::memory::plan::CONNECTION_BYTES;
use crate::shard::Shard;
use crate::shard::shards::{ShardThread, serve};
use crate::sink::landing::{Landing, Memory};
use crate::sink::stream::{StreamReader, stream};
use crate::transfer::get::Get;
use crate::transfer::handle::Transfer;
use flatout_policy::receive_size::RECEIVE_BYTES;

/// A run that has not ended by then never will: the slowest origin with the longest waits is done in a tenth.
pub(super) const FOR_EVER: Duration = Duration::from_secs(100_000);
/// How long it is watched whether anybody still writes to a landing.
const AFTERMATH: Duration = Duration::from_secs(3);
/// A landing's memory before, and what the caller writes into it after.
const UNTOUCHED: u8 = 0xA5;
const POISON: u8 = 0x5A;

/// What came of a run.
pub(super) struct Outcome {
    pub(super) gets: Vec<Ended>,
    pub(super) many: Option<ManyEnded>,
    pub(super) put: Option<PutEnded>,
    /// Bytes leased when all was over.
    pub(super) held_bytes: u64,
}

/// How one get ended.
pub(super) struct Ended {
    pub(super) result: Result<Report, Error>,
    /// What landed, of a landing that can be looked at.
    pub(super) landed: Option<Vec<u8>>,
    pub(super) began: Duration,
    pub(super) ended: Duration,
    pub(super) interrupted: Option<Duration>,
    /// Connections opened for it.
    pub(super) connections: usize,
}

pub(super) struct ManyEnded {
    pub(super) finished: Vec<Finished>,
    pub(super) files: HashMap<usize, Vec<u8>>,
    pub(super) progress: ManyProgress,
    pub(super) incomplete: Option<Error>,
    pub(super) ended: Duration,
    pub(super) interrupted: Option<Duration>,
}

/// Runs a scenario to its end; with `tells` its world keeps a trace.
pub(super) fn run(scenario: &Scenario, tells: bool) -> (Rc<World>, Outcome) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(Default::default())
        .expect("a runtime without a driver");
    let client = Client::new(config(scenario)).expect("settings that make sense");
    if scenario.tuning.knows_origins {
        client.know_origins();
    }
    // Providers are asked on threads of their own, whose time is not ours: all of that is over before.
    match scenario.origin.dialect {
        Dialect::S3 => drop(client.aws_keys().expect("nobody has keys")),
        Dialect::Oss => drop(client.oss_keys().expect("nobody has keys")),
        Dialect::Plain => {}
    }
    let pool = client.shared().pool.clone();
    let (world, left) = runtime.block_on(async {
        let world = Rc::new(World::new(Rc::new(scenario.clone()), tells));
        let _entered = line::enter(&world);
        start_shards(&world, &client);
        let left = match &scenario.task {
            Task::One { .. } => Left::Gets(get_all(&world, &client).await),
            Task::Many { land } => Left::Many(get_many(&world, &client, *land).await),
            Task::Put(task) => Left::Put(run_put(&world, &client, *task).await),
        };
        world.stop_clock();
        (world, left)
    });
    drop(client);
    // With it every future of the engine is dropped, as when a shard's thread ends.
    drop(runtime);
    let mut outcome = Outcome { gets: Vec::new(), many: None, put: None, held_bytes: 0 };
    match left {
        Left::Gets((gets, unfinished)) => {
            outcome.gets = gets;
            outcome.gets.extend(unfinished.and_then(|get| get.conclude(&world)));
        }
        Left::Many(many) => outcome.many = many.conclude(&world),
        Left::Put(put) => outcome.put = put.and_then(|put| put.conclude(&world)),
    }
    outcome.held_bytes = pool.held_bytes();
    (world, outcome)
}

enum Left {
    Gets((Vec<Ended>, Option<Running>)),
    Many(RunningMany),
    Put(Option<RunningPut>),
}

pub(super) fn config(scenario: &Scenario) -> Config {
    let tuning = &scenario.tuning;
    let addresses: Vec<String> =
        (1..=scenario.origin.addresses.len()).map(|at| format!("10.0.0.{at}")).collect();
    let settings = Settings {
        endpoint_url: Some("http://origin.test:9000".into()),
        oss_endpoint: Some("http://origin.test:9000".into()),
        region: Some("us-east-1".into()),
        addressing: "path".into(),
        no_sign_request: true,
        resolve: vec![format!("origin.test:9000:{}", addresses.join(","))],
        parallel: (!tuning.is_open).then_some(tuning.parallel),
        part_bytes: Some(tuning.part_bytes),
        window_bytes: Some(tuning.window_bytes),
        request_rate: tuning.request_rate,
        shards: tuning.shards,
        retries: tuning.retries,
        outage_timeout_ms: tuning.outage_ms,
        stall_timeout_ms: tuning.stall_ms,
        connect_timeout_ms: tuning.connect_ms,
        ..Settings::default()
    };
    Config { settings, ..Config::default() }
}

pub(super) fn location(dialect: Dialect, object: usize) -> Location {
    let url = match dialect {
        Dialect::Plain => format!("http://origin.test:9000/object-{object}"),
        Dialect::S3 => format!("s3://bucket/object-{object}"),
        Dialect::Oss => format!("oss://bucket/object-{object}"),
    };
    Location::parse(&url).expect("a location")
}

/// Shards that are tasks of this thread, each with a chance of its own.
pub(super) fn start_shards(world: &Rc<World>, client: &Client) {
    let shared = client.shared();
    let mut handles = Vec::new();
    for number in 0..world.scenario.tuning.shards {
        let (handle, queue) = ShardThread::threadless();
        let scratch = shared.pool.lease(RECEIVE_BYTES).expect("memory");
        let shard = Shard::new(shared.clone(), number, scratch, world.draw.borrow_mut().seed(), None);
        tokio::task::spawn_local(serve(Rc::new(shard), queue));
        handles.push(handle);
    }
    client.shards().adopt(handles);
    let fixed = shared.pool.held_bytes();
    let ring = match world.scenario.task {
        Task::One { land: Land::Stream(_), .. } => {
            let tuning = &world.scenario.tuning;
            // Each part has whole pages to itself.
            (tuning.window_bytes / tuning.part_bytes).max(1) * tuning.part_bytes.next_multiple_of(4096)
        }
        // One part for each slot, and two that are being filled or wait; a short file is read whole.
        Task::Put(put) => {
            let tuning = &world.scenario.tuning;
            let rooms = match put.from {
                From::Stream(_) => u64::from(tuning.parallel) + 2,
                From::File => 1,
                From::Memory | From::Synthetic => 0,
            };
            rooms * tuning.part_bytes.next_multiple_of(4096)
        }
        _ => 0,
    };
    // Connections and their names, HEADs besides, and objects that wait for one; each is charged. Of
    // connections for HEADs each shard keeps as many as it needed at its busiest.
    let tuning = &world.scenario.tuning;
    let (workers, shards) = (u64::from(tuning.parallel), u64::from(tuning.shards));
    let connections = workers * CONNECTION_BYTES + 2 * (workers + shards) * CONNECTION_BYTES;
    let charged = connections + world.scenario.objects.len() as u64 * 1_024 + WEIGHT_STEP_BYTES;
    let fresh = world.pool.set((shared.pool.clone(), fixed + charged + ring)).is_ok();
    assert!(fresh, "shards start once");
}

/// Interrupts a transfer; whether the client is to be closed.
pub(super) fn interrupt(world: &World, interruption: Interruption, transfer: &Transfer) -> bool {
    world.tell(|| format!("{interruption:?}"));
    match interruption {
        Interruption::Cancel => transfer.cancel_switch().cancel(),
        Interruption::Withdraw => transfer.cancel_switch().withdraw(),
        Interruption::ClientCloses => return true,
        // The reader or the writer does so itself.
        Interruption::ReaderLeaves => {}
    }
    false
}

/// Looks again and again, ever less often; `None` once it has been for ever.
pub(super) async fn look_until<T>(world: &World, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let since = Instant::now();
    loop {
        if let Some(seen) = look() {
            return Some(seen);
        }
        if since.elapsed() > FOR_EVER {
            world.object_to("it hangs: nothing came to an end".into());
            return None;
        }
        sleep((since.elapsed() / 64).clamp(Duration::from_millis(1), Duration::from_millis(250))).await;
    }
}

/// The gets of one object, one after the other; the last is left unfinished where the client is closed.
async fn get_all(world: &Rc<World>, client: &Client) -> (Vec<Ended>, Option<Running>) {
    let Task::One { pauses, .. } = &world.scenario.task else { unreachable!("asked for one object") };
    let mut ended = Vec::new();
    let mut pauses = pauses.iter();
    loop {
        let mut get = match Running::start(world, client) {
            Ok(get) => get,
            Err(error) => {
                world.object_to(format!("a get that makes sense is refused: {error}"));
                return (ended, None);
            }
        };
        let over = get.wait(world).await;
        if !over {
            return (ended, Some(get));
        }
        get.check_aftermath(world).await;
        ended.extend(get.conclude(world));
        let Some(pause) = pauses.next() else { return (ended, None) };
        sleep(*pause).await;
        world.transfer.set(world.transfer.get() + 1);
    }
}

/// A get on its way, and where it lands.
struct Running {
    transfer: Transfer,
    memory: Option<Lease>,
    folder: Option<tempfile::TempDir>,
    reader: Option<JoinHandle<()>>,
    read: Rc<RefCell<Vec<u8>>>,
    began: Duration,
    ended: Option<Duration>,
    interrupted: Option<Duration>,
    lines_before: usize,
    hangs: bool,
    landed: Option<Vec<u8>>,
}

impl Running {
    fn start(world: &Rc<World>, client: &Client) -> Result<Running, Error> {
        let scenario = &world.scenario;
        let Task::One { span, land, .. } = &scenario.task else { unreachable!("asked for one object") };
        let (mut memory, mut folder, mut reader) = (None, None, None);
        let landing = match land {
            Land::Nowhere => Landing::Nowhere,
            Land::Memory => {
                let bytes = world.content(0, 0).len().max(world.content(0, 1).len());
                let mut lease = Arc::<Pool>::default().lease(bytes).expect("memory");
                lease.as_mut_slice().fill(UNTOUCHED);
                // SAFETY: the lease lives in `Running`, and is looked at only when the transfer has ended; a
                // run that hangs forgets both. That the engine keeps its part is what `check_aftermath` looks
                // for.
                let lent = unsafe { Memory::new(lease.as_ptr(), bytes) };
                memory = Some(lease);
                Landing::Memory(lent)
            }
            Land::File => {
                let made = tempfile::tempdir().expect("a folder");
                let path = made.path().join("object");
                folder = Some(made);
                Landing::File(path)
            }
            Land::Stream(_) => {
                let (writer, end) = stream();
                reader = Some(end);
                Landing::Stream(writer)
            }
        };
        let read: Rc<RefCell<Vec<u8>>> = Rc::default();
        let lines_before = world.log.borrow().lines.len();
        let reader = reader.map(|reader| start_reader(world, reader, &read));
        let get = Get::new(location(scenario.origin.dialect, 0), landing).with_span(span.clone());
        world.tell(|| "get".into());
        Ok(Running {
            transfer: client.get(get)?,
            memory,
            folder,
            reader,
            read,
            began: world.now(),
            ended: None,
            interrupted: None,
            lines_before,
            hangs: false,
            landed: None,
        })
    }

    /// Waits for the end; `false` when the client is to be closed instead, or when there is none.
    async fn wait(&mut self, world: &Rc<World>) -> bool {
        let interruption = world.scenario.interruption.filter(|_| self.began.is_zero());
        let mut closes = false;
        let ended = look_until(world, || {
            let now = world.now();
            if let Some((interruption, after)) = interruption
                && self.interrupted.is_none()
                && now >= after
            {
                self.interrupted = Some(now);
                closes = interrupt(world, interruption, &self.transfer);
            }
            let is_over = self.transfer.wait_timeout(Duration::ZERO);
            (is_over || closes).then_some(is_over)
        })
        .await;
        self.hangs = ended.is_none();
        if ended != Some(true) {
            return false;
        }
        world.on_end_of_transfer();
        self.ended = Some(world.now());
        world.tell(|| "end".into());
        if let Some(reader) = self.reader.take() {
            reader.await.expect("a reader without a panic");
        }
        true
    }

    /// The caller has his memory back: nobody else may write to it.
    async fn check_aftermath(&mut self, world: &World) {
        let Some(memory) = &mut self.memory else { return };
        self.landed = Some(memory.as_mut_slice().to_vec());
        memory.as_mut_slice().fill(POISON);
        sleep(AFTERMATH).await;
        if memory.as_mut_slice().iter().any(|&byte| byte != POISON) {
            world.object_to("the landing was written to after the end".into());
        }
    }

    fn conclude(mut self, world: &World) -> Option<Ended> {
        if self.hangs || !self.transfer.wait_timeout(Duration::ZERO) {
            if !self.hangs {
                world.object_to("all shards are gone, and the transfer has no end".into());
            }
            // Its drop would wait.
            std::mem::forget((self.transfer, self.memory));
            return None;
        }
        let result = self.transfer.wait();
        let landed = match (self.memory.as_mut(), &self.folder) {
            (Some(memory), _) => Some(self.landed.take().unwrap_or_else(|| memory.as_mut_slice().to_vec())),
            (None, Some(folder)) => {
                let left: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").collect();
                if left.len() != usize::from(result.is_ok()) {
                    world.object_to(format!(
                        "{} files are in the folder, the end is {:?}",
                        left.len(),
                        result.is_ok()
                    ));
                }
                std::fs::read(folder.path().join("object")).ok()
            }
            (None, None) => world.scenario.streams().then(|| self.read.take()),
        };
        *world.window.borrow_mut() = None;
        Some(Ended {
            result,
            landed,
            began: self.began,
            ended: self.ended.unwrap_or_else(|| world.now()),
            interrupted: self.interrupted,
            connections: world.log.borrow().lines.len() - self.lines_before,
        })
    }
}

/// A reader with a pace of his own, who may leave before the end.
fn start_reader(world: &Rc<World>, reader: StreamReader, read: &Rc<RefCell<Vec<u8>>>) -> JoinHandle<()> {
    let Task::One { span, .. } = &world.scenario.task else { unreachable!("asked for one object") };
    let tuning = &world.scenario.tuning;
    let start = span.resolve(world.content(0, 0).len() as u64).map_or(0, |range| range.start);
    *world.window.borrow_mut() = Some(Window {
        start,
        part_bytes: tuning.part_bytes,
        window_bytes: tuning.window_bytes,
        read_bytes: 0,
    });
    let leaves = world.scenario.interruption.filter(|&(kind, _)| kind == Interruption::ReaderLeaves);
    let (world, read) = (world.clone(), read.clone());
    let leaves = leaves.map_or(FOR_EVER * 2, |(_, after)| after);
    let until = world.start + leaves;
    tokio::task::spawn_local(async move {
        if timeout_at(until, read_all(&world, reader, &read)).await.is_err() {
            world.tell(|| "the reader has left".into());
        }
    })
}

async fn read_all(world: &World, mut reader: StreamReader, read: &RefCell<Vec<u8>>) {
    let mut idle_since = Instant::now();
    loop {
        let done = read.borrow().len() as u64;
        if let Some(window) = world.window.borrow_mut().as_mut() {
            // The next call is what gives back what the last one lent.
            window.read_bytes = done;
        }
        let taken = match reader.try_next() {
            Poll::Ready(Some(bytes)) => {
                read.borrow_mut().extend_from_slice(bytes);
                bytes.len()
            }
            Poll::Ready(None) => return,
            Poll::Pending => 0,
        };
        if taken == 0 {
            let idle = idle_since.elapsed() / 16;
            sleep(idle.clamp(Duration::from_millis(1), Duration::from_millis(250))).await;
            continue;
        }
        if let Some(rate) = world.scenario.stream_rate() {
            sleep(Duration::from_secs_f64(taken as f64 / rate as f64)).await;
        }
        idle_since = Instant::now();
    }
}

/// Many objects on their way.
struct RunningMany {
    batch: Arc<Batch>,
    folder: Option<tempfile::TempDir>,
    finished: Vec<Finished>,
    ended: Option<Duration>,
    interrupted: Option<Duration>,
    hangs: bool,
}

async fn get_many(world: &Rc<World>, client: &Client, land: Land) -> RunningMany {
    let (scenario, shared) = (&world.scenario, client.shared());
    let folder = (land == Land::File).then(|| tempfile::tempdir().expect("a folder"));
    let target = folder.as_ref().map(|folder| Folder::open(folder.path()).expect("the folder"));
    let gate = shared.gate_of(&location(scenario.origin.dialect, 0), Direction::Read);
    let batch = Arc::new(Batch::new(shared, client.shards().clone(), gate, target));
    batch.open_for_work().expect("shards that are served");
    let late = world.draw.borrow_mut().happens(0.5);
    if late {
        sleep(Duration::from_millis(5)).await;
    }
    let wanted = scenario.objects.iter().enumerate().map(|(at, object)| {
        let name = format!("folder-{}/object-{at}", at % 3);
        Ok(Wanted {
            location: location(scenario.origin.dialect, at),
            size: object.listed,
            name,
            keep_existing: false,
            modified_ns: None,
        })
    });
    batch.feed(wanted);
    let mut running =
        RunningMany { batch, folder, finished: Vec::new(), ended: None, interrupted: None, hangs: false };
    running.wait(world).await;
    running
}

impl RunningMany {
    async fn wait(&mut self, world: &Rc<World>) {
        let mut closes = false;
        let ended = look_until(world, || {
            let now = world.now();
            if let Some((interruption, after)) = world.scenario.interruption
                && self.interrupted.is_none()
                && now >= after
            {
                self.interrupted = Some(now);
                world.tell(|| format!("{interruption:?}"));
                match interruption {
                    Interruption::ClientCloses => closes = true,
                    _ => self.batch.cancel(),
                }
            }
            let is_over = self.take_news();
            (is_over || closes).then_some(is_over)
        })
        .await;
        self.hangs = ended.is_none();
        if ended == Some(true) {
            world.on_end_of_transfer();
            self.ended = Some(world.now());
        }
    }

    /// Takes what has ended; whether all is over.
    fn take_news(&mut self) -> bool {
        loop {
            match self.batch.next(Duration::ZERO) {
                None => return true,
                Some(news) if news.is_empty() => return false,
                Some(news) => self.finished.extend(news),
            }
        }
    }

    fn conclude(mut self, world: &World) -> Option<ManyEnded> {
        if self.hangs {
            return None;
        }
        if !self.take_news() {
            world.object_to("all shards are gone, and the batch has no end".into());
            return None;
        }
        let mut files = HashMap::new();
        if let Some(folder) = &self.folder {
            collect_files(folder.path(), &mut files, world);
        }
        Some(ManyEnded {
            progress: self.batch.progress(),
            incomplete: self.batch.take_incomplete(),
            finished: self.finished,
            files,
            ended: self.ended.unwrap_or_else(|| world.now()),
            interrupted: self.interrupted,
        })
    }
}

fn collect_files(folder: &std::path::Path, files: &mut HashMap<usize, Vec<u8>>, world: &World) {
    for entry in std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().expect("a type").is_dir() {
            collect_files(&entry.path(), files, world);
            continue;
        }
        match name.strip_prefix("object-").and_then(|number| number.parse().ok()) {
            Some(object) => {
                files.insert(object, std::fs::read(entry.path()).expect("a file"));
            }
            None => world.object_to(format!("the file {name} is left behind")),
        }
    }
}

/// Whether an error says that somebody wanted no more.
pub(super) fn is_cancelled(error: &Error) -> bool {
    error.kind() == ErrorKind::Cancelled
}
