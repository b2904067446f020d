//! A lane: one pattern in which an object is read, how far it has come, and what it reads next. Pure: no
//! clock, no lock, no byte.
//!
//! ```text
//!   forward:   ▓▓▓▓▓▓▓▓▓▓│░░░░░░░░░░░░┊          ▓ read  ░ prefetched
//!                        reach        asked
//!   backward:            ┊░░░░░░░░│▓▓▓▓▓▓▓▓
//!   strided:   ▓▓│    ░░      ░░┊     ·· step ··
//! ```
//! The window is how much is prefetched. It doubles when a read had to wait for bytes that came as soon as
//! they could. It halves when they were long in a queue, and when bytes are dropped unread.

use std::ops::Range;

use flatout_policy::latency::Came;

/// Names a lane within its object.
pub(super) type LaneId = u64;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The smallest window.
pub(super) const WINDOW_LEAST: u64 = 256 * KIB;
/// The largest window, whatever memory there is: what 100 Gbit/s carry in 80 ms.
pub(super) const WINDOW_MOST: u64 = 1 << 30;
/// A lane that has come this far has at least such a window, whether or not its reads wait: eight requests
/// are in flight, and all of them fit into a core's share of the cache.
const FLOOR: u64 = 8 * MIB;
/// The first window of a lane from an object's start: most such readers go on.
pub(super) const WINDOW_AT_START: u64 = 4 * MIB;
/// The shortest segment, if a window has several.
const SEGMENT_LEAST: u64 = 256 * KIB;
/// How long segments of a window below `FLOOR` are. Those in flight share the link and land together: the
/// shorter they are, the less a reader waits for the first of them. Larger windows have eight segments each:
/// from afar, while the pace still climbs, it is their number that is short.
const SEGMENT_USUAL: u64 = 512 * KIB;
/// How far from a lane's reach its reads may begin: the kernel asks from several threads, and for a fault
/// from half a read-around before it.
const NEAR: u64 = 512 * KIB;
/// How much of what has been read is kept: read-around goes back by half of itself.
const KEPT: u64 = 128 * KIB;
/// What a format may put behind the part of an extent that is read: a record of its length, or padding.
const LITTLE: u64 = 4 * KIB;
/// How many elements in a row a strided lane may skip.
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
    /// How far it has been read: an end; a start if it goes backward; the current element if it is strided.
    pub(super) reach: u64,
    /// How far it has requested: an end; a start if it goes backward; the next element if it is strided.
    asked: u64,
    window: u64,
    /// Its reach when the window last grew, or shrank for a queue.
    changed_at: u64,
    /// The smallest window that it comes to as it goes on.
    floor: u64,
    /// The number of its last read, counted over all reads of the object.
    pub(super) last_read: u64,
    /// The size of the object.
    size: u64,
    /// Where its reads will end, by the object's format. It may go on all the same.
    end: Option<u64>,
}

impl Lane {
    /// A lane that has read `begun`; if strided, that is its latest element.
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
            changed_at: reach,
            floor: FLOOR,
            last_read: 0,
            size,
            end: None,
        }
    }

    /// By the object's format it will read as far as `end`.
    pub(super) fn end_at(&mut self, end: u64) {
        self.end = Some(end);
    }

    /// Whether it has read all that it will by the object's format, but for a little that a format may put
    /// there.
    pub(super) fn is_at_its_end(&self) -> bool {
        self.end.is_some_and(|end| self.reach + LITTLE >= end)
    }

    /// How far `read` is from the lane's reach; `None` if it is not one of its reads.
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

    /// How far from its reach a read of `bytes` bytes may begin. The longer the lane, the farther, so that a
    /// short one takes no random reads.
    fn nearness(&self, bytes: u64) -> u64 {
        (self.run_bytes() / 4).clamp(bytes, NEAR.max(2 * bytes))
    }

    /// How many elements after the current one `at` lies, and how far into that element.
    fn element_of(&self, at: u64) -> Option<(i64, u64)> {
        let Pattern::Strided { step, bytes } = self.pattern else { return None };
        let away = i64::try_from(i128::from(at) - i128::from(self.reach)).ok()?;
        // An element extends upward, whichever way the lane goes.
        let elements = match step > 0 {
            true => away.div_euclid(step),
            false => -away.div_euclid(-step),
        };
        let within = u64::try_from(away - elements * step).ok()?;
        (within < bytes).then_some((elements, within))
    }

    /// `read`, one of its own, moves it on.
    pub(super) fn on_read(&mut self, read: &Range<u64>) {
        match self.pattern {
            Pattern::Forward => {
                self.reach = self.reach.max(read.end);
                self.asked = self.asked.max(self.reach);
                // It goes on beyond that end.
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

    #[cfg(test)]
    pub(super) fn set_window(&mut self, bytes: u64) {
        self.window = bytes;
        self.changed_at = self.start;
    }

    #[cfg(test)]
    pub(super) fn window_and_asked(&self) -> (u64, u64) {
        (self.window, self.asked)
    }

    /// How far it has come since it began.
    pub(super) fn run_bytes(&self) -> u64 {
        self.reach.abs_diff(self.start)
    }

    /// A read had to wait for bytes that came in that way. The window may grow fourfold where the reader has
    /// shown that it goes on.
    pub(super) fn on_wait(&mut self, came: Came) {
        let times = if self.run_bytes() >= WINDOW_AT_START { 4 } else { 2 };
        let bounds = self.floor..WINDOW_MOST;
        if let Some(window) = came.next_window(self.window, self.read_since_change(), times, &bounds) {
            self.window = window;
            self.changed_at = self.reach;
        }
    }

    fn read_since_change(&self) -> u64 {
        let way = self.reach.abs_diff(self.changed_at);
        match self.pattern {
            Pattern::Strided { step, bytes } => way / step.unsigned_abs() * bytes,
            Pattern::Forward | Pattern::Backward => way,
        }
    }

    /// A prefetched segment of which nothing was read was evicted for lack of memory.
    pub(super) fn on_evicted(&mut self, range: &Range<u64>) {
        self.window = (self.window / 2).max(WINDOW_LEAST);
        self.floor = self.floor.min(self.window);
        self.on_missing(range);
    }

    /// The transfer of a segment failed.
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

    /// The length of its segments, within these limits.
    fn segment_bytes(&self, window_max: u64, segment_max: u64) -> u64 {
        let window = self.window.min(window_max).max(WINDOW_LEAST);
        // A power of two, so that the memory of one segment serves the next.
        let quarter = 1 << (window / 4).max(1).ilog2();
        let bytes = if window < FLOOR { quarter.min(SEGMENT_USUAL) } else { quarter / 2 };
        bytes.clamp(SEGMENT_LEAST, segment_max.max(SEGMENT_LEAST))
    }

    /// What to fetch so that the missing `gap` can be read: the gap, and what follows in the same segment.
    pub(super) fn foreground(&self, gap: &Range<u64>, window_max: u64, segment_max: u64) -> Range<u64> {
        let bytes = self.segment_bytes(window_max, segment_max);
        match self.pattern {
            // It was requested before, and dropped or skipped: what follows may be there.
            Pattern::Forward if gap.end < self.asked => gap.clone(),
            Pattern::Forward => {
                let known = self.end.filter(|end| gap.end <= *end);
                // What a format says is one piece is one request, if it is not long.
                let bytes = if known.is_some() { bytes.max(MIB).min(segment_max) } else { bytes };
                gap.start..gap.end.max(segment_end(gap.start, bytes, known.unwrap_or(self.size)))
            }
            Pattern::Backward if gap.start > self.asked => gap.clone(),
            Pattern::Backward => gap.start.min(gap.end.saturating_sub(bytes.min(MIB)))..gap.end,
            Pattern::Strided { bytes, .. } => {
                let end = self.reach.saturating_add(bytes).min(self.size);
                gap.start..gap.end.max(if gap.start >= self.reach { end } else { gap.end })
            }
        }
    }

    /// What to prefetch next; `None` if the window is full. A forward lane goes no further than `end`.
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
                // Two are worth it, whatever the window is.
                let has_room = elements <= 2 || elements * bytes < window;
                let is_there = self.asked < self.size && (step > 0) == (self.asked > self.reach);
                (has_room && is_there && elements > 0 && window_max >= bytes)
                    .then(|| self.asked..self.asked.saturating_add(bytes).min(self.size))
            }
        }
    }

    /// Which of these gaps, in order, it reads first.
    pub(super) fn first_of(&self, gaps: Vec<Range<u64>>) -> Option<Range<u64>> {
        let mut gaps = gaps.into_iter();
        if self.pattern == Pattern::Backward { gaps.next_back() } else { gaps.next() }
    }

    /// This range has been requested, or was there already.
    pub(super) fn on_asked(&mut self, range: &Range<u64>) {
        match self.pattern {
            Pattern::Forward => self.asked = self.asked.max(range.end),
            Pattern::Backward => self.asked = self.asked.min(range.start),
            Pattern::Strided { step, bytes } => {
                let end = self.asked.saturating_add(bytes).min(self.size);
                if range.start <= self.asked && range.end >= end {
                    // Before the object's start there is no element: nothing is left to request.
                    self.asked = self.asked.checked_add_signed(step).unwrap_or(self.reach);
                }
            }
        }
    }

    /// Whether a segment is so far behind that no read will come back to it.
    pub(super) fn has_passed(&self, range: &Range<u64>) -> bool {
        match self.pattern {
            Pattern::Forward => range.end + NEAR <= self.reach,
            Pattern::Backward => range.start >= self.reach + NEAR,
            Pattern::Strided { step, .. } if step > 0 => range.end + step.unsigned_abs() <= self.reach,
            Pattern::Strided { step, .. } => range.start >= self.reach + 2 * step.unsigned_abs(),
        }
    }

    /// Whether a segment is behind its reach, if only just.
    pub(super) fn is_behind(&self, range: &Range<u64>) -> bool {
        match self.pattern {
            Pattern::Forward => range.end + KEPT <= self.reach || self.reach >= self.size,
            Pattern::Backward => range.start >= self.reach + KEPT || self.reach == 0,
            Pattern::Strided { .. } => true,
        }
    }

    /// Whether it has requested all of the object that it will read.
    pub(super) fn is_asked_to_the_end(&self) -> bool {
        self.pattern == Pattern::Forward && self.asked >= self.size
    }
}

/// Where a segment from `start` ends: at a multiple of `bytes`, so that the next ones have one length. A
/// short rest up to `most` belongs to it.
fn segment_end(start: u64, bytes: u64, most: u64) -> u64 {
    let end = start.saturating_add(bytes);
    let aligned = end / bytes * bytes;
    let end = if aligned > start { aligned } else { end };
    if most <= end || most - end < bytes / 4 { most } else { end }
}
