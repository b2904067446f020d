//! An origin of which most answers are wrong, each in a way that the object's number chooses. It keeps nothing itself.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of every object.
pub const SIZE: u64 = 64 << 10;

#[derive(Clone, Copy)]
pub enum Fault {
    /// None: what goes right must not leak either.
    Fair,
    /// RST in the middle of the body.
    Reset,
    /// A clean end in the middle of the body.
    Truncate,
    /// Half of the body, then nothing.
    Stall,
    /// A server that is down.
    Unavailable,
    /// Another range than the one asked for.
    WrongRange,
    /// No HTTP at all.
    Garbage,
    /// Closed without an answer.
    Closed,
    Denied,
    /// Bytes that are not those of the checksum that is stated.
    Flip,
    /// A head without end.
    EndlessHead,
}

pub const FAULTS: [Fault; 11] = [
    Fault::Fair,
    Fault::Reset,
    Fault::Truncate,
    Fault::Stall,
    Fault::Unavailable,
    Fault::WrongRange,
    Fault::Garbage,
    Fault::Closed,
    Fault::Denied,
    Fault::Flip,
    Fault::EndlessHead,
];

pub struct Faulty {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Faulty {
    pub fn start() -> Faulty {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = stop.clone();
        let thread = std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                // A client that breaks off is half of the matter.
                std::thread::spawn(move || drop(serve(socket)));
            }
        });
        Faulty { address, stop, thread: Some(thread) }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the origin's thread ends");
        }
    }
}

/// What was asked for: HEAD or not, which object, from where to where.
struct Asked {
    is_head: bool,
    number: usize,
    range: Option<(u64, u64)>,
}

fn next(lines: &mut impl Iterator<Item = std::io::Result<String>>) -> Option<Asked> {
    let first = lines.next()?.ok()?;
    let mut asked = Asked { is_head: first.starts_with("HEAD"), number: 0, range: None };
    let path = first.split(' ').nth(1)?.split('?').next()?;
    asked.number = path.rsplit('/').next()?.parse().ok()?;
    for line in lines.map_while(Result::ok).take_while(|line| !line.is_empty()) {
        if let Some(range) = line.strip_prefix("range: bytes=").or(line.strip_prefix("Range: bytes=")) {
            let (first, last) = range.split_once('-')?;
            asked.range =
                Some((first.parse().ok()?, last.parse().map_or(SIZE - 1, |last: u64| last.min(SIZE - 1))));
        }
    }
    Some(asked)
}

fn serve(mut socket: TcpStream) -> std::io::Result<()> {
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut lines = BufReader::new(socket.try_clone()?).lines();
    while let Some(asked) = next(&mut lines) {
        let fault = FAULTS[asked.number % FAULTS.len()];
        let whole = (0, SIZE - 1);
        let (first, last) = asked.range.unwrap_or(whole);
        let shown = if matches!(fault, Fault::WrongRange) { first + 1 } else { first };
        let mut head = match asked.range {
            Some(_) => {
                format!("HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {shown}-{last}/{SIZE}\r\n")
            }
            None => "HTTP/1.1 200 OK\r\n".to_owned(),
        };
        head += &format!("Content-Length: {}\r\nETag: \"v\"\r\n", last + 1 - first);
        if asked.range.is_none() && matches!(fault, Fault::Flip) {
            // Of other bytes.
            head += "x-amz-checksum-crc64nvme: AAAAAAAAAAE=\r\nx-amz-checksum-type: FULL_OBJECT\r\n";
        }
        head += "\r\n";
        let body = if asked.is_head { Vec::new() } else { vec![7; (last + 1 - first) as usize] };
        let half = [head.as_bytes(), &body[..body.len() / 2]].concat();
        match fault {
            Fault::Fair | Fault::Flip => socket.write_all(&[head.as_bytes(), &body].concat())?,
            Fault::WrongRange if asked.range.is_some() => {
                socket.write_all(&[head.as_bytes(), &body].concat())?
            }
            // A whole has no range to be wrong: it is cut instead.
            Fault::Truncate | Fault::WrongRange => return socket.write_all(&half),
            Fault::Reset => {
                socket.write_all(&half)?;
                return socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            }
            Fault::Stall => {
                socket.write_all(&half)?;
                // Until the client goes.
                drop(lines.next());
                return Ok(());
            }
            Fault::Unavailable => {
                socket.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")?;
            }
            Fault::Denied => socket.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")?,
            Fault::Garbage => return socket.write_all(b"SSH-2.0-not-http\r\n\r\n"),
            Fault::Closed => return Ok(()),
            Fault::EndlessHead => {
                let line = [b"x-more: ".as_slice(), &[b'x'; 1000], b"\r\n"].concat();
                socket.write_all(b"HTTP/1.1 200 OK\r\n")?;
                for _ in 0..100 {
                    socket.write_all(&line)?;
                }
                return Ok(());
            }
        }
    }
    Ok(())
}
