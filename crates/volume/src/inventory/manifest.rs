//! manifest.json: which data files make up an inventory, and their columns.

use serde::Deserialize;

use super::{Checked, InventoryError, Schema};

/// An inventory: what its manifest.json says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The bucket whose objects are listed.
    pub source_bucket: String,
    /// The bucket that holds the data files, by its name: S3 writes an ARN.
    pub destination_bucket: String,
    /// When the bucket's scan began, in Unix seconds; 0 where that is not known.
    pub created_s: u64,
    /// The columns of the data files.
    pub schema: Schema,
    /// The data files, gzip, at least one.
    pub files: Vec<DataFile>,
}

/// A data file of an inventory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataFile {
    /// Its key in the destination bucket, as it is.
    pub key: String,
    /// Its bytes, compressed; 0 where the manifest does not say.
    pub size: u64,
    /// The MD5 of its bytes, compressed; none where the manifest has no 32 hexadecimal digits there.
    pub md5: Option<[u8; 16]>,
}

impl DataFile {
    /// Whether it is compressed, by its name.
    pub fn is_gzip(&self) -> bool {
        self.key.ends_with(".gz")
    }

    /// Checks the file's length and MD5 as it is read: the read that finds the end fails if they differ.
    pub fn check<R>(&self, reader: R) -> Checked<R> {
        Checked::new(reader, self.size, self.md5)
    }
}

/// manifest.json as it is written, with the fields that are used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    source_bucket: String,
    destination_bucket: String,
    #[serde(default)]
    creation_timestamp: Option<serde_json::Value>,
    file_format: String,
    #[serde(default)]
    file_schema: Option<String>,
    files: Vec<DocumentFile>,
}

#[derive(Deserialize)]
struct DocumentFile {
    key: String,
    #[serde(default)]
    size: u64,
    #[serde(default, rename = "MD5checksum")]
    md5: Option<String>,
}

impl Manifest {
    /// Parses manifest.json.
    ///
    /// # Errors
    /// [`InventoryError::Manifest`] for what is no manifest, [`InventoryError::Format`] for ORC and Parquet,
    /// [`InventoryError::NoFiles`], and those of [`Schema::parse`].
    pub fn parse(json: &[u8]) -> Result<Manifest, InventoryError> {
        let document: Document = serde_json::from_slice(json)
            .map_err(|error| InventoryError::Manifest { reason: error.to_string() })?;
        if !document.file_format.eq_ignore_ascii_case("csv") {
            return Err(InventoryError::Format { format: document.file_format });
        }
        let schema = Schema::parse(document.file_schema.as_deref().unwrap_or_default())?;
        if document.files.is_empty() {
            return Err(InventoryError::NoFiles);
        }
        let files = document.files.into_iter().map(|file| DataFile {
            md5: file.md5.as_deref().and_then(parse_md5),
            key: file.key,
            size: file.size,
        });
        Ok(Manifest {
            source_bucket: bucket_name(&document.source_bucket),
            destination_bucket: bucket_name(&document.destination_bucket),
            created_s: document.creation_timestamp.as_ref().and_then(unix_seconds).unwrap_or(0),
            schema,
            files: files.collect(),
        })
    }
}

/// `example` of `example`, `arn:aws:s3:::example`, `arn:aws-cn:s3:::example` and `acs:oss:::example`.
fn bucket_name(name_or_arn: &str) -> String {
    let name = name_or_arn.rsplit_once(':').map_or(name_or_arn, |(_, name)| name);
    name.to_owned()
}

/// A time as text or number. S3 writes milliseconds, OSS seconds: 100 billion seconds are the year 5138.
fn unix_seconds(time: &serde_json::Value) -> Option<u64> {
    let number = time.as_u64().or_else(|| time.as_str()?.parse().ok())?;
    Some(if number < 100_000_000_000 { number } else { number / 1000 })
}

fn parse_md5(hex: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> =
        hex.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    if digits.len() == 32 { bytes.try_into().ok() } else { None }
}
