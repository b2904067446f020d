//! Where bytes and lines go besides files: a standard output that is closed or full, pipes, devices.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::Command;

use crate::folder::Folder;
use crate::objects::{Buckets, bytes};
use crate::program::{Ended, flatout, run, shell};

/// Runs the program with its standard output led elsewhere, as `> /dev/full`.
fn led(where_to: &str, arguments: &[&str]) -> Ended {
    run(&mut shell(&format!("exec \"$0\" \"$@\" {where_to}"), arguments))
}

#[test]
fn a_closed_standard_output_took_everything_and_ended_well() {
    let buckets = Buckets::new(&[("bucket/key", b"bytes"), ("bucket/empty", b"")]);
    let (folder, url) = (Folder::new(), buckets.url());
    let at = |key: &str| format!("{url}/bucket/{key}");
    let (key, empty, new) = (at("key"), at("empty"), folder.at("new"));
    let listing = ["ls", "s3://bucket", "--endpoint-url", &url];
    for arguments in [
        &["cat", &key][..],
        &["cat", &empty],
        &["cp", &key, "-"],
        &["cp", &key, "/dev/stdout"],
        &["cp", &key, &new, "--json"],
        &["cp", &key, &new, "--dry-run"],
        &["cp", &key, "-", "--dry-run"],
        &listing,
        &[&listing[..], &["--long"]].concat(),
        &[&listing[..], &["--json"]].concat(),
        &["stat", &key],
        &["config", "show"],
        &["config", "path"],
        &["doctor"],
        &["doctor", "--forget"],
        &["version"],
        &["completions", "bash"],
        &["man"],
        &["top", "--once"],
        &["serve", "--no-auth", "--memory"],
        &["bench", "get", &key],
        &["--help"],
        &["cp", "--help"],
        &["--version"],
    ] {
        let refused =
            led(">&-", arguments).refused(1, &["write: standard output: it is closed", "/dev/null"]);
        assert_eq!(refused.text(), "", "{arguments:?}");
        assert_eq!(folder.names(), ["model"], "{arguments:?}");
    }
}

#[test]
fn what_is_done_without_a_standard_output_ends_well() {
    let buckets = Buckets::new(&[("bucket/key", b"bytes")]);
    let (folder, url) = (Folder::new(), buckets.url());
    let key = format!("{url}/bucket/key");
    led(">&-", &["cp", &key, &folder.at("new")]).clean();
    assert_eq!(fs::read(folder.at("new")).unwrap(), b"bytes");
    led(">&-", &["cp", "-r", "s3://bucket", &folder.at("all"), "--endpoint-url", &url]).clean();
    assert_eq!(fs::read(folder.at("all/key")).unwrap(), b"bytes");
    fs::create_dir(folder.at("man")).unwrap();
    led(">&-", &["man", &folder.at("man")]).clean();
    // Nobody wants it, which somebody has said: for writing, and as Python's subprocess.DEVNULL is open.
    for nowhere in ["> /dev/null", "1<> /dev/null"] {
        for arguments in [&["cat", &key][..], &["version"], &["--help"], &["stat", &key, "--json"]] {
            led(nowhere, arguments).clean();
        }
    }
    // The others that may be closed have nothing to do with it.
    let closed = led("<&- 2>&-", &["cat", &key]);
    assert_eq!((closed.code, closed.text()), (Some(0), "bytes"));
}

#[test]
fn the_manual_of_a_command_became_twenty_pages_in_a_new_folder() {
    let folder = Folder::new();
    let refused = run(&mut flatout(&["man", &folder.at("nocmd")]));
    refused.refused(1, &["nocmd: No such file", "create the folder first", "`flatout COMMAND --help`"]);
    folder.is_untouched();
}

#[test]
fn a_full_standard_output_is_said_once() {
    let buckets = Buckets::new(&[("bucket/a/key", b"bytes"), ("bucket/b", b"")]);
    let (folder, url) = (Folder::new(), buckets.url());
    let (key, all) = (format!("{url}/bucket/a/key"), folder.at("all"));
    let listing = ["ls", "s3://bucket", "--endpoint-url", &url];
    let copy = ["cp", "-r", "s3://bucket", &all, "--endpoint-url", &url];
    for arguments in [
        &listing[..],
        &[&listing[..], &["-rl"]].concat(),
        &[&listing[..], &["--json"]].concat(),
        &[&copy[..], &["--json"]].concat(),
        &["cp", &key, "-"],
        &["cat", &key, &key],
        &["--help"],
        &["--version"],
    ] {
        led("> /dev/full", arguments).refused(1, &["write: standard output: No space left on device"]);
    }
}

#[test]
fn a_copy_failed_though_only_its_report_was_lost() {
    let buckets = Buckets::new(&[("bucket/a/key", b"bytes")]);
    let (folder, url) = (Folder::new(), buckets.url());
    let (key, new, all) = (format!("{url}/bucket/a/key"), folder.at("new"), folder.at("all"));
    let check = |arguments: &[&str], file: &str| {
        let ended = led("> /dev/full", arguments);
        let said = "flatout: cannot report what is done: write: standard output: No space left on device\n";
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(2), said), "{arguments:?}");
        assert_eq!(fs::read(file).unwrap(), b"bytes", "{arguments:?}");
    };
    check(&["cp", &key, &new], &new);
    check(&["cp", "-r", "s3://bucket", &all, "--endpoint-url", &url], &folder.at("all/a/key"));
    // Where nothing is reported, nothing is lost.
    led("> /dev/full", &["cp", &key, &new, "--quiet"]).clean();
    // What failed stays failed.
    led("> /dev/full", &["cp", &format!("{key}-not"), &new]).refused(1, &["no such object"]);
}

#[test]
fn a_device_was_no_target() {
    let object = bytes(3 << 20);
    let buckets = Buckets::new(&[("bucket/key", &object), ("bucket/empty", b"")]);
    let (folder, url) = (Folder::new(), buckets.url());
    let (key, empty) = (format!("{url}/bucket/key"), format!("{url}/bucket/empty"));
    std::os::unix::fs::symlink("/dev/null", folder.at("link")).unwrap();
    for target in ["/dev/null", &folder.at("link")] {
        for source in [&key, &empty] {
            let done = led("", &["cp", source, target]).clean();
            assert!(done.text().contains(&format!("{source} -> {target}: ")), "{}", done.text());
        }
    }
    let events = led("", &["cp", &key, "/dev/null", "--json"]).clean().events();
    assert_eq!((&events[0]["status"], &events[0]["target"]), (&"ok".into(), &"/dev/null".into()));
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let skipped = led("", &["cp", &key, "/dev/null", "--no-clobber"]).clean();
    assert!(skipped.text().contains("1 skipped"), "{}", skipped.text());
    led("", &["cp", &key, "/dev/full"]).refused(1, &["write: /dev/full: No space left on device"]);
    let missing = format!("{url}/bucket/missing");
    led("", &["cp", &missing, "/dev/null"]).refused(1, &["no such object"]);
    led("", &["cp", "-r", "s3://bucket", "/dev/null", "--endpoint-url", &url]).refused(4, &["is no folder"]);
}

#[test]
fn standard_output_has_other_names() {
    let buckets = Buckets::new(&[("bucket/key", b"bytes")]);
    let (folder, key) = (Folder::new(), format!("{}/bucket/key", buckets.url()));
    std::os::unix::fs::symlink("/dev/stdout", folder.at("link")).unwrap();
    for target in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", &folder.at("link")] {
        assert_eq!(led("", &["cp", &key, target]).clean().text(), "bytes", "{target}");
        // What a shell has opened is neither cut off nor replaced.
        fs::write(folder.at("log"), "before, ").unwrap();
        led(&format!(">> '{}'", folder.at("log")), &["cp", &key, target]).clean();
        assert_eq!(fs::read_to_string(folder.at("log")).unwrap(), "before, bytes", "{target}");
    }
    let json = led("", &["cp", &key, "/dev/stdout", "--json"]);
    assert_eq!((json.code, json.text()), (Some(0), "bytes"), "events are on standard error");
    // `>(cat)` of a shell is such a path.
    let other = run(&mut shell("{ \"$0\" cp \"$1\" /dev/fd/3 3>&1 > /dev/null; } | cat", &[&key])).clean();
    assert_eq!(other.text(), "bytes");
}

#[test]
fn a_pipe_with_a_name_was_no_target() {
    let object = bytes(3 << 20);
    let buckets = Buckets::new(&[("bucket/key", &object)]);
    let (folder, key) = (Folder::new(), format!("{}/bucket/key", buckets.url()));
    assert!(Command::new("mkfifo").arg(folder.at("pipe")).status().unwrap().success());
    let pipe = folder.at("pipe");
    let line = "cat \"$2\" > \"$3\" & \"$0\" cp \"$1\" \"$2\" && wait";
    let done = run(&mut shell(line, &[&key, &pipe, &folder.at("read")])).clean();
    assert!(done.text().contains(&format!(" -> {pipe}: 3MiB")), "{}", done.text());
    assert_eq!(fs::read(folder.at("read")).unwrap(), object);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo(), "it stays what it is");
    // A reader that has enough, as behind `|`.
    let line = "head -c 10 \"$2\" > /dev/null & exec \"$0\" cp \"$1\" \"$2\"";
    assert_eq!(run(&mut shell(line, &[&key, &pipe])).clean().text(), "");
    // Nothing comes: its reader is not left waiting.
    let line = "cat \"$2\" & \"$0\" cp \"$1-not\" \"$2\"; code=$?; wait; exit $code";
    run(&mut shell(line, &[&key, &pipe])).refused(1, &["no such object"]);
}

#[test]
fn what_cannot_be_written_in_order_is_refused() {
    let folder = Folder::new();
    let (socket, block) = (folder.at("socket"), block_device(&folder));
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let cp = |target: &str| led("", &["cp", "http://127.0.0.1:1/x", target]);
    cp(&socket).refused(4, &[&socket, "is a socket"]);
    cp(&block).refused(4, &[&block, "is a block device", "hint:", "dd of="]);
}

/// One of our own, which leads to no disk, or where none may be made any that is there.
fn block_device(folder: &Folder) -> String {
    let own = folder.at("block");
    if Command::new("mknod").args([&own, "b", "240", "4321"]).output().unwrap().status.success() {
        return own;
    }
    let is_block = |path: &Path| fs::metadata(path).is_ok_and(|known| known.file_type().is_block_device());
    let devices = fs::read_dir("/dev").unwrap().map(|entry| entry.unwrap().path());
    let any = devices.into_iter().find(|path| is_block(path));
    any.expect("a block device: run as root with CAP_MKNOD").to_str().unwrap().to_owned()
}
