//! What is asked of a client: an object to be made, and where its bytes come from.

use std::sync::Arc;

use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

use crate::base::version::Object;
use crate::sink::end::OnEnd;
use crate::source::Source;
use flatout_policy::edit::EditedPart;
use flatout_policy::queue::Priority;

/// A put: the object to make, and where its bytes come from.
pub struct Put {
    /// The object.
    pub location: Location,
    /// Where its bytes come from.
    pub source: Source,
    pub(crate) options: ObjectOptions,
    pub(crate) condition: Condition,
    pub(crate) record_parts: bool,
    pub(crate) priority: Priority,
    pub(crate) on_end: Option<OnEnd>,
    pub(crate) continues: Option<Object>,
    pub(crate) edits: Option<Edits>,
    pub(crate) on_begun: Option<OnBegun>,
    pub(crate) may_resume: bool,
}

/// What an object is made of that differs from another in some ranges.
pub(crate) struct Edits {
    pub(crate) object: Object,
    pub(crate) parts: Arc<[EditedPart]>,
}

/// Hears the id of an upload in parts.
pub(crate) type OnBegun = Box<dyn FnOnce(&str) + Send>;

impl Put {
    /// An object of the bytes of `source`.
    pub fn new(location: Location, source: Source) -> Put {
        Put {
            location,
            source,
            options: ObjectOptions::default(),
            condition: Condition::None,
            record_parts: false,
            priority: Priority::default(),
            on_end: None,
            continues: None,
            edits: None,
            on_begun: None,
            may_resume: true,
        }
    }

    /// The new object begins with the bytes of `object`, which the origin copies itself: the stream is what
    /// follows them. The upload fails with [`crate::ErrorKind::Changed`] where another version is there.
    ///
    /// `object` is of the same service, has at least [`crate::STREAM_ROOM_LEAST`] bytes and an ETag; the
    /// source is a stream.
    #[must_use]
    pub fn continuing(mut self, object: Object) -> Put {
        self.continues = Some(object);
        self
    }

    /// The new object is `object` with some ranges changed: `parts` says which of it the origin copies, and
    /// which are sent ([`edited_parts`]). The upload fails with [`crate::ErrorKind::Changed`] where another
    /// version is there.
    ///
    /// `object` is of the same service, and has an ETag. The source is a file that is as long as the new
    /// object, and has the bytes of the parts that are not copied.
    ///
    /// [`edited_parts`]: flatout_policy::edit::edited_parts
    #[must_use]
    pub fn editing(mut self, object: Object, parts: Vec<EditedPart>) -> Put {
        self.edits = Some(Edits { object, parts: parts.into() });
        self
    }

    /// Calls `on_begun` with the upload's id before the first part is sent, where the object is sent in
    /// parts. It is called on a thread of the engine's, and must not wait for a network.
    #[must_use]
    pub fn on_begun(mut self, on_begun: impl FnOnce(&str) + Send + 'static) -> Put {
        self.on_begun = Some(Box::new(on_begun));
        self
    }

    /// No later run goes on with it: where it fails, the parts that were sent are deleted.
    #[must_use]
    pub fn without_resume(mut self) -> Put {
        self.may_resume = false;
        self
    }

    /// Stores the object with these: its content type, metadata, storage class and so on.
    #[must_use]
    pub fn with_options(mut self, options: ObjectOptions) -> Put {
        self.options = options;
        self
    }

    /// Makes the object on that condition only, which the origin judges when the object is to appear. The
    /// upload fails with [`crate::ErrorKind::Changed`] where it does not hold.
    #[must_use]
    pub fn on_condition(mut self, condition: Condition) -> Put {
        self.condition = condition;
        self
    }

    /// Keeps a [`crate::PartRecord`] of every part for the report.
    #[must_use]
    pub fn with_part_records(mut self) -> Put {
        self.record_parts = true;
        self
    }

    /// Says whether somebody waits for it; somebody does unless this says otherwise.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Put {
        self.priority = priority;
        self
    }

    /// Calls `on_end` once when the end is settled. [`crate::Get::on_end`] says what it may do.
    #[must_use]
    pub fn on_end(mut self, on_end: impl FnOnce() + Send + 'static) -> Put {
        self.on_end = Some(Box::new(on_end));
        self
    }
}
