//! What is asked of a client: an object, a range of it, and where its bytes land.

use flatout_wire::location::Location;
use flatout_wire::range::Span;

use crate::landing::Landing;
use crate::queue::Priority;

/// A get: what to read, and where it lands.
pub struct Get {
    /// The object.
    pub location: Location,
    /// The range of it.
    pub span: Span,
    /// Where its bytes land.
    pub landing: Landing,
    pub(crate) record_parts: bool,
    pub(crate) keep_existing: bool,
    pub(crate) priority: Priority,
}

impl Get {
    /// The whole of an object.
    pub fn new(location: Location, landing: Landing) -> Get {
        let (span, priority) = (Span::All, Priority::default());
        Get { location, span, landing, record_parts: false, keep_existing: false, priority }
    }

    /// A range of it only.
    #[must_use]
    pub fn with_span(mut self, span: Span) -> Get {
        self.span = span;
        self
    }

    /// Leaves a file that stands under the target's name by the end as it is; the transfer fails then.
    #[must_use]
    pub fn keeping_existing(mut self) -> Get {
        self.keep_existing = true;
        self
    }

    /// Keeps a [`PartRecord`] of every part for the report.
    #[must_use]
    pub fn with_part_records(mut self) -> Get {
        self.record_parts = true;
        self
    }

    /// Says whether somebody waits for it; somebody does unless this says otherwise.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Get {
        self.priority = priority;
        self
    }
}
