//! An origin over TLS, with a client of rustls alone: who it says it is, sessions, and clients that do not
//! agree.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use flatout_server::{Identity, Options, Origin, Store};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned, SupportedProtocolVersion,
};

use crate::client::{Answer, bytes, connect, options, parse};

fn origin() -> (Origin, RootCertStore) {
    let (identity, authority) = Identity::for_this_run(&["127.0.0.2:1".parse().unwrap()]).unwrap();
    let origin = Origin::start(Options { tls: Some(identity), ..options(Store::Memory) }).unwrap();
    (origin, trusted(&authority))
}

pub fn trusted(authority: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    roots
}

pub fn client(roots: &RootCertStore, version: &'static SupportedProtocolVersion) -> Arc<ClientConfig> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    Arc::new(config.with_root_certificates(roots.clone()).with_no_client_auth())
}

/// One request on a connection of its own, and whether its session was resumed.
fn send(
    config: &Arc<ClientConfig>,
    name: &str,
    address: SocketAddr,
    request: &[u8],
) -> std::io::Result<(Answer, bool)> {
    let session = ClientConnection::new(config.clone(), ServerName::try_from(name.to_owned()).unwrap());
    let mut stream = StreamOwned::new(session.unwrap(), connect(address));
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok((parse(&answer), stream.conn.handshake_kind() == Some(HandshakeKind::Resumed)))
}

fn get(target: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").into_bytes()
}

fn put(target: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "PUT {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

#[test]
fn objects_go_both_ways_over_both_versions_and_sessions_are_resumed() {
    let (origin, roots) = origin();
    assert_eq!(origin.url(), format!("https://{}", origin.addresses()[0]));
    let body = bytes("tls", 3_000_001);
    for version in [&TLS13, &TLS12] {
        let config = client(&roots, version);
        let mut resumed = Vec::new();
        let requests = [put("/bucket", b""), put("/bucket/key", &body), get("/bucket/key")];
        for (request, status) in requests.iter().zip([None, Some(200), Some(200)]) {
            let (answer, again) = send(&config, "localhost", origin.addresses()[0], request).unwrap();
            resumed.push(again);
            assert!(status.is_none_or(|status| answer.status == status), "{}", answer.status);
            assert!(request[..3] != *b"GET" || answer.body == body);
        }
        assert_eq!(resumed, [false, true, true]);
    }
}

#[test]
fn clients_of_either_http_are_served_whatever_they_say_of_it() {
    let (origin, roots) = origin();
    for (offered, version) in [(&[][..], "1.1"), (&["h2", "http/1.1"], "1.1"), (&["http/1.0"], "1.0")] {
        let mut config = ClientConfig::clone(&client(&roots, &TLS13));
        config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
        let request = String::from_utf8(get("/bucket/missing"))
            .unwrap()
            .replace("HTTP/1.1", &format!("HTTP/{version}"));
        let sent = send(&Arc::new(config), "localhost", origin.addresses()[0], request.as_bytes());
        assert_eq!(sent.unwrap().0.status, 404, "{offered:?}");
    }
}

#[test]
fn it_is_who_it_says_under_every_name_it_has() {
    let (origin, roots) = origin();
    let config = client(&roots, &TLS13);
    for (name, known) in [
        ("localhost", true),
        ("127.0.0.1", true),
        ("::1", true),
        ("127.0.0.2", true),
        ("127.0.0.3", false),
        ("example.com", false),
    ] {
        let sent = send(&config, name, origin.addresses()[0], &get("/bucket/missing"));
        assert_eq!(sent.is_ok(), known, "{name}");
    }
    let strangers = client(&self::origin().1, &TLS13);
    assert!(send(&strangers, "localhost", origin.addresses()[0], &get("/bucket/missing")).is_err());
}

#[test]
fn a_client_that_speaks_no_tls_or_nothing_holds_nobody_up() {
    let (origin, roots) = origin();
    let address = origin.addresses()[0];
    // These are in the middle of their handshakes for as long as the test lasts.
    let silent: Vec<TcpStream> = (0..16).map(|_| connect(address)).collect();
    let mut plain = connect(address);
    plain.write_all(&get("/bucket/key")).unwrap();
    let mut alert = [0; 2];
    plain.read_exact(&mut alert).unwrap();
    assert_eq!(alert, [21, 3], "an alert of TLS");
    let (answer, _) = send(&client(&roots, &TLS13), "localhost", address, &get("/bucket/missing")).unwrap();
    assert_eq!(answer.status, 404);
    drop(silent);
}

#[test]
fn what_is_slowed_down_is_slow_over_tls_too() {
    let (identity, authority) = Identity::for_this_run(&[]).unwrap();
    let roots = trusted(&authority);
    let store = Store::Synthetic(vec![("bucket".into(), "k".into(), 1_000_000)], vec![]);
    let slow = Options {
        tls: Some(identity),
        latency: Duration::from_millis(100),
        per_connection: Some(2_000_000),
        ..options(store)
    };
    let origin = Origin::start(slow).unwrap();
    let start = std::time::Instant::now();
    let (answer, _) =
        send(&client(&roots, &TLS13), "localhost", origin.addresses()[0], &get("/bucket/k")).unwrap();
    assert_eq!(answer.body.len(), 1_000_000);
    assert!(start.elapsed() > Duration::from_millis(500), "{:?}", start.elapsed());
}

#[test]
fn an_identity_of_ones_own_is_two_pem_files_that_belong_together() {
    let folder = tempfile::tempdir().unwrap();
    let made = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap().self_signed(&key).unwrap();
        let (pem, secret) =
            (folder.path().join(format!("{name}.pem")), folder.path().join(format!("{name}.key")));
        std::fs::write(&pem, certificate.pem()).unwrap();
        std::fs::write(&secret, key.serialize_pem()).unwrap();
        (pem, secret)
    };
    let ((one, one_key), (_, other_key)) = (made("one"), made("other"));
    assert!(Identity::read(&one, &one_key).is_ok());
    let missing = folder.path().join("missing");
    for (certificate, key, named, why) in [
        (&one, &other_key, &other_key, "is not the key of the certificate"),
        (&missing, &one_key, &missing, "No such file"),
        (&one, &missing, &missing, "No such file"),
        (&one_key, &one_key, &one_key, "no certificate in it"),
        (&one, &one, &one, "no such section"),
    ] {
        let error = Identity::read(certificate, key).unwrap_err().to_string();
        assert!(error.contains(named.to_str().unwrap()) && error.contains(why), "{error}");
    }
}
