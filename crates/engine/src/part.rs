//! One part on its way: attempts until it is whole, each asking only for what is missing.

use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use crate::attempt::{Answer, ask};
use crate::drive::wait_or_give_up;
use crate::error::Error;
use crate::landing::Place;
use crate::object::Asked;
use crate::plan::Taken;
use crate::refusal::Failure;
use crate::retry::Attempts;
use crate::shard::Shard;
use crate::slots::Slot;
use crate::stats::{Counters, PartRecord, Version};
use crate::transfer::{Running, Turn};
use crate::verify::PartHash;

/// A part that one worker has taken.
pub(crate) struct Part<'a> {
    running: &'a Running,
    number: u64,
    range: Range<u64>,
    place: Place<'a>,
    hash: PartHash,
    attempts: u32,
    start_s: f64,
    first_byte_s: Option<f64>,
    served_by: Option<(SocketAddr, u32)>,
    /// None while it waits to be asked for again.
    slot: Option<Slot>,
    _in_flight: InFlight<'a>,
}

impl<'a> Part<'a> {
    pub(crate) fn start(running: &'a Running, turn: Turn) -> Part<'a> {
        let Turn { taken: Taken { number, range }, slot } = turn;
        let landing_start = running.range().map_or(0, |range| range.start);
        let place = running.ground.place(number, range.start - landing_start);
        Part {
            running,
            number,
            hash: place.start_hash(running.ledger.start_part()),
            place,
            range,
            attempts: 0,
            start_s: running.clock_s(),
            first_byte_s: None,
            served_by: None,
            slot: Some(slot),
            _in_flight: InFlight::start(&running.counters),
        }
    }

    /// The same part, asked for before there was a plan.
    pub(crate) fn asked_at(mut self, start_s: f64) -> Part<'a> {
        self.start_s = start_s;
        self
    }

    /// Fetches the part, beginning with an `answer` that is there already.
    pub(crate) async fn fetch(mut self, shard: &Rc<Shard>, mut answer: Option<Answer>) -> Result<(), Error> {
        let mut attempts = Attempts::default();
        loop {
            let before = self.place.filled();
            let Err(failure) = self.attempt(shard, answer.take()).await else { break };
            attempts.on_landed(self.place.filled() - before);
            self.wait_or_give_up(shard, failure, &mut attempts).await?;
        }
        self.finish();
        Ok(())
    }

    /// Waits before the next attempt, or gives the error back when there is to be none. Others have its slot meanwhile.
    pub(crate) async fn wait_or_give_up(
        &mut self,
        shard: &Shard,
        failure: Failure,
        attempts: &mut Attempts,
    ) -> Result<(), Error> {
        self.slot = None;
        wait_or_give_up(shard, self.running, failure, attempts).await?;
        self.slot = Some(self.running.slot().await);
        Ok(())
    }

    async fn attempt(&mut self, shard: &Rc<Shard>, answer: Option<Answer>) -> Result<(), Failure> {
        let running = self.running;
        let missing = self.missing();
        let mut answer = match answer {
            Some(answer) => answer,
            None => {
                let asked = ask(shard, running, &Asked::Range(missing.clone())).await;
                let answer = asked.map_err(|failure| match failure.status {
                    Some(416) => Failure::changed("it is shorter now"),
                    _ => failure,
                })?;
                answer.check(&missing, running.version().unwrap_or(&Version::default()))?;
                answer
            }
        };
        self.land(shard, &mut answer, missing.end - missing.start).await?;
        let missing = self.missing();
        if !missing.is_empty() {
            return Err(Failure::ended_early(missing.end - missing.start));
        }
        answer.finish(shard).await;
        Ok(())
    }

    /// Lands up to `bytes` of an answer's body; how many came before its end.
    pub(crate) async fn land(
        &mut self,
        shard: &Shard,
        answer: &mut Answer,
        bytes: u64,
    ) -> Result<u64, Failure> {
        self.attempts += 1;
        self.first_byte_s.get_or_insert_with(|| self.running.clock_s());
        self.served_by = Some((answer.connection.address, answer.connection.number));
        answer.land(shard, self.running, &mut self.place, &mut self.hash, bytes).await
    }

    /// What has not landed yet.
    pub(crate) fn missing(&self) -> Range<u64> {
        self.range.start + self.place.filled()..self.range.end
    }

    /// The part is whole, or the body of unknown length that it is the end of.
    pub(crate) fn finish(mut self) {
        self.place.complete(&mut self.hash);
        let end_s = self.running.clock_s();
        self.running.finish_part(self.range.start, self.place.filled(), &self.hash, || {
            let unknown = (SocketAddr::from(([0, 0, 0, 0], 0)), 0);
            let (address, connection) = self.served_by.unwrap_or(unknown);
            PartRecord {
                index: self.number,
                address,
                connection,
                start_s: self.start_s,
                first_byte_s: self.first_byte_s.unwrap_or(end_s),
                end_s,
                bytes: self.place.filled(),
                attempts: self.attempts,
            }
        });
    }
}

/// Counts a part in flight for as long as it lives.
struct InFlight<'a>(&'a Counters);

impl<'a> InFlight<'a> {
    fn start(counters: &'a Counters) -> InFlight<'a> {
        counters.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(counters)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
