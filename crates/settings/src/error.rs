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

    /// Of the right kind, but too small or too large.
    #[error("{knob}: {value} is out of bounds: write {min} to {max}")]
    Bounds { knob: &'static str, value: String, min: String, max: String },

    /// Each setting is good by itself, the two together are not.
    #[error(
        "{knob} {value} is too small for {other} {other_value}: write {knob} {wanted} or more, or a smaller {other}"
    )]
    Together { knob: &'static str, value: String, other: &'static str, other_value: String, wanted: String },
}
