//! Addresses that are slow or dead.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use flatout_server::{Listen, Options, Origin, Rates, Store};

use crate::client::{options, send};

fn any() -> Listen {
    SocketAddr::from(([127, 0, 0, 1], 0)).into()
}

fn object(size: u64) -> Store {
    Store::Synthetic(vec![("bucket".to_owned(), "k".to_owned(), size)], vec![])
}

#[test]
fn a_dead_address_takes_no_connection_and_holds_nobody_else_up() {
    let listen = vec![Listen { dead: true, ..any() }, any(), Listen { dead: true, ..any() }];
    let origin = Origin::start(Options { listen, ..options(object(10)) }).unwrap();
    let addresses = origin.addresses().to_vec();
    assert!(origin.url().ends_with(&addresses[1].to_string()), "the first that answers: {}", origin.url());
    send(addresses[1], "GET", "/bucket/k", &[], b"").expect(200);
    for dead in [addresses[0], addresses[2]] {
        for _ in 0..3 {
            let tried = TcpStream::connect_timeout(&dead, Duration::from_millis(300));
            assert_eq!(tried.unwrap_err().kind(), ErrorKind::TimedOut);
        }
    }
    origin.stop().unwrap();
    for address in addresses {
        let tried = TcpStream::connect_timeout(&address, Duration::from_secs(5));
        assert_eq!(tried.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn an_origin_that_is_dead_altogether_is_none() {
    let listen = vec![Listen { dead: true, ..any() }];
    assert!(Origin::start(Options { listen, ..options(object(10)) }).is_err());
}

#[test]
fn an_address_has_a_rate_of_its_own() {
    let size = 1_000_000;
    let listen = vec![Listen { rate: Some(2 * size), ..any() }, any()];
    let origin = Origin::start(Options { listen, ..options(object(size)) }).unwrap();
    let seconds = |address: SocketAddr| {
        let start = Instant::now();
        let get = move || send(address, "GET", "/bucket/k", &[], b"").expect(200).body.len() as u64;
        let other = std::thread::spawn(get);
        assert_eq!(get() + other.join().unwrap(), 2 * size);
        start.elapsed().as_secs_f64()
    };
    let slow = seconds(origin.addresses()[0]);
    assert!(slow > 0.9, "two objects in {slow} s, at half an object's bytes a second");
    let fast = seconds(origin.addresses()[1]);
    assert!(fast < slow, "{fast} s without a rate, {slow} s with one");
}

#[test]
fn a_rate_of_all_changes_with_time() {
    let size = 1_000_000;
    let total =
        Rates { first: 1 << 30, then: vec![(Duration::ZERO, 2 * size), (Duration::from_secs(3600), 1)] };
    let origin = Origin::start(Options { total: Some(total), ..options(object(size)) }).unwrap();
    let start = Instant::now();
    send(origin.addresses()[0], "GET", "/bucket/k", &[], b"").expect(200);
    assert!(start.elapsed() > Duration::from_millis(400), "{:?}", start.elapsed());
}
