//! Deletions, copies and moves on bad days: answers that are lost, refused or contradict each other, listings
//! that break off, interrupts. The origin says what the test wants.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::program::{ended, flatout, run, signal, wait_until};
use crate::raw::{Answer, Asked, Raw, Then};

/// What the origin was asked: method and path, in order.
pub type Log = Arc<Mutex<Vec<String>>>;

pub fn note(log: &Log, asked: &Asked) {
    log.lock().unwrap().push(format!("{} {}", asked.method(), asked.path()));
}

pub fn at(raw: &Raw, arguments: &[&str]) -> Command {
    let url = raw.url("");
    let url = url.trim_end_matches('/');
    let more = ["--endpoint-url", url, "--oss-endpoint", url, "--no-sign-request", "--retries", "3"];
    flatout(&[arguments, &more].concat())
}

pub fn xml(status: &str, body: &str) -> Answer {
    Answer::new(status, &[("content-length", &body.len().to_string())], body.as_bytes())
}

fn refused(status: &str, code: &str) -> Answer {
    xml(status, &format!("<Error><Code>{code}</Code><Message>m</Message></Error>"))
}

/// A page of objects, and where the next one begins.
pub fn page(keys: &[String], next: Option<&str>) -> Answer {
    let mut body = String::from("<ListBucketResult>");
    for key in keys {
        body += &format!("<Contents><Key>{key}</Key><Size>2</Size></Contents>");
    }
    if let Some(next) = next {
        body +=
            &format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{next}</NextContinuationToken>");
    }
    xml("200 OK", &(body + "</ListBucketResult>"))
}

/// The keys of a deletion.
pub fn named(asked: &Asked) -> Vec<String> {
    let body = String::from_utf8(asked.body.clone()).unwrap();
    let keys = body.split("<Key>").skip(1).map(|rest| rest.split_once("</Key>").unwrap().0.to_owned());
    keys.collect()
}

pub fn gone(keys: &[String]) -> String {
    keys.iter().map(|key| format!("<Deleted><Key>{key}</Key></Deleted>")).collect()
}

pub fn result(inside: &str) -> Answer {
    xml("200 OK", &format!("<DeleteResult>{inside}</DeleteResult>"))
}

pub fn keys(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|number| format!("d/{number:05}")).collect()
}

/// The first answer to a batch is as `first` has it, later ones say that all is gone.
fn origin(count: usize, first: impl Fn(&[String]) -> Answer + Send + Sync + 'static) -> (Raw, Log) {
    let (log, batches) = (Log::default(), AtomicUsize::new(0));
    let noted = log.clone();
    let raw = Raw::start(move |asked| {
        note(&noted, asked);
        match asked.method() {
            "GET" => page(&keys(0..count), None),
            "POST" if batches.fetch_add(1, Ordering::SeqCst) == 0 => first(&named(asked)),
            "POST" => result(&gone(&named(asked))),
            _ => Answer::new("204 No Content", &[], b""),
        }
    });
    (raw, log)
}

#[test]
fn a_batch_whose_answer_is_lost_or_throttled_is_asked_again() {
    let rows: [fn(&[String]) -> Answer; 4] = [
        |_| Answer { bytes: Vec::new(), then: Then::Close },
        |_| refused("503 Slow Down", "SlowDown"),
        |_| xml("200 OK", "<Error><Code>InternalError</Code></Error>"),
        // Some keys are gone, of the others each may be later.
        |keys| {
            let (one, others) = keys.split_at(1);
            let refused: String = others
                .iter()
                .map(|key| {
                    format!("<Error><Key>{key}</Key><Code>SlowDown</Code><Message>m</Message></Error>")
                })
                .collect();
            result(&(gone(one) + &refused))
        },
    ];
    for (row, first) in rows.into_iter().enumerate() {
        let (raw, log) = origin(3, first);
        let said = run(&mut at(&raw, &["rm", "-r", "s3://bucket/d"])).clean();
        assert!(said.text().starts_with("deleted 3 objects, 6B in "), "{row}: {}", said.text());
        let posts = log.lock().unwrap().iter().filter(|line| line.starts_with("POST")).count();
        assert_eq!(posts, 2, "{row}");
    }
}

#[test]
fn each_key_that_stays_is_named_and_stops_no_other() {
    let (raw, _) = origin(5, |keys| {
        let error = |at: usize, code: &str| {
            format!("<Error><Key>{}</Key><Code>{code}</Code><Message>m</Message></Error>", keys[at])
        };
        let inside = gone(&keys[..2]) + &error(2, "AccessDenied") + &error(3, "AccessDenied");
        result(&(inside + &error(4, "NoSuchKey")))
    });
    let ended = run(&mut at(&raw, &["rm", "-r", "s3://bucket/d", "--json"]));
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    for key in ["d/00002", "d/00003"] {
        assert!(
            ended.stderr.contains(&format!("delete: s3://bucket/{key}: access denied (AccessDenied: m)")),
            "{}",
            ended.stderr
        );
    }
    let events = ended.events();
    let failed: Vec<&str> = events
        .iter()
        .filter(|event| event["status"] == "failed")
        .map(|event| event["key"].as_str().unwrap())
        .collect();
    assert_eq!(failed, ["d/00002", "d/00003"]);
    let summary = events.last().unwrap();
    assert_eq!((&summary["ok"], &summary["failed"], &summary["bytes"]), (&3.into(), &2.into(), &6.into()));
}

/// What the answer does not name is not known to be gone.
#[test]
fn a_key_that_the_answer_does_not_name_is_deleted_alone() {
    let (raw, log) = origin(3, |keys| result(&gone(&keys[..2])));
    run(&mut at(&raw, &["rm", "-r", "s3://bucket/d"])).clean();
    assert!(log.lock().unwrap().contains(&"DELETE /bucket/d/00002".to_owned()), "{log:?}");
}

#[test]
fn an_origin_without_batches_is_asked_key_by_key() {
    let (raw, log) = origin(3, |_| refused("501 Not Implemented", "NotImplemented"));
    run(&mut at(&raw, &["rm", "-r", "s3://bucket/d"])).clean();
    let log = log.lock().unwrap();
    for key in keys(0..3) {
        assert!(log.contains(&format!("DELETE /bucket/{key}")), "{log:?}");
    }
}

#[test]
fn a_listing_that_breaks_off_says_what_was_deleted() {
    for (status, code, exit) in
        [("400 Bad Request", "InvalidArgument", 3), ("403 Forbidden", "AccessDenied", 5)]
    {
        let raw = Raw::start(move |asked| match asked.method() {
            "GET" if asked.path().contains("continuation-token") => refused(status, code),
            "GET" => page(&keys(0..1_000), Some("more")),
            _ => result(&gone(&named(asked))),
        });
        let ended = run(&mut at(&raw, &["rm", "-r", "s3://bucket/d"]));
        assert_eq!(ended.code, Some(exit), "{}", ended.stderr);
        assert!(ended.stderr.contains(": 1,000 objects were deleted before"), "{}", ended.stderr);
        assert!(ended.text().starts_with("deleted 1,000 objects, "), "{}", ended.text());
        let planned = run(&mut at(&raw, &["rm", "-r", "s3://bucket/d", "--dry-run"]));
        assert_eq!((planned.code, planned.text().matches("would delete ").count()), (Some(exit), 1_000));
        assert!(planned.stderr.contains(": 1,000 objects were named before"), "{}", planned.stderr);
        let counted = run(&mut at(&raw, &["du", "s3://bucket/d"]));
        assert_eq!((counted.code, counted.text()), (Some(exit), ""));
        assert!(counted.stderr.contains("at least 1,000 objects, 2000 bytes"), "{}", counted.stderr);
    }
}

#[test]
fn ctrl_c_says_how_many_are_gone_and_how_many_may_be() {
    let (batches, silent) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
    let silenced = silent.clone();
    // Two batches are answered, all others are not, and there is no end of keys.
    let raw = Raw::start(move |asked| match asked.method() {
        "GET" => page(&keys(0..1_000), Some(&format!("t{}", asked.number))),
        _ if batches.fetch_add(1, Ordering::SeqCst) < 2 => result(&gone(&named(asked))),
        _ => {
            silenced.fetch_add(1, Ordering::SeqCst);
            Answer { bytes: Vec::new(), then: Then::Silence }
        }
    });
    let mut command = at(&raw, &["rm", "-r", "s3://bucket/d", "--parallel", "2"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("batches without an answer", || {
        silent.load(Ordering::SeqCst) >= 2 || child.try_wait().unwrap().is_some()
    });
    signal("INT", child.id());
    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    let says = "interrupted: 2,000 objects deleted, 2,000 more were asked for and may be gone";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
}

/// The first answer is lost. The second says that the bucket is ours, or gone: the first request did it.
#[test]
fn a_bucket_is_made_or_deleted_though_the_answer_was_lost() {
    for (verb, status, code) in
        [("mb", "409 Conflict", "BucketAlreadyOwnedByYou"), ("rb", "404 Not Found", "NoSuchBucket")]
    {
        let lost = Raw::start(move |asked| match asked.number {
            0 => Answer { bytes: Vec::new(), then: Then::Close },
            _ => refused(status, code),
        });
        run(&mut at(&lost, &[verb, "s3://bucket"])).clean();
        let first = Raw::start(move |_| refused(status, code));
        let ended = run(&mut at(&first, &[verb, "s3://bucket"]));
        assert_ne!(ended.code, Some(0), "{verb}: nothing was lost: {}", ended.stderr);
    }
    // Another's bucket stays another's.
    let others = Raw::start(move |asked| match asked.number {
        0 => Answer { bytes: Vec::new(), then: Then::Close },
        _ => refused("409 Conflict", "BucketAlreadyExists"),
    });
    run(&mut at(&others, &["mb", "s3://bucket"])).refused(4, &["exists already"]);
}

pub fn object(etag: &str, length: u64) -> Answer {
    Answer::new("200 OK", &[("etag", etag), ("content-length", &length.to_string())], b"")
}

fn copied(etag: &str) -> Answer {
    xml("200 OK", &format!("<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>"))
}

/// A move from `a` to `b` in which the copy is answered so, and the new object is looked at as `target`; of
/// the source as `source` has it, by the number of the look.
fn moved(
    copy: fn() -> Answer,
    target: fn() -> Answer,
    source: fn(usize) -> Answer,
    delete: fn() -> Answer,
) -> (crate::program::Ended, Vec<String>) {
    let (log, looks) = (Log::default(), AtomicUsize::new(0));
    let noted = log.clone();
    let raw = Raw::start(move |asked| {
        note(&noted, asked);
        match (asked.method(), asked.path()) {
            ("HEAD", "/bucket/a") => source(looks.fetch_add(1, Ordering::SeqCst)),
            ("HEAD", _) => target(),
            ("PUT", _) => copy(),
            _ => delete(),
        }
    });
    let ended = run(&mut at(&raw, &["mv", "s3://bucket/a", "s3://bucket/b"]));
    let log = log.lock().unwrap().clone();
    (ended, log)
}

pub fn deleted() -> Answer {
    Answer::new("204 No Content", &[], b"")
}

#[test]
fn a_source_goes_only_once_its_copy_is_confirmed() {
    let same: fn(usize) -> Answer = |_| object("\"s\"", 7);
    let (ended, log) = moved(|| copied("\"c\""), || object("\"c\"", 7), same, deleted);
    ended.clean();
    assert_eq!(
        log,
        ["HEAD /bucket/a", "PUT /bucket/b", "HEAD /bucket/b", "HEAD /bucket/a", "DELETE /bucket/a"]
    );
    type Row = (fn() -> Answer, fn() -> Answer, fn(usize) -> Answer, &'static str);
    let rows: [Row; 7] = [
        (|| copied("\"c\""), || object("\"d\"", 7), same, "is not the copy, by its ETag"),
        (|| copied("\"c\""), || object("\"c\"", 8), same, "its size there is 8"),
        (|| copied("\"c\""), || refused("404 Not Found", ""), same, "could not be confirmed"),
        (|| copied("\"c\""), || refused("403 Forbidden", ""), same, "could not be confirmed"),
        (
            || copied("\"c\""),
            || object("\"c\"", 7),
            |look| object(if look == 0 { "\"s\"" } else { "\"t\"" }, 7),
            "replaced meanwhile",
        ),
        (
            || refused("412 Precondition Failed", "PreconditionFailed"),
            || object("\"c\"", 7),
            |look| object(if look == 0 { "\"s\"" } else { "\"t\"" }, 7),
            "replaced while it was copied",
        ),
        (
            || xml("200 OK", "<Error><Code>AccessDenied</Code></Error>"),
            || object("\"c\"", 7),
            same,
            "access denied",
        ),
    ];
    for (copy, target, source, says) in rows {
        let (ended, log) = moved(copy, target, source, deleted);
        assert!(ended.stderr.contains(says) && ended.code != Some(0), "{says}: {}", ended.stderr);
        assert!(!log.contains(&"DELETE /bucket/a".to_owned()), "{says}: {log:?}");
    }
}

/// A condition that the origin keeps, one that it does not know, and a source that may not be deleted.
#[test]
fn a_source_that_cannot_be_deleted_is_named() {
    type Row = (fn() -> Answer, i32, &'static str);
    let rows: [Row; 3] = [
        (
            || refused("403 Forbidden", "AccessDenied"),
            5,
            "copied, but the source stays: delete: s3://bucket/a: access denied",
        ),
        (|| refused("412 Precondition Failed", "PreconditionFailed"), 1, "replaced meanwhile"),
        (|| refused("404 Not Found", "NoSuchKey"), 0, ""),
    ];
    for (delete, code, says) in rows {
        let (ended, _) = moved(|| copied("\"c\""), || object("\"c\"", 7), |_| object("\"s\"", 7), delete);
        assert_eq!(ended.code, Some(code), "{}", ended.stderr);
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
    }
}

/// A part that fails aborts the upload; so does an interrupt while parts are on their way.
#[test]
fn a_copy_in_parts_that_fails_leaves_nothing() {
    for is_interrupted in [false, true] {
        let (log, parts) = (Log::default(), Arc::new(AtomicUsize::new(0)));
        let (noted, counted) = (log.clone(), parts.clone());
        let raw = Raw::start(move |asked| {
            note(&noted, asked);
            match asked.method() {
                "HEAD" => object("\"s\"", 64 << 20),
                "GET" => xml("200 OK", "<Tagging><TagSet/></Tagging>"),
                "POST" => xml(
                    "200 OK",
                    "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
                ),
                "DELETE" => deleted(),
                _ if counted.fetch_add(1, Ordering::SeqCst) < 2 => {
                    xml("200 OK", "<CopyPartResult><ETag>\"p\"</ETag></CopyPartResult>")
                }
                _ if is_interrupted => Answer { bytes: Vec::new(), then: Then::Silence },
                _ => refused("403 Forbidden", "AccessDenied"),
            }
        });
        let copy = ["cp", "s3://bucket/a", "s3://bucket/b", "--part-size", "8MiB"];
        let mut child = at(&raw, &copy).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        if is_interrupted {
            wait_until("parts", || parts.load(Ordering::SeqCst) > 2 || child.try_wait().unwrap().is_some());
            signal("INT", child.id());
        }
        let ended = ended(child.wait_with_output().unwrap());
        assert_eq!(ended.code, Some(if is_interrupted { 130 } else { 5 }), "{}", ended.stderr);
        assert!(ended.stderr.contains("copy: s3://bucket/a -> s3://bucket/b: "), "{}", ended.stderr);
        let log = log.lock().unwrap();
        assert!(log.contains(&"DELETE /bucket/b?uploadId=u".to_owned()), "{log:?}");
        assert!(log.iter().filter(|line| line.starts_with("POST")).count() == 1, "{log:?}");
    }
}

/// The origin has forgotten the upload when the completion is asked again: the object tells.
#[test]
fn a_completion_whose_answer_is_lost_is_settled_by_the_object() {
    // The MD5 of two MD5s of nothing, as of an object of two parts.
    let part = "\"d41d8cd98f00b204e9800998ecf8427e\"";
    for (etag, is_ours) in [("\"59adb24ef3cdbe0297f05b395827453f-2\"", false), ("", true)] {
        let raw = Raw::start(move |asked| match (asked.method(), asked.path()) {
            ("HEAD", "/bucket/a") => object("\"s\"", 16 << 20),
            ("HEAD", _) if is_ours => object("\"5873dd45edd01f09c1ef2e7819369e8e-2\"", 16 << 20),
            ("HEAD", _) => object(etag, 16 << 20),
            ("GET", _) => refused("404 Not Found", "NoSuchTagSet"),
            ("POST", path) if path.contains("uploads") => xml(
                "200 OK",
                "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
            ),
            ("POST", _) => refused("404 Not Found", "NoSuchUpload"),
            ("DELETE", _) => deleted(),
            _ => xml("200 OK", &format!("<CopyPartResult><ETag>{part}</ETag></CopyPartResult>")),
        });
        let ended = run(&mut at(&raw, &["cp", "s3://bucket/a", "s3://bucket/b", "--part-size", "8MiB"]));
        assert_eq!(ended.code, Some(i32::from(!is_ours)), "{}", ended.stderr);
    }
}

/// Of many copies each failure is named and stops no other; a listing that breaks off is said, and so is an
/// interrupt.
#[test]
fn many_copies_on_a_bad_day() {
    let copies = |log: &Log| log.lock().unwrap().iter().filter(|line| line.starts_with("PUT")).count();
    for (is_cut, exit) in [(false, 5), (true, 5)] {
        let log = Log::default();
        let noted = log.clone();
        let raw = Raw::start(move |asked| {
            note(&noted, asked);
            match (asked.method(), asked.path()) {
                ("HEAD", _) => object("\"s\"", 7),
                ("GET", path) if path.contains("continuation-token") => {
                    refused("400 Bad Request", "InvalidArgument")
                }
                ("GET", _) => page(&keys(0..100), is_cut.then_some("more")),
                ("PUT", path) if path.ends_with('7') => refused("403 Forbidden", "AccessDenied"),
                _ => copied("\"c\""),
            }
        });
        let ended = run(&mut at(&raw, &["cp", "-r", "s3://bucket/d", "s3://bucket/e", "--json"]));
        assert_eq!(ended.code, Some(exit), "{}", ended.stderr);
        assert_eq!(copies(&log), 100);
        let events = ended.events();
        let summary = events.last().unwrap();
        assert_eq!((&summary["ok"], &summary["failed"]), (&90.into(), &10.into()), "{summary}");
        let incomplete = events.iter().any(|event| event["event"] == "error" && event["exit"] == 3);
        assert_eq!(incomplete, is_cut, "{}", ended.stderr);
    }
    // Half of the copies are never answered.
    let silent = Arc::new(AtomicUsize::new(0));
    let counted = silent.clone();
    let raw = Raw::start(move |asked| match (asked.method(), asked.path()) {
        ("HEAD", _) => object("\"s\"", 7),
        ("GET", _) => page(&keys(0..1_000), Some(&format!("t{}", asked.number))),
        (_, path) if path.ends_with(['1', '3', '5', '7', '9']) => {
            counted.fetch_add(1, Ordering::SeqCst);
            Answer { bytes: Vec::new(), then: Then::Silence }
        }
        _ => copied("\"c\""),
    });
    let mut child = at(&raw, &["cp", "-r", "s3://bucket/d", "s3://bucket/e"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("copies without an answer", || {
        silent.load(Ordering::SeqCst) >= 32 || child.try_wait().unwrap().is_some()
    });
    signal("INT", child.id());
    let ended = ended(child.wait_with_output().unwrap());
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    assert!(
        ended.stderr.contains("interrupted: 3") && ended.stderr.contains(" objects copied"),
        "{}",
        ended.stderr
    );
}
