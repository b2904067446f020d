//! The threads of a client: started as they are wanted, stopped when it is closed. Whoever has work for one
//! sends a task.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::LocalRuntime;
use tokio::sync::mpsc;

use crate::api::service::{ServiceClient, ServiceReply, ServiceRequest};
use crate::base::error::{Error, ErrorKind};
use crate::base::thread_clock::ThreadClock;
use crate::memory::lease::Lease;
use crate::shard::Shard;
use crate::shard::shared::Shared;
use flatout_policy::receive_size::RECEIVE_BYTES;

/// How long the close of a client waits for threads that hash.
const HASHING_ENDS_WITHIN: Duration = Duration::from_secs(1);

/// What a shard is asked to do: a task of its own on the shard's runtime. One that is dropped before lets go
/// of what it holds.
pub(crate) struct Task(Box<dyn FnOnce(Rc<Shard>) -> Work + Send>);

/// A task that has begun.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()>>>;

impl Task {
    pub(crate) fn new<F: Future<Output = ()> + 'static>(
        work: impl FnOnce(Rc<Shard>) -> F + Send + 'static,
    ) -> Task {
        Task(Box::new(|shard| Box::pin(work(shard))))
    }

    /// To be run on the shard's thread.
    pub(crate) fn begin(self, shard: Rc<Shard>) -> Work {
        (self.0)(shard)
    }
}

/// What comes down the way to a shard.
pub(crate) enum Job {
    Task(Task),
    Stop,
}

/// The threads of one client.
pub(crate) struct Shards {
    shared: Arc<Shared>,
    /// Those that have been started; `None` once the client is closed, so that nothing starts any after.
    threads: Mutex<Option<Vec<ShardThread>>>,
    process: u32,
}

impl Shards {
    pub(crate) fn new(shared: Arc<Shared>) -> Shards {
        Shards { shared, threads: Mutex::new(Some(Vec::new())), process: std::process::id() }
    }

    /// Takes shards that are served elsewhere instead of starting its own.
    #[cfg(test)]
    pub(crate) fn adopt(&self, threads: Vec<ShardThread>) {
        *self.threads.lock().unwrap_or_else(PoisonError::into_inner) = Some(threads);
    }

    /// Sends a task to a shard, starting shards up to it. A shard that has stopped drops it.
    ///
    /// # Errors
    /// The client is closed, or another process's; the system has no thread left.
    pub(crate) fn send(&self, shard: usize, task: Task) -> Result<(), Error> {
        // Without the lock: with a task that is dropped its transfer ends, which may want to send another.
        let _ = self.way_to(shard)?.send(Job::Task(task));
        Ok(())
    }

    /// Where a shard takes its jobs, starting shards up to it. Threads do not survive a fork: a child process
    /// needs a client of its own.
    ///
    /// # Errors
    /// As [`Shards::send`].
    pub(crate) fn way_to(&self, shard: usize) -> Result<mpsc::UnboundedSender<Job>, Error> {
        if self.process != std::process::id() {
            return Err(Error::new(
                ErrorKind::Internal,
                "this client belongs to the process that forked this one",
            )
            .with_hint("make a new client after the fork"));
        }
        let mut guard = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(threads) = guard.as_mut() else {
            return Err(Error::new(ErrorKind::Cancelled, "the client was closed"));
        };
        while threads.len() <= shard {
            let number = u32::try_from(threads.len()).expect("shards are few");
            threads.push(ShardThread::start(self.shared.clone(), number)?);
        }
        Ok(threads[shard].jobs.clone())
    }

    /// What comes of a task of the first shard's; blocks.
    pub(crate) fn wait_for<T: Send + 'static, F: Future<Output = Result<T, Error>> + 'static>(
        &self,
        work: impl FnOnce(Rc<Shard>) -> F + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = std::sync::mpsc::channel();
        let task = Task::new(|shard| async move {
            // Whoever asked may have gone; then nobody needs the answer.
            let _ = reply.send(work(shard).await);
        });
        self.send(0, task)?;
        answer.recv().map_err(|_gone| self.unanswered())?
    }

    /// Why a shard let go of a task.
    pub(crate) fn unanswered(&self) -> Error {
        match self.threads.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            true => Error::new(ErrorKind::Internal, "a shard stopped: this is a defect of flatout"),
            false => Error::new(ErrorKind::Cancelled, "the client was closed meanwhile"),
        }
    }

    /// Stops the threads and waits for them; their transfers end as cancelled.
    pub(crate) fn stop(&self) {
        if self.process != std::process::id() {
            return;
        }
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        for thread in threads.into_iter().flatten() {
            thread.stop();
        }
        // A part of a file on a disk that hangs is not waited for longer.
        let _ = self.shared.hashing.close(HASHING_ENDS_WITHIN);
    }
}

/// A client's shards for its keys, which are made before there are shards.
#[derive(Default)]
pub(crate) struct LaterShards(OnceLock<Weak<Shards>>);

impl LaterShards {
    pub(crate) fn are(&self, shards: &Arc<Shards>) {
        let _they_are_once = self.0.set(Arc::downgrade(shards));
    }
}

impl ServiceClient for LaterShards {
    fn ask(&self, question: ServiceRequest) -> Result<ServiceReply, Error> {
        match self.0.get().and_then(Weak::upgrade) {
            Some(shards) => shards.ask(question),
            None => Err(Error::new(ErrorKind::Cancelled, "the client was closed")),
        }
    }
}

/// The other threads' end of a shard.
pub(crate) struct ShardThread {
    jobs: mpsc::UnboundedSender<Job>,
    thread: Option<JoinHandle<()>>,
}

impl ShardThread {
    fn start(shared: Arc<Shared>, number: u32) -> Result<ShardThread, Error> {
        let scratch = shared.pool.lease(RECEIVE_BYTES)?;
        let (jobs, queue) = mpsc::unbounded_channel();
        // A runtime cannot be sent to another thread, so the new thread says whether it has one: since the
        // client was made, the process may have opened all files that it may have.
        let (began, begins) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("flatout-{number}"))
            .spawn(move || run(shared, number, scratch, queue, &began))
            .map_err(|refused| Error::local("cannot start a thread", refused))?;
        match begins.recv() {
            Ok(Ok(())) => Ok(ShardThread { jobs, thread: Some(thread) }),
            Ok(Err(refused)) => Err(Error::local("cannot start a thread's event loop", refused)),
            Err(_) => Err(Error::new(ErrorKind::Internal, "a shard ended before it began")),
        }
    }

    /// A shard without a thread of its own: whoever has the queue serves it.
    #[cfg(test)]
    pub(crate) fn threadless() -> (ShardThread, mpsc::UnboundedReceiver<Job>) {
        let (jobs, queue) = mpsc::unbounded_channel();
        (ShardThread { jobs, thread: None }, queue)
    }

    fn stop(mut self) {
        // One that has stopped by itself is as good.
        let _ = self.jobs.send(Job::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed by its own hook; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// A shard's thread.
fn run(
    shared: Arc<Shared>,
    number: u32,
    scratch: Lease,
    queue: mpsc::UnboundedReceiver<Job>,
    began: &std::sync::mpsc::SyncSender<io::Result<()>>,
) {
    let runtime: io::Result<LocalRuntime> = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build_local(Default::default());
    let (runtime, begins) = match runtime {
        Ok(runtime) => (Some(runtime), Ok(())),
        Err(refused) => (None, Err(refused)),
    };
    // Whoever starts it waits for that.
    let _ = began.send(begins);
    let Some(runtime) = runtime else { return };
    let seed =
        u64::from(std::process::id()) << 32 ^ crate::base::time::unix_seconds() ^ u64::from(number) << 20;
    let shard = Rc::new(Shard::new(shared, number, scratch, seed, Some(ThreadClock::new())));
    runtime.block_on(serve(shard, queue));
    // A name look-up that hangs in the system's resolver must not hold up whoever closes the client.
    runtime.shutdown_background();
}

/// A job in, a task of its own on the shard's runtime.
pub(crate) async fn serve(shard: Rc<Shard>, mut queue: mpsc::UnboundedReceiver<Job>) {
    while let Some(job) = queue.recv().await {
        match job {
            Job::Task(task) => drop(tokio::task::spawn_local(task.begin(shard.clone()))),
            Job::Stop => break,
        }
    }
}
