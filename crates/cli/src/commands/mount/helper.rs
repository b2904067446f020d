//! `mount.flatout`: what mount(8) runs for `mount -t flatout …` and lines of fstab, as a command line of
//! ours.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The name that mount(8) looks for.
const NAME: &[u8] = b"mount.flatout";

/// `flatout mount …` for a call under the name of the helper: `mount.flatout SOURCE DIR [-sfnvrw] [-N NS] [-t
/// TYPE] [-o OPTIONS]`, as mount(8) has it, in any order. `None` for a call under another name.
pub fn command_line(arguments: &[OsString]) -> Option<Vec<OsString>> {
    let (called, rest) = arguments.split_first()?;
    if Path::new(called).file_name()?.as_bytes() != NAME {
        return None;
    }
    let mut line: Vec<OsString> = vec!["flatout".into(), "mount".into(), "--__last-counts".into()];
    let (mut places, mut is_verbose, mut is_for_people) = (Vec::new(), false, false);
    let mut rest = rest.iter();
    while let Some(argument) = rest.next() {
        let letters = argument.as_bytes().strip_prefix(b"-").filter(|letters| !letters.is_empty());
        match letters {
            None => places.push(argument.clone()),
            Some([b'-', ..]) => {
                is_for_people |= argument == OsStr::new("--help") || argument == OsStr::new("--version");
                line.push(argument.clone());
            }
            Some([letter @ (b'o' | b't' | b'N'), value @ ..]) => {
                let value = match value.is_empty() {
                    true => rest.next().cloned().unwrap_or_default(),
                    false => OsStr::from_bytes(value).to_owned(),
                };
                // The type is ours already, and the name space that we are in is the one to mount in.
                if *letter == b'o' {
                    line.extend(["-o".into(), value]);
                }
            }
            Some(letters) => {
                for letter in letters {
                    match letter {
                        b's' => line.extend(["-o".into(), "sloppy".into()]),
                        b'f' => line.push("--dry-run".into()),
                        b'r' => line.extend(["-o".into(), "ro".into()]),
                        b'w' => line.extend(["-o".into(), "rw".into()]),
                        b'v' => is_verbose = true,
                        // There has been no mtab for long.
                        b'n' => {}
                        other => line.push(format!("-{}", char::from(*other)).into()),
                    }
                }
            }
        }
    }
    // mount(8) says nothing when all is well, unless asked to.
    if !is_verbose && !is_for_people {
        line.push("--__silent".into());
    }
    line.push("--".into());
    line.append(&mut places);
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    use crate::args::{Command, Line, Mount};

    fn line(called: &str) -> Option<Vec<OsString>> {
        command_line(&called.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[track_caller]
    fn mount(called: &str) -> Box<Mount> {
        let line = line(called).expect("it is called as the helper");
        match Line::try_parse_from(line).unwrap_or_else(|wrong| panic!("{called}: {wrong}")).command {
            Command::Mount(mount) => mount,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn only_under_its_name() {
        for other in ["flatout mount s3://b /mnt", "/usr/bin/flatout top", "mount s3://b /mnt", ""] {
            assert_eq!(line(other), None, "{other}");
        }
        assert!(line("/sbin/mount.flatout s3://b /mnt").is_some());
    }

    #[test]
    fn what_mount_8_passes_is_a_command_line_of_ours() {
        let of_fstab = mount("/sbin/mount.flatout s3://b/p /mnt -o rw,noauto,memory=1GiB");
        assert_eq!(of_fstab.source, "s3://b/p");
        assert_eq!(of_fstab.mount_point.as_deref(), Some(Path::new("/mnt")));
        assert_eq!(of_fstab.options, ["rw,noauto,memory=1GiB"]);
        assert!(!of_fstab.dry_run && of_fstab.is_silent && of_fstab.last_counts);
        let all = mount("mount.flatout oss:// /mnt -sfnv -o ro -N /proc/1/ns/mnt -t fuse.flatout");
        assert!(all.dry_run && !all.is_silent);
        assert_eq!(all.options, ["sloppy", "ro"]);
        assert_eq!(mount("mount.flatout -r -o a=1 s3://b /mnt").options, ["ro", "a=1"]);
        assert_eq!(mount("mount.flatout -oa=1 s3://b /mnt").options, ["a=1"]);
    }

    #[test]
    fn what_is_no_flag_is_refused() {
        let line = line("mount.flatout -q s3://b").unwrap();
        assert!(Line::try_parse_from(line).is_err());
    }
}
