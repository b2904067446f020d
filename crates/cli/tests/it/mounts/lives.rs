//! A mount from its beginning to its end, in the background and in the foreground.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::{Foreground, Place, is_alive};
use crate::objects::{Buckets, bytes};
use crate::program::{run, shell, signal, signal_until};

fn buckets() -> Buckets {
    Buckets::new(&[
        ("bucket/large", &bytes(3 << 20)),
        ("bucket/folder/small", b"small"),
        ("bucket/folder/empty", b""),
        ("other/key", b"of another bucket"),
    ])
}

#[test]
fn in_the_background_until_it_is_unmounted() {
    let (origin, place) = (buckets(), Place::new());
    let said = place.mounted("s3://bucket", &origin.url(), &[]);
    assert!(
        said.text().contains(&format!("s3://bucket is mounted on {}", place.mnt_text())),
        "{}",
        said.text()
    );
    assert_eq!(fs::read(place.at("large")).unwrap(), bytes(3 << 20));
    assert_eq!(fs::read(place.at("folder/small")).unwrap(), b"small");
    assert_eq!(fs::read(place.at("folder/empty")).unwrap(), b"");
    assert_eq!(crate::folder::names(&place.mnt()), ["folder", "large"]);
    // It has let go of everything that it was started with.
    let pid = place.pid();
    let link = |name: &str| fs::read_link(format!("/proc/{pid}/{name}")).unwrap();
    assert_eq!(link("cwd").to_str(), Some("/"));
    assert!(["fd/0", "fd/1"].map(link).iter().all(|to| to.to_str() == Some("/dev/null")));
    let session = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let session = session.rsplit(')').next().unwrap().split_whitespace().nth(3).unwrap().to_owned();
    assert_eq!(session, pid.to_string(), "a session of its own");
    assert!(place.log().contains("is mounted on"), "{}", place.log());
    place.unmounted();
    assert!(place.log().ends_with("Z unmounted\n"), "{}", place.log());
    assert!(!is_alive(pid));
}

#[test]
fn in_the_foreground_until_it_is_unmounted_by_somebody() {
    let (origin, place) = (buckets(), Place::new());
    for how in [["flatout", "umount"], ["umount", "--"], ["fusermount3", "-u"]] {
        let mount = place.in_foreground("s3://bucket/folder", &origin.url(), &[]);
        assert_eq!(crate::folder::names(&place.mnt()), ["empty", "small"]);
        match how[0] {
            "flatout" => place.umount(&[]).clean(),
            program => run(std::process::Command::new(program).arg(how[1]).arg(place.mnt())).clean(),
        };
        let ended = mount.end();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "flatout: unmounted\n"), "{how:?}");
        place.is_clear();
    }
}

#[track_caller]
fn ends_by(name: &str, mount: Foreground) {
    signal(name, mount.pid());
    let ended = mount.end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), "flatout: unmounted\n"), "{name}");
}

#[test]
fn in_the_foreground_until_a_signal() {
    let (origin, place) = (buckets(), Place::new());
    for name in ["TERM", "INT", "HUP"] {
        ends_by(name, place.in_foreground("s3://bucket", &origin.url(), &[]));
        place.is_clear();
    }
}

#[test]
fn the_first_signal_waits_for_who_uses_it_and_the_second_does_not() {
    let (origin, place) = (buckets(), Place::new());
    let mount = place.in_foreground("s3://bucket", &origin.url(), &[]);
    let open = fs::File::open(place.at("large")).unwrap();
    signal("TERM", mount.pid());
    place.umount(&[]).refused(1, &["umount: ", "use", "--lazy"]);
    assert!(place.is_mounted());
    signal_until("TERM", mount.pid(), || (!place.is_mounted()).then_some(()));
    assert!(is_alive(mount.pid()), "somebody has a file open");
    assert_eq!(open.metadata().unwrap().len(), 3 << 20);
    drop(open);
    let ended = mount.end();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("something still uses it: process ")
            && ended.stderr.contains("a second signal"),
        "{}",
        ended.stderr
    );
    place.is_clear();
}

#[test]
fn lazily_out_of_sight_while_somebody_reads() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    let pid = place.pid();
    let open = fs::File::open(place.at("large")).unwrap();
    place.umount(&["--lazy"]).clean();
    assert!(!place.is_mounted() && is_alive(pid));
    let mut read = Vec::new();
    std::io::Read::read_to_end(&mut &open, &mut read).unwrap();
    assert_eq!(read, bytes(3 << 20));
    drop(open);
    place.is_clear();
}

#[test]
fn all_buckets_are_folders() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://", &origin.url(), &[]);
    assert_eq!(crate::folder::names(&place.mnt()), ["bucket", "other"]);
    assert_eq!(fs::read(place.at("other/key")).unwrap(), b"of another bucket");
    assert_eq!(fs::read(place.at("bucket/folder/small")).unwrap(), b"small");
    place.unmounted();
}

#[test]
fn a_dry_run_mounts_nothing() {
    let (origin, place) = (buckets(), Place::new());
    let said = run(&mut place.mount("s3://bucket/folder", &origin.url(), &["--dry-run"])).clean();
    assert_eq!(said.text(), "s3://bucket/folder/ can be mounted\n");
    run(&mut place.mount("s3://missing", &origin.url(), &["--dry-run"])).refused(1, &["missing"]);
    place.is_clear();
}

#[test]
fn json_says_where_everything_is() {
    let (origin, place) = (buckets(), Place::new());
    let mounted =
        place.mounted("s3://bucket", &origin.url(), &["--json", "--metrics", "0"]).events().remove(0);
    assert_eq!((&mounted["event"], &mounted["source"]), (&"mounted".into(), &"s3://bucket".into()));
    assert_eq!(mounted["pid"], place.pid());
    for path in ["log", "socket", "mount_point"] {
        assert!(std::path::Path::new(mounted[path].as_str().unwrap()).exists(), "{mounted}");
    }
    assert!(mounted["metrics"].as_str().unwrap().ends_with("/metrics"), "{mounted}");
    let unmounted = place.umount(&["--json"]).clean().events().remove(0);
    assert_eq!((&unmounted["event"], &unmounted["stale"]), (&"unmounted".into(), &false.into()));
    place.is_clear();
}

#[test]
fn what_is_said_ends_with_the_mount_though_its_process_goes_on() {
    // A shell's $(…) waits for everybody who has its pipe: `run` does the same, so it would hang here.
    let (origin, place) = (buckets(), Place::new());
    let line = r#"said=$("$0" "$@" 2>&1); echo "<$said>""#;
    let mnt = place.mnt_text();
    let mut command = crate::program::shell(
        line,
        &["mount", "s3://bucket", &mnt, "--endpoint-url", &origin.url(), "--no-sign-request"],
    );
    place.within(&mut command);
    let ended = run(&mut command).clean();
    assert!(ended.text().contains("is mounted on"), "{}", ended.text());
    place.unmounted();
}

#[test]
fn a_relative_mount_point_and_log_are_those_of_who_calls() {
    let (origin, place) = (buckets(), Place::new());
    let mut command = place.flatout(&[
        "mount",
        "s3://bucket",
        "mnt",
        "--endpoint-url",
        &origin.url(),
        "--no-sign-request",
        "--log",
        "here.log",
        "--stats",
        "stats.json",
    ]);
    run(command.current_dir(place.path())).clean();
    assert!(place.is_mounted());
    place.unmounted_at("mnt");
    place.is_clear();
    assert!(fs::read_to_string(place.path().join("here.log")).unwrap().contains("unmounted"));
    let stats = fs::read_to_string(place.path().join("stats.json")).unwrap();
    assert_eq!(crate::program::events(&stats)[0]["event"], "mount_stats");
    assert_eq!(fs::metadata(place.path().join("here.log")).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn a_link_to_the_mount_point_is_the_mount_point() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    let link = place.path().join("link");
    std::os::unix::fs::symlink(place.mnt(), &link).unwrap();
    place.unmounted_at(link.to_str().unwrap());
    place.is_clear();
}

/// By whoever has the right to mount: the program itself then needs none.
#[test]
fn a_connection_that_is_handed_over_is_served() {
    let (origin, place) = (buckets(), Place::new());
    let own = std::process::Command::new("chown").args(["-R", "65534:65534"]).arg(place.path()).status();
    assert!(own.unwrap().success());
    let line = r#"set -e; exec 7<>/dev/fuse
        mount -i -t fuse.flatout -o ro,allow_other,fd=7,rootmode=40000,user_id=0,group_id=0 given "$1"
        setpriv --reuid=65534 --regid=65534 --clear-groups --bounding-set=-all \
            "$0" mount s3://bucket "$2" --endpoint-url "$3" --no-sign-request $4 &
        exec 7<&-; cat "$1/folder/small"; umount "$1"; wait $!"#;
    for (form, more) in [("/dev/fd/7", ""), ("/proc/self/fd/7", ""), ("/dev/fd/7", "--foreground")] {
        let mut command = shell(line, &[&place.mnt_text(), form, &origin.url(), more]);
        place.within(&mut command);
        let ended = run(&mut command);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        let said = format!("s3://bucket is mounted on {form} ");
        assert!(ended.text().contains("small") && ended.text().contains(&said), "{}", ended.text());
        place.is_clear();
    }
}
