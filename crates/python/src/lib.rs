//! The native half of the Python package: the engine's verbs for one thread of Python, which waits without the interpreter's lock.
//!
//! No thread of the engine ever takes that lock. Whoever waits looks for signals twenty times a second, and lets go of the
//! caller's buffer only when no thread writes to it any more.

mod ahead;
mod answer;
mod arguments;
mod awaited;
mod buffer;
mod calls;
mod client;
mod completions;
mod credentials;
mod dlpack;
mod engine;
mod errors;
mod exit;
mod fetches;
mod file;
mod info;
mod interpreters;
mod lent;
mod log;
mod many;
mod pages;
mod per_process;
mod progress;
mod range_reads;
mod ranges;
mod safetensors;
mod settings;
mod span;
mod waiting;
mod watching;
mod which;

use pyo3::prelude::*;
use pyo3::wrap_pyfunction;

/// What `flatout` is made from; not to be imported by itself.
#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // Before the first class: those of one interpreter are no use to another.
    interpreters::refuse_all_but_the_main_one(module.py())?;
    module.add_class::<buffer::Buffer>()?;
    module.add_class::<client::Client>()?;
    module.add_class::<pages::Pages>()?;
    module.add_class::<completions::Completions>()?;
    module.add_class::<credentials::Credentials>()?;
    module.add_class::<credentials::Question>()?;
    module.add_class::<credentials::Questions>()?;
    module.add_class::<fetches::Fetches>()?;
    module.add_class::<fetches::Version>()?;
    module.add_class::<file::File>()?;
    module.add_class::<info::Info>()?;
    module.add_class::<many::ReadMany>()?;
    module.add_class::<progress::Progress>()?;
    module.add_class::<watching::Watched>()?;
    module.add_function(wrap_pyfunction!(arguments::ends_of, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::one_range, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::pairs_of, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::urls_of, module)?)?;
    module.add_function(wrap_pyfunction!(range_reads::check_out, module)?)?;
    module.add_function(wrap_pyfunction!(ranges::runs_of, module)?)?;
    module.add_function(wrap_pyfunction!(exit::_after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(exit::_at_exit, module)?)?;
    module.add_function(wrap_pyfunction!(safetensors::safetensors_header, module)?)?;
    module.add_function(wrap_pyfunction!(safetensors::safetensors_header_end, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
