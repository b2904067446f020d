//! The entries of a folder, read from its listing.

use std::ffi::OsStr;

use super::TreeOf;
use crate::attributes::FolderEntry;
use crate::fs_error::FsError;
use crate::open_folders::OpenFolder;
use crate::store::ObjectStore;

impl<S: ObjectStore> TreeOf<S> {
    /// The entries of a folder from `offset` on.
    pub(super) fn read_entries(
        &self,
        folder: &OpenFolder,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), FsError> {
        for (number, name) in [(0, "."), (1, "..")] {
            if offset <= number {
                let node = self.folders.dot(folder.ino, number == 1)?;
                if !each(&FolderEntry { node, name: OsStr::new(name), next: number + 1 }) {
                    return Ok(());
                }
            }
        }
        let mut entry = self.folders.entry_at(folder, offset)?;
        let listing = self.folders.listing_for(folder, entry)?;
        while let Some(page) = listing.page_with(entry, || self.names.now_ms(), &self.names.counters)? {
            if entry == page.first {
                self.folders.go_on(&listing, &page);
            }
            if plus {
                self.folders.describe(folder.ino, &page, entry)?;
            }
            for at in usize::try_from(entry - page.first).unwrap_or(usize::MAX)..page.len() {
                if !self.folders.hand_out(folder.ino, &page, at, plus, each) {
                    return Ok(());
                }
            }
            entry = page.end();
        }
        self.folders.hand_out_local(folder, &listing, entry, plus, each);
        Ok(())
    }
}
