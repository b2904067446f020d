//! Files that are open: the version each was opened at, and no other.

use std::sync::Arc;

use flatout_engine::{Error, ErrorKind};

use crate::attributes::{FileKind, Opened, Source};
use crate::etag::Etag;
use crate::fact::{Fact, Finding};
use crate::fault::Fault;
use crate::inodes::Table;
use crate::listing::Answer;
use crate::page::Said;
use crate::series;
use crate::store::{Content, Store, Version};
use crate::tree::Core;

pub(crate) struct OpenFile<C> {
    /// Of this version alone. Once the mount knows of another, nothing more is read by it.
    ino: u64,
    content: C,
}

type Pieces<S> = <<S as Store>::Content as Content>::Pieces;
type Reading<S> = <<S as Store>::Content as Content>::Reading;

impl<S: Store> Core<S> {
    pub(crate) fn open(self: &Arc<Self>, ino: u64, direct: bool) -> Result<Opened, Fault> {
        if let Some(answer) = self.open_known(ino, direct) {
            return answer;
        }
        // With close-to-open only an answer will do that was asked for behind this open.
        let age_ms = if self.config.close_to_open { 0 } else { self.lifetimes.attributes_ms };
        let (answer, joined) = self.heads.join(&ino, self.now_ms(), age_ms, || self.ask_head(ino));
        if joined {
            self.counters.joined.count();
        }
        answer?;
        self.opened(ino, direct)
    }

    pub(crate) fn open_known(self: &Arc<Self>, ino: u64, direct: bool) -> Option<Result<Opened, Fault>> {
        {
            let now_ms = self.now_ms();
            let mut table = self.table();
            let Some(inode) = table.get(ino) else { return Some(Err(Fault::of(libc::ESTALE))) };
            if inode.kind == FileKind::Folder {
                return Some(Err(Fault::of(libc::EISDIR)));
            }
            // Of what was replaced, too: the lookup that follows is to tell the version of now, or its open would be stale again.
            if self.config.close_to_open {
                return None;
            }
            if inode.is_replaced() {
                return Some(Err(Fault::of(libc::ESTALE)));
            }
            let (parent, name) = (inode.parent, inode.name.clone());
            match table.known(parent, &name, now_ms, self.lifetimes)? {
                Finding::There(FileKind::File, fact) => {
                    let kept = table.keep(parent, &name, FileKind::File, fact);
                    table.rest(kept, now_ms);
                }
                // A folder has come in its place, or nothing is there.
                _ => return Some(Err(Fault::absent())),
            }
        }
        self.counters.answered.count();
        Some(self.opened(ino, direct))
    }

    /// Asks for the version of now.
    fn ask_head(&self, ino: u64) -> Result<(), Fault> {
        let stale = || Fault::of(libc::ESTALE);
        let (parent, name, object) = {
            let table = self.table();
            let inode = table.get(ino).ok_or_else(stale)?;
            let object = self.object(&table, inode.parent, &inode.name)?;
            (inode.parent, inode.name.clone(), object)
        };
        let told_ms = self.now_ms();
        self.counters.heads.count();
        let head = self.store.head(&object);
        let mut table = self.table();
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
                self.counters.failures.count();
                // A folder may stand there still.
                if why.kind() == ErrorKind::NotFound {
                    table.distrust(parent, &name, told_ms);
                }
                Err(why.into())
            }
        }
    }

    /// A handle on the version that is known; none where that is another than was opened by this inode before.
    fn opened(self: &Arc<Self>, ino: u64, direct: bool) -> Result<Opened, Fault> {
        let (parent, name, version, is_news) = {
            let mut table = self.table();
            let current = table.get(ino).filter(|inode| !inode.is_replaced());
            let inode = current.ok_or_else(|| Fault::of(libc::ESTALE))?;
            let location = self.object(&table, inode.parent, &inode.name)?;
            let opens = (inode.parent, inode.name.clone(), inode.fact.version(location), inode.is_news);
            table.open(ino);
            opens
        };
        let is_large = self.config.direct_bytes.is_some_and(|least| version.size >= least);
        // Nothing tells its versions apart: what one handle leaves in the page cache is not for another.
        let is_nameless = version.etag.is_none() && version.modified_s.is_none();
        let content = match self.store.content(version) {
            Ok(content) => content,
            Err(why) => {
                let now_ms = self.now_ms();
                self.table().unpin(ino, now_ms);
                return Err(why.into());
            }
        };
        if let Some(next) = series::next(&name) {
            let core = Arc::downgrade(self);
            content.set_next(move || core.upgrade()?.sibling(parent, &next));
        }
        let handle = self.files.add(OpenFile { ino, content });
        let direct = direct || is_large || is_nameless;
        Ok(Opened { handle, direct, keep_cache: !is_nameless, is_news })
    }

    pub(crate) fn read(
        self: &Arc<Self>,
        handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Pieces<S>, Fault>) + Send + 'static,
    ) -> Result<Reading<S>, Fault> {
        let file = self.files.get(handle)?;
        let ino = file.ino;
        if !is_current(&self.table(), ino) {
            return Err(Fault::of(libc::ESTALE));
        }
        let core = Arc::downgrade(self);
        Ok(file.content.read(at, bytes, move |result| {
            let answer = match core.upgrade() {
                Some(core) => core.judge(ino, result),
                None => result.map_err(Fault::from),
            };
            done(answer);
        }))
    }

    /// What a read's end means for the tree. Another version may have been told of since the read began.
    fn judge<T>(&self, ino: u64, result: Result<T, Error>) -> Result<T, Fault> {
        match result {
            Ok(_) if !is_current(&self.table(), ino) => Err(Fault::of(libc::ESTALE)),
            Ok(pieces) => Ok(pieces),
            // An open file that is removed is as good as replaced: its name is to be asked for again.
            Err(why) if matches!(why.kind(), ErrorKind::Changed | ErrorKind::NotFound) => {
                self.counters.replaced.count();
                let now_ms = self.now_ms();
                self.table().retire(ino, now_ms);
                Err(Fault { errno: libc::ESTALE, cause: Some(Arc::new(why)) })
            }
            Err(why) => Err(why.into()),
        }
    }

    pub(crate) fn release(&self, handle: u64) {
        // The last one of a version lets go of what was read ahead: with no lock held.
        if let Some(file) = self.files.remove(handle) {
            let (ino, now_ms) = (file.ino, self.now_ms());
            drop(file);
            let mut table = self.table();
            table.unpin(ino, now_ms);
            self.settle(&mut table);
        }
    }

    /// A file as its folder's listing shows it: nothing is asked.
    fn sibling(&self, parent: u64, name: &str) -> Option<Version> {
        let table = self.table();
        let listing = table.get(parent)?.folder.as_ref()?.listing.clone()?;
        let location = self.object(&table, parent, name).ok()?;
        drop(table);
        match listing.find(name) {
            Answer::There(said @ Said::File { .. }, told_ms) => {
                Some(Fact::of_said(said, told_ms).1.version(location))
            }
            _ => None,
        }
    }
}

/// Whether the mount has told of no other version since.
fn is_current(table: &Table, ino: u64) -> bool {
    table.get(ino).is_some_and(|inode| !inode.is_replaced())
}
