//! A store in memory, with a clock that tests turn, pages as short as they like, and a count of what was
//! asked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use flatout_engine::{
    AppendPosition, Bucket, Dialect, EditedPart, Entry, Error, ErrorKind, Listed, Object, UploadEnded,
};
use flatout_tree::store::{
    Copied, FilePut, Head, ListingPages, MemoryAccount, ObjectStore, ObjectUpload, Stored, UploadNotes,
    VersionReader,
};
use flatout_tree::{Cancel, Config, Slices, TreeOf, TreeRoot, WriteMoment};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredObject {
    pub bytes: Vec<u8>,
    pub etag: String,
    pub modified_s: u64,
    pub metadata: Vec<(String, String)>,
    pub content_type: Option<String>,
}

type Keys = BTreeMap<String, StoredObject>;

#[derive(Clone)]
pub struct Memory(pub Arc<Inner>);

pub struct Inner {
    buckets: Mutex<BTreeMap<String, Keys>>,
    versions: AtomicU64,
    pub clock_ms: AtomicU64,
    /// Seconds between 1970 and the beginning of the tree's clock, which may be another than the bucket's.
    pub unix_s: AtomicU64,
    /// Done once the answer to the next HEAD is made, and before it is told.
    pub before_head_is_told: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Done before the next read looks for its version.
    pub before_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// What a HEAD takes.
    pub head_ms: AtomicU64,
    /// Entries of a page that nobody asked to be shorter.
    pub page: AtomicUsize,
    pub lists: AtomicU64,
    pub heads: AtomicU64,
    /// Objects made, copied and deleted.
    pub writes: AtomicU64,
    /// Uploads that have begun and not ended.
    pub uploads: AtomicU64,
    /// Bytes of files that were sent, and that were copied instead.
    pub sent_of_files: AtomicU64,
    pub copied_of_files: AtomicU64,
    /// The object that is copied next is replaced by another client right after that.
    pub replaces_after_copy: AtomicBool,
    /// The copy that is made next is replaced by another client right after that.
    pub replaces_copy: AtomicBool,
    /// So many copies are made, and then none.
    pub copies_before_failure: AtomicU64,
    /// A copy has the ETag of its source, as one of a short object has with most origins.
    pub copies_keep_etags: AtomicBool,
    /// So many steps are taken, and then none: each request has one before it is carried out, and those that
    /// change something another one before their answer.
    pub steps_left: AtomicI64,
    /// Keys of objects that were made by appends.
    pub appendable: Mutex<BTreeSet<String>>,
    pub appends: AtomicU64,
    /// An upload takes no more bytes than these until it is allowed to.
    pub room: Mutex<Option<usize>>,
    pub reads: AtomicU64,
    /// Reads have found their bytes, and wait.
    pub refuses_descriptions: AtomicBool,
    pub refuses_deletions: AtomicBool,
    /// The object of an upload may have been made when it is asked to stop.
    pub stops_too_late: AtomicBool,
    holds_reads: AtomicBool,
    reads_waiting: AtomicUsize,
    /// What every request is answered with.
    pub refuses: Mutex<Option<ErrorKind>>,
    /// Whoever lists ahead panics.
    pub panics_ahead: AtomicBool,
    /// Requests wait here.
    gate: Mutex<Gate>,
    opened: Condvar,
    /// The account says so.
    pub is_over: AtomicBool,
    pub charged: AtomicU64,
    /// What was said to come next.
    pub next: Mutex<Vec<(String, Option<Object>)>>,
    /// Nobody is told an ETag.
    pub has_no_etags: AtomicBool,
    /// Nobody is told a time.
    pub has_no_times: AtomicBool,
}

#[derive(Default)]
struct Gate {
    is_shut: bool,
    waiting: usize,
    most_waiting: usize,
}

pub const BUCKET: &str = "bucket";

pub fn root(prefix: &str) -> TreeRoot {
    TreeRoot::Under(Location::S3 { bucket: BUCKET.into(), key: prefix.into() })
}

impl Memory {
    pub fn new() -> Memory {
        let memory = Memory(Arc::new(Inner {
            buckets: Mutex::default(),
            versions: AtomicU64::new(0),
            clock_ms: AtomicU64::new(1_000_000),
            unix_s: AtomicU64::new(1_599_999_000),
            before_head_is_told: Mutex::default(),
            before_read: Mutex::default(),
            head_ms: AtomicU64::new(0),
            page: AtomicUsize::new(1000),
            lists: AtomicU64::new(0),
            heads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            uploads: AtomicU64::new(0),
            sent_of_files: AtomicU64::new(0),
            copied_of_files: AtomicU64::new(0),
            replaces_after_copy: AtomicBool::new(false),
            replaces_copy: AtomicBool::new(false),
            copies_before_failure: AtomicU64::new(u64::MAX),
            copies_keep_etags: AtomicBool::new(false),
            steps_left: AtomicI64::new(i64::MAX),
            appendable: Mutex::default(),
            appends: AtomicU64::new(0),
            room: Mutex::default(),
            reads: AtomicU64::new(0),
            refuses_descriptions: AtomicBool::new(false),
            refuses_deletions: AtomicBool::new(false),
            stops_too_late: AtomicBool::new(false),
            holds_reads: AtomicBool::new(false),
            reads_waiting: AtomicUsize::new(0),
            refuses: Mutex::default(),
            panics_ahead: AtomicBool::new(false),
            gate: Mutex::default(),
            opened: Condvar::new(),
            is_over: AtomicBool::new(false),
            charged: AtomicU64::new(0),
            next: Mutex::default(),
            has_no_etags: AtomicBool::new(false),
            has_no_times: AtomicBool::new(false),
        }));
        memory.0.buckets.lock().unwrap().insert(BUCKET.into(), Keys::new());
        memory
    }

    pub fn with(keys: &[&str]) -> Memory {
        let memory = Memory::new();
        for key in keys {
            memory.put(key, format!("content of {key}"));
        }
        memory
    }

    pub fn put(&self, key: &str, bytes: impl Into<Vec<u8>>) -> StoredObject {
        self.put_in(BUCKET, key, bytes)
    }

    pub fn put_in(&self, bucket: &str, key: &str, bytes: impl Into<Vec<u8>>) -> StoredObject {
        let modified_s = 1_700_000_000 + self.0.versions.load(Ordering::Relaxed);
        self.put_new(bucket, key, bytes.into(), modified_s)
    }

    /// Within a second that was before.
    pub fn put_at(&self, key: &str, bytes: impl Into<Vec<u8>>, modified_s: u64) -> StoredObject {
        self.put_new(BUCKET, key, bytes.into(), modified_s)
    }

    fn put_new(&self, bucket: &str, key: &str, bytes: Vec<u8>, modified_s: u64) -> StoredObject {
        let number = self.0.versions.fetch_add(1, Ordering::Relaxed);
        let etag = format!("\"{number:032x}\"");
        let object = StoredObject { bytes, etag, modified_s, ..StoredObject::default() };
        self.0.appendable.lock().unwrap().remove(key);
        let mut buckets = self.0.buckets.lock().unwrap();
        buckets.entry(bucket.into()).or_default().insert(key.into(), object.clone());
        object
    }

    /// As another client does.
    pub fn append(&self, key: &str, bytes: &[u8]) -> StoredObject {
        let before = self.object(key).map(|object| object.bytes).unwrap_or_default();
        let object = self.put(key, [&before, bytes].concat());
        self.0.appendable.lock().unwrap().insert(key.to_owned());
        object
    }

    /// As it was.
    pub fn put_again(&self, key: &str, object: StoredObject) {
        self.keys(BUCKET).insert(key.to_owned(), object);
    }

    pub fn delete(&self, key: &str) {
        self.keys(BUCKET).remove(key);
    }

    fn keys(&self, bucket: &str) -> Guarded<'_> {
        Guarded(self.0.buckets.lock().unwrap(), bucket.to_owned())
    }

    pub fn tree(&self, config: Config) -> TreeOf<Memory> {
        self.tree_under("", config)
    }

    pub fn tree_under(&self, prefix: &str, config: Config) -> TreeOf<Memory> {
        TreeOf::new(Arc::new(self.clone()), root(prefix), config).unwrap()
    }

    /// Of the same objects, by the dialect of OSS.
    pub fn oss_tree(&self, config: Config) -> TreeOf<Memory> {
        let root = TreeRoot::Under(Location::Oss { bucket: BUCKET.into(), key: String::new() });
        TreeOf::new(Arc::new(self.clone()), root, config).unwrap()
    }

    pub fn turn_clock(&self, ms: u64) {
        self.0.clock_ms.fetch_add(ms, Ordering::Relaxed);
    }

    pub fn now_ms(&self) -> u64 {
        self.0.clock_ms.load(Ordering::Relaxed)
    }

    /// Requests until now: listings' pages and heads.
    pub fn asked(&self) -> u64 {
        self.0.lists.load(Ordering::Relaxed) + self.0.heads.load(Ordering::Relaxed)
    }

    pub fn refuse(&self, with: impl Into<Option<ErrorKind>>) {
        *self.0.refuses.lock().unwrap() = with.into();
    }

    pub fn shut(&self) {
        *self.0.gate.lock().unwrap() = Gate { is_shut: true, ..Gate::default() };
    }

    /// Lets all requests through; how many waited at once at most.
    pub fn open(&self) -> usize {
        let mut gate = self.0.gate.lock().unwrap();
        gate.is_shut = false;
        self.0.opened.notify_all();
        gate.most_waiting
    }

    /// Waits until so many requests wait. A guard against hanging, no assertion about time.
    pub fn wait_for(&self, requests: usize) {
        for _ in 0..60_000 {
            if self.0.gate.lock().unwrap().waiting >= requests {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{requests} requests never came: {}", self.0.gate.lock().unwrap().waiting);
    }

    pub fn hold_reads(&self, holds: bool) {
        self.0.holds_reads.store(holds, Ordering::SeqCst);
    }

    /// As [`Memory::wait_for`], of reads.
    pub fn wait_for_reads(&self, reads: usize) {
        for _ in 0..60_000 {
            if self.0.reads_waiting.load(Ordering::SeqCst) >= reads {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("{reads} reads never came");
    }

    fn pass(&self) -> Result<(), Error> {
        let mut gate = self.0.gate.lock().unwrap();
        gate.waiting += 1;
        gate.most_waiting = gate.most_waiting.max(gate.waiting);
        while gate.is_shut {
            gate = self.0.opened.wait(gate).unwrap();
        }
        gate.waiting -= 1;
        drop(gate);
        self.step()?;
        let is_ahead = || std::thread::current().name() == Some("tree-ahead");
        assert!(!(self.0.panics_ahead.load(Ordering::Relaxed) && is_ahead()), "as the test says");
        match *self.0.refuses.lock().unwrap() {
            Some(kind) => Err(Error::new(kind, "as the test says")),
            None => Ok(()),
        }
    }

    /// Whether the mount still lives.
    pub fn step(&self) -> Result<(), Error> {
        match self.0.steps_left.fetch_sub(1, Ordering::SeqCst) > 0 {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Network, "the mount was killed")),
        }
    }

    /// As an answer tells it.
    fn shown_etag(&self, object: &StoredObject) -> Option<String> {
        (!self.0.has_no_etags.load(Ordering::Relaxed)).then(|| object.etag.clone())
    }

    fn shown_s(&self, object: &StoredObject) -> u64 {
        if self.0.has_no_times.load(Ordering::Relaxed) { 0 } else { object.modified_s }
    }

    pub fn describe_as(&self, bucket: &str, key: &str, as_: &ObjectOptions) {
        if let Some(object) = self.keys(bucket).get_mut(key) {
            object.metadata = as_.metadata.clone();
            object.content_type = as_.content_type.clone();
        }
    }

    /// All objects of the bucket, and their bytes.
    pub fn objects(&self) -> BTreeMap<String, Vec<u8>> {
        self.keys(BUCKET).iter().map(|(key, object)| (key.clone(), object.bytes.clone())).collect()
    }

    pub fn object(&self, key: &str) -> Option<StoredObject> {
        self.keys(BUCKET).get(key).cloned()
    }
}

struct Guarded<'a>(MutexGuard<'a, BTreeMap<String, Keys>>, String);

impl std::ops::Deref for Guarded<'_> {
    type Target = Keys;

    fn deref(&self) -> &Keys {
        static NONE: Keys = Keys::new();
        self.0.get(&self.1).unwrap_or(&NONE)
    }
}

impl std::ops::DerefMut for Guarded<'_> {
    fn deref_mut(&mut self) -> &mut Keys {
        self.0.entry(self.1.clone()).or_default()
    }
}

fn no_such(what: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("no such {what}"))
}

impl ObjectStore for Memory {
    type VersionReader = Reader;
    type MemoryAccount = Charge;
    type Upload = Upload;

    fn list_deep(&self, under: &Location) -> Result<Box<dyn ListingPages>, Error> {
        self.0.lists.fetch_add(1, Ordering::Relaxed);
        self.pass()?;
        let (bucket, prefix) = under.in_bucket().unwrap();
        let keys = self.keys(bucket);
        let found = keys.iter().filter(|(key, _)| key.starts_with(prefix));
        let entries = found.map(|(key, object)| {
            Entry::Object(Listed {
                key: key.clone(),
                size: object.bytes.len() as u64,
                etag: self.shown_etag(object),
                last_modified: self.shown_s(object),
                storage_class: None,
            })
        });
        Ok(Box::new(Whole(entries.collect())))
    }

    fn put(
        &self,
        to: &Location,
        bytes: Arc<Vec<u8>>,
        as_: &ObjectOptions,
        condition: Condition,
    ) -> Result<Stored, Error> {
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        self.pass()?;
        let (bucket, key) = to.in_bucket().unwrap();
        self.check(bucket, key, &condition)?;
        let object = self.put_in(bucket, key, bytes.to_vec());
        self.describe_as(bucket, key, as_);
        Ok(self.stored(&object))
    }

    fn describe(&self, object: &Location, etag: Option<&str>, as_: &ObjectOptions) -> Result<Stored, Error> {
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        self.pass()?;
        if self.0.refuses_descriptions.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Network, "as the test says"));
        }
        let (bucket, key) = object.in_bucket().unwrap();
        let there = self.keys(bucket).get(key).cloned().ok_or_else(|| no_such("key"))?;
        if etag.is_some() && self.shown_etag(&there).as_deref() != etag {
            return Err(Error::new(ErrorKind::Changed, "another version"));
        }
        let mut object = self.put_in(bucket, key, there.bytes);
        // The same bytes: S3 calls them the same version.
        object.etag = there.etag;
        if let Some(kept) = self.keys(bucket).get_mut(key) {
            kept.etag.clone_from(&object.etag);
        }
        self.describe_as(bucket, key, as_);
        Ok(self.stored(&object))
    }

    fn upload(
        &self,
        to: &Location,
        as_: &ObjectOptions,
        condition: Condition,
        continues: Option<Object>,
        _notes: Option<Arc<dyn UploadNotes>>,
    ) -> Result<Upload, Error> {
        self.0.uploads.fetch_add(1, Ordering::Relaxed);
        let mut bytes = Vec::new();
        if let Some(object) = continues {
            let (bucket, key) = object.location.in_bucket().unwrap();
            let found = self.keys(bucket).get(key).cloned();
            match found.filter(|found| self.shown_etag(found) == object.etag) {
                Some(found) => bytes = found.bytes,
                None => return Err(Error::new(ErrorKind::Changed, "another version")),
            }
        }
        Ok(Upload { memory: self.clone(), to: to.clone(), condition, bytes, as_: as_.clone() })
    }

    fn put_file(&self, put: FilePut<'_>) -> Result<Stored, Error> {
        let FilePut { to, path, as_, edits, condition, withdrawal, .. } = put;
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        let is_withdrawn = Arc::new(AtomicBool::new(false));
        let (memory, flag) = (self.clone(), is_withdrawn.clone());
        let uploading = withdrawal.begin_upload(move || {
            if !memory.0.stops_too_late.load(Ordering::Relaxed) {
                flag.store(true, Ordering::Release);
                memory.open();
            }
        });
        let passed = self.pass();
        drop(uploading);
        if is_withdrawn.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Cancelled, "cancelled"));
        }
        passed?;
        let (bucket, key) = to.in_bucket().unwrap();
        self.check(bucket, key, &condition)?;
        let mut bytes = std::fs::read(path).unwrap();
        let (object, parts) = match edits {
            Some((object, parts)) => (Some(object), parts),
            None => (None, vec![EditedPart { range: 0..bytes.len() as u64, is_copied: false }]),
        };
        for part in parts {
            let count = part.range.end - part.range.start;
            if !part.is_copied {
                self.0.sent_of_files.fetch_add(count, Ordering::Relaxed);
                continue;
            }
            self.0.copied_of_files.fetch_add(count, Ordering::Relaxed);
            let object = object.as_ref().expect("it is edited");
            let (bucket, key) = object.location.in_bucket().unwrap();
            let found = self.keys(bucket).get(key).cloned();
            let found = found.filter(|found| self.shown_etag(found) == object.etag);
            let found = found.ok_or_else(|| Error::new(ErrorKind::Changed, "another version"))?;
            let range = part.range.start as usize..part.range.end as usize;
            bytes[range.clone()].copy_from_slice(&found.bytes[range]);
        }
        let object = self.put_in(bucket, key, bytes);
        self.describe_as(bucket, key, as_);
        self.step()?;
        Ok(self.stored(&object))
    }

    fn append(
        &self,
        to: &Location,
        position: AppendPosition,
        bytes: Arc<Vec<u8>>,
    ) -> Result<(Stored, AppendPosition), Error> {
        self.0.appends.fetch_add(1, Ordering::Relaxed);
        self.pass()?;
        let length = self.object(to.key()).map_or(0, |object| object.bytes.len() as u64);
        if !self.0.appendable.lock().unwrap().contains(to.key()) || length != position.at {
            return Err(Error::new(ErrorKind::Changed, "another client was faster"));
        }
        let made = self.stored(&self.append(to.key(), &bytes));
        let at = made.size;
        Ok((made, AppendPosition { at, ..position }))
    }

    fn copy(
        &self,
        from: &Location,
        to: &Location,
        condition: Condition,
        keeps_time: bool,
        _: Option<Arc<dyn UploadNotes>>,
    ) -> Result<Copied, Error> {
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        self.pass()?;
        let (bucket, key) = from.in_bucket().unwrap();
        let source = self.keys(bucket).get(key).cloned().ok_or_else(|| no_such("key"))?;
        let (bucket, key) = to.in_bucket().unwrap();
        self.check(bucket, key, &condition)?;
        let left = &self.0.copies_before_failure;
        if left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_err() {
            return Err(Error::new(ErrorKind::Network, "as the test says"));
        }
        let mut made = self.put_in(bucket, key, source.bytes.clone());
        made.metadata.clone_from(&source.metadata);
        if keeps_time && !made.metadata.iter().any(|(name, _)| name == "mtime") {
            made.metadata.push(("mtime".into(), source.modified_s.to_string()));
        }
        self.keys(bucket).insert(key.to_owned(), made.clone());
        if self.0.copies_keep_etags.load(Ordering::Relaxed) {
            made.etag.clone_from(&source.etag);
            self.keys(bucket).insert(key.to_owned(), made.clone());
        }
        self.step()?;
        if self.0.replaces_after_copy.swap(false, Ordering::SeqCst) {
            self.put(from.key(), "of another client");
        }
        if self.0.replaces_copy.swap(false, Ordering::SeqCst) {
            self.put(to.key(), "of another client");
        }
        Ok(Copied { from_etag: self.shown_etag(&source), stored: self.stored(&made) })
    }

    fn delete(&self, object: &Location) -> Result<(), Error> {
        self.0.writes.fetch_add(1, Ordering::Relaxed);
        self.pass()?;
        if self.0.refuses_deletions.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Denied, "as the test says"));
        }
        let (bucket, key) = object.in_bucket().unwrap();
        self.keys(bucket).remove(key);
        self.step()
    }

    fn delete_version(&self, object: &Location, etag: &str) -> Result<(), Error> {
        let (bucket, key) = object.in_bucket().unwrap();
        self.check(bucket, key, &Condition::Matches(etag.to_owned()))?;
        ObjectStore::delete(self, object)
    }

    fn list(&self, under: &Location, most: Option<u32>) -> Result<Box<dyn ListingPages>, Error> {
        let (bucket, prefix) = under.in_bucket().unwrap();
        Ok(Box::new(Listing {
            memory: self.clone(),
            bucket: bucket.into(),
            prefix: prefix.into(),
            most: most.map(|most| most as usize),
            after: String::new(),
        }))
    }

    fn head(&self, object: &Location) -> Result<Head, Error> {
        self.0.heads.fetch_add(1, Ordering::Relaxed);
        self.0.clock_ms.fetch_add(self.0.head_ms.load(Ordering::Relaxed), Ordering::Relaxed);
        self.pass()?;
        let (bucket, key) = object.in_bucket().unwrap();
        let keys = self.keys(bucket);
        let object = keys.get(key).cloned();
        drop(keys);
        let told = self.0.before_head_is_told.lock().unwrap().take();
        told.into_iter().for_each(|happens| happens());
        let object = &object.ok_or_else(|| no_such("key"))?;
        Ok(Head {
            size: object.bytes.len() as u64,
            etag: self.shown_etag(object),
            modified_s: self.shown_s(object),
            checksums: Vec::new(),
            is_appendable: self.0.appendable.lock().unwrap().contains(key),
            metadata: object.metadata.clone(),
            content_type: object.content_type.clone(),
        })
    }

    fn buckets(&self, _: Dialect) -> Result<Vec<Bucket>, Error> {
        self.0.lists.fetch_add(1, Ordering::Relaxed);
        self.pass()?;
        let buckets = self.0.buckets.lock().unwrap();
        let listed = buckets.keys().filter(|name| !name.starts_with("foreign"));
        Ok(listed.map(|name| Bucket { name: name.clone(), created: 5 }).collect())
    }

    fn content(&self, version: Object) -> Result<Reader, Error> {
        Ok(Reader { memory: self.clone(), version: Arc::new(version) })
    }

    fn account(&self) -> Charge {
        Charge(self.0.clone())
    }

    fn now_ms(&self) -> u64 {
        self.now_ms()
    }

    fn unix_s(&self) -> i64 {
        (self.0.unix_s.load(Ordering::Relaxed) + self.now_ms() / 1_000) as i64
    }
}

impl Memory {
    fn check(&self, bucket: &str, key: &str, condition: &Condition) -> Result<(), Error> {
        let there = self.keys(bucket).get(key).map(|object| object.etag.clone());
        match condition {
            Condition::None => Ok(()),
            Condition::Absent if there.is_none() => Ok(()),
            Condition::Matches(etag) if there.as_ref() == Some(etag) => Ok(()),
            Condition::Absent | Condition::Matches(_) => {
                Err(Error::new(ErrorKind::Changed, "another version is there"))
            }
        }
    }

    fn stored(&self, object: &StoredObject) -> Stored {
        Stored {
            size: object.bytes.len() as u64,
            etag: self.shown_etag(object),
            modified_s: object.modified_s as i64,
        }
    }

    /// Takes so many more bytes of uploads, and then none; `None` for any number.
    pub fn set_room(&self, bytes: Option<usize>) {
        *self.0.room.lock().unwrap() = bytes;
    }
}

/// An upload; it appears at its end.
pub struct Upload {
    memory: Memory,
    to: Location,
    condition: Condition,
    bytes: Vec<u8>,
    as_: ObjectOptions,
}

impl ObjectUpload for Upload {
    fn write(
        &mut self,
        bytes: &[u8],
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, UploadEnded> {
        loop {
            if self.memory.0.refuses.lock().unwrap().is_some() {
                return Err(UploadEnded);
            }
            let mut room = self.memory.0.room.lock().unwrap();
            if room.is_none_or(|room| room >= bytes.len()) {
                if !goes_on(WriteMoment::Take) {
                    return Ok(false);
                }
                *room = room.map(|room| room - bytes.len());
                self.bytes.extend_from_slice(bytes);
                return Ok(true);
            }
            drop(room);
            if !goes_on(WriteMoment::Wait) {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn finish(mut self) -> Result<Stored, Error> {
        let bytes = Arc::new(std::mem::take(&mut self.bytes));
        ObjectStore::put(&self.memory, &self.to, bytes, &self.as_, self.condition.clone())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.memory.0.uploads.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A listing of one page.
struct Whole(Vec<Entry>);

impl ListingPages for Whole {
    fn next_page(&mut self) -> Result<(Vec<Entry>, bool), Error> {
        Ok((std::mem::take(&mut self.0), true))
    }
}

struct Listing {
    memory: Memory,
    bucket: String,
    prefix: String,
    most: Option<usize>,
    /// The last entry of the page before.
    after: String,
}

impl ListingPages for Listing {
    fn next_page(&mut self) -> Result<(Vec<Entry>, bool), Error> {
        self.memory.0.lists.fetch_add(1, Ordering::Relaxed);
        self.memory.pass()?;
        let most = self.most.unwrap_or_else(|| self.memory.0.page.load(Ordering::Relaxed));
        let keys = self.memory.keys(&self.bucket);
        if !keys.0.contains_key(&self.bucket) {
            return Err(no_such("bucket"));
        }
        let mut entries: Vec<Entry> = Vec::new();
        for (key, object) in keys.iter().filter(|(key, _)| key.starts_with(&self.prefix)) {
            let rest = &key[self.prefix.len()..];
            let entry = match rest.find('/') {
                Some(at) => Entry::Prefix(format!("{}{}", self.prefix, &rest[..=at])),
                None => Entry::Object(Listed {
                    key: key.clone(),
                    size: object.bytes.len() as u64,
                    etag: self.memory.shown_etag(object),
                    last_modified: self.memory.shown_s(object),
                    storage_class: None,
                }),
            };
            if entry.name() <= self.after.as_str() || entries.last() == Some(&entry) {
                continue;
            }
            if entries.len() == most {
                self.after = entries.last().map(|last| last.name().to_owned()).unwrap_or_default();
                return Ok((entries, false));
            }
            entries.push(entry);
        }
        Ok((entries, true))
    }
}

#[derive(Clone)]
pub struct Reader {
    memory: Memory,
    version: Arc<Object>,
}

impl VersionReader for Reader {
    fn read(
        &self,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, Error>) + Send + 'static,
    ) -> Option<Cancel> {
        self.memory.0.reads.fetch_add(1, Ordering::Relaxed);
        let happens = self.memory.0.before_read.lock().unwrap().take();
        happens.into_iter().for_each(|happens| happens());
        let (bucket, key) = self.version.location.in_bucket().unwrap();
        let object = self.memory.keys(bucket).get(key).cloned();
        self.memory.0.reads_waiting.fetch_add(1, Ordering::SeqCst);
        while self.memory.0.holds_reads.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.memory.0.reads_waiting.fetch_sub(1, Ordering::SeqCst);
        let why = match object {
            None => no_such("key"),
            Some(object) if self.memory.shown_etag(&object) != self.version.etag => {
                Error::new(ErrorKind::Changed, "another version")
            }
            Some(object)
                if self.version.etag.is_none() && self.version.modified_s != Some(object.modified_s) =>
            {
                Error::new(ErrorKind::Changed, "of another time")
            }
            Some(object) => {
                let at = (at as usize).min(object.bytes.len());
                let slice = &object.bytes[at..(at + bytes).min(object.bytes.len())];
                done(Ok(&mut std::iter::once(slice)));
                return None;
            }
        };
        done(Err(why));
        None
    }

    fn set_next(&self, next: impl FnOnce() -> Option<Object> + Send + 'static) {
        let key = self.version.location.key().to_owned();
        self.memory.0.next.lock().unwrap().push((key, next()));
    }
}

pub struct Charge(Arc<Inner>);

impl MemoryAccount for Charge {
    fn set(&mut self, bytes: u64) {
        self.0.charged.store(bytes, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.0.is_over.load(Ordering::Relaxed)
    }
}
