//! The modules of the engine, and the modules that each may use. In every crate: no large circle of files.

use std::collections::BTreeMap;

use crate::complaint::Complaint;
use crate::sources::Sources;
use crate::uses::Uses;

/// From the lowest up. A module uses only modules that stand above it in this list, and of these only those
/// it names.
const MODULES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("disk", &["base"]),
    ("memory", &["base"]),
    ("net", &["base", "memory"]),
    ("sink", &["base", "disk", "memory"]),
    ("source", &["base", "disk", "memory"]),
    ("api", &["base", "net"]),
    ("gate", &["base", "memory", "api"]),
    ("http", &["base", "memory", "net", "sink", "source", "gate"]),
    ("shard", &["base", "memory", "net", "source", "api", "gate", "http"]),
    ("transfer", &["base", "disk", "memory", "net", "sink", "source", "api", "gate", "http", "shard"]),
    ("batch", &["base", "disk", "memory", "sink", "source", "api", "gate", "shard", "transfer"]),
    ("read", &["base", "memory", "sink", "api", "gate", "shard", "transfer"]),
    (
        "client",
        &["base", "disk", "memory", "net", "sink", "api", "gate", "shard", "transfer", "batch", "read"],
    ),
    // The simulation drives the engine's own futures, and is no part of what ships.
    ("sim", &[]),
];

const CRATES: &[&str] = &[
    "settings",
    "wire",
    "policy",
    "formats",
    "erofs",
    "engine",
    "tree",
    "mount",
    "mounting",
    "ambient",
    "server",
    "cli",
    "python",
    "properties",
];

/// The most files that may use each other in a circle.
const CIRCLE_MOST: usize = 3;

pub fn check(sources: &Sources) -> Vec<Complaint> {
    let crates: BTreeMap<&str, Uses> = CRATES.iter().map(|&name| (name, Uses::of(sources, name))).collect();
    let mut complaints: Vec<Complaint> = crates.values().flat_map(circles).collect();
    complaints.extend(crates.get("engine").into_iter().flat_map(modules));
    complaints
}

fn circles(uses: &Uses) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for circle in uses.circles().into_iter().filter(|circle| circle.len() > CIRCLE_MOST) {
        let say = format!(
            "{} files use each other in a circle ({}), {CIRCLE_MOST} at most: move what two of them share below both",
            circle.len(),
            circle.join(", ")
        );
        complaints.push(Complaint::new(&uses.files[circle[0]].path, 0, say));
    }
    complaints
}

fn modules(uses: &Uses) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (module, file) in &uses.files {
        let own = top(module);
        let Some(at) = MODULES.iter().position(|(module, _)| *module == own) else {
            if !module.is_empty() {
                let say = format!(
                    "`{own}` is no module of the table: put the file into one, or add it to MODULES in xtask/src/modules.rs"
                );
                complaints.push(Complaint::new(&file.path, 0, say));
            }
            continue;
        };
        for (line, path) in &file.names {
            let Some(used) = path.first().map(String::as_str).filter(|used| *used != own) else { continue };
            let Some(other) = MODULES.iter().position(|(module, _)| *module == used) else {
                let say = format!(
                    "`crate::{used}` names no module of the table: write the path of where it stands"
                );
                complaints.push(Complaint::new(&file.path, *line, say));
                continue;
            };
            // Tests put the simulated network in place of the real one.
            if used == "sim" || (other < at && MODULES[at].1.contains(&used)) {
                continue;
            }
            let say = format!(
                "`{own}` may not use `{used}`: move what is needed below both, or name a trait that `{used}` implements \
                 (modules stand in xtask/src/modules.rs)"
            );
            complaints.push(Complaint::new(&file.path, *line, say));
        }
    }
    complaints
}

fn top(path: &str) -> &str {
    path.split("::").next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::of;

    /// What is said of one file of the engine, the first words of it.
    fn check_file(path: &str, text: &str, says: Option<&str>) {
        let gate = ("crates/engine/src/gate/mod.rs", "struct Gate;\n");
        let sources = of(&[gate, (path, text)]);
        let said: Vec<String> = check(&sources).iter().map(ToString::to_string).collect();
        match says {
            None => assert!(said.is_empty(), "{said:?}"),
            Some(says) => assert!(said.len() == 1 && said[0].contains(says), "{said:?}"),
        }
    }

    #[test]
    fn modules_use_those_below_them() {
        check_file("crates/engine/src/http/a.rs", "use crate::gate::Gate;\n", None);
        check_file(
            "crates/engine/src/net/a.rs",
            "use crate::gate::Gate;\n",
            Some("a.rs:1: `net` may not use `gate`"),
        );
        check_file(
            "crates/engine/src/net/a.rs",
            "\nfn f(gate: &crate::gate::Gate) {}\n",
            Some("a.rs:2: `net` may"),
        );
        check_file(
            "crates/engine/src/net/a.rs",
            "#[cfg(test)]\nmod tests { use crate::gate::Gate; }\n",
            None,
        );
        check_file("crates/engine/src/loose.rs", "", Some("`loose` is no module"));
        check_file("crates/engine/src/http/a.rs", "use crate::Gate;\n", Some("names no module"));
    }

    #[test]
    fn large_circles_are_named() {
        let files = ["a", "b", "c", "d"];
        let circle = |files: &[&str]| {
            let text = |at: usize| format!("use crate::{}::x;\n", files[(at + 1) % files.len()]);
            let texts: Vec<(String, String)> = files
                .iter()
                .enumerate()
                .map(|(at, file)| (format!("crates/mount/src/{file}.rs"), text(at)))
                .collect();
            let texts: Vec<(&str, &str)> =
                texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            check(&of(&texts)).len()
        };
        assert_eq!((circle(&files[..3]), circle(&files)), (0, 1));
    }
}
