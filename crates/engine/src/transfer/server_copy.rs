//! What a copy within a service is to do, as its caller says it.

use std::sync::Arc;

use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

#[cfg(doc)]
use crate::base::error::ErrorKind;
use crate::sink::end::OnEnd;
use crate::transfer::put::OnBegun;

/// A copy within a service: what is copied, where to, and what differs.
pub struct ServerCopy {
    pub(crate) from: Location,
    pub(crate) version_id: Option<Arc<str>>,
    pub(crate) from_etag: Option<String>,
    pub(crate) to: Location,
    pub(crate) options: ObjectOptions,
    pub(crate) describes_anew: bool,
    pub(crate) states_time_as: Option<&'static str>,
    pub(crate) condition: Condition,
    pub(crate) on_begun: Option<OnBegun>,
    pub(crate) on_end: Option<OnEnd>,
}

impl ServerCopy {
    /// A copy of the newest version of `from`.
    pub fn new(from: Location, to: Location) -> ServerCopy {
        let (options, condition) = (ObjectOptions::default(), Condition::None);
        let (version_id, from_etag) = (None, None);
        ServerCopy {
            from,
            version_id,
            from_etag,
            to,
            options,
            describes_anew: false,
            states_time_as: None,
            condition,
            on_begun: None,
            on_end: None,
        }
    }

    /// Copies that version of the source.
    #[must_use]
    pub fn of_version(mut self, version_id: &str) -> ServerCopy {
        self.version_id = Some(version_id.into());
        self
    }

    /// Copies the source only as long as it has this ETag, quotes included; else the copy fails with
    /// [`ErrorKind::Changed`].
    #[must_use]
    pub fn of_etag(mut self, etag: &str) -> ServerCopy {
        self.from_etag = Some(etag.to_owned());
        self
    }

    /// What differs from the source: headers and names of metadata that are given replace those of the
    /// source, tags all of them. Storage class, encryption and access list are never the source's.
    #[must_use]
    pub fn with_options(mut self, options: ObjectOptions) -> ServerCopy {
        self.options = options;
        self
    }

    /// Of an object onto itself: the metadata that is given is all of it, none of the source's stays, and the
    /// storage class does.
    #[must_use]
    pub fn describing_anew(mut self) -> ServerCopy {
        self.describes_anew = true;
        self
    }

    /// States the source's time in metadata of that name, in seconds since 1970, where the source has none of
    /// it: the copy has a time of its own.
    #[must_use]
    pub fn stating_time_as(mut self, name: &'static str) -> ServerCopy {
        self.states_time_as = Some(name);
        self
    }

    /// Makes the object on that condition only, which the origin judges: Amazon does, MinIO overlooks it.
    #[must_use]
    pub fn on_condition(mut self, condition: Condition) -> ServerCopy {
        self.condition = condition;
        self
    }

    /// As [`crate::Put::on_begun`], where the object is copied in parts.
    #[must_use]
    pub fn on_begun(mut self, on_begun: impl FnOnce(&str) + Send + 'static) -> ServerCopy {
        self.on_begun = Some(Box::new(on_begun));
        self
    }

    /// Calls `on_end` once when the end is settled. [`crate::Get::on_end`] says what it may do.
    #[must_use]
    pub fn on_end(mut self, on_end: impl FnOnce() + Send + 'static) -> ServerCopy {
        self.on_end = Some(Box::new(on_end));
        self
    }

    /// For people.
    pub(crate) fn name(&self) -> String {
        format!("{} -> {}", self.from, self.to)
    }
}
