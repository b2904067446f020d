//! Checksums, ETag and parts of an object that was written through the origin.

use std::sync::Arc;

use flatout_wire::checksum::Algorithm::Crc64Nvme;
use s3s::crypto::{Checksum as _, Md5};

use crate::crcs::{Crcs, crc_of_etag, etag_of_crc};
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
            (None, _) => etag_of_crc(crcs.nvme, bytes, blobs.len()),
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

/// The ETag of an object that is made of parts with these ETags. None where that cannot be told: a part has
/// none, or some are MD5s and some are not.
pub(crate) fn etag_of_named<'a>(etags: impl Iterator<Item = Option<&'a str>> + Clone) -> Option<String> {
    let md5s: Option<Vec<Vec<u8>>> = etags.clone().map(|etag| Version::md5_of(etag?)).collect();
    if let Some(md5s) = md5s {
        return Some(etag_of_parts(&md5s));
    }
    let (crc, bytes, count) = etags.into_iter().try_fold((0, 0, 0), |(crc, bytes, count), etag| {
        let (part_crc, part_bytes) = crc_of_etag(etag?)?;
        Some((Crc64Nvme.combine(crc, part_crc, part_bytes), bytes + part_bytes, count + 1))
    })?;
    Some(etag_of_crc(crc, bytes, count))
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

    #[test]
    fn parts_without_md5_make_the_etag_of_their_object() {
        let part = |text: &str| {
            let mut draft = Draft::new(BlobPlace::Nowhere);
            draft.write(text.as_bytes()).unwrap();
            draft.finish()
        };
        let parts = [part("1234"), part("56789")];
        let whole = Version::of(&[&parts[0], &parts[1]], ObjectKind::Multipart, Provenance::default());
        let etags = parts.each_ref().map(Blob::etag);
        let named = |etags: [&str; 2]| etag_of_named(etags.map(Some).into_iter());
        assert_eq!(named([&etags[0], &etags[1]]).unwrap(), whole.etag);
        assert_ne!(named([&etags[1], &etags[0]]).unwrap(), whole.etag);
        assert_eq!(named([&etags[0], "25f9e794323b453885f5181f1b624d0b"]), None);
        assert_eq!(named([&etags[0], &whole.etag]), None);
        assert_eq!(etag_of_named([None].into_iter()), None);
    }

    const ETAG_OF_TWO: &str = "d8399932ce6023ac3365f50fbbcde132-2";
    const ETAG_OF_ONE: &str = "5927c5d64d94a5786f90003aa26d0159-1";
}
