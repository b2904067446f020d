//! Keys in a Secret, under the names that drivers and tools use, and the tokens that kubelet adds.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use super::{AttributeError, OF_KUBERNETES, refused};
use crate::volume::SecretKeys;

/// Id, secret, token, end.
type Names = [&'static str; 4];

/// ACK's, written exactly so; its STS files; mountpoint's; the variables of both clouds.
const NAMES: &[Names] = &[
    ["akId", "akSecret", "", ""],
    ["AccessKeyId", "AccessKeySecret", "SecurityToken", "Expiration"],
    ["key_id", "access_key", "session_token", ""],
    ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", ""],
    ["OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN", ""],
];

/// Of the names of an unknown Secret, so many are shown.
const NAMED_MOST: usize = 5;

/// The pair of a Secret, else that of the attributes.
///
/// # Errors
/// Half a pair, or a Secret without keys under a name that is known.
pub(super) fn keys(
    secrets: &HashMap<String, String>,
    (id, secret): (Option<&str>, Option<&str>),
) -> Result<Option<SecretKeys>, AttributeError> {
    let get = |name: &str| {
        let mut known = secrets.iter().filter(|(key, _)| !name.is_empty() && key.eq_ignore_ascii_case(name));
        known.next().map(|(_, value)| value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    for [id, secret, token, end] in NAMES {
        match (get(id), get(secret)) {
            (None, None) => {}
            (Some(key), Some(value)) => {
                return Ok(Some(SecretKeys {
                    id: key,
                    secret: value,
                    token: get(token),
                    expiration: get(end),
                }));
            }
            (Some(_), None) => return Err(refused("Secret", format!("it has {id} and no {secret}"))),
            (None, Some(_)) => return Err(refused("Secret", format!("it has {secret} and no {id}"))),
        }
    }
    let mut others: Vec<&str> =
        secrets.keys().map(String::as_str).filter(|name| !name.starts_with(OF_KUBERNETES[0])).collect();
    others.sort_unstable();
    match (id, secret) {
        (None, None) if !others.is_empty() => {
            let (names, more) = (&others[..others.len().min(NAMED_MOST)], others.len() > NAMED_MOST);
            let more = if more { " and others" } else { "" };
            let why = format!(
                "it has {}{more}, and no keys under names that are known: write akId and akSecret, or \
                 AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                names.join(", ")
            );
            Err(refused("Secret", why))
        }
        (None, None) => Ok(None),
        (Some(id), Some(secret)) => {
            Ok(Some(SecretKeys { id: id.into(), secret: secret.into(), token: None, expiration: None }))
        }
        _ => Err(refused("volumeAttributes", "akId and akSecret are wanted together: better in a Secret")),
    }
}

#[derive(Deserialize)]
struct Token {
    token: String,
}

/// Tokens by audience, as kubelet writes them.
///
/// # Errors
/// It is no such list.
pub(super) fn tokens(given: Option<&String>) -> Result<BTreeMap<String, String>, AttributeError> {
    let Some(text) = given.filter(|text| !text.is_empty()) else { return Ok(BTreeMap::new()) };
    let read: Result<BTreeMap<String, Token>, _> = serde_json::from_str(text);
    // What is wrong with it would show a part of it.
    let read = read.map_err(|_| refused("serviceAccount.tokens", "this is no list of tokens"))?;
    Ok(read.into_iter().map(|(audience, token)| (audience, token.token)).collect())
}
