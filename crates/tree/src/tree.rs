//! The tree: its operations, each answered from the namespace or by the parts that ask the origin.

mod described;
mod entries;
mod reads;
mod staged;
mod taken_over;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use flatout_engine::{Client, Error};

use crate::ROOT;
use crate::ahead::ListAhead;
use crate::attributes::{
    AttributeChanges, Caller, FileKind, FolderEntry, Node, OpenMode, OpenedFile, STATFS, Statfs,
};
use crate::changes::Changes;
use crate::config::Config;
use crate::fact::NameStatus;
use crate::files::{Cancel, Files, Slices, WriteMoment, XattrNeeds};
use crate::folder_location::{TreeRoot, unlisted};
use crate::fs_error::FsError;
use crate::kept::{FolderPlace, SharedTable};
use crate::lookup::Lookups;
use crate::namespace::Namespace;
use crate::open_files::OpenFiles;
use crate::open_folders::{OpenFolder, OpenFolders};
use crate::stats::TreeStats;
use crate::store::ObjectStore;
use crate::writers::{Wake, Writers, keep_trying};

/// The objects of a client's origin as a tree of files.
pub type Tree = TreeOf<Client>;

/// A tree over a store.
pub struct TreeOf<S: ObjectStore> {
    names: Arc<Namespace<S>>,
    lookups: Arc<Lookups<S>>,
    files: Arc<OpenFiles<S>>,
    writers: Arc<Writers<S>>,
    changes: Changes<S>,
    folders: OpenFolders<S>,
    ahead: Arc<ListAhead<S>>,
    _staged: Option<Wake>,
    left: Mutex<LeftHandles>,
}

/// Handles that another process has opened, by the number of the request.
#[derive(Default)]
struct LeftHandles {
    files: HashMap<u64, u64>,
    folders: HashMap<u64, u64>,
}

impl<S: ObjectStore> TreeOf<S> {
    /// Asks for the first page of the root.
    ///
    /// # Errors
    /// The engine's reason why the root cannot be listed.
    pub fn new(store: Arc<S>, root: TreeRoot, config: Config) -> Result<TreeOf<S>, Error> {
        let names = Arc::new(Namespace::new(store, root, config));
        let listing = Arc::new(names.begin_listing(&names.root.location())?);
        if let Err(error) = names.next_page(&listing) {
            // The listing gives its error away only if there is no copy.
            drop(error);
            return Err(listing.take_failure().unwrap_or_else(unlisted));
        }
        names.table().set_listing(ROOT, listing);
        Ok(TreeOf::of(names).with_left())
    }

    /// What the kernel knows of the tree is kept there for another process. To be called before the kernel
    /// knows anything.
    pub fn keep_in(&self, table: Arc<dyn SharedTable>) {
        self.names.kept.keep_in(table);
    }

    /// Goes on with the tree of another process, which has kept it in this table. Nothing is asked. `None`
    /// where not all that the kernel knows was kept.
    pub fn take_over(
        store: Arc<S>,
        root: TreeRoot,
        config: Config,
        table: Arc<dyn SharedTable>,
    ) -> Option<TreeOf<S>> {
        let tree = TreeOf::of(Arc::new(Namespace::new(store, root, config)));
        tree.keep_in(table);
        let state = tree.names.kept.take_over()?;
        let now_ms = tree.names.now_ms();
        tree.names.table().take_over(&state, now_ms);
        tree.take_over_handles(&state);
        tree.names.table().rest_all(&state, now_ms);
        tree.names.settle(&mut tree.names.table());
        Some(tree.with_left())
    }

    fn of(names: Arc<Namespace<S>>) -> TreeOf<S> {
        let ahead = ListAhead::new(names.clone());
        let lookups = Arc::new(Lookups::new(names.clone()));
        let files = Arc::new(OpenFiles::new(names.clone()));
        let writers = Arc::new(Writers::new(names.clone(), files.clone()));
        TreeOf {
            changes: Changes { names: names.clone(), lookups: lookups.clone(), writers: writers.clone() },
            _staged: keep_trying(&writers),
            lookups,
            files,
            writers,
            folders: OpenFolders::new(names.clone(), ahead.clone()),
            ahead,
            names,
            left: Mutex::default(),
        }
    }

    fn left(&self) -> MutexGuard<'_, LeftHandles> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the root is a prefix and its first listing is empty. Keys that cannot be shown count as
    /// content.
    pub fn is_root_bare(&self) -> bool {
        let is_prefix = matches!(&self.names.root, TreeRoot::Under(location) if !location.key().is_empty());
        let listing = self.names.table().folder_mut(ROOT).and_then(|folder| folder.listing.clone());
        let is_bare = listing.is_some_and(|listing| !listing.is_proof() && !listing.may_go_on());
        is_prefix && is_bare && self.stats().hidden.total() == 0
    }

    pub fn stats(&self) -> TreeStats {
        let (inodes, looked_up, listings) = self.names.table().counts();
        let counters = &self.names.counters;
        TreeStats {
            pages: counters.pages.get(),
            lookups: counters.lookups.get(),
            heads: counters.heads.get(),
            attribute_heads: counters.attribute_heads.get(),
            failures: counters.failures.get(),
            answered: counters.answered.get(),
            joined: counters.joined.get(),
            listed_ahead: counters.listed_ahead.get(),
            replaced: counters.replaced.get(),
            published: counters.published.get(),
            written_now: self.writers.count(),
            hidden: counters.hidden(),
            inodes_now: inodes,
            looked_up_now: looked_up,
            listings_now: listings,
            open_files_now: self.files.handles.count(),
            open_folders_now: self.folders.handles.count(),
            held_bytes_now: self.names.held_bytes() + self.writers.buffers.held_bytes(),
        }
    }

    /// Files whose last bytes are in this process alone.
    pub fn unsent(&self) -> Vec<String> {
        self.writers.unsent()
    }

    /// Whether folders are being listed ahead. Their entries may become known between two calls.
    #[doc(hidden)]
    pub fn is_listing_ahead(&self) -> bool {
        self.ahead.is_busy()
    }

    pub fn client(&self) -> &Arc<S> {
        &self.names.store
    }
}

impl<S: ObjectStore> Files for TreeOf<S> {
    fn lookup(&self, parent: u64, name: &OsStr) -> Result<Node, FsError> {
        let name = self.names.name_in(parent, name)?;
        let status = self.lookups.resolve(parent, name)?;
        let node = self.names.looked_up(&mut self.names.table(), parent, name, status)?;
        self.described(node).inspect_err(|_| self.forget(node.id, 1))
    }

    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Node, FsError>> {
        let names = &self.names;
        let name = match names.name_in(parent, name) {
            Ok(name) => name,
            Err(error) => return Some(Err(error)),
        };
        let now_ms = names.now_ms();
        let mut table = names.table();
        let status = table.known(parent, name, now_ms, names.lifetimes)?;
        let node = names.looked_up(&mut table, parent, name, status);
        // What is known may be of the version before.
        if let Ok(node) = &node
            && !names.knows_posix(&table, node.id)
        {
            table.forget(node.id, 1, now_ms);
            return None;
        }
        names.counters.answered.count();
        Some(node)
    }

    fn negative_lifetime(&self) -> Duration {
        // The tree believes it for the other half.
        self.names.config.negative_lifetime / 2
    }

    fn attributes(&self, node: u64) -> Result<Node, FsError> {
        if let Some(answer) = self.attributes_known(node) {
            return answer;
        }
        let inode = self.names.table().get(node).map(|inode| (inode.parent, inode.name.clone(), inode.kind));
        let (parent, name, kind) = inode.ok_or_else(|| FsError::of(libc::ESTALE))?;
        let known = match self.names.table().is_written(node) || node == ROOT {
            true => self.names.node_of(&mut self.names.table(), node),
            false => None,
        };
        let node = match known {
            Some(known) => known,
            None => {
                let status = self.lookups.resolve(parent, &name)?;
                self.names.refreshed(&mut self.names.table(), node, (parent, &name, kind), status)?
            }
        };
        self.described(node)
    }

    fn attributes_known(&self, node: u64) -> Option<Result<Node, FsError>> {
        let names = &self.names;
        let now_ms = names.now_ms();
        let mut table = names.table();
        // A file that is being written has the attributes of its writer, also when its name is gone.
        if node == ROOT || table.is_written(node) {
            return names.node_of(&mut table, node).filter(|_| names.knows_posix(&table, node)).map(Ok);
        }
        let current = table.get(node).filter(|inode| !inode.is_replaced());
        let Some(inode) = current else { return Some(Err(FsError::of(libc::ESTALE))) };
        let (parent, name, kind) = (inode.parent, inode.name.clone(), inode.kind);
        let status = table.known(parent, &name, now_ms, names.lifetimes)?;
        let refreshed = names.refreshed(&mut table, node, (parent, &name, kind), status);
        if refreshed.is_ok() && !names.knows_posix(&table, node) {
            return None;
        }
        names.counters.answered.count();
        Some(refreshed)
    }

    fn forget(&self, node: u64, times: u64) {
        let now_ms = self.names.now_ms();
        let mut table = self.names.table();
        table.forget(node, times, now_ms);
        self.names.settle(&mut table);
    }

    fn open_folder(&self, node: u64) -> Result<u64, FsError> {
        match self.names.table().get(node).map(|inode| inode.kind) {
            None => return Err(FsError::of(libc::ESTALE)),
            Some(FileKind::File) => return Err(FsError::of(libc::ENOTDIR)),
            Some(FileKind::Folder) => {}
        }
        self.names.table().pin(node);
        self.ahead.on_folder_opened(node);
        Ok(self.folders.handles.add(OpenFolder::new(node)))
    }

    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), FsError> {
        let folder = self.folders.handles.get(handle)?;
        if offset == 0 {
            folder.rewind();
        }
        if !self.names.kept.is_on() {
            return self.read_entries(&folder, offset, plus, each);
        }
        let mut last = None;
        let read = self.read_entries(&folder, offset, plus, &mut |entry| {
            let taken = each(entry);
            if taken {
                last = entry.name.to_str().map(|name| (entry.next, Box::from(name)));
            }
            taken
        });
        if let Some((offset, name)) = last {
            let is_local = folder.is_behind_listing(offset);
            let places = folder.read_to(FolderPlace { offset, is_local, name });
            self.names.kept.folder_places(handle, &places);
        }
        read
    }

    fn release_folder(&self, handle: u64) {
        if let Some(folder) = self.folders.handles.remove(handle) {
            let ino = folder.ino;
            // Its listing may go with it.
            drop(folder);
            self.names.kept.folder_gone(handle);
            self.names.unpin(ino);
        }
    }

    fn open(&self, node: u64, mode: OpenMode, caller: Caller) -> Result<OpenedFile, FsError> {
        if let Some(answer) = self.open_known(node, mode) {
            return answer;
        }
        if let Some(opened) = self.writers.open_written(node, mode, caller) {
            return Ok(opened);
        }
        // What is replaced need not be known.
        if !mode.truncates {
            self.files.update(node)?;
        }
        if mode.changes() {
            // What is written keeps them.
            self.names.learn_posix(&[node])?;
        }
        match mode.changes() {
            true => self.writers.open_to_write(node, OpenMode { writes: true, ..mode }, caller),
            false => self.files.open_version(node, mode.direct),
        }
    }

    fn open_known(&self, node: u64, mode: OpenMode) -> Option<Result<OpenedFile, FsError>> {
        let names = &self.names;
        let now_ms = names.now_ms();
        let mut table = names.table();
        let Some(inode) = table.get(node) else { return Some(Err(FsError::of(libc::ESTALE))) };
        if inode.kind == FileKind::Folder {
            return Some(Err(FsError::of(libc::EISDIR)));
        }
        if mode.changes() || table.is_written(node) {
            return None;
        }
        // Also where the version was replaced: the lookup that follows must find the version of now, or its
        // open is stale again.
        if names.config.close_to_open {
            return None;
        }
        if inode.is_replaced() {
            return Some(Err(FsError::of(libc::ESTALE)));
        }
        let (parent, name) = (inode.parent, inode.name.clone());
        match table.known(parent, &name, now_ms, names.lifetimes)? {
            NameStatus::Present(FileKind::File, fact) => {
                let kept = table.keep(parent, &name, FileKind::File, fact);
                table.rest(kept, now_ms);
            }
            // A folder has come in its location, or nothing is there.
            _ => return Some(Err(FsError::absent())),
        }
        drop(table);
        names.counters.answered.count();
        Some(self.files.open_version(node, mode.direct))
    }

    fn create(
        &self,
        parent: u64,
        name: &OsStr,
        exclusive: bool,
        mode: OpenMode,
        caller: Caller,
    ) -> Result<(Node, OpenedFile), FsError> {
        let name = self.changes.new_name(parent, name, FileKind::File)?;
        match self.lookups.resolve(parent, name)? {
            NameStatus::Present(..) if exclusive => Err(FsError::of(libc::EEXIST)),
            NameStatus::Present(FileKind::Folder, _) => Err(FsError::of(libc::EISDIR)),
            NameStatus::Present(FileKind::File, fact) => {
                let status = NameStatus::Present(FileKind::File, fact);
                let node = self.names.looked_up(&mut self.names.table(), parent, name, status)?;
                let opened = self.open(node.id, mode, caller).inspect_err(|_| self.forget(node.id, 1))?;
                Ok((node, opened))
            }
            NameStatus::Absent(_) => {
                self.names.learn_posix(&[parent])?;
                self.writers.create((parent, name), exclusive, mode, caller)
            }
        }
    }

    fn write_known(
        &self,
        handle: u64,
        at: u64,
        bytes: &[u8],
        caller: Caller,
    ) -> Option<Result<bool, FsError>> {
        self.writers.write_known(handle, at, bytes, caller)
    }

    fn write(
        &self,
        handle: u64,
        at: u64,
        bytes: &[u8],
        caller: Caller,
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, FsError> {
        self.writers.write(handle, at, bytes, caller, goes_on)
    }

    fn flush(&self, handle: u64, caller: Caller) -> Result<(), FsError> {
        self.writers.flush(handle, caller)
    }

    fn flush_known(&self, handle: u64, caller: Caller) -> Option<Result<(), FsError>> {
        self.writers.flush_known(handle, caller)
    }

    fn sync(&self, handle: u64) -> Result<(), FsError> {
        self.writers.sync(handle)
    }

    fn is_written(&self, handle: u64, at: u64, bytes: usize) -> bool {
        self.writers.has_to_be_asked(handle, at, bytes)
    }

    fn read_written(&self, handle: u64, at: u64, bytes: usize) -> Result<Vec<u8>, FsError> {
        self.writers.read(handle, at, bytes)
    }

    fn change_attributes(&self, node: u64, changes: AttributeChanges) -> Result<Node, FsError> {
        let known = self.attributes(node)?;
        self.changes.change_attributes(node, changes, known)?;
        self.attributes(node)
    }

    fn remove_file(&self, parent: u64, name: &OsStr) -> Result<(), FsError> {
        self.changes.remove_file(parent, name)
    }

    fn make_folder(
        &self,
        parent: u64,
        name: &OsStr,
        permissions: u32,
        caller: Caller,
    ) -> Result<Node, FsError> {
        self.changes.make_folder(parent, name, permissions, caller)
    }

    fn make_link(&self, parent: u64, name: &OsStr, target: &OsStr, caller: Caller) -> Result<Node, FsError> {
        self.changes.make_link(parent, name, target, caller)
    }

    fn read_link(&self, node: u64) -> Result<Vec<u8>, FsError> {
        self.changes.read_link(node)
    }

    fn has_xattrs(&self) -> bool {
        self.names.keeps_attributes()
    }

    fn xattr(&self, node: u64, name: &OsStr) -> Result<Vec<u8>, FsError> {
        let posix = self.changes.posix_of(node)?;
        let value = name.to_str().and_then(|name| posix.xattrs.get(name));
        value.cloned().ok_or_else(|| FsError::of(libc::ENODATA))
    }

    fn xattrs(&self, node: u64) -> Result<Vec<String>, FsError> {
        Ok(self.changes.posix_of(node)?.xattrs.keys().cloned().collect())
    }

    fn set_xattr(
        &self,
        node: u64,
        name: &OsStr,
        value: Option<&[u8]>,
        needs: XattrNeeds,
    ) -> Result<(), FsError> {
        let name = name.to_str().filter(|name| self.has_xattrs() && name.starts_with("user."));
        let name = name.ok_or_else(|| FsError::of(libc::EOPNOTSUPP))?;
        self.changes.describe(node, |posix| {
            let there = posix.xattrs.contains_key(name);
            match (needs, value) {
                (XattrNeeds::Absent, _) if there => Err(FsError::of(libc::EEXIST)),
                (XattrNeeds::Present, _) | (_, None) if !there => Err(FsError::of(libc::ENODATA)),
                (_, Some(value)) => {
                    posix.xattrs.insert(name.to_owned(), value.to_vec());
                    Ok(())
                }
                (_, None) => {
                    posix.xattrs.remove(name);
                    Ok(())
                }
            }
        })
    }

    fn remove_folder(&self, parent: u64, name: &OsStr) -> Result<(), FsError> {
        self.changes.remove_folder(parent, name)
    }

    fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), exclusive: bool) -> Result<(), FsError> {
        self.changes.rename(from, to, exclusive)
    }

    fn read(
        &self,
        handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        self.read_version(handle, at, bytes, done)
    }

    fn release(&self, handle: u64) -> Result<(), FsError> {
        let Some(file) = self.files.handles.remove(handle) else { return Ok(()) };
        let (ino, published) = (file.ino, self.writers.release(&file));
        // The last handle of a version drops what was read ahead, which must happen without a lock.
        drop(file);
        self.names.kept.file_gone(handle);
        self.names.unpin(ino);
        published
    }

    fn release_unopened(&self, handle: u64) -> Result<(), FsError> {
        if let Ok(file) = self.files.handles.get(handle) {
            self.writers.give_up(&file);
        }
        self.release(handle)
    }

    fn release_waits(&self, handle: u64) -> bool {
        self.writers.release_waits(handle)
    }

    fn keep_file(&self, handle: u64, request: u64) {
        if self.names.kept.is_on()
            && let Ok(file) = self.files.handles.get(handle)
        {
            file.keep_as(self.names.kept.clone(), handle, request);
        }
    }

    fn keep_folder(&self, handle: u64, request: u64) {
        if let Ok(folder) = self.folders.handles.get(handle) {
            self.names.kept.folder(handle, folder.ino, request);
        }
    }

    fn take_back(&self, request: u64) {
        let (file, folder) = {
            let mut left = self.left();
            (left.files.remove(&request), left.folders.remove(&request))
        };
        if let Some(handle) = file {
            // Nobody hears of an error: nothing was written by it.
            let _ = self.release_unopened(handle);
        }
        if let Some(handle) = folder {
            self.release_folder(handle);
        }
    }

    fn was_renamed(&self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Result<bool, FsError> {
        self.changes.was_renamed(from, to)
    }

    fn statfs(&self) -> Statfs {
        STATFS
    }
}

impl<S: ObjectStore> Drop for TreeOf<S> {
    fn drop(&mut self) {
        self.ahead.close();
    }
}
