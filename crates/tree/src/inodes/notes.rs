//! Notes: answers about single names of a folder that are newer than its listing, or without one.

use super::{Folder, InodeTable};
use crate::attributes::FileKind;

#[derive(Clone, Copy)]
pub(super) struct Note {
    pub(super) asked_ms: u64,
    /// The name did not exist; otherwise, all older answers are wrong.
    pub(super) is_absent: bool,
}

const NOTE_BYTES: u64 = 64;
/// At most this many notes for a folder: programs that look for missing files try many names.
const NOTES_MAX: usize = 4 << 10;

impl InodeTable {
    /// The origin answered that the name does not exist.
    pub(crate) fn note_absent(&mut self, parent: u64, name: &str, asked_ms: u64) {
        self.note(parent, name, Note { asked_ms, is_absent: true });
    }

    /// All answers about a name until now are wrong.
    pub(crate) fn distrust(&mut self, parent: u64, name: &str, asked_ms: u64) {
        self.note(parent, name, Note { asked_ms, is_absent: false });
    }

    fn note(&mut self, parent: u64, name: &str, note: Note) {
        let Some(folder) = self.folder_mut(parent) else { return };
        let mut gone = 0;
        if folder.notes.len() >= NOTES_MAX && !folder.notes.contains_key(name) {
            // Without its notes, the listing would give the wrong answers that they correct.
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
        let known = folder.notes.get(name).map(|known| known.asked_ms);
        let mut come = 0;
        if known.is_none() {
            come = NOTE_BYTES + name.len() as u64;
        }
        if known.is_none_or(|known| known <= note.asked_ms) {
            folder.notes.insert(name.into(), note);
        }
        self.bytes = self.bytes + come - gone;
    }

    /// The time of the latest note that contradicts a known inode.
    fn noted_against_ms(&self, parent: u64) -> u64 {
        let folder = self.get(parent).and_then(|inode| inode.folder.as_deref());
        let is_known = |name: &str| {
            [FileKind::File, FileKind::Folder].iter().any(|kind| self.find(parent, *kind, name).is_some())
        };
        let notes = folder.iter().flat_map(|folder| &folder.notes);
        notes.filter(|(name, _)| is_known(name)).map(|(_, note)| note.asked_ms).max().unwrap_or(0)
    }

    /// Removes an older note about a name that does exist.
    pub(super) fn outdate_note(&mut self, parent: u64, name: &str, asked_ms: u64) {
        let folder = self.get_mut(parent).and_then(|inode| inode.folder.as_deref_mut());
        let Some(folder) = folder else { return };
        let note = folder.notes.get(name);
        if note.is_some_and(|note| note.asked_ms < asked_ms || note.is_absent && note.asked_ms == asked_ms) {
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
