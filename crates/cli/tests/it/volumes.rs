//! `flatout volume`: indexes as files, without a mount.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use flatout_server::{FaultPlan, Options, Origin, Series, Store};

use crate::objects::Buckets;
use crate::program::{Ended, ended, flatout, run, signal, wait_until};

/// A folder for indexes, and an origin.
struct Place {
    folder: tempfile::TempDir,
    bucket: Buckets,
}

impl Place {
    fn new(objects: &[(&str, &[u8])]) -> Place {
        Place { folder: tempfile::tempdir().unwrap(), bucket: Buckets::new(objects) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn volume(&self, arguments: &[&str]) -> Command {
        let url = self.bucket.url();
        let mut command =
            flatout(&[&["volume"], arguments, &["--endpoint-url", &url, "--no-sign-request"]].concat());
        command.current_dir(self.folder.path()).env("XDG_CACHE_HOME", self.path("cache"));
        command.env("XDG_RUNTIME_DIR", self.path("run"));
        command
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> Ended {
        run(&mut self.volume(arguments))
    }

    /// What is in the folder, hidden files too.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

/// An inventory of objects that need not be there.
fn inventory(folder: &Path, bucket: &str, csv: &str) {
    let files = format!("[{{\"key\":\"data/one.csv\",\"size\":{}}}]", csv.len());
    let manifest = format!(
        "{{\"sourceBucket\":\"{bucket}\",\"destinationBucket\":\"arn:aws:s3:::logs\",\"version\":\"2016-11-30\",\
         \"creationTimestamp\":\"1514944800000\",\"fileFormat\":\"CSV\",\
         \"fileSchema\":\"Bucket, Key, Size, LastModifiedDate, ETag\",\"files\":{files}}}"
    );
    fs::create_dir_all(folder.join("data")).unwrap();
    fs::write(folder.join("data/one.csv"), csv).unwrap();
    fs::write(folder.join("manifest.json"), manifest).unwrap();
}

fn three() -> Place {
    Place::new(&[("bucket/train/a", b"a"), ("bucket/train/d/b", b"bb"), ("bucket/train/d.c", b"ccc")])
}

#[test]
fn an_index_is_built_shown_and_verified() {
    let place = three();
    let built = place.run(&["build", "s3://bucket/train", "t.flat", "--json"]).clean();
    let event = &built.events()[0];
    assert_eq!(
        (&event["event"], &event["files"], &event["folders"], &event["bytes"], &event["left_out"]),
        (&"volume_built".into(), &3.into(), &2.into(), &6.into(), &0.into())
    );
    let info = place.run(&["info", "t.flat"]).clean();
    for says in ["s3://bucket/train/", "files          3", "folders        2"] {
        assert!(info.text().contains(says), "{}", info.text());
    }
    assert_eq!(place.run(&["ls", "t.flat"]).clean().text(), "a\nd/\nd.c\n");
    assert_eq!(place.run(&["ls", "t.flat", "d"]).clean().text(), "b\n");
    // In the order of keys, as a bucket is listed.
    assert_eq!(place.run(&["ls", "t.flat", "-r"]).clean().text(), "a\nd.c\nd/b\n");
    let long = place.run(&["ls", "t.flat", "-l", "d/b"]).clean();
    assert!(long.text().trim_end().ends_with("2 d/b"), "{}", long.text());
    place.run(&["ls", "t.flat", "x"]).refused(1, &["t.flat: x: no such file or folder"]);
    let verified = place.run(&["verify", "t.flat", "--objects"]).clean();
    assert!(verified.text().contains("the same objects"), "{}", verified.text());
    fs::write(place.bucket.root().join("bucket/train/new"), b"new").unwrap();
    fs::remove_file(place.bucket.root().join("bucket/train/a")).unwrap();
    let verified = place.run(&["verify", "t.flat", "--objects", "--json"]);
    assert_eq!(verified.code, Some(2));
    let event = verified.events().into_iter().find(|event| event["event"] == "volume_verified").unwrap();
    assert_eq!((&event["added"], &event["changed"], &event["removed"]), (&1.into(), &0.into(), &1.into()));
    let updated = place.run(&["update", "t.flat"]).clean();
    assert!(updated.text().contains("1 new, 0 changed, 1 gone"), "{}", updated.text());
    assert_eq!(place.run(&["ls", "t.flat"]).clean().text(), "d/\nd.c\nnew\n");
}

#[test]
fn equal_objects_make_an_equal_file() {
    let place = three();
    place.run(&["build", "s3://bucket/train/", "one.flat"]).clean();
    place.run(&["build", "s3://bucket/train", "two.flat"]).clean();
    assert!(fs::read(place.path("one.flat")).unwrap() == fs::read(place.path("two.flat")).unwrap());
    assert_eq!(place.names(), ["one.flat", "two.flat"]);
}

#[test]
fn an_index_is_kept_beside_the_objects() {
    let place = three();
    place.run(&["build", "s3://bucket/train/", "s3://bucket/indexes/t.flat"]).clean();
    place.run(&["build", "s3://bucket/train/", "t.flat"]).clean();
    let object = place.bucket.root().join("bucket/indexes/t.flat");
    assert!(fs::read(&object).unwrap() == fs::read(place.path("t.flat")).unwrap());
    assert_eq!(place.run(&["ls", "s3://bucket/indexes/t.flat"]).clean().text(), "a\nd/\nd.c\n");
    fs::write(place.bucket.root().join("bucket/train/new"), b"new").unwrap();
    place.run(&["update", "s3://bucket/indexes/t.flat"]).clean();
    assert_eq!(place.run(&["ls", "s3://bucket/indexes/t.flat"]).clean().text(), "a\nd/\nd.c\nnew\n");
    // Of a prefix, an index is kept that nobody has named.
    assert_eq!(place.run(&["ls", "s3://bucket/train/d/"]).clean().text(), "b\n");
    let kept = fs::read_dir(place.path("cache/flatout/volumes")).unwrap();
    // One of each, and a note of the object's version.
    assert_eq!(kept.count(), 3);
    let elsewhere = place.bucket.root().join("other");
    fs::create_dir(&elsewhere).unwrap();
    fs::copy(place.path("t.flat"), elsewhere.join("t.flat")).unwrap();
    place
        .run(&["ls", "s3://other/t.flat"])
        .refused(4, &["s3://other/t.flat: it is an index of another bucket, s3://bucket/train/"]);
    place.run(&["ls", "s3://bucket/absent/"]).refused(1, &["no file lies there"]);
}

/// Two that update one index at the same time: the later one does not undo what the other did.
#[test]
fn an_index_that_was_replaced_during_its_update_stays() {
    let place = three();
    place.run(&["build", "s3://bucket/train/", "s3://bucket/t.flat"]).clean();
    let mut command = place.volume(&["update", "s3://bucket/t.flat", "--names", "-"]);
    let mut update = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let is_kept = || {
        let kept = fs::read_dir(place.path("cache/flatout/volumes")).into_iter().flatten().flatten();
        kept.into_iter().any(|entry| entry.path().extension().is_some_and(|of| of == "version"))
    };
    wait_until("it has the index that is there", is_kept);
    place.run(&["build", "s3://bucket/train/d", "s3://bucket/t.flat"]).clean();
    let object = place.bucket.root().join("bucket/t.flat");
    let theirs = fs::read(&object).unwrap();
    update.stdin.take().unwrap().write_all(b"a\n").unwrap();
    let ended = update.wait_with_output().unwrap();
    let says = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{says}");
    assert!(says.contains("somebody replaced it meanwhile, and theirs stays: try it again"), "{says}");
    assert!(fs::read(&object).unwrap() == theirs);
}

#[test]
fn names_come_from_a_list_or_an_inventory() {
    let place = three();
    // A name that comes twice is one file.
    fs::write(place.path("names"), "d/b\r\na\n\nabsent\nd/b\n").unwrap();
    let built = place.run(&["build", "s3://bucket/train/", "t.flat", "--names", "names"]);
    assert_eq!(built.code, Some(2), "{}", built.stderr);
    assert!(
        built.stderr.contains("train/absent: left out: the origin has no such object"),
        "{}",
        built.stderr
    );
    assert!(!built.stderr.contains("d/b"), "{}", built.stderr);
    assert_eq!(place.run(&["ls", "t.flat", "-r"]).clean().text(), "a\nd/b\n");

    let csv = "\"bucket\",\"train%2Fz+z\",\"5\",\"2026-01-02T03:04:05.000Z\",\"0123456789abcdef0123456789abcdef\"\n\
        \"bucket\",\"train/a\",\"1\",\"2026-01-02T03:04:05.000Z\",\"0123456789abcdef0123456789abcdef\"\n\
        \"bucket\",\"other/a\",\"1\",\"2026-01-02T03:04:05.000Z\",\"0123456789abcdef0123456789abcdef\"\n";
    for folder in [place.path("inv"), place.bucket.root().join("logs")] {
        inventory(&folder, "bucket", csv);
    }
    for inventory in ["inv/manifest.json", "s3://logs/manifest.json"] {
        place.run(&["build", "s3://bucket/train/", "i.flat", "--inventory", inventory]).clean();
        let listed = place.run(&["ls", "i.flat", "-l"]).clean();
        assert!(listed.text().contains("2026-01-02T03:04:05Z              5 z z"), "{}", listed.text());
        assert_eq!(listed.text().lines().count(), 2);
    }
    fs::remove_file(place.bucket.root().join("logs/data/one.csv")).unwrap();
    place
        .run(&["build", "s3://bucket/train/", "i.flat", "--inventory", "s3://logs/manifest.json"])
        .refused(1, &["s3://logs/data/one.csv", "no such object"]);
    inventory(&place.path("inv"), "elsewhere", csv);
    place
        .run(&["build", "s3://bucket/train/", "i.flat", "--inventory", "inv/manifest.json"])
        .refused(4, &["it is an inventory of the bucket elsewhere, not of bucket"]);
}

/// All of them, with the reason, however many a folder has.
#[test]
fn keys_that_no_file_can_stand_for_are_named() {
    let place = three();
    let (long, component) = ("n".repeat(256), "a component is . or ..");
    let odd = [
        ("a//b", "a component is empty"),
        ("./c", component),
        ("d/..", component),
        (&long, "a component has more than 255 bytes"),
        ("slash/", "its name ends in a slash, so it is shown as a folder"),
    ];
    let shadowed: Vec<String> = (0..1500).map(|at| format!("many/{at:04}")).collect();
    let within = shadowed.iter().map(|key| format!("{key}/in"));
    let keys = odd.iter().map(|(key, _)| (*key).to_owned()).chain(shadowed.iter().cloned()).chain(within);
    let row = |key: String| {
        format!(
            "\"bucket\",\"{key}\",\"5\",\"2026-01-02T03:04:05.000Z\",\"0123456789abcdef0123456789abcdef\"\n"
        )
    };
    inventory(&place.path("inv"), "bucket", &keys.map(row).collect::<String>());
    let line = ["build", "s3://bucket/", "t.flat", "--inventory", "inv/manifest.json"];
    let built = place.run(&[&line[..], &["--left-out", "left", "--json"]].concat());
    assert_eq!(built.code, Some(2), "{}", built.stderr);
    let event = &built.events()[0];
    assert_eq!((&event["files"], &event["left_out"]), (&1500.into(), &1505.into()));
    assert!(built.stderr.contains("1,505 keys left out: left names them"), "{}", built.stderr);
    let left = fs::read_to_string(place.path("left")).unwrap();
    let shadowed = shadowed.iter().map(|key| (&key[..], "a folder has its name"));
    for (key, why) in odd.into_iter().chain(shadowed) {
        assert!(left.contains(&format!("{key}\t{why}\n")), "{key}: {left}");
    }
    assert_eq!(left.lines().count(), 1505);
    // Without a file for them, the first are named.
    let built = place.run(&line);
    assert_eq!(built.stderr.matches(": left out: ").count(), 10, "{}", built.stderr);
    assert!(
        built.stderr.contains("1,495 keys more left out: --left-out FILE has all of them"),
        "{}",
        built.stderr
    );
}

/// A list of names may come from another program.
#[test]
fn names_come_from_standard_input() {
    let place = three();
    let mut command = place.volume(&["build", "s3://bucket/train/", "t.flat", "--names", "-"]);
    let mut build =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    build.stdin.take().unwrap().write_all(b"d/b\na\n").unwrap();
    ended(build.wait_with_output().unwrap()).clean();
    assert_eq!(place.run(&["ls", "t.flat", "-r"]).clean().text(), "a\nd/b\n");
}

/// By the dialect of OSS, too: the source, the index, and an inventory as OSS writes it.
#[test]
fn a_bucket_of_oss_has_an_index() {
    let place = three();
    let url = place.bucket.url();
    let oss = |arguments: &[&str]| place.run(&[arguments, &["--oss-endpoint", &url]].concat());
    oss(&["build", "oss://bucket/train/", "oss://bucket/t.flat"]).clean();
    assert_eq!(oss(&["ls", "oss://bucket/t.flat"]).clean().text(), "a\nd/\nd.c\n");
    oss(&["verify", "oss://bucket/t.flat", "--objects"]).clean();
    fs::write(place.bucket.root().join("bucket/train/new"), b"new").unwrap();
    oss(&["update", "oss://bucket/t.flat"]).clean();
    assert_eq!(oss(&["ls", "oss://bucket/t.flat"]).clean().text(), "a\nd/\nd.c\nnew\n");
    fs::write(place.bucket.root().join("bucket/other"), b"other").unwrap();
    let stays = ["something else than an index is there"];
    oss(&["build", "oss://bucket/train/", "oss://bucket/other"]).refused(4, &stays);
    // From OSS's User Guide.
    let csv = "\"bucket\",\"train/images/photo%20one.jpg\",\"102400\",\"Standard\",\"2023-10-26T08:00:00.000Z\",\
        \"FBA9DEDE5F27731C9771645A39863328\",\"false\",\"false\",\"default\",\"0\",\"Normal\",\"12345\"\r\n";
    let schema = "Bucket, Key, Size, StorageClass, LastModifiedDate, ETag, IsMultipartUploaded, EncryptionStatus, \
        ObjectAcl, TaggingCount, ObjectType, Crc64";
    let manifest = format!(
        "{{\"creationTimestamp\":\"1642994594\",\"destinationBucket\":\"logs\",\"fileFormat\":\"CSV\",\
         \"fileSchema\":\"{schema}\",\"files\":[{{\"key\":\"data/one.csv\",\"size\":{}}}],\
         \"sourceBucket\":\"bucket\",\"version\":\"2019-09-01\"}}",
        csv.len()
    );
    let logs = place.bucket.root().join("logs");
    fs::create_dir_all(logs.join("data")).unwrap();
    fs::write(logs.join("data/one.csv"), csv).unwrap();
    fs::write(logs.join("manifest.json"), manifest).unwrap();
    oss(&["build", "oss://bucket/train/", "i.flat", "--inventory", "oss://logs/manifest.json"]).clean();
    let listed = oss(&["ls", "i.flat", "-l", "-r"]).clean();
    assert!(
        listed.text().contains("2023-10-26T08:00:00Z         102400 images/photo one.jpg"),
        "{}",
        listed.text()
    );
}

/// What is no index, or none any more.
#[test]
fn a_damaged_index_is_refused() {
    let place = three();
    place.run(&["build", "s3://bucket/train/", "t.flat"]).clean();
    let whole = fs::read(place.path("t.flat")).unwrap();
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] ^= byte;
        bytes
    };
    let mut newer = with(8, 2);
    flatout_erofs::mend(&mut newer);
    let longer = [&whole[..], &[0; 100]].concat();
    let table: [(&str, Vec<u8>, &str); 7] = [
        ("empty", Vec::new(), "not an index"),
        ("text", b"hello".repeat(2000), "not an index"),
        ("truncated", whole[..whole.len() - 4096].to_vec(), "truncated"),
        ("longer", longer, "longer"),
        ("newer", newer, "has format 3"),
        ("header", with(20, 1), ""),
        ("damaged", with(5000, 1), "block 1 does not have its checksum"),
    ];
    for (name, bytes, says) in table {
        fs::write(place.path(name), bytes).unwrap();
        let ended = place.run(&["verify", name]);
        assert!(ended.code != Some(0) && ended.stderr.contains(name), "{name}: {}", ended.stderr);
        assert!(ended.stderr.contains(says), "{name}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
        let mounted = place.run(&["mount", name, "m"]);
        assert!(mounted.code != Some(0), "{name}");
    }
    // What is there and no index is not replaced; a damaged one is.
    place
        .run(&["build", "s3://bucket/train/", "text"])
        .refused(4, &["text: something else than an index is there"]);
    assert_eq!(fs::read(place.path("text")).unwrap(), b"hello".repeat(2000));
    place.run(&["build", "s3://bucket/train/", "damaged"]).clean();
    assert!(fs::read(place.path("damaged")).unwrap() == whole);
}

#[test]
fn wrong_words_are_refused() {
    let place = three();
    place.run(&["build", "http://host/x", "t.flat"]).refused(4, &["a web server has no listing to index"]);
    place.run(&["build", "train", "t.flat"]).refused(4, &["train"]);
    place.run(&["build", "s3://bucket/", "s3://bucket/"]).refused(4, &["one object is wanted"]);
    place.run(&["build", "s3://bucket/", "absent/t.flat"]).refused(1, &["absent/t.flat"]);
    place.run(&["build", "s3://absent/", "t.flat"]).refused(1, &["s3://absent"]);
    place.run(&["info", "absent.flat"]).refused(1, &["absent.flat", "flatout volume build"]);
    place.run(&["update", "s3://bucket/train/a"]).refused(4, &["s3://bucket/train/a", "not an index"]);
    fs::create_dir(place.path("folder")).unwrap();
    place.run(&["build", "s3://bucket/", "folder"]).refused(4, &["folder"]);
    assert_eq!(place.names(), ["cache", "folder"]);
}

/// What has the name of an index, and is none.
#[test]
fn only_an_index_is_replaced() {
    let place = three();
    let stays = ["something else than an index is there"];
    place.run(&["build", "s3://bucket/train/", "s3://bucket/train/a"]).refused(4, &stays);
    assert_eq!(fs::read(place.bucket.root().join("bucket/train/a")).unwrap(), b"a");
    let is_made = Command::new("mkfifo").arg(place.path("pipe")).status().unwrap();
    assert!(is_made.success());
    place.run(&["build", "s3://bucket/train/", "pipe"]).refused(4, &stays);
    for command in ["info", "verify", "update"] {
        place.run(&[command, "pipe"]).refused(4, &["pipe: it is no file"]);
    }
    place.run(&["build", "s3://bucket/train/", "-"]).refused(4, &["'-' is no name of a file"]);
    // An index, whatever has become of it, is.
    place.run(&["build", "s3://bucket/train/", "t.flat"]).clean();
    let whole = fs::read(place.path("t.flat")).unwrap();
    std::os::unix::fs::symlink("t.flat", place.path("link")).unwrap();
    for spoilt in [&whole[..5000], &[&whole[..100], &[7; 5000][..]].concat(), b""] {
        fs::write(place.path("t.flat"), spoilt).unwrap();
        place.run(&["build", "s3://bucket/train/", "link"]).clean();
        assert!(fs::read(place.path("t.flat")).unwrap() == whole);
        assert!(place.path("link").is_symlink());
    }
    // The list of what is left out takes no index's place.
    fs::create_dir(place.path("folder")).unwrap();
    fs::write(place.path("damaged"), &whole[..5000]).unwrap();
    fs::write(place.path("names"), "a\n").unwrap();
    for list in ["t.flat", "folder/../new.flat", "damaged", "names", "-"] {
        let line = ["build", "s3://bucket/train/", "new.flat", "--names", "names", "--left-out", list];
        place.run(&line).refused(4, &["--left-out", list]);
    }
    assert_eq!(fs::read(place.path("names")).unwrap(), b"a\n");
    assert_eq!(fs::read(place.path("damaged")).unwrap(), &whole[..5000]);
    assert!(fs::read(place.path("t.flat")).unwrap() == whole);
}

/// A list that a program failed to write, a prefix that is misspelt.
#[test]
fn an_index_of_nothing_takes_no_place() {
    let place = three();
    place.run(&["build", "s3://bucket/train/", "t.flat"]).clean();
    let before = fs::read(place.path("t.flat")).unwrap();
    fs::write(place.path("none"), "").unwrap();
    for arguments in [
        &["build", "s3://bucket/trian/", "t.flat"][..],
        &["build", "s3://bucket/train/", "t.flat", "--names", "none"],
        &["update", "t.flat", "--names", "none"],
    ] {
        place.run(arguments).refused(1, &["no file lies there", "one that was there stays"]);
        assert!(fs::read(place.path("t.flat")).unwrap() == before, "{arguments:?}");
    }
}

/// Ended by a signal, by an origin, by force.
#[test]
fn a_build_that_breaks_off_leaves_what_was_there() {
    let place = three();
    place.run(&["build", "s3://bucket/train/", "t.flat"]).clean();
    let before = fs::read(place.path("t.flat")).unwrap();
    // Nobody listens at this port: the listing waits.
    for (name, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let mut command = flatout(&["volume", "build", "s3://bucket/", "t.flat", "--no-sign-request"]);
        command.args(["--endpoint-url", "http://127.0.0.1:9", "--outage-timeout", "60s"]);
        command.current_dir(place.folder.path());
        let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        wait_until("the listing to wait", || threads(child.id()) > 1);
        signal(name, child.id());
        assert_eq!(child.wait().unwrap().code(), code, "{name}");
        assert_eq!(place.names(), ["t.flat"], "{name}");
        assert!(fs::read(place.path("t.flat")).unwrap() == before);
    }
}

/// In the midst of the keys.
#[test]
fn a_build_that_is_interrupted_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests");
    let objects = Store::Synthetic(vec![], vec![Series::new("train", "%07d", 300_000, 1).unwrap()]);
    let fault_plan = FaultPlan { log: Some(log.clone()), ..FaultPlan::default() };
    let latency = Duration::from_millis(100);
    let origin = Origin::start(Options { fault_plan, latency, ..Options::new(objects) }).unwrap();
    for (name, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        fs::write(&log, "").unwrap();
        let mut command = flatout(&["volume", "build", "s3://train/", "t.flat", "--no-sign-request"]);
        command.args(["--endpoint-url", &origin.url()]).current_dir(folder.path());
        let mut child = command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let pages = || fs::read_to_string(&log).unwrap().lines().count();
        wait_until("the third page", || pages() > 2);
        signal(name, child.id());
        assert_eq!(child.wait().unwrap().code(), code, "{name}");
        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["requests"], "{name}");
    }
}

fn threads(pid: u32) -> usize {
    fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")).map_or(0, Iterator::count)
}
