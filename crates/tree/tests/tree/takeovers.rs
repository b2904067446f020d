//! A process dies, and another goes on with what the kernel knows.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use flatout_tree::{Config, Files, OpenMode, SharedTable, TreeOf};

use crate::memory::Memory;
use crate::writes::{closed, create, open, read, to_write, write};
use crate::{ROOT, attributes, find, ino, minute, names, nobody};

type Rows = BTreeMap<(u8, u64), Vec<u8>>;

#[derive(Clone, Debug, Default)]
pub struct Table(Arc<Mutex<Rows>>);

impl SharedTable for Table {
    fn put(&self, kind: u8, id: u64, value: &[u8]) {
        self.0.lock().unwrap().insert((kind, id), value.to_vec());
    }

    fn remove(&self, kind: u8, id: u64) {
        self.0.lock().unwrap().remove(&(kind, id));
    }

    fn rows(&self) -> Option<Vec<(u8, u64, Vec<u8>)>> {
        let rows = self.0.lock().unwrap();
        Some(rows.iter().map(|(&(kind, id), value)| (kind, id, value.clone())).collect())
    }
}

/// A tree whose process can die.
pub struct Process {
    memory: Memory,
    pub tree: TreeOf<Memory>,
    table: Table,
    config: Config,
}

impl Process {
    pub fn new(memory: &Memory, config: Config) -> Process {
        let table = Table::default();
        let tree = memory.tree(config.clone());
        tree.keep_in(Arc::new(table.clone()));
        Process { memory: memory.clone(), tree, table, config }
    }

    /// It dies; what it does from then on, such as its end, changes nothing that is kept.
    pub fn dies(self) -> Process {
        let Process { memory, tree, table, config } = self;
        let table = Table(Arc::new(Mutex::new(table.0.lock().unwrap().clone())));
        let (store, root) = (Arc::new(memory.clone()), crate::memory::root(""));
        let next = TreeOf::take_over(store, root, config.clone(), Arc::new(table.clone()));
        drop(tree);
        Process { memory, tree: next.expect("all was kept"), table, config }
    }

    fn kept(&self, handle: u64, request: u64) -> u64 {
        self.tree.keep_file(handle, request);
        handle
    }

    fn rows(&self) -> usize {
        self.table.0.lock().unwrap().len()
    }
}

fn looked_up(tree: &TreeOf<Memory>) -> u64 {
    tree.stats().looked_up_now
}

#[test]
fn nodes_and_their_lookups_stay() {
    let memory = Memory::with(&["a/b/c", "d"]);
    let process = Process::new(&memory, minute());
    let (c, d) = (ino(&process.tree, "a/b/c"), ino(&process.tree, "d"));
    ino(&process.tree, "d");
    assert_eq!(looked_up(&process.tree), 4);
    let process = process.dies();
    let tree = &process.tree;
    assert_eq!(looked_up(tree), 4);
    assert_eq!(tree.attributes(c).unwrap().attributes.size, "content of a/b/c".len() as u64);
    assert_eq!(ino(tree, "a/b/c"), c, "the same name is the same node");
    tree.forget(d, 1);
    assert_eq!(tree.attributes(d).unwrap().id, d, "it was looked up twice");
    tree.forget(d, 1);
    assert_eq!(looked_up(tree), 3);
}

#[test]
fn what_nobody_needs_any_more_is_kept_no_longer() {
    let memory = Memory::with(&["a/b/c", "d"]);
    let process = Process::new(&memory, Config { attribute_lifetime: std::time::Duration::ZERO, ..minute() });
    let before = process.rows();
    let tree = &process.tree;
    let handle = process.kept(open(tree, "d", OpenMode::read(false)).unwrap().handle, 2);
    let folder = tree.open_folder(ROOT).unwrap();
    tree.keep_folder(folder, 4);
    crate::read(tree, folder, 0, false);
    ino(tree, "a/b/c");
    assert!(process.rows() > before + 8, "{}", process.rows());
    tree.release(handle).unwrap();
    tree.release_folder(folder);
    for (path, times) in [("a/b/c", 2), ("a/b", 3), ("a", 4), ("d", 2)] {
        let node = ino(tree, path);
        // `find` counts a lookup of each name on the path, also of this one.
        tree.forget(node, times + 9);
    }
    // Unused nodes go when the next ones come.
    memory.0.clock_ms.fetch_add(1_000, Relaxed);
    tree.forget(ROOT, 0);
    assert_eq!(process.rows(), before, "{:?}", process.table);
}

#[test]
fn an_open_file_is_read_on() {
    let memory = Memory::with(&["f", "g"]);
    let process = Process::new(&memory, minute());
    let (f, g) = (ino(&process.tree, "f"), ino(&process.tree, "g"));
    let handles = [f, g].map(|node| {
        let handle = process.tree.open(node, OpenMode::read(false), nobody()).unwrap().handle;
        process.kept(handle, node)
    });
    memory.put("g", "another client's");
    let process = process.dies();
    let tree = &process.tree;
    assert_eq!(read(tree, handles[0], 3, 4).unwrap(), b"tent");
    assert_eq!(read(tree, handles[1], 0, 7), Err(libc::ESTALE), "never bytes of two versions");
    assert_eq!(tree.attributes(g).map(|_| ()).unwrap_err().errno, libc::ESTALE);
    assert_ne!(ino(tree, "g"), g, "the kernel has pages of the other version");
    let new = open(tree, "f", OpenMode::read(false)).unwrap().handle;
    assert!(!handles.contains(&new), "{new}");
    tree.release(handles[0]).unwrap();
    assert_eq!(read(tree, new, 0, 7).unwrap(), b"content");
    assert_eq!(read(tree, handles[0], 0, 7), Err(libc::EBADF));
}

#[test]
fn a_version_that_was_replaced_stays_so() {
    let memory = Memory::with(&["f"]);
    let process = Process::new(&memory, minute());
    let old = ino(&process.tree, "f");
    process.kept(open(&process.tree, "f", OpenMode::read(false)).unwrap().handle, 2);
    memory.put("f", "new");
    memory.0.clock_ms.fetch_add(60_000, Relaxed);
    let new = ino(&process.tree, "f");
    assert_ne!(old, new);
    let process = process.dies();
    assert_eq!(process.tree.attributes(old).map(|_| ()).unwrap_err().errno, libc::ESTALE);
    assert_eq!(process.tree.attributes(new).unwrap().attributes.size, 3);
}

#[test]
fn a_file_without_bytes_goes_on() {
    let memory = Memory::new();
    let process = Process::new(&memory, minute());
    let handle = process.kept(create(&process.tree, "new"), 2);
    let process = process.dies();
    write(&process.tree, handle, 0, b"hello").unwrap();
    closed(&process.tree, handle).unwrap();
    assert_eq!(memory.object("new").unwrap().bytes, b"hello");
    assert_eq!(process.tree.stats().written_now, 0);
}

#[test]
fn what_was_published_goes_on() {
    let memory = Memory::new();
    let process = Process::new(&memory, minute());
    let handle = process.kept(create(&process.tree, "log"), 2);
    write(&process.tree, handle, 0, b"one ").unwrap();
    process.tree.sync(handle).unwrap();
    let reader = process.kept(open(&process.tree, "log", OpenMode::read(false)).unwrap().handle, 4);
    let process = process.dies();
    let tree = &process.tree;
    assert_eq!(read(tree, reader, 0, 9).unwrap(), b"one ");
    write(tree, handle, 4, b"two").unwrap();
    assert_eq!(find(tree, "log").unwrap().attributes.size, 7);
    closed(tree, handle).unwrap();
    assert_eq!(memory.object("log").unwrap().bytes, b"one two");
    assert_eq!(read(tree, reader, 0, 9).unwrap(), b"one two");
}

#[test]
fn bytes_that_died_are_an_error_and_never_silence() {
    let memory = Memory::with(&["old"]);
    let process = Process::new(&memory, minute());
    let new = process.kept(create(&process.tree, "new"), 2);
    write(&process.tree, new, 0, b"gone").unwrap();
    let appends = OpenMode { writes: true, ..OpenMode::default() };
    let old = process.kept(open(&process.tree, "old", appends).unwrap().handle, 4);
    let end = "content of old".len() as u64;
    write(&process.tree, old, end, b" and more").unwrap();
    let process = process.dies();
    let tree = &process.tree;
    assert_eq!(write(tree, new, 4, b"x"), Err(libc::EIO));
    assert_eq!(tree.sync(old).unwrap_err().errno, libc::EIO);
    for handle in [new, old] {
        assert_eq!(tree.flush(handle, nobody()).unwrap_err().errno, libc::EIO);
        assert_eq!(closed(tree, handle), Err(libc::EIO));
    }
    assert_eq!(memory.object("new"), None);
    assert_eq!(memory.object("old").unwrap().bytes, b"content of old");
    assert_eq!(find(tree, "new"), Err(libc::ENOENT));
    assert_eq!(find(tree, "old").unwrap().attributes.size, end);
    // It can be written again.
    closed(tree, {
        let again = create(tree, "new");
        write(tree, again, 0, b"again").unwrap();
        again
    })
    .unwrap();
    assert_eq!(memory.object("new").unwrap().bytes, b"again");
}

#[test]
fn it_dies_twice() {
    let memory = Memory::new();
    let process = Process::new(&memory, minute());
    let handle = process.kept(create(&process.tree, "new"), 2);
    write(&process.tree, handle, 0, b"gone").unwrap();
    let process = process.dies().dies();
    assert_eq!(process.tree.sync(handle).unwrap_err().errno, libc::EIO);
    let process = process.dies();
    assert_eq!(closed(&process.tree, handle), Err(libc::EIO));
    assert_eq!(process.tree.stats().written_now, 0);
}

#[test]
fn an_open_that_the_kernel_never_heard_of_is_taken_back() {
    let memory = Memory::with(&["f"]);
    let process = Process::new(&memory, minute());
    process.kept(open(&process.tree, "f", OpenMode::read(false)).unwrap().handle, 2);
    process.kept(create(&process.tree, "new"), 4);
    let folder = process.tree.open_folder(ROOT).unwrap();
    process.tree.keep_folder(folder, 6);
    let process = process.dies();
    let tree = &process.tree;
    assert_eq!((tree.stats().open_files_now, tree.stats().open_folders_now), (2, 1));
    [2, 4, 6, 8].iter().for_each(|&request| tree.take_back(request));
    assert_eq!((tree.stats().open_files_now, tree.stats().open_folders_now), (0, 0));
    assert_eq!(memory.object("new"), None, "the kernel asks for it again");
    tree.create(ROOT, OsStr::new("new"), true, OpenMode { writes: true, ..OpenMode::default() }, nobody())
        .unwrap();
}

#[test]
fn an_answer_that_was_not_kept_leaves_no_writer() {
    let memory = Memory::new();
    let process = Process::new(&memory, minute());
    // The process dies before the kernel can have heard of the handle.
    create(&process.tree, "new");
    let process = process.dies();
    assert_eq!(process.tree.stats().written_now, 0);
    assert_eq!(find(&process.tree, "new"), Err(libc::ENOENT));
}

#[test]
fn a_folder_that_was_made_here_stays() {
    let memory = Memory::new();
    let process = Process::new(&memory, minute());
    process.tree.make_folder(ROOT, OsStr::new("empty"), 0o755, nobody()).unwrap();
    let process = process.dies();
    let tree = &process.tree;
    assert_eq!(names(tree, ROOT), ["empty/"]);
    let folder = ino(tree, "empty");
    let created = tree.create(
        folder,
        OsStr::new("f"),
        false,
        OpenMode { writes: true, ..OpenMode::default() },
        nobody(),
    );
    closed(tree, created.unwrap().1.handle).unwrap();
    assert_eq!(memory.object("empty/f").unwrap().bytes, b"");
    tree.remove_file(folder, OsStr::new("f")).unwrap();
    tree.remove_folder(ROOT, OsStr::new("empty")).unwrap();
    assert_eq!(names(&process.dies().tree, ROOT), [""; 0]);
}

#[test]
fn a_renamed_file_has_its_new_name() {
    let memory = Memory::with(&["f"]);
    let process = Process::new(&memory, minute());
    let node = ino(&process.tree, "f");
    let reader = process.kept(process.tree.open(node, OpenMode::read(false), nobody()).unwrap().handle, 2);
    process.tree.rename((ROOT, OsStr::new("f")), (ROOT, OsStr::new("g")), false).unwrap();
    let process = process.dies();
    assert_eq!(ino(&process.tree, "g"), node);
    assert_eq!(read(&process.tree, reader, 0, 7).unwrap(), b"content");
    let names = [("f", "g"), ("g", "f"), ("h", "i")]
        .map(|(from, to)| ((ROOT, OsStr::new(from)), (ROOT, OsStr::new(to))));
    let was_renamed = names.map(|(from, to)| process.tree.was_renamed(from, to).unwrap());
    assert_eq!(was_renamed, [true, false, false]);
}

#[test]
fn a_folder_is_read_on_whatever_was_changed() {
    let memory = Memory::new();
    (0..20).for_each(|number| drop(memory.put(&format!("{number:02}"), "")));
    let process = Process::new(&memory, minute());
    let local = process.kept(create(&process.tree, "local"), 2);
    let folder = process.tree.open_folder(ROOT).unwrap();
    process.tree.keep_folder(folder, 4);
    let take = |tree: &TreeOf<Memory>, offset: u64, most: usize| {
        let mut taken: Vec<(String, u64)> = Vec::new();
        tree.read_folder(folder, offset, false, &mut |entry| {
            let takes = taken.len() < most;
            taken.extend(takes.then(|| (entry.name.to_str().unwrap().to_owned(), entry.next)));
            takes
        })
        .unwrap();
        taken
    };
    let (mut seen, mut offset) = (Vec::new(), 0);
    let mut process = process;
    for round in 0.. {
        let taken = take(&process.tree, offset, 5);
        if taken.is_empty() {
            break;
        }
        offset = taken.last().unwrap().1;
        seen.extend(taken.into_iter().map(|(name, _)| name));
        // The kernel has not heard of these any more, and asks the next process, or the one after it.
        take(&process.tree, offset, 3);
        if round % 2 == 1 {
            process = process.dies();
            take(&process.tree, offset, 2);
        }
        match round {
            0 => drop((memory.delete("01"), memory.put("001", ""))),
            1 => drop(memory.put("071", "")),
            _ => {}
        }
        process = process.dies();
    }
    let mut want: Vec<String> = (0..20).map(|number| format!("{number:02}")).collect();
    want.insert(8, "071".into());
    assert_eq!(seen[2..], [want, vec!["local".into()]].concat());
    closed(&process.tree, local).unwrap();
}

#[test]
fn without_what_was_kept_nothing_is_taken_over() {
    #[derive(Debug)]
    struct Full;
    impl SharedTable for Full {
        fn put(&self, _: u8, _: u64, _: &[u8]) {}
        fn remove(&self, _: u8, _: u64) {}
        fn rows(&self) -> Option<Vec<(u8, u64, Vec<u8>)>> {
            None
        }
    }
    let (store, root) = (Arc::new(Memory::new()), crate::memory::root(""));
    assert!(TreeOf::take_over(store, root, minute(), Arc::new(Full)).is_none());
}

/// Nobody has looked at the file between the two processes.
#[test]
fn what_goes_on_keeps_its_attributes() {
    let memory = Memory::new();
    let process = Process::new(&memory, attributes::kept());
    let create = |name: &str| {
        let mode = OpenMode { permissions: 0o640, ..to_write() };
        let made = process.tree.create(ROOT, OsStr::new(name), false, mode, attributes::user());
        process.kept(made.unwrap().1.handle, 2)
    };
    let (long, new) = (create("long"), create("new"));
    for at in 0..2 {
        write(&process.tree, long, at << 20, &[7; 1 << 20]).unwrap();
    }
    process.tree.sync(long).unwrap();
    attributes::change(&process.tree, "new", attributes::mode(0o600)).unwrap();
    let process = process.dies();
    for at in 2..5 {
        write(&process.tree, long, at << 20, &[7; 1 << 20]).unwrap();
    }
    closed(&process.tree, long).unwrap();
    write(&process.tree, new, 0, b"new").unwrap();
    closed(&process.tree, new).unwrap();
    let described = |mode| attributes::rows(&[("mode", mode), ("uid", "1000"), ("gid", "100")]);
    assert_eq!(memory.object("long").unwrap().bytes.len(), 5 << 20);
    assert_eq!(attributes::metadata(&memory, "long"), described("33184"));
    assert_eq!(attributes::metadata(&memory, "new"), described("33152"));
    assert_eq!(attributes::shown(&process.tree, "long").mode, 0o640);
}

/// The third process knows what the second one had taken.
#[test]
fn what_a_later_process_had_staged_is_lost_with_it() {
    let (memory, folder) = (Memory::with(&["g"]), tempfile::TempDir::new().unwrap());
    let staged = crate::staging::with(folder.path());
    let process = Process::new(&memory, Config { attributes: attributes::kept().attributes, ..staged });
    let mode = OpenMode { reads: true, ..to_write() };
    let handle = process.kept(open(&process.tree, "g", mode).unwrap().handle, 2);
    let process = process.dies();
    write(&process.tree, handle, 3, b"x").unwrap();
    let process = process.dies().dies();
    assert_eq!(write(&process.tree, handle, 0, b"y"), Err(libc::EIO));
    assert_eq!(closed(&process.tree, handle), Err(libc::EIO));
    assert_eq!(memory.object("g").unwrap().bytes, b"content of g");
}
