//! A service of a test's own: HTTP requests in, what the test says out.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct ServiceRequest {
    pub method: String,
    pub target: String,
    head: Vec<(String, String)>,
    pub body: String,
}

/// What the service says.
pub enum ServiceReply {
    /// This status and body.
    This(u16, String),
    /// Nothing, with the connection kept open.
    Silence,
    /// Nothing, with the connection closed.
    Gone,
}

pub struct Service {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<ServiceRequest>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ServiceRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A field of a form, decoded.
    pub fn field(&self, name: &str) -> Option<String> {
        let pairs = self.body.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(known, _)| *known == name).map(|(_, value)| decoded(value)).next()
    }
}

fn decoded(text: &str) -> String {
    let mut pieces = text.split('%');
    let mut bytes = pieces.next().unwrap_or("").as_bytes().to_vec();
    for piece in pieces {
        bytes.push(u8::from_str_radix(&piece[..2], 16).unwrap());
        bytes.extend_from_slice(&piece.as_bytes()[2..]);
    }
    String::from_utf8(bytes).unwrap()
}

impl Service {
    pub fn start(says: impl Fn(&ServiceRequest) -> ServiceReply + Send + Sync + 'static) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (log, stopping, says) = (asked.clone(), stop.clone(), Arc::new(says));
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let (log, says) = (log.clone(), says.clone());
                // A client that breaks off ends its thread by an error; the test sees the client.
                std::thread::spawn(move || drop(serve(stream, &log, &*says)));
            }
        });
        Service { address, asked, stop, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn asked(&self) -> Vec<ServiceRequest> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
    }
}

fn serve(
    stream: TcpStream,
    log: &Mutex<Vec<ServiceRequest>>,
    says: &(dyn Fn(&ServiceRequest) -> ServiceReply + Send + Sync),
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split(' ').map(String::from);
    let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        head.push((name.to_owned(), value.to_owned()));
    }
    let length = head.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(0, |(_, length)| length.parse().unwrap())];
    reader.read_exact(&mut body)?;
    let asked = ServiceRequest { method, target, head, body: String::from_utf8(body).unwrap() };
    log.lock().unwrap().push(asked.clone());
    match says(&asked) {
        ServiceReply::This(status, body) => write!(
            &stream,
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        ),
        ServiceReply::Silence => reader.read_to_end(&mut Vec::new()).map(drop),
        ServiceReply::Gone => Ok(()),
    }
}
