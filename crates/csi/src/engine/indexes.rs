//! The indexes of an engine's volumes: files in a folder of the node that its engines share. They are made
//! beside the calls that want them, which kubelet gives up after a while.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use flatout_engine::{Error, ErrorKind};
use flatout_erofs::Options;
use flatout_mounting::MountLog;
use flatout_settings::format_size;
use flatout_volume::{BuildEvent, ListedObjects, Wanted, build_index, get_version, kept_name, open_index};
use flatout_wire::location::Location;
use tonic::Code;

use super::volumes::Connected;
use crate::link::{Contents, Failure, new_number};
use crate::volume::{Volume, VolumeIndex};

/// How long a call waits for an index. Kubelet calls again, and the index is further along by then.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How often the log hears of a listing.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// Keys without a file that the log names; of more there is only a count.
const NAMED_MOST: u64 = 10;
/// How often unused indexes are looked for. The second look removes them.
const SWEPT_EVERY: Duration = Duration::from_secs(600);
/// How long an index is kept that was fetched, after its last use.
const FETCHED_FOR: Duration = Duration::from_secs(86_400);
/// What the names of fetched ones begin with.
const FETCHED: &str = "object-";

/// An index whose file stays as long as this: whoever has it open keeps it locked.
#[derive(Debug)]
pub struct KeptIndex {
    pub contents: Contents,
    _lock: File,
}

impl KeptIndex {
    /// The index at that path; `None` if there is none, or it is not whole.
    pub fn open(path: &Path) -> Option<KeptIndex> {
        let lock = File::open(path).ok()?;
        lock.lock_shared().ok()?;
        // It may have been removed by whoever had locked it.
        let is_same = fs::metadata(path).ok()?.ino() == lock.metadata().ok()?.ino();
        let totals = open_index("mount", path).ok()?.totals();
        let contents = Contents { files: totals.files, folders: totals.folders, bytes: totals.file_bytes };
        is_same.then(|| KeptIndex { contents, _lock: lock })
    }
}

/// An index that is being made.
pub struct Build {
    pub connected: Arc<Connected>,
    keys: AtomicU64,
    is_unwanted: AtomicBool,
    /// Once it is over.
    ended: Mutex<Option<Result<(), Failure>>>,
    changed: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All of an engine.
pub struct Indexes {
    folder: PathBuf,
    /// By the names of the indexes.
    builds: Mutex<HashMap<String, Arc<Build>>>,
}

/// What is to be indexed.
pub struct Request<'a> {
    /// The name of the index, which no other has.
    pub name: &'a str,
    pub volume: &'a Volume,
    pub connected: Arc<Connected>,
    pub log: Arc<MountLog>,
}

impl Indexes {
    pub fn new(folder: PathBuf) -> Arc<Indexes> {
        let indexes = Arc::new(Indexes { folder, builds: Mutex::default() });
        let swept = Arc::downgrade(&indexes);
        let sweep = move || {
            let mut seen = HashSet::new();
            loop {
                thread::sleep(SWEPT_EVERY);
                let Some(indexes) = swept.upgrade() else { return };
                // What cannot be looked at now is looked at the next time.
                let _ = indexes.sweep(&mut seen);
            }
        };
        // Without a thread files stay until there is an engine with one.
        let _ = thread::Builder::new().name("indexes".into()).spawn(sweep);
        indexes
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.flat"))
    }

    /// The one of that name that is being made.
    pub fn build(&self, name: &str) -> Option<Arc<Build>> {
        lock(&self.builds).get(name).cloned()
    }

    /// The index, which is made if it is not there. That goes on when this gives up.
    ///
    /// # Errors
    /// `Unavailable`: it is not there yet; and why it cannot be made.
    pub fn ready(self: &Arc<Indexes>, request: Request<'_>) -> Result<KeptIndex, Failure> {
        let path = self.path(request.name);
        if let Some(kept) = KeptIndex::open(&path) {
            return Ok(kept);
        }
        let (source, is_fetched) =
            (request.volume.source.clone(), request.volume.index != Some(VolumeIndex::Listed));
        let build = self.begin(request)?;
        let ended =
            build.changed.wait_timeout_while(lock(&build.ended), READY_WITHIN, |ended| ended.is_none());
        let ended = ended.unwrap_or_else(PoisonError::into_inner).0.clone();
        match ended {
            Some(Ok(())) => KeptIndex::open(&path)
                .ok_or_else(|| Failure::new(Code::Unavailable, "its index is gone: it is made again")),
            Some(Err(failure)) => Err(failure),
            None if is_fetched => Err(Failure::new(Code::Unavailable, "its index is being fetched")),
            None => {
                let keys = build.keys.load(Ordering::Relaxed);
                Err(Failure::new(
                    Code::Unavailable,
                    format!("its index is being made: {keys} keys of {source} were listed so far"),
                ))
            }
        }
    }

    fn begin(self: &Arc<Indexes>, request: Request<'_>) -> Result<Arc<Build>, Failure> {
        let Request { name, volume, connected, log } = request;
        let mut builds = lock(&self.builds);
        if let Some(build) = builds.get(name) {
            return Ok(build.clone());
        }
        let refused = |error: io::Error| Failure::internal(&self.folder.display().to_string(), &error);
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(refused)?;
        let build = Arc::new(Build {
            connected,
            keys: AtomicU64::new(0),
            is_unwanted: AtomicBool::new(false),
            ended: Mutex::default(),
            changed: Condvar::new(),
        });
        let (indexes, own, name, volume) = (self.clone(), build.clone(), name.to_owned(), volume.clone());
        let key = name.clone();
        let work = move || {
            let made = indexes.make(&own, &name, &volume, &log);
            if let Err(failure) = &made
                && !own.is_unwanted()
            {
                log.say(&format!("its index: {}", failure.message));
            }
            // The next call begins anew where it failed.
            lock(&indexes.builds).retain(|_, known| !Arc::ptr_eq(known, &own));
            *lock(&own.ended) = Some(made);
            own.changed.notify_all();
        };
        thread::Builder::new().name("index".into()).spawn(work).map_err(refused)?;
        builds.insert(key, build.clone());
        Ok(build)
    }

    fn make(&self, build: &Build, name: &str, volume: &Volume, log: &MountLog) -> Result<(), Failure> {
        let source = Location::parse(&volume.source)
            .map_err(|error| Failure::new(Code::InvalidArgument, error.to_string()))?;
        match &volume.index {
            Some(VolumeIndex::Object(url)) => {
                let object = Location::parse(url)
                    .map_err(|error| Failure::new(Code::InvalidArgument, error.to_string()))?;
                self.fetch(build, name, &object, &source, log)
            }
            Some(VolumeIndex::Listed) | None => self.list(build, name, &source, log),
        }
    }

    fn list(&self, build: &Build, name: &str, source: &Location, log: &MountLog) -> Result<(), Failure> {
        let began = Instant::now();
        let mount = &build.connected.settings().mount;
        // Nobody writes.
        let mode = |mode: u32| (mode & 0o555) as u16;
        let options = Options {
            source: source.to_string(),
            uid: mount.uid.unwrap_or(0),
            gid: mount.gid.unwrap_or(0),
            file_mode: mode(mount.file_mode),
            folder_mode: mode(mount.folder_mode),
        };
        let wanted = Wanted { doing: "build", prefix: source.key().to_owned(), options };
        log.say(&format!("its index: {source} is listed"));
        let mut told = Instant::now();
        let records = ListedObjects::under(&build.connected.client, source)?.map(|record| {
            let keys = build.keys.fetch_add(1, Ordering::Relaxed) + 1;
            if told.elapsed() >= TOLD_EVERY {
                told = Instant::now();
                log.say(&format!("its index: {keys} keys were listed so far"));
            }
            if build.is_unwanted() { Err(unwanted()) } else { record }
        });
        let mut named = 0;
        let part = self.part(name);
        let built = build_index(&part, &wanted, records, |event| {
            if let BuildEvent::LeftOut { key, why } = event
                && named < NAMED_MOST
            {
                named += 1;
                log.say(&format!("its index: {key}: left out: {why}"));
            }
            Ok(())
        })?;
        let left_out = built.left_out;
        let summary = built.publish()?;
        let given = self.give(build, name, &part);
        let _ = fs::remove_file(&part);
        given?;
        log.say(&format!(
            "its index: {} files in {} folders, {}; it takes {}; listed in {:.1} s; {left_out} keys left out",
            summary.files,
            summary.folders,
            format_size(summary.file_bytes),
            format_size(summary.index_bytes),
            began.elapsed().as_secs_f64()
        ));
        Ok(())
    }

    fn fetch(
        &self,
        build: &Build,
        name: &str,
        object: &Location,
        source: &Location,
        log: &MountLog,
    ) -> Result<(), Failure> {
        let local = |error: io::Error| Failure::internal(&self.folder.display().to_string(), &error);
        let stat = build.connected.client.stat(object)?;
        let fetched = self.fetched(build, object, stat.version.etag.as_deref());
        let kept = KeptIndex::open(&fetched);
        if kept.is_none() {
            log.say(&format!("its index: {object} is fetched"));
            let part = self.part(name);
            let get = get_version(object, stat.version.etag.as_deref(), part.clone());
            build.connected.client.get(get)?.wait()?;
            fs::rename(&part, &fetched).map_err(local)?;
        }
        let checked = check(&fetched, object, source);
        if checked.is_err() {
            let _ = fs::remove_file(&fetched);
        }
        checked?;
        // It was used now.
        let touched = File::options().append(true).open(&fetched);
        let _ = touched.and_then(|file| file.set_modified(SystemTime::now()));
        self.give(build, name, &fetched)
    }

    /// Gives the file the name of the index.
    fn give(&self, build: &Build, name: &str, made: &Path) -> Result<(), Failure> {
        let own = self.path(name);
        // Whoever lets it go meanwhile waits, and removes it.
        let _builds = lock(&self.builds);
        if build.is_unwanted() {
            return Err(unwanted().into());
        }
        let linked = link_index(made, &own);
        linked.map_err(|error| Failure::internal(&own.display().to_string(), &error))
    }

    /// A file that is not whole yet, of this process.
    fn part(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.{:x}.part", new_number()))
    }

    /// Where that version of an object is kept.
    fn fetched(&self, build: &Build, object: &Location, etag: Option<&str>) -> PathBuf {
        let name = kept_name(object, build.connected.settings(), etag);
        self.folder.join(format!("{FETCHED}{name}"))
    }

    /// No volume wants it any more. Who has it open keeps it.
    pub fn let_go(&self, name: &str) {
        let builds = lock(&self.builds);
        if let Some(build) = builds.get(name) {
            build.is_unwanted.store(true, Ordering::SeqCst);
        }
        let _ = fs::remove_file(self.path(name));
    }

    /// Removes what nobody has open, and nobody had at the last look: what engines have left that were away
    /// when their volumes went.
    fn sweep(&self, seen: &mut HashSet<OsString>) -> io::Result<()> {
        let mut found = HashSet::new();
        for entry in fs::read_dir(&self.folder)?.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Ok(file) = File::open(&path) else { continue };
            if file.try_lock().is_err() {
                continue;
            }
            let age = file.metadata()?.modified()?.elapsed().unwrap_or_default();
            let is_old = match name.to_string_lossy().starts_with(FETCHED) {
                true => age >= FETCHED_FOR,
                false => seen.contains(&name) && age >= SWEPT_EVERY,
            };
            if is_old {
                let _ = fs::remove_file(&path);
            } else {
                found.insert(name);
            }
        }
        *seen = found;
        Ok(())
    }
}

impl Build {
    fn is_unwanted(&self) -> bool {
        self.is_unwanted.load(Ordering::SeqCst)
    }
}

fn unwanted() -> Error {
    Error::new(ErrorKind::Cancelled, "the volume was unpublished meanwhile")
}

/// Gives a file this name as well. An index that has it stays: an engine may serve it, and the kernel knows
/// what is in it. Engines that follow one another may make the same index at once.
fn link_index(made: &Path, own: &Path) -> io::Result<()> {
    let link = || fs::hard_link(made, own);
    match link() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match KeptIndex::open(own) {
            Some(_) => Ok(()),
            None => fs::remove_file(own).and_then(|()| link()),
        },
        linked => linked,
    }
}

/// Whether a fetched file is an index of this volume's objects: whoever may write to a bucket must not choose
/// what else the volume's keys open.
fn check(path: &Path, object: &Location, source: &Location) -> Result<(), Failure> {
    let invalid = |why: String| Failure::new(Code::InvalidArgument, format!("index: {object}: {why}"));
    let index = open_index("mount", path).map_err(|error| invalid(error.cause().to_string()))?;
    let of = Location::parse(index.source()).ok();
    let is_below = of.as_ref().is_some_and(|of| {
        (of.scheme(), of.bucket()) == (source.scheme(), source.bucket()) && of.key().starts_with(source.key())
    });
    match is_below {
        true => Ok(()),
        false => Err(invalid(format!("it is an index of {}, and the volume is {source}", index.source()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index_of(path: &Path, source: &str) {
        let wanted = Wanted {
            doing: "build",
            prefix: String::new(),
            options: Options { source: source.to_owned(), ..Options::default() },
        };
        let built = build_index(path, &wanted, std::iter::empty(), |_| Ok(())).unwrap();
        built.publish().unwrap();
    }

    #[test]
    fn an_index_of_other_objects_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        let check = |of: &str, source: &str| {
            index_of(&path, of);
            let object = Location::parse("s3://b/i.flat").unwrap();
            check(&path, &object, &Location::parse(source).unwrap()).map_err(|failure| failure.message)
        };
        assert_eq!(check("s3://b/train/", "s3://b/train/"), Ok(()));
        assert_eq!(check("s3://b/train/", "s3://b"), Ok(()));
        for (of, source) in [
            ("s3://b", "s3://b/train/"),
            ("s3://b/training/", "s3://b/train/"),
            ("s3://other/train/", "s3://b/train/"),
            ("oss://b/train/", "s3://b/train/"),
        ] {
            let why = check(of, source).unwrap_err();
            assert!(why.contains("it is an index of"), "{why}");
        }
        fs::write(&path, "no index").unwrap();
        let object = Location::parse("s3://b/i.flat").unwrap();
        assert!(
            super::check(&path, &object, &object).unwrap_err().message.starts_with("index: s3://b/i.flat: ")
        );
    }

    /// An engine that begins to serve while the one before it still lists makes the same index again.
    #[test]
    fn an_index_that_is_there_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (own, made) = (folder.path().join("own"), folder.path().join("made"));
        index_of(&made, "s3://first");
        link_index(&made, &own).unwrap();
        index_of(&made, "s3://second");
        link_index(&made, &own).unwrap();
        assert_eq!(open_index("mount", &own).unwrap().source(), "s3://first");
        fs::remove_file(&own).unwrap();
        fs::write(&own, "no index").unwrap();
        link_index(&made, &own).unwrap();
        assert_eq!(open_index("mount", &own).unwrap().source(), "s3://second");
    }

    #[test]
    fn what_nobody_has_open_is_swept_at_the_second_look() {
        let folder = tempfile::tempdir().unwrap();
        let indexes = Indexes { folder: folder.path().to_owned(), builds: Mutex::default() };
        let old = SystemTime::now() - SWEPT_EVERY - Duration::from_secs(1);
        for name in ["used", "left", "object-1", "young"] {
            index_of(&indexes.path(name), "s3://b");
            if name != "young" {
                File::options().append(true).open(indexes.path(name)).unwrap().set_modified(old).unwrap();
            }
        }
        let used = KeptIndex::open(&indexes.path("used")).unwrap();
        let mut seen = HashSet::new();
        let left = |indexes: &Indexes| {
            let names = ["left", "object-1", "used", "young"];
            names.into_iter().filter(|name| indexes.path(name).exists()).collect::<Vec<_>>()
        };
        indexes.sweep(&mut seen).unwrap();
        assert_eq!(left(&indexes), ["left", "object-1", "used", "young"]);
        indexes.sweep(&mut seen).unwrap();
        assert_eq!(left(&indexes), ["object-1", "used", "young"]);
        indexes.let_go("used");
        assert_eq!(left(&indexes), ["object-1", "young"]);
        assert_eq!((used.contents.files, used.contents.folders), (0, 1));
        assert!(KeptIndex::open(&indexes.path("used")).is_none());
    }
}
