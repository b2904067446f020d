//! A bucket as a folder: the tree and the engine behind a real mount, and the development origin behind
//! these.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatout_engine::{Client, Config, ErrorKind};
use flatout_mount::{Observer, OnError, Session, mount};
use flatout_server::{Fault, FaultKind, FaultPlan, Origin, Store};
use flatout_tree::{Tree, TreeRoot};
use flatout_wire::location::Location;

use crate::held::{options, until};

/// What a bucket holds, an origin that serves it, and a mount of that.
struct Bucket {
    /// The files themselves.
    files: tempfile::TempDir,
    point: tempfile::TempDir,
    session: Option<Session>,
    told: Arc<Mutex<Vec<ErrorKind>>>,
    _origin: Origin,
}

impl Bucket {
    fn new(fault_plan: FaultPlan) -> Bucket {
        let files = tempfile::tempdir().unwrap();
        let bucket = files.path().join("bucket");
        for (name, bytes) in
            [("a/b/deep", 3 << 20), ("a/empty", 0), ("small", 1000), ("large", 20 << 20), ("a/x y", 5)]
        {
            let path = bucket.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let content: Vec<u8> =
                (0..bytes).map(|at: usize| (at * 7 + at / 251 + name.len()) as u8).collect();
            fs::write(path, content).unwrap();
        }
        let store = Store::Root(files.path().to_owned());
        let origin =
            Origin::start(flatout_server::Options { fault_plan, ..flatout_server::Options::new(store) })
                .unwrap();
        let mut config = Config::default();
        config.settings.endpoint_url = Some(origin.url());
        config.settings.no_sign_request = true;
        let client = Arc::new(Client::new(config).unwrap());
        let root = TreeRoot::Under(Location::parse("s3://bucket/").unwrap());
        let tree = Arc::new(Tree::new(client, root, flatout_tree::Config::default()).unwrap());
        let point = tempfile::tempdir().unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let on_error: Arc<OnError> = {
            let told = told.clone();
            Arc::new(move |error| told.lock().unwrap().push(error.kind()))
        };
        let observer = Observer { on_error: Some(on_error), ..Observer::default() };
        let session = mount(&options(point.path())).unwrap().serve(tree, observer).unwrap();
        Bucket { files, point, session: Some(session), told, _origin: origin }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.files.path().join("bucket").join(name)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.point.path().join(name)
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        drop(self.session.take());
        let _ = Command::new("umount").arg("-l").arg(self.point.path()).stderr(Stdio::null()).status();
    }
}

/// Every file below, by its path, with its bytes.
fn all(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let entry = entry.unwrap();
            match entry.metadata().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => {
                    let name = entry.path().strip_prefix(folder).unwrap().to_owned();
                    found.insert(name, fs::read(entry.path()).unwrap());
                }
            }
        }
    }
    found
}

#[test]
fn a_bucket_is_a_folder() {
    let bucket = Bucket::new(FaultPlan::default());
    assert!(all(bucket.point.path()) == all(&bucket.file("")));
    // Once more from what is known, and copied by a program.
    let copy = tempfile::tempdir().unwrap();
    let status = Command::new("cp").arg("-r").arg(bucket.path(".")).arg(copy.path()).status().unwrap();
    assert!(status.success());
    assert!(all(copy.path()) == all(&bucket.file("")));
    assert_eq!(fs::metadata(bucket.path("nothing")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    assert!(bucket.told.lock().unwrap().is_empty(), "{:?}", bucket.told.lock().unwrap());
}

#[test]
fn large_objects_are_read_directly_and_here_and_there() {
    let bucket = Bucket::new(FaultPlan::default());
    let plain = fs::read(bucket.file("large")).unwrap();
    for flags in [0, libc::O_DIRECT] {
        let file = fs::File::options().read(true).custom_flags(flags).open(bucket.path("large")).unwrap();
        let mut space = vec![0; (1 << 20) + 4096];
        let start = space.as_ptr().align_offset(4096);
        let bytes = &mut space[start..][..1 << 20];
        for at in [0, 1 << 20, 19 << 20, 7 << 20, 4096, 20 << 20] {
            let had = file.read_at(bytes, at).unwrap();
            let want = &plain[at as usize..plain.len().min(at as usize + bytes.len())];
            assert!(bytes[..had] == *want, "{flags:o} {at}");
        }
    }
}

#[test]
fn readers_side_by_side_have_the_same_bytes() {
    let bucket = Bucket::new(FaultPlan::default());
    let plain = fs::read(bucket.file("large")).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(fs::read(bucket.path("large")).unwrap() == plain));
        }
    });
    let stats = bucket.session.as_ref().unwrap().stats();
    assert_eq!((stats.defects, stats.malformed), (0, 0));
}

#[test]
fn a_reader_of_a_dead_origin_can_be_killed() {
    let stall = Fault { chance: 1.0, kind: FaultKind::Stall(Duration::from_secs(3600)) };
    let bucket = Bucket::new(FaultPlan { faults: vec![stall], ..FaultPlan::default() });
    let mut cat = Command::new("cat").arg(bucket.path("large")).stdout(Stdio::null()).spawn().unwrap();
    let session = bucket.session.as_ref().unwrap();
    until(|| (session.stats().waiting > 0).then_some(()));
    cat.kill().unwrap();
    until(|| cat.try_wait().unwrap());
    // And the mount goes, whatever still waits.
    session.unmounter().unmount(true).unwrap();
}
