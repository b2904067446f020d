//! Volumes with an index: shown as an image where this node's kernel can, and gone with their last pod.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use flatout_mount::LastingMount;
use flatout_mounting::MountPlan;
use tonic::Code;

use super::plugin::{Plugin, Volume};
use super::records::{Record, Target};
use super::targets;
use crate::link::{Answer, Assignment, Contents, Failure, Question, ToEngine};

/// How long the kernel may take to read the first block of an image.
const SHOWS_WITHIN: Duration = Duration::from_secs(20);
const LOOKS_WITHIN: Duration = Duration::from_secs(2);

impl Plugin {
    /// The file of the volume's index as engines name it, and whether it is shown as an image.
    pub(super) fn index_of(&self, assignment: &Assignment) -> Option<(PathBuf, bool)> {
        let name = assignment.index.as_ref()?;
        let support = match self.options().no_images {
            true => Err("this driver was told to mount no images".to_owned()),
            false => flatout_mounting::image_support(),
        };
        if let Err(why) = &support {
            self.log.say(&format!(
                "{}: its files are shown by FUSE, where names cost more than by EROFS: {why}",
                assignment.volume_id
            ));
        }
        Some((self.options().folder.indexes().join(format!("{name}.flat")), support.is_ok()))
    }

    /// The volume is gone: engines remove its index.
    pub(super) fn let_index_go(&self, record: &Record) {
        if let Some(index) = &record.index {
            self.engines.tell_all(record.only(), &ToEngine::LetIndexGo { index: index.clone() });
        }
    }

    /// After a failure that kubelet takes for an end: it asks for no unpublish then.
    pub(super) fn give_up(self: &std::sync::Arc<Plugin>, key: &str, target: &Target, failure: &Failure) {
        let may_run_on = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Unavailable,
            Code::ResourceExhausted,
            Code::Aborted,
        ];
        let is_of_index = self.state().volumes.get(key).is_some_and(|volume| volume.record.index.is_some());
        if !is_of_index || may_run_on.contains(&failure.code()) || targets::at(&target.path).is_some() {
            return;
        }
        self.forget_target(key, &target.path);
        if self.state().volumes.get(key).is_some_and(|volume| volume.record.targets.is_empty()) {
            self.unmount_shared(key);
            self.clear(key);
        }
    }

    /// Whether nobody serves what is mounted there, and nobody will. Of an image only engines know.
    pub(super) fn is_dead(&self, key: &str, point: &Path) -> bool {
        let Some(mount) = targets::at(point) else { return true };
        if !mount.is_image() {
            return targets::is_dead(point);
        }
        let state = self.state();
        let only = state.volumes.get(key).and_then(|volume| volume.only().map(str::to_owned));
        state.is_settled && self.engines.newest(only.as_deref()).is_some()
    }

    /// Images of which no engine has said that it serves them, though one is there.
    pub(super) fn unserved_images(&self) -> Vec<Record> {
        let state = self.state();
        if !state.is_settled {
            return Vec::new();
        }
        let is_open = |volume: &&Volume| {
            volume.record.index.is_some()
                && volume.mount.is_none()
                && !volume.is_lost
                // Nobody mounts it just now.
                && !state.busy.contains(&volume.record.volume_id)
                && self.engines.newest(volume.only()).is_some()
        };
        let open = state.volumes.values().filter(is_open).map(|volume| volume.record.clone());
        let is_image = |record: &Record| {
            let point = self.options().folder.mounts().join(&record.key);
            targets::at(&point).is_some_and(|mount| mount.is_image())
        };
        open.filter(is_image).collect()
    }

    /// What the volume has, if an index tells, and its engine answers.
    pub fn contents(&self, volume_id: &str) -> Option<Contents> {
        let (number, engine) = {
            let state = self.state();
            let of_volume = |volume: &&Volume| volume.record.volume_id == volume_id;
            let volume = state.volumes.values().filter(of_volume).find(|one| one.record.index.is_some())?;
            (volume.number, volume.engine?)
        };
        match self.engines.get(engine)?.ask(Question::Look { number }, None, LOOKS_WITHIN) {
            Ok(Answer::Looked(health)) => health.contents,
            _ => None,
        }
    }
}

/// Has users see the image, if it is one, which an engine serves by now.
///
/// # Errors
/// The kernel's refusal, or no answer in time.
pub fn show(mount: LastingMount, plan: &MountPlan) -> Result<LastingMount, Failure> {
    let since = Instant::now();
    let in_time = || since.elapsed() < SHOWS_WITHIN;
    flatout_mounting::show(mount, plan, in_time).map_err(|error| match in_time() {
        true => error.into(),
        false => Failure::new(Code::Unavailable, "its engine does not answer the kernel: it is tried again"),
    })
}
