//! Mounts of indexes on the real kernel: by EROFS, and by FUSE where that cannot be. Right bytes or an error,
//! whatever becomes of the objects, the origin and the processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flatout_server::{FaultKind, FaultPlan, Options, Origin, Store, synthetic_bytes};

use super::faults::{faults, options, origin, origin_at};
use super::held::in_a_copy;
use super::services::in_namespace;
use super::{Place, User, is_alive};
use crate::mountinfo::mounts_below;
use crate::objects::{Buckets, bytes};
use crate::program::{Ended, run, signal, wait_until};

/// Who shows the files of an index.
const BY: [&[&str]; 3] = [&[], &["--read-ahead"], &["--fuse"]];

impl Place {
    pub(super) fn index(&self) -> PathBuf {
        self.path().join("train.flat")
    }

    pub(super) fn volume(&self, verb: &str, origin: &str, more: &[&str]) -> Command {
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
    pub(super) fn shows(&self, origin: &str, more: &[&str]) {
        run(&mut self.volume("build", origin, &[])).clean();
        self.mounts(origin, more);
    }

    #[track_caller]
    pub(super) fn mounts(&self, origin: &str, more: &[&str]) {
        let mnt = self.mnt_text();
        run(&mut self.volume("mount", origin, &[&[&mnt[..]], more].concat())).clean();
        assert!(self.is_mounted());
    }
}

/// Kills the process that serves, and waits for the next.
#[track_caller]
fn kill_server(place: &Place) {
    let killed = place.stats()["pid"].as_u64().unwrap() as u32;
    signal("KILL", killed);
    wait_until("another process", || place.pids().iter().any(|pid| *pid != killed));
}

/// How often the origin was asked for what matches, by its log.
fn asked(log: &Path, of: &str) -> usize {
    fs::read_to_string(log).unwrap().lines().filter(|line| line.contains(of)).count()
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
    for (by, kept) in BY.into_iter().flat_map(|by| [(by, &[][..]), (by, &["--supervise"])]) {
        let bucket = Buckets::new(&[("bucket/f", &bytes(200_000)), ("bucket/old", b"old")]);
        let place = Place::new();
        place.shows(&bucket.url(), &[by, kept].concat());
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
        run(&mut place.volume("build", &bucket.url(), &[])).clean();
        kill_server(&place);
        assert!(fs::read(place.at("c")).unwrap() == bytes(70_000), "{by:?} {}", place.log());
        assert!(!place.at("a").exists());
        // `build` tells no mount. `update` does, and the mount tells its supervisor.
        for name in ["d", "e"] {
            fs::write(bucket.root().join("bucket").join(name), name).unwrap();
            run(&mut place.volume("update", &bucket.url(), &[])).clean();
            kill_server(&place);
            assert!(fs::read(place.at("c")).unwrap() == bytes(70_000), "{by:?} {}", place.log());
            assert_eq!(fs::read(place.at(name)).unwrap(), name.as_bytes(), "{by:?} {}", place.log());
            let supervisor = place.stats()["supervisor_pid"].as_u64().unwrap();
            signal("KILL", supervisor as u32);
            let is_other = |pid: &serde_json::Value| pid.as_u64().is_some_and(|pid| pid != supervisor);
            wait_until("another supervisor", || is_other(&place.stats()["supervisor_pid"]));
        }
        kill_server(&place);
        assert_eq!(fs::read(place.at("e")).unwrap(), b"e", "{by:?} {}", place.log());
        place.unmounted();
    }
}

/// No other process goes on with files of an earlier index: reading them is an error, and no wait.
#[test]
fn files_of_an_earlier_index_keep_an_upgrade_waiting_and_end_with_their_process() {
    for by in BY {
        let content = bytes(9 << 20);
        let bucket = Buckets::new(&[("bucket/f", &content)]);
        let place = Place::new();
        place.shows(&bucket.url(), &[&["--supervise"], by].concat());
        let mut open = File::open(place.at("f")).unwrap();
        open.read_exact(&mut [0; 10]).unwrap();
        fs::write(bucket.root().join("bucket/new"), b"new").unwrap();
        run(&mut place.volume("update", &bucket.url(), &[])).clean();
        let mut upgrade = place.flatout(&["mount", "--upgrade", &place.mnt_text()]);
        let before = place.stats()["pid"].clone();
        thread::scope(|scope| {
            let waits = scope.spawn(|| run(&mut upgrade));
            thread::sleep(Duration::from_millis(500));
            let mut far = [0; 4096];
            open.read_exact_at(&mut far, 8 << 20).unwrap();
            assert!(far == content[8 << 20..(8 << 20) + 4096] && place.stats()["pid"] == before);
            drop(open);
            waits.join().unwrap().clean();
        });
        assert_eq!(fs::read(place.at("new")).unwrap(), b"new");

        let mut open = File::open(place.at("f")).unwrap();
        open.read_exact(&mut [0; 10]).unwrap();
        fs::write(bucket.root().join("bucket/newer"), b"newer").unwrap();
        run(&mut place.volume("update", &bucket.url(), &[])).clean();
        kill_server(&place);
        let failed = open.read_at(&mut [0; 4096], 8 << 20).unwrap_err();
        let ended = [libc::EIO, libc::ENOTCONN, libc::ECONNABORTED];
        assert!(ended.contains(&failed.raw_os_error().unwrap()), "{by:?} {failed}");
        assert_eq!(fs::read(place.at("newer")).unwrap(), b"newer", "{by:?} {}", place.log());
        assert!(fs::read(place.at("f")).unwrap() == content);
        drop(open);
        place.unmounted();
    }
}

/// What cannot be shown takes nothing away, neither the index before nor what is mounted over it.
#[test]
fn an_index_that_cannot_be_shown_leaves_what_is_there() {
    for kept in [&[][..], &["--supervise"]] {
        let (bucket, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
        place.shows(&bucket.url(), kept);
        let shell = |line: &str| run(Command::new("sh").args(["-c", line, &place.mnt_text()]));
        shell("mount -t tmpfs none $0 && echo own >$0/own").clean();
        fs::write(bucket.root().join("bucket/new"), b"new").unwrap();
        let updated = run(&mut place.volume("update", &bucket.url(), &[]));
        assert_eq!(updated.code, Some(2), "{}", updated.stderr);
        assert!(updated.stderr.contains("it shows the old index"), "{}", updated.stderr);
        assert!(place.log().contains("something else is mounted over it"), "{}", place.log());
        assert_eq!(fs::read(place.at("own")).unwrap(), b"own\n", "{kept:?}");
        shell("umount $0").clean();
        assert_eq!(fs::read(place.at("f")).unwrap(), b"f", "{kept:?} {}", place.log());
        run(&mut place.volume("update", &bucket.url(), &[])).clean();
        assert_eq!(fs::read(place.at("new")).unwrap(), b"new", "{kept:?} {}", place.log());
        place.unmounted();
    }
}

/// The other one serves files that are still open of a mount that was unmounted lazily: it is not told, and
/// nothing is said of it.
#[test]
fn of_two_processes_with_one_mount_point_the_visible_one_is_told() {
    for by in BY {
        let (bucket, place) = (Buckets::new(&[("bucket/f", &bytes(9 << 20))]), Place::new());
        place.shows(&bucket.url(), by);
        let mut open = File::open(place.at("f")).unwrap();
        open.read_exact(&mut [0; 10]).unwrap();
        run(Command::new("umount").args(["-l", &place.mnt_text()])).clean();
        place.mounts(&bucket.url(), by);
        assert_eq!(place.pids().len(), 2);
        for name in ["g", "h"] {
            fs::write(bucket.root().join("bucket").join(name), name).unwrap();
            let updated = run(&mut place.volume("update", &bucket.url(), &["--json"])).clean();
            let told = updated.events().iter().filter_map(|event| event["mounts"].as_u64()).next();
            assert_eq!((told, &updated.stderr[..]), (Some(1), ""), "{by:?} {}", place.log());
            assert_eq!(fs::read(place.at(name)).unwrap(), name.as_bytes(), "{by:?} {}", place.log());
        }
        let mut far = [0; 4096];
        open.read_exact_at(&mut far, 8 << 20).unwrap();
        assert!(far[..] == bytes(9 << 20)[8 << 20..(8 << 20) + 4096], "{by:?}");
        drop(open);
        place.unmounted();
    }
}

/// A name that is always there is there at every moment of an update, and of an upgrade beside it.
#[test]
fn a_mount_point_is_never_bare() {
    for kept in [&[][..], &["--supervise"]] {
        let (bucket, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
        place.shows(&bucket.url(), kept);
        let is_over = AtomicBool::new(false);
        let upgrade = || run(&mut place.flatout(&["mount", "--upgrade", &place.mnt_text()]));
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(fs::read(place.at("f")).expect("it is always there"), b"f");
                }
            });
            let upgrades = scope.spawn(|| {
                let is_over = || kept.is_empty() || is_over.load(Ordering::Relaxed);
                std::iter::repeat_with(upgrade).take_while(|_| !is_over()).collect::<Vec<_>>()
            });
            let updated: Vec<Ended> = (0..10)
                .map(|round| {
                    fs::write(bucket.root().join(format!("bucket/{round}")), b"new").unwrap();
                    run(&mut place.volume("update", &bucket.url(), &[]))
                })
                .collect();
            is_over.store(true, Ordering::Relaxed);
            reader.join().unwrap();
            for ended in updated.into_iter().chain(upgrades.join().unwrap()) {
                assert_eq!(ended.code, Some(0), "{kept:?} {} {}", ended.stderr, place.log());
            }
        });
        assert_eq!(fs::read(place.at("9")).unwrap(), b"new");
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
    let mapped = "import mmap,sys; f=open(sys.argv[1],'rb'); print(mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)[150_000])";
    for by in BY {
        for unmounts in ["flatout umount", "umount", "umount -l"] {
            let file = |name: &str| ("bucket".to_owned(), name.to_owned(), 200_000);
            let store = Store::Synthetic((0..8).map(|at| file(&format!("f{at}"))).collect(), vec![]);
            let origin = Origin::start(Options::new(store)).unwrap();
            let place = Place::new();
            place.shows(&origin.url(), by);
            let url = origin.url();
            drop(origin);
            // Its listener is gone: readers wait for the origin.
            let at = |name: &str| place.at(name).to_str().unwrap().to_owned();
            let mut readers: Vec<User> =
                (0..7).map(|number| User::start("cat", &[&at(&format!("f{number}"))])).collect();
            readers.push(User::start("python3", &["-c", mapped, &at("f7")]));
            readers.iter().for_each(User::waits);
            signal("KILL", place.pid());
            // The mapped one dies of SIGBUS.
            let ends: Vec<Option<i32>> = readers.iter_mut().map(User::end).collect();
            assert_eq!((&ends[..7], ends[7]), (&[Some(1); 7][..], None), "{by:?} {unmounts}");
            assert!(fs::read(place.at("f0")).is_err());
            let line = format!("{unmounts} $0").replace("flatout", env!("CARGO_BIN_EXE_flatout"));
            let mut command = Command::new("sh");
            place.within(command.args(["-c", &line, &place.mnt_text()]));
            run(&mut command).clean();
            place.is_clear();
            // The index is as it was, and can be mounted again.
            assert!(place.index().exists());
            place.mounts(&url, by);
            place.unmounted();
        }
    }
}

/// A signal ends a mount that nobody uses, and only takes one out of sight that somebody does.
#[test]
fn a_signal_unmounts() {
    for by in BY {
        let (bucket, place) = (Buckets::new(&[("bucket/f", &bytes(200_000))]), Place::new());
        place.shows(&bucket.url(), by);
        signal("TERM", place.pid());
        place.is_clear();
        place.mounts(&bucket.url(), by);
        let mut open = File::open(place.at("f")).unwrap();
        let busy = place.umount_as_it_is(&[]);
        assert!(busy.code == Some(1) && busy.stderr.contains("something still uses it"), "{}", busy.stderr);
        signal("TERM", place.pid());
        wait_until("it says so", || place.log().contains("it stays mounted"));
        assert_eq!(place.umount_as_it_is(&["--lazy"]).code, Some(0));
        assert!(!place.is_mounted());
        let mut all = Vec::new();
        open.read_to_end(&mut all).unwrap();
        assert!(all == bytes(200_000), "{by:?}");
        drop(open);
        place.is_clear();
    }
}

/// Names cost no request, whoever shows them; a small file costs one, in however many pieces it is read.
#[test]
fn names_cost_nothing_and_a_small_file_one_request() {
    for by in BY {
        let place = Place::new();
        let log = place.path().join("requests");
        let objects = (0..300).map(|at| ("bucket".to_owned(), format!("d{}/f{at}", at % 7), 100_000));
        let store = Store::Synthetic(objects.collect(), vec![]);
        let fault_plan = FaultPlan { log: Some(log.clone()), ..FaultPlan::default() };
        let origin = Origin::start(Options { fault_plan, ..Options::new(store) }).unwrap();
        place.shows(&origin.url(), by);
        // The origin logs an answer when it has ended.
        thread::sleep(Duration::from_millis(300));
        let before = asked(&log, "");
        let mut names = Vec::new();
        for folder in fs::read_dir(place.mnt()).unwrap() {
            for entry in fs::read_dir(folder.unwrap().path()).unwrap() {
                let entry = entry.unwrap();
                assert_eq!(entry.metadata().unwrap().len(), 100_000);
                names.push(entry.path());
            }
        }
        assert!(!place.at("d0/absent").exists());
        assert_eq!((names.len(), asked(&log, "")), (300, before), "{by:?}");
        for name in &names {
            assert_eq!(fs::read(name).unwrap().len(), 100_000);
        }
        thread::sleep(Duration::from_millis(300));
        assert_eq!(asked(&log, ""), before + 300, "{by:?}");
        if by != ["--fuse"] {
            assert_eq!(place.stats()["kernel"]["max_background"], 2048);
        }
        place.unmounted();
    }
}

/// Of the index's own blocks each is compared with its checksum, also when the kernel asks for it.
#[test]
fn damage_where_it_is_read_is_an_error() {
    for by in BY {
        let names: Vec<String> = (0..3000).map(|at| format!("bucket/d{}/name{at}", at % 30)).collect();
        let objects: Vec<(&str, &[u8])> = names.iter().map(|name| (&name[..], &b"x"[..])).collect();
        let (bucket, place) = (Buckets::new(&objects), Place::new());
        run(&mut place.volume("build", &bucket.url(), &[])).clean();
        let mut damaged = fs::read(place.index()).unwrap();
        // In the names of a folder; an ETag has no such word.
        let at = damaged.windows(8).rposition(|bytes| bytes == b"name1501").unwrap();
        damaged[at] ^= 1;
        fs::write(place.index(), damaged).unwrap();
        place.mounts(&bucket.url(), by);
        let failed = (0..30).filter(|at| {
            let entries = fs::read_dir(place.at(&format!("d{at}")));
            entries.and_then(|entries| entries.collect::<Result<Vec<_>, _>>()).is_err()
        });
        assert!(failed.count() > 0, "{by:?} {at} {}", place.log());
        let log = place.log();
        let index = place.index().display().to_string();
        assert!(log.contains(&index) && log.contains("block"), "{by:?} {log}");
        place.unmounted();
    }
}

/// Without rights, FUSE shows the same files, and a line says so.
#[test]
fn without_the_right_to_mount_images_fuse_shows_the_files() {
    let (bucket, place) = (Buckets::new(&[("bucket/f", &bytes(9000))]), Place::new());
    run(&mut place.volume("build", &bucket.url(), &[])).clean();
    let script = format!(
        "flatout /mnt/program volume mount /mnt/train.flat /mnt/mnt --endpoint-url {} --no-sign-request
         flatout stat -f -c %T /mnt/mnt; flatout cat /mnt/mnt/f | wc -c; flatout /mnt/program umount /mnt/mnt",
        bucket.url()
    );
    let ended = in_namespace(&place, &bucket.url(), &script);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let says =
        "the files are shown by FUSE, where names cost more than by EROFS: only root may mount an image";
    assert!(ended.stderr.contains(says), "{}", ended.stderr);
    let lines: Vec<&str> = ended.text().lines().collect();
    assert_eq!(lines[1..], ["fuseblk", "9000", "unmounted /mnt/mnt"], "{lines:?}");
}

/// Of a prefix, an index is built, kept and mounted; the next time it is the kept one, and a line says how
/// old it is.
#[test]
fn a_prefix_is_mounted_by_an_index_that_is_kept() {
    let (bucket, place) = (Buckets::new(&[("bucket/train/f", b"f"), ("bucket/other", b"o")]), Place::new());
    let (url, mnt) = (bucket.url(), place.mnt_text());
    let volume = |verb: &str, more: &[&str]| {
        let line = ["volume", verb, "s3://bucket/train/"];
        let origin = ["--endpoint-url", &url, "--no-sign-request"];
        let mut command = place.flatout(&[&line[..], more, &origin].concat());
        run(command.env("XDG_CACHE_HOME", place.path().join("cache")))
    };
    volume("mount", &[&mnt]).clean();
    assert_eq!(fs::read(place.at("f")).unwrap(), b"f");
    assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), 1);
    place.unmounted();
    fs::write(bucket.root().join("bucket/train/new"), b"new").unwrap();
    let again = volume("mount", &[&mnt]);
    assert!(again.code == Some(0) && again.stderr.contains("the index that is kept is "), "{}", again.stderr);
    assert!(!place.at("new").exists());
    volume("update", &[]).clean();
    assert_eq!(fs::read(place.at("new")).unwrap(), b"new");
    place.unmounted();
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
            kill_server(&place);
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

/// Patient with an origin that is worth it: the bytes are right, and each of these faults was met.
#[test]
fn faults_of_the_origin_cost_time_and_no_byte() {
    let stall = FaultKind::Stall(Duration::from_secs(600));
    let error = |code: &str| FaultKind::Error(code.parse().unwrap());
    let plans: [&[(f64, FaultKind)]; 5] = [
        &[(0.2, FaultKind::Reset), (0.2, error("503"))],
        &[(0.2, FaultKind::Truncate), (0.2, FaultKind::WrongRange)],
        &[(0.1, stall), (0.2, error("SlowDown"))],
        &[(0.3, FaultKind::Slow(20_000_000))],
        &[],
    ];
    for (by, plan) in [BY[0], BY[2]].into_iter().flat_map(|by| plans.map(|plan| (by, plan))) {
        let place = Place::new();
        let log = place.path().join("requests");
        let origin = origin(FaultPlan { log: Some(log.clone()), ..faults(plan) });
        let patient = ["--retries", "12", "--stall-timeout", "300ms"];
        run(&mut place.volume("build", &origin.url(), &patient)).clean();
        place.mounts(&origin.url(), &[&patient, by].concat());
        for (key, size) in [("small", 100_000), ("folder/inside", 1), ("large", 24 << 20)] {
            let mut truth = vec![0; size];
            synthetic_bytes("bucket", key, 0..size as u64, &mut truth);
            let got = fs::read(place.at(key));
            assert!(got.is_ok_and(|got| got == truth), "{key} {by:?} {plan:?}: {}", place.log());
        }
        place.unmounted();
        for (_, kind) in plan {
            let name = format!("\"fault\":\"{}\"", kind.name());
            assert!(asked(&log, &name) > 0, "never met {name}");
        }
    }
}

/// An origin that is bad for ever is an error, and one that comes back is read on from.
#[test]
fn an_origin_that_does_not_recover_is_an_error_until_it_does() {
    for by in [BY[0], BY[2]] {
        let place = Place::new();
        let good = origin(FaultPlan::default());
        let address = good.addresses()[0];
        let impatient = ["--retries", "1", "--stall-timeout", "300ms", "--outage-timeout", "1s"];
        run(&mut place.volume("build", &good.url(), &[])).clean();
        place.mounts(&good.url(), &[&impatient, by].concat());
        good.stop().unwrap();
        let refused = faults(&[(1.0, "503".parse().map(FaultKind::Error).unwrap())]);
        let bad = origin_at(address, Options { fault_plan: refused, ..options() });
        let failed = fs::read(place.at("small")).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(libc::EIO), "{by:?}");
        assert!(place.log().contains("s3://bucket/small"), "{}", place.log());
        bad.stop().unwrap();
        let _good = origin_at(address, options());
        let mut truth = vec![0; 100_000];
        synthetic_bytes("bucket", "small", 0..100_000, &mut truth);
        wait_until("it is read", || fs::read(place.at("small")).is_ok_and(|got| got == truth));
        place.unmounted();
    }
}
