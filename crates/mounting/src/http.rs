//! The smallest server that a scraper, curl and `flatout top` are content with: GET, one answer, closed.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any head that asks for numbers.
const HEAD_BYTES_MAX: usize = 8 << 10;

/// To send the head, and again to take the answer: whoever is slower holds up somebody else.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answered at a time; there are a scraper and a few people who look.
const CONNECTIONS_MAX: usize = 16;

/// What is there at a path.
pub struct Answer {
    pub content_type: &'static str,
    pub body: String,
}

/// From a path without its query to the answer; `None` where there is nothing.
pub type Routes = Arc<dyn Fn(&str) -> Option<Answer> + Send + Sync>;

/// Answers on a thread of its own until the process ends.
///
/// # Errors
/// No thread can be had.
pub fn answer_unix(listener: UnixListener, routes: Routes) -> io::Result<()> {
    answer(move || listener.accept().map(|(stream, _)| stream), routes)
}

/// The same on a port.
///
/// # Errors
/// No thread can be had.
pub fn answer_tcp(listener: TcpListener, routes: Routes) -> io::Result<()> {
    answer(move || listener.accept().map(|(stream, _)| stream), routes)
}

/// What a connection is here.
trait Stream: Read + Write + Send + 'static {
    fn be_patient(&self, left: Duration) -> io::Result<()>;
}

impl Stream for UnixStream {
    fn be_patient(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

impl Stream for TcpStream {
    fn be_patient(&self, left: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(left))?;
        self.set_write_timeout(Some(left))
    }
}

fn answer<S: Stream>(accept: impl Fn() -> io::Result<S> + Send + 'static, routes: Routes) -> io::Result<()> {
    let busy = Arc::new(AtomicUsize::new(0));
    thread::Builder::new().name("numbers".into()).spawn(move || {
        loop {
            let Ok(stream) = accept() else {
                // No descriptors left, or a connection that went before it was taken: not to be asked again at once.
                thread::sleep(Duration::from_millis(50));
                continue;
            };
            let turn = Turn(busy.clone());
            if busy.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                continue;
            }
            let routes = routes.clone();
            // Without a thread the connection is closed: who asks may ask again.
            let _ = thread::Builder::new().name("numbers".into()).spawn(move || {
                let _turn = turn;
                // Whoever goes before the answer does not miss it.
                let _ = converse(stream, &routes);
            });
        }
    })?;
    Ok(())
}

/// A connection that counts as long as it lives.
struct Turn(Arc<AtomicUsize>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn converse(mut stream: impl Stream, routes: &Routes) -> io::Result<()> {
    let answer = match head(&mut stream)? {
        Some(head) => respond(&head, routes),
        None => plain("431 Request Header Fields Too Large", "too long"),
    };
    stream.be_patient(PATIENCE)?;
    stream.write_all(answer.as_bytes())?;
    stream.flush()
}

/// Up to the empty line; `None` where that does not come.
fn head(stream: &mut impl Stream) -> io::Result<Option<String>> {
    let (start, mut head) = (Instant::now(), Vec::new());
    let mut piece = [0; 1024];
    while head.len() <= HEAD_BYTES_MAX {
        let left = PATIENCE.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.be_patient(left)?;
        let got = stream.read(&mut piece)?;
        head.extend_from_slice(&piece[..got]);
        if head.windows(4).any(|end| end == b"\r\n\r\n") || head.windows(2).any(|end| end == b"\n\n") {
            return Ok(Some(String::from_utf8_lossy(&head).into_owned()));
        }
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(None)
}

fn respond(head: &str, routes: &Routes) -> String {
    let mut words = head.lines().next().unwrap_or_default().split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return plain("400 Bad Request", "this is no request");
    };
    if !["GET", "HEAD"].contains(&method) {
        return plain("405 Method Not Allowed", "there is only GET");
    }
    let path = target.split('?').next().unwrap_or_default();
    match routes(path) {
        Some(Answer { content_type, body }) => {
            let shown = if method == "HEAD" { "" } else { body.as_str() };
            response("200 OK", content_type, body.len(), shown)
        }
        None => plain("404 Not Found", "there are /stats and /metrics"),
    }
}

fn plain(status: &str, body: &str) -> String {
    let body = format!("{body}\n");
    response(status, "text/plain; charset=utf-8", body.len(), &body)
}

fn response(status: &str, content_type: &str, bytes: usize, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// What a running mount says at `path`.
///
/// # Errors
/// Nobody listens there, or says nothing that makes sense.
pub fn ask(socket: &std::path::Path, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.be_patient(PATIENCE)?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: mount\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes() -> Routes {
        Arc::new(|path| {
            (path == "/stats").then(|| Answer { content_type: "application/json", body: "{\"v\":1}".into() })
        })
    }

    #[test]
    fn requests_have_their_answers() {
        let check = |request: &str, status: &str, body: &str| {
            let answer = respond(request, &routes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
            assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, body, "{request}");
        };
        check("GET /stats HTTP/1.1\r\n\r\n", "200 OK", "{\"v\":1}");
        check("GET /stats?x=1 HTTP/1.0\r\n\r\n", "200 OK", "{\"v\":1}");
        check("HEAD /stats HTTP/1.1\r\n\r\n", "200 OK", "");
        check("GET / HTTP/1.1\r\n\r\n", "404", "there are /stats and /metrics\n");
        check("POST /stats HTTP/1.1\r\n\r\n", "405", "there is only GET\n");
        check("nonsense\r\n\r\n", "400", "this is no request\n");
        check("", "400", "this is no request\n");
    }

    #[test]
    fn whoever_asks_on_a_socket_is_answered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("numbers.sock");
        answer_unix(UnixListener::bind(&path).unwrap(), routes()).unwrap();
        assert_eq!(ask(&path, "/stats").unwrap(), "{\"v\":1}");
        assert_eq!(ask(&path, "/other").unwrap_err().kind(), io::ErrorKind::InvalidData);
        // Whoever sends too much, or goes, keeps nobody else from it.
        let mut long = UnixStream::connect(&path).unwrap();
        let _ = long.write_all(&vec![b'x'; HEAD_BYTES_MAX + 2048]);
        let mut answer = String::new();
        let _ = long.read_to_string(&mut answer);
        assert!(answer.is_empty() || answer.contains("431"), "{answer}");
        drop(UnixStream::connect(&path).unwrap());
        assert_eq!(ask(&path, "/stats").unwrap(), "{\"v\":1}");
        assert!(ask(&folder.path().join("none"), "/stats").is_err());
    }

    #[test]
    fn idle_connections_keep_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        answer_tcp(listener, routes()).unwrap();
        let idle: Vec<TcpStream> =
            (0..CONNECTIONS_MAX - 1).map(|_| TcpStream::connect(address).unwrap()).collect();
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /stats HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.ends_with("{\"v\":1}"), "{answer}");
        drop(idle);
    }
}
