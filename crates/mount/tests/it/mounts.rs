//! Real mounts: what programs see.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

use crate::held::{Held, row};
use crate::model::*;

#[test]
fn files_are_read() {
    let held = Held::new();
    assert_eq!(fs::read(held.path("hello")).unwrap(), HELLO_TEXT);
    assert_eq!(fs::read(held.path("sub/hello")).unwrap(), HELLO_TEXT);
    assert_eq!(fs::read(held.path("far")).unwrap(), HELLO_TEXT);
    assert_eq!(fs::read(held.path("pieces")).unwrap(), Model::bytes(PIECES, 0, 5000));
    assert!(fs::read(held.path("big")).unwrap() == Model::bytes(BIG, 0, BIG_BYTES as usize));
    assert_eq!(fs::read(held.path("nothing")).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    let about = fs::metadata(held.path("hello")).unwrap();
    assert_eq!((about.ino(), about.size(), about.mode(), about.nlink()), (HELLO, 13, 0o100444, 1));
    assert_eq!(
        (about.uid(), about.gid(), about.mtime(), about.ctime()),
        (7, 8, 1_700_000_000, 1_600_000_000)
    );
}

#[test]
fn readahead_asks_for_a_mebibyte() {
    let held = Held::new();
    let granted = held.session().granted().clone();
    assert_eq!(granted.request_bytes, 1 << 20);
    assert_eq!((granted.read_ahead_bytes, granted.remedy), (Some(4 << 20), None));
    assert_eq!(granted.max_background, 128);
    fs::read(held.path("big")).unwrap();
    assert_eq!(held.session().stats().largest_read_bytes, 1 << 20);
}

#[test]
fn readahead_is_lowered_where_that_is_wanted() {
    let held = Held::of(|options| options.read_ahead_bytes = Some(64 << 10));
    assert_eq!(held.session().granted().read_ahead_bytes, Some(64 << 10));
    assert_eq!(held.session().granted().remedy, None);
}

#[test]
fn direct_io_passes_the_page_cache() {
    let held = Held::new();
    for (name, flags) in [("big", libc::O_DIRECT), ("direct", 0)] {
        let file = OpenOptions::new().read(true).custom_flags(flags).open(held.path(name)).unwrap();
        // 1 MiB that begins on a page: it would be parted over 257 of them, and asked for in two requests,
        // otherwise.
        let mut space = vec![0; (1 << 20) + 4096];
        let start = space.as_ptr().align_offset(4096);
        let bytes = &mut space[start..][..1 << 20];
        for at in [0, 1 << 20, BIG_BYTES - 1000] {
            let had = file.read_at(bytes, at).unwrap();
            assert_eq!(had as u64, (BIG_BYTES - at).min(1 << 20), "{name} {at}");
            assert!(bytes[..had] == Model::bytes(BIG, at, had), "{name} {at}");
        }
        // Asked again each time, and in one piece.
        let before = held.asked("read");
        for _ in 0..3 {
            file.read_exact_at(bytes, 5 << 20).unwrap();
        }
        assert_eq!(held.asked("read") - before, 3, "{name}");
    }
}

#[test]
fn what_is_cached_stays_where_the_files_say_so() {
    let held = Held::new();
    let reads = |name: &str| {
        let before = held.asked("read");
        fs::read(held.path(name)).unwrap();
        held.asked("read") - before
    };
    assert_eq!((reads("hello"), reads("hello")), (1, 1));
    assert_eq!((reads("kept"), reads("kept")), (1, 0));
}

#[test]
fn large_folders_are_read_whole() {
    let held = Held::new();
    let mut names: Vec<String> = fs::read_dir(held.path("many"))
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            assert_eq!(entry.metadata().unwrap().len(), 3);
            entry.file_name().into_string().unwrap()
        })
        .collect();
    names.sort();
    let want: Vec<String> = (0..MANY_FILES).map(|at| format!("f{at:05}")).collect();
    assert!(names == want, "{} names", names.len());
    // The attributes came with the names.
    assert!(held.asked("lookup") <= 1, "{}", held.asked("lookup"));
    assert_eq!(held.asked("readdir"), 0);
}

#[test]
fn nothing_is_written() {
    let held = Held::new();
    let rofs = Some(libc::EROFS);
    assert_eq!(File::create(held.path("new")).unwrap_err().raw_os_error(), rofs);
    assert_eq!(OpenOptions::new().write(true).open(held.path("hello")).unwrap_err().raw_os_error(), rofs);
    assert_eq!(fs::remove_file(held.path("hello")).unwrap_err().raw_os_error(), rofs);
    assert_eq!(fs::create_dir(held.path("new")).unwrap_err().raw_os_error(), rofs);
    assert_eq!(fs::rename(held.path("hello"), held.path("new")).unwrap_err().raw_os_error(), rofs);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    assert_eq!(fs::set_permissions(held.path("hello"), mode).unwrap_err().raw_os_error(), rofs);
}

#[test]
fn holes_are_sought_by_size() {
    let held = Held::new();
    let mut file = File::open(held.path("hello")).unwrap();
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), 13);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(3)).unwrap(), 3);
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(3)).unwrap(), 13);
    file.seek(SeekFrom::Start(7)).unwrap();
    let mut rest = String::new();
    file.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "world\n");
}

#[test]
fn the_table_of_mounts_says_what_it_is() {
    let held = Held::of(|options| {
        options.source = "s3://bucket/a b".to_owned();
        options.options = vec!["ro".to_owned(), "noexec".to_owned()];
        options.allow_other = true;
    });
    let row = row(held.point()).unwrap();
    let words: Vec<&str> = row.split(' ').collect();
    assert_eq!((words[0], words[2]), ("s3://bucket/a\\040b", "fuse.flatout"));
    for option in ["ro", "nosuid", "nodev", "noexec", "noatime", "default_permissions", "allow_other"] {
        assert!(words[3].split(',').any(|word| word == option), "{option} in {row}");
    }
}

#[test]
fn sizes_of_the_whole_are_told() {
    let held = Held::new();
    let told = rustix::fs::statvfs(held.point()).unwrap();
    assert_eq!((told.f_bsize, told.f_blocks, told.f_bfree, told.f_namemax), (4096, 1 << 50, 1 << 50, 255));
}
