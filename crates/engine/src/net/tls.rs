//! TLS: whom a client trusts, and the handshake.
//!
//! rustls keeps the handshake. It is fed one record at a time, so that it never holds a byte beyond it: there
//! `TlsStream` takes the secrets over (docs/decisions/tls-records.md).

use std::io;
use std::sync::{Arc, OnceLock};

use flatout_wire::endpoint::Endpoint;
use rustls::client::{ClientConnectionData, Resumption, UnbufferedClientConnection};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{ClientConfig, Error as TlsError, PeerMisbehaved, RootCertStore, SupportedCipherSuite};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::base::error::{Error, ErrorKind, SETTINGS};
use crate::net::tls_errors::{explain, not_tls};
use crate::net::tls_records::{HEADER_BYTES, RECORD_BYTES_MAX};
use crate::net::tls_stream::TlsStream;

/// Sessions to resume. rustls keeps eight for each name.
const SESSIONS: usize = 1_024;

/// Whom a client trusts, and the sessions that its shards share.
pub(crate) struct Tls {
    bundle: Option<RootCertStore>,
    /// Made at the first use: a client without https reads no certificate.
    config: OnceLock<Arc<ClientConfig>>,
}

impl Tls {
    /// `ca_bundle` is a file of PEM certificates that are trusted in place of the system's.
    pub(crate) fn new(ca_bundle: Option<&str>) -> Result<Tls, Error> {
        let bundle = ca_bundle.map(read_bundle).transpose()?;
        Ok(Tls { bundle, config: OnceLock::new() })
    }

    #[cfg(test)]
    pub(super) fn trusting(roots: RootCertStore) -> Tls {
        Tls { bundle: Some(roots), config: OnceLock::new() }
    }

    pub(crate) fn config(&self) -> &Arc<ClientConfig> {
        self.config.get_or_init(|| Arc::new(config(self.bundle.clone().unwrap_or_else(system_roots))))
    }

    /// Speaks TLS over `tcp`, with the certificate's name held against the endpoint's host.
    pub(crate) async fn handshake(&self, tcp: TcpStream, endpoint: &Endpoint) -> Result<TlsStream, Error> {
        // The dot that ends an absolute name is no part of it in certificates (RFC 6066 §3).
        let name = ServerName::try_from(endpoint.host.trim_end_matches('.').to_owned()).map_err(|_| {
            Error::new(ErrorKind::Usage, format!("{} is no name that a certificate can have", endpoint.host))
        })?;
        let broken = |why| Error::new(ErrorKind::Internal, format!("TLS cannot start: {why}"));
        let session = UnbufferedClientConnection::new(self.config().clone(), name).map_err(broken)?;
        let mut handshaking = Handshaking { tcp, session, incoming: Vec::new(), outgoing: Vec::new() };
        if let Err(why) = handshaking.shake_hands(endpoint).await {
            handshaking.say_why();
            return Err(why);
        }
        let Handshaking { tcp, session, .. } = handshaking;
        let (secrets, session) = session.dangerous_into_kernel_connection().map_err(broken)?;
        TlsStream::new(tcp, session, secrets).map_err(broken)
    }
}

fn config(roots: RootCertStore) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has suites of TLS 1.2 and 1.3")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(SESSIONS);
    // For the records, which are ours.
    config.enable_secret_extraction = true;
    config
}

/// AES-GCM goes first where the CPU has instructions for it, with the shorter key, which is the faster;
/// ChaCha20 elsewhere. Peers that have no preference of their own take the first.
pub(super) fn provider() -> CryptoProvider {
    use aws_lc_rs::cipher_suite as suite;
    let aes = [
        suite::TLS13_AES_128_GCM_SHA256,
        suite::TLS13_AES_256_GCM_SHA384,
        suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ];
    let chacha = [
        suite::TLS13_CHACHA20_POLY1305_SHA256,
        suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    let cipher_suites: Vec<SupportedCipherSuite> = match has_aes() {
        true => aes.into_iter().chain(chacha).collect(),
        false => chacha.into_iter().chain(aes).collect(),
    };
    CryptoProvider { cipher_suites, ..aws_lc_rs::default_provider() }
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

/// The system's roots; those built in where there are none, as in a container made from scratch.
fn system_roots() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

fn read_bundle(path: &str) -> Result<RootCertStore, Error> {
    let usage = |why: String| {
        Error::new(ErrorKind::Usage, format!("{path}: {why}"))
            .during(SETTINGS, "ca-bundle")
            .with_hint("name a file of certificates in PEM form, each from -----BEGIN CERTIFICATE----- on")
    };
    let unreadable = |why: pem::Error| match why {
        pem::Error::Io(refused) => usage(crate::base::error::plain(&refused)),
        other => usage(format!("is no PEM file: {other}")),
    };
    let mut roots = RootCertStore::empty();
    for (number, certificate) in (1..).zip(CertificateDer::pem_file_iter(path).map_err(unreadable)?) {
        let added = roots.add(certificate.map_err(unreadable)?);
        added.map_err(|why| usage(format!("certificate {number} in it cannot be used: {why}")))?;
    }
    match roots.is_empty() {
        true => Err(usage("there is no certificate in it".into())),
        false => Ok(roots),
    }
}

/// The configuration of a client with that bundle, for a measurement beside it that has to agree on the same
/// cipher.
///
/// # Errors
/// [`ErrorKind::Usage`] for a bundle that cannot be read.
#[doc(hidden)]
pub fn tls_config(ca_bundle: Option<&str>) -> Result<Arc<ClientConfig>, Error> {
    Ok(Tls::new(ca_bundle)?.config().clone())
}

/// A handshake by rustls, which is given one record at a time.
struct Handshaking {
    tcp: TcpStream,
    session: UnbufferedClientConnection,
    /// Received, and not yet used up: the start of a message that goes on in the next record.
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

enum Step {
    Again,
    Send,
    Receive,
    Done,
}

impl Handshaking {
    async fn shake_hands(&mut self, endpoint: &Endpoint) -> Result<(), Error> {
        let broke = |refused| handshake_broke(endpoint, refused);
        loop {
            match self.step().map_err(|why| explain(&why, endpoint))? {
                Step::Again => {}
                Step::Send => {
                    self.tcp.write_all(&self.outgoing).await.map_err(broke)?;
                    self.outgoing.clear();
                }
                Step::Receive => self.read_record(endpoint).await?,
                // Keys change here, so no message may go on.
                Step::Done if self.incoming.is_empty() => return Ok(()),
                Step::Done => {
                    return Err(explain(&PeerMisbehaved::KeyEpochWithPendingFragment.into(), endpoint));
                }
            }
        }
    }

    fn step(&mut self) -> Result<Step, TlsError> {
        let UnbufferedStatus { discard, state, .. } = self.session.process_tls_records(&mut self.incoming);
        let step = match state {
            Ok(ConnectionState::EncodeTlsData(mut message)) => {
                encode(&mut message, &mut self.outgoing).map(|()| Step::Again)
            }
            Ok(ConnectionState::TransmitTlsData(sent)) => {
                sent.done();
                Ok(Step::Send)
            }
            Ok(ConnectionState::BlockedHandshake) => Ok(Step::Receive),
            Ok(ConnectionState::WriteTraffic(_)) => Ok(Step::Done),
            Ok(other) => Err(TlsError::General(format!("{other:?} amid a handshake"))),
            Err(why) => Err(why),
        };
        self.incoming.drain(..discard);
        step
    }

    /// The peer learns by an alert why; whether it listens is its business.
    fn say_why(&mut self) {
        while let Ok(Step::Again) = self.step() {}
        let _ = self.tcp.try_write(&self.outgoing);
    }

    /// Exactly one record, so that nothing of what follows the handshake is read before its time.
    async fn read_record(&mut self, endpoint: &Endpoint) -> Result<(), Error> {
        let broke = |refused| handshake_broke(endpoint, refused);
        let mut header = [0; HEADER_BYTES];
        self.tcp.read_exact(&mut header).await.map_err(broke)?;
        let [kind, major, _, high, low] = header;
        let bytes = usize::from(u16::from_be_bytes([high, low]));
        if !(20..=24).contains(&kind) || major != 3 || HEADER_BYTES + bytes > RECORD_BYTES_MAX {
            return Err(not_tls(&header, endpoint));
        }
        self.incoming.extend_from_slice(&header);
        let start = self.incoming.len();
        self.incoming.resize(start + bytes, 0);
        self.tcp.read_exact(&mut self.incoming[start..]).await.map_err(broke)?;
        Ok(())
    }
}

fn encode(
    message: &mut EncodeTlsData<'_, ClientConnectionData>,
    outgoing: &mut Vec<u8>,
) -> Result<(), TlsError> {
    let before = outgoing.len();
    if let Err(EncodeError::InsufficientSize(short)) = message.encode(&mut []) {
        outgoing.resize(before + short.required_size, 0);
        message.encode(&mut outgoing[before..]).map_err(|why| TlsError::General(why.to_string()))?;
    }
    Ok(())
}

fn handshake_broke(endpoint: &Endpoint, refused: io::Error) -> Error {
    let closed = refused.kind() == io::ErrorKind::UnexpectedEof;
    let refused = if closed { io::Error::other("the other side closed the connection") } else { refused };
    Error::network(format_args!("the TLS handshake with {endpoint} broke"), refused)
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
