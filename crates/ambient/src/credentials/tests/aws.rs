//! AWS: environment, web identity, profiles, SSO, processes, containers, instances.

use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

#[track_caller]
fn aws(flags: &[(&str, &str)], table: &[(&str, &str)], expected: &str) {
    check(Cloud::Aws, flags, table, expected);
}

fn sts_answer(access: &str, ends: &str) -> String {
    let keys = match access {
        "" => String::new(),
        access => format!("<AccessKeyId>{access}</AccessKeyId>"),
    };
    format!(
        "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult><Credentials>{keys}\
         <SecretAccessKey>s3cr3tkey</SecretAccessKey><SessionToken>t0kent0ken</SessionToken>\
         <Expiration>{ends}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )
}

/// An STS that gives the keys of a role under the name of the action and of who asked.
fn sts() -> Service {
    Service::start(|asked| {
        let action = asked.field("Action").unwrap();
        let by = match asked.header("authorization") {
            None => "nobody".to_owned(),
            Some(signed) => signed.split(['=', '/']).nth(1).unwrap().to_owned(),
        };
        let role = asked.field("RoleArn").unwrap();
        let role = role.rsplit('/').next().unwrap();
        ServiceReply::This(200, sts_answer(&format!("{action}-{role}-by-{by}"), &within(3_600)))
    })
}

#[test]
fn the_environment_comes_first() {
    let pair = [("AWS_ACCESS_KEY_ID", "AKIA"), ("AWS_SECRET_ACCESS_KEY", "s3cr3tkey")];
    aws(&[], &pair, "AKIA no token stays");
    aws(&[], &[pair[0], pair[1], ("AWS_SESSION_TOKEN", "t0kent0ken")], "AKIA token stays");
    let refused = ask(Cloud::Aws, &[], &[("HOME", "/nowhere")]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set; \
         web identity: AWS_WEB_IDENTITY_TOKEN_FILE is not set; \
         profile default: it is not in /nowhere/.aws/config and /nowhere/.aws/credentials; \
         container: neither AWS_CONTAINER_CREDENTIALS_RELATIVE_URI nor AWS_CONTAINER_CREDENTIALS_FULL_URI is set; \
         instance metadata: AWS_EC2_METADATA_DISABLED is set"
    );
    assert!(refused.0.iter().all(|tried| !tried.failed));
    aws(&[("no-sign-request", "true")], &pair, "no-sign-request is on");
}

#[test]
fn profiles_with_keys() {
    let home = home(&[
        (
            ".aws/credentials",
            "[default]\naws_access_key_id = AKIA\naws_secret_access_key = s3cr3tkey\n\
            [token]\naws_access_key_id=ASIA\naws_secret_access_key=s3cr3tkey\naws_session_token=t0kent0ken\n\
            [half]\naws_access_key_id=AKIA\n[oddtoken]\naws_access_key_id=AKIA\naws_secret_access_key=s3cr3tkey\naws_session_token=t0kent0ken x\n\
            [spaced]\naws_access_key_id=AKIA\naws_secret_access_key=s3cr3tkey x\n",
        ),
        (".aws/config", "[default]\nregion=x\n[profile empty]\nregion=x\n[profile other]\nregion=y\n"),
    ]);
    let home = ("HOME", shown(home.path()));
    let keys = [("AWS_ACCESS_KEY_ID", "AKIAENV"), ("AWS_SECRET_ACCESS_KEY", "s3cr3tkey")];
    aws(&[], &[home], "AKIA no token stays");
    aws(&[], &[home, ("AWS_PROFILE", "token")], "ASIA token stays");
    aws(
        &[],
        &[home, ("AWS_PROFILE", "half")],
        "failed profile half: it has aws_access_key_id but no aws_secret",
    );
    aws(
        &[],
        &[home, ("AWS_PROFILE", "spaced")],
        "failed profile spaced: in it the secret key holds white space",
    );
    aws(
        &[],
        &[home, ("AWS_PROFILE", "oddtoken")],
        "failed profile oddtoken: in it the token holds white space",
    );
    aws(&[], &[home, ("AWS_PROFILE", "tokens")], "did you mean 'token'?");
    aws(&[], &[home, ("AWS_PROFILE", "other")], "nothing instance metadata: AWS_EC2_METADATA_DISABLED");
    // The environment is stronger than a profile of the environment, and weaker than that of a flag.
    aws(&[], &[home, keys[0], keys[1], ("AWS_PROFILE", "token")], "AKIAENV");
    aws(&[("profile", "token")], &[home, keys[0], keys[1]], "ASIA token stays");
    let config = format!("{}/.aws/elsewhere", home.1);
    std::fs::write(
        &config,
        "[profile there]\naws_access_key_id=AKIATHERE\naws_secret_access_key=s3cr3tkey\n",
    )
    .unwrap();
    aws(&[("profile", "there")], &[home, ("AWS_CONFIG_FILE", &config)], "AKIATHERE");
    aws(&[("profile", "there")], &[home, ("AWS_CONFIG_FILE", "~/.aws/elsewhere")], "AKIATHERE");
    std::fs::write(&config, "garbage p4ssw0rd").unwrap();
    aws(
        &[],
        &[home, ("AWS_SHARED_CREDENTIALS_FILE", &config)],
        "line 1: a setting stands before any [section]",
    );
    aws(&[], &[home, ("AWS_SHARED_CREDENTIALS_FILE", home.1)], "this is a folder, and a file is wanted");
    // Of a profile that was asked for, files that cannot be read are no reason to take other keys.
    let unreadable = ("AWS_SHARED_CREDENTIALS_FILE", home.1);
    let failed = "failed profile other: ";
    aws(&[("profile", "other")], &[home, keys[0], keys[1], unreadable], failed);
    // Half a pair is said by whoever asks.
    aws(&[], &keys[..1], "failed environment: AWS_ACCESS_KEY_ID is set but AWS_SECRET_ACCESS_KEY is not");
}

#[test]
fn roles_are_assumed_along_the_chain() {
    let sts = sts();
    let home = home(&[(
        ".aws/config",
        "[profile base]\naws_access_key_id=BASE\naws_secret_access_key=s3cr3tkey\n\
         [profile one]\nregion=eu-west-1\nrole_arn=arn:aws:iam::1:role/one\nsource_profile=base\nexternal_id=ex ternal&1\n\
         role_session_name=me\nduration_seconds=900\n\
         [profile two]\nrole_arn=arn:aws:iam::1:role/two\nsource_profile=one\nregion=cn-north-1\n\
         [profile both]\nrole_arn=r/both\nsource_profile=one\naws_access_key_id=STATIC\naws_secret_access_key=s3cr3tkey\n\
         [profile over]\nrole_arn=r/over\nsource_profile=both\n\
         [profile self]\nrole_arn=arn:aws:iam::1:role/self\nsource_profile=self\naws_access_key_id=SELF\n\
         aws_secret_access_key=s3cr3tkey\n\
         [profile a]\nrole_arn=r/a\nsource_profile=b\n[profile b]\nrole_arn=r/b\nsource_profile=a\n\
         [profile lost]\nrole_arn=r/l\nsource_profile=gone\n[profile bare]\nrole_arn=r/b\n\
         [profile empty]\nregion=x\n[profile dry]\nrole_arn=r/d\nsource_profile=empty\n\
         [profile mfa]\nrole_arn=r/m\nsource_profile=base\nmfa_serial=arn:mfa\n\
         [profile env]\nrole_arn=r/env\ncredential_source=Environment\n\
         [profile odd]\nrole_arn=r/odd\ncredential_source=Moon\n\
         [profile twice]\nrole_arn=r/o\ncredential_source=Environment\nsource_profile=base\n",
    )]);
    let table = [("HOME", shown(home.path())), ("AWS_ENDPOINT_URL_STS", &sts.url())];
    let profile = |name: &str, expected: &str| aws(&[("profile", name)], &table, expected);
    profile("one", "AssumeRole-one-by-BASE token 3600 s");
    let asked = sts.asked();
    let field = |name: &str| asked[0].field(name);
    assert_eq!((asked[0].method.as_str(), asked[0].target.as_str()), ("POST", "/"));
    assert_eq!(field("Version").as_deref(), Some("2011-06-15"));
    assert_eq!(field("RoleArn").as_deref(), Some("arn:aws:iam::1:role/one"));
    assert_eq!(field("ExternalId").as_deref(), Some("ex ternal&1"));
    assert_eq!(
        (field("RoleSessionName").as_deref(), field("DurationSeconds").as_deref()),
        (Some("me"), Some("900"))
    );
    let signed = asked[0].header("authorization").unwrap();
    assert!(signed.contains("/eu-west-1/sts/aws4_request,SignedHeaders=content-type;host;"), "{signed}");

    profile("two", "AssumeRole-two-by-AssumeRole-one-by-BASE token");
    assert_eq!(sts.asked()[2].header("x-amz-security-token"), Some("t0kent0ken"));
    assert!(sts.asked()[2].header("authorization").unwrap().contains("/cn-north-1/sts/"));
    assert!(sts.asked()[2].field("RoleSessionName").unwrap().starts_with("flatout-"));
    profile("self", "AssumeRole-self-by-SELF");
    profile("over", "AssumeRole-over-by-STATIC");
    profile("both", "AssumeRole-both-by-AssumeRole-one-by-BASE");
    profile("a", "failed profile a: source_profile goes in a circle: a -> b -> a");
    profile("lost", "failed profile lost: source_profile names the profile gone, which is not there");
    profile("bare", "but no source_profile, credential_source or web_identity_token_file");
    profile("dry", "failed profile dry: the profile empty has no keys to assume the role with");
    profile(
        "mfa",
        "asks for an MFA code (mfa_serial), and nobody is here to type it: run `aws configure export",
    );
    profile(
        "odd",
        "failed profile odd: credential_source Moon: write Environment, Ec2InstanceMetadata or EcsContainer",
    );
    profile("twice", "one is enough");
    profile("env", "credential_source Environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set");
    let keys = [("AWS_ACCESS_KEY_ID", "AKIAENV"), ("AWS_SECRET_ACCESS_KEY", "s3cr3tkey")];
    aws(&[("profile", "env")], &[table[0], table[1], keys[0], keys[1]], "AssumeRole-env-by-AKIAENV");
    // The switch has the variable ignored: nobody asks this STS, but one that the region's name makes
    // unusable.
    let asked_before = sts.asked().len();
    let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "True");
    let nowhere = ("AWS_REGION", "no region");
    aws(
        &[("profile", "one")],
        &[table[0], table[1], ignored, nowhere],
        "failed profile one: https://sts.no region.",
    );
    assert_eq!(sts.asked().len(), asked_before);
}

/// STS is asked by web identity, which needs no key; what it says in `answer` is what is said.
fn web_identity(status: u16, answer: &str, expected: &str) {
    let answer = answer.to_owned();
    let sts = Service::start(move |_| ServiceReply::This(status, answer.clone()));
    let home = home(&[("token", "jwt-p4ssw0rd\n")]);
    let token = home.path().join("token");
    let table = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", shown(&token)),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/pod"),
        ("AWS_ENDPOINT_URL_STS", &sts.url()),
    ];
    aws(&[("outage-timeout", "0s")], &table, expected);
    let asked = sts.asked();
    assert_eq!(asked[0].field("WebIdentityToken").as_deref(), Some("jwt-p4ssw0rd"));
    assert_eq!(asked[0].field("Action").as_deref(), Some("AssumeRoleWithWebIdentity"));
    assert_eq!(asked[0].header("authorization"), None);
}

#[test]
fn web_identity_and_what_sts_may_say() {
    web_identity(200, &sts_answer("ASIA", &within(900)), "ASIA token 900 s");
    web_identity(
        200,
        &sts_answer("ASIA", "soon"),
        "failed web identity: STS: the answer's Expiration is no date",
    );
    let refused = "<ErrorResponse><Error><Type>Sender</Type><Code>ExpiredTokenException</Code>\
        <Message>Token expired\n</Message></Error></ErrorResponse>";
    web_identity(400, refused, "failed web identity: STS refused (400 ExpiredTokenException: Token expired)");
    for (status, answer, expected) in bad_answers(|access| sts_answer(access, "2040-01-01T00:00:00Z")) {
        web_identity(status, &answer, "failed web identity: STS");
        web_identity(status, &answer, &expected);
    }
    let gone = Service::start(|_| ServiceReply::Gone);
    let home = home(&[("token", "jwt")]);
    let file = home.path().join("token");
    let table = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", shown(&file)),
        ("AWS_ROLE_ARN", "r"),
        ("AWS_ENDPOINT_URL_STS", &gone.url()),
    ];
    aws(
        &[("outage-timeout", "0s")],
        &table,
        "failed web identity: STS: the origin closed the connection before its answer was whole",
    );
    assert_eq!(gone.asked().len(), 3, "a service is asked again");
    aws(&[], &table[..1], "AWS_WEB_IDENTITY_TOKEN_FILE is set but AWS_ROLE_ARN is not");
    aws(&[], &[("AWS_WEB_IDENTITY_TOKEN_FILE", "/no/token"), table[1]], "/no/token: there is no such file");
    let own = format!("[profile pod]\nrole_arn=r\nweb_identity_token_file={}\n", file.display());
    std::fs::write(home.path().join("config"), own).unwrap();
    let sts = sts();
    let config = home.path().join("config");
    let table = [("AWS_CONFIG_FILE", shown(&config)), ("AWS_ENDPOINT_URL", &sts.url())];
    aws(&[("profile", "pod")], &table, "AssumeRoleWithWebIdentity-r-by-nobody token 3600 s");
}

#[test]
fn keys_were_given_up_when_sts_was_away_for_a_moment() {
    let asked = AtomicU32::new(0);
    let sts = Service::start(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        0..5 => ServiceReply::Gone,
        5..8 => ServiceReply::This(503, String::new()),
        _ => ServiceReply::This(200, sts_answer("ASIA", &within(900))),
    });
    let home = home(&[("token", "jwt")]);
    let file = home.path().join("token");
    let table = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", shown(&file)),
        ("AWS_ROLE_ARN", "r"),
        ("AWS_ENDPOINT_URL_STS", &sts.url()),
    ];
    aws(&[("outage-timeout", "60s")], &table, "ASIA token 900 s");
    assert_eq!(sts.asked().len(), 9);
}

/// A service of SSO that says `answer`, and a login that ends in `ends_s`.
fn sso(
    profile: &str,
    cached_as: &str,
    ends: &str,
    status: u16,
    answer: &str,
    expected: &str,
) -> Vec<ServiceRequest> {
    let answer = answer.to_owned();
    let service = Service::start(move |_| ServiceReply::This(status, answer.clone()));
    let cached = format!(r#"{{"accessToken": "p4ssw0rd", "expiresAt": "{ends}", "region": "eu-west-1"}}"#);
    let home = home(&[
        (&format!(".aws/sso/cache/{cached_as}.json"), &cached),
        (
            ".aws/config",
            "[profile new]\nsso_session=corp\nsso_account_id=111122223333\nsso_role_name=Read Only\n\
             [sso-session corp]\nsso_region=eu-west-1\nsso_start_url=https://corp.awsapps.com/start\n\
             [profile old]\nsso_start_url=https://corp.awsapps.com/start\nsso_region=eu-west-1\n\
             sso_account_id=111122223333\nsso_role_name=Read Only\n\
             [profile lost]\nsso_session=gone\n[profile poor]\nsso_session=corp\nsso_account_id=1\n",
        ),
    ]);
    aws(
        &[("profile", profile)],
        &[("HOME", shown(home.path())), ("AWS_ENDPOINT_URL_SSO", &service.url())],
        expected,
    );
    service.asked()
}

#[test]
fn sso_with_the_login_of_the_cli() {
    // As `aws sso login` names its files.
    let hash = |text: &str| {
        let printed =
            std::process::Command::new("sh").args(["-c", "printf %s \"$1\" | sha1sum", "sh", text]).output();
        String::from_utf8(printed.unwrap().stdout).unwrap()[..40].to_owned()
    };
    let (new, old) = (hash("corp"), hash("https://corp.awsapps.com/start"));
    let ends_ms = (unix_seconds() + 1_800) * 1_000;
    let right = format!(
        r#"{{"roleCredentials": {{"accessKeyId": "ASIA", "secretAccessKey": "s3cr3tkey", "sessionToken": "t0kent0ken", "expiration": {ends_ms}}}}}"#
    );
    for (profile, cached_as) in [("new", &new), ("old", &old)] {
        let asked = sso(profile, cached_as, &within(600), 200, &right, "ASIA token 1800 s");
        assert_eq!(asked[0].header("x-amz-sso_bearer_token"), Some("p4ssw0rd"));
        assert_eq!(asked[0].target, "/federation/credentials?account_id=111122223333&role_name=Read%20Only");
        sso(
            profile,
            "other",
            &within(600),
            200,
            &right,
            &format!("there is no SSO login: run `aws sso login --profile {profile}`"),
        );
        let over = format!(
            "failed profile {profile}: the SSO login has expired: run `aws sso login --profile {profile}`"
        );
        assert!(sso(profile, cached_as, &within(-1), 200, &right, &over).is_empty());
        sso(profile, cached_as, "sometime", 200, &right, "holds no SSO login: run `aws sso login");
    }
    let later = within(600);
    sso(
        "new",
        &new,
        &later,
        401,
        r#"{"message": "Session token not found"}"#,
        "does not accept the login any more: run `aws sso login --profile new`",
    );
    sso(
        "new",
        &new,
        &later,
        403,
        r#"{"message": "No access"}"#,
        "failed profile new: SSO refused (403: No access)",
    );
    sso("new", &new, &later, 200, "{}", "SSO answered without roleCredentials");
    sso("new", &new, &later, 200, "p4ssw0rd", "SSO did not answer with JSON");
    sso("lost", &new, &later, 200, &right, "it names [sso-session gone], which is not there");
    sso("poor", &new, &later, 200, &right, "it has no sso_role_name, which SSO needs");
}

#[test]
fn a_process_prints_the_keys() {
    let check = |printed: &str, expected: &str| {
        let home = home(&[("print.sh", printed)]);
        let script = home.path().join("print.sh");
        let config =
            format!("[default]\ncredential_process = sh \"{}\" --password p4ssw0rd\n", script.display());
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws/config"), config).unwrap();
        aws(&[], &[("HOME", shown(home.path()))], expected);
    };
    let quoted = home(&[]);
    let right = |more: &str| {
        format!(r#"echo '{{"Version": 1, "AccessKeyId": "ASIA", "SecretAccessKey": "s3cr3tkey"{more}}}'"#)
    };
    check(&right(""), "ASIA no token stays");
    let more = format!(r#", "SessionToken": "t0kent0ken", "Expiration": "{}"#, within(1_200));
    check(&right(&format!("{}\"", more.replace('Z', "+00:00"))), "ASIA token 1200 s");
    check("echo '{\"AccessKeyId\": \"p4ssw0rd\"}'", "credential_process: it did not print Version 1");
    check(
        "echo '{\"Version\": 1, \"AccessKeyId\": \"A\"}'",
        "credential_process: the answer has no SecretAccessKey",
    );
    // A comment's sign within quotes is the command's.
    std::fs::write(
        quoted.path().join("config"),
        "[default]\ncredential_process = sh -c \"true ; echo p4ssw0rd\"\n",
    )
    .unwrap();
    let config = quoted.path().join("config");
    aws(&[], &[("AWS_CONFIG_FILE", shown(&config))], "credential_process: it did not print JSON");
    check("echo p4ssw0rd", "failed profile default: credential_process: it did not print JSON");
    check("echo please log in >&2; exit 2", "credential_process: sh ended with code 2: please log in");
    check("echo \"secret $2 p4ssw0rdp4ssw0rd\" >&2; exit 2", "sh ended with code 2: secret ");
}

/// The agent of ECS or EKS says `answer`.
fn container(table: &[(&str, &str)], status: u16, answer: &str, expected: &str) -> Vec<ServiceRequest> {
    let answer = answer.to_owned();
    let agent = Service::start(move |_| ServiceReply::This(status, answer.clone()));
    let full = format!("{}/v1/credentials?x=1", agent.url());
    let mut all = vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", full.as_str())];
    all.extend(table);
    aws(&[], &all, expected);
    agent.asked()
}

#[test]
fn containers_and_pods() {
    let right = format!(
        r#"{{"AccessKeyId": "ASIA", "SecretAccessKey": "s3cr3tkey", "Token": "t0kent0ken", "Expiration": "{}"}}"#,
        within(7_200)
    );
    let asked = container(&[], 200, &right, "ASIA token 7200 s");
    assert_eq!((asked[0].target.as_str(), asked[0].header("authorization")), ("/v1/credentials?x=1", None));
    let token = ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Basic p4ssw0rd");
    assert_eq!(container(&[token], 200, &right, "ASIA")[0].header("authorization"), Some("Basic p4ssw0rd"));
    let home = home(&[("token", "pod-p4ssw0rd\n"), ("two", "a\nb")]);
    let (file, two) = (home.path().join("token"), home.path().join("two"));
    let token_file = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", shown(&file));
    let asked = container(&[token, token_file], 200, &right, "ASIA");
    assert_eq!(asked[0].header("authorization"), Some("pod-p4ssw0rd"));
    let two = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", shown(&two));
    container(&[two], 200, &right, "failed container: the authorization token holds what no header can");
    let none = ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/no/token");
    container(&[none], 200, &right, "failed container: /no/token: there is no such file");
    let refused = r#"{"code": "AccessDenied", "message": "no association"}"#;
    container(
        &[],
        403,
        refused,
        "failed container: the container's agent refused (403 AccessDenied: no association)",
    );
    for (status, answer, expected) in bad_answers(|_| r#"{"SecretAccessKey": "s3cr3tkey"}"#.into()) {
        container(&[], status, &answer, &expected);
    }
    for url in ["http://198.51.100.1/x", "http://example.com/"] {
        aws(
            &[],
            &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)],
            "keys travel in the clear only to the agents",
        );
    }
    aws(&[], &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "nonsense")], "is no URL");
    for url in [
        "http://u:p4ssw0rd@127.0.0.1/x",
        "http://u:p4ssw0rd/p4ssw0rd@h?x",
        "http://u:p4ssw0rd@h?x=@",
        "http://u:p4ssw0rd?p4ssw0rd@h",
    ] {
        aws(&[], &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)], "holds a user or a password");
    }
    let metadata = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://u:p4ssw0rd@h");
    aws(&[], &[("AWS_EC2_METADATA_DISABLED", "false"), metadata], "failed instance metadata: http://***@h: ");
}

/// Instance metadata that know `role`, whose keys are `keys`; a wrong session is refused as IMDSv2 does.
fn instance(session: Option<u16>, role: &'static str, keys: &str, expected: &str) -> Vec<ServiceRequest> {
    let keys = keys.to_owned();
    let metadata = Service::start(move |asked| {
        let known = asked.header("x-aws-ec2-metadata-token") == Some("session");
        match (asked.method.as_str(), asked.target.as_str(), session) {
            ("PUT", "/latest/api/token", None) => ServiceReply::Silence,
            ("PUT", "/latest/api/token", Some(200)) if role == "portal" => {
                ServiceReply::This(200, "<html>\r\nsign in</html>".into())
            }
            ("PUT", "/latest/api/token", Some(status)) => ServiceReply::This(status, "session\n".into()),
            _ if !known => ServiceReply::This(401, String::new()),
            (_, "/latest/meta-data/iam/security-credentials/", _) if role.is_empty() => {
                ServiceReply::This(404, String::new())
            }
            (_, "/latest/meta-data/iam/security-credentials/", _) => ServiceReply::This(200, role.into()),
            (_, "/latest/meta-data/iam/security-credentials/web-server", _) => {
                ServiceReply::This(200, keys.clone())
            }
            _ => ServiceReply::This(404, String::new()),
        }
    });
    let table =
        [("AWS_EC2_METADATA_DISABLED", "false"), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &*metadata.url())];
    aws(&[], &table, expected);
    metadata.asked()
}

#[test]
fn instances() {
    let right = format!(
        r#"{{"Code": "Success", "AccessKeyId": "ASIA", "SecretAccessKey": "s3cr3tkey", "Token": "t0kent0ken", "Expiration": "{}"}}"#,
        within(3_600)
    );
    let asked = instance(Some(200), "web-server\n", &right, "ASIA token 3600 s");
    assert_eq!(asked[0].header("x-aws-ec2-metadata-token-ttl-seconds"), Some("300"));
    assert_eq!(asked[0].header("content-length"), Some("0"));
    instance(Some(200), "", &right, "nothing instance metadata: the instance has no role (404)");
    instance(Some(403), "web-server", &right, "nothing instance metadata: it gives no session (403)");
    instance(Some(200), "portal", &right, "nothing instance metadata: what it gives is no session");
    for role in ["bad role?", "<html>sign in</html>", "<b>", "a/b", "\"x\"", "r\u{f6}le"] {
        let no_name = "nothing instance metadata: the instance metadata names a role that is no name";
        instance(Some(200), role, &right, no_name);
    }
    let failed = r#"{"Code": "AssumeRoleUnauthorizedAccess", "Message": "EC2 cannot assume the role"}"#;
    instance(
        Some(200),
        "web-server",
        failed,
        "refused (200 AssumeRoleUnauthorizedAccess: EC2 cannot assume the role)",
    );
    instance(
        Some(200),
        "web-server",
        "p4ssw0rd",
        "failed instance metadata: the instance metadata did not answer with JSON",
    );
    assert_eq!(instance(None, "", "", "nothing instance metadata: ").len(), 1, "a silent one is asked once");
    let nobody =
        [("AWS_EC2_METADATA_DISABLED", "false"), ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:1")];
    aws(&[], &nobody, "nothing instance metadata: cannot connect to http://127.0.0.1:1");
}

#[test]
fn a_role_on_top_of_the_instance() {
    let sts = sts();
    let keys = r#"{"Code": "Success", "AccessKeyId": "NODE", "SecretAccessKey": "s3cr3tkey", "Token": "t0kent0ken"}"#;
    let metadata = Service::start(move |asked| match asked.target.as_str() {
        "/latest/meta-data/iam/security-credentials/" => ServiceReply::This(200, "node".into()),
        "/latest/api/token" => ServiceReply::This(200, "session".into()),
        _ => ServiceReply::This(200, keys.into()),
    });
    let home =
        home(&[(".aws/config", "[profile up]\nrole_arn=r/up\ncredential_source=Ec2InstanceMetadata\n")]);
    let table = [
        ("HOME", shown(home.path())),
        ("AWS_EC2_METADATA_DISABLED", "false"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", &metadata.url()),
        ("AWS_ENDPOINT_URL_STS", &sts.url()),
        ("AWS_PROFILE", "up"),
    ];
    aws(&[], &table, "AssumeRole-up-by-NODE token 3600 s");
}
