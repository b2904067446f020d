//! Where folders lie in the store.

use std::sync::Arc;

use flatout_engine::{Dialect, Entry, Error, ErrorKind};
use flatout_wire::location::Location;

use crate::fault::Fault;
use crate::store::{Pages, Store};

/// What a tree shows.
#[derive(Clone, Debug)]
pub enum Root {
    /// What lies under a bucket, or under a folder in it.
    Under(Location),
    /// Every bucket of the account, each a folder.
    Buckets(Dialect),
}

/// Where a folder's entries come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The account.
    Buckets(Dialect),
    /// A bucket, or a prefix of it that ends in `/`.
    Folder(Location),
}

impl Root {
    /// Appends the missing `/` to a prefix: what is mounted is a folder.
    pub(crate) fn into_folder(self) -> Root {
        match self {
            Root::Under(location) if !location.key().is_empty() && !location.key().ends_with('/') => {
                let key = format!("{}/", location.key());
                Root::Under(location.with_key(key).unwrap_or(location))
            }
            root => root,
        }
    }

    pub(crate) fn place(&self) -> Place {
        match self {
            Root::Under(location) => Place::Folder(location.clone()),
            Root::Buckets(dialect) => Place::Buckets(*dialect),
        }
    }

    /// The folder with this path.
    pub(crate) fn below(&self, names: &[&str]) -> Result<Place, Fault> {
        let (top, names) = match (self.place(), names) {
            (Place::Folder(top), names) => (top, names),
            (Place::Buckets(dialect), [bucket, names @ ..]) => (Place::bucket(dialect, bucket), names),
            (buckets, []) => return Ok(buckets),
        };
        if names.is_empty() {
            return Ok(Place::Folder(top));
        }
        let mut key = top.key().to_owned();
        for name in names {
            key.push_str(name);
            key.push('/');
        }
        Ok(Place::Folder(top.with_key(key).ok_or_else(unlisted)?))
    }
}

impl Place {
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
            Place::Buckets(_) => "",
            Place::Folder(location) => location.key(),
        }
    }

    /// Where its file `name` lies.
    pub(crate) fn object(&self, name: &str) -> Result<Location, Fault> {
        match self {
            Place::Folder(folder) => {
                let key = format!("{}{name}", folder.key());
                Ok(folder.with_key(key).ok_or_else(unlisted)?)
            }
            Place::Buckets(_) => Err(Fault::of(libc::EISDIR)),
        }
    }

    /// Its entries, page by page. Nothing is asked before the first page.
    pub(crate) fn pages<S: Store>(&self, store: &Arc<S>) -> Result<Box<dyn Pages>, Error> {
        match self {
            Place::Folder(location) => store.list(location, None),
            Place::Buckets(dialect) => Ok(Box::new(BucketPages { store: store.clone(), dialect: *dialect })),
        }
    }
}

/// The buckets of an account, as the only page of a listing.
struct BucketPages<S> {
    store: Arc<S>,
    dialect: Dialect,
}

impl<S: Store> Pages for BucketPages<S> {
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
