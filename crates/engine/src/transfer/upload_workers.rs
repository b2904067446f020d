//! The loops that carry an upload: the lead, which begins and completes it, and the workers, which send part
//! after part.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use flatout_wire::body_checksum::{BodyChecksum, ChecksumForm};
use flatout_wire::documents::DonePart;
use flatout_wire::head::Head;
use flatout_wire::object_options::Condition;
use flatout_wire::time::parse_http;
use flatout_wire::upload_answers;
use flatout_wire::verdict::Reason;

use crate::api::account::{Dialect, Operation, Target};
use crate::api::refusal::Failure;
use crate::api::template::{Asked, RequestTemplate};
use crate::api::write::{Content, WriteStep};
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{Feature, Word, text};
use crate::base::operation::Class;
use crate::base::report::{PartRecord, Stat, Verified};
use crate::disk::upload_journal::SentPart;
use crate::gate::TrailerUse;
use crate::gate::slots::{Seat, Slot, WorkSource};
use crate::shard::Shard;
use crate::shard::call::{BodyProgress, Call, SentBody, call_whole};
use crate::shard::shards::Task;
use crate::source::OpenSource;
use crate::source::body::OutgoingBody;
use crate::source::cursor::SendingChecksum;
use crate::transfer::guard::TransferGuard;
use crate::transfer::part::InFlight;
use crate::transfer::upload::{Cut, PART_LEAST, Parts, PartsUpload, Stored, Upload};
use crate::transfer::upload_checksum::{ChecksumPlan, NOT_STATED, compared, hashed, hashed_aside};
use crate::transfer::upload_resume::go_on;
use crate::transfer::upload_stream::{lead_edited, lead_stream};
use crate::transfer::workers::{run_past_the_stop, run_until_stopped};
use crate::transfer::{Running, Working};
use flatout_policy::queue::Priority;
use flatout_policy::retry::{Attempts, Fault};
use flatout_policy::upload::part_bytes;

/// How long the parts of a failed upload, or copy, may take to be deleted: a caller waits.
pub(super) const ABORT_WITHIN: Duration = Duration::from_secs(5);
/// How often it is looked whether the other workers have gone.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Two dates of an origin may be so far apart, in whole seconds, and be of one moment.
const DATES_APART_S: u64 = 2;

const UNKNOWN_END: &str =
    "the answer that tells of the object was lost: look whether it is there before you send it again";

impl WorkSource for Upload {
    fn wants(&self) -> (u64, Priority) {
        self.wants_workers()
    }

    fn is_stream(&self) -> bool {
        false
    }

    fn start(self: Arc<Self>, seat: Seat, slot: Slot) {
        let Some(hold) = TransferGuard::join(&self) else { return };
        let (shard, worker) = (seat.shard(), hold.clone());
        let work = Task::new(move |shard| run_worker(shard, worker, seat, slot));
        if let Err(error) = self.transfer.shards.send(shard, work) {
            hold.fail(error);
        }
    }
}

/// An upload as a gate knows it.
pub(crate) fn work_source(upload: &Arc<Upload>) -> Weak<dyn WorkSource> {
    let source: Weak<Upload> = Arc::downgrade(upload);
    source
}

/// Leads an upload from its first request to its last.
pub(crate) async fn run_upload(shard: Rc<Shard>, hold: TransferGuard<Upload>, seat: Seat) {
    hold.transfer.join_shard(shard.number);
    hold.transfer.gate.keep_time();
    run_until_stopped(&*hold, lead(&shard, &hold)).await;
    if !hold.is_stored() && !hold.keep_parts() {
        abort(&shard, &hold).await;
    }
    drop(seat);
}

/// Sends parts until none is left, or another's turn has come.
async fn run_worker(shard: Rc<Shard>, hold: TransferGuard<Upload>, _seat: Seat, slot: Slot) {
    hold.transfer.join_shard(shard.number);
    run_until_stopped(&*hold, work(&shard, hold.running(), hold.transfer.working(), Some(slot))).await;
}

async fn lead(shard: &Rc<Shard>, hold: &TransferGuard<Upload>) -> Result<(), Error> {
    let upload: &Upload = hold;
    if let OpenSource::Stream(ring) = &upload.source {
        return lead_stream(shard, hold, ring).await;
    }
    if let Some(edits) = &upload.edits {
        return lead_edited(shard, hold, edits).await;
    }
    let bytes = upload.source.bytes().unwrap_or(0);
    match part_bytes(PART_LEAST, bytes, shard.shared.settings.part_bytes) {
        None => lead_single(shard, upload, bytes).await,
        Some(part_bytes) => lead_parts(shard, hold, part_bytes, bytes).await,
    }
}

/// Sends a short object by one request. A file is read whole before: what is sent is one state of it.
async fn lead_single(shard: &Rc<Shard>, upload: &Upload, bytes: u64) -> Result<(), Error> {
    let range = 0..bytes;
    let OpenSource::File(_) = &upload.source else {
        return put(shard, upload, &upload.source.body(&range)).await;
    };
    // Before the slot, so that whoever has one needs nothing that others hold. It comes in turn.
    let room = usize::try_from(bytes).expect("a short object fits into memory");
    let mut memory = shard.shared.pool.holder().lease(room).await?;
    let mut at = 0;
    while at < bytes {
        let room = &mut memory.as_mut_slice()[at as usize..bytes as usize];
        at += upload.source.body(&range).piece(at, room)?.len() as u64;
    }
    upload.source.check_unchanged()?;
    put(shard, upload, &OutgoingBody::Bytes(&memory.as_mut_slice()[..bytes as usize])).await
}

pub(super) async fn put(shard: &Rc<Shard>, upload: &Upload, body: &OutgoingBody<'_>) -> Result<(), Error> {
    let _in_flight = InFlight::start(&upload.transfer.counters);
    let mut attempts = Attempts::default();
    let mut was_lost = false;
    let (mut form, mut plan) = (None, ChecksumPlan::Known(None));
    let mut slot = Some(upload.transfer.slots.acquire().await);
    upload.transfer.begin_last_request()?;
    loop {
        let asked = upload.form();
        if form != Some(asked) {
            plan = ChecksumPlan::Known(hashed(shard, body, asked)?);
            form = Some(asked);
        }
        let content = Content { bytes: body.bytes(), checksum: plan.known() };
        let step = WriteStep::Put { stored_as: upload.stored_as.clone(), content: upload.told(content) };
        let failure = match send_verified(shard, upload, step, (body, &plan), "object").await {
            Ok((head, (verified, _))) => {
                upload.on_stored(Stored {
                    stat: Stat::of(&head, Some(content.bytes)),
                    bytes: content.bytes,
                    verified,
                });
                return Ok(());
            }
            Err(failure) => failure,
        };
        if upload.steps_down(&failure, asked) {
            continue;
        }
        // An answer that was lost may have been the one that told of the object.
        was_lost |= failure.was_lost;
        if was_lost && says_there(&failure) {
            let looked = is_stored(shard, upload, (content, 0), None).await;
            if looked.map_err(|failure| failure.error.with_further_hint(UNKNOWN_END))? {
                return Ok(());
            }
        }
        was_lost |= failure.status.is_none();
        slot = wait_or_give_up(shard, upload, failure, &mut attempts, slot).await?;
    }
}

/// Sends a long object in parts of `part_bytes`.
async fn lead_parts(
    shard: &Rc<Shard>,
    hold: &TransferGuard<Upload>,
    part_bytes: u64,
    bytes: u64,
) -> Result<(), Error> {
    let parts = match go_on(shard, hold, bytes).await? {
        Some(parts) => parts,
        None if hold.is_stored() => return Ok(()),
        None => begin(shard, hold, Cut::Even { part_bytes, bytes }).await?,
    };
    hold.transfer.gate.open(hold.transfer.slots.transfer(), hold.wants_workers());
    work(shard, hold.running(), hold.transfer.working(), None).await?;
    wait_for_parts(parts, parts.count()).await;
    complete(shard, hold, parts).await
}

/// Begins an upload in parts. Once the origin was asked for it, it is not forgotten: where the upload is
/// stopped meanwhile, it is aborted.
pub(super) async fn begin<'a>(
    shard: &Rc<Shard>,
    hold: &'a TransferGuard<Upload>,
    cut: Cut,
) -> Result<&'a PartsUpload, Error> {
    let (owner, on) = (hold.clone(), shard.clone());
    let begun = tokio::task::spawn_local(async move {
        let begin = async {
            let (upload_id, known) = create(&on, &owner).await?;
            owner.note_begun(&on, &upload_id, known, &cut);
            owner.on_begun(&upload_id);
            let fresh = owner.parts.set(PartsUpload::new(upload_id, known, cut, Vec::new())).is_ok();
            assert!(fresh, "an upload begins once");
            if owner.transfer.is_stopped() {
                abort(&on, &owner).await;
            }
            Ok(())
        };
        run_past_the_stop(&owner.transfer, ABORT_WITHIN, begin).await
    });
    begun
        .await
        .map_err(|_| Error::new(ErrorKind::Cancelled, "the client was closed while the transfer ran"))??;
    Ok(hold.parts.get().expect("it has begun"))
}

/// The id of a new upload, how its parts are hashed, and when it began by the origin's clock.
async fn create(shard: &Rc<Shard>, upload: &Upload) -> Result<(String, (Option<ChecksumForm>, u64)), Error> {
    loop {
        let form = upload.form();
        let told = form.and_then(ChecksumForm::crc).filter(|_| upload.dialect() == Dialect::S3);
        let step = WriteStep::CreateUpload { stored_as: upload.stored_as.clone(), algorithm: told };
        match call_whole(shard, upload.operation(step)).await {
            Ok((head, body)) => {
                let upload_id = upload_answers::parse_created(&body);
                let upload_id = upload_id.map_err(|nonsense| nonsensical("upload id", &nonsense))?;
                return Ok((upload_id, (form, head.date.unwrap_or(0))));
            }
            Err(failure) if upload.steps_down(&failure, form) => {}
            Err(failure) => return Err(upload.explained(failure)),
        }
    }
}

/// Sends part after part, as long as the slot stays with this worker or no other is left to go on.
pub(super) async fn work(
    shard: &Rc<Shard>,
    upload: &Arc<Upload>,
    mut working: Working<'_>,
    mut slot: Option<Slot>,
) -> Result<(), Error> {
    let Some(parts) = upload.parts.get() else { return Ok(()) };
    while parts.left() > 0 {
        let with = match slot.take() {
            Some(slot) => slot,
            None => upload.transfer.slots.acquire().await,
        };
        let Some((number, range)) = parts.take() else { break };
        let form = upload.form_of_part(parts);
        let plan = match upload.while_sending(form, Some(&range)) {
            Some(plan) => plan,
            None => ChecksumPlan::Known(hashed_aside(shard, upload, form, &range).await?),
        };
        let body = upload.source.body(&range);
        let slot_of_part = send_part(shard, upload, number, (&body, plan), with).await?;
        let left = parts.left().clamp(1, upload.transfer.more_workers() + 1);
        slot = slot_of_part.and_then(|slot| upload.transfer.slots.keep(slot, left, shard.number as usize));
        if slot.is_none() && working.may_end() {
            break;
        }
    }
    Ok(())
}

/// Sends a part until the origin has accepted it; its slot.
pub(super) async fn send_part(
    shard: &Rc<Shard>,
    upload: &Upload,
    number: u32,
    (body, mut plan): (&OutgoingBody<'_>, ChecksumPlan<'_>),
    slot: Slot,
) -> Result<Option<Slot>, Error> {
    let _in_flight = InFlight::start(&upload.transfer.counters);
    let parts = upload.parts.get().expect("parts are sent once the upload has begun");
    let start_s = upload.transfer.clock_s();
    let (mut slot, mut attempts, mut refused) = (Some(slot), Attempts::default(), None);
    let (head, checksum) = loop {
        let content = upload.told(Content { bytes: body.bytes(), checksum: plan.known() });
        let (upload_id, trailer) = (parts.upload_id.clone(), plan.trailer());
        let step = WriteStep::Part { upload_id, number, content, trailer };
        match send_verified(shard, upload, step, (body, &plan), "part").await {
            Ok((head, (_, checksum))) => break (head, checksum),
            Err(failure) if plan.may_fail_by_trailer(&failure) => {
                let is_clear = matches!(failure.status, Some(..=499 | 501));
                refused = plan.into_trailer().map(|trailer| (trailer, is_clear));
                plan = ChecksumPlan::Known(hashed(shard, body, upload.form_of_part(parts))?);
            }
            Err(failure) => slot = wait_or_give_up(shard, upload, failure, &mut attempts, slot).await?,
        }
    };
    match (refused, plan.into_trailer()) {
        (Some((trailer, is_clear)), _) => trailer.on_refused(is_clear),
        (None, taken) => taken.iter().for_each(TrailerUse::on_taken),
    }
    let etag = head.etag.clone().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "the origin gave a part no ETag, so that it cannot be named")
    })?;
    let sent = SentPart { number, etag, checksum, bytes: body.bytes() };
    if let Some(journal) = upload.journal.get() {
        journal.on_accepted(&sent);
    }
    parts.on_accepted(sent);
    let end_s = upload.transfer.clock_s();
    upload.record(|| PartRecord {
        index: u64::from(number) - 1,
        address: ([0, 0, 0, 0], 0).into(),
        connection: 0,
        start_s,
        first_byte_s: end_s,
        end_s,
        bytes: body.bytes(),
        attempts: attempts.failed() + 1,
    });
    Ok(slot)
}

/// Waits until the origin has accepted `count` parts.
pub(super) async fn wait_for_parts(parts: &PartsUpload, count: u64) {
    loop {
        let mut accepted = std::pin::pin!(parts.accepted.notified());
        accepted.as_mut().enable();
        if parts.accepted_count() >= count {
            return;
        }
        accepted.await;
    }
}

/// Makes the object of its parts. An answer that is lost is asked for again; where the origin has forgotten
/// the upload by then, the object tells whether it is ours.
pub(super) async fn complete(shard: &Rc<Shard>, upload: &Upload, begun: &PartsUpload) -> Result<(), Error> {
    upload.source.check_unchanged()?;
    let whole = begun.conclude();
    let (content, etag) = (whole.content(), whole.etag());
    let Parts { parts, bytes, are_by_md5, .. } = whole;
    let named = |part: &SentPart| DonePart {
        number: part.number,
        etag: part.etag.clone(),
        checksum: part.checksum.and_then(BodyChecksum::crc).filter(|_| upload.dialect() == Dialect::S3),
    };
    let step = WriteStep::Complete {
        upload_id: begun.upload_id.clone(),
        stored_as: upload.stored_as.clone(),
        whole: upload.told(content),
        parts: parts.iter().map(named).collect(),
    };
    upload.transfer.begin_last_request()?;
    let (head, body) = match call_whole(shard, upload.operation(step)).await {
        Ok(answer) => answer,
        Err(failure) => {
            // The next run would be told the same; keys and room may change.
            let is_refused =
                failure.fault == Fault::Final && !matches!(failure.status, Some(401 | 403 | 507));
            begun.is_refused.store(is_refused, Ordering::Relaxed);
            let is_lost = matches!(failure.status, None | Some(404)) || says_there(&failure);
            if is_lost {
                let looked = is_stored(shard, upload, (content, begun.begun_s), etag.as_deref()).await;
                if looked.map_err(|failure| failure.error.with_further_hint(UNKNOWN_END))? {
                    return Ok(());
                }
            }
            return Err(upload.explained(failure));
        }
    };
    let completed = upload_answers::parse_completed(&body)
        .map_err(|nonsense| nonsensical("completed upload", &nonsense))?;
    let mut head = head;
    head.etag = Some(completed.etag);
    head.checksums.extend(completed.checksums);
    let is_by_md5 = are_by_md5 && etag.is_some() && head.etag == etag;
    let verified = match compared(&head, content.checksum, "object")? {
        Verified::None(_) if is_by_md5 => Verified::Md5,
        // Some parts have a CRC and some an MD5, and no ETag is one.
        Verified::None(_) if begun.form.is_some() => Verified::None(NOT_STATED),
        verified => verified,
    };
    upload.on_stored(Stored { stat: Stat::of(&head, Some(bytes)), bytes, verified });
    upload.forget_journal();
    Ok(())
}

/// Whether the origin refuses since an object is there: S3 says so with 412, OSS with 409.
pub(super) fn says_there(failure: &Failure) -> bool {
    matches!(failure.status, Some(409 | 412))
}

/// Whether the object at the origin is the one that was sent since `begun_s`: by its checksum, else by the
/// ETag that follows from those of its parts. If so, the upload is done.
///
/// # Errors
/// The origin could not be asked, so that the end of the upload is unknown.
pub(super) async fn is_stored(
    shard: &Rc<Shard>,
    upload: &Upload,
    (content, begun_s): (Content, u64),
    etag: Option<&str>,
) -> Result<bool, Failure> {
    let there = object_there(shard, &upload.target, (content.bytes, begun_s)).await?;
    let Some(head) = there else { return Ok(false) };
    let by_checksum = compared(&head, content.checksum, "object").ok();
    let by_etag = etag.is_some() && head.etag.as_deref() == etag;
    let verified = match by_checksum {
        Some(verified @ (Verified::Whole(_) | Verified::Md5)) => verified,
        Some(verified) if by_etag => verified,
        _ => return Ok(false),
    };
    upload.on_stored(Stored { stat: Stat::of(&head, Some(content.bytes)), bytes: content.bytes, verified });
    upload.forget_journal();
    Ok(true)
}

/// The object, if one of that length is there that is no older than `begun_s`, in Unix seconds by the
/// origin's clock: an older one of the same bytes may be described by other metadata.
///
/// # Errors
/// The origin could not be asked, so that the end is unknown.
pub(super) async fn object_there(
    shard: &Rc<Shard>,
    target: &Target,
    (bytes, begun_s): (u64, u64),
) -> Result<Option<Head>, Failure> {
    let is_it = |head: &Head| {
        let modified_s = head.last_modified.as_deref().and_then(parse_http);
        // S3 dates an object of parts by the beginning of its upload, before it answers.
        let is_new = modified_s.is_none_or(|modified_s| modified_s + DATES_APART_S >= begun_s);
        head.content_length == Some(bytes) && is_new
    };
    match call_whole(shard, Operation::Head(target.clone())).await {
        Ok((head, _)) => Ok(Some(head).filter(is_it)),
        Err(Failure { status: Some(404), .. }) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Deletes the parts of an upload that has failed, once no worker sends one any more.
async fn abort(shard: &Rc<Shard>, hold: &TransferGuard<Upload>) {
    let Some(parts) = hold.parts.get().filter(|_| hold.starts_abort()) else { return };
    let aborted = tokio::time::timeout(ABORT_WITHIN, async {
        while hold.transfer.holds.load(Ordering::Acquire) > 1 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        call_whole(shard, hold.operation(WriteStep::Abort { upload_id: parts.upload_id.clone() })).await
    });
    // It may be gone already. Where it could not be deleted, the next run finds its parts by the journal, if
    // there is one.
    if let Ok(Ok(_) | Err(Failure { status: Some(404), .. })) = aborted.await {
        hold.forget_journal();
        hold.on_aborted();
    }
}

/// Sends an object or a part, and compares what the origin has with what was sent. A bit that turned over on
/// the way is worth another attempt, unless it is the file that has changed.
async fn send_verified(
    shard: &Rc<Shard>,
    upload: &Upload,
    step: WriteStep,
    (body, plan): (&OutgoingBody<'_>, &ChecksumPlan<'_>),
    what: &str,
) -> Result<(Head, (Verified, Option<BodyChecksum>)), Failure> {
    let failure = match send(shard, upload, step, (body, plan.while_sending())).await {
        Ok((_, None)) if plan.while_sending().is_some() => {
            Failure::transient(Error::new(ErrorKind::Network, "the origin answered before it had all of it"))
        }
        Ok((head, taken)) => match upload.verified(shard, body, (&head, taken), plan, what) {
            Ok(verified) => return Ok((head, verified)),
            Err(error) if error.kind() == ErrorKind::Corrupt => {
                Failure { status: Some(head.status), ..Failure::transient(error) }
            }
            // It states nothing of what followed the body, or the file cannot be read any more.
            Err(error) => return Err(Failure { status: Some(head.status), ..Failure::last(error) }),
        },
        Err(failure) if failure.reason == Some(Reason::Mismatch) => {
            Failure { fault: Fault::Transient, ..failure }
        }
        Err(failure) => return Err(failure),
    };
    upload.source.check_unchanged().map_err(Failure::last)?;
    Err(failure)
}

/// One request with its body: the head of its answer, and the checksum that was computed meanwhile. The
/// body of a part that is silent for longer than is usual is sent on a second connection, too. The connection
/// that has sent all of it first counts, and the other is closed before its own is whole: an origin keeps no
/// part that is shorter than its head says, so it never has two of one part, whose ETags might differ.
async fn send(
    shard: &Rc<Shard>,
    upload: &Upload,
    step: WriteStep,
    (body, sum): (&OutgoingBody<'_>, Option<SendingChecksum>),
) -> Result<(Head, Option<BodyChecksum>), Failure> {
    let may_be_raced = matches!(step, WriteStep::Part { .. });
    let template = RequestTemplate::new(upload.account.clone(), upload.operation(step));
    let counters = &upload.transfer.counters;
    let ask = async |shunned, progress: Rc<BodyProgress>| {
        let call = Call {
            gate: &upload.transfer.gate,
            class: Class::Write,
            template: &template,
            asked: &Asked::Whole,
            if_match: None,
            shunned,
            counters: Some(counters),
            body: Some(SentBody { content: body, sum, progress: &progress }),
        };
        call.whole(shard).await.map(|(head, _)| (head, progress.sum()))
    };
    let start = |shunned| {
        let progress = Rc::new(BodyProgress::default());
        (Box::pin(ask(shunned, progress.clone())), progress)
    };
    // The older one first; never more than two.
    let mut racers = vec![start(None)];
    poll_fn(|cx| {
        loop {
            let mut at = 0;
            while at < racers.len() {
                let is_raced = racers.len() > 1;
                let (racer, progress) = &mut racers[at];
                match racer.as_mut().poll(cx) {
                    // What it could not send, the other may.
                    Poll::Ready(Err(failure)) if is_raced && (at > 0 || failure.status.is_none()) => {
                        drop(racers.remove(at));
                    }
                    Poll::Ready(answered) => return Poll::Ready(answered),
                    Poll::Pending if progress.is_whole() => {
                        racers.swap(0, at);
                        racers.truncate(1);
                        return Poll::Pending;
                    }
                    Poll::Pending => at += 1,
                }
            }
            let latest = racers.last().filter(|_| may_be_raced);
            let Some(shunned) = latest.and_then(|(_, progress)| progress.spend_hedge()) else {
                return Poll::Pending;
            };
            if let [(_, older), (_, newer)] = &racers[..] {
                drop(racers.remove(usize::from(newer.silence() > older.silence())));
            }
            counters.hedged.fetch_add(1, Ordering::Relaxed);
            racers.push(start(Some(shunned)));
        }
    })
    .await
}

/// Waits before the next attempt without the slot, or gives the error back when there is to be none.
async fn wait_or_give_up(
    shard: &Rc<Shard>,
    upload: &Upload,
    failure: Failure,
    attempts: &mut Attempts,
    slot: Option<Slot>,
) -> Result<Option<Slot>, Error> {
    drop(slot);
    let transfer = &upload.transfer;
    {
        let _retrying = shard.cell(&transfer.gate).retrying();
        let waited = shard.wait_or_give_up((&transfer.gate, Class::Write), failure, attempts).await;
        waited.map_err(|failure| upload.explained(failure))?;
    }
    transfer.counters.retries.fetch_add(1, Ordering::Relaxed);
    Ok(Some(transfer.slots.acquire().await))
}

pub(crate) fn nonsensical(what: &str, nonsense: &dyn std::fmt::Display) -> Error {
    let error = Error::new(ErrorKind::Network, format!("the answer has no {what}: {nonsense}"));
    error.with_hint("does this endpoint speak the protocol of the URL?")
}

impl Upload {
    /// The failure of a request as the caller should read it.
    fn explained(&self, failure: Failure) -> Error {
        match (failure.status, &self.stored_as.condition) {
            (_, Condition::Absent) if failure.is_of_existing() => Error::there(),
            (Some(404), Condition::Matches(etag)) if failure.reason == Some(Reason::NotFound) => {
                let cause = format!("there is no object there, so none has the ETag {etag}");
                Error::new(ErrorKind::NotFound, cause).with_hint("check the bucket and the key")
            }
            (Some(412), Condition::Matches(etag)) => {
                let cause = format!("the object's ETag is not {etag}: it stays as it is");
                Error::new(ErrorKind::Changed, cause).with_hint([
                    Word::Feature(Feature::Stat),
                    text(" tells the ETag of the version that is there now"),
                ])
            }
            _ => failure.error,
        }
    }
}
