//! toxiproxy before an origin: it cuts and refuses connections, and makes links slow, as it is told over its
//! HTTP API.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};

use super::origin::own_address;
use crate::guard::{Guard, installed};
use crate::minio::cache;

/// A running toxiproxy. It ends when this is dropped and when the tests are killed.
pub struct Toxiproxy {
    api: SocketAddr,
    _guard: Guard,
}

/// One address of a toxiproxy, and what stands behind it.
pub struct Proxied {
    api: SocketAddr,
    name: String,
    pub address: SocketAddr,
}

impl Toxiproxy {
    pub fn start() -> Toxiproxy {
        let program = installed("toxiproxy", &[cache().join("bin/toxiproxy")]);
        let api = own_address();
        let (host, port) = (api.ip().to_string(), api.port().to_string());
        let command = [&program, "-host", &host, "-port", &port];
        // It logs each connection: two thousand objects are two thousand lines that nobody reads.
        let variables = [("LOG_LEVEL", "warn")];
        let mut guard = Guard::start(tempfile::tempdir().unwrap(), &command, &variables);
        guard.wait_for("toxiproxy", |_| TcpStream::connect(api).ok());
        Toxiproxy { api, _guard: guard }
    }

    /// Listens at `address` for `upstream`.
    #[track_caller]
    pub fn before(&self, address: SocketAddr, upstream: SocketAddr) -> Proxied {
        let name = address.to_string();
        let body = json!({"name": name, "listen": name, "upstream": upstream.to_string(), "enabled": true});
        ask(self.api, "POST", "/proxies", &body);
        Proxied { api: self.api, name, address }
    }
}

impl Proxied {
    /// Cuts the connections that are open and refuses new ones.
    #[track_caller]
    pub fn refuse(&self) {
        self.set_enabled(false);
    }

    /// Takes connections again.
    #[track_caller]
    pub fn serve(&self) {
        self.set_enabled(true);
    }

    fn set_enabled(&self, enabled: bool) {
        ask(self.api, "POST", &format!("/proxies/{}", self.name), &json!({"enabled": enabled}));
    }

    /// Adds a toxic of this type to what the origin answers, on every connection.
    #[track_caller]
    pub fn add_toxic(&self, kind: &str, attributes: &Value) {
        let body = json!({"name": kind, "type": kind, "stream": "downstream", "attributes": attributes});
        ask(self.api, "POST", &format!("/proxies/{}/toxics", self.name), &body);
    }

    #[track_caller]
    pub fn remove_toxic(&self, kind: &str) {
        let path = format!("/proxies/{}/toxics/{kind}", self.name);
        // It waits for links that nobody reads from, says 503 after 25 s, and goes on.
        for _ in 0..5 {
            let (status, answer) = asked(self.api, "DELETE", &path, &Value::Null);
            match status {
                200..300 | 404 => return,
                503 => {}
                _ => panic!("DELETE {path}: {answer}"),
            }
        }
        panic!("DELETE {path}: toxiproxy does not remove it");
    }
}

/// One request, which must be answered well.
#[track_caller]
fn ask(api: SocketAddr, method: &str, path: &str, body: &Value) {
    let (status, answer) = asked(api, method, path, body);
    assert!((200..300).contains(&status), "{method} {path} {body}: {answer}");
}

/// The status of one request, and its whole answer.
fn asked(api: SocketAddr, method: &str, path: &str, body: &Value) -> (u16, String) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(api).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {api}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default();
    (status, answer)
}

/// What the tests rely on: a proxy that refuses cuts what is open.
#[test]
fn toxiproxy_cuts_and_refuses() {
    let toxiproxy = Toxiproxy::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let proxied = toxiproxy.before(own_address(), listener.local_addr().unwrap());
    let mut open = TcpStream::connect(proxied.address).unwrap();
    let (mut upstream, _) = listener.accept().unwrap();
    upstream.write_all(b"here").unwrap();
    let mut got = [0; 4];
    open.read_exact(&mut got).unwrap();
    proxied.refuse();
    assert!(matches!(open.read(&mut got), Ok(0) | Err(_)), "the connection is still open");
    TcpStream::connect(proxied.address).expect_err("a new connection is refused");
    proxied.serve();
    TcpStream::connect(proxied.address).expect("it is taken again");
}
