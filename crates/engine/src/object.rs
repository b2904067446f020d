//! One object's requests: the head of a GET is rendered and signed once and serves every range for a minute.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use flatout_wire::endpoint::Endpoint;
use flatout_wire::location::{Location, LocationError};
use flatout_wire::range::{Span, http_range};
use flatout_wire::request::{self, Request};
use flatout_wire::s3::S3;
use flatout_wire::sign::{Credentials, Signer};

use crate::client::Core;
use crate::credentials::{Held, Keys, Provider};
use crate::error::Error;
use crate::refusal::Doubt;

/// S3 accepts a signature for 15 minutes; a fresh one each minute leaves room for clocks that disagree.
const SIGNED_FOR_S: u64 = 60;

/// What S3 calls are made with.
pub(crate) struct Account {
    pub(crate) s3: S3,
    pub(crate) aws: Arc<Keys<Signer>>,
    pub(crate) oss: Arc<Keys<Credentials>>,
}

/// By whose rules a request is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Not at all.
    Plain,
    S3,
}

/// What one request is signed with; kept until its answer is judged.
#[derive(Clone)]
pub(crate) enum Pen {
    Plain,
    S3(Arc<Held<Signer>>),
}

impl Account {
    pub(crate) fn new(s3: S3, aws: Arc<dyn Provider>, oss: Arc<dyn Provider>) -> Account {
        let region = s3.region.clone();
        let aws = Keys::new(aws, move |credentials| Signer::new(credentials, &region));
        Account { s3, aws, oss: Keys::new(oss, |credentials| credentials) }
    }

    /// The keys of now; waits while there are none yet.
    pub(crate) async fn pen(&self, core: &Arc<Core>, dialect: Dialect) -> Result<Pen, Error> {
        match dialect {
            Dialect::Plain => Ok(Pen::Plain),
            Dialect::S3 => Ok(Pen::S3(self.aws.current(core).await?)),
        }
    }

    /// After a refusal that casts `doubt` on the keys: whether there are new ones, so that asking again may help.
    /// The pen is then that of now, and knows why where there are none.
    pub(crate) async fn renew(&self, core: &Arc<Core>, pen: &mut Pen, doubt: Doubt) -> bool {
        let Pen::S3(held) = pen else { return false };
        let renewed = doubt != Doubt::None && self.aws.renew(core, held.number, doubt == Doubt::Sure).await;
        if doubt != Doubt::None
            && let Ok(now) = self.aws.current(core).await
        {
            *held = now;
        }
        renewed
    }
}

impl Dialect {
    pub(crate) fn of(location: &Location) -> Dialect {
        match location {
            Location::S3 { .. } => Dialect::S3,
            Location::Http { .. } => Dialect::Plain,
        }
    }
}

impl Pen {
    pub(crate) fn sign(&self, request: &mut Request) {
        if let Pen::S3(held) = self
            && let Some(signer) = &held.signer
        {
            signer.sign(request, unix_seconds());
        }
    }

    /// Why the request is not signed.
    pub(crate) fn note(&self) -> Option<&str> {
        match self {
            Pen::Plain => None,
            Pen::S3(held) => held.note.as_deref(),
        }
    }

    /// Another number is another pair of keys.
    fn number(&self) -> u64 {
        match self {
            Pen::Plain => 0,
            Pen::S3(held) => held.number,
        }
    }
}

/// The requests for one object.
pub(crate) struct ObjectRequests {
    account: Arc<Account>,
    state: Mutex<State>,
}

struct State {
    location: Location,
    /// What was asked for first, where a redirect led elsewhere.
    original: Option<Location>,
    rendered: Option<Rendered>,
}

/// A GET without range and condition, which are not signed: SigV4 needs `host` and `x-amz-*` only.
#[derive(Clone)]
struct Rendered {
    endpoint: Endpoint,
    head: Arc<[u8]>,
    /// In seconds since 1970: a clock that goes on while the machine sleeps, as the origin's does.
    made: u64,
    keys: u64,
}

/// A GET as it goes out.
pub(crate) struct Outgoing {
    pub(crate) endpoint: Endpoint,
    pub(crate) head: Vec<u8>,
    pub(crate) pen: Pen,
}

impl ObjectRequests {
    pub(crate) fn new(account: Arc<Account>, location: Location) -> ObjectRequests {
        ObjectRequests { account, state: Mutex::new(State { location, original: None, rendered: None }) }
    }

    /// The bytes of a GET and where to send them. `if_match` pins the version.
    pub(crate) async fn get(
        &self,
        core: &Arc<Core>,
        asked: &Asked,
        if_match: Option<&str>,
    ) -> Result<Outgoing, Error> {
        let pen = self.account.pen(core, self.dialect()).await?;
        let rendered = self.rendered(&pen);
        let mut bytes = Vec::with_capacity(rendered.head.len() + 128);
        bytes.extend_from_slice(&rendered.head);
        if let Some(range) = asked.header() {
            bytes.extend_from_slice(format!("range: {range}\r\n").as_bytes());
        }
        if let Some(etag) = if_match {
            bytes.extend_from_slice(format!("if-match: {etag}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        Ok(Outgoing { endpoint: rendered.endpoint, head: bytes, pen })
    }

    pub(crate) fn dialect(&self) -> Dialect {
        Dialect::of(&self.state.lock().unwrap_or_else(PoisonError::into_inner).location)
    }

    /// A HEAD that asks for checksums; only S3 has one that is worth asking for.
    pub(crate) fn head(&self) -> Option<Request> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.location {
            Location::S3 { bucket, key } => Some(self.account.s3.head_object(bucket, key)),
            Location::Http { .. } => None,
        }
    }

    /// Follows a redirect of a plain server, credentials staying behind when the host changes; `false` for S3, whose
    /// redirects name another region and need another signature.
    pub(crate) fn redirect(&self, target: &str) -> Result<bool, LocationError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Location::Http { url } = &state.location else { return Ok(false) };
        let url = url.follow(target)?;
        let before = std::mem::replace(&mut state.location, Location::Http { url });
        state.original.get_or_insert(before);
        state.rendered = None;
        Ok(true)
    }

    /// Goes back to where the redirects began: what they led to may have expired. `false` when there were none.
    pub(crate) fn go_back(&self) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(original) = state.original.take() else { return false };
        (state.location, state.rendered) = (original, None);
        true
    }

    fn rendered(&self, pen: &Pen) -> Rendered {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |rendered: &&Rendered| {
            rendered.keys == pen.number() && unix_seconds().abs_diff(rendered.made) < SIGNED_FOR_S
        };
        if let Some(rendered) = state.rendered.as_ref().filter(fresh) {
            return rendered.clone();
        }
        let mut request = match &state.location {
            Location::S3 { bucket, key } => self.account.s3.get_object(bucket, key),
            Location::Http { url } => request::get_url(url),
        };
        pen.sign(&mut request);
        let mut head = Vec::new();
        request.write_head(&mut head);
        head.truncate(head.len() - b"\r\n".len());
        let rendered = Rendered {
            endpoint: request.endpoint,
            head: head.into(),
            made: unix_seconds(),
            keys: pen.number(),
        };
        state.rendered = Some(rendered.clone());
        rendered
    }
}

/// What one request asks of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The whole object in one answer.
    Whole,
    /// A range of it.
    Range(Range<u64>),
    /// Its last byte: how a read of the end learns where the end is.
    LastByte,
}

impl Asked {
    fn header(&self) -> Option<String> {
        match self {
            Asked::Whole => None,
            Asked::Range(range) => Some(http_range(range)),
            Asked::LastByte => Span::Last(1).http(),
        }
    }
}

/// The wall clock, for signatures.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
