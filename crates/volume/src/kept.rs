//! Indexes that are objects, and the files that keep them.

use std::path::PathBuf;

use flatout_engine::{Get, Landing};
use flatout_erofs::{Index, IndexError, ReadAt};
use flatout_settings::Settings;
use flatout_wire::checksum::Algorithm;
use flatout_wire::location::Location;

/// The name of a file that keeps something of `location`: another origin, or another version where one is
/// given, has another name.
pub fn kept_name(location: &Location, settings: &Settings, etag: Option<&str>) -> String {
    let location = location.to_string();
    let mut about = vec![
        location.as_str(),
        settings.endpoint_url.as_deref().unwrap_or_default(),
        settings.oss_endpoint.as_deref().unwrap_or_default(),
        settings.region.as_deref().unwrap_or_default(),
    ];
    about.extend(etag);
    format!("{:016x}.flat", Algorithm::Crc64Xz.of(about.join("\n").as_bytes()))
}

/// A get of that version of an object, into a file.
pub fn get_version(object: &Location, etag: Option<&str>, to: PathBuf) -> Get {
    let get = Get::new(object.clone(), Landing::File(to));
    match etag {
        Some(etag) => get.with_if_match(etag.to_owned()),
        None => get,
    }
}

/// [`Index::id`] as text, for who writes it down.
///
/// # Errors
/// The index cannot be read.
pub fn index_id<R: ReadAt>(index: &Index<R>) -> Result<String, IndexError> {
    Ok(index.id()?.map(|byte| format!("{byte:02x}")).concat())
}
