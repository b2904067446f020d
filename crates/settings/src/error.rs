//! What can be wrong with a setting, each case said together with what to write instead.

/// A setting that was not taken. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No knob has this name.
    #[error("unknown setting '{name}'{}", .nearest.map(|n| format!(": did you mean '{n}'?")).unwrap_or_default())]
    Unknown { name: String, nearest: Option<&'static str> },

    /// The text is not of the knob's kind.
    #[error("{knob}: '{value}' is not {expected}")]
    Value { knob: &'static str, value: String, expected: String },

    /// Of the right kind, but too small or too large; `bounds` as in `1KiB to 4GiB`.
    #[error("{knob}: {value} is out of bounds: write {bounds}")]
    Bounds { knob: &'static str, value: String, bounds: String },

    /// Each setting is good by itself, the two together are not.
    #[error("window {}", .0.worded(|name, value| match value {
        Some(value) => format!("{name} {value}"),
        None => name.to_owned(),
    }))]
    Together(Clash),
}

/// A window that does not go with another setting; sizes as one writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Clash {
    /// It holds less than two parts.
    BelowTwoParts { window: String, part_size: String, least: String },
    /// It holds more than all memory.
    AboveMemory { window: String, memory: String },
}

impl Clash {
    /// Why, and what to write instead. `spell` names a setting, and its value where there is one, as the user
    /// writes them.
    pub fn worded(&self, spell: impl Fn(&str, Option<&str>) -> String) -> String {
        let to = |name, value: &String| spell(name, Some(value));
        match self {
            Clash::BelowTwoParts { window, part_size, least } => format!(
                "{window} is too small for {}: write {} or more, or a smaller {}",
                to("part-size", part_size),
                to("window", least),
                spell("part-size", None)
            ),
            Clash::AboveMemory { window, memory } => format!(
                "{window} is more than {}: write a smaller {}, or {} or more",
                to("memory", memory),
                spell("window", None),
                to("memory", window)
            ),
        }
    }
}
