//! The floor: what plain loops around `recv(2)` cost for the same ranges into the same kind of landing.

mod epoll;
pub mod many;
mod secure;
mod sink;
mod threads;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flatout_settings::{format_size, parse_size};
use flatout_wire::head::{self, Body, Head};
use flatout_wire::range::http_range;
use flatout_wire::request::{Method, Request};
use serde::{Deserialize, Serialize};

use crate::bench::run::PartTiming;
pub use secure::FloorTls;
pub use sink::FloorSink;

/// One way to receive with plain calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloorShape {
    /// One epoll thread over all connections, instead of a blocking thread for each.
    pub epoll: bool,
    /// tokio-rustls in place of the plain call.
    pub tls: bool,
    pub connections: u32,
    /// The most that one call receives.
    pub receive_bytes: usize,
}

/// Beyond these a plain loop is no floor any more.
const MOST_CONNECTIONS: u32 = 256;
const RECEIVE_BYTES: RangeInclusive<usize> = HEAD_PIECE_BYTES..=64 << 20;

const SMALL: usize = 256 << 10;
const LARGE: usize = 1 << 20;

/// The shapes for an origin; the best counts. Over TLS only threads: nobody waits in epoll for tokio.
pub fn shapes(tls: bool) -> Vec<FloorShape> {
    let fitting = SHAPES.iter().filter(|shape| !(tls && shape.epoll));
    fitting.map(|shape| FloorShape { tls, ..*shape }).collect()
}

const SHAPES: [FloorShape; 10] = [
    FloorShape::threads(1, SMALL),
    FloorShape::threads(2, SMALL),
    FloorShape::threads(4, SMALL),
    FloorShape::threads(8, SMALL),
    FloorShape::threads(1, LARGE),
    FloorShape::threads(2, LARGE),
    FloorShape::threads(4, LARGE),
    FloorShape::threads(8, LARGE),
    FloorShape::epoll(4, SMALL),
    FloorShape::epoll(4, LARGE),
];

/// For many objects.
pub const SHAPES_OF_MANY: [FloorShape; 4] = [
    FloorShape::threads(1, SMALL),
    FloorShape::threads(2, SMALL),
    FloorShape::threads(4, SMALL),
    FloorShape::threads(8, SMALL),
];

impl FloorShape {
    const fn threads(connections: u32, receive_bytes: usize) -> FloorShape {
        FloorShape { epoll: false, tls: false, connections, receive_bytes }
    }

    const fn epoll(connections: u32, receive_bytes: usize) -> FloorShape {
        FloorShape { epoll: true, tls: false, connections, receive_bytes }
    }

    /// Threads that receive.
    pub fn shards(self) -> u32 {
        if self.epoll { 1 } else { self.connections }
    }
}

/// As a script names one: `recv:4:256KiB`, `epoll:4:1MiB`. Whether it is over TLS, the URL says.
impl FromStr for FloorShape {
    type Err = String;

    fn from_str(text: &str) -> Result<FloorShape, String> {
        let wrong = || {
            format!(
                "write recv:N:SIZE or epoll:N:SIZE, as in recv:4:256KiB, with up to {MOST_CONNECTIONS} connections \
                 and {} to {} a call",
                format_size(*RECEIVE_BYTES.start() as u64),
                format_size(*RECEIVE_BYTES.end() as u64),
            )
        };
        let fields: Vec<&str> = text.split(':').collect();
        let [kind, connections, size] = fields[..] else { return Err(wrong()) };
        let connections = connections.parse().ok().filter(|count| (1..=MOST_CONNECTIONS).contains(count));
        let size = parse_size(size).ok().and_then(|bytes| usize::try_from(bytes).ok());
        let size = size.filter(|bytes| RECEIVE_BYTES.contains(bytes));
        match (kind, connections, size) {
            ("recv", Some(connections), Some(size)) => Ok(FloorShape::threads(connections, size)),
            ("epoll", Some(connections), Some(size)) => Ok(FloorShape::epoll(connections, size)),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for FloorShape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match (self.tls, self.epoll) {
            (true, _) => "tokio-rustls",
            (false, true) => "epoll",
            (false, false) => "recv",
        };
        let size = format_size(self.receive_bytes as u64);
        write!(f, "{kind} {} x {size}", self.connections)
    }
}

/// What is fetched.
pub struct FloorJob {
    /// Signed if need be; one signature serves all ranges.
    pub request: Request,
    /// For an https origin.
    pub tls: Option<FloorTls>,
    pub etag: Option<String>,
    pub address: SocketAddr,
    pub bytes: u64,
    pub part_bytes: u64,
    /// When the clock started.
    pub start: Instant,
    /// Bytes landed so far, for the sampler.
    pub landed_bytes: Arc<AtomicU64>,
}

/// Fetches everything once. Rows come in no order.
pub fn fetch(job: &FloorJob, shape: FloorShape, sink: &mut FloorSink) -> io::Result<Vec<PartTiming>> {
    match (shape.tls, shape.epoll) {
        (true, _) => secure::fetch(job, shape, sink),
        (false, true) => epoll::fetch(job, shape, sink),
        (false, false) => threads::fetch(job, shape, sink),
    }
}

/// The most that is received at once while the head is awaited: the little of the body that comes along is
/// copied.
const HEAD_PIECE_BYTES: usize = 4 << 10;

impl FloorJob {
    fn connect(&self) -> io::Result<TcpStream> {
        let socket = TcpStream::connect_timeout(&self.address, Duration::from_secs(5))?;
        socket.set_nodelay(true)?;
        Ok(socket)
    }

    fn ask(&self, mut socket: &TcpStream, range: &Range<u64>) -> io::Result<()> {
        socket.write_all(&self.request(range))
    }

    /// The bytes of a GET.
    fn request(&self, range: &Range<u64>) -> Vec<u8> {
        let mut request = self.request.clone();
        request.set("range", http_range(range));
        if let Some(etag) = &self.etag {
            request.set("if-match", etag.as_str());
        }
        let mut bytes = Vec::new();
        request.write_head(&mut bytes);
        bytes
    }

    /// The head in `buffer` and its length, once it is whole; an answer without exactly the range is an
    /// error.
    fn head(&self, buffer: &[u8], range: &Range<u64>) -> io::Result<Option<(Head, usize)>> {
        let Some((head, length)) = head::parse(buffer, Method::Get).map_err(io::Error::other)? else {
            return Ok(None);
        };
        let whole = head.status == 200 && *range == (0..self.bytes);
        let exact = matches!(head.body, Body::Length(bytes) if bytes == range.end - range.start);
        if (head.status == 206 || whole) && exact {
            return Ok(Some((head, length)));
        }
        Err(io::Error::other(format!(
            "the floor needs plain ranges, and the origin answered {}",
            head.status
        )))
    }

    fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    fn count(&self, bytes: usize) {
        self.landed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

fn closed_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the origin closed the connection")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_as_scripts_name_them() {
        let check =
            |text: &str, expected: Option<FloorShape>| assert_eq!(text.parse().ok(), expected, "{text}");
        check("recv:4:256KiB", Some(FloorShape::threads(4, SMALL)));
        check("epoll:256:1MiB", Some(FloorShape::epoll(256, LARGE)));
        for wrong in [
            "",
            "recv",
            "recv:4",
            "recv:0:1MiB",
            "recv:257:1MiB",
            "recv:4:1KiB",
            "recv:4:1GiB",
            "poll:4:1MiB",
        ] {
            check(wrong, None);
        }
    }
}
