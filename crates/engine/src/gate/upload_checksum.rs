//! In which form an origin takes the checksum of what is sent: found out at its first refusal.

use std::sync::atomic::{AtomicUsize, Ordering};

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
}
