//! The floor: what plain loops around `recv(2)` cost for the same ranges into the same kind of landing, and
//! plain loops around `send(2)` for the same parts.

mod epoll;
pub mod many;
mod secure;
mod shape;
mod sink;
mod threads;
pub mod upload;

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use flatout_wire::head::{self, Body, Head};
use flatout_wire::range::http_range;
use flatout_wire::request::{Method, Request};

use crate::bench::run::PartTiming;
pub use secure::FloorTls;
pub use shape::{FloorCall, FloorShape, SHAPES_OF_MANY, shapes_of_gets, shapes_of_puts};
pub use sink::FloorSink;

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
    match (shape.tls, shape.call) {
        (true, _) => secure::fetch(job, shape, sink),
        (false, FloorCall::Epoll) => epoll::fetch(job, shape, sink),
        (false, _) => threads::fetch(job, shape, sink),
    }
}

/// The most that is received at once while the head is awaited: the little of the body that comes along is
/// copied.
const HEAD_PIECE_BYTES: usize = 4 << 10;

impl FloorJob {
    fn connect(&self) -> io::Result<TcpStream> {
        connect(self.address)
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

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

fn closed_early() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the origin closed the connection")
}
