//! A get of one version and no other: the first request says so, and where an origin does not listen its
//! answer is looked at.

use std::sync::Arc;

use flatout_engine::credentials::Fixed;
use flatout_engine::{AllocatedBuffer, Client, Config, ErrorKind, Get, Landing};
use flatout_wire::location::Location;
use flatout_wire::range::Span;
use flatout_wire::sign::Credentials;

use super::origin::{Asked, Origin, Reply, head_206, object, right};
use super::{SIZE, config};

/// The object in each dialect.
const OBJECTS: [&str; 3] = ["s3://bucket/object", "oss://bucket/object", "http"];

fn client(origin: &Origin) -> Client {
    let credentials = Credentials {
        access_key: "LTAIEXAMPLEEXAMPLE".into(),
        secret_key: "s3cr3t".into(),
        session_token: None,
    };
    let keys = Arc::new(Fixed(credentials));
    let mut config = Config { aws_credentials: keys.clone(), oss_credentials: keys, ..config() };
    config.settings.endpoint_url = Some(format!("http://{}", origin.address));
    config.settings.oss_endpoint = Some(origin.address.to_string());
    Client::new(config).expect("good settings")
}

/// What came of it; the bytes are right where there are any.
fn read(origin: &Origin, object_url: &str, etag: &str, span: Span) -> Result<u64, ErrorKind> {
    let url = if object_url == "http" { origin.url() } else { object_url.to_owned() };
    let made = AllocatedBuffer::new();
    let location = Location::parse(&url).expect("a location");
    let get = Get::new(location, Landing::Allocated(made.clone())).with_span(span).with_if_match(etag);
    let client = client(origin);
    let started = client.get(get).map_err(|error| error.kind())?;
    let watch = started.watch();
    match started.wait() {
        Ok(report) => {
            let block = made.take().expect("it is whole");
            let range = report.range.start as usize..report.range.end as usize;
            assert!(block.as_slice() == &object(SIZE)[range]);
            Ok(report.bytes)
        }
        Err(error) => {
            assert_eq!(watch.progress().landed_bytes, 0, "no byte of another version lands");
            Err(error.kind())
        }
    }
}

/// The right answer, with that ETag.
fn tagged(asked: &Asked, etag: Option<&str>) -> Reply {
    if asked.method == "HEAD" {
        return Reply::Keep(format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n").into_bytes());
    }
    let range = asked.range(SIZE).expect("the engine asks for ranges");
    let mut head = head_206(&range, SIZE, etag.unwrap_or_default());
    if etag.is_none() {
        head = head.replace("etag: \r\n", "");
    }
    Reply::Keep([head.as_bytes(), &object(SIZE)[range.start as usize..range.end as usize]].concat())
}

/// An origin that refuses what is not v1, and one that never looks.
fn listens(asked: &Asked) -> Reply {
    match asked.header("if-match") {
        Some("\"v1\"") | None => tagged(asked, Some("\"v1\"")),
        Some(_) => Reply::Keep(b"HTTP/1.1 412 Precondition Failed\r\ncontent-length: 0\r\n\r\n".to_vec()),
    }
}

fn ignores(asked: &Asked) -> Reply {
    tagged(asked, Some("\"v1\""))
}

#[test]
fn the_first_request_names_the_version() {
    for url in OBJECTS {
        for (span, bytes) in [(Span::All, SIZE), (Span::Slice(5..99), 94), (Span::Last(7), 7)] {
            let origin = Origin::start(listens);
            for etag in ["\"v1\"", "v1"] {
                assert_eq!(read(&origin, url, etag, span.clone()), Ok(bytes), "{url} {span:?} {etag}");
            }
            let asked = origin.asked();
            let mut gets = asked.iter().filter(|asked| asked.method == "GET");
            assert!(gets.all(|asked| asked.header("if-match") == Some("\"v1\"")), "{url} {span:?}");
        }
    }
}

#[test]
fn another_version_is_refused_by_whoever_looks() {
    for url in OBJECTS {
        for origin in [Origin::start(listens), Origin::start(ignores)] {
            for span in [Span::All, Span::Slice(5..99), Span::Last(7)] {
                assert_eq!(read(&origin, url, "\"v2\"", span), Err(ErrorKind::Changed), "{url}");
            }
            assert_eq!(origin.asked().len(), 3, "nothing is asked for once it is known");
        }
    }
}

#[test]
fn a_weak_etag_is_looked_for_in_the_answer_alone() {
    for url in OBJECTS {
        let origin = Origin::start(|asked| tagged(asked, Some("W/\"v1\"")));
        assert_eq!(read(&origin, url, "W/\"v1\"", Span::All), Ok(SIZE), "{url}");
        assert_eq!(read(&origin, url, "W/\"v2\"", Span::All), Err(ErrorKind::Changed), "{url}");
        assert!(origin.asked().iter().all(|asked| asked.header("if-match").is_none()));
    }
}

#[test]
fn an_origin_that_tells_no_etag_cannot_say_that_it_is_the_version() {
    let origin = Origin::start(|asked| tagged(asked, None));
    assert_eq!(read(&origin, "http", "\"v1\"", Span::All), Err(ErrorKind::Changed));
}

#[test]
fn one_stream_and_an_empty_object_are_held_against_it_too() {
    let one = Origin::start(|_| {
        let head = format!("HTTP/1.1 200 OK\r\netag: \"v1\"\r\ncontent-length: {SIZE}\r\n\r\n");
        Reply::Keep([head.as_bytes(), &object(SIZE)].concat())
    });
    assert_eq!(read(&one, "http", "\"v1\"", Span::All), Ok(SIZE));
    assert_eq!(read(&one, "http", "\"v2\"", Span::All), Err(ErrorKind::Changed));
    let empty = Origin::start(|asked| {
        let status = if asked.header("range").is_some() { "416 No" } else { "200 OK" };
        Reply::Keep(format!("HTTP/1.1 {status}\r\netag: \"v1\"\r\ncontent-length: 0\r\n\r\n").into_bytes())
    });
    assert_eq!(read(&empty, "http", "\"v1\"", Span::All), Ok(0));
    assert_eq!(read(&empty, "http", "\"v2\"", Span::All), Err(ErrorKind::Changed));
}

#[test]
fn what_is_no_etag_is_sent_nowhere() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    for etag in ["", "*", "\"v1", "v 1", "v1\r\nx-evil: 1"] {
        assert_eq!(read(&origin, "http", etag, Span::All), Err(ErrorKind::Usage), "{etag:?}");
    }
    assert_eq!(origin.asked().len(), 0);
}

/// It said that the object was replaced while it was read, and to start again: which never helps.
#[test]
fn an_etag_that_was_wrong_from_the_start_is_no_replacement() {
    for url in OBJECTS {
        for origin in [Origin::start(listens), Origin::start(ignores)] {
            let url = if url == "http" { origin.url() } else { url.to_owned() };
            let location = Location::parse(&url).expect("a location");
            let get = Get::new(location, Landing::Allocated(AllocatedBuffer::new())).with_if_match("v2");
            let error =
                client(&origin).get(get).and_then(|started| started.wait()).expect_err("another version");
            assert_eq!(
                (error.kind(), error.cause()),
                (ErrorKind::Changed, "the object's ETag is not \"v2\""),
                "{url}"
            );
            assert!(error.hint().is_some_and(|hint| hint.to_string().contains("Stat")), "{url}");
        }
    }
}

#[test]
fn every_request_names_the_version_id() {
    for url in ["s3://bucket/object", "oss://bucket/object"] {
        let origin = Origin::start(ignores);
        let (client, location) = (client(&origin), Location::parse(url).expect("a location"));
        let get = Get::new(location.clone(), Landing::Allocated(AllocatedBuffer::new()))
            .with_version_id("3/L4+k q");
        client.get(get).and_then(|started| started.wait()).expect(url);
        client.stat_version(&location, Some("3/L4+k q")).expect(url);
        let signed = client.presign_version(&location, Some("3/L4+k q"), 60).expect(url);
        assert!(signed.contains("versionId=3%2FL4%2Bk%20q"), "{signed}");
        let asked = origin.asked();
        assert!(asked.len() >= 3, "parts, and a HEAD");
        let names = |path: &str| path.ends_with("?versionId=3%2FL4%2Bk%20q");
        assert!(asked.iter().all(|asked| names(&asked.path)), "{:?}", asked[0].path);
    }
    let plain = Location::parse("http://127.0.0.1:1/object").expect("a URL");
    let get = Get::new(plain, Landing::Allocated(AllocatedBuffer::new())).with_version_id("1");
    let refused = client(&Origin::start(ignores)).get(get).err().expect("there are no versions");
    assert_eq!(refused.kind(), ErrorKind::Usage);
}

#[test]
fn what_the_first_answer_told_is_in_the_report() {
    let told = "content-type: text/x-test\r\nx-amz-meta-colour: blue\r\nx-amz-version-id: v7\r\n";
    let origin = Origin::start(move |asked| {
        let range = asked.range(SIZE).unwrap_or(0..SIZE);
        let head = head_206(&range, SIZE, "\"v1\"").replace("etag:", &format!("{told}etag:"));
        Reply::Keep([head.as_bytes(), &object(SIZE)[range.start as usize..range.end as usize]].concat())
    });
    let location = Location::parse("s3://bucket/object").expect("a location");
    let get = Get::new(location, Landing::Allocated(AllocatedBuffer::new())).with_span(Span::Slice(5..99));
    let report = client(&origin).get(get).and_then(|started| started.wait()).expect("it is there");
    let stat = report.stat.expect("an answer began it");
    assert_eq!((stat.version.size, stat.version.etag.as_deref()), (Some(SIZE), Some("\"v1\"")));
    assert_eq!((stat.content_type.as_deref(), stat.version_id.as_deref()), (Some("text/x-test"), Some("v7")));
    assert_eq!(stat.metadata, [("colour".to_owned(), "blue".to_owned())]);
}
