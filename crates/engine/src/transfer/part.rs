//! One part on its way: attempts until it is whole, each asking only for what is missing. A body that is
//! silent for longer than is usual, or slow beside those of other addresses, is left for another attempt at
//! the rest (docs/decisions/hedge.md).

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::api::refusal::Failure;
use crate::api::template::Asked;
use crate::base::error::Error;
use crate::base::report::{Counters, PartRecord};
use crate::base::version::Version;
use crate::gate::slots::Slot;
use crate::net::stall::Silence;
use crate::shard::Shard;
use crate::shard::call::Response;
use crate::sink::landing::PartWriter;
use crate::transfer::Download;
use crate::transfer::download::Turn;
use crate::transfer::response::{ask_elsewhere, wait_or_give_up};
use flatout_policy::flight::PartShare;
use flatout_policy::plan::Taken;
use flatout_policy::receive_size::RECEIVE_BYTES;
use flatout_policy::retry::Attempts;

/// So often it is told what a body carries, and looked whether another address would carry more.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A silence says little of an address beyond that: one body may have met it.
const SILENCE_TOLD: Duration = Duration::from_secs(1);
/// What is shorter, and over sooner, says nothing of its address.
const TOLD_BYTES: u64 = 256 << 10;
const TOLD_TIME: Duration = Duration::from_millis(50);

/// A part that one worker has taken.
pub(crate) struct Part<'a> {
    running: &'a Download,
    number: u64,
    start: u64,
    aloft: PartShare<'a>,
    place: PartWriter<'a>,
    attempts: u32,
    /// When its first answer was asked for, and when that began.
    answered_s: Option<(f64, f64)>,
    served_by: Option<(SocketAddr, u32)>,
    /// When the last answer or byte of it came.
    heard: Option<Instant>,
    /// None while it waits to be asked for again.
    slot: Option<Slot>,
    _in_flight: InFlight<'a>,
}

/// How the landing of a body ended.
enum Landed {
    /// With the part, or with the body.
    End,
    /// It was silent, and this brings the rest.
    Rival(Box<Response>),
    /// It is slow beside others.
    Slow,
}

/// A second request for what is missing, on its way.
type Race<'a> = Pin<Box<dyn Future<Output = Result<Response, Failure>> + 'a>>;

/// What comes first while a body is received.
enum Comes {
    Bytes(Result<u64, Error>),
    Rival(Box<Response>),
}

impl<'a> Part<'a> {
    pub(crate) fn start(running: &'a Download, turn: Turn) -> Part<'a> {
        let Turn { taken: Taken { number, range }, slot } = turn;
        let landing_start = running.range().map_or(0, |range| range.start);
        Part {
            running,
            number,
            place: running.sink.place(number, range.start - landing_start, running.ledger.start_part()),
            start: range.start,
            aloft: running.in_flight_parts.start(&range, Instant::now().into_std()),
            attempts: 0,
            answered_s: None,
            served_by: None,
            heard: None,
            slot: Some(slot),
            _in_flight: InFlight::start(&running.transfer.counters),
        }
    }

    /// Fetches the part, beginning with an `answer` that is there already; the slot that it had.
    pub(crate) async fn fetch(
        mut self,
        shard: &Rc<Shard>,
        mut answer: Option<Response>,
    ) -> Result<Option<Slot>, Error> {
        self.aloft.allow_cuts();
        let mut attempts = Attempts::default();
        loop {
            let Err(failure) = self.attempt(shard, answer.take(), &mut attempts).await else { break };
            self.wait_or_give_up(shard, failure, &mut attempts).await?;
        }
        Ok(self.finish())
    }

    /// Waits before the next attempt, or gives the error back when there is to be none. Others have its slot
    /// meanwhile.
    pub(crate) async fn wait_or_give_up(
        &mut self,
        shard: &Shard,
        failure: Failure,
        attempts: &mut Attempts,
    ) -> Result<(), Error> {
        self.slot = None;
        let failure = match self.heard {
            Some(heard) => failure.since(heard.into_std()),
            None => failure,
        };
        wait_or_give_up(shard, self.running, failure, attempts).await?;
        self.slot = Some(self.running.transfer.slots.acquire().await);
        Ok(())
    }

    async fn attempt(
        &mut self,
        shard: &Rc<Shard>,
        answer: Option<Response>,
        attempts: &mut Attempts,
    ) -> Result<(), Failure> {
        let mut answer = match answer {
            Some(answer) => answer,
            None => ask_for(shard, self.running, self.missing(), None).await?,
        };
        loop {
            let before = self.place.filled();
            let landed = self.land_hedged(shard, &mut answer, attempts).await;
            attempts.on_landed(self.place.filled() - before);
            let shunned = answer.connection.address;
            answer = match landed? {
                Landed::End => break,
                Landed::Rival(rival) => {
                    attempts.on_left();
                    answer.leave(self.running);
                    *rival
                }
                Landed::Slow => {
                    self.running.transfer.counters.moved.fetch_add(1, Ordering::Relaxed);
                    answer.leave(self.running);
                    ask_for(shard, self.running, self.missing(), Some(shunned)).await?
                }
            };
        }
        let missing = self.missing();
        if !missing.is_empty() {
            return Err(Failure::ended_early(missing.end - missing.start));
        }
        answer.connection.hedges.received.borrow_mut().on_success();
        match self.aloft.is_cut() && !answer.connection.is_at_end() {
            // What is left of it is another's part.
            true => answer.leave(self.running),
            false => answer.finish(shard).await,
        }
        Ok(())
    }

    /// Lands an answer's body up to where the part ends, which may come nearer meanwhile.
    async fn land_hedged(
        &mut self,
        shard: &Rc<Shard>,
        answer: &mut Response,
        attempts: &Attempts,
    ) -> Result<Landed, Failure> {
        self.on_first_byte(answer);
        let running = self.running;
        let _moving = shard.cell(&running.transfer.gate).moving();
        let mut watch = Watch::new(answer);
        let silence = watch.silence.clone();
        let (hedge, shunned) = (answer.connection.hedges.received.clone(), answer.connection.address);
        let mut patience = watch.patience;
        let mut race: Option<Race<'_>> = None;
        let most = shard.piece_bytes();
        loop {
            let at = self.start + self.place.filled();
            let wanted = self.aloft.claim(at, RECEIVE_BYTES as u64).min(most);
            if wanted == 0 {
                break;
            }
            let may_be_left = || attempts.may_be_left_after(watch.bytes, shard.shared.settings.retries);
            let comes = {
                let mut receiving = pin!(answer.connection.receive(&mut self.place, &shard.scratch, wanted));
                poll_fn(|cx| {
                    if let Poll::Ready(received) = receiving.as_mut().poll(cx) {
                        return Poll::Ready(Comes::Bytes(received));
                    }
                    if race.is_none() && silence.so_far() >= patience {
                        patience = patience.saturating_mul(2);
                        if may_be_left() && hedge.borrow_mut().spend() {
                            running.transfer.counters.hedged.fetch_add(1, Ordering::Relaxed);
                            let rest = at..self.aloft.end();
                            race = Some(Box::pin(ask_for(shard, running, rest, Some(shunned))));
                        }
                    }
                    match race.as_mut().map(|race| race.as_mut().poll(cx)) {
                        Some(Poll::Ready(Ok(rival))) => Poll::Ready(Comes::Rival(Box::new(rival))),
                        // Who is silent may still bring it; what is wrong shows when he is asked again.
                        Some(Poll::Ready(Err(_))) => {
                            race = None;
                            Poll::Pending
                        }
                        Some(Poll::Pending) | None => Poll::Pending,
                    }
                })
                .await
            };
            match comes {
                Comes::Rival(rival) => {
                    watch.end(shard, answer);
                    return Ok(Landed::Rival(rival));
                }
                Comes::Bytes(received) => {
                    let received = received?;
                    if received == 0 {
                        break;
                    }
                    // It goes on: the race, if there is one, is over.
                    race = None;
                    self.heard = Some(Instant::now());
                    let left = self.missing();
                    answer.connection.acknowledge_end(left.end - self.start, left.end - left.start);
                    let (transfer, writing) = (&running.transfer, self.place.take_writing());
                    shard.on_received(&transfer.gate, &transfer.counters, received, writing).await;
                    if watch.on_received(shard, answer, received, left.end - left.start) {
                        watch.end(shard, answer);
                        return Ok(Landed::Slow);
                    }
                }
            }
        }
        watch.end(shard, answer);
        Ok(Landed::End)
    }

    /// Lands up to `bytes` of an answer's body; how many came before its end.
    pub(crate) async fn land(
        &mut self,
        shard: &Shard,
        answer: &mut Response,
        bytes: u64,
    ) -> Result<u64, Failure> {
        self.on_first_byte(answer);
        let (transfer, most, mut landed) = (&self.running.transfer, shard.piece_bytes(), 0);
        let _moving = shard.cell(&self.running.transfer.gate).moving();
        while landed < bytes {
            let wanted = (bytes - landed).min(most);
            let received = answer.connection.receive(&mut self.place, &shard.scratch, wanted).await?;
            if received == 0 {
                break;
            }
            landed += received;
            let writing = self.place.take_writing();
            shard.on_received(&transfer.gate, &transfer.counters, received, writing).await;
        }
        Ok(landed)
    }

    fn on_first_byte(&mut self, answer: &Response) {
        self.attempts += 1;
        self.heard = Some(answer.answered);
        if self.answered_s.is_none() {
            let now_s = self.running.transfer.clock_s();
            let at = |moment: Instant| (now_s - moment.elapsed().as_secs_f64()).max(0.0);
            self.answered_s = Some((at(answer.asked), at(answer.answered)));
            self.aloft.on_first_byte(Instant::now().into_std());
        }
        self.served_by = Some((answer.connection.address, answer.connection.number));
    }

    /// What has not landed yet.
    pub(crate) fn missing(&self) -> Range<u64> {
        self.start + self.place.filled()..self.aloft.end()
    }

    /// The part is whole, or the body of unknown length that it is the end of; its slot.
    pub(crate) fn finish(mut self) -> Option<Slot> {
        self.place.complete();
        let now = Instant::now().into_std();
        self.aloft.on_landed(self.place.filled(), now);
        let end_s = self.running.transfer.clock_s();
        if let Some((start_s, _)) = self.answered_s.filter(|_| self.attempts == 1) {
            let took = Duration::from_secs_f64((end_s - start_s).max(0.0));
            self.running.transfer.gate.latency.on_range(self.place.filled(), took, now);
        }
        self.running.finish_part(self.start, self.place.filled(), self.place.hash(), || {
            let unknown = (SocketAddr::from(([0, 0, 0, 0], 0)), 0);
            let (address, connection) = self.served_by.unwrap_or(unknown);
            let (start_s, first_byte_s) = self.answered_s.unwrap_or((end_s, end_s));
            PartRecord {
                index: self.number,
                address,
                connection,
                start_s,
                first_byte_s,
                end_s,
                bytes: self.place.filled(),
                attempts: self.attempts,
            }
        });
        self.slot.take()
    }
}

/// Asks for a range of the version that is being read, if possible at another address than `shunned`.
async fn ask_for(
    shard: &Rc<Shard>,
    running: &Download,
    range: Range<u64>,
    shunned: Option<SocketAddr>,
) -> Result<Response, Failure> {
    let asked = ask_elsewhere(shard, running, &Asked::Range(range.clone()), shunned).await;
    let answer = asked.map_err(|failure| match failure.status {
        Some(416) => Failure::changed("it is shorter now"),
        _ => failure,
    })?;
    answer.check(&range, running.version().unwrap_or(&Version::default()))?;
    running.hold_against_known(&Version::of(&answer.head, answer.head.object_bytes()))?;
    Ok(answer)
}

/// Looks on while one body is received: how fast it comes, and how long nothing came.
struct Watch {
    patience: Duration,
    /// All that has come so far, and since when.
    bytes: u64,
    begun: Instant,
    silence: Silence,
    /// What had come when it was told last, and when that was.
    told: (u64, Instant),
}

impl Watch {
    fn new(answer: &mut Response) -> Watch {
        let patience = answer.connection.patience();
        let (now, silence) = (Instant::now(), answer.connection.silence());
        silence.take_longest();
        Watch { patience, bytes: 0, begun: now, silence, told: (0, now) }
    }

    /// So many bytes more have come, and so many are left; whether those had better come from elsewhere.
    fn on_received(&mut self, shard: &Shard, answer: &Response, bytes: u64, left_bytes: u64) -> bool {
        let now = Instant::now();
        self.bytes += bytes;
        if now - self.told.1 < LOOK_EVERY {
            return false;
        }
        self.tell(shard, answer);
        let (endpoints, connection) = (&shard.shared.endpoints, &answer.connection);
        endpoints.lets_go(connection.address, connection.opened)
            && endpoints.usual_rate(connection.address).is_some_and(|usual| {
                let own = self.bytes as f64 / (now - self.begun).as_secs_f64();
                let (here_s, there_s) = (left_bytes as f64 / own, left_bytes as f64 / usual);
                here_s > 2.0 * there_s + LOOK_EVERY.as_secs_f64()
            })
    }

    fn tell(&mut self, shard: &Shard, answer: &Response) {
        let (bytes, since) = self.told;
        let (now, connection) = (Instant::now(), &answer.connection);
        let time = (now - since).min(SILENCE_TOLD);
        shard.shared.endpoints.on_carried(connection.address, connection.opened, self.bytes - bytes, time);
        self.told = (self.bytes, now);
    }

    /// Nothing more is received of this body.
    fn end(mut self, shard: &Shard, answer: &Response) {
        let (bytes, since) = self.told;
        if self.bytes - bytes >= TOLD_BYTES || since.elapsed() >= TOLD_TIME {
            self.tell(shard, answer);
        }
        let longest = self.silence.take_longest();
        answer.connection.hedges.received.borrow_mut().on_body(longest, self.patience);
    }
}

/// Counts a part in flight for as long as it lives.
pub(super) struct InFlight<'a>(&'a Counters);

impl<'a> InFlight<'a> {
    pub(super) fn start(counters: &'a Counters) -> InFlight<'a> {
        counters.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(counters)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
