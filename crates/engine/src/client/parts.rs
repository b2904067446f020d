//! An upload in parts that are sent without the engine: what plain loops in a measurement need of it.

use std::sync::Arc;

use bytes::Bytes;
use flatout_wire::documents::DonePart;
use flatout_wire::location::Location;
use flatout_wire::object_options::ObjectOptions;
use flatout_wire::request::Request;
use flatout_wire::upload_answers;

use crate::api::account::check_writable;
use crate::api::account::{Dialect, Operation};
use crate::api::write::{Content, StoredAs, Write, WriteStep};
use crate::base::error::{Error, ErrorKind};
use crate::client::Client;

impl Client {
    /// Begins an upload in parts of an object that is stored with `options`; its id.
    /// [`Client::complete_parts`] or [`Client::abort_parts`] ends it.
    ///
    /// # Errors
    /// A location that cannot be written to; the origin's refusal, or the network's.
    pub fn begin_parts(&self, location: &Location, options: ObjectOptions) -> Result<String, Error> {
        let stored_as = Arc::new(StoredAs { options, ..StoredAs::default() });
        let begun = self.write(location, WriteStep::CreateUpload { stored_as, algorithm: None });
        let body = begun.map_err(|error| error.during("upload", location))?;
        upload_answers::parse_created(&body).map_err(|nonsense| {
            let cause = format!("the origin's answer names no upload: {nonsense}");
            Error::new(ErrorKind::Unsupported, cause).during("upload", location)
        })
    }

    /// The PUT of a part without a checksum, signed with the keys of now. Its body of so many bytes is the
    /// caller's.
    ///
    /// # Errors
    /// As [`Client::signed_get`], and a location that cannot be written to.
    pub fn signed_part(
        &self,
        location: &Location,
        upload_id: &str,
        number: u32,
        bytes: u64,
    ) -> Result<Request, Error> {
        let content = Content { bytes, checksum: None };
        let step = WriteStep::Part { upload_id: upload_id.into(), number, content, trailer: None };
        let request = operation(location, step).and_then(|operation| {
            let signer = self.signer(Dialect::of(location))?;
            self.shared.account.request(&operation, &signer)
        });
        request.map_err(|error| error.during("upload", location))
    }

    /// Makes the object of its parts, `bytes` in all: the ETags that the origin gave them, from part 1 on.
    ///
    /// # Errors
    /// As [`Client::begin_parts`].
    pub fn complete_parts(
        &self,
        location: &Location,
        upload_id: &str,
        etags: Vec<String>,
        bytes: u64,
    ) -> Result<(), Error> {
        let part = |(number, etag)| DonePart { number, etag, checksum: None };
        let step = WriteStep::Complete {
            upload_id: upload_id.into(),
            stored_as: Arc::default(),
            whole: Content { bytes, checksum: None },
            parts: (1..).zip(etags).map(part).collect(),
        };
        self.write(location, step).map(drop).map_err(|error| error.during("upload", location))
    }

    /// Deletes the parts of an upload, which is then forgotten.
    ///
    /// # Errors
    /// As [`Client::begin_parts`].
    pub fn abort_parts(&self, location: &Location, upload_id: &str) -> Result<(), Error> {
        let aborted = self.write(location, WriteStep::Abort { upload_id: upload_id.into() });
        aborted.map(drop).map_err(|error| error.during("abort", location))
    }

    fn write(&self, location: &Location, step: WriteStep) -> Result<Bytes, Error> {
        self.shards.call(operation(location, step)?).map(|(_, body)| body)
    }
}

fn operation(location: &Location, step: WriteStep) -> Result<Operation, Error> {
    check_writable(location)?;
    Ok(Operation::Write(Write { target: location.clone().into(), step }))
}
