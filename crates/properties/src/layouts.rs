//! Layouts of file formats: whatever the bytes, the parser asks for ranges of the object alone, and ends.
//! Bytes beyond those that it needs make no difference.

use std::ops::Range;

use flatout_formats::{Hints, LayoutParser};

const NAMES: [&str; 4] = ["a.safetensors", "a.gguf", "a.parquet", "a.zip"];
/// A parser that is shown bytes this often and still wants more does not end.
const STEPS_MOST: usize = 1 << 20;

/// `bytes` are an object; the first of them says how much more of it a parser is shown than it needs.
pub fn layouts(bytes: &[u8]) {
    let more = u64::from(bytes.first().copied().unwrap_or_default());
    for name in NAMES {
        let (exact, generous) = (hints(name, bytes, 0), hints(name, bytes, more));
        assert_eq!(exact, generous, "{name}: {more} bytes more make a difference");
        let Some(table) = exact.and_then(|hints| hints.table) else { continue };
        assert!(table.start < table.end && table.end == bytes.len() as u64, "{name}: {table:?}");
    }
}

fn hints(name: &str, object: &[u8], more: u64) -> Option<Hints> {
    let size = object.len() as u64;
    let (mut parser, mut hints) = (LayoutParser::of(name, size)?, Hints::default());
    for _ in 0..STEPS_MOST {
        let needs = needs(&parser, size)?;
        let shown = needs.start as usize..(needs.end + more).min(size) as usize;
        if parser.parse(Some(&object[shown]), &mut hints) {
            return Some(hints);
        }
    }
    panic!("{name}: no end after {STEPS_MOST} steps");
}

fn needs(parser: &LayoutParser, size: u64) -> Option<Range<u64>> {
    let (needs, _) = parser.wants(&(0..size))?;
    assert!(needs.start < needs.end && needs.end <= size, "{needs:?} of {size}");
    Some(needs)
}
