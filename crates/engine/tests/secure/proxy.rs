//! A proxy of the tests' own: whatever host it is asked for, it leads to one address; it remembers what it
//! was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// The first line of each request and its login.
pub type Log = Arc<Mutex<Vec<(String, Option<String>)>>>;

pub struct TestProxy {
    pub address: SocketAddr,
    pub log: Log,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// What it lets through.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Lets {
    All,
    /// Those with this value of Proxy-Authorization.
    Login(&'static str),
    None(u16),
}

impl TestProxy {
    pub fn start(origin: SocketAddr, lets: Lets) -> TestProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (log, stop) = (Log::default(), Arc::new(AtomicBool::new(false)));
        let (asked, stopping) = (log.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if stopping.load(Ordering::SeqCst) {
                    return;
                }
                let asked = asked.clone();
                std::thread::spawn(move || serve(client, origin, lets, &asked));
            }
        });
        TestProxy { address, log, stop, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn asked(&self) -> Vec<(String, Option<String>)> {
        self.log.lock().unwrap().clone()
    }
}

impl Drop for TestProxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the proxy's thread ends");
        }
    }
}

fn serve(mut client: TcpStream, origin: SocketAddr, lets: Lets, log: &Log) -> Option<()> {
    let mut origin = TcpStream::connect(origin).ok()?;
    let mut reader = BufReader::new(client.try_clone().unwrap());
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
            let end = line == "\r\n";
            head.push(line);
            if end {
                break;
            }
        }
        let login = head.iter().find_map(|line| line.strip_prefix("proxy-authorization: "));
        let login = login.map(|login| login.trim().to_owned());
        log.lock().unwrap().push((head[0].trim().to_owned(), login.clone()));
        let refused = match lets {
            Lets::Login(wanted) if login.as_deref() != Some(wanted) => Some(407),
            Lets::None(status) => Some(status),
            _ => None,
        };
        if let Some(status) = refused {
            write!(client, "HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n").ok()?;
            continue;
        }
        if head[0].starts_with("CONNECT ") {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
            return join(client, origin);
        }
        // Absolute form: the origin is handed the path alone.
        let path_start = head[0].find("://")? + 3;
        let path = head[0][path_start..].find('/')? + path_start;
        let method = head[0].split(' ').next()?.to_owned();
        write!(origin, "{method} {}", &head[0][path..]).ok()?;
        for line in &head[1..] {
            if !line.starts_with("proxy-") {
                origin.write_all(line.as_bytes()).ok()?;
            }
        }
        pass_answer(&mut origin, &mut client, &method)?;
    }
}

/// One answer with a content-length.
fn pass_answer(origin: &mut TcpStream, client: &mut TcpStream, method: &str) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        origin.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    client.write_all(&head).ok()?;
    let text = String::from_utf8_lossy(&head).into_owned();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<u64>().ok()?;
    let length = if method == "HEAD" { 0 } else { length };
    std::io::copy(&mut Read::by_ref(origin).take(length), client).ok().map(drop)
}

fn join(client: TcpStream, origin: TcpStream) -> Option<()> {
    let (mut up, mut down) = (client.try_clone().unwrap(), origin.try_clone().unwrap());
    let (mut client, mut origin) = (client, origin);
    let back = std::thread::spawn(move || {
        let _ = std::io::copy(&mut down, &mut up);
        let _ = up.shutdown(Shutdown::Both);
    });
    let _ = std::io::copy(&mut client, &mut origin);
    let _ = origin.shutdown(Shutdown::Both);
    back.join().ok()
}
