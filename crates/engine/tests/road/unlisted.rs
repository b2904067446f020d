//! An upload that was broken off, at an origin that does not say which parts it has.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use flatout_engine::{Client, ErrorKind, Put, Source};
use flatout_wire::location::Location;

use super::checksums::{PART, config};
use super::origin::{Asked, Origin, answer, object};

#[test]
fn a_file_whose_parts_are_not_listed_is_sent_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, object(20 * PART)).expect("a file");
    for status in ["403 Forbidden", "405 Method Not Allowed", "501 Not Implemented"] {
        let (is_broken, begun) = (Arc::new(AtomicBool::new(true)), AtomicUsize::new(0));
        let broken = is_broken.clone();
        let origin = Origin::start(move |asked: &Asked| match &*asked.method {
            "PUT" if asked.part() > Some(15) && broken.load(Ordering::SeqCst) => {
                answer("403 Forbidden", "", "<Error><Code>AccessDenied</Code></Error>")
            }
            "PUT" => answer("200 OK", "etag: \"1\"\r\n", ""),
            "GET" => answer(status, "", "<Error><Code>NotImplemented</Code></Error>"),
            "DELETE" => answer("204 No Content", "", ""),
            "POST" if asked.path.contains("?uploads") => {
                let (made, id) = ("InitiateMultipartUploadResult", begun.fetch_add(1, Ordering::SeqCst));
                answer("200 OK", "", &format!("<{made}><UploadId>{id}</UploadId></{made}>"))
            }
            _ => {
                let done = "CompleteMultipartUploadResult";
                answer("200 OK", "", &format!("<{done}><ETag>\"2\"</ETag></{done}>"))
            }
        });
        let mut config = config(&origin);
        config.settings.parallel = Some(2);
        config.upload_journals = Some(folder.path().join("journals"));
        let client = Client::new(config).expect("good settings");
        let location = Location::parse("s3://bucket/object").expect("a URL");
        let put = || {
            let put = Put::new(location.clone(), Source::File(path.clone()));
            client.put(put).and_then(|transfer| transfer.wait())
        };
        assert_eq!(put().expect_err("its last parts are refused").kind(), ErrorKind::Denied, "{status}");
        is_broken.store(false, Ordering::SeqCst);
        let report = put().expect("it is sent anew");
        let note = report.resume_note.unwrap_or_default();
        assert!(report.resumed_bytes == 0 && note.contains("does not list"), "{status}: {note}");
        let asked = origin.asked();
        let old = |asked: &&Asked| asked.method == "DELETE" && asked.path.contains("uploadId=0");
        assert_eq!(asked.iter().filter(old).count(), 1, "{status}: the old parts are deleted");
    }
}
