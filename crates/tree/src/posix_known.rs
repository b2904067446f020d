//! The metadata of names is asked for by a HEAD each, many at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use flatout_engine::ErrorKind;
use flatout_wire::location::Location;

use crate::attributes::{Caller, FileKind};
use crate::config::AttributeKeeping;
use crate::etag::Etag;
use crate::fact::Fact;
use crate::folder_location::FolderLocation;
use crate::fs_error::FsError;
use crate::inodes::InodeTable;
use crate::namespace::Namespace;
use crate::posix::{AS_GROUP, Posix};
use crate::store::{Head, ObjectStore};

/// HEADs at a time.
const AT_ONCE: usize = 64;
/// HEADs for a name whose version changes each time.
const HEADS_MOST: u32 = 4;

impl InodeTable {
    /// A node's metadata, where it is known and not too old.
    pub(crate) fn posix(&self, ino: u64, now_ms: u64, lifetime_ms: u64) -> Option<Arc<Posix>> {
        if let Some(written) = self.written(ino) {
            return written.posix();
        }
        let inode = self.get(ino)?;
        let is_folder = inode.kind == FileKind::Folder;
        self.posix.get(ino, is_folder, &inode.fact, now_ms, lifetime_ms).cloned()
    }

    /// However old it is.
    fn last_posix(&self, ino: u64) -> Option<Arc<Posix>> {
        if let Some(written) = self.written(ino) {
            return written.posix();
        }
        let inode = self.get(ino)?;
        self.posix.last(ino, inode.kind == FileKind::Folder, &inode.fact).cloned()
    }
}

impl<S: ObjectStore> Namespace<S> {
    pub(crate) fn keeps_attributes(&self) -> bool {
        self.config.attributes == AttributeKeeping::Metadata
    }

    /// What is known of a node's metadata; `None` where the origin has to be asked, or nobody keeps any.
    pub(crate) fn posix(&self, table: &InodeTable, ino: u64) -> Option<Arc<Posix>> {
        if !self.keeps_attributes() {
            return None;
        }
        table.posix(ino, self.now_ms(), self.lifetimes.attributes_ms)
    }

    /// What an answer shows: it may have become too old since the answer was begun.
    pub(crate) fn shown_posix(&self, table: &InodeTable, ino: u64) -> Option<Arc<Posix>> {
        self.keeps_attributes().then(|| table.last_posix(ino)).flatten()
    }

    /// Keeps it for a node, of the version that `fact` tells of.
    pub(crate) fn set_posix(
        &self,
        table: &mut InodeTable,
        ino: u64,
        posix: Arc<Posix>,
        fact: &Fact,
        asked_ms: u64,
    ) {
        if table.get(ino).is_some() {
            let ago_s = self.now_ms().saturating_sub(asked_ms) / 1000;
            let asked_s = self.store.unix_s().saturating_sub_unsigned(ago_s);
            table.posix.set(ino, posix, fact, asked_ms, asked_s);
        }
    }

    /// This mount has made a version of a file; `posix` where it is known what its metadata says.
    pub(crate) fn rewrite_described(
        &self,
        table: &mut InodeTable,
        ino: u64,
        fact: Fact,
        posix: Option<Arc<Posix>>,
    ) {
        table.rewrite(ino, fact.clone());
        if let Some(posix) = posix {
            self.set_posix(table, ino, posix, &fact, fact.asked_ms);
        }
    }

    /// Whether the attributes of a node can be told without asking.
    pub(crate) fn knows_posix(&self, table: &InodeTable, ino: u64) -> bool {
        !self.keeps_attributes() || self.posix(table, ino).is_some()
    }

    /// Of what this caller makes in a folder whose metadata is known. One with the set-group-ID bit gives its
    /// group to all that is made in it, and the bit to its folders.
    pub(crate) fn made_by(
        &self,
        caller: Caller,
        permissions: u32,
        kind: FileKind,
        (table, parent): (&InodeTable, u64),
    ) -> Option<Posix> {
        if !self.keeps_attributes() {
            return None;
        }
        let folder = self.posix(table, parent);
        let of_folder =
            |of: fn(&Posix) -> Option<u32>, else_: u32| folder.as_deref().and_then(of).unwrap_or(else_);
        let gives_group = of_folder(|folder| folder.mode, self.config.folder_mode) & AS_GROUP != 0;
        let gid = if gives_group { of_folder(|folder| folder.gid, self.config.gid) } else { caller.gid };
        let bit = if gives_group && kind == FileKind::Folder { AS_GROUP } else { 0 };
        let mode = Some(permissions & 0o7777 | bit);
        Some(Posix { mode, uid: Some(caller.uid), gid: Some(gid), ..Posix::default() })
    }

    /// This mount has changed the names of these folders.
    pub(crate) fn touch(&self, table: &mut InodeTable, folders: &[u64]) {
        if self.keeps_attributes() {
            let now_s = u32::try_from(self.store.unix_s()).unwrap_or(u32::MAX);
            folders.iter().for_each(|folder| table.set_touched(*folder, Some(now_s)));
        }
    }

    /// Asks for the metadata of these nodes, where it is not known; where the origin refuses one of them, for
    /// the others all the same.
    ///
    /// # Errors
    /// The origin is away, or has refused one. A folder without a marker, and an object that is gone, have no
    /// metadata.
    pub(crate) fn learn_posix(&self, nodes: &[u64]) -> Result<(), FsError> {
        if !self.keeps_attributes() {
            return Ok(());
        }
        let wanted: Vec<(u64, Option<Location>)> = {
            let table = self.table();
            let unknown =
                nodes.iter().filter(|ino| table.get(**ino).is_some() && !self.knows_posix(&table, **ino));
            unknown.map(|ino| (*ino, self.described_at(&table, *ino))).collect()
        };
        if wanted.is_empty() {
            return Ok(());
        }
        let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
        let work = || {
            while let Some((ino, location)) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                let Err(error) = self.learn_one(*ino, location.as_ref()) else { continue };
                let is_away = error.is_of_origin_away();
                let mut failure = failure.lock().unwrap_or_else(PoisonError::into_inner);
                if is_away || failure.is_none() {
                    *failure = Some(error);
                }
                if is_away {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..wanted.len().min(AT_ONCE) {
                // Without threads it takes longer.
                let _ = std::thread::Builder::new().name("tree-heads".into()).spawn_scoped(scope, work);
            }
            work();
        });
        match failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn learn_one(&self, ino: u64, location: Option<&Location>) -> Result<(), FsError> {
        for _ in 0..HEADS_MOST {
            let asked_ms = self.now_ms();
            let before = self.table().get(ino).map(|inode| inode.fact.clone());
            let head = match location {
                Some(location) => self.described_head(location)?,
                None => None,
            };
            let posix = head.as_ref().map(|head| Posix::read(&head.metadata, head.content_type.as_deref()));
            let posix = posix.unwrap_or_default();
            let mut table = self.table();
            if let Some(written) = table.written(ino) {
                written.learn_posix(posix);
                return Ok(());
            }
            let Some(fact) = table.get(ino).map(|inode| inode.fact.clone()) else { return Ok(()) };
            let is_as_before = before.is_some_and(|before| {
                (before.etag, before.modified_s) == (fact.etag.clone(), fact.modified_s)
            });
            let is_of_it = |head: &Head| {
                Etag::of(head.etag.as_deref()) == fact.etag && head.modified_s == u64::from(fact.modified_s)
            };
            // Where the object is another by now than is known, its own question is still to come. What was
            // told of meanwhile may be newer than the answer.
            if is_as_before || head.as_ref().is_some_and(is_of_it) {
                self.set_posix(&mut table, ino, Arc::new(posix), &fact, asked_ms);
                return Ok(());
            }
        }
        Err(FsError::of(libc::ESTALE))
    }

    /// `None` where it is not there.
    fn described_head(&self, location: &Location) -> Result<Option<Head>, FsError> {
        self.counters.attribute_heads.count();
        match self.store.head(location) {
            Ok(head) => Ok(Some(head)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => {
                self.counters.failures.count();
                Err(error.into())
            }
        }
    }

    /// The object whose metadata is that of a node; a bucket has none.
    pub(crate) fn described_at(&self, table: &InodeTable, ino: u64) -> Option<Location> {
        let inode = table.get(ino)?;
        match inode.kind {
            FileKind::File => self.object(table, inode.parent, &inode.name).ok(),
            FileKind::Folder => match self.location_of(table, ino).ok()? {
                FolderLocation::Prefix(prefix) => Some(prefix).filter(|prefix| !prefix.key().is_empty()),
                FolderLocation::Buckets(_) => None,
            },
        }
    }
}
