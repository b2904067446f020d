//! Reads an object of an origin here and there, in order or not: what the reader costs without a mount in
//! front of it.
//!
//! `cargo run --release -p flatout-engine --example read -- URL BYTES_AT_ONCE PATTERN READERS`, PATTERN one
//! of `order`, `random`; it prints GiB/s, CPU seconds a GiB, and what was fetched.

use std::sync::mpsc;
use std::time::Instant;

use flatout_engine::{Client, Config, Object, Reader};
use flatout_wire::location::Location;
use flatout_wire::time::parse_http;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, bytes, pattern, readers] = arguments.as_slice() else {
        return Err("URL BYTES_AT_ONCE order|random READERS".into());
    };
    let (bytes, readers): (u64, u64) = (bytes.parse()?, readers.parse()?);
    let mut config = Config::default();
    config.settings.memory_bytes = 512 << 20;
    let client = Client::new(config)?;
    let location = Location::parse(url)?;
    let stat = client.stat(&location)?;
    let size = stat.version.size.ok_or("of unknown size")?;
    let modified_s = stat.version.last_modified.as_deref().and_then(parse_http);
    let reader = client.reader(Object { location, size, etag: stat.version.etag, modified_s })?;
    let (begun, cpu) = (Instant::now(), cpu_s()?);
    let share = size / readers;
    std::thread::scope(|scope| {
        for number in 0..readers {
            let (reader, pattern) = (&reader, pattern.as_str());
            scope.spawn(move || match pattern {
                "random" => read_random(reader, size, bytes, number),
                _ => read_in_order(reader, number * share, (number + 1) * share, bytes),
            });
        }
    });
    let stats = client.reader_stats();
    let gib = stats.served_bytes as f64 / f64::from(1 << 30);
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_s()? - cpu);
    println!(
        "{:.2} GiB/s, {:.3} CPU s/GiB, {:.3} fetched, {} reads a second",
        gib / seconds,
        cpu / gib,
        stats.fetched_bytes as f64 / stats.served_bytes as f64,
        ((stats.hits + stats.waits) as f64 / seconds) as u64
    );
    println!("{stats:?}");
    Ok(())
}

fn read_in_order(reader: &Reader, from: u64, to: u64, bytes: u64) {
    for at in (from..to).step_by(bytes as usize) {
        read(reader, at, bytes);
    }
}

fn read_random(reader: &Reader, size: u64, bytes: u64, seed: u64) {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed + 1);
    for _ in 0..4000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        read(reader, state % (size / bytes) * bytes, bytes);
    }
}

fn read(reader: &Reader, at: u64, bytes: u64) {
    let (tell, told) = mpsc::sync_channel(1);
    let _ = reader.read(at, bytes as usize, move |result| drop(tell.send(result)));
    let pieces = told.recv().expect("an answer").expect("the bytes");
    assert_eq!(pieces.slices().map(<[u8]>::len).sum::<usize>(), pieces.len());
}

/// Seconds of CPU that this process has had.
fn cpu_s() -> Result<f64, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let ticks: f64 = fields.get(11).ok_or("no utime")?.parse::<f64>()?
        + fields.get(12).ok_or("no stime")?.parse::<f64>()?;
    Ok(ticks / 100.0)
}
