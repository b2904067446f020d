//! An upload that was broken off: at an origin that does not say which parts it has, and at its very end.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use flatout_engine::{Client, Error, ErrorKind, Put, Report, Source};
use flatout_wire::location::Location;
use tempfile::TempDir;

use super::checksums::{PART, config};
use super::origin::{Asked, Origin, Reply, answer, object};

fn put(client: &Client, path: &Path) -> Result<Report, Error> {
    let location = Location::parse("s3://bucket/object").expect("a URL");
    client.put(Put::new(location, Source::File(path.into()))).and_then(|transfer| transfer.wait())
}

fn begun(id: usize) -> Reply {
    let made = "InitiateMultipartUploadResult";
    answer("200 OK", "", &format!("<{made}><UploadId>{id}</UploadId></{made}>"))
}

fn completed() -> Reply {
    let done = "CompleteMultipartUploadResult";
    answer("200 OK", "", &format!("<{done}><ETag>\"2\"</ETag></{done}>"))
}

#[test]
fn a_file_whose_parts_are_not_listed_is_sent_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, object(20 * PART)).expect("a file");
    for status in ["400 Bad Request", "403 Forbidden", "405 Method Not Allowed", "501 Not Implemented"] {
        let (is_broken, uploads) = (Arc::new(AtomicBool::new(true)), AtomicUsize::new(0));
        let broken = is_broken.clone();
        let origin = Origin::start(move |asked: &Asked| match &*asked.method {
            "PUT" if asked.part() > Some(15) && broken.load(Ordering::SeqCst) => {
                answer("403 Forbidden", "", "<Error><Code>AccessDenied</Code></Error>")
            }
            "PUT" => answer("200 OK", "etag: \"1\"\r\n", ""),
            "GET" => answer(status, "", "<Error><Code>NotImplemented</Code></Error>"),
            "DELETE" => answer("204 No Content", "", ""),
            "POST" if asked.path.contains("?uploads") => begun(uploads.fetch_add(1, Ordering::SeqCst)),
            _ => completed(),
        });
        let mut config = config(&origin);
        config.settings.parallel = Some(2);
        config.upload_journals = Some(folder.path().join("journals"));
        let client = Client::new(config).expect("good settings");
        let put = || put(&client, &path);
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

/// A refusal that may pass is no reason to forget what was sent.
#[test]
fn parts_outlive_an_origin_that_asks_for_less() {
    let origin = Broken::start(
        || answer("500 Internal Server Error", "", ""),
        |is_first| match is_first {
            true => {
                answer("429 Too Many Requests", "retry-after: 1\r\n", "<Error><Code>SlowDown</Code></Error>")
            }
            false => listed(),
        },
    );
    origin.put().expect_err("it is not completed");
    origin.mend();
    assert_eq!(origin.put().expect_err("its parts are not listed").kind(), ErrorKind::Throttled);
    let report = origin.put().expect("it is completed");
    assert_eq!((report.resumed_bytes, report.fetched_bytes), (PARTS * PART, 0));
    assert_eq!(origin.count("DELETE"), 0);
}

/// All parts are there, and the object is not made of them: they are left for the next run.
#[test]
fn parts_outlive_a_completion_that_fails() {
    for status in ["500 Internal Server Error", "403 Forbidden"] {
        let refusal = move || answer(status, "", "<Error><Code>AccessDenied</Code></Error>");
        let origin = Broken::start(refusal, |_| listed());
        let hint = origin.put().expect_err("it is not completed").hint().expect("a hint").to_string();
        assert!(hint.contains("run it again to go on from 70MiB"), "{status}: {hint}");
        origin.mend();
        let sent = origin.count("PUT");
        let report = origin.put().expect("it is completed");
        assert_eq!((report.resumed_bytes, report.fetched_bytes), (PARTS * PART, 0), "{status}");
        assert_eq!((origin.count("PUT"), origin.count("DELETE")), (sent, 0), "{status}");
    }
}

/// An origin that will not make the object of these parts would say so to every run.
#[test]
fn parts_that_are_refused_are_deleted() {
    for code in ["InvalidPart", "InvalidRequest"] {
        let refusal = move || answer("400 Bad Request", "", &format!("<Error><Code>{code}</Code></Error>"));
        let origin = Broken::start(refusal, |_| listed());
        origin.put().expect_err("it is refused");
        assert_eq!(origin.count("DELETE"), 1, "{code}");
        origin.mend();
        assert_eq!(origin.put().expect("it is sent anew").resumed_bytes, 0, "{code}");
    }
}

const PARTS: u64 = 14;

fn listed() -> Reply {
    let part = |number| {
        let (number, size) = (format!("<PartNumber>{number}</PartNumber>"), format!("<Size>{PART}</Size>"));
        format!("<Part>{number}<ETag>\"1\"</ETag>{size}</Part>")
    };
    let parts: String = (1..=PARTS).map(part).collect();
    let all = "ListPartsResult";
    answer("200 OK", "", &format!("<{all}><IsTruncated>false</IsTruncated>{parts}</{all}>"))
}

/// An origin that refuses to complete an upload until it is mended, and a file that is sent there.
struct Broken {
    origin: Origin,
    client: Client,
    folder: TempDir,
    is_broken: Arc<AtomicBool>,
}

impl Broken {
    /// `refusal` answers a completion, `parts` a request to list the parts: whether it is the first.
    fn start(
        refusal: impl Fn() -> Reply + Send + Sync + 'static,
        parts: impl Fn(bool) -> Reply + Send + Sync + 'static,
    ) -> Broken {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("file"), object(PARTS * PART)).expect("a file");
        let (is_broken, looks) = (Arc::new(AtomicBool::new(true)), AtomicUsize::new(0));
        let broken = is_broken.clone();
        let origin = Origin::start(move |asked: &Asked| match &*asked.method {
            "PUT" => answer("200 OK", "etag: \"1\"\r\n", ""),
            "GET" => parts(looks.fetch_add(1, Ordering::SeqCst) == 0),
            "POST" if asked.path.contains("?uploads") => begun(1),
            "POST" if broken.load(Ordering::SeqCst) => refusal(),
            "POST" => completed(),
            "DELETE" => answer("204 No Content", "", ""),
            _ => answer("404 Not Found", "", ""),
        });
        let mut config = config(&origin);
        config.settings.retries = 0;
        config.settings.outage_timeout_ms = 0;
        config.upload_journals = Some(folder.path().join("journals"));
        let client = Client::new(config).expect("good settings");
        Broken { origin, client, folder, is_broken }
    }

    fn put(&self) -> Result<Report, Error> {
        put(&self.client, &self.folder.path().join("file"))
    }

    fn mend(&self) {
        self.is_broken.store(false, Ordering::SeqCst);
    }

    fn count(&self, method: &str) -> usize {
        self.origin.asked().iter().filter(|asked| asked.method == method).count()
    }
}
