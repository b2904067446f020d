//! A server or a mount that cannot outlive the tests, however they end.

use std::fs;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use crate::mountinfo::is_mounted;

/// A running server and its folder. Both go when this is dropped; and also when the tests are killed, because
/// the shell that watches over the server waits for the end of a pipe that only the tests hold.
pub struct Guard {
    folder: PathBuf,
    watch: Child,
    alive: Option<ChildStdin>,
}

/// `$1` is the folder, `$2` where the server mounts something, or nothing, the rest the server. It ends by
/// itself when the server does, so that a server that could not start is seen at once. One that mounts may
/// end in good order first.
const WATCH: &str = r#"
    folder=$1 point=$2; shift 2
    exec 3<&0
    "$@" </dev/null >"$folder/log" 2>&1 3<&- &
    server=$!
    cat <&3 >/dev/null &
    wait -n
    if [ -n "$point" ]; then
        kill -TERM $server 2>/dev/null
        for _ in $(seq 100); do kill -0 $server 2>/dev/null || break; sleep 0.05; done
    fi
    kill -KILL $server 2>/dev/null
    wait $server 2>/dev/null
    while [ -n "$point" ] && umount -l "$point" 2>/dev/null; do :; done
    rm -rf --one-file-system "$folder"
"#;

const PATIENCE: Duration = Duration::from_secs(60);

impl Guard {
    /// Starts what `command` names, with these variables besides those of the tests.
    pub fn start(folder: tempfile::TempDir, command: &[&str], variables: &[(&str, &str)]) -> Guard {
        let mut watch = Guard::watch(&folder, Path::new(""));
        watch.args(command).envs(variables.iter().copied());
        Guard::begin(folder, watch)
    }

    /// Starts what mounts at `point`, with the variables that are set for it and no others.
    pub fn start_mount(folder: tempfile::TempDir, point: &Path, command: &Command) -> Guard {
        let mut watch = Guard::watch(&folder, point);
        watch.arg(command.get_program()).args(command.get_args()).env_clear();
        // Beside the mounts of others: `flatout top` of the other tests would show it.
        watch.env("XDG_RUNTIME_DIR", folder.path());
        watch.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Guard::begin(folder, watch)
    }

    fn watch(folder: &tempfile::TempDir, point: &Path) -> Command {
        let mut watch = Command::new("bash");
        watch.args(["-c", WATCH, "watch"]).arg(folder.path()).arg(point);
        watch
    }

    /// In a group of its own, so that ctrl-C reaches the tests first.
    fn begin(folder: tempfile::TempDir, mut watch: Command) -> Guard {
        let folder = folder.keep();
        let mut watch = watch
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("bash starts");
        let alive = watch.stdin.take();
        Guard { folder, watch, alive }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server's process, by its name.
    #[track_caller]
    pub fn pid(&self, name: &str) -> u32 {
        let watch = self.watch.id();
        let children = fs::read_to_string(format!("/proc/{watch}/task/{watch}/children")).unwrap();
        let is_it = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == name)
        };
        children.split_whitespace().find(is_it).expect("it runs").parse().unwrap()
    }

    /// What the server wrote so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    /// Asks again until there is an answer.
    #[track_caller]
    pub fn wait_for<T>(&mut self, what: &str, mut answer: impl FnMut(&Guard) -> Option<T>) -> T {
        let start = Instant::now();
        // The log goes with the folder when the server ends: what it said last is kept here.
        let mut last = String::new();
        loop {
            last = Some(self.log()).filter(|log| !log.is_empty()).unwrap_or(last);
            if let Some(answer) = answer(self) {
                return answer;
            }
            let ended = self.watch.try_wait().expect("a child of ours").is_some();
            assert!(!ended, "{what}: ended instead of getting ready\n{last}");
            assert!(start.elapsed() < PATIENCE, "{what}: not ready after {PATIENCE:?}\n{last}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.alive.take());
        let _ = self.watch.wait();
    }
}

/// A loopback port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The program at the first of these places, else a failure that says how to get it.
#[track_caller]
pub fn installed(name: &str, places: &[PathBuf]) -> String {
    let place = places.iter().find(|place| place.exists());
    let Some(place) = place else {
        panic!("{name} is not installed ({places:?}): run `scripts/deps.sh ensure`")
    };
    place.to_str().expect("a path of text").to_owned()
}

/// Every folder of `PATH` and where Debian keeps servers, each with this name in it.
pub fn on_path(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/bin".into()]);
    folders.map(|folder| folder.join(name)).collect()
}

#[test]
fn a_server_and_its_folder_go_with_the_guard() {
    let mut guard = Guard::start(tempfile::tempdir().unwrap(), &["sh", "-c", "echo $$; exec sleep 600"], &[]);
    let id = guard.wait_for("sleep", |guard| guard.log().trim().parse::<u32>().ok());
    let folder = guard.folder().to_owned();
    assert!(Path::new(&format!("/proc/{id}")).exists() && folder.exists());
    drop(guard);
    assert!(!Path::new(&format!("/proc/{id}")).exists(), "the server lives on");
    assert!(!folder.exists(), "the folder is left behind");
}

#[test]
fn a_mount_and_its_folder_go_with_the_guard() {
    let folder = tempfile::tempdir().unwrap();
    let point = folder.path().join("mounted");
    fs::create_dir(&point).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", r#"mount -t tmpfs none "$0"; echo $$; exec sleep 600"#]).arg(&point);
    command.env("PATH", std::env::var_os("PATH").unwrap());
    let mut guard = Guard::start_mount(folder, &point, &command);
    let id = guard.wait_for("sleep", |guard| guard.log().trim().parse::<u32>().ok());
    let folder = guard.folder().to_owned();
    assert!(is_mounted(&point));
    drop(guard);
    assert!(!Path::new(&format!("/proc/{id}")).exists(), "the server lives on");
    assert!(!is_mounted(&point) && !folder.exists(), "the mount or its folder is left behind");
}

#[test]
fn a_server_goes_when_the_tests_are_killed() {
    check_killed("", "");
}

#[test]
fn a_mount_goes_when_the_tests_are_killed() {
    check_killed("mounted", "mount -t tmpfs none mounted;");
}

/// What serves in a folder, and mounts something at `point` there, when the tests are killed.
#[track_caller]
fn check_killed(point: &str, first: &str) {
    // The shell stands for the tests: it holds the pipe, and is killed.
    let folder = tempfile::tempdir().unwrap().keep();
    fs::create_dir(folder.join("mounted")).unwrap();
    let point = if point.is_empty() { PathBuf::new() } else { folder.join(point) };
    let serve = format!("{first} echo $$; exec sleep 600");
    let script = r#"cd "$1"; sleep 600 | setsid bash -c "$0" watch "$1" "$2" sh -c "$3""#;
    let mut tests = Command::new("bash")
        .args(["-c", script, WATCH])
        .arg(&folder)
        .arg(&point)
        .arg(&serve)
        .process_group(0)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let log = folder.join("log");
    let start = Instant::now();
    let id = loop {
        if let Ok(id) = fs::read_to_string(&log).unwrap_or_default().trim().parse::<u32>() {
            break id;
        }
        assert!(start.elapsed() < PATIENCE, "not started");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert!(
        Command::new("kill").args(["-KILL", "--", &format!("-{}", tests.id())]).status().unwrap().success()
    );
    tests.wait().unwrap();
    // The watch holds the other end of standard output until it is done.
    tests.stdout.take().unwrap().read_to_end(&mut Vec::new()).unwrap();
    assert!(!Path::new(&format!("/proc/{id}")).exists(), "the server lives on");
    assert!(!is_mounted(&point) && !folder.exists(), "the mount or the folder is left behind");
}
