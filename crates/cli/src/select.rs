//! Which objects of a bucket are meant, and what their files are called.

mod filters;
mod names;
mod pattern;
mod source;

pub use filters::Filters;
pub use names::{FileName, FileNames};
pub use source::{FilePattern, Source};
