//! Words of others: in our own messages, and the smallest that headers are made of.

/// At most `longest` characters of `text`, the last an ellipsis where it was cut; a blank for each that a
/// terminal would obey.
pub fn excerpt(text: &str, longest: usize) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    match text.char_indices().nth(longest) {
        None => text.chars().map(clean).collect(),
        Some(_) => text.chars().map(clean).take(longest.saturating_sub(1)).chain(['…']).collect(),
    }
}

/// Digits only: `u64::from_str` would also take a sign.
pub(crate) fn number(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A value without the blanks around it. Only spaces and tabs are (RFC 9110 §5.6.3): what Unicode calls white
/// space is part of the value, and another reader on the way takes it for that.
pub(crate) fn bare(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, longest: usize, expected: &str) {
        assert_eq!(excerpt(text, longest), expected, "{longest} of {text:?}");
    }

    #[test]
    fn words_are_short_and_obeyed_by_no_terminal() {
        check("", 3, "");
        check("abc", 3, "abc");
        check("abcd", 3, "ab…");
        check("äöüß", 4, "äöüß");
        check("äöüßa", 4, "äöü…");
        check(" a\r\nb\u{1b}[2J\u{9b}c", 20, " a  b [2J c");
    }
}
