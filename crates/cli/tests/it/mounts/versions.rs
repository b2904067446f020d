//! Objects that are replaced while programs have them open: a handle reads one version, whatever other
//! handles open, map or read.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::process::Command;

use super::Place;
use crate::objects::Buckets;
use crate::program::{run, wait_until};

const READS: &str = include_str!("versions.py");
/// One for each order of four ways to read.
const KEYS: u64 = 24;

#[track_caller]
fn check(options: &[&str], sees: &str) {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"content")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &[&["--negative-lifetime", "0s"], options].concat());
    let bucket = origin.root().join("bucket");
    let mut program = Command::new("python3");
    program.args(["-c", READS]).arg(place.mnt()).arg(&bucket).arg(sees);
    assert_eq!(run(&mut program).clean().text(), "", "{options:?}");
    // Versions that nobody has open are forgotten by the kernel, and by the mount.
    let counts = || {
        let stats = place.stats();
        let count = |name: &str| stats["names"][name].as_u64().unwrap();
        (count("inodes_now"), count("open_files_now"))
    };
    wait_until("the old versions to go", || matches!(counts(), (..=27, 0)));
    assert!(counts().0 > KEYS, "{:?}", counts());
    place.unmounted();
}

#[test]
fn what_is_mapped_is_not_read_by_who_opened_the_version_before() {
    check(&["--close-to-open"], "at-once");
}

#[test]
fn with_no_lifetime_every_handle_is_one_version() {
    check(&["--attribute-lifetime", "0s"], "at-once");
}

#[test]
fn within_a_lifetime_every_handle_is_one_version() {
    check(&[], "in-time");
}

#[test]
fn past_the_page_cache_every_handle_is_one_version() {
    check(&["--close-to-open", "--direct-bytes", "512KiB"], "at-once");
}

/// What names an inode and not a file's name cannot be looked up again: it is the version that is gone.
#[test]
fn a_replaced_file_is_opened_anew_by_its_name_alone() {
    let (origin, place) = (Buckets::new(&[("bucket/key", b"old")]), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--close-to-open"]);
    let old = File::open(place.at("key")).unwrap();
    let again = || {
        let mut content = String::new();
        File::open(format!("/proc/self/fd/{}", old.as_raw_fd()))?.read_to_string(&mut content)?;
        Ok::<_, std::io::Error>(content)
    };
    assert_eq!(again().unwrap(), "old");
    let (beside, path) = (origin.root().join("beside"), origin.root().join("bucket/key"));
    fs::write(&beside, "new and longer").unwrap();
    fs::rename(beside, path).unwrap();
    for _ in 0..2 {
        assert_eq!(again().unwrap_err().raw_os_error(), Some(libc::ESTALE));
        assert_eq!(fs::read_to_string(place.at("key")).unwrap(), "new and longer");
    }
    drop(old);
    place.unmounted();
}
