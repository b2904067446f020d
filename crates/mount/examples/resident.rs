//! One file that lies in memory, mounted: what the kernel and this crate cost without an origin.
//!
//! `cargo run --release -p flatout-mount --example resident -- /mnt/x 4096` serves a file `x` of 4096 MiB
//! there until it is unmounted. Read it with `dd if=/mnt/x/x of=/dev/null bs=1M iflag=direct`, and divide by
//! what `time` says of this process.

use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Duration;

use flatout_mount::{Observer, Options};
use flatout_tree::{
    AttributeSource, Attributes, Caller, Cancel, FileKind, Files, FolderEntry, FsError, Node, OpenMode,
    OpenedFile, Slices, Statfs,
};

const ENOENT: i32 = 2;
const PIECE: usize = 1 << 20;

struct Resident {
    bytes: u64,
    /// Shown over and over.
    piece: Vec<u8>,
}

impl Resident {
    fn known(&self, ino: u64) -> Node {
        let (kind, size, mode) = match ino {
            1 => (FileKind::Folder, 0, 0o555),
            _ => (FileKind::File, self.bytes, 0o444),
        };
        let (modified_s, changed_s, uid, gid, links) = (0, 0, 0, 0, 1);
        let source = AttributeSource::Implied;
        let (modified_ns, accessed, is_link) = (0, None, false);
        let attributes = Attributes {
            ino,
            size,
            modified_s,
            modified_ns,
            accessed,
            changed_s,
            kind,
            is_link,
            mode,
            uid,
            gid,
            links,
            source,
        };
        Node { id: ino, generation: 0, attributes, lifetime: Duration::from_secs(3600) }
    }
}

impl Resident {
    fn opened(&self, mode: OpenMode) -> Result<OpenedFile, FsError> {
        Ok(OpenedFile {
            handle: 0,
            direct: mode.direct,
            keep_cache: false,
            has_changed: false,
            is_written: false,
        })
    }
}

impl Files for Resident {
    fn lookup(&self, _parent: u64, _name: &OsStr) -> Result<Node, FsError> {
        Err(FsError::of(ENOENT))
    }
    fn lookup_known(&self, parent: u64, name: &OsStr) -> Option<Result<Node, FsError>> {
        Some(if parent == 1 && name == "x" { Ok(self.known(2)) } else { Err(FsError::of(ENOENT)) })
    }
    fn negative_lifetime(&self) -> Duration {
        Duration::ZERO
    }
    fn attributes(&self, node: u64) -> Result<Node, FsError> {
        Ok(self.known(node))
    }
    fn attributes_known(&self, node: u64) -> Option<Result<Node, FsError>> {
        Some(Ok(self.known(node)))
    }
    fn forget(&self, _node: u64, _times: u64) {}
    fn open_folder(&self, _node: u64) -> Result<u64, FsError> {
        Ok(0)
    }
    fn read_folder(
        &self,
        _handle: u64,
        offset: u64,
        _plus: bool,
        each: &mut dyn FnMut(&FolderEntry<'_>) -> bool,
    ) -> Result<(), FsError> {
        if offset == 0 {
            each(&FolderEntry { node: self.known(2), name: OsStr::new("x"), next: 1 });
        }
        Ok(())
    }
    fn release_folder(&self, _handle: u64) {}
    fn open(&self, _node: u64, mode: OpenMode, _caller: Caller) -> Result<OpenedFile, FsError> {
        self.opened(mode)
    }
    fn open_known(&self, _node: u64, mode: OpenMode) -> Option<Result<OpenedFile, FsError>> {
        Some(self.opened(mode))
    }
    fn read(
        &self,
        _handle: u64,
        at: u64,
        bytes: usize,
        done: impl FnOnce(Result<Slices<'_, '_>, FsError>) + Send + 'static,
    ) -> Option<Cancel> {
        let bytes = bytes.min(self.bytes.saturating_sub(at) as usize);
        // In two where it crosses the end of the piece, as the engine's are.
        let (start, first) = (at as usize % PIECE, bytes.min(PIECE - at as usize % PIECE));
        done(Ok(&mut [&self.piece[start..start + first], &self.piece[..bytes - first]].into_iter()));
        None
    }
    fn release(&self, _handle: u64) -> Result<(), FsError> {
        Ok(())
    }
    fn statfs(&self) -> Statfs {
        Statfs { block_bytes: 4096, blocks: 0, files: 0, name_bytes_max: 255 }
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
    let session = flatout_mount::mount(&options)?.serve(Arc::new(files), Observer::default())?;
    println!("{}", session.granted());
    session.wait()?;
    Ok(())
}
