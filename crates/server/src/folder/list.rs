//! Walks a bucket's folders in the order of S3: by the bytes of the whole key.

use std::io;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};

use super::{Folder, etag, is_absence};
use crate::shelf::{Listed, Next, Visit};

/// See [`crate::shelf::Shelf::list`].
pub(super) fn list(
    folder: &Folder,
    bucket: &str,
    prefix: &str,
    after: &str,
    visit: &mut Visit<'_>,
) -> io::Result<()> {
    let root = folder.open_folder(bucket)?;
    let mut walk = Walk { folder, bucket, root, prefix, after, skip: None, visit };
    // Below the prefix's last slash everything else is settled by names.
    let start = prefix.rfind('/').map_or("", |slash| &prefix[..=slash]);
    let is_path = |path: &str| !path.split('/').any(|name| matches!(name, "" | "." | ".."));
    if !start.is_empty() && !is_path(&start[..start.len() - 1]) || start.contains('\0') {
        return Ok(());
    }
    walk.folder(start).map(drop)
}

struct Walk<'a, 'v> {
    folder: &'a Folder,
    bucket: &'a str,
    root: OwnedFd,
    prefix: &'a str,
    after: &'a str,
    skip: Option<String>,
    visit: &'a mut Visit<'v>,
}

impl Walk<'_, '_> {
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
        let about = if kind.is_file() {
            std::fs::symlink_metadata(self.folder.root.join(&path)).ok()
        } else if kind.is_symlink() {
            self.folder.open_file(&path).ok().flatten().map(|(_, about)| about)
        } else {
            None
        };
        let Some(about) = about else { return Ok(true) };
        let modified = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        match (self.visit)(Listed { key, size: about.len(), etag: etag(&about), modified }) {
            Next::More => {}
            Next::Skip(folded) => self.skip = Some(folded),
            Next::Stop => return Ok(false),
        }
        Ok(true)
    }
}
