//! A folder as a tree of names in the order of keys: `a.b` before `a/b`, since `.` is less than `/`.
//!
//! A folder's names are sorted in memory, at most so many at a time: of a larger folder the next are found by
//! reading it again.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ffi::OsStr;
use std::fs::{self, FileType, Metadata};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::vec;

use crate::item::{Covers, Entry, FileId, Item};

/// Names of one folder that are held at a time: some 20 MB of them.
const NAMES_MOST: usize = 1 << 18;

/// What is done with symbolic links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// They stand for what they lead to.
    Follow,
    /// They have their name, and are nothing else.
    Leave,
    /// Each is reported as what cannot be read.
    Refuse,
}

/// How a folder is walked.
pub struct Rules {
    pub links: Links,
    /// Whether folders are told by their own name, too, since no file can take their place.
    pub is_target: bool,
    /// Whether this path below the root, a folder's with `/`, is looked at.
    pub takes: Box<dyn Fn(&str) -> bool + Send>,
}

/// Why something could not be read.
#[derive(Debug)]
pub struct Unread {
    pub path: PathBuf,
    pub cause: Cause,
}

#[derive(Debug)]
pub enum Cause {
    /// The kernel refused.
    Io(io::Error),
    /// A link that leads to nothing.
    Dangling,
    /// A link that leads to a folder which holds it.
    Circle,
    /// A link, which [`Links::Refuse`] takes for an error.
    Link,
    /// It was there, and is not any more.
    Vanished,
}

/// Walks a folder. What cannot be read is unknown, and so is what vanishes meanwhile: it may have a name by
/// now that the walk has passed. Of a target it is absent.
pub struct Walk {
    root: PathBuf,
    rules: Rules,
    /// The folders on the way to the next name.
    open: Vec<Open>,
    names_most: usize,
}

/// A folder that is being walked.
struct Open {
    path: PathBuf,
    /// Its path below the root, with `/` at its end; empty for the root.
    name: String,
    /// Device and inode.
    id: (u64, u64),
    names: vec::IntoIter<Name>,
    /// The last of those names, where the folder has more.
    more_behind: Option<Vec<u8>>,
}

/// A name in a folder: of a folder with `/`, as it sorts.
#[derive(PartialEq, Eq)]
struct Name {
    sorts_as: Vec<u8>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Folder,
    Link,
    Special(&'static str),
}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        self.sorts_as.cmp(&other.sorts_as)
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Walk {
    /// A walk of the folder at `root`, whose own links are followed.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn new(root: &Path, rules: Rules) -> io::Result<Walk> {
        Walk::with_names(root, rules, NAMES_MOST)
    }

    fn with_names(root: &Path, rules: Rules, names_most: usize) -> io::Result<Walk> {
        let mut walk = Walk { root: root.to_path_buf(), rules, open: Vec::new(), names_most };
        let found = fs::metadata(root)?;
        let opened = walk.read(root.to_path_buf(), String::new(), &found, None)?;
        walk.open.push(opened);
        Ok(walk)
    }

    /// The folder's first names, or those behind one.
    fn read(&self, path: PathBuf, name: String, found: &Metadata, behind: Option<&[u8]>) -> io::Result<Open> {
        let mut first = BinaryHeap::new();
        let mut has_more = false;
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let kind = match entry.file_type() {
                Ok(found) => self.kind(&entry.path(), found),
                // It has vanished, as a look at it will say: its folder has not.
                Err(error) if error.kind() == ErrorKind::NotFound => Kind::File,
                Err(error) => return Err(error),
            };
            let mut sorts_as = entry.file_name().into_vec();
            let taken = (kind == Kind::Folder && self.rules.is_target)
                .then(|| Name { sorts_as: sorts_as.clone(), kind: Kind::Special("a folder") });
            if kind == Kind::Folder {
                sorts_as.push(b'/');
            }
            let names = taken.into_iter().chain([Name { sorts_as, kind }]);
            for name in names.filter(|name| behind.is_none_or(|behind| name.sorts_as.as_slice() > behind)) {
                first.push(name);
                if first.len() > self.names_most {
                    first.pop();
                    has_more = true;
                }
            }
        }
        let names = first.into_sorted_vec();
        let more_behind = names.last().filter(|_| has_more).map(|name| name.sorts_as.clone());
        Ok(Open { path, name, id: (found.dev(), found.ino()), names: names.into_iter(), more_behind })
    }

    /// What an entry is to this walk. A link that leads to a folder sorts as one.
    fn kind(&self, path: &Path, found: FileType) -> Kind {
        if found.is_symlink() {
            let leads_to_folder =
                self.rules.links == Links::Follow && fs::metadata(path).is_ok_and(|found| found.is_dir());
            return if leads_to_folder { Kind::Folder } else { Kind::Link };
        }
        if found.is_dir() {
            Kind::Folder
        } else if found.is_file() {
            Kind::File
        } else if found.is_fifo() {
            Kind::Special("a pipe")
        } else if found.is_socket() {
            Kind::Special("a socket")
        } else {
            Kind::Special("a device")
        }
    }

    /// What the walk tells of a name, if anything.
    fn look(&mut self, found: Name) -> Option<Item<Unread>> {
        let folder = self.open.last().expect("its folder is open");
        let bare = found.sorts_as.strip_suffix(b"/").unwrap_or(&found.sorts_as);
        let path = folder.path.join(OsStr::from_bytes(bare));
        let Ok(below) = std::str::from_utf8(&found.sorts_as) else {
            return self.has_no_key(path);
        };
        let name = format!("{}{below}", folder.name);
        if !(self.rules.takes)(&name) {
            return None;
        }
        match found.kind {
            Kind::Folder => self.enter(path, name),
            Kind::Special(by) => Some(Item::Taken { name, by: by.into() }),
            Kind::Link if self.rules.links == Links::Leave => {
                Some(Item::Taken { name, by: "a symbolic link".into() })
            }
            Kind::Link if self.rules.links == Links::Refuse => Some(unread(name, path, Cause::Link)),
            Kind::File | Kind::Link => match fs::metadata(&path) {
                Ok(found) if found.is_file() => Some(Item::Present(entry(name, &found))),
                Ok(_) => Some(Item::Taken { name, by: "no file".into() }),
                Err(error) if error.kind() == ErrorKind::NotFound => match path.symlink_metadata() {
                    Ok(_) => Some(unread(name, path, Cause::Dangling)),
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        self.vanished(unread(name, path, Cause::Vanished))
                    }
                    Err(error) => Some(unread(name, path, Cause::Io(error))),
                },
                Err(error) => Some(unread(name, path, Cause::Io(error))),
            },
        }
    }

    /// Opens a folder, so that its names come next.
    fn enter(&mut self, path: PathBuf, name: String) -> Option<Item<Unread>> {
        let found = match fs::metadata(&path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return self.vanished(below(name, path, Cause::Vanished));
            }
            Err(error) => return Some(below(name, path, Cause::Io(error))),
        };
        let id = (found.dev(), found.ino());
        if self.open.iter().any(|open| open.id == id) {
            return Some(below(name, path, Cause::Circle));
        }
        match self.read(path.clone(), name.clone(), &found, None) {
            Ok(opened) => {
                self.open.push(opened);
                Some(Item::Folder { name })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.vanished(below(name, path, Cause::Vanished))
            }
            Err(error) => Some(below(name, path, Cause::Io(error))),
        }
    }

    fn vanished(&self, item: Item<Unread>) -> Option<Item<Unread>> {
        (!self.rules.is_target).then_some(item)
    }

    fn has_no_key(&self, path: PathBuf) -> Option<Item<Unread>> {
        let shown = path.strip_prefix(&self.root).unwrap_or(&path).to_string_lossy().into_owned();
        Some(Item::LeftOut { shown, why: "its name is not UTF-8, which keys are" })
    }

    /// Reads the folder again for the names behind those that were told.
    fn read_on(&mut self) -> Option<Item<Unread>> {
        let folder = self.open.pop().expect("a folder is open");
        let behind = folder.more_behind?;
        let read = fs::metadata(&folder.path)
            .and_then(|found| self.read(folder.path.clone(), folder.name.clone(), &found, Some(&behind)));
        match read {
            Ok(opened) => {
                self.open.push(opened);
                None
            }
            // What came before is told: the rest of it covers what was told, too, which is known by now.
            Err(error) => Some(match folder.name.is_empty() {
                true => {
                    let why = Unread { path: folder.path, cause: Cause::Io(error) };
                    Item::Unknown { covers: Covers::Rest, why }
                }
                false => below(folder.name, folder.path, Cause::Io(error)),
            }),
        }
    }
}

fn unread(name: String, path: PathBuf, cause: Cause) -> Item<Unread> {
    Item::Unknown { covers: Covers::Path(name), why: Unread { path, cause } }
}

fn below(folder: String, path: PathBuf, cause: Cause) -> Item<Unread> {
    Item::Unknown { covers: Covers::Below(folder), why: Unread { path, cause } }
}

/// A file, as a walk tells of it.
pub fn entry(name: String, found: &Metadata) -> Entry {
    let ns = |seconds: i64, nanoseconds: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    Entry {
        name,
        size: found.size(),
        modified_ns: Some(ns(found.mtime(), found.mtime_nsec())),
        etag: None,
        file: Some(FileId {
            device: found.dev(),
            inode: found.ino(),
            changed_ns: ns(found.ctime(), found.ctime_nsec()),
        }),
    }
}

impl Iterator for Walk {
    type Item = Item<Unread>;

    fn next(&mut self) -> Option<Item<Unread>> {
        loop {
            let Some(found) = self.open.last_mut()?.names.next() else {
                match self.read_on() {
                    Some(item) => return Some(item),
                    None => continue,
                }
            };
            let Some(item) = self.look(found) else { continue };
            return Some(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(links: Links) -> Rules {
        Rules { links, is_target: false, takes: Box::new(|_| true) }
    }

    fn told(walk: Walk) -> Vec<String> {
        let word = |item| match item {
            Item::Present(entry) => format!("{} {}", entry.name, entry.size),
            Item::Folder { name } => name,
            Item::Taken { name, by } => format!("{name}: {by}"),
            Item::Unknown { covers, why: Unread { cause, .. } } => format!("{}? {cause:?}", covers.place()),
            Item::LeftOut { shown, .. } => format!("{shown} left out"),
        };
        walk.map(word).collect()
    }

    fn tree(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match name.ends_with('/') {
                true => fs::create_dir_all(&path).unwrap(),
                false => fs::write(&path, "x").unwrap(),
            }
        }
        folder
    }

    #[test]
    fn names_come_in_the_order_of_keys_however_few_are_held() {
        let names = ["a.b", "a/b", "a/c/d", "a0", "b", "b!/x", "empty/", "ü", "z/1", "z/10", "z/2"];
        let folder = tree(&names);
        let expected = [
            "a.b 1", "a/", "a/b 1", "a/c/", "a/c/d 1", "a0 1", "b 1", "b!/", "b!/x 1", "empty/", "z/",
            "z/1 1", "z/10 1", "z/2 1", "ü 1",
        ];
        for names_most in [1, 2, 3, 100] {
            let walk = Walk::with_names(folder.path(), rules(Links::Follow), names_most).unwrap();
            assert_eq!(told(walk), expected, "{names_most} at a time");
        }
    }

    #[test]
    fn a_target_tells_folders_by_their_own_names_too() {
        let folder = tree(&["a.b", "a/b"]);
        let walk =
            Walk::with_names(folder.path(), Rules { is_target: true, ..rules(Links::Leave) }, 1).unwrap();
        assert_eq!(told(walk), ["a: a folder", "a.b 1", "a/", "a/b 1"]);
    }

    #[test]
    fn links_are_followed_left_or_refused() {
        let folder = tree(&["d/x"]);
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, folder.path().join(name)).unwrap();
        link("d", "e");
        link("d/x", "file");
        link("nothing", "dangling");
        link("..", "d/up");
        let walk = |links| told(Walk::new(folder.path(), rules(links)).unwrap());
        assert_eq!(
            walk(Links::Follow),
            ["d/", "d/up/? Circle", "d/x 1", "dangling? Dangling", "e/", "e/up/? Circle", "e/x 1", "file 1"]
        );
        assert_eq!(
            walk(Links::Leave),
            [
                "d/",
                "d/up: a symbolic link",
                "d/x 1",
                "dangling: a symbolic link",
                "e: a symbolic link",
                "file: a symbolic link"
            ]
        );
        assert_eq!(
            walk(Links::Refuse),
            ["d/", "d/up? Link", "d/x 1", "dangling? Link", "e? Link", "file? Link"]
        );
    }

    #[test]
    fn what_can_be_no_key_or_no_file_is_told() {
        let folder = tree(&["a"]);
        fs::write(folder.path().join(OsStr::from_bytes(b"\xff")), "x").unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        let walk = Walk::new(folder.path(), rules(Links::Follow)).unwrap();
        assert_eq!(told(walk), ["a 1", "socket: a socket", "\u{fffd} left out"]);
    }

    #[test]
    fn a_folder_that_is_not_taken_is_not_read() {
        let folder = tree(&["a/b", "skip/b", "skipped"]);
        let takes = Box::new(|name: &str| name != "skip/");
        let walk = Walk::new(folder.path(), Rules { takes, ..rules(Links::Follow) }).unwrap();
        assert_eq!(told(walk), ["a/", "a/b 1", "skipped 1"]);
    }

    #[test]
    fn a_root_that_is_no_folder_is_an_error() {
        let folder = tree(&["a"]);
        assert!(Walk::new(&folder.path().join("a"), rules(Links::Follow)).is_err());
        assert!(Walk::new(&folder.path().join("missing"), rules(Links::Follow)).is_err());
    }
}
