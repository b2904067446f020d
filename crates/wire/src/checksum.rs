//! Checksums of objects: the four CRCs that origins state, their header forms, and their combination, so that
//! parts hashed apart and in any order give the checksum of the whole.

use base64_simd::STANDARD as BASE64;

/// A CRC that an origin may state for a whole object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// CRC-64/NVME: the default of S3.
    Crc64Nvme,
    /// CRC-64/XZ (ECMA-182, reflected): what OSS states as `x-oss-hash-crc64ecma`.
    Crc64Xz,
    /// CRC-32C (Castagnoli).
    Crc32c,
    /// CRC-32 of zip and Ethernet.
    Crc32,
}

/// A checksum as an origin stated it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum {
    pub algorithm: Algorithm,
    pub value: u64,
    pub kind: Coverage,
}

/// What a stated checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// The bytes of the object: combinable from the CRCs of its ranges.
    Full,
    /// The checksums of the parts of its upload (`value-N`): cannot be computed from other ranges.
    /// `parts` is 0 where the origin did not say how many.
    Composite { parts: u32 },
}

/// A running CRC. Cheap to clone.
#[derive(Clone)]
pub struct Hasher(crc_fast::Digest);

/// Combines CRCs while it remembers x^(8n) for the last lengths seen. Parts of one transfer have one length,
/// and only the last differs; so that a combine costs one multiplication (59 ns) instead of thirty.
#[derive(Clone, Debug)]
pub struct Powers {
    algorithm: Algorithm,
    recent: [(u64, u64); 2],
}

impl Algorithm {
    /// Every algorithm, the one to prefer first.
    pub const ALL: [Algorithm; 4] =
        [Algorithm::Crc64Nvme, Algorithm::Crc64Xz, Algorithm::Crc32c, Algorithm::Crc32];

    /// The name in reports and options.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Crc64Nvme => "crc64nvme",
            Algorithm::Crc64Xz => "crc64xz",
            Algorithm::Crc32c => "crc32c",
            Algorithm::Crc32 => "crc32",
        }
    }

    /// S3's name for it, as in `x-amz-checksum-algorithm: CRC64NVME` and in the elements `ChecksumCRC64NVME`;
    /// `None` for OSS's own.
    pub fn s3_name(self) -> Option<&'static str> {
        match self {
            Algorithm::Crc64Nvme => Some("CRC64NVME"),
            Algorithm::Crc32c => Some("CRC32C"),
            Algorithm::Crc32 => Some("CRC32"),
            Algorithm::Crc64Xz => None,
        }
    }

    /// The header that states it, in lower case: in answers, and in requests to S3.
    pub fn header(self) -> Option<&'static str> {
        Some(match self {
            Algorithm::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Algorithm::Crc64Xz => "x-oss-hash-crc64ecma",
            Algorithm::Crc32c => "x-amz-checksum-crc32c",
            Algorithm::Crc32 => "x-amz-checksum-crc32",
        })
    }

    /// `crc` as the header carries it: base64 of the big-endian bytes for S3, decimal for OSS.
    pub fn encode(self, crc: u64) -> String {
        match (self, self.bits()) {
            (Algorithm::Crc64Xz, _) => crc.to_string(),
            (_, 32) => BASE64.encode_to_string((crc as u32).to_be_bytes()),
            _ => BASE64.encode_to_string(crc.to_be_bytes()),
        }
    }

    /// The inverse of [`Algorithm::encode`]; `None` where the text is no such checksum.
    pub fn decode(self, text: &str) -> Option<u64> {
        if self == Algorithm::Crc64Xz {
            return text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
        }
        let bytes = BASE64.decode_to_vec(text).ok()?;
        match self.bits() {
            32 => Some(u32::from_be_bytes(bytes.try_into().ok()?).into()),
            _ => Some(u64::from_be_bytes(bytes.try_into().ok()?)),
        }
    }

    /// The CRC of `bytes`.
    pub fn of(self, bytes: &[u8]) -> u64 {
        crc_fast::checksum(self.engine(), bytes)
    }

    /// The CRC of two pieces one after the other, the second `second_bytes` long.
    ///
    /// Costs about 2 µs; where many pieces have one length, [`Powers`] is thirty times cheaper.
    pub fn combine(self, first: u64, second: u64, second_bytes: u64) -> u64 {
        self.multiply(first, self.power(second_bytes)) ^ second
    }

    /// The CRC of a block repeated `times` times, from the CRC of one block of `bytes` bytes.
    ///
    /// Doubles the block, so that the CRC of a synthetic TiB costs microseconds.
    pub fn repeat(self, crc: u64, bytes: u64, times: u64) -> u64 {
        let (mut whole, mut block, mut power, mut left) = (0, crc, self.power(bytes), times);
        while left > 0 {
            if left & 1 == 1 {
                whole = self.multiply(whole, power) ^ block;
            }
            block ^= self.multiply(block, power);
            power = self.multiply(power, power);
            left >>= 1;
        }
        whole
    }

    fn engine(self) -> crc_fast::CrcAlgorithm {
        match self {
            Algorithm::Crc64Nvme => crc_fast::CrcAlgorithm::Crc64Nvme,
            Algorithm::Crc64Xz => crc_fast::CrcAlgorithm::Crc64Xz,
            Algorithm::Crc32c => crc_fast::CrcAlgorithm::Crc32Iscsi,
            Algorithm::Crc32 => crc_fast::CrcAlgorithm::Crc32IsoHdlc,
        }
    }

    fn bits(self) -> u32 {
        match self {
            Algorithm::Crc64Nvme | Algorithm::Crc64Xz => 64,
            Algorithm::Crc32c | Algorithm::Crc32 => 32,
        }
    }

    /// The reflected polynomial, without its highest term.
    fn polynomial(self) -> u64 {
        match self {
            Algorithm::Crc64Nvme => 0x9a6c_9329_ac4b_c9b5,
            Algorithm::Crc64Xz => 0xc96c_5795_d787_0f42,
            Algorithm::Crc32c => 0x82f6_3b78,
            Algorithm::Crc32 => 0xedb8_8320,
        }
    }

    /// a × b modulo the polynomial, all reflected: the highest bit is x^0.
    ///
    /// Appending n bytes multiplies a CRC by x^(8n); that all four CRCs start and end with the same inversion
    /// makes the inversions cancel.
    fn multiply(self, a: u64, mut b: u64) -> u64 {
        let polynomial = self.polynomial();
        let mut product = 0;
        for bit in (0..self.bits()).rev() {
            product ^= b & (a >> bit & 1).wrapping_neg();
            b = (b >> 1) ^ (polynomial & (b & 1).wrapping_neg());
        }
        product
    }

    /// x^(8 · bytes) modulo the polynomial.
    fn power(self, bytes: u64) -> u64 {
        let one = 1u64 << (self.bits() - 1);
        let (mut power, mut square, mut left) = (one, one >> 8, bytes);
        while left > 0 {
            if left & 1 == 1 {
                power = self.multiply(power, square);
            }
            square = self.multiply(square, square);
            left >>= 1;
        }
        power
    }
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}

impl Hasher {
    /// The CRC of no bytes yet.
    pub fn new(algorithm: Algorithm) -> Hasher {
        Hasher(crc_fast::Digest::new(algorithm.engine()))
    }

    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The CRC of all bytes so far.
    pub fn value(&self) -> u64 {
        self.0.finalize()
    }
}

impl std::fmt::Debug for Hasher {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Hasher({:x})", self.value())
    }
}

impl Powers {
    /// Remembers nothing yet.
    pub fn new(algorithm: Algorithm) -> Powers {
        let none = (0, algorithm.power(0));
        Powers { algorithm, recent: [none; 2] }
    }

    /// As [`Algorithm::combine`].
    pub fn combine(&mut self, first: u64, second: u64, second_bytes: u64) -> u64 {
        self.algorithm.multiply(first, self.power(second_bytes)) ^ second
    }

    fn power(&mut self, bytes: u64) -> u64 {
        if let Some((_, power)) = self.recent.iter().find(|(known_bytes, _)| *known_bytes == bytes) {
            return *power;
        }
        let power = self.algorithm.power(bytes);
        self.recent = [(bytes, power), self.recent[0]];
        power
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The check values of "123456789" in the catalogue of parametrised CRC algorithms
    /// (reveng.sourceforge.io).
    const CHECK: [(Algorithm, u64); 4] = [
        (Algorithm::Crc64Nvme, 0xae8b_1486_0a79_9888),
        (Algorithm::Crc64Xz, 0x995d_c9bb_df19_39fa),
        (Algorithm::Crc32c, 0xe306_9283),
        (Algorithm::Crc32, 0xcbf4_3926),
    ];

    #[test]
    fn known_values() {
        for (algorithm, expected) in CHECK {
            assert_eq!(algorithm.of(b"123456789"), expected, "{algorithm}");
            assert_eq!(algorithm.of(b""), 0, "{algorithm}");
            let mut hasher = Hasher::new(algorithm);
            hasher.update(b"1234");
            hasher.update(b"56789");
            assert_eq!(hasher.value(), expected, "{algorithm}");
        }
    }

    #[test]
    fn header_forms() {
        let rows = [
            (Algorithm::Crc64Nvme, 0xae8b_1486_0a79_9888, "rosUhgp5mIg="),
            (Algorithm::Crc64Xz, 0x995d_c9bb_df19_39fa, "11051210869376104954"),
            (Algorithm::Crc32c, 0xe306_9283, "4waSgw=="),
            (Algorithm::Crc32, 0xcbf4_3926, "y/Q5Jg=="),
            (Algorithm::Crc32, 0, "AAAAAA=="),
        ];
        for (algorithm, value, text) in rows {
            assert_eq!(algorithm.encode(value), text);
            assert_eq!(algorithm.decode(text), Some(value));
        }
        for bad in ["", "-1", "+1", "18446744073709551616", "4waSgw=", "4waSgw==="] {
            for algorithm in Algorithm::ALL {
                assert_eq!(algorithm.decode(bad), None, "{algorithm} {bad}");
            }
        }
        assert_eq!(Algorithm::Crc64Nvme.decode("4waSgw=="), None, "32 bits are no 64");
    }

    proptest! {
        #[test]
        fn pieces_combine_to_the_whole(
            bytes in prop::collection::vec(any::<u8>(), 0..600),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            ends.push(bytes.len());
            ends.sort_unstable();
            for algorithm in Algorithm::ALL {
                let (mut crc, mut cached, mut start) = (0, 0, 0);
                let mut powers = Powers::new(algorithm);
                for &end in &ends {
                    let piece = &bytes[start..end];
                    crc = algorithm.combine(crc, algorithm.of(piece), piece.len() as u64);
                    cached = powers.combine(cached, algorithm.of(piece), piece.len() as u64);
                    start = end;
                }
                prop_assert_eq!(crc, algorithm.of(&bytes), "{}", algorithm);
                prop_assert_eq!(cached, crc, "{}", algorithm);
            }
        }

        #[test]
        fn a_repeated_block_is_hashed_without_reading(
            block in prop::collection::vec(any::<u8>(), 0..40), times in 0u64..40,
        ) {
            for algorithm in Algorithm::ALL {
                let whole = block.repeat(times as usize);
                let crc = algorithm.repeat(algorithm.of(&block), block.len() as u64, times);
                prop_assert_eq!(crc, algorithm.of(&whole), "{}", algorithm);
            }
        }
    }

    #[test]
    fn lengths_beyond_32_bits() {
        for algorithm in Algorithm::ALL {
            let (block, half) =
                (algorithm.of(b"block"), algorithm.repeat(algorithm.of(b"block"), 5, 1 << 33));
            assert_eq!(algorithm.combine(half, half, 5 << 33), algorithm.repeat(block, 5, 1 << 34));
        }
    }
}
