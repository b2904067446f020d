//! Which combinations of concurrency and part size are measured.

use std::collections::HashSet;
use std::fmt;
use std::thread;

use flatout_settings::{format_size, parse_size};

use crate::failure::Failure;
use crate::knobs::Knobs;

/// A table and a page that one can still read, and a memory that holds them.
pub const MOST: usize = 256;

/// One way to fetch an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Combination {
    pub parallel: u32,
    pub part_bytes: u64,
}

impl fmt::Display for Combination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.parallel, self.part_size())
    }
}

impl Combination {
    /// As one types it.
    pub fn flags(self) -> String {
        format!("--parallel {} --part-size {}", self.parallel, self.part_size())
    }

    /// With a unit where one says it exactly.
    pub fn part_size(self) -> String {
        let shown = format_size(self.part_bytes);
        if parse_size(&shown) == Ok(self.part_bytes) { shown } else { self.part_bytes.to_string() }
    }
}

/// All of them, each with the knobs of its runs. Those that make no sense are refused in the knobs' own
/// words; two ways to write the same are one.
pub fn all(knobs: &Knobs) -> Result<Vec<(Combination, Knobs)>, Failure> {
    let mut all: Vec<(Combination, Knobs)> = Vec::new();
    let mut known = HashSet::new();
    let sizes = typed(knobs, "part-size").unwrap_or_else(part_sizes);
    for parallel in typed(knobs, "parallel").unwrap_or_else(parallels) {
        for size in &sizes {
            let knobs = knobs.clone().with("parallel", &parallel).with("part-size", size);
            let settings = flatout_ambient::gather(knobs.given())?.settings;
            let (Some(parallel), Some(part_bytes)) = (settings.parallel, settings.part_bytes) else {
                return Err(Failure::usage("sweep: auto is no number: a sweep compares fixed ones")
                    .with_hint("flatout bench get measures what is found by itself"));
            };
            let combination = Combination { parallel, part_bytes };
            if known.insert(combination) {
                all.push((combination, knobs));
            }
            if all.len() > MOST {
                return Err(too_many());
            }
        }
    }
    Ok(all)
}

fn too_many() -> Failure {
    let failure =
        Failure::usage(format!("sweep: more than {MOST} combinations of --parallel and --part-size"));
    failure.with_hint("name fewer of either; then sweep again around the fastest")
}

fn typed(knobs: &Knobs, name: &str) -> Option<Vec<String>> {
    let values = knobs.given().iter().filter(|(given, _)| *given == name).map(|(_, value)| value.clone());
    Some(values.collect()).filter(|values: &Vec<String>| !values.is_empty())
}

/// Once, twice and four times the cores (seed 000), and what suits four cores where there are fewer: an
/// origin that is far away is worth more connections than the machine has cores.
fn parallels() -> Vec<String> {
    let cores = thread::available_parallelism().map_or(1, usize::from).clamp(4, 1024);
    [1, 2, 4].map(|times| (times * cores).to_string()).into()
}

/// From the least that an origin's own advice allows (seed 000) in steps that are told apart.
fn part_sizes() -> Vec<String> {
    ["2MiB", "8MiB", "32MiB"].map(str::to_owned).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(pairs: &[(&str, &str)]) -> Knobs {
        Knobs::from_pairs(
            &pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect::<Vec<_>>(),
        )
    }

    #[test]
    fn every_combination_once() {
        let check = |pairs: &[(&str, &str)], expected: &[&str]| {
            let all = all(&knobs(pairs)).unwrap();
            assert_eq!(
                all.iter().map(|(combination, _)| combination.to_string()).collect::<Vec<_>>(),
                expected
            );
        };
        let two = ("parallel", "2");
        check(
            &[two, ("parallel", "16"), ("part-size", "1MiB"), ("part-size", "8M")],
            &["2 x 1MiB", "2 x 8MiB", "16 x 1MiB", "16 x 8MiB"],
        );
        check(&[two, two, ("part-size", "1024KiB"), ("part-size", "1MiB")], &["2 x 1MiB"]);
        check(&[two, ("part-size", "3MB"), ("part-size", "3000001")], &["2 x 3000000", "2 x 3000001"]);
        check(&[two], &["2 x 2MiB", "2 x 8MiB", "2 x 32MiB"]);
        assert_eq!(all(&knobs(&[])).unwrap().len(), 9);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_knob_and_its_bounds() {
        let check = |pairs: &[(&str, &str)], says: &str| {
            let failure = all(&knobs(pairs)).unwrap_err();
            assert!(failure.message.contains(says), "{}", failure.message);
        };
        check(&[("parallel", "2"), ("parallel", "0")], "parallel: 0 is out of bounds");
        check(&[("part-size", "2MiB"), ("part-size", "")], "part-size");
        check(&[("parallel", "auto"), ("part-size", "2MiB")], "auto is no number");
        let many: Vec<String> = (1..=129).map(|parallel| parallel.to_string()).collect();
        let mut many: Vec<(&str, &str)> = many.iter().map(|value| ("parallel", value.as_str())).collect();
        many.extend([("part-size", "1MiB"), ("part-size", "2MiB")]);
        check(&many, "more than 256 combinations");
        check(&[("part-size", "2MiB"), ("part-size", "512B")], "part-size");
        check(&[("part-size", "2MiB"), ("part-size", "32MiB"), ("window", "8MiB")], "window");
    }
}
