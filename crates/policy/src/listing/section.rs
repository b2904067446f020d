//! A section: the names behind one cut, up to the next.

use std::collections::VecDeque;
use std::time::Duration;

use super::measure::Measure;
use super::{NamedPage, PageFrom};

pub(super) struct Section<P, E> {
    pub(super) id: u64,
    /// Its names come behind this; none before the first section.
    pub(super) cut: Option<String>,
    pub(super) state: State<P, E>,
    pub(super) is_in_flight: bool,
    /// When its last page was asked for.
    pub(super) asked: Duration,
    /// Pages that nobody has taken yet.
    pub(super) pages: VecDeque<P>,
    /// The first name that was shown behind the cut, its own or not.
    pub(super) first: Option<String>,
    /// The last one of its own.
    pub(super) last: Option<String>,
    pub(super) is_shown: bool,
    pub(super) measure: Measure,
    /// How many pages it may have yet, as long as nothing has changed.
    pub(super) pages_left: Option<f64>,
    /// No cut was found in it.
    pub(super) is_indivisible: bool,
}

/// How far a section is.
pub(super) enum State<P, E> {
    /// There may be more names of its own.
    Open(PageFrom),
    /// A page went past the next cut. What it shows there is kept, with how the listing goes on, until the
    /// next section shows the same.
    Passed {
        tail: P,
        next: Option<String>,
    },
    /// The next section begins where this one ends.
    Joined,
    /// The listing ends with it.
    Ended,
    Failed(E),
}

impl<P: NamedPage, E> Section<P, E> {
    /// One of which the first page is in flight.
    pub(super) fn begun(id: u64, cut: Option<String>, from: PageFrom, asked: Duration) -> Section<P, E> {
        Section {
            id,
            cut,
            state: State::Open(from),
            is_in_flight: true,
            asked,
            pages: VecDeque::new(),
            first: None,
            last: None,
            is_shown: false,
            measure: Measure::default(),
            pages_left: None,
            is_indivisible: false,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// Bytes that its pages take.
    pub(super) fn bytes(&self) -> u64 {
        let tail = if let State::Passed { tail, .. } = &self.state { tail.bytes() } else { 0 };
        self.pages.iter().map(NamedPage::bytes).sum::<u64>() + tail
    }

    /// Behind which name its next page begins.
    pub(super) fn low(&self) -> Option<&str> {
        self.last.as_deref().or(self.cut.as_deref())
    }

    /// Whether a page is none that a listing behind the cut, page after page in order, could show next.
    pub(super) fn is_disordered(&self, page: &P) -> bool {
        let is_behind = |first: &str| self.low().is_none_or(|low| first > low);
        !page.is_in_order() || !page.first().is_none_or(is_behind)
    }

    /// Something about it has changed.
    pub(super) fn note_change(&mut self) {
        self.pages_left = None;
        self.is_indivisible = false;
    }
}
