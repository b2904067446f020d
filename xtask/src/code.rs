//! Rust source without comments and literals: enough to search for a word, far from a parser.

/// The source with every comment, string and character literal turned into spaces; line breaks stay where
/// they are.
pub fn blanked(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        out.extend(chars[at..end].iter().map(|&c| if c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

/// Whether the line contains the word, not as a part of a longer name.
pub fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(in_name) && !after.is_some_and(in_name)
    })
}

/// Letters, digits and underscores, the characters of names.
pub fn in_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where the comment or literal that starts at `at` ends; `at` itself when none starts there.
fn literal_end(chars: &[char], at: usize) -> usize {
    let next = chars.get(at + 1).copied();
    match (chars[at], next) {
        ('/', Some('/')) => find(chars, at, |c| c == '\n'),
        ('/', Some('*')) => block_comment_end(chars, at),
        ('"', _) => string_end(chars, at + 1),
        ('r', Some('"' | '#')) if !follows_name(chars, at) => raw_string_end(chars, at),
        ('\'', Some('\\')) => quote_end(chars, at + 3),
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

fn block_comment_end(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0);
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => (at, depth) = (at + 2, depth + 1),
            ('*', '/') => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn string_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// `r"…"`, `r#"…"#`; a raw name such as `r#type` is no literal.
fn raw_string_end(chars: &[char], start: usize) -> usize {
    let quote = find(chars, start + 1, |c| c != '#');
    if chars.get(quote) != Some(&'"') {
        return start;
    }
    let hashes = quote - start - 1;
    let closes = |at: usize| {
        chars[at] == '"' && chars[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes
    };
    (quote + 1..chars.len()).find(|&at| closes(at)).map_or(chars.len(), |at| at + 1 + hashes)
}

fn quote_end(chars: &[char], from: usize) -> usize {
    (find(chars, from, |c| c == '\'') + 1).min(chars.len())
}

fn find(chars: &[char], from: usize, is: impl Fn(char) -> bool) -> usize {
    (from..chars.len()).find(|&at| is(chars[at])).unwrap_or(chars.len())
}

/// Whether the `r` ends a longer name; `br"…"` and `cr"…"` do not count.
fn follows_name(chars: &[char], at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else { return false };
    let prefix =
        matches!(chars[before], 'b' | 'c') && !before.checked_sub(1).is_some_and(|at| in_name(chars[at]));
    in_name(chars[before]) && !prefix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let table: &[(&str, &str)] = &[
            ("a // unsafe\nb", "a          \nb"),
            ("a /* x /* y */ z */ b", "a                   b"),
            ("/* open", "       "),
            (r#"f("unsafe \" x") + 1"#, "f(             ) + 1"),
            (r##"f(r#"a " b"#, r"\")"##, "f(          ,     )"),
            (r#"f(b"x", br"y")"#, "f(b   , b    )"),
            ("r#type + for\"x\"", "r#type + for   "),
            ("'a: loop { '\\'' 'x' '\"' }", "'a: loop {              }"),
            ("&'static str", "&'static str"),
            ("'\\u{1F600}' x", "            x"),
            ("\"open\nline", "     \n    "),
        ];
        for (source, code) in table {
            assert_eq!(blanked(source), *code, "{source:?}");
        }
    }

    #[test]
    fn words_are_whole() {
        let table = [
            ("unsafe { x }", true),
            ("}unsafe{", true),
            ("#[unsafe(no_mangle)]", true),
            ("forbid(unsafe_code)", false),
            ("unsafe_op_in_unsafe_fn", false),
            ("is_unsafe", false),
            ("safe", false),
            ("unsafe_code unsafe", true),
        ];
        for (line, found) in table {
            assert_eq!(has_word(line, "unsafe"), found, "{line}");
        }
    }
}
