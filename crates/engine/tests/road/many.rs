//! Many objects: how they are asked for, what becomes of each, and what is left when it ends early.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatout_engine::{Client, Config, Error, ErrorKind, Finished, Folder, Many, Verified, Wanted};
use flatout_wire::checksum::Algorithm;
use flatout_wire::location::Location;

use super::origin::{Asked, Origin, Reply, head_206, object, right};
use super::{PART, config};

const SOON: Duration = Duration::from_millis(20);

/// A client whose bucket `b` is the origin.
fn client(origin: &Origin) -> Client {
    client_with(origin, config())
}

fn client_with(origin: &Origin, mut config: Config) -> Client {
    config.settings.endpoint_url = Some(format!("http://{}", origin.address));
    Client::new(config).expect("good settings")
}

fn bucket() -> Location {
    Location::parse("s3://b").expect("a location")
}

fn wanted(key: &str, size: Option<u64>) -> Wanted {
    let location = Location::parse(&format!("s3://b/{key}")).expect("a location");
    Wanted { location, size, name: key.to_owned(), keep_existing: false, modified_ns: None }
}

fn start(client: &Client, objects: &[(&str, Option<u64>)], folder: Option<&Path>) -> Many {
    let objects: Vec<_> = objects.iter().map(|(key, size)| Ok(wanted(key, *size))).collect();
    let folder = folder.map(|path| Folder::open(path).expect("a folder"));
    client.get_many(&bucket(), objects.into_iter(), folder).expect("it starts")
}

fn drain(many: &mut Many) -> BTreeMap<String, Finished> {
    let mut ended = BTreeMap::new();
    while let Some(batch) = many.next(SOON) {
        for finished in batch {
            let before = ended.insert(finished.wanted.name.clone(), finished);
            assert!(before.is_none(), "each object ends once");
        }
    }
    ended
}

/// Everything in a folder by its relative path.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).expect("a folder").flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path => {
                    let name = path.strip_prefix(folder).expect("beneath it").to_string_lossy().into_owned();
                    found.insert(name, std::fs::read(path).expect("a file"));
                }
            }
        }
    }
    found
}

/// The size that the end of a key tells: `x-300` has 300 bytes.
fn size_of(asked: &Asked) -> u64 {
    asked.path.rsplit('-').next().and_then(|digits| digits.parse().ok()).expect("a size in the key")
}

/// What an S3 origin answers: a whole with its checksum where that is asked for.
fn serve(asked: &Asked) -> Reply {
    let body = object(size_of(asked));
    if asked.method == "HEAD" {
        return Reply::Keep(
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\netag: \"v1\"\r\n\r\n", body.len()).into(),
        );
    }
    if asked.header("range").is_some() {
        return Reply::Keep(right(asked, &body));
    }
    let stated = match asked.header("x-amz-checksum-mode") {
        Some("ENABLED") => format!(
            "x-amz-checksum-crc64nvme: {}\r\n",
            Algorithm::Crc64Nvme.encode(Algorithm::Crc64Nvme.of(&body))
        ),
        _ => String::new(),
    };
    whole(&body, &stated)
}

fn whole(body: &[u8], headers: &str) -> Reply {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\netag: \"v1\"\r\n{headers}\r\n", body.len());
    Reply::Keep([head.as_bytes(), body].concat())
}

#[test]
fn a_small_object_is_one_request_and_verified() {
    let origin = Origin::start(serve);
    let target = tempfile::tempdir().expect("a folder");
    let client = client(&origin);
    let names: Vec<String> =
        (0..300).map(|n| format!("f{}/k{n}-{}", n % 7, n * 27)).chain(["empty-0".into()]).collect();
    let objects: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), Some(name.rsplit('-').next().unwrap().parse().unwrap())))
        .collect();
    let mut many = start(&client, &objects, Some(target.path()));
    let ended = drain(&mut many);
    assert!(many.incomplete().is_none());
    assert_eq!(ended.len(), 301);
    for (name, finished) in &ended {
        let report = finished.result.as_ref().expect(name);
        assert_eq!(report.verified, Verified::Whole(Algorithm::Crc64Nvme), "{name}");
        assert_eq!((report.bytes, finished.retries), (finished.wanted.size.expect("a size"), 0), "{name}");
    }
    let expected =
        names.iter().map(|name| (name.clone(), object(name.rsplit('-').next().unwrap().parse().unwrap())));
    assert!(files(target.path()) == expected.collect(), "every file is there, and nothing else");
    let asked = origin.asked();
    assert_eq!(asked.len(), 301, "one request each");
    assert!(asked.iter().all(|asked| asked.method == "GET" && asked.header("range").is_none()));
    let progress = many.progress();
    assert_eq!((progress.objects, progress.ok, progress.failed), (301, 301, 0));
    assert!(progress.is_complete && progress.landed_bytes == progress.total_bytes);
    assert!(progress.connections <= 8, "{} connections for 4 in flight", progress.connections);
}

#[test]
fn large_objects_go_by_parts_and_small_ones_do_not_wait_behind_them() {
    let origin = Origin::start(serve);
    let target = tempfile::tempdir().expect("a folder");
    let client = client(&origin);
    let (large, larger) = (format!("large-{}", 40 * PART), format!("larger-{}", 41 * PART + 5));
    let mut objects = vec![(large.as_str(), Some(40 * PART)), (larger.as_str(), Some(41 * PART + 5))];
    let small: Vec<String> = (0..40).map(|n| format!("small{n}-100")).collect();
    objects.extend(small.iter().map(|name| (name.as_str(), Some(100))));
    objects.push(("unknown-9000", None));
    let ended = drain(&mut start(&client, &objects, Some(target.path())));
    assert!(ended.values().all(|finished| finished.result.is_ok()));
    for (name, bytes) in files(target.path()) {
        assert!(bytes == object(name.rsplit('-').next().unwrap().parse().unwrap()), "{name}");
    }
    let asked = origin.asked();
    let last_part = asked.iter().rposition(|asked| asked.path.contains("larger")).expect("parts");
    let last_small = asked.iter().rposition(|asked| asked.path.contains("small")).expect("small ones");
    assert!(last_small < last_part, "small ones ended at request {last_small}, parts at {last_part}");
}

#[test]
fn one_worker_alone_does_it_all() {
    let origin = Origin::start(serve);
    let target = tempfile::tempdir().expect("a folder");
    let mut config = config();
    config.settings.parallel = Some(1);
    let client = client_with(&origin, config);
    let objects = [
        ("a-50000", Some(50_000)),
        ("b-3", Some(3)),
        ("c-60000", Some(60_000)),
        ("d-0", Some(0)),
        ("e-9999", None),
    ];
    let ended = drain(&mut start(&client, &objects, Some(target.path())));
    assert!(ended.len() == 5 && ended.values().all(|finished| finished.result.is_ok()));
    assert_eq!(files(target.path()).len(), 5);
}

#[test]
fn a_failed_object_stops_no_other() {
    let origin = Origin::start(|asked| match asked.path.as_str() {
        "/b/gone-5" => Reply::Keep(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec()),
        "/b/denied-5" => Reply::Keep(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n".to_vec()),
        "/b/broken-70000" if asked.range(70_000).is_some_and(|range| range.start >= 3 * PART) => {
            Reply::Keep(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec())
        }
        "/b/corrupt-5" => whole(b"12345", "x-amz-checksum-crc32: AAAAAA==\r\n"),
        "/b/shaky-5" if asked.number % 3 != 0 => Reply::Close(Vec::new()),
        _ => serve(asked),
    });
    let target = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(target.path().join("folder-5")).expect("a folder");
    std::fs::write(target.path().join("file"), b"earlier").expect("a file");
    std::fs::write(target.path().join("corrupt-5"), b"earlier").expect("a file");
    let client = client(&origin);
    let expected = [
        ("gone-5", Some(ErrorKind::NotFound)),
        ("denied-5", Some(ErrorKind::Denied)),
        ("broken-70000", Some(ErrorKind::NotFound)),
        ("corrupt-5", Some(ErrorKind::Corrupt)),
        ("folder-5", Some(ErrorKind::LocalIo)),
        ("file/x-5", Some(ErrorKind::LocalIo)),
        ("right-5", None),
        ("also/right-70000", None),
    ];
    let objects = expected.map(|(name, _)| (name, Some(name.rsplit('-').next().unwrap().parse().unwrap())));
    let ended = drain(&mut start(&client, &objects, Some(target.path())));
    for (name, kind) in expected {
        let finished = &ended[name];
        assert_eq!(finished.result.as_ref().err().map(Error::kind), kind, "{name}");
    }
    let names: Vec<String> = files(target.path()).into_keys().collect();
    assert_eq!(names, ["also/right-70000", "corrupt-5", "file", "right-5"], "nothing half done is left");
    assert_eq!(std::fs::read(target.path().join("corrupt-5")).expect("the file"), b"earlier");
}

#[test]
fn a_replaced_object_is_read_once_more_and_whole() {
    let old = object(10 * PART);
    let new: Vec<u8> = object(9 * PART).into_iter().map(|byte| !byte).collect();
    let replaced_after = 5;
    for always in [false, true] {
        let (old, fresh, count) = (old.clone(), new.clone(), AtomicUsize::new(0));
        let origin = Origin::start(move |asked| {
            let version = match count.fetch_add(1, Ordering::SeqCst) {
                earlier if earlier < replaced_after => 0,
                now if always => now,
                _ => 1,
            };
            let etag = format!("\"{version}\"");
            if asked.header("if-match").is_some_and(|pin| pin != etag) {
                return Reply::Keep(
                    b"HTTP/1.1 412 Precondition Failed\r\ncontent-length: 0\r\n\r\n".to_vec(),
                );
            }
            let body = if version == 0 { &old } else { &fresh };
            let Some(range) = asked.range(body.len() as u64) else {
                return Reply::Keep(
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\netag: {etag}\r\n\r\n", body.len())
                        .into(),
                );
            };
            let head = head_206(&range, body.len() as u64, &etag);
            Reply::Keep([head.as_bytes(), &body[range.start as usize..range.end as usize]].concat())
        });
        let target = tempfile::tempdir().expect("a folder");
        let mut ended = drain(&mut start(&client(&origin), &[("k", Some(10 * PART))], Some(target.path())));
        let result = ended.remove("k").expect("it ended").result;
        match always {
            false => {
                assert_eq!(result.expect("the new version").bytes, 9 * PART);
                assert!(files(target.path())["k"] == new, "whole, and no mixture");
            }
            true => {
                assert_eq!(result.expect_err("it never stays").kind(), ErrorKind::Changed);
                assert!(files(target.path()).is_empty());
            }
        }
    }
}

#[test]
fn a_cancel_leaves_nothing_behind() {
    let origin = Origin::start(|asked| match size_of(asked) {
        3 => serve(asked),
        // Half of the head's promise, then silence.
        size => match asked.range(size) {
            Some(range) => Reply::Hang([head_206(&range, size, "\"v1\"").as_bytes(), b"half"].concat()),
            None => Reply::Hang(format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\nhalf").into()),
        },
    });
    let target = tempfile::tempdir().expect("a folder");
    let client = client(&origin);
    let objects =
        [("done-3", Some(3)), ("hung-9", Some(9)), ("f/large-99999", Some(99_999)), ("late-9", Some(9))];
    let endless = objects
        .map(|(key, size)| wanted(key, size))
        .into_iter()
        .chain((0u64..).map(|n| wanted(&format!("more{n}-9"), Some(9))))
        .map(Ok);
    let folder = Folder::open(target.path()).expect("a folder");
    let mut many = client.get_many(&bucket(), endless, Some(folder)).expect("it starts");
    while many.progress().ok < 1 || origin.asked().len() < 4 {
        assert!(many.next(SOON).is_some());
    }
    many.watch().cancel();
    while let Some(ended) = many.next(SOON) {
        assert!(
            ended.iter().all(|finished| finished.result.is_ok()),
            "what a cancel cuts off has not failed"
        );
    }
    assert_eq!(files(target.path()).into_keys().collect::<Vec<_>>(), ["done-3"]);
    assert!(many.incomplete().is_none());
}

#[test]
fn a_list_that_breaks_off_is_told_when_all_it_named_has_landed() {
    let origin = Origin::start(serve);
    let client = client(&origin);
    let broken = [
        Ok(wanted("a-5", Some(5))),
        Err(Error::new(ErrorKind::Network, "it broke off")),
        Ok(wanted("b-5", None)),
    ];
    let mut many = client.get_many(&bucket(), broken.into_iter(), None).expect("it starts");
    let ended = drain(&mut many);
    assert_eq!(ended.into_keys().collect::<Vec<_>>(), ["a-5"]);
    assert_eq!(many.incomplete().expect("why").to_string(), "it broke off");
    let mut none = client.get_many(&bucket(), std::iter::empty(), None).expect("it starts");
    assert!(drain(&mut none).is_empty() && none.incomplete().is_none());
}

#[test]
fn a_list_that_panics_ends_what_it_feeds() {
    let origin = Origin::start(serve);
    let client = client(&origin);
    let broken =
        (0..2).map(|n| if n == 0 { Ok(wanted("a-5", Some(5))) } else { panic!("as the test wants it") });
    let mut many = client.get_many(&bucket(), broken, None).expect("it starts");
    assert_eq!(drain(&mut many).len(), 1);
    assert_eq!(many.incomplete().expect("why").kind(), ErrorKind::Internal);
}

#[test]
fn what_is_dropped_leaves_nothing_behind() {
    let origin = Origin::start(|asked| match size_of(asked) {
        3 => serve(asked),
        _ => Reply::Hang(Vec::new()),
    });
    let target = tempfile::tempdir().expect("a folder");
    let client = client(&origin);
    let many =
        start(&client, &[("a-9", Some(9)), ("f/b-99999", Some(99_999)), ("c-9", None)], Some(target.path()));
    while origin.asked().len() < 3 {
        std::thread::yield_now();
    }
    drop(many);
    assert!(files(target.path()).is_empty(), "{:?}", files(target.path()));
    let ended = drain(&mut start(&client, &[("a-3", Some(3))], Some(target.path())));
    assert!(ended["a-3"].result.is_ok(), "the client goes on");
}

#[test]
fn a_client_that_is_closed_ends_what_it_began() {
    let origin = Origin::start(|_| Reply::Hang(Vec::new()));
    let client = client(&origin);
    let names: Vec<String> = (0..9).map(|n| format!("k{n}-{}", n * PART / 4)).collect();
    let objects: Vec<_> = (0..).zip(&names).map(|(n, name)| (name.as_str(), Some(n * PART / 4))).collect();
    let mut many = start(&client, &objects, None);
    while origin.asked().len() < 4 {
        assert!(many.next(SOON).is_some_and(|ended| ended.is_empty()));
    }
    drop(client);
    let ended = drain(&mut many);
    let kind = |finished: &Finished| finished.result.as_ref().err().map(Error::kind);
    assert!(ended.values().all(|finished| kind(finished) == Some(ErrorKind::Cancelled)));
    assert_eq!(many.incomplete().expect("why").kind(), ErrorKind::Cancelled);
}

#[test]
fn what_killed_runs_left_goes_from_the_folders_that_are_written_into() {
    let origin = Origin::start(serve);
    let target = tempfile::tempdir().expect("a folder");
    let left = |folder: &str| {
        std::fs::create_dir_all(target.path().join(folder)).expect("a folder");
        let path = target.path().join(folder).join(".gone.flatout-be13d0508bc34a23-0");
        std::fs::write(path, b"half").expect("a file");
    };
    ["", "a", "a/b", "elsewhere"].into_iter().for_each(left);
    let objects = [("a-1", Some(1)), ("a/b/x-1", Some(1)), ("a/c-1", Some(1)), ("new/x-1", Some(1))];
    let client = client(&origin);
    let mut many = start(&client, &objects, Some(target.path()));
    for finished in drain(&mut many).into_values() {
        finished.result.expect("it lands");
    }
    let names: Vec<String> = files(target.path()).into_keys().collect();
    let kept = "elsewhere/.gone.flatout-be13d0508bc34a23-0";
    assert_eq!(names, ["a-1", "a/b/x-1", "a/c-1", kept, "new/x-1"], "others are another run's to sweep");
}
