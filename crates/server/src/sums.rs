//! The checksums that S3 knows: computed while bytes come, compared with what an upload states of itself, and kept.

use flatout_wire::checksum::Algorithm as Crc;
use hyper::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Md5, Sha1, Sha256};
use s3s::{S3Error, S3Result, s3_error};

use crate::draft::Piece;

/// A checksum that S3 keeps of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

/// What a checksum was computed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Span {
    /// The bytes of the object.
    Whole,
    /// The checksums of its parts, one after the other.
    Parts,
}

/// A checksum of an object, in base64; of a composite one with the number of parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    pub algorithm: Algorithm,
    pub span: Span,
    pub value: String,
}

impl Algorithm {
    pub(crate) const ALL: [Algorithm; 5] =
        [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme, Algorithm::Sha1, Algorithm::Sha256];

    /// As S3 names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "CRC32",
            Algorithm::Crc32c => "CRC32C",
            Algorithm::Crc64Nvme => "CRC64NVME",
            Algorithm::Sha1 => "SHA1",
            Algorithm::Sha256 => "SHA256",
        }
    }

    /// The inverse of [`Algorithm::name`], in letters of either case.
    pub(crate) fn named(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    pub(crate) fn header(self) -> &'static str {
        match self {
            Algorithm::Crc32 => "x-amz-checksum-crc32",
            Algorithm::Crc32c => "x-amz-checksum-crc32c",
            Algorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Algorithm::Sha1 => "x-amz-checksum-sha1",
            Algorithm::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// Of what a multipart upload has it when it does not say.
    pub(crate) fn usual_span(self) -> Span {
        if self == Algorithm::Crc64Nvme { Span::Whole } else { Span::Parts }
    }

    /// Whether a multipart upload may have it of this.
    pub(crate) fn allows(self, span: Span) -> bool {
        match self {
            Algorithm::Crc32 | Algorithm::Crc32c => true,
            Algorithm::Crc64Nvme => span == Span::Whole,
            Algorithm::Sha1 | Algorithm::Sha256 => span == Span::Parts,
        }
    }

    fn crc(self) -> Option<Crc> {
        match self {
            Algorithm::Crc32 => Some(Crc::Crc32),
            Algorithm::Crc32c => Some(Crc::Crc32c),
            Algorithm::Crc64Nvme => Some(Crc::Crc64Nvme),
            Algorithm::Sha1 | Algorithm::Sha256 => None,
        }
    }

    fn of(self, bytes: &[u8]) -> String {
        let encode = |digest: &[u8]| base64_simd::STANDARD.encode_to_string(digest);
        match self {
            Algorithm::Sha1 => encode(&Sha1::checksum(bytes)),
            Algorithm::Sha256 => encode(&Sha256::checksum(bytes)),
            Algorithm::Crc32 => Crc::Crc32.encode(Crc::Crc32.of(bytes)),
            Algorithm::Crc32c => Crc::Crc32c.encode(Crc::Crc32c.of(bytes)),
            Algorithm::Crc64Nvme => Crc::Crc64Nvme.encode(Crc::Crc64Nvme.of(bytes)),
        }
    }

    /// The checksum of an object made of these pieces; None where one of them has none.
    pub(crate) fn join(self, span: Span, pieces: &[&Piece]) -> Option<Sum> {
        let value = match span {
            Span::Parts => {
                let decoded = pieces
                    .iter()
                    .map(|piece| base64_simd::STANDARD.decode_to_vec(piece.sum(self)?.as_bytes()).ok());
                let digests: Vec<Vec<u8>> = decoded.collect::<Option<_>>()?;
                format!("{}-{}", self.of(&digests.concat()), pieces.len())
            }
            Span::Whole => {
                let crc = self.crc()?;
                let joined = pieces.iter().try_fold(crc.of(&[]), |whole, piece| {
                    Some(crc.combine(whole, crc.decode(&piece.sum(self)?)?, piece.bytes))
                });
                crc.encode(joined?)
            }
        };
        Some(Sum { algorithm: self, span, value })
    }
}

impl Span {
    /// As S3 names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Span::Whole => "FULL_OBJECT",
            Span::Parts => "COMPOSITE",
        }
    }

    /// The inverse of [`Span::name`].
    pub(crate) fn named(name: &str) -> Option<Span> {
        [Span::Whole, Span::Parts].into_iter().find(|span| span.name() == name)
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
    pub(crate) fn want(&mut self, algorithm: Algorithm) {
        match algorithm {
            Algorithm::Crc32 => self.hasher.crc32 = Some(Crc32::new()),
            Algorithm::Crc32c => self.hasher.crc32c = Some(Crc32c::new()),
            Algorithm::Sha1 => self.hasher.sha1 = Some(Sha1::new()),
            Algorithm::Sha256 => self.hasher.sha256 = Some(Sha256::new()),
            Algorithm::Crc64Nvme => {}
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
    pub(crate) fn finish(self) -> (Option<[u8; 16]>, Vec<(Algorithm, String)>) {
        let computed = self.hasher.finalize();
        let sums = [
            (Algorithm::Crc32, computed.checksum_crc32),
            (Algorithm::Crc32c, computed.checksum_crc32c),
            (Algorithm::Sha1, computed.checksum_sha1),
            (Algorithm::Sha256, computed.checksum_sha256),
        ];
        let sums = sums.into_iter().filter_map(|(algorithm, value)| Some((algorithm, value?)));
        (self.md5.map(Md5::finalize), sums.collect())
    }
}

/// What an upload states of its bytes, in headers, or in trailers that it announces.
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

    fn all(&self) -> impl Iterator<Item = Algorithm> {
        let is_stated =
            |name: &str| self.headers.contains_key(name) || self.announced.iter().any(|other| other == name);
        Algorithm::ALL.into_iter().filter(move |algorithm| is_stated(algorithm.header()))
    }

    /// The one that it states.
    pub(crate) fn algorithm(&self) -> Option<Algorithm> {
        self.all().next()
    }

    pub(crate) fn has_md5(&self) -> bool {
        self.headers.contains_key("content-md5")
    }

    /// `BadDigest` when a stated checksum is not that of the bytes.
    pub(crate) fn check(&self, piece: &Piece, trailers: Option<&HeaderMap>) -> S3Result<()> {
        if let Some(algorithm) = self.algorithm() {
            let name = algorithm.header();
            let trailer = trailers.and_then(|trailers| trailers.get(name));
            if trailer.is_none() && self.announced.iter().any(|announced| announced == name) {
                return Err(s3_error!(InvalidRequest, "the trailer {name} was announced and did not come"));
            }
            let computed = piece.sum(algorithm).unwrap_or_default();
            for stated in [self.headers.get(name), trailer].into_iter().flatten() {
                if stated.as_bytes() != computed.as_bytes() {
                    return Err(bad_digest(name));
                }
            }
        }
        let md5 = piece.md5.map(|md5| base64_simd::STANDARD.encode_to_string(md5)).unwrap_or_default();
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
    use crate::draft::{Draft, Place, Segments};

    /// Checksums of "123456789": the check values of the CRC catalogue, in base64, and `openssl dgst`.
    const RIGHT: [(&str, &str); 6] = [
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
        ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
    ];

    fn piece(bytes: &[u8]) -> Piece {
        let mut draft = Draft::new(Place::Memory(Segments::default()));
        Algorithm::ALL.into_iter().for_each(|algorithm| draft.want(algorithm));
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
            Stated::of(&map(headers)).and_then(|stated| stated.check(&piece(b"123456789"), trailer.as_ref()));
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
        let (whole, halves) = (piece(b"123456789"), [piece(b"1234"), piece(b"56789")]);
        let halves: Vec<&Piece> = halves.iter().collect();
        for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
            let joined = algorithm.join(Span::Whole, &halves).unwrap();
            assert_eq!(Some(joined.value.as_str()), whole.sum(algorithm).as_deref(), "{algorithm:?}");
        }
        // printf 1234 | sha256sum, and so on: the digests one after the other, and their digest.
        let composite = Algorithm::Sha256.join(Span::Parts, &halves).unwrap();
        let digests = [Sha256::checksum(b"1234"), Sha256::checksum(b"56789")].concat();
        let expected = base64_simd::STANDARD.encode_to_string(Sha256::checksum(&digests));
        assert_eq!(composite.value, format!("{expected}-2"));
        assert_eq!(Algorithm::Sha256.join(Span::Whole, &halves), None);
    }
}
