//! Which reads make a lane, and what it asks for ahead.

use proptest::prelude::*;

use flatout_policy::latency::Came;

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SIZE: u64 = 1 << 30;

/// What lanes ask for, as a version with memory without end would.
struct Asked {
    lanes: Lanes,
    /// What was there before, in order.
    there: Vec<Range<u64>>,
    ahead: Vec<(LaneId, Range<u64>)>,
}

impl Asked {
    fn new() -> Asked {
        Asked { lanes: Lanes::new(SIZE), there: Vec::new(), ahead: Vec::new() }
    }

    fn read(&mut self, read: Range<u64>) -> Option<LaneId> {
        let lane = self.lanes.on_read(&read);
        if let Some(number) = lane {
            let Asked { lanes, there, ahead } = self;
            while let Some(range) =
                lanes.next_missing(number, 64 * MIB, 8 * MIB, |wanted| gaps(there, ahead, wanted))
            {
                assert!(!range.is_empty() && range.end <= SIZE, "{range:?}");
                lanes.get(number).expect("a lane that reads").on_asked(&range);
                ahead.push((number, range));
            }
        }
        lane
    }

    fn ahead_bytes(&self) -> u64 {
        self.ahead.iter().map(|(_, range)| range.end - range.start).sum()
    }
}

/// What of a range is neither there nor asked for.
fn gaps(there: &[Range<u64>], ahead: &[(LaneId, Range<u64>)], wanted: &Range<u64>) -> Vec<Range<u64>> {
    let mut there: Vec<&Range<u64>> = there.iter().chain(ahead.iter().map(|(_, range)| range)).collect();
    there.sort_by_key(|range| range.start);
    let (mut gaps, mut at) = (Vec::new(), wanted.start);
    for range in there {
        if range.start.min(wanted.end) > at {
            gaps.push(at..range.start.min(wanted.end));
        }
        at = at.max(range.end);
    }
    if at < wanted.end {
        gaps.push(at..wanted.end);
    }
    gaps
}

/// Reads of so many KiB at so many KiB; from which of them on there is a lane.
fn check(name: &str, bytes: u64, reads: &[u64], lane_from: Option<usize>) {
    let mut asked = Asked::new();
    let found = reads.iter().map(|at| asked.read(at * KIB..(at + bytes) * KIB));
    let found: Vec<bool> = found.map(|lane| lane.is_some()).collect();
    let expected: Vec<bool> = (0..reads.len()).map(|at| lane_from.is_some_and(|from| at >= from)).collect();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn patterns_are_told_from_chance() {
    check("from the start", 128, &[0, 128, 256], Some(0));
    check("from amid", 128, &[9000, 9128, 9256, 9384], Some(2));
    check("long reads from amid", 1024, &[9000, 10024, 11048], Some(1));
    check("out of order", 128, &[9128, 9000, 9256, 9384, 9512], Some(3));
    check("backward", 128, &[90_000, 89_872, 89_744, 89_616, 89_488], Some(3));
    check("half behind", 128, &[9000, 9064, 9128, 9192], Some(2));
    check("strided", 100, &[1000, 3000, 5000, 7000, 9000], Some(3));
    check("strided backward", 100, &[90_000, 80_000, 70_000, 60_000, 50_000], Some(3));
    check("strided with one left out", 100, &[1000, 3000, 5000, 7000, 11_000], Some(3));
    check("the same again", 128, &[9000, 9000, 9000, 9000], None);
    check("random", 128, &[9000, 90_000, 400, 77_777, 5000, 123_456], None);
}

#[test]
fn pairs_are_no_lane_where_all_runs_are_pairs() {
    let mut asked = Asked::new();
    let mut at = 7_919;
    for _ in 0..200 {
        at = at * 31 % 1_000_003;
        for half in [0, 128] {
            let start = (at + half) * KIB;
            assert_eq!(asked.read(start..start + 128 * KIB), None, "{at}");
        }
    }
    // A run that goes on is one all the same.
    let mut reads = (0..8).map(|read| 999 * MIB + read * 256 * KIB);
    assert!(reads.any(|at| asked.read(at..at + 256 * KIB).is_some()));
}

#[test]
fn random_reads_leave_lanes_as_they_are() {
    let mut asked = Asked::new();
    let lane = asked.read(0..128 * KIB).expect("from the start");
    let mut at = 7_919;
    for step in 1..100 {
        at = at * 31 % 600_011;
        let random = (300 << 10) * KIB + at * KIB;
        assert_eq!(asked.read(random..random + 4096), None);
        assert_eq!(asked.read(step * 128 * KIB..(step + 1) * 128 * KIB), Some(lane));
    }
}

#[test]
fn eight_streams_have_a_lane_each_and_a_ninth_when_one_is_idle() {
    let mut asked = Asked::new();
    let at = |stream: u64, step: u64| (stream * 90 + stream * stream) * MIB + step * MIB;
    for step in 0..4 {
        for stream in 0..9 {
            let lane = asked.read(at(stream, step)..at(stream, step) + MIB);
            assert_eq!(lane.is_some(), stream < 8 && (step > 0 || stream == 0), "{stream} {step}");
        }
    }
    for step in 4..40 {
        for stream in 1..9 {
            asked.read(at(stream, step)..at(stream, step) + MIB);
        }
    }
    assert!(asked.read(at(8, 40)..at(8, 40) + MIB).is_some(), "the first has made room");
    assert_eq!(asked.lanes.retired, [1]);
}

#[test]
fn a_window_grows_when_a_reader_waits_and_shrinks_when_bytes_go_unread() {
    let mut asked = Asked::new();
    let lane = asked.read(0..MIB).expect("from the start");
    assert_eq!(asked.ahead_bytes(), 4 * MIB);
    for step in 1..8 {
        asked.lanes.get(lane).expect("it reads").on_wait(Came::Promptly);
        asked.read(step * MIB..(step + 1) * MIB);
    }
    let grown = asked.ahead_bytes();
    assert!(grown >= 16 * MIB, "{grown}");
    assert!(grown <= 8 * MIB + 48 * MIB, "in proportion to what has been read: {grown}");
    let (_, last) = asked.ahead.last().cloned().expect("something is ahead");
    for _ in 0..10 {
        asked.lanes.get(lane).expect("it reads").on_evicted(&last);
    }
    let before = asked.ahead_bytes();
    asked.read(8 * MIB..9 * MIB);
    assert!(asked.ahead_bytes() - before <= MIB, "{}", asked.ahead_bytes() - before);
}

#[test]
fn a_window_is_many_requests_from_the_start_on() {
    let mut asked = Asked::new();
    for (window, requests) in [(4, 8), (8, 8), (16, 8), (32, 8), (64, 8)] {
        let lane = Lane::new(1, Pattern::Forward, &(0..MIB), window * MIB, SIZE);
        asked.lanes = Lanes::new(SIZE);
        asked.lanes.lanes.push(lane);
        let lane = &mut asked.lanes.lanes[0];
        let mut count = 0;
        while let Some(range) = lane.ahead(SIZE, 64 * MIB, 8 * MIB) {
            lane.on_asked(&range);
            count += 1;
        }
        assert!((requests - 1..=requests).contains(&count), "{window} MiB: {count}");
    }
}

#[test]
fn nobody_reads_ahead_into_what_another_has_read() {
    let mut asked = Asked::new();
    for step in 0..64 {
        for stream in [0, 1] {
            asked.read(stream * 64 * MIB + step * MIB..stream * 64 * MIB + (step + 1) * MIB);
        }
    }
    let first: u64 =
        asked.ahead.iter().filter(|(lane, _)| *lane == 1).map(|(_, range)| range.end).max().expect("ahead");
    assert_eq!(first, 64 * MIB);
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64, u64),
    Wait(u64),
    Evict(u64, u64, u64),
    Fail(u64, u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let at = 0..SIZE / 4096 - 1024;
    prop_oneof![
        6 => (at.clone(), 1..300_u64).prop_map(|(at, pages)| Step::Read(at * 4096, pages * 4096)),
        6 => (0..60_u64, 1..300_u64).prop_map(|(at, pages)| Step::Read(at * 128 * KIB, pages * 4096)),
        2 => (1..10_u64).prop_map(Step::Wait),
        1 => (1..10_u64, at.clone(), 1..300_u64).prop_map(|(lane, at, pages)| Step::Evict(lane, at * 4096, pages)),
        1 => (1..10_u64, at, 1..300_u64).prop_map(|(lane, at, pages)| Step::Fail(lane, at * 4096, pages)),
    ]
}

proptest! {
    /// Whatever is read: what is asked for ahead lies within the object, is not asked for without end, and
    /// what is asked for so that a gap can be read has its beginning.
    #[test]
    fn whatever_is_read_asking_ends(steps in prop::collection::vec(step(), 1..200)) {
        let mut asked = Asked::new();
        for step in steps {
            match step {
                Step::Read(at, bytes) => {
                    let read = at..(at + bytes).min(SIZE);
                    let before = asked.ahead.len();
                    let lane = asked.read(read.clone());
                    prop_assert!(asked.ahead.len() - before <= 512);
                    if let Some(lane) = lane.and_then(|lane| asked.lanes.get(lane)) {
                        let wanted = lane.foreground(&read, 64 * MIB, 8 * MIB);
                        prop_assert!(wanted.start <= read.start && wanted.end >= read.end && wanted.end <= SIZE);
                    }
                }
                Step::Wait(lane) => {
                    asked.lanes.get(lane).into_iter().for_each(|lane| lane.on_wait(Came::Promptly));
                }
                Step::Evict(lane, at, pages) => {
                    asked.lanes.get(lane).into_iter().for_each(|lane| lane.on_evicted(&(at..at + pages * 4096)));
                }
                Step::Fail(lane, at, pages) => {
                    asked.lanes.get(lane).into_iter().for_each(|lane| lane.on_failed(&(at..at + pages * 4096)));
                }
            }
        }
    }
}

/// Sums of a place below the start of the object were taken for sums of one within it.
#[test]
fn steps_down_to_the_start_end_there() {
    check("strided backward to the start", 4, &[350, 250, 150, 50], Some(3));
}

/// A backward lane asked for the lowest of several gaps, and took the others for asked for.
#[test]
fn nothing_is_left_out_beside_what_is_there() {
    let check = |name: &str, islands: &[u64], reads: &mut dyn Iterator<Item = u64>, bytes: u64| {
        let mut asked = Asked::new();
        asked.there = islands.iter().map(|at| at * KIB..(at + 64) * KIB).collect();
        let mut missed = 0;
        for at in reads {
            let read = at * KIB..(at + bytes) * KIB;
            let missing: u64 =
                gaps(&asked.there, &asked.ahead, &read).iter().map(|gap| gap.end - gap.start).sum();
            if asked.ahead_bytes() > 0 {
                missed += missing;
            }
            asked.read(read);
        }
        assert_eq!(missed, 0, "{name}");
        assert!(asked.ahead_bytes() > 4 * MIB, "{name}");
    };
    let islands: Vec<u64> = (0..60).map(|number| 30_000 + number * 1_031).collect();
    check("forward", &islands, &mut (0..500).map(|step| 30_000 + step * 128), 128);
    check("backward", &islands, &mut (0..500).map(|step| 90_000 - step * 128), 128);
    check("strided", &islands, &mut (0..120).map(|step| 29_000 + step * 500), 300);
    check("strided backward", &islands, &mut (0..120).map(|step| 90_000 - step * 500), 300);
}

/// Who reads on past the range in which it began is no lane that has come to its end.
#[test]
fn a_lane_that_goes_on_makes_room_for_nobody() {
    let mut lanes = Lanes::new(SIZE);
    lanes.extents = Extents::new((0..1024).map(|at| at * MIB..(at + 1) * MIB), SIZE);
    let begin = |lanes: &mut Lanes, at: u64| lanes.on_read(&(at * MIB..at * MIB + MIB / 2));
    for stream in 0..8 {
        assert!(begin(&mut lanes, 64 * stream + 8).is_some());
    }
    for step in 1..6 {
        for stream in 0..8 {
            let at = (64 * stream + 8) * MIB + step * MIB / 2;
            assert!(lanes.on_read(&(at..at + MIB / 2)).is_some());
        }
    }
    assert_eq!((begin(&mut lanes, 600), lanes.retired.len()), (None, 0));
    // One that has come there does.
    let mut lanes = Lanes { extents: std::mem::take(&mut lanes.extents), ..Lanes::new(SIZE) };
    for stream in 0..8 {
        assert!(lanes.on_read(&(64 * stream * MIB + 8 * MIB..64 * stream * MIB + 9 * MIB - 24)).is_some());
    }
    assert!(begin(&mut lanes, 600).is_some() && lanes.retired.len() == 1);
}
