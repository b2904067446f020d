//! Files, folders, disks and pipes that refuse.

use super::snapshot::{Case, Snapshot};
use crate::objects::{Buckets, bytes};

pub fn all(snapshot: &mut Snapshot) {
    snapshot.section("Local files");
    let buckets = Buckets::new(&[("bucket/object", &bytes(4 << 20)), ("bucket/folder/a", b"a")]);
    let (url, plain) = (buckets.url(), format!("{}/bucket/object", buckets.url()));
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::create_dir_all(folder.path().join("folder/object")).unwrap();
    std::fs::write(folder.path().join("file"), "a file").unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
    let long = "n".repeat(300);
    for target in [
        &at("missing/object"),
        &at("file/"),
        &at("file/object"),
        &at("folder"),
        &at(&long),
        &at("socket"),
        "/dev/full",
    ] {
        snapshot.line(&["cp", &plain, target]);
    }
    snapshot.run(Case::within("ulimit -f 64; @", &["cp", &plain, &at("new")]));
    snapshot.line(&["cp", "-r", "s3://bucket/folder/", &at("file"), "--endpoint-url", &url]);
    snapshot.line(&[
        "bench",
        "get",
        &plain,
        "--repeat",
        "1",
        "--landing",
        &format!("file:{}", at("missing/x")),
    ]);
    snapshot.line(&["bench", "get", &plain, "--repeat", "1", "--parts", &at("missing/parts.csv")]);
    snapshot.line(&["bench", "sweep", &plain, "--repeat", "1", "--report", &at("missing/sweep.html")]);
    snapshot.line(&["man", &at("file")]);

    snapshot.section("Standard output");
    for line in [
        &["cat", &plain][..],
        &["cp", &plain, "-"],
        &["ls", "s3://bucket/", "--endpoint-url", &url],
        &["stat", &plain],
        &["config", "show"],
        &["completions", "bash"],
        &["man"],
        &["version"],
    ] {
        snapshot.run(Case::within("@ > /dev/full", line));
        snapshot.run(Case::within("@ >&-", line));
    }
    snapshot.run(Case::within("@ 3< /etc/passwd", &["cp", &plain, "/dev/fd/3"]));
    snapshot.run(Case::within("ulimit -n 64; @ > /dev/null", &["cat", &plain, "--parallel", "200"]));
    snapshot.run(Case::within("@ | head -c 1 > /dev/null", &["cat", &plain]));
}
