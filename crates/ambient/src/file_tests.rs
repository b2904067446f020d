//! Which layer wins over files too, and what is said of files that are wrong. Homes are made for the test.

use std::fs;

use tempfile::TempDir;

use crate::{Ambient, AmbientError, Environment, Layer, gather_from};

type Table<'a> = &'a [(&'a str, &'a str)];

const CONFIG: &str = ".config/flatout/config.toml";
const AWS: &str = ".aws/config";
const ALIYUN: &str = ".aliyun/config.json";
const OSSUTIL: &str = ".ossutilconfig";

/// A home with these files, by path below it.
fn home(files: Table) -> TempDir {
    let home = TempDir::new().unwrap();
    for (path, text) in files {
        let path = home.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    home
}

fn gathered(flags: Table, variables: Table, files: Table) -> Result<Ambient, AmbientError> {
    let home = home(files);
    let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let mut environment: Environment = variables
        .iter()
        .map(|(name, value)| (name.into(), value.replace('~', home.path().to_str().unwrap()).into()))
        .collect();
    environment.insert("HOME".into(), home.path().into());
    gather_from(&flags, &environment)
}

/// Values, layer and place of a setting, as `config show` has them.
fn row(found: &Ambient, name: &str) -> (String, Layer, String) {
    let row = found.table().into_iter().find(|row| row.name == name).unwrap();
    (row.values.join(" "), row.layer, row.place)
}

#[track_caller]
fn check(flags: Table, variables: Table, files: Table, name: &str, want: (&str, Layer, &str)) {
    let found = gathered(flags, variables, files).unwrap();
    let (value, layer, place) = row(&found, name);
    assert_eq!((value.as_str(), layer, place.as_str()), want, "{flags:?} {variables:?} {files:?}");
}

/// What is said, hint included.
#[track_caller]
fn refused(flags: Table, variables: Table, files: Table, expected: &[&str]) {
    let error = gathered(flags, variables, files).unwrap_err();
    let message = format!("{error} | {}", error.hint().unwrap_or_default());
    for part in expected {
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
    assert!(!message.contains('\n') && !message.contains("s3cr3t"), "{message:?}");
    assert!(!format!("{error:?}").contains("s3cr3t"), "{error:?}");
}

#[test]
fn every_layer_beats_the_next() {
    // A text, a size, a switch, a repeatable knob: flag, variable, key of the file, default.
    for (name, flag, variable, key, default) in [
        ("addressing", "path", "virtual", "\"path\"", "auto"),
        ("part-size", "1MiB", "2MiB", "\"3MiB\"", "auto"),
        ("no-verify", "true", "false", "true", "false"),
        (
            "resolve",
            "a:1:127.0.0.1",
            "a:1:127.0.0.2 a:1:127.0.0.3",
            "[\"a:1:127.0.0.4\", \"a:1:127.0.0.5\"]",
            "",
        ),
    ] {
        let env = flatout_settings::knob(name).unwrap().env();
        let file = format!("# mine\n  {name} = {key}\n");
        let files = [(CONFIG, file.as_str())];
        let in_file = key.replace(['[', ']', '"', ','], "");
        let place = format!("~/{CONFIG}:2:3: {name}");
        let given = format!("--{name}");
        check(&[(name, flag)], &[(&env, variable)], &files, name, (flag, Layer::Flag, &given));
        check(&[], &[(&env, variable)], &files, name, (variable, Layer::Environment, &env));
        check(&[], &[(&env, "")], &files, name, (&in_file, Layer::Profile, &place));
        check(&[], &[], &[], name, (default, Layer::Default, ""));
    }
}

#[test]
fn what_is_found_is_weaker_than_ours_and_stronger_than_the_default() {
    let aws = "[default]\nregion = eu-1\ns3 =\n  addressing_style = path\nca_bundle = /aws.pem\n";
    let ours = "region = \"us-9\"\naddressing = \"virtual\"\nca-bundle = \"/ours.pem\"\n";
    for (name, mine, theirs, at, default) in [
        ("region", "us-9", "eu-1", "2: region", "us-east-1"),
        ("addressing", "virtual", "path", "4: s3.addressing_style", "auto"),
        ("ca-bundle", "/ours.pem", "/aws.pem", "5: ca_bundle", ""),
    ] {
        let found = row(&gathered(&[], &[], &[(CONFIG, ours), (AWS, aws)]).unwrap(), name);
        assert_eq!((found.0.as_str(), found.1), (mine, Layer::Profile));
        check(&[], &[], &[(AWS, aws)], name, (theirs, Layer::Found, &format!("~/{AWS}:{at}")));
        check(&[], &[], &[], name, (default, Layer::Default, ""));
    }
    check(&[], &[("AWS_CA_BUNDLE", "/x")], &[(AWS, aws)], "ca-bundle", ("/x", Layer::Found, "AWS_CA_BUNDLE"));
    let requester = [("AWS_REQUEST_PAYER", "requester")];
    check(&[], &requester, &[], "request-payer", ("true", Layer::Found, "AWS_REQUEST_PAYER"));
    let keys = (".aws/credentials", "[default]\nregion = in-keys\n");
    check(&[], &[], &[(AWS, aws), keys], "region", ("in-keys", Layer::Found, "~/.aws/credentials:2: region"));
    let elsewhere = [("AWS_CONFIG_FILE", "~/mine")];
    check(&[], &elsewhere, &[("mine", aws)], "region", ("eu-1", Layer::Found, "~/mine:2: region"));
    let taken_back = [(CONFIG, "ca-bundle = ''")];
    check(
        &[],
        &[("AWS_CA_BUNDLE", "/x")],
        &taken_back,
        "ca-bundle",
        ("", Layer::Profile, &format!("~/{CONFIG}:1:1: ca-bundle")),
    );
}

#[test]
fn profiles() {
    let ours = "part-size = '1MiB'\nregion = 'top'\n[profile.minio]\nregion = 'in-minio'\n";
    let aws = "[default]\nregion = aws-top\n[profile dev]\nregion = aws-dev\nservices = local\n\
               [services local]\ns3 =\n  endpoint_url = http://s3:1\nsts =\n  endpoint_url = http://sts:1\n";
    let files = [(CONFIG, ours), (AWS, aws)];
    let check = |flags: Table, variables: Table, region: &str, part: &str, endpoint: &str| {
        let found = gathered(flags, variables, &files).unwrap();
        let values = ["region", "part-size", "endpoint-url"].map(|name| row(&found, name).0);
        assert_eq!(
            values.each_ref().map(String::as_str),
            [region, part, endpoint],
            "{flags:?} {variables:?}"
        );
    };
    let amazon = |region: &str| format!("https://s3.{region}.amazonaws.com");
    check(&[], &[], "top", "1MiB", &amazon("top"));
    check(&[("profile", "default")], &[], "top", "1MiB", &amazon("top"));
    check(&[("profile", "minio")], &[], "in-minio", "auto", &amazon("in-minio"));
    check(&[], &[("FLATOUT_PROFILE", "minio")], "in-minio", "auto", &amazon("in-minio"));
    check(&[("profile", "dev")], &[("FLATOUT_PROFILE", "minio")], "aws-dev", "auto", "http://s3:1");
    // AWS's own variable chooses in AWS's files alone, and in them where they lack the profile that was asked
    // for.
    check(&[], &[("AWS_PROFILE", "dev")], "top", "1MiB", "http://s3:1");
    check(&[("profile", "minio")], &[("AWS_PROFILE", "dev")], "in-minio", "auto", "http://s3:1");
    let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
    check(
        &[],
        &[("AWS_PROFILE", "dev"), ignored, ("AWS_ENDPOINT_URL", "http://x:1")],
        "top",
        "1MiB",
        &amazon("top"),
    );
    refused(
        &[("profile", "mino")],
        &[],
        &files,
        &["--profile: there is no profile 'mino'", "did you mean 'minio'?"],
    );
    refused(
        &[],
        &[("FLATOUT_PROFILE", "zzz")],
        &files,
        &["FLATOUT_PROFILE: there is no", "there is dev, minio"],
    );
    refused(&[("profile", "x")], &[], &[], &["there is no profile 'x'", "[profile.NAME]", "~/.aws/config"]);
    // A variable of AWS that names nothing is AWS's own business.
    assert!(gathered(&[], &[("AWS_PROFILE", "gone")], &files).is_ok());
}

#[test]
fn the_special_endpoint_and_region_of_oss() {
    let check = |flags: Table, variables: Table, files: Table, endpoint: &str, region: &str| {
        let settings = gathered(flags, variables, files).unwrap().settings;
        assert_eq!(settings.oss_endpoint.unwrap_or_default(), endpoint, "{flags:?} {variables:?} {files:?}");
        assert_eq!(settings.oss_region.unwrap_or_default(), region, "{flags:?} {variables:?} {files:?}");
    };
    let file = "oss-endpoint = 'e-oss'\nendpoint-url = 'http://e'\nregion = 'r'\n";
    let ours: Table = &[(CONFIG, file)];
    check(&[("endpoint-url", "http://f")], &[("FLATOUT_OSS_ENDPOINT", "v")], ours, "http://f", "");
    check(&[("endpoint-url", "http://f"), ("oss-endpoint", "o")], &[], ours, "o", "");
    check(&[], &[("FLATOUT_ENDPOINT_URL", "http://v")], ours, "e-oss", "");
    check(&[], &[("FLATOUT_ENDPOINT_URL", "http://v"), ("FLATOUT_OSS_ENDPOINT", "o")], ours, "o", "");
    check(&[], &[("OSS_ENDPOINT", "o")], ours, "e-oss", "");
    let general: Table = &[(CONFIG, "endpoint-url = 'http://e'\nregion = 'r'\n")];
    check(&[], &[], general, "http://e", "r");
    check(&[], &[("FLATOUT_REGION", "v")], general, "http://e", "v");
    check(&[], &[("OSS_ENDPOINT", "o")], general, "o", "");
    check(&[], &[("OSS_REGION", "o")], general, "", "o");
    check(&[("oss-region", "o")], &[], general, "", "o");
    check(&[("region", "f")], &[("OSS_ENDPOINT", "o")], general, "o", "f");
    check(&[("region", "f")], &[("FLATOUT_OSS_REGION", "v")], ours, "e-oss", "f");

    let aws = ("AWS_ENDPOINT_URL", "http://aws");
    check(&[], &[aws, ("AWS_REGION", "us")], &[], "", "");
    check(&[], &[aws, ("OSS_ENDPOINT", "o"), ("OSS_REGION", "r")], &[], "o", "r");
    check(&[], &[("ALIBABA_CLOUD_REGION", "b"), ("ALIBABA_CLOUD_REGION_ID", "a")], &[], "", "a");
    check(&[], &[("ALIBABA_CLOUD_REGION", "b")], &[], "", "b");

    let aliyun =
        r#"{"current":"b","profiles":[{"name":"a","region_id":"cn-a"},{"name":"b","region_id":"cn-b"}]}"#;
    let theirs: Table = &[(ALIYUN, aliyun)];
    check(&[], &[], theirs, "", "cn-b");
    check(&[], &[("ALIBABA_CLOUD_PROFILE", "a")], theirs, "", "cn-a");
    check(&[("profile", "a")], &[("ALIBABA_CLOUD_PROFILE", "b")], theirs, "", "cn-a");
    check(&[], &[("OSS_REGION", "r")], theirs, "", "r");
    let one = "[Credentials]\nlanguage=EN\nendpoint=oss-1\naccessKeySecret=s3cr3t\n";
    check(&[], &[], &[(OSSUTIL, one), (ALIYUN, aliyun)], "oss-1", "cn-b");
    let two = "[default]\nregion=cn-1\n[profile dev]\nregion=cn-2\nendpoint=oss-2\n";
    check(&[], &[], &[(OSSUTIL, two)], "", "cn-1");
    check(&[("profile", "dev")], &[], &[(OSSUTIL, two)], "oss-2", "cn-2");
    let dev = (CONFIG, "[profile.lab]\nshards = 1\n");
    check(&[("profile", "lab")], &[], &[(OSSUTIL, two), dev], "", "cn-1");
    check(&[("profile", "lab")], &[], &[(ALIYUN, aliyun), dev], "", "cn-b");
    check(&[("profile", "lab")], &[("ALIBABA_CLOUD_PROFILE", "a")], &[(ALIYUN, aliyun), dev], "", "cn-a");
    // What ossutil has by default is not of a profile that the aliyun command has, and the other way round.
    check(&[("profile", "a")], &[], &[(OSSUTIL, one), (ALIYUN, aliyun)], "", "cn-a");
    let endpoint_only = "[profile dev]\nendpoint=oss-2\n";
    check(&[("profile", "dev")], &[], &[(OSSUTIL, endpoint_only), (ALIYUN, aliyun)], "oss-2", "");
    check(&[("profile", "default")], &[], &[(OSSUTIL, one)], "oss-1", "");
    let elsewhere = ("ALIBABA_CLOUD_CONFIG_FILE", "~/mine.json");
    check(&[], &[elsewhere], &[("mine.json", aliyun), (ALIYUN, "{}")], "", "cn-b");

    // And the other way round: nothing of OSS's reaches S3.
    let settings =
        gathered(&[], &[("OSS_ENDPOINT", "o"), ("OSS_REGION", "r")], &[(OSSUTIL, one)]).unwrap().settings;
    assert_eq!((settings.endpoint_url, settings.region), (None, None));
}

#[test]
fn what_aws_says_of_addressing_and_payment_is_not_of_oss() {
    let check = |flags: Table, variables: Table, files: Table, addressing: &str, request_payer: bool| {
        let found = gathered(flags, variables, files).unwrap();
        let oss = (
            found.oss.addressing.unwrap_or(found.settings.addressing),
            found.oss.request_payer.unwrap_or(found.settings.request_payer),
        );
        assert_eq!((oss.0.as_str(), oss.1), (addressing, request_payer));
    };
    let aws: Table = &[(AWS, "[default]\ns3 =\n  addressing_style = path\n")];
    check(&[], &[("AWS_REQUEST_PAYER", "requester")], aws, "auto", false);
    check(&[("addressing", "path")], &[("FLATOUT_REQUEST_PAYER", "1")], aws, "path", true);
    check(&[], &[("FLATOUT_ADDRESSING", "virtual")], &[], "virtual", false);
}

#[test]
fn a_config_file_that_is_wrong_is_named_with_its_place() {
    let at = |place: &str| format!("~/{CONFIG}:{place}");
    for (text, place, says) in [
        (
            "part-size = '1MiB'\npart_size = 1",
            "2:1",
            &["no setting 'part_size'", "did you mean 'part-size'?"][..],
        ),
        ("[profile.x]\n  paralel = 3", "2:3", &["no setting 'paralel'", "did you mean 'parallel'?"]),
        ("colour = 1", "1:1", &["no setting 'colour'", "keys are the names of settings"]),
        ("\"é\" = 1\n", "1:1", &["no setting 'é'"]),
        ("part-size = '8 bananas'", "1:1", &["part-size: '8 bananas' is not a size"]),
        ("\n\nparallel = 0", "3:1", &["parallel: 0 is out of bounds"]),
        ("[profile.x]\nretries = -1", "2:1", &["retries: '-1' is not a whole number"]),
        ("no-verify = 'maybe'", "1:1", &["'maybe' is not a switch"]),
        ("connect-timeout = 5", "1:1", &["'5' is not a duration"]),
        ("connect-timeout = 1.5", "1:19", &["connect-timeout: a float where a string"]),
        ("region = ['a']", "1:10", &["region: an array where a string"]),
        ("resolve = [1, {}]", "1:15", &["resolve: ", "table where a string"]),
        ("[region]\nx = 1", "1:1", &["region: a table where"]),
        ("profile = 'x'", "1:1", &["a profile is not chosen in the file", "FLATOUT_PROFILE"]),
        ("[profile.x]\nprofile = 'y'", "2:1", &["a profile is not chosen in the file"]),
        ("[profile]\nx = 1", "2:1", &["tables, one for each profile", "[profile.NAME]"]),
        ("[profile.default]\nregion = 'x'", "1:10", &["default profile has no table", "top of the file"]),
        ("[minio]\nregion = 'x'", "1:2", &["only tables are those of profiles", "[profile.NAME]"]),
        ("region = ", "1:", &[]),
        ("region = 'a'\nregion = 'b'", "2:1", &["duplicate key"]),
        ("region 'x'", "1:", &[]),
        ("access-key = 's3cr3t'", "1:1", &["'access-key' names a secret", "~/.aws/credentials", "~/.aliyun"]),
        ("[profile.x]\naws_secret_access_key = 's3cr3t'", "2:1", &["'aws_secret_access_key' names a secret"]),
        ("session-token = 's3cr3t'", "1:1", &["names a secret"]),
        ("accessKeySecret = 's3cr3t'", "1:1", &["names a secret"]),
        ("access-key = 's3cr3t", "1:", &[]),
    ] {
        refused(&[], &[], &[(CONFIG, text)], &[&[at(place).as_str()], says].concat());
    }
}

#[test]
fn which_config_file() {
    let region = |variables: Table, files: Table| gathered(&[], variables, files).unwrap().settings.region;
    let (one, two) = ("region = 'one'", "region = 'two'");
    let files = [(CONFIG, one), ("xdg/flatout/config.toml", two), ("mine.toml", "region = 'three'")];
    assert_eq!(region(&[], &files).as_deref(), Some("one"));
    assert_eq!(region(&[("XDG_CONFIG_HOME", "~/xdg")], &files).as_deref(), Some("two"));
    assert_eq!(region(&[("XDG_CONFIG_HOME", "xdg")], &files).as_deref(), Some("one"));
    let both = [("XDG_CONFIG_HOME", "~/xdg"), ("FLATOUT_CONFIG", "~/mine.toml")];
    assert_eq!(region(&both, &files).as_deref(), Some("three"));
    assert_eq!(region(&[], &[]), None);
    refused(
        &[],
        &[("FLATOUT_CONFIG", "~/gone.toml")],
        &files,
        &["~/gone.toml: No such file", "FLATOUT_CONFIG names"],
    );
    refused(&[], &[("FLATOUT_CONFIG", "~/.config")], &files, &["~/.config: Is a directory"]);
    refused(&[], &[("FLATOUT_CONFG", "x")], &files, &["did you mean FLATOUT_CONFIG?"]);
    // Without a home there is no file, and nothing to complain about.
    assert!(gather_from(&[], &Environment::new()).is_ok());
}

#[test]
fn files_of_others_that_make_no_sense_are_noted() {
    let check = |path: &str, text: &str, note: &str| {
        let notes = gathered(&[], &[], &[(path, text)]).unwrap().notes;
        assert!(notes.iter().any(|said| said.contains(note)), "{notes:?}");
    };
    check(ALIYUN, "{\n  s3cr3t", "~/.aliyun/config.json:2: no JSON");
    check(".aws/config/x", "", "~/.aws/config: this is a folder, and a file is wanted, passed over");
    check(
        AWS,
        "s3cr3t\n[\n= =\n",
        "~/.aws/config: line 1: a setting stands before any [section], passed over",
    );
    check(
        OSSUTIL,
        "[default]\ns3cr3t\n",
        "~/.ossutilconfig: line 2: neither a section nor NAME = VALUE, passed over",
    );
    refused(
        &[],
        &[],
        &[(AWS, "[default]\ns3 =\n addressing_style = odd\n")],
        &["~/.aws/config:3: s3.addressing_style", "one of"],
    );
}

#[test]
fn proxies_are_found_by_scheme() {
    let check = |flags: Table, variables: Table, http: &str, https: &str, no_proxy: &str| {
        let proxies = gathered(flags, variables, &[]).unwrap().proxies;
        let values = [proxies.http, proxies.https, proxies.no_proxy].map(Option::unwrap_or_default);
        assert_eq!(values.each_ref().map(String::as_str), [http, https, no_proxy], "{flags:?} {variables:?}");
    };
    check(&[], &[], "", "", "");
    check(&[], &[("HTTPS_PROXY", "s")], "", "s", "");
    check(
        &[],
        &[("HTTPS_PROXY", "S"), ("https_proxy", "s"), ("HTTP_PROXY", "H"), ("http_proxy", "h")],
        "h",
        "s",
        "",
    );
    check(&[], &[("HTTP_PROXY", "H"), ("REQUEST_METHOD", "GET")], "", "", "");
    check(&[], &[("http_proxy", "h"), ("REQUEST_METHOD", "GET")], "h", "", "");
    check(&[], &[("ALL_PROXY", "a"), ("https_proxy", "s")], "a", "s", "");
    check(
        &[],
        &[("ALL_PROXY", "A"), ("all_proxy", "a"), ("NO_PROXY", "N"), ("no_proxy", "n")],
        "a",
        "a",
        "n",
    );
    check(&[("proxy", "p")], &[("HTTPS_PROXY", "s"), ("NO_PROXY", "n")], "p", "p", "n");
    check(&[("no-proxy", "f")], &[("FLATOUT_PROXY", "p"), ("NO_PROXY", "n")], "p", "p", "f");
}

#[test]
fn the_table_masks_and_says_what_follows() {
    let variables = [
        ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
        ("AWS_SECRET_ACCESS_KEY", "s3cr3t"),
        ("HTTPS_PROXY", "http://me:s3cr3t@proxy:1"),
        ("FLATOUT_PROXY", ""),
    ];
    let found = gathered(&[("endpoint-url", "http://me:s3/cr3t@h")], &variables, &[]).unwrap();
    assert_eq!(row(&found, "https-proxy"), ("http://***@proxy:1".into(), Layer::Found, "HTTPS_PROXY".into()));
    assert_eq!(row(&found, "endpoint-url").0, "http://***@h");
    let signers = found.signers();
    assert_eq!(
        (signers[0].provider.as_deref(), signers[0].key.as_deref()),
        (Some("environment"), Some("…MPLE"))
    );
    let said = format!(
        "{:?} {:?} {:?} {:?} {:?}",
        found.table(),
        signers,
        found.proxies,
        found.settings,
        found.rows
    );
    assert!(!said.contains("s3cr3t") && !said.contains("s3/cr3t") && !said.contains("IOSFODNN"), "{said}");

    let named = [("endpoint-url", "https://s3.eu-west-1.amazonaws.com")];
    check(&named, &[], &[], "region", ("eu-west-1", Layer::Found, "from the endpoint's name"));
    check(&[("endpoint-url", "http://h")], &[], &[], "region", ("us-east-1", Layer::Default, ""));
    let amazon = "https://s3.eu-1.amazonaws.com";
    check(
        &[("region", "eu-1")],
        &[],
        &[],
        "endpoint-url",
        (amazon, Layer::Found, "AWS's own, from the region"),
    );
    check(&[("part-size", "33MiB")], &[], &[], "window", ("auto", Layer::Default, ""));
    check(&[("memory", "1GiB")], &[], &[], "memory", ("1GiB", Layer::Flag, "--memory"));
}
