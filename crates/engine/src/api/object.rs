//! One object's requests: the head of a GET is rendered and signed once and serves every range for a minute.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use flatout_wire::endpoint::Endpoint;
use flatout_wire::head::Head;
use flatout_wire::location::{Location, LocationError};
use flatout_wire::range::{Span, http_range};

use crate::api::account::{Account, Dialect, Errand, Pen, Target};
use crate::base::error::Error;
use crate::base::time::unix_seconds;

/// S3 and OSS accept a signature for 15 minutes; a fresh one each minute leaves room for clocks that disagree.
const SIGNED_FOR_S: u64 = 60;

/// The requests for one object.
pub(crate) struct ObjectRequests {
    account: Arc<Account>,
    /// Asks for the whole, and for its checksum with it.
    whole: bool,
    version_id: Option<Arc<str>>,
    state: Mutex<State>,
}

struct State {
    location: Location,
    /// What was asked for first, where a redirect led elsewhere.
    original: Option<Location>,
    rendered: Option<Rendered>,
}

/// A GET without range and condition, which are not signed: S3 needs `host` and `x-amz-*` only, OSS `x-oss-*`.
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
        let state = Mutex::new(State { location, original: None, rendered: None });
        ObjectRequests { account, whole: false, version_id: None, state }
    }

    /// Requests for one version of the object.
    pub(crate) fn of_version(mut self, version_id: Option<Arc<str>>) -> ObjectRequests {
        self.version_id = version_id;
        self
    }

    /// Asks for the object by one plain GET: the answer states the checksum, and no HEAD is needed.
    pub(crate) fn ask_for_the_whole(&mut self) {
        self.whole = true;
    }

    pub(crate) fn asks_for_the_whole(&self) -> bool {
        self.whole
    }

    /// The bytes of a GET and where to send them. `if_match` pins the version.
    pub(crate) async fn get(&self, asked: &Asked, if_match: Option<&str>) -> Result<Outgoing, Error> {
        let pen = self.account.pen(self.dialect()).await?;
        let rendered = self.rendered(&pen)?;
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

    /// The HEAD that tells the object's checksum; only S3 does not state it with the bytes, or never.
    pub(crate) fn head(&self) -> Option<Errand> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.location {
            Location::S3 { .. } => Some(Errand::Head(self.target(&state))),
            Location::Oss { .. } | Location::Http { .. } => None,
        }
    }

    /// Learns from a refusal where the bucket lies; whether asking again goes there.
    pub(crate) fn learn(&self, head: &mut Head, body: &[u8]) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = self.account.learn(&Errand::Get(self.target(&state)), head, body);
        if moved {
            state.rendered = None;
        }
        moved
    }

    /// Follows a redirect of a plain server, credentials staying behind when the host changes; `false` for buckets,
    /// whose redirects name another region and need another signature.
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

    fn target(&self, state: &State) -> Target {
        Target { location: state.location.clone(), version_id: self.version_id.clone() }
    }

    fn rendered(&self, pen: &Pen) -> Result<Rendered, Error> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |rendered: &&Rendered| {
            rendered.keys == pen.number() && unix_seconds().abs_diff(rendered.made) < SIGNED_FOR_S
        };
        if let Some(rendered) = state.rendered.as_ref().filter(fresh) {
            return Ok(rendered.clone());
        }
        let target = self.target(&state);
        let errand = if self.whole { Errand::Whole(target) } else { Errand::Get(target) };
        let request = self.account.request(&errand, pen)?;
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
        Ok(rendered)
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
