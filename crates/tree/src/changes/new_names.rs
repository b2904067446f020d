//! Names that are to be made.

use std::ffi::OsStr;

use super::Changes;
use crate::attributes::FileKind;
use crate::fs_error::FsError;
use crate::store::ObjectStore;

impl<S: ObjectStore> Changes<S> {
    /// A name as a component of a new key.
    ///
    /// # Errors
    /// `EILSEQ` for a name that no key can have, `ENAMETOOLONG` for a key that is too long; as
    /// [`Namespace::name_in`](crate::namespace::Namespace::name_in).
    pub(crate) fn new_name<'a>(
        &self,
        parent: u64,
        name: &'a OsStr,
        kind: FileKind,
    ) -> Result<&'a str, FsError> {
        let name = self.names.name_in(parent, name).map_err(|error| match error.errno {
            libc::ENOENT => FsError::of(libc::EILSEQ),
            _ => error,
        })?;
        self.names.location_of(&self.names.table(), parent)?.check_room(name, kind)?;
        Ok(name)
    }
}
