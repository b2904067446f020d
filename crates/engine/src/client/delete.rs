//! Deletions: of one object, or of as many as an iterator names, in batches of 1,000.
//!
//! ```text
//! feeder (a thread):  listing ─ batches ──┐   at most two ahead
//! caller:             starts batches ◀────┘   several in flight; hears what became of each key
//! shard:              one request a batch, again where it is lost or throttled
//! ```

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use flatout_policy::retry::{Attempts, Fault};
use flatout_wire::documents::{self, is_xml_text};
use flatout_wire::head::quoted;
use flatout_wire::location::Location;
use flatout_wire::upload_answers;
use flatout_wire::verdict::Reason;

use crate::api::account::{Dialect, Operation, Target, check_object};
use crate::api::refusal::Failure;
use crate::api::write::{Write, WriteStep};
use crate::base::cancellation::Cancellation;
use crate::base::error::{Error, ErrorKind};
use crate::base::operation::{Class, Load};
use crate::client::Client;
use crate::shard::Shard;
use crate::shard::call::call_whole;
use crate::shard::shards::Task;
use crate::transfer::upload_workers::nonsensical;

/// As many keys as one request may name.
const BATCH_KEYS: usize = 1_000;
/// Requests of one key in flight. A batch counts for several: S3 deletes 3,500 keys a second of a prefix, so
/// that four batches keep it busy.
const IN_FLIGHT: usize = 16;
const BATCH_WEIGHT: usize = 4;
/// Units that the feeder may be ahead.
const AHEAD: usize = 2;
/// How often the caller is asked whether to go on.
const POLL: Duration = Duration::from_millis(100);
/// How long requests in flight are waited for once the caller has stopped it.
const GRACE: Duration = Duration::from_secs(2);

/// An object to be deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The object.
    pub location: Location,
    /// Its size as a listing had it, for the caller's own counts.
    pub bytes: u64,
}

/// What became of an object that was to be deleted.
#[derive(Debug)]
pub struct Deleted {
    /// The object.
    pub deletion: Deletion,
    /// Whether it is gone. One that was not there counts as deleted.
    pub result: Result<(), Error>,
}

/// How a deletion of many objects ended.
#[derive(Debug, Default)]
pub struct DeletedMany {
    /// Objects that are gone.
    pub deleted: u64,
    /// Objects that the origin, or the network, kept from being deleted.
    pub failed: u64,
    /// Objects that were asked to be deleted when the caller stopped it: nothing is known of them.
    pub unknown: u64,
    /// What ended the iterator early; objects behind it were not deleted.
    pub incomplete: Option<Error>,
}

/// What one task deletes.
struct Unit {
    /// Of one bucket, and with keys that a document can carry where there are several.
    deletions: Vec<Deletion>,
    is_batch: bool,
}

impl Unit {
    fn weight(&self) -> usize {
        if self.is_batch { BATCH_WEIGHT } else { 1 }
    }
}

enum Event {
    Found(Unit),
    /// Nothing more comes; with an error, more would have.
    End(Option<Error>),
    Ended {
        weight: usize,
        deleted: Vec<Deleted>,
    },
}

impl Client {
    /// Deletes an object, or one of its versions. An object that is not there counts as deleted; a bucket
    /// that keeps versions hides the newest behind a marker.
    ///
    /// # Errors
    /// The origin's refusal, or the network's.
    pub fn delete(&self, location: &Location, version_id: Option<&str>) -> Result<(), Error> {
        self.delete_target(location, version_id, None)
    }

    /// Deletes an object as long as it has this ETag. It is looked at just before, since OSS has no such
    /// condition and some servers of S3 overlook it; with S3 the request has the condition, too.
    ///
    /// # Errors
    /// [`ErrorKind::Changed`] for an object that has another ETag; as [`Client::delete`].
    pub fn delete_if_match(&self, location: &Location, etag: &str) -> Result<(), Error> {
        let found = self.stat(location)?;
        if found.version.etag.as_deref().map(quoted) != Some(quoted(etag)) {
            return Err(replaced().during("delete", location));
        }
        let if_match = (Dialect::of(location) == Dialect::S3).then_some(etag);
        match self.delete_target(location, None, if_match) {
            // A server that has no such condition: it was looked at.
            Err(error) if if_match.is_some() && error.kind() == ErrorKind::Unsupported => {
                self.delete_target(location, None, None)
            }
            deleted => deleted,
        }
    }

    fn delete_target(
        &self,
        location: &Location,
        version_id: Option<&str>,
        if_match: Option<&str>,
    ) -> Result<(), Error> {
        check_deletable(location).map_err(|error| error.during("delete", location))?;
        let target = Target { location: location.clone(), version_id: version_id.map(Arc::from) };
        let if_match = if_match.map(Arc::from);
        let deleted = self.shards.wait_for(|shard| async move { delete_one(&shard, target, if_match).await });
        deleted.map_err(|error| error.during("delete", location))
    }

    /// Deletes the objects that `deletions` names, in batches, several of them in flight. The iterator is
    /// read by a thread of its own, little ahead; its first error ends it ([`DeletedMany::incomplete`]), and
    /// what it named before is deleted all the same.
    ///
    /// `hear` is called with what became of objects, in the order in which that is known, and about ten times
    /// a second with nothing; where it breaks, no further object is asked for.
    ///
    /// # Errors
    /// The system has no thread left; the client is closed.
    pub fn delete_many(
        &self,
        deletions: impl Iterator<Item = Result<Deletion, Error>> + Send + 'static,
        hear: &mut dyn FnMut(Vec<Deleted>) -> ControlFlow<()>,
    ) -> Result<DeletedMany, Error> {
        let (tell, told) = mpsc::channel();
        let (allow, allowed) = mpsc::channel();
        for _ in 0..AHEAD {
            allow.send(()).expect("its receiver is here");
        }
        let feeder = std::thread::Builder::new().name("flatout-delete".to_owned());
        let found = tell.clone();
        feeder
            .spawn(move || feed(deletions, &found, &allowed))
            .map_err(|refused| Error::local("cannot start a thread", refused))?;
        let most = self.shared.settings.parallel.map_or(IN_FLIGHT, |asked| asked as usize * BATCH_WEIGHT);
        let mut running = RunningDeletion {
            client: self,
            tell,
            told,
            allow: Some(allow),
            stop: Arc::new(Cancellation::new()),
            most: most.min(IN_FLIGHT),
            weight: 0,
            in_flight: 0,
            waiting: Vec::new(),
            is_read: false,
            done: DeletedMany::default(),
        };
        running.run(hear)?;
        Ok(running.done)
    }
}

/// A deletion of many objects on its way.
struct RunningDeletion<'a> {
    client: &'a Client,
    tell: Sender<Event>,
    told: Receiver<Event>,
    /// Each message lets the feeder find one more unit; none once it is to end.
    allow: Option<Sender<()>>,
    stop: Arc<Cancellation>,
    most: usize,
    /// Of the units in flight.
    weight: usize,
    /// Objects in flight.
    in_flight: u64,
    waiting: Vec<Unit>,
    is_read: bool,
    done: DeletedMany,
}

impl RunningDeletion<'_> {
    fn run(&mut self, hear: &mut dyn FnMut(Vec<Deleted>) -> ControlFlow<()>) -> Result<(), Error> {
        let mut deadline: Option<Instant> = None;
        while self.weight > 0 || deadline.is_none() && !(self.is_read && self.waiting.is_empty()) {
            if deadline.is_none() {
                self.start_waiting()?;
            }
            let heard = match self.told.recv_timeout(POLL) {
                Ok(event) => self.on_event(event),
                Err(RecvTimeoutError::Timeout) => Vec::new(),
                // We have a sender ourselves.
                Err(RecvTimeoutError::Disconnected) => unreachable!("this thread holds a sender"),
            };
            if hear(heard).is_break() && deadline.is_none() {
                self.allow = None;
                deadline = Some(Instant::now() + GRACE);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.stop.cancel();
                self.done.unknown = self.in_flight;
                return Ok(());
            }
        }
        Ok(())
    }

    fn start_waiting(&mut self) -> Result<(), Error> {
        while let Some(unit) = self.waiting.first() {
            if self.weight > 0 && self.weight + unit.weight() > self.most {
                break;
            }
            let unit = self.waiting.remove(0);
            let (weight, tell, stop) = (unit.weight(), self.tell.clone(), self.stop.clone());
            (self.weight, self.in_flight) =
                (self.weight + weight, self.in_flight + unit.deletions.len() as u64);
            if let Some(allow) = &self.allow {
                // Where the feeder has ended it needs no leave.
                let _ = allow.send(());
            }
            let task = Task::new(move |shard| async move {
                tokio::select! {
                    biased;
                    deleted = delete_unit(&shard, unit) => {
                        // Whoever asked may have gone.
                        let _ = tell.send(Event::Ended { weight, deleted });
                    }
                    () = stop.cancelled() => {}
                }
            });
            self.client.shards.send(0, task)?;
        }
        Ok(())
    }

    fn on_event(&mut self, event: Event) -> Vec<Deleted> {
        match event {
            Event::Found(unit) => self.waiting.push(unit),
            Event::End(error) => (self.is_read, self.done.incomplete) = (true, error),
            Event::Ended { weight, deleted } => {
                self.weight -= weight;
                self.in_flight -= deleted.len() as u64;
                let gone = deleted.iter().filter(|deleted| deleted.result.is_ok()).count() as u64;
                self.done.deleted += gone;
                self.done.failed += deleted.len() as u64 - gone;
                return deleted;
            }
        }
        Vec::new()
    }
}

/// Reads the iterator, and makes units of what it names: keys that no document can carry go alone.
fn feed(
    deletions: impl Iterator<Item = Result<Deletion, Error>>,
    found: &Sender<Event>,
    allowed: &Receiver<()>,
) {
    // Whether anyone still wants it.
    let tell = |deletions: Vec<Deletion>, is_batch: bool| {
        deletions.is_empty()
            || allowed.recv().is_ok() && found.send(Event::Found(Unit { deletions, is_batch })).is_ok()
    };
    let mut batch: Vec<Deletion> = Vec::new();
    let mut broke_off = None;
    for deletion in deletions {
        let deletion = match deletion {
            Ok(deletion) => deletion,
            Err(error) => {
                broke_off = Some(error);
                break;
            }
        };
        if check_deletable(&deletion.location).is_err() || !is_xml_text(deletion.location.key()) {
            if !tell(vec![deletion], false) {
                return;
            }
            continue;
        }
        let is_elsewhere = batch.first().is_some_and(|first| !is_of_one_bucket(first, &deletion));
        if (is_elsewhere || batch.len() == BATCH_KEYS) && !tell(std::mem::take(&mut batch), true) {
            return;
        }
        batch.push(deletion);
    }
    if tell(batch, true) {
        let _ = found.send(Event::End(broke_off));
    }
}

fn is_of_one_bucket(one: &Deletion, other: &Deletion) -> bool {
    (Dialect::of(&one.location), one.location.bucket())
        == (Dialect::of(&other.location), other.location.bucket())
}

fn check_deletable(location: &Location) -> Result<(), Error> {
    if location.bucket().is_none() {
        let error = Error::new(ErrorKind::Unsupported, "a plain URL cannot be deleted");
        return Err(error.with_hint("name the object by s3:// or oss://"));
    }
    check_object(location).map_err(|_| {
        let error = Error::new(ErrorKind::Usage, "this is a bucket, not an object");
        error.with_hint(format!("name an object: {location}/KEY"))
    })
}

async fn delete_unit(shard: &Rc<Shard>, unit: Unit) -> Vec<Deleted> {
    if unit.is_batch {
        return delete_batch(shard, unit.deletions).await;
    }
    let mut deleted = Vec::new();
    for deletion in unit.deletions {
        deleted.push(delete_alone(shard, deletion).await);
    }
    deleted
}

async fn delete_alone(shard: &Rc<Shard>, deletion: Deletion) -> Deleted {
    let result = match check_deletable(&deletion.location) {
        Ok(()) => delete_one(shard, Target::from(deletion.location.clone()), None).await,
        Err(error) => Err(error),
    };
    ended(deletion, result)
}

fn ended(deletion: Deletion, result: Result<(), Error>) -> Deleted {
    let result = result.map_err(|error| error.during("delete", &deletion.location));
    Deleted { deletion, result }
}

/// One object by a request of its own.
async fn delete_one(shard: &Rc<Shard>, target: Target, if_match: Option<Arc<str>>) -> Result<(), Error> {
    let is_pinned = if_match.is_some();
    let operation = Operation::Write(Write { target, step: WriteStep::Delete { if_match } });
    match call_whole(shard, operation).await {
        Ok(_) => Ok(()),
        // Some servers say so of a key that is not there, and S3 of one that was to have an ETag: an answer
        // that was lost may have been to the request that deleted it.
        Err(failure) if failure.reason == Some(Reason::NotFound) => Ok(()),
        Err(failure) if is_pinned && failure.status == Some(412) => Err(replaced()),
        Err(failure) => Err(failure.error),
    }
}

fn replaced() -> Error {
    let error = Error::new(ErrorKind::Changed, "the object was replaced meanwhile: it stays as it is");
    error.with_hint("look at the new object, and start again")
}

/// Objects of one bucket by one request, and those that it could not delete then, but may later, by others.
async fn delete_batch(shard: &Rc<Shard>, deletions: Vec<Deletion>) -> Vec<Deleted> {
    let Some(bucket) = deletions.first().and_then(|first| first.location.with_key("")) else {
        return Vec::new();
    };
    let (mut left, mut deleted, mut attempts) = (deletions, Vec::new(), Attempts::default());
    while !left.is_empty() {
        let answer = match ask_for_batch(shard, &bucket, &left).await {
            Ok(answer) => answer,
            // A server without batches, such as Google's.
            Err(failure) if failure.error.kind() == ErrorKind::Unsupported => {
                for deletion in left {
                    deleted.push(delete_alone(shard, deletion).await);
                }
                break;
            }
            Err(failure) => {
                deleted.extend(all_failed(left, &failure.error));
                break;
            }
        };
        let gone: HashSet<&str> = answer.keys.iter().map(String::as_str).collect();
        let refused: HashMap<&str, Failure> = answer
            .errors
            .iter()
            .map(|error| (&*error.key, Failure::of_key(&error.code, &error.message)))
            .collect();
        let (mut again, mut passing) = (Vec::new(), None);
        for deletion in left {
            let key = deletion.location.key();
            match refused.get(key) {
                None if gone.contains(key) => deleted.push(ended(deletion, Ok(()))),
                // The answer does not name it: what became of it is not known.
                None => deleted.push(delete_alone(shard, deletion).await),
                // It was not there.
                Some(failure) if failure.reason == Some(Reason::NotFound) => {
                    deleted.push(ended(deletion, Ok(())));
                }
                Some(failure) if failure.fault == Fault::Final => {
                    let error = failure.error.clone_without_source();
                    deleted.push(ended(deletion, Err(error)));
                }
                Some(failure) => {
                    let error = failure.error.clone_without_source();
                    passing = Some(Failure { fault: failure.fault, ..Failure::transient(error) });
                    again.push(deletion);
                }
            }
        }
        left = again;
        let Some(failure) = passing else { continue };
        let gate = shard.shared.gate_of(&bucket, Class::Delete.direction());
        if failure.fault != Fault::Transient {
            gate.on_answer(Class::Delete, crate::base::time::now(), Load::TooMuch);
        }
        if let Err(failure) = shard.wait_or_give_up((&gate, Class::Delete), failure, &mut attempts).await {
            deleted.extend(all_failed(left, &failure.error));
            break;
        }
    }
    deleted
}

fn all_failed(deletions: Vec<Deletion>, error: &Error) -> impl Iterator<Item = Deleted> {
    deletions.into_iter().map(|deletion| ended(deletion, Err(error.clone_without_source())))
}

async fn ask_for_batch(
    shard: &Rc<Shard>,
    bucket: &Location,
    deletions: &[Deletion],
) -> Result<upload_answers::Deleted, Failure> {
    let keys: Vec<&str> = deletions.iter().map(|deletion| deletion.location.key()).collect();
    // Each key is to be named: OSS documents no form for one that it did not delete.
    let document = documents::delete_body(&keys, false).into();
    let (target, step) = (Target::from(bucket.clone()), WriteStep::DeleteMany { document });
    let (_, body) = call_whole(shard, Operation::Write(Write { target, step })).await?;
    upload_answers::parse_deleted(&body)
        .map_err(|nonsense| Failure::last(nonsensical("list of deleted objects", &nonsense)))
}
