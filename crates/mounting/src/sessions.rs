//! The sessions of a mount: one, or more where an index was replaced and files of the old one are still open.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flatout_engine::{Error, ErrorKind, plain};
use flatout_mount::{
    Granted, LastingMount, Observer, Options, Session, SessionWatch, Timings, Unmounter, check_visible,
};
use flatout_volume::{Objects, open_index};

use crate::files::MountedFiles;
use crate::log::MountLog;
use crate::plan::{IndexRoot, MountPlan};
use crate::running::is_handed_over;
use crate::session::{
    NAMED_MOST, Shutdown, StandingMount, begin_kept, error_logger, lasting_mount_with, options,
};
use crate::stats::{self, MountStats, ProcessStats};

/// How often it is asked whether this process stays, after all.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What is served at a mount point.
pub(crate) struct Sessions {
    plan: MountPlan,
    log: Arc<MountLog>,
    shutdown: Shutdown,
    timings: Arc<Timings>,
    began: Instant,
    newest: Mutex<Newest>,
    /// The oldest first.
    all: Mutex<VecDeque<Session>>,
    /// Held while another index begins to be shown.
    renewing: Mutex<Renewing>,
}

#[derive(Default)]
struct Renewing {
    /// Another process is to go on: no other index is shown by this one.
    is_leaving: bool,
}

/// Has another process keep a new mount, too.
pub trait KeepMount: Send + Sync {
    /// Before users see an image.
    ///
    /// # Errors
    /// It cannot be kept: the mount before stays, unless FUSE has unmounted it by then.
    fn keep(&self, mount: &LastingMount) -> io::Result<()>;

    /// Users see the one that was kept last.
    fn shown(&self);
}

/// The session that users see.
#[derive(Clone)]
struct Newest {
    granted: Granted,
    watch: SessionWatch,
    unmounter: Unmounter,
    files: MountedFiles,
}

impl Newest {
    fn of(served: &Session, files: MountedFiles) -> Newest {
        Newest {
            granted: served.granted().clone(),
            watch: served.watch(),
            unmounter: served.unmounter(),
            files,
        }
    }
}

impl Sessions {
    /// With the first one.
    pub fn new(
        (plan, log, shutdown): (MountPlan, Arc<MountLog>, Shutdown),
        timings: Arc<Timings>,
        (served, files): (Session, MountedFiles),
    ) -> Sessions {
        let newest = Mutex::new(Newest::of(&served, files));
        let all = Mutex::new([served].into());
        Sessions {
            plan,
            log,
            shutdown,
            timings,
            began: Instant::now(),
            newest,
            all,
            renewing: Mutex::default(),
        }
    }

    fn newest(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> MutexGuard<'_, VecDeque<Session>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renewing(&self) -> MutexGuard<'_, Renewing> {
        self.renewing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The oldest session, for who waits for its end. One that is about to begin is waited for.
    pub fn take_oldest(&self) -> Option<Session> {
        let _none_begins = self.renewing();
        self.all().pop_front()
    }

    /// Waits while another process is about to go on. Where that does, this one ends.
    fn until_it_stays(&self) -> MutexGuard<'_, Renewing> {
        loop {
            let renewing = self.renewing();
            if !renewing.is_leaving {
                return renewing;
            }
            drop(renewing);
            thread::sleep(LOOK_AGAIN);
        }
    }

    /// What the session that users see serves.
    pub fn files(&self) -> MountedFiles {
        self.newest().files.clone()
    }

    /// Answers nothing more, and shows no other index; `false` if requests are under way after `patience`.
    pub fn pause(&self, patience: Duration) -> bool {
        self.renewing().is_leaving = true;
        let watch = self.newest().watch.clone();
        watch.pause(patience)
    }

    /// Answers what has come since then, and goes on.
    pub fn resume(&self) {
        let watch = self.newest().watch.clone();
        watch.resume();
        self.renewing().is_leaving = false;
    }

    /// How long each request has waited that waits now.
    pub fn waits(&self) -> Vec<Duration> {
        self.newest().watch.waits()
    }

    pub fn plan(&self) -> &MountPlan {
        &self.plan
    }

    /// Shows the index that its file has now. Files of the old one that are open stay as they are. `false` if
    /// it is the same index.
    ///
    /// # Errors
    /// What is there cannot be shown: the old index stays, unless FUSE has unmounted it by then.
    fn renew(&self, index: &IndexRoot, keep: Option<&dyn KeepMount>) -> Result<bool, Error> {
        let about = |error: Error| error.during("mount", self.plan.mount_point.display());
        let _one_at_a_time = self.until_it_stays();
        let Newest { unmounter, files: before, .. } = self.newest().clone();
        let opened = open_index("mount", &index.path)?;
        let shown = before.objects().and_then(|objects| objects.index().id().ok());
        if opened.id().ok() == shown && shown.is_some() {
            return Ok(false);
        }
        let name = index.path.display().to_string();
        let objects = Objects::new(opened, name, before.client().clone())?;
        let files = MountedFiles::of_index(objects, index.is_image);
        let point = &self.plan.mount_point;
        if is_handed_over(point) {
            return Err(about(Error::new(ErrorKind::Unsupported, "another process has mounted it")));
        }
        let unknown = || Error::new(ErrorKind::LocalIo, "it is not known which mount it is");
        let device = unmounter.device().ok_or_else(|| about(unknown()))?;
        check_visible(point, device).map_err(about)?;
        if !index.is_image {
            // FUSE has no way to change both at once.
            unmounter.unmount(true)?;
        }
        let observer =
            Observer { on_error: Some(Arc::new(error_logger(&self.log))), timings: self.timings.clone() };
        let mut options = options(&self.plan);
        if let Some(image) = &mut options.image {
            image.replaces = Some(device);
        }
        let begun = match keep {
            None => files.serve(&options, observer, None).map(|served| (served, files)),
            Some(keep) => serve_kept(&self.plan, &options, files, observer, keep),
        };
        let (served, files) = begun.map_err(|error| match index.is_image {
            true => error,
            false => {
                let cause = format!("{}: nothing is mounted there any more", error.cause());
                about(Error::new(error.kind(), cause))
            }
        })?;
        *self.newest() = Newest::of(&served, files);
        self.shutdown.may_unmount(served.unmounter());
        self.all().push_back(served);
        Ok(true)
    }

    /// The statistics of now.
    pub fn stats(&self) -> MountStats {
        let Newest { granted, watch, unmounter, files } = self.newest().clone();
        let (plan, timings, began) = (&self.plan, &self.timings, &self.began);
        let (client, tree) = (files.client(), files.tree());
        let (asked, names, read) = (watch.stats(), files.stats(), client.reader_stats());
        MountStats {
            pid: std::process::id(),
            supervisor_pid: Some(plan.supervisor.load(Ordering::Relaxed)).filter(|&pid| pid != 0),
            version: env!("CARGO_PKG_VERSION").into(),
            source: plan.source.to_string(),
            mount_point: plan.mount_point.display().to_string(),
            uptime_s: began.elapsed().as_secs_f64(),
            kernel: stats::KernelStats {
                abi: format!("7.{}", granted.minor),
                request_bytes: granted.request_bytes.into(),
                read_ahead_bytes: granted.read_ahead_bytes.unwrap_or_default(),
                max_background: granted.max_background.into(),
                device: unmounter.device().map(|(major, minor)| format!("{major}:{minor}")),
            },
            requests: stats::requests(&asked, timings),
            bytes: stats::bytes(&asked, &read),
            reads: stats::reads(&asked, &read),
            names: stats::names(&names),
            origin: stats::origin(&client.origins()),
            memory: stats::MemoryStats {
                limit_bytes: plan.settings.memory_bytes,
                content_bytes_now: read.held_bytes,
                names_bytes_now: names.held_bytes_now,
            },
            staging: tree.and_then(|tree| Some((tree, tree.staged_bytes()?))).map(|(tree, bytes_now)| {
                let pending: Vec<String> = tree.pending().into_iter().map(|(path, _)| path).collect();
                let pending_now = pending.len() as u64;
                stats::StagingStats {
                    bytes_now,
                    pending_now,
                    pending: pending.into_iter().take(NAMED_MOST).collect(),
                }
            }),
            index: files.index_stats(),
            process: ProcessStats::look(),
        }
    }
}

/// Mounts and serves them, so that the mount outlives this process.
fn serve_kept(
    plan: &MountPlan,
    options: &Options,
    files: MountedFiles,
    observer: Observer,
    keep: &dyn KeepMount,
) -> Result<(Session, MountedFiles), Error> {
    let mut mount = lasting_mount_with(plan, options)?;
    let local = |error: io::Error| Error::new(ErrorKind::LocalIo, plain(&error));
    let client = files.client().clone();
    let begun = begin_kept(files, &client, plan, &mount).and_then(|files| {
        // Users see it already, unless it is an image.
        if !mount.is_image() {
            keep.keep(&mount).map_err(local)?;
        }
        let standing = StandingMount { mount: mount.try_clone().map_err(local)?, takes_over: false };
        let served = files.serve(options, observer, Some(standing))?;
        if mount.is_image() {
            // Before another process has the connection: if this one dies while the kernel reads the image
            // from it, the connection ends, and the kernel stops waiting.
            mount.mount_image(options)?;
            keep.keep(&mount).map_err(local)?;
            mount.show(options)?;
        }
        Ok((served, files))
    });
    let begun = begun.inspect_err(|_| drop(mount.unmount(true)))?;
    keep.shown();
    Ok(begun)
}

/// A way to have a mount show the index that its file has now.
#[derive(Clone)]
pub struct Renewal {
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) index: IndexRoot,
}

impl Renewal {
    /// Does so, and says in the log what has become of it. A mount that outlives this process is handed to
    /// `keep`.
    pub fn renew(&self, keep: Option<&dyn KeepMount>) {
        let Sessions { plan, log, .. } = &*self.sessions;
        log.say(&match self.sessions.renew(&self.index, keep) {
            Ok(true) => format!("{}: the new index is shown", plan.source),
            Ok(false) => format!("{}: the index is the same", plan.source),
            Err(error) => format!("{error}; the new index is not shown"),
        });
    }
}
