//! Policies without the engine around them: a batch's queue and a plan, under seeded events, against what
//! they promise.

use std::collections::HashMap;
use std::ops::Range;

use super::scenario::Draw;
use flatout_policy::batch_order::{Item, MayBegin, Queue, Work};
use flatout_policy::plan::Plan;

/// Runs `workers` workers of a queue in rounds; each object and each part must be given out once, and nobody
/// may be idle while there is something to do.
fn check_queue(seed: u64) {
    let mut draw = Draw::new(seed);
    let sizes: Vec<u64> =
        (0..draw.between(1, 60)).map(|_| draw.between(1, 12).saturating_sub(6).max(1)).collect();
    let workers = draw.between(1, 8);
    let mut queue: Queue<usize, usize> = Queue::default();
    let may = MayBegin { small: true, large: true };
    for (object, &parts) in sizes.iter().enumerate() {
        queue.push(Item { wanted: object, again: false }, parts == 1);
    }
    // Parts of each object that nobody has taken.
    let mut left: HashMap<usize, u64> = HashMap::new();
    let mut begun = vec![0; sizes.len()];
    let mut fetched = vec![0; sizes.len()];
    for round in 0.. {
        assert!(round < 10_000, "seed {seed}: it does not come to an end");
        let mut idle = 0;
        for worker in 0..workers {
            match queue.take((worker + worker / 2).is_multiple_of(2), may) {
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

/// Every byte of what is missing is in exactly one part, in order, and a part is as long as it may be or ends
/// where what is missing does.
fn check_plan(seed: u64) {
    let mut draw = Draw::new(seed);
    let part_bytes = draw.between_orders(1, 1 << 32);
    let mut at = draw.between_orders(1, 1 << 50) - 1;
    let missing: Vec<_> = (0..draw.between(1, 6))
        .map(|_| {
            let start = at + draw.between(1, part_bytes * 3);
            at = start + draw.between(0, part_bytes * 20);
            start..at
        })
        .collect();
    let mut plan = Plan::new(missing.iter().cloned());
    let mut reached: Vec<Range<u64>> = Vec::new();
    for number in 0.. {
        let longest = draw.between(1, part_bytes * 2);
        let left = plan.left(longest);
        let Some(taken) = plan.take(longest) else {
            assert_eq!(left, 0, "seed {seed}: part {number}");
            break;
        };
        let Range { start, end } = taken.range;
        assert_eq!((taken.number, left > 0), (number, true), "seed {seed}");
        assert!(start < end && end - start <= longest, "seed {seed}: part {number} is {start}..{end}");
        let ends = end - start == longest || missing.iter().any(|missing| missing.end == end);
        assert!(ends, "seed {seed}: part {number} is {start}..{end}, and {longest} were left");
        match reached.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => reached.push(start..end),
        }
    }
    let missing: Vec<_> = missing.into_iter().filter(|missing| !missing.is_empty()).collect();
    assert_eq!(reached, missing, "seed {seed}");
}

#[test]
fn a_queue_gives_everything_out_once_and_lets_nobody_idle() {
    (0..2_000).for_each(check_queue);
}

#[test]
fn a_plan_covers_every_missing_byte_once() {
    (0..2_000).for_each(check_plan);
}
