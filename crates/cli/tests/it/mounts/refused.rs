//! What cannot be mounted: refused with the exit code that it has elsewhere, before anything is mounted.

use std::fs;
use std::process::Command;
use std::time::Duration;

use super::{Place, is_alive};
use crate::objects::Buckets;
use crate::program::{quoted, run, signal, wait_until};
use crate::raw::{Answer, Raw, Then};

#[test]
fn roots_that_cannot_be_listed() {
    let (open, locked, place) = (
        Buckets::new(&[("bucket/key", b"content")]),
        Buckets::locked(&[("bucket/key", b"content")]),
        Place::new(),
    );
    for more in [&[][..], &["--foreground"]] {
        run(&mut place.mount("s3://missing", &open.url(), more))
            .refused(1, &["mount: s3://missing: no such bucket"]);
        run(&mut place.mount("s3://bucket", &locked.url(), more))
            .refused(5, &["mount: s3://bucket: access denied", "hint: "]);
        let nobody =
            run(&mut place.mount("s3://bucket", "http://127.0.0.1:1", &[more, &["--retries", "0"]].concat()));
        nobody.refused(1, &["127.0.0.1:1"]);
        run(&mut place.mount("http://host/folder", &open.url(), more)).refused(4, &["no listing"]);
        run(&mut place.mount("bucket", &open.url(), more)).refused(4, &["bucket"]);
        place.is_clear();
    }
}

#[test]
fn a_prefix_with_nothing_below_it_is_an_empty_folder_and_says_so() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content")]), Place::new());
    let mount = |more: &[&str]| run(&mut place.mount("s3://bucket/nothing/here", &origin.url(), more));
    let note = "mount: s3://bucket/nothing/here/: nothing lies under this prefix: it is a folder all the same, empty until something does";
    for more in [&[][..], &["--dry-run"]] {
        let said = mount(more);
        assert_eq!((said.code, said.stderr), (Some(0), format!("flatout: {note}\n")));
        if more.is_empty() {
            assert_eq!(crate::folder::names(&place.mnt()), [""; 0]);
            place.unmounted();
        }
    }
    let said = mount(&["--json", "--quiet"]).clean();
    assert_eq!(said.events()[0]["note"], note);
    place.unmounted();
    let said = mount(&["--json", "--quiet", "--dry-run"]).clean();
    assert_eq!(said.events()[0]["note"], note);
    // A bucket is there, whatever is in it; so is a folder that somebody made.
    std::fs::create_dir(origin.root().join("empty")).unwrap();
    place.mounted("s3://empty", &origin.url(), &[]);
    place.unmounted();
}

#[test]
fn an_object_is_no_folder() {
    let objects: &[(&str, &[u8])] =
        &[("bucket/top", b"x"), ("bucket/llama/model.gguf", b"content"), ("bucket/llama/a/b", b"x")];
    let (origin, place) = (Buckets::new(objects), Place::new());
    for more in [&[][..], &["--foreground"], &["--dry-run"]] {
        for source in ["s3://bucket/llama/model.gguf", "s3://bucket/llama/model.gguf/"] {
            run(&mut place.mount(source, &origin.url(), more)).refused(
                4,
                &[
                    "mount: s3://bucket/llama/model.gguf: is an object, and a folder is wanted",
                    "mount the folder that it lies in: s3://bucket/llama/\n",
                ],
            );
        }
        run(&mut place.mount("s3://bucket/top", &origin.url(), more)).refused(4, &["lies in: s3://bucket\n"]);
        place.is_clear();
    }
}

#[test]
fn a_dry_run_has_its_event() {
    let (origin, place) = (Buckets::new(&[("bucket/folder/key", b"content")]), Place::new());
    let said = run(&mut place.mount("s3://bucket/folder", &origin.url(), &["--dry-run", "--json"])).clean();
    let want = serde_json::json!({
        "v": 1, "event": "mountable", "source": "s3://bucket/folder/", "mount_point": place.mnt_text(),
    });
    assert_eq!(said.events(), [want]);
    place.is_clear();
}

#[test]
fn json_errors_are_those_of_every_command() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content")]), Place::new());
    let ended = run(&mut place.mount("s3://missing", &origin.url(), &["--json"]));
    let error = ended.events().remove(0);
    assert_eq!(
        (&error["event"], &error["kind"], &error["exit"]),
        (&"error".into(), &"not_found".into(), &1.into())
    );
    assert_eq!(ended.code, Some(1));
}

#[test]
fn places_where_nothing_can_be_mounted() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content")]), Place::new());
    fs::write(place.path().join("file"), "x").unwrap();
    fs::write(place.at("inside"), "x").unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let url = origin.url();
    let mount = |mnt: &str, more: &[&str]| {
        run(&mut place.flatout(
            &[&["mount", "s3://bucket", mnt, "--endpoint-url", &url, "--no-sign-request"], more].concat(),
        ))
    };
    mount(&at("none"), &[]).refused(4, &["none: No such file or directory", "mkdir -p"]);
    mount(&at("file"), &[]).refused(4, &["file: is not a folder"]);
    mount(&at("mnt"), &[]).refused(4, &["mnt: is not empty", "nonempty"]);
    for descriptor in ["/dev/fd/77", "/proc/self/fd/77", "/proc/self/fd/0"] {
        mount(descriptor, &[]).refused(4, &[descriptor, "is no open /dev/fuse"]);
    }
    place.is_clear();
    mount(&at("mnt"), &["-o", "nonempty"]).clean();
    assert_eq!(crate::folder::names(&place.mnt()), ["key"]);
    for more in [&[][..], &["-o", "nonempty"], &["--dry-run"]] {
        mount(&at("mnt"), more).refused(4, &["already", "flatout umount"]);
    }
    place.unmounted();
    assert_eq!(fs::read(place.at("inside")).unwrap(), b"x");
}

#[test]
fn ports_and_logs_that_cannot_be_had() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content")]), Place::new());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    run(&mut place.mount("s3://bucket", &origin.url(), &["--metrics", &port]))
        .refused(1, &["--metrics", "another port"]);
    let log = place.path().join("state");
    let log = ["--log", log.to_str().unwrap()];
    run(&mut place.mount("s3://bucket", &origin.url(), &log))
        .refused(1, &["--log", "state: Is a directory", "name a file"]);
    place.is_clear();
}

#[test]
fn numbers_that_could_not_be_written_at_the_end() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content")]), Place::new());
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    fs::write(at("file"), "x").unwrap();
    for (file, why) in [
        (at("none/stats.json"), "No such file or directory"),
        (at("file/stats.json"), "Not a directory"),
        (at("state"), "Is a directory"),
    ] {
        // Root's mount made the folder that the path of a log names.
        for name in ["stats", "log"] {
            for more in [&[format!("--{name}"), file.clone()], &["-o".into(), format!("{name}={file}")]] {
                let more = more.each_ref().map(String::as_str);
                run(&mut place.mount("s3://bucket", &origin.url(), &more)).refused(
                    1,
                    &[&format!("--{name} {file}: {why}"), "hint: name a file in a folder that is there"],
                );
                place.is_clear();
            }
        }
        assert!(!fs::exists(at("none")).unwrap());
    }
    for port in ["70000", "9100x", "-", "localhost"] {
        run(&mut place.mount("s3://bucket", &origin.url(), &["--metrics", port]))
            .refused(4, &["--metrics", "write a port, 1 to 65535, or 0 for a free one"]);
    }
}

#[test]
fn nothing_to_unmount() {
    let place = Place::new();
    place.umount(&[]).refused(4, &["nothing is mounted there", "findmnt"]);
    run(&mut place.flatout(&["umount", "/proc"]))
        .refused(4, &["is a mount of proc, not of Flatout", "umount /proc"]);
    let none = place.path().join("none");
    run(&mut place.flatout(&["umount", none.to_str().unwrap()])).refused(4, &["No such file"]);
}

/// An origin that takes connections and says nothing.
fn silent() -> Raw {
    Raw::start(|_| Answer { bytes: Vec::new(), then: Then::Silence })
}

#[test]
fn ctrl_c_while_the_origin_says_nothing_leaves_nothing() {
    let (origin, place) = (silent(), Place::new());
    for foreground in [false, true] {
        let more: &[&str] = if foreground { &["--foreground"] } else { &[] };
        let mut command = place.mount("s3://bucket", &format!("http://{}", origin.address), more);
        let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        // Its doors are there before the origin is asked.
        wait_until("it to ask", || !place.pids().is_empty());
        let pid = place.pid();
        std::thread::sleep(Duration::from_millis(50));
        signal("INT", child.id());
        let ended = crate::program::ended(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(130), "foreground: {foreground}");
        assert_eq!(ended.stderr, "flatout: error: mount: interrupted\n", "foreground: {foreground}");
        wait_until("both to end", || !is_alive(pid));
        place.is_clear();
    }
}

/// In a name space of its own, with a /dev/fuse and a /etc/fuse.conf as most machines have them.
#[test]
fn a_user_who_may_not_mount_goes_by_fusermount() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content")]), Place::new());
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let own = Command::new("chown").args(["-R", "65534:65534"]).arg(place.path()).status().unwrap();
    assert!(own.success());
    for (conf, with) in [("", ""), ("user_allow_other\n", "--allow-other")] {
        fs::write(at("fuse.conf"), conf).unwrap();
        let script = format!(
            r#"set -e
            mount -t tmpfs -o dev none {dev}; mknod {dev}/fuse c 10 229; chmod 666 {dev}/fuse; mount --bind {dev}/fuse /dev/fuse
            touch /etc/fuse.conf; mount --bind {fuse_conf} /etc/fuse.conf
            as() {{ setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }}
            flatout() {{ as "$PROGRAM" "$@"; }}
            mounts() {{ flatout mount s3://bucket {mnt} --endpoint-url {url} --no-sign-request "$@"; }}
            if [ -z "{with}" ]; then if mounts --allow-other; then exit 9; fi; echo >&2; fi
            mounts {with}; as cat {mnt}/key
            if [ -n "{with}" ]; then cat {mnt}/key; fi
            flatout umount {mnt}"#,
            dev = quoted(at("state")),
            fuse_conf = quoted(at("fuse.conf")),
            mnt = quoted(place.mnt_text()),
            url = origin.url(),
        );
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
        place.within(&mut command);
        command
            .env_remove("XDG_STATE_HOME")
            .env("HOME", at("run"))
            .env("PROGRAM", env!("CARGO_BIN_EXE_flatout"));
        let ended = run(command.env("AWS_EC2_METADATA_DISABLED", "true"));
        assert_eq!(ended.code, Some(0), "{}{}", ended.text(), ended.stderr);
        let read = ended.text().matches("content").count();
        assert_eq!(read, if with.is_empty() { 1 } else { 2 }, "{}", ended.text());
        // Whoever may not raise it is told once what root would run.
        let told: Vec<&str> = ended.stderr.lines().filter(|line| line.contains("128 KiB")).collect();
        assert_eq!(told.len(), 1, "{}", ended.stderr);
        assert!(told[0].contains("read_ahead_kb"), "{}", told[0]);
        if with.is_empty() {
            assert!(
                ended.stderr.contains("user_allow_other") && ended.stderr.contains("/etc/fuse.conf"),
                "{}",
                ended.stderr
            );
        }
        place.is_clear();
    }
}

#[test]
fn a_device_that_may_not_be_opened_is_named_with_what_to_do() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content")]), Place::new());
    let own = Command::new("chown").args(["-R", "65534:65534"]).arg(place.path()).status().unwrap();
    assert!(own.success());
    let script = format!(
        r#"set -e
        mount -t tmpfs -o dev none {dev}; mknod {dev}/fuse c 10 229; chmod 600 {dev}/fuse; mount --bind {dev}/fuse /dev/fuse
        mounts() {{ "$@" "$PROGRAM" mount s3://bucket {mnt} --endpoint-url {url} --no-sign-request; }}
        if mounts setpriv --reuid=65534 --regid=65534 --clear-groups; then exit 9; fi
        umount /dev/fuse; mount -o remount,nodev {dev}; mount --bind {dev}/fuse /dev/fuse
        if mounts env; then exit 9; fi"#,
        dev = quoted(place.path().join("state")),
        mnt = quoted(place.mnt_text()),
        url = origin.url(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    place.within(&mut command);
    command.env_remove("XDG_STATE_HOME").env("HOME", place.path()).env("AWS_EC2_METADATA_DISABLED", "true");
    let ended = run(command.env("PROGRAM", env!("CARGO_BIN_EXE_flatout")));
    assert_eq!(ended.code, Some(0), "{}{}", ended.text(), ended.stderr);
    let said: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(said.len(), 4, "{}", ended.stderr);
    let what = format!("flatout: error: mount: {}: ", place.mnt_text());
    for (line, reason) in [(0, "failed to open /dev/fuse"), (2, "cannot open /dev/fuse: Permission denied")] {
        assert!(said[line].starts_with(&what) && said[line].contains(reason), "{}", ended.stderr);
        assert!(said[line + 1].contains("--device /dev/fuse"), "{}", ended.stderr);
    }
    place.is_clear();
}
