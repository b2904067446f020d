//! `flatout sync --delete`, where it deleted too much, too little, or did not say so.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::cloud::{Cloud, Fault, now_s};
use crate::folder::files;
use crate::program::{Ended, run};
use crate::raw::{Answer, Asked, Raw};
use crate::sync::{at, tree};
use crate::verbs_bad_days::{gone, named, page, xml};

#[track_caller]
fn sync(cloud: &Cloud, arguments: &[&str]) -> Ended {
    run(&mut at(&cloud.raw.url(""), &[&["sync"], arguments].concat()))
}

/// Objects that are older than all files of a test, by their names below `bucket/d/`.
fn bucket(names: &[&str]) -> Cloud {
    let cloud = Cloud::start(|_| None);
    names.iter().for_each(|name| cloud.put(&format!("bucket/d/{name}"), b"object", now_s() - 3_600));
    cloud
}

fn keys(cloud: &Cloud) -> Vec<String> {
    cloud.below("bucket/d/").into_keys().collect()
}

#[test]
fn what_filters_leave_out_is_extra_even_where_the_source_has_it() {
    let (cloud, up) = (bucket(&["a.tmp", "b.tmp"]), tree(&[("a", "1"), ("a.tmp", "2")]));
    let arguments = [&up.at(""), "s3://bucket/d", "--delete", "--delete-excluded", "--exclude", "*.tmp"];
    sync(&cloud, &arguments).clean();
    assert_eq!(keys(&cloud), ["a"]);
}

/// The path `/etc/passwd` was looked at, and the object `//etc/passwd` never deleted.
#[test]
fn keys_that_no_file_can_have_are_extra() {
    let long = "x".repeat(300);
    let (cloud, up) =
        (bucket(&["/etc/passwd", "a//b", "../d/a", long.as_str()]), tree(&[("a", "1"), ("d/b", "")]));
    let ended = sync(&cloud, &[&up.at(""), "s3://bucket/d", "--delete", "--json"]).clean();
    assert_eq!(ended.events().pop().unwrap()["deleted"], 4);
    assert_eq!(keys(&cloud), ["a", "d/b"]);
}

#[test]
fn folders_are_in_no_count_of_what_may_be_deleted() {
    let (cloud, down) = (bucket(&["a"]), tree(&[("gone/x", "1"), ("too/y", "2")]));
    let arguments = ["s3://bucket/d", &down.at(""), "--delete", "--empty-folders", "--max-delete"];
    let arguments = |most: &'static str| [&arguments[..], &[most]].concat();
    sync(&cloud, &arguments("1")).refused_with(1, &["2 to delete"]);
    sync(&cloud, &arguments("2")).clean();
    assert_eq!(down.names(), ["a"]);
}

/// Its objects may be those of a run that followed it.
#[test]
fn a_link_that_is_skipped_keeps_what_lies_below_its_name() {
    let (cloud, up) = (bucket(&["link/x", "link.x", "z"]), tree(&[("z", "1")]));
    symlink("nothing", up.at("link")).unwrap();
    let ended = sync(&cloud, &[&up.at(""), "s3://bucket/d", "--delete", "--symlinks", "skip", "--json"]);
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    assert_eq!(keys(&cloud), ["link/x", "z"]);
    assert_eq!(ended.events().pop().unwrap()["skipped"], 2);
}

/// All names of a disk that is unmounted while they are walked are absent.
#[test]
fn a_source_that_became_another_folder_deletes_nothing() {
    let up = tree(&[("from/a", "1")]);
    let (from, away) = (up.path().join("from"), up.path().join("away"));
    let (here, there) = (from.clone(), away.clone());
    let cloud = Cloud::start(move |asked| {
        if asked.method() == "PUT" {
            fs::rename(&here, &there).unwrap();
            fs::create_dir(&here).unwrap();
        }
        None
    });
    cloud.put("bucket/d/extra", b"object", now_s());
    let arguments = [from.to_str().unwrap(), "s3://bucket/d", "--delete"];
    let ended = sync(&cloud, &arguments);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.contains("not the folder that it was"), "{}", ended.stderr);
    assert_eq!(keys(&cloud), ["a", "extra"]);
}

#[test]
fn a_folder_without_files_gets_its_mark_while_what_lies_there_goes() {
    let (cloud, up) = (bucket(&["e/x"]), tree(&[("a", "1")]));
    fs::create_dir(up.at("e")).unwrap();
    sync(&cloud, &[&up.at(""), "s3://bucket/d", "--delete", "--empty-folders"]).clean();
    assert_eq!(keys(&cloud), ["a", "e/"]);
}

/// What is filtered out is not deleted: the mark of a folder is an object like others, unless folders are
/// synced.
#[test]
fn a_mark_that_filters_leave_out_stays() {
    let (cloud, up) = (bucket(&["empty/", "gone.bin", "kept", "skip/"]), tree(&[("a.bin", "1")]));
    fs::create_dir(up.at("skip")).unwrap();
    sync(&cloud, &[&up.at(""), "s3://bucket/d", "--delete", "--include", "*.bin"]).clean();
    assert_eq!(keys(&cloud), ["a.bin", "empty/", "kept", "skip/"]);
    sync(&cloud, &[&up.at(""), "s3://bucket/d", "--delete", "--exclude", "skip/", "--exclude", "kept"])
        .clean();
    assert_eq!(keys(&cloud), ["a.bin", "kept", "skip/"]);
    sync(&cloud, &[&up.at(""), "s3://bucket/d", "--delete"]).clean();
    assert_eq!(keys(&cloud), ["a.bin", "skip/"]);
}

/// Folders that the source does not have go once they are empty, and those alone. A dry run says the same.
#[test]
fn only_folders_of_the_target_alone_are_removed() {
    let down = tree(&[("here/x", "1"), ("gone/a/x", "1"), ("gone/b/kept.txt", "2"), ("gone/b/c/x", "3")]);
    let cloud = bucket(&["a", "here/"]);
    let arguments = [
        "s3://bucket/d",
        &down.at(""),
        "--delete",
        "--empty-folders",
        "--exclude",
        "*.txt",
        "--max-delete",
        "9",
    ];
    let planned = sync(&cloud, &[&arguments[..], &["--dry-run"]].concat()).clean();
    let would: Vec<&str> =
        planned.text().lines().filter_map(|line| line.strip_prefix("would remove ")).collect();
    assert_eq!(would, ["gone/a/", "gone/b/c/"].map(|name| down.at(name)));
    assert!(planned.text().contains("3 to delete, 2 folders to remove"), "{}", planned.text());
    let ended = sync(&cloud, &[&arguments[..], &["--json"]].concat()).clean();
    let removed: Vec<_> = ended
        .events()
        .into_iter()
        .filter(|event| event["key"].as_str().is_some_and(|key| key.ends_with('/')))
        .collect();
    assert_eq!(removed.len(), 2, "{removed:?}");
    assert_eq!(ended.events().pop().unwrap()["folders_removed"], 2);
    assert!(down.path().join("here").is_dir(), "the source has it");
    assert_eq!(files(down.path()).into_keys().collect::<Vec<_>>(), ["a", "gone/b/kept.txt"]);
    assert!(!down.path().join("gone/a").exists() && !down.path().join("gone/b/c").exists());
}

/// Folders without a file are names of the source, too, and a mark whose name is a file's is nobody's.
#[test]
fn marks_alone_are_a_tree() {
    let (cloud, down) = (bucket(&["e/", "f/g/"]), tree(&[]));
    for _ in 0..2 {
        sync(&cloud, &["s3://bucket/d", &down.at("in"), "--empty-folders", "--delete"]).clean();
    }
    let (cloud, down) = (bucket(&["a", "a/"]), tree(&[]));
    for _ in 0..2 {
        sync(&cloud, &["s3://bucket/d", &down.at(""), "--delete"]).clean();
    }
    assert_eq!(down.names(), ["a"]);
    sync(&cloud, &["s3://bucket/d", &down.at(""), "--exclude", "**"]).clean();
}

/// Empty mount points, the mark of the prefix alone, or a mistyped filter: all of the target would go.
#[test]
fn nothing_but_folders_or_filtered_names_empties_no_target() {
    let (cloud, up) = (bucket(&["a", "b"]), tree(&[]));
    fs::create_dir(up.at("mount")).unwrap();
    sync(&cloud, &[&up.at(""), "s3://bucket/d", "--delete"]).refused_with(1, &["there is nothing to copy"]);
    assert_eq!(keys(&cloud), ["a", "b"]);
    let down = tree(&[("x", "1")]);
    let more = ["--include", "*.bni", "--delete", "--delete-excluded"];
    sync(&cloud, &[&["s3://bucket/d", &down.at("")], &more[..]].concat())
        .refused_with(1, &["nothing to copy"]);
    let cloud = bucket(&[""]);
    sync(&cloud, &["s3://bucket/d", &down.at(""), "--delete"]).refused_with(1, &["nothing to copy"]);
    assert_eq!(down.names(), ["x"]);
}

/// What a dry run would not delete is not told as if it would.
#[test]
fn a_dry_run_tells_extras_from_deletions() {
    let (cloud, up) = (bucket(&["b", "c"]), tree(&[("a", "1")]));
    let check = |more: &[&str], code: i32, says: &str| {
        let (from, dry) = (up.at(""), ["s3://bucket/d", "--dry-run"]);
        let ended = sync(&cloud, &[&[from.as_str()], &dry[..], more].concat());
        assert!(ended.code == Some(code) && ended.text().contains(says), "{}{}", ended.text(), ended.stderr);
    };
    check(&[], 0, "1 to copy, 2 extra,");
    check(&["--delete"], 0, "1 to copy, 2 to delete,");
    check(&["--delete", "--max-delete", "1"], 1, "1 to copy, 2 extra,");
}

/// The report of the run lies in the tree, and is none of it.
#[test]
fn a_report_in_the_tree_stays_there() {
    let (cloud, disk) = (bucket(&["a"]), tree(&[("b", "1")]));
    let report = disk.at("report");
    sync(&cloud, &["s3://bucket/d", &disk.at(""), "--delete", "--report", &report]).clean();
    assert_eq!(disk.names(), ["a", "report"]);
    sync(&cloud, &[&disk.at(""), "s3://bucket/d", "--delete", "--report", &report]).clean();
    assert_eq!(keys(&cloud), ["a"]);
}

/// As after an upload of that very folder: each object is younger than its file, and made of it.
#[test]
fn a_folder_that_was_uploaded_is_not_fetched_again() {
    for mode in [&[][..], &["--exact-timestamps"], &["--checksum"]] {
        let (cloud, disk) = (bucket(&[]), tree(&[("a", "1"), ("b/c", "2")]));
        sync(&cloud, &[&disk.at(""), "s3://bucket/d"]).clean();
        cloud.objects().values_mut().for_each(|object| object.modified_s += 60);
        let to = disk.at("");
        let ended = sync(&cloud, &[&["s3://bucket/d", &to, "--json"], mode].concat()).clean();
        let summary = ended.events().pop().unwrap();
        assert_eq!((&summary["ok"], &summary["unchanged"]), (&0.into(), &2.into()), "{mode:?}");
    }
}

/// Where nobody states a checksum, `--checksum` says so.
#[test]
fn names_without_checksums_are_counted() {
    let raw = Raw::start(|asked| match asked.method() {
        "GET" => page(&["d/a".to_owned()], None),
        "HEAD" => Answer::new("200 OK", &[("content-length", "2")], b""),
        _ => Answer::new("200 OK", &[("content-length", "0"), ("etag", "\"1\"")], b""),
    });
    let up = tree(&[("a", "11")]);
    let ended = run(&mut at(&raw.url(""), &["sync", &up.at(""), "s3://bucket/d", "--checksum"]));
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    assert!(ended.stderr.contains("1 name compared by time"), "{}", ended.stderr);
}

/// In the second of its upload: its time is its object's, and no later one tells that it was fetched.
#[test]
fn a_folder_that_was_just_fetched_is_not_sent_again() {
    let (cloud, up, down) = (bucket(&[]), tree(&[("a", "1"), ("b/c", "2")]), tree(&[]));
    sync(&cloud, &[&up.at(""), "s3://bucket/d"]).clean();
    cloud.objects().values_mut().for_each(|object| object.modified_s = now_s());
    sync(&cloud, &["s3://bucket/d", &down.at("")]).clean();
    let ended = sync(&cloud, &[&down.at(""), "s3://bucket/d", "--json"]).clean();
    assert_eq!(ended.events().pop().unwrap()["unchanged"], 2);
}

/// A source that is exchanged while the second walk goes through it: the first one knew all of its names.
#[test]
fn a_source_that_vanishes_in_the_second_walk_loses_nothing() {
    for is_whole in [true, false] {
        let mut keys: Vec<String> = ["d/0", "d/z/1", "d/z/2"].map(str::to_owned).into();
        keys.splice(1..1, (0..70_000).map(|at| format!("d/m/{at:05}")));
        let up = tree(&[("from/0", "11"), ("from/z/1", "22"), ("from/z/2", "33")]);
        let (from, away) = (up.path().join("from"), up.path().join("away"));
        let (here, has_begun) = (from.clone(), AtomicUsize::new(0));
        let deleted = Arc::new(Mutex::new(Vec::new()));
        let noted = deleted.clone();
        let raw = Raw::start(move |asked| {
            if asked.method() == "POST" {
                if has_begun.fetch_add(1, Ordering::SeqCst) == 0 {
                    match is_whole {
                        true => {
                            fs::rename(&here, &away).unwrap();
                            fs::create_dir(&here).unwrap();
                        }
                        false => fs::rename(here.join("z"), here.join("a")).unwrap(),
                    }
                }
                let named = named(asked);
                noted.lock().unwrap().extend(named.iter().cloned());
                return xml("200 OK", &format!("<DeleteResult>{}</DeleteResult>", gone(&named)));
            }
            let at = token(asked).unwrap_or(0);
            let next = (keys.len() > (at + 1) * 1_000).then(|| (at + 1).to_string());
            page(keys.chunks(1_000).nth(at).unwrap(), next.as_deref())
        });
        let arguments = ["sync", from.to_str().unwrap(), "s3://bucket/d", "--delete", "--size-only"];
        let ended = run(&mut at(&raw.url(""), &arguments));
        assert_eq!(ended.code, Some(3), "{}{}", ended.text(), ended.stderr);
        let says = if is_whole { "not the folder that it was" } else { "vanished while" };
        assert!(ended.stderr.contains(says), "{}", ended.stderr);
        let deleted = deleted.lock().unwrap();
        assert!(deleted.iter().all(|key| key.starts_with("d/m/")), "{:?}", deleted.last());
        assert!(!is_whole || deleted.len() < 70_000, "{} deleted", deleted.len());
        assert!(!deleted.is_empty());
    }
}

/// An origin that lists but does not let us look: one line, not one for each object.
#[test]
fn what_could_not_be_asked_is_said_once_for_all() {
    let names: Vec<String> = (0..40).map(|at| format!("a{at}")).collect();
    let cloud = Cloud::start(|asked| (asked.method() == "HEAD").then_some(Fault::Denied));
    names.iter().for_each(|name| cloud.put(&format!("bucket/d/{name}"), b"1", now_s() - 3_600));
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "2")).collect();
    let up = tree(&files);
    let ended = sync(&cloud, &[&up.at(""), "s3://bucket/d", "--delete"]);
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.stderr.lines().count() <= 6, "{}", ended.stderr);
    assert!(ended.stderr.contains("sync: 39 more: stat: …: access denied"), "{}", ended.stderr);
    assert!(ended.text().contains("40 unknown and left as they are"), "{}", ended.text());
}

/// The number that a token is.
fn token(asked: &Asked) -> Option<usize> {
    let mut pairs = asked.target().split(['?', '&']);
    pairs.find_map(|pair| pair.strip_prefix("continuation-token="))?.parse().ok()
}

/// More extra names than are kept in memory, of which the second walk finds a part only.
#[test]
fn a_second_walk_that_breaks_off_says_so() {
    const PAGES: usize = 70;
    let begun = AtomicUsize::new(0);
    let raw = Raw::start(move |asked| {
        if asked.method() == "POST" {
            return xml("200 OK", &format!("<DeleteResult>{}</DeleteResult>", gone(&named(asked))));
        }
        let at = token(asked).unwrap_or(0);
        // It knows tokens alone, so that a listing goes on page after page.
        let begins = at == 0 && !asked.target().contains("start-after");
        let walk =
            if begins { begun.fetch_add(1, Ordering::SeqCst) } else { begun.load(Ordering::SeqCst) - 1 };
        if walk > 0 && at == PAGES / 2 {
            return xml("403 Forbidden", "<Error><Code>AccessDenied</Code><Message>m</Message></Error>");
        }
        let keys: Vec<String> = (0..1_000).map(|key| format!("d/{:06}", at * 1_000 + key)).collect();
        page(&keys, (at + 1 < PAGES).then(|| (at + 1).to_string()).as_deref())
    });
    let up = tree(&[("a", "1")]);
    let ended = run(&mut at(&raw.url(""), &["sync", &up.at(""), "s3://bucket/d", "--delete", "--size-only"]));
    assert_eq!(ended.code, Some(3), "{}", ended.stderr);
    assert!(ended.text().contains("35,000 deleted, 35,000 extra"), "{}{}", ended.text(), ended.stderr);
}
