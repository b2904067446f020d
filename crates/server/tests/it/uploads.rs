//! Multipart uploads: the same over every store.

use crate::client::{Answer, Lab, bytes, crc64nvme, each};

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
        // It is gone, and so is what was not used.
        complete(lab, target, &id, &parts, None).expect(404);
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

/// Under `--root` an unfinished part is a file.
fn no_drafts(lab: &Lab) {
    if lab.root.is_some() {
        assert_eq!(std::fs::read_dir(lab.path().join(".flatout")).unwrap().count(), 0);
    }
}
