//! Small objects: requests that are over soon after they are answered. A round of what they carry is long
//! beside them, and their bodies are over before they are seen. But how long they take tells at once whether
//! more in flight bring more: as long as they take no longer, each counts in full.

use super::Sample;
use super::meter::SATURATED;

/// Requests that take this many times what they took at best wait for each other.
const LATE: f64 = 1.5;

/// How far above rate times the least duration to stand, beside the margin of every level: where requests
/// vary, some slots would be idle.
const ROOM: f64 = 1.15;

/// Fewer in flight are multiplied by four: other clients begin with as many.
const FEW: f64 = 32.0;

/// The fewest answers that say something.
const ANSWERS_LEAST: f64 = 8.0;

/// A window ends with the answers that it has once it has lasted this many times the least duration.
const SILENCE: f64 = 8.0;

/// What the answers since the last finding say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Finding {
    Nothing,
    /// They came as soon as ever: as many more may be asked for.
    InTime {
        more: f64,
    },
    /// More than so many in flight only wait for each other, or for our cores.
    Knee(f64),
    /// Not small objects, or no longer.
    Larger,
}

/// Answers to small requests, gathered over half a round trip and more.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    window: Window,
    /// What a request took at best, seconds, and the bytes that it brought then.
    best: Option<(f64, f64)>,
    doubt: Doubt,
}

/// Answers came late. New connections begin slowly, so all are to be answered once more before it is
/// believed, and then for so many seconds at least.
#[derive(Clone, Copy, Debug, Default)]
enum Doubt {
    #[default]
    None,
    Young(f64),
    Late(f64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    answers: f64,
    bytes: f64,
    seconds: f64,
    /// Seconds that requests waited for their answers, that their bodies moved, that our threads were busy.
    waited: f64,
    moved: f64,
    busy: f64,
    moving: f64,
}

impl Window {
    fn add(&mut self, sample: &Sample, seconds: f64) {
        self.answers += f64::from(sample.answers);
        self.bytes += sample.bytes as f64;
        self.seconds += seconds;
        self.waited += sample.waited.as_secs_f64();
        self.moving = f64::from(sample.moving);
        self.moved += self.moving * seconds;
        self.busy += sample.busy * seconds;
    }

    /// Of one request, from its beginning to its end.
    fn takes(&self) -> f64 {
        (self.waited + self.moved) / self.answers
    }

    /// Most of those that were answered are over, and waited for most of their time.
    fn is_of_small(&self) -> bool {
        self.answers >= 2.0 * self.moving && self.waited >= self.moved
    }
}

impl Answers {
    /// A tick of `seconds`, at that level.
    pub(crate) fn on_tick(&mut self, sample: &Sample, seconds: f64, level: f64) -> Finding {
        if sample.is_held_up() {
            self.window = Window::default();
            return Finding::Nothing;
        }
        self.window.add(sample, seconds);
        let window = self.window;
        let (enough, long) = match (self.best, self.doubt) {
            (None, _) => (level, 0.0),
            (_, Doubt::None) => (level / 2.0, 0.0),
            (_, Doubt::Young(long) | Doubt::Late(long)) => (level, long),
        };
        if window.answers < enough.max(ANSWERS_LEAST) || window.seconds < long {
            return match self.best {
                Some((best, _)) if window.seconds > SILENCE * best.max(seconds) => self.on_slow(best, level),
                _ => Finding::Nothing,
            };
        }
        let is_larger =
            self.best.is_some_and(|(_, bytes)| window.bytes > 2.0 * (bytes + 1.0) * window.answers);
        if is_larger || self.best.is_none() && !window.is_of_small() {
            return self.forget();
        }
        self.window = Window::default();
        let takes = window.takes();
        let (best, _) = *self.best.get_or_insert((takes, window.bytes / window.answers));
        if takes <= LATE * best && window.busy <= SATURATED * window.seconds {
            self.best = self.best.map(|(best, bytes)| (best.min(takes), bytes));
            self.doubt = Doubt::None;
            let each = if level < FEW { 3.0 } else { 1.0 };
            return Finding::InTime { more: each * window.answers.min(level) };
        }
        self.on_late(window, best, takes)
    }

    /// Answers came late, which is believed the third time.
    fn on_late(&mut self, window: Window, best: f64, takes: f64) -> Finding {
        self.doubt = match self.doubt {
            Doubt::None => Doubt::Young(takes),
            Doubt::Young(_) => Doubt::Late(takes),
            Doubt::Late(_) => return self.knee(window, best),
        };
        Finding::Nothing
    }

    /// A window that has lasted too long for its few answers.
    fn on_slow(&mut self, best: f64, level: f64) -> Finding {
        let window = std::mem::take(&mut self.window);
        match window.moving >= level / 2.0 {
            true => self.forget(),
            false if window.answers < ANSWERS_LEAST => Finding::Nothing,
            false => self.on_late(window, best, window.takes()),
        }
    }

    fn knee(&mut self, window: Window, best: f64) -> Finding {
        self.doubt = Doubt::None;
        Finding::Knee(window.answers / window.seconds * best * ROOM)
    }

    fn forget(&mut self) -> Finding {
        *self = Answers::default();
        Finding::Larger
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::pace::Gated;

    const TICK: f64 = 0.025;

    /// A tick in which every one in flight was answered once, after so long, with 128 KiB.
    fn answered(in_flight: u32, after_ms: u64) -> Sample {
        Sample {
            bytes: u64::from(in_flight) << 17,
            in_flight,
            answers: in_flight,
            waited: Duration::from_millis(after_ms) * in_flight,
            ..Sample::default()
        }
    }

    /// The finding of the last of these ticks, all at the last one's level.
    fn last(samples: &[Sample]) -> Finding {
        let mut answers = Answers::default();
        let level = |sample: &Sample| f64::from(sample.in_flight);
        samples
            .iter()
            .map(|sample| answers.on_tick(sample, TICK, level(sample)))
            .last()
            .expect("there are some")
    }

    #[test]
    fn as_long_as_answers_come_in_time_more_are_asked_for() {
        assert_eq!(last(&[answered(16, 20)]), Finding::InTime { more: 48.0 });
        assert_eq!(last(&[answered(16, 20), answered(64, 29)]), Finding::InTime { more: 64.0 });
        // Few of those that wait far away.
        let some = Sample { answers: 3, ..answered(16, 20) };
        assert_eq!(last(&[some]), Finding::Nothing);
    }

    #[test]
    fn answers_that_stay_late_show_the_knee() {
        let (first, late) = (answered(16, 20), answered(64, 50));
        assert_eq!(last(&[first, late]), Finding::Nothing);
        // What connections in their first round trips have kept late.
        let again = answered(64, 25);
        let matured = last(&[first, late, late, late, again, again]);
        assert_eq!(matured, Finding::InTime { more: 64.0 });
        let Finding::Knee(knee) = last(&[first, late, late, late, late, late]) else { panic!("late") };
        // 64 in 25 ms, each of which might take 20 ms.
        assert!((knee / (64.0 / TICK * 0.02 * ROOM) - 1.0).abs() < 0.01, "{knee}");
        let busy = Sample { busy: 0.95, ..answered(64, 21) };
        assert!(matches!(last(&[first, busy, busy, busy]), Finding::Knee(_)));
        // Hardly any.
        let slow = Sample { answers: 2, ..answered(64, 300) };
        let samples: Vec<Sample> = std::iter::once(first).chain(std::iter::repeat_n(slow, 27)).collect();
        let Finding::Knee(knee) = last(&samples) else { panic!("slow") };
        assert!(knee < 3.0, "{knee}");
    }

    #[test]
    fn bodies_that_last_are_not_of_small_objects() {
        let begins = Sample { moving: 16, ..answered(16, 20) };
        assert_eq!(last(&[begins]), Finding::Larger);
        // A second later each has had another part.
        let moves = Sample { moving: 16, in_flight: 16, ..Sample::default() };
        let mut samples = vec![moves; 40];
        samples.push(begins);
        assert_eq!(last(&samples), Finding::Larger);
        let larger = Sample { bytes: 16 << 20, ..answered(16, 20) };
        assert_eq!(last(&[answered(16, 20), larger]), Finding::Larger);
        let mut samples = vec![answered(16, 20)];
        samples.extend([moves; 9]);
        assert_eq!(last(&samples), Finding::Larger);
    }

    #[test]
    fn what_is_held_up_says_nothing() {
        let gated = Gated { requests: 8, ..Gated::default() };
        for odd in [
            Sample { starved: true, ..answered(16, 20) },
            Sample { gated, ..answered(16, 20) },
            Sample { in_flight: 16, ..Sample::default() },
        ] {
            assert_eq!(last(&[answered(16, 20), odd]), Finding::Nothing);
        }
    }
}
