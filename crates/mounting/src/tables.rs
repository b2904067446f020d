//! The options of all other mounts, by name. docs/from-ossfs.md and docs/from-libfuse.md are generated from
//! the tables.

use crate::foreign::ForeignOption;
use crate::{libfuse, ossfs, ossfs1};

/// The option of that name, with dashes or underscores. If several mounts have it, it means the same.
pub fn row_of(name: &str) -> Option<&'static ForeignOption> {
    let bare = |name: &str| name.replace('-', "_");
    rows().find(|row| bare(row.name) == bare(name))
}

/// The options of all tables.
pub fn rows() -> impl Iterator<Item = &'static ForeignOption> {
    of_ossfs().chain(libfuse::TABLES.iter().flat_map(|table| table.rows))
}

fn of_ossfs() -> impl Iterator<Item = &'static ForeignOption> {
    ossfs::ROWS.iter().chain(ossfs1::ROWS)
}

/// The page that has the option of that name.
pub fn page_of(name: &str) -> &'static str {
    match of_ossfs().any(|row| row.name == name) {
        true => "docs/from-ossfs.md",
        false => "docs/from-libfuse.md",
    }
}

#[cfg(test)]
#[path = "tables_tests.rs"]
pub mod tests;
