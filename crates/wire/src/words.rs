//! Words of others in our own messages: an origin's, a service's, a program's.

/// At most `longest` characters of `text`, the last an ellipsis where it was cut; a blank for each that a terminal would obey.
pub fn excerpt(text: &str, longest: usize) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    match text.char_indices().nth(longest) {
        None => text.chars().map(clean).collect(),
        Some(_) => text.chars().map(clean).take(longest.saturating_sub(1)).chain(['…']).collect(),
    }
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
