//! Starts and stops: listeners, one thread with its own runtime a core, and an acceptor that deals out
//! connections in turn. A connection stays on its thread.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use socket2::{Domain, Protocol, Type};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

use crate::folder::Folder;
use crate::front::Front;
use crate::identity::Identity;
use crate::memory::Memory;
use crate::shelf::Shelf;
use crate::sink::Sink;
use crate::socket::{Shaping, Socket};
use crate::stock::Stock;
use crate::stream::Stream;
use crate::synthetic::Synthetic;

/// Bytes that hyper queues for one `writev(2)` when they cost no memory of their own: several frames, so that
/// a socket buffer of some MiB is filled by few calls.
const QUEUE_BYTES: usize = 1 << 20;

/// How long to wait when a connection cannot be accepted, which is for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// How long a client may take to agree on TLS.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// What an origin serves, where and how slowly. Not `Debug`: it holds a secret key.
#[derive(Clone)]
pub struct Options {
    /// Addresses to listen on, at least one; port 0 finds a free port.
    pub listen: Vec<SocketAddr>,
    pub store: Store,
    /// Access key and secret key; `None` lets every request in, signed or not.
    pub auth: Option<(String, String)>,
    /// The first byte of an answer leaves no earlier than this after the last byte of its request came.
    pub latency: Duration,
    /// Bytes a second for each connection, in each direction.
    pub per_connection: Option<u64>,
    /// Bytes a second for all connections together, in each direction.
    pub total: Option<u64>,
    /// Take writes of objects and forget them.
    pub sink: bool,
    /// Speak TLS, as whom; what is slowed down is what TLS carries.
    pub tls: Option<Identity>,
}

/// Where the objects are: see the [crate] on what each store can do.
#[derive(Clone, Debug)]
pub enum Store {
    /// A folder whose folders are buckets.
    Root(PathBuf),
    Memory,
    /// Bucket, key and size in bytes of each object.
    Synthetic(Vec<(String, String, u64)>),
}

/// A running origin. Dropping it closes all connections, stops its threads and waits for them.
#[derive(Debug)]
pub struct Origin {
    addresses: Vec<SocketAddr>,
    scheme: &'static str,
    stop: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Origin {
    /// Binds every address, then starts the threads: when this returns, connections are accepted.
    ///
    /// # Errors
    /// An address that cannot be bound, a root that is no folder, a synthetic object that S3 would not allow;
    /// the text names it.
    pub fn start(options: Options) -> io::Result<Origin> {
        let shelf = open_shelf(options.store.clone(), options.sink)?;
        let listeners = bind(&options.listen)?;
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?;
        let server = Server {
            acceptor: options.tls.map(|identity| TlsAcceptor::from(identity.0)),
            front: Front::new(Stock::new(shelf), options.auth),
            shaping: Shaping::new(options.latency, options.per_connection, options.total),
        };
        let (stop, stopped) = oneshot::channel();
        let mut threads = Vec::new();
        let mut workers = Vec::new();
        for number in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            let (worker, connections) = mpsc::unbounded_channel();
            let (runtime, server) = (runtime()?, server.clone());
            threads.push(spawn(format!("origin-{number}"), move || {
                runtime.block_on(serve_all(server, connections));
            })?);
            workers.push(worker);
        }
        let runtime = runtime()?;
        threads.push(spawn("origin-accept".to_owned(), move || {
            runtime.block_on(accept_all(listeners, workers, stopped));
        })?);
        Ok(Origin { addresses, scheme, stop: Some(stop), threads })
    }

    /// The addresses that it listens on, in the order of [`Options::listen`], with their real ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// `http://HOST:PORT` (`https` with TLS) of the first address, as a client on this machine reaches it.
    pub fn url(&self) -> String {
        let mut address = self.addresses[0];
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        format!("{}://{address}", self.scheme)
    }

    /// Closes all connections, stops the threads and waits for them; as dropping does.
    pub fn stop(self) {}

    /// Serves until the process gets SIGINT or SIGTERM, then stops.
    pub fn run_until_stopped(mut self) {
        let waited = runtime().and_then(|runtime| runtime.block_on(wait_for_signal()));
        if waited.is_err() {
            // Without handlers the signals end the process by themselves: serve until then.
            self.threads.drain(..).for_each(|thread| drop(thread.join()));
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // The acceptor ends, with it the way to the workers; their runtimes end and drop every connection.
        drop(self.stop.take());
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so on standard error.
            let _ = thread.join();
        }
    }
}

/// What every worker needs to serve a connection.
#[derive(Clone)]
struct Server {
    acceptor: Option<TlsAcceptor>,
    front: Front,
    shaping: Option<Shaping>,
}

fn open_shelf(store: Store, sink: bool) -> io::Result<Box<dyn Shelf>> {
    let shelf: Box<dyn Shelf> = match store {
        Store::Root(root) => Box::new(Folder::open(&root)?),
        Store::Memory => Box::new(Memory::default()),
        Store::Synthetic(objects) => Box::new(Synthetic::new(objects)?),
    };
    Ok(if sink { Box::new(Sink { inner: shelf }) } else { shelf })
}

fn bind(addresses: &[SocketAddr]) -> io::Result<Vec<TcpListener>> {
    if addresses.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on"));
    }
    let named = |address: &SocketAddr, error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    };
    addresses.iter().map(|address| listen(*address).map_err(|error| named(address, error))).collect()
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // So that 0.0.0.0 and [::] may stand side by side.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(1024)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(run)
}

/// Deals out connections, until told to stop (or the origin is gone).
async fn accept_all(
    listeners: Vec<TcpListener>,
    workers: Vec<mpsc::UnboundedSender<TcpStream>>,
    stopped: oneshot::Receiver<()>,
) {
    let (accepted, mut connections) = mpsc::unbounded_channel();
    for listener in listeners {
        tokio::spawn(accept(listener, accepted.clone()));
    }
    let deal = async {
        let mut turns = workers.iter().cycle();
        while let (Some(connection), Some(worker)) = (connections.recv().await, turns.next()) {
            // A worker that is gone has panicked; its connections are closed.
            let _ = worker.send(connection);
        }
    };
    tokio::select! {
        _ = stopped => {}
        () = deal => {}
    }
}

async fn accept(listener: TcpListener, accepted: mpsc::UnboundedSender<TcpStream>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("the listener is non-blocking");
    loop {
        match listener.accept().await.and_then(|(connection, _)| connection.into_std()) {
            Ok(connection) => {
                if accepted.send(connection).is_err() {
                    return;
                }
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// A worker: serves what it is given, until nothing more can come.
async fn serve_all(server: Server, mut connections: mpsc::UnboundedReceiver<TcpStream>) {
    while let Some(connection) = connections.recv().await {
        tokio::spawn(serve(server.clone(), connection));
    }
}

async fn serve(server: Server, connection: TcpStream) {
    // A connection that was reset before its turn has nothing to be served.
    let Ok(stream) = tokio::net::TcpStream::from_std(connection) else { return };
    // An answer's last segment must not wait for an acknowledgement (Nagle meets delayed ACK: 40 ms).
    let _ = stream.set_nodelay(true);
    let stream = match &server.acceptor {
        None => Stream::Plain(stream),
        // A client that fails to agree on TLS, or takes too long, is told by an alert or left.
        Some(acceptor) => match tokio::time::timeout(HANDSHAKE_PATIENCE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
            Ok(Err(_)) | Err(_) => return,
        },
    };
    let socket = TokioIo::new(Socket::new(stream, server.shaping.as_ref()));
    let served = hyper::server::conn::http1::Builder::new()
        // The origin does not read while it answers: no call to learn that nothing came.
        .half_close(true)
        .max_buf_size(QUEUE_BYTES)
        .serve_connection(socket, server.front);
    // Its error is the client's business: it went away, or sent what is no HTTP and was told so.
    let _ = served.await;
}

async fn wait_for_signal() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}
