//! What a file itself cannot tell: content type, metadata, CRCs; kept in an extended attribute.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::XattrFlags;
use rustix::io::Errno;

use crate::crcs::Crcs;
use crate::object::{Kept, Kind};

const NAME: &str = "user.flatout";

/// Room for the 2 KiB of metadata that S3 allows, percent-encoded, and the rest; ext4 keeps no more either.
const MAX_BYTES: usize = 8 * 1024;

/// Notes the upload's headers and its CRCs. A file system without extended attributes, or without room, keeps
/// none: the object is still good.
pub(super) fn write(file: &File, kept: &Kept, crcs: Crcs) -> io::Result<()> {
    let mut text = format!(
        "{}\ncrc64nvme={:016x}\ncrc64xz={:016x}\nkind={}\n",
        stamp(&file.metadata()?),
        crcs.nvme,
        crcs.xz,
        kept.kind.name()
    );
    for (name, value) in fields(kept) {
        text.push_str(&format!("{name}={}\n", escape(value)));
    }
    for (name, value) in &kept.metadata {
        text.push_str(&format!("meta.{name}={}\n", escape(value)));
    }
    match rustix::fs::fsetxattr(file, NAME, text.as_bytes(), XattrFlags::empty()) {
        Err(Errno::NOTSUP | Errno::NOSPC | Errno::RANGE | Errno::PERM | Errno::DQUOT) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// What was noted, unless the file was written to since.
pub(super) fn read(file: &File, about: &Metadata) -> (Kept, Option<Crcs>) {
    let mut buffer = [0; MAX_BYTES];
    let nothing = (Kept::default(), None::<Crcs>);
    let Ok(bytes) = rustix::fs::fgetxattr(file, NAME, &mut buffer[..]) else { return nothing };
    let Ok(text) = std::str::from_utf8(&buffer[..bytes]) else { return nothing };
    let mut lines = text.lines();
    if lines.next() != Some(&stamp(about)) {
        return nothing;
    }
    let (mut kept, mut nvme, mut xz) = (Kept::default(), None, None);
    for (name, value) in lines.filter_map(|line| line.split_once('=')) {
        let value = unescape(value);
        match name {
            "crc64nvme" => nvme = u64::from_str_radix(&value, 16).ok(),
            "crc64xz" => xz = u64::from_str_radix(&value, 16).ok(),
            "kind" => kept.kind = Kind::named(&value).unwrap_or_default(),
            "content-type" => kept.content_type = Some(value),
            "content-encoding" => kept.content_encoding = Some(value),
            "content-disposition" => kept.content_disposition = Some(value),
            "cache-control" => kept.cache_control = Some(value),
            _ => {
                if let Some(name) = name.strip_prefix("meta.") {
                    kept.metadata.insert(name.to_owned(), value);
                }
            }
        }
    }
    (kept, nvme.zip(xz).map(|(nvme, xz)| Crcs { nvme, xz }))
}

fn fields(kept: &Kept) -> impl Iterator<Item = (&'static str, &str)> {
    let all = [
        ("content-type", &kept.content_type),
        ("content-encoding", &kept.content_encoding),
        ("content-disposition", &kept.content_disposition),
        ("cache-control", &kept.cache_control),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?)))
}

/// Changes with every write to the file, and with nothing else: a rename and a new attribute leave it alone.
fn stamp(about: &Metadata) -> String {
    format!("{}:{}.{:09}", about.len(), about.mtime(), about.mtime_nsec())
}

fn escape(value: &str) -> String {
    value.replace('%', "%25").replace('\n', "%0a").replace('\r', "%0d")
}

fn unescape(value: &str) -> String {
    value.replace("%0d", "\r").replace("%0a", "\n").replace("%25", "%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn notes_are_kept_until_the_file_changes() {
        // Beside the test itself and not in /tmp: a tmpfs has no such attributes before Linux 6.6.
        let here = std::env::current_exe().unwrap();
        let mut file = tempfile::tempfile_in(here.parent().unwrap()).unwrap();
        file.write_all(b"content").unwrap();
        let mut kept = Kept {
            content_type: Some("text/plain; a=\"%0a\"".to_owned()),
            kind: Kind::Appendable,
            ..Kept::default()
        };
        let crcs = Crcs { nvme: 0x1234, xz: u64::MAX };
        kept.metadata.insert("name".to_owned(), "100 % über\nzwei Zeilen".to_owned());
        write(&file, &kept, crcs).unwrap();
        assert_eq!(read(&file, &file.metadata().unwrap()), (kept, Some(crcs)));
        file.write_all(b"more").unwrap();
        assert_eq!(read(&file, &file.metadata().unwrap()), (Kept::default(), None));
    }
}
