//! How an upload is cut into parts. All origins take at most 10,000 parts, each but the last of at least 5
//! MiB (S3, "Amazon S3 multipart upload limits"; OSS takes 100 KiB, which is not worth a request).

/// Parts are numbered from 1 to this.
pub const PARTS_MOST: u64 = 10_000;
/// No part but the last may be shorter.
pub const PART_LEAST: u64 = 5 << 20;
/// No part may be longer.
pub const PART_MOST: u64 = 5 << 30;
/// What one request may carry: a longer object needs parts.
pub const SINGLE_MOST: u64 = 5 << 30;
/// The longest object: 10,000 parts of 5 GiB (S3 since December 2025; OSS takes 48.8 TiB).
pub const OBJECT_MOST: u64 = PARTS_MOST * PART_MOST;

const MIB: u64 = 1 << 20;
/// A shorter object is sent by one request: for less, another connection hardly gets going.
pub const SINGLE_UP_TO: u64 = 16 * MIB;
/// Parts of an object of up to [`LARGE`] bytes, and of a longer one. Ranges of one stored part share its disk
/// at S3, about 10 Gbit/s (reference/cli.md §1.4), so more parts read better later; fewer cost fewer
/// requests.
const PART: u64 = 8 * MIB;
const LARGE_PART: u64 = 16 * MIB;
const LARGE: u64 = 256 * MIB;
/// Parts of a stream grow by half of their number: with 8 MiB first, 10,000 parts are 8 TiB.
const STREAM_STEP: u64 = 1_000;

/// How long each part but the last is, of an object of `bytes`; `None` where it is sent by one request.
/// `asked` is the user's own length, `least` the shortest part that the origin takes.
pub fn part_bytes(least: u64, bytes: u64, asked: Option<u64>) -> Option<u64> {
    let usual = if bytes >= LARGE { LARGE_PART } else { PART };
    let part = asked.unwrap_or(usual).clamp(least, PART_MOST);
    if bytes <= asked.map_or(SINGLE_UP_TO, |_| part).min(SINGLE_MOST) {
        return None;
    }
    if bytes.div_ceil(part) <= PARTS_MOST {
        return Some(part);
    }
    // As many parts as there may be, in whole MiB.
    Some(bytes.div_ceil(PARTS_MOST).next_multiple_of(MIB).min(PART_MOST))
}

/// A copy within the service that carries no more is one request. Servers that answer only when they are done
/// must copy it within the stall timeout, 20 s by default: at 13 MiB/s.
const COPY_SINGLE: u64 = 256 * MIB;
/// Parts of a longer copy: 8 of them in flight end within the stall timeout where the store copies 26 MiB/s.
const COPY_PART: u64 = 64 * MIB;

/// How long each part but the last is of a copy within the service; `None` where it is one request. `asked`
/// is the user's own length.
pub fn copy_part_bytes(bytes: u64, asked: Option<u64>) -> Option<u64> {
    let part = asked.unwrap_or(COPY_PART).clamp(PART_LEAST, PART_MOST);
    if bytes <= asked.map_or(COPY_SINGLE, |_| part) {
        return None;
    }
    Some(part.max(bytes.div_ceil(PARTS_MOST).next_multiple_of(MIB)).min(PART_MOST))
}

/// How long part `number` (from 1) of a stream is, of which nobody knows where it ends: longer and longer, so
/// that 10,000 are enough, and never more than `most`. `least` is the shortest part that the origin takes.
pub fn stream_part_bytes(least: u64, number: u64, asked: Option<u64>, most: u64) -> u64 {
    let first = asked.unwrap_or(PART).clamp(least, PART_MOST);
    let doublings = (number.saturating_sub(1) / STREAM_STEP).min(20) as u32;
    (first << doublings).min(PART_MOST).min(most.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: u64, asked: Option<u64>, expected: Option<u64>) {
        let part = part_bytes(PART_LEAST, bytes, asked);
        assert_eq!(part, expected, "{bytes} {asked:?}");
        if let Some(part) = part {
            assert!(
                bytes.div_ceil(part) <= PARTS_MOST && (PART_LEAST..=PART_MOST).contains(&part),
                "{bytes}"
            );
        }
    }

    #[test]
    fn parts_are_few_enough_and_long_enough() {
        check(0, None, None);
        check(16 * MIB, None, None);
        check(16 * MIB + 1, None, Some(8 * MIB));
        check(256 * MIB, None, Some(16 * MIB));
        check(160_000 * MIB, None, Some(16 * MIB));
        check(160_001 * MIB, None, Some(17 * MIB));
        check(OBJECT_MOST, None, Some(PART_MOST));
        check(100 * MIB, Some(64 * MIB), Some(64 * MIB));
        check(64 * MIB, Some(64 * MIB), None);
        check(100 * MIB, Some(1), Some(PART_LEAST));
        check(1_000_000 * MIB, Some(8 * MIB), Some(100 * MIB));
        check(6 << 30, Some(6 << 30), Some(PART_MOST));
    }

    #[test]
    fn copies_of_any_length_have_parts_enough() {
        let check = |bytes, asked, expected| {
            let part = copy_part_bytes(bytes, asked);
            assert_eq!(part, expected, "{bytes} {asked:?}");
            assert!(part.is_none_or(|part| bytes.div_ceil(part) <= PARTS_MOST && part <= PART_MOST));
        };
        check(0, None, None);
        check(256 * MIB, None, None);
        check(256 * MIB + 1, None, Some(64 * MIB));
        check(640_000 * MIB + 1, None, Some(65 * MIB));
        check(OBJECT_MOST, None, Some(PART_MOST));
        check(5 * MIB, Some(1), None);
        check(5 * MIB + 1, Some(1), Some(PART_LEAST));
        check(6 << 30, Some(8 << 30), Some(PART_MOST));
    }

    #[test]
    fn a_stream_of_any_length_has_parts_enough() {
        let total = |asked, most| {
            (1..=PARTS_MOST).map(|number| stream_part_bytes(PART_LEAST, number, asked, most)).sum::<u64>()
        };
        assert!(total(None, u64::MAX) > 7 << 40, "{}", total(None, u64::MAX));
        assert!(total(Some(PART_MOST), u64::MAX) == OBJECT_MOST);
        assert_eq!(stream_part_bytes(PART_LEAST, 1, None, u64::MAX), 8 * MIB);
        assert_eq!(stream_part_bytes(PART_LEAST, 1_000, None, u64::MAX), 8 * MIB);
        assert_eq!(stream_part_bytes(PART_LEAST, 1_001, None, u64::MAX), 16 * MIB);
        assert_eq!(stream_part_bytes(PART_LEAST, 10_000, None, 128 * MIB), 128 * MIB);
        assert_eq!(
            stream_part_bytes(PART_LEAST, 1, Some(64 * MIB), 1),
            PART_LEAST,
            "never less than an origin takes"
        );
    }
}
