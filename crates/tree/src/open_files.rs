//! Files that are open: the version each was opened at, and no other.

use std::sync::Arc;

use flatout_engine::ErrorKind;

use crate::attributes::{FileKind, Opened, Source};
use crate::etag::Etag;
use crate::fact::Fact;
use crate::fault::Fault;
use crate::flights::Flights;
use crate::handles::Handles;
use crate::listing::Answer;
use crate::namespace::Namespace;
use crate::page::Said;
use crate::series;
use crate::store::{Content, Store, Version};

pub(crate) struct OpenFiles<S: Store> {
    names: Arc<Namespace<S>>,
    /// HEADs in flight, by inode.
    heads: Flights<u64, Result<(), Fault>>,
    pub(crate) handles: Handles<OpenFile<S::Content>>,
}

pub(crate) struct OpenFile<C> {
    /// Stands for this version alone. Once another is known, nothing more is read by it.
    pub(crate) ino: u64,
    pub(crate) content: C,
}

impl<S: Store> OpenFiles<S> {
    pub(crate) fn new(names: Arc<Namespace<S>>) -> OpenFiles<S> {
        OpenFiles { names, heads: Flights::new(), handles: Handles::new() }
    }

    /// Asks the origin which version there is now.
    pub(crate) fn update(&self, ino: u64) -> Result<(), Fault> {
        // With close-to-open, only an answer to a question that was asked after this open counts.
        let age_ms = if self.names.config.close_to_open { 0 } else { self.names.lifetimes.attributes_ms };
        let (answer, joined) = self.heads.join(&ino, self.names.now_ms(), age_ms, || self.ask_head(ino));
        if joined {
            self.names.counters.joined.count();
        }
        answer
    }

    fn ask_head(&self, ino: u64) -> Result<(), Fault> {
        let stale = || Fault::of(libc::ESTALE);
        let (parent, name, object) = {
            let table = self.names.table();
            let inode = table.get(ino).ok_or_else(stale)?;
            let object = self.names.object(&table, inode.parent, &inode.name)?;
            (inode.parent, inode.name.clone(), object)
        };
        let told_ms = self.names.now_ms();
        self.names.counters.heads.count();
        let head = self.names.store.head(&object);
        let mut table = self.names.table();
        match head {
            Ok(head) => {
                let fact = Fact {
                    size: head.size,
                    told_ms,
                    etag: Etag::of(head.etag.as_deref()),
                    modified_s: u32::try_from(head.modified_s).unwrap_or(u32::MAX),
                    source: Source::Head,
                };
                // Where no file is known under the name, as after a read that found its version gone, this does not put one
                // there: a folder may hide it.
                if table.find(parent, FileKind::File, &name).is_some() {
                    let kept = table.keep(parent, &name, FileKind::File, fact);
                    table.rest(kept, told_ms);
                }
                Ok(())
            }
            Err(why) => {
                self.names.counters.failures.count();
                // A folder may stand there still.
                if why.kind() == ErrorKind::NotFound {
                    table.distrust(parent, &name, told_ms);
                }
                Err(why.into())
            }
        }
    }

    /// A handle on the version that is known; none where that is another than was opened by this inode before.
    pub(crate) fn open_version(&self, ino: u64, direct: bool) -> Result<Opened, Fault> {
        let (parent, name, version, is_news) = {
            let mut table = self.names.table();
            let current = table.get(ino).filter(|inode| !inode.is_replaced());
            let inode = current.ok_or_else(|| Fault::of(libc::ESTALE))?;
            let location = self.names.object(&table, inode.parent, &inode.name)?;
            let opens = (inode.parent, inode.name.clone(), inode.fact.version(location), inode.is_news);
            table.open(ino);
            opens
        };
        let is_large = self.names.config.direct_bytes.is_some_and(|least| version.size >= least);
        // Nothing tells its versions apart: what one handle leaves in the page cache is not for another.
        let is_nameless = version.etag.is_none() && version.modified_s.is_none();
        let content = match self.names.store.content(version) {
            Ok(content) => content,
            Err(why) => {
                self.names.unpin(ino);
                return Err(why.into());
            }
        };
        if let Some(next) = series::next(&name) {
            let names = Arc::downgrade(&self.names);
            content.set_next(move || sibling(&*names.upgrade()?, parent, &next));
        }
        let handle = self.handles.add(OpenFile { ino, content });
        let direct = direct || is_large || is_nameless;
        Ok(Opened { handle, direct, keep_cache: !is_nameless, is_news })
    }
}

/// A file as its folder's listing shows it: nothing is asked.
fn sibling<S: Store>(names: &Namespace<S>, parent: u64, name: &str) -> Option<Version> {
    let table = names.table();
    let listing = table.get(parent)?.folder.as_ref()?.listing.clone()?;
    let location = names.object(&table, parent, name).ok()?;
    drop(table);
    match listing.find(name) {
        Answer::There(said @ Said::File { .. }, told_ms) => {
            Some(Fact::of_said(said, told_ms).1.version(location))
        }
        _ => None,
    }
}
