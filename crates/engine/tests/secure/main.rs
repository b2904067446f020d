//! TLS and proxies on the road of a get: whom the client trusts, what is resumed, and one clear line for what
//! is wrong.
#![allow(clippy::unwrap_used)] // Test code throughout; clippy.toml's exception knows only functions marked #[test].

mod certificates;
mod proxied;
mod proxy;
mod secure_origin;
mod surveyed;
mod trust;

// The origin in plain HTTP, and what a right answer is, are those of the road's tests.
#[allow(dead_code)]
#[path = "../road/origin.rs"]
mod origin;

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

use certificates::{Authority, NOW};
use flatout_engine::{Client, Config, Error, Get, Landing, Report, stream};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use origin::{Asked, Reply, object, right};
use rustls::version::{TLS12, TLS13};
use secure_origin::{SecureOrigin, Version, Wire, config};

const SIZE: u64 = 1_000_000;
const PART: u64 = 300_000;

/// Settings under which nothing is tried twice and nothing ever gives up: what hangs is seen by [`in_time`].
fn settings(authority: &Authority) -> Config {
    let mut config = Config::default();
    config.settings.part_bytes = Some(PART);
    config.settings.window_bytes = Some(2 * PART);
    config.settings.parallel = Some(3);
    config.settings.retries = 0;
    config.settings.stall_timeout_ms = 3_600_000;
    config.settings.connect_timeout_ms = 60_000;
    config.settings.ca_bundle = Some(authority.bundle());
    config
}

fn location(url: &str) -> Location {
    Location::parse(url).unwrap()
}

fn read(config: Config, url: &str) -> Result<(Vec<u8>, Report), Error> {
    let client = Client::new(config)?;
    let mut buffer = vec![0; SIZE as usize];
    let report = client.get_into(&location(url), Span::All, &mut buffer)?;
    Ok((buffer, report))
}

/// Fails when `work` hangs, instead of hanging with it.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, end) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    end.recv_timeout(Duration::from_secs(100)).expect("it neither hangs nor panics")
}

fn serve_object(asked: &Asked) -> Reply {
    Reply::Keep(right(asked, &object(SIZE)))
}

/// The object arrives in one attempt a part, into memory and as a stream, however its wire is cut.
#[track_caller]
fn check(versions: &[Version], wire: Wire) {
    let authority = Authority::new();
    let origin =
        SecureOrigin::start(config(&authority.identity(&["127.0.0.1"], NOW), versions), wire, serve_object);
    let url = format!("https://{}/object", origin.address);
    let (memory, streamed) = (settings(&authority), settings(&authority));
    let (bytes, report) = in_time({
        let url = url.clone();
        move || read(memory, &url).unwrap()
    });
    assert!(bytes == object(SIZE) && report.retries == 0, "{wire}");
    let bytes = in_time(move || {
        let client = Client::new(streamed).unwrap();
        let (writer, mut reader) = stream();
        let transfer = client.get(Get::new(location(&url), Landing::Stream(writer))).unwrap();
        let mut bytes = Vec::new();
        while let Some(chunk) = reader.next() {
            bytes.extend_from_slice(chunk);
        }
        transfer.wait().unwrap();
        bytes
    });
    assert!(bytes == object(SIZE), "{wire}");
}

impl std::fmt::Display for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "records of {:?}, pause at {:?}", self.fragment, self.pause_at)
    }
}

#[test]
fn objects_arrive_over_both_versions_and_in_records_of_any_size() {
    for versions in [&[&TLS13][..], &[&TLS12]] {
        for fragment in [None, Some(16_384), Some(1_000), Some(37)] {
            check(versions, Wire { fragment, ..Wire::default() });
        }
    }
}

#[test]
fn no_byte_is_waited_for_that_has_been_taken_in() {
    // The last bytes of a body arrive after a record of it was taken in by half: a floor above what is still
    // to come would wait for ever.
    let wire_bytes = PART as usize + 19 * 22;
    for pause_at in
        [1, 200_000, wire_bytes - 20_000, wire_bytes - 16_000, wire_bytes - 9_000, wire_bytes - 30]
    {
        check(&[&TLS13], Wire { pause_at: Some(pause_at), ..Wire::default() });
        check(&[&TLS12], Wire { pause_at: Some(pause_at), ..Wire::default() });
    }
}

/// The answer with `connection: close` in its head.
fn closing(answer: Vec<u8>) -> Vec<u8> {
    let line = answer.windows(2).position(|two| two == b"\r\n").unwrap() + 2;
    [&answer[..line], b"connection: close\r\n", &answer[line..]].concat()
}

#[test]
fn sessions_are_resumed_by_all_shards() {
    for version in [&TLS13, &TLS12] {
        let authority = Authority::new();
        let identity = authority.identity(&["127.0.0.1"], NOW);
        // Each answer ends its connection, so that every part needs a new one.
        let origin = SecureOrigin::start(config(&identity, &[version]), Wire::default(), |asked| {
            Reply::Close(closing(right(asked, &object(SIZE))))
        });
        let mut config = settings(&authority);
        (config.settings.parallel, config.settings.shards) = (Some(2), 2);
        config.settings.part_bytes = Some(SIZE / 10);
        let url = format!("https://{}/object", origin.address);
        let (bytes, report) = in_time(move || read(config, &url).unwrap());
        assert!(bytes == object(SIZE));
        let full = origin.seen.full.load(Ordering::SeqCst);
        assert_eq!(report.connections, 10, "one for each part");
        assert_eq!(origin.resumed() + full, 10);
        assert!(full <= 2, "{full} full handshakes: at most one for each of the first two workers");
    }
}

#[test]
fn aes_goes_first_where_the_cpu_has_it() {
    let authority = Authority::new();
    let origin = SecureOrigin::start(
        config(&authority.identity(&["127.0.0.1"], NOW), &[&TLS13]),
        Wire::default(),
        serve_object,
    );
    let (url, config) = (format!("https://{}/object", origin.address), settings(&authority));
    in_time(move || read(config, &url).unwrap());
    let agreed = origin.seen.suites.lock().unwrap().clone();
    #[cfg(target_arch = "x86_64")]
    let wanted =
        if std::arch::is_x86_feature_detected!("aes") { "TLS13_AES_128_GCM" } else { "TLS13_CHACHA20" };
    #[cfg(not(target_arch = "x86_64"))]
    let wanted = "TLS13_";
    assert!(agreed.iter().all(|suite| suite.starts_with(wanted)), "{agreed:?}");
}

#[test]
fn head_requests_and_names_go_over_tls_too() {
    let authority = Authority::new();
    let origin = SecureOrigin::start(
        config(&authority.identity(&["origin.test"], NOW), &[&TLS13]),
        Wire::default(),
        |asked| match asked.method.as_str() {
            "HEAD" => {
                Reply::Keep(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\netag: \"v1\"\r\n\r\n".to_vec())
            }
            _ => serve_object(asked),
        },
    );
    for host in ["origin.test", "origin.test."] {
        let mut config = settings(&authority);
        config.settings.resolve = vec![format!("{host}:127.0.0.1")];
        let url = format!("https://{host}:{}/object", origin.address.port());
        in_time(move || {
            let client = Client::new(config).unwrap();
            assert_eq!(client.stat(&location(&url)).unwrap().version.size, Some(SIZE));
            let mut buffer = vec![0; SIZE as usize];
            client.get_into(&location(&url), Span::All, &mut buffer).unwrap();
            assert!(buffer == object(SIZE));
        });
    }
    let names = origin.seen.names.lock().unwrap().clone();
    assert!(names.iter().all(|name| name.as_deref() == Some("origin.test")), "{names:?}");
}
