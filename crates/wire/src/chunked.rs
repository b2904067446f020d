//! The chunked coding (RFC 9112 §7.1) as a state machine that never touches the payload: it says how much of
//! it comes next, so that the caller can read it straight into the landing.
//!
//! ```text
//! 1a;ext=1 CRLF  payload of 0x1a bytes  CRLF  …  0 CRLF  trailer: x CRLF  CRLF
//! ^ framing      ^ the caller's         ^ framing                        ^ End
//! ```

/// Size lines and trailers longer than this are an attack or no HTTP.
const LONGEST_LINE_BYTES: usize = 16 << 10;
const LONGEST_TRAILER_BYTES: usize = 64 << 10;

/// The decoder of one body.
#[derive(Clone, Debug)]
pub struct Chunked {
    state: State,
    /// Bytes of the present size line, or of all trailers.
    framing_bytes: usize,
}

/// What the bytes given so far lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// All of `input` was framing: call again with what comes behind it.
    NeedMore { consumed: usize },
    /// Behind the `consumed` bytes follow `take` bytes of payload. The caller moves exactly these by itself,
    /// from the rest of `input` and then from the socket, and calls again with what comes behind them.
    Data { consumed: usize, take: u64 },
    /// The body has ended; what stands behind the `consumed` bytes belongs to the next answer.
    End { consumed: usize },
}

/// Framing that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    #[error("a chunk's size is no hexadecimal number")]
    Size,
    #[error("a chunk's size does not fit in 64 bits")]
    TooLarge,
    #[error("a chunk does not end where its size says")]
    LineBreak,
    #[error("a chunk's size line or the trailers are too long")]
    TooLong,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before the first digit of a size.
    SizeStart,
    Size(u64),
    /// Behind a size, in blanks.
    Blank(u64),
    Extension(u64),
    SizeLf(u64),
    PayloadCr,
    PayloadLf,
    TrailerStart,
    Trailer,
    TrailerLf,
    EndLf,
    End,
}

impl Chunked {
    /// A decoder before the first chunk.
    #[allow(clippy::new_without_default)] // A default decoder is nothing that anybody would ask for.
    pub fn new() -> Chunked {
        Chunked { state: State::SizeStart, framing_bytes: 0 }
    }

    /// Reads framing. Payload is never passed in: it starts where [`Step::Data`] says, and is the caller's to
    /// move.
    ///
    /// # Errors
    /// Framing that breaks the rules; the connection is of no further use.
    pub fn next(&mut self, input: &[u8]) -> Result<Step, ChunkError> {
        if self.state == State::End {
            return Ok(Step::End { consumed: 0 });
        }
        for (at, &byte) in input.iter().enumerate() {
            let before = self.state;
            self.state = self.after(byte)?;
            match (before, self.state) {
                (State::SizeLf(take), State::PayloadCr) => return Ok(Step::Data { consumed: at + 1, take }),
                (_, State::End) => return Ok(Step::End { consumed: at + 1 }),
                _ => {}
            }
        }
        Ok(Step::NeedMore { consumed: input.len() })
    }

    fn after(&mut self, byte: u8) -> Result<State, ChunkError> {
        self.count(byte)?;
        match (self.state, byte) {
            (State::SizeStart, _) => Ok(State::Size(hex_digit(byte)?)),
            (State::Size(size), b'\r') => Ok(State::SizeLf(size)),
            (State::Size(size) | State::Blank(size), b';') => Ok(State::Extension(size)),
            // Spaces before an extension, or before the line's end, are an old fault of servers (RFC 9112
            // §7.1.1, BWS).
            (State::Size(size) | State::Blank(size), b' ' | b'\t') => Ok(State::Blank(size)),
            (State::Size(size), _) => {
                let digit = hex_digit(byte)?;
                let shifted = size.checked_mul(16).ok_or(ChunkError::TooLarge)?;
                Ok(State::Size(shifted | digit))
            }
            (State::Blank(size) | State::Extension(size), b'\r') => Ok(State::SizeLf(size)),
            (State::Blank(_), _) => Err(ChunkError::Size),
            (State::Extension(_), b'\n') => Err(ChunkError::LineBreak),
            (State::Extension(size), _) => Ok(State::Extension(size)),
            (State::SizeLf(0), b'\n') => Ok(State::TrailerStart),
            (State::SizeLf(_), b'\n') => Ok(State::PayloadCr),
            (State::PayloadCr, b'\r') => Ok(State::PayloadLf),
            (State::PayloadLf, b'\n') => Ok(State::SizeStart),
            (State::TrailerStart, b'\r') => Ok(State::EndLf),
            (State::TrailerStart | State::Trailer, b'\n') => Err(ChunkError::LineBreak),
            (State::Trailer, b'\r') => Ok(State::TrailerLf),
            (State::TrailerStart | State::Trailer, _) => Ok(State::Trailer),
            (State::TrailerLf, b'\n') => Ok(State::TrailerStart),
            (State::EndLf, b'\n') => Ok(State::End),
            _ => Err(ChunkError::LineBreak),
        }
    }

    /// Bounds what a hostile origin can make us read without getting anywhere.
    fn count(&mut self, byte: u8) -> Result<(), ChunkError> {
        let longest = match self.state {
            State::TrailerStart | State::Trailer | State::TrailerLf | State::EndLf => LONGEST_TRAILER_BYTES,
            _ => LONGEST_LINE_BYTES,
        };
        let starts_anew = matches!((self.state, byte), (State::SizeStart, _) | (State::SizeLf(0), b'\n'));
        self.framing_bytes = if starts_anew { 1 } else { self.framing_bytes + 1 };
        if self.framing_bytes > longest { Err(ChunkError::TooLong) } else { Ok(()) }
    }
}

fn hex_digit(byte: u8) -> Result<u64, ChunkError> {
    char::from(byte).to_digit(16).map(u64::from).ok_or(ChunkError::Size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The payload and the bytes behind the body.
    type Decoded = (Vec<u8>, Vec<u8>);

    /// Decodes a body that arrives in pieces, as an engine does; `None` if it does not end.
    fn decode(pieces: &[&[u8]]) -> Result<Option<Decoded>, ChunkError> {
        let (mut decoder, mut payload, mut owed, mut ended) = (Chunked::new(), Vec::new(), 0u64, false);
        let mut rest = Vec::new();
        for mut piece in pieces.iter().copied() {
            while !piece.is_empty() && !ended {
                let moved = owed.min(piece.len() as u64) as usize;
                payload.extend_from_slice(&piece[..moved]);
                owed -= moved as u64;
                piece = &piece[moved..];
                if piece.is_empty() {
                    break;
                }
                let consumed = match decoder.next(piece)? {
                    Step::NeedMore { consumed } => consumed,
                    Step::Data { consumed, take } => {
                        owed = take;
                        consumed
                    }
                    Step::End { consumed } => {
                        ended = true;
                        consumed
                    }
                };
                piece = &piece[consumed..];
            }
            rest.extend_from_slice(piece);
        }
        Ok(ended.then_some((payload, rest)))
    }

    #[test]
    fn bodies() {
        let rows: [(&str, &str, &str); 7] = [
            ("0\r\n\r\n", "", ""),
            ("5\r\nhello\r\n0\r\n\r\n", "hello", ""),
            ("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\nHTTP/1.1", "hello world", "HTTP/1.1"),
            ("0005;a=b;c=\"d\"\r\nhello\r\n000\r\n\r\n", "hello", ""),
            ("5 \r\nhello\r\n0\r\n\r\n", "hello", ""),
            ("A\r\n0123456789\r\n0\r\nx-t: 1\r\ny: 2\r\n\r\nZ", "0123456789", "Z"),
            ("2\r\n\r\n\r\n0\r\n\r\n", "\r\n", ""),
        ];
        for (body, payload, rest) in rows {
            assert_eq!(decode(&[body.as_bytes()]), Ok(Some((payload.into(), rest.into()))), "{body:?}");
        }
    }

    #[test]
    fn broken_bodies() {
        let rows = [
            ("\r\n", ChunkError::Size),
            ("x\r\n", ChunkError::Size),
            ("-1\r\n", ChunkError::Size),
            ("5g\r\n", ChunkError::Size),
            ("10000000000000000\r\n", ChunkError::TooLarge),
            ("5\rhello", ChunkError::LineBreak),
            ("5;a\nhello", ChunkError::LineBreak),
            ("5\r\nhello!", ChunkError::LineBreak),
            ("5\r\nhello\r!", ChunkError::LineBreak),
            ("0\r\nx: y\n\r\n", ChunkError::LineBreak),
            ("0\r\n\n", ChunkError::LineBreak),
            ("0\r\n\rx", ChunkError::LineBreak),
        ];
        for (body, error) in rows {
            assert_eq!(decode(&[body.as_bytes()]), Err(error), "{body:?}");
        }
        let endless = |start: &str, more: &str| decode(&[start.as_bytes(), more.repeat(100_000).as_bytes()]);
        assert_eq!(endless("5;", "x"), Err(ChunkError::TooLong));
        assert_eq!(endless("", "0"), Err(ChunkError::TooLong));
        assert_eq!(endless("0\r\n", "x: y\r\n"), Err(ChunkError::TooLong));
    }

    #[test]
    fn a_size_is_not_followed_by_another_word() {
        for (body, found) in [
            ("5 5\r\nhello", Err(ChunkError::Size)),
            ("5\tx;", Err(ChunkError::Size)),
            ("5 \n", Err(ChunkError::Size)),
            ("5 \t;x", Ok(None)),
            ("5\t \r\nhel", Ok(None)),
        ] {
            assert_eq!(decode(&[body.as_bytes()]), found, "{body:?}");
        }
    }

    #[test]
    fn many_chunks_are_not_too_long() {
        let body = "1;x\r\na\r\n".repeat(50_000) + "0\r\n\r\n";
        let (payload, _) = decode(&[body.as_bytes()]).unwrap().unwrap();
        assert_eq!(payload.len(), 50_000);
    }

    #[test]
    fn cut_off_bodies_have_no_end() {
        let body = b"5\r\nhello\r\n0\r\nx: y\r\n\r\n";
        for end in 0..body.len() {
            assert_eq!(decode(&[&body[..end]]), Ok(None), "{end}");
        }
        let mut decoder = Chunked::new();
        assert_eq!(decoder.next(b"0\r\n\r\n"), Ok(Step::End { consumed: 5 }));
        assert_eq!(decoder.next(b"more"), Ok(Step::End { consumed: 0 }));
    }

    #[test]
    fn a_chunk_may_be_larger_than_memory() {
        let mut decoder = Chunked::new();
        let step = Step::Data { consumed: 18, take: u64::MAX };
        assert_eq!(decoder.next(b"ffffFFFFffffffff\r\nx"), Ok(step));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_payload(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..30), 0..5),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut body = Vec::new();
            for chunk in &chunks {
                body.extend_from_slice(format!("{:x};e=1\r\n", chunk.len()).as_bytes());
                body.extend_from_slice(chunk);
                body.extend_from_slice(b"\r\n");
            }
            body.extend_from_slice(b"0\r\nt: 1\r\n\r\nnext");
            let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            ends.push(body.len());
            ends.sort_unstable();
            let mut start = 0;
            let pieces: Vec<&[u8]> = ends.iter().map(|&end| &body[std::mem::replace(&mut start, end)..end]).collect();
            prop_assert_eq!(decode(&pieces), Ok(Some((chunks.concat(), b"next".to_vec()))));
        }

        #[test]
        fn no_bytes_panic(input in "[0-9a-f;\r\n x]{0,60}") {
            let _ = decode(&[input.as_bytes()]);
        }
    }
}
