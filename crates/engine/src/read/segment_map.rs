//! Where the bytes of one version are: segments that are there or on their way, and the reads that wait for them. What is
//! to be done outside the lock is left in `Effects`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::entries::{Entry, gaps, landed, overlapping, overlapping_mut};
use super::lane::LaneId;
use super::lanes::Lanes;
use super::layout::{Hints, LayoutParser};
use super::ranges_read::RangesRead;
use super::segment::{Pieces, Segment};
use super::shared_version::{Effects, SharedVersion};
use crate::base::error::Error;
use crate::base::version::Object;
use crate::memory::lease::Lease;
use crate::policy::queue::Priority;

/// What a read calls when it is over.
pub(super) type Done = Box<dyn FnOnce(Result<Pieces, Error>) + Send>;
/// What says which object comes next.
pub(super) type Next = Box<dyn FnOnce() -> Option<Object> + Send>;

/// Objects of at most so many bytes are fetched whole: a second request would take longer than the rest of the first.
const WHOLE_MOST: u64 = 1 << 20;
/// A read so near the end of an object that is no small one is for a table of contents, as zip and parquet have it there.
const TAIL_BEGINS: u64 = 64 << 10;
/// It is fetched with so much before it.
const TAIL_BYTES: u64 = 256 << 10;

/// A shorter wait says nothing for a larger window: the bytes come as fast as they can, and more in flight would only share
/// that out among more of them.
const LONG_WAIT: Duration = Duration::from_millis(2);

/// What may be asked for ahead now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) window_max: u64,
    pub(super) segment_max: u64,
    /// Of a lane: shorter where the link is thin.
    pub(super) lane_segment_max: u64,
}

/// How much memory is taken for a read that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// What its lane takes.
    Usual,
    /// As much as it asked for.
    Exact,
    /// The same past the limit.
    OverLimit,
}

/// What is there of one version.
pub(super) struct SegmentMap {
    pub(super) handles: u32,
    pub(super) next: Option<Next>,
    size: u64,
    /// By where they start; they do not overlap.
    entries: BTreeMap<u64, Entry>,
    lanes: Lanes,
    waits: HashMap<u64, WaitingRead>,
    next_wait: u64,
    /// What its format may yet say; nothing, where we know none of its name.
    layout: Option<LayoutParser>,
    /// What it has said; where ranges lie that are read as a whole, the lanes have.
    hints: Hints,
    /// It was fetched whole, or its tail was, or its table up to there.
    had_whole: bool,
    had_tail: bool,
    had_table: u64,
}

/// A read that waits.
struct WaitingRead {
    range: Range<u64>,
    lane: Option<LaneId>,
    done: Done,
    /// Where its bytes are, or will be; empty as long as they have not been asked for.
    pieces: Pieces,
    /// In how many segments they have not all landed.
    missing: usize,
    since: Instant,
}

impl SegmentMap {
    /// Those of an object of that name.
    pub(super) fn new(size: u64, name: &str) -> SegmentMap {
        SegmentMap {
            layout: LayoutParser::of(name, size),
            hints: Hints::default(),
            handles: 0,
            next: None,
            size,
            entries: BTreeMap::new(),
            lanes: Lanes::new(size),
            waits: HashMap::new(),
            next_wait: 0,
            had_whole: false,
            had_tail: false,
            had_table: 0,
        }
    }

    pub(super) fn lanes(&self) -> usize {
        self.lanes.count()
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    /// The lane of a read.
    pub(super) fn on_read(&mut self, read: &Range<u64>) -> Option<LaneId> {
        self.lanes.on_read(read)
    }

    /// The bytes of a range, if all of them have landed; they count as read.
    pub(super) fn take(&mut self, range: &Range<u64>, effects: &mut Effects) -> Option<Pieces> {
        let mut pieces = Pieces::default();
        let mut at = range.start;
        for entry in overlapping(&self.entries, range) {
            let segment = &entry.segment;
            let end = range.end.min(segment.range.end);
            if segment.range.start > at || segment.range.start + segment.landed() < end {
                return None;
            }
            pieces.push(segment, range);
            at = end;
        }
        if at < range.end {
            return None;
        }
        self.parse_layout(range);
        self.on_served(range, effects);
        Some(pieces)
    }

    /// Shows its format what has been read, as long as that is all there.
    fn parse_layout(&mut self, read: &Range<u64>) {
        while let Some((needs, most)) = self.layout.as_ref().and_then(|layout| layout.wants(read)) {
            let there = landed(&self.entries, &(needs.start..most.min(self.size)));
            let is_there = there.len() as u64 >= needs.end - needs.start;
            let bytes = is_there.then(|| there.slices().collect::<Vec<_>>().concat());
            if self.layout.as_mut().is_some_and(|layout| layout.parse(bytes.as_deref(), &mut self.hints)) {
                self.layout = None;
                self.lanes.extents = std::mem::take(&mut self.hints.extents);
            }
            if !is_there {
                return;
            }
        }
    }

    /// A read that is not all there.
    pub(super) fn wait(&mut self, range: Range<u64>, lane: Option<LaneId>, done: Done) -> u64 {
        self.next_wait += 1;
        let wait =
            WaitingRead { range, lane, done, pieces: Pieces::default(), missing: 0, since: Instant::now() };
        self.waits.insert(self.next_wait, wait);
        self.next_wait
    }

    /// Asks for whatever is missing of what a read waits for; how many bytes of memory it lacked.
    pub(super) fn ask(
        &mut self,
        version: &Arc<SharedVersion>,
        read: u64,
        effort: Effort,
        limits: &Limits,
        effects: &mut Effects,
    ) -> Option<u64> {
        let WaitingRead { range, lane, .. } = self.waits.get(&read)?;
        let (range, lane) = (range.clone(), *lane);
        for gap in gaps(&self.entries, &range) {
            let mut gap = gap;
            while !gap.is_empty() {
                let (wanted, is_whole) = self.wanted(&gap, lane, effort, limits);
                let memory = match effort {
                    Effort::Usual | Effort::Exact => version.readers().lease(wanted.end - wanted.start),
                    Effort::OverLimit => version.readers().allocate_over_limit(wanted.end - wanted.start),
                };
                match memory {
                    Ok(Some(memory)) => {
                        gap.start = gap.end.min(wanted.end);
                        let lane = lane.filter(|_| !is_whole);
                        let is_over_limit = effort == Effort::OverLimit;
                        self.fetch(version, wanted, memory, is_over_limit, is_whole, lane, false, effects);
                    }
                    Ok(None) => return Some(wanted.end - wanted.start),
                    Err(error) => {
                        self.fail(read, error, effects);
                        return None;
                    }
                }
            }
        }
        self.wait_for_all(read, effects);
        self.read_ahead(version, lane, limits, effects);
        None
    }

    /// What to ask for so that the beginning of `gap` can be read, and whether that is the whole object by one GET.
    fn wanted(
        &mut self,
        gap: &Range<u64>,
        lane: Option<LaneId>,
        effort: Effort,
        limits: &Limits,
    ) -> (Range<u64>, bool) {
        let exact = gap.start..gap.end.min(gap.start + limits.segment_max);
        if effort != Effort::Usual {
            return (exact, false);
        }
        if self.size <= WHOLE_MOST.min(limits.segment_max)
            && self.entries.is_empty()
            && (gap.start == 0 || !self.had_whole)
        {
            self.had_whole = true;
            return (0..self.size, true);
        }
        let table = self.table_around(gap, limits);
        let wanted = match (table.clone(), lane.and_then(|lane| self.lanes.get(lane))) {
            (Some(table), _) => table,
            (None, Some(lane)) => lane.foreground(gap, limits.window_max, limits.lane_segment_max),
            (None, None) if gap.start + TAIL_BEGINS >= self.size && !self.had_tail => {
                self.had_tail = true;
                self.size.saturating_sub(TAIL_BYTES)..self.size
            }
            (None, None) => exact,
        };
        // Up to its neighbours, and no longer than memory is taken at once.
        let from =
            self.entries.range(..gap.start).next_back().map_or(0, |(_, entry)| entry.segment.range.end);
        let to = self.entries.range(gap.start..).next().map_or(self.size, |(at, _)| *at);
        let start = wanted.start.max(from).min(gap.start);
        let wanted = start..wanted.end.min(to).min(start + limits.segment_max).max(gap.start + 1);
        self.had_table = table.map_or(self.had_table, |_| wanted.end);
        (wanted, false)
    }

    /// The table of contents where a gap lies in it, once: all of it is read, and the kernel makes many reads of that.
    fn table_around(&self, gap: &Range<u64>, limits: &Limits) -> Option<Range<u64>> {
        let table = self.hints.table.as_ref()?;
        let is_new = gap.end > table.start && gap.start >= self.had_table;
        let is_one_segment = table.end - table.start <= limits.segment_max;
        let start = if is_one_segment { table.start.min(gap.start) } else { gap.start };
        is_new.then_some(start..table.end)
    }

    /// Puts a segment into the map, and its transfer on its way.
    #[allow(clippy::too_many_arguments)] // Each says one thing about it.
    fn fetch(
        &mut self,
        version: &Arc<SharedVersion>,
        range: Range<u64>,
        memory: Lease,
        is_over_limit: bool,
        is_whole: bool,
        lane: Option<LaneId>,
        is_ahead: bool,
        effects: &mut Effects,
    ) {
        if let Some(lane) = lane.and_then(|lane| self.lanes.get(lane)) {
            lane.on_asked(&range);
        }
        if is_whole {
            version.counts().whole.fetch_add(1, Ordering::Relaxed);
        }
        let segment = version.segment(range, memory, is_over_limit);
        let priority = if is_ahead { Priority::Ahead } else { Priority::Awaited };
        let running = version.transfer(&segment, is_whole, priority);
        let (start, running_weak) = (segment.range.start, Arc::downgrade(&running));
        let entry = Entry {
            segment,
            running: running_weak,
            is_ahead,
            lane,
            waits: Vec::new(),
            read: RangesRead::default(),
        };
        let before = self.entries.insert(start, entry);
        debug_assert!(before.is_none(), "segments do not overlap");
        effects.start.push(running);
    }

    /// All that a read waits for is there or on its way: it is told when the last of it has landed.
    fn wait_for_all(&mut self, read: u64, effects: &mut Effects) {
        let Some(wait) = self.waits.get_mut(&read) else { return };
        let range = wait.range.clone();
        let (mut pieces, mut missing) = (Pieces::default(), Vec::new());
        for entry in overlapping_mut(&mut self.entries, &range) {
            pieces.push(&entry.segment, &range);
            let need = range.end.min(entry.segment.range.end) - entry.segment.range.start;
            if entry.segment.landed() < need {
                missing.push(entry.segment.range.start);
                entry.waits.push((need, read));
                if std::mem::take(&mut entry.is_ahead) {
                    effects.raise.extend(entry.running.upgrade());
                }
            }
        }
        wait.pieces = pieces;
        wait.missing = missing.len();
        if missing.is_empty() {
            return self.answer(read, effects);
        }
        for start in missing {
            self.tell(start, effects);
        }
    }

    /// Tells those who wait for what has landed of the segment at `start`.
    fn tell(&mut self, start: u64, effects: &mut Effects) {
        let Some(entry) = self.entries.get_mut(&start) else { return };
        let mut satisfied = Vec::new();
        loop {
            let least = entry.waits.iter().map(|(need, _)| *need).min();
            let landed = entry.segment.wait_for(least);
            if least.is_none_or(|least| least > landed) {
                break;
            }
            entry.waits.retain(|(need, read)| {
                let waits = *need > landed;
                if !waits {
                    satisfied.push(*read);
                }
                waits
            });
        }
        for read in satisfied {
            let Some(wait) = self.waits.get_mut(&read) else { continue };
            wait.missing -= 1;
            if wait.missing == 0 {
                self.answer(read, effects);
            }
        }
    }

    fn answer(&mut self, read: u64, effects: &mut Effects) {
        let Some(wait) = self.waits.remove(&read) else { return };
        if wait.since.elapsed() >= LONG_WAIT
            && let Some(lane) = wait.lane.and_then(|lane| self.lanes.get(lane))
        {
            lane.on_wait();
        }
        self.parse_layout(&wait.range);
        self.on_served(&wait.range, effects);
        effects.calls.push((wait.done, Ok(wait.pieces)));
    }

    fn fail(&mut self, read: u64, error: Error, effects: &mut Effects) {
        let Some(wait) = self.waits.remove(&read) else { return };
        effects.calls.push((wait.done, Err(error)));
    }

    /// A range has been read. What nobody will read again goes.
    fn on_served(&mut self, range: &Range<u64>, effects: &mut Effects) {
        let mut used_up = Vec::new();
        for entry in overlapping_mut(&mut self.entries, range) {
            let segment = &entry.segment;
            let there = &segment.range;
            entry.read.add(&(range.start.max(there.start)..range.end.min(there.end)));
            let is_all_read = entry.is_all_read();
            let stays =
                entry.lane.is_some_and(|lane| self.lanes.is_busy(lane)) && segment.range.end < self.size;
            if is_all_read && !stays && entry.waits.is_empty() {
                used_up.push(segment.range.start);
            }
        }
        for start in used_up {
            self.remove(start, effects);
        }
    }

    /// Asks for what a lane reads next, as far as there is room, and drops what it has left behind.
    pub(super) fn read_ahead(
        &mut self,
        version: &Arc<SharedVersion>,
        lane: Option<LaneId>,
        limits: &Limits,
        effects: &mut Effects,
    ) {
        self.drop_retired(effects);
        let Some(number) = lane else { return };
        self.drop_passed(number, effects);
        let next = |lanes: &mut Lanes, entries: &BTreeMap<u64, Entry>| {
            lanes.next_missing(number, limits.window_max, limits.lane_segment_max, |wanted| {
                gaps(entries, wanted)
            })
        };
        while let Some(gap) = next(&mut self.lanes, &self.entries) {
            let bytes = gap.end - gap.start;
            // The next read asks again, when some of what is on its way has come.
            if !version.flow().has_room(bytes) {
                break;
            }
            let Some(memory) = version.readers().lease_ahead(bytes) else {
                effects.is_short = bytes;
                break;
            };
            self.fetch(version, gap, memory, false, false, Some(number), true, effects);
        }
        let ends = self.lanes.get(number).is_some_and(|lane| lane.is_asked_to_the_end());
        if ends && effects.next.is_none() {
            effects.next = self.next.take();
        }
    }

    /// Begins to read from the start, before anybody does.
    pub(super) fn begin(&mut self, version: &Arc<SharedVersion>, limits: &Limits, effects: &mut Effects) {
        if !self.entries.is_empty() || self.lanes.count() > 0 || self.size == 0 {
            return;
        }
        if self.size <= WHOLE_MOST.min(limits.segment_max) {
            if version.flow().has_room(self.size)
                && let Some(memory) = version.readers().lease_ahead(self.size)
            {
                self.had_whole = true;
                self.fetch(version, 0..self.size, memory, false, true, None, true, effects);
            }
            return;
        }
        let lane = self.lanes.begin();
        self.read_ahead(version, lane, limits, effects);
    }

    /// Segments of lanes that are followed no more.
    fn drop_retired(&mut self, effects: &mut Effects) {
        for number in self.lanes.take_retired() {
            self.drop_where(effects, |entry| entry.lane == Some(number));
        }
    }

    /// Segments that lie far behind where their lane is read.
    fn drop_passed(&mut self, number: LaneId, effects: &mut Effects) {
        let Some(lane) = self.lanes.get(number).cloned() else { return };
        self.drop_where(effects, |entry| {
            entry.lane == Some(number)
                && (lane.has_passed(&entry.segment.range)
                    || entry.is_all_read() && lane.is_behind(&entry.segment.range))
        });
    }

    /// Those that nobody waits for.
    fn drop_where(&mut self, effects: &mut Effects, is_droppable: impl Fn(&Entry) -> bool) {
        let droppable = |entry: &&Entry| entry.waits.is_empty() && is_droppable(entry);
        let starts = self.entries.values().filter(droppable).map(|entry| entry.segment.range.start);
        for start in starts.collect::<Vec<_>>() {
            self.remove(start, effects);
        }
    }

    /// Takes a segment out of the map. What is on its way there is called off.
    fn remove(&mut self, start: u64, effects: &mut Effects) {
        let Some(entry) = self.entries.remove(&start) else { return };
        effects.wasted += entry.unread_bytes();
        if entry.segment.landed() < entry.segment.bytes() {
            effects.cancel.extend(entry.running.upgrade());
        }
        effects.gone.push(entry.segment);
    }

    /// Drops what nobody waits for until so many bytes are free: what has been read first, then what is farthest ahead.
    /// How many bytes that gave; of what is still on its way nothing is free before it has stopped.
    pub(super) fn make_room(&mut self, wanted: u64, effects: &mut Effects) -> u64 {
        let mut droppable: Vec<(bool, u64, u64)> = Vec::new();
        // What is there of a read that waits for memory is not dropped for its own sake.
        let is_wanted = |entry: &Entry| {
            let there = &entry.segment.range;
            self.waits.values().any(|wait| wait.range.start < there.end && there.start < wait.range.end)
        };
        for entry in self.entries.values().filter(|entry| entry.waits.is_empty() && !is_wanted(entry)) {
            let lane = entry.lane.and_then(|lane| self.lanes.get(lane));
            let distance = lane.map_or(u64::MAX, |lane| lane.reach.abs_diff(entry.segment.range.start));
            droppable.push((!entry.is_all_read(), u64::MAX - distance, entry.segment.range.start));
        }
        droppable.sort_unstable();
        let mut freed = 0;
        for (_, _, start) in droppable {
            if freed >= wanted {
                break;
            }
            let Some(entry) = self.entries.get(&start) else { continue };
            let (range, is_read) = (entry.segment.range.clone(), !entry.read.is_empty());
            if entry.segment.landed() == entry.segment.bytes() {
                freed += entry.segment.bytes();
            }
            if !is_read && let Some(lane) = entry.lane.and_then(|lane| self.lanes.get(lane)) {
                lane.on_evicted(&range);
            }
            self.remove(start, effects);
        }
        freed
    }

    /// Bytes that somebody waits for have landed in a segment.
    pub(super) fn on_landed(&mut self, segment: &Arc<Segment>, effects: &mut Effects) {
        if self.is_in_place(segment) {
            self.tell(segment.range.start, effects);
        }
    }

    /// The transfer of a segment has ended.
    pub(super) fn on_end(
        &mut self,
        segment: &Arc<Segment>,
        result: &Result<(), Error>,
        effects: &mut Effects,
    ) {
        if !self.is_in_place(segment) {
            return;
        }
        let start = segment.range.start;
        let Err(error) = result else { return self.tell(start, effects) };
        let Some(entry) = self.entries.remove(&start) else { return };
        if let Some(lane) = entry.lane.and_then(|lane| self.lanes.get(lane)) {
            lane.on_failed(&segment.range);
        }
        for (_, read) in entry.waits {
            self.fail(read, error.once_more(), effects);
        }
        effects.gone.push(entry.segment);
    }

    /// Whether the read was still waiting. What was fetched for it alone is called off.
    pub(super) fn cancel(&mut self, read: u64, effects: &mut Effects) -> bool {
        let Some(wait) = self.waits.remove(&read) else { return false };
        let mut alone = Vec::new();
        for entry in overlapping_mut(&mut self.entries, &wait.range) {
            entry.waits.retain(|(_, other)| *other != read);
            if entry.waits.is_empty() && entry.lane.is_none() {
                alone.push(entry.segment.range.start);
            }
        }
        for start in alone {
            self.remove(start, effects);
        }
        effects.dropped.push(wait.done);
        true
    }

    /// One reader less. After the last one only what is waited for stays.
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

    fn is_in_place(&self, segment: &Arc<Segment>) -> bool {
        let entry = self.entries.get(&segment.range.start);
        entry.is_some_and(|entry| Arc::ptr_eq(&entry.segment, segment))
    }
}
