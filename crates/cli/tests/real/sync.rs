//! `flatout sync` against third-party servers, beside `aws s3 sync` and `rclone sync` on the same trees.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::both_ways::python;
use crate::bytes;
use crate::clients::good;
use crate::folder::{Folder, files};
use crate::guard::{installed, on_path};
use crate::minio::{ACCESS_KEY, Bucket, SECRET_KEY};
use crate::program::run;
use crate::versitygw;

/// Names that sort otherwise as files than as keys.
const FILES: [(&str, usize); 6] =
    [("a.b", 1), ("a-1", 22), ("a/b", 333), ("a/c/d", 0), ("a0", 4_444), ("blank + % ü/x&<é>", 5)];

/// Those files and a long one, an hour old.
fn lay_down(folder: &Path, long: usize) {
    for (name, length) in FILES.into_iter().chain([("z", long)]) {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes(length)).unwrap();
        let time = SystemTime::now() - Duration::from_secs(3_600);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
}

/// The long file goes in parts from 8 MiB on.
#[track_caller]
fn check(bucket: &Bucket, long: usize) {
    let (folder, home) = (Folder::new(), Folder::new());
    let [up, down, by_aws] = ["up", "down", "by-aws"].map(|name| folder.at(name));
    lay_down(Path::new(&up), long);
    let (ours, theirs) = (bucket.s3("ours"), bucket.s3("theirs"));
    // Copied, unchanged, deleted.
    let sync = |arguments: &[&str]| -> [u64; 3] {
        let ended = run(&mut bucket.flatout(&[&["sync", "--json"], arguments].concat()));
        // versitygw states no checksum of what came in parts.
        let is_quiet = ended.stderr.is_empty() || ended.stderr.contains("1 name compared by time");
        assert!(ended.code == Some(0) && is_quiet, "{arguments:?}: {}", ended.stderr);
        let summary: Value = ended.events().pop().unwrap();
        ["ok", "unchanged", "deleted"].map(|name| summary[name].as_u64().unwrap())
    };
    let aws = |arguments: &[&str]| {
        let mut command = python(bucket, (ACCESS_KEY, SECRET_KEY), &home, "aws");
        good(run(command.args(["s3", "sync", "--no-progress"]).args(arguments)))
    };
    let all = FILES.len() as u64 + 1;
    for (from, to) in [(&up, &ours), (&ours, &down)] {
        assert_eq!(sync(&[from, to, "--delete"]), [all, 0, 0], "{from} -> {to}");
        for mode in ["--delete", "--checksum", "--size-only", "--exact-timestamps"] {
            assert_eq!(sync(&[from, to, mode]), [0, all, 0], "{from} -> {to} {mode}");
        }
        assert_eq!(aws(&[from, to]), "", "{from} -> {to}: aws-cli finds something to do");
    }
    assert_eq!(files(Path::new(&down)), files(Path::new(&up)));
    // And the other way round.
    aws(&[&up, &theirs]);
    for mode in ["--delete", "--checksum"] {
        assert_eq!(sync(&[&up, &theirs, mode]), [0, all, 0], "{mode} after aws-cli");
    }
    aws(&[&theirs, &by_aws]);
    for mode in ["--delete", "--checksum"] {
        assert_eq!(sync(&[&theirs, &by_aws, mode]), [0, all, 0], "{mode} after aws-cli");
    }
    // Between buckets, and what is deleted.
    let copy = bucket.s3("copy");
    assert_eq!(sync(&[&ours, &copy]), [all, 0, 0]);
    assert_eq!(sync(&[&ours, &copy, "--checksum"]), [0, all, 0]);
    fs::remove_file(Path::new(&up).join("a/b")).unwrap();
    fs::write(Path::new(&up).join("z"), "another").unwrap();
    assert_eq!(sync(&[&up, &ours, "--delete"]), [1, all - 2, 1]);
    assert_eq!(sync(&[&ours, &copy, "--delete"]), [1, all - 2, 1]);
    assert_eq!(sync(&[&copy, &down, "--delete", "--size-only"]), [1, all - 2, 1]);
    assert_eq!(files(Path::new(&down)), files(Path::new(&up)));
}

#[test]
fn versitygw_and_aws_cli_agree_with_a_sync() {
    check(&versitygw::bucket("synced"), 9 << 20);
}

/// aws-cli's uploads in parts fail at MinIO, of themselves: "'ETag'".
#[test]
fn minio_and_aws_cli_agree_with_a_sync() {
    check(&Bucket::new("synced"), 7 << 20);
}

/// Each finds nothing to do after the other, and rclone's own check finds no difference.
#[test]
fn rclone_agrees_with_a_sync() {
    for bucket in [Bucket::new("rclone-synced"), versitygw::bucket("rclone-synced")] {
        let folder = Folder::new();
        let [up, down, by_rclone] = ["up", "down", "by-rclone"].map(|name| folder.at(name));
        lay_down(Path::new(&up), 9 << 20);
        let all = FILES.len() as u64 + 1;
        let sync = |arguments: &[&str]| -> [u64; 3] {
            let ended = run(&mut bucket.flatout(&[&["sync", "--json"], arguments].concat())).clean();
            let summary: Value = ended.events().pop().unwrap();
            ["ok", "unchanged", "deleted"].map(|name| summary[name].as_u64().unwrap())
        };
        // What it did, a line each.
        let rclone = |arguments: &[&str]| -> Vec<String> {
            let mut command = Command::new("timeout");
            command.args(["--kill-after=5", "90", &installed("rclone", &on_path("rclone"))]).args(arguments);
            command.args(["-v", "--stats=0"]).env_clear().env("HOME", folder.path());
            command.envs([("RCLONE_S3_PROVIDER", "Other"), ("RCLONE_S3_ENDPOINT", &bucket.curl.url)]);
            command
                .envs([("RCLONE_S3_ACCESS_KEY_ID", ACCESS_KEY), ("RCLONE_S3_SECRET_ACCESS_KEY", SECRET_KEY)]);
            let ended = run(&mut command);
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            let did = |line: &&str| ["Copied", "Deleted", "Updated"].iter().any(|what| line.contains(what));
            ended.stderr.lines().filter(did).map(str::to_owned).collect()
        };
        let remote = |name: &str| format!(":s3:{}/{name}", bucket.name);
        assert_eq!(sync(&[&up, &bucket.s3("ours")]), [all, 0, 0]);
        assert_eq!(rclone(&["sync", &up, &remote("ours")]), [""; 0]);
        assert_eq!(rclone(&["sync", &up, &remote("theirs")]).len() as u64, all);
        assert_eq!(rclone(&["check", &remote("ours"), &remote("theirs")]), [""; 0]);
        assert_eq!(rclone(&["sync", &remote("theirs"), &by_rclone]).len() as u64, all);
        for mode in ["--delete", "--checksum", "--exact-timestamps"] {
            assert_eq!(sync(&[&up, &bucket.s3("theirs"), mode]), [0, all, 0], "up {mode}");
            assert_eq!(sync(&[&bucket.s3("theirs"), &by_rclone, mode]), [0, all, 0], "down {mode}");
        }
        assert_eq!(sync(&[&bucket.s3("theirs"), &down]), [all, 0, 0]);
        assert_eq!(rclone(&["check", &remote("theirs"), &down]), [""; 0]);
    }
}
