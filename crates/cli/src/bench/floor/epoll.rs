//! The floor with one thread: epoll over all connections, one receive for each event.

use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::retry_on_intr;
use rustix::time::Timespec;

use super::sink::{FloorPart, FloorSink, PartQueue};
use super::{FloorJob, FloorShape, HEAD_PIECE_BYTES, closed_early};
use crate::bench::run::PartTiming;

/// An origin that says nothing for this long is given up.
const SILENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// Fetches everything once.
pub fn fetch(job: &FloorJob, shape: FloorShape, sink: &mut FloorSink) -> io::Result<Vec<PartTiming>> {
    let parts = sink.parts(job, shape.connections);
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    let mut events: Vec<Event> = Vec::with_capacity(shape.connections as usize);
    let mut scratch = vec![0; shape.call_bytes];
    let mut connections = Vec::new();
    for number in 0..shape.connections {
        let mut connection = Connection::open(job, number)?;
        connection.ask_next(&parts)?;
        if connection.part.is_some() {
            watch(&set, &connection)?;
        }
        connections.push(connection);
    }
    while connections.iter().any(|connection| connection.part.is_some()) {
        events.clear();
        if retry_on_intr(|| epoll::wait(&set, spare_capacity(&mut events), Some(&SILENCE)))? == 0 {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the origin fell silent"));
        }
        for event in &events {
            let number = event.data;
            let connection = &mut connections[number.u64() as usize];
            match connection.receive(&mut scratch, &parts)? {
                AfterReceive::Same => {}
                AfterReceive::Renewed => watch(&set, connection)?,
                AfterReceive::Idle => epoll::delete(&set, &connection.socket)?,
            }
        }
    }
    Ok(connections.into_iter().flat_map(|connection| connection.rows).collect())
}

/// Level-triggered; closing the socket takes it out of the set.
fn watch(set: &OwnedFd, connection: &Connection) -> io::Result<()> {
    let key = EventData::new_u64(connection.number.into());
    Ok(epoll::add(set, &connection.socket, key, EventFlags::IN)?)
}

/// What the set of watched sockets needs to know after a receive.
enum AfterReceive {
    Same,
    /// The origin closes after each answer: there is a new socket to watch.
    Renewed,
    /// No part is left for it; the origin's closing it would be an event for ever.
    Idle,
}

struct Connection<'a> {
    job: &'a FloorJob,
    number: u32,
    socket: TcpStream,
    head: Vec<u8>,
    keep_alive: bool,
    part: Option<FloorPart<'a>>,
    spare: Option<Vec<u8>>,
    start_s: f64,
    /// Set once the head is whole.
    first_byte_s: Option<f64>,
    rows: Vec<PartTiming>,
}

impl<'a> Connection<'a> {
    fn open(job: &'a FloorJob, number: u32) -> io::Result<Connection<'a>> {
        Ok(Connection {
            job,
            number,
            socket: job.connect()?,
            head: Vec::new(),
            keep_alive: true,
            part: None,
            spare: None,
            start_s: 0.0,
            first_byte_s: None,
            rows: Vec::new(),
        })
    }

    fn ask_next(&mut self, parts: &PartQueue<'a>) -> io::Result<()> {
        self.part = parts.next(self.spare.take());
        self.first_byte_s = None;
        self.head.clear();
        self.start_s = self.job.seconds();
        match &self.part {
            Some(part) => self.job.ask(&self.socket, &part.range),
            None => Ok(()),
        }
    }

    /// One receive. Level-triggered events promise that it does not block.
    fn receive(&mut self, scratch: &mut [u8], parts: &PartQueue<'a>) -> io::Result<AfterReceive> {
        let Some(mut part) = self.part.take() else { return Ok(AfterReceive::Idle) };
        match self.first_byte_s {
            None => self.receive_head(&mut part, scratch)?,
            Some(_) => {
                let received = self.socket.read(part.room(scratch))?;
                part.take(received, scratch)?;
                self.job.count(received);
            }
        }
        if self.first_byte_s.is_none() || !part.is_whole() {
            self.part = Some(part);
            return Ok(AfterReceive::Same);
        }
        self.finish(part, parts)?;
        if !self.keep_alive {
            self.socket = self.job.connect()?;
        }
        self.ask_next(parts)?;
        Ok(match (&self.part, self.keep_alive) {
            (Some(_), true) => AfterReceive::Same,
            (Some(_), false) => AfterReceive::Renewed,
            // A socket that was replaced left the set when it was closed.
            (None, false) => AfterReceive::Same,
            (None, true) => AfterReceive::Idle,
        })
    }

    fn receive_head(&mut self, part: &mut FloorPart, scratch: &mut [u8]) -> io::Result<()> {
        let before = self.head.len();
        self.head.resize(before + HEAD_PIECE_BYTES, 0);
        let received = self.socket.read(&mut self.head[before..])?;
        self.head.truncate(before + received);
        if received == 0 {
            return Err(closed_early());
        }
        if let Some((head, length)) = self.job.head(&self.head, &part.range)? {
            self.first_byte_s = Some(self.job.seconds());
            self.keep_alive = head.keep_alive;
            let body = &self.head[length..];
            part.copy(body, scratch)?;
            self.job.count(body.len());
        }
        Ok(())
    }

    fn finish(&mut self, part: FloorPart, parts: &PartQueue) -> io::Result<()> {
        let (index, bytes) = (part.index, part.range.end - part.range.start);
        if let Some(kept) = part.into_kept() {
            self.spare = parts.order().write_or_keep(index, kept)?;
        }
        self.rows.push(PartTiming {
            index,
            address: self.job.address.to_string(),
            connection: self.number,
            start_s: self.start_s,
            first_byte_s: self.first_byte_s.unwrap_or(self.start_s),
            end_s: self.job.seconds(),
            bytes,
            attempts: 1,
        });
        Ok(())
    }
}
