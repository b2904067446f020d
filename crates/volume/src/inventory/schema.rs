//! The columns of a data file.

use std::fmt;

use flatout_wire::time::parse_iso;

use super::InventoryError;
use super::csv_line::Cells;

/// A column of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The bucket's name.
    Bucket,
    /// The key, URL-encoded.
    Key,
    /// The version's identity.
    VersionId,
    /// Whether this is the current version.
    IsLatest,
    /// Whether this version says that the object is deleted.
    IsDeleteMarker,
    /// Bytes of the object.
    Size,
    /// When it was last changed.
    LastModifiedDate,
    /// The ETag without quotes.
    ETag,
    /// A column that no index needs.
    Other,
}

impl Field {
    /// By its name in a manifest. Upper and lower case and `_` do not count: tables
    /// made of inventories have `last_modified_date` and `e_tag`, as S3's Parquet has.
    fn of(name: &str) -> Field {
        let plain: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        match plain.to_ascii_lowercase().as_str() {
            "bucket" => Field::Bucket,
            "key" => Field::Key,
            "versionid" => Field::VersionId,
            "islatest" => Field::IsLatest,
            "isdeletemarker" => Field::IsDeleteMarker,
            "size" => Field::Size,
            "lastmodifieddate" | "lastmodified" => Field::LastModifiedDate,
            "etag" => Field::ETag,
            _ => Field::Other,
        }
    }

    /// The name as manifests write it.
    pub fn name(self) -> &'static str {
        match self {
            Field::Bucket => "Bucket",
            Field::Key => "Key",
            Field::VersionId => "VersionId",
            Field::IsLatest => "IsLatest",
            Field::IsDeleteMarker => "IsDeleteMarker",
            Field::Size => "Size",
            Field::LastModifiedDate => "LastModifiedDate",
            Field::ETag => "ETag",
            Field::Other => "another",
        }
    }

    /// Whether a cell of the first row can be of this column, for [`Schema::guess`].
    fn fits(self, cell: &[u8]) -> bool {
        let number = !cell.is_empty() && cell.iter().all(u8::is_ascii_digit);
        match self {
            Field::Bucket => {
                let is_name = |&byte: &u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
                !cell.is_empty() && cell.iter().all(is_name)
            }
            Field::Key => !cell.is_empty(),
            Field::VersionId => true,
            Field::IsLatest | Field::IsDeleteMarker => {
                cell.eq_ignore_ascii_case(b"true") || cell.eq_ignore_ascii_case(b"false")
            }
            Field::Size => number,
            Field::LastModifiedDate => std::str::from_utf8(cell).ok().and_then(parse_iso).is_some(),
            Field::ETag => cell.len() >= 32 && cell[..32].iter().all(u8::is_ascii_hexdigit),
            // A second number could be the size as well.
            Field::Other => !number,
        }
    }
}

/// The orders in which the documentation of S3 and of OSS shows the columns; others may follow.
const DOCUMENTED: [&[Field]; 4] = [
    // S3, current versions, and all.
    &[Field::Bucket, Field::Key, Field::Size, Field::LastModifiedDate, Field::ETag],
    &[
        Field::Bucket,
        Field::Key,
        Field::VersionId,
        Field::IsLatest,
        Field::IsDeleteMarker,
        Field::Size,
        Field::LastModifiedDate,
        Field::ETag,
    ],
    // OSS, current versions, and all: the storage class comes before the time.
    &[Field::Bucket, Field::Key, Field::Size, Field::Other, Field::LastModifiedDate, Field::ETag],
    &[
        Field::Bucket,
        Field::Key,
        Field::VersionId,
        Field::IsLatest,
        Field::IsDeleteMarker,
        Field::Size,
        Field::Other,
        Field::LastModifiedDate,
        Field::ETag,
    ],
];

/// The columns of a data file, in their order: `Key` and `Size` are among them, and none is there twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    fields: Vec<Field>,
}

impl Schema {
    /// Parses `Bucket, Key, Size, LastModifiedDate, ETag`: the manifest's `fileSchema`, or what a user says
    /// of a CSV file that has no manifest. Columns of other names are skipped.
    ///
    /// # Errors
    /// [`InventoryError::MissingColumn`] without `Key` or `Size`, [`InventoryError::DuplicateColumn`].
    pub fn parse(columns: &str) -> Result<Schema, InventoryError> {
        let fields: Vec<Field> = columns.split(',').map(|name| Field::of(name.trim())).collect();
        for needed in [Field::Key, Field::Size] {
            if !fields.contains(&needed) {
                let missing = needed.name();
                return Err(InventoryError::MissingColumn { columns: columns.to_owned(), missing });
            }
        }
        for (at, field) in fields.iter().enumerate() {
            if *field != Field::Other && fields[..at].contains(field) {
                let column = field.name();
                return Err(InventoryError::DuplicateColumn { columns: columns.to_owned(), column });
            }
        }
        Ok(Schema { fields })
    }

    /// The columns of a CSV file without a manifest, from its first line: its names where it is a header,
    /// else the order that the documentation of S3 or OSS shows if every cell fits it.
    ///
    /// The number of columns alone would not do: both services let their users choose columns, OSS their
    /// order too. A second number in the row is refused, as it could be the size.
    ///
    /// # Errors
    /// [`InventoryError::UnknownColumns`] where no order fits; those of [`Schema::parse`] for a header.
    pub fn guess(first_line: &[u8]) -> Result<Schema, InventoryError> {
        let mut cells = Cells::default();
        cells.split(first_line.trim_ascii_end());
        if is_header(&cells) {
            let names: Vec<_> = cells.iter().map(String::from_utf8_lossy).collect();
            return Schema::parse(&names.join(", "));
        }
        let fields = |order: &[Field]| -> Vec<Field> {
            let others = cells.len().saturating_sub(order.len());
            order.iter().copied().chain(std::iter::repeat_n(Field::Other, others)).collect()
        };
        let fits = |fields: &Vec<Field>| {
            fields.len() == cells.len()
                && fields.iter().zip(cells.iter()).all(|(field, cell)| field.fits(cell))
        };
        let mut fitting = DOCUMENTED.iter().map(|order| fields(order)).filter(fits);
        match (fitting.next(), fitting.next()) {
            (Some(fields), None) => Ok(Schema { fields }),
            _ => {
                let reason = format!("its first row of {} columns could mean several things", cells.len());
                Err(InventoryError::UnknownColumns { reason })
            }
        }
    }

    /// The columns in their order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Where `field` stands in a row.
    pub(super) fn position(&self, field: Field) -> Option<usize> {
        self.fields.iter().position(|&other| other == field)
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.fields.iter().map(|field| field.name()).collect();
        formatter.write_str(&names.join(", "))
    }
}

/// Whether the cells are the names of columns: S3 and OSS write none, tools that export tables do.
pub(super) fn is_header(cells: &Cells) -> bool {
    let has = |field: Field| {
        cells.iter().any(|cell| std::str::from_utf8(cell).is_ok_and(|name| Field::of(name) == field))
    };
    has(Field::Key) && has(Field::Size)
}
