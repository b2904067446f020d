//! The mount point: whether something can be mounted there, said before the origin is asked.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::exit::Exit;
use crate::failure::Failure;

/// What is mounted somewhere, as the kernel lists it.
#[derive(Debug, PartialEq)]
pub struct Entry {
    pub mount_point: PathBuf,
    /// `fuse.flatout`, `ext4`.
    pub kind: String,
    pub source: String,
}

/// The path without links and dots, where it looks like a place to mount on. What is mounted there already, or left of a mount
/// that died, is for who mounts to see.
///
/// # Errors
/// It is missing, is no folder, or holds something.
pub fn check(mount_point: &Path, nonempty: bool) -> Result<PathBuf, Failure> {
    let shown = mount_point.display();
    if descriptor(mount_point).is_some() {
        return Ok(mount_point.to_owned());
    }
    let refused = |error: &io::Error| match error.kind() {
        io::ErrorKind::NotFound => Failure { exit: Exit::Usage, ..Failure::local("mount", &shown, error) }
            .with_hint(format!("make the folder first: mkdir -p {}", quoted(mount_point))),
        _ => Failure::local("mount", &shown, error),
    };
    let path = fs::canonicalize(mount_point).map_err(|error| refused(&error))?;
    // A look at what is mounted there may wait for a process that does not answer.
    if entry_at(&path).is_some_and(|entry| entry.is_ours()) {
        return Ok(path);
    }
    let known = fs::metadata(&path).map_err(|error| refused(&error))?;
    if !known.is_dir() {
        return Err(Failure::usage(format!("mount: {shown}: is not a folder"))
            .with_hint("name an empty folder to mount on"));
    }
    let mut entries = fs::read_dir(&path).map_err(|error| refused(&error))?;
    if !nonempty && entries.next().is_some() {
        return Err(Failure::usage(format!(
            "mount: {shown}: is not empty, and what is in it would be hidden"
        ))
        .with_hint("name an empty folder, or write -o nonempty"));
    }
    Ok(path)
}

impl Entry {
    /// Whether Flatout has mounted it.
    pub fn is_ours(&self) -> bool {
        self.kind.ends_with("flatout")
    }
}

/// N of `/dev/fd/N`.
pub fn descriptor(mount_point: &Path) -> Option<u32> {
    mount_point.to_str()?.strip_prefix("/dev/fd/")?.parse().ok()
}

/// The topmost of what is mounted exactly there.
pub fn entry_at(path: &Path) -> Option<Entry> {
    let table = fs::read("/proc/self/mountinfo").ok()?;
    entries(&table).filter(|entry| entry.mount_point == path).last()
}

/// Lines of `/proc/self/mountinfo`: `36 35 98:0 /root /mnt/point opts optional… - type source super-options`.
fn entries(table: &[u8]) -> impl Iterator<Item = Entry> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
        let dash = words.iter().position(|word| *word == b"-")?;
        let text = |word: &[u8]| String::from_utf8_lossy(&unescaped(word)).into_owned();
        Some(Entry {
            mount_point: PathBuf::from(OsString::from_vec(unescaped(words.get(4)?))),
            kind: text(words.get(dash + 1)?),
            source: text(words.get(dash + 2)?),
        })
    })
}

/// Spaces, tabs, newlines and backslashes stand there as `\040`.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        let octal = (*first == b'\\').then(|| after.get(..3)).flatten();
        let octal = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        match octal {
            Some(byte) => {
                plain.push(byte);
                rest = &after[3..];
            }
            None => {
                plain.push(*first);
                rest = after;
            }
        }
    }
    plain
}

/// As a shell takes it.
pub fn quoted(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    let plain = bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+@:,".contains(byte));
    match plain {
        true => path.display().to_string(),
        false => {
            shlex::try_quote(&path.to_string_lossy()).map_or_else(|_| path.display().to_string(), Into::into)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_mounts_is_read() {
        let table = b"22 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
            40 22 0:44 / /mnt/my\\040models ro,nosuid - fuse.flatout s3://b/a\\040b ro,user_id=0\nnonsense\n";
        let entries: Vec<Entry> = entries(table).collect();
        assert_eq!(entries.len(), 2);
        assert_eq!(
            entries[1],
            Entry {
                mount_point: "/mnt/my models".into(),
                kind: "fuse.flatout".into(),
                source: "s3://b/a b".into()
            }
        );
        assert_eq!(unescaped(b"a\\134b\\"), b"a\\b\\");
        assert_eq!(unescaped(b"\\04"), b"\\04");
    }

    #[test]
    fn only_an_empty_folder_is_a_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(folder.path()).unwrap();
        assert_eq!(check(&path, false).unwrap(), path);
        fs::write(path.join("file"), "x").unwrap();
        let says = |path: &Path, nonempty, part: &str| {
            let shown = check(path, nonempty).unwrap_err().to_string();
            assert!(shown.contains(part) && shown.contains("hint: "), "{shown}");
        };
        says(&path, false, "is not empty");
        assert_eq!(check(&path, true).unwrap(), path);
        says(&path.join("file"), true, "is not a folder");
        says(&path.join("none"), true, "mkdir -p");
        assert_eq!(descriptor(Path::new("/dev/fd/7")), Some(7));
        assert_eq!(descriptor(Path::new("/dev/fd/x")), None);
        assert_eq!(check(Path::new("/dev/fd/7"), false).unwrap(), Path::new("/dev/fd/7"));
    }

    #[test]
    fn paths_are_quoted_where_a_shell_wants_it() {
        assert_eq!(quoted(Path::new("/mnt/x-1")), "/mnt/x-1");
        assert_eq!(quoted(Path::new("/mnt/my models")), "'/mnt/my models'");
    }
}
