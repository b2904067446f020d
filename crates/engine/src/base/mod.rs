//! The ground floor: what every room but `policy`, which is below it, may use.

pub(crate) mod blocking_pool;
pub(crate) mod cancellation;
pub(crate) mod files;
pub(crate) mod hint;
pub(crate) mod thread_clock;

pub(crate) mod clock;
pub(crate) mod error;
pub(crate) mod limited_by;
pub(crate) mod operation;
pub(crate) mod report;
pub(crate) mod time;
pub(crate) mod version;
pub(crate) mod wording;
