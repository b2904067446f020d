//! ETags in 17 bytes: most are MD5 digests in quotes, alone or followed by a number of parts.

use std::fmt::Write;

use crate::fields::{put, u32_at, u64_at};

const NONE: u8 = 0;
const MD5: u8 = 1;
const MD5_UPPER: u8 = 2;
const STRING: u8 = 3;
/// The kind of an ETag with `parts` parts is this and `parts`, as far as a byte goes.
const PARTS: u8 = 3;
const PARTS_MAX: u8 = u8::MAX - PARTS;

/// The longest ETag in an index, in bytes.
pub const ETAG_BYTES_MAX: usize = 1024;
/// Bytes on disk.
pub const PACKED_BYTES: usize = 17;

/// An ETag on disk: its kind, and 16 bytes that are a digest or the place of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedEtag(pub [u8; PACKED_BYTES]);

/// An ETag that was unpacked.
#[derive(Debug, PartialEq, Eq)]
pub enum Unpacked {
    None,
    Whole(String),
    /// It is among the strings, from here on, with this many bytes.
    String {
        at: u64,
        bytes: u32,
    },
}

impl PackedEtag {
    pub const NONE: PackedEtag = PackedEtag([NONE; PACKED_BYTES]);

    /// The packed form; `None` if the ETag must be kept as a string.
    pub fn of(sent: Option<&str>) -> Option<PackedEtag> {
        let Some(sent) = sent else { return Some(PackedEtag::NONE) };
        let (digest, parts) = split(sent)?;
        let is_upper = digest.iter().any(u8::is_ascii_uppercase);
        let kind = match parts {
            None if is_upper => MD5_UPPER,
            None => MD5,
            Some(_) if is_upper => return None,
            Some(parts) => PARTS + parts,
        };
        let mut packed = [kind; PACKED_BYTES];
        for (byte, pair) in packed[1..].iter_mut().zip(digest.chunks_exact(2)) {
            *byte = hex_value(pair[0], is_upper)? << 4 | hex_value(pair[1], is_upper)?;
        }
        Some(PackedEtag(packed))
    }

    /// One that is kept among the strings.
    pub fn string(at: u64, bytes: u32) -> PackedEtag {
        let mut packed = [0; PACKED_BYTES];
        packed[0] = STRING;
        put(&mut packed, 1, at.to_le_bytes());
        put(&mut packed, 9, bytes.to_le_bytes());
        PackedEtag(packed)
    }

    pub fn unpack(&self) -> Unpacked {
        let parts = match self.0[0] {
            NONE => return Unpacked::None,
            STRING => return Unpacked::String { at: u64_at(&self.0, 1), bytes: u32_at(&self.0, 9) },
            MD5 | MD5_UPPER => None,
            kind => Some(kind - PARTS),
        };
        let digits = if self.0[0] == MD5_UPPER { b"0123456789ABCDEF" } else { b"0123456789abcdef" };
        let digit = |value: u8| char::from(digits[usize::from(value)]);
        let mut sent = String::with_capacity(40);
        sent.push('"');
        for byte in &self.0[1..] {
            sent.extend([digit(byte >> 4), digit(byte & 0xf)]);
        }
        if let Some(parts) = parts {
            write!(sent, "-{parts}").expect("a string takes everything");
        }
        sent.push('"');
        Unpacked::Whole(sent)
    }
}

/// The 32 digits, and how many parts; `None` if it looks different, or would not come out as it went in.
fn split(sent: &str) -> Option<(&[u8; 32], Option<u8>)> {
    let bare = sent.strip_prefix('"')?.strip_suffix('"')?.as_bytes();
    let (digest, rest) = bare.split_first_chunk()?;
    let Some(parts) = rest.strip_prefix(b"-") else { return rest.is_empty().then_some((digest, None)) };
    let is_number = parts.iter().all(u8::is_ascii_digit) && parts.first().is_some_and(|&digit| digit != b'0');
    let parts: u8 = str::from_utf8(parts).ok().filter(|_| is_number)?.parse().ok()?;
    (parts <= PARTS_MAX).then_some((digest, Some(parts)))
}

fn hex_value(digit: u8, is_upper: bool) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' if !is_upper => Some(digit - b'a' + 10),
        b'A'..=b'F' if is_upper => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_out_as_it_went_in() {
        assert_eq!(PackedEtag::of(None).map(|etag| etag.unpack()), Some(Unpacked::None));
        let rows = [
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71\"", true),
            ("\"5B3C1A2E053D763E1B002CC607C5A0FE\"", true),
            ("\"00000000000000000000000000000000\"", true),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-1\"", true),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-252\"", true),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-253\"", false),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-0\"", false),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-038\"", false),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-+8\"", false),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee71-\"", false),
            ("\"70ee1738b6b21e2c8a43f3a5ab0eee711\"", false),
            ("\"70EE1738B6B21E2C8A43F3A5AB0EEE71-2\"", false),
            ("\"70EE1738b6b21e2c8a43f3a5ab0eee71\"", false),
            ("70ee1738b6b21e2c8a43f3a5ab0eee71", false),
            ("\"+0ee1738b6b21e2c8a43f3a5ab0eee71\"", false),
            ("\"äöü\"", false),
            ("W/\"x\"", false),
            ("\"\"", false),
            ("\"", false),
            ("", false),
        ];
        for (sent, small) in rows {
            let etag = PackedEtag::of(Some(sent));
            assert_eq!(etag.is_some(), small, "{sent}");
            if let Some(etag) = etag {
                assert_eq!(etag.unpack(), Unpacked::Whole(sent.to_owned()));
            }
        }
        let etag = PackedEtag::string(1 << 40, 77);
        assert_eq!(etag.unpack(), Unpacked::String { at: 1 << 40, bytes: 77 });
    }
}
