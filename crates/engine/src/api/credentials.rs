//! Keys: who is asked for them, how long they are kept, and who waits while they are fetched.
//!
//! Keys are asked for before the first signed request and again ahead of their end, while the old ones still
//! work. A provider runs on a thread of its own, since it may read files, run processes and wait for a
//! service: no shard waits for it but by a future, so that a shard can carry the very calls that the provider
//! makes.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use flatout_wire::request::Request;
use flatout_wire::sign::Credentials;
use tokio::sync::Notify;

use crate::api::service::{Patience, ServiceClient, ServiceReply, ServiceRequest};
use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{Hint, setting, setting_to, text};
use crate::base::time::unix_seconds;
use flatout_policy::retry::Dice;

/// Keys are renewed this long before they end, or at half of a shorter life: as the SDKs do, and long enough
/// for an STS that is down to come back.
const AHEAD_S: u64 = 300;
/// After a renewal that failed while the old keys still work.
const AGAIN_S: u64 = 30;
/// Nobody had keys: instance metadata that is silent costs its second once in this time, and in the
/// background.
const NOTHING_S: u64 = 60;
/// A provider that failed is not asked again by every part that waits for it.
const FAILED_S: u64 = 10;
/// Keys younger than this are not renewed on a mere suspicion.
const SUSPECT_S: u64 = 60;

/// A source of keys. `Debug` must show no secret.
pub trait Provider: Send + Sync + fmt::Debug {
    /// The keys of now. Called on a thread of its own, never twice at once by one client; may block.
    ///
    /// # Errors
    /// Each provider that was tried, and why it had nothing.
    fn provide(&self, web: &Web) -> Result<Grant, Refused>;
}

/// Keys, and until when they work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The keys.
    pub credentials: Credentials,
    /// When they end, in seconds since 1970; `None` for keys that stay.
    pub expires: Option<u64>,
    /// Who gave them, as a user knows it: `environment`, `profile dev`.
    pub provider: String,
}

/// Why there are no keys: every provider that was tried, in order; none where [`Anonymous`] was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused(pub Vec<Tried>);

/// A provider that had no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Its name, as a user knows it: `environment`, `profile dev`.
    pub provider: String,
    /// Why it had nothing, and what to do about it; no secret.
    pub why: String,
    /// It is configured and failed: going on without keys, or with those of another, would hide that.
    pub failed: bool,
}

/// Keys that stay as they are.
#[derive(Clone, Debug)]
pub struct Fixed(pub Credentials);

/// No keys: requests leave unsigned.
#[derive(Clone, Copy, Debug)]
pub struct Anonymous;

/// What providers ask their clouds' services with: calls that the client's own shards carry.
pub struct Web(Arc<dyn ServiceClient>);

impl Web {
    /// Sends a request and waits for its whole answer, whatever its status.
    ///
    /// # Errors
    /// The network's; [`ErrorKind::Cancelled`] once the client is closed.
    pub fn ask(
        &self,
        request: Request,
        body: impl Into<Bytes>,
        patience: Patience,
    ) -> Result<ServiceReply, Error> {
        self.0.ask(ServiceRequest { request, body: body.into(), patience })
    }
}

impl Provider for Fixed {
    fn provide(&self, _: &Web) -> Result<Grant, Refused> {
        Ok(Grant { credentials: self.0.clone(), expires: None, provider: "fixed".into() })
    }
}

impl Provider for Anonymous {
    fn provide(&self, _: &Web) -> Result<Grant, Refused> {
        Err(Refused::default())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("no-sign-request is on");
        }
        for (at, tried) in self.0.iter().enumerate() {
            let separator = if at > 0 { "; " } else { "" };
            match tried.provider.is_empty() {
                true => write!(f, "{separator}{}", tried.why)?,
                false => write!(f, "{separator}{}: {}", tried.provider, tried.why)?,
            }
        }
        Ok(())
    }
}

/// The keys of one client for one dialect, as the signer `S` of that dialect.
pub(crate) struct Keys<S> {
    provider: Arc<dyn Provider>,
    web: Web,
    signer: Box<dyn Fn(Credentials) -> S + Send + Sync>,
    state: Mutex<State<S>>,
    answered: Notify,
}

/// What a provider answered last.
pub(crate) struct KeySet<S> {
    /// Counts the keys: another number is another pair.
    pub(crate) number: u64,
    /// `None` for requests that leave unsigned.
    pub(crate) signer: Option<S>,
    grant: Option<Grant>,
    /// What the user should know of these keys when the origin refuses: why there are none, or no newer ones.
    pub(crate) note: Option<Hint>,
    since: u64,
    /// An origin has let a request in that was signed with them.
    was_accepted: AtomicBool,
}

struct State<S> {
    held: Option<Arc<KeySet<S>>>,
    /// Why the last question brought no keys, where that is a failure.
    failure: Option<Refused>,
    /// When to ask again, in seconds since 1970.
    ask_at: u64,
    asking: bool,
    /// The origin refused the keys that are held.
    spent: bool,
    renew_at: u64,
}

/// What to do for a request that wants to be signed.
enum Next<S> {
    Use(Arc<KeySet<S>>),
    UseAndAsk(Arc<KeySet<S>>),
    Wait,
    Fail(Error),
}

impl<S: Send + Sync + 'static> Keys<S> {
    pub(crate) fn new(
        provider: Arc<dyn Provider>,
        ask: Arc<dyn ServiceClient>,
        signer: impl Fn(Credentials) -> S + Send + Sync + 'static,
    ) -> Arc<Keys<S>> {
        Arc::new(Keys {
            provider,
            web: Web(ask),
            signer: Box::new(signer),
            state: Mutex::new(State::new()),
            answered: Notify::new(),
        })
    }

    /// What to sign with now; waits only where nothing usable is there.
    pub(crate) async fn current(self: &Arc<Keys<S>>) -> Result<Arc<KeySet<S>>, Error> {
        loop {
            // Made before the look at the state: an answer that comes in between is not missed.
            let answered = self.answered.notified();
            match self.look() {
                Next::Use(held) | Next::UseAndAsk(held) => return Ok(held),
                Next::Fail(error) => return Err(error),
                Next::Wait => answered.await,
            }
        }
    }

    /// After the origin has refused the keys of that number: whether there are others now. `sure` says that
    /// the origin named the keys' age as the reason.
    pub(crate) async fn renew(self: &Arc<Keys<S>>, number: u64, sure: bool) -> bool {
        let now = unix_seconds();
        {
            let mut state = self.lock();
            let Some(held) = state.held.clone().filter(|held| held.grant.is_some()) else { return false };
            if held.number != number {
                return true;
            }
            // Whoever comes while the question is out waits for its answer; whoever comes later has it. Keys
            // that worked and are too old now are renewed however short they lived; new ones that never did
            // are no reason to ask.
            let worked = sure && held.was_accepted.load(Ordering::Relaxed);
            let too_soon = now < state.renew_at && !worked;
            if !state.spent && (too_soon || !(sure || held.is_suspect(now))) {
                return false;
            }
            state.renew_at = now + FAILED_S;
            state.spent = true;
        }
        self.current().await.is_ok_and(|held| held.number != number)
    }

    /// What the provider says now, past what is kept; kept in its place, so that requests use what was told.
    /// Blocks.
    pub(crate) fn ask(self: &Arc<Keys<S>>) -> Result<Grant, Refused> {
        self.lock().asking = true;
        Asking { keys: self.clone(), answered: false }.ask()
    }

    fn look(self: &Arc<Keys<S>>) -> Next<S> {
        let mut state = self.lock();
        let next = state.next(unix_seconds());
        if matches!(next, Next::UseAndAsk(_) | Next::Wait) && !state.asking {
            state.asking = true;
            drop(state);
            self.start_asking();
        }
        next
    }

    fn start_asking(self: &Arc<Keys<S>>) {
        let asking = Asking { keys: self.clone(), answered: false };
        // A thread that cannot start drops `asking`, and that is an answer.
        let _ = std::thread::Builder::new().name("flatout-keys".into()).spawn(move || drop(asking.ask()));
    }

    fn answer(&self, answer: Result<Grant, Refused>) {
        let seed = u64::from(std::process::id()) ^ unix_seconds();
        self.lock().take(answer, unix_seconds(), Dice::new(seed).roll(), &*self.signer);
        self.answered.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question on its way; dropped without an answer it answers all the same, since others wait.
struct Asking<S: Send + Sync + 'static> {
    keys: Arc<Keys<S>>,
    answered: bool,
}

impl<S: Send + Sync + 'static> Asking<S> {
    fn ask(mut self) -> Result<Grant, Refused> {
        let answer = self.keys.provider.provide(&self.keys.web);
        self.answered = true;
        self.keys.answer(answer.clone());
        answer
    }
}

impl<S: Send + Sync + 'static> Drop for Asking<S> {
    fn drop(&mut self) {
        if !self.answered {
            let why = "the thread that asks for keys could not start, or panicked".to_owned();
            self.keys.answer(Err(Refused(vec![Tried { provider: String::new(), why, failed: true }])));
        }
    }
}

impl<S> KeySet<S> {
    /// The keys themselves.
    pub(crate) fn credentials(&self) -> Option<&Credentials> {
        self.grant.as_ref().map(|grant| &grant.credentials)
    }

    /// An origin has let a request in that was signed with these.
    pub(crate) fn on_accepted(&self) {
        // Most often it is known: a look is cheaper than a write that all shards see.
        if !self.was_accepted.load(Ordering::Relaxed) {
            self.was_accepted.store(true, Ordering::Relaxed);
        }
    }

    /// Keys that may have ended without having said when.
    fn is_suspect(&self, now: u64) -> bool {
        let temporary = self
            .grant
            .as_ref()
            .is_some_and(|grant| grant.expires.is_some() || grant.credentials.session_token.is_some());
        temporary && now >= self.since + SUSPECT_S
    }
}

impl<S> State<S> {
    fn new() -> State<S> {
        State { held: None, failure: None, ask_at: 0, asking: false, spent: false, renew_at: 0 }
    }

    fn next(&self, now: u64) -> Next<S> {
        let Some(held) = self.held.as_ref().filter(|_| !self.spent) else {
            return match &self.failure {
                Some(failure) if now < self.ask_at && !self.spent => Next::Fail(no_keys(failure)),
                _ => Next::Wait,
            };
        };
        let ended = held.grant.as_ref().and_then(|grant| grant.expires).is_some_and(|end| end <= now);
        match (&self.failure, now < self.ask_at) {
            (Some(failure), true) if ended => Next::Fail(no_keys(failure)),
            _ if ended => Next::Wait,
            (_, true) => Next::Use(held.clone()),
            (_, false) => Next::UseAndAsk(held.clone()),
        }
    }

    fn take(
        &mut self,
        answer: Result<Grant, Refused>,
        now: u64,
        chance: f64,
        signer: &dyn Fn(Credentials) -> S,
    ) {
        (self.asking, self.spent) = (false, false);
        match answer.and_then(|grant| grant.in_time(now)) {
            Ok(grant) => {
                self.failure = None;
                self.ask_at = grant.expires.map_or(u64::MAX, |end| renewal(now, end, chance));
                self.hold(Some(grant), None, now, signer);
            }
            Err(refused) => self.take_refusal(refused, now, signer),
        }
    }

    fn take_refusal(&mut self, refused: Refused, now: u64, signer: &dyn Fn(Credentials) -> S) {
        if let Some(grant) = self.held.as_ref().and_then(|held| held.grant.clone()) {
            // Only noted while the old keys work: the error comes when they have ended.
            let note = format!("the keys could not be renewed: {refused}").into();
            self.hold(Some(grant), Some(note), now, signer);
            (self.failure, self.ask_at) = (Some(refused), now + AGAIN_S);
        } else if refused.0.iter().any(|tried| tried.failed) {
            (self.held, self.failure, self.ask_at) = (None, Some(refused), now + FAILED_S);
        } else {
            (self.failure, self.ask_at) = (None, now + NOTHING_S);
            self.hold(None, Some(unsigned(&refused)), now, signer);
        }
    }

    /// Keys that do not change keep their number: what was signed with them need not be signed again.
    fn hold(
        &mut self,
        grant: Option<Grant>,
        note: Option<Hint>,
        now: u64,
        signer: &dyn Fn(Credentials) -> S,
    ) {
        let before = self.held.as_deref();
        let number = before.map_or(0, |before| before.number);
        let same = before
            .is_some_and(|before| before.credentials() == grant.as_ref().map(|grant| &grant.credentials));
        let made = grant.as_ref().map(|grant| signer(grant.credentials.clone()));
        let number = if same { number } else { number + 1 };
        let since = before.filter(|_| same).map_or(now, |before| before.since);
        let was_accepted = AtomicBool::new(false);
        self.held = Some(Arc::new(KeySet { number, signer: made, grant, note, since, was_accepted }));
    }
}

impl Grant {
    fn in_time(self, now: u64) -> Result<Grant, Refused> {
        match self.expires {
            Some(end) if end <= now => {
                let why = format!(
                    "the keys that came had ended already, {} seconds ago; is this machine's clock right?",
                    now - end
                );
                Err(Refused(vec![Tried { provider: String::new(), why, failed: true }]))
            }
            _ => Ok(self),
        }
    }
}

/// When keys that end at `end` are asked for again: spread, so that the machines of a job do not all ask at
/// once.
fn renewal(now: u64, end: u64, chance: f64) -> u64 {
    let ahead_s = AHEAD_S.min((end - now) / 2);
    end - ahead_s + (ahead_s as f64 * chance * 0.2) as u64
}

/// What there is to know of a request without keys, should the origin refuse it.
fn unsigned(refused: &Refused) -> Hint {
    match refused.0.is_empty() {
        true => {
            let asked_for = setting_to("no-sign-request", "true");
            Hint::from([text("the request was not signed: "), asked_for, text(" is on")])
        }
        false => format!("the request was not signed: {refused}").into(),
    }
}

fn no_keys(refused: &Refused) -> Error {
    let (failed, passed): (Vec<_>, Vec<_>) = refused.0.iter().cloned().partition(|tried| tried.failed);
    let (failed, passed) = match failed.is_empty() {
        true => (passed, failed),
        false => (failed, passed),
    };
    let error = Error::new(ErrorKind::Denied, format!("there are no keys to sign with: {}", Refused(failed)));
    let passed = match passed.is_empty() {
        true => String::new(),
        false => format!("; tried before: {}", Refused(passed)),
    };
    let none = setting_to("no-sign-request", "true");
    error.with_hint([
        text("choose other keys with "),
        setting("profile"),
        text(", or none with "),
        none,
        text(passed),
    ])
}

#[cfg(test)]
#[path = "credentials_tests.rs"]
mod tests;
