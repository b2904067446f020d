//! Small files below home: where they are, and their text.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use flatout_engine::plain;

use crate::{Environment, text};

/// Configuration and tokens are far under this; a path that leads to something else must not fill memory.
const BYTES_MAX: u64 = 4 << 20;

/// A path as a user wrote it, with `~/` made the home folder of the table.
pub(crate) fn at_home(environment: &Environment, path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), text(environment, "HOME")) {
        (Some(rest), Ok(Some(home))) => Path::new(&home).join(rest),
        _ => PathBuf::from(path),
    }
}

/// A file's text; `None` where there is no file.
///
/// # Errors
/// Which file cannot be read, and why.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, String> {
    read_named(path, &path.display().to_string())
}

/// With the file's name for people.
pub(crate) fn read_named(path: &Path, name: &str) -> Result<Option<String>, String> {
    let refused = |why: &str| format!("{name}: {why}");
    let length = match std::fs::metadata(path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(refused(&plain(&error))),
        Ok(found) if found.is_dir() => return Err(refused("this is a folder, and a file is wanted")),
        Ok(found) => found.len(),
    };
    if length > BYTES_MAX {
        return Err(refused("this is too large to be what is wanted"));
    }
    let bytes = std::fs::read(path).map_err(|error| refused(&plain(&error)))?;
    let text = String::from_utf8(bytes).map_err(|_| refused("this is not UTF-8"))?;
    Ok(Some(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)))
}
