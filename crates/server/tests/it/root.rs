//! What holds for folders alone: files of others, links, and no way out.

use std::io::Read;
use std::os::unix::fs::symlink;

use flatout_server::{Options, Origin, Store};
use flatout_wire::checksum::Algorithm;

use crate::client::{Lab, bytes, connect, options, parse, send, write_head};

#[test]
fn files_of_others_are_objects() {
    let lab = Lab::root();
    let body = bytes("file", 600_000);
    std::fs::create_dir_all(lab.path().join("models/deep")).unwrap();
    std::fs::write(lab.path().join("models/deep/file.bin"), &body).unwrap();
    let got =
        lab.send("GET", "/models/deep/file.bin", &[("x-amz-checksum-mode", "ENABLED")], b"").expect(200);
    assert!(got.body == body);
    // Nobody computed it.
    assert_eq!(got.header("x-amz-checksum-crc64nvme"), None);
    let etag = got.header("etag").unwrap().to_owned();
    std::fs::write(lab.path().join("models/deep/file.bin"), &body).unwrap();
    assert_ne!(lab.get("/models/deep/file.bin").header("etag").unwrap(), etag);
    assert_eq!(lab.get("/models").expect(200).xml_all("Key"), ["deep/file.bin"]);
    // OSS states a CRC with every answer, that of the bytes that are there now.
    let stated = || {
        let got =
            lab.send("GET", "/models/deep/file.bin", &[("x-oss-date", ""), ("range", "bytes=1-5")], b"");
        got.expect(206).header("x-oss-hash-crc64ecma").map(str::to_owned)
    };
    let crc = |bytes: &[u8]| Some(Algorithm::Crc64Xz.encode(Algorithm::Crc64Xz.of(bytes)));
    assert_eq!((stated(), stated()), (crc(&body), crc(&body)));
    std::fs::write(lab.path().join("models/deep/file.bin"), &body[..1000]).unwrap();
    assert_eq!(stated(), crc(&body[..1000]));
}

#[test]
fn folders_that_s3_would_not_name_are_no_buckets() {
    let lab = Lab::root();
    for name in ["Upper", "ab", ".hidden", "under_score"] {
        std::fs::create_dir(lab.path().join(name)).unwrap();
    }
    std::fs::write(lab.path().join("a-file"), b"x").unwrap();
    assert_eq!(lab.get("/").expect(200).xml_all("Name"), ["bucket"]);
    let refused = lab.get("/Upper/x").expect(400);
    assert_eq!(refused.xml_all("Code"), ["InvalidBucketName"]);
    assert_eq!(refused.xml_all("Message"), [flatout_server::BUCKET_RULE]);
    let folders = flatout_server::unservable(lab.path()).unwrap();
    assert_eq!(folders, ["Upper", "ab", "under_score"].map(|name| lab.path().join(name)));
    lab.get("/a-file/x").expect(404);
    lab.get("/a-file?list-type=2").expect(404);
}

#[test]
fn nothing_outside_the_root_is_reached() {
    let lab = Lab::root();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("secret"), b"treasure").unwrap();
    std::fs::write(lab.path().join("beside"), b"treasure").unwrap();
    let bucket = lab.path().join("bucket");
    symlink(outside.path(), bucket.join("folder-link")).unwrap();
    symlink(outside.path().join("secret"), bucket.join("file-link")).unwrap();
    symlink(outside.path(), lab.path().join("bucket-link")).unwrap();
    symlink("loop", bucket.join("loop")).unwrap();
    for target in [
        "/bucket/../beside",
        "/bucket/%2e%2e/beside",
        "/bucket/..%2fbeside",
        "/bucket/a/../../beside",
        "/bucket//etc/passwd",
        "/bucket/%2fetc/passwd",
        "/bucket/./beside",
        "/bucket/folder-link/secret",
        "/bucket/file-link",
        "/bucket-link/secret",
        "/bucket/loop",
        "/../beside",
        "/%2e%2e/beside",
        "/bucket/%00",
    ] {
        let got = lab.get(target);
        assert!((400..500).contains(&got.status), "GET {target}: {}", got.status);
        assert!(!got.body.windows(8).any(|eight| eight == b"treasure"), "GET {target}");
        let put = lab.send("PUT", target, &[], b"overwritten");
        let replaced_link = ["/bucket/file-link", "/bucket/loop"].contains(&target);
        assert_eq!(put.status == 200, replaced_link, "PUT {target}: {}", put.status);
        lab.send("DELETE", target, &[], b"");
    }
    assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"treasure");
    assert_eq!(std::fs::read(lab.path().join("beside")).unwrap(), b"treasure");
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    assert!(lab.get("/bucket?list-type=2").xml_all("Key").is_empty());
    assert!(lab.get("/bucket?list-type=2&prefix=folder-link/").expect(200).xml_all("Key").is_empty());
    assert_eq!(lab.get("/").xml_all("Name"), ["bucket"]);
}

#[test]
fn links_are_followed_beneath_the_root() {
    let lab = Lab::root();
    let bucket = lab.path().join("bucket");
    lab.put("/bucket/blobs/abc", b"content");
    std::fs::create_dir(bucket.join("snapshot")).unwrap();
    symlink("../blobs/abc", bucket.join("snapshot/model")).unwrap();
    symlink("blobs", bucket.join("folder")).unwrap();
    symlink("nothing", bucket.join("dangling")).unwrap();
    assert_eq!(lab.get("/bucket/snapshot/model").expect(200).body, b"content");
    assert_eq!(lab.get("/bucket/folder/abc").expect(200).body, b"content");
    lab.get("/bucket/dangling").expect(404);
    assert_eq!(lab.get("/bucket?list-type=2").xml_all("Key"), ["blobs/abc", "snapshot/model"]);
    assert!(lab.get("/bucket?list-type=2&prefix=folder/").expect(200).xml_all("Key").is_empty());
}

#[test]
fn keys_that_cannot_be_files_are_refused_clearly() {
    let lab = Lab::root();
    lab.put("/bucket/a/b", b"x");
    for key in ["a", "a/b/c", "folder%2F", "x//y"] {
        let answer = lab.send("PUT", &format!("/bucket/{key}"), &[], b"x").expect(400);
        assert_eq!(answer.xml("Code").as_deref(), Some("InvalidArgument"), "{key}");
        assert!(answer.xml("Message").unwrap().contains("cannot be a file"), "{key}");
    }
    lab.get("/bucket/a").expect(404);
    lab.get("/bucket/a/b/c").expect(404);
    lab.get("/bucket/a/").expect(404);
}

#[test]
fn a_replaced_file_is_read_to_its_end_and_a_cut_one_is_an_error() {
    let lab = Lab::root();
    let body = bytes("replaced", 64 << 20);
    for cut in [false, true] {
        lab.put("/bucket/k", &body);
        let mut connection = connect(lab.address());
        write_head(&mut connection, "GET", "/bucket/k", &[], 0);
        let mut answer = vec![0; 1000];
        connection.read_exact(&mut answer).unwrap();
        if cut {
            std::fs::File::options()
                .write(true)
                .open(lab.path().join("bucket/k"))
                .unwrap()
                .set_len(1000)
                .unwrap();
        } else {
            lab.put("/bucket/k", b"another");
        }
        let ended = connection.read_to_end(&mut answer);
        let received = parse(&answer).body;
        if cut {
            assert!(ended.is_err() || received.len() < body.len());
        } else {
            assert!(received == body);
        }
    }
}

#[test]
fn a_file_is_whole_through_a_slow_connection() {
    let root = tempfile::tempdir().unwrap();
    let body = bytes("slow", 3_000_000);
    std::fs::create_dir(root.path().join("bucket")).unwrap();
    std::fs::write(root.path().join("bucket/k"), &body).unwrap();
    let slow = Options { per_connection: Some(30_000_000), ..options(Store::Root(root.path().to_owned())) };
    let origin = Origin::start(slow).unwrap();
    assert!(send(origin.addresses()[0], "GET", "/bucket/k", &[], b"").expect(200).body == body);
    let range = [("range", "bytes=1048570-2097160")];
    let part = send(origin.addresses()[0], "GET", "/bucket/k", &range, b"").expect(206);
    assert!(part.body == body[1_048_570..=2_097_160]);
}

#[test]
fn nothing_of_the_origin_stays_in_the_folder() {
    let lab = Lab::root();
    lab.put("/bucket/k", b"x");
    let started = lab.send("POST", "/bucket/unfinished?uploads", &[], b"").expect(200);
    let part = format!("/bucket/unfinished?partNumber=1&uploadId={}", started.xml("UploadId").unwrap());
    lab.put(&part, b"part");
    assert_eq!(std::fs::read_dir(lab.path().join(".flatout")).unwrap().count(), 1);
    let Lab { origin, root } = lab;
    let root = root.unwrap();
    origin.stop().unwrap();
    let names: Vec<_> =
        std::fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["bucket"]);
}

#[test]
fn a_root_that_is_no_folder_is_named() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, b"x").unwrap();
    for path in [root.path().join("missing"), file] {
        let error = Origin::start(options(Store::Root(path.clone()))).unwrap_err();
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
}
