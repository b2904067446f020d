//! GGUF, versions 2 and 3, little-endian: `GGUF`, the version, how many tensors and how many pairs of
//! metadata there are; the pairs, a key and a value each, that may be an array, of arrays too; of each tensor
//! its name, shape, type and where it begins, counted from where the header ends, filled up to
//! `general.alignment` (<https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>).
//!
//! The header of a model with a large vocabulary has 8 MB, more than a lane keeps of what it has left behind:
//! it is walked as it is read, a few bytes at a time, and only where tensors begin is kept.

use std::ops::Range;

use super::{Extents, Format, Hints, Step, from, u32_at, u64_at};

/// A longer header is not walked.
const HEADER_MOST: u64 = 16 << 20;
/// No more tensors are counted,
const TENSORS_MOST: usize = 1 << 16;
/// more arrays in one another,
const NESTED_MOST: usize = 4;
/// or more dimensions.
const DIMENSIONS_MOST: u32 = 8;
const ALIGNMENT_KEY: &[u8] = b"general.alignment";
const ALIGNMENT: u64 = 32;
/// A larger alignment is not believed.
const ALIGNMENT_MOST: u32 = 1 << 20;

const U32: u32 = 4;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// How far the header has been walked.
pub struct Gguf {
    at: u64,
    next: Item,
    /// Pairs and tensors that are still to come.
    pairs: u64,
    tensors: u64,
    /// The value is that of `general.alignment`.
    is_alignment: bool,
    /// Of each array that is walked the type of its elements, and how many are still to come.
    arrays: Vec<(u32, u64)>,
    alignment: u64,
    /// Where tensors begin.
    begins: Vec<u64>,
}

/// What stands where the walk has come to.
#[derive(Clone, Copy)]
enum Item {
    /// Magic, version and counts.
    First,
    /// The length of a key.
    KeyLength,
    /// A key as long as `general.alignment`.
    Key,
    /// The type of a value.
    Type,
    Alignment,
    /// The length of a string.
    StringLength,
    /// The type of an array's elements, and how many there are.
    Array,
    /// The length of a tensor's name.
    NameLength,
    /// How many dimensions a tensor has.
    Dimensions,
    /// This many dimensions, the tensor's type, and where it begins.
    Tensor(u32),
    /// The header is over.
    End,
}

impl Item {
    /// How many bytes it is.
    fn bytes(self) -> u64 {
        match self {
            Item::First => 24,
            Item::KeyLength | Item::StringLength | Item::NameLength => 8,
            Item::Key => ALIGNMENT_KEY.len() as u64,
            Item::Type | Item::Alignment | Item::Dimensions => 4,
            Item::Array => 12,
            Item::Tensor(dimensions) => 8 * u64::from(dimensions) + 12,
            Item::End => 0,
        }
    }
}

impl Default for Gguf {
    fn default() -> Gguf {
        Gguf {
            at: 0,
            next: Item::First,
            pairs: 0,
            tensors: 0,
            is_alignment: false,
            arrays: Vec::new(),
            alignment: ALIGNMENT,
            begins: Vec::new(),
        }
    }
}

impl Format for Gguf {
    fn begin(&self, _: u64) -> Range<u64> {
        from(0, Item::First.bytes())
    }

    fn parse(&mut self, bytes: &[u8], size: u64) -> Step {
        let seen = self.at;
        loop {
            let needs = from(self.at, self.next.bytes());
            if needs.end > HEADER_MOST.min(size) {
                return Step::nothing();
            }
            if matches!(self.next, Item::End) {
                return Step::Done(self.found(size));
            }
            let within = (needs.start - seen) as usize..(needs.end - seen) as usize;
            let Some(item) = bytes.get(within) else { return Step::Needs(needs) };
            self.at = needs.end;
            if self.step(item).is_none() {
                return Step::nothing();
            }
        }
    }
}

impl Gguf {
    /// Walks over one item; `None` where that makes no sense.
    fn step(&mut self, item: &[u8]) -> Option<()> {
        match self.next {
            Item::First => {
                let is_known = item.starts_with(b"GGUF") && matches!(u32_at(item, 4)?, 2 | 3);
                (self.tensors, self.pairs) = (u64_at(item, 8)?, u64_at(item, 16)?);
                self.next_pair();
                is_known.then_some(())
            }
            Item::KeyLength => {
                let bytes = u64_at(item, 0)?;
                self.is_alignment = false;
                self.next = Item::Key;
                if bytes != Item::Key.bytes() {
                    self.next = Item::Type;
                    self.skip(bytes, 1)?;
                }
                Some(())
            }
            Item::Key => {
                self.is_alignment = item == ALIGNMENT_KEY;
                self.next = Item::Type;
                Some(())
            }
            Item::Type => match u32_at(item, 0)? {
                U32 if self.is_alignment => {
                    self.next = Item::Alignment;
                    Some(())
                }
                kind => self.value(kind),
            },
            Item::Alignment => {
                let alignment = u32_at(item, 0)?;
                self.alignment = u64::from(alignment);
                self.next_value()?;
                (alignment.is_power_of_two() && alignment <= ALIGNMENT_MOST).then_some(())
            }
            Item::StringLength => {
                self.skip(u64_at(item, 0)?, 1)?;
                self.next_value()
            }
            Item::Array => {
                let (kind, count) = (u32_at(item, 0)?, u64_at(item, 4)?);
                match scalar_bytes(kind) {
                    Some(bytes) => self.skip(count, bytes)?,
                    None if self.arrays.len() < NESTED_MOST => self.arrays.push((kind, count)),
                    None => return None,
                }
                self.next_value()
            }
            Item::NameLength => {
                self.next = Item::Dimensions;
                self.skip(u64_at(item, 0)?, 1)
            }
            Item::Dimensions => {
                let dimensions = u32_at(item, 0)?;
                self.next = Item::Tensor(dimensions);
                (dimensions <= DIMENSIONS_MOST).then_some(())
            }
            Item::Tensor(dimensions) => {
                self.begins.push(u64_at(item, 8 * dimensions as usize + 4)?);
                self.next_tensor();
                (self.begins.len() <= TENSORS_MOST).then_some(())
            }
            Item::End => None,
        }
    }

    /// Walks over what is not looked at.
    fn skip(&mut self, count: u64, bytes: u64) -> Option<()> {
        self.at = self.at.checked_add(count.checked_mul(bytes)?)?;
        Some(())
    }

    /// A value of that type comes next.
    fn value(&mut self, kind: u32) -> Option<()> {
        match kind {
            STRING => self.next = Item::StringLength,
            ARRAY => self.next = Item::Array,
            _ => {
                self.skip(1, scalar_bytes(kind)?)?;
                return self.next_value();
            }
        }
        Some(())
    }

    /// A value is over: the next element of its array, or the next pair. Arrays that are walked are of
    /// strings or arrays.
    fn next_value(&mut self) -> Option<()> {
        while let Some((kind, left)) = self.arrays.last_mut() {
            if *left > 0 {
                *left -= 1;
                self.next = match *kind {
                    STRING => Item::StringLength,
                    ARRAY => Item::Array,
                    _ => return None,
                };
                return Some(());
            }
            self.arrays.pop();
        }
        self.next_pair();
        Some(())
    }

    fn next_pair(&mut self) {
        match self.pairs.checked_sub(1) {
            Some(left) => (self.pairs, self.next) = (left, Item::KeyLength),
            None => self.next_tensor(),
        }
    }

    fn next_tensor(&mut self) {
        match self.tensors.checked_sub(1) {
            Some(left) => (self.tensors, self.next) = (left, Item::NameLength),
            None => self.next = Item::End,
        }
    }

    /// Each tensor goes as far as the next one begins, the last to the end.
    fn found(&mut self, size: u64) -> Hints {
        let data = self.at.next_multiple_of(self.alignment);
        let mut begins = std::mem::take(&mut self.begins);
        begins.sort_unstable();
        let begin = |at: usize| begins.get(at).map_or(size, |begin| data.saturating_add(*begin));
        let extents = (0..begins.len()).map(|at| begin(at)..begin(at + 1));
        Hints { extents: Extents::new(extents, size), table: None }
    }
}

/// How long a value of that type is, where all of them are as long.
fn scalar_bytes(kind: u32) -> Option<u64> {
    match kind {
        // Of one byte, and truth values.
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}
