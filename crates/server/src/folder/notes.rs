//! What a file itself cannot tell: content type, metadata, tags, checksums. It is kept in an extended attribute; where the
//! file system has none, or no room for it, in a file of the origin's own that is named after the version of the file.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::{Folder, etag};
use crate::crcs::Crcs;
use crate::object::{Kept, Kind};
use crate::sums::{Algorithm, Span, Sum};
use crate::version::{Made, Part, Version};

const NAME: &str = "user.flatout";

/// The most that is tried; ext4 has room for less.
const MAX_BYTES: usize = 8 * 1024;

/// Stands in the attribute when the rest is in a file.
const ELSEWHERE: &str = "elsewhere";

/// What is known of a file beside its bytes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    pub kept: Kept,
    /// None of a file that was not written through the origin, or was written to since.
    pub version: Option<Version>,
}

/// Where notes were put.
#[derive(PartialEq, Eq)]
pub(super) enum Room {
    Attribute,
    File,
}

impl Folder {
    /// Notes of an open file what its upload said, and what was computed then.
    pub(super) fn note(&self, file: &File, kept: &Kept, version: Option<&Version>) -> io::Result<Room> {
        let about = file.metadata()?;
        let text = format!("{}\n{}", stamp(&about), Lines::of(kept, version).0);
        let set = |text: &str| rustix::fs::fsetxattr(file, NAME, text.as_bytes(), XattrFlags::empty());
        let written = if text.len() > MAX_BYTES { Err(Errno::TOOBIG) } else { set(&text) };
        match written {
            Ok(()) => Ok(Room::Attribute),
            Err(Errno::NOSPC | Errno::RANGE | Errno::TOOBIG | Errno::DQUOT) => {
                self.note_beside(&about, &text)?;
                set(&format!("{}\n{ELSEWHERE}\n", stamp(&about)))?;
                Ok(Room::File)
            }
            Err(Errno::NOTSUP) => self.note_beside(&about, &text).map(|()| Room::File),
            Err(error) => Err(error.into()),
        }
    }

    /// What was noted, unless the file was written to since.
    pub(super) fn notes(&self, file: &File, about: &Metadata) -> Notes {
        let mut buffer = [0; MAX_BYTES];
        let found = rustix::fs::fgetxattr(file, NAME, &mut buffer[..]);
        self.understand(found.map(|bytes| &buffer[..bytes]), about).unwrap_or_default()
    }

    /// The same of a file that is not open. It may be replaced in between, and is opened then.
    pub(super) fn notes_at(&self, path: &str, about: &Metadata) -> Option<Notes> {
        let mut buffer = [0; MAX_BYTES];
        let found = rustix::fs::lgetxattr(self.root.join(path), NAME, &mut buffer[..]);
        self.understand(found.map(|bytes| &buffer[..bytes]), about)
    }

    /// None when what was noted is of another version of the file.
    fn understand(&self, found: rustix::io::Result<&[u8]>, about: &Metadata) -> Option<Notes> {
        let text = match found {
            Ok(text) => std::str::from_utf8(text).unwrap_or_default().to_owned(),
            Err(Errno::NODATA) => return Some(Notes::default()),
            Err(_) => match std::fs::read_to_string(self.notes_file(about)) {
                Ok(text) => text,
                Err(_) => return Some(Notes::default()),
            },
        };
        let rest = text.strip_prefix(&stamp(about))?.strip_prefix('\n')?;
        if rest.trim_end() != ELSEWHERE {
            return Some(parse(rest));
        }
        let text = std::fs::read_to_string(self.notes_file(about)).unwrap_or_default();
        text.strip_prefix(&stamp(about)).map(parse)
    }

    fn note_beside(&self, about: &Metadata, text: &str) -> io::Result<()> {
        let path = self.notes_file(about);
        std::fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
        super::write_whole(&path, text)
    }

    /// Removes what was noted in a file of its own; most files have none.
    pub(super) fn forget_notes(&self, about: &Metadata) {
        let _ = std::fs::remove_file(self.notes_file(about));
    }

    fn notes_file(&self, about: &Metadata) -> PathBuf {
        self.root.join(super::OWN).join("notes").join(etag(about))
    }
}

/// Names and values, one pair a line.
pub(super) struct Lines(pub String);

impl Lines {
    fn of(kept: &Kept, version: Option<&Version>) -> Lines {
        let mut lines = Lines(String::new());
        lines.add_kept(kept);
        if let Some(version) = version {
            lines.add("etag", &version.etag);
            lines.add_crcs(version.crcs);
            lines.add_made(&version.made);
        }
        lines
    }

    pub(super) fn add(&mut self, name: &str, value: &str) {
        self.0.push_str(&format!("{}={}\n", escape(name), escape(value)));
    }

    pub(super) fn add_crcs(&mut self, crcs: Crcs) {
        self.add("crc64nvme", &format!("{:016x}", crcs.nvme));
        self.add("crc64xz", &format!("{:016x}", crcs.xz));
    }

    pub(super) fn add_kept(&mut self, kept: &Kept) {
        self.add("kind", kept.kind.name());
        for (name, value) in [
            ("content-type", &kept.content_type),
            ("content-encoding", &kept.content_encoding),
            ("content-disposition", &kept.content_disposition),
            ("content-language", &kept.content_language),
            ("cache-control", &kept.cache_control),
            ("expires", &kept.expires),
            ("storage-class", &kept.storage_class),
        ] {
            value.iter().for_each(|value| self.add(name, value));
        }
        kept.metadata.iter().for_each(|(name, value)| self.add(&format!("meta.{name}"), value));
        kept.tags.iter().for_each(|(name, value)| self.add(&format!("tag.{name}"), value));
    }

    fn add_made(&mut self, made: &Made) {
        made.upload.iter().for_each(|id| self.add("upload", id));
        if let Some(Sum { algorithm, span, value }) = &made.sum {
            self.add("sum", &format!("{}:{}:{value}", algorithm.name(), span.name()));
        }
        // Nearly always all but the last are of one size.
        let mut sizes: Vec<(u64, usize)> = Vec::new();
        for part in &made.parts {
            match sizes.last_mut() {
                Some((bytes, times)) if *bytes == part.bytes => *times += 1,
                _ => sizes.push((part.bytes, 1)),
            }
        }
        if !sizes.is_empty() {
            let sizes: Vec<String> = sizes.iter().map(|(bytes, times)| format!("{bytes}*{times}")).collect();
            self.add("parts", &sizes.join(","));
            let sums: Option<Vec<&str>> = made.parts.iter().map(|part| part.sum.as_deref()).collect();
            sums.iter().for_each(|sums| self.add("part-sums", &sums.join(",")));
        }
    }

    pub(super) fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (unescape(name), unescape(value)))
    }
}

impl Kept {
    /// Takes what a line says, if it is one of [`Lines::add_kept`].
    pub(super) fn take(&mut self, name: &str, value: &str) {
        let value = value.to_owned();
        match name {
            "kind" => self.kind = Kind::named(&value).unwrap_or_default(),
            "content-type" => self.content_type = Some(value),
            "content-encoding" => self.content_encoding = Some(value),
            "content-disposition" => self.content_disposition = Some(value),
            "content-language" => self.content_language = Some(value),
            "cache-control" => self.cache_control = Some(value),
            "expires" => self.expires = Some(value),
            "storage-class" => self.storage_class = Some(value),
            _ => {
                if let Some(name) = name.strip_prefix("meta.") {
                    self.metadata.insert(name.to_owned(), value);
                } else if let Some(name) = name.strip_prefix("tag.") {
                    self.tags.insert(name.to_owned(), value);
                }
            }
        }
    }
}

fn parse(text: &str) -> Notes {
    let (mut kept, mut made) = (Kept::default(), Made::default());
    let (mut etag, mut nvme, mut xz) = (None, None, None);
    for (name, value) in Lines::pairs(text) {
        match name.as_str() {
            "etag" => etag = Some(value),
            "crc64nvme" => nvme = u64::from_str_radix(&value, 16).ok(),
            "crc64xz" => xz = u64::from_str_radix(&value, 16).ok(),
            "upload" => made.upload = Some(value),
            "sum" => made.sum = parse_sum(&value),
            "parts" => made.parts = parse_sizes(&value),
            "part-sums" => {
                for (part, sum) in made.parts.iter_mut().zip(value.split(',')) {
                    part.sum = Some(sum.to_owned());
                }
            }
            name => kept.take(name, &value),
        }
    }
    let crcs = nvme.zip(xz).map(|(nvme, xz)| Crcs { nvme, xz });
    let version = etag.zip(crcs).map(|(etag, crcs)| Version { etag, crcs, made: Arc::new(made) });
    Notes { kept, version }
}

fn parse_sum(text: &str) -> Option<Sum> {
    let mut words = text.splitn(3, ':');
    let (algorithm, span) = (Algorithm::named(words.next()?)?, Span::named(words.next()?)?);
    Some(Sum { algorithm, span, value: words.next()?.to_owned() })
}

fn parse_sizes(text: &str) -> Vec<Part> {
    let sizes = text.split(',').filter_map(|size| {
        let (bytes, times) = size.split_once('*')?;
        Some((bytes.parse().ok()?, times.parse().ok()?))
    });
    sizes.flat_map(|(bytes, times)| std::iter::repeat_n(Part { bytes, sum: None }, times)).collect()
}

/// Changes with every write to the file, and with nothing else: a rename and a new attribute leave it alone.
fn stamp(about: &Metadata) -> String {
    format!("{}:{}.{:09}", about.len(), about.mtime(), about.mtime_nsec())
}

fn escape(value: &str) -> String {
    value.replace('%', "%25").replace('\n', "%0a").replace('\r', "%0d").replace('=', "%3d")
}

fn unescape(value: &str) -> String {
    value.replace("%3d", "=").replace("%0d", "\r").replace("%0a", "\n").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn notes() -> Notes {
        let part = |bytes, sum: &str| Part { bytes, sum: Some(sum.to_owned()) };
        let made = Made {
            sum: Some(Sum { algorithm: Algorithm::Sha256, span: Span::Parts, value: "QUI=-3".to_owned() }),
            parts: vec![part(5, "QQ=="), part(5, "Qg=="), part(1, "Qw==")],
            upload: Some("1234".to_owned()),
        };
        let text = |text: &str| Some(text.to_owned());
        let kept = Kept {
            content_type: text("text/plain; a=\"%0a\""),
            content_language: text("de, en"),
            expires: text("Thu, 01 Jan 2037 00:00:00 GMT"),
            storage_class: text("STANDARD_IA"),
            metadata: [("name".to_owned(), "100 % über\nzwei Zeilen".to_owned())].into(),
            tags: [("a=b %3d".to_owned(), "c=d".to_owned()), (String::from("empty"), String::new())].into(),
            kind: Kind::Appendable,
            ..Kept::default()
        };
        let crcs = Crcs { nvme: 0x1234, xz: u64::MAX };
        Notes { kept, version: Some(Version { etag: "e-3".to_owned(), crcs, made: Arc::new(made) }) }
    }

    #[test]
    fn notes_are_kept_until_the_file_changes() {
        // Beside the test itself and not in /tmp: a tmpfs has no such attributes before Linux 6.6.
        let here = std::env::current_exe().unwrap();
        let root = tempfile::tempdir_in(here.parent().unwrap()).unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let path = root.path().join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"content").unwrap();
        for long in [false, true] {
            let mut noted = notes();
            if long {
                noted.kept.metadata.insert("long".to_owned(), "x".repeat(MAX_BYTES));
            }
            folder.note(&file, &noted.kept, noted.version.as_ref()).unwrap();
            let about = file.metadata().unwrap();
            assert_eq!(folder.notes(&file, &about), noted);
            assert_eq!(folder.notes_at("file", &about).unwrap(), noted);
            assert_eq!(root.path().join(super::super::OWN).exists(), long);
        }
        file.write_all(b"more").unwrap();
        let about = file.metadata().unwrap();
        assert_eq!(folder.notes(&file, &about), Notes::default());
        assert_eq!(folder.notes_at("file", &about), None);
    }
}
