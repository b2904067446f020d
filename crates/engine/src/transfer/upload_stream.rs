//! The upload of a stream: each room that its writer fills is a part, and none is known to be the last.

use std::rc::Rc;

use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{setting, text};
use crate::shard::Shard;
use crate::shard::shards::Task;
use crate::source::body::OutgoingBody;
use crate::source::stream::{FilledRoom, Next, UploadRing};
use crate::transfer::Running;
use crate::transfer::guard::TransferGuard;
use crate::transfer::upload::{PART_LEAST, PartsUpload, Upload};
use crate::transfer::upload_checksum::{ChecksumPlan, hashed};
use crate::transfer::upload_workers::{begin, complete, put, send_part, wait_for_parts};
use crate::transfer::workers::run_until_stopped;
use flatout_policy::upload::{PARTS_MOST, stream_part_bytes};

/// Rooms of a stream beside those of parts in flight: one that is filled, and one that is full. The writer
/// has no more of them that are empty: what it reads from may need memory, too.
const ROOMS_AHEAD: u32 = 2;

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
    let part_most = shard.shared.memory_plan.parts() / 4;
    let asked = shard.shared.settings.part_bytes;
    let (mut given, mut taken, mut first) = (0_u64, 0_u64, None);
    let mut parts: Option<&PartsUpload> = None;
    loop {
        let accepted = parts.map_or(0, PartsUpload::accepted_count);
        let most = u64::from(hold.transfer.gate.limit() + ROOMS_AHEAD);
        // One room more than there may be parts: a writer that fills it hears of it.
        let may_give =
            given - accepted < most && given - taken < u64::from(ROOMS_AHEAD) && given <= STREAM_PARTS;
        let room_bytes = stream_part_bytes(PART_LEAST, given + 1, asked, part_most);
        let next = tokio::select! {
            biased;
            next = ring.next() => next,
            room = holder.lease(room_bytes as usize), if may_give => {
                ring.give(room?);
                given += 1;
                continue;
            }
            () = accepted_one(parts), if !may_give => continue,
        };
        let mut room = match next {
            Next::Room(room) => room,
            Next::Abandoned => {
                return Err(Error::new(ErrorKind::Cancelled, "the stream ended before it was finished"));
            }
            Next::End => break,
        };
        taken += 1;
        if taken == 1 && ring.is_finished() {
            return put(shard, hold, &OutgoingBody::Bytes(room.content())).await;
        }
        if taken == 1 && first.is_none() && parts.is_none() {
            // Whether it is the only one shows with the next.
            first = Some(room);
            continue;
        }
        if let Some(first) = first.take() {
            parts = Some(begin(shard, hold, None).await?);
            start_part(hold, 1, first).await;
        }
        let number = u32::try_from(taken).ok().filter(|number| u64::from(*number) <= STREAM_PARTS);
        start_part(hold, number.ok_or_else(too_many_parts)?, room).await;
    }
    match (first, parts) {
        (Some(mut only), _) => put(shard, hold, &OutgoingBody::Bytes(only.content())).await,
        (None, None) => put(shard, hold, &OutgoingBody::Bytes(&[])).await,
        (None, Some(parts)) => {
            wait_for_parts(parts, taken).await;
            complete(shard, hold, parts).await
        }
    }
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
