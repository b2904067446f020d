//! Bytes on their way in: written to memory, to a file without a final name, or nowhere, and summed up.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use flatout_wire::checksum::Algorithm as Crc;

use crate::crcs::{Crcs, Hashers, etag_of_crc};
use crate::sums::{Digests, SumAlgorithm};

/// Bytes in one segment of memory: allocated as they fill, so that a lying Content-Length costs nothing.
const SEGMENT_BYTES: usize = 1 << 20;

/// The body of one PUT or of one part while it comes.
pub(crate) struct Draft {
    place: BlobPlace,
    bytes: u64,
    hashers: Hashers,
    digests: Digests,
    /// Counts bytes that are forgotten.
    forgotten: Option<Arc<AtomicU64>>,
}

/// A draft that is whole, until it gets a key or is dropped.
pub(crate) struct Blob {
    pub place: BlobPlace,
    pub bytes: u64,
    pub crcs: Crcs,
    /// None where the bytes are dropped.
    pub md5: Option<[u8; 16]>,
    /// The checksums that were wanted, in base64.
    pub sums: Vec<(SumAlgorithm, String)>,
}

/// Where the bytes go.
pub(crate) enum BlobPlace {
    Memory(Segments),
    File(TemporaryFile),
    /// A file that outlives the origin: a part of an upload.
    Persistent(PathBuf),
    Nowhere,
}

impl Draft {
    pub(crate) fn new(place: BlobPlace) -> Draft {
        // An MD5 takes ten times as long as all else that is done to a byte: not where bytes are forgotten.
        let digests = Digests::new(!matches!(place, BlobPlace::Nowhere));
        Draft { place, bytes: 0, hashers: Hashers::new(), digests, forgotten: None }
    }

    /// Takes bytes that are forgotten, and counts them.
    pub(crate) fn forgetting(forgotten: Arc<AtomicU64>) -> Draft {
        Draft { forgotten: Some(forgotten), ..Draft::new(BlobPlace::Nowhere) }
    }

    /// Asks for one more checksum, before the first byte.
    pub(crate) fn want(&mut self, algorithm: SumAlgorithm) {
        self.digests.want(algorithm);
    }

    /// Asks for the MD5 even where bytes are forgotten, before the first byte.
    pub(crate) fn want_md5(&mut self) {
        self.digests.want_md5();
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.place {
            BlobPlace::Memory(segments) => segments.write(bytes),
            BlobPlace::File(file) => file.file.write_all(bytes).map_err(at(file.folder()))?,
            BlobPlace::Persistent(_) | BlobPlace::Nowhere => {}
        }
        self.hashers.update(bytes);
        self.digests.update(bytes);
        self.bytes += bytes.len() as u64;
        if let Some(forgotten) = &self.forgotten {
            forgotten.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Blob {
        if let BlobPlace::Memory(segments) = &mut self.place {
            segments.seal();
        }
        let (md5, sums) = self.digests.finish();
        Blob { place: self.place, bytes: self.bytes, crcs: self.hashers.value(), md5, sums }
    }
}

impl Blob {
    /// A checksum of it, in base64, if it was wanted.
    pub(crate) fn sum(&self, algorithm: SumAlgorithm) -> Option<Cow<'_, str>> {
        if algorithm == SumAlgorithm::Crc64Nvme {
            return Some(Crc::Crc64Nvme.encode(self.crcs.nvme).into());
        }
        let found = self.sums.iter().find(|(other, _)| *other == algorithm);
        found.map(|(_, value)| value.as_str().into())
    }

    /// The ETag of a part: its MD5.
    pub(crate) fn etag(&self) -> String {
        match self.md5 {
            Some(md5) => hex(&md5),
            None => etag_of_crc(self.crcs.nvme, self.bytes, 0),
        }
    }
}

/// Names the path in an error.
pub(crate) fn at(path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Size and CRCs of the blobs, one after the other.
pub(crate) fn total<'a>(blobs: impl IntoIterator<Item = &'a Blob>) -> (u64, Crcs) {
    blobs.into_iter().fold((0, Crcs::of(&[])), |(bytes, crcs), blob| {
        (bytes + blob.bytes, crcs.combine(blob.crcs, blob.bytes))
    })
}

/// A rope of full segments and the one being filled.
#[derive(Default)]
pub(crate) struct Segments {
    full: Vec<Bytes>,
    filling: Vec<u8>,
}

impl Segments {
    fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let take = bytes.len().min(SEGMENT_BYTES - self.filling.len());
            self.filling.extend_from_slice(&bytes[..take]);
            bytes = &bytes[take..];
            if self.filling.len() == SEGMENT_BYTES {
                self.full.push(std::mem::take(&mut self.filling).into());
            }
        }
    }

    /// The last segment is as full as it will be.
    fn seal(&mut self) {
        let mut last = std::mem::take(&mut self.filling);
        if !last.is_empty() {
            last.shrink_to_fit();
            self.full.push(last.into());
        }
    }

    /// Those of a finished draft; none is empty.
    pub(crate) fn sealed(&self) -> &[Bytes] {
        &self.full
    }
}

/// A file that is removed when dropped, unless it was renamed by then.
pub(crate) struct TemporaryFile {
    pub file: File,
    pub path: PathBuf,
}

impl TemporaryFile {
    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(&self.path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // After a rename there is nothing under this name; nothing else ever uses it again.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_sums_do_not_depend_on_how_the_bytes_came() {
        let mut whole = vec![0; (5 << 20) + 3];
        crate::synthetic_bytes("b", "k", 0..whole.len() as u64, &mut whole);
        for blob in [1000, SEGMENT_BYTES, whole.len()] {
            let mut drafts = Vec::new();
            for half in [&whole[..1_234_567], &whole[1_234_567..]] {
                let mut draft = Draft::new(BlobPlace::Memory(Segments::default()));
                half.chunks(blob).for_each(|bytes| draft.write(bytes).unwrap());
                drafts.push(draft.finish());
            }
            assert_eq!(total(&drafts), (whole.len() as u64, Crcs::of(&whole)));
            let segments = drafts.iter().flat_map(|draft| match &draft.place {
                BlobPlace::Memory(segments) => segments.sealed(),
                _ => panic!("a memory draft"),
            });
            assert_eq!(segments.cloned().collect::<Vec<_>>().concat(), whole);
        }
    }
}
