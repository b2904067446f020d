//! What an origin is told by an upload, a move or `rb`, and what follows from its answers. The origin says
//! what the test wants.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flatout_wire::time::format_iso;

use crate::folder::Folder;
use crate::objects::bytes;
use crate::program::{ended, run, signal, wait_until};
use crate::raw::{Answer, Asked, Raw, Then};
use crate::verbs_bad_days::{Log, at, deleted, gone, keys, named, note, object, page, result, xml};

const MIB: usize = 1 << 20;
const DAY_S: u64 = 24 * 60 * 60;

/// An upload in parts has begun; its id is `u`.
fn begun() -> Answer {
    let id = "<UploadId>u</UploadId>";
    xml("200 OK", &format!("<InitiateMultipartUploadResult>{id}</InitiateMultipartUploadResult>"))
}

fn completed() -> Answer {
    let etag = "<ETag>\"whole\"</ETag>";
    xml("200 OK", &format!("<CompleteMultipartUploadResult>{etag}</CompleteMultipartUploadResult>"))
}

/// The origin has taken an object or a part, and states the checksum that came before or behind it.
fn taken(asked: &Asked, etag: &str) -> Answer {
    const SUM: &str = "x-amz-checksum-crc64nvme";
    let last = &asked.body[asked.body.len().saturating_sub(100)..];
    let last = String::from_utf8_lossy(last);
    let behind = last.rsplit_once(&format!("{SUM}:")).map(|(_, sum)| sum.trim());
    let behind = behind.filter(|_| asked.header("x-amz-trailer").is_some());
    let mut headers = vec![("content-length", "0"), ("etag", etag)];
    headers.extend(asked.header(SUM).or(behind).map(|sum| (SUM, sum)));
    Answer::new("200 OK", &headers, b"")
}

/// The number of a part that is sent.
fn part_of(path: &str) -> Option<usize> {
    let (_, rest) = path.split_once("partNumber=")?;
    rest.split('&').next()?.parse().ok()
}

/// All that an upload can be given beside its bytes, no two values alike.
const OPTIONS: [[&str; 2]; 12] = [
    ["--acl", "public-read"],
    ["--sse", "aws:kms"],
    ["--sse-kms-key-id", "a-key-of-ours"],
    ["--storage-class", "STANDARD_IA"],
    ["--tagging", "colour=dark blue"],
    ["--tagging", "sum=a+b&c"],
    ["--metadata", "who=ann b"],
    ["--metadata", "why=a=b, c"],
    ["--cache-control", "max-age=77"],
    ["--content-disposition", "attachment; filename=\"x y\""],
    ["--content-encoding", "zstd"],
    ["--content-type", "model/gltf+json"],
];

/// Names and values of headers, sorted.
type Headers = Vec<(String, String)>;

/// What [`OPTIONS`] are on the wire, and the header of the access list.
fn on_the_wire(scheme: &str) -> (Headers, Headers) {
    let (own, kms, class, key) = match scheme {
        "s3" => ("x-amz", "aws:kms", "STANDARD_IA", "server-side-encryption-aws-kms-key-id"),
        _ => ("x-oss", "KMS", "IA", "server-side-encryption-key-id"),
    };
    let acl = if scheme == "s3" { "x-amz-acl" } else { "x-oss-object-acl" };
    let mut headers = vec![
        (format!("{own}-server-side-encryption"), kms),
        (format!("{own}-{key}"), "a-key-of-ours"),
        (format!("{own}-storage-class"), class),
        (format!("{own}-tagging"), "colour=dark%20blue&sum=a%2Bb%26c"),
        (format!("{own}-meta-who"), "ann b"),
        (format!("{own}-meta-why"), "a=b, c"),
        ("cache-control".to_owned(), "max-age=77"),
        ("content-disposition".to_owned(), "attachment; filename=\"x y\""),
        ("content-encoding".to_owned(), "zstd"),
        ("content-type".to_owned(), "model/gltf+json"),
    ];
    headers.sort();
    let owned = |(name, value): (String, &str)| (name, value.to_owned());
    (headers.into_iter().map(owned).collect(), vec![owned((acl.to_owned(), "public-read"))])
}

/// The headers of a request that say how an object is to be kept, and nothing of the request itself.
fn described(asked: &Asked) -> Headers {
    const OF_THE_REQUEST: [&str; 5] =
        ["content-length", "content-md5", "x-amz-date", "x-oss-date", "x-oss-range-behavior"];
    let is_meant = |name: &str| {
        let of_sums = name.contains("checksum") || name.contains("content-sha256");
        let is_named = ["x-amz-", "x-oss-", "content-", "cache-"].iter().any(|start| name.starts_with(start));
        is_named && !of_sums && !OF_THE_REQUEST.contains(&name)
    };
    let headers = asked.headers().map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()));
    let mut headers: Headers = headers.filter(|(name, _)| is_meant(name)).collect();
    headers.sort();
    headers
}

#[test]
fn every_option_goes_out_under_its_own_name_and_once() {
    for scheme in ["s3", "oss"] {
        let (options, acl) = on_the_wire(scheme);
        let mut all = [&options[..], &acl].concat();
        all.sort();
        for (length, count) in [(1_000, 1), (6 * MIB, 4)] {
            let seen = Arc::<Mutex<Vec<(String, Headers)>>>::default();
            let told = seen.clone();
            let raw = Raw::start(move |asked| {
                let path = asked.path();
                let (step, answer) = match asked.method() {
                    "PUT" if part_of(path).is_some() => ("part", taken(asked, "\"p\"")),
                    "PUT" => ("put", taken(asked, "\"o\"")),
                    "POST" if path.contains("uploadId=u") => ("complete", completed()),
                    "POST" if path.contains("uploads") => ("create", begun()),
                    other => panic!("{other} {path} is not asked by an upload"),
                };
                told.lock().unwrap().push((step.to_owned(), described(asked)));
                answer
            });
            let folder = Folder::new();
            let file = folder.at("file.json");
            fs::write(&file, bytes(length)).unwrap();
            let url = format!("{scheme}://bucket/key.txt");
            let copy = [&["cp", &file, &url, "--part-size", "5MiB"][..], OPTIONS.as_flattened()].concat();
            run(&mut at(&raw, &copy)).clean();
            let seen = seen.lock().unwrap();
            assert_eq!(seen.len(), count, "{scheme} {length}: {seen:?}");
            for (step, found) in seen.iter() {
                let expected = match (step.as_str(), scheme) {
                    ("put", _) | ("create", "s3") => &all,
                    ("create", _) => &options,
                    // OSS takes the access list when the object appears.
                    ("complete", "oss") => &acl,
                    _ => &Headers::new(),
                };
                let is_option = |header: &&(String, String)| all.contains(header);
                let options: Headers = found.iter().filter(is_option).cloned().collect();
                assert_eq!(&options, expected, "{scheme} {length}, {step}: {found:?}");
                // Nothing but the options describes an object.
                if matches!(step.as_str(), "put" | "create") {
                    assert_eq!(found, expected, "{scheme} {length}, {step}");
                }
            }
        }
    }
}

#[test]
fn a_small_file_is_one_request_and_there_is_no_other() {
    let folder = Folder::new();
    let root = folder.at("data");
    fs::create_dir(&root).unwrap();
    for number in 0..50 {
        fs::write(format!("{root}/{number:02}"), bytes(1_000 + number)).unwrap();
    }
    let expected: Vec<String> = (0..50).map(|number| format!("PUT /bucket/up/{number:02}")).collect();
    for scheme in ["s3", "oss"] {
        // That an object must not be there is said with it, and not asked before.
        for more in [&[][..], &["-n"]] {
            let log = Log::default();
            let noted = log.clone();
            let raw = Raw::start(move |asked| {
                note(&noted, asked);
                taken(asked, "\"o\"")
            });
            let url = format!("{scheme}://bucket/up");
            let copy = [&["cp", "-r", &root, &url][..], more].concat();
            run(&mut at(&raw, &copy)).clean();
            let mut log = log.lock().unwrap().clone();
            log.sort();
            assert_eq!(log, expected, "{scheme} {more:?}");
        }
    }
}

/// A file goes once the object is there, by size and ETag.
#[test]
fn a_file_stays_until_its_object_is_confirmed() {
    type Row = (fn() -> Answer, Option<&'static str>);
    let rows: [Row; 5] = [
        (|| object("\"o\"", 7), None),
        (|| object("\"other\"", 7), Some("is not the copy, by its ETag")),
        (|| object("\"o\"", 8), Some("its size there is 8")),
        (|| Answer::new("404 Not Found", &[("content-length", "0")], b""), Some("could not be confirmed")),
        (|| Answer::new("403 Forbidden", &[("content-length", "0")], b""), Some("could not be confirmed")),
    ];
    for scheme in ["s3", "oss"] {
        for (look, says) in rows {
            let (log, folder) = (Log::default(), Folder::new());
            let (noted, file) = (log.clone(), folder.at("file"));
            fs::write(&file, b"content").unwrap();
            let raw = Raw::start(move |asked| {
                note(&noted, asked);
                if asked.method() == "PUT" { taken(asked, "\"o\"") } else { look() }
            });
            let ended = run(&mut at(&raw, &["mv", &file, &format!("{scheme}://bucket/key")]));
            let log = log.lock().unwrap().clone();
            assert_eq!(log, ["PUT /bucket/key", "HEAD /bucket/key"], "{scheme} {says:?}");
            let Some(says) = says else {
                ended.clean();
                assert!(!fs::exists(&file).unwrap(), "{scheme}: it is moved");
                continue;
            };
            assert_ne!(ended.code, Some(0), "{scheme} {says}: {}", ended.stderr);
            assert!(
                ended.stderr.contains(says) && ended.stderr.contains("the source stays"),
                "{}",
                ended.stderr
            );
            assert!(!ended.text().contains("deleted"), "{scheme} {says}: {}", ended.text());
            assert_eq!(fs::read(&file).unwrap(), b"content", "{scheme} {says}");
        }
    }
}

/// An object goes while it is the one that was copied: it is looked at once the file is there.
#[test]
fn an_object_that_was_replaced_since_it_was_moved_is_not_deleted() {
    for scheme in ["s3", "oss"] {
        for is_replaced in [false, true] {
            let (log, folder) = (Log::default(), Folder::new());
            let (noted, file) = (log.clone(), folder.at("file"));
            let made = file.clone();
            let raw = Raw::start(move |asked| {
                note(&noted, asked);
                let is_late = is_replaced && fs::exists(&made).unwrap();
                match asked.method() {
                    "DELETE" => deleted(),
                    _ => crate::raw::right(asked, b"content", if is_late { "\"t\"" } else { "\"s\"" }),
                }
            });
            let ended = run(&mut at(&raw, &["mv", &format!("{scheme}://bucket/key"), &file]));
            assert_eq!(fs::read(&file).unwrap(), b"content", "{scheme}");
            let deletes = log.lock().unwrap().iter().filter(|line| line.starts_with("DELETE")).count();
            assert_eq!(deletes, usize::from(!is_replaced), "{scheme}: {log:?}");
            if is_replaced {
                let says = "copied, but the source stays";
                assert!(ended.code != Some(0) && ended.stderr.contains(says), "{scheme}: {}", ended.stderr);
            } else {
                ended.clean();
            }
        }
    }
}

/// A page of unfinished uploads: keys, which are ids, too, and when each was begun.
fn uploads(found: &[(&str, u64)]) -> Answer {
    let upload = |(key, begun_s): &(&str, u64)| {
        let (begun, id) = (format_iso(*begun_s), format!("<UploadId>id-{key}</UploadId>"));
        format!("<Upload><Key>{key}</Key>{id}<Initiated>{begun}</Initiated></Upload>")
    };
    let found: String = found.iter().map(upload).collect();
    xml("200 OK", &format!("<ListMultipartUploadsResult>{found}</ListMultipartUploadsResult>"))
}

#[test]
fn only_uploads_that_are_old_enough_are_aborted() {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    for scheme in ["s3", "oss"] {
        let log = Log::default();
        let noted = log.clone();
        let raw = Raw::start(move |asked| {
            note(&noted, asked);
            match asked.method() {
                "GET" => uploads(&[("new", now_s - DAY_S), ("old", now_s - 8 * DAY_S)]),
                _ => deleted(),
            }
        });
        let url = format!("{scheme}://bucket");
        let old = ["uploads", &url, "--older-than", "7d"];
        let changes = || {
            let log = log.lock().unwrap();
            log.iter().filter(|line| !line.starts_with("GET ")).cloned().collect::<Vec<String>>()
        };
        let listed = run(&mut at(&raw, &old)).clean();
        assert!(listed.text().contains("id-old") && !listed.text().contains("id-new"), "{}", listed.text());
        assert_eq!(changes(), [""; 0], "{scheme}");
        let said = run(&mut at(&raw, &[&old[..], &["--abort"]].concat())).clean();
        assert!(said.text().starts_with("aborted ") && said.text().lines().count() == 1, "{}", said.text());
        assert_eq!(changes(), ["DELETE /bucket/old?uploadId=id-old"], "{scheme}");
    }
}

/// Pages that end are not the end of the parts.
#[test]
fn parts_that_are_listed_page_by_page_are_all_resumed() {
    for scheme in ["s3", "oss"] {
        let (log, folder) = (Log::default(), Folder::new());
        let (completions, goes_on) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (file, state, length) = (folder.at("file"), folder.at("state"), 12 * MIB + 1);
        fs::write(&file, bytes(length)).unwrap();
        let (noted, asked_for, listens) = (log.clone(), completions.clone(), goes_on.clone());
        let raw = Raw::start(move |asked| {
            note(&noted, asked);
            let path = asked.path();
            match (asked.method(), part_of(path)) {
                ("PUT", Some(part)) => taken(asked, &format!("\"p{part}\"")),
                ("GET", _) => page_of_parts(path, length),
                ("POST", _) if path.contains("uploads") => begun(),
                ("POST", _) if listens.load(Ordering::SeqCst) => completed(),
                ("POST", _) => {
                    asked_for.fetch_add(1, Ordering::SeqCst);
                    Answer { bytes: Vec::new(), then: Then::Silence }
                }
                (other, _) => panic!("{other} {path} is not asked by an upload"),
            }
        });
        let url = format!("{scheme}://bucket/key");
        let copy = || {
            let mut command = at(&raw, &["cp", &file, &url, "--part-size", "5MiB", "--json"]);
            command.env("XDG_STATE_HOME", &state);
            command
        };
        let mut child = copy().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the completion", || {
            completions.load(Ordering::SeqCst) > 0 || child.try_wait().unwrap().is_some()
        });
        signal("KILL", child.id());
        child.wait().unwrap();
        goes_on.store(true, Ordering::SeqCst);
        log.lock().unwrap().clear();
        let event = run(&mut copy()).clean().events()[0].clone();
        assert_eq!((&event["resumed"], &event["fetched"]), (&length.into(), &0.into()), "{scheme}: {event}");
        let log = log.lock().unwrap();
        let methods: Vec<&str> = log.iter().map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(methods, ["GET", "GET", "GET", "POST"], "{scheme}: {log:?}");
    }
}

/// One part, and that there are more of them up to the third.
fn page_of_parts(path: &str, length: usize) -> Answer {
    let after =
        path.split_once("part-number-marker=").map_or("0", |(_, rest)| rest.split('&').next().unwrap());
    let number = after.parse::<usize>().unwrap() + 1;
    let size = (length - (number - 1) * 5 * MIB).min(5 * MIB);
    let part = format!("<PartNumber>{number}</PartNumber><Size>{size}</Size><ETag>\"p{number}\"</ETag>");
    let next = match number {
        3 => "<IsTruncated>false</IsTruncated>".to_owned(),
        _ => format!("<IsTruncated>true</IsTruncated><NextPartNumberMarker>{number}</NextPartNumberMarker>"),
    };
    xml("200 OK", &format!("<ListPartsResult><Part>{part}</Part>{next}</ListPartsResult>"))
}

/// Where nobody is asked, what goes is said before it goes: nothing is answered until the line was read.
#[test]
fn what_a_bucket_holds_is_said_before_it_is_deleted() {
    let (log, is_said, came_early) =
        (Log::default(), Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (noted, said, early) = (log.clone(), is_said.clone(), came_early.clone());
    let (went, listings) = (Log::default(), AtomicUsize::new(0));
    let asked_for = went.clone();
    let raw = Raw::start(move |asked| match asked.method() {
        "GET" if asked.path().contains("uploads") => uploads(&[("part", 1_000_000_000)]),
        // One of them came once they were counted.
        "GET" if listings.fetch_add(1, Ordering::SeqCst) == 0 => page(&keys(0..2), None),
        "GET" => {
            let at = |key: &str, day: &str| {
                format!(
                    "<Contents><Key>{key}</Key><Size>2</Size><LastModified>{day}</LastModified></Contents>"
                )
            };
            let all: String = keys(0..2).iter().map(|key| at(key, "1970-01-01T00:00:00Z")).collect();
            let late = at("late", "2026-11-26T00:00:00Z");
            xml("200 OK", &format!("<ListBucketResult>{all}{late}</ListBucketResult>"))
        }
        method => {
            note(&noted, asked);
            let begun = Instant::now();
            while !said.load(Ordering::SeqCst) && begun.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(5));
            }
            early.fetch_or(!said.load(Ordering::SeqCst), Ordering::SeqCst);
            match method {
                "POST" => {
                    asked_for.lock().unwrap().extend(named(asked));
                    result(&gone(&named(asked)))
                }
                _ => deleted(),
            }
        }
    });
    let mut command = at(&raw, &["rb", "s3://bucket", "--force", "--yes"]);
    let piped = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    is_said.store(true, Ordering::SeqCst);
    let ended = ended(child.wait_with_output().unwrap()).clean();
    assert_eq!(line, "deleting s3://bucket: 2 objects (4B) and 1 unfinished upload\n", "{}", ended.stderr);
    assert!(!came_early.load(Ordering::SeqCst), "it was said once something was deleted");
    let log = log.lock().unwrap();
    let methods: Vec<&str> = log.iter().map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(methods, ["DELETE", "POST", "DELETE"], "{log:?}");
    assert_eq!(*went.lock().unwrap(), keys(0..2), "what came later stays");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stdout, &mut rest).unwrap();
    assert!(rest.ends_with("deleted s3://bucket\n"), "{rest}");
}

/// S3 tells keys that may not list that they may not look at what is not there.
#[test]
fn no_clobber_is_judged_by_the_origin_where_nobody_may_look() {
    let folder = Folder::new();
    let file = folder.at("file");
    fs::write(&file, b"12345").unwrap();
    let raw = Raw::start(|asked| match (asked.method(), asked.header("if-none-match")) {
        ("HEAD", _) => Answer::new("403 Forbidden", &[("content-length", "0")], b""),
        ("PUT", Some("*")) => taken(asked, "\"1\""),
        other => panic!("{other:?} was not to be asked"),
    });
    run(&mut at(&raw, &["cp", "-n", &file, "s3://bucket/key"])).clean();
}

/// Only an object that `bench put` wrote may be replaced, and a refused look does not tell who wrote it.
#[test]
fn bench_put_writes_over_nothing_that_it_cannot_look_at() {
    let log = Log::default();
    let noted = log.clone();
    let raw = Raw::start(move |asked| {
        note(&noted, asked);
        Answer::new("403 Forbidden", &[("content-length", "0")], b"")
    });
    let ended = run(&mut at(&raw, &["bench", "put", "--size", "1KiB", "s3://bucket/key", "--repeat", "1"]));
    assert_eq!(ended.code, Some(5), "{}", ended.stderr);
    assert!(ended.stderr.contains("whether an object is there is not known"), "{}", ended.stderr);
    let log = log.lock().unwrap();
    assert!(log.iter().all(|line| line.starts_with("HEAD ")), "{log:?}");
}
