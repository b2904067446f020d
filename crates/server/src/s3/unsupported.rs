//! Features of S3 that this origin does not have. A request for one is refused by name: a client that gets a
//! 200 believes that it has it.

use hyper::http::request::Parts;
use s3s::dto::StorageClass;
use s3s::{S3Result, s3_error};

/// Headers, which a presigned URL may have in its query, by name or by prefix and `*`, each with the feature
/// that it asks for.
const REFUSED: [(&str, &str); 10] = [
    ("x-amz-server-side-encryption*", "server-side encryption"),
    ("x-amz-copy-source-server-side-encryption*", "server-side encryption"),
    ("x-amz-grant-*", "access lists"),
    ("x-amz-website-redirect-location", "redirects of a website"),
    ("x-amz-object-lock-*", "object lock"),
    ("x-amz-write-offset-bytes", "appends to objects"),
    ("x-amz-rename-source", "renaming of objects"),
    ("x-amz-create-session-mode", "sessions of directory buckets"),
    ("x-amz-expected-bucket-owner", "accounts"),
    ("x-amz-source-expected-bucket-owner", "accounts"),
];

/// Canned access lists that equal the one of every object: full control for the owner, who also owns the
/// bucket.
const PRIVATE: [&str; 3] = ["private", "bucket-owner-full-control", "bucket-owner-read"];

/// Storage classes that are a name and a price. Objects in an archive cannot be read, and the others are
/// other services.
const CLASSES: [&str; 6] =
    ["STANDARD", "REDUCED_REDUNDANCY", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR"];

/// The storage classes of S3 that are none of [`CLASSES`].
const OTHER_CLASSES: [&str; 7] =
    ["GLACIER", "DEEP_ARCHIVE", "OUTPOSTS", "SNOW", "EXPRESS_ONEZONE", "FSX_OPENZFS", "FSX_ONTAP"];

/// Why a request is refused; None when it asks for nothing of that.
pub(crate) fn refusal(head: &Parts) -> Option<String> {
    let headers =
        head.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap_or_default()));
    let query = head.uri.query().unwrap_or_default().split('&');
    let pairs = query.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    headers.chain(pairs).find_map(|(name, value)| refusal_of(&name.to_ascii_lowercase(), value))
}

fn refusal_of(name: &str, value: &str) -> Option<String> {
    if name == "x-amz-acl" && !PRIVATE.contains(&value) {
        return Some(format!("{name}: {value}: this origin has no access lists"));
    }
    if name == "x-amz-bucket-object-lock-enabled" && !value.eq_ignore_ascii_case("false") {
        return Some(format!("{name}: this origin has no object lock"));
    }
    let is_meant = |refused: &str| match refused.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == refused,
    };
    let (_, what) = REFUSED.iter().find(|(refused, _)| is_meant(refused))?;
    Some(format!("{name}: this origin has no {what}"))
}

/// A storage class that can be kept; None for the standard one.
pub(super) fn storage_class(class: Option<StorageClass>) -> S3Result<Option<String>> {
    let Some(class) = class else { return Ok(None) };
    match class.as_str() {
        "STANDARD" => Ok(None),
        known if CLASSES.contains(&known) => Ok(Some(known.to_owned())),
        other if OTHER_CLASSES.contains(&other) => {
            Err(s3_error!(NotImplemented, "x-amz-storage-class: {other}: this origin keeps no such objects"))
        }
        other => Err(s3_error!(InvalidStorageClass, "{other} is no storage class")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named() {
        for (target, name, value, refused) in [
            ("/b/k", "x-amz-acl", "private", None),
            ("/b/k", "x-amz-acl", "public-read", Some("x-amz-acl: public-read: ")),
            ("/b/k", "x-amz-server-side-encryption", "aws:kms", Some("x-amz-server-side-encryption: ")),
            ("/b/k", "x-amz-grant-read", "id=1", Some("x-amz-grant-read: ")),
            ("/b", "x-amz-bucket-object-lock-enabled", "false", None),
            ("/b", "x-amz-bucket-object-lock-enabled", "true", Some("x-amz-bucket-object-lock-enabled: ")),
            ("/b/k?X-Amz-Acl=public-read&X-Amz-Signature=x", "host", "x", Some("x-amz-acl: public-read: ")),
            (
                "/b/k?X-Amz-Signature=x&x-amz-object-lock-mode=a",
                "host",
                "x",
                Some("x-amz-object-lock-mode: "),
            ),
            ("/b/k?x=x-amz-acl", "x-amz-meta-x-amz-acl", "public-read", None),
        ] {
            let head = hyper::Request::put(target).header(name, value).body(()).unwrap().into_parts().0;
            let found = refusal(&head);
            assert_eq!(found.is_some(), refused.is_some(), "{target} {name}: {value}");
            assert!(
                found.unwrap_or_default().starts_with(refused.unwrap_or_default()),
                "{target} {name}: {value}"
            );
        }
        let class = |name: &'static str| storage_class(Some(StorageClass::from_static(name)));
        assert_eq!(class("STANDARD").unwrap(), None);
        assert_eq!(class("STANDARD_IA").unwrap().as_deref(), Some("STANDARD_IA"));
        assert_eq!(class("GLACIER").unwrap_err().code().as_str(), "NotImplemented");
        assert_eq!(class("NONE").unwrap_err().code().as_str(), "InvalidStorageClass");
    }
}
