//! S3 buckets that lie elsewhere than one thought, and what else real services refuse for: the right bytes,
//! or a clear line.

use std::sync::Arc;

use flatout_engine::credentials::Fixed;
use flatout_engine::{Client, Config, Dialect, Error, ErrorKind, OssSettings};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use flatout_wire::sign::Credentials;

use crate::origin::{Asked, Origin, Reply, object, right};
use crate::{SIZE, config};

fn s3_config(endpoint: &str) -> Config {
    let credentials = Credentials {
        access_key: "AKIDEXAMPLEEXAMPLE".into(),
        secret_key: "s3cr3t".into(),
        session_token: None,
    };
    let mut config = Config { aws_credentials: Arc::new(Fixed(credentials)), ..config() };
    config.settings.endpoint_url = Some(endpoint.into());
    config
}

fn client(origin: &Origin) -> Client {
    Client::new(s3_config(&format!("http://{}", origin.address))).expect("good settings")
}

fn location(text: &str) -> Location {
    Location::parse(text).expect(text)
}

fn read(client: &Client, text: &str) -> Result<Vec<u8>, Error> {
    let mut buffer = vec![0; SIZE as usize];
    let report = client.get_into(&location(text), Span::All, &mut buffer)?;
    buffer.truncate(report.bytes as usize);
    Ok(buffer)
}

/// Both the bytes of a GET and the head of a HEAD.
fn served(asked: &Asked) -> Reply {
    match asked.method.as_str() {
        "HEAD" => Reply::Keep(
            format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\netag: \"v1\"\r\n\r\n").into_bytes(),
        ),
        _ => Reply::Keep(right(asked, &object(SIZE))),
    }
}

/// A refusal; a HEAD's has no body.
fn refused(asked: &Asked, status: &str, headers: &str, body: &str) -> Reply {
    let sent = if asked.method == "HEAD" { "" } else { body };
    let length = body.len();
    Reply::Keep(format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{sent}").into_bytes())
}

fn error(code: &str, more: &str) -> String {
    format!("<Error><Code>{code}</Code><Message>no</Message>{more}</Error>")
}

fn signed_for(asked: &Asked, region: &str) -> bool {
    asked.header("authorization").is_some_and(|signed| signed.contains(&format!("/{region}/s3/")))
}

#[test]
fn a_wrong_region_is_mended_once() {
    let origin = Origin::start(|asked| match signed_for(asked, "eu-west-1") {
        true if asked.path.contains("list-type") => {
            Reply::Keep(b"HTTP/1.1 200 OK\r\ncontent-length: 19\r\n\r\n<ListBucketResult/>".to_vec())
        }
        true => served(asked),
        false => refused(
            asked,
            "400 Bad Request",
            "x-amz-bucket-region: eu-west-1\r\n",
            &error("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>"),
        ),
    });
    let wrong = || origin.asked().iter().filter(|asked| !signed_for(asked, "eu-west-1")).count();
    let reader = client(&origin);
    assert!(read(&reader, "s3://bucket/key").expect("the object arrives") == object(SIZE));
    assert_eq!(wrong(), 1, "what was learnt holds for every part");
    assert!(read(&reader, "s3://bucket/other").expect("the object arrives") == object(SIZE));
    assert_eq!(wrong(), 1, "and for every object of the bucket");
    assert_eq!(client(&origin).stat(&location("s3://bucket/key")).expect("a HEAD").version.size, Some(SIZE));
    let lister = client(&origin);
    let mut listing = lister.list(&location("s3://bucket/"), true).expect("a listing");
    assert!(listing.next().transpose().expect("a page").is_none());
    assert_eq!(wrong(), 3);
}

#[test]
fn amazon_names_the_region_and_is_asked_there() {
    let origin = Origin::start(|asked| match asked.header("host") {
        Some(host) if host.starts_with("bucket.s3.eu-west-1.") => served(asked),
        _ => refused(
            asked,
            "301 Moved Permanently",
            "x-amz-bucket-region: eu-west-1\r\n",
            &error("PermanentRedirect", "<Endpoint>bucket.s3-eu-west-1.amazonaws.com</Endpoint>"),
        ),
    });
    let mut config = s3_config(&format!("http://s3.us-east-1.amazonaws.com:{}", origin.address.port()));
    let hosts = ["bucket.s3.us-east-1.amazonaws.com", "bucket.s3.eu-west-1.amazonaws.com"];
    config.settings.resolve = hosts.map(|host| format!("{host}:127.0.0.1")).to_vec();
    let client = Client::new(config).expect("good settings");
    assert!(read(&client, "s3://bucket/key").expect("the object arrives") == object(SIZE));
    let asked = origin.asked();
    assert!(signed_for(&asked[0], "us-east-1"));
    assert!(asked[1..].iter().all(|asked| signed_for(asked, "eu-west-1")));
}

#[test]
fn a_redirect_to_the_buckets_place_is_signed_anew() {
    let place = Origin::start(served);
    let there = format!("http://{}/bucket/key", place.address);
    let origin = Origin::start(move |asked| {
        refused(
            asked,
            "307 Temporary Redirect",
            &format!("location: {there}\r\n"),
            &error("TemporaryRedirect", ""),
        )
    });
    assert!(read(&client(&origin), "s3://bucket/key").expect("the object arrives") == object(SIZE));
    let (first, moved) = (origin.asked(), place.asked());
    assert_eq!(first.len(), 1);
    let signature = |asked: &Asked| asked.header("authorization").expect("a signature").to_owned();
    assert!(moved.iter().all(|asked| signature(asked) != signature(&first[0])));
    let host = place.address.to_string();
    assert!(moved.iter().all(|asked| asked.header("host") == Some(host.as_str())));
}

#[test]
fn a_region_that_does_not_help_is_an_error() {
    let always = |asked: &Asked| {
        let body = error("AuthorizationHeaderMalformed", "<Region>eu-west-1</Region>");
        refused(asked, "400 Bad Request", "", &body)
    };
    let origin = Origin::start(always);
    let error = read(&client(&origin), "s3://bucket/key").expect_err("no end");
    let hint = error.hint().expect("a hint").to_string();
    assert_eq!((error.kind(), &*hint), (ErrorKind::Usage, "use region = eu-west-1"));
    assert!(origin.asked().len() <= 3, "{} requests", origin.asked().len());
    let circle = Origin::start(|asked| {
        let there = format!("location: http://{}/bucket/key\r\n", asked.header("host").expect("a host"));
        refused(asked, "307 Temporary Redirect", &there, "")
    });
    assert_eq!(read(&client(&circle), "s3://bucket/key").expect_err("a circle").kind(), ErrorKind::Network);
    assert_eq!(circle.asked().len(), 1);
}

#[test]
fn a_skewed_clock_is_said_with_its_size() {
    let origin = Origin::start(|asked| {
        let body = error("RequestTimeTooSkewed", "");
        refused(asked, "403 Forbidden", "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", &body)
    });
    let error = read(&client(&origin), "s3://bucket/key").expect_err("another time");
    assert_eq!(error.kind(), ErrorKind::Denied);
    let hint = error.hint().expect("a hint").to_string();
    assert!(hint.contains("days ahead") && hint.contains("set the clock"), "{hint}");
}

#[test]
fn whoever_asks_pays_where_he_said_so() {
    let origin = Origin::start(|asked| match asked.path.as_str() {
        "/" => {
            let body = "<ListAllMyBucketsResult/>";
            let length = body.len();
            Reply::Keep(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes())
        }
        _ => served(asked),
    });
    let mut config = s3_config(&format!("http://{}", origin.address));
    config.settings.request_payer = true;
    let client = Client::new(config).expect("good settings");
    read(&client, "s3://bucket/key").expect("the object arrives");
    client.stat(&location("s3://bucket/key")).expect("a HEAD");
    client.buckets(Dialect::S3).expect("buckets");
    for asked in origin.asked() {
        let paid = asked.header("x-amz-request-payer");
        assert_eq!(paid, (asked.path != "/").then_some("requester"), "{}", asked.path);
        let signed = asked.header("authorization").expect("a signature");
        assert_eq!(signed.contains("x-amz-request-payer"), paid.is_some(), "{signed}");
    }
}

#[test]
fn what_is_said_of_s3_alone_is_not_done_to_oss() {
    let origin = Origin::start(served);
    let endpoint = format!("http://store.example.com:{}", origin.address.port());
    let mut config = s3_config(&endpoint);
    config.settings.oss_endpoint = Some(endpoint);
    config.settings.resolve =
        ["store.example.com", "bucket.store.example.com"].map(|host| format!("{host}:127.0.0.1")).to_vec();
    config.settings.addressing = "path".into();
    config.settings.request_payer = true;
    config.oss = OssSettings { addressing: Some("auto".into()), request_payer: Some(false) };
    let client = Client::new(config).expect("good settings");
    client.stat(&location("s3://bucket/key")).expect("a HEAD");
    client.stat(&location("oss://bucket/key")).expect("a HEAD");
    let asked = origin.asked();
    let seen = |asked: &Asked, header: &str| (asked.path.clone(), asked.header(header).is_some());
    assert_eq!(seen(&asked[0], "x-amz-request-payer"), ("/bucket/key".to_owned(), true));
    assert_eq!(seen(&asked[1], "x-oss-request-payer"), ("/key".to_owned(), false));
}

#[test]
fn odd_keys_are_sent_as_they_are() {
    let long = "k".repeat(1_023);
    let rows = [
        ("a b", "a%20b"),
        ("a+b", "a%2Bb"),
        ("100%", "100%25"),
        ("a%20b", "a%2520b"),
        ("ü/中.bin", "%C3%BC/%E4%B8%AD.bin"),
        ("/lead", "/lead"),
        ("a//b", "a//b"),
        ("a/../b", "a/../b"),
        ("..", ".."),
        ("./x", "./x"),
        ("a?b#c&d=e", "a%3Fb%23c%26d%3De"),
        ("\u{1}\t\"<>|", "%01%09%22%3C%3E%7C"),
        (long.as_str(), long.as_str()),
    ];
    for (key, path) in rows {
        for scheme in ["s3", "oss"] {
            check_key(scheme, "127.0.0.1", key, &format!("/bucket/{path}"));
            check_key(scheme, "store.example.com", key, &format!("/{path}"));
        }
    }
}

/// The object is read and looked at by one target, whether its bucket stands in the path or before the host.
#[track_caller]
fn check_key(scheme: &str, host: &str, key: &str, path: &str) {
    let origin = Origin::start(served);
    let endpoint = format!("http://{host}:{}", origin.address.port());
    let mut config = s3_config(&endpoint);
    config.settings.oss_endpoint = Some(endpoint);
    config.settings.resolve = vec![format!("bucket.{host}:127.0.0.1")];
    let client = Client::new(config).expect("good settings");
    let url = format!("{scheme}://bucket/{key}");
    assert!(read(&client, &url).expect(&url) == object(SIZE), "{url}");
    client.stat(&location(&url)).expect(&url);
    for asked in origin.asked() {
        assert_eq!(asked.path, path, "{url}");
    }
}

#[test]
fn a_redirect_of_one_object_says_nothing_of_its_bucket() {
    let other = Origin::start(served);
    for (status, target) in [
        ("302 Found", format!("http://{}/bucket/moved", other.address)),
        ("307 Temporary Redirect", format!("http://{}/cdn/abc?signature=1", other.address)),
        ("307 Temporary Redirect", format!("http://{}/bucket/another", other.address)),
        ("301 Moved Permanently", "http://169.254.169.254/bucket/moved".to_owned()),
    ] {
        let location_header = format!("location: {target}\r\n");
        let origin = Origin::start(move |asked| match asked.path.as_str() {
            "/bucket/moved" => refused(asked, status, &location_header, &error("TemporaryRedirect", "")),
            _ => served(asked),
        });
        let client = client(&origin);
        read(&client, "s3://bucket/moved").expect_err("the object is not followed");
        assert!(read(&client, "s3://bucket/key").expect("the others are where they were") == object(SIZE));
        assert!(other.asked().is_empty(), "{status} {target}: nothing signed goes elsewhere");
    }
}

#[test]
fn a_redirect_that_no_request_line_holds_is_an_error() {
    let origin = Origin::start(|asked| match asked.path.as_str() {
        "/long" => refused(asked, "302 Found", &format!("location: /{}\r\n", "x".repeat(70_000)), ""),
        _ => served(asked),
    });
    let client = client(&origin);
    let long = Location::parse(&format!("http://{}/long", origin.address)).expect("a URL");
    let error = client.stat(&long).expect_err("nothing can be asked for there");
    assert!(!matches!(error.kind(), ErrorKind::Cancelled), "{error}");
    assert!(client.stat(&location("s3://bucket/key")).is_ok(), "the client goes on");
}
