//! Objects whose keys are no paths, or whose paths are taken: `a/`, `a//b`, `a/../b`, `a` beside `a/b`, names
//! of more than 255 bytes. They are files in the origin's own folder, named after the whole key.
//!
//! `ROOT/.flatout/beside/BUCKET/NAME`: in the name all but letters, digits, `-` and `_` is `%XX`. A name of
//! more than [`NAME_BYTES`] goes on in a folder, whose own name ends in `+`.

use std::fs::FileType;
use std::io;
use std::path::Path;

use super::{Folder, OWN};

/// Bytes of a name in one piece: a file system takes 255.
const NAME_BYTES: usize = 200;

/// Where the objects of a bucket are, under the root.
pub(super) fn folder_of(bucket: &str) -> String {
    format!("{OWN}/beside/{bucket}")
}

/// Where a key lies, under the root.
pub(super) fn path_of(bucket: &str, key: &str) -> String {
    let name = escape(key);
    let mut path = folder_of(bucket);
    let mut rest = name.as_str();
    while rest.len() > NAME_BYTES {
        let (blob, more) = rest.split_at(NAME_BYTES);
        path.push_str(&format!("/{blob}+"));
        rest = more;
    }
    format!("{path}/{rest}")
}

/// The keys of a bucket that lie here, in order.
pub(super) fn keys(folder: &Folder, bucket: &str) -> io::Result<Vec<String>> {
    let mut keys = Vec::new();
    walk(&folder.root.join(folder_of(bucket)), "", &mut keys)?;
    keys.sort();
    Ok(keys)
}

fn walk(at: &Path, start: &str, keys: &mut Vec<String>) -> io::Result<()> {
    let entries = match std::fs::read_dir(at) {
        Err(error) if super::is_absence(&error) => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let is = |kind: fn(&FileType) -> bool| entry.file_type().is_ok_and(|found| kind(&found));
        match name.strip_suffix('+') {
            Some(blob) if is(FileType::is_dir) => walk(&entry.path(), &format!("{start}{blob}"), keys)?,
            None if is(FileType::is_file) => keys.extend(unescape(&format!("{start}{name}"))),
            _ => {}
        }
    }
    Ok(())
}

fn escape(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' => name.push(byte.into()),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

/// None of a name that [`escape`] would not give.
fn unescape(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        if first == '%' {
            bytes.push(u8::from_str_radix(rest.get(1..3)?, 16).ok()?);
            rest = &rest[3..];
        } else {
            bytes.push(u8::try_from(first).ok()?);
            rest = &rest[first.len_utf8()..];
        }
    }
    let key = String::from_utf8(bytes).ok()?;
    (escape(&key) == name).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_names_and_names_keys() {
        let long = "ü/".repeat(341);
        for key in [
            "a/",
            "/",
            "a//b",
            "..",
            "a/../b",
            "a\0b",
            "%2F",
            "a+b",
            &"x".repeat(200),
            &"x".repeat(201),
            &long,
        ] {
            let path = path_of("bucket", key);
            let name = path.strip_prefix(".flatout/beside/bucket/").unwrap();
            assert!(name.split('/').all(|blob| !blob.is_empty() && blob.len() <= 201), "{name}");
            assert!(!name.contains(".."), "{name}");
            let whole: String = name.split('/').map(|blob| blob.strip_suffix('+').unwrap_or(blob)).collect();
            assert_eq!(unescape(&whole).as_deref(), Some(key));
        }
        assert_eq!(path_of("bucket", "a/."), ".flatout/beside/bucket/a%2F%2E");
        for other in ["a/b", "%", "%4", "%41", "%zz", "ü", "."] {
            assert_eq!(unescape(other), None, "{other}");
        }
    }
}
