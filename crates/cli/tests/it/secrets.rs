//! No key, token, password or signature is in anything that a run puts out.

use std::process::Command;

use crate::folder::Folder;
use crate::objects::Buckets;
use crate::program::{flatout, run};

const SECRETS: [&str; 6] = [
    "SECRETKEYSECRETKEY",
    "SESSIONTOKENTOKEN",
    "PASSWORDPASSWORD",
    "SIGNATURESIGNATURE",
    "CREDENTIALCREDENTIAL",
    "TOKENUSERTOKENUSER",
];
const ACCESS: &str = "AKIDSECRETIVEACCESS";

/// Neither stream holds a secret, nor more of the access key than its last four characters.
#[track_caller]
fn check(command: &mut Command) {
    let ended = run(command);
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), ended.stderr);
    assert!(!said.is_empty(), "{command:?} said nothing");
    for secret in SECRETS.iter().chain([&ACCESS]) {
        assert!(!said.contains(secret), "{command:?} gave away {secret}:\n{said}");
    }
}

fn keys(command: &mut Command) -> &mut Command {
    command
        .env("AWS_ACCESS_KEY_ID", ACCESS)
        .env("AWS_SECRET_ACCESS_KEY", SECRETS[0])
        .env("AWS_SESSION_TOKEN", SECRETS[1])
}

/// Every command that takes a URL, as text and as JSON.
fn check_everywhere(url: &str, endpoint: &str) {
    let folder = Folder::new();
    let target = folder.at("model");
    let sweep = ["bench", "sweep", url, "--parallel", "1", "--part-size", "1MiB", "--repeat", "1"];
    for json in [&["--json"][..], &[]] {
        for arguments in [
            &["cp", url, &target][..],
            &["cat", url],
            &["ls", url],
            &["stat", url],
            &["bench", "get", url],
            &sweep,
            &["bench", "peer", url],
            &["doctor", url],
        ] {
            let more = ["--endpoint-url", endpoint, "--retries", "0"];
            check(keys(&mut flatout(&[arguments, &more[..], json].concat())));
        }
    }
}

#[test]
fn urls_with_passwords_and_signatures() {
    let query = "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=CREDENTIALCREDENTIAL&X-Amz-Date=20261121T000000Z\
                 &X-Amz-Security-Token=SESSIONTOKENTOKEN&X-Amz-Signature=SIGNATURESIGNATURE";
    let closed = "127.0.0.1:1";
    let buckets = Buckets::new(&[("bucket/key", b"bytes")]);
    let endpoint = buckets.url();
    let host = endpoint.trim_start_matches("http://");
    for url in [
        format!("http://user:PASSWORDPASSWORD@{host}/bucket/key"),
        format!("http://TOKENUSERTOKENUSER@{host}/bucket/no"),
        format!("http://{host}/bucket/no?{query}"),
        format!("http://user:PASSWORDPASSWORD@{closed}/bucket/key?{query}"),
        format!("https://user:PASSWORDPASSWORD@{host}/bucket/key?{query}"),
        format!("https://{host}/bucket/key?{query}"),
        format!("ftp://user:PASSWORDPASSWORD@{host}/bucket/key?{query}"),
        format!("http:/user:PASSWORDPASSWORD@{host}/bucket/key?{query}"),
        format!("user:PASSWORDPASSWORD@{host}/bucket/key?{query}"),
    ] {
        check_everywhere(&url, &endpoint);
    }
}

#[test]
fn keys_of_the_environment() {
    let locked = Buckets::locked(&[("bucket/key", b"bytes")]);
    check_everywhere("s3://bucket/key", &locked.url());
    let open = Buckets::new(&[("bucket/key", b"bytes")]);
    for url in ["s3://bucket/no", "s3://nobucket/key"] {
        check_everywhere(url, &open.url());
    }
}

#[test]
fn urls_of_providers() {
    let folder = Folder::new();
    std::fs::write(
        folder.at("config"),
        "[profile dev]\nrole_arn = r\nsource_profile = base\n[profile base]\naws_access_key_id = AKIDSECRETIVEACCESS\n\
         aws_secret_access_key = SECRETKEYSECRETKEY\n",
    )
    .unwrap();
    let aws: &[&[(&str, &str)]] = &[
        &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://user:PASSWORDPASSWORD@127.0.0.1:1/x")],
        &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://user:PASSWORD/PASSWORDPASSWORD@127.0.0.1:1/x")],
        &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1?token=TOKENUSERTOKENUSER")],
        &[
            ("AWS_EC2_METADATA_DISABLED", "false"),
            ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://user:PASSWORDPASSWORD@127.0.0.1:1"),
        ],
        &[
            ("AWS_PROFILE", "dev"),
            ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
            ("AWS_ENDPOINT_URL_STS", "http://user:PASSWORDPASSWORD@127.0.0.1:1"),
        ],
    ];
    let oss: &[&[(&str, &str)]] = &[
        &[("ALIBABA_CLOUD_CREDENTIALS_URI", "http://user:PASSWORDPASSWORD@127.0.0.1:1/x")],
        &[("ALIBABA_CLOUD_CREDENTIALS_URI", "http://127.0.0.1:1?token=TOKENUSERTOKENUSER")],
        &[
            ("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "false"),
            ("ALIBABA_CLOUD_ECS_METADATA_SERVICE_ENDPOINT", "http://user:PASSWORDPASSWORD@127.0.0.1:1"),
        ],
        &[("OSS_ACCESS_KEY_ID", ACCESS), ("OSS_ACCESS_KEY_SECRET", SECRETS[0])],
        &[("OSS_ACCESS_KEY_SECRET", SECRETS[0])],
    ];
    for (url, tables) in [("s3://bucket/key", aws), ("oss://bucket/key", oss)] {
        for variables in tables {
            for arguments in [
                &["config", "show"][..],
                &["config", "show", "--json"],
                &["stat", url],
                &["doctor", url],
                &["doctor", "--json"],
            ] {
                let mut command = flatout(arguments);
                command.env("AWS_CONFIG_FILE", folder.at("config")).env("HOME", folder.path());
                command.env("FLATOUT_ENDPOINT_URL", "http://127.0.0.1:1").env("FLATOUT_RETRIES", "0");
                check(command.envs(variables.iter().copied()));
            }
        }
    }
}

#[test]
fn folders_and_presigned_urls_of_oss() {
    let folder = Folder::new();
    let target = folder.at("models/");
    let locked = Buckets::locked(&[("bucket/a/1", b"bytes"), ("bucket/a/2", b"bytes")]);
    let endpoint = locked.url();
    for url in ["s3://bucket/a/", "oss://bucket/a/"] {
        let arguments = ["cp", "-r", url, &target, "--endpoint-url", &endpoint, "--retries", "0"];
        let mut command = flatout(&arguments);
        check(keys(&mut command).env("OSS_ACCESS_KEY_ID", ACCESS).env("OSS_ACCESS_KEY_SECRET", SECRETS[0]));
    }
    let query = "x-oss-signature-version=OSS4-HMAC-SHA256&x-oss-credential=CREDENTIALCREDENTIAL\
                 &x-oss-security-token=SESSIONTOKENTOKEN&x-oss-signature=SIGNATURESIGNATURE";
    let v1 = "OSSAccessKeyId=AKIDSECRETIVEACCESS&Expires=1&Signature=SIGNATURESIGNATURE";
    for query in [query, v1] {
        check_everywhere(&format!("{endpoint}/bucket/no?{query}"), &endpoint);
    }
}

#[test]
fn settings_that_are_shown() {
    for json in [&["--json"][..], &[]] {
        let endpoint = ["--endpoint-url", "http://user:PASSWORD/PASSWORDPASSWORD@127.0.0.1:1"];
        let proxy = ["--proxy", "http://TOKENUSERTOKENUSER@proxy:1"];
        for command in [&["config", "show"][..], &["doctor"]] {
            check(keys(&mut flatout(&[command, &proxy, &endpoint[..], json].concat())));
            check(keys(&mut flatout(&[command, &proxy, json].concat())));
        }
        for command in [&["config", "show"][..], &["doctor"], &["version", "--verbose"]] {
            let mut proxies = flatout(&[command, json].concat());
            let proxies = keys(&mut proxies)
                .env("HTTP_PROXY", "http://user:PASSWORDPASSWORD@proxy:1")
                .env("ALL_PROXY", "user:PASSWORDPASSWORD@proxy:1")
                .env("OSS_ENDPOINT", "user:PASSWORDPASSWORD@oss")
                .env("AWS_ENDPOINT_URL", "http://h/?X-Amz-Signature=SIGNATURESIGNATURE");
            check(proxies);
        }
    }
}

#[test]
fn settings_that_are_refused() {
    check(flatout(&["stat", "s3://b/k"]).env("AWS_SECRET_ACCESS_KEY", SECRETS[0]));
    check(
        flatout(&["stat", "s3://b/k"])
            .env("AWS_ACCESS_KEY_ID", ACCESS)
            .env("AWS_SECRET_ACCESS_KEY", "SECRETKEYSECRETKEY\n"),
    );
    check(&mut flatout(&["stat", "s3://b/k", "--endpoint-url", "http://user:PASSWORDPASSWORD@127.0.0.1:1"]));
    check(keys(&mut flatout(&[
        "stat",
        "s3://b/k",
        "--endpoint-url",
        "http://127.0.0.1:1",
        "--retries",
        "0",
    ])));
    check(&mut flatout(&[
        "serve",
        "--memory",
        "--access-key",
        ACCESS,
        "--secret-key",
        SECRETS[0],
        "--listen",
        "192.0.2.1:1",
    ]));
}
