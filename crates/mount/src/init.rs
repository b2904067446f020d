//! What kernel and session agree upon by INIT: pure.

use crate::abi::{self, init};
use crate::reply::{InitOut, init as init_out};
use crate::request::Init;

/// What is used where the kernel offers it.
///
/// `READDIRPLUS_AUTO` is not: with it `ls -l` of a large folder reads all but the first page without attributes, and then asks for
/// each name. `WRITEBACK_CACHE` never will be.
const WANTED: u64 = init::ASYNC_READ
    | init::BIG_WRITES
    | init::AUTO_INVAL_DATA
    | init::DO_READDIRPLUS
    | init::ASYNC_DIO
    | init::PARALLEL_DIROPS
    | init::ABORT_ERROR
    | init::MAX_PAGES
    | init::INIT_EXT
    | init::DIRECT_IO_ALLOW_MMAP;

/// Of a request: docs/numbers.md. The kernel's own bound is `fs.fuse.max_pages_limit`, 256 by default.
const WANTED_BYTES: u32 = 1 << 20;
/// Without `MAX_PAGES`.
const PLAIN_PAGES: u32 = 32;
/// Of a write; nothing is written, but the kernel wants room for one in every buffer, and sends no longer request of any kind.
pub(crate) const MAX_WRITE: u32 = 128 << 10;

/// What is asked for beyond the flags.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InitRequest {
    /// Requests that nobody waits for one by one: readahead.
    pub max_background: u16,
    /// What the kernel may read ahead by itself; INIT can only lower what it would.
    pub read_ahead_bytes: u64,
    /// `fs.fuse.max_pages_limit`, where the kernel has that.
    pub pages_limit: Option<u32>,
    /// Pages of FUSE are the machine's: 4 KiB, or 16 or 64 on some.
    pub page_bytes: u32,
}

/// What was agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Of the protocol: the smaller of both sides'.
    pub minor: u32,
    /// Both words.
    pub flags: u64,
    /// The most bytes of a read.
    pub request_bytes: u32,
    /// What the kernel reads ahead, unless that is raised beside INIT.
    pub read_ahead_bytes: u64,
}

/// What an INIT is answered with.
#[derive(Clone, Debug)]
pub(crate) enum Negotiated {
    /// It can begin.
    Agreed([u8; abi::size::INIT_OUT], Agreed),
    /// The kernel speaks a newer major, hears ours, and asks again.
    Again([u8; abi::size::INIT_OUT]),
    /// It is too old.
    Refused(String),
}

pub(crate) fn negotiate(kernel: &Init, wanted: &InitRequest) -> Negotiated {
    if kernel.major > abi::MAJOR {
        let ours = InitOut { major: abi::MAJOR, minor: abi::MINOR, ..InitOut::default() };
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
    // What is in the second word was offered only if the first says that there is one.
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
    let reply = init_out(&InitOut {
        major: abi::MAJOR,
        minor: abi::MINOR,
        max_readahead: read_ahead as u32,
        flags,
        max_background,
        // Beyond it the kernel takes the device for busy, and reads ahead less; libfuse's share.
        congestion_threshold: (max_background / 4 * 3).max(1),
        max_write: MAX_WRITE,
        max_pages: pages as u16,
    });
    let request_bytes = pages * wanted.page_bytes;
    Negotiated::Agreed(reply, Agreed { minor, flags, request_bytes, read_ahead_bytes: read_ahead })
}
