//! The engine behind a client: made at the first use from what the process finds around it, and closed with
//! the client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use flatout_ambient::{Ambient, Layer};
use flatout_engine::credentials::Provider;
use flatout_engine::{BlockingPool, Client, ErrorKind};
use pyo3::prelude::*;

use crate::errors::{Failure, worded};
use crate::log::OriginLog;
use crate::prefetch::PrefetchBudget;
use crate::settings::Pairs;

/// The least memory of a process, however many share the machine.
const LEAST_MEMORY_BYTES: u64 = 64 << 20;

/// Prefetched ranges of files may hold this fraction of the memory, 1 / 4.
const SHARE_AHEAD: u64 = 4;

/// Called when an engine closes: for calls that do not check now and then whether it has.
pub trait OnClose: Send + Sync {
    /// `engine` was closed. Runs on any thread, without the interpreter's lock.
    fn on_close(&self, engine: &Engine);
}

/// An engine of this process; dereferences to the engine's client.
pub struct Engine {
    /// Taken when the engine is dropped.
    client: Option<Client>,
    process: u32,
    /// About the most memory of results that have arrived and not been collected.
    pub memory_bytes: u64,
    /// The memory for prefetched ranges of files.
    pub prefetch: Arc<PrefetchBudget>,
    /// Threads for calls that block.
    pub blocking_pool: BlockingPool,
    is_closed: AtomicBool,
    listeners: Mutex<Vec<Weak<dyn OnClose>>>,
    /// What `logging` was told of its origins.
    pub log: OriginLog,
}

impl Engine {
    /// `siblings` processes, this one included, share the machine: settings that nobody has set are divided
    /// among them. `provider` has the keys of both dialects, where the program gives them.
    pub fn new(pairs: &Pairs, siblings: u32, provider: Option<Arc<dyn Provider>>) -> Result<Engine, Failure> {
        let mut found = flatout_ambient::gather(pairs)?;
        share(&mut found, siblings.max(1));
        if let Some(provider) = provider {
            found.aws_credentials = provider.clone();
            found.oss_credentials = provider;
            // They warn of profiles, which are not used where the program gives the keys.
            found.warnings.clear();
        }
        let memory_bytes = found.settings.memory_bytes;
        let prefetch = Arc::new(PrefetchBudget::new(memory_bytes / SHARE_AHEAD));
        let warnings = std::mem::take(&mut found.warnings);
        let client = Client::new(found.into())?;
        let warnings = warnings.into_iter().map(|(_, warning)| warning);
        let log = OriginLog::with(warnings.chain(client.note().map(worded)).collect());
        let (client, process) = (Some(client), std::process::id());
        Ok(Engine {
            client,
            process,
            memory_bytes,
            prefetch,
            blocking_pool: BlockingPool::new("flatout-call"),
            is_closed: AtomicBool::new(false),
            listeners: Mutex::default(),
            log,
        })
    }

    /// Ends all calls on it: those that wait notice within 50 ms, the others by [`OnClose`].
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let listeners = std::mem::take(&mut *self.listeners.lock().unwrap_or_else(PoisonError::into_inner));
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.on_close(self));
        flatout_ambient::remember(&self.paces());
    }

    /// Registers `listener` to be called when this engine closes. Does nothing where it is closed already.
    pub fn notify_on_close<T: OnClose + 'static>(&self, listener: &Arc<T>) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::as_ptr(listener).cast::<()>();
        if !listeners.iter().any(|each| each.as_ptr().cast::<()>() == known) {
            listeners.retain(|each| each.strong_count() > 0);
            let listener: Arc<dyn OnClose> = listener.clone();
            listeners.push(Arc::downgrade(&listener));
        }
    }

    /// Whether it was inherited by a fork: its threads are in the parent, and a wait for it would never end.
    pub fn is_foreign(&self) -> bool {
        self.process != std::process::id()
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    pub fn closed() -> Failure {
        Failure::new(ErrorKind::Cancelled, "", "", "the client was closed")
    }
}

impl std::ops::Deref for Engine {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client.as_ref().expect("it is taken only when the engine goes")
    }
}

impl Drop for Engine {
    /// An inherited engine has no threads here, and perhaps locks that no thread will ever open: it is
    /// leaked.
    fn drop(&mut self) {
        if self.is_foreign() {
            std::mem::forget(self.client.take());
        } else {
            self.blocking_pool.close(Duration::ZERO);
        }
    }
}

fn share(found: &mut Ambient, siblings: u32) {
    if siblings == 1 {
        return;
    }
    let rows = found.table();
    let is_open = |name: &str| {
        let said = |layer| !matches!(layer, Layer::Found | Layer::Default);
        !rows.iter().any(|row| row.name == name && said(row.layer))
    };
    let settings = &mut found.settings;
    if is_open("memory") && settings.window_bytes.is_none() {
        let least = LEAST_MEMORY_BYTES.min(settings.memory_bytes);
        settings.memory_bytes = (settings.memory_bytes / u64::from(siblings)).max(least);
    }
    if is_open("shards") {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let each = u32::try_from(cores).unwrap_or(u32::MAX) / siblings;
        settings.shards = each.clamp(1, settings.shards.max(1));
    }
}

/// How many processes share the machine, this one included, as far as Python knows.
pub fn siblings(py: Python<'_>) -> PyResult<u32> {
    py.import("flatout._siblings")?.call_method0("count")?.extract()
}
