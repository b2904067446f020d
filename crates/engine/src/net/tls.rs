//! TLS: whom a client trusts, the handshake, and the stream that decrypts.
//!
//! The handshake is fed one record at a time, so that rustls never holds a byte beyond it: a record reader of
//! our own can take the secrets over at that point (docs/decisions/stock-tls-stream.md). Until then rustls's
//! own stream reads.

use std::future::poll_fn;
use std::io::{self, IoSlice, Read, Write};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use flatout_wire::endpoint::Endpoint;
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, SupportedCipherSuite};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::base::error::{Error, ErrorKind, SETTINGS};
use crate::net::tls_errors::{explain, not_tls};

/// Sessions to resume. rustls keeps eight for each name.
const SESSIONS: usize = 1_024;

/// What rustls encrypts ahead of the socket, by default: four records.
pub(super) const AHEAD_BYTES: usize = 64 << 10;
/// A record's header: type, version, length (RFC 8446 §5.1).
const HEADER_BYTES: usize = 5;
/// The longest record: 2^14 bytes of text, and what TLS 1.2 allows to be added.
pub(crate) const RECORD_BYTES_MAX: usize = HEADER_BYTES + (16 << 10) + 2_048;

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

    pub(crate) fn config(&self) -> &Arc<ClientConfig> {
        self.config.get_or_init(|| Arc::new(config(self.bundle.clone().unwrap_or_else(system_roots))))
    }

    /// Speaks TLS over `tcp`, with the certificate's name held against the endpoint's host.
    pub(crate) async fn handshake(&self, tcp: TcpStream, endpoint: &Endpoint) -> Result<TlsStream, Error> {
        // The dot that ends an absolute name is no part of it in certificates (RFC 6066 §3).
        let name = ServerName::try_from(endpoint.host.trim_end_matches('.').to_owned()).map_err(|_| {
            Error::new(ErrorKind::Usage, format!("{} is no name that a certificate can have", endpoint.host))
        })?;
        let session = ClientConnection::new(self.config().clone(), name)
            .map_err(|why| Error::new(ErrorKind::Internal, format!("TLS cannot start: {why}")))?;
        let mut stream = TlsStream { tcp, session, refused: None };
        match stream.shake_hands(endpoint).await {
            Ok(()) => Ok(stream),
            Err(why) => {
                // The peer learns by an alert why; whether it listens is its business.
                let _ = poll_fn(|cx| Poll::Ready(stream.poll_send(cx).is_ready())).await;
                Err(why)
            }
        }
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
    // For the record reader that is to come.
    config.enable_secret_extraction = true;
    config
}

/// AES-GCM goes first where the CPU has instructions for it, with the shorter key, which is the faster;
/// ChaCha20 elsewhere. Peers that have no preference of their own take the first.
fn provider() -> CryptoProvider {
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

/// A TLS connection after its handshake.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    session: ClientConnection,
    /// What the socket refused with behind bytes that had to go first: it says so once.
    refused: Option<io::Error>,
}

impl TlsStream {
    /// The socket underneath, for its options.
    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Version and cipher suite, in words: `TLS 1.3`, `TLS13_AES_128_GCM_SHA256`.
    pub(crate) fn agreed(&self) -> (String, String) {
        let version = match self.session.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLS 1.3".to_owned(),
            Some(ProtocolVersion::TLSv1_2) => "TLS 1.2".to_owned(),
            other => format!("{other:?}"),
        };
        let suite = self.session.negotiated_cipher_suite();
        (version, suite.map_or(String::new(), |suite| format!("{:?}", suite.suite())))
    }

    async fn shake_hands(&mut self, endpoint: &Endpoint) -> Result<(), Error> {
        let broke = |refused| handshake_broke(endpoint, refused);
        let mut record = Vec::new();
        loop {
            poll_fn(|cx| self.poll_send(cx)).await.map_err(broke)?;
            if !self.session.is_handshaking() {
                return Ok(());
            }
            self.read_record(&mut record, endpoint).await?;
            let mut rest = &record[..];
            while !rest.is_empty() {
                self.session.read_tls(&mut rest).map_err(broke)?;
                self.session.process_new_packets().map_err(|why| explain(&why, endpoint))?;
            }
        }
    }

    /// Exactly one record, so that nothing of what follows the handshake is read before its time.
    async fn read_record(&mut self, record: &mut Vec<u8>, endpoint: &Endpoint) -> Result<(), Error> {
        let broke = |refused| handshake_broke(endpoint, refused);
        record.resize(HEADER_BYTES, 0);
        self.tcp.read_exact(record).await.map_err(broke)?;
        let bytes = HEADER_BYTES + usize::from(u16::from_be_bytes([record[3], record[4]]));
        if !(20..=24).contains(&record[0]) || record[1] != 3 || bytes > RECORD_BYTES_MAX {
            return Err(not_tls(record, endpoint));
        }
        record.resize(bytes, 0);
        self.tcp.read_exact(&mut record[HEADER_BYTES..]).await.map_err(broke)?;
        Ok(())
    }

    /// Sends what rustls has ready.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.session.wants_write() {
            ready!(done(self.session.write_tls(&mut Blocking { tcp: &mut self.tcp, cx })))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Takes one read's worth of records in; 0 when the peer has closed.
    fn poll_records(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let bytes = ready!(done(self.session.read_tls(&mut Blocking { tcp: &mut self.tcp, cx })))?;
        if let Err(why) = self.session.process_new_packets() {
            let _ = self.poll_send(cx);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, why)));
        }
        Poll::Ready(Ok(bytes))
    }
}

fn handshake_broke(endpoint: &Endpoint, refused: io::Error) -> Error {
    let closed = refused.kind() == io::ErrorKind::UnexpectedEof;
    let refused = if closed { io::Error::other("the other side closed the connection") } else { refused };
    Error::network(format_args!("the TLS handshake with {endpoint} broke"), refused)
}

impl AsyncRead for TlsStream {
    /// Fills `buf` as far as what has arrived goes; waits only when nothing at all is there.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        if let Some(refused) = this.refused.take() {
            return Poll::Ready(Err(refused));
        }
        while buf.remaining() > 0 {
            match this.session.reader().read(buf.initialize_unfilled()) {
                Ok(0) => break,
                Ok(bytes) => buf.advance(bytes),
                Err(empty) if empty.kind() == io::ErrorKind::WouldBlock => match this.poll_records(cx) {
                    Poll::Ready(Ok(_)) => {}
                    // What has been decrypted goes first.
                    Poll::Ready(Err(refused)) if buf.filled().len() > before => {
                        this.refused = Some(refused);
                        break;
                    }
                    Poll::Pending if buf.filled().len() > before => break,
                    Poll::Ready(Err(refused)) => return Poll::Ready(Err(refused)),
                    Poll::Pending => return Poll::Pending,
                },
                Err(_) if buf.filled().len() > before => break,
                Err(cut) if cut.kind() == io::ErrorKind::UnexpectedEof => return Poll::Ready(Err(cut_off())),
                Err(refused) => return Poll::Ready(Err(refused)),
            }
        }
        // What arrived may want an answer (a new key): it leaves when it can.
        let _ = this.poll_send(cx);
        Poll::Ready(Ok(()))
    }
}

/// TCP ended and TLS did not: who did that is not known, so the end of a body cannot be told by it.
fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed without the end of TLS, and may be cut off")
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        // Taken in only when the records before it have left: rustls's own buffer stays small.
        ready!(this.poll_send(cx))?;
        let bytes = this.session.writer().write(buf)?;
        match this.poll_send(cx) {
            Poll::Ready(Err(refused)) => Poll::Ready(Err(refused)),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Ready(Ok(bytes)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.session.send_close_notify();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.tcp).poll_shutdown(cx)
    }
}

/// A socket as rustls sees it: what must wait is `WouldBlock`, and the task is woken when it need not any
/// more.
struct Blocking<'a, 'b> {
    tcp: &'a mut TcpStream,
    cx: &'a mut Context<'b>,
}

impl Read for Blocking<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        match Pin::new(&mut *self.tcp).poll_read(self.cx, &mut buffer) {
            Poll::Ready(read) => read.map(|()| buffer.filled().len()),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Blocking<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Pin::new(&mut *self.tcp).poll_write(self.cx, bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Several records by one call.
    fn write_vectored(&mut self, records: &[IoSlice<'_>]) -> io::Result<usize> {
        match Pin::new(&mut *self.tcp).poll_write_vectored(self.cx, records) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn done<T>(outcome: io::Result<T>) -> Poll<io::Result<T>> {
    match outcome {
        Err(wait) if wait.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        outcome => Poll::Ready(outcome),
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
