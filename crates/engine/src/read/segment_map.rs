//! What is known of one version: its segments, landed or in flight, its lanes, and the reads that wait. Pure:
//! no clock, no lock, no network. It says what to fetch next (`Fetch`), and leaves in `Effects` what to do
//! once the lock is released.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::entries::{Entries, Entry};
use super::lane::LaneId;
use super::lanes::Lanes;
use super::segment::{Pieces, Segment};
use crate::base::error::Error;
use crate::base::version::Object;
use flatout_formats::{Hints, LayoutParser};
use flatout_policy::latency::Came;
use flatout_policy::ranges::RangeSet;

/// What a read calls with its result.
pub(super) type Done = Box<dyn FnOnce(Result<Pieces, Error>) + Send>;
/// Finds the object that will be read after this one.
pub(super) type Next = Box<dyn FnOnce() -> Option<Object> + Send>;

/// Objects up to this size are fetched whole: a second request would take longer than the rest of the first.
const WHOLE_MOST: u64 = 1 << 20;
/// A read that reaches this close to the end of a larger object looks for a table of contents, as zip and
/// parquet have one there.
const TAIL_BEGINS: u64 = 64 << 10;
/// It fetches this much of the end.
const TAIL_BYTES: u64 = 256 << 10;

/// A shorter wait is no reason for another window.
const LONG_WAIT: Duration = Duration::from_millis(2);

/// How much may be fetched ahead now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) window_max: u64,
    pub(super) segment_max: u64,
    /// For segments of a lane: shorter where the link is slow.
    pub(super) lane_segment_max: u64,
}

/// A range to fetch into a segment of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fetch {
    pub(super) range: Range<u64>,
    pub(super) lane: Option<LaneId>,
    /// It is the whole object, by one plain GET.
    pub(super) is_whole: bool,
    /// No read waits for it.
    pub(super) is_ahead: bool,
}

/// What has to be done once the lock has been released, in this order.
#[derive(Default)]
pub(super) struct Effects {
    /// Segments that were fetched ahead, and that a read waits for now.
    pub(super) raise: Vec<Arc<Segment>>,
    /// Segments in flight that nothing needs any more.
    pub(super) cancel: Vec<Arc<Segment>>,
    /// Segments that have left the map: their memory is freed with the last piece of them.
    pub(super) removed: Vec<Arc<Segment>>,
    /// Bytes of these that were never read.
    pub(super) wasted_bytes: u64,
    pub(super) next: Option<Next>,
    pub(super) calls: Vec<(Done, Result<Pieces, Error>)>,
    /// Of cancelled reads. One may own a reader, whose drop takes the lock.
    pub(super) cancelled: Vec<Done>,
}

/// What is known of one version.
pub(super) struct SegmentMap {
    pub(super) handles: u32,
    pub(super) next: Option<Next>,
    size: u64,
    entries: Entries,
    lanes: Lanes,
    waiting: HashMap<u64, WaitingRead>,
    last_read: u64,
    /// Learns from the bytes that are read; `None` if the format is unknown, or nothing is left to learn.
    layout: Option<LayoutParser>,
    /// What it has learnt so far. The extents go to the lanes when it ends.
    hints: Hints,
    /// The whole object has been fetched once, or its tail, or its table of contents up to here.
    had_whole: bool,
    had_tail: bool,
    had_table: u64,
}

/// A read that waits.
struct WaitingRead {
    range: Range<u64>,
    lane: Option<LaneId>,
    done: Done,
    /// Where its bytes land; empty until all of them have been requested.
    pieces: Pieces,
    /// In how many segments it waits for bytes.
    missing: usize,
    since: Instant,
}

impl Fetch {
    pub(super) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }
}

impl SegmentMap {
    /// The map of an object of this size and name. Nothing of it has been fetched.
    pub(super) fn new(size: u64, name: &str) -> SegmentMap {
        SegmentMap {
            handles: 0,
            next: None,
            size,
            entries: Entries::default(),
            lanes: Lanes::new(size),
            waiting: HashMap::new(),
            last_read: 0,
            layout: LayoutParser::of(name, size),
            hints: Hints::default(),
            had_whole: false,
            had_tail: false,
            had_table: 0,
        }
    }

    /// How many lanes and segments there are.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.lanes.count(), self.entries.by_start.len())
    }

    /// A read: the lane that it belongs to, and its bytes if all of them have landed.
    pub(super) fn read(
        &mut self,
        range: &Range<u64>,
        effects: &mut Effects,
    ) -> (Option<LaneId>, Option<Pieces>) {
        let lane = self.lanes.on_read(range);
        let pieces = self.entries.landed(range);
        if (pieces.len() as u64) < range.end - range.start {
            return (lane, None);
        }
        self.on_answered(range, effects);
        self.drop_behind(lane, effects);
        (lane, Some(pieces))
    }

    /// Has a read wait whose bytes have not all landed; its number. `next_missing` says what to fetch for it.
    pub(super) fn wait(&mut self, range: Range<u64>, lane: Option<LaneId>, done: Done, now: Instant) -> u64 {
        self.last_read += 1;
        let wait = WaitingRead { range, lane, done, pieces: Pieces::default(), missing: 0, since: now };
        self.waiting.insert(self.last_read, wait);
        self.last_read
    }

    /// The next range to fetch for a waiting read; `None` when all of its bytes have landed or are on their
    /// way. Where memory is short, `is_exact` asks for no more than the read needs.
    pub(super) fn next_missing(&mut self, read: u64, is_exact: bool, limits: &Limits) -> Option<Fetch> {
        let wait = self.waiting.get(&read)?;
        let gap = self.entries.gaps(&wait.range).into_iter().next()?;
        let lane = wait.lane;
        let exact = gap.start..gap.end.min(gap.start + limits.segment_max);
        if is_exact {
            return Some(Fetch { range: exact, lane, is_whole: false, is_ahead: false });
        }
        let is_small = self.size <= WHOLE_MOST.min(limits.segment_max);
        if is_small && self.entries.by_start.is_empty() && (gap.start == 0 || !self.had_whole) {
            self.had_whole = true;
            return Some(Fetch { range: 0..self.size, lane: None, is_whole: true, is_ahead: false });
        }
        let table = self.table_around(&gap, limits);
        let wanted = match (table.clone(), lane.and_then(|lane| self.lanes.get(lane))) {
            (Some(table), _) => table,
            (None, Some(lane)) => lane.foreground(&gap, limits.window_max, limits.lane_segment_max),
            (None, None) if gap.start + TAIL_BEGINS >= self.size && !self.had_tail => {
                self.had_tail = true;
                self.size.saturating_sub(TAIL_BYTES)..self.size
            }
            (None, None) => exact,
        };
        let space = self.entries.space_around(&gap, self.size);
        let start = wanted.start.max(space.start).min(gap.start);
        let end = wanted.end.min(space.end).min(start + limits.segment_max).max(gap.start + 1);
        self.had_table = table.map_or(self.had_table, |_| end);
        Some(Fetch { range: start..end, lane, is_whole: false, is_ahead: false })
    }

    /// The table of contents, if the gap lies in it and it has not been fetched yet: all of it will be read,
    /// in many small reads.
    fn table_around(&self, gap: &Range<u64>, limits: &Limits) -> Option<Range<u64>> {
        let table = self.hints.table.as_ref()?;
        let is_new = gap.end > table.start && gap.start >= self.had_table;
        let is_one_segment = table.end - table.start <= limits.segment_max;
        let start = if is_one_segment { table.start.min(gap.start) } else { gap.start };
        is_new.then_some(start..table.end)
    }

    /// The next range to fetch ahead for a lane; `None` when its window is full. When it has come to the
    /// object's end, the next object may begin.
    pub(super) fn next_ahead(
        &mut self,
        number: LaneId,
        limits: &Limits,
        effects: &mut Effects,
    ) -> Option<Fetch> {
        let (window_max, segment_max) = (limits.window_max, limits.lane_segment_max);
        let gaps = |wanted: &Range<u64>| self.entries.gaps(wanted);
        if let Some(range) = self.lanes.next_missing(number, window_max, segment_max, gaps) {
            return Some(Fetch { range, lane: Some(number), is_whole: false, is_ahead: true });
        }
        if self.lanes.get(number).is_some_and(|lane| lane.is_asked_to_the_end()) && effects.next.is_none() {
            effects.next = self.next.take();
        }
        None
    }

    /// Begins before the first read: the whole if the object is small, else a lane from its start.
    pub(super) fn begin(&mut self, limits: &Limits) -> (Option<Fetch>, Option<LaneId>) {
        if !self.entries.by_start.is_empty() || self.lanes.count() > 0 || self.size == 0 {
            return (None, None);
        }
        if self.size <= WHOLE_MOST.min(limits.segment_max) {
            let whole = Fetch { range: 0..self.size, lane: None, is_whole: true, is_ahead: true };
            return (Some(whole), None);
        }
        (None, self.lanes.begin())
    }

    /// A segment for what was to be fetched: it is on its way from now on.
    pub(super) fn insert(&mut self, fetch: Fetch, segment: Arc<Segment>) {
        let Fetch { range, lane, is_whole, is_ahead } = fetch;
        self.had_whole |= is_whole;
        if let Some(lane) = lane.and_then(|lane| self.lanes.get(lane)) {
            lane.on_asked(&range);
        }
        let (waits, read) = (Vec::new(), RangeSet::default());
        debug_assert!(self.entries.overlapping(&range).next().is_none(), "segments do not overlap");
        self.entries.by_start.insert(range.start, Entry { segment, is_ahead, lane, waits, read });
    }

    /// All that a read waits for has landed or is on its way: it is answered when the last of it has landed.
    /// Returns its lane.
    pub(super) fn on_requested(&mut self, read: u64, now: Instant, effects: &mut Effects) -> Option<LaneId> {
        let wait = self.waiting.get_mut(&read)?;
        let (range, lane) = (wait.range.clone(), wait.lane);
        let mut missing = Vec::new();
        for entry in self.entries.overlapping_mut(&range) {
            wait.pieces.push(&entry.segment, &range);
            let need = range.end.min(entry.segment.range.end) - entry.segment.range.start;
            if entry.segment.landed() < need {
                missing.push(entry.segment.range.start);
                entry.waits.push((need, read));
                entry.segment.set_came(Came::Between);
                if std::mem::take(&mut entry.is_ahead) {
                    effects.raise.push(entry.segment.clone());
                }
            }
        }
        wait.missing = missing.len();
        if missing.is_empty() {
            self.answer(read, now, effects);
        }
        for start in missing {
            self.wake(start, now, effects);
        }
        self.drop_behind(lane, effects);
        lane
    }

    /// Answers the reads that wait for no more than what has landed of the segment at `start`.
    fn wake(&mut self, start: u64, now: Instant, effects: &mut Effects) {
        let Some(entry) = self.entries.by_start.get_mut(&start) else { return };
        let mut satisfied = Vec::new();
        loop {
            let least = entry.waits.iter().map(|(need, _)| *need).min();
            let landed = entry.segment.wait_for(least);
            if least.is_none_or(|least| least > landed) {
                break;
            }
            satisfied.extend(entry.waits.extract_if(.., |(need, _)| *need <= landed).map(|(_, read)| read));
        }
        for read in satisfied {
            let Some(wait) = self.waiting.get_mut(&read) else { continue };
            wait.missing -= 1;
            if wait.missing == 0 {
                self.answer(read, now, effects);
            }
        }
    }

    fn answer(&mut self, read: u64, now: Instant, effects: &mut Effects) {
        let Some(wait) = self.waiting.remove(&read) else { return };
        if now.saturating_duration_since(wait.since) >= LONG_WAIT
            && let Some(lane) = wait.lane.and_then(|lane| self.lanes.get(lane))
        {
            let have_come = |came: &Came| wait.pieces.have_come(*came);
            lane.on_wait([Came::Queued, Came::Promptly].into_iter().find(have_come).unwrap_or_default());
        }
        self.on_answered(&wait.range, effects);
        effects.calls.push((wait.done, Ok(wait.pieces)));
    }

    /// Fails a waiting read.
    pub(super) fn fail(&mut self, read: u64, error: Error, effects: &mut Effects) {
        let Some(wait) = self.waiting.remove(&read) else { return };
        effects.calls.push((wait.done, Err(error)));
    }

    /// A range has been read. Segments that will not be read again are removed.
    fn on_answered(&mut self, range: &Range<u64>, effects: &mut Effects) {
        if self.layout.is_some() {
            self.parse_layout(range);
        }
        let mut used_up = Vec::new();
        for entry in self.entries.overlapping_mut(range) {
            let there = &entry.segment.range;
            entry.read.add(&(range.start.max(there.start)..range.end.min(there.end)));
            let is_kept = entry.lane.is_some_and(|lane| self.lanes.is_busy(lane)) && there.end < self.size;
            if entry.is_all_read() && !is_kept && entry.waits.is_empty() {
                used_up.push(there.start);
            }
        }
        for start in used_up {
            self.remove(start, effects);
        }
    }

    /// Shows the parser what has been read, as long as all that it needs has landed.
    fn parse_layout(&mut self, read: &Range<u64>) {
        while let Some((needs, most)) = self.layout.as_ref().and_then(|layout| layout.wants(read)) {
            let landed = self.entries.landed(&(needs.start..most.min(self.size)));
            let is_there = landed.len() as u64 >= needs.end - needs.start;
            let bytes = is_there.then(|| landed.slices().collect::<Vec<_>>().concat());
            if self.layout.as_mut().is_some_and(|layout| layout.parse(bytes.as_deref(), &mut self.hints)) {
                self.layout = None;
                self.lanes.extents = std::mem::take(&mut self.hints.extents);
            }
            if !is_there {
                return;
            }
        }
    }

    /// Drops what a lane has left behind, and what belongs to lanes that ended.
    fn drop_behind(&mut self, lane: Option<LaneId>, effects: &mut Effects) {
        let ended = std::mem::take(&mut self.lanes.retired);
        let lane = lane.and_then(|lane| self.lanes.get(lane)).cloned();
        self.drop_where(effects, |entry| {
            let Some(number) = entry.lane else { return false };
            let range = &entry.segment.range;
            ended.contains(&number)
                || lane.as_ref().is_some_and(|lane| {
                    lane.number == number
                        && (lane.has_passed(range) || entry.is_all_read() && lane.is_behind(range))
                })
        });
    }

    /// Drops those of the segments for which no read waits.
    fn drop_where(&mut self, effects: &mut Effects, is_droppable: impl Fn(&Entry) -> bool) {
        let droppable =
            self.entries.by_start.values().filter(|entry| entry.waits.is_empty() && is_droppable(entry));
        let starts: Vec<u64> = droppable.map(|entry| entry.segment.range.start).collect();
        for start in starts {
            self.remove(start, effects);
        }
    }

    /// Takes a segment out of the map; if it is on its way, it is cancelled.
    fn remove(&mut self, start: u64, effects: &mut Effects) {
        let Some(entry) = self.entries.by_start.remove(&start) else { return };
        effects.wasted_bytes += entry.unread_bytes();
        if entry.segment.landed() < entry.segment.bytes() {
            effects.cancel.push(entry.segment.clone());
        }
        effects.removed.push(entry.segment);
    }

    /// Drops segments for which no read waits until `wanted` bytes are free: what has been read first, then
    /// what is farthest ahead. Returns how many bytes that freed; memory of a segment on its way is free only
    /// when its transfer has stopped.
    pub(super) fn make_room(&mut self, wanted: u64, effects: &mut Effects) -> u64 {
        // A read that waits for memory does not lose the bytes that it has.
        let is_wanted = |range: &Range<u64>| {
            self.waiting.values().any(|wait| wait.range.start < range.end && range.start < wait.range.end)
        };
        let mut droppable: Vec<(bool, u64, u64)> = Vec::new();
        for entry in self.entries.by_start.values() {
            let range = &entry.segment.range;
            if entry.waits.is_empty() && !is_wanted(range) {
                let lane = entry.lane.and_then(|lane| self.lanes.get(lane));
                let distance = lane.map_or(u64::MAX, |lane| lane.reach.abs_diff(range.start));
                droppable.push((!entry.is_all_read(), u64::MAX - distance, range.start));
            }
        }
        droppable.sort_unstable();
        let mut freed = 0;
        for (_, _, start) in droppable {
            if freed >= wanted {
                break;
            }
            let Some(entry) = self.entries.by_start.get(&start) else { continue };
            if entry.segment.landed() == entry.segment.bytes() {
                freed += entry.segment.bytes();
            }
            if entry.read.is_empty()
                && let Some(lane) = entry.lane.and_then(|lane| self.lanes.get(lane))
            {
                lane.on_evicted(&entry.segment.range);
            }
            self.remove(start, effects);
        }
        freed
    }

    /// Bytes of a segment have landed that a read waits for.
    pub(super) fn on_landed(&mut self, segment: &Arc<Segment>, now: Instant, effects: &mut Effects) {
        if self.holds(segment) {
            self.wake(segment.range.start, now, effects);
        }
    }

    /// The transfer of a segment has ended. If it failed, so do the reads that wait for it.
    pub(super) fn on_end(
        &mut self,
        segment: &Arc<Segment>,
        result: &Result<(), Error>,
        now: Instant,
        effects: &mut Effects,
    ) {
        if !self.holds(segment) {
            return;
        }
        let start = segment.range.start;
        let Err(error) = result else { return self.wake(start, now, effects) };
        let Some(entry) = self.entries.by_start.remove(&start) else { return };
        if let Some(lane) = entry.lane.and_then(|lane| self.lanes.get(lane)) {
            lane.on_failed(&segment.range);
        }
        for (_, read) in entry.waits {
            self.fail(read, error.clone_without_source(), effects);
        }
        effects.removed.push(entry.segment);
    }

    /// Cancels a read, and what was fetched for it alone. Whether it was still waiting.
    pub(super) fn cancel(&mut self, read: u64, effects: &mut Effects) -> bool {
        let Some(wait) = self.waiting.remove(&read) else { return false };
        let mut alone = Vec::new();
        for entry in self.entries.overlapping_mut(&wait.range) {
            entry.waits.retain(|(_, other)| *other != read);
            if entry.waits.is_empty() && entry.lane.is_none() {
                alone.push(entry.segment.range.start);
            }
        }
        for start in alone {
            self.remove(start, effects);
        }
        effects.cancelled.push(wait.done);
        true
    }

    /// One handle less. With the last one goes all that no read waits for.
    pub(super) fn leave(&mut self, effects: &mut Effects) {
        self.handles -= 1;
        if self.handles == 0 {
            self.drop_where(effects, |_| true);
            let extents = std::mem::take(&mut self.lanes.extents);
            self.lanes = Lanes::new(self.size);
            self.lanes.extents = extents;
            (self.had_whole, self.had_tail, self.had_table) = (false, false, 0);
        }
    }

    /// Whether the segment is in the map: another may have taken its range since.
    fn holds(&self, segment: &Arc<Segment>) -> bool {
        self.entries
            .by_start
            .get(&segment.range.start)
            .is_some_and(|entry| Arc::ptr_eq(&entry.segment, segment))
    }
}

#[cfg(test)]
#[path = "segment_map_tests.rs"]
mod tests;
