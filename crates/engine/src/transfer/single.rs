//! An origin without ranges: one stream, landed part by part and in order. When it breaks it is asked for
//! again, and what has landed is passed over.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use crate::api::refusal::Failure;
use crate::api::template::Asked;
use crate::base::error::{Error, ErrorKind};
use crate::base::version::Version;
use crate::gate::slots::Slot;
use crate::shard::Shard;
use crate::shard::call::{Response, unexpected};
use crate::sink::landing::Sink;
use crate::sink::verify::{ExpectedChecksum, Ledger};
use crate::transfer::Download;
use crate::transfer::part::Part;
use crate::transfer::response::ask;
use flatout_policy::retry::Attempts;

/// The stream while it lasts.
pub(crate) struct Single<'a> {
    shard: &'a Rc<Shard>,
    running: &'a Download,
    answer: Option<Response>,
    attempts: Attempts,
    /// The one by which it was asked for, until the first part has it.
    slot: Option<Slot>,
}

impl<'a> Single<'a> {
    pub(crate) fn new(
        shard: &'a Rc<Shard>,
        running: &'a Download,
        answer: Response,
        slot: Slot,
    ) -> Single<'a> {
        Single { shard, running, answer: Some(answer), attempts: Attempts::default(), slot: Some(slot) }
    }

    /// Lands all that is wanted of the stream.
    pub(crate) async fn land(mut self) -> Result<(), Error> {
        while let Some(turn) = self.running.take_part(self.shard.number, self.slot.take()).await? {
            let mut part = Part::start(self.running, turn);
            let ended = self.land_part(&mut part).await?;
            let size = part.missing().start;
            part.finish();
            if ended {
                // Only now it is known whether what was asked for is there at all.
                self.running
                    .span
                    .resolve(size)
                    .map_err(|why| Error::new(ErrorKind::Usage, why.to_string()))?;
                self.running.finish_unplanned();
                break;
            }
        }
        if let Some(answer) = self.answer.take() {
            answer.finish(self.shard).await;
        }
        Ok(())
    }

    /// Lands one part; whether the stream, whose length was not known, ended with it.
    async fn land_part(&mut self, part: &mut Part<'_>) -> Result<bool, Error> {
        loop {
            let before = part.missing().start;
            let advanced = self.advance(part).await;
            self.attempts.on_landed(part.missing().start - before);
            match advanced {
                Ok(ended) => return Ok(ended),
                Err(failure) => part.wait_or_give_up(self.shard, failure, &mut self.attempts).await?,
            }
        }
    }

    async fn advance(&mut self, part: &mut Part<'_>) -> Result<bool, Failure> {
        let mut answer = match self.answer.take() {
            Some(answer) => answer,
            None => self.ask_again(part.missing().start).await?,
        };
        let missing = part.missing();
        let wanted = missing.end - missing.start;
        let landed = part.land(self.shard, &mut answer, wanted).await?;
        let ended = landed < wanted;
        if ended && self.running.version().is_some_and(|version| version.size.is_some()) {
            return Err(Failure::ended_early(wanted - landed));
        }
        self.answer = Some(answer);
        Ok(ended)
    }

    /// The stream from its start, read up to `position`.
    async fn ask_again(&mut self, position: u64) -> Result<Response, Failure> {
        let mut answer = ask(self.shard, self.running, &Asked::Whole).await?;
        if answer.head.status != 200 {
            return Err(unexpected(answer.head.status));
        }
        let found = Version::of(&answer.head, answer.head.object_bytes());
        let difference = self.running.version().and_then(|version| version.difference(&found));
        if let Some(difference) = difference {
            return Err(Failure::changed(&difference));
        }
        self.pass_over(&mut answer, position).await?;
        Ok(answer)
    }

    async fn pass_over(&self, answer: &mut Response, bytes: u64) -> Result<(), Failure> {
        let unhashed = Ledger::default();
        unhashed.state(ExpectedChecksum::Nothing("passed over"));
        let mut place = Sink::Nowhere.place(0, 0, unhashed.start_part());
        while place.filled() < bytes {
            let left = bytes - place.filled();
            let received = answer.connection.receive(&mut place, &self.shard.scratch, left).await?;
            if received == 0 {
                return Err(Failure::changed("it is shorter now"));
            }
            self.running.transfer.counters.passed_over_bytes.fetch_add(received, Ordering::Relaxed);
        }
        Ok(())
    }
}
