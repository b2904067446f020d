//! The hand-written files of the workspace, read once: Rust sources and Markdown pages.

use std::fs;
use std::path::Path;

use crate::code;

pub struct Sources {
    pub rust: Vec<Source>,
    pub pages: Vec<Source>,
}

pub struct Source {
    /// Relative to the workspace, with `/`.
    pub path: String,
    pub text: String,
    /// Rust only: the text with comments and literals blanked out, line for line.
    pub code: String,
}

/// Where hand-written files are; a folder that does not exist yet is no error.
const FOLDERS: &[&str] = &["crates", "xtask", "bench", "docs", "deploy"];
/// Folders that tools make.
const MADE: &[&str] = &["target", "results", "generated"];

impl Sources {
    pub fn read(root: &Path) -> Result<Sources, String> {
        let mut sources = Sources { rust: Vec::new(), pages: Vec::new() };
        for folder in FOLDERS {
            if root.join(folder).is_dir() {
                sources.walk(root, folder)?;
            }
        }
        for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"] {
            let text = fs::read_to_string(root.join(page)).map_err(|error| format!("{page}: {error}"))?;
            sources.add(page, text);
        }
        sources.rust.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(sources)
    }

    fn walk(&mut self, root: &Path, folder: &str) -> Result<(), String> {
        let wrong = |error: std::io::Error| format!("{folder}: {error}");
        for entry in fs::read_dir(root.join(folder)).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = format!("{folder}/{name}");
            let is_folder = entry.file_type().map_err(wrong)?.is_dir();
            if is_folder {
                if !MADE.contains(&&*name) && !name.starts_with('.') {
                    self.walk(root, &path)?;
                }
            } else if name.ends_with(".rs") || name.ends_with(".md") {
                let text = fs::read_to_string(entry.path()).map_err(wrong)?;
                self.add(&path, text);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: &str, text: String) {
        let source = Source::new(path, text);
        if path.ends_with(".rs") { self.rust.push(source) } else { self.pages.push(source) }
    }
}

impl Source {
    pub fn new(path: &str, text: String) -> Source {
        let code = if path.ends_with(".rs") { code::blanked(&text) } else { String::new() };
        Source { path: path.to_owned(), text, code }
    }

    /// `engine` for `crates/engine/src/lib.rs`, `xtask` for `xtask/src/main.rs`.
    pub fn component(&self) -> &str {
        self.path.strip_prefix("crates/").unwrap_or(&self.path).split('/').next().unwrap_or_default()
    }

    /// Whether the whole file is tests, such as those of the simulation; a `mod tests` in another file does
    /// not count.
    pub fn is_test(&self) -> bool {
        self.path.contains("/tests/")
            || self.path.contains("/src/sim/")
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("_tests.rs")
    }

    /// Code that users run: no test, no example, nothing of the lab.
    pub fn ships(&self) -> bool {
        self.path.contains("/src/") && !self.path.starts_with("bench/") && !self.is_test()
    }

    /// Lines before the closing `#[cfg(test)] mod ...`, blanked, with their numbers from 1.
    pub fn shipped_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.code.lines().collect();
        let end = lines.iter().rposition(|line| line.trim_end() == "#[cfg(test)]").unwrap_or(lines.len());
        lines.into_iter().take(end).enumerate().map(|(at, line)| (at + 1, line))
    }
}

#[cfg(test)]
pub fn of(files: &[(&str, &str)]) -> Sources {
    let mut sources = Sources { rust: Vec::new(), pages: Vec::new() };
    for (path, text) in files {
        sources.add(path, (*text).to_owned());
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_knows_what_it_is() {
        let table = [
            ("crates/engine/src/lib.rs", "engine", false, true),
            ("crates/engine/src/plan/tests.rs", "engine", true, false),
            ("crates/engine/src/sim/world.rs", "engine", true, false),
            ("crates/cli/tests/it/main.rs", "cli", true, false),
            ("crates/engine/examples/get.rs", "engine", false, false),
            ("xtask/src/main.rs", "xtask", false, true),
            ("bench/peers/crt/src/main.rs", "bench", false, false),
        ];
        for (path, component, is_test, ships) in table {
            let source = Source::new(path, String::new());
            assert_eq!(
                (source.component(), source.is_test(), source.ships()),
                (component, is_test, ships),
                "{path}"
            );
        }
    }

    #[test]
    fn tests_at_the_end_do_not_ship() {
        let source = Source::new("crates/x/src/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests {\n}\n".to_owned());
        assert_eq!(source.shipped_lines().collect::<Vec<_>>(), [(1, "fn a() {}")]);
    }
}
