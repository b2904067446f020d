//! Notes: what was told of single names of a folder, where that is newer than its listing or there is none.

use super::{Folder, Table};
use crate::attributes::FileKind;

#[derive(Clone, Copy)]
pub(super) struct Note {
    pub(super) told_ms: u64,
    /// Otherwise nothing from before then is true any more.
    pub(super) is_absent: bool,
}

const NOTE_BYTES: u64 = 64;
/// Notes of one folder: programs that look for what is not there do so under many names.
const NOTES_MAX: usize = 4 << 10;

impl Table {
    /// The origin was asked for a name, and it was not there.
    pub(crate) fn note_absent(&mut self, parent: u64, name: &str, told_ms: u64) {
        self.note(parent, name, Note { told_ms, is_absent: true });
    }

    /// What was told of a name until now is not true any more.
    pub(crate) fn distrust(&mut self, parent: u64, name: &str, told_ms: u64) {
        self.note(parent, name, Note { told_ms, is_absent: false });
    }

    fn note(&mut self, parent: u64, name: &str, note: Note) {
        let Some(folder) = self.folder_mut(parent) else { return };
        let mut gone = 0;
        if folder.notes.len() >= NOTES_MAX && !folder.notes.contains_key(name) {
            // A note that says what a listing has wrong takes the listing with it.
            if folder.notes.values().any(|note| !note.is_absent) {
                folder.misses = 0;
                self.drop_listing(parent);
            }
            let outdated_ms = self.noted_against_ms(parent);
            let Some(folder) = self.folder_mut(parent) else { return };
            gone = folder.notes_bytes();
            folder.notes.clear();
            folder.outdated_ms = folder.outdated_ms.max(outdated_ms);
        }
        let Some(folder) = self.folder_mut(parent) else { return };
        let known = folder.notes.get(name).map(|known| known.told_ms);
        let mut come = 0;
        if known.is_none() {
            come = NOTE_BYTES + name.len() as u64;
        }
        if known.is_none_or(|known| known <= note.told_ms) {
            folder.notes.insert(name.into(), note);
        }
        self.bytes = self.bytes + come - gone;
    }

    /// When the last of the notes was made that say that what is known of a name is not so.
    fn noted_against_ms(&self, parent: u64) -> u64 {
        let folder = self.get(parent).and_then(|inode| inode.folder.as_deref());
        let is_known = |name: &str| {
            [FileKind::File, FileKind::Folder].iter().any(|kind| self.find(parent, *kind, name).is_some())
        };
        let notes = folder.iter().flat_map(|folder| &folder.notes);
        notes.filter(|(name, _)| is_known(name)).map(|(_, note)| note.told_ms).max().unwrap_or(0)
    }

    /// Takes back what was noted of a name that has turned out to be there.
    pub(super) fn outdate_note(&mut self, parent: u64, name: &str, told_ms: u64) {
        let folder = self.get_mut(parent).and_then(|inode| inode.folder.as_deref_mut());
        let Some(folder) = folder else { return };
        let note = folder.notes.get(name);
        if note.is_some_and(|note| note.told_ms < told_ms || note.is_absent && note.told_ms == told_ms) {
            folder.notes.remove(name);
            self.bytes -= NOTE_BYTES + name.len() as u64;
        }
    }
}

impl Folder {
    pub(super) fn notes_bytes(&self) -> u64 {
        self.notes.keys().map(|name| NOTE_BYTES + name.len() as u64).sum()
    }
}
