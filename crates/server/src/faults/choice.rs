//! Chooses the fault of a response: a pure function of the seed, the request and its number of attempts.

use super::{Fault, FaultKind};

/// A hash of the request: equal for every attempt at the same last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RequestHash(u64);

impl RequestHash {
    /// `last` is the last byte of the range that is asked for, where there is one.
    pub(super) fn new(operation: &str, bucket: &str, key: &str, last: Option<u64>) -> RequestHash {
        // FNV-1a; what separates the names is in no UTF-8.
        let names = [operation, bucket, key];
        let bytes = names.iter().flat_map(|name| name.bytes().chain([0xff]));
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        RequestHash(mix(hash, last.map_or(0, |last| last + 1)))
    }
}

/// A fault that was chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChosenFault {
    pub kind: FaultKind,
    /// Where in the body it happens: from 0 to just below 1.
    pub fraction: f64,
}

impl ChosenFault {
    /// The byte of a body of `bytes` at which it happens: within the body, unless that is empty.
    pub(super) fn at(&self, bytes: u64) -> u64 {
        ((bytes as f64 * self.fraction) as u64).min(bytes.saturating_sub(1))
    }

    /// Which of the eight bits of that byte: another digit of the same number.
    pub(super) fn bit(&self) -> u8 {
        ((self.fraction * 8192.0) as u64 % 8) as u8
    }
}

/// The first of the faults that fits and that chance chooses for this attempt, the first of which is 1.
pub(super) fn choose(
    seed: u64,
    faults: &[Fault],
    hash: RequestHash,
    attempt: u64,
    fits: impl Fn(FaultKind) -> bool,
) -> Option<ChosenFault> {
    faults.iter().enumerate().filter(|(_, fault)| fits(fault.kind)).find_map(|(place, fault)| {
        let drawn = mix(mix(mix(seed, place as u64), hash.0), attempt);
        let chosen = fraction(drawn) < fault.chance;
        chosen.then(|| ChosenFault { kind: fault.kind, fraction: fraction(mix(drawn, 1)) })
    })
}

/// From 0 to just below 1, in steps of 2^-53.
fn fraction(drawn: u64) -> f64 {
    (drawn >> 11) as f64 / (1_u64 << 53) as f64
}

/// Another number for each pair: a step and the finisher of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(state: u64, word: u64) -> u64 {
    let mixed = (state ^ word.wrapping_mul(0xff51_afd7_ed55_8ccd)).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(chances: &[f64]) -> Vec<Fault> {
        let kinds = [FaultKind::Reset, FaultKind::Truncate, FaultKind::Flip];
        chances.iter().zip(kinds).map(|(chance, kind)| Fault { chance: *chance, kind }).collect()
    }

    fn get(key: &str, last: u64) -> RequestHash {
        RequestHash::new("get", "bucket", key, Some(last))
    }

    fn chosen(seed: u64, faults: &[Fault], hash: RequestHash, attempt: u64) -> Option<ChosenFault> {
        choose(seed, faults, hash, attempt, |_| true)
    }

    #[test]
    fn the_same_is_chosen_for_the_same_and_something_else_for_anything_else() {
        let half = faults(&[0.5]);
        // 64 attempts at each, as bits: two that differ in anything agree in all by a chance of 2^-64.
        let course = |seed, hash| {
            (1..=64).fold(0_u64, |bits, attempt| {
                bits << 1 | u64::from(chosen(seed, &half, hash, attempt).is_some())
            })
        };
        let others = [
            course(1, get("k", 9)),
            course(2, get("k", 9)),
            course(1, get("l", 9)),
            course(1, get("k", 8)),
            course(1, RequestHash::new("head", "bucket", "k", Some(9))),
            course(1, RequestHash::new("get", "other", "k", Some(9))),
            course(1, RequestHash::new("get", "bucket", "k", None)),
            course(1, RequestHash::new("get", "bucketk", "", Some(9))),
        ];
        for (at, one) in others.iter().enumerate() {
            assert!(!others[..at].contains(one), "{at}");
        }
        assert_eq!(course(1, get("k", 9)), others[0]);
    }

    /// The choices of a release must not change: bug reports name seeds.
    #[test]
    fn a_seed_means_the_same_in_every_version() {
        let all: Vec<u32> = (1..=8)
            .map(|attempt| chosen(7, &faults(&[1.0]), get("k", 99), attempt).unwrap())
            .map(|chosen| (chosen.fraction * 1000.0) as u32)
            .collect();
        assert_eq!(all, [623, 83, 988, 906, 247, 196, 103, 931]);
    }

    #[test]
    fn a_chance_is_kept_over_many_objects_and_over_many_attempts() {
        for chance in [0.0, 0.01, 0.3, 0.9, 1.0] {
            let faults = faults(&[chance]);
            let objects =
                (0..20_000).filter(|n| chosen(1, &faults, get(&n.to_string(), 99), 1).is_some()).count();
            let attempts = (0..20_000).filter(|n| chosen(1, &faults, get("k", 99), *n).is_some()).count();
            let parts = (0..20_000).filter(|n| chosen(1, &faults, get("k", n << 23), 1).is_some()).count();
            for count in [objects, attempts, parts] {
                assert!((count as f64 / 20_000.0 - chance).abs() < 0.012, "{chance}: {count}");
                assert!(chance != 0.0 || count == 0);
                assert!(chance != 1.0 || count == 20_000);
            }
        }
    }

    #[test]
    fn the_first_fault_that_fits_and_is_chosen_wins() {
        let all = faults(&[1.0, 1.0, 1.0]);
        let kind =
            |fits: fn(FaultKind) -> bool| choose(1, &all, get("k", 9), 1, fits).map(|chosen| chosen.kind);
        assert_eq!(kind(|_| true), Some(FaultKind::Reset));
        assert_eq!(kind(|kind| kind != FaultKind::Reset), Some(FaultKind::Truncate));
        assert_eq!(kind(|_| false), None);
        // Each of two has its own chance: half of the answers meet with the first, a quarter with the second.
        let two = faults(&[0.5, 0.5]);
        let second = (0..20_000).filter(|attempt| {
            chosen(1, &two, get("k", 9), *attempt).is_some_and(|chosen| chosen.kind == FaultKind::Truncate)
        });
        assert!((4_600..5_400).contains(&second.count()));
    }

    #[test]
    fn what_is_chosen_does_not_depend_on_where_an_attempt_starts() {
        // Nothing here knows where it starts; the place in what is left is the same fraction of it.
        let chosen = chosen(3, &faults(&[1.0]), get("k", 999), 1).unwrap();
        assert!(chosen.at(1000) < 1000 && chosen.at(1) == 0 && chosen.at(0) == 0);
        assert_eq!(ChosenFault { fraction: 0.999_999_999_999_999_9, ..chosen }.at(1 << 60), (1 << 60) - 128);
    }

    #[test]
    fn places_are_spread_over_the_body() {
        let all = faults(&[1.0]);
        let mean: f64 =
            (0..10_000).map(|n| chosen(n, &all, get("k", 9), 1).unwrap().fraction).sum::<f64>() / 10_000.0;
        assert!((0.48..0.52).contains(&mean), "{mean}");
    }
}
