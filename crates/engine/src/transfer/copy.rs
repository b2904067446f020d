//! A copy within a service: one request for a short object, parts for a long one.
//!
//! ```text
//! HEAD source ─┬─ short: copy                         the object is there whole, or not at all
//!              └─ long:  tags ─ create ─ part 1, part 2, … ─ complete;  any failure: abort
//! ```

use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use flatout_policy::upload::copy_part_bytes;
use flatout_wire::checksum::{Algorithm, Checksum};
use flatout_wire::copy_source::{Directive, Directives};
use flatout_wire::documents::{self, DonePart};
use flatout_wire::head::{Coverage, Head};
use flatout_wire::object_options::{Condition, ObjectOptions};
use flatout_wire::time::parse_http;
use flatout_wire::upload_answers::{self, Copied};
use flatout_wire::verdict::Reason;
use tokio::task::JoinSet;

use crate::api::account::{Operation, Target};
use crate::api::refusal::Failure;
use crate::api::write::{Content, CopyFrom, StoredAs, Write, WriteStep};
use crate::base::error::{Error, ErrorKind};
use crate::base::report::{Progress, Report, Stat, Verified};
use crate::base::version::Version;
use crate::shard::Shard;
use crate::shard::call::call_whole;
use crate::sink::end::End;
use crate::transfer::copied_parts::{IN_FLIGHT, PartsInFlight, out_of_patience};
use crate::transfer::guard::TransferGuard;
use crate::transfer::put::OnBegun;
use crate::transfer::resources::Resources;
use crate::transfer::server_copy::ServerCopy;
use crate::transfer::upload_checksum::{NOT_STATED, is_md5};
use crate::transfer::upload_workers::{ABORT_WITHIN, LOOK_EVERY, nonsensical, object_there, says_there};
use crate::transfer::workers::{run_past_the_stop, run_until_stopped};
use crate::transfer::{ActiveTransfer, Running};

const UNKNOWN_END: &str = "whether the copy was made is not known: look before you copy again";
const LEFT_PARTS: &str = "parts that were copied could not be deleted: they take space until the upload is \
                          aborted at the origin";

/// A copy on its way.
pub(crate) struct CopyTransfer {
    transfer: ActiveTransfer,
    source: Target,
    /// The source has to have it.
    from_etag: Option<String>,
    target: Target,
    options: ObjectOptions,
    describes_anew: bool,
    states_time_as: Option<&'static str>,
    condition: Condition,
    verify: bool,
    /// The bytes of the source, once it was looked at.
    bytes: OnceLock<u64>,
    /// Set where the object is copied in parts.
    upload_id: OnceLock<Arc<str>>,
    on_begun: Mutex<Option<OnBegun>>,
    stored: OnceLock<Stored>,
    /// Its parts are being deleted, or have been.
    is_aborting: AtomicBool,
    has_left_parts: AtomicBool,
}

struct Stored {
    /// Of the source.
    stat: Stat,
    version: Version,
    bytes: u64,
    verified: Verified,
}

/// The source as it was looked at.
struct Source {
    bytes: u64,
    copied_from: Arc<CopyFrom>,
    head: Head,
}

impl Source {
    /// The copy is there, as `head` tells.
    fn stored(&self, head: &Head, verified: Verified) -> Stored {
        let bytes = self.bytes;
        let (stat, version) = (Stat::of(&self.head, Some(bytes)), Version::of(head, Some(bytes)));
        Stored { stat, version, bytes, verified }
    }
}

impl CopyTransfer {
    pub(crate) fn new(copy: ServerCopy, resources: Resources) -> CopyTransfer {
        let verify = resources.care.verify;
        let mut transfer = ActiveTransfer::new(copy.name(), resources);
        transfer.end = End::new(copy.on_end);
        CopyTransfer {
            transfer,
            source: Target { location: copy.from, version_id: copy.version_id },
            from_etag: copy.from_etag,
            target: Target::from(copy.to),
            options: copy.options,
            describes_anew: copy.describes_anew,
            states_time_as: copy.states_time_as,
            condition: copy.condition,
            verify,
            bytes: OnceLock::new(),
            upload_id: OnceLock::new(),
            on_begun: Mutex::new(copy.on_begun),
            stored: OnceLock::new(),
            is_aborting: AtomicBool::new(false),
            has_left_parts: AtomicBool::new(false),
        }
    }

    /// Nobody will ask how it ended.
    pub(crate) fn forget_call(&self) {
        self.transfer.end.forget_call();
    }

    fn operation(&self, step: WriteStep) -> Operation {
        Operation::Write(Write { target: self.target.clone(), step })
    }

    fn on_stored(&self, stored: Stored) {
        let fresh = self.stored.set(stored).is_ok();
        assert!(fresh, "an object is stored once, by the lead");
    }

    fn on_copied(&self, bytes: u64) {
        self.transfer.counters.received_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn conclude(&self) -> Result<Report, Error> {
        let Some(stored) = self.stored.get() else {
            return Err(Error::new(ErrorKind::Cancelled, "the client was closed while the copy ran"));
        };
        let counters = &self.transfer.counters;
        Ok(Report {
            version: stored.version.clone(),
            stat: Some(stored.stat.clone()),
            range: 0..stored.bytes,
            bytes: stored.bytes,
            fetched_bytes: 0,
            resumed_bytes: 0,
            resume_note: None,
            verified: stored.verified,
            seconds: self.transfer.clock_s(),
            retries: counters.retries.load(Ordering::Relaxed),
            tails: counters.tails(),
            connections: counters.connections.load(Ordering::Relaxed),
            shards: 1,
            limited_by: None,
            parts: Vec::new(),
        })
    }
}

impl Running for CopyTransfer {
    fn transfer(&self) -> &ActiveTransfer {
        &self.transfer
    }

    /// Bytes that the origin has copied count as if they had come: so there is a rate.
    fn progress(&self) -> Progress {
        self.transfer.counters.progress(self.bytes.get().copied(), None)
    }

    fn fail(&self, error: Error) {
        self.transfer.fail(error);
    }

    fn finish(&self) {
        self.transfer.gate.leave(self.transfer.slots.transfer());
        let result = self.transfer.take_failure().map_or_else(|| self.conclude(), Err);
        let result = result.map_err(|error| {
            let error = error.during("copy", &self.transfer.name);
            match self.has_left_parts.load(Ordering::Relaxed) {
                true => error.with_further_hint(LEFT_PARTS),
                false => error,
            }
        });
        self.transfer.end.settle(result);
    }
}

/// Leads a copy from its first request to its last.
pub(crate) async fn run_copy(shard: Rc<Shard>, hold: TransferGuard<CopyTransfer>) {
    hold.transfer.join_shard(shard.number);
    run_until_stopped(&*hold, lead(&shard, &hold)).await;
    if hold.stored.get().is_none() {
        abort(&shard, &hold).await;
    }
}

async fn lead(shard: &Rc<Shard>, hold: &TransferGuard<CopyTransfer>) -> Result<(), Error> {
    let source = look(shard, hold).await?;
    match copy_part_bytes(source.bytes, shard.shared.settings.part_bytes) {
        None => copy_whole(shard, hold, &source).await,
        Some(part_bytes) => copy_parts(shard, hold, &source, part_bytes).await,
    }
}

/// What is to be copied: the version that is there now, and no other.
async fn look(shard: &Rc<Shard>, copy: &CopyTransfer) -> Result<Source, Error> {
    let called = call_whole(shard, Operation::Head(copy.source.clone())).await;
    let (head, _) = called.map_err(|failure| failure.error.during("read", &copy.source.location))?;
    let bytes = head.content_length.ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "the origin does not say how long the source is")
    })?;
    let etag = head.strong_etag().map(str::to_owned);
    if etag.is_none() && copy.source.version_id.is_none() {
        let cause = "the source has no ETag that names one version of it: what is copied would not be known";
        return Err(Error::new(ErrorKind::Unsupported, cause));
    }
    if copy.from_etag.is_some() && copy.from_etag != etag {
        let cause = "another client has replaced it: it stays as it is";
        return Err(Error::new(ErrorKind::Changed, cause));
    }
    let _ = copy.bytes.set(bytes);
    let copied_from = Arc::new(CopyFrom { target: copy.source.clone(), etag });
    Ok(Source { bytes, copied_from, head })
}

/// Copies a short object by one request.
async fn copy_whole(shard: &Rc<Shard>, copy: &CopyTransfer, source: &Source) -> Result<(), Error> {
    let keeps = ObjectOptions {
        storage_class: None,
        acl: None,
        sse: None,
        sse_kms_key_id: None,
        tags: Vec::new(),
        ..copy.options.clone()
    } == ObjectOptions::default();
    let keeps = keeps && !copy.describes_anew && stated_time(copy, &source.head).is_none();
    let directive = |keeps| if keeps { Directive::Keep } else { Directive::Replace };
    let directives = Directives { metadata: directive(keeps), tags: directive(copy.options.tags.is_empty()) };
    let options = ObjectOptions { tags: copy.options.tags.clone(), ..described(copy, &source.head) };
    let stored_as = Arc::new(StoredAs { options, condition: copy.condition.clone() });
    let step = WriteStep::Copy { source: source.copied_from.clone(), stored_as, directives };
    copy.transfer.begin_last_request()?;
    let (head, body) = match call_whole(shard, copy.operation(step)).await {
        Ok(answer) => answer,
        Err(failure) => {
            // An MD5 is that of the copy, too.
            let md5 = source.copied_from.etag.as_deref().filter(|etag| is_md5(etag));
            return settle(shard, copy, source, failure, md5).await;
        }
    };
    let copied =
        upload_answers::parse_copied(&body).map_err(|nonsense| nonsensical("copied object", &nonsense))?;
    copy.on_copied(source.bytes);
    store(copy, source, head, copied)
}

/// Headers and metadata of the source, and what was given in place of them; class, encryption and access list
/// as given.
fn described(copy: &CopyTransfer, source: &Head) -> ObjectOptions {
    let given = &copy.options;
    let own_class = || source.storage_class.clone().filter(|_| copy.describes_anew);
    let mut options = ObjectOptions {
        content_type: source.content_type.clone(),
        storage_class: given.storage_class.clone().or_else(own_class),
        acl: given.acl.clone(),
        sse: given.sse.clone(),
        sse_kms_key_id: given.sse_kms_key_id.clone(),
        metadata: given.metadata.clone(),
        ..ObjectOptions::default()
    };
    for (name, value) in &source.content_headers {
        options.describe(name, value);
    }
    let replacing = [
        ("content-type", &given.content_type),
        ("cache-control", &given.cache_control),
        ("content-disposition", &given.content_disposition),
        ("content-encoding", &given.content_encoding),
        ("content-language", &given.content_language),
        ("expires", &given.expires),
    ];
    for (name, value) in replacing {
        if let Some(value) = value {
            options.describe(name, value);
        }
    }
    let is_given = |name: &str| given.metadata.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    if !copy.describes_anew {
        options.metadata.extend(source.metadata.iter().filter(|(name, _)| !is_given(name)).cloned());
    }
    options.metadata.extend(stated_time(copy, source));
    options
}

/// The time of the source as metadata of the copy, where that is wanted and the source has none.
fn stated_time(copy: &CopyTransfer, source: &Head) -> Option<(String, String)> {
    let wanted = copy.states_time_as?;
    if source.metadata.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted)) {
        return None;
    }
    let modified_s = source.last_modified.as_deref().and_then(parse_http)?;
    Some((wanted.to_owned(), modified_s.to_string()))
}

/// Copies a long object in parts, several at a time. What one request would keep is read and stated anew.
async fn copy_parts(
    shard: &Rc<Shard>,
    hold: &TransferGuard<CopyTransfer>,
    source: &Source,
    part_bytes: u64,
) -> Result<(), Error> {
    let tags = match hold.options.tags.is_empty() {
        true => tags_of(shard, &hold.source, source.head.tags_count).await?,
        false => hold.options.tags.clone(),
    };
    let options = ObjectOptions { tags, ..described(hold, &source.head) };
    let stored_as = Arc::new(StoredAs { options, condition: hold.condition.clone() });
    let upload_id = begin(shard, hold, &stored_as).await?;
    let asked = shard.shared.settings.parallel.map_or(IN_FLIGHT, |asked| asked as usize);
    let mut ranges = (0..source.bytes.div_ceil(part_bytes)).map(|number| {
        let start = number * part_bytes;
        (number as u32 + 1, start..(start + part_bytes).min(source.bytes))
    });
    let (mut in_flight, mut done) = (PartsInFlight(JoinSet::new()), Vec::new());
    loop {
        while in_flight.0.len() < asked.min(IN_FLIGHT)
            && let Some((number, range)) = ranges.next()
        {
            let (shard, hold) = (shard.clone(), hold.clone());
            let (upload_id, source) = (upload_id.clone(), source.copied_from.clone());
            in_flight.0.spawn_local(async move {
                tokio::select! {
                    biased;
                    ended = copy_part(&shard, &hold, upload_id, number, source, range) => ended,
                    failure = out_of_patience(&hold.transfer) => Err(failure),
                }
            });
        }
        let Some(ended) = in_flight.0.join_next().await else { break };
        match ended {
            Ok(Ok(part)) => done.push(part),
            Ok(Err(failure)) => return Err(explained(shard, hold, source, failure).await),
            Err(_) => return Err(Error::new(ErrorKind::Internal, "a part of the copy was lost")),
        }
    }
    done.sort_unstable_by_key(|part: &DonePart| part.number);
    complete(shard, hold, source, upload_id, stored_as, done).await
}

/// The tags of the source, which a copy keeps. S3 states their number only to keys that may read them: where
/// none is stated they are asked for, and where that is refused, nothing is copied.
pub(crate) async fn tags_of(
    shard: &Rc<Shard>,
    source: &Target,
    stated_count: Option<u32>,
) -> Result<Vec<(String, String)>, Error> {
    if stated_count == Some(0) {
        return Ok(Vec::new());
    }
    match call_whole(shard, Operation::Tags(source.clone())).await {
        Ok((_, body)) => {
            upload_answers::parse_tags(&body).map_err(|nonsense| nonsensical("list of tags", &nonsense))
        }
        // A server without tags; some say so of an object without any.
        Err(failure) if failure.reason == Some(Reason::Unsupported) && stated_count.is_none() => {
            Ok(Vec::new())
        }
        Err(failure) if failure.error.cause().contains("NoSuchTagSet") => Ok(Vec::new()),
        Err(failure) => Err(failure
            .error
            .during("read the tags", &source.location)
            .with_further_hint("a copy keeps the tags; where they may not be read, give it tags of its own")),
    }
}

/// Begins an upload. Once the origin was asked for it, it is not forgotten: where the copy is stopped
/// meanwhile, it is aborted.
async fn begin(
    shard: &Rc<Shard>,
    hold: &TransferGuard<CopyTransfer>,
    stored_as: &Arc<StoredAs>,
) -> Result<Arc<str>, Error> {
    let (owner, on, stored_as) = (hold.clone(), shard.clone(), stored_as.clone());
    let begun = tokio::task::spawn_local(async move {
        let begin = async {
            let step = WriteStep::CreateUpload { stored_as, algorithm: None };
            let (_, body) = call_whole(&on, owner.operation(step)).await.map_err(|failure| failure.error)?;
            let upload_id = upload_answers::parse_created(&body)
                .map_err(|nonsense| nonsensical("upload id", &nonsense))?;
            let upload_id: Arc<str> = upload_id.into();
            assert!(owner.upload_id.set(upload_id.clone()).is_ok(), "an upload begins once");
            let hear = owner.on_begun.lock().unwrap_or_else(PoisonError::into_inner).take();
            hear.into_iter().for_each(|hear| hear(&upload_id));
            if owner.transfer.is_stopped() {
                abort(&on, &owner).await;
            }
            Ok(upload_id)
        };
        run_past_the_stop(&owner.transfer, ABORT_WITHIN, begin).await
    });
    begun.await.map_err(|_| Error::new(ErrorKind::Cancelled, "the client was closed while the copy ran"))?
}

async fn copy_part(
    shard: &Rc<Shard>,
    copy: &CopyTransfer,
    upload_id: Arc<str>,
    number: u32,
    source: Arc<CopyFrom>,
    range: Range<u64>,
) -> Result<DonePart, Failure> {
    let bytes = range.end - range.start;
    let step = WriteStep::CopyPart { upload_id, number, source, range };
    let (_, body) = call_whole(shard, copy.operation(step)).await?;
    let copied = upload_answers::parse_copied(&body)
        .map_err(|nonsense| Failure::last(nonsensical("copied part", &nonsense)))?;
    copy.on_copied(bytes);
    Ok(DonePart { number, etag: copied.etag, checksum: None })
}

/// Makes the object of its parts.
async fn complete(
    shard: &Rc<Shard>,
    copy: &CopyTransfer,
    source: &Source,
    upload_id: Arc<str>,
    stored_as: Arc<StoredAs>,
    parts: Vec<DonePart>,
) -> Result<(), Error> {
    let expected = documents::etag_of_parts(parts.iter().map(|part| &*part.etag));
    let whole = Content { bytes: source.bytes, checksum: None };
    let step = WriteStep::Complete { upload_id, stored_as, whole, parts: parts.into() };
    copy.transfer.begin_last_request()?;
    let (mut head, body) = match call_whole(shard, copy.operation(step)).await {
        Ok(answer) => answer,
        Err(failure) => return settle(shard, copy, source, failure, expected.as_deref()).await,
    };
    let completed = upload_answers::parse_completed(&body)
        .map_err(|nonsense| nonsensical("completed upload", &nonsense))?;
    head.checksums.extend(completed.checksums);
    store(copy, source, head, Copied { etag: completed.etag, ..Copied::default() })
}

/// The origin has the object: notes what it says of it.
fn store(copy: &CopyTransfer, source: &Source, mut head: Head, copied: Copied) -> Result<(), Error> {
    head.etag = Some(copied.etag);
    let kind = Coverage::Full;
    head.checksums.extend(copied.checksum.map(|(algorithm, value)| Checksum { algorithm, value, kind }));
    let verified = match copy.verify {
        true => verified(&source.head, &head)?,
        false => Verified::None("switched off"),
    };
    copy.on_stored(source.stored(&head, verified));
    Ok(())
}

/// Compares a checksum that the origin states of both objects.
fn verified(source: &Head, copied: &Head) -> Result<Verified, Error> {
    let stated = |head: &Head, algorithm: Algorithm| {
        let mut full = head.checksums.iter().filter(|checksum| checksum.kind == Coverage::Full);
        full.find(|checksum| checksum.algorithm == algorithm).map(|checksum| checksum.value)
    };
    for algorithm in Algorithm::ALL {
        let (Some(one), Some(other)) = (stated(source, algorithm), stated(copied, algorithm)) else {
            continue;
        };
        if one == other {
            return Ok(Verified::Whole(algorithm));
        }
        let (name, one, other) = (algorithm.name(), algorithm.encode(one), algorithm.encode(other));
        let cause = format!("the copy has other bytes than its source: {name} is {other}, not {one}");
        return Err(Error::new(ErrorKind::Corrupt, cause).with_hint("copy it again"));
    }
    Ok(Verified::None(NOT_STATED))
}

/// After a failure of the request that makes the object: an answer that was lost may have been the one that
/// told of it. The object itself tells whether it is the copy: by its checksum, else by its ETag.
async fn settle(
    shard: &Rc<Shard>,
    copy: &CopyTransfer,
    source: &Source,
    failure: Failure,
    expected: Option<&str>,
) -> Result<(), Error> {
    let is_lost = failure.status.is_none()
        || failure.reason == Some(Reason::UploadGone)
        || failure.was_lost && says_there(&failure);
    if is_lost && copy.describes_anew {
        // It looked the same before.
        return Err(failure.error.with_further_hint(UNKNOWN_END));
    }
    let looked = if is_lost { is_there(shard, copy, source, expected).await } else { Ok(false) };
    match looked {
        Ok(true) => Ok(()),
        Ok(false) => Err(explained(shard, copy, source, failure).await),
        Err(_) => Err(failure.error.with_further_hint(UNKNOWN_END)),
    }
}

/// # Errors
/// The origin could not be asked, so that the end of the copy is unknown.
async fn is_there(
    shard: &Rc<Shard>,
    copy: &CopyTransfer,
    source: &Source,
    expected: Option<&str>,
) -> Result<bool, Failure> {
    let begun_s = source.head.date.unwrap_or(0);
    let there = object_there(shard, &copy.target, (source.bytes, begun_s)).await?;
    let Some(head) = there else { return Ok(false) };
    let verified = match verified(&source.head, &head) {
        Ok(verified @ Verified::Whole(_)) => verified,
        Ok(verified) if expected.is_some() && head.etag.as_deref() == expected => verified,
        _ => return Ok(false),
    };
    copy.on_stored(source.stored(&head, verified));
    Ok(true)
}

/// The failure of a request as the caller should read it. A condition that does not hold may be that of the
/// source or of the target: the source is looked at again.
async fn explained(shard: &Rc<Shard>, copy: &CopyTransfer, source: &Source, failure: Failure) -> Error {
    let is_condition = matches!(failure.status, Some(409 | 412));
    if !is_condition {
        return failure.error;
    }
    let now = call_whole(shard, Operation::Head(copy.source.clone())).await;
    let is_same = now.is_ok_and(|(head, _)| head.etag == source.head.etag);
    let cause = match (&copy.condition, is_same) {
        (Condition::Absent, true) if failure.is_of_existing() => return Error::there(),
        (Condition::Matches(etag), true) => format!("the object's ETag is not {etag}: it stays as it is"),
        (Condition::Absent | Condition::None, true) => return failure.error,
        (_, false) => {
            let cause = "the source was replaced while it was copied: nothing was made of it";
            return Error::new(ErrorKind::Changed, cause).with_hint("start again to copy the new version");
        }
    };
    Error::new(ErrorKind::Changed, cause)
}

/// Deletes the parts of a copy that has failed, once none is on its way any more.
async fn abort(shard: &Rc<Shard>, hold: &TransferGuard<CopyTransfer>) {
    let Some(upload_id) = hold.upload_id.get() else { return };
    // The task that began the upload and the lead may both find it stopped: they would wait for each other.
    if hold.is_aborting.swap(true, Ordering::Relaxed) {
        return;
    }
    let aborted = tokio::time::timeout(ABORT_WITHIN, async {
        while hold.transfer.holds.load(Ordering::Acquire) > 1 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        call_whole(shard, hold.operation(WriteStep::Abort { upload_id: upload_id.clone() })).await
    });
    match aborted.await {
        Ok(Ok(_)) => {}
        Ok(Err(failure)) if failure.reason == Some(Reason::UploadGone) => {}
        Ok(Err(_)) | Err(_) => hold.has_left_parts.store(true, Ordering::Relaxed),
    }
}
