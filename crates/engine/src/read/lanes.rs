//! Which lane a read belongs to. Pure: no clock, no lock, no byte.
//!
//! A read that belongs to no lane begins or continues a *run*. A run becomes a lane once it is longer than
//! recent runs have been: random reads that happen to touch, or that the kernel has split in two, are no
//! pattern. Runs that start in equal steps become a strided lane. Random reads leave all lanes alone.

use std::collections::VecDeque;
use std::ops::Range;

use super::lane::{Lane, LaneId, Pattern, WINDOW_AT_START, WINDOW_LEAST};
use flatout_formats::Extents;

/// At most this many lanes per object.
const LANES_MOST: usize = 8;
/// After this many reads of the object without one of its own a lane may be replaced, and a run has ended.
const IDLE_READS: u64 = 32;
/// At most this many runs are remembered.
const RUNS_MOST: usize = 16;
/// Reads of one run may leave gaps up to this length.
const GAP_MOST: u64 = 64 << 10;
/// A run that has come this far becomes a lane, however long recent runs were.
const USUAL_MOST: u64 = 4 << 20;
/// Elements of a strided lane are at most this long, and this many steps must be equal.
const ELEMENT_MOST: u64 = 4 << 20;
const STEPS_SAME: i64 = 3;
/// Two reads that touch and are shorter together may be one that the kernel has split.
const PAIR_LEAST: u64 = 512 << 10;
/// A lane that stayed shorter than this, and is idle, was none.
const LANE_LEAST: u64 = 2 << 20;
/// This many reads must go backward: fewer may be reordered by chance.
const BACKWARD_LEAST: u32 = 3;

/// The patterns in which one object is read.
#[derive(Debug)]
pub(super) struct Lanes {
    size: u64,
    lanes: Vec<Lane>,
    /// The latest at the back.
    runs: VecDeque<Run>,
    /// How long recent runs were when they ended.
    usual_run: u64,
    /// How many reads there were.
    reads: u64,
    next_number: LaneId,
    /// What the object's format says of it.
    pub(super) extents: Extents,
    /// Lanes that were replaced; the segment map drops their segments, and clears this.
    pub(super) retired: Vec<LaneId>,
}

/// Reads that touch one another, and are no lane yet.
#[derive(Debug)]
struct Run {
    range: Range<u64>,
    /// Where it began.
    start: u64,
    forward: u32,
    backward: u32,
    last_read: u64,
}

impl Lanes {
    pub(super) fn new(size: u64) -> Lanes {
        Lanes {
            size,
            lanes: Vec::new(),
            runs: VecDeque::new(),
            usual_run: 0,
            reads: 0,
            next_number: 0,
            extents: Extents::default(),
            retired: Vec::new(),
        }
    }

    /// The lane of a read, which moves on by it; `None` if the read follows no pattern.
    pub(super) fn on_read(&mut self, read: &Range<u64>) -> Option<LaneId> {
        self.reads += 1;
        let nearest = self.lanes.iter_mut().filter_map(|lane| Some((lane.distance(read)?, lane)));
        if let Some((_, lane)) = nearest.min_by_key(|(distance, _)| *distance) {
            lane.on_read(read);
            lane.last_read = self.reads;
            return Some(lane.number);
        }
        if let Some(at) = self.runs.iter().rposition(|run| run.is_touched(read)) {
            return self.go_on(at, read);
        }
        let begun = self.extents.begun_by(read);
        // An extent from the object's start is read by itself: it is a member of an archive.
        if read.start == 0 && begun.as_ref().is_none_or(|extent| extent.start > 0) {
            let window = if self.reads == 1 { WINDOW_AT_START } else { WINDOW_LEAST };
            return self.promote(Pattern::Forward, read, window);
        }
        self.retire_short();
        if let Some(extent) = begun {
            let number = self.promote(Pattern::Forward, read, WINDOW_AT_START)?;
            self.lanes
                .iter_mut()
                .filter(|lane| lane.number == number)
                .for_each(|lane| lane.end_at(extent.end));
            return Some(number);
        }
        let strided = self.strided(read);
        self.remember(read);
        let (pattern, window) = strided?;
        self.promote(pattern, read, window)
    }

    /// A lane from the object's start, of which nothing has been read yet.
    pub(super) fn begin(&mut self) -> Option<LaneId> {
        self.promote(Pattern::Forward, &(0..0), WINDOW_AT_START)
    }

    fn go_on(&mut self, at: usize, read: &Range<u64>) -> Option<LaneId> {
        let reads = self.reads;
        let ended = self.runs.iter().filter(|run| reads - run.last_read >= IDLE_READS);
        let usual = ended.map(Run::bytes).max().unwrap_or(0).max(self.usual_run).min(USUAL_MOST);
        let run = &mut self.runs[at];
        run.on_read(read);
        run.last_read = reads;
        let (range, bytes) = (run.range.clone(), run.bytes());
        let pattern = match (run.forward, run.backward) {
            (1, 0) if bytes < PAIR_LEAST => return None,
            (forward, backward) if forward > backward => Pattern::Forward,
            (0, BACKWARD_LEAST..) => Pattern::Backward,
            _ => return None,
        };
        if bytes <= 2 * usual {
            return None;
        }
        let number = self.promote(pattern, &range, 2 * bytes)?;
        self.runs.remove(at);
        Some(number)
    }

    /// Ends idle lanes that came to nothing.
    fn retire_short(&mut self) {
        let reads = self.reads;
        let came_to_nothing =
            |lane: &Lane| reads - lane.last_read >= IDLE_READS && lane.run_bytes() < LANE_LEAST;
        while let Some(at) = self.lanes.iter().position(came_to_nothing) {
            self.retire(at);
        }
    }

    fn retire(&mut self, at: usize) {
        let retired = self.lanes.remove(at);
        self.on_ended(retired.run_bytes());
        self.retired.push(retired.number);
    }

    /// The strided pattern that this read continues, if as many runs before it begin in equal steps.
    fn strided(&self, read: &Range<u64>) -> Option<(Pattern, u64)> {
        let begun = |at: i128| {
            let runs = self.runs.iter().find(|run| i128::from(run.start) == at).map(Run::bytes);
            runs.or_else(|| {
                let mut lanes = self.lanes.iter().filter(|lane| lane.pattern == Pattern::Forward);
                lanes.find(|lane| i128::from(lane.start) == at).map(Lane::run_bytes)
            })
        };
        let at = i128::from(read.start);
        self.runs.iter().rev().find_map(|run| {
            let step = at - i128::from(run.start);
            let bytes = run.bytes().max(read.end - read.start);
            let is_step = step.unsigned_abs() > u128::from(bytes);
            let same = |times: i64| begun(at - step * i128::from(times)).is_some();
            (is_step && bytes <= ELEMENT_MOST && (2..=STEPS_SAME).all(same))
                .then(|| Some((Pattern::Strided { step: i64::try_from(step).ok()?, bytes }, 2 * bytes)))
                .flatten()
        })
    }

    fn remember(&mut self, read: &Range<u64>) {
        if self.runs.len() == RUNS_MOST
            && let Some(oldest) = (0..self.runs.len()).min_by_key(|at| self.runs[*at].last_read)
            && let Some(run) = self.runs.remove(oldest)
        {
            self.on_ended(run.bytes());
        }
        let run =
            Run { range: read.clone(), start: read.start, forward: 0, backward: 0, last_read: self.reads };
        self.runs.push_back(run);
    }

    /// A run has ended. The longest recent one counts, less and less.
    fn on_ended(&mut self, bytes: u64) {
        self.usual_run = bytes.max(self.usual_run - self.usual_run / 8).min(USUAL_MOST);
    }

    /// A new lane, unless all lanes are in use.
    fn promote(&mut self, pattern: Pattern, begun: &Range<u64>, window: u64) -> Option<LaneId> {
        if self.lanes.len() == LANES_MOST {
            let yields = |lane: &Lane| lane.is_at_its_end() || self.reads - lane.last_read >= IDLE_READS;
            let yielding = (0..self.lanes.len()).filter(|at| yields(&self.lanes[*at]));
            let oldest = yielding.min_by_key(|at| self.lanes[*at].last_read)?;
            self.retire(oldest);
        }
        self.next_number += 1;
        let mut lane = Lane::new(self.next_number, pattern, begun, window, self.size);
        lane.last_read = self.reads;
        self.lanes.push(lane);
        Some(self.next_number)
    }

    /// The lane of this number, while it exists.
    pub(super) fn get(&mut self, number: LaneId) -> Option<&mut Lane> {
        self.lanes.iter_mut().find(|lane| lane.number == number)
    }

    /// What a lane prefetches next and `gaps` calls missing. What is not missing counts as requested. A lane
    /// does not enter what another lane has read: their readers have divided the object.
    pub(super) fn next_missing(
        &mut self,
        number: LaneId,
        window_max: u64,
        segment_max: u64,
        gaps: impl Fn(&Range<u64>) -> Vec<Range<u64>>,
    ) -> Option<Range<u64>> {
        let at = self.lanes.iter().position(|lane| lane.number == number)?;
        let lane = &self.lanes[at];
        let others = self.lanes.iter().filter(|other| other.pattern == Pattern::Forward);
        let in_front =
            others.map(|other| other.start).filter(|start| *start > lane.start && *start >= lane.reach);
        let end = in_front.min().unwrap_or(self.size);
        let lane = &mut self.lanes[at];
        loop {
            let wanted = lane.ahead(end, window_max, segment_max)?;
            match lane.first_of(gaps(&wanted)) {
                Some(gap) => return Some(gap),
                None => lane.on_asked(&wanted),
            }
        }
    }

    /// Whether the lane has been read from lately.
    pub(super) fn is_busy(&self, number: LaneId) -> bool {
        let lane = self.lanes.iter().find(|lane| lane.number == number);
        lane.is_some_and(|lane| self.reads - lane.last_read < IDLE_READS)
    }

    /// How many lanes there are.
    pub(super) fn count(&self) -> usize {
        self.lanes.len()
    }
}

impl Run {
    fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    fn goes_forward(&self, read: &Range<u64>) -> bool {
        let touches = read.start >= self.range.start && read.start <= self.range.end + GAP_MOST;
        touches && read.end > self.range.end
    }

    fn goes_backward(&self, read: &Range<u64>) -> bool {
        let touches = read.end <= self.range.end && read.end + GAP_MOST >= self.range.start;
        touches && read.start < self.range.start
    }

    /// Whether a read continues it.
    fn is_touched(&self, read: &Range<u64>) -> bool {
        self.goes_forward(read) || self.goes_backward(read)
    }

    fn on_read(&mut self, read: &Range<u64>) {
        match self.goes_forward(read) {
            true => self.forward += 1,
            false => self.backward += 1,
        }
        self.range = self.range.start.min(read.start)..self.range.end.max(read.end);
    }
}

#[cfg(test)]
#[path = "lanes_tests.rs"]
mod tests;
