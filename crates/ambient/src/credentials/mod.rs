//! Where keys are found: one chain of providers for each cloud, in the order of that cloud's own tools.
//! docs/decisions/credentials.md says why the exchanges are our own.

mod alibaba;
mod answer;
mod aws;
mod process;

#[cfg(test)]
mod tests;

pub(crate) use alibaba::{AlibabaKeys, printed as printed_by_alibaba};
pub(crate) use answer::{json_grant, sts_grant};
pub(crate) use aws::{AwsKeys, printed as printed_by_aws};

use std::time::{SystemTime, UNIX_EPOCH};

use flatout_engine::credentials::{Grant, Refused, Tried};
use flatout_wire::endpoint::{Endpoint, printable};
use flatout_wire::request::{Method, Request};
use flatout_wire::sign::Credentials;

use crate::AmbientError;
use crate::mask::masked;

/// Why a provider has no keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProviderError {
    /// It is not set up: the next one is asked.
    Nothing(String),
    /// It is set up and failed: nobody else is asked, since other keys than those that were meant could do
    /// harm.
    Failed(String),
}

/// What a provider says.
pub(crate) type ProviderResult = Result<Grant, ProviderError>;

/// A provider's name, and the question.
type ChainLink<'a> = (String, Box<dyn FnOnce() -> ProviderResult + 'a>);

fn link<'a>(name: impl Into<String>, ask: impl FnOnce() -> ProviderResult + 'a) -> ChainLink<'a> {
    (name.into(), Box::new(ask))
}

/// The keys of the first that has some.
fn first(links: Vec<ChainLink<'_>>) -> Result<Grant, Refused> {
    let mut tried = Vec::new();
    for (provider, ask) in links {
        let (why, failed) = match ask() {
            Ok(grant) => return Ok(Grant { provider, ..grant }),
            Err(ProviderError::Nothing(why)) => (why, false),
            Err(ProviderError::Failed(why)) => (why, true),
        };
        tried.push(Tried { provider, why, failed });
        if failed {
            break;
        }
    }
    Err(Refused(tried))
}

/// Keys that do not end; the chain adds whose they are.
fn lasting(credentials: Credentials) -> ProviderResult {
    Ok(Grant { credentials, expires: None, provider: String::new() })
}

fn nothing(why: impl Into<String>) -> ProviderResult {
    Err(ProviderError::Nothing(why.into()))
}

fn failed(why: impl Into<String>) -> ProviderResult {
    Err(ProviderError::Failed(why.into()))
}

/// What is missing where it was asked for by name is a failure.
fn in_earnest(error: ProviderError) -> ProviderError {
    match error {
        ProviderError::Nothing(why) | ProviderError::Failed(why) => ProviderError::Failed(why),
    }
}

impl From<AmbientError> for ProviderError {
    fn from(error: AmbientError) -> ProviderError {
        ProviderError::Failed(match error.hint() {
            Some(hint) => format!("{error}: {hint}"),
            None => error.to_string(),
        })
    }
}

impl From<String> for ProviderError {
    fn from(why: String) -> ProviderError {
        ProviderError::Failed(why)
    }
}

/// A request to `url`, which has no query, and what lies below it. What may not stand in a request line is
/// encoded: a part of it may be another service's words.
fn request(method: Method, url: &str, below: &str) -> Result<Request, ProviderError> {
    let wrong = |error| ProviderError::Failed(format!("{}: {error}", masked(url)));
    let (endpoint, base) = Endpoint::parse(url).map_err(wrong)?;
    let (path, query) = below.split_once('?').unwrap_or((below, ""));
    let path = match format!("{base}{path}") {
        empty if empty.is_empty() => "/".into(),
        path => printable(&path),
    };
    Ok(Request::new(method, endpoint, path, printable(query)))
}

/// A whole URL, in `variable`, as scheme and host, and what follows.
fn split<'a>(variable: &str, url: &'a str) -> Result<(&'a str, &'a str), ProviderError> {
    let host_at =
        url.find("://").ok_or_else(|| ProviderError::Failed(format!("{variable} is no URL")))? + "://".len();
    let rest = &url[host_at..];
    let path = rest.split('?').next().unwrap_or(rest);
    let (host, below) = url.split_at(host_at + rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // A password with a slash or a question mark in it would pass for a port, and be shown as one that is
    // wrong.
    if path.contains('@') || rest.contains('@') && Endpoint::parse(host).is_err() {
        return Err(ProviderError::Failed(format!(
            "{variable} holds a user or a password, and neither is sent"
        )));
    }
    Ok((host, below))
}

/// Whether metadata name a role, by IAM's and RAM's alphabet. A page of a captive portal is no role.
fn is_role(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte))
}

/// What cannot be part of a header stands in a key: its name, never its value.
pub(crate) fn flaw(value: &str) -> Option<&'static str> {
    if value.contains(char::is_whitespace) {
        Some("white space")
    } else if value.contains(char::is_control) {
        Some("a control character")
    } else if !value.is_ascii() {
        Some("a character outside ASCII")
    } else {
        None
    }
}

/// Seconds since 1970.
pub(crate) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
