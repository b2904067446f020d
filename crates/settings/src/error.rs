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
    #[error("--{knob} {cause}")]
    Together { knob: &'static str, other: &'static str, cause: String },
}
