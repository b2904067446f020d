//! Handles that another process has opened.

use std::collections::HashMap;

use super::{LeftHandles, TreeOf};
use crate::kept::{FileUse, KeptFile, KeptState};
use crate::open_files::OpenFile;
use crate::open_folders::OpenFolder;
use crate::store::ObjectStore;

/// Handles of two processes are told apart: each has numbers for this many bits.
const NUMBERS_OF_A_PROCESS: u32 = 40;

impl<S: ObjectStore> TreeOf<S> {
    /// A handle that cannot be gone on with is not there: its calls fail with `EBADF`.
    pub(super) fn take_over_handles(&self, state: &KeptState) {
        let kept = &self.names.kept;
        let mut left = LeftHandles::default();
        let mut writing: HashMap<u64, u32> = HashMap::new();
        for file in state.files.values().filter(|file| matches!(file.use_, FileUse::Writes { .. })) {
            *writing.entry(file.ino).or_default() += 1;
        }
        for (&ino, writer) in &state.writers {
            let handles = writing.get(&ino).copied().unwrap_or(0);
            // Without a handle the kernel never heard of it.
            if handles == 0 || self.writers.take_over(ino, writer, handles).is_err() {
                kept.writer_gone(ino);
            }
        }
        for (&handle, file) in &state.files {
            let Some(opened) = self.open_left(file) else {
                kept.file_gone(handle);
                continue;
            };
            self.names.table().open(file.ino);
            opened.keep_as(kept.clone(), handle, file.request);
            self.files.handles.insert(handle, opened);
            left.files.insert(file.request, handle);
        }
        for (&handle, &(ino, request)) in &state.folders {
            let places = state.places.get(&handle).cloned().unwrap_or_default();
            self.names.table().pin(ino);
            self.folders.handles.insert(handle, OpenFolder::taken_over(ino, places));
            left.folders.insert(request, handle);
        }
        // A request to close that is sent again must not close a handle of this process.
        self.files.handles.begin_after(state.processes << NUMBERS_OF_A_PROCESS);
        self.folders.handles.begin_after(state.processes << NUMBERS_OF_A_PROCESS);
        *self.left() = left;
    }

    fn open_left(&self, file: &KeptFile) -> Option<OpenFile<S>> {
        let stale = || {
            let opened = OpenFile::of_written(file.ino, None);
            opened.set_stale();
            opened
        };
        match &file.use_ {
            FileUse::Writes { .. } => self.writers.handle_of(file.ino, &file.use_),
            FileUse::ReadsWriter => Some(self.writers.handle_of(file.ino, &file.use_).unwrap_or_else(stale)),
            FileUse::Stale => Some(stale()),
            FileUse::Reads(version) => {
                let (parent, name, location) = {
                    let table = self.names.table();
                    let inode = table.get(file.ino)?;
                    let location = self.names.object(&table, inode.parent, &inode.name).ok()?;
                    (inode.parent, inode.name.clone(), location)
                };
                self.files.reading(file.ino, (parent, &name), version.object(location)).ok()
            }
        }
    }
}
