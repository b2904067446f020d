//! The upload framing `aws-chunked`, undone: where signatures are not checked, s3s leaves it in the body.
//!
//! Format: `SIZE-IN-HEX[;chunk-signature=…]\r\n`, that many bytes, `\r\n`, and so on; after the size 0 the
//! trailers, one a line, and an empty line. Signatures are passed over.
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-streaming.html>

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use hyper::HeaderMap;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{HeaderName, HeaderValue};
use s3s::StdError;

/// Longest line before or after the payload of a chunk.
const MAX_LINE_BYTES: usize = 4096;

/// Trailers, here once the body was read; a request carries it as an extension.
#[derive(Clone, Default)]
pub(crate) struct Trailers(Arc<Mutex<HeaderMap>>);

impl Trailers {
    pub(crate) fn take(&self) -> HeaderMap {
        std::mem::take(&mut *self.0.lock().expect("nothing panics while it holds the trailers"))
    }
}

/// A body without its framing.
pub(crate) struct Unframed<B> {
    body: B,
    input: Bytes,
    line: Vec<u8>,
    state: State,
    /// Payload bytes still to come, as far as the request said.
    left: Option<u64>,
    trailers: Trailers,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Size,
    Payload(u64),
    AfterPayload,
    Trailer,
    End,
}

/// The result of one step over the input.
enum Step {
    Payload(Bytes),
    NeedInput,
    Again,
    End,
}

impl<B> Unframed<B> {
    /// `bytes` is the length of the payload, where the request states it (`x-amz-decoded-source-length`).
    pub(crate) fn new(body: B, bytes: Option<u64>) -> (Unframed<B>, Trailers) {
        let trailers = Trailers::default();
        let shared = trailers.clone();
        let (input, line, state) = (Bytes::new(), Vec::new(), State::Size);
        (Unframed { body, input, line, state, left: bytes, trailers }, shared)
    }

    fn step(&mut self) -> Result<Step, StdError> {
        if self.state == State::End {
            return Ok(Step::End);
        }
        if self.input.is_empty() {
            return Ok(Step::NeedInput);
        }
        if let State::Payload(chunk) = self.state {
            let payload = self.input.split_to(self.input.len().min(usize::try_from(chunk)?));
            let chunk = chunk - payload.len() as u64;
            self.state = if chunk == 0 { State::AfterPayload } else { State::Payload(chunk) };
            if let Some(left) = &mut self.left {
                *left = left.checked_sub(payload.len() as u64).ok_or("more bytes than were announced")?;
            }
            return Ok(Step::Payload(payload));
        }
        let Some(line) = self.take_line()? else { return Ok(Step::NeedInput) };
        self.on_line(&line)?;
        Ok(Step::Again)
    }

    /// The next line without its end, once it is whole.
    fn take_line(&mut self) -> Result<Option<String>, StdError> {
        let end = self.input.iter().position(|byte| *byte == b'\n');
        self.line.extend_from_slice(&self.input[..end.unwrap_or(self.input.len())]);
        self.input.advance(end.map_or(self.input.len(), |end| end + 1));
        if self.line.len() > MAX_LINE_BYTES {
            return Err("a line of the aws-chunked framing is too long".into());
        }
        if end.is_none() {
            return Ok(None);
        }
        let line = String::from_utf8(std::mem::take(&mut self.line))?;
        Ok(Some(line.strip_suffix('\r').map(str::to_owned).unwrap_or(line)))
    }

    fn on_line(&mut self, line: &str) -> Result<(), StdError> {
        match self.state {
            State::Size => {
                let size = line.split(';').next().unwrap_or_default();
                let size = u64::from_str_radix(size, 16).map_err(|_| "no size of an aws-chunked chunk")?;
                self.state = if size == 0 { State::Trailer } else { State::Payload(size) };
            }
            State::AfterPayload if line.is_empty() => self.state = State::Size,
            State::Trailer if line.is_empty() => {
                if self.left.is_some_and(|left| left > 0) {
                    return Err("fewer bytes than were announced".into());
                }
                self.state = State::End;
            }
            State::Trailer => {
                let (name, value) = line.split_once(':').ok_or("no aws-chunked trailer")?;
                let name = HeaderName::from_bytes(name.trim().to_ascii_lowercase().as_bytes())?;
                let mut trailers = self.trailers.0.lock().expect("nothing panics while it holds them");
                trailers.insert(name, HeaderValue::from_str(value.trim())?);
            }
            State::AfterPayload | State::Payload(_) | State::End => {
                return Err("an aws-chunked chunk is longer than its size".into());
            }
        }
        Ok(())
    }
}

impl<B> Body for Unframed<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        loop {
            match self.step() {
                Err(error) => return Poll::Ready(Some(Err(error))),
                Ok(Step::Payload(payload)) => return Poll::Ready(Some(Ok(Frame::data(payload)))),
                Ok(Step::End) => return Poll::Ready(None),
                Ok(Step::Again) => {}
                Ok(Step::NeedInput) => match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                    Some(Ok(frame)) => self.input = frame.into_data().unwrap_or_default(),
                    Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
                    None => {
                        return Poll::Ready(Some(Err("the body ends within its aws-chunked framing".into())));
                    }
                },
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{BodyExt, Full};

    /// The payload and the trailers, or the error.
    fn decode(input: &str, bytes: impl Into<Option<u64>>) -> Result<(Bytes, HeaderMap), StdError> {
        let (body, trailers) =
            Unframed::new(Full::new(Bytes::copy_from_slice(input.as_bytes())), bytes.into());
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let payload = runtime.block_on(body.collect())?.to_bytes();
        Ok((payload, trailers.take()))
    }

    #[test]
    fn framing_is_undone() {
        let signed =
            "5;chunk-signature=ab\r\nhello\r\n3;chunk-signature=cd\r\n...\r\n0;chunk-signature=ef\r\n\r\n";
        assert_eq!(decode(signed, 8).unwrap().0, "hello...");
        assert_eq!(decode(signed, None).unwrap().0, "hello...");
        let (payload, trailers) =
            decode("a\r\n0123456789\r\n0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n", 10).unwrap();
        assert_eq!(payload, "0123456789");
        assert_eq!(trailers["x-amz-checksum-crc32"], "y/Q5Jg==");
        assert_eq!(decode("0\r\n\r\n", 0).unwrap().0, "");
    }

    #[test]
    fn broken_framing_is_an_error() {
        for (input, bytes) in [
            ("5\r\nhello\r\n", 5),
            ("5\r\nhello\r\n0\r\n\r\n", 6),
            ("5\r\nhello\r\n0\r\n\r\n", 4),
            ("5\r\nhello!\r\n0\r\n\r\n", 5),
            ("x\r\nhello\r\n0\r\n\r\n", 5),
            ("ffffffffffffffffffff\r\n", 5),
            ("", 0),
        ] {
            assert!(decode(input, bytes).is_err(), "{input:?}");
        }
    }
}
