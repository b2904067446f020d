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

/// The text as one line. Characters that an origin or a key brings along neither break the line, nor reach
/// the terminal as commands, nor make a name look like another: they are escaped.
pub fn one_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match deceives(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
    }
    shown
}

/// Controls, those of C1 too; ends of lines and paragraphs; what has no width, or turns the writing round: of
/// Unicode's category Cf all but the signs that are seen (as U+0600), and the letters and marks that are
/// blank.
fn deceives(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A URL, or what was typed for one, without user, password and query. The key of an object may hold a `?`,
/// and so may a pattern: those are kept.
pub fn masked(typed: &str) -> String {
    let has_query = !["s3://", "oss://"].iter().any(|scheme| typed.starts_with(scheme));
    let (text, query) = match typed.split_once('?').filter(|_| has_query) {
        Some((text, _)) => (text, "?…"),
        None => (typed, ""),
    };
    let Some((scheme, rest)) = text.split_once("://") else {
        // Nobody knows where the host ends: everything before an '@' may be a password.
        return format!("{}{query}", without_user(text));
    };
    let (authority, path) = rest.split_at(rest.find(['/', '#']).unwrap_or(rest.len()));
    format!("{scheme}://{}{path}{query}", without_user(authority))
}

fn without_user(authority: &str) -> String {
    authority.rsplit_once('@').map_or(authority.to_owned(), |(_, host)| format!("***@{host}"))
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

    #[test]
    fn nothing_turns_writing_round_or_hides() {
        let check = |text: &str, expected: &str| assert_eq!(one_line(text), expected);
        check("harmless\u{202e}gpj.exe", "harmless\\u{202e}gpj.exe");
        check("a\u{200b}b\u{feff}\u{2066}c\u{61c}", "a\\u{200b}b\\u{feff}\\u{2066}c\\u{61c}");
        check("\u{9b}31m\u{7f}\u{2028}\u{e0041}", "\\u{9b}31m\\u{7f}\\u{2028}\\u{e0041}");
        check("ü 日本 \u{5d0}\u{5d1} \u{600} 🙂 \u{a0}x", "ü 日本 \u{5d0}\u{5d1} \u{600} 🙂 \u{a0}x");
        check(&one_line("a\u{202e}"), "a\\u{202e}");
    }

    #[test]
    fn secrets_of_a_url_are_masked() {
        let check = |typed: &str, expected: &str| assert_eq!(masked(typed), expected);
        check("https://u:p@h/p?X-Amz-Signature=1", "https://***@h/p?…");
        check("https://h/a@b", "https://h/a@b");
        check("https://h?sig=1", "https://h?…");
        check("s4://bucket/key?x", "s4://bucket/key?…");
        check("s3://bucket/d0?/*.bin", "s3://bucket/d0?/*.bin");
        check("oss://u:p@bucket/d0?", "oss://***@bucket/d0?");
        check("u:p@h", "***@h");
        check("http:/u:p@h/k?sig=1", "***@h/k?…");
    }
}
