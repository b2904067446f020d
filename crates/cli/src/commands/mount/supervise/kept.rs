//! The mounts that one process serves: more than one where an index was replaced.

use std::path::Path;

use flatout_mount::{LastingMount, mount_at};

/// The newest, which users see, behind those whose files may still be open.
pub struct KeptMounts(Vec<LastingMount>);

impl KeptMounts {
    pub fn of(mount: LastingMount) -> KeptMounts {
        KeptMounts(vec![mount])
    }

    /// Keeps another one, which users are about to see.
    pub fn keep(&mut self, mount: LastingMount) {
        self.0.retain(LastingMount::is_connected);
        self.0.push(mount);
    }

    /// The newest that stands: a process may have died before it showed the last one.
    pub fn newest(&mut self) -> &LastingMount {
        while self.0.len() > 1 && self.0.last().is_some_and(|mount| !mount.is_connected()) {
            self.0.pop();
        }
        self.0.last().expect("there is always one")
    }

    /// Keeps the one that users see: a process may die before it has shown the newest, or before it has said
    /// so. Nobody serves the others any more: what is open of them fails.
    pub fn only_seen(&mut self) {
        let point = self.newest().point().map(Path::to_owned);
        let seen = point.and_then(|point| mount_at(&point)).map(|mount| mount.device);
        let known = self.0.iter().rposition(|mount| seen.is_some() && mount.known_device() == seen);
        let newest = self.0.len() - 1;
        let kept = self.0.swap_remove(known.unwrap_or(newest));
        self.0 = vec![kept];
    }

    /// Notes that users see the newest, on this device: none before it is gone back to.
    pub fn note_shown(&mut self, device: Option<(u32, u32)>) {
        self.newest().note_shown(device);
        let earlier = self.0.len() - 1;
        self.0[..earlier].iter_mut().for_each(LastingMount::forget_content);
    }

    /// Whether files of one before the newest are open.
    pub fn is_earlier_used(&self) -> bool {
        self.0.iter().filter(|mount| mount.is_connected()).count() > 1
    }

    /// Ends them with errors for their users.
    pub fn abort(self) {
        self.0.into_iter().for_each(LastingMount::abort);
    }
}
