//! An attempt at a part: its answer is checked against what was asked for, and its body lands.

use std::net::SocketAddr;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use flatout_wire::head::Body;

use crate::api::refusal::Failure;
use crate::api::template::Asked;
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{setting, text};
use crate::base::operation::Class;
use crate::base::version::Version;
use crate::shard::Shard;
use crate::shard::call::{Call, Response};
use crate::transfer::Download;
use flatout_policy::retry::Attempts;

/// Sends the request and waits for the head of a good answer; anything else is a failure.
pub(crate) async fn ask(shard: &Rc<Shard>, running: &Download, asked: &Asked) -> Result<Response, Failure> {
    ask_elsewhere(shard, running, asked, None).await
}

/// [`ask`], if possible over a connection to another address than `shunned`.
pub(crate) async fn ask_elsewhere(
    shard: &Rc<Shard>,
    running: &Download,
    asked: &Asked,
    shunned: Option<SocketAddr>,
) -> Result<Response, Failure> {
    let call = Call {
        gate: &running.transfer.gate,
        class: Class::Read,
        template: &running.object,
        asked,
        if_match: running.if_match(),
        shunned,
        counters: Some(&running.transfer.counters),
        body: None,
    };
    call.ask(shard).await
}

impl Response {
    /// Checks that this is the range that was asked for, of the version that is being read.
    pub(crate) fn check(&self, wanted: &Range<u64>, version: &Version) -> Result<(), Failure> {
        let range = self.content_range()?;
        let total = self.head.object_bytes();
        let found = Version::of(&self.head, total);
        if let Some(difference) = version.difference(&found) {
            return Err(Failure::changed(&difference));
        }
        let end = total.map_or(wanted.end, |total| wanted.end.min(total));
        if range.start != wanted.start || range.end != end {
            return Err(mismatch(&format!(
                "asked for bytes {}-{}, the answer's Content-Range says {}-{}",
                wanted.start,
                end.saturating_sub(1),
                range.start,
                range.end.saturating_sub(1)
            )));
        }
        Ok(())
    }

    /// The range that a 206 carries, held against the length of its body.
    pub(crate) fn content_range(&self) -> Result<Range<u64>, Failure> {
        if self.head.status != 206 {
            let error = Error::new(
                ErrorKind::Network,
                format!("a range was answered with status {}", self.head.status),
            );
            return Err(Failure::last(error.with_hint([
                text("the origin does not serve ranges reliably: fetch the object whole, in one part ("),
                setting("part-size"),
                text(" of its size)"),
            ])));
        }
        let range = self.head.content_range.as_ref().and_then(|found| found.range.clone());
        let range = range
            .filter(|_| !self.head.bad_content_range)
            .ok_or_else(|| mismatch("the answer has no Content-Range that can be read"))?;
        match self.head.body {
            Body::Length(bytes) if bytes != range.end - range.start => Err(mismatch(&format!(
                "the answer's Content-Range says {} bytes, its Content-Length {bytes}",
                range.end - range.start
            ))),
            _ => Ok(range),
        }
    }

    /// Leaves the rest of the body, which somebody else brings.
    pub(crate) fn leave(self, running: &Download) {
        running
            .transfer
            .counters
            .duplicated_bytes
            .fetch_add(self.connection.untaken_bytes(), Ordering::Relaxed);
    }
}

/// Waits before the next attempt, or gives the error back when there is to be none.
pub(crate) async fn wait_or_give_up(
    shard: &Shard,
    running: &Download,
    failure: Failure,
    attempts: &mut Attempts,
) -> Result<(), Error> {
    let _retrying = shard.cell(&running.transfer.gate).retrying();
    shard
        .wait_or_give_up((&running.transfer.gate, Class::Read), failure, attempts)
        .await
        .map_err(|failure| failure.error)?;
    running.transfer.counters.retries.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn mismatch(what: &str) -> Failure {
    let error = Error::new(ErrorKind::Network, format!("the answer does not match the request: {what}"));
    Failure::transient(error.with_hint("a proxy or cache on the way may mangle ranges"))
}
