//! OSS as `flatout serve` speaks it, judged by Alibaba Cloud's own clients: ossutil and both SDKs.

use flatout_wire::checksum::Algorithm;

use crate::clients::{Keys, Lab, bad, good};

/// Every signature that a client can make.
const VERSIONS: [&str; 2] = ["v1", "v4"];

/// What is said to who has the wrong keys.
const REFUSALS: [(Keys, &str); 2] =
    [(Keys::WrongSecret, "SignatureDoesNotMatch"), (Keys::Unknown, "InvalidAccessKeyId")];

fn crc(body: &[u8]) -> String {
    Algorithm::Crc64Xz.of(body).to_string()
}

/// A folder whose file system keeps extended attributes, which a /tmp may not.
fn root() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

#[test]
fn ossutil_brings_and_fetches_files() {
    for version in VERSIONS {
        let lab = Lab::new(&["--memory"]);
        let util = |arguments: &[&str]| good(lab.ossutil(version, Keys::Right, arguments));
        let (small, large) = (lab.file("small", 1000), lab.file("large", 3_000_001));
        util(&["mb", "oss://bucket"]);
        util(&["cp", "small", "oss://bucket/folder/a b+ü%1"]);
        let in_parts = ["--bigfile-threshold", "1000000", "--part-size", "300000"];
        util(
            &[&["cp", "large", "oss://bucket/large", "--meta", "x-oss-meta-colour:blue"], &in_parts[..]]
                .concat(),
        );
        util(&["cp", "oss://bucket/folder/a b+ü%1", "small-again"]);
        util(&["cp", "oss://bucket/large", "large-again"]);
        util(&[&["cp", "oss://bucket/large", "large-in-parts"], &in_parts[..]].concat());
        lab.is_file("small-again", &small);
        lab.is_file("large-again", &large);
        lab.is_file("large-in-parts", &large);

        let stat = util(&["stat", "oss://bucket/large"]);
        for part in [&crc(&large), "3000001", "blue", "Multipart"] {
            assert!(stat.contains(part), "{stat}lacks {part}");
        }
        let listed = util(&["ls", "oss://bucket", "-d", "-s"]);
        assert!(listed.contains("oss://bucket/large") && listed.contains("oss://bucket/folder/"), "{listed}");
        let listed = util(&["ls", "-s"]);
        assert!(listed.contains("oss://bucket"), "{listed}");
    }
}

#[test]
fn ossutil_uploads_to_a_sink() {
    let lab = Lab::new(&["--memory", "--sink"]);
    let util = |arguments: &[&str]| lab.ossutil("v4", Keys::Right, arguments);
    let large = lab.file("large", 3_000_001);
    good(util(&["mb", "oss://bucket"]));
    let in_parts = ["--bigfile-threshold", "1000000", "--part-size", "300000"];
    good(util(&[&["cp", "large", "oss://bucket/large"], &in_parts[..]].concat()));
    let stat = good(util(&["stat", "oss://bucket/large"]));
    for part in [&crc(&large), "3000001", "Multipart"] {
        assert!(stat.contains(part), "{stat}lacks {part}");
    }
    // It is there already: ossutil asks whether the object is newer than the file.
    good(util(&["cp", "large", "oss://bucket/large", "--update"]));
    bad(util(&["cp", "oss://bucket/large", "large-again"]), "forgets its bytes");
    good(util(&["rm", "oss://bucket/large"]));
    bad(util(&["stat", "oss://bucket/large"]), "NoSuchKey");
}

#[test]
fn ossutil_copies_appends_and_removes() {
    for version in VERSIONS {
        let lab = Lab::new(&["--memory"]);
        let util = |arguments: &[&str]| good(lab.ossutil(version, Keys::Right, arguments));
        let body = lab.file("file", 1_234_567);
        util(&["mb", "oss://bucket"]);
        util(&["cp", "file", "oss://bucket/file"]);
        util(&["cp", "oss://bucket/file", "oss://bucket/copy"]);
        let in_parts = ["--bigfile-threshold", "1000000", "--part-size", "300000"];
        util(&[&["cp", "oss://bucket/file", "oss://bucket/copy-in-parts"], &in_parts[..]].concat());
        for copy in ["copy", "copy-in-parts"] {
            util(&["cp", &format!("oss://bucket/{copy}"), copy]);
            lab.is_file(copy, &body);
        }
        util(&["appendfromfile", "file", "oss://bucket/log"]);
        util(&["appendfromfile", "file", "oss://bucket/log"]);
        util(&["cp", "oss://bucket/log", "log"]);
        lab.is_file("log", &[&body[..], &body].concat());
        util(&["rm", "oss://bucket", "-r", "-f"]);
        assert!(util(&["ls", "oss://bucket"]).contains("Object Number is: 0"));
        util(&["rm", "oss://bucket", "-b", "-f"]);
    }
}

#[test]
fn ossutil_is_told_what_is_wrong() {
    let lab = Lab::new(&["--memory"]);
    for version in VERSIONS {
        for (keys, code) in REFUSALS {
            bad(lab.ossutil(version, keys, &["ls"]), code);
        }
        bad(lab.ossutil(version, Keys::Right, &["ls", "oss://nowhere"]), "NoSuchBucket");
    }
}

/// Uploader, Downloader and OpenFile with prefetch; each compares CRCs with what we state.
#[track_caller]
fn check_go(lab: &Lab, flags: &[&str]) {
    let go = |arguments: &[&str]| good(lab.oss_go(Keys::Right, flags, arguments));
    let body = lab.file("file", 1_500_007);
    let key = format!("folder/a b+ü%1{}", flags.join("").replace("127.0.0.1", ""));
    go(&["upload", "bucket", &key, "file"]);
    go(&["download", "bucket", &key, "downloaded"]);
    go(&["read", "bucket", &key, "read"]);
    lab.is_file("downloaded", &body);
    lab.is_file("read", &body);
    let crc = crc(&body);
    let stat = go(&["stat", "bucket", &key]);
    assert_eq!(
        stat,
        format!("bytes 1500007 1500007\ncrc64 {crc} {crc}\ntype Multipart Standard\ncolour blue\n")
    );
    lab.file("piece", 1000);
    go(&["append", "bucket", "log", "piece"]);
    go(&["append", "bucket", "log", "piece"]);
    assert!(go(&["stat", "bucket", "log"]).contains("type Appendable"));
    let listed = go(&["list", "bucket"]);
    assert!(listed.contains("2000 log\n") && listed.contains(&format!("1500007 {key}\n")), "{listed}");
    go(&["delete", "bucket", "log"]);
    assert!(!go(&["list", "bucket"]).contains("log"));
}

#[test]
fn the_go_sdk_uploads_downloads_and_reads_ahead() {
    let folder = root();
    for store in [&["--memory"][..], &["--root", folder.path().to_str().unwrap()]] {
        let lab = Lab::new(store);
        lab.bucket("bucket");
        for version in VERSIONS {
            check_go(&lab, &["-signature", version]);
        }
    }
}

#[test]
fn the_go_sdk_finds_the_bucket_in_the_host_name() {
    let lab = Lab::new(&["--memory"]);
    lab.bucket("bucket");
    let aliyun = ["-virtual", "-via", lab.address(), "-endpoint", "http://oss-cn-hangzhou.aliyuncs.com"];
    for version in VERSIONS {
        check_go(&lab, &[&aliyun[..], &["-signature", version]].concat());
    }
    let localhost = format!("http://localhost:{}", lab.address().rsplit(':').next().unwrap());
    check_go(&lab, &["-virtual", "-via", lab.address(), "-endpoint", &localhost]);
}

#[test]
fn the_go_sdk_is_told_what_is_wrong() {
    let lab = Lab::new(&["--memory"]);
    lab.bucket("bucket");
    lab.file("file", 400_000);
    for version in VERSIONS {
        let signed = ["-signature", version];
        for (keys, code) in REFUSALS {
            bad(lab.oss_go(keys, &signed, &["list", "bucket"]), &format!("403 {code}"));
            bad(lab.oss_go(keys, &signed, &["upload", "bucket", "k", "file"]), &format!("403 {code}"));
            // A HEAD has no body: the code comes in a header.
            bad(lab.oss_go(keys, &signed, &["stat", "bucket", "k"]), &format!("403 {code}"));
        }
        bad(lab.oss_go(Keys::Right, &signed, &["stat", "bucket", "k"]), "404 NoSuchKey 0026-00000001");
        bad(lab.oss_go(Keys::Right, &signed, &["list", "nowhere"]), "404 NoSuchBucket");
    }
}

#[test]
fn the_go_sdk_learns_how_wrong_its_clock_is() {
    let lab = Lab::new(&["--memory"]);
    lab.bucket("bucket");
    for version in VERSIONS {
        for skew in ["-16m", "16m"] {
            let flags = ["-signature", version, "-skew", skew, "-attempts"];
            let list =
                |attempts| lab.oss_go(Keys::Right, &[&flags[..], &[attempts]].concat(), &["list", "bucket"]);
            bad(list("1"), "403 RequestTimeTooSkewed");
            good(list("2"));
        }
        good(lab.oss_go(Keys::Right, &["-signature", version, "-skew", "14m"], &["list", "bucket"]));
    }
}

#[test]
fn urls_that_clients_signed_are_let_in() {
    let lab = Lab::new(&["--memory"]);
    lab.bucket("bucket");
    let body = lab.file("file", 1000);
    let key = "a b+ü%1";
    good(lab.oss_go(Keys::Right, &[], &["upload", "bucket", key, "file"]));
    for version in VERSIONS {
        let by_go = |keys| good(lab.oss_go(keys, &["-signature", version], &["presign", "bucket", key]));
        let by_ossutil = good(lab.ossutil(
            version,
            Keys::Right,
            &["sign", &format!("oss://bucket/{key}"), "--timeout", "600"],
        ));
        for said in [by_go(Keys::Right), by_ossutil] {
            let url = said.lines().next().unwrap();
            assert!(lab.fetch(url) == (200, body.clone()), "{url}");
            assert_eq!(lab.fetch(&url.replace("/bucket/a", "/bucket/b")).0, 403, "{url}");
        }
        assert_eq!(lab.fetch(by_go(Keys::WrongSecret).trim()).0, 403);
    }
}

#[test]
fn the_python_sdk_does_everything() {
    let folder = root();
    for store in [&["--memory"][..], &["--root", folder.path().to_str().unwrap()]] {
        let lab = Lab::new(store);
        lab.bucket("bucket");
        for version in VERSIONS {
            good(lab.python("oss_sdk.py", Keys::Right, &[version, "all", "bucket"]));
        }
    }
}

#[test]
fn the_python_sdk_is_told_what_is_wrong() {
    let lab = Lab::new(&["--memory"]);
    lab.bucket("bucket");
    for version in VERSIONS {
        for (keys, code) in REFUSALS {
            bad(lab.python("oss_sdk.py", keys, &[version, "list", "bucket"]), &format!("403 {code}"));
        }
        let skewed = lab.python("oss_sdk.py", Keys::Right, &[version, "skewed", "bucket"]);
        bad(skewed, "403 RequestTimeTooSkewed");
    }
}

#[test]
fn either_dialect_states_the_checksum_of_what_the_other_wrote() {
    let folder = root();
    for store in [&["--memory"][..], &["--root", folder.path().to_str().unwrap()]] {
        let lab = Lab::new(store);
        lab.bucket("bucket");
        // More than aws-cli's 8 MiB: it comes in parts.
        let (small, large) = (lab.file("small", 1000), lab.file("large", 9_000_000));
        for (name, body) in [("small", &small), ("large", &large)] {
            good(lab.aws(Keys::Right, &["s3", "cp", name, &format!("s3://bucket/{name}")]));
            let stat = good(lab.oss_go(Keys::Right, &[], &["stat", "bucket", name]));
            assert!(stat.contains(&format!("crc64 {0} {0}\n", crc(body))), "{stat}");
            good(lab.oss_go(Keys::Right, &[], &["download", "bucket", name, "downloaded"]));
            lab.is_file("downloaded", body);

            let key = format!("{name}-of-oss");
            good(lab.oss_go(Keys::Right, &[], &["upload", "bucket", &key, name]));
            let mode = ["x-amz-checksum-mode: ENABLED"];
            let head = lab.served.curl.ask("HEAD", &format!("/bucket/{key}"), &mode, None).is(200);
            let nvme = Algorithm::Crc64Nvme.encode(Algorithm::Crc64Nvme.of(body));
            assert_eq!(head.header("x-amz-checksum-crc64nvme"), Some(nvme), "{key}");
        }
    }
}

#[test]
fn synthetic_objects_have_the_checksum_of_their_bytes() {
    let lab = Lab::new(&["--synthetic", "bucket/model=20MiB"]);
    good(lab.oss_go(Keys::Right, &["-part-bytes", "1000000"], &["download", "bucket", "model", "model"]));
    let body = std::fs::read(lab.path("model")).unwrap();
    assert_eq!(body.len(), 20 << 20);
    assert!(good(lab.oss_go(Keys::Right, &[], &["stat", "bucket", "model"])).contains(&crc(&body)));
}
