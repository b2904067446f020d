//! What a walk of a tree tells, one thing after the other.

use std::borrow::Cow;

/// A file or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path below the root of the tree, with `/` between folders: what both trees have in common.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// When its content was changed last, in nanoseconds since 1970. Origins state whole seconds; `None`
    /// where one did not.
    pub modified_ns: Option<i128>,
    /// An object's ETag, with its quotes.
    pub etag: Option<String>,
    /// What tells a file from another that has its name later.
    pub file: Option<FileId>,
}

/// A file's identity besides its name, size and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    pub device: u64,
    pub inode: u64,
    /// When anything about it was changed last (ctime), in nanoseconds since 1970.
    pub changed_ns: i128,
}

/// What a walk finds. Names come in the order of their bytes, each once; a folder's name ends with `/`, so
/// that what lies in it comes right behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<F> {
    /// A file or an object.
    Present(Entry),
    /// A folder, or the object that marks one.
    Folder { name: String },
    /// Something has that name that can be neither copied nor replaced, such as a pipe.
    Taken { name: String, by: By },
    /// What lies there could not be read, and why.
    Unknown { covers: Covers, why: F },
    /// Something that can have no counterpart, wherever it stands in the order.
    LeftOut { shown: String, why: &'static str },
}

/// What has a name, in words: `a pipe`.
pub type By = Cow<'static, str>;

impl<F> Item<F> {
    /// With the reason of what is unknown in other words.
    pub fn map_why<G>(self, reword: impl FnOnce(F) -> G) -> Item<G> {
        match self {
            Item::Present(entry) => Item::Present(entry),
            Item::Folder { name } => Item::Folder { name },
            Item::Taken { name, by } => Item::Taken { name, by },
            Item::Unknown { covers, why } => Item::Unknown { covers, why: reword(why) },
            Item::LeftOut { shown, why } => Item::LeftOut { shown, why },
        }
    }
}

/// The names of which nothing is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Covers {
    /// This one, and all that lie below it should it be a folder.
    Path(String),
    /// All below this folder, whose name ends with `/`.
    Below(String),
    /// All that come behind what the walk has told.
    Rest,
}

impl Covers {
    /// Whether this name is among them; of [`Covers::Rest`], once it has been told.
    pub fn has(&self, name: &str) -> bool {
        match self {
            Covers::Path(path) => {
                name.strip_prefix(path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            Covers::Below(folder) => name.starts_with(folder.as_str()),
            Covers::Rest => true,
        }
    }

    /// Where it stands in the order of names; the rest stands before all that come.
    pub fn place(&self) -> &str {
        match self {
            Covers::Path(place) | Covers::Below(place) => place,
            Covers::Rest => "",
        }
    }

    /// Whether it has none of the names from this one on.
    pub(crate) fn is_behind(&self, name: &str) -> bool {
        match self {
            Covers::Path(path) => !name.starts_with(path.as_str()) && name > path.as_str(),
            Covers::Below(folder) => !name.starts_with(folder.as_str()) && name > folder.as_str(),
            Covers::Rest => false,
        }
    }
}
