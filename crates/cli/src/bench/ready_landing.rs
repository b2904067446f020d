//! Where a measured fetch lands, as it stands ready before the clock starts.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use crate::bench::drain::Drain;
use crate::bench::spec::{LandingKind, LocalEnd, Spec};
use crate::failure::Failure;

/// A landing that is ready. What is lent to a fetch is taken out, and nowhere stands in its place.
#[derive(Default)]
pub enum ReadyLanding {
    #[default]
    Nowhere,
    Memory(&'static mut [u8]),
    Stream(Drain, File),
    /// Made by the fetch, removed by whoever asked for it.
    File(PathBuf),
}

impl ReadyLanding {
    pub fn new(spec: &Spec) -> Result<ReadyLanding, Failure> {
        let LocalEnd::Landing(landing) = &spec.end else { return Ok(ReadyLanding::Nowhere) };
        Ok(match landing {
            LandingKind::Nowhere => ReadyLanding::Nowhere,
            LandingKind::Memory => ReadyLanding::Memory(touched(spec.bytes)?),
            LandingKind::Stream => {
                let (drain, pipe) = Drain::start()
                    .map_err(|error| Failure::local("bench", "the process that drains", &error))?;
                ReadyLanding::Stream(drain, pipe)
            }
            LandingKind::File(path) => ReadyLanding::File(path.clone()),
        })
    }

    /// The buffer, while it is not lent.
    pub fn memory(&self) -> Option<&[u8]> {
        match self {
            ReadyLanding::Memory(buffer) => Some(buffer),
            _ => None,
        }
    }
}

/// A buffer whose pages are all there. It is never given back: this process ends with the run.
fn touched(bytes: u64) -> Result<&'static mut [u8], Failure> {
    let refused = || Failure::local("bench", "memory", &io::Error::from_raw_os_error(libc::ENOMEM));
    let bytes = usize::try_from(bytes).map_err(|_| refused())?;
    let mut buffer: Vec<u8> = Vec::new();
    buffer.try_reserve_exact(bytes).map_err(|_| refused())?;
    // Ones, since zeros might come from the kernel's zero page without being touched.
    buffer.resize(bytes, 1);
    Ok(buffer.leak())
}
