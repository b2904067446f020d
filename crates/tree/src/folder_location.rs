//! Where folders lie in the store.

use std::sync::Arc;

use flatout_engine::{Dialect, Entry, Error, ErrorKind};
use flatout_wire::location::Location;

use crate::attributes::FileKind;
use crate::fs_error::FsError;
use crate::store::{ListingPages, ObjectStore};

/// The longest key, in bytes.
const S3_KEY_MOST: usize = 1024;
const OSS_KEY_MOST: usize = 1023;

/// The part of an origin that a tree shows.
#[derive(Clone, Debug)]
pub enum TreeRoot {
    /// A bucket, or a prefix of it.
    Under(Location),
    /// Every bucket of the account, each a folder.
    Buckets(Dialect),
}

/// Where a folder's entries come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FolderLocation {
    /// The account's list of buckets.
    Buckets(Dialect),
    /// A bucket, or a prefix of it that ends in `/`.
    Prefix(Location),
}

impl TreeRoot {
    /// With a `/` at the end of its prefix.
    pub(crate) fn into_folder(self) -> TreeRoot {
        match self {
            TreeRoot::Under(location) if !location.key().is_empty() && !location.key().ends_with('/') => {
                let key = format!("{}/", location.key());
                TreeRoot::Under(location.with_key(key).unwrap_or(location))
            }
            root => root,
        }
    }

    pub(crate) fn location(&self) -> FolderLocation {
        match self {
            TreeRoot::Under(location) => FolderLocation::Prefix(location.clone()),
            TreeRoot::Buckets(dialect) => FolderLocation::Buckets(*dialect),
        }
    }

    /// The path of an object below the root; `None` for one that is not there.
    pub(crate) fn names_of(&self, object: &Location) -> Option<Vec<String>> {
        let (key, bucket) = match self.location() {
            FolderLocation::Prefix(top) => {
                let is_in_bucket = top.scheme() == object.scheme() && top.bucket() == object.bucket();
                (object.key().strip_prefix(top.key()).filter(|_| is_in_bucket)?, None)
            }
            FolderLocation::Buckets(_) => (object.key(), object.bucket()),
        };
        let names: Vec<String> = bucket.into_iter().chain(key.split('/')).map(str::to_owned).collect();
        names.iter().all(|name| !name.is_empty()).then_some(names)
    }

    /// The folder with this path below the root.
    pub(crate) fn below(&self, names: &[&str]) -> Result<FolderLocation, FsError> {
        let (top, names) = match (self.location(), names) {
            (FolderLocation::Prefix(top), names) => (top, names),
            (FolderLocation::Buckets(dialect), [bucket, names @ ..]) => {
                (FolderLocation::bucket(dialect, bucket), names)
            }
            (buckets, []) => return Ok(buckets),
        };
        if names.is_empty() {
            return Ok(FolderLocation::Prefix(top));
        }
        let mut key = top.key().to_owned();
        for name in names {
            key.push_str(name);
            key.push('/');
        }
        Ok(FolderLocation::Prefix(top.with_key(key).ok_or_else(unlisted)?))
    }
}

impl FolderLocation {
    pub(crate) fn bucket(dialect: Dialect, bucket: &str) -> Location {
        let (bucket, key) = (bucket.to_owned(), String::new());
        match dialect {
            Dialect::Oss => Location::Oss { bucket, key },
            _ => Location::S3 { bucket, key },
        }
    }

    /// The prefix of its entries' keys.
    pub(crate) fn prefix(&self) -> &str {
        match self {
            FolderLocation::Buckets(_) => "",
            FolderLocation::Prefix(location) => location.key(),
        }
    }

    /// Where its file `name` lies.
    pub(crate) fn object(&self, name: &str) -> Result<Location, FsError> {
        match self {
            FolderLocation::Prefix(folder) => {
                let key = format!("{}{name}", folder.key());
                Ok(folder.with_key(key).ok_or_else(unlisted)?)
            }
            FolderLocation::Buckets(_) => Err(FsError::of(libc::EISDIR)),
        }
    }

    /// Refuses a name whose key is too long: the origin would refuse it only when the file is closed.
    ///
    /// # Errors
    /// `ENAMETOOLONG`.
    pub(crate) fn check_room(&self, name: &str, kind: FileKind) -> Result<(), FsError> {
        let FolderLocation::Prefix(folder) = self else { return Ok(()) };
        let most = if matches!(folder, Location::Oss { .. }) { OSS_KEY_MOST } else { S3_KEY_MOST };
        let slash = usize::from(kind == FileKind::Folder);
        match folder.key().len() + name.len() + slash > most {
            true => Err(FsError::of(libc::ENAMETOOLONG)),
            false => Ok(()),
        }
    }

    /// Its entries, page by page. Nothing is asked before the first page.
    pub(crate) fn pages<S: ObjectStore>(&self, store: &Arc<S>) -> Result<Box<dyn ListingPages>, Error> {
        match self {
            FolderLocation::Prefix(location) => store.list(location, None),
            FolderLocation::Buckets(dialect) => {
                Ok(Box::new(BucketPages { store: store.clone(), dialect: *dialect }))
            }
        }
    }
}

/// The buckets of an account, as the only page of a listing.
struct BucketPages<S> {
    store: Arc<S>,
    dialect: Dialect,
}

impl<S: ObjectStore> ListingPages for BucketPages<S> {
    fn next_page(&mut self) -> Result<(Vec<Entry>, bool), Error> {
        let buckets = self.store.buckets(self.dialect)?;
        let mut names: Vec<String> = buckets.into_iter().map(|bucket| bucket.name + "/").collect();
        names.sort_unstable();
        Ok((names.into_iter().map(Entry::Prefix).collect(), true))
    }
}

/// A tree needs a store that can be listed.
pub(crate) fn unlisted() -> Error {
    Error::new(ErrorKind::Unsupported, "a plain http server cannot be listed")
}
