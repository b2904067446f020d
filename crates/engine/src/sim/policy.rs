//! Policies without the engine around them: a batch's queue and a plan, under seeded events, against what they promise.

use std::collections::HashMap;

use super::scenario::Draw;
use crate::many::{Queue, QueueTask, Work};
use crate::plan::Plan;

/// Runs `workers` workers of a queue in rounds; each object and each part must be given out once, and nobody may be idle
/// while there is something to do.
fn check_queue(seed: u64) {
    let mut draw = Draw::new(seed);
    let sizes: Vec<u64> =
        (0..draw.between(1, 60)).map(|_| draw.between(1, 12).saturating_sub(6).max(1)).collect();
    let workers = draw.between(1, 8);
    let mut queue: Queue<usize, usize> = Queue::new();
    for (object, &parts) in sizes.iter().enumerate() {
        queue.push(QueueTask { wanted: object, again: false }, parts == 1);
    }
    // Parts of each object that nobody has taken.
    let mut left: HashMap<usize, u64> = HashMap::new();
    let mut begun = vec![0; sizes.len()];
    let mut fetched = vec![0; sizes.len()];
    for round in 0.. {
        assert!(round < 10_000, "seed {seed}: it does not come to an end");
        let mut idle = 0;
        for worker in 0..workers {
            match queue.take((worker + worker / 2).is_multiple_of(2), true) {
                Some(Work::Object(task)) => {
                    begun[task.wanted] += 1;
                    fetched[task.wanted] += 1;
                    if sizes[task.wanted] > 1 {
                        left.insert(task.wanted, sizes[task.wanted] - 1);
                        queue.open(task.wanted);
                    }
                }
                Some(Work::Part(object)) => match left.get_mut(&object).filter(|parts| **parts > 0) {
                    Some(parts) => {
                        *parts -= 1;
                        fetched[object] += 1;
                    }
                    None => {
                        let _closed = queue.close(|open| *open == object);
                    }
                },
                None => idle += 1,
            }
        }
        let waits = begun.contains(&0) || left.values().any(|&parts| parts > 0);
        assert!(
            idle == 0 || !waits,
            "seed {seed}: {idle} workers are idle in round {round}, and something waits"
        );
        if idle == workers {
            break;
        }
    }
    assert!(begun.iter().all(|&times| times == 1), "seed {seed}: objects were begun {begun:?} times");
    assert_eq!(fetched, sizes, "seed {seed}: parts that were fetched, parts that there are");
}

/// Every byte of a range is in exactly one part, and a part is never longer than it may be.
fn check_plan(seed: u64) {
    let mut draw = Draw::new(seed);
    let start = draw.between_orders(1, 1 << 50) - 1;
    let part_bytes = draw.between_orders(1, 1 << 32);
    let range = start..start + draw.between(0, part_bytes * 50);
    let plan = Plan::new(range.clone(), part_bytes);
    let mut reached = range.start;
    for index in 0..plan.parts() {
        let part = plan.part(index).expect("a planned part");
        assert_eq!(part.start, reached, "seed {seed}: part {index}");
        assert!(
            part.end > part.start && part.end - part.start <= part_bytes,
            "seed {seed}: part {index} is {part:?}"
        );
        reached = part.end;
    }
    assert_eq!((reached, plan.part(plan.parts())), (range.end, None), "seed {seed}");
}

#[test]
fn a_queue_gives_everything_out_once_and_lets_nobody_idle() {
    (0..2_000).for_each(check_queue);
}

#[test]
fn a_plan_covers_every_byte_once() {
    (0..2_000).for_each(check_plan);
}
