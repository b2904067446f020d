//! Parses the arguments of calls. One of a wrong type is refused by its name, with what to pass
//! instead.

use std::path::PathBuf;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::kind::kind;
use crate::object_meta::ObjectMeta;
use crate::object_ref::two_ranges;
use crate::span::one_of;

/// The two ends of a slice.
pub type Ends = (Option<i64>, Option<i64>);

pub fn url(value: &Bound<'_, PyAny>) -> PyResult<String> {
    url_named("url", value)
}

fn url_named(name: &str, value: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(url) = value.cast::<PyString>() {
        return Ok(url.to_str()?.to_owned());
    }
    let kind = kind(value);
    let why =
        if value.hasattr("__fspath__")? { ": a path makes one '/' of the two behind 's3:'" } else { "" };
    Err(PyTypeError::new_err(format!("{name} is a str such as 's3://BUCKET/KEY', not {kind}{why}")))
}

/// An int or None.
fn integer(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if value.is_none() {
        return Ok(None);
    }
    wanted_of(name, "an int", value, value.extract::<i64>()).map(Some)
}

fn wanted_of(name: &str, wanted: &str, value: &Bound<'_, PyAny>, extracted: PyResult<i64>) -> PyResult<i64> {
    extracted.map_err(|error| match error.is_instance_of::<PyTypeError>(value.py()) {
        true => PyTypeError::new_err(format!("{name} is {wanted}, not {}", kind(value))),
        // It has an int to give, and that has more than 64 bits.
        false => PyValueError::new_err(format!("{name} is {value}, and nothing is so long")),
    })
}

/// An int that does not count from the end, or None.
fn count(name: &str, value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let Some(value) = integer(name, value)? else { return Ok(None) };
    let count = u64::try_from(value);
    count.map(Some).map_err(|_| PyValueError::new_err(format!("{name} is {value}, and counts from 0 on")))
}

fn wanted<T>(name: &str, value: Option<T>) -> PyResult<T> {
    value.ok_or_else(|| PyTypeError::new_err(format!("{name} is an int, not NoneType")))
}

pub fn start(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    integer("start", value)
}

pub fn end(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    integer("end", value)
}

pub fn offset(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    let negative = integer("offset", value)?.filter(|offset| *offset < 0);
    match negative {
        None => count("offset", value),
        Some(offset) => Err(PyValueError::new_err(format!(
            "offset is {offset}, and counts from 0 on: start={offset} counts from the end"
        ))),
    }
}

/// The offset of a read.
pub fn place(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    wanted("offset", count("offset", value)?)
}

pub fn length(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    count("length", value)
}

pub fn size(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    count("size", value)
}

/// How many bytes to read; -1 means all.
pub fn n(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    wanted("n", integer("n", value)?)
}

pub fn max_gap(value: &Bound<'_, PyAny>) -> PyResult<Option<u64>> {
    count("max_gap", value)
}

pub fn concurrency(value: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    integer("concurrency", value)
}

/// Seconds, as an int or a timedelta.
pub fn expires(value: &Bound<'_, PyAny>) -> PyResult<u64> {
    let seconds = match value.hasattr("total_seconds")? {
        true => value.call_method0("total_seconds")?.extract::<f64>()?.floor() as i64,
        false => wanted_of("expires", "an int of seconds or a timedelta", value, value.extract::<i64>())?,
    };
    u64::try_from(seconds).map_err(|_| {
        PyValueError::new_err(format!("expires is {value}, and a presigned URL works from now on"))
    })
}

/// A sequence of pairs (start, end).
pub fn ranges(value: &Bound<'_, PyAny>) -> PyResult<Vec<Ends>> {
    let many = value.try_iter().map_err(|_| {
        PyTypeError::new_err(format!("ranges is a list of pairs (start, end), not {}", kind(value)))
    })?;
    many.enumerate().map(|(at, pair)| ends(&format!("ranges[{at}]"), &pair?)).collect()
}

fn ends(name: &str, pair: &Bound<'_, PyAny>) -> PyResult<Ends> {
    let items: Option<Vec<Bound<'_, PyAny>>> = match pair.is_instance_of::<PyString>() {
        true => None,
        false => pair.try_iter().ok().map(Iterator::collect).transpose()?,
    };
    match items.as_deref() {
        Some([start, end]) => Ok((integer(name, start)?, integer(name, end)?)),
        _ => Err(PyTypeError::new_err(format!("{name} is a pair (start, end), not {}", kind(pair)))),
    }
}

/// A sequence of pairs (url, path).
pub fn pairs(value: &Bound<'_, PyAny>) -> PyResult<Vec<(String, PathBuf)>> {
    let pair = |(at, (url, path)): (usize, (Bound<'_, PyAny>, Bound<'_, PyAny>))| {
        Ok((url_named(&format!("pairs[{at}][0]"), &url)?, path_named(&format!("pairs[{at}][1]"), &path)?))
    };
    two_of_each("(url, path)", value)?.into_iter().enumerate().map(pair).collect()
}

/// A sequence of pairs (path, url).
pub fn path_pairs(value: &Bound<'_, PyAny>) -> PyResult<Vec<(PathBuf, String)>> {
    let pair = |(at, (path, url)): (usize, (Bound<'_, PyAny>, Bound<'_, PyAny>))| {
        Ok((path_named(&format!("pairs[{at}][0]"), &path)?, url_named(&format!("pairs[{at}][1]"), &url)?))
    };
    two_of_each("(path, url)", value)?.into_iter().enumerate().map(pair).collect()
}

fn two_of_each<'py>(
    form: &str,
    value: &Bound<'py, PyAny>,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let many = value
        .try_iter()
        .map_err(|_| PyTypeError::new_err(format!("pairs is a list of {form}, not {}", kind(value))))?;
    let pair = |(at, pair): (usize, PyResult<Bound<'py, PyAny>>)| {
        let pair = pair?;
        pair.extract()
            .map_err(|_| PyTypeError::new_err(format!("pairs[{at}] is {form}, not {}", kind(&pair))))
    };
    many.enumerate().map(pair).collect()
}

fn path_named(name: &str, value: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    value.extract().map_err(|_| PyTypeError::new_err(format!("{name} is a path, not {}", kind(value))))
}

pub fn source(value: &Bound<'_, PyAny>) -> PyResult<String> {
    url_named("source", value)
}

pub fn target(value: &Bound<'_, PyAny>) -> PyResult<String> {
    url_named("target", value)
}

/// An iterable of URLs, or of entries of a listing.
pub fn urls_to_delete(value: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    if is_one_url(value) {
        return Err(PyTypeError::new_err(format!(
            "urls is a list of URLs, not one {}: write delete(url)",
            kind(value)
        )));
    }
    let each = |(at, url): (usize, PyResult<Bound<'_, PyAny>>)| {
        let url = url?;
        match url.cast::<ObjectMeta>() {
            Ok(info) => Ok(info.get().url.clone()),
            Err(_) => url_named(&format!("urls[{at}]"), &url),
        }
    };
    value.try_iter()?.enumerate().map(each).collect()
}

/// A str is an iterable of str.
fn is_one_url(value: &Bound<'_, PyAny>) -> bool {
    value.is_instance_of::<PyString>()
        || value.is_instance_of::<PyBytes>()
        || value.is_instance_of::<PyByteArray>()
}

/// An iterable of URLs. A single URL is refused, although a str is an iterable of str.
pub fn urls<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match is_one_url(value) {
        true => Err(PyTypeError::new_err(format!(
            "urls is a list of URLs, not one {}: write read_many([url])",
            kind(value)
        ))),
        false => Ok(value.clone()),
    }
}

/// For asyncio: the ends of the range of a read, however the caller names them.
#[pyfunction]
#[pyo3(signature = (start, end, offset=None, length=None))]
pub fn one_range(
    py: Python<'_>,
    #[pyo3(from_py_with = start)] start: Option<i64>,
    #[pyo3(from_py_with = end)] end: Option<i64>,
    #[pyo3(from_py_with = offset)] offset: Option<u64>,
    #[pyo3(from_py_with = length)] length: Option<u64>,
) -> PyResult<Ends> {
    one_of((start, end), offset, length).ok_or_else(|| two_ranges().raise(py))
}

/// For asyncio: checks ranges.
#[pyfunction]
pub fn ends_of(#[pyo3(from_py_with = ranges)] ranges: Vec<Ends>) -> Vec<Ends> {
    ranges
}

/// For asyncio: checks pairs of URL and path.
#[pyfunction]
pub fn pairs_of(#[pyo3(from_py_with = pairs)] pairs: Vec<(String, PathBuf)>) -> Vec<(String, PathBuf)> {
    pairs
}

/// For asyncio: checks pairs of path and URL.
#[pyfunction]
pub fn path_pairs_of(
    #[pyo3(from_py_with = path_pairs)] pairs: Vec<(PathBuf, String)>,
) -> Vec<(PathBuf, String)> {
    pairs
}

/// For asyncio: checks an iterable of URLs.
#[pyfunction]
pub fn urls_of<'py>(#[pyo3(from_py_with = urls)] urls: Bound<'py, PyAny>) -> Bound<'py, PyAny> {
    urls
}
