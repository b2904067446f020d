//! The kernel's ABI of FUSE, as numbers: operations, flags and sizes of what crosses `/dev/fuse`, in the
//! machine's byte order.
//!
//! Facts of `include/uapi/linux/fuse.h` up to 7.45; names are the kernel's without their prefix, so that they
//! can be found there.

/// The protocol's major version: `FUSE_KERNEL_VERSION`.
pub const MAJOR: u32 = 7;
/// The newest minor version whose structs we know; the smaller of both sides' is used.
pub const MINOR: u32 = 45;
/// Linux 5.4. Older ones have other sizes of structs, or 128 KiB a request.
pub const OLDEST_MINOR: u32 = 31;

/// `struct fuse_in_header`.
pub const IN_HEADER: usize = 40;
/// `struct fuse_out_header`.
pub const OUT_HEADER: usize = 16;
/// `FUSE_MIN_READ_BUFFER`: a shorter buffer is refused with EINVAL.
pub const MIN_READ_BUFFER: usize = 8192;
/// The kernel copies no errno beyond this.
pub const MOST_ERRNO: i32 = 511;

/// The bit in the number of a request that is sent again: `FUSE_UNIQUE_RESEND`.
pub const RESENT: u64 = 1 << 63;

/// The opcodes of `enum fuse_opcode` with an answer other than ENOSYS.
pub mod op {
    #![allow(missing_docs)]
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
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
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Flags of INIT; bits from 32 on travel in `flags2`, with [`init::INIT_EXT`].
pub mod init {
    /// Several reads of one file may be pending: readahead.
    pub const ASYNC_READ: u64 = 1 << 0;
    /// OPEN has `O_TRUNC`; without it a SETATTR follows.
    pub const ATOMIC_O_TRUNC: u64 = 1 << 3;
    /// Writes of more than 4 KiB; no meaning since 4.2, but older libraries' kernels look at it.
    pub const BIG_WRITES: u64 = 1 << 5;
    /// The kernel drops cached pages when size or mtime differ.
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    /// A folder is read with the answer to the lookup of each name.
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    /// Asynchronous direct I/O is sent at once.
    pub const ASYNC_DIO: u64 = 1 << 15;
    /// Lookups and reads of one folder run in parallel.
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    /// After an abort `read(2)` says ECONNABORTED, after umount ENODEV.
    pub const ABORT_ERROR: u64 = 1 << 21;
    /// `max_pages` bounds a request, 32 pages (128 KiB) otherwise.
    pub const MAX_PAGES: u64 = 1 << 22;
    /// The second word of flags is there.
    pub const INIT_EXT: u64 = 1 << 30;
    /// Files that are open for direct I/O may be mapped.
    pub const DIRECT_IO_ALLOW_MMAP: u64 = 1 << 36;
    /// The kernel knows [`super::notify::RESEND`] (7.40, Linux 6.9).
    pub const HAS_RESEND: u64 = 1 << 39;
}

/// Flags of what OPEN answers.
pub mod fopen {
    /// Bypasses the page cache.
    pub const DIRECT_IO: u32 = 1 << 0;
    /// Cached pages of the file stay.
    pub const KEEP_CACHE: u32 = 1 << 1;
    /// `close(2)` sends no FLUSH (7.35; older kernels send one).
    pub const NOFLUSH: u32 = 1 << 5;
}

/// What SETATTR is to change: `FATTR_*`.
pub mod fattr {
    #![allow(missing_docs)]
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// `enum fuse_notify_code`.
pub mod notify {
    /// Drops an inode's attributes, and its pages in a range.
    pub const INVAL_INODE: i32 = 2;
    /// Has every request sent again that was read and not answered, with [`super::RESENT`] in its number.
    pub const RESEND: i32 = 7;
}

/// Sizes of the structs that follow a header.
pub mod size {
    #![allow(missing_docs)]
    pub const ATTR: usize = 88;
    pub const ATTR_OUT: usize = 16 + ATTR;
    pub const ENTRY_OUT: usize = 40 + ATTR;
    pub const OPEN_OUT: usize = 16;
    pub const GETXATTR_OUT: usize = 8;
    pub const WRITE_OUT: usize = 8;
    pub const CREATE_OUT: usize = ENTRY_OUT + OPEN_OUT;
    pub const STATFS_OUT: usize = 80;
    pub const INIT_OUT: usize = 64;
    /// `struct fuse_dirent` before its name, which is padded to 8 bytes.
    pub const DIRENT: usize = 24;
}

/// The type bits of a mode.
pub mod mode {
    /// A file.
    pub const FILE: u32 = 0o100000;
    /// A folder.
    pub const FOLDER: u32 = 0o040000;
    /// A symbolic link.
    pub const LINK: u32 = 0o120000;
}
