//! Files that are written in any order, through a mount of a bucket of MinIO, by fsx: it compares each byte
//! that it reads with what it has written.
//!
//! FLATOUT_FSX=1000000 cargo test -p flatout-cli --test real staging::     as many operations

use std::fs;
use std::process::Command;

use crate::guard::installed;
use crate::minio::{Bucket, cache};
use crate::mounts::Mount;
use crate::program::run;

fn operations() -> u64 {
    std::env::var("FLATOUT_FSX").map_or(1500, |count| count.parse().unwrap())
}

const WEIGHTS: &str = "flen = 262144
[weights]
close_open = 1
invalidate = 1
truncate = 3
fsync = 1
fdatasync = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
sendfile = 3
";

/// A second client reads meanwhile.
#[test]
fn fsx_finds_every_byte() {
    let fsx = installed("fsx", &[cache().join("bin/fsx")]);
    let bucket = Bucket::new("staging");
    let (endpoint, source) = (bucket.curl.url.clone(), format!("s3://{}", bucket.name));
    let staging = tempfile::tempdir().unwrap();
    let staged = staging.path().to_str().unwrap();
    let mount = Mount::start(
        &bucket.flatout(&[]),
        &source,
        &["--endpoint-url", &endpoint, "--staging", staged, "--attributes", "ignore"],
    );
    let reader = Mount::start(
        &bucket.flatout(&[]),
        &source,
        &[
            "--endpoint-url",
            &endpoint,
            "--attribute-lifetime",
            "0s",
            "--negative-lifetime",
            "0s",
            "--close-to-open",
        ],
    );
    let weights = mount.beside("fsx.toml");
    fs::write(&weights, WEIGHTS).unwrap();
    let folder = mount.beside("artifacts");
    fs::create_dir(&folder).unwrap();
    let mut command = Command::new(fsx);
    command.args(["-q", "-N", &operations().to_string(), "-S", "7", "-f"]).arg(&weights);
    command.arg("-P").arg(&folder).arg(mount.at("file"));
    let mut exercised = command.spawn().unwrap();
    let mut looks = 0;
    let ended = loop {
        if let Some(ended) = exercised.try_wait().unwrap() {
            break ended;
        }
        // One that is replaced while it is read says so.
        looks += u64::from(fs::read(reader.at("file")).is_ok_and(|read| !read.is_empty()));
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    assert!(ended.success(), "{:?}", fs::read_dir(&folder).unwrap().collect::<Vec<_>>());
    assert!(looks > 0);
    run(Command::new("cmp").arg(mount.at("file")).arg(reader.at("file"))).clean();
}
