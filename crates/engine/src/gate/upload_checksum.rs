//! In which form an origin takes the checksum of what is sent, and whether behind a body: found out at its
//! first refusal.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use flatout_wire::body_checksum::ChecksumForm;
use flatout_wire::checksum::Algorithm;

/// From the best to none. S3 computes the first by itself where an upload states nothing.
const FORMS: [Option<ChecksumForm>; 4] = [
    Some(ChecksumForm::Crc(Algorithm::Crc64Nvme)),
    Some(ChecksumForm::Crc(Algorithm::Crc32c)),
    Some(ChecksumForm::Md5),
    None,
];

/// The form that one origin takes, as far as is known.
#[derive(Debug, Default)]
pub(super) struct UploadChecksum(AtomicUsize);

impl UploadChecksum {
    pub(super) fn get(&self) -> Option<ChecksumForm> {
        FORMS[self.0.load(Ordering::Relaxed)]
    }

    /// The origin refused `tried`: whether there is another form to try.
    pub(super) fn on_refused(&self, tried: ChecksumForm) -> bool {
        let at = FORMS.iter().position(|form| *form == Some(tried)).unwrap_or(FORMS.len() - 1);
        // Another upload may have found it out already.
        let _ =
            self.0.compare_exchange(at, (at + 1).min(FORMS.len() - 1), Ordering::Relaxed, Ordering::Relaxed);
        self.get() != Some(tried)
    }
}

/// Whether an origin takes a checksum that follows a part. Many servers of S3 do not, and each says so in its
/// own way, so one part is tried alone.
#[derive(Debug, Default)]
pub(super) struct Trailers(AtomicU8);

const UNTRIED: u8 = 0;
const TRIED: u8 = 1;
const TAKEN: u8 = 2;
const REFUSED: u8 = 3;

/// A part whose checksum follows it.
#[derive(Debug)]
pub(crate) struct TrailerTrial<'a> {
    trailers: &'a Trailers,
    /// It is not known yet whether the origin takes one.
    pub(crate) is_first: bool,
}

impl Trailers {
    /// Nothing where the origin takes none, or another part is being tried.
    pub(super) fn begin(&self) -> Option<TrailerTrial<'_>> {
        let trial = |is_first| TrailerTrial { trailers: self, is_first };
        match self.0.compare_exchange(UNTRIED, TRIED, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Some(trial(true)),
            Err(known) => (known == TAKEN).then(|| trial(false)),
        }
    }
}

impl TrailerTrial<'_> {
    /// The origin has stated the checksum of the part: it took what was sent as it was meant.
    pub(crate) fn on_taken(&self) {
        let _ = self.trailers.0.compare_exchange(TRIED, TAKEN, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// No other part is sent in this way.
    pub(crate) fn on_refused(&self) {
        self.trailers.0.store(REFUSED, Ordering::Relaxed);
    }
}

impl Drop for TrailerTrial<'_> {
    fn drop(&mut self) {
        if self.is_first {
            // The upload was stopped before anything was learnt.
            let _ = self.trailers.0.compare_exchange(TRIED, UNTRIED, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_form_is_not_tried_again() {
        let form = UploadChecksum::default();
        let (first, second) = (ChecksumForm::Crc(Algorithm::Crc64Nvme), ChecksumForm::Crc(Algorithm::Crc32c));
        assert_eq!(form.get(), Some(first));
        assert!(form.on_refused(first));
        assert_eq!(form.get(), Some(second));
        assert!(form.on_refused(first), "another upload refused before");
        assert_eq!(form.get(), Some(second));
        assert!(form.on_refused(second));
        assert_eq!(form.get(), Some(ChecksumForm::Md5));
        assert!(form.on_refused(ChecksumForm::Md5));
        assert_eq!(form.get(), None);
    }

    #[test]
    fn one_part_is_tried_before_the_others() {
        let trailers = Trailers::default();
        let first = trailers.begin().unwrap();
        assert!(first.is_first && trailers.begin().is_none());
        drop(first);
        let again = trailers.begin().unwrap();
        again.on_taken();
        drop(again);
        let other = trailers.begin().unwrap();
        assert!(!other.is_first && trailers.begin().is_some());
        other.on_refused();
        drop(other);
        assert!(trailers.begin().is_none());
    }
}
