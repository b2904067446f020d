//! How many bytes had landed when: a thread that looks every 20 ms, and the best window in what it saw.

use std::io::Write;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::bench::run::{ByteSample, median};
use crate::bench::spec::ChildMessage;

/// Fifty looks a second cost nothing that could be measured, and ten of them make the shortest window's edge
/// 5 %.
const INTERVAL: Duration = Duration::from_millis(20);

/// Progress goes to the parent with every fifth look: ten times a second.
const PROGRESS_EVERY: usize = 5;

/// Runs under this are judged by a window of 100 ms instead of one second.
const SHORT_RUN_S: f64 = 3.0;

/// The thread that looks.
pub struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<Vec<ByteSample>>,
}

impl Sampler {
    /// Looks with `landed_bytes` from now on; `progress` also tells the parent.
    pub fn start(start: Instant, progress: bool, landed_bytes: impl Fn() -> u64 + Send + 'static) -> Sampler {
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let mut samples = vec![(0.0, 0)];
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let bytes = landed_bytes();
                samples.push((start.elapsed().as_secs_f64(), bytes));
                if progress && samples.len() % PROGRESS_EVERY == 0 {
                    tell(bytes);
                }
            }
            samples
        });
        Sampler { stop, thread }
    }

    /// Every look, and the end.
    pub fn finish(self, seconds: f64, bytes: u64) -> Vec<ByteSample> {
        drop(self.stop);
        let mut samples = self.thread.join().unwrap_or_default();
        samples.retain(|(at, _)| *at < seconds);
        samples.push((seconds, bytes));
        samples
    }
}

fn tell(bytes: u64) {
    let line = serde_json::to_string(&ChildMessage::Progress(bytes)).expect("an answer is plain JSON");
    // A parent that is gone takes this process with it.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// The best window's Gbit/s; of a run shorter than a window, its average.
pub fn peak_gbit(samples: &[ByteSample]) -> f64 {
    let Some(&(seconds, bytes)) = samples.last() else { return 0.0 };
    let window_s = if seconds < SHORT_RUN_S { 0.1 } else { 1.0 };
    let average = bytes as f64 / seconds.max(f64::MIN_POSITIVE);
    let starts = samples.iter().filter(|(at, _)| at + window_s <= seconds);
    let best = starts.map(|&(at, before)| (bytes_at(samples, at + window_s) - before as f64) / window_s);
    best.fold(average, f64::max) * 8.0 / 1e9
}

/// Under this a run is over before it is known what it settles at: finding that may take 2 s.
const PLATEAU_RUN_S: f64 = 2.0;
/// The rate of a moment is that of this window: what is sooner is not told apart.
pub const MOMENT_S: f64 = 0.1;

/// When a run reached 90 % of what it settled at, which is the median rate of its second half.
pub fn plateau_s(samples: &[ByteSample]) -> Option<f64> {
    let &(seconds, _) = samples.last().filter(|(seconds, _)| *seconds >= PLATEAU_RUN_S)?;
    let rate = |at: f64| (bytes_at(samples, at + MOMENT_S) - bytes_at(samples, at)) / MOMENT_S;
    let starts = || samples.iter().map(|(at, _)| *at).filter(|at| at + MOMENT_S <= seconds);
    let plateau = median(starts().filter(|at| *at >= seconds / 2.0).map(rate));
    starts().find(|at| rate(*at) >= 0.9 * plateau)
}

/// Bytes landed at a moment between two looks, on the straight line between them.
fn bytes_at(samples: &[ByteSample], moment: f64) -> f64 {
    let after = samples.partition_point(|(at, _)| *at < moment).min(samples.len() - 1);
    let (later, later_bytes) = samples[after];
    let (earlier, earlier_bytes) = samples[after.saturating_sub(1)];
    let share = if later > earlier { ((moment - earlier) / (later - earlier)).min(1.0) } else { 1.0 };
    earlier_bytes as f64 + (later_bytes as f64 - earlier_bytes as f64) * share
}

/// A bounded number of them, at even distances, the first and the last among them.
pub fn thin(samples: &[ByteSample], most: usize) -> Vec<ByteSample> {
    if samples.len() <= most {
        return samples.to_vec();
    }
    (0..most).map(|number| samples[number * (samples.len() - 1) / (most - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(samples: &[ByteSample], gbit: f64) {
        assert!((peak_gbit(samples) - gbit).abs() < 1e-6, "{} is not {gbit}", peak_gbit(samples));
    }

    #[test]
    fn the_best_window_counts() {
        const GIGABIT: u64 = 125_000_000;
        check(&[(0.0, 0), (0.05, GIGABIT)], 20.0);
        check(&[(0.0, 0), (1.0, GIGABIT)], 1.0);
        // Under 3 s: the 100 ms in which everything came.
        check(&[(0.0, 0), (1.0, 0), (1.1, GIGABIT), (2.0, GIGABIT)], 10.0);
        // From 3 s on: a whole second around them.
        check(&[(0.0, 0), (1.0, 0), (1.1, GIGABIT), (2.0, GIGABIT), (4.0, GIGABIT)], 1.0);
        check(&[], 0.0);
    }

    #[test]
    fn a_run_settles_at_the_rate_of_its_second_half() {
        // Looks 20 ms apart, `rates` of bytes a second for a tenth of a second each.
        let check = |rates: &[u64], expected: Option<f64>| {
            let mut samples = vec![(0.0, 0)];
            for rate in rates {
                for _ in 0..5 {
                    let (at, bytes) = samples[samples.len() - 1];
                    samples.push((at + 0.02, bytes + rate / 50));
                }
            }
            let found = plateau_s(&samples);
            let near = found.zip(expected).is_some_and(|(found, expected)| (found - expected).abs() < 0.06);
            assert!(near || found == expected, "{found:?} is not {expected:?} of {rates:?}");
        };
        check(&[1000; 20], Some(0.0));
        check(&[&[0, 100, 200, 400][..], &[1000; 16]].concat(), Some(0.4));
        check(&[&[0, 100][..], &[800; 8], &[1000; 20]].concat(), Some(1.0));
        check(&[1000; 19], None);
        assert_eq!(plateau_s(&[]), None);
    }

    #[test]
    fn thinned_samples_keep_both_ends() {
        let samples: Vec<ByteSample> = (0..1001_u32).map(|at| (f64::from(at), u64::from(at))).collect();
        let thinned = thin(&samples, 500);
        assert_eq!((thinned.len(), thinned[0], thinned[499]), (500, samples[0], samples[1000]));
        assert!(thinned.is_sorted_by(|one, next| one.1 < next.1));
        assert_eq!(thin(&samples[..500], 500), samples[..500]);
        assert_eq!(thin(&[], 500), []);
    }
}
