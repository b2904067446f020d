//! `flatout bench sweep`: its table, its events, its page, and what is left of it when it does not end well.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::folder::Folder;
use crate::objects::{Buckets, bytes, synthetic};
use crate::program::{Ended, ended, flatout, run, signal, wait_until};
use crate::raw::{Answer, Raw, Then, right};

const BYTES: u64 = (3 << 20) + 5;
const LISTS: [&str; 4] = ["--parallel", "1,4", "--part-size", "512KiB,1MiB"];
const COMBINATIONS: [(u64, u64); 4] = [(1, 512 << 10), (1, 1 << 20), (4, 512 << 10), (4, 1 << 20)];

/// The data of a page.
#[track_caller]
fn data(page: &str) -> Value {
    let html = fs::read_to_string(page).unwrap();
    let opening = r#"<script id="data" type="application/json">"#;
    let (_, rest) = html.split_once(opening).expect("a data element");
    let (json, _) = rest.split_once("</script>").expect("its end");
    serde_json::from_str(json).unwrap_or_else(|wrong| panic!("{wrong}: {json}"))
}

fn combination(of: &Value) -> (u64, u64) {
    (of["parallel"].as_u64().unwrap(), of["part_bytes"].as_u64().unwrap())
}

#[test]
fn the_table_has_a_row_for_each_combination_and_names_the_fastest() {
    let origin = synthetic(BYTES);
    let source = format!("{}/demo/object", origin.url());
    let shown = run(&mut flatout(&[&["bench", "sweep", &source], &LISTS[..]].concat())).clean();
    let lines: Vec<&str> = shown.text().lines().collect();
    assert!(lines[0].contains("4 combinations, 3 times each") && lines[0].contains(&source), "{}", lines[0]);
    assert!(lines[1].starts_with("concurrency  part size  peak Gbit/s"), "{}", lines[1]);
    for (line, names) in lines[2..6].iter().zip(["1 512KiB", "1 1MiB", "4 512KiB", "4 1MiB"]) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2].join(" "), names, "{line}");
        assert!(words.len() == 7 && words[2..].iter().all(|word| word.parse::<f64>().is_ok()), "{line}");
    }
    let fastest = lines[6].strip_prefix("fastest: ").expect("the flags to type");
    let flags: Vec<&str> = fastest.split(' ').collect();
    // They are what one types.
    run(&mut flatout(&[&["bench", "get", &source, "--repeat", "1"], &flags[..]].concat())).clean();
    assert!(lines.len() <= 8, "{}", shown.text());
}

#[test]
fn an_event_for_each_run_and_for_each_combination() {
    let origin = synthetic(BYTES);
    let url = origin.url();
    let source = ["bench", "sweep", "s3://demo/object", "--endpoint-url", &url, "--no-sign-request"];
    let arguments = [&source[..], &["--repeat", "2", "--landing", "memory", "--json"]].concat();
    let events = run(&mut flatout(&[&arguments[..], &LISTS].concat())).clean().events();
    let (runs, combinations) = events.split_at(8);
    for event in runs {
        assert_eq!((&event["event"], &event["op"]), (&json!("bench"), &json!("sweep")));
        assert_eq!((&event["landing"], &event["bytes"]), (&json!("memory"), &json!(BYTES)));
        assert_eq!(event["verified"], "crc64nvme");
    }
    // In the second round another one begins.
    let order: Vec<_> = runs.iter().map(combination).collect();
    assert_eq!(order[..4], COMBINATIONS);
    assert_eq!(order[4..], [COMBINATIONS[2], COMBINATIONS[3], COMBINATIONS[0], COMBINATIONS[1]]);
    assert!(runs.iter().zip([1, 1, 1, 1, 2, 2, 2, 2]).all(|(event, run)| event["run"] == run));
    assert_eq!(combinations.iter().map(combination).collect::<Vec<_>>(), COMBINATIONS);
    for event in combinations {
        assert_eq!(
            (&event["event"], &event["status"], &event["runs"]),
            (&json!("combination"), &json!("ok"), &json!(2))
        );
        for field in ["seconds", "gib_per_s", "gbit_avg", "gbit_peak", "peak_rss_mib"] {
            assert!(event[field].as_f64().is_some_and(|figure| figure > 0.0), "{field}: {event}");
        }
    }
    let fastest = combinations.iter().filter(|event| event["fastest"] == true).collect::<Vec<_>>();
    let least = combinations.iter().map(|event| event["seconds"].as_f64().unwrap()).fold(f64::MAX, f64::min);
    assert!(fastest.len() == 1 && fastest[0]["seconds"] == least, "{combinations:?}");
}

#[test]
fn without_lists_it_goes_through_sensible_ones() {
    let origin = synthetic(1000);
    let source = format!("{}/demo/object", origin.url());
    let events = run(&mut flatout(&["bench", "sweep", &source, "--repeat", "1", "--json"])).clean().events();
    let events: Vec<_> =
        events.iter().filter(|event| event["event"] == "combination").map(combination).collect();
    assert_eq!(events.len(), 9, "{events:?}");
    assert!(
        events.iter().all(|(parallel, part_bytes)| *parallel >= 4 && *part_bytes >= 2 << 20),
        "{events:?}"
    );
}

#[test]
fn help_says_what_it_takes_in_place_of_one_value() {
    let help = run(&mut flatout(&["bench", "sweep", "--help"])).clean();
    for says in
        ["--parallel <N,...>", "--part-size <SIZE,...>", "--report <FILE>", "--endpoint-url", "Examples:"]
    {
        assert!(help.text().contains(says), "{says}");
    }
    // What it goes through comes from the command line alone.
    assert!(!help.text().contains("FLATOUT_PARALLEL") && help.text().contains("FLATOUT_SHARDS"));
    let all = run(&mut flatout(&["bench", "--help"])).clean();
    assert!(all.text().contains("sweep") && !all.text().contains("peer"), "{}", all.text());
    let get = run(&mut flatout(&["bench", "get", "s3://b/k", "--parallel", "4,8"]));
    get.refused(4, &["--parallel", "'4,8'"]);
}

#[test]
fn the_page_holds_every_combination_and_the_course_of_its_median_run() {
    let origin = synthetic(BYTES);
    let folder = Folder::new();
    let (source, page) = (format!("{}/demo/object", origin.url()), folder.at("model"));
    // What stood there is replaced.
    let arguments = ["bench", "sweep", &source, "--report", &page, "--landing", "stream"];
    let shown = run(&mut flatout(&[&arguments, &LISTS[..]].concat())).clean();
    assert!(shown.text().ends_with(&format!("report: {page}\n")), "{}", shown.text());
    assert_eq!(folder.names(), ["model"]);
    let data = data(&page);
    assert_eq!(
        (&data["schema"], &data["kind"], &data["source"]),
        (&json!(1), &json!("sweep"), &json!(source))
    );
    assert_eq!((&data["object_bytes"], &data["landing"]), (&json!(BYTES), &json!("stream")));
    let command = format!(
        "flatout bench sweep {source} --parallel 1,4 --part-size 512KiB,1MiB --landing stream --repeat 3"
    );
    assert_eq!(data["command"], command);
    assert!(data["started"].as_str().unwrap().ends_with('Z') && data["version"].is_string(), "{data}");
    assert!(data["machine"]["cores"].as_u64() > Some(0) && data["machine"]["kernel"].is_string(), "{data}");
    check_fields(&data["machine"], &["cores", "cpu", "kernel", "memory_gib"]);
    check_fields(
        &data,
        &[
            "as_fast",
            "cells",
            "command",
            "fastest",
            "interrupted",
            "kind",
            "landing",
            "machine",
            "object_bytes",
            "repeat",
            "schema",
            "source",
            "started",
            "version",
        ],
    );
    assert_eq!((&data["repeat"], &data["interrupted"]), (&json!(3), &json!(false)));
    let cells = data["cells"].as_array().unwrap();
    assert_eq!(cells.iter().map(combination).collect::<Vec<_>>(), COMBINATIONS);
    for cell in cells {
        check_cell(cell);
    }
}

/// What the page and docs/json.md know, and nothing besides: a field that is renamed here would leave a page
/// of dashes.
#[track_caller]
fn check_fields(of: &Value, expected: &[&str]) {
    let fields: Vec<&str> = of.as_object().expect("an object").keys().map(String::as_str).collect();
    assert_eq!(fields, expected);
}

const MEDIANS: [&str; 6] = ["cpu_s_per_gib", "gbit_avg", "gbit_peak", "gib_per_s", "peak_rss_mib", "seconds"];

fn check_cell(cell: &Value) {
    check_fields(
        cell,
        &[
            "median_run",
            "medians",
            "parallel",
            "part_bytes",
            "parts",
            "parts_left_out",
            "reason",
            "runs",
            "samples",
            "state",
        ],
    );
    assert_eq!(
        (&cell["state"], &cell["reason"], &cell["parts_left_out"]),
        (&json!("ok"), &Value::Null, &json!(0))
    );
    check_fields(&cell["medians"], &MEDIANS);
    for run in cell["runs"].as_array().unwrap() {
        check_fields(
            run,
            &[
                "connections",
                "cpu_s_per_gib",
                "gbit_avg",
                "gbit_peak",
                "gib_per_s",
                "peak_rss_mib",
                "retries",
                "seconds",
            ],
        );
        assert!((1..=4).contains(&run["connections"].as_u64().unwrap()) && run["retries"] == 0, "{run}");
    }
    for figure in MEDIANS {
        let mut figures: Vec<f64> =
            cell["runs"].as_array().unwrap().iter().map(|run| run[figure].as_f64().expect(figure)).collect();
        figures.sort_by(f64::total_cmp);
        assert!(figures[0] >= 0.0 && cell["medians"][figure] == figures[1], "{figure}: {cell}");
    }
    for part in cell["parts"].as_array().unwrap() {
        check_fields(
            part,
            &["address", "attempts", "bytes", "connection", "end_s", "first_byte_s", "index", "start_s"],
        );
        let time = |name: &str| part[name].as_f64().expect(name);
        assert!(time("start_s") <= time("first_byte_s") && time("first_byte_s") <= time("end_s"), "{part}");
        assert!(part["attempts"] == 1 && part["address"].is_string() && part["index"].is_u64(), "{part}");
    }
    let (runs, parts) = (cell["runs"].as_array().unwrap(), cell["parts"].as_array().unwrap());
    let seconds = |run: &Value| run["seconds"].as_f64().unwrap();
    let mut all: Vec<f64> = runs.iter().map(seconds).collect();
    all.sort_by(f64::total_cmp);
    let median = seconds(&runs[cell["median_run"].as_u64().unwrap() as usize]);
    assert!(all.len() == 3 && median == all[1], "{cell}");
    assert_eq!(parts.len() as u64, BYTES.div_ceil(cell["part_bytes"].as_u64().unwrap()));
    assert_eq!(parts.iter().map(|part| part["bytes"].as_u64().unwrap()).sum::<u64>(), BYTES);
    assert!(parts.is_sorted_by_key(|part| part["start_s"].as_f64().unwrap()), "{cell}");
    let samples: Vec<(f64, u64)> = serde_json::from_value(cell["samples"].clone()).unwrap();
    assert!(samples.len() >= 2 && samples.is_sorted() && samples[0] == (0.0, 0), "{cell}");
    let (end, landed) = samples[samples.len() - 1];
    assert!(landed == BYTES && (end - median).abs() < 1e-5, "{cell}");
}

/// Of two runs the page took the quicker one, and the table their mean.
#[test]
fn table_events_and_page_name_the_same_fastest() {
    let origin = synthetic(BYTES);
    let source = format!("{}/demo/object", origin.url());
    let folder = Folder::new();
    for more in [&["--json"][..], &[]] {
        let page = folder.at("page.html");
        let arguments = ["bench", "sweep", &source, "--report", &page, "--repeat", "2"];
        let shown = run(&mut flatout(&[&arguments, &LISTS[..], more].concat())).clean();
        let data = data(&page);
        let fastest = &data["fastest"];
        let cells = data["cells"].as_array().unwrap();
        let least = cells.iter().min_by(|one, other| seconds(one).total_cmp(&seconds(other))).unwrap();
        assert_eq!(combination(fastest), combination(least));
        for cell in cells {
            let runs: Vec<f64> =
                cell["runs"].as_array().unwrap().iter().map(|run| run["seconds"].as_f64().unwrap()).collect();
            assert!((seconds(cell) - (runs[0] + runs[1]) / 2.0).abs() < 1e-9, "{cell}");
        }
        let as_fast: Vec<_> = data["as_fast"].as_array().unwrap().iter().map(combination).collect();
        match more {
            [] => agrees_with_text(shown.text(), fastest, &as_fast),
            _ => agrees_with_events(&shown.events(), cells, fastest, &as_fast),
        }
    }
}

/// The median of a page's cell.
fn seconds(cell: &Value) -> f64 {
    cell["medians"]["seconds"].as_f64().unwrap()
}

#[track_caller]
fn agrees_with_text(text: &str, fastest: &Value, as_fast: &[(u64, u64)]) {
    let size = |bytes: u64| if bytes == 1 << 20 { "1MiB" } else { "512KiB" };
    let (parallel, part_bytes) = combination(fastest);
    let flags = format!("fastest: --parallel {parallel} --part-size {}\n", size(part_bytes));
    assert!(text.contains(&flags), "{text}lacks {flags}");
    let names: Vec<String> =
        as_fast.iter().map(|(parallel, part)| format!("{parallel} x {}", size(*part))).collect();
    let line = format!("as fast in some of their runs: {}\n", names.join(", "));
    assert_eq!(text.contains(&line), !names.is_empty(), "{text}{line}");
}

#[track_caller]
fn agrees_with_events(events: &[Value], cells: &[Value], fastest: &Value, as_fast: &[(u64, u64)]) {
    let events = events.iter().filter(|event| event["event"] == "combination");
    for (event, cell) in events.zip(cells) {
        assert_eq!(event["fastest"], combination(event) == combination(fastest), "{event}");
        assert_eq!(event["as_fast"], as_fast.contains(&combination(event)), "{event}");
        for figure in MEDIANS {
            assert_eq!(event[figure], cell["medians"][figure], "{figure}");
        }
    }
}

#[test]
fn a_page_holds_no_more_parts_than_it_can_show() {
    let origin = synthetic(4100 << 10);
    let folder = Folder::new();
    let (source, page) = (format!("{}/demo/object", origin.url()), folder.at("page.html"));
    let arguments = ["bench", "sweep", &source, "--report", &page, "--parallel", "2", "--part-size", "1KiB"];
    run(&mut flatout(&[&arguments, &["--repeat", "1"][..]].concat())).clean();
    let data = data(&page);
    let cell = &data["cells"][0];
    assert_eq!((cell["parts"].as_array().unwrap().len(), &cell["parts_left_out"]), (4000, &json!(100)));
    assert!(cell["samples"].as_array().unwrap().len() <= 500);
}

#[test]
fn a_hostile_key_stays_within_the_data() {
    let key = "</script><script>alert(1)</script><!-- '\"&\u{2028}";
    let object = bytes(1000);
    let buckets = Buckets::new(&[("bucket/plain", &object)]);
    // A key with slashes in it is a path below the root.
    let path = buckets.root().join("bucket").join(key);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, &object).unwrap();
    let folder = Folder::new();
    let (source, page, url) = (format!("s3://bucket/{key}"), folder.at("page.html"), buckets.url());
    let arguments =
        ["bench", "sweep", &source, "--endpoint-url", &url, "--no-sign-request", "--report", &page];
    run(&mut flatout(
        &[&arguments, &["--parallel", "1", "--part-size", "1MiB", "--repeat", "1"][..]].concat(),
    ))
    .clean();
    assert_eq!(data(&page)["source"], source);
    assert!(!fs::read_to_string(&page).unwrap().contains("<script>alert"));
}

#[test]
fn a_page_tells_no_secret() {
    let object = bytes(1000);
    let raw = Raw::start(move |asked| right(asked, &object, "\"one\""));
    let folder = Folder::new();
    let page = folder.at("page.html");
    let host = raw.address;
    let source = format!(
        "http://user:PASSWORDPASSWORD@{host}/x?X-Amz-Signature=SIGNATURESIGNATURE&sig=SIGNATURESIGNATURE"
    );
    let proxy = ["--proxy", "http://user:PASSWORDPASSWORD@127.0.0.1:1", "--no-proxy", "*"];
    let one = ["--part-size", "1MiB", "--parallel", "1", "--repeat", "1"];
    let arguments = [&["bench", "sweep", &source, "--report", &page], &one[..], &proxy].concat();
    let shown = run(&mut flatout(&arguments)).clean();
    let html = fs::read_to_string(&page).unwrap();
    for secret in ["PASSWORDPASSWORD", "SIGNATURESIGNATURE"] {
        assert!(!html.contains(secret) && !shown.text().contains(secret), "{secret}");
    }
    let command = data(&page)["command"].as_str().unwrap().to_owned();
    assert!(
        command.contains("/x?") && command.contains("--proxy 'http://***@127.0.0.1:1' --no-proxy '*'"),
        "{command}"
    );
}

/// Refuses parts of 512 KiB.
fn picky(code: &'static str) -> Raw {
    let object = bytes(2 << 20);
    Raw::start(move |asked| match asked.range(2 << 20).len() {
        0x80000 => Answer::new(code, &[("Content-Length", "0")], b""),
        _ => right(asked, &object, "\"one\""),
    })
}

#[test]
fn a_combination_that_fails_stops_no_other() {
    let folder = Folder::new();
    let page = folder.at("page.html");
    let raw = picky("403 Forbidden");
    let source = raw.url("x");
    let arguments = [&["bench", "sweep", &source, "--report", &page, "--repeat", "2"], &LISTS[..]].concat();
    let shown = run(&mut flatout(&arguments));
    assert_eq!(shown.code, Some(5), "{}", shown.stderr);
    let rows: Vec<&str> = shown.text().lines().filter(|line| line.contains("failed: ")).collect();
    assert!(
        rows.len() == 2 && rows.iter().all(|row| row.contains("512KiB") && row.contains("403")),
        "{rows:?}"
    );
    assert!(shown.text().contains("fastest: --parallel") && shown.text().contains("--part-size 1MiB"));
    // Once each: what has failed is not tried again.
    let told: Vec<&str> =
        shown.stderr.lines().filter(|line| line.starts_with("flatout: error: sweep: ")).collect();
    assert!(
        told.len() == 2 && told[0].contains("sweep: 1 x 512KiB: ") && told[1].contains("4 x 512KiB"),
        "{told:?}"
    );
    let data = data(&page);
    for cell in data["cells"].as_array().unwrap() {
        let failed = cell["part_bytes"] == 512 << 10;
        assert_eq!(cell["state"], if failed { "failed" } else { "ok" });
        assert_eq!(cell["reason"].is_string() && cell["median_run"].is_null(), failed, "{cell}");
        assert_eq!(cell["medians"].is_null(), failed, "{cell}");
        assert_eq!(cell["runs"].as_array().unwrap().len(), if failed { 0 } else { 2 });
    }
}

#[test]
fn where_all_fail_there_is_no_fastest() {
    let raw = picky("404 Not Found");
    let source = raw.url("x");
    let arguments = ["bench", "sweep", &source, "--parallel", "1,2", "--part-size", "512KiB", "--json"];
    let ended = run(&mut flatout(&arguments));
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    let events = ended.events();
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["error", "error", "combination", "combination"]);
    assert!(events[2..].iter().all(|event| event["status"] == "failed" && event["reason"].is_string()));
    assert!(events[2..].iter().all(|event| event["fastest"] == false && event.get("seconds").is_none()));
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_runs() {
    let raw = Raw::start(|_| panic!("nothing is asked"));
    let source = raw.url("x");
    let folder = Folder::new();
    let file = format!("file:{}", folder.at("model"));
    let check = |more: &[&str], code: i32, says: &[&str]| {
        run(&mut flatout(&[&["bench", "sweep", &source], more].concat())).refused(code, says);
    };
    check(&["--part-size", "2MiB,100B"], 4, &["--part-size", "1KiB to 4GiB"]);
    check(&["--parallel", "4,x"], 4, &["--parallel", "'x'"]);
    check(&["--parallel", "4,,8"], 4, &["--parallel"]);
    check(&["--part-size", "32MiB", "--window", "8MiB"], 4, &["window"]);
    check(&["--landing", &file], 4, &["exists already"]);
    check(&["--repeat", "0"], 4, &["--repeat"]);
    check(&["--report", &folder.at("missing/page.html")], 1, &["missing/page.html"]);
    check(&["--report", folder.path().to_str().unwrap()], 4, &["is no file"]);
    check(&["--report", "/dev/null"], 4, &["is no file"]);
    folder.is_untouched();
}

#[test]
fn a_page_replaces_what_a_link_points_to() {
    let origin = synthetic(1000);
    let folder = Folder::new();
    let (source, link) = (format!("{}/demo/object", origin.url()), folder.at("link"));
    symlink(folder.at("model"), &link).unwrap();
    let one = ["--parallel", "1", "--part-size", "1MiB", "--repeat", "1"];
    run(&mut flatout(&[&["bench", "sweep", &source, "--report", &link], &one[..]].concat())).clean();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(data(&folder.at("model"))["kind"], "sweep");
    assert_eq!(fs::metadata(folder.at("model")).unwrap().permissions().mode() & 0o600, 0o600);
}

#[test]
fn a_page_keeps_its_mode_and_its_dangling_link() {
    let origin = synthetic(1000);
    let folder = Folder::new();
    let source = format!("{}/demo/object", origin.url());
    let one = ["--parallel", "1", "--part-size", "1MiB", "--repeat", "1"];
    let write = |page: &str| {
        let shown =
            run(&mut flatout(&[&["bench", "sweep", &source, "--report", page], &one[..]].concat())).clean();
        assert!(!shown.text().contains("small differences"), "nothing is compared");
    };
    fs::set_permissions(folder.at("model"), PermissionsExt::from_mode(0o600)).unwrap();
    write(&folder.at("model"));
    assert_eq!(fs::metadata(folder.at("model")).unwrap().permissions().mode() & 0o777, 0o600);
    symlink("page.html", folder.at("link")).unwrap();
    write(&folder.at("link"));
    assert!(fs::symlink_metadata(folder.at("link")).unwrap().is_symlink());
    assert_eq!(data(&folder.at("page.html"))["kind"], "sweep");
    symlink("round", folder.at("round")).unwrap();
    let round = folder.at("round");
    run(&mut flatout(&[&["bench", "sweep", &source, "--report", &round], &one[..]].concat()))
        .refused(1, &["/round"]);
}

#[test]
fn a_page_is_written_though_nobody_reads_the_events() {
    let raw = picky("403 Forbidden");
    let folder = Folder::new();
    let (source, page) = (raw.url("x"), folder.at("page.html"));
    for json in ["--json", "--quiet"] {
        let arguments = ["bench", "sweep", &source, "--report", &page, json];
        let mut command = flatout(&[&arguments, &LISTS[..]].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        drop(child.stdout.take());
        // The code is that of the measurement.
        assert_eq!(child.wait().unwrap().code(), Some(5), "{json}");
        assert_eq!(data(&page)["cells"].as_array().unwrap().len(), 4, "{json}");
        fs::remove_file(&page).unwrap();
    }
}

#[test]
fn one_run_each_is_said_to_prove_little() {
    let origin = synthetic(1000);
    let source = format!("{}/demo/object", origin.url());
    for (repeat, said) in [("1", true), ("2", false)] {
        let arguments = ["bench", "sweep", &source, "--repeat", repeat];
        let shown = run(&mut flatout(&[&arguments, &LISTS[..]].concat())).clean();
        assert_eq!(shown.text().contains("one run each: small differences mean nothing"), said, "{repeat}");
    }
}

#[test]
fn the_reason_of_a_failure_tells_no_secret() {
    let raw = picky("403 Forbidden");
    let folder = Folder::new();
    let page = folder.at("page.html");
    let source = format!("http://user:PASSWORDPASSWORD@{}/x?X-Amz-Signature=SIGNATURESIGNATURE", raw.address);
    let arguments = ["bench", "sweep", &source, "--report", &page, "--repeat", "1"];
    assert_eq!(run(&mut flatout(&[&arguments, &LISTS[..]].concat())).code, Some(5));
    let html = fs::read_to_string(&page).unwrap();
    assert!(data(&page)["cells"][0]["reason"].as_str().unwrap().contains("/x"), "{html}");
    assert!(!html.contains("PASSWORDPASSWORD") && !html.contains("SIGNATURESIGNATURE"));
}

/// A sweep into a file and a page, held up once so many requests have their answers, and then told by `tell`.
fn told(answered: usize, folder: &Folder, tell: impl Fn(u32)) -> Ended {
    let object = bytes(1 << 20);
    let silent = Arc::new(AtomicBool::new(false));
    let is_silent = silent.clone();
    let raw = Raw::start(move |asked| {
        let answer = right(asked, &object, "\"one\"");
        if asked.number < answered {
            return answer;
        }
        is_silent.store(true, Ordering::SeqCst);
        answer.then(Then::Silence)
    });
    let (source, landing) = (raw.url("x"), format!("file:{}", folder.at("measured")));
    let page = folder.at("page.html");
    let arguments = ["bench", "sweep", &source, "--landing", &landing, "--report", &page];
    let lists = ["--parallel", "1,2", "--part-size", "512KiB,256KiB"];
    let command = &mut flatout(&[&arguments, &lists[..]].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let sweep = command.spawn().unwrap();
    wait_until("a run that hangs", || silent.load(Ordering::SeqCst) && folder.names().len() >= 2);
    tell(sweep.id());
    // Standard error is closed only when the child has gone as well: it has it, too.
    ended(sweep.wait_with_output().unwrap())
}

/// As a terminal does it: to everyone at once.
fn control_c(leader: u32) {
    let kill = format!("kill -INT -{leader}");
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

#[test]
fn control_c_before_any_run_is_done_leaves_nothing() {
    let folder = Folder::new();
    let ended = told(1, &folder, control_c).refused(130, &["/x", "interrupted"]);
    assert!(!ended.text().contains("concurrency"), "{}", ended.text());
    folder.is_untouched();
}

#[test]
fn control_c_leaves_table_and_page_of_what_is_measured() {
    let folder = Folder::new();
    // The probe, and two parts of the first combination.
    let ended = told(4, &folder, control_c).refused(130, &["/x", "interrupted"]);
    let text = ended.text();
    for says in ["interrupted after 1 of 12 runs", "fastest: --parallel 1 --part-size 512KiB", "unmeasured"] {
        assert!(text.contains(says), "{text}lacks {says}");
    }
    assert_eq!(folder.names(), ["model", "page.html"]);
    let data = data(&folder.at("page.html"));
    assert_eq!((&data["interrupted"], &data["repeat"]), (&json!(true), &json!(3)));
    let states: Vec<&Value> = data["cells"].as_array().unwrap().iter().map(|cell| &cell["state"]).collect();
    assert_eq!(states, ["ok", "unmeasured", "unmeasured", "unmeasured"]);
    assert!(data["cells"][0]["medians"].is_object() && data["cells"][1]["medians"].is_null(), "{data}");
}

#[test]
fn a_second_signal_leaves_nothing_either() {
    let folder = Folder::new();
    let ended = told(1, &folder, |id| {
        signal("INT", id);
        let _ = Command::new("sh").args(["-c", &format!("kill -TERM {id} 2> /dev/null")]).status();
    });
    assert_eq!(ended.code, Some(130), "{}", ended.stderr);
    folder.is_untouched();
}
