//! Names that this mount changes: files removed, folders made and removed, either renamed, attributes set.

mod new_names;
mod posix;
mod size;

use std::ffi::OsStr;
use std::sync::Arc;

use flatout_engine::{Entry, Error, ErrorKind, setting, setting_to, text};
use flatout_wire::location::Location;
use flatout_wire::object_options::Condition;

use crate::attributes::{AttributeChanges, Caller, FileKind, Node, TimeChange};
use crate::config::AttributeKeeping;
use crate::fact::{Fact, NameStatus};
use crate::folder_location::{FolderLocation, unlisted};
use crate::folder_rename::{FolderRename, RenameRecord, rename};
use crate::fs_error::FsError;
use crate::lookup::Lookups;
use crate::namespace::Namespace;
use crate::posix::{Posix, Time};
use crate::store::ObjectStore;
use crate::writers::Writers;

/// Entries of a page that tells whether a folder is empty: its marker, and one more.
const ENTRIES_TO_TELL: u32 = 2;
/// Times that differ by no more are one: origins tell whole seconds.
const TIMES_APART_S: i64 = 2;

pub(crate) struct Changes<S: ObjectStore> {
    pub(crate) names: Arc<Namespace<S>>,
    pub(crate) lookups: Arc<Lookups<S>>,
    pub(crate) writers: Arc<Writers<S>>,
}

impl<S: ObjectStore> Changes<S> {
    /// What is in a folder that is being renamed is at two places.
    ///
    /// # Errors
    /// `EBUSY`.
    fn check_not_moving(&self, folder: u64) -> Result<(), FsError> {
        match self.names.table().is_moving(folder) {
            true => Err(FsError::of(libc::EBUSY)),
            false => Ok(()),
        }
    }

    pub(crate) fn remove_file(&self, parent: u64, name: &OsStr) -> Result<(), FsError> {
        self.check_not_moving(parent)?;
        let name = self.names.name_in(parent, name)?;
        match self.lookups.resolve(parent, name)? {
            NameStatus::Present(FileKind::File, _) => {}
            NameStatus::Present(FileKind::Folder, _) => return Err(FsError::of(libc::EISDIR)),
            NameStatus::Absent(_) => return Err(FsError::absent()),
        }
        let (location, ino) = {
            let table = self.names.table();
            (self.names.object(&table, parent, name)?, table.find(parent, FileKind::File, name))
        };
        let _moving = ino.map(|ino| Moving::begin(&self.names, ino));
        let writer = ino.and_then(|ino| self.writers.of(ino));
        let named = ino.zip(writer.as_ref());
        let _removal = named.map(|(ino, writer)| self.writers.begin_removal(ino, writer));
        let mut work = writer.as_ref().map(|writer| writer.work());
        let is_at_origin = work.as_ref().is_none_or(|work| work.is_at_origin());
        if is_at_origin {
            self.names.store.delete(&location)?;
        }
        if let Some(work) = &mut work {
            work.remove_name(&self.writers.buffers);
        }
        drop(work);
        self.on_removed(parent, name, FileKind::File);
        Ok(())
    }

    /// A name is gone. The folder that it was in stays, although no key may say so any more.
    fn on_removed(&self, parent: u64, name: &str, kind: FileKind) {
        let now_ms = self.names.now_ms();
        let mut table = self.names.table();
        table.removed(parent, name, kind, now_ms);
        self.names.touch(&mut table, &[parent]);
        table.keep_emptied(parent, now_ms);
        self.names.settle(&mut table);
    }

    pub(crate) fn make_folder(
        &self,
        parent: u64,
        name: &OsStr,
        permissions: u32,
        caller: Caller,
    ) -> Result<Node, FsError> {
        self.check_not_moving(parent)?;
        let name = self.new_name(parent, name, FileKind::Folder)?;
        let asked_ms = match self.lookups.resolve(parent, name)? {
            NameStatus::Present(..) => return Err(FsError::of(libc::EEXIST)),
            NameStatus::Absent(asked_ms) => asked_ms,
        };
        let location = self.names.location_of(&self.names.table(), parent)?;
        let FolderLocation::Prefix(folder) = &location else { return Err(FsError::of(libc::EPERM)) };
        let posix = self.made(parent, FileKind::Folder, permissions, caller)?;
        let now = Time { s: i64::from(now_s(&self.names)), ns: 0 };
        let posix = posix.map(|posix| Posix { changed: Some(now), ..posix });
        let markers = self.names.config.folder_markers || posix.is_some();
        if markers {
            let key = format!("{}{name}/", folder.key());
            let marker = folder.with_key(key).ok_or_else(unlisted)?;
            let options = Posix::options_of(posix.as_ref(), FileKind::Folder);
            self.names.store.put(&marker, Arc::default(), &options, Condition::None)?;
        }
        let now_ms = self.names.now_ms();
        let mut table = self.names.table();
        let ino = table.keep(parent, name, FileKind::Folder, Fact::folder(now_ms));
        table.rewrite(ino, Fact { modified_s: now_s(&self.names), ..Fact::folder(now_ms) });
        table.set_made_here(ino, !markers, now_ms);
        // Nothing had the name when it was asked for: the folder is empty.
        table.set_listing(ino, Arc::new(self.names.empty_listing(asked_ms)));
        if let Some(posix) = posix {
            self.names.set_posix(&mut table, ino, Arc::new(posix), &Fact::folder(now_ms), now_ms);
        }
        self.names.touch(&mut table, &[parent]);
        let status = NameStatus::Present(FileKind::Folder, Fact::folder(now_ms));
        self.names.looked_up(&mut table, parent, name, status)
    }

    pub(crate) fn remove_folder(&self, parent: u64, name: &OsStr) -> Result<(), FsError> {
        self.check_not_moving(parent)?;
        let name = self.names.name_in(parent, name)?;
        let ino = self.folder(parent, name)?;
        if let Some(marker) = self.check_empty(ino)? {
            self.names.store.delete(&marker)?;
        }
        self.on_removed(parent, name, FileKind::Folder);
        Ok(())
    }

    /// The inode of a folder.
    fn folder(&self, parent: u64, name: &str) -> Result<u64, FsError> {
        match self.lookups.resolve(parent, name)? {
            NameStatus::Present(FileKind::Folder, fact) => {
                Ok(self.names.table().keep(parent, name, FileKind::Folder, fact))
            }
            NameStatus::Present(FileKind::File, _) => Err(FsError::of(libc::ENOTDIR)),
            NameStatus::Absent(_) => Err(FsError::absent()),
        }
    }

    /// Asks whether a folder is empty; its marker, if it has one.
    ///
    /// # Errors
    /// `ENOTEMPTY`, the origin's refusal.
    fn check_empty(&self, ino: u64) -> Result<Option<Location>, FsError> {
        let location = {
            let table = self.names.table();
            if !table.local_names(ino).is_empty() {
                return Err(FsError::of(libc::ENOTEMPTY));
            }
            self.names.location_of(&table, ino)?
        };
        let FolderLocation::Prefix(folder) = location else { return Err(FsError::of(libc::ENOTEMPTY)) };
        if folder.key().is_empty() {
            // A bucket.
            return Err(FsError::of(libc::ENOTEMPTY));
        }
        self.look_for_objects(&folder)
    }

    /// As [`Changes::check_empty`], by the origin alone.
    fn look_for_objects(&self, folder: &Location) -> Result<Option<Location>, FsError> {
        let mut pages = self.names.store.list(folder, Some(ENTRIES_TO_TELL))?;
        let mut marker = None;
        loop {
            self.names.counters.lookups.count();
            let (entries, is_last) = pages.next_page()?;
            for entry in entries {
                match entry {
                    Entry::Object(object) if object.key == folder.key() => marker = Some(folder.clone()),
                    _ => return Err(FsError::of(libc::ENOTEMPTY)),
                }
            }
            if is_last {
                return Ok(marker);
            }
        }
    }

    pub(crate) fn rename(
        &self,
        (from_parent, from_name): (u64, &OsStr),
        (to_parent, to_name): (u64, &OsStr),
        exclusive: bool,
    ) -> Result<(), FsError> {
        self.check_not_moving(from_parent)?;
        self.check_not_moving(to_parent)?;
        let from = (from_parent, self.names.name_in(from_parent, from_name)?);
        let to = (to_parent, self.new_name(to_parent, to_name, FileKind::File)?);
        let status = self.lookups.resolve(from.0, from.1)?;
        if !matches!(status, NameStatus::Present(FileKind::File, _)) {
            // Before the new name is looked at: half of the objects may have it.
            self.check_none_is_ending(from, to)?;
        }
        let NameStatus::Present(kind, fact) = status else {
            return Err(FsError::absent());
        };
        if from == to {
            return Ok(());
        }
        let there = match self.lookups.resolve(to.0, to.1)? {
            NameStatus::Present(..) if exclusive => return Err(FsError::of(libc::EEXIST)),
            NameStatus::Present(kind, _) => Some(kind),
            NameStatus::Absent(_) => None,
        };
        {
            let table = self.names.table();
            let folder = |(parent, name): (u64, &str)| table.find(parent, FileKind::Folder, name);
            // Into itself, or onto a folder that it lies in.
            if kind == FileKind::Folder && folder(from).is_some_and(|ino| table.is_within(to.0, ino)) {
                return Err(FsError::of(libc::EINVAL));
            }
            if there.is_some() && folder(to).is_some_and(|ino| table.is_within(from.0, ino)) {
                return Err(FsError::of(libc::ENOTEMPTY));
            }
        }
        match (kind, there) {
            (FileKind::File, Some(FileKind::Folder)) => Err(FsError::of(libc::EISDIR)),
            (FileKind::Folder, Some(FileKind::File)) => Err(FsError::of(libc::ENOTDIR)),
            (FileKind::File, _) => self.rename_file(from, to, fact, exclusive),
            (FileKind::Folder, _) => self.rename_folder(from, to, fact, there.is_some()),
        }
    }

    /// Refuses the rename of a folder as long as renames that another process has left are being ended.
    fn check_none_is_ending(&self, from: (u64, &str), to: (u64, &str)) -> Result<(), FsError> {
        if !self.names.config.rename_journal.as_ref().is_some_and(|journal| journal.is_ending_others()) {
            return Ok(());
        }
        let now_ms = self.names.now_ms();
        let mut table = self.names.table();
        // What is known of them may be of the middle.
        table.doubt(from.0, from.1, now_ms);
        table.doubt(to.0, to.1, now_ms);
        let cause = "renames that a killed mount has left are still being ended";
        let FolderLocation::Prefix(above) = self.names.location_of(&table, from.0)? else {
            return Err(FsError::of(libc::EBUSY));
        };
        Err(busy(&above, cause, "try again in a moment"))
    }

    /// Whether the old name is gone and the new one there, as after this rename. Its inode has the new name
    /// then.
    pub(crate) fn was_renamed(
        &self,
        (from_parent, from_name): (u64, &OsStr),
        (to_parent, to_name): (u64, &OsStr),
    ) -> Result<bool, FsError> {
        let from = (from_parent, self.names.name_in(from_parent, from_name)?);
        let to = (to_parent, self.names.name_in(to_parent, to_name)?);
        let NameStatus::Absent(_) = self.lookups.resolve(from.0, from.1)? else { return Ok(false) };
        let NameStatus::Present(kind, _) = self.lookups.resolve(to.0, to.1)? else { return Ok(false) };
        let now_ms = self.names.now_ms();
        let mut table = self.names.table();
        if let Some(ino) = table.find(from.0, kind, from.1) {
            table.rename(ino, to, now_ms);
        }
        Ok(true)
    }

    fn rename_file(
        &self,
        from: (u64, &str),
        to: (u64, &str),
        fact: Fact,
        exclusive: bool,
    ) -> Result<(), FsError> {
        let store = &self.names.store;
        let (source, target, ino, replaced) = {
            let mut table = self.names.table();
            let source = self.names.object(&table, from.0, from.1)?;
            let target = self.names.object(&table, to.0, to.1)?;
            let ino = table.keep(from.0, from.1, FileKind::File, fact);
            // It must not go before it has its new name.
            table.pin(ino);
            (source, target, ino, table.find(to.0, FileKind::File, to.1))
        };
        let _pinned = Pinned { names: &self.names, ino };
        let _moving = [Some(ino), replaced].map(|ino| ino.map(|ino| Moving::begin(&self.names, ino)));
        let (writer, other) = (self.writers.of(ino), replaced.and_then(|replaced| self.writers.of(replaced)));
        let named = replaced.zip(other.as_ref());
        let _removal = named.map(|(replaced, other)| self.writers.begin_removal(replaced, other));
        // Whoever writes the name that is replaced publishes before the copy, or never. Two renames that
        // cross each other wait in one order.
        let (mut work, mut replaced_work);
        if replaced.is_some_and(|replaced| replaced < ino) {
            replaced_work = other.as_ref().map(|writer| writer.work());
            work = writer.as_ref().map(|writer| writer.work());
        } else {
            work = writer.as_ref().map(|writer| writer.work());
            replaced_work = other.as_ref().map(|writer| writer.work());
        }
        if let Some(work) = &mut work {
            self.writers.publish(ino, work)?;
        }
        let condition = if exclusive { Condition::Absent } else { Condition::None };
        let notes = self.names.config.upload_notes.clone();
        let copied = store.copy(&source, &target, condition, self.names.keeps_attributes(), notes)?;
        if let Some(replaced_work) = &mut replaced_work {
            replaced_work.remove_name(&self.writers.buffers);
        }
        self.writers.on_moved(ino, &target, &copied.stored);
        let deleted = match &copied.from_etag {
            Some(etag) => store.delete_version(&source, etag),
            None => store.delete(&source),
        };
        let now_ms = self.names.now_ms();
        if let Err(error) = deleted {
            let mut table = self.names.table();
            table.doubt(from.0, from.1, now_ms);
            table.doubt(to.0, to.1, now_ms);
            return Err(error.into());
        }
        {
            let mut table = self.names.table();
            let inode = table.get(ino);
            let is_of_copy = inode.is_some_and(|inode| {
                inode.fact.etag.sent() == copied.from_etag && copied.from_etag.is_some()
            });
            // What another client has put there meanwhile has attributes of its own.
            let mut posix = self.names.posix(&table, ino).filter(|_| is_of_copy);
            let modified_s = inode.map_or(0, |inode| table.known_fact(inode).modified_s);
            // As the copy says it.
            posix.iter_mut().for_each(|posix| Arc::make_mut(posix).keep_time(modified_s));
            table.rename(ino, to, now_ms);
            self.names.rewrite_described(&mut table, ino, self.writers.fact(&copied.stored), posix);
            self.names.touch(&mut table, &[from.0, to.0]);
            if from.0 != to.0 {
                table.keep_emptied(from.0, now_ms);
            }
        }
        if let Some(work) = &mut work {
            work.moved(&target, &copied.stored);
        }
        Ok(())
    }

    fn rename_folder(
        &self,
        from: (u64, &str),
        to: (u64, &str),
        fact: Fact,
        is_there: bool,
    ) -> Result<(), FsError> {
        let (ino, source, target) = {
            let mut table = self.names.table();
            let ino = table.keep(from.0, from.1, FileKind::Folder, fact);
            let source = self.names.location_of(&table, ino)?;
            let above = self.names.location_of(&table, to.0)?;
            let (FolderLocation::Prefix(source), FolderLocation::Prefix(above)) = (source, above) else {
                return Err(FsError::of(libc::EPERM));
            };
            if source.key().is_empty() {
                return Err(FsError::of(libc::EPERM));
            }
            let key = format!("{}{}/", above.key(), to.1);
            (ino, source, above.with_key(key).ok_or_else(unlisted)?)
        };
        let _moving = Moving::begin(&self.names, ino);
        if self.names.table().is_moving_below(ino) {
            let cause = "a file in it is being removed or renamed, or its attributes are being changed";
            return Err(busy(&source, cause, "try again when that is done"));
        }
        if self.names.table().is_written_below(ino) {
            return Err(busy(
                &source,
                "a file in it is being written, or waits to be uploaded",
                "close the file first",
            ));
        }
        let replaced = if is_there { Some(self.folder(to.0, to.1)?) } else { None };
        let marker = replaced.map(|replaced| self.check_empty(replaced)).transpose()?.flatten();
        let folder = FolderRename { names: self.names_below(&source)?, source, target };
        let is_empty = folder.names.is_empty();
        let record = if is_empty { None } else { Some(self.begin_record(&folder)?) };
        if let Some(marker) = marker
            && let Err(error) = self.names.store.delete(&marker)
        {
            record.into_iter().for_each(|record| record.ended());
            return Err(error.into());
        }
        if let Some(record) = record
            && let Err(error) = self.move_objects(&folder, record, is_there)
        {
            let now_ms = self.names.now_ms();
            let mut table = self.names.table();
            table.outdate_below(ino, now_ms);
            table.doubt(from.0, from.1, now_ms);
            table.doubt(to.0, to.1, now_ms);
            return Err(error);
        }
        let now_ms = self.names.now_ms();
        let mut table = self.names.table();
        table.rename(ino, to, now_ms);
        self.names.touch(&mut table, &[from.0, to.0]);
        if is_empty {
            table.set_made_here(ino, true, now_ms);
        }
        if from.0 != to.0 {
            table.keep_emptied(from.0, now_ms);
        }
        Ok(())
    }

    /// `was_empty`: the origin has just said so of the target.
    fn move_objects(
        &self,
        folder: &FolderRename,
        record: Box<dyn RenameRecord>,
        was_empty: bool,
    ) -> Result<(), FsError> {
        // Another client may have made it since its name was found missing.
        if !was_empty && let Err(error) = self.look_for_objects(&folder.target) {
            record.ended();
            return Err(error);
        }
        let (keeps_times, notes) = (self.names.keeps_attributes(), self.names.config.upload_notes.clone());
        Ok(rename(&*self.names.store, folder, record, keeps_times, notes)?)
    }

    /// The keys below a folder without its own, its marker included, unless they are more than may be
    /// renamed.
    fn names_below(&self, folder: &Location) -> Result<Vec<String>, FsError> {
        let most = self.names.config.rename_most;
        let mut pages = self.names.store.list_deep(folder)?;
        let mut keys = Vec::new();
        loop {
            let (entries, is_last) = pages.next_page()?;
            let names = entries.iter().filter_map(|entry| entry.name().strip_prefix(folder.key()));
            keys.extend(names.map(str::to_owned));
            if keys.len() as u64 > most {
                return Err(too_many(folder, most));
            }
            if is_last {
                return Ok(keys);
            }
        }
    }

    /// Begins the record of a rename.
    ///
    /// # Errors
    /// `EXDEV`: mv(1) copies then, and leaves nothing that only this mount knows of.
    fn begin_record(&self, rename: &FolderRename) -> Result<Box<dyn RenameRecord>, FsError> {
        let begun = match &self.names.config.rename_journal {
            Some(journal) => journal.begin(rename),
            None => Err(Error::new(ErrorKind::LocalIo, "there is no folder for it")),
        };
        begun.map_err(|error| {
            let cause =
                format!("no record of it can be kept, from which the next mount would end it: {error}");
            let told = Error::new(error.kind(), cause)
                .during("rename", &rename.source)
                .with_hint("name a folder that can be written to by XDG_STATE_HOME or HOME");
            FsError::because(libc::EXDEV, told)
        })
    }

    pub(crate) fn change_attributes(
        &self,
        node: u64,
        changes: AttributeChanges,
        known: Node,
    ) -> Result<(), FsError> {
        let AttributeChanges { size, mode, uid, gid, time, accessed: _ } = changes;
        let shown = known.attributes;
        if let Some(size) = size.filter(|size| *size != shown.size || *size == 0) {
            self.cut(node, size, shown.size)?;
        }
        if self.names.keeps_attributes() {
            return self.change_posix(node, &changes);
        }
        let is_time_kept = match time {
            // A file that changes its size changes its time.
            _ if size.is_some() => true,
            TimeChange::None => true,
            TimeChange::Now => {
                i64::from(now_s(&self.names)).abs_diff(shown.modified_s) <= TIMES_APART_S as u64
            }
            TimeChange::To(time) => time.s == shown.modified_s,
        };
        let is_kept = is_time_kept
            && mode.is_none_or(|mode| mode & 0o7777 == shown.mode & 0o7777)
            && uid.is_none_or(|uid| uid == shown.uid)
            && gid.is_none_or(|gid| gid == shown.gid);
        match is_kept || self.names.config.attributes == AttributeKeeping::Ignore {
            true => Ok(()),
            false => Err(not_kept()),
        }
    }
}

/// Said once for all files: programs that copy set attributes of each.
fn not_kept() -> FsError {
    Error::new(ErrorKind::Unsupported, "an object has no mode, owner or time of its own")
        .during("change attributes", "of a file")
        .with_hint([
            setting_to("attributes", "metadata".to_owned()),
            text(" keeps them in its metadata; "),
            setting_to("attributes", "ignore".to_owned()),
            text(" says that it is done, and does nothing"),
        ])
        .into()
}

fn now_s<S: ObjectStore>(names: &Namespace<S>) -> u32 {
    u32::try_from(names.store.unix_s()).unwrap_or(u32::MAX)
}

fn busy(folder: &Location, cause: &'static str, hint: &'static str) -> FsError {
    let error = Error::new(ErrorKind::Unsupported, cause).during("rename", folder).with_hint(hint);
    FsError::because(libc::EBUSY, error)
}

/// mv(1) copies what cannot be renamed.
fn too_many(folder: &Location, most: u64) -> FsError {
    let cause = format!("the folder has more than {most} objects, and each would be copied");
    let error = Error::new(ErrorKind::Unsupported, cause)
        .during("rename", folder)
        .with_hint([text("allow it with a larger "), setting("rename-limit")]);
    FsError::because(libc::EXDEV, error)
}

/// Keeps an inode for as long as it lives.
struct Pinned<'a, S: ObjectStore> {
    names: &'a Namespace<S>,
    ino: u64,
}

impl<S: ObjectStore> Drop for Pinned<'_, S> {
    fn drop(&mut self) {
        self.names.unpin(self.ino);
    }
}

/// Nobody begins to write a file, or in a folder, for as long as it lives.
struct Moving<'a, S: ObjectStore> {
    names: &'a Namespace<S>,
    ino: u64,
}

impl<S: ObjectStore> Moving<'_, S> {
    fn begin(names: &Namespace<S>, ino: u64) -> Moving<'_, S> {
        names.table().set_moving(ino, true);
        Moving { names, ino }
    }

    /// # Errors
    /// `EBUSY`: it is, or a folder that it is in.
    fn begin_alone(names: &Namespace<S>, ino: u64) -> Result<Moving<'_, S>, FsError> {
        let mut table = names.table();
        if table.is_moving(ino) {
            return Err(FsError::of(libc::EBUSY));
        }
        table.set_moving(ino, true);
        drop(table);
        Ok(Moving { names, ino })
    }
}

impl<S: ObjectStore> Drop for Moving<'_, S> {
    fn drop(&mut self) {
        self.names.table().set_moving(self.ino, false);
    }
}
