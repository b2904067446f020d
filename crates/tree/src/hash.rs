//! A hash that never changes: inode numbers are made with it.

use std::hash::{BuildHasherDefault, Hasher};

/// FNV-1a of 64 bits, its end mixed once more (the finalizer of MurmurHash3), since short names differ in few
/// bits.
pub(crate) struct StableHash(u64);

impl StableHash {
    pub(crate) fn new() -> StableHash {
        StableHash(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    pub(crate) fn end(self) -> u64 {
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed = (mixed ^ (mixed >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        mixed ^ (mixed >> 33)
    }
}

/// For maps whose keys are hashes or counters already.
#[derive(Default)]
pub(crate) struct IdentityHasher(u64);

pub(crate) type BuildIdentityHasher = BuildHasherDefault<IdentityHasher>;

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that users may have written down: backups, inode-based caches.
    #[test]
    fn never_changes() {
        let hash = |text: &[u8]| {
            let mut hash = StableHash::new();
            hash.add(text);
            hash.end()
        };
        assert_eq!(hash(b""), 0xefd0_1f60_ba99_2926);
        assert_ne!(hash(b"a"), hash(b"b"));
    }
}
