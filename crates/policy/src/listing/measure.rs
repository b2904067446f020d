//! How dense names lie: what a section showed so far, how many names it may have yet, and which name comes so
//! many names later.

use super::cuts::{Alphabets, Scale};

/// A cut may be this part of its distance too near: it is shorter for it.
const SLACK: u128 = 32;
/// From so many pages on, a run of names says enough by itself.
const ENOUGH_PAGES: u32 = 2;
/// A run has so many pages at most: what is near says more of what comes than what is far.
const RUN_PAGES: u32 = 4;

/// What a section has shown.
#[derive(Clone, Debug, Default)]
pub(super) struct Measure {
    older: Run,
    recent: Run,
    pages: u32,
}

/// Pages one after the other.
#[derive(Clone, Debug, Default)]
struct Run {
    seen: Alphabets,
    first: Option<String>,
    last: String,
    names: u64,
    pages: u32,
}

impl Run {
    fn is_enough(&self) -> bool {
        self.pages >= ENOUGH_PAGES
    }
}

impl Measure {
    /// A page of `names` names, of which `each` shows some.
    pub(super) fn on_page(
        &mut self,
        prefix_bytes: usize,
        names: u64,
        each: impl FnOnce(&mut dyn FnMut(&str)),
    ) {
        if names == 0 {
            return;
        }
        if self.recent.pages == RUN_PAGES {
            self.older = std::mem::take(&mut self.recent);
        }
        let run = &mut self.recent;
        each(&mut |name| {
            run.seen.learn(name, prefix_bytes);
            run.first.get_or_insert_with(|| name.to_owned());
            run.last.clear();
            run.last.push_str(name);
        });
        run.names += names;
        run.pages += 1;
        self.pages += 1;
    }

    /// Pages that had names of the section's own.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Whether it says enough without another.
    pub(super) fn is_enough(&self) -> bool {
        self.pages >= ENOUGH_PAGES
    }

    /// The last names that say enough; fewer where there are no more.
    fn run(&self) -> Option<&Run> {
        let run = if self.recent.is_enough() || self.older.pages == 0 { &self.recent } else { &self.older };
        (run.pages > 0).then_some(run)
    }
}

/// What may lie between two names.
pub(super) struct Estimate<'a> {
    scale: Scale,
    /// Names for each step of the scale.
    density: f64,
    low: &'a str,
    high: Option<&'a str>,
}

impl<'a> Estimate<'a> {
    /// Estimates the names behind `low`, up to `high` if that is known, by the density of the section's own
    /// pages. Where these are too few, the section before counts, too, and the sparser of the two is taken;
    /// `None` as long as neither has shown a density.
    pub(super) fn new(
        own: &Measure,
        before: &Measure,
        prefix_bytes: usize,
        (low, high): (&'a str, Option<&'a str>),
    ) -> Option<Estimate<'a>> {
        let before = if own.is_enough() { None } else { before.run() };
        let known = [own.run(), before];
        let mut alphabets = Alphabets::default();
        for run in known.iter().flatten() {
            let mut seen = run.seen.clone();
            if run.is_enough() || before.is_none() {
                seen.complete(run.last.get(prefix_bytes..).unwrap_or_default());
            }
            alphabets.add_all(&seen);
        }
        let firsts = known.iter().flatten().filter_map(|known| known.first.as_deref());
        let scale = Scale::new(alphabets, prefix_bytes, (firsts.min(), low, high));
        // The sparser of the two: a cut that is too far can be mended by another one, one that is too near
        // costs a request.
        let densities = known.iter().flatten().filter_map(|known| {
            let first = known.first.as_deref()?;
            let distance = scale.number(&known.last).saturating_sub(scale.number(first));
            (distance > 0).then(|| known.names as f64 / distance as f64)
        });
        let density = densities.reduce(f64::min)?;
        Some(Estimate { scale, density, low, high })
    }

    /// How many names there may be; endless where no end is known.
    pub(super) fn names(&self) -> f64 {
        let Some(high) = self.high else { return f64::INFINITY };
        self.scale.number(high).saturating_sub(self.scale.number(self.low)) as f64 * self.density
    }

    /// A cut behind which the next come when so many names have been shown; none where it would not be
    /// between the two. Where no end is known the cut is half-way to the end of the scale at most, as long as
    /// `least` names may come before it.
    pub(super) fn cut_behind(&self, names: f64, least: f64) -> Option<String> {
        let low = self.scale.number(self.low);
        let mut distance = (names / self.density) as u128;
        if self.high.is_none() && distance > self.scale.left(low) / 2 {
            distance = self.scale.left(low) / 2;
            if (distance as f64) * self.density < least {
                return None;
            }
        }
        let cut = self.scale.name(low.checked_add(distance)?, distance / SLACK)?;
        (cut.as_str() > self.low && self.high.is_none_or(|high| cut.as_str() < high)).then_some(cut)
    }
}
