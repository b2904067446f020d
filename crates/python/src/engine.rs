//! The engine behind a client: made at the first use, by what the process finds around it, and closed with the client.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use flatout_ambient::{Ambient, Layer};
use flatout_engine::credentials::Provider;
use flatout_engine::{BlockingPool, Client, ErrorKind};
use pyo3::prelude::*;

use crate::ahead::Allowance;
use crate::errors::{Failure, worded};
use crate::log::Told;
use crate::settings::Pairs;

/// However many processes share a machine, each needs this much.
const LEAST_MEMORY_BYTES: u64 = 64 << 20;

/// Of the memory, what files may hold that somebody has said will be read.
const SHARE_AHEAD: u64 = 4;

/// Who waits in another way than by looking now and then.
pub trait Closing: Send + Sync {
    /// This one was closed. On any thread, without the interpreter's lock.
    fn closed(&self, engine: &Engine);
}

/// An engine of this process; dereferences to the engine's client.
pub struct Engine {
    /// There until it goes.
    client: Option<Client>,
    process: u32,
    /// About the most memory of results that have arrived and not been collected.
    pub memory_bytes: u64,
    /// What files may hold that nobody has read yet.
    pub ahead: Arc<Allowance>,
    /// Who waits for what has no other way to be waited for.
    pub blocking_pool: BlockingPool,
    is_closed: AtomicBool,
    tells: Mutex<Vec<Weak<dyn Closing>>>,
    /// What `logging` knows of its origins.
    pub told: Told,
}

impl Engine {
    /// `siblings` processes, this one among them, share the machine: of what nobody has said, each takes its part.
    /// `provider` has the keys of both dialects, where a program gives them.
    pub fn new(pairs: &Pairs, siblings: u32, provider: Option<Arc<dyn Provider>>) -> Result<Engine, Failure> {
        let mut found = flatout_ambient::gather(pairs)?;
        share(&mut found, siblings.max(1));
        if let Some(provider) = provider {
            found.aws_credentials = provider.clone();
            found.oss_credentials = provider;
            // Whoever gives keys has not meant a profile.
            found.warnings.clear();
        }
        let memory_bytes = found.settings.memory_bytes;
        let ahead = Arc::new(Allowance::new(memory_bytes / SHARE_AHEAD));
        let warnings = std::mem::take(&mut found.warnings);
        let client = Client::new(found.into())?;
        let warnings = warnings.into_iter().map(|(_, warning)| warning);
        let told = Told::with(warnings.chain(client.note().map(worded)).collect());
        let (client, process) = (Some(client), std::process::id());
        Ok(Engine {
            client,
            process,
            memory_bytes,
            ahead,
            blocking_pool: BlockingPool::new("flatout-call"),
            is_closed: AtomicBool::new(false),
            tells: Mutex::default(),
            told,
        })
    }

    /// Ends whatever runs on it, within a slice of whoever waits.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        let tells = std::mem::take(&mut *self.tells.lock().unwrap_or_else(PoisonError::into_inner));
        tells.iter().filter_map(Weak::upgrade).for_each(|told| told.closed(self));
        flatout_ambient::remember(&self.paces());
    }

    /// Registers `told` to be called when this engine closes. Does nothing where it is closed already.
    pub fn tell_when_closed<T: Closing + 'static>(&self, told: &Arc<T>) {
        let mut tells = self.tells.lock().unwrap_or_else(PoisonError::into_inner);
        let known = Arc::as_ptr(told).cast::<()>();
        if !tells.iter().any(|each| each.as_ptr().cast::<()>() == known) {
            tells.retain(|each| each.strong_count() > 0);
            let told: Arc<dyn Closing> = told.clone();
            tells.push(Arc::downgrade(&told));
        }
    }

    /// Whether it is that of the process which forked this one: whoever waits for it here waits for ever.
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
    /// What a forked child inherited has no threads, and perhaps locks that nobody opens.
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

/// How many processes share the machine with this one, itself included, as far as Python knows.
pub fn siblings(py: Python<'_>) -> PyResult<u32> {
    py.import("flatout._siblings")?.call_method0("count")?.extract()
}
