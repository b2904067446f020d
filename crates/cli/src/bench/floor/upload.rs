//! The floor of uploads: parts that plain blocking calls send, a thread for each connection.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use flatout_wire::head::{self, Body};
use flatout_wire::request::Method;
use memmap2::Mmap;
use rustix::fs::sendfile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio_rustls::client::TlsStream;

use super::secure::{self, FloorTls};
use super::shape::{FloorCall, FloorShape};
use super::threads::on_threads;
use super::{HEAD_PIECE_BYTES, closed_early, connect};
use crate::bench::run::PartTiming;

/// What is sent.
pub struct UploadJob {
    pub parts: Vec<OutgoingPart>,
    pub bytes: FloorBytes,
    pub address: SocketAddr,
    /// For an https origin.
    pub tls: Option<FloorTls>,
    /// When the clock started.
    pub start: Instant,
    /// Bytes of parts that were given to the kernel so far, for the sampler.
    pub sent_bytes: Arc<AtomicU64>,
    /// No further part is to be begun.
    pub stopped: Arc<AtomicBool>,
}

/// One part: its request, signed before the clock starts, and its bytes.
pub struct OutgoingPart {
    pub head: Vec<u8>,
    pub range: Range<u64>,
}

/// Where the bytes of the object are.
pub enum FloorBytes {
    /// Mapped, with all its pages, before the clock starts.
    File { file: File, mapped: Mmap },
    /// One block, again and again.
    Repeated(Vec<u8>),
}

impl FloorBytes {
    /// Some bytes from `at` on, at most `most`.
    fn piece(&self, at: u64, most: usize) -> &[u8] {
        let (bytes, at) = match self {
            FloorBytes::File { mapped, .. } => (&mapped[..], at as usize),
            FloorBytes::Repeated(block) => (&block[..], (at % block.len() as u64) as usize),
        };
        &bytes[at..bytes.len().min(at + most)]
    }
}

/// Sends everything once. Rows come in no order, the ETags of the parts in theirs.
pub fn send(job: &UploadJob, shape: FloorShape) -> io::Result<(Vec<PartTiming>, Vec<String>)> {
    let (next, etags) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let rows = on_threads(shape.connections, |number| {
        let connection = Connection::open(job, shape, number, &etags);
        let sent = connection.and_then(|mut connection| connection.drive(&next));
        if sent.is_err() {
            // The others need not go on.
            next.fetch_max(job.parts.len(), Ordering::Relaxed);
        }
        sent
    })?;
    let etags = etags.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((rows, etags.into_values().collect()))
}

struct Connection<'a> {
    job: &'a UploadJob,
    shape: FloorShape,
    number: u32,
    socket: PartSocket,
    head: Vec<u8>,
    /// By the number of the part.
    etags: &'a Mutex<BTreeMap<usize, String>>,
}

impl<'a> Connection<'a> {
    fn open(
        job: &'a UploadJob,
        shape: FloorShape,
        number: u32,
        etags: &'a Mutex<BTreeMap<usize, String>>,
    ) -> io::Result<Connection<'a>> {
        let socket = PartSocket::open(job)?;
        Ok(Connection { job, shape, number, socket, head: Vec::new(), etags })
    }

    fn drive(&mut self, next: &AtomicUsize) -> io::Result<Vec<PartTiming>> {
        let mut rows = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(part) = self.job.parts.get(index) else { return Ok(rows) };
            if self.job.stopped.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let start_s = self.job.start.elapsed().as_secs_f64();
            self.socket.write(&part.head)?;
            self.send_body(&part.range)?;
            if !self.receive_answer(index)? {
                self.socket = PartSocket::open(self.job)?;
            }
            let end_s = self.job.start.elapsed().as_secs_f64();
            rows.push(PartTiming {
                index: index as u64,
                address: self.job.address.to_string(),
                connection: self.number,
                start_s,
                first_byte_s: end_s,
                end_s,
                bytes: part.range.end - part.range.start,
                attempts: 1,
            });
        }
    }

    fn send_body(&mut self, range: &Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let most = self.shape.call_bytes.min((range.end - at) as usize);
            let sent = match (&self.job.bytes, &self.socket) {
                (FloorBytes::File { file, .. }, PartSocket::Plain(socket))
                    if self.shape.call == FloorCall::Sendfile =>
                {
                    sendfile(socket, file, Some(&mut at.clone()), most)?
                }
                (bytes, _) => {
                    let piece = bytes.piece(at, most);
                    self.socket.write(piece)?;
                    piece.len()
                }
            };
            if sent == 0 {
                return Err(io::Error::other("the file is shorter than it was"));
            }
            at += sent as u64;
            self.job.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns whether the connection may be used again.
    fn receive_answer(&mut self, index: usize) -> io::Result<bool> {
        self.head.clear();
        loop {
            let before = self.head.len();
            self.head.resize(before + HEAD_PIECE_BYTES, 0);
            let received = self.socket.read(&mut self.head[before..])?;
            self.head.truncate(before + received);
            if received == 0 {
                return Err(closed_early());
            }
            let Some((head, length)) = head::parse(&self.head, Method::Put).map_err(io::Error::other)? else {
                continue;
            };
            if head.status != 200 {
                return Err(io::Error::other(format!("the origin answered a part with {}", head.status)));
            }
            let etag = head.etag.ok_or_else(|| io::Error::other("the origin gave a part no ETag"))?;
            self.etags.lock().unwrap_or_else(PoisonError::into_inner).insert(index, etag);
            // The answer to a part has no body; after one that has, another connection is opened.
            let is_empty = matches!(head.body, Body::Length(0)) && length == self.head.len();
            return Ok(head.keep_alive && is_empty);
        }
    }
}

/// A connection of blocking calls.
enum PartSocket {
    Plain(TcpStream),
    Tls(Runtime, Box<TlsStream<tokio::net::TcpStream>>),
}

impl PartSocket {
    fn open(job: &UploadJob) -> io::Result<PartSocket> {
        let Some(tls) = &job.tls else { return Ok(PartSocket::Plain(connect(job.address)?)) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let stream = runtime.block_on(secure::open(job.address, tls))?;
        Ok(PartSocket::Tls(runtime, Box::new(stream)))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            PartSocket::Plain(socket) => socket.write_all(bytes),
            PartSocket::Tls(runtime, stream) => runtime.block_on(async {
                stream.write_all(bytes).await?;
                stream.flush().await
            }),
        }
    }

    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            PartSocket::Plain(socket) => socket.read(room),
            PartSocket::Tls(runtime, stream) => runtime.block_on(stream.read(room)),
        }
    }
}
