//! Users whose home cannot be written to, as services have them: they mount in the background all the same,
//! and `top` and `umount` find what they have mounted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use super::Place;
use crate::objects::Buckets;
use crate::program::{Ended, run};

/// Runs `script` as root in a mount namespace of its own, in which `mounts VARIABLE=VALUE…` mounts, looks and
/// unmounts as nobody, with these variables alone. The place is /mnt there, and /tmp is empty.
pub fn in_namespace(place: &Place, origin: &str, script: &str) -> Ended {
    let own = Command::new("chown").args(["-R", "65534:65534"]).arg(place.path()).status().unwrap();
    assert!(own.success());
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let whole = format!(
        r#"set -e
        mount --bind {place} /mnt; touch /mnt/program; mount --bind "$PROGRAM" /mnt/program
        mount -t tmpfs -o dev,mode=1777 none /tmp; mount -t tmpfs -o dev none /mnt/state
        mknod /mnt/state/fuse c 10 229; chmod 666 /mnt/state/fuse; mount --bind /mnt/state/fuse /dev/fuse
        trap 'umount -l /mnt/mnt 2>/dev/null || true' EXIT
        flatout() {{
            setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all env -i PATH="$PATH" \
                AWS_EC2_METADATA_DISABLED=true "$@"
        }}
        mounts() {{
            flatout "$@" /mnt/program mount s3://bucket /mnt/mnt --endpoint-url {origin} --no-sign-request --kernel-readahead 128KiB
            flatout "$@" cat /mnt/mnt/key; flatout "$@" /mnt/program top --once | grep -o 's3://bucket on /mnt/mnt$' || true
            flatout "$@" /mnt/program umount /mnt/mnt
        }}
        {script}"#,
        place = place.path().display(),
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &whole]);
    run(command.env("PROGRAM", env!("CARGO_BIN_EXE_flatout")))
}

#[test]
fn a_service_without_a_home_mounts_in_the_background() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content\n")]), Place::new());
    let temporary = "/tmp/flatout-65534/mount-mnt-mnt.log";
    for (variables, log) in [
        ("", temporary),
        ("HOME=", temporary),
        ("HOME=/nonexistent", temporary),
        ("HOME=/proc", temporary),
        ("HOME=/dev/null", temporary),
        ("HOME=/mnt/readonly", temporary),
        ("HOME=/proc XDG_RUNTIME_DIR=/nonexistent", temporary),
        ("HOME=/proc XDG_RUNTIME_DIR=/mnt/run", "/mnt/run/flatout/mount-mnt-mnt.log"),
        ("HOME=/proc XDG_STATE_HOME=/mnt/run/state", "/mnt/run/state/flatout/mount-mnt-mnt.log"),
        ("HOME=/mnt/run", "/mnt/run/.local/state/flatout/mount-mnt-mnt.log"),
    ] {
        let script = format!(
            "mkdir -m 555 -p /mnt/readonly; mounts {variables}; cat {log}; stat -c '%a' $(dirname {log})"
        );
        let ended = in_namespace(&place, &origin.url(), &script);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{variables}: {}", ended.text());
        let lines: Vec<&str> = ended.text().lines().collect();
        assert!(lines[0].ends_with(&format!(", log {log})")), "{variables}: {lines:?}");
        assert_eq!(lines[1..4], ["content", "s3://bucket on /mnt/mnt", "unmounted /mnt/mnt"], "{variables}");
        assert!(
            lines[4].contains("is mounted on") && lines[5].ends_with("Z unmounted"),
            "{variables}: {lines:?}"
        );
        assert_eq!(lines[6..], ["700"], "{variables}");
    }
}

#[test]
fn a_home_that_may_not_be_read_is_passed_over() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content\n")]), Place::new());
    let ended = in_namespace(&place, &origin.url(), "mkdir -m 700 /mnt/other; mounts HOME=/mnt/other");
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.text().contains("log /tmp/flatout-65534/"), "{}", ended.text());
    let passed_over = "flatout: ~/.config/flatout/config.toml: Permission denied, passed over\n";
    assert_eq!(ended.stderr.matches(passed_over).count(), 1, "{}", ended.stderr);
}

/// Somebody else has made the folder below /tmp: nothing of ours goes there.
#[test]
fn without_any_folder_there_is_no_log_and_a_line_says_so() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content\n")]), Place::new());
    for trap in ["mkdir -m 777 /tmp/flatout-65534", "ln -s /mnt/run /tmp/flatout-65534"] {
        let script = format!("{trap}; mounts HOME=/proc; ls -A /tmp/flatout-65534");
        let ended = in_namespace(&place, &origin.url(), &script);
        assert_eq!(ended.code, Some(0), "{trap}: {}", ended.stderr);
        let lines: Vec<&str> = ended.text().lines().collect();
        assert!(
            lines[0].starts_with("s3://bucket is mounted on /mnt/mnt (process ") && !lines[0].contains("log"),
            "{lines:?}"
        );
        assert_eq!(lines[1..], ["content", "unmounted /mnt/mnt"], "{trap}");
        let said: Vec<&str> = ended.stderr.lines().collect();
        assert_eq!(said.len(), 2, "{trap}: {}", ended.stderr);
        assert!(
            said[0].contains("`flatout top` will not show it") && said[1].contains("no log is kept"),
            "{said:?}"
        );
    }
}
