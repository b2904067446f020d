//! What held a run's speed back, as a line; [`Limited`] is what events say.

use flatout_engine::LimitedBy;
pub use flatout_mounting::{Limited, says};

/// Runs under this end before there is much to say about them.
const WORTH_SAYING_S: f64 = 1.0;

/// The line at the end of a run that took so long.
pub fn line(by: Option<LimitedBy>, seconds: f64) -> Option<String> {
    by.filter(|_| seconds >= WORTH_SAYING_S).map(|by| format!("limited by {}", says(by)))
}

#[cfg(test)]
mod tests {
    use flatout_engine::Bound;

    use super::*;

    #[test]
    fn short_runs_have_no_line() {
        let by = LimitedBy::Parallel { bound: Bound::Parallel, parallel: 8, bytes_per_s: 2048 };
        let says = "limited by --parallel: 8 in flight carry 2KiB/s";
        assert_eq!(
            (line(Some(by), 2.0).as_deref(), line(Some(by), 0.5), line(None, 2.0)),
            (Some(says), None, None)
        );
    }
}
