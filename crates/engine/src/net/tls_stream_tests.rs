//! Our records against rustls's server: every suite, sizes, keys that change, and everything that a peer may
//! get wrong.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use flatout_wire::endpoint::Endpoint;
use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::PrivateKeyDer;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, ServerConnection};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;
use crate::net::tls::{Tls, provider};
use crate::net::tls_records::{CHANGE_CIPHER_SPEC, HEADER_BYTES};

const TLS13: SupportedCipherSuite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
const TLS12: SupportedCipherSuite = aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;

/// A server's side of a connection, after its handshake.
struct Served {
    tcp: std::net::TcpStream,
    session: ServerConnection,
}

/// A server's side that seals and opens by itself: it can say what no server should.
struct Raw {
    tcp: std::net::TcpStream,
    sealer: Sealer,
    opener: Opener,
}

impl Served {
    fn say(&mut self, text: &[u8]) {
        self.session.writer().write_all(text).expect("room");
        self.flush();
    }

    fn flush(&mut self) {
        while self.session.wants_write() {
            self.session.write_tls(&mut self.tcp).expect("a client that reads");
        }
    }

    fn hear(&mut self, bytes: usize) -> Vec<u8> {
        let mut heard = vec![0; bytes];
        let mut at = 0;
        while at < bytes {
            match self.session.reader().read(&mut heard[at..]) {
                Ok(more) => at += more,
                Err(_) => {
                    self.session.complete_io(&mut self.tcp).expect("a client that writes");
                }
            }
        }
        heard
    }

    fn raw(mut self) -> Raw {
        self.flush();
        let version = self.session.protocol_version().expect("a handshake");
        let secrets = self.session.dangerous_extract_secrets().expect("secrets");
        Raw {
            tcp: self.tcp,
            sealer: Sealer::new(version, secrets.tx, u64::MAX).expect("a cipher"),
            opener: Opener::new(version, secrets.rx).expect("a cipher"),
        }
    }
}

impl Raw {
    fn record(&mut self, kind: u8, text: &[u8]) -> Vec<u8> {
        let mut record = vec![0; text.len() + SEALING_BYTES_MAX];
        let bytes = self.sealer.seal(kind, text, &mut record).expect("a key");
        record.truncate(bytes);
        record
    }

    /// In TLS 1.3: a text, its type, and padding behind it.
    fn padded(&mut self, kind: u8, text: &[u8], padding: usize) -> Vec<u8> {
        self.record(0, &[text, &[kind], &vec![0; padding]].concat())
    }

    /// Type and text of what the client says next; nothing where it says no more.
    fn hear(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut record = vec![0; HEADER_BYTES];
        self.tcp.read_exact(&mut record).ok()?;
        record.resize(HEADER_BYTES + usize::from(u16::from_be_bytes([record[3], record[4]])), 0);
        self.tcp.read_exact(&mut record[HEADER_BYTES..]).ok()?;
        let mut text = vec![0; self.opener.opened_bytes(&record)];
        let (kind, bytes) = self.opener.open(&record, &mut text).expect("a record of the client's");
        text.truncate(bytes);
        Some((kind, text))
    }
}

struct Server {
    endpoint: Endpoint,
    tls: Tls,
    thread: JoinHandle<()>,
}

/// Serves one connection after the other, over this suite alone, each by one of `scripts`.
fn server(suite: SupportedCipherSuite, scripts: Vec<Box<dyn FnOnce(Served) + Send>>) -> Server {
    let is_rsa = format!("{:?}", suite.suite()).contains("RSA");
    let key = match is_rsa {
        true => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        false => KeyPair::generate(),
    };
    let key = key.expect("a key");
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).expect("a root");
    let crypto = CryptoProvider { cipher_suites: vec![suite], ..provider() };
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto))
        .with_protocol_versions(&[suite.version()])
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        )
        .expect("an identity");
    config.enable_secret_extraction = true;
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").expect("a port"));
    let address = listener.local_addr().expect("its address");
    let thread = std::thread::spawn(move || {
        for script in scripts {
            let (mut tcp, _) = listener.accept().expect("a client");
            tcp.set_nodelay(true).expect("an option");
            let mut session = ServerConnection::new(config.clone()).expect("a session");
            session.set_buffer_limit(None);
            while session.is_handshaking() {
                session.complete_io(&mut tcp).expect("a handshake");
            }
            script(Served { tcp, session });
        }
    });
    let (endpoint, _) = Endpoint::parse(&format!("https://{address}")).expect("an endpoint");
    Server { endpoint, tls: Tls::trusting(roots), thread }
}

fn one(suite: SupportedCipherSuite, script: impl FnOnce(Served) + Send + 'static) -> Server {
    server(suite, vec![Box::new(script)])
}

impl Server {
    async fn connect(&self) -> TlsStream {
        let tcp = TcpStream::connect((self.endpoint.host.as_str(), self.endpoint.port));
        let tcp = tcp.await.expect("a connection");
        self.tls.handshake(tcp, &self.endpoint).await.expect("a handshake")
    }

    /// Connects once, and waits for the server to have said all that it has to say.
    fn run<T>(self, client: impl AsyncFnOnce(TlsStream) -> T) -> T {
        run(async {
            let stream = self.connect().await;
            let came = client(stream).await;
            tokio::task::spawn_blocking(|| self.thread.join()).await.expect("a thread").expect("no panic");
            came
        })
    }
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn every_suite_that_is_offered_carries_bytes_both_ways() {
    for suite in provider().cipher_suites {
        let text = bytes(700_001);
        let expected = text.clone();
        let server = one(suite, move |mut served| {
            let heard = served.hear(text.len());
            assert!(heard == text, "other bytes");
            served.say(&heard[..1]);
            served.say(&heard[1..]);
        });
        server.run(async |mut stream| {
            assert_eq!(stream.agreed().1, format!("{:?}", suite.suite()));
            let (mut heard, mut rest) = (vec![0; expected.len()], [0]);
            stream.write_all(&expected).await.expect("a server that reads");
            stream.flush().await.expect("a server that reads");
            stream.read_exact(&mut heard).await.expect("the same bytes");
            assert!(heard == expected, "other bytes by {:?}", suite.suite());
            let cut = stream.read(&mut rest).await.expect_err("the server said no good-bye");
            assert!(cut.to_string().contains("without the end of TLS"), "{cut}");
        });
    }
}

/// What came until the end, by reads of at most `most`.
async fn read_all(stream: &mut TlsStream, most: usize) -> (Vec<u8>, io::Result<()>) {
    let (mut all, mut buffer) = (Vec::new(), vec![0; most]);
    loop {
        match stream.read(&mut buffer).await {
            Ok(0) => return (all, Ok(())),
            Ok(bytes) => all.extend_from_slice(&buffer[..bytes]),
            Err(refused) => return (all, Err(refused)),
        }
    }
}

#[test]
fn records_of_any_size_are_read_into_buffers_of_any_size() {
    for suite in [TLS13, TLS12] {
        for most in [1, 7, 1_000, 16_384, 16_385, 20_000, 300_000] {
            let text = bytes(3 * TEXT_BYTES_MAX + 5_000);
            let expected = text.clone();
            let server = one(suite, move |served| {
                let mut raw = served.raw();
                let (crumbs, mut rest) = text.split_at(300);
                let mut records: Vec<u8> =
                    crumbs.iter().flat_map(|crumb| raw.record(APPLICATION_DATA, &[*crumb])).collect();
                for bytes in
                    [0, TEXT_BYTES_MAX, 1_023, 1_024, 1_025, TEXT_BYTES_MAX - 1, usize::MAX, usize::MAX]
                {
                    let (now, later) = rest.split_at(bytes.min(rest.len()).min(TEXT_BYTES_MAX));
                    records.extend(raw.record(APPLICATION_DATA, now));
                    rest = later;
                }
                assert!(rest.is_empty(), "{} bytes are left", rest.len());
                records.extend(raw.record(ALERT, &[WARNING, 0]));
                // What comes behind the end is nobody's.
                records.extend(raw.record(APPLICATION_DATA, b"more"));
                raw.tcp.write_all(&records).expect("a client that reads");
                let _ = raw.hear();
            });
            server.run(async |mut stream| {
                let (came, end) = read_all(&mut stream, most).await;
                assert!(came == expected, "{} of {} bytes, by {most}", came.len(), expected.len());
                assert!(end.is_ok(), "{end:?}");
                assert_eq!(stream.read(&mut [0; 9]).await.expect("an end"), 0);
            });
        }
    }
}

#[test]
fn padding_is_no_text() {
    let server = one(TLS13, |served| {
        let mut raw = served.raw();
        let mut records = raw.padded(APPLICATION_DATA, b"padded", 9_000);
        records.extend(raw.padded(APPLICATION_DATA, b"", 100));
        records.extend(raw.padded(APPLICATION_DATA, &[0; 3_000], TEXT_BYTES_MAX - 3_001));
        records.extend(raw.padded(ALERT, &[WARNING, 0], 2_000));
        raw.tcp.write_all(&records).expect("a client that reads");
        let _ = raw.hear();
    });
    server.run(async |mut stream| {
        let (came, end) = read_all(&mut stream, 100_000).await;
        assert!(came == [&b"padded"[..], &[0; 3_000]].concat() && end.is_ok(), "{}, {end:?}", came.len());
    });
}

#[test]
fn keys_change_amid_bodies_both_ways() {
    let text = bytes(200_000);
    let expected = text.clone();
    let server = one(TLS13, move |mut served| {
        for piece in text.chunks(20_000) {
            served.say(piece);
            // The client is asked to change its key, too.
            served.session.refresh_traffic_keys().expect("TLS 1.3");
            served.flush();
            assert!(served.hear(piece.len()) == piece, "other bytes");
        }
    });
    server.run(async |mut stream| {
        for piece in expected.chunks(20_000) {
            let mut came = vec![0; piece.len()];
            stream.read_exact(&mut came).await.expect("a piece");
            assert!(came == piece, "other bytes");
            stream.write_all(piece).await.expect("a server that reads");
            stream.flush().await.expect("a server that reads");
        }
        assert!(stream.read(&mut [0]).await.is_err(), "the server said no good-bye");
    });
}

#[test]
fn a_key_is_renewed_before_it_is_spent() {
    let text = bytes(1_000_000);
    let expected = text.clone();
    let server = one(TLS13, move |mut served| assert!(served.hear(text.len()) == text, "other bytes"));
    server.run(async |mut stream| {
        for piece in expected.chunks(50_000) {
            // As if all but a few had been sealed.
            stream.outgoing.sealer.limit_to(SPARE_RECORDS - 1);
            stream.write_all(piece).await.expect("a server that reads");
            assert_eq!(stream.outgoing.sealer.number(), 4, "under a key of its own");
        }
        stream.flush().await.expect("a server that reads");
        assert!(stream.read(&mut [0]).await.is_err(), "the server said no good-bye");
    });
    // TLS 1.2 has no other key: nothing is sealed beyond what this one may.
    let server = one(TLS12, |mut served| drop(served.session.complete_io(&mut served.tcp)));
    server.run(async |mut stream| {
        stream.outgoing.sealer.limit_to(2);
        let refused = stream.write_all(&bytes(100_000)).await.expect_err("a key that is spent");
        assert!(refused.to_string().contains("as many records"), "{refused}");
    });
}

#[test]
fn tickets_that_come_after_the_handshake_resume_a_session() {
    for suite in [TLS13, TLS12] {
        let script = |expected: HandshakeKind| -> Box<dyn FnOnce(Served) + Send> {
            Box::new(move |mut served: Served| {
                assert_eq!(served.session.handshake_kind(), Some(expected));
                served.say(b"text");
                let _ = served.session.complete_io(&mut served.tcp);
            })
        };
        let server = server(suite, vec![script(HandshakeKind::Full), script(HandshakeKind::Resumed)]);
        run(async {
            for _ in 0..2 {
                let mut stream = server.connect().await;
                stream.read_exact(&mut [0; 4]).await.expect("a text");
                stream.shutdown().await.expect("a socket");
            }
            tokio::task::spawn_blocking(|| server.thread.join()).await.expect("a thread").expect("no panic");
        });
    }
}

#[test]
fn a_ticket_may_be_cut_into_records() {
    let server = one(TLS13, |served| {
        let mut raw = served.raw();
        // Lifetime, age, nonce, ticket, no extensions.
        let body = [&[0, 0, 1, 0, 0, 0, 0, 0, 1, 7][..], &500u16.to_be_bytes(), &[9; 500], &[0, 0]].concat();
        let ticket = [&[4, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat();
        let mut records = raw.record(HANDSHAKE, &ticket[..3]);
        records.extend(raw.record(HANDSHAKE, &ticket[3..]));
        records.extend(raw.record(HANDSHAKE, &[&ticket[..], &ticket, &ticket[..300]].concat()));
        records.extend(raw.record(HANDSHAKE, &ticket[300..]));
        records.extend(raw.record(APPLICATION_DATA, b"text"));
        raw.tcp.write_all(&records).expect("a client that reads");
        let _ = raw.hear();
    });
    server.run(async |mut stream| {
        stream.read_exact(&mut [0; 4]).await.expect("a text behind the tickets");
    });
}

#[test]
fn only_text_is_written_into_a_landing() {
    let server = one(TLS13, |served| {
        let mut raw = served.raw();
        let mut records = raw.record(APPLICATION_DATA, b"text");
        records.extend(raw.record(ALERT, &[WARNING, 0]));
        raw.tcp.write_all(&records).expect("a client that reads");
        let _ = raw.hear();
    });
    server.run(async |mut stream| {
        let mut landing = [0xAA; 2_000];
        assert_eq!(stream.read(&mut landing).await.expect("a text"), 4);
        assert!(landing[4..].iter().all(|byte| *byte == 0xAA), "other things were written behind it");
    });
}

type Fault = fn(&mut Raw) -> Vec<u8>;

/// The client refuses what comes behind `text`, which it hands out, and says why by this alert.
#[track_caller]
fn check(suite: SupportedCipherSuite, what: &'static str, alert: AlertDescription, fault: Fault) {
    let server = one(suite, move |served| {
        let mut raw = served.raw();
        let text = raw.record(APPLICATION_DATA, b"text");
        let fault = fault(&mut raw);
        raw.tcp.write_all(&[text, fault].concat()).expect("a client that reads");
        let said = raw.hear();
        let expected = u8::from(alert);
        assert_eq!(said, Some((ALERT, vec![FATAL, expected])), "{what}: the alert is {alert:?}");
    });
    server.run(async |mut stream| {
        let (came, end) = read_all(&mut stream, 40_000).await;
        assert_eq!(came, b"text", "{what}");
        let refused = end.expect_err(what);
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData, "{what}: {refused}");
        let again = stream.read(&mut [0; 9]).await.expect_err(what);
        assert_eq!(again.kind(), io::ErrorKind::InvalidData, "{what}: {again}");
        let written = stream.write(b"more").await.expect_err(what);
        assert_eq!(written.kind(), io::ErrorKind::InvalidData, "{what}: {written}");
    });
}

fn with(mut record: Vec<u8>, at: usize, byte: u8) -> Vec<u8> {
    record[at] ^= byte;
    record
}

#[test]
fn faults_of_either_version_fail_closed() {
    use AlertDescription as Alert;
    for suite in [TLS13, TLS12] {
        check(suite, "a tag that does not fit", Alert::BadRecordMac, |raw| {
            let record = raw.record(APPLICATION_DATA, b"forged");
            let last = record.len() - 1;
            with(record, last, 1)
        });
        check(suite, "a text that does not fit", Alert::BadRecordMac, |raw| {
            with(raw.record(APPLICATION_DATA, &[7; 9_000]), 4_000, 1)
        });
        check(suite, "a record twice", Alert::BadRecordMac, |raw| {
            let record = raw.record(APPLICATION_DATA, b"");
            [&record[..], &record].concat()
        });
        check(suite, "a record left out", Alert::BadRecordMac, |raw| {
            raw.record(APPLICATION_DATA, b"left out");
            raw.record(APPLICATION_DATA, b"and this came")
        });
        check(suite, "a length cut", Alert::BadRecordMac, |raw| {
            with(raw.record(APPLICATION_DATA, &[7; 100]), 4, 4)
        });
        check(suite, "less than a tag", Alert::BadRecordMac, |_| vec![APPLICATION_DATA, 3, 3, 0, 16, 0]);
        check(suite, "nothing", Alert::BadRecordMac, |_| vec![APPLICATION_DATA, 3, 3, 0, 0]);
        check(suite, "too long a record", Alert::RecordOverflow, |_| {
            vec![APPLICATION_DATA, 3, 3, 0x48, 0x01]
        });
        check(suite, "too long a text", Alert::RecordOverflow, |raw| {
            raw.record(APPLICATION_DATA, &[7; TEXT_BYTES_MAX + 1])
        });
        check(suite, "another version", Alert::ProtocolVersion, |raw| {
            with(raw.record(APPLICATION_DATA, b"x"), 2, 1)
        });
        check(suite, "an unknown type", Alert::UnexpectedMessage, |_| vec![99, 3, 3, 0, 30]);
        check(suite, "heartbeats", Alert::UnexpectedMessage, |_| vec![24, 3, 3, 0, 30]);
        check(suite, "a change of cipher", Alert::UnexpectedMessage, |_| {
            vec![CHANGE_CIPHER_SPEC, 3, 3, 0, 1, 1]
        });
        check(suite, "empty records without end", Alert::UnexpectedMessage, |raw| {
            (0..33).flat_map(|_| raw.record(APPLICATION_DATA, b"")).collect()
        });
        check(suite, "half an alert", Alert::DecodeError, |raw| raw.record(ALERT, &[FATAL]));
        check(suite, "an alert and more", Alert::DecodeError, |raw| raw.record(ALERT, &[FATAL, 0, 0]));
        check(suite, "an alert of nothing", Alert::DecodeError, |raw| raw.record(ALERT, &[]));
        check(suite, "a finish after the end", Alert::UnexpectedMessage, |raw| {
            raw.record(HANDSHAKE, &[20, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
        });
        check(suite, "warnings without end", Alert::UnexpectedMessage, |raw| {
            (0..5).flat_map(|_| raw.record(ALERT, &[WARNING, 90])).collect()
        });
    }
}

#[test]
fn faults_of_tls_1_2_fail_closed() {
    use AlertDescription as Alert;
    check(TLS12, "another handshake", Alert::NoRenegotiation, |raw| raw.record(HANDSHAKE, &[0, 0, 0, 0]));
    check(TLS12, "a ticket after the handshake", Alert::UnexpectedMessage, |raw| {
        raw.record(HANDSHAKE, &[4, 0, 0, 6, 0, 0, 0, 9, 0, 0])
    });
    check(TLS12, "a new key", Alert::UnexpectedMessage, |raw| raw.record(HANDSHAKE, &NEXT_KEY));
    check(TLS12, "a type that was not sealed", Alert::BadRecordMac, |raw| {
        with(raw.record(APPLICATION_DATA, b"xy"), 0, APPLICATION_DATA ^ ALERT)
    });
    check(TLS12, "a nonce that does not fit", Alert::BadRecordMac, |raw| {
        with(raw.record(APPLICATION_DATA, b"xy"), 6, 1)
    });
}

#[test]
fn faults_of_tls_1_3_fail_closed() {
    use AlertDescription as Alert;
    check(TLS13, "no type", Alert::UnexpectedMessage, |raw| raw.record(0, &[0; 2_000]));
    check(TLS13, "a type that nobody knows", Alert::UnexpectedMessage, |raw| raw.record(25, &[1; 2_000]));
    check(TLS13, "a sealed change of cipher", Alert::UnexpectedMessage, |raw| {
        raw.record(CHANGE_CIPHER_SPEC, &[1])
    });
    check(TLS13, "too much padding", Alert::RecordOverflow, |raw| {
        raw.padded(APPLICATION_DATA, b"x", TEXT_BYTES_MAX)
    });
    check(TLS13, "an alert that is not sealed", Alert::UnexpectedMessage, |_| {
        vec![ALERT, 3, 3, 0, 2, WARNING, 0]
    });
    check(TLS13, "an empty message", Alert::DecodeError, |raw| raw.record(HANDSHAKE, &[]));
    check(TLS13, "a handshake", Alert::UnexpectedMessage, |raw| raw.record(HANDSHAKE, &[0, 0, 0, 0]));
    check(TLS13, "a question for certificates", Alert::UnexpectedMessage, |raw| {
        raw.record(HANDSHAKE, &[13, 0, 0, 3, 0, 0, 0])
    });
    check(TLS13, "a message without end", Alert::DecodeError, |raw| {
        raw.record(HANDSHAKE, &[4, 0xFF, 0xFF, 0xFF, 0])
    });
    check(TLS13, "a ticket of nonsense", Alert::DecodeError, |raw| {
        raw.record(HANDSHAKE, &[4, 0, 0, 3, 1, 2, 3])
    });
    check(TLS13, "text amid a ticket", Alert::UnexpectedMessage, |raw| {
        let ticket = raw.record(HANDSHAKE, &[4, 0, 0, 100, 1, 2, 3]);
        [ticket, raw.record(APPLICATION_DATA, b"more")].concat()
    });
    check(TLS13, "an alert amid a ticket", Alert::UnexpectedMessage, |raw| {
        let ticket = raw.record(HANDSHAKE, &[4, 0, 0, 100, 1, 2, 3]);
        [ticket, raw.record(ALERT, &[WARNING, 0])].concat()
    });
    check(TLS13, "a new key in pieces", Alert::UnexpectedMessage, |raw| {
        let piece = raw.record(HANDSHAKE, &NEXT_KEY[..2]);
        [piece, raw.record(HANDSHAKE, &NEXT_KEY[2..])].concat()
    });
    check(TLS13, "more behind a new key", Alert::UnexpectedMessage, |raw| {
        raw.record(HANDSHAKE, &[&NEXT_KEY[..], &NEXT_KEY].concat())
    });
    check(TLS13, "a new key that asks for nothing known", Alert::IllegalParameter, |raw| {
        raw.record(HANDSHAKE, &[24, 0, 0, 1, 2])
    });
    check(TLS13, "a new key of another length", Alert::IllegalParameter, |raw| {
        raw.record(HANDSHAKE, &[24, 0, 0, 2, 0, 0])
    });
    check(TLS13, "the old key after a new one", Alert::BadRecordMac, |raw| {
        let next = raw.record(HANDSHAKE, &NEXT_KEY);
        [next, raw.record(APPLICATION_DATA, b"under the old key")].concat()
    });
}

#[test]
fn an_alert_of_the_server_is_its_reason() {
    for suite in [TLS13, TLS12] {
        let server = one(suite, |served| {
            let mut raw = served.raw();
            let alert = raw.record(ALERT, &[FATAL, AlertDescription::CertificateRequired.into()]);
            raw.tcp.write_all(&alert).expect("a client that reads");
            assert_eq!(raw.hear(), None, "an alert is not answered");
        });
        let refused = server.run(async |mut stream| {
            let refused = stream.read(&mut [0; 9]).await.expect_err("an alert");
            stream.shutdown().await.expect("a socket");
            refused
        });
        let why = refused.get_ref().and_then(|why| why.downcast_ref::<TlsError>());
        assert_eq!(why, Some(&TlsError::AlertReceived(AlertDescription::CertificateRequired)));
    }
}

#[test]
fn the_beginning_of_a_record_has_come() {
    let server = one(TLS13, |served| {
        let mut raw = served.raw();
        let (first, second) =
            (raw.record(APPLICATION_DATA, b"head"), raw.record(APPLICATION_DATA, &[7; 16_384]));
        raw.tcp.write_all(&[&first, &second[..5_000]].concat()).expect("a client that reads");
        // Until the client has looked.
        assert_eq!(raw.hear().map(|(_, text)| text), Some(b"go on".to_vec()));
        raw.tcp.write_all(&second[5_000..]).expect("a client that reads");
        let _ = raw.hear();
    });
    server.run(async |mut stream| {
        let mut head = [0; 4];
        stream.read_exact(&mut head).await.expect("a head");
        assert_eq!(&head, b"head");
        // It moves from the kernel into our hands, and counts as before.
        let mut rest = vec![0; 16_384];
        let read = tokio::time::timeout(std::time::Duration::from_millis(20), stream.read(&mut rest)).await;
        assert!(read.is_err(), "a record that is not whole has no text");
        assert_eq!(stream.untaken_bytes(), 5_000);
        stream.write_all(b"go on").await.expect("a server that reads");
        stream.read_exact(&mut rest).await.expect("the rest");
        assert!(rest.iter().all(|byte| *byte == 7));
        assert_eq!(stream.untaken_bytes(), 0);
    });
}

#[test]
fn a_cut_is_no_end_wherever_it_comes() {
    for suite in [TLS13, TLS12] {
        for keep in [0, 3, HEADER_BYTES, 20, 500] {
            let server = one(suite, move |served| {
                let mut raw = served.raw();
                let text = raw.record(APPLICATION_DATA, b"text");
                let next = raw.record(APPLICATION_DATA, &[7; 1_000]);
                raw.tcp.write_all(&[&text[..], &next[..keep]].concat()).expect("a client that reads");
            });
            server.run(async |mut stream| {
                for most in [2, 100, 100] {
                    let (mut buffer, mut came) = (vec![0; most], 0);
                    match stream.read(&mut buffer).await {
                        Ok(bytes) => came += bytes,
                        Err(cut) => assert!(cut.to_string().contains("without the end"), "{cut}"),
                    }
                    assert!(came <= 2, "{came}");
                }
                let cut = stream.read(&mut [0]).await.expect_err("it was cut");
                assert!(cut.to_string().contains("without the end of TLS"), "{cut}");
            });
        }
    }
}

#[test]
fn new_keys_without_text_come_to_an_end() {
    let server = one(TLS13, |mut served| {
        for _ in 0..40 {
            let _ = served.session.refresh_traffic_keys();
            while served.session.wants_write() && served.session.write_tls(&mut served.tcp).is_ok() {}
        }
        let _ = served.session.read_tls(&mut served.tcp);
    });
    server.run(async |mut stream| {
        let refused = stream.read(&mut [0; 9]).await.expect_err("too many");
        assert!(refused.to_string().contains("TooManyKeyUpdateRequests"), "{refused}");
    });
}
