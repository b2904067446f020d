//! What cannot be mounted or unmounted, and options that are none.

use super::snapshot::{Case, Snapshot};
use crate::mounts::Place;
use crate::objects::Buckets;

pub fn all(snapshot: &mut Snapshot) {
    options(snapshot);
    places(snapshot);
    origins(snapshot);
}

fn options(snapshot: &mut Snapshot) {
    snapshot.section("flatout mount: command lines and options");
    for line in [
        &["mount"][..],
        &["mount", "s3://bucket"],
        &["mount", "s3://bucket", "/mnt", "more"],
        &["mount", "bucket", "/mnt"],
        &["mount", "s3:/bucket", "/mnt"],
        &["mount", "http://host/folder", "/mnt"],
        &["mount", "s3://bucket", "/mnt", "--attribute-lifetme", "1s"],
        &["mount", "s3://bucket", "/mnt", "--attribute-lifetime", "5"],
        &["mount", "s3://bucket", "/mnt", "--file-mode", "rw"],
        &["mount", "s3://bucket", "/mnt", "--uid", "root"],
        &["mount", "s3://bucket", "/mnt", "--metrics", "here"],
        &["mount", "s3://bucket", "/mnt", "-o"],
        &["cp", "s3://b/k", "x", "--attribute-lifetime", "1s"],
        &["umount"],
        &["top", "a", "b"],
        &["top", "--interval", "1ms"],
    ] {
        snapshot.line(line);
    }
    for list in [
        "memroy=1GiB",
        "frobnicate",
        "memory",
        "memory=1",
        "attribute_lifetime=5",
        "close_to_open=maybe",
        "allow_root",
        "remount",
        "metrics=here",
        "uid=1,uid=3",
        "ro=yes",
        "nosuid=1",
        "log",
        "oss_access_key_secret=hunter2hunter2",
        "oss_bucket=models",
        "upload_concurrency=64",
        "disk_data_cache_dir=/x",
        "prefetch_concurrency=256",
        "attr_timeout=-1",
        "total_mem_limit=1",
        "readdirplus=false",
        "ram_role=x",
    ] {
        snapshot.line(&["mount", "s3://bucket", "/mnt", "-o", list]);
    }
}

fn places(snapshot: &mut Snapshot) {
    snapshot.section("flatout mount: where");
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content")]), Place::new());
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(place.path().join("file"), "x").unwrap();
    let url = origin.url();
    let mount = |snapshot: &mut Snapshot, point: &str, more: &[&str]| {
        let line = ["mount", "s3://bucket", point, "--endpoint-url", &url, "--no-sign-request"];
        let mut case = Case::new(&[&line[..], more].concat());
        place.within(case.command());
        snapshot.run(case);
    };
    mount(snapshot, &at("none"), &[]);
    mount(snapshot, &at("file"), &[]);
    mount(snapshot, &at(""), &[]);
    mount(snapshot, "/dev/fd/77", &[]);
    mount(snapshot, &at("mnt"), &["--log", &at("state")]);
    mount(snapshot, &at("mnt"), &["--metrics", "192.0.2.1:1"]);
    mount(snapshot, &at("mnt"), &["--stats", &at("none/stats.json")]);
    place.mounted("s3://bucket", &url, &[]);
    mount(snapshot, &at("mnt"), &[]);
    let held = std::fs::File::open(place.at("key")).unwrap();
    let umount = |snapshot: &mut Snapshot, point: &str| {
        let mut case = Case::new(&["umount", point]);
        place.within(case.command());
        snapshot.run(case);
    };
    umount(snapshot, &at("mnt"));
    drop(held);
    place.unmounted();
    umount(snapshot, &at("mnt"));
    umount(snapshot, &at("none"));
    umount(snapshot, "/proc");
    let mut case = Case::new(&["top", &at("mnt"), "--once"]);
    place.within(case.command());
    snapshot.run(case);
}

fn origins(snapshot: &mut Snapshot) {
    snapshot.section("flatout mount: roots");
    let (open, locked) = (Buckets::new(&[("bucket/key", b"x")]), Buckets::locked(&[("bucket/key", b"x")]));
    let place = Place::new();
    for (source, url) in [
        ("s3://missing", open.url()),
        ("s3://bucket", locked.url()),
        ("s3://", locked.url()),
        ("s3://bucket/key", open.url()),
        ("s3://bucket", "http://127.0.0.1:1".to_owned()),
    ] {
        let mnt = place.mnt_text();
        let line = ["mount", source, &mnt, "--endpoint-url", &url, "--no-sign-request", "--retries", "0"];
        let mut case = Case::new(&line);
        place.within(case.command());
        snapshot.run(case);
    }
    let mnt = place.mnt_text();
    let mut case = Case::new(&["mount", "s3://bucket", &mnt, "--endpoint-url", &locked.url()]);
    place.within(case.command());
    snapshot.run(case);
}
