//! `flatout config`, and the config file as the commands meet it.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::folder::Folder;
use crate::objects::{ACCESS_KEY, Buckets, SECRET_KEY};
use crate::program::{Ended, flatout, run, without_override};

const FILE: &str = ".config/flatout/config.toml";

/// A home with one file in it.
fn home(path: &str, text: &str) -> Folder {
    let home = Folder::new();
    let path = home.path().join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    home
}

fn at(home: &Folder, arguments: &[&str]) -> Command {
    let mut command = flatout(arguments);
    command.env("HOME", home.path());
    command
}

/// `config show` says this on the line of that name, columns narrowed to one space.
#[track_caller]
fn says(shown: &Ended, line: &str) {
    let name = line.split(' ').next().unwrap();
    let narrow = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let found: Vec<String> = shown.text().lines().filter(|line| line.starts_with(name)).map(narrow).collect();
    assert!(found.iter().any(|found| found == line), "{found:?} is not {line:?}");
}

#[test]
fn each_value_and_where_it_came_from() {
    let text =
        "part-size = '1MiB'\nresolve = ['a:1:127.0.0.1', 'b:1:127.0.0.1']\n[profile.minio]\nshards = 1\n";
    let home = home(FILE, text);
    let mut command = at(&home, &["config", "show", "--retries", "3"]);
    command
        .env("FLATOUT_PARALLEL", "4")
        .env("AWS_REGION", "eu-1")
        .env("HTTPS_PROXY", "http://me:PASSWORDPASSWORD@proxy:1");
    command.env("AWS_ACCESS_KEY_ID", "AKIDLONGENOUGH").env("AWS_SECRET_ACCESS_KEY", "SECRETKEYSECRETKEY");
    let shown = run(&mut command).clean();
    says(&shown, "retries 3 flag: --retries");
    says(&shown, "parallel 4 environment: FLATOUT_PARALLEL");
    says(&shown, "part-size 1MiB profile: ~/.config/flatout/config.toml:1:1: part-size");
    says(&shown, "region eu-1 found: AWS_REGION");
    says(&shown, "endpoint-url https://s3.eu-1.amazonaws.com found: AWS's own, from the region");
    says(&shown, "https-proxy http://***@proxy:1 found: HTTPS_PROXY");
    says(&shown, "shards 2 default");
    says(&shown, "ca-bundle - default");
    says(&shown, "credentials (s3) …OUGH environment");
    assert!(shown.text().contains("\n                    b:1:127.0.0.1\n"), "{}", shown.text());
    // Longer than the name of a temporary folder: one with `pw` in it was taken for the password.
    for secret in ["PASSWORDPASSWORD", "SECRETKEYSECRETKEY", "AKIDLONGEN"] {
        assert!(!shown.text().contains(secret), "{}", shown.text());
    }
    let minio = run(&mut at(&home, &["config", "show", "--profile", "minio"])).clean();
    says(&minio, "profile minio flag: --profile");
    says(&minio, "shards 1 profile: ~/.config/flatout/config.toml:4:1: shards");
    says(&minio, "part-size auto default");
    assert!(minio.text().contains("environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"));
}

#[test]
fn the_same_as_events() {
    let home = home(FILE, "resolve = 'a:1:127.0.0.1'\n");
    let mut command = at(&home, &["config", "show", "--json"]);
    let events = run(command.env("AWS_REGION", "eu-1")).clean().events();
    let setting = |name: &str| events.iter().find(|event| event["name"] == name).unwrap().to_string();
    assert_eq!(
        setting("region"),
        r#"{"event":"setting","layer":"found","name":"region","place":"AWS_REGION","v":1,"value":"eu-1"}"#
    );
    assert!(setting("resolve").contains(r#""value":["a:1:127.0.0.1"]"#), "{}", setting("resolve"));
    assert!(setting("ca-bundle").contains(r#""value":null"#), "{}", setting("ca-bundle"));
    let [.., s3, oss, config] = events.as_slice() else { panic!("{events:?}") };
    for (credentials, dialect) in [(s3, "s3"), (oss, "oss")] {
        assert_eq!(
            (&credentials["event"], &credentials["dialect"]),
            (&"credentials".into(), &dialect.into())
        );
    }
    assert_eq!((&config["event"], &config["exists"]), (&"config".into(), &true.into()));
}

#[test]
fn where_the_file_is() {
    let home = home(FILE, "");
    let path = home.at(FILE);
    assert_eq!(run(&mut at(&home, &["config", "path"])).clean().text(), format!("{path}\n"));
    let mut named = at(&home, &["config", "path"]);
    assert_eq!(run(named.env("FLATOUT_CONFIG", "/x/y")).clean().text(), "/x/y\n");
    run(&mut flatout(&["config", "path"])).refused(4, &["HOME", "FLATOUT_CONFIG"]);
}

#[test]
fn a_profile_fetches() {
    let buckets = Buckets::locked(&[("bucket/key", b"bytes")]);
    let home =
        home(FILE, &format!("[profile.lab]\nendpoint-url = '{}'\nregion = 'us-east-1'\n", buckets.url()));
    let mut command = at(&home, &["cat", "s3://bucket/key", "--profile", "lab"]);
    command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
    assert_eq!(run(&mut command).clean().text(), "bytes");
}

#[test]
fn a_wrong_file_is_a_usage_error_of_every_command() {
    for (text, says) in [
        (
            "partsize = 1",
            &["~/.config/flatout/config.toml:1:1: there is no setting 'partsize'", "'part-size'"][..],
        ),
        ("[profile.x]\nparallel = 'many'", &["config.toml:2:1: parallel: 'many' is not a whole number"]),
        ("region = \"a", &["config.toml:1:"]),
        ("secret-key = 'SECRETKEYSECRETKEY'", &["'secret-key' names a secret", "hint:"]),
        (
            "window = '1MiB'\npart-size = '8MiB'",
            &["config.toml:1:1: window: 1MiB is too small", "--window 16MiB"],
        ),
    ] {
        let home = home(FILE, text);
        for arguments in [&["config", "show"][..], &["stat", "s3://b/k"], &["cat", "http://127.0.0.1:1/x"]] {
            let refused = run(&mut at(&home, arguments)).refused(4, &[&["error: settings: "], says].concat());
            assert!(!refused.stderr.contains("SECRETKEYSECRETKEY"), "{}", refused.stderr);
            assert_eq!(refused.text(), "");
        }
    }
}

#[test]
fn a_file_that_may_not_be_read_was_as_if_it_were_not_there() {
    for (shut, xdg) in [(FILE, ""), (".config/flatout", ""), (".config", ""), (".config", ".config")] {
        let home = home(FILE, "region = 'eu-1'");
        let mode = |mode| {
            let shut = home.path().join(shut);
            std::fs::set_permissions(shut, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let mut show = at(&home, &["config", "show"]);
        if !xdg.is_empty() {
            show.env("XDG_CONFIG_HOME", home.path().join(xdg));
        }
        let mut show = without_override(show);
        run(&mut show).clean();
        mode(0o000);
        let refused = run(&mut show);
        mode(0o755);
        refused.refused(4, &["~/.config/flatout/config.toml: Permission denied", "FLATOUT_CONFIG"]);
    }
}

#[test]
fn a_wrong_choice_of_file_or_profile() {
    let home = home(".aws/config", "[profile dev]\nregion = eu-1\n");
    let check = |arguments: &[&str], variables: &[(&str, &str)], says: &[&str]| {
        run(at(&home, arguments).envs(variables.iter().copied())).refused(4, says);
    };
    let show = ["config", "show"];
    check(&["config", "show", "--profile", "dve"], &[], &["--profile: there is no profile 'dve'", "'dev'"]);
    check(
        &show,
        &[("FLATOUT_PROFILE", "nope")],
        &["FLATOUT_PROFILE: there is no profile 'nope'", "there is dev"],
    );
    check(
        &show,
        &[("FLATOUT_CONFIG", "/nowhere/x.toml")],
        &["/nowhere/x.toml: No such file", "FLATOUT_CONFIG"],
    );
    check(&show, &[("FLATOUT_CONFG", "x")], &["did you mean FLATOUT_CONFIG?"]);
    check(&["config", "shwo"], &[], &["'shwo'", "'show'"]);
    check(&["config", "show", "--paralel", "3"], &[], &["'--paralel'", "'--parallel'"]);
    let shown = run(&mut at(&home, &["config", "show", "--profile", "dev"])).clean();
    says(&shown, "region eu-1 found: ~/.aws/config:2: region");
}

#[test]
fn files_that_cannot_be_made_sense_of_are_said_and_passed_over() {
    let home = home(".aliyun/config.json", "{");
    let shown = run(&mut at(&home, &["config", "show"]));
    assert_eq!(shown.code, Some(0));
    assert_eq!(shown.stderr, "flatout: ~/.aliyun/config.json:1: no JSON, passed over\n");
}
