//! safetensors: eight bytes that say how long the header is, little-endian; the header, JSON that has
//! `"data_offsets":[FROM,TO]` for each tensor, counted from its end; the tensors
//! (<https://huggingface.co/docs/safetensors>, "Format").

use std::ops::Range;

use super::{Extents, Format, Hints, PARSED_MOST, Step, from, u64_at};

const WORD: &[u8] = b"\"data_offsets\"";

/// How long the header is, once that is known.
#[derive(Default)]
pub struct Safetensors(Option<u64>);

impl Format for Safetensors {
    fn begin(&self, _: u64) -> Range<u64> {
        from(0, 8)
    }

    fn parse(&mut self, bytes: &[u8], size: u64) -> Step {
        let Some(header_bytes) = self.0 else {
            return match u64_at(bytes, 0) {
                Some(header) if header <= PARSED_MOST && header < size.saturating_sub(8) => {
                    self.0 = Some(header);
                    Step::Needs(from(8, header))
                }
                _ => Step::nothing(),
            };
        };
        let Some(header) = bytes.get(..header_bytes as usize) else { return Step::nothing() };
        Step::Done(Hints { extents: Extents::new(tensors(header), size), table: None })
    }
}

/// Where tensors lie, by a header.
fn tensors(header: &[u8]) -> impl Iterator<Item = Range<u64>> {
    let data = 8 + header.len() as u64;
    let mut rest = header;
    std::iter::from_fn(move || {
        let at = rest.windows(WORD.len()).position(|word| word == WORD)?;
        rest = &rest[at + WORD.len()..];
        let end = rest.iter().position(|byte| *byte == b']').unwrap_or(rest.len());
        let mut numbers = rest[..end].split(|byte| !byte.is_ascii_digit()).filter_map(number);
        let tensor = match (numbers.next(), numbers.next()) {
            (Some(from), Some(to)) => data.saturating_add(from)..data.saturating_add(to),
            _ => 0..0,
        };
        rest = &rest[end..];
        Some(tensor)
    })
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}
