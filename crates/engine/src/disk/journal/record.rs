//! How a journal is written. Pure: bytes in, bytes out.
//!
//! ```text
//!   head     "flatoutJ", format, length of the body, body, CRC-32C of all before
//!   record   number of the block, its CRC, the CRC's algorithm, CRC-32C of the record: 24 bytes, appended
//! ```
//! Numbers are little-endian. A record that is torn or damaged counts for nothing, and those after it stay;
//! of two of one block the later counts.

use std::fmt;
use std::ops::Range;

use flatout_wire::checksum::Algorithm;

use super::block_range;
use crate::base::version::Version;

const MAGIC: [u8; 8] = *b"flatoutJ";
const FORMAT: u32 = 1;
/// Magic, format, length of the body.
const FRONT_BYTES: usize = 16;
pub(super) const RECORD_BYTES: usize = 24;
/// Names, tags and dates are shorter: a longer head is damaged.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Stands for a text that there is none of.
const NONE: u32 = u32::MAX;

/// What a file is a copy of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DownloadIdentity {
    /// As it is shown, without secrets.
    pub(crate) location: String,
    pub(crate) version: Version,
    /// Of the object; the first byte of the file is its first.
    pub(crate) range: Range<u64>,
}

impl DownloadIdentity {
    /// Bytes of the whole file.
    pub(crate) fn bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// In words, why what landed of this is of no use for `wanted`, of which ranges can be had or not.
    pub(crate) fn difference(&self, wanted: &DownloadIdentity, has_ranges: bool) -> String {
        let Version { etag, size, .. } = &self.version;
        if self.location != wanted.location {
            return format!("it was {}", self.location);
        }
        if let Some(difference) = self.version.difference(&wanted.version) {
            return difference;
        }
        let why = match self.range == wanted.range {
            _ if !has_ranges => "the origin sends no ranges of it",
            // One of the two says nothing where the other does.
            _ if *etag != wanted.version.etag || *size != wanted.version.size => {
                "the origin no longer tells its version"
            }
            false => "another range of it was read",
            true => "the origin no longer tells the same of it",
        };
        why.into()
    }
}

/// A block that has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LandedBlock {
    pub(crate) number: u64,
    pub(crate) algorithm: Algorithm,
    pub(crate) crc: u64,
}

/// A journal as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) identity: DownloadIdentity,
    /// In order, each once.
    pub(crate) blocks: Vec<LandedBlock>,
    /// Up to the end of the last whole record: what comes is appended there.
    pub(crate) whole_bytes: u64,
    /// Records that cannot be read.
    pub(crate) damaged: usize,
}

impl Journal {
    /// Bytes in its blocks.
    pub(crate) fn bytes(&self) -> u64 {
        let total_bytes = self.identity.bytes();
        let ranges = self.blocks.iter().filter_map(|block| block_range(block.number, total_bytes));
        ranges.map(|range| range.end - range.start).sum()
    }
}

/// Why a journal is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    NoJournal,
    OtherFormat,
    Damaged,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Unreadable::NoJournal => "it is no journal",
            Unreadable::OtherFormat => "another version of flatout wrote it",
            Unreadable::Damaged => "its beginning is damaged",
        })
    }
}

/// The beginning of a journal; `None` for an identity that none is kept of, its names being too long.
pub(crate) fn head(identity: &DownloadIdentity) -> Option<Vec<u8>> {
    let mut bytes = Vec::from(MAGIC);
    bytes.extend(FORMAT.to_le_bytes());
    bytes.extend([0; 4]);
    let DownloadIdentity { location, version, range } = identity;
    for number in [version.size.unwrap_or(u64::MAX), range.start, range.end] {
        bytes.extend(number.to_le_bytes());
    }
    for text in [Some(location), version.etag.as_ref(), version.last_modified.as_ref()] {
        let length = text.map_or(Some(NONE), |text| u32::try_from(text.len()).ok())?;
        bytes.extend(length.to_le_bytes());
        bytes.extend(text.map_or(&b""[..], |text| text.as_bytes()));
    }
    let body_bytes = bytes.len() - FRONT_BYTES;
    if body_bytes > BODY_BYTES_MAX {
        return None;
    }
    bytes[12..FRONT_BYTES].copy_from_slice(&u32::try_from(body_bytes).ok()?.to_le_bytes());
    let check = check_of(&bytes);
    bytes.extend(check);
    Some(bytes)
}

/// One block's record.
pub(crate) fn record(block: &LandedBlock) -> [u8; RECORD_BYTES] {
    let mut bytes = [0; RECORD_BYTES];
    bytes[..8].copy_from_slice(&block.number.to_le_bytes());
    bytes[8..16].copy_from_slice(&block.crc.to_le_bytes());
    bytes[16] = number_of(block.algorithm);
    let check = check_of(&bytes[..20]);
    bytes[20..].copy_from_slice(&check);
    bytes
}

/// Reads a journal.
///
/// # Errors
/// Where its head is not what one of ours begins with.
pub(crate) fn read(bytes: &[u8]) -> Result<Journal, Unreadable> {
    let (identity, head_bytes) = read_head(bytes)?;
    let records = &bytes[head_bytes..];
    let (mut blocks, mut damaged) = (Vec::with_capacity(records.len() / RECORD_BYTES), 0);
    let total_bytes = identity.bytes();
    for record in records.chunks_exact(RECORD_BYTES) {
        match read_record(record).filter(|block| block_range(block.number, total_bytes).is_some()) {
            Some(block) => blocks.push(block),
            None => damaged += 1,
        }
    }
    // The later of two of one block comes first, and stays.
    blocks.reverse();
    blocks.sort_by_key(|block| block.number);
    blocks.dedup_by_key(|block| block.number);
    let whole_bytes = (head_bytes + records.len() / RECORD_BYTES * RECORD_BYTES) as u64;
    Ok(Journal { identity, blocks, whole_bytes, damaged })
}

/// The identity, and how long the head is.
fn read_head(bytes: &[u8]) -> Result<(DownloadIdentity, usize), Unreadable> {
    let front = bytes.get(..FRONT_BYTES).filter(|front| front.starts_with(&MAGIC));
    let mut front = Reader(front.ok_or(Unreadable::NoJournal)?);
    front.0 = &front.0[MAGIC.len()..];
    if front.number32() != Some(FORMAT) {
        return Err(Unreadable::OtherFormat);
    }
    let body_bytes = front.number32().map_or(usize::MAX, |number| number as usize);
    let end = FRONT_BYTES + body_bytes.min(BODY_BYTES_MAX);
    let (framed, check) = (bytes.get(..end), bytes.get(end..end + 4));
    let framed = framed.filter(|framed| check == Some(&check_of(framed)[..])).ok_or(Unreadable::Damaged)?;
    let mut body = Reader(&framed[FRONT_BYTES..]);
    let identity = body.identity().filter(|_| body.0.is_empty()).ok_or(Unreadable::Damaged)?;
    Ok((identity, end + 4))
}

fn read_record(bytes: &[u8]) -> Option<LandedBlock> {
    let (fields, check) = bytes.split_at(20);
    if check != check_of(fields) {
        return None;
    }
    let mut fields = Reader(fields);
    let (number, crc) = (fields.number64()?, fields.number64()?);
    let algorithm = Algorithm::ALL.into_iter().find(|algorithm| number_of(*algorithm) == fields.0[0])?;
    Some(LandedBlock { number, algorithm, crc })
}

fn number_of(algorithm: Algorithm) -> u8 {
    match algorithm {
        Algorithm::Crc64Nvme => 1,
        Algorithm::Crc64Xz => 2,
        Algorithm::Crc32c => 3,
        Algorithm::Crc32 => 4,
    }
}

fn check_of(bytes: &[u8]) -> [u8; 4] {
    (Algorithm::Crc32c.of(bytes) as u32).to_le_bytes()
}

/// What is left to be read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn number32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn number64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A text, or that there is none.
    fn text(&mut self) -> Option<Option<String>> {
        let length = self.number32()?;
        if length == NONE {
            return Some(None);
        }
        let (text, rest) = self.0.split_at_checked(length as usize)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok().map(Some)
    }

    fn identity(&mut self) -> Option<DownloadIdentity> {
        let (size, start, end) = (self.number64()?, self.number64()?, self.number64()?);
        let (location, etag, last_modified) = (self.text()??, self.text()?, self.text()?);
        let version = Version { etag, last_modified, size: Some(size).filter(|size| *size != u64::MAX) };
        (start <= end).then_some(DownloadIdentity { location, version, range: start..end })
    }
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
