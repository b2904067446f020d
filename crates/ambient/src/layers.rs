//! The order in which a knob's value is looked for: flag, `FLATOUT_*`, what others have set, default.

use flatout_settings::{KNOBS, Kind, Knob, Settings, nearest};

use crate::{AmbientError, Environment, text};

/// Variables of other tools that mean the same as a knob of ours, the first that is set wins.
/// `S3_ENDPOINT_URL` is s5cmd's; the others are AWS's, the service's own before the general one.
const FOUND: &[(&str, &[&str])] = &[
    ("endpoint-url", &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"]),
    ("region", &["AWS_REGION", "AWS_DEFAULT_REGION"]),
];

/// Where a script of this repository keeps what it downloads: of our prefix, and no setting.
const NO_SETTING: &str = "FLATOUT_CACHE";

/// Settings out of all layers, each value checked, then all of them together.
pub(crate) fn settings(
    flags: &[(&str, String)],
    environment: &Environment,
) -> Result<Settings, AmbientError> {
    refuse_unknown(environment)?;
    let mut settings = Settings::default();
    let mut window_set = false;
    for knob in KNOBS {
        for (place, value) in values(knob, flags, environment)? {
            window_set |= knob.name == "window";
            settings
                .set(knob.name, &value)
                .map_err(|cause| AmbientError::Setting { place, cause: Box::new(cause) })?;
        }
    }
    if !window_set {
        settings.fit_window();
    }
    settings.check().map_err(|cause| AmbientError::Together(Box::new(cause)))?;
    Ok(settings)
}

/// A misspelled variable would be a setting that silently is not there. One that is empty counts as not set.
fn refuse_unknown(environment: &Environment) -> Result<(), AmbientError> {
    for (name, value) in environment {
        let name = name.to_string_lossy();
        let Some(own) = name.strip_prefix("FLATOUT_") else { continue };
        if value.is_empty() || name == NO_SETTING || KNOBS.iter().any(|knob| knob.env() == name) {
            continue;
        }
        let nearest = nearest(own, KNOBS.iter().map(|knob| knob.name)).and_then(flatout_settings::knob);
        return Err(AmbientError::Unknown { name: name.into_owned(), nearest: nearest.map(Knob::env) });
    }
    Ok(())
}

/// Where a value stands and what it is, from the first layer that has one; several for repeatable knobs.
fn values(
    knob: &Knob,
    flags: &[(&str, String)],
    environment: &Environment,
) -> Result<Vec<(String, String)>, AmbientError> {
    let given: Vec<_> = flags
        .iter()
        .filter(|(name, _)| *name == knob.name)
        .map(|(name, value)| (format!("--{name}"), value.clone()))
        .collect();
    if !given.is_empty() {
        return Ok(given);
    }
    let own = knob.env();
    if let Some(value) = text(environment, &own)? {
        return Ok(split(knob, &value).map(|value| (own.clone(), value)).collect());
    }
    for name in found_names(knob.name) {
        if let Some(value) = text(environment, name)? {
            return Ok(vec![((*name).to_owned(), value)]);
        }
    }
    Ok(Vec::new())
}

/// A repeatable knob's variable holds several values with white space between; any other is one value.
fn split<'a>(knob: &Knob, value: &'a str) -> Box<dyn Iterator<Item = String> + 'a> {
    match knob.kind {
        Kind::Many => Box::new(value.split_whitespace().map(str::to_owned)),
        _ => Box::new(std::iter::once(value.to_owned())),
    }
}

fn found_names(knob: &str) -> &'static [&'static str] {
    FOUND.iter().find(|(name, _)| *name == knob).map_or(&[], |(_, names)| names)
}
