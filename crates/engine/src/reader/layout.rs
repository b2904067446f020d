//! What a format says of an object: ranges that are read as a whole once they are begun. Hints and no more: whatever they say,
//! a lane that follows one goes no further ahead than others do, and not beyond the range. Pure.
//!
//! Of safetensors: eight bytes that say how long the header is, little-endian; the header, JSON that has
//! `"data_offsets":[FROM,TO]` for each tensor, counted from its end; the tensors
//! (<https://huggingface.co/docs/safetensors>, "Format").

use std::ops::Range;

/// A longer header is not looked at: it takes a while, and nothing is lost.
const HEADER_MOST: u64 = 4 << 20;
/// A shorter range is one read or two.
const EXTENT_LEAST: u64 = 256 << 10;
const WORD: &[u8] = b"\"data_offsets\"";

/// Ranges that are read as a whole, in order of their starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extents(Vec<Range<u64>>);

impl Extents {
    /// Those of a safetensors file of `size` bytes, from its header without the eight bytes before it.
    pub(super) fn of_safetensors(header: &[u8], size: u64) -> Extents {
        let data = 8 + header.len() as u64;
        let mut extents = Vec::new();
        let mut rest = header;
        while let Some(at) = rest.windows(WORD.len()).position(|word| word == WORD) {
            rest = &rest[at + WORD.len()..];
            let end = rest.iter().position(|byte| *byte == b']').unwrap_or(rest.len());
            let mut numbers = rest[..end].split(|byte| !byte.is_ascii_digit()).filter_map(number);
            if let (Some(from), Some(to)) = (numbers.next(), numbers.next()) {
                let (from, to) = (data.saturating_add(from), data.saturating_add(to).min(size));
                if to.saturating_sub(from) >= EXTENT_LEAST {
                    extents.push(from..to);
                }
            }
            rest = &rest[end..];
        }
        extents.sort_unstable_by_key(|extent| extent.start);
        Extents(extents)
    }

    /// The range that a read begins, and does not end.
    pub(super) fn begun_by(&self, read: &Range<u64>) -> Option<Range<u64>> {
        let next = self.0.partition_point(|extent| extent.start < read.end);
        let extent = self.0.get(next.checked_sub(1)?)?;
        (extent.start >= read.start && extent.end > read.end).then(|| extent.clone())
    }
}

/// Where the header of a safetensors file ends, by its first eight bytes; `None` where that makes no sense.
pub(super) fn safetensors_header(first: &[u8], size: u64) -> Option<Range<u64>> {
    let bytes = u64::from_le_bytes(first.get(..8)?.try_into().ok()?);
    (bytes <= HEADER_MOST && bytes < size.checked_sub(8)?).then(|| 8..8 + bytes)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn tensors_are_where_the_header_says() {
        let header = format!(
            r#"{{"__metadata__":{{"format":"pt"}},"b":{{"dtype":"F32","shape":[1],"data_offsets":[{}, {}]}},"a":{{"data_offsets" : [0,{}]}},"c":{{"data_offsets":[{},{}]}}}}"#,
            2 * MIB,
            5 * MIB,
            2 * MIB,
            5 * MIB,
            5 * MIB + 100
        );
        let data = 8 + header.len() as u64;
        let extents = Extents::of_safetensors(header.as_bytes(), data + 5 * MIB);
        assert_eq!(extents.0, [data..data + 2 * MIB, data + 2 * MIB..data + 5 * MIB]);
        let read = |from: u64, bytes| extents.begun_by(&(data + from..data + from + bytes));
        assert_eq!(read(0, 4096), Some(data..data + 2 * MIB));
        assert_eq!(read(2 * MIB - 65_536, 131_072), Some(data + 2 * MIB..data + 5 * MIB), "around its start");
        assert_eq!([read(4096, 4096), read(2 * MIB + 1, 1), read(2 * MIB, 3 * MIB)], [None, None, None]);
        assert_eq!(safetensors_header(&300_u64.to_le_bytes(), 9 * MIB), Some(8..308));
        assert_eq!(safetensors_header(&u64::MAX.to_le_bytes(), 9 * MIB), None);
        assert_eq!(safetensors_header(&300_u64.to_le_bytes(), 300), None);
    }

    proptest! {
        #[test]
        fn nonsense_is_no_range_outside_the_object(header in "(\"data_offsets\":\\[|[0-9]{1,25}|,|\\]|x){0,40}") {
            let extents = Extents::of_safetensors(header.as_bytes(), 9 * MIB);
            prop_assert!(extents.0.iter().all(|extent| extent.start < extent.end && extent.end <= 9 * MIB));
        }
    }
}
