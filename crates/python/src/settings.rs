//! Settings as Python hands them over: a dict of knobs to the pairs of text that `ambient` takes.

use flatout_settings::{Group, KNOBS, Settings, knob, nearest};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyTuple};

use crate::errors::Failure;

/// Settings by name with their values as text, in the order given.
pub type Pairs = Vec<(&'static str, String)>;

/// Parses a dict of settings. A value of `None` counts as not given; a list gives a repeatable setting
/// several values.
pub fn pairs(settings: &Bound<'_, PyDict>) -> PyResult<Pairs> {
    let mut pairs = Pairs::new();
    for (name, value) in settings {
        let name = name.extract::<String>()?;
        let known = knob(&name.replace('_', "-")).filter(|knob| knob.group != Group::Mount);
        let Some(knob) = known else { return Err(unknown(&name).raise(settings.py())) };
        if value.is_none() {
            continue;
        }
        let values = match value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            true => value.try_iter()?.map(|value| text(&value?)).collect::<PyResult<Vec<_>>>()?,
            false => vec![text(&value)?],
        };
        for value in values {
            Settings::default()
                .set(knob.name, &value)
                .map_err(|wrong| Failure::from(wrong).raise(settings.py()))?;
            pairs.push((knob.name, value));
        }
    }
    Ok(pairs)
}

/// The value as text, as the config file has it.
fn text(value: &Bound<'_, PyAny>) -> PyResult<String> {
    match value.extract::<bool>() {
        Ok(on) if value.is_instance_of::<PyBool>() => Ok(on.to_string()),
        _ => Ok(value.str()?.to_string_lossy().into_owned()),
    }
}

fn unknown(name: &str) -> Failure {
    let failure = Failure::usage("settings", format!("there is no setting '{name}'"));
    let names = KNOBS.iter().filter(|knob| knob.group != Group::Mount).map(|knob| knob.name);
    if ["key", "secret", "token", "password"].iter().any(|word| name.contains(word)) {
        return failure.with_hint(
            "keys are no settings: they come from variables such as AWS_SECRET_ACCESS_KEY, from profiles or from the machine's role",
        );
    }
    match nearest(&name.replace('_', "-"), names) {
        Some(nearest) => failure.with_hint(format!("did you mean '{}'?", nearest.replace('-', "_"))),
        None => failure.with_hint("docs/settings.md names them all, with '_' for '-' here"),
    }
}

/// The name of a setting whose value holds a password, which must not get into a pickle.
pub fn with_password(pairs: &Pairs) -> Option<&'static str> {
    pairs.iter().find(|(name, value)| has_password(name, value)).map(|(name, _)| *name)
}

/// A URL with a user in it; an address may come without its scheme.
pub fn has_password(name: &str, value: &str) -> bool {
    value.contains('@') && (is_address(name) || value.contains("://"))
}

/// Whether a setting is an address: its value has an `@` only behind a user.
pub fn is_address(name: &str) -> bool {
    matches!(name, "endpoint-url" | "oss-endpoint" | "proxy")
}
