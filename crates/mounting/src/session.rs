//! A mount from its root's first listing to its end: the root is listed, the folder mounted, its requests are
//! served.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use flatout_engine::{Client, Error, ErrorKind, plain};
use flatout_erofs::Index;
use flatout_mount::{Granted, ImageOptions, LastingMount, MountHolder, Observer, SessionEnd, Unmounter};
use flatout_tree::{
    AttributeKeeping, Config, RenameJournal, StagedLeft, StagingFolder, Tell, Tree, TreeRoot, UploadNotes,
};
use flatout_volume::{Objects, index_error, open_index};

use crate::endpoints::{ServedEndpoints, StatsFn, StatusEndpoints};
use crate::files::MountedFiles;
use crate::log::MountLog;
use crate::plan::{IndexRoot, MountPlan, MountRoot};
use crate::renames::{RenameRecords, end_renames_of_standing};
use crate::sessions::{Renewal, Sessions};
use crate::stalls;
use crate::unfinished::{self, Unfinished};

/// Of the memory, what files that are kept whole until they are closed may take.
const SHARE_OF_BUFFERS: u64 = 4;

/// Files that are named; of more there is only a count.
pub(crate) const NAMED_MOST: usize = 5;

/// Requests for the data of an image that may be pending: two for each of 1,024 readers.
const OF_AN_IMAGE: u16 = 2048;

/// How often it is asked whether a process still serves.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How far the kernel reads ahead by default.
const KERNELS_OWN_READ_AHEAD: u64 = 128 << 10;

/// Lists the root, and returns its files with a line to show about it, if there is one. Nothing is mounted.
/// Of an index nothing is asked. This blocks for as long as the origin takes: a caller that may have to give
/// up runs it on a thread of its own. Without a log nothing is to be mounted, and what was staged is left
/// alone.
///
/// # Errors
/// The origin's refusal, the source is an object, or the folder for staged files cannot be written to.
pub fn list_root(
    client: &Arc<Client>,
    plan: &MountPlan,
    log: Option<&Arc<MountLog>>,
) -> Result<(MountedFiles, Option<String>), Error> {
    let root = match &plan.source.root {
        MountRoot::Index(index) => return Ok((open(client, index)?, None)),
        MountRoot::Tree(root) => root,
    };
    let config = Config { staging: staging(plan, log)?, ..config(plan) };
    let tree = Tree::new(client.clone(), root.clone(), config).map_err(refused_root)?;
    let note = look_for_object(client, root, &tree)?;
    Ok((MountedFiles::Tree(Arc::new(tree)), note))
}

/// The index that the mount was begun with, whatever its name has by now.
fn open_kept(client: &Arc<Client>, index: &IndexRoot, mount: &LastingMount) -> Result<MountedFiles, Error> {
    let about = |error: Error| error.during("mount", index.path.display());
    let Some(kept) = mount.content() else { return open(client, index) };
    let file = kept.try_clone().map_err(|error| about(Error::new(ErrorKind::LocalIo, plain(&error))))?;
    let opened = Index::open(file).map_err(|error| about(index_error(&error)))?;
    let name = index.path.display().to_string();
    Ok(MountedFiles::of_index(Objects::new(opened, name, client.clone())?, mount.is_image()))
}

/// What a mount begins with that another process keeps: of an index, that which the keeper has.
///
/// # Errors
/// As [`take_over`].
pub fn begin_kept(
    files: MountedFiles,
    client: &Arc<Client>,
    plan: &MountPlan,
    mount: &LastingMount,
) -> Result<MountedFiles, Error> {
    match &plan.source.root {
        MountRoot::Index(index) => open_kept(client, index, mount),
        MountRoot::Tree(_) => Ok(files),
    }
}

fn open(client: &Arc<Client>, index: &IndexRoot) -> Result<MountedFiles, Error> {
    let name = index.path.display().to_string();
    let objects = Objects::new(open_index("mount", &index.path)?, name, client.clone())?;
    Ok(MountedFiles::of_index(objects, index.is_image))
}

/// Goes on with the tree of another process. Nothing is asked of the origin, unless renames of folders were
/// left.
///
/// # Errors
/// That process could not keep all that the kernel knows.
pub fn take_over(
    client: &Arc<Client>,
    plan: &MountPlan,
    mount: &LastingMount,
    log: &Arc<MountLog>,
) -> Result<MountedFiles, Error> {
    let root = match &plan.source.root {
        MountRoot::Index(index) => return open_kept(client, index, mount),
        MountRoot::Tree(root) => root,
    };
    client.know_origins();
    // A rename that is asked for again is to find it whole, or not begun; until then it waits.
    end_renames_of_standing(client, plan, log);
    let config = Config { staging: staging(plan, Some(log))?, ..config(plan) };
    let tree = Tree::take_over(client.clone(), root.clone(), config, mount.table());
    tree.map(|tree| MountedFiles::Tree(Arc::new(tree))).ok_or_else(|| {
        let cause = "what the kernel knows of it was not kept whole: there was not enough memory";
        Error::new(ErrorKind::LocalIo, cause)
            .during("mount", plan.mount_point.display())
            .with_hint("unmount it, and mount it again")
    })
}

/// Mounts, so that the mount outlives whoever serves it.
///
/// # Errors
/// The kernel's refusal of the mount.
pub fn lasting_mount(plan: &MountPlan) -> Result<LastingMount, Error> {
    lasting_mount_with(plan, &options(plan))
}

pub(crate) fn lasting_mount_with(
    plan: &MountPlan,
    options: &flatout_mount::Options,
) -> Result<LastingMount, Error> {
    let mount = LastingMount::new(options)?;
    let MountRoot::Index(index) = &plan.source.root else { return Ok(mount) };
    // Its name may be another index's when a process takes over. An engine of a pod's own keeps its index
    // where this process cannot see it, under a name that it never gives to another.
    Ok(match std::fs::File::open(&index.path) {
        Ok(file) => mount.with_content(file),
        Err(_) => mount,
    })
}

/// Has users see the image of a lasting mount that another process serves by now. Other mounts are seen
/// already. `is_served`: that process may still answer the kernel. If not, the connection is aborted: it
/// would not end by itself, since this process holds it, too.
///
/// # Errors
/// The kernel refuses the mount, or the process that serves it is gone.
pub fn show(
    mut mount: LastingMount,
    plan: &MountPlan,
    is_served: impl Fn() -> bool,
) -> Result<LastingMount, Error> {
    if !mount.is_image() {
        return Ok(mount);
    }
    let about = |error: Error| error.during("mount", plan.mount_point.display());
    let local = |error: io::Error| about(Error::new(ErrorKind::LocalIo, plain(&error)));
    let watched = mount.try_clone().map_err(local)?;
    let options = options(plan);
    let (sender, mounted) = mpsc::channel();
    let mount_image = {
        let options = options.clone();
        move || {
            let mounted = mount.mount_image(&options).map(|()| mount);
            // If the caller has given up, the image is dropped here, and nobody has seen it.
            let _ = sender.send(mounted);
        }
    };
    thread::Builder::new().name("show".into()).spawn(mount_image).map_err(local)?;
    let mut mount = loop {
        match mounted.recv_timeout(LOOK_AGAIN) {
            Ok(mounted) => break mounted?,
            Err(RecvTimeoutError::Timeout) if is_served() => {}
            Err(_) => {
                watched.abort();
                let cause = "the process that serves it does not answer the kernel, or is gone";
                return Err(about(Error::new(ErrorKind::LocalIo, cause)));
            }
        }
    };
    mount.show(&options)?;
    Ok(mount)
}

/// The caller has not asked for a listing: it is the mount that failed.
fn refused_root(error: Error) -> Error {
    if error.doing() != "list" {
        return error;
    }
    let failed = Error::new(error.kind(), error.cause()).during("mount", error.object());
    match error.hint() {
        Some(hint) => failed.with_hint(hint.clone()),
        None => failed,
    }
}

/// A prefix under which nothing lies may be the name of an object; returns the line to show if it is not.
fn look_for_object(client: &Client, root: &TreeRoot, tree: &Tree) -> Result<Option<String>, Error> {
    let TreeRoot::Under(prefix) = root else { return Ok(None) };
    if !tree.is_root_bare() {
        return Ok(None);
    }
    let key = prefix.key().trim_end_matches('/');
    let object = prefix.with_key(key).expect("what is in a bucket takes another key");
    // Who may list need not be let in to objects: an empty folder is all that is known then.
    if client.stat(&object).is_ok() {
        let above = key.rfind('/').map_or("", |slash| &key[..=slash]);
        let above = prefix.with_key(above).expect("as above");
        return Err(Error::new(ErrorKind::Usage, "is an object, and a folder is wanted")
            .during("mount", &object)
            .with_hint(format!("mount the folder that it lies in: {above}")));
    }
    Ok(Some(format!(
        "mount: {prefix}: nothing lies under this prefix: it is a folder all the same, empty until something does"
    )))
}

fn upload_notes(plan: &MountPlan) -> Option<Arc<dyn UploadNotes>> {
    let folder = plan.state_folder.as_deref().filter(|_| !plan.settings.mount.read_only)?;
    let (source, origin) = plan.identity();
    Some(Arc::new(Unfinished::begin(folder, (&source, &origin))?))
}

fn staging(plan: &MountPlan, log: Option<&Arc<MountLog>>) -> Result<Option<Arc<StagingFolder>>, Error> {
    let mount = &plan.settings.mount;
    let (Some(folder), Some(log), false) = (&mount.staging, log, mount.read_only) else { return Ok(None) };
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.into());
    if !plan.mount_point.as_os_str().is_empty() && absolute.starts_with(&plan.mount_point) {
        let cause = "it would lie in the mount itself";
        return Err(Error::new(ErrorKind::Usage, cause)
            .during("use", folder)
            .with_hint("name a folder of a local disk by --staging"));
    }
    let (source, origin) = plan.identity();
    let tell = Tell(Box::new(error_logger(log)));
    StagingFolder::open(Path::new(folder), (&source, &origin), mount.staging_bytes, tell).map(Some)
}

/// What is left in the folder for staged files.
pub fn staged_of(plan: &MountPlan) -> StagedLeft {
    let (source, origin) = plan.identity();
    let folder = plan.settings.mount.staging.as_deref().map(Path::new);
    folder.map_or_else(StagedLeft::default, |folder| StagingFolder::left(folder, (&source, &origin)))
}

fn rename_journal(plan: &MountPlan) -> Option<Arc<dyn RenameJournal>> {
    let (folder, (source, origin)) = (plan.state_folder.as_deref()?, plan.identity());
    Some(Arc::new(RenameRecords::new(folder, (&source, &origin), plan.is_ending_renames.clone())))
}

/// Beside the mount: an origin that is slow must not keep it from being served.
fn clear_unfinished(plan: &MountPlan, client: &Arc<Client>, log: &Arc<MountLog>) {
    let Some(folder) = plan.state_folder.clone().filter(|_| !plan.settings.mount.read_only) else { return };
    let ((source, origin), client, log) = (plan.identity(), client.clone(), log.clone());
    let work = move || {
        let count = unfinished::clear(&client, &folder, (&source, &origin));
        if count > 0 {
            log.say(&format!(
                "{count} uploads of a mount that was killed were aborted: nothing of them is paid for"
            ));
        }
    };
    // Without a thread the next mount does it.
    let _ = std::thread::Builder::new().name("unfinished".to_owned()).spawn(work);
}

fn config(plan: &MountPlan) -> Config {
    let mount = &plan.settings.mount;
    Config {
        uid: mount.uid.unwrap_or_else(|| rustix::process::getuid().as_raw()),
        gid: mount.gid.unwrap_or_else(|| rustix::process::getgid().as_raw()),
        file_mode: mount.file_mode,
        folder_mode: mount.folder_mode,
        attribute_lifetime: Duration::from_millis(mount.attribute_lifetime_ms),
        negative_lifetime: Duration::from_millis(mount.negative_lifetime_ms),
        close_to_open: mount.close_to_open,
        direct_bytes: mount.direct_bytes,
        attributes: match mount.attributes.as_str() {
            "ignore" => AttributeKeeping::Ignore,
            "metadata" => AttributeKeeping::Metadata,
            _ => AttributeKeeping::Refuse,
        },
        folder_markers: mount.folder_markers,
        rename_most: mount.rename_limit,
        rename_journal: rename_journal(plan),
        buffers_bytes: plan.settings.memory_bytes / SHARE_OF_BUFFERS,
        upload_notes: upload_notes(plan),
        staging: None,
    }
}

/// A mount that stands, and is to be served.
pub struct StandingMount {
    pub mount: LastingMount,
    /// Another process has served it, and the tree goes on from that.
    pub takes_over: bool,
}

/// A folder that is mounted and served. Dropping it ends the mount; its status can be asked for until then.
pub struct MountSession {
    sessions: Arc<Sessions>,
    stats: StatsFn,
    log: Arc<MountLog>,
    _stalls: mpsc::Sender<()>,
    _endpoints: ServedEndpoints,
}

impl MountSession {
    /// Mounts the folder and serves it, or serves the mount that is `standing`; the kernel's first request
    /// has been answered when this returns.
    ///
    /// # Errors
    /// The kernel's refusal of the mount.
    pub fn start(
        plan: MountPlan,
        files: MountedFiles,
        endpoints: StatusEndpoints,
        log: &Arc<MountLog>,
        shutdown: &Shutdown,
        standing: Option<StandingMount>,
    ) -> Result<MountSession, Error> {
        let observer = Observer { on_error: Some(Arc::new(error_logger(log))), ..Observer::default() };
        let timings = observer.timings.clone();
        let served = files.serve(&options(&plan), observer, standing)?;
        shutdown.may_unmount(served.unmounter());
        warn_of_short_reads(served.granted(), &plan, log);
        let about = (plan, log.clone(), shutdown.clone());
        let client = files.client().clone();
        let sessions = Arc::new(Sessions::new(about, timings, (served, files)));
        let waited = Arc::downgrade(&sessions);
        let waits = move || waited.upgrade().map(|sessions| sessions.waits()).unwrap_or_default();
        let source = sessions.plan().source.to_string();
        let stalls = stalls::watch(source, waits, client, log.clone());
        let counted = sessions.clone();
        let stats: StatsFn = Arc::new(move || counted.stats());
        let endpoints = endpoints.serve(&stats).map_err(|error| no_threads(&error))?;
        Ok(MountSession { sessions, stats, log: log.clone(), _stalls: stalls, _endpoints: endpoints })
    }

    /// Looks at the statistics of now, also when the session has ended.
    pub fn stats(&self) -> StatsFn {
        self.stats.clone()
    }

    /// Has what killed mounts of this source have left deleted, beside the mount.
    pub fn clear_unfinished(&self) {
        let files = self.sessions.files();
        if files.tree().is_some() {
            clear_unfinished(self.sessions.plan(), files.client(), &self.log);
        }
    }

    /// A way to leave the mount to another process.
    pub fn handover(&self) -> Handover {
        Handover(self.sessions.clone())
    }

    /// A way to show another index, where one is shown.
    pub fn renewal(&self) -> Option<Renewal> {
        let MountRoot::Index(index) = &self.sessions.plan().source.root else { return None };
        Some(Renewal { sessions: self.sessions.clone(), index: index.clone() })
    }

    /// Serves until it is unmounted, and until nobody uses an index that was shown before.
    ///
    /// # Errors
    /// The connection to the kernel broke.
    pub fn wait(&mut self) -> Result<(), Error> {
        let mut ended = Ok(SessionEnd::Unmounted);
        // A new one is there before the old one can end.
        while let Some(oldest) = self.sessions.take_oldest() {
            ended = oldest.wait();
        }
        self.log.say(match &ended {
            Ok(SessionEnd::Aborted) => "the connection was aborted",
            Ok(_) => "unmounted",
            Err(_) => "broken off",
        });
        self.publish_staged();
        ended.map(drop)
    }
}

impl MountSession {
    /// Tries once more what is staged and could not be uploaded.
    fn publish_staged(&self) {
        let files = self.sessions.files();
        let Some(tree) = files.tree() else { return };
        if tree.pending().is_empty() {
            return;
        }
        tree.publish_pending();
        let left = tree.pending();
        if let Some((first, _)) = left.first() {
            let folder =
                Path::new(self.sessions.plan().settings.mount.staging.as_deref().unwrap_or_default());
            let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
            let folder = folder.display();
            let more = if left.len() > 1 { format!(" and {} more", left.len() - 1) } else { String::new() };
            self.log.say(&format!(
                "{first}{more}: not uploaded, and kept in {folder}: the next mount of {} with that folder uploads it",
                self.sessions.plan().source
            ));
        }
    }
}

impl Drop for MountSession {
    fn drop(&mut self) {
        // Whoever looks at the statistics keeps what they come from.
        while let Some(session) = self.sessions.take_oldest() {
            drop(session);
        }
    }
}

/// Leaves the mount to another process.
#[derive(Clone)]
pub struct Handover(Arc<Sessions>);

/// Why the mount cannot be left to another process now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// Requests are waiting for the origin.
    Busy,
    /// The last bytes of these files are in this process alone.
    Unsent(Vec<String>),
    /// Files of an index are open that was shown before.
    Earlier,
}

impl fmt::Display for NotNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotNow::Busy => f.write_str("requests are waiting for the origin"),
            NotNow::Earlier => f.write_str("files of the index that was shown before are open"),
            NotNow::Unsent(files) => {
                let more = files.len().saturating_sub(NAMED_MOST);
                let named = files.iter().take(NAMED_MOST).cloned().collect::<Vec<_>>().join(", ");
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                write!(f, "what was last written to {named}{more} is not sent yet, and would be lost")
            }
        }
    }
}

impl Handover {
    /// How long each request has waited that waits now.
    pub fn waits(&self) -> Vec<Duration> {
        self.0.waits()
    }

    /// Answers what has come since [`Handover::pause`], and goes on.
    pub fn resume(&self) {
        self.0.resume();
    }

    /// Answers nothing more, so that this process can end.
    ///
    /// # Errors
    /// Something would be lost: the mount is served as before.
    pub fn pause(&self, patience: Duration) -> Result<(), NotNow> {
        let is_quiet = self.0.pause(patience);
        let unsent = self.0.files().unsent();
        if is_quiet && unsent.is_empty() {
            return Ok(());
        }
        self.resume();
        Err(if unsent.is_empty() { NotNow::Busy } else { NotNow::Unsent(unsent) })
    }
}

fn no_threads(error: &io::Error) -> Error {
    let failed = Error::new(ErrorKind::LocalIo, plain(error)).during("mount", "threads");
    match flatout_engine::remedy(error) {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}

/// Writes to the log why a request failed: the program sees an errno only.
pub(crate) fn error_logger(log: &Arc<MountLog>) -> impl Fn(&Error) + Send + Sync + use<> {
    let log = log.clone();
    move |error: &Error| {
        // The program that asked was killed.
        if error.kind() != ErrorKind::Cancelled {
            let hint = match error.kind() {
                // For a copy the hint is to start again.
                ErrorKind::Changed => Some("open it again to read the new version".to_owned()),
                _ => error.hint().map(|hint| log.worded(hint)),
            };
            let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
            let about = format!("{} {}", error.doing(), error.object());
            log.say_limited(error.kind().name(), &about, &format!("{error}{hint}"));
        }
    }
}

pub(crate) fn options(plan: &MountPlan) -> flatout_mount::Options {
    let mount = &plan.settings.mount;
    let cores = || std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8) as u32;
    // Both halves of a small file are on their way at once, and the kernel counts them as read ahead.
    let max_background = mount.max_background.max(if plan.image().is_some() { OF_AN_IMAGE } else { 0 });
    flatout_mount::Options {
        image: plan.image().map(|index| ImageOptions { direct: index.is_direct, replaces: None }),
        allow_other: mount.allow_other,
        default_permissions: plan.default_permissions,
        threads: mount.threads.unwrap_or_else(cores),
        max_background,
        read_ahead_bytes: (mount.read_ahead_bytes > 0).then_some(mount.read_ahead_bytes),
        options: plan.system.clone(),
        ..flatout_mount::Options::new(plan.source.to_string(), plan.mount_point.clone())
    }
}

/// Buffered readers get 128 KiB at a time if the read-ahead cannot be raised, which halves their speed.
fn warn_of_short_reads(granted: &Granted, plan: &MountPlan, log: &MountLog) {
    let wanted = if plan.image().is_some() { 0 } else { plan.settings.mount.read_ahead_bytes };
    let stuck = granted.read_ahead_bytes.is_some_and(|bytes| bytes <= KERNELS_OWN_READ_AHEAD);
    if let Some(remedy) = granted.remedy.as_ref().filter(|_| stuck && wanted > KERNELS_OWN_READ_AHEAD) {
        log.say(&format!(
            "mount: buffered reads stay at 128 KiB: only root may raise what the kernel reads ahead: {remedy}"
        ));
    }
}

/// Ends a session from another thread, also one that is still about to be mounted.
#[derive(Clone, Default)]
pub struct Shutdown(Arc<Mutex<ShutdownState>>);

#[derive(Default)]
struct ShutdownState {
    unmounter: Option<Unmounter>,
    is_requested: bool,
}

impl Shutdown {
    /// Unmounts, now or as soon as there is something to unmount, and returns who still keeps the mount
    /// elsewhere. With `lazy` it is out of sight at once, and ends when nobody uses it any more.
    ///
    /// # Errors
    /// Somebody uses it, and it is not `lazy`; or the kernel's refusal.
    pub fn request(&self, lazy: bool) -> Result<Vec<MountHolder>, Error> {
        let unmounter = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_requested = true;
            state.unmounter.clone()
        };
        let Some(unmounter) = unmounter else { return Ok(Vec::new()) };
        unmounter.unmount(lazy).inspect_err(|_| {
            // It stays mounted, and so does what replaces it.
            self.0.lock().unwrap_or_else(PoisonError::into_inner).is_requested = false;
        })?;
        Ok(unmounter.holders())
    }

    pub(crate) fn may_unmount(&self, unmounter: Unmounter) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.is_requested {
            // It has stood for a moment only: nobody uses it.
            let _ = unmounter.unmount(true);
        }
        state.unmounter = Some(unmounter);
    }
}
