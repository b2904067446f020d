//! Slowness: never faster than asked for; how much slower is the machine's business.

use std::time::{Duration, Instant};

use flatout_server::{Options, Origin, Store};

use crate::client::{options, send};

const SIZE: u64 = 1_000_000;

/// Seconds that `gets` GETs of `SIZE` bytes take, all at once.
fn seconds(options: Options, gets: u32) -> f64 {
    let origin = Origin::start(options).unwrap();
    let address = origin.addresses()[0];
    let start = Instant::now();
    let threads: Vec<_> = (0..gets)
        .map(|_| {
            std::thread::spawn(move || send(address, "GET", "/bucket/k", &[], b"").expect(200).body.len())
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().unwrap() as u64, SIZE);
    }
    start.elapsed().as_secs_f64()
}

fn object() -> Options {
    options(Store::Synthetic(vec![("bucket".to_owned(), "k".to_owned(), SIZE)], vec![]))
}

#[test]
fn rates_are_kept() {
    // Bursts and the first grain are worth 24 ms; a fifth is margin enough for them.
    let per_connection = seconds(Options { per_connection: Some(2 * SIZE), ..object() }, 1);
    assert!(per_connection > 0.4, "{per_connection} s for half a second's bytes");
    let total = seconds(Options { total: Some((4 * SIZE).into()), ..object() }, 2);
    assert!(total > 0.4, "{total} s for half a second's bytes");
    let both =
        seconds(Options { per_connection: Some(2 * SIZE), total: Some((1 << 40).into()), ..object() }, 2);
    assert!(both > 0.4, "{both} s for half a second's bytes");
}

#[test]
fn uploads_are_slowed_down_too() {
    let options = Options { per_connection: Some(2 * SIZE), sink: true, ..object() };
    let origin = Origin::start(options).unwrap();
    let start = Instant::now();
    send(origin.addresses()[0], "PUT", "/bucket/new", &[], &vec![0; SIZE as usize]).expect(200);
    let seconds = start.elapsed().as_secs_f64();
    assert!(seconds > 0.4, "{seconds} s for half a second's bytes");
}

#[test]
fn answers_wait_for_their_latency() {
    let origin = Origin::start(Options { latency: Duration::from_millis(100), ..object() }).unwrap();
    for (target, status) in [("/bucket/k", 200), ("/bucket/missing", 404)] {
        let start = Instant::now();
        send(origin.addresses()[0], "GET", target, &[], b"").expect(status);
        assert!(start.elapsed() >= Duration::from_millis(100), "{target}");
    }
}
