//! Checksums, ETag and parts of an object that was written through the origin.

use std::sync::Arc;

use s3s::crypto::{Checksum as _, Md5};

use crate::crcs::Crcs;
use crate::draft::{self, Blob, hex};
use crate::object::ObjectKind;
use crate::sums::Sum;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Version {
    pub etag: String,
    pub crcs: Crcs,
    pub provenance: Arc<Provenance>,
}

/// How an object was uploaded, as S3 reports it on request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Provenance {
    /// Where its upload chose another checksum than CRC64NVME, which is known of all.
    pub sum: Option<Sum>,
    /// Of a multipart upload, in order.
    pub parts: Vec<Part>,
    /// The id of that upload: a second completion gets the same response.
    pub upload: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub bytes: u64,
    /// By the algorithm of the object's.
    pub sum: Option<String>,
}

impl Version {
    pub(crate) fn of(blobs: &[&Blob], kind: ObjectKind, provenance: Provenance) -> Version {
        let (bytes, crcs) = draft::total(blobs.iter().copied());
        let md5s: Option<Vec<[u8; 16]>> = blobs.iter().map(|blob| blob.md5).collect();
        let etag = match (md5s.as_deref(), kind) {
            // Nobody will read it. The hyphen says that it is no MD5.
            (None, _) => format!("{:016x}{bytes:x}-{}", crcs.nvme, blobs.len()),
            (Some([md5]), ObjectKind::Normal | ObjectKind::Appendable) => hex(md5),
            (Some(md5s), _) => etag_of_parts(md5s),
        };
        Version { etag, crcs, provenance: Arc::new(provenance) }
    }

    /// The MD5 of the object, where its ETag is that.
    pub(crate) fn md5_of(etag: &str) -> Option<Vec<u8>> {
        let digits = (etag.len() == 32).then_some(etag.as_bytes())?;
        let pairs = digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok());
        pairs.collect()
    }
}

/// As S3 makes it: the MD5 of the MD5s of the parts, and their number.
pub(crate) fn etag_of_parts<T: AsRef<[u8]>>(md5s: &[T]) -> String {
    let mut md5 = Md5::new();
    md5s.iter().for_each(|one| md5.update(one.as_ref()));
    format!("{}-{}", hex(&md5.finalize()), md5s.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::{BlobPlace, Draft, Segments};

    fn check(blobs: &[&str], kind: ObjectKind, etag: &str) {
        let blobs: Vec<Blob> = blobs
            .iter()
            .map(|text| {
                let mut draft = Draft::new(BlobPlace::Memory(Segments::default()));
                draft.write(text.as_bytes()).unwrap();
                draft.finish()
            })
            .collect();
        let blobs: Vec<&Blob> = blobs.iter().collect();
        assert_eq!(Version::of(&blobs, kind, Provenance::default()).etag, etag);
    }

    #[test]
    fn etags_are_those_of_s3() {
        // printf 123456789 | md5sum; { printf 1234 | md5sum; printf 56789 | md5sum; } | xxd -r -p | md5sum
        check(&["123456789"], ObjectKind::Normal, "25f9e794323b453885f5181f1b624d0b");
        check(&["1234", "56789"], ObjectKind::Multipart, ETAG_OF_TWO);
        check(&["123456789"], ObjectKind::Multipart, ETAG_OF_ONE);
        assert_eq!(Version::md5_of(ETAG_OF_TWO), None);
        assert_eq!(Version::md5_of("00ff00ff00ff00ff00ff00ff00ff00ff").unwrap(), [0, 255].repeat(8));
    }

    const ETAG_OF_TWO: &str = "d8399932ce6023ac3365f50fbbcde132-2";
    const ETAG_OF_ONE: &str = "5927c5d64d94a5786f90003aa26d0159-1";
}
