//! Uploads that a mount has begun: where it is killed, the next mount of the same source has their parts
//! deleted.
//!
//! A file of a mount has a line for each that began (`+`, the id, the object) and one for each whose object
//! is there (`-`, the id). The mount holds a lock on it for as long as it lives.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use flatout_engine::Client;
use flatout_tree::UploadNotes;
use flatout_wire::location::Location;

/// Longer files are of nobody.
const BYTES_MAX: u64 = 64 << 20;

/// The notes of a mount that lives.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    open: usize,
}

impl Unfinished {
    /// Begins notes for a mount of `source` at `origin`. None where the folder cannot be written to: then a
    /// killed mount leaves parts that `flatout uploads` shows.
    pub(crate) fn begin(folder: &Path, (source, origin): (&str, &str)) -> Option<Unfinished> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).ok()?;
        // Numbers of processes come again, in containers above all.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let path = folder.join(format!("{}-{}-{since}", name(source, origin), std::process::id()));
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path).ok()?;
        file.try_lock().ok()?;
        Some(Unfinished { path, state: Mutex::new(State { file, open: 0 }) })
    }

    fn note(&self, line: &str, by: isize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.open = state.open.saturating_add_signed(by);
        // Where there is no room, the parts are left; the mount goes on.
        let _ = state.file.write_all(line.as_bytes());
    }
}

impl UploadNotes for Unfinished {
    fn begun(&self, object: &Location, upload_id: &str) {
        // A key with a line's end in it cannot be noted: its parts stay, and `flatout uploads` shows them.
        let object = object.to_string();
        let object = if object.contains(['\t', '\n']) { "?" } else { &object };
        self.note(&format!("+\t{}\t{object}\n", one_word(upload_id)), 1);
    }

    fn ended(&self, upload_id: &str) {
        self.note(&format!("-\t{}\n", one_word(upload_id)), -1);
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        if state.open == 0 {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Ids have no blanks; what has is none that could be aborted.
fn one_word(id: &str) -> &str {
    if id.contains(['\t', '\n']) { "?" } else { id }
}

/// Of the files of a source, the same in every run.
pub(crate) fn name(source: &str, origin: &str) -> String {
    let both = format!("{source}\n{origin}");
    // FNV-1a: the same in every run.
    let hash = both.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Has the parts deleted that killed mounts of this source have left; how many uploads there were. A file is
/// removed once nothing of it is left.
pub(crate) fn clear(client: &Client, folder: &Path, (source, origin): (&str, &str)) -> usize {
    let prefix = format!("{}-", name(source, origin));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours =
        entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)));
    ours.map(|entry| clear_one(client, &entry.path()).unwrap_or(0)).sum()
}

fn clear_one(client: &Client, path: &Path) -> std::io::Result<usize> {
    let file = OpenOptions::new().read(true).append(true).open(path)?;
    // One that is locked is of a mount that lives.
    if file.try_lock().is_err() {
        return Ok(0);
    }
    let mut text = String::new();
    (&file).take(BYTES_MAX).read_to_string(&mut text)?;
    let left = left_in(&text);
    let aborted = left.iter().filter(|(id, object)| client.abort_upload(object, id).is_ok()).count();
    if aborted == left.len() {
        fs::remove_file(path)?;
    }
    Ok(aborted)
}

/// Uploads that began and did not end, by id. A last line that was cut off is of an upload that sent nothing.
fn left_in(text: &str) -> BTreeMap<&str, Location> {
    let mut left = BTreeMap::new();
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let mut words = line.split('\t');
        match (words.next(), words.next(), words.next()) {
            (Some("+"), Some(id), Some(object)) => {
                if let Ok(object) = Location::parse(object) {
                    left.insert(id, object);
                }
            }
            (Some("-"), Some(id), None) => drop(left.remove(id)),
            _ => {}
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_did_not_end_is_left() {
        let text = "+\ta\ts3://b/x\n+\tb\ts3://b/y z\n-\ta\nnonsense\n+\tc\tnonsense\n+\td\ts3://b/cut";
        let left: Vec<(&str, String)> =
            left_in(text).into_iter().map(|(id, at)| (id, at.to_string())).collect();
        assert_eq!(left, [("b", "s3://b/y z".to_owned())]);
        assert!(left_in("").is_empty());
    }

    #[test]
    fn notes_go_with_a_mount_that_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (about, object) = (("s3://b/", "http://x"), Location::parse("s3://b/k").unwrap());
        let count = || fs::read_dir(folder.path()).unwrap().count();
        let notes = Unfinished::begin(folder.path(), about).unwrap();
        notes.begun(&object, "id");
        notes.ended("id");
        drop(notes);
        assert_eq!(count(), 0);
        let notes = Unfinished::begin(folder.path(), about).unwrap();
        notes.begun(&object, "id");
        drop(notes);
        assert_eq!(count(), 1);
        assert_ne!(name("a", "b"), name("ab", ""));
    }
}
