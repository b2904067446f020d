//! The loops that carry a transfer: the lead, which asks first and settles the plan, and the workers, which
//! take part after part.

use std::rc::Rc;
use std::time::Duration;

use flatout_wire::head::Head;
use flatout_wire::range::Span;

use crate::api::refusal::Failure;
use crate::api::template::Asked;
use crate::base::error::{Error, ErrorKind};
use crate::base::version::Version;
use crate::disk::journal::Kept;
use crate::gate::slots::{Seat, Slot, WorkSource};
use crate::shard::Shard;
use crate::shard::call::{self, Response};
use crate::shard::shards::Task;
use crate::sink::verify::ExpectedChecksum;
use crate::transfer::guard::TransferGuard;
use crate::transfer::part::Part;
use crate::transfer::response::{ask, wait_or_give_up};
use crate::transfer::single::Single;
use crate::transfer::{ActiveTransfer, Download, Running, Working, cancelled};
use flatout_policy::queue::Priority;
use flatout_policy::retry::{Attempts, Fault};
use std::sync::Arc;
use std::sync::Weak;

/// Between rounds of attempts to learn the checksum while the data come.
const CHECKSUM_PAUSE: Duration = Duration::from_millis(500);

/// What of a version is asked for past those who wait to start a part.
const SMALL_BYTES: u64 = 1 << 20;

impl WorkSource for Download {
    fn wants(&self) -> (u64, Priority) {
        self.wants_workers()
    }

    fn is_stream(&self) -> bool {
        self.sink.is_stream()
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

/// A transfer as a gate knows it.
pub(crate) fn work_source(download: &Arc<Download>) -> Weak<dyn WorkSource> {
    let source: Weak<Download> = Arc::downgrade(download);
    source
}

/// Leads a transfer: first answer, plan, the other workers, then parts like any worker. One of many objects
/// has no seat of its own but that of the worker that leads it.
pub(crate) async fn run_lead(shard: Rc<Shard>, hold: TransferGuard, seat: Option<Seat>) {
    hold.transfer.join_shard(shard.number);
    if seat.is_some() {
        hold.transfer.gate.keep_time();
    }
    run_until_stopped(&*hold, lead(&shard, &hold, None)).await;
}

/// Carries parts until none is left, or another's turn has come.
async fn run_worker(shard: Rc<Shard>, hold: TransferGuard, _seat: Seat, slot: Slot) {
    hold.transfer.join_shard(shard.number);
    run_until_stopped(&*hold, work(&shard, &hold, hold.transfer.working(), Some(slot))).await;
}

/// Brings a range of a version that is known as one part, so that its bytes land in order; or a whole object
/// by one GET.
pub(crate) async fn run_segment(shard: Rc<Shard>, hold: TransferGuard, _seat: Seat) {
    hold.transfer.join_shard(shard.number);
    hold.transfer.gate.keep_time();
    let running: &Download = &hold;
    run_until_stopped(running, async {
        let slots = &running.transfer.slots;
        // What is small and awaited is one answer of the origin's, not a part: it does not wait for parts to
        // end.
        let slot_of_small = || {
            let is_awaited = slots.priority() == Priority::Awaited;
            let most = shard.shared.memory_plan.awaited_max;
            if is_awaited { slots.acquire_bypassing_queue(most) } else { None }
        };
        let Some(bytes) = running.range().map(|range| range.end - range.start) else {
            // A reader asks for the whole of what is small alone.
            return lead(&shard, &hold, slot_of_small()).await;
        };
        let slot = if bytes <= SMALL_BYTES { slot_of_small() } else { None };
        match running.take_part_of(shard.number, bytes, slot).await? {
            Some(turn) => Part::start(running, turn).fetch(&shard, None).await.map(drop),
            None => Ok(()),
        }
    })
    .await;
}

/// Carries `work` to its end, or to that of its transfer.
pub(crate) async fn run_until_stopped(running: &dyn Running, work: impl Future<Output = Result<(), Error>>) {
    let lost = LostWorker(running);
    tokio::select! {
        biased;
        done = work => if let Err(error) = done { running.fail(error) },
        () = running.transfer().stopped() => {}
    }
    std::mem::forget(lost);
}

/// Carries work that a stop does not end: an origin that was asked for an upload may have begun one. It has
/// so much time from the stop on.
pub(super) async fn run_past_the_stop<T>(
    transfer: &ActiveTransfer,
    within: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let too_late = async {
        transfer.stopped().await;
        tokio::time::sleep(within).await;
    };
    tokio::select! {
        biased;
        done = work => done,
        () = too_late => Err(cancelled()),
    }
}

/// Fails the transfer of a worker that is dropped on its way: the others would wait for its part.
struct LostWorker<'a>(&'a dyn Running);

impl Drop for LostWorker<'_> {
    fn drop(&mut self) {
        self.0.fail(match std::thread::panicking() {
            true => Error::new(ErrorKind::Internal, "a worker panicked: this is a defect of flatout"),
            false => Error::new(ErrorKind::Cancelled, "the client was closed while the transfer ran"),
        });
    }
}

/// Carries one part after the other, as long as its slot stays with it or nobody else is left to go on.
async fn work(
    shard: &Rc<Shard>,
    running: &Download,
    mut working: Working<'_>,
    mut slot: Option<Slot>,
) -> Result<(), Error> {
    while let Some(turn) = running.take_part(shard.number, slot.take()).await? {
        let slot_of_part = Part::start(running, turn).fetch(shard, None).await?;
        slot = running.keep_slot(shard.number, slot_of_part);
        if slot.is_none() && working.may_end() {
            break;
        }
    }
    Ok(())
}

async fn lead(shard: &Rc<Shard>, hold: &TransferGuard, slot: Option<Slot>) -> Result<(), Error> {
    let running: &Download = hold;
    let mut working = running.transfer.working();
    let (mut answer, mut slot) = first_answer(shard, running, slot).await?;
    if answer.head.status == 200 && running.was_guessed_small(answer.head.object_bytes()) {
        running.object.ask_for_ranges();
        drop((answer, slot));
        (answer, slot) = first_answer(shard, running, None).await?;
    }
    if answer.head.status == 200 {
        return lead_single(shard, hold, answer, slot).await;
    }
    let found = answer.content_range().map_err(|failure| failure.error)?;
    let total = answer.head.object_bytes().ok_or_else(|| {
        Error::new(ErrorKind::Unsupported, "the origin does not tell the object's size in Content-Range")
    })?;
    let range = running.span.resolve(total).map_err(|why| Error::new(ErrorKind::Usage, why.to_string()))?;
    running.note_span(&answer.head, &range);
    if let Some(statement) = ExpectedChecksum::of_range(&answer.head.checksums) {
        running.ledger.state(statement);
    }
    let is_probe = running.may_resume() || found.start != range.start;
    // A probe is one byte, and what is there may take a while to read.
    let slot = (!is_probe).then_some(slot);
    let kept = hold.running().kept(&answer.head, &range).await;
    running.settle(&answer.head, range.clone(), Some(range.end - range.start), &kept, &shard.shared.pool)?;
    hold.running().keep_journal();
    ask_for_checksum(shard, hold);
    if is_probe {
        // A probe for the object's end or its version: its one byte is not part of the plan's first part. It
        // is read so that the connection can carry a part; one that breaks over it is not kept. The others
        // need not wait for that.
        if running.parts_left() > 0 {
            start_workers(hold);
        }
        let _ = answer.connection.collect().await;
        answer.finish(shard).await;
        return match running.transfer.owner {
            // One of many: its parts are among what the workers of the batch choose from.
            Some(_) => Ok(()),
            None => work(shard, running, working, None).await,
        };
    }
    let first = found.end - found.start;
    let Some(turn) = running.take_part_of(shard.number, first.max(1), slot).await? else { return Ok(()) };
    start_workers(hold);
    let slot = Part::start(running, turn).fetch(shard, Some(answer)).await?;
    match running.transfer.owner {
        Some(_) => Ok(()),
        None => match running.keep_slot(shard.number, slot) {
            None if working.may_end() => Ok(()),
            slot => work(shard, running, working, slot).await,
        },
    }
}

/// A server that ignores ranges sends one stream.
async fn lead_single(
    shard: &Rc<Shard>,
    hold: &TransferGuard,
    answer: Response,
    slot: Slot,
) -> Result<(), Error> {
    let running: &Download = hold;
    let total = answer.head.object_bytes();
    let wanted = match (&running.span, total) {
        (Span::Slice(range), None) => range.clone(),
        (_, None) => 0..u64::MAX,
        (span, Some(total)) => {
            span.resolve(total).map_err(|why| Error::new(ErrorKind::Usage, why.to_string()))?
        }
    };
    if wanted.start > 0 {
        // It was empty a moment ago, or the origin thought so.
        return Err(Failure::changed("it is longer now").error);
    }
    let expected = (wanted.end < u64::MAX).then_some(wanted.end - wanted.start);
    running.note_span(&answer.head, &wanted);
    running.settle(&answer.head, wanted, expected, &Kept::default(), &shard.shared.pool)?;
    if !answer.head.checksums.is_empty() {
        running.ledger.state(ExpectedChecksum::of(&answer.head.checksums));
    } else if running.object.asks_for_the_whole() {
        running.ledger.state(ExpectedChecksum::Nothing("not stated by the origin"));
    }
    ask_for_checksum(shard, hold);
    Single::new(shard, running, answer, slot).land().await
}

/// Asks for the first part of the span, which tells size and version; retries like any part. With the slot
/// that it has, which may be given.
async fn first_answer(
    shard: &Rc<Shard>,
    running: &Download,
    mut given: Option<Slot>,
) -> Result<(Response, Slot), Error> {
    // Where something is there already, the version is what matters.
    let part_bytes = if running.may_resume() { 1 } else { running.first_part_bytes() };
    let mut asked = match &running.span {
        Span::All if running.object.asks_for_the_whole() => Asked::Whole,
        Span::All => Asked::Range(0..part_bytes),
        Span::From(start) => Asked::Range(*start..start.saturating_add(part_bytes)),
        Span::Slice(range) => {
            Asked::Range(range.start..range.end.min(range.start.saturating_add(part_bytes)))
        }
        Span::Last(_) => Asked::LastByte,
    };
    let mut attempts = Attempts::default();
    loop {
        let slot = match given.take() {
            Some(slot) => slot,
            None => running.transfer.slots.acquire().await,
        };
        let failure = match ask(shard, running, &asked).await {
            Ok(answer) => match check_first(&answer, &asked) {
                Ok(()) => return Ok((answer, slot)),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        drop(slot);
        // No range of an empty object can be satisfied; the whole of it can, where no byte is asked for by
        // number.
        if failure.status == Some(416) && running.span.resolve(0).is_ok() && asked != Asked::Whole {
            asked = Asked::Whole;
            continue;
        }
        wait_or_give_up(shard, running, failure, &mut attempts).await?;
    }
}

fn check_first(answer: &Response, asked: &Asked) -> Result<(), Failure> {
    match (answer.head.status, asked) {
        // MinIO's answer where RFC 9110 has a 416.
        (206, _) if answer.head.object_bytes() == Some(0) => {
            let error = Error::new(ErrorKind::Usage, "the object is empty: no range of it can be satisfied");
            Err(Failure { status: Some(416), ..Failure::last(error) })
        }
        (206, Asked::Range(range)) => answer.check(range, &Version::default()),
        (206, _) => answer.content_range().map(drop),
        // A server without ranges: one stream, and no error, as long as all of it is wanted.
        (200, Asked::Whole) => Ok(()),
        (200, Asked::Range(range)) if range.start == 0 => Ok(()),
        (status, _) => {
            let error = Error::new(
                ErrorKind::Unsupported,
                format!("the origin does not serve ranges (status {status})"),
            );
            Err(Failure::last(error.with_hint("read the whole object")))
        }
    }
}

/// Starts workers for the parts that are left to take, and for the part on its way, whose rest may be shared.
fn start_workers(hold: &TransferGuard) {
    if let Some(owner) = &hold.transfer.owner {
        return owner.open(hold.running());
    }
    hold.open();
    hold.transfer.gate.open(hold.transfer.slots.transfer(), hold.wants_workers());
}

/// Asks an S3 origin for the object's checksum, beside the data; OSS has stated its own with the first
/// answer. One that refuses leaves the object unverified. One that is down may well state a checksum, and
/// bytes that nobody compared are not to pass for whole because of that: it is asked as long as data come,
/// and once more when they are all there.
fn ask_for_checksum(shard: &Rc<Shard>, hold: &TransferGuard) {
    if hold.ledger.is_expected() {
        return;
    }
    let Some(operation) = hold.object.head() else {
        hold.ledger.state(ExpectedChecksum::Nothing("not stated by the origin"));
        return;
    };
    let (shard, hold) = (shard.clone(), hold.clone());
    tokio::task::spawn_local(async move {
        let asked = async {
            loop {
                let all_there = hold.is_whole();
                match call::call_whole(&shard, operation.clone()).await {
                    Ok((head, _)) => return note_checksum(&hold, &head),
                    Err(Failure { fault: Fault::Final, .. }) => {
                        return hold
                            .ledger
                            .state(ExpectedChecksum::Nothing("the origin refused to state it"));
                    }
                    Err(failure) if all_there => {
                        return hold.fail(failure.error.during("read the checksum", &hold.transfer.name));
                    }
                    Err(_) => tokio::time::sleep(CHECKSUM_PAUSE).await,
                }
            }
        };
        tokio::select! {
            () = asked => {}
            () = hold.transfer.stopped() => {}
        }
    });
}

/// A statement counts only for the version that is being read.
fn note_checksum(running: &Download, head: &Head) {
    let stated = Version::of(head, head.content_length);
    let difference = running.version().and_then(|version| version.difference(&stated));
    running.ledger.state(match difference {
        Some(_) => ExpectedChecksum::Nothing("the object was replaced after it was read"),
        None => ExpectedChecksum::of(&head.checksums),
    });
}
