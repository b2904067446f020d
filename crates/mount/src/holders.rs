//! What keeps a mount from its end: another mount namespace, an overlay, a loop device, a process. It reads
//! the kernel's tables, and uses statx(2) without asking the file system: nothing here waits for a daemon.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags};

use crate::options::TYPE;
use crate::table::{self, MountEntry};
use crate::tuning::DeviceNumber;

/// Reading a process's maps waits while the kernel changes them. After this, the result is what was found so
/// far.
const LOOK: Duration = Duration::from_secs(2);

/// The most holders in one sentence.
const NAMED_MAX: usize = 5;

/// Something that keeps a mount from its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountHolder {
    pub kind: HolderKind,
    /// The process that uses it; for a mount in another mount namespace, a process in that namespace.
    pub process: Option<HolderProcess>,
    /// Where it, or the overlay, is mounted; or the file that is read.
    pub path: Option<PathBuf>,
}

/// A process by its number and its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderProcess {
    pub pid: u32,
    pub command: String,
}

/// How it is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderKind {
    /// It is also mounted somewhere else: by `mount --bind`, or in a copied namespace.
    Mounted,
    /// It is a lower layer of an overlay.
    Overlay,
    /// A file of it is mounted.
    Image,
    /// This loop device uses a file of it.
    Loop(String),
    /// Something is mounted on a folder of it.
    Covered,
    WorkingFolder,
    RootFolder,
    Open,
    Mapped,
    /// It is still served, and this user may not see why.
    Unseen,
}

impl HolderKind {
    /// For JSON.
    pub fn name(&self) -> &'static str {
        match self {
            HolderKind::Mounted => "mount",
            HolderKind::Overlay => "overlay",
            HolderKind::Image => "image",
            HolderKind::Loop(_) => "loop",
            HolderKind::Covered => "covered",
            HolderKind::WorkingFolder => "working_folder",
            HolderKind::RootFolder => "root_folder",
            HolderKind::Open => "open",
            HolderKind::Mapped => "mapped",
            HolderKind::Unseen => "unseen",
        }
    }
}

impl fmt::Display for HolderProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.command)
    }
}

impl fmt::Display for MountHolder {
    /// `process 77 (bash) has its working folder in it`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.as_deref().unwrap_or(Path::new("?")).display();
        let process =
            || self.process.as_ref().map_or_else(|| "a process".to_owned(), HolderProcess::to_string);
        match (&self.kind, &self.process) {
            (HolderKind::Mounted, None) => write!(f, "it is mounted on {path}, too"),
            (HolderKind::Mounted, Some(process)) => {
                write!(f, "{process} has it mounted on {path}, in another mount namespace")
            }
            (HolderKind::Overlay, None) => write!(f, "the overlay on {path} has it below"),
            (HolderKind::Overlay, Some(process)) => {
                write!(f, "the overlay on {path}, in the mount namespace of {process}, has it below")
            }
            (HolderKind::Image, _) => write!(f, "a file of it is mounted on {path}"),
            (HolderKind::Loop(device), _) => write!(f, "{device} reads {path}"),
            (HolderKind::Covered, _) => write!(f, "something is mounted on {path}"),
            (HolderKind::WorkingFolder, _) => write!(f, "{} has its working folder in it", process()),
            (HolderKind::RootFolder, _) => write!(f, "{} has its root folder in it", process()),
            (HolderKind::Open, _) => write!(f, "{} has something of it open", process()),
            (HolderKind::Mapped, _) => write!(f, "{} has a file of it mapped", process()),
            (HolderKind::Unseen, _) => f.write_str("something that this user may not look at uses it"),
        }
    }
}

impl MountHolder {
    /// The holder of a mount that is still served though none was found.
    pub fn unseen() -> MountHolder {
        MountHolder { kind: HolderKind::Unseen, process: None, path: None }
    }

    /// The first few in one sentence; `None` if there are none.
    pub fn list(holders: &[MountHolder]) -> Option<String> {
        let named: Vec<String> = holders.iter().take(NAMED_MAX).map(MountHolder::to_string).collect();
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

/// Whether the process `pid` sees a mount with this device: it may have a namespace of its own. If it is
/// gone, or this user may not read its mount table, the table of this process counts.
pub fn is_mounted_for(pid: u32, device: (u32, u32)) -> bool {
    let mounts = table::of_process(&pid.to_string()).filter(|mounts| !mounts.is_empty());
    mounts.unwrap_or_else(table::all).iter().any(|mount| mount.device == device)
}

/// What keeps the connection with this device alive when it is not mounted on `point` any more: other mounts
/// of it, or else its users. Processes that this user may not look at are missing. Waits at most two seconds.
pub fn holders(device: (u32, u32), point: &Path) -> Vec<MountHolder> {
    let found = within(LOOK, {
        let point = point.to_owned();
        move |found| mounts(device, &point, found)
    });
    if found.is_empty() { users(device, point) } else { found }
}

/// What keeps it from being unmounted from `point`. Waits at most two seconds.
pub(crate) fn users(device: DeviceNumber, point: &Path) -> Vec<MountHolder> {
    let point = point.to_owned();
    let mut users = within(LOOK, move |found| {
        covers(&table::all(), device, &point, found);
        loops(Path::new("/sys/block"), &point, found);
        processes(device, found);
    });
    // A caller whose working folder is in the mount is one of them, and not worth naming beside others.
    let own = std::process::id();
    let is_own = |user: &MountHolder| user.process.as_ref().is_some_and(|process| process.pid == own);
    if !users.iter().all(is_own) {
        users.retain(|user| !is_own(user));
    }
    users
}

/// What `look` finds within this time, on a thread of its own that may take longer.
fn within(limit: Duration, look: impl FnOnce(&Sender<MountHolder>) + Send + 'static) -> Vec<MountHolder> {
    let (found, all) = mpsc::channel();
    // Without a thread, no holder is named.
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
fn mounts(device: DeviceNumber, point: &Path, found: &Sender<MountHolder>) {
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

/// The mount table that a process sees depends on these: its mount namespace and its root folder.
fn view(pid: &str) -> Option<(OsString, OsString)> {
    let link = |name: &str| Some(fs::read_link(format!("/proc/{pid}/{name}")).ok()?.into_os_string());
    Some((link("ns/mnt")?, link("root")?))
}

/// Those of one table; `pid` is a process that sees it, unless this one does.
fn mounts_in(
    table: &[MountEntry],
    device: DeviceNumber,
    point: &Path,
    pid: Option<u32>,
    found: &Sender<MountHolder>,
) {
    let say = |kind, path: &Path| {
        // Too late: there is no receiver any more.
        let _ = found.send(MountHolder {
            kind,
            process: pid.map(HolderProcess::of),
            path: Some(path.to_owned()),
        });
    };
    let mut points = vec![point];
    // The number of a mount that has ended is soon used again, by a mount of any type.
    let is_ours = |mount: &&MountEntry| mount.kind == TYPE || mount.is_image();
    for mount in table.iter().filter(|mount| mount.device == device).filter(is_ours) {
        say(HolderKind::Mounted, &mount.point);
        points.push(&mount.point);
    }
    let is_below = |path: &Path| points.iter().any(|point| path.starts_with(point));
    for mount in table {
        if mount.lowers.iter().any(|lower| is_below(lower)) {
            say(HolderKind::Overlay, &mount.point);
        }
    }
}

/// Mounts on folders of it, and files of it that are mounted without a loop device, as EROFS can be.
fn covers(table: &[MountEntry], device: DeviceNumber, point: &Path, found: &Sender<MountHolder>) {
    let say = |kind, path: &Path| {
        // Perhaps too late.
        let _ = found.send(MountHolder { kind, process: None, path: Some(path.to_owned()) });
    };
    let is_it = |mount: &&MountEntry| mount.device == device && mount.point == point;
    // By the parent's number: below the same path there may be mounts that this one hides.
    let ids: Vec<u32> = table.iter().filter(is_it).map(|mount| mount.id).collect();
    for mount in table {
        if ids.contains(&mount.parent) {
            say(HolderKind::Covered, &mount.point);
        }
        if mount.source.starts_with('/') && Path::new(&mount.source).starts_with(point) {
            say(HolderKind::Image, &mount.point);
        }
    }
}

/// Loop devices that use a file of it. `block` is /sys/block.
fn loops(block: &Path, point: &Path, found: &Sender<MountHolder>) {
    for entry in fs::read_dir(block).into_iter().flatten().flatten() {
        let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        let file = Path::new(file.trim_end_matches('\n'));
        if file.starts_with(point) {
            let device = format!("/dev/{}", entry.file_name().to_string_lossy());
            // Perhaps too late.
            let _ = found.send(MountHolder {
                kind: HolderKind::Loop(device),
                process: None,
                path: Some(file.into()),
            });
        }
    }
}

/// Processes that this user may look at, each once.
fn processes(device: DeviceNumber, found: &Sender<MountHolder>) {
    let say = |kind, pid| {
        // Perhaps too late.
        let _ = found.send(MountHolder { kind, process: Some(HolderProcess::of(pid)), path: None });
    };
    // Maps come last: reading them may wait.
    let mut others = Vec::new();
    for pid in pids() {
        match kind_of(pid, device) {
            Some(kind) => say(kind, pid),
            None => others.push(pid),
        }
    }
    for pid in others.into_iter().filter(|pid| has_mapped(*pid, device)) {
        say(HolderKind::Mapped, pid);
    }
}

fn kind_of(pid: u32, device: DeviceNumber) -> Option<HolderKind> {
    let is_of_it = |link: &Path| device_behind(link) == Some(device);
    let link = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
    if is_of_it(&link("root")) {
        return Some(HolderKind::RootFolder);
    }
    if is_of_it(&link("cwd")) {
        return Some(HolderKind::WorkingFolder);
    }
    let mut open = fs::read_dir(link("fd")).into_iter().flatten().flatten();
    open.any(|entry| is_of_it(&entry.path())).then_some(HolderKind::Open)
}

/// The device of a link's target in /proc. The kernel knows it without asking the file system.
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

/// All processes that this one sees, in order.
fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut pids: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

impl HolderProcess {
    fn of(pid: u32) -> HolderProcess {
        let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let command = if command.is_empty() { "ended" } else { command.trim_end_matches('\n') };
        HolderProcess { pid, command: command.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IMAGE_NAME;

    fn found(look: impl FnOnce(&Sender<MountHolder>)) -> Vec<String> {
        let (found, all) = mpsc::channel();
        look(&found);
        drop(found);
        all.iter().map(|holder: MountHolder| holder.to_string()).collect()
    }

    fn mount(device: DeviceNumber, point: &str, lowers: &[&str]) -> MountEntry {
        let lowers = lowers.iter().map(PathBuf::from).collect();
        let (kind, source, point) = ("fuse.flatout".to_owned(), "s3://b".to_owned(), point.into());
        MountEntry { id: device.1, parent: 1, device, point, kind, source, user: None, lowers }
    }

    #[test]
    fn mounts_and_overlays_of_one_table() {
        let erofs = |source: &str, point: &str| MountEntry {
            kind: "erofs".into(),
            source: source.into(),
            ..mount((0, 47), point, &[])
        };
        let table = [
            mount((0, 47), "/elsewhere", &[]),
            mount((0, 48), "/mnt/x", &[]),
            mount((0, 50), "/merged", &["/base", "/mnt/x/sub"]),
            mount((0, 51), "/other", &["/mnt", "/mnt/xy"]),
            mount((0, 52), "/second", &["/elsewhere"]),
            MountEntry { kind: "tmpfs".into(), ..mount((0, 47), "/dev/shm", &[]) },
            erofs(&format!("/proc/self/fd/9/{IMAGE_NAME}"), "/of-an-index"),
            erofs("/images/another", "/of-another"),
        ];
        let said = found(|found| mounts_in(&table, (0, 47), Path::new("/mnt/x"), None, found));
        let want = [
            "it is mounted on /elsewhere, too",
            "it is mounted on /of-an-index, too",
            "the overlay on /merged has it below",
            "the overlay on /second has it below",
        ];
        assert_eq!(said, want);
        let pid = std::process::id();
        let said = found(|found| mounts_in(&table[..1], (0, 47), Path::new("/mnt/x"), Some(pid), found));
        let process = HolderProcess::of(pid);
        assert_eq!(said, [format!("{process} has it mounted on /elsewhere, in another mount namespace")]);
    }

    #[test]
    fn what_is_mounted_on_it_and_from_it() {
        let hidden = mount((0, 50), "/mnt/x/hidden", &[]);
        let covered = MountEntry { parent: 47, ..mount((0, 48), "/mnt/x/sub", &[]) };
        let image = MountEntry { source: "/mnt/x/image".into(), ..mount((0, 49), "/image", &[]) };
        let table = [mount((0, 47), "/mnt/x", &[]), hidden, covered, image];
        let said = found(|found| covers(&table, (0, 47), Path::new("/mnt/x"), found));
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
        let said = found(|found| loops(block.path(), Path::new("/mnt/x"), found));
        assert_eq!(said, ["/dev/loop0 reads /mnt/x/a b.img"]);
    }

    #[test]
    fn a_list_names_a_few() {
        let process = HolderProcess { pid: 7, command: "cat".into() };
        let one = MountHolder { kind: HolderKind::Open, process: Some(process), path: None };
        assert_eq!(MountHolder::list(&[]), None);
        assert_eq!(
            MountHolder::list(std::slice::from_ref(&one)).as_deref(),
            Some("process 7 (cat) has something of it open")
        );
        let list = MountHolder::list(&vec![one; NAMED_MAX + 3]).expect("there are some");
        assert!(list.ends_with("open; and 3 more"), "{list}");
    }

    #[test]
    fn a_look_that_does_not_end_has_what_it_saw() {
        let seen = MountHolder { kind: HolderKind::Mounted, process: None, path: None };
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
