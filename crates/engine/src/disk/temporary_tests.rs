//! Tests: the dead are cleared, the living and everything else stays.

use std::path::Path;

use super::*;

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder can be read");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn open(folder: &Path) -> OwnedFd {
    crate::disk::folder::open(folder).expect("the folder opens")
}

fn create(folder: &Path, name: &str) -> Temporary {
    Temporary::create(&open(folder), name.as_ref(), true).expect("a temporary file")
}

/// The number of a temporary name.
fn number(name: &OsStr) -> u32 {
    name.to_str().and_then(|name| name.rsplit_once('-')).expect("a number").1.parse().expect("a number")
}

#[test]
fn the_living_keep_their_numbers_and_the_dead_lose_them() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let (first, second, third) = (create(folder, "x"), create(folder, "x"), create(folder, "x"));
    assert_eq!([&first, &second, &third].map(|one| number(&one.name)), [0, 1, 2]);
    std::fs::write(folder.join(&second.name), b"half").expect("a write");
    // What kill -9 does: the descriptor is closed, the name stays.
    drop((second, third));
    assert_eq!(names(folder).len(), 3);
    let next = create(folder, "x");
    assert_eq!((number(&next.name), next.file.metadata().expect("it is there").len()), (1, 0), "made anew");
    next.clear_others(&open(folder), "x".as_ref());
    assert_eq!(names(folder), [&first, &next].map(|one| one.name.to_string_lossy().into_owned()));
}

#[test]
fn a_dead_one_behind_those_that_ended_well_was_never_cleared() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let [first, second, third] = [(); 3].map(|()| create(folder, "x"));
    for ended in [&first, &second] {
        std::fs::remove_file(folder.join(&ended.name)).expect("it is there");
    }
    drop((first, second, third));
    let next = create(folder, "x");
    assert_eq!(number(&next.name), 0);
    next.clear_others(&open(folder), "x".as_ref());
    assert_eq!(names(folder), [next.name.to_string_lossy().into_owned()]);
}

#[test]
fn who_lost_his_name_took_the_file_of_the_next_owner() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = open(base.path());
    let first = create(base.path(), "x");
    std::fs::remove_file(base.path().join(&first.name)).expect("somebody tidies up");
    let second = create(base.path(), "x");
    assert_eq!(first.name, second.name);
    assert!(second.is_ours(&folder) && !first.is_ours(&folder), "with its lock and without the name");
}

#[test]
fn a_sweep_takes_the_dead_and_nothing_else() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let alive = create(folder, "alive");
    let dead = [create(folder, "dead"), create(folder, "dead"), create(folder, &"long".repeat(60))];
    let names_of_dead = dead.each_ref().map(|dead| folder.join(&dead.name));
    drop(dead);
    let others = [
        ".x.flatout-1-0",
        ".x.flatout-0123456789abcdef",
        ".x.flatout-0123456789ABCDEF-0",
        "x.flatout-0123456789abcdef-0",
        ".x.flatout-0123456789abcdef-0.txt",
        "model",
    ];
    others.iter().for_each(|name| std::fs::write(folder.join(name), b"mine").expect("a file"));
    // Of our pattern, but neither of them a file of its own.
    let (link, twin) = (".x.flatout-0123456789abcdef-0", ".y.flatout-0123456789abcdef-0");
    std::os::unix::fs::symlink("model", folder.join(link)).expect("a link");
    std::fs::hard_link(folder.join("model"), folder.join(twin)).expect("a second name");
    std::fs::create_dir(folder.join(".z.flatout-0123456789abcdef-0")).expect("a folder");
    let before = names(folder).len();
    sweep(&open(folder));
    assert!(names_of_dead.iter().all(|dead| dead.symlink_metadata().is_err()));
    assert_eq!(names(folder).len(), before - 3, "{:?}", names(folder));
    assert!(folder.join(&alive.name).exists());
}

/// A journal of its owner's beside a temporary file.
fn noted(folder: &Path, one: &Temporary) -> File {
    let file = one.journal_file(&open(folder)).expect("locks count in a temporary folder");
    let version = crate::base::version::Version::default();
    let identity = journal::DownloadIdentity { location: "s3://b/x".into(), version, range: 0..10 };
    let log = journal::Log::begin(file, &identity).expect("a write").expect("a short name");
    log.file().try_clone().expect("a descriptor")
}

#[test]
fn who_comes_next_takes_a_dead_one_over_with_its_journal_and_a_living_one_never() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let first = create(folder, "x");
    let log = noted(folder, &first);
    std::fs::write(folder.join(&first.name), b"half").expect("a write");
    let second = create(folder, "x");
    assert!(number(&second.name) == 1 && second.earlier.is_none(), "the first lives");
    drop((first, log));
    let third = create(folder, "x");
    let earlier = third.earlier.as_ref().expect("a dead owner's");
    assert_eq!((number(&third.name), &third.file.metadata().expect("it is there").len()), (0, &4));
    assert_eq!(earlier.journal.as_ref().expect("it can be read").identity.location, "s3://b/x");
    let fourth = create(folder, "x");
    assert!(number(&fourth.name) == 2 && fourth.earlier.is_none(), "it has an owner again");
}

#[test]
fn the_first_number_alone_is_gone_on_from_and_the_others_are_cleared() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let [first, second] = [(); 2].map(|()| create(folder, "x"));
    assert!(second.journal_file(&open(folder)).is_none());
    std::fs::remove_file(folder.join(&first.name)).expect("it ended well");
    drop((first, second));
    let next = create(folder, "x");
    assert!(number(&next.name) == 0 && next.earlier.is_none());
    next.clear_others(&open(folder), "x".as_ref());
    assert_eq!(names(folder), [next.name.to_string_lossy().into_owned()]);
}

#[test]
fn where_all_numbers_have_owners_one_is_drawn() {
    let base = tempfile::tempdir().expect("a folder");
    let living: Vec<Temporary> = NUMBERS.map(|_| create(base.path(), "x")).collect();
    let numbers: Vec<u32> = living.iter().map(|one| number(&one.name)).collect();
    assert_eq!(numbers, NUMBERS.collect::<Vec<_>>());
    let one_more = create(base.path(), "x");
    assert!(is_made_by_us(one_more.name.to_str().expect("text")), "{:?}", one_more.name);
    drop(one_more);
    sweep(&open(base.path()));
    assert_eq!(names(base.path()).len(), living.len(), "a sweep of the folder clears it");
}

#[test]
fn a_journal_that_cannot_be_read_is_taken_over_as_such() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let first = create(folder, "x");
    std::fs::write(folder.join(journal_name(&first.name)), b"whatever this is").expect("a write");
    drop(first);
    let next = create(folder, "x");
    let journal = next.earlier.expect("a dead owner's").journal;
    assert_eq!(journal.err(), Some(Unreadable::NoJournal));
}

#[test]
fn without_resume_a_dead_one_goes_and_its_journal_with_it() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let first = create(folder, "x");
    drop((noted(folder, &first), first));
    let next = Temporary::create(&open(folder), "x".as_ref(), false).expect("a temporary file");
    assert!(next.earlier.is_none());
    assert_eq!(names(folder), [next.name.to_string_lossy().into_owned()]);
}

#[test]
fn a_sweep_leaves_what_somebody_could_go_on_from_for_a_week() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let [alive, young, old, lost] = ["alive", "young", "old", "lost"].map(|name| {
        let one = create(folder, name);
        let log = noted(folder, &one);
        (one, log)
    });
    let past = SystemTime::now() - KEPT_FOR - Duration::from_secs(60);
    for (_, log) in [&alive, &old] {
        log.set_modified(past).expect("a date");
    }
    // One that died between its two names.
    std::fs::rename(folder.join(&lost.0.name), folder.join("lost")).expect("a rename");
    let expected = [&alive, &young]
        .map(|(one, _)| one.name.to_string_lossy().into_owned())
        .into_iter()
        .flat_map(|name| [name.clone(), name + JOURNAL]);
    let mut expected: Vec<String> = expected.chain(["lost".into()]).collect();
    expected.sort();
    drop((young, old, lost));
    sweep(&open(folder));
    assert_eq!(names(folder), expected);
}

#[test]
fn a_single_copy_clears_what_was_left_of_its_own_name() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let [first, second] = [(); 2].map(|()| create(folder, "x"));
    let log = noted(folder, &first);
    std::fs::rename(folder.join(&first.name), folder.join("x")).expect("it ended well, but for its journal");
    drop((first, second, log));
    let next = create(folder, "x");
    assert!(number(&next.name) == 0 && next.earlier.is_none());
    next.clear_others(&open(folder), "x".as_ref());
    assert_eq!(names(folder), [next.name.to_string_lossy().into_owned(), "x".into()]);
}

#[test]
fn who_clears_and_who_creates_never_take_a_file_from_each_other() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                sweep(&open(folder));
            }
        });
        let creators: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let ours = create(folder, "x");
                        let known = rustix::fs::fstat(&ours.file).expect("it is open");
                        std::thread::yield_now();
                        assert!(
                            leads_to(&open(folder), &ours.name, &known),
                            "an owner's file was taken away"
                        );
                    }
                })
            })
            .collect();
        let ended: Vec<_> = creators.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok), "a creator failed");
    });
    sweep(&open(folder));
    assert_eq!(names(folder), [""; 0]);
}

#[test]
fn a_name_is_ours_in_one_form_only() {
    let base = tempfile::tempdir().expect("a folder");
    for name in ["x", "a.flatout-b", "🚀", "", &"n".repeat(255)] {
        let made = stem(OsStr::new(name)) + "0";
        let journal = format!("{made}{JOURNAL}");
        assert!(is_made_by_us(&made) && is_made_by_us(&journal) && is_temporary_name(&made));
        assert!(is_temporary_name(&journal) && journal.len() < 255, "{made}");
        assert!(std::fs::write(base.path().join(&made), b"").is_ok(), "{made}");
    }
    assert_ne!(stem("n".repeat(60).as_ref()), stem("n".repeat(61).as_ref()), "long names are told apart");
    for other in [
        "",
        ".",
        "x",
        ".x.flatout-",
        ".x.flatout-0123456789abcdef-",
        ".x.flatout-0123456789abcdef-4294967296",
        ".x.flatout-0123456789abcdef-007",
        ".x.flatout-0123456789abcdef-+5",
        ".x.flatout-0123456789abcdef-.journal",
        ".x.flatout-0123456789abcdef-0.journal.journal",
    ] {
        assert!(!is_temporary_name(other), "{other}");
    }
}

#[test]
fn a_file_that_only_looked_like_ours_was_swept_away() {
    let base = tempfile::tempdir().expect("a folder");
    let folder = base.path();
    let theirs = [".x.flatout-0123456789abcdef-0", ".x.flatout-0123456789abcdef-1.journal"];
    for name in theirs {
        std::fs::write(folder.join(name), "theirs").expect("a file");
    }
    for name in ["x", &"n".repeat(50), &"n".repeat(51)] {
        drop(create(folder, name));
    }
    drop(Temporary::create(&open(folder), OsStr::from_bytes(b"\xff"), true).expect("a temporary file"));
    sweep(&open(folder));
    assert_eq!(names(folder), theirs);
}

#[test]
fn a_folder_is_swept_once_in_a_sorted_list_and_a_list_without_order_no_further() {
    let base = tempfile::tempdir().expect("a folder");
    let swept = |names: &[&str]| -> Vec<bool> {
        let mut sweeper = Sweeper::new(Folder::open(base.path()).expect("the folder"));
        names.iter().map(|name| sweeper.is_new(name)).collect()
    };
    assert_eq!(
        swept(&["a", "x-1", "x/a", "x/b/1", "x/b/2", "x/c", "x/d/1", "x/e", "x0", "x0/a/b", "x0/c"]),
        [true, false, true, true, false, false, true, false, false, true, true]
    );
    assert_eq!(swept(&["a/1", "b/1", "a/2", "b/2", "a/3"]), [true, true, false, false, false]);
}

#[test]
fn the_locks_of_nfs_count_where_they_go_to_the_server() {
    let line = |device: &str, options: &str| {
        format!(
            "36 35 {device} / /mnt rw,relatime shared:1 - nfs4 h:/export rw,vers=4.2,{options},addr=10.0.0.1\n"
        )
    };
    for (options, expected) in [
        ("local_lock=none", true),
        ("local_lock=all", false),
        ("local_lock=flock", false),
        ("nolock,local_lock=all", false),
        ("hard", false),
    ] {
        let mounts = line("0:41", "local_lock=none") + &line("0:42", options);
        assert_eq!(asks_the_server(&mounts, (0, 42)), expected, "{options}");
    }
    assert!(!asks_the_server(&line("0:41", "local_lock=none"), (0, 42)), "no such mount");
    let both = line("0:42", "local_lock=none") + &line("0:42", "local_lock=all");
    assert!(!asks_the_server(&both, (0, 42)));
}

#[test]
fn proc_is_no_file_system_whose_locks_count() {
    let file = OwnedFd::from(File::open("/proc/self/status").expect("it is there"));
    let known = rustix::fs::fstat(&file).expect("it is open");
    assert!(!reaches_every_owner(&file, &known));
}
