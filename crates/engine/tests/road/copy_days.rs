//! Copies within S3 of objects that one request cannot carry: which parts they have, and what becomes of them
//! when one part fails.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use flatout_engine::{Client, Error, ErrorKind, Report, ServerCopy};
use flatout_wire::location::Location;
use flatout_wire::object_options::Condition;

use super::checksums;
use super::origin::{Asked, Origin, Reply, answer};

const GIB: u64 = 1 << 30;
/// One request copies 5 GiB at most.
const SIZE: u64 = 6 * GIB;

fn copied(etag: &str) -> Reply {
    answer("200 OK", "", &format!("<CopyPartResult><ETag>\"{etag}\"</ETag></CopyPartResult>"))
}

/// As Amazon says that a copy failed after it had begun to answer.
fn failed(code: &str) -> Reply {
    let declaration = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    let error = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    answer("200 OK", "", &format!("{declaration}      {error}"))
}

/// Copies an object of 6 GiB in parts of that length. What the second part is answered, `second` says, by how
/// often it was asked for before; the source has then been replaced where `replaces`.
fn copy(
    part_bytes: Option<u64>,
    replaces: bool,
    second: impl Fn(usize) -> Reply + Send + Sync + 'static,
) -> (Result<Report, Error>, Vec<Asked>) {
    let (tries, is_replaced) = (AtomicUsize::new(0), AtomicBool::new(false));
    let origin = Origin::start(move |asked| match (&*asked.method, asked.part()) {
        ("HEAD", _) => {
            let etag = if is_replaced.load(Ordering::SeqCst) { "\"other\"" } else { "\"source\"" };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\netag: {etag}\r\n\r\n");
            Reply::Keep(head.into_bytes())
        }
        ("GET", _) => answer("200 OK", "", "<Tagging><TagSet/></Tagging>"),
        ("POST", _) if asked.path.contains("uploads") => {
            let made = "InitiateMultipartUploadResult";
            answer("200 OK", "", &format!("<{made}><UploadId>u</UploadId></{made}>"))
        }
        ("POST", _) => {
            let done = "CompleteMultipartUploadResult";
            answer("200 OK", "", &format!("<{done}><ETag>\"whole\"</ETag></{done}>"))
        }
        ("DELETE", _) => answer("204 No Content", "", ""),
        ("PUT", Some(2)) => {
            is_replaced.store(replaces, Ordering::SeqCst);
            second(tries.fetch_add(1, Ordering::SeqCst))
        }
        ("PUT", Some(number)) => copied(&format!("of-{number}")),
        other => panic!("{other:?} was not to be asked"),
    });
    let mut config = checksums::config(&origin);
    config.settings.part_bytes = part_bytes;
    config.settings.retries = 2;
    config.settings.outage_timeout_ms = 2_000;
    let client = Client::new(config).expect("good settings");
    let [from, to] = ["s3://bucket/from", "s3://bucket/to"].map(|url| Location::parse(url).expect("a URL"));
    let ended = client.copy(ServerCopy::new(from, to)).and_then(|transfer| transfer.wait());
    (ended, origin.asked())
}

/// The answer to a copy by one request is lost, and the next says that the object is there already.
#[test]
fn a_copy_whose_answer_is_lost_is_settled_by_the_object() {
    const BEFORE: &str = "Thu, 26 Nov 2026 11:00:00 GMT";
    const AFTER: &str = "Thu, 26 Nov 2026 12:00:00 GMT";
    for (etag_of_copy, modified, is_ours) in [("a", AFTER, true), ("b", AFTER, false), ("a", BEFORE, false)] {
        let tries = AtomicUsize::new(0);
        let origin = Origin::start(move |asked| match &*asked.method {
            "HEAD" => {
                let etag = if asked.path.contains("/to") { etag_of_copy } else { "a" }.repeat(32);
                let dates = format!("date: {AFTER}\r\nlast-modified: {modified}\r\n");
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n{dates}etag: \"{etag}\"\r\n\r\n");
                Reply::Keep(head.into_bytes())
            }
            _ if tries.fetch_add(1, Ordering::SeqCst) == 0 => Reply::Close(Vec::new()),
            _ => answer("412 Precondition Failed", "", "<Error><Code>PreconditionFailed</Code></Error>"),
        });
        let client = Client::new(checksums::config(&origin)).expect("good settings");
        let [from, to] =
            ["s3://bucket/from", "s3://bucket/to"].map(|url| Location::parse(url).expect("a URL"));
        let copy = ServerCopy::new(from, to).on_condition(Condition::Absent);
        let ended = client.copy(copy).and_then(|transfer| transfer.wait());
        match is_ours {
            true => assert_eq!(ended.expect("it is there").bytes, 5),
            false => assert!(ended.expect_err("it is another's").is_there()),
        }
    }
}

/// How often each of these was asked: the second part, the completion, and that the upload be forgotten.
fn counts(asked: &[Asked]) -> (usize, usize, usize) {
    let count = |is: fn(&Asked) -> bool| asked.iter().filter(|asked| is(asked)).count();
    (
        count(|asked| asked.method == "PUT" && asked.part() == Some(2)),
        count(|asked| asked.method == "POST" && asked.path.contains("uploadId=u")),
        count(|asked| asked.method == "DELETE" && asked.path == "/bucket/to?uploadId=u"),
    )
}

#[test]
fn the_parts_of_a_long_copy_cover_it_once_and_are_of_one_version() {
    for (part_bytes, parts) in [(None, 96), (Some(4 * GIB), 2), (Some(GIB + 1), 6)] {
        let (ended, asked) = copy(part_bytes, false, |_| copied("of-2"));
        let report = ended.expect("it is copied");
        assert_eq!((report.bytes, report.version.etag.as_deref()), (SIZE, Some("\"whole\"")));
        let mut ranges = Vec::new();
        for asked in asked.iter().filter(|asked| asked.method == "PUT") {
            assert_eq!(asked.header("x-amz-copy-source"), Some("bucket/from"));
            assert_eq!(asked.header("x-amz-copy-source-if-match"), Some("\"source\""));
            let range =
                asked.header("x-amz-copy-source-range").and_then(|range| range.strip_prefix("bytes="));
            let (first, last) = range.and_then(|range| range.split_once('-')).expect("a range");
            let at = |text: &str| text.parse::<u64>().expect("a byte");
            ranges.push((asked.part().expect("a part"), at(first)..at(last) + 1));
        }
        ranges.sort_by_key(|(number, _)| *number);
        let mut end = 0;
        for (before, (number, range)) in ranges.iter().enumerate() {
            assert_eq!((*number as usize, range.start), (before + 1, end), "{part_bytes:?}");
            assert!(range.start < range.end && range.end - range.start <= 5 * GIB, "{range:?}");
            end = range.end;
        }
        assert_eq!((ranges.len(), end), (parts, SIZE), "{part_bytes:?}");
        assert_eq!(counts(&asked), (1, 1, 0));
        let done = asked.iter().find(|asked| asked.path.contains("?uploadId=u")).expect("a completion");
        let named = String::from_utf8_lossy(&done.body).matches("<PartNumber>").count();
        assert_eq!(named, parts, "{part_bytes:?}");
    }
}

#[test]
fn a_long_copy_of_what_is_replaced_meanwhile_makes_nothing() {
    let (ended, asked) = copy(Some(GIB), true, |_| {
        let code = "<Error><Code>PreconditionFailed</Code><Message>no</Message></Error>";
        answer("412 Precondition Failed", "", code)
    });
    let error = ended.expect_err("it was replaced");
    assert_eq!((error.kind(), error.doing()), (ErrorKind::Changed, "copy"), "{error}");
    assert!(error.to_string().contains("replaced while it was copied"), "{error}");
    assert_eq!(counts(&asked), (1, 0, 1), "no object is made, and the parts are deleted");
}

#[test]
fn a_part_that_failed_after_all_is_copied_again() {
    for code in ["InternalError", "SlowDown"] {
        let second = move |before| if before == 0 { failed(code) } else { copied("again") };
        let (ended, asked) = copy(Some(GIB), false, second);
        ended.expect(code);
        assert_eq!(counts(&asked), (2, 1, 0), "{code}");
        let done = asked.iter().find(|asked| asked.path.contains("?uploadId=u")).expect("a completion");
        let named = String::from_utf8_lossy(&done.body);
        assert!(named.contains("again") && !named.contains("of-2"), "{code}: {named}");
    }
}

#[test]
fn a_part_that_fails_for_good_makes_nothing() {
    type Row = (fn() -> Reply, ErrorKind, bool);
    let rows: [Row; 4] = [
        (|| failed("AccessDenied"), ErrorKind::Denied, false),
        (|| failed("InternalError"), ErrorKind::Network, true),
        (|| answer("200 OK", "", ""), ErrorKind::Network, false),
        (|| answer("200 OK", "", "<CopyPartResult></CopyPartResult>"), ErrorKind::Network, false),
    ];
    for (at, (second, kind, is_tried_again)) in rows.into_iter().enumerate() {
        let (ended, asked) = copy(Some(GIB), false, move |_| second());
        let error = ended.expect_err("a part is missing");
        assert_eq!((error.kind(), error.doing()), (kind, "copy"), "row {at}: {error}");
        let (tried, completed, aborted) = counts(&asked);
        assert_eq!((tried > 1, completed, aborted), (is_tried_again, 0, 1), "row {at}: {tried} times");
    }
}
