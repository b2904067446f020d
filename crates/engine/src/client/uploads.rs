//! Unfinished uploads of a bucket: listed page by page, and aborted.

use std::collections::VecDeque;
use std::sync::Arc;

use flatout_wire::location::Location;
use flatout_wire::upload_answers;
use flatout_wire::verdict::Reason;

use crate::api::account::{Operation, Target};
use crate::api::write::{Write, WriteStep};
use crate::base::error::{Error, ErrorKind};
use crate::client::Client;
use crate::client::list::repeats_a_page;
use crate::shard::call::call_whole;
use crate::shard::shards::Shards;

/// An upload in parts that was neither completed nor aborted: its parts take space, and are paid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnfinishedUpload {
    /// The object that it was to make.
    pub location: Location,
    /// What tells it from other uploads of that object.
    pub id: String,
    /// When it was begun, in seconds since 1970; `None` where the origin does not say.
    pub begun_s: Option<u64>,
}

/// The unfinished uploads of objects whose keys begin with a prefix, page after page. A page that fails ends
/// the list with its error.
///
/// The whole bucket is asked for: MinIO takes a prefix for a whole key, and would hide uploads.
pub struct UnfinishedUploads {
    shards: Arc<Shards>,
    under: Location,
    /// Where the next page begins; `None` when there is none.
    next: Option<(Option<String>, Option<String>)>,
    page: VecDeque<UnfinishedUpload>,
}

impl Client {
    /// The unfinished uploads of objects whose keys begin with that of `under`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for what is no bucket; the network's errors come with the items.
    pub fn uploads(&self, under: &Location) -> Result<UnfinishedUploads, Error> {
        if under.bucket().is_none() {
            let error = Error::new(ErrorKind::Unsupported, "a plain http server has no uploads");
            return Err(error.during("list uploads", under).with_hint("name a bucket by s3:// or oss://"));
        }
        Ok(UnfinishedUploads {
            shards: self.shards.clone(),
            under: under.clone(),
            next: Some((None, None)),
            page: VecDeque::new(),
        })
    }

    /// Aborts an upload: the origin deletes its parts. One that is gone by then counts as aborted.
    ///
    /// # Errors
    /// The origin's refusal, or the network's.
    pub fn abort_upload(&self, location: &Location, id: &str) -> Result<(), Error> {
        let (target, step) = (Target::from(location.clone()), WriteStep::Abort { upload_id: id.into() });
        let operation = Operation::Write(Write { target, step });
        let aborted = self.shards.wait_for(|shard| async move {
            match call_whole(&shard, operation).await {
                Err(failure) if failure.reason != Some(Reason::UploadGone) => Err(failure.error),
                _ => Ok(()),
            }
        });
        aborted.map_err(|error| error.during("abort the upload", location))
    }
}

impl UnfinishedUploads {
    fn fetch_page(&mut self, (key, id): (Option<String>, Option<String>)) -> Result<(), Error> {
        let bucket = self.under.with_key("").expect("only a bucket has uploads");
        let operation = Operation::Uploads { bucket, key: key.clone(), id: id.clone() };
        let (_, body) = self.shards.call(operation)?;
        let page = upload_answers::parse_uploads(&body).map_err(|nonsense| {
            Error::new(ErrorKind::Network, format!("the answer is no list of uploads: {nonsense}"))
                .with_hint(format!("does this endpoint speak {}?", self.under.scheme().to_uppercase()))
        })?;
        if page.next_key.is_some() {
            if (&page.next_key, &page.next_id) == (&key, &id) {
                return Err(repeats_a_page());
            }
            self.next = Some((page.next_key, page.next_id));
        }
        let wanted = page.uploads.into_iter().filter(|upload| upload.key.starts_with(self.under.key()));
        self.page.extend(wanted.filter_map(|upload| {
            Some(UnfinishedUpload {
                location: self.under.with_key(upload.key)?,
                id: upload.id,
                begun_s: Some(upload.initiated).filter(|begun_s| *begun_s > 0),
            })
        }));
        Ok(())
    }
}

impl Iterator for UnfinishedUploads {
    type Item = Result<UnfinishedUpload, Error>;

    fn next(&mut self) -> Option<Result<UnfinishedUpload, Error>> {
        loop {
            if let Some(upload) = self.page.pop_front() {
                return Some(Ok(upload));
            }
            let from = self.next.take()?;
            if let Err(error) = self.fetch_page(from) {
                return Some(Err(error.during("list uploads", &self.under)));
            }
        }
    }
}
