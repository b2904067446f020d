//! Checksums of uploads at servers of S3 that know less than Amazon does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use flatout_engine::credentials::Fixed;
use flatout_engine::{Client, Config, Error, Put, Report, Source, Verified};
use flatout_wire::body_checksum::{BodyChecksum, ChecksumForm};
use flatout_wire::checksum::Algorithm;
use flatout_wire::documents::etag_of_parts;
use flatout_wire::location::Location;
use flatout_wire::sign::Credentials;

use super::origin::{Asked, Origin, Reply, answer, object};
use super::trailers::unframed;

pub(super) const PART: u64 = 5 << 20;
const CRC32C: &str = "x-amz-checksum-crc32c";

/// What a server does with the header of a CRC.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Crcs {
    Refused,
    Overlooked,
    /// CRC64NVME is refused; CRC32C is compared and stated, whether it stands before a body or behind it.
    OnlyCrc32c,
}

fn sum(body: &[u8]) -> BodyChecksum {
    let mut hasher = ChecksumForm::Md5.hasher();
    hasher.update(body);
    hasher.finish()
}

pub(super) fn etag(body: &[u8]) -> String {
    format!("\"{}\"", sum(body).word().trim_start_matches("md5:"))
}

fn crc32c(body: &[u8]) -> String {
    Algorithm::Crc32c.encode(Algorithm::Crc32c.of(body))
}

fn taken(etag: &str, headers: &str) -> Reply {
    answer("200 OK", &format!("etag: {etag}\r\n{headers}"), "")
}

/// The content of an object or a part, whose CRC32C is right.
fn compared(asked: &Asked) -> Vec<u8> {
    let (content, stated) = match asked.header("x-amz-trailer") {
        Some(name) => {
            assert_eq!(name, CRC32C);
            let (content, trailer) = unframed(&asked.body);
            (content, trailer.strip_prefix("x-amz-checksum-crc32c:").map(str::to_owned))
        }
        None => (asked.body.clone(), asked.header(CRC32C).map(str::to_owned)),
    };
    assert_eq!(stated, Some(crc32c(&content)));
    content
}

/// A server that keeps one object. `etag_of` is how it names what it was sent.
pub(super) fn server(crcs: Crcs, etag_of: fn(&[u8]) -> String) -> (Origin, Arc<Mutex<Vec<u8>>>) {
    let stored = Arc::<Mutex<Vec<u8>>>::default();
    let (object, parts) = (stored.clone(), Mutex::<BTreeMap<u32, Vec<u8>>>::default());
    let origin = Origin::start(move |asked: &Asked| {
        let has_crc = asked.headers.iter().any(|(name, _)| name.starts_with("x-amz-checksum-"));
        let is_refused = match crcs {
            Crcs::Refused => has_crc,
            Crcs::Overlooked => false,
            Crcs::OnlyCrc32c => names_crc64(asked),
        };
        if is_refused {
            let code = "<Error><Code>InvalidRequest</Code><Message>unknown checksum</Message></Error>";
            return answer("400 Bad Request", "", code);
        }
        if let Some(stated) = asked.header("content-md5")
            && sum(&asked.body).header().is_some_and(|(_, right)| right != stated)
        {
            return answer("400 Bad Request", "", "<Error><Code>BadDigest</Code></Error>");
        }
        let query = asked.path.split_once('?').map_or("", |(_, query)| query);
        let is_compared = crcs == Crcs::OnlyCrc32c;
        let content = match (is_compared && asked.method == "PUT", &asked.body) {
            (true, _) => compared(asked),
            (false, body) => body.clone(),
        };
        let sum = if is_compared { format!("{CRC32C}: {}\r\n", crc32c(&content)) } else { String::new() };
        match (&*asked.method, query) {
            ("PUT", "") => {
                let answer = taken(&etag_of(&content), &sum);
                *object.lock().expect("no panic in a test") = content;
                answer
            }
            ("PUT", _) => {
                let number = asked.part().expect("a part's number");
                let answer = taken(&etag_of(&content), &sum);
                parts.lock().expect("no panic in a test").insert(number, content);
                answer
            }
            ("POST", query) if query.split('&').any(|pair| pair.starts_with("uploads")) => {
                let id =
                    "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>";
                answer("200 OK", "", id)
            }
            ("POST", _) => {
                let parts = parts.lock().expect("no panic in a test");
                let etags: Vec<String> = parts.values().map(|part| etag_of(part)).collect();
                let whole = etag_of_parts(etags.iter().map(String::as_str)).unwrap_or("\"opaque-2\"".into());
                let content: Vec<u8> = parts.values().flatten().copied().collect();
                let sum = crc32c(&content);
                if is_compared {
                    assert_eq!(asked.header(CRC32C), Some(&*sum), "of the whole");
                }
                *object.lock().expect("no panic in a test") = content;
                let sum =
                    format!("<ChecksumCRC32C>{sum}</ChecksumCRC32C><ChecksumType>FULL_OBJECT</ChecksumType>");
                let sum = if is_compared { &*sum } else { "" };
                let done = "CompleteMultipartUploadResult";
                answer("200 OK", "", &format!("<{done}><ETag>{whole}</ETag>{sum}</{done}>"))
            }
            other => panic!("{other:?} was not to be asked"),
        }
    });
    (origin, stored)
}

/// Whether a request speaks of CRC64NVME.
fn names_crc64(asked: &Asked) -> bool {
    let mut words = asked.headers.iter().flat_map(|(name, value)| [name, value]);
    words.any(|word| word.to_ascii_lowercase().contains("crc64nvme"))
}

/// That of a client of either dialect.
pub(super) fn config(origin: &Origin) -> Config {
    let url = Some(format!("http://{}", origin.address));
    let mut config = Config::default();
    config.settings.endpoint_url = url.clone();
    config.settings.oss_endpoint = url;
    config.settings.oss_region = Some("cn-hangzhou".into());
    config.settings.part_bytes = Some(PART);
    config.settings.retries = 0;
    let (access_key, secret_key) = ("key".into(), "secret".into());
    let credentials = Credentials { access_key, secret_key, session_token: None };
    config.aws_credentials = Arc::new(Fixed(credentials.clone()));
    config.oss_credentials = Arc::new(Fixed(credentials));
    config
}

fn client(origin: &Origin) -> Client {
    Client::new(config(origin)).expect("good settings")
}

fn put(client: &Client, body: &[u8]) -> Result<Report, Error> {
    let location = Location::parse("s3://bucket/object").expect("a URL");
    client.put(Put::new(location, Source::Memory(Arc::new(body.to_vec()))))?.wait()
}

/// How many requests with a body stated each kind of checksum: CRCs, MD5.
fn stated(origin: &Origin) -> (usize, usize) {
    let with = |is_stated: fn(&str) -> bool| {
        let has = |asked: &&Asked| asked.headers.iter().any(|(name, _)| is_stated(name));
        origin.asked().iter().filter(|asked| asked.method == "PUT").filter(has).count()
    };
    (
        with(|name| name.starts_with("x-amz-checksum-") && name != "x-amz-checksum-algorithm"),
        with(|name| name == "content-md5"),
    )
}

#[test]
fn an_origin_that_refuses_crcs_compares_md5s() {
    let (origin, stored) = server(Crcs::Refused, etag);
    let client = client(&origin);
    for bytes in [1000, 2 * PART + 1] {
        let body = object(bytes);
        assert_eq!(put(&client, &body).expect("it is taken").verified, Verified::Md5);
        assert!(*stored.lock().expect("no panic in a test") == body);
    }
    // Both CRCs are tried once, by the first object.
    assert_eq!(stated(&origin), (2, 4));
}

#[test]
fn an_origin_that_overlooks_crcs_is_judged_by_its_etags() {
    let (origin, stored) = server(Crcs::Overlooked, etag);
    for bytes in [1000, 2 * PART + 1] {
        let body = object(bytes);
        let first = client(&origin);
        for _ in 0..3 {
            assert_eq!(put(&first, &body).expect("it is taken").verified, Verified::Md5, "{bytes}");
            assert!(*stored.lock().expect("no panic in a test") == body);
        }
    }
    let (_, by_md5) = stated(&origin);
    assert!(by_md5 >= 4, "the third of each states an MD5: {by_md5}");
}

#[test]
fn an_etag_that_is_no_md5_proves_nothing() {
    for etag_of in [|_: &[u8]| "\"opaque\"".to_owned(), |_: &[u8]| format!("\"{:032x}\"", 1)] {
        let (origin, _) = server(Crcs::Overlooked, etag_of);
        for bytes in [1000, 2 * PART + 1] {
            let report = put(&client(&origin), &object(bytes)).expect("it is taken");
            assert_eq!(report.verified, Verified::None("not stated by the origin"), "{bytes}");
        }
    }
}

#[test]
fn an_origin_that_refuses_crc64_compares_crc32c() {
    for bytes in [1000, 2 * PART + 1] {
        let (origin, stored) = server(Crcs::OnlyCrc32c, etag);
        let client = client(&origin);
        for _ in 0..2 {
            let body = object(bytes);
            let report = put(&client, &body).expect("it is taken");
            assert_eq!(report.verified, Verified::Whole(Algorithm::Crc32c), "{bytes}");
            assert!(*stored.lock().expect("no panic in a test") == body, "{bytes}");
        }
        let refused = origin.asked().iter().filter(|asked| names_crc64(asked)).count();
        assert_eq!(refused, 1, "{bytes}: it is tried once");
    }
}
