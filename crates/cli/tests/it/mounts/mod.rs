//! The mount on the real kernel, as root, against origins of our own on loopback: mounts stand in temporary
//! folders alone, and none outlasts its test, whatever becomes of that.

mod appends;
mod attributes;
mod deaths;
mod doors;
mod ends;
mod faults;
mod held;
mod lives;
mod memory;
mod options;
mod refused;
mod renames;
mod semantics;
mod sequences;
mod services;
mod staging;
mod takeovers;
mod versions;
mod volumes;
mod writers;
mod writes;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::mountinfo::{is_mounted, mounts_below};
use crate::program::{Ended, flatout, run, signal, wait_until};

/// No wait of a test is longer: what takes so long hangs, and its mounts are ended by force.
const PATIENCE: Duration = Duration::from_secs(100);

/// A folder to mount in, with the sockets and logs of its mounts; ends them when dropped.
pub struct Place {
    folder: tempfile::TempDir,
    /// Ends the watchdog.
    _alive: mpsc::Sender<()>,
}

impl Place {
    pub fn new() -> Place {
        assert!(
            Path::new("/dev/fuse").exists(),
            "mounts need /dev/fuse: modprobe fuse, or --device /dev/fuse"
        );
        // As the kernel names it, where the folder for temporary files is behind a link.
        let folder = tempfile::tempdir_in(std::env::temp_dir().canonicalize().unwrap()).unwrap();
        for name in ["mnt", "run", "state"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let (alive, end) = mpsc::channel();
        let watched = folder.path().to_owned();
        // Readers in this very process wait for a mount that hangs, until it is gone.
        thread::spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("a mount below {} hangs: ended by force", watched.display());
                end_all(&watched);
            }
        });
        Place { folder, _alive: alive }
    }

    /// Where it is mounted.
    pub fn mnt(&self) -> PathBuf {
        self.folder.path().join("mnt")
    }

    /// As an argument.
    pub fn mnt_text(&self) -> String {
        self.mnt().to_str().unwrap().to_owned()
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.mnt().join(name)
    }

    /// The folder around the mount point.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program, with sockets and logs in this place.
    pub fn flatout(&self, arguments: &[&str]) -> Command {
        let mut command = flatout(arguments);
        self.within(&mut command);
        command
    }

    pub fn within(&self, command: &mut Command) {
        command.env("XDG_RUNTIME_DIR", self.path().join("run"));
        command.env("XDG_STATE_HOME", self.path().join("state"));
    }

    /// The command line that mounts from an origin that lets anybody in.
    pub fn mount(&self, source: &str, origin: &str, more: &[&str]) -> Command {
        let mnt = self.mnt_text();
        let line = ["mount", source, &mnt, "--endpoint-url", origin, "--no-sign-request"];
        self.flatout(&[&line[..], more].concat())
    }

    /// Mounts in the background.
    #[track_caller]
    pub fn mounted(&self, source: &str, origin: &str, more: &[&str]) -> Ended {
        let ended = run(&mut self.mount(source, origin, more)).clean();
        assert!(self.is_mounted());
        ended
    }

    /// As [`Place::mounted`] of a bucket, by the dialect `s3` or `oss`.
    #[track_caller]
    pub fn mounted_by(&self, dialect: &str, origin: &str, more: &[&str]) {
        let (source, mnt) = (format!("{dialect}://bucket"), self.mnt_text());
        let endpoint = if dialect == "oss" { "--oss-endpoint" } else { "--endpoint-url" };
        let line = ["mount", &source, &mnt, endpoint, origin, "--no-sign-request"];
        run(&mut self.flatout(&[&line[..], more].concat())).clean();
    }

    /// Mounts in the foreground, and waits until it stands.
    #[track_caller]
    pub fn in_foreground(&self, source: &str, origin: &str, more: &[&str]) -> Foreground {
        let mut command = self.mount(source, origin, &[&["--foreground"], more].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let foreground = Foreground(Some(child));
        assert!(line.contains("is mounted on"), "{line:?} {}", foreground.end().stderr);
        foreground
    }

    /// Without the line about those who keep it: whatever runs beside this test may have a copy of the mount
    /// namespace.
    #[track_caller]
    pub fn umount(&self, more: &[&str]) -> Ended {
        without_holders(self.umount_as_it_is(more))
    }

    /// Of another folder, or by another name.
    #[track_caller]
    pub fn unmounted_at(&self, mount_point: &str) {
        without_holders(run(self.flatout(&["umount", mount_point]).current_dir(self.path()))).clean();
    }

    #[track_caller]
    pub fn umount_as_it_is(&self, more: &[&str]) -> Ended {
        run(&mut self.flatout(&[&["umount", &self.mnt_text()], more].concat()))
    }

    /// Unmounted, and its process gone without leaving anything.
    #[track_caller]
    pub fn unmounted(&self) {
        let start = Instant::now();
        let mut ended = self.umount(&[]);
        // A program that another test starts has a copy of this test's open files until it is that program.
        while ended.stderr.contains("something still uses it") && start.elapsed() < PATIENCE / 2 {
            thread::sleep(Duration::from_millis(5));
            ended = self.umount(&[]);
        }
        ended.clean();
        self.is_clear();
    }

    pub fn is_mounted(&self) -> bool {
        is_mounted(&self.mnt())
    }

    /// No mount, no process, no socket.
    #[track_caller]
    pub fn is_clear(&self) {
        let pids = self.pids();
        wait_until("every process to end", || pids.iter().all(|pid| !is_alive(*pid)));
        let left = mounts_below(self.path());
        assert!(left.is_empty(), "{left:?}");
        // Whoever was killed cannot take its socket along: whoever looks does.
        run(&mut self.flatout(&["top", "--once"])).clean();
        assert_eq!(self.pids(), [0; 0], "sockets are left");
    }

    /// Of the processes that have a socket here.
    pub fn pids(&self) -> Vec<u32> {
        pids(self.path())
    }

    /// The one that serves.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        let pids = self.pids();
        assert_eq!(pids.len(), 1, "{pids:?}");
        pids[0]
    }

    /// What the mount has counted.
    #[track_caller]
    pub fn stats(&self) -> serde_json::Value {
        let ended = run(&mut self.flatout(&["top", "--once", "--json"])).clean();
        let place = self.mnt().display().to_string();
        // Others may have mounts on this machine.
        ended.events().into_iter().find(|event| event["mount_point"] == *place).expect("it is mounted")
    }

    /// The one log of this place.
    pub fn log(&self) -> String {
        let folder = self.path().join("state/flatout");
        let files = fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path());
        files.filter(|file| file.is_file()).map(|file| fs::read_to_string(file).unwrap()).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        end_all(self.folder.path());
    }
}

/// A mount in the foreground; killed when dropped.
pub struct Foreground(Option<Child>);

impl Foreground {
    pub fn pid(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Waits for its end.
    pub fn end(mut self) -> Ended {
        let child = self.0.take().unwrap();
        let (pid, (told, end)) = (child.id(), mpsc::channel::<()>());
        let watchdog = thread::spawn(move || {
            if end.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                signal("KILL", pid);
            }
        });
        let ended = crate::program::ended(child.wait_with_output().unwrap());
        drop(told);
        watchdog.join().unwrap();
        ended
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program that uses a mount; killed when dropped.
pub struct User(Child);

impl User {
    pub fn start(program: &str, arguments: &[&str]) -> User {
        // Where the tests run in the background of a shell SIGINT is ignored, and would be by it.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(program).args(arguments);
        User(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn runs(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// Its exit code, `None` after a signal.
    #[track_caller]
    pub fn end(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until it sleeps in a request to a mount: that is what the kernel calls it.
    #[track_caller]
    pub fn waits(&self) {
        let path = format!("/proc/{}/stack", self.pid());
        let wchan = format!("/proc/{}/wchan", self.pid());
        let in_fuse = |path: &str| fs::read_to_string(path).is_ok_and(|text| text.contains("fuse"));
        // A buffered read waits for its page, a direct one for the answer.
        let in_page =
            || fs::read_to_string(&wchan).is_ok_and(|text| text.contains("folio") || text.contains("page"));
        let sleeps = || in_fuse(&path) || in_fuse(&wchan) || in_page();
        // Requests that are answered are short: who waits still after a while waits for the origin.
        let still = || {
            thread::sleep(Duration::from_millis(10));
            sleeps()
        };
        wait_until("a reader to wait", || sleeps() && (0..5).all(|_| still()));
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn without_holders(mut ended: Ended) -> Ended {
    if ended.code == Some(0) && ended.stderr.contains("no longer mounted here, but ") {
        ended.stderr.clear();
    }
    ended
}

pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie has ended; its parent has not looked.
    stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()).is_some_and(|state| state != "Z")
}

fn pids(folder: &Path) -> Vec<u32> {
    pids_of(folder, "mount-")
}

/// Of processes with sockets of this kind.
fn pids_of(folder: &Path, kind: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder.join("run/flatout")).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter_map(|name| name.strip_prefix(kind)?.strip_suffix(".sock")?.parse().ok()).collect()
}

/// By force, in the order that leaves nobody waiting.
fn end_all(folder: &Path) {
    // A supervisor would start another.
    for pid in [pids_of(folder, "supervisor-"), pids(folder)].concat() {
        // One that has ended already.
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
    }
    for point in mounts_below(folder).iter().rev() {
        let _ = Command::new("umount").arg("-l").arg(point).stderr(Stdio::null()).status();
    }
}

#[test]
fn a_test_that_fails_leaves_no_mount() {
    let origin = crate::objects::Buckets::new(&[("bucket/key", b"content")]);
    let place = Place::new();
    let path = place.path().to_owned();
    place.mounted("s3://bucket", &origin.url(), &[]);
    let failed = thread::spawn(move || {
        assert!(!place.is_mounted(), "as a test that fails");
    });
    assert!(failed.join().is_err());
    assert!(mounts_below(&path).is_empty() && !path.exists());
}
