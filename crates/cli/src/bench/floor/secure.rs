//! The floor over TLS: a bare loop around tokio-rustls, a thread with a runtime of its own for each
//! connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

use super::sink::{FloorPart, FloorSink, PartQueue};
use super::threads::each_on_a_thread;
use super::{FloorJob, FloorShape, HEAD_PIECE_BYTES, closed_early};
use crate::bench::run::PartTiming;

/// Whom to trust and whom to expect: the engine's own configuration, so that both agree on the same cipher.
#[derive(Clone)]
pub struct FloorTls {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

/// Fetches everything once.
pub fn fetch(job: &FloorJob, shape: FloorShape, sink: &mut FloorSink) -> io::Result<Vec<PartTiming>> {
    each_on_a_thread(job, shape, sink, |parts, number| connection(job, shape, parts, number))
}

fn connection(
    job: &FloorJob,
    shape: FloorShape,
    parts: &PartQueue,
    number: u32,
) -> io::Result<Vec<PartTiming>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let stream = open_for(job).await?;
        let scratch = vec![0; shape.call_bytes];
        Connection { job, number, stream, scratch, head: Vec::new() }.drive(parts).await
    })
}

async fn open_for(job: &FloorJob) -> io::Result<TlsStream<TcpStream>> {
    let tls = job.tls.as_ref().ok_or_else(|| io::Error::other("the floor over TLS needs an https URL"))?;
    open(job.address, tls).await
}

pub(super) async fn open(address: SocketAddr, tls: &FloorTls) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(tls.config.clone()).connect(tls.name.clone(), stream).await
}

struct Connection<'a> {
    job: &'a FloorJob,
    number: u32,
    stream: TlsStream<TcpStream>,
    scratch: Vec<u8>,
    head: Vec<u8>,
}

impl Connection<'_> {
    async fn drive(&mut self, parts: &PartQueue<'_>) -> io::Result<Vec<PartTiming>> {
        let mut rows = Vec::new();
        let mut spare = None;
        while let Some(mut part) = parts.next(spare.take()) {
            let start_s = self.job.seconds();
            self.stream.write_all(&self.job.request(&part.range)).await?;
            self.stream.flush().await?;
            let keep_alive = self.receive_head(&mut part).await?;
            let first_byte_s = self.job.seconds();
            self.receive_body(&mut part).await?;
            if !keep_alive {
                self.stream = open_for(self.job).await?;
            }
            let (index, bytes) = (part.index, part.range.end - part.range.start);
            if let Some(kept) = part.into_kept() {
                parts.order().write_in_turn(index, &kept)?;
                spare = Some(kept);
            }
            let end_s = self.job.seconds();
            let (address, connection) = (self.job.address.to_string(), self.number);
            rows.push(PartTiming {
                index,
                address,
                connection,
                start_s,
                first_byte_s,
                end_s,
                bytes,
                attempts: 1,
            });
        }
        Ok(rows)
    }

    /// Returns whether the connection may be used again.
    async fn receive_head(&mut self, part: &mut FloorPart<'_>) -> io::Result<bool> {
        self.head.clear();
        loop {
            let before = self.head.len();
            self.head.resize(before + HEAD_PIECE_BYTES, 0);
            let received = self.stream.read(&mut self.head[before..]).await?;
            self.head.truncate(before + received);
            if received == 0 {
                return Err(closed_early());
            }
            if let Some((head, length)) = self.job.head(&self.head, &part.range)? {
                let body = &self.head[length..];
                part.copy(body, &mut self.scratch)?;
                self.job.count(body.len());
                return Ok(head.keep_alive);
            }
        }
    }

    async fn receive_body(&mut self, part: &mut FloorPart<'_>) -> io::Result<()> {
        while !part.is_whole() {
            let received = self.stream.read(part.room(&mut self.scratch)).await?;
            part.take(received, &self.scratch)?;
            self.job.count(received);
        }
        Ok(())
    }
}
