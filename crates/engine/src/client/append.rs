//! Appends to an object of OSS. What was appended is seen at once, and cannot be taken back.
//!
//! ```text
//! append ─┬─ answer: its checksum is that of all bytes
//!         └─ no answer: HEAD ─ as long as it was to be, with that checksum? it was done
//! ```

use std::rc::Rc;
use std::sync::Arc;

use flatout_policy::retry::Fault;
use flatout_wire::checksum::{Algorithm, Coverage};
use flatout_wire::head::Head;
use flatout_wire::location::Location;
use flatout_wire::verdict::Reason;

use crate::api::account::{Dialect, Operation, Target, check_object};
use crate::api::refusal::Failure;
use crate::api::write::{Write, WriteStep};
use crate::base::error::{Error, ErrorKind};
use crate::base::version::Version;
use crate::client::Client;
use crate::shard::Shard;
use crate::shard::call::call_whole;

const UNKNOWN_END: &str = "whether the bytes were appended is not known: look at the end of the object";

/// The end of an appendable object, to which the next bytes go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendPosition {
    /// Its length in bytes.
    pub at: u64,
    /// The CRC-64/XZ of all its bytes. Without it, an append whose answer was lost has failed.
    pub crc: Option<u64>,
}

/// What an append has made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The object as it is now.
    pub version: Version,
    /// Where the next bytes go.
    pub position: AppendPosition,
}

impl AppendPosition {
    fn after(self, bytes: &[u8]) -> AppendPosition {
        let added = bytes.len() as u64;
        let combined = |before| Algorithm::Crc64Xz.combine(before, Algorithm::Crc64Xz.of(bytes), added);
        AppendPosition { at: self.at + added, crc: self.crc.map(combined) }
    }
}

impl Client {
    /// Appends bytes to an object of OSS that was made by appends, in one request; at position 0 it makes the
    /// object. The bytes are held meanwhile, outside of the client's memory limit.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] where the object does not end there, or was made otherwise;
    /// [`ErrorKind::Unsupported`] outside of OSS; the origin's refusal, or the network's.
    pub fn append(
        &self,
        to: &Location,
        position: AppendPosition,
        bytes: Arc<[u8]>,
    ) -> Result<Appended, Error> {
        check_object(to)?;
        if Dialect::of(to) != Dialect::Oss {
            return Err(Error::new(ErrorKind::Unsupported, "only OSS appends").during("append to", to));
        }
        let target = Target::from(to.clone());
        let appended =
            self.shards.wait_for(move |shard| async move { append(&shard, target, position, bytes).await });
        appended.map_err(|error| error.during("append to", to))
    }
}

async fn append(
    shard: &Rc<Shard>,
    target: Target,
    position: AppendPosition,
    bytes: Arc<[u8]>,
) -> Result<Appended, Error> {
    let wanted = position.after(&bytes);
    let step = WriteStep::Append { position: position.at, document: bytes };
    let operation = Operation::Write(Write { target: target.clone(), step });
    match call_whole(shard, operation).await {
        Ok((head, _)) if is_after(&head, wanted, head.next_append_position) => Ok(appended(&head, wanted)),
        Ok(_) => {
            Err(changed("another client has replaced it meanwhile, and the bytes were appended to that"))
        }
        // Also where it does not end there: an earlier attempt that was answered with an error may have been
        // carried out.
        Err(failure) if may_be_done(&failure) || is_elsewhere(&failure) => {
            match call_whole(shard, Operation::Head(target)).await {
                Ok((head, _)) if is_surely_after(&head, wanted) => Ok(appended(&head, wanted)),
                // It ends where it did: nothing was appended.
                Ok((head, _)) if head.content_length == Some(position.at) => Err(told(failure)),
                _ if may_be_done(&failure) => Err(unknown()),
                _ => Err(told(failure)),
            }
        }
        Err(failure) => Err(told(failure)),
    }
}

/// Whether the answer to an earlier attempt, or to this one, was lost.
fn may_be_done(failure: &Failure) -> bool {
    failure.was_lost || failure.status.is_none() && failure.fault != Fault::Unreached
}

/// Whether the object with this head is the one that was to be made, byte for byte.
fn is_surely_after(head: &Head, wanted: AppendPosition) -> bool {
    let has_crc = head.checksums.iter().any(|stated| stated.algorithm == Algorithm::Crc64Xz);
    wanted.crc.is_some() && has_crc && is_after(head, wanted, head.content_length)
}

/// Whether an object with this head, and that length, is the one that was to be made.
fn is_after(head: &Head, wanted: AppendPosition, bytes: Option<u64>) -> bool {
    let is_of_all = |algorithm, kind| algorithm == Algorithm::Crc64Xz && kind == Coverage::Full;
    let crc = head.checksums.iter().find(|stated| is_of_all(stated.algorithm, stated.kind));
    bytes.is_none_or(|bytes| bytes == wanted.at)
        && crc.zip(wanted.crc).is_none_or(|(stated, crc)| stated.value == crc)
}

fn appended(head: &Head, wanted: AppendPosition) -> Appended {
    Appended { version: Version::of(head, Some(wanted.at)), position: wanted }
}

/// The object does not end at the position.
fn is_elsewhere(failure: &Failure) -> bool {
    failure.status == Some(409) && failure.reason == Some(Reason::Changed)
}

/// Not another client's change alone: the bytes may be there.
fn unknown() -> Error {
    let cause = "the answer was lost, and the object is another one by now: whether the bytes were appended \
                 is not known";
    Error::new(ErrorKind::Network, cause).with_hint(UNKNOWN_END)
}

fn told(failure: Failure) -> Error {
    let is_position = is_elsewhere(&failure);
    let is_other = failure.status == Some(409) && failure.error.cause().contains("ObjectNotAppendable");
    match (is_position, is_other) {
        (true, _) => changed("another client has appended to it, or replaced it, meanwhile"),
        (_, true) => changed("another client has replaced it by an object that cannot be appended to"),
        (false, false) => failure.error,
    }
}

fn changed(cause: &str) -> Error {
    Error::new(ErrorKind::Changed, cause).with_hint("look at the object, and start again")
}
