//! What is asked of a client: an object, a range of it, and where its bytes land.

use std::sync::Arc;

use flatout_wire::location::Location;
use flatout_wire::range::Span;

use crate::sink::end::OnEnd;
use crate::sink::landing::Landing;
use flatout_policy::queue::Priority;

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
    pub(crate) modified_ns: Option<i128>,
    pub(crate) priority: Priority,
    pub(crate) if_match: Option<String>,
    pub(crate) version_id: Option<Arc<str>>,
    pub(crate) in_one_answer: bool,
    pub(crate) likely_small: bool,
    pub(crate) folder_is_swept: bool,
    pub(crate) on_end: Option<OnEnd>,
}

impl Get {
    /// The whole of an object.
    pub fn new(location: Location, landing: Landing) -> Get {
        Get {
            location,
            span: Span::All,
            landing,
            record_parts: false,
            keep_existing: false,
            modified_ns: None,
            priority: Priority::default(),
            if_match: None,
            version_id: None,
            in_one_answer: false,
            likely_small: false,
            folder_is_swept: false,
            on_end: None,
        }
    }

    /// A range of it only.
    #[must_use]
    pub fn with_span(mut self, span: Span) -> Get {
        self.span = span;
        self
    }

    /// Only of the version of that ETag, as [`crate::Version::etag`] tells it; quotes may be left out. Any
    /// other there is [`crate::ErrorKind::Changed`], before a byte has landed, and so is an origin that tells
    /// no ETag.
    #[must_use]
    pub fn with_if_match(mut self, etag: impl Into<String>) -> Get {
        self.if_match = Some(etag.into());
        self
    }

    /// The version of that id, of a bucket that keeps versions, instead of the newest.
    #[must_use]
    pub fn with_version_id(mut self, version_id: impl Into<Arc<str>>) -> Get {
        self.version_id = Some(version_id.into());
        self
    }

    /// Asks for the whole by one plain GET, whose answer states the checksum as well: no range and no HEAD.
    /// For objects that are known, or likely, to be small; a large one comes as one stream. Without effect on
    /// a range.
    #[must_use]
    pub fn in_one_answer(mut self) -> Get {
        self.in_one_answer = true;
        self
    }

    /// As [`Get::in_one_answer`], where that is a guess: an object that turns out to be longer than a part is
    /// asked for again, by ranges, at the price of a connection. What an earlier run left of it comes first.
    #[must_use]
    pub fn likely_small(mut self) -> Get {
        self.likely_small = true;
        self
    }

    /// Says that [`crate::sweep_folder`] has cleared the folder of the file that this lands in: what killed
    /// runs left of the file is not looked for then, which takes a system call for each name that it may
    /// have.
    #[must_use]
    pub fn into_swept_folder(mut self) -> Get {
        self.folder_is_swept = true;
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

    /// Calls `on_end` once when the end is settled, however it came: [`crate::Transfer::wait`] returns at
    /// once then. Where [`crate::Client::get`] fails it is never called; else it may be before that returns,
    /// and after the [`crate::Transfer`] was dropped.
    ///
    /// It runs on a thread of the engine's, without any lock, and all that this thread carries waits for it:
    /// it should do little, such as wake somebody. It must not wait for a transfer that runs (as the drop of
    /// one does), nor ask what blocks, nor drop the client: that would wait for its own thread. Its panic
    /// ends nothing but itself.
    #[must_use]
    pub fn on_end(mut self, on_end: impl FnOnce() + Send + 'static) -> Get {
        self.on_end = Some(Box::new(on_end));
        self
    }
}
