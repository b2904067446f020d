//! Prepares a run for its kind of work.

use crate::bench::prepared::Prepared;
use crate::bench::spec::{Spec, Work};
use crate::bench::{many, one};
use crate::console::Console;
use crate::failure::Failure;
use crate::knobs::Knobs;

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
