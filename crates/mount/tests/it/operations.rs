//! Each operation by its bytes: what is asked, what is answered, what is refused, and what cannot be
//! understood.

use std::sync::Arc;
use std::time::Duration;

use flatout_engine::ErrorKind;
use flatout_mount::Observer;

use crate::held::until;
use crate::model::*;
use crate::raw::*;

/// `struct fuse_attr` of a file of the model.
fn attr(node: u64, size: u64, mode: u32) -> Vec<u8> {
    let times = longs(&[1_700_000_000, 1_700_000_000, 1_600_000_000]);
    [longs(&[node, size, size.div_ceil(512)]), times, words(&[0, 0, 0, mode, 1, 7, 8, 0, 4096, 0])].concat()
}

/// `struct fuse_entry_out`; the model's lifetime is one and a half seconds.
fn entry_out(node: u64, size: u64, mode: u32) -> Vec<u8> {
    [longs(&[node, 0, 1, 1]), words(&[500_000_000, 500_000_000]), attr(node, size, mode)].concat()
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[track_caller]
fn open(kernel: &mut Kernel, node: u64, flags: i32) -> (u64, u32) {
    let body = kernel.ask(op::OPEN, node, &words(&[flags as u32, 0])).unwrap();
    assert_eq!(body.len(), 16);
    (long(&body, 0), word(&body, 8))
}

#[test]
fn init_is_negotiated() {
    const ALL: u64 = u64::MAX;
    const ASYNC_READ: u64 = 1;
    const MAX_PAGES: u64 = 1 << 22;
    const INIT_EXT: u64 = 1 << 30;
    const DIRECT_MMAP: u64 = 1 << 36;
    // Minor, flags: flags of the answer, pages, minor granted.
    let wanted = 1
        | 1 << 3
        | 1 << 5
        | 1 << 12
        | 1 << 13
        | 1 << 15
        | 1 << 18
        | 1 << 21
        | MAX_PAGES
        | INIT_EXT
        | DIRECT_MMAP;
    let table = [
        (45, ALL, wanted, 256, 45),
        (60, ALL, wanted, 256, 45),
        (31, ALL & !INIT_EXT, wanted & !INIT_EXT & !DIRECT_MMAP, 256, 31),
        (36, ASYNC_READ, ASYNC_READ, 32, 36),
        (38, INIT_EXT | DIRECT_MMAP, INIT_EXT | DIRECT_MMAP, 32, 38),
        (38, DIRECT_MMAP, 0, 32, 38),
        (45, 0, 0, 32, 45),
    ];
    for (minor, offered, flags, pages, granted) in table {
        let (kernel, answer, session) = Kernel::init(init(7, minor, offered), &Arc::default());
        let session = session.unwrap();
        let body = &answer.body;
        assert_eq!((answer.unique, answer.error, body.len()), (2, 0, 64), "{minor} {offered:x}");
        assert_eq!((word(body, 0), word(body, 4)), (7, 45));
        assert_eq!(word(body, 8), 128 << 10, "the kernel's own readahead is as much as there can be");
        let said = u64::from(word(body, 12)) | u64::from(word(body, 32)) << 32;
        assert_eq!(said, flags, "{minor} {offered:x}");
        // max_background, congestion_threshold; max_write; time_gran; max_pages.
        assert_eq!(word(body, 16), 128 | 96 << 16);
        assert_eq!((word(body, 20), word(body, 24), word(body, 28)), (pages * 4096, 1, pages));
        assert!(body[36..].iter().all(|&byte| byte == 0));
        assert_eq!(session.granted().minor, granted);
        assert_eq!(session.granted().request_bytes, pages * 4096);
        assert_eq!(session.granted().direct_mmap, flags & DIRECT_MMAP != 0);
        kernel.end(session);
    }
}

#[test]
fn an_init_without_a_second_word_is_taken() {
    let short = words(&[7, 31, 64 << 10, 1 | 1 << 22]);
    let (kernel, answer, session) = Kernel::init(short, &Arc::default());
    assert_eq!((word(&answer.body, 12), word(&answer.body, 8)), (1 | 1 << 22, 64 << 10));
    kernel.end(session.unwrap());
}

#[test]
fn kernels_that_are_too_old_are_refused() {
    for (major, minor) in [(7, 30), (7, 0), (6, 99)] {
        let (_kernel, answer, session) = Kernel::init(init(major, minor, u64::MAX), &Arc::default());
        assert_eq!(answer.error, -libc::EPROTO);
        let error = session.expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains(&format!("FUSE {major}.{minor}")), "{error}");
    }
}

#[test]
fn a_newer_major_hears_ours_and_asks_again() {
    let (mut kernel, mounted) = Kernel::new();
    kernel.send(op::INIT, 0, &init(8, 2, u64::MAX));
    kernel.send(op::INIT, 0, &init(7, 45, u64::MAX));
    let session = mounted.serve(Arc::<Model>::default(), Observer::default()).unwrap();
    let first = kernel.answer();
    assert_eq!((first.error, word(&first.body, 0), word(&first.body, 4)), (0, 7, 45));
    assert_eq!((word(&first.body, 12), word(&first.body, 32)), (0, 0));
    assert_ne!(word(&kernel.answer().body, 12), 0);
    kernel.end(session);
}

#[test]
fn a_connection_in_use_is_not_taken_over() {
    let (mut kernel, mounted) = Kernel::new();
    kernel.send(op::GETATTR, ROOT, &[0; 16]);
    let error = mounted.serve(Arc::<Model>::default(), Observer::default()).expect_err("no INIT");
    assert!(error.to_string().contains("in use already"), "{error}");
}

#[test]
fn names_are_looked_up() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    assert_eq!(kernel.ask(op::LOOKUP, ROOT, &name("hello")), Ok(entry_out(HELLO, 13, 0o100444)));
    assert_eq!(kernel.ask(op::LOOKUP, ROOT, &name("sub")), Ok(entry_out(SUB, 0, 0o040555)));
    // By a thread of the pool.
    assert_eq!(kernel.ask(op::LOOKUP, ROOT, &name("far")), Ok(entry_out(FAR, 13, 0o100444)));
    assert_eq!(kernel.ask(op::LOOKUP, ROOT, &name("nothing")), Err(libc::ENOENT));
    assert_eq!(kernel.ask(op::LOOKUP, ROOT, &name("far-nothing")), Err(libc::ENOENT));
    assert_eq!(model.state().lookups[&HELLO], 1);

    kernel.send(op::FORGET, HELLO, &longs(&[1]));
    kernel.send(op::BATCH_FORGET, 0, &[words(&[2, 0]), longs(&[SUB, 1, FAR, 1])].concat());
    model.until("all is forgotten", |state| state.lookups.values().all(|&count| count == 0));
    kernel.end(session);
}

#[test]
fn the_kernel_remembers_what_is_not_there() {
    let model = Arc::new(Model::negative(Duration::from_millis(2250)));
    let (mut kernel, session) = Kernel::serve(&model);
    let absent = [longs(&[0, 0, 2, 0]), words(&[250_000_000, 0]), vec![0; 88]].concat();
    assert_eq!(kernel.ask(op::LOOKUP, ROOT, &name("nothing")), Ok(absent.clone()));
    assert_eq!(kernel.ask(op::LOOKUP, ROOT, &name("far-nothing")), Ok(absent));
    kernel.end(session);
}

#[test]
fn attributes_are_told() {
    let (mut kernel, session) = Kernel::serve(&Arc::default());
    let out = |node, size, mode| [longs(&[1]), words(&[500_000_000, 0]), attr(node, size, mode)].concat();
    assert_eq!(kernel.ask(op::GETATTR, ROOT, &[0; 16]), Ok(out(ROOT, 0, 0o040555)));
    assert_eq!(kernel.ask(op::GETATTR, BIG, &[0; 16]), Ok(out(BIG, BIG_BYTES, 0o100444)));
    assert_eq!(kernel.ask(op::GETATTR, FAR_ATTRIBUTES, &[0; 16]), Ok(out(FAR_ATTRIBUTES, 13, 0o100444)));
    assert_eq!(kernel.ask(op::GETATTR, 99, &[0; 16]), Err(libc::ESTALE));
    kernel.end(session);
}

#[test]
fn files_are_opened_to_read_only() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    const NOFLUSH: u32 = 1 << 5;
    let table = [
        (HELLO, libc::O_RDONLY, NOFLUSH),
        (FAR, libc::O_RDONLY, NOFLUSH),
        (HELLO, libc::O_DIRECT, NOFLUSH | 1),
        (DIRECT, libc::O_NOFOLLOW, NOFLUSH | 1 | 2),
    ];
    for (node, flags, want) in table {
        let (handle, got) = open(&mut kernel, node, flags);
        assert_eq!(got, want, "{node} {flags:o}");
        assert_eq!(model.state().files[&handle], node);
        let body = [longs(&[handle]), words(&[0, 0]), longs(&[0])].concat();
        assert_eq!(kernel.ask(op::RELEASE, node, &body), Ok(vec![]));
    }
    for flags in [libc::O_WRONLY, libc::O_RDWR, libc::O_RDONLY | libc::O_TRUNC] {
        assert_eq!(kernel.ask(op::OPEN, HELLO, &words(&[flags as u32, 0])), Err(libc::EROFS));
    }
    assert_eq!(kernel.ask(op::OPEN, SUB, &words(&[0, 0])), Err(libc::EISDIR));
    assert!(model.state().files.is_empty());
    kernel.end(session);
}

#[test]
fn bytes_are_read_from_where_they_lie() {
    let (mut kernel, session) = Kernel::serve(&Arc::default());
    // Inode, from, bytes asked, bytes had. In one piece, in pieces, in more pieces than one writev(2) takes,
    // from another thread.
    let table = [
        (HELLO, 0, 4096, 13),
        (HELLO, 7, 3, 3),
        (HELLO, 13, 4096, 0),
        (HELLO, u64::MAX, 4096, 0),
        (BIG, 12345, 65536, 65536),
        (BIG, BIG_BYTES - 100, 65536, 100),
        (PIECES, 0, 1023, 1023),
        (PIECES, 0, 1024, 1024),
        (PIECES, 1, 4999, 4999),
        (FAR, 0, 4096, 13),
    ];
    for (node, at, asked, had) in table {
        let (handle, _) = open(&mut kernel, node, libc::O_RDONLY);
        let body = kernel.ask(op::READ, node, &read(handle, at, asked)).unwrap();
        assert_eq!(body.len(), had, "{node} {at} {asked}");
        assert!(body == Model::bytes(node, at, had), "{node} {at} {asked}");
    }
    assert_eq!(kernel.ask(op::READ, HELLO, &read(999, 0, 10)), Err(libc::EBADF));
    // Counted when the answer is out.
    let stats = until(|| Some(session.stats()).filter(|stats| stats.reads == 10));
    assert_eq!((stats.reads, stats.read_bytes, stats.largest_read_bytes), (10, 72_711, 65536));
    kernel.end(session);
}

/// Names with their inodes and offsets, as the bytes of a READDIR or READDIRPLUS say.
fn dirents(mut bytes: &[u8], plus: bool) -> Vec<(String, u64, u64)> {
    let mut names = Vec::new();
    while !bytes.is_empty() {
        let ahead = if plus { 128 } else { 0 };
        let dirent = &bytes[ahead..];
        let (node, next, length, kind) =
            (long(dirent, 0), long(dirent, 8), word(dirent, 16), word(dirent, 20));
        let name = std::str::from_utf8(&dirent[24..24 + length as usize]).unwrap();
        assert_eq!(kind, if node <= MANY { 4 } else { 8 }, "{name}");
        if plus && name.starts_with('.') {
            assert!(bytes[..128].iter().all(|&byte| byte == 0), "no entry of {name}");
        } else if plus {
            let size = if node == BIG { BIG_BYTES } else { long(bytes, 48) };
            let mode = if node <= MANY { 0o040555 } else { 0o100444 };
            assert_eq!(bytes[..128], entry_out(node, size, mode), "{name}");
        }
        names.push((name.to_owned(), node, next));
        bytes = &bytes[(ahead + 24 + length as usize).next_multiple_of(8)..];
    }
    names
}

#[test]
fn folders_are_read_in_pieces() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    for (opcode, plus) in [(op::READDIR, false), (op::READDIRPLUS, true)] {
        let handle = long(&kernel.ask(op::OPENDIR, ROOT, &words(&[0, 0])).unwrap(), 0);
        let mut all = Vec::new();
        let mut offset = 0;
        loop {
            let body = kernel.ask(opcode, ROOT, &read(handle, offset, 400)).unwrap();
            assert!(body.len() <= 400);
            let names = dirents(&body, plus);
            let Some(last) = names.last() else { break };
            offset = last.2;
            all.extend(names);
        }
        let names: Vec<&str> = all.iter().map(|name| name.0.as_str()).collect();
        let want = [
            ".",
            "..",
            "sub",
            "many",
            "hello",
            "big",
            "far",
            "stuck",
            "stuck-open",
            "stuck-read",
            "pieces",
            "direct",
            "far-attributes",
            "panic",
            "panic-read",
            "kept",
        ];
        assert_eq!(names, want);
        let counted = model.state().lookups.values().sum::<i64>();
        assert_eq!(counted, if plus { want.len() as i64 - 2 } else { 0 });
        // Too small for the first name: not the end of the folder.
        assert_eq!(kernel.ask(opcode, ROOT, &read(handle, 0, 20)), Err(libc::EINVAL));
        assert_eq!(kernel.ask(op::RELEASEDIR, ROOT, &longs(&[handle, 0, 0])), Ok(vec![]));
    }
    assert!(model.state().folders.is_empty());
    assert_eq!(kernel.ask(op::OPENDIR, HELLO, &words(&[0, 0])), Err(libc::ENOTDIR));
    assert_eq!(kernel.ask(op::READDIR, ROOT, &read(999, 0, 4096)), Err(libc::EBADF));
    kernel.end(session);
}

#[test]
fn the_rest_is_answered_or_refused() {
    let (mut kernel, session) = Kernel::serve(&Arc::default());
    let statfs =
        [longs(&[1 << 50, 1 << 50, 1 << 50, 1 << 40, 1 << 40]), words(&[4096, 255, 4096]), vec![0; 28]];
    assert_eq!(kernel.ask(op::STATFS, ROOT, &[]), Ok(statfs.concat()));
    for opcode in [op::FLUSH, op::FSYNC, op::FSYNCDIR, op::DESTROY] {
        assert_eq!(kernel.ask(opcode, ROOT, &[0; 24]), Ok(vec![]), "{opcode}");
    }
    assert_eq!(kernel.ask(op::READLINK, HELLO, &[]), Err(libc::EINVAL));
    assert_eq!(kernel.ask(op::IOCTL, HELLO, &[0; 32]), Err(libc::ENOTTY));
    assert_eq!(kernel.ask(op::INIT, 0, &init(7, 45, 0)), Err(libc::EPROTO));
    // LINK, FALLOCATE, COPY_FILE_RANGE, TMPFILE, COPY_FILE_RANGE_64.
    for opcode in [13, 43, 47, 51, 53] {
        assert_eq!(kernel.ask(opcode, HELLO, &[0; 100]), Err(libc::EOPNOTSUPP), "{opcode}");
    }
    let fifo = [words(&[libc::S_IFIFO | 0o644, 0, 0, 0]), name("fifo")].concat();
    let value = [words(&[3, 0]), name("user.a"), b"abc".to_vec()].concat();
    for (opcode, body) in [
        (op::SYMLINK, [name("new"), name("to/it")].concat()),
        (op::MKNOD, fifo),
        (op::SETXATTR, value),
        (op::REMOVEXATTR, name("user.a")),
    ] {
        assert_eq!(kernel.ask(opcode, SUB, &body), Err(libc::EOPNOTSUPP), "{opcode}");
    }
    let ask = [words(&[0, 0]), name("user.a")].concat();
    assert_eq!(kernel.ask(op::GETXATTR, HELLO, &ask), Err(libc::ENOSYS));
    assert_eq!(kernel.ask(op::LISTXATTR, HELLO, &words(&[0, 0])), Err(libc::ENOSYS));
    // Locks, ACCESS, BMAP, POLL, LSEEK, SYNCFS, STATX; what nobody knows.
    for opcode in [0, 7, 19, 31, 32, 33, 34, 37, 40, 46, 50, 52, 54, 4096, u32::MAX] {
        assert_eq!(kernel.ask(opcode, HELLO, &[0; 100]), Err(libc::ENOSYS), "{opcode}");
    }
    kernel.end(session);
}

/// `struct fuse_write_in` and its bytes.
fn write(handle: u64, at: u64, bytes: &[u8]) -> Vec<u8> {
    let (size, owner) = (words(&[bytes.len() as u32, 0]), longs(&[0]));
    [longs(&[handle, at]), size, owner, words(&[0, 0]), bytes.to_vec()].concat()
}

#[test]
fn what_is_written_is_handed_on() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    let written = |bytes: u32| Ok(words(&[bytes, 0]));
    assert_eq!(kernel.ask(op::WRITE, HELLO, &write(WRITTEN, 7, b"abc")), written(3));
    assert_eq!(kernel.ask(op::WRITE, HELLO, &write(1, 0, b"abc")), Err(libc::EROFS));
    assert_eq!(kernel.ask(op::WRITE, HELLO, &write(WRITTEN_LATER, 0, b"ab")), written(2));
    assert_eq!(kernel.ask(op::WRITE, HELLO, &write(WRITTEN_LATER, 0, b"fails")), Err(libc::ENOSPC));
    let closes = [longs(&[WRITTEN]), longs(&[0, 0])].concat();
    assert_eq!(kernel.ask(op::FLUSH, HELLO, &closes), Err(libc::EDQUOT));
    assert_eq!(kernel.ask(op::FSYNC, HELLO, &closes), Ok(vec![]));
    let asked = model.state().asked.join("\n");
    assert!(asked.contains("write 777 7 [97, 98, 99] "), "{asked}");
    assert!(asked.contains("flush 777") && asked.contains("sync 777"), "{asked}");
    kernel.end(session);
}

#[test]
fn a_write_that_waits_can_be_given_up() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    let unique = kernel.send(op::WRITE, HELLO, &write(WRITTEN_LATER, 0, b"waits"));
    model.until("it waits", |state| state.asked.iter().any(|what| what == "write 778 waits"));
    kernel.send(op::INTERRUPT, 0, &longs(&[unique]));
    let answer = kernel.answer();
    assert_eq!((answer.unique, answer.error), (unique, -libc::EINTR));
    model.until("it is given up", |state| state.asked.iter().any(|what| what == "given up"));
    kernel.end(session);
}

#[test]
fn names_are_changed() {
    let model = Arc::new(Model::default());
    let (mut kernel, session) = Kernel::serve(&model);
    let flags = (libc::O_RDWR | libc::O_EXCL | libc::O_TRUNC | libc::O_DIRECT) as u32;
    let create = [words(&[flags, 0o100600, 0o22, 0]), name("new")].concat();
    let made = kernel.ask(op::CREATE, SUB, &create).unwrap();
    // The entry, then the handle; closing it is told.
    assert_eq!((made.len(), word(&made, 0)), (144, HELLO as u32));
    assert_eq!(word(&made, 136) & (1 << 5), 0, "no NOFLUSH");
    assert_eq!(kernel.ask(op::CREATE, ROOT, &create), Err(libc::EROFS));
    let folder = kernel.ask(op::MKDIR, SUB, &[words(&[0o755, 0]), name("d")].concat()).unwrap();
    assert_eq!((folder.len(), word(&folder, 0)), (128, MANY as u32));
    for (opcode, body) in [
        (op::UNLINK, name("a")),
        (op::RMDIR, name("b")),
        (op::RENAME, [longs(&[ROOT]), name("a"), name("b")].concat()),
        (op::RENAME2, [longs(&[ROOT]), words(&[1, 0]), name("c"), name("d")].concat()),
    ] {
        assert_eq!(kernel.ask(opcode, SUB, &body), Ok(vec![]), "{opcode}");
        assert_eq!(kernel.ask(opcode, ROOT, &body), Err(libc::EROFS), "{opcode}");
    }
    // RENAME_EXCHANGE.
    let exchange = [longs(&[ROOT]), words(&[2, 0]), name("c"), name("d")].concat();
    assert_eq!(kernel.ask(op::RENAME2, SUB, &exchange), Err(libc::EINVAL));
    // Mode, size, and the time of now.
    let valid = 1 | 1 << 3 | 1 << 5 | 1 << 8;
    let change = [words(&[valid, 0]), longs(&[0, 5, 0, 0, 9, 0]), words(&[0, 0, 0, 0o100640, 0, 1, 2, 0])];
    assert_eq!(kernel.ask(op::SETATTR, SUB, &change.concat()).map(|body| body.len()), Ok(104));
    let asked = model.state().asked.join("\n");
    for said in [
        "create 2 \"new\" true OpenMode { reads: true, writes: true, truncates: true, direct: true, permissions: 384 }",
        "unlink 2 \"a\"",
        "rmdir 2 \"b\"",
        "mkdir 2 \"d\"",
        "rename (2, \"a\") (1, \"b\") false",
        "rename (2, \"c\") (1, \"d\") true",
        "change 2 AttributeChanges { size: Some(5), mode: Some(416), uid: None, gid: None, time: Now, accessed: None }",
    ] {
        assert!(asked.contains(said), "{said}\n{asked}");
    }
    kernel.end(session);
}

#[test]
fn what_cannot_be_understood_is_refused() {
    let (mut kernel, session) = Kernel::serve(&Arc::default());
    let table: [(u32, Vec<u8>); 20] = [
        (op::WRITE, write(1, 0, b"abc")[..42].to_vec()),
        (op::CREATE, [words(&[0, 0, 0, 0]), name("a/b")].concat()),
        (op::SETATTR, vec![0; 79]),
        (op::UNLINK, name("")),
        (op::MKDIR, words(&[0, 0])),
        (op::RENAME, [longs(&[1]), name("a")].concat()),
        (op::RENAME2, [longs(&[1]), words(&[0, 0]), name("a"), b"no end".to_vec()].concat()),
        (op::FLUSH, vec![0; 7]),
        (op::LOOKUP, vec![]),
        (op::LOOKUP, b"no end".to_vec()),
        (op::LOOKUP, name("")),
        (op::LOOKUP, name("a/b")),
        (op::OPEN, vec![0; 3]),
        (op::READ, read(1, 0, 1)[..19].to_vec()),
        (op::READDIR, vec![]),
        (op::READDIRPLUS, vec![0; 16]),
        (op::RELEASE, vec![0; 7]),
        (op::RELEASEDIR, vec![]),
        (op::INTERRUPT, vec![0; 4]),
        (op::INIT, vec![0; 7]),
    ];
    for (opcode, body) in &table {
        assert_eq!(kernel.ask(*opcode, ROOT, body), Err(libc::EINVAL), "{opcode} {body:?}");
    }
    // A length that is not the packet's.
    for length in [0, 39, 41, u32::MAX] {
        let mut bytes = request(op::GETATTR, 4242, ROOT, 0, &[0; 16]);
        bytes[..4].copy_from_slice(&length.to_ne_bytes());
        kernel.send_bytes(&bytes);
        let answer = kernel.answer();
        assert_eq!((answer.unique, answer.error), (4242, -libc::EINVAL));
    }
    // Nobody can be answered, or nobody waits; then it goes on.
    for length in [1, 8, 16, 39] {
        kernel.send_bytes(&request(op::GETATTR, 4242, ROOT, 0, &[])[..length]);
    }
    kernel.send(op::FORGET, HELLO, &[0; 7]);
    kernel.send(op::BATCH_FORGET, 0, &words(&[u32::MAX, 0]));
    kernel.send(op::BATCH_FORGET, 0, &[words(&[2, 0]), longs(&[HELLO, 1, HELLO])].concat());
    kernel.send_bytes(&[0xff; 8000]);
    assert_eq!(kernel.answer().error, -libc::EINVAL);
    assert!(kernel.ask(op::GETATTR, ROOT, &[0; 16]).is_ok());
    assert_eq!(session.stats().malformed, 20 + 4 + 4 + 3 + 1);
    kernel.end(session);
}

#[test]
fn a_defect_is_an_error_for_one_request() {
    let (mut kernel, session) = Kernel::serve(&Arc::default());
    assert_eq!(kernel.ask(op::LOOKUP, ROOT, &name("panic")), Err(libc::EIO));
    let (handle, _) = open(&mut kernel, PANIC_READ, libc::O_RDONLY);
    assert_eq!(kernel.ask(op::READ, PANIC_READ, &read(handle, 0, 10)), Err(libc::EIO));
    assert!(kernel.ask(op::GETATTR, ROOT, &[0; 16]).is_ok());
    assert_eq!(session.stats().defects, 2);
    kernel.end(session);
}
