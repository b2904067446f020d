//! What a listing or a HEAD tells of an object or a prefix, as Python has it.

use std::collections::BTreeMap;

use flatout_engine::{Entry, Stat};
use flatout_wire::location::Location;
use flatout_wire::time::parse_http;
use pyo3::prelude::*;

/// An object, or a prefix that keys share up to a '/'.
///
/// Attributes: url (str); key (str: what stands behind the bucket); name (str: the last part of it, a prefix's with its '/');
/// size (int, in bytes; None of a prefix, or where the origin does not say); etag (str | None: as sent, with its quotes);
/// modified (float | None: seconds since 1970, whole ones); storage_class (str | None); is_prefix (bool); metadata (dict of
/// the user's own headers, without their prefix; empty in a listing); content_type (str | None; None in a listing).
#[pyclass(frozen, get_all, eq, module = "flatout", from_py_object)]
#[derive(Clone, Debug, PartialEq)]
pub struct Info {
    pub url: String,
    pub key: String,
    pub name: String,
    pub size: Option<u64>,
    pub etag: Option<String>,
    pub modified: Option<f64>,
    pub storage_class: Option<String>,
    pub is_prefix: bool,
    pub metadata: BTreeMap<String, String>,
    pub content_type: Option<String>,
}

impl Info {
    pub fn of_stat(url: &str, location: &Location, stat: Stat) -> Info {
        let modified = stat.version.last_modified.as_deref().and_then(parse_http);
        Info {
            url: url.to_owned(),
            key: location.key().to_owned(),
            name: location.name().to_owned(),
            size: stat.version.size,
            etag: stat.version.etag,
            modified: modified.map(|s| s as f64),
            storage_class: stat.storage_class,
            is_prefix: false,
            metadata: stat.metadata.into_iter().collect(),
            content_type: stat.content_type,
        }
    }

    /// What stands before the keys of a listing.
    pub fn bucket_of(location: &Location) -> String {
        location.bucket().map_or_else(String::new, |bucket| format!("{}://{bucket}/", location.scheme()))
    }

    /// Of an entry of a listing of `bucket`, which is `scheme://name/`.
    pub fn of_entry(bucket: &str, entry: Entry) -> Info {
        let (is_prefix, listed) = match entry {
            Entry::Prefix(key) => {
                let plain = flatout_engine::Listed { key, ..Default::default() };
                (true, plain)
            }
            Entry::Object(listed) => (false, listed),
        };
        let name = listed.key.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let name = if is_prefix { format!("{name}/") } else { name.to_owned() };
        Info {
            url: format!("{bucket}{}", listed.key),
            name,
            size: (!is_prefix).then_some(listed.size),
            etag: listed.etag,
            modified: (listed.last_modified > 0).then_some(listed.last_modified as f64),
            storage_class: listed.storage_class,
            is_prefix,
            metadata: BTreeMap::new(),
            content_type: None,
            key: listed.key,
        }
    }
}

#[pymethods]
impl Info {
    #[new]
    #[pyo3(signature = (url, key, name, size, etag, modified, storage_class, is_prefix, metadata, content_type))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        url: String,
        key: String,
        name: String,
        size: Option<u64>,
        etag: Option<String>,
        modified: Option<f64>,
        storage_class: Option<String>,
        is_prefix: bool,
        metadata: BTreeMap<String, String>,
        content_type: Option<String>,
    ) -> Info {
        Info { url, key, name, size, etag, modified, storage_class, is_prefix, metadata, content_type }
    }

    #[allow(clippy::type_complexity)]
    fn __getnewargs__(
        &self,
    ) -> (
        String,
        String,
        String,
        Option<u64>,
        Option<String>,
        Option<f64>,
        Option<String>,
        bool,
        BTreeMap<String, String>,
        Option<String>,
    ) {
        let Info { url, key, name, size, etag, modified, storage_class, is_prefix, metadata, content_type } =
            self.clone();
        (url, key, name, size, etag, modified, storage_class, is_prefix, metadata, content_type)
    }

    fn __repr__(&self) -> String {
        let size = self.size.map_or_else(|| "prefix".to_owned(), |size| format!("{size} bytes"));
        format!("Info({:?}, {size})", self.url)
    }
}
