//! A timer that is set again and again.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::Sleep;

/// A reusable timer; tokio's timers are never early and up to a millisecond late.
#[derive(Default)]
pub(crate) struct Alarm {
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    pub(crate) fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if at <= Instant::now() {
            return Poll::Ready(());
        }
        let at = tokio::time::Instant::from_std(at);
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.as_mut().poll(cx)
    }
}
