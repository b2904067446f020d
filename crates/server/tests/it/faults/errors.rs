//! Refusals that the weather sends, in the words of each dialect.

use flatout_server::{ErrorCode, FaultKind};

use super::{DIALECTS, OSS, S3, always, origin};
use crate::client::send;

fn error(code: &str) -> FaultKind {
    FaultKind::Error(code.parse::<ErrorCode>().unwrap())
}

#[test]
fn an_error_has_its_status_and_document() {
    for (code, status) in [
        ("InternalError", 500),
        ("SlowDown", 503),
        ("503", 503),
        ("AccessDenied", 403),
        ("RequestTimeout", 400),
    ] {
        let (origin, _) = origin(1000, always(error(code)));
        let address = origin.addresses()[0];
        for (dialect, id) in [(S3, "x-amz-request-id"), (OSS, "x-oss-request-id")] {
            for target in ["/bucket/k", "/bucket?list-type=2"] {
                let answer = send(address, "GET", target, dialect, b"").expect(status);
                let expected = if code == "503" { "SlowDown" } else { code };
                assert_eq!(answer.xml("Code").as_deref(), Some(expected), "{target}");
                assert!(answer.xml("Message").unwrap().contains("wind tunnel"));
                assert!(answer.header(id).is_some() && answer.header("etag").is_none());
                assert_eq!(answer.header("content-length"), Some(&*answer.body.len().to_string()));
            }
            let answer = send(address, "HEAD", "/bucket/k", dialect, b"").expect(status);
            assert!(answer.body.is_empty());
            assert_eq!(answer.header("x-oss-err").is_some(), dialect == OSS);
        }
    }
}

#[test]
fn a_status_without_a_code_is_bare() {
    let (origin, _) = origin(1000, always(error("502")));
    for dialect in DIALECTS {
        for method in ["GET", "HEAD"] {
            let answer = send(origin.addresses()[0], method, "/bucket/k", dialect, b"").expect(502);
            assert!(answer.body.is_empty());
        }
    }
}

#[test]
fn what_is_refused_anyway_and_what_writes_is_left_alone() {
    let store = flatout_server::Store::Memory;
    let options =
        flatout_server::Options { fault_plan: always(error("500")), ..crate::client::options(store) };
    let origin = flatout_server::Origin::start(options).unwrap();
    let address = origin.addresses()[0];
    for dialect in DIALECTS {
        send(address, "PUT", "/bucket", dialect, b"");
        send(address, "PUT", "/bucket/k", dialect, b"bytes").expect(200);
        send(address, "GET", "/bucket/missing", dialect, b"").expect(404);
        send(address, "GET", "/bucket/k", dialect, b"").expect(500);
        send(address, "DELETE", "/bucket/k", dialect, b"").expect(204);
    }
}
