//! The map alone, without an engine: what it fetches, whom it answers, what it drops; by tables, and against
//! a model.

#![allow(clippy::single_range_in_vec_init)] // Lists of segments, some of one.

use std::sync::{Mutex, Weak};

use proptest::prelude::*;

use super::*;
use crate::base::error::ErrorKind;
use crate::memory::lease::Pool;
use crate::read::counts::Counts;
use crate::read::segment::OnFreed;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const PAGE: u64 = 4 * KIB;
const LIMITS: Limits = Limits { window_max: 64 * MIB, segment_max: 8 * MIB, lane_segment_max: 8 * MIB };

/// Stands in for the engine: takes memory without end, and lands bytes when a test says so.
struct Version {
    map: SegmentMap,
    limits: Limits,
    now: Instant,
    fetched: Vec<(Fetch, Arc<Segment>)>,
    answers: Arc<Mutex<Vec<Answer>>>,
    effects: Effects,
    pool: Arc<Pool>,
}

/// The first byte of a read, and its bytes or its error.
type Answer = (u64, Result<Vec<u8>, ErrorKind>);

struct Nobody;

impl OnFreed for Nobody {
    fn on_freed(self: Arc<Self>) {}
}

/// What the object holds from `at` on, the start of a page.
fn fill(bytes: &mut [u8], at: u64) {
    for (page, bytes) in (at / PAGE..).zip(bytes.chunks_mut(PAGE as usize)) {
        bytes.fill((page % 251) as u8);
    }
}

/// What the object holds there, from a page's start to another's.
fn content_of(range: &Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; (range.end - range.start) as usize];
    fill(&mut bytes, range.start);
    bytes
}

impl Version {
    fn new(size: u64, name: &str) -> Version {
        let mut map = SegmentMap::new(size, name);
        map.handles = 1;
        Version {
            map,
            limits: LIMITS,
            now: Instant::now(),
            fetched: Vec::new(),
            answers: Arc::default(),
            effects: Effects::default(),
            pool: Arc::default(),
        }
    }

    /// Reads as the engine does; the number of the read if it waits.
    fn read(&mut self, range: Range<u64>) -> Option<u64> {
        let read = self.begin_read(range)?;
        self.fetch_missing(read, false, usize::MAX);
        self.on_requested(read);
        Some(read)
    }

    /// Reads up to where memory would be taken.
    fn begin_read(&mut self, range: Range<u64>) -> Option<u64> {
        let (lane, pieces) = self.map.read(&range, &mut self.effects);
        let (answers, start) = (self.answers.clone(), range.start);
        let done = move |result: Result<Pieces, Error>| {
            let bytes = result.map(|pieces| pieces.slices().collect::<Vec<_>>().concat());
            answers.lock().expect("no panic").push((start, bytes.map_err(|error| error.kind())));
        };
        match pieces {
            Some(pieces) => {
                done(Ok(pieces));
                self.fetch_ahead(lane);
                None
            }
            None => Some(self.map.wait(range, lane, Box::new(done), self.now)),
        }
    }

    /// Fetches for a waiting read; `false` if memory for more than `most` segments is needed.
    fn fetch_missing(&mut self, read: u64, is_exact: bool, most: usize) -> bool {
        let mut fetched = 0;
        while let Some(fetch) = self.map.next_missing(read, is_exact, &self.limits) {
            if fetched == most {
                return false;
            }
            fetched += 1;
            self.fetch(fetch);
        }
        true
    }

    fn on_requested(&mut self, read: u64) {
        let lane = self.map.on_requested(read, self.now, &mut self.effects);
        self.fetch_ahead(lane);
    }

    fn fetch_ahead(&mut self, lane: Option<LaneId>) {
        let Some(lane) = lane else { return };
        while let Some(fetch) = self.map.next_ahead(lane, &self.limits, &mut self.effects) {
            self.fetch(fetch);
        }
    }

    fn fetch(&mut self, fetch: Fetch) {
        let mut memory = self.pool.lease(fetch.bytes() as usize).expect("memory");
        fill(memory.as_mut_slice(), fetch.range.start);
        let counts = Arc::<Counts>::default();
        let segment = Segment::new(fetch.range.clone(), memory, false, counts, Weak::<Nobody>::new());
        let segment = Arc::new(segment);
        self.map.insert(fetch.clone(), segment.clone());
        self.fetched.push((fetch, segment));
    }

    /// The first `bytes` bytes of a segment have landed.
    fn land(&mut self, which: usize, bytes: u64) {
        let segment = self.fetched[which].1.clone();
        if segment.on_landed(bytes) {
            self.map.on_landed(&segment, self.now, &mut self.effects);
        }
    }

    /// The transfer of a segment has ended, well or not.
    fn end(&mut self, which: usize, is_ok: bool) {
        let segment = self.fetched[which].1.clone();
        let result = match is_ok {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Network, "it broke")),
        };
        if is_ok {
            segment.on_landed(segment.bytes());
        }
        self.map.on_end(&segment, &result, self.now, &mut self.effects);
    }

    /// Lands all that is on its way.
    fn land_all(&mut self) {
        (0..self.fetched.len()).for_each(|which| self.end(which, true));
    }

    /// Does what is to be done without the lock.
    fn settle(&mut self) -> Effects {
        let mut effects = std::mem::take(&mut self.effects);
        effects.calls.drain(..).for_each(|(done, result)| done(result));
        effects
    }

    fn answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut *self.answers.lock().expect("no panic"))
    }

    /// What has been fetched ahead, or because a read waits for it.
    fn ranges(&self, is_ahead: bool) -> Vec<Range<u64>> {
        let fetched = self.fetched.iter().filter(|(fetch, _)| fetch.is_ahead == is_ahead);
        fetched.map(|(fetch, _)| fetch.range.clone()).collect()
    }
}

fn ranges(segments: &[Arc<Segment>]) -> Vec<Range<u64>> {
    segments.iter().map(|segment| segment.range.clone()).collect()
}

/// Segments of half a MiB.
fn halves(numbers: Range<u64>) -> Vec<Range<u64>> {
    numbers.map(|number| number * MIB / 2..(number + 1) * MIB / 2).collect()
}

/// What the last of `reads` fetches to be answered, where all before it have landed.
fn check_fetch(name: &str, size: u64, reads: &[Range<u64>], expected: &[Range<u64>]) {
    let mut version = Version::new(size, "model.bin");
    for read in reads {
        version.land_all();
        version.fetched.clear();
        version.settle();
        version.read(read.clone());
    }
    assert_eq!(version.ranges(false), expected, "{name}");
}

#[test]
fn a_read_fetches_what_it_misses() {
    let (at, end) = (300 * MIB, GIB - 10 * KIB);
    check_fetch("no pattern", GIB, &[at..at + PAGE], &[at..at + PAGE]);
    let long = [at..at + 8 * MIB, at + 8 * MIB..at + 16 * MIB, at + 16 * MIB..at + 20 * MIB];
    check_fetch("longer than a segment", GIB, &[at..at + 20 * MIB], &long);
    check_fetch("from the start", GIB, &[0..PAGE], &[0..MIB / 2]);
    check_fetch("a small object", MIB, &[5 * KIB..9 * KIB], &[0..MIB]);
    check_fetch("a small object that was whole", MIB, &[0..MIB, 5 * KIB..9 * KIB], &[5 * KIB..9 * KIB]);
    check_fetch("the tail", GIB, &[end..GIB], &[GIB - 256 * KIB..GIB]);
    check_fetch("the tail once", GIB, &[end..GIB, GIB - 256 * KIB..end, end..GIB], &[end..GIB]);
}

#[test]
fn a_read_fetches_each_gap_between_what_has_landed() {
    let (mut version, at) = (Version::new(GIB, "model.bin"), 300 * MIB);
    version.read(at + PAGE..at + 2 * PAGE);
    version.read(at..at + 3 * PAGE);
    let gaps = [at + PAGE..at + 2 * PAGE, at..at + PAGE, at + 2 * PAGE..at + 3 * PAGE];
    assert_eq!(version.ranges(false), gaps);
    version.land_all();
    version.settle();
    let lengths: Vec<_> =
        version.answers().into_iter().map(|(at, bytes)| (at, bytes.map(|b| b.len()))).collect();
    assert_eq!(lengths, [(at + PAGE, Ok(PAGE as usize)), (at, Ok(3 * PAGE as usize))]);
}

#[test]
fn where_memory_is_short_a_read_fetches_exactly_its_bytes() {
    let mut version = Version::new(GIB, "model.bin");
    let read = version.begin_read(0..128 * KIB).expect("nothing has landed");
    assert!(!version.fetch_missing(read, false, 0), "its lane takes more");
    assert!(version.fetch_missing(read, true, 1));
    assert_eq!(version.ranges(false), [0..128 * KIB]);
}

#[test]
fn a_read_is_answered_when_its_own_bytes_have_landed() {
    let mut version = Version::new(GIB, "model.bin");
    version.read(0..PAGE);
    version.read(8 * PAGE..9 * PAGE);
    assert_eq!(version.ranges(false), [0..MIB / 2], "one segment for both");
    for (landed, answered) in
        [(PAGE - 1, None), (PAGE, Some(0)), (9 * PAGE - 1, None), (9 * PAGE, Some(8 * PAGE))]
    {
        version.land(0, landed);
        version.settle();
        let answers: Vec<u64> = version.answers().into_iter().map(|(at, _)| at).collect();
        assert_eq!(answers, answered.into_iter().collect::<Vec<_>>(), "{landed}");
    }
}

#[test]
fn what_was_fetched_ahead_is_raised_when_a_read_waits_for_it() {
    let mut version = Version::new(GIB, "model.bin");
    version.read(0..PAGE);
    assert_eq!(version.ranges(true), halves(1..8));
    assert!(version.settle().raise.is_empty());
    let next = MIB..MIB + PAGE;
    for raised in [halves(2..3), vec![]] {
        version.read(next.clone());
        assert_eq!(ranges(&version.settle().raise), raised);
    }
}

#[test]
fn a_segment_that_fails_fails_its_reads_and_no_others() {
    let (mut version, at) = (Version::new(GIB, "model.bin"), 300 * MIB);
    for read in [at..at + PAGE, 2 * at..2 * at + PAGE] {
        version.read(read);
    }
    version.end(0, false);
    version.settle();
    assert_eq!(version.answers(), [(at, Err(ErrorKind::Network))]);
    version.read(at..at + PAGE);
    assert_eq!(version.ranges(false), [at..at + PAGE, 2 * at..2 * at + PAGE, at..at + PAGE], "fetched again");
    // Of the first there is nothing to be heard any more.
    version.end(0, false);
    version.end(2, true);
    version.settle();
    assert_eq!(version.answers(), [(at, Ok(content_of(&(at..at + PAGE))))]);
}

#[test]
fn cancelling_a_read_cancels_what_was_fetched_for_it_alone() {
    let (mut version, at) = (Version::new(GIB, "model.bin"), 300 * MIB);
    let alone = version.read(at..at + 2 * PAGE).expect("nothing has landed");
    let shared = version.read(2 * at..2 * at + 2 * PAGE).expect("nothing has landed");
    let sharing = version.read(2 * at..2 * at + PAGE).expect("nothing has landed");
    let of_lane = version.read(0..PAGE).expect("nothing has landed");
    for (read, cancelled) in [
        (alone, vec![at..at + 2 * PAGE]),
        (shared, vec![]),
        (of_lane, vec![]),
        (sharing, vec![2 * at..2 * at + 2 * PAGE]),
    ] {
        assert!(version.map.cancel(read, &mut version.effects));
        assert!(!version.map.cancel(read, &mut version.effects), "only once");
        assert_eq!(ranges(&version.settle().cancel), cancelled);
    }
    version.land_all();
    version.settle();
    assert_eq!(version.answers(), []);
}

#[test]
fn room_is_made_of_what_has_been_read_then_of_what_is_farthest_ahead() {
    let mut version = Version::new(GIB, "model.bin");
    version.read(0..MIB);
    version.land_all();
    version.settle();
    let mut order = Vec::new();
    while version.map.counts().1 > 0 {
        assert!(version.map.make_room(1, &mut version.effects) > 0);
        order.extend(ranges(&version.settle().removed));
    }
    let mut ahead = halves(2..10);
    ahead.reverse();
    assert_eq!(order, [vec![0..MIB], ahead].concat());
}

#[test]
fn with_the_last_handle_goes_all_that_no_read_waits_for() {
    let mut version = Version::new(GIB, "model.bin");
    version.read(0..PAGE);
    version.map.handles = 2;
    version.map.leave(&mut version.effects);
    assert!(version.settle().removed.is_empty(), "another is left");
    version.map.leave(&mut version.effects);
    let effects = version.settle();
    assert_eq!(ranges(&effects.removed), halves(1..8));
    assert_eq!(ranges(&effects.cancel), ranges(&effects.removed));
    version.end(0, true);
    version.settle();
    assert_eq!(version.answers().len(), 1, "a read that waits is answered all the same");
}

#[test]
fn a_window_follows_how_the_bytes_came_that_a_read_waited_for() {
    use Came::{Between, Promptly, Queued};
    let cases = [(1, Promptly, 32, 32), (3, Promptly, 32, 128), (3, Between, 32, 32), (3, Queued, 32, 16)];
    for (wait_ms, came, window, then) in cases {
        let mut version = Version::new(GIB, "model.bin");
        version.limits.window_max = GIB;
        version.read(0..MIB);
        version.land_all();
        let lane = version.map.lanes.get(1).expect("from the start");
        lane.set_window(window * MIB);
        let mut at = MIB;
        while at < window / 2 * MIB {
            version.read(at..at + MIB);
            version.land_all();
            at += MIB;
        }
        version.settle();
        version.fetched.clear();
        let (_, end) = version.map.lanes.get(1).expect("it goes on").window_and_asked();
        version.read(at..end + MIB);
        version.fetched.iter().for_each(|(_, segment)| segment.set_came(came));
        version.now += Duration::from_millis(wait_ms);
        version.land_all();
        let (became, _) = version.map.lanes.get(1).expect("it goes on").window_and_asked();
        assert_eq!(became, then * MIB, "{window} MiB, {wait_ms} ms, {came:?}");
    }
}

#[test]
fn the_next_object_begins_once_when_all_of_this_one_has_been_requested() {
    let mut version = Version::new(16 * MIB, "model.bin");
    version.map.next = Some(Box::new(|| None));
    let begins = (0..16).filter(|at| {
        version.read(at * MIB..(at + 1) * MIB);
        version.land_all();
        let begins = version.settle().next.is_some();
        assert!(!begins || version.fetched.iter().any(|(fetch, _)| fetch.range.end == 16 * MIB));
        begins
    });
    assert!(matches!(begins.collect::<Vec<_>>()[..], [at] if at < 15), "before the last read");
}

/// What happens to a map, by pages and by which segment or read.
#[derive(Clone, Debug)]
enum Event {
    Read {
        at: u64,
        pages: u64,
    },
    /// A read that goes on where the last one ended.
    ReadOn {
        pages: u64,
    },
    /// There is memory for so many segments only, then for exactly the read.
    ReadShort {
        at: u64,
        pages: u64,
        most: usize,
    },
    Land {
        which: usize,
        pages: u64,
    },
    End {
        which: usize,
        is_ok: bool,
    },
    Cancel {
        which: usize,
    },
    MakeRoom {
        pages: u64,
    },
    Reopen,
    Wait {
        ms: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let (at, pages, which) = (0..3072_u64, 1..80_u64, 0..1000_usize);
    prop_oneof![
        4 => (at.clone(), pages.clone()).prop_map(|(at, pages)| Event::Read { at, pages }),
        6 => pages.clone().prop_map(|pages| Event::ReadOn { pages }),
        1 => (at, pages, 0..2_usize).prop_map(|(at, pages, most)| Event::ReadShort { at, pages, most }),
        8 => (which.clone(), 0..300_u64).prop_map(|(which, pages)| Event::Land { which, pages }),
        4 => (which.clone(), prop::bool::weighted(0.9)).prop_map(|(which, is_ok)| Event::End { which, is_ok }),
        1 => which.prop_map(|which| Event::Cancel { which }),
        1 => (1..600_u64).prop_map(|pages| Event::MakeRoom { pages }),
        1 => Just(Event::Reopen),
        1 => (0..5_u64).prop_map(|ms| Event::Wait { ms }),
    ]
}

/// The reference: every segment with its pages, every read with the bytes that it needs of which segments. No
/// tree, no lanes, no counting down.
#[derive(Default)]
struct Model {
    segments: Vec<ModelSegment>,
    reads: Vec<ModelRead>,
}

struct ModelSegment {
    range: Range<u64>,
    landed: u64,
    has_ended: bool,
    has_failed: bool,
    /// It is in the map.
    is_live: bool,
    /// Fetched ahead, and not waited for yet.
    is_ahead: bool,
    read: Vec<bool>,
}

struct ModelRead {
    number: u64,
    range: Range<u64>,
    /// How much it needs of which segments.
    needs: Vec<(usize, u64)>,
}

impl Model {
    /// Segments of the map that overlap a range.
    fn live<'a>(&'a self, range: &'a Range<u64>) -> impl Iterator<Item = usize> + 'a {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        (0..self.segments.len())
            .filter(move |which| self.segments[*which].is_live && overlaps(&self.segments[*which].range))
    }

    fn is_page(&self, page: u64, is_there: impl Fn(&ModelSegment) -> bool) -> bool {
        self.live(&(page..page + PAGE)).any(|which| is_there(&self.segments[which]))
    }

    fn is_landed(&self, range: &Range<u64>) -> bool {
        let pages = (range.start..range.end).step_by(PAGE as usize);
        pages
            .into_iter()
            .all(|page| self.is_page(page, |segment| page < segment.range.start + segment.landed))
    }

    fn mark_read(&mut self, range: &Range<u64>) {
        for which in self.live(range).collect::<Vec<_>>() {
            let ModelSegment { range: there, read, .. } = &mut self.segments[which];
            let pages = range.start.max(there.start)..range.end.min(there.end);
            read[((pages.start - there.start) / PAGE) as usize..((pages.end - there.start) / PAGE) as usize]
                .fill(true);
        }
    }
}

/// A map beside its model.
struct Pair {
    version: Version,
    model: Model,
    size: u64,
    reached: u64,
    /// Answers that the reads are owed, by where they start.
    owed: Vec<Answer>,
}

impl Pair {
    fn new(size: u64, name: &str) -> Pair {
        let mut version = Version::new(size, name);
        version.limits = Limits { window_max: 4 * MIB, segment_max: MIB, lane_segment_max: MIB };
        Pair { version, model: Model::default(), size, reached: 0, owed: Vec::new() }
    }

    fn apply(&mut self, event: Event) {
        let of = |which: usize, count: usize| (count > 0).then(|| which % count.max(1));
        match event {
            Event::Read { at, pages } => self.read(at * PAGE, pages, None),
            Event::ReadOn { pages } => self.read(self.reached, pages, None),
            Event::ReadShort { at, pages, most } => self.read(at * PAGE, pages, Some(most)),
            Event::Land { which, pages } => {
                let Some(which) = of(which, self.model.segments.len()) else { return };
                let segment = &mut self.model.segments[which];
                let bytes = (pages * PAGE).min(segment.range.end - segment.range.start);
                if segment.has_ended || bytes < segment.landed {
                    return;
                }
                segment.landed = bytes;
                self.version.land(which, bytes);
            }
            Event::End { which, is_ok } => {
                let Some(which) = of(which, self.model.segments.len()) else { return };
                self.end(which, is_ok);
            }
            Event::Cancel { which } => {
                let Some(which) = of(which, self.model.reads.len()) else { return };
                let read = self.model.reads.remove(which);
                assert!(self.version.map.cancel(read.number, &mut self.version.effects), "it still waited");
            }
            Event::MakeRoom { pages } => {
                self.version.map.make_room(pages * PAGE, &mut self.version.effects);
            }
            Event::Reopen => {
                self.version.map.leave(&mut self.version.effects);
                self.version.map.handles += 1;
            }
            Event::Wait { ms } => self.version.now += Duration::from_millis(ms),
        }
        self.check();
    }

    fn read(&mut self, at: u64, pages: u64, most: Option<usize>) {
        let range = at % self.size..(at % self.size + pages * PAGE).min(self.size);
        self.reached = range.end;
        let is_landed = self.model.is_landed(&range);
        let read = self.version.begin_read(range.clone());
        assert_eq!(read.is_none(), is_landed, "{range:?} is answered at once if all of it has landed");
        let Some(number) = read else {
            self.model.mark_read(&range);
            self.owed.push((range.start, Ok(content_of(&range))));
            return self.note_fetched();
        };
        if !self.version.fetch_missing(number, false, most.unwrap_or(usize::MAX)) {
            assert!(self.version.fetch_missing(number, true, usize::MAX));
        }
        self.note_fetched();
        let needed = self.model.live(&range).map(|which| {
            let segment = &self.model.segments[which];
            (which, range.end.min(segment.range.end) - segment.range.start)
        });
        let needs: Vec<_> = needed.collect();
        let covered = |page: &u64| self.model.is_page(*page, |_| true);
        assert!(
            (range.start..range.end).step_by(PAGE as usize).all(|page| covered(&page)),
            "all is on its way"
        );
        let missing = needs.iter().filter(|(which, need)| self.model.segments[*which].landed < *need);
        let raised: Vec<usize> =
            missing.map(|(which, _)| *which).filter(|which| self.model.segments[*which].is_ahead).collect();
        self.version.on_requested(number);
        let expected: Vec<_> = raised.iter().map(|which| self.model.segments[*which].range.clone()).collect();
        assert_eq!(ranges(&std::mem::take(&mut self.version.effects.raise)), expected);
        raised.into_iter().for_each(|which| self.model.segments[which].is_ahead = false);
        self.model.reads.push(ModelRead { number, range, needs });
        self.note_fetched();
    }

    /// Takes over what the map has fetched: within the object, and where there was nothing.
    fn note_fetched(&mut self) {
        let known = self.model.segments.len();
        // What an answer or a lane has let go of is no hindrance.
        self.note_removed();
        for (Fetch { range, is_ahead, .. }, _) in &self.version.fetched[known..] {
            assert!(!range.is_empty() && range.end <= self.size, "{range:?}");
            assert_eq!(self.model.live(range).count(), 0, "{range:?} is fetched already");
            let read = vec![false; ((range.end - range.start) / PAGE) as usize];
            let (range, is_ahead) = (range.clone(), *is_ahead);
            self.model.segments.push(ModelSegment {
                range,
                landed: 0,
                has_ended: false,
                has_failed: false,
                is_live: true,
                is_ahead,
                read,
            });
        }
    }

    /// Takes over what has left the map: nothing that a read waits for, and nothing is cancelled that has
    /// landed.
    fn note_removed(&mut self) {
        let effects = &mut self.version.effects;
        let (removed, cancel) = (std::mem::take(&mut effects.removed), std::mem::take(&mut effects.cancel));
        let mut wasted = std::mem::take(&mut effects.wasted_bytes);
        for segment in removed {
            let is_it = |(_, other): &(Fetch, Arc<Segment>)| Arc::ptr_eq(other, &segment);
            let which = self.version.fetched.iter().position(is_it).expect("it was fetched");
            let waits = |read: &ModelRead| {
                read.needs.iter().any(|(of, need)| *of == which && *need > self.model.segments[which].landed)
            };
            assert!(!self.model.reads.iter().any(waits), "a read waits for {:?}", segment.range);
            let gone = self.model.segments.get_mut(which).expect("it was taken over");
            assert!(std::mem::take(&mut gone.is_live), "{:?} goes once", gone.range);
            let is_cancelled = cancel.iter().any(|other| Arc::ptr_eq(other, &segment));
            if !gone.has_ended {
                assert_eq!(is_cancelled, gone.landed < gone.range.end - gone.range.start, "{:?}", gone.range);
            }
            let read = gone.read.iter().filter(|read| **read).count() as u64 * PAGE;
            if !gone.has_failed {
                wasted -= gone.landed.saturating_sub(read);
            }
        }
        assert_eq!(wasted, 0, "bytes that went unread");
    }

    fn end(&mut self, which: usize, is_ok: bool) {
        let segment = &mut self.model.segments[which];
        if std::mem::replace(&mut segment.has_ended, true) {
            return;
        }
        let bytes = segment.range.end - segment.range.start;
        if is_ok {
            segment.landed = bytes;
        } else if segment.is_live {
            segment.has_failed = true;
            let (landed, waiting) = (segment.landed, std::mem::take(&mut self.model.reads));
            let (failed, others) = waiting.into_iter().partition(|read: &ModelRead| {
                read.needs.iter().any(|(of, need)| *of == which && *need > landed)
            });
            self.model.reads = others;
            let failed: Vec<ModelRead> = failed;
            self.owed.extend(failed.iter().map(|read| (read.range.start, Err(ErrorKind::Network))));
        }
        self.version.end(which, is_ok);
    }

    /// After each event: the reads whose bytes have all landed have been answered, with the object's bytes,
    /// and no others.
    fn check(&mut self) {
        let waiting = std::mem::take(&mut self.model.reads);
        for read in waiting {
            let ModelRead { range, needs, .. } = &read;
            if needs.iter().any(|(which, need)| self.model.segments[*which].landed < *need) {
                self.model.reads.push(read);
                continue;
            }
            self.model.mark_read(range);
            self.owed.push((range.start, Ok(content_of(range))));
        }
        self.note_removed();
        self.version.settle();
        let (mut answers, mut owed) = (self.version.answers(), std::mem::take(&mut self.owed));
        let order = |(at, result): &Answer| (*at, result.as_ref().map_or(0, Vec::len));
        answers.sort_by_key(order);
        owed.sort_by_key(order);
        let brief = |answers: &[Answer]| -> Vec<_> { answers.iter().map(order).collect() };
        assert_eq!(brief(&answers), brief(&owed), "reads that were answered");
        assert!(answers == owed, "with the bytes of the object");
        assert_eq!(self.version.map.counts().1, self.model.segments.iter().filter(|s| s.is_live).count());
    }
}

proptest! {
    #[test]
    fn the_map_answers_as_the_model_does(
        pages in prop_oneof![Just(100_u64), Just(3072)],
        name in prop_oneof![Just("a.bin"), Just("a.zip")],
        events in prop::collection::vec(event(), 1..80),
    ) {
        let mut pair = Pair::new(pages * PAGE, name);
        events.into_iter().for_each(|event| pair.apply(event));
        for which in 0..pair.model.segments.len() {
            pair.end(which, true);
            pair.check();
        }
        prop_assert_eq!(pair.model.reads.len(), 0, "every read has been answered");
    }
}
