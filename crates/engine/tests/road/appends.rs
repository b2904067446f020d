//! Appends to objects of OSS: what is asked, and what is made of answers that are refusals, other than they
//! should be, or lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatout_engine::{AppendPosition, Appended, Client, Config, Error, ErrorKind};
use flatout_server::{Options, Store};
use flatout_wire::checksum::Algorithm;
use flatout_wire::location::Location;

use crate::config;
use crate::origin::{Origin, Reply, answer};

fn crc(bytes: &[u8]) -> Option<u64> {
    Some(Algorithm::Crc64Xz.of(bytes))
}

fn client(url: &str) -> Client {
    let mut config = Config { ..config() };
    config.settings.oss_endpoint = Some(url.to_owned());
    config.settings.no_sign_request = true;
    Client::new(config).expect("good settings")
}

fn at(origin: &Origin) -> String {
    format!("http://{}", origin.address)
}

fn append_at(client: &Client, position: AppendPosition, bytes: &[u8]) -> Result<Appended, Error> {
    client.append(&Location::parse("oss://bucket/log").expect("a location"), position, bytes.into())
}

/// After "first ".
fn append(url: &str, bytes: &[u8]) -> Result<Appended, Error> {
    append_at(&client(url), AppendPosition { at: 6, crc: crc(b"first ") }, bytes)
}

fn appended(next: u64, whole: &[u8]) -> Reply {
    let headers = format!(
        "x-oss-next-append-position: {next}\r\nx-oss-hash-crc64ecma: {}\r\netag: \"v2\"\r\n",
        Algorithm::Crc64Xz.of(whole)
    );
    answer("200 OK", &headers, "")
}

/// The object as HEAD tells it.
fn there(whole: &[u8]) -> Reply {
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-oss-object-type: Appendable\r\n\
         x-oss-hash-crc64ecma: {}\r\netag: \"v2\"\r\n\r\n",
        whole.len(),
        Algorithm::Crc64Xz.of(whole)
    );
    Reply::Keep(head.into_bytes())
}

fn refused(code: &str) -> Reply {
    answer("409 Conflict", "", &format!("<Error><Code>{code}</Code><Message>no</Message></Error>"))
}

#[test]
fn an_append_is_one_request_and_says_where_the_next_goes() {
    let origin = Origin::start(|_| appended(12, b"first second"));
    let made = append(&at(&origin), b"second").expect("it is appended");
    assert_eq!(made.position, AppendPosition { at: 12, crc: crc(b"first second") });
    assert_eq!((made.version.size, made.version.etag.as_deref()), (Some(12), Some("\"v2\"")));
    let asked = origin.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].method.as_str(), asked[0].path.as_str()), ("POST", "/bucket/log?append&position=6"));
    assert_eq!(asked[0].header("content-length"), Some("6"));
    assert_eq!(asked[0].header("content-md5"), Some("qfDmGhN9hqqdtTRl4IAWEg=="));
}

#[test]
fn another_client_meanwhile_is_told() {
    // One that ends elsewhere is looked at: an earlier attempt may have been carried out.
    for (code, requests) in [("PositionNotEqualToLength", 2), ("ObjectNotAppendable", 1)] {
        let origin = Origin::start(move |_| refused(code));
        let error = append(&at(&origin), b"second").expect_err("it is refused");
        assert_eq!((error.kind(), origin.asked().len()), (ErrorKind::Changed, requests), "{error}");
    }
    // The same length, and other bytes.
    let origin = Origin::start(|_| appended(12, b"other second"));
    let error = append(&at(&origin), b"second").expect_err("it is another object");
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
}

/// The first answer is lost; what a HEAD says then.
fn lost(
    second: impl Fn() -> Reply + Send + Sync + 'static,
    head: impl Fn() -> Reply + Send + Sync + 'static,
) -> Result<Appended, Error> {
    let count = Arc::new(AtomicUsize::new(0));
    let origin = Origin::start(move |asked| match asked.method.as_str() {
        "HEAD" => head(),
        _ if count.fetch_add(1, Ordering::SeqCst) == 0 => Reply::Close(Vec::new()),
        _ => second(),
    });
    append(&at(&origin), b"second")
}

#[test]
fn an_append_whose_answer_was_lost_is_looked_for() {
    let elsewhere = || refused("PositionNotEqualToLength");
    let made = lost(elsewhere, || there(b"first second")).expect("it was appended");
    assert_eq!(made.position.at, 12);
    // It was not: the second request does it.
    assert!(lost(|| appended(12, b"first second"), || there(b"first ")).is_ok());
    // Another client has appended as much, or more behind it, or something else.
    for whole in [&b"first theirs"[..], b"first second and more", b"first x"] {
        let error = lost(elsewhere, move || there(whole)).expect_err("it is not known to be there");
        assert_eq!(error.kind(), ErrorKind::Network, "{error}");
    }
}

#[test]
fn an_append_whose_end_is_not_known_has_failed() {
    let origin = Origin::start(|asked| match asked.method.as_str() {
        "HEAD" => there(b"first second"),
        _ => Reply::Close(Vec::new()),
    });
    assert!(append(&at(&origin), b"second").is_ok(), "every answer is lost, and the object tells");
    let unknown = AppendPosition { at: 6, crc: None };
    let error = append_at(&client(&at(&origin)), unknown, b"second").expect_err("nothing tells");
    assert_eq!(error.kind(), ErrorKind::Network, "{error}");
    let origin = Origin::start(|_| Reply::Close(Vec::new()));
    assert!(append(&at(&origin), b"second").is_err());
}

#[test]
fn the_development_origin_appends() {
    let root = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(root.path().join("bucket")).expect("a bucket");
    let origin =
        flatout_server::Origin::start(Options::new(Store::Root(root.path().into()))).expect("an origin");
    let client = client(&origin.url());
    let mut position = AppendPosition { at: 0, crc: Some(0) };
    for number in 0..3 {
        let bytes = format!("line {number}\n");
        position = append_at(&client, position, bytes.as_bytes()).expect("it is appended").position;
    }
    assert_eq!(std::fs::read(root.path().join("bucket/log")).expect("a file"), b"line 0\nline 1\nline 2\n");
    assert_eq!(position.at, 21);
    let stat = client.stat(&Location::parse("oss://bucket/log").expect("a location")).expect("it is there");
    assert_eq!(stat.object_type.as_deref(), Some("Appendable"));
    let late = AppendPosition { at: 7, crc: None };
    assert_eq!(append_at(&client, late, b"x").expect_err("it has grown").kind(), ErrorKind::Changed);
    let s3 = Location::parse("s3://bucket/log").expect("a location");
    let refused = client.append(&s3, position, b"x"[..].into()).expect_err("S3 does not append");
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}
