//! An origin that says exactly what a test wants, right or wrong: bytes on a socket, no HTTP library.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// A request, as far as the tests look.
pub struct Asked {
    /// Counted from 0, over all connections.
    pub number: usize,
    head: String,
    /// As many bytes as the head says.
    pub body: Vec<u8>,
}

/// What is sent back.
pub struct Answer {
    pub bytes: Vec<u8>,
    /// What follows the bytes.
    pub then: Then,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// Wait for the next request.
    Listen,
    /// Close the connection.
    Close,
    /// Say nothing until the other side closes.
    Silence,
}

/// The origin; it stops when dropped.
pub struct Raw {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
}

impl Raw {
    pub fn start(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Raw {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, answer, count) = (stop.clone(), Arc::new(answer), Arc::new(AtomicUsize::new(0)));
        thread::spawn(move || {
            for socket in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let (answer, count) = (answer.clone(), count.clone());
                // A client that breaks off ends its thread by an error; the test sees the client.
                thread::spawn(move || drop(serve(socket.unwrap(), &*answer, &count)));
            }
        });
        Raw { address, stop }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // Wakes the listener, which then sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    mut socket: TcpStream,
    answer: &(dyn Fn(&Asked) -> Answer + Send + Sync),
    count: &AtomicUsize,
) -> std::io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut received = Vec::new();
    loop {
        let end = loop {
            if let Some(end) = received.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            let mut piece = [0; 4096];
            match socket.read(&mut piece)? {
                0 => return Ok(()),
                length => received.extend_from_slice(&piece[..length]),
            }
        };
        let head = String::from_utf8(received.drain(..end).collect()).expect("requests are ASCII");
        let mut asked = Asked { number: count.fetch_add(1, Ordering::SeqCst), head, body: Vec::new() };
        let length = asked.header("content-length").map_or(0, |length| length.parse().expect("a length"));
        while received.len() < length {
            let mut piece = [0; 4096];
            match socket.read(&mut piece)? {
                0 => return Ok(()),
                length => received.extend_from_slice(&piece[..length]),
            }
        }
        asked.body = received.drain(..length).collect();
        let answer = answer(&asked);
        socket.write_all(&answer.bytes)?;
        match answer.then {
            Then::Listen => {}
            Then::Close => return Ok(()),
            Then::Silence => return socket.read_to_end(&mut Vec::new()).map(drop),
        }
    }
}

impl Asked {
    /// What stands behind the method: path and query.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub fn method(&self) -> &str {
        self.head.split(' ').next().unwrap_or_default()
    }

    /// Path and query.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let value = |line: &'_ str| -> Option<(usize, usize)> {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then_some((found.len() + 1, value.len()))
        };
        self.head.lines().find_map(|line| value(line).map(|(start, _)| line[start..].trim()))
    }

    /// Names and values, in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.map(|(name, value)| (name.trim(), value.trim()))
    }

    /// The range asked for, within an object of that size; the whole object without one.
    pub fn range(&self, size: usize) -> Range<usize> {
        let Some(range) = self.header("range") else { return 0..size };
        let (first, last) =
            range.trim_start_matches("bytes=").split_once('-').expect("a range as we send it");
        let last = last.parse::<usize>().map_or(size, |last| last + 1);
        first.parse().expect("a range as we send it")..last.min(size)
    }
}

impl Answer {
    /// A status line and headers, a body after them.
    pub fn new(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut bytes = format!("HTTP/1.1 {status}\r\n").into_bytes();
        for (name, value) in headers {
            bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(body);
        Answer { bytes, then: Then::Listen }
    }

    pub fn then(mut self, then: Then) -> Answer {
        self.then = then;
        self
    }
}

/// The answer of an origin that does it right.
pub fn right(asked: &Asked, object: &[u8], etag: &str) -> Answer {
    let size = object.len();
    if asked.method() == "HEAD" {
        let length = size.to_string();
        return Answer::new("200 OK", &[("Content-Length", &length), ("ETag", etag)], b"");
    }
    let range = asked.range(size);
    let content_range = format!("bytes {}-{}/{size}", range.start, range.end - 1);
    ranged(&object[range], &content_range, etag)
}

/// A 206 with that body, whatever it claims to be.
pub fn ranged(body: &[u8], content_range: &str, etag: &str) -> Answer {
    let length = body.len().to_string();
    let headers = [("Content-Length", length.as_str()), ("Content-Range", content_range), ("ETag", etag)];
    Answer::new("206 Partial Content", &headers, body)
}
