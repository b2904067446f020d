//! The checksums that an upload states of itself, in headers or trailers, computed and compared.

use flatout_wire::checksum::Algorithm;
use hyper::HeaderMap;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Md5, Sha1, Sha256};
use s3s::dto::Checksum;
use s3s::{S3Error, S3Result, s3_error};

const HEADERS: [&str; 5] = [
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];

/// Runs beside the body of one upload.
pub(crate) struct Sums {
    /// CRC64NVME is not here: every draft computes it anyway.
    hasher: ChecksumHasher,
    md5: Option<Md5>,
    stated: HeaderMap,
    /// Names of checksums that come after the body.
    announced: Vec<String>,
}

impl Sums {
    /// Reads from the request's headers what is stated and what will be.
    pub(crate) fn new(headers: &HeaderMap) -> Sums {
        let announced = headers.get_all("x-amz-trailer").iter().filter_map(|value| value.to_str().ok());
        let announced: Vec<String> = announced
            .flat_map(|names| names.split(','))
            .map(|name| name.trim().to_ascii_lowercase())
            .collect();
        let wanted = |name: &str| headers.contains_key(name) || announced.iter().any(|other| other == name);
        let hasher = ChecksumHasher {
            crc32: wanted(HEADERS[0]).then(Crc32::new),
            crc32c: wanted(HEADERS[1]).then(Crc32c::new),
            crc64nvme: None,
            sha1: wanted(HEADERS[3]).then(Sha1::new),
            sha256: wanted(HEADERS[4]).then(Sha256::new),
        };
        let md5 = headers.contains_key("content-md5").then(Md5::new);
        Sums { hasher, md5, stated: headers.clone(), announced }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
    }

    /// `BadDigest` when a stated checksum is not that of the bytes; else all that were computed.
    pub(crate) fn finish(self, crc64nvme: u64, trailers: Option<HeaderMap>) -> S3Result<Checksum> {
        let mut computed = self.hasher.finalize();
        computed.checksum_crc64nvme = Some(Algorithm::Crc64Nvme.encode(crc64nvme));
        for (name, value) in HEADERS.into_iter().zip(values(&computed)) {
            let trailer = trailers.as_ref().and_then(|trailers| trailers.get(name));
            if trailer.is_none() && self.announced.iter().any(|announced| announced == name) {
                return Err(s3_error!(InvalidRequest, "the trailer {name} was announced and did not come"));
            }
            for stated in [self.stated.get(name), trailer].into_iter().flatten() {
                if Some(stated.as_bytes()) != value.map(str::as_bytes) {
                    return Err(bad_digest(name));
                }
            }
        }
        if let (Some(md5), Some(stated)) = (self.md5, self.stated.get("content-md5"))
            && base64_simd::STANDARD.encode_to_string(md5.finalize()).as_bytes() != stated.as_bytes()
        {
            return Err(bad_digest("content-md5"));
        }
        Ok(computed)
    }
}

/// In the order of [`HEADERS`].
pub(crate) fn values(sums: &Checksum) -> [Option<&str>; 5] {
    [
        sums.checksum_crc32.as_deref(),
        sums.checksum_crc32c.as_deref(),
        sums.checksum_crc64nvme.as_deref(),
        sums.checksum_sha1.as_deref(),
        sums.checksum_sha256.as_deref(),
    ]
}

pub(crate) fn bad_digest(name: &str) -> S3Error {
    s3_error!(BadDigest, "the {name} that was stated is not that of the bytes that came")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checksums of "123456789": the check values of the CRC catalogue, in base64, and `openssl dgst`.
    const RIGHT: [(&str, &str); 6] = [
        ("x-amz-checksum-crc32", "y/Q5Jg=="),
        ("x-amz-checksum-crc32c", "4waSgw=="),
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
        ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw=="),
    ];

    fn check(header: (&str, &str), trailer: Option<(&str, &str)>, good: bool) {
        let map = |(name, value): (&str, &str)| {
            let name = hyper::header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            HeaderMap::from_iter([(name, value.parse().unwrap())])
        };
        let mut sums = Sums::new(&map(header));
        sums.update(b"1234");
        sums.update(b"56789");
        let finished = sums.finish(Algorithm::Crc64Nvme.of(b"123456789"), trailer.map(map));
        assert_eq!(finished.is_ok(), good, "{header:?} {trailer:?} {finished:?}");
    }

    #[test]
    fn stated_checksums_are_compared() {
        for (name, right) in RIGHT {
            check((name, right), None, true);
            check((name, "AAAA"), None, false);
        }
        for (name, right) in &RIGHT[..5] {
            check(("x-amz-trailer", name), Some((name, right)), true);
            check(("x-amz-trailer", name), Some((name, "AAAA")), false);
            check(("x-amz-trailer", name), None, false);
        }
    }
}
