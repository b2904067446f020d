//! What a Python object is, for errors.

use pyo3::prelude::*;

/// The name of its type.
pub fn kind(value: &Bound<'_, PyAny>) -> String {
    value.get_type().name().map_or_else(|_| "object".to_owned(), |name| name.to_string())
}
