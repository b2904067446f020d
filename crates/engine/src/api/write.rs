//! Operations that write: what they are asked by in each dialect.

use std::ops::Range;
use std::sync::Arc;

use flatout_wire::aws_chunked;
use flatout_wire::body_checksum::BodyChecksum;
use flatout_wire::checksum::Algorithm;
use flatout_wire::copy_source::{CopySource, Directives};
use flatout_wire::documents::{self, DonePart};
use flatout_wire::object_options::{Condition, ObjectOptions};
use flatout_wire::oss::Oss;
use flatout_wire::request::Request;
use flatout_wire::s3::S3;

use crate::api::operation::Target;
use crate::base::operation::Class;

/// An operation that changes what a store holds.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) target: Target,
    pub(crate) step: WriteStep,
}

#[derive(Clone, Debug)]
pub(crate) enum WriteStep {
    /// An object by one request.
    Put { stored_as: Arc<StoredAs>, content: Content },
    /// Appends a document to an object of OSS that has so many bytes.
    Append { position: u64, document: Arc<[u8]> },
    /// Begins an upload in parts. An S3 origin is told which checksum the parts will have.
    CreateUpload { stored_as: Arc<StoredAs>, algorithm: Option<Algorithm> },
    /// One of its parts, numbered from 1. With `trailer` the body is `aws-chunked`, and that checksum follows
    /// it.
    Part { upload_id: Arc<str>, number: u32, content: Content, trailer: Option<Algorithm> },
    /// Makes an object of the parts.
    Complete { upload_id: Arc<str>, stored_as: Arc<StoredAs>, whole: Content, parts: Arc<[DonePart]> },
    /// One page of the parts that an upload has.
    ListParts { upload_id: Arc<str>, marker: Option<u32> },
    /// Gives an upload up: its parts are deleted.
    Abort { upload_id: Arc<str> },
    /// An object from another one, within the service.
    Copy { source: Arc<CopyFrom>, stored_as: Arc<StoredAs>, directives: Directives },
    /// A part of an upload from the bytes of another object, within the service.
    CopyPart { upload_id: Arc<str>, number: u32, source: Arc<CopyFrom>, range: Range<u64> },
    /// Deletes an object, or one of its versions; with an ETag no other state of it, where the origin looks
    /// at that.
    Delete { if_match: Option<Arc<str>> },
    /// Deletes the objects of the bucket that the document names.
    DeleteMany { document: Arc<[u8]> },
    /// Makes the bucket; the document may be empty.
    CreateBucket { document: Arc<[u8]> },
    /// Deletes the bucket, which must be empty.
    DeleteBucket,
}

/// What a copy is made of.
#[derive(Clone, Debug)]
pub(crate) struct CopyFrom {
    pub(crate) target: Target,
    /// The state of the object that is copied, and no other.
    pub(crate) etag: Option<String>,
}

impl CopyFrom {
    fn source(&self) -> CopySource<'_> {
        let (bucket, key) = self.target.location.in_bucket().unwrap_or_default();
        CopySource {
            bucket,
            key,
            version_id: self.target.version_id.as_deref(),
            if_match: self.etag.as_deref(),
        }
    }
}

/// What an object is stored with, and on which condition.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredAs {
    pub(crate) options: ObjectOptions,
    pub(crate) condition: Condition,
}

/// What a body is: its length, and its checksum where the origin is to compare it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    pub(crate) bytes: u64,
    pub(crate) checksum: Option<BodyChecksum>,
}

impl Write {
    pub(crate) fn class(&self) -> Class {
        match self.step {
            WriteStep::Abort { .. }
            | WriteStep::Delete { .. }
            | WriteStep::DeleteMany { .. }
            | WriteStep::DeleteBucket => Class::Delete,
            WriteStep::ListParts { .. } => Class::List,
            _ => Class::Write,
        }
    }

    /// Whether its URL has a query.
    pub(crate) fn has_query(&self) -> bool {
        match self.step {
            WriteStep::Put { .. }
            | WriteStep::Copy { .. }
            | WriteStep::CreateBucket { .. }
            | WriteStep::DeleteBucket => false,
            WriteStep::Delete { .. } => self.target.version_id.is_some(),
            _ => true,
        }
    }

    /// The short body that goes out with the head; that of an object or a part is sent from its source.
    pub(crate) fn document(&self) -> Vec<u8> {
        match &self.step {
            WriteStep::Complete { parts, .. } => documents::complete_body(parts),
            WriteStep::DeleteMany { document }
            | WriteStep::CreateBucket { document }
            | WriteStep::Append { document, .. } => document.to_vec(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn s3_request(&self, s3: &S3, (bucket, key): (&str, &str)) -> Request {
        let mut request = match &self.step {
            WriteStep::Put { stored_as, .. } => {
                s3.put_object(bucket, key, &stored_as.options, &stored_as.condition)
            }
            WriteStep::Append { .. } => unreachable!("only OSS appends: Client::append looks at that"),
            WriteStep::CreateUpload { stored_as, algorithm } => {
                s3.create_upload(bucket, key, &stored_as.options, *algorithm)
            }
            WriteStep::Part { upload_id, number, .. } => s3.upload_part(bucket, key, upload_id, *number),
            WriteStep::Complete { upload_id, stored_as, whole, .. } => {
                let checksum = whole.checksum.and_then(BodyChecksum::crc);
                s3.complete_upload(bucket, key, upload_id, &stored_as.condition, checksum, whole.bytes)
            }
            WriteStep::ListParts { upload_id, marker } => s3.list_parts(bucket, key, upload_id, *marker),
            WriteStep::Abort { upload_id } => s3.abort_upload(bucket, key, upload_id),
            WriteStep::Copy { source, stored_as, directives } => {
                let StoredAs { options, condition } = &**stored_as;
                s3.copy_object(bucket, key, &source.source(), options, *directives, condition)
            }
            WriteStep::CopyPart { upload_id, number, source, range } => {
                s3.copy_part(bucket, key, upload_id, *number, &source.source(), range.clone())
            }
            WriteStep::Delete { if_match } => {
                let condition = if_match.as_deref().map(|etag| Condition::Matches(etag.to_owned()));
                let version_id = self.target.version_id.as_deref();
                s3.delete_object(bucket, key, version_id, &condition.unwrap_or_default())
            }
            WriteStep::DeleteMany { .. } => s3.delete_objects(bucket),
            WriteStep::CreateBucket { .. } => s3.create_bucket(bucket),
            WriteStep::DeleteBucket => s3.delete_bucket(bucket),
        };
        let checksum = self.content().and_then(|content| content.checksum);
        if let Some((name, value)) = checksum.and_then(BodyChecksum::header) {
            request.set(name, value);
        }
        self.set_length(&mut request);
        if let WriteStep::Part { content, trailer: Some(algorithm), .. } = self.step {
            aws_chunked::announce(&mut request, content.bytes, algorithm);
        }
        request
    }

    pub(crate) fn oss_request(&self, oss: &Oss, (bucket, key): (&str, &str)) -> Request {
        let mut request = match &self.step {
            WriteStep::Put { stored_as, .. } => {
                oss.put_object(bucket, key, &stored_as.options, &stored_as.condition)
            }
            WriteStep::Append { position, .. } => oss.append_object(bucket, key, *position),
            WriteStep::CreateUpload { stored_as, .. } => oss.create_upload(bucket, key, &stored_as.options),
            WriteStep::Part { upload_id, number, .. } => oss.upload_part(bucket, key, upload_id, *number),
            WriteStep::Complete { upload_id, stored_as, .. } => {
                oss.complete_upload(bucket, key, upload_id, &stored_as.options, &stored_as.condition)
            }
            WriteStep::ListParts { upload_id, marker } => oss.list_parts(bucket, key, upload_id, *marker),
            WriteStep::Abort { upload_id } => oss.abort_upload(bucket, key, upload_id),
            WriteStep::Copy { source, stored_as, directives } => {
                let StoredAs { options, condition } = &**stored_as;
                oss.copy_object(bucket, key, &source.source(), options, *directives, condition)
            }
            WriteStep::CopyPart { upload_id, number, source, range } => {
                oss.copy_part(bucket, key, upload_id, *number, &source.source(), range.clone())
            }
            WriteStep::Delete { .. } => oss.delete_object(bucket, key, self.target.version_id.as_deref()),
            WriteStep::DeleteMany { .. } => oss.delete_objects(bucket),
            WriteStep::CreateBucket { .. } => oss.create_bucket(bucket),
            WriteStep::DeleteBucket => oss.delete_bucket(bucket),
        };
        self.set_length(&mut request);
        request
    }

    /// The object or part that follows the head.
    fn content(&self) -> Option<Content> {
        match self.step {
            WriteStep::Put { content, .. } | WriteStep::Part { content, .. } => Some(content),
            _ => None,
        }
    }

    /// Requests that never have a body say so themselves.
    fn set_length(&self, request: &mut Request) {
        let bytes = match self.step {
            WriteStep::Put { content, .. } | WriteStep::Part { content, .. } => content.bytes,
            WriteStep::Complete { .. } => self.document().len() as u64,
            WriteStep::DeleteMany { ref document }
            | WriteStep::CreateBucket { ref document }
            | WriteStep::Append { ref document, .. } => document.len() as u64,
            _ => return,
        };
        if let WriteStep::DeleteMany { document } | WriteStep::Append { document, .. } = &self.step {
            request.set("content-md5", documents::content_md5(document));
        }
        request.set("content-length", bytes.to_string());
    }
}
