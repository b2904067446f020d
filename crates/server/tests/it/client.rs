//! A blocking HTTP client of few lines, and origins to drive with it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use flatout_server::{Options, Origin, Store};

/// An answer, with its body read to the end of the connection.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// The text of the first XML element of this name.
    pub fn xml(&self, name: &str) -> Option<String> {
        self.xml_all(name).into_iter().next()
    }

    pub fn xml_all(&self, name: &str) -> Vec<String> {
        let text = String::from_utf8(self.body.clone()).unwrap();
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        text.split(&open).skip(1).map(|rest| rest.split(&close).next().unwrap().to_owned()).collect()
    }

    #[track_caller]
    pub fn expect(self, status: u16) -> Answer {
        assert_eq!(self.status, status, "{:?} {}", self.headers, String::from_utf8_lossy(&self.body));
        self
    }
}

pub type Headers<'a> = &'a [(&'a str, &'a str)];

/// Sends one request and reads its answer; the connection is closed after it.
pub fn send(address: SocketAddr, method: &str, target: &str, headers: Headers, body: &[u8]) -> Answer {
    let mut connection = connect(address);
    write_head(&mut connection, method, target, headers, body.len());
    // A refused body may not be read to its end; the answer counts.
    let _ = connection.write_all(body);
    let mut bytes = Vec::new();
    connection.read_to_end(&mut bytes).unwrap();
    parse(&bytes)
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    connection
}

pub fn write_head(connection: &mut TcpStream, method: &str, target: &str, headers: Headers, bytes: usize) {
    let mut head = format!("{method} {target} HTTP/1.1\r\nconnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "host") {
        head.push_str("host: 127.0.0.1\r\n");
    }
    if bytes > 0 || method == "PUT" || method == "POST" {
        head.push_str(&format!("content-length: {bytes}\r\n"));
    }
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    connection.write_all(format!("{head}\r\n").as_bytes()).unwrap();
}

pub fn parse(bytes: &[u8]) -> Answer {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head");
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: Vec<(String, String)> = lines
        .map(|line| line.split_once(": ").unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    assert!(!headers.iter().any(|(name, _)| name == "transfer-encoding"), "{head}");
    Answer { status, headers, body: bytes[end + 4..].to_vec() }
}

pub fn options(store: Store) -> Options {
    Options::new(store)
}

/// An origin that nobody else knows, with a bucket named `bucket`.
pub struct Lab {
    pub origin: Origin,
    pub root: Option<tempfile::TempDir>,
}

impl Lab {
    pub fn memory() -> Lab {
        Lab { origin: Origin::start(options(Store::Memory)).unwrap(), root: None }.with_bucket()
    }

    pub fn root() -> Lab {
        // Not in /tmp: a tmpfs has no extended attributes before Linux 6.6.
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let origin = Origin::start(options(Store::Root(root.path().to_owned()))).unwrap();
        Lab { origin, root: Some(root) }.with_bucket()
    }

    fn with_bucket(self) -> Lab {
        self.send("PUT", "/bucket", &[], b"").expect(200);
        self
    }

    pub fn address(&self) -> SocketAddr {
        self.origin.addresses()[0]
    }

    pub fn send(&self, method: &str, target: &str, headers: Headers, body: &[u8]) -> Answer {
        send(self.address(), method, target, headers, body)
    }

    pub fn get(&self, target: &str) -> Answer {
        self.send("GET", target, &[], b"")
    }

    pub fn put(&self, target: &str, body: &[u8]) -> Answer {
        self.send("PUT", target, &[], body).expect(200)
    }

    /// Where the files are, for what holds for `--root` alone.
    pub fn path(&self) -> &std::path::Path {
        self.root.as_ref().unwrap().path()
    }
}

/// One test over every store that can be written.
pub fn each(test: fn(&Lab)) {
    for lab in [Lab::memory(), Lab::root()] {
        test(&lab);
    }
}

/// Bytes that differ everywhere.
pub fn bytes(key: &str, length: usize) -> Vec<u8> {
    let mut out = vec![0; length];
    flatout_server::synthetic_bytes("test", key, 0..length as u64, &mut out);
    out
}

/// CRC64NVME as S3's header carries it.
pub fn crc64nvme(bytes: &[u8]) -> String {
    use flatout_wire::checksum::Algorithm::Crc64Nvme;
    Crc64Nvme.encode(Crc64Nvme.of(bytes))
}
