//! The values of the knobs that only a mount has.

use crate::knob::Value;

/// A part of [`crate::Settings`], set by the same call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MountSettings {
    pub attribute_lifetime_ms: u64,
    pub negative_lifetime_ms: u64,
    pub close_to_open: bool,
    /// What the kernel is to read ahead; 0 leaves it as it is.
    pub read_ahead_bytes: u64,
    /// Files at least so large are read past the page cache; `None` is none of them.
    pub direct_bytes: Option<u64>,
    /// That take requests; `None` follows the cores.
    pub threads: Option<u32>,
    /// Requests of reading ahead under way in the kernel.
    pub max_background: u16,
    /// `None` is who mounts.
    pub uid: Option<u32>,
    /// `None` is the group of who mounts.
    pub gid: Option<u32>,
    /// Permission bits.
    pub file_mode: u32,
    /// Permission bits.
    pub folder_mode: u32,
    pub allow_other: bool,
}

impl MountSettings {
    /// A value that is of the knob's kind and within its bounds.
    pub(crate) fn set(&mut self, name: &'static str, value: &Value) {
        let count = |number: &u64| u32::try_from(*number).expect("the bounds of every count fit in 32 bits");
        match (name, value) {
            ("attribute-lifetime", Value::Number(ms)) => self.attribute_lifetime_ms = *ms,
            ("negative-lifetime", Value::Number(ms)) => self.negative_lifetime_ms = *ms,
            ("close-to-open", Value::Switch(on)) => self.close_to_open = *on,
            ("kernel-readahead", Value::Number(bytes)) => self.read_ahead_bytes = *bytes,
            ("direct-bytes", Value::Number(bytes)) => self.direct_bytes = Some(*bytes),
            ("direct-bytes", Value::Open) => self.direct_bytes = None,
            ("fuse-threads", Value::Number(number)) => self.threads = Some(count(number)),
            ("fuse-threads", Value::Open) => self.threads = None,
            ("max-background", Value::Number(number)) => {
                self.max_background = u16::try_from(*number).expect("its bounds fit in 16 bits");
            }
            ("uid", Value::Number(id)) => self.uid = Some(count(id)),
            ("uid", Value::Open) => self.uid = None,
            ("gid", Value::Number(id)) => self.gid = Some(count(id)),
            ("gid", Value::Open) => self.gid = None,
            ("file-mode", Value::Number(bits)) => self.file_mode = count(bits),
            ("dir-mode", Value::Number(bits)) => self.folder_mode = count(bits),
            ("allow-other", Value::Switch(on)) => self.allow_other = *on,
            _ => unreachable!("a test sets every knob: {name} has no field"),
        }
    }
}
