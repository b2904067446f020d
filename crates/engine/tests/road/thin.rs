//! A link that carries little for all connections together: prefetch yields to reads that wait.

use std::sync::mpsc;
use std::time::Duration;

use flatout_engine::{Client, Config, Error, Object, Pieces, Reader};
use flatout_server::{Options, Origin, Store, synthetic_bytes};
use flatout_wire::location::Location;

/// A hang guard, no measure.
const PATIENCE: Duration = Duration::from_secs(60);
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const SIZE: u64 = 256 * MIB;
/// A second.
const CARRIES: u64 = 2 * MIB;

fn scene() -> (Origin, Client, Reader) {
    let store = Store::Synthetic(vec![("bucket".into(), "object".into(), SIZE)], vec![]);
    let origin = Origin::start(Options { total: Some(CARRIES.into()), ..Options::new(store) });
    let origin = origin.expect("a free port");
    let client = Client::new(Config::default()).expect("good settings");
    let location = Location::parse(&format!("{}/bucket/object", origin.url())).expect("a good URL");
    let object = Object { location, size: SIZE, etag: None, modified_s: None };
    let reader = client.reader(object).expect("an object");
    (origin, client, reader)
}

#[track_caller]
fn read(reader: &Reader, at: u64, bytes: u64) {
    let (tell, told) = mpsc::channel();
    let _ = reader.read(at, bytes as usize, move |result: Result<Pieces, Error>| drop(tell.send(result)));
    let pieces = told.recv_timeout(PATIENCE).expect("every read is answered").expect("the bytes");
    let mut right = vec![0; bytes as usize];
    synthetic_bytes("bucket", "object", at..at + bytes, &mut right);
    assert!(pieces.slices().collect::<Vec<_>>().concat() == right, "{bytes} at {at}");
}

/// Once thirty bodies of a window that had doubled with each wait shared the link with the one that was
/// waited for: of what the link brought a fifth was read.
#[test]
fn on_a_thin_link_most_of_what_comes_is_read() {
    let (_origin, client, reader) = scene();
    for at in (0..10 * MIB).step_by(256 << 10) {
        read(&reader, at, 256 * KIB);
        let held = client.reader_stats().held_bytes;
        // What the link carries in three seconds is 6 MiB, and a busy machine measures its bursts; a window
        // that only doubles has come to 34 MiB.
        assert!(held <= 16 * MIB, "{held} bytes are there or on their way at {at}");
    }
    let stats = client.reader_stats();
    assert!(stats.received_bytes - stats.served_bytes <= 8 * MIB, "{stats:?}");
}

/// Who jumps about shares the link with who reads in order, and with what is ahead of that.
#[test]
fn on_a_thin_link_who_jumps_is_served_beside_who_reads_in_order() {
    let (_origin, client, reader) = scene();
    for step in 0..24 {
        read(&reader, step * 256 * KIB, 256 * KIB);
        read(&reader, 100 * MIB + step * 5 * MIB, 16 * KIB);
    }
    let stats = client.reader_stats();
    assert!(stats.received_bytes - stats.served_bytes <= 8 * MIB, "{stats:?}");
}
