//! Volumes with an engine of their own, and whatever else is asked of the API of Kubernetes.

use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use tonic::Code;

use super::engine_pods::EnginePods;
use super::engines::{Engine, Volumes};
use super::kubernetes::Kubernetes;
use super::plugin::{ENGINE_WITHIN, Plugin, State};
use super::records::Record;
use crate::attributes::{self, VolumeRequest};
use crate::link::Failure;

/// How long a call waits for an engine whose pod may have to be started. Kubelet calls again.
const POD_WITHIN: Duration = Duration::from_secs(25);
/// Between two looks after a pod, the first and the longest.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN_MOST: Duration = Duration::from_secs(30);

impl Plugin {
    /// What makes pods of engines.
    ///
    /// # Errors
    /// This driver was installed without.
    pub(super) fn pods(&self) -> Result<(EnginePods, &Kubernetes), Failure> {
        let options = self.options();
        match (&options.engine_pods, &options.kubernetes) {
            (Some(daemon_set), Some(api)) => {
                let (daemon_set, node) = (daemon_set.clone(), options.node.clone());
                Ok((EnginePods { daemon_set, node, folder: options.folder.clone() }, api))
            }
            _ => Err(Failure::new(
                Code::InvalidArgument,
                "isolation: pod: this driver may make no pods: install it with isolation.enabled=true",
            )),
        }
    }

    /// What the pod's service account says, where it may name the role.
    ///
    /// # Errors
    /// It cannot be known now.
    pub(super) fn with_account(&self, request: &VolumeRequest) -> Result<VolumeRequest, Failure> {
        let mut request = request.clone();
        let (Some((namespace, name)), Some(api), false) = (
            attributes::needs_account(&request),
            &self.options().kubernetes,
            self.options().ignores_accounts,
        ) else {
            return Ok(request);
        };
        let account = api.get(&format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}"))?;
        let found = account.unwrap_or_default();
        let annotations = found["metadata"]["annotations"].as_object().into_iter().flatten();
        let texts = annotations.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
        request.of_account = texts.collect();
        Ok(request)
    }

    /// The engine that is to serve the volume, waited for.
    ///
    /// # Errors
    /// None has come.
    pub(super) fn engine_for(self: &Arc<Plugin>, record: &Record) -> Result<Arc<Engine>, Failure> {
        let Some(name) = record.only() else {
            return self.engines.wait(None, ENGINE_WITHIN).ok_or_else(|| {
                let why = "no engine is connected on this node: look at the pods of flatout-csi-engine";
                Failure::new(Code::Unavailable, why)
            });
        };
        let (pods, api) = self.pods()?;
        self.listen(Some(name))?;
        if let Some(engine) = self.engines.newest(Some(name)) {
            return Ok(engine);
        }
        pods.ensure(api, record)?;
        let engine = self.engines.wait(Some(name), POD_WITHIN);
        engine.ok_or_else(|| Failure::new(Code::Unavailable, pods.why_not(api, name)))
    }

    /// Lets engines in: the node's, or those of that volume alone.
    pub(super) fn listen(self: &Arc<Plugin>, only: Option<&str>) -> Result<(), Failure> {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let Entry::Vacant(place) = doors.entry(only.map(str::to_owned)) else { return Ok(()) };
        let folder =
            only.map_or_else(|| self.options().folder.engine(), |key| self.options().folder.alone(key));
        let volumes: Arc<dyn Volumes> = Arc::new(super::takeover::OfPlugin(self.clone()));
        let door = self.engines.listen(&folder, only, self.options().engine_user, volumes, &self.log);
        place.insert(door.map_err(|error| Failure::internal(&folder.display().to_string(), &error))?);
        Ok(())
    }

    /// Lets in the engines of volumes that are alone, after a start.
    pub(super) fn listen_alone(self: &Arc<Plugin>) {
        for record in self.alone() {
            if let Err(failure) = self.listen(record.only()) {
                self.log.say(&format!("{}: {}", record.volume_id, failure.message));
            }
        }
        self.seek_engines();
    }

    fn alone(&self) -> Vec<Record> {
        let state = self.state();
        let alone = state.volumes.values().filter(|volume| volume.only().is_some());
        alone.map(|volume| volume.record.clone()).collect()
    }

    /// Sees to it that volumes which are alone have an engine, until they have one or are gone.
    pub(super) fn seek_engines(self: &Arc<Plugin>) {
        for record in self.alone() {
            let Some(name) = record.alone.clone() else { continue };
            if !self.state().sought.insert(name.clone()) {
                continue;
            }
            let plugin = self.clone();
            let seek = move || plugin.seek(&record);
            if thread::Builder::new().name("pods".into()).spawn(seek).is_err() {
                // Kubelet's next call does it.
                self.state().sought.remove(&name);
            }
        }
    }

    fn seek(self: &Arc<Plugin>, record: &Record) {
        let (mut said, mut pause) = (String::new(), LOOK_AGAIN);
        let is_wanted = |state: &State| {
            state.volumes.get(&record.key).is_some_and(|volume| volume.record.alone == record.alone)
        };
        loop {
            // The engine's own container may be there again by now.
            thread::sleep(pause);
            pause = (pause * 2).min(LOOK_AGAIN_MOST);
            {
                let mut state = self.state();
                if !is_wanted(&state) || self.engines.newest(record.only()).is_some() {
                    // An engine that dies from now on is sought again.
                    state.sought.remove(record.only().unwrap_or_default());
                    return;
                }
            }
            let sought = self.pods().and_then(|(pods, api)| pods.ensure(api, record));
            if !is_wanted(&self.state())
                && let Some(name) = record.alone.clone()
            {
                // It went meanwhile, and its pod may have come after that.
                self.let_engine_go(name);
            }
            if let Err(failure) = sought
                && failure.message != said
            {
                self.log.say(&format!("{}: {}", record.volume_id, failure.message));
                said = failure.message;
            }
        }
    }

    /// The engine of a volume that is gone.
    pub(super) fn let_engine_go(self: &Arc<Plugin>, name: String) {
        let door = self.doors.lock().unwrap_or_else(PoisonError::into_inner).remove(&Some(name.clone()));
        drop(door);
        let plugin = self.clone();
        let delete = move || {
            let mut pause = LOOK_AGAIN;
            loop {
                match plugin.pods().and_then(|(pods, api)| pods.delete(api, &name)) {
                    Ok(()) => return,
                    Err(failure) => plugin.log.say(&failure.message),
                }
                thread::sleep(pause);
                pause = (pause * 2).min(LOOK_AGAIN_MOST);
            }
        };
        // Else the next plugin does it.
        let _ = thread::Builder::new().name("pods".into()).spawn(delete);
    }

    /// Pods of volumes that were unpublished while no plugin was there.
    pub(super) fn clear_engine_pods(self: &Arc<Plugin>) {
        if self.pods().is_err() {
            return;
        }
        let plugin = self.clone();
        let clear = move || {
            loop {
                let Ok((pods, api)) = plugin.pods() else { return };
                let is_known = |name: &str| plugin.alone().iter().any(|record| record.only() == Some(name));
                match pods.delete_others(api, is_known) {
                    Ok(0) => return,
                    Ok(count) => {
                        return plugin
                            .log
                            .say(&format!("{count} engines of volumes that are gone were deleted"));
                    }
                    Err(failure) => plugin.log.say(&failure.message),
                }
                thread::sleep(LOOK_AGAIN_MOST);
            }
        };
        let _ = thread::Builder::new().name("pods".into()).spawn(clear);
    }
}
