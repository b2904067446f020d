//! The part of the house rule for English that a machine can check: openings of doc comments, and widths.

use crate::complaint::Complaint;
use crate::sources::{Source, Sources};

/// rustfmt's `max_width`, which it does not apply to comments.
const RUST_COLUMNS: usize = 110;
const MARKDOWN_COLUMNS: usize = 100;

/// rustdoc shows an item alone, so nothing stands "above" and there is nothing to be "the same" as.
const OPENINGS: &[&str] = &["The same", "As above"];

/// A component, its lines that are still too wide, and its doc comments that still begin with one of
/// [`OPENINGS`]. The figures are exact and only ever go down; a component that is not here has none.
const STILL_THERE: &[(&str, usize, usize)] = &[
    ("ambient", 1, 0),
    ("bench", 10, 0),
    ("cli", 3, 0),
    ("engine", 11, 0),
    ("mount", 2, 0),
    ("mounting", 1, 0),
    ("policy", 4, 0),
    ("python", 6, 0),
    ("tree", 4, 0),
    ("wire", 2, 0),
];

/// A page and its lines that are still too wide.
const PAGES_STILL_WIDE: &[(&str, usize)] = &[];

pub fn check(sources: &Sources) -> Vec<Complaint> {
    against(sources, STILL_THERE, PAGES_STILL_WIDE)
}

fn against(
    sources: &Sources,
    allowed: &[(&str, usize, usize)],
    allowed_pages: &[(&str, usize)],
) -> Vec<Complaint> {
    let mut components: Vec<&str> = sources.rust.iter().map(Source::component).collect();
    components.extend(allowed.iter().map(|row| row.0));
    components.sort_unstable();
    components.dedup();
    let mut complaints = Vec::new();
    for component in components {
        let (wide, openings) =
            allowed.iter().find(|row| row.0 == component).map_or((0, 0), |row| (row.1, row.2));
        let of = |find: fn(&Source) -> Vec<Complaint>| -> Vec<Complaint> {
            sources.rust.iter().filter(|source| source.component() == component).flat_map(find).collect()
        };
        complaints.extend(counted(component, "lines that are too wide", of(wide_lines), wide));
        complaints.extend(counted(component, "doc comments that begin so", of(lazy_openings), openings));
    }
    for page in &sources.pages {
        let most = allowed_pages.iter().find(|row| row.0 == page.path).map_or(0, |row| row.1);
        complaints.extend(counted(&page.path, "lines that are too wide", wide_prose(page), most));
    }
    let is_gone = |path: &str| sources.pages.iter().all(|page| page.path != path);
    let gone = allowed_pages.iter().filter(|row| is_gone(row.0));
    complaints.extend(
        gone.map(|row| Complaint::new(row.0, 0, "is gone: take its row out of xtask/src/english.rs")),
    );
    complaints
}

/// Every complaint where none is allowed; else one, when their number is not the allowed one.
fn counted(of: &str, kind: &str, found: Vec<Complaint>, allowed: usize) -> Vec<Complaint> {
    let count = found.len();
    if allowed == 0 || count == allowed {
        return if allowed == 0 { found } else { Vec::new() };
    }
    let say = if count < allowed {
        let write = if count == 0 { "take the row out of".to_owned() } else { format!("write {count} in") };
        format!("{count} {kind}, no longer {allowed}: {write} xtask/src/english.rs")
    } else {
        let first = &found[0];
        format!(
            "{count} {kind}, at most {allowed} may be left: mend the new ones (the first of all is {first})"
        )
    };
    vec![Complaint::new(of, 0, say)]
}

/// Comments and code beyond [`RUST_COLUMNS`]; a line that holds a string may be as long as the string.
fn wide_lines(source: &Source) -> Vec<Complaint> {
    let lines = source.text.lines().zip(source.code.lines()).enumerate();
    let wide = lines.filter(|(_, (line, code))| {
        let is_code = !code.trim().is_empty() && !line.contains('"');
        line.chars().count() > RUST_COLUMNS && (is_code || line.trim_start().starts_with("//"))
    });
    let say = format!("wrap at {RUST_COLUMNS} columns, or say it in fewer words");
    wide.map(|(at, _)| Complaint::new(&source.path, at + 1, &*say)).collect()
}

fn lazy_openings(source: &Source) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut was_doc = false;
    for (at, line) in source.text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        let begins = |opening: &&&str| doc.is_some_and(|text| text.trim_start().starts_with(**opening));
        if let Some(opening) = OPENINGS.iter().find(begins).filter(|_| !was_doc) {
            let say = format!(
                "\"{opening}\": rustdoc shows the item alone; say what it does, or link the other: \
                 `Like [`Client::get`], but …`"
            );
            complaints.push(Complaint::new(&source.path, at + 1, say));
        }
        was_doc = doc.is_some();
    }
    complaints
}

/// Lines of prose beyond [`MARKDOWN_COLUMNS`]: no table, heading or code. The target of a link does not
/// count.
fn wide_prose(page: &Source) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut fenced = false;
    for (at, line) in page.text.lines().enumerate() {
        let start = line.trim_start();
        if start.starts_with("```") {
            fenced = !fenced;
        }
        let is_prose = !fenced && !start.starts_with(['|', '#']) && !line.starts_with("    ");
        if is_prose && shown_columns(line) > MARKDOWN_COLUMNS {
            let say =
                format!("wrap at {MARKDOWN_COLUMNS} columns; split a paragraph of more than five lines");
            complaints.push(Complaint::new(&page.path, at + 1, say));
        }
    }
    complaints
}

/// Columns of a line without the targets of its links.
fn shown_columns(line: &str) -> usize {
    let mut columns = line.chars().count();
    for after in line.split("](").skip(1) {
        let target = after.split(')').next().unwrap_or_default();
        columns -= target.chars().count();
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::of;

    fn said(path: &str, text: &str) -> Vec<String> {
        against(&of(&[(path, text)]), &[], &[]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rust_is_wrapped() {
        let words = |columns: usize| "x".repeat(columns);
        let table = [
            (format!("//! {}", words(106)), true),
            (format!("//! {}", words(107)), false),
            (format!("    // {}", words(104)), false),
            (format!("//! {}", "ö".repeat(106)), true),
            (format!("let x = {};", words(110)), false),
            (format!("let x = \"{}\";", words(110)), true),
            (format!("let x = r#\"\n{}\n\"#;", words(120)), true),
            (format!("f(); // {}", words(110)), false),
        ];
        for (text, well) in table {
            assert_eq!(said("crates/x/src/a.rs", &text).is_empty(), well, "{text}");
        }
    }

    #[test]
    fn doc_comments_stand_alone() {
        let table = [
            ("/// The same for OSS.\nfn a() {}", false),
            ("    /// As above, later.\n", false),
            ("//! The same as x.\n", false),
            ("/// Reads.\n///\n/// The same bytes again.\nfn a() {}", true),
            ("/// Sameness.\n", true),
            ("// The same here.\n", true),
            ("/// One.\nfn a() {}\n/// The same.\nfn b() {}", false),
        ];
        for (text, well) in table {
            assert_eq!(said("crates/x/src/a.rs", text).is_empty(), well, "{text}");
        }
    }

    #[test]
    fn prose_is_wrapped() {
        let words = "word ".repeat(25);
        let table = [
            (words.clone(), false),
            (format!("- {words}"), false),
            (format!("| {words} |"), true),
            (format!("## {words}"), true),
            (format!("    {words}"), true),
            (format!("```\n{words}\n```"), true),
            (format!("```\nx\n```\n{words}"), false),
            (format!("see [this]({})", "x".repeat(120)), true),
        ];
        for (text, well) in table {
            assert_eq!(said("docs/a.md", &text).is_empty(), well, "{text}");
        }
    }

    #[test]
    fn an_allowance_is_exact() {
        let wide = format!("//! {}\n", "x".repeat(120));
        let text = format!("{wide}{wide}\n/// The same.\n");
        let rust = of(&[("crates/x/src/a.rs", &text)]);
        let table = [
            (2, 1, ""),
            (3, 1, "x: 2 lines that are too wide, no longer 3: write 2 in xtask/src/english.rs"),
            (1, 1, "x: 2 lines that are too wide, at most 1 may be left"),
            (2, 2, "x: 1 doc comments that begin so, no longer 2"),
        ];
        for (wide, openings, expected) in table {
            let said = against(&rust, &[("x", wide, openings)], &[]);
            assert_eq!(said.len(), usize::from(!expected.is_empty()), "{said:?}");
            let said: String = said.iter().map(ToString::to_string).collect();
            assert!(said.starts_with(expected), "{said}");
        }
        assert_eq!(against(&of(&[]), &[("y", 1, 0)], &[]).len(), 1);
        let page = "word ".repeat(25);
        assert!(against(&of(&[("docs/a.md", &page)]), &[], &[("docs/a.md", 1)]).is_empty());
        assert_eq!(against(&of(&[]), &[], &[("docs/a.md", 1)]).len(), 1);
    }
}
