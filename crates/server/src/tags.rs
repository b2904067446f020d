//! The tags of an object: as a header carries them, and within the bounds that both dialects set.

use std::collections::BTreeMap;

use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};

/// Tags of one object, characters of a key and of a value.
const MAX: usize = 10;
const MAX_KEY_CHARS: usize = 128;
const MAX_VALUE_CHARS: usize = 256;

pub(crate) type Tags = BTreeMap<String, String>;

/// `KEY=VALUE&…`, each encoded as in a query.
pub(crate) fn parse_header(text: &str) -> S3Result<Tags> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decode(key)?, decode(value)?))
    });
    let pairs: Option<Vec<_>> = pairs.collect();
    collect(pairs.ok_or_else(|| invalid("the tags are not UTF-8"))?)
}

/// `InvalidTag` where there are too many, one is too long, or there twice.
pub(crate) fn collect(pairs: Vec<(String, String)>) -> S3Result<Tags> {
    let count = pairs.len();
    if count > MAX {
        let code = S3ErrorCode::from_bytes(b"BadRequest").unwrap_or(S3ErrorCode::InvalidTag);
        let why = format!("an object has at most {MAX} tags, and {count} came");
        let mut error = S3Error::with_message(code, why);
        error.set_status_code(hyper::StatusCode::BAD_REQUEST);
        return Err(error);
    }
    let is_long = |(key, value): &(String, String)| {
        key.is_empty() || key.chars().count() > MAX_KEY_CHARS || value.chars().count() > MAX_VALUE_CHARS
    };
    if let Some((key, _)) = pairs.iter().find(|pair| is_long(pair)) {
        return Err(invalid(&format!(
            "the key of a tag has 1 to {MAX_KEY_CHARS} characters and its value up to {MAX_VALUE_CHARS}: {key:?}"
        )));
    }
    let tags: Tags = pairs.into_iter().collect();
    if tags.len() < count { Err(invalid("no two tags have the same key")) } else { Ok(tags) }
}

fn decode(text: &str) -> Option<String> {
    crate::oss::decode(&text.replace('+', " "))
}

fn invalid(why: &str) -> S3Error {
    s3_error!(InvalidTag, "{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_have_bounds() {
        let tags = parse_header("a=b&c%3D=d%20e+f&g").unwrap();
        let pairs: Vec<(&str, &str)> =
            tags.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("a", "b"), ("c=", "d e f"), ("g", "")]);
        let ten = (0..10).map(|number| format!("{number}=")).collect::<Vec<_>>().join("&");
        assert_eq!(parse_header(&ten).unwrap().len(), 10);
        let key = "k".repeat(129);
        let value = format!("k={}", "v".repeat(257));
        for (text, code) in [
            (format!("{ten}&x=").as_str(), "BadRequest"),
            ("a=1&a=2", "InvalidTag"),
            ("=x", "InvalidTag"),
            (&key, "InvalidTag"),
            (&value, "InvalidTag"),
            ("%ff=x", "InvalidTag"),
        ] {
            assert_eq!(parse_header(text).unwrap_err().code().as_str(), code, "{text}");
        }
    }
}
