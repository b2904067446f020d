//! Characters of keys that XML 1.0 cannot hold, or that its readers change.

use std::borrow::Cow;

/// Whether an XML 1.0 document can hold the text: all its characters are `Char` of
/// <https://www.w3.org/TR/xml/#charsets>.
pub(crate) fn fit_xml(text: &str) -> bool {
    text.chars().all(fits)
}

pub(crate) fn fits(one: char) -> bool {
    matches!(one, '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'..)
}

/// A document with references for CR (`&#13;`), which a reader would take for LF, and for the characters that
/// XML 1.0 cannot hold (`&#x1;`). It cannot hold references to those either; S3 writes them, and lenient
/// readers understand them.
pub(crate) fn with_references(document: &str) -> Cow<'_, str> {
    let needs = |one: char| one == '\r' || !fits(one);
    if !document.contains(needs) {
        return document.into();
    }
    let mut text = String::with_capacity(document.len() + 16);
    for one in document.chars() {
        match one {
            '\r' => text.push_str("&#13;"),
            one if needs(one) => text.push_str(&format!("&#x{:X};", u32::from(one))),
            one => text.push(one),
        }
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_those_of_xml() {
        for text in ["", "a\t\n\r ~\u{7f}\u{85}", "\u{d7ff}\u{e000}\u{fffd}\u{10000}\u{10ffff}"] {
            assert!(fit_xml(text), "{text:?}");
        }
        for text in ["\0", "a\u{1}", "\u{1f}", "\u{fffe}b", "\u{ffff}"] {
            assert!(!fit_xml(text), "{text:?}");
        }
        let written = with_references("<K>\0\u{1f}\t\r\n\u{ffff}ü</K>");
        assert_eq!(written, "<K>&#x0;&#x1F;\t&#13;\n&#xFFFF;ü</K>");
        assert!(matches!(with_references("<K>plain\n</K>"), Cow::Borrowed(_)));
    }
}
