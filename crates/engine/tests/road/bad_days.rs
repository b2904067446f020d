//! Bad days that lasted too long, or were given up too early: each test is named after what went wrong.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use flatout_engine::{Client, Config, ErrorKind, Report};
use flatout_wire::location::Location;
use flatout_wire::range::Span;

use crate::origin::{Asked, Origin, Reply, head_206, object, right};

const SIZE: u64 = 1 << 20;

fn config(part_bytes: u64, retries: u32) -> Config {
    let mut config = crate::config();
    config.settings.part_bytes = Some(part_bytes);
    config.settings.window_bytes = Some(4 * SIZE);
    config.settings.retries = retries;
    config.settings.shards = 1;
    config
}

/// The whole object must arrive by that URL.
#[track_caller]
fn arrives(config: Config, url: &str) -> Report {
    let client = Client::new(config).expect("good settings");
    let mut buffer = vec![0; SIZE as usize];
    let report = client.get_into(&Location::parse(url).expect("a URL"), Span::All, &mut buffer);
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    assert!(buffer == object(SIZE), "the bytes are right");
    report
}

#[test]
fn a_body_that_broke_more_often_than_there_are_retries_failed() {
    // One part, of which each answer brings 64 KiB and a little more.
    let origin = Origin::start(|asked| {
        let body = object(SIZE);
        let range = asked.range(SIZE).expect("a range");
        let end = range.end.min(range.start + (64 << 10) + 1);
        let mut bytes = head_206(&range, SIZE, "\"v1\"").into_bytes();
        bytes.extend_from_slice(&body[range.start as usize..end as usize]);
        Reply::Close(bytes)
    });
    let report = arrives(config(SIZE, 1), &origin.url());
    assert_eq!(report.retries, 15, "each attempt asks for the rest");
    assert_eq!(report.fetched_bytes, SIZE, "and for nothing twice");
}

#[test]
fn a_throttled_part_gave_up_while_the_others_were_served() {
    // The second part is refused three times, and between two of these another part is served.
    let (served, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let wait_for = |count: &AtomicU64, least: u64| {
        while count.load(Ordering::SeqCst) < least {
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    let origin = Origin::start(move |asked| {
        let part = asked.range(SIZE).expect("a range").start / (64 << 10);
        if part == 1 && refused.load(Ordering::SeqCst) < 3 {
            wait_for(&served, refused.load(Ordering::SeqCst) + 1);
            // It has landed by now, also where others keep the machine busy.
            std::thread::sleep(Duration::from_millis(300));
            refused.fetch_add(1, Ordering::SeqCst);
            return Reply::Keep(b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n".to_vec());
        }
        if (2..5).contains(&part) {
            wait_for(&refused, part - 1);
        }
        served.fetch_add(1, Ordering::SeqCst);
        Reply::Keep(right(asked, &object(SIZE)))
    });
    let mut config = config(64 << 10, 1);
    config.settings.parallel = Some(2);
    config.settings.stall_timeout_ms = 20_000;
    assert_eq!(arrives(config, &origin.url()).retries, 3);
}

#[test]
fn a_listing_that_came_slowly_was_taken_for_silence() {
    let page = "<ListBucketResult><Contents><Key>key</Key><Size>5</Size></Contents></ListBucketResult>";
    let origin = Origin::start(move |_: &Asked| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", page.len());
        let mut pieces = vec![head.into_bytes()];
        pieces.extend(page.as_bytes().chunks(10).map(<[u8]>::to_vec));
        Reply::Trickle(pieces, Duration::from_millis(100))
    });
    let mut config = config(SIZE, 0);
    config.settings.endpoint_url = Some(format!("http://{}", origin.address));
    let client = Client::new(config).expect("good settings");
    let listing = client.list(&Location::parse("s3://bucket/").expect("a bucket"), true).expect("a listing");
    let names: Vec<String> = listing.map(|entry| entry.expect("an entry").name().to_owned()).collect();
    assert_eq!(names, ["key"]);
}

#[test]
fn an_error_document_that_broke_off_had_said_nothing() {
    let said = "<Error><Code>NoSuchBucket</Code><Message>gone</Mess";
    for reply in [Reply::Close as fn(Vec<u8>) -> Reply, Reply::Hang] {
        let origin = Origin::start(move |_: &Asked| {
            reply(format!("HTTP/1.1 404 No\r\ncontent-length: 500\r\n\r\n{said}").into_bytes())
        });
        let client = Client::new(config(SIZE, 0)).expect("good settings");
        let location = Location::parse(&origin.url()).expect("a URL");
        let error = client.get_into(&location, Span::All, &mut [0; 8]).expect_err("a refusal");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("no such bucket (404 NoSuchBucket"), "{error}");
    }
}

/// An address that takes connections and never answers, on the port of `origin`.
fn silent(origin: &Origin) -> TcpListener {
    let silent =
        TcpListener::bind(("127.0.0.2", origin.address.port())).expect("a free port of another address");
    silent.set_nonblocking(true).expect("it can");
    silent
}

#[test]
fn an_address_that_fails_cost_its_time_again_and_again() {
    let origin = Origin::start(|asked| Reply::Close(right(asked, &object(SIZE))));
    let (silent, port) = (silent(&origin), origin.address.port());
    let mut config = config(64 << 10, 2);
    config.settings.resolve = vec![format!("origin.test:{port}:127.0.0.2,127.0.0.1")];
    config.settings.parallel = Some(2);
    let report = arrives(config, &format!("http://origin.test:{port}/object"));
    assert!(report.connections >= 16, "each part needs a connection of its own: {}", report.connections);
    assert_eq!(report.retries, 1, "the silent address is tried once");
    let tried = std::iter::from_fn(|| silent.accept().ok()).count();
    assert_eq!(tried, 1, "connections to the silent address");
}

#[test]
fn where_all_addresses_fail_all_are_tried_again() {
    // Both break off the first three connections; only one of them is well later.
    let broken = Arc::new(AtomicU32::new(0));
    let count = broken.clone();
    let origin = Origin::start(move |asked| match count.fetch_add(1, Ordering::SeqCst) {
        0..3 => Reply::Close(Vec::new()),
        _ => Reply::Keep(right(asked, &object(SIZE))),
    });
    let port = origin.address.port();
    let mut config = config(64 << 10, 7);
    // Nobody listens on the second.
    config.settings.resolve = vec![format!("origin.test:{port}:127.0.0.1,127.0.0.3")];
    let report = arrives(config, &format!("http://origin.test:{port}/object"));
    // On a busy machine more of them fail.
    let (retries, asked) = (report.retries, broken.load(Ordering::SeqCst));
    assert!((3..=7).contains(&retries) && asked == 16 + retries, "{retries} retries, asked {asked} times");
}
