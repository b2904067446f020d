//! The rows of a data file.

use std::fmt;
use std::io::{self, BufReader, Read};

use flate2::read::MultiGzDecoder;
use flatout_wire::time::parse_iso;
use percent_encoding::percent_decode;

use super::csv_line::Cells;
use super::schema::is_header;
use super::{Field, InventoryError, Schema};
use crate::lines::{Line, read_line};
use crate::record::Record;

/// The longest line that is read. A key has at most 3 KiB encoded; the longest column is S3's
/// `ObjectAccessControlList`, at most 100 grants in base64.
const LONGEST: usize = 1 << 20;
const BUFFER: usize = 128 << 10;

/// The rows of a data file: an object, or nothing for an old version, a delete marker or a header line.
///
/// An error for which [`InventoryError::is_skippable`] holds costs one row; the next call goes on behind it.
/// Any other ends the rows.
pub struct Rows<R> {
    input: BufReader<Input<R>>,
    columns: Columns,
    line: u64,
    buffer: Vec<u8>,
    cells: Cells,
    ended: bool,
}

impl<R> fmt::Debug for Rows<R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Rows").field("line", &self.line).finish_non_exhaustive()
    }
}

enum Input<R> {
    Plain(R),
    Gzip(Box<MultiGzDecoder<R>>),
}

impl<R: Read> Read for Input<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Plain(reader) => reader.read(buffer),
            Input::Gzip(decoder) => decoder.read(buffer),
        }
    }
}

/// Where the columns that are used stand in a row.
struct Columns {
    count: usize,
    key: usize,
    size: usize,
    modified: Option<usize>,
    etag: Option<usize>,
    latest: Option<usize>,
    delete_marker: Option<usize>,
}

impl<R: Read> Rows<R> {
    /// Reads rows of the columns of `schema`; `gzip` for a compressed file, of one or more members.
    pub fn new(reader: R, schema: &Schema, gzip: bool) -> Rows<R> {
        let input =
            if gzip { Input::Gzip(Box::new(MultiGzDecoder::new(reader))) } else { Input::Plain(reader) };
        let position = |field| schema.position(field);
        let columns = Columns {
            count: schema.fields().len(),
            key: position(Field::Key).expect("a schema has a key"),
            size: position(Field::Size).expect("a schema has a size"),
            modified: position(Field::LastModifiedDate),
            etag: position(Field::ETag),
            latest: position(Field::IsLatest),
            delete_marker: position(Field::IsDeleteMarker),
        };
        Rows {
            input: BufReader::with_capacity(BUFFER, input),
            columns,
            line: 0,
            buffer: Vec::new(),
            cells: Cells::default(),
            ended: false,
        }
    }

    /// The number of the line that was read last, counted from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    fn row(&mut self) -> Result<Option<Record>, InventoryError> {
        self.cells.split(self.buffer.strip_suffix(b"\r").unwrap_or(&self.buffer));
        if self.line == 1 && is_header(&self.cells) {
            return Ok(None);
        }
        let (found, expected) = (self.cells.len(), self.columns.count);
        if found != expected {
            let column = (found.min(expected) + 1).to_string();
            return Err(self.bad(column, format!("the row has {found} columns, the schema {expected}")));
        }
        if !self.flag(self.columns.latest, Field::IsLatest, true)?
            || self.flag(self.columns.delete_marker, Field::IsDeleteMarker, false)?
        {
            return Ok(None);
        }
        Ok(Some(Record {
            key: self.key()?,
            size: self.size()?,
            modified_s: self.modified_s()?,
            etag: self.etag()?,
        }))
    }

    /// The key, URL-decoded as forms are: `+` is a blank.
    fn key(&self) -> Result<String, InventoryError> {
        let refused = |reason: String| self.bad(Field::Key.name(), reason);
        let encoded = self.cell(self.columns.key);
        if encoded.is_empty() {
            return Err(refused("the key is empty".to_owned()));
        }
        if !is_url_encoded(encoded) {
            let key = String::from_utf8_lossy(encoded);
            return Err(refused(format!(
                "`{key}` has a `%` without two hexadecimal digits, so it is not URL-encoded"
            )));
        }
        let blanks: Vec<u8> = encoded.iter().map(|&byte| if byte == b'+' { b' ' } else { byte }).collect();
        let key: Vec<u8> = percent_decode(&blanks).collect();
        String::from_utf8(key)
            .map_err(|_| refused(format!("`{}` is not UTF-8 when decoded", String::from_utf8_lossy(encoded))))
    }

    fn size(&self) -> Result<u64, InventoryError> {
        let text = self.text(self.columns.size);
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let size = if digits { text.parse().ok() } else { None };
        size.ok_or_else(|| self.bad(Field::Size.name(), format!("`{text}` is not a number of bytes")))
    }

    fn modified_s(&self) -> Result<u64, InventoryError> {
        let text = self.columns.modified.map(|at| self.text(at)).unwrap_or_default();
        if text.is_empty() {
            return Ok(0);
        }
        parse_iso(&text).ok_or_else(|| {
            let reason = format!("`{text}` is not a time like 2024-04-22T01:11:06.000Z");
            self.bad(Field::LastModifiedDate.name(), reason)
        })
    }

    /// The ETag with the quotes that headers have and inventories cut.
    fn etag(&self) -> Result<Option<String>, InventoryError> {
        let cell = self.columns.etag.map(|at| self.cell(at)).unwrap_or_default();
        if cell.is_empty() {
            return Ok(None);
        }
        let printable = cell.iter().all(u8::is_ascii_graphic);
        let etag = std::str::from_utf8(cell).ok().filter(|_| printable);
        let etag = etag.ok_or_else(|| {
            let reason = format!("`{}` is not an ETag", String::from_utf8_lossy(cell));
            self.bad(Field::ETag.name(), reason)
        })?;
        let quoted =
            etag.len() >= 2 && etag.ends_with('"') && (etag.starts_with('"') || etag.starts_with("W/\""));
        Ok(Some(if quoted { etag.to_owned() } else { format!("\"{etag}\"") }))
    }

    /// `true` or `false`; `otherwise` for an empty cell and where there is no such column.
    fn flag(&self, at: Option<usize>, field: Field, otherwise: bool) -> Result<bool, InventoryError> {
        let text = at.map(|at| self.text(at)).unwrap_or_default();
        match text.to_ascii_lowercase().as_str() {
            "" => Ok(otherwise),
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.bad(field.name(), format!("`{text}` is neither true nor false"))),
        }
    }

    fn cell(&self, at: usize) -> &[u8] {
        self.cells.get(at).expect("the row has as many cells as the schema")
    }

    fn text(&self, at: usize) -> String {
        String::from_utf8_lossy(self.cell(at)).trim().to_owned()
    }

    fn bad(&self, column: impl Into<String>, reason: String) -> InventoryError {
        InventoryError::Row { line: self.line, column: column.into(), reason }
    }
}

impl<R: Read> Iterator for Rows<R> {
    type Item = Result<Option<Record>, InventoryError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.ended {
            self.line += 1;
            match read_line(&mut self.input, b'\n', LONGEST, &mut self.buffer) {
                Ok(Line::End) => self.ended = true,
                Ok(Line::TooLong) => {
                    return Some(Err(self.bad("1", format!("the row is longer than {LONGEST} bytes"))));
                }
                Ok(Line::Whole) if self.buffer.trim_ascii().is_empty() => {}
                Ok(Line::Whole) => return Some(self.row()),
                Err(source) => {
                    self.ended = true;
                    return Some(Err(InventoryError::Read { line: self.line, source }));
                }
            }
        }
        None
    }
}

/// Whether two hexadecimal digits follow each `%`.
fn is_url_encoded(text: &[u8]) -> bool {
    text.iter().enumerate().filter(|&(_, &byte)| byte == b'%').all(|(at, _)| {
        text.get(at + 1..at + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}
