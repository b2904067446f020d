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
        // A link is replaced, and what is no path lies beside; neither leads anywhere.
        let is_stored = target.starts_with("/bucket/") && !target.contains("folder-link");
        assert_eq!(put.status == 200, is_stored, "PUT {target}: {}", put.status);
        if is_stored {
            assert_eq!(lab.get(target).expect(200).body, b"overwritten", "{target}");
        }
        lab.send("DELETE", target, &[], b"");
    }
    // The source of a copy is a path in a header.
    lab.put("/bucket/k", b"x");
    for source in
        ["/../beside", "/.flatout/beside", "/%2e%2e/beside", "/bucket/../../beside", "/bucket/../beside"]
    {
        for headers in [&[("x-amz-copy-source", source)][..], &[("x-oss-copy-source", source)][..]] {
            let copied = lab.send("PUT", "/bucket/copied", headers, b"");
            assert!((400..500).contains(&copied.status), "{headers:?}: {}", copied.status);
        }
    }
    lab.send("DELETE", "/bucket/k", &[], b"").expect(204);
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

/// An origin over the same folder, as after a restart.
fn restarted(lab: Lab) -> Lab {
    let Lab { origin, root } = lab;
    origin.stop().unwrap();
    let origin = Origin::start(options(Store::Root(root.as_ref().unwrap().path().to_owned()))).unwrap();
    Lab { origin, root }
}

/// In the order of their bytes; each is the folder of another, no path at all, or too long for a name.
fn odd_keys() -> Vec<String> {
    let long = ["n".repeat(256), format!("z/{}", "é".repeat(300))];
    let mut keys: Vec<String> =
        ["..", "/lead", "a", "a/", "a/../b", "a//b", "a/b", "a/b/c", "f/g", "folder/"]
            .into_iter()
            .map(str::to_owned)
            .chain(long)
            .collect();
    keys.sort();
    keys
}

fn target(key: &str) -> String {
    let escaped: String = key.bytes().map(|byte| format!("%{byte:02X}")).collect();
    format!("/bucket/{escaped}")
}

#[test]
fn keys_that_are_no_plain_files_are_objects_all_the_same() {
    let mut lab = Lab::root();
    let keys = odd_keys();
    // In either order: the file first and then the folder, and the other way about.
    for key in keys.iter().rev().step_by(2).chain(keys.iter().rev().skip(1).step_by(2)) {
        let about = [("x-amz-meta-key", "yes"), ("x-amz-tagging", "a=b")];
        lab.send("PUT", &target(key), &about, key.as_bytes()).expect(200);
    }
    for _ in 0..2 {
        for query in ["", "&max-keys=1000"] {
            assert_eq!(lab.get(&format!("/bucket?list-type=2{query}")).expect(200).xml_all("Key"), keys);
        }
        for key in &keys {
            let got = lab.get(&target(key)).expect(200);
            assert_eq!(
                (got.body.as_slice(), got.header("x-amz-meta-key")),
                (key.as_bytes(), Some("yes")),
                "{key}"
            );
        }
        let folded = lab.get("/bucket?list-type=2&delimiter=/&prefix=a").expect(200);
        assert_eq!(folded.xml_all("Key"), ["a"]);
        assert_eq!(folded.xml_all("Prefix"), ["a", "a/"]);
        lab.send("DELETE", "/bucket", &[], b"").expect(409);
        lab = restarted(lab);
    }
    for key in &keys {
        lab.send("DELETE", &target(key), &[], b"").expect(204);
        lab.get(&target(key)).expect(404);
    }
    assert!(lab.get("/bucket?list-type=2").expect(200).xml_all("Key").is_empty());
    lab.send("DELETE", "/bucket", &[], b"").expect(204);
    assert_eq!(std::fs::read_dir(lab.path()).unwrap().count(), 1);
    let Lab { origin, root } = lab;
    origin.stop().unwrap();
    assert_eq!(std::fs::read_dir(root.unwrap().path()).unwrap().count(), 0);
}

#[test]
fn of_a_file_and_one_beside_the_newer_is_the_object() {
    let lab = Lab::root();
    lab.put("/bucket/a/b", b"folder");
    lab.put("/bucket/a", b"beside");
    lab.send("DELETE", "/bucket/a/b", &[], b"").expect(204);
    lab.put("/bucket/a", b"a file again");
    assert_eq!(std::fs::read(lab.path().join("bucket/a")).unwrap(), b"a file again");
    assert_eq!(lab.get("/bucket?list-type=2").xml_all("Key"), ["a"]);
    lab.send("DELETE", "/bucket/a", &[], b"").expect(204);
    lab.get("/bucket/a").expect(404);
}

#[test]
fn the_same_bytes_have_the_same_etag() {
    let mut lab = Lab::root();
    // printf 123456789 | md5sum
    let md5 = Some("\"25f9e794323b453885f5181f1b624d0b\"");
    for target in ["/bucket/a", "/bucket/b", "/bucket/a", "/bucket/a/"] {
        assert_eq!(lab.put(target, b"123456789").header("etag"), md5, "{target}");
    }
    lab = restarted(lab);
    for target in ["/bucket/a", "/bucket/b", "/bucket/a/"] {
        assert_eq!(lab.get(target).header("etag"), md5, "{target}");
    }
    let listed = lab.get("/bucket?list-type=2").xml_all("ETag");
    assert!(listed.len() == 3 && listed.iter().all(|etag| md5 == Some(&*etag.replace("&quot;", "\""))));
    // Written to by others, its bytes are nobody's.
    std::fs::write(lab.path().join("bucket/a"), b"123456780").unwrap();
    let by_hand = lab.get("/bucket/a").header("etag").unwrap().to_owned();
    assert!(by_hand.contains('-'), "{by_hand}");
    assert_eq!(lab.send("HEAD", "/bucket/a", &[], b"").header("etag"), Some(&*by_hand));
}

#[test]
fn what_is_kept_survives_a_restart() {
    let headers = [
        ("content-type", "text/x"),
        ("content-language", "de"),
        ("expires", "Tue, 06 May 2031 07:08:09 GMT"),
        ("x-amz-storage-class", "STANDARD_IA"),
        ("x-amz-tagging", "a=b&c=d"),
        ("x-amz-checksum-sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
    ];
    let long = "x".repeat(2000);
    let mut lab = Lab::root();
    lab.send("PUT", "/bucket/k", &headers, b"123456789").expect(200);
    // More than an extended attribute has room for on ext4.
    let many: Vec<(String, String)> = (0..10).map(|n| (format!("x-amz-meta-{n}"), long.clone())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (&**name, &**value)).collect();
    lab.send("PUT", "/bucket/long", &many, b"123456789").expect(200);
    lab = restarted(lab);
    let got = lab.send("GET", "/bucket/k", &[("x-amz-checksum-mode", "ENABLED")], b"").expect(200);
    for (name, value) in headers.iter().filter(|(name, _)| *name != "x-amz-tagging") {
        assert_eq!(got.header(name), Some(*value), "{name}");
    }
    assert_eq!(got.header("x-amz-tagging-count"), Some("2"));
    assert_eq!(got.header("x-amz-checksum-crc64nvme"), None);
    assert_eq!(lab.get("/bucket/k?tagging").expect(200).xml_all("Value"), ["b", "d"]);
    let got = lab.get("/bucket/long").expect(200);
    assert!(many.iter().all(|(name, value)| got.header(name) == Some(*value)));
    for target in ["/bucket/long", "/bucket/k"] {
        lab.send("DELETE", target, &[], b"").expect(204);
    }
    let Lab { origin, root } = lab;
    origin.stop().unwrap();
    assert!(!root.unwrap().path().join(".flatout").exists());
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
fn nothing_of_the_origin_stays_in_the_folder_but_what_is_unfinished() {
    let lab = Lab::root();
    lab.put("/bucket/k", b"x");
    let started = lab.send("POST", "/bucket/unfinished?uploads", &[], b"").expect(200);
    let id = started.xml("UploadId").unwrap();
    lab.put(&format!("/bucket/unfinished?partNumber=1&uploadId={id}"), b"part");
    let lab = restarted(lab);
    assert!(lab.path().join(".flatout").exists());
    lab.send("DELETE", &format!("/bucket/unfinished?uploadId={id}"), &[], b"").expect(204);
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

#[test]
fn notes_in_a_file_of_their_own_had_stayed_when_they_shrank() {
    let lab = Lab::root();
    lab.put("/bucket/k", b"content");
    let notes = lab.path().join(".flatout/notes");
    let value = "v".repeat(256);
    let tags: String = (0..10)
        .map(|n| format!("<Tag><Key>{n}{}</Key><Value>{value}</Value></Tag>", "k".repeat(120)))
        .collect();
    let many = format!("<Tagging><TagSet>{tags}</TagSet></Tagging>");
    for (tags, files) in [(&*many, 1), ("<Tagging><TagSet></TagSet></Tagging>", 0)] {
        // So many have no room in an attribute on ext4.
        lab.send("PUT", "/bucket/k?tagging", &[], tags.as_bytes()).expect(200);
        let found = std::fs::read_dir(&notes).map_or(0, Iterator::count);
        assert!(found <= files, "{found} files of notes");
    }
}

#[test]
fn of_conditional_writes_to_two_origins_over_one_root_several_had_won() {
    let lab = Lab::root();
    let other = Origin::start(options(Store::Root(lab.path().to_owned()))).unwrap();
    for race in 0..200 {
        let target = format!("/bucket/race-{race}");
        let addresses = [lab.address(), other.addresses()[0], lab.address(), other.addresses()[0]];
        let together = std::sync::Barrier::new(addresses.len());
        let put = |address| {
            together.wait();
            send(address, "PUT", &target, &[("if-none-match", "*")], b"x").status
        };
        let mut said: Vec<u16> = std::thread::scope(|scope| {
            let racers: Vec<_> = addresses.map(|address| scope.spawn(move || put(address))).into();
            racers.into_iter().map(|racer| racer.join().unwrap()).collect()
        });
        said.sort_unstable();
        assert_eq!(said, [200, 412, 412, 412], "{target}");
    }
    let locks = lab.path().join(".flatout/locks");
    assert!(locks.exists());
    // The other goes on without those that the first one removed, and removes its own.
    let Lab { origin, root } = lab;
    origin.stop().unwrap();
    send(other.addresses()[0], "PUT", "/bucket/race-0", &[("if-none-match", "*")], b"x").expect(412);
    other.stop().unwrap();
    assert!(!locks.exists());
    drop(root);
}
