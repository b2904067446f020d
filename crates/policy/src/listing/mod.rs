//! A listing of many pages at once: which page to ask for next, and in which order pages are handed out.
//!
//! ```text
//!   names:      a ─────────┬────────────┬───────────────────┬──────────── …
//!   sections:    front     │ cut        │ cut               │ cut, open to the end
//!                page page │ page page  │ page              │ page
//! ```
//!
//! The names that are not known yet are cut into **sections**. A section is listed behind its cut
//! (`start-after`), page after page, until a page goes past the next cut. Cuts are chosen while the listing
//! runs, from what pages have shown ([`cuts`], [`measure`]).
//!
//! A section counts only if it begins with the very name that the section before shows behind the cut: the
//! **seam**. Otherwise it is dropped, and the section before goes on in its place. So an origin that does not
//! know `start-after`, or names that come and go at a cut, cost time and no name.

mod cuts;
mod measure;
mod section;
mod width;

use std::collections::VecDeque;
use std::time::Duration;

use measure::{Estimate, Measure};
use section::{Section, State};
use width::Width;

/// A page of names, in the order of their bytes.
pub trait NamedPage: Sized {
    /// Its first name.
    fn first(&self) -> Option<&str>;
    /// Its last name.
    fn last(&self) -> Option<&str>;
    /// How many there are.
    fn names(&self) -> u64;
    /// What it takes in memory.
    fn bytes(&self) -> u64;
    /// Whether the origin sent the names in order, each once.
    fn is_in_order(&self) -> bool;
    /// Shows the first name, some, and the last, in order.
    fn sample(&self, visit: &mut dyn FnMut(&str));
    /// Takes off the names that are behind `cut`, where there are some.
    fn split_behind(&mut self, cut: &str) -> Option<Self>;
}

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageFrom {
    /// At the first name.
    Start,
    /// Behind this name, whether it exists or not.
    After(String),
    /// Where the page with this token ended.
    Token(String),
}

/// A page that is to be asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// To be given back with what comes of it.
    pub section: u64,
    pub from: PageFrom,
}

/// What the reader of a listing gets next.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken<P, E> {
    Page(P),
    /// The listing ends with this error.
    Failed(E),
    /// A page must come first.
    Wait,
    End,
}

/// How much a listing may use.
#[derive(Clone, Copy, Debug)]
pub struct ListingLimits {
    /// Pages in flight.
    pub in_flight: u32,
    /// Bytes of pages that wait for their turn.
    pub bytes: u64,
}

/// As many pages come one after the other before a listing is cut: a shorter one costs no request more.
const SERIAL_PAGES: u64 = 2;
/// A section is cut off this long at least, and at most, in pages.
const SECTION_PAGES: f64 = 2.0;
const SECTION_PAGES_MAX: f64 = 16.0;
/// … and this part of the pages that came.
const SECTION_SHARE: f64 = 0.25;
/// By how much a section is shorter than whole pages, so that its last page seldom shows a few names only.
const SHORTENED: f64 = 0.95;
/// A section that has so many times the target is cut.
const DIVISIBLE: f64 = 1.6;
/// Sections whose first page is in flight, for each that has shown one, and for each page that may yet be
/// asked for in vain.
const UNSHOWN_PER_SHOWN: usize = 3;
const UNSHOWN_PER_ALLOWED: f64 = 4.0;
/// A section is twice as long as the one before as long as neither has shown a page, and so on: what is
/// further away is known the less.
const DOUBLINGS_MAX: usize = 6;
/// Pages that may be asked for in vain, and one for so many that were not. From half of that on, sections are
/// only cut a little behind what they have shown: where names lie in heaps, more is near and nothing far.
const IN_VAIN: f64 = 6.0;
const IN_VAIN_SHARE: f64 = 1.0 / 8.0;
/// After so many sections that did not begin where the one before ended, the listing is cut no more.
const MISMATCHES_MAX: u32 = 4;
/// Until a page has come.
const PAGE_BYTES: u64 = 64 << 10;

/// The sections of a listing, in order.
pub struct Sections<P, E> {
    prefix_bytes: usize,
    /// Of a listing of one level: names end with the first of it.
    delimiter: Option<char>,
    limits: ListingLimits,
    /// The front is what the reader gets next.
    sections: VecDeque<Section<P, E>>,
    /// What the section showed that was taken last.
    behind: Measure,
    width: Width,
    in_flight: u32,
    sections_begun: u64,
    pages_come: u64,
    /// Pages, or parts of pages, whose names were wanted, and the others.
    useful: f64,
    in_vain: f64,
    /// Of the largest page.
    page_names: u64,
    page_bytes: u64,
    mismatches: u32,
    /// It is not cut any more.
    is_serial: bool,
}

impl<P: NamedPage, E> Sections<P, E> {
    /// Of the names that begin with `prefix`; with a delimiter, up to the first one behind that.
    pub fn new(prefix: &str, delimiter: Option<char>, limits: ListingLimits) -> Sections<P, E> {
        Sections {
            prefix_bytes: prefix.len(),
            delimiter,
            limits,
            sections: VecDeque::new(),
            behind: Measure::default(),
            width: Width::new(limits.in_flight),
            in_flight: 0,
            sections_begun: 0,
            pages_come: 0,
            useful: 0.0,
            in_vain: 0.0,
            page_names: 1,
            page_bytes: PAGE_BYTES,
            mismatches: 0,
            is_serial: false,
        }
    }

    /// How many pages have come.
    pub fn pages_come(&self) -> u64 {
        self.pages_come
    }

    /// Whether pages are in flight one after the other only, so far.
    pub fn is_cut(&self) -> bool {
        self.pages_come >= SERIAL_PAGES
    }

    /// How many pages are in flight.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Bytes of pages that wait for their turn.
    pub fn bytes(&self) -> u64 {
        self.sections.iter().map(Section::bytes).sum()
    }

    /// Whether nothing comes any more.
    pub fn is_done(&self) -> bool {
        let is_over = |section: &Section<P, E>| match section.state {
            State::Joined | State::Ended => section.pages.is_empty(),
            _ => false,
        };
        !self.sections.is_empty() && self.sections.iter().all(is_over)
    }

    /// What the reader gets next.
    pub fn take(&mut self) -> Taken<P, E> {
        loop {
            let fails_next = self.sections.get(1).is_some_and(|next| {
                matches!(next.state, State::Failed(_)) && next.first.is_none() && next.pages.is_empty()
            });
            let Some(front) = self.sections.front_mut() else { return Taken::Wait };
            if let Some(page) = front.pages.pop_front() {
                return Taken::Page(page);
            }
            match &front.state {
                State::Open(_) => return Taken::Wait,
                State::Ended => return Taken::End,
                State::Passed { .. } if !fails_next => return Taken::Wait,
                State::Passed { .. } | State::Joined => self.drop_front(),
                State::Failed(_) => {
                    self.sections.truncate(1);
                    let front = self.sections.front_mut().expect("it is there");
                    if let State::Failed(error) = std::mem::replace(&mut front.state, State::Ended) {
                        return Taken::Failed(error);
                    }
                }
            }
        }
    }

    fn drop_front(&mut self) {
        if let Some(front) = self.sections.pop_front()
            && (front.measure.is_enough() || self.behind.pages() == 0)
        {
            self.behind = front.measure;
        }
    }

    /// A page to be asked for at `now`, if there is one; to be called until there is none.
    pub fn next_request(&mut self, now: Duration) -> Option<PageRequest> {
        if self.sections.is_empty() {
            return Some(self.begin(0, None, PageFrom::Start, now));
        }
        if self.in_flight >= self.width.now() {
            self.width.on_full();
            return None;
        }
        let room = self.room();
        let first_open = self.sections.iter().position(Section::is_open)?;
        let idle = self
            .sections
            .iter()
            .take(room.max(first_open + 1))
            .position(|section| section.is_open() && !section.is_in_flight);
        if let Some(at) = idle {
            let section = &mut self.sections[at];
            let State::Open(from) = &section.state else { return None };
            (section.is_in_flight, section.asked) = (true, now);
            self.in_flight += 1;
            return Some(PageRequest { section: section.id, from: from.clone() });
        }
        let (at, cut) = self.choose_cut(room)?;
        self.sections[at].note_change();
        Some(self.begin(at + 1, Some(cut.clone()), PageFrom::After(cut), now))
    }

    fn begin(&mut self, at: usize, cut: Option<String>, from: PageFrom, now: Duration) -> PageRequest {
        let id = self.sections_begun;
        self.sections_begun += 1;
        self.in_flight += 1;
        self.sections.insert(at, Section::begun(id, cut, from.clone(), now));
        PageRequest { section: id, from }
    }

    /// How many sections, from the front, may ask for a page as far as memory goes: the more is held, the
    /// nearer to the front. The last may fill half of it.
    fn room(&self) -> usize {
        let held = self.bytes() + u64::from(self.in_flight + 1) * self.page_bytes;
        let share = held as f64 / self.limits.bytes as f64;
        let sections = self.sections.len() as f64;
        (2.0 * (1.0 - share) * sections).clamp(0.0, sections) as usize
    }

    /// Where to cut next, and the section that this divides: the first of those that are long.
    fn choose_cut(&mut self, room: usize) -> Option<(usize, String)> {
        let allowed = IN_VAIN + self.useful * IN_VAIN_SHARE;
        if self.is_serial || !self.is_cut() || self.in_vain > allowed {
            return None;
        }
        let shown = self.sections.iter().filter(|section| section.is_shown).count();
        let unshown = self.sections.len() - shown;
        let is_bold = unshown as f64 >= (allowed - self.in_vain) * UNSHOWN_PER_ALLOWED;
        if is_bold || unshown >= UNSHOWN_PER_SHOWN * shown.max(1) {
            return None;
        }
        if self.in_vain > allowed / 2.0 {
            return self.choose_section(room, SECTION_PAGES, true);
        }
        let window_pages = self.limits.bytes as f64 / self.page_bytes as f64;
        let most = window_pages / f64::from(self.width.now());
        let most = most.clamp(SECTION_PAGES, SECTION_PAGES_MAX);
        let target = (self.useful * SECTION_SHARE).clamp(SECTION_PAGES, most);
        let chosen = self.choose_section(room, target, false);
        // The last sections are made shorter rather than left to a few pages in flight.
        let is_idle = self.in_flight * 2 < self.width.now() && target > SECTION_PAGES;
        chosen.or_else(|| if is_idle { self.choose_section(room, SECTION_PAGES, false) } else { None })
    }

    /// `is_careful`: of those that have shown enough only.
    fn choose_section(&mut self, room: usize, target: f64, is_careful: bool) -> Option<(usize, String)> {
        for at in 0..room.min(self.sections.len()) {
            let section = &self.sections[at];
            let is_known = !is_careful || section.measure.is_enough();
            if !section.is_open() || section.is_indivisible || !is_known {
                continue;
            }
            let pages = self.pages_left(at);
            if pages < DIVISIBLE * target {
                continue;
            }
            let ahead = (target * self.stretch(at) - 1.0 + SHORTENED).min(pages / 2.0);
            let behind = ahead * self.page_names as f64;
            let page = self.page_names as f64;
            let cut = self.estimate(at).and_then(|estimate| estimate.cut_behind(behind, page));
            match cut.and_then(|cut| self.outside_of_folders(at, cut)) {
                Some(cut) => return Some((at, cut)),
                None => self.sections[at].is_indivisible = true,
            }
        }
        None
    }

    /// Before the folder that the cut would fall into: of one level, origins show a folder or not where the
    /// listing begins within it.
    fn outside_of_folders(&self, at: usize, mut cut: String) -> Option<String> {
        let Some(delimiter) = self.delimiter else { return Some(cut) };
        if let Some(folder_bytes) = cut.get(self.prefix_bytes..)?.find(delimiter) {
            cut.truncate(self.prefix_bytes + folder_bytes);
        }
        let is_behind = self.sections[at].low().is_some_and(|low| low < cut.as_str());
        is_behind.then_some(cut)
    }

    /// How much longer than others a section is cut.
    fn stretch(&self, at: usize) -> f64 {
        let unshown = self.sections.iter().take(at + 1).rev().take_while(|section| !section.is_shown);
        f64::from(1u32 << unshown.count().min(DOUBLINGS_MAX))
    }

    /// How many pages a section may have yet.
    fn pages_left(&mut self, at: usize) -> f64 {
        if let Some(pages) = self.sections[at].pages_left {
            return pages;
        }
        let names = self.estimate(at).map_or(0.0, |estimate| estimate.names());
        let pages = names / self.page_names as f64;
        self.sections[at].pages_left = Some(pages);
        pages
    }

    fn estimate(&self, at: usize) -> Option<Estimate<'_>> {
        let section = &self.sections[at];
        let high = self.sections.get(at + 1).and_then(|next| next.cut.as_deref());
        let before = self.sections.iter().take(at).rev().map(|section| &section.measure);
        let before = before.chain([&self.behind]).find(|measure| measure.is_enough());
        let before = before.unwrap_or(&self.behind);
        Estimate::new(&section.measure, before, self.prefix_bytes, (section.low()?, high))
    }

    /// A page that was asked for has come, and how the listing goes on behind it, at `now`.
    pub fn on_page(&mut self, section: u64, page: P, next: Option<String>, now: Duration) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.pages_come += 1;
        if page.names() > 0 {
            self.page_names = self.page_names.max(page.names());
            self.page_bytes = page.bytes();
        }
        let Some(at) = self.position(section) else {
            self.note_use(0.0);
            return;
        };
        self.width.on_page(self.sections[at].asked, now);
        self.sections[at].is_in_flight = false;
        if !self.is_serial && self.sections[at].is_disordered(&page) {
            self.is_serial = true;
            if at > 0 && !self.sections[at].is_shown {
                // What was behind the cut was asked for, and something else came.
                self.note_use(0.0);
                self.drop_from(at);
                return;
            }
            self.drop_from(at + 1);
        }
        let first = &mut self.sections[at].first;
        if first.is_none() {
            *first = page.first().map(str::to_owned);
        }
        self.sections[at].is_shown = true;
        self.accept(at, page, next, true);
    }

    /// A page that was asked for cannot be had. `is_refused`: by what the origin answered.
    pub fn on_failure(&mut self, section: u64, error: E, is_refused: bool) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(at) = self.position(section) else { return };
        if at > 0 && !self.sections[at].is_shown && is_refused {
            // It may not know how to begin behind a name: whatever it is, the section before will see it.
            self.is_serial = true;
            self.drop_from(at);
            return;
        }
        self.sections[at].is_in_flight = false;
        self.sections[at].state = State::Failed(error);
        self.sections.truncate(at + 1);
    }

    /// A page that was asked for at `asked` was too much for the origin, as was heard at `now`.
    pub fn on_throttled(&mut self, asked: Duration, now: Duration) {
        self.width.on_throttled(asked, now);
    }

    /// So much of a page was wanted.
    fn note_use(&mut self, part: f64) {
        self.useful += part;
        self.in_vain += 1.0 - part;
    }

    fn position(&self, id: u64) -> Option<usize> {
        self.sections.iter().position(|section| section.id == id)
    }

    /// Names of a section, and behind them perhaps what the next one is to begin with.
    fn accept(&mut self, at: usize, mut page: P, next: Option<String>, is_new: bool) {
        let all = page.names();
        let cut = self.sections.get(at + 1).and_then(|next| next.cut.as_deref());
        let tail = cut.and_then(|cut| page.split_behind(cut));
        let own = page.names();
        if is_new {
            self.note_use(if all > 0 { own as f64 / all as f64 } else { 0.0 });
        }
        let section = &mut self.sections[at];
        section.note_change();
        section.measure.on_page(self.prefix_bytes, own, |visit| page.sample(visit));
        if let Some(last) = page.last() {
            section.last = Some(last.to_owned());
            section.pages.push_back(page);
        }
        section.state = match (tail, next) {
            (Some(tail), next) => State::Passed { tail, next },
            (None, Some(token)) => State::Open(PageFrom::Token(token)),
            (None, None) => State::Ended,
        };
        if matches!(section.state, State::Ended) {
            // Nothing is behind the end.
            self.sections.truncate(at + 1);
        }
        self.check_seam(at);
        if let Some(before) = at.checked_sub(1) {
            self.check_seam(before);
        }
    }

    /// Compares what a section shows behind its end with what the next one begins with, once both are known.
    fn check_seam(&mut self, at: usize) {
        let (Some(section), Some(next)) = (self.sections.get(at), self.sections.get(at + 1)) else { return };
        let State::Passed { tail, .. } = &section.state else { return };
        let is_joined = match (&next.first, &next.state) {
            (Some(first), _) => tail.first() == Some(first.as_str()),
            (None, State::Ended) => false,
            (None, _) => return,
        };
        if is_joined {
            self.sections[at].state = State::Joined;
            return;
        }
        self.mismatches += 1;
        self.is_serial |= self.mismatches > MISMATCHES_MAX;
        self.in_vain += f64::from(self.sections[at + 1].measure.pages());
        match self.is_serial {
            true => self.sections.truncate(at + 1),
            false => drop(self.sections.remove(at + 1)),
        }
        self.reopen(at);
    }

    /// Drops the sections from `at` on; the one before goes on in their place.
    fn drop_from(&mut self, at: usize) {
        self.sections.truncate(at);
        if let Some(before) = at.checked_sub(1) {
            self.reopen(before);
        }
    }

    /// The section after this one is gone: what this one showed of it is its own now.
    fn reopen(&mut self, at: usize) {
        let section = &mut self.sections[at];
        section.note_change();
        match std::mem::replace(&mut section.state, State::Ended) {
            State::Passed { tail, next } => self.accept(at, tail, next, false),
            state => section.state = state,
        }
    }
}

#[cfg(test)]
mod tests;
