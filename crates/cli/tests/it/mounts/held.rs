//! Mounts that others keep: a copy of the mount namespace, an overlay, a bind mount, a loop device, a
//! process. `umount` names them, does not wait for them, and the process ends when they do.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use super::{Place, User, is_alive};
use crate::mountinfo::is_mounted;
use crate::objects::{Buckets, bytes};
use crate::program::{Ended, run, signal, wait_until};

fn buckets() -> Buckets {
    Buckets::new(&[("bucket/large", &bytes(3 << 20)), ("bucket/folder/small", b"small")])
}

#[track_caller]
fn succeeds(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A process with a copy of the mount namespace, which keeps what is mounted by now.
pub fn in_a_copy(mnt: &Path) -> User {
    let user = User::start("unshare", &["--mount", "sleep", "300"]);
    let path = format!("/proc/{}", user.pid());
    let has_begun = || fs::read_to_string(format!("{path}/comm")).is_ok_and(|name| name == "sleep\n");
    wait_until("it to have its own name space", has_begun);
    let table = fs::read_to_string(format!("{path}/mountinfo")).unwrap();
    assert!(table.contains(mnt.to_str().unwrap()), "{table}");
    user
}

/// Gone from here with exit 0, kept alive for `holder`; `top` says the same. What runs beside this test may
/// hold it, too.
#[track_caller]
fn is_held(place: &Place, ended: &Ended, pid: u32, holder: &str) {
    let mnt = place.mnt_text();
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let end = format!(": process {pid} serves it until that ends");
    let says = |line: &str, start: &str| {
        line.starts_with(&format!("{start}no longer mounted here, but "))
            && line.contains(holder)
            && line.ends_with(&end)
    };
    assert!(
        says(ended.stderr.trim_end(), &format!("flatout: umount: {mnt}: ")),
        "{} lacks {holder}",
        ended.stderr
    );
    assert!(!place.is_mounted() && is_alive(pid));
    let shown = run(&mut place.flatout(&["top", "--once"])).clean();
    let start = format!("held: s3://bucket on {mnt}: ");
    assert!(shown.text().lines().any(|line| says(line, &start)), "{} lacks {holder}", shown.text());
    let events = run(&mut place.flatout(&["top", "--once", "--json"])).clean().events();
    let event = events.iter().find(|event| event["event"] == "held_mount").expect("it is held");
    assert_eq!((&event["pid"], &event["mount_point"]), (&pid.into(), &mnt.into()));
    assert!(event["held_by"].as_array().unwrap().iter().any(|held| held["says"] == holder), "{event}");
    // Once more there is nothing to unmount, and why the process is there still.
    place.umount(&[]).refused(4, &["nothing is mounted there", holder]);
}

#[test]
fn a_copy_of_the_mount_namespace_is_named_and_not_waited_for() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    let (pid, user) = (place.pid(), in_a_copy(&place.mnt()));
    let holder = format!(
        "process {} (sleep) has it mounted on {}, in another mount namespace",
        user.pid(),
        place.mnt_text()
    );
    is_held(&place, &place.umount_as_it_is(&[]), pid, &holder);
    // A signal says it, too, and ends nobody's files.
    signal("TERM", pid);
    let is_said = |line: &str| line.contains(&holder) && line.ends_with(": it is served until that ends");
    wait_until("the log to say so", || place.log().lines().any(is_said));
    let inside = format!("/proc/{}/root{}", user.pid(), place.at("folder/small").display());
    assert_eq!(fs::read(inside).unwrap(), b"small");
    drop(user);
    wait_until("its end", || !is_alive(pid));
    place.is_clear();
}

#[test]
fn json_names_who_holds_it() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    let user = in_a_copy(&place.mnt());
    let unmounted = place.umount(&["--json", "--quiet"]).clean().events().remove(0);
    let want = serde_json::json!({
        "by": "mount", "pid": user.pid(), "command": "sleep", "path": place.mnt_text(),
        "says": format!(
            "process {} (sleep) has it mounted on {}, in another mount namespace", user.pid(), place.mnt_text()
        ),
    });
    assert_eq!(unmounted["event"], "unmounted");
    assert!(unmounted["held_by"].as_array().unwrap().contains(&want), "{unmounted}");
    drop(user);
    place.is_clear();
}

/// Two processes with one mount point: the first is kept by others, the second is what is mounted.
#[test]
fn a_second_mount_where_one_is_held_ends_by_itself() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[]);
    let (first, user) = (place.pid(), in_a_copy(&place.mnt()));
    assert_eq!(place.umount(&["--quiet"]).code, Some(0));
    place.mounted("s3://bucket/folder", &origin.url(), &[]);
    let second = place.pids().into_iter().find(|pid| *pid != first).unwrap();
    place.umount(&[]).clean();
    wait_until("the second to end", || !is_alive(second));
    assert!(is_alive(first));
    // One that is killed is dead, whoever else was mounted there.
    place.mounted("s3://bucket/folder", &origin.url(), &[]);
    let third = place.pids().into_iter().find(|pid| *pid != first).unwrap();
    signal("KILL", third);
    wait_until("its end", || !is_alive(third));
    let shown = run(&mut place.flatout(&["top", "--once"])).clean();
    let dead = format!("dead: s3://bucket/folder/ on {}: ", place.mnt_text());
    assert!(
        shown.text().contains(&dead) && shown.text().contains("held: s3://bucket on "),
        "{}",
        shown.text()
    );
    place.umount(&[]).clean();
    drop(user);
    wait_until("the first to end", || !is_alive(first));
    place.is_clear();
}

#[test]
fn an_overlay_that_lies_on_it_is_named() {
    let (origin, place) = (buckets(), Place::new());
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    for name in ["merged", "base"] {
        fs::create_dir(at(name)).unwrap();
    }
    place.mounted("s3://bucket", &origin.url(), &[]);
    let (pid, merged) = (place.pid(), at("merged"));
    let layers = format!("lowerdir={}:{}", place.mnt_text(), at("base"));
    succeeds(Command::new("mount").args(["-t", "overlay", "overlay", "-o", &layers, &merged]));
    is_held(&place, &place.umount_as_it_is(&[]), pid, &format!("the overlay on {merged} has it below"));
    assert_eq!(fs::read(Path::new(&merged).join("folder/small")).unwrap(), b"small");
    succeeds(Command::new("umount").arg(&merged));
    wait_until("its end", || !is_alive(pid));
    place.is_clear();
}

#[test]
fn a_bind_mount_elsewhere_is_named() {
    let (origin, place) = (buckets(), Place::new());
    let elsewhere = place.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    place.mounted("s3://bucket", &origin.url(), &[]);
    let pid = place.pid();
    succeeds(Command::new("mount").arg("--bind").arg(place.mnt()).arg(&elsewhere));
    let ended = place.umount_as_it_is(&[]);
    assert_eq!(ended.code, Some(0));
    let holder = format!("it is mounted on {}, too", elsewhere.display());
    assert!(ended.stderr.contains(&holder), "{}", ended.stderr);
    assert!(!place.is_mounted() && is_mounted(&elsewhere) && is_alive(pid));
    place.unmounted_at(elsewhere.to_str().unwrap());
    wait_until("its end", || !is_alive(pid));
    place.is_clear();
}

#[test]
fn who_uses_it_is_named_where_it_cannot_be_unmounted() {
    let sleep = fs::read("/bin/sleep").unwrap();
    let (origin, place) =
        (Buckets::new(&[("bucket/large", &bytes(3 << 20)), ("bucket/sleep", &sleep)]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--file-mode", "555"]);
    let (pid, mnt) = (place.pid(), place.mnt_text());
    let large = place.at("large").display().to_string();
    let users = [
        (
            User::start("sh", &["-c", &format!("cd {mnt}; exec sleep 300")]),
            "(sleep) has its working folder in it",
        ),
        (
            User::start("sh", &["-c", &format!("exec sleep 300 3< {large}")]),
            "(sleep) has something of it open",
        ),
        (User::start(place.at("sleep").to_str().unwrap(), &["300"]), "(sleep) has a file of it mapped"),
    ];
    let all_are_named =
        |says: &str| users.iter().all(|(user, how)| says.contains(&format!("process {} {how}", user.pid())));
    // Each is another program until it sleeps.
    wait_until("all to be named", || {
        let refused = place.umount(&[]);
        assert!(refused.code == Some(1) && place.is_mounted(), "{}", refused.stderr);
        all_are_named(&refused.stderr)
    });
    place.umount(&[]).refused(1, &["something still uses it: process ", "--lazy"]);
    let lazily = place.umount_as_it_is(&["--lazy"]);
    assert_eq!(lazily.code, Some(0));
    let end = format!("process {pid} serves it until that ends");
    // A copy of the mount namespace that whatever runs beside this test has comes first.
    let says_so = all_are_named(&lazily.stderr) || lazily.stderr.contains("in another mount namespace");
    assert!(says_so && lazily.stderr.contains(&end), "{}", lazily.stderr);
    assert!(!place.is_mounted() && is_alive(pid));
    drop(users);
    wait_until("its end", || !is_alive(pid));
    place.is_clear();
}

/// In a name space of its own, with a /dev/fuse as most machines have it. Root's copy of it is not for others
/// to look at.
#[test]
fn a_holder_that_a_user_may_not_look_at_is_no_failure() {
    let (origin, place) = (buckets(), Place::new());
    let own = Command::new("chown").args(["-R", "65534:65534"]).arg(place.path()).status().unwrap();
    assert!(own.success());
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let script = format!(
        r#"set -e
        mount -t tmpfs -o dev none {dev}; mknod {dev}/fuse c 10 229; chmod 666 {dev}/fuse; mount --bind {dev}/fuse /dev/fuse
        flatout() {{ setpriv --reuid=65534 --regid=65534 --clear-groups "$PROGRAM" "$@"; }}
        flatout mount s3://bucket {mnt} --endpoint-url {url} --no-sign-request --kernel-readahead 128KiB
        unshare --mount sleep 300 & holder=$!
        while [ "$(cat /proc/$holder/comm)" != sleep ]; do sleep 0.01; done
        flatout umount {mnt}; flatout top --once; kill $holder"#,
        dev = place.path().join("state").display(),
        mnt = place.mnt_text(),
        url = origin.url(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    place.within(&mut command);
    command.env_remove("XDG_STATE_HOME").env("HOME", place.path().join("run"));
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    let ended = run(command.env("PROGRAM", env!("CARGO_BIN_EXE_flatout")));
    assert_eq!(ended.code, Some(0), "{}{}", ended.text(), ended.stderr);
    let held = "no longer mounted here, but something that this user may not look at uses it: process ";
    assert!(ended.stderr.contains(held), "{}", ended.stderr);
    assert!(ended.text().contains(held), "{}", ended.text());
    place.is_clear();
}
