//! The order in which a knob's value is looked for: flag, `FLATOUT_*`, what others have set, default.

use flatout_settings::{KNOBS, Kind, Knob, Settings};

use crate::{AmbientError, Lookup, text};

/// Variables of other tools that mean the same as a knob of ours, the first that is set wins.
/// `S3_ENDPOINT_URL` is s5cmd's; the others are AWS's, the service's own before the general one.
const FOUND: &[(&str, &[&str])] = &[
    ("endpoint-url", &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"]),
    ("region", &["AWS_REGION", "AWS_DEFAULT_REGION"]),
];

/// Settings out of all layers, each value checked, then all of them together.
pub(crate) fn settings(flags: &[(&str, String)], lookup: Lookup) -> Result<Settings, AmbientError> {
    let mut settings = Settings::default();
    for knob in KNOBS {
        for (place, value) in values(knob, flags, lookup)? {
            settings
                .set(knob.name, &value)
                .map_err(|cause| AmbientError::Setting { place, cause: Box::new(cause) })?;
        }
    }
    settings.check().map_err(|cause| AmbientError::Together(Box::new(cause)))?;
    Ok(settings)
}

/// Where a value stands and what it is, from the first layer that has one; several for repeatable knobs.
fn values(
    knob: &Knob,
    flags: &[(&str, String)],
    lookup: Lookup,
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
    if let Some(value) = text(lookup, &own)? {
        return Ok(split(knob, &value).map(|value| (own.clone(), value)).collect());
    }
    for name in found_names(knob.name) {
        if let Some(value) = text(lookup, name)? {
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
