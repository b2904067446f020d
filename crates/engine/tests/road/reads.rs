//! Reads here and there of one object: whatever the pattern, the bytes are right, and few are fetched that
//! nobody reads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use flatout_engine::{Client, Config, Error, ErrorKind, Object, Pieces, Reader, ReaderStats};
use flatout_wire::location::Location;

use super::origin::{Asked, Origin, Reply, head_206, object, right};

/// A hang guard, no measure.
const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const ETAG: &str = "\"v1\"";
pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;

fn client(change: impl FnOnce(&mut Config)) -> Client {
    let mut config = Config::default();
    config.settings.stall_timeout_ms = 20_000;
    config.settings.retries = 1;
    change(&mut config);
    Client::new(config).expect("good settings")
}

fn known(origin: &Origin, size: u64) -> Object {
    let location = Location::parse(&origin.url()).expect("a good URL");
    Object { location, size, etag: Some(ETAG.into()), modified_s: None }
}

/// An object, an origin that has it, and a reader of it.
pub(super) struct Scene {
    pub(super) body: Arc<Vec<u8>>,
    pub(super) reader: Reader,
    pub(super) client: Client,
    pub(super) origin: Origin,
}

impl Scene {
    fn new(size: u64, change: impl FnOnce(&mut Config)) -> Scene {
        let body = Arc::new(object(size));
        let served = body.clone();
        let origin = Origin::start(move |asked| Reply::Keep(right_whole(asked, &served)));
        Scene::at(origin, body, change)
    }

    pub(super) fn at(origin: Origin, body: Arc<Vec<u8>>, change: impl FnOnce(&mut Config)) -> Scene {
        let client = client(change);
        let reader = client.reader(known(&origin, body.len() as u64)).expect("an object");
        Scene { body, reader, client, origin }
    }

    /// Reads, and compares every byte.
    pub(super) fn read(&self, at: u64, bytes: u64) {
        let end = (at + bytes).min(self.body.len() as u64);
        let expected = &self.body[at.min(end) as usize..end as usize];
        assert!(read(&self.reader, at, bytes).expect("the bytes") == expected, "{bytes} at {at}");
    }

    pub(super) fn stats(&self) -> ReaderStats {
        self.client.reader_stats()
    }

    /// Waits until nothing is on its way any more; bytes fetched over bytes served.
    pub(super) fn amplification(&self) -> f64 {
        let mut before = self.stats().fetched_bytes;
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = self.stats().fetched_bytes;
            if now == before {
                return now as f64 / self.stats().served_bytes as f64;
            }
            before = now;
        }
    }
}

/// Reads and waits for the answer.
pub(super) fn read(reader: &Reader, at: u64, bytes: u64) -> Result<Vec<u8>, ErrorKind> {
    let (tell, told) = mpsc::channel();
    start(reader, at, bytes, move |result| drop(tell.send(result)));
    told.recv_timeout(PATIENCE).expect("every read is answered")
}

fn start(
    reader: &Reader,
    at: u64,
    bytes: u64,
    done: impl FnOnce(Result<Vec<u8>, ErrorKind>) + Send + 'static,
) {
    let _ = reader.read(at, bytes as usize, move |result: Result<Pieces, Error>| {
        done(result.map(|pieces| whole(&pieces)).map_err(|error| error.kind()));
    });
}

fn whole(pieces: &Pieces) -> Vec<u8> {
    let bytes = pieces.slices().collect::<Vec<_>>().concat();
    assert_eq!(bytes.len(), pieces.len());
    bytes
}

/// Numbers without a pattern.
fn scattered(count: u64, below: u64) -> impl Iterator<Item = u64> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    (0..count).map(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    })
}

#[test]
fn a_read_is_what_the_object_holds_there() {
    let scene = Scene::new(3 * MIB, |_| {});
    for (at, bytes) in [(0, 1), (0, 4096), (5, 100_000), (3 * MIB - 10, 100), (3 * MIB, 10), (4 * MIB, 1)] {
        scene.read(at, bytes);
    }
    assert!(
        scene.origin.asked().iter().all(|asked| asked.header("if-match") == Some(ETAG)),
        "each is pinned"
    );
}

#[test]
fn what_is_read_in_order_is_fetched_once_and_ahead() {
    for bytes in [128 * KIB, MIB, 100_001] {
        let size = 40 * MIB + 7;
        let scene = Scene::new(size, |_| {});
        for at in (0..size).step_by(bytes as usize) {
            scene.read(at, bytes);
        }
        let asked = scene.origin.asked().len();
        assert!(asked < 100, "{asked} requests");
        assert!(scene.amplification() <= 1.001, "{:?}", scene.stats());
        assert_eq!(scene.stats().served_bytes, size);
        assert_eq!(scene.stats().held_bytes, 0, "what has been read to the end is gone");
    }
}

#[test]
fn random_reads_are_requests_of_their_own() {
    for (bytes, most) in [(4 * KIB, 2.0), (128 * KIB, 1.1), (256 * KIB, 1.1)] {
        let size = 64 * MIB;
        let scene = Scene::new(size, |_| {});
        for block in scattered(150, size / bytes) {
            scene.read(block * bytes, bytes);
        }
        let amplification = scene.amplification();
        assert!(amplification <= most, "{amplification} for {bytes}: {:?}", scene.stats());
    }
}

#[test]
fn random_reads_cut_in_two_by_the_kernel_are_random_all_the_same() {
    let size = 64 * MIB;
    let scene = Scene::new(size, |_| {});
    for block in scattered(150, size / (256 * KIB)) {
        scene.read(block * 256 * KIB, 128 * KIB);
        scene.read(block * 256 * KIB + 128 * KIB, 128 * KIB);
    }
    let amplification = scene.amplification();
    assert!(amplification <= 1.2, "{amplification}: {:?}", scene.stats());
}

#[test]
fn random_reads_at_a_depth_are_in_flight_together() {
    let size = 64 * MIB;
    let body = Arc::new(object(size));
    let (served, now, most) = (body.clone(), AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let seen = most.clone();
    let origin = Origin::start(move |asked| {
        seen.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        // Answered when so many are there that it is certain; or when it is certain that they will not be.
        let waits = Instant::now();
        while seen.load(Ordering::SeqCst) < 30 && waits.elapsed() < PATIENCE / 2 {
            std::thread::sleep(Duration::from_millis(5));
        }
        now.fetch_sub(1, Ordering::SeqCst);
        Reply::Keep(right(asked, &served))
    });
    let scene = Scene::at(origin, body, |config| config.settings.stall_timeout_ms = 600_000);
    let (tell, told) = mpsc::channel();
    let blocks: Vec<u64> = scattered(32, size / (4 * KIB)).collect();
    for block in &blocks {
        let (tell, at) = (tell.clone(), block * 4 * KIB);
        start(&scene.reader, at, 4 * KIB, move |result| drop(tell.send((at, result))));
    }
    for _ in &blocks {
        let (at, result) = told.recv_timeout(PATIENCE).expect("every read is answered");
        let at = at as usize;
        assert!(result.expect("the bytes") == scene.body[at..at + 4096]);
    }
    let most = most.load(Ordering::SeqCst);
    assert!(most >= 30, "{most} in flight");
}

#[test]
fn strides_are_fetched_ahead_and_nothing_between() {
    let size = 64 * MIB;
    let scene = Scene::new(size, |_| {});
    for element in 0..100 {
        scene.read(element * 512 * KIB + 4096, 100_000);
    }
    scene.amplification();
    let stats = scene.stats();
    assert!(stats.random < 10, "{stats:?}");
    // What is ahead when it ends is not fetched in vain as long as it may go on.
    assert!(stats.fetched_bytes - stats.held_bytes <= 11 * stats.served_bytes / 10, "{stats:?}");
}

#[test]
fn streams_that_take_turns_on_one_handle_are_each_read_ahead_of() {
    let size = 64 * MIB;
    let scene = Scene::new(size, |_| {});
    for step in 0..128 {
        for stream in 0..4 {
            scene.read(stream * 16 * MIB + step * 128 * KIB, 128 * KIB);
        }
    }
    let asked = scene.origin.asked().len();
    assert!(asked < 190, "{asked} requests");
    assert!(scene.amplification() <= 1.02, "{:?}", scene.stats());
}

#[test]
fn memory_is_bounded_whoever_reads_slowly() {
    let (size, memory, streams) = (24 * MIB, 32 * MIB, 8);
    let scene = Scene::new(size * streams, |config| {
        config.settings.memory_bytes = memory;
        config.settings.parallel = Some(8);
    });
    let body = scene.body.clone();
    let over = AtomicUsize::new(0);
    let most = std::thread::scope(|scope| {
        for stream in 0..streams {
            let (reader, body, over) = (scene.reader.clone(), &body, &over);
            scope.spawn(move || {
                // Answers are held for a while before they are taken.
                let (tell, told) = mpsc::sync_channel(2);
                for at in (stream * size..(stream + 1) * size).step_by(256 << 10) {
                    let tell = tell.clone();
                    let _ = reader.read(at, 256 << 10, move |result| drop(tell.send(result)));
                    let pieces = told.recv_timeout(PATIENCE).expect("an answer").expect("the bytes");
                    if stream.is_multiple_of(2) {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    assert!(whole(&pieces) == body[at as usize..][..256 << 10], "{at}");
                }
                over.fetch_add(1, Ordering::SeqCst);
            });
        }
        let mut most = 0;
        while over.load(Ordering::SeqCst) < streams as usize {
            most = most.max(scene.client.memory_held());
            std::thread::sleep(Duration::from_millis(1));
        }
        most
    });
    // One answer at a time may be past it.
    assert!(most <= memory + 256 * KIB, "{most}: {:?}", scene.stats());
    assert!(scene.amplification() <= 1.3, "{:?}", scene.stats());
}

#[test]
fn answers_that_nobody_takes_keep_nobody_from_reading() {
    let size = 64 * MIB;
    let scene = Scene::new(size, |config| {
        config.settings.memory_bytes = 16 * MIB;
        config.settings.parallel = Some(4);
    });
    let (tell, told) = mpsc::channel();
    let mut held: Vec<Pieces> = Vec::new();
    // Four times of what there is, all of it held.
    for at in (0..size).step_by(1 << 20) {
        let tell = tell.clone();
        let _ = scene.reader.read(at, MIB as usize, move |result| drop(tell.send(result)));
        held.push(told.recv_timeout(PATIENCE).expect("an answer").expect("the bytes"));
    }
    for (at, pieces) in (0..size).step_by(1 << 20).zip(&held) {
        assert!(whole(pieces) == scene.body[at as usize..][..MIB as usize], "{at}");
    }
    drop(held);
    scene.read(5, 4096);
}

#[test]
fn many_objects_that_stay_open_yield_what_they_have_ahead() {
    let size = 16 * MIB;
    let scene = Scene::new(size, |config| {
        config.settings.memory_bytes = 24 * MIB;
        config.settings.parallel = Some(4);
    });
    let object = scene.reader.object().clone();
    let readers: Vec<Reader> = (0..40)
        .map(|number| {
            let location = Location::parse(&format!("{}-{number}", scene.origin.url())).expect("a good URL");
            scene.client.reader(Object { location, ..object.clone() }).expect("an object")
        })
        .collect();
    for at in [0, 128 * KIB, 256 * KIB] {
        for reader in &readers {
            assert!(
                read(reader, at, 128 * KIB).expect("the bytes") == scene.body[at as usize..][..128 << 10]
            );
        }
    }
    let (held, stats) = (scene.client.memory_held(), scene.stats());
    assert!(held <= 24 * MIB, "{held}: {stats:?}");
    drop(readers);
    scene.amplification();
    assert_eq!(scene.stats().held_bytes, 0, "nobody reads any more: {:?}", scene.stats());
    assert_eq!(scene.stats().lanes, 0);
}

#[test]
fn what_comes_next_in_a_series_is_begun_before_it_is_opened() {
    let size = 6 * MIB;
    let scene = Scene::new(size, |_| {});
    let object = scene.reader.object().clone();
    let location = Location::parse(&format!("{}-2", scene.origin.url())).expect("a good URL");
    let second = Object { location, ..object };
    let next = second.clone();
    scene.reader.set_next(move || Some(next));
    for at in (0..size).step_by(128 << 10) {
        scene.read(at, 128 * KIB);
    }
    let begun = |asked: &Asked| asked.path.ends_with("-2");
    let mut patience = 0..600;
    while !scene.origin.asked().iter().any(begun) {
        assert!(patience.next().is_some(), "it is begun");
        std::thread::sleep(Duration::from_millis(100));
    }
    scene.amplification();
    let waits = scene.stats().waits;
    let reader = scene.client.reader(second).expect("an object");
    assert!(read(&reader, 0, 128 * KIB).expect("the bytes") == scene.body[..128 << 10]);
    assert_eq!(scene.stats().waits, waits, "it was there");
}

#[test]
fn reading_backward_is_a_pattern() {
    let size = 32 * MIB;
    let scene = Scene::new(size, |_| {});
    for block in (0..size / (128 * KIB)).rev() {
        let at = block * 128 * KIB;
        scene.read(at, 128 * KIB);
    }
    let asked = scene.origin.asked().len();
    assert!(asked < 80, "{asked} requests");
    assert!(scene.amplification() <= 1.1, "{:?}", scene.stats());
}

#[test]
fn faults_that_ask_for_what_lies_around_them_are_read_ahead_of() {
    let size = 32 * MIB;
    let scene = Scene::new(size, |_| {});
    // As for a map that is walked when the kernel asks for 64 KiB before the fault and 64 behind.
    for at in (64 * KIB..size).step_by(64 << 10) {
        scene.read(at - 64 * KIB, 128 * KIB);
    }
    let asked = scene.origin.asked().len();
    assert!(asked < 90, "{asked} requests");
    let fetched = scene.stats();
    scene.amplification();
    assert!(scene.stats().fetched_bytes as f64 <= 1.05 * size as f64, "{fetched:?}");
}

#[test]
fn small_objects_are_one_request_each() {
    let size = 700 * KIB;
    let scene = Scene::new(size, |_| {});
    for at in (0..size).step_by(128 << 10) {
        scene.read(at, 128 * KIB);
    }
    scene.amplification();
    assert_eq!(scene.origin.asked().len(), 1);
    assert_eq!(scene.stats().held_bytes, 0, "read once, it is the kernel's to keep");
}

#[test]
fn readers_of_one_version_share_what_is_on_its_way() {
    let size = 900 * KIB;
    let body = Arc::new(object(size));
    let (served, may_go) = (body.clone(), Arc::new(AtomicBool::new(false)));
    let gate = may_go.clone();
    let origin = Origin::start(move |asked| {
        while !gate.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Reply::Keep(right_whole(asked, &served))
    });
    let scene = Scene::at(origin, body, |_| {});
    let other = scene.client.reader(scene.reader.object().clone()).expect("an object");
    let (tell, told) = mpsc::channel();
    for reader in [&scene.reader, &other] {
        let tell = tell.clone();
        start(reader, 0, size, move |result| drop(tell.send(result)));
    }
    may_go.store(true, Ordering::SeqCst);
    for _ in 0..2 {
        let bytes = told.recv_timeout(PATIENCE).expect("an answer").expect("the bytes");
        assert!(bytes == *scene.body);
    }
    assert_eq!(scene.origin.asked().len(), 1);
}

/// A right answer to a plain GET or to one of a range.
pub(super) fn right_whole(asked: &Asked, body: &[u8]) -> Vec<u8> {
    match asked.header("range") {
        Some(_) => right(asked, body),
        None => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\netag: {ETAG}\r\n\r\n", body.len());
            [head.as_bytes(), body].concat()
        }
    }
}

#[test]
fn a_version_that_was_replaced_is_never_mixed_with_the_new_one() {
    let size = 16 * MIB;
    let body = Arc::new(object(size));
    let (served, replaced) = (body.clone(), Arc::new(AtomicBool::new(false)));
    let is_replaced = replaced.clone();
    let origin = Origin::start(move |asked| match is_replaced.load(Ordering::SeqCst) {
        false => Reply::Keep(right(asked, &served)),
        true if asked.number.is_multiple_of(2) => {
            Reply::Keep(b"HTTP/1.1 412 Precondition Failed\r\ncontent-length: 0\r\n\r\n".to_vec())
        }
        // One that does not know If-Match.
        true => {
            let range = asked.range(size).expect("a range");
            let bytes = vec![7; (range.end - range.start) as usize];
            Reply::Keep([head_206(&range, size, "\"v2\"").as_bytes(), &bytes].concat())
        }
    });
    let scene = Scene::at(origin, body, |_| {});
    scene.read(9 * MIB, 4096);
    replaced.store(true, Ordering::SeqCst);
    for at in [MIB, 3 * MIB, 5 * MIB, 7 * MIB] {
        assert_eq!(read(&scene.reader, at, 4096), Err(ErrorKind::Changed));
    }
}

#[test]
fn a_failure_reaches_who_waits_and_the_next_read_tries_again() {
    let size = 16 * MIB;
    let body = Arc::new(object(size));
    let (served, fails) = (body.clone(), Arc::new(AtomicBool::new(true)));
    let failing = fails.clone();
    let origin = Origin::start(move |asked| match failing.load(Ordering::SeqCst) {
        true => Reply::Keep(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n".to_vec()),
        false => Reply::Keep(right(asked, &served)),
    });
    let scene = Scene::at(origin, body, |_| {});
    for _ in 0..3 {
        assert_eq!(read(&scene.reader, 0, 128 * KIB), Err(ErrorKind::Denied));
    }
    fails.store(false, Ordering::SeqCst);
    for at in (0..size).step_by(128 << 10) {
        scene.read(at, 128 * KIB);
    }
}

#[test]
fn what_is_fetched_ahead_may_fail_without_anybody_noticing() {
    let size = 16 * MIB;
    let body = Arc::new(object(size));
    let served = body.clone();
    // Only what begins within the first two mebibytes can be had.
    let origin =
        Origin::start(move |asked| match asked.range(size).is_some_and(|range| range.start < 2 * MIB) {
            true => Reply::Keep(right(asked, &served)),
            false => Reply::Keep(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n".to_vec()),
        });
    let scene = Scene::at(origin, body, |_| {});
    for at in (0..2 * MIB).step_by(128 << 10) {
        scene.read(at, 128 * KIB);
    }
    assert_eq!(read(&scene.reader, 9 * MIB, 4096), Err(ErrorKind::Denied));
}

#[test]
fn a_read_that_is_cancelled_is_never_answered() {
    let size = 16 * MIB;
    let origin = Origin::start(move |_| Reply::Hang(Vec::new()));
    let scene = Scene::at(origin, Arc::new(object(size)), |_| {});
    let called = Arc::new(AtomicBool::new(false));
    let calls = called.clone();
    let reading = scene.reader.read(8 * MIB, 4096, move |_| calls.store(true, Ordering::SeqCst));
    assert!(reading.cancel(), "it waited");
    drop(scene);
    assert!(!called.load(Ordering::SeqCst));
}

#[test]
fn reads_that_wait_are_answered_when_the_client_is_closed() {
    let origin = Origin::start(move |_| Reply::Hang(Vec::new()));
    let scene = Scene::at(origin, Arc::new(object(4 * MIB)), |_| {});
    let (tell, told) = mpsc::channel();
    start(&scene.reader, 0, 4096, move |result| drop(tell.send(result)));
    let Scene { client, reader, .. } = scene;
    drop(client);
    assert_eq!(told.recv_timeout(PATIENCE).expect("an answer"), Err(ErrorKind::Cancelled));
    assert_eq!(read(&reader, 0, 4096), Err(ErrorKind::Cancelled), "and so is whoever comes later");
}
