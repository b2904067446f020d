//! Which checksums of uploads an origin accepts, and whether in a trailer: learnt from its answers.

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

    /// The origin refused a request without a checksum, too: no checksum was the reason.
    pub(super) fn on_blameless(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// Whether an origin takes the checksum of a part as a trailer. Many S3 servers do not, and each says so in
/// its own way: one part is the trial, and others go without until its end is known.
#[derive(Debug, Default)]
pub(super) struct Trailers {
    state: AtomicU8,
    /// Trials that ended with a broken connection or a failure of the origin, not with a refusal.
    unclear: AtomicU8,
}

/// After this many unclear ends, trailers count as refused.
const UNCLEAR_MOST: u8 = 3;

const UNTRIED: u8 = 0;
const TRYING: u8 = 1;
const TAKEN: u8 = 2;
const REFUSED: u8 = 3;

/// The use of a trailer for one part.
#[derive(Debug)]
pub(crate) struct TrailerUse<'a> {
    trailers: &'a Trailers,
    /// It is not known yet whether the origin takes trailers.
    pub(crate) is_trial: bool,
}

impl Trailers {
    /// `None` if the origin takes no trailers, or another part is the trial.
    pub(super) fn begin(&self) -> Option<TrailerUse<'_>> {
        let of = |is_trial| TrailerUse { trailers: self, is_trial };
        match self.state.compare_exchange(UNTRIED, TRYING, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Some(of(true)),
            Err(known) => (known == TAKEN).then(|| of(false)),
        }
    }
}

impl TrailerUse<'_> {
    /// The origin has stated the checksum of the part: it took what was sent as it was meant.
    pub(crate) fn on_taken(&self) {
        let _ = self.trailers.state.compare_exchange(TRYING, TAKEN, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The origin took the part only without one. `is_clear`: it had refused it with the trailer. Otherwise
    /// the connection broke, or the origin failed, and another part is tried.
    pub(crate) fn on_refused(&self, is_clear: bool) {
        let unclear = || self.trailers.unclear.fetch_add(1, Ordering::Relaxed) + 1;
        if is_clear || unclear() >= UNCLEAR_MOST {
            self.trailers.state.store(REFUSED, Ordering::Relaxed);
        }
    }
}

impl Drop for TrailerUse<'_> {
    fn drop(&mut self) {
        if self.is_trial {
            // Nothing was learnt.
            let _ =
                self.trailers.state.compare_exchange(TRYING, UNTRIED, Ordering::Relaxed, Ordering::Relaxed);
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
        form.on_blameless();
        assert_eq!(form.get(), Some(first), "it was something else");
    }

    #[test]
    fn one_part_is_tried_before_the_others() {
        let trailers = Trailers::default();
        let first = trailers.begin().unwrap();
        assert!(first.is_trial && trailers.begin().is_none());
        drop(first);
        let again = trailers.begin().unwrap();
        again.on_taken();
        drop(again);
        let other = trailers.begin().unwrap();
        assert!(!other.is_trial && trailers.begin().is_some());
        other.on_refused(true);
        drop(other);
        assert!(trailers.begin().is_none());
    }

    #[test]
    fn an_accident_is_no_refusal_and_three_are_one() {
        let trailers = Trailers::default();
        for _ in 0..UNCLEAR_MOST {
            trailers.begin().unwrap().on_refused(false);
        }
        assert!(trailers.begin().is_none());
    }
}
