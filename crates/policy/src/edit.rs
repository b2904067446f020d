//! A long object of which ranges have changed: what has not changed is copied by the origin, the rest is
//! sent. All origins want parts of at least 5 MiB, but for the last.

use std::ops::Range;

use crate::upload::{PART_MOST, PARTS_MOST, SINGLE_UP_TO};

const MIB: u64 = 1 << 20;
/// A shorter range is sent rather than copied: it costs a request either way.
const COPIED_LEAST: u64 = 8 * MIB;
/// What is copied is cut into parts between this and twice as long, what is sent likewise.
const COPIED_PART: u64 = 64 * MIB;
const SENT_PART: u64 = 8 * MIB;

/// A part of the new object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditedPart {
    /// Of the new object, and of the old one where it is copied.
    pub range: Range<u64>,
    pub is_copied: bool,
}

/// The parts of an object of `bytes`, in order, of which `changed` differs from an older one of `before`
/// bytes; ranges are in order and do not touch each other. `None` where the whole is to be sent. `least` is
/// the shortest part that the origin takes.
pub fn edited_parts(least: u64, bytes: u64, before: u64, changed: &[Range<u64>]) -> Option<Vec<EditedPart>> {
    if bytes <= SINGLE_UP_TO {
        return None;
    }
    // Twice as long until there are few enough.
    (0..20)
        .find_map(|doublings| {
            let parts = parts_of(least, bytes, before, changed, doublings);
            match parts.len() as u64 <= PARTS_MOST {
                true => Some(parts),
                false => None,
            }
        })
        .filter(|parts| parts.iter().any(|part| part.is_copied))
}

fn parts_of(least: u64, bytes: u64, before: u64, changed: &[Range<u64>], doublings: u32) -> Vec<EditedPart> {
    let worth = COPIED_LEAST.max(least) << doublings;
    let longer = |part: u64| (part.max(least) << doublings).min(PART_MOST / 2);
    let (sent, copied) = (longer(SENT_PART), longer(COPIED_PART));
    let mut parts = Vec::new();
    let mut at = 0;
    let kept_end = before.min(bytes);
    let starts = std::iter::once(0).chain(changed.iter().map(|range| range.end));
    let ends = changed.iter().map(|range| range.start).chain(std::iter::once(kept_end));
    for (start, end) in starts.zip(ends) {
        // What is sent before it must be long enough.
        let start = if start > at { start.max(at + least) } else { start };
        let end = end.min(kept_end);
        if end < start || end - start < worth {
            continue;
        }
        cut(&mut parts, at..start, sent, false);
        cut(&mut parts, start..end, copied, true);
        at = end;
    }
    cut(&mut parts, at..bytes, sent, false);
    parts
}

/// Into pieces of `part` to twice as much.
fn cut(parts: &mut Vec<EditedPart>, range: Range<u64>, part: u64, is_copied: bool) {
    let bytes = range.end - range.start;
    if bytes == 0 {
        return;
    }
    let count = (bytes / part).max(1);
    let at = |number: u64| range.start + (u128::from(bytes) * u128::from(number) / u128::from(count)) as u64;
    parts.extend((0..count).map(|number| EditedPart { range: at(number)..at(number + 1), is_copied }));
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // One range has changed.
mod tests {
    use super::*;
    use crate::upload::PART_LEAST;

    #[track_caller]
    fn check(bytes: u64, before: u64, changed: &[Range<u64>]) -> Option<Vec<EditedPart>> {
        let parts = edited_parts(PART_LEAST, bytes, before, changed)?;
        let mut at = 0;
        for (number, part) in parts.iter().enumerate() {
            assert_eq!(part.range.start, at, "{parts:?}");
            at = part.range.end;
            let length = part.range.end - part.range.start;
            assert!(length > 0 && (length >= PART_LEAST || number + 1 == parts.len()), "{parts:?}");
            if part.is_copied {
                assert!(part.range.end <= before);
                let overlaps =
                    |range: &Range<u64>| range.start < part.range.end && part.range.start < range.end;
                assert!(!changed.iter().any(overlaps), "{part:?} {changed:?}");
            }
        }
        assert_eq!(at, bytes);
        assert!(parts.len() as u64 <= PARTS_MOST);
        Some(parts)
    }

    fn sent(parts: &[EditedPart]) -> u64 {
        parts.iter().filter(|part| !part.is_copied).map(|part| part.range.end - part.range.start).sum()
    }

    #[test]
    fn little_is_sent_where_little_has_changed() {
        let (gib, page) = (1 << 30, 4096);
        // A page at the start, in the middle, and at the end.
        let parts = check(4 * gib, 4 * gib, &[0..page, gib..gib + page, 4 * gib - page..4 * gib]).unwrap();
        assert_eq!(sent(&parts), 2 * PART_LEAST + page);
        // Nothing but an end that was added, or cut off.
        assert_eq!(sent(&check(gib + 10, gib, &[gib..gib + 10]).unwrap()), 10);
        assert_eq!(sent(&check(gib - 10, gib, &[]).unwrap()), 0);
        // A range that is written through.
        let parts = check(4 * gib, 4 * gib, &[gib..gib + 40 * MIB]).unwrap();
        assert_eq!(sent(&parts), 40 * MIB);
    }

    #[test]
    fn what_cannot_be_copied_is_sent() {
        assert_eq!(check(10 * MIB, 10 * MIB, &[0..1]), None);
        assert_eq!(check(100 * MIB, 0, &[0..100 * MIB]), None);
        // Changes so dense that what lies between them is too short.
        let dense: Vec<_> = (0..20).map(|at| at * 5 * MIB..at * 5 * MIB + 1).collect();
        assert_eq!(check(100 * MIB, 100 * MIB, &dense), None);
    }

    #[test]
    fn a_huge_object_has_parts_enough() {
        let tib = 1 << 40;
        let changed: Vec<_> = (0..40_000).map(|at| at * 250 * MIB..at * 250 * MIB + 1).collect();
        let parts = check(10 * tib, 10 * tib, &changed);
        assert!(parts.is_none_or(|parts| parts.len() > 100));
        check(10 * tib, 10 * tib, &[0..1]).unwrap();
    }

    #[test]
    fn any_changes_are_covered() {
        let mut state = 1_u64;
        let mut chance = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..2_000 {
            let (bytes, before) = (1 + chance(400 * MIB), chance(400 * MIB));
            let (mut changed, mut at) = (Vec::new(), 0);
            loop {
                let start = at + 1 + chance(60 * MIB);
                let most = if chance(2) == 0 { 4096 } else { 30 * MIB };
                let end = start + 1 + chance(most);
                if end >= bytes.min(before) {
                    break;
                }
                changed.push(start..end);
                at = end;
            }
            if bytes > before {
                changed.push(before..bytes);
            }
            check(bytes, before, &changed);
        }
    }
}
