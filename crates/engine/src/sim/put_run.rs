//! The run of a put: its source and whoever writes into it, its caller, and another who reads meanwhile.

use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use flatout_wire::object_options::Condition;
use flatout_wire::range::Span;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};

use super::run::{FOR_EVER, interrupt, location, look_until};
use super::scenario::{From, Interruption, PutTask};
use super::world::World;
use crate::base::error::Error;
use crate::base::report::Report;
use crate::client::Client;
use crate::sink::landing::Landing;
use crate::source::Source;
use crate::source::stream::{StreamUploader, upload_stream};
use crate::transfer::get::Get;
use crate::transfer::handle::Transfer;
use crate::transfer::put::Put;

/// A put on its way.
pub(super) struct RunningPut {
    transfer: Transfer,
    writer: Option<JoinHandle<()>>,
    /// A get of the other object meanwhile.
    beside: Option<Transfer>,
    beside_ended: Option<Duration>,
    _folder: Option<tempfile::TempDir>,
    interrupted: Option<Duration>,
    ended: Option<Duration>,
    hangs: bool,
}

/// How a put ended.
pub(super) struct PutEnded {
    pub(super) result: Result<Report, Error>,
    /// Of the get beside it, if there was one.
    pub(super) beside: Option<Result<Report, Error>>,
    pub(super) beside_ended: Option<Duration>,
    pub(super) ended: Duration,
    pub(super) interrupted: Option<Duration>,
}

/// Starts the put that the scenario asks for, and waits for its end.
pub(super) async fn run_put(world: &Rc<World>, client: &Client, task: PutTask) -> Option<RunningPut> {
    // Threads have a time of their own: parts are hashed by the shards themselves.
    let _ = client.shared().hashing.close(Duration::ZERO);
    if task.is_there {
        world.store.borrow_mut().place(0);
    }
    let mut running = match RunningPut::start(world, client, task) {
        Ok(running) => running,
        Err(error) => {
            world.object_to(format!("a put that makes sense is refused: {error}"));
            return None;
        }
    };
    running.wait(world).await;
    Some(running)
}

impl RunningPut {
    fn start(world: &Rc<World>, client: &Client, task: PutTask) -> Result<RunningPut, Error> {
        let content = world.sent_content();
        let (mut folder, mut writer) = (None, None);
        let source = match task.from {
            From::Memory => Source::Memory(Arc::new(content)),
            From::Synthetic => Source::Synthetic(content.len() as u64),
            From::File => {
                let made = tempfile::tempdir().expect("a folder");
                let path = made.path().join("source");
                std::fs::write(&path, content).expect("a file");
                folder = Some(made);
                Source::File(path)
            }
            From::Stream(rate) => {
                let (uploader, source) = upload_stream();
                writer = Some(start_writer(world, uploader, rate));
                Source::Stream(source)
            }
        };
        let dialect = world.scenario.origin.dialect;
        let condition = if task.if_absent { Condition::Absent } else { Condition::None };
        let beside = world
            .scenario
            .objects
            .get(1)
            .map(|_| client.get(Get::new(location(dialect, 1), Landing::Nowhere).with_span(Span::All)));
        world.tell(|| "put".into());
        Ok(RunningPut {
            transfer: client.put(Put::new(location(dialect, 0), source).on_condition(condition))?,
            writer,
            beside: beside.transpose()?,
            beside_ended: None,
            _folder: folder,
            interrupted: None,
            ended: None,
            hangs: false,
        })
    }

    async fn wait(&mut self, world: &Rc<World>) {
        let mut closes = false;
        let ended = look_until(world, || {
            let now = world.now();
            if let Some((interruption, after)) = world.scenario.interruption
                && self.interrupted.is_none()
                && now >= after
            {
                self.interrupted = Some(now);
                closes = interrupt(world, interruption, &self.transfer);
            }
            let is_over = self.transfer.wait_timeout(Duration::ZERO);
            if is_over && self.ended.is_none() {
                self.ended = Some(now);
                world.tell(|| "end".into());
                world.on_end_of_put();
            }
            let is_read = self.beside.as_ref().is_none_or(|beside| beside.wait_timeout(Duration::ZERO));
            if is_read {
                self.beside_ended.get_or_insert(now);
            }
            let is_all_over = is_over && is_read;
            (is_all_over || closes).then_some(is_all_over)
        })
        .await;
        self.hangs = ended.is_none();
        if let Some(writer) = self.writer.take_if(|_| ended == Some(true)) {
            writer.await.expect("a writer without a panic");
        }
    }

    pub(super) fn conclude(self, world: &World) -> Option<PutEnded> {
        let is_over = self.transfer.wait_timeout(Duration::ZERO)
            && self.beside.as_ref().is_none_or(|beside| beside.wait_timeout(Duration::ZERO));
        if self.hangs || !is_over {
            if !self.hangs {
                world.object_to("all shards are gone, and the put has no end".into());
            }
            // Their drop would wait.
            std::mem::forget((self.transfer, self.beside));
            return None;
        }
        Some(PutEnded {
            result: self.transfer.wait(),
            beside_ended: self.beside_ended.filter(|_| self.beside.is_some()),
            beside: self.beside.map(Transfer::wait),
            ended: self.ended.unwrap_or_else(|| world.now()),
            interrupted: self.interrupted,
        })
    }
}

/// A writer with a pace of his own, who may leave before the end.
fn start_writer(world: &Rc<World>, uploader: StreamUploader, rate: Option<u64>) -> JoinHandle<()> {
    let leaves = world.scenario.interruption.filter(|&(kind, _)| kind == Interruption::ReaderLeaves);
    let until = world.start + leaves.map_or(FOR_EVER * 2, |(_, after)| after);
    let world = world.clone();
    tokio::task::spawn_local(async move {
        if timeout_at(until, write_all(&world, uploader, rate)).await.is_err() {
            world.tell(|| "the writer has left".into());
        }
    })
}

async fn write_all(world: &World, mut uploader: StreamUploader, rate: Option<u64>) {
    let mut left = world.sent_content();
    let mut idle_since = Instant::now();
    while !left.is_empty() {
        let wanted = world.draw.borrow_mut().between_orders(1, 128 << 10) as usize;
        let written = match uploader.try_space() {
            Poll::Ready(Ok(space)) => {
                let bytes = space.len().min(left.len()).min(wanted);
                space[..bytes].copy_from_slice(&left[..bytes]);
                bytes
            }
            Poll::Ready(Err(_ended)) => return,
            Poll::Pending => 0,
        };
        if written == 0 {
            let idle = idle_since.elapsed() / 16;
            sleep(idle.clamp(Duration::from_millis(1), Duration::from_millis(250))).await;
            continue;
        }
        uploader.advance(written);
        left = &left[written..];
        if let Some(rate) = rate {
            sleep(Duration::from_secs_f64(written as f64 / rate as f64)).await;
        }
        idle_since = Instant::now();
    }
    uploader.finish();
}
