//! Modes, owners, times, links and extended attributes of a mount with `--attributes metadata`, as programs
//! set and see them.

use std::fs;
use std::process::Command;

use super::Place;
use crate::objects::Buckets;
use crate::program::{Ended, quoted, run, shell};

const KEPT: [&str; 2] = ["--attributes", "metadata"];

#[track_caller]
fn script(place: &Place, script: &str) -> Ended {
    run(shell(script, &[]).current_dir(place.mnt()).env("HOME", place.path())).clean()
}

/// What a disk has that holds all of it.
const MADE: &str = "set -e
    umask 022; mkdir a a/b; echo one > a/one; echo two > a/b/two; chmod 600 a/one; chmod 711 a/b
    chown 7:8 a/b/two; touch -d '2001-02-03 04:05:06.000000007 UTC' a/b/two; mkdir empty; chmod 700 empty
    ln -s ../one a/b/link; ln -s nowhere broken; chown -h 5:6 broken
    python3 -c \"import os; os.setxattr('a/one', 'user.color', b'blue'); os.setxattr('a', 'user.x', bytes(range(256)))\"";

const LOOK: &str = "find . -mindepth 1 -printf '%P %y %m %U %G %s %l\n' | sort
    stat -c '%n %.9Y' a/b/two
    python3 -c \"import os; print(os.listxattr('a/one'), os.getxattr('a/one', 'user.color'), len(os.getxattr('a', 'user.x')))\"";

/// Sizes of folders are the file system's own.
fn without_sizes(text: &str) -> String {
    let row = |row: &str| match row.split(' ').collect::<Vec<_>>()[..] {
        [name, "d", mode, uid, gid, _, link] => format!("{name} d {mode} {uid} {gid} {link}"),
        _ => row.to_owned(),
    };
    text.lines().map(row).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_mount_shows_what_a_disk_shows() {
    for dialect in ["s3", "oss"] {
        let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
        fs::remove_file(origin.root().join("bucket/there")).unwrap();
        let local = place.path().join("local");
        fs::create_dir(&local).unwrap();
        let on_disk = |line: &str| run(shell(line, &[]).current_dir(&local)).clean();
        on_disk(MADE);
        let expected = without_sizes(on_disk(LOOK).text());
        place.mounted_by(dialect, &origin.url(), &KEPT);
        script(&place, MADE);
        assert_eq!(without_sizes(script(&place, LOOK).text()), expected, "{dialect}");
        place.unmounted();
        // Another mount finds the same.
        place.mounted_by(dialect, &origin.url(), &KEPT);
        assert_eq!(without_sizes(script(&place, LOOK).text()), expected, "{dialect}");
        // Copies have another time than what they are copies of.
        let times = || script(&place, "find . -type f -printf '%P %Ts\n' | sort").text().to_owned();
        let before = times();
        script(&place, "sleep 1.1; mv a moved; mv moved a; mv a/one one; mv one a/one; cat a/b/link");
        assert_eq!(times(), before, "{dialect}");
        assert_eq!(without_sizes(script(&place, LOOK).text()), expected, "{dialect}");
        place.unmounted();
    }
}

#[test]
fn times_before_1970_are_shown() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &KEPT);
    let seen = "TZ=UTC stat -c %y there";
    let expected = "1968-02-03 04:05:06.250000000 +0000\n";
    assert_eq!(
        script(&place, &format!("touch -d '1968-02-03 04:05:06.25 UTC' there; {seen}")).text(),
        expected
    );
    place.unmounted();
    place.mounted("s3://bucket", &origin.url(), &KEPT);
    assert_eq!(script(&place, seen).text(), expected);
    place.unmounted();
}

#[test]
fn programs_copy_all_of_it() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    let local = place.path().join("local");
    fs::create_dir(&local).unwrap();
    run(shell(MADE, &[]).current_dir(&local)).clean();
    place.mounted("s3://bucket", &origin.url(), &KEPT);
    let from = quoted(&local);
    for copy in [
        format!("cp -a {from} copy"),
        format!("rsync -aX {from}/ copy/"),
        format!("mkdir copy; tar -C {from} --xattrs -cf - . | tar -C copy --xattrs -xpf -"),
    ] {
        script(&place, &format!("set -e; {copy}"));
        let seen = run(shell(LOOK, &[]).current_dir(place.at("copy"))).clean();
        let expected = run(shell(LOOK, &[]).current_dir(&local)).clean();
        assert_eq!(without_sizes(seen.text()), without_sizes(expected.text()), "{copy}");
        let again = run(Command::new("rsync")
            .args(["-aXn", "--itemize-changes"])
            .arg(format!("{}/", local.display()))
            .arg(format!("{}/", place.at("copy").display())))
        .clean();
        assert_eq!(again.text(), "", "{copy}: nothing is left to be copied");
        script(&place, "rm -r copy");
    }
    place.unmounted();
}

#[test]
fn the_kernel_keeps_others_out() {
    let (origin, place) = (Buckets::new(&[("bucket/p/there", b"there")]), Place::new());
    place.mounted("s3://bucket/p", &origin.url(), &["--attributes", "metadata", "--allow-other"]);
    script(&place, "chmod 777 .; echo secret > f; chmod 600 f; mkdir d; chmod 700 d; echo x > d/x");
    let as_nobody = |line: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "bash", "-c", line]);
        run(command.current_dir(place.mnt())).code
    };
    assert_eq!(as_nobody("cat f"), Some(1));
    assert_eq!(as_nobody("ls d"), Some(2));
    assert_eq!(as_nobody("chmod 644 f"), Some(1));
    script(&place, "chmod 644 f; chown 65534 d");
    assert_eq!(as_nobody("cat f && ls d && chmod 755 d && echo mine > d/mine"), Some(0));
    assert_eq!(script(&place, "stat -c '%u %a' d/mine d").text(), "65534 644\n65534 755\n");
    // The kernel keeps modes, and hears that this one is another: what is not root takes privileges away.
    assert_eq!(script(&place, "echo x > s; chmod 4777 s; stat -c %a s").text(), "4777\n");
    assert_eq!(as_nobody("echo y >> s"), Some(0));
    assert_eq!(script(&place, "stat -c %a s").text(), "777\n");
    place.unmounted();
}

#[test]
fn what_was_removed_is_gone_for_the_next_mount() {
    let (origin, place) = (Buckets::new(&[("bucket/d/there", b"there")]), Place::new());
    let run_python =
        |line: &str| script(&place, &format!("python3 -c \"import os; {line}\"")).text().to_owned();
    place.mounted("s3://bucket", &origin.url(), &KEPT);
    run_python("[os.setxattr(name, 'user.a', b'b') for name in ('d', 'd/there')]");
    place.unmounted();
    place.mounted("s3://bucket", &origin.url(), &KEPT);
    assert_eq!(run_python("print(os.getxattr('d', 'user.a'), os.listxattr('d/there'))"), "b'b' ['user.a']\n");
    run_python("[os.removexattr(name, 'user.a') for name in ('d', 'd/there')]");
    place.unmounted();
    place.mounted("s3://bucket", &origin.url(), &KEPT);
    assert_eq!(run_python("print(os.listxattr('d'), os.listxattr('d/there'))"), "[] []\n");
    place.unmounted();
}

/// What no object can be says so.
#[test]
fn what_is_not_kept_is_refused() {
    let (origin, place) = (Buckets::new(&[("bucket/there", b"there")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &KEPT);
    for line in ["ln there hard", "mkfifo fifo", "mknod null c 1 3"] {
        let refused = run(shell(line, &[]).current_dir(place.mnt()));
        assert_eq!(refused.code, Some(1), "{line}");
        assert!(refused.stderr.contains("not supported"), "{line}: {}", refused.stderr);
    }
    let long = "python3 -c \"import os, errno
try: os.setxattr('there', 'user.long', bytes(3000))
except OSError as error: print(errno.errorcode[error.errno])\"";
    assert_eq!(script(&place, long).text(), "ENOSPC\n");
    place.unmounted();
}
