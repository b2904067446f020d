//! An object or a prefix as a listing or a HEAD describes it: `flatout.Info` of Python.

use std::collections::BTreeMap;
use std::sync::Arc;

use flatout_engine::{Entry, Report, Stat};
use flatout_wire::location::Location;
use flatout_wire::time::parse_http;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// An object, or a prefix that keys share up to a ``/``: an entry of a listing, or the answer to a HEAD.
#[pyclass(name = "Info", frozen, get_all, eq, module = "flatout", from_py_object)]
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectMeta {
    /// The URL to read it by.
    pub url: String,
    /// The key, without the bucket.
    pub key: String,
    /// The last part of the key; a prefix's with its ``/``.
    pub name: String,
    /// In bytes; None of a prefix, or where the origin does not say.
    pub size: Option<u64>,
    /// As sent, with its quotes.
    pub etag: Option<String>,
    /// Seconds since 1970, whole ones.
    pub modified: Option<f64>,
    /// None where the origin names none.
    pub storage_class: Option<String>,
    /// Whether it is a prefix and not an object.
    pub is_prefix: bool,
    /// The user-defined metadata, names without their prefix; empty in a listing.
    pub metadata: BTreeMap<String, String>,
    /// None in a listing.
    pub content_type: Option<String>,
    /// The id of this version, where the bucket keeps versions; None in a listing.
    pub version_id: Option<String>,
}

impl ObjectMeta {
    pub fn of_stat(url: &str, location: &Location, stat: Stat) -> ObjectMeta {
        let modified = stat.version.last_modified.as_deref().and_then(parse_http);
        ObjectMeta {
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
            version_id: stat.version_id,
        }
    }

    /// The object as the response to a read described it.
    pub fn of_report(url: &str, location: &Location, report: Report) -> Option<Arc<ObjectMeta>> {
        report.stat.map(|stat| Arc::new(ObjectMeta::of_stat(url, location, stat)))
    }

    /// The URL of the bucket that is listed, with a `/` behind it.
    pub fn bucket_of(location: &Location) -> String {
        location.bucket().map_or_else(String::new, |bucket| format!("{}://{bucket}/", location.scheme()))
    }

    /// An entry of a listing of `bucket`, which is `scheme://name/`.
    pub fn of_entry(bucket: &str, entry: Entry) -> ObjectMeta {
        let (is_prefix, listed) = match entry {
            Entry::Prefix(key) => {
                let plain = flatout_engine::Listed { key, ..Default::default() };
                (true, plain)
            }
            Entry::Object(listed) => (false, listed),
        };
        let name = listed.key.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
        let name = if is_prefix { format!("{name}/") } else { name.to_owned() };
        ObjectMeta {
            url: format!("{bucket}{}", listed.key),
            name,
            size: (!is_prefix).then_some(listed.size),
            etag: listed.etag,
            modified: (listed.last_modified > 0).then_some(listed.last_modified as f64),
            storage_class: listed.storage_class,
            is_prefix,
            metadata: BTreeMap::new(),
            content_type: None,
            version_id: None,
            key: listed.key,
        }
    }
}

#[pymethods]
impl ObjectMeta {
    #[new]
    #[pyo3(signature = (url, key, name, size, etag, modified, storage_class, is_prefix, metadata, content_type, version_id=None))]
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
        version_id: Option<String>,
    ) -> ObjectMeta {
        ObjectMeta {
            url,
            key,
            name,
            size,
            etag,
            modified,
            storage_class,
            is_prefix,
            metadata,
            content_type,
            version_id,
        }
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let ObjectMeta { url, key, name, size, etag, modified, storage_class, is_prefix, metadata, .. } =
            slf.get();
        let ObjectMeta { content_type, version_id, .. } = slf.get();
        let told = (
            url,
            key,
            name,
            size,
            etag,
            modified,
            storage_class,
            is_prefix,
            metadata,
            content_type,
            version_id,
        );
        (slf.get_type(), told).into_pyobject(slf.py())
    }

    fn __repr__(&self) -> String {
        let size = self.size.map_or_else(|| "prefix".to_owned(), |size| format!("{size} bytes"));
        format!("Info({:?}, {size})", self.url)
    }
}
