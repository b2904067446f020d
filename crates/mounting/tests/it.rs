//! Mounts on the real kernel by the library alone, several in one process, as a CSI driver has them.
#![allow(clippy::unwrap_used)] // Test code throughout; clippy.toml's exception knows only functions marked #[test].

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use flatout_engine::{Client, Config, ErrorKind};
use flatout_mounting::{
    MountLog, MountOptions, MountPlan, MountSession, MountSource, Shutdown, StatusEndpoints, list_root,
    running_mounts,
};
use flatout_server::{Origin, Store};
use flatout_wire::location::Location;

/// An origin with a bucket for each name, and in it one file that holds the name.
struct Buckets {
    origin: Origin,
    _files: tempfile::TempDir,
}

impl Buckets {
    fn new(names: &[&str]) -> Buckets {
        let files = tempfile::tempdir().unwrap();
        for name in names {
            fs::create_dir(files.path().join(name)).unwrap();
            fs::write(files.path().join(name).join("file"), name).unwrap();
        }
        let store = Store::Root(files.path().to_owned());
        let origin = Origin::start(flatout_server::Options::new(store)).unwrap();
        Buckets { origin, _files: files }
    }

    fn client(&self) -> Arc<Client> {
        let mut config = Config::default();
        config.settings.endpoint_url = Some(self.origin.url());
        config.settings.no_sign_request = true;
        Arc::new(Client::new(config).unwrap())
    }
}

/// A mount of a bucket: its folder `mnt` and that of its socket, and the lines of its log.
struct Mount {
    session: MountSession,
    shutdown: Shutdown,
    lines: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
}

fn plan(source: &str, mount_point: &Path, options: &str) -> MountPlan {
    let options = MountOptions::parse(&[options.to_owned()], false).unwrap();
    let mut settings = flatout_settings::Settings::default();
    for (name, value) in &options.knobs {
        settings.set(name, value).unwrap();
    }
    let source = MountSource::under(&Location::parse(source).unwrap()).unwrap();
    MountPlan::new(source, mount_point, settings, &options).unwrap()
}

impl Mount {
    fn new(buckets: &Buckets, source: &str, options: &str) -> Mount {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("mnt")).unwrap();
        let plan = plan(source, &folder.path().join("mnt"), options);
        let lines = Arc::<Mutex<Vec<String>>>::default();
        let written = lines.clone();
        let log = Arc::new(MountLog::new(
            move |line| written.lock().unwrap().push(line.to_owned()),
            |hint| format!("{hint:?}"),
        ));
        let (tree, note) = list_root(&buckets.client(), &plan, None).unwrap();
        assert_eq!(note, None);
        let endpoints = StatusEndpoints::bind(&[folder.path().join("status")], None).unwrap();
        let shutdown = Shutdown::default();
        let session = MountSession::start(plan, tree, endpoints, &log, &shutdown, None).unwrap();
        Mount { session, shutdown, lines, folder }
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("mnt/file")
    }
}

#[test]
fn several_mounts_of_one_process_have_their_own_content_statistics_and_end() {
    let buckets = Buckets::new(&["first", "second"]);
    let first = Mount::new(&buckets, "s3://first", "file_mode=0400,ro");
    let mut second = Mount::new(&buckets, "s3://second", "memory=64MiB");
    assert_eq!(fs::read_to_string(first.file()).unwrap(), "first");
    assert_eq!(fs::read_to_string(second.file()).unwrap(), "second");
    for (mount, source, limit) in [(&first, "s3://first", None), (&second, "s3://second", Some(64 << 20))] {
        let running = running_mounts(&[mount.folder.path().join("status")]);
        let [running] = running.as_slice() else { panic!("{} mounts", running.len()) };
        assert_eq!(running.stats.source, source);
        assert!(limit.is_none_or(|limit| running.stats.memory.limit_bytes == limit));
        assert_eq!((mount.session.stats())().bytes.fetched, source.len() as u64 - 5);
    }
    assert_eq!(second.shutdown.request(false).unwrap(), []);
    second.session.wait().unwrap();
    assert_eq!(*second.lines.lock().unwrap().last().unwrap(), "unmounted");
    assert!(!second.file().exists());
    // Its statistics can be asked for until it is dropped.
    let status = second.folder.path().join("status");
    assert_eq!(running_mounts(std::slice::from_ref(&status)).len(), 1);
    drop(second.session);
    assert_eq!(fs::read_dir(&status).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(first.file()).unwrap(), "first", "the other one stays");
}

#[test]
fn a_mount_in_use_ends_lazily_or_when_its_session_is_dropped() {
    let buckets = Buckets::new(&["bucket"]);
    let mut mount = Mount::new(&buckets, "s3://bucket", "");
    let open = fs::File::open(mount.file()).unwrap();
    assert!(mount.shutdown.request(false).unwrap_err().to_string().starts_with("umount: "));
    mount.shutdown.request(true).unwrap();
    assert!(!mount.file().exists());
    drop(open);
    mount.session.wait().unwrap();
    let dropped = Mount::new(&buckets, "s3://bucket", "");
    drop(dropped.session);
    assert!(!dropped.folder.path().join("mnt/file").exists());
}

#[test]
fn a_shutdown_before_the_mount_ends_it() {
    let buckets = Buckets::new(&["bucket"]);
    let folder = tempfile::tempdir().unwrap();
    let (plan, log) =
        (plan("s3://bucket", folder.path(), ""), Arc::new(MountLog::new(|_| {}, |hint| format!("{hint:?}"))));
    let (tree, _) = list_root(&buckets.client(), &plan, None).unwrap();
    let shutdown = Shutdown::default();
    shutdown.request(false).unwrap();
    let endpoints = StatusEndpoints::bind(&[], None).unwrap();
    MountSession::start(plan, tree, endpoints, &log, &shutdown, None).unwrap().wait().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_root_that_cannot_be_mounted_is_refused_with_what_to_do() {
    let buckets = Buckets::new(&["bucket"]);
    let folder = tempfile::tempdir().unwrap();
    let check = |source: &str, kind: ErrorKind, says: &str, hint: Option<&str>| {
        let refused =
            list_root(&buckets.client(), &plan(source, folder.path(), ""), None).map(drop).unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
        assert!(refused.to_string().starts_with(says), "{refused}");
        let shown = refused.hint().map(ToString::to_string);
        assert!(hint.is_none() || shown.as_deref() == hint, "{shown:?}");
    };
    let folder_of_it = Some("mount the folder that it lies in: s3://bucket");
    check("s3://bucket/file", ErrorKind::Usage, "mount: s3://bucket/file: is an object", folder_of_it);
    check("s3://none", ErrorKind::NotFound, "mount: s3://none: ", None);
    let (_, note) = list_root(&buckets.client(), &plan("s3://bucket/none", folder.path(), ""), None).unwrap();
    assert!(note.unwrap().starts_with("mount: s3://bucket/none/: nothing lies under this prefix"));
}
