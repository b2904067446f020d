//! `cargo xtask test`: runs the test programs side by side, because most of them wait most of the time.
//!
//! `cargo test` runs one program after the other. docs/decisions/tests-side-by-side.md has the
//! alternatives.

use std::collections::VecDeque;
use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use serde_json::Value;

pub const USAGE: &str = "\
cargo xtask test [--strict] [--jobs N] [--packages A,B] [--quick] [--longest MINUTES] [--also NAME=COMMAND]…
                        runs every program of tests, and those commands, side by side";

/// Built separately: they need other people's servers and clients.
const REAL: [&str; 2] = ["flatout-cli", "flatout-mount"];
/// A program that is as long as two others runs as two jobs: the tests whose names hold this, and the rest.
const SPLIT: [(&str, &str); 1] = [("flatout-cli it", "mounts::")];
/// The longest programs start first.
const LONGEST_FIRST: [&str; 10] = [
    "flatout-cli it",
    "flatout-cli it mounts",
    "python a-f",
    "python g-z",
    "flatout-cli real",
    "python torch",
    "flatout-engine leaks",
    "lab",
    "flatout-engine road",
    "flatout-mount it",
];
/// Left out by `--quick`, like those that need other programs.
const SLOW: [&str; 3] = ["flatout-cli it", "flatout-cli it mounts", "flatout-engine leaks"];
/// A program that takes longer hangs, unless `--longest` says otherwise.
const LONGEST_MINUTES: u64 = 20;
/// More tests than this that fail beside others and pass alone are no accident.
const UNSTEADY_MAX: usize = 3;
/// How often a suite was begun, by this process.
static RUNS: AtomicUsize = AtomicUsize::new(0);

/// The arguments of one run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// Do not repeat a failed test alone.
    strict: bool,
    jobs: Option<usize>,
    /// Only the programs of these crates.
    packages: Vec<String>,
    /// Skip programs that take minutes, or need other programs.
    quick: bool,
    longest_minutes: Option<u64>,
    /// Others than Rust's, by name.
    also: Vec<(String, String)>,
}

/// A test program, or a command.
#[derive(Debug)]
struct Job {
    name: String,
    command: Vec<String>,
    folder: PathBuf,
    /// Whether it accepts names of tests, as libtest does.
    is_rust: bool,
}

#[derive(Debug)]
struct Ran {
    job: Job,
    ended: Result<(), String>,
    log: PathBuf,
    took: Duration,
}

pub fn run(root: &Path, arguments: &[String]) -> Result<String, String> {
    let wanted = Wanted::parse(arguments)?;
    let mut jobs = built(root, &wanted)?;
    for (name, command) in &wanted.also {
        let command = ["bash", "-c", command].map(str::to_owned).to_vec();
        jobs.push(Job { name: name.clone(), command, folder: root.to_owned(), is_rust: false });
    }
    let longest = Duration::from_secs(60 * wanted.longest_minutes.unwrap_or(LONGEST_MINUTES));
    jobs.sort_by_key(|job| LONGEST_FIRST.iter().position(|name| *name == job.name).unwrap_or(usize::MAX));
    let logs = root.join("target/test-logs");
    fs::create_dir_all(&logs).map_err(|error| format!("{}: {error}", logs.display()))?;
    let began = Instant::now();
    let lanes = wanted.jobs.unwrap_or_else(|| 2 * thread::available_parallelism().map_or(1, usize::from));
    let ran = side_by_side(jobs, lanes, longest, &logs);
    verdict(&ran, &wanted, longest, &logs, began)
}

impl Wanted {
    fn parse(arguments: &[String]) -> Result<Wanted, String> {
        let mut wanted = Wanted::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value\n{USAGE}"));
            match argument.as_str() {
                "--strict" => wanted.strict = true,
                "--quick" => wanted.quick = true,
                "--jobs" => {
                    let jobs = value()?.parse().ok().filter(|jobs| *jobs > 0);
                    wanted.jobs = Some(jobs.ok_or("--jobs needs a number from 1 on")?);
                }
                "--longest" => {
                    let minutes = value()?.parse().ok().filter(|minutes| *minutes > 0);
                    wanted.longest_minutes =
                        Some(minutes.ok_or("--longest needs a number of minutes from 1 on")?);
                }
                "--packages" => wanted.packages.extend(value()?.split(',').map(str::to_owned)),
                "--also" => {
                    let (name, command) = value()?.split_once('=').ok_or("--also needs NAME=COMMAND")?;
                    wanted.also.push((name.to_owned(), command.to_owned()));
                }
                other => return Err(format!("unknown argument '{other}', write:\n{USAGE}")),
            }
        }
        Ok(wanted)
    }
}

/// Builds the tests; each test program is a job.
fn built(root: &Path, wanted: &Wanted) -> Result<Vec<Job>, String> {
    let names = |flag: &str| -> Vec<String> {
        wanted.packages.iter().flat_map(|package| [flag.to_owned(), package.clone()]).collect()
    };
    let mut all = if wanted.packages.is_empty() { vec!["--workspace".to_owned()] } else { names("-p") };
    // By itself cargo builds the examples, too, which `make check` looks at.
    let targets = wanted.quick.then(|| "--tests".to_owned());
    let mut jobs = build(root, &[&all[..], targets.as_slice()].concat())?;
    jobs.retain(|job| !wanted.quick || !SLOW.contains(&job.name.as_str()));
    if !wanted.quick {
        for package in REAL {
            if wanted.packages.is_empty() || wanted.packages.iter().any(|wanted| wanted == package) {
                jobs.extend(build(root, &["-p", package, "--test", "real"].map(str::to_owned))?);
            }
        }
    }
    if wanted.packages.is_empty() && !wanted.quick {
        all.extend(["--doc", "--quiet"].map(str::to_owned));
        let command = [vec!["cargo".to_owned(), "test".to_owned()], all].concat();
        jobs.push(Job { name: "doc tests".to_owned(), command, folder: root.to_owned(), is_rust: false });
    }
    Ok(jobs)
}

fn build(root: &Path, which: &[String]) -> Result<Vec<Job>, String> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["test", "--no-run", "--message-format=json-render-diagnostics"])
        .args(which)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo test --no-run: {error}"))?;
    if !output.status.success() {
        return Err("the tests do not build".to_owned());
    }
    Ok(String::from_utf8_lossy(&output.stdout).lines().filter_map(job).flat_map(Job::split).collect())
}

/// The test program that a line of cargo describes.
fn job(line: &str) -> Option<Job> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["profile"]["test"] != true {
        return None;
    }
    let executable = message["executable"].as_str()?.to_owned();
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    let package = message["package_id"].as_str()?.rsplit('/').next()?;
    // `…/cli#flatout-cli@0.1.0`, and `…/xtask#0.1.0` where the folder has the name.
    let (short, long) = package.split_once('#')?;
    let package = long.split_once('@').map_or(short, |(name, _)| name);
    let is_test = message["target"]["kind"].as_array()?.iter().any(|kind| kind == "test");
    let target = if is_test { message["target"]["name"].as_str()? } else { "units" };
    Some(Job { name: format!("{package} {target}"), command: vec![executable], folder, is_rust: true })
}

impl Job {
    /// [`SPLIT`].
    fn split(self) -> Vec<Job> {
        let Some((_, part)) = SPLIT.into_iter().find(|(name, _)| *name == self.name) else {
            return vec![self];
        };
        let job = |name: String, arguments: &[&str]| {
            let arguments = arguments.iter().map(|argument| (*argument).to_owned());
            let command = self.command.iter().cloned().chain(arguments).collect();
            Job { name, command, folder: self.folder.clone(), is_rust: true }
        };
        let of_part = format!("{} {}", self.name, part.trim_end_matches(':'));
        vec![job(self.name.clone(), &["--skip", part]), job(of_part, &[part])]
    }
}

/// So many at a time, in the order in which they stand.
fn side_by_side(jobs: Vec<Job>, lanes: usize, longest: Duration, logs: &Path) -> Vec<Ran> {
    let waiting = Mutex::new(VecDeque::from(jobs));
    let done = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                // Not in the loop's head: the lock would be held as long as the job runs.
                let next = || lock(&waiting).pop_front();
                while let Some(job) = next() {
                    let ran = carry(job, longest, logs);
                    println!("{}", ran.line());
                    lock(&done).push(ran);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn carry(job: Job, longest: Duration, logs: &Path) -> Ran {
    let log = logs.join(format!("{}.log", job.name.replace(' ', "-")));
    let began = Instant::now();
    let ended = spawn(&job, &[], longest, &log);
    Ran { job, ended, log, took: began.elapsed() }
}

/// Runs it to its end with its output in `log`.
fn spawn(job: &Job, arguments: &[String], longest: Duration, log: &Path) -> Result<(), String> {
    let said = |error: io::Error| format!("{}: {error}", job.command[0]);
    let output = File::create(log).map_err(said)?;
    let mut command = Command::new("timeout");
    // In the group of the terminal, so that ctrl-C reaches it.
    command.args(["--foreground", "--kill-after=10", &longest.as_secs().to_string()]);
    command.args(&job.command).args(arguments).current_dir(&job.folder);
    // As `cargo test` has it: not that of this program.
    command.env("CARGO_MANIFEST_DIR", &job.folder);
    // Of a short name: a path of a socket has 107 bytes at most.
    let own = env::temp_dir().join(format!("xtask-{}-{}", std::process::id(), RUNS.fetch_add(1, Relaxed)));
    // Mounts of one program are none of another's: `flatout top` shows those of one user. And a process that
    // is killed, as many are here, leaves files behind.
    for (variable, name, mode) in [("XDG_RUNTIME_DIR", "run", 0o700), ("TMPDIR", "tmp", 0o1777)] {
        let folder = own.join(name);
        let open = || fs::set_permissions(&folder, Permissions::from_mode(mode));
        fs::create_dir_all(&folder).and_then(|()| open()).map_err(said)?;
        command.env(variable, &folder);
    }
    command.stdin(Stdio::null()).stdout(output.try_clone().map_err(said)?).stderr(output);
    let status = command.status().map_err(said);
    let mounts = end_mounts_below(&own);
    if mounts_below(&own).is_empty() {
        let _ = fs::remove_dir_all(&own);
    }
    let status = status?;
    match status.code() {
        Some(0) if mounts.is_empty() => Ok(()),
        Some(0) => Err(format!("mounts are left: {}", mounts.join(", "))),
        Some(124 | 137) => Err(format!("it hangs: ended after {} minutes", longest.as_secs() / 60)),
        _ => Err(status.to_string()),
    }
}

/// Unmounts what a suite has left; returns the mount points.
fn end_mounts_below(folder: &Path) -> Vec<String> {
    let below = mounts_below(folder);
    for point in below.iter().rev() {
        // Nothing is looked up in a mount that may not answer. Where it fails, its words are in the output.
        let _ = Command::new("timeout").args(["-k", "5", "10", "umount", "-l", "-c", point]).status();
    }
    below
}

fn mounts_below(folder: &Path) -> Vec<String> {
    // The table has no links.
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let table = String::from_utf8_lossy(&table);
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(|point| point.replace("\\040", " "));
    points.filter(|point| Path::new(point).starts_with(&folder)).collect()
}

impl Ran {
    fn line(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let verdict = if self.ended.is_ok() { "ok    " } else { "FAILED" };
        let (passed, _) = counts(&text);
        format!("{verdict} {:<26} {passed:>5} passed  {:>5.0} s", self.job.name, self.took.as_secs_f64())
    }
}

/// The numbers of passed and failed tests, by the last lines of libtest and of pytest.
fn counts(text: &str) -> (usize, usize) {
    let mut sums = (0, 0);
    let closes = |line: &&str| line.starts_with("test result:") || line.trim_matches('=').contains(" in ");
    for line in text.lines().filter(closes) {
        let words: Vec<&str> = line.split([' ', ';', ',']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let count = pair[0].parse().unwrap_or(0);
            match pair[1] {
                "passed" => sums.0 += count,
                "failed" => sums.1 += count,
                _ => {}
            }
        }
    }
    sums
}

/// The names under libtest's last `failures:`.
fn failures(text: &str) -> Vec<String> {
    let Some((_, list)) = text.rsplit_once("\nfailures:\n") else { return Vec::new() };
    let names = list.lines().take_while(|line| line.starts_with("    "));
    names.map(|line| line.trim().to_owned()).collect()
}

/// A test that fails beside others is tried again alone, unless the run is strict. If it passes then, it is
/// unsteady under load: it is listed, to be mended, and does not fail the run.
fn verdict(
    ran: &[Ran],
    wanted: &Wanted,
    longest: Duration,
    logs: &Path,
    began: Instant,
) -> Result<String, String> {
    let (mut unsteady, mut failed, mut passed) = (Vec::new(), Vec::new(), 0);
    for ran in ran {
        let text = fs::read_to_string(&ran.log).unwrap_or_default();
        passed += counts(&text).0;
        let Err(why) = &ran.ended else { continue };
        println!("\n---- {}: {why}\n{text}", ran.job.name);
        let names = if ran.job.is_rust { failures(&text) } else { Vec::new() };
        let passes_alone = |of: &str, arguments: &[String]| {
            let log = logs.join(format!("{}.again.log", of.replace([' ', ':'], "-")));
            let alone = || spawn(&ran.job, arguments, longest, &log);
            // A program of another kind takes minutes.
            let rounds = if ran.job.is_rust { 2 } else { 1 };
            !wanted.strict && (0..rounds).all(|_| alone().is_ok())
        };
        if names.is_empty() {
            // A crash is a failure, whatever a second run shows; a command is repeated as a whole.
            let is_unsteady = !ran.job.is_rust && passes_alone(&ran.job.name, &[]);
            let verdict = if is_unsteady { &mut unsteady } else { &mut failed };
            verdict.push(format!("{}: {why}", ran.job.name));
        }
        for name in names {
            let of = format!("{} {name}", ran.job.name);
            let verdict =
                if passes_alone(&of, &["--exact".to_owned(), name]) { &mut unsteady } else { &mut failed };
            verdict.push(of);
        }
    }
    for of in &unsteady {
        println!("test: unsteady, to be mended: {of} failed beside others and passed alone");
    }
    passed += unsteady.len();
    let closing = format!("{passed} passed, {} failed", failed.len());
    let took = began.elapsed().as_secs();
    if !failed.is_empty() {
        let failed: String = failed.iter().map(|of| format!("test: failed: {of}\n")).collect();
        return Err(format!("{failed}{closing}\ntest: failed after {took} s"));
    }
    if unsteady.len() > UNSTEADY_MAX {
        return Err(format!("{closing}\ntest: {} are unsteady, after {took} s", unsteady.len()));
    }
    Ok(format!("{closing}\ntest: all programs in {took} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_counted() {
        let libtest = "test result: FAILED. 47 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 6.63s";
        assert_eq!(counts(libtest), (47, 1));
        assert_eq!(
            counts("== 307 passed, 7 skipped in 68.08s (0:01:08) ==\n904 passed, 46 xfailed in 29.88s"),
            (1211, 0)
        );
        assert_eq!(counts("1 failed, 3 passed in 1.00s"), (3, 1));
    }

    #[test]
    fn names_of_failures_are_those_of_the_last_list() {
        let text =
            "\nfailures:\n\n---- a::b stdout ----\nx\n\n\nfailures:\n    a::b\n    c\n\ntest result: FAILED.";
        assert_eq!(failures(text), ["a::b", "c"]);
        assert_eq!(failures("thread panicked; aborting"), Vec::<String>::new());
    }

    #[test]
    fn programs_are_named_after_crate_and_file() {
        let line = r#"{"reason":"compiler-artifact","package_id":"path+file:///w/crates/cli#flatout-cli@0.1.0","manifest_path":"/w/crates/cli/Cargo.toml","target":{"kind":["test"],"name":"it"},"profile":{"test":true},"executable":"/w/it"}"#;
        let found = job(line).unwrap();
        assert_eq!(
            (found.name.as_str(), found.folder.as_path()),
            ("flatout-cli it", Path::new("/w/crates/cli"))
        );
        let units = line
            .replace(r#"["test"],"name":"it""#, r#"["bin"],"name":"x""#)
            .replace("cli#flatout-cli@0.1.0", "xtask#0.1.0");
        assert_eq!(job(&units).unwrap().name, "xtask units");
        assert!(job(&line.replace(r#""test":true"#, r#""test":false"#)).is_none());
    }

    #[test]
    fn a_long_program_runs_as_two_jobs() {
        let job = |name: &str| Job {
            name: name.to_owned(),
            command: vec!["/w/it".to_owned()],
            folder: PathBuf::from("/w"),
            is_rust: true,
        };
        let commands = |name: &str| -> Vec<String> {
            let jobs = job(name).split().into_iter();
            jobs.map(|job| format!("{}: {}", job.name, job.command.join(" "))).collect()
        };
        assert_eq!(
            commands("flatout-cli it"),
            ["flatout-cli it: /w/it --skip mounts::", "flatout-cli it mounts: /w/it mounts::"]
        );
        assert_eq!(commands("flatout-mount it"), ["flatout-mount it: /w/it"]);
    }

    #[test]
    fn jobs_run_at_the_same_time() {
        let folder = env::temp_dir().join(format!("xtask-lanes-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // Each waits for the other's mark, so one after the other neither would end well.
        let job = |own: &str, other: &str| {
            let waits = format!(
                "touch {own}; for _ in $(seq 500); do [ -e {other} ] && exit; sleep 0.02; done; exit 1"
            );
            let command = ["bash", "-c", &waits].map(str::to_owned).to_vec();
            Job { name: own.to_owned(), command, folder: folder.clone(), is_rust: false }
        };
        let ran = side_by_side(vec![job("a", "b"), job("b", "a")], 2, Duration::from_secs(60), &folder);
        assert!(ran.iter().all(|ran| ran.ended.is_ok()), "{ran:?}");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_test_that_fails_is_tried_alone() {
        let folder = env::temp_dir().join(format!("xtask-testing-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // Fails beside others, and by itself as often as `left` says.
        let program = |name: &str, left: usize| {
            let fails =
                "printf '\\nfailures:\\n    one\\n\\ntest result: FAILED. 1 passed; 1 failed\\n'; exit 101";
            let count = folder.join(name);
            let script = format!(
                "[ \"$1\" = --exact ] || {{ {fails}; }}; echo x >> {0}; [ $(wc -l < {0}) -gt {left} ]",
                count.display()
            );
            let command = ["bash", "-c", &script, "bash"].map(str::to_owned).to_vec();
            Job { name: name.to_owned(), command, folder: folder.clone(), is_rust: true }
        };
        let judge = |job: Job, strict: bool| {
            let ran = side_by_side(vec![job], 1, Duration::from_secs(60), &folder);
            let wanted = Wanted { strict, ..Wanted::default() };
            verdict(&ran, &wanted, Duration::from_secs(60), &folder, Instant::now())
        };
        assert!(judge(program("steady", 0), false).unwrap().starts_with("2 passed, 0 failed"));
        assert!(
            judge(program("strict", 0), true)
                .unwrap_err()
                .starts_with("test: failed: strict one\n1 passed, 1 failed")
        );
        assert!(judge(program("broken", 1), false).unwrap_err().starts_with("test: failed: broken one"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
