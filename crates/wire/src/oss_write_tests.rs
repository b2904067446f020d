//! Each writing call of OSS as it goes out.

use super::*;
use crate::request::check_sent as check;
use crate::s3::Addressing;

const ETAG: &str = "\"5B3C1A2E-2\"";

fn oss() -> Oss {
    Oss::new(Some("http://h:1"), None, Addressing::Path).unwrap()
}

fn options() -> ObjectOptions {
    let some = |text: &str| Some(text.to_owned());
    ObjectOptions {
        content_type: some("text/plain"),
        expires: some("Thu, 01 Dec 1994 16:00:00 GMT"),
        storage_class: some("STANDARD_IA"),
        acl: some("default"),
        sse: some("aws:kms"),
        sse_kms_key_id: some("9468da86"),
        metadata: vec![("Author".into(), "alice".into())],
        tags: vec![("a b".into(), "ü&=".into()), ("c".into(), String::new())],
        ..ObjectOptions::default()
    }
}

const CONTENT: [(&str, &str); 3] = [
    ("content-type", "text/plain"),
    ("expires", "Thu, 01 Dec 1994 16:00:00 GMT"),
    ("x-oss-meta-author", "alice"),
];
const TAGS: (&str, &str) = ("x-oss-tagging", "a%20b=%C3%BC%26%3D&c=");
const ACL: (&str, &str) = ("x-oss-object-acl", "default");
const STORAGE: [(&str, &str); 3] = [
    ("x-oss-storage-class", "IA"),
    ("x-oss-server-side-encryption", "KMS"),
    ("x-oss-server-side-encryption-key-id", "9468da86"),
];

#[test]
fn objects() {
    let (none, plain) = (Condition::None, ObjectOptions::default());
    check(oss().put_object("b", "k", &plain, &none), "PUT /b/k", &[]);
    let all = [&CONTENT[..], &STORAGE, &[TAGS, ACL]].concat();
    check(oss().put_object("b", "k", &options(), &none), "PUT /b/k", &all);
    let absent = oss().put_object("b", "k", &plain, &Condition::Absent);
    check(absent, "PUT /b/k", &[("x-oss-forbid-overwrite", "true")]);
    let matches = Condition::Matches(ETAG.into());
    check(oss().put_object("b", "k", &plain, &matches), "PUT /b/k", &[]);
    assert!(!matches.is_kept_by_oss() && Condition::Absent.is_kept_by_oss() && none.is_kept_by_oss());
}

#[test]
fn appends() {
    check(oss().append_object("b", "k", 0), "POST /b/k?append&position=0", &[]);
    check(oss().append_object("b", "a b", 5 << 30), "POST /b/a%20b?append&position=5368709120", &[]);
}

#[test]
fn odd_keys() {
    let rows = [
        ("a b+c", "a%20b%2Bc"),
        ("100%/ü", "100%25/%C3%BC"),
        ("//a//", "//a//"),
        ("?x=1&y<", "%3Fx%3D1%26y%3C"),
        ("\u{1}\r\n", "%01%0D%0A"),
    ];
    for (key, path) in rows {
        let put = oss().put_object("b", key, &ObjectOptions::default(), &Condition::None);
        check(put, &format!("PUT /b/{path}"), &[]);
        let source = CopySource { bucket: "from", key, ..CopySource::default() };
        let copied = oss().copy_part("b", "k", "i", 1, &source, 0..1);
        assert_eq!(copied.header("x-oss-copy-source"), Some(format!("/from/{path}").as_str()));
    }
}

#[test]
fn uploads() {
    let start = "POST /b/k?encoding-type=url&uploads";
    let all = [&CONTENT[..], &STORAGE, &[TAGS, ("content-length", "0")]].concat();
    check(oss().create_upload("b", "k", &options()), start, &all);
    check(oss().create_upload("b", "k", &ObjectOptions::default()), start, &[("content-length", "0")]);
    check(oss().upload_part("b", "k", "i/+=", 10_000), "PUT /b/k?partNumber=10000&uploadId=i%2F%2B%3D", &[]);
    check(oss().abort_upload("b", "k", "i"), "DELETE /b/k?uploadId=i", &[]);
    let end = "POST /b/k?encoding-type=url&uploadId=i";
    let complete = oss().complete_upload("b", "k", "i", &options(), &Condition::Absent);
    let headers = [("content-type", "application/xml"), ACL, ("x-oss-forbid-overwrite", "true")];
    check(complete, end, &headers);
}

#[test]
fn pages() {
    let first = "GET /b/k?encoding-type=url&max-parts=1000&uploadId=i";
    check(oss().list_parts("b", "k", "i", None), first, &[]);
    let next = "GET /b/k?encoding-type=url&max-parts=1000&part-number-marker=7&uploadId=i";
    check(oss().list_parts("b", "k", "i", Some(7)), next, &[]);
    let next = "GET /b/?encoding-type=url&key-marker=a%20%2B&max-uploads=1000&prefix=a%2F&upload-id-marker=i%3D\
        &uploads";
    check(oss().list_uploads("b", "a/", Some("a +"), Some("i=")), next, &[]);
}

#[test]
fn copies() {
    let (kept, replaced) =
        (Directives::default(), Directives { metadata: Directive::Replace, tags: Directive::Replace });
    let source = CopySource { bucket: "from", key: "a b", version_id: Some("v+1"), if_match: Some(ETAG) };
    let copy = |directives, options: &ObjectOptions, condition: &Condition| {
        oss().copy_object("b", "k", &source, options, directives, condition)
    };
    let from = [
        ("content-length", "0"),
        ("x-oss-copy-source", "/from/a%20b?versionId=v%2B1"),
        ("x-oss-copy-source-if-match", ETAG),
    ];
    check(copy(kept, &ObjectOptions::default(), &Condition::None), "PUT /b/k", &from);
    let placed = [&from[..], &STORAGE, &[ACL, ("x-oss-forbid-overwrite", "true")]].concat();
    check(copy(kept, &options(), &Condition::Absent), "PUT /b/k", &placed);
    let directives = [("x-oss-metadata-directive", "REPLACE"), ("x-oss-tagging-directive", "Replace"), TAGS];
    let anew = [&from[..], &STORAGE, &CONTENT, &[ACL], &directives].concat();
    check(copy(replaced, &options(), &Condition::None), "PUT /b/k", &anew);
    let part = [&from[..], &[("x-oss-copy-source-range", "bytes=5-9")]].concat();
    let line = "PUT /b/k?partNumber=2&uploadId=i";
    check(oss().copy_part("b", "k", "i", 2, &source, 5..10), line, &part);
}

#[test]
fn deletions_and_buckets() {
    check(oss().delete_object("b", "k", None), "DELETE /b/k", &[]);
    check(oss().delete_object("b", "k", Some("v+1")), "DELETE /b/k?versionId=v%2B1", &[]);
    let xml = [("content-type", "application/xml")];
    check(oss().delete_objects("b"), "POST /b/?delete&encoding-type=url", &xml);
    check(oss().create_bucket("b"), "PUT /b/", &[("content-length", "0")]);
    check(oss().delete_bucket("b"), "DELETE /b/", &[]);
}
