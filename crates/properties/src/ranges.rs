//! `Content-Range` and the spans that users type: accepted ranges are possible, and survive writing and
//! reading.

use flatout_wire::range::{ContentRange, Span, http_range};

/// `bytes` are the value of a header, a user's input, and three numbers.
pub fn ranges(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    content_range(&text);
    span(&text);
    let mut numbers = bytes.chunks(8).map(|eight| {
        let mut number = [0; 8];
        number[..eight.len()].copy_from_slice(eight);
        u64::from_le_bytes(number)
    });
    let mut next = || numbers.next().unwrap_or(0);
    any_range(next(), next(), next());
}

fn content_range(text: &str) {
    let parsed = ContentRange::parse(text);
    assert_eq!(parsed, reference(text), "{text:?}");
    let Some(found) = parsed else { return };
    let total = found.total.map_or("*".into(), |total| total.to_string());
    let written = match &found.range {
        Some(range) => {
            assert!(
                range.start < range.end && found.total.is_none_or(|total| range.end <= total),
                "{found:?}"
            );
            format!("bytes {}-{}/{total}", range.start, range.end - 1)
        }
        None => format!("bytes */{total}"),
    };
    assert_eq!(ContentRange::parse(&written), Some(found), "{text:?}");
}

/// RFC 9110 §14.4, character by character: unit, blanks, two numbers or a star, a slash, a number or a star.
fn reference(text: &str) -> Option<ContentRange> {
    let text = text.trim_matches([' ', '\t']);
    let blank = text.find(' ')?;
    let rest = text[blank..].trim_start_matches([' ', '\t']);
    let digits = |text: &str| {
        let all = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        all.then(|| text.parse::<u128>().ok()).flatten().filter(|number| *number < 1 << 64)
    };
    let (range, total) = rest.split_once('/')?;
    let total = if total == "*" { None } else { Some(digits(total)?) };
    let range = match range.split_once('-') {
        None if range == "*" && total.is_some() => None,
        None => return None,
        Some((first, last)) => {
            let (first, end) = (digits(first)?, digits(last)? + 1);
            let possible = first < end && end < 1 << 64 && total.is_none_or(|total| end <= total);
            Some(possible.then_some(first as u64..end as u64)?)
        }
    };
    text[..blank]
        .eq_ignore_ascii_case("bytes")
        .then_some(ContentRange { range, total: total.map(|total| total as u64) })
}

fn span(text: &str) {
    let Ok(span) = text.parse::<Span>() else { return };
    let header = span.http().expect("no text means all of an object");
    assert_eq!(header.parse::<Span>().as_ref(), Ok(&span), "{text:?}");
    for size in [0, 1, 7, u64::MAX - 1, u64::MAX] {
        if let Ok(range) = span.resolve(size) {
            assert!(range.start <= range.end && range.end <= size, "{span:?} of {size}: {range:?}");
        }
    }
}

/// Writes and reads any valid range.
fn any_range(start: u64, bytes: u64, more: u64) {
    let range = start..start.saturating_add(bytes);
    for size in [more, range.end] {
        if let Ok(found) = Span::Slice(range.clone()).resolve(size) {
            assert!(found.start <= found.end && found.end <= size.max(found.start), "{range:?} of {size}");
        }
    }
    if range.is_empty() {
        return;
    }
    let header = http_range(&range);
    assert_eq!(header.parse::<Span>(), Ok(Span::Slice(range.clone())));
    let total = range.end.saturating_add(more);
    let answer = format!("{}/{total}", header.replace('=', " "));
    assert_eq!(ContentRange::parse(&answer), Some(ContentRange { range: Some(range), total: Some(total) }));
}
