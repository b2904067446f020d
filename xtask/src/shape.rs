//! The shape of a file: it opens with a sentence about itself, and is short.

use crate::complaint::Complaint;
use crate::sources::{Source, Sources};

/// STYLE: hand-written files mostly under 600 lines. Tests at the end do not count.
const MOST_LINES: usize = 599;

pub fn check(sources: &Sources) -> Vec<Complaint> {
    sources.rust.iter().flat_map(|source| [opening(source), length(source)]).flatten().collect()
}

fn opening(source: &Source) -> Option<Complaint> {
    let paragraph: Vec<&str> =
        source.text.lines().map_while(|line| line.strip_prefix("//! ")).map(str::trim).collect();
    let sentence = paragraph.join(" ");
    let ends = sentence.ends_with(['.', ':', '?', '!', ')', '`']) && sentence.split_whitespace().count() >= 2;
    (!ends).then(|| {
        let say = "open the file with a sentence that says what it is about: `//! Half-open ranges and their HTTP form.`";
        Complaint::new(&source.path, 1, say)
    })
}

fn length(source: &Source) -> Option<Complaint> {
    if source.is_test() {
        return None;
    }
    let lines = source.shipped_lines().count();
    (lines > MOST_LINES).then(|| {
        let say = format!(
            "{lines} lines: give a noun of its own to a file of its own, at most {MOST_LINES} lines each"
        );
        Complaint::new(&source.path, 0, say)
    })
}

#[cfg(test)]
mod tests {
    use crate::sources::of;

    #[test]
    fn files_open_with_a_sentence() {
        let table = [
            ("//! Half-open ranges.\n", true),
            ("//! Ranges and their\n//! HTTP form.\n//!\n//! more", true),
            ("//! Ranges are half-open.\n\nuse x;\n", true),
            ("//! Skeleton.\n", false),
            ("use x;\n", false),
            ("// Ranges are half-open.\n", false),
            ("//! Ranges without an end\n", false),
            ("", false),
        ];
        for (text, well) in table {
            assert_eq!(super::check(&of(&[("crates/x/src/a.rs", text)])).is_empty(), well, "{text:?}");
        }
    }

    #[test]
    fn files_stay_short() {
        let lines = |count: usize| "//! What this file is about.\n".to_owned() + &"x;\n".repeat(count - 1);
        let with_tests = lines(599) + "#[cfg(test)]\nmod tests {}\n";
        let table = [
            ("crates/x/src/a.rs", lines(599), true),
            ("crates/x/src/a.rs", lines(600), false),
            ("crates/x/src/a.rs", with_tests, true),
            ("crates/x/tests/it/main.rs", lines(900), true),
            ("crates/x/src/a/tests.rs", lines(900), true),
        ];
        for (path, text, well) in table {
            assert_eq!(super::check(&of(&[(path, &text)])).is_empty(), well, "{path} {}", text.len());
        }
    }
}
