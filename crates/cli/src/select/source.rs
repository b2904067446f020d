//! The source of many objects: a folder of a bucket, or a pattern of keys.

use std::path::Path;

use flatout_engine::Entry;
use flatout_wire::location::Location;

use super::pattern::{Pattern, WILDCARDS};
use crate::failure::Failure;

/// What is listed, and what of it is meant.
#[derive(Clone)]
pub struct Source {
    /// The bucket and the prefix to list.
    pub location: Location,
    /// Whether more than one level is listed.
    pub deep: bool,
    /// How much of each key is the folder that names are relative to.
    pub folder_bytes: usize,
    pattern: Option<Pattern>,
}

impl Source {
    /// Everything below a folder: a `/` at the end of it makes no difference.
    pub fn folder(location: &Location) -> Option<Source> {
        let mut folder = location.key().to_owned();
        if !folder.is_empty() && !folder.ends_with('/') {
            folder.push('/');
        }
        let folder_bytes = folder.len();
        Some(Source { location: location.with_key(folder)?, deep: true, folder_bytes, pattern: None })
    }

    /// Everything that begins with the key, as `ls` shows it: its next level, or with `deep` all.
    pub fn prefix(location: &Location, deep: bool) -> Option<Source> {
        let folder_bytes = folder_bytes(location.key());
        Some(Source { location: location.with_key(location.key())?, deep, folder_bytes, pattern: None })
    }

    /// What the key as a pattern matches; with `recursive` also what lies in folders that match. Names are
    /// relative to the last folder before the first wildcard; one behind a `\` is none.
    pub fn pattern(location: &Location, recursive: bool) -> Result<Option<Source>, Failure> {
        let key = location.key();
        let (fixed, rest) = fixed_part(key);
        let Some(listed) = location.with_key(&*fixed) else { return Ok(None) };
        let pattern = Pattern::of_keys(key, recursive).map_err(|why| {
            let failure = Failure::usage(format!("read: {location}: the pattern {why}"));
            failure.with_hint("a \\ before a character makes it stand for itself")
        })?;
        let folder_bytes = folder_bytes(&fixed);
        let deep = is_deep(rest, recursive);
        Ok(Some(Source { location: listed, deep, folder_bytes, pattern: Some(pattern) }))
    }

    /// Whether the key is to be taken for a pattern.
    pub fn is_pattern(location: &Location) -> bool {
        location.bucket().is_some() && location.key().contains(WILDCARDS)
    }

    /// Whether the entry is one of those that are meant.
    pub fn means(&self, entry: &Entry) -> bool {
        let Some(pattern) = &self.pattern else { return true };
        pattern.matches(match entry {
            Entry::Object(listed) => &listed.key,
            Entry::Prefix(prefix) => prefix.trim_end_matches('/'),
        })
    }
}

/// The files that a pattern of paths means, as [`Source`] has it for keys.
pub struct FilePattern {
    /// The folder that is walked, and that names are relative to, as the pattern has it: with its `/`, or
    /// empty.
    pub folder: String,
    /// Whether folders in it are walked, too.
    pub deep: bool,
    pattern: Pattern,
}

impl FilePattern {
    /// The pattern, where the path is one and names nothing that is there.
    pub fn of(path: &str, recursive: bool) -> Result<Option<FilePattern>, Failure> {
        if !path.contains(WILDCARDS) || Path::new(path).symlink_metadata().is_ok() {
            return Ok(None);
        }
        let (fixed, rest) = fixed_part(path);
        let pattern = Pattern::of_keys(path, recursive).map_err(|why| {
            let failure = Failure::usage(format!("read: {path}: the pattern {why}"));
            failure.with_hint("a \\ before a character makes it stand for itself")
        })?;
        let folder = fixed[..folder_bytes(&fixed)].to_owned();
        Ok(Some(FilePattern { folder, deep: is_deep(rest, recursive), pattern }))
    }

    /// Whether the file of that name below the folder is meant.
    pub fn means(&self, name: &str) -> bool {
        self.pattern.matches(&format!("{}{name}", self.folder))
    }
}

/// Whether a match may lie further down than the folder.
fn is_deep(rest: &str, recursive: bool) -> bool {
    recursive || rest.contains('/') || rest.contains("**") || rest.contains('{')
}

/// What every match begins with, as it stands in keys, and the pattern from its first wildcard on.
fn fixed_part(pattern: &str) -> (String, &str) {
    let mut fixed = String::with_capacity(pattern.len());
    let mut rest = pattern.chars();
    loop {
        let ahead = rest.as_str();
        match rest.next() {
            Some('\\') => fixed.extend(rest.next()),
            Some(next) if !WILDCARDS.contains(&next) => fixed.push(next),
            _ => return (fixed, ahead),
        }
    }
}

fn folder_bytes(key: &str) -> usize {
    key.rfind('/').map_or(0, |slash| slash + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(typed: &str) -> Location {
        Location::parse(typed).expect("a location")
    }

    #[test]
    fn a_folder_is_one_with_and_without_its_slash() {
        for (typed, listed, below) in
            [("s3://b", "", "a/b"), ("s3://b/", "", "a/b"), ("s3://b/a", "a/", "b"), ("s3://b/a/", "a/", "b")]
        {
            let source = Source::folder(&parse(typed)).expect("a bucket");
            assert_eq!((source.location.key(), &"a/b"[source.folder_bytes..]), (listed, below), "{typed}");
        }
        assert!(Source::folder(&parse("http://h/a")).is_none());
    }

    #[test]
    fn a_pattern_is_listed_from_its_fixed_part_and_no_deeper_than_need_be() {
        for (typed, recursive, listed, folder, deep) in [
            ("s3://b/a/x*.bin", false, "a/x", "a/", false),
            ("s3://b/a/x*.bin", true, "a/x", "a/", true),
            ("s3://b/a/*/x", false, "a/", "a/", true),
            ("s3://b/a**", false, "a", "", true),
            ("s3://b/[ab]", false, "", "", false),
            (r"s3://b/a\*b*", false, "a*b", "", false),
            (r"s3://b/\[x\]/*", false, "[x]/", "[x]/", false),
            (r"s3://b/x/\{\?", true, "x/{?", "x/", true),
        ] {
            let source = Source::pattern(&parse(typed), recursive).unwrap().expect("a bucket");
            let found = (source.location.key(), source.folder_bytes, source.deep);
            assert_eq!(found, (listed, folder.len(), deep), "{typed}");
        }
        assert!(Source::pattern(&parse("s3://b/[a"), false).is_err());
        assert!(Source::pattern(&parse(r"s3://b/a*\"), false).is_err());
        assert!(!Source::is_pattern(&parse("http://h/a*")), "a URL is one object");
    }
}
