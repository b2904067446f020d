//! Faults of requests that write: what is stored, and what the client hears.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use flatout_server::{FaultKind, Origin, Store, WriteFault, WriteStep};

use super::{DIALECTS, always};
use crate::client::{Answer, Headers, connect, options, parse, send, write_head};

const SIZE: usize = 3_000_001;

fn origin(fault: WriteFault) -> Origin {
    let options =
        flatout_server::Options { fault_plan: always(FaultKind::Write(fault)), ..options(Store::Memory) };
    let origin = Origin::start(options).unwrap();
    send(origin.addresses()[0], "PUT", "/bucket", &[], b"").expect(200);
    origin
}

fn code<T: std::str::FromStr<Err = String>>(code: &str) -> T {
    code.parse().unwrap()
}

fn body() -> Vec<u8> {
    crate::client::bytes("k", SIZE)
}

fn stored(address: SocketAddr) -> Option<Vec<u8>> {
    let answer = send(address, "GET", "/bucket/k", &[], b"");
    (answer.status == 200).then_some(answer.body)
}

/// One request on a connection of its own: its answer, or how the connection ended without one.
fn ask(
    address: SocketAddr,
    method: &str,
    target: &str,
    headers: Headers,
    body: &[u8],
) -> Result<Answer, ErrorKind> {
    let mut connection = connect(address);
    write_head(&mut connection, method, target, headers, body.len());
    let written = connection.write_all(body);
    let mut bytes = Vec::new();
    match connection.read_to_end(&mut bytes) {
        Ok(_) if !bytes.is_empty() => Ok(parse(&bytes)),
        Ok(_) => Err(written.map_or_else(|error| error.kind(), |()| ErrorKind::UnexpectedEof)),
        Err(error) => Err(error.kind()),
    }
}

fn put(address: SocketAddr, dialect: Headers) -> Result<Answer, ErrorKind> {
    ask(address, "PUT", "/bucket/k", dialect, &body())
}

#[test]
fn a_body_that_is_cut_off_is_no_object() {
    for dialect in DIALECTS {
        let origin = origin(WriteFault::Reset);
        let address = origin.addresses()[0];
        assert!(put(address, dialect).is_err());
        assert_eq!(stored(address), None);
        // There is no body to be reset in.
        send(address, "PUT", "/bucket/k", dialect, b"").expect(200);
    }
}

#[test]
fn a_body_is_taken_late_or_slowly_and_whole() {
    for (fault, least_ms) in
        [(WriteFault::Stall(Duration::from_millis(300)), 300), (WriteFault::Slow(2 * SIZE as u64), 400)]
    {
        for dialect in DIALECTS {
            let origin = origin(fault);
            let start = Instant::now();
            put(origin.addresses()[0], dialect).unwrap().expect(200);
            assert!(start.elapsed() >= Duration::from_millis(least_ms), "{:?}", start.elapsed());
            assert!(stored(origin.addresses()[0]) == Some(body()));
        }
    }
}

#[test]
fn a_bit_arrives_wrong() {
    for dialect in DIALECTS {
        let origin = origin(WriteFault::Flip);
        put(origin.addresses()[0], dialect).unwrap().expect(200);
        let (stored, body) = (stored(origin.addresses()[0]).unwrap(), body());
        let wrong: u32 = stored.iter().zip(&body).map(|(came, meant)| (came ^ meant).count_ones()).sum();
        assert_eq!((stored.len(), wrong), (SIZE, 1));
    }
}

#[test]
fn a_refusal_comes_before_the_body_or_after_it_and_nothing_is_stored() {
    for fault in
        [WriteFault::Error(code("QuotaExceeded"), None), WriteFault::EarlyError(code("QuotaExceeded"))]
    {
        for dialect in DIALECTS {
            let origin = origin(fault);
            let address = origin.addresses()[0];
            let mut connection = connect(address);
            write_head(&mut connection, "PUT", "/bucket/k", dialect, SIZE);
            if matches!(fault, WriteFault::Error(..)) {
                connection.write_all(&body()).unwrap();
            }
            let mut bytes = Vec::new();
            connection.read_to_end(&mut bytes).unwrap();
            let answer = parse(&bytes).expect(403);
            assert_eq!(answer.xml("Code").as_deref(), Some("QuotaExceeded"));
            assert_eq!(stored(address), None);
        }
    }
}

#[test]
fn an_answer_is_lost_and_the_object_is_there() {
    for dialect in DIALECTS {
        let origin = origin(WriteFault::Lost(None));
        assert!(put(origin.addresses()[0], dialect).is_err());
        assert!(stored(origin.addresses()[0]) == Some(body()));
    }
}

/// The end of an upload of one part, asked for as often as that.
fn complete(origin: &Origin, dialect: Headers, times: usize) -> Vec<Result<Answer, ErrorKind>> {
    let address = origin.addresses()[0];
    let id = send(address, "POST", "/bucket/k?uploads", dialect, b"").expect(200).xml("UploadId").unwrap();
    let part = send(address, "PUT", &format!("/bucket/k?partNumber=1&uploadId={id}"), dialect, &body());
    let etag = part.expect(200).header("etag").unwrap().to_owned();
    let list = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let target = format!("/bucket/k?uploadId={id}");
    (0..times).map(|_| ask(address, "POST", &target, dialect, list.as_bytes())).collect()
}

#[test]
fn a_completion_is_forgotten_or_refused_with_status_200() {
    for dialect in DIALECTS {
        let forgetful = origin(WriteFault::Forgotten);
        let mut answers = complete(&forgetful, dialect, 2);
        let second = answers.pop().unwrap().unwrap().expect(404);
        assert_eq!(second.xml("Code").as_deref(), Some("NoSuchUpload"));
        assert!(answers[0].is_err() && stored(forgetful.addresses()[0]) == Some(body()));
        let hiding = origin(WriteFault::HiddenError(code("InternalError")));
        let answer = complete(&hiding, dialect, 1).pop().unwrap().unwrap().expect(200);
        assert_eq!(answer.xml("Code").as_deref(), Some("InternalError"));
        assert_eq!(stored(hiding.addresses()[0]), None);
    }
}

#[test]
fn one_step_alone_meets_with_the_fault() {
    for dialect in DIALECTS {
        let origin = origin(WriteFault::Error(code("503"), Some(WriteStep::Complete)));
        complete(&origin, dialect, 1).pop().unwrap().unwrap().expect(503);
        put(origin.addresses()[0], dialect).unwrap().expect(200);
    }
}
