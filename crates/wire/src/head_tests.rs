//! Tables of heads, good and hostile, and that no way of arriving changes what a head says.

use super::*;
use proptest::prelude::*;

fn head(lines: &str, request: Method) -> Result<Head, HeadError> {
    let text = lines.replace('\n', "\r\n") + "\r\n\r\n";
    let (head, head_bytes) = parse(text.as_bytes(), request)?.expect("a whole head");
    assert_eq!(head_bytes, text.len(), "{lines}");
    Ok(head)
}

fn get(lines: &str) -> Head {
    head(lines, Method::Get).expect(lines)
}

#[test]
fn an_answer_of_s3() {
    let head = get("HTTP/1.1 206 Partial Content\nx-amz-id-2: abc\nx-amz-request-id: 4442587FB7D0A2F9\n\
        Date: Sun, 06 Nov 1994 08:49:37 GMT\nLast-Modified: Sun, 06 Nov 1994 08:49:36 GMT\n\
        ETag: \"b54357faf0632cce46e942fa68356b38-5\"\nx-amz-mp-parts-count: 5\nAccept-Ranges: bytes\n\
        x-amz-checksum-crc64nvme: rosUhgp5mIg=\nx-amz-checksum-type: FULL_OBJECT\nX-Amz-Meta-Made-By: me \n\
        Content-Range: bytes 0-8388607/4294967296\nContent-Type: binary/octet-stream\nServer: AmazonS3\n\
        Content-Length: 8388608\nx-amz-storage-class: STANDARD_IA\nx-amz-version-id: 3/L4kqtJl\n\
        x-amz-bucket-region: eu-west-1\nCache-Control: max-age=3, public\nExpires: never\n\
        x-amz-tagging-count: 2");
    let checksum =
        Checksum { algorithm: Algorithm::Crc64Nvme, value: 0xae8b_1486_0a79_9888, kind: Coverage::Full };
    let expected = Head {
        reason: "Partial Content".into(),
        body: Body::Length(8_388_608),
        content_length: Some(8_388_608),
        content_range: Some(ContentRange { range: Some(0..8_388_608), total: Some(4_294_967_296) }),
        etag: Some("\"b54357faf0632cce46e942fa68356b38-5\"".into()),
        last_modified: Some("Sun, 06 Nov 1994 08:49:36 GMT".into()),
        date: Some(784_111_777),
        content_type: Some("binary/octet-stream".into()),
        parts_count: Some(5),
        checksums: vec![checksum],
        request_id: Some("4442587FB7D0A2F9".into()),
        storage_class: Some("STANDARD_IA".into()),
        version_id: Some("3/L4kqtJl".into()),
        metadata: vec![("made-by".into(), "me".into())],
        content_headers: vec![("cache-control", "max-age=3, public".into()), ("expires", "never".into())],
        tags_count: Some(2),
        bucket_region: Some("eu-west-1".into()),
        ..Head::empty(206)
    };
    assert_eq!(head, expected);
}

#[test]
fn answers_to_writes() {
    let checksum =
        |algorithm: Algorithm, kind| Checksum { algorithm, value: algorithm.of(b"123456789"), kind };
    let s3 = head(
        "HTTP/1.1 200 OK\nETag: \"a\"\nx-amz-version-id: v2\nx-amz-copy-source-version-id: v1\n\
         x-amz-checksum-crc64nvme: rosUhgp5mIg=\nx-amz-checksum-type: FULL_OBJECT\nContent-Length: 0",
        Method::Put,
    );
    let expected = Head {
        reason: "OK".into(),
        body: Body::Length(0),
        content_length: Some(0),
        etag: Some("\"a\"".into()),
        checksums: vec![checksum(Algorithm::Crc64Nvme, Coverage::Full)],
        version_id: Some("v2".into()),
        copy_source_version_id: Some("v1".into()),
        ..Head::empty(200)
    };
    assert_eq!(s3, Ok(expected.clone()));
    let oss = head(
        "HTTP/1.1 200 OK\nETag: \"a\"\nx-oss-version-id: v2\nx-oss-copy-source-version-id: v1\n\
         x-oss-hash-crc64ecma: 11051210869376104954\nContent-MD5: 1B2M2Y8AsgTpgAmY7PhCfg==\nContent-Length: 0",
        Method::Put,
    );
    let checksums = vec![checksum(Algorithm::Crc64Xz, Coverage::Full)];
    assert_eq!(oss, Ok(Head { checksums, ..expected }));
    let deleted =
        head("HTTP/1.1 204 No Content\nx-amz-delete-marker: true\nx-amz-version-id: v3", Method::Delete);
    let deleted = deleted.expect("an answer without a body");
    assert_eq!((deleted.body, deleted.version_id.as_deref()), (Body::None, Some("v3")));
}

#[test]
fn an_answer_to_an_append() {
    let head = get("HTTP/1.1 200 OK\nContent-Length: 0\nx-oss-hash-crc64ecma: 11051210869376104954\n\
        x-oss-next-append-position: 5368709120");
    assert_eq!((head.next_append_position, head.checksums.len()), (Some(5 << 30), 1));
    let nonsense = get("HTTP/1.1 200 OK\nContent-Length: 0\nx-oss-next-append-position: -1");
    assert_eq!(nonsense.next_append_position, None);
}

#[test]
fn an_answer_of_oss() {
    let head = get("HTTP/1.1 206 Partial Content\nServer: AliyunOSS\nDate: Sun, 06 Nov 1994 08:49:37 GMT\n\
        Content-Length: 5\nx-oss-request-id: 5C3D9175B6FC201293AD4890\nContent-Range: bytes 0-4/9\n\
        ETag: \"25F9E794323B453885F5181F1B624D0B\"\nx-oss-object-type: Multipart\nx-oss-storage-class: IA\nx-oss-version-id: CAEQ\n\
        x-oss-hash-crc64ecma: 11051210869376104954\nx-oss-meta-Made-By: me\nx-oss-qos-delay-time: 250\n\
        x-oss-server-time: 3");
    let checksum =
        Checksum { algorithm: Algorithm::Crc64Xz, value: 0x995d_c9bb_df19_39fa, kind: Coverage::Full };
    let expected = Head {
        reason: "Partial Content".into(),
        body: Body::Length(5),
        content_length: Some(5),
        content_range: Some(ContentRange { range: Some(0..5), total: Some(9) }),
        etag: Some("\"25F9E794323B453885F5181F1B624D0B\"".into()),
        date: Some(784_111_777),
        checksums: vec![checksum],
        request_id: Some("5C3D9175B6FC201293AD4890".into()),
        storage_class: Some("IA".into()),
        version_id: Some("CAEQ".into()),
        object_type: Some("Multipart".into()),
        metadata: vec![("made-by".into(), "me".into())],
        qos_delay_ms: Some(250),
        ..Head::empty(206)
    };
    assert_eq!(head, expected);
    let refused = get("HTTP/1.1 404 X\nx-oss-ec: 0026-00000001\nx-oss-err: PEVycm9yPjwvRXJyb3I+");
    assert_eq!(refused.ec.as_deref(), Some("0026-00000001"));
    assert_eq!(refused.error_document.as_deref(), Some(&b"<Error></Error>"[..]));
    assert_eq!(get("HTTP/1.1 404 X\nx-oss-err: ***").error_document, None);
}

fn check_body(lines: &str, request: Method, body: Body, keep_alive: bool) {
    let head = head(lines, request).expect(lines);
    assert_eq!((head.body, head.keep_alive), (body, keep_alive), "{lines}");
}

#[test]
fn bodies_end_as_the_rfc_says() {
    use Body::{Chunked, Length, None, UntilClose};
    use Method::{Get, Head};
    check_body("HTTP/1.1 200 OK\nContent-Length: 5", Get, Length(5), true);
    check_body("HTTP/1.1 200 OK\nContent-Length: 5\nConnection: close", Get, Length(5), false);
    check_body("HTTP/1.1 200 OK\nContent-Length: 5\nConnection: x, Close", Get, Length(5), false);
    check_body("HTTP/1.1 200 OK\nContent-Length: 5, 5\nContent-Length: 5", Get, Length(5), true);
    check_body("HTTP/1.1 200 OK", Get, UntilClose, false);
    check_body("HTTP/1.1 200 OK\nConnection: keep-alive", Get, UntilClose, false);
    check_body("HTTP/1.1 200", Get, UntilClose, false);
    check_body("HTTP/1.0 200 OK\nContent-Length: 5", Get, Length(5), false);
    check_body("HTTP/1.0 200 OK\nContent-Length: 5\nConnection: Keep-Alive", Get, Length(5), true);
    check_body("HTTP/1.1 200 OK\nTransfer-Encoding: Chunked", Get, Chunked, true);
    check_body("HTTP/1.0 200 OK\nTransfer-Encoding: chunked\nConnection: keep-alive", Get, Chunked, false);
    check_body("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Length: 5", Get, Chunked, false);
    check_body("HTTP/1.1 200 OK\nContent-Length: 5, 6\nTransfer-Encoding: chunked", Get, Chunked, false);
    check_body("HTTP/1.1 200 OK\nTransfer-Encoding: identity\nContent-Length: 5", Get, Length(5), false);
    check_body("HTTP/1.1 200 OK\nTransfer-Encoding:\nTransfer-Encoding: chunked", Get, Chunked, true);
    check_body("HTTP/1.1 200 OK\nContent-Length: 5", Head, None, true);
    check_body("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", Head, None, true);
    check_body("HTTP/1.1 304 Not Modified\nContent-Length: 5", Get, None, true);
    check_body("HTTP/1.1 204 No Content\nContent-Length: x", Get, None, true);
    check_body("HTTP/1.1 100 Continue", Get, None, true);
    check_body("HTTP/1.1 103 Early Hints\nLink: x", Get, None, true);
}

#[test]
fn a_head_request_still_tells_the_size() {
    let head = head("HTTP/1.1 200 OK\nContent-Length: 5", Method::Head).unwrap();
    assert_eq!((head.body, head.content_length), (Body::None, Some(5)));
}

#[test]
fn heads_in_doubt_are_refused() {
    let rows = [
        ("HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 6", "'6'"),
        ("HTTP/1.1 200 OK\nContent-Length: 5,6", "'5,6'"),
        ("HTTP/1.1 200 OK\nContent-Length: -5", "'-5'"),
        ("HTTP/1.1 200 OK\nContent-Length: +5", "'+5'"),
        ("HTTP/1.1 200 OK\nContent-Length: ", "''"),
        ("HTTP/1.1 200 OK\nContent-Length: 18446744073709551616", "'18446744073709551616'"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked", "'gzip, chunked'"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked", "'chunked,chunked'"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding:\nContent-Length: 5", "transfer coding ''"),
        ("HTTP/1.1 101 Switching Protocols\nUpgrade: h2c", "another protocol"),
        ("HTTP/1.1 200 OK\nA: b\n folded", "folded"),
        ("HTTP/1.1 200 OK\nA b: c", "header name"),
        ("HTTP/1.1 200 OK\nA : c", "header name"),
        ("HTTP/1.1 200 OK\nA: \0", "header"),
        ("HTTP/1.1 2000 OK", "no HTTP/1"),
        ("HTTP/1.1 020 OK", "a bad status"),
        ("HTTP/1.1 000 OK", "a bad status"),
        ("HTTP/2.0 200 OK", "another version"),
        ("SSH-2.0-OpenSSH_9.2", "no HTTP"),
        ("<html>", "no HTTP"),
    ];
    for (lines, expected) in rows {
        let error = head(lines, Method::Get).expect_err(lines).to_string();
        assert!(error.contains(expected), "{lines}: {error}");
    }
}

#[test]
fn white_space_beyond_ascii_is_part_of_a_value() {
    for lines in
        ["Content-Length: 5\u{a0}", "Content-Length: 5,\u{2003}5", "Transfer-Encoding: \u{85}chunked"]
    {
        let refused = head(&format!("HTTP/1.1 200 OK\n{lines}"), Method::Get);
        assert!(refused.is_err(), "{lines:?}: {refused:?}");
    }
    check_body(
        "HTTP/1.1 200 OK\nContent-Length: 5\nConnection: close\u{a0}",
        Method::Get,
        Body::Length(5),
        true,
    );
    check_body("HTTP/1.1 200 OK\nContent-Length:\t5, 5 \t", Method::Get, Body::Length(5), true);
}

#[test]
fn lengths_of_heads() {
    let of_length = |bytes: usize| {
        let start = "HTTP/1.1 200 OK\r\nX: ";
        format!("{start}{}\r\n\r\n", "x".repeat(bytes - start.len() - 4)).into_bytes()
    };
    assert!(matches!(parse(&of_length(LONGEST_BYTES), Method::Get), Ok(Some((_, LONGEST_BYTES)))));
    assert_eq!(parse(&of_length(LONGEST_BYTES + 1), Method::Get), Err(HeadError::TooLong));
    assert_eq!(parse(&of_length(LONGEST_BYTES + 1)[..LONGEST_BYTES], Method::Get), Ok(None));
    // A body of any size behind a head says nothing about the head.
    let mut long = b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n".to_vec();
    let head_bytes = long.len();
    long.resize(head_bytes + 99_999, b'x');
    assert_eq!(parse(&long, Method::Get).unwrap().unwrap().1, head_bytes);
}

#[test]
fn more_headers_than_usual() {
    let lines = |count: usize| {
        let metadata: String = (0..count).map(|at| format!("\nx-amz-meta-{at}: {at}")).collect();
        format!("HTTP/1.1 200 OK\nContent-Length: 0{metadata}")
    };
    assert_eq!(get(&lines(500)).metadata.len(), 500);
    let short = "HTTP/1.1 200 OK\r\n".to_string() + &"a:\r\n".repeat(MOST_HEADERS + 1) + "\r\n";
    assert_eq!(parse(short.as_bytes(), Method::Get), Err(HeadError::TooLong));
}

#[test]
fn etags_for_if_match() {
    let rows = [
        ("\"abc\"", Some("\"abc\"")),
        ("W/\"abc\"", None),
        ("w/\"abc\"", None),
        ("abc", None),
        ("\"abc", None),
        ("\"", None),
        ("\"\"", None),
        ("", None),
    ];
    for (etag, strong) in rows {
        let head = get(&format!("HTTP/1.1 200 OK\nETag: {etag}"));
        assert_eq!(head.strong_etag(), strong, "{etag}");
        assert_eq!(head.etag.as_deref(), Some(etag).filter(|etag| !etag.is_empty()));
    }
}

#[test]
fn content_ranges() {
    let whole = |range, total| Some(ContentRange { range: Some(range), total });
    let rows = [
        ("Content-Range: bytes 0-4/10", whole(0..5, Some(10)), false),
        ("Content-Range: bytes */0", Some(ContentRange { range: None, total: Some(0) }), false),
        ("Content-Range: bytes 9-4/10", None, true),
        ("Content-Range: nonsense", None, true),
        ("Content-Range: bytes 0-4/10\nContent-Range: bytes 0-4/10", whole(0..5, Some(10)), false),
        ("Content-Range: bytes 0-4/10\nContent-Range: bytes 5-9/10", whole(5..10, Some(10)), true),
        ("X: y", None, false),
    ];
    for (line, range, bad) in rows {
        let head = get(&format!("HTTP/1.1 416 X\n{line}"));
        assert_eq!((head.content_range, head.bad_content_range), (range, bad), "{line}");
    }
}

#[test]
fn checksums() {
    let check = |lines: &str, expected: &[(Algorithm, Coverage)]| {
        let head = get(&format!("HTTP/1.1 200 OK\n{lines}"));
        let found: Vec<_> =
            head.checksums.iter().map(|checksum| (checksum.algorithm, checksum.kind)).collect();
        assert_eq!(found, expected, "{lines}");
    };
    check("x-amz-checksum-crc32c: 4waSgw==", &[(Algorithm::Crc32c, Coverage::Full)]);
    check("x-amz-checksum-crc32c: 4waSgw==-7", &[(Algorithm::Crc32c, Coverage::Composite { parts: 7 })]);
    check(
        "x-amz-checksum-crc32: y/Q5Jg==\nx-amz-checksum-type: COMPOSITE",
        &[(Algorithm::Crc32, Coverage::Composite { parts: 0 })],
    );
    check(
        "x-amz-checksum-type: COMPOSITE\nx-amz-mp-parts-count: 3\nx-amz-checksum-crc32: y/Q5Jg==",
        &[(Algorithm::Crc32, Coverage::Composite { parts: 3 })],
    );
    check("x-oss-hash-crc64ecma: 11051210869376104954", &[(Algorithm::Crc64Xz, Coverage::Full)]);
    check("x-amz-checksum-crc32c: nonsense\nx-amz-checksum-sha256: x", &[]);
}

#[test]
fn other_headers() {
    assert_eq!(get("HTTP/1.1 503 X\nRetry-After: 7").retry_after_s, Some(7));
    let dated = "HTTP/1.1 503 X\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT";
    assert_eq!(get(dated).retry_after_s, None);
    assert_eq!(get(&format!("{dated}\nDate: Sun, 06 Nov 1994 08:49:30 GMT")).retry_after_s, Some(7));
    assert_eq!(get(&format!("{dated}\nDate: Sun, 06 Nov 1994 08:50:30 GMT")).retry_after_s, Some(0));
    assert_eq!(get("HTTP/1.1 301 X\nLocation: /x").location.as_deref(), Some("/x"));
    let long_name = format!("x-amz-meta-{}", "n".repeat(90));
    assert_eq!(get(&format!("HTTP/1.1 200 OK\n{long_name}: v")).metadata, [("n".repeat(90), "v".into())]);
}

#[test]
fn answers_framed_by_another_library() {
    let headers: [(&str, &[u8]); 3] =
        [("etag", b"\"a\""), ("Content-Length", b"5"), ("x-amz-checksum-crc32c", b"4waSgw==")];
    let head = Head::from_http(200, headers.into_iter());
    assert_eq!((head.status, head.body, head.strong_etag()), (200, Body::Length(5), Some("\"a\"")));
    assert_eq!((head.checksums.len(), head.keep_alive), (1, true));
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, Method::Get);
    }

    #[test]
    fn no_split_changes_the_answer(
        lines in prop::collection::vec(
            prop_oneof![
                "(Content-Length|Content-Range|Transfer-Encoding|ETag|Connection|Date|x): [ -~]{0,12}",
                Just("Content-Length: 5".to_string()),
                Just("Transfer-Encoding: chunked".to_string()),
                Just("Content-Range: bytes 0-4/10".to_string()),
                "[ -~\t]{0,20}",
            ],
            0..6,
        ),
        status in 100u16..600,
        line_break in prop_oneof![Just("\r\n"), Just("\n")],
    ) {
        let text = format!("HTTP/1.1 {status} X{line_break}{}{line_break}{line_break}BODY", lines.join(line_break));
        let whole = parse(text.as_bytes(), Method::Get);
        for end in 0..text.len() {
            match parse(&text.as_bytes()[..end], Method::Get) {
                Ok(None) => {}
                // An error may show early; which one may depend on how much was seen.
                Err(_) => prop_assert!(whole.is_err(), "{end} of {text:?}"),
                found => prop_assert_eq!(&found, &whole, "{} of {:?}", end, text),
            }
        }
    }
}
