//! The reference model: whatever programs do while another client changes the bucket, every answer is what
//! the bucket was like at some moment that the lifetimes allow, and no file is a mixture of two versions.
//!
//! The history of every key is kept. An answer that says it was told `age` ago must fit the bucket as it was
//! at some moment since; a `.lookup` that fails must fit a moment within the negative lifetime; an open with
//! close-to-open the bucket of now.

mod history;

use flatout_tree::OpenMode;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::atomic::Ordering;

use history::{History, Seen};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::memory::Memory;
use crate::nobody;
use crate::*;

/// Keys that get in each other's way: files and folders of one name, names that sort between them, markers.
const KEYS: [&str; 12] =
    ["a", "a-", "a/x", "a/y", "a/y/z", "a0", "b", "b/", "c/d/e", "c/d/f", "c/d.1", "c/g"];
/// What is asked for besides.
const PATHS: [&str; 7] = ["a/y/none", "none", "c", "c/d", "c/d/none", "a/x/y", "c/none"];

#[derive(Clone, Debug)]
enum Step {
    Put(Index, u8),
    Delete(Index),
    Turn(u16),
    Find(Index),
    Attributes(Index),
    Forget(Index, u8),
    OpenFolder(Index),
    ReadFolder { handle: Index, from: From, entries: u8, plus: bool },
    ReleaseFolder(Index),
    Open(Index),
    Read { handle: Index, at: u8, bytes: u8 },
    Release(Index),
}

/// Where a folder is read from.
#[derive(Clone, Copy, Debug)]
enum From {
    Start,
    Where,
    Seen(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<Index>;
    let from = prop_oneof![
        2 => Just(From::Start),
        4 => Just(From::Where),
        1 => index().prop_map(From::Seen),
    ];
    let step = prop_oneof![
        4 => (index(), any::<u8>()).prop_map(|(key, size)| Step::Put(key, size)),
        2 => index().prop_map(Step::Delete),
        3 => (0..1500u16).prop_map(Step::Turn),
        6 => index().prop_map(Step::Find),
        3 => index().prop_map(Step::Attributes),
        1 => (index(), 1..3u8).prop_map(|(ino, times)| Step::Forget(ino, times)),
        2 => index().prop_map(Step::OpenFolder),
        6 => (index(), from, 0..9u8, any::<bool>())
            .prop_map(|(handle, from, entries, plus)| Step::ReadFolder { handle, from, entries, plus }),
        1 => index().prop_map(Step::ReleaseFolder),
        4 => index().prop_map(Step::Open),
        6 => (index(), any::<u8>(), any::<u8>())
            .prop_map(|(handle, at, bytes)| Step::Read { handle, at, bytes }),
        1 => index().prop_map(Step::Release),
    ];
    proptest::collection::vec(step, 1..60)
}

/// What the caller knows, as the kernel would.
struct Run {
    memory: Memory,
    tree: TreeOf<Memory>,
    history: History,
    lifetime_ms: u64,
    negative_ms: u64,
    close_to_open: bool,
    /// Path, kind and lookups of each inode that is looked up.
    inodes: BTreeMap<u64, (String, FileKind, u64)>,
    /// What stat(2) showed of each name: the same for all its versions.
    numbers: BTreeMap<(String, bool), u64>,
    folders: Vec<Folder>,
    files: Vec<File>,
    /// By inode: since when it may have been the version that was opened, and which versions that may be.
    opened: BTreeMap<u64, (u64, Vec<u64>)>,
}

struct Folder {
    handle: u64,
    path: String,
    ino: u64,
    /// When it was read from 0 last, and what has come since then: name, kind, offset behind it.
    since_ms: Option<u64>,
    seen: Vec<(String, FileKind, u64)>,
    is_whole: bool,
    offset: u64,
}

struct File {
    handle: u64,
    path: String,
    ino: u64,
    /// The versions that it may be of.
    versions: Vec<u64>,
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_explained(
        steps in steps(),
        lifetimes in prop_oneof![Just((0, 0)), Just((1000, 0)), Just((1000, 800)), Just((4000, 2000))],
        close_to_open: bool,
        page in 1..5usize,
        is_over in proptest::bool::weighted(0.2),
    ) {
        let run = Run::new(lifetimes, close_to_open, page);
        run.memory.0.is_over.store(is_over, Ordering::Relaxed);
        run.all(&steps);
    }
}

impl Run {
    fn new((lifetime_ms, negative_ms): (u64, u64), close_to_open: bool, page: usize) -> Run {
        let memory = Memory::new();
        memory.0.page.store(page, Ordering::Relaxed);
        let tree = memory.tree(Config {
            attribute_lifetime: Duration::from_millis(lifetime_ms),
            negative_lifetime: Duration::from_millis(negative_ms),
            close_to_open,
            ..Config::default()
        });
        Run {
            history: History::default(),
            tree,
            lifetime_ms,
            negative_ms: negative_ms / 2,
            close_to_open,
            inodes: BTreeMap::new(),
            numbers: BTreeMap::new(),
            folders: Vec::new(),
            files: Vec::new(),
            opened: BTreeMap::new(),
            memory,
        }
    }

    fn all(mut self, steps: &[Step]) {
        for step in steps {
            // What is asked in one step is asked at one time, and at another than in the next.
            self.memory.turn_clock(1);
            self.settle();
            self.step(step);
        }
        for folder in std::mem::take(&mut self.folders) {
            self.tree.release_folder(folder.handle);
        }
        for file in std::mem::take(&mut self.files) {
            self.tree.release(file.handle).unwrap();
        }
        for (ino, (_, _, lookups)) in std::mem::take(&mut self.inodes) {
            self.tree.forget(ino, lookups);
        }
        let stats = self.tree.stats();
        assert_eq!((stats.looked_up_now, stats.open_files_now, stats.open_folders_now), (0, 0, 0));
    }

    /// What is listed ahead lands before the next step, and not between two calls of one.
    fn settle(&self) {
        while self.tree.is_listing_ahead() {
            std::thread::yield_now();
        }
    }

    fn now(&self) -> u64 {
        self.memory.now_ms()
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(key, size) => self.put(KEYS[key.index(KEYS.len())], *size),
            Step::Delete(key) => {
                let key = KEYS[key.index(KEYS.len())];
                self.memory.delete(key);
                self.history.delete(self.now(), key);
            }
            Step::Turn(ms) => self.memory.turn_clock(u64::from(*ms)),
            Step::Find(path) => {
                let all: Vec<&str> =
                    KEYS.iter().chain(&PATHS).map(|path| path.trim_end_matches('/')).collect();
                self.find(all[path.index(all.len())]);
            }
            Step::Attributes(at) => {
                if let Some(ino) = self.pick(at) {
                    self.attributes(ino);
                }
            }
            Step::Forget(at, times) => {
                if let Some(ino) = self.pick(at) {
                    self.forget(ino, u64::from(*times));
                }
            }
            Step::OpenFolder(at) => {
                let ino = self.pick_kind(at, FileKind::Folder).unwrap_or(ROOT);
                self.open_folder(ino);
            }
            Step::ReadFolder { handle, from, entries, plus } => {
                if !self.folders.is_empty() {
                    let at = handle.index(self.folders.len());
                    self.read_folder(at, *from, usize::from(*entries), *plus);
                }
            }
            Step::ReleaseFolder(at) => {
                if !self.folders.is_empty() {
                    let folder = self.folders.swap_remove(at.index(self.folders.len()));
                    self.tree.release_folder(folder.handle);
                }
            }
            Step::Open(at) => {
                if let Some(ino) = self.pick_kind(at, FileKind::File) {
                    self.open(ino);
                }
            }
            Step::Read { handle, at, bytes } => {
                if !self.files.is_empty() {
                    let handle = handle.index(self.files.len());
                    self.read(handle, u64::from(*at), usize::from(*bytes));
                }
            }
            Step::Release(at) => {
                if !self.files.is_empty() {
                    let file = self.files.swap_remove(at.index(self.files.len()));
                    self.tree.release(file.handle).unwrap();
                    self.on_let_go(file.ino);
                }
            }
        }
    }

    /// Every byte of a version is its number.
    fn put(&mut self, key: &str, size: u8) {
        let number = self.history.next_version();
        let object = self.memory.put(key, vec![number as u8; usize::from(size)]);
        self.history.put(self.now(), key, number, object);
    }

    fn pick(&self, at: &Index) -> Option<u64> {
        let inos: Vec<u64> = self.inodes.keys().copied().collect();
        (!inos.is_empty()).then(|| inos[at.index(inos.len())])
    }

    fn pick_kind(&self, at: &Index, kind: FileKind) -> Option<u64> {
        let of_kind = self.inodes.iter().filter(|(_, inode)| inode.1 == kind);
        let inos: Vec<u64> = of_kind.map(|(ino, _)| *ino).collect();
        (!inos.is_empty()).then(|| inos[at.index(inos.len())])
    }

    /// Looks a path up, component by component.
    fn find(&mut self, path: &str) {
        let (mut at, mut walked) = (ROOT, String::new());
        for name in path.split('/') {
            if !walked.is_empty() {
                walked.push('/');
            }
            walked.push_str(name);
            // What is known without asking may be told without asking, and is the same.
            let asked = self.memory.asked();
            let known = self.tree.lookup_known(at, OsStr::new(name));
            assert_eq!(self.memory.asked(), asked, "{walked}: to tell what is known nobody is asked");
            let answer = self.tree.lookup(at, OsStr::new(name));
            if let Some(known) = known {
                assert_eq!(self.memory.asked(), asked, "{walked} was known, and asked for");
                assert_eq!(
                    known.clone().map_err(|error| error.errno),
                    answer.clone().map_err(|error| error.errno)
                );
                if let Ok(known) = known {
                    self.tree.forget(known.id, 1);
                }
            } else {
                assert!(self.memory.asked() > asked, "{walked} was known, and was not told so");
            }
            match answer {
                Ok(known) => {
                    self.check_known(&walked, &known);
                    self.looked_up(&walked, &known);
                    at = known.id;
                    if known.attributes.kind == FileKind::File {
                        break;
                    }
                }
                Err(error) => {
                    assert_eq!(error.errno, libc::ENOENT, "{walked}");
                    self.check_absent(&walked);
                    break;
                }
            }
        }
    }

    /// Some moment since it was told must have been so.
    fn check_known(&self, path: &str, known: &Node) {
        let (now, left_ms) = (self.now(), known.lifetime.as_millis() as u64);
        assert!(left_ms <= self.lifetime_ms);
        let told_ms = now - (self.lifetime_ms - left_ms);
        if self.lifetime_ms > 0 {
            assert!(left_ms > 0, "{path}: told though it is too old");
        }
        let seen = Seen::of(&known.attributes);
        let was = match known.attributes.source {
            // The name was told of, and then its object: a folder may hide it since.
            AttributeSource::Head => {
                let is_file = |state: Option<&Seen>| state.is_some_and(|state| state.kind() == seen.kind());
                self.history.was(path, told_ms, now, is_file)
                    && self.history.object_was(path, told_ms, now, &seen)
            }
            _ => self.history.was(path, told_ms, now, |state| state == Some(&seen)),
        };
        assert!(
            was,
            "{path}: {seen:?} was never so since {told_ms}, now {now}: {:?}",
            self.history.all(path)
        );
    }

    /// Some moment within the negative lifetime must have been without it.
    fn check_absent(&self, path: &str) {
        let now = self.now();
        let since_ms = now - self.negative_ms.saturating_sub(1);
        assert!(
            self.history.was(path, since_ms, now, |state| state.is_none()),
            "{path}: was there all the time since {since_ms}, now {now}: {:?}",
            self.history.all(path)
        );
    }

    fn looked_up(&mut self, path: &str, known: &Node) {
        let Attributes { ino, kind, .. } = known.attributes;
        let inode = self.inodes.entry(known.id).or_insert_with(|| (path.to_owned(), kind, 0));
        assert_eq!((inode.0.as_str(), inode.1), (path, kind), "one node for two");
        inode.2 += 1;
        let name = (path.to_owned(), kind == FileKind::Folder);
        let number = *self.numbers.entry(name).or_insert(ino);
        assert_eq!(number, ino, "{path} is always the same file to stat(2)");
        self.check_version(known);
    }

    fn attributes(&mut self, ino: u64) {
        let (path, kind, _) = self.inodes[&ino].clone();
        match self.tree.attributes(ino) {
            Ok(known) => {
                assert_eq!((known.id, known.attributes.kind), (ino, kind));
                self.check_known(&path, &known);
                self.check_version(&known);
            }
            Err(error) if error.errno == libc::ESTALE => self.check_replaced(&path, ino),
            Err(error) => {
                assert_eq!(error.errno, libc::ENOENT, "{path}");
                self.check_not(&path, kind);
            }
        }
    }

    /// What was opened is told of as the version that it is, and never as another.
    fn check_version(&self, known: &Node) {
        if let Some((_, versions)) = self.opened.get(&known.id) {
            let sizes: Vec<u64> = versions.iter().map(|version| self.history.size(*version)).collect();
            let size = known.attributes.size;
            assert!(
                sizes.contains(&size),
                "{size} is the size of another version than was opened: {sizes:?}"
            );
        }
    }

    /// It was opened, and has not been one version since.
    fn check_replaced(&self, path: &str, ino: u64) {
        let (since_ms, versions) =
            self.opened.get(&ino).expect("what nobody has opened becomes the next version");
        assert!(
            !self.history.was_one_version(path, *since_ms, self.now()),
            "{path} was one of {versions:?} all the time"
        );
    }

    /// It must have been absent within the negative lifetime, or another kind within that of attributes.
    fn check_not(&self, path: &str, kind: FileKind) {
        let now = self.now();
        let window = |ms: u64| now - ms.saturating_sub(1);
        let absent = self.history.was(path, window(self.negative_ms), now, |state| state.is_none());
        let other = |state: Option<&Seen>| state.is_some_and(|seen| seen.kind() != kind);
        assert!(
            absent || self.history.was(path, window(self.lifetime_ms), now, other),
            "{path} was a {kind:?} all the time"
        );
    }

    fn forget(&mut self, ino: u64, times: u64) {
        let lookups = &mut self.inodes.get_mut(&ino).unwrap().2;
        let times = times.min(*lookups);
        *lookups -= times;
        if *lookups == 0 {
            self.inodes.remove(&ino);
        }
        self.tree.forget(ino, times);
        self.on_let_go(ino);
    }

    /// A node that nobody knows any more may be another file's, or another version's.
    fn on_let_go(&mut self, ino: u64) {
        if !self.inodes.contains_key(&ino) && self.files.iter().all(|file| file.ino != ino) {
            self.opened.remove(&ino);
        }
    }

    fn open_folder(&mut self, ino: u64) {
        let path = self.inodes.get(&ino).map_or(String::new(), |inode| inode.0.clone());
        let handle = self.tree.open_folder(ino).unwrap();
        let (since_ms, seen, is_whole, offset) = (None, Vec::new(), false, 0);
        self.folders.push(Folder { handle, path, ino, since_ms, seen, is_whole, offset });
    }

    fn read_folder(&mut self, at: usize, from: From, entries: usize, plus: bool) {
        let now = self.now();
        let folder = &mut self.folders[at];
        let offset = match from {
            From::Start => 0,
            From::Where => folder.offset,
            // Far behind the reader places are counted anew where memory is short.
            From::Seen(_) if self.memory.0.is_over.load(Ordering::Relaxed) => folder.offset,
            From::Seen(which) if !folder.seen.is_empty() => folder.seen[which.index(folder.seen.len())].2,
            From::Seen(_) => folder.offset,
        };
        if offset == 0 {
            (folder.since_ms, folder.is_whole) = (Some(now), false);
            folder.seen.clear();
        }
        let mut came = Vec::new();
        let mut room = entries + 1;
        let read = self.tree.read_folder(folder.handle, offset, plus, &mut |entry| {
            room -= 1;
            if room > 0 {
                came.push((entry.name.to_str().unwrap().to_owned(), entry.node, entry.next));
            }
            room > 0
        });
        read.unwrap();
        let is_end = room > 0;
        folder.offset = came.last().map_or(offset, |last| last.2);
        let (path, since_ms) = (folder.path.clone(), folder.since_ms.unwrap_or(now));
        let known_before = folder.seen.len();
        let mut place = folder.seen.iter().position(|seen| seen.2 == offset).map_or(0, |at| at + 1);
        for (name, known, next) in came {
            if name == "." || name == ".." {
                continue;
            }
            let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
            if plus {
                self.looked_up(&path, &known);
            }
            let seen = &mut self.folders[at].seen;
            match seen.get(place) {
                Some(before) => assert_eq!(before, &(name, known.attributes.kind, next), "places stay"),
                None => {
                    assert!(!seen.iter().any(|(other, _, _)| *other == name), "{path} comes twice");
                    seen.push((name, known.attributes.kind, next));
                }
            }
            place += 1;
            self.check_entry(&path, &known, since_ms, plus);
        }
        if is_end && place >= known_before {
            self.folders[at].is_whole = true;
        }
        if self.folders[at].is_whole {
            self.check_whole(at, since_ms);
        }
    }

    /// An entry is as its attributes say within their lifetime; without one it was so since shortly before
    /// the folder was read.
    fn check_entry(&self, path: &str, known: &Node, since_ms: u64, plus: bool) {
        if plus && !known.lifetime.is_zero() {
            return self.check_known(path, known);
        }
        let since_ms = since_ms - self.lifetime_ms.saturating_sub(1);
        let seen = Seen::of(&known.attributes);
        let was = |state: Option<&Seen>| {
            state.is_some_and(|state| *state == seen || plus && state.kind() == seen.kind())
        };
        assert!(
            self.history.was(path, since_ms, self.now(), was),
            "{path}: {seen:?}: {:?}",
            self.history.all(path)
        );
    }

    /// What was there all the time has come.
    fn check_whole(&self, at: usize, since_ms: u64) {
        let folder = &self.folders[at];
        let since_ms = since_ms - self.lifetime_ms.saturating_sub(1);
        for name in self.history.names_under(&folder.path) {
            let path = if folder.path.is_empty() { name.clone() } else { format!("{}/{name}", folder.path) };
            let kind = folder.seen.iter().find(|(seen, _, _)| *seen == name).map(|seen| seen.1);
            if kind.is_none() {
                let absent = self.history.was(&path, since_ms, self.now(), |state| state.is_none());
                let turned = self.history.kinds(&path, since_ms, self.now()) > 1;
                assert!(absent || turned, "{path} is missing from folder {}", folder.ino);
            }
        }
    }

    /// As the kernel does: what cannot be opened any more is looked up again, once.
    fn open(&mut self, ino: u64) {
        let (path, _, _) = self.inodes[&ino].clone();
        if self.try_open(ino) == Err(libc::ESTALE) {
            self.check_replaced(&path, ino);
            self.find(&path);
            let files = self.inodes.iter().filter(|(_, inode)| inode.0 == path && inode.1 == FileKind::File);
            let others: Vec<u64> = files.map(|(other, _)| *other).filter(|other| *other != ino).collect();
            let opened: Vec<_> = others.iter().map(|other| self.try_open(*other)).collect();
            let stale = |opened: &Result<(), i32>| *opened == Err(libc::ESTALE);
            // Some are of versions before; where the name was a file for all of a lifetime, one is not.
            let since_ms = self.now() - self.lifetime_ms.saturating_sub(1);
            let was_other = self.history.was(&path, since_ms, self.now(), |state| {
                state.is_none_or(|state| state.kind() != FileKind::File)
            });
            assert!(was_other || !opened.iter().all(stale), "{path}: stale for ever: {others:?}");
        }
    }

    fn try_open(&mut self, ino: u64) -> Result<(), i32> {
        let (path, _, _) = self.inodes[&ino].clone();
        let now = self.now();
        let since_ms = if self.close_to_open { now } else { now - self.lifetime_ms.saturating_sub(1) };
        let mut candidates = self.history.versions(&path, since_ms, now);
        match self.tree.open(ino, OpenMode::read(false), nobody()) {
            Ok(opened) => {
                assert!(!candidates.is_empty(), "{path} was not there");
                let (_, before) = self.opened.entry(ino).or_insert_with(|| (since_ms, candidates.clone()));
                // Its page cache is kept: it must be the version that it was.
                candidates.retain(|version| before.contains(version));
                assert!(!candidates.is_empty(), "{path}: another version than {before:?} by one inode");
                before.clone_from(&candidates);
                assert!(opened.keep_cache && !opened.direct);
                self.files.push(File { handle: opened.handle, path, ino, versions: candidates });
            }
            Err(error) if error.errno == libc::ESTALE => return Err(libc::ESTALE),
            Err(error) if self.close_to_open => {
                assert_eq!((error.errno, candidates), (libc::ENOENT, vec![]), "{path}");
            }
            Err(error) => {
                assert_eq!(error.errno, libc::ENOENT, "{path}");
                // An object that a folder hides is asked for by its key: it is there to be opened.
                self.check_not(&path, FileKind::File);
            }
        }
        Ok(())
    }

    fn read(&mut self, at: usize, from: u64, bytes: usize) {
        let now = self.now();
        let file = &mut self.files[at];
        let current = self.history.versions(&file.path, now, now);
        match crate::bytes(&self.tree, file.handle, from, bytes) {
            Ok(bytes_read) => {
                file.versions.retain(|version| current.contains(version));
                let [version] = file.versions[..] else {
                    panic!("{}: read though its version is gone: {:?}", file.path, file.versions);
                };
                let (_, of_inode) = self.opened.get_mut(&file.ino).expect("it was opened");
                assert!(of_inode.contains(&version), "{}: two versions by one inode", file.path);
                *of_inode = vec![version];
                let size = self.history.size(version);
                let want = (size.saturating_sub(from) as usize).min(bytes);
                assert_eq!(bytes_read, vec![version as u8; want], "{}", file.path);
            }
            Err(errno) => {
                assert_eq!(errno, libc::ESTALE, "{}", file.path);
                file.versions.retain(|version| !current.contains(version));
                assert!(!file.versions.is_empty(), "{}: stale without a reason", file.path);
            }
        }
    }
}
