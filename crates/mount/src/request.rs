//! The kernel's requests: the bytes of one `read(2)` of `/dev/fuse`, checked and typed.
//!
//! No bytes make it panic, and it trusts no length. Fields that a newer kernel appends to a struct are
//! skipped.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use flatout_tree::{AttributeChanges, Time, TimeChange};

use crate::abi::{IN_HEADER, RESENT, fattr, mode, op};

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuseRequest<'a> {
    /// Its number, which the answer repeats.
    pub unique: u64,
    /// The inode that it is about; 0 for none.
    pub node: u64,
    /// The waiting thread, by its number in this process's namespace; 0 if it has none there, or if no thread
    /// waits.
    pub pid: u32,
    /// Whose the thread is.
    pub uid: u32,
    pub gid: u32,
    pub operation: FuseOperation<'a>,
}

impl FuseRequest<'_> {
    /// Whether it was sent before, and read by a process that did not answer.
    pub fn is_resent(&self) -> bool {
        self.unique & RESENT != 0
    }

    /// Its number, the same when it is sent again.
    pub fn number(&self) -> u64 {
        self.unique & !RESENT
    }
}

/// The operations that have an answer other than ENOSYS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FuseOperation<'a> {
    /// The first request of a connection.
    Init(InitRequest),
    /// The last request of some connections.
    Destroy,
    /// Asks for the inode of a name in this folder.
    Lookup {
        /// Neither empty nor with a `/`.
        name: &'a OsStr,
    },
    /// Takes back lookups. Not answered.
    Forget(Forgets<'a>),
    /// Asks for the attributes of an inode.
    Attributes,
    /// Opens a file.
    Open {
        /// As of `open(2)`, of this machine.
        flags: u32,
    },
    /// Reads from an open file.
    Read {
        /// As OPEN answered.
        handle: u64,
        /// The first byte.
        at: u64,
        /// At most this many.
        bytes: u32,
    },
    /// The last descriptor of an open file is closed.
    Release {
        /// As OPEN answered.
        handle: u64,
    },
    /// Opens a folder.
    OpenFolder,
    /// Reads names from an open folder.
    ReadFolder {
        /// As OPENDIR answered.
        handle: u64,
        /// 0, or the offset after the last name that was taken.
        offset: u64,
        /// The most bytes of entries.
        bytes: u32,
        /// Each name with the answer to its lookup.
        plus: bool,
    },
    /// The last descriptor of an open folder is closed.
    ReleaseFolder {
        /// As OPENDIR answered.
        handle: u64,
    },
    /// Makes and opens a file.
    Create {
        /// As of `open(2)`, of this machine.
        flags: u32,
        /// Permission bits, without the type; the umask is taken off.
        permissions: u32,
        /// Neither empty nor with a `/`.
        name: &'a OsStr,
    },
    /// Writes to an open file.
    Write {
        /// As OPEN answered.
        handle: u64,
        /// The first byte.
        at: u64,
        /// What is written.
        bytes: &'a [u8],
    },
    /// A descriptor of an open file is closed.
    Flush {
        /// As OPEN answered.
        handle: u64,
    },
    /// FSYNC: what was written is to last.
    Sync {
        /// As OPEN answered.
        handle: u64,
    },
    /// Changes attributes.
    SetAttributes(AttributeChanges),
    /// Removes the name of a file from this folder.
    RemoveFile {
        /// Neither empty nor with a `/`.
        name: &'a OsStr,
    },
    /// Makes a folder in this folder.
    MakeFolder {
        /// As of CREATE.
        permissions: u32,
        /// Neither empty nor with a `/`.
        name: &'a OsStr,
    },
    /// Removes an empty folder from this folder.
    RemoveFolder {
        /// Neither empty nor with a `/`.
        name: &'a OsStr,
    },
    /// Gives a name of this folder to another name, perhaps in another folder.
    Rename {
        /// Neither empty nor with a `/`.
        name: &'a OsStr,
        /// The inode of the other folder.
        new_parent: u64,
        /// Neither empty nor with a `/`.
        new_name: &'a OsStr,
        /// `RENAME_*` of `renameat2(2)`.
        flags: u32,
    },
    /// Asks for the size of the file system.
    Statfs,
    /// FSYNCDIR. There is nothing to do.
    SyncFolder,
    /// The thread that waits for another request got a signal.
    Interrupt {
        /// The other request's number.
        unique: u64,
    },
    /// Makes a file in this folder, and opens it not: tar(1) sets its attributes first.
    MakeFile {
        /// As of CREATE.
        permissions: u32,
        /// Neither empty nor with a `/`.
        name: &'a OsStr,
    },
    /// Makes a symbolic link in this folder.
    MakeLink {
        /// Neither empty nor with a `/`.
        name: &'a OsStr,
        /// Not empty.
        target: &'a OsStr,
    },
    /// Asks for the target of a symbolic link.
    ReadLink,
    /// Asks for an extended attribute, or with `most` 0 how long it is.
    Xattr {
        /// Not empty.
        name: &'a OsStr,
        /// The most bytes of the answer.
        most: u32,
    },
    /// Asks for the names of the extended attributes, or with `most` 0 how long they are.
    Xattrs {
        /// The most bytes of the answer.
        most: u32,
    },
    /// Sets or removes an extended attribute.
    SetXattr {
        /// Not empty.
        name: &'a OsStr,
        /// `None` removes it.
        value: Option<&'a [u8]>,
        /// `XATTR_*` of `setxattr(2)`.
        flags: u32,
    },
    /// An ioctl; files have none.
    Ioctl,
    /// What would change something that no object has: hard links, special files, holes.
    Refused,
    /// An operation that the kernel does well without; it asks once.
    Unknown {
        /// The kernel's number.
        opcode: u32,
    },
}

/// The body of INIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitRequest {
    /// The protocol's version.
    pub major: u32,
    /// The protocol's version.
    pub minor: u32,
    /// How far the kernel reads ahead by itself, in bytes.
    pub max_readahead: u32,
    /// What the kernel can do: both words.
    pub flags: u64,
}

/// Pairs of an inode and the number of its lookups that are taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgets<'a> {
    /// One pair.
    One(u64, u64),
    /// Pairs as bytes, 16 each.
    Many(&'a [u8]),
}

/// A request that cannot be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// There is no header, so there can be no answer.
    Headless,
    /// The body is too short, or impossible.
    Body {
        /// The request's number.
        unique: u64,
        /// Whether the kernel expects an answer.
        answered: bool,
    },
}

impl<'a> FuseRequest<'a> {
    /// Parses the bytes of one request.
    pub fn parse(bytes: &'a [u8]) -> Result<FuseRequest<'a>, Malformed> {
        let mut header = Fields(bytes);
        let (length, opcode, unique, node, uid, gid, pid, _extensions) = (|| -> Option<_> {
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
        // One read(2) is one request: with another length, the header is not what we think it is.
        if length as usize != bytes.len() {
            return Err(malformed);
        }
        let operation = operation(opcode, node, Fields(&bytes[IN_HEADER..])).ok_or(malformed)?;
        Ok(FuseRequest { unique, node, pid, uid, gid, operation })
    }
}

fn operation<'a>(opcode: u32, node: u64, mut body: Fields<'a>) -> Option<FuseOperation<'a>> {
    Some(match opcode {
        op::INIT => FuseOperation::Init(init(body)?),
        op::DESTROY => FuseOperation::Destroy,
        op::LOOKUP => FuseOperation::Lookup { name: body.name()? },
        op::FORGET => FuseOperation::Forget(Forgets::One(node, body.u64()?)),
        op::BATCH_FORGET => FuseOperation::Forget(Forgets::Many(batch(body)?)),
        // Flags and a handle follow; the answer does not depend on them.
        op::GETATTR => FuseOperation::Attributes,
        op::OPEN => FuseOperation::Open { flags: body.u32()? },
        op::READ => {
            let (handle, at, bytes) = (body.u64()?, body.u64()?, body.u32()?);
            FuseOperation::Read { handle, at, bytes }
        }
        op::RELEASE => FuseOperation::Release { handle: body.u64()? },
        op::OPENDIR => FuseOperation::OpenFolder,
        op::READDIR | op::READDIRPLUS => {
            let (handle, offset, bytes) = (body.u64()?, body.u64()?, body.u32()?);
            FuseOperation::ReadFolder { handle, offset, bytes, plus: opcode == op::READDIRPLUS }
        }
        op::RELEASEDIR => FuseOperation::ReleaseFolder { handle: body.u64()? },
        op::CREATE => {
            let (flags, mode, _umask, _open_flags) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            FuseOperation::Create { flags, permissions: mode & 0o7777, name: body.name()? }
        }
        op::WRITE => {
            let (handle, at, bytes, _flags) = (body.u64()?, body.u64()?, body.u32()?, body.u32()?);
            let (_lock_owner, _open_flags, _padding) = (body.u64()?, body.u32()?, body.u32()?);
            FuseOperation::Write { handle, at, bytes: body.0.get(..bytes as usize)? }
        }
        op::FLUSH => FuseOperation::Flush { handle: body.u64()? },
        op::FSYNC => FuseOperation::Sync { handle: body.u64()? },
        op::FSYNCDIR => FuseOperation::SyncFolder,
        op::SETATTR => FuseOperation::SetAttributes(changes(body)?),
        op::UNLINK => FuseOperation::RemoveFile { name: body.name()? },
        op::RMDIR => FuseOperation::RemoveFolder { name: body.name()? },
        op::MKDIR => {
            let (mode, _umask) = (body.u32()?, body.u32()?);
            FuseOperation::MakeFolder { permissions: mode & 0o7777, name: body.name()? }
        }
        op::RENAME | op::RENAME2 => {
            let new_parent = body.u64()?;
            let flags = match opcode {
                op::RENAME2 => (body.u32()?, body.u32()?).0,
                _ => 0,
            };
            let (name, new_name) = (body.next_name()?, body.name()?);
            FuseOperation::Rename { name, new_parent, new_name, flags }
        }
        op::STATFS => FuseOperation::Statfs,
        op::INTERRUPT => FuseOperation::Interrupt { unique: body.u64()? },
        op::READLINK => FuseOperation::ReadLink,
        op::SYMLINK => {
            let name = body.next_name()?;
            FuseOperation::MakeLink { name, target: body.text()? }
        }
        op::GETXATTR => {
            let (most, _padding) = (body.u32()?, body.u32()?);
            FuseOperation::Xattr { name: body.text()?, most }
        }
        op::LISTXATTR => FuseOperation::Xattrs { most: body.u32()? },
        op::SETXATTR => {
            let (bytes, flags) = (body.u32()?, body.u32()?);
            let name = body.text()?;
            let value = body.0.get(name.len() + 1..)?.get(..bytes as usize)?;
            FuseOperation::SetXattr { name, value: Some(value), flags }
        }
        op::REMOVEXATTR => FuseOperation::SetXattr { name: body.text()?, value: None, flags: 0 },
        op::IOCTL => FuseOperation::Ioctl,
        op::MKNOD => {
            let (mode, _device, _umask, _padding) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
            let name = body.name()?;
            match mode & !0o7777 {
                0 | mode::FILE => FuseOperation::MakeFile { permissions: mode & 0o7777, name },
                _ => FuseOperation::Refused,
            }
        }
        op::LINK | op::FALLOCATE | op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 | op::TMPFILE => {
            FuseOperation::Refused
        }
        _ => FuseOperation::Unknown { opcode },
    })
}

/// Up to 7.35, INIT had four words.
fn init(mut body: Fields<'_>) -> Option<InitRequest> {
    let (major, minor) = (body.u32()?, body.u32()?);
    let (max_readahead, low) = (body.u32().unwrap_or(0), body.u32().unwrap_or(0));
    let high = match u64::from(low) & crate::abi::init::INIT_EXT {
        0 => 0,
        _ => body.u32().unwrap_or(0),
    };
    Some(InitRequest { major, minor, max_readahead, flags: u64::from(low) | u64::from(high) << 32 })
}

/// `struct fuse_setattr_in`.
fn changes(mut body: Fields<'_>) -> Option<AttributeChanges> {
    let (valid, _padding, _handle, size) = (body.u32()?, body.u32()?, body.u64()?, body.u64()?);
    let (_lock_owner, accessed_s, modified_s, _changed_s) =
        (body.u64()?, body.u64()?, body.u64()?, body.u64()?);
    let (accessed_ns, modified_ns, _changed_ns) = (body.u32()?, body.u32()?, body.u32()?);
    let (mode, _unused, uid, gid) = (body.u32()?, body.u32()?, body.u32()?, body.u32()?);
    let has = |bit: u32| valid & bit != 0;
    let time = |now: u32, then: u32, s: u64, ns: u32| match () {
        () if has(now) => TimeChange::Now,
        () if has(then) => TimeChange::To(Time { s: s as i64, ns }),
        () => TimeChange::None,
    };
    Some(AttributeChanges {
        size: has(fattr::SIZE).then_some(size),
        mode: has(fattr::MODE).then_some(mode & 0o7777),
        uid: has(fattr::UID).then_some(uid),
        gid: has(fattr::GID).then_some(gid),
        time: time(fattr::MTIME_NOW, fattr::MTIME, modified_s, modified_ns),
        accessed: time(fattr::ATIME_NOW, fattr::ATIME, accessed_s, accessed_ns),
    })
}

/// The pairs, as many as the count says.
fn batch(mut body: Fields<'_>) -> Option<&[u8]> {
    let (count, _) = (body.u32()?, body.u32()?);
    body.0.get(..(count as usize).checked_mul(16)?)
}

impl Forgets<'_> {
    /// Each as inode and count.
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

    /// Text that ends with a NUL, and may have a `/`.
    fn text(&self) -> Option<&'a OsStr> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        (end > 0).then(|| OsStr::from_bytes(&self.0[..end]))
    }

    /// A name that ends with a NUL; what follows that is next.
    fn next_name(&mut self) -> Option<&'a OsStr> {
        let name = self.name()?;
        self.0 = &self.0[name.len() + 1..];
        Some(name)
    }

    /// A name that ends with a NUL.
    fn name(&mut self) -> Option<&'a OsStr> {
        let end = self.0.iter().position(|&byte| byte == 0)?;
        let name = &self.0[..end];
        (!name.is_empty() && !name.contains(&b'/')).then(|| OsStr::from_bytes(name))
    }
}
