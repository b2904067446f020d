//! How the volumes of a node are.

use std::path::Path;
use std::time::Duration;

use super::plugin::{Plugin, something_else};
use crate::link::{Answer, Failure, Health, Question};

const LOOKS_WITHIN: Duration = Duration::from_secs(2);

impl Plugin {
    /// Whether the volume is there, and at that place.
    pub fn knows(&self, volume_id: &str, path: &Path) -> bool {
        let state = self.state();
        let mut of_volume = state.volumes.values().filter(|volume| volume.record.volume_id == volume_id);
        of_volume.any(|volume| volume.record.targets.iter().any(|target| target.path == path))
    }

    /// How the mounts of a volume are; `None` where there is none.
    pub fn health(&self, volume_id: &str) -> Option<Vec<Result<Health, String>>> {
        let volumes: Vec<(u64, bool, Option<u64>)> = {
            let state = self.state();
            let of_volume = state.volumes.values().filter(|volume| volume.record.volume_id == volume_id);
            of_volume.map(|volume| (volume.number, volume.is_alive(), volume.engine)).collect()
        };
        let look = |(number, is_alive, engine): (u64, bool, Option<u64>)| {
            if !is_alive {
                return Err("its mount has died: it is mounted anew at kubelet's next call".to_owned());
            }
            let engine = engine.and_then(|id| self.engines.get(id));
            let Some(engine) = engine else {
                return Err("no engine serves it now: its readers wait for one".to_owned());
            };
            match engine.ask(Question::Look { number }, None, LOOKS_WITHIN) {
                Ok(Answer::Looked(health)) => Ok(health),
                Ok(_) => Err(something_else().message),
                Err(why) => Err(Failure::from(why).message),
            }
        };
        (!volumes.is_empty()).then(|| volumes.into_iter().map(look).collect())
    }

    /// Whether this process alone holds a mount: with its end its users would get errors.
    pub fn is_alone(&self) -> bool {
        let state = self.state();
        let mut held = state.volumes.values().filter(|volume| volume.is_alive());
        held.any(|volume| volume.engine.and_then(|id| self.engines.get(id)).is_none())
    }

    /// Whether there is an engine.
    pub fn has_engine(&self) -> bool {
        self.engines.newest(None).is_some()
    }
}
