//! Attributes that this mount sets, links that it makes: kept in the metadata of objects.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use flatout_engine::{Error, ErrorKind, setting_to, text};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

use super::{Changes, Moving, now_s};
use crate::attributes::{AttributeChanges, Caller, FileKind, Node, TimeChange};
use crate::fact::NameStatus;
use crate::fs_error::FsError;
use crate::posix::{Posix, Time};
use crate::store::{ObjectStore, Stored};
use crate::version_bytes::read_now;

/// Names and values of metadata together: S3's limit, and that of OSS.
const S3_MOST: usize = 2 << 10;
const OSS_MOST: usize = 8 << 10;
/// Left for the token of an upload.
const TOKEN_BYTES: usize = 64;
/// The longest target of a link (`PATH_MAX`, which counts the NUL at its end).
const TARGET_MOST: u64 = 4095;

impl<S: ObjectStore> Changes<S> {
    /// Sets modes, owners and times.
    pub(super) fn change_posix(&self, node: u64, changes: &AttributeChanges) -> Result<(), FsError> {
        let AttributeChanges { size: _, mode, uid, gid, time, accessed } = *changes;
        if (mode, uid, gid, time, accessed) == (None, None, None, TimeChange::None, TimeChange::None) {
            return Ok(());
        }
        let now = Time { s: i64::from(now_s(&self.names)), ns: 0 };
        let at = |change: TimeChange, before: Option<Time>| match change {
            TimeChange::None => before,
            TimeChange::Now => Some(now),
            TimeChange::To(time) => Some(time),
        };
        self.describe(node, |posix| {
            posix.mode = mode.map(|mode| mode & 0o7777).or(posix.mode);
            posix.uid = uid.or(posix.uid);
            posix.gid = gid.or(posix.gid);
            posix.accessed = at(accessed, posix.accessed);
            posix.modified = at(time, posix.modified);
            Ok(())
        })
    }

    /// Changes what the metadata of a node says. That of a file that is being written changes when it is
    /// published.
    ///
    /// # Errors
    /// `ENOSPC` for more than metadata holds; `EOPNOTSUPP` for a bucket; the origin's refusal.
    pub(crate) fn describe(
        &self,
        node: u64,
        mut change: impl FnMut(&mut Posix) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        self.names.learn_posix(&[node])?;
        let (kind, location) = {
            let table = self.names.table();
            let inode = table.get(node).ok_or_else(|| FsError::of(libc::ESTALE))?;
            (inode.kind, self.names.described_at(&table, node))
        };
        let _moving = match kind {
            FileKind::File => Some(Moving::begin_alone(&self.names, node)?),
            // What is done in a folder meanwhile is not in its way.
            FileKind::Folder => {
                self.check_not_moving(node)?;
                None
            }
        };
        let location = location.ok_or_else(|| no_marker(libc::EOPNOTSUPP))?;
        let changed = |mut posix: Posix, change: &mut dyn FnMut(&mut Posix) -> Result<(), FsError>| {
            change(&mut posix)?;
            posix.changed = Some(Time { s: i64::from(now_s(&self.names)), ns: 0 });
            let options = posix.options(kind);
            check_length(&options, &location)?;
            Ok((posix, options))
        };
        if let Some(done) =
            self.writers.describe(node, &mut |posix| changed(posix, &mut change).map(|it| it.0))
        {
            return done;
        }
        // A writer may have ended since.
        self.names.learn_posix(&[node])?;
        let (etag, posix, touched_s) = {
            let table = self.names.table();
            // Its name is another file's by now.
            let inode = table.get(node).filter(|inode| !inode.is_replaced());
            let inode = inode.ok_or_else(|| FsError::of(libc::ESTALE))?;
            // Another client has replaced it since: what it says now is not known.
            let posix = self.names.posix(&table, node).ok_or_else(|| FsError::of(libc::ESTALE))?;
            let mut posix = (*posix).clone();
            // The object's own time becomes that of the change: what is shown stays.
            if inode.fact.modified_s != 0 {
                posix.keep_time(table.known_fact(inode).modified_s);
            }
            // What changes its names is told by this mount alone until now.
            let touched_s = table.touched_s(node);
            if let Some(touched_s) = touched_s.map(i64::from)
                && posix.changed.is_none_or(|changed| changed.s <= touched_s)
            {
                posix.modified = Some(Time { s: touched_s, ns: 0 });
            }
            (inode.fact.etag.sent(), posix, touched_s)
        };
        let (posix, options) = changed(posix, &mut change)?;
        let stored = match kind {
            FileKind::File => self.names.store.describe(&location, etag.as_deref(), &options)?,
            FileKind::Folder => self.describe_folder(&location, &options)?,
        };
        if kind == FileKind::File {
            self.writers.on_moved(node, &location, &stored);
        }
        self.keep(node, kind, posix, &stored);
        let mut table = self.names.table();
        if kind == FileKind::Folder && table.touched_s(node) == touched_s {
            table.set_touched(node, None);
        }
        Ok(())
    }

    /// Also of a marker that has content, as some programs make them.
    fn describe_folder(&self, marker: &Location, options: &ObjectOptions) -> Result<Stored, Error> {
        match self.names.store.head(marker) {
            Ok(head) => self.names.store.describe(marker, head.etag.as_deref(), options),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.names.store.put(marker, Arc::default(), options, Condition::Absent)
            }
            Err(error) => Err(error),
        }
    }

    fn keep(&self, node: u64, kind: FileKind, posix: Posix, stored: &Stored) {
        let (fact, posix) = (self.writers.fact(stored), Arc::new(posix));
        let mut table = self.names.table();
        match kind {
            FileKind::File => self.names.rewrite_described(&mut table, node, fact, Some(posix)),
            FileKind::Folder => self.names.set_posix(&mut table, node, posix, &fact, fact.asked_ms),
        }
    }

    /// What is said of a name that this caller makes in a folder; `None` where nothing is kept.
    pub(super) fn made(
        &self,
        parent: u64,
        kind: FileKind,
        permissions: u32,
        caller: Caller,
    ) -> Result<Option<Posix>, FsError> {
        self.names.learn_posix(&[parent])?;
        let table = self.names.table();
        Ok(self.names.made_by(caller, permissions, kind, (&table, parent)))
    }

    /// Makes a symbolic link, and counts one lookup of its inode.
    pub(crate) fn make_link(
        &self,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
        caller: Caller,
    ) -> Result<Node, FsError> {
        let made = self.made(parent, FileKind::File, 0o777, caller)?;
        let made = made.ok_or_else(|| no_marker(libc::EOPNOTSUPP))?;
        self.check_not_moving(parent)?;
        let name = self.new_name(parent, name, FileKind::File)?;
        if let NameStatus::Present(..) = self.lookups.resolve(parent, name)? {
            return Err(FsError::of(libc::EEXIST));
        }
        let location = self.names.object(&self.names.table(), parent, name)?;
        let posix = Posix { is_link: true, ..made };
        let bytes = Arc::new(target.as_bytes().to_vec());
        let options = posix.options(FileKind::File);
        let made = self.names.store.put(&location, bytes, &options, Condition::Absent);
        let stored = made.map_err(|error| match error.is_there() {
            true => FsError::because(libc::EEXIST, error),
            false => error.into(),
        })?;
        let fact = self.writers.fact(&stored);
        let mut table = self.names.table();
        let ino = table.keep(parent, name, FileKind::File, fact.clone());
        self.names.rewrite_described(&mut table, ino, fact.clone(), Some(Arc::new(posix)));
        self.names.touch(&mut table, &[parent]);
        self.names.looked_up(&mut table, parent, name, NameStatus::Present(FileKind::File, fact))
    }

    /// The target of a symbolic link.
    pub(crate) fn read_link(&self, node: u64) -> Result<Vec<u8>, FsError> {
        self.names.learn_posix(&[node])?;
        let version = {
            let table = self.names.table();
            let posix = self.names.posix(&table, node).filter(|posix| posix.is_link);
            let posix = posix.ok_or_else(|| FsError::of(libc::EINVAL))?;
            let inode = table.get(node).ok_or_else(|| FsError::of(libc::EINVAL))?;
            if let Some(target) = posix.target().filter(|_| inode.fact.size == 0) {
                return Ok(target);
            }
            inode.fact.version(self.names.object(&table, inode.parent, &inode.name)?)
        };
        if version.size == 0 || version.size > TARGET_MOST {
            return Err(FsError::of(libc::EIO));
        }
        let bytes = version.size as usize;
        let mut target = read_now(&self.names.store.content(version)?, 0, bytes)?;
        // s3fs ends some of them with a line's end.
        if target.last() == Some(&b'\n') {
            target.pop();
        }
        Ok(target)
    }

    /// The extended attributes of a node, by name.
    pub(crate) fn posix_of(&self, node: u64) -> Result<Arc<Posix>, FsError> {
        self.names.learn_posix(&[node])?;
        let table = self.names.table();
        table.get(node).ok_or_else(|| FsError::of(libc::ESTALE))?;
        Ok(self.names.posix(&table, node).unwrap_or_default())
    }
}

fn check_length(options: &ObjectOptions, location: &Location) -> Result<(), FsError> {
    let bytes: usize = options.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    let most = if matches!(location, Location::Oss { .. }) { OSS_MOST } else { S3_MOST };
    let most = most - TOKEN_BYTES;
    if bytes <= most {
        return Ok(());
    }
    let cause = format!("its attributes take {bytes} bytes of metadata, and an object has {most} for them");
    let error = Error::new(ErrorKind::Unsupported, cause).during("change attributes", location);
    Err(FsError::because(libc::ENOSPC, error))
}

fn no_marker(errno: i32) -> FsError {
    let cause = "no object is there whose metadata could say so";
    let error =
        Error::new(ErrorKind::Unsupported, cause).during("change attributes", "of a name").with_hint([
            setting_to("attributes", "metadata".to_owned()),
            text(" keeps them in the metadata of objects; buckets have none"),
        ]);
    FsError::because(errno, error)
}
