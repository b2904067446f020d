//! Running the program, away from the environment that the tests run in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// How a run ended.
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

/// The program with these arguments and no variables but `PATH`, and those that keep it from the metadata of
/// whatever machine the tests run on.
pub fn flatout(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flatout"));
    command.args(arguments);
    bare(&mut command);
    command
}

/// A shell line in which `$0` is the program and `$1`… are the arguments.
pub fn shell(line: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", line, env!("CARGO_BIN_EXE_flatout")]).args(arguments);
    bare(&mut command);
    command
}

/// A path as a word of a shell: the folder for temporary files may have a blank in its name.
pub fn quoted(path: impl AsRef<Path>) -> String {
    let text = path.as_ref().to_str().expect("temporary paths are text");
    shlex::try_quote(text).expect("no path holds a NUL").into_owned()
}

fn bare(command: &mut Command) {
    // What a sanitizer is told besides: `make sanitize`.
    let kept = ["PATH", "ASAN_OPTIONS", "LSAN_OPTIONS"].into_iter();
    command.env_clear().envs(kept.filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs([("AWS_EC2_METADATA_DISABLED", "true"), ("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")]);
}

/// Longer than any run takes, on however busy a machine; a run that hangs ends here without a code.
const PATIENCE: Duration = Duration::from_secs(300);

/// The command without CAP_DAC_OVERRIDE, which lets root write everywhere.
pub fn without_override(command: Command) -> Command {
    let base = tempfile::tempdir().unwrap();
    fs::set_permissions(base.path(), fs::Permissions::from_mode(0o555)).unwrap();
    if fs::write(base.path().join("x"), b"").is_err() {
        return command;
    }
    let mut plain = Command::new("setpriv");
    plain.args([
        "--bounding-set",
        "-dac_override,-dac_read_search",
        "--inh-caps",
        "-dac_override,-dac_read_search",
    ]);
    plain.arg(command.get_program()).args(command.get_args());
    plain.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    plain
}

/// Waits for what a program is about to do.
#[track_caller]
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait_at_most(PATIENCE, what, is_so);
}

#[track_caller]
fn wait_at_most(patience: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < patience, "awaited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[should_panic(expected = "awaited in vain: nothing")]
fn a_wait_without_end_ends() {
    wait_at_most(Duration::from_millis(10), "nothing", || false);
}

/// Runs it to its end. Whatever it did, nothing that it put out may hold a secret that it was given.
#[track_caller]
pub fn run(command: &mut Command) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the program starts");
    let id = child.id();
    let (ended_in_time, end) = mpsc::channel::<()>();
    let watchdog = thread::spawn(move || {
        if end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
            signal("KILL", id);
        }
    });
    let output = child.wait_with_output().expect("the program can be waited for");
    drop(ended_in_time);
    watchdog.join().expect("the watchdog ends");
    let ended = ended(output);
    let said = format!("{}{}", String::from_utf8_lossy(&ended.stdout), ended.stderr);
    for secret in secrets(command) {
        assert!(!said.contains(&secret), "{command:?} gave away {secret}:\n{said}");
    }
    ended
}

/// Keys, tokens and passwords among a command's variables and arguments; the shortest could be words of a
/// message.
fn secrets(command: &Command) -> Vec<String> {
    let names = |name: &str| {
        let secret = ["SECRET", "TOKEN", "PASSWORD"].iter().any(|word| name.contains(word));
        secret && !["_FILE", "_URI", "_DIR"].iter().any(|end| name.ends_with(end))
    };
    let variables = command.get_envs().filter(|(name, _)| names(&name.to_string_lossy()));
    let variables = variables.filter_map(|(_, value)| Some(value?.to_string_lossy().into_owned()));
    let passwords = command.get_args().filter_map(|argument| {
        let (user, _) = argument.to_str()?.split_once("://")?.1.split_once('@')?;
        Some(user.split_once(':')?.1.to_owned())
    });
    variables.chain(passwords).filter(|secret| secret.len() >= 8).collect()
}

/// What came out of it.
pub fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code(),
        stdout: output.stdout,
        stderr: String::from_utf8(output.stderr).expect("errors are text"),
    }
}

/// Sends a signal by name to a child that has not been waited for.
pub fn signal(name: &str, id: u32) {
    let sent = Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status().expect("sh starts");
    assert!(sent.success(), "kill -{name} {id}");
}

/// Sends it until there is an answer. Signals close together are one, and how far apart they come a busy
/// machine decides.
#[track_caller]
pub fn signal_until<T>(name: &str, id: u32, mut answer: impl FnMut() -> Option<T>) -> T {
    let (start, mut sent) = (Instant::now(), None::<Instant>);
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "SIG{name} again and again, in vain");
        if sent.is_none_or(|sent| sent.elapsed() > Duration::from_millis(400)) {
            // It may have gone meanwhile.
            let _ = Command::new("sh").args(["-c", &format!("kill -{name} {id} 2> /dev/null")]).status();
            sent = Some(Instant::now());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

impl Ended {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("the answer is text")
    }

    /// The events on standard output.
    pub fn events(&self) -> Vec<serde_json::Value> {
        events(self.text())
    }

    #[track_caller]
    pub fn clean(self) -> Ended {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        assert_eq!(self.stderr, "");
        self
    }

    /// One line that holds all of `says`, a hint at most besides, and the code.
    #[track_caller]
    pub fn refused(self, code: i32, says: &[&str]) -> Ended {
        let shown = &self.stderr;
        let lines: Vec<&str> = shown.lines().collect();
        let first = lines.first().unwrap_or_else(|| panic!("nothing was said, code {:?}", self.code));
        assert!(first.starts_with("flatout: error: "), "{shown}");
        assert!(lines.len() <= 2 && lines.get(1).is_none_or(|line| line.starts_with("  hint: ")), "{shown}");
        for part in says {
            assert!(shown.contains(part), "{shown}lacks {part:?}");
        }
        assert_eq!(self.code, Some(code), "{shown}");
        self
    }
}

/// Every line as JSON, each of schema version 1.
pub fn events(text: &str) -> Vec<serde_json::Value> {
    let event = |line: &str| -> serde_json::Value {
        let event: serde_json::Value =
            serde_json::from_str(line).unwrap_or_else(|wrong| panic!("{wrong}: {line}"));
        assert_eq!(event["v"], 1, "{line}");
        assert!(event["event"].is_string(), "{line}");
        event
    };
    text.lines().map(event).collect()
}
