//! Why an inventory, or a row of it, cannot be read.

use std::io;

/// Why an inventory, or a row of it, cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// It is no manifest.
    #[error("the manifest cannot be read: {reason}; name the manifest.json of an inventory, complete")]
    Manifest {
        /// What the parser says.
        reason: String,
    },
    /// The data files are not CSV.
    #[error("the inventory is written as {format}, which cannot be read here; configure it to write CSV")]
    Format {
        /// As the manifest names it.
        format: String,
    },
    /// The manifest names no data files.
    #[error("the manifest names no data files; wait for an inventory that is complete, or list the bucket")]
    NoFiles,
    /// A column that every index needs is not there.
    #[error("the columns `{columns}` have no {missing}; configure the inventory to include it")]
    MissingColumn {
        /// The columns as given.
        columns: String,
        /// The name of the column.
        missing: &'static str,
    },
    /// A column is there twice.
    #[error("the columns `{columns}` name {column} twice; name each column once, in the order of the file")]
    DuplicateColumn {
        /// The columns as given.
        columns: String,
        /// The name of the column.
        column: &'static str,
    },
    /// The columns cannot be told from the first row.
    #[error(
        "the columns of the CSV file are not known: {reason}; name them in the order of the file, such as \
         `Bucket, Key, Size, LastModifiedDate, ETag`"
    )]
    UnknownColumns {
        /// What is not clear.
        reason: String,
    },
    /// A row cannot be read. The rows after it can.
    #[error(
        "line {line}, column {column}: {reason}; check that the columns are named in the order of the file"
    )]
    Row {
        /// Counted from 1.
        line: u64,
        /// The name of the column, or its number where there is no such column.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The file cannot be read any further: a failed read, damaged gzip, a wrong checksum.
    #[error("the data file cannot be read at line {line}: {source}; fetch the file again")]
    Read {
        /// Counted from 1.
        line: u64,
        /// The reason.
        source: io::Error,
    },
}

impl InventoryError {
    /// Whether only one row is lost, and the rows after it can be read.
    pub fn is_skippable(&self) -> bool {
        matches!(self, InventoryError::Row { .. })
    }
}
