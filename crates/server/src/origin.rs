//! Starts and stops: listeners, one thread with its own runtime a core, and an acceptor that deals out
//! connections in turn. A connection stays on its thread.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::Request;
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use s3s::{HttpResponse, StdError};
use socket2::{Domain, Protocol, Type};
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsAcceptor;

use crate::backend::Backend;
use crate::faults::{Closer, FaultInjector, FaultPlan, FaultService, ReplacingBackend, Signal};
use crate::folder::{Folder, Locks, UploadStore};
use crate::front::Front;
use crate::identity::Identity;
use crate::memory::Memory;
use crate::rate::Rates;
use crate::series::Series;
use crate::sink::Sink;
use crate::socket::{Shaping, Socket};
use crate::storage::Storage;
use crate::stream::Stream;
use crate::synthetic::Synthetic;

/// Bytes that hyper queues for one `writev(2)` when they cost no memory of their own: several frames, so that
/// a socket buffer of some MiB is filled by few calls.
const QUEUE_BYTES: usize = 1 << 20;

/// Connections that may wait for their turn to be accepted.
const BACKLOG: i32 = 1024;

/// How long a dead address may take to take the one connection that it does take.
const FILL_PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait when a connection cannot be accepted, which is for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// How long a client may take to agree on TLS.
const HANDSHAKE_PATIENCE: Duration = Duration::from_secs(10);

/// The objects, addresses, limits and faults of an origin. Not `Debug`: it holds a secret key.
#[derive(Clone)]
pub struct Options {
    /// Addresses to listen on, at least one that is not dead.
    pub listen: Vec<Listen>,
    pub store: Store,
    /// Access key and secret key; `None` lets every request in, signed or not.
    pub auth: Option<(String, String)>,
    /// The first byte of an answer leaves no earlier than this after the last byte of its request came.
    pub latency: Duration,
    /// Bytes a second for each connection, in each direction.
    pub per_connection: Option<u64>,
    /// Bytes a second for all connections together, in each direction.
    pub total: Option<Rates>,
    /// Take writes of objects and forget their bytes: see the [crate].
    pub sink: bool,
    /// Speak TLS with this identity; rates count the bytes inside TLS.
    pub tls: Option<Identity>,
    pub fault_plan: FaultPlan,
}

impl Options {
    /// On a free port of 127.0.0.1, for everybody, as fast as it can.
    pub fn new(store: Store) -> Options {
        Options {
            listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()],
            store,
            auth: None,
            latency: Duration::ZERO,
            per_connection: None,
            total: None,
            sink: false,
            tls: None,
            fault_plan: FaultPlan::default(),
        }
    }
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// Port 0 finds a free port.
    pub address: SocketAddr,
    /// Bytes a second for all its connections together, in each direction.
    pub rate: Option<u64>,
    /// Never answers: a connect waits until it times out.
    pub dead: bool,
}

impl From<SocketAddr> for Listen {
    fn from(address: SocketAddr) -> Listen {
        Listen { address, rate: None, dead: false }
    }
}

/// Where the objects are: see the [crate] on what each store can do.
#[derive(Clone, Debug)]
pub enum Store {
    /// A folder whose folders are buckets.
    Root(PathBuf),
    Memory,
    /// Bucket, key and size in bytes of each object, and rows of objects that are numbered.
    Synthetic(Vec<(String, String, u64)>, Vec<Series>),
}

/// A running origin. Dropping it closes all connections, stops its threads and waits for them.
pub struct Origin {
    addresses: Vec<SocketAddr>,
    first_alive: usize,
    injector: Option<Arc<FaultInjector>>,
    /// Connections that keep the queues of dead addresses full.
    _fillers: Vec<TcpStream>,
    scheme: &'static str,
    forgotten: Arc<AtomicU64>,
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
        let listeners = bind(&options.listen)?;
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<io::Result<Vec<_>>>()?;
        let first_alive = options.listen.iter().position(|listen| !listen.dead).unwrap_or_default();
        let dead = addresses.iter().zip(&options.listen).filter(|(_, listen)| listen.dead);
        let fillers = dead.map(|(address, _)| fill(*address)).collect::<io::Result<_>>()?;
        let alive: Vec<bool> = options.listen.iter().map(|listen| !listen.dead).collect();
        let clock = options.fault_plan.clock;
        let injector = FaultInjector::new(options.fault_plan)?.map(Arc::new);
        let forgotten = Arc::<AtomicU64>::default();
        let counted = options.sink.then(|| forgotten.clone());
        let (backend, beside) = open_backend(options.store, counted)?;
        let storage = Storage::new(replace_in(backend, injector.as_deref()), beside)?;
        let server = ServeContext {
            acceptor: options.tls.map(|identity| TlsAcceptor::from(identity.0)),
            front: Front::new(storage, options.auth, clock),
            injector: injector.clone(),
            shaping: Shaping::new(
                options.latency,
                options.per_connection,
                options.total.as_ref(),
                options.listen.iter().map(|listen| listen.rate),
            )
            .into(),
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
            runtime.block_on(accept_all(listeners, &alive, workers, stopped));
        })?);
        Ok(Origin {
            addresses,
            first_alive,
            injector,
            _fillers: fillers,
            scheme,
            forgotten,
            stop: Some(stop),
            threads,
        })
    }

    /// The addresses that it listens on, dead ones among them, in the order of [`Options::listen`], with
    /// their real ports.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// `http://HOST:PORT` (`https` with TLS) of the first address that is not dead, as a client on this
    /// machine reaches it.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, reachable(self.addresses[self.first_alive]))
    }

    /// Bytes of objects and parts that a sink has taken, in bodies that broke off as well.
    pub fn forgotten_bytes(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Closes all connections, stops the threads and waits for them; as dropping does.
    ///
    /// # Errors
    /// Fails when lines of the request log could not be written.
    pub fn stop(mut self) -> io::Result<()> {
        let injector = self.injector.take();
        drop(self);
        injector.map_or(Ok(()), |injector| injector.check_log())
    }

    /// Serves until the process gets SIGINT or SIGTERM, then stops.
    pub fn run_until_stopped(mut self) {
        let waited = runtime().and_then(|runtime| runtime.block_on(wait_for_signal()));
        if waited.is_err() {
            // Without handlers the signals end the process by themselves: serve until then.
            self.threads.drain(..).for_each(|thread| drop(thread.join()));
        }
    }
}

impl fmt::Debug for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Origin").field("url", &self.url()).finish_non_exhaustive()
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

/// The parts that every worker needs to serve a connection.
#[derive(Clone)]
struct ServeContext {
    acceptor: Option<TlsAcceptor>,
    front: Front,
    injector: Option<Arc<FaultInjector>>,
    /// By the number of the listener.
    shaping: Arc<[Option<Shaping>]>,
}

/// Uploads and locks beside a store that outlives the origin.
type Beside = (UploadStore, Locks);

/// With `forgotten`, which counts bytes, the store is behind a sink.
fn open_backend(
    store: Store,
    forgotten: Option<Arc<AtomicU64>>,
) -> io::Result<(Box<dyn Backend>, Option<Beside>)> {
    let mut beside = None;
    let backend: Box<dyn Backend> = match store {
        Store::Root(root) => {
            let folder = Folder::open(&root)?;
            beside = forgotten.is_none().then(|| (folder.upload_store(), folder.locks()));
            Box::new(folder)
        }
        Store::Memory => Box::new(Memory::default()),
        Store::Synthetic(objects, rows) => Box::new(Synthetic::new(objects)?.with_rows(rows)?),
    };
    Ok((
        match forgotten {
            Some(forgotten) => Box::new(Sink::new(backend, forgotten)),
            None => backend,
        },
        beside,
    ))
}

fn replace_in(inner: Box<dyn Backend>, injector: Option<&FaultInjector>) -> Box<dyn Backend> {
    match injector.and_then(|injector| injector.replacing.clone()) {
        Some(replacing) => Box::new(ReplacingBackend { inner, replacing }),
        None => inner,
    }
}

fn bind(addresses: &[Listen]) -> io::Result<Vec<TcpListener>> {
    if addresses.iter().all(|listen| listen.dead) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "no address to listen on that answers: name one that is not dead",
        ));
    }
    let named = |address: &SocketAddr, error: io::Error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    };
    let open = |at: &Listen| {
        listen(at.address, if at.dead { 0 } else { BACKLOG }).map_err(|error| named(&at.address, error))
    };
    addresses.iter().map(open).collect()
}

fn listen(address: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // So that 0.0.0.0 and [::] may stand side by side.
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    socket.set_nonblocking(true)?;
    Ok(socket.into())
}

/// Fills the accept queue of a dead listener, which has room for one connection. Linux then drops further
/// SYNs, so that their connects wait, and ask again, until they time out; as with an address behind which is
/// no machine.
fn fill(address: SocketAddr) -> io::Result<TcpStream> {
    let connected = TcpStream::connect_timeout(&reachable(address), FILL_PATIENCE);
    connected.map_err(|error| io::Error::new(error.kind(), format!("cannot play dead on {address}: {error}")))
}

/// How a client on this machine reaches a listener.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(run)
}

/// A connection, and the number of the listener that it came to.
type Accepted = (usize, TcpStream);

/// Hands connections to workers until it is stopped (or the origin is gone).
async fn accept_all(
    listeners: Vec<TcpListener>,
    alive: &[bool],
    workers: Vec<mpsc::UnboundedSender<Accepted>>,
    stopped: oneshot::Receiver<()>,
) {
    let (accepted, mut connections) = mpsc::unbounded_channel();
    // Dead listeners stay open without accepting.
    let (served, _dead): (Vec<_>, Vec<_>) =
        listeners.into_iter().enumerate().partition(|(number, _)| alive[*number]);
    for (number, listener) in served {
        tokio::spawn(accept(number, listener, accepted.clone()));
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

async fn accept(number: usize, listener: TcpListener, accepted: mpsc::UnboundedSender<Accepted>) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("the listener is non-blocking");
    loop {
        match listener.accept().await.and_then(|(connection, _)| connection.into_std()) {
            Ok(connection) => {
                if accepted.send((number, connection)).is_err() {
                    return;
                }
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// A worker: serves the connections it gets, until the channel closes.
async fn serve_all(server: ServeContext, mut connections: mpsc::UnboundedReceiver<Accepted>) {
    while let Some(connection) = connections.recv().await {
        tokio::spawn(serve(server.clone(), connection));
    }
}

async fn serve(server: ServeContext, (listener, connection): Accepted) {
    // A connection that was reset before its turn has nothing to be served.
    let Ok(stream) = tokio::net::TcpStream::from_std(connection) else { return };
    // An answer's last segment must not wait for an acknowledgement (Nagle meets delayed ACK: 40 ms).
    let _ = stream.set_nodelay(true);
    let stream = match &server.acceptor {
        None => Stream::Plain(stream),
        // A client whose handshake fails or takes too long gets an alert or is dropped.
        Some(acceptor) => match tokio::time::timeout(HANDSHAKE_PATIENCE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
            Ok(Err(_)) | Err(_) => return,
        },
    };
    let shaping = server.shaping[listener].as_ref();
    let Some(injector) = server.injector else {
        return converse(Socket::new(stream, shaping, None), server.front).await;
    };
    let signal = Arc::<Signal>::default();
    let socket = Socket::new(stream, shaping, Some(Closer::new(signal.clone())));
    converse(socket, FaultService { front: server.front, injector, signal, listener }).await;
}

async fn converse<S>(socket: Socket, service: S)
where
    S: Service<Request<Incoming>, Response = HttpResponse, Error = StdError>,
{
    let served = hyper::server::conn::http1::Builder::new()
        // The origin does not read while it answers: no call to learn that nothing came.
        .half_close(true)
        .max_buf_size(QUEUE_BYTES)
        .serve_connection(TokioIo::new(socket), service);
    // The error is the client's: it went away, or sent no valid HTTP and got a 400.
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
