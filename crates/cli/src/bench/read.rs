//! The reader of many files that the lab sets on a mount: seed 001's program, which gives each of its threads
//! files to read as long as there are any.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

/// A reader like any other: a buffer that holds most of these files at once.
const BUFFER_BYTES: usize = 256 << 10;

/// Files below a folder, each read to its end by one of many threads.
#[derive(Debug, clap::Args)]
pub struct ReadFiles {
    folder: PathBuf,
    /// A file with their names, one a line.
    names: PathBuf,
    threads: usize,
}

/// Writes how many seconds it took, by a clock that starts when all threads are there.
///
/// # Errors
/// The first file that cannot be read.
pub fn read_files(args: &ReadFiles, console: &Console) -> Result<Exit, Failure> {
    let failed = |path: &Path, error: &io::Error| Failure::local("read", path.display(), error);
    let names = std::fs::read_to_string(&args.names).map_err(|error| failed(&args.names, &error))?;
    let paths: Vec<PathBuf> = names.lines().map(|name| args.folder.join(name)).collect();
    let (next, wrong) = (AtomicUsize::new(0), AtomicBool::new(false));
    let started = Instant::now();
    let read_some = || {
        let mut buffer = vec![0; BUFFER_BYTES];
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            if wrong.load(Ordering::Relaxed) {
                break;
            }
            if let Err(error) = read_file(path, &mut buffer) {
                wrong.store(true, Ordering::Relaxed);
                return Err(failed(path, &error));
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..args.threads).map(|_| scope.spawn(read_some)).collect();
        let ends = threads.into_iter().map(|thread| thread.join().expect("reading does not panic"));
        ends.collect::<Vec<_>>().into_iter().collect::<Result<(), Failure>>()
    })?;
    console.answer(&format!("{:.6}", started.elapsed().as_secs_f64()))?;
    Ok(Exit::Clean)
}

fn read_file(path: &Path, buffer: &mut [u8]) -> io::Result<()> {
    let mut file = File::open(path)?;
    while file.read(buffer)? > 0 {}
    Ok(())
}
