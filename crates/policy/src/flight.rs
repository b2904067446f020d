//! The parts of a transfer that are on their way, and the end game: when none is left to take, the rest of
//! the slowest is shared with whoever is free. Its owner stops where the other begins: no byte is asked of
//! two who both bring it.
//!
//! ```text
//!   a part:  ████████▓▓▓░░░░░░░|░░░░░░░░     █ landed  ▓ claimed: being received  ░ nobody's yet
//!            owner's           ^ cut: from here on another's
//! ```

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A part is cut where that brings its end nearer by so much: below it, another request is not worth while.
const GAIN_MIN: Duration = Duration::from_millis(100);
/// And by so many first bytes, since that long nothing comes of the other half.
const GAIN_FIRST_BYTES: u32 = 2;
/// Neither half is shorter: for less another connection does not get going.
const HALF_MIN_BYTES: u64 = 512 << 10;
/// Parts are cut at multiples of so much of the object: a whole number of pages.
const CUT_BYTES: u64 = 64 << 10;
/// What must have landed of a part before its own rate counts; before that it is as fast as those before it.
const KNOWN_BYTES: u64 = 256 << 10;

/// Those of one transfer.
#[derive(Debug, Default)]
pub struct InFlightParts(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    in_flight_parts: Vec<Arc<InFlightPart>>,
    /// Bytes a second of a part, and how long its first byte took, in the mean.
    rate: Option<f64>,
    first_byte_s: Option<f64>,
}

/// One part on its way.
#[derive(Debug)]
pub struct InFlightPart {
    begun: Instant,
    start: u64,
    stretch: Mutex<SharedRange>,
}

#[derive(Debug)]
struct SharedRange {
    /// Up to here its owner may be receiving.
    claimed: u64,
    landed: u64,
    end: u64,
    /// Where it ended when it began.
    asked_end: u64,
    may_be_cut: bool,
}

/// A part's place among the others for as long as it lives.
pub struct PartShare<'a> {
    in_flight_parts: &'a InFlightParts,
    flight: Arc<InFlightPart>,
}

impl InFlightParts {
    /// A part begins its flight.
    pub fn start(&self, range: &Range<u64>, now: Instant) -> PartShare<'_> {
        let (start, end) = (range.start, range.end);
        let stretch = SharedRange { claimed: start, landed: start, end, asked_end: end, may_be_cut: false };
        let flight = Arc::new(InFlightPart { begun: now, start: range.start, stretch: Mutex::new(stretch) });
        self.lock().in_flight_parts.push(flight.clone());
        PartShare { in_flight_parts: self, flight }
    }

    /// The rest of a part that its owner leaves to whoever asks; `None` where nothing would come of that.
    pub fn split(&self, now: Instant) -> Option<Range<u64>> {
        let state = self.lock();
        let first_byte = Duration::from_secs_f64(state.first_byte_s.unwrap_or_default());
        let seen: Vec<_> = state.in_flight_parts.iter().map(|flight| flight.seen(state.rate, now)).collect();
        let (at, cut) = split(&seen, first_byte)?;
        let mut stretch = state.in_flight_parts[at].lock();
        // It may have gone on meanwhile.
        let end = (stretch.claimed < cut && cut < stretch.end).then_some(stretch.end)?;
        stretch.end = cut;
        Some(cut..end)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A part as it is seen by who looks for one to share.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    /// What nobody receives yet; empty where it may not be cut.
    rest: Range<u64>,
    /// Bytes a second, where that is known.
    rate: Option<f64>,
}

/// Which of `seen` to cut, and where: so that both halves end at one time, and that time is nearest.
fn split(seen: &[Seen], first_byte: Duration) -> Option<(usize, u64)> {
    let gain_min = GAIN_MIN.max(first_byte * GAIN_FIRST_BYTES).as_secs_f64();
    let usual = median(seen.iter().filter_map(|seen| seen.rate).collect())?;
    let lasts = |seen: &Seen| Some((seen.rest.end - seen.rest.start) as f64 / seen.rate?);
    let (at, left_s) = seen
        .iter()
        .enumerate()
        .filter_map(|(at, seen)| Some((at, lasts(seen)?)))
        .max_by(|(_, one), (_, other)| one.total_cmp(other))?;
    let Seen { rest, rate: Some(rate) } = &seen[at] else { return None };
    let bytes = (rest.end - rest.start) as f64;
    // rate · t + usual · (t - first byte) = bytes
    let both_s = (bytes + usual * first_byte.as_secs_f64()) / (rate + usual);
    let kept = ((rate * both_s) as u64).max(HALF_MIN_BYTES);
    let cut = (rest.start + kept).next_multiple_of(CUT_BYTES);
    let is_worth_it = left_s - both_s >= gain_min && cut.saturating_add(HALF_MIN_BYTES) <= rest.end;
    is_worth_it.then_some((at, cut))
}

fn median(mut rates: Vec<f64>) -> Option<f64> {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

impl InFlightPart {
    fn lock(&self) -> MutexGuard<'_, SharedRange> {
        self.stretch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self, usual: Option<f64>, now: Instant) -> Seen {
        let stretch = self.lock();
        let landed = stretch.landed - self.start;
        let rate = match landed >= KNOWN_BYTES {
            true => Some(landed as f64 / (now - self.begun).as_secs_f64().max(1e-6)),
            false => usual,
        };
        let rest_start = if stretch.may_be_cut { stretch.claimed } else { stretch.end };
        Seen { rest: rest_start..stretch.end, rate }
    }
}

impl PartShare<'_> {
    /// From now on others may take over its rest.
    pub fn allow_cuts(&self) {
        self.flight.lock().may_be_cut = true;
    }

    /// Where the part ends by now.
    pub fn end(&self) -> u64 {
        self.flight.lock().end
    }

    /// Whether its end has come nearer since it began.
    pub fn is_cut(&self) -> bool {
        let stretch = self.flight.lock();
        stretch.end < stretch.asked_end
    }

    /// All up to `from` has landed. Of what comes next so many bytes are its own to receive, at most `most`;
    /// 0 at its end.
    pub fn claim(&self, from: u64, most: u64) -> u64 {
        let mut stretch = self.flight.lock();
        stretch.landed = from;
        stretch.claimed = stretch.claimed.max(from.saturating_add(most).min(stretch.end));
        stretch.claimed.saturating_sub(from).min(most)
    }

    /// The first byte has come.
    pub fn on_first_byte(&self, now: Instant) {
        let took = (now - self.flight.begun).as_secs_f64();
        let mut state = self.in_flight_parts.lock();
        let usual = state.first_byte_s.get_or_insert(took);
        *usual += (took - *usual) / 8.0;
    }

    /// The part is whole, with so many bytes.
    pub fn on_landed(&self, bytes: u64, now: Instant) {
        if bytes < KNOWN_BYTES {
            return;
        }
        let rate = bytes as f64 / (now - self.flight.begun).as_secs_f64().max(1e-6);
        let mut state = self.in_flight_parts.lock();
        let usual = state.rate.get_or_insert(rate);
        *usual += (rate - *usual) / 8.0;
    }
}

impl Drop for PartShare<'_> {
    fn drop(&mut self) {
        let mut state = self.in_flight_parts.lock();
        if let Some(at) = state.in_flight_parts.iter().position(|flight| Arc::ptr_eq(flight, &self.flight)) {
            state.in_flight_parts.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Parts of which so many MiB are left, from 100 MiB on, at so many MiB a second; which is cut, and after
    /// how many MiB.
    #[track_caller]
    fn check(parts: &[(u64, Option<f64>)], first_byte_ms: u64, expected: Option<(usize, u64)>) {
        let seen = |&(mib, rate): &(u64, Option<f64>)| Seen {
            rest: 100 * MIB..(100 + mib) * MIB,
            rate: rate.map(|rate| rate * MIB as f64),
        };
        let seen: Vec<_> = parts.iter().map(seen).collect();
        let found = split(&seen, Duration::from_millis(first_byte_ms));
        let found = found.map(|(at, cut)| (at, (cut - 100 * MIB) / MIB));
        assert_eq!(found, expected, "{parts:?}");
    }

    #[test]
    fn the_part_that_would_end_last_is_cut_so_that_both_halves_end_together() {
        check(&[(8, Some(8.0)), (2, Some(8.0))], 0, Some((0, 4)));
        check(&[(8, Some(8.0)), (8, Some(2.0))], 0, Some((1, 1)));
        // The other half begins later: 1 s of the first byte is 8 MiB that the owner gets on with.
        check(&[(80, Some(8.0)), (1, Some(8.0))], 1_000, Some((0, 44)));
        check(&[(8, None), (8, Some(8.0))], 0, Some((1, 4)));
    }

    #[test]
    fn what_would_end_soon_is_not_cut() {
        check(&[], 0, None);
        check(&[(8, None)], 0, None);
        check(&[(8, Some(100.0))], 0, None);
        check(&[(8, Some(8.0))], 300, None);
        check(&[(0, Some(8.0))], 0, None);
        // Half a mebibyte at least for each.
        check(&[(1, Some(0.1))], 0, Some((0, 0)));
        let short = Seen { rest: 0..MIB - 1, rate: Some(1e3) };
        assert_eq!(split(&[short], Duration::ZERO), None);
    }

    #[test]
    fn an_owner_stops_where_the_other_begins() {
        let (in_flight_parts, begun) = (InFlightParts::default(), Instant::now());
        let now = begun + Duration::from_secs(1);
        let part = in_flight_parts.start(&(0..16 * MIB), begun);
        assert_eq!(part.claim(0, MIB), MIB);
        assert_eq!((part.claim(MIB, MIB), in_flight_parts.split(now)), (MIB, None), "it may not be cut yet");
        part.allow_cuts();
        let taken = in_flight_parts.split(now).expect("a rest");
        // Of the 14 MiB that are nobody's.
        assert_eq!((taken.clone(), part.end()), (9 * MIB..16 * MIB, 9 * MIB));
        assert_eq!(part.claim(2 * MIB, 100 * MIB), 7 * MIB);
        assert_eq!(part.claim(9 * MIB, MIB), 0);
        // All of the first is claimed; the other is cut in turn, at the rate of those before it.
        assert_eq!(in_flight_parts.split(now), None);
        let other = in_flight_parts.start(&taken, now);
        other.allow_cuts();
        assert_eq!(in_flight_parts.split(now), None, "nothing is known of its rate");
        part.on_landed(9 * MIB, now);
        drop(part);
        let third = in_flight_parts.split(now).expect("a rest of the rest");
        assert_eq!((third.end, other.end()), (16 * MIB, third.start));
        drop(other);
        assert_eq!(in_flight_parts.split(now), None);
    }

    #[test]
    fn any_number_of_takers_get_every_byte_once() {
        let (in_flight_parts, begun) = (InFlightParts::default(), Instant::now());
        let now = begun + Duration::from_secs(1);
        let part = in_flight_parts.start(&(0..64 * MIB), begun);
        part.allow_cuts();
        part.claim(0, MIB);
        part.claim(MIB, MIB);
        let mut others = Vec::new();
        while let Some(taken) = in_flight_parts.split(now) {
            let other = in_flight_parts.start(&taken, now);
            other.allow_cuts();
            others.push((taken.start, other));
            part.on_landed(MIB, now);
        }
        let mut stretches: Vec<_> = others.iter().map(|(start, other)| *start..other.end()).collect();
        stretches.push(0..part.end());
        stretches.sort_by_key(|stretch| stretch.start);
        assert!(stretches.len() > 4, "{stretches:?}");
        let mut at = 0;
        for stretch in &stretches {
            assert!(stretch.start == at && stretch.end >= at + HALF_MIN_BYTES, "{stretches:?}");
            at = stretch.end;
        }
        assert_eq!(at, 64 * MIB);
    }
}
