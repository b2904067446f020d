//! Every name that docs/life-of-*.md writes as code exists in the code.

use crate::code::{has_word, in_name};
use crate::complaint::Complaint;
use crate::sources::{Source, Sources};

/// Words that introduce an item.
const ITEMS: &[&str] = &["fn", "struct", "enum", "trait", "const", "static", "type", "mod", "macro_rules!"];

pub fn check(sources: &Sources) -> Vec<Complaint> {
    let roads = sources.pages.iter().filter(|page| page.path.starts_with("docs/life-of-"));
    roads.flat_map(|road| of_road(road, sources)).collect()
}

fn of_road(road: &Source, sources: &Sources) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (number, name) in names(&road.text) {
        if !exists(name, sources) {
            let say = format!(
                "`{name}` is not in the code: write the name that it has now (a system call as `pwrite(2)`)"
            );
            complaints.push(Complaint::new(&road.path, number, say));
        }
    }
    complaints
}

/// Names of ours, with their lines: `Type::function`, `function()`, `Type`, `function`,
/// `crates/x/src/y.rs`; in a fenced block, where words stand between the names, only the first two and the
/// last.
fn names(text: &str) -> Vec<(usize, &str)> {
    let mut names = Vec::new();
    let mut fenced = false;
    for (at, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        let spans: Vec<&str> = match fenced {
            true => line
                .split_whitespace()
                .filter(|word| word.contains("::") || word.contains(['(', '/']))
                .collect(),
            false => line.split('`').skip(1).step_by(2).collect(),
        };
        names.extend(spans.into_iter().filter_map(name).map(|name| (at + 1, name)));
    }
    names
}

fn name(span: &str) -> Option<&str> {
    let span = span.trim().trim_end_matches([',', '.', ';', ':']);
    if span.contains('/') && span.ends_with(".rs") {
        return Some(span);
    }
    // A system call is written with its section: `pwrite(2)`.
    let (path, arguments) = span.split_once('(').unwrap_or((span, ""));
    if arguments.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let is_path = path
        .split("::")
        .all(|part| part.chars().all(in_name) && !part.starts_with(|c: char| !c.is_alphabetic()));
    (is_path && !path.is_empty() && !path.ends_with("::") && !path.starts_with("std::")).then_some(path)
}

fn exists(name: &str, sources: &Sources) -> bool {
    if name.contains('/') {
        return sources.rust.iter().any(|source| source.path == name);
    }
    let parts: Vec<&str> = name.split("::").collect();
    match parts.as_slice() {
        [.., owner, item] => sources.rust.iter().any(|source| owns(source, owner, item)),
        // A single small word may be a local name or a system call: it is enough that the code knows it.
        [item] if item.bytes().all(|b| b.is_ascii_lowercase()) => {
            sources.rust.iter().any(|source| defines(source, item) || has_word(&source.code, item))
        }
        [item] => sources.rust.iter().any(|source| defines(source, item)),
        [] => false,
    }
}

/// Whether the file is, or holds, `owner`, and defines `item` (or names it, when it may be a variant).
fn owns(source: &Source, owner: &str, item: &str) -> bool {
    // Most files name neither, and this test is fast.
    if !source.code.contains(item) {
        return false;
    }
    let is_module = source.component() == owner
        || source.path.ends_with(&format!("/{owner}.rs"))
        || source.path.contains(&format!("/{owner}/"));
    let is_enum = source.code.lines().any(|line| introduces(line, "enum", owner));
    let is_type = is_enum
        || source.code.lines().any(|line| {
            ["struct", "trait", "type", "impl"].iter().any(|word| has_word(line, word))
                && has_word(line, owner)
        });
    (is_enum && has_word(&source.code, item)) || ((is_module || is_type) && defines(source, item))
}

fn defines(source: &Source, item: &str) -> bool {
    source.code.contains(item)
        && source.code.lines().any(|line| ITEMS.iter().any(|word| introduces(line, word, item)))
}

/// `word name` in this order, as in `pub(crate) fn name<T>(`.
fn introduces(line: &str, word: &str, name: &str) -> bool {
    let mut rest = line;
    while let Some(at) = rest.find(word) {
        let before = rest[..at].chars().next_back();
        let after = &rest[at + word.len()..];
        let named = after.trim_start();
        let next = named.strip_prefix(name).map(|tail| tail.chars().next());
        if !before.is_some_and(in_name)
            && after.starts_with(' ')
            && next.is_some_and(|c| !c.is_some_and(in_name))
        {
            return true;
        }
        rest = after;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::of;

    const SHARD: &str = "//! X.\npub struct Shard;\nimpl Shard {\n    pub(crate) fn start(&self) {}\n}\n\
        enum Verdict { Done, Again }\nconst LIMIT: u8 = 1;\n// fn ghost()\nfn restart<T>() {}\n";

    #[test]
    fn names_on_a_road_exist() {
        let table = [
            ("`Shard::start` sends", true),
            ("`Shard::start()` sends", true),
            ("`shard::restart`", true),
            ("`engine::restart`", true),
            ("`restart()`", true),
            ("`restart(fault, attempt)`", true),
            ("`Verdict::Again`", true),
            ("`crates/engine/src/shard/mod.rs`", true),
            ("```text\nShard::start -> restart()\n```", true),
            ("`Shard`, `restart`", true),
            ("`Shards`", false),
            ("`restart_all`", false),
            ("`rerun`", false),
            ("`Shard::stop`", false),
            ("`Shared::start`", false),
            ("`star()`", false),
            ("`start()`, `ghost()`", false),
            ("`Verdict::Later`", false),
            ("`crates/engine/src/shard/shards.rs`", false),
            ("```text\nShard::stop\n```", false),
            (
                "`pwrite(2)`, `--window`, `If-Match`, `206`, `Range<u64>`, `std::mem::swap`, Shard::stop, (stop())",
                true,
            ),
        ];
        for (text, well) in table {
            let sources = of(&[("crates/engine/src/shard/mod.rs", SHARD), ("docs/life-of-a-get.md", text)]);
            let said = check(&sources);
            assert_eq!(said.is_empty(), well, "{text}: {said:?}");
        }
    }

    #[test]
    fn a_complaint_names_the_line() {
        let sources =
            of(&[("docs/life-of-a-get.md", "# Get\n\n`Shard::stop`\n"), ("docs/numbers.md", "`a::b`")]);
        let said: Vec<String> = check(&sources).iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 1);
        assert!(said[0].starts_with("docs/life-of-a-get.md:3: `Shard::stop` is not in the code"), "{said:?}");
    }
}
