//! The bytes of a connection: TCP, where files go out by `sendfile(2)`, or TLS over it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::sendfile;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::buffer::{FRAME_BYTES, read_frame};
use crate::placeholder::file_behind;

/// Bytes of a file that are read and sealed at once: the most that rustls takes of a write while the socket
/// is full.
const SEALED_BYTES: usize = 64 << 10;

pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// The TCP connection underneath.
    pub(crate) fn tcp(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0,
        }
    }

    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Stream::Tls(_))
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }

    /// Sends what fits of `bufs`, among which may be placeholders for a file.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Stream::Plain(stream) => poll_send(stream, cx, bufs),
            Stream::Tls(stream) => poll_seal(stream, cx, bufs),
        }
    }

    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            // Records that the socket had no room for are still inside.
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    pub(crate) fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// Seals the first of `bufs` that is not empty; a file's bytes are read for it.
fn poll_seal(
    stream: &mut TlsStream<TcpStream>,
    cx: &mut Context<'_>,
    bufs: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let Some(buf) = bufs.iter().find(|buf| !buf.is_empty()) else { return Poll::Ready(Ok(0)) };
    let Some((file, offset)) = file_behind(buf) else { return Pin::new(stream).poll_write(cx, buf) };
    // Where nothing of it is taken now, it is read again: the page cache has it.
    let frame = read_frame(&file, offset, buf.len().min(SEALED_BYTES))?;
    Pin::new(stream).poll_write(cx, &frame)
}

/// Sends what fits of `bufs`, up to the end of the first placeholder for a file among them.
fn poll_send(stream: &TcpStream, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
    let file_at = bufs.iter().position(|buf| file_behind(buf).is_some());
    if file_at == Some(0) {
        return poll_send_file(stream, cx, &bufs[0]);
    }
    let memory = &bufs[..file_at.unwrap_or(bufs.len())];
    // A head and the file's bytes behind it share a segment.
    let flags = SendFlags::NOSIGNAL | if file_at.is_some() { SendFlags::MORE } else { SendFlags::empty() };
    let wanted = memory.iter().map(|buf| buf.len()).sum();
    poll_fill(stream, cx, wanted, || Ok(sendmsg(stream, memory, &mut SendAncillaryBuffer::default(), flags)?))
}

/// Sends what fits of the bytes that `buf` stands for.
fn poll_send_file(stream: &TcpStream, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
    let (file, offset) = file_behind(buf).expect("the caller found it to be a placeholder");
    let sent = ready!(poll_fill(stream, cx, 0, || {
        match sendfile(stream, &file, Some(&mut offset.clone()), buf.len()) {
            Ok(0) if !buf.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
            // Some file systems cannot.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                let frame = read_frame(&file, offset, buf.len().min(FRAME_BYTES))?;
                Ok(send(stream, &frame, SendFlags::NOSIGNAL)?)
            }
            sent => Ok(sent?),
        }
    }));
    Poll::Ready(sent)
}

/// Calls `send` when the socket has room. Less than `wanted` bytes sent means that it is full: tokio gets to
/// know so, and does not find out by one more call that ends in EAGAIN.
fn poll_fill(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    wanted: usize,
    mut send: impl FnMut() -> io::Result<usize>,
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_write_ready(cx))?;
        let mut sent = 0;
        let full = || -> io::Error { io::ErrorKind::WouldBlock.into() };
        let tried = stream.try_io(Interest::WRITABLE, || {
            sent = send()?;
            if sent < wanted { Err(full()) } else { Ok(()) }
        });
        match tried {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && sent == 0 => {}
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Poll::Ready(Err(error)),
            _ => return Poll::Ready(Ok(sent)),
        }
    }
}
