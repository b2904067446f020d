//! Reads here and there of one object: whatever the pattern, the bytes are right, and few are fetched that nobody reads.

use std::sync::mpsc;
use std::time::Duration;

use flatout_engine::{Client, Config, Error, ErrorKind, Object, Pieces, Reader};
use flatout_wire::location::Location;

use super::origin::{Origin, Reply, object, right};

/// A hang guard, no measure.
const PATIENCE: Duration = Duration::from_secs(60);
const ETAG: &str = "\"v1\"";
const MIB: u64 = 1 << 20;

fn client(change: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::default();
    config.settings.stall_timeout_ms = 2_000;
    config.settings.retries = 2;
    change(&mut config);
    Client::new(config).expect("good settings")
}

fn known(origin: &Origin, size: u64) -> Object {
    let location = Location::parse(&origin.url()).expect("a good URL");
    Object { location, size, etag: Some(ETAG.into()) }
}

/// Reads and waits for the answer.
fn read(reader: &Reader, at: u64, bytes: usize) -> Result<Vec<u8>, ErrorKind> {
    let (tell, told) = mpsc::channel();
    let _ = reader.read(at, bytes, move |result: Result<Pieces, Error>| {
        let told = result.map(|pieces| pieces.slices().collect::<Vec<_>>().concat());
        let _ = tell.send(told.map_err(|error| error.kind()));
    });
    told.recv_timeout(PATIENCE).expect("every read is answered")
}

#[test]
fn a_read_is_what_the_object_holds_there() {
    let body = object(3 * MIB);
    let served = body.clone();
    let origin = Origin::start(move |asked| Reply::Keep(right(asked, &served)));
    let client = client(|_| {});
    let reader = client.reader(known(&origin, 3 * MIB)).expect("an object");
    for (at, bytes) in [(0, 1), (0, 4096), (5, 100_000), (3 * MIB - 10, 100), (3 * MIB, 10), (4 * MIB, 1)] {
        let end = (at + bytes as u64).min(3 * MIB);
        let expected = &body[at.min(end) as usize..end as usize];
        assert!(read(&reader, at, bytes).expect("the bytes") == expected, "{at} {bytes}");
    }
    assert!(origin.asked().iter().all(|asked| asked.header("if-match") == Some(ETAG)), "each is pinned");
}
