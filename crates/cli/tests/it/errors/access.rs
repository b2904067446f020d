//! What is not there, and who is not let in.

use super::snapshot::{Case, Snapshot};
use crate::objects::{ACCESS_KEY, Buckets};
use crate::raw::{Answer, Raw, Then};

pub fn all(snapshot: &mut Snapshot) {
    missing(snapshot);
    keys(snapshot);
    sources_of_keys(snapshot);
    refusals(snapshot);
}

/// An origin that answers everything so.
fn origin(status: &'static str, headers: &'static [(&'static str, &'static str)], body: &'static str) -> Raw {
    Raw::start(move |asked| {
        let length = body.len().to_string();
        let headers = [headers, &[("Content-Length", length.as_str())]].concat();
        let body = if asked.method() == "HEAD" { "" } else { body };
        Answer::new(status, &headers, body.as_bytes())
    })
}

fn missing(snapshot: &mut Snapshot) {
    snapshot.section("What is not there");
    let buckets = Buckets::new(&[("bucket/folder/key", b"bytes")]);
    let url = buckets.url();
    for line in [
        &["cp", "s3://nobucket/key", "x"][..],
        &["cp", "s3://bucket/nokey", "x"],
        &["stat", "s3://bucket/nokey"],
        &["stat", "s3://bucket/folder/"],
        &["stat", "s3://nobucket"],
        &["cat", "s3://bucket/folder/"],
        &["cat", "s3://bucket/*.bin"],
        &["cp", "s3://bucket/folder/", "x"],
        &["rm", "s3://bucket/folder/"],
        &["ls", "s3://nobucket/"],
        &["ls", "s3://bucket/nofolder/"],
        &["ls", "s3://bucket/*.bin"],
        &["cp", "-r", "s3://bucket/nofolder/", "x"],
        &["cp", "s3://bucket/nokey", "s3://bucket/new"],
        &["cp", "s3://bucket/folder/key", "s3://nobucket/new"],
        &["rm", "s3://bucket/nokey"],
        &["rm", "-r", "s3://bucket/nofolder/"],
        &["rm", "-r", "s3://nobucket/folder/"],
        &["rb", "s3://nobucket"],
        &["rb", "s3://bucket"],
        &["rb", "s3://bucket", "--force"],
        &["mb", "s3://bucket"],
        &["hash", "s3://bucket/folder/key"],
        &["cp", "s3://bucket/*.bin", "x"],
        &["cat", "s3://bucket/folder/key", "--range", "5-"],
        &["bench", "get", "s3://bucket/nokey", "--repeat", "1"],
        &["bench", "get", "-r", "s3://bucket/nofolder/", "--repeat", "1"],
        &["bench", "sweep", "s3://bucket/nokey", "--repeat", "1"],
    ] {
        snapshot.line(&[line, &["--endpoint-url", &url]].concat());
    }
    snapshot.line(&["cat", &format!("{url}/bucket/nokey")]);
    snapshot.run(Case::new(&["stat", "oss://bucket/nokey", "--oss-endpoint", &url]).oss_keys());
}

fn keys(snapshot: &mut Snapshot) {
    snapshot.section("Keys");
    let buckets = Buckets::locked(&[("bucket/key", b"bytes")]);
    let url = buckets.url();
    let line = ["cat", "s3://bucket/key", "--endpoint-url", &url];
    let case = || Case::new(&line);
    snapshot.run(case());
    snapshot.run(case().env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", "wrongwrongwrong"));
    snapshot
        .run(case().env("AWS_ACCESS_KEY_ID", "AKIDNOBODY").env("AWS_SECRET_ACCESS_KEY", "wrongwrongwrong"));
    snapshot.run(case().env("AWS_ACCESS_KEY_ID", ACCESS_KEY));
    snapshot.run(Case::new(&[&line[..], &["--no-sign-request"]].concat()).keys());
    snapshot.run(Case::new(&["ls", "s3://bucket/", "--endpoint-url", &url]));
    snapshot.run(Case::new(&["stat", "s3://bucket/key", "--endpoint-url", &url]));
    snapshot.run(Case::new(&["cat", "oss://bucket/key", "--oss-endpoint", &url]));
    let oss = Case::new(&["cat", "oss://bucket/key", "--oss-endpoint", &url]);
    snapshot.run(oss.env("OSS_ACCESS_KEY_ID", "LTAINOBODY").env("OSS_ACCESS_KEY_SECRET", "wrongwrongwrong"));
    snapshot.line(&["cat", &format!("{url}/bucket/key")]);
}

/// Profiles, processes, roles: none of them may give a secret away.
fn sources_of_keys(snapshot: &mut Snapshot) {
    snapshot.section("Where keys come from");
    let home = tempfile::tempdir().unwrap();
    let aws = home.path().join(".aws");
    std::fs::create_dir(&aws).unwrap();
    std::fs::write(
        aws.join("config"),
        "[profile process]\ncredential_process = sh -c 'echo no login for PASSWORDPASSWORD >&2; exit 7' x PASSWORDPASSWORD\n\
         [profile nonsense]\ncredential_process = sh -c 'echo PASSWORDPASSWORD'\n\
         [profile noprogram]\ncredential_process = /nowhere/keys\n\
         [profile sso]\nsso_start_url = https://x\nsso_region = r\nsso_account_id = 1\nsso_role_name = r\n\
         [profile role]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = base\n\
         [profile loose]\nrole_arn = arn:aws:iam::1:role/r\nsource_profile = nobody\n\
         [profile base]\naws_access_key_id = AKIABASE\naws_secret_access_key = SECRETKEYSECRETKEY\n",
    )
    .unwrap();
    let sts = origin(
        "403 Forbidden",
        &[],
        "<ErrorResponse><Error><Code>AccessDenied</Code><Message>not you</Message></Error></ErrorResponse>",
    );
    let line = ["cat", "s3://bucket/key", "--endpoint-url", "http://127.0.0.1:1", "--retries", "0"];
    for profile in ["process", "nonsense", "noprogram", "sso", "role", "loose"] {
        let case = Case::new(&[&line[..], &["--profile", profile]].concat()).home(home.path());
        snapshot.run(case.env("AWS_ENDPOINT_URL_STS", &sts.url("")));
    }
    let buckets = Buckets::locked(&[("bucket/key", b"bytes")]);
    let line = ["cat", "s3://bucket/key", "--endpoint-url", &buckets.url()];
    snapshot.run(Case::new(&line).home(home.path()).env("AWS_PROFILE", "rolle"));
    snapshot.run(
        Case::new(&line)
            .env("AWS_WEB_IDENTITY_TOKEN_FILE", "/nowhere/token")
            .env("AWS_ROLE_ARN", "arn:aws:iam::1:role/r"),
    );
}

fn refusals(snapshot: &mut Snapshot) {
    snapshot.section("What S3 and OSS refuse");
    for (status, headers, body) in [
        (
            "403 Forbidden",
            &[][..],
            "<Error><Code>AccessDenied</Code><Message>Access Denied</Message><RequestId>5C3D9175B6FC2012</RequestId></Error>",
        ),
        (
            "400 Bad Request",
            &[],
            "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>",
        ),
        (
            "403 Forbidden",
            &[("Date", "Sat, 01 Jan 2000 00:00:00 GMT")],
            "<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the current time is too large.</Message></Error>",
        ),
        (
            "403 Forbidden",
            &[],
            "<Error><Code>InvalidObjectState</Code><Message>The operation is not valid for the object's storage class</Message></Error>",
        ),
        (
            "301 Moved Permanently",
            &[],
            "<Error><Code>PermanentRedirect</Code><Message>The bucket you are attempting to access must be addressed using the specified endpoint.</Message></Error>",
        ),
        (
            "400 Bad Request",
            &[("x-amz-bucket-region", "eu-central-1")],
            "<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region is wrong; expecting 'eu-central-1'</Message><Region>eu-central-1</Region></Error>",
        ),
        (
            "400 Bad Request",
            &[],
            "<Error><Code>InvalidBucketName</Code><Message>The specified bucket is not valid.</Message></Error>",
        ),
        (
            "503 Slow Down",
            &[],
            "<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>",
        ),
        (
            "500 Internal Server Error",
            &[],
            "<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>",
        ),
        ("418 I'm a teapot", &[], "<html>tea</html>"),
    ] {
        let raw = origin(status, headers, body);
        snapshot.text += &format!("\n({status}: {})\n", code(body));
        let url = format!("http://{}", raw.address);
        snapshot.run(Case::new(&["cat", "s3://bucket/key", "--endpoint-url", &url, "--retries", "0"]).keys());
    }
    for (status, body) in [
        (
            "403 Forbidden",
            "<Error><Code>AccessDenied</Code><Message>The bucket you access does not belong to you.</Message><RequestId>5C3D9175B6FC2012</RequestId><EC>0003-00000001</EC></Error>",
        ),
        (
            "403 Forbidden",
            "<Error><Code>AccessDenied</Code><Message>The bucket must be addressed using the specified endpoint.</Message><Endpoint>oss-cn-beijing.aliyuncs.com</Endpoint><EC>0003-00001403</EC></Error>",
        ),
        (
            "403 Forbidden",
            "<Error><Code>InvalidAccessKeyId</Code><Message>The OSS Access Key Id you provided does not exist in our records.</Message></Error>",
        ),
        (
            "403 Forbidden",
            "<Error><Code>SecurityTokenExpired</Code><Message>The security token you provided has expired.</Message></Error>",
        ),
        (
            "403 Forbidden",
            "<Error><Code>SecondLevelDomainForbidden</Code><Message>Please use virtual hosted style to access.</Message></Error>",
        ),
        (
            "503 Service Unavailable",
            "<Error><Code>DownloadTrafficRateLimitExceeded</Code><Message>too much</Message></Error>",
        ),
    ] {
        let raw = origin(status, &[], body);
        snapshot.text += &format!("\n({status}: {})\n", code(body));
        let endpoint = raw.address.to_string();
        snapshot.run(
            Case::new(&["cat", "oss://bucket/key", "--oss-endpoint", &endpoint, "--retries", "0"]).oss_keys(),
        );
    }
    let quiet =
        Raw::start(|_| Answer::new("403 Forbidden", &[("Content-Length", "0")], b"").then(Then::Close));
    snapshot.line(&["cat", &quiet.url("file"), "--retries", "0"]);
    let asks = origin("401 Unauthorized", &[("WWW-Authenticate", "Basic")], "who?");
    snapshot.line(&["cat", &asks.url("file"), "--retries", "0"]);
}

fn code(body: &str) -> &str {
    body.split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map_or("no document", |(code, _)| code)
}
