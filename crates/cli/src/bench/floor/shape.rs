//! The shapes of the floor: which call, over how many connections, how much by one call.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use flatout_settings::{format_size, parse_size};
use serde::{Deserialize, Serialize};

use super::HEAD_PIECE_BYTES;
use crate::bench::spec::Payload;

/// One way to receive or to send with plain calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloorShape {
    pub call: FloorCall,
    /// tokio-rustls in place of the plain call.
    pub tls: bool,
    pub connections: u32,
    /// The most that one call takes or gives.
    pub call_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FloorCall {
    /// A blocking thread for each connection.
    Recv,
    /// One thread that waits for all connections.
    Epoll,
    /// From memory, which a file is mapped to; a blocking thread for each connection.
    Send,
    /// From the file; a blocking thread for each connection.
    Sendfile,
}

/// Beyond these a plain loop is no floor any more.
const MOST_CONNECTIONS: u32 = 256;
const CALL_BYTES: RangeInclusive<usize> = HEAD_PIECE_BYTES..=64 << 20;

const SMALL: usize = 256 << 10;
const LARGE: usize = 1 << 20;

/// The shapes that fetch from an origin; the best counts. Over TLS only threads: nobody waits in epoll for
/// tokio.
pub fn shapes_of_gets(tls: bool) -> Vec<FloorShape> {
    let fitting = SHAPES.iter().filter(|shape| !(tls && shape.call == FloorCall::Epoll));
    fitting.map(|shape| FloorShape { tls, ..*shape }).collect()
}

/// The shapes that send this; the best counts. Only a file has `sendfile(2)`, and only a plain socket.
pub fn shapes_of_puts(payload: &Payload, tls: bool) -> Vec<FloorShape> {
    let has_file = !tls && matches!(payload, Payload::File(_));
    let calls = if has_file { &[FloorCall::Send, FloorCall::Sendfile][..] } else { &[FloorCall::Send] };
    let shapes = calls
        .iter()
        .flat_map(|call| [1, 2, 4, 8].map(|connections| FloorShape::new(*call, connections, LARGE)));
    shapes.map(|shape| FloorShape { tls, ..shape }).collect()
}

const SHAPES: [FloorShape; 10] = [
    FloorShape::new(FloorCall::Recv, 1, SMALL),
    FloorShape::new(FloorCall::Recv, 2, SMALL),
    FloorShape::new(FloorCall::Recv, 4, SMALL),
    FloorShape::new(FloorCall::Recv, 8, SMALL),
    FloorShape::new(FloorCall::Recv, 1, LARGE),
    FloorShape::new(FloorCall::Recv, 2, LARGE),
    FloorShape::new(FloorCall::Recv, 4, LARGE),
    FloorShape::new(FloorCall::Recv, 8, LARGE),
    FloorShape::new(FloorCall::Epoll, 4, SMALL),
    FloorShape::new(FloorCall::Epoll, 4, LARGE),
];

/// For many objects.
pub const SHAPES_OF_MANY: [FloorShape; 4] = [
    FloorShape::new(FloorCall::Recv, 1, SMALL),
    FloorShape::new(FloorCall::Recv, 2, SMALL),
    FloorShape::new(FloorCall::Recv, 4, SMALL),
    FloorShape::new(FloorCall::Recv, 8, SMALL),
];

impl FloorCall {
    const ALL: [FloorCall; 4] = [FloorCall::Recv, FloorCall::Epoll, FloorCall::Send, FloorCall::Sendfile];

    pub fn name(self) -> &'static str {
        match self {
            FloorCall::Recv => "recv",
            FloorCall::Epoll => "epoll",
            FloorCall::Send => "send",
            FloorCall::Sendfile => "sendfile",
        }
    }

    /// Whether it sends.
    pub fn is_of_puts(self) -> bool {
        matches!(self, FloorCall::Send | FloorCall::Sendfile)
    }
}

impl FloorShape {
    const fn new(call: FloorCall, connections: u32, call_bytes: usize) -> FloorShape {
        FloorShape { call, tls: false, connections, call_bytes }
    }

    /// Threads that receive or send.
    pub fn shards(self) -> u32 {
        if self.call == FloorCall::Epoll { 1 } else { self.connections }
    }
}

/// As a script names one: `recv:4:256KiB`, `sendfile:4:1MiB`. Whether it is over TLS, the URL says.
impl FromStr for FloorShape {
    type Err = String;

    fn from_str(text: &str) -> Result<FloorShape, String> {
        let wrong = || {
            format!(
                "write CALL:N:SIZE, as in recv:4:256KiB, with recv, epoll, send or sendfile, up to \
                 {MOST_CONNECTIONS} connections and {} to {} a call",
                format_size(*CALL_BYTES.start() as u64),
                format_size(*CALL_BYTES.end() as u64),
            )
        };
        let fields: Vec<&str> = text.split(':').collect();
        let [call, connections, size] = fields[..] else { return Err(wrong()) };
        let call = FloorCall::ALL.into_iter().find(|known| known.name() == call);
        let connections = connections.parse().ok().filter(|count| (1..=MOST_CONNECTIONS).contains(count));
        let size = parse_size(size).ok().and_then(|bytes| usize::try_from(bytes).ok());
        let size = size.filter(|bytes| CALL_BYTES.contains(bytes));
        match (call, connections, size) {
            (Some(call), Some(connections), Some(size)) => Ok(FloorShape::new(call, connections, size)),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for FloorShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = if self.tls { "tokio-rustls" } else { self.call.name() };
        write!(f, "{call} {} x {}", self.connections, format_size(self.call_bytes as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_as_scripts_name_them() {
        let check =
            |text: &str, expected: Option<FloorShape>| assert_eq!(text.parse().ok(), expected, "{text}");
        check("recv:4:256KiB", Some(FloorShape::new(FloorCall::Recv, 4, SMALL)));
        check("epoll:256:1MiB", Some(FloorShape::new(FloorCall::Epoll, 256, LARGE)));
        check("send:1:1MiB", Some(FloorShape::new(FloorCall::Send, 1, LARGE)));
        check("sendfile:8:256KiB", Some(FloorShape::new(FloorCall::Sendfile, 8, SMALL)));
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

    #[test]
    fn what_cannot_be_sent_by_sendfile_is_sent_from_memory() {
        let names = |payload: &Payload, tls| -> Vec<String> {
            shapes_of_puts(payload, tls).iter().map(FloorShape::to_string).collect()
        };
        let file = Payload::File("x".into());
        assert_eq!(names(&file, false).len(), 8);
        assert_eq!(names(&file, false)[7], "sendfile 8 x 1MiB");
        assert_eq!(names(&file, true)[3], "tokio-rustls 8 x 1MiB");
        assert_eq!(names(&file, true).len(), 4);
        assert_eq!(
            names(&Payload::Synthetic, false),
            [1, 2, 4, 8].map(|count| format!("send {count} x 1MiB"))
        );
    }
}
