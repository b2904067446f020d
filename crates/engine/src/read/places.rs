//! Where the bytes of one version are: segments that are there or on their way, and the reads that wait for them. What is
//! to be done outside the lock is left in `After`.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::lane::Number;
use super::lanes::Lanes;
use super::layout::{Found, Study};
use super::place::{Place, gaps, landed, overlapping, overlapping_mut};
use super::segment::{Pieces, Segment};
use super::shelf::{After, Shelf};
use super::waiting_read::Read;
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
    Overdrawn,
}

/// What is there of one version.
pub(super) struct Places {
    pub(super) handles: u32,
    pub(super) next: Option<Next>,
    size: u64,
    /// By where they start; they do not overlap.
    places: BTreeMap<u64, Place>,
    lanes: Lanes,
    waits: HashMap<u64, Wait>,
    next_wait: u64,
    /// What its format may yet say; nothing, where we know none of its name.
    study: Option<Study>,
    /// What it has said; where ranges lie that are read as a whole, the lanes have.
    found: Found,
    /// It was fetched whole, or its tail was, or its table up to there.
    had_whole: bool,
    had_tail: bool,
    had_table: u64,
}

/// A read that waits.
struct Wait {
    range: Range<u64>,
    lane: Option<Number>,
    done: Done,
    /// Where its bytes are, or will be; empty as long as they have not been asked for.
    pieces: Pieces,
    /// In how many segments they have not all landed.
    missing: usize,
    since: Instant,
}

impl Places {
    /// Those of an object of that name.
    pub(super) fn new(size: u64, name: &str) -> Places {
        Places {
            study: Study::of(name, size),
            found: Found::default(),
            handles: 0,
            next: None,
            size,
            places: BTreeMap::new(),
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
        self.places.len()
    }

    /// The lane of a read.
    pub(super) fn on_read(&mut self, read: &Range<u64>) -> Option<Number> {
        self.lanes.on_read(read)
    }

    /// The bytes of a range, if all of them have landed; they count as read.
    pub(super) fn take(&mut self, range: &Range<u64>, after: &mut After) -> Option<Pieces> {
        let mut pieces = Pieces::default();
        let mut at = range.start;
        for place in overlapping(&self.places, range) {
            let segment = &place.segment;
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
        self.learn_layout(range);
        self.on_served(range, after);
        Some(pieces)
    }

    /// Shows its format what has been read, as long as that is all there.
    fn learn_layout(&mut self, read: &Range<u64>) {
        while let Some((needs, most)) = self.study.as_ref().and_then(|study| study.wants(read)) {
            let there = landed(&self.places, &(needs.start..most.min(self.size)));
            let is_there = there.len() as u64 >= needs.end - needs.start;
            let bytes = is_there.then(|| there.slices().collect::<Vec<_>>().concat());
            if self.study.as_mut().is_some_and(|study| study.see(bytes.as_deref(), &mut self.found)) {
                self.study = None;
                self.lanes.extents = std::mem::take(&mut self.found.extents);
            }
            if !is_there {
                return;
            }
        }
    }

    /// A read that is not all there.
    pub(super) fn wait(&mut self, range: Range<u64>, lane: Option<Number>, done: Done) -> u64 {
        self.next_wait += 1;
        let wait = Wait { range, lane, done, pieces: Pieces::default(), missing: 0, since: Instant::now() };
        self.waits.insert(self.next_wait, wait);
        self.next_wait
    }

    /// Asks for whatever is missing of what a read waits for; how many bytes of memory it lacked.
    pub(super) fn ask(
        &mut self,
        shelf: &Arc<Shelf>,
        read: u64,
        effort: Effort,
        limits: &Limits,
        after: &mut After,
    ) -> Option<u64> {
        let Wait { range, lane, .. } = self.waits.get(&read)?;
        let (range, lane) = (range.clone(), *lane);
        for gap in gaps(&self.places, &range) {
            let mut gap = gap;
            while !gap.is_empty() {
                let (wanted, is_whole) = self.wanted(&gap, lane, effort, limits);
                let memory = match effort {
                    Effort::Usual | Effort::Exact => shelf.readers().lease(wanted.end - wanted.start),
                    Effort::Overdrawn => shelf.readers().overdraw(wanted.end - wanted.start),
                };
                match memory {
                    Ok(Some(memory)) => {
                        gap.start = gap.end.min(wanted.end);
                        let lane = lane.filter(|_| !is_whole);
                        let is_overdrawn = effort == Effort::Overdrawn;
                        self.fetch(shelf, wanted, memory, is_overdrawn, is_whole, lane, false, after);
                    }
                    Ok(None) => return Some(wanted.end - wanted.start),
                    Err(error) => {
                        self.fail(read, error, after);
                        return None;
                    }
                }
            }
        }
        self.wait_for_all(read, after);
        self.read_ahead(shelf, lane, limits, after);
        None
    }

    /// What to ask for so that the beginning of `gap` can be read, and whether that is the whole object by one GET.
    fn wanted(
        &mut self,
        gap: &Range<u64>,
        lane: Option<Number>,
        effort: Effort,
        limits: &Limits,
    ) -> (Range<u64>, bool) {
        let exact = gap.start..gap.end.min(gap.start + limits.segment_max);
        if effort != Effort::Usual {
            return (exact, false);
        }
        if self.size <= WHOLE_MOST.min(limits.segment_max)
            && self.places.is_empty()
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
        let from = self.places.range(..gap.start).next_back().map_or(0, |(_, place)| place.segment.range.end);
        let to = self.places.range(gap.start..).next().map_or(self.size, |(at, _)| *at);
        let start = wanted.start.max(from).min(gap.start);
        let wanted = start..wanted.end.min(to).min(start + limits.segment_max).max(gap.start + 1);
        self.had_table = table.map_or(self.had_table, |_| wanted.end);
        (wanted, false)
    }

    /// The table of contents where a gap lies in it, once: all of it is read, and the kernel makes many reads of that.
    fn table_around(&self, gap: &Range<u64>, limits: &Limits) -> Option<Range<u64>> {
        let table = self.found.table.as_ref()?;
        let is_new = gap.end > table.start && gap.start >= self.had_table;
        let is_one_segment = table.end - table.start <= limits.segment_max;
        let start = if is_one_segment { table.start.min(gap.start) } else { gap.start };
        is_new.then_some(start..table.end)
    }

    /// Puts a segment in its place, and its transfer on its way.
    #[allow(clippy::too_many_arguments)] // Each says one thing about it.
    fn fetch(
        &mut self,
        shelf: &Arc<Shelf>,
        range: Range<u64>,
        memory: Lease,
        is_overdrawn: bool,
        is_whole: bool,
        lane: Option<Number>,
        is_ahead: bool,
        after: &mut After,
    ) {
        if let Some(lane) = lane.and_then(|lane| self.lanes.get(lane)) {
            lane.on_asked(&range);
        }
        if is_whole {
            shelf.counts().whole.fetch_add(1, Ordering::Relaxed);
        }
        let segment = shelf.segment(range, memory, is_overdrawn);
        let priority = if is_ahead { Priority::Ahead } else { Priority::Awaited };
        let running = shelf.transfer(&segment, is_whole, priority);
        let (start, running_weak) = (segment.range.start, Arc::downgrade(&running));
        let place = Place {
            segment,
            running: running_weak,
            is_ahead,
            lane,
            waits: Vec::new(),
            read: Read::default(),
        };
        let before = self.places.insert(start, place);
        debug_assert!(before.is_none(), "segments do not overlap");
        after.start.push(running);
    }

    /// All that a read waits for is there or on its way: it is told when the last of it has landed.
    fn wait_for_all(&mut self, read: u64, after: &mut After) {
        let Some(wait) = self.waits.get_mut(&read) else { return };
        let range = wait.range.clone();
        let (mut pieces, mut missing) = (Pieces::default(), Vec::new());
        for place in overlapping_mut(&mut self.places, &range) {
            pieces.push(&place.segment, &range);
            let need = range.end.min(place.segment.range.end) - place.segment.range.start;
            if place.segment.landed() < need {
                missing.push(place.segment.range.start);
                place.waits.push((need, read));
                if std::mem::take(&mut place.is_ahead) {
                    after.raise.extend(place.running.upgrade());
                }
            }
        }
        wait.pieces = pieces;
        wait.missing = missing.len();
        if missing.is_empty() {
            return self.answer(read, after);
        }
        for start in missing {
            self.tell(start, after);
        }
    }

    /// Tells those who wait for what has landed of the segment at `start`.
    fn tell(&mut self, start: u64, after: &mut After) {
        let Some(place) = self.places.get_mut(&start) else { return };
        let mut satisfied = Vec::new();
        loop {
            let least = place.waits.iter().map(|(need, _)| *need).min();
            let landed = place.segment.wait_for(least);
            if least.is_none_or(|least| least > landed) {
                break;
            }
            place.waits.retain(|(need, read)| {
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
                self.answer(read, after);
            }
        }
    }

    fn answer(&mut self, read: u64, after: &mut After) {
        let Some(wait) = self.waits.remove(&read) else { return };
        if wait.since.elapsed() >= LONG_WAIT
            && let Some(lane) = wait.lane.and_then(|lane| self.lanes.get(lane))
        {
            lane.on_wait();
        }
        self.learn_layout(&wait.range);
        self.on_served(&wait.range, after);
        after.calls.push((wait.done, Ok(wait.pieces)));
    }

    fn fail(&mut self, read: u64, error: Error, after: &mut After) {
        let Some(wait) = self.waits.remove(&read) else { return };
        after.calls.push((wait.done, Err(error)));
    }

    /// A range has been read. What nobody will read again goes.
    fn on_served(&mut self, range: &Range<u64>, after: &mut After) {
        let mut used_up = Vec::new();
        for place in overlapping_mut(&mut self.places, range) {
            let segment = &place.segment;
            let there = &segment.range;
            place.read.add(&(range.start.max(there.start)..range.end.min(there.end)));
            let is_all_read = place.is_all_read();
            let stays =
                place.lane.is_some_and(|lane| self.lanes.is_busy(lane)) && segment.range.end < self.size;
            if is_all_read && !stays && place.waits.is_empty() {
                used_up.push(segment.range.start);
            }
        }
        for start in used_up {
            self.remove(start, after);
        }
    }

    /// Asks for what a lane reads next, as far as there is room, and drops what it has left behind.
    pub(super) fn read_ahead(
        &mut self,
        shelf: &Arc<Shelf>,
        lane: Option<Number>,
        limits: &Limits,
        after: &mut After,
    ) {
        self.drop_retired(after);
        let Some(number) = lane else { return };
        self.drop_passed(number, after);
        let next = |lanes: &mut Lanes, places: &BTreeMap<u64, Place>| {
            lanes.next_missing(number, limits.window_max, limits.lane_segment_max, |wanted| {
                gaps(places, wanted)
            })
        };
        while let Some(gap) = next(&mut self.lanes, &self.places) {
            let bytes = gap.end - gap.start;
            // The next read asks again, when some of what is on its way has come.
            if !shelf.flow().has_room(bytes) {
                break;
            }
            let Some(memory) = shelf.readers().lease_ahead(bytes) else {
                after.is_short = bytes;
                break;
            };
            self.fetch(shelf, gap, memory, false, false, Some(number), true, after);
        }
        let ends = self.lanes.get(number).is_some_and(|lane| lane.is_asked_to_the_end());
        if ends && after.next.is_none() {
            after.next = self.next.take();
        }
    }

    /// Begins to read from the start, before anybody does.
    pub(super) fn begin(&mut self, shelf: &Arc<Shelf>, limits: &Limits, after: &mut After) {
        if !self.places.is_empty() || self.lanes.count() > 0 || self.size == 0 {
            return;
        }
        if self.size <= WHOLE_MOST.min(limits.segment_max) {
            if shelf.flow().has_room(self.size)
                && let Some(memory) = shelf.readers().lease_ahead(self.size)
            {
                self.had_whole = true;
                self.fetch(shelf, 0..self.size, memory, false, true, None, true, after);
            }
            return;
        }
        let lane = self.lanes.begin();
        self.read_ahead(shelf, lane, limits, after);
    }

    /// Segments of lanes that are followed no more.
    fn drop_retired(&mut self, after: &mut After) {
        for number in self.lanes.take_retired() {
            self.drop_where(after, |place| place.lane == Some(number));
        }
    }

    /// Segments that lie far behind where their lane is read.
    fn drop_passed(&mut self, number: Number, after: &mut After) {
        let Some(lane) = self.lanes.get(number).cloned() else { return };
        self.drop_where(after, |place| {
            place.lane == Some(number)
                && (lane.has_passed(&place.segment.range)
                    || place.is_all_read() && lane.is_behind(&place.segment.range))
        });
    }

    /// Those that nobody waits for.
    fn drop_where(&mut self, after: &mut After, is_droppable: impl Fn(&Place) -> bool) {
        let droppable = |place: &&Place| place.waits.is_empty() && is_droppable(place);
        let starts = self.places.values().filter(droppable).map(|place| place.segment.range.start);
        for start in starts.collect::<Vec<_>>() {
            self.remove(start, after);
        }
    }

    /// Takes a segment out of its place. What is on its way there is called off.
    fn remove(&mut self, start: u64, after: &mut After) {
        let Some(place) = self.places.remove(&start) else { return };
        after.wasted += place.unread_bytes();
        if place.segment.landed() < place.segment.bytes() {
            after.cancel.extend(place.running.upgrade());
        }
        after.gone.push(place.segment);
    }

    /// Drops what nobody waits for until so many bytes are free: what has been read first, then what is farthest ahead.
    /// How many bytes that gave; of what is still on its way nothing is free before it has stopped.
    pub(super) fn make_room(&mut self, wanted: u64, after: &mut After) -> u64 {
        let mut droppable: Vec<(bool, u64, u64)> = Vec::new();
        // What is there of a read that waits for memory is not dropped for its own sake.
        let is_wanted = |place: &Place| {
            let there = &place.segment.range;
            self.waits.values().any(|wait| wait.range.start < there.end && there.start < wait.range.end)
        };
        for place in self.places.values().filter(|place| place.waits.is_empty() && !is_wanted(place)) {
            let lane = place.lane.and_then(|lane| self.lanes.get(lane));
            let distance = lane.map_or(u64::MAX, |lane| lane.reach.abs_diff(place.segment.range.start));
            droppable.push((!place.is_all_read(), u64::MAX - distance, place.segment.range.start));
        }
        droppable.sort_unstable();
        let mut freed = 0;
        for (_, _, start) in droppable {
            if freed >= wanted {
                break;
            }
            let Some(place) = self.places.get(&start) else { continue };
            let (range, is_read) = (place.segment.range.clone(), !place.read.is_empty());
            if place.segment.landed() == place.segment.bytes() {
                freed += place.segment.bytes();
            }
            if !is_read && let Some(lane) = place.lane.and_then(|lane| self.lanes.get(lane)) {
                lane.on_evicted(&range);
            }
            self.remove(start, after);
        }
        freed
    }

    /// Bytes that somebody waits for have landed in a segment.
    pub(super) fn on_landed(&mut self, segment: &Arc<Segment>, after: &mut After) {
        if self.is_in_place(segment) {
            self.tell(segment.range.start, after);
        }
    }

    /// The transfer of a segment has ended.
    pub(super) fn on_end(&mut self, segment: &Arc<Segment>, result: &Result<(), Error>, after: &mut After) {
        if !self.is_in_place(segment) {
            return;
        }
        let start = segment.range.start;
        let Err(error) = result else { return self.tell(start, after) };
        let Some(place) = self.places.remove(&start) else { return };
        if let Some(lane) = place.lane.and_then(|lane| self.lanes.get(lane)) {
            lane.on_failed(&segment.range);
        }
        for (_, read) in place.waits {
            self.fail(read, error.clone_without_source(), after);
        }
        after.gone.push(place.segment);
    }

    /// Whether the read was still waiting. What was fetched for it alone is called off.
    pub(super) fn cancel(&mut self, read: u64, after: &mut After) -> bool {
        let Some(wait) = self.waits.remove(&read) else { return false };
        let mut alone = Vec::new();
        for place in overlapping_mut(&mut self.places, &wait.range) {
            place.waits.retain(|(_, other)| *other != read);
            if place.waits.is_empty() && place.lane.is_none() {
                alone.push(place.segment.range.start);
            }
        }
        for start in alone {
            self.remove(start, after);
        }
        after.dropped.push(wait.done);
        true
    }

    /// One reader less. After the last one only what is waited for stays.
    pub(super) fn leave(&mut self, after: &mut After) {
        self.handles -= 1;
        if self.handles == 0 {
            self.drop_where(after, |_| true);
            let extents = std::mem::take(&mut self.lanes.extents);
            self.lanes = Lanes::new(self.size);
            self.lanes.extents = extents;
            (self.had_whole, self.had_tail, self.had_table) = (false, false, 0);
        }
    }

    fn is_in_place(&self, segment: &Arc<Segment>) -> bool {
        let place = self.places.get(&segment.range.start);
        place.is_some_and(|place| Arc::ptr_eq(&place.segment, segment))
    }
}
