//! A transfer with everything made that can be made before the clock starts: for a child and for a peer
//! alike.

use crate::bench::clock::Stopwatch;
use crate::bench::run::Measurement;
use crate::failure::Failure;

/// A transfer that waits for its start. What it is made of stays until it is dropped, so that no end of
/// threads and connections is counted.
pub trait Prepared {
    /// Transfers once, with the clock running.
    fn transfer(&mut self, clock: Stopwatch) -> Result<Measurement, Failure>;

    /// What the landing holds after that, where it is memory.
    fn memory(&self) -> Option<&[u8]> {
        None
    }
}
