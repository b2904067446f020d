//! The upload of a stream: each room that its writer fills is a part, and none is known to be the last. It
//! may continue an object, which the origin then copies into the first parts. And that of an object of which
//! ranges have changed: the origin copies the others.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use flatout_settings::{Settings, format_size};
use flatout_wire::body_checksum::{BodyChecksum, ChecksumForm};
use flatout_wire::upload_answers;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::api::account::Target;
use crate::api::write::{CopyFrom, WriteStep};
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{setting, text};
use crate::base::version::Object;
use crate::disk::upload_journal::SentPart;
use crate::shard::Shard;
use crate::shard::call::call_whole;
use crate::shard::shards::Task;
use crate::shard::shared::Shared;
use crate::source::body::OutgoingBody;
use crate::source::stream::{FilledRoom, Next, UploadRing};
use crate::transfer::Running;
use crate::transfer::copied_parts::{IN_FLIGHT as COPIES_IN_FLIGHT, PartsInFlight, out_of_patience};
use crate::transfer::guard::TransferGuard;
use crate::transfer::put::Edits;
use crate::transfer::upload::{Cut, PART_LEAST, PartsUpload, Upload};
use crate::transfer::upload_checksum::{ChecksumPlan, hashed};
use crate::transfer::upload_workers::{begin, complete, nonsensical, put, send_part, wait_for_parts, work};
use crate::transfer::workers::run_until_stopped;
use flatout_policy::upload::{PARTS_MOST, stream_part_bytes};

/// Rooms of a stream beside those of parts in flight: one that is filled, and one that is full. The writer
/// has no more of them that are empty: what it reads from may need memory, too. The second comes before it is
/// wanted only to a stream that has filled one, and where half of the memory stays free: a process may hold
/// many streams open and write to few.
const ROOMS_AHEAD: u32 = 2;

/// How often a stream that waits for memory looks whether only the writers of others could free any.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A stream that has waited so long for memory sends its full room: otherwise many streams would all wait for
/// their second one.
const SHORT_OF_MEMORY: Duration = Duration::from_millis(20);

/// Parts of an object that is continued: so long that few are needed, and of a huge one so many that most
/// numbers are left for what follows.
const COPIED_PART: u64 = if cfg!(test) { 4 } else { 64 << 20 };
const COPIED_PARTS_MOST: u64 = 1_000;

/// How many parts a stream may have. That of the simulation meets the bound sooner.
const STREAM_PARTS: u64 = if cfg!(test) { 1_000 } else { PARTS_MOST };

/// Sends a stream: each room that its writer fills is a part. One that ends within its first room is sent by
/// one request.
pub(super) async fn lead_stream(
    shard: &Rc<Shard>,
    hold: &TransferGuard<Upload>,
    ring: &UploadRing,
) -> Result<(), Error> {
    let holder = shard.shared.pool.holder();
    let memory = shard.shared.memory_plan.parts();
    let part_most = memory / 4;
    let mut with_writer = shard.shared.pool.with_writer();
    let asked = shard.shared.settings.part_bytes;
    let (mut given, mut taken, mut first) = (0_u64, 0_u64, None);
    let (mut parts, mut copied) = (None, 0);
    if let Some(object) = &hold.continues {
        let begun = begin(shard, hold, Cut::Stream).await?;
        copied = copy_prefix(shard, hold, begun, object).await?;
        parts = Some(begun);
    }
    loop {
        let accepted = parts.map_or(0, |parts: &PartsUpload| parts.accepted_count() - copied);
        let most = u64::from(hold.transfer.gate.limit() + ROOMS_AHEAD);
        // One room more than there may be parts: a writer that fills it hears of it.
        let may_give = given - accepted < most
            && given - taken < u64::from(ROOMS_AHEAD)
            && given + copied <= STREAM_PARTS;
        let room_bytes = stream_part_bytes(PART_LEAST, copied + given + 1, asked, part_most);
        let is_wanted = ring.is_wanted();
        if may_give
            && taken > 0
            && !is_wanted
            && let Some(spare) = holder.lease_at_once(room_bytes as usize, memory / 2)?
        {
            with_writer.add(spare.len());
            ring.give(spare);
            given += 1;
            continue;
        }
        let next = tokio::select! {
            biased;
            next = ring.next() => next,
            room = holder.lease(room_bytes as usize), if may_give && is_wanted => {
                let room = room?;
                with_writer.add(room.len());
                ring.give(room);
                given += 1;
                continue;
            }
            () = ring.wanted(), if may_give && !is_wanted => continue,
            () = held_by_writers(&shard.shared), if may_give && is_wanted => {
                return Err(all_held_by_writers(&shard.shared.settings));
            }
            () = accepted_one(parts), if !may_give => continue,
            // Nobody gives memory back: the first room has to, whether another follows or not.
            () = tokio::time::sleep(SHORT_OF_MEMORY), if first.is_some() => {
                if given > taken && !shard.shared.pool.is_short() {
                    continue;
                }
                let begun = begin(shard, hold, Cut::Stream).await?;
                if let Some(room) = first.take() {
                    start_part(hold, 1, room).await;
                }
                parts = Some(begun);
                continue;
            }
        };
        let mut room = match next {
            Next::Room(room) => room,
            Next::Abandoned => {
                return Err(Error::new(ErrorKind::Cancelled, "the stream ended before it was finished"));
            }
            Next::End => break,
        };
        taken += 1;
        with_writer.remove(room.len());
        if taken == 1 && parts.is_none() && ring.is_finished() {
            return put(shard, hold, &OutgoingBody::Bytes(room.content())).await;
        }
        if taken == 1 && first.is_none() && parts.is_none() {
            // Whether it is the only one shows with the next.
            first = Some(room);
            continue;
        }
        if let Some(first) = first.take() {
            parts = Some(begin(shard, hold, Cut::Stream).await?);
            start_part(hold, 1, first).await;
        }
        let number = u32::try_from(copied + taken).ok().filter(|number| u64::from(*number) <= STREAM_PARTS);
        start_part(hold, number.ok_or_else(too_many_parts)?, room).await;
    }
    match (first, parts) {
        (Some(mut only), _) => put(shard, hold, &OutgoingBody::Bytes(only.content())).await,
        (None, None) => put(shard, hold, &OutgoingBody::Bytes(&[])).await,
        (None, Some(parts)) => {
            wait_for_parts(parts, copied + taken).await;
            complete(shard, hold, parts).await
        }
    }
}

/// Makes an object of ranges that the origin copies from an older one, and of others that are sent.
pub(super) async fn lead_edited(
    shard: &Rc<Shard>,
    hold: &TransferGuard<Upload>,
    edits: &Edits,
) -> Result<(), Error> {
    let parts = begin(shard, hold, Cut::Edited(edits.parts.clone())).await?;
    hold.transfer.gate.open(hold.transfer.slots.transfer(), hold.wants_workers());
    let copied = (1..).zip(&*edits.parts).filter(|(_, part)| part.is_copied);
    let copied = copied.map(|(number, part)| (part.range.clone(), number));
    let copies = copy_ranges(shard, hold, parts, &edits.object, copied);
    tokio::try_join!(copies, work(shard, hold.running(), hold.transfer.working(), None))?;
    wait_for_parts(parts, parts.count()).await;
    complete(shard, hold, parts).await
}

/// Waits until all memory of the client's transfers has been with writers as long as an outage may last, and
/// none has filled a room.
async fn held_by_writers(shared: &Shared) {
    let patience = shared.settings.outage_timeout();
    let (mut since, mut before) = (Instant::now(), None);
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = shared.pool.all_with_writers();
        if now.is_none() || now != before {
            (since, before) = (Instant::now(), now);
        } else if since.elapsed() >= patience {
            return;
        }
    }
}

fn all_held_by_writers(settings: &Settings) -> Error {
    let memory = format_size(settings.memory_bytes);
    let cause =
        format!("all memory of the client ({memory}) is held by other files that are open for writing");
    let hint = [text("close some of them first, or give the client a larger "), setting("memory")];
    Error::new(ErrorKind::Usage, cause).with_hint(hint)
}

/// Has the origin copy an object into the first parts; their number.
async fn copy_prefix(
    shard: &Rc<Shard>,
    hold: &TransferGuard<Upload>,
    parts: &PartsUpload,
    object: &Object,
) -> Result<u64, Error> {
    let count = object.size.div_ceil(COPIED_PART.max(object.size.div_ceil(COPIED_PARTS_MOST)));
    // Of one length: the last is followed by others, and must not be shorter than parts may be.
    let ranges = (0..count).map(|at| object.size * at / count..object.size * (at + 1) / count).zip(1..);
    copy_ranges(shard, hold, parts, object, ranges).await?;
    Ok(count)
}

/// Has the origin copy ranges of an object into the parts of these numbers.
pub(super) async fn copy_ranges(
    shard: &Rc<Shard>,
    hold: &TransferGuard<Upload>,
    parts: &PartsUpload,
    object: &Object,
    mut ranges: impl Iterator<Item = (Range<u64>, u32)>,
) -> Result<(), Error> {
    let target = Target::from(object.location.clone());
    let source = Arc::new(CopyFrom { target, etag: object.etag.clone() });
    let mut in_flight = PartsInFlight(JoinSet::new());
    loop {
        while in_flight.0.len() < COPIES_IN_FLIGHT
            && let Some((range, number)) = ranges.next()
        {
            let (shard, hold, source) = (shard.clone(), hold.clone(), source.clone());
            let (upload_id, bytes) = (parts.upload_id.clone(), range.end - range.start);
            in_flight.0.spawn_local(async move {
                let step = WriteStep::CopyPart { upload_id, number, source, range };
                let called = tokio::select! {
                    biased;
                    called = call_whole(&shard, hold.operation(step)) => called,
                    failure = out_of_patience(&hold.transfer) => Err(failure),
                };
                let (_, body) = called.map_err(|failure| match failure.status {
                    Some(412) => replaced_meanwhile(),
                    _ => failure.error,
                })?;
                upload_answers::parse_copied(&body)
                    .map(|copied| (number, copied, bytes))
                    .map_err(|nonsense| nonsensical("copied part", &nonsense))
            });
        }
        let Some(ended) = in_flight.0.join_next().await else { return Ok(()) };
        let lost = |_| Error::new(ErrorKind::Internal, "a part of the copy was lost");
        let (number, copied, bytes) = ended.map_err(lost)??;
        let form = parts.form.and_then(ChecksumForm::crc);
        let checksum = copied.checksum.filter(|(algorithm, _)| Some(*algorithm) == form);
        let checksum = checksum.map(|(algorithm, value)| BodyChecksum::Crc(algorithm, value));
        parts.on_accepted(SentPart { number, etag: copied.etag, checksum, bytes });
    }
}

fn replaced_meanwhile() -> Error {
    let cause = "the object was replaced by another client: it stays as it is";
    Error::new(ErrorKind::Changed, cause).with_hint("open it again to go on from the new version")
}

fn too_many_parts() -> Error {
    let cause =
        format!("the stream has more than {STREAM_PARTS} parts, which is as many as an object may have");
    Error::new(ErrorKind::Usage, cause).with_hint([
        text("use a larger "),
        setting("part-size"),
        text(", or a larger "),
        setting("memory"),
    ])
}

/// Waits until the origin has accepted one more part.
async fn accepted_one(parts: Option<&PartsUpload>) {
    match parts {
        Some(parts) => parts.accepted.notified().await,
        None => std::future::pending().await,
    }
}

/// Has a part of a stream sent by a worker of its own, once there is a slot.
async fn start_part(hold: &TransferGuard<Upload>, number: u32, mut room: FilledRoom) {
    let slot = hold.transfer.slots.acquire().await;
    let (worker, seat) = (hold.clone(), hold.transfer.gate.seat());
    let on = seat.shard();
    let work = Task::new(move |shard| async move {
        let _seat = seat;
        worker.transfer.join_shard(shard.number);
        let sent = async {
            let body = OutgoingBody::Bytes(room.content());
            let form = worker.parts.get().and_then(|parts| parts.form);
            let plan = match worker.while_sending(form, None) {
                Some(plan) => plan,
                None => ChecksumPlan::Known(hashed(&shard, &body, form)?),
            };
            send_part(&shard, &worker, number, (&body, plan), slot).await.map(drop)
        };
        run_until_stopped(&*worker, sent).await;
    });
    if let Err(error) = hold.transfer.shards.send(on, work) {
        hold.fail(error);
    }
}
