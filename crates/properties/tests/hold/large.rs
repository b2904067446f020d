//! Worst-case documents of 64 KiB: each ends within a time that only a quadratic parser exceeds.

use std::time::{Duration, Instant};

use super::target;

const BYTES: usize = 64 << 10;
/// A linear parser takes milliseconds, a quadratic one minutes without optimisation.
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn no_document_takes_for_ever() {
    let filled = |start: &str, piece: &str, end: &str| {
        let pieces = (BYTES - start.len() - end.len()) / piece.len();
        format!("{start}{}{end}", piece.repeat(pieces))
    };
    let long = "a".repeat(BYTES / 2);
    let rows = [
        filled("", "<", ""),
        filled("", "<a>", ""),
        filled("<a ", "b='' ", "/>"),
        filled("<a>", "&amp;", "</a>"),
        filled("<a>", "&#65;", "</a>"),
        filled("<a>", "<![CDATA[x]]>", "</a>"),
        filled("<a>", "<!---->", "</a>"),
        filled("<!DOCTYPE a [", "<!ENTITY a '&a;'>", "]><a/>"),
        filled(&format!("<{long}>"), "<b/>", ""),
        filled("<ListBucketResult>", "<Contents><Key/></Contents>", "</ListBucketResult>"),
        filled("<ListBucketResult><Contents><Key>", "%", "</Key></Contents></ListBucketResult>"),
        filled("<Error><Message>", "\u{1b}", "</Message></Error>"),
        filled("", "\n", ""),
    ];
    for document in rows {
        let start = Instant::now();
        target("documents")(document.as_bytes());
        let took = start.elapsed();
        assert!(took < PATIENCE, "{took:?} for {:?}", &document[..40]);
    }
}

#[test]
fn no_answer_takes_for_ever() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
    let rows = [
        format!("{head}{}\r\n", "a:b\r\n".repeat(BYTES / 6)),
        format!("{head}\r\n{}0\r\n\r\n", "1\r\nx\r\n".repeat(BYTES / 6)),
        format!("{head}\r\n0\r\n{}\r\n", "a: b\r\n".repeat(BYTES / 6)),
        format!("{head}\r\n1{}\r\nx\r\n0\r\n\r\n", ";".repeat(8 << 10)),
        "HTTP/1.1 100 Continue\r\n\r\n".repeat(BYTES / 25),
    ];
    for answer in rows {
        for name in ["head", "differential", "chunked"] {
            let start = Instant::now();
            target(name)(answer.as_bytes());
            let took = start.elapsed();
            assert!(took < PATIENCE, "{name}: {took:?} for {:?}", &answer[..60]);
        }
    }
}
