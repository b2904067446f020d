//! From what was typed as an index to a file: one that is there, an object that is fetched, or the objects
//! under a prefix, whose index is built and kept in the cache folder.

use std::fs::{self, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use flatout_engine::{Client, Dialect, ErrorKind, Stat};
use flatout_erofs::Index;
use flatout_wire::location::Location;

use super::build;
use crate::args::IndexedFrom;
use crate::console::{Carries, Console};
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::progress::Bar;
use crate::{origin, outages};

/// Where an index is.
pub enum Place {
    File(PathBuf),
    /// An object that is an index.
    Object(Location, Box<Stat>),
    /// Objects of which an index is kept in the cache folder.
    Prefix(Location),
}

/// A file with an index.
pub struct Found {
    pub path: PathBuf,
    /// It was there before, and the origin was not asked for names.
    pub is_kept: bool,
}

impl Place {
    /// What `typed` means.
    ///
    /// # Errors
    /// A URL of no bucket; the origin's refusal.
    pub fn of(doing: &str, typed: &str, knobs: &Knobs, console: &Console) -> Result<Place, Failure> {
        if !typed.contains("://") {
            return Ok(Place::File(typed.into()));
        }
        let location = in_bucket(doing, typed)?;
        if location.key().is_empty() || location.key().ends_with('/') {
            return Ok(Place::Prefix(location));
        }
        let client = client(&location, knobs, console)?;
        match client.stat(&location) {
            Ok(stat) => Ok(Place::Object(location, Box::new(stat))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Place::Prefix(folder(&location))),
            Err(error) => Err(error.into()),
        }
    }

    /// The file, fetched or built if need be.
    ///
    /// # Errors
    /// The origin's refusal; no folder to keep it in.
    pub fn file(&self, doing: &'static str, knobs: &Knobs, console: &Console) -> Result<Found, Failure> {
        match self {
            // What a mount of it has noted.
            Place::File(path) => {
                let path = path.canonicalize().unwrap_or_else(|_| path.clone());
                Ok(Found { path, is_kept: true })
            }
            Place::Object(location, stat) => {
                let path = kept(location, knobs)?;
                if !is_version(&path, stat) {
                    fetch(location, stat, &path, knobs, console)?;
                }
                let index = flatout_volume::open_index(doing, &path).map_err(|error| {
                    let failure = Failure::from(error);
                    let message = failure.message.replace(&path.display().to_string(), &location.to_string());
                    let failure = Failure { message, ..failure };
                    match File::open(&path).is_ok_and(flatout_volume::is_replaceable) {
                        // One that is damaged, or newer: it says so.
                        true => failure,
                        false => failure.with_hint(
                            "name an index, or a prefix with a slash at its end, whose index is built first",
                        ),
                    }
                })?;
                check_source(doing, location, index.source())?;
                note_version(&path, stat.version.etag.as_deref());
                Ok(Found { path, is_kept: false })
            }
            Place::Prefix(location) => {
                let path = kept(location, knobs)?;
                let is_of_it = |index: Index<File>| index.source() == location.to_string();
                if flatout_volume::open_index(doing, &path).is_ok_and(is_of_it) {
                    return Ok(Found { path, is_kept: true });
                }
                let built = build::build(doing, location, &path, &IndexedFrom::default(), knobs, console)?;
                built.publish()?;
                Ok(Found { path, is_kept: false })
            }
        }
    }
}

/// Refuses an index of another bucket than its own: whoever can write the index would choose which bucket is
/// read with this user's keys.
fn check_source(doing: &str, location: &Location, source: &str) -> Result<(), Failure> {
    let named = Location::parse(source).ok();
    let is_own = named.is_some_and(|named| {
        named.scheme() == location.scheme() && named.bucket().is_some() && named.bucket() == location.bucket()
    });
    match is_own {
        true => Ok(()),
        false => {
            Err(Failure::usage(format!("{doing}: {location}: it is an index of another bucket, {source}"))
                .with_hint("where you trust it, fetch it by `flatout cp` and name the file"))
        }
    }
}

/// A bucket, or what lies in one.
///
/// # Errors
/// Anything else.
pub fn in_bucket(doing: &str, typed: &str) -> Result<Location, Failure> {
    let location = origin::location(doing, typed)?;
    match location.in_bucket() {
        Some(_) => Ok(location),
        None => Err(Failure::usage(format!("{doing}: {location}: a web server has no listing to index"))
            .with_hint("name s3://BUCKET[/PREFIX] or oss://BUCKET[/PREFIX]")),
    }
}

/// As a folder: a key ends in a slash.
pub fn folder(location: &Location) -> Location {
    let key = location.key();
    match key.is_empty() || key.ends_with('/') {
        true => location.clone(),
        false => location.with_key(format!("{key}/")).unwrap_or_else(|| location.clone()),
    }
}

/// An engine for this location.
///
/// # Errors
/// Settings that make no sense.
pub fn client(
    location: &Location,
    knobs: &Knobs,
    console: &Console,
) -> Result<std::sync::Arc<Client>, Failure> {
    let client = origin::client(console, knobs, &[Dialect::of(location)])?;
    outages::tell_without_bar(&client, console);
    Ok(client)
}

/// Where the index of an object or a prefix of this origin is kept.
fn kept(location: &Location, knobs: &Knobs) -> Result<PathBuf, Failure> {
    let settings = flatout_ambient::gather(knobs.given())?.settings;
    let folder = flatout_ambient::cache_folder().map(|cache| cache.join("volumes")).ok_or_else(|| {
        Failure::usage(format!("volume: {location}: there is no cache folder to keep its index in"))
            .with_hint("set HOME or XDG_CACHE_HOME, or build the index into a file: `flatout volume build`")
    })?;
    // Names of keys are nobody else's business.
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|error| Failure::local("keep", folder.display(), &error))?;
    Ok(folder.join(flatout_volume::kept_name(location, &settings, None)))
}

/// Whether the index that is kept is this version of its object.
fn is_version(path: &Path, stat: &Stat) -> bool {
    let Ok(noted) = fs::read_to_string(path.with_extension("version")) else { return false };
    version(path, stat.version.etag.as_deref()).is_some_and(|version| version == noted)
}

/// Notes which version of its object is kept. Without the note it is fetched again.
pub fn note_version(path: &Path, etag: Option<&str>) {
    if let Some(version) = version(path, etag) {
        let _ = fs::write(path.with_extension("version"), version);
    }
}

/// An object's version, and the index that it is.
fn version(path: &Path, etag: Option<&str>) -> Option<String> {
    let index = flatout_volume::open_index("look at", path).ok()?;
    let id = flatout_volume::index_id(&index).ok()?;
    Some(format!("{}\n{id}\n", etag?))
}

fn fetch(
    location: &Location,
    stat: &Stat,
    path: &Path,
    knobs: &Knobs,
    console: &Console,
) -> Result<(), Failure> {
    let client = client(location, knobs, console)?;
    let armed = console.interrupt.arm();
    let get = flatout_volume::get_version(location, stat.version.etag.as_deref(), path.to_owned());
    let transfer = client.get(get)?;
    let switch = transfer.cancel_switch();
    armed.on_signal(move || switch.cancel());
    Bar::new(console, Carries::Lines, location.name()).follow(&transfer);
    transfer.wait()?;
    Ok(())
}
