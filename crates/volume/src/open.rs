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
    let file = File::open(path).map_err(|error| {
        let refused = Error::new(ErrorKind::LocalIo, plain(&error));
        let refused = match error.kind() {
            std::io::ErrorKind::NotFound => {
                refused.with_hint("`flatout volume build SOURCE INDEX` makes an index")
            }
            _ => refused,
        };
        refused.during(doing, path.display())
    })?;
    Index::open(file).map_err(|error| index_error(&error).during(doing, path.display()))
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
