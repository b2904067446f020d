//! What the next mount has to know of a file whose bytes the origin lacks.
//!
//! ```text
//! flatout staged 1
//! boot     ID                     only where it does not outlive the boot that it was written in
//! object   s3://bucket/key
//! base     SIZE SECONDS ETAG      the version that was changed; or
//! new                             none, and there may be one; or
//! absent                          none, and there must be none
//! replaces SIZE SECONDS ETAG      behind `new`: the version that is replaced
//! size     SIZE BASE              of the file, and how much of the version is part of it
//! changed  START END              once for each range
//! attempt  END TOKEN              an upload whose end is not known, as of `Attempt`
//! since    START END              once for each range that was changed since
//! posix                           its attributes are known: what its object is to be described by
//! type     TEXT                   its type
//! meta     NAME VALUE             once for each name of its metadata
//! end
//! ```

use std::fmt::Write;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use flatout_engine::Object;
use flatout_policy::ranges::RangeSet;
use flatout_wire::location::Location;

use super::Attempt;
use crate::attributes::FileKind;
use crate::posix::Posix;

const FIRST_LINE: &str = "flatout staged 1";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) location: Location,
    pub(crate) base: Base,
    /// Of the file.
    pub(crate) size: u64,
    /// How much of the version is part of it.
    pub(crate) base_end: u64,
    pub(crate) changed: Vec<Range<u64>>,
    pub(crate) attempt: Option<Attempt>,
    /// Where its attributes are kept in metadata, and known.
    pub(crate) posix: Option<Arc<Posix>>,
    /// It is of no use after another boot: then the bytes may not be on the disk.
    pub(crate) boot: Option<String>,
}

/// The version that a staged file goes on from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    Version(KnownVersion),
    /// What is there is replaced: that version, or none.
    New(Option<KnownVersion>),
    Absent,
}

/// A version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KnownVersion {
    pub(crate) size: u64,
    pub(crate) modified_s: i64,
    pub(crate) etag: Option<String>,
}

impl Record {
    pub(crate) fn new(location: Location, base: Base, posix: Option<Arc<Posix>>) -> Record {
        let (changed, attempt, boot) = (Vec::new(), None, None);
        Record { location, base, size: 0, base_end: 0, changed, attempt, posix, boot }
    }

    /// # Errors
    /// A name or an ETag with a line's end in it.
    pub(super) fn text(&self, synced: bool) -> io::Result<String> {
        let object = self.location.to_string();
        let version = match &self.base {
            Base::Version(version) | Base::New(Some(version)) => Some(version),
            Base::New(None) | Base::Absent => None,
        };
        let etag = version.and_then(|version| version.etag.as_deref()).unwrap_or_default();
        if object.contains('\n') || etag.contains('\n') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "its name has a line's end in it"));
        }
        let mut text = format!("{FIRST_LINE}\n");
        if !synced {
            let _ = writeln!(text, "boot {}", boot());
        }
        let _ = writeln!(text, "object {object}");
        let _ = match &self.base {
            Base::Version(KnownVersion { size, modified_s, .. }) => {
                writeln!(text, "base {size} {modified_s} {etag}")
            }
            Base::New(None) => writeln!(text, "new"),
            Base::New(Some(KnownVersion { size, modified_s, .. })) => {
                writeln!(text, "new\nreplaces {size} {modified_s} {etag}")
            }
            Base::Absent => writeln!(text, "absent"),
        };
        let _ = writeln!(text, "size {} {}", self.size, self.base_end);
        for range in &self.changed {
            let _ = writeln!(text, "changed {} {}", range.start, range.end);
        }
        if let Some(Attempt { token, end, changed }) = &self.attempt {
            let _ = writeln!(text, "attempt {end} {token}");
            for range in changed.iter() {
                let _ = writeln!(text, "since {} {}", range.start, range.end);
            }
        }
        if let Some(posix) = &self.posix {
            let options = posix.options(FileKind::File);
            let _ = writeln!(text, "posix");
            if let Some(type_) = &options.content_type {
                let _ = writeln!(text, "type {type_}");
            }
            for (name, value) in &options.metadata {
                let _ = writeln!(text, "meta {name} {value}");
            }
        }
        text.push_str("end\n");
        Ok(text)
    }

    /// `None` for what is no whole record.
    pub(super) fn parse(text: &str) -> Option<Record> {
        let mut lines = text.strip_suffix("end\n")?.lines();
        if lines.next()? != FIRST_LINE {
            return None;
        }
        let (mut boot, mut location, mut base, mut size) = (None, None, None, None);
        let (mut changed, mut attempt) = (Vec::new(), None::<Attempt>);
        let (mut metadata, mut content_type) = (None::<Vec<(String, String)>>, None);
        let two = |rest: &str| {
            let (first, second) = rest.split_once(' ')?;
            Some((first.parse::<u64>().ok()?, second.parse::<u64>().ok()?))
        };
        let range = |rest: &str| two(rest).filter(|(start, end)| start < end).map(|(start, end)| start..end);
        let version = |rest: &str| {
            let mut words = rest.splitn(3, ' ');
            let (size, modified_s) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let etag = words.next().filter(|etag| !etag.is_empty()).map(str::to_owned);
            Some(KnownVersion { size, modified_s, etag })
        };
        for line in lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "boot" => boot = Some(rest.to_owned()),
                "object" => location = Some(Location::parse(rest).ok()?),
                "base" => base = Some(Base::Version(version(rest)?)),
                "new" => base = Some(Base::New(None)),
                "replaces" => base = Some(Base::New(Some(version(rest)?))),
                "absent" => base = Some(Base::Absent),
                "size" => size = Some(two(rest)?),
                "changed" => changed.push(range(rest)?),
                "attempt" => {
                    let (end, token) = rest.split_once(' ')?;
                    let (end, token) = (end.parse().ok()?, token.to_owned());
                    attempt = Some(Attempt { token, end, changed: RangeSet::default() });
                }
                "since" => attempt.as_mut()?.changed.add(&range(rest)?),
                "posix" => metadata = Some(Vec::new()),
                "type" => content_type = Some(rest.to_owned()),
                "meta" => {
                    let (name, value) = rest.split_once(' ')?;
                    metadata.as_mut()?.push((name.to_owned(), value.to_owned()));
                }
                _ => return None,
            }
        }
        let (size, base_end) = size?;
        let posix = metadata.map(|metadata| Arc::new(Posix::read(&metadata, content_type.as_deref())));
        Some(Record { location: location?, base: base?, size, base_end, changed, attempt, posix, boot })
    }

    /// Whether what it says is still so: the disk may have lost what was not synchronized.
    pub(super) fn holds(&self) -> bool {
        self.boot.as_ref().is_none_or(|known| *known == boot())
    }

    /// The version that it goes on from.
    pub(crate) fn object(&self) -> Option<(Object, i64)> {
        match &self.base {
            Base::Version(version) => Some((version.object(&self.location), version.modified_s)),
            Base::New(_) | Base::Absent => None,
        }
    }

    /// The version that it replaces.
    pub(crate) fn replaces(&self) -> Option<Object> {
        match &self.base {
            Base::New(version) => version.as_ref().map(|version| version.object(&self.location)),
            Base::Version(_) | Base::Absent => None,
        }
    }
}

impl KnownVersion {
    fn object(&self, location: &Location) -> Object {
        let KnownVersion { size, modified_s, etag } = self.clone();
        Object { location: location.clone(), size, etag, modified_s: u64::try_from(modified_s).ok() }
    }
}

/// Another after each boot; empty where the system does not say.
fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let version = |etag: Option<&str>, modified_s| KnownVersion {
            size: 7,
            modified_s,
            etag: etag.map(str::to_owned),
        };
        let bases = [
            Base::Version(version(Some("\"a b\""), 1_700_000_000)),
            Base::Version(version(None, -1)),
            Base::New(Some(version(Some("\"a\""), 5))),
            Base::New(None),
            Base::Absent,
        ];
        for base in bases {
            let location = Location::parse("s3://bucket/a key/with spaces").unwrap();
            let mut record = Record::new(location, base, None);
            (record.size, record.base_end, record.changed) = (9, 7, vec![0..1, 5..9]);
            let mut changed = RangeSet::default();
            changed.add(&(2..4));
            for attempt in [None, Some(Attempt { token: "0123abcd".into(), end: 8, changed })] {
                record.attempt = attempt;
                assert_eq!(Record::parse(&record.text(true).unwrap()), Some(record.clone()));
                let text = record.text(false).unwrap();
                let read = Record::parse(&text).unwrap();
                assert!(read.holds() && read.boot.is_some());
                let other = text.replace(&format!("boot {}", boot()), "boot of-another-time");
                assert!(!Record::parse(&other).unwrap().holds());
            }
            let posix = Posix {
                mode: Some(0o640),
                is_link: true,
                xattrs: [("user.a b".to_owned(), b"1\n2".to_vec())].into(),
                content_type: Some("text/plain; charset=utf-8".to_owned()),
                others: vec![("empty".to_owned(), String::new())],
                ..Posix::default()
            };
            for posix in [Posix::default(), posix] {
                record.posix = Some(Arc::new(posix));
                assert_eq!(Record::parse(&record.text(true).unwrap()), Some(record.clone()));
            }
        }
    }

    #[test]
    fn what_is_not_whole_is_none() {
        let location = Location::parse("s3://bucket/key").unwrap();
        let text = Record::new(location, Base::New(None), None).text(true).unwrap();
        for length in 0..text.len() {
            assert_eq!(Record::parse(&text[..length]), None, "{length}");
        }
        assert_eq!(Record::parse(&text.replace("size 0 0", "size x 0")), None);
        assert_eq!(Record::parse(&text.replace("size 0 0", "size 0 0\nsince 1 2")), None);
        assert_eq!(Record::parse(&text.replace("staged 1", "staged 2")), None);
        let odd = Location::parse("s3://bucket/a\nb").map(|at| Record::new(at, Base::New(None), None));
        assert!(odd.is_err() || odd.unwrap().text(true).is_err());
    }
}
