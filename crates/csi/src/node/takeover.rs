//! Volumes whose engine or plugin has died: another engine goes on with them, or they are mounted anew.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flatout_mount::LastingMount;
use tonic::Code;

use super::engines::{Engine, Unanswered, Volumes};
use super::plugin::{Plugin, Volume};
use super::records::{Record, Target};
use super::targets;
use crate::link::{Assignment, Failure, Question};

/// How long engines have to say what they serve, when a plugin is started that knows of volumes.
const SETTLES_WITHIN: Duration = Duration::from_secs(3);
const STEP: Duration = Duration::from_millis(20);
/// After an engine has not taken a mount.
const ASKS_AGAIN: Duration = Duration::from_millis(500);
/// As long as the engine lives: what it says at last must be heard.
const TAKES_OVER_WITHIN: Duration = Duration::from_secs(7 * 86_400);

impl Plugin {
    /// Waits a little for engines to say what they serve. What nobody can serve any more is cleared, or
    /// mounted anew; what an engine has that is late is left to it.
    pub(super) fn settle(self: &Arc<Plugin>) {
        let since = Instant::now();
        let mounts = self.options().folder.mounts();
        let is_open = |volume: &Volume| volume.mount.is_none();
        loop {
            let open: Vec<Record> = {
                let state = self.state();
                let open = state.volumes.values().filter(|volume| is_open(volume));
                open.map(|volume| volume.record.clone()).collect()
            };
            if open.is_empty() {
                break;
            }
            for record in &open {
                if since.elapsed() >= SETTLES_WITHIN {
                    break;
                }
                if targets::is_dead(&mounts.join(&record.key)) {
                    self.clear_dead(record.clone());
                }
            }
            let is_late = |record: &Record| {
                let state = self.state();
                let known = state.volumes.get(&record.key);
                known.is_some_and(|volume| is_open(volume) && !volume.is_lost)
            };
            if !open.iter().any(is_late) {
                break;
            }
            if since.elapsed() >= SETTLES_WITHIN {
                self.log.say("volumes are served by an engine that has not come back yet");
                break;
            }
            thread::sleep(STEP);
        }
        self.state().is_settled = true;
        self.assign();
    }

    /// Of a volume whose engine and plugin have died.
    fn clear_dead(self: &Arc<Plugin>, mut record: Record) {
        // Where nothing is mounted any more the node was started anew, or kubelet has cleared it.
        let is_mounted =
            |target: &Target| targets::at(&target.path).is_some_and(|mount| targets::is_of_a_driver(&mount));
        record.targets.retain(is_mounted);
        if record.targets.is_empty() {
            self.log.say(&format!("{}: nothing is mounted any more", record.volume_id));
            self.unmount_shared(&record.key);
            return self.clear(&record.key);
        }
        let mut state = self.state();
        let Some(volume) = state.volumes.get_mut(&record.key).filter(|volume| !volume.is_lost) else {
            return;
        };
        let how = match record.volume.identity.needs_secrets() {
            true => "its keys come with kubelet's next call: its users get errors until then",
            false => "it is mounted anew as soon as an engine is there",
        };
        self.log.say(&format!("{}: plugin and engine have died: {how}", record.volume_id));
        (volume.record, volume.is_lost) = (record, true);
    }

    /// Gives every volume that nobody serves to the newest engine, side by side.
    pub(super) fn assign(self: &Arc<Plugin>) {
        self.unserved_images().into_iter().for_each(|record| self.clear_dead(record));
        let mut orphans = Vec::new();
        let mut lost = Vec::new();
        for volume in self.state().volumes.values_mut() {
            let Some(engine) = self.engines.newest(volume.only()) else { continue };
            match &volume.mount {
                Some(mount) if volume.engine.is_none() => {
                    // Nobody else gives it away meanwhile.
                    volume.engine = Some(engine.id);
                    orphans.push((engine, volume.assignment(), mount.try_clone()));
                }
                None if volume.is_lost && !volume.record.volume.identity.needs_secrets() => {
                    lost.push((volume.record.volume_id.clone(), volume.record.key.clone()));
                }
                _ => {}
            }
        }
        for (engine, assignment, mount) in orphans {
            let plugin = self.clone();
            let (key, number) = (assignment.key.clone(), assignment.number);
            let work = move || plugin.hand_over(&engine, assignment, mount);
            if thread::Builder::new().name("takeover".into()).spawn(work).is_err()
                && let Some(volume) = self.state().volumes.get_mut(&key)
                && volume.number == number
            {
                // The next call of `assign` hands it over.
                volume.engine = None;
            }
        }
        for (volume_id, key) in lost {
            let plugin = self.clone();
            let work = move || plugin.mount_anew(&volume_id, &key);
            let _ = thread::Builder::new().name("mount".into()).spawn(work);
        }
    }

    /// Whether this is the mount that the kernel has for the volume: an engine may say what it likes.
    fn has_mounted(&self, record: &Record, mount: &LastingMount) -> bool {
        let device = mount.device();
        let point = self.options().folder.mounts().join(&record.key);
        let mut points = std::iter::once(&point).chain(record.targets.iter().map(|target| &target.path));
        device.is_some() && points.any(|point| targets::at(point).map(|mount| mount.device) == device)
    }

    fn mount_anew(self: &Arc<Plugin>, volume_id: &str, key: &str) {
        // Kubelet's own call does it.
        let Ok(_busy) = self.busy(volume_id, Duration::ZERO) else { return };
        if self.state().volumes.get(key).is_some_and(Volume::is_alive) {
            return;
        }
        match self.mount(key) {
            Ok(()) => self.log.say(&format!("{volume_id}: it is mounted anew")),
            Err(failure) => self.log.say(&failure.message),
        }
    }

    fn hand_over(
        self: &Arc<Plugin>,
        engine: &Arc<Engine>,
        assignment: Assignment,
        mount: std::io::Result<LastingMount>,
    ) {
        let (key, volume_id) = (assignment.key.clone(), assignment.volume_id.clone());
        let mount = match mount {
            Ok(mount) => mount,
            Err(error) => {
                self.log.say(&format!("{volume_id}: {}", flatout_engine::plain(&error)));
                return self.give_back(&key, |volume| volume.number == assignment.number);
            }
        };
        let number = assignment.number;
        let asked = Question::TakeOver(Box::new(assignment.clone()));
        // The volume still has this mount, and this engine.
        let is_ours = |volume: &Volume| volume.number == number && volume.engine == Some(engine.id);
        let failure = match engine.ask(asked, Some(&mount), TAKES_OVER_WITHIN) {
            Ok(_) => {
                self.log.say(&format!("{volume_id}: engine {} goes on with it", engine.id));
                return self.renew_since(engine, &assignment);
            }
            Err(Unanswered::Refused(failure)) if failure.code() == Code::DataLoss => {
                self.log.say(&format!(
                    "{volume_id}: it cannot be gone on with: {}: its users get errors until it is mounted anew",
                    failure.message
                ));
                if let Some(volume) = self.state().volumes.get_mut(&key).filter(|volume| is_ours(volume)) {
                    mount.abort();
                    (volume.mount, volume.engine, volume.is_lost) = (None, None, true);
                }
                return;
            }
            Err(why) => Failure::from(why),
        };
        self.log.say(&format!("{volume_id}: {}", failure.message));
        self.give_back(&key, is_ours);
    }

    /// The engine has not taken it: another is asked, or the same again.
    fn give_back(self: &Arc<Plugin>, key: &str, is_ours: impl Fn(&Volume) -> bool) {
        thread::sleep(ASKS_AGAIN);
        if let Some(volume) = self.state().volumes.get_mut(key).filter(|volume| is_ours(volume)) {
            volume.engine = None;
        }
        self.assign();
    }
}

/// The plugin as engines see it.
#[derive(Debug)]
pub(super) struct OfPlugin(pub Arc<Plugin>);

impl Volumes for OfPlugin {
    fn adopt(&self, engine: &Arc<Engine>, kept: Vec<(Assignment, LastingMount)>) -> Result<(), String> {
        let mut state = self.0.state();
        for (assignment, _) in &kept {
            if state.volumes.get(&assignment.key).is_some_and(|volume| !engine.is_for(volume.only())) {
                return Err(format!("{}: it is no volume of this engine", assignment.volume_id));
            }
            let known = state.volumes.get(&assignment.key);
            let other = known.filter(|volume| volume.number <= assignment.number);
            let other = other.and_then(|volume| volume.engine).filter(|other| *other != engine.id);
            if other.is_some_and(|other| self.0.engines.get(other).is_some()) {
                return Err(format!("{}: another engine serves it already", assignment.volume_id));
            }
        }
        for (assignment, mount) in kept {
            let known = state.volumes.get_mut(&assignment.key);
            // An unknown volume was unpublished, as an earlier mount was: their last users keep the engine.
            let Some(volume) = known.filter(|volume| volume.number <= assignment.number) else { continue };
            if !self.0.has_mounted(&volume.record, &mount) {
                self.0.log.say(&format!("{}: an engine has another mount of it", assignment.volume_id));
                continue;
            }
            volume.secrets = assignment.secrets;
            (volume.mount, volume.number) = (Some(mount), assignment.number);
            (volume.engine, volume.is_lost) = (Some(engine.id), false);
        }
        Ok(())
    }

    fn assign(&self) {
        self.0.assign();
    }

    fn orphan(&self, engine: u64) {
        for volume in self.0.state().volumes.values_mut() {
            if volume.engine == Some(engine) {
                volume.engine = None;
            }
        }
        self.0.assign();
        self.0.seek_engines();
    }

    fn ended(&self, engine: u64, number: u64, failure: Option<Failure>) {
        let mut state = self.0.state();
        let mut volumes = state.volumes.values_mut();
        let ended = volumes.find(|volume| volume.number == number && volume.engine == Some(engine));
        let Some(volume) = ended else { return };
        (volume.mount, volume.engine, volume.is_lost) = (None, None, true);
        let why = failure.map_or_else(|| "it was unmounted by somebody else".to_owned(), |why| why.message);
        self.0.log.say(&format!("{}: {why}", volume.record.volume_id));
    }
}
