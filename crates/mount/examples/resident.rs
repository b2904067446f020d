//! One file that lies in memory, mounted: what the kernel and this crate cost without an origin.
//!
//! `cargo run --release -p flatout-mount --example resident -- /mnt/x 4096` serves a file `x` of 4096 MiB there until it is unmounted.
//! Read it with `dd if=/mnt/x/x of=/dev/null bs=1M iflag=direct`, and divide by what `time` says of this process.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use flatout_mount::{Attributes, Cancel, Entry, Errno, Files, Opened, Options, ReadAnswer, Statfs};

const ENOENT: Errno = 2;
const PIECE: usize = 1 << 20;

struct Resident {
    bytes: u64,
    /// Shown over and over.
    piece: Vec<u8>,
}

impl Resident {
    fn entry(&self, node: u64) -> Entry {
        let folder = node == 1;
        let (size, mode) = if folder { (0, 0o555) } else { (self.bytes, 0o444) };
        let attributes = Attributes { node, size, folder, mode, links: 1, ..Attributes::default() };
        Entry { attributes, lifetime: Duration::from_secs(3600) }
    }
}

impl Files for Resident {
    fn lookup(&self, _parent: u64, _name: &OsStr) -> Result<Entry, Errno> {
        Err(ENOENT)
    }
    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Entry, Errno>> {
        Some(if parent == 1 && name == "x" { Ok(self.entry(2)) } else { Err(ENOENT) })
    }
    fn negative_lifetime(&self) -> Duration {
        Duration::ZERO
    }
    fn attributes(&self, node: u64) -> Result<Entry, Errno> {
        Ok(self.entry(node))
    }
    fn attributes_known(&self, node: u64) -> Option<Result<Entry, Errno>> {
        Some(Ok(self.entry(node)))
    }
    fn forget(&self, _node: u64, _times: u64) {}
    fn open_folder(&self, _node: u64) -> Result<u64, Errno> {
        Ok(0)
    }
    fn read_folder(
        &self,
        _handle: u64,
        offset: u64,
        _plus: bool,
        each: &mut dyn FnMut(&OsStr, &Entry, u64) -> bool,
    ) -> Result<(), Errno> {
        if offset == 0 {
            each(OsStr::new("x"), &self.entry(2), 1);
        }
        Ok(())
    }
    fn release_folder(&self, _handle: u64) {}
    fn open(&self, _node: u64, direct: bool) -> Result<Opened, Errno> {
        Ok(Opened { handle: 0, direct, keep_cache: false, is_news: false })
    }
    fn open_known(&self, node: u64, direct: bool) -> Option<Result<Opened, Errno>> {
        Some(self.open(node, direct))
    }
    fn read(&self, _handle: u64, at: u64, bytes: usize, answer: ReadAnswer) -> Option<Cancel> {
        let bytes = bytes.min(self.bytes.saturating_sub(at) as usize);
        // In two where it crosses the end of the piece, as the engine's are.
        let (start, first) = (at as usize % PIECE, bytes.min(PIECE - at as usize % PIECE));
        answer.send([&self.piece[start..start + first], &self.piece[..bytes - first]].into_iter());
        None
    }
    fn release(&self, _handle: u64) {}
    fn statfs(&self) -> Statfs {
        Statfs { block_bytes: 4096, ..Statfs::default() }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(point), mebibytes) = (arguments.next(), arguments.next()) else {
        return Err("write a folder, and how many MiB the file has".into());
    };
    let threads = arguments.next().map_or(Ok(0), |threads| threads.parse())?;
    let bytes = mebibytes.map_or(Ok(4096), |number| number.parse::<u64>())? << 20;
    let files = Resident { bytes, piece: (0..PIECE).map(|at| at as u8).collect() };
    let options = Options { threads, ..Options::new("resident", point) };
    let session = flatout_mount::mount(&options)?.serve_files(Arc::new(files))?;
    println!("{}", session.granted());
    session.wait()?;
    Ok(())
}
