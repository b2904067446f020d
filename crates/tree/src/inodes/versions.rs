//! Versions of files: a version that was opened keeps its inode, and the next version gets another. The
//! kernel has one page cache for an inode, so pages of two versions never mix, whichever are mapped.

use super::{Inode, InodeTable};
use crate::attributes::FileKind;
use crate::fact::Fact;

/// Which version an inode stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionState {
    /// The name's current version. It was not opened since the kernel knows it, so the kernel has no page of
    /// it, and the inode becomes the next version when there is one.
    Unopened,
    /// The version that was opened, and is still current.
    Opened,
    /// The version that was opened, and is not current any more.
    Replaced,
}

/// A free node for a new inode, and the number that stat(2) shows for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vacancy {
    pub(super) ino: u64,
    pub(super) number: u64,
}

impl InodeTable {
    /// Pins the inode, which stands for this version from now on.
    pub(crate) fn open(&mut self, ino: u64) {
        if self.get(ino).is_some_and(|inode| inode.state == VersionState::Unopened) {
            self.set_state(ino, VersionState::Opened);
        }
        self.pin(ino);
    }

    pub(super) fn set_state(&mut self, ino: u64, state: VersionState) {
        let Some(inode) = self.get_mut(ino).filter(|inode| inode.state != state) else { return };
        inode.state = state;
        self.keep_version(ino);
    }

    /// The kernel may have pages of the version that was opened, and of no other.
    pub(super) fn keep_version(&self, ino: u64) {
        let Some(inode) = self.get(ino) else { return };
        match inode.state {
            VersionState::Unopened => self.kept.no_version(ino),
            state => self.kept.version(ino, &inode.fact, state == VersionState::Replaced),
        }
    }

    /// The version that was opened is gone. The origin is asked for the name next time.
    pub(crate) fn retire(&mut self, ino: u64, now_ms: u64) {
        // A file that this mount writes has the version that its writer knows.
        if self.is_written(ino) {
            return;
        }
        let Some(inode) = self.get(ino).filter(|inode| inode.state == VersionState::Opened) else {
            return;
        };
        let (parent, name) = (inode.parent, inode.name.clone());
        self.set_state(ino, VersionState::Replaced);
        self.distrust(parent, &name, now_ms);
        self.rest(ino, now_ms);
    }

    /// Gives the name another version than the one that was opened; returns its new inode.
    pub(super) fn succeed(&mut self, ino: u64, fact: Fact) -> u64 {
        let asked_ms = fact.asked_ms;
        self.set_state(ino, VersionState::Replaced);
        let Some(inode) = self.get(ino) else { return ino };
        // A HEAD of the new version does not answer what the name stands for.
        let (parent, name, named_ms) = (inode.parent, inode.name.clone(), inode.named_ms);
        let Err(vacancy) = self.find_or_vacancy(parent, FileKind::File, &name) else { return ino };
        self.pin(parent);
        let next = self.insert(vacancy, parent, &name, FileKind::File, fact);
        if let Some(inode) = self.get_mut(next) {
            inode.named_ms = named_ms;
        }
        self.rest(ino, asked_ms);
        next
    }

    /// Whether a node still stands for the version that was opened by it.
    pub(crate) fn is_current(&self, ino: u64) -> bool {
        let at = self.index.get(&ino).map(|at| *at as usize);
        at.and_then(|at| self.inodes.get(at)).is_some_and(|inode| inode.state != VersionState::Replaced)
    }

    pub(super) fn next_generation(&mut self) -> u32 {
        self.generations = self.generations.wrapping_add(1).max(1);
        self.generations
    }
}

impl Inode {
    /// Whether the name has another version, or none.
    pub(crate) fn is_replaced(&self) -> bool {
        self.state == VersionState::Replaced
    }
}
