//! docs/settings.md, written from the table of knobs.

use std::fmt::Write;

use crate::{Group, KNOBS, Kind, Knob, format_duration, format_size};

const PREFACE: &str = "\
# Settings

Every knob is a flag, an environment variable and (when the config file comes) a key, under the same name. A flag wins
over the environment, the environment over the default. An unknown name is an error that says the nearest one.

Sizes take units: `K`, `Ki` and `KiB` are 1024 bytes, `KB` is 1000, and so on with `M`, `G`, `T`, `P`; a bare number is
bytes. Times need one of `ms`, `s`, `m`, `h`. A switch is on as a bare flag; in the environment write `true` or `false`.

This page is generated: change `crates/settings/src/knob.rs` and run `cargo xtask docs`.
";

/// The text of docs/settings.md: a table per group, in the order of [`KNOBS`].
pub fn markdown() -> String {
    let mut page = PREFACE.to_owned();
    for group in Group::ALL {
        let _ = write!(page, "\n## {}\n\n", group.title());
        page.push_str("| Flag | Environment | Default | Takes | What it does |\n|---|---|---|---|---|\n");
        for knob in KNOBS.iter().filter(|knob| knob.group == group) {
            page.push_str(&row(knob));
        }
    }
    page
}

fn row(knob: &Knob) -> String {
    let default = if knob.default.is_empty() { "none".to_owned() } else { format!("`{}`", knob.default) };
    format!("| `--{}` | `{}` | {default} | {} | {} |\n", knob.name, knob.env(), takes(knob.kind), knob.doc)
}

fn takes(kind: Kind) -> String {
    match kind {
        Kind::Size { min, max } => format!("{} to {}", format_size(min), format_size(max)),
        Kind::Count { min, max } => format!("{min} to {max}"),
        Kind::Duration { min_ms, max_ms } => {
            format!("{} to {}", format_duration(min_ms), format_duration(max_ms))
        }
        Kind::Switch => "nothing".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Choice(choices) => {
            choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Many => "text, several times".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_has_its_row() {
        let page = markdown();
        for knob in KNOBS {
            assert_eq!(page.matches(&format!("| `--{}` |", knob.name)).count(), 1, "{}", knob.name);
        }
        assert!(page.contains("| `--part-size` | `FLATOUT_PART_SIZE` | `8MiB` | 1KiB to 4GiB |"), "{page}");
    }
}
