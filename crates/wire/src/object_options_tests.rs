//! Tables of options that are sent, and of those that are not.

use super::*;
use crate::endpoint::{Endpoint, Scheme};
use crate::request::Method;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn metadata(pairs: Pairs<'_>) -> ObjectOptions {
    let metadata = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    ObjectOptions { metadata, ..ObjectOptions::default() }
}

fn tags(pairs: Pairs<'_>) -> ObjectOptions {
    ObjectOptions { tags: metadata(pairs).metadata, ..ObjectOptions::default() }
}

fn request() -> Request {
    let endpoint = Endpoint { scheme: Scheme::Http, host: "h".into(), port: 80 };
    Request::new(Method::Put, endpoint, "/".into(), String::new())
}

/// `s3` and `oss` are words of the error, or nothing where the options can be sent.
#[track_caller]
fn check(options: &ObjectOptions, s3: &str, oss: &str) {
    for (found, expected) in [(options.check_s3(), s3), (options.check_oss(), oss)] {
        let said = found.err().map_or(String::new(), |error| error.to_string());
        assert_eq!(said.is_empty(), expected.is_empty(), "{options:?}: {said}");
        assert!(said.contains(expected) && !said.contains(char::is_control), "{options:?}: {said}");
        assert!(said.chars().count() < 300, "{said}");
    }
}

#[test]
fn names_and_values_of_metadata() {
    let long = "x".repeat(9999);
    let rows: [(Pairs<'_>, &str, &str); 13] = [
        (&[("a", ""), ("b-1", " ~!\"%, x  y")], "", ""),
        (&[("a_b", "1")], "", "'a_b' is no name of metadata for OSS"),
        (&[("a.b|~", "1")], "", "for OSS"),
        (&[("", "1")], "'' is no name", "'' is no name"),
        (&[("a b", "1")], "'a b' is no name", "'a b' is no name"),
        (&[("a:", "1")], "'a:' is no name", "'a:' is no name"),
        (&[("ü", "1")], "'ü' is no name", "'ü' is no name"),
        (&[("a\r\nx-evil", "1")], "is no name", "is no name"),
        (&[(&long, "1")], "bytes", "bytes"),
        (&[("name", "Grüße")], "'name' has 'ü'", "'name' has 'ü'"),
        (&[("name", "a\r\nb")], "'name' has '\\r'", "'name' has '\\r'"),
        (&[("name", "\u{202e}")], "'name' has '\\u{202e}'", "'name' has '\\u{202e}'"),
        (&[("Author", "1"), ("author", "2")], "'author' is given twice", "'author' is given twice"),
    ];
    for (pairs, s3, oss) in rows {
        check(&metadata(pairs), s3, oss);
    }
}

#[test]
fn metadata_has_its_size() {
    let of = |bytes: usize| metadata(&[("name", &"x".repeat(bytes - 4))]);
    check(&of(2048), "", "");
    check(&of(2049), "2049 bytes, names and values together: at most 2048", "");
    check(&of(8192), "at most 2048", "");
    check(&of(8193), "at most 2048", "at most 8192");
}

#[test]
fn numbers_and_lengths_of_tags() {
    let names: Vec<String> = (0..11).map(|number| number.to_string()).collect();
    let pairs: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    let (key, value) = ("ü".repeat(128), "ü".repeat(256));
    let (long_key, long_value) = ("ü".repeat(129), "ü".repeat(257));
    let rows: [(Pairs<'_>, &str); 7] = [
        (&pairs[..10], ""),
        (&pairs, "11 tags"),
        (&[(&key, &value)], ""),
        (&[(&long_key, "")], "129 characters"),
        (&[("", "x")], "0 characters"),
        (&[("k", &long_value)], "'k' has 257 characters"),
        (&[("k", "1"), ("k", "2")], "'k' is given twice"),
    ];
    for (pairs, expected) in rows {
        check(&tags(pairs), expected, expected);
    }
}

#[test]
fn words_and_headers() {
    let some = |text: &str| Some(text.to_owned());
    let plain = ObjectOptions::default();
    check(&plain, "", "");
    let rows = [
        (ObjectOptions { storage_class: some("GLACIER_IR"), ..plain.clone() }, ""),
        (ObjectOptions { storage_class: some("A B"), ..plain.clone() }, "'A B' is no storage class"),
        (ObjectOptions { storage_class: some(""), ..plain.clone() }, "'' is no storage class"),
        (ObjectOptions { acl: some("public\n"), ..plain.clone() }, "is no access list"),
        (ObjectOptions { sse: some("aws:kms:dsse"), ..plain.clone() }, ""),
        (ObjectOptions { sse: some("ä"), ..plain.clone() }, "'ä' is no encryption"),
        (ObjectOptions { sse_kms_key_id: some("k"), ..plain.clone() }, "needs encryption by KMS"),
        (
            ObjectOptions { sse: some("AES256"), sse_kms_key_id: some("k"), ..plain.clone() },
            "needs encryption",
        ),
        (
            ObjectOptions {
                sse: some("KMS"),
                sse_kms_key_id: some("arn:aws:kms:x:1:key/k"),
                ..plain.clone()
            },
            "",
        ),
        (ObjectOptions { sse: some("KMS"), sse_kms_key_id: some("a b"), ..plain.clone() }, "is no KMS key"),
        (ObjectOptions { content_type: some("text/plain; charset=utf-8"), ..plain.clone() }, ""),
        (
            ObjectOptions { content_disposition: some("attachment; filename=ü"), ..plain.clone() },
            "content-disposition has 'ü'",
        ),
        (ObjectOptions { expires: some("\u{7f}"), ..plain.clone() }, "expires has '\\u{7f}'"),
    ];
    for (options, expected) in rows {
        check(&options, expected, expected);
    }
}

#[test]
fn spellings_of_both_dialects() {
    let rows = [
        ("STANDARD", "STANDARD", "Standard"),
        ("Standard", "STANDARD", "Standard"),
        ("standard", "STANDARD", "Standard"),
        ("STANDARD_IA", "STANDARD_IA", "IA"),
        ("IA", "STANDARD_IA", "IA"),
        ("aws:kms", "aws:kms", "KMS"),
        ("KMS", "aws:kms", "KMS"),
        ("aes256", "AES256", "AES256"),
        ("Archive", "Archive", "Archive"),
        ("GLACIER", "GLACIER", "GLACIER"),
        ("SM4", "SM4", "SM4"),
    ];
    for (text, s3, oss) in rows {
        assert_eq!((S3_HEADERS.spelt(text), OSS_HEADERS.spelt(text)), (s3, oss), "{text}");
    }
}

/// Options that nobody checked break no request.
#[test]
fn a_name_begins_no_other_header() {
    let mut options = metadata(&[("a\r\nx-evil: 1\r\nb", "1"), ("ok", "1\r\nx-evil: 1")]);
    options.content_type = Some("a\r\nx-evil: 1".into());
    let mut request = request();
    options.put_metadata(&mut request, &S3_HEADERS);
    let mut head = Vec::new();
    request.write_head(&mut head);
    let head = String::from_utf8(head).unwrap();
    assert!(!head.contains("\nx-evil") && head.contains("x-amz-meta-ok: 1x-evil: 1"), "{head}");
}

#[test]
fn that_an_object_is_unchanged() {
    let rows = [
        ("s3://b/k", "\"1\"", Some("\"1\"")),
        // As some listings show it.
        ("s3://b/k", "1", Some("\"1\"")),
        ("s3://b/k", "W/\"1\"", None),
        ("oss://b/k", "\"1\"", None),
    ];
    for (location, etag, sent) in rows {
        let condition = sent.map(|etag| Condition::Matches(etag.to_owned()));
        assert_eq!(
            Condition::unchanged(&Location::parse(location).unwrap(), etag),
            condition,
            "{location} {etag}"
        );
    }
}
