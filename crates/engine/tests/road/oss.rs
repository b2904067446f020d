//! The road of a get from Alibaba Cloud OSS: what is asked, how it is signed and verified, what is said when
//! it refuses.

use std::sync::Arc;

use flatout_engine::credentials::Fixed;
use flatout_engine::{Client, Config, Dialect, Entry, Error, ErrorKind, Report, Stat, Verified};
use flatout_wire::checksum::Algorithm;
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use flatout_wire::sign::Credentials;

use crate::origin::{Asked, Origin, Reply, object};
use crate::{PART, SIZE, config};

fn oss_config(origin: &Origin) -> Config {
    let credentials = Credentials {
        access_key: "LTAIEXAMPLEEXAMPLE".into(),
        secret_key: "s3cr3t".into(),
        session_token: Some("token".into()),
    };
    let mut config = Config { oss_credentials: Arc::new(Fixed(credentials)), ..config() };
    config.settings.oss_endpoint = Some(origin.address.to_string());
    config
}

fn client(origin: &Origin) -> Client {
    Client::new(oss_config(origin)).expect("good settings")
}

fn location(text: &str) -> Location {
    Location::parse(text).expect(text)
}

fn read_with(config: Config, span: Span) -> Result<(Vec<u8>, Report), Error> {
    let client = Client::new(config).expect("good settings");
    let mut buffer = vec![0; SIZE as usize];
    let report = client.get_into(&location("oss://bucket/a b"), span, &mut buffer)?;
    buffer.truncate(report.bytes as usize);
    Ok((buffer, report))
}

fn read(origin: &Origin) -> Result<(Vec<u8>, Report), Error> {
    read_with(oss_config(origin), Span::All)
}

fn answer(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    Reply::Keep([head.as_bytes(), b"\r\n", body].concat())
}

fn refused(status: &str, code: &str, more: &str) -> Reply {
    let body = format!("<Error><Code>{code}</Code><Message>no</Message>{more}</Error>");
    answer(status, &[("x-oss-request-id", "5C1B")], body.as_bytes())
}

/// What OSS answers to a range of `body`, with the CRC and ETag that it states.
fn ranged(asked: &Asked, body: &[u8], crc: &str, etag: &str) -> Reply {
    let size = body.len() as u64;
    let range = asked.range(size).expect("a range");
    let content_range = format!("bytes {}-{}/{size}", range.start, range.end - 1);
    let headers = [
        ("content-range", content_range.as_str()),
        ("etag", etag),
        ("x-oss-hash-crc64ecma", crc),
        ("x-oss-request-id", "5C1B"),
    ];
    answer("206 Partial Content", &headers, &body[range.start as usize..range.end as usize])
}

fn crc(bytes: &[u8]) -> String {
    Algorithm::Crc64Xz.encode(Algorithm::Crc64Xz.of(bytes))
}

fn right(asked: &Asked) -> Reply {
    let body = object(SIZE);
    ranged(asked, &body, &crc(&body), "\"v1\"")
}

#[test]
fn the_crc_of_the_first_answer_verifies_the_whole() {
    for (version, start) in [("v4", "OSS4-HMAC-SHA256 Credential=LTAIEXAMPLEEXAMPLE/"), ("v1", "OSS LTAI")] {
        let origin = Origin::start(right);
        let mut config = oss_config(&origin);
        config.settings.oss_signature = version.into();
        let (bytes, report) = read_with(config, Span::All).expect("the object arrives");
        assert!(bytes == object(SIZE));
        assert_eq!((report.verified, report.retries), (Verified::Whole(Algorithm::Crc64Xz), 0));
        let asked = origin.asked();
        assert_eq!(asked.len() as u64, SIZE.div_ceil(PART), "one request for each part, and no other");
        for asked in &asked {
            assert_eq!((asked.method.as_str(), asked.path.as_str()), ("GET", "/bucket/a%20b"));
            assert_eq!(asked.header("x-oss-range-behavior"), Some("standard"));
            assert_eq!(asked.header("x-oss-security-token"), Some("token"));
            assert!(asked.header("authorization").expect("a signature").starts_with(start));
        }
        // A new minute would bring a second signature, no more.
        let mut signatures: Vec<_> = asked.iter().map(|asked| asked.header("authorization")).collect();
        signatures.dedup();
        assert!(signatures.len() <= 2, "{signatures:?}");
        assert_eq!(asked[0].header("if-match"), None);
        assert!(asked[1..].iter().all(|asked| asked.header("if-match") == Some("\"v1\"")));
    }
}

#[test]
fn what_is_not_the_whole_or_not_stated_is_said() {
    let verified = |span: Span, answer: fn(&Asked) -> Reply| {
        let origin = Origin::start(answer);
        read_with(oss_config(&origin), span).expect("bytes").1.verified
    };
    assert_eq!(verified(Span::From(5), right), Verified::None("a part of the object was read"));
    assert_eq!(verified(Span::Last(5), right), Verified::None("a part of the object was read"));
    let silent = verified(Span::All, |asked| ranged(asked, &object(SIZE), "nonsense", "\"v1\""));
    assert_eq!(silent, Verified::None("not stated by the origin"));
}

#[test]
fn bytes_that_are_not_those_of_the_crc_are_refused() {
    let origin = Origin::start(|asked| {
        let mut body = object(SIZE);
        let stated = crc(&body);
        body[70_000] ^= 1;
        ranged(asked, &body, &stated, "\"v1\"")
    });
    let error = read(&origin).expect_err("a wrong byte");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("crc64xz"), "{error}");
}

#[test]
fn a_presigned_url_is_verified_too() {
    let origin = Origin::start(right);
    let client = Client::new(config()).expect("good settings");
    let url = format!("http://{}/bucket/object?x-oss-signature=1", origin.address);
    let mut buffer = vec![0; SIZE as usize];
    let report = client.get_into(&location(&url), Span::All, &mut buffer).expect("the object arrives");
    assert_eq!(report.verified, Verified::Whole(Algorithm::Crc64Xz));
}

#[test]
fn a_replaced_object_is_never_mixed() {
    let origin = Origin::start(|asked| {
        let body = object(SIZE);
        ranged(asked, &body, &crc(&body), if asked.number == 0 { "\"v1\"" } else { "\"v2\"" })
    });
    assert_eq!(read(&origin).expect_err("two versions").kind(), ErrorKind::Changed);
    let origin = Origin::start(|asked| match asked.header("if-match") {
        Some(_) => refused("412 Precondition Failed", "PreconditionFailed", ""),
        None => right(asked),
    });
    assert_eq!(read(&origin).expect_err("it is gone").kind(), ErrorKind::Changed);
}

#[test]
fn an_empty_object_is_no_error() {
    let origin = Origin::start(|asked| match asked.header("range") {
        Some(_) => refused("416 Requested Range Not Satisfiable", "InvalidRange", ""),
        None => answer("200 OK", &[("etag", "\"e\""), ("x-oss-hash-crc64ecma", "0")], b""),
    });
    let (bytes, report) = read(&origin).expect("nothing, well");
    assert_eq!((bytes.len(), report.verified), (0, Verified::Whole(Algorithm::Crc64Xz)));
}

#[test]
fn throttles_are_waited_for() {
    let origin = Origin::start(|asked| match asked.number {
        0 => refused("503 Service Unavailable", "DownloadTrafficRateLimitExceeded", ""),
        _ => right(asked),
    });
    assert_eq!(read(&origin).expect("the object arrives").1.retries, 1);
}

#[test]
fn refusals_say_what_to_do() {
    let elsewhere = "<Endpoint>oss-cn-beijing.aliyuncs.com</Endpoint><EC>0003-00001403</EC>";
    let region = "<Error><Code>InvalidArgument</Code><Message>Invalid signing region in Authorization header.</Message></Error>";
    let rows: [(&str, &str, &str, ErrorKind, &[&str]); 10] = [
        (
            "403 Forbidden",
            "AccessDenied",
            elsewhere,
            ErrorKind::Usage,
            &["EC 0003-00001403", "request 5C1B", "oss-endpoint = oss-cn-beijing.aliyuncs.com"],
        ),
        ("403 Forbidden", "AccessDenied", "", ErrorKind::Denied, &["access denied"]),
        ("403 Forbidden", "InvalidAccessKeyId", "", ErrorKind::Denied, &["does not accept the keys"]),
        ("403 Forbidden", "SignatureDoesNotMatch", "", ErrorKind::Denied, &["does not accept the keys"]),
        ("403 Forbidden", "SecurityTokenExpired", "", ErrorKind::Denied, &["expired"]),
        ("403 Forbidden", "RequestTimeTooSkewed", "", ErrorKind::Denied, &["clock"]),
        ("403 Forbidden", "InvalidObjectState", "", ErrorKind::Unsupported, &["archived", "restore it"]),
        ("403 Forbidden", "SecondLevelDomainForbidden", "", ErrorKind::Usage, &["addressing = virtual"]),
        ("404 Not Found", "NoSuchKey", "", ErrorKind::NotFound, &["no such object", "oss://bucket/a b"]),
        ("404 Not Found", "NoSuchBucket", "", ErrorKind::NotFound, &["no such bucket"]),
    ];
    for (status, code, more, kind, says) in rows {
        let origin = Origin::start(move |_| refused(status, code, more));
        check_refusal(&origin, kind, says);
        assert_eq!(origin.asked().len(), 1, "{code} is not asked again");
    }
    let origin = Origin::start(move |_| answer("400 Bad Request", &[], region.as_bytes()));
    check_refusal(&origin, ErrorKind::Usage, &["another region", "with region"]);
}

#[track_caller]
fn check_refusal(origin: &Origin, kind: ErrorKind, says: &[&str]) {
    let error = read(origin).expect_err("a refusal");
    let said = format!("{error} {}", error.hint().cloned().unwrap_or_default());
    assert_eq!(error.kind(), kind, "{said}");
    for part in says {
        assert!(said.contains(part), "{said} lacks {part}");
    }
}

#[test]
fn without_endpoint_and_region_there_is_no_oss() {
    let client = Client::new(config()).expect("S3 does not mind");
    let error = client.stat(&location("oss://bucket/key")).expect_err("no way to OSS");
    assert_eq!(error.kind(), ErrorKind::Usage);
    assert!(error.to_string().starts_with("stat: oss://bucket/key: oss:// needs a region"), "{error}");
    assert_eq!(client.buckets(Dialect::Oss).expect_err("no way").kind(), ErrorKind::Usage);
    let mut buffer = [0; 1];
    let error = client.get_into(&location("oss://bucket/key"), Span::All, &mut buffer).expect_err("no way");
    assert_eq!(error.kind(), ErrorKind::Usage);
}

#[test]
fn a_name_puts_the_bucket_before_the_host() {
    let origin = Origin::start(right);
    let mut config = oss_config(&origin);
    let port = origin.address.port();
    config.settings.oss_endpoint = Some(format!("http://oss-cn-hangzhou.aliyuncs.com:{port}"));
    config.settings.resolve = vec!["bucket.oss-cn-hangzhou.aliyuncs.com:127.0.0.1".into()];
    config.settings.request_payer = true;
    read_with(config, Span::All).expect("the object arrives");
    for asked in origin.asked() {
        let host = format!("bucket.oss-cn-hangzhou.aliyuncs.com:{port}");
        assert_eq!((asked.path.as_str(), asked.header("host")), ("/a%20b", Some(host.as_str())));
        assert_eq!(asked.header("x-oss-request-payer"), Some("requester"));
        assert!(asked.header("authorization").expect("a signature").contains("/cn-hangzhou/oss/aliyun_v4"));
    }
}

#[test]
fn without_keys_requests_leave_unsigned() {
    let origin = Origin::start(|asked| match asked.method.as_str() {
        "HEAD" => refused("403 Forbidden", "AccessDenied", ""),
        _ => right(asked),
    });
    let mut config = oss_config(&origin);
    config.settings.no_sign_request = true;
    read_with(config.clone(), Span::All).expect("the object arrives");
    let client = Client::new(config).expect("good settings");
    client.stat(&location("oss://bucket/a b")).expect_err("this origin answers ranges only");
    for asked in origin.asked() {
        assert_eq!(asked.header("authorization"), None);
        assert!(asked.headers.iter().any(|(name, _)| name.starts_with("x-oss-")), "it is seen to be OSS's");
    }
}

fn stat(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Result<Stat, Error> {
    let origin = Origin::start(answer);
    client(&origin).stat(&location("oss://bucket/a b"))
}

#[test]
fn a_stat_is_one_head() {
    let found = stat(|asked| {
        assert_eq!((asked.method.as_str(), asked.path.as_str()), ("HEAD", "/bucket/a%20b"));
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nETag: \"v1\"\r\nx-oss-object-type: Appendable\r\n\
            x-oss-hash-crc64ecma: 11051210869376104954\r\nx-oss-storage-class: IA\r\nx-oss-meta-made-by: me\r\n\r\n";
        Reply::Keep(head.into())
    });
    let found = found.expect("an object");
    assert_eq!((found.version.size, found.checksums.len()), (Some(9), 1));
    assert_eq!(found.checksums[0].value, 0x995d_c9bb_df19_39fa);
    assert_eq!(found.object_type.as_deref(), Some("Appendable"));
    assert_eq!(found.storage_class.as_deref(), Some("IA"));
    assert_eq!(found.metadata, [("made-by".to_owned(), "me".to_owned())]);
}

#[test]
fn a_refused_head_says_why_in_a_header() {
    // <Error><Code>AccessDenied</Code><Message>no</Message><Endpoint>oss-cn-beijing.aliyuncs.com</Endpoint></Error>
    let document = "PEVycm9yPjxDb2RlPkFjY2Vzc0RlbmllZDwvQ29kZT48TWVzc2FnZT5ubzwvTWVzc2FnZT48RW5kcG9pbnQ+b3NzLWNuLWJlaWppbmcu\
        YWxpeXVuY3MuY29tPC9FbmRwb2ludD48L0Vycm9yPg==";
    let error = stat(move |_| {
        let head = format!(
            "HTTP/1.1 403 Forbidden\r\nx-oss-err: {document}\r\nx-oss-ec: 0003-00001403\r\n\
             x-oss-request-id: 5C1B\r\nContent-Length: 300\r\n\r\n"
        );
        Reply::Keep(head.into())
    });
    let error = error.expect_err("a refusal");
    let hint = error.hint().expect("a hint").to_string();
    assert_eq!(hint, "use oss-endpoint = oss-cn-beijing.aliyuncs.com");
    assert!(error.to_string().contains("EC 0003-00001403, request 5C1B"), "{error}");
}

#[test]
fn listings_go_on_page_after_page() {
    let origin = Origin::start(|asked| {
        let second = asked.path.contains("continuation-token=t%2B1&");
        let (more, key) = match second {
            false => {
                ("<IsTruncated>true</IsTruncated><NextContinuationToken>t%2B1</NextContinuationToken>", "a")
            }
            true => ("<IsTruncated>false</IsTruncated>", "b%20%2B%E4%B8%AD"),
        };
        let body = format!(
            "<ListBucketResult><Name>bucket</Name><EncodingType>url</EncodingType>{more}<Contents><Key>p%2F{key}</Key>\
             <LastModified>2012-02-24T08:43:27.000Z</LastModified><ETag>\"5B3C\"</ETag><Type>Normal</Type><Size>5</Size>\
             <StorageClass>Standard</StorageClass></Contents><CommonPrefixes><Prefix>p%2F{key}%2F</Prefix>\
             </CommonPrefixes></ListBucketResult>"
        );
        answer("200 OK", &[], body.as_bytes())
    });
    let client = client(&origin);
    for deep in [true, false] {
        let listing = client.list(&location("oss://bucket/p/"), deep).expect("a listing");
        let entries: Vec<Entry> = listing.map(|entry| entry.expect("an entry")).collect();
        let names: Vec<&str> = entries.iter().map(Entry::name).collect();
        assert_eq!(names, ["p/a", "p/a/", "p/b +中", "p/b +中/"]);
    }
    let paths: Vec<String> = origin.asked().into_iter().map(|asked| asked.path).collect();
    let rest = "encoding-type=url&list-type=2&max-keys=1000&prefix=p%2F";
    let expected = [
        format!("/bucket/?{rest}"),
        format!("/bucket/?continuation-token=t%2B1&{rest}"),
        format!("/bucket/?delimiter=%2F&{rest}"),
        format!("/bucket/?continuation-token=t%2B1&delimiter=%2F&{rest}"),
    ];
    assert_eq!(paths, expected);
}

#[test]
fn buckets_go_on_page_after_page() {
    let page = |name: &str, more: &str| {
        let body = format!(
            "<ListAllMyBucketsResult>{more}<Buckets><Bucket><CreationDate>2014-05-14T11:18:32.000Z</CreationDate>\
             <Name>{name}</Name><Location>oss-cn-hangzhou</Location></Bucket></Buckets></ListAllMyBucketsResult>"
        );
        answer("200 OK", &[], body.as_bytes())
    };
    let next = "<IsTruncated>true</IsTruncated><NextMarker>one</NextMarker>";
    let origin = Origin::start(move |asked| match asked.path.as_str() {
        "/?max-keys=1000" => page("one", next),
        "/?marker=one&max-keys=1000" => page("two", "<IsTruncated>false</IsTruncated>"),
        path => panic!("{path}"),
    });
    let buckets = client(&origin).buckets(Dialect::Oss).expect("buckets");
    let names: Vec<_> = buckets.iter().map(|bucket| (bucket.name.as_str(), bucket.created)).collect();
    assert_eq!(names, [("one", 1_400_066_312), ("two", 1_400_066_312)]);
    let circle = Origin::start(move |_| page("one", next));
    assert_eq!(client(&circle).buckets(Dialect::Oss).expect_err("a circle").kind(), ErrorKind::Network);
}
