//! What must hold of every run, whatever the seed.

use std::collections::HashMap;
use std::time::Duration;

use super::put_check::check_put;
use super::run::{Ended, ManyEnded, Outcome};
use super::scenario::{Address, Fault, Framing, Interruption, Land, Scenario, Task, Wrong};
use super::world::{Exchange, WHOLE, World};
use crate::api::account::Dialect;
use crate::base::error::{Error, ErrorKind};
use crate::base::report::{Report, Verified};

/// An attempt that brought this much was worth while: the count of those in a row begins anew.
const WORTHWHILE_BYTES: u64 = 64 << 10;
/// What is received with a head, and lands with what follows it.
const AHEAD_BYTES: u64 = 4 << 10;
/// About the answer to a HEAD.
const HEAD_BYTES: u64 = 512;
/// Longer than this nobody waits between two attempts.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// What the throttle of a class adds once an origin has refused: a pause of a second at most, and then its
/// turn among the others, sixteen of whom may ask every second.
const THROTTLED_WAIT_MAX: Duration = Duration::from_secs(6);
/// From a cancel to the end, in virtual time: what the looks of the simulated caller are apart, and a tick.
const LET_GO_WITHIN: Duration = Duration::from_millis(500);
/// A fair run lasts at most so many times what its requests need one after the other on each of its
/// connections…
const FAIR_FACTOR: f64 = 1.5;
/// … and this, for the looks of the simulated caller and reader.
const FAIR_SLACK: Duration = Duration::from_millis(500);

/// Everything that is wrong with a run, in words; nothing where all is well.
pub(super) fn check(world: &World, outcome: &Outcome) -> Vec<String> {
    let scenario = &*world.scenario;
    let mut wrong = world.log.borrow().violations.clone();
    if outcome.held_bytes > 0 {
        wrong.push(format!("{} bytes are still leased when all is over", outcome.held_bytes));
    }
    let (open, parallel) = (world.log.borrow().open_at_most, scenario.tuning.parallel as usize);
    // A second for each part that is raced, and one each that the origin has closed, which nobody has seen
    // yet.
    let is_raced = !scenario.is_fair() || scenario.is_thin();
    // And one for a worker that got the slot of another on another shard, where that one waits to try again
    // or for room in a stream: its connection stays there.
    let is_passed_on = !scenario.is_fair() || scenario.streams();
    let besides = [is_raced, is_passed_on, scenario.origin.closes_idle.is_some()];
    let per_slot = 1 + besides.into_iter().filter(|one| *one).count();
    let most = parallel * per_slot;
    // The HEAD that asks for a checksum beside the data has a connection too, which then serves all.
    let heads = match scenario.origin.dialect {
        Dialect::S3 => scenario.objects.len().min(parallel),
        Dialect::Oss | Dialect::Plain => 0,
    };
    if open > most + heads && !scenario.tuning.is_open {
        wrong.push(format!("{open} connections were open at once, --parallel is {parallel}"));
    }
    wrong.extend(check_attempts(scenario, &world.log.borrow().exchanges));
    for ended in &outcome.gets {
        wrong.extend(check_get(world, ended).into_iter().flatten());
    }
    if let Some(many) = &outcome.many {
        wrong.extend(check_many(world, many));
    }
    if let (Some(put), Some(task)) = (&outcome.put, scenario.put()) {
        wrong.extend(check_put(world, task, put));
    }
    wrong
}

/// How often it was tried, and how long waited between.
pub(super) fn check_attempts(scenario: &Scenario, exchanges: &[Exchange]) -> Vec<String> {
    let check = |attempts: Attempts<'_>| {
        check_count(scenario, &attempts).into_iter().chain(check_waits(scenario, &attempts))
    };
    attempts(exchanges).into_iter().flat_map(check).collect()
}

/// The attempts at the same bytes, in order.
struct Attempts<'a> {
    exchanges: Vec<&'a Exchange>,
    /// The bytes that tell size and version: asked for until there is an answer, and then until they are
    /// landed.
    is_first: bool,
}

impl Attempts<'_> {
    /// Whether one began before the one before it had ended.
    fn are_raced(&self) -> bool {
        let overlaps = |pair: &[&Exchange]| pair[0].ended_at.is_none_or(|ended| pair[1].asked_at < ended);
        self.exchanges.windows(2).any(overlaps)
    }
}

fn attempts(exchanges: &[Exchange]) -> Vec<Attempts<'_>> {
    let mut found: Vec<Attempts<'_>> = Vec::new();
    let mut index: HashMap<(u32, usize, u64), usize> = HashMap::new();
    let mut begun = HashMap::new();
    for exchange in exchanges.iter().filter(|exchange| exchange.is_get) {
        let first = *begun.entry((exchange.transfer, exchange.object)).or_insert(exchange.key);
        let at = *index.entry((exchange.transfer, exchange.object, exchange.key)).or_insert_with(|| {
            found.push(Attempts {
                exchanges: Vec::new(),
                is_first: exchange.key == first || exchange.key == WHOLE,
            });
            found.len() - 1
        });
        found[at].exchanges.push(exchange);
    }
    found
}

/// A part is given up after `--retries` attempts in a row that brought nothing worth while, and after four
/// times as many where the origin throttles it and serves others.
fn check_count(scenario: &Scenario, attempts: &Attempts<'_>) -> Option<String> {
    let twice = 1 + u32::from(attempts.is_first);
    let again =
        1 + u32::from(matches!(scenario.task, Task::Many { .. }) && scenario.origin.replaced.is_some());
    let is_throttled =
        attempts.exchanges.iter().any(|exchange| matches!(exchange.fault, Some(Fault::Throttles(_))));
    let in_vain = scenario.tuning.retries * if is_throttled { 4 } else { 1 } + 1;
    // Whoever is silent and left for another counts as one in vain; who races in vain does not.
    let races = 1 + u32::from(attempts.are_raced());
    let most = in_vain * twice * again * races;
    let mut in_a_row = 0;
    for exchange in &attempts.exchanges {
        in_a_row = if exchange.received >= WORTHWHILE_BYTES { 0 } else { in_a_row + 1 };
        if in_a_row > most {
            let (object, key) = (exchange.object, exchange.key);
            return Some(format!(
                "object-{object} up to {key}: more than {most} attempts in a row for nothing"
            ));
        }
    }
    None
}

/// The waits between attempts: as long as the origin asks for, no longer than the policy says.
fn check_waits(scenario: &Scenario, attempts: &Attempts<'_>) -> Vec<String> {
    let mut wrong = Vec::new();
    if attempts.are_raced() {
        return wrong;
    }
    for (attempt, gap, failed) in gaps(attempts) {
        let asked = failed.asked_to_wait().unwrap_or_default().min(WAIT_MAX);
        if gap < asked {
            wrong.push(format!(
                "attempt {attempt} was followed after {gap:?}, the origin asked for {asked:?}"
            ));
        }
        let base_ms = if failed.status == 503 { 500 } else { 50 };
        let ceiling = Duration::from_millis(base_ms << attempt.min(16)).min(WAIT_MAX);
        let connects = Duration::from_millis(scenario.origin.connect_ms + 10);
        let is_throttled =
            scenario.origin.faults.iter().any(|(_, fault)| matches!(fault, Fault::Throttles(_)));
        let throttled = if is_throttled { THROTTLED_WAIT_MAX } else { Duration::ZERO };
        if reaches(scenario) && gap > asked + ceiling + connects + throttled + for_a_slot(scenario) {
            wrong.push(format!(
                "attempt {attempt} was followed only after {gap:?}, at most {ceiling:?} is policy"
            ));
        }
    }
    wrong
}

/// How long a part may wait for a slot again, which another part has got meanwhile: until that has landed,
/// and where the level may fall while it waits, until all others have theirs.
fn for_a_slot(scenario: &Scenario) -> Duration {
    let (tuning, origin) = (&scenario.tuning, &scenario.origin);
    let takes = |bytes: u64, rate: u64| Duration::from_secs_f64(bytes as f64 / rate as f64);
    let others = takes(tuning.part_bytes * u64::from(tuning.parallel), origin.total_rate);
    let answered = Duration::from_millis(origin.connect_ms + origin.first_byte_ms + origin.jitter_ms);
    answered + others.max(takes(tuning.part_bytes, origin.rate))
}

/// Failed attempts by number, and the wait between their end and the next. Those that were worth while are
/// the first anew; what had come before is passed over where there are no ranges, and is worth nothing.
fn gaps<'a>(attempts: &Attempts<'a>) -> impl Iterator<Item = (u32, Duration, &'a Exchange)> {
    let pairs: Vec<_> = attempts.exchanges.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let (mut attempt, mut furthest) = (0, 0);
    pairs.into_iter().filter_map(move |(failed, next)| {
        let reached = failed.body.start + failed.received;
        let new_bytes = reached.saturating_sub(furthest.max(failed.body.start));
        furthest = furthest.max(reached);
        // What came with the last head may not have landed.
        let was_worth_it = new_bytes >= WORTHWHILE_BYTES + AHEAD_BYTES;
        attempt = if was_worth_it { 1 } else { attempt + 1 };
        let has_failed = failed.fault.is_some() && failed.status != 412;
        let ended = failed.ended_at.filter(|_| has_failed)?;
        Some((attempt, next.asked_at.saturating_sub(ended), failed))
    })
}

/// The waits after failures that no origin asked to wait for: how often it was tried, and how long until the
/// next.
pub(super) fn waits(world: &World) -> Vec<(u32, Duration)> {
    if !reaches(&world.scenario) {
        return Vec::new();
    }
    let log = world.log.borrow();
    let attempts = attempts(&log.exchanges);
    let parts = attempts.iter().filter(|attempts| !attempts.is_first && !attempts.are_raced()).flat_map(gaps);
    parts.filter(|(.., failed)| failed.status != 503).map(|(attempt, gap, _)| (attempt, gap)).collect()
}

/// Whether every connection comes about, at its time.
pub(super) fn reaches(scenario: &Scenario) -> bool {
    let origin = &scenario.origin;
    origin.refuses == 0.0
        && origin.silent == 0.0
        && origin.addresses.iter().all(|&address| address == Address::Alive)
        && origin.replaced.is_none()
}

fn check_get(world: &World, ended: &Ended) -> [Option<String>; 2] {
    let interrupted = ended.interrupted.map(|at| ended.ended.saturating_sub(at));
    let late = interrupted
        .filter(|&took| took > LET_GO_WITHIN)
        .map(|took| format!("it ended only {took:?} after it was interrupted"));
    let wrong = match &ended.result {
        Ok(report) => check_success(world, ended, report),
        Err(error) => check_failure(world, ended, error),
    };
    [late, wrong]
}

/// What landing may hold: the bytes asked for of each version that was ever there.
fn expected(world: &World) -> Vec<&'static [u8]> {
    let Task::One { span, .. } = &world.scenario.task else { return Vec::new() };
    let versions = 1 + u32::from(world.scenario.origin.replaced.is_some());
    let contents = (0..versions).map(|version| world.content(0, version));
    contents
        .filter_map(|content| {
            let range = span.resolve(content.len() as u64).ok()?;
            Some(&content[range.start as usize..range.end as usize])
        })
        .collect()
}

fn check_success(world: &World, ended: &Ended, report: &Report) -> Option<String> {
    let scenario = &*world.scenario;
    let is_flipped = world.log.borrow().flipped.contains(&0) && matches!(report.verified, Verified::None(_));
    let bytes = report.bytes as usize;
    let versions = expected(world);
    let is_right = |landed: &Vec<u8>| {
        let (landed, rest) = landed.split_at(bytes.min(landed.len()));
        let untouched = matches!(scenario.task, Task::One { land: Land::Memory, .. });
        // All may be in the window when the reader leaves: it ended well, and what was read is its beginning.
        let has_left = scenario.interruption.is_some_and(|(kind, _)| kind == Interruption::ReaderLeaves);
        let is_version = |version: &&[u8]| *version == landed || has_left && version.starts_with(landed);
        (versions.iter().any(is_version) || is_flipped)
            && (rest.is_empty() || untouched && rest.iter().all(|&b| b == 0xA5))
    };
    if !versions.iter().any(|version| version.len() == bytes) {
        return Some(format!("it ended well with {bytes} bytes, which no version has"));
    }
    if ended.landed.as_ref().is_some_and(|landed| !is_right(landed)) {
        return Some("it ended well, and the bytes are not those of one version".into());
    }
    let asked_once = scenario.origin.has_ranges;
    if asked_once && report.fetched_bytes != report.bytes {
        return Some(format!("{} bytes were fetched to land {bytes}", report.fetched_bytes));
    }
    if scenario.is_fair() && report.retries > 0 {
        return Some(format!("{} attempts were tried again, and nothing had failed", report.retries));
    }
    // More and more in flight share one total: each body may well pause for longer than it did so far.
    let hedged = if scenario.tuning.is_open || scenario.is_thin() { 0 } else { report.tails.hedged };
    if scenario.is_fair() && hedged + report.tails.moved > 0 {
        return Some(format!("nothing was silent or slow, and yet: {:?}", report.tails));
    }
    if scenario.is_fair() && scenario.origin.closes_idle.is_none() {
        return check_fair(scenario, ended, report);
    }
    None
}

/// A run without faults: in the time that it needs, over connections that are used again.
fn check_fair(scenario: &Scenario, ended: &Ended, report: &Report) -> Option<String> {
    let (origin, tuning) = (&scenario.origin, &scenario.tuning);
    let parts = report.bytes.div_ceil(tuning.part_bytes).max(1);
    let slots = if scenario.streams() { tuning.window_bytes / tuning.part_bytes } else { u64::MAX };
    // What the pace finds is as good as a few that are fixed.
    let parallel = if tuning.is_open { 4 } else { u64::from(tuning.parallel) };
    let lanes = parallel.min(slots).min(parts);
    // One that waits for room has passed its slot on, perhaps to another shard.
    let workers = u64::from(tuning.parallel).min(parts) * (1 + u64::from(scenario.streams()));
    let heads = u64::from(origin.dialect == Dialect::S3);
    // A HEAD whose share of the link brings no whole answer in time is let go, and asked again on another
    // connection.
    let share = origin.total_rate * tuning.stall_ms / 1000 / (workers + heads);
    if !origin.closes_each && share > HEAD_BYTES && ended.connections as u64 > workers + heads {
        let opened = ended.connections;
        return Some(format!("{opened} connections were opened by {workers} workers and for {heads} HEADs"));
    }
    let seconds = |ms: u64| ms as f64 / 1e3;
    let exchange = seconds(origin.connect_ms + origin.first_byte_ms + origin.jitter_ms + 3);
    let each = exchange + tuning.part_bytes.min(report.bytes.max(1)) as f64 / origin.rate as f64;
    let rounds = 1 + (parts - 1).div_ceil(lanes);
    let whole = report.bytes as f64;
    let alone = if origin.has_ranges { each * rounds as f64 } else { exchange + whole / origin.rate as f64 };
    let read = scenario.stream_rate().map_or(0.0, |rate| whole / rate as f64);
    // Of the last byte's question and of the HEAD.
    let ideal = alone + 2.0 * exchange + whole / origin.total_rate as f64 + read;
    let took = ended.ended.saturating_sub(ended.began);
    let most = Duration::from_secs_f64(ideal * FAIR_FACTOR) + FAIR_SLACK;
    (took > most).then(|| format!("it took {took:?}, at most {most:?} are fair"))
}

fn check_failure(world: &World, ended: &Ended, error: &Error) -> Option<String> {
    let scenario = &*world.scenario;
    let log = world.log.borrow();
    if let Some(landed) = ended.landed.as_ref().filter(|_| scenario.streams() && log.flipped.is_empty())
        && !expected(world).iter().any(|version| version.starts_with(landed))
        && !landed.is_empty()
    {
        return Some("what was read before the failure is not the object's beginning".into());
    }
    if super::run::is_cancelled(error) {
        return scenario.interruption.is_none().then(|| format!("nobody has cancelled: {error}"));
    }
    let Task::One { span, .. } = &scenario.task else { return None };
    let versions = 1 + u32::from(scenario.origin.replaced.is_some());
    let resolves = |version| span.resolve(world.content(0, version).len() as u64).is_ok();
    let tells_no_size = scenario.origin.framing != Framing::Length;
    let explained = match error.kind() {
        // Where nothing tells the size, a range that ends beyond it is found out at the landing.
        ErrorKind::Usage => !(0..versions).all(resolves) || tells_no_size,
        ErrorKind::Unsupported => tells_no_size || !scenario.origin.has_ranges,
        kind => log.explained.contains(&(None, kind)) || log.explained.contains(&(Some(0), kind)),
    };
    if !explained {
        return Some(format!("nothing explains the error: {error}"));
    }
    check_giving_up(scenario, error)
}

/// What may pass is tried as often as the settings say.
pub(super) fn check_giving_up(scenario: &Scenario, error: &Error) -> Option<String> {
    let is_transient = matches!(error.kind(), ErrorKind::Network | ErrorKind::Timeout | ErrorKind::Throttled);
    let is_final = |&(_, fault): &(f64, Fault)| fault == Fault::WrongRange(Wrong::Whole);
    if !is_transient || scenario.origin.faults.iter().any(is_final) {
        return None;
    }
    if is_bearable(scenario) {
        return Some(format!(
            "every attempt after the first {} would have been well: {error}",
            scenario.origin.faulty_attempts
        ));
    }
    let tried = error.cause().rsplit_once("(tried ").and_then(|(_, rest)| rest.split_once(" times)"));
    let tried: u32 = tried.map_or(1, |(times, _)| times.parse().unwrap_or(0));
    let meant = scenario.tuning.retries + 1;
    (tried < meant).then(|| format!("it was given up after {tried} attempts, {meant} are meant: {error}"))
}

/// Whether no part meets more faults than there are retries.
fn is_bearable(scenario: &Scenario) -> bool {
    reaches(scenario)
        && scenario.origin.faulty_attempts <= scenario.tuning.retries
        && scenario.origin.framing != Framing::UntilClose
}

fn check_many(world: &World, many: &ManyEnded) -> Vec<String> {
    let scenario = &*world.scenario;
    let mut wrong = Vec::new();
    if let Some(at) = many.interrupted
        && many.ended.saturating_sub(at) > LET_GO_WITHIN
    {
        wrong.push(format!("it ended only {:?} after it was interrupted", many.ended - at));
    }
    let mut seen = HashMap::new();
    for finished in &many.finished {
        let name = finished.wanted.name.rsplit('-').next().unwrap_or_default();
        let object: usize = name.parse().expect("names end with their number");
        *seen.entry(object).or_insert(0) += 1;
        match &finished.result {
            Ok(report) => wrong.extend(check_one_of_many(world, many, object, report)),
            Err(error) => wrong.extend(check_one_failed(world, many, object, error)),
        }
    }
    wrong.extend(
        seen.iter().filter(|(_, times)| **times > 1).map(|(at, _)| format!("object-{at} ended twice")),
    );
    let is_whole = many.finished.len() == scenario.objects.len();
    if !is_whole && scenario.interruption.is_none() {
        wrong.push(format!("{} of {} objects have ended", many.finished.len(), scenario.objects.len()));
    }
    if many.incomplete.is_some() && many.interrupted.is_none() {
        wrong.push("the list broke off without a reason".into());
    }
    let ok = many.finished.iter().filter_map(|finished| finished.result.as_ref().ok());
    let (count, bytes) = ok.fold((0, 0), |(count, bytes), report| (count + 1, bytes + report.bytes));
    if (many.progress.ok, many.progress.landed_bytes) != (count, bytes) && is_whole {
        wrong.push(format!(
            "{count} objects of {bytes} bytes are well, its progress says {:?}",
            many.progress
        ));
    }
    wrong
}

fn check_one_of_many(world: &World, many: &ManyEnded, object: usize, report: &Report) -> Option<String> {
    let scenario = &*world.scenario;
    let versions = 1 + u32::from(scenario.origin.replaced.is_some());
    let mut contents = (0..versions).map(|version| world.content(object, version));
    let is_flipped =
        world.log.borrow().flipped.contains(&object) && matches!(report.verified, Verified::None(_));
    let right = contents.any(|content| {
        let same = match scenario.task {
            Task::Many { land: Land::File } => many.files.get(&object).is_some_and(|file| file == content),
            _ => content.len() as u64 == report.bytes,
        };
        same || is_flipped
    });
    (!right).then(|| format!("object-{object} ended well, and its bytes are not those of one version"))
}

fn check_one_failed(world: &World, many: &ManyEnded, object: usize, error: &Error) -> Option<String> {
    let scenario = &*world.scenario;
    if many.files.contains_key(&object) {
        return Some(format!("object-{object} failed and has a file"));
    }
    if super::run::is_cancelled(error) {
        return scenario
            .interruption
            .is_none()
            .then(|| format!("nobody has cancelled object-{object}: {error}"));
    }
    let log = world.log.borrow();
    let explained = [None, Some(object)].iter().any(|&met| log.explained.contains(&(met, error.kind())));
    if !explained {
        return Some(format!("nothing explains the error of object-{object}: {error}"));
    }
    check_giving_up(scenario, error)
}
