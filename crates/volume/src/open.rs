//! Opens the file of an index.

use std::fs::File;
use std::path::Path;

use flatout_engine::{Error, ErrorKind, plain};
use flatout_erofs::{Index, IndexError};

/// Opens the index at `path`, and checks its header.
///
/// # Errors
/// The system's; [`ErrorKind::Usage`] for what is no index, [`ErrorKind::Corrupt`] for one that is damaged.
pub fn open_index(doing: &'static str, path: &Path) -> Result<Index<File>, Error> {
    let about = |error: Error| error.during(doing, path.display());
    // A pipe would be waited for.
    if let Ok(metadata) = path.metadata()
        && !metadata.is_file()
    {
        let what = if metadata.is_dir() { "it is a folder, not an index" } else { "it is no file" };
        return Err(about(Error::new(ErrorKind::Usage, what).with_hint("name the file of an index")));
    }
    let file = File::open(path).map_err(|error| {
        let refused = Error::new(ErrorKind::LocalIo, plain(&error));
        let refused = match error.kind() {
            std::io::ErrorKind::NotFound => {
                refused.with_hint("`flatout volume build SOURCE INDEX` makes an index")
            }
            _ => refused,
        };
        about(refused)
    })?;
    Index::open(file).map_err(|error| about(index_error(&error)))
}

/// An error of an index by its kind.
pub fn index_error(error: &IndexError) -> Error {
    let kind = match error {
        IndexError::NotAnIndex | IndexError::Version { .. } => ErrorKind::Usage,
        IndexError::Io(_) => ErrorKind::LocalIo,
        _ => ErrorKind::Corrupt,
    };
    Error::new(kind, error.to_string())
}
