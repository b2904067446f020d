//! Bytes on their way in: written to memory, to a file without a final name, or nowhere, and summed up.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use bytes::Bytes;

use crate::crcs::{Crcs, Hashers};

/// Bytes in one segment of memory: allocated as they fill, so that a lying Content-Length costs nothing.
const SEGMENT_BYTES: usize = 1 << 20;

/// The body of one PUT or of one part, until it gets a key or is dropped.
pub(crate) struct Draft {
    place: Place,
    bytes: u64,
    hashers: Hashers,
}

/// Where the bytes go.
pub(crate) enum Place {
    Memory(Segments),
    File(TemporaryFile),
    Nowhere,
}

impl Draft {
    pub(crate) fn new(place: Place) -> Draft {
        Draft { place, bytes: 0, hashers: Hashers::new() }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.place {
            Place::Memory(segments) => segments.write(bytes),
            Place::File(file) => file.file.write_all(bytes)?,
            Place::Nowhere => {}
        }
        self.hashers.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn crcs(&self) -> Crcs {
        self.hashers.value()
    }

    pub(crate) fn into_place(self) -> Place {
        self.place
    }
}

/// Size and CRCs of what the drafts hold, one after the other.
pub(crate) fn total<'a>(drafts: impl IntoIterator<Item = &'a Draft>) -> (u64, Crcs) {
    drafts.into_iter().fold((0, Crcs::of(&[])), |(bytes, crcs), draft| {
        (bytes + draft.bytes, crcs.combine(draft.crcs(), draft.bytes))
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

    /// The segments; none is empty.
    pub(crate) fn finish(mut self) -> Vec<Bytes> {
        if !self.filling.is_empty() {
            self.filling.shrink_to_fit();
            self.full.push(self.filling.into());
        }
        self.full
    }
}

/// A file that is removed when dropped, unless it was renamed by then.
pub(crate) struct TemporaryFile {
    pub file: File,
    pub path: PathBuf,
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
        for piece in [1000, SEGMENT_BYTES, whole.len()] {
            let mut drafts = Vec::new();
            for half in [&whole[..1_234_567], &whole[1_234_567..]] {
                let mut draft = Draft::new(Place::Memory(Segments::default()));
                half.chunks(piece).for_each(|bytes| draft.write(bytes).unwrap());
                drafts.push(draft);
            }
            assert_eq!(total(&drafts), (whole.len() as u64, Crcs::of(&whole)));
            let segments = drafts.into_iter().flat_map(|draft| match draft.into_place() {
                Place::Memory(segments) => segments.finish(),
                _ => panic!("a memory draft"),
            });
            assert_eq!(segments.collect::<Vec<_>>().concat(), whole);
        }
    }
}
