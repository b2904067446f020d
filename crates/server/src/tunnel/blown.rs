//! The body of an answer as the tunnel lets it through.

use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use s3s::{Body, StdError};

use super::cue::{Act, Cue};
use super::log::Entry;
use crate::alarm::Alarm;
use crate::rate::Rate;
use crate::stand_in::meaning;

/// What happens to a body.
pub(super) enum Fate {
    /// All that is left of it passes.
    Pass,
    /// From this byte on nothing comes for a while.
    Stall { at: u64, time: Duration },
    /// It stalls until then.
    Wait { until: Instant },
    /// Before this byte the connection ends.
    End { at: u64, act: Act },
    /// One bit of this byte is another.
    Flip { at: u64, bit: u8 },
    /// It comes at a rate; booked are bytes that may pass from their time on.
    Slow { rate: Rate, booked: Option<(usize, Instant)> },
}

/// A body on its way to hyper. Frames are cut, never copied: those that stand in for a file go on doing so.
pub(super) struct Blown {
    body: Body,
    fate: Fate,
    passed: u64,
    /// What is left of a frame that was cut.
    rest: Bytes,
    cue: Arc<Cue>,
    alarm: Alarm,
    entry: Entry,
}

impl Blown {
    pub(super) fn new(body: Body, fate: Fate, cue: Arc<Cue>, entry: Entry) -> Blown {
        Blown { body, fate, passed: 0, rest: Bytes::new(), cue, alarm: Alarm::default(), entry }
    }

    /// The next bytes of what the fate leaves of `rest`, which is not empty.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<Bytes>> {
        loop {
            let all = self.rest.len();
            let before = |at: u64| usize::try_from(at - self.passed).unwrap_or(usize::MAX).min(all);
            match &mut self.fate {
                Fate::Pass => return self.pass(all),
                Fate::Stall { at, .. } | Fate::End { at, .. } | Fate::Flip { at, .. }
                    if *at > self.passed =>
                {
                    let bytes = before(*at);
                    return self.pass(bytes);
                }
                Fate::Stall { time, .. } => {
                    self.cue.give(Act::Watch);
                    self.fate = Fate::Wait { until: Instant::now() + *time };
                }
                Fate::Wait { until } => {
                    ready!(self.alarm.poll(*until, cx));
                    self.cue.give(Act::GoOn);
                    self.fate = Fate::Pass;
                }
                Fate::End { act, .. } => {
                    self.cue.give(*act);
                    // The socket sees to it when hyper flushes what it has, which it does next.
                    return Poll::Pending;
                }
                Fate::Flip { bit, .. } => {
                    let byte = byte(&self.rest)? ^ (1 << *bit);
                    self.fate = Fate::Pass;
                    self.rest.split_to(1).clear();
                    self.count(1);
                    return Poll::Ready(Ok(Bytes::copy_from_slice(&[byte])));
                }
                Fate::Slow { rate, booked } => {
                    let (bytes, from) = *booked.get_or_insert_with(|| {
                        let now = Instant::now();
                        let bytes = rate.grain(all, now);
                        (bytes, rate.book(bytes, now))
                    });
                    ready!(self.alarm.poll(from, cx));
                    *booked = None;
                    return self.pass(bytes);
                }
            }
        }
    }

    fn pass(&mut self, bytes: usize) -> Poll<std::io::Result<Bytes>> {
        let passed = self.rest.split_to(bytes);
        self.count(bytes);
        Poll::Ready(Ok(passed))
    }

    fn count(&mut self, bytes: usize) {
        self.passed += bytes as u64;
        self.entry.line.bytes = self.passed;
    }
}

/// The first byte of a frame, or of the file that it stands for.
fn byte(frame: &[u8]) -> std::io::Result<u8> {
    let Some((file, offset)) = meaning(frame) else { return Ok(frame[0]) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    Ok(byte[0])
}

impl hyper::body::Body for Blown {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        while self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            match frame.into_data() {
                Ok(bytes) => self.rest = bytes,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let bytes = ready!(self.poll_rest(cx));
        Poll::Ready(Some(bytes.map(Frame::data).map_err(StdError::from)))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        inner.exact().map_or_else(SizeHint::default, |bytes| SizeHint::with_exact(bytes + rest))
    }
}
