//! Volumes of many small read-only objects: an index is built from a listing, and served as an EROFS image or
//! as a tree.
//!
//! [`Image`] is what EROFS mounts: a file with the metadata of the index and the data of the objects.
//! [`Names`] shows the same files to kernels that cannot. Both read by [`Objects`].

#![forbid(unsafe_code)]

mod build;
mod image;
mod inventory;
mod kept;
mod key_list;
mod keys;
mod lines;
mod names;
mod new_file;
mod objects;
mod open;
mod record;
mod sort;

pub use build::{
    BuildEvent, BuiltIndex, Difference, Wanted, build_index, check_target, compare, is_replaceable,
    not_replaceable,
};
pub use image::{Image, ImageContent};
pub use inventory::{Checked, DataFile, Field, InventoryError, Manifest, Rows, Schema};
pub use kept::{get_version, index_id, kept_name};
pub use key_list::{KeyList, KeyListError, Separator};
pub use keys::{AskedFor, ListedObjects, asked_for};
pub use names::Names;
pub use objects::Objects;
pub use open::{index_error, open_index};
pub use record::Record;
pub use sort::{Sorted, Sorter};

use std::time::Duration;

/// What the kernel may believe of an index, which does not change.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
