//! Walks a bucket's folders in the order of S3: by the bytes of the whole key.

use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};

use super::notes::Notes;
use super::{Folder, beside, etag, is_absence};
use crate::backend::{ListStep, ListVisitor, ListedObject};

/// See [`crate::backend::Backend::list`]: the files of a bucket's folder, and between them those that lie
/// beside.
pub(super) fn list(
    folder: &Folder,
    bucket: &str,
    prefix: &str,
    after: &str,
    visit: &mut ListVisitor<'_>,
) -> io::Result<()> {
    let mut keys = beside::keys(folder, bucket)?;
    keys.retain(|key| key.starts_with(prefix) && key.as_str() > after);
    let keys = keys.into_iter().peekable();
    let mut merged = Merged { folder, bucket, keys, next: ListStep::More, visit };
    list_folder(folder, bucket, prefix, after, &mut |listed| merged.on_file(listed))?;
    merged.show_beside(|_| true);
    Ok(())
}

/// Two listings as one.
struct Merged<'a, 'v> {
    folder: &'a Folder,
    bucket: &'a str,
    /// Those beside that are to come.
    keys: std::iter::Peekable<std::vec::IntoIter<String>>,
    /// What was asked for after the last one that was shown.
    next: ListStep,
    visit: &'a mut ListVisitor<'v>,
}

impl Merged<'_, '_> {
    fn on_file(&mut self, listed: ListedObject) -> ListStep {
        self.show_beside(|key| key < listed.key.as_str());
        // In both places it is that of the bucket's folder.
        self.keys.next_if(|key| *key == listed.key);
        self.show(&listed.key.clone(), || Some(listed));
        self.next.clone()
    }

    fn show_beside(&mut self, are_due: impl Fn(&str) -> bool) {
        while let Some(key) = self.keys.next_if(|key| are_due(key)) {
            let (folder, path) = (self.folder, beside::path_of(self.bucket, &key));
            self.show(&key, || {
                let (file, about) = folder.open_file(&path).ok()??;
                let notes = folder.notes(&file, &about);
                Some(listed(key.clone(), &about, notes))
            });
        }
    }

    fn show(&mut self, key: &str, find: impl FnOnce() -> Option<ListedObject>) {
        let is_wanted = match &self.next {
            ListStep::More => true,
            ListStep::Skip(folded) => !key.starts_with(folded),
            ListStep::Stop => false,
        };
        if is_wanted && let Some(listed) = find() {
            self.next = (self.visit)(listed);
        }
    }
}

fn listed(key: String, about: &Metadata, notes: Notes) -> ListedObject {
    ListedObject {
        key,
        size: about.len(),
        etag: notes.version.map_or_else(|| etag(about), |version| version.etag),
        modified: about.modified().unwrap_or(SystemTime::UNIX_EPOCH),
        kind: notes.metadata.kind,
        storage_class: notes.metadata.storage_class,
    }
}

fn list_folder(
    folder: &Folder,
    bucket: &str,
    prefix: &str,
    after: &str,
    visit: &mut ListVisitor<'_>,
) -> io::Result<()> {
    let root = folder.open_folder(bucket)?;
    let mut walk = FolderWalk { folder, bucket, root, prefix, after, skip: None, visit };
    // Below the prefix's last slash everything else is settled by names.
    let start = prefix.rfind('/').map_or("", |slash| &prefix[..=slash]);
    let is_path = |path: &str| !path.split('/').any(|name| matches!(name, "" | "." | ".."));
    if !start.is_empty() && !is_path(&start[..start.len() - 1]) || start.contains('\0') {
        return Ok(());
    }
    walk.folder(start).map(drop)
}

struct FolderWalk<'a, 'v> {
    folder: &'a Folder,
    bucket: &'a str,
    root: OwnedFd,
    prefix: &'a str,
    after: &'a str,
    skip: Option<String>,
    visit: &'a mut ListVisitor<'v>,
}

impl FolderWalk<'_, '_> {
    /// Shows what lies in and below the folder `at` ("" or a key that ends in a slash); false to stop.
    fn folder(&mut self, at: &str) -> io::Result<bool> {
        for (key, kind) in self.entries(at)? {
            if self.skip.as_ref().is_some_and(|skip| key.starts_with(skip)) {
                continue;
            }
            let go_on = if kind.is_dir() { self.folder(&key)? } else { self.file(key, kind)? };
            if !go_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The keys of a folder's entries as far as they matter, sorted; a folder's ends in a slash.
    fn entries(&self, at: &str) -> io::Result<Vec<(String, FileType)>> {
        // Not even a prefix leads through a link: what is beyond is not listed.
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let path = if at.is_empty() { "." } else { at };
        let opened = rustix::fs::openat2(&self.root, path, flags, Mode::empty(), resolve);
        let folder = match opened.map_err(io::Error::from) {
            Err(error) if is_absence(&error) => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut keys = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not say.
                FileType::Unknown => match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(about) => FileType::from_raw_mode(about.st_mode),
                    Err(_) => continue,
                },
                kind => kind,
            };
            let key = format!("{at}{name}{}", if kind.is_dir() { "/" } else { "" });
            if self.is_wanted(&key, kind) {
                keys.push((key, kind));
            }
        }
        keys.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(keys)
    }

    /// Whether a key, or some key in a folder, has the prefix and comes after what was seen.
    fn is_wanted(&self, key: &str, kind: FileType) -> bool {
        if kind.is_dir() {
            (key.starts_with(self.prefix) || self.prefix.starts_with(key))
                && (key > self.after || self.after.starts_with(key))
        } else {
            key.starts_with(self.prefix) && key > self.after
        }
    }

    /// Shows one file; a link counts as what it leads to, unless that is a folder or not beneath the root.
    fn file(&mut self, key: String, kind: FileType) -> io::Result<bool> {
        let path = format!("{}/{key}", self.bucket);
        let opened = || {
            let (file, about) = self.folder.open_file(&path).ok()??;
            let notes = self.folder.notes(&file, &about);
            Some((about, notes))
        };
        let found = if kind.is_file() {
            let about = std::fs::symlink_metadata(self.folder.root.join(&path)).ok();
            let noted = about.and_then(|about| Some((self.folder.notes_at(&path, &about)?, about)));
            // One that is replaced meanwhile, or was written to by others.
            noted.map(|(notes, about)| (about, notes)).or_else(opened)
        } else if kind.is_symlink() {
            opened()
        } else {
            None
        };
        let Some((about, notes)) = found else { return Ok(true) };
        match (self.visit)(listed(key, &about, notes)) {
            ListStep::More => {}
            ListStep::Skip(folded) => self.skip = Some(folded),
            ListStep::Stop => return Ok(false),
        }
        Ok(true)
    }
}
