//! Lengths that this mount gives to files.

use std::sync::Arc;

use flatout_wire::object_options::Condition;

use super::Changes;
use crate::attributes::FileKind;
use crate::fs_error::FsError;
use crate::posix::Posix;
use crate::store::ObjectStore;
use crate::write_errors::cannot_cut;

impl<S: ObjectStore> Changes<S> {
    pub(super) fn cut(&self, node: u64, size: u64, from: u64) -> Result<(), FsError> {
        let (location, kind) = {
            let table = self.names.table();
            let inode = table.get(node).ok_or_else(|| FsError::of(libc::ESTALE))?;
            (self.names.object(&table, inode.parent, &inode.name)?, inode.kind)
        };
        if kind == FileKind::Folder {
            return Err(FsError::of(libc::EISDIR));
        }
        if size != 0 {
            return match self.names.config.staging {
                Some(_) => self.writers.set_len(node, size),
                None => Err(cannot_cut(&location, from, size)),
            };
        }
        if self.writers.clear(node) {
            return Ok(());
        }
        // It waits to be uploaded, perhaps only since now.
        if self.writers.is_pending(node) {
            return self.writers.set_len(node, 0);
        }
        if from > 0 {
            self.names.learn_posix(&[node])?;
            let mut posix = self.names.posix(&self.names.table(), node);
            if self.names.keeps_attributes() && posix.is_none() {
                return Err(FsError::of(libc::ESTALE));
            }
            posix.iter_mut().for_each(|posix| Arc::make_mut(posix).on_written());
            let options = Posix::options_of(posix.as_deref(), FileKind::File);
            let stored = self.names.store.put(&location, Arc::default(), &options, Condition::None)?;
            self.writers.outdate_readers(node);
            let fact = self.writers.fact(&stored);
            self.names.rewrite_described(&mut self.names.table(), node, fact, posix);
        }
        Ok(())
    }
}
