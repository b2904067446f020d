//! Processes that die while an index is mounted. The kernel reads the image from them, and must not wait for
//! them for ever.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::Place;
use crate::mountinfo::mounts_below;
use crate::objects::Buckets;
use crate::program::{ended, run, signal, wait_until};

/// The state of this process's thread that has the kernel mount an image, if there is one.
fn mounting_state(pid: u32) -> Option<char> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    stats.find_map(|stat| stat.split_once("(flatout-image) ")?.1.chars().next())
}

/// Stops `server` while the kernel reads an image from it for `waiter`; `false` if it could not be met there.
fn stopped_while_read(server: u32, waiter: u32, mut goes_on: impl FnMut() -> bool) -> bool {
    while mounting_state(waiter).is_none() {
        if !goes_on() {
            return false;
        }
    }
    // At once: a program that sends it would take too long.
    kill_process(Pid::from_raw(server as i32).unwrap(), Signal::STOP).unwrap();
    // A thread that had its answer has ended by then, or is stopped.
    thread::sleep(Duration::from_millis(100));
    if !mounting_state(waiter).is_some_and(|state| "DS".contains(state)) {
        signal("CONT", server);
        return false;
    }
    true
}

/// This program with the lowest priority: beside other tests it is slow to answer, so that it can be met
/// while the kernel waits for it.
fn slow(program: &Command) -> Command {
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(program.get_program()).args(program.get_args());
    command.env_clear().envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
}

fn is_over(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

#[test]
fn a_death_while_the_kernel_reads_the_new_image_leaves_nobody_waiting() {
    for kept in [&[][..], &["--supervise"]] {
        let (bucket, place) = (Buckets::new(&[("bucket/f", &b"f"[..])]), Place::new());
        run(&mut place.volume("build", &bucket.url(), &[])).clean();
        let mnt = place.mnt_text();
        let line = [&[&mnt[..]], kept].concat();
        run(&mut slow(&place.volume("mount", &bucket.url(), &line))).clean();
        let server = place.stats()["pid"].as_u64().unwrap() as u32;
        let mut updates: Vec<Child> = Vec::new();
        let is_met = (0..300).any(|round| {
            fs::write(bucket.root().join(format!("bucket/{round}")), b"new").unwrap();
            let mut update = place.volume("update", &bucket.url(), &[]);
            let mut update = update.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let is_met = stopped_while_read(server, server, || !is_over(&mut update));
            updates.push(update);
            is_met
        });
        assert!(is_met, "the kernel has read each image at once");
        signal("KILL", server);
        wait_until("the end of the kernel's wait", || mounting_state(server).is_none());
        if kept.is_empty() {
            assert!(fs::read(place.at("f")).is_err());
            run(&mut place.flatout(&["umount", &place.mnt_text()])).clean();
            place.is_clear();
        } else {
            wait_until("another process", || place.pids().iter().any(|pid| *pid != server));
            assert_eq!(fs::read(place.at("f")).unwrap(), b"f", "{}", place.log());
            wait_until("the ends of the updates", || updates.iter_mut().all(is_over));
            run(&mut place.volume("update", &bucket.url(), &[])).clean();
            assert_eq!(fs::read(place.at("0")).unwrap(), b"new", "{}", place.log());
            place.unmounted();
        }
        for mut update in updates {
            update.wait().unwrap();
        }
    }
}

/// The supervisor has the kernel mount the first image, and holds the connection, too.
#[test]
fn a_death_while_the_kernel_reads_the_first_image_is_an_error_of_the_command() {
    let (bucket, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
    run(&mut place.volume("build", &bucket.url(), &[])).clean();
    let line = [&place.mnt_text()[..], "--supervise", "--foreground"];
    let mut killed = None;
    for _ in 0..300 {
        let mut mount = slow(&place.volume("mount", &bucket.url(), &line));
        let mut mount = mount.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let pid = mount.id();
        let children = || fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        wait_until("the process that serves", || !children().is_empty());
        let server = children().trim().parse().unwrap();
        let is_met = stopped_while_read(server, pid, || !place.is_mounted());
        signal(if is_met { "KILL" } else { "TERM" }, server);
        wait_until("its end", || is_over(&mut mount));
        let ended = ended(mount.wait_with_output().unwrap());
        if is_met {
            killed = Some(ended);
            break;
        }
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    }
    let ended = killed.expect("the kernel has read each image at once");
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("does not answer the kernel"), "{}", ended.stderr);
    assert!(mounts_below(place.path()).is_empty());
    place.shows(&bucket.url(), &["--supervise"]);
    place.unmounted();
}

/// Whenever the process that serves dies while it shows another index, the mount goes on with one of both.
#[test]
fn a_death_in_the_midst_of_an_update_leaves_an_index() {
    let (bucket, place) = (Buckets::new(&[("bucket/f", b"f")]), Place::new());
    place.shows(&bucket.url(), &["--supervise"]);
    for round in 0..16 {
        // Ten lives of less than a second are the end.
        thread::sleep(Duration::from_millis(1100));
        fs::write(bucket.root().join(format!("bucket/{round}")), b"new").unwrap();
        let killed = place.stats()["pid"].as_u64().unwrap() as u32;
        let mut update = place.volume("update", &bucket.url(), &[]).stdout(Stdio::null()).spawn().unwrap();
        let before = fs::metadata(place.index()).unwrap().ino();
        wait_until("the new index", || fs::metadata(place.index()).is_ok_and(|about| about.ino() != before));
        thread::sleep(Duration::from_millis(2 * round));
        signal("KILL", killed);
        wait_until("another process", || place.pids().iter().any(|pid| *pid != killed));
        assert_eq!(fs::read(place.at("f")).unwrap(), b"f", "{round} {}", place.log());
        update.wait().unwrap();
    }
    run(&mut place.volume("update", &bucket.url(), &[])).clean();
    fs::write(bucket.root().join("bucket/last"), b"last").unwrap();
    run(&mut place.volume("update", &bucket.url(), &[])).clean();
    assert_eq!(fs::read(place.at("last")).unwrap(), b"last", "{}", place.log());
    place.unmounted();
}
