//! INIT: what the kernel and the session agree upon. Pure.

use serde::{Deserialize, Serialize};

use crate::abi::{self, init};
use crate::reply::{InitReply, init as init_out};
use crate::request::InitRequest;

/// The flags that are used if the kernel offers them.
///
/// `READDIRPLUS_AUTO` is not: with it `ls -l` of a large folder reads all but the first page without
/// attributes, and then asks for each name. `WRITEBACK_CACHE` never will be.
const WANTED: u64 = init::ASYNC_READ
    | init::ATOMIC_O_TRUNC
    | init::BIG_WRITES
    | init::AUTO_INVAL_DATA
    | init::DO_READDIRPLUS
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::ABORT_ERROR
    | init::MAX_PAGES
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

/// The size of a request: docs/numbers.md. The kernel's limit is `fs.fuse.max_pages_limit`, 256 by default.
const WANTED_BYTES: u32 = 1 << 20;
/// The size of a request without `MAX_PAGES`.
const PLAIN_PAGES: u32 = 32;
/// The least that the kernel may be told as the size of a write.
const LEAST_WRITE: u32 = 4096;

/// What the session asks for, beyond the flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionLimits {
    /// How many readahead requests may be pending.
    pub max_background: u16,
    /// How far the kernel may read ahead. INIT can only lower the kernel's own value.
    pub read_ahead_bytes: u64,
    /// `fs.fuse.max_pages_limit`, if the kernel has it.
    pub pages_limit: Option<u32>,
    /// Files are written: writes are as large as reads. Otherwise they are short, because every buffer must
    /// have room for one.
    pub writes: bool,
    /// The machine's page size, in which FUSE counts: 4 KiB, on some machines 16 or 64.
    pub page_bytes: u32,
}

/// What both sides agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionParameters {
    /// The protocol's minor version: the smaller of both sides'.
    pub minor: u32,
    /// Both words.
    pub flags: u64,
    /// The most bytes of a read.
    pub request_bytes: u32,
    /// The most bytes of a write.
    pub write_bytes: u32,
    /// How far the kernel reads ahead, unless that is raised beside INIT.
    pub read_ahead_bytes: u64,
    /// The kernel sends requests again that were read and not answered.
    pub resends: bool,
}

/// The answer to an INIT.
#[derive(Clone, Debug)]
pub(crate) enum Negotiated {
    /// It can begin.
    Agreed([u8; abi::size::INIT_OUT], SessionParameters),
    /// The kernel speaks a newer major version. It gets ours, and asks again.
    Again([u8; abi::size::INIT_OUT]),
    /// The kernel is too old.
    Refused(String),
}

pub(crate) fn negotiate(kernel: &InitRequest, wanted: &SessionLimits) -> Negotiated {
    if kernel.major > abi::MAJOR {
        let ours = InitReply { major: abi::MAJOR, minor: abi::MINOR, ..InitReply::default() };
        return Negotiated::Again(init_out(&ours));
    }
    if kernel.major < abi::MAJOR || kernel.minor < abi::OLDEST_MINOR {
        return Negotiated::Refused(format!(
            "the kernel speaks FUSE {}.{}, and {}.{} is needed (Linux 5.4)",
            kernel.major,
            kernel.minor,
            abi::MAJOR,
            abi::OLDEST_MINOR
        ));
    }
    // The second word counts only if the first says that there is one.
    let offered = match kernel.flags & init::INIT_EXT {
        0 => kernel.flags & u64::from(u32::MAX),
        _ => kernel.flags,
    };
    let flags = WANTED & offered;
    let pages = match flags & init::MAX_PAGES {
        0 => PLAIN_PAGES,
        _ => (WANTED_BYTES / wanted.page_bytes).min(wanted.pages_limit.unwrap_or(u32::MAX)).max(1),
    };
    let read_ahead = u64::from(kernel.max_readahead).min(wanted.read_ahead_bytes);
    let max_background = wanted.max_background.max(1);
    let minor = kernel.minor.min(abi::MINOR);
    let request_bytes = pages * wanted.page_bytes;
    let write_bytes = if wanted.writes { request_bytes } else { LEAST_WRITE };
    let reply = init_out(&InitReply {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: read_ahead as u32,
        flags,
        max_background,
        // Above this the kernel takes the device for busy, and reads ahead less. The share is libfuse's.
        congestion_threshold: (max_background / 4 * 3).max(1),
        max_write: write_bytes,
        max_pages: pages as u16,
    });
    let resends = offered & init::HAS_RESEND != 0;
    let agreed =
        SessionParameters { minor, flags, request_bytes, write_bytes, read_ahead_bytes: read_ahead, resends };
    Negotiated::Agreed(reply, agreed)
}
