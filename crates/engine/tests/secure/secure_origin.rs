//! An origin over TLS that does what a test tells it to: a thread per connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection, StreamOwned};

use crate::certificates::{Authority, Identity};
use crate::origin::{Asked, Reply};

pub type Version = &'static rustls::SupportedProtocolVersion;

/// What was seen of the connections.
#[derive(Default)]
pub struct Seen {
    pub asked: Mutex<Vec<Asked>>,
    pub full: AtomicUsize,
    pub resumed: AtomicUsize,
    pub names: Mutex<Vec<Option<String>>>,
    /// Neither a secret nor a suite is looked for here: what was agreed upon.
    pub suites: Mutex<Vec<String>>,
}

pub struct SecureOrigin {
    pub address: SocketAddr,
    pub seen: Arc<Seen>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// How the wire is cut where a test cares.
#[derive(Clone, Copy, Default)]
pub struct Wire {
    /// Text in a record.
    pub fragment: Option<usize>,
    /// A pause after this many bytes, so that a record arrives in two pieces.
    pub pause_at: Option<usize>,
    /// Ends connections without the end of TLS.
    pub cut: bool,
}

pub fn config(identity: &Identity, versions: &[Version]) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain(identity), key(identity))
        .unwrap()
}

/// A server that wants a certificate of its clients.
pub fn config_with_clients(identity: &Identity, authority: &Authority) -> ServerConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(authority.path()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(chain(identity), key(identity))
        .unwrap()
}

fn chain(identity: &Identity) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(identity.certificate.as_bytes()).map(Result::unwrap).collect()
}

fn key(identity: &Identity) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap()
}

impl SecureOrigin {
    pub fn start(
        mut config: ServerConfig,
        wire: Wire,
        answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> SecureOrigin {
        config.max_fragment_size = wire.fragment;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        let (seen, stop) = (Arc::new(Seen::default()), Arc::new(AtomicBool::new(false)));
        let (config, answer) = (Arc::new(config), Arc::new(answer));
        let (log, stopping) = (seen.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let (config, log, answer) = (config.clone(), log.clone(), answer.clone());
                std::thread::spawn(move || serve(stream, config, wire, &log, &*answer));
            }
        });
        SecureOrigin { address, seen, stop, thread: Some(thread) }
    }

    pub fn resumed(&self) -> usize {
        self.seen.resumed.load(Ordering::SeqCst)
    }
}

impl Drop for SecureOrigin {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the origin's thread ends");
        }
    }
}

/// Passes bytes on, with one pause.
struct Paused {
    stream: TcpStream,
    left: Option<usize>,
}

impl Read for Paused {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.read(bytes)
    }
}

impl Write for Paused {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let now = self.left.map_or(bytes.len(), |left| left.clamp(1, bytes.len()));
        let written = self.stream.write(&bytes[..now])?;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(written);
            if *left == 0 {
                self.left = None;
                std::thread::sleep(std::time::Duration::from_millis(60));
            }
        }
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

/// Errors of a client that gives up are part of the tests.
fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    wire: Wire,
    seen: &Seen,
    answer: &dyn Fn(&Asked) -> Reply,
) -> Option<()> {
    stream.set_nodelay(true).expect("an option of TCP");
    let mut session = ServerConnection::new(config).expect("a session");
    let mut stream = Paused { stream, left: None };
    while session.is_handshaking() {
        session.complete_io(&mut stream).ok()?;
    }
    match session.handshake_kind() {
        Some(HandshakeKind::Resumed) => seen.resumed.fetch_add(1, Ordering::SeqCst),
        _ => seen.full.fetch_add(1, Ordering::SeqCst),
    };
    seen.names.lock().unwrap().push(session.server_name().map(str::to_owned));
    let suite = session.negotiated_cipher_suite().map(|suite| format!("{:?}", suite.suite()));
    seen.suites.lock().unwrap().extend(suite);
    stream.left = wire.pause_at;
    let mut connection = BufReader::new(StreamOwned::new(session, stream));
    loop {
        let asked = ask(&mut connection, seen)?;
        let stream = connection.get_mut();
        let (bytes, close) = match answer(&asked) {
            Reply::Keep(bytes) => (bytes, false),
            Reply::Close(bytes) | Reply::Hang(bytes) => (bytes, true),
            Reply::Trickle(pieces, _) => (pieces.concat(), false),
        };
        stream.write_all(&bytes).ok()?;
        stream.flush().ok()?;
        if close && !wire.cut {
            stream.conn.send_close_notify();
            stream.flush().ok()?;
        }
        if close {
            return None;
        }
    }
}

fn ask(connection: &mut impl BufRead, seen: &Seen) -> Option<Asked> {
    let mut lines = connection.lines();
    let first = lines.next()?.ok()?;
    let mut words = first.split(' ').map(String::from);
    let (method, path) = (words.next()?, words.next()?);
    let headers = lines.map_while(Result::ok).take_while(|line| !line.is_empty());
    let headers = headers
        .filter_map(|line| line.split_once(": ").map(|(name, value)| (name.to_string(), value.to_string())));
    let headers = headers.collect();
    let mut asked = seen.asked.lock().unwrap();
    let number = asked.len();
    asked.push(Asked { number, method, path, headers, body: Vec::new() });
    asked.last().cloned()
}
