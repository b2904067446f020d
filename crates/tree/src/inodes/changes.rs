//! What this mount changes itself: names that it has made, removed or given to another, and files that it
//! writes. What it knows of these is newer than any answer that was asked for before.

use std::sync::Arc;

use super::versions::VersionState;
use super::{Folder, InodeTable};
use crate::ROOT;
use crate::attributes::FileKind;
use crate::fact::Fact;
use crate::listing::NameInListing;
use crate::writer::WrittenSize;

impl InodeTable {
    /// A file is being written: until [`InodeTable::end_writing`], its name exists, and its size is that of
    /// the writer, whatever the origin says.
    pub(crate) fn begin_writing(&mut self, ino: u64, size: Arc<WrittenSize>) {
        let Some(inode) = self.get(ino) else { return };
        let (parent, name) = (inode.parent, inode.name.clone());
        self.written.insert(ino, size);
        self.pin(ino);
        self.add_local(parent, &name, FileKind::File);
    }

    /// What is shown of a file that is being written.
    pub(crate) fn written(&self, ino: u64) -> Option<&Arc<WrittenSize>> {
        self.written.get(&ino)
    }

    /// Whether a file is being written.
    pub(crate) fn is_written(&self, ino: u64) -> bool {
        self.written.contains_key(&ino)
    }

    /// The last writer of a file has gone. Without a version of it, nothing is known of its name.
    pub(crate) fn end_writing(&mut self, ino: u64, has_version: bool, now_ms: u64) {
        if self.written.remove(&ino).is_none() {
            return;
        }
        let Some(inode) = self.get(ino) else { return self.kept.writer_gone(ino) };
        let (parent, name, is_replaced) = (inode.parent, inode.name.clone(), inode.is_replaced());
        if !is_replaced {
            self.remove_local(parent, &name);
        }
        if !has_version && !is_replaced {
            self.set_state(ino, VersionState::Replaced);
            self.distrust(parent, &name, now_ms);
        }
        // Last: until then another process sees a writer whose bytes are lost.
        self.kept.writer_gone(ino);
        self.unpin(ino, now_ms);
    }

    /// The file has this version, which this mount has made: it stays the same inode, and the kernel has no
    /// page of it that is wrong.
    pub(crate) fn rewrite(&mut self, ino: u64, fact: Fact) {
        let Some(inode) = self.get_mut(ino) else { return };
        let (parent, name, changed_ms) = (inode.parent, inode.name.clone(), fact.asked_ms);
        let before = inode.fact.etag.weight() as u64;
        let after = fact.etag.weight() as u64;
        inode.named_ms = fact.asked_ms;
        inode.fact = fact;
        let is_unopened = inode.state == VersionState::Unopened;
        self.bytes = self.bytes + after - before;
        if !is_unopened {
            self.keep_version(ino);
        }
        self.outdate_note(parent, &name, changed_ms);
        self.change(parent, changed_ms);
    }

    /// A name was removed by this mount.
    pub(crate) fn removed(&mut self, parent: u64, name: &str, kind: FileKind, now_ms: u64) {
        if let Some(ino) = self.find(parent, kind, name) {
            self.drop_listing(ino);
            self.set_made_here(ino, false, now_ms);
            self.remove_local(parent, name);
            // Also a folder: the kernel makes nothing in it any more, and one of its name is another.
            self.set_state(ino, VersionState::Replaced);
            self.rest(ino, now_ms);
        }
        self.note_absent(parent, name, now_ms);
        self.change(parent, now_ms);
    }

    /// A name has gone from a folder. Unless others are known in it, it is empty now, and stays all the same.
    pub(crate) fn keep_emptied(&mut self, folder: u64, now_ms: u64) {
        let Some(state) = self.get(folder).and_then(|inode| inode.folder.as_deref()) else { return };
        let listed = state.listing.as_ref().map_or(0, |listing| listing.entries());
        let is_listed = |name: &str| {
            let listing = state.listing.as_ref();
            listing.is_some_and(|listing| matches!(listing.find(name), NameInListing::Present(..)))
        };
        let gone = state.notes.iter().filter(|(name, note)| note.is_absent && is_listed(name)).count() as u64;
        if state.local.is_empty() && listed <= gone {
            self.set_made_here(folder, true, now_ms);
        }
    }

    /// What a name stands for after a change that has failed midway is not known.
    pub(crate) fn doubt(&mut self, parent: u64, name: &str, now_ms: u64) {
        self.distrust(parent, name, now_ms);
        self.change(parent, now_ms);
    }

    /// A folder exists here although no key may say so: it was made here, or emptied.
    pub(crate) fn set_made_here(&mut self, ino: u64, made_here: bool, now_ms: u64) {
        if ino == ROOT {
            return;
        }
        let Some(folder) = self.folder_mut(ino).filter(|folder| folder.made_here != made_here) else {
            return;
        };
        folder.made_here = made_here;
        self.kept.made_here(ino, made_here);
        let Some((parent, name)) = self.get(ino).map(|inode| (inode.parent, inode.name.clone())) else {
            return;
        };
        if made_here {
            self.pin(ino);
            self.add_local(parent, &name, FileKind::Folder);
        } else {
            self.remove_local(parent, &name);
            self.unpin(ino, now_ms);
        }
    }

    /// Gives an inode another name; one that had it is replaced.
    pub(crate) fn rename(&mut self, ino: u64, (parent, name): (u64, &str), now_ms: u64) {
        let Some(inode) = self.get(ino) else { return };
        let (kind, before) = (inode.kind, (inode.parent, inode.name.clone()));
        let is_local = self.is_local(before.0, &before.1);
        if self.find(parent, kind, name).is_some_and(|there| there != ino) {
            self.removed(parent, name, kind, now_ms);
        }
        self.remove_local(before.0, &before.1);
        self.undisplace(ino);
        let (old_bytes, new_bytes) = (before.1.len() as u64, name.len() as u64);
        self.pin(parent);
        if let Some(inode) = self.get_mut(ino) {
            inode.parent = parent;
            inode.name = name.into();
            inode.named_ms = now_ms;
            inode.fact.asked_ms = inode.fact.asked_ms.max(now_ms);
        }
        self.bytes = self.bytes + new_bytes - old_bytes;
        self.displace(ino);
        self.keep_name(ino);
        if is_local {
            self.add_local(parent, name, kind);
        }
        self.note_absent(before.0, &before.1, now_ms);
        self.change(before.0, now_ms);
        self.outdate_note(parent, name, now_ms);
        self.change(parent, now_ms);
        self.unpin(before.0, now_ms);
        if kind == FileKind::Folder {
            self.outdate_below(ino, now_ms);
        }
    }

    /// A file is being removed or renamed, or all below a folder: nobody begins to write there meanwhile.
    pub(crate) fn set_moving(&mut self, ino: u64, is_moving: bool) {
        match is_moving {
            true => self.moving.push(ino),
            false => {
                if let Some(at) = self.moving.iter().position(|&moving| moving == ino) {
                    self.moving.swap_remove(at);
                }
            }
        }
    }

    /// Whether it, or a folder that it is in, is being removed or renamed.
    pub(crate) fn is_moving(&self, ino: u64) -> bool {
        self.moving.iter().any(|&moving| self.is_within(ino, moving))
    }

    /// Whether something below a folder is.
    pub(crate) fn is_moving_below(&self, folder: u64) -> bool {
        self.moving.iter().any(|&moving| moving != folder && self.is_below(moving, folder))
    }

    /// Nothing that is known of the keys below a folder is true any more: they have other names now.
    pub(crate) fn outdate_below(&mut self, folder: u64, now_ms: u64) {
        let inside: Vec<u64> =
            self.inodes.iter().map(|inode| inode.ino).filter(|ino| self.is_below(*ino, folder)).collect();
        for ino in &inside {
            if let Some(inode) = self.get_mut(*ino) {
                (inode.fact.asked_ms, inode.named_ms) = (0, 0);
                // The copy of a version is another version of the same bytes: what the kernel has of it is
                // right.
                if inode.state == VersionState::Opened {
                    self.set_state(*ino, VersionState::Unopened);
                }
            }
        }
        for ino in std::iter::once(folder).chain(inside) {
            self.drop_listing(ino);
            if let Some(folder) = self.folder_mut(ino) {
                folder.outdated_ms = folder.outdated_ms.max(now_ms);
                folder.changed_ms = now_ms;
            }
        }
    }

    fn is_below(&self, ino: u64, folder: u64) -> bool {
        let mut at = ino;
        while at != ROOT {
            let Some(inode) = self.get(at) else { return false };
            at = inode.parent;
            if at == folder {
                return true;
            }
        }
        false
    }

    /// Whether a folder lies within another, or is it.
    pub(crate) fn is_within(&self, ino: u64, folder: u64) -> bool {
        ino == folder || self.is_below(ino, folder)
    }

    /// Whether one of its files, or of those below it, is being written.
    pub(crate) fn is_written_below(&self, folder: u64) -> bool {
        self.written.keys().any(|ino| self.is_current(*ino) && self.is_below(*ino, folder))
    }

    /// Names that exist here, and perhaps nowhere else.
    pub(crate) fn local_names(&self, folder: u64) -> Vec<(Box<str>, FileKind)> {
        let folder = self.get(folder).and_then(|inode| inode.folder.as_deref());
        folder.map_or_else(Vec::new, |folder| {
            folder.local.iter().map(|(name, kind)| (name.clone(), *kind)).collect()
        })
    }

    /// When this mount last changed the names of a folder.
    pub(crate) fn changed_ms(&self, folder: u64) -> u64 {
        let folder = self.get(folder).and_then(|inode| inode.folder.as_deref());
        folder.map_or(0, |folder| folder.changed_ms)
    }

    /// This mount has changed the names of a folder: that is its time, until one is set.
    pub(crate) fn set_touched(&mut self, folder: u64, at_s: Option<u32>) {
        if let Some(folder) = self.folder_mut(folder) {
            folder.touched_s = at_s;
        }
    }

    pub(crate) fn touched_s(&self, folder: u64) -> Option<u32> {
        self.get(folder).and_then(|inode| inode.folder.as_deref()).and_then(|folder| folder.touched_s)
    }

    /// Whether a later answer says that the name is gone.
    pub(crate) fn is_denied(&self, parent: u64, name: &str, asked_ms: u64) -> bool {
        let folder = self.get(parent).and_then(|inode| inode.folder.as_deref());
        let note = folder.and_then(|folder| folder.notes.get(name));
        note.is_some_and(|note| note.is_absent && note.asked_ms >= asked_ms)
    }

    fn change(&mut self, parent: u64, now_ms: u64) {
        if let Some(folder) = self.folder_mut(parent) {
            folder.changed_ms = folder.changed_ms.max(now_ms);
        }
    }

    fn add_local(&mut self, parent: u64, name: &str, kind: FileKind) {
        let Some(folder) = self.folder_mut(parent) else { return };
        if folder.local.insert(name.into(), kind).is_none() {
            self.bytes += LOCAL_BYTES + name.len() as u64;
        }
    }

    fn remove_local(&mut self, parent: u64, name: &str) {
        let Some(folder) = self.folder_mut(parent) else { return };
        if folder.local.remove(name).is_some() {
            self.bytes -= LOCAL_BYTES + name.len() as u64;
        }
    }

    fn is_local(&self, parent: u64, name: &str) -> bool {
        let folder = self.get(parent).and_then(|inode| inode.folder.as_deref());
        folder.is_some_and(|folder| folder.local.contains_key(name))
    }
}

impl Folder {
    pub(super) fn local_bytes(&self) -> u64 {
        self.local.keys().map(|name| LOCAL_BYTES + name.len() as u64).sum()
    }
}

/// The bytes of a name that exists here, without the name.
const LOCAL_BYTES: u64 = 48;
