//! The two CRCs of an object's bytes that the dialects state: CRC-64/NVME for S3, CRC-64/XZ for OSS.

use std::sync::{Arc, OnceLock};

use flatout_wire::checksum::{Algorithm, Hasher};

use crate::pattern;

/// Both CRCs of the same bytes: whichever dialect wrote an object, the other can state its checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crcs {
    pub nvme: u64,
    pub xz: u64,
}

impl Crcs {
    pub(crate) fn of(bytes: &[u8]) -> Crcs {
        Crcs { nvme: Algorithm::Crc64Nvme.of(bytes), xz: Algorithm::Crc64Xz.of(bytes) }
    }

    /// Those of two pieces one after the other, the second `second_bytes` long.
    pub(crate) fn combine(self, second: Crcs, second_bytes: u64) -> Crcs {
        Crcs {
            nvme: Algorithm::Crc64Nvme.combine(self.nvme, second.nvme, second_bytes),
            xz: Algorithm::Crc64Xz.combine(self.xz, second.xz, second_bytes),
        }
    }

    /// Those of a block of `bytes` bytes repeated `times` times, from those of the block.
    pub(crate) fn repeat(self, bytes: u64, times: u64) -> Crcs {
        Crcs {
            nvme: Algorithm::Crc64Nvme.repeat(self.nvme, bytes, times),
            xz: Algorithm::Crc64Xz.repeat(self.xz, bytes, times),
        }
    }
}

/// The ETag of bytes that a sink forgets, for which no MD5 was computed; 0 parts are a part. The hyphen says
/// that it is no MD5.
pub(crate) fn etag_of_crc(nvme: u64, bytes: u64, parts: usize) -> String {
    format!("{nvme:016x}{bytes:x}-{parts}")
}

/// The CRC and the size in the ETag of a part that has no MD5.
pub(crate) fn crc_of_etag(etag: &str) -> Option<(u64, u64)> {
    let (crc, bytes) = etag.strip_suffix("-0")?.split_at_checked(16)?;
    u64::from_str_radix(crc, 16).ok().zip(u64::from_str_radix(bytes, 16).ok())
}

/// Both, running.
pub(crate) struct Hashers {
    nvme: Hasher,
    xz: Hasher,
}

impl Hashers {
    pub(crate) fn new() -> Hashers {
        Hashers { nvme: Hasher::new(Algorithm::Crc64Nvme), xz: Hasher::new(Algorithm::Crc64Xz) }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.nvme.update(bytes);
        self.xz.update(bytes);
    }

    pub(crate) fn value(&self) -> Crcs {
        Crcs { nvme: self.nvme.value(), xz: self.xz.value() }
    }
}

/// The CRCs of a whole object, as far as they are known without reading it.
#[derive(Clone)]
pub(crate) enum KnownCrcs {
    /// Nothing: a file that was not written through the origin.
    No,
    /// They were computed while it was written.
    Written(Crcs),
    /// They follow from the pattern. Two passes over it cost tens of microseconds, and OSS states a CRC with
    /// every range, so they are computed once.
    Pattern { shift: u64, size: u64, computed: Arc<OnceLock<Crcs>> },
}

impl KnownCrcs {
    pub(crate) fn crcs(&self) -> Option<Crcs> {
        match self {
            KnownCrcs::No => None,
            KnownCrcs::Written(crcs) => Some(*crcs),
            KnownCrcs::Pattern { shift, size, computed } => {
                Some(*computed.get_or_init(|| pattern::crcs(*shift, *size)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values of the catalogue of parametrised CRC algorithms (reveng.sourceforge.io).
    #[test]
    fn both_are_those_of_the_catalogue_however_the_bytes_come() {
        let expected = Crcs { nvme: 0xae8b_1486_0a79_9888, xz: 0x995d_c9bb_df19_39fa };
        assert_eq!(Crcs::of(b"123456789"), expected);
        assert_eq!(Crcs::of(b"1234").combine(Crcs::of(b"56789"), 5), expected);
        let mut hashers = Hashers::new();
        hashers.update(b"12345");
        hashers.update(b"6789");
        assert_eq!(hashers.value(), expected);
        assert_eq!(Crcs::of(b"ab").repeat(2, 3), Crcs::of(b"ababab"));
    }
}
