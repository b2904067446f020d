//! What must hold of every put, whatever the seed. What can only be seen as it happens stands in `world`:
//! which bytes a request carries, and which requests may be made while others are on their way.

use std::collections::BTreeMap;
use std::time::Duration;

use super::check::{check_giving_up, reaches};
use super::put_run::PutEnded;
use super::scenario::{Fault, From, Interruption, PutTask, Scenario, Step};
use super::store;
use super::world::{World, Written};
use crate::base::error::{Error, ErrorKind};
use crate::base::report::{Report, Verified};

/// From a cancel to the end: parts are deleted, for which there are five seconds.
const LET_GO_WITHIN: Duration = Duration::from_millis(5_500);
/// A run in fair weather may last this many times as long as the wire and the writer need,
const FAIR_FACTOR: f64 = 2.0;
/// and so much longer.
const FAIR_SLACK: Duration = Duration::from_millis(500);
/// What an error says of parts that could not be deleted.
const LEFT: &str = "could not be deleted";

/// Everything that is wrong with a put, in words.
pub(super) fn check_put(world: &World, task: PutTask, ended: &PutEnded) -> Vec<String> {
    store::settle(world);
    let checks = [
        check_object(world, task, ended),
        check_left_behind(world, ended),
        check_let_go(world, ended),
        check_beside(world, ended),
        match &ended.result {
            Ok(report) => check_success(world, ended, report),
            Err(error) => check_failure(world, task, error),
        },
    ];
    let mut wrong: Vec<String> = checks.into_iter().flatten().collect();
    wrong.extend(check_sent(world));
    wrong
}

/// Whether the origin may have done something of which the engine heard nothing.
fn may_have(world: &World, step: impl Fn(Step) -> bool) -> bool {
    let may = |write: &Written| {
        let is_done = write.is_unheard || (200..300).contains(&write.status);
        step(write.step) && is_done && !write.is_heard
    };
    world.log.borrow().writes.iter().any(may)
}

/// The object is there whole and right, or not at all.
fn check_object(world: &World, task: PutTask, ended: &PutEnded) -> Option<String> {
    let store = world.store.borrow();
    let object = store.objects.get(&0).map(|stored| &stored.content[..]);
    let content = world.sent_content();
    let is_ours = object == Some(content);
    let is_as_before = if task.is_there { object == Some(store::PLACED) } else { object.is_none() };
    if !is_ours && !is_as_before {
        return Some(format!("an object of {:?} bytes is there that nobody sent", object.map(<[u8]>::len)));
    }
    if task.if_absent && task.is_there && !is_as_before {
        return Some("an object that was to stay has been replaced".into());
    }
    let is_end = |step: Step| matches!(step, Step::Put | Step::Complete);
    // An answer that comes together with the cancel may count for either.
    let is_late = |write: &Written| {
        is_end(write.step) && ended.interrupted.is_some_and(|at| write.ended_at.is_some_and(|end| end >= at))
    };
    let may_be_there = may_have(world, is_end) || world.log.borrow().writes.iter().any(is_late);
    let is_withdrawn = matches!(world.scenario.interruption, Some((Interruption::Withdraw, _)));
    match &ended.result {
        Err(error) if is_ours && is_withdrawn && super::run::is_cancelled(error) => {
            Some("it was withdrawn, and the object is there".into())
        }
        Ok(_) if !is_ours => Some("it ended well, and the object is not there".into()),
        Err(error) if is_ours && !may_be_there => {
            Some(format!("it failed, and the object is there: {error}"))
        }
        _ => None,
    }
}

/// No unfinished upload is left, or the error says so.
fn check_left_behind(world: &World, ended: &PutEnded) -> Option<String> {
    let log = world.log.borrow();
    let told = |upload: &&store::Upload| log.writes[upload.begun_by].is_heard;
    let left = world.store.borrow().uploads.iter().filter(|upload| !upload.is_over).filter(told).count();
    let error = ended.result.as_ref().err();
    let says_so = error.is_some_and(|error| error.hint().is_some_and(|hint| hint.to_string().contains(LEFT)));
    let aborts = |write: &&Written| write.step == Step::Abort && !(write.is_heard && write.status < 300);
    let has_reason = log.writes.iter().any(|write| aborts(&write)) || !reaches(&world.scenario);
    let closed = matches!(world.scenario.interruption, Some((Interruption::ClientCloses, _)));
    match (left, says_so) {
        (0, false) => None,
        (0, true) if has_reason || closed => None,
        (0, true) => Some("it says that parts are left, and none are".into()),
        (_, false) => {
            Some(format!("{left} uploads are left unfinished, the error says nothing of it: {error:?}"))
        }
        (_, true) if has_reason || closed || world.scenario.origin.away.is_some() => None,
        (_, true) => Some("parts are left, and no abort has failed".into()),
    }
}

fn check_let_go(world: &World, ended: &PutEnded) -> Option<String> {
    let took = ended.ended.saturating_sub(ended.interrupted?);
    let Scenario { interruption, tuning, .. } = &*world.scenario;
    let is_cancelled = ended.result.as_ref().is_err_and(super::run::is_cancelled);
    if !is_cancelled && matches!(interruption, Some((Interruption::Withdraw, _))) {
        return None;
    }
    // A writer that leaves while the upload begins is noticed once that is over.
    let begins_ms = match interruption {
        Some((Interruption::ReaderLeaves, _)) => u64::from(tuning.retries + 1) * tuning.stall_ms,
        _ => 0,
    };
    (took > LET_GO_WITHIN + Duration::from_millis(begins_ms))
        .then(|| format!("it ended only {took:?} after it was interrupted"))
}

/// What is read meanwhile meets the same origin, and a put in trouble is no trouble of its own.
fn check_beside(world: &World, ended: &PutEnded) -> Option<String> {
    match ended.beside.as_ref()? {
        Ok(report) if report.bytes == world.scenario.objects[1].bytes => None,
        Ok(report) => Some(format!("the get beside it ended with {} bytes", report.bytes)),
        Err(error) if world.scenario.is_fair() => Some(format!("the get beside it failed: {error}")),
        Err(_) => None,
    }
}

fn check_success(world: &World, ended: &PutEnded, report: &Report) -> Option<String> {
    let (scenario, log) = (&*world.scenario, world.log.borrow());
    let bytes = world.sent_content().len() as u64;
    if report.bytes != bytes {
        return Some(format!("it reports {} bytes of {bytes}", report.bytes));
    }
    if scenario.origin.states_checksum != matches!(report.verified, Verified::Whole(_)) {
        return Some(format!("it is verified {}", report.verified));
    }
    let sent: u64 =
        log.writes.iter().filter(|write| write.step.has_content()).map(Written::content_sent).sum();
    if report.fetched_bytes < bytes || report.fetched_bytes < sent {
        return Some(format!("{sent} bytes were sent, it reports {}", report.fetched_bytes));
    }
    if !scenario.is_fair() || scenario.is_thin() {
        return None;
    }
    // An origin that takes no trailers gets one part twice: `World::check_trial` sees to it.
    let in_vain = match scenario.takes_trailers() {
        true => 0,
        false => log.writes.iter().filter(|write| write.is_framed).map(|write| write.sent).sum(),
    };
    if report.retries > 0 || report.fetched_bytes > bytes + in_vain {
        return Some(format!(
            "{} retries and {} bytes sent in fair weather",
            report.retries, report.fetched_bytes
        ));
    }
    let takes = fair_time(world);
    (ended.ended > takes.mul_f64(FAIR_FACTOR) + FAIR_SLACK)
        .then(|| format!("it took {:?} in fair weather, about {takes:?} is due", ended.ended))
}

/// How long a put takes about in fair weather.
fn fair_time(world: &World) -> Duration {
    let (scenario, log) = (&*world.scenario, world.log.borrow());
    let (origin, tuning) = (&scenario.origin, &scenario.tuning);
    let bytes: u64 = log.writes.iter().map(|write| write.bytes).sum();
    let requests = log.writes.len() as u64;
    let at_once = u64::from(tuning.parallel).min(requests).max(1);
    let rate = (origin.rate * at_once).min(origin.total_rate) as f64;
    // The last of them may be alone.
    let alone = tuning.part_bytes.min(bytes) as f64 / origin.rate as f64;
    let answers = origin.connect_ms + origin.first_byte_ms + origin.jitter_ms;
    let rounds = 4 + requests.div_ceil(at_once);
    let written = match scenario.put().map(|put| put.from) {
        Some(From::Stream(Some(rate))) => world.sent_content().len() as f64 / rate as f64,
        _ => 0.0,
    };
    Duration::from_secs_f64(bytes as f64 / rate + alone + written) + Duration::from_millis(answers * rounds)
}

fn check_failure(world: &World, task: PutTask, error: &Error) -> Option<String> {
    let (scenario, log) = (&*world.scenario, world.log.borrow());
    if super::run::is_cancelled(error) {
        return scenario.interruption.is_none().then(|| format!("nobody has cancelled it: {error}"));
    }
    let ends_unheard = may_have(world, |step| matches!(step, Step::Put | Step::Complete));
    let explained = match error.kind() {
        // What is ours cannot be told from what is another's where the origin states no checksum.
        ErrorKind::Changed => {
            task.if_absent && (task.is_there || ends_unheard && !scenario.origin.states_checksum)
        }
        kind => log.explained.contains(&(None, kind)) || log.explained.contains(&(Some(0), kind)),
    };
    if !explained {
        return Some(format!("nothing explains the error: {error}"));
    }
    check_giving_up(scenario, error)
}

/// A request is made again as often as the settings say: a part that was cut is sent again, and no other.
fn check_sent(world: &World) -> Vec<String> {
    let (scenario, log) = (&*world.scenario, world.log.borrow());
    let mut attempts: BTreeMap<Step, Vec<&Written>> = BTreeMap::new();
    for write in log.writes.iter() {
        attempts.entry(write.step).or_default().push(write);
    }
    let mut wrong = Vec::new();
    for (step, attempts) in attempts {
        wrong.extend(check_row(scenario, step, &attempts));
        if step.has_content() && both_were_whole(&attempts) {
            wrong.push(format!("{step:?} was sent whole by two requests at a time"));
        }
        for pair in attempts.windows(2) {
            let is_silent = pair[0].ended_at.is_none_or(|ended| pair[1].asked_at < ended);
            // What had other bytes on its arrival is sent again, though the origin took it.
            let is_wrong = pair[0].fault == Some(Fault::Flip) || !scenario.confirms(pair[0].is_framed);
            let has_failed = !pair[0].is_heard || pair[0].status >= 300 || is_wrong;
            if step.has_content() && !has_failed && !is_silent {
                wrong.push(format!("{step:?} is sent again after it was accepted"));
            }
        }
    }
    wrong
}

/// Whether two requests sent the same part whole while both were open. The origin would keep either of them.
fn both_were_whole(attempts: &[&Written]) -> bool {
    let is_whole = |write: &&&Written| write.bytes > 0 && write.sent == write.bytes;
    let mut open_until = None;
    attempts.iter().filter(is_whole).any(|write| {
        let is_beside = open_until.is_some_and(|until: Duration| write.asked_at < until);
        open_until = open_until.max(Some(write.ended_at.unwrap_or(Duration::MAX)));
        is_beside
    })
}

/// Attempts at one thing: what was answered or broke off counts, what an idle connection had lost does not.
fn check_row(scenario: &Scenario, step: Step, attempts: &[&Written]) -> Option<String> {
    let is_throttled = attempts.iter().any(|write| matches!(write.fault, Some(Fault::Throttles(_))));
    let is_raced = attempts.windows(2).any(|pair| pair[0].ended_at.is_none_or(|end| pair[1].asked_at < end));
    let in_vain = scenario.tuning.retries * if is_throttled { 4 } else { 1 } + 1;
    // Each may find connections that the origin has closed meanwhile.
    let most = in_vain * (1 + u32::from(is_raced)) * 2;
    let counted = attempts.iter().filter(|write| write.fault.is_some() || write.status > 0).count() as u32;
    (counted > most).then(|| format!("{step:?} was asked for {counted} times, at most {most} are meant"))
}
