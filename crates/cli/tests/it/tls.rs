//! TLS as a user meets it: `serve --tls`, `--ca-bundle`, and what is said when it does not fit.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::folder::Folder;
use crate::objects::bytes;
use crate::program::{flatout, run, signal};

/// A `flatout serve` with these arguments, over one bucket with one object.
pub struct Served {
    child: Child,
    pub url: String,
    folder: tempfile::TempDir,
}

impl Served {
    pub fn start(tls: &[&str]) -> Served {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("root/bucket")).unwrap();
        fs::write(folder.path().join("root/bucket/key"), bytes(3_000_000)).unwrap();
        let root = folder.path().join("root").display().to_string();
        let authority = folder.path().join("ca.pem").display().to_string();
        let tls: Vec<&str> = if tls.is_empty() { vec!["--tls", &authority] } else { tls.to_vec() };
        let fixed = ["serve", "--root", &root, "--no-auth", "--listen", "127.0.0.1:0"];
        let mut command: Command = flatout(&[&fixed[..], &tls].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("listening on ").expect("it listens").to_owned();
        Served { child, url, folder }
    }

    pub fn authority(&self) -> String {
        self.folder.path().join("ca.pem").display().to_string()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        signal("TERM", self.child.id());
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn an_origin_with_a_certificate_of_the_run_is_read_by_all_commands() {
    let served = Served::start(&[]);
    assert!(served.url.starts_with("https://127.0.0.1:"), "{}", served.url);
    let trust = ["--ca-bundle", &served.authority()];
    let folder = Folder::new();
    let target = folder.at("model");
    let plain = format!("{}/bucket/key", served.url);
    let s3 = ["--endpoint-url", &served.url];
    for (source, more) in [(plain.as_str(), &[][..]), ("s3://bucket/key", &s3)] {
        run(&mut flatout(&[&["cp", source, &target, "--part-size", "256KiB"], &trust[..], more].concat()))
            .clean();
        assert!(fs::read(&target).unwrap() == bytes(3_000_000), "{source}");
        let cat = run(&mut flatout(&[&["cat", source], &trust[..], more].concat())).clean();
        assert!(cat.stdout == bytes(3_000_000), "{source}");
        let stat = run(&mut flatout(&[&["stat", source, "--json"], &trust[..], more].concat())).clean();
        assert_eq!(stat.events()[0]["bytes"], 3_000_000);
    }
    let listed = run(&mut flatout(&[&["ls", "s3://bucket/"], &trust[..], &s3].concat())).clean();
    assert!(listed.text().contains("key"), "{}", listed.text());
}

#[test]
fn the_floor_speaks_tls_too() {
    let served = Served::start(&[]);
    let arguments = ["--repeat", "1", "--floor", "--json", "--part-size", "256KiB", "--landing", "memory"];
    let url = format!("{}/bucket/key", served.url);
    let trust = ["--ca-bundle", &served.authority()];
    let ended = run(&mut flatout(&[&["bench", "get", &url], &arguments[..], &trust].concat())).clean();
    let events = ended.events();
    let floor = events.iter().find(|event| event["op"] == "floor").expect("a run of the floor");
    assert!(floor["shape"].as_str().is_some_and(|shape| shape.starts_with("tokio-rustls ")), "{floor}");
    assert_eq!(floor["bytes"], 3_000_000);
    assert!(events.last().is_some_and(|ratio| ratio["cpu"].is_number()), "{events:?}");
}

#[test]
fn the_floor_of_uploads_speaks_tls_too() {
    let served = Served::start(&[]);
    let arguments = ["--size", "12MiB", "--part-size", "5MiB", "--repeat", "1", "--floor", "--json"];
    let origin = ["--endpoint-url", &served.url, "--ca-bundle", &served.authority()];
    let put = ["bench", "put", "s3://bucket/sent"];
    let events = run(&mut flatout(&[&put[..], &arguments, &origin].concat())).clean().events();
    let floor = events.iter().find(|event| event["op"] == "floor").expect("a run of the floor");
    assert!(floor["shape"].as_str().is_some_and(|shape| shape.starts_with("tokio-rustls ")), "{floor}");
    assert_eq!((&floor["bytes"], &floor["parts"]), (&(12 << 20).into(), &3.into()));
    assert!(events.last().is_some_and(|ratio| ratio["cpu"].is_number()), "{events:?}");
}

#[test]
fn what_does_not_fit_is_said_in_one_line() {
    let served = Served::start(&[]);
    let folder = Folder::new();
    let target = folder.at("model");
    let url = format!("{}/bucket/key", served.url);
    let plain = url.replace("https://", "http://");
    let other = url.replace("127.0.0.1", "127.0.0.2");
    let resolve = other.replace("https://", "").replace("/bucket/key", "");
    let elsewhere = format!("{}:127.0.0.1", resolve);
    let authority = served.authority();
    let trust = ["--ca-bundle", authority.as_str()];
    let nothing = folder.at("none.pem");
    for (source, more, code, says) in [
        (
            &url,
            &[][..],
            1,
            &["read: https://127.0.0.1:", "signed by nobody that is trusted here", "--ca-bundle"][..],
        ),
        (
            &other,
            &[trust[0], trust[1], "--resolve", &elsewhere],
            1,
            &["is for localhost", "not for 127.0.0.2"],
        ),
        (&plain, &trust, 4, &["speaks TLS, not plain HTTP", "hint: use https://"]),
        (&url, &["--ca-bundle", &nothing], 4, &["ca-bundle", "none.pem", "No such file"]),
        (
            &url,
            &["--proxy", "socks5://user:hunter2@h:1"],
            4,
            &["proxy", "socks5:// proxies are not supported"],
        ),
    ] {
        let arguments = [&["cp", source.as_str(), &target], more].concat();
        let refused = run(&mut flatout(&arguments)).refused(code, says);
        assert!(!refused.stderr.contains("hunter2"), "{}", refused.stderr);
        folder.is_untouched();
    }
    let json = run(&mut flatout(&["cp", &url, &target, "--json"]));
    let kinds: Vec<_> = json.events().into_iter().filter(|event| event["event"] == "error").collect();
    assert_eq!(kinds[0]["kind"], "untrusted", "{kinds:?}");
}

#[test]
fn no_password_of_a_proxy_is_said() {
    let folder = Folder::new();
    let target = folder.at("model");
    for proxy in
        ["http://user:hunter2@127.0.0.1:1", "user:hunter2@nowhere.invalid:1", "ftp://user:hunter2@h:1"]
    {
        for url in ["https://origin.invalid/x", "http://origin.invalid/x", "s3://bucket/x"] {
            for arguments in [&["cp", url, &target][..], &["stat", url], &["bench", "get", url]] {
                for form in [&["--json"][..], &[]] {
                    let more = ["--retries", "0", "--proxy", proxy];
                    let ended = run(&mut flatout(&[arguments, &more, form].concat()));
                    let said = format!("{}{}", ended.text(), ended.stderr);
                    assert_ne!(ended.code, Some(0), "{said}");
                    assert!(said.contains("prox") && !said.contains("hunter2"), "{arguments:?}: {said}");
                }
            }
        }
    }
}

#[test]
fn variables_name_proxies_and_authorities() {
    let mut command = flatout(&["cat", "https://origin.invalid/x", "--retries", "0"]);
    run(command.env("HTTPS_PROXY", "http://user:hunter2@127.0.0.1:1"))
        .refused(1, &["https://origin.invalid/x", "cannot connect to the proxy http://127.0.0.1:1"]);
    let mut command = flatout(&["cat", "https://origin.invalid/x"]);
    run(command.env("AWS_CA_BUNDLE", "/nowhere/ca.pem")).refused(4, &["/nowhere/ca.pem", "No such file"]);
    let served = Served::start(&[]);
    let mut command = flatout(&["cat", &format!("{}/bucket/key", served.url)]);
    // Loopback is asked directly, whatever the variables say.
    command.env("HTTPS_PROXY", "http://127.0.0.1:1").env("AWS_CA_BUNDLE", served.authority());
    assert!(run(&mut command).clean().stdout == bytes(3_000_000));
}

#[test]
fn the_file_for_clients_is_that_of_an_earlier_run_or_new() {
    let served = Served::start(&[]);
    let first = fs::read_to_string(served.authority()).unwrap();
    assert!(first.starts_with("# The authority of one run"), "{first}");
    assert!(first.contains("-----BEGIN CERTIFICATE-----") && !first.contains("PRIVATE"), "{first}");
    let authority = served.authority();
    let again = Served::start(&["--tls", &authority]);
    assert_ne!(fs::read_to_string(&authority).unwrap(), first);
    // What the first run made is of no use for the second, and this is said.
    let stale = again.folder.path().join("stale.pem");
    fs::write(&stale, first).unwrap();
    let url = format!("{}/bucket/key", again.url);
    run(&mut flatout(&["cat", &url, "--ca-bundle", stale.to_str().unwrap()]))
        .refused(1, &["signed by nobody"]);
    let mine = again.folder.path().join("mine.pem");
    fs::write(&mine, "my own certificates").unwrap();
    let mine = mine.to_str().unwrap();
    run(&mut flatout(&["serve", "--memory", "--no-auth", "--listen", "127.0.0.1:0", "--tls", mine]))
        .refused(4, &["mine.pem", "is there already", "--tls-cert"]);
    assert_eq!(fs::read_to_string(mine).unwrap(), "my own certificates");
}

#[test]
fn a_certificate_of_ones_own_needs_its_key() {
    let folder = Folder::new();
    let (missing, key) = (folder.at("missing.pem"), folder.at("missing.key"));
    let serve = ["serve", "--memory", "--no-auth", "--listen", "127.0.0.1:0"];
    for (more, says) in [
        (&["--tls-cert", &missing][..], &["--tls-key"][..]),
        (&["--tls-cert", &missing, "--tls-key", &key], &["missing.pem", "No such file", "two PEM files"]),
        (&["--tls", &missing, "--tls-cert", &missing, "--tls-key", &key], &["--tls"]),
    ] {
        run(&mut flatout(&[&serve[..], more].concat())).refused(4, says);
    }
}
