//! A fetch with everything made that can be made before the clock starts: for a child and for a peer alike.

use crate::bench::clock::Clock;
use crate::bench::run::Run;
use crate::bench::spec::{Spec, Work};
use crate::bench::{many, one};
use crate::console::Console;
use crate::failure::Failure;
use crate::knobs::Knobs;

/// A fetch that waits for its start. What it is made of stays until it is dropped, so that no end of threads and
/// connections is counted.
pub trait Prepared {
    /// Fetches once, with the clock running.
    fn fetch(&mut self, clock: Clock) -> Result<Run, Failure>;

    /// What the landing holds after that, where it is memory.
    fn memory(&self) -> Option<&[u8]> {
        None
    }
}

/// Lists what is to be listed, asks for the keys, touches the memory.
pub fn prepare<'a>(spec: &'a Spec, console: &'a Console) -> Result<Box<dyn Prepared + 'a>, Failure> {
    let knobs = Knobs::from_pairs(&spec.knobs);
    Ok(match spec.work {
        Work::Get => Box::new(one::ByEngine::prepare(spec, &knobs, console)?),
        Work::Floor(shape) => Box::new(one::ByFloor::prepare(spec, &knobs, shape)?),
        Work::GetMany => Box::new(many::ByEngine::prepare(spec, &knobs, console)?),
        Work::FloorMany(shape) => Box::new(many::ByFloor::prepare(spec, &knobs, shape)?),
    })
}
