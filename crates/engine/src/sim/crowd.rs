//! Several transfers of one client at a time: whose parts start first where there are fewer slots than parts
//! to fetch.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::line;
use super::run::{config, location, look_until, start_shards};
use super::scenario::{Etag, Framing, Object, Scenario, Task};
use super::world::World;
use crate::api::account::Dialect;
use crate::client::Client;
use crate::sink::landing::Landing;
use crate::transfer::get::Get;
use flatout_policy::queue::Priority;
use flatout_policy::queue::Priority::{Ahead, Awaited};

const PART: u64 = 10_000;
/// A part's time: its second, a connection's and an answer's.
const PART_TIME: Duration = Duration::from_millis(1_010);
const SLOTS: u32 = 4;

/// A transfer of the crowd; each reads an object of its own.
#[derive(Clone, Copy)]
struct One {
    begins: Duration,
    parts: u64,
    priority: Priority,
    /// Somebody begins to wait for it.
    promoted: Option<Duration>,
    /// Nobody wants it any more.
    cancelled: Option<Duration>,
}

fn one(begins_ms: u64, parts: u64, priority: Priority) -> One {
    One { begins: Duration::from_millis(begins_ms), parts, priority, promoted: None, cancelled: None }
}

/// What became of it: when its parts were asked for, and when it ended.
struct Seen {
    asked: Vec<Duration>,
    ended: Duration,
}

impl Seen {
    /// How many of its parts were asked for by then.
    fn by(&self, at: Duration) -> usize {
        self.asked.iter().filter(|&&asked| asked <= at).count()
    }
}

/// An origin that serves a part in a second on each connection, however many there are.
fn scenario(parts: &[u64]) -> Scenario {
    let mut scenario = Scenario::of(0);
    let (origin, tuning) = (&mut scenario.origin, &mut scenario.tuning);
    (origin.dialect, origin.framing, origin.etag) = (Dialect::Plain, Framing::Length, Etag::Strong);
    (origin.states_checksum, origin.closes_each) = (false, false);
    (origin.connect_ms, origin.first_byte_ms, origin.jitter_ms) = (1, 1, 0);
    (origin.rate, origin.total_rate, origin.pieces) = (PART, PART * 1_000, (1_000, 1_000));
    (tuning.parallel, tuning.part_bytes, tuning.window_bytes) = (SLOTS, PART, 4 * PART);
    (tuning.shards, tuning.stall_ms) = (2, 2_000);
    scenario.objects = parts.iter().map(|parts| Object { bytes: parts * PART, listed: None }).collect();
    scenario.task = Task::Many { land: super::scenario::Land::Nowhere };
    scenario
}

fn crowd(ones: &[One]) -> Vec<Seen> {
    let scenario = scenario(&ones.iter().map(|one| one.parts).collect::<Vec<_>>());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build_local(Default::default())
        .expect("a runtime without a driver");
    let client = Rc::new(Client::new(config(&scenario)).expect("settings that make sense"));
    let (world, ended) = runtime.block_on(async {
        let world = Rc::new(World::new(Rc::new(scenario), false));
        let _entered = line::enter(&world);
        start_shards(&world, &client);
        let start = Instant::now();
        let run = |(object, one): (usize, One)| {
            let (world, client) = (world.clone(), client.clone());
            tokio::task::spawn_local(async move {
                sleep_until(start + one.begins).await;
                let get = Get::new(location(Dialect::Plain, object), Landing::Nowhere);
                let transfer = client.get(get.with_priority(one.priority)).expect("a get that makes sense");
                let (mut promoted, mut cancelled) = (one.promoted, one.cancelled);
                let now = || start.elapsed();
                look_until(&world, || {
                    if promoted.take_if(|at| now() >= *at).is_some() {
                        transfer.set_priority(Awaited);
                    }
                    if cancelled.take_if(|at| now() >= *at).is_some() {
                        transfer.cancel_switch().cancel();
                    }
                    transfer.wait_timeout(Duration::ZERO).then_some(())
                })
                .await;
                let ended = now();
                assert_eq!(transfer.wait().is_ok(), one.cancelled.is_none());
                ended
            })
        };
        let running: Vec<_> = ones.iter().copied().enumerate().map(run).collect();
        let mut ended = Vec::new();
        for task in running {
            ended.push(task.await.expect("no panic"));
        }
        world.stop_clock();
        (world, ended)
    });
    drop(client);
    drop(runtime);
    let log = world.log.borrow();
    assert!(log.violations.is_empty(), "{:?}", log.violations);
    let asked = |object: usize| log.exchanges.iter().filter(move |exchange| exchange.object == object);
    let most = log.exchanges.iter().map(|one| {
        let at = one.asked_at;
        log.exchanges
            .iter()
            .filter(|other| other.asked_at <= at && other.ended_at.is_none_or(|end| end > at))
            .count()
    });
    assert!(most.max() <= Some(SLOTS as usize), "more parts were on their way than there are slots");
    let seen =
        |(object, ended)| Seen { asked: asked(object).map(|exchange| exchange.asked_at).collect(), ended };
    ended.into_iter().enumerate().map(seen).collect()
}

fn s(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Three that are ahead, with more to fetch than anybody waits for.
fn flood() -> Vec<One> {
    vec![one(0, 60, Ahead), one(0, 60, Ahead), one(0, 60, Ahead)]
}

#[test]
fn what_is_awaited_starts_with_the_next_slot_though_much_is_fetched_ahead() {
    for begins_ms in [1_000, 5_300, 5_700, 10_001] {
        let mut ones = flood();
        ones.push(one(begins_ms, 12, Awaited));
        let seen = crowd(&ones);
        let awaited = &seen[3];
        let begins = ones[3].begins;
        let waited = awaited.asked[0] - begins;
        assert!(waited <= PART_TIME, "it waited for {waited:?}");
        // From its first answer on it has every slot that there is: three rounds of four, less the first
        // part.
        let took = awaited.ended - begins;
        assert!(took <= PART_TIME * 6, "its twelve parts took {took:?}");
        // The others stood still for that time and no longer.
        let last = seen[..3].iter().map(|seen| seen.ended).max().expect("three");
        assert!(last <= PART_TIME * (192 / 4 + 3), "all was over after {last:?}");
    }
}

#[test]
fn what_was_ahead_is_hurried_when_somebody_begins_to_wait_for_it() {
    let mut ones = flood();
    ones.push(One { promoted: Some(s(8.0)), ..one(0, 24, Ahead) });
    let seen = crowd(&ones);
    let promoted = &seen[3];
    let (before, after) = (promoted.by(s(8.0)), promoted.by(s(8.0) + PART_TIME * 3) - promoted.by(s(8.0)));
    assert!((6..=10).contains(&before), "a fourth of what was fetched: {before} parts of 32");
    assert!(after >= 8, "all slots but those that were taken: {after} parts in three parts' time");
}

#[test]
fn a_small_transfer_does_not_wait_for_a_huge_one() {
    for priority in [Ahead, Awaited] {
        let seen = crowd(&[one(0, 100, priority), one(3_500, 4, priority)]);
        let took = seen[1].ended - s(3.5);
        assert!(took <= PART_TIME * 5, "{priority:?}: its four parts took {took:?}");
    }
}

#[test]
fn what_is_ahead_moves_while_others_are_awaited_without_end() {
    // Awaited transfers that follow one another, and together want all slots all the time.
    let mut ones = vec![one(0, 20, Ahead)];
    ones.extend((0..8).map(|at| one(100 + at, 40, Awaited)));
    let seen = crowd(&ones);
    let (ahead, rest) = seen.split_first().expect("nine");
    let over = rest.iter().map(|seen| seen.ended).max().expect("eight");
    let meanwhile = ahead.by(over);
    // 320 parts that were awaited: a seventeenth of all turns are its own.
    assert!((15..=20).contains(&meanwhile), "{meanwhile} parts");
    assert!(over <= PART_TIME * (340 / 4 + 4), "{over:?}");
}

#[test]
fn what_nobody_wants_any_more_is_in_nobodys_way() {
    let ones: Vec<One> = (0..6)
        .map(|at| One { cancelled: Some(s(2.5)), ..one(at, 50, Awaited) })
        .chain([one(2_000, 8, Ahead)])
        .collect();
    let seen = crowd(&ones);
    let after =
        seen[..6].iter().flat_map(|seen| &seen.asked).filter(|&&asked| asked > s(2.5) + PART_TIME).count();
    assert_eq!(after, 0, "nothing is asked for any more");
    assert!(seen[6].ended <= s(2.5) + PART_TIME * 5, "{:?}", seen[6].ended);
}
