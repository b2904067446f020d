//! The engine's hints in the words of the command line.

use flatout_engine::{Feature, Hint, Word};
use flatout_settings::{Kind, knob};

/// A hint as the user of a terminal reads it: settings are flags, features are commands.
pub fn worded(hint: &Hint) -> String {
    hint.words().iter().map(word).collect()
}

/// A setting as one types it: `--region eu-west-1`.
pub fn flag(name: &str, value: Option<&str>) -> String {
    let is_switch = knob(name).is_some_and(|knob| knob.kind == Kind::Switch);
    match value.filter(|_| !is_switch) {
        Some(value) => format!("--{name} {value}"),
        None => format!("--{name}"),
    }
}

fn word(word: &Word) -> String {
    match word {
        Word::Text(text) => text.to_string(),
        Word::Setting { name, value } => flag(name, value.as_deref()),
        Word::Feature(feature) => match feature {
            Feature::Stat => "`flatout stat`".into(),
            Feature::List => "`flatout ls`".into(),
            Feature::Read => "`flatout cat`".into(),
            Feature::ShowSettings => "`flatout config show`".into(),
            Feature::NameSettings => "`flatout cp --help`".into(),
            Feature::ConfigPath => "`flatout config path`".into(),
            Feature::KeepExisting => "--no-clobber".into(),
            Feature::UnmountLazily(folder) => format!("`flatout umount --lazy {folder}`"),
        },
    }
}

#[cfg(test)]
mod tests {
    use flatout_engine::{setting, setting_to, text};

    use super::*;

    #[test]
    fn settings_are_flags_and_features_are_commands() {
        let check = |hint: Hint, expected: &str| assert_eq!(worded(&hint), expected);
        check([text("use "), setting_to("oss-region", "cn-hangzhou")].into(), "use --oss-region cn-hangzhou");
        check([text("with a smaller "), setting("parallel")].into(), "with a smaller --parallel");
        check([setting_to("no-sign-request", "true"), text(" is on")].into(), "--no-sign-request is on");
        check([Word::Feature(Feature::Stat), text(" tells it")].into(), "`flatout stat` tells it");
    }
}
