//! Disks that fill up, and files that may not grow.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::super::program::shell;
use super::super::resume::{
    MIB, Stuck, begin, cp, kill, made_up, noted, object_of, slow, temporaries, whole,
};
use super::*;

/// A file system of its own in memory, which only processes of its mount namespace see under its path: no
/// root is needed where a user may make a namespace.
pub struct Disk {
    holder: Child,
    folder: tempfile::TempDir,
    flags: &'static [&'static str],
}

impl Disk {
    /// Of `bytes` bytes, with a folder `target` that holds an earlier file `model`.
    pub fn new(bytes: usize) -> Disk {
        let folder = tempfile::tempdir().unwrap();
        let can = |flags: &str| {
            Command::new("unshare").args([flags, "true"]).output().is_ok_and(|done| done.status.success())
        };
        let (flags, enter): (&str, &'static [&'static str]) = match (can("-m"), can("-rm")) {
            (true, _) => ("-m", &["--mount"]),
            (_, true) => ("-rm", &["--mount", "--user", "--preserve-credentials"]),
            _ => panic!(
                "a disk that fills up needs a mount namespace: install util-linux (unshare, nsenter, mount), and run the tests as \
                 root with CAP_SYS_ADMIN (docker run --cap-add SYS_ADMIN) or let users make namespaces (sysctl \
                 kernel.apparmor_restrict_unprivileged_userns=0)"
            ),
        };
        let line = format!("mount -t tmpfs -o size={bytes} none \"$1\" && echo mounted && exec cat");
        let mut holder = Command::new("unshare")
            .args([flags, "sh", "-c", &line, "sh"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "mounted\n", "the disk is there");
        let disk = Disk { holder, folder, flags: enter };
        fs::create_dir(disk.seen("target")).unwrap();
        disk
    }

    /// A path on it, for us.
    pub fn seen(&self, name: &str) -> PathBuf {
        let path = self.folder.path().strip_prefix("/").unwrap();
        Path::new("/proc").join(self.holder.id().to_string()).join("root").join(path).join(name)
    }

    /// A path on it, for a program that is started there.
    fn at(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    /// The command where the disk is.
    fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.arg("--target").arg(self.holder.id().to_string()).args(self.flags);
        inside.arg(command.get_program()).args(command.get_args());
        inside.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside
    }

    /// Leaves less than a page.
    pub fn fill(&self) {
        let mut filler = fs::File::create(self.seen("filler")).unwrap();
        while filler.write(&[1; 4096]).is_ok() {}
    }

    /// Bytes of the disk that the half files in a folder take.
    fn used(&self, folder: &str) -> u64 {
        let files = fs::read_dir(self.seen(folder)).unwrap().map(|entry| entry.unwrap());
        let half = files.filter(|file| is_temporary(&file.file_name().to_string_lossy()));
        half.map(|file| file.metadata().unwrap().blocks() * 512).sum()
    }

    /// Mounts it again, `ro` or `rw`.
    fn remount(&self, how: &str) {
        let mut remount = Command::new("mount");
        remount.args(["-o", &format!("remount,{how}")]).arg(self.folder.path());
        remount.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        assert!(self.inside(&remount).status().unwrap().success());
    }

    fn free(&self) {
        fs::remove_file(self.seen("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Its input ends, and with it the last process of the namespace.
        drop(self.holder.stdin.take());
        self.holder.wait().unwrap();
    }
}

#[test]
fn a_disk_that_fills_up_under_one_object() {
    for phase in OF_ONE {
        for name in ["model", "new"] {
            let (held, disk) = (Held::at(phase), Disk::new(2 << 20));
            fs::write(disk.seen("target/model"), b"earlier").unwrap();
            let target = disk.at(&format!("target/{name}"));
            let child = held.begin(disk.inside(&held.cp(&target)));
            if phase == Phase::Verifying {
                wait_until("all bytes", || disk.used("target") >= SIZE as u64);
            }
            disk.fill();
            held.go_on();
            let full = end(child);
            if phase == Phase::Verifying {
                // Its bytes were there already.
                full.clean();
                assert_eq!(fs::read(disk.seen("target").join(name)).unwrap(), bytes(SIZE), "{name}");
            } else {
                full.refused(1, &[&target, "No space left on device", "hint: free some space"]);
                assert_eq!(names(&disk.seen("target")), ["model"], "{phase:?} {name}");
                assert_eq!(fs::read(disk.seen("target/model")).unwrap(), b"earlier");
            }
            disk.free();
            held.go_on();
            run(&mut disk.inside(&held.cp(&target))).clean();
            assert_eq!(fs::read(disk.seen("target").join(name)).unwrap(), bytes(SIZE), "{phase:?} {name}");
        }
    }
}

#[test]
fn a_disk_that_fills_up_under_many_objects() {
    for phase in [Phase::NextPage, Phase::Amid, Phase::NearEnd] {
        let (held, disk) = (Held::at(phase), Disk::new(2 << 20));
        let target = disk.at("target");
        let child = held.begin(disk.inside(&held.cp(&target)));
        let seen = disk.seen("target");
        wait_until("whole files", || phase.landed().iter().all(|name| seen.join(name).exists()));
        disk.fill();
        held.go_on();
        let full = end(child);
        assert_eq!(full.code, Some(1), "{phase:?}: {}", full.stderr);
        assert!(full.stderr.contains("No space left on device"), "{phase:?}: {}", full.stderr);
        assert!(full.stderr.contains("nothing more can be written"), "{phase:?}: {}", full.stderr);
        assert_eq!(only_whole_files(&seen), phase.landed(), "{phase:?}");
        disk.free();
        run(&mut disk.inside(&held.cp(&target))).clean();
        assert_eq!(only_whole_files(&seen), ["a", "d/b", "d/c", "e"], "{phase:?}");
    }
}

#[test]
fn a_disk_that_is_read_only_or_too_small_is_known_before_the_first_byte() {
    let disk = Disk::new(512 << 10);
    // Larger than what is written without a reservation.
    let object = bytes(2 << 20);
    let raw = Raw::start(move |asked| right(asked, &object, "\"one\""));
    let source = raw.url("b/object");
    let target = disk.at("target/new");
    let small = run(&mut disk.inside(&flatout(&["cp", &source, &target])));
    small.refused(1, &[&target, "cannot reserve 2097152 bytes", "No space left on device", "hint:"]);
    assert_eq!(names(&disk.seen("target")), [""; 0]);
    disk.remount("ro");
    let shut = run(&mut disk.inside(&flatout(&["cp", &source, &target])));
    shut.refused(1, &[&target, "Read-only file system", "hint:"]);
    assert_eq!(names(&disk.seen("target")), [""; 0]);
}

#[test]
fn a_disk_that_is_full_loses_nothing_that_the_next_run_could_go_on_from() {
    let (stuck, disk) = (Stuck::new(), Disk::new(14 << 20));
    let (target, seen) = (disk.at("target/new"), disk.seen("target"));
    let mut first = disk.inside(&stuck.cp(&target));
    let child = first.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("what comes", || noted(seen.join("new").to_str().unwrap()) >= 12);
    // Of the program itself: nsenter becomes it.
    super::super::program::signal("INT", child.id());
    end(child).refused(130, &["run it again to go on from 12MiB"]);
    disk.fill();
    let raw = whole(&stuck.object, "\"one\"");
    let full = run(&mut disk.inside(&cp(&raw, &target)));
    full.refused(
        1,
        &[&target, "No space left on device", "free some space", "then run it again to go on from 12MiB"],
    );
    assert_eq!(temporaries(&seen).len(), 2);
    disk.free();
    disk.remount("ro");
    run(&mut disk.inside(&cp(&raw, &target))).refused(1, &[&target, "Read-only file system", "hint:"]);
    assert_eq!(temporaries(&seen).len(), 2);
    disk.remount("rw");
    let done = run(&mut disk.inside(&cp(&raw, &target))).clean();
    assert_eq!(done.events()[0]["resumed"], 12 << 20);
    assert_eq!(fs::read(seen.join("new")).unwrap(), stuck.object);
    assert_eq!(names(&seen), ["new"]);
}

/// The file's room is reserved, and its journal's second page is not there.
#[test]
fn a_journal_that_finds_no_room_stops_no_download_and_what_it_noted_stays() {
    let size = 200 * MIB;
    let (origin, disk) = (slow(size, 160 * MIB), Disk::new(size as usize + 4096));
    let (target, seen) = (disk.at("target/new"), disk.seen("target"));
    let copy = || {
        let endpoint = origin.url();
        disk.inside(&flatout(&["cp", "s3://demo/object", &target, "--endpoint-url", &endpoint, "--json"]))
    };
    let landed = || noted(seen.join("new").to_str().unwrap());
    kill(begin(&mut copy(), || landed() >= 120));
    let noted = landed();
    let object = object_of(&run(&mut copy()).clean());
    let resumed = object["resumed"].as_u64().unwrap();
    assert!(resumed >= 120 * MIB && resumed <= noted * MIB, "{noted} were noted: {object}");
    assert!(fs::read(seen.join("new")).unwrap() == made_up("object", size), "other bytes");
    assert_eq!(names(&seen), ["new"]);
    // From nothing to the end: of 200 blocks 165 at most find a place in a page.
    fs::remove_file(seen.join("new")).unwrap();
    let most = std::cell::Cell::new(0);
    let is_done = || {
        most.set(landed().max(most.get()));
        seen.join("new").exists()
    };
    object_of(&end(begin(&mut copy(), is_done)).clean());
    assert!((64..=165).contains(&most.get()), "{} blocks stood in the journal", most.get());
    assert!(fs::read(seen.join("new")).unwrap() == made_up("object", size), "other bytes");
    assert_eq!(names(&seen), ["new"]);
}

#[test]
fn files_that_may_not_grow_end_each_object_by_itself() {
    let (held, target) = (Held::at(Phase::Listing), tempfile::tempdir().unwrap());
    held.go_on();
    // 64 blocks are 32 or 64 KiB, whichever unit the shell takes.
    let copy = held.cp(target.path().to_str().unwrap());
    let arguments: Vec<&str> = copy.get_args().map(|argument| argument.to_str().unwrap()).collect();
    let limited = run(&mut shell("ulimit -f 64; exec \"$0\" \"$@\"", &arguments));
    assert_eq!(limited.code, Some(1), "{}", limited.stderr);
    assert_eq!(limited.stderr.matches("File too large").count(), 4, "{}", limited.stderr);
    assert_eq!(files(target.path()), [""; 0]);
}
