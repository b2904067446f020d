//! What the file of an object is called, and which objects cannot have one: docs/names.md, line by line.

use std::collections::HashSet;

use flatout_engine::is_temporary_name;

/// The longest name of a file on Linux's file systems, in bytes.
const NAME_BYTES_MAX: usize = 255;

/// What a key means as a file.
#[derive(Debug, PartialEq, Eq)]
pub enum FileName {
    /// A file at this path below the target folder.
    File(String),
    /// A key that ends in `/`: consoles write such objects to show an empty folder.
    Marker,
    /// No file can stand for it; why.
    Unusable(String),
}

/// Names for the objects of one run, in the order of their listing.
pub struct FileNames {
    folder_bytes: usize,
    /// On a file system that takes `a` and `A` for one name: files and folders so far, in lower case.
    folded: Option<Folded>,
    /// Files so far that a later key may need as a folder: each is the beginning of the next. A listing is
    /// sorted, so that whatever stands between `a` and `a/b` begins with `a`.
    open: Vec<String>,
}

#[derive(Default)]
struct Folded {
    files: HashSet<String>,
    folders: HashSet<String>,
}

impl FileNames {
    /// For keys whose first `folder_bytes` bytes are the source folder.
    pub fn new(folder_bytes: usize, folds_case: bool) -> FileNames {
        FileNames { folder_bytes, folded: folds_case.then(Folded::default), open: Vec::new() }
    }

    /// The key's file.
    pub fn name(&mut self, key: &str) -> FileName {
        let path = key.get(self.folder_bytes..).unwrap_or(key);
        if path.is_empty() || path.ends_with('/') {
            return FileName::Marker;
        }
        if let Some(why) = impossible(path) {
            return FileName::Unusable(why.into());
        }
        match self.clash(path) {
            Some(why) => FileName::Unusable(why),
            None => FileName::File(path.to_owned()),
        }
    }

    fn clash(&mut self, path: &str) -> Option<String> {
        if let Some(folded) = &mut self.folded {
            return folded.clash(&path.to_lowercase());
        }
        while self.open.last().is_some_and(|open| !path.starts_with(open.as_str())) {
            self.open.pop();
        }
        let file = self.open.iter().find(|file| path.as_bytes().get(file.len()) == Some(&b'/'));
        if let Some(file) = file {
            return Some(format!(
                "'{file}' is an object too, and would have to be a file and a folder at once"
            ));
        }
        self.open.push(path.to_owned());
        None
    }
}

impl Folded {
    fn clash(&mut self, path: &str) -> Option<String> {
        if self.files.contains(path) || self.folders.contains(path) {
            return Some(
                "another object's name differs only in case, which this file system does not tell apart"
                    .into(),
            );
        }
        let folders: Vec<&str> = path.match_indices('/').map(|(at, _)| &path[..at]).collect();
        if let Some(file) = folders.iter().find(|folder| self.files.contains(**folder)) {
            return Some(format!(
                "'{file}' is an object too, and would have to be a file and a folder at once"
            ));
        }
        self.folders.extend(folders.into_iter().map(str::to_owned));
        self.files.insert(path.to_owned());
        None
    }
}

/// Why no path below a folder can be this.
fn impossible(path: &str) -> Option<&'static str> {
    if path.contains('\0') {
        return Some("no file name can hold a NUL");
    }
    path.split('/').find_map(|name| match name {
        "" => Some("a path with an empty name in it (a '/' at its start, or '//') would be another object's"),
        "." | ".." => Some("a name '.' or '..' in it would lead elsewhere"),
        name if name.len() > NAME_BYTES_MAX => {
            Some("a name in it is longer than the 255 bytes that a file's may have")
        }
        name if is_temporary_name(name) => {
            Some("a name in it has the form of our temporary files, which the next run clears")
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys in the order of a listing, each with the reason for which it has no file, if there is one.
    #[track_caller]
    fn check(folds_case: bool, keys: &[(&str, Option<&str>)]) {
        let mut names = FileNames::new(0, folds_case);
        for (key, why) in keys {
            match (names.name(key), why) {
                (FileName::File(path), None) => assert_eq!(path, *key),
                (FileName::Unusable(said), Some(why)) => assert!(said.contains(why), "{key}: {said}"),
                (FileName::Marker, Some("marker")) => {}
                (named, why) => panic!("{key:?}: {named:?} instead of {why:?}"),
            }
        }
    }

    #[test]
    fn keys_that_no_file_can_stand_for() {
        let long = "x".repeat(255);
        let longer = "x".repeat(256);
        check(
            false,
            &[
                ("../a", Some("lead elsewhere")),
                ("a/../../b", Some("lead elsewhere")),
                ("..", Some("lead elsewhere")),
                ("a/./b", Some("lead elsewhere")),
                ("/etc/passwd", Some("empty name")),
                ("a//b", Some("empty name")),
                ("a\0b", Some("NUL")),
                ("d/.x.flatout-0123456789abcdef-0", Some("temporary")),
                (".x.flatout-1-0", None),
                (&long, None),
                (&longer, Some("255 bytes")),
                ("...", None),
                ("..a/b", None),
                ("line\nbreak\u{1b}[31m", None),
                ("ü/日本", None),
                ("", Some("marker")),
                ("folder/", Some("marker")),
                ("a//", Some("marker")),
            ],
        );
    }

    #[test]
    fn a_name_is_a_file_or_a_folder() {
        let both = Some("a file and a folder at once");
        check(
            false,
            &[("a", None), ("a!", None), ("a.b", None), ("a/b", both), ("a/c/d", both), ("a0", None)],
        );
        check(false, &[("a/b", None), ("a/b/c", both), ("a/bb", None), ("b", None), ("b/", Some("marker"))]);
        check(false, &[("A", None), ("a", None), ("a/b", both)]);
    }

    #[test]
    fn where_case_is_folded_the_first_name_is_taken() {
        let case = Some("differs only in case");
        check(true, &[("A", None), ("B/x", None), ("a", case), ("b", case), ("b/X", case), ("b/y", None)]);
        check(true, &[("A", None), ("a/b", Some("a file and a folder at once")), ("Ü", None), ("ü", case)]);
        check(false, &[("A", None), ("B/x", None), ("a", None), ("b/x", None)]);
    }

    #[test]
    fn names_are_relative_to_the_source_folder() {
        let mut names = FileNames::new("models/".len(), false);
        assert_eq!(names.name("models/a/b"), FileName::File("a/b".into()));
        assert_eq!(names.name("models/"), FileName::Marker);
    }
}
