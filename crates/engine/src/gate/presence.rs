//! Whether the origin is there, for all that is asked of it: while it is away requests wait here, and one at
//! a time looks whether it is back. What is decided stands in `policy::outage`.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::{Cell, Gate};
use crate::api::refusal::Failure;
use crate::base::error::{Error, ErrorKind};
use crate::base::limited_by::Host;
use crate::base::operation::Class;
use crate::base::time::now;
use crate::base::wording::{broke, silence};
use flatout_policy::outage::{Admission, Outage, Waited};
use flatout_policy::retry::Fault;

/// An outage of a fraction of a second is nobody's news.
const NEWS_AFTER: Duration = Duration::from_secs(1);

/// A request that is not answered for so long says that the origin is away, unless it serves others
/// meanwhile.
const SILENCE: Duration = Duration::from_secs(5);

/// News of an outage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutageNews {
    /// The origin has been away for a second.
    Away {
        /// Which.
        origin: Host,
        /// As the last attempt said it: `cannot connect to 127.0.0.1:9000: Connection refused`.
        why: String,
        /// How long it is waited for in all.
        timeout: Duration,
    },
    /// It is back.
    Back {
        /// Which.
        origin: Host,
        /// How long it was away.
        lasted: Duration,
    },
}

impl fmt::Display for OutageNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OutageNews::Away { origin, why, timeout } => {
                write!(f, "waiting for {origin}, up to {} s: {why}", timeout.as_secs().max(1))
            }
            OutageNews::Back { origin, lasted } => {
                write!(f, "{origin} is back after {} s", lasted.as_secs().max(1))
            }
        }
    }
}

/// Takes the news, once somebody wants to hear them.
pub(crate) type Newsroom = Arc<OnceLock<Sender<OutageNews>>>;

/// The presence of one origin.
pub(crate) struct Presence {
    host: Host,
    newsroom: Newsroom,
    state: Mutex<State>,
    /// Looked at for each request.
    is_away: AtomicBool,
    /// Wakes all that wait for the origin: it is back, or has been given up.
    back: Notify,
    waits_for_outages: bool,
    /// The last answer, in nanoseconds since `born`.
    answered_ns: AtomicU64,
    born: Instant,
}

struct State {
    outage: Outage,
    /// Why it is taken for away.
    why: Option<Error>,
    is_news: bool,
}

impl Presence {
    /// `timeout` is how long an origin is waited for that has answered.
    pub(crate) fn new(timeout: Duration, host: Host, newsroom: Newsroom) -> Presence {
        Presence {
            host,
            newsroom,
            state: Mutex::new(State { outage: Outage::new(timeout), why: None, is_news: false }),
            is_away: AtomicBool::new(false),
            back: Notify::new(),
            waits_for_outages: !timeout.is_zero(),
            answered_ns: AtomicU64::new(0),
            born: now(),
        }
    }

    /// Waits until a request may leave.
    ///
    /// # Errors
    /// The origin was away for too long.
    pub(crate) async fn admit(&self) -> Result<(), Failure> {
        let mut came = None;
        while self.is_away.load(Ordering::Acquire) {
            let came = *came.get_or_insert_with(now);
            let mut woken = std::pin::pin!(self.back.notified());
            woken.as_mut().enable();
            let admission = self.lock().outage.admit(came, now());
            match admission {
                Admission::Go => break,
                Admission::GiveUp(waited) => return Err(self.given_up(waited)),
                Admission::Wait(until) => drop(tokio::time::timeout_at(until.into(), woken).await),
            }
        }
        Ok(())
    }

    /// The origin has answered.
    pub(crate) fn on_answered(&self) {
        let ns = now().saturating_duration_since(self.born).as_nanos() as u64;
        self.answered_ns.store(ns.max(1), Ordering::Relaxed);
        self.on_progress();
    }

    /// It has sent something: all that wait go on.
    pub(crate) fn on_progress(&self) {
        if self.is_away.load(Ordering::Acquire) {
            let mut state = self.lock();
            let waited = state.outage.waited(now());
            state.outage.on_progress();
            state.why = None;
            let was_news = std::mem::take(&mut state.is_news);
            self.is_away.store(false, Ordering::Release);
            // Before the next outage can be told of.
            if let Some(waited) = waited.filter(|_| was_news) {
                self.tell(OutageNews::Back { origin: self.host, lasted: waited.so_far });
            }
            drop(state);
            self.back.notify_waiters();
        }
    }

    /// An attempt has failed that began, or brought its last byte, `since` then; bodies brought the last byte
    /// at `received`. How long the origin has been waited for if it is away; `None` where the failure is the
    /// attempt's own.
    pub(crate) fn on_failure(
        &self,
        error: &Error,
        since: Instant,
        received: Option<Instant>,
    ) -> Option<Waited> {
        let progressed = self.answered().max(received);
        let mut state = self.lock();
        let waited = state.outage.on_failure(since, progressed, now())?;
        state.why = Some(error.clone_without_source());
        self.is_away.store(true, Ordering::Release);
        let is_news = waited.so_far >= NEWS_AFTER && !state.is_news;
        state.is_news |= is_news;
        if is_news {
            let (origin, why, timeout) = (self.host, error.cause().to_owned(), waited.timeout);
            self.tell(OutageNews::Away { origin, why, timeout });
        }
        drop(state);
        if waited.is_over() {
            self.back.notify_waiters();
        }
        Some(waited)
    }

    /// A request that left at `sent` is still waited for; bodies brought the last byte at `received`. Until
    /// when it may wait if the origin is silent to all; `None` where it serves others.
    pub(crate) fn on_silence(&self, sent: Instant, received: Option<Instant>) -> Option<Instant> {
        let progressed = self.answered().max(received);
        let mut state = self.lock();
        let (until, is_new) = state.outage.on_silence(sent, progressed, now())?;
        if is_new {
            let why = format!("no byte came for {} s", SILENCE.as_secs());
            state.why = Some(Error::new(ErrorKind::Timeout, why.clone()));
            state.is_news = true;
            self.is_away.store(true, Ordering::Release);
            if let Some(waited) = state.outage.waited(now()) {
                self.tell(OutageNews::Away { origin: self.host, why, timeout: waited.timeout });
            }
        }
        Some(until)
    }

    /// When it answered last.
    fn answered(&self) -> Option<Instant> {
        let answered_ns = self.answered_ns.load(Ordering::Relaxed);
        (answered_ns > 0).then(|| self.born + Duration::from_nanos(answered_ns))
    }

    /// Whether an origin that is away is waited for at all.
    pub(crate) fn waits_for_outages(&self) -> bool {
        self.waits_for_outages
    }

    /// How long the origin has been waited for, and why; `None` while it is there.
    pub(crate) fn outage(&self) -> Option<(Waited, String)> {
        if !self.is_away.load(Ordering::Acquire) {
            return None;
        }
        let state = self.lock();
        let waited = state.outage.waited(now())?;
        Some((waited, state.why.as_ref().map_or_else(String::new, |why| why.cause().to_owned())))
    }

    fn tell(&self, news: OutageNews) {
        if let Some(newsroom) = self.newsroom.get() {
            // Its thread ends with the client.
            let _ = newsroom.send(news);
        }
    }

    fn given_up(&self, waited: Waited) -> Failure {
        let why = self.lock().why.as_ref().map(Error::clone_without_source);
        let why = why.unwrap_or_else(|| Error::new(ErrorKind::Network, "the origin is away"));
        Failure::outage(why, waited.so_far)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a failed attempt is followed by.
pub(crate) enum Ruling {
    /// It counts for what was asked for, as that fault.
    Own(Fault),
    /// The origin is away: the next request waits until it is back.
    Outage,
    /// It was away for too long.
    GiveUp(Waited),
}

impl Gate {
    /// Carries an exchange. `since` tells when it last got on: when its request was sent, or the origin took
    /// some of its body. An origin that stays silent is reported to the other requests, and the exchange ends
    /// with the outage.
    pub(crate) async fn carry<T>(
        &self,
        since: impl Fn() -> Instant,
        exchange: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        let mut exchange = std::pin::pin!(exchange);
        let mut until = None;
        loop {
            // A body may have gone on since the last look.
            let after = since() + SILENCE;
            let look = if after > now() { after } else { now() + SILENCE };
            let wake = until.map_or(look, |until| look.min(until));
            if let Ok(done) = tokio::time::timeout_at(wake.into(), &mut exchange).await {
                return done;
            }
            let since = since();
            until = match now().saturating_duration_since(since) < SILENCE {
                true => None,
                false => self.presence.on_silence(since, self.progressed()),
            };
            if until.is_some_and(|until| now() >= until) {
                return Err(Failure::transient(broke(silence())));
            }
        }
    }

    /// When a body brought bytes, or some of one were taken, last.
    fn progressed(&self) -> Option<Instant> {
        self.cells.iter().filter_map(Cell::progressed).max()
    }

    /// An attempt has failed that may be tried again.
    pub(crate) fn rule(&self, class: Class, failure: &Failure) -> Ruling {
        if failure.fault == Fault::Unavailable {
            self.counts.on_throttled();
        }
        let progressed = self.progressed();
        let waited = match (failure.fault, failure.since) {
            (Fault::Transient | Fault::Unreached | Fault::Unavailable, Some(since)) => {
                self.presence.on_failure(&failure.error, since, progressed)
            }
            _ => None,
        };
        match (waited, failure.fault) {
            (Some(waited), _) if waited.is_over() => Ruling::GiveUp(waited),
            (Some(_), _) => Ruling::Outage,
            // Whoever waits for no outage bounds this as all else.
            (None, Fault::Unreached) if !self.presence.waits_for_outages() => Ruling::Own(Fault::Transient),
            (None, Fault::Unavailable) => {
                if let Some(sent) = failure.since {
                    self.slow_down(class, sent);
                }
                Ruling::Own(Fault::Throttled)
            }
            // Whatever else waits would meet it too, and need not do so one by one.
            (None, Fault::Final) => {
                self.presence.on_progress();
                Ruling::Own(Fault::Final)
            }
            (None, fault) => Ruling::Own(fault),
        }
    }
}
