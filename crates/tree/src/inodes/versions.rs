//! Versions of files: one that was opened keeps its inode for itself, and the next version gets another. The kernel has one page
//! cache for an inode, so pages of two versions never meet, whoever maps which.

use super::{Inode, Table};
use crate::attributes::FileKind;
use crate::fact::Fact;

/// What an inode stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// What its name is now. Nobody has opened it since the kernel knows it, so that has no page of it: it becomes the next version
    /// when that is told.
    Unopened,
    /// The version that was opened, which its name is still.
    Opened,
    /// The version that was opened; its name is another, or nothing.
    Replaced,
}

/// Where an inode can be put: a free node, and the number that stat(2) shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vacancy {
    pub(super) ino: u64,
    pub(super) number: u64,
}

impl Table {
    /// The file is open: from now on its inode is this version. It is pinned.
    pub(crate) fn open(&mut self, ino: u64) {
        if let Some(inode) = self.get_mut(ino).filter(|inode| inode.life == Life::Unopened) {
            inode.life = Life::Opened;
        }
        self.pin(ino);
    }

    /// The version that was opened is gone. Whoever asks for its name next asks the origin.
    pub(crate) fn retire(&mut self, ino: u64, now_ms: u64) {
        let Some(inode) = self.get_mut(ino).filter(|inode| inode.life == Life::Opened) else { return };
        inode.life = Life::Replaced;
        let (parent, name) = (inode.parent, inode.name.clone());
        self.distrust(parent, &name, now_ms);
        self.rest(ino, now_ms);
    }

    /// Puts another version in the place of one that was opened; its inode.
    pub(super) fn succeed(&mut self, ino: u64, fact: Fact) -> u64 {
        let told_ms = fact.told_ms;
        let Some(inode) = self.get_mut(ino) else { return ino };
        inode.life = Life::Replaced;
        // A HEAD that tells of the new version says nothing of the name.
        let (parent, name, named_ms) = (inode.parent, inode.name.clone(), inode.named_ms);
        let Err(vacancy) = self.place(parent, FileKind::File, &name) else { return ino };
        self.pin(parent);
        let next = self.insert(vacancy, parent, &name, FileKind::File, fact);
        if let Some(inode) = self.get_mut(next) {
            inode.named_ms = named_ms;
        }
        self.rest(ino, told_ms);
        next
    }

    pub(super) fn next_generation(&mut self) -> u32 {
        self.generations = self.generations.wrapping_add(1).max(1);
        self.generations
    }
}

impl Inode {
    /// Another version has come in its place, or nothing has.
    pub(crate) fn is_replaced(&self) -> bool {
        self.life == Life::Replaced
    }
}
