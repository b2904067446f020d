//! What the kernel asks: the bytes of one `read(2)` of `/dev/fuse`, checked and typed.
//!
//! Nothing here panics or trusts a length, whatever the bytes. What a newer kernel appends to a struct is passed over.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::abi::{IN_HEADER, op};

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// Which one: an answer names it.
    pub unique: u64,
    /// The inode that it is about; 0 where it is about none.
    pub node: u64,
    /// The thread that waits, as this process's namespace knows it; 0 where it does not, or where nobody waits.
    pub pid: u32,
    /// What is asked.
    pub operation: Operation<'a>,
}

/// What is asked, as far as we know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// The first request of a connection.
    Init(Init),
    /// The last one, of some connections.
    Destroy,
    /// Which inode a name of this folder is.
    Lookup {
        /// Neither empty nor with a `/`.
        name: &'a OsStr,
    },
    /// Lookups that the kernel counts no more. Not answered.
    Forget(Forgets<'a>),
    /// What an inode is.
    Attributes,
    /// A file is opened.
    Open {
        /// As of `open(2)`, of this machine.
        flags: u32,
    },
    /// Bytes of an open file.
    Read {
        /// As OPEN answered.
        handle: u64,
        /// From this byte on.
        at: u64,
        /// So many at most.
        bytes: u32,
    },
    /// A file is closed for good.
    Release {
        /// As OPEN answered.
        handle: u64,
    },
    /// A folder is opened.
    OpenFolder,
    /// Names of an open folder.
    ReadFolder {
        /// As OPENDIR answered.
        handle: u64,
        /// 0, or what the last name that was taken said comes next.
        offset: u64,
        /// So many bytes of entries at most.
        bytes: u32,
        /// With what a lookup of each would tell.
        plus: bool,
    },
    /// A folder is closed for good.
    ReleaseFolder {
        /// As OPENDIR answered.
        handle: u64,
    },
    /// How large the whole is.
    Statfs,
    /// FLUSH, FSYNC, FSYNCDIR: what was written shall be kept. Nothing was.
    Sync,
    /// Who waits for that request got a signal.
    Interrupt {
        /// The request.
        unique: u64,
    },
    /// A symbolic link's target; there are none.
    ReadLink,
    /// A device's own call; files have none.
    Ioctl,
    /// Whatever changes something.
    Write,
    /// What we do not have, and what the kernel does well without; it asks once.
    Unknown {
        /// The kernel's number.
        opcode: u32,
    },
}

/// What INIT says of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Init {
    /// Of the protocol.
    pub major: u32,
    /// Of the protocol.
    pub minor: u32,
    /// The most bytes that it reads ahead by itself.
    pub max_readahead: u32,
    /// What it can do, both words.
    pub flags: u64,
}

/// Pairs of an inode and how many lookups of it are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgets<'a> {
    /// Of one.
    One(u64, u64),
    /// Of many, 16 bytes each.
    Many(&'a [u8]),
}

/// What cannot be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Not even a header: nobody can be answered.
    Headless,
    /// A body that is too short, or says what cannot be.
    Body {
        /// Which request.
        unique: u64,
        /// Whether somebody waits for an answer.
        answered: bool,
    },
}

impl<'a> Request<'a> {
    /// Reads the bytes of one request.
    pub fn parse(bytes: &'a [u8]) -> Result<Request<'a>, Malformed> {
        let mut header = Fields(bytes);
        let (length, opcode, unique, node, _uid, _gid, pid, _extensions) = (|| -> Option<_> {
            Some((
                header.u32()?,
                header.u32()?,
                header.u64()?,
                header.u64()?,
                header.u32()?,
                header.u32()?,
                header.u32()?,
                header.u32()?,
            ))
        })()
        .ok_or(Malformed::Headless)?;
        let answered = !matches!(opcode, op::FORGET | op::BATCH_FORGET);
        let malformed = Malformed::Body { unique, answered };
        // One read(2) is one request, so another length is another kernel's idea of the header.
        if length as usize != bytes.len() {
            return Err(malformed);
        }
        let operation = operation(opcode, node, Fields(&bytes[IN_HEADER..])).ok_or(malformed)?;
        Ok(Request { unique, node, pid, operation })
    }
}

fn operation<'a>(opcode: u32, node: u64, mut body: Fields<'a>) -> Option<Operation<'a>> {
    Some(match opcode {
        op::INIT => Operation::Init(init(body)?),
        op::DESTROY => Operation::Destroy,
        op::LOOKUP => Operation::Lookup { name: body.name()? },
        op::FORGET => Operation::Forget(Forgets::One(node, body.u64()?)),
        op::BATCH_FORGET => Operation::Forget(Forgets::Many(batch(body)?)),
        // Flags and a handle follow; an inode tells the same through every handle.
        op::GETATTR => Operation::Attributes,
        op::OPEN => Operation::Open { flags: body.u32()? },
        op::READ => {
            let (handle, at, bytes) = (body.u64()?, body.u64()?, body.u32()?);
            Operation::Read { handle, at, bytes }
        }
        op::RELEASE => Operation::Release { handle: body.u64()? },
        op::OPENDIR => Operation::OpenFolder,
        op::READDIR | op::READDIRPLUS => {
            let (handle, offset, bytes) = (body.u64()?, body.u64()?, body.u32()?);
            Operation::ReadFolder { handle, offset, bytes, plus: opcode == op::READDIRPLUS }
        }
        op::RELEASEDIR => Operation::ReleaseFolder { handle: body.u64()? },
        op::STATFS => Operation::Statfs,
        op::FLUSH | op::FSYNC | op::FSYNCDIR => Operation::Sync,
        op::INTERRUPT => Operation::Interrupt { unique: body.u64()? },
        op::READLINK => Operation::ReadLink,
        op::IOCTL => Operation::Ioctl,
        op::SETATTR
        | op::SYMLINK
        | op::MKNOD
        | op::MKDIR
        | op::UNLINK
        | op::RMDIR
        | op::RENAME
        | op::RENAME2
        | op::LINK
        | op::WRITE
        | op::SETXATTR
        | op::REMOVEXATTR
        | op::CREATE
        | op::FALLOCATE
        | op::COPY_FILE_RANGE
        | op::COPY_FILE_RANGE_64
        | op::TMPFILE => Operation::Write,
        _ => Operation::Unknown { opcode },
    })
}

/// Up to 7.35 it had four words.
fn init(mut body: Fields<'_>) -> Option<Init> {
    let (major, minor) = (body.u32()?, body.u32()?);
    let (max_readahead, low) = (body.u32().unwrap_or(0), body.u32().unwrap_or(0));
    let high = match u64::from(low) & crate::abi::init::INIT_EXT {
        0 => 0,
        _ => body.u32().unwrap_or(0),
    };
    Some(Init { major, minor, max_readahead, flags: u64::from(low) | u64::from(high) << 32 })
}

/// The pairs themselves, as many as it says there are.
fn batch(mut body: Fields<'_>) -> Option<&[u8]> {
    let (count, _) = (body.u32()?, body.u32()?);
    body.0.get(..(count as usize).checked_mul(16)?)
}

impl Forgets<'_> {
    /// Inode, times.
    pub fn pairs(&self) -> impl Iterator<Item = (u64, u64)> {
        let (one, many) = match *self {
            Forgets::One(node, times) => (Some((node, times)), &[][..]),
            Forgets::Many(bytes) => (None, bytes),
        };
        let many = many.chunks_exact(16).filter_map(|pair| {
            let mut pair = Fields(pair);
            Some((pair.u64()?, pair.u64()?))
        });
        one.into_iter().chain(many)
    }
}

/// Bytes, taken from the front.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// Up to its NUL, which must be there.
    fn name(&mut self) -> Option<&'a OsStr> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let name = &self.0[..end];
        (!name.is_empty() && !name.contains(&b'/')).then(|| OsStr::from_bytes(name))
    }
}
