//! Arrows between crates: a crate may use only crates of lower levels (ARCHITECTURE.md).

use crate::complaint::Complaint;
use crate::workspace::{Dependency, Package};

/// The level of each crate, as ARCHITECTURE.md draws them.
const LEVELS: &[(&str, u8)] = &[
    ("flatout-settings", 0),
    ("flatout-wire", 0),
    ("flatout-policy", 0),
    ("flatout-formats", 0),
    ("flatout-sync", 0),
    ("flatout-erofs", 0),
    ("flatout-engine", 1),
    ("flatout-tree", 2),
    ("flatout-cache", 2),
    ("flatout-volume", 3),
    ("flatout-mount", 3),
    ("flatout-ambient", 3),
    ("flatout-server", 3),
    ("flatout-mounting", 4),
    ("flatout-csi", 5),
    ("flatout-python", 5),
    ("flatout-cli", 6),
    ("flatout-properties", 6),
    ("xtask", 6),
];

/// Crate, a crate that its tests may use although it is not lower, reason.
const IN_TESTS: &[(&str, &str, &str)] = &[
    ("flatout-engine", "flatout-server", "the data path is tested against the development origin"),
    ("flatout-tree", "flatout-server", "names and versions are tested against the development origin"),
    ("flatout-mount", "flatout-server", "real mounts are tested against the development origin"),
];

/// Crates that use nothing but std, outside their tests.
const STD_ALONE: &[&str] = &["flatout-policy", "flatout-formats", "flatout-sync"];

/// Crate, a crate that it must not use although the level allows it, reason.
const WITHOUT: &[(&str, &[&str], &str)] = &[
    ("flatout-settings", &["serde", "clap", "tokio"], "settings are data that every face reads"),
    (
        "flatout-wire",
        &["tokio", "hyper", "socket2", "libc", "mio"],
        "wire has no socket, no clock and no thread",
    ),
    ("flatout-erofs", &["tokio", "libc", "rustix"], "an index is bytes: who serves and mounts it is above"),
    ("flatout-engine", &["clap", "indicatif", "s3s"], "the engine knows nothing of terminals and servers"),
];

pub fn check(members: &[Package]) -> Vec<Complaint> {
    members.iter().flat_map(of_member).collect()
}

fn of_member(member: &Package) -> Vec<Complaint> {
    let complain = |say: String| Complaint::new(&place(member), 0, say);
    let Some(own) = level(&member.name) else {
        let name = &member.name;
        return vec![complain(format!(
            "{name} has no level: add it to LEVELS in xtask/src/arrows.rs, as ARCHITECTURE.md draws it"
        ))];
    };
    member.dependencies.iter().filter_map(|used| wrong(&member.name, own, used)).map(complain).collect()
}

fn wrong(name: &str, own: u8, used: &Dependency) -> Option<String> {
    if let Some((_, _, why)) = WITHOUT.iter().find(|row| row.0 == name && row.1.contains(&used.name.as_str()))
    {
        return (!used.dev)
            .then(|| format!("{name} must do without {}: {why}; use it in a level above", used.name));
    }
    if !used.dev && STD_ALONE.contains(&name) {
        return Some(format!("{name} uses nothing but std: use {} in a level above", used.name));
    }
    let theirs = level(&used.name)?;
    let listed = used.dev && IN_TESTS.iter().any(|row| row.0 == name && row.1 == used.name);
    if theirs < own || listed {
        return None;
    }
    let way_out = if used.dev {
        "or list the pair with its reason in IN_TESTS of xtask/src/arrows.rs"
    } else {
        "or hand the thing in as an argument"
    };
    Some(format!(
        "{name} (level {own}) points to {} (level {theirs}), but arrows point down: move what both need to a lower level, {way_out}",
        used.name
    ))
}

fn level(name: &str) -> Option<u8> {
    LEVELS.iter().find(|row| row.0 == name).map(|row| row.1)
}

fn place(member: &Package) -> String {
    match member.name.strip_prefix("flatout-") {
        Some(folder) => format!("crates/{folder}/Cargo.toml"),
        None => format!("{}/Cargo.toml", member.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crate with one dependency; part of the complaint, or none.
    #[track_caller]
    fn check(name: &str, used: &str, dev: bool, want: Option<&str>) {
        let dependencies = vec![Dependency { name: used.to_owned(), dev }];
        let said = super::check(&[Package { name: name.to_owned(), dependencies, ..Package::default() }]);
        match want {
            None => assert!(said.is_empty(), "{name} to {used}: {said:?}"),
            Some(want) => {
                assert!(said.iter().any(|c| c.to_string().contains(want)), "{name} to {used}: {said:?}")
            }
        }
    }

    #[test]
    fn arrows_point_down() {
        let up = Some("but arrows point down");
        let table: &[(&str, &str, bool, Option<&str>)] = &[
            ("flatout-engine", "flatout-wire", false, None),
            ("flatout-cli", "flatout-engine", false, None),
            ("flatout-cli", "clap", false, None),
            ("flatout-wire", "flatout-engine", false, up),
            ("flatout-wire", "flatout-settings", false, up),
            ("flatout-server", "flatout-ambient", true, up),
            ("flatout-engine", "flatout-server", false, up),
            ("flatout-engine", "flatout-server", true, None),
            ("flatout-engine", "flatout-cli", true, up),
            ("flatout-wire", "tokio", false, Some("must do without tokio: wire has no socket")),
            ("flatout-wire", "tokio", true, None),
            ("flatout-nut", "flatout-wire", false, Some("crates/nut/Cargo.toml: flatout-nut has no level")),
            ("flatout-policy", "tokio", false, Some("nothing but std")),
            ("flatout-policy", "proptest", true, None),
            ("xtask", "flatout-settings", false, None),
        ];
        for &(name, used, dev, want) in table {
            check(name, used, dev, want);
        }
    }
}
