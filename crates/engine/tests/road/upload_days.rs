//! Uploads of files that change while they are sent, without verification, with requester pays, and with
//! interim answers.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use flatout_engine::{Client, Config, Error, ErrorKind, Put, Report, Source, Verified, upload_stream};
use flatout_wire::location::Location;

use super::checksums::{self, Crcs};
use super::origin::Asked;
use super::uploads::{Buckets, MIB, PART, content, locations, read};

/// Sends a file within a second, and changes it once some of it has gone out, and not all.
#[track_caller]
fn changed_midway(
    buckets: &Buckets,
    (location, verify): (&Location, bool),
    content: &[u8],
    change: impl Fn(&Path),
) -> Result<Report, Error> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    fs::write(&path, content).expect("a file");
    let bytes = content.len() as u64;
    let mut config = buckets.config();
    config.settings.verify = verify;
    config.settings.parallel = Some(4);
    config.settings.bandwidth_bytes = Some(bytes);
    let client = Client::new(config).expect("good settings");
    let transfer = client.put(Put::new(location.clone(), Source::File(path.clone()))).expect("it begins");
    while transfer.progress().landed_bytes < bytes / 10 {
        assert!(!transfer.wait_timeout(Duration::from_millis(1)), "it ended before anything changed");
    }
    let sent = transfer.progress().landed_bytes;
    change(&path);
    assert!(sent < bytes, "it was sent before anything changed");
    transfer.wait()
}

/// A file of several parts is changed while it is sent: no object is there, and no part of one.
#[track_caller]
fn check_unpublished(location: &Location, verify: bool, change: impl Fn(&Path)) {
    let buckets = Buckets::new();
    let ended = changed_midway(&buckets, (location, verify), &content(5 * PART), change);
    let error = ended.expect_err("it changed");
    assert_eq!((error.kind(), error.doing()), (ErrorKind::Changed, "upload"), "{verify}: {error}");
    let missing = buckets.client().stat(location).expect_err("no object");
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{verify}: {location}");
    assert_eq!(buckets.parts_left(), 0, "{verify}: {location}");
}

fn halve(path: &Path) {
    let file = OpenOptions::new().write(true).open(path).expect("it is there");
    let bytes = file.metadata().expect("a length").len();
    file.set_len(bytes / 2).expect("it shrinks");
}

/// Turns a bit of that byte. The clock of a file system has ticks: it goes on until the time is another.
fn turn_bit(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("it is there");
    let modified = || file.metadata().and_then(|found| found.modified()).expect("a time");
    let (before, mut byte) = (modified(), [0]);
    file.read_exact_at(&mut byte, at).expect("a byte");
    byte[0] ^= 1;
    while modified() == before {
        file.write_all_at(&byte, at).expect("it is written");
        thread::sleep(Duration::from_millis(1));
    }
}

/// With verification a part is read, hashed and sent; without, `sendfile(2)` sends it.
#[test]
fn a_file_that_shrinks_while_its_parts_are_sent_publishes_nothing() {
    for location in locations() {
        for verify in [true, false] {
            check_unpublished(&location, verify, halve);
        }
    }
}

/// A byte that has been sent, most likely, and one that has not.
#[test]
fn a_file_of_which_one_byte_is_rewritten_publishes_nothing() {
    let last = 5 * PART as u64 - 1;
    for location in locations() {
        for (verify, at) in [(true, 0), (true, last), (false, last)] {
            check_unpublished(&location, verify, |path| turn_bit(path, at));
        }
    }
}

/// A short file is read whole before it is sent, so the object is the file as it was at that moment.
#[test]
fn a_short_file_that_changes_while_it_is_sent_is_stored_as_it_was() {
    let content = content(2 * MIB);
    for location in locations() {
        let turn_last = |path: &Path| turn_bit(path, 2 * MIB as u64 - 1);
        for (verify, change) in [(true, halve as fn(&Path)), (false, turn_last)] {
            let buckets = Buckets::new();
            let ended = changed_midway(&buckets, (&location, verify), &content, change);
            assert_eq!(ended.expect("it is sent").bytes, content.len() as u64);
            assert!(read(&buckets.client(), &location, content.len()) == content, "{verify}: {location}");
        }
    }
}

/// Memory, a file and a stream of the same bytes.
fn sources(content: &Arc<Vec<u8>>, folder: &Path) -> [(&'static str, Source); 3] {
    let path = folder.join("file");
    fs::write(&path, &**content).expect("a file");
    let (mut uploader, stream) = upload_stream();
    let written = content.clone();
    thread::spawn(move || {
        // An upload that has failed says so itself.
        if uploader.write(&written).is_ok() {
            uploader.finish();
        }
    });
    let memory = Source::Memory(content.clone());
    [("memory", memory), ("a file", Source::File(path)), ("a stream", Source::Stream(stream))]
}

/// An upload, and what its server was asked.
struct Seen {
    what: String,
    location: Location,
    report: Report,
    asked: Vec<Asked>,
}

/// Sends each source, by one request and in parts, in both dialects, to servers that know no CRCs.
fn each_upload(change: impl Fn(&mut Config)) -> Vec<Seen> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut seen = Vec::new();
    for location in locations() {
        for bytes in [1000, 2 * PART + 1] {
            let content = Arc::new(content(bytes));
            for (kind, source) in sources(&content, folder.path()) {
                let what = format!("{bytes} bytes of {kind} to {location}");
                let (origin, stored) = checksums::server(Crcs::Overlooked, checksums::etag);
                let mut config = checksums::config(&origin);
                change(&mut config);
                let client = Client::new(config).expect("good settings");
                let transfer = client.put(Put::new(location.clone(), source)).expect(&what);
                let report = transfer.wait().expect(&what);
                assert!(*stored.lock().expect("no panic in a test") == *content, "{what}");
                let asked = origin.asked();
                let began = asked.iter().filter(|asked| asked.path.contains("uploads")).count();
                assert_eq!(began, usize::from(bytes > PART), "{what}");
                seen.push(Seen { what, location: location.clone(), report, asked });
            }
        }
    }
    seen
}

/// Whether a header is about the checksum of a body, or about one that follows it.
fn is_about_checksums(name: &str) -> bool {
    let begins = ["x-amz-checksum", "x-amz-sdk-checksum", "x-oss-hash", "x-oss-checksum"];
    let is = ["x-amz-trailer", "trailer", "x-amz-decoded-content-length", "content-md5", "content-encoding"];
    begins.iter().any(|begin| name.starts_with(begin)) || is.contains(&name)
}

fn names(asked: &Asked) -> impl Iterator<Item = String> {
    asked.headers.iter().map(|(name, _)| name.to_ascii_lowercase())
}

#[test]
fn where_nothing_is_verified_no_checksum_is_sent() {
    let switched_off = Verified::None("switched off");
    for Seen { what, report, asked, .. } in each_upload(|config| config.settings.verify = false) {
        assert_eq!(report.verified, switched_off, "{what}");
        for asked in asked {
            let told: Vec<String> = names(&asked).filter(|name| is_about_checksums(name)).collect();
            assert!(told.is_empty(), "{what}: {} {}: {told:?}", asked.method, asked.path);
            let hash = asked.header("x-amz-content-sha256").unwrap_or_default();
            assert!(!hash.starts_with("STREAMING"), "{what}: {hash}");
            let document =
                if asked.method == "POST" { String::from_utf8_lossy(&asked.body) } else { "".into() };
            assert!(!document.contains("Checksum"), "{what}: {document}");
        }
    }
    // The same bytes arrive where the origin knows checksums.
    let folder = tempfile::tempdir().expect("a folder");
    for location in locations() {
        for bytes in [1000, 2 * PART + 1] {
            let content = Arc::new(content(bytes));
            for (kind, source) in sources(&content, folder.path()) {
                let buckets = Buckets::new();
                let mut config = buckets.config();
                config.settings.verify = false;
                let client = Client::new(config).expect("good settings");
                let transfer = client.put(Put::new(location.clone(), source)).expect("it begins");
                assert_eq!(transfer.wait().expect("it ends well").verified, switched_off, "{kind}");
                assert!(read(&client, &location, bytes) == *content, "{bytes} of {kind} to {location}");
                assert_eq!(buckets.parts_left(), 0);
            }
        }
    }
}

#[test]
fn no_upload_asks_whether_it_may_send_its_body() {
    let mut told = 0;
    for Seen { what, asked, .. } in each_upload(|_| {}) {
        for asked in asked {
            assert!(names(&asked).all(|name| name != "expect"), "{what}: {} {}", asked.method, asked.path);
            told += names(&asked).filter(|name| is_about_checksums(name)).count();
        }
    }
    assert!(told > 0, "where checksums are sent they are seen");
}

#[test]
fn whoever_asks_pays_for_each_request_of_an_upload() {
    for Seen { what, location, asked, .. } in each_upload(|config| config.settings.request_payer = true) {
        for asked in asked {
            let s3 = asked.header("x-amz-request-payer");
            let oss = asked.header("x-oss-request-payer");
            let expected = match location {
                Location::Oss { .. } => (None, Some("requester")),
                _ => (Some("requester"), None),
            };
            assert_eq!((s3, oss), expected, "{what}: {} {}", asked.method, asked.path);
            let authorization = asked.header("authorization").expect("a signature");
            let is_signed = match location {
                // Each header of OSS's own is signed, without being named: the origin below looks at that.
                Location::Oss { .. } => authorization.contains("Signature="),
                _ => {
                    let signed = authorization.split_once("SignedHeaders=").expect("names").1;
                    let signed = signed.split_once(',').expect("a signature").0;
                    signed.split(';').any(|name| name == "x-amz-request-payer")
                }
            };
            assert!(is_signed, "{what}: {authorization}");
        }
    }
    for signature in ["v4", "v1"] {
        for location in locations() {
            let buckets = Buckets::new();
            let mut config = buckets.config();
            config.settings.request_payer = true;
            config.settings.oss_signature = signature.into();
            let client = Client::new(config).expect("good settings");
            let put = Put::new(location.clone(), Source::Memory(Arc::new(content(2 * PART + 1))));
            let transfer = client.put(put).expect("it begins");
            transfer.wait().expect("the origin finds the signatures right");
        }
    }
}

/// Takes one object, and says at once that it has begun: an interim answer comes before the body has.
fn impatient(interim: &'static str) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("its address");
    thread::spawn(move || {
        let mut connection = BufReader::new(listener.accept().expect("a client").0);
        let (mut line, mut bytes) = (String::new(), 0);
        while line != "\r\n" {
            line.clear();
            connection.read_line(&mut line).expect("a line of the head");
            if let Some(length) = line.strip_prefix("content-length: ") {
                bytes = length.trim().parse().expect("a length");
            }
        }
        let say = |text: &str, to: &mut BufReader<TcpStream>| to.get_mut().write_all(text.as_bytes());
        say(&format!("HTTP/1.1 {interim}\r\n\r\n"), &mut connection).expect("the client listens");
        let mut body = vec![0; bytes];
        // A client that sends no more of it has failed.
        if connection.read_exact(&mut body).is_ok() {
            let _ = say("HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: 0\r\n\r\n", &mut connection);
        }
    });
    address
}

/// RFC 9110 §15.2: also those that nobody asked for are passed over.
#[test]
fn an_interim_answer_ends_no_body() {
    for interim in ["100 Continue", "102 Processing", "103 Early Hints"] {
        let mut config = Config::default();
        config.settings.endpoint_url = Some(format!("http://{}", impatient(interim)));
        config.settings.no_sign_request = true;
        config.settings.verify = false;
        config.settings.stall_timeout_ms = 1_000;
        config.settings.retries = 0;
        config.settings.outage_timeout_ms = 0;
        let client = Client::new(config).expect("good settings");
        let location = Location::parse("s3://bucket/object").expect("a URL");
        let put = Put::new(location, Source::Memory(Arc::new(content(16 * MIB))));
        let report = client.put(put).and_then(|transfer| transfer.wait()).expect(interim);
        assert_eq!((report.bytes, report.retries), (16 * MIB as u64, 0), "{interim}");
    }
}
