//! Those who share the workers of a gate.

use std::sync::Arc;

use super::Post;
use crate::policy::queue::Priority;

/// The workers of one transfer, or of one get of many objects.
pub(crate) trait Crew: Send + Sync {
    /// How many more workers it could use, and how urgent that is.
    fn wants(&self) -> (u64, Priority);

    /// Whether what its workers fetch is read through a window.
    fn is_stream(&self) -> bool;

    /// Starts one more worker, unless all is over meanwhile.
    fn start(self: Arc<Self>, post: Post);
}
