//! `flatout serve` with curl as its client, whose signature and requests are not ours.

use std::process::Command;

use crate::bytes;
use crate::curl::Curl;
use crate::flatout;
use crate::guard::Guard;

pub const ACCESS_KEY: &str = "CURLTESTKEY";
pub const SECRET_KEY: &str = "another-secret/+=";

/// The program as an origin.
pub struct Served {
    pub curl: Curl,
    guard: Guard,
}

impl Served {
    /// Lets in who has the key.
    pub fn locked(store: &[&str]) -> Served {
        Served::start(&[store, &["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY]].concat())
    }

    pub fn start(arguments: &[&str]) -> Served {
        let program = [env!("CARGO_BIN_EXE_flatout"), "serve", "--listen", "127.0.0.1:0"];
        let mut guard = Guard::start(tempfile::tempdir().unwrap(), &[&program, arguments].concat(), &[]);
        let url = guard.wait_for("flatout serve", |guard| {
            let log = guard.log();
            let line = log.lines().find_map(|line| line.strip_prefix("listening on "))?;
            log.ends_with('\n').then(|| line.to_owned())
        });
        Served { curl: Curl { url, keys: Some((ACCESS_KEY.to_owned(), SECRET_KEY.to_owned())) }, guard }
    }

    fn with_keys(&self, keys: Option<(&str, &str)>) -> Curl {
        Curl {
            keys: keys.map(|(access, secret)| (access.to_owned(), secret.to_owned())),
            ..self.curl.clone()
        }
    }

    /// The program with this origin and its keys.
    pub fn flatout(&self, arguments: &[&str]) -> Command {
        let mut command = flatout(&[arguments, &["--endpoint-url", &self.curl.url]].concat());
        command.envs([("AWS_ACCESS_KEY_ID", ACCESS_KEY), ("AWS_SECRET_ACCESS_KEY", SECRET_KEY)]);
        command
    }
}

/// Puts, gets, lists and deletes: the same over every store that keeps what it is given.
fn check_store(store: &[&str]) {
    let served = Served::locked(store);
    let ask = |method: &str, target: &str, headers: &[&str], body: Option<&[u8]>| {
        served.curl.ask(method, target, headers, body)
    };
    let body = bytes(300_000);
    ask("PUT", "/bucket", &[], None).is(200);
    ask("PUT", "/bucket/folder/model", &["x-amz-meta-colour: blue"], Some(&body)).is(200);
    assert!(ask("GET", "/bucket/folder/model", &[], None).is(200).body == body, "other bytes");

    let head = ask("HEAD", "/bucket/folder/model", &[], None).is(200);
    assert_eq!(head.header("content-length").as_deref(), Some("300000"));
    let etag = head.header("etag").expect("an etag");

    let range = ask("GET", "/bucket/folder/model", &["Range: bytes=100-199"], None).is(206);
    assert!(range.body == body[100..200], "other bytes");
    assert_eq!(range.header("content-range").as_deref(), Some("bytes 100-199/300000"));
    ask("GET", "/bucket/folder/model", &["Range: bytes=300000-"], None).is(416);
    ask("GET", "/bucket/folder/model", &[&format!("If-Match: {etag}")], None).is(200);
    ask("GET", "/bucket/folder/model", &["If-Match: \"other\""], None).is(412);

    let page = ask("GET", "/bucket?list-type=2&prefix=folder%2F", &[], None).is(200);
    assert_eq!((page.element("Key").as_str(), page.element("Size").as_str()), ("folder/model", "300000"));
    let page = ask("GET", "/bucket?delimiter=%2F&list-type=2", &[], None).is(200);
    assert!(
        page.text().contains("<CommonPrefixes><Prefix>folder/</Prefix></CommonPrefixes>"),
        "{}",
        page.text()
    );
    assert!(ask("GET", "/", &[], None).is(200).text().contains("<Name>bucket</Name>"));

    let first = bytes(5 << 20);
    let parts = [(&first[..], String::new()), (&body[..], String::new())];
    served.curl.put_parts("bucket", "parts", &[], &parts);
    let whole = ask("GET", "/bucket/parts", &[], None).is(200).body;
    assert!(whole == [parts[0].0, parts[1].0].concat(), "other bytes");

    ask("DELETE", "/bucket/folder/model", &[], None).is(204);
    assert_eq!(ask("GET", "/bucket/folder/model", &[], None).is(404).element("Code"), "NoSuchKey");
    assert_eq!(ask("GET", "/nobucket/x", &[], None).is(404).element("Code"), "NoSuchBucket");
}

#[test]
fn memory_keeps_what_it_is_given() {
    check_store(&["--memory"]);
}

#[test]
fn a_folder_keeps_what_it_is_given() {
    let folder = tempfile::tempdir().unwrap();
    check_store(&["--root", folder.path().to_str().unwrap()]);
    assert_eq!(std::fs::metadata(folder.path().join("bucket/parts")).unwrap().len(), (5 << 20) + 300_000);
}

#[test]
fn files_of_a_folder_are_objects() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(folder.path().join("bucket/a b")).unwrap();
    std::fs::write(folder.path().join("bucket/a b/ü"), b"bytes").unwrap();
    let served = Served::locked(&["--root", folder.path().to_str().unwrap()]);
    assert_eq!(served.curl.ask("GET", "/bucket/a%20b/%C3%BC", &[], None).is(200).body, b"bytes");
}

#[test]
fn only_the_right_keys_get_in() {
    let served = Served::locked(&["--synthetic", "bucket/model=1MiB"]);
    let code = |keys: Option<(&str, &str)>| {
        served.with_keys(keys).ask("GET", "/bucket/model", &[], None).is(403).element("Code")
    };
    assert_eq!(code(Some((ACCESS_KEY, "wrong"))), "SignatureDoesNotMatch");
    assert_eq!(code(Some(("NOBODY", SECRET_KEY))), "InvalidAccessKeyId");
    assert_eq!(code(None), "AccessDenied");
    assert_eq!(served.curl.ask("GET", "/bucket/model", &[], None).is(200).body.len(), 1 << 20);
    assert!(!served.guard.log().contains(SECRET_KEY));
}

#[test]
fn without_keys_a_url_is_a_url() {
    let served = Served::start(&["--synthetic", "bucket/model=1MiB", "--no-auth"]);
    let whole = served.with_keys(None).ask("GET", "/bucket/model", &[], None).is(200).body;
    let piece =
        served.with_keys(None).ask("GET", "/bucket/model", &["Range: bytes=65530-65545"], None).is(206).body;
    assert_eq!(whole.len(), 1 << 20);
    assert!(piece == whole[65_530..=65_545], "a range is not what the whole has there");
    served.with_keys(Some(("ANYBODY", "anything"))).ask("HEAD", "/bucket/model", &[], None).is(200);
}

#[test]
fn a_sink_remembers_all_but_the_bytes() {
    let served = Served::locked(&["--memory", "--sink"]);
    served.curl.ask("PUT", "/bucket", &[], None);
    served.curl.put("bucket", "model", &bytes(100_000), &[]);
    let refused = served.curl.ask("GET", "/bucket/model", &[], None).is(501);
    assert_eq!(refused.element("Code"), "NotImplemented");
    served.curl.ask("DELETE", "/bucket/model", &[], None).is(204);
    served.curl.ask("GET", "/bucket/model", &[], None).is(404);
}
