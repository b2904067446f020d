//! The body of a request or a response with an injected fault.

use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use s3s::{Body, StdError};

use super::log::PendingRecord;
use super::signal::{ConnectionAction, Signal};
use crate::alarm::Alarm;
use crate::placeholder::file_behind;
use crate::rate::Rate;

/// The fault that a body meets with.
pub(super) enum BodyFault {
    /// The rest passes unchanged.
    Pass,
    /// From this byte on nothing comes for a while.
    Stall { at: u64, time: Duration },
    /// The stall has begun and ends then.
    Wait { until: Instant },
    /// Before this byte the connection ends.
    End { at: u64, action: ConnectionAction },
    /// One bit of this byte is another.
    Flip { at: u64, bit: u8 },
    /// It comes at a rate; booked are bytes that may pass from their time on.
    Slow { rate: Rate, booked: Option<(usize, Instant)> },
}

/// A body on its way to hyper, or from it to the front. Frames are cut, never copied: those that stand in for
/// a file go on doing so.
pub(super) struct FaultyBody {
    body: Body,
    body_fault: BodyFault,
    passed: u64,
    /// The rest of a frame that was cut.
    rest: Bytes,
    signal: Arc<Signal>,
    alarm: Alarm,
    /// Of a response: the record of its request, which ends with it.
    entry: Option<PendingRecord>,
}

impl FaultyBody {
    pub(super) fn new(
        body: Body,
        body_fault: BodyFault,
        signal: Arc<Signal>,
        entry: Option<PendingRecord>,
    ) -> FaultyBody {
        FaultyBody { body, body_fault, passed: 0, rest: Bytes::new(), signal, alarm: Alarm::default(), entry }
    }

    /// The next bytes of `rest`, which is not empty, after the fault was applied.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<std::io::Result<Bytes>> {
        loop {
            let all = self.rest.len();
            let before = |at: u64| usize::try_from(at - self.passed).unwrap_or(usize::MAX).min(all);
            match &mut self.body_fault {
                BodyFault::Pass => return self.pass(all),
                BodyFault::Stall { at, .. } | BodyFault::End { at, .. } | BodyFault::Flip { at, .. }
                    if *at > self.passed =>
                {
                    let bytes = before(*at);
                    return self.pass(bytes);
                }
                BodyFault::Stall { time, .. } => {
                    // A client that still sends cannot be watched: what it sent stands before its end.
                    if self.entry.is_some() {
                        self.signal.send(ConnectionAction::Watch);
                    }
                    self.body_fault = BodyFault::Wait { until: Instant::now() + *time };
                }
                BodyFault::Wait { until } => {
                    ready!(self.alarm.poll(*until, cx));
                    self.signal.send(ConnectionAction::GoOn);
                    self.body_fault = BodyFault::Pass;
                }
                BodyFault::End { action, .. } => {
                    self.signal.send(*action);
                    // The socket sees to it when hyper flushes what it has, which it does next.
                    return Poll::Pending;
                }
                BodyFault::Flip { bit, .. } => {
                    let byte = byte(&self.rest)? ^ (1 << *bit);
                    self.body_fault = BodyFault::Pass;
                    self.rest.split_to(1).clear();
                    self.count(1);
                    return Poll::Ready(Ok(Bytes::copy_from_slice(&[byte])));
                }
                BodyFault::Slow { rate, booked } => {
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
        if let Some(entry) = &mut self.entry {
            entry.record.bytes = self.passed;
        }
    }
}

/// The first byte of a frame, or of the file that it stands for.
fn byte(frame: &[u8]) -> std::io::Result<u8> {
    let Some((file, offset)) = file_behind(frame) else { return Ok(frame[0]) };
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    Ok(byte[0])
}

impl hyper::body::Body for FaultyBody {
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
