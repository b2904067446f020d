//! An origin of which most answers are wrong, each in a way that the object's number chooses. It keeps
//! nothing itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::certificates::Identity;

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
    /// Over TLS with that identity, else plain.
    pub fn start(identity: Option<&Identity>) -> Faulty {
        let tls = identity.map(|identity| Arc::new(config(identity)));
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
                let tls = tls.clone();
                std::thread::spawn(move || match tls {
                    None => drop(serve(socket)),
                    Some(tls) => {
                        let session = ServerConnection::new(tls).expect("a session");
                        drop(serve(StreamOwned::new(session, socket)));
                    }
                });
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

fn config(identity: &Identity) -> ServerConfig {
    let chain = CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).expect("a key");
    ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .expect("the certificate and its key")
}

/// What an answer is written to, and the socket beneath it. A clean end over TLS is the alert and then the
/// FIN.
trait Line: Read + Write {
    fn socket(&self) -> &TcpStream;
    fn end(&mut self) -> std::io::Result<()>;
}

impl Line for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }

    fn end(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Line for StreamOwned<ServerConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }

    fn end(&mut self) -> std::io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

/// What was asked for: HEAD or not, which object, from where to where.
struct Asked {
    is_head: bool,
    number: usize,
    range: Option<(u64, u64)>,
}

fn next(line: &mut impl BufRead) -> Option<Asked> {
    let mut lines = line.lines();
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

fn serve(line: impl Line) -> std::io::Result<()> {
    line.socket().set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut line = BufReader::new(line);
    while let Some(asked) = next(&mut line) {
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
        let out = line.get_mut();
        match fault {
            Fault::Fair | Fault::Flip => out.write_all(&[head.as_bytes(), &body].concat())?,
            Fault::WrongRange if asked.range.is_some() => {
                out.write_all(&[head.as_bytes(), &body].concat())?
            }
            // A whole has no range to be wrong: it is cut instead.
            Fault::Truncate | Fault::WrongRange => {
                out.write_all(&half)?;
                return out.end();
            }
            Fault::Reset => {
                out.write_all(&half)?;
                return socket2::SockRef::from(out.socket()).set_linger(Some(Duration::ZERO));
            }
            Fault::Stall => {
                out.write_all(&half)?;
                // Until the client goes.
                drop(line.lines().next());
                return Ok(());
            }
            Fault::Unavailable => {
                out.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")?;
            }
            Fault::Denied => out.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")?,
            Fault::Garbage => {
                out.write_all(b"SSH-2.0-not-http\r\n\r\n")?;
                return out.end();
            }
            Fault::Closed => return out.end(),
            Fault::EndlessHead => {
                let header = [b"x-more: ".as_slice(), &[b'x'; 1000], b"\r\n"].concat();
                out.write_all(b"HTTP/1.1 200 OK\r\n")?;
                for _ in 0..100 {
                    out.write_all(&header)?;
                }
                return out.end();
            }
        }
    }
    Ok(())
}
