//! The checksum of a body that is sent: a CRC, or its MD5 for servers that know no other.

use base64_simd::STANDARD as BASE64;
use md5::{Digest, Md5};

use crate::checksum::{Algorithm, Hasher};

/// How a body is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumForm {
    /// A CRC, in a header of its own.
    Crc(Algorithm),
    /// `Content-MD5` (RFC 1864), which servers of S3 have known from the first day. It costs ten times as
    /// much as a CRC.
    Md5,
}

/// The checksum of one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyChecksum {
    /// A CRC and its algorithm.
    Crc(Algorithm, u64),
    /// The MD5.
    Md5([u8; 16]),
}

/// A running checksum.
pub struct BodyHasher(Running);

enum Running {
    Crc(Algorithm, Box<Hasher>),
    Md5(Md5),
}

impl ChecksumForm {
    /// The name in reports and journals.
    pub fn name(self) -> &'static str {
        match self {
            ChecksumForm::Crc(algorithm) => algorithm.name(),
            ChecksumForm::Md5 => "md5",
        }
    }

    /// The inverse of [`ChecksumForm::name`].
    pub fn named(name: &str) -> Option<ChecksumForm> {
        let crcs = Algorithm::ALL.into_iter().map(ChecksumForm::Crc);
        crcs.chain([ChecksumForm::Md5]).find(|form| form.name() == name)
    }

    /// The CRC, where it is one.
    pub fn crc(self) -> Option<Algorithm> {
        match self {
            ChecksumForm::Crc(algorithm) => Some(algorithm),
            ChecksumForm::Md5 => None,
        }
    }

    /// Begins a checksum.
    pub fn hasher(self) -> BodyHasher {
        BodyHasher(match self {
            ChecksumForm::Crc(algorithm) => Running::Crc(algorithm, Box::new(Hasher::new(algorithm))),
            ChecksumForm::Md5 => Running::Md5(Md5::new()),
        })
    }
}

impl BodyHasher {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Running::Crc(_, hasher) => hasher.update(bytes),
            Running::Md5(hasher) => hasher.update(bytes),
        }
    }

    /// The checksum of all bytes.
    pub fn finish(self) -> BodyChecksum {
        match self.0 {
            Running::Crc(algorithm, hasher) => BodyChecksum::Crc(algorithm, hasher.value()),
            Running::Md5(hasher) => BodyChecksum::Md5(hasher.finalize().into()),
        }
    }
}

impl BodyChecksum {
    /// How it was hashed.
    pub fn form(self) -> ChecksumForm {
        match self {
            BodyChecksum::Crc(algorithm, _) => ChecksumForm::Crc(algorithm),
            BodyChecksum::Md5(_) => ChecksumForm::Md5,
        }
    }

    /// The CRC, where it is one.
    pub fn crc(self) -> Option<(Algorithm, u64)> {
        match self {
            BodyChecksum::Crc(algorithm, value) => Some((algorithm, value)),
            BodyChecksum::Md5(_) => None,
        }
    }

    /// The header of a request that states it.
    pub fn header(self) -> Option<(&'static str, String)> {
        match self {
            BodyChecksum::Crc(algorithm, value) => Some((algorithm.header()?, algorithm.encode(value))),
            BodyChecksum::Md5(sum) => Some(("content-md5", BASE64.encode_to_string(sum))),
        }
    }

    /// Whether `etag` is the MD5 in hexadecimal, as that of an object or part is which was not encrypted by a
    /// key service. Another ETag says nothing.
    pub fn is_etag(self, etag: &str) -> bool {
        match self {
            BodyChecksum::Md5(_) => etag.trim_matches('"').eq_ignore_ascii_case(&self.digits()),
            BodyChecksum::Crc(..) => false,
        }
    }

    /// As a word of a journal: `crc64nvme:fedcba9876543210`.
    pub fn word(self) -> String {
        format!("{}:{}", self.form().name(), self.digits())
    }

    /// The inverse of [`BodyChecksum::word`].
    pub fn from_word(word: &str) -> Option<BodyChecksum> {
        let (name, digits) = word.split_once(':')?;
        Some(match ChecksumForm::named(name)? {
            ChecksumForm::Crc(algorithm) => {
                BodyChecksum::Crc(algorithm, u64::from_str_radix(digits, 16).ok()?)
            }
            ChecksumForm::Md5 => {
                let is_hex = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                let value = is_hex.then(|| u128::from_str_radix(digits, 16).ok())??;
                BodyChecksum::Md5(value.to_be_bytes())
            }
        })
    }

    fn digits(self) -> String {
        match self {
            BodyChecksum::Crc(_, value) => format!("{value:x}"),
            BodyChecksum::Md5(sum) => format!("{:032x}", u128::from_be_bytes(sum)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: ChecksumForm, bytes: &[u8]) -> BodyChecksum {
        let mut hasher = form.hasher();
        bytes.chunks(3).for_each(|piece| hasher.update(piece));
        hasher.finish()
    }

    /// RFC 1321, A.5; and the same digest by `openssl dgst -md5 -binary | base64`.
    #[test]
    fn md5_is_what_the_standards_say() {
        let sum = of(ChecksumForm::Md5, b"message digest");
        assert_eq!(sum.header(), Some(("content-md5", "+WtpfXy3k41SWi8xqvFh0A==".to_owned())));
        assert!(sum.is_etag("\"f96b697d7cb7938d525a2f31aaf161d0\"") && !sum.is_etag("\"f96b697d-1\""));
        assert!(!of(ChecksumForm::Crc(Algorithm::Crc32c), b"").is_etag(""));
    }

    #[test]
    fn words_of_journals_come_back() {
        let crcs = Algorithm::ALL.map(ChecksumForm::Crc);
        for form in crcs.into_iter().chain([ChecksumForm::Md5]) {
            let sum = of(form, b"some bytes");
            assert_eq!(BodyChecksum::from_word(&sum.word()), Some(sum));
            assert_eq!(ChecksumForm::named(form.name()), Some(form));
        }
        let leading_zero = BodyChecksum::Md5([0; 16]);
        assert_eq!(BodyChecksum::from_word(&leading_zero.word()), Some(leading_zero));
        for nonsense in ["", "none:0", "md5:1", "md5:+0000000000000000000000000000000", "crc32:x", "crc32"] {
            assert_eq!(BodyChecksum::from_word(nonsense), None, "{nonsense}");
        }
    }
}
