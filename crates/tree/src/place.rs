//! Where folders lie in the store.

use flatout_engine::{Dialect, Entry, Error};
use flatout_wire::location::Location;

use crate::fault::Fault;
use crate::inodes::Table;
use crate::store::{Pages, Store};
use crate::tree::{Core, Root};

/// Where a folder's entries come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The account.
    Buckets(Dialect),
    /// A bucket, or a prefix of it that ends in `/`.
    Folder(Location),
}

impl Place {
    pub(crate) fn bucket(dialect: Dialect, bucket: &str) -> Location {
        let (bucket, key) = (bucket.to_owned(), String::new());
        match dialect {
            Dialect::Oss => Location::Oss { bucket, key },
            _ => Location::S3 { bucket, key },
        }
    }

    /// What the keys of its entries begin with.
    pub(crate) fn prefix(&self) -> &str {
        match self {
            Place::Buckets(_) => "",
            Place::Folder(location) => location.key(),
        }
    }
}

impl Root {
    /// The same, a prefix with a `/` at its end: what is mounted is a folder.
    pub(crate) fn into_folder(self) -> Root {
        match self {
            Root::Under(location) if !location.key().is_empty() && !location.key().ends_with('/') => {
                let key = format!("{}/", location.key());
                Root::Under(location.with_key(key).unwrap_or(location))
            }
            root => root,
        }
    }
}

impl<S: Store> Core<S> {
    /// Where the folder `ino` lies.
    pub(crate) fn place(&self, table: &Table, ino: u64) -> Result<Place, Fault> {
        let names = table.path(ino).ok_or_else(|| Fault::of(libc::ESTALE))?;
        let (top, names) = match (&self.root, names.as_slice()) {
            (Root::Under(location), names) => (location.clone(), names),
            (Root::Buckets(dialect), []) => return Ok(Place::Buckets(*dialect)),
            (Root::Buckets(dialect), [bucket, names @ ..]) => (Place::bucket(*dialect, bucket), names),
        };
        if names.is_empty() {
            return Ok(Place::Folder(top));
        }
        let mut key = top.key().to_owned();
        for name in names {
            key.push_str(name);
            key.push('/');
        }
        Ok(Place::Folder(top.with_key(key).ok_or_else(crate::lookup::unlisted)?))
    }

    /// Where the file `name` of the folder `parent` lies.
    pub(crate) fn object(&self, table: &Table, parent: u64, name: &str) -> Result<Location, Fault> {
        match self.place(table, parent)? {
            Place::Folder(folder) => {
                let key = format!("{}{name}", folder.key());
                Ok(folder.with_key(key).ok_or_else(crate::lookup::unlisted)?)
            }
            Place::Buckets(_) => Err(Fault::of(libc::EISDIR)),
        }
    }

    /// What tells the entries of a place. Nothing is asked before its first page.
    pub(crate) fn pages(&self, place: &Place) -> Result<Box<dyn Pages>, Error> {
        match place {
            Place::Folder(location) => self.store.list(location, None),
            Place::Buckets(dialect) => {
                Ok(Box::new(BucketPages { store: self.store.clone(), dialect: *dialect }))
            }
        }
    }
}

/// The buckets of an account as the one page of a listing.
struct BucketPages<S> {
    store: std::sync::Arc<S>,
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
