//! The stream after a handshake, and whose certificates are trusted by default.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread::JoinHandle;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::version::TLS13;
use rustls::{ServerConfig, ServerConnection, SupportedProtocolVersion};

use super::*;

/// A server that says `text` at once, in the same breath as the last of its handshake, then keeps the
/// connection.
fn server(
    version: &'static SupportedProtocolVersion,
    text: &'static [u8],
) -> (Endpoint, Tls, JoinHandle<()>) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).expect("a root");
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[version])
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        )
        .expect("an identity");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let thread = std::thread::spawn(move || {
        let (mut tcp, _) = listener.accept().expect("a client");
        let mut session = ServerConnection::new(Arc::new(config)).expect("a session");
        while session.is_handshaking() {
            session.complete_io(&mut tcp).expect("a handshake");
        }
        session.writer().write_all(text).expect("room");
        // A client that has seen enough may be gone before all of it is written.
        while session.wants_write() && session.write_tls(&mut tcp).is_ok() {}
        let _ = tcp.read(&mut [0]);
    });
    let (endpoint, _) = Endpoint::parse(&format!("https://{address}")).expect("an endpoint");
    (endpoint, Tls { bundle: Some(roots), config: OnceLock::new() }, thread)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

#[test]
fn a_stream_reads_what_was_said_and_tells_a_cut_from_an_end() {
    let (endpoint, tls, thread) = server(&TLS13, b"the first record");
    run(async {
        let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.expect("a connection");
        let mut stream = tls.handshake(tcp, &endpoint).await.expect("a handshake");
        let mut text = [0; 16];
        stream.read_exact(&mut text[..7]).await.expect("a part of the record");
        stream.read_exact(&mut text[7..]).await.expect("the rest of it");
        assert_eq!(&text, b"the first record");
        let (mut rest, mut buffer) = ([0], [0; 3]);
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"x").await.expect("a server that listens");
        tokio::io::AsyncWriteExt::flush(&mut stream).await.expect("a server that listens");
        assert_eq!(stream.read(&mut buffer[..0]).await.expect("nothing was asked for"), 0);
        let cut = stream.read_exact(&mut rest).await.expect_err("the server went without a word");
        assert!(cut.to_string().contains("without the end of TLS") || cut.raw_os_error().is_some(), "{cut}");
    });
    thread.join().expect("a server without panic");
}

#[test]
fn there_are_roots_without_a_bundle() {
    assert!(!system_roots().is_empty() && webpki_roots::TLS_SERVER_ROOTS.len() > 50);
    let tls = Tls::new(None).expect("no bundle");
    assert!(tls.config().enable_secret_extraction);
    assert_eq!(tls.config().alpn_protocols, [b"http/1.1"]);
    assert!(Arc::ptr_eq(tls.config(), tls.config()), "one store of sessions for all");
}

#[test]
fn a_reset_behind_what_was_decrypted_was_taken_for_an_end() {
    let (endpoint, tls, thread) = server(&TLS13, b"what came before");
    run(async {
        let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await.expect("a connection");
        let mut stream = tls.handshake(tcp, &endpoint).await.expect("a handshake");
        // The server's handshake takes nothing of this; then it reads one byte and closes: a reset, behind
        // what it said.
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        stream.write_all(b"a request").await.expect("room");
        stream.flush().await.expect("room");
        tokio::task::spawn_blocking(|| thread.join()).await.expect("a thread").expect("the server ends");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        let mut text = [0; 100];
        let came = stream.read(&mut text).await.expect("what came before");
        assert_eq!(&text[..came], b"what came before");
        let refused = stream.read(&mut text).await.expect_err("it was reset");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionReset, "{refused}");
    });
}
