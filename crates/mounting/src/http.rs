//! The HTTP server of the status endpoints: GET for scrapers, curl and `flatout top`, one response a
//! connection.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};

/// Longer than any head that asks for statistics, and the least that hyper takes.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// To send the head, and again to take the response: a slower client holds up another one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Served at a time; there are a scraper and a few people who look.
const CONNECTIONS_MAX: usize = 16;

/// What is there at a path.
pub struct StatusDocument {
    pub content_type: &'static str,
    pub body: String,
}

/// From a path without its query to the document; `None` where there is nothing.
pub type Routes = Arc<dyn Fn(&str) -> Option<StatusDocument> + Send + Sync>;

/// Serves until it is dropped.
pub struct StatusServer {
    _stop: oneshot::Sender<()>,
}

impl StatusServer {
    /// Serves both listeners on one thread.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        unix: Option<(UnixListener, Routes)>,
        tcp: Option<(TcpListener, Routes)>,
    ) -> io::Result<StatusServer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inside = runtime.enter();
        if let Some((listener, routes)) = unix {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::UnixListener::from_std(listener)?;
            runtime.spawn(accept(move |cx| listener.poll_accept(cx).map_ok(|(stream, _)| stream), routes));
        }
        if let Some((listener, routes)) = tcp {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            runtime.spawn(accept(move |cx| listener.poll_accept(cx).map_ok(|(stream, _)| stream), routes));
        }
        drop(inside);
        let (stop, stopped) = oneshot::channel();
        thread::Builder::new().name("status".into()).spawn(move || {
            // The sender only ever goes.
            let _ = runtime.block_on(stopped);
        })?;
        Ok(StatusServer { _stop: stop })
    }
}

async fn accept<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    mut poll_accept: impl FnMut(&mut Context<'_>) -> Poll<io::Result<S>>,
    routes: Routes,
) {
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(stream) = std::future::poll_fn(&mut poll_accept).await else {
            // No descriptors left, or a connection that went before it was accepted: not to be asked again at
            // once.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Beyond the limit a connection is closed: the client may try again.
        if let Ok(permit) = free.clone().try_acquire_owned() {
            let routes = routes.clone();
            tokio::spawn(async move {
                converse(stream, routes).await;
                drop(permit);
            });
        }
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, routes: Routes) {
    let service = service_fn(|request: Request<Incoming>| {
        std::future::ready(Ok::<_, Infallible>(respond(&request, &routes)))
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .half_close(true)
        .max_buf_size(HEAD_BYTES_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    // A client that goes before the response does not miss it.
    let _ = timeout(2 * PATIENCE, connection).await;
}

fn respond<B>(request: &Request<B>, routes: &Routes) -> Response<Full<Bytes>> {
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return plain(StatusCode::METHOD_NOT_ALLOWED, "there is only GET\n");
    }
    match routes(request.uri().path()) {
        Some(StatusDocument { content_type, body }) => response(StatusCode::OK, content_type, body),
        None => plain(StatusCode::NOT_FOUND, "there are /stats and /metrics\n"),
    }
}

fn plain(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    response(status, "text/plain; charset=utf-8", body.to_owned())
}

fn response(status: StatusCode, content_type: &'static str, body: String) -> Response<Full<Bytes>> {
    let response = Response::builder().status(status).header(CONTENT_TYPE, content_type);
    response.body(Full::from(body)).expect("status and type are constants")
}

/// What a running mount has at `path`.
///
/// # Errors
/// Nobody listens on the socket, or the response makes no sense.
pub fn get(socket: &Path, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: mount\r\n\r\n").as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    match response.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpStream};

    use super::*;

    fn routes() -> Routes {
        Arc::new(|path| {
            (path == "/stats")
                .then(|| StatusDocument { content_type: "application/json", body: "{\"v\":1}".into() })
        })
    }

    fn tcp() -> (StatusServer, std::net::SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (StatusServer::start(None, Some((listener, routes()))).unwrap(), address)
    }

    #[test]
    fn requests_have_their_responses() {
        let (_server, address) = tcp();
        let check = |request: &str, status: &str, body: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {response}");
            assert_eq!(response.split_once("\r\n\r\n").unwrap().1, body, "{request}");
            let length = if request.starts_with("HEAD") { 7 } else { body.len() };
            assert!(response.contains(&format!("content-length: {length}\r\n")), "{request}: {response}");
        };
        check("GET /stats HTTP/1.1\r\n\r\n", "200 OK", "{\"v\":1}");
        check("GET /stats HTTP/1.1\n\n", "200 OK", "{\"v\":1}");
        check("HEAD /stats HTTP/1.1\r\n\r\n", "200 OK", "");
        check("GET / HTTP/1.1\r\n\r\n", "404", "there are /stats and /metrics\n");
        check("POST /stats HTTP/1.1\r\n\r\n", "405", "there is only GET\n");
        check("nonsense\r\n\r\n", "400", "");
    }

    #[test]
    fn an_old_client_has_its_response() {
        let (_server, address) = tcp();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /stats?x=1 HTTP/1.0\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.") && response.contains(" 200 OK\r\n"), "{response}");
        assert!(response.ends_with("\r\n\r\n{\"v\":1}"), "{response}");
    }

    #[test]
    fn a_socket_answers_until_the_server_stops() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stats.sock");
        let server = StatusServer::start(Some((UnixListener::bind(&path).unwrap(), routes())), None).unwrap();
        assert_eq!(get(&path, "/stats").unwrap(), "{\"v\":1}");
        assert_eq!(get(&path, "/other").unwrap_err().kind(), io::ErrorKind::InvalidData);
        // A client that sends too much, or goes, keeps no other from it.
        let mut long = UnixStream::connect(&path).unwrap();
        let _ = long.write_all(&vec![b'x'; HEAD_BYTES_MAX + 2048]);
        let mut response = String::new();
        let _ = long.read_to_string(&mut response);
        assert!(response.is_empty() || response.contains("431"), "{response}");
        drop(UnixStream::connect(&path).unwrap());
        assert_eq!(get(&path, "/stats").unwrap(), "{\"v\":1}");
        assert!(get(&folder.path().join("none"), "/stats").is_err());
        drop(server);
        while get(&path, "/stats").is_ok() {
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn idle_connections_keep_nobody_out() {
        let (_server, address) = tcp();
        let idle: Vec<TcpStream> =
            (0..CONNECTIONS_MAX - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /stats HTTP/1.1\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.ends_with("{\"v\":1}"), "{response}");
        // Beyond the limit a connection is closed without a word.
        let full: Vec<TcpStream> =
            (0..CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut over = TcpStream::connect(address).unwrap();
        assert_eq!(over.read(&mut [0; 16]).unwrap(), 0);
        drop((idle, full));
    }
}
