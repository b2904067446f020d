//! The bytes of synthetic objects: one pattern, repeated, shifted by the object's name.

use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;

use crate::buffer::FRAME_BYTES;
use crate::crcs::Crcs;

/// The largest prime below [`FRAME_BYTES`]: a part size is never a multiple of it, so a part that lands in a
/// wrong place is seen; and sending an object of any size reads memory that stays in the L2 cache.
pub(crate) const PERIOD: usize = 262_139;
const _: () = assert!(PERIOD < FRAME_BYTES);

/// The pattern, computed once in a process.
pub(crate) fn bytes() -> &'static Bytes {
    static PATTERN: OnceLock<Bytes> = OnceLock::new();
    PATTERN.get_or_init(|| {
        // SplitMix64 (Steele, Lea and Flood 2014): random enough that no two windows look alike.
        let mut state = 0_u64;
        let words = std::iter::repeat_with(|| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            (mixed ^ (mixed >> 31)).to_le_bytes()
        });
        words.flatten().take(PERIOD).collect::<Vec<u8>>().into()
    })
}

/// Where in the pattern an object begins: FNV-1a of its name.
pub(crate) fn shift(bucket: &str, key: &str) -> u64 {
    let name = bucket.bytes().chain([b'/']).chain(key.bytes());
    let hash = name.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    hash % PERIOD as u64
}

/// The bytes from `at` on, at most `bytes`, as far as they lie in one piece. Nothing is copied.
pub(crate) fn frame(shift: u64, at: u64, bytes: u64) -> Bytes {
    let from = ((shift + at % PERIOD as u64) % PERIOD as u64) as usize;
    let to = (PERIOD as u64).min(from as u64 + bytes) as usize;
    self::bytes().slice(from..to)
}

/// The CRCs of an object of `size` bytes, from two passes over the pattern whatever the size.
pub(crate) fn crcs(shift: u64, size: u64) -> Crcs {
    let period = PERIOD as u64;
    let (rounds, rest) = (size / period, size % period);
    let whole = if rounds == 0 { Crcs::of(&[]) } else { crcs_of_start(shift, period).repeat(period, rounds) };
    whole.combine(crcs_of_start(shift, rest), rest)
}

/// Fills `out` with the bytes of the synthetic object `bucket`/`key` in `range`, so that a test can compare.
///
/// # Panics
/// When `out` and `range` differ in length.
pub fn synthetic_bytes(bucket: &str, key: &str, range: Range<u64>, out: &mut [u8]) {
    assert_eq!(
        range.end.checked_sub(range.start),
        Some(out.len() as u64),
        "out must be as long as the range"
    );
    let shift = shift(bucket, key);
    let mut filled = 0;
    while filled < out.len() {
        let blob = frame(shift, range.start + filled as u64, (out.len() - filled) as u64);
        out[filled..filled + blob.len()].copy_from_slice(&blob);
        filled += blob.len();
    }
}

/// The CRCs of an object's first `bytes` bytes, at most one period.
fn crcs_of_start(shift: u64, bytes: u64) -> Crcs {
    let first = frame(shift, 0, bytes);
    let second = frame(shift, first.len() as u64, bytes - first.len() as u64);
    Crcs::of(&first).combine(Crcs::of(&second), second.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(key: &str, range: Range<u64>) -> Vec<u8> {
        let mut out = vec![0; (range.end - range.start) as usize];
        synthetic_bytes("bucket", key, range, &mut out);
        out
    }

    #[test]
    fn the_crcs_are_those_of_the_bytes() {
        let period = PERIOD as u64;
        for size in [0, 1, 1000, period - 1, period, period + 1, 3 * period, 5 * period + 77, 4 << 20] {
            for key in ["a", "b", "some/longer/key"] {
                let read = Crcs::of(&read(key, 0..size));
                assert_eq!(crcs(shift("bucket", key), size), read, "{key}, {size} bytes");
            }
        }
    }

    #[test]
    fn any_range_is_a_slice_of_the_whole() {
        let whole = read("k", 0..3 << 20);
        for range in [0..0, 0..1, 5..9, 262_138..262_140, 1_000_000..2_000_000, 3_145_000..3_145_728] {
            assert_eq!(
                read("k", range.clone()),
                whole[range.start as usize..range.end as usize],
                "{range:?}"
            );
        }
    }

    #[test]
    fn names_and_parts_can_be_told_apart() {
        assert_ne!(read("a", 0..64), read("b", 0..64));
        assert_ne!(read("a", 0..64), read("a", 8 << 20..(8 << 20) + 64));
    }
}
