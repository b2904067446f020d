//! How an origin starts and stops.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};

use flatout_server::{Listen, Options, Origin, Store};

use crate::client::{connect, options, send, write_head};

fn listen(text: &str) -> Listen {
    Listen::from(text.parse::<SocketAddr>().unwrap())
}

fn endless() -> Options {
    options(Store::Synthetic(vec![("bucket".to_owned(), "k".to_owned(), 1 << 50)], vec![]))
}

#[test]
fn every_address_is_served() {
    let mut addresses = vec![listen("127.0.0.1:0"), listen("0.0.0.0:0")];
    let ipv6: SocketAddr = "[::1]:0".parse().unwrap();
    // A machine without IPv6 gets an error.
    match TcpListener::bind(ipv6) {
        Ok(_) => addresses.push(ipv6.into()),
        Err(_) => {
            let error = Origin::start(Options { listen: vec![ipv6.into()], ..endless() }).unwrap_err();
            assert!(error.to_string().contains("[::1]:0"), "{error}");
        }
    }
    let count = addresses.len();
    let origin = Origin::start(Options { listen: addresses, ..endless() }).unwrap();
    assert_eq!(origin.addresses().len(), count);
    for address in origin.addresses() {
        assert_ne!(address.port(), 0);
        send(*address, "HEAD", "/bucket/k", &[], b"").expect(200);
    }
    assert_eq!(origin.url(), format!("http://{}", origin.addresses()[0]));
}

#[test]
fn an_address_that_is_taken_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Origin::start(Options { listen: vec![address.into()], ..endless() }).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(Origin::start(Options { listen: Vec::new(), ..endless() }).is_err());
}

#[test]
fn stopping_closes_connections_and_frees_the_port() {
    let origin = Origin::start(endless()).unwrap();
    let address = origin.addresses()[0];
    let mut idle = connect(address);
    let mut busy: Vec<TcpStream> = (0..8).map(|_| connect(address)).collect();
    for connection in &mut busy {
        write_head(connection, "GET", "/bucket/k", &[], 0);
        connection.read_exact(&mut [0; 100_000]).unwrap();
    }
    origin.stop().unwrap();
    assert!(matches!(idle.read(&mut [0]), Ok(0) | Err(_)));
    for mut connection in busy {
        // What is in the socket's buffers still comes, then the end.
        while matches!(connection.read(&mut [0; 100_000]), Ok(1..)) {}
    }
    assert!(TcpStream::connect(address).is_err());
    drop(Origin::start(Options { listen: vec![address.into()], ..endless() }).unwrap());
}

#[test]
fn a_connection_serves_many_requests() {
    let origin = Origin::start(endless()).unwrap();
    let mut connection = connect(origin.addresses()[0]);
    for length in [1, 100_000, 7] {
        let head = format!("GET /bucket/k HTTP/1.1\r\nhost: x\r\nrange: bytes=5-{}\r\n\r\n", 4 + length);
        std::io::Write::write_all(&mut connection, head.as_bytes()).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            connection.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        assert!(head.starts_with(b"HTTP/1.1 206"));
        let (mut body, mut expected) = (vec![0; length], vec![0; length]);
        connection.read_exact(&mut body).unwrap();
        flatout_server::synthetic_bytes("bucket", "k", 5..5 + length as u64, &mut expected);
        assert!(body == expected);
    }
}
