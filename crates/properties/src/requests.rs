//! A kernel's requests to a mount: for any bytes, nothing panics, and each request has one well-formed
//! answer or none.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use flatout_mount::{Observer, Options, UnservedMount};
use flatout_tree::{
    AttributeChanges, AttributeSource, Attributes, Caller, Cancel, FileKind, Files, FolderEntry, FsError,
    Node, OpenMode, OpenedFile, Slices, Statfs, WriteMoment,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

/// `bytes` are requests, each after its length of two bytes. Each is sent unchanged, and once more with
/// that length in its header, so that fewer mutations make it unreadable.
pub fn requests(bytes: &[u8]) {
    let (kernel, session) = pair();
    let mut rest = bytes;
    let mut asked = 0;
    while let Some((length, behind)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
        let (request, behind) = behind.split_at(length);
        rest = behind;
        ask(&kernel, request);
        let mut mended = request.to_vec();
        if let Some(said) = mended.first_chunk_mut() {
            *said = (length as u32).to_ne_bytes();
            ask(&kernel, &mended);
        }
        asked += 1;
        if asked == 20 {
            break;
        }
    }
    // The session still works.
    let mut last = vec![0; HEADER + 16];
    last[..4].copy_from_slice(&(HEADER as u32 + 16).to_ne_bytes());
    last[4..8].copy_from_slice(&GETATTR.to_ne_bytes());
    let (error, body) = ask(&kernel, &last).expect("it is answered");
    assert_eq!((error, body.len()), (0, 104));
    drop(kernel);
    let stats = session.stats();
    session.wait().expect("a clean end");
    assert_eq!((stats.defects, stats.late), (0, 0));
}

const HEADER: usize = 40;
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const SETATTR: u32 = 4;
const MKDIR: u32 = 9;
const OPEN: u32 = 14;
const READ: u32 = 15;
const WRITE: u32 = 16;
const STATFS: u32 = 17;
const CREATE: u32 = 35;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const READDIRPLUS: u32 = 44;
const BATCH_FORGET: u32 = 42;

/// A session after its INIT, whose device is the other end of a socket.
fn pair() -> (OwnedFd, flatout_mount::Session) {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a pair of sockets");
    let mut init = vec![0; HEADER + 64];
    for (at, word) in
        [(0, 104), (4, 26), (8, 2), (40, 7), (44, 45), (48, 128 << 10), (52, u32::MAX), (56, u32::MAX)]
    {
        init[at..at + 4].copy_from_slice(&u32::to_ne_bytes(word));
    }
    rustix::net::send(&ours, &init, SendFlags::NOSIGNAL).expect("room in a socket");
    let options = Options { threads: 1, ..Options::new("properties", "/nowhere") };
    let session = UnservedMount::of_descriptor(theirs, options)
        .serve(Arc::new(Made), Observer::default())
        .expect("it is served");
    let (error, body) = receive(&ours, 2);
    assert_eq!((error, body.len()), (0, 64));
    (ours, session)
}

/// The answer to a request, or None if it gets none.
fn ask(kernel: &OwnedFd, request: &[u8]) -> Option<(i32, Vec<u8>)> {
    if request.is_empty() {
        return None;
    }
    rustix::net::send(kernel, request, SendFlags::NOSIGNAL).expect("room in a socket");
    let word = |at: usize| {
        request.get(at..at + 4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
    };
    let opcode = word(4)?;
    if request.len() < HEADER || matches!(opcode, FORGET | BATCH_FORGET) {
        return None;
    }
    let unique = u64::from(word(8)?) | u64::from(word(12)?) << 32;
    let (error, body) = receive(kernel, unique);
    if error == 0 {
        let asked = word(HEADER + 16).unwrap_or(0) as usize;
        let well = match opcode {
            // An entry without an inode is a missing name.
            LOOKUP | MKDIR => body.len() == 128,
            CREATE => body.len() == 144,
            WRITE => body.len() == 8 && body[..4] == word(HEADER + 16).unwrap_or(0).to_ne_bytes(),
            GETATTR | SETATTR => body.len() == 104,
            OPEN | OPENDIR => body.len() == 16,
            STATFS => body.len() == 80,
            READ => body.len() <= asked,
            READDIR | READDIRPLUS => body.len() <= asked && are_names(&body, opcode == READDIRPLUS),
            _ => body.is_empty(),
        };
        assert!(well, "{} bytes answer {opcode}", body.len());
    }
    Some((error, body))
}

/// A packet that answers this request.
fn receive(kernel: &OwnedFd, unique: u64) -> (i32, Vec<u8>) {
    // A guard against hangs: a missing answer is a finding.
    let mut socket = UnixStream::from(kernel.try_clone().expect("another descriptor"));
    socket.set_read_timeout(Some(Duration::from_secs(15))).expect("a time is set");
    let mut packet = vec![0; 256 << 10];
    // libFuzzer's alarm interrupts calls.
    let bytes = loop {
        match socket.read(&mut packet) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => break read.expect("an answer"),
        }
    };
    assert!(bytes >= 16, "an answer has a header");
    packet.truncate(bytes);
    let word = |at: usize| u32::from_ne_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    assert_eq!(word(0) as usize, bytes, "an answer says its length");
    let about = u64::from(word(8)) | u64::from(word(12)) << 32;
    // FUSE_NOTIFY_INVAL_INODE, before the answer to an open of another version than the reported one; no
    // answer has such a code.
    if (word(4), about, bytes) == (2, 0, 16 + 24) {
        return receive(kernel, unique);
    }
    assert_eq!(about, unique, "an answer is to what was asked");
    let error = word(4) as i32;
    assert!((-511..=0).contains(&error), "{error}");
    assert!(error == 0 || bytes == 16, "an error has no body");
    (error, packet.split_off(16))
}

/// `fuse_dirent`s that fill the body, each padded to eight bytes.
fn are_names(mut body: &[u8], plus: bool) -> bool {
    let ahead = if plus { 128 } else { 0 };
    while !body.is_empty() {
        let Some(length) = body.get(ahead + 16..ahead + 20) else { return false };
        let length = u32::from_ne_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let whole = (ahead + 24 + length).next_multiple_of(8);
        let Some(name) = body.get(ahead + 24..ahead + 24 + length) else { return false };
        if length == 0 || name.contains(&0) || name.contains(&b'/') || body.len() < whole {
            return false;
        }
        body = &body[whole..];
    }
    true
}

/// Files whose content follows from the requests.
struct Made;

/// The bytes of one packet of a socket, and a header.
const MOST: usize = 64 << 10;

impl Made {
    fn known(node: u64) -> Node {
        let attributes = Attributes {
            ino: node,
            size: node,
            modified_s: node as i64,
            modified_ns: node as u32,
            accessed: None,
            changed_s: !node as i64,
            is_link: node.is_multiple_of(3),
            kind: if node.is_multiple_of(2) { FileKind::Folder } else { FileKind::File },
            mode: node as u32,
            uid: 0,
            gid: 0,
            links: 0,
            source: AttributeSource::Listing,
        };
        let lifetime = Duration::new(node, node as u32 % 1_000_000_000);
        Node { id: node, generation: node as u32, attributes, lifetime }
    }

    fn found(name: &OsStr) -> Result<Node, FsError> {
        let sum =
            name.as_bytes().iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        match sum % 4 {
            0 => Err(FsError::of(2)),
            // No errno that the kernel would take.
            1 => Err(FsError::of(sum as i32)),
            _ => Ok(Made::known(sum)),
        }
    }
}

impl Made {
    fn opened(node: u64, mode: OpenMode) -> Result<OpenedFile, FsError> {
        Ok(OpenedFile {
            handle: node,
            direct: mode.direct,
            keep_cache: true,
            has_changed: node.is_multiple_of(2),
            is_written: mode.writes,
        })
    }

    /// No errno that the kernel would take is among them.
    fn done(number: u64) -> Result<(), FsError> {
        if number.is_multiple_of(2) { Ok(()) } else { Err(FsError::of(number as i32)) }
    }
}

impl Files for Made {
    fn create(
        &self,
        parent: u64,
        name: &OsStr,
        _exclusive: bool,
        mode: OpenMode,
        _caller: Caller,
    ) -> Result<(Node, OpenedFile), FsError> {
        Ok((Made::found(name)?, Made::opened(parent, mode)?))
    }

    fn write_known(
        &self,
        handle: u64,
        at: u64,
        _bytes: &[u8],
        _caller: Caller,
    ) -> Option<Result<bool, FsError>> {
        (!handle.is_multiple_of(3)).then(|| Made::done(at).map(|()| at.is_multiple_of(4)))
    }

    fn write(
        &self,
        handle: u64,
        at: u64,
        _bytes: &[u8],
        _caller: Caller,
        goes_on: &mut dyn FnMut(WriteMoment) -> bool,
    ) -> Result<bool, FsError> {
        match goes_on(WriteMoment::Wait) && (handle.is_multiple_of(5) || goes_on(WriteMoment::Take)) {
            true => Made::done(at).map(|()| at.is_multiple_of(4)),
            false => Err(FsError::of(4)),
        }
    }

    fn flush(&self, handle: u64, _caller: Caller) -> Result<(), FsError> {
        Made::done(handle)
    }

    fn sync(&self, handle: u64) -> Result<(), FsError> {
        Made::done(handle)
    }

    fn is_written(&self, handle: u64, _at: u64, _bytes: usize) -> bool {
        handle.is_multiple_of(7)
    }

    fn read_written(&self, handle: u64, at: u64, bytes: usize) -> Result<Vec<u8>, FsError> {
        Made::done(handle)?;
        Ok(vec![at as u8; bytes.saturating_add(at as usize % 10).min(MOST)])
    }

    fn change_attributes(&self, node: u64, changes: AttributeChanges) -> Result<Node, FsError> {
        Made::done(changes.size.unwrap_or(0))?;
        Ok(Made::known(node))
    }

    fn remove_file(&self, parent: u64, _name: &OsStr) -> Result<(), FsError> {
        Made::done(parent)
    }

    fn make_folder(&self, _parent: u64, name: &OsStr, _: u32, _: Caller) -> Result<Node, FsError> {
        Made::found(name)
    }

    fn remove_folder(&self, parent: u64, _name: &OsStr) -> Result<(), FsError> {
        Made::done(parent)
    }

    fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), _exclusive: bool) -> Result<(), FsError> {
        Made::done(from.0 ^ to.0)
    }

    fn release_waits(&self, handle: u64) -> bool {
        handle.is_multiple_of(3)
    }

    fn lookup(&self, _parent: u64, name: &OsStr) -> Result<Node, FsError> {
        Made::found(name)
    }

    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Node, FsError>> {
        (!parent.is_multiple_of(3)).then(|| Made::found(name))
    }

    fn negative_lifetime(&self) -> Duration {
        Duration::MAX
    }

    fn attributes(&self, node: u64) -> Result<Node, FsError> {
        Ok(Made::known(node))
    }

    fn attributes_known(&self, node: u64) -> Option<Result<Node, FsError>> {
        (!node.is_multiple_of(3) || node == 0).then(|| Ok(Made::known(node)))
    }

    fn forget(&self, _node: u64, _times: u64) {}

    fn open_folder(&self, node: u64) -> Result<u64, FsError> {
        Ok(node)
    }

    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        _plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), FsError> {
        let names = [".".to_owned(), "..".to_owned(), "n".repeat(handle as usize % 300 + 1)];
        for at in offset..200 {
            let name = OsStr::new(&names[at.min(2) as usize]);
            if !each(&FolderEntry { node: Made::known(handle), name, next: at + 1 }) {
                break;
            }
        }
        if handle.is_multiple_of(5) { Err(FsError::of(5)) } else { Ok(()) }
    }

    fn release_folder(&self, _handle: u64) {}

    fn open(&self, node: u64, mode: OpenMode, _caller: Caller) -> Result<OpenedFile, FsError> {
        Made::opened(node, mode)
    }

    fn open_known(&self, node: u64, mode: OpenMode) -> Option<Result<OpenedFile, FsError>> {
        (!node.is_multiple_of(3)).then(|| Made::opened(node, mode))
    }

    fn read(
        &self,
        handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        // More than was asked for, as well: it must not reach the kernel.
        let content = vec![at as u8; bytes.saturating_add(at as usize % 10).min(MOST)];
        match handle % 4 {
            0 => done(Err(FsError::of(handle as i32))),
            1 => done(Ok(&mut content.chunks(1))),
            _ => done(Ok(&mut content.chunks(handle as usize % 5000 + 1))),
        }
        handle.is_multiple_of(2).then(|| Box::new(|| {}) as Cancel)
    }

    fn release(&self, handle: u64) -> Result<(), FsError> {
        Made::done(handle)
    }

    fn statfs(&self) -> Statfs {
        Statfs { block_bytes: 0, blocks: 0, files: 0, name_bytes_max: 0 }
    }
}
