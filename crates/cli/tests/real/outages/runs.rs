//! Runs of the program that an outage falls into, each with what it has to bring.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::lab::Lab;
use super::origin::{BUCKET, LARGE, LARGE_BODY, SMALL, SMALL_COUNT, small_body, small_name};
use crate::folder::names;
use crate::program::signal;

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One large object into a file.
    File,
    /// A copy to standard output.
    Stdout,
    /// `cp -r` of many small objects.
    Objects,
    /// `ls -r` of these.
    Listing,
    /// A file in parts, to another key.
    Upload,
}

pub const SHAPES: [Shape; 5] = [Shape::File, Shape::Stdout, Shape::Objects, Shape::Listing, Shape::Upload];

/// Where uploads go.
const UPLOADED: &str = "uploaded";

/// A run of the program. It is killed if the test ends before it.
pub struct Run {
    pub shape: Shape,
    child: Child,
    folder: tempfile::TempDir,
    /// Whoever reads standard output waits for this.
    drain: mpsc::Sender<()>,
    stdout: Option<JoinHandle<Vec<u8>>>,
    /// Tells what an upload has left at the origin.
    read_back: Option<Command>,
}

/// How it ended.
pub struct Ended {
    pub shape: Shape,
    pub code: Option<i32>,
    pub stderr: String,
    stdout: Vec<u8>,
    folder: tempfile::TempDir,
}

impl Shape {
    /// Slow enough for an outage to fall into it: the whole takes some seconds. `local` is where it writes
    /// to; what it sends lies there.
    fn arguments(self, local: &str) -> Vec<String> {
        let source = |key: &str| format!("s3://{BUCKET}/{key}");
        let bandwidth = format!("{}KiB/s", LARGE_BODY.len() / 3 / 1024);
        // Few and small parts, or sockets would hold so much that the outage is over before anybody notices.
        let slow = ["--bandwidth", &bandwidth, "--parallel", "4", "--part-size", "512KiB"];
        let (large, small, uploaded) = (source(LARGE), source(SMALL), source(UPLOADED));
        let words = match self {
            Shape::File => [&["cp", &large, local][..], &slow].concat(),
            Shape::Stdout => [&["cp", &large, "-"][..], &slow].concat(),
            Shape::Objects => vec!["cp", "-r", &small, local, "--request-rate", "400"],
            Shape::Upload => {
                vec![
                    "cp",
                    local,
                    &uploaded,
                    "--bandwidth",
                    &bandwidth,
                    "--parallel",
                    "3",
                    "--part-size",
                    "5MiB",
                ]
            }
            // The first page fills the pipe, so that the second is asked for when somebody reads.
            Shape::Listing => vec!["ls", "-r", &small],
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// Bytes that it has written when it is well under way.
    fn begun_bytes(self) -> u64 {
        match self {
            Shape::File | Shape::Stdout | Shape::Upload => LARGE_BODY.len() as u64 / 10,
            Shape::Objects => 100 * 1024,
            Shape::Listing => 32 << 10,
        }
    }
}

/// A run of each shape, all in the middle.
#[track_caller]
pub fn start_all(lab: &Lab, more: &[&str]) -> Vec<Run> {
    let runs = stopped_in_the_middle(lab, more);
    runs.iter().for_each(Run::go_on);
    runs
}

/// A run of each shape, from which the origin goes away in the middle; and since when it is.
#[track_caller]
pub fn cut_in_the_middle(lab: &mut Lab, more: &[&str]) -> (Vec<Run>, Instant) {
    let runs = stopped_in_the_middle(lab, more);
    let away = Instant::now();
    lab.go_away();
    // Not before: on a busy machine a short run would be over.
    runs.iter().for_each(Run::go_on);
    (runs, away)
}

/// A run of each shape, all in the middle, where they wait for [`Run::go_on`].
#[track_caller]
fn stopped_in_the_middle(lab: &Lab, more: &[&str]) -> Vec<Run> {
    let mut runs: Vec<Run> = SHAPES.iter().map(|shape| Run::start(lab, *shape, more)).collect();
    let start = Instant::now();
    let mut beginning: Vec<&mut Run> = runs.iter_mut().collect();
    // Each is stopped as soon as it is under way: others may need longer to begin.
    while let Some(run) = beginning.first() {
        assert!(start.elapsed() < PATIENCE, "{:?}: not under way after {PATIENCE:?}", run.shape);
        beginning.retain_mut(|run| !run.stop_once_begun());
        thread::sleep(Duration::from_millis(5));
    }
    runs
}

impl Run {
    pub fn start(lab: &Lab, shape: Shape, more: &[&str]) -> Run {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        fs::create_dir(&target).unwrap();
        let local = match shape {
            Shape::File => target.join("model"),
            Shape::Upload => folder.path().join("source"),
            _ => target,
        };
        if shape == Shape::Upload {
            fs::write(&local, &*LARGE_BODY).unwrap();
        }
        let arguments = shape.arguments(local.to_str().unwrap());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let mut run = Run::begin(shape, lab.flatout(&arguments), folder);
        let uploaded = format!("s3://{BUCKET}/{UPLOADED}");
        run.read_back = (shape == Shape::Upload).then(|| lab.flatout(&["cp", &uploaded, "-"]));
        run
    }

    pub fn begin(shape: Shape, mut command: Command, folder: tempfile::TempDir) -> Run {
        let stderr = fs::File::create(folder.path().join("stderr")).unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("the program starts");
        let (drain, gate) = mpsc::channel();
        let stdout = child.stdout.take().expect("it is piped");
        let stdout = Some(thread::spawn(move || read_after(&gate, stdout)));
        let run = Run { shape, child, folder, drain, stdout, read_back: None };
        if shape != Shape::Listing {
            run.drain();
        }
        run
    }

    /// Reads standard output from now on.
    fn drain(&self) {
        let _ = self.drain.send(());
    }

    /// Bytes that it has written so far, wherever to: sockets are not among them. None when it has ended.
    pub fn written(&mut self) -> Option<u64> {
        if self.child.try_wait().expect("a child of ours").is_some() {
            return None;
        }
        let io = fs::read_to_string(format!("/proc/{}/io", self.child.id())).ok()?;
        io.lines().find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
    }

    /// Stops it until `go_on`, if it is well under way; whether it is.
    fn stop_once_begun(&mut self) -> bool {
        let Some(written) = self.written() else {
            panic!("{:?}: ended before the outage: {}", self.shape, self.stderr())
        };
        let has_begun = written >= self.shape.begun_bytes();
        if has_begun {
            signal("STOP", self.child.id());
        }
        has_begun
    }

    pub fn go_on(&self) {
        signal("CONT", self.child.id());
        self.drain();
    }

    pub fn stderr(&self) -> String {
        fs::read_to_string(self.folder.path().join("stderr")).unwrap()
    }

    /// Waits for its end; a run that hangs has no code.
    pub fn end(mut self) -> Ended {
        self.drain();
        let status = self.wait();
        let mut stdout = self.stdout.take().expect("it ends once").join().expect("the pipe is read");
        let stderr = self.stderr();
        if let Some(mut read_back) = self.read_back.take().filter(|_| status.success()) {
            stdout = read_back.output().expect("the program starts").stdout;
        }
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        Ended { shape: self.shape, code: status.code(), stderr, stdout, folder }
    }

    fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                return status;
            }
            if start.elapsed() > PATIENCE {
                signal("KILL", self.child.id());
                return self.child.wait().expect("a child of ours");
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Longer than any run takes when it waits for nobody.
pub const PATIENCE: Duration = Duration::from_secs(100);

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.drain();
        if let Some(stdout) = self.stdout.take() {
            let _ = stdout.join();
        }
    }
}

fn read_after(gate: &mpsc::Receiver<()>, mut stdout: ChildStdout) -> Vec<u8> {
    let _ = gate.recv();
    let mut all = Vec::new();
    stdout.read_to_end(&mut all).expect("a pipe can be read");
    all
}

impl Ended {
    /// Why it is not all there, if it is not: the code, each byte, each object once, nothing else in the
    /// folder.
    pub fn wrong(&self) -> Option<String> {
        if self.code != Some(0) || self.stderr.contains("error:") {
            let lines: Vec<&str> = self.stderr.lines().collect();
            let some = lines[..lines.len().min(4)].join("\n    ");
            let (shape, code) = (self.shape, self.code);
            return Some(format!("{shape:?}: code {code:?}, {} lines of errors:\n    {some}", lines.len()));
        }
        let what = match self.shape {
            Shape::File => self.wrong_file(),
            Shape::Stdout | Shape::Upload => (self.stdout != *LARGE_BODY).then(|| "other bytes".to_owned()),
            Shape::Objects => self.wrong_objects(),
            Shape::Listing => self.wrong_listing(),
        };
        what.map(|what| format!("{:?}: {what}", self.shape))
    }

    /// Names of all that it left.
    pub fn left(&self) -> Vec<String> {
        names(&self.folder.path().join("target"))
    }

    fn wrong_file(&self) -> Option<String> {
        let left = self.left();
        if left != [LARGE] {
            return Some(format!("the folder holds {left:?}"));
        }
        let got = fs::read(self.folder.path().join("target").join(LARGE)).unwrap();
        (got != *LARGE_BODY).then(|| "other bytes".to_owned())
    }

    fn wrong_objects(&self) -> Option<String> {
        let want: Vec<String> = (0..*SMALL_COUNT).map(small_name).collect();
        let left = self.left();
        if left != want {
            return Some(format!("the folder holds {} names", left.len()));
        }
        let target = self.folder.path().join("target");
        let wrong =
            (0..*SMALL_COUNT).find(|n| fs::read(target.join(small_name(*n))).unwrap() != small_body(*n));
        wrong.map(|number| format!("other bytes in {}", small_name(number)))
    }

    fn wrong_listing(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.stdout);
        let lines: Vec<&str> = text.lines().collect();
        let once: BTreeSet<&str> = lines.iter().copied().collect();
        let want = (0..*SMALL_COUNT).all(|number| once.contains(small_name(number).as_str()));
        (lines.len() != *SMALL_COUNT || !want).then(|| format!("{} lines", lines.len()))
    }
}
