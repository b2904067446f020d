//! Flags are the command line's: below it a setting is `Word::Setting`, which Python words as a keyword.

use crate::complaint::Complaint;
use crate::sources::Sources;

/// Who says things that every face shows.
const WITHOUT_FLAGS: &[&str] = &["engine", "wire", "tree", "mount"];

/// Flags of programs that are not ours: those of `docker run`.
const FOREIGN: &[&str] = &["--cap-add", "--device", "--security-opt"];

const INSTEAD: &str =
    "a face words what it shows: name a setting by `setting(\"…\")`, or word it without its flag";

pub fn check(sources: &Sources) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let shipped = sources.rust.iter().filter(|source| source.ships());
    for source in shipped.filter(|source| WITHOUT_FLAGS.contains(&source.component())) {
        let lines = source.shipped_lines().zip(source.text.lines());
        let wrong = lines.filter(|((_, code), text)| flags(text, code).any(|flag| !is_foreign(flag)));
        complaints.extend(wrong.map(|((number, _), _)| Complaint::new(&source.path, number, INSTEAD)));
    }
    complaints
}

/// What looks like a flag in the literals of a line, each with what follows it. `code` is the line with them
/// blanked out.
fn flags<'a>(text: &'a str, code: &'a str) -> impl Iterator<Item = &'a str> {
    let is_literal = |at: &usize| code.get(*at..at + 2).is_none_or(|blank| blank == "  ");
    let is_comment = |at: &usize| text[..*at].split_whitespace().any(|word| word.starts_with("//"));
    text.match_indices("--")
        .map(|(at, _)| at)
        .filter(move |at| is_literal(at) && !is_comment(at))
        .map(|at| &text[at..])
        .filter(|flag| flag[2..].starts_with(|first: char| first.is_ascii_lowercase()))
}

fn is_foreign(flag: &str) -> bool {
    FOREIGN.iter().any(|foreign| flag.starts_with(foreign))
}

#[cfg(test)]
mod tests {
    use crate::sources::of;

    #[test]
    fn hints_named_flags_of_the_command_line() {
        let table = [
            ("crates/engine/src/a.rs", "error.with_hint(\"use --region\")", true),
            ("crates/engine/src/a.rs", "error.with_hint(\"see http://h, then --region\")", true),
            ("crates/wire/src/a.rs", "#[error(\n    \"write --oss-region\"\n)]", true),
            ("crates/mount/src/a.rs", "\"give the container `--device /dev/fuse`\"", false),
            ("crates/engine/src/a.rs", "/// From `--bind`.\nlet a = 1; // of --bind", false),
            ("crates/engine/src/a.rs", "let a = b --c;", false),
            ("crates/engine/src/a.rs", "\"-----BEGIN CERTIFICATE----- a -- b\"", false),
            ("crates/cli/src/a.rs", "\"use --region\"", false),
            ("crates/engine/src/a.rs", "#[cfg(test)]\nmod tests { const A: &str = \"--region\"; }", false),
        ];
        for (path, text, wrong) in table {
            assert_eq!(!super::check(&of(&[(path, text)])).is_empty(), wrong, "{path}: {text}");
        }
    }
}
