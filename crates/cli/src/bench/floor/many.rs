//! The floor of many objects: threads with a connection each that ask for one object after the other, receive
//! it with plain calls and write it to its file.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use flatout_wire::head::{self, Body};
use flatout_wire::request::Method;

use super::{FloorShape, HEAD_PIECE_BYTES, closed_early};

/// What is fetched, and where it lands.
pub struct ManyJob {
    pub objects: Vec<NamedRequest>,
    pub address: SocketAddr,
    /// The folder of the files; `None` where bytes are dropped.
    pub folder: Option<PathBuf>,
    pub landed_bytes: Arc<AtomicU64>,
}

/// One object.
pub struct NamedRequest {
    /// The head of its request, signed before the clock starts.
    pub request: Vec<u8>,
    /// Its path below the folder.
    pub name: String,
}

/// Fetches everything once.
pub fn fetch(job: &ManyJob, shape: FloorShape) -> io::Result<()> {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..shape.connections)
            .map(|_| {
                scope
                    .spawn(|| Connection::open(job, shape).and_then(|mut connection| connection.drive(&next)))
            })
            .collect();
        let panicked = |_| Err(io::Error::other("a thread of the floor panicked"));
        // The first failure is the cause of the others.
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).fold(Ok(()), Result::and)
    })
}

struct Connection<'a> {
    job: &'a ManyJob,
    socket: TcpStream,
    scratch: Vec<u8>,
    head: Vec<u8>,
}

impl Connection<'_> {
    fn open(job: &ManyJob, shape: FloorShape) -> io::Result<Connection<'_>> {
        Ok(Connection {
            job,
            socket: connect(job.address)?,
            scratch: vec![0; shape.call_bytes],
            head: Vec::new(),
        })
    }

    fn drive(&mut self, next: &AtomicUsize) -> io::Result<()> {
        while let Some(object) = self.job.objects.get(next.fetch_add(1, Ordering::Relaxed)) {
            self.socket.write_all(&object.request)?;
            if !self.receive(object)? {
                self.socket = connect(self.job.address)?;
            }
        }
        Ok(())
    }

    /// Whether the connection may be used again.
    fn receive(&mut self, object: &NamedRequest) -> io::Result<bool> {
        let mut file = match &self.job.folder {
            Some(folder) => Some(create(&folder.join(&object.name))?),
            None => None,
        };
        let (keep_alive, mut left) = self.receive_head(&mut file)?;
        while left > 0 {
            let room = self.scratch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let received = self.socket.read(&mut self.scratch[..room])?;
            if received == 0 {
                return Err(closed_early());
            }
            self.land(&mut file, received)?;
            left -= received as u64;
        }
        Ok(keep_alive)
    }

    /// Receives the head and what comes along with it; how much of the body is still to come.
    fn receive_head(&mut self, file: &mut Option<File>) -> io::Result<(bool, u64)> {
        self.head.clear();
        loop {
            let before = self.head.len();
            self.head.resize(before + HEAD_PIECE_BYTES, 0);
            let received = self.socket.read(&mut self.head[before..])?;
            self.head.truncate(before + received);
            if received == 0 {
                return Err(closed_early());
            }
            let Some((head, used)) = head::parse(&self.head, Method::Get).map_err(io::Error::other)? else {
                continue;
            };
            let bytes = match head.body {
                Body::Length(bytes) if head.status == 200 => bytes,
                _ => {
                    let status = head.status;
                    return Err(io::Error::other(format!(
                        "the floor needs plain answers, and this one is {status}"
                    )));
                }
            };
            let along = self.head.len() - used;
            self.scratch[..along].copy_from_slice(&self.head[used..]);
            self.land(file, along)?;
            return Ok((head.keep_alive, bytes - along as u64));
        }
    }

    fn land(&self, file: &mut Option<File>, bytes: usize) -> io::Result<()> {
        self.job.landed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        match file {
            Some(file) if bytes > 0 => file.write_all(&self.scratch[..bytes]),
            _ => Ok(()),
        }
    }
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    socket.set_nodelay(true)?;
    Ok(socket)
}

/// A new file; its folder is made when it turns out to be missing.
fn create(path: &Path) -> io::Result<File> {
    match File::create_new(path) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => {
            fs::create_dir_all(path.parent().unwrap_or(path))?;
            File::create_new(path)
        }
        created => created,
    }
}
