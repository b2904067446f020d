//! The mounts that one process serves: more than one where an index was replaced, or is about to be.

use std::path::Path;

use flatout_mount::{LastingMount, mount_at, mounts_at};

/// The mounts, oldest first. At least one.
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

    pub fn all(&self) -> &[LastingMount] {
        &self.0
    }

    /// The newest that is still connected: one that could not be shown is not.
    pub fn newest(&mut self) -> &LastingMount {
        while self.0.len() > 1 && self.0.last().is_some_and(|mount| !mount.is_connected()) {
            self.0.pop();
        }
        self.0.last().expect("there is always one")
    }

    /// For another process, once theirs is gone: keeps the newest that is in its place, and lets go of the
    /// others, whose open files fail from now on. The process may have died before it had placed the newest,
    /// or before it had unmounted the one before, which lies on it.
    pub fn only_placed(&mut self) {
        let point = self.newest().point().map(Path::to_owned).unwrap_or_default();
        let devices: Vec<_> = mounts_at(&point).iter().map(|mount| mount.device).collect();
        let is_placed = |mount: &LastingMount| mount.known_device().is_some_and(|own| devices.contains(&own));
        let newest = self.0.iter().rposition(is_placed).unwrap_or(self.0.len() - 1);
        self.0.truncate(newest + 1);
        for earlier in self.0.drain(..newest).rev() {
            let visible = mount_at(&point).map(|mount| mount.device);
            // The number of one that has ended may be another's.
            if earlier.is_connected() && visible.is_some() && visible == earlier.known_device() {
                // Where that is refused, users still see it, and get its errors.
                let _ = earlier.unmount(true);
            }
        }
    }

    /// Users see the newest: lets go of the others.
    pub fn only_newest(&mut self) {
        self.newest();
        self.0.drain(..self.0.len() - 1);
    }

    /// Users see the newest: no other process serves those before it.
    pub fn note_shown(&mut self) {
        let earlier = self.0.len() - 1;
        self.0[..earlier].iter_mut().for_each(LastingMount::forget_content);
    }

    /// Whether files of one before the newest are open, or another one is about to be shown.
    pub fn is_earlier_used(&self) -> bool {
        self.0.iter().filter(|mount| mount.is_connected()).count() > 1
    }

    /// Ends them with errors for their users.
    pub fn abort(self) {
        self.0.into_iter().for_each(LastingMount::abort);
    }
}
