//! Mounts of indexes on the real kernel: by EROFS, and by FUSE where that cannot be. Right bytes or an error,
//! whatever becomes of the objects, the origin and the processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use flatout_server::{FaultKind, Options, Origin, Store, synthetic_bytes};

use super::faults::{faults, origin};
use super::held::in_a_copy;
use super::{Place, User, is_alive};
use crate::mountinfo::mounts_below;
use crate::objects::{Buckets, bytes};
use crate::program::{run, signal, wait_until};

/// Who shows the files of an index.
const BY: [&[&str]; 3] = [&[], &["--read-ahead"], &["--fuse"]];

impl Place {
    fn index(&self) -> PathBuf {
        self.path().join("train.flat")
    }

    fn volume(&self, verb: &str, origin: &str, more: &[&str]) -> std::process::Command {
        let index = self.index().display().to_string();
        let line = match verb {
            "build" => vec!["volume", "build", "s3://bucket", &index],
            verb => vec!["volume", verb, &index],
        };
        let origin = ["--endpoint-url", origin, "--no-sign-request"];
        let mut command = self.flatout(&[&line[..], more, &origin[..]].concat());
        command.env("XDG_CACHE_HOME", self.path().join("cache"));
        command
    }

    /// Of all of the bucket.
    #[track_caller]
    fn shows(&self, origin: &str, more: &[&str]) {
        run(&mut self.volume("build", origin, &[])).clean();
        self.mounts(origin, more);
    }

    #[track_caller]
    fn mounts(&self, origin: &str, more: &[&str]) {
        let mnt = self.mnt_text();
        run(&mut self.volume("mount", origin, &[&[&mnt[..]], more].concat())).clean();
        assert!(self.is_mounted());
    }
}

/// Paths below a folder, and what is in the files.
fn walk(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            match entry.file_type().unwrap().is_dir() {
                true => left.push(path),
                false => {
                    let content = fs::read(&path).unwrap();
                    assert_eq!(path.metadata().unwrap().len(), content.len() as u64, "{}", path.display());
                    found.insert(path.strip_prefix(folder).unwrap().to_owned(), content);
                }
            }
        }
    }
    found
}

#[test]
fn the_files_of_an_index_are_the_objects() {
    let large = bytes(9 << 20);
    let sizes = [0, 1, 4095, 4096, 4097, 65_536, 100_000, 131_073, 1 << 20];
    let names = ["a-b", "a/x", "a.", "ä ö/日本", "tab\tname", "quote'\"", "deep/1/2/3/4/5/6/f", "z"];
    let mut objects: Vec<(String, &[u8])> = Vec::new();
    for (at, size) in sizes.into_iter().enumerate() {
        objects.push((format!("bucket/sizes/{at}"), &large[..size]));
    }
    for (at, name) in names.into_iter().enumerate() {
        objects.push((format!("bucket/{name}"), &large[at..at + 300]));
    }
    for at in 0..2000 {
        objects.push((format!("bucket/many/{at:05}.jpg"), &large[at..at + at % 700]));
    }
    objects.push(("bucket/large".to_owned(), &large));
    let objects: Vec<(&str, &[u8])> = objects.iter().map(|(name, bytes)| (&name[..], *bytes)).collect();
    let bucket = Buckets::new(&objects);
    let truth = walk(&bucket.root().join("bucket"));
    for by in BY {
        let place = Place::new();
        place.shows(&bucket.url(), by);
        let shown_by = if by == ["--fuse"] { "fuse" } else { "erofs" };
        assert_eq!(place.stats()["index"]["shown_by"], shown_by);
        assert_eq!(place.stats()["index"]["files"], truth.len());
        assert!(walk(&place.mnt()) == truth, "{by:?}");
        let about = place.at("large").metadata().unwrap();
        let of_object = bucket.root().join("bucket/large").metadata().unwrap();
        assert_eq!((about.mtime(), about.mode() & 0o7777), (of_object.mtime(), 0o444));
        assert_eq!(place.at("a").metadata().unwrap().mode() & 0o7777, 0o555);
        // Here and there, past the end, and past the page cache.
        let mut file = File::open(place.at("large")).unwrap();
        let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(place.at("large"));
        for at in [0, 4095, 5 << 20, (9 << 20) - 1, 1 << 20] {
            let mut got = vec![0; 10_000];
            let read = file.read_at(&mut got, at as u64).unwrap();
            assert_eq!(got[..read], large[at..(at + 10_000).min(large.len())], "{at}");
            if let Ok(direct) = &direct {
                let block = at / 4096 * 4096;
                // Aligned for O_DIRECT.
                let mut room = vec![0; 3 * 4096];
                let skip = room.as_ptr().align_offset(4096);
                let read = direct.read_at(&mut room[skip..skip + 4096], block as u64).unwrap();
                assert_eq!(room[skip..skip + read], large[block..(block + 4096).min(large.len())]);
            }
        }
        file.seek(SeekFrom::Start(9 << 20)).unwrap();
        assert_eq!(file.read(&mut [0; 10]).unwrap(), 0);
        assert_eq!(fs::read(place.at("absent")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        drop((file, direct));
        assert_eq!(fs::write(place.at("new"), b"x").unwrap_err().raw_os_error(), Some(libc::EROFS));
        place.unmounted();
    }
}

#[test]
fn an_object_that_was_replaced_is_an_error_and_never_other_bytes() {
    for by in BY {
        let content = bytes(300_000);
        let bucket = Buckets::new(&[
            ("bucket/kept", &content[..]),
            ("bucket/replaced", &content[..100_000]),
            ("bucket/shorter", &content[..100_000]),
            ("bucket/gone", &content[..100_000]),
            ("bucket/large", &bytes(20 << 20)),
        ]);
        let place = Place::new();
        place.shows(&bucket.url(), by);
        let object = |name: &str| bucket.root().join("bucket").join(name);
        fs::write(object("replaced"), vec![b'!'; 100_000]).unwrap();
        fs::write(object("shorter"), b"short").unwrap();
        fs::remove_file(object("gone")).unwrap();
        fs::write(object("large"), vec![b'!'; 20 << 20]).unwrap();
        for name in ["replaced", "shorter", "gone", "large"] {
            let error = fs::read(place.at(name)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EIO), "{name} {by:?}");
            let log = place.log();
            assert!(log.contains(&format!("s3://bucket/{name}: it is not what the index knows")), "{log}");
        }
        assert!(place.log().contains("flatout volume update"), "{}", place.log());
        assert_eq!(fs::read(place.at("kept")).unwrap(), content);
        assert!(place.stats()["names"]["replaced"].as_u64().unwrap() >= 4);
        place.unmounted();
    }
}

#[test]
fn another_index_is_shown_and_open_files_stay() {
    for by in BY {
        let bucket = Buckets::new(&[("bucket/f", &bytes(200_000)), ("bucket/old", b"old")]);
        let place = Place::new();
        place.shows(&bucket.url(), by);
        let mut open = File::open(place.at("f")).unwrap();
        let mut head = [0; 10];
        open.read_exact(&mut head).unwrap();
        let updated = |says: &str| {
            let ended = run(&mut place.volume("update", &bucket.url(), &["--json"])).clean();
            assert!(
                ended.events().iter().any(|event| event["mounts"] == 1),
                "{} {}",
                ended.text(),
                place.log()
            );
            let ended = run(&mut place.volume("info", &bucket.url(), &[])).clean();
            assert!(ended.text().contains(says), "{} {}", ended.text(), place.log());
        };
        updated("files          2");
        assert_eq!(fs::read(place.at("old")).unwrap(), b"old");
        fs::remove_file(bucket.root().join("bucket/old")).unwrap();
        fs::write(bucket.root().join("bucket/new"), b"new").unwrap();
        updated("files          2");
        assert_eq!(fs::read(place.at("new")).ok().as_deref(), Some(&b"new"[..]), "{by:?} {}", place.log());
        assert!(!place.at("old").exists());
        let mut rest = Vec::new();
        open.read_to_end(&mut rest).unwrap();
        assert!([head.to_vec(), rest].concat() == bytes(200_000), "{by:?}");
        assert_eq!(mounts_below(place.path()).len(), 1, "the old one is out of sight");
        drop(open);
        place.unmounted();
    }
}

/// Nobody has a file open: the old one ends at once.
#[test]
fn indexes_are_shown_one_after_the_other() {
    for by in BY {
        let bucket = Buckets::new(&[("bucket/0", b"0")]);
        let place = Place::new();
        place.shows(&bucket.url(), by);
        for round in 1..=8 {
            fs::write(bucket.root().join(format!("bucket/{round}")), b"new").unwrap();
            run(&mut place.volume("update", &bucket.url(), &[])).clean();
            assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), round + 1, "{by:?} {}", place.log());
        }
        place.unmounted();
    }
}

/// What the kernel knows is of the old index, whatever has its name.
#[test]
fn a_process_that_takes_over_reads_the_index_that_was_mounted() {
    for by in BY {
        let bucket = Buckets::new(&[("bucket/b", &bytes(9000)), ("bucket/c", &bytes(70_000))]);
        let place = Place::new();
        place.shows(&bucket.url(), &[&["--supervise"], by].concat());
        assert_eq!(fs::read(place.at("b")).unwrap(), bytes(9000));
        fs::write(bucket.root().join("bucket/a"), vec![b'!'; 50_000]).unwrap();
        let updated = run(&mut place.volume("update", &bucket.url(), &[]));
        assert!(updated.code == Some(2) && updated.stderr.contains("it is supervised"), "{}", updated.stderr);
        let killed = place.stats()["pid"].as_u64().unwrap() as u32;
        signal("KILL", killed);
        wait_until("another process", || place.pids().iter().any(|pid| *pid != killed));
        assert!(fs::read(place.at("c")).unwrap() == bytes(70_000), "{by:?} {}", place.log());
        place.unmounted();
    }
}

#[test]
fn an_index_that_is_an_object_is_updated_again_and_again() {
    let bucket = Buckets::new(&[("bucket/train/0", b"0")]);
    let place = Place::new();
    let (url, index) = (bucket.url(), "s3://bucket/indexes/t.flat");
    let volume = |line: &[&str]| {
        let origin = ["--endpoint-url", &url, "--no-sign-request"];
        let mut command = place.flatout(&[&["volume"], line, &origin].concat());
        run(command.env("XDG_CACHE_HOME", place.path().join("cache"))).clean()
    };
    volume(&["build", "s3://bucket/train/", index]);
    volume(&["mount", index, &place.mnt_text()]);
    for round in 1..=3 {
        fs::write(bucket.root().join(format!("bucket/train/{round}")), b"new").unwrap();
        let updated = volume(&["update", index, "--json"]);
        assert!(updated.events().iter().any(|event| event["mounts"] == 1), "{}", updated.text());
        assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), round + 1, "{}", place.log());
    }
    place.unmounted();
}

#[test]
fn a_killed_process_leaves_errors_and_a_mount_that_ends() {
    for by in BY {
        let store = Store::Synthetic(vec![("bucket".into(), "f".into(), 200_000)], vec![]);
        let origin = Origin::start(Options::new(store)).unwrap();
        let place = Place::new();
        place.shows(&origin.url(), by);
        let index = place.index();
        drop(origin);
        // Its listener is gone: the reader waits for the origin.
        let mut reader = User::start("cat", &[place.at("f").to_str().unwrap()]);
        reader.waits();
        signal("KILL", place.pid());
        assert_eq!(reader.end(), Some(1), "{by:?}");
        assert!(fs::read(place.at("f")).is_err());
        run(&mut place.flatout(&["umount", &place.mnt_text()])).clean();
        place.is_clear();
        assert!(index.exists());
    }
}

/// The kernel has it as long as a container that was started meanwhile.
#[test]
fn a_copy_of_the_mount_namespace_is_named() {
    let (origin, place) = (Buckets::new(&[("bucket/f", &bytes(200_000))]), Place::new());
    place.shows(&origin.url(), &[]);
    let (pid, user) = (place.pid(), in_a_copy(&place.mnt()));
    let holder = format!("process {} (sleep) has it mounted on", user.pid());
    let ended = place.umount_as_it_is(&[]);
    assert!(ended.stderr.contains(&holder), "{}", ended.stderr);
    assert!(is_alive(pid));
    drop(user);
    wait_until("its end", || !is_alive(pid));
    place.is_clear();
}

#[test]
fn a_reader_that_waits_for_the_origin_can_be_killed() {
    for by in BY {
        let place = Place::new();
        {
            let bucket = Buckets::new(&[("bucket/f", &bytes(200_000))]);
            place.shows(&bucket.url(), by);
        }
        let mut reader = User::start("cat", &[place.at("f").to_str().unwrap()]);
        reader.waits();
        let since = Instant::now();
        signal("KILL", reader.pid());
        assert_eq!(reader.end(), None);
        assert!(since.elapsed() < Duration::from_secs(5));
        place.unmounted();
    }
}

#[test]
fn a_supervised_index_outlives_the_process_that_serves_it() {
    for by in BY {
        let content = bytes(3 << 20);
        let bucket = Buckets::new(&[("bucket/f", &content), ("bucket/d/g", b"g")]);
        let place = Place::new();
        place.shows(&bucket.url(), &[&["--supervise"], by].concat());
        let mut file = File::open(place.at("f")).unwrap();
        let mut head = vec![0; 100];
        file.read_exact(&mut head).unwrap();
        for _ in 0..2 {
            let killed = place.stats()["pid"].as_u64().unwrap() as u32;
            signal("KILL", killed);
            wait_until("another process", || place.pids().iter().any(|pid| *pid != killed));
            assert_eq!(fs::read(place.at("d/g")).unwrap(), b"g");
        }
        let mut rest = Vec::new();
        file.read_to_end(&mut rest).unwrap();
        assert!([head, rest].concat() == content, "{by:?}");
        drop(file);
        place.unmounted();
    }
}

#[test]
fn thousands_of_readers_get_their_bytes() {
    const READERS: u64 = 2000;
    const BYTES: u64 = 20_000;
    let objects = (0..READERS).map(|at| ("bucket".to_owned(), format!("d{}/f{at}", at % 7), BYTES)).collect();
    let latency = Duration::from_millis(50);
    let options = Options { latency, ..Options::new(Store::Synthetic(objects, vec![])) };
    let origin = Origin::start(options).unwrap();
    let place = Place::new();
    place.shows(&origin.url(), &[]);
    let folder = Arc::new(place.mnt());
    let readers: Vec<_> = (0..READERS)
        .map(|at| {
            let folder = folder.clone();
            let read = move || {
                let key = format!("d{}/f{at}", at % 7);
                let mut truth = vec![0; BYTES as usize];
                synthetic_bytes("bucket", &key, 0..BYTES, &mut truth);
                fs::read(folder.join(key)).is_ok_and(|got| got == truth)
            };
            thread::Builder::new().stack_size(128 << 10).spawn(read).unwrap()
        })
        .collect();
    let right = readers.into_iter().map(|reader| reader.join().unwrap()).filter(|right| *right);
    assert_eq!(right.count() as u64, READERS);
    // One request for each small object, whatever the kernel asks.
    let reads = place.stats();
    assert!(reads["bytes"]["fetched"].as_u64().unwrap() <= READERS * BYTES, "{reads}");
    place.unmounted();
}

#[test]
fn faults_of_the_origin_cost_time_and_no_byte() {
    let stall = FaultKind::Stall(Duration::from_secs(600));
    let plans: [&[(f64, FaultKind)]; 4] = [
        &[(0.1, FaultKind::Reset), (0.05, "503".parse().map(FaultKind::Error).unwrap())],
        &[(0.1, FaultKind::Truncate)],
        &[(0.05, stall)],
        &[(0.1, FaultKind::WrongRange)],
    ];
    for plan in plans {
        let origin = origin(faults(plan));
        let place = Place::new();
        let patient = ["--retries", "12", "--stall-timeout", "300ms"];
        run(&mut place.volume("build", &origin.url(), &patient)).clean();
        place.mounts(&origin.url(), &patient);
        for (key, size) in [("small", 100_000), ("folder/inside", 1), ("large", 24 << 20)] {
            let mut truth = vec![0; size];
            synthetic_bytes("bucket", key, 0..size as u64, &mut truth);
            match fs::read(place.at(key)) {
                Ok(got) => assert!(got == truth, "{key}"),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EIO), "{key}: {}", place.log()),
            }
        }
        place.unmounted();
    }
}
