//! What a copy within the service takes from where, and what it keeps.

use std::ops::Range;

use crate::percent;
use crate::range::http_range;
use crate::request::Request;

/// The object that a copy reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopySource<'a> {
    pub bucket: &'a str,
    /// Not encoded.
    pub key: &'a str,
    /// One of the object's versions; the current one where it is `None`.
    pub version_id: Option<&'a str>,
    /// The ETag that the source must have, quotes included. Both dialects look at it.
    pub if_match: Option<&'a str>,
}

/// Where a copy has something from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Directive {
    /// From its source.
    #[default]
    Keep,
    /// From the request.
    Replace,
}

/// Where a copy has its descriptions from. Storage class, encryption and access list are the request's in
/// any case: a copy never has them from its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directives {
    /// Content type, the other headers of the content, and metadata: all of them or none.
    pub metadata: Directive,
    pub tags: Directive,
}

impl CopySource<'_> {
    /// Sets the headers `PREFIX-copy-source…`; `slash` goes before the bucket.
    pub(crate) fn put(&self, request: &mut Request, prefix: &str, slash: &str) {
        let mut source = slash.to_owned();
        percent::encode_path(self.bucket, &mut source);
        source.push('/');
        percent::encode_path(self.key, &mut source);
        if let Some(version_id) = self.version_id {
            source.push_str("?versionId=");
            percent::encode_query(version_id, &mut source);
        }
        request.set(&format!("{prefix}-copy-source"), source);
        if let Some(etag) = self.if_match {
            request.set(&format!("{prefix}-copy-source-if-match"), etag);
        }
    }
}

/// Sets the header of the bytes that a copied part has from its source.
pub(crate) fn put_range(request: &mut Request, prefix: &str, range: &Range<u64>) {
    request.set(&format!("{prefix}-copy-source-range"), http_range(range));
}
