//! The climb: which level to try next, from what the levels tried so far carried.
//!
//! ```text
//!   rate │          ┌─────────────── total       Ramp   doubles while a doubling brings a fifth of itself or more
//!        │        ╱ :                            Fall   halves while half carries the same, if the seed was too high
//!        │      ╱   :                            Hold   stands at the knee times MARGIN
//!        │    ╱     :                            Up     tries a quarter more: free, finds a total that has grown
//!        │  ╱       :                            Dip    tries 15 % less: its loss says where the knee is
//!        └──────────┴───────────────  in flight
//!                  knee
//! ```
//!
//! The knee is never seen itself. While less in flight than it carries less, `less × rate(Hold) / rate(less)` is where
//! it lies; when less carries the same, that is a bound above it. So one formula moves the level up where every attempt
//! counts, down where some do not, and leaves it where it should be. Noise moves it, too: each finding counts by how
//! sure it is (a Kalman filter of one number, the knee's logarithm).

use super::meter::{Glance, Span};

/// A step is worth it when it brings this share of what it would if every attempt brought the same.
const WORTH: f64 = 0.2;

/// How far above the knee to stand: with `DIP` it stands still where an attempt more brings a quarter of its share.
const MARGIN: f64 = 1.1;
const DIP: f64 = 0.86;
const DIP_MOST: f64 = 0.5;
const UP: f64 = 1.2;

/// How many rounds each phase is measured for.
const HOLD_ROUNDS: f64 = 7.0;
const UP_ROUNDS: f64 = 2.0;
const UP_ROUNDS_MOST: f64 = 6.0;
const DIP_ROUNDS: f64 = 3.0;

/// The noise of one round that is taken for granted, as a variance of the rate's logarithm: 3 %.
const NOISE_LEAST: f64 = 0.03 * 0.03;

/// How the knee moves between two findings, as a variance of its logarithm: 4 %.
const DRIFT: f64 = 0.04 * 0.04;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// The first level of all.
    Seed { rounds: u32 },
    /// Twice the level of `base`. `proven`: base itself was worth its step.
    Ramp { base: Span, proven: bool, tries: u32 },
    /// A quarter of the level of `base`, or on the way there.
    Fall { base: Span },
    Hold { rounds: f64 },
    Up,
    Dip,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Climb {
    phase: Phase,
    level: f64,
    least: f64,
    most: f64,
    /// The first step from the seed.
    step: f64,
    /// Where more in flight begins to bring nothing, as a logarithm, and the variance of that.
    knee: f64,
    doubt: f64,
    /// What the level of Hold carries, the past forgotten slowly.
    held: Span,
    /// The last round of Hold.
    last: Option<Span>,
    /// What this probe has measured so far.
    probe: Span,
    /// What the last Up carried beside `held`: the figure that proves the plateau.
    tried: Option<(Span, Span)>,
    depth: f64,
    rose: f64,
    /// The ramp began from Hold, and nothing was found yet.
    home: bool,
    /// Ups between two dips, and since the last.
    calm: u32,
    since_dip: u32,
    noise: f64,
}

impl Climb {
    pub(super) fn new(seed: f64, step: f64, least: f64, most: f64) -> Climb {
        let level = seed.clamp(least, most);
        Climb {
            phase: Phase::Seed { rounds: 0 },
            level,
            least,
            most,
            step,
            knee: level.ln(),
            doubt: 0.0,
            held: Span::default(),
            last: None,
            probe: Span::default(),
            tried: None,
            depth: DIP,
            noise: 0.01,
            calm: 1,
            rose: 0.0,
            home: false,
            since_dip: 0,
        }
    }

    pub(super) fn is_ramping(&self) -> bool {
        matches!(self.phase, Phase::Seed { .. } | Phase::Ramp { .. } | Phase::Fall { .. })
    }

    pub(super) fn brief(&self) -> String {
        let phase = format!("{:?}", self.phase);
        let name = phase.split([' ', '{']).next().unwrap_or_default().to_owned();
        format!("{name:5} level {:.1} knee {:.1} doubt {:.3} noise {:.3} depth {:.2} calm {}", self.level, self.knee.exp(), self.doubt.sqrt(), self.noise.sqrt(), self.depth, self.calm)
    }

    pub(super) fn level(&self) -> f64 {
        self.level
    }

    /// A round of the present level has ended, and this is what its last part looked like: the level may be another now.
    pub(super) fn on_round(&mut self, round: Span, glance: Option<Glance>, slow: u32) {
        match self.phase {
            Phase::Seed { rounds } => self.on_seed(rounds, round, glance),
            Phase::Ramp { base, proven, tries } => self.on_ramp(base, proven, tries, round, glance, slow),
            Phase::Fall { base } => self.on_fall(base, round),
            Phase::Hold { rounds } => self.on_hold(rounds + 1.0, round),
            Phase::Up => self.on_up(round),
            Phase::Dip => self.on_dip(round),
        }
    }

    /// A look before the round is over, `rounds` after the level was set: a ramp need not wait where the gain is plain.
    pub(super) fn on_glance(&mut self, glance: Glance, rounds: f64) -> bool {
        let span = glance.span;
        match self.phase {
            Phase::Ramp { mut base, proven, tries } if !glance.fresh => {
                base.raise(span.rate());
                self.phase = Phase::Ramp { base, proven, tries };
                false
            }
            Phase::Ramp { base, .. } if gain(&base, &span) >= 0.4 => {
                self.home = false;
                let step = if rounds >= 2.0 && self.level < 48.0 { 4.0 } else { 2.0 };
                self.ramp(span, true, step);
                true
            }
            Phase::Fall { base } if glance.in_flight < 0.9 * base.level() && glance.in_flight > 1.1 * self.level && span.rate() < 0.85 * base.rate() => {
                self.level = glance.in_flight;
                self.phase = Phase::Fall { base };
                true
            }
            _ => false,
        }
    }

    fn on_seed(&mut self, rounds: u32, round: Span, glance: Option<Glance>) {
        let last = glance.map_or(round, |glance| glance.span);
        if rounds < 3 && (round.rate() == 0.0 || last.rate() > 1.3 * round.rate()) {
            self.phase = Phase::Seed { rounds: rounds + 1 };
            return;
        }
        self.ramp(last, false, self.step);
    }

    fn ramp(&mut self, base: Span, proven: bool, step: f64) {
        if self.level >= self.most {
            return if proven { self.stand(self.most / MARGIN) } else { self.fall(base) };
        }
        self.level = (self.level * step).min(self.most);
        self.phase = Phase::Ramp { base, proven, tries: 0 };
    }

    fn on_ramp(&mut self, base: Span, proven: bool, tries: u32, round: Span, glance: Option<Glance>, slow: u32) {
        if gain(&base, &round) >= WORTH {
            self.home = false;
            return self.ramp(round, true, 2.0);
        }
        let rises = glance.is_some_and(|glance| glance.span.rate() > 1.05 * round.rate());
        if tries < 1 + slow || (tries < 5 && rises) {
            self.phase = Phase::Ramp { base, proven, tries: tries + 1 };
            return;
        }
        if std::mem::take(&mut self.home) {
            return self.hold();
        }
        if !proven {
            return self.fall(base);
        }
        let knee = base.level() * (round.rate() / base.rate()).clamp(1.0, round.level() / base.level());
        self.stand(knee);
    }

    fn fall(&mut self, base: Span) {
        self.level = (base.level() / 4.0).max(self.least);
        self.phase = Phase::Fall { base };
    }

    fn on_fall(&mut self, base: Span, round: Span) {
        let loss = (1.0 - round.rate() / base.rate()) / (1.0 - round.level() / base.level()).max(0.01);
        if loss >= WORTH || self.level <= self.least {
            return self.stand(round.level() * (base.rate() / round.rate()).max(1.0));
        }
        self.fall(round);
    }

    /// Takes `knee` for the knee, and stands above it.
    fn stand(&mut self, knee: f64) {
        self.knee = knee.max(1.0).ln();
        self.doubt = 0.01 + 2.0 * self.noise;
        self.held = Span::default();
        self.last = None;
        self.depth = DIP;
        self.hold();
    }

    fn hold(&mut self) {
        self.level = (self.knee.exp() * MARGIN).clamp(self.least, self.most);
        self.phase = Phase::Hold { rounds: 0.0 };
        self.probe = Span::default();
    }

    fn on_hold(&mut self, rounds: f64, round: Span) {
        if let Some(last) = self.last.replace(round) {
            let step = (round.rate() / last.rate()).ln();
            self.noise += (step * step / 2.0 - self.noise) * 0.1;
        }
        let off = (round.rate() / self.held.rate()).ln();
        let rose = if off.abs() < (2.5 * self.noise.sqrt()).max(0.08) || self.held.rounds < 2.0 { 0.0 } else { off.signum() };
        self.phase = Phase::Hold { rounds };
        if rose != 0.0 && rose == self.rose {
            self.held = round;
            self.rose = 0.0;
            return if rose > 0.0 { self.up() } else { self.dip() };
        }
        self.rose = rose;
        self.held.fade(0.85);
        self.held.add(round);
        if rounds < if self.doubt >= 0.01 { 3.0 } else { HOLD_ROUNDS } {
            return;
        }
        if self.since_dip >= self.calm {
            self.dip();
        } else {
            self.up();
        }
    }

    fn up(&mut self) {
        self.since_dip += 1;
        if self.level >= self.most {
            self.phase = Phase::Hold { rounds: 0.0 };
            return;
        }
        self.level = (self.held.level() * UP).max(self.level + 1.0).min(self.most);
        self.phase = Phase::Up;
    }

    fn dip(&mut self) {
        self.since_dip = 0;
        let needed = (-1.5 * (self.noise * 0.6).sqrt()).exp();
        self.level = (self.held.level() * self.depth.min(needed).max(DIP_MOST)).round().min(self.level - 1.0).max(self.least);
        self.phase = Phase::Dip;
    }

    /// The variance of the ratio of what the probe carried to what Hold does, as a logarithm.
    fn variance(&self) -> f64 {
        let noise = self.noise.max(NOISE_LEAST);
        noise * (1.0 / self.probe.rounds + 1.0 / self.held.rounds.max(0.5))
    }

    fn on_up(&mut self, round: Span) {
        self.probe.add(round);
        if self.probe.rounds < UP_ROUNDS {
            return;
        }
        let (held, up) = (self.held, self.probe);
        self.tried = Some((held, up));
        let brought = (up.rate() / held.rate()).ln();
        let share = brought / (up.level() / held.level()).ln();
        let sure = brought / self.variance().sqrt();
        if share >= 2.0 * WORTH && sure >= 2.5 {
            self.home = true;
            return self.ramp(held, true, 1.5);
        }
        if share >= 2.0 * WORTH && self.probe.rounds < UP_ROUNDS_MOST {
            return;
        }
        if share >= 2.0 * WORTH && sure >= 2.0 {
            self.home = true;
            return self.ramp(held, true, 1.5);
        }
        self.hold();
    }

    fn on_dip(&mut self, round: Span) {
        self.probe.add(round);
        if self.probe.rounds < DIP_ROUNDS {
            return;
        }
        let (held, dip) = (self.held, self.probe);
        let lost = (held.rate() / dip.rate()).ln();
        let found = dip.level().ln() + lost;
        let share = lost / (held.level() / dip.level()).ln();
        self.doubt += DRIFT;
        let trust = self.doubt / (self.doubt + self.variance());
        let off = found - self.knee;
        self.knee += trust * off;
        if share < WORTH {
            // Only a bound: the knee is there or lower.
            self.depth = (self.depth * self.depth).max(DIP_MOST);
            self.doubt = self.doubt.max(0.1 * 0.1);
            self.calm = 1;
            self.since_dip = 2;
        } else {
            self.depth = DIP;
            self.doubt *= 1.0 - trust;
            self.calm = if off.abs() < 0.1 { (self.calm * 2).min(6) } else { 1 };
        }
        self.hold();
    }
}

fn gain(base: &Span, span: &Span) -> f64 {
    (span.rate() / base.rate() - 1.0) / (span.level() / base.level() - 1.0).max(0.05)
}
