//! Byte ranges: half-open `Range<u64>` everywhere, turned into HTTP's inclusive form and back here and
//! nowhere else.

use std::ops::Range;
use std::str::FromStr;

use crate::words::{bare, number};

/// What `Content-Range` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// The bytes that the answer carries; `None` for `bytes */N`, which comes with a 416, and of an empty
    /// object.
    pub range: Option<Range<u64>>,
    /// The size of the object; `None` where the origin wrote `*`.
    pub total: Option<u64>,
}

/// The part of an object that a user asked for, before its size is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Span {
    /// The whole object.
    #[default]
    All,
    /// From this byte to the end.
    From(u64),
    /// These bytes, or those of them that exist.
    Slice(Range<u64>),
    /// This many bytes at the end, or all if there are fewer.
    Last(u64),
}

/// Why a span means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    #[error("this is no range: write FIRST-LAST (both counted from 0, LAST included), FIRST- or -COUNT")]
    Syntax,
    #[error("range {first}-{last} ends before it starts: write {last}-{first}")]
    Backward { first: u64, last: u64 },
    #[error("a range of no bytes")]
    Empty,
    #[error("the range starts at byte {start}, but the object has {size} bytes")]
    Beyond { start: u64, size: u64 },
}

/// The value of a `Range` header: `0..8388608` is `bytes=0-8388607`.
///
/// # Panics
/// On an empty range, which HTTP cannot say.
pub fn http_range(range: &Range<u64>) -> String {
    assert!(range.start < range.end, "HTTP has no form for the empty range {range:?}");
    format!("bytes={}-{}", range.start, range.end - 1)
}

impl ContentRange {
    /// Parses `bytes 0-99/1000`, `bytes 0-99/*` and `bytes */1000` (RFC 9110 §14.4); `None` for anything
    /// else, also for a range that ends before it starts or behind the total. One exception is `bytes
    /// 0--1/0`, MinIO's way to say that the object is empty.
    pub fn parse(text: &str) -> Option<ContentRange> {
        let (unit, rest) = bare(text).split_once(' ')?;
        let (range, total) = bare(rest).split_once('/')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let total = if total == "*" { None } else { Some(number(total)?) };
        if range == "*" || (range, total) == ("0--1", Some(0)) {
            return total.map(|total| ContentRange { range: None, total: Some(total) });
        }
        let (first, last) = range.split_once('-')?;
        let range = number(first)?..number(last)?.checked_add(1)?;
        let possible = range.start < range.end && total.is_none_or(|total| range.end <= total);
        possible.then_some(ContentRange { range: Some(range), total })
    }
}

impl Span {
    /// The bytes of an object of `size` bytes that the span means. As in HTTP an end behind the object is
    /// cut.
    ///
    /// # Errors
    /// [`RangeError::Beyond`] where it starts behind the last byte; only `All`, `From(0)` and `Last` suit an
    /// empty object.
    pub fn resolve(&self, size: u64) -> Result<Range<u64>, RangeError> {
        let range = match self {
            Span::All | Span::From(0) => return Ok(0..size),
            Span::Last(count) => return Ok(size.saturating_sub(*count)..size),
            Span::From(start) => *start..size,
            Span::Slice(range) => range.start..range.end.min(size).max(range.start),
        };
        if range.start < size { Ok(range) } else { Err(RangeError::Beyond { start: range.start, size }) }
    }

    /// The value of the `Range` header that asks for the span; `None` for the whole object.
    ///
    /// No bytes at all are asked for as `bytes=-0`, which no object satisfies (RFC 9110 §14.1.2): the origin
    /// answers 416 with the size.
    pub fn http(&self) -> Option<String> {
        match self {
            Span::All => None,
            Span::From(start) => Some(format!("bytes={start}-")),
            Span::Slice(range) if range.is_empty() => Some("bytes=-0".into()),
            Span::Slice(range) => Some(http_range(range)),
            Span::Last(count) => Some(format!("bytes=-{count}")),
        }
    }
}

impl FromStr for Span {
    type Err = RangeError;

    /// `0-99` (the last byte included, as HTTP and `curl --range` mean it), `100-`, `-100`; `bytes=` before
    /// it is allowed.
    fn from_str(text: &str) -> Result<Span, RangeError> {
        let syntax = || RangeError::Syntax;
        let bare = text.trim();
        let bare = bare.strip_prefix("bytes=").unwrap_or(bare);
        let (first, last) = bare.split_once('-').ok_or_else(syntax)?;
        let parse = |digits| number(digits).ok_or_else(syntax);
        match (first, last) {
            ("", "") => Err(syntax()),
            ("", count) => match parse(count)? {
                0 => Err(RangeError::Empty),
                count => Ok(Span::Last(count)),
            },
            (first, "") => Ok(Span::From(parse(first)?)),
            (first, last) => {
                let (first, last) = (parse(first)?, parse(last)?);
                let end = last.checked_add(1).ok_or_else(syntax)?;
                if last < first {
                    Err(RangeError::Backward { first, last })
                } else {
                    Ok(Span::Slice(first..end))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check_content_range(text: &str, range: Option<Range<u64>>, total: Option<u64>) {
        assert_eq!(ContentRange::parse(text), Some(ContentRange { range, total }), "{text}");
    }

    #[test]
    fn content_ranges() {
        check_content_range("bytes 0-99/1000", Some(0..100), Some(1000));
        check_content_range("Bytes  0-0/1", Some(0..1), Some(1));
        check_content_range(" bytes 7-9/* ", Some(7..10), None);
        check_content_range("bytes */0", None, Some(0));
        check_content_range("bytes 0--1/0", None, Some(0));
        let bad = [
            "",
            "bytes",
            "bytes 0-99",
            "bytes=0-99/100",
            "items 0-1/2",
            "bytes 5-4/10",
            "bytes 0-10/10",
            "bytes */*",
            "bytes -5/10",
            "bytes 5-/10",
            "bytes +1-2/3",
            "bytes 0-18446744073709551615/*",
            "bytes 0-1/2/3",
            "bytes 0 - 1/2",
            "bytes 0-1/",
            "bytes /2",
            "bytes 0-1/2\u{a0}",
            "bytes \u{2003}0-1/2",
        ];
        for text in bad {
            assert_eq!(ContentRange::parse(text), None, "{text}");
        }
    }

    #[test]
    fn spans() {
        let rows: [(&str, Result<Span, RangeError>); 14] = [
            ("0-99", Ok(Span::Slice(0..100))),
            ("5-5", Ok(Span::Slice(5..6))),
            ("bytes=0-99", Ok(Span::Slice(0..100))),
            ("100-", Ok(Span::From(100))),
            ("-100", Ok(Span::Last(100))),
            (" 1-2 ", Ok(Span::Slice(1..3))),
            ("-0", Err(RangeError::Empty)),
            ("9-3", Err(RangeError::Backward { first: 9, last: 3 })),
            ("", Err(RangeError::Syntax)),
            ("-", Err(RangeError::Syntax)),
            ("7", Err(RangeError::Syntax)),
            ("a-b", Err(RangeError::Syntax)),
            ("1-2,4-5", Err(RangeError::Syntax)),
            ("0-18446744073709551615", Err(RangeError::Syntax)),
        ];
        for (text, expected) in rows {
            assert_eq!(text.parse::<Span>(), expected, "{text}");
        }
    }

    #[test]
    fn spans_meet_a_size() {
        let beyond = |start, size| Err(RangeError::Beyond { start, size });
        let rows = [
            (Span::All, 0, Ok(0..0)),
            (Span::All, 10, Ok(0..10)),
            (Span::From(0), 0, Ok(0..0)),
            (Span::From(9), 10, Ok(9..10)),
            (Span::From(10), 10, beyond(10, 10)),
            (Span::Slice(2..5), 10, Ok(2..5)),
            (Span::Slice(2..50), 10, Ok(2..10)),
            (Span::Slice(10..11), 10, beyond(10, 10)),
            (Span::Slice(0..1), 0, beyond(0, 0)),
            (Span::Slice(3..3), 10, Ok(3..3)),
            (Span::Last(4), 10, Ok(6..10)),
            (Span::Last(40), 10, Ok(0..10)),
            (Span::Last(4), 0, Ok(0..0)),
        ];
        for (span, size, expected) in rows {
            assert_eq!(span.resolve(size), expected, "{span:?} of {size}");
        }
    }

    #[test]
    fn spans_as_headers() {
        let rows = [
            (Span::All, None),
            (Span::From(5), Some("bytes=5-")),
            (Span::Slice(0..8_388_608), Some("bytes=0-8388607")),
            (Span::Slice(3..3), Some("bytes=-0")),
            (Span::Last(7), Some("bytes=-7")),
        ];
        for (span, header) in rows {
            assert_eq!(span.http().as_deref(), header);
        }
    }

    #[test]
    #[should_panic(expected = "empty range")]
    fn an_empty_range_has_no_http_form() {
        http_range(&(5..5));
    }

    proptest! {
        #[test]
        fn a_range_survives_http(start in 0..u64::MAX - 1, bytes in 1..u64::MAX, more in any::<u64>()) {
            let range = start..start.saturating_add(bytes);
            let header = http_range(&range);
            prop_assert_eq!(header.parse::<Span>(), Ok(Span::Slice(range.clone())));
            let total = range.end.saturating_add(more);
            let answer = format!("{}/{total}", header.replace('=', " "));
            prop_assert_eq!(
                ContentRange::parse(&answer),
                Some(ContentRange { range: Some(range), total: Some(total) })
            );
        }

        #[test]
        fn no_text_panics(text in "[ bytes=0-9*/,]{0,30}") {
            let _ = text.parse::<Span>();
            let _ = ContentRange::parse(&text);
        }
    }
}
