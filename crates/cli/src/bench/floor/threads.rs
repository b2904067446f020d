//! The floor with blocking calls: a thread for each connection.

use std::io::{self, Read};
use std::net::TcpStream;
use std::thread;

use super::sink::{FloorPart, FloorSink, PartQueue};
use super::{FloorJob, FloorShape, HEAD_PIECE_BYTES, closed_early};
use crate::bench::run::PartTiming;

/// Fetches everything once.
pub fn fetch(job: &FloorJob, shape: FloorShape, sink: &mut FloorSink) -> io::Result<Vec<PartTiming>> {
    each_on_a_thread(job, shape, sink, |parts, number| {
        Connection::open(job, shape, number).and_then(|mut connection| connection.drive(parts))
    })
}

/// Runs `connection`, by its number, on a thread for each; their rows, or the first failure, which stops the
/// others.
pub(super) fn each_on_a_thread(
    job: &FloorJob,
    shape: FloorShape,
    sink: &mut FloorSink,
    connection: impl Fn(&PartQueue, u32) -> io::Result<Vec<PartTiming>> + Sync,
) -> io::Result<Vec<PartTiming>> {
    let parts = sink.parts(job, shape.connections);
    on_threads(shape.connections, |number| {
        let outcome = connection(&parts, number);
        if outcome.is_err() {
            parts.order().fail();
        }
        outcome
    })
}

/// Runs each connection, by its number, on a thread of its own; their rows, or the first failure.
pub(super) fn on_threads(
    connections: u32,
    run: impl Fn(u32) -> io::Result<Vec<PartTiming>> + Sync,
) -> io::Result<Vec<PartTiming>> {
    thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..connections).map(|number| scope.spawn(move || run(number))).collect();
        let mut rows = Vec::new();
        let mut outcome = Ok(());
        for thread in threads {
            match thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread of the floor panicked"))) {
                Ok(more) => rows.extend(more),
                // The first failure is the cause of the others.
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome.map(|()| rows)
    })
}

struct Connection<'a> {
    job: &'a FloorJob,
    number: u32,
    socket: TcpStream,
    scratch: Vec<u8>,
    head: Vec<u8>,
}

impl Connection<'_> {
    fn open(job: &FloorJob, shape: FloorShape, number: u32) -> io::Result<Connection<'_>> {
        let socket = job.connect()?;
        Ok(Connection { job, number, socket, scratch: vec![0; shape.call_bytes], head: Vec::new() })
    }

    fn drive(&mut self, parts: &PartQueue) -> io::Result<Vec<PartTiming>> {
        let mut rows = Vec::new();
        let mut spare = None;
        while let Some(mut part) = parts.next(spare.take()) {
            let start_s = self.job.seconds();
            self.job.ask(&self.socket, &part.range)?;
            let keep_alive = self.receive_head(&mut part)?;
            let first_byte_s = self.job.seconds();
            self.receive_body(&mut part)?;
            if !keep_alive {
                self.socket = self.job.connect()?;
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
    fn receive_head(&mut self, part: &mut FloorPart) -> io::Result<bool> {
        self.head.clear();
        loop {
            let before = self.head.len();
            self.head.resize(before + HEAD_PIECE_BYTES, 0);
            let received = self.socket.read(&mut self.head[before..])?;
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

    fn receive_body(&mut self, part: &mut FloorPart) -> io::Result<()> {
        while !part.is_whole() {
            let received = self.socket.read(part.room(&mut self.scratch))?;
            part.take(received, &self.scratch)?;
            self.job.count(received);
        }
        Ok(())
    }
}
