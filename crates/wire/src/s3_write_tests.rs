//! Each writing call of S3 as it goes out.

use super::*;
use crate::request::check_sent as check;
use crate::s3::Addressing;

const ETAG: &str = "\"5B3C1A2E-2\"";

fn s3() -> S3 {
    S3::new(Some("http://h:1"), None, Addressing::Path).unwrap()
}

fn options() -> ObjectOptions {
    let some = |text: &str| Some(text.to_owned());
    ObjectOptions {
        content_type: some("text/plain"),
        cache_control: some("no-cache"),
        content_disposition: some("attachment"),
        content_encoding: some("gzip"),
        content_language: some("de"),
        expires: some("Thu, 01 Dec 1994 16:00:00 GMT"),
        storage_class: some("IA"),
        acl: some("private"),
        sse: some("KMS"),
        sse_kms_key_id: some("alias/k"),
        metadata: vec![("Author".into(), "a  b".into()), ("x_y".into(), String::new())],
        tags: vec![("a b".into(), "ü&=".into()), ("c".into(), String::new())],
    }
}

const CONTENT: [(&str, &str); 8] = [
    ("content-type", "text/plain"),
    ("cache-control", "no-cache"),
    ("content-disposition", "attachment"),
    ("content-encoding", "gzip"),
    ("content-language", "de"),
    ("expires", "Thu, 01 Dec 1994 16:00:00 GMT"),
    ("x-amz-meta-author", "a  b"),
    ("x-amz-meta-x_y", ""),
];
const TAGS: (&str, &str) = ("x-amz-tagging", "a%20b=%C3%BC%26%3D&c=");
const STORAGE: [(&str, &str); 4] = [
    ("x-amz-storage-class", "STANDARD_IA"),
    ("x-amz-acl", "private"),
    ("x-amz-server-side-encryption", "aws:kms"),
    ("x-amz-server-side-encryption-aws-kms-key-id", "alias/k"),
];

#[test]
fn objects() {
    let (none, plain) = (Condition::None, ObjectOptions::default());
    check(s3().put_object("b", "k", &plain, &none), "PUT /b/k", &[]);
    let all = [&CONTENT[..], &STORAGE, &[TAGS]].concat();
    check(s3().put_object("b", "k", &options(), &none), "PUT /b/k", &all);
    let absent = s3().put_object("b", "k", &plain, &Condition::Absent);
    check(absent, "PUT /b/k", &[("if-none-match", "*")]);
    let matches = s3().put_object("b", "k", &plain, &Condition::Matches(ETAG.into()));
    check(matches, "PUT /b/k", &[("if-match", ETAG)]);
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
        let put = s3().put_object("b", key, &ObjectOptions::default(), &Condition::None);
        check(put, &format!("PUT /b/{path}"), &[]);
        let part = s3().upload_part("b", key, "i", 1);
        check(part, &format!("PUT /b/{path}?partNumber=1&uploadId=i"), &[]);
        let source = CopySource { bucket: "from", key, ..CopySource::default() };
        let copied = s3().copy_part("b", "k", "i", 1, &source, 0..1);
        assert_eq!(copied.header("x-amz-copy-source"), Some(format!("from/{path}").as_str()));
    }
}

#[test]
fn starts_of_uploads() {
    let plain = ObjectOptions::default();
    let start = |algorithm| s3().create_upload("b", "k", &plain, algorithm);
    check(start(None), "POST /b/k?uploads", &[("content-length", "0")]);
    check(start(Some(Algorithm::Crc64Xz)), "POST /b/k?uploads", &[("content-length", "0")]);
    for (algorithm, name) in
        [(Algorithm::Crc64Nvme, "CRC64NVME"), (Algorithm::Crc32c, "CRC32C"), (Algorithm::Crc32, "CRC32")]
    {
        let headers = [
            ("content-length", "0"),
            ("x-amz-checksum-algorithm", name),
            ("x-amz-checksum-type", "FULL_OBJECT"),
        ];
        check(start(Some(algorithm)), "POST /b/k?uploads", &headers);
    }
    let all = [&CONTENT[..], &STORAGE, &[TAGS, ("content-length", "0")]].concat();
    check(s3().create_upload("b", "k", &options(), None), "POST /b/k?uploads", &all);
}

#[test]
fn parts_and_ends_of_uploads() {
    check(s3().upload_part("b", "k", "i/+=", 10_000), "PUT /b/k?partNumber=10000&uploadId=i%2F%2B%3D", &[]);
    check(s3().abort_upload("b", "k", "i"), "DELETE /b/k?uploadId=i", &[]);
    let whole = Some((Algorithm::Crc64Nvme, Algorithm::Crc64Nvme.of(b"123456789")));
    let headers = [
        ("content-type", "application/xml"),
        ("if-none-match", "*"),
        ("x-amz-checksum-crc64nvme", "rosUhgp5mIg="),
        ("x-amz-checksum-type", "FULL_OBJECT"),
        ("x-amz-mp-object-size", "9"),
    ];
    let complete = |condition, whole| s3().complete_upload("b", "k", "i", condition, whole, 9);
    check(complete(&Condition::Absent, whole), "POST /b/k?uploadId=i", &headers);
    let bare = [("content-type", "application/xml"), ("x-amz-mp-object-size", "9")];
    for whole in [None, Some((Algorithm::Crc64Xz, 1))] {
        check(complete(&Condition::None, whole), "POST /b/k?uploadId=i", &bare);
    }
}

#[test]
fn pages() {
    check(s3().list_parts("b", "k", "i", None), "GET /b/k?max-parts=1000&uploadId=i", &[]);
    let next = "GET /b/k?max-parts=1000&part-number-marker=7&uploadId=i";
    check(s3().list_parts("b", "k", "i", Some(7)), next, &[]);
    let first = "GET /b/?encoding-type=url&max-uploads=1000&uploads";
    check(s3().list_uploads("b", "", None, None), first, &[]);
    let next = "GET /b/?encoding-type=url&key-marker=a%20%2B&max-uploads=1000&prefix=a%2F&upload-id-marker=i%3D\
        &uploads";
    check(s3().list_uploads("b", "a/", Some("a +"), Some("i=")), next, &[]);
}

#[test]
fn copies() {
    let (kept, replaced) =
        (Directives::default(), Directives { metadata: Directive::Replace, tags: Directive::Replace });
    let source = CopySource { bucket: "from", key: "a b", version_id: Some("v+1"), if_match: Some(ETAG) };
    let copy = |directives, options: &ObjectOptions, condition: &Condition| {
        s3().copy_object("b", "k", &source, options, directives, condition)
    };
    let from = [
        ("content-length", "0"),
        ("x-amz-copy-source", "from/a%20b?versionId=v%2B1"),
        ("x-amz-copy-source-if-match", ETAG),
    ];
    check(copy(kept, &ObjectOptions::default(), &Condition::None), "PUT /b/k", &from);
    let placed = [&from[..], &STORAGE, &[("if-none-match", "*")]].concat();
    check(copy(kept, &options(), &Condition::Absent), "PUT /b/k", &placed);
    let directives = [("x-amz-metadata-directive", "REPLACE"), ("x-amz-tagging-directive", "REPLACE"), TAGS];
    let anew = [&from[..], &STORAGE, &CONTENT, &directives].concat();
    check(copy(replaced, &options(), &Condition::None), "PUT /b/k", &anew);
    let tags = Directives { tags: Directive::Replace, ..kept };
    let untagged = [&from[..], &[("x-amz-tagging-directive", "REPLACE")]].concat();
    check(copy(tags, &ObjectOptions::default(), &Condition::None), "PUT /b/k", &untagged);
    let part = [&from[..], &[("x-amz-copy-source-range", "bytes=5-9")]].concat();
    let line = "PUT /b/k?partNumber=2&uploadId=i";
    check(s3().copy_part("b", "k", "i", 2, &source, 5..10), line, &part);
}

#[test]
fn deletions_and_buckets() {
    let matches = Condition::Matches(ETAG.into());
    let delete = |version, condition| s3().delete_object("b", "k", version, condition);
    check(delete(None, &Condition::None), "DELETE /b/k", &[]);
    check(delete(None, &Condition::Absent), "DELETE /b/k", &[]);
    check(delete(None, &matches), "DELETE /b/k", &[("if-match", ETAG)]);
    check(delete(Some("v+1"), &Condition::None), "DELETE /b/k?versionId=v%2B1", &[]);
    check(s3().delete_objects("b"), "POST /b/?delete", &[("content-type", "application/xml")]);
    check(s3().create_bucket("b"), "PUT /b/", &[("content-length", "0")]);
    check(s3().delete_bucket("b"), "DELETE /b/", &[]);
    let elsewhere = S3::new(None, Some("eu-west-1"), Addressing::Auto).unwrap();
    let put = elsewhere.put_object("bucket", "k", &ObjectOptions::default(), &Condition::None);
    assert_eq!(put.url(), "https://bucket.s3.eu-west-1.amazonaws.com/k");
}
