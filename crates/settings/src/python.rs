//! The settings of Python's clients as a type, written from the table of knobs: a name that is misspelt is an
//! error before it runs.

use std::fmt::Write;

use crate::{Group, KNOBS, Kind, Knob};

const PREFACE: &str = r#""""The settings of a client as a type. Generated from crates/settings/src/knob.rs: run `cargo xtask docs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from ._native import Credentials

__all__ = ["Settings"]


class Settings(TypedDict, total=False):
    """The keyword arguments of :class:`flatout.Client`: those of docs/settings.md with ``_`` for ``-``, and ``credentials``.

    One that is None counts as not given. A size is bytes, or text with a unit (``"16MiB"``), a time text with one (``"30s"``).
    """

    credentials: Credentials | Callable[[], Credentials] | None
    """The keys to sign with, or a function that returns them and is asked again before they end; else they are found around"""
"#;

/// The module `flatout._settings`. `xtask` writes it, and fails the build when it differs.
pub fn python() -> String {
    let mut module = PREFACE.to_owned();
    for knob in KNOBS.iter().filter(|knob| knob.group != Group::Mount) {
        let (name, doc) = (knob.name.replace('-', "_"), knob.doc.replace('\\', "\\\\"));
        write!(module, "    {name}: {} | None\n    \"\"\"{doc}\"\"\"\n", kind(knob))
            .expect("writing to a String cannot fail");
    }
    module
}

fn kind(knob: &Knob) -> String {
    match knob.kind {
        Kind::Size { .. } | Kind::Count { .. } | Kind::Rate { .. } | Kind::Frequency { .. } => {
            "int | str".into()
        }
        Kind::Duration { .. } | Kind::Mode | Kind::Text => "str".into(),
        Kind::Switch => "bool".into(),
        Kind::Choice(words) => {
            let words: Vec<_> = words.iter().map(|word| format!("\"{word}\"")).collect();
            format!("Literal[{}]", words.join(", "))
        }
        Kind::Many => "str | list[str] | tuple[str, ...]".into(),
    }
}
