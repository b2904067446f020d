//! S3's checksums: computed while bytes arrive, compared with those that the upload states, and stored.

use flatout_wire::checksum::Algorithm as Crc;
use hyper::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Md5, Sha1, Sha256};
use s3s::{S3Error, S3Result, s3_error};

use crate::draft::Blob;

/// A checksum that S3 keeps of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SumAlgorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

/// The bytes that a checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChecksumScope {
    /// The bytes of the object.
    Whole,
    /// The checksums of its parts, one after the other.
    Parts,
}

/// A checksum of an object, in base64; of a composite one with the number of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub algorithm: SumAlgorithm,
    pub scope: ChecksumScope,
    pub value: String,
}

impl SumAlgorithm {
    pub(crate) const ALL: [SumAlgorithm; 5] = [
        SumAlgorithm::Crc32,
        SumAlgorithm::Crc32c,
        SumAlgorithm::Crc64Nvme,
        SumAlgorithm::Sha1,
        SumAlgorithm::Sha256,
    ];

    /// As S3 names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SumAlgorithm::Crc32 => "CRC32",
            SumAlgorithm::Crc32c => "CRC32C",
            SumAlgorithm::Crc64Nvme => "CRC64NVME",
            SumAlgorithm::Sha1 => "SHA1",
            SumAlgorithm::Sha256 => "SHA256",
        }
    }

    /// The inverse of [`SumAlgorithm::name`], in letters of either case.
    pub(crate) fn named(name: &str) -> Option<SumAlgorithm> {
        SumAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    pub(crate) fn header(self) -> &'static str {
        match self {
            SumAlgorithm::Crc32 => "x-amz-checksum-crc32",
            SumAlgorithm::Crc32c => "x-amz-checksum-crc32c",
            SumAlgorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
            SumAlgorithm::Sha1 => "x-amz-checksum-sha1",
            SumAlgorithm::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// The scope that a multipart upload gets when it states none.
    pub(crate) fn usual_scope(self) -> ChecksumScope {
        if self == SumAlgorithm::Crc64Nvme { ChecksumScope::Whole } else { ChecksumScope::Parts }
    }

    /// Whether a multipart upload may have it of this.
    pub(crate) fn allows(self, scope: ChecksumScope) -> bool {
        match self {
            SumAlgorithm::Crc32 | SumAlgorithm::Crc32c => true,
            SumAlgorithm::Crc64Nvme => scope == ChecksumScope::Whole,
            SumAlgorithm::Sha1 | SumAlgorithm::Sha256 => scope == ChecksumScope::Parts,
        }
    }

    fn crc(self) -> Option<Crc> {
        match self {
            SumAlgorithm::Crc32 => Some(Crc::Crc32),
            SumAlgorithm::Crc32c => Some(Crc::Crc32c),
            SumAlgorithm::Crc64Nvme => Some(Crc::Crc64Nvme),
            SumAlgorithm::Sha1 | SumAlgorithm::Sha256 => None,
        }
    }

    fn of(self, bytes: &[u8]) -> String {
        let encode = |digest: &[u8]| base64_simd::STANDARD.encode_to_string(digest);
        match self {
            SumAlgorithm::Sha1 => encode(&Sha1::checksum(bytes)),
            SumAlgorithm::Sha256 => encode(&Sha256::checksum(bytes)),
            SumAlgorithm::Crc32 => Crc::Crc32.encode(Crc::Crc32.of(bytes)),
            SumAlgorithm::Crc32c => Crc::Crc32c.encode(Crc::Crc32c.of(bytes)),
            SumAlgorithm::Crc64Nvme => Crc::Crc64Nvme.encode(Crc::Crc64Nvme.of(bytes)),
        }
    }

    /// The checksum of an object made of these blobs; None where one of them has none.
    pub(crate) fn join(self, scope: ChecksumScope, blobs: &[&Blob]) -> Option<Sum> {
        let value = match scope {
            ChecksumScope::Parts => {
                let decoded = blobs
                    .iter()
                    .map(|blob| base64_simd::STANDARD.decode_to_vec(blob.sum(self)?.as_bytes()).ok());
                let digests: Vec<Vec<u8>> = decoded.collect::<Option<_>>()?;
                format!("{}-{}", self.of(&digests.concat()), blobs.len())
            }
            ChecksumScope::Whole => {
                let crc = self.crc()?;
                let joined = blobs.iter().try_fold(crc.of(&[]), |whole, blob| {
                    Some(crc.combine(whole, crc.decode(&blob.sum(self)?)?, blob.bytes))
                });
                crc.encode(joined?)
            }
        };
        Some(Sum { algorithm: self, scope, value })
    }
}

impl ChecksumScope {
    /// As S3 names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ChecksumScope::Whole => "FULL_OBJECT",
            ChecksumScope::Parts => "COMPOSITE",
        }
    }

    /// The inverse of [`ChecksumScope::name`].
    pub(crate) fn named(name: &str) -> Option<ChecksumScope> {
        [ChecksumScope::Whole, ChecksumScope::Parts].into_iter().find(|scope| scope.name() == name)
    }
}

/// The digests of bytes while they come. CRC64NVME is not here: every draft computes it anyway.
pub(crate) struct Digests {
    hasher: ChecksumHasher,
    md5: Option<Md5>,
}

impl Digests {
    pub(crate) fn new(md5: bool) -> Digests {
        Digests { hasher: ChecksumHasher::default(), md5: md5.then(Md5::new) }
    }

    /// Before the first byte.
    pub(crate) fn want(&mut self, algorithm: SumAlgorithm) {
        match algorithm {
            SumAlgorithm::Crc32 => self.hasher.crc32 = Some(Crc32::new()),
            SumAlgorithm::Crc32c => self.hasher.crc32c = Some(Crc32c::new()),
            SumAlgorithm::Sha1 => self.hasher.sha1 = Some(Sha1::new()),
            SumAlgorithm::Sha256 => self.hasher.sha256 = Some(Sha256::new()),
            SumAlgorithm::Crc64Nvme => {}
        }
    }

    /// Before the first byte.
    pub(crate) fn want_md5(&mut self) {
        self.md5.get_or_insert_with(Md5::new);
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
    }

    /// The MD5, and every checksum that was wanted.
    pub(crate) fn finish(self) -> (Option<[u8; 16]>, Vec<(SumAlgorithm, String)>) {
        let computed = self.hasher.finalize();
        let sums = [
            (SumAlgorithm::Crc32, computed.checksum_crc32),
            (SumAlgorithm::Crc32c, computed.checksum_crc32c),
            (SumAlgorithm::Sha1, computed.checksum_sha1),
            (SumAlgorithm::Sha256, computed.checksum_sha256),
        ];
        let sums = sums.into_iter().filter_map(|(algorithm, value)| Some((algorithm, value?)));
        (self.md5.map(Md5::finalize), sums.collect())
    }
}

/// Checksums that an upload states, in headers or in trailers that it announces.
pub(crate) struct Stated {
    headers: HeaderMap,
    /// Names of checksums that come after the body.
    announced: Vec<String>,
}

impl Stated {
    /// `InvalidRequest` where it states more than one, `InvalidDigest` where its MD5 is none.
    pub(crate) fn of(headers: &HeaderMap) -> S3Result<Stated> {
        let announced = headers.get_all("x-amz-trailer").iter().filter_map(|value| value.to_str().ok());
        let announced =
            announced.flat_map(|names| names.split(',')).map(|name| name.trim().to_ascii_lowercase());
        let stated = Stated { headers: headers.clone(), announced: announced.collect() };
        if stated.all().count() > 1 {
            return Err(s3_error!(InvalidRequest, "an upload states one checksum, and this one several"));
        }
        match headers.get("content-md5").map(|md5| base64_simd::STANDARD.decode_to_vec(md5.as_bytes())) {
            None => Ok(stated),
            Some(Ok(md5)) if md5.len() == 16 => Ok(stated),
            Some(_) => Err(s3_error!(InvalidDigest, "the Content-MD5 is not 16 bytes in base64")),
        }
    }

    fn all(&self) -> impl Iterator<Item = SumAlgorithm> {
        let is_stated =
            |name: &str| self.headers.contains_key(name) || self.announced.iter().any(|other| other == name);
        SumAlgorithm::ALL.into_iter().filter(move |algorithm| is_stated(algorithm.header()))
    }

    /// The one that it states.
    pub(crate) fn algorithm(&self) -> Option<SumAlgorithm> {
        self.all().next()
    }

    pub(crate) fn has_md5(&self) -> bool {
        self.headers.contains_key("content-md5")
    }

    /// `BadDigest` when a stated checksum is not that of the bytes.
    pub(crate) fn check(&self, blob: &Blob, trailers: Option<&HeaderMap>) -> S3Result<()> {
        if let Some(algorithm) = self.algorithm() {
            let name = algorithm.header();
            let trailer = trailers.and_then(|trailers| trailers.get(name));
            if trailer.is_none() && self.announced.iter().any(|announced| announced == name) {
                return Err(s3_error!(InvalidRequest, "the trailer {name} was announced and did not come"));
            }
            let computed = blob.sum(algorithm).unwrap_or_default();
            for stated in [self.headers.get(name), trailer].into_iter().flatten() {
                if stated.as_bytes() != computed.as_bytes() {
                    return Err(bad_digest(name));
                }
            }
        }
        let md5 = blob.md5.map(|md5| base64_simd::STANDARD.encode_to_string(md5)).unwrap_or_default();
        match self.headers.get("content-md5") {
            Some(stated) if stated.as_bytes() != md5.as_bytes() => Err(bad_digest("content-md5")),
            _ => Ok(()),
        }
    }
}

pub(crate) fn bad_digest(name: &str) -> S3Error {
    s3_error!(BadDigest, "the {name} that was stated is not that of the bytes that came")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draft::{BlobPlace, Draft, Segments};

    /// Checksums of "123456789": the check values of the CRC catalogue, in base64, and `openssl dgst`.
    const RIGHT: [(&str, &str); 6] = [
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
        ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
    ];

    fn blob(bytes: &[u8]) -> Blob {
        let mut draft = Draft::new(BlobPlace::Memory(Segments::default()));
        SumAlgorithm::ALL.into_iter().for_each(|algorithm| draft.want(algorithm));
        bytes.chunks(4).for_each(|four| draft.write(four).unwrap());
        draft.finish()
    }

    fn check(headers: &[(&str, &str)], trailer: Option<(&str, &str)>, code: &str) {
        let map = |pairs: &[(&str, &str)]| {
            let named = |name: &str| hyper::header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            HeaderMap::from_iter(pairs.iter().map(|(name, value)| (named(name), value.parse().unwrap())))
        };
        let trailer = trailer.map(|pair| map(&[pair]));
        let checked =
            Stated::of(&map(headers)).and_then(|stated| stated.check(&blob(b"123456789"), trailer.as_ref()));
        let found = checked.as_ref().err().map(|error| error.code().as_str()).unwrap_or_default();
        assert_eq!(found, code, "{headers:?} {trailer:?}");
    }

    #[test]
    fn stated_checksums_are_compared() {
        for (name, right) in RIGHT {
            check(&[(name, right)], None, "");
            check(&[(name, "AAAAAAAAAAAAAAAAAAAAAA==")], None, "BadDigest");
        }
        for (name, right) in &RIGHT[..5] {
            let announced = ("x-amz-trailer", *name);
            check(&[announced], Some((name, right)), "");
            check(&[announced], Some((name, "AAAA")), "BadDigest");
            check(&[announced], None, "InvalidRequest");
        }
        check(&RIGHT[..2], None, "InvalidRequest");
        for none in ["", "AAAA", "not base64"] {
            check(&[("content-md5", none)], None, "InvalidDigest");
        }
    }

    #[test]
    fn checksums_of_parts_join() {
        let (whole, halves) = (blob(b"123456789"), [blob(b"1234"), blob(b"56789")]);
        let halves: Vec<&Blob> = halves.iter().collect();
        for algorithm in [SumAlgorithm::Crc32, SumAlgorithm::Crc32c, SumAlgorithm::Crc64Nvme] {
            let joined = algorithm.join(ChecksumScope::Whole, &halves).unwrap();
            assert_eq!(Some(joined.value.as_str()), whole.sum(algorithm).as_deref(), "{algorithm:?}");
        }
        // printf 1234 | sha256sum, and so on: the digests one after the other, and their digest.
        let composite = SumAlgorithm::Sha256.join(ChecksumScope::Parts, &halves).unwrap();
        let digests = [Sha256::checksum(b"1234"), Sha256::checksum(b"56789")].concat();
        let expected = base64_simd::STANDARD.encode_to_string(Sha256::checksum(&digests));
        assert_eq!(composite.value, format!("{expected}-2"));
        assert_eq!(SumAlgorithm::Sha256.join(ChecksumScope::Whole, &halves), None);
    }
}
