//! The uses between files of a crate, by their `use` lines and the paths in their code that begin with
//! `crate`.
//!
//! Text, not a compiler: a re-export counts for the file of the name, a glob for the file that it names,
//! and output of macros is invisible.

use std::collections::{BTreeMap, BTreeSet};

use crate::code::in_name;
use crate::sources::{Source, Sources};

/// The files of one crate by their modules: `read::segment`, and an empty name for `lib.rs` or `main.rs`.
pub struct Uses {
    pub files: BTreeMap<String, File>,
}

pub struct File {
    /// Relative to the workspace.
    pub path: String,
    /// Absolute paths within the crate, with the lines where they stand, as written there: `gate::Gate`.
    pub names: Vec<(usize, Vec<String>)>,
    /// The modules that these lead to.
    pub used: BTreeSet<String>,
}

/// A path that stands somewhere, and whether it is exported again from there.
struct Named {
    line: usize,
    path: String,
    again: bool,
}

impl Uses {
    /// The shipping files of a crate, a folder below `crates`.
    pub fn of(sources: &Sources, component: &str) -> Uses {
        let own = |source: &&Source| source.ships() && source.component() == component;
        let read = |source: &Source| (module(&source.path), source.path.clone(), named(source));
        let found: Vec<_> = sources.rust.iter().filter(own).map(read).collect();
        let modules: BTreeSet<String> = found.iter().map(|(module, ..)| module.clone()).collect();
        let mut exports = BTreeMap::new();
        for (module, _, names) in &found {
            for named in names.iter().filter(|named| named.again) {
                if let Some(path) = absolute(module, &named.path, &modules)
                    && let Some(last) = path.last()
                {
                    exports.insert((module.clone(), last.clone()), path.clone());
                }
            }
        }
        let files = found.into_iter().map(|(module, path, names)| {
            let paths = names.iter().filter(|named| !named.again);
            let names: Vec<_> = paths
                .filter_map(|named| Some((named.line, absolute(&module, &named.path, &modules)?)))
                .collect();
            let leads = names.iter().map(|(_, path)| target(path, &modules, &exports, 0));
            let used = leads.filter(|used| *used != module && !used.is_empty()).collect();
            (module, File { path, names, used })
        });
        Uses { files: files.collect() }
    }

    /// Files that use each other in a circle, the largest circle first; a file by itself is none.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let reach: BTreeMap<&str, BTreeSet<&str>> =
            self.files.keys().map(|from| (from.as_str(), self.reached(from))).collect();
        let mut circles: Vec<Vec<&str>> = Vec::new();
        for &from in reach.keys() {
            if circles.iter().any(|circle| circle.contains(&from)) {
                continue;
            }
            let circle: Vec<&str> = reach[from]
                .iter()
                .copied()
                .filter(|to| reach.get(to).is_some_and(|back| back.contains(from)))
                .collect();
            if circle.len() > 1 {
                circles.push(circle);
            }
        }
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reached(&self, from: &str) -> BTreeSet<&str> {
        let (mut reached, mut ahead) = (BTreeSet::new(), vec![from]);
        while let Some(at) = ahead.pop() {
            for used in self.files.get(at).into_iter().flat_map(|file| &file.used) {
                if reached.insert(used.as_str()) {
                    ahead.push(used);
                }
            }
        }
        reached
    }
}

/// `read::segment` for `crates/engine/src/read/segment.rs`.
fn module(path: &str) -> String {
    let below = path.split_once("/src/").map_or(path, |(_, below)| below);
    let bare = below.strip_suffix(".rs").unwrap_or(below);
    let bare = bare.strip_suffix("/mod").unwrap_or(bare);
    if matches!(bare, "lib" | "main") { String::new() } else { bare.replace('/', "::") }
}

/// Every path of the crate's own in the code that ships.
fn named(source: &Source) -> Vec<Named> {
    let mut code = String::new();
    for (_, line) in source.shipped_lines() {
        code += line;
        code.push('\n');
    }
    let ends: Vec<usize> = code.match_indices('\n').map(|(at, _)| at).collect();
    let line_of = |at: usize| ends.partition_point(|&end| end < at) + 1;
    let (mut named, mut rest) = (Vec::new(), code.clone());
    for (at, _) in code.match_indices("use ") {
        let before = code[..at].rsplit('\n').next().unwrap_or_default().trim();
        let Some(end) = code[at..].find(';') else { continue };
        if before.is_empty() || before.starts_with("pub") {
            let again = !before.is_empty();
            let paths = expanded(&code[at + 4..at + end]);
            named.extend(paths.into_iter().map(|path| Named { line: line_of(at), path, again }));
            let blank: String =
                code[at..at + end].chars().map(|c| if c == '\n' { '\n' } else { ' ' }).collect();
            rest.replace_range(at..at + end, &blank);
        }
    }
    for (at, _) in rest.match_indices("crate::") {
        // `pub(in crate::…)` restricts visibility and uses nothing; `my_crate::` is another word.
        let before = &rest[..at];
        if before.ends_with("in ") || before.ends_with('$') || before.chars().next_back().is_some_and(in_name)
        {
            continue;
        }
        let path: String = rest[at..].chars().take_while(|c| in_name(*c) || *c == ':').collect();
        named.push(Named { line: line_of(at), path, again: false });
    }
    named
}

/// The paths of a tree as `a::{b, c::{d, self}}`, without blanks and other names.
fn expanded(tree: &str) -> Vec<String> {
    let tree = tree.split_whitespace().collect::<Vec<_>>().join(" ");
    let tree = tree.trim();
    let Some((before, rest)) = tree.split_once('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        return vec![path.trim_end_matches("::self").to_owned()];
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in inner.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(|part| expanded(&format!("{}{part}", before.trim()))).collect()
}

/// A path from the crate's root; `None` for one of another crate.
fn absolute(module: &str, path: &str, modules: &BTreeSet<String>) -> Option<Vec<String>> {
    let mut base: Vec<String> =
        module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let mut parts = path.split("::").map(str::trim).filter(|part| !part.is_empty()).peekable();
    match parts.peek() {
        Some(&"crate") => {
            base.clear();
            parts.next();
        }
        Some(&"self") => drop(parts.next()),
        Some(&"super") => {
            while parts.next_if_eq(&"super").is_some() {
                base.pop();
            }
        }
        Some(first) => {
            let child = base.iter().map(String::as_str).chain([*first]).collect::<Vec<_>>().join("::");
            if !modules.contains(&child) {
                return None;
            }
        }
        None => return None,
    }
    base.extend(parts.map(str::to_owned));
    Some(base)
}

/// The module where a name stands, through those that only export it again.
fn target(
    path: &[String],
    modules: &BTreeSet<String>,
    exports: &BTreeMap<(String, String), Vec<String>>,
    depth: usize,
) -> String {
    let known = (0..=path.len()).rev().find(|&length| modules.contains(&path[..length].join("::")));
    let length = known.unwrap_or(0);
    let module = path[..length].join("::");
    let next = path.get(length).and_then(|name| exports.get(&(module.clone(), name.clone())));
    match next {
        Some(next) if depth < 8 && next.as_slice() != path => target(next, modules, exports, depth + 1),
        _ => module,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::of;

    #[test]
    fn trees_are_expanded() {
        assert_eq!(expanded("crate::a"), ["crate::a"]);
        assert_eq!(expanded("a::{self, b as c,\n d::{E, F}}"), ["a", "a::b", "a::d::E", "a::d::F"]);
    }

    #[test]
    fn a_name_leads_to_where_it_stands() {
        let sources = of(&[
            ("crates/x/src/lib.rs", "mod a;\nmod b;\npub use a::A;\n"),
            (
                "crates/x/src/a/mod.rs",
                "mod inner;\npub(crate) use inner::Deep;\nuse inner::plain;\nstruct A;\n",
            ),
            ("crates/x/src/a/inner.rs", "use super::A;\nstruct Deep;\n"),
            (
                "crates/x/src/b.rs",
                "use crate::a::Deep;\npub(in crate::a) fn f() { crate::a::A; std::env::x() }\n",
            ),
        ]);
        let uses = Uses::of(&sources, "x");
        let used = |module: &str| uses.files[module].used.iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(used("b"), ["a", "a::inner"]);
        assert_eq!(used("a"), ["a::inner"]);
        assert_eq!(used("a::inner"), ["a"]);
        assert_eq!(uses.circles(), [["a", "a::inner"]]);
        assert_eq!(uses.files["b"].names[0], (1, ["a", "Deep"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn tests_do_not_count() {
        let sources = of(&[
            ("crates/x/src/a.rs", "use crate::b::B;\n"),
            ("crates/x/src/b.rs", "struct B;\n#[cfg(test)]\nmod tests {\n    use crate::a::x;\n}\n"),
        ]);
        assert!(Uses::of(&sources, "x").circles().is_empty());
    }
}
