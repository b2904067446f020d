//! What every copy says of itself, and what may come after it.

use flatout_engine::{Client, Report};
use flatout_settings::format_size;

use crate::failure::Failure;

/// What is done once an object has been copied: `mv` confirms the copy, and deletes its source.
pub type AfterCopy<'a> = &'a dyn Fn(&Client, &Report) -> Result<(), Failure>;

/// What there is to say where the filters have left nothing of what is there.
pub fn all_left_out(what: &str) -> String {
    format!("0 objects, {what} left out by --include and --exclude")
}

/// How much there is, how much of it an earlier run had left, and how fast the rest came.
pub fn amount(bytes: u64, resumed_bytes: u64, seconds: f64) -> String {
    let rate = if seconds > 0.0 { (bytes - resumed_bytes) as f64 / seconds } else { 0.0 };
    let resumed = match resumed_bytes {
        0 => String::new(),
        _ => format!(", resumed: {} of it", format_size(resumed_bytes)),
    };
    format!("{}{resumed} in {seconds:.2} s, {}/s", format_size(bytes), format_size(rate as u64))
}
