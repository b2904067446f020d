//! Parts whose checksum is in a trailer, and servers of S3 that know no trailers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use flatout_engine::{Client, Put, Source, Verified};
use flatout_wire::checksum::Algorithm;
use flatout_wire::location::Location;

use super::checksums::{PART, config};
use super::origin::{Asked, Origin, Reply, answer, object};

const HEADER: &str = "x-amz-checksum-crc64nvme";

/// What a server does with a part that has a trailer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Framed {
    Taken,
    /// With that status and code.
    Refused(&'static str, &'static str),
    /// The connection is closed.
    Closed,
    /// The connection is closed at the first trailer; later ones are taken.
    ClosedOnce,
    /// The framing is stored as content.
    Kept,
    /// The content is taken, and no checksum is stated.
    Unsaid,
}

fn crc(body: &[u8]) -> String {
    Algorithm::Crc64Nvme.encode(Algorithm::Crc64Nvme.of(body))
}

/// The content of a framed body, and its trailer.
pub(super) fn unframed(mut body: &[u8]) -> (Vec<u8>, String) {
    let mut line = |skip: usize| {
        body = &body[skip..];
        let at = body.windows(2).position(|two| two == b"\r\n").expect("a line of the framing");
        let line = String::from_utf8(body[..at].to_vec()).expect("text");
        body = &body[at + 2..];
        (line, body)
    };
    let (mut content, mut skip) = (Vec::new(), 0);
    loop {
        let (size, after) = line(skip);
        let bytes = usize::from_str_radix(&size, 16).expect("a size");
        if bytes == 0 {
            let (trailer, _) = line(0);
            assert_eq!(line(0), (String::new(), &[][..]), "the end");
            return (content, trailer);
        }
        content.extend_from_slice(&after[..bytes]);
        assert_eq!(&after[bytes..bytes + 2], b"\r\n");
        skip = bytes + 2;
    }
}

/// A server that keeps one object, and states the CRC of each part.
fn server(framed: Framed) -> (Origin, Arc<Mutex<Vec<u8>>>) {
    let stored = Arc::<Mutex<Vec<u8>>>::default();
    let (object, parts) = (stored.clone(), Mutex::<BTreeMap<u32, Vec<u8>>>::default());
    let closed = AtomicUsize::new(0);
    let origin = Origin::start(move |asked: &Asked| {
        let query = asked.path.split_once('?').map_or("", |(_, query)| query);
        match (&*asked.method, query) {
            ("PUT", _) => {
                let number = asked.part().expect("a part's number");
                let content = match (asked.header("x-amz-trailer"), framed) {
                    (None, _) => {
                        assert_eq!(asked.header(HEADER), Some(&*crc(&asked.body)));
                        asked.body.clone()
                    }
                    (Some(_), Framed::Kept) => asked.body.clone(),
                    (Some(_), Framed::Refused(status, code)) => {
                        return answer(status, "", &format!("<Error><Code>{code}</Code></Error>"));
                    }
                    (Some(_), Framed::Closed) => return Reply::Close(Vec::new()),
                    // The first one goes out on the connection that began the upload, and on one of its own.
                    (Some(_), Framed::ClosedOnce) if closed.fetch_add(1, Ordering::Relaxed) < 2 => {
                        return Reply::Close(Vec::new());
                    }
                    (Some(name), Framed::Taken | Framed::ClosedOnce | Framed::Unsaid) => {
                        assert_eq!(name, HEADER);
                        assert_eq!(asked.header("content-encoding"), Some("aws-chunked"));
                        let hash = asked.header("x-amz-content-sha256");
                        assert_eq!(hash, Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"));
                        let (content, trailer) = unframed(&asked.body);
                        let bytes = asked.header("x-amz-decoded-content-length");
                        assert_eq!(bytes, Some(&*content.len().to_string()));
                        assert_eq!(trailer, format!("{HEADER}:{}", crc(&content)));
                        content
                    }
                };
                let is_said = framed != Framed::Unsaid || asked.header("x-amz-trailer").is_none();
                let said = if is_said { format!("{HEADER}: {}\r\n", crc(&content)) } else { String::new() };
                let headers = format!("etag: \"{number}\"\r\n{said}");
                parts.lock().expect("no panic in a test").insert(number, content);
                answer("200 OK", &headers, "")
            }
            ("POST", query) if query.starts_with("uploads") => {
                let made = "InitiateMultipartUploadResult";
                answer("200 OK", "", &format!("<{made}><UploadId>1</UploadId></{made}>"))
            }
            ("POST", _) => {
                let parts = parts.lock().expect("no panic in a test");
                let whole: Vec<u8> = parts.values().flatten().copied().collect();
                assert_eq!(asked.header(HEADER), Some(&*crc(&whole)), "of the whole");
                let (done, sum) = ("CompleteMultipartUploadResult", crc(&whole));
                *object.lock().expect("no panic in a test") = whole;
                let sum = format!(
                    "<ChecksumCRC64NVME>{sum}</ChecksumCRC64NVME><ChecksumType>FULL_OBJECT</ChecksumType>"
                );
                answer("200 OK", "", &format!("<{done}><ETag>\"2\"</ETag>{sum}</{done}>"))
            }
            other => panic!("{other:?} was not to be asked"),
        }
    });
    (origin, stored)
}

/// Sends four parts twice, one after the other; how many of them had their checksum behind them.
fn framed_parts(framed: Framed) -> usize {
    let (origin, stored) = server(framed);
    let mut config = config(&origin);
    config.settings.parallel = Some(1);
    config.settings.shards = 1;
    let client = Client::new(config).expect("good settings");
    let location = Location::parse("s3://bucket/object").expect("a URL");
    for body in [object(4 * PART), object(3 * PART + 77)] {
        let put = Put::new(location.clone(), Source::Memory(Arc::new(body.clone())));
        let report = client.put(put).and_then(|transfer| transfer.wait()).expect("it is taken");
        assert_eq!(report.verified, Verified::Whole(Algorithm::Crc64Nvme), "{framed:?}");
        assert!(*stored.lock().expect("no panic in a test") == body, "{framed:?}");
    }
    let asked = origin.asked();
    assert!(asked.iter().all(|asked| asked.header("expect").is_none()), "{framed:?}");
    asked.iter().filter(|asked| asked.header("x-amz-trailer").is_some()).count()
}

#[test]
fn an_origin_that_takes_them_gets_no_checksum_before_a_part() {
    assert_eq!(framed_parts(Framed::Taken), 8);
}

#[test]
fn an_origin_that_does_not_know_them_gets_one() {
    for framed in [
        Framed::Refused("501 Not Implemented", "NotImplemented"),
        Framed::Refused("400 Bad Request", "InvalidRequest"),
        Framed::Refused("400 Bad Request", "XAmzContentSHA256Mismatch"),
        Framed::Refused("400 Bad Request", "InvalidDigest"),
        Framed::Refused("401 Unauthorized", "Unauthorized"),
        Framed::Refused("403 Forbidden", "SignatureDoesNotMatch"),
        Framed::Refused("403 Forbidden", "AccessDenied"),
        Framed::Refused("413 Payload Too Large", "EntityTooLarge"),
        Framed::Refused("411 Length Required", "MissingContentLength"),
        Framed::Kept,
        Framed::Unsaid,
    ] {
        assert_eq!(framed_parts(framed), 1, "{framed:?}");
    }
}

#[test]
fn an_accident_does_not_end_their_use() {
    // Closed twice, then seven of the eight parts.
    assert_eq!(framed_parts(Framed::ClosedOnce), 2 + 7);
    // Three parts are tried; each goes out on a kept connection, and on one of its own.
    assert_eq!(framed_parts(Framed::Closed), 3 * 2);
    let failed = Framed::Refused("500 Internal Server Error", "InternalError");
    assert_eq!(framed_parts(failed), 3);
}
