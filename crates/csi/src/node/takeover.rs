//! Volumes whose engine or plugin has died: another engine goes on with them, or they are mounted anew.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flatout_mount::LastingMount;

use super::engines::{Engine, Volumes};
use super::plugin::{Plugin, SERVES_WITHIN, Volume};
use super::records::Record;
use super::targets;
use crate::link::{Assignment, Failure, ToEngine};

/// How long engines have to say what they serve, when a plugin is started that knows of volumes.
const SETTLES_WITHIN: Duration = Duration::from_secs(3);

impl Plugin {
    /// Waits for engines to say what they serve; what nobody serves then is cleared, or mounted anew.
    pub(super) fn settle(self: &Arc<Plugin>, count: usize) {
        let mut waited = Duration::ZERO;
        let step = Duration::from_millis(20);
        let is_whole = |plugin: &Plugin| plugin.state().volumes.values().all(|volume| volume.mount.is_some());
        while count > 0 && !is_whole(self) && waited < SETTLES_WITHIN {
            thread::sleep(step);
            waited += step;
        }
        let lost: Vec<Record> = {
            let state = self.state();
            let lost = state.volumes.values().filter(|volume| volume.mount.is_none());
            lost.map(|volume| volume.record.clone()).collect()
        };
        for mut record in lost {
            // Where nothing is mounted any more the node was started anew, or kubelet has cleared it.
            record
                .targets
                .retain(|target| targets::at(&target.path).is_some_and(|mount| targets::is_ours(&mount)));
            if record.targets.is_empty() {
                self.log.say(&format!("{}: nothing is mounted any more", record.volume_id));
                self.clear(&record.key);
                continue;
            }
            let how = match record.volume.identity.needs_secrets() {
                true => "its keys come with kubelet's next call: its users get errors until then",
                false => "it is mounted anew as soon as an engine is there",
            };
            self.log.say(&format!("{}: plugin and engine have died: {how}", record.volume_id));
            // Whoever uses it is told now, and does not wait.
            self.unmount_shared(&record.key);
            if let Some(volume) = self.state().volumes.get_mut(&record.key) {
                volume.record = record;
            }
        }
        let plugin = self.clone();
        let _ = thread::Builder::new().name("assign".into()).spawn(move || plugin.assign());
    }

    /// Gives every volume that nobody serves to the newest engine, side by side.
    pub(super) fn assign(self: &Arc<Plugin>) {
        let Some(engine) = self.engines.newest() else { return };
        let mut orphans = Vec::new();
        let mut lost = Vec::new();
        for volume in self.state().volumes.values_mut() {
            match &volume.mount {
                Some(mount) if volume.engine.is_none() => {
                    // Nobody else gives it away meanwhile.
                    volume.engine = Some(engine.id);
                    orphans.push((volume.assignment(), mount.try_clone()));
                }
                None if !volume.record.targets.is_empty()
                    && !volume.record.volume.identity.needs_secrets() =>
                {
                    lost.push((volume.record.volume_id.clone(), volume.record.key.clone()));
                }
                _ => {}
            }
        }
        for (assignment, mount) in orphans {
            let (plugin, engine) = (self.clone(), engine.clone());
            let work = move || plugin.hand_over(&engine, assignment, mount);
            // Without a thread the next engine, or kubelet's next call, does it.
            let _ = thread::Builder::new().name("takeover".into()).spawn(work);
        }
        for (volume_id, key) in lost {
            let plugin = self.clone();
            let work = move || plugin.mount_anew(&volume_id, &key);
            let _ = thread::Builder::new().name("mount".into()).spawn(work);
        }
    }

    fn mount_anew(&self, volume_id: &str, key: &str) {
        // Kubelet's own call does it.
        let Ok(_busy) = self.busy(volume_id) else { return };
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
            Err(error) => return self.log.say(&format!("{volume_id}: {}", flatout_engine::plain(&error))),
        };
        match engine.ask(&key, &ToEngine::TakeOver(Box::new(assignment)), Some(&mount), SERVES_WITHIN) {
            Ok(_) => self.log.say(&format!("{volume_id}: engine {} goes on with it", engine.id)),
            Err(failure) if self.engines.get(engine.id).is_none() => {
                // It died meanwhile: the next one is asked where that is seen.
                self.log.say(&format!("{volume_id}: {}", failure.message));
            }
            Err(failure) => {
                self.log.say(&format!(
                    "{volume_id}: it cannot be gone on with: {}: its users get errors until it is mounted anew",
                    failure.message
                ));
                mount.abort();
                if let Some(volume) = self.state().volumes.get_mut(&key) {
                    (volume.mount, volume.engine) = (None, None);
                }
            }
        }
    }
}

/// The plugin as engines see it.
#[derive(Debug)]
pub(super) struct OfPlugin(pub Arc<Plugin>);

impl Volumes for OfPlugin {
    fn adopt(&self, engine: &Arc<Engine>, kept: Vec<(Assignment, LastingMount)>) -> Result<(), String> {
        let mut state = self.0.state();
        for (assignment, _) in &kept {
            let other = state.volumes.get(&assignment.key).and_then(|volume| volume.engine);
            if other.is_some_and(|other| self.0.engines.get(other).is_some()) {
                return Err(format!("{}: another engine serves it already", assignment.volume_id));
            }
        }
        for (assignment, mount) in kept {
            match state.volumes.get_mut(&assignment.key) {
                Some(volume) => {
                    volume.secrets = assignment.secrets;
                    (volume.mount, volume.engine) = (Some(mount), Some(engine.id));
                }
                // It was unpublished, and this engine waits for its last users.
                None => drop(mount),
            }
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
    }

    fn ended(&self, engine: u64, key: &str, failure: Option<Failure>) {
        let mut state = self.0.state();
        let Some(volume) = state.volumes.get_mut(key).filter(|volume| volume.engine == Some(engine)) else {
            return;
        };
        (volume.mount, volume.engine) = (None, None);
        let why = failure.map_or_else(|| "it was unmounted by somebody else".to_owned(), |why| why.message);
        self.0.log.say(&format!("{}: {why}", volume.record.volume_id));
    }
}
