//! Operations: what a store is asked for, and the request for each in either dialect.

use std::sync::Arc;

use flatout_wire::listing::PageStart;
use flatout_wire::location::{HttpUrl, Location};
use flatout_wire::oss::Oss;
use flatout_wire::request::{self, Method, Request};
use flatout_wire::s3::S3;

use crate::api::write::Write;
use crate::base::operation::Class;
use crate::net::proxy::is_metadata;

/// By whose rules a request is made and signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Plain HTTP: not signed.
    Plain,
    /// Amazon S3 and whatever speaks it.
    S3,
    /// Alibaba Cloud OSS.
    Oss,
}

/// An object, or one of its versions.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) location: Location,
    /// That of the origin; the newest where absent.
    pub(crate) version_id: Option<Arc<str>>,
}

impl From<Location> for Target {
    fn from(location: Location) -> Target {
        Target { location, version_id: None }
    }
}

/// What a store is asked for, apart from where it lies and whose keys sign: enough to ask again elsewhere.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    Get(Target),
    /// The whole of an object by one answer, which states its checksum too.
    Whole(Target),
    /// Of a bucket's object with the checksums that the origin has.
    Head(Target),
    /// One page of the listing of `under`.
    Page {
        under: Location,
        delimiter: Option<char>,
        start: PageStart,
        /// Keys and prefixes that it may have at most; the origin's own bound where nobody says.
        most: Option<u32>,
    },
    Buckets {
        dialect: Dialect,
        marker: Option<String>,
    },
    /// The tags of a bucket's object.
    Tags(Target),
    /// One page of the unfinished uploads of a bucket: key and id are those that the page before ended with.
    Uploads {
        bucket: Location,
        key: Option<String>,
        id: Option<String>,
    },
    Write(Write),
}

impl Dialect {
    /// The dialect in which a location is asked for.
    pub fn of(location: &Location) -> Dialect {
        match location {
            Location::S3 { .. } => Dialect::S3,
            Location::Oss { .. } => Dialect::Oss,
            Location::Http { .. } => Dialect::Plain,
        }
    }
}

impl Operation {
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Operation::Get(target)
            | Operation::Whole(target)
            | Operation::Head(target)
            | Operation::Tags(target) => Dialect::of(&target.location),
            Operation::Page { under: bucket, .. } | Operation::Uploads { bucket, .. } => Dialect::of(bucket),
            Operation::Buckets { dialect, .. } => *dialect,
            Operation::Write(write) => Dialect::of(&write.target.location),
        }
    }

    /// What it is about; nothing for the list of buckets.
    pub(crate) fn location(&self) -> Option<&Location> {
        match self {
            Operation::Get(target)
            | Operation::Whole(target)
            | Operation::Head(target)
            | Operation::Tags(target) => Some(&target.location),
            Operation::Page { under: bucket, .. } | Operation::Uploads { bucket, .. } => Some(bucket),
            Operation::Buckets { .. } => None,
            Operation::Write(write) => Some(&write.target.location),
        }
    }

    /// The location that a redirect of a plain server may replace.
    pub(crate) fn location_mut(&mut self) -> Option<&mut Location> {
        match self {
            Operation::Get(target)
            | Operation::Whole(target)
            | Operation::Head(target)
            | Operation::Tags(target) => Some(&mut target.location),
            Operation::Page { .. }
            | Operation::Buckets { .. }
            | Operation::Uploads { .. }
            | Operation::Write(_) => None,
        }
    }

    /// Whose limits at the origin it counts for.
    pub(crate) fn class(&self) -> Class {
        match self {
            Operation::Get(_) | Operation::Whole(_) | Operation::Head(_) | Operation::Tags(_) => Class::Read,
            Operation::Page { .. } | Operation::Buckets { .. } | Operation::Uploads { .. } => Class::List,
            Operation::Write(write) => write.class(),
        }
    }

    /// Whether a URL asks for the same of a bucket: only a redirect to one tells where the bucket lies. None
    /// that leads to a machine's own metadata does.
    pub(crate) fn is_asked_by(&self, url: &HttpUrl) -> bool {
        let (bucket, key) = self.resource();
        let has_query = url.path_and_query.contains('?');
        S3::is_same_resource(url, bucket, key)
            && (!has_query || self.has_query())
            && !is_metadata(&url.endpoint)
    }

    /// Whether its own URL has one.
    fn has_query(&self) -> bool {
        match self {
            Operation::Get(target) | Operation::Whole(target) | Operation::Head(target) => {
                target.version_id.is_some()
            }
            Operation::Tags(_) => true,
            Operation::Page { .. } | Operation::Uploads { .. } => true,
            Operation::Buckets { .. } => false,
            Operation::Write(write) => write.has_query(),
        }
    }

    /// Bucket and key that it is about; empty where it is about none.
    pub(crate) fn resource(&self) -> (&str, &str) {
        match self {
            Operation::Get(target)
            | Operation::Whole(target)
            | Operation::Head(target)
            | Operation::Tags(target) => target.location.in_bucket().unwrap_or_default(),
            Operation::Page { under: bucket, .. } | Operation::Uploads { bucket, .. } => {
                (bucket.in_bucket().unwrap_or_default().0, "")
            }
            Operation::Buckets { .. } => ("", ""),
            Operation::Write(write) => write.target.location.in_bucket().unwrap_or_default(),
        }
    }
}

pub(crate) fn plain_request(operation: &Operation) -> Request {
    let (Operation::Get(target) | Operation::Whole(target) | Operation::Head(target)) = operation else {
        unreachable!(
            "only a URL is plain, and it can be read and looked at: the client refuses to write to it"
        );
    };
    let Location::Http { url } = &target.location else { unreachable!("no other location is plain") };
    let mut request = request::get_url(url);
    if matches!(operation, Operation::Head(_)) {
        request.method = Method::Head;
    }
    request
}

pub(crate) fn s3_request(s3: &S3, operation: &Operation) -> Request {
    let (bucket, key) = operation.resource();
    let mut request = match operation {
        Operation::Get(_) => s3.get_object(bucket, key),
        Operation::Whole(_) => {
            let mut request = s3.get_object(bucket, key);
            request.set("x-amz-checksum-mode", "ENABLED");
            request
        }
        Operation::Head(_) => s3.head_object(bucket, key),
        Operation::Page { under, delimiter, start, most } => {
            s3.list_objects_v2(bucket, under.key(), *delimiter, start, *most)
        }
        Operation::Buckets { .. } => s3.list_buckets(),
        Operation::Tags(_) => s3.get_tags(bucket, key),
        Operation::Uploads { key, id, .. } => s3.list_uploads(bucket, "", key.as_deref(), id.as_deref()),
        Operation::Write(write) => write.s3_request(s3, (bucket, key)),
    };
    name_version(operation, &mut request);
    request
}

fn name_version(operation: &Operation, request: &mut Request) {
    let target = match operation {
        Operation::Get(target)
        | Operation::Whole(target)
        | Operation::Head(target)
        | Operation::Tags(target) => target,
        Operation::Page { .. }
        | Operation::Buckets { .. }
        | Operation::Uploads { .. }
        | Operation::Write(_) => return,
    };
    if let Some(version_id) = &target.version_id {
        request.add_parameter("versionId", version_id);
    }
}

pub(crate) fn oss_request(oss: &Oss, operation: &Operation) -> Request {
    let (bucket, key) = operation.resource();
    let mut request = match operation {
        Operation::Get(_) | Operation::Whole(_) => oss.get_object(bucket, key),
        Operation::Head(_) => oss.head_object(bucket, key),
        Operation::Page { under, delimiter, start, most } => {
            oss.list_objects_v2(bucket, under.key(), *delimiter, start, *most)
        }
        Operation::Buckets { marker, .. } => oss.list_buckets(marker.as_deref()),
        Operation::Tags(_) => oss.get_tags(bucket, key),
        Operation::Uploads { key, id, .. } => oss.list_uploads(bucket, "", key.as_deref(), id.as_deref()),
        Operation::Write(write) => write.oss_request(oss, (bucket, key)),
    };
    name_version(operation, &mut request);
    request
}
