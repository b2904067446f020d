//! Deep listings of many pages: in order, several in flight, and whatever may happen to one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flatout_engine::{Client, Entry, ErrorKind, Listing};
use flatout_wire::location::Location;
use flatout_wire::percent;

use crate::origin::{Asked, Origin, Reply, answer};

/// Keys of a page.
const PAGE: usize = 100;

/// A parameter of a request.
fn parameter(asked: &Asked, name: &str) -> Option<String> {
    let (_, query) = asked.path.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(String::from_utf8(percent::decode(value).into_owned()).expect("a key is UTF-8"))
}

/// The key behind which a page begins.
fn after(asked: &Asked) -> Option<String> {
    parameter(asked, "continuation-token").or_else(|| parameter(asked, "start-after"))
}

fn key(number: usize) -> String {
    format!("p/{number:06}")
}

/// A page of `count` numbered keys, as an origin sends it that knows, or does not know, `start-after`.
fn page(asked: &Asked, count: usize, knows_start_after: bool) -> Reply {
    let after = if knows_start_after { after(asked) } else { parameter(asked, "continuation-token") };
    let first = (0..count)
        .collect::<Vec<_>>()
        .partition_point(|&number| after.as_ref().is_some_and(|after| key(number) <= *after));
    let end = (first + PAGE).min(count);
    let keys = (first..end).map(|number| {
        format!(
            "<Contents><Key>{}</Key><Size>{number}</Size><ETag>\"e{number}\"</ETag></Contents>",
            key(number)
        )
    });
    let more = match end < count {
        true => {
            let token = key(end - 1);
            format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>")
        }
        false => "<IsTruncated>false</IsTruncated>".to_owned(),
    };
    let keys: String = keys.collect();
    answer("200 OK", "", &format!("<ListBucketResult>{more}{keys}</ListBucketResult>"))
}

fn client(origin: &Origin) -> Client {
    let mut config = crate::config();
    config.settings.endpoint_url = Some(format!("http://{}", origin.address));
    config.settings.oss_endpoint = Some(format!("http://{}", origin.address));
    config.settings.parallel = Some(16);
    config.settings.stall_timeout_ms = 20_000;
    Client::new(config).expect("good settings")
}

fn list(client: &Client, url: &str) -> Listing {
    client.list(&Location::parse(url).expect("a bucket"), true).expect("a listing")
}

#[track_caller]
fn check_all(listing: Listing, count: usize) {
    for (number, entry) in listing.enumerate() {
        let Ok(Entry::Object(listed)) = entry else { panic!("number {number} is no object: {entry:?}") };
        assert_eq!((listed.key, listed.size as usize), (key(number), number));
        assert_eq!(listed.etag, Some(format!("\"e{number}\"")));
        assert!(number < count);
    }
}

#[test]
fn many_pages_in_flight_come_in_order_in_either_dialect() {
    for url in ["s3://bucket/p/", "oss://bucket/p/"] {
        let in_flight = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
        let counts = in_flight.clone();
        let origin = Origin::start(move |asked| {
            let now = counts.0.fetch_add(1, Ordering::SeqCst) + 1;
            counts.1.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            counts.0.fetch_sub(1, Ordering::SeqCst);
            page(asked, 20_000, true)
        });
        let client = client(&origin);
        let mut listing = list(&client, url);
        assert_eq!(listing.by_ref().take(19_999).filter(Result::is_ok).count(), 19_999);
        assert!(!listing.is_done(), "{url}");
        assert_eq!(listing.next().expect("an entry").expect("a good one").name(), key(19_999));
        assert!(listing.next().is_none() && listing.is_done());
        check_all(list(&client, url), 20_000);
        let most = in_flight.1.load(Ordering::SeqCst);
        assert!((8..=17).contains(&most), "{most} in flight");
        let requests = origin.asked().len() / 2;
        assert!((200..=235).contains(&requests), "{requests} requests for 200 pages");
    }
}

#[test]
fn pages_are_handed_out_one_by_one() {
    let origin = Origin::start(|asked| page(asked, 2_050, true));
    let client = client(&origin);
    let mut listing = list(&client, "s3://bucket/p/");
    let mut names = Vec::new();
    while !listing.is_done() {
        names.extend(listing.page().expect("a page").into_iter().map(|entry| entry.name().to_owned()));
    }
    assert_eq!(names, (0..2_050).map(key).collect::<Vec<_>>());
    assert!(listing.page().expect("nothing").is_empty());
}

#[test]
fn a_short_listing_costs_no_request_more() {
    for (count, requests) in [(0, 1), (100, 1), (101, 2), (200, 2)] {
        let origin = Origin::start(move |asked| page(asked, count, true));
        check_all(list(&client(&origin), "s3://bucket/p/"), count);
        assert_eq!(origin.asked().len(), requests, "{count} keys");
    }
    // Who needs one entry costs one page.
    let origin = Origin::start(|asked| page(asked, 5_000, true));
    let client = client(&origin);
    let mut listing = list(&client, "s3://bucket/p/");
    assert!(listing.next().is_some_and(|entry| entry.is_ok()));
    drop((listing, client));
    assert_eq!(origin.asked().len(), 1);
}

#[test]
fn pages_of_a_size_come_one_after_the_other() {
    let origin = Origin::start(|asked| {
        assert_eq!(parameter(asked, "max-keys").as_deref(), Some("7"));
        page(asked, 1_000, true)
    });
    check_all(list(&client(&origin), "s3://bucket/p/").in_pages_of(7), 1_000);
    assert_eq!(origin.asked().len(), 10);
    assert!(origin.asked().iter().all(|asked| parameter(asked, "start-after").is_none()));
}

#[test]
fn a_page_that_fails_is_asked_for_again_by_itself() {
    let failed = AtomicUsize::new(0);
    let origin = Origin::start(move |asked| {
        if asked.number % 5 == 4 && failed.fetch_add(1, Ordering::SeqCst) < 20 {
            return Reply::Close(b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n".to_vec());
        }
        page(asked, 10_000, true)
    });
    check_all(list(&client(&origin), "s3://bucket/p/"), 10_000);
    let requests = origin.asked().len();
    assert!(requests <= 20 + 125, "{requests} requests, 20 of which failed");
}

#[test]
fn an_origin_that_asks_for_less_is_asked_less() {
    let (now, most_late) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (counted, late) = (now.clone(), most_late.clone());
    let refused = AtomicUsize::new(0);
    let origin = Origin::start(move |asked| {
        let in_flight = counted.fetch_add(1, Ordering::SeqCst) + 1;
        std::thread::sleep(Duration::from_millis(2));
        counted.fetch_sub(1, Ordering::SeqCst);
        if in_flight > 6 && refused.fetch_add(1, Ordering::SeqCst) < 6 {
            return Reply::Keep(b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n".to_vec());
        }
        late.fetch_max(if asked.number > 250 { in_flight } else { 0 }, Ordering::SeqCst);
        page(asked, 30_000, true)
    });
    check_all(list(&client(&origin), "s3://bucket/p/"), 30_000);
    let late = most_late.load(Ordering::SeqCst);
    assert!(late <= 8, "{late} in flight, after it was told of too much");
}

#[test]
fn an_error_comes_when_everything_before_it_has_been_handed_out() {
    let origin = Origin::start(|asked| match after(asked) {
        Some(after) if after.as_str() >= "p/005" => {
            answer("403 No", "", "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
        }
        _ => page(asked, 20_000, true),
    });
    let client = client(&origin);
    let mut listing = list(&client, "s3://bucket/p/");
    let mut count = 0;
    let error = loop {
        match listing.next().expect("an error comes") {
            Ok(entry) => assert_eq!(entry.name(), key(count)),
            Err(error) => break error,
        }
        count += 1;
    };
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(error.to_string().starts_with("list: s3://bucket/p/: "), "{error}");
    assert!((5_000..=5_100).contains(&count), "{count} entries, as one page after the other shows");
    assert!(listing.next().is_none() && listing.is_done());
}

#[test]
fn an_origin_without_start_after_is_listed_page_after_page() {
    let origin = Origin::start(|asked| page(asked, 10_000, false));
    check_all(list(&client(&origin), "s3://bucket/p/"), 10_000);
    let requests = origin.asked().len();
    assert!(requests <= 100 + 8, "{requests} requests");

    let origin = Origin::start(|asked| match parameter(asked, "start-after") {
        Some(_) => answer("501 No", "", "<Error><Code>NotImplemented</Code></Error>"),
        None => page(asked, 10_000, true),
    });
    check_all(list(&client(&origin), "s3://bucket/p/"), 10_000);
    let requests = origin.asked().len();
    assert!(requests <= 100 + 8, "{requests} requests");
}

#[test]
fn a_listing_that_is_dropped_asks_for_nothing_more() {
    let hangs = Arc::new(AtomicBool::new(false));
    let hanging = hangs.clone();
    let origin = Origin::start(move |asked| match hanging.load(Ordering::SeqCst) {
        true => Reply::Hang(Vec::new()),
        false => page(asked, 100_000, true),
    });
    let client = client(&origin);
    let mut listing = list(&client, "s3://bucket/p/");
    assert_eq!(listing.by_ref().take(2_000).filter(Result::is_ok).count(), 2_000);
    hangs.store(true, Ordering::SeqCst);
    let begun = Instant::now();
    drop(listing);
    drop(client);
    assert!(begun.elapsed() < Duration::from_secs(10), "nothing of it is waited for");
    let requests = origin.asked().len();
    assert!(requests < 200, "{requests} requests");
}

#[test]
fn a_closed_client_ends_a_listing_in_the_middle() {
    let origin = Origin::start(|asked| page(asked, 100_000, true));
    let client = client(&origin);
    let mut listing = list(&client, "s3://bucket/p/");
    assert_eq!(listing.by_ref().take(1_000).filter(Result::is_ok).count(), 1_000);
    drop(client);
    let error = listing.find_map(Result::err).expect("it ends early");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
}

#[test]
fn pages_that_wait_count_as_memory_and_stay_within_it() {
    let origin = Origin::start(|asked| page(asked, 60_000, true));
    let mut config = crate::config();
    config.settings.endpoint_url = Some(format!("http://{}", origin.address));
    config.settings.memory_bytes = 16 << 20;
    let client = Client::new(config).expect("good settings");
    let before = client.memory_held();
    let mut most = 0;
    let mut listing = list(&client, "s3://bucket/p/");
    for number in 0..60_000 {
        let entry = listing.next().expect("an entry").expect("a good one");
        assert_eq!(entry.name(), key(number));
        most = most.max(client.memory_held() - before);
        if number == 3_000 {
            // Whatever may be asked for has come.
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    drop(listing);
    // A sixteenth for pages that wait, and what has just arrived.
    assert!(most > 0 && most < (1 << 20) + (512 << 10), "{most} bytes");
    assert!(client.memory_held() <= before + (1 << 20), "{} bytes are left", client.memory_held() - before);
}
