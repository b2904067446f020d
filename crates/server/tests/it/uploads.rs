//! Multipart uploads: the same over every store.

use std::path::{Path, PathBuf};
use std::process::Command;

use flatout_server::{Origin, Store};

use crate::client::{Answer, Lab, bytes, crc64nvme, each, options};

const PART_BYTES: usize = 5 << 20;

fn start(lab: &Lab, target: &str) -> String {
    let headers = [("x-amz-meta-colour", "blue"), ("content-type", "text/x-parts")];
    lab.send("POST", &format!("{target}?uploads"), &headers, b"").expect(200).xml("UploadId").unwrap()
}

fn put_part(lab: &Lab, target: &str, id: &str, number: u32, body: &[u8]) -> String {
    let answer = lab.put(&format!("{target}?partNumber={number}&uploadId={id}"), body);
    assert_eq!(answer.header("x-amz-checksum-crc64nvme"), Some(&*crc64nvme(body)));
    answer.header("etag").unwrap().to_owned()
}

fn complete(lab: &Lab, target: &str, id: &str, parts: &[(u32, &str)], crc: Option<&str>) -> Answer {
    let part = |(number, etag): &(u32, &str)| {
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>")
    };
    let parts: String = parts.iter().map(part).collect();
    let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let headers: Vec<_> = crc.map(|crc| ("x-amz-checksum-crc64nvme", crc)).into_iter().collect();
    lab.send("POST", &format!("{target}?uploadId={id}"), &headers, body.as_bytes())
}

#[test]
fn parts_become_one_object() {
    each(|lab| {
        let target = "/bucket/dir/parts";
        let whole = bytes("parts", 2 * PART_BYTES + 12_345);
        let id = start(lab, target);
        // In any order; one twice, one that is not used.
        let third = put_part(lab, target, &id, 3, &whole[2 * PART_BYTES..]);
        put_part(lab, target, &id, 1, b"not this");
        let first = put_part(lab, target, &id, 1, &whole[..PART_BYTES]);
        let second = put_part(lab, target, &id, 2, &whole[PART_BYTES..2 * PART_BYTES]);
        put_part(lab, target, &id, 4, b"nor this");
        lab.get(target).expect(404);
        let listed = lab.get(&format!("{target}?uploadId={id}&max-parts=3")).expect(200);
        assert_eq!(listed.xml_all("PartNumber"), ["1", "2", "3"]);
        assert_eq!(listed.xml("IsTruncated").as_deref(), Some("true"));
        assert_eq!(lab.get("/bucket?uploads&prefix=dir/").expect(200).xml_all("UploadId"), [&*id]);

        let (right, wrong) = (crc64nvme(&whole), crc64nvme(b""));
        let parts = [(1, &*first), (2, &*second), (3, &*third)];
        for (parts, crc, code) in [
            (&[(2, &*second), (1, &*first)][..], None, "InvalidPartOrder"),
            (&[(1, &*second)][..], None, "InvalidPart"),
            (&[(1, &*first), (7, &*second)][..], None, "InvalidPart"),
            (&parts[..], Some(&*wrong), "BadDigest"),
        ] {
            let answer = complete(lab, target, &id, parts, crc).expect(400);
            assert_eq!(answer.xml("Code").as_deref(), Some(code), "{parts:?}");
        }
        let done = complete(lab, target, &id, &parts, Some(&right)).expect(200);
        assert_eq!(done.xml("ChecksumCRC64NVME").as_deref(), Some(&*right));
        let got = lab.send("GET", target, &[("x-amz-checksum-mode", "ENABLED")], b"").expect(200);
        assert!(got.body == whole);
        assert_eq!(got.header("x-amz-checksum-crc64nvme"), Some(&*right));
        assert_eq!(got.header("x-amz-meta-colour"), Some("blue"));
        assert_eq!(got.header("content-type"), Some("text/x-parts"));
        let across = [("range", "bytes=5242870-5242889")];
        assert!(lab.send("GET", target, &across, b"").expect(206).body == whole[5_242_870..5_242_890]);
        // Who has lost the answer gets it again; with other parts it would be another one.
        let again = complete(lab, target, &id, &parts, None).expect(200);
        assert_eq!((again.xml("ETag"), again.xml("ChecksumCRC64NVME")), (done.xml("ETag"), Some(right)));
        assert_eq!(
            complete(lab, target, &id, &parts[..1], None).expect(400).xml("Code").unwrap(),
            "InvalidPart"
        );
        // It is gone, and so is what was not used.
        assert!(lab.get("/bucket?uploads").expect(200).xml_all("UploadId").is_empty());
        no_drafts(lab);
    });
}

#[test]
fn small_parts_are_refused_but_for_the_last() {
    each(|lab| {
        let target = "/bucket/small";
        let id = start(lab, target);
        let first = put_part(lab, target, &id, 1, b"small");
        let second = put_part(lab, target, &id, 2, b"smaller");
        let answer = complete(lab, target, &id, &[(1, &first), (2, &second)], None).expect(400);
        assert_eq!(answer.xml("Code").as_deref(), Some("EntityTooSmall"));
        complete(lab, target, &id, &[(2, &second)], None).expect(200);
        assert_eq!(lab.get(target).body, b"smaller");
    });
}

#[test]
fn an_aborted_upload_leaves_nothing() {
    each(|lab| {
        let target = "/bucket/aborted";
        let id = start(lab, target);
        put_part(lab, target, &id, 1, b"part");
        lab.send("DELETE", &format!("{target}?uploadId={id}"), &[], b"").expect(204);
        for (method, query) in [("DELETE", ""), ("PUT", "&partNumber=2"), ("GET", "")] {
            let answer = lab.send(method, &format!("{target}?uploadId={id}{query}"), &[], b"").expect(404);
            assert_eq!(answer.xml("Code").as_deref(), Some("NoSuchUpload"), "{method}");
        }
        lab.get(target).expect(404);
        no_drafts(lab);
    });
}

/// Under `--root` an unfinished part is a file. Those of locks stay until the origin ends.
fn no_drafts(lab: &Lab) {
    if lab.root.is_some() {
        let mut files = files_in(&lab.path().join(".flatout"));
        files.retain(|path| !path.parent().unwrap().ends_with("locks"));
        assert_eq!(files, Vec::<PathBuf>::new());
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] }).collect()
}

#[test]
fn a_completion_that_is_lost_is_answered_again_until_the_object_is_another() {
    each(|lab| {
        let target = "/bucket/again";
        let id = start(lab, target);
        let part = put_part(lab, target, &id, 1, b"part");
        let parts = [(1, &*part)];
        for _ in 0..3 {
            complete(lab, target, &id, &parts, None).expect(200);
        }
        lab.put(target, b"another");
        complete(lab, target, &id, &parts, None).expect(404);
        assert_eq!(lab.get(target).body, b"another");
    });
}

/// As a process leaves a folder that is killed now: everything that is in it, and nobody who tidies up.
fn killed(lab: &Lab, spoil: impl FnOnce(&Path)) -> Lab {
    let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let done = Command::new("cp").arg("-a").arg(lab.path().join(".")).arg(root.path()).status().unwrap();
    assert!(done.success());
    spoil(root.path());
    let origin = Origin::start(options(Store::Root(root.path().to_owned()))).unwrap();
    Lab { origin, root: Some(root) }
}

#[test]
fn uploads_survive_an_origin_that_is_killed() {
    let lab = Lab::root();
    let target = "/bucket/dir/survives";
    let whole = bytes("survives", PART_BYTES + 1000);
    let id = start(&lab, target);
    put_part(&lab, target, &id, 2, b"replaced");
    let first = put_part(&lab, target, &id, 1, &whole[..PART_BYTES]);
    let second = put_part(&lab, target, &id, 2, &whole[PART_BYTES..]);
    let other = start(&lab, "/bucket/dir/");
    let parts = [(1, &*first), (2, &*second)];
    for spoil in [false, true] {
        let after = killed(&lab, |root| {
            if spoil {
                // A join that was broken off, and an upload whose id no client got.
                std::fs::write(root.join(".flatout/4711-1"), b"draft").unwrap();
                std::fs::create_dir_all(root.join(".flatout/uploads/4711-0/untold")).unwrap();
            }
        });
        assert!(!after.path().join(".flatout/4711-1").exists());
        assert!(!after.path().join(".flatout/uploads/4711-0").exists());
        let mut listed = after.get("/bucket?uploads").expect(200).xml_all("UploadId");
        listed.sort();
        let mut begun = [id.clone(), other.clone()];
        begun.sort();
        assert_eq!(listed, begun);
        let sizes = after.get(&format!("{target}?uploadId={id}")).expect(200).xml_all("Size");
        assert_eq!(sizes, [PART_BYTES.to_string(), "1000".to_owned()]);
        complete(&after, target, &id, &parts, Some(&crc64nvme(&whole))).expect(200);
        let got = after.get(target).expect(200);
        assert!(got.body == whole);
        assert_eq!(got.header("x-amz-meta-colour"), Some("blue"));
        // Killed once more, it still knows its answer.
        complete(&killed(&after, |_| ()), target, &id, &parts, None).expect(200);
        let abort = format!("/bucket/dir/?uploadId={other}");
        after.send("DELETE", &abort, &[], b"").expect(204);
        no_drafts(&after);
    }
}

fn part_files(root: &Path, number: u32) -> Vec<PathBuf> {
    let mut files = files_in(&root.join(".flatout/uploads"));
    files.retain(|path| path.to_str().unwrap().contains(&format!("/{number:05}-")));
    files
}

#[test]
fn a_completion_that_failed_had_lost_the_parts() {
    let lab = Lab::root();
    let whole = bytes("again", PART_BYTES + 1000);
    let id = start(&lab, "/bucket/k");
    let first = put_part(&lab, "/bucket/k", &id, 1, &whole[..PART_BYTES]);
    let second = put_part(&lab, "/bucket/k", &id, 2, &whole[PART_BYTES..]);
    let parts = [(1, &*first), (2, &*second)];
    let away: Vec<(PathBuf, PathBuf)> =
        part_files(lab.path(), 2).into_iter().map(|path| (path.clone(), lab.path().join("away"))).collect();
    let (path, away) = away.into_iter().find(|(path, _)| path.extension().is_none()).unwrap();
    std::fs::rename(&path, &away).unwrap();
    complete(&lab, "/bucket/k", &id, &parts, None).expect(500);
    lab.get("/bucket/k").expect(404);
    std::fs::rename(&away, &path).unwrap();
    complete(&lab, "/bucket/k", &id, &parts, None).expect(200);
    assert!(lab.get("/bucket/k").expect(200).body == whole);
    no_drafts(&lab);
}

#[test]
fn a_second_origin_over_the_root_had_broken_the_uploads_of_the_first() {
    let first = Lab::root();
    let id = start(&first, "/bucket/k");
    let part = put_part(&first, "/bucket/k", &id, 1, b"part");
    // A part whose note is being written.
    let path = part_files(first.path(), 1).remove(0).with_file_name(format!("00002-{:020}", 1));
    std::fs::write(&path, b"half").unwrap();
    let second = Origin::start(options(Store::Root(first.path().to_owned()))).unwrap();
    let second = Lab { origin: second, root: None };
    assert_eq!(second.get("/bucket?uploads").expect(200).xml_all("UploadId"), [""; 0]);
    assert!(path.exists());
    let other = start(&second, "/bucket/k");
    put_part(&second, "/bucket/k", &other, 1, b"other");
    complete(&first, "/bucket/k", &id, &[(1, &part)], None).expect(200);
    assert_eq!(second.get("/bucket/k").expect(200).body, b"part");
    // What the second one left the third one takes up, while the first one lives.
    drop(second);
    let third = Origin::start(options(Store::Root(first.path().to_owned()))).unwrap();
    let third = Lab { origin: third, root: None };
    assert_eq!(third.get("/bucket?uploads").expect(200).xml_all("UploadId"), [&*other]);
    third.send("DELETE", &format!("/bucket/k?uploadId={other}"), &[], b"").expect(204);
    drop(third);
    no_drafts(&first);
}

#[test]
fn one_of_two_completions_at_once_had_found_no_upload() {
    each(|lab| {
        for turn in 0..20 {
            let target = format!("/bucket/turn-{turn}");
            let id = start(lab, &target);
            let part = put_part(lab, &target, &id, 1, b"part");
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| complete(lab, &target, &id, &[(1, &*part)], None).expect(200));
                }
            });
        }
    });
}

#[test]
fn a_part_whose_note_never_came_does_not_count() {
    let lab = Lab::root();
    let id = start(&lab, "/bucket/k");
    put_part(&lab, "/bucket/k", &id, 1, b"one");
    put_part(&lab, "/bucket/k", &id, 2, b"two");
    let after = killed(&lab, |root| {
        for path in part_files(root, 2) {
            if path.extension().is_some() {
                std::fs::remove_file(path).unwrap();
            }
        }
    });
    assert_eq!(after.get(&format!("/bucket/k?uploadId={id}")).expect(200).xml_all("PartNumber"), ["1"]);
    after.send("DELETE", &format!("/bucket/k?uploadId={id}"), &[], b"").expect(204);
    no_drafts(&after);
}

#[test]
fn parts_are_copied() {
    each(|lab| {
        let source = bytes("source", PART_BYTES + 10);
        let etag = lab.put("/bucket/a%20b", &source).header("etag").unwrap().to_owned();
        let id = start(lab, "/bucket/copy");
        let copy = |number: u32, headers: &[(&str, &str)]| {
            let headers = [&[("x-amz-copy-source", "/bucket/a%20b")], headers].concat();
            lab.send("PUT", &format!("/bucket/copy?partNumber={number}&uploadId={id}"), &headers, b"")
        };
        let range = |range| ("x-amz-copy-source-range", range);
        for (headers, status, code) in [
            (vec![range("bytes=0-99999999")], 400, "InvalidArgument"),
            (vec![range("bytes=5-")], 400, "InvalidArgument"),
            (vec![("x-amz-copy-source-if-match", "\"other\"")], 412, "PreconditionFailed"),
            (vec![("x-amz-copy-source-if-none-match", &*etag)], 412, "PreconditionFailed"),
            (
                vec![("x-amz-copy-source-if-unmodified-since", "Thu, 01 Jan 1970 00:00:01 GMT")],
                412,
                "PreconditionFailed",
            ),
        ] {
            let answer = copy(1, &headers).expect(status);
            assert_eq!(answer.xml("Code").as_deref(), Some(code), "{headers:?}");
        }
        let first = copy(1, &[]).expect(200).xml("ETag").unwrap().replace("&quot;", "\"");
        let second = copy(2, &[range("bytes=3-7"), ("x-amz-copy-source-if-match", &etag)]).expect(200);
        let second = second.xml("ETag").unwrap().replace("&quot;", "\"");
        complete(lab, "/bucket/copy", &id, &[(1, &first), (2, &second)], None).expect(200);
        let whole = [&source[..], &source[3..8]].concat();
        assert!(lab.get("/bucket/copy").expect(200).body == whole);
    });
}
