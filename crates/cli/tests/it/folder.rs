//! A folder that knows what should be in it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A temporary folder with an earlier file named `model`, which failures must leave alone.
pub struct Folder(tempfile::TempDir);

/// What that earlier file holds.
pub const EARLIER: &[u8] = b"the earlier file";

impl Folder {
    pub fn new() -> Folder {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("model"), EARLIER).unwrap();
        Folder(folder)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// The path of an entry, as an argument.
    pub fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("temporary paths are text").to_owned()
    }

    /// Names of everything in it, hidden files too.
    pub fn names(&self) -> Vec<String> {
        names(self.path())
    }

    /// The earlier file is there, and nothing else.
    #[track_caller]
    pub fn is_untouched(&self) {
        assert_eq!(self.names(), ["model"]);
        assert_eq!(fs::read(self.path().join("model")).unwrap(), EARLIER);
    }
}

pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut names: Vec<String> = entries.map(|entry| name(entry.unwrap().path())).collect();
    names.sort();
    names
}

/// Files below a folder, by their paths; none of a folder that is not there.
pub fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_path_buf()];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                    found.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}
