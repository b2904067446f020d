//! Alibaba Cloud: environment, rotating files, RRSA, the CLI's profiles, ossutil, a URI, ECS.

use super::*;

#[track_caller]
fn oss(flags: &[(&str, &str)], table: &[(&str, &str)], expected: &str) {
    check(Cloud::Alibaba, flags, table, expected);
}

fn keys(access: &str, ends: &str) -> String {
    format!(
        r#"{{"AccessKeyId": "{access}", "AccessKeySecret": "s3cr3tkey", "SecurityToken": "t0kent0ken", "Expiration": "{ends}"}}"#
    )
}

/// An STS that gives the keys of a role under the name of the action and of who asked.
fn sts() -> Service {
    Service::start(|asked| {
        let (action, by) = match asked.header("x-acs-action") {
            Some(action) => {
                let signed = asked.header("authorization").unwrap();
                let by = signed.strip_prefix("ACS3-HMAC-SHA256 Credential=").unwrap();
                (action.to_owned(), by.split(',').next().unwrap().to_owned())
            }
            None => {
                let action = asked.target.strip_prefix("/?Action=").unwrap();
                (action.split('&').next().unwrap().to_owned(), "nobody".to_owned())
            }
        };
        let role = asked.field("RoleArn").unwrap();
        let access = format!("{action}-{}-by-{by}", role.rsplit('/').next().unwrap());
        ServiceReply::This(
            200,
            format!(r#"{{"RequestId": "1", "Credentials": {}}}"#, keys(&access, &within(3_600))),
        )
    })
}

#[test]
fn the_environment_comes_first() {
    let own = [("OSS_ACCESS_KEY_ID", "LTAIOWN"), ("OSS_ACCESS_KEY_SECRET", "s3cr3tkey")];
    let general = [
        ("ALIBABA_CLOUD_ACCESS_KEY_ID", "LTAI"),
        ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "s3cr3tkey"),
        ("ALIBABA_CLOUD_SECURITY_TOKEN", "t0kent0ken"),
    ];
    oss(&[], &general, "LTAI token stays");
    oss(&[], &[general[0], general[1], own[0], own[1]], "LTAIOWN no token stays");
    oss(&[], &[own[0], own[1], ("OSS_SESSION_TOKEN", "t0kent0ken")], "LTAIOWN token stays");
    oss(&[], &own[..1], "failed environment: OSS_ACCESS_KEY_ID is set but OSS_ACCESS_KEY_SECRET is not");
    oss(
        &[],
        &[own[0], ("OSS_ACCESS_KEY_SECRET", "s3cr3tkey\n")],
        "failed environment: OSS_ACCESS_KEY_SECRET holds white",
    );
    let refused = ask(Cloud::Alibaba, &[], &[("HOME", "/nowhere")]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "environment: neither OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET nor ALIBABA_CLOUD_ACCESS_KEY_ID and \
         ALIBABA_CLOUD_ACCESS_KEY_SECRET are set; credentials folder: OSS_CREDENTIALS_DIR is not set; \
         RRSA: ALIBABA_CLOUD_OIDC_PROVIDER_ARN and ALIBABA_CLOUD_OIDC_TOKEN_FILE are not set; \
         aliyun profile: ~/.aliyun/config.json is not there; ossutil: ~/.ossutilconfig is not there; \
         credentials URI: ALIBABA_CLOUD_CREDENTIALS_URI is not set; \
         ECS RAM role: ALIBABA_CLOUD_ECS_METADATA_DISABLED is set"
    );
    oss(&[("no-sign-request", "true")], &own, "no-sign-request is on");
    // The keys of one cloud are never those of the other.
    let aws = [("AWS_ACCESS_KEY_ID", "AKIA"), ("AWS_SECRET_ACCESS_KEY", "s3cr3tkey")];
    oss(&[], &aws, "nothing ECS RAM role");
    check(Cloud::Aws, &[], &own, "nothing instance metadata");
}

#[test]
fn files_that_rotate() {
    let ends = within(1_800);
    let home = home(&[
        ("all/AccessKeyId", "LTAI\n"),
        ("all/AccessKeySecret", "s3cr3tkey\n"),
        ("all/SecurityToken", "t0kent0ken\n"),
        ("all/Expiration", &ends),
        ("pair/AccessKeyId", "LTAI"),
        ("pair/AccessKeySecret", "s3cr3tkey"),
        ("half/AccessKeyId", "LTAI"),
        ("odd/AccessKeyId", "LTAI"),
        ("odd/AccessKeySecret", "s3cr3tkey s3cr3tkey"),
    ]);
    let folder = |name: &str, expected: &str| {
        let path = home.path().join(name);
        oss(&[], &[("OSS_CREDENTIALS_DIR", shown(&path))], expected);
    };
    folder("all", "LTAI token 1800 s");
    folder("pair", "LTAI no token stays");
    folder("half", "half/AccessKeySecret: there is no such file, or nothing in it");
    folder("none", "none/AccessKeyId: there is no such file, or nothing in it");
    folder("odd", "failed credentials folder");
    std::fs::write(home.path().join("all/AccessKeyId"), "LTAINEW").unwrap();
    folder("all", "LTAINEW token 1800 s");
}

#[test]
fn rrsa_comes_before_the_role_of_the_node() {
    let sts = sts();
    let node = Service::start(|_| ServiceReply::This(200, keys("NODE", "2040-01-01T00:00:00Z")));
    let home = home(&[("token", "jwt-p4ssw0rd\n")]);
    let file = home.path().join("token");
    let (sts_url, node_url) = (sts.url(), node.url());
    let table = [
        ("ALIBABA_CLOUD_OIDC_TOKEN_FILE", shown(&file)),
        ("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "acs:ram::1:oidc-provider/ack"),
        ("ALIBABA_CLOUD_ROLE_ARN", "acs:ram::1:role/pod"),
        ("ALIBABA_CLOUD_STS_ENDPOINT", &*sts_url),
        ("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "false"),
        ("ALIBABA_CLOUD_ECS_METADATA_SERVICE_ENDPOINT", &*node_url),
    ];
    oss(&[], &table, "AssumeRoleWithOIDC-pod-by-nobody token 3600 s");
    assert!(node.asked().is_empty());
    let asked = &sts.asked()[0];
    assert!(
        asked.target.contains("&Format=JSON&") && asked.target.ends_with("&Version=2015-04-01"),
        "{asked:?}"
    );
    assert_eq!(asked.field("OIDCToken").as_deref(), Some("jwt-p4ssw0rd"));
    assert_eq!(asked.field("OIDCProviderArn").as_deref(), Some("acs:ram::1:oidc-provider/ack"));
    oss(&[], &[table[0], table[1]], "failed RRSA: ALIBABA_CLOUD_ROLE_ARN, ");
    oss(
        &[],
        &[("ALIBABA_CLOUD_OIDC_TOKEN_FILE", "/no/token"), table[1], table[2]],
        "/no/token: there is no such file",
    );
}

#[test]
fn what_sts_may_say() {
    let home = home(&[("token", "jwt")]);
    let file = home.path().join("token");
    let check = |says: fn(&ServiceRequest) -> ServiceReply, expected: &str| {
        let sts = Service::start(says);
        let table = [
            ("ALIBABA_CLOUD_OIDC_TOKEN_FILE", shown(&file)),
            ("ALIBABA_CLOUD_OIDC_PROVIDER_ARN", "p"),
            ("ALIBABA_CLOUD_ROLE_ARN", "r"),
            ("ALIBABA_CLOUD_STS_ENDPOINT", &*sts.url()),
        ];
        oss(&[], &table, expected);
    };
    check(
        |_| ServiceReply::Gone,
        "failed RRSA: STS: the origin closed the connection before its answer was whole",
    );
    check(
        |_| {
            ServiceReply::This(
                400,
                r#"{"Code": "AuthenticationFail.OIDCToken.Expired", "Message": "expired"}"#.into(),
            )
        },
        "failed RRSA: STS refused (400 AuthenticationFail.OIDCToken.Expired: expired)",
    );
    check(|_| ServiceReply::This(200, "{}".into()), "failed RRSA: STS answered without Credentials");
    check(|_| ServiceReply::This(200, "p4ssw0rd".into()), "failed RRSA: STS did not answer with JSON");
    check(|_| ServiceReply::This(500, "p4ssw0rd".into()), "failed RRSA: STS refused (500)");
    check(
        |_| ServiceReply::This(200, r#"{"Credentials": {"AccessKeyId": "a"}}"#.into()),
        "failed RRSA: STS: the answer has no SecretAccessKey",
    );
}

fn config(more: &str) -> String {
    format!(
        r#"{{"current": "ak", "profiles": [
        {{"name": "ak", "mode": "AK", "access_key_id": "LTAIAK", "access_key_secret": "s3cr3tkey", "sts_token": ""}},
        {{"name": "sts", "mode": "StsToken", "access_key_id": "LTAISTS", "access_key_secret": "s3cr3tkey", "sts_token": "t0kent0ken"}},
        {{"name": "arn", "mode": "RamRoleArn", "access_key_id": "LTAIAK", "access_key_secret": "s3cr3tkey",
          "ram_role_arn": "acs:ram::1:role/arn", "ram_session_name": "me", "expired_seconds": 900, "external_id": "e", "sts_region": "cn-x"}},
        {{"name": "up", "mode": "ChainableRamRoleArn", "source_profile": "arn", "ram_role_arn": "acs:ram::1:role/up"}},
        {{"name": "a", "mode": "ChainableRamRoleArn", "source_profile": "b", "ram_role_arn": "r"}},
        {{"name": "b", "mode": "ChainableRamRoleArn", "source_profile": "a", "ram_role_arn": "r"}},
        {{"name": "lost", "mode": "ChainableRamRoleArn", "source_profile": "gone", "ram_role_arn": "r"}},
        {{"name": "half", "mode": "AK", "access_key_id": "LTAI", "access_key_secret": ""}},
        {{"name": "poor", "mode": "RamRoleArn", "access_key_id": "LTAIAK", "access_key_secret": "s3cr3tkey"}},
        {{"name": "cloud", "mode": "CloudSSO"}},
        {{"name": "fresh", "mode": ""}}{more}]}}"#
    )
}

#[test]
fn profiles_of_the_cli() {
    let sts = sts();
    let node =
        Service::start(|asked| match (asked.method.as_str(), asked.target.rsplit('/').next().unwrap()) {
            ("PUT", _) => ServiceReply::This(200, "session".into()),
            (_, "node-role") => ServiceReply::This(
                200,
                keys("NODE", "2040-01-01T00:00:00Z").replacen('{', "{\"Code\": \"Success\", ", 1),
            ),
            _ => ServiceReply::This(404, String::new()),
        });
    let uri = Service::start(|_| {
        ServiceReply::This(200, keys("LTAIURI", &within(600)).replacen('{', "{\"Code\": \"Success\", ", 1))
    });
    let printed = r#"{"mode": "StsToken", "access_key_id": "LTAIEXT", "access_key_secret": "s3cr3tkey", "sts_token": "t0kent0ken"}"#;
    let home = home(&[("token", "jwt"), ("print.json", printed)]);
    let at = |name: &str| home.path().join(name).display().to_string();
    let more = format!(
        r#", {{"name": "oidc", "mode": "OIDC", "oidc_provider_arn": "p", "oidc_token_file": "{}", "ram_role_arn": "r/oidc"}},
        {{"name": "ecs", "mode": "EcsRamRole", "ram_role_name": "node-role"}},
        {{"name": "ecsup", "mode": "RamRoleArnWithEcs", "ram_role_name": "node-role", "ram_role_arn": "r/ecsup"}},
        {{"name": "uri", "mode": "CredentialsURI", "credentials_uri": "{}/keys"}},
        {{"name": "ext", "mode": "External", "process_command": "cat {}"}},
        {{"name": "extbad", "mode": "External", "process_command": "sh -c 'echo no >&2; exit 1' p4ssw0rd"}}"#,
        at("token"),
        uri.url(),
        at("print.json"),
    );
    std::fs::create_dir(home.path().join(".aliyun")).unwrap();
    std::fs::write(home.path().join(".aliyun/config.json"), config(&more)).unwrap();
    let (sts_url, node_url) = (sts.url(), node.url());
    let table = [
        ("HOME", shown(home.path())),
        ("ALIBABA_CLOUD_STS_ENDPOINT", &*sts_url),
        ("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "false"),
        ("ALIBABA_CLOUD_ECS_METADATA_SERVICE_ENDPOINT", &*node_url),
    ];
    let profile = |name: &str, expected: &str| oss(&[("profile", name)], &table, expected);
    oss(&[], &table, "LTAIAK no token stays");
    oss(&[], &[table[0], ("ALIBABA_CLOUD_PROFILE", "sts")], "LTAISTS token stays");
    oss(&[], &[table[0], ("ALIBABA_CLOUD_PROFILE", "nope")], "failed aliyun profile: nope is not in ");
    oss(&[], &[table[0], ("ALIBABA_CLOUD_CLI_PROFILE_DISABLED", "true")], "nothing ECS RAM role");
    profile("sts", "LTAISTS token stays");
    profile("arn", "AssumeRole-arn-by-LTAIAK token 3600 s");
    let asked = &sts.asked()[0];
    let fields = ["RoleSessionName", "DurationSeconds", "ExternalId"].map(|name| asked.field(name).unwrap());
    assert_eq!(fields, ["me", "900", "e"]);
    assert_eq!(asked.header("x-acs-version"), Some("2015-04-01"));
    profile("up", "AssumeRole-up-by-AssumeRole-arn-by-LTAIAK token");
    assert_eq!(sts.asked()[2].header("x-acs-security-token"), Some("t0kent0ken"));
    profile("a", "failed aliyun profile a: source_profile goes in a circle: a -> b -> a");
    profile("lost", "source_profile names the profile gone, which is not there");
    profile("half", "failed aliyun profile half: the profile half: it has no SecretAccessKey");
    profile("poor", "the profile poor has no ram_role_arn");
    profile("cloud", "the profile cloud is of mode CloudSSO, which is not known here: make one of mode AK, ");
    profile("oidc", "AssumeRoleWithOIDC-oidc-by-nobody token");
    profile("ecs", "NODE token");
    profile("ecsup", "AssumeRole-ecsup-by-NODE token");
    profile("uri", "LTAIURI token 600 s");
    assert_eq!(uri.asked()[0].target, "/keys");
    profile("ext", "LTAIEXT token stays");
    profile("extbad", "failed aliyun profile extbad: process_command: sh ended with code 1: no");

    let elsewhere = at("elsewhere.json");
    let check = |text: &str, expected: &str| {
        std::fs::write(&elsewhere, text).unwrap();
        oss(&[], &[("ALIBABA_CLOUD_CONFIG_FILE", &elsewhere)], expected);
    };
    check("p4ssw0rd", "failed aliyun profile: ");
    let own = [("OSS_ACCESS_KEY_ID", "LTAIOWN"), ("OSS_ACCESS_KEY_SECRET", "s3cr3tkey")];
    let broken = ("ALIBABA_CLOUD_CONFIG_FILE", &*elsewhere);
    oss(&[("profile", "default")], &[own[0], own[1], broken], "failed aliyun profile default: ");
    check("{}", "this is not the JSON of aliyun's profiles");
    check(r#"{"current": "", "profiles": []}"#, "nothing ECS RAM role");
    check(r#"{"current": "x", "profiles": [{"name": "x", "mode": ""}]}"#, "nothing ECS RAM role");
}

#[test]
fn the_file_of_ossutil() {
    let check = |text: &str, expected: &str| {
        let home = home(&[(".ossutilconfig", text)]);
        oss(&[], &[("HOME", shown(home.path()))], expected);
    };
    check(
        "[Credentials]\nlanguage=EN\nendpoint=e\naccessKeyID=LTAI\naccessKeySecret=s3cr3tkey\n",
        "LTAI no token",
    );
    check(
        "[default]\naccessKeyId = LTAI\naccessKeySecret = s3cr3tkey\nstsToken = t0kent0ken\n",
        "LTAI token stays",
    );
    check("[Credentials]\nlanguage=EN\n", "nothing ECS RAM role");
    check("[Credentials]\naccessKeyID=LTAI\n", "has accessKeyID without accessKeySecret");
    check("p4ssw0rd", "line 1: a setting stands before any [section]");

    let home = home(&[
        (
            ".ossutilconfig",
            "[default]\naccessKeyID=LTAI\naccessKeySecret=s3cr3tkey\n\
         [profile team]\naccessKeyID=LTAITEAM\naccessKeySecret=s3cr3tkey\n[bare]\naccessKeyID=LTAIBARE\n\
         accessKeySecret=s3cr3tkey\n[profile none]\nendpoint=e\n",
        ),
        (".config/flatout/config.toml", "[profile.lab]\nshards=1\n[profile.bare]\nshards=1\n"),
    ]);
    let home = ("HOME", shown(home.path()));
    let own = [("OSS_ACCESS_KEY_ID", "LTAIOWN"), ("OSS_ACCESS_KEY_SECRET", "s3cr3tkey")];
    let profile = |name: &str, expected: &str| {
        oss(&[("profile", name)], &[home, own[0], own[1]], expected);
    };
    profile("team", "LTAITEAM no token");
    profile("bare", "LTAIBARE no token");
    profile("default", "LTAI no token");
    profile("none", "nothing ECS RAM role");
    profile("lab", "LTAIOWN");
    oss(&[("profile", "lab")], &[home], "LTAI no token");
}

#[test]
fn a_uri_that_has_keys() {
    let check = |status: u16, body: String, expected: &str| {
        let uri = Service::start(move |_| ServiceReply::This(status, body.clone()));
        oss(&[], &[("ALIBABA_CLOUD_CREDENTIALS_URI", &format!("{}/a?b=c", uri.url()))], expected);
        assert_eq!(uri.asked()[0].target, "/a?b=c");
    };
    check(200, keys("LTAI", &within(300)), "LTAI token 300 s");
    for (status, body, expected) in
        bad_answers(|_| r#"{"Code": "Success", "AccessKeySecret": "s3cr3tkey"}"#.into())
    {
        check(status, body, &expected);
    }
    check(
        200,
        r#"{"Code": "Failed", "Message": "no"}"#.into(),
        "failed credentials URI: the credentials URI refused (200 Failed: no)",
    );
    oss(
        &[],
        &[("ALIBABA_CLOUD_CREDENTIALS_URI", "http://u:p4ssw0rd@h/x")],
        "failed credentials URI: the credentials URI holds a user or a password",
    );
    oss(
        &[],
        &[("ALIBABA_CLOUD_CREDENTIALS_URI", "nonsense")],
        "failed credentials URI: the credentials URI is no URL",
    );
}

#[test]
fn instances() {
    let check = |session: Option<u16>, role: &'static str, named: &str, expected: &str| {
        let metadata = Service::start(move |asked| {
            let known = asked.header("x-aliyun-ecs-metadata-token") == Some("session");
            match (asked.target.as_str(), session) {
                ("/latest/api/token", None) => ServiceReply::Silence,
                ("/latest/api/token", Some(200)) if role == "portal" => {
                    ServiceReply::This(200, "<html>\r\nsign in</html>".into())
                }
                ("/latest/api/token", Some(status)) => ServiceReply::This(status, "session".into()),
                _ if !known => ServiceReply::This(403, String::new()),
                ("/latest/meta-data/ram/security-credentials/", _) if role.is_empty() => {
                    ServiceReply::This(404, String::new())
                }
                ("/latest/meta-data/ram/security-credentials/", _) => ServiceReply::This(200, role.into()),
                ("/latest/meta-data/ram/security-credentials/node", _) => ServiceReply::This(
                    200,
                    keys("NODE", &within(900)).replacen('{', "{\"Code\": \"Success\", ", 1),
                ),
                _ => ServiceReply::This(404, String::new()),
            }
        });
        let url = metadata.url();
        let table = [
            ("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "false"),
            ("ALIBABA_CLOUD_ECS_METADATA_SERVICE_ENDPOINT", &*url),
            ("ALIBABA_CLOUD_ECS_METADATA", named),
        ];
        oss(&[], &table, expected);
        metadata.asked()
    };
    assert_eq!(check(Some(200), "node", "", "NODE token 900 s").len(), 3);
    assert_eq!(check(Some(200), "other", "node", "NODE token 900 s").len(), 2);
    check(Some(200), "", "", "nothing ECS RAM role: the instance has no role (404)");
    check(Some(200), "other", "", "failed ECS RAM role: the ECS metadata refused (404)");
    check(Some(200), "portal", "", "nothing ECS RAM role: what it gives is no session");
    check(
        Some(200),
        "<html>sign in</html>",
        "",
        "nothing ECS RAM role: the name of the instance's role is no name",
    );
    check(Some(200), "node", "<node>", "failed ECS RAM role: the name of the instance's role is no name");
    check(Some(403), "node", "", "nothing ECS RAM role: it gives no session (403)");
    assert_eq!(check(None, "", "", "nothing ECS RAM role: ").len(), 1, "a silent one is asked once");
}
