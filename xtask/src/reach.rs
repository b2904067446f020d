//! Resources of some crates only: the environment belongs to `ambient`, the terminal to the faces; decisions
//! and parsers have no clock.

use crate::complaint::Complaint;
use crate::sources::Sources;

struct Reach {
    /// Its calls in code.
    calls: &'static [&'static str],
    by: By,
    instead: &'static str,
}

/// Components that may.
enum By {
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

const REACHES: &[Reach] = &[
    Reach {
        calls: &["env::var(", "env::var_os(", "env::vars(", "env::vars_os(", "env::home_dir("],
        by: By::Only(&["ambient", "xtask"]),
        instead: "only `ambient` reads the environment: take the value as an argument or a setting",
    },
    Reach {
        calls: &["env::args(", "env::args_os("],
        by: By::Only(&["cli", "python", "csi", "xtask"]),
        instead: "only the faces read argv: take the value as an argument",
    },
    Reach {
        calls: &["println!(", "print!(", "io::stdout()", "io::stderr()", "io::stdin()"],
        by: By::Only(&["cli", "csi", "xtask"]),
        instead: "only the faces write to a terminal: return the text, or an error with it",
    },
    Reach {
        calls: &["Instant::now(", "SystemTime::now(", ".elapsed(", "thread::"],
        by: By::AllBut(&["policy", "formats", "wire", "erofs"]),
        instead: "a decision or a parser has no clock and no thread: take the time as an argument",
    },
];

/// Checks code that ships; tests, examples and benches are free.
pub fn check(sources: &Sources) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for source in sources.rust.iter().filter(|source| source.ships()) {
        for reach in REACHES.iter().filter(|reach| !reach.by.may(source.component())) {
            let lines =
                source.shipped_lines().filter(|(_, line)| reach.calls.iter().any(|call| line.contains(call)));
            complaints.extend(lines.map(|(number, _)| Complaint::new(&source.path, number, reach.instead)));
        }
    }
    complaints
}

impl By {
    fn may(&self, component: &str) -> bool {
        match self {
            By::Only(these) => these.contains(&component),
            By::AllBut(these) => !these.contains(&component),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::sources::of;

    #[test]
    fn only_some_crates_reach_out() {
        let table = [
            ("crates/engine/src/a.rs", "let x = std::env::var(NAME);", true),
            ("crates/ambient/src/a.rs", "let x = std::env::var(NAME);", false),
            ("crates/engine/src/a.rs", "eprintln!();", true),
            ("crates/cli/src/a.rs", "println!();", false),
            ("crates/engine/src/a.rs", "// eprintln!();", false),
            ("crates/engine/src/a.rs", "#[cfg(test)]\nmod tests { fn f() { println!() } }", false),
            ("crates/engine/examples/a.rs", "println!(); env::args();", false),
            ("crates/engine/src/a.rs", "env::args()", true),
            ("crates/policy/src/a.rs", "let now = Instant::now();", true),
            ("crates/policy/src/a.rs", "#[cfg(test)]\nmod tests { fn f() { Instant::now(); } }", false),
            ("crates/engine/src/a.rs", "let now = Instant::now();", false),
        ];
        for (path, text, wrong) in table {
            assert_eq!(!super::check(&of(&[(path, text)])).is_empty(), wrong, "{path}: {text}");
        }
    }
}
