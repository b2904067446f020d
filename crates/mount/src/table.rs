//! The mount table: the kernel's mountinfo. Reading it never waits for a file system.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// The name of the file that is an image, by which mounts of images are told from others: the kernel shows
/// its path as their source.
pub const IMAGE_NAME: &str = "flatout-image";

/// The type of such a mount.
pub(crate) const IMAGE_TYPE: &str = "erofs";

/// A row of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    pub id: u32,
    /// The mount that it is mounted on.
    pub parent: u32,
    /// Major and minor of what `stat(2)` says of its files.
    pub device: (u32, u32),
    pub point: PathBuf,
    /// `fuse.flatout`.
    pub kind: String,
    /// The name that the mounting process gave.
    pub source: String,
    /// For a mount of FUSE: the user who mounted it.
    pub user: Option<u32>,
    /// For an overlay: its lower folders, as the mounting process named them.
    pub lowers: Vec<PathBuf>,
}

impl MountEntry {
    /// Whether it is an image that Flatout serves.
    pub fn is_image(&self) -> bool {
        self.kind == IMAGE_TYPE && self.source.ends_with(&format!("/{IMAGE_NAME}"))
    }
}

/// The mount that is visible at this path.
pub fn at(point: &Path) -> Option<MountEntry> {
    stacked_at(point).into_iter().next()
}

/// The mounts at this path: the visible one first, and each lies on the next.
pub fn stacked_at(point: &Path) -> Vec<MountEntry> {
    stacked(all().into_iter().filter(|mount| mount.point == point).collect())
}

/// The order of the rows does not tell: one that was mounted beneath another has a later row.
fn stacked(mut rows: Vec<MountEntry>) -> Vec<MountEntry> {
    let carries = |row: &MountEntry, other: &MountEntry| other.parent == row.id && other.id != row.id;
    let is_top = |row: &MountEntry| !rows.iter().any(|other| carries(row, other));
    let mut next = rows.iter().rposition(is_top);
    let mut stack = Vec::new();
    while let Some(at) = next {
        let mount = rows.remove(at);
        next = rows.iter().position(|row| row.id == mount.parent);
        stack.push(mount);
    }
    stack
}

/// Where a connection of FUSE is mounted.
pub(crate) fn of_device(device: (u32, u32)) -> Option<MountEntry> {
    all().into_iter().find(|mount| mount.device == device)
}

/// All mounts that this process sees.
pub(crate) fn all() -> Vec<MountEntry> {
    of_process("self").unwrap_or_default()
}

/// All mounts that a process sees; `None` if this user may not look.
pub(crate) fn of_process(pid: &str) -> Option<Vec<MountEntry>> {
    let bytes = std::fs::read(format!("/proc/{pid}/mountinfo")).ok()?;
    Some(bytes.split(|&byte| byte == b'\n').filter_map(row).collect())
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`: id, parent, device, root, point,
/// options, some fields, a dash, type, source, options (proc_pid_mountinfo(5)).
fn row(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|&byte| byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (id, parent) = (word()?.parse().ok()?, word()?.parse().ok()?);
    let (major, minor) = word()?.split_once(':')?;
    let device = (major.parse().ok()?, minor.parse().ok()?);
    let point = PathBuf::from(OsString::from_vec(unescape(words.nth(1)?)));
    words.find(|word| word == b"-")?;
    let kind = String::from_utf8_lossy(words.next()?).into_owned();
    let source = String::from_utf8_lossy(&unescape(words.next()?)).into_owned();
    // A comma within an option is escaped.
    let options: Vec<Vec<u8>> = words.next()?.split(|&byte| byte == b',').map(unescape).collect();
    let user = |option: &Vec<u8>| std::str::from_utf8(option.strip_prefix(b"user_id=")?).ok()?.parse().ok();
    let user = options.iter().find_map(user);
    let lowers = options.iter().flat_map(|option| lowers(option)).collect();
    Some(MountEntry { id, parent, device, point, kind, source, user, lowers })
}

/// `lowerdir=/a:/b\:c`, or `lowerdir+=/a` once for each: a colon within a name has a backslash
/// (overlayfs.rst).
fn lowers(option: &[u8]) -> Vec<PathBuf> {
    if let Some(one) = option.strip_prefix(b"lowerdir+=") {
        return vec![OsStr::from_bytes(one).into()];
    }
    let Some(mut rest) = option.strip_prefix(b"lowerdir=") else { return Vec::new() };
    let mut names = vec![Vec::new()];
    while let Some((&byte, behind)) = rest.split_first() {
        rest = behind;
        match (byte, names.last_mut().expect("there is always one")) {
            (b':', _) => names.push(Vec::new()),
            (b'\\', name) => {
                name.extend(rest.first());
                rest = rest.get(1..).unwrap_or_default();
            }
            (byte, name) => name.push(byte),
        }
    }
    // Two colons stand before layers of data alone.
    names.into_iter().filter(|name| !name.is_empty()).map(|name| OsString::from_vec(name).into()).collect()
}

/// Blanks, tabs, line ends and backslashes are written as three octal digits.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, behind)) = rest.split_first() {
        let escaped = (byte == b'\\').then(|| octal(behind.get(..3)?)).flatten();
        plain.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &behind[3..] } else { behind };
    }
    plain
}

fn octal(digits: &[u8]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, want: Option<((u32, u32), &str, &str)>) {
        let row = row(line.as_bytes());
        let got = row.as_ref().map(|row| (row.device, row.point.to_str().unwrap(), row.kind.as_str()));
        assert_eq!(got, want, "{line}");
    }

    #[test]
    fn rows_name_source_and_user() {
        let check = |line: &str, source: &str, user| {
            let row = row(line.as_bytes()).expect(line);
            assert_eq!((row.source.as_str(), row.user), (source, user), "{line}");
        };
        check(
            r"36 35 0:47 / /m ro - fuse.flatout s3://b/my\040k ro,user_id=65534,group_id=0",
            "s3://b/my k",
            Some(65534),
        );
        check("36 35 0:47 / /m ro shared:7 - ext4 /dev/root rw", "/dev/root", None);
    }

    #[test]
    fn rows_are_read() {
        check(
            "36 35 0:47 / /mnt/x ro,nosuid,nodev,noatime shared:7 master:1 - fuse.flatout s3://b/k ro,user_id=0",
            Some(((0, 47), "/mnt/x", "fuse.flatout")),
        );
        check(
            r"36 35 0:47 / /a\040b\134c\011 ro - fuse.flatout x ro",
            Some(((0, 47), "/a b\\c\t", "fuse.flatout")),
        );
        check("36 35 0:47 / /mnt/x ro", None);
        check("36 35 47 / /mnt/x ro - fuse x ro", None);
        check("", None);
        check(r"36 35 0:1 / /a\04 ro - fuse x ro", Some(((0, 1), r"/a\04", "fuse")));
        check(r"36 35 0:1 / /a\ ro - fuse x ro", Some(((0, 1), r"/a\", "fuse")));
    }

    #[test]
    fn overlays_name_what_they_lie_on() {
        let check = |options: &str, want: &[&str]| {
            let line = format!("36 35 0:47 / /m rw - overlay overlay {options}");
            let got = row(line.as_bytes()).expect(options).lowers;
            assert_eq!(got, want.iter().map(PathBuf::from).collect::<Vec<_>>(), "{options}");
        };
        check("rw,lowerdir=/mnt/x,upperdir=/u,workdir=/w", &["/mnt/x"]);
        check(r"ro,lowerdir=/a\040b:/c\134:d:/e\054f", &["/a b", "/c:d", "/e,f"]);
        check("ro,lowerdir+=/a:b,lowerdir+=/c,datadir+=/d", &["/a:b", "/c"]);
        check("ro,lowerdir=/a::/data", &["/a", "/data"]);
        check("rw", &[]);
    }

    #[test]
    fn the_visible_mount_lies_on_the_others() {
        let check = |rows: &[(u32, u32)], want: &[u32]| {
            let row = |(id, parent): &(u32, u32)| {
                row(format!("{id} {parent} 0:{id} / /m ro - erofs x ro").as_bytes()).expect("a row")
            };
            let ids: Vec<u32> = stacked(rows.iter().map(row).collect()).iter().map(|row| row.id).collect();
            assert_eq!(ids, want, "{rows:?}");
        };
        check(&[], &[]);
        check(&[(42, 27)], &[42]);
        check(&[(42, 27), (43, 42), (44, 43)], &[44, 43, 42]);
        // As Linux 6.18 shows it after MOVE_MOUNT_BENEATH.
        check(&[(42, 43), (43, 27)], &[42, 43]);
        // A mount over the folder above hides the first.
        check(&[(42, 27), (50, 44)], &[50]);
        // The root of a namespace may be its own parent.
        check(&[(1, 1)], &[1]);
        check(&[(1, 1), (22, 1)], &[22, 1]);
    }

    #[test]
    fn the_own_table_has_proc() {
        assert_eq!(at(Path::new("/proc")).map(|mount| mount.kind), Some("proc".to_owned()));
        assert_eq!(at(Path::new("/proc/self")), None);
    }
}
