//! The checksums of an upload: how bodies are hashed, and what the origin says of them.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use flatout_policy::receive_size::RECEIVE_BYTES;
use flatout_policy::retry::Fault;
use flatout_wire::body_checksum::{BodyChecksum, ChecksumForm};
use flatout_wire::checksum::Algorithm;
use flatout_wire::head::{Coverage, Head};
use flatout_wire::verdict::Reason;

use crate::api::account::Dialect;
use crate::api::refusal::Failure;
use crate::api::write::Content;
use crate::base::error::{Error, ErrorKind};
use crate::base::report::Verified;
use crate::gate::TrailerUse;
use crate::shard::Shard;
use crate::source::body::OutgoingBody;
use crate::source::checksum;
use crate::source::cursor::SendingChecksum;
use crate::transfer::guard::TransferGuard;
use crate::transfer::upload::{PartsUpload, Upload};

pub(super) const NOT_STATED: &str = "not stated by the origin";

/// When a body is hashed.
pub(super) enum ChecksumPlan<'a> {
    /// Before it is sent; `None` where nothing is verified.
    Known(Option<BodyChecksum>),
    /// While it is sent; with the trailer that the checksum goes into, if it goes into one.
    WhileSending(SendingChecksum, Option<TrailerUse<'a>>),
}

impl<'a> ChecksumPlan<'a> {
    pub(super) fn known(&self) -> Option<BodyChecksum> {
        match self {
            ChecksumPlan::Known(sum) => *sum,
            ChecksumPlan::WhileSending(..) => None,
        }
    }

    pub(super) fn while_sending(&self) -> Option<SendingChecksum> {
        match self {
            ChecksumPlan::Known(_) => None,
            ChecksumPlan::WhileSending(sum, _) => Some(*sum),
        }
    }

    /// The algorithm of the checksum in the trailer.
    pub(super) fn trailer(&self) -> Option<Algorithm> {
        self.while_sending().filter(|sum| sum.in_trailer).map(|sum| sum.algorithm)
    }

    /// The trailer that was used, if any.
    pub(super) fn into_trailer(self) -> Option<TrailerUse<'a>> {
        match self {
            ChecksumPlan::Known(_) => None,
            ChecksumPlan::WhileSending(_, trailer) => trailer,
        }
    }

    /// Whether the trailer may be why the part was refused, so that it is worth an attempt without one. An
    /// origin that has taken trailers says so plainly. Before, almost any failure may mean it: servers that
    /// know none answer with 400, 401, 403, 411 or 501, call the checksum of the payload wrong, close the
    /// connection, or keep the framing as content.
    pub(super) fn may_fail_by_trailer(&self, failure: &Failure) -> bool {
        let ChecksumPlan::WhileSending(_, Some(trailer)) = self else { return false };
        let kind = failure.error.kind();
        if !trailer.is_trial {
            return kind == ErrorKind::Unsupported;
        }
        let is_away =
            matches!(failure.fault, Fault::Throttled | Fault::Unavailable | Fault::Unreached | Fault::Away);
        let is_of_upload = matches!(
            failure.reason,
            Some(Reason::UploadGone | Reason::NoSuchBucket | Reason::Full | Reason::ExpiredCredentials)
        );
        !is_away && !is_of_upload && !matches!(kind, ErrorKind::Changed | ErrorKind::LocalIo)
    }
}

/// The checksum of a part, taken by a thread of its own: others are sent meanwhile, and a slow disk holds up
/// nothing else.
pub(super) async fn hashed_aside(
    shard: &Rc<Shard>,
    upload: &Arc<Upload>,
    form: Option<ChecksumForm>,
    range: &Range<u64>,
) -> Result<Option<BodyChecksum>, Error> {
    let Some(form) = form else { return Ok(None) };
    let (tell, told) = tokio::sync::oneshot::channel();
    // The source may be lent until the upload has ended.
    let (owner, part) = (TransferGuard::join(upload), range.clone());
    shard.shared.hashing.run(move || {
        let Some(owner) = owner.filter(|owner| !owner.transfer.is_stopped()) else { return };
        let mut scratch = vec![0; RECEIVE_BYTES];
        let sum = checksum(&owner.source.body(&part), form, &mut scratch);
        // The upload may have been stopped meanwhile.
        let _ = tell.send(sum);
    });
    match told.await {
        Ok(sum) => sum.map(Some),
        // No thread could be had.
        Err(_) => hashed(shard, &upload.source.body(range), Some(form)),
    }
}

/// The checksum of what is to be sent, in that form.
pub(super) fn hashed(
    shard: &Shard,
    body: &OutgoingBody<'_>,
    form: Option<ChecksumForm>,
) -> Result<Option<BodyChecksum>, Error> {
    let mut scratch = shard.scratch.borrow_mut();
    form.map(|form| checksum(body, form, scratch.as_mut_slice())).transpose()
}

/// Compares the checksum that the origin states with that of what was sent.
pub(super) fn compared(head: &Head, sent: Option<BodyChecksum>, what: &str) -> Result<Verified, Error> {
    let Some(sent) = sent else { return Ok(Verified::None("switched off")) };
    let Some((algorithm, sent)) = sent.crc() else {
        let is_etag = head.etag.as_deref().is_some_and(|etag| sent.is_etag(etag));
        return Ok(if is_etag { Verified::Md5 } else { Verified::None(NOT_STATED) });
    };
    let stated = head
        .checksums
        .iter()
        .find(|checksum| checksum.algorithm == algorithm && matches!(checksum.kind, Coverage::Full));
    match stated {
        None => Ok(Verified::None(NOT_STATED)),
        Some(stated) if stated.value == sent => Ok(Verified::Whole(algorithm)),
        Some(stated) => {
            let (name, stated, sent) =
                (algorithm.name(), algorithm.encode(stated.value), algorithm.encode(sent));
            let cause =
                format!("the origin has another {what} than was sent: {name} is {stated}, not {sent}");
            Err(Error::new(ErrorKind::Corrupt, cause).with_hint("send it again"))
        }
    }
}

/// Whether the ETag may be an MD5.
pub(super) fn is_md5(etag: &str) -> bool {
    let digits = etag.trim_matches('"');
    digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

impl Upload {
    /// A checksum that is computed while the part is sent, where the origin takes it in a trailer or states
    /// its own, and reading `range` of the source waits for no disk. The part of a stream is in memory.
    pub(super) fn while_sending(
        &self,
        form: Option<ChecksumForm>,
        range: Option<&Range<u64>>,
    ) -> Option<ChecksumPlan<'_>> {
        let algorithm = form.and_then(ChecksumForm::crc)?;
        let in_trailer = self.dialect() == Dialect::S3;
        let trailer = if in_trailer { Some(self.transfer.gate.try_trailer()?) } else { None };
        let is_ready = range.is_none_or(|range| self.source.is_in_memory(range));
        is_ready.then_some(ChecksumPlan::WhileSending(SendingChecksum { algorithm, in_trailer }, trailer))
    }

    /// How bodies are hashed: as S3 is asked to compare, or as OSS states it.
    pub(super) fn form(&self) -> Option<ChecksumForm> {
        if !self.verify {
            return None;
        }
        match self.dialect() {
            Dialect::Oss => Some(ChecksumForm::Crc(Algorithm::Crc64Xz)),
            // An upload with a CRC needs that of every part, and MinIO states none of a part that it copied.
            Dialect::S3 if self.copies_parts() => {
                self.transfer.gate.upload_checksum().map(|_| ChecksumForm::Md5)
            }
            Dialect::S3 | Dialect::Plain => self.transfer.gate.upload_checksum(),
        }
    }

    /// Whether the origin copies some of it from another object.
    fn copies_parts(&self) -> bool {
        let is_edited =
            self.edits.as_ref().is_some_and(|edits| edits.parts.iter().any(|part| part.is_copied));
        self.continues.is_some() || is_edited
    }

    /// How the next part is hashed. An origin that overlooked the CRC of a part is not told that of another.
    pub(super) fn form_of_part(&self, parts: &PartsUpload) -> Option<ChecksumForm> {
        parts.form.map(|begun| if self.form() == Some(begun) { begun } else { ChecksumForm::Md5 })
    }

    /// What the origin says of a body that it has taken, and what the body was hashed to in the end: where
    /// the origin overlooks CRCs, its ETag tells, which is the MD5 unless a key service encrypted the object.
    pub(super) fn verified(
        &self,
        shard: &Shard,
        body: &OutgoingBody<'_>,
        (head, taken): (&Head, Option<BodyChecksum>),
        plan: &ChecksumPlan<'_>,
        what: &str,
    ) -> Result<(Verified, Option<BodyChecksum>), Error> {
        let sum = plan.known().or(taken);
        let verified = compared(head, sum, what)?;
        if plan.trailer().is_some() && !matches!(verified, Verified::Whole(_)) {
            // It may have stored the framing as content.
            let cause = format!("the origin took the {what} and states no checksum of it");
            return Err(Error::new(ErrorKind::Unsupported, cause));
        }
        let Some(crc) = sum.filter(|sum| sum.crc().is_some() && verified == Verified::None(NOT_STATED))
        else {
            return Ok((verified, sum));
        };
        if self.dialect() == Dialect::S3 {
            self.transfer.gate.on_checksum_refused(crc.form());
        }
        if !head.etag.as_deref().is_some_and(is_md5) {
            return Ok((verified, sum));
        }
        let md5 = hashed(shard, body, Some(ChecksumForm::Md5))?;
        Ok(match compared(head, md5, what)? {
            Verified::Md5 => (Verified::Md5, md5),
            _ => (verified, sum),
        })
    }

    /// What the request states of its body. OSS takes no checksum of ours, and states its own in the answer.
    pub(super) fn told(&self, content: Content) -> Content {
        match self.dialect() {
            Dialect::S3 => content,
            Dialect::Oss | Dialect::Plain => Content { checksum: None, ..content },
        }
    }

    /// Whether the origin refused the form of the checksum, so that another one is tried.
    pub(super) fn steps_down(&self, failure: &Failure, tried: Option<ChecksumForm>) -> bool {
        // Other bytes than were sent are no reason to send the next without a checksum.
        // One that copies parts has a form of its own, and there is no other.
        if self.dialect() != Dialect::S3 || self.copies_parts() || failure.reason == Some(Reason::Mismatch) {
            return false;
        }
        let words = failure.error.cause().to_ascii_lowercase();
        let is_about_checksums = ["checksum", "crc64", "md5"].iter().any(|word| words.contains(word));
        let is_mismatch = words.contains("mismatch") || words.contains("not match");
        let is_refused = match failure.status {
            Some(400) => is_about_checksums && !is_mismatch,
            Some(status) => status == 501,
            None => false,
        };
        match tried {
            Some(tried) => is_refused && self.transfer.gate.on_checksum_refused(tried),
            None => {
                if is_refused && self.verify {
                    self.transfer.gate.on_checksum_blameless();
                }
                false
            }
        }
    }
}
