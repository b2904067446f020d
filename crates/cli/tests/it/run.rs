//! `flatout run`: lines of commands by one engine; what is said, what is done, and what of it fails.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::folder::Folder;
use crate::objects::{Buckets, bytes};
use crate::program::{Ended, ended, flatout, run, signal, wait_until};

/// The program with this origin in both dialects.
fn at(buckets: &Buckets, arguments: &[&str]) -> Command {
    let url = buckets.url();
    let more = ["--endpoint-url", &url, "--oss-endpoint", &url, "--no-sign-request"];
    flatout(&[arguments, &more].concat())
}

/// Runs lines from a file.
fn lines(buckets: &Buckets, folder: &Folder, text: &str, more: &[&str]) -> Ended {
    let file = folder.at("commands.txt");
    fs::write(&file, text).unwrap();
    run(&mut at(buckets, &[&["run", &file], more].concat()))
}

fn stored(buckets: &Buckets, name: &str) -> Option<Vec<u8>> {
    fs::read(buckets.root().join(name)).ok()
}

#[test]
fn lines_of_a_file_are_carried_out() {
    for scheme in ["s3", "oss"] {
        let big = bytes(20 << 20);
        let buckets = Buckets::new(&[
            ("bkt/a b", b"one"),
            ("bkt/f1.txt", b"two"),
            ("bkt/f2.txt", b"three"),
            ("bkt/moved", b"four"),
            ("bkt/gone", b"five"),
            ("bkt/empty", b""),
            ("bkt/big", &big),
        ]);
        let folder = Folder::new();
        let (up, into) = (folder.at("up"), folder.at("into"));
        fs::write(&up, b"sent").unwrap();
        fs::create_dir(&into).unwrap();
        let text = format!(
            "# what is to be done\n\
             cp '{scheme}://bkt/a b' {into}/\n\
             \n\
             \tflatout cp \"{scheme}://bkt/f*.txt\" {into}/globs # both\r\n\
             s5cmd mv {scheme}://bkt/moved {scheme}://bkt/there\n\
             cp {up} {scheme}://bkt/up\n\
             cp {scheme}://bkt/empty {into}/\n\
             cp {scheme}://bkt/big {into}/\n\
             rm {scheme}://bkt/gone\n\
             ls {scheme}://bkt/empty"
        );
        let said = lines(&buckets, &folder, &text, &[]).clean();
        for (name, content) in [
            ("a b", &b"one"[..]),
            ("globs/f1.txt", b"two"),
            ("globs/f2.txt", b"three"),
            ("empty", b""),
            ("big", &big),
        ] {
            assert!(fs::read(format!("{into}/{name}")).unwrap() == content, "{name}");
        }
        assert_eq!(stored(&buckets, "bkt/there").as_deref(), Some(&b"four"[..]));
        assert_eq!(stored(&buckets, "bkt/up").as_deref(), Some(&b"sent"[..]));
        assert_eq!((stored(&buckets, "bkt/moved"), stored(&buckets, "bkt/gone")), (None, None));
        assert!(said.text().contains(&format!("deleted {scheme}://bkt/gone\n")), "{}", said.text());
        let last = said.text().lines().last().unwrap();
        assert!(last.starts_with("8 lines: 8 ok, in "), "{last}");
    }
}

#[test]
fn failures_are_named_by_line_and_stop_no_other() {
    let (buckets, folder) = (Buckets::new(&[("bkt/k", b"one")]), Folder::new());
    let into = folder.at("into");
    let text = format!(
        "cp s3://bkt/none {into}\n\
         cpp a b\n\
         cp 's3://bkt/k {into}\n\
         # a comment\n\
         cp s3://bkt/k {into} --frobnicate\n\
         mount s3://bkt /mnt\n\
         run other.txt\n\
         cat s3://bkt/k\n\
         pipe s3://bkt/k\n\
         cp s3://bkt/k -\n\
         rb s3://bkt --force\n\
         cp --help\n\
         cp s3://bkt/k {into}\n"
    );
    let said = lines(&buckets, &folder, &text, &["--quiet"]);
    assert_eq!(said.code, Some(4), "the worst: {}", said.stderr);
    for part in [
        "flatout: error: line 1: read: s3://bkt/none: no such object",
        "flatout: error: line 2: command line: there is no command 'cpp'\n  hint: did you mean 'pipe' or 'cp'?",
        "flatout: error: line 3: run: a quote is not closed, or a backslash ends the line",
        "flatout: error: line 5: command line: there is no flag '--frobnicate' here",
        "flatout: error: line 6: run: this command is not for a line",
        "flatout: error: line 7: run: this command is not for a line",
        "flatout: error: line 8: run: cat: standard output has what the lines say",
        "flatout: error: line 9: run: pipe: a line has no standard input",
        "flatout: error: line 10: run: cp: standard output has what the lines say",
        "flatout: error: line 11: run: rb --force asks first",
        "flatout: error: line 12: run: help is not for a line",
    ] {
        assert!(said.stderr.contains(part), "{part:?} is missing in {}", said.stderr);
    }
    assert_eq!(said.stderr.matches("flatout: error: ").count(), 11, "{}", said.stderr);
    assert_eq!(fs::read(&into).unwrap(), b"one");
    assert_eq!(said.text(), "");
    let events = lines(&buckets, &folder, &text, &["--json"]).events();
    let of = |line: u64| events.iter().filter(move |event| event["line"] == line);
    assert!(of(1).any(|event| event["event"] == "error" && event["kind"] == "not_found"), "{events:?}");
    assert!(of(13).any(|event| event["event"] == "object" && event["status"] == "ok"), "{events:?}");
    let summary = events.last().unwrap();
    assert_eq!(
        [&summary["action"], &summary["lines"], &summary["ok"], &summary["failed"], &summary["bytes"]],
        [&serde_json::json!("run"), &12.into(), &1.into(), &11.into(), &3.into()]
    );
    assert_eq!((&summary["exit"], &summary["not_run"], summary.get("line")), (&4.into(), &0.into(), None));
}

#[test]
fn the_first_failure_stops_the_rest_where_that_is_wanted() {
    let (buckets, folder) = (Buckets::new(&[("bkt/k", b"one")]), Folder::new());
    let into = folder.at("into");
    let text =
        format!("stat s3://bkt/k\nrm s3://bkt/none\n# and then\ncp s3://bkt/k {into}\nrm s3://bkt/k\n\n");
    let said = lines(&buckets, &folder, &text, &["--stop-on-error", "--jobs", "1"]);
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("line 2: delete: s3://bkt/none: no such object"), "{}", said.stderr);
    assert!(said.stderr.contains("stopped by the first failure: 2 lines were not run"), "{}", said.stderr);
    assert!(stored(&buckets, "bkt/k").is_some() && fs::read(&into).is_err());
    let last = lines(&buckets, &folder, "rm s3://bkt/none", &["--stop-on-error"]);
    assert_eq!(last.stderr.matches("flatout: error: ").count(), 1, "{}", last.stderr);
}

/// What s5cmd's own test of it does, and what changes buckets.
#[test]
fn a_dry_run_changes_nothing() {
    let (buckets, folder) =
        (Buckets::new(&[("bkt/c", b"c"), ("bkt/m", b"m"), ("bkt/r", b"r")]), Folder::new());
    let text =
        "cp s3://bkt/c s3://bkt/cc\nmv s3://bkt/m s3://bkt/mm\nrm s3://bkt/r\nmb s3://new\nstat s3://bkt/c\n";
    let said = lines(&buckets, &folder, text, &["--dry-run"]).clean();
    for part in [
        "would copy s3://bkt/c -> s3://bkt/cc\n",
        "would copy s3://bkt/m -> s3://bkt/mm\n",
        "would delete s3://bkt/r\n",
        "would run mb s3://new\n",
    ] {
        assert!(said.text().contains(part), "{part:?} is missing in {}", said.text());
    }
    for (name, is_there) in
        [("bkt/c", true), ("bkt/m", true), ("bkt/r", true), ("bkt/cc", false), ("bkt/mm", false)]
    {
        assert_eq!(stored(&buckets, name).is_some(), is_there, "{name}");
    }
    assert!(!buckets.root().join("new").exists());
}

#[test]
fn a_thousand_lines_come_from_standard_input() {
    let names: Vec<String> = (0..1_000).map(|number| format!("bkt/{number:04}")).collect();
    let objects: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
    let (buckets, folder) = (Buckets::new(&objects), Folder::new());
    let into = folder.at("into");
    fs::create_dir(&into).unwrap();
    // What a killed run has left in the folder goes, as `cp -r` has it.
    let left = format!("{into}/.x.flatout-f3b2ae4a53e0dbd2-3");
    fs::write(&left, b"").unwrap();
    for from in [&["run"][..], &["run", "-"], &["run", "--jobs", "3"]] {
        let mut command = at(&buckets, from);
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        for name in &names {
            writeln!(input, "cp s3://{name} {into}/").unwrap();
        }
        drop(input);
        let said = ended(child.wait_with_output().unwrap()).clean();
        assert_eq!(said.text().lines().count(), 1_001, "each line is whole");
        assert!(said.text().contains("1,000 lines: 1,000 ok, in "), "{}", said.text());
        for name in &names {
            let file = format!("{into}/{}", &name[4..]);
            assert_eq!(fs::read(&file).unwrap(), name.as_bytes());
            fs::remove_file(file).unwrap();
        }
    }
}

#[test]
fn lines_that_write_one_target_leave_it_whole() {
    let (buckets, folder) =
        (Buckets::new(&[("bkt/x", &[b'x'; 70_000]), ("bkt/y", &[b'y'; 70_000])]), Folder::new());
    let into = folder.at("into");
    let text = format!("cp s3://bkt/x {into}\ncp s3://bkt/y {into}\n").repeat(50);
    lines(&buckets, &folder, &text, &[]).clean();
    let found = fs::read(&into).unwrap();
    assert!(found == [b'x'; 70_000] || found == [b'y'; 70_000]);
    assert_eq!(folder.names(), ["commands.txt", "into", "model"]);
}

/// Each is asked for whole first, as small ones are; one that is long is then fetched in parts.
#[test]
fn long_objects_among_short_ones_come_in_parts() {
    let big = bytes(40 << 20);
    let (buckets, folder) = (Buckets::new(&[("bkt/big", &big), ("bkt/small", b"s")]), Folder::new());
    let into = folder.at("into");
    let text = format!(
        "cp s3://bkt/big {into}/1\ncp s3://bkt/small {into}/2\ncp s3://bkt/big {into}/3\ncp s3://bkt/big {into}/4\n"
    );
    fs::create_dir(&into).unwrap();
    let events =
        lines(&buckets, &folder, &text, &["--jobs", "1", "--json", "--part-size", "8MiB"]).clean().events();
    for (name, content) in [("1", &big[..]), ("2", b"s"), ("3", &big), ("4", &big)] {
        assert!(fs::read(format!("{into}/{name}")).unwrap() == content, "{name}");
    }
    let objects: Vec<_> = events.iter().filter(|event| event["event"] == "object").collect();
    assert_eq!(objects.len(), 4);
    for object in objects {
        let fetched = object["fetched"].as_u64().unwrap();
        assert_eq!(fetched, object["bytes"].as_u64().unwrap(), "nothing is fetched twice: {object}");
    }
}

/// One engine serves all lines with the same flags; others have their own.
#[test]
fn lines_may_have_another_origin() {
    let (one, other) = (Buckets::new(&[("bkt/k", b"one")]), Buckets::new(&[("bkt/k", b"other")]));
    let folder = Folder::new();
    let into = folder.at("into");
    let url = other.url();
    let text = format!(
        "cp s3://bkt/k {into}/1\ncp s3://bkt/k {into}/2 --endpoint-url {url}\n\
         cp s3://bkt/k {into}/3 --endpoint-url {url}\ncp s3://bkt/k {into}/4 --part-size 1\n"
    );
    fs::create_dir(&into).unwrap();
    let said = lines(&one, &folder, &text, &[]);
    assert_eq!(said.code, Some(4), "{}", said.stderr);
    assert!(said.stderr.contains("line 4: settings: --part-size"), "{}", said.stderr);
    for (name, content) in [("1", "one"), ("2", "other"), ("3", "other")] {
        assert_eq!(fs::read_to_string(format!("{into}/{name}")).unwrap(), content);
    }
}

#[test]
fn what_cannot_be_read_is_said() {
    let (buckets, folder) = (Buckets::new(&[]), Folder::new());
    let (missing, here) = (folder.at("missing.txt"), folder.at(""));
    run(&mut at(&buckets, &["run", &missing])).refused(1, &["run: ", "missing.txt: No such file"]);
    run(&mut at(&buckets, &["run", &here])).refused(4, &["is a folder"]);
    run(&mut at(&buckets, &["run", &missing, "--jobs", "0"])).refused(4, &["--jobs"]);
    let empty = lines(&buckets, &folder, "# nothing\n\n", &[]).clean();
    assert!(empty.text().starts_with("0 lines: 0 ok, in "), "{}", empty.text());
    let odd = folder.at("odd.txt");
    fs::write(&odd, b"ls\0s3://bkt\nrm s3://bkt/\xff\n").unwrap();
    let said = run(&mut at(&buckets, &["run", &odd]));
    assert!(
        said.stderr.contains("line 2: run: ") && said.stderr.contains("it is not UTF-8"),
        "{}",
        said.stderr
    );
    assert_eq!(said.code, Some(4));
}

/// The lines that run are broken off, the others are not begun, and a pipe that never ends is not waited for.
#[test]
fn ctrl_c_says_what_was_not_done() {
    let (buckets, folder) = (Buckets::new(&[("bkt/k", b"one")]), Folder::new());
    let into = folder.at("into");
    let mut command = at(&buckets, &["run"]);
    let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = streams.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    writeln!(input, "cp s3://bkt/k {into}").unwrap();
    input.flush().unwrap();
    wait_until("the first line", || fs::read(&into).is_ok());
    signal("INT", child.id());
    let said = ended(child.wait_with_output().unwrap());
    drop(input);
    assert_eq!(said.code, Some(130), "{}", said.stderr);
    let what = "run: standard input: interrupted: 1 line done, 0 lines were broken off";
    assert!(said.stderr.contains(what), "{}", said.stderr);
}

#[test]
fn a_reader_that_has_gone_stops_no_line() {
    let (buckets, folder) = (Buckets::new(&[("bkt/k", b"one")]), Folder::new());
    let (file, into) = (folder.at("commands.txt"), folder.at("into"));
    let text: String = (0..200).map(|number| format!("cp s3://bkt/k {into}/{number}\n")).collect();
    fs::create_dir(&into).unwrap();
    fs::write(&file, text).unwrap();
    let url = buckets.url();
    let line = "\"$0\" run \"$1\" --endpoint-url \"$2\" --no-sign-request --jobs 2 | true";
    run(&mut crate::program::shell(line, &[&file, &url])).clean();
    wait_until("all lines", || fs::read_dir(&into).unwrap().count() == 200);
    let line = "\"$0\" run \"$1\" --endpoint-url \"$2\" --no-sign-request > /dev/full";
    let full = run(&mut crate::program::shell(line, &[&file, &url]));
    assert_eq!(full.code, Some(2), "{}", full.stderr);
    assert!(full.stderr.contains("cannot report what is done"), "{}", full.stderr);
}

/// A line has no shell that would expand them.
#[test]
fn patterns_of_files_are_uploaded() {
    let (buckets, folder) = (Buckets::new(&[("bkt/k", b"")]), Folder::new());
    for name in ["d/a.gz", "d/b.gz", "d/c.txt", "d/e/f.gz", "d/e/g.txt", "[x]", "d/é.gz"] {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let at = |name: &str| folder.at(name);
    let text = format!(
        "cp '{}' s3://bkt/one\ncp '{}' s3://bkt/all/\ncp {} s3://bkt/own\ncp '{}' s3://bkt/none/\ncp '{}' s3://bkt/{{\n",
        at("d/*.gz"),
        at("d/**.gz"),
        at("[x]"),
        at("d/*.zst"),
        at("d/[a"),
    );
    let said = lines(&buckets, &folder, &text, &["--quiet"]);
    assert_eq!(said.code, Some(4), "{}", said.stderr);
    for part in ["line 4: cp: ", "there is no file to copy", "line 5: read: "] {
        assert!(said.stderr.contains(part), "{part:?} is missing in {}", said.stderr);
    }
    let found = run(&mut self::at(&buckets, &["ls", "-r", "s3://bkt"])).clean();
    let keys: Vec<&str> = found.text().lines().map(|line| line.rsplit(' ').next().unwrap()).collect();
    let found: Vec<&str> = keys.iter().map(|key| key.trim_start_matches("s3://bkt/")).collect();
    assert_eq!(
        found,
        ["all/a.gz", "all/b.gz", "all/e/f.gz", "all/é.gz", "k", "one/a.gz", "one/b.gz", "one/é.gz", "own"]
    );
}
