//! Presigned URLs, read back by plain http from an origin that asks for keys and whose checks were written by
//! others.

use std::sync::Arc;

use flatout_engine::credentials::Fixed;
use flatout_engine::{AllocatedBuffer, Client, Config, Error, ErrorKind, Get, Landing};
use flatout_server::{Options, Origin, Store, synthetic_bytes};
use flatout_wire::location::Location;
use flatout_wire::sign::Credentials;

const KEYS: (&str, &str) = ("AKIDEXAMPLEEXAMPLE", "secret/+=key");
const KEY: &str = "folder/a b+ü%1";
const SIZE: usize = 3_000_000;

fn origin() -> Origin {
    let store = Store::Synthetic(vec![("bucket".into(), KEY.into(), SIZE as u64)], vec![]);
    let auth = Some((KEYS.0.to_owned(), KEYS.1.to_owned()));
    Origin::start(Options { auth, ..Options::new(store) }).expect("a free port")
}

fn config(origin: &Origin, secret_key: &str, token: Option<&str>) -> Config {
    let keys = Arc::new(Fixed(Credentials {
        access_key: KEYS.0.into(),
        secret_key: secret_key.into(),
        session_token: token.map(String::from),
    }));
    let mut config = Config { aws_credentials: keys.clone(), oss_credentials: keys, ..Config::default() };
    config.settings.endpoint_url = Some(origin.url());
    (config.settings.oss_endpoint, config.settings.oss_region) =
        (Some(origin.url()), Some("cn-hangzhou".into()));
    (config.settings.part_bytes, config.settings.retries) = (Some(1 << 20), 0);
    config
}

fn object(dialect: &str) -> Location {
    Location::parse(&format!("{dialect}://bucket/{KEY}")).expect("an object")
}

fn presigned(config: Config, dialect: &str, expires_s: u64) -> Result<String, Error> {
    Client::new(config).expect("good settings").presign(&object(dialect), expires_s)
}

/// By somebody who has no keys.
fn read(url: &str) -> Result<(), Error> {
    let mut config = Config::default();
    (config.settings.part_bytes, config.settings.retries) = (Some(1 << 20), 0);
    let port = url.split([':', '/']).nth(4).expect("a port");
    config.settings.resolve = vec![format!("bucket.localhost:{port}:127.0.0.1")];
    let (client, made) = (Client::new(config).expect("good settings"), AllocatedBuffer::new());
    let location = Location::parse(url).expect("a URL");
    client.get(Get::new(location, Landing::Allocated(made.clone())))?.wait()?;
    let mut expected = vec![0; SIZE];
    synthetic_bytes("bucket", KEY, 0..SIZE as u64, &mut expected);
    assert!(made.take().expect("it is whole").as_slice() == expected, "other bytes");
    Ok(())
}

/// The ways in which a URL is signed, and what it has to name.
const WAYS: [(&str, &str, &[&str]); 3] = [
    ("s3", "v4", &["X-Amz-Algorithm=AWS4-HMAC-SHA256", "X-Amz-SignedHeaders=host", "X-Amz-Signature="]),
    ("oss", "v4", &["x-oss-signature-version=OSS4-HMAC-SHA256", "x-oss-credential=", "x-oss-signature="]),
    ("oss", "v1", &["Expires=", "OSSAccessKeyId=", "Signature="]),
];

#[test]
fn whoever_has_the_url_reads_the_object() {
    let origin = origin();
    for (dialect, signature, names) in WAYS {
        let sign = |secret_key: &str| {
            let mut config = config(&origin, secret_key, None);
            config.settings.oss_signature = signature.into();
            presigned(config, dialect, 60).expect("a URL")
        };
        let url = sign(KEYS.1);
        for name in names {
            assert!(url.contains(name), "{url} lacks {name}");
        }
        read(&url).unwrap_or_else(|error| panic!("{dialect} {signature}: {error}"));
        let (bare, _) = url.split_once('?').expect("a query");
        for refused in [bare, &sign("another")] {
            let error = read(refused).expect_err("a refusal");
            assert_eq!(error.kind(), ErrorKind::Denied, "{dialect} {signature}: {error}");
            let secret = refused.split_once("ignature=").map_or("none", |(_, signature)| &signature[..8]);
            assert!(!error.to_string().contains(secret), "{error}");
        }
    }
}

#[test]
fn a_bucket_in_the_hosts_name_is_signed_there() {
    let origin = origin();
    let mut config = config(&origin, KEYS.1, None);
    config.settings.endpoint_url = Some(origin.url().replace("127.0.0.1", "localhost"));
    config.settings.addressing = "virtual".into();
    let url = presigned(config, "s3", 60).expect("a URL");
    assert!(url.starts_with("http://bucket.localhost:") && !url.contains("/bucket/"), "{url}");
    read(&url).expect("the object arrives");
}

#[test]
fn a_token_and_the_payer_are_part_of_the_url() {
    let origin = origin();
    let tokens =
        ["X-Amz-Security-Token=to%2Fken", "x-oss-security-token=to%2Fken", "security-token=to%2Fken"];
    for ((dialect, signature, _), token) in WAYS.into_iter().zip(tokens) {
        let mut config = config(&origin, KEYS.1, Some("to/ken"));
        config.settings.oss_signature = signature.into();
        config.settings.request_payer = true;
        let url = presigned(config, dialect, 60).expect("a URL");
        let payer = if dialect == "s3" { "x-amz-request-payer" } else { "x-oss-request-payer" };
        assert!(url.contains(token) && url.contains(&format!("{payer}=requester")), "{url}");
        // The origin knows no tokens of its own; what it checks is that all of this is signed.
        read(&url).unwrap_or_else(|error| panic!("{dialect} {signature}: {error}"));
    }
}

#[test]
fn a_time_that_is_out_of_bounds_is_refused_before_it_is_signed() {
    let origin = origin();
    const WEEK_S: u64 = 604_800;
    for (dialect, signature, _) in WAYS {
        let kind = |expires_s| {
            let mut config = config(&origin, KEYS.1, None);
            config.settings.oss_signature = signature.into();
            presigned(config, dialect, expires_s).map_err(|error| error.kind()).err()
        };
        let most_s = if signature == "v1" { u64::from(u32::MAX) } else { WEEK_S };
        assert_eq!([kind(1), kind(most_s)], [None, None], "{dialect} {signature}");
        for expires_s in [0, most_s + 1, u64::MAX] {
            assert_eq!(kind(expires_s), Some(ErrorKind::Usage), "{dialect} {signature} {expires_s}");
        }
    }
}

#[test]
fn without_keys_and_for_what_is_no_object_there_is_no_url() {
    let origin = origin();
    for dialect in ["s3", "oss"] {
        let mut config = config(&origin, KEYS.1, None);
        config.settings.no_sign_request = true;
        let error = presigned(config, dialect, 60).expect_err("no keys");
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(error.to_string().contains("no keys to sign with"), "{error}");
        assert!(error.hint().expect("why").to_string().contains("no-sign-request"), "{error:?}");
    }
    let client = Client::new(config(&origin, KEYS.1, None)).expect("good settings");
    let kind = |url: &str| {
        let location = Location::parse(url).expect("a location");
        client.presign(&location, 60).map_err(|error| error.kind())
    };
    assert_eq!(kind("s3://bucket"), Err(ErrorKind::Usage));
    assert_eq!(kind("http://host/object"), Err(ErrorKind::Unsupported));
}
