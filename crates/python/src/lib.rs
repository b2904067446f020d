//! The native half of the Python package: the engine's verbs, which wait without the interpreter's lock.
//!
//! No thread of the engine ever takes that lock. A call that waits checks for signals twenty times a second,
//! and releases the caller's buffer only when no thread writes to it any more.

mod appending;
mod arguments;
mod awaited_calls;
mod awaited_writes;
mod borrowed_buffer;
mod buffer;
mod call_progress;
mod calls;
mod client;
mod completions;
mod credentials;
mod destination;
mod dlpack;
mod engine;
mod errors;
mod exit;
mod file;
mod index;
mod interpreters;
mod kind;
mod log;
mod many;
mod object_meta;
mod object_ref;
mod pages;
mod per_process;
mod prefetch;
mod progress;
mod put_options;
mod range_reads;
mod ranges;
mod read_queue;
mod read_result;
mod safetensors;
mod settings;
mod span;
mod transfer_set;
mod uninit_bytes;
mod waiting;
mod writer;
mod writes;

use pyo3::prelude::*;
use pyo3::wrap_pyfunction;

/// What the package `flatout` is made from; not to be imported on its own.
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
    module.add_class::<read_queue::ReadQueue>()?;
    module.add_class::<read_queue::ObjectVersion>()?;
    module.add_class::<file::File>()?;
    module.add_class::<index::Index>()?;
    module.add_class::<writer::Writer>()?;
    module.add_class::<object_meta::ObjectMeta>()?;
    module.add_class::<many::ReadMany>()?;
    module.add_class::<progress::Progress>()?;
    module.add_class::<call_progress::SharedProgress>()?;
    module.add_function(wrap_pyfunction!(arguments::ends_of, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::one_range, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::pairs_of, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::path_pairs_of, module)?)?;
    module.add_function(wrap_pyfunction!(arguments::urls_of, module)?)?;
    module.add_function(wrap_pyfunction!(range_reads::check_out, module)?)?;
    module.add_function(wrap_pyfunction!(ranges::runs_of, module)?)?;
    module.add_function(wrap_pyfunction!(writes::write, module)?)?;
    module.add_function(wrap_pyfunction!(writes::upload, module)?)?;
    module.add_function(wrap_pyfunction!(writes::upload_many, module)?)?;
    module.add_function(wrap_pyfunction!(writes::delete, module)?)?;
    module.add_function(wrap_pyfunction!(writes::delete_many, module)?)?;
    module.add_function(wrap_pyfunction!(writes::copy, module)?)?;
    module.add_function(wrap_pyfunction!(writes::described, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_write, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_upload, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_delete, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_delete_many, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_copy, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_described, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_room, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_commit, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_abort, module)?)?;
    module.add_function(wrap_pyfunction!(writes::create_bucket, module)?)?;
    module.add_function(wrap_pyfunction!(writes::delete_bucket, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_create_bucket, module)?)?;
    module.add_function(wrap_pyfunction!(awaited_writes::begin_delete_bucket, module)?)?;
    module.add_function(wrap_pyfunction!(exit::_after_fork, module)?)?;
    module.add_function(wrap_pyfunction!(exit::_at_exit, module)?)?;
    module.add_function(wrap_pyfunction!(safetensors::safetensors_head, module)?)?;
    module.add_function(wrap_pyfunction!(safetensors::safetensors_header, module)?)?;
    module.add_function(wrap_pyfunction!(safetensors::safetensors_header_end, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
