//! An object opened for reading: its metadata, and its bytes as a sequence of frames.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use s3s::{S3Error, S3Result, s3_error};

use crate::buffer::{FRAME_BYTES, read_frame};
use crate::crcs::KnownCrcs;
use crate::pattern;
use crate::placeholder::{PLACEHOLDER_BYTES, placeholder};
use crate::version::Provenance;

/// Bytes in one frame out of memory: nothing is gained by more, and less means more turns of the loop.
const MEMORY_FRAME_BYTES: u64 = 1 << 20;

/// One version of an object, open for reading: it stays whole while it is read, whatever happens to its key.
pub(crate) struct Object {
    pub size: u64,
    /// Without quotes; always strong.
    pub etag: String,
    pub modified: SystemTime,
    pub metadata: Arc<ObjectMetadata>,
    pub source: ByteSource,
    /// The CRCs of the whole.
    pub known_crcs: KnownCrcs,
    pub provenance: Arc<Provenance>,
}

/// Where the bytes are.
#[derive(Clone)]
pub(crate) enum ByteSource {
    File(Arc<File>),
    /// No segment is empty.
    Memory(Arc<[Bytes]>),
    Pattern {
        shift: u64,
    },
    /// A sink took them and kept none.
    Forgotten,
}

/// Metadata that an upload states and every response about the object repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectMetadata {
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub content_disposition: Option<String>,
    pub content_language: Option<String>,
    pub cache_control: Option<String>,
    pub expires: Option<String>,
    /// `x-amz-meta-*` and `x-oss-meta-*`, by the name after that.
    pub user_metadata: HashMap<String, String>,
    pub tags: BTreeMap<String, String>,
    /// As the dialect names it that wrote the object; None for the standard one.
    pub storage_class: Option<String>,
    pub kind: ObjectKind,
}

/// How an object was written. OSS reports it, and appends only to the last kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ObjectKind {
    #[default]
    Normal,
    Multipart,
    Appendable,
}

impl ObjectKind {
    /// As `x-oss-object-type` says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ObjectKind::Normal => "Normal",
            ObjectKind::Multipart => "Multipart",
            ObjectKind::Appendable => "Appendable",
        }
    }

    /// The inverse of [`ObjectKind::name`].
    pub(crate) fn named(name: &str) -> Option<ObjectKind> {
        [ObjectKind::Normal, ObjectKind::Multipart, ObjectKind::Appendable]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

impl Object {
    /// The bytes of `range`, which must lie within the object, to be read. `NotImplemented` where a sink has
    /// forgotten them.
    pub(crate) fn frames(&self, range: Range<u64>) -> S3Result<Frames> {
        debug_assert!(range.start <= range.end && range.end <= self.size);
        if matches!(self.source, ByteSource::Forgotten) && !range.is_empty() {
            return Err(forgotten());
        }
        let mut frames = Frames {
            source: self.source.clone(),
            at: range.start,
            end: range.end,
            segment: 0,
            placeholders: false,
        };
        frames.seek();
        Ok(frames)
    }

    /// The frames as the body of a response: placeholders stand for a file's bytes, and only
    /// [`crate::socket::Socket`] can send them.
    pub(crate) fn body(&self, range: Range<u64>) -> S3Result<Frames> {
        Ok(Frames { placeholders: true, ..self.frames(range)? })
    }
}

fn forgotten() -> S3Error {
    s3_error!(
        NotImplemented,
        "this origin is a sink: it keeps size, checksums and metadata of an object, and forgets its bytes"
    )
}

/// The bytes of a range, in frames that are as large as is good for sending.
pub(crate) struct Frames {
    source: ByteSource,
    /// Offset of the next byte: in the object, or for memory in its segment.
    at: u64,
    end: u64,
    segment: usize,
    placeholders: bool,
}

impl Frames {
    /// Turns `at` and `end` into offsets from the start of the segment in which `at` lies.
    fn seek(&mut self) {
        let ByteSource::Memory(segments) = &self.source else { return };
        while let Some(segment) = segments.get(self.segment)
            && self.at >= segment.len() as u64
        {
            self.at -= segment.len() as u64;
            self.end -= segment.len() as u64;
            self.segment += 1;
        }
    }

    fn left(&self) -> u64 {
        self.end - self.at
    }

    /// A placeholder, if that is wanted and one is left, or the bytes themselves.
    fn file_frame(&self, file: &Arc<File>) -> io::Result<Bytes> {
        let bytes = |most: usize| self.left().min(most as u64) as usize;
        let frame = match self.placeholders {
            true => placeholder(file, self.at, bytes(PLACEHOLDER_BYTES)),
            false => None,
        };
        frame.map_or_else(|| read_frame(file, self.at, bytes(FRAME_BYTES)), Ok)
    }
}

impl Iterator for Frames {
    type Item = io::Result<Bytes>;

    fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.left() == 0 {
            return None;
        }
        let frame = match &self.source {
            ByteSource::File(file) => match self.file_frame(file) {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error)),
            },
            ByteSource::Memory(segments) => {
                let segment = &segments[self.segment];
                let to = self.end.min(self.at + MEMORY_FRAME_BYTES).min(segment.len() as u64);
                segment.slice(self.at as usize..to as usize)
            }
            ByteSource::Pattern { shift } => pattern::frame(*shift, self.at, self.left()),
            ByteSource::Forgotten => unreachable!("of forgotten bytes only none are read"),
        };
        self.at += frame.len() as u64;
        if self.left() > 0 {
            self.seek();
        }
        Some(Ok(frame))
    }
}

impl hyper::body::Body for Frames {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        Poll::Ready(self.next().map(|frame| frame.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placeholder::file_behind;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// The bytes that a socket would send for a frame.
    fn files(frame: Bytes) -> Bytes {
        let Some((file, offset)) = file_behind(&frame) else { return frame };
        let mut bytes = vec![0; frame.len()];
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes.into()
    }

    fn check(source: ByteSource, whole: &[u8]) {
        let size = whole.len() as u64;
        let object = Object {
            size,
            etag: String::new(),
            modified: SystemTime::UNIX_EPOCH,
            metadata: Arc::default(),
            source,
            known_crcs: KnownCrcs::No,
            provenance: Arc::default(),
        };
        for range in [0..0, 0..size, 1..size - 1, 3..4, 4..9, size..size, size - 1..size, 300_000..700_000] {
            let expected = &whole[range.start as usize..range.end as usize];
            for frames in [object.frames(range.clone()), object.body(range.clone())] {
                let frames: Vec<Bytes> = frames.unwrap().map(Result::unwrap).map(files).collect();
                assert!(frames.iter().all(|frame| !frame.is_empty()));
                assert_eq!(frames.concat(), expected, "{range:?}");
            }
        }
    }

    #[test]
    fn frames_of_every_kind_add_up_to_the_range() {
        let mut whole = vec![0; 3 << 20];
        crate::synthetic_bytes("b", "k", 0..3 << 20, &mut whole);
        check(ByteSource::Pattern { shift: pattern::shift("b", "k") }, &whole);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&whole).unwrap();
        check(ByteSource::File(Arc::new(file)), &whole);
        let segments = [&whole[..4], &whole[4..8], &whole[8..2_000_000], &whole[2_000_000..]];
        check(ByteSource::Memory(segments.into_iter().map(Bytes::copy_from_slice).collect()), &whole);
    }
}
