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

/// S3 accepts a signature for 15 minutes; a fresh one each minute leaves room for clocks that disagree.
const SIGNED_FOR_S: u64 = 60;

/// What S3 calls are made with.
pub(crate) struct Account {
    pub(crate) s3: S3,
    signer: Option<Signer>,
}

impl Account {
    pub(crate) fn new(s3: S3, credentials: Option<Credentials>) -> Account {
        let signer = credentials.map(|credentials| Signer::new(credentials, &s3.region));
        Account { s3, signer }
    }

    pub(crate) fn signed(&self, mut request: Request) -> Request {
        if let Some(signer) = &self.signer {
            signer.sign(&mut request, unix_seconds());
        }
        request
    }
}

/// The requests for one object.
pub(crate) struct ObjectRequests {
    account: Arc<Account>,
    /// Asks for the whole, and for its checksum with it.
    whole: bool,
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
}

impl ObjectRequests {
    pub(crate) fn new(account: Arc<Account>, location: Location) -> ObjectRequests {
        let state = Mutex::new(State { location, original: None, rendered: None });
        ObjectRequests { account, whole: false, state }
    }

    /// The same for an object that one plain GET is to bring: the answer states the checksum, and no HEAD is needed.
    #[must_use]
    pub(crate) fn asking_for_the_whole(mut self) -> ObjectRequests {
        self.whole = true;
        self
    }

    pub(crate) fn asks_for_the_whole(&self) -> bool {
        self.whole
    }

    /// The bytes of a GET and where to send them. `if_match` pins the version.
    pub(crate) fn get(&self, asked: &Asked, if_match: Option<&str>) -> (Endpoint, Vec<u8>) {
        let rendered = self.rendered();
        let mut bytes = Vec::with_capacity(rendered.head.len() + 128);
        bytes.extend_from_slice(&rendered.head);
        if let Some(range) = asked.header() {
            bytes.extend_from_slice(format!("range: {range}\r\n").as_bytes());
        }
        if let Some(etag) = if_match {
            bytes.extend_from_slice(format!("if-match: {etag}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        (rendered.endpoint, bytes)
    }

    /// A HEAD that asks for checksums; only S3 has one that is worth asking for.
    pub(crate) fn head(&self) -> Option<Request> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.location {
            Location::S3 { bucket, key } => {
                Some(self.account.signed(self.account.s3.head_object(bucket, key)))
            }
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

    fn rendered(&self) -> Rendered {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rendered) =
            state.rendered.as_ref().filter(|rendered| unix_seconds().abs_diff(rendered.made) < SIGNED_FOR_S)
        {
            return rendered.clone();
        }
        let request = match &state.location {
            Location::S3 { bucket, key } => {
                let mut request = self.account.s3.get_object(bucket, key);
                if self.whole {
                    request.set("x-amz-checksum-mode", "ENABLED");
                }
                self.account.signed(request)
            }
            Location::Http { url } => request::get_url(url),
        };
        let mut head = Vec::new();
        request.write_head(&mut head);
        head.truncate(head.len() - b"\r\n".len());
        let rendered = Rendered { endpoint: request.endpoint, head: head.into(), made: unix_seconds() };
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
