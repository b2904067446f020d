//! What is found by itself, remembered, forgotten, and said of it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use flatout_server::{Options, Origin, Store};

use crate::folder::Folder;
use crate::objects::synthetic;
use crate::program::{flatout, run};

const MIB: u64 = 1 << 20;

/// With a cache folder of its own.
fn at(cache: &Path, arguments: &[&str]) -> Command {
    let mut command = flatout(arguments);
    command.env("XDG_CACHE_HOME", cache);
    command
}

/// An object that takes six seconds, whoever asks: time to look whether what is remembered holds.
fn slow() -> Origin {
    let store = Store::Synthetic(vec![("demo".into(), "object".into(), 96 * MIB)], vec![]);
    let total = Some((16 * MIB).into());
    Origin::start(Options { total, ..Options::new(store) }).expect("an origin on a free port")
}

#[test]
fn what_a_run_found_is_kept_used_and_forgotten() {
    let (cache, target) = (Folder::new(), Folder::new());
    let origin = slow();
    let source = format!("{}/demo/object", origin.url());
    let file = cache.path().join("flatout/pace");
    fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    let an_hour_ago =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs() - 3_600;
    let known = |origin: &str, parallel: u32| {
        format!("read {origin} parallel={parallel} connection=12000000 part=1048576 when={an_hour_ago}")
    };
    let lines = format!("flatout pace 1\n{}\n{}\n", known(&origin.url(), 4), known("http://elsewhere:1", 7));
    fs::write(&file, lines).expect("a file");
    // On a machine that is busy with other things one run may see too little to say anything.
    let is_found = (0..5).any(|_| {
        let copied = run(&mut at(cache.path(), &["cp", &source, &target.at("copy"), "--json"])).clean();
        let summary = copied.events().pop().expect("a summary");
        let limited = &summary["limited_by"];
        assert!(limited["by"].is_string() && limited["says"].is_string(), "{summary}");
        let kept = fs::read_to_string(&file).expect("what was found");
        assert!(kept.contains(&known("http://elsewhere:1", 7)), "what was known of others stays: {kept}");
        let of_it = kept.lines().find(|line| line.contains(&origin.url())).expect("what was found");
        assert!(!of_it.contains("demo"), "{of_it}");
        !of_it.contains(&format!("when={an_hour_ago}"))
    });
    assert!(is_found, "five runs found nothing");

    // Parts begin as long as they were; where nothing is known the first one has 6 MiB or more.
    let small = synthetic(12 * MIB);
    let source = format!("{}/demo/object", small.url());
    let bench = ["bench", "get", &source, "--repeat", "1", "--json"];
    let figure = |command: &mut Command, name: &str| {
        run(command).clean().events()[0][name].as_u64().expect("a figure")
    };
    let parts = |command: &mut Command| figure(command, "parts");
    assert!(parts(&mut at(cache.path(), &bench)) <= 7);
    fs::write(&file, format!("flatout pace 1\n{}\n", known(&small.url(), 4))).expect("a file");
    assert!(parts(&mut at(cache.path(), &bench)) > 7);
    let fixed = [&bench[..], &["--parallel", "2"]].concat();
    assert_eq!(figure(&mut at(cache.path(), &fixed), "connections"), 2, "what is fixed is fixed");

    let forgotten = run(&mut at(cache.path(), &["doctor", "--forget"])).clean();
    assert_eq!(forgotten.text(), format!("forgotten: {}\n", file.display()));
    assert!(!file.exists());
    let again = run(&mut at(cache.path(), &["doctor", "--forget"])).clean();
    assert_eq!(again.text(), "nothing was remembered\n");
    let json = run(&mut at(cache.path(), &["doctor", "--forget", "--json"])).clean().events();
    assert_eq!((json[0]["event"].as_str(), json[0]["path"].is_null()), (Some("forgotten"), true));
    run(&mut at(cache.path(), &["doctor", "--forget", &source])).refused(4, &["--forget"]);
}

#[test]
fn a_cache_that_cannot_be_used_is_none() {
    let (cache, target) = (Folder::new(), Folder::new());
    let origin = synthetic(3 * MIB);
    let source = format!("{}/demo/object", origin.url());
    let file = cache.path().join("flatout/pace");
    fs::create_dir_all(&file).expect("a folder in the place of the file");
    run(&mut at(cache.path(), &["cp", &source, &target.at("one")])).clean();
    fs::remove_dir(&file).expect("it is empty");
    fs::write(&file, [0xff, 0x00, b'\n']).expect("nonsense");
    run(&mut at(cache.path(), &["cp", &source, &target.at("two")])).clean();
    run(&mut at(Path::new("/proc/none"), &["cp", &source, &target.at("three")])).clean();
}

#[test]
fn a_bench_says_when_it_was_at_its_speed_and_what_limits_it() {
    let origin = slow();
    let source = format!("{}/demo/object", origin.url());
    let event =
        run(&mut flatout(&["bench", "get", &source, "--repeat", "1", "--json"])).clean().events().remove(0);
    let plateau_s = event["plateau_s"].as_f64().expect("a figure");
    assert!((0.0..event["seconds"].as_f64().expect("a figure")).contains(&plateau_s), "{event}");
    assert!(event["limited_by"]["by"].is_string(), "{event}");
    let shown = run(&mut flatout(&["bench", "get", &source, "--repeat", "1", "--parallel", "4"])).clean();
    let last = shown.text().lines().next_back().expect("a line");
    assert!(last.starts_with("90 % of the plateau ") && last.contains("; limited by "), "{last}");
}

#[test]
fn a_bandwidth_is_kept() {
    let (origin, target) = (synthetic(6 * MIB), Folder::new());
    let source = format!("{}/demo/object", origin.url());
    let arguments = ["cp", &source, &target.at("copy"), "--bandwidth", "4MiB/s", "--json"];
    let summary = run(&mut flatout(&arguments)).clean().events().pop().expect("a summary");
    let seconds = summary["seconds"].as_f64().expect("a figure");
    assert!(seconds > 1.3, "6 MiB came in {seconds} s");
    assert_eq!(summary["limited_by"]["by"], "bandwidth", "{summary}");
}
