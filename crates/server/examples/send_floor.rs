//! The floor under every origin: a bare `send(2)` loop that answers ranges from memory, a thread a
//! connection. To compare CPU with, not to serve anything: every GET and HEAD gets the same bytes, whatever
//! its path.
//!
//! `cargo run --release -p flatout-server --example send_floor -- [ADDR:PORT] [OBJECT-BYTES] [SOURCE-BYTES]`
//!
//! SOURCE-BYTES is how much memory the bytes come from, again and again: by default what a synthetic object
//! of the origin reads too (it stays in the L2 cache).

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;

/// Bytes in one call: enough that the kernel, not the call, is what costs.
const SEND_BYTES: u64 = 1 << 20;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let mut number = |default: u64| match arguments.next() {
        Some(text) => {
            text.parse().map_err(|_| std::io::Error::other(format!("{text} is no number of bytes")))
        }
        None => Ok(default),
    };
    let size = number(4 << 30)?;
    let source = Arc::new(vec![0x5a; number(256 << 10)?.max(1) as usize]);
    let listener = TcpListener::bind(&address)?;
    println!("http://{}/any/key", listener.local_addr()?);
    for connection in listener.incoming() {
        let (connection, source) = (connection?, source.clone());
        std::thread::spawn(move || serve(connection, size, &source));
    }
    Ok(())
}

/// Answers one request after the other until the client goes away.
fn serve(mut connection: TcpStream, size: u64, source: &[u8]) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let (mut buffer, mut filled) = ([0; 16 * 1024], 0);
    loop {
        let end = loop {
            if let Some(end) = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            match connection.read(&mut buffer[filled..])? {
                0 => return Ok(()),
                bytes => filled += bytes,
            }
        };
        let request = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
        buffer.copy_within(end..filled, 0);
        filled -= end;
        answer(&mut connection, &request, size, source)?;
    }
}

fn answer(connection: &mut TcpStream, request: &str, size: u64, source: &[u8]) -> std::io::Result<()> {
    let range = asked_range(request, size);
    let (status, content_range) = match &range {
        Some(range) => (
            "206 Partial Content",
            format!("content-range: bytes {}-{}/{size}\r\n", range.start, range.end - 1),
        ),
        None => ("200 OK", String::new()),
    };
    let range = range.unwrap_or(0..size);
    let length = range.end - range.start;
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{content_range}etag: \"floor\"\r\naccept-ranges: bytes\r\n\r\n"
    );
    connection.write_all(head.as_bytes())?;
    let mut left = if request.starts_with("head ") { 0 } else { length };
    while left > 0 {
        let bytes = left.min(SEND_BYTES).min(source.len() as u64);
        left -= connection.write(&source[..bytes as usize])? as u64;
    }
    Ok(())
}

/// The range of `range: bytes=A-B`, the only form that is understood here.
fn asked_range(request: &str, size: u64) -> Option<Range<u64>> {
    let value = request.lines().find_map(|line| line.strip_prefix("range: bytes="))?;
    let (first, last) = value.trim().split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && first < size).then(|| first..size.min(last + 1))
}
