//! `flatout sync` against third-party servers, and beside `aws s3 sync` on the same trees.

use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::both_ways::python;
use crate::bytes;
use crate::clients::good;
use crate::folder::{Folder, files};
use crate::minio::{ACCESS_KEY, Bucket, SECRET_KEY};
use crate::program::run;
use crate::versitygw;

/// Names that sort otherwise as files than as keys; more than 8 MiB go in parts.
const FILES: [(&str, usize); 7] = [
    ("a.b", 1),
    ("a-1", 22),
    ("a/b", 333),
    ("a/c/d", 0),
    ("a0", 4_444),
    ("blank + % ü/x&<é>", 5),
    ("z", 9 << 20),
];

/// Those files, an hour old.
fn lay_down(folder: &Path) {
    for (name, length) in FILES {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes(length)).unwrap();
        let time = SystemTime::now() - Duration::from_secs(3_600);
        File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
    }
}

#[track_caller]
fn check(bucket: &Bucket) {
    let (folder, home) = (Folder::new(), Folder::new());
    let [up, down, by_aws] = ["up", "down", "by-aws"].map(|name| folder.at(name));
    lay_down(Path::new(&up));
    let (ours, theirs) = (bucket.s3("ours"), bucket.s3("theirs"));
    // Copied, unchanged, deleted.
    let sync = |arguments: &[&str]| -> [u64; 3] {
        let ended = run(&mut bucket.flatout(&[&["sync", "--json"], arguments].concat())).clean();
        let summary: Value = ended.events().pop().unwrap();
        ["ok", "unchanged", "deleted"].map(|name| summary[name].as_u64().unwrap())
    };
    let aws = |arguments: &[&str]| {
        let mut command = python(bucket, (ACCESS_KEY, SECRET_KEY), &home, "aws");
        good(run(command.args(["s3", "sync", "--no-progress"]).args(arguments)))
    };
    let all = FILES.len() as u64;
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
    check(&versitygw::bucket("synced"));
}
