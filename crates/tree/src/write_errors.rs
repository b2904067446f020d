//! Why a file cannot be written or published, as its writer hears of it.

use std::path::Path;

use flatout_engine::{Error, ErrorKind, setting, text};
use flatout_wire::location::Location;

use crate::fs_error::FsError;
use crate::store::ObjectUpload;

pub(crate) fn ended<U: ObjectUpload>(upload: U) -> FsError {
    match upload.finish() {
        Err(error) => not_published(error),
        // It has ended, and has its object: what follows is lost.
        Ok(_) => FsError::of(libc::EIO),
    }
}

/// A failed upload as the writer hears of it. A version that was replaced by another client, and an object
/// that was to be new, are told apart.
pub(crate) fn not_published(error: Error) -> FsError {
    if error.is_there() {
        return FsError::because(libc::EEXIST, error);
    }
    match error.kind() {
        // The bucket: a writer takes ENOENT for its file's name.
        ErrorKind::NotFound => FsError::because(libc::EIO, error),
        _ => error.into(),
    }
}

pub(crate) fn lost_with_process(location: &Location) -> FsError {
    let cause = "what was written and not sent is gone with the process that served the mount";
    let error = Error::new(ErrorKind::LocalIo, cause)
        .during("write", location)
        .with_hint("write it again from its start");
    FsError::because(libc::EIO, error)
}

pub(crate) fn elsewhere(location: &Location, at: u64, end: u64) -> FsError {
    let cause = format!(
        "a write at byte {at} of a file that ends at {end}: files are written from their start to their end"
    );
    let error = Error::new(ErrorKind::Unsupported, cause).during("write", location).with_hint([
        setting("staging"),
        text(" names a local folder, by which files can be written in any order"),
    ]);
    error.into()
}

pub(crate) fn cannot_cut(location: &Location, from: u64, size: u64) -> FsError {
    let cause = format!("its {from} bytes cannot be made {size}: a file is cut to nothing, or replaced");
    Error::new(ErrorKind::Unsupported, cause)
        .during("truncate", location)
        .with_hint([setting("staging"), text(" names a local folder, by which files can have any length")])
        .into()
}

pub(crate) fn unpublished(location: &Location) -> Error {
    Error::new(ErrorKind::Unsupported, "it is being written, and has not been closed yet")
        .during("read", location)
        .with_hint("read it once its writer has closed it")
}

/// What is uploaded late must not replace what is newer.
pub(crate) fn replaced_since(location: &Location) -> FsError {
    let cause = "another client has replaced or removed it since: what was staged stays on the disk";
    Error::new(ErrorKind::Changed, cause).during("upload", location).into()
}

/// The upload stopped, since the name of its file is being removed.
pub(crate) fn withdrawn(location: &Location) -> FsError {
    Error::new(ErrorKind::Cancelled, "its name is being removed").during("upload", location).into()
}

/// For people: no mount takes what was written any more.
pub(crate) fn kept_aside(location: &Location, path: &Path) -> Error {
    let (data, conflict) = (path.display(), path.with_extension("conflict"));
    let cause = format!(
        "another client has replaced it: what was written here is kept in {data}, and {} says which bytes",
        conflict.display()
    );
    Error::new(ErrorKind::Changed, cause)
        .during("upload", location)
        .with_hint("delete both once they are of no use")
}

/// The next mount would not know of it.
pub(crate) fn not_noted(location: &Location, error: &FsError) -> Error {
    let cause = format!("{error}; and the disk takes no note of it: it is lost if this mount is killed");
    Error::new(ErrorKind::LocalIo, cause).during("stage", location)
}

/// An object to be appended to is another one.
pub(crate) fn grown(location: &Location) -> FsError {
    let cause = "another client has appended to it, or replaced it, since it was opened";
    Error::new(ErrorKind::Changed, cause).during("write", location).into()
}
