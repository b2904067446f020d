//! Files in memory that behave as their names say, and count what was asked of them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use flatout_tree::{
    AttributeChanges, AttributeSource, Attributes, Caller, Cancel, FileKind, Files, FolderEntry, FsError,
    Node, OpenMode, OpenedFile, Slices, Statfs, WriteMoment,
};

/// Answers a read.
type Done = Box<dyn FnOnce(Result<Slices<'_, '_>, FsError>) + Send>;

pub const ROOT: u64 = 1;
pub const SUB: u64 = 2;
pub const MANY: u64 = 3;
pub const HELLO: u64 = 10;
pub const BIG: u64 = 11;
/// Not known: asked for on a thread of the pool.
pub const FAR: u64 = 12;
/// Lookups of this wait until the model is let go.
pub const STUCK: u64 = 13;
pub const STUCK_OPEN: u64 = 14;
pub const STUCK_READ: u64 = 15;
/// In pieces of one byte.
pub const PIECES: u64 = 16;
/// Opened for direct I/O, and what is cached stays.
pub const DIRECT: u64 = 17;
/// Its attributes are not known.
pub const FAR_ATTRIBUTES: u64 = 18;
/// Panics when it is asked for anything.
pub const PANIC: u64 = 19;
/// Panics in a read.
pub const PANIC_READ: u64 = 20;
/// What is cached of it stays.
pub const KEPT: u64 = 21;
/// The first of `many`'s files.
pub const FIRST_OF_MANY: u64 = 1 << 32;

/// A handle whose writes are taken, and whose close fails.
pub const WRITTEN: u64 = 777;
/// A handle whose writes wait.
pub const WRITTEN_LATER: u64 = 778;

pub const BIG_BYTES: u64 = 24 << 20;
pub const MANY_FILES: u64 = 10_000;
pub const LIFETIME: Duration = Duration::from_millis(1500);

const NAMES: &[(u64, &str, u64)] = &[
    (ROOT, "sub", SUB),
    (ROOT, "many", MANY),
    (ROOT, "hello", HELLO),
    (ROOT, "big", BIG),
    (ROOT, "far", FAR),
    (ROOT, "stuck", STUCK),
    (ROOT, "stuck-open", STUCK_OPEN),
    (ROOT, "stuck-read", STUCK_READ),
    (ROOT, "pieces", PIECES),
    (ROOT, "direct", DIRECT),
    (ROOT, "far-attributes", FAR_ATTRIBUTES),
    (ROOT, "panic", PANIC),
    (ROOT, "panic-read", PANIC_READ),
    (ROOT, "kept", KEPT),
    (SUB, "hello", HELLO),
];

pub const HELLO_TEXT: &[u8] = b"hello, world\n";

#[derive(Default)]
pub struct Model {
    state: Mutex<State>,
    changed: Condvar,
    negative: Duration,
    /// Reads that were cancelled.
    pub cancelled: Arc<AtomicUsize>,
}

#[derive(Default)]
pub struct State {
    /// Lookups that are not forgotten, by inode.
    pub lookups: HashMap<u64, i64>,
    /// Inode by handle.
    pub files: HashMap<u64, u64>,
    pub folders: HashMap<u64, u64>,
    pub handles: u64,
    /// Calls that wait until the model is let go.
    pub waiting: usize,
    pub let_go: bool,
    /// Reads that nobody answers.
    pub stuck_reads: Vec<Done>,
    pub asked: Vec<String>,
}

impl Model {
    /// One whose absent names are remembered for so long.
    pub fn negative(lifetime: Duration) -> Model {
        Model { negative: lifetime, ..Model::default() }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Ends every wait.
    pub fn let_go(&self) {
        let stuck = {
            let mut state = self.state();
            state.let_go = true;
            std::mem::take(&mut state.stuck_reads)
        };
        self.changed.notify_all();
        drop(stuck);
    }

    /// Waits until this holds.
    #[track_caller]
    pub fn until(&self, what: &str, mut holds: impl FnMut(&State) -> bool) {
        let state = self.state();
        let (_state, timed_out) =
            self.changed.wait_timeout_while(state, Duration::from_secs(30), |state| !holds(state)).unwrap();
        assert!(!timed_out.timed_out(), "never: {what}");
    }

    pub fn bytes(node: u64, at: u64, bytes: usize) -> Vec<u8> {
        let size = size(node);
        let end = at.saturating_add(bytes as u64).min(size);
        (at.min(end)..end).map(|at| byte(node, at)).collect()
    }

    fn wait(&self) {
        let mut state = self.state();
        state.waiting += 1;
        self.changed.notify_all();
        while !state.let_go {
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        state.waiting -= 1;
        drop(state);
        self.changed.notify_all();
    }

    fn count(&self, node: u64, by: i64) {
        *self.state().lookups.entry(node).or_default() += by;
        self.changed.notify_all();
    }

    fn asked(&self, what: &str) {
        self.state().asked.push(what.to_owned());
        self.changed.notify_all();
    }

    fn find(&self, parent: u64, name: &OsStr) -> Result<u64, FsError> {
        let name = name.to_str().ok_or_else(absent)?;
        if parent == MANY {
            let at: u64 = name.strip_prefix('f').and_then(|at| at.parse().ok()).ok_or_else(absent)?;
            return if at < MANY_FILES { Ok(FIRST_OF_MANY + at) } else { Err(absent()) };
        }
        NAMES.iter().find(|row| row.0 == parent && row.1 == name).map(|row| row.2).ok_or_else(absent)
    }

    fn found(&self, parent: u64, name: &OsStr) -> Result<Node, FsError> {
        let node = self.find(parent, name)?;
        self.count(node, 1);
        Ok(entry(node))
    }

    fn opened(&self, node: u64, mode: OpenMode) -> Result<OpenedFile, FsError> {
        if mode.changes() {
            return Err(FsError::of(libc::EROFS));
        }
        let mut state = self.state();
        state.handles += 1;
        let handle = state.handles;
        state.files.insert(handle, node);
        Ok(OpenedFile {
            handle,
            direct: mode.direct || node == DIRECT,
            keep_cache: matches!(node, DIRECT | KEPT),
            has_changed: false,
            is_written: false,
        })
    }
}

fn absent() -> FsError {
    FsError::of(libc::ENOENT)
}

/// Sends `bytes` in pieces.
fn send(done: impl FnOnce(Result<Slices<'_, '_>, FsError>), bytes: &[u8], piece: usize) {
    done(Ok(&mut bytes.chunks(piece)));
}

fn size(node: u64) -> u64 {
    match node {
        BIG | DIRECT => BIG_BYTES,
        STUCK_READ | PANIC_READ => 1 << 20,
        PIECES => 5000,
        _ if is_folder(node) => 0,
        _ if node >= FIRST_OF_MANY => 3,
        _ => HELLO_TEXT.len() as u64,
    }
}

fn byte(node: u64, at: u64) -> u8 {
    match node {
        BIG | DIRECT | PIECES | STUCK_READ => (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8,
        _ => HELLO_TEXT[at as usize % HELLO_TEXT.len()],
    }
}

fn is_folder(node: u64) -> bool {
    matches!(node, ROOT | SUB | MANY)
}

pub fn entry(node: u64) -> Node {
    let folder = is_folder(node);
    let attributes = Attributes {
        ino: node,
        size: size(node),
        modified_s: 1_700_000_000,
        modified_ns: 0,
        accessed: None,
        changed_s: 1_600_000_000,
        is_link: false,
        kind: if folder { FileKind::Folder } else { FileKind::File },
        mode: if folder { 0o555 } else { 0o444 },
        uid: 7,
        gid: 8,
        links: 1,
        source: AttributeSource::Listing,
    };
    Node { id: node, generation: 0, attributes, lifetime: LIFETIME }
}

impl Files for Model {
    fn lookup(&self, parent: u64, name: &OsStr) -> Result<Node, FsError> {
        if name == "stuck" {
            self.wait();
        }
        self.found(parent, name)
    }

    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Node, FsError>> {
        self.asked("lookup");
        assert_ne!(name, "panic", "the model panics");
        match name.to_str() {
            Some("far" | "stuck" | "far-nothing") => None,
            _ => Some(self.found(parent, name)),
        }
    }

    fn negative_lifetime(&self) -> Duration {
        self.negative
    }

    fn attributes(&self, node: u64) -> Result<Node, FsError> {
        Ok(entry(node))
    }

    fn attributes_known(&self, node: u64) -> Option<Result<Node, FsError>> {
        self.asked("attributes");
        match node {
            FAR_ATTRIBUTES => None,
            99 => Some(Err(FsError::of(libc::ESTALE))),
            _ => Some(Ok(entry(node))),
        }
    }

    fn forget(&self, node: u64, times: u64) {
        self.count(node, -(times as i64));
    }

    fn open_folder(&self, node: u64) -> Result<u64, FsError> {
        if !is_folder(node) {
            return Err(FsError::of(libc::ENOTDIR));
        }
        let mut state = self.state();
        state.handles += 1;
        let handle = state.handles;
        state.folders.insert(handle, node);
        Ok(handle)
    }

    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), FsError> {
        self.asked(if plus { "readdirplus" } else { "readdir" });
        let node = *self.state().folders.get(&handle).ok_or_else(|| FsError::of(libc::EBADF))?;
        let mut names = vec![(".".to_owned(), node), ("..".to_owned(), ROOT)];
        match node {
            MANY => names.extend((0..MANY_FILES).map(|at| (format!("f{at:05}"), FIRST_OF_MANY + at))),
            _ => names.extend(NAMES.iter().filter(|row| row.0 == node).map(|row| (row.1.to_owned(), row.2))),
        }
        for (at, (name, node)) in names.iter().enumerate().skip(offset as usize) {
            let line = FolderEntry { node: entry(*node), name: OsStr::new(name), next: at as u64 + 1 };
            if !each(&line) {
                break;
            }
            if plus && at >= 2 {
                self.count(*node, 1);
            }
        }
        Ok(())
    }

    fn release_folder(&self, handle: u64) {
        assert!(self.state().folders.remove(&handle).is_some(), "a handle is released once");
        self.changed.notify_all();
    }

    fn open(&self, node: u64, mode: OpenMode, _caller: Caller) -> Result<OpenedFile, FsError> {
        if node == STUCK_OPEN {
            self.wait();
        }
        self.opened(node, mode)
    }

    fn open_known(&self, node: u64, mode: OpenMode) -> Option<Result<OpenedFile, FsError>> {
        self.asked("open");
        match node {
            FAR | STUCK_OPEN => None,
            _ if is_folder(node) => Some(Err(FsError::of(libc::EISDIR))),
            _ => Some(self.opened(node, mode)),
        }
    }

    fn read(
        &self,
        handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        self.asked("read");
        let Some(node) = self.state().files.get(&handle).copied() else {
            done(Err(FsError::of(libc::EBADF)));
            return None;
        };
        let content = Model::bytes(node, at, bytes);
        match node {
            STUCK_READ => {
                self.state().stuck_reads.push(Box::new(done));
                self.changed.notify_all();
                let cancelled = self.cancelled.clone();
                return Some(Box::new(move || {
                    cancelled.fetch_add(1, SeqCst);
                }));
            }
            PANIC_READ => panic!("the model panics"),
            PIECES => send(done, &content, 1),
            // Later, on another thread.
            FAR => drop(std::thread::spawn(move || send(done, &content, 5))),
            _ => send(done, &content, 300 << 10),
        }
        None
    }

    fn release(&self, handle: u64) -> Result<(), FsError> {
        assert!(self.state().files.remove(&handle).is_some(), "a handle is released once");
        self.changed.notify_all();
        Ok(())
    }

    fn write_known(
        &self,
        handle: u64,
        at: u64,
        bytes: &[u8],
        caller: Caller,
    ) -> Option<Result<bool, FsError>> {
        self.asked(&format!("write {handle} {at} {bytes:?} {}", caller.thread));
        match handle {
            WRITTEN_LATER => None,
            _ => Some(if handle == WRITTEN { Ok(false) } else { Err(FsError::of(libc::EROFS)) }),
        }
    }

    fn write(
        &self,
        handle: u64,
        _at: u64,
        bytes: &[u8],
        _caller: Caller,
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, FsError> {
        self.asked(&format!("write {handle} waits"));
        match bytes {
            // Until it is given up.
            b"waits" => {
                while goes_on(WriteMoment::Wait) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                self.asked("given up");
                Err(FsError::of(libc::EINTR))
            }
            _ if !goes_on(WriteMoment::Take) => Err(FsError::of(libc::EINTR)),
            b"fails" => Err(FsError::of(libc::ENOSPC)),
            _ => Ok(false),
        }
    }

    fn flush(&self, handle: u64, _caller: Caller) -> Result<(), FsError> {
        self.asked(&format!("flush {handle}"));
        if handle == WRITTEN { Err(FsError::of(libc::EDQUOT)) } else { Ok(()) }
    }

    fn sync(&self, handle: u64) -> Result<(), FsError> {
        self.asked(&format!("sync {handle}"));
        Ok(())
    }

    fn create(
        &self,
        parent: u64,
        name: &OsStr,
        exclusive: bool,
        mode: OpenMode,
        _caller: Caller,
    ) -> Result<(Node, OpenedFile), FsError> {
        self.asked(&format!("create {parent} {name:?} {exclusive} {mode:?}"));
        if parent != SUB {
            return Err(FsError::of(libc::EROFS));
        }
        self.count(HELLO, 1);
        let opened = self.opened(HELLO, OpenMode::read(true))?;
        Ok((entry(HELLO), OpenedFile { is_written: true, ..opened }))
    }

    fn change_attributes(&self, node: u64, changes: AttributeChanges) -> Result<Node, FsError> {
        self.asked(&format!("change {node} {changes:?}"));
        if node == SUB { Ok(entry(node)) } else { Err(FsError::of(libc::EROFS)) }
    }

    fn remove_file(&self, parent: u64, name: &OsStr) -> Result<(), FsError> {
        self.asked(&format!("unlink {parent} {name:?}"));
        if parent == SUB { Ok(()) } else { Err(FsError::of(libc::EROFS)) }
    }

    fn make_folder(&self, parent: u64, name: &OsStr, _: u32, _: Caller) -> Result<Node, FsError> {
        self.asked(&format!("mkdir {parent} {name:?}"));
        if parent != SUB {
            return Err(FsError::of(libc::EROFS));
        }
        self.count(MANY, 1);
        Ok(entry(MANY))
    }

    fn remove_folder(&self, parent: u64, name: &OsStr) -> Result<(), FsError> {
        self.asked(&format!("rmdir {parent} {name:?}"));
        if parent == SUB { Ok(()) } else { Err(FsError::of(libc::EROFS)) }
    }

    fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), exclusive: bool) -> Result<(), FsError> {
        self.asked(&format!("rename {from:?} {to:?} {exclusive}"));
        if from.0 == SUB { Ok(()) } else { Err(FsError::of(libc::EROFS)) }
    }

    fn statfs(&self) -> Statfs {
        Statfs { block_bytes: 4096, blocks: 1 << 50, files: 1 << 40, name_bytes_max: 255 }
    }
}
