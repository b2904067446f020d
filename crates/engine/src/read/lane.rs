//! A lane: one pattern in which an object is read, how far it has come, and what it reads next. Pure: no
//! clock, no lock, no byte.
//!
//! ```text
//!   forward:   ▓▓▓▓▓▓▓▓▓▓│░░░░░░░░░░░░┊          ▓ read  ░ asked for ahead
//!                        reach        asked
//!   backward:            ┊░░░░░░░░│▓▓▓▓▓▓▓▓
//!   strided:   ▓▓│    ░░      ░░┊     ·· step ··
//! ```
//! The window, how much is asked for ahead, doubles when a reader had to wait and halves when bytes go that
//! nobody has read.

use std::ops::Range;

/// Names a lane within its object.
pub(super) type LaneId = u64;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A window is no smaller.
pub(super) const WINDOW_LEAST: u64 = 256 * KIB;
/// Nor larger, whatever memory there is: what 100 Gbit/s carry in 80 ms.
pub(super) const WINDOW_MOST: u64 = 1 << 30;
/// The window of a lane that has come far, whether or not anybody had to wait: sixteen requests are on their
/// way.
const FLOOR: u64 = 16 * MIB;
/// The window of who begins at an object's start: most who do go on.
pub(super) const WINDOW_AT_START: u64 = 4 * MIB;
/// A segment is no smaller where there are several in a window.
const SEGMENT_LEAST: u64 = 256 * KIB;
/// Longer where there are sixteen in a window: where each connection is slow, it is many that are fast, and
/// from the start on.
const SEGMENT_USUAL: u64 = MIB;
/// So far from where a lane stands its reads may begin: the kernel asks from several threads, and for a fault
/// from half a read-around before it.
const NEAR: u64 = 512 * KIB;
/// So much of what has been read stays: read-around comes back to half of itself.
const KEPT: u64 = 128 * KIB;
/// What may stand behind what is read of a range that a format knows: a record of its length, or what makes
/// the next one begin where it should.
const LITTLE: u64 = 4 * KIB;
/// Elements of a strided lane that may be left out.
const LEFT_OUT: i64 = 4;

/// How the next read follows from the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Forward,
    Backward,
    /// Elements of `bytes`, each `step` behind the one before.
    Strided {
        step: i64,
        bytes: u64,
    },
}

/// One pattern in which an object is read.
#[derive(Clone, Debug)]
pub(super) struct Lane {
    pub(super) number: LaneId,
    pub(super) pattern: Pattern,
    /// Where it began.
    pub(super) start: u64,
    /// How far it has been read: the end of what has been, its start where it goes backward, the element
    /// where it strides.
    pub(super) reach: u64,
    /// As far has been asked for: an end, a start where it goes backward, the next element where it strides.
    asked: u64,
    window: u64,
    /// Where it stood when the window grew last.
    grown_at: u64,
    /// A lane that has come far has such a window in any case.
    floor: u64,
    /// Which read of its object was its last.
    pub(super) last_read: u64,
    /// The size of the object.
    size: u64,
    /// Where what it reads ends, as far as the object's format says that; it may go on all the same.
    end: Option<u64>,
}

impl Lane {
    /// A lane that has read `begun`. Of a strided one that is the latest element.
    pub(super) fn new(number: LaneId, pattern: Pattern, begun: &Range<u64>, window: u64, size: u64) -> Lane {
        let (start, reach, asked) = match pattern {
            Pattern::Forward => (begun.start, begun.end, begun.end),
            Pattern::Backward => (begun.end, begun.start, begun.start),
            Pattern::Strided { step, .. } => {
                (begun.start, begun.start, begun.start.wrapping_add_signed(step))
            }
        };
        let window = window.clamp(WINDOW_LEAST, WINDOW_MOST);
        Lane {
            number,
            pattern,
            start,
            reach,
            asked,
            window,
            grown_at: reach,
            floor: FLOOR,
            last_read: 0,
            size,
            end: None,
        }
    }

    /// It will read as far as `end`, by the object's format.
    pub(super) fn end_at(&mut self, end: u64) {
        self.end = Some(end);
    }

    /// It has come where it was to end, by the object's format, but for a little that a format may put there.
    pub(super) fn is_at_its_end(&self) -> bool {
        self.end.is_some_and(|end| self.reach + LITTLE >= end)
    }

    /// How far `read` is from what comes next; `None` where it is none of this lane's.
    pub(super) fn distance(&self, read: &Range<u64>) -> Option<u64> {
        let bytes = read.end - read.start;
        match self.pattern {
            Pattern::Forward => {
                let near = self.nearness(bytes);
                let near = read.start + near >= self.reach && read.start <= self.reach + near;
                near.then(|| read.start.abs_diff(self.reach))
            }
            Pattern::Backward => {
                let near = self.nearness(bytes);
                let near = read.end <= self.reach + near && read.end + near >= self.reach;
                near.then(|| read.end.abs_diff(self.reach))
            }
            Pattern::Strided { .. } => {
                let (elements, within) = self.element_of(read.start)?;
                ((-1..=LEFT_OUT).contains(&elements)).then_some(within)
            }
        }
    }

    /// How far from where it stands a read of so many bytes is its own: the farther, the longer it has been
    /// followed, so that a short one does not take what is random.
    fn nearness(&self, bytes: u64) -> u64 {
        (self.run_bytes() / 4).clamp(bytes, NEAR.max(2 * bytes))
    }

    /// How many elements behind the one that is read `at` lies, and how far within that one.
    fn element_of(&self, at: u64) -> Option<(i64, u64)> {
        let Pattern::Strided { step, bytes } = self.pattern else { return None };
        let away = i64::try_from(i128::from(at) - i128::from(self.reach)).ok()?;
        // An element extends upward whichever way the lane goes.
        let elements = match step > 0 {
            true => away.div_euclid(step),
            false => -away.div_euclid(-step),
        };
        let within = u64::try_from(away - elements * step).ok()?;
        (within < bytes).then_some((elements, within))
    }

    /// Goes on by `read`, which is one of its own.
    pub(super) fn on_read(&mut self, read: &Range<u64>) {
        match self.pattern {
            Pattern::Forward => {
                self.reach = self.reach.max(read.end);
                self.asked = self.asked.max(self.reach);
                // It goes on all the same.
                self.end = self.end.filter(|end| self.reach <= *end);
                self.window = self.window.max(self.floor.min(self.run_bytes()));
            }
            Pattern::Backward => {
                self.reach = self.reach.min(read.start);
                self.asked = self.asked.min(self.reach);
                self.window = self.window.max(self.floor.min(self.run_bytes()));
            }
            Pattern::Strided { step, .. } => {
                let elements = self.element_of(read.start).map_or(0, |(elements, _)| elements);
                if elements > 0 {
                    let before = self.reach;
                    self.reach = before.saturating_add_signed(elements * step);
                    let next = self.reach.saturating_add_signed(step);
                    self.asked = if step > 0 { self.asked.max(next) } else { self.asked.min(next) };
                }
            }
        }
    }

    /// How much has been read since it began.
    pub(super) fn run_bytes(&self) -> u64 {
        self.reach.abs_diff(self.start)
    }

    /// A reader had to wait: more is to be asked for ahead, but not more and more before much of it has been
    /// read.
    pub(super) fn on_wait(&mut self) {
        let way = self.reach.abs_diff(self.grown_at);
        let read = match self.pattern {
            Pattern::Strided { step, bytes } => way / step.unsigned_abs() * bytes,
            Pattern::Forward | Pattern::Backward => way,
        };
        if read >= self.window / 4 {
            self.window = (2 * self.window).min(WINDOW_MOST);
            self.grown_at = self.reach;
        }
    }

    /// Bytes that were fetched ahead are gone, and nobody has read them.
    pub(super) fn on_evicted(&mut self, range: &Range<u64>) {
        self.window = (self.window / 2).max(WINDOW_LEAST);
        self.floor = self.floor.min(self.window);
        self.on_missing(range);
    }

    /// What was asked for ahead could not be had.
    pub(super) fn on_failed(&mut self, range: &Range<u64>) {
        self.window = WINDOW_LEAST;
        self.on_missing(range);
    }

    fn on_missing(&mut self, range: &Range<u64>) {
        self.asked = match self.pattern {
            Pattern::Forward => self.asked.min(range.start).max(self.reach),
            Pattern::Backward => self.asked.max(range.end).min(self.reach),
            Pattern::Strided { .. } => self.asked,
        };
    }

    /// How long its segments are, where no window is larger than `window_max` and no segment than
    /// `segment_max`.
    fn segment_bytes(&self, window_max: u64, segment_max: u64) -> u64 {
        let window = self.window.min(window_max).max(WINDOW_LEAST);
        // A power of two, so that the memory of one serves the next.
        let quarter = 1 << (window / 4).max(1).ilog2();
        let bytes = quarter.min(SEGMENT_USUAL).max(quarter / 4);
        bytes.clamp(SEGMENT_LEAST, segment_max.max(SEGMENT_LEAST))
    }

    /// What to ask for so that the missing `gap` can be read: that, and what follows in one go.
    pub(super) fn foreground(&self, gap: &Range<u64>, window_max: u64, segment_max: u64) -> Range<u64> {
        let bytes = self.segment_bytes(window_max, segment_max);
        match self.pattern {
            // What has been asked for before and is gone, or never was: nobody says that what follows is
            // missing, too.
            Pattern::Forward if gap.end < self.asked => gap.clone(),
            Pattern::Forward => {
                let end = self.end.filter(|end| gap.end <= *end).unwrap_or(self.size);
                gap.start..gap.end.max(segment_end(gap.start, bytes, end))
            }
            Pattern::Backward if gap.start > self.asked => gap.clone(),
            Pattern::Backward => gap.start.min(gap.end.saturating_sub(bytes.min(MIB)))..gap.end,
            Pattern::Strided { bytes, .. } => {
                let end = self.reach.saturating_add(bytes).min(self.size);
                gap.start..gap.end.max(if gap.start >= self.reach { end } else { gap.end })
            }
        }
    }

    /// What to ask for next ahead of its readers; `None` where the window is full. A forward lane goes no
    /// further than `end`.
    pub(super) fn ahead(&self, end: u64, window_max: u64, segment_max: u64) -> Option<Range<u64>> {
        let window = self.window.min(window_max);
        let bytes = self.segment_bytes(window_max, segment_max);
        let has_room = self.asked.abs_diff(self.reach).saturating_add(bytes / 2) < window;
        match self.pattern {
            Pattern::Forward => {
                let end = self.end.map_or(end, |known| known.min(end));
                (has_room && self.asked < end).then(|| {
                    let most = self.asked.saturating_add(segment_max.max(SEGMENT_LEAST));
                    self.asked..segment_end(self.asked, bytes, end).min(most)
                })
            }
            Pattern::Backward => {
                (has_room && self.asked > 0).then(|| self.asked.saturating_sub(bytes.min(MIB))..self.asked)
            }
            Pattern::Strided { step, bytes } => {
                let elements = self.asked.abs_diff(self.reach) / step.unsigned_abs();
                // Two are worth asking for whatever the window is.
                let has_room = elements <= 2 || elements * bytes < window;
                let is_there = self.asked < self.size && (step > 0) == (self.asked > self.reach);
                (has_room && is_there && elements > 0 && window_max >= bytes)
                    .then(|| self.asked..self.asked.saturating_add(bytes).min(self.size))
            }
        }
    }

    /// Of what is missing of what it reads next, in order, what it comes to first.
    pub(super) fn first_of(&self, gaps: Vec<Range<u64>>) -> Option<Range<u64>> {
        let mut gaps = gaps.into_iter();
        if self.pattern == Pattern::Backward { gaps.next_back() } else { gaps.next() }
    }

    /// So much has been asked for, or was there already.
    pub(super) fn on_asked(&mut self, range: &Range<u64>) {
        match self.pattern {
            Pattern::Forward => self.asked = self.asked.max(range.end),
            Pattern::Backward => self.asked = self.asked.min(range.start),
            Pattern::Strided { step, bytes } => {
                let end = self.asked.saturating_add(bytes).min(self.size);
                if range.start <= self.asked && range.end >= end {
                    // Below the first element there is none: as if the one before were asked for again.
                    self.asked = self.asked.checked_add_signed(step).unwrap_or(self.reach);
                }
            }
        }
    }

    /// Whether a segment lies so far behind that nobody will come back to it.
    pub(super) fn has_passed(&self, range: &Range<u64>) -> bool {
        match self.pattern {
            Pattern::Forward => range.end + NEAR <= self.reach,
            Pattern::Backward => range.start >= self.reach + NEAR,
            Pattern::Strided { step, .. } if step > 0 => range.end + step.unsigned_abs() <= self.reach,
            Pattern::Strided { step, .. } => range.start >= self.reach + 2 * step.unsigned_abs(),
        }
    }

    /// Whether a segment lies behind where it stands, if only just.
    pub(super) fn is_behind(&self, range: &Range<u64>) -> bool {
        match self.pattern {
            Pattern::Forward => range.end + KEPT <= self.reach || self.reach >= self.size,
            Pattern::Backward => range.start >= self.reach + KEPT || self.reach == 0,
            Pattern::Strided { .. } => true,
        }
    }

    /// Whether all that it will read has been asked for.
    pub(super) fn is_asked_to_the_end(&self) -> bool {
        self.pattern == Pattern::Forward && self.asked >= self.size
    }
}

/// Where a segment of about `bytes` from `start` on ends: at a multiple of that, so that the next ones are of
/// one length. A little that is left up to `most` is no segment of its own.
fn segment_end(start: u64, bytes: u64, most: u64) -> u64 {
    let end = start.saturating_add(bytes);
    let aligned = end / bytes * bytes;
    let end = if aligned > start { aligned } else { end };
    if most <= end || most - end < bytes / 4 { most } else { end }
}
