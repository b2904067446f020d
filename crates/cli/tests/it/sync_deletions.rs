//! `flatout sync --delete`, where it deleted too much, too little, or did not say so.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::cloud::{Cloud, Fault, now_s};
use crate::folder::files;
use crate::program::{Ended, run};
use crate::raw::Raw;
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

/// More extra names than are kept in memory, of which the second walk finds a part only.
#[test]
fn a_second_walk_that_breaks_off_says_so() {
    const PAGES: usize = 70;
    let begun = AtomicUsize::new(0);
    let raw = Raw::start(move |asked| {
        if asked.method() == "POST" {
            return xml("200 OK", &format!("<DeleteResult>{}</DeleteResult>", gone(&named(asked))));
        }
        let number = |name: &str| {
            let value = asked.target().split(['?', '&']).find_map(|pair| pair.strip_prefix(name))?;
            value.trim_start_matches("%2F").parse::<usize>().ok()
        };
        let at = number("continuation-token=").unwrap_or(0);
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
