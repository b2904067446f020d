//! What the pace makes of links of 100 and 400 Gbit/s, which no machine of ours has: docs/at-line-rate.md has
//! the table that this prints.

use std::time::Instant;

use super::model::{Control, Run, Shape, run};
use super::tests::{seeds, shape};
use super::{LEVEL_MOST, LimitedBy, Limits, MIB, Pace, Remembered, Seed};

/// 100 GB take as long at 100 Gbit/s.
const SECONDS: f64 = 8.0;
/// The search is long over by then.
const FOUND_S: f64 = 3.0;

#[derive(Clone, Copy)]
struct Link {
    gbit: f64,
    /// MB a second.
    per_connection: f64,
    first_byte_ms: f64,
}

/// The median run.
struct Figures {
    /// When 90 % of the best fixed setting's rate were had, from nothing and with what that run remembered.
    reached_s: [f64; 2],
    /// Of its bytes, from the first to the last second, the same two.
    bytes: [f64; 2],
    /// Of its rate, once the search was over.
    share: f64,
    in_flight: f64,
    part_mib: f64,
    is_bound: bool,
}

impl Link {
    fn shape(&self) -> Shape {
        let mib_per_s = |mb: f64| mb * 1e6 / MIB as f64;
        shape(mib_per_s(self.per_connection), self.first_byte_ms, mib_per_s(self.gbit * 1000.0 / 8.0))
    }

    /// The smallest number of parts in flight within 2 % of the fastest, each as long as the pace's, and its
    /// rate. Nothing bounds the number.
    fn best_fixed(&self) -> (u32, f64) {
        let calm = Shape { noise: 0.0, ..self.shape() };
        let lasts = (20.0 * calm.first_byte).clamp(0.25, 1.25);
        let part_mib = (calm.per_connection * lasts).round().min(64.0);
        let all = [0.8, 0.9, 1.0, 1.1, 1.2, 1.4].map(|times| {
            let level = (times * calm.total / calm.per_connection).round() as u32;
            (level, run(&calm, Control::Fixed(level, part_mib), FOUND_S, 1).rate(1.0, FOUND_S))
        });
        let most = all.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        all.into_iter().find(|(_, rate)| *rate >= 0.98 * most).expect("one is the best")
    }

    fn figures(&self, most: u32, best: f64) -> Figures {
        let start = Instant::now();
        let limits = Limits { most, ..Limits::default() };
        let paced = |remembered: Option<Remembered>, seed: u64| -> (Run, Pace) {
            let mut pace = Pace::new(Seed { remembered, cores: 32 }, limits, start);
            (run(&self.shape(), Control::Paced(&mut pace, start), SECONDS, seed), pace)
        };
        let mut all: Vec<Figures> = seeds()
            .map(|seed| {
                let (first, pace) = paced(None, seed);
                // Nothing, where the run ends amid another search: few do.
                let (second, _) = paced(pace.remember(0), seed + 1);
                Figures {
                    reached_s: [&first, &second].map(|run| run.reaches(0.9 * best)),
                    bytes: [&first, &second].map(|run| run.bytes() / (best * SECONDS)),
                    share: first.rate(FOUND_S, SECONDS) / best,
                    in_flight: first.in_flight(FOUND_S, SECONDS),
                    part_mib: pace.usual_part_bytes() as f64 / MIB as f64,
                    is_bound: matches!(pace.limited_by(), LimitedBy::Bound { .. }),
                }
            })
            .collect();
        all.sort_by(|a, b| a.share.total_cmp(&b.share));
        all.swap_remove(all.len() / 2)
    }

    /// Looks at the median run from nothing, with at most `most` in flight.
    fn told(&self, most: u32) -> Figures {
        let (level, best) = self.best_fixed();
        let found = self.figures(most, best);
        println!(
            "{:4} {:4} {:3} {most:5} | {level:4} {:6.2} | {:4.0} x {:2} | {:5.2} {:5.2} | {:.2} {:.2} | {:.2} {}",
            self.gbit,
            self.per_connection,
            self.first_byte_ms,
            best / 1024.0 / MIB as f64,
            found.in_flight,
            found.part_mib,
            found.reached_s[0],
            found.reached_s[1],
            found.bytes[0],
            found.bytes[1],
            found.share,
            if found.is_bound { "bound" } else { "" }
        );
        found
    }
}

fn head() {
    println!("Gbit MB/s  ms  most | best  GiB/s | in flight | 90% at, s   | of 8 s    | then");
}

fn links(gbit: f64) -> impl Iterator<Item = Link> {
    [(90.0, 10.0), (90.0, 30.0), (250.0, 10.0), (250.0, 30.0)]
        .into_iter()
        .map(move |(per_connection, first_byte_ms)| Link { gbit, per_connection, first_byte_ms })
}

fn check(found: &[Figures]) {
    for found in found {
        assert!(found.share >= 0.9 && !found.is_bound, "{} of best fixed", found.share);
        assert!(found.reached_s[0] <= 2.0, "90 % after {} s", found.reached_s[0]);
        assert!(found.reached_s[1] <= 1.0, "90 % after {} s, remembered", found.reached_s[1]);
    }
}

#[test]
fn a_link_of_100_gbit_is_filled() {
    head();
    check(&links(100.0).map(|link| link.told(LEVEL_MOST)).collect::<Vec<_>>());
}

/// Connections of 90 MB/s need more than [`LEVEL_MOST`] for that: these carry 0.87 of the best.
#[test]
fn a_link_of_400_gbit_is_filled_as_far_as_the_bound_allows() {
    head();
    let (bound, free): (Vec<Figures>, Vec<Figures>) =
        links(400.0).map(|link| link.told(LEVEL_MOST)).partition(|found| found.is_bound);
    let higher: Vec<Figures> = links(400.0).take(2).map(|link| link.told(2 * LEVEL_MOST)).collect();
    assert_eq!(bound.len(), 2);
    assert!(bound.iter().all(|found| found.share >= 0.84 && found.in_flight > 490.0));
    check(&free);
    check(&higher);
}
