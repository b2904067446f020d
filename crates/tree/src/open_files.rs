//! Open files: each reads the version that it was opened at, and no other; or it is written, or reads what is
//! written.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_engine::{ErrorKind, Object};

use crate::attributes::{AttributeSource, FileKind, OpenedFile};
use crate::etag::Etag;
use crate::fact::Fact;
use crate::fs_error::FsError;
use crate::handles::Handles;
use crate::kept::{FileUse, Kept, KeptFile, KeptVersion};
use crate::listing::NameInListing;
use crate::namespace::Namespace;
use crate::page::PageEntry;
use crate::series;
use crate::single_flight::SingleFlight;
use crate::store::{ObjectStore, VersionReader};
use crate::writers::WriteHandle;

pub(crate) struct OpenFiles<S: ObjectStore> {
    names: Arc<Namespace<S>>,
    /// HEADs in flight, by inode.
    heads: SingleFlight<u64, Result<(), FsError>>,
    pub(crate) handles: Handles<OpenFile<S>>,
}

pub(crate) struct OpenFile<S: ObjectStore> {
    /// Stands for this version alone. Once another is known, nothing more is read by it.
    pub(crate) ino: u64,
    content: Mutex<Content<S::VersionReader>>,
    /// The version was replaced by this mount.
    is_stale: AtomicBool,
    pub(crate) written: Option<WriteHandle<S>>,
}

struct Content<R> {
    /// The version that it reads, and how long that is; none of a file that has had none since it was opened.
    read: Option<(R, u64)>,
    /// That version, for another process.
    version: Option<KeptVersion>,
    /// Where it is kept, once the kernel hears of it: its handle, and the request that opened it.
    kept: Option<(Kept, u64, u64)>,
}

impl<S: ObjectStore> OpenFile<S> {
    pub(crate) fn of_version(ino: u64, content: S::VersionReader, object: &Object) -> OpenFile<S> {
        let version = Some(version_of(object));
        OpenFile::of(ino, Content { read: Some((content, object.size)), version, kept: None }, None)
    }

    /// One that writes, or that reads what another writes.
    pub(crate) fn of_written(ino: u64, written: Option<WriteHandle<S>>) -> OpenFile<S> {
        OpenFile::of(ino, Content { read: None, version: None, kept: None }, written)
    }

    fn of(ino: u64, content: Content<S::VersionReader>, written: Option<WriteHandle<S>>) -> OpenFile<S> {
        OpenFile { ino, content: Mutex::new(content), is_stale: AtomicBool::new(false), written }
    }

    fn lock(&self) -> MutexGuard<'_, Content<S::VersionReader>> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The version that it reads, and its length.
    pub(crate) fn content(&self) -> Option<(S::VersionReader, u64)> {
        self.lock().read.clone()
    }

    /// Both of one moment.
    pub(crate) fn content_and_version(&self) -> Option<(S::VersionReader, Option<KeptVersion>)> {
        let known = self.lock();
        known.read.as_ref().map(|(content, _)| (content.clone(), known.version.clone()))
    }

    pub(crate) fn version(&self) -> Option<KeptVersion> {
        self.lock().version.clone()
    }

    /// This mount has made another version, which begins with the bytes of the one that is read.
    pub(crate) fn go_on_with(&self, content: S::VersionReader, object: &Object) {
        if !self.is_stale() {
            let mut known = self.lock();
            known.read = Some((content, object.size));
            known.version = Some(version_of(object));
            self.keep(&known);
        }
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Acquire)
    }

    pub(crate) fn set_stale(&self) {
        self.is_stale.store(true, Ordering::Release);
        self.keep(&self.lock());
    }

    /// Keeps it for another process: the kernel is about to hear of the handle.
    pub(crate) fn keep_as(&self, kept: Kept, handle: u64, request: u64) {
        let mut known = self.lock();
        known.kept = Some((kept, handle, request));
        self.keep(&known);
    }

    fn keep(&self, known: &Content<S::VersionReader>) {
        let Some((kept, handle, request)) = &known.kept else { return };
        let use_ = match (&self.written, &known.version) {
            _ if self.is_stale() => FileUse::Stale,
            (Some(written), _) => written.for_another_process(),
            (None, Some(version)) => FileUse::Reads(version.clone()),
            (None, None) => FileUse::ReadsWriter,
        };
        kept.file(*handle, &KeptFile { ino: self.ino, request: *request, use_ });
    }
}

fn version_of(object: &Object) -> KeptVersion {
    let modified_s = object.modified_s.and_then(|at| i64::try_from(at).ok()).unwrap_or(0);
    KeptVersion::of_object(object, modified_s)
}

impl<S: ObjectStore> OpenFiles<S> {
    pub(crate) fn new(names: Arc<Namespace<S>>) -> OpenFiles<S> {
        OpenFiles { names, heads: SingleFlight::new(), handles: Handles::new() }
    }

    /// Asks the origin which version there is now.
    pub(crate) fn update(&self, ino: u64) -> Result<(), FsError> {
        // With close-to-open, only an answer to a question that was asked after this open counts.
        let age_ms = if self.names.config.close_to_open { 0 } else { self.names.lifetimes.attributes_ms };
        let (answer, joined) = self.heads.join(&ino, self.names.now_ms(), age_ms, || self.ask_head(ino));
        if joined {
            self.names.counters.joined.count();
        }
        answer
    }

    fn ask_head(&self, ino: u64) -> Result<(), FsError> {
        let stale = || FsError::of(libc::ESTALE);
        let (parent, name, object) = {
            let table = self.names.table();
            let inode = table.get(ino).ok_or_else(stale)?;
            let object = self.names.object(&table, inode.parent, &inode.name)?;
            (inode.parent, inode.name.clone(), object)
        };
        let asked_ms = self.names.now_ms();
        self.names.counters.heads.count();
        let head = self.names.store.head(&object);
        let mut table = self.names.table();
        match head {
            Ok(head) => {
                let fact = Fact {
                    size: head.size,
                    asked_ms,
                    etag: Etag::of(head.etag.as_deref()),
                    modified_s: u32::try_from(head.modified_s).unwrap_or(u32::MAX),
                    source: AttributeSource::Head,
                };
                // A HEAD does not make the name a file where none is known, as after a read that found its
                // version gone: a folder may hide the object.
                if table.find(parent, FileKind::File, &name).is_some() {
                    let kept = table.keep(parent, &name, FileKind::File, fact);
                    table.rest(kept, asked_ms);
                }
                Ok(())
            }
            Err(why) => {
                self.names.counters.failures.count();
                // The name may still be a folder.
                if why.kind() == ErrorKind::NotFound {
                    table.distrust(parent, &name, asked_ms);
                }
                Err(why.into())
            }
        }
    }

    /// A handle on the version that is known; `ESTALE` if another was opened by this inode before.
    pub(crate) fn open_version(&self, ino: u64, direct: bool) -> Result<OpenedFile, FsError> {
        let (parent, name, version, has_changed) = {
            let mut table = self.names.table();
            let current = table.get(ino).filter(|inode| !inode.is_replaced());
            let inode = current.ok_or_else(|| FsError::of(libc::ESTALE))?;
            // Somebody has begun to write it since it was looked at: the kernel asks again.
            if table.is_written(ino) {
                return Err(FsError::of(libc::ESTALE));
            }
            let location = self.names.object(&table, inode.parent, &inode.name)?;
            let opens = (inode.parent, inode.name.clone(), inode.fact.version(location), inode.has_changed);
            table.open(ino);
            opens
        };
        let is_large = self.names.config.direct_bytes.is_some_and(|least| version.size >= least);
        // Its versions cannot be told apart, so no handle may use the pages that another left in the page
        // cache.
        let is_nameless = version.etag.is_none() && version.modified_s.is_none();
        let file = match self.reading(ino, (parent, &name), version) {
            Ok(file) => file,
            Err(why) => {
                self.names.unpin(ino);
                return Err(why);
            }
        };
        let handle = self.handles.add(file);
        let direct = direct || is_large || is_nameless;
        Ok(OpenedFile { handle, direct, keep_cache: !is_nameless, has_changed, is_written: false })
    }

    /// A file that reads this version. Nothing is asked.
    pub(crate) fn reading(
        &self,
        ino: u64,
        (parent, name): (u64, &str),
        version: Object,
    ) -> Result<OpenFile<S>, FsError> {
        let content = self.names.store.content(version.clone())?;
        if let Some(next) = series::next(name) {
            let names = Arc::downgrade(&self.names);
            content.set_next(move || sibling(&*names.upgrade()?, parent, &next));
        }
        Ok(OpenFile::of_version(ino, content, &version))
    }
}

/// The version of a file in its folder's listing. Nothing is asked.
fn sibling<S: ObjectStore>(names: &Namespace<S>, parent: u64, name: &str) -> Option<Object> {
    let table = names.table();
    let listing = table.get(parent)?.folder.as_ref()?.listing.clone()?;
    let location = names.object(&table, parent, name).ok()?;
    drop(table);
    match listing.find(name) {
        NameInListing::Present(entry @ PageEntry::File { .. }, asked_ms) => {
            Some(Fact::of_entry(entry, asked_ms).1.version(location))
        }
        _ => None,
    }
}
