//! An origin that does what a test tells it to, right or wrong: a thread per connection, requests in, bytes
//! out.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Asked {
    pub number: usize,
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The number of the part of an upload that is asked for.
    pub fn part(&self) -> Option<u32> {
        let (_, query) = self.path.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix("partNumber="))?.parse().ok()
    }

    /// The range asked for, cut to an object of `size`.
    pub fn range(&self, size: u64) -> Option<Range<u64>> {
        let (from, to) = self.header("range")?.strip_prefix("bytes=")?.split_once('-')?;
        if from.is_empty() {
            return Some(size - to.parse::<u64>().ok()?..size);
        }
        let end = to.parse::<u64>().map_or(size, |last| last + 1);
        Some(from.parse().ok()?..end.min(size))
    }
}

/// What the origin does with a request.
pub enum Reply {
    /// Sends the bytes and keeps the connection.
    Keep(Vec<u8>),
    /// Sends the bytes and closes.
    Close(Vec<u8>),
    /// Sends the bytes and then nothing, until the client goes.
    Hang(Vec<u8>),
    /// Sends the pieces, each after that time, and keeps the connection.
    Trickle(Vec<Vec<u8>>, Duration),
}

/// An answer that keeps the connection. Each of the further headers ends its line.
pub fn answer(status: &str, headers: &str, body: &str) -> Reply {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n");
    Reply::Keep(format!("{head}{body}").into_bytes())
}

pub struct Origin {
    pub address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: Arc<std::sync::atomic::AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Origin {
    pub fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (asked, stop) =
            (Arc::new(Mutex::new(Vec::new())), Arc::new(std::sync::atomic::AtomicBool::new(false)));
        let (log, stopping, answer) = (asked.clone(), stop.clone(), Arc::new(answer));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopping.load(std::sync::atomic::Ordering::SeqCst) {
                    return;
                }
                let (log, answer) = (log.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, &log, &*answer));
            }
        });
        Origin { address, asked, stop, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}/bucket/object", self.address)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no panic in the origin").clone()
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the origin's thread ends");
        }
    }
}

fn serve(stream: TcpStream, log: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked) -> Reply) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut stream = stream;
    loop {
        let mut lines = reader.by_ref().lines();
        let Some(Ok(first)) = lines.next() else { return };
        let mut words = first.split(' ').map(String::from);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let headers = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty());
        let headers: Vec<(String, String)> = headers
            .filter_map(|line| {
                line.split_once(": ").map(|(name, value)| (name.to_string(), value.to_string()))
            })
            .collect();
        let length = headers.iter().find(|(name, _)| name == "content-length");
        let mut body = vec![0; length.map_or(0, |(_, bytes)| bytes.parse().expect("a length"))];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let asked = {
            let mut log = log.lock().expect("no panic in the origin");
            let asked = Asked { number: log.len(), method, path, headers, body };
            log.push(asked.clone());
            asked
        };
        // A client that has gone away meanwhile is part of the tests.
        match answer(&asked) {
            Reply::Keep(bytes) => drop(stream.write_all(&bytes)),
            Reply::Close(bytes) => return drop(stream.write_all(&bytes)),
            Reply::Trickle(pieces, pause) => {
                for piece in pieces {
                    std::thread::sleep(pause);
                    drop(stream.write_all(&piece));
                }
            }
            Reply::Hang(bytes) => {
                drop(stream.write_all(&bytes));
                drop(reader.read(&mut [0]));
                return;
            }
        }
    }
}

/// The object that all tests read.
pub fn object(size: u64) -> Vec<u8> {
    (0..size).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// The head of a right answer to a range.
pub fn head_206(range: &Range<u64>, size: u64, etag: &str) -> String {
    let (first, last, bytes) = (range.start, range.end - 1, range.end - range.start);
    format!(
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {first}-{last}/{size}\r\ncontent-length: {bytes}\r\netag: {etag}\r\n\r\n"
    )
}

/// A right answer to whatever range was asked for.
pub fn right(asked: &Asked, body: &[u8]) -> Vec<u8> {
    let size = body.len() as u64;
    let range = asked.range(size).expect("the engine asks for ranges");
    let mut bytes = head_206(&range, size, "\"v1\"").into_bytes();
    bytes.extend_from_slice(&body[range.start as usize..range.end as usize]);
    bytes
}
