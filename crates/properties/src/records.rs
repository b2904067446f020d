//! Records of TLS after a handshake, sealed by us. Whatever a peer sends and however it is cut, rustls's
//! client reads the same text of it, and what rustls refuses is refused. We may refuse more.

use std::io::Read;
use std::sync::{Arc, LazyLock};

use flatout_engine::{APPLICATION_DATA, Incoming, Opener, SEALING_BYTES_MAX, Said, Sealer, TEXT_BYTES_MAX};
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ConnectionTrafficSecrets, Error as TlsError, ProtocolVersion,
    RootCertStore, ServerConfig, ServerConnection, SupportedCipherSuite,
};
use tokio::io::ReadBuf;

use crate::pieces::{Chance, ways};

/// Both layouts of records, and both kinds of nonces; of the ciphers those whose keys can be copied.
const SUITES: [SupportedCipherSuite; 4] = [
    aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384,
    aws_lc_rs::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    aws_lc_rs::cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];
/// Types of records: text, three times as often, alerts, handshakes, others.
const KINDS: [u8; 8] = [23, 23, 23, 21, 22, 20, 24, 0];
/// In a row, as rustls has it.
const EMPTY_MAX: usize = 32;

/// What a client made of a peer's bytes.
#[derive(Debug, PartialEq)]
struct Made {
    text: Vec<u8>,
    /// Whether the peer has said that it ends; or why it is refused.
    end: Result<bool, String>,
}

/// `bytes` say what a peer seals, and what becomes of that on its way.
pub fn records(bytes: &[u8]) {
    let Some((suite, plan)) = bytes.split_first() else { return };
    let (client, version, secrets) = shaken_hands(usize::from(*suite) % SUITES.len());
    let mut wire = Wire {
        sealer: Sealer::new(version, copy(&secrets), u64::MAX).expect("a cipher that is offered"),
        bytes: Vec::new(),
        last: 0,
        empty: 0,
        is_text: true,
        expected: Vec::new(),
    };
    wire.follow(plan);
    let theirs = by_rustls(client, &wire.bytes);
    let mut first: Option<Made> = None;
    for (way, pieces) in ways(&wire.bytes).enumerate() {
        let opener = Opener::new(version, copy(&secrets)).expect("a cipher that is offered");
        let ours = by_us(opener, &pieces, way as u64);
        match &first {
            Some(first) => assert_eq!(&ours, first, "cut in another way"),
            None => first = Some(ours),
        }
    }
    let Some(ours) = first else { return };
    assert!(theirs.text.starts_with(&ours.text), "{ours:?}, and by rustls {theirs:?}");
    if ours.end.is_ok() {
        assert_eq!(ours, theirs, "ours, and rustls's");
    }
    if wire.is_text {
        assert_eq!(ours, Made { text: wire.expected, end: Ok(false) }, "nothing is wrong with it");
    }
}

type Secrets = (u64, ConnectionTrafficSecrets);

/// A client after its handshake, and what its server seals with.
fn shaken_hands(suite: usize) -> (ClientConnection, ProtocolVersion, Secrets) {
    static CONFIGS: LazyLock<Vec<(Arc<ClientConfig>, Arc<ServerConfig>)>> =
        LazyLock::new(|| SUITES.map(configs).into());
    let (client, server) = &CONFIGS[suite];
    let name = ServerName::try_from("origin.test").expect("a name");
    let mut client = ClientConnection::new(client.clone(), name).expect("a client");
    let mut server = ServerConnection::new(server.clone()).expect("a server");
    while client.is_handshaking() || server.is_handshaking() || client.wants_write() || server.wants_write() {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).expect("memory");
        }
        feed(&bytes, |rest| server.read_tls(rest).map(|_| server.process_new_packets()).is_ok());
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).expect("memory");
        }
        feed(&bytes, |rest| client.read_tls(rest).map(|_| client.process_new_packets()).is_ok());
    }
    let version = client.protocol_version().expect("a handshake");
    (client, version, server.dangerous_extract_secrets().expect("secrets").tx)
}

fn copy((number, secrets): &Secrets) -> Secrets {
    let parts = |key: &AeadKey, iv: &Iv| {
        let key: [u8; 32] = key.as_ref().try_into().expect("a key of 32 bytes");
        (AeadKey::from(key), Iv::copy(iv.as_ref()))
    };
    let secrets = match secrets {
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => {
            let (key, iv) = parts(key, iv);
            ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        }
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => {
            let (key, iv) = parts(key, iv);
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }
        }
        _ => unreachable!("SUITES has no other"),
    };
    (*number, secrets)
}

fn feed(bytes: &[u8], mut take: impl FnMut(&mut &[u8]) -> bool) {
    let mut rest = bytes;
    while !rest.is_empty() {
        assert!(take(&mut rest), "a handshake between two of rustls");
    }
}

fn configs(suite: SupportedCipherSuite) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["origin.test".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).expect("a root");
    // The cheapest exchange of keys: there is one for every input.
    let kx_groups = vec![aws_lc_rs::kx_group::X25519];
    let provider = CryptoProvider { cipher_suites: vec![suite], kx_groups, ..aws_lc_rs::default_provider() };
    let provider = Arc::new(provider);
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[suite.version()])
        .expect("a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[suite.version()])
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).expect("a key"),
        )
        .expect("an identity");
    server.enable_secret_extraction = true;
    (Arc::new(client), Arc::new(server))
}

/// What a peer sends.
struct Wire {
    sealer: Sealer,
    bytes: Vec<u8>,
    /// Where the last record begins.
    last: usize,
    empty: usize,
    /// Nothing but text has been sealed, and nothing was changed.
    is_text: bool,
    expected: Vec<u8>,
}

impl Wire {
    /// Two bytes say what comes next, and of what length; some of it follows them.
    fn follow(&mut self, mut plan: &[u8]) {
        while let [what, length, rest @ ..] = plan {
            let (literal, behind) = rest.split_at(rest.len().min(usize::from(*length)));
            let kind = KINDS[usize::from(what >> 3) % KINDS.len()];
            plan = behind;
            match what % 8 {
                0..=2 => self.seal(kind, literal, 0),
                3 => {
                    // Long records, a few beyond what is allowed.
                    let long = literal.iter().cycle().take(usize::from(*length) * 65);
                    self.seal(kind, &long.copied().collect::<Vec<_>>(), 0);
                }
                4 => self.seal(kind, literal, usize::from(*length) * 64),
                5 => {
                    self.bytes.extend_from_slice(literal);
                    self.is_text &= literal.is_empty();
                }
                _ => {
                    let (from, rest) = (self.last, literal.first_chunk());
                    let Some([at, with]) = rest else { continue };
                    let end = self.bytes.len();
                    if from < end {
                        self.bytes[from + usize::from(*at) % (end - from)] ^= with;
                        self.is_text &= *with == 0;
                    }
                }
            }
        }
    }

    fn seal(&mut self, kind: u8, text: &[u8], padding: usize) {
        self.last = self.bytes.len();
        let padded = [text, &[kind], &vec![0; padding]].concat();
        // A type of 0 lies where padding would: the true type before it.
        let (outer, sealed) = if padding > 0 { (0, &padded[..]) } else { (kind, text) };
        self.bytes.resize(self.last + sealed.len() + SEALING_BYTES_MAX, 0);
        let record = self.sealer.seal(outer, sealed, &mut self.bytes[self.last..]).expect("a key");
        self.bytes.truncate(self.last + record);
        self.empty = if text.is_empty() { self.empty + 1 } else { 0 };
        let is_short = text.len() <= TEXT_BYTES_MAX && padding == 0;
        self.is_text &= kind == APPLICATION_DATA && is_short && self.empty <= EMPTY_MAX;
        self.expected.extend_from_slice(text);
    }
}

fn by_rustls(mut client: ClientConnection, wire: &[u8]) -> Made {
    let (mut text, mut rest, mut is_closed) = (Vec::new(), wire, false);
    let mut refused = None;
    while !rest.is_empty() && !is_closed && refused.is_none() {
        client.read_tls(&mut rest).expect("memory to read from");
        match client.process_new_packets() {
            Ok(state) => is_closed = state.peer_has_closed(),
            Err(why) => refused = Some(why.to_string()),
        }
        let mut piece = [0; 4 << 10];
        while let Ok(bytes @ 1..) = client.reader().read(&mut piece) {
            text.extend_from_slice(&piece[..bytes]);
        }
    }
    Made { text, end: refused.map_or(Ok(is_closed), Err) }
}

/// Reads `pieces` as they come, into buffers of many lengths.
fn by_us(opener: Opener, pieces: &[&[u8]], way: u64) -> Made {
    let mut incoming = Incoming::new(opener);
    let mut chance = Chance::of(&way.to_be_bytes(), 0);
    let (mut text, mut room) = (Vec::new(), vec![0; 40 << 10]);
    // What is said besides text is judged beyond the records, by rustls: here it is refused.
    let on_said = &mut |_: Said<'_>| Err(TlsError::General("not a text".into()));
    for piece in pieces {
        let mut piece = *piece;
        loop {
            let most = room.len();
            let longest = if chance.below(2) == 0 { most } else { 100 };
            let wanted = 1 + chance.below(longest);
            let mut buffer = ReadBuf::new(&mut room[..wanted]);
            let taken = incoming.push(piece, &mut buffer, on_said);
            text.extend_from_slice(buffer.filled());
            if let Err(why) = taken {
                return Made { text, end: Err(why.to_string()) };
            }
            piece = &[];
            if buffer.remaining() > 0 {
                break;
            }
        }
    }
    Made { text, end: Ok(incoming.is_closed()) }
}
