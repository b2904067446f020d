//! Where pods see a volume: targets that its mount is bound to, and their records.

use std::path::Path;

use flatout_mount::LastingMount;
use tonic::Code;

use super::plugin::Plugin;
use super::records::Target;
use super::targets;
use crate::link::Failure;

impl Plugin {
    pub(super) fn bind(&self, key: &str, target: &Target) -> Result<(), Failure> {
        let path = target.path.display();
        let refused = |error| Failure::internal(&path.to_string(), &error);
        let (record, device) = {
            let mut state = self.state();
            let Some(volume) = state.volumes.get_mut(key) else {
                return Err(Failure::new(Code::Aborted, "it was unpublished meanwhile"));
            };
            let device = volume.mount.as_ref().and_then(LastingMount::device);
            let is_known = volume.record.targets.contains(target);
            if is_known && device.is_some() && targets::at(&target.path).map(|mount| mount.device) == device {
                return Ok(());
            }
            volume.record.targets.retain(|known| known.path != target.path);
            volume.record.targets.push(target.clone());
            (volume.record.clone(), device)
        };
        let source = self.options().folder.mounts().join(key);
        // An empty folder that somebody has left there would take writes on the node's own disk.
        let is_at = |path: &Path| device.is_some() && targets::at(path).map(|mount| mount.device) == device;
        let away = || {
            std::io::Error::other(format!(
                "{}: somebody has unmounted it: end the pods that use it",
                source.display()
            ))
        };
        // Before it is so: a plugin that is killed in between finds it.
        let shown = self.records.save(&record).and_then(|()| targets::make(&target.path)).and_then(|()| {
            if !is_at(&source) {
                return Err(away());
            }
            let read_only = target.read_only || record.index.is_some();
            targets::bind(&source, &target.path, read_only, &record.volume.system)?;
            if !is_at(&target.path) {
                targets::unmount(&target.path)?;
                return Err(away());
            }
            Ok(())
        });
        shown.map_err(|error| {
            self.forget_target(key, &target.path);
            refused(error)
        })
    }

    /// Knows that the volume is wanted there, before it is shown.
    pub(super) fn keep_target(&self, key: &str, target: &Target) -> Result<(), Failure> {
        let record = {
            let mut state = self.state();
            let Some(volume) = state.volumes.get_mut(key) else { return Ok(()) };
            volume.record.targets.push(target.clone());
            volume.record.clone()
        };
        self.records.save(&record).map_err(|error| Failure::internal("its record", &error))
    }

    pub(super) fn forget_target(&self, key: &str, path: &Path) {
        let record = {
            let mut state = self.state();
            let Some(volume) = state.volumes.get_mut(key) else { return };
            volume.record.targets.retain(|known| known.path != path);
            volume.record.clone()
        };
        if record.targets.is_empty() {
            return self.records.remove(key);
        }
        if let Err(error) = self.records.save(&record) {
            self.log.say(&format!("{}: its record: {}", record.volume_id, flatout_engine::plain(&error)));
        }
    }
}
