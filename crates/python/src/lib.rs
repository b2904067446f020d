//! The native half of the Python package: the engine's verbs for one thread of Python, which waits without the interpreter's lock.
//!
//! No thread of the engine ever takes that lock. Whoever waits looks for signals twenty times a second, and lets go of the
//! caller's buffer only when no thread writes to it any more.

mod ahead;
mod answer;
mod buffer;
mod client;
mod completions;
mod dlpack;
mod engine;
mod errors;
mod exit;
mod fetches;
mod file;
mod info;
mod lent;
mod many;
mod per_process;
mod progress;
mod range_reads;
mod ranges;
mod safetensors;
mod settings;
mod span;
mod waiting;
mod watching;

use pyo3::prelude::*;

/// What `flatout` is made from; not to be imported by itself.
#[pymodule]
mod _native {
    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::client::{Client, Pages};
    #[pymodule_export]
    use crate::completions::Completions;
    #[pymodule_export]
    use crate::exit::{_after_fork, _at_exit};
    #[pymodule_export]
    use crate::fetches::{Fetches, Version};
    #[pymodule_export]
    use crate::file::File;
    #[pymodule_export]
    use crate::info::Info;
    #[pymodule_export]
    use crate::many::ReadMany;
    #[pymodule_export]
    use crate::progress::Progress;
    #[pymodule_export]
    use crate::safetensors::{safetensors_header, safetensors_header_end};

    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
