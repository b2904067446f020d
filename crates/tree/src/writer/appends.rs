//! Writes to the end of an object of OSS that was made by appends, and stays one that takes them: they are
//! kept until there are enough of them, and sent by one request each time.

use std::ops::Range;
use std::sync::Arc;

use flatout_engine::{AppendPosition, Error, ErrorKind, Object};
use flatout_wire::checksum::Algorithm;
use flatout_wire::location::Location;

use crate::buffers::{BufferedBytes, Buffers};
use crate::files::WriteMoment;
use crate::fs_error::FsError;
use crate::store::{Head, MemoryAccount, ObjectStore, Stored};
use crate::version_bytes::ReadFrom;
use crate::write_errors::{grown, not_published};
use crate::writer::{Content, Work};

/// What was written is sent when so much of it has come.
const KEPT_MOST: usize = 1 << 20;
/// OSS's limit of such an object (AppendObject).
const OBJECT_MOST: u64 = 5 << 30;

pub(super) struct Appends<A: MemoryAccount> {
    /// What was written and has not been sent.
    buffer: BufferedBytes<A>,
    position: AppendPosition,
    buffers: Arc<Buffers<A>>,
}

impl<A: MemoryAccount> Appends<A> {
    /// To the object with that head.
    pub(super) fn new(head: &Head, buffers: &Arc<Buffers<A>>) -> Appends<A> {
        let crc = head.checksums.iter().find(|(algorithm, _)| *algorithm == Algorithm::Crc64Xz);
        let position = AppendPosition { at: head.size, crc: crc.map(|(_, crc)| *crc) };
        Appends { buffer: buffers.empty(), position, buffers: buffers.clone() }
    }

    /// Whether these bytes can be kept without a request.
    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.buffer.bytes().len() + bytes <= KEPT_MOST
    }

    /// # Errors
    /// `EFBIG` where the object would be too long.
    pub(super) fn check_length(&self, bytes: usize, location: &Location) -> Result<(), FsError> {
        let length = self.position.at + (self.buffer.bytes().len() + bytes) as u64;
        if length <= OBJECT_MOST {
            return Ok(());
        }
        let error = Error::new(ErrorKind::Unsupported, "an appendable object of OSS has at most 5GiB")
            .during("write", location)
            .with_hint("go on in another file, or copy it: the copy can be longer");
        Err(FsError::because(libc::EFBIG, error))
    }

    /// # Errors
    /// `ENOMEM`; nothing is kept then.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> Result<(), FsError> {
        self.buffer.extend(bytes)
    }

    /// Sends what is kept; the object as it is then, unless there is nothing to send.
    ///
    /// # Errors
    /// The origin's refusal, or the network's: what was kept may or may not have been appended.
    pub(super) fn send<S: ObjectStore>(
        &mut self,
        store: &S,
        location: &Location,
    ) -> Result<Option<Stored>, Error> {
        if self.buffer.bytes().is_empty() {
            return Ok(None);
        }
        let (stored, position) = store.append(location, self.position, self.buffer.shared())?;
        self.buffer = self.buffers.empty();
        self.position = position;
        Ok(Some(stored))
    }
}

impl<S: ObjectStore> Work<S> {
    /// Keeps bytes that are to be appended; those that were kept before are sent where there is no room.
    pub(super) fn append_more(
        &mut self,
        store: &Arc<S>,
        bytes: &[u8],
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, FsError> {
        let Content::Appends(appends) = &mut self.content else { return Err(FsError::of(libc::EIO)) };
        appends.check_length(bytes.len(), &self.location)?;
        if !appends.has_room(bytes.len()) {
            if !goes_on(WriteMoment::Wait) {
                return Ok(false);
            }
            self.untold = self.send_appends(store)?;
            self.keep_unsent();
        }
        let Content::Appends(appends) = &mut self.content else { return Err(FsError::of(libc::EIO)) };
        if !goes_on(WriteMoment::Take) {
            return Ok(false);
        }
        appends.keep(bytes).map(|()| true)
    }

    /// Bytes that are to be appended, with those of the published version before them; `None` where the
    /// version has them all.
    pub(super) fn read_appended(
        &mut self,
        store: &Arc<S>,
        range: Range<u64>,
    ) -> Result<Option<ReadFrom<S::VersionReader>>, FsError> {
        let Content::Appends(appends) = &self.content else { return Ok(None) };
        let sent = appends.position.at;
        if range.end <= sent {
            return Ok(None);
        }
        let kept = appends.buffer.bytes();
        let index = |at: u64| usize::try_from(at.saturating_sub(sent)).unwrap_or(usize::MAX).min(kept.len());
        let behind = kept[index(range.start)..index(range.end)].to_vec();
        if range.start >= sent {
            return Ok(Some(ReadFrom::Bytes(behind)));
        }
        let before = usize::try_from(sent - range.start).map_err(|_| FsError::of(libc::EINVAL))?;
        Ok(Some(ReadFrom::VersionAnd(self.reader(store)?, range.start, before, behind)))
    }

    pub(super) fn send_appends(&mut self, store: &Arc<S>) -> Result<Option<Stored>, FsError> {
        let Content::Appends(appends) = &mut self.content else { return Ok(None) };
        let sent = appends.send(&**store, &self.location).map_err(not_published)?;
        if let Some(stored) = &sent {
            self.on_published(stored);
        }
        Ok(sent)
    }

    /// Whether the published version takes appends; the object is asked.
    pub(super) fn find_appends(
        &mut self,
        store: &Arc<S>,
        buffers: &Arc<Buffers<S::MemoryAccount>>,
        object: &Object,
    ) -> Result<bool, FsError> {
        if self.takes_no_appends || !matches!(self.location, Location::Oss { .. }) {
            return Ok(false);
        }
        let head = match store.head(&self.location) {
            Ok(head) if head.is_appendable => head,
            // One that is gone is missed when its bytes are read.
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            Ok(_) | Err(_) => {
                self.takes_no_appends = true;
                return Ok(false);
            }
        };
        if head.size != object.size || object.etag.is_some() && head.etag != object.etag {
            return Err(grown(&self.location));
        }
        self.content = Content::Appends(Appends::new(&head, buffers));
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Unlimited;

    impl MemoryAccount for Unlimited {
        fn set(&mut self, _: u64) {}

        fn is_over(&self) -> bool {
            false
        }
    }

    #[test]
    fn an_object_grows_to_the_limit_of_the_origin() {
        let location = Location::parse("oss://bucket/log").unwrap();
        let head = Head { size: OBJECT_MOST - 3, ..Head::default() };
        let mut appends = Appends::new(&head, &Buffers::new(Unlimited, u64::MAX, None, None));
        assert_eq!(appends.check_length(4, &location).unwrap_err().errno, libc::EFBIG);
        appends.keep(b"ab").unwrap();
        assert!(appends.check_length(1, &location).is_ok());
        let error = appends.check_length(2, &location).unwrap_err();
        assert!(error.to_string().contains("at most 5GiB"), "{error}");
    }

    #[test]
    fn so_much_is_kept_as_one_request_has() {
        let mut appends = Appends::new(&Head::default(), &Buffers::new(Unlimited, u64::MAX, None, None));
        assert!(appends.has_room(KEPT_MOST) && !appends.has_room(KEPT_MOST + 1));
        appends.keep(b"x").unwrap();
        assert!(!appends.has_room(KEPT_MOST));
    }
}
