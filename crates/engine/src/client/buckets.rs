//! Buckets made and deleted, and URLs that let others write an object.

use flatout_wire::listing::PageStart;
use flatout_wire::location::Location;
use flatout_wire::object_options::Condition;
use flatout_wire::verdict::Reason;

use crate::api::account::{Dialect, Operation, Target, check_object};
use crate::api::write::{Content, StoredAs, Write, WriteStep};
use crate::base::error::{Error, ErrorKind};
use crate::client::Client;
use crate::shard::call::call_whole;

/// What an origin tells of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketStat {
    /// Where it lies, as S3 tells it.
    pub region: Option<String>,
}

impl Client {
    /// Looks at a bucket, by a listing of one name: a HEAD needs the same permission, and is refused
    /// without a reason.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] where there is none; the origin's refusal, or the network's.
    pub fn stat_bucket(&self, location: &Location) -> Result<BucketStat, Error> {
        let Some(under) = location.with_key("") else { return Err(no_buckets("stat", location)) };
        let operation = Operation::Page { under, delimiter: None, start: PageStart::First, most: Some(1) };
        let called = self.shards.call(operation);
        let (head, _) = called.map_err(|error| error.during("stat", location))?;
        Ok(BucketStat { region: head.bucket_region })
    }

    /// Makes a bucket: in the region of the settings with S3, in that of the endpoint with OSS.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a name that is taken, or is none; the origin's refusal, or the network's.
    pub fn create_bucket(&self, location: &Location) -> Result<(), Error> {
        let document = self.shared.account.create_bucket_document(location).into();
        self.ask_of_bucket(location, "make", WriteStep::CreateBucket { document }, Reason::ExistsAndIsOurs)
    }

    /// Deletes a bucket, which must be empty: unfinished uploads count with OSS, too.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for a bucket that is not empty; the origin's refusal, or the network's.
    pub fn delete_bucket(&self, location: &Location) -> Result<(), Error> {
        self.ask_of_bucket(location, "delete", WriteStep::DeleteBucket, Reason::NoSuchBucket)
    }

    /// `done` is the refusal that a second request gets once the first has done it: after a lost answer it is
    /// success.
    fn ask_of_bucket(
        &self,
        location: &Location,
        doing: &'static str,
        step: WriteStep,
        done: Reason,
    ) -> Result<(), Error> {
        let Some(bucket) = location.with_key("") else { return Err(no_buckets(doing, location)) };
        let operation = Operation::Write(Write { target: Target::from(bucket), step });
        let called = self.shards.wait_for(|shard| async move {
            match call_whole(&shard, operation).await {
                Err(failure) if !(failure.was_lost && failure.reason == Some(done)) => Err(failure.error),
                _ => Ok(()),
            }
        });
        called.map_err(|error| error.during(doing, location))
    }

    /// A presigned PUT URL, valid for `expires_s` seconds, with the bounds of [`Client::presign`]: whoever
    /// has it makes the object, or replaces it. Treat it as a secret. Sends no request.
    ///
    /// # Errors
    /// As [`Client::presign`].
    pub fn presign_put(&self, location: &Location, expires_s: u64) -> Result<String, Error> {
        check_object(location).map_err(|error| error.during("presign", location))?;
        let stored_as = StoredAs { condition: Condition::None, ..StoredAs::default() }.into();
        let step = WriteStep::Put { stored_as, content: Content { bytes: 0, checksum: None } };
        let operation = Operation::Write(Write { target: Target::from(location.clone()), step });
        let signer = self.signer(Dialect::of(location));
        let url = signer.and_then(|signer| self.shared.account.presigned(&operation, &signer, expires_s));
        url.map_err(|error| error.during("presign", location))
    }
}

fn no_buckets(doing: &'static str, location: &Location) -> Error {
    let error = Error::new(ErrorKind::Unsupported, "a plain http server has no buckets");
    error.during(doing, location).with_hint("name a bucket by s3:// or oss://")
}
