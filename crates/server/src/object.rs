//! An object as it is read: what is known of it, and its bytes as a row of frames.

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

use crate::buffer::{FRAME_BYTES, read_frame};
use crate::crcs::Known;
use crate::pattern;
use crate::stand_in::{STAND_IN_BYTES, stand_in};
use crate::version::Made;

/// Bytes in one frame out of memory: nothing is gained by more, and less means more turns of the loop.
const MEMORY_FRAME_BYTES: u64 = 1 << 20;

/// One version of an object, open for reading: it stays whole while it is read, whatever happens to its key.
pub(crate) struct Object {
    pub size: u64,
    /// Without quotes; always strong.
    pub etag: String,
    pub modified: SystemTime,
    pub kept: Arc<Kept>,
    pub content: Content,
    /// The CRCs of the whole.
    pub known: Known,
    pub made: Arc<Made>,
}

/// Where the bytes are.
#[derive(Clone)]
pub(crate) enum Content {
    File(Arc<File>),
    /// No segment is empty.
    Memory(Arc<[Bytes]>),
    Pattern {
        shift: u64,
    },
}

/// What an upload said of its object and every answer repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub content_type: Option<String>,
    pub content_encoding: Option<String>,
    pub content_disposition: Option<String>,
    pub content_language: Option<String>,
    pub cache_control: Option<String>,
    pub expires: Option<String>,
    /// `x-amz-meta-*` and `x-oss-meta-*`, by the name after that.
    pub metadata: HashMap<String, String>,
    pub tags: BTreeMap<String, String>,
    /// As the dialect names it that wrote the object; None for the standard one.
    pub storage_class: Option<String>,
    pub kind: Kind,
}

/// How an object was written: OSS tells, and lets only the last kind grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Normal,
    Multipart,
    Appendable,
}

impl Kind {
    /// As `x-oss-object-type` says it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Normal => "Normal",
            Kind::Multipart => "Multipart",
            Kind::Appendable => "Appendable",
        }
    }

    /// The inverse of [`Kind::name`].
    pub(crate) fn named(name: &str) -> Option<Kind> {
        [Kind::Normal, Kind::Multipart, Kind::Appendable].into_iter().find(|kind| kind.name() == name)
    }
}

impl Object {
    /// The bytes of `range`, which must lie within the object, to be read.
    pub(crate) fn frames(&self, range: Range<u64>) -> Frames {
        debug_assert!(range.start <= range.end && range.end <= self.size);
        let mut frames = Frames {
            content: self.content.clone(),
            at: range.start,
            end: range.end,
            segment: 0,
            stand_ins: false,
        };
        frames.seek();
        frames
    }

    /// The same as the body of an answer: a file's bytes are stand-ins, which only [`crate::socket::Socket`] can send.
    pub(crate) fn body(&self, range: Range<u64>) -> Frames {
        Frames { stand_ins: true, ..self.frames(range) }
    }
}

/// The bytes of a range, in frames that are as large as is good for sending.
pub(crate) struct Frames {
    content: Content,
    /// Offset of the next byte: in the object, or for memory in its segment.
    at: u64,
    end: u64,
    segment: usize,
    stand_ins: bool,
}

impl Frames {
    /// Turns `at` and `end` into offsets from the start of the segment in which `at` lies.
    fn seek(&mut self) {
        let Content::Memory(segments) = &self.content else { return };
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

    /// A stand-in, if that is wanted and one is left, or the bytes themselves.
    fn file_frame(&self, file: &Arc<File>) -> io::Result<Bytes> {
        let bytes = |most: usize| self.left().min(most as u64) as usize;
        let frame = match self.stand_ins {
            true => stand_in(file, self.at, bytes(STAND_IN_BYTES)),
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
        let frame = match &self.content {
            Content::File(file) => match self.file_frame(file) {
                Ok(frame) => frame,
                Err(error) => return Some(Err(error)),
            },
            Content::Memory(segments) => {
                let segment = &segments[self.segment];
                let to = self.end.min(self.at + MEMORY_FRAME_BYTES).min(segment.len() as u64);
                segment.slice(self.at as usize..to as usize)
            }
            Content::Pattern { shift } => pattern::frame(*shift, self.at, self.left()),
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
    use crate::stand_in::meaning;
    use std::io::Write;
    use std::os::unix::fs::FileExt;

    /// What a socket would send for a frame.
    fn meant(frame: Bytes) -> Bytes {
        let Some((file, offset)) = meaning(&frame) else { return frame };
        let mut bytes = vec![0; frame.len()];
        file.read_exact_at(&mut bytes, offset).unwrap();
        bytes.into()
    }

    fn check(content: Content, whole: &[u8]) {
        let size = whole.len() as u64;
        let object = Object {
            size,
            etag: String::new(),
            modified: SystemTime::UNIX_EPOCH,
            kept: Arc::default(),
            content,
            known: Known::No,
            made: Arc::default(),
        };
        for range in [0..0, 0..size, 1..size - 1, 3..4, 4..9, size..size, size - 1..size, 300_000..700_000] {
            let expected = &whole[range.start as usize..range.end as usize];
            for frames in [object.frames(range.clone()), object.body(range.clone())] {
                let frames: Vec<Bytes> = frames.map(Result::unwrap).map(meant).collect();
                assert!(frames.iter().all(|frame| !frame.is_empty()));
                assert_eq!(frames.concat(), expected, "{range:?}");
            }
        }
    }

    #[test]
    fn frames_of_every_kind_add_up_to_the_range() {
        let mut whole = vec![0; 3 << 20];
        crate::synthetic_bytes("b", "k", 0..3 << 20, &mut whole);
        check(Content::Pattern { shift: pattern::shift("b", "k") }, &whole);
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&whole).unwrap();
        check(Content::File(Arc::new(file)), &whole);
        let segments = [&whole[..4], &whole[4..8], &whole[8..2_000_000], &whole[2_000_000..]];
        check(Content::Memory(segments.into_iter().map(Bytes::copy_from_slice).collect()), &whole);
    }
}
