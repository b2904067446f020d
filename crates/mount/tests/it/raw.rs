//! The kernel's side of a connection, by hand: requests are put together here, and answers taken apart,
//! without a word of the crate's.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use flatout_engine::Error;
use flatout_mount::{Observer, Options, Session, SessionEnd, UnservedMount};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::model::Model;

pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const FLUSH: u32 = 25;
    pub const INIT: u32 = 26;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
}

/// A hang guard, never a measure.
const DEADLINE: Duration = Duration::from_secs(60);

/// One end of a socket whose other end a session takes for `/dev/fuse`.
pub struct Kernel {
    socket: OwnedFd,
    next: u64,
    pub pid: u32,
}

/// What came back.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    pub unique: u64,
    /// Zero or negative.
    pub error: i32,
    pub body: Vec<u8>,
}

impl Kernel {
    /// Before its INIT.
    pub fn new() -> (Kernel, UnservedMount) {
        let (kernel, device) = Kernel::with_device();
        let options = Options { threads: 2, ..Options::new("model", "/nowhere") };
        (kernel, UnservedMount::of_descriptor(device, options))
    }

    /// With what a session takes for `/dev/fuse`.
    pub fn with_device() -> (Kernel, OwnedFd) {
        let flags = SocketFlags::CLOEXEC;
        let (ours, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        (Kernel { socket: ours, next: 2, pid: 0 }, theirs)
    }

    /// The answer to this INIT, and what became of the session.
    pub fn init(body: Vec<u8>, model: &Arc<Model>) -> (Kernel, Answer, Result<Session, Error>) {
        let (mut kernel, mounted) = Kernel::new();
        kernel.send(op::INIT, 0, &body);
        let session = mounted.serve(model.clone(), Observer::default());
        let answer = kernel.answer();
        (kernel, answer, session)
    }

    /// A served session.
    pub fn serve(model: &Arc<Model>) -> (Kernel, Session) {
        let (kernel, answer, session) = Kernel::init(init(7, 45, u64::MAX), model);
        assert_eq!(answer.error, 0);
        (kernel, session.unwrap())
    }

    /// A request, well formed but for its body; its unique number.
    pub fn send(&mut self, opcode: u32, node: u64, body: &[u8]) -> u64 {
        let unique = self.next;
        self.next += 2;
        self.send_bytes(&request(opcode, unique, node, self.pid, body));
        unique
    }

    /// Sends a request that was not answered once more.
    pub fn send_again(&self, opcode: u32, unique: u64, node: u64, body: &[u8]) {
        self.send_bytes(&request(opcode, unique | 1 << 63, node, self.pid, body));
    }

    pub fn send_bytes(&self, bytes: &[u8]) {
        rustix::net::send(&self.socket, bytes, rustix::net::SendFlags::NOSIGNAL).unwrap();
    }

    /// The next answer, whosever it is.
    #[track_caller]
    pub fn answer(&self) -> Answer {
        self.answer_within(DEADLINE).expect("an answer")
    }

    /// None: nothing came for so long.
    pub fn answer_within(&self, wait: Duration) -> Option<Answer> {
        let mut waits = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::IN)];
        let wait =
            rustix::event::Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        if rustix::event::poll(&mut waits, Some(&wait)).unwrap() == 0 {
            return None;
        }
        let mut buffer = vec![0; 1 << 20];
        let bytes = rustix::io::read(&self.socket, &mut buffer).unwrap();
        buffer.truncate(bytes);
        assert!(bytes >= 16, "an answer has a header: {buffer:?}");
        let word = |at: usize| u32::from_ne_bytes(buffer[at..at + 4].try_into().unwrap());
        assert_eq!(word(0) as usize, bytes, "it says its length");
        let error = word(4) as i32;
        let unique = u64::from_ne_bytes(buffer[8..16].try_into().unwrap());
        // A notification has its code there.
        assert!((-511..=0).contains(&error) || unique == 0, "{error}");
        assert!(error == 0 || bytes == 16, "an error has no body");
        Some(Answer { unique, error, body: buffer.split_off(16) })
    }

    /// Sends and waits for its answer.
    #[track_caller]
    pub fn ask(&mut self, opcode: u32, node: u64, body: &[u8]) -> Result<Vec<u8>, i32> {
        let unique = self.send(opcode, node, body);
        let answer = self.answer();
        assert_eq!(answer.unique, unique);
        if answer.error == 0 { Ok(answer.body) } else { Err(-answer.error) }
    }

    /// The end of the connection, and of the session.
    pub fn end(self, session: Session) {
        drop(self.socket);
        assert_eq!(session.wait().unwrap(), SessionEnd::Unmounted);
    }
}

pub fn request(opcode: u32, unique: u64, node: u64, pid: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = words(&[40 + body.len() as u32, opcode]);
    bytes.extend(longs(&[unique, node]));
    bytes.extend(words(&[0, 0, pid, 0]));
    bytes.extend(body);
    bytes
}

/// An INIT of a kernel that can all this.
pub fn init(major: u32, minor: u32, flags: u64) -> Vec<u8> {
    let mut bytes = words(&[major, minor, 128 << 10, flags as u32, (flags >> 32) as u32]);
    bytes.extend([0; 44]);
    bytes
}

pub fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

pub fn name(name: &str) -> Vec<u8> {
    [name.as_bytes(), &[0]].concat()
}

/// A READ, READDIR or READDIRPLUS.
pub fn read(handle: u64, at: u64, bytes: u32) -> Vec<u8> {
    [longs(&[handle, at]), words(&[bytes, 0]), longs(&[0]), words(&[0, 0])].concat()
}
