//! Operations that write: what they are asked by in each dialect.

use std::sync::Arc;

use flatout_wire::checksum::Algorithm;
use flatout_wire::documents::{self, DonePart};
use flatout_wire::object_options::{Condition, ObjectOptions};
use flatout_wire::oss::Oss;
use flatout_wire::request::Request;
use flatout_wire::s3::S3;

use crate::api::account::Target;
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
    /// Begins an upload in parts. An S3 origin is told which checksum the parts will have.
    CreateUpload { stored_as: Arc<StoredAs>, algorithm: Option<Algorithm> },
    /// One of its parts, numbered from 1.
    Part { upload_id: Arc<str>, number: u32, content: Content },
    /// Makes an object of the parts.
    Complete { upload_id: Arc<str>, stored_as: Arc<StoredAs>, whole: Content, parts: Arc<[DonePart]> },
    /// One page of the parts that an upload has.
    ListParts { upload_id: Arc<str>, marker: Option<u32> },
    /// Gives an upload up: its parts are deleted.
    Abort { upload_id: Arc<str> },
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
    pub(crate) checksum: Option<(Algorithm, u64)>,
}

impl Write {
    pub(crate) fn class(&self) -> Class {
        match self.step {
            WriteStep::Abort { .. } => Class::Delete,
            WriteStep::ListParts { .. } => Class::List,
            _ => Class::Write,
        }
    }

    /// Whether its URL has a query.
    pub(crate) fn has_query(&self) -> bool {
        !matches!(self.step, WriteStep::Put { .. })
    }

    /// The short body that goes out with the head; that of an object or a part is sent from its source.
    pub(crate) fn document(&self) -> Vec<u8> {
        match &self.step {
            WriteStep::Complete { parts, .. } => documents::complete_body(parts),
            _ => Vec::new(),
        }
    }

    pub(crate) fn s3_request(&self, s3: &S3, (bucket, key): (&str, &str)) -> Request {
        let mut request = match &self.step {
            WriteStep::Put { stored_as, .. } => {
                s3.put_object(bucket, key, &stored_as.options, &stored_as.condition)
            }
            WriteStep::CreateUpload { stored_as, algorithm } => {
                s3.create_upload(bucket, key, &stored_as.options, *algorithm)
            }
            WriteStep::Part { upload_id, number, .. } => s3.upload_part(bucket, key, upload_id, *number),
            WriteStep::Complete { upload_id, stored_as, whole, .. } => {
                s3.complete_upload(bucket, key, upload_id, &stored_as.condition, whole.checksum, whole.bytes)
            }
            WriteStep::ListParts { upload_id, marker } => s3.list_parts(bucket, key, upload_id, *marker),
            WriteStep::Abort { upload_id } => s3.abort_upload(bucket, key, upload_id),
        };
        let checksum = self.content().and_then(|content| content.checksum);
        if let Some((algorithm, value)) = checksum
            && let Some(name) = algorithm.header()
        {
            request.set(name, algorithm.encode(value));
        }
        self.set_length(&mut request);
        request
    }

    pub(crate) fn oss_request(&self, oss: &Oss, (bucket, key): (&str, &str)) -> Request {
        let mut request = match &self.step {
            WriteStep::Put { stored_as, .. } => {
                oss.put_object(bucket, key, &stored_as.options, &stored_as.condition)
            }
            WriteStep::CreateUpload { stored_as, .. } => oss.create_upload(bucket, key, &stored_as.options),
            WriteStep::Part { upload_id, number, .. } => oss.upload_part(bucket, key, upload_id, *number),
            WriteStep::Complete { upload_id, stored_as, .. } => {
                oss.complete_upload(bucket, key, upload_id, &stored_as.options, &stored_as.condition)
            }
            WriteStep::ListParts { upload_id, marker } => oss.list_parts(bucket, key, upload_id, *marker),
            WriteStep::Abort { upload_id } => oss.abort_upload(bucket, key, upload_id),
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
            WriteStep::CreateUpload { .. } | WriteStep::ListParts { .. } | WriteStep::Abort { .. } => return,
        };
        request.set("content-length", bytes.to_string());
    }
}
