//! What cannot be trusted or understood: one line that says why, and a remedy.

use std::io::{Read, Write};
use std::net::TcpListener;

use flatout_engine::{Client, Error, ErrorKind, Get, Landing};
use rustls::version::{TLS12, TLS13};

use crate::certificates::{Authority, FUTURE, NOW, PAST};
use crate::origin::{self, Reply, object, right};
use crate::secure_origin::{SecureOrigin, Wire, config, config_with_clients};
use crate::{SIZE, in_time, location, read, serve_object, settings};

/// The error has this kind and all of the words, in the cause or the hint.
#[track_caller]
fn check_error(error: &Error, kind: ErrorKind, words: &[&str]) {
    let said = format!("{error}\n{}", error.hint().map_or("no hint".to_owned(), ToString::to_string));
    assert_eq!(error.kind(), kind, "{said}");
    for word in words {
        assert!(said.contains(word), "{said}\nlacks {word:?}");
    }
    assert_eq!(said.lines().count(), 2, "{said}");
}

/// Reading from an origin with a certificate for `names` fails like this; so does asking for its head.
#[track_caller]
fn check(names: &[&str], years: (i32, i32), trusted: bool, words: &[&str]) {
    let authority = Authority::new();
    let identity = authority.identity(names, years);
    let origin = SecureOrigin::start(config(&identity, &[&TLS13, &TLS12]), Wire::default(), serve_object);
    let stranger = Authority::new();
    let config = settings(if trusted { &authority } else { &stranger });
    let url = format!("https://{}/object", origin.address);
    let (read, stat) = in_time(move || {
        let stat = Client::new(config.clone()).unwrap().stat(&location(&url)).unwrap_err();
        (read(config, &url).unwrap_err(), stat)
    });
    check_error(&read, ErrorKind::Untrusted, words);
    check_error(&stat, ErrorKind::Untrusted, words);
}

#[test]
fn certificates_that_prove_nothing() {
    check(&["127.0.0.1"], NOW, false, &["https://127.0.0.1:", "signed by nobody", "ca-bundle"]);
    check(
        &["a.test", "*.b.test", "10.0.0.1"],
        NOW,
        true,
        &["is for a.test, *.b.test, 10.0.0.1, not for 127.0.0.1", "resolve"],
    );
    check(&["127.0.0.1"], PAST, true, &["expired", "days ago", "clock"]);
    check(&["127.0.0.1"], FUTURE, true, &["is valid only in", "days", "clock"]);
}

#[test]
fn plain_http_where_tls_was_meant_and_the_other_way_round() {
    let authority = Authority::new();
    let plain = one_answer(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
    let (config, url) = (settings(&authority), format!("https://{plain}/object"));
    let error = in_time(move || read(config, &url).unwrap_err());
    check_error(&error, ErrorKind::Usage, &["https://127.0.0.1:", "speaks plain HTTP", "use http://"]);

    let identity = authority.identity(&["127.0.0.1"], NOW);
    let secure = SecureOrigin::start(self::config(&identity, &[&TLS13]), Wire::default(), serve_object);
    let (config, url) = (settings(&authority), format!("http://{}/object", secure.address));
    let error = in_time(move || read(config, &url).unwrap_err());
    check_error(&error, ErrorKind::Usage, &["http://127.0.0.1:", "speaks TLS", "use https://"]);

    let nginx = origin::Origin::start(|_| {
        let body = "<title>400 The plain HTTP request was sent to HTTPS port</title>";
        Reply::Close(format!("HTTP/1.1 400 Bad\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
    });
    let (config, url) = (settings(&authority), nginx.url());
    let error = in_time(move || read(config, &url).unwrap_err());
    check_error(&error, ErrorKind::Usage, &["speaks TLS", "use https://"]);
}

/// A server that answers whatever comes first with these bytes; it ends with its one connection.
fn one_answer(bytes: &'static [u8]) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let _ = stream.write_all(bytes);
        // Read on, so that closing sends no reset before the answer is read.
        let _ = stream.shutdown(std::net::Shutdown::Write);
        while matches!(stream.read(&mut [0; 4096]), Ok(1..)) {}
    });
    address
}

#[test]
fn servers_that_speak_no_tls_of_ours() {
    for (answer, kind, words) in [
        (
            &b"\x15\x03\x01\x00\x02\x02\x46"[..],
            ErrorKind::Unsupported,
            &["no TLS in common", "TLS 1.2 and 1.3"][..],
        ),
        (b"\x15\x03\x01\x00\x02\x02\x28", ErrorKind::Unsupported, &["no TLS in common"]),
        (b"\x15\x03\x03\x00\x02\x02\x70", ErrorKind::Usage, &["it serves no such name"]),
        (b"\x15\x03\x03\x00\x02\x02\x50", ErrorKind::Network, &["internal_error"]),
        (b"SSH-2.0-OpenSSH_9.9\r\n", ErrorKind::Usage, &["does not speak TLS", "check the port"]),
        (b"\x16\x03\x03\xff\xff rest", ErrorKind::Usage, &["does not speak TLS"]),
        (b"", ErrorKind::Network, &["handshake", "closed the connection"]),
    ] {
        let authority = Authority::new();
        let (config, url) = (settings(&authority), format!("https://{}/object", one_answer(answer)));
        let error = in_time(move || read(config, &url).unwrap_err());
        check_error(&error, kind, words);
    }
}

#[test]
fn a_server_that_wants_a_client_certificate_is_named() {
    let authority = Authority::new();
    let identity = authority.identity(&["127.0.0.1"], NOW);
    let origin =
        SecureOrigin::start(config_with_clients(&identity, &authority), Wire::default(), serve_object);
    let (config, url) = (settings(&authority), format!("https://{}/object", origin.address));
    let error = in_time(move || read(config, &url).unwrap_err());
    check_error(&error, ErrorKind::Unsupported, &["wants a certificate of the client"]);
}

#[test]
fn a_bundle_is_a_file_with_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    for (name, text, words) in [
        ("none.pem", None, &["No such file"][..]),
        ("empty.pem", Some(""), &["no certificate in it"]),
        ("key.pem", Some(key), &["no certificate in it"]),
        ("broken.pem", Some(broken), &["certificate 1 in it cannot be used"]),
        ("cut.pem", Some("-----BEGIN CERTIFICATE-----\nAAAA\n"), &["is no PEM file"]),
    ] {
        let path = folder.path().join(name);
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let authority = Authority::new();
        let mut config = settings(&authority);
        config.settings.ca_bundle = Some(path.to_str().unwrap().to_owned());
        let error = Client::new(config).err().expect(name);
        check_error(&error, ErrorKind::Usage, &[&["ca-bundle", name, "PEM form"], words].concat());
    }
}

#[test]
fn a_body_without_a_length_must_end_with_tls() {
    let body = |_: &_| Reply::Close([b"HTTP/1.1 200 OK\r\n\r\n", &object(SIZE)[..]].concat());
    for (cut, well) in [(false, true), (true, false)] {
        let authority = Authority::new();
        let identity = authority.identity(&["127.0.0.1"], NOW);
        let wire = Wire { cut, ..Wire::default() };
        let origin = SecureOrigin::start(config(&identity, &[&TLS13]), wire, body);
        let (config, url) = (settings(&authority), format!("https://{}/object", origin.address));
        let outcome = in_time(move || {
            let client = Client::new(config).unwrap();
            client.get(Get::new(location(&url), Landing::Nowhere)).unwrap().wait().map(|report| report.bytes)
        });
        match outcome {
            Ok(bytes) => assert!(well && bytes == SIZE, "{bytes} bytes"),
            Err(error) => {
                assert!(!well, "{error}");
                check_error(&error, ErrorKind::Network, &["without the end of TLS"]);
            }
        }
    }
}

#[test]
fn a_body_with_a_length_needs_no_farewell() {
    let authority = Authority::new();
    let identity = authority.identity(&["127.0.0.1"], NOW);
    let wire = Wire { cut: true, ..Wire::default() };
    let origin = SecureOrigin::start(config(&identity, &[&TLS13]), wire, |asked| {
        Reply::Close(right(asked, &object(SIZE)))
    });
    let (config, url) = (settings(&authority), format!("https://{}/object", origin.address));
    let (bytes, report) = in_time(move || read(config, &url).unwrap());
    assert!(bytes == object(SIZE) && report.retries == 0);
}
