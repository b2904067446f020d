//! Options as the kernel sees them, and `mount.flatout` as mount(8) calls it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::process::Command;

use super::Place;
use crate::examples::{OBJECTS, examples, own_part};
use crate::objects::{Buckets, bytes};
use crate::program::{Ended, flatout, quoted, run, wait_until};

fn buckets() -> Buckets {
    Buckets::new(&[("bucket/large", &bytes(1 << 20)), ("bucket/folder/small", b"small")])
}

/// The line of the mount in /proc/self/mountinfo.
fn kernels_line(place: &Place) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = place.mnt_text().replace(' ', "\\040");
    table.lines().find(|line| line.contains(&format!(" {point} "))).unwrap().to_owned()
}

#[test]
fn what_mount_8_passes_reaches_the_kernel() {
    let (origin, place) = (buckets(), Place::new());
    let line = "ro,noexec,nosuid,nodev,relatime,nofail,_netdev,x-systemd.automount,user,noauto,sync";
    place.mounted("s3://bucket", &origin.url(), &["-o", line]);
    let line = kernels_line(&place);
    for part in [" ro,", "noexec", "nosuid", "nodev", "relatime", " - fuse.flatout s3://bucket "] {
        assert!(line.contains(part), "{line} lacks {part}");
    }
    place.unmounted();
    place.mounted(
        "s3://bucket",
        &origin.url(),
        &["-o", "suid,dev", "-o", "allow_other,default_permissions=false"],
    );
    let line = kernels_line(&place);
    assert!(!line.contains("nosuid") && !line.contains("nodev"), "{line}");
    assert!(line.contains("allow_other") && !line.contains("default_permissions"), "{line}");
    place.unmounted();
}

#[test]
fn knobs_are_flags_options_and_variables() {
    let origin = buckets();
    let check = |arguments: &[&str], variables: &[(&str, &str)]| {
        let place = Place::new();
        run(place.mount("s3://bucket", &origin.url(), arguments).envs(variables.iter().copied())).clean();
        let (file, folder) =
            (fs::metadata(place.at("large")).unwrap(), fs::metadata(place.at("folder")).unwrap());
        assert_eq!((file.uid(), file.gid()), (12, 34), "{arguments:?}");
        assert_eq!((file.mode() & 0o7777, folder.mode() & 0o7777), (0o440, 0o550), "{arguments:?}");
        place.unmounted();
    };
    check(&["--uid", "12", "--gid", "34", "--file-mode", "440", "--dir-mode", "0550"], &[]);
    check(&["-o", "uid=12,gid=34,file_mode=0440,dir-mode=0550"], &[]);
    check(&["-o", "uid=1,gid=34", "--uid", "12", "-o", "file-mode=440,dir_mode=550"], &[]);
    let variables = [("FLATOUT_UID", "12"), ("FLATOUT_GID", "34"), ("FLATOUT_FILE_MODE", "440")];
    check(&["-o", "dir_mode=550"], &variables);
}

/// By default nothing in a bucket is a program, as elsewhere: the first example of docs/mount.md says how it
/// is.
#[test]
fn a_program_on_the_mount_runs_where_its_mode_says_so() {
    let script = fs::read("/bin/true").unwrap();
    let (origin, place) =
        (Buckets::new(&[("bucket/program", &script), ("bucket/folder/small", b"small")]), Place::new());
    let runs = || Command::new(place.at("program")).status().map(|status| status.code());
    for (more, is_run, modes) in [
        (&[][..], false, (0o644, 0o755)),
        (&["--file-mode", "0555"], true, (0o555, 0o755)),
        (&["--dir-mode", "0555"], false, (0o644, 0o555)),
        (&["-o", "fmask=022"], true, (0o755, 0o755)),
        (&["-o", "umask=022"], true, (0o755, 0o755)),
        (&["-o", "umask=022,fmask=133"], false, (0o644, 0o755)),
        (&["-o", "umask=022,noexec"], false, (0o755, 0o755)),
    ] {
        place.mounted("s3://bucket", &origin.url(), more);
        let mode = |name: &str| fs::metadata(place.at(name)).unwrap().mode() & 0o7777;
        assert_eq!((mode("program"), mode("folder")), modes, "{more:?}");
        match runs() {
            Ok(code) => assert!(is_run && code == Some(0), "{more:?}: {code:?}"),
            Err(error) => {
                let is_denied = error.kind() == std::io::ErrorKind::PermissionDenied;
                assert!(!is_run && is_denied, "{more:?}: {error}");
            }
        }
        place.unmounted();
    }
}

/// As lines of fstab have them that were written for other mounts.
#[test]
fn options_of_libfuse_are_taken_with_one_line() {
    let (origin, place) = (buckets(), Place::new());
    let line = "rw,nonempty,allow_other,umask=0022,big_writes,kernel_cache,auto_cache,max_read=131072,attr_timeout=1.0";
    let said = run(&mut place.mount("s3://bucket", &origin.url(), &["-o", line]));
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let lines: Vec<&str> = said.stderr.lines().collect();
    let idle = "big_writes, kernel_cache, auto_cache, max_read: have no effect here: docs/from-libfuse.md says why of each";
    assert!(lines[0].ends_with(idle) && lines.len() == 1, "{}", said.stderr);
    assert_eq!(fs::metadata(place.at("large")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read(place.at("folder/small")).unwrap(), b"small");
    place.unmounted();
    // Every read past the page cache.
    place.mounted("s3://bucket", &origin.url(), &["-o", "direct_io"]);
    for _ in 0..2 {
        assert_eq!(fs::read(place.at("large")).unwrap(), bytes(1 << 20));
    }
    wait_until("all to be counted", || place.stats()["bytes"]["served"] == 2 << 20);
    place.unmounted();
}

#[test]
fn names_of_ossfs_set_what_they_mean() {
    let (origin, place) = (buckets(), Place::new());
    let line =
        "attr_timeout=30,total_mem_limit=268435456,path_style=true,fuse_attr_timeout=-1,readdirplus=true";
    place.mounted("s3://bucket", &origin.url(), &["-o", line]);
    assert_eq!(place.stats()["memory"]["limit_bytes"], 268_435_456);
    place.unmounted();
}

#[test]
fn the_kernel_reads_ahead_as_far_as_is_asked_for() {
    let (origin, place) = (buckets(), Place::new());
    for (more, bytes) in [
        (&["--kernel-readahead", "1MiB"][..], 1 << 20),
        (&[], 4 << 20),
        (&["-o", "kernel_readahead=0"], 128 << 10),
    ] {
        place.mounted("s3://bucket", &origin.url(), more);
        assert_eq!(place.stats()["kernel"]["read_ahead_bytes"], bytes, "{more:?}");
        place.unmounted();
    }
}

#[test]
fn large_files_past_the_page_cache_can_be_mapped_and_read() {
    let (origin, place) = (buckets(), Place::new());
    place.mounted("s3://bucket", &origin.url(), &["--direct-bytes", "1MiB"]);
    for _ in 0..2 {
        assert_eq!(fs::read(place.at("large")).unwrap(), bytes(1 << 20));
        assert_eq!(fs::read(place.at("folder/small")).unwrap(), b"small");
    }
    // Twice from the origin or from what is held of it: the page cache has kept nothing.
    wait_until("all to be counted", || place.stats()["bytes"]["served"] == 2 * (1 << 20) + 5);
    place.unmounted();
}

/// The program under the helper's name, through a link, as `make install` makes it.
fn helper(place: &Place, arguments: &[&str]) -> Command {
    let link = place.path().join("mount.flatout");
    if !link.exists() {
        symlink(env!("CARGO_BIN_EXE_flatout"), &link).unwrap();
    }
    let bare = flatout(&[]);
    let mut command = Command::new(link);
    command
        .env_clear()
        .envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .args(arguments);
    place.within(&mut command);
    command
}

#[test]
fn the_helper_of_mount_8_mounts_in_silence() {
    let (origin, place) = (buckets(), Place::new());
    let options = format!("ro,no_sign_request,endpoint_url={}", origin.url());
    let mnt = place.mnt_text();
    let silent = |ended: Ended| assert_eq!((ended.clean().text(), place.is_mounted()), ("", true));
    silent(run(&mut helper(&place, &["s3://bucket", &mnt, "-o", &options])));
    place.unmounted();
    silent(
        run(&mut helper(&place, &["s3://bucket", &mnt, "-sn", "-o", &options, "-t", "flatout"]))
            .said_nothing_else(),
    );
    place.unmounted();
    let fake = run(&mut helper(&place, &["s3://bucket", &mnt, "-f", "-o", &options])).clean();
    assert!(!place.is_mounted(), "{}", fake.text());
    let verbose = run(&mut helper(&place, &["s3://bucket", &mnt, "-v", "-o", &options])).clean();
    assert!(verbose.text().contains("is mounted on"));
    place.unmounted();
    run(&mut helper(&place, &["s3://missing", &mnt, "-o", &options])).refused(1, &["s3://missing"]);
    run(&mut helper(&place, &["s3://bucket", &mnt, "-o", "frobnicate"]))
        .refused(4, &["-o frobnicate: is no option"]);
    let sloppy =
        run(&mut helper(&place, &["s3://bucket", &mnt, "-s", "-o", &format!("frobnicate,{options}")]));
    assert_eq!(sloppy.stderr, "flatout: mount: -o frobnicate: is no option\n");
    place.unmounted();
}

impl Ended {
    fn said_nothing_else(self) -> Ended {
        assert_eq!(self.stderr, "");
        self
    }
}

/// mount(8) looks for helpers in /sbin alone. In a name space of its own /sbin is another folder, and the
/// rest of the machine does not see it; the mount itself stands there only, and goes with it.
#[test]
fn mount_8_finds_it_for_the_type_and_for_lines_of_fstab() {
    let (origin, place) = (buckets(), Place::new());
    let sbin = place.path().join("sbin");
    fs::create_dir(&sbin).unwrap();
    symlink(env!("CARGO_BIN_EXE_flatout"), sbin.join("mount.flatout")).unwrap();
    let (mnt, options) =
        (place.mnt_text(), format!("noauto,nofail,no_sign_request,endpoint_url={}", origin.url()));
    let fstab = place.path().join("fstab");
    let (mnt, in_fstab) = (quoted(&mnt), mnt.replace(' ', "\\040"));
    fs::write(&fstab, format!("s3://bucket {in_fstab} flatout {options},x-note=y 0 0\n")).unwrap();
    let script = format!(
        "set -e; mount --bind {sbin} $(readlink -f /sbin)
        mount -t flatout s3://bucket {mnt} -o {options}; cat {mnt}/folder/small; umount {mnt}
        mount --fstab {fstab} {mnt}; ls {mnt}; umount {mnt}
        if mount -t flatout s3://missing {mnt} -o {options}; then exit 9; fi",
        sbin = quoted(&sbin),
        fstab = quoted(&fstab)
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]);
    place.within(&mut command);
    command.env("AWS_EC2_METADATA_DISABLED", "true");
    let ended = run(&mut command);
    assert_eq!(ended.code, Some(0), "{}{}", ended.text(), ended.stderr);
    assert_eq!(ended.text(), "smallfolder\nlarge\n");
    assert!(ended.stderr.contains("s3://missing"), "{}", ended.stderr);
    place.is_clear();
}

#[test]
fn others_are_let_in_only_when_asked_for() {
    let (origin, place) = (buckets(), Place::new());
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let reads = |path: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "cat", path]);
        run(&mut command).code
    };
    let (small, mnt) = (place.at("folder/small"), place.mnt());
    let small = small.to_str().unwrap();
    place.mounted("s3://bucket", &origin.url(), &[]);
    assert_ne!(reads(small), Some(0), "{}", mnt.display());
    place.unmounted();
    place.mounted("s3://bucket", &origin.url(), &["--allow-other"]);
    assert_eq!(reads(small), Some(0));
    place.unmounted();
    place.mounted("s3://bucket", &origin.url(), &["--allow-other", "--file-mode", "400"]);
    assert_ne!(reads(small), Some(0));
    place.unmounted();
}

/// As they stand there, but for where things are.
#[test]
fn the_examples_of_the_help_work() {
    let origin = Buckets::new(OBJECTS);
    let mut count = 0;
    for example in examples(&["mount"]) {
        let place = Place::new();
        let mut words: Vec<String> = example.split(' ').skip(1).map(str::to_owned).collect();
        let is_dry = example.contains("--dry-run");
        words.retain(|word| word != "--foreground");
        words.iter_mut().filter(|word| word.starts_with("/mnt/")).for_each(|word| *word = place.mnt_text());
        words.iter_mut().filter(|word| *word == "9100").for_each(|word| *word = "0".into());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if words.contains(&"--upgrade") {
            place.mounted("s3://data", &origin.url(), &["--supervise"]);
        }
        let mut command = place.flatout(&words);
        command.env("FLATOUT_NO_SIGN_REQUEST", "true").env("AWS_ENDPOINT_URL", origin.url());
        run(command.env("OSS_ENDPOINT", origin.url()).env("FLATOUT_ADDRESSING", "path")).clean();
        count += 1;
        if is_dry {
            continue;
        }
        assert!(place.is_mounted(), "{example}");
        assert!(fs::read_dir(place.mnt()).unwrap().count() > 0, "{example}");
        for example in
            examples(&["top"]).iter().map(|line| own_part(line)).filter(|line| line.contains("--once"))
        {
            run(&mut place.flatout(&example.split(' ').skip(1).collect::<Vec<_>>())).clean();
        }
        place.unmounted();
    }
    assert!(count >= 5, "{count}");
}
