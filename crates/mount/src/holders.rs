//! Who keeps a mount from its end: another mount namespace, an overlay, a loop device, a process. Nobody is asked who might not
//! answer: the kernel's tables tell, and statx(2) without a question to the file system.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::options::TYPE;
use crate::table::{self, Mount};
use crate::tuning::DeviceNumber;

/// A look at all processes may wait for one of them, of which the kernel changes what it has mapped; what was seen by then counts.
const LOOK: Duration = Duration::from_secs(2);

/// As many are named in one sentence.
const NAMED_MAX: usize = 5;

/// One that keeps a mount from its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub way: Way,
    /// Who uses it; of a mount in another mount namespace, a process in there.
    pub process: Option<Process>,
    /// Where it is mounted, or the file that is read; of an overlay, where that is mounted.
    pub path: Option<PathBuf>,
}

/// A process by its number, and what the kernel calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    pub command: String,
}

/// How it is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is mounted somewhere else, too: `mount --bind`, a namespace that was copied.
    Mounted,
    /// An overlay has it below.
    Overlay,
    /// A file of it is mounted.
    Image,
    /// A loop device, by this name, has a file of it.
    Loop(String),
    /// Something is mounted on a folder of it.
    Covered,
    WorkingFolder,
    RootFolder,
    Open,
    Mapped,
    /// Not to be seen by this user, though it is served still.
    Unseen,
}

impl Way {
    /// For programs.
    pub fn name(&self) -> &'static str {
        match self {
            Way::Mounted => "mount",
            Way::Overlay => "overlay",
            Way::Image => "image",
            Way::Loop(_) => "loop",
            Way::Covered => "covered",
            Way::WorkingFolder => "working_folder",
            Way::RootFolder => "root_folder",
            Way::Open => "open",
            Way::Mapped => "mapped",
            Way::Unseen => "unseen",
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}

impl fmt::Display for Holder {
    /// `process 77 (bash) has its working folder in it`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_deref().unwrap_or(Path::new("?")).display();
        let process = || self.process.as_ref().map_or_else(|| "a process".to_owned(), Process::to_string);
        match (&self.way, &self.process) {
            (Way::Mounted, None) => write!(f, "it is mounted on {path}, too"),
            (Way::Mounted, Some(process)) => {
                write!(f, "{process} has it mounted on {path}, in another mount namespace")
            }
            (Way::Overlay, None) => write!(f, "the overlay on {path} has it below"),
            (Way::Overlay, Some(process)) => {
                write!(f, "the overlay on {path}, in the mount namespace of {process}, has it below")
            }
            (Way::Image, _) => write!(f, "a file of it is mounted on {path}"),
            (Way::Loop(device), _) => write!(f, "{device} reads {path}"),
            (Way::Covered, _) => write!(f, "something is mounted on {path}"),
            (Way::WorkingFolder, _) => write!(f, "{} has its working folder in it", process()),
            (Way::RootFolder, _) => write!(f, "{} has its root folder in it", process()),
            (Way::Open, _) => write!(f, "{} has something of it open", process()),
            (Way::Mapped, _) => write!(f, "{} has a file of it mapped", process()),
            (Way::Unseen, _) => f.write_str("something that this user may not look at uses it"),
        }
    }
}

impl Holder {
    /// Of a mount that is served, and nobody was found who uses it.
    pub fn unseen() -> Holder {
        Holder { way: Way::Unseen, process: None, path: None }
    }

    /// The first few in one sentence; `None` of nobody.
    pub fn list(holders: &[Holder]) -> Option<String> {
        let named: Vec<String> = holders.iter().take(NAMED_MAX).map(Holder::to_string).collect();
        let more = match holders.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        (!named.is_empty()).then(|| named.join("; ") + &more)
    }
}

/// Whether this process sees a mount with this device.
pub fn is_mounted_here(device: (u32, u32)) -> bool {
    table::of_device(device).is_some()
}

/// Who keeps the connection with this device when it is not mounted on `point` any more: where else it is mounted, else who
/// uses it. Those whom this user may not look at are not among them. Waits two seconds at most.
pub fn holders(device: (u32, u32), point: &Path) -> Vec<Holder> {
    let found = within(LOOK, {
        let point = point.to_owned();
        move |found| mounts(device, &point, found)
    });
    if found.is_empty() { users(device, point) } else { found }
}

/// Who keeps it from being unmounted from `point`. Waits as [`holders`].
pub(crate) fn users(device: DeviceNumber, point: &Path) -> Vec<Holder> {
    let point = point.to_owned();
    let mut users = within(LOOK, move |found| {
        covers(&table::all(), device, &point, found);
        loops(Path::new("/sys/block"), &point, found);
        processes(device, found);
    });
    // Whoever asks from within the folder is one of them, and no news where there are others.
    let own = std::process::id();
    let is_own = |user: &Holder| user.process.as_ref().is_some_and(|process| process.pid == own);
    if !users.iter().all(is_own) {
        users.retain(|user| !is_own(user));
    }
    users
}

/// What a look on a thread of its own has found, which goes on where it takes longer.
fn within(limit: Duration, look: impl FnOnce(&Sender<Holder>) + Send + 'static) -> Vec<Holder> {
    let (found, all) = mpsc::channel();
    // Without a thread nobody is named.
    let _ = std::thread::Builder::new().name("flatout-holders".to_owned()).spawn(move || look(&found));
    let (end, mut holders) = (Instant::now() + limit, Vec::new());
    loop {
        match all.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(holder) => holders.push(holder),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return holders,
        }
    }
}

/// Mounts of it in every mount namespace, and overlays that lie on it.
fn mounts(device: DeviceNumber, point: &Path, found: &Sender<Holder>) {
    let own = table::all();
    mounts_in(&own, device, point, None, found);
    let mut seen: Vec<(OsString, OsString)> = std::iter::once("self").filter_map(view).collect();
    for pid in pids() {
        let Some(view) = view(&pid.to_string()).filter(|view| !seen.contains(view)) else { continue };
        seen.push(view);
        let Some(table) = table::of_process(&pid.to_string()) else { continue };
        mounts_in(&table, device, point, Some(pid), found);
    }
}

/// What tells apart the tables that processes see: their mount namespace and their root folder.
fn view(pid: &str) -> Option<(OsString, OsString)> {
    let link = |name: &str| Some(fs::read_link(format!("/proc/{pid}/{name}")).ok()?.into_os_string());
    Some((link("ns/mnt")?, link("root")?))
}

/// Those of one table; `pid` is who sees it, where it is not this process.
fn mounts_in(table: &[Mount], device: DeviceNumber, point: &Path, pid: Option<u32>, found: &Sender<Holder>) {
    let say = |way, path: &Path| {
        // Nobody listens any more where this took too long.
        let _ = found.send(Holder { way, process: pid.map(Process::of), path: Some(path.to_owned()) });
    };
    let mut points = vec![point];
    // The number of one that has ended is soon another's, of whatever type.
    for mount in table.iter().filter(|mount| mount.device == device && mount.kind == TYPE) {
        say(Way::Mounted, &mount.point);
        points.push(&mount.point);
    }
    let is_below = |path: &Path| points.iter().any(|point| path.starts_with(point));
    for mount in table {
        if mount.lowers.iter().any(|lower| is_below(lower)) {
            say(Way::Overlay, &mount.point);
        }
    }
}

/// What is mounted on folders of it, and files of it that are mounted without a loop device, as EROFS can be.
fn covers(table: &[Mount], device: DeviceNumber, point: &Path, found: &Sender<Holder>) {
    let say = |way, path: &Path| {
        // As above.
        let _ = found.send(Holder { way, process: None, path: Some(path.to_owned()) });
    };
    let is_it = |mount: &&Mount| mount.device == device && mount.point == point;
    // By what it is mounted on: below the same path there may be mounts that this one hides.
    let ids: Vec<u32> = table.iter().filter(is_it).map(|mount| mount.id).collect();
    for mount in table {
        if ids.contains(&mount.parent) {
            say(Way::Covered, &mount.point);
        }
        if mount.source.starts_with('/') && Path::new(&mount.source).starts_with(point) {
            say(Way::Image, &mount.point);
        }
    }
}

/// Loop devices whose file is one of it. `block` is /sys/block.
fn loops(block: &Path, point: &Path, found: &Sender<Holder>) {
    for entry in fs::read_dir(block).into_iter().flatten().flatten() {
        let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let file = Path::new(file.trim_end_matches('\n'));
        if file.starts_with(point) {
            let device = format!("/dev/{}", entry.file_name().to_string_lossy());
            // As above.
            let _ = found.send(Holder { way: Way::Loop(device), process: None, path: Some(file.into()) });
        }
    }
}

/// Processes that this user may look at, each once.
fn processes(device: DeviceNumber, found: &Sender<Holder>) {
    let say = |way, pid| {
        // As above.
        let _ = found.send(Holder { way, process: Some(Process::of(pid)), path: None });
    };
    // What is mapped comes last: it is the one look that may wait.
    let mut others = Vec::new();
    for pid in pids() {
        match way_of(pid, device) {
            Some(way) => say(way, pid),
            None => others.push(pid),
        }
    }
    for pid in others.into_iter().filter(|pid| has_mapped(*pid, device)) {
        say(Way::Mapped, pid);
    }
}

fn way_of(pid: u32, device: DeviceNumber) -> Option<Way> {
    let is_of_it = |link: &Path| device_behind(link) == Some(device);
    let link = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    if is_of_it(&link("root")) {
        return Some(Way::RootFolder);
    }
    if is_of_it(&link("cwd")) {
        return Some(Way::WorkingFolder);
    }
    let mut open = fs::read_dir(link("fd")).into_iter().flatten().flatten();
    open.any(|entry| is_of_it(&entry.path())).then_some(Way::Open)
}

/// Of what a link below /proc leads to. No file system is asked: nothing but the device is, and that the kernel knows.
fn device_behind(link: &Path) -> Option<DeviceNumber> {
    let about = rustix::fs::statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::empty()).ok()?;
    Some((about.stx_dev_major, about.stx_dev_minor))
}

/// `7f00-7f10 r--p 00000000 00:2f 1234  /mnt/x/file` (proc_pid_maps(5)).
fn has_mapped(pid: u32, (major, minor): DeviceNumber) -> bool {
    let device = format!("{major:02x}:{minor:02x}");
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let is_of_it =
        |line: &[u8]| line.split(|&byte| byte == b' ').nth(3).is_some_and(|word| word == device.as_bytes());
    maps.split(|&byte| byte == b'\n').any(is_of_it)
}

/// In their order.
fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

impl Process {
    fn of(pid: u32) -> Process {
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let command = if command.is_empty() { "ended" } else { command.trim_end_matches('\n') };
        Process { pid, command: command.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(look: impl FnOnce(&Sender<Holder>)) -> Vec<String> {
        let (found, all) = mpsc::channel();
        look(&found);
        drop(found);
        all.iter().map(|holder: Holder| holder.to_string()).collect()
    }

    fn mount(device: DeviceNumber, point: &str, lowers: &[&str]) -> Mount {
        let lowers = lowers.iter().map(PathBuf::from).collect();
        let (kind, source, point) = ("fuse.flatout".to_owned(), "s3://b".to_owned(), point.into());
        Mount { id: device.1, parent: 1, device, point, kind, source, user: None, lowers }
    }

    #[test]
    fn mounts_and_overlays_of_one_table() {
        let table = [
            mount((0, 47), "/elsewhere", &[]),
            mount((0, 48), "/mnt/x", &[]),
            mount((0, 50), "/merged", &["/base", "/mnt/x/sub"]),
            mount((0, 51), "/other", &["/mnt", "/mnt/xy"]),
            mount((0, 52), "/second", &["/elsewhere"]),
            Mount { kind: "tmpfs".into(), ..mount((0, 47), "/dev/shm", &[]) },
        ];
        let said = told(|found| mounts_in(&table, (0, 47), Path::new("/mnt/x"), None, found));
        let want = [
            "it is mounted on /elsewhere, too",
            "the overlay on /merged has it below",
            "the overlay on /second has it below",
        ];
        assert_eq!(said, want);
        let pid = std::process::id();
        let said = told(|found| mounts_in(&table[..1], (0, 47), Path::new("/mnt/x"), Some(pid), found));
        let process = Process::of(pid);
        assert_eq!(said, [format!("{process} has it mounted on /elsewhere, in another mount namespace")]);
    }

    #[test]
    fn what_is_mounted_on_it_and_from_it() {
        let hidden = mount((0, 50), "/mnt/x/hidden", &[]);
        let covered = Mount { parent: 47, ..mount((0, 48), "/mnt/x/sub", &[]) };
        let image = Mount { source: "/mnt/x/image".into(), ..mount((0, 49), "/image", &[]) };
        let table = [mount((0, 47), "/mnt/x", &[]), hidden, covered, image];
        let said = told(|found| covers(&table, (0, 47), Path::new("/mnt/x"), found));
        assert_eq!(said, ["something is mounted on /mnt/x/sub", "a file of it is mounted on /image"]);
    }

    #[test]
    fn loop_devices_are_found_by_their_file() {
        let block = tempfile::tempdir().expect("a folder");
        for (name, file) in [("loop0", "/mnt/x/a b.img\n"), ("loop1", "/mnt/xy/img\n"), ("sda", "")] {
            let folder = block.path().join(name).join("loop");
            fs::create_dir_all(&folder).expect("room");
            if !file.is_empty() {
                fs::write(folder.join("backing_file"), file).expect("room");
            }
        }
        let said = told(|found| loops(block.path(), Path::new("/mnt/x"), found));
        assert_eq!(said, ["/dev/loop0 reads /mnt/x/a b.img"]);
    }

    #[test]
    fn a_list_names_a_few() {
        let process = Process { pid: 7, command: "cat".into() };
        let one = Holder { way: Way::Open, process: Some(process), path: None };
        assert_eq!(Holder::list(&[]), None);
        assert_eq!(
            Holder::list(std::slice::from_ref(&one)).as_deref(),
            Some("process 7 (cat) has something of it open")
        );
        let list = Holder::list(&vec![one; NAMED_MAX + 3]).expect("there are some");
        assert!(list.ends_with("open; and 3 more"), "{list}");
    }

    #[test]
    fn a_look_that_does_not_end_has_what_it_saw() {
        let seen = Holder { way: Way::Mounted, process: None, path: None };
        let first = seen.clone();
        let found = within(Duration::from_millis(50), move |found| {
            found.send(first).expect("somebody listens");
            let (_kept, silent) = mpsc::channel::<()>();
            let _ = silent.recv_timeout(Duration::from_secs(60));
        });
        assert_eq!(found, [seen]);
    }

    #[test]
    fn devices_are_those_that_stat_tells() {
        let file = tempfile::tempfile().expect("a file");
        let about = rustix::fs::fstat(&file).expect("it is open");
        let link = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        let want = (rustix::fs::major(about.st_dev), rustix::fs::minor(about.st_dev));
        assert_eq!(device_behind(Path::new(&link)), Some(want));
        assert_eq!(device_behind(Path::new("/proc/self/fd/none")), None);
    }
}
