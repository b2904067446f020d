//! The order in which a knob's value is looked for: flag, `FLATOUT_*`, our config file, what others have set,
//! default.

use std::fmt;

use flatout_settings::{KNOBS, Kind, Knob, Settings, nearest};

use crate::config_file::{self, ConfigEntry};
use crate::found::FoundSetting;
use crate::mask::masked;
use crate::{AmbientError, Environment, text};

/// A layer, the stronger first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    /// The command line.
    Flag,
    /// A variable `FLATOUT_*`.
    Environment,
    /// The chosen profile of our config file.
    Profile,
    /// Another tool's variable or file, or what follows from another setting.
    Found,
    /// No layer has a value.
    Default,
}

/// A knob's value and where it came from.
#[derive(Clone, PartialEq, Eq)]
pub struct SettingRow {
    /// The knob; `http-proxy` and `https-proxy` too, which only variables set.
    pub name: &'static str,
    /// As written; none where nothing is set, several for a repeatable knob.
    pub values: Vec<String>,
    /// Which layer said so.
    pub layer: Layer,
    /// The flag, the variable or the place in a file; empty for most defaults.
    pub place: String,
}

/// An endpoint's or a proxy's URL may hold a password.
impl fmt::Debug for SettingRow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values: Vec<String> = self.values.iter().map(|value| masked(value)).collect();
        write!(out, "{} = {values:?} ({:?} {})", self.name, self.layer, self.place)
    }
}

impl Layer {
    /// In lower case, for people and for JSON.
    pub fn name(self) -> &'static str {
        match self {
            Layer::Flag => "flag",
            Layer::Environment => "environment",
            Layer::Profile => "profile",
            Layer::Found => "found",
            Layer::Default => "default",
        }
    }
}

/// Variables of our prefix that are no knobs: the config file's name, and where a script of this repository
/// keeps what it downloads.
const NO_KNOBS: &[&str] = &[config_file::VARIABLE, "FLATOUT_CACHE"];

/// All layers but the default, each as it was read.
pub(crate) struct Layers<'a> {
    /// By knob, in the order given.
    pub flags: &'a [(&'a str, String)],
    pub environment: &'a Environment,
    /// The chosen profile.
    pub profile: &'a [ConfigEntry],
    /// The stronger first.
    pub found: &'a [FoundSetting],
}

/// The names that set a knob on the command line. OSS's endpoint and region may also be given under the
/// general names, so that `--endpoint-url` serves whichever dialect the location names; the special name
/// wins.
fn names(knob: &'static Knob) -> &'static [&'static str] {
    match knob.name {
        "oss-endpoint" => &["oss-endpoint", "endpoint-url"],
        "oss-region" => &["oss-region", "region"],
        _ => std::slice::from_ref(&knob.name),
    }
}

impl Layers<'_> {
    /// The value of the strongest layer that has one; of the word that leaves a number open, what was found.
    pub fn row(&self, knob: &'static Knob) -> Result<SettingRow, AmbientError> {
        let row = self.strongest(knob)?;
        let leaves_open = |word: &str| row.values.iter().all(|value| value.trim().eq_ignore_ascii_case(word));
        let found = self.found(knob).filter(|_| knob.word().is_some_and(leaves_open));
        Ok(found.unwrap_or(row))
    }

    fn strongest(&self, knob: &'static Knob) -> Result<SettingRow, AmbientError> {
        let row = |values, layer, place| SettingRow { name: knob.name, values, layer, place };
        for name in names(knob) {
            if let Some(values) = self.flag(name) {
                return Ok(row(values, Layer::Flag, format!("--{name}")));
            }
        }
        // What stands there for good may be meant for S3 alone: once OSS has a word of its own, the general
        // ones do not count for it.
        let standing = match names(knob) {
            [special, _] if self.speaks_of_oss()? => std::slice::from_ref(special),
            names => names,
        };
        for name in standing {
            let variable = flatout_settings::knob(name).expect("names are knobs").env();
            if let Some(value) = text(self.environment, &variable)? {
                return Ok(row(split(knob, value), Layer::Environment, variable));
            }
        }
        for name in standing {
            if let Some(entry) = self.profile.iter().find(|entry| entry.knob.name == *name) {
                let place = format!("{}: {name}", entry.place);
                return Ok(row(entry.values.clone(), Layer::Profile, place));
            }
        }
        let default = (!knob.default.is_empty()).then(|| knob.default.to_owned());
        let default = row(default.into_iter().collect(), Layer::Default, String::new());
        Ok(self.found(knob).unwrap_or(default))
    }

    fn found(&self, knob: &'static Knob) -> Option<SettingRow> {
        let FoundSetting { value, place, .. } = self.found.iter().find(|found| found.knob == knob.name)?;
        Some(SettingRow {
            name: knob.name,
            values: vec![value.clone()],
            layer: Layer::Found,
            place: place.clone(),
        })
    }

    /// Whether any layer has an endpoint or a region of OSS's own.
    fn speaks_of_oss(&self) -> Result<bool, AmbientError> {
        for name in ["oss-endpoint", "oss-region"] {
            let variable = flatout_settings::knob(name).expect("names are knobs").env();
            if self.flag(name).is_some()
                || text(self.environment, &variable)?.is_some()
                || self.profile.iter().any(|entry| entry.knob.name == name)
                || self.found.iter().any(|found| found.knob == name)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Every value that a flag was given; the last alone unless it is repeatable, which `Settings::set` sees
    /// to.
    fn flag(&self, name: &str) -> Option<Vec<String>> {
        let values: Vec<String> =
            self.flags.iter().filter(|(given, _)| *given == name).map(|(_, value)| value.clone()).collect();
        (!values.is_empty()).then_some(values)
    }
}

/// One row for each knob, in the order of the table, and the settings that they make.
pub(crate) fn settle(layers: &Layers<'_>) -> Result<(Settings, Vec<SettingRow>), AmbientError> {
    let mut settings = Settings::default();
    let rows = KNOBS.iter().map(|knob| layers.row(knob)).collect::<Result<Vec<_>, _>>()?;
    for row in rows.iter().filter(|row| row.layer != Layer::Default) {
        for value in &row.values {
            settings.set(row.name, value).map_err(|cause| AmbientError::Setting {
                place: row.place.clone(),
                cause: Box::new(cause),
            })?;
        }
    }
    settings.check().map_err(|cause| {
        let window = rows.iter().find(|row| row.name == "window").expect("window is a knob");
        AmbientError::Setting { place: window.place.clone(), cause: Box::new(cause) }
    })?;
    Ok((settings, rows))
}

/// A misspelled variable would be a setting that silently is not there. One that is empty counts as not set.
pub(crate) fn refuse_unknown(environment: &Environment) -> Result<(), AmbientError> {
    for (name, value) in environment {
        let name = name.to_string_lossy();
        let Some(own) = name.strip_prefix("FLATOUT_") else { continue };
        let known = NO_KNOBS.contains(&name.as_ref()) || KNOBS.iter().any(|knob| knob.env() == name);
        if value.is_empty() || known {
            continue;
        }
        let nearest = nearest(own, KNOBS.iter().map(|knob| knob.name).chain(["config"]));
        let nearest = nearest.map(|name| format!("FLATOUT_{}", name.to_ascii_uppercase().replace('-', "_")));
        return Err(AmbientError::Unknown { name: name.into_owned(), nearest });
    }
    Ok(())
}

/// A repeatable knob's variable holds several values with white space between; any other is one value.
fn split(knob: &Knob, value: String) -> Vec<String> {
    match knob.kind {
        Kind::Many => value.split_whitespace().map(str::to_owned).collect(),
        _ => vec![value],
    }
}
