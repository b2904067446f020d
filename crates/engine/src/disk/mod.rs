//! Files on their way: temporary names, folders, and the journal by which a later run goes on.

pub(crate) mod file;
pub(crate) mod folder;
pub(crate) mod journal;
pub(crate) mod temporary;
pub(crate) mod upload_journal;
pub(crate) mod writeback;
