//! Images judged by others: `fsck.erofs` and `dump.erofs` of erofs-utils, and as root the kernel, by a mount
//! over a loop device.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use flatout_erofs::{Index, Kind, Options, ROOT};
use proptest::prelude::*;
use tempfile::TempDir;

use crate::model::{Tree, build, file, folder_times, shown, trees};

/// Runs a program; panics with the remedy if it is missing.
fn run(program: &str, arguments: &[&OsStr]) -> Output {
    let output = Command::new(program).args(arguments).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}: run `sudo make deps` (erofs-utils, mount)"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

/// An index as EROFS sees it where it is served: as long as its data are, which are zeros, but for a hash of
/// its path at the start and end of each file that has room for both.
fn image(folder: &TempDir, tree: &Tree, options: Options) -> PathBuf {
    let bytes = build(tree, options).0;
    let path = folder.path().join("image");
    fs::write(&path, &bytes).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let index = Index::open(&bytes[..]).unwrap();
    file.set_len(index.image_bytes()).unwrap();
    let mut open = vec![(PathBuf::new(), ROOT)];
    while let Some((folder, nid)) = open.pop() {
        for entry in index.entries(&index.inode(nid).unwrap()) {
            let entry = entry.unwrap();
            let inode = index.inode(entry.nid).unwrap();
            let path = folder.join(OsStr::from_bytes(&entry.name));
            if inode.kind == Kind::Folder {
                open.push((path, inode.nid));
            } else if inode.size >= 16 {
                let at = u64::from(inode.start_block) * 4096;
                let hash = hash(&path);
                file.write_all_at(&hash, at).unwrap();
                file.write_all_at(&hash, at + inode.size - 8).unwrap();
            }
        }
    }
    path
}

/// A hash of a path below the root of the mount.
fn hash(path: &Path) -> [u8; 8] {
    let mut hasher = DefaultHasher::new();
    path.as_os_str().as_bytes().hash(&mut hasher);
    hasher.finish().to_le_bytes()
}

fn check_fsck(tree: &Tree, options: Options) {
    let folder = tempfile::tempdir().unwrap();
    let image = image(&folder, tree, options);
    let output = run("fsck.erofs", &[OsStr::new("-d9"), image.as_os_str()]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("No errors found"), "{}", said(&output));
}

/// Trees whose folders have all shapes. Files of a folder have different sizes.
fn shapes() -> Tree {
    let mut tree = Tree::new();
    for count in (0..300).step_by(7) {
        tree.extend(
            (0..count).map(|name| (format!("{count}/{name:020}").into_bytes(), file(count + name * 61))),
        );
    }
    tree.extend((0..3000).map(|name| {
        (format!("{name:04}-f/{}", "x".repeat(name % 200 + 1)).into_bytes(), file(name as u64 + 3))
    }));
    // Some with data, which take room in the image.
    let size = |name: u64| if name.is_multiple_of(50) { name } else { name % 15 };
    tree.extend((0..100_000).map(|name| (format!("flat/{name}").into_bytes(), file(size(name)))));
    tree.insert(b"zz/empty/".to_vec(), file(0));
    tree
}

#[test]
fn fsck_finds_no_error_in_folders_of_all_shapes() {
    check_fsck(&shapes(), Options::default());
    check_fsck(
        &shapes(),
        Options { uid: 100_000, gid: 5, file_mode: 0o640, folder_mode: 0o750, ..Options::default() },
    );
    check_fsck(&Tree::new(), Options::default());
}

#[test]
fn fsck_reads_every_file() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(&folder, &shapes(), Options::default());
    let output = run("fsck.erofs", &[OsStr::new("--extract"), image.as_os_str()]);
    assert!(output.status.success(), "{}", said(&output));
}

/// fsck would say so if names were in another order.
#[test]
fn fsck_finds_errors() {
    let folder = tempfile::tempdir().unwrap();
    let image = image(
        &folder,
        &Tree::from([(b"aaaa1".to_vec(), file(1)), (b"aaaa2".to_vec(), file(2))]),
        Options::default(),
    );
    let mut head = vec![0; 1 << 16];
    let device = OpenOptions::new().read(true).write(true).open(&image).unwrap();
    device.read_exact_at(&mut head, 0).unwrap();
    let at = head.windows(5).position(|name| name == b"aaaa2").unwrap();
    device.write_all_at(b"aaaa0", at as u64).unwrap();
    let output = run("fsck.erofs", &[image.as_os_str()]);
    assert!(
        !output.status.success() && said(&output).contains("wrong dirent name order"),
        "{}",
        said(&output)
    );
}

#[test]
fn dump_shows_superblock_and_inodes() {
    let folder = tempfile::tempdir().unwrap();
    let mut tree: Tree =
        (0..20).map(|name| (format!("in/{name:03}").into_bytes(), file(name * 5000))).collect();
    tree.insert(b"large".to_vec(), file(5 << 30));
    let image = image(&folder, &tree, Options { uid: 7, gid: 8, ..Options::default() });
    let dump = |arguments: &[&str]| {
        let mut all: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        all.push(image.as_os_str());
        let output = run("dump.erofs", &all);
        assert!(output.status.success(), "{}", said(&output));
        said(&output).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let superblock = dump(&["-s"]);
    for line in ["inode count: 23", "root nid: 36", "features: sb_csum mtime"] {
        assert!(superblock.contains(line), "{superblock}");
    }
    let large = dump(&["--path=/large"]);
    for line in
        ["Size: 5368709120", "Layout: 0", "Inode size: 64", "Uid: 7 Gid: 8 Access: 0444", "2023-11-14"]
    {
        assert!(large.contains(line), "{large}");
    }
    let small = dump(&["--path=/in/007"]);
    for line in ["Size: 35000", "Layout: 0", "Inode size: 32", "Links: 1"] {
        assert!(small.contains(line), "{small}");
    }
    let inline = dump(&["--path=/in"]);
    for line in ["directory", "Layout: 2", "Inode size: 32", "Links: 2"] {
        assert!(inline.contains(line), "{inline}");
    }
}

/// A mount that ends with its owner.
struct Mounted(TempDir);

impl Mounted {
    fn new(image: &Path) -> Mounted {
        assert!(rustix::process::geteuid().is_root(), "run as root: the kernel mounts EROFS for nobody else");
        // As of `uname -r`.
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let release = release.trim();
        assert!(
            is_since_6_15(release),
            "run on Linux 6.15 or later: Linux {release} shows 1970 as the time of compact inodes"
        );
        let at = tempfile::tempdir().unwrap();
        let options = ["-t", "erofs", "-o", "ro,loop"].map(OsStr::new);
        let output = run("mount", &[&options[..], &[image.as_os_str(), at.path().as_os_str()]].concat());
        assert!(output.status.success(), "{}", said(&output));
        Mounted(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let at = self.0.path().as_os_str();
        // The child of a test beside this one has our open files until it becomes another program.
        for _ in 0..100 {
            if run("umount", &[at]).status.success() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let output = run("umount", &[OsStr::new("--lazy"), at]);
        assert!(output.status.success() || thread::panicking(), "{}", said(&output));
    }
}

fn is_since_6_15(release: &str) -> bool {
    let mut numbers =
        release.split(|byte: char| !byte.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    let (major, minor): (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    (major, minor) >= (6, 15)
}

#[test]
fn releases_of_linux() {
    let table = [("6.18.44-x1", true), ("6.15.0", true), ("6.15", true), ("7.0-rc1", true), ("10.2", true)];
    let before = [("6.14.9", false), ("6.1.0-37-amd64", false), ("5.19.0", false), ("", false)];
    for (release, expected) in table.into_iter().chain(before) {
        assert_eq!(is_since_6_15(release), expected, "{release}");
    }
}

/// The size of a file, time, mode, and both owners.
type Row = (Option<u64>, i64, u32, u32, u32);

/// The files and folders of a mount, by path.
fn walk(root: &Path) -> BTreeMap<Vec<u8>, Row> {
    let mut found = BTreeMap::new();
    let mut open = vec![PathBuf::new()];
    while let Some(path) = open.pop() {
        let mut folders = 0;
        for entry in fs::read_dir(root.join(&path)).unwrap() {
            let entry = entry.unwrap();
            let path = path.join(entry.file_name());
            let status = fs::symlink_metadata(root.join(&path)).unwrap();
            assert_eq!(entry.file_type().unwrap(), status.file_type());
            let size = status.is_file().then_some(status.len());
            if size.is_none() {
                folders += 1;
                open.push(path.clone());
            } else {
                check_data(root, &path, status.len());
            }
            let row = (size, status.mtime(), status.mode() & 0o7777, status.uid(), status.gid());
            found.insert(path.as_os_str().as_bytes().to_vec(), row);
        }
        assert_eq!(fs::metadata(root.join(&path)).unwrap().nlink(), 2 + folders);
    }
    found
}

/// The data begin and end with the hash of the path: [`image`] wrote both.
fn check_data(root: &Path, path: &Path, size: u64) {
    let file = fs::File::open(root.join(path)).unwrap();
    let (mut start, mut end) = ([0; 8], [0; 8]);
    if size >= 16 {
        file.read_exact_at(&mut start, 0).unwrap();
        file.read_exact_at(&mut end, size - 8).unwrap();
        assert_eq!((start, end), (hash(path), hash(path)), "{path:?}");
    }
}

fn check_kernel(tree: &Tree, options: Options) {
    let folder = tempfile::tempdir().unwrap();
    let mounted = Mounted::new(&image(&folder, tree, options.clone()));
    let times = folder_times(tree);
    let Options { uid, gid, file_mode, folder_mode, .. } = options;
    let row = |(path, file): (&Vec<u8>, &Option<crate::model::File>)| {
        let row = match file {
            Some(file) => (Some(file.size), file.modified_s, file_mode.into(), uid, gid),
            None => (None, times[path], folder_mode.into(), uid, gid),
        };
        (path.clone(), row)
    };
    let expected: BTreeMap<_, _> = shown(tree).iter().map(row).collect();
    let found = walk(mounted.0.path());
    for (path, row) in &expected {
        assert_eq!(found.get(path), Some(row), "{:?}", String::from_utf8_lossy(path));
    }
    assert_eq!(found.len(), expected.len());
    for name in ["no such", "zzz", "!", "~"] {
        let is_there = mounted.0.path().join(name).exists();
        assert_eq!(is_there, expected.contains_key(name.as_bytes()), "{name}");
    }
}

#[test]
fn the_kernel_shows_folders_of_all_shapes() {
    check_kernel(
        &shapes(),
        Options { uid: 100_000, gid: 5, file_mode: 0o640, folder_mode: 0o750, ..Options::default() },
    );
    check_kernel(&Tree::new(), Options::default());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(32) })]

    #[test]
    fn fsck_finds_no_error_in_random_trees(tree in trees(60)) {
        check_fsck(&tree, Options::default());
    }

    #[test]
    fn the_kernel_shows_random_trees(tree in trees(60)) {
        check_kernel(&tree, Options { uid: 3, ..Options::default() });
    }
}
