//! What is known of a name: the newest of an inode, its folder's listing and a note, as long as it is young.

use super::{InodeTable, Lifetimes};
use crate::ROOT;
use crate::attributes::FileKind;
use crate::fact::{Fact, NameStatus};
use crate::listing::NameInListing;

impl InodeTable {
    /// The status of a name, if it is known and young enough.
    pub(crate) fn known(
        &self,
        parent: u64,
        name: &str,
        now_ms: u64,
        lifetimes: Lifetimes,
    ) -> Option<NameStatus> {
        if let Some(made) = self.made_here(parent, name, now_ms) {
            return Some(made);
        }
        let newest = self.newest(parent, name)?;
        let lifetime_ms = match newest {
            NameStatus::Present(..) => lifetimes.attributes_ms,
            NameStatus::Absent(_) => lifetimes.negative_ms,
        };
        (now_ms.saturating_sub(newest.asked_ms()) < lifetime_ms).then_some(newest)
    }

    /// The status of a name that exists because this mount has made it.
    fn made_here(&self, parent: u64, name: &str, now_ms: u64) -> Option<NameStatus> {
        let folder = self.get(parent)?.folder.as_deref()?;
        let kind = *folder.local.get(name)?;
        let inode = self.get(self.find(parent, kind, name)?)?;
        Some(NameStatus::Present(kind, Fact { asked_ms: now_ms, ..self.known_fact(inode) }))
    }

    /// The newest status of a name, however old.
    fn newest(&self, parent: u64, name: &str) -> Option<NameStatus> {
        let folder = self.get(parent)?.folder.as_deref();
        let mut newest: Option<NameStatus> = None;
        let mut consider = |status: NameStatus| {
            if newest.as_ref().is_none_or(|newest| newest.asked_ms() < status.asked_ms()) {
                newest = Some(status);
            }
        };
        // A folder hides a file of the same age.
        for kind in [FileKind::Folder, FileKind::File] {
            let inode = self.find(parent, kind, name).and_then(|ino| self.get(ino));
            if let Some(inode) = inode {
                consider(NameStatus::Present(kind, self.known_fact(inode)));
            }
        }
        if let Some(listing) = folder.and_then(|folder| folder.listing.as_deref()) {
            match listing.find(name) {
                NameInListing::Present(entry, asked_ms) => {
                    let (kind, fact) = Fact::of_entry(entry, asked_ms);
                    consider(NameStatus::Present(kind, fact));
                }
                NameInListing::Absent(_) if parent == ROOT && self.root_shows_some => {}
                NameInListing::Absent(asked_ms) => consider(NameStatus::Absent(asked_ms)),
                NameInListing::NotYet => {}
            }
        }
        let newest = match folder.and_then(|folder| folder.notes.get(name)) {
            Some(note) if newest.as_ref().is_none_or(|newest| newest.asked_ms() <= note.asked_ms) => {
                note.is_absent.then_some(NameStatus::Absent(note.asked_ms))
            }
            _ => newest,
        };
        let is_outdated = |status: &NameStatus| {
            // A HEAD has found the object since: the name exists, whether as this file or as a folder that
            // hides it.
            let object = || self.find(parent, FileKind::File, name).and_then(|ino| self.get(ino));
            folder.is_some_and(|folder| status.asked_ms() < folder.outdated_ms)
                || matches!(status, NameStatus::Absent(asked_ms) if object().is_some_and(|it| it.fact.asked_ms > *asked_ms))
        };
        newest.filter(|status| !is_outdated(status))
    }

    /// Whether no later answer denies that the name is a `kind`.
    pub(crate) fn is_newest(&self, parent: u64, name: &str, kind: FileKind, asked_ms: u64) -> bool {
        let other = match kind {
            FileKind::File => FileKind::Folder,
            FileKind::Folder => FileKind::File,
        };
        let other = self.find(parent, other, name).and_then(|ino| self.get(ino));
        let folder = self.get(parent).and_then(|inode| inode.folder.as_deref());
        let note = folder.and_then(|folder| folder.notes.get(name));
        other.is_none_or(|other| other.named_ms <= asked_ms)
            && note.is_none_or(|note| note.asked_ms <= asked_ms)
    }
}
