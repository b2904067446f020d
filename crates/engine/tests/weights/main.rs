//! What the engine's account says that it holds is what it does hold: no less than its threads have from the
//! allocator, and not many times as much. A binary of its own, since its allocator counts.
//! docs/decisions/memory.md has the figures.
#![allow(clippy::unwrap_used)] // Test code throughout; clippy.toml's exception knows only functions marked #[test].

mod allocator;
#[path = "../secure/certificates.rs"]
mod certificates;
#[allow(dead_code)]
#[path = "../road/origin.rs"]
mod origin;
#[allow(dead_code)]
#[path = "../secure/secure_origin.rs"]
mod secure_origin;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use allocator::{Counting, held_bytes};
use certificates::{Authority, NOW};
use flatout_engine::{Client, Config, Get, Landing, Wanted};
use flatout_wire::location::Location;
use origin::{Asked, Origin, Reply, object, right};
use secure_origin::{SecureOrigin, Wire, config};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One at a time: what is counted is the whole process's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn location(url: &str) -> Location {
    Location::parse(url).unwrap()
}

#[track_caller]
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "awaited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Bytes from the allocator, and by the client's account.
#[derive(Clone, Copy, Debug)]
struct Held {
    counted: i64,
    charged: i64,
}

fn held(client: &Client) -> Held {
    Held { counted: held_bytes(), charged: i64::try_from(client.memory_held()).unwrap() }
}

/// So many more things of a kind, from `few` to `many`: their account is right, and what each weighs is said.
#[track_caller]
fn check(what: &str, things: usize, few: Held, many: Held) {
    let each = |few: i64, many: i64| (many - few) / things as i64;
    let (counted, charged) = (each(few.counted, many.counted), each(few.charged, many.charged));
    println!("{what}: {counted} bytes each, charged {charged}");
    assert!(counted > 100, "{what}: {counted} bytes are no weight: what was meant to be held is not there");
    assert!(counted <= charged, "{what}: {counted} bytes each, and only {charged} are charged");
    assert!(charged <= 6 * counted, "{what}: {charged} bytes are charged for {counted}");
}

const PART: u64 = 64 << 10;

fn settings(parallel: usize) -> Config {
    let mut config = Config::default();
    config.settings.part_bytes = Some(PART);
    config.settings.parallel = Some(u32::try_from(parallel).unwrap());
    config.settings.shards = 1;
    // A quarter of it after half a part has come, what is there is looked at though more was asked for.
    config.settings.stall_timeout_ms = 20_000;
    config
}

/// Half of a right answer: the connection stands amid its body.
fn half(asked: &Asked, body: &[u8]) -> Reply {
    let mut bytes = right(asked, body);
    bytes.truncate(bytes.len() - PART as usize / 2);
    Reply::Keep(bytes)
}

/// What `count` connections hold, each with half a part behind it.
fn connections(config: Config, url: &str, count: usize) -> Held {
    let before = held_bytes();
    let client = Client::new(config).unwrap();
    let transfer = client.get(Get::new(location(url), Landing::Nowhere)).unwrap();
    let halves = count as u64 * PART / 2;
    wait_until("half of each part", || transfer.progress().fetched_bytes == halves);
    let held = held(&client);
    drop(transfer);
    Held { counted: held.counted - before, ..held }
}

const FEW: usize = 8;
const MANY: usize = 72;

#[test]
fn a_connection_weighs_what_is_charged_for_it() {
    let _alone = alone();
    let body = |count: usize| object(count as u64 * PART);
    let of = |count: usize| {
        let body = body(count);
        let origin = Origin::start(move |asked| half(asked, &body));
        connections(settings(count), &origin.url(), count)
    };
    check("a connection in plain", MANY - FEW, of(FEW), of(MANY));

    let authority = Authority::new();
    let identity = authority.identity(&["127.0.0.1"], NOW);
    let of = |count: usize| {
        let body = body(count);
        let tls = config(&identity, rustls::ALL_VERSIONS);
        let origin = SecureOrigin::start(tls, Wire::default(), move |asked| half(asked, &body));
        let mut config = settings(count);
        config.settings.ca_bundle = Some(authority.bundle());
        connections(config, &format!("https://{}/object", origin.address), count)
    };
    check("a connection over TLS", MANY - FEW, of(FEW), of(MANY));
}

#[test]
fn a_question_weighs_what_is_charged_for_its_connection() {
    let _alone = alone();
    let of = |count: usize| {
        let (asked, go_on) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (seen, may) = (asked.clone(), go_on.clone());
        let origin = Origin::start(move |_| {
            seen.fetch_add(1, Ordering::SeqCst);
            wait_until("leave to go on", || may.load(Ordering::SeqCst));
            Reply::Keep(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n".to_vec())
        });
        let (before, url) = (held_bytes(), origin.url());
        let client = Client::new(settings(1)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| client.stat(&location(&url)).unwrap());
            }
            wait_until("every question", || asked.load(Ordering::SeqCst) == count);
            let held = held(&client);
            go_on.store(true, Ordering::SeqCst);
            Held { counted: held.counted - before, ..held }
        })
    };
    check("a connection for questions", MANY - FEW, of(FEW), of(MANY));
}

/// Objects as a listing tells of them, made by the thread that reads them.
fn wanted(
    origin: &Origin,
    count: usize,
) -> impl Iterator<Item = Result<Wanted, flatout_engine::Error>> + use<> {
    let host = origin.address;
    (0..count).map(move |number| {
        let name = format!("{}-{number:06}", "name".repeat(20));
        let location = location(&format!("http://{host}/bucket/{name}"));
        Ok(Wanted { location, size: Some(100), name, keep_existing: false, modified_ns: None })
    })
}

#[test]
fn an_object_weighs_what_is_charged_for_it() {
    const SOME: usize = 500;
    const MORE: usize = 3_500;
    let _alone = alone();
    let of = |count: usize, answers: bool| {
        let go_on = Arc::new(AtomicBool::new(answers));
        let may = go_on.clone();
        let origin = Origin::start(move |_| {
            wait_until("leave to go on", || may.load(Ordering::SeqCst));
            Reply::Keep(
                [b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\netag: \"1\"\r\n\r\n", &[b'x'; 100][..]].concat(),
            )
        });
        let before = held_bytes();
        let client = Client::new(settings(4)).unwrap();
        let many = client
            .get_many(&location(&format!("http://{}/bucket/", origin.address)), wanted(&origin, count), None)
            .unwrap();
        let progress = || many.progress();
        match answers {
            true => wait_until("every report", || progress().ok == count as u64),
            false => {
                wait_until("every object", || progress().is_complete && progress().objects == count as u64)
            }
        }
        let held = held(&client);
        go_on.store(true, Ordering::SeqCst);
        drop(many);
        Held { counted: held.counted - before, ..held }
    };
    check("an object in the queue", MORE - SOME, of(SOME, false), of(MORE, false));
    check("an object's report", MORE - SOME, of(SOME, true), of(MORE, true));
}
