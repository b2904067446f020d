//! The road of a get against an origin that does right and wrong: each test states what the caller must see.

mod appends;
mod bad_days;
mod checksums;
mod conditions;
mod copy_days;
mod ends;
mod formats;
mod keys;
mod listings;
mod made;
mod many;
mod origin;
mod oss;
mod places;
mod presigned;
mod reads;
mod starved;
mod thin;
mod trailers;
mod unlisted;
mod upload_days;
mod uploads;
mod verbs;
mod versions;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use flatout_engine::{
    AllocatedBuffer, Client, Config, Error, ErrorKind, Get, Landing, Report, Verified, stream,
};
use flatout_wire::checksum::Algorithm;
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use origin::{Asked, Origin, Reply, head_206, object, right};

const SIZE: u64 = 100_000;
const PART: u64 = 8_192;

fn config() -> Config {
    let mut config = Config::default();
    config.settings.part_bytes = Some(PART);
    config.settings.window_bytes = Some(4 * PART);
    config.settings.parallel = Some(4);
    config.settings.stall_timeout_ms = 400;
    config.settings.retries = 3;
    config.settings.outage_timeout_ms = 2_000;
    config
}

fn location(origin: &Origin) -> Location {
    Location::parse(&origin.url()).expect("a good URL")
}

fn read(origin: &Origin, span: Span) -> Result<(Vec<u8>, Report), ErrorKind> {
    let client = Client::new(config()).expect("good settings");
    let mut buffer = vec![0; SIZE as usize];
    let report = client.get_into(&location(origin), span, &mut buffer).map_err(|error| error.kind())?;
    buffer.truncate(report.bytes as usize);
    Ok((buffer, report))
}

/// The whole object must arrive, in as many retries, those of bodies that fell silent included.
fn check_whole(
    retries: std::ops::RangeInclusive<u32>,
    answer: impl Fn(&Asked, &[u8]) -> Reply + Send + Sync + 'static,
) {
    let body = object(SIZE);
    let origin = Origin::start(move |asked| answer(asked, &object(SIZE)));
    let (bytes, report) = read(&origin, Span::All).expect("the object arrives");
    assert!(bytes == body, "the bytes are right");
    let again = report.retries + report.tails.hedged;
    assert!(retries.contains(&again), "{again} retries");
}

fn check_error(expected: ErrorKind, answer: impl Fn(&Asked, &[u8]) -> Reply + Send + Sync + 'static) {
    let origin = Origin::start(move |asked| answer(asked, &object(SIZE)));
    assert_eq!(read(&origin, Span::All).expect_err("a failure"), expected);
}

#[test]
fn ranges_arrive_whole_and_pinned() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    for (span, expected) in [
        (Span::All, 0..SIZE),
        (Span::From(99_000), 99_000..SIZE),
        (Span::Slice(5..PART + 5), 5..PART + 5),
        (Span::Slice(90_000..200_000), 90_000..SIZE),
        (Span::Last(10), SIZE - 10..SIZE),
        (Span::Last(3 * PART), SIZE - 3 * PART..SIZE),
    ] {
        let (bytes, report) = read(&origin, span.clone()).expect("the range arrives");
        assert!(bytes == object(SIZE)[expected.start as usize..expected.end as usize], "{span:?}");
        assert_eq!((report.range, report.retries), (expected, 0));
    }
    let asked = origin.asked();
    assert_eq!(asked[0].header("if-match"), None, "the first request learns the version");
    assert!(
        asked[1..SIZE.div_ceil(PART) as usize].iter().all(|asked| asked.header("if-match") == Some("\"v1\""))
    );
    assert!(asked.iter().all(|asked| asked.header("accept-encoding") == Some("identity")));
}

#[test]
fn one_stream_is_no_error_however_its_end_is_told() {
    check_whole(0..=0, |_, body| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        Reply::Keep([head.as_bytes(), body].concat())
    });
    for framing in ["transfer-encoding: chunked\r\n", ""] {
        let origin = Origin::start(move |_| {
            let mut bytes = format!("HTTP/1.1 200 OK\r\n{framing}\r\n").into_bytes();
            for chunk in object(SIZE).chunks(7_001) {
                if !framing.is_empty() {
                    bytes.extend_from_slice(format!("{:x};ext=1\r\n", chunk.len()).as_bytes());
                }
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(if framing.is_empty() { b"" } else { b"\r\n" });
            }
            bytes.extend_from_slice(if framing.is_empty() { b"" } else { b"0\r\nx: y\r\n\r\n" });
            Reply::Close(bytes)
        });
        let bytes = read_stream(&origin).expect("a stream of unknown length");
        assert!(bytes == object(SIZE), "{framing:?}");
        assert_eq!(read(&origin, Span::All).expect_err("a buffer needs a length"), ErrorKind::Unsupported);
    }
}

fn read_stream(origin: &Origin) -> Result<Vec<u8>, ErrorKind> {
    read_stream_with(config(), origin)
}

fn read_stream_with(config: Config, origin: &Origin) -> Result<Vec<u8>, ErrorKind> {
    let client = Client::new(config).expect("good settings");
    let (writer, mut reader) = stream();
    let transfer =
        client.get(Get::new(location(origin), Landing::Stream(writer))).map_err(|error| error.kind())?;
    let mut bytes = Vec::new();
    while let Some(chunk) = reader.next() {
        bytes.extend_from_slice(chunk);
    }
    transfer.wait().map(|_| bytes).map_err(|error| error.kind())
}

#[test]
fn a_stream_is_in_order_through_a_small_window() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    assert!(read_stream(&origin).expect("the stream") == object(SIZE));
}

#[test]
fn more_workers_than_the_window_has_slots_all_end() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    let mut config = config();
    config.settings.parallel = Some(12);
    config.settings.window_bytes = Some(2 * PART);
    assert!(read_stream_with(config, &origin).expect("the stream") == object(SIZE));
}

#[test]
fn a_stream_whose_reader_leaves_is_cancelled() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    let client = Client::new(config()).expect("good settings");
    let (writer, mut reader) = stream();
    let transfer = client.get(Get::new(location(&origin), Landing::Stream(writer))).expect("a start");
    assert!(reader.next().is_some());
    drop(reader);
    assert_eq!(transfer.wait().expect_err("nobody reads").kind(), ErrorKind::Cancelled);

    // Also when all that is left fits into the window, and no worker waits for room.
    let is_gone = Arc::new(AtomicBool::new(false));
    let gone = is_gone.clone();
    let origin = Origin::start(move |asked| {
        while !gone.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Reply::Keep(right(asked, &object(SIZE)))
    });
    let mut config = config();
    config.settings.window_bytes = Some(2 * SIZE);
    let client = Client::new(config).expect("good settings");
    let (writer, reader) = stream();
    let transfer = client.get(Get::new(location(&origin), Landing::Stream(writer))).expect("a start");
    drop(reader);
    is_gone.store(true, Ordering::SeqCst);
    assert_eq!(transfer.wait().expect_err("nobody reads").kind(), ErrorKind::Cancelled);
}

#[test]
fn a_broken_stream_is_asked_for_again_and_passed_over() {
    check_whole(1..=1, |asked, body| {
        let head = format!("HTTP/1.1 200 OK\r\netag: \"v1\"\r\ncontent-length: {}\r\n\r\n", body.len());
        let sent = if asked.number == 0 { body.len() / 2 } else { body.len() };
        Reply::Close([head.as_bytes(), &body[..sent]].concat())
    });
}

#[test]
fn interim_answers_are_passed_over() {
    check_whole(0..=0, |asked, body| {
        Reply::Keep([b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", &right(asked, body)[..]].concat())
    });
}

#[test]
fn a_connection_closed_between_requests_costs_no_retry() {
    check_whole(0..=0, |asked, body| Reply::Close(right(asked, body)));
}

#[test]
fn a_truncated_body_is_asked_for_again_from_where_it_stopped() {
    let origin = Origin::start(|asked| {
        let bytes = right(asked, &object(SIZE));
        let cut = asked.range(SIZE).is_some_and(|range| range.end - range.start == PART);
        if cut { Reply::Close(bytes[..bytes.len() - 1_000].to_vec()) } else { Reply::Keep(bytes) }
    });
    let (bytes, report) = read(&origin, Span::All).expect("the object arrives");
    assert!(bytes == object(SIZE) && report.retries > 0);
    assert_eq!(report.fetched_bytes, SIZE, "nothing is fetched twice");
    assert!(
        origin
            .asked()
            .iter()
            .any(|asked| asked.range(SIZE).is_some_and(|range| range.end - range.start == 1_000))
    );
}

#[test]
fn a_body_that_is_always_truncated_is_an_error() {
    check_error(ErrorKind::Network, |asked, body| {
        let bytes = right(asked, body);
        let head = bytes.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
        Reply::Close(bytes[..head].to_vec())
    });
}

#[test]
fn a_stalled_body_is_asked_for_again() {
    let stalls = AtomicUsize::new(0);
    check_whole(1..=1, move |asked, body| {
        let bytes = right(asked, body);
        match asked.number == 3 && stalls.fetch_add(1, Ordering::SeqCst) == 0 {
            true => Reply::Hang(bytes[..bytes.len() - 5_000].to_vec()),
            false => Reply::Keep(bytes),
        }
    });
}

#[test]
fn an_origin_that_hangs_is_a_timeout() {
    check_error(ErrorKind::Timeout, |_, _| Reply::Hang(Vec::new()));
}

#[test]
fn a_busy_origin_is_asked_again_later() {
    check_whole(1..=1, |asked, body| match asked.number {
        0 => Reply::Keep(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n".to_vec()),
        _ => Reply::Keep(right(asked, body)),
    });
    check_error(ErrorKind::Network, |_, _| {
        Reply::Keep(b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n".to_vec())
    });
}

#[test]
fn a_replaced_object_is_never_mixed() {
    for later in ["\"v2\"", "W/\"v1\"", "v2"] {
        check_error(ErrorKind::Changed, move |asked, body| {
            let range = asked.range(SIZE).expect("a range");
            let etag = if asked.number == 0 { "\"v1\"" } else { later };
            let head = head_206(&range, SIZE, etag);
            Reply::Keep([head.as_bytes(), &body[range.start as usize..range.end as usize]].concat())
        });
    }
    check_error(ErrorKind::Changed, |asked, body| match asked.header("if-match") {
        Some(_) => Reply::Keep(b"HTTP/1.1 412 Precondition Failed\r\ncontent-length: 0\r\n\r\n".to_vec()),
        None => Reply::Keep(right(asked, body)),
    });
}

/// A proxy on the way, or one of several servers, leaves the quotes out.
#[test]
fn an_etag_without_its_quotes_is_the_same() {
    check_whole(0..=0, |asked, body| {
        let range = asked.range(SIZE).expect("a range");
        let etag = if asked.number == 0 { "\"v1\"" } else { "v1" };
        let head = head_206(&range, SIZE, etag);
        Reply::Keep([head.as_bytes(), &body[range.start as usize..range.end as usize]].concat())
    });
}

#[test]
fn only_a_strong_etag_pins() {
    for etag in ["W/\"v1\"", "v1"] {
        let origin = Origin::start(move |asked| {
            let range = asked.range(SIZE).expect("a range");
            let head = head_206(&range, SIZE, etag);
            Reply::Keep([head.as_bytes(), &object(SIZE)[range.start as usize..range.end as usize]].concat())
        });
        read(&origin, Span::All).expect("the object arrives");
        assert!(origin.asked().iter().all(|asked| asked.header("if-match").is_none()), "{etag}");
    }
}

#[test]
fn a_wrong_content_range_is_never_landed() {
    check_error(ErrorKind::Network, |asked, body| {
        let range = asked.range(SIZE).expect("a range");
        let moved = range.start + 1..(range.end + 1).min(SIZE);
        let head = head_206(&moved, SIZE, "\"v1\"");
        Reply::Keep([head.as_bytes(), &body[moved.start as usize..moved.end as usize]].concat())
    });
}

#[test]
fn an_empty_object_is_no_error() {
    let origin = Origin::start(|asked| match asked.header("range") {
        Some(_) => Reply::Keep(
            b"HTTP/1.1 416 Range\r\ncontent-range: bytes */0\r\ncontent-length: 0\r\n\r\n".to_vec(),
        ),
        None => Reply::Keep(b"HTTP/1.1 200 OK\r\netag: \"e\"\r\ncontent-length: 0\r\n\r\n".to_vec()),
    });
    let (bytes, report) = read(&origin, Span::All).expect("nothing arrives, well");
    assert_eq!((bytes.len(), report.version.etag.as_deref()), (0, Some("\"e\"")));
    assert_eq!(read(&origin, Span::From(5)).expect_err("no such range"), ErrorKind::Usage);
}

#[test]
fn the_end_of_an_empty_object_at_minio_was_asked_for_again_and_again() {
    let origin = Origin::start(|asked| match asked.header("range") {
        Some(_) => Reply::Keep(
            b"HTTP/1.1 206 Partial Content\r\ncontent-range: bytes 0--1/0\r\ncontent-length: 0\r\n\r\n"
                .to_vec(),
        ),
        None => Reply::Keep(b"HTTP/1.1 200 OK\r\netag: \"e\"\r\ncontent-length: 0\r\n\r\n".to_vec()),
    });
    let (bytes, report) = read(&origin, Span::Last(5)).expect("nothing arrives, well");
    assert_eq!((bytes.len(), report.retries), (0, 0));
}

#[test]
fn redirects_are_followed_and_leave_secrets_behind() {
    let target = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    let elsewhere = format!("http://{}/moved", target.address);
    let origin = Origin::start(move |_| {
        let head = format!("HTTP/1.1 302 Found\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n");
        Reply::Keep(head.into_bytes())
    });
    let location = format!("http://user:word@{}/object", origin.address);
    let location = Location::parse(&location).expect("a URL with a password");
    let mut buffer = vec![0; SIZE as usize];
    let client = Client::new(config()).expect("good settings");
    client.get_into(&location, Span::All, &mut buffer).expect("the object arrives");
    assert!(buffer == object(SIZE));
    assert!(origin.asked()[0].header("authorization").is_some());
    assert!(
        target.asked().iter().all(|asked| asked.path == "/moved" && asked.header("authorization").is_none())
    );
    let circle = Origin::start(|asked| {
        let head = format!("HTTP/1.1 302 Found\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n", asked.path);
        Reply::Keep(head.into_bytes())
    });
    assert_eq!(read(&circle, Span::All).expect_err("a circle"), ErrorKind::Network);
}

#[test]
fn a_redirect_that_expires_is_asked_for_again() {
    // Each ticket is good for three requests, as a signed URL is for some minutes.
    let target = Origin::start(|asked| {
        let ticket: usize = asked.path.rsplit('=').next().expect("a ticket").parse().expect("a number");
        match asked.number < 3 * (ticket + 1) {
            true => Reply::Keep(right(asked, &object(SIZE))),
            false => Reply::Keep(b"HTTP/1.1 403 Expired\r\ncontent-length: 0\r\n\r\n".to_vec()),
        }
    });
    let elsewhere = format!("http://{}/moved?ticket=", target.address);
    let origin = Origin::start(move |asked| {
        let head = format!(
            "HTTP/1.1 302 Found\r\nlocation: {elsewhere}{}\r\ncontent-length: 0\r\n\r\n",
            4 * asked.number
        );
        Reply::Keep(head.into_bytes())
    });
    let mut config = config();
    config.settings.parallel = Some(1);
    let client = Client::new(config).expect("good settings");
    let mut buffer = vec![0; SIZE as usize];
    client.get_into(&location(&origin), Span::All, &mut buffer).expect("the object arrives");
    assert!(buffer == object(SIZE) && origin.asked().len() > 1);
}

#[test]
fn a_cancelled_file_leaves_nothing() {
    let origin = Origin::start(|asked| match asked.number {
        0 => Reply::Keep(right(asked, &object(SIZE))),
        _ => Reply::Hang(Vec::new()),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config();
    config.settings.stall_timeout_ms = 60_000;
    let client = Client::new(config).expect("good settings");
    let get = || {
        client.get(Get::new(location(&origin), Landing::File(folder.path().join("file")))).expect("a start")
    };
    let left = || std::fs::read_dir(folder.path()).expect("the folder").count();

    let transfer = get();
    while transfer.progress().landed_bytes == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(left(), 1, "the temporary file is there while it runs");
    let (switch, before) = (transfer.cancel_switch(), Instant::now());
    switch.cancel();
    assert_eq!(transfer.wait().expect_err("cancelled").kind(), ErrorKind::Cancelled);
    assert!(before.elapsed() < Duration::from_secs(20), "a cancel does not wait for the origin");
    assert_eq!(left(), 0, "no file, whole or temporary");

    drop(get());
    assert_eq!(left(), 0, "a dropped transfer is a cancelled one");
    let transfer = get();
    drop(client);
    assert_eq!(transfer.wait().expect_err("no client").kind(), ErrorKind::Cancelled);
    assert_eq!(left(), 0, "a closed client cancels");
}

/// An S3 origin that states the object's CRC32C in its HEADs, after `refusals` of them have failed.
fn stating(refusals: usize) -> Origin {
    let left = AtomicUsize::new(refusals);
    Origin::start(move |asked| {
        if asked.method == "GET" {
            return Reply::Keep(right(asked, &object(SIZE)));
        }
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Reply::Close(b"HTTP/1.1 503 Slow Down\r\ncontent-length: 0\r\n\r\n".to_vec());
        }
        let sum = Algorithm::Crc32c.encode(Algorithm::Crc32c.of(&object(SIZE)));
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\netag: \"v1\"\r\nx-amz-checksum-crc32c: {sum}\r\nx-amz-checksum-type: FULL_OBJECT\r\n\r\n"
        );
        Reply::Keep(head.into_bytes())
    })
}

fn read_s3(origin: &Origin, span: Span) -> Result<Report, Error> {
    let mut config = config();
    config.settings.endpoint_url = Some(format!("http://{}", origin.address));
    let client = Client::new(config).expect("good settings");
    let location = Location::parse("s3://bucket/object").expect("a location");
    client.get_into(&location, span, &mut vec![0; SIZE as usize])
}

#[test]
fn a_range_that_is_the_whole_is_verified() {
    let whole = Verified::Whole(Algorithm::Crc32c);
    for (span, expected) in [
        (Span::All, whole),
        (Span::From(0), whole),
        (Span::Slice(0..2 * SIZE), whole),
        (Span::Last(SIZE), whole),
        (Span::From(1), Verified::None("a part of the object was read")),
    ] {
        let report = read_s3(&stating(0), span.clone()).expect("the object arrives");
        assert_eq!(report.verified, expected, "{span:?}");
    }
}

#[test]
fn a_whole_in_one_answer_is_one_plain_get_and_verified() {
    let origin = Origin::start(|asked| {
        let is_plain = asked.method == "GET" && asked.header("range").is_none();
        if asked.number > 0 || !is_plain || asked.header("x-amz-checksum-mode").is_none() {
            return Reply::Close(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n".to_vec());
        }
        let sum = Algorithm::Crc32c.encode(Algorithm::Crc32c.of(&object(SIZE)));
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\netag: \"v1\"\r\nx-amz-checksum-crc32c: {sum}\r\nx-amz-checksum-type: FULL_OBJECT\r\n\r\n"
        );
        Reply::Keep([head.as_bytes(), &object(SIZE)].concat())
    });
    let mut config = config();
    config.settings.endpoint_url = Some(format!("http://{}", origin.address));
    config.settings.retries = 0;
    let client = Client::new(config).expect("good settings");
    let location = Location::parse("s3://bucket/object").expect("a location");
    let made = AllocatedBuffer::new();
    let get = Get::new(location, Landing::Allocated(made.clone())).in_one_answer();
    let report = client.get(get).expect("a start").wait().expect("the object arrives");
    assert_eq!(report.verified, Verified::Whole(Algorithm::Crc32c));
    assert!(made.take().expect("it is whole").as_slice() == object(SIZE));
}

#[test]
fn a_statement_that_fails_once_is_asked_for_again() {
    let report = read_s3(&stating(1), Span::All).expect("the object arrives");
    assert_eq!(report.verified, Verified::Whole(Algorithm::Crc32c));
}

/// Its bytes may be wrong, and nobody has compared them.
#[test]
fn an_object_whose_statement_could_not_be_asked_for_does_not_pass_for_whole() {
    let error = read_s3(&stating(1000), Span::All).expect_err("no statement");
    assert_eq!(error.kind(), ErrorKind::Throttled);
    assert!(error.to_string().starts_with("read the checksum: s3://bucket/object: "), "{error}");
}

#[test]
fn a_dead_address_of_a_name_costs_no_retry() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    let mut config = config();
    config.settings.resolve = vec![format!("origin.test:{}:127.0.0.2,127.0.0.1", origin.address.port())];
    let client = Client::new(config).expect("good settings");
    let url = format!("http://origin.test:{}/object", origin.address.port());
    let location = Location::parse(&url).expect("a URL");
    let mut buffer = vec![0; SIZE as usize];
    let report = client.get_into(&location, Span::All, &mut buffer).expect("the object arrives");
    assert!(buffer == object(SIZE) && report.retries == 0, "{} retries", report.retries);
}

#[test]
fn an_object_that_shrinks_has_changed() {
    check_error(ErrorKind::Changed, |asked, body| match asked.number {
        0 => {
            let range = asked.range(SIZE).expect("a range");
            let head = head_206(&range, SIZE, "W/\"v1\"");
            Reply::Keep([head.as_bytes(), &body[range.start as usize..range.end as usize]].concat())
        }
        _ => Reply::Keep(b"HTTP/1.1 416 Range\r\ncontent-length: 0\r\n\r\n".to_vec()),
    });
}

#[test]
fn a_range_without_a_byte_is_refused() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    for span in [Span::Slice(5..5), Span::From(u64::MAX)] {
        assert_eq!(read(&origin, span).expect_err("nothing to read"), ErrorKind::Usage);
    }
    assert!(origin.asked().is_empty(), "nothing was asked for");
}

#[test]
fn a_stream_of_unknown_length_may_be_shorter_than_its_range() {
    let origin = Origin::start(|_| Reply::Close([b"HTTP/1.1 200 OK\r\n\r\n", &object(SIZE)[..50]].concat()));
    let (bytes, _) = read(&origin, Span::Slice(0..100)).expect("what there is");
    assert!(bytes == object(SIZE)[..50]);
}

#[test]
fn a_closed_client_starts_nothing() {
    let origin = stating(0);
    let mut config = config();
    config.settings.endpoint_url = Some(format!("http://{}", origin.address));
    let client = Client::new(config).expect("good settings");
    let mut listing =
        client.list(&Location::parse("s3://bucket/").expect("a bucket"), true).expect("a listing");
    drop(client);
    let refused = listing.next().expect("an answer").expect_err("a refusal");
    assert_eq!(refused.kind(), ErrorKind::Cancelled);
    assert!(origin.asked().is_empty());
}

#[test]
fn stat_follows_redirects() {
    let target = stating(0);
    let elsewhere = format!("http://{}/moved", target.address);
    let origin = Origin::start(move |_| {
        let head = format!("HTTP/1.1 301 Moved\r\nlocation: {elsewhere}\r\ncontent-length: 0\r\n\r\n");
        Reply::Keep(head.into_bytes())
    });
    let client = Client::new(config()).expect("good settings");
    let stat = client.stat(&location(&origin)).expect("an object");
    assert_eq!(stat.version.size, Some(SIZE));
    assert_eq!(target.asked()[0].path, "/moved");
}

#[test]
fn shards_share_the_parts() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    let mut config = config();
    config.settings.shards = 2;
    let client = Client::new(config).expect("good settings");
    let get = Get::new(location(&origin), Landing::Nowhere).with_part_records();
    let report = client.get(get).expect("a start").wait().expect("the object arrives");
    assert_eq!(report.bytes, SIZE);
    assert_eq!(report.parts.iter().map(|part| part.bytes).sum::<u64>(), SIZE);
    assert_eq!(report.parts.iter().map(|part| part.index).collect::<Vec<_>>(), (0..13).collect::<Vec<_>>());
    let connections: std::collections::HashSet<_> = report.parts.iter().map(|part| part.connection).collect();
    assert!(connections.iter().any(|&number| number < 1_000_000), "shard 0 took part");
    assert!(connections.iter().any(|&number| number >= 1_000_000), "shard 1 took part");
    assert_eq!(report.shards, 2);
}

/// A part's first byte was counted from when its turn came, with the wait for `--request-rate` in it.
#[test]
fn a_part_starts_when_its_request_is_sent() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    let mut config = config();
    (config.settings.parallel, config.settings.request_rate) = (Some(16), Some(40));
    let client = Client::new(config).expect("good settings");
    let get = Get::new(location(&origin), Landing::Nowhere).with_part_records();
    let report = client.get(get).expect("a start").wait().expect("the object arrives");
    let mut starts: Vec<f64> = report.parts.iter().map(|part| part.start_s).collect();
    starts.sort_by(f64::total_cmp);
    // Of 40 a second, two of which may be saved up.
    for (number, start_s) in starts.iter().enumerate().skip(3) {
        let sent_s = (number - 3) as f64 / 40.0;
        assert!(start_s - starts[0] >= sent_s, "request {number} was sent after {start_s} s: {starts:?}");
    }
    assert!(
        report.parts.iter().all(|part| part.start_s < part.first_byte_s && part.first_byte_s <= part.end_s)
    );
}
