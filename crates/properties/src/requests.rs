//! What the kernel asks of a mount: whatever the bytes, nothing panics, and each request has one well-formed answer or none.

use std::ffi::OsStr;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use flatout_mount::{
    Attributes, Cancel, Errno, FileKind, Files, FolderEntry, Known, Mounted, Opened, Options, ReadAnswer,
    Source, Statfs,
};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

/// `bytes` are requests, each behind its length of two bytes. Each is sent as it is, and once more with that length in its header,
/// so that not every change makes it unreadable.
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
    // It is as well as before.
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
const OPEN: u32 = 14;
const READ: u32 = 15;
const STATFS: u32 = 17;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const READDIRPLUS: u32 = 44;
const BATCH_FORGET: u32 = 42;

/// A session whose device is the other end of a socket, behind its INIT.
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
    let session = Mounted::of_descriptor(theirs, options).serve_files(Arc::new(Made)).expect("it is served");
    let (error, body) = receive(&ours, 2);
    assert_eq!((error, body.len()), (0, 64));
    (ours, session)
}

/// The answer to a request, or None where there is to be none.
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
            // One without an inode is of a name that is not there.
            LOOKUP => body.len() == 128,
            GETATTR => body.len() == 104,
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

/// One packet that is an answer to this.
fn receive(kernel: &OwnedFd, unique: u64) -> (i32, Vec<u8>) {
    // A hang guard: an answer that does not come is a finding.
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
    // FUSE_NOTIFY_INVAL_INODE, ahead of the answer to an open of another version than was told; no answer has such a code.
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

/// Files that are made of what is asked.
struct Made;

/// As many bytes as a socket takes in one packet, and a header.
const MOST: usize = 64 << 10;

impl Made {
    fn known(node: u64) -> Known {
        let attributes = Attributes {
            ino: node,
            size: node,
            modified_s: node as i64,
            changed_s: !node as i64,
            kind: if node.is_multiple_of(2) { FileKind::Folder } else { FileKind::File },
            mode: node as u32,
            uid: 0,
            gid: 0,
            links: 0,
            source: Source::Listing,
        };
        let lifetime = Duration::new(node, node as u32 % 1_000_000_000);
        Known { node, generation: node as u32, attributes, lifetime }
    }

    fn found(name: &OsStr) -> Result<Known, Errno> {
        let sum =
            name.as_bytes().iter().fold(0u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        match sum % 4 {
            0 => Err(2),
            // No errno that the kernel would take.
            1 => Err(sum as i32),
            _ => Ok(Made::known(sum)),
        }
    }
}

impl Files for Made {
    fn lookup(&self, _parent: u64, name: &OsStr) -> Result<Known, Errno> {
        Made::found(name)
    }

    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Known, Errno>> {
        (!parent.is_multiple_of(3)).then(|| Made::found(name))
    }

    fn negative_lifetime(&self) -> Duration {
        Duration::MAX
    }

    fn attributes(&self, node: u64) -> Result<Known, Errno> {
        Ok(Made::known(node))
    }

    fn attributes_known(&self, node: u64) -> Option<Result<Known, Errno>> {
        (!node.is_multiple_of(3) || node == 0).then(|| Ok(Made::known(node)))
    }

    fn forget(&self, _node: u64, _times: u64) {}

    fn open_folder(&self, node: u64) -> Result<u64, Errno> {
        Ok(node)
    }

    fn read_folder(
        &self,
        handle: u64,
        offset: u64,
        _plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), Errno> {
        let names = [".".to_owned(), "..".to_owned(), "n".repeat(handle as usize % 300 + 1)];
        for at in offset..200 {
            let name = OsStr::new(&names[at.min(2) as usize]);
            if !each(&FolderEntry { known: Made::known(handle), name, next: at + 1 }) {
                break;
            }
        }
        if handle.is_multiple_of(5) { Err(5) } else { Ok(()) }
    }

    fn release_folder(&self, _handle: u64) {}

    fn open(&self, node: u64, direct: bool) -> Result<Opened, Errno> {
        Ok(Opened { handle: node, direct, keep_cache: true, is_news: node.is_multiple_of(2) })
    }

    fn open_known(&self, node: u64, direct: bool) -> Option<Result<Opened, Errno>> {
        (!node.is_multiple_of(3)).then(|| self.open(node, direct))
    }

    fn read(&self, handle: u64, at: u64, bytes: usize, answer: ReadAnswer) -> Option<Cancel> {
        // More than was asked for, as well: it must not reach the kernel.
        let content = vec![at as u8; bytes.saturating_add(at as usize % 10).min(MOST)];
        match handle % 4 {
            0 => answer.fail(handle as i32),
            1 => answer.send(content.chunks(1)),
            _ => answer.send(content.chunks(handle as usize % 5000 + 1)),
        }
        handle.is_multiple_of(2).then(|| Box::new(|| {}) as Cancel)
    }

    fn release(&self, _handle: u64) {}

    fn statfs(&self) -> Statfs {
        Statfs { block_bytes: 0, blocks: 0, files: 0, name_bytes_max: 0 }
    }
}
