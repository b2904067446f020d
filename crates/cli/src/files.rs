//! How many files this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More than 4,096 connections and what they write to take, the most that can be asked for. A child inherits
/// the limit, and some programs close every number below theirs: the hard limit of a container may be a
/// billion.
const ENOUGH: u64 = 1 << 16;

/// Raises the soft limit to the hard one as far as it is of use. The soft one is for programs that wait by
/// select(2), which knows 1,024 files.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(ENOUGH, |maximum| maximum.min(ENOUGH));
    if current.is_some_and(|current| current < wanted) {
        // Where that is forbidden the engine does with what there is.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
    }
}
