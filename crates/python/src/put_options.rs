//! What an object is stored with, and on which condition: keyword arguments of the verbs that write.

use flatout_wire::head::quoted;
use flatout_wire::object_options::{Condition, ObjectOptions};
use flatout_wire::time::format_http;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyMapping, PyString};

use crate::errors::Failure;
use crate::kind::kind;

/// The names, as an error lists them.
const NAMES: &str = "content_type, metadata, cache_control, content_disposition, content_encoding, \
                     content_language, expires, storage_class, acl, sse, sse_kms_key_id, tags, if_match, \
                     overwrite";

/// What an object is stored with, and on which condition.
#[derive(Clone, Debug, Default)]
pub struct PutOptions {
    pub stored_as: ObjectOptions,
    pub condition: Condition,
}

impl PutOptions {
    /// Reads keyword arguments; None stands for one that is not given.
    ///
    /// # Errors
    /// TypeError for an unknown name, or a value of another type.
    pub fn of(named: Option<&Bound<'_, PyDict>>) -> PyResult<PutOptions> {
        let (mut options, mut is_new_only) = (PutOptions::default(), false);
        let Some(named) = named else { return Ok(options) };
        let stored = &mut options.stored_as;
        for (name, value) in named.iter() {
            let name: String = name.extract()?;
            if value.is_none() {
                continue;
            }
            let place = match name.as_str() {
                "metadata" => {
                    stored.metadata = pairs(&name, &value)?;
                    continue;
                }
                "tags" => {
                    stored.tags = pairs(&name, &value)?;
                    continue;
                }
                "overwrite" => {
                    is_new_only = !value.is_truthy()?;
                    continue;
                }
                "if_match" => {
                    options.condition = Condition::Matches(quoted(&text(&name, &value)?).into_owned());
                    continue;
                }
                "expires" => {
                    stored.expires = Some(date(&value)?);
                    continue;
                }
                "content_type" => &mut stored.content_type,
                "cache_control" => &mut stored.cache_control,
                "content_disposition" => &mut stored.content_disposition,
                "content_encoding" => &mut stored.content_encoding,
                "content_language" => &mut stored.content_language,
                "storage_class" => &mut stored.storage_class,
                "acl" => &mut stored.acl,
                "sse" => &mut stored.sse,
                "sse_kms_key_id" => &mut stored.sse_kms_key_id,
                _ => {
                    return Err(PyTypeError::new_err(format!(
                        "no argument is called {name}; an object is stored with {NAMES}",
                        name = PyString::new(value.py(), &name).repr()?
                    )));
                }
            };
            *place = Some(text(&name, &value)?);
        }
        if is_new_only {
            if options.condition != Condition::None {
                let cause = "if_match names a version to replace, and overwrite=False replaces none";
                return Err(Failure::usage("write", cause).raise(named.py()));
            }
            options.condition = Condition::Absent;
        }
        Ok(options)
    }

    /// As keyword arguments, of what describes the content.
    pub fn named<'py>(self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let named = PyDict::new(py);
        let stored = self.stored_as;
        for (name, value) in [
            ("content_type", stored.content_type),
            ("cache_control", stored.cache_control),
            ("content_disposition", stored.content_disposition),
            ("content_encoding", stored.content_encoding),
            ("content_language", stored.content_language),
            ("expires", stored.expires),
        ] {
            if let Some(value) = value {
                named.set_item(name, value)?;
            }
        }
        named.set_item("metadata", stored.metadata.into_py_dict(py)?)?;
        named.set_item("tags", stored.tags.into_py_dict(py)?)?;
        Ok(named)
    }

    /// With the type that the extension of `name` says, where none was given.
    #[must_use]
    pub fn typed_by(mut self, name: &str) -> PutOptions {
        let guessed = || mime_guess::from_path(name).first_raw().map(str::to_owned);
        self.stored_as.content_type = self.stored_as.content_type.or_else(guessed);
        self
    }
}

fn text(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    value.extract().map_err(|_| PyTypeError::new_err(format!("{name} is a str, not {}", kind(value))))
}

/// A mapping of names to values.
fn pairs(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Vec<(String, String)>> {
    let of_text = || PyTypeError::new_err(format!("{name} is a dict of str to str, not {}", kind(value)));
    let items = value.cast::<PyMapping>().map_err(|_| of_text())?.items()?;
    items.iter().map(|item| item.extract::<(String, String)>().map_err(|_| of_text())).collect()
}

/// An HTTP date; of a datetime, or as it is written.
fn date(value: &Bound<'_, PyAny>) -> PyResult<String> {
    if !value.hasattr("timestamp")? {
        return text("expires", value);
    }
    let seconds: f64 = value.call_method0("timestamp")?.extract()?;
    Ok(format_http(seconds.max(0.0) as u64))
}
