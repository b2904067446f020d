//! The climb: which level to try next, from what the levels tried so far carried.
//!
//! ```text
//!   rate │          ┌───────────── total      Ramp  doubles while that brings a fifth of a doubling or more
//!        │        ╱ :                         Fall  quarters while that loses nothing: the seed was too high
//!        │      ╱   :                         Hold  stands at the knee times MARGIN
//!        │    ╱     :                         Up    tries a fifth more: costs no bytes, finds a total that has grown
//!        │  ╱       :                         Dip   tries a seventh less: what that loses says where the knee is
//!        └──────────┴───────────  in flight
//!                  knee
//! ```
//!
//! The knee itself is not seen. But `level(Dip) × rate(Hold) / rate(Dip)` is the knee when it lies between
//! the two; it is the level of Hold when every attempt still counts, and that of Dip when the last ones do
//! not. As Hold stands MARGIN above what was found, one formula goes up where it should, down where it
//! should, and rests where it should. It is no comparison with a threshold: noise moves it by little and to
//! both sides, and each finding counts by how sure it is (a Kalman filter of one number). Hill climbers that
//! accept or refuse steps of 2 % are moved by noise alone, and those that stop probing keep what they found
//! by chance (reference/cli.md §7).

use super::answers::Finding;
use super::meter::{Glance, Span};

/// A step is worth it when it brings this share of what it would if every attempt brought the same: azcopy
/// and AnyBlob found the same fifth.
const WORTH: f64 = 0.2;
/// Enough to go on doubling at a glance, with connections that still begin.
const PLAIN: f64 = 0.4;

/// How far above the knee to stand. With `DIP` it rests where an attempt more brings a third of its share.
const MARGIN: f64 = 1.1;
const DIP: f64 = 0.86;
/// The deepest dip: each that loses nothing is followed by a deeper one, up to this; then it falls.
const DIP_DEEPEST: f64 = 0.5;
/// How many deviations of a round's noise a dip is deep at least.
const DIP_SEEN: f64 = 1.6;
const UP: f64 = 1.2;
/// The first one of a level that was only remembered.
const UP_REMEMBERED: f64 = 1.5;

/// How many rounds each is measured for. An Up that looks good is measured longer before it is believed.
const HOLD_ROUNDS: u32 = 7;
const HOLD_ROUNDS_IN_DOUBT: u32 = 3;
const UP_ROUNDS: f64 = 2.0;
const UP_ROUNDS_MOST: f64 = 6.0;
const DIP_ROUNDS: f64 = 3.0;

/// How many Ups stand between two Dips at most, while these find what is known.
const CALM_MOST: u32 = 6;

/// At the highest level, the answers of two round trips are looked at: the first were asked for before it.
const IN_TIME_AT_MOST: u32 = 4;

/// Variances, of logarithms. Noise of a round: at first, and at least. How the knee moves between two
/// findings. What is not known of it after a ramp, and when it was only remembered.
const NOISE_FIRST: f64 = 0.1 * 0.1;
const NOISE_LEAST: f64 = 0.03 * 0.03;
const DRIFT: f64 = 0.04 * 0.04;
const DOUBT: f64 = 0.1 * 0.1;
const DOUBT_REMEMBERED: f64 = 0.3 * 0.3;

/// What a throttle verdict leaves of the level, and for how many rounds nothing is doubled after it.
const THROTTLED: f64 = 0.7;
const CAREFUL_ROUNDS: u32 = 100;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The first level of all, until it is fully under way: its first parts end together, so its best moment
    /// counts.
    Seed {
        rounds: u32,
        best: f64,
    },
    /// Above `base`, for `tries` rounds so far. `proven`: a ramp has brought something before.
    Ramp {
        base: Span,
        proven: bool,
        tries: u32,
    },
    /// Small objects are asked for, and how soon they are answered decides. `in_time`: how often
    /// they came in time at the highest level.
    Answers {
        in_time: u32,
    },
    /// Under `base`, or on the way there.
    Fall {
        base: Span,
    },
    Hold {
        rounds: u32,
    },
    Up,
    Dip,
}

/// Where a climb begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Start {
    /// To be doubled, or multiplied by what is given, at once.
    Guess { level: f64, step: f64 },
    /// To be stood at, and tried.
    Remembered { level: f64 },
}

/// What a climb knows of the knee.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Standing {
    Climbing,
    /// A verdict "later" cut the level not long ago.
    Throttled,
    /// As high as may be, and more might carry more.
    Bound,
    /// What is carried, and what more in flight carried last; not known of a level that was only remembered.
    Knee {
        held: Span,
        tried: Option<Span>,
    },
}

#[derive(Debug)]
pub(crate) struct Climb {
    phase: Phase,
    start: Start,
    level: f64,
    least: f64,
    most: f64,
    /// The knee as a logarithm, and the variance of that.
    knee: f64,
    doubt: f64,
    /// The variance of one round's rate, as a logarithm.
    noise: f64,
    /// What the level of Hold carries, the past forgotten slowly; the last round of it; and which way that
    /// was off.
    held: Span,
    last: Option<Span>,
    off: f64,
    /// What this Up or Dip carries.
    probe: Span,
    /// What was carried by more in flight than were worth it, when that was tried last.
    tried: Option<Span>,
    /// This ramp began at a knee that was known, and has found nothing yet.
    from_knee: bool,
    /// The knee was only remembered, and nothing has been lost or won by looking yet.
    is_from_last_run: bool,
    /// How deep the next Dip is.
    depth: f64,
    /// Ups from one Dip to the next, and since the last.
    calm: u32,
    ups: u32,
    careful: u32,
}

impl Climb {
    pub(crate) fn new(start: Start, least: f64, most: f64) -> Climb {
        let (Start::Guess { level, .. } | Start::Remembered { level }) = start;
        let level = level.clamp(least, most);
        Climb {
            phase: Phase::Seed { rounds: 0, best: 0.0 },
            start,
            level,
            least,
            most,
            knee: level.ln(),
            doubt: DOUBT,
            noise: NOISE_FIRST,
            held: Span::default(),
            last: None,
            off: 0.0,
            probe: Span::default(),
            tried: None,
            from_knee: false,
            is_from_last_run: matches!(start, Start::Remembered { .. }),
            depth: DIP,
            calm: 1,
            ups: 0,
            careful: 0,
        }
    }

    pub(crate) fn level(&self) -> f64 {
        self.level
    }

    /// Another bound from now on.
    pub(crate) fn set_most(&mut self, most: f64) {
        self.most = most.max(self.least);
        self.level = self.level.min(self.most);
    }

    /// Whether the level is being looked for, and may soon be another.
    pub(crate) fn is_climbing(&self) -> bool {
        !matches!(self.phase, Phase::Hold { .. } | Phase::Up | Phase::Dip)
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.level >= self.most {
            _ if self.careful > 0 => Standing::Throttled,
            _ if self.is_climbing() => Standing::Climbing,
            true => Standing::Bound,
            false => Standing::Knee { held: self.held, tried: self.tried },
        }
    }

    /// Where it would stand now, when that has been found: what was only remembered has not, before a dip has
    /// looked.
    pub(crate) fn found(&self) -> Option<f64> {
        (!self.is_climbing() && !self.is_from_last_run).then(|| self.standing_level())
    }

    /// The origin has asked for less. Called once for each round trip.
    pub(crate) fn on_throttled(&mut self) {
        self.careful = CAREFUL_ROUNDS;
        self.stand(self.level * THROTTLED / MARGIN);
    }

    /// Whether answers may say more than rounds do. What was only remembered is tried first.
    pub(crate) fn may_go_by_answers(&self) -> bool {
        match self.phase {
            Phase::Answers { .. } | Phase::Ramp { .. } => true,
            Phase::Seed { .. } => matches!(self.start, Start::Guess { .. }),
            Phase::Fall { .. } | Phase::Hold { .. } | Phase::Up | Phase::Dip => false,
        }
    }

    /// What the answers of a tick say; whether rounds need not be asked.
    pub(crate) fn on_answers(&mut self, finding: Finding) -> bool {
        match finding {
            Finding::Nothing => return matches!(self.phase, Phase::Answers { .. }),
            Finding::InTime { .. } if self.level >= self.most => match self.phase {
                Phase::Answers { in_time } if in_time + 1 < IN_TIME_AT_MOST => {
                    self.phase = Phase::Answers { in_time: in_time + 1 };
                }
                _ => self.stand_at_most(),
            },
            Finding::InTime { more } => {
                self.from_knee = false;
                self.level = (self.level + more).min(self.most);
                self.phase = Phase::Answers { in_time: 0 };
            }
            Finding::Knee(knee) => self.stand(knee.min(self.level)),
            Finding::Larger if matches!(self.phase, Phase::Answers { .. }) => {
                self.phase = Phase::Seed { rounds: 0, best: 0.0 };
            }
            Finding::Larger => return false,
        }
        true
    }

    /// A round of the present level has ended, and looked like `glance` in the end: the level may be another
    /// now. `slow`: how many more rounds than one new connections take to get under way.
    pub(crate) fn on_round(&mut self, round: Span, glance: Option<Glance>, slow: u32) {
        self.careful = self.careful.saturating_sub(1);
        let end = glance.map_or(round.rate(), |glance| glance.span.rate());
        match self.phase {
            Phase::Seed { rounds, best } => self.on_seed(rounds, best, round, end),
            Phase::Ramp { base, proven, tries } => {
                // What still rises, or has just begun, is not judged.
                let too_early = tries < 1 + slow || (tries < 5 && end > 1.05 * round.rate());
                match gain(&base, &round) >= WORTH {
                    true if round.is_saturated() => self.stand(round.level() / MARGIN),
                    true => self.ramp(round, true, 2.0),
                    false if too_early => self.phase = Phase::Ramp { base, proven, tries: tries + 1 },
                    false => self.end_ramp(base, proven, round),
                }
            }
            Phase::Answers { .. } => {}
            Phase::Fall { base } => self.on_fall(base, round),
            Phase::Hold { rounds } => self.on_hold(rounds + 1, round),
            Phase::Up => self.on_up(round),
            Phase::Dip => self.on_dip(round),
        }
    }

    /// A look before the round is over; true when that was enough, and the level is another now.
    pub(crate) fn on_glance(&mut self, glance: Glance) -> bool {
        let span = glance.span;
        match self.phase {
            Phase::Seed { rounds, best } => {
                self.phase = Phase::Seed { rounds, best: best.max(span.rate()) };
                false
            }
            // The level before has got further meanwhile.
            Phase::Ramp { mut base, proven, tries } if !glance.fresh => {
                base.raise(span.rate());
                self.phase = Phase::Ramp { base, proven, tries };
                false
            }
            Phase::Ramp { base, .. } if gain(&base, &span) >= PLAIN && !span.is_saturated() => {
                // An answer that took two rounds was worth two doublings, where that does not open too many.
                let step = if glance.age >= 2.0 && self.level < 48.0 { 4.0 } else { 2.0 };
                self.ramp(span, true, step);
                true
            }
            // The knee was passed on the way down: measure here, not where the rate is a quarter.
            Phase::Fall { base } if is_past_knee(&base, &glance, self.level) => {
                self.level = glance.in_flight;
                true
            }
            _ => false,
        }
    }

    fn on_seed(&mut self, rounds: u32, best: f64, mut round: Span, end: f64) {
        if rounds < 4 && end > 1.1 * round.rate() {
            self.phase = Phase::Seed { rounds: rounds + 1, best };
            return;
        }
        match self.start {
            Start::Guess { .. } if round.is_saturated() => self.fall(round),
            Start::Guess { step, .. } => {
                round.raise(best);
                self.ramp(round, false, step);
            }
            Start::Remembered { level } => {
                self.stand(level / MARGIN);
                (self.doubt, self.depth) = (DOUBT_REMEMBERED, DIP * DIP);
            }
        }
    }

    fn ramp(&mut self, base: Span, proven: bool, step: f64) {
        self.from_knee &= !proven;
        self.is_from_last_run = false;
        if self.level < self.most {
            self.level = (self.level * step).min(self.most);
            self.phase = Phase::Ramp { base, proven, tries: 0 };
        } else if proven {
            self.stand_at_most();
        } else {
            self.fall(base);
        }
    }

    fn stand_at_most(&mut self) {
        self.stand(self.most / MARGIN);
        (self.doubt, self.calm) = (DRIFT, CALM_MOST);
    }

    /// More in flight than `base` bring nothing worth while.
    fn end_ramp(&mut self, base: Span, proven: bool, round: Span) {
        self.tried = Some(round);
        if std::mem::take(&mut self.from_knee) {
            self.hold();
        } else if proven {
            self.stand(base.level() * (round.rate() / base.rate()).clamp(1.0, round.level() / base.level()));
        } else {
            self.fall(base);
        }
    }

    fn fall(&mut self, base: Span) {
        self.tried = Some(base);
        self.level = (base.level() / 4.0).max(self.least);
        self.phase = Phase::Fall { base };
    }

    fn on_fall(&mut self, base: Span, round: Span) {
        let lost = (1.0 - round.rate() / base.rate()) / (1.0 - round.level() / base.level()).max(0.05);
        if lost >= WORTH || self.level <= self.least {
            self.stand(round.level() * (base.rate() / round.rate()).max(1.0));
        } else {
            self.fall(round);
        }
    }

    /// Takes `knee` for the knee, with some doubt, and stands above it.
    fn stand(&mut self, knee: f64) {
        self.knee = knee.max(1.0).ln();
        self.doubt = DOUBT + 2.0 * self.noise;
        self.held = Span::default();
        self.last = None;
        self.depth = DIP;
        (self.calm, self.ups) = (1, 0);
        self.from_knee = false;
        self.hold();
    }

    fn standing_level(&self) -> f64 {
        (self.knee.exp() * MARGIN).clamp(self.least, self.most)
    }

    fn hold(&mut self) {
        self.level = self.standing_level();
        self.phase = Phase::Hold { rounds: 0 };
        self.probe = Span::default();
    }

    fn on_hold(&mut self, rounds: u32, round: Span) {
        self.phase = Phase::Hold { rounds };
        if let Some(last) = self.last.replace(round) {
            let step = (round.rate() / last.rate()).ln();
            self.noise += (step * step / 2.0 - self.noise) * 0.1;
        }
        // Two rounds in a row that are off to the same side: something has changed, look at once.
        let off = (round.rate() / self.held.rate()).ln();
        let is_news = self.held.rounds() >= 2.0 && off.abs() > (2.5 * self.noise.sqrt()).max(0.08);
        let before = std::mem::replace(&mut self.off, if is_news { off } else { 0.0 });
        if before * self.off > 0.0 {
            self.held = round;
            self.off = 0.0;
            return if off > 0.0 { self.up() } else { self.dip() };
        }
        self.held.fade(0.85);
        self.held.add(round);
        let in_haste = self.doubt >= DOUBT && self.careful == 0;
        let wanted = if in_haste { HOLD_ROUNDS_IN_DOUBT } else { HOLD_ROUNDS };
        if rounds < wanted {
        } else if self.ups >= self.calm {
            self.dip();
        } else {
            self.up();
        }
    }

    fn up(&mut self) {
        self.ups += 1;
        if self.level >= self.most || self.held.is_saturated() {
            self.phase = Phase::Hold { rounds: 0 };
            return;
        }
        let step = if self.doubt >= DOUBT_REMEMBERED { UP_REMEMBERED } else { UP };
        self.level = (self.level * step).max(self.level + 1.0).min(self.most);
        self.phase = Phase::Up;
    }

    /// Where rates are noisy a dip must be deep to be seen.
    fn dip(&mut self) {
        self.ups = 0;
        let seen = (-DIP_SEEN * self.noise.sqrt()).exp();
        let depth = self.depth.min(seen).max(DIP_DEEPEST);
        self.level = (self.level * depth).round().min(self.level - 1.0).max(self.least);
        self.phase = Phase::Dip;
    }

    /// Of the rate of the probe beside that of Hold, as a logarithm.
    fn variance(&self) -> f64 {
        self.noise.max(NOISE_LEAST) * (1.0 / self.probe.rounds() + 1.0 / self.held.rounds().max(0.5))
    }

    fn on_up(&mut self, round: Span) {
        self.probe.add(round);
        if self.probe.rounds() < UP_ROUNDS {
            return;
        }
        let (held, up) = (self.held, self.probe);
        let brought = (up.rate() / held.rate()).ln();
        let sure = brought / self.variance().sqrt();
        let long = up.rounds() >= UP_ROUNDS_MOST;
        if brought < 2.0 * WORTH * (up.level() / held.level()).ln() || (long && sure < 2.0) {
            self.tried = Some(up);
            self.hold();
        } else if long || sure >= 2.5 {
            if self.careful > 0 || self.level >= self.most {
                return self.stand(up.level() / MARGIN);
            }
            self.ramp(held, false, if sure >= 4.0 { 2.0 } else { 1.5 });
            self.from_knee = true;
        }
    }

    fn on_dip(&mut self, round: Span) {
        self.probe.add(round);
        if self.probe.rounds() < DIP_ROUNDS {
            return;
        }
        self.is_from_last_run = false;
        let (held, dip) = (self.held, self.probe);
        let lost = (held.rate() / dip.rate()).ln();
        self.doubt += DRIFT;
        let trust = self.doubt / (self.doubt + self.variance());
        let off = dip.level().ln() + lost - self.knee;
        self.knee += trust * off;
        if lost >= WORTH * (held.level() / dip.level()).ln() {
            self.doubt *= 1.0 - trust;
            self.depth = DIP;
            self.calm = if off.abs() < 0.1 { (self.calm * 2).min(CALM_MOST) } else { 1 };
            return self.hold();
        }
        // Nothing is lost: the knee is here or lower, by how much is not known.
        if self.depth <= DIP_DEEPEST {
            return self.fall(dip);
        }
        self.depth = (self.depth * self.depth).max(DIP_DEEPEST);
        self.doubt = self.doubt.max(DOUBT);
        (self.calm, self.ups) = (1, 1);
        self.hold();
    }
}

/// What `span` brought over `base`, as a share of what its attempts would bring if each counted as much.
fn gain(base: &Span, span: &Span) -> f64 {
    (span.rate() / base.rate() - 1.0) / (span.level() / base.level() - 1.0).max(0.05)
}

/// Whether the level has sunk so far from that of `base` that the rate has, and is still far above `aim`.
fn is_past_knee(base: &Span, glance: &Glance, aim: f64) -> bool {
    let in_flight = glance.in_flight;
    in_flight < 0.9 * base.level() && in_flight > 1.1 * aim && glance.span.rate() < 0.85 * base.rate()
}
