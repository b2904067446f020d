//! What stands in the way of TLS, in the user's terms: one table from rustls's errors to ours.

use std::io;

use flatout_wire::endpoint::{Endpoint, Scheme};
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{Hint, setting, setting_to, text};

const OLD: &str =
    "flatout speaks TLS 1.2 and 1.3 with AES-GCM or ChaCha20: the origin has to offer one of them";

/// Why the handshake failed.
pub(crate) fn explain(why: &TlsError, endpoint: &Endpoint) -> Error {
    match why {
        TlsError::InvalidCertificate(wrong) => certificate(wrong, endpoint),
        TlsError::AlertReceived(alert) => alerted(*alert, endpoint),
        TlsError::PeerIncompatible(_) => unspoken(endpoint, why),
        TlsError::InvalidMessage(_) => {
            let cause = format!("{endpoint} does not speak TLS: {}", sentence(why));
            Error::new(ErrorKind::Network, cause).with_hint("check the port, or use http://")
        }
        _ => Error::new(
            ErrorKind::Network,
            format!("the TLS handshake with {endpoint} failed: {}", sentence(why)),
        ),
    }
}

/// What broke a connection while an answer was awaited, where it is an alert: TLS 1.3 tells only then that
/// the client should have shown a certificate.
pub(crate) fn alert_in(broken: &io::Error, endpoint: &Endpoint) -> Option<Error> {
    match broken.get_ref()?.downcast_ref()? {
        TlsError::AlertReceived(alert) => Some(alerted(*alert, endpoint)),
        _ => None,
    }
}

/// The first bytes of an answer are no record.
pub(crate) fn not_tls(start: &[u8], endpoint: &Endpoint) -> Error {
    let plain = start.starts_with(b"HTTP") || start.starts_with(b"<");
    let cause = match plain {
        true => format!("{endpoint} speaks plain HTTP, not TLS"),
        false => format!("{endpoint} does not speak TLS"),
    };
    let hint = if plain { "use http:// instead of https://" } else { "check the port, or use http://" };
    Error::new(ErrorKind::Usage, cause).with_hint(hint)
}

/// Whether the first bytes of what should be an answer in plain HTTP are a TLS alert instead.
pub(crate) fn is_alert(start: &[u8]) -> bool {
    start.len() >= 2 && start[..2] == [0x15, 3]
}

/// Whether the body of a 400 in plain HTTP says that the port is one for TLS: nginx, Apache and Go's servers
/// answer so.
pub(crate) fn wants_tls(endpoint: &Endpoint, body: &[u8]) -> bool {
    const SAYINGS: [&str; 3] =
        ["to HTTPS port", "to an HTTPS server", "speaking plain HTTP to an SSL-enabled server port"];
    let body = String::from_utf8_lossy(body);
    endpoint.scheme == Scheme::Http && SAYINGS.iter().any(|saying| body.contains(saying))
}

/// Plain HTTP was spoken to a port for TLS.
pub(crate) fn is_tls(endpoint: &Endpoint) -> Error {
    Error::new(ErrorKind::Usage, format!("{endpoint} speaks TLS, not plain HTTP"))
        .with_hint("use https:// instead of http://")
}

fn certificate(wrong: &CertificateError, endpoint: &Endpoint) -> Error {
    use CertificateError as Wrong;
    let (what, hint) = match wrong {
        Wrong::UnknownIssuer => (
            "is signed by nobody that is trusted here".to_owned(),
            [text("name the certificate of the CA that signed it with "), setting_to("ca-bundle", "FILE")]
                .into(),
        ),
        Wrong::BadSignature => (
            "is not signed by the CA of that name that is trusted here".to_owned(),
            Hint::from([
                setting("ca-bundle"),
                text(" names an older CA, or another of the same name: name the one that signed it"),
            ]),
        ),
        Wrong::Expired => expired("some time"),
        Wrong::ExpiredContext { time, not_after } => expired(&span(*time, *not_after)),
        Wrong::NotValidYet => not_yet("some time"),
        Wrong::NotValidYetContext { time, not_before } => not_yet(&span(*not_before, *time)),
        Wrong::NotValidForName => (format!("is not for {}", endpoint.host), other_name(endpoint)),
        Wrong::NotValidForNameContext { presented, .. } => {
            (format!("is for {}, not for {}", names(presented), endpoint.host), other_name(endpoint))
        }
        Wrong::Revoked => ("is revoked".to_owned(), "its owner has to replace it".into()),
        other => {
            let why = sentence(&TlsError::InvalidCertificate(other.clone()));
            match why.contains("CaUsedAsEndEntity") {
                true => (
                    "is that of a CA, not of a server".to_owned(),
                    "sign one for the server with it, or make it with openssl's \
                     -addext basicConstraints=critical,CA:FALSE"
                        .into(),
                ),
                false => {
                    let why = why.strip_prefix("invalid peer certificate: ").unwrap_or(&why);
                    (format!("cannot be accepted: {why}"), "its owner has to replace it".into())
                }
            }
        }
    };
    Error::new(ErrorKind::Untrusted, format!("the certificate of {endpoint} {what}")).with_hint(hint)
}

fn expired(ago: &str) -> (String, Hint) {
    (format!("expired {ago} ago"), "its owner has to renew it; if it is new, set this machine's clock".into())
}

fn not_yet(ahead: &str) -> (String, Hint) {
    (format!("is valid only in {ahead}"), "check this machine's clock".into())
}

fn other_name(endpoint: &Endpoint) -> Hint {
    match endpoint.is_ip() {
        true => Hint::from([
            text("use the name that the certificate is for; "),
            setting_to("resolve", "NAME:ADDRESS"),
            text(" says where it is"),
        ]),
        // A wildcard covers one label: buckets with dots need their name in the path.
        false => Hint::from([
            text("use the name that it is for; for a bucket with dots in its name "),
            setting_to("addressing", "path"),
        ]),
    }
}

/// The first few names of a certificate.
fn names(presented: &[String]) -> String {
    const SHOWN: usize = 3;
    // rustls writes `DnsName("a")` and `IpAddress(127.0.0.1)`: the name alone is meant.
    let name = |text: &String| {
        let inner = text.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(text);
        inner.trim_matches('"').to_owned()
    };
    let shown: Vec<String> = presented.iter().take(SHOWN).map(name).collect();
    match presented.len() {
        0 => "no name".to_owned(),
        many if many > SHOWN => format!("{} and others", shown.join(", ")),
        _ => shown.join(", "),
    }
}

/// From `earlier` to `later`, in days where there are any.
fn span(later: UnixTime, earlier: UnixTime) -> String {
    let seconds = later.as_secs().saturating_sub(earlier.as_secs());
    match (seconds / 86_400, seconds / 3_600, seconds / 60) {
        (0, 0, 0 | 1) => "a minute".to_owned(),
        (0, 0, minutes) => format!("{minutes} minutes"),
        (0 | 1, hours, _) => format!("{hours} hours"),
        (days, _, _) => format!("{days} days"),
    }
}

fn alerted(alert: AlertDescription, endpoint: &Endpoint) -> Error {
    use AlertDescription as Alert;
    let refused = |kind, why: &str| Error::new(kind, format!("{endpoint} refused TLS: {why}"));
    match alert {
        Alert::ProtocolVersion | Alert::HandshakeFailure | Alert::InsufficientSecurity => {
            unspoken(endpoint, &TlsError::AlertReceived(alert))
        }
        Alert::UnrecognisedName => refused(ErrorKind::Usage, "it serves no such name").with_hint([
            text("check the host; "),
            setting("resolve"),
            text(" gives a name another address"),
        ]),
        Alert::CertificateRequired | Alert::BadCertificate | Alert::UnknownCA => {
            refused(ErrorKind::Unsupported, "it wants a certificate of the client")
                .with_hint("client certificates are not supported: use another endpoint or port")
        }
        Alert::InternalError => refused(ErrorKind::Network, "it failed by itself (alert internal_error)"),
        other => refused(ErrorKind::Network, &format!("alert {other:?}")),
    }
}

fn unspoken(endpoint: &Endpoint, why: &TlsError) -> Error {
    let cause = format!("{endpoint} and flatout have no TLS in common: {}", sentence(why));
    Error::new(ErrorKind::Unsupported, cause).with_hint(OLD)
}

/// rustls's own words, in one line.
fn sentence(why: &TlsError) -> String {
    why.to_string().replace('\n', " ")
}
