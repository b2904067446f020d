//! The last events of what carries out many names or lines.

use serde::Serialize;

use crate::limited::Limited;

/// The last event of a sync.
#[derive(Serialize, Default)]
#[serde(tag = "event", rename = "summary")]
pub struct SyncSummary {
    pub action: &'static str,
    /// Copied.
    pub ok: u64,
    /// To be copied, of a dry run.
    pub planned: u64,
    pub unchanged: u64,
    pub deleted: u64,
    /// At the target alone, and still there.
    pub extra: u64,
    pub failed: u64,
    /// Left out: nothing of the kind can be copied.
    pub skipped: u64,
    /// Left as they are, since one of their sides could not be read, or the two could not be compared.
    pub unknown: u64,
    /// Empty folders, or their marks: made, or to be made by a real run.
    pub folders_made: u64,
    /// Folders of the target that became empty: removed, or to be removed by a real run.
    pub folders_removed: u64,
    pub bytes: u64,
    pub fetched: u64,
    pub resumed: u64,
    pub seconds: f64,
    /// Absent of a run that was over before somebody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<Limited>,
    pub exit: u8,
}

/// The last event of `flatout run`.
#[derive(Serialize)]
#[serde(tag = "event", rename = "summary")]
pub struct RunSummary {
    pub action: &'static str,
    /// Lines that were begun; blank ones and comments are none.
    pub lines: u64,
    pub ok: u64,
    pub failed: u64,
    /// Lines that were not begun, where the file could be read to its end; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_run: Option<u64>,
    pub bytes: u64,
    pub seconds: f64,
    pub exit: u8,
}
