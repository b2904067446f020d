//! Lines of bounded length from a reader.

use std::io::{self, BufRead, Read};

/// What [`read_line`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The input has ended.
    End,
    /// A line, in the buffer, without its separator.
    Whole,
    /// A line longer than allowed. It was skipped; the buffer holds its beginning.
    TooLong,
}

/// Reads up to the next `separator` into `line`, at most `longest` bytes: a file that has no lines must not
/// fill the memory.
pub(crate) fn read_line(
    reader: &mut impl BufRead,
    separator: u8,
    longest: usize,
    line: &mut Vec<u8>,
) -> io::Result<Line> {
    line.clear();
    if reader.by_ref().take(longest as u64 + 1).read_until(separator, line)? == 0 {
        return Ok(Line::End);
    }
    if line.last() == Some(&separator) {
        line.pop();
        return Ok(Line::Whole);
    }
    if line.len() > longest {
        reader.skip_until(separator)?;
        return Ok(Line::TooLong);
    }
    Ok(Line::Whole)
}
