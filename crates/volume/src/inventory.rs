//! Bucket inventories in CSV, as S3 and OSS write them.
//!
//! Sources:
//! - S3: User Guide, "Amazon S3 Inventory" and "Locating your inventory list"
//!   (docs.aws.amazon.com/AmazonS3/latest/userguide/storage-inventory-location.html). "When you're using the
//!   CSV file format, the key name is URL-encoded and must be decoded before you can use it." A blank is
//!   `+`: cloud-custodian issue 1997. "Objects in Amazon S3 Inventory reports aren't guaranteed to be sorted
//!   in any order."
//! - OSS: User Guide, "Bucket inventory" (www.alibabacloud.com/help/en/oss/user-guide/bucket-inventory): the
//!   same manifest, with plain bucket names and a time in seconds; CSV and gzip only; keys are URL-encoded.
//!   "The order of optional fields is determined by how you configure them in the inventory rule."
//!
//! Both write CSV without a header line, compressed with gzip, and times as `2024-04-22T01:11:06.000Z`. S3
//! writes ETags without their quotes. The documentation of OSS shows neither an ETag nor a key with a blank:
//! ETags are read with and without quotes, blanks as `+` and as `%20`.

mod checked;
mod csv_line;
mod error;
mod manifest;
mod rows;
mod schema;
#[cfg(test)]
mod tests;

pub use checked::Checked;
pub use error::InventoryError;
pub use manifest::{DataFile, Manifest};
pub use rows::Rows;
pub use schema::{Field, Schema};
