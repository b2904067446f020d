//! Prepares a run for its kind of work.

use crate::bench::prepared::Prepared;
use crate::bench::spec::{ChildWork, Spec};
use crate::bench::{many, one, upload};
use crate::console::Console;
use crate::failure::Failure;
use crate::knobs::Knobs;

/// Lists what is to be listed, asks for the keys, touches the memory.
pub fn prepare<'a>(spec: &'a Spec, console: &'a Console) -> Result<Box<dyn Prepared + 'a>, Failure> {
    let knobs = Knobs::from_pairs(&spec.knobs);
    Ok(match spec.work {
        ChildWork::Get => Box::new(one::ByEngine::prepare(spec, &knobs, console)?),
        ChildWork::Floor(shape) => Box::new(one::ByFloor::prepare(spec, &knobs, shape)?),
        ChildWork::GetMany => Box::new(many::ManyByEngine::prepare(spec, &knobs, console)?),
        ChildWork::FloorMany(shape) => Box::new(many::ManyByFloor::prepare(spec, &knobs, shape)?),
        ChildWork::Put => Box::new(upload::PutByEngine::prepare(spec, &knobs, console)?),
        ChildWork::FloorPut(shape) => Box::new(upload::PutByFloor::prepare(spec, &knobs, shape, console)?),
    })
}
