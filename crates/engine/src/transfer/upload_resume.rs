//! What an earlier run has left of an upload, and what this one leaves for the next: docs/life-of-a-put.md.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use flatout_wire::body_checksum::ChecksumForm;
use flatout_wire::checksum::Algorithm;
use flatout_wire::head::quoted;
use flatout_wire::upload_answers::{self, ListedPart};

use crate::api::refusal::Failure;
use crate::api::write::WriteStep;
use crate::base::error::Error;
use crate::disk::upload_journal::{BegunUpload, EarlierUpload, SentPart, UploadIdentity, UploadJournal};
use crate::shard::Shard;
use crate::shard::call::call_whole;
use crate::source::OpenSource;
use crate::transfer::guard::TransferGuard;
use crate::transfer::upload::{Cut, PartsUpload, Upload};
use crate::transfer::upload_workers::{ABORT_WITHIN, is_stored, nonsensical};
use flatout_policy::retry::Fault;

/// Why a file is sent anew though there is a journal.
const ANOTHER: &str = "another file, another state of it, or one with other options was being sent there: it \
                       is sent anew";
const FORGOTTEN: &str = "the origin has forgotten the parts of an earlier run: the file is sent anew";
const UNLISTED: &str = "the origin does not list the parts of an earlier run: the file is sent anew";

/// Goes on with what an earlier run left of this very file: parts that its journal names and the origin
/// lists. Where that run had asked for the object, and was killed before it heard of it, the upload is done.
pub(super) async fn go_on<'a>(
    shard: &Rc<Shard>,
    hold: &'a TransferGuard<Upload>,
    bytes: u64,
) -> Result<Option<&'a PartsUpload>, Error> {
    let Some((journal, identity)) = hold.open_journal(shard) else { return Ok(None) };
    let (journal, earlier) = journal;
    let fresh = hold.journal.set(journal).is_ok();
    assert!(fresh, "a journal is opened once");
    let Some(EarlierUpload { begun, parts: noted }) = earlier else { return Ok(None) };
    let is_same = begun.identity == identity && begun.form.is_some() == hold.verify;
    let listed = match is_same {
        true => list_parts(shard, hold, &begun.upload_id).await?,
        false => Err(ANOTHER),
    };
    let listed = match listed {
        Ok(listed) => Some(listed),
        // It may have been completed.
        Err(FORGOTTEN) => None,
        Err(why) => {
            let _ = hold.resume_note.set(why);
            // Nothing goes on from its parts any more. Where they cannot be deleted, `flatout uploads` lists
            // them.
            let step = WriteStep::Abort { upload_id: begun.upload_id.into() };
            let _ = tokio::time::timeout(ABORT_WITHIN, call_whole(shard, hold.operation(step))).await;
            return Ok(None);
        }
    };
    let length = |number: u32| {
        let start = u64::from(number.saturating_sub(1)).checked_mul(begun.part_bytes)?;
        (number > 0 && start < bytes).then(|| begun.part_bytes.min(bytes - start))
    };
    let is_there = |part: &SentPart| {
        let is_listed = |there: &ListedPart| {
            there.number == part.number && there.size == part.bytes && there.etag == quoted(&part.etag)
        };
        length(part.number) == Some(part.bytes) && listed.as_ref().is_none_or(|all| all.iter().any(is_listed))
    };
    let mut kept: Vec<SentPart> = noted.into_iter().filter(is_there).collect();
    // The last of a number is what the origin has.
    kept.reverse();
    kept.sort_by_key(|part| part.number);
    kept.dedup_by_key(|part| part.number);
    let kept_bytes = kept.iter().map(|part| part.bytes).sum();
    let cut = Cut::Even { part_bytes: begun.part_bytes, bytes };
    let parts = PartsUpload::new(begun.upload_id, (begun.form, begun.begun_s), cut, kept);
    let is_forgotten = listed.is_none();
    if is_forgotten && !(parts.left() == 0 && was_completed(shard, hold, &parts).await?) {
        let _ = hold.resume_note.set(FORGOTTEN);
        return Ok(None);
    }
    hold.resumed_bytes.store(kept_bytes, Ordering::Relaxed);
    hold.transfer.counters.checked_bytes.fetch_add(kept_bytes, Ordering::Relaxed);
    if is_forgotten {
        return Ok(None);
    }
    let fresh = hold.parts.set(parts).is_ok();
    assert!(fresh, "an upload begins once");
    Ok(hold.parts.get())
}

/// Whether the origin has made the object of all these parts: the earlier run was killed before it heard so.
async fn was_completed(shard: &Rc<Shard>, upload: &Upload, parts: &PartsUpload) -> Result<bool, Error> {
    let whole = parts.conclude();
    match is_stored(shard, upload, (whole.content(), parts.begun_s), whole.etag().as_deref()).await {
        // Keys that may write and not read, for one.
        Err(Failure { fault: Fault::Final, status: Some(_), .. }) => Ok(false),
        looked => looked.map_err(|failure| failure.error),
    }
}

/// The parts that the origin has of an upload, or why they are of no use.
async fn list_parts(
    shard: &Rc<Shard>,
    upload: &Upload,
    upload_id: &str,
) -> Result<Result<Vec<ListedPart>, &'static str>, Error> {
    let (mut parts, mut marker) = (Vec::new(), None);
    loop {
        let step = WriteStep::ListParts { upload_id: upload_id.into(), marker };
        let body = match call_whole(shard, upload.operation(step)).await {
            Ok((_, body)) => body,
            Err(Failure { status: Some(404), .. }) => return Ok(Err(FORGOTTEN)),
            // It is asked for no other reason than to spare bytes: a refusal fails no upload.
            Err(Failure { fault: Fault::Final, status: Some(400..=499 | 501), .. }) => {
                return Ok(Err(UNLISTED));
            }
            Err(failure) => return Err(failure.error),
        };
        let page =
            upload_answers::parse_parts(&body).map_err(|nonsense| nonsensical("list of parts", &nonsense))?;
        parts.extend(page.parts);
        match page.next {
            Some(next) if marker < Some(next) => marker = Some(next),
            _ => return Ok(Ok(parts)),
        }
    }
}

impl Upload {
    /// The journal of this upload and what it is of, where a later run may go on with it.
    fn open_journal(
        &self,
        shard: &Shard,
    ) -> Option<((UploadJournal, Option<EarlierUpload>), UploadIdentity)> {
        let folder = shard.shared.upload_journals.as_deref().filter(|_| self.resume)?;
        let identity = self.identity(shard)?;
        let opened = UploadJournal::open(folder, &identity.origin, &identity.location)?;
        Some((opened, identity))
    }

    fn identity(&self, shard: &Shard) -> Option<UploadIdentity> {
        let OpenSource::File(file) = &self.source else { return None };
        let origin = shard.shared.account.endpoint_of(&self.target.location).ok()?.to_string();
        // They are the upload's since it was created.
        let options = Algorithm::Crc64Nvme.of(format!("{:?}", self.stored_as.options).as_bytes());
        let (location, file) = (self.transfer.name.clone(), file.identity().clone());
        Some(UploadIdentity { origin, location, file, options })
    }

    /// Notes that the upload has begun. Where that cannot be written there is nothing to go on from.
    pub(super) fn note_begun(
        &self,
        shard: &Shard,
        upload_id: &str,
        (form, begun_s): (Option<ChecksumForm>, u64),
        cut: &Cut,
    ) {
        let (Some(journal), Some(identity), &Cut::Even { part_bytes, .. }) =
            (self.journal.get(), self.identity(shard), cut)
        else {
            return;
        };
        let begun = BegunUpload { identity, part_bytes, form, begun_s, upload_id: upload_id.to_owned() };
        if journal.begin(&begun).is_err() {
            journal.remove();
        }
    }

    pub(super) fn forget_journal(&self) {
        if let Some(journal) = self.journal.get() {
            journal.remove();
        }
    }
}
