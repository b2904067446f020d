//! The unsent rest of a body, and the checksum that is computed while it is sent.

use std::fs::File;

use flatout_wire::aws_chunked::{self, CHUNK_BYTES};
use flatout_wire::body_checksum::BodyChecksum;
use flatout_wire::checksum::{Algorithm, Hasher};

use crate::base::error::Error;
use crate::source::body::OutgoingBody;

/// A checksum that is computed while its body is sent, so that the bytes are read once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendingChecksum {
    pub(crate) algorithm: Algorithm,
    /// It follows the body, which is framed. Otherwise the origin is told nothing, and states its own.
    pub(crate) in_trailer: bool,
}

/// One attempt to send a body.
pub(crate) struct BodyCursor<'a> {
    body: &'a OutgoingBody<'a>,
    /// Bytes of the body that have been sent.
    at: u64,
    hasher: Option<(Algorithm, Hasher)>,
    /// Bytes that have been hashed: those sent, and those that the socket did not take yet.
    hashed: u64,
    framing: Option<Framing>,
}

/// Where in its framing a body is.
struct Framing {
    /// Goes out before more of the body, from `sent` on.
    line: String,
    sent: usize,
    /// Bytes of the body up to the end of the chunk.
    left: u64,
}

impl<'a> BodyCursor<'a> {
    pub(crate) fn new(body: &'a OutgoingBody<'a>, sum: Option<SendingChecksum>) -> BodyCursor<'a> {
        debug_assert!(body.bytes() > 0 || sum.is_none_or(|sum| !sum.in_trailer), "a part has a byte");
        let framing = sum.filter(|sum| sum.in_trailer).map(|_| {
            let left = body.bytes().min(CHUNK_BYTES);
            Framing { line: aws_chunked::before_chunk(true, left), sent: 0, left }
        });
        let hasher = sum.map(|sum| (sum.algorithm, Hasher::new(sum.algorithm)));
        BodyCursor { body, at: 0, hasher, hashed: 0, framing }
    }

    /// All of it has been sent, and what follows it.
    pub(crate) fn is_whole(&self) -> bool {
        let is_framed = |framing: &Framing| framing.sent == framing.line.len();
        self.at == self.body.bytes() && self.framing.as_ref().is_none_or(is_framed)
    }

    /// Bytes of the body that have been sent.
    pub(crate) fn sent(&self) -> u64 {
        self.at
    }

    /// The checksum, once all of the body has been sent.
    pub(crate) fn sum(&self) -> Option<BodyChecksum> {
        let (algorithm, hasher) = self.hasher.as_ref().filter(|_| self.at == self.body.bytes())?;
        Some(BodyChecksum::Crc(*algorithm, hasher.value()))
    }

    /// The unsent rest of a file that needs neither hashing nor framing: where it begins, and its length.
    pub(crate) fn file_rest(&self) -> Option<(&'a File, u64, u64)> {
        match self.body {
            OutgoingBody::File { file, range } if self.hasher.is_none() => {
                let at = range.start + self.at;
                Some((file, at, range.end - at))
            }
            _ => None,
        }
    }

    /// What is to be sent next. A file is read into `scratch`, and memory is taken as it lies, both of them
    /// in pieces of at most that length.
    ///
    /// # Errors
    /// The file cannot be read, or ends before its range does.
    pub(crate) fn piece<'b>(&'b mut self, scratch: &'b mut [u8]) -> Result<&'b [u8], Error> {
        let mut most = scratch.len();
        if let Some(framing) = &self.framing {
            if framing.sent < framing.line.len() {
                return Ok(&framing.line.as_bytes()[framing.sent..]);
            }
            most = most.min(usize::try_from(framing.left).unwrap_or(usize::MAX));
        }
        let piece = self.body.piece(self.at, &mut scratch[..most])?;
        let piece = &piece[..piece.len().min(most)];
        if let Some((_, hasher)) = &mut self.hasher {
            // What was not taken the last time has been hashed already.
            let known = (self.hashed - self.at).min(piece.len() as u64);
            hasher.update(&piece[known as usize..]);
            self.hashed = self.hashed.max(self.at + piece.len() as u64);
        }
        Ok(piece)
    }

    /// So much of the last piece has been sent; how many bytes of the body that was.
    pub(crate) fn on_sent(&mut self, bytes: u64) -> u64 {
        let Some(framing) = &mut self.framing else {
            self.at += bytes;
            return bytes;
        };
        if framing.sent < framing.line.len() {
            framing.sent += bytes as usize;
            return 0;
        }
        self.at += bytes;
        framing.left -= bytes;
        if framing.left > 0 {
            return bytes;
        }
        framing.left = (self.body.bytes() - self.at).min(CHUNK_BYTES);
        framing.sent = 0;
        framing.line = match (framing.left, &self.hasher) {
            (0, Some((algorithm, hasher))) => aws_chunked::after_chunks(*algorithm, hasher.value()),
            (left, _) => aws_chunked::before_chunk(false, left),
        };
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NVME: Algorithm = Algorithm::Crc64Nvme;

    /// What goes out where the socket takes at most `taken` bytes at once, and pieces have at most `read`.
    fn sent(
        bytes: &[u8],
        sum: Option<SendingChecksum>,
        read: usize,
        taken: usize,
    ) -> (Vec<u8>, Option<BodyChecksum>) {
        let body = OutgoingBody::Bytes(bytes);
        let (mut cursor, mut out, mut scratch) = (BodyCursor::new(&body, sum), Vec::new(), vec![0; read]);
        while !cursor.is_whole() {
            assert!(out.len() <= bytes.len() + 1000, "it has no end");
            let piece = cursor.piece(&mut scratch).unwrap();
            let piece = piece[..piece.len().min(taken)].to_vec();
            let _ = cursor.on_sent(piece.len() as u64);
            out.extend(piece);
        }
        assert_eq!(cursor.sent(), bytes.len() as u64);
        (out, cursor.sum())
    }

    #[test]
    fn a_body_is_hashed_once_however_little_of_a_piece_is_taken() {
        let bytes: Vec<u8> = (0..CHUNK_BYTES as usize * 2 + 77).map(|at| (at * 7 % 251) as u8).collect();
        let expected = Some(BodyChecksum::Crc(NVME, NVME.of(&bytes)));
        for (read, taken) in [(1 << 18, 1 << 18), (1 << 18, 100_003), (65_536, 65_536), (1 << 21, 1 << 20)] {
            let compared = SendingChecksum { algorithm: NVME, in_trailer: false };
            assert_eq!(sent(&bytes, Some(compared), read, taken), (bytes.clone(), expected));
            assert_eq!(sent(&bytes, None, read, taken), (bytes.clone(), None));

            let (framed, sum) =
                sent(&bytes, Some(SendingChecksum { in_trailer: true, ..compared }), read, taken);
            assert_eq!(sum, expected);
            let chunk = CHUNK_BYTES as usize;
            let mut whole = Vec::new();
            for (line, part) in [
                ("100000\r\n", &bytes[..chunk]),
                ("\r\n100000\r\n", &bytes[chunk..2 * chunk]),
                ("\r\n4d\r\n", &bytes[2 * chunk..]),
            ] {
                whole.extend(line.bytes());
                whole.extend(part);
            }
            let value = NVME.encode(NVME.of(&bytes));
            whole.extend(format!("\r\n0\r\nx-amz-checksum-crc64nvme:{value}\r\n\r\n").bytes());
            assert!(framed == whole, "the framing is another one at {read} and {taken}");
            assert_eq!(framed.len() as u64, aws_chunked::framed_bytes(bytes.len() as u64, NVME));
        }
    }

    #[test]
    fn a_framed_body_of_one_byte() {
        let trailing = SendingChecksum { algorithm: Algorithm::Crc32c, in_trailer: true };
        let (framed, _) = sent(b"1", Some(trailing), 100, 1);
        let value = Algorithm::Crc32c.encode(Algorithm::Crc32c.of(b"1"));
        let expected = format!("1\r\n1\r\n0\r\nx-amz-checksum-crc32c:{value}\r\n\r\n");
        assert_eq!(String::from_utf8(framed).unwrap(), expected);
    }
}
