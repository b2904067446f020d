//! The mounts that one process serves: more than one where an index was replaced.

use flatout_mount::LastingMount;

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

    /// Lets go of all others, whose files fail then: nobody serves them any more.
    pub fn only_newest(&mut self) {
        self.newest();
        self.0.drain(..self.0.len() - 1);
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
