//! The node's plugin: which volumes there are, who serves each, and where pods see them.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatout_ambient::Environment;
use flatout_mount::LastingMount;
use tonic::{Code, Status};

use super::engines::{Door, Engine, Engines};
use super::indexes::show;
use super::kubernetes::Kubernetes;
use super::records::{Record, Records, Target, only_one};
use super::targets::{self, Unmounted};
use crate::Log;
use crate::attributes::{self, Cluster, ReadVolume, VolumeRequest};
use crate::link::{Answer, Assignment, Failure, NodeFolder, Question, ToEngine, new_number};
use crate::plan;
use crate::volume::{Identity, Secrets};

/// How long an engine is waited for that is not there, or not there yet.
pub(super) const ENGINE_WITHIN: Duration = Duration::from_secs(15);
/// How long another call of the same volume is waited for.
const BUSY_WITHIN: Duration = Duration::from_secs(45);
/// How long a bucket's first listing may take. Kubelet gives up after two minutes.
const PREPARES_WITHIN: Duration = Duration::from_secs(90);
pub(super) const SERVES_WITHIN: Duration = Duration::from_secs(60);

/// What a plugin is told when it is started.
#[derive(Debug)]
pub struct NodeOptions {
    pub driver: String,
    /// The node's name in Kubernetes.
    pub node: String,
    pub folder: NodeFolder,
    /// The user whose processes are engines.
    pub engine_user: u32,
    /// What all volumes of this node may take, and one that does not say.
    pub memory_bytes: u64,
    pub volume_bytes: u64,
    pub volumes_max: Option<u64>,
    pub cluster: Cluster,
    /// Where Kubernetes lets this plugin call its API.
    pub kubernetes: Option<Kubernetes>,
    /// A service account names no role for its pods.
    pub ignores_accounts: bool,
    /// Indexes are shown by FUSE, also where EROFS could.
    pub no_images: bool,
    /// The DaemonSet that says how engines are run, where volumes may have one alone.
    pub engine_pods: Option<String>,
}

/// The node's part of the driver.
#[derive(Debug)]
pub struct Plugin {
    options: NodeOptions,
    pub(super) records: Records,
    pub(super) engines: Arc<Engines>,
    state: Mutex<State>,
    /// Something is done with a volume no more.
    idle: Condvar,
    /// Where engines come in: the node's, and by key those of one volume alone.
    pub(super) doors: Mutex<HashMap<Option<String>, Door>>,
    pub(super) log: Log,
    /// Locked, so that no other plugin takes the engines of this one.
    _alone: File,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub volumes: HashMap<String, Volume>,
    /// Volumes that something is done with now.
    pub busy: BTreeSet<String>,
    /// Volumes alone whose engines are looked for.
    pub sought: BTreeSet<String>,
    /// Engines have had their time to say what they have served before this plugin was started.
    pub is_settled: bool,
}

/// A volume of this node.
#[derive(Debug)]
pub(super) struct Volume {
    pub record: Record,
    pub secrets: Secrets,
    /// None where it is lost: its users get errors until it is mounted anew.
    pub mount: Option<LastingMount>,
    /// Of this mount.
    pub number: u64,
    /// Who serves it.
    pub engine: Option<u64>,
    /// It was mounted, and nobody can serve that mount any more.
    pub is_lost: bool,
}

impl Volume {
    pub(super) fn new(record: Record, secrets: Secrets) -> Volume {
        Volume { record, secrets, mount: None, number: 0, engine: None, is_lost: false }
    }

    pub(super) fn assignment(&self) -> Assignment {
        let Record { key, volume_id, volume, memory_bytes, index, .. } = self.record.clone();
        let (number, secrets) = (self.number, self.secrets.clone());
        Assignment { key, number, volume_id, volume, secrets, memory_bytes, index }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.mount.as_ref().is_some_and(LastingMount::is_connected)
    }

    /// Which engines may serve it: the node's, or one of its own.
    pub(super) fn only(&self) -> Option<&str> {
        self.record.only()
    }
}

/// Nobody else does anything with this volume meanwhile.
pub(super) struct Busy<'a>(&'a Plugin, String);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.state().busy.remove(&self.1);
        self.0.idle.notify_all();
    }
}

/// What kubelet asks for when it publishes.
#[derive(Clone, Debug)]
pub struct Publish {
    pub volume_id: String,
    pub target: PathBuf,
    pub read_only: bool,
    /// No other pod may have it.
    pub is_single: bool,
    pub request: VolumeRequest,
}

impl Plugin {
    /// Takes up what a plugin before has left, and listens for engines.
    ///
    /// # Errors
    /// A folder or the socket cannot be made.
    pub fn start(options: NodeOptions, log: Log) -> Result<Arc<Plugin>, Failure> {
        let folder = options.folder.clone();
        let refused = |error| Failure::internal(&folder.path().display().to_string(), &error);
        let records = Records::new(&folder.records()).map_err(refused)?;
        std::fs::create_dir_all(folder.mounts()).map_err(refused)?;
        let alone = only_one(&folder.path().join("plugin.lock"))?;
        let (found, notes) = records.load().map_err(refused)?;
        notes.iter().for_each(|note| log.say(note));
        let (engines, state, doors) = (Arc::default(), Mutex::default(), Mutex::default());
        let idle = Condvar::new();
        let plugin = Arc::new(Plugin { options, records, engines, state, idle, doors, log, _alone: alone });
        for record in found {
            plugin.state().volumes.insert(record.key.clone(), Volume::new(record, Secrets::default()));
        }
        plugin.unmount_unknown().map_err(refused)?;
        plugin.listen(None)?;
        plugin.listen_alone();
        plugin.settle();
        plugin.clear_engine_pods();
        Ok(plugin)
    }

    /// What a plugin has mounted that was killed before it had noted it.
    fn unmount_unknown(&self) -> std::io::Result<()> {
        for entry in std::fs::read_dir(self.options.folder.mounts())?.flatten() {
            let key = entry.file_name().to_string_lossy().into_owned();
            if !self.state().volumes.contains_key(&key) {
                self.unmount_shared(&key);
            }
        }
        Ok(())
    }

    pub fn driver(&self) -> &str {
        &self.options.driver
    }

    pub fn options(&self) -> &NodeOptions {
        &self.options
    }

    /// How many volumes fit.
    pub fn volumes_max(&self) -> u64 {
        let fit = self.options.memory_bytes / self.options.volume_bytes.max(1);
        self.options.volumes_max.unwrap_or(fit).max(1)
    }

    /// # Errors
    /// Never yet: an engine that is away is waited for.
    pub fn probe(&self) -> Result<bool, Status> {
        Ok(true)
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for calls that are under way. Kubelet's next attempt comes after twice as long each time, and
    /// pods of one volume that end together would meet again and again.
    pub(super) fn busy(&self, volume_id: &str, patience: Duration) -> Result<Busy<'_>, Failure> {
        let is_busy = |state: &mut State| state.busy.contains(volume_id);
        let waited = self.idle.wait_timeout_while(self.state(), patience, is_busy);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.busy.insert(volume_id.to_owned()) {
            true => Ok(Busy(self, volume_id.to_owned())),
            false => Err(Failure::new(Code::Aborted, format!("{volume_id}: another call is under way"))),
        }
    }

    fn key_of_target(&self, volume_id: &str, target: &Path) -> Option<(String, Target)> {
        let state = self.state();
        let of_volume = state.volumes.values().filter(|volume| volume.record.volume_id == volume_id);
        of_volume
            .flat_map(|volume| volume.record.targets.iter().map(|known| (&volume.record.key, known)))
            .find(|(_, known)| known.path == target)
            .map(|(key, known)| (key.clone(), known.clone()))
    }

    /// Shows the volume at the target.
    ///
    /// # Errors
    /// As CSI says of NodePublishVolume.
    pub fn publish(self: &Arc<Plugin>, publish: &Publish) -> Result<(), Failure> {
        let volume_id = &publish.volume_id;
        let _busy = self.busy(volume_id, BUSY_WITHIN)?;
        let invalid = |error: attributes::AttributeError| {
            Failure::new(Code::InvalidArgument, format!("{volume_id}: {error}"))
        };
        if let Some((key, known)) = self.key_of_target(volume_id, &publish.target) {
            // What else a volume says of itself counts when a pod starts: its PV may be changed at any time.
            let asked = (publish.read_only, publish.is_single, publish.request.readers_only);
            if asked != (known.read_only, known.is_single, known.readers_only) {
                return Err(Failure::new(
                    Code::AlreadyExists,
                    format!(
                        "{volume_id}: {} shows it otherwise than asked for now",
                        publish.target.display()
                    ),
                ));
            }
            // Secrets alone are new. What is wrong with them must not take the volume from its pod.
            let secrets = attributes::read_secrets(&publish.request);
            let shown = self.again(&key, &known, secrets.map_err(invalid));
            if let Err(failure) = &shown {
                self.give_up(&key, &known, failure);
            }
            return shown;
        }
        let request = self.with_account(&publish.request)?;
        let read = attributes::read(&request, &self.options.cluster).map_err(invalid)?;
        self.refuse_second(publish)?;
        read.notes.iter().for_each(|note| self.log.say(&format!("{volume_id}: {note}")));
        let subject = read.volume.identity.is_of_workload().then(|| read.pod.subject());
        let key = read.volume.key(volume_id, subject.as_deref());
        let target = Target {
            path: publish.target.clone(),
            read_only: publish.read_only,
            is_single: publish.is_single,
            readers_only: publish.request.readers_only,
        };
        self.clear_target(&target.path)?;
        let is_new = !self.state().volumes.contains_key(&key);
        if is_new {
            self.add(&key, publish, &read)?;
        } else {
            self.renew(&key, read.secrets.clone());
        }
        let shown = self.serve_and_bind(&key, &target);
        if let Err(failure) = &shown {
            let may_come = failure.code() == Code::Unavailable;
            if may_come && (is_new && read.volume.is_isolated || read.volume.index.is_some()) {
                // Its pod, or its index, may need minutes: kubelet's next call finds it on its way.
                self.keep_target(&key, &target)?;
            } else if is_new {
                self.unmount_shared(&key);
                self.clear(&key);
            }
        }
        shown
    }

    /// As [`Plugin::publish`], of a target that shows it, or has shown it.
    fn again(
        self: &Arc<Plugin>,
        key: &str,
        known: &Target,
        secrets: Result<Secrets, Failure>,
    ) -> Result<(), Failure> {
        match secrets {
            Ok(secrets) => self.renew(key, secrets),
            Err(failure) => self.log.say(&format!("its keys are as before: {}", failure.message)),
        }
        let device = {
            let state = self.state();
            let volume = state.volumes.get(key).filter(|volume| volume.is_alive());
            volume.and_then(|volume| volume.mount.as_ref()?.device())
        };
        let shown = targets::at(&known.path).filter(targets::is_of_a_driver).map(|mount| mount.device);
        if device.is_some() && device == shown || device.is_none() && !self.is_dead(key, &known.path) {
            return Ok(());
        }
        self.serve_and_bind(key, known)
    }

    /// Whatever a driver before has left there.
    fn clear_target(&self, target: &Path) -> Result<(), Failure> {
        targets::unmount(target).map(drop).map_err(|error| {
            Failure::internal(&format!("{}: what is mounted there", target.display()), &error)
        })
    }

    /// A volume for one pod alone has one target.
    fn refuse_second(&self, publish: &Publish) -> Result<(), Failure> {
        let state = self.state();
        let mut others = state
            .volumes
            .values()
            .filter(|volume| volume.record.volume_id == publish.volume_id)
            .flat_map(|volume| &volume.record.targets)
            .filter(|target| target.path != publish.target);
        match others.find(|target| target.is_single || publish.is_single) {
            Some(other) => Err(Failure::new(
                Code::FailedPrecondition,
                format!(
                    "{}: one pod alone may have it, and has it: {}",
                    publish.volume_id,
                    other.path.display()
                ),
            )),
            None => Ok(()),
        }
    }

    /// Knows of a new volume from now on, if there is memory for it.
    fn add(&self, key: &str, publish: &Publish, read: &ReadVolume) -> Result<(), Failure> {
        if read.volume.is_isolated {
            self.pods().map_err(|failure| {
                Failure::new(failure.code(), format!("{}: {}", publish.volume_id, failure.message))
            })?;
        }
        let memory_bytes = read.memory_bytes.unwrap_or(self.options.volume_bytes);
        let mut state = self.state();
        let of_node = state.volumes.values().filter(|volume| volume.only().is_none());
        let taken: u64 = of_node.map(|volume| volume.record.memory_bytes).sum();
        if !read.volume.is_isolated && taken + memory_bytes > self.options.memory_bytes {
            let mib = |bytes: u64| bytes >> 20;
            return Err(Failure::new(
                Code::ResourceExhausted,
                format!(
                    "{}: {} MiB are wanted, and of {} MiB of this node {} are taken: raise engine.memory of the \
                     chart, or write a smaller memory for a volume",
                    publish.volume_id,
                    mib(memory_bytes),
                    mib(self.options.memory_bytes),
                    mib(taken)
                ),
            ));
        }
        let record = Record {
            volume_id: publish.volume_id.clone(),
            key: key.to_owned(),
            volume: read.volume.clone(),
            memory_bytes,
            alone: read.volume.is_isolated.then(|| format!("{:.16}-{:x}", key, new_number())),
            index: read.volume.index.as_ref().map(|_| format!("{:.16}-{:x}", key, new_number())),
            targets: Vec::new(),
        };
        state.volumes.insert(key.to_owned(), Volume::new(record, read.secrets.clone()));
        Ok(())
    }

    /// Secrets may be others by now.
    fn renew(&self, key: &str, secrets: Secrets) {
        let (number, engine) = {
            let mut state = self.state();
            let Some(volume) = state.volumes.get_mut(key).filter(|volume| volume.secrets != secrets) else {
                return;
            };
            if volume.record.volume.identity == Identity::Secret && secrets.keys.is_none() {
                return self.log.say("its keys are as before: its Secret has none any more");
            }
            volume.secrets = secrets.clone();
            (volume.number, volume.engine)
        };
        if let Some(engine) = engine.and_then(|id| self.engines.get(id)) {
            engine.tell(&ToEngine::Renew { number, secrets });
        }
    }

    /// Secrets that came while the engine was asked to serve it with others.
    pub(super) fn renew_since(&self, engine: &Engine, asked: &Assignment) {
        let (number, newer) = (asked.number, {
            let state = self.state();
            let volume = state.volumes.get(&asked.key).filter(|volume| volume.number == asked.number);
            volume.map(|volume| volume.secrets.clone()).filter(|secrets| *secrets != asked.secrets)
        });
        if let Some(secrets) = newer {
            engine.tell(&ToEngine::Renew { number, secrets });
        }
    }

    /// Sees to it that the volume is mounted and served, and visible at the target.
    fn serve_and_bind(self: &Arc<Plugin>, key: &str, target: &Target) -> Result<(), Failure> {
        let is_alive = self.state().volumes.get(key).is_some_and(Volume::is_alive);
        if !is_alive {
            let point = self.options.folder.mounts().join(key);
            if !self.is_dead(key, &point) {
                return Err(Failure::new(
                    Code::Unavailable,
                    "its engine serves it, and has not told this plugin yet: it is tried again",
                ));
            }
            self.mount(key)?;
        }
        self.bind(key, target)
    }

    /// Mounts it for the first time, or anew where it was lost: then at every target.
    pub(super) fn mount(self: &Arc<Plugin>, key: &str) -> Result<(), Failure> {
        let (assignment, record) = {
            let mut state = self.state();
            let Some(volume) = state.volumes.get_mut(key) else {
                return Err(Failure::new(Code::Aborted, "it was unpublished meanwhile"));
            };
            volume.number = new_number();
            (volume.assignment(), volume.record.clone())
        };
        self.unmount_shared(key);
        let name = |failure: Failure| {
            let message = format!("{}: {}", assignment.volume_id, failure.message);
            Failure::new(failure.code(), message)
        };
        let engine = self.engine_for(&record).map_err(name)?;
        let served = self.mount_by(&engine, &assignment);
        let mount = served.map_err(|failure| {
            engine.tell(&ToEngine::Forget { number: assignment.number });
            self.unmount_shared(key);
            name(failure)
        })?;
        {
            let mut state = self.state();
            // An engine that has died by now is followed by another.
            let id = self.engines.get(engine.id).map(|engine| engine.id);
            if let Some(volume) = state.volumes.get_mut(key) {
                (volume.mount, volume.engine, volume.is_lost) = (Some(mount), id, false);
            }
        }
        self.renew_since(&engine, &assignment);
        self.assign();
        for target in record.targets {
            if let Err(failure) = self.bind(key, &target) {
                self.log.say(&format!("{}: {}", assignment.volume_id, failure.message));
            }
        }
        Ok(())
    }

    fn mount_by(&self, engine: &Engine, assignment: &Assignment) -> Result<LastingMount, Failure> {
        let prepared = engine.ask(Question::Prepare(Box::new(assignment.clone())), None, PREPARES_WITHIN)?;
        let Answer::Prepared(note) = prepared else { return Err(something_else()) };
        note.iter().for_each(|note| self.log.say(note));
        let point = self.options.folder.mounts().join(&assignment.key);
        std::fs::create_dir_all(&point)
            .map_err(|error| Failure::internal(&point.display().to_string(), &error))?;
        let settings = plan::gather(assignment, &Environment::new())?.settings;
        let plan = plan::of(assignment, settings, &point, None, self.index_of(assignment))?;
        let mount = plan::mount(&plan)?;
        match engine.ask(Question::Serve { number: assignment.number }, Some(&mount), SERVES_WITHIN)? {
            Answer::Serves => show(mount, &plan),
            _ => Err(something_else()),
        }
    }

    /// Unmounts the volume's own mount, alive or dead, and removes its folder.
    pub(super) fn unmount_shared(&self, key: &str) {
        // Its end is none that somebody else has brought about.
        let mount = self.state().volumes.get_mut(key).and_then(|volume| {
            volume.engine = None;
            volume.mount.take()
        });
        let point = self.options.folder.mounts().join(key);
        match targets::unmount(&point) {
            Ok(_) => {
                // It is made again where it is wanted again.
                let _ = targets::remove(&point);
            }
            Err(error) => {
                self.log.say(&format!("{}: {}", point.display(), flatout_engine::plain(&error)));
            }
        }
        drop(mount);
    }

    pub(super) fn clear(self: &Arc<Plugin>, key: &str) {
        let gone = self.state().volumes.remove(key);
        self.records.remove(key);
        let Some(Volume { record, .. }) = gone else { return };
        self.let_index_go(&record);
        if let Some(name) = record.alone {
            self.let_engine_go(name);
        }
    }

    /// Takes the volume from the target.
    ///
    /// # Errors
    /// The system's refusal.
    pub fn unpublish(self: &Arc<Plugin>, volume_id: &str, target: &Path) -> Result<(), Failure> {
        let _busy = self.busy(volume_id, BUSY_WITHIN)?;
        let refused = |error| Failure::internal(&target.display().to_string(), &error);
        let how = targets::unmount(target).map_err(refused)?;
        if how == Unmounted::InUse {
            self.log.say(&format!("{volume_id}: {} was in use: it ends with its users", target.display()));
        }
        targets::remove(target).map_err(refused)?;
        if let Some((key, _)) = self.key_of_target(volume_id, target) {
            self.forget_target(&key, target);
        }
        // Also one whose target could not be noted.
        let unused: Vec<String> = {
            let state = self.state();
            let of_volume = state.volumes.values().filter(|volume| volume.record.volume_id == volume_id);
            let unused = of_volume.filter(|volume| volume.record.targets.is_empty());
            unused.map(|volume| volume.record.key.clone()).collect()
        };
        for key in unused {
            self.unmount_shared(&key);
            self.clear(&key);
        }
        Ok(())
    }
}

pub(super) fn something_else() -> Failure {
    Failure::new(Code::Internal, "the engine answered something else")
}
