//! What a file itself cannot tell: content type, metadata, tags, checksums. It is kept in an extended
//! attribute; where the file system has none, or no room for it, in a file of the origin's own that is named
//! after the version of the file.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use super::{Folder, etag};
use crate::crcs::Crcs;
use crate::object::{ObjectKind, ObjectMetadata};
use crate::sums::{ChecksumScope, Sum, SumAlgorithm};
use crate::version::{Part, Provenance, Version};

const NAME: &str = "user.flatout";

/// The most that is tried; ext4 has room for less.
const MAX_BYTES: usize = 8 * 1024;

/// Stands in the attribute when the rest is in a file.
const ELSEWHERE: &str = "elsewhere";

/// Metadata and version of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    pub metadata: ObjectMetadata,
    /// None of a file that was not written through the origin, or was written to since.
    pub version: Option<Version>,
}

/// Where notes are stored.
#[derive(PartialEq, Eq)]
pub(super) enum NotesPlace {
    Attribute,
    File,
}

impl Folder {
    /// Writes the metadata and the version of an open file.
    pub(super) fn note(
        &self,
        file: &File,
        metadata: &ObjectMetadata,
        version: Option<&Version>,
    ) -> io::Result<NotesPlace> {
        let about = file.metadata()?;
        let text = format!("{}\n{}", stamp(&about), NotesText::of(metadata, version).0);
        let set = |text: &str| rustix::fs::fsetxattr(file, NAME, text.as_bytes(), XattrFlags::empty());
        let written = if text.len() > MAX_BYTES { Err(Errno::TOOBIG) } else { set(&text) };
        match written {
            Ok(()) => Ok(NotesPlace::Attribute),
            Err(Errno::NOSPC | Errno::RANGE | Errno::TOOBIG | Errno::DQUOT) => {
                self.note_beside(&about, &text)?;
                set(&format!("{}\n{ELSEWHERE}\n", stamp(&about)))?;
                Ok(NotesPlace::File)
            }
            Err(Errno::NOTSUP) => self.note_beside(&about, &text).map(|()| NotesPlace::File),
            Err(error) => Err(error.into()),
        }
    }

    /// The notes of an open file, unless it was written to since.
    pub(super) fn notes(&self, file: &File, about: &Metadata) -> Notes {
        let mut buffer = [0; MAX_BYTES];
        let found = rustix::fs::fgetxattr(file, NAME, &mut buffer[..]);
        self.understand(found.map(|bytes| &buffer[..bytes]), about).unwrap_or_default()
    }

    /// The notes of a file by its path. None where it was replaced in between: the caller then opens it.
    pub(super) fn notes_at(&self, path: &str, about: &Metadata) -> Option<Notes> {
        let mut buffer = [0; MAX_BYTES];
        let found = rustix::fs::lgetxattr(self.root.join(path), NAME, &mut buffer[..]);
        self.understand(found.map(|bytes| &buffer[..bytes]), about)
    }

    /// None when the notes are of another version of the file.
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

    /// Removes the separate file of notes; most files have none.
    pub(super) fn forget_notes(&self, about: &Metadata) {
        let _ = std::fs::remove_file(self.notes_file(about));
    }

    fn notes_file(&self, about: &Metadata) -> PathBuf {
        self.root.join(super::OWN).join("notes").join(etag(about))
    }
}

/// Names and values, one pair a line.
pub(super) struct NotesText(pub String);

impl NotesText {
    fn of(metadata: &ObjectMetadata, version: Option<&Version>) -> NotesText {
        let mut lines = NotesText(String::new());
        lines.add_metadata(metadata);
        if let Some(version) = version {
            lines.add("etag", &version.etag);
            lines.add_crcs(version.crcs);
            lines.add_provenance(&version.provenance);
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

    pub(super) fn add_metadata(&mut self, metadata: &ObjectMetadata) {
        self.add("kind", metadata.kind.name());
        for (name, value) in [
            ("content-type", &metadata.content_type),
            ("content-encoding", &metadata.content_encoding),
            ("content-disposition", &metadata.content_disposition),
            ("content-language", &metadata.content_language),
            ("cache-control", &metadata.cache_control),
            ("expires", &metadata.expires),
            ("storage-class", &metadata.storage_class),
        ] {
            value.iter().for_each(|value| self.add(name, value));
        }
        metadata.user_metadata.iter().for_each(|(name, value)| self.add(&format!("meta.{name}"), value));
        metadata.tags.iter().for_each(|(name, value)| self.add(&format!("tag.{name}"), value));
    }

    fn add_provenance(&mut self, provenance: &Provenance) {
        provenance.upload.iter().for_each(|id| self.add("upload", id));
        if let Some(Sum { algorithm, scope, value }) = &provenance.sum {
            self.add("sum", &format!("{}:{}:{value}", algorithm.name(), scope.name()));
        }
        // Nearly always all but the last are of one size.
        let mut sizes: Vec<(u64, usize)> = Vec::new();
        for part in &provenance.parts {
            match sizes.last_mut() {
                Some((bytes, times)) if *bytes == part.bytes => *times += 1,
                _ => sizes.push((part.bytes, 1)),
            }
        }
        if !sizes.is_empty() {
            let sizes: Vec<String> = sizes.iter().map(|(bytes, times)| format!("{bytes}*{times}")).collect();
            self.add("parts", &sizes.join(","));
            let sums: Option<Vec<&str>> = provenance.parts.iter().map(|part| part.sum.as_deref()).collect();
            sums.iter().for_each(|sums| self.add("part-sums", &sums.join(",")));
        }
    }

    pub(super) fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(name, value)| (unescape(name), unescape(value)))
    }
}

impl ObjectMetadata {
    /// Takes what a line says, if it is one of [`NotesText::add_metadata`].
    pub(super) fn take(&mut self, name: &str, value: &str) {
        let value = value.to_owned();
        match name {
            "kind" => self.kind = ObjectKind::named(&value).unwrap_or_default(),
            "content-type" => self.content_type = Some(value),
            "content-encoding" => self.content_encoding = Some(value),
            "content-disposition" => self.content_disposition = Some(value),
            "content-language" => self.content_language = Some(value),
            "cache-control" => self.cache_control = Some(value),
            "expires" => self.expires = Some(value),
            "storage-class" => self.storage_class = Some(value),
            _ => {
                if let Some(name) = name.strip_prefix("meta.") {
                    self.user_metadata.insert(name.to_owned(), value);
                } else if let Some(name) = name.strip_prefix("tag.") {
                    self.tags.insert(name.to_owned(), value);
                }
            }
        }
    }
}

fn parse(text: &str) -> Notes {
    let (mut metadata, mut provenance) = (ObjectMetadata::default(), Provenance::default());
    let (mut etag, mut nvme, mut xz) = (None, None, None);
    for (name, value) in NotesText::pairs(text) {
        match name.as_str() {
            "etag" => etag = Some(value),
            "crc64nvme" => nvme = u64::from_str_radix(&value, 16).ok(),
            "crc64xz" => xz = u64::from_str_radix(&value, 16).ok(),
            "upload" => provenance.upload = Some(value),
            "sum" => provenance.sum = parse_sum(&value),
            "parts" => provenance.parts = parse_sizes(&value),
            "part-sums" => {
                for (part, sum) in provenance.parts.iter_mut().zip(value.split(',')) {
                    part.sum = Some(sum.to_owned());
                }
            }
            name => metadata.take(name, &value),
        }
    }
    let crcs = nvme.zip(xz).map(|(nvme, xz)| Crcs { nvme, xz });
    let version = etag.zip(crcs).map(|(etag, crcs)| Version { etag, crcs, provenance: Arc::new(provenance) });
    Notes { metadata, version }
}

fn parse_sum(text: &str) -> Option<Sum> {
    let mut words = text.splitn(3, ':');
    let (algorithm, scope) = (SumAlgorithm::named(words.next()?)?, ChecksumScope::named(words.next()?)?);
    Some(Sum { algorithm, scope, value: words.next()?.to_owned() })
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
        let provenance = Provenance {
            sum: Some(Sum {
                algorithm: SumAlgorithm::Sha256,
                scope: ChecksumScope::Parts,
                value: "QUI=-3".to_owned(),
            }),
            parts: vec![part(5, "QQ=="), part(5, "Qg=="), part(1, "Qw==")],
            upload: Some("1234".to_owned()),
        };
        let text = |text: &str| Some(text.to_owned());
        let metadata = ObjectMetadata {
            content_type: text("text/plain; a=\"%0a\""),
            content_language: text("de, en"),
            expires: text("Thu, 01 Jan 2037 00:00:00 GMT"),
            storage_class: text("STANDARD_IA"),
            user_metadata: [("name".to_owned(), "100 % über\nzwei Zeilen".to_owned())].into(),
            tags: [("a=b %3d".to_owned(), "c=d".to_owned()), (String::from("empty"), String::new())].into(),
            kind: ObjectKind::Appendable,
            ..ObjectMetadata::default()
        };
        let crcs = Crcs { nvme: 0x1234, xz: u64::MAX };
        Notes {
            metadata,
            version: Some(Version { etag: "e-3".to_owned(), crcs, provenance: Arc::new(provenance) }),
        }
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
                noted.metadata.user_metadata.insert("long".to_owned(), "x".repeat(MAX_BYTES));
            }
            folder.note(&file, &noted.metadata, noted.version.as_ref()).unwrap();
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
