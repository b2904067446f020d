//! Files that are written in any order, through a mount of a bucket of MinIO, by fsx: it compares each byte
//! that it reads with what it has written. And parts of long objects, of which a bucket copies the rest.
//!
//! FLATOUT_FSX=1000000 cargo test -p flatout-cli --test real staging::     as many operations

use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::bytes;
use crate::guard::installed;
use crate::minio::{Bucket, cache};
use crate::mounts::Mount;
use crate::program::run;
use crate::versitygw;

fn operations() -> u64 {
    std::env::var("FLATOUT_FSX").map_or(1500, |count| count.parse().unwrap())
}

const WEIGHTS: &str = "
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

/// fsx never unmaps what it reads by mmap, which makes each of its operations slower than the one before.
const IN_ONE_RUN: u64 = 50_000;

/// Runs fsx: `operations` on a file of at most `bytes`. Calls `meanwhile` every 10 ms until it ends.
#[track_caller]
fn exercise(mount: &Mount, (operations, bytes): (u64, u64), mut meanwhile: impl FnMut()) {
    let fsx = installed("fsx", &[cache().join("bin/fsx")]);
    let weights = mount.beside("fsx.toml");
    fs::write(&weights, format!("flen = {bytes}{WEIGHTS}")).unwrap();
    let folder = mount.beside("artifacts");
    fs::create_dir(&folder).unwrap();
    for (seed, at) in (7..).zip((0..operations).step_by(IN_ONE_RUN as usize)) {
        let count = IN_ONE_RUN.min(operations - at);
        let mut command = Command::new(&fsx);
        command.args(["-q", "-N", &count.to_string(), "-S", &format!("{seed}"), "-f"]).arg(&weights);
        command.arg("-P").arg(&folder).arg(mount.at("file"));
        let mut exercised = command.spawn().unwrap();
        let ended = loop {
            if let Some(ended) = exercised.try_wait().unwrap() {
                break ended;
            }
            meanwhile();
            std::thread::sleep(std::time::Duration::from_millis(10));
        };
        let left = || fs::read_dir(&folder).unwrap().collect::<Vec<_>>();
        assert!(ended.success(), "seed {seed}: {:?}", left());
    }
}

/// A second client reads meanwhile.
#[test]
fn fsx_finds_every_byte() {
    let bucket = Bucket::new("staging");
    let (endpoint, source) = (bucket.curl.url.clone(), format!("s3://{}", bucket.name));
    let staging = tempfile::tempdir().unwrap();
    let staged = staging.path().to_str().unwrap();
    let more = ["--endpoint-url", &endpoint, "--staging", staged, "--attributes", "ignore"];
    let mount = Mount::start(&bucket.flatout(&[]), &source, &more);
    let at_once = ["--attribute-lifetime", "0s", "--negative-lifetime", "0s", "--close-to-open"];
    let more = [&["--endpoint-url", &endpoint][..], &at_once].concat();
    let reader = Mount::start(&bucket.flatout(&[]), &source, &more);
    let mut looks = 0;
    // One that is replaced while it is read says so.
    let look = || looks += u64::from(fs::read(reader.at("file")).is_ok_and(|read| !read.is_empty()));
    exercise(&mount, (operations(), 256 << 10), look);
    assert!(looks > 0);
    run(Command::new("cmp").arg(mount.at("file")).arg(reader.at("file"))).clean();
}

/// Long enough for parts that the bucket copies.
#[test]
fn fsx_finds_every_byte_of_a_long_file() {
    let bucket = Bucket::new("staging-long");
    let (endpoint, source) = (bucket.curl.url.clone(), format!("s3://{}", bucket.name));
    let staging = tempfile::tempdir().unwrap();
    let staged = staging.path().to_str().unwrap();
    let more = ["--endpoint-url", &endpoint, "--staging", staged, "--attributes", "metadata"];
    let mount = Mount::start(&bucket.flatout(&[]), &source, &more);
    exercise(&mount, (operations() / 10, 48 << 20), || {});
    let other = Mount::start(&bucket.flatout(&[]), &source, &["--endpoint-url", &endpoint]);
    run(Command::new("cmp").arg(mount.at("file")).arg(other.at("file"))).clean();
}

/// Pieces of a long object are written here and there, as a disk has them.
#[track_caller]
fn check_pieces(bucket: &Bucket) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = |name: &str| at(name).to_str().unwrap().to_owned();
    let mut expected = bytes(40 << 20);
    fs::write(at("long"), &expected).unwrap();
    // With a checksum of the whole, and without.
    run(&mut bucket.flatout(&["cp", &text("long"), &bucket.s3("ours")])).clean();
    bucket.put("theirs", &expected, &[]);
    let endpoint = bucket.curl.url.clone();
    let options = ["--endpoint-url", &endpoint, "--staging", &text("staging")];
    let mount = Mount::start(&bucket.flatout(&[]), &format!("s3://{}", bucket.name), &options);
    let places = [7, (12 << 20) - 3, (40 << 20) - 100];
    for round in 0..2_usize {
        let piece = vec![round as u8; 100_000];
        for place in places {
            let end = expected.len().max(place + piece.len());
            expected.resize(end, 0);
            expected[place..place + piece.len()].copy_from_slice(&piece);
        }
        for name in ["ours", "theirs"] {
            let file = fs::OpenOptions::new().write(true).open(mount.at(name)).unwrap();
            for place in places {
                file.write_all_at(&piece, place as u64).unwrap();
            }
            file.sync_all().unwrap_or_else(|error| panic!("{name}: {error}: {}", mount.log()));
            run(&mut bucket.flatout(&["cp", &bucket.s3(name), &text("back")])).clean();
            assert!(fs::read(at("back")).unwrap() == expected, "{name}: other bytes");
        }
    }
}

#[test]
fn pieces_of_a_long_object_are_written_at_minio() {
    check_pieces(&Bucket::new("staged-pieces"));
}

#[test]
fn pieces_of_a_long_object_are_written_at_versitygw() {
    check_pieces(&versitygw::bucket("staged-pieces"));
}
