//! The TLS identity of an origin: a given certificate, or one generated for the run.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};

/// Certificates made for a run outlive every run; a clock that is a day off does no harm.
const DAY: Duration = Duration::from_secs(86_400);
const LIFE: Duration = Duration::from_secs(90 * 86_400);

/// A certificate, its chain and its key.
#[derive(Clone)]
pub struct Identity(pub(crate) Arc<ServerConfig>);

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(***)")
    }
}

impl Identity {
    /// An identity for this run: `localhost`, `*.localhost`, `127.0.0.1`, `::1` and the addresses that are
    /// listened on. Comes with the certificate of the authority that signed it, in PEM, for clients to trust;
    /// the authority's key is forgotten. (Go takes `*.localhost` for `bucket.localhost`; OpenSSL and rustls
    /// want two labels behind a star.)
    ///
    /// # Errors
    /// The system has no randomness.
    pub fn for_this_run(listen: &[SocketAddr]) -> io::Result<(Identity, String)> {
        made(listen).map_err(io::Error::other)
    }

    /// The identity in two PEM files: the certificate, the chain behind it, and the key.
    ///
    /// # Errors
    /// A file that cannot be read or holds something else, a key that is not the certificate's; the text
    /// names it.
    pub fn read(certificate: &Path, key: &Path) -> io::Result<Identity> {
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect);
        let chain = chain.map_err(|why| named(certificate, &unread(why)))?;
        if chain.is_empty() {
            return Err(named(certificate, "there is no certificate in it"));
        }
        let private = PrivateKeyDer::from_pem_file(key).map_err(|why| named(key, &unread(why)))?;
        Identity::new(chain, private).map_err(|why| match why {
            rustls::Error::InconsistentKeys(_) => named(key, "is not the key of the certificate"),
            other => named(certificate, &other.to_string()),
        })
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Identity, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()];
        config.ticketer = aws_lc_rs::Ticketer::new()?;
        Ok(Identity(Arc::new(config)))
    }
}

fn made(listen: &[SocketAddr]) -> Result<(Identity, String), Box<dyn std::error::Error + Send + Sync>> {
    let authority = CertifiedIssuer::self_signed(authority(), KeyPair::generate()?)?;
    let names = ["localhost", "*.localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let addresses = listen.iter().map(SocketAddr::ip).filter(|ip| !is_listed(ip)).map(|ip| ip.to_string());
    let mut params = CertificateParams::new(names.into_iter().chain(addresses).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, "flatout serve");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    live(&mut params);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &authority)?;
    let private = PrivateKeyDer::try_from(key.serialize_der())?;
    Ok((Identity::new(vec![certificate.der().clone()], private)?, authority.pem()))
}

/// Named among the fixed ones, or no address that a client could ask for.
fn is_listed(ip: &IpAddr) -> bool {
    ip.is_unspecified() || matches!(ip.to_string().as_str(), "127.0.0.1" | "::1")
}

fn authority() -> CertificateParams {
    let mut params = CertificateParams::default();
    // The time makes the name this run's own: an earlier run's certificate is not taken for this one's.
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let name = format!("flatout serve, for the run of {}.{:09}", since.as_secs(), since.subsec_nanos());
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    live(&mut params);
    params
}

fn live(params: &mut CertificateParams) {
    let now = SystemTime::now();
    (params.not_before, params.not_after) = ((now - DAY).into(), (now + LIFE).into());
}

fn named(path: &Path, why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {why}", path.display()))
}

fn unread(why: pem::Error) -> String {
    match why {
        pem::Error::Io(refused) => refused.to_string(),
        pem::Error::NoItemsFound => "there is no such section in this PEM file".to_owned(),
        other => format!("is no PEM file: {other}"),
    }
}
