//! Uploads to the development origin: whatever the source and the dialect, the object is there whole, or the
//! error says why not and nothing is.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flatout_engine::credentials::Fixed;
use flatout_engine::{
    Client, Config, Error, ErrorKind, Object, Put, Report, Source, Verified, edited_parts, upload_stream,
};
use flatout_server::{Options, Origin, Store};
use flatout_wire::checksum::Algorithm;
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};
use flatout_wire::range::Span;
use flatout_wire::request::{Method, Request};
use flatout_wire::sign::Credentials;
use tempfile::TempDir;

pub(super) const MIB: usize = 1 << 20;
/// The shortest part that origins take.
pub(super) const PART: usize = 5 * MIB;

const KEYS: (&str, &str) = ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");

/// An origin over a folder, with one bucket.
pub(super) struct Buckets {
    origin: Origin,
    root: TempDir,
}

impl Buckets {
    pub(super) fn new() -> Buckets {
        Buckets::at((Ipv4Addr::LOCALHOST, 0).into())
    }

    fn at(address: SocketAddr) -> Buckets {
        let root = tempfile::tempdir().expect("a folder");
        fs::create_dir(root.path().join("bucket")).expect("a bucket");
        let auth = Some((KEYS.0.into(), KEYS.1.into()));
        let listen = vec![address.into()];
        let options = Options { auth, listen, ..Options::new(Store::Root(root.path().into())) };
        Buckets { origin: Origin::start(options).expect("an origin"), root }
    }

    /// Another origin at the same address, which knows nothing of what this one had.
    fn forget(self) -> Buckets {
        let address = self.origin.addresses()[0];
        self.origin.stop().expect("it stops");
        Buckets::at(address)
    }

    /// How many uploads the origin keeps that are neither completed nor aborted.
    pub(super) fn parts_left(&self) -> usize {
        let files = |folder: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(folder).into_iter().flatten();
            entries.map(|entry| entry.expect("an entry").path()).collect()
        };
        let uploads = files(&self.root.path().join(".flatout/uploads"));
        uploads.iter().flat_map(|origin| files(origin)).filter(|upload| upload.is_dir()).count()
    }

    pub(super) fn config(&self) -> Config {
        let mut config = Config::default();
        let settings = &mut config.settings;
        settings.endpoint_url = Some(self.origin.url());
        settings.oss_endpoint = Some(self.origin.url());
        settings.oss_region = Some("cn-hangzhou".into());
        settings.part_bytes = Some(PART as u64);
        settings.retries = 2;
        settings.outage_timeout_ms = 2_000;
        let credentials =
            Credentials { access_key: KEYS.0.into(), secret_key: KEYS.1.into(), session_token: None };
        config.aws_credentials = Arc::new(Fixed(credentials.clone()));
        config.oss_credentials = Arc::new(Fixed(credentials));
        config
    }

    pub(super) fn client(&self) -> Client {
        Client::new(self.config()).expect("good settings")
    }
}

pub(super) fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub(super) fn locations() -> [Location; 2] {
    ["s3://bucket/a folder/key", "oss://bucket/a folder/key"].map(|url| Location::parse(url).expect("a URL"))
}

fn algorithm(location: &Location) -> Algorithm {
    match location {
        Location::Oss { .. } => Algorithm::Crc64Xz,
        _ => Algorithm::Crc64Nvme,
    }
}

pub(super) fn read(client: &Client, location: &Location, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    let report = client.get_into(location, Span::All, &mut buffer).expect("it is there");
    assert_eq!(report.bytes, bytes as u64);
    buffer
}

/// `put` makes an object of `expected`, in each dialect.
#[track_caller]
fn check(expected: &[u8], put: impl Fn(Location) -> (Put, Option<thread::JoinHandle<()>>)) {
    for location in locations() {
        let buckets = Buckets::new();
        let client = buckets.client();
        let (put, writer) = put(location.clone());
        let report: Report = client.put(put).expect("it begins").wait().expect("it ends well");
        writer.into_iter().for_each(|writer| writer.join().expect("it writes all"));
        assert_eq!(report.bytes, expected.len() as u64);
        assert_eq!(report.verified, Verified::Whole(algorithm(&location)), "{location}");
        assert!(report.version.etag.is_some());
        assert!(read(&client, &location, expected.len()) == expected, "{location}");
        assert_eq!(client.memory_held() >> 20, 0, "rooms are given back");
    }
}

#[test]
fn memory_of_any_length() {
    for bytes in [0, 1, 70_000, PART, PART + 1, 3 * PART + 17] {
        let content = content(bytes);
        check(&content, |location| (Put::new(location, Source::Memory(Arc::new(content.clone()))), None));
    }
}

#[test]
fn files_of_any_length() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    for bytes in [0, 300_000, 2 * PART, 4 * PART + 1] {
        let content = content(bytes);
        fs::write(&path, &content).expect("a file");
        check(&content, |location| (Put::new(location, Source::File(path.clone())), None));
    }
}

#[test]
fn streams_of_any_length() {
    for (bytes, piece) in [(0, 1), (1, 1), (PART, 64 << 10), (PART + 1, 1_000_003), (4 * PART + 9, 3 * MIB)] {
        let content = Arc::new(content(bytes));
        check(&content, |location| {
            let (mut uploader, source) = upload_stream();
            let content = content.clone();
            let writer = thread::spawn(move || {
                content.chunks(piece).for_each(|piece| uploader.write(piece).expect("the upload goes on"));
                uploader.finish();
            });
            (Put::new(location, Source::Stream(source)), Some(writer))
        });
    }
}

/// The version of an object that is there now.
fn version(client: &Client, location: &Location) -> Object {
    let stat = client.stat(location).expect("it is there").version;
    let etag = stat.etag.map(|etag| flatout_wire::head::quoted(&etag).into_owned());
    Object { location: location.clone(), size: stat.size.expect("a size"), etag, modified_s: None }
}

#[test]
fn a_stream_continues_an_object() {
    for location in locations() {
        for bytes in [PART, 3 * PART + 7] {
            let buckets = Buckets::new();
            let client = buckets.client();
            let mut all = content(bytes);
            let first = Put::new(location.clone(), Source::Memory(Arc::new(all.clone())));
            client.put(first).expect("it begins").wait().expect("it ends well");
            for more in [0, 10, PART, 2 * PART + 1] {
                let (mut uploader, source) = upload_stream();
                let object = version(&client, &location);
                let etag = object.etag.clone().expect("an ETag");
                let mut put = Put::new(location.clone(), Source::Stream(source)).continuing(object);
                if let Location::S3 { .. } = location {
                    put = put.on_condition(Condition::Matches(etag));
                }
                let transfer = client.put(put).expect("it begins");
                let more: Vec<u8> = content(more).into_iter().map(|byte| byte ^ 0x55).collect();
                uploader.write(&more).expect("the upload goes on");
                uploader.finish();
                all.extend_from_slice(&more);
                let report = transfer.wait().expect("it ends well");
                assert_eq!(report.bytes, all.len() as u64, "{location}");
                assert!(read(&client, &location, all.len()) == all, "{location} {}", all.len());
            }
            assert_eq!(buckets.parts_left(), 0, "{location}");
        }
    }
}

#[test]
fn an_object_that_was_replaced_is_not_continued() {
    for location in locations() {
        let buckets = Buckets::new();
        let client = buckets.client();
        let put = |content: Vec<u8>| {
            let put = Put::new(location.clone(), Source::Memory(Arc::new(content)));
            client.put(put).expect("it begins").wait().expect("it ends well")
        };
        put(content(2 * PART));
        let object = version(&client, &location);
        put(b"of another client".to_vec());
        let (mut uploader, source) = upload_stream();
        let put = Put::new(location.clone(), Source::Stream(source)).continuing(object);
        let transfer = client.put(put).expect("it begins");
        // The upload may have ended by now.
        let _ = uploader.write(b"more");
        uploader.finish();
        let error = transfer.wait().expect_err("it is another version");
        assert_eq!((error.kind(), error.doing()), (ErrorKind::Changed, "upload"), "{error}");
        assert_eq!(read(&client, &location, 17), b"of another client");
        assert_eq!(buckets.parts_left(), 0, "{location}");
    }
}

/// What has not changed is copied by the origin: the file need not have it.
#[test]
fn an_object_is_edited() {
    for location in locations() {
        let buckets = Buckets::new();
        let client = buckets.client();
        let mut all = content(36 << 20);
        let first = Put::new(location.clone(), Source::Memory(Arc::new(all.clone())));
        client.put(first).expect("it begins").wait().expect("it ends well");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("edited");
        for (bytes, changed) in [
            (all.len(), vec![10..11, 18 << 20..(18 << 20) + 4096]),
            (all.len() + 5, std::iter::once(all.len()..all.len() + 5).collect()),
            (all.len() - 7, std::iter::once(0..4096).collect()),
        ] {
            let object = version(&client, &location);
            all.resize(bytes, 0);
            changed.iter().for_each(|range| all[range.clone()].iter_mut().for_each(|byte| *byte ^= 0x55));
            let ranges: Vec<_> = changed.iter().map(|range| range.start as u64..range.end as u64).collect();
            let parts = edited_parts(PART as u64, bytes as u64, object.size, &ranges).expect("some is kept");
            let mut edited = vec![0xEE; bytes];
            for part in parts.iter().filter(|part| !part.is_copied) {
                let range = part.range.start as usize..part.range.end as usize;
                edited[range.clone()].copy_from_slice(&all[range]);
            }
            std::fs::write(&path, edited).expect("a file");
            let put = Put::new(location.clone(), Source::File(path.clone())).editing(object, parts);
            let report = client.put(put).expect("it begins").wait().expect("it ends well");
            assert_eq!(report.bytes, bytes as u64, "{location}");
            assert!(read(&client, &location, bytes) == all, "{location} {bytes}");
        }
        assert_eq!(buckets.parts_left(), 0, "{location}");
    }
}

#[test]
fn an_object_that_was_replaced_is_not_edited() {
    for location in locations() {
        let buckets = Buckets::new();
        let client = buckets.client();
        let put = |content: Vec<u8>| {
            let put = Put::new(location.clone(), Source::Memory(Arc::new(content)));
            client.put(put).expect("it begins").wait().expect("it ends well")
        };
        put(content(20 << 20));
        let object = version(&client, &location);
        put(b"of another client".to_vec());
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(object.size).expect("room");
        let parts = edited_parts(PART as u64, object.size, object.size, std::slice::from_ref(&(0..1)))
            .expect("some is kept");
        let put = Put::new(location.clone(), Source::File(file.path().to_owned())).editing(object, parts);
        let error = client.put(put).expect("it begins").wait().expect_err("it is another version");
        assert_eq!((error.kind(), error.doing()), (ErrorKind::Changed, "upload"), "{error}");
        assert_eq!(read(&client, &location, 17), b"of another client");
        assert_eq!(buckets.parts_left(), 0, "{location}");
    }
}

#[test]
fn what_cannot_be_continued_is_refused_at_once() {
    let buckets = Buckets::new();
    let client = buckets.client();
    let [s3, oss] = locations();
    let object = |location: &Location, size: usize, etag: Option<&str>| Object {
        location: location.clone(),
        size: size as u64,
        etag: etag.map(str::to_owned),
        modified_s: None,
    };
    let refused = |object: Object, source: Source| {
        let put = Put::new(s3.clone(), source).continuing(object);
        let error = client.put(put).map(drop).expect_err("it cannot be");
        assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
        error.to_string()
    };
    let stream = || Source::Stream(upload_stream().1);
    assert!(refused(object(&oss, PART, Some("\"a\"")), stream()).contains("another service"));
    assert!(refused(object(&s3, PART - 1, Some("\"a\"")), stream()).contains("shorter than a part"));
    assert!(refused(object(&s3, PART, None), stream()).contains("no ETag"));
    assert!(refused(object(&s3, PART, Some("\"a\"")), Source::Synthetic(1)).contains("only a stream"));
}

/// A writer that gives up has written nothing; one that goes on later has lost nothing.
#[test]
fn a_write_is_reserved_whole_or_not_at_all() {
    let buckets = Buckets::new();
    let client = buckets.client();
    let [location, _] = locations();
    let (mut uploader, source) = upload_stream();
    assert_eq!(uploader.reserve(|| false), Ok(false), "no upload gives rooms yet");
    let transfer = client.put(Put::new(location.clone(), Source::Stream(source))).expect("it begins");
    let all = content(6 * PART + 5);
    for piece in all.chunks(1_000_003) {
        while !uploader.reserve(|| false).expect("the upload goes on") {
            thread::sleep(Duration::from_millis(1));
        }
        uploader.write_reserved(piece);
    }
    uploader.finish();
    transfer.wait().expect("it ends well");
    assert!(read(&client, &location, all.len()) == all);
}

#[test]
fn a_synthetic_source_is_what_it_says() {
    let buckets = Buckets::new();
    let client = buckets.client();
    let location = &locations()[0];
    let bytes = 2 * PART as u64 + 5;
    let put = Put::new(location.clone(), Source::Synthetic(bytes));
    assert_eq!(client.put(put).expect("it begins").wait().expect("it ends well").bytes, bytes);
    let first = read(&client, location, bytes as usize);
    let again = Put::new(location.clone(), Source::Synthetic(bytes));
    client.put(again).expect("it begins").wait().expect("it ends well");
    assert!(first == read(&client, location, bytes as usize) && first.iter().any(|byte| *byte != 0));
}

#[test]
fn options_are_kept() {
    for location in locations() {
        for bytes in [10, PART + 1] {
            let buckets = Buckets::new();
            let client = buckets.client();
            let options = ObjectOptions {
                content_type: Some("text/x-flatout".into()),
                metadata: vec![("colour".into(), "dark blue".into())],
                ..ObjectOptions::default()
            };
            let source = Source::Memory(Arc::new(content(bytes)));
            let put = Put::new(location.clone(), source).with_options(options);
            client.put(put).expect("it begins").wait().expect("it ends well");
            let stat = client.stat(&location).expect("it is there");
            assert_eq!(stat.content_type.as_deref(), Some("text/x-flatout"), "{location}");
            assert_eq!(stat.metadata, [("colour".to_owned(), "dark blue".to_owned())], "{location}");
        }
    }
}

#[test]
fn a_condition_that_does_not_hold_changes_nothing() {
    for location in locations() {
        for bytes in [10, PART + 1] {
            let buckets = Buckets::new();
            let client = buckets.client();
            let put = |content: &[u8], condition: Condition| {
                let put = Put::new(location.clone(), Source::Memory(Arc::new(content.to_vec())));
                client.put(put.on_condition(condition)).and_then(|transfer| transfer.wait())
            };
            let first = put(b"first", Condition::Absent).expect("nothing is there");
            let refused = put(&content(bytes), Condition::Absent).expect_err("something is there");
            assert_eq!(refused.kind(), ErrorKind::Changed, "{refused}");
            assert_eq!(read(&client, &location, 5), b"first");
            if let Location::S3 { .. } = location {
                let stale = put(&content(bytes), Condition::Matches("\"0\"".into()));
                assert_eq!(stale.expect_err("another ETag").kind(), ErrorKind::Changed);
                let etag = first.version.etag.clone().expect("an ETag");
                put(&content(bytes), Condition::Matches(etag)).expect("that very ETag");
            }
        }
    }
}

#[test]
fn what_cannot_be_sent_is_refused_and_leaves_nothing() {
    let buckets = Buckets::new();
    let client = buckets.client();
    let folder = tempfile::tempdir().expect("a folder");
    let [location, _] = locations();
    let start = |source| client.put(Put::new(location.clone(), source)).map(drop).expect_err("no source");
    let absent = start(Source::File(folder.path().join("absent")));
    assert_eq!((absent.kind(), absent.doing()), (ErrorKind::LocalIo, "read"), "{absent}");
    let is_folder = start(Source::File(folder.path().into()));
    assert_eq!(is_folder.kind(), ErrorKind::Usage, "{is_folder}");
    let nowhere = Location::parse("s3://nowhere/key").expect("a URL");
    for bytes in [10, PART + 1] {
        let put = Put::new(nowhere.clone(), Source::Memory(Arc::new(content(bytes))));
        let error = client.put(put).expect("it begins").wait().expect_err("no such bucket");
        assert_eq!((error.kind(), error.doing()), (ErrorKind::NotFound, "upload"), "{error}");
    }
    let plain = Location::parse("http://127.0.0.1:1/key").expect("a URL");
    let refused = client.put(Put::new(plain, Source::Synthetic(1))).map(drop).expect_err("no bucket");
    assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
}

#[test]
fn a_stream_that_is_not_finished_publishes_nothing_and_leaves_no_parts() {
    for location in locations() {
        for bytes in [10, 3 * PART] {
            let buckets = Buckets::new();
            let client = buckets.client();
            let (mut uploader, source) = upload_stream();
            let transfer = client.put(Put::new(location.clone(), Source::Stream(source))).expect("it begins");
            uploader.write(&content(bytes)).expect("the upload goes on");
            drop(uploader);
            let error = transfer.wait().expect_err("it was not finished");
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{error}");
            assert_eq!(client.stat(&location).expect_err("no object").kind(), ErrorKind::NotFound);
            assert_eq!(buckets.parts_left(), 0, "{location}");
        }
    }
}

#[test]
fn a_cancelled_upload_leaves_no_parts() {
    for location in locations() {
        let buckets = Buckets::new();
        let client = buckets.client();
        let transfer =
            client.put(Put::new(location.clone(), Source::Synthetic(400 * PART as u64))).expect("it begins");
        while transfer.progress().landed_bytes < 2 * PART as u64 {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(buckets.parts_left(), 1, "it has begun");
        transfer.cancel_switch().cancel();
        assert_eq!(transfer.wait().expect_err("it was cancelled").kind(), ErrorKind::Cancelled);
        assert_eq!(client.stat(&location).expect_err("no object").kind(), ErrorKind::NotFound);
        assert_eq!(buckets.parts_left(), 0, "{location}");
    }
}

#[test]
fn a_file_that_changes_meanwhile_publishes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    for location in locations() {
        let buckets = Buckets::new();
        let mut config = buckets.config();
        // Slow enough to be in time.
        config.settings.bandwidth_bytes = Some(40 * MIB as u64);
        let client = Client::new(config).expect("good settings");
        fs::write(&path, content(4 * PART)).expect("a file");
        let transfer = client.put(Put::new(location.clone(), Source::File(path.clone()))).expect("it begins");
        thread::sleep(Duration::from_millis(50));
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"more"))
            .expect("it grows");
        let error = transfer.wait().expect_err("it changed");
        assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
        assert_eq!(client.stat(&location).expect_err("no object").kind(), ErrorKind::NotFound);
        assert_eq!(buckets.parts_left(), 0, "{location}");
    }
}

/// A file of 30 parts that is broken off after 14; what is left by then, and a slow client.
fn broken_off(buckets: &Buckets, journals: &Path, path: &Path, location: &Location) -> Client {
    let mut config = buckets.config();
    config.settings.bandwidth_bytes = Some(120 * MIB as u64);
    config.settings.parallel = Some(2);
    config.upload_journals = Some(journals.into());
    let client = Client::new(config).expect("good settings");
    let transfer = client.put(Put::new(location.clone(), Source::File(path.into()))).expect("it begins");
    while transfer.progress().landed_bytes < 16 * PART as u64 {
        thread::sleep(Duration::from_millis(1));
    }
    transfer.cancel_switch().cancel();
    let error = transfer.wait().expect_err("it was cancelled");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    let hint = error.hint().expect("what is left").to_string();
    assert!(hint.contains("run it again to go on from"), "{hint}");
    assert_eq!(buckets.parts_left(), 1, "they are kept");
    client
}

#[test]
fn an_upload_that_is_withdrawn_keeps_no_parts() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, journals) = (folder.path().join("file"), folder.path().join("journals"));
    fs::write(&path, content(30 * PART)).expect("a file");
    for location in locations() {
        let buckets = Buckets::new();
        let mut config = buckets.config();
        config.settings.bandwidth_bytes = Some(120 * MIB as u64);
        config.upload_journals = Some(journals.clone());
        let client = Client::new(config).expect("good settings");
        let put = Put::new(location.clone(), Source::File(path.clone())).without_resume();
        let transfer = client.put(put).expect("it begins");
        while transfer.progress().landed_bytes < 16 * PART as u64 {
            thread::sleep(Duration::from_millis(1));
        }
        transfer.cancel_switch().withdraw();
        assert_eq!(transfer.wait().expect_err("it was withdrawn").kind(), ErrorKind::Cancelled);
        assert_eq!(client.stat(&location).expect_err("no object").kind(), ErrorKind::NotFound);
        let journals_left = fs::read_dir(&journals).map_or(0, Iterator::count);
        assert_eq!((buckets.parts_left(), journals_left), (0, 0), "{location}");
    }
}

#[test]
fn a_file_goes_on_from_the_parts_that_the_origin_has() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, journals) = (folder.path().join("file"), folder.path().join("journals"));
    let content = content(30 * PART - 11);
    fs::write(&path, &content).expect("a file");
    for location in locations() {
        let buckets = Buckets::new();
        let client = broken_off(&buckets, &journals, &path, &location);
        let again = client.put(Put::new(location.clone(), Source::File(path.clone()))).expect("it begins");
        let report = again.wait().expect("it ends well");
        assert!(report.resumed_bytes >= 13 * PART as u64, "{}", report.resumed_bytes);
        // A busy machine is silent, too, and a part is then sent again.
        let again = report.retries + report.tails.hedged;
        let twice = report.fetched_bytes + report.resumed_bytes - report.bytes;
        assert!(twice == 0 || again > 0, "nothing is sent twice: {report:?}");
        assert_eq!(
            (report.bytes, report.verified),
            (content.len() as u64, Verified::Whole(algorithm(&location)))
        );
        assert!(read(&client, &location, content.len()) == content, "{location}");
        assert_eq!((buckets.parts_left(), fs::read_dir(&journals).expect("it is there").count()), (0, 0));
    }
}

/// The object is there, and the journal as if the run had been killed before it heard so.
#[test]
fn an_object_that_was_made_before_the_run_was_killed_is_not_sent_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, journals, aside) =
        (folder.path().join("file"), folder.path().join("journals"), folder.path().join("aside"));
    let content = content(4 * PART - 11);
    fs::write(&path, &content).expect("a file");
    fs::create_dir(&journals).expect("a folder");
    for location in locations() {
        for what in ["the object", "others' bytes", "nothing"] {
            let buckets = Buckets::new();
            let mut config = buckets.config();
            config.settings.bandwidth_bytes = Some(40 * MIB as u64);
            config.upload_journals = Some(journals.clone());
            let client = Client::new(config).expect("good settings");
            let put =
                || client.put(Put::new(location.clone(), Source::File(path.clone()))).expect("it begins");
            let first = put();
            // A second name keeps what is removed at the end.
            let journal = loop {
                assert!(first.progress().landed_bytes < content.len() as u64, "it was sooner");
                let journal = fs::read_dir(&journals).expect("it is there").next().transpose();
                if let Some(journal) = journal.expect("it is read") {
                    break journal.path();
                }
            };
            fs::hard_link(&journal, &aside).expect("it is not removed yet");
            first.wait().expect("it ends well");
            assert!(!journal.exists());
            fs::rename(&aside, &journal).expect("it is there again");
            match what {
                "the object" => {}
                "nothing" => client.delete(&location, None).expect("it is deleted"),
                _ => {
                    let other = Source::Memory(Arc::new(vec![7; content.len()]));
                    client
                        .put(Put::new(location.clone(), other))
                        .expect("it begins")
                        .wait()
                        .expect("it ends");
                }
            }
            let report = put().wait().expect("it ends well");
            let resumed = if what == "the object" { content.len() as u64 } else { 0 };
            let sent = (report.bytes, report.fetched_bytes, report.resumed_bytes);
            assert_eq!(sent, (content.len() as u64, report.bytes - resumed, resumed), "{what}: {location}");
            assert_eq!(report.verified, Verified::Whole(algorithm(&location)), "{what}: {location}");
            assert_eq!(report.resume_note.is_none(), what == "the object", "{what}: {location}");
            assert!(read(&client, &location, content.len()) == content, "{what}: {location}");
            assert_eq!((buckets.parts_left(), journal.exists()), (0, false), "{what}: {location}");
        }
    }
}

#[test]
fn what_is_left_of_another_file_or_forgotten_is_not_gone_on_from() {
    let folder = tempfile::tempdir().expect("a folder");
    let (path, journals) = (folder.path().join("file"), folder.path().join("journals"));
    let [location, _] = locations();
    let buckets = Buckets::new();
    fs::write(&path, content(30 * PART)).expect("a file");
    let client = broken_off(&buckets, &journals, &path, &location);
    let mut other = content(30 * PART);
    other[7] ^= 1;
    fs::write(&path, &other).expect("another file");
    let put = || client.put(Put::new(location.clone(), Source::File(path.clone()))).expect("it begins");
    let report = put().wait().expect("it ends well");
    assert_eq!(report.resumed_bytes, 0);
    assert!(report.resume_note.is_some_and(|note| note.contains("sent anew")));
    assert!(read(&client, &location, other.len()) == other);
    assert_eq!(buckets.parts_left(), 0, "those of the old file are deleted");
    // Other options belong to another upload.
    let client = broken_off(&buckets, &journals, &path, &location);
    let options = ObjectOptions { content_type: Some("text/x-other".into()), ..ObjectOptions::default() };
    let put = Put::new(location.clone(), Source::File(path.clone())).with_options(options);
    let report = client.put(put).expect("it begins").wait().expect("it ends well");
    assert!(report.resumed_bytes == 0 && report.resume_note.is_some_and(|note| note.contains("options")));
    let stat = client.stat(&location).expect("it is there");
    assert_eq!((stat.content_type.as_deref(), buckets.parts_left()), (Some("text/x-other"), 0));
    // The origin loses all parts.
    let client = broken_off(&buckets, &journals, &path, &location);
    let _buckets = buckets.forget();
    let put = client.put(Put::new(location.clone(), Source::File(path.clone()))).expect("it begins");
    let report = put.wait().expect("it is sent anew");
    assert!(report.resumed_bytes == 0 && report.resume_note.is_some_and(|note| note.contains("forgotten")));
}

#[test]
fn parts_can_be_sent_without_the_engine() {
    let buckets = Buckets::new();
    let client = buckets.client();
    let begin = |location: &Location| client.begin_parts(location, ObjectOptions::default());
    for location in locations() {
        let upload_id = begin(&location).expect("it begins");
        let body = content(1000);
        let etag = send_part(&buckets, &client.signed_part(&location, &upload_id, 1, 1000), &body);
        assert_eq!(buckets.parts_left(), 1);
        client.complete_parts(&location, &upload_id, vec![etag], 1000).expect("it is completed");
        assert_eq!((buckets.parts_left(), read(&client, &location, 1000)), (0, body));

        let upload_id = begin(&location).expect("it begins");
        client.abort_parts(&location, &upload_id).expect("it is aborted");
        assert_eq!(buckets.parts_left(), 0);
        let error = client.abort_parts(&location, &upload_id).expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::NotFound);
    }
    let plain = Location::parse(&buckets.origin.url()).expect("a URL");
    assert_eq!(begin(&plain).expect_err("it is plain").kind(), ErrorKind::Unsupported);
}

/// Sends it as it is; the ETag in the answer.
fn send_part(buckets: &Buckets, request: &Result<Request, Error>, body: &[u8]) -> String {
    let mut sent = Vec::new();
    request.as_ref().expect("it is signed").write_head(&mut sent);
    sent.extend_from_slice(body);
    let mut connection = TcpStream::connect(buckets.origin.addresses()[0]).expect("a connection");
    connection.write_all(&sent).expect("it is sent");
    let mut answer = Vec::new();
    loop {
        let mut more = [0; 4096];
        let received = connection.read(&mut more).expect("an answer");
        answer.extend_from_slice(&more[..received]);
        if let Some((head, _)) = flatout_wire::head::parse(&answer, Method::Put).expect("an answer") {
            assert_eq!(head.status, 200);
            return head.etag.expect("an ETag");
        }
    }
}

/// One thread may keep more streams open than memory has rooms: each takes one with its first byte, and the
/// first that gets none is told so in the end, while the others are published.
#[test]
fn streams_that_one_thread_keeps_open() {
    for begun in [5, PART + 5, 2 * PART + 5] {
        check_kept_open(&content(begun));
    }
}

fn check_kept_open(begun: &[u8]) {
    let buckets = Buckets::new();
    let mut config = buckets.config();
    config.settings.memory_bytes = 64 << 20;
    let client = Client::new(config).expect("good settings");
    let open = |number: usize| {
        let (uploader, source) = upload_stream();
        let location = Location::parse(&format!("s3://bucket/open-{number}")).expect("a URL");
        (uploader, client.put(Put::new(location, Source::Stream(source))).expect("it begins"))
    };
    let mut streams: Vec<_> = (0..100).map(open).collect();
    let rooms = (0..100).position(|at| streams[at].0.write(begun).is_err()).expect("one gets no room");
    assert!((3..12).contains(&rooms), "{rooms} rooms of 5 MiB in 64 MiB");
    let (_, refused) = streams.remove(rooms);
    let error = refused.wait().expect_err("it has no memory");
    assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
    assert!(error.to_string().contains("held by other files"), "{error}");
    for (at, (mut uploader, transfer)) in streams.into_iter().enumerate() {
        uploader.write(if at < rooms { b"" } else { begun }).expect("those before it have been published");
        uploader.finish();
        assert_eq!(transfer.wait().expect("it ends well").bytes, begun.len() as u64, "{at}");
    }
}
