//! Patterns of names, in rclone's language: `*` and `?` stay within a folder, `**` does not, `[a-z]`,
//! `[!a-z]`, `{a,b}`, and `\` before a character that is to stand for itself.
//!
//! Written as regular expressions, since globset cannot say `logs/**.gz`: there `**` is a whole name or
//! nothing.

use std::fmt;

use regex::Regex;

/// A pattern that a whole path matches or not.
#[derive(Clone)]
pub struct Pattern {
    typed: String,
    regex: Regex,
}

/// What makes a text a pattern.
pub const WILDCARDS: [char; 4] = ['*', '?', '[', '{'];

impl Pattern {
    /// A pattern of whole keys. With `deep`, what lies in a folder that matches is meant too.
    pub fn of_keys(typed: &str, deep: bool) -> Result<Pattern, String> {
        let inside = if deep { "(?:/.*)?" } else { "" };
        Pattern::compile(typed, &format!("{}{inside}", regex_of(typed.trim_end_matches('/'))?))
    }

    /// A pattern of paths below the source folder, as rclone's filters have it: from that folder on where it
    /// begins with `/`, else from any folder on; everything in a folder where it ends with `/`.
    pub fn of_paths(typed: &str) -> Result<Pattern, String> {
        let (start, rest) = match typed.strip_prefix('/') {
            Some(rest) => ("", rest),
            None => ("(?:.*/)?", typed),
        };
        if rest.is_empty() {
            return Err("names nothing".into());
        }
        let end = if rest.ends_with('/') { ".*" } else { "" };
        Pattern::compile(typed, &format!("{start}{}{end}", regex_of(rest)?))
    }

    fn compile(typed: &str, regex: &str) -> Result<Pattern, String> {
        // `s`: a name may hold a line break, and `.` is to match it.
        let regex = Regex::new(&format!(r"\A(?s:{regex})\z")).map_err(|_| "is no pattern".to_owned())?;
        Ok(Pattern { typed: typed.to_owned(), regex })
    }

    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name)
    }

    /// Whether it matches every path below this folder, as far as its end tells.
    pub fn has_all_below(&self, folder: &str) -> bool {
        let is_open = self.typed.ends_with('/') || self.typed.ends_with("**");
        is_open && self.matches(&format!("{folder}/"))
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({})", self.typed)
    }
}

fn regex_of(glob: &str) -> Result<String, String> {
    if glob.contains("{{") {
        return Err("holds a regular expression in {{}}, which only rclone knows".into());
    }
    let mut regex = String::with_capacity(glob.len() * 2);
    let mut rest = glob.chars().peekable();
    let mut braces = 0;
    while let Some(next) = rest.next() {
        match next {
            '*' => {
                let mut stars = 1;
                while rest.next_if_eq(&'*').is_some() {
                    stars += 1;
                }
                regex.push_str(if stars == 1 { "[^/]*" } else { ".*" });
            }
            '?' => regex.push_str("[^/]"),
            '[' => push_class(&mut rest, &mut regex)?,
            '{' => {
                braces += 1;
                regex.push_str("(?:");
            }
            '}' if braces > 0 => {
                braces -= 1;
                regex.push(')');
            }
            ',' if braces > 0 => regex.push('|'),
            '\\' => push_literal(rest.next().ok_or("ends in a lone \\")?, &mut regex),
            other => push_literal(other, &mut regex),
        }
    }
    if braces > 0 {
        Err("opens a { that it does not close: write \\{ for the character itself".into())
    } else {
        Ok(regex)
    }
}

/// A class, from behind its `[`: `!` or `^` first means any other, `]` first stands for itself.
fn push_class(rest: &mut std::iter::Peekable<std::str::Chars>, regex: &mut String) -> Result<(), String> {
    regex.push('[');
    if rest.next_if(|c| matches!(c, '!' | '^')).is_some() {
        // Not even the other characters go beyond the folder.
        regex.push_str("^/");
    }
    let mut is_first = true;
    loop {
        match rest.next().ok_or("opens a [ that it does not close: write \\[ for the character itself")? {
            ']' if !is_first => break,
            '-' => regex.push('-'),
            '\\' => push_literal(rest.next().ok_or("ends in a lone \\")?, regex),
            other => push_literal(other, regex),
        }
        is_first = false;
    }
    regex.push(']');
    Ok(())
}

fn push_literal(character: char, regex: &mut String) {
    regex.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: Result<Pattern, String>, matches: &[&str], others: &[&str]) {
        let pattern = pattern.expect("a pattern");
        for name in matches {
            assert!(pattern.matches(name), "{pattern:?} and {name:?}");
        }
        for name in others {
            assert!(!pattern.matches(name), "{pattern:?} but {name:?}");
        }
    }

    #[test]
    fn keys() {
        let check = |typed: &str, matches: &[&str], others: &[&str]| {
            check(Pattern::of_keys(typed, false), matches, others);
        };
        check("a/*.bin", &["a/x.bin", "a/.bin"], &["a/b/x.bin", "a/x.bin2", "xa/x.bin"]);
        check("a/**.bin", &["a/x.bin", "a/b/c/x.bin"], &["a/x.bat"]);
        check("a/**/x", &["a/b/x", "a/b/c/x"], &["a/x"]);
        check("a?c", &["abc", "aüc", "a\nc"], &["a/c", "ac"]);
        check("[a-c]x", &["ax", "cx"], &["dx", "-x"]);
        check("[!a-c]x", &["dx"], &["ax", "/x"]);
        check("[]x]", &["]", "x"], &["a"]);
        check("{a,b*}/c", &["a/c", "bb/c"], &["c/c", "a,b/c"]);
        check(r"a\*b", &["a*b"], &["axb"]);
        check("a.b(c)+$^|", &["a.b(c)+$^|"], &["axb(c)+$^|"]);
        check("[a&&b~~c--d]*", &["&", "~", "bx"], &["ex"]);
        check("*", &["x"], &["x/y", "a/"]);
    }

    #[test]
    fn folders_that_match_are_entered_where_asked() {
        check(Pattern::of_keys("run-*", true), &["run-1", "run-1/a", "run-2/b/c"], &["run/a", "x/run-1"]);
        check(Pattern::of_keys("run-*/", true), &["run-1/a"], &["run/a"]);
    }

    /// The table of rclone's manual, "Filter pattern syntax".
    #[test]
    fn paths_as_rclone_has_them() {
        let check = |typed: &str, matches: &[&str], others: &[&str]| {
            check(Pattern::of_paths(typed), matches, others);
        };
        check("file.jpg", &["file.jpg", "dir/file.jpg"], &["afile.jpg", "dir/file.jpg/x"]);
        check("/file.jpg", &["file.jpg"], &["afile.jpg", "dir/file.jpg"]);
        check("*.jpg", &["file.jpg", "dir/file.jpg"], &["file.jpg/a"]);
        check("/*.jpg", &["file.jpg"], &["dir/file.jpg"]);
        check("dir/", &["dir/a", "x/dir/a/b"], &["dir", "xdir/a"]);
        check("/dir/**", &["dir/a", "dir/a/b"], &["x/dir/a"]);
        check("**", &["a", "a/b"], &[]);
        check("*.{jpg,png}", &["a.png", "d/a.jpg"], &["a.gif"]);
    }

    #[test]
    fn what_is_no_pattern() {
        for (typed, why) in [
            ("[a", "does not close"),
            ("{a,b", "does not close"),
            ("a\\", "lone"),
            ("{{a.*}}", "regular expression"),
            ("[z-a]", "is no pattern"),
            ("/", "names nothing"),
            ("", "names nothing"),
        ] {
            let error = Pattern::of_paths(typed).expect_err(typed);
            assert!(error.contains(why), "{typed}: {error}");
        }
    }
}
