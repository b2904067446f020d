//! How the writer of mode `"ab"` goes on with the object that is there.

use std::sync::Arc;

use flatout_engine::{AppendPosition, Dialect, ErrorKind, Get, Landing, Object, STREAM_ROOM_LEAST, Stat};
use flatout_wire::checksum::{Algorithm, Coverage};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};
use pyo3::prelude::*;

use crate::buffer::Buffer;
use crate::client::Client;
use crate::destination::Destination;
use crate::engine::Engine;
use crate::errors::{Failure, OrRaise};
use crate::put_options::PutOptions;

/// The object to which bytes are appended.
pub enum Before {
    Nothing,
    /// An empty object.
    Empty(Option<String>),
    /// The origin copies it.
    Copied(Object),
    /// A short object, which is sent again; and its ETag.
    Sent(Buffer, Option<String>),
    /// An object of OSS that takes appends.
    Grows(AppendPosition),
}

impl Before {
    /// Of the version that is there.
    pub fn etag(&self) -> Option<String> {
        match self {
            Before::Nothing | Before::Grows(_) => None,
            Before::Empty(etag) | Before::Sent(_, etag) => etag.clone(),
            Before::Copied(object) => object.etag.clone(),
        }
    }
}

/// Looks at the object, and adds to the options what it is stored with and that it must not have changed.
pub fn look(
    py: Python<'_>,
    client: &Client,
    engine: &Arc<Engine>,
    location: &Location,
    options: &mut PutOptions,
) -> PyResult<Before> {
    if options.condition != Condition::None {
        let cause = "mode 'ab' goes on with the version that is there: it takes no condition";
        return Err(Failure::usage("write", cause).raise(py));
    }
    let stat = match client.head(py, engine, location, None) {
        Ok(stat) => stat,
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyFileNotFoundError>(py) => {
            options.condition = Condition::Absent;
            return Ok(Before::Nothing);
        }
        Err(error) => return Err(error),
    };
    let size = crate::object_ref::size_of(&stat.version, location).or_raise(py)?;
    if stat.object_type.as_deref() == Some("Appendable") {
        return Ok(Before::Grows(AppendPosition { at: size, crc: crc(&stat) }));
    }
    let etag = stat.version.etag.clone().filter(|etag| !etag.starts_with("W/"));
    if let Some(etag) = &etag
        && Dialect::of(location) != Dialect::Oss
    {
        options.condition = Condition::Matches(etag.clone());
    }
    let described = ObjectOptions { storage_class: stat.storage_class.clone(), ..stat.described() };
    options.stored_as = std::mem::take(&mut options.stored_as).over(described);
    let object = Object { location: location.clone(), size, etag, modified_s: None };
    match size {
        0 => Ok(Before::Empty(object.etag)),
        _ if size >= STREAM_ROOM_LEAST && object.etag.is_some() => Ok(Before::Copied(object)),
        _ if size >= STREAM_ROOM_LEAST => {
            let cause = "the origin states no ETag that names one version of it: nothing can be added to it";
            Err(Failure::new(ErrorKind::Unsupported, "write", location, cause).raise(py))
        }
        _ => {
            let mut get = Get::new(location.clone(), Landing::Nowhere);
            if let Some(etag) = &object.etag {
                get = get.with_if_match(etag);
            }
            let (_, made) = client.run(py, engine, get, Destination::made(), None)?.or_raise(py)?;
            Ok(Before::Sent(made.into_buffer().or_raise(py)?, object.etag))
        }
    }
}

fn crc(stat: &Stat) -> Option<u64> {
    let is_of_all = |algorithm, kind| algorithm == Algorithm::Crc64Xz && kind == Coverage::Full;
    let crc = stat.checksums.iter().find(|stated| is_of_all(stated.algorithm, stated.kind));
    crc.map(|stated| stated.value)
}
