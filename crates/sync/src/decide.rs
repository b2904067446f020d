//! What is to be done with a name, from its two sides. What is unknown is neither deleted nor overwritten.

use crate::item::{By, Entry};
use crate::join::Side;

/// Which way content goes: times mean something else for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From files to objects: an object is as old as its upload.
    Up,
    /// From objects to files: a file gets the time of its object.
    Down,
    /// From objects to objects: a copy is as old as the copying.
    Between,
}

/// What tells that the two sides differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compare {
    /// Another size, or a source that is newer than the target.
    #[default]
    SizeAndTime,
    /// Another size.
    Size,
    /// Another size, or any other time.
    ExactTime,
    /// Another size, or other content by the checksums that are stated.
    Content,
}

/// Why content is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The target has no such name.
    New,
    /// The sizes differ.
    Size,
    /// The source is newer.
    Newer,
    /// The times differ.
    Time,
    /// The checksums differ.
    Content,
}

impl Why {
    /// In a word, as reports have it.
    pub fn word(self) -> &'static str {
        match self {
            Why::New => "new",
            Why::Size => "size",
            Why::Newer => "newer",
            Why::Time => "time",
            Why::Content => "content",
        }
    }
}

/// What the two trees do not tell, and has to be asked before it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The time of the file that the object was made of, which its metadata keep.
    StoredTime,
    /// Whether both have one content.
    Content,
}

/// What is to be done with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Copy {
        source: Entry,
        why: Why,
    },
    /// It has to be asked first: both sides, and what.
    Ask {
        source: Entry,
        target: Entry,
        question: Question,
    },
    /// A folder that the target does not have.
    MakeFolder,
    /// Both sides are alike.
    Same {
        bytes: u64,
    },
    /// The source has no such name.
    Extra {
        target: Entry,
    },
    /// A folder, or its mark, that the source does not have.
    ExtraFolder,
    /// It stays as it is because the other side, or this one, could not be read.
    Unknown,
    /// It cannot be copied: what has the name at the target.
    Blocked {
        by: By,
    },
    /// The source has something there that cannot be copied; the target keeps what it has.
    Occupied {
        by: By,
    },
    /// Nothing: neither side has content there.
    Nothing,
}

/// How two sides are compared.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub way: Way,
    pub compare: Compare,
    /// By how much the clock of the target's origin is ahead of this machine's, to two seconds; 0 where that
    /// is not known.
    pub target_ahead_ns: i128,
}

const SECOND_NS: i128 = 1_000_000_000;
/// Clocks are compared by the `Date` of answers, in whole seconds, and not anew for a single second.
const CLOCK_ERROR_NS: i128 = 2 * SECOND_NS;

impl Rules {
    /// What is to be done with a name that has these sides.
    pub fn decide(&self, source: Side, target: Side) -> Decision {
        match (source, target) {
            (Side::Present(_) | Side::Folder, Side::Unknown) => Decision::Unknown,
            (Side::Present(source), Side::Absent) => Decision::Copy { source, why: Why::New },
            (Side::Present(source), Side::Present(target)) => self.compare(source, target),
            (Side::Present(_), Side::Folder) => Decision::Blocked { by: "a folder".into() },
            (Side::Present(_) | Side::Folder, Side::Taken(by)) => Decision::Blocked { by },
            (Side::Folder, Side::Absent) => Decision::MakeFolder,
            (Side::Unknown, Side::Present(_) | Side::Folder) => Decision::Unknown,
            (Side::Absent, Side::Present(target)) => Decision::Extra { target },
            (Side::Absent, Side::Folder) => Decision::ExtraFolder,
            (Side::Taken(by), _) => Decision::Occupied { by },
            (Side::Folder, Side::Folder | Side::Present(_))
            | (Side::Absent | Side::Unknown, Side::Absent | Side::Unknown | Side::Taken(_)) => {
                Decision::Nothing
            }
        }
    }

    fn compare(&self, source: Entry, target: Entry) -> Decision {
        match self.difference(&source, &target) {
            Difference::None => Decision::Same { bytes: source.size },
            Difference::Known(why) => Decision::Copy { source, why },
            Difference::Asked(question) => Decision::Ask { source, target, question },
        }
    }

    fn difference(&self, source: &Entry, target: &Entry) -> Difference {
        if source.size != target.size {
            return Difference::Known(Why::Size);
        }
        match (self.compare, self.way) {
            (Compare::Size, _) => Difference::None,
            (Compare::Content, _) => match same_by_etag(source, target) {
                Some(true) => Difference::None,
                Some(false) | None => Difference::Asked(Question::Content),
            },
            (Compare::SizeAndTime | Compare::ExactTime, Way::Up) if was_fetched(source, target) => {
                Difference::None
            }
            (Compare::ExactTime, Way::Up) => Difference::Asked(Question::StoredTime),
            (Compare::ExactTime, Way::Down) => match seconds(source) == seconds(target) {
                true => Difference::None,
                false => Difference::Asked(Question::StoredTime),
            },
            (Compare::ExactTime, Way::Between) => match seconds(source) == seconds(target) {
                true => Difference::None,
                false => Difference::Known(Why::Time),
            },
            (Compare::SizeAndTime, Way::Up) => self.by_upload(source, target),
            // The object may have been made of that very file.
            (Compare::SizeAndTime, Way::Down) => match seconds(source) > seconds(target) {
                true => Difference::Asked(Question::StoredTime),
                false => Difference::None,
            },
            (Compare::SizeAndTime, Way::Between) => by_copy(source, target),
        }
    }

    /// A file that was changed before its object was made is the one that it was made of. The object's time
    /// is that of another clock, in whole seconds: what is not older for certain has to be asked.
    fn by_upload(&self, source: &Entry, target: &Entry) -> Difference {
        let is_older = match (source.modified_ns, target.modified_ns) {
            (Some(file), Some(object)) => file < object - self.target_ahead_ns.max(0) - CLOCK_ERROR_NS,
            _ => false,
        };
        if is_older { Difference::None } else { Difference::Asked(Question::StoredTime) }
    }
}

/// Whether the file got the object's time when it was fetched. One that was written in that very second, on a
/// file system that keeps no more than seconds, was changed then, too (ctime); this one was touched later.
fn was_fetched(file: &Entry, object: &Entry) -> bool {
    let (Some(modified_ns), Some(id)) = (file.modified_ns, file.file) else { return false };
    Some(modified_ns) == object.modified_ns && id.changed_ns >= modified_ns + SECOND_NS
}

enum Difference {
    None,
    Known(Why),
    Asked(Question),
}

/// A copy is younger than its source, or as young, as far as whole seconds tell.
fn by_copy(source: &Entry, target: &Entry) -> Difference {
    match (source.modified_ns, target.modified_ns) {
        (Some(source), Some(target)) if source < target => Difference::None,
        (source_ns, target_ns) if source_ns.is_some() && source_ns == target_ns => {
            match same_by_etag(source, target) {
                Some(false) => Difference::Known(Why::Newer),
                Some(true) | None => Difference::None,
            }
        }
        _ => Difference::Known(Why::Newer),
    }
}

/// Whether two objects have one content, where both ETags are MD5s: not those of parts. That of an object
/// encrypted with a key of one's own is no MD5, so that another ETag is no proof of other content.
fn same_by_etag(source: &Entry, target: &Entry) -> Option<bool> {
    Some(md5_of(source)? == md5_of(target)?)
}

/// The MD5 that the ETag looks like, in hexadecimal digits.
pub fn md5_of(object: &Entry) -> Option<&str> {
    let etag = object.etag.as_deref()?.trim_matches('"');
    (etag.len() == 32 && etag.bytes().all(|digit| digit.is_ascii_hexdigit())).then_some(etag)
}

fn seconds(entry: &Entry) -> Option<i128> {
    entry.modified_ns.map(|ns| ns.div_euclid(SECOND_NS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::FileId;

    const DAY: i128 = 86_400 * SECOND_NS;

    fn entry(size: u64, modified_ns: i128) -> Entry {
        Entry { name: "a".into(), size, modified_ns: Some(modified_ns), etag: None, file: None }
    }

    /// Of one size, the source so much younger than the target.
    #[track_caller]
    fn check(way: Way, compare: Compare, younger_ns: i128, expected: Option<Result<Why, Question>>) {
        let rules = Rules { way, compare, target_ahead_ns: 0 };
        let decided = rules.decide(Side::Present(entry(1, DAY + younger_ns)), Side::Present(entry(1, DAY)));
        let found = match decided {
            Decision::Same { bytes: 1 } => None,
            Decision::Copy { why, .. } => Some(Ok(why)),
            Decision::Ask { question, .. } => Some(Err(question)),
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{way:?} {compare:?} {younger_ns}");
    }

    #[test]
    fn times_are_compared_by_the_way() {
        let (asked, newer) = (Some(Err(Question::StoredTime)), Some(Ok(Why::Newer)));
        for (way, compare, younger_ns, expected) in [
            (Way::Up, Compare::SizeAndTime, -CLOCK_ERROR_NS - 1, None),
            // In the seconds that clocks are uncertain by, the file may have changed after its upload.
            (Way::Up, Compare::SizeAndTime, -CLOCK_ERROR_NS, asked),
            (Way::Up, Compare::SizeAndTime, 0, asked),
            (Way::Up, Compare::SizeAndTime, SECOND_NS / 2, asked),
            (Way::Up, Compare::SizeAndTime, DAY, asked),
            (Way::Up, Compare::ExactTime, -DAY / 2, asked),
            (Way::Up, Compare::Size, DAY, None),
            (Way::Down, Compare::SizeAndTime, -DAY / 2, None),
            (Way::Down, Compare::SizeAndTime, 0, None),
            (Way::Down, Compare::SizeAndTime, SECOND_NS, asked),
            (Way::Down, Compare::ExactTime, SECOND_NS / 2, None),
            (Way::Down, Compare::ExactTime, -1, asked),
            (Way::Down, Compare::ExactTime, SECOND_NS, asked),
            (Way::Between, Compare::SizeAndTime, -SECOND_NS, None),
            (Way::Between, Compare::SizeAndTime, 0, None),
            (Way::Between, Compare::SizeAndTime, SECOND_NS, newer),
            (Way::Between, Compare::Content, DAY, Some(Err(Question::Content))),
        ] {
            check(way, compare, younger_ns, expected);
        }
    }

    #[test]
    fn a_clock_that_is_ahead_makes_no_file_old() {
        let rules = Rules { way: Way::Up, compare: Compare::SizeAndTime, target_ahead_ns: 10 * SECOND_NS };
        let decide = |file_ns| rules.decide(Side::Present(entry(1, file_ns)), Side::Present(entry(1, DAY)));
        assert!(matches!(decide(DAY - 5 * SECOND_NS), Decision::Ask { .. }));
        assert!(matches!(decide(DAY - 12 * SECOND_NS), Decision::Ask { .. }));
        assert!(matches!(decide(DAY - 13 * SECOND_NS), Decision::Same { .. }));
    }

    #[test]
    fn a_file_that_was_fetched_has_the_time_of_its_object() {
        let rules = Rules { way: Way::Up, compare: Compare::SizeAndTime, target_ahead_ns: 0 };
        let file = |changed_ns| {
            let id = FileId { device: 1, inode: 1, changed_ns };
            Side::Present(Entry { file: Some(id), ..entry(1, DAY) })
        };
        let decide = |changed_ns| rules.decide(file(changed_ns), Side::Present(entry(1, DAY)));
        assert!(matches!(decide(DAY + SECOND_NS), Decision::Same { .. }));
        assert!(matches!(decide(DAY), Decision::Ask { .. }), "it may have been written in that second");
    }

    #[test]
    fn another_size_needs_no_time() {
        for compare in [Compare::SizeAndTime, Compare::Size, Compare::ExactTime, Compare::Content] {
            for way in [Way::Up, Way::Down, Way::Between] {
                let rules = Rules { way, compare, target_ahead_ns: 0 };
                let decided = rules.decide(Side::Present(entry(1, 0)), Side::Present(entry(2, DAY)));
                assert!(matches!(decided, Decision::Copy { why: Why::Size, .. }), "{decided:?}");
            }
        }
    }

    #[test]
    fn etags_tell_alike_where_both_are_md5s() {
        let of = |etag: &str| Entry { etag: Some(etag.into()), ..entry(1, DAY) };
        let (one, other) =
            (of("\"00000000000000000000000000000001\""), of("\"00000000000000000000000000000002\""));
        let rules = Rules { way: Way::Between, compare: Compare::Content, target_ahead_ns: 0 };
        let decide = |a: &Entry, b: &Entry| rules.decide(Side::Present(a.clone()), Side::Present(b.clone()));
        assert!(matches!(decide(&one, &one), Decision::Same { .. }));
        assert!(matches!(decide(&one, &other), Decision::Ask { question: Question::Content, .. }));
        let of_parts = of("\"00000000000000000000000000000001-2\"");
        assert!(matches!(decide(&of_parts, &of_parts), Decision::Ask { .. }));
        let by_time = Rules { compare: Compare::SizeAndTime, ..rules };
        let decided = by_time.decide(Side::Present(one.clone()), Side::Present(other));
        assert!(matches!(decided, Decision::Copy { why: Why::Newer, .. }), "written in one second");
        assert!(matches!(
            by_time.decide(Side::Present(one.clone()), Side::Present(one)),
            Decision::Same { .. }
        ));
    }

    #[test]
    fn what_is_unknown_or_taken_is_neither_deleted_nor_replaced() {
        let rules = Rules { way: Way::Down, compare: Compare::SizeAndTime, target_ahead_ns: 0 };
        let there = || Side::Present(entry(1, DAY));
        for (source, target, expected) in [
            (there(), Side::Unknown, Decision::Unknown),
            (Side::Unknown, there(), Decision::Unknown),
            (Side::Unknown, Side::Folder, Decision::Unknown),
            (Side::Unknown, Side::Absent, Decision::Nothing),
            (Side::Taken("a pipe".into()), there(), Decision::Occupied { by: "a pipe".into() }),
            (Side::Folder, Side::Folder, Decision::Nothing),
            (Side::Folder, there(), Decision::Nothing),
            (there(), Side::Taken("a link".into()), Decision::Blocked { by: "a link".into() }),
            (Side::Absent, Side::Taken("a pipe".into()), Decision::Nothing),
            (Side::Absent, there(), Decision::Extra { target: entry(1, DAY) }),
            (Side::Absent, Side::Folder, Decision::ExtraFolder),
            (Side::Folder, Side::Absent, Decision::MakeFolder),
        ] {
            assert_eq!(rules.decide(source.clone(), target.clone()), expected, "{source:?} {target:?}");
        }
    }
}
