//! Keys as the program finds them: from a role that is assumed, renewed while a transfer runs, refused with
//! the reasons.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::folder::Folder;
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY, bytes};
use crate::program::{flatout, run};
use crate::raw::{Answer, Asked, Raw, Then, right};

const OBJECT_BYTES: usize = 4 << 20;

/// Gives the keys of a role: the n-th answer has the token `tokenN`.
struct Sts {
    raw: Raw,
    asked: Arc<AtomicUsize>,
}

impl Sts {
    fn start() -> Sts {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let raw = Raw::start(move |_| {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let body = format!(
                "<R><A><Credentials><AccessKeyId>ASIAROLE</AccessKeyId><SecretAccessKey>SECRETKEYSECRETKEY</SecretAccessKey>\
                 <SessionToken>token{number}</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></A></R>"
            );
            Answer::new("200 OK", &[("Content-Length", &body.len().to_string())], body.as_bytes())
                .then(Then::Close)
        });
        Sts { raw, asked }
    }
}

/// A home with a profile `dev` that assumes a role, and a program that has it.
fn with_role(folder: &Folder, sts: &Sts, arguments: &[&str]) -> Command {
    let aws = folder.at(".aws");
    std::fs::create_dir_all(&aws).unwrap();
    std::fs::write(
        format!("{aws}/config"),
        "[profile dev]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n\
         [profile base]\naws_access_key_id = AKIABASE\naws_secret_access_key = SECRETKEYSECRETKEY\n\
         [profile out]\nsso_start_url = https://x\nsso_region = r\nsso_account_id = 1\nsso_role_name = r\n",
    )
    .unwrap();
    let mut command = flatout(arguments);
    command.env("HOME", folder.at("")).env("AWS_ENDPOINT_URL_STS", sts.raw.url(""));
    command
}

fn refusal(code: &str) -> Answer {
    let body = format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    Answer::new("400 Bad Request", &[("Content-Length", &body.len().to_string())], body.as_bytes())
}

/// Serves `token0` for a few requests, then the newer tokens only.
fn rotating(object: Vec<u8>, code: &'static str, tokens: Arc<Mutex<Vec<String>>>) -> Raw {
    Raw::start(move |asked: &Asked| {
        let token = asked.header("x-amz-security-token").unwrap_or("none").to_owned();
        let old = token == "token0" && asked.number >= 4;
        tokens.lock().unwrap().push(token);
        match old {
            true if asked.method() == "HEAD" => {
                Answer::new("400 Bad Request", &[("Content-Length", "0")], b"")
            }
            true => refusal(code),
            false => right(asked, &object, "\"v1\""),
        }
    })
}

#[test]
fn a_token_that_expires_on_the_way_is_renewed() {
    for code in ["ExpiredToken", "InvalidToken", "RequestExpired", "SecurityTokenExpired"] {
        let (folder, sts, tokens) = (Folder::new(), Sts::start(), Arc::new(Mutex::new(Vec::new())));
        let object = bytes(OBJECT_BYTES);
        let origin = rotating(object.clone(), code, tokens.clone());
        let target = folder.at("model");
        let mut arguments =
            vec!["cp", "s3://bucket/key", &target, "--part-size", "256KiB", "--parallel", "4"];
        let (url, profile) = (origin.url(""), ["--profile", "dev"]);
        arguments.extend(["--endpoint-url", url.trim_end_matches('/')]);
        arguments.extend(profile);
        let ended = run(&mut with_role(&folder, &sts, &arguments));
        assert_eq!(ended.code, Some(0), "{code}: {}", ended.stderr);
        assert!(std::fs::read(&target).unwrap() == object, "{code}: the bytes are right");
        assert_eq!(sts.asked.load(Ordering::SeqCst), 2, "{code}: the role is asked for twice");
        let tokens = tokens.lock().unwrap();
        assert!(tokens.iter().any(|token| token == "token1"), "{code}: {tokens:?}");
    }
}

#[test]
fn a_refusal_lists_who_was_asked() {
    let (folder, sts) = (Folder::new(), Sts::start());
    let denied = Raw::start(|_| {
        let body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>";
        Answer::new("403 Forbidden", &[("Content-Length", &body.len().to_string())], body)
    });
    let url = denied.url("");
    let endpoint = ["--endpoint-url", url.trim_end_matches('/')];
    for arguments in [&["cat", "s3://bucket/key"][..], &["ls", "s3://bucket/"], &["stat", "s3://bucket/key"]]
    {
        let arguments = [arguments, &endpoint].concat();
        run(&mut with_role(&folder, &sts, &arguments)).refused(
            5,
            &[
                "hint: the request was not signed: ",
                "environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set; ",
                "web identity: AWS_WEB_IDENTITY_TOKEN_FILE is not set; ",
                "profile default: it is not in ",
                "container: neither ",
                "instance metadata: AWS_EC2_METADATA_DISABLED is set",
            ],
        );
        let anonymous = [&arguments[..], &["--no-sign-request"]].concat();
        run(&mut with_role(&folder, &sts, &anonymous)).refused(5, &["not signed: --no-sign-request is on"]);
    }
    let arguments = [&["cat", "s3://bucket/key", "--profile", "out"][..], &endpoint].concat();
    run(&mut with_role(&folder, &sts, &arguments)).refused(
        5,
        &["there are no keys to sign with: profile out: there is no SSO login: run `aws sso login --profile out`"],
    );
    let arguments = [&["cat", "s3://bucket/key"][..], &endpoint].concat();
    run(with_role(&folder, &sts, &arguments).env("AWS_PROFILE", "deb"))
        .refused(5, &["profile deb: there is no such profile", "did you mean 'dev'?"]);
}

#[test]
fn a_refused_role_is_told_without_a_secret() {
    let folder = Folder::new();
    let sts = Sts {
        raw: Raw::start(|_| {
            let body = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>";
            Answer::new("403 Forbidden", &[("Content-Length", &body.len().to_string())], body)
                .then(Then::Close)
        }),
        asked: Arc::default(),
    };
    let arguments = ["cat", "s3://bucket/key", "--profile", "dev", "--endpoint-url", "http://127.0.0.1:1"];
    let ended = run(&mut with_role(&folder, &sts, &arguments));
    let ended = ended.refused(5, &["profile dev: STS refused (403 AccessDenied: not you)"]);
    assert!(!ended.stderr.contains("SECRETKEY") && !ended.stderr.contains("AKIABASE"), "{}", ended.stderr);
}

#[test]
fn a_process_that_fails_gives_no_secret_away() {
    let folder = Folder::new();
    let config = folder.at("config");
    let line =
        "sh -c 'echo no login for PASSWORDPASSWORD with SESSION0TOKENTOKEN >&2; exit 7' x PASSWORDPASSWORD";
    std::fs::write(&config, format!("[default]\ncredential_process = {line}\n")).unwrap();
    let mut command = flatout(&["cat", "s3://bucket/key", "--endpoint-url", "http://127.0.0.1:1"]);
    let ended = run(command.env("AWS_CONFIG_FILE", &config));
    let ended = ended.refused(
        5,
        &["profile default: credential_process: sh ended with code 7: no login for *** with ***"],
    );
    assert!(!ended.stderr.contains("PASSWORD") && !ended.stderr.contains("TOKENTOKEN"), "{}", ended.stderr);
}

#[test]
fn half_a_pair_of_aws_stopped_plain_http() {
    let buckets = crate::objects::Buckets::new(&[("bucket/key", b"bytes")]);
    let url = format!("{}/bucket/key", buckets.url());
    let ended = run(flatout(&["cat", &url]).env("AWS_ACCESS_KEY_ID", "AKIAHALF"));
    assert_eq!(ended.clean().text(), "bytes");
}

#[test]
fn a_profile_that_is_not_there_was_passed_over_without_a_word() {
    let buckets = Buckets::locked(&[("bucket/key", b"bytes")]);
    let (folder, url) = (Folder::new(), buckets.url());
    let cat = |variables: &[(&str, &str)], more: &[&str]| {
        let arguments = ["cat", "s3://bucket/key", "--endpoint-url", &url];
        let mut command = flatout(&[&arguments[..], more].concat());
        command.env("HOME", folder.at("")).env("AWS_ACCESS_KEY_ID", ACCESS_KEY);
        run(command.env("AWS_SECRET_ACCESS_KEY", SECRET_KEY).envs(variables.iter().copied()))
    };
    let says = "flatout: AWS_PROFILE: there is no profile 'nope', and the keys of AWS_ACCESS_KEY_ID are used without one\n";
    let read = cat(&[("AWS_PROFILE", "nope")], &[]);
    assert_eq!((read.code, read.text(), read.stderr.as_str()), (Some(0), "bytes", says));
    assert_eq!(cat(&[("AWS_PROFILE", "nope")], &["--quiet"]).clean().text(), "bytes");
    assert_eq!(cat(&[], &[]).clean().text(), "bytes");
    std::fs::create_dir(folder.at(".aws")).unwrap();
    std::fs::write(folder.at(".aws/config"), "[profile nope]\nregion = us-east-1\n").unwrap();
    assert_eq!(cat(&[("AWS_PROFILE", "nope")], &[]).clean().text(), "bytes");
}
