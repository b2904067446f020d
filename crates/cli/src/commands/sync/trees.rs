//! The two trees of a sync, each told as items in the order of names.

use std::fs::Metadata;
use std::io;
use std::iter::{self, Peekable};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatout_engine::{Client, Entry as ListingEntry, Error, Folder, Listed, Listing, is_temporary_name};
use flatout_sync::item::{Covers, Entry, Item};
use flatout_sync::walk::{Cause, Links, Rules, Unread, Walk};
use flatout_wire::location::Location;

use crate::args::Sync;
use crate::commands::cp_many;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::origin;
use crate::select::{FileName, FileNames, Filters, Source};
use crate::stored_as::Symlinks;
use crate::upload::unreadable;

/// The items of a tree, in the order of names.
pub type Items = Box<dyn Iterator<Item = Item<Failure>> + Send>;

/// One of the two trees.
#[derive(Clone)]
pub enum Tree {
    Folder(PathBuf),
    Objects(Source),
}

/// What stands for a folder in a bucket: an object whose key ends with `/`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Marks {
    /// The other tree has folders. A mark is taken where an object of its name would be.
    Folders,
    /// The other tree has folders, and the empty ones are wanted: a mark is taken as its folder is.
    EmptyFolders,
    /// They are objects like others, as the other tree has them.
    Objects,
}

impl Tree {
    /// What was typed, as a tree.
    pub fn parse(doing: &str, typed: &str) -> Result<Tree, Failure> {
        if typed.is_empty() {
            return Err(Failure::usage(format!("{doing}: the name of a folder is empty"))
                .with_hint("name a folder, . for this one, or s3://BUCKET/PREFIX"));
        }
        if !typed.contains("://") {
            return Ok(Tree::Folder(typed.into()));
        }
        let location = origin::location(doing, typed)?;
        let Some((_, key)) = location.in_bucket() else { return Err(cp_many::no_listing(doing, &location)) };
        // As `s3://BUCKET/FOLDER/*`, which other tools want.
        let all = key.strip_suffix('*').filter(|rest| rest.is_empty() || rest.ends_with('/'));
        let location = all.and_then(|rest| location.with_key(rest)).unwrap_or(location);
        if Source::is_pattern(&location) {
            let failure = Failure::usage(format!("{doing}: {location}: a sync is of whole folders"));
            return Err(failure.with_hint("choose by --include and --exclude, as in --include '*.bin'"));
        }
        Source::folder(&location).map(Tree::Objects).ok_or_else(|| cp_many::no_listing(doing, &location))
    }

    /// As messages name it.
    pub fn shown(&self) -> String {
        match self {
            Tree::Folder(path) => path.display().to_string(),
            Tree::Objects(source) => source.location.to_string(),
        }
    }

    /// The location below it.
    pub fn location(&self, name: &str) -> Option<Location> {
        match self {
            Tree::Folder(_) => None,
            Tree::Objects(source) => source.location.with_key(format!("{}{name}", source.location.key())),
        }
    }

    /// The path, or the URL, of what has this name in it.
    pub fn place(&self, name: &str) -> String {
        match self {
            Tree::Folder(path) => path.join(name).display().to_string(),
            Tree::Objects(_) => self.location(name).map_or_else(String::new, |location| location.to_string()),
        }
    }
}

/// What a source has, as far as it has been walked.
#[derive(Clone, Default)]
pub struct Found {
    /// A key, whatever filters say of it.
    pub exists: Arc<AtomicBool>,
    /// Something that the target is to have, or cannot have.
    pub is_wanted: Arc<AtomicBool>,
}

/// Folders count where empty ones are wanted: those of disks that are not mounted are empty.
fn noting(items: Items, args: &Sync, found: &Found) -> Items {
    let (is_wanted, with_folders) = (found.is_wanted.clone(), args.empty_folders);
    Box::new(items.inspect(move |item| {
        if with_folders || !matches!(item, Item::Folder { .. }) {
            is_wanted.store(true, Ordering::Relaxed);
        }
    }))
}

/// The items of the source; `found` learns what there is.
///
/// # Errors
/// It cannot be read at all.
pub fn source(
    args: &Sync,
    client: &Client,
    tree: &Tree,
    other: &Tree,
    found: &Found,
) -> Result<Items, Failure> {
    match tree {
        Tree::Folder(path) => {
            let links = match args.symlinks {
                Symlinks::Follow => Links::Follow,
                Symlinks::Skip => Links::Leave,
                Symlinks::Refuse => Links::Refuse,
            };
            let rules = Rules { links, is_target: false, takes: taking(args, path, args.filters.clone()) };
            let is = path.metadata().map_err(|error| unreadable(&tree.shown(), &error))?;
            check_folder(path, &is)?;
            let items = folder(path, rules).map_err(|error| unreadable(&tree.shown(), &error))?;
            Ok(noting(items, args, found))
        }
        Tree::Objects(from) => {
            let names = match other {
                Tree::Folder(path) => Some(FileNames::new(from.folder_bytes, folds_case(path))),
                Tree::Objects(_) => None,
            };
            let items =
                objects(client, from, args.filters.clone(), marks(args, other), names, found.clone())?;
            Ok(noting(items, args, found))
        }
    }
}

/// The items of the target; none of a folder that is not there yet.
///
/// # Errors
/// It cannot be read at all.
pub fn target(args: &Sync, client: &Client, tree: &Tree, other: &Tree) -> Result<Items, Failure> {
    let filters = if args.delete_excluded { Filters::default() } else { args.filters.clone() };
    match tree {
        Tree::Folder(path) => {
            let rules = Rules { links: Links::Leave, is_target: true, takes: taking(args, path, filters) };
            match path.metadata() {
                Ok(found) => check_folder(path, &found)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Box::new(iter::empty())),
                Err(error) => return Err(Failure::local("read", path.display(), &error)),
            }
            let items =
                folder(path, rules).map_err(|error| Failure::local("read", path.display(), &error))?;
            // What no key can name is none of the source's concern.
            Ok(Box::new(items.filter(|item| !matches!(item, Item::LeftOut { .. }))))
        }
        Tree::Objects(to) => objects(client, to, filters, marks(args, other), None, Found::default())
            .map_err(|error| match error.is_missing_bucket() {
                true => Failure::from(error).with_hint("make the bucket: `flatout mb`"),
                false => error.into(),
            }),
    }
}

fn marks(args: &Sync, other: &Tree) -> Marks {
    match other {
        Tree::Folder(_) if args.empty_folders => Marks::EmptyFolders,
        Tree::Folder(_) => Marks::Folders,
        Tree::Objects(_) => Marks::Objects,
    }
}

fn check_folder(path: &Path, found: &Metadata) -> Result<(), Failure> {
    if found.is_dir() {
        return Ok(());
    }
    let failure = Failure::usage(format!("sync: {}: is no folder", path.display()));
    Err(failure.with_hint("a sync is of folders: copy a file by `flatout cp`"))
}

/// Whether names differ only in case where the folder is, or will be.
fn folds_case(path: &Path) -> bool {
    let existing = path.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    Folder::open(existing).and_then(|folder| folder.folds_case()).unwrap_or(false)
}

/// Temporary files, and the report of this run, belong to no tree.
fn taking(args: &Sync, folder: &Path, filters: Filters) -> Box<dyn Fn(&str) -> bool + Send> {
    let report = args.report.report.as_ref().and_then(|report| report.canonicalize().ok());
    let folder = folder.canonicalize().ok();
    let report = report.and_then(|report| Some(report.strip_prefix(folder?).ok()?.to_str()?.to_owned()));
    Box::new(move |name| match name.strip_suffix('/') {
        Some(folder) => filters.goes_into(folder),
        None => {
            let is_temporary = is_temporary_name(name.rsplit('/').next().unwrap_or(name));
            filters.take(name) && !is_temporary && report.as_deref() != Some(name)
        }
    })
}

fn folder(path: &Path, rules: Rules) -> io::Result<Items> {
    let walk = Walk::new(path, rules)?;
    Ok(Box::new(walk.map(|item| item.map_why(unread))))
}

fn unread(why: Unread) -> Failure {
    let path = why.path.display();
    let failure = match &why.cause {
        Cause::Io(error) => Failure::local("read", path, error),
        Cause::Dangling => Failure::usage(format!("read: {path}: this link leads to nothing"))
            .with_hint("--symlinks skip leaves links out"),
        Cause::Circle => Failure::usage(format!("read: {path}: this link leads to a folder that holds it"))
            .with_hint("use --symlinks skip"),
        Cause::Vanished => Failure::usage(format!("read: {path}: it vanished while the folder was read"))
            .with_hint("it may have been renamed: run it again"),
        Cause::Link => Failure::usage(format!("read: {path}: is a symbolic link, and --symlinks is refuse")),
    };
    Failure { exit: Exit::Incomplete, ..failure }
}

/// What a listing tells, until it breaks off.
struct Objects {
    listing: Peekable<Listing>,
    prefix_bytes: usize,
    filters: Filters,
    marks: Marks,
    names: Option<FileNames>,
    found: Found,
}

fn objects(
    client: &Client,
    source: &Source,
    filters: Filters,
    marks: Marks,
    names: Option<FileNames>,
    found: Found,
) -> Result<Items, Error> {
    let mut listing = client.list(&source.location, true)?.peekable();
    // A tree of which nothing can be read is no tree.
    if let Some(Err(_)) = listing.peek()
        && let Some(Err(error)) = listing.next()
    {
        return Err(error);
    }
    let prefix_bytes = source.folder_bytes;
    Ok(Box::new(Objects { listing, prefix_bytes, filters, marks, names, found }))
}

impl Objects {
    fn item(&mut self, listed: Listed) -> Option<Item<Failure>> {
        self.found.exists.store(true, Ordering::Relaxed);
        let name = listed.key.get(self.prefix_bytes..)?.to_owned();
        // The mark of the folder itself.
        if name.is_empty() {
            return None;
        }
        if let Some(folder) = name.strip_suffix('/')
            && self.marks != Marks::Objects
        {
            let is_taken = match self.marks {
                Marks::EmptyFolders => self.filters.goes_into(folder),
                Marks::Folders | Marks::Objects => self.filters.take(&name),
            };
            return is_taken.then_some(Item::Folder { name });
        }
        if !self.filters.take(&name) {
            return None;
        }
        if let Some(names) = &mut self.names
            && let FileName::Unusable(why) = names.name(&listed.key)
        {
            return Some(Item::Taken { name, by: why.into() });
        }
        let seconds = Some(listed.last_modified).filter(|seconds| *seconds > 0);
        Some(Item::Present(Entry {
            name,
            size: listed.size,
            modified_ns: seconds.map(|seconds| i128::from(seconds) * 1_000_000_000),
            etag: listed.etag,
            file: None,
        }))
    }
}

impl Iterator for Objects {
    type Item = Item<Failure>;

    fn next(&mut self) -> Option<Item<Failure>> {
        loop {
            match self.listing.next()? {
                Ok(ListingEntry::Object(listed)) => {
                    if let Some(item) = self.item(listed) {
                        return Some(item);
                    }
                }
                Ok(ListingEntry::Prefix(_)) => {}
                Err(error) => return Some(Item::Unknown { covers: Covers::Rest, why: broken_off(&error) }),
            }
        }
    }
}

/// A listing that ended early: what it did not name is unknown.
fn broken_off(error: &Error) -> Failure {
    Failure { exit: Exit::Incomplete, ..Failure::from(error) }
}
