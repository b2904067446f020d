//! Twenty-five unclean ends: whatever becomes of the process, the origin or whoever reads, `flatout umount`
//! (where anything is left) makes the place as it was, and no process stays.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use flatout_server::{Fault, FaultKind, FaultPlan, Options, Origin, Store};

use super::{Place, User, is_alive};
use crate::program::{run, signal, signal_until, wait_until};

/// An object whose bytes stop coming, and one that comes.
fn stalling() -> Origin {
    let objects = vec![("bucket".into(), "large".into(), 64 << 20), ("bucket".into(), "small".into(), 1000)];
    let mut options = Options::new(Store::Synthetic(objects, vec![]));
    let kind = FaultKind::Stall(Duration::from_secs(600));
    options.fault_plan = FaultPlan { faults: vec![Fault { chance: 1.0, kind }], ..FaultPlan::default() };
    Origin::start(options).unwrap()
}

/// Where all comes.
fn fine() -> Origin {
    let objects = vec![("bucket".into(), "large".into(), 64 << 20), ("bucket".into(), "small".into(), 1000)];
    Origin::start(Options::new(Store::Synthetic(objects, vec![]))).unwrap()
}

/// Who is in the way when the end comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Use {
    Nobody,
    /// Waits for bytes that do not come.
    Reads,
    /// Has a file open.
    Open,
    /// Has a file mapped.
    Mapped,
    /// Stands in the folder.
    Within,
}

/// What ends it.
#[derive(Clone, Copy, Debug)]
enum End {
    /// To the process, which dies of it.
    Killed(&'static str),
    /// SIGTERM.
    Asked,
    /// Stopped, and then killed.
    Frozen,
    /// SIGTERM, and again.
    Twice,
    /// umount(8) with this flag.
    Umount(&'static str),
    /// The origin goes, and then the process is killed.
    GoneAndKilled,
    /// The origin goes, and then SIGTERM.
    GoneAndAsked,
    /// The origin goes, and then somebody unmounts.
    GoneAndUmount,
    /// Killed, and mounted again over what is left.
    Again,
}

#[track_caller]
fn check(end: End, used: Use) {
    let place = Place::new();
    let origin = if used == Use::Reads { stalling() } else { fine() };
    let url = origin.url();
    place.mounted("s3://bucket", &url, &["--retries", "0", "--connect-timeout", "100ms"]);
    // For a minute the kernel tells by itself what this has told.
    fs::metadata(place.mnt()).unwrap();
    let (mut pid, large) = (place.pid(), place.at("large"));
    let user = user(used, large.to_str().unwrap(), &place);
    let mut origin = Some(origin);
    match end {
        End::Killed(name) => wait_until("its end", || {
            // std takes the first SIGSEGV or SIGBUS for a fault that comes again, and dies of the second.
            let _ = Command::new("kill").args(["-s", name, &pid.to_string()]).stderr(Stdio::null()).status();
            !is_alive(pid)
        }),
        End::Asked => signal("TERM", pid),
        End::Frozen => {
            signal("STOP", pid);
            signal("KILL", pid);
            wait_until("its end", || !is_alive(pid));
        }
        End::Twice => {
            signal("TERM", pid);
            signal_until("TERM", pid, || (!place.is_mounted() || !is_alive(pid)).then_some(()));
        }
        End::Umount(flag) => {
            Command::new("umount").arg(flag).arg(place.mnt()).stderr(Stdio::null()).status().unwrap();
        }
        End::GoneAndKilled => {
            drop(origin.take());
            signal("KILL", pid);
            wait_until("its end", || !is_alive(pid));
        }
        End::GoneAndAsked => {
            drop(origin.take());
            signal("TERM", pid);
        }
        End::GoneAndUmount => drop(origin.take()),
        End::Again => {
            signal("KILL", pid);
            wait_until("its end", || !is_alive(pid));
            run(&mut place.mount("s3://bucket", &url, &[])).clean();
            assert_eq!(crate::folder::names(&place.mnt()), ["large", "small"]);
            pid = place.pids().into_iter().find(|pid| is_alive(*pid)).unwrap();
        }
    }
    settle(&place, pid, used, user, &format!("{end:?} {used:?}"));
}

fn user(used: Use, large: &str, place: &Place) -> Option<User> {
    let (mnt, mapped) = (place.mnt_text(), place.path().join("mapped"));
    let user = match used {
        Use::Nobody => return None,
        Use::Reads => User::start("dd", &[&format!("if={large}"), "of=/dev/null", "bs=1M", "iflag=direct"]),
        Use::Open => User::start("sh", &["-c", "exec 3< \"$0\"; exec sleep 300", large]),
        Use::Mapped => User::start("python3", &["-c", MAPS, large, mapped.to_str().unwrap()]),
        Use::Within => User::start("sh", &["-c", "cd \"$0\"; exec sleep 300", &mnt]),
    };
    match used {
        Use::Reads => user.waits(),
        Use::Mapped => wait_until("somebody to map it", || mapped.exists()),
        _ => wait_until("somebody to use it", || uses(user.pid(), &mnt)),
    }
    Some(user)
}

/// Says so when it has.
const MAPS: &str = "import mmap,sys,time
with open(sys.argv[1],'rb') as f: m=mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ)
m[0]
open(sys.argv[2],'w').close()
time.sleep(300)";

/// Whether a process has something of the mount: a descriptor, its folder.
fn uses(pid: u32, mnt: &str) -> bool {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().filter_map(Result::ok);
    let mut links = links.map(|link| link.path()).chain([format!("/proc/{pid}/cwd").into()]);
    links.any(|link| fs::read_link(link).is_ok_and(|to| to.starts_with(mnt)))
}

/// The end of it: after one `flatout umount` where something is left, everything is as if nothing had been.
/// `--lazy` is needed where somebody is in the way of a mount that lives, and nowhere else.
#[track_caller]
fn settle(place: &Place, pid: u32, used: Use, mut user: Option<User>, what: &str) {
    if used == Use::Reads
        && let Some(mut user) = user.take()
    {
        // A reader that waits has its error, or ends by a signal at once, whoever has died.
        signal("KILL", user.pid());
        user.end();
    }
    if place.is_mounted() {
        let first = place.umount(&[]);
        if first.code != Some(0) {
            let is_in_the_way = user.is_some() && is_alive(pid) && first.stderr.contains("--lazy");
            // It may have ended by itself meanwhile.
            assert!(is_in_the_way || !place.is_mounted(), "{what}: {}", first.stderr);
        }
    }
    if place.is_mounted() {
        let last = place.umount(&["--lazy"]);
        assert!(last.code == Some(0) || !place.is_mounted(), "{what}: {}", last.stderr);
    }
    assert!(!place.is_mounted(), "{what}");
    assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), 0, "{what}: the folder is as it was");
    // Whoever has something of it keeps the process; nobody is left behind them.
    assert!(user.as_mut().is_none_or(User::runs), "{what}: it was in use until here");
    drop(user);
    wait_until(what, || !is_alive(pid));
    place.is_clear();
}

#[test]
fn killed_by_whatever_signal() {
    for name in ["KILL", "ABRT", "SEGV", "BUS"] {
        check(End::Killed(name), Use::Nobody);
    }
}

#[test]
fn killed_while_somebody_uses_it() {
    for used in [Use::Reads, Use::Open, Use::Mapped, Use::Within] {
        check(End::Killed("KILL"), used);
    }
}

#[test]
fn asked_to_end_while_somebody_uses_it() {
    check(End::Asked, Use::Nobody);
    check(End::Twice, Use::Open);
    check(End::Twice, Use::Reads);
    check(End::Frozen, Use::Nobody);
}

#[test]
fn unmounted_by_others_while_somebody_uses_it() {
    check(End::Umount("-l"), Use::Reads);
    check(End::Umount("-f"), Use::Reads);
    check(End::Umount("-f"), Use::Open);
    check(End::Umount("-l"), Use::Within);
}

#[test]
fn the_origin_is_gone_first() {
    check(End::GoneAndAsked, Use::Nobody);
    check(End::GoneAndKilled, Use::Reads);
    check(End::GoneAndUmount, Use::Nobody);
    check(End::GoneAndUmount, Use::Reads);
}

#[test]
fn killed_and_mounted_again() {
    check(End::Again, Use::Nobody);
    check(End::Again, Use::Open);
}

/// Whoever waits for it to stand may go: it stands all the same, or does not, and nothing is between.
/// A slash behind a path has the system ask what is mounted there, which does not answer any more.
#[test]
fn killed_and_named_with_a_slash() {
    for umounts in [true, false] {
        let (origin, place) = (fine(), Place::new());
        place.mounted("s3://bucket", &origin.url(), &["--attribute-lifetime", "0s"]);
        let (pid, mnt) = (place.pid(), format!("{}/", place.mnt_text()));
        signal("KILL", pid);
        wait_until("its end", || !is_alive(pid));
        if umounts {
            place.unmounted_at(&mnt);
        } else {
            let again = ["mount", "s3://bucket", &mnt, "--endpoint-url", &origin.url()];
            run(&mut place.flatout(&again)).clean();
            assert_eq!(crate::folder::names(&place.mnt()), ["large", "small"]);
            place.unmounted();
        }
        place.is_clear();
    }
}

#[test]
fn the_one_that_waits_for_it_is_killed() {
    let place = Place::new();
    let origin =
        Origin::start(Options { latency: Duration::from_millis(400), ..Options::new(Store::Memory) })
            .unwrap();
    let bucket = Command::new("curl").args(["-s", "-X", "PUT", &format!("{}/bucket", origin.url())]).status();
    assert!(bucket.unwrap().success());
    let mut command = place.mount("s3://bucket", &origin.url(), &[]);
    let mut child = command.stdout(Stdio::null()).spawn().unwrap();
    wait_until("it to ask", || !place.pids().is_empty());
    let pid = place.pid();
    signal("KILL", child.id());
    child.wait().unwrap();
    wait_until("the one in the background to stand or to end", || place.is_mounted() || !is_alive(pid));
    settle(&place, pid, Use::Nobody, None, "the one that waits is killed");
}

/// Its folder is moved with all that is in it: it is where it is now.
#[test]
fn the_folder_around_it_has_another_name() {
    let (place, origin) = (Place::new(), fine());
    let around = place.path().join("around");
    fs::create_dir_all(around.join("mnt")).unwrap();
    let mnt = around.join("mnt");
    let url = origin.url();
    let line = ["mount", "s3://bucket", mnt.to_str().unwrap(), "--endpoint-url", &url, "--no-sign-request"];
    run(&mut place.flatout(&line)).clean();
    let pid = place.pid();
    fs::rename(&around, place.path().join("moved")).unwrap();
    let moved = place.path().join("moved/mnt");
    assert_eq!(crate::folder::names(&moved), ["large", "small"]);
    place.unmounted_at(moved.to_str().unwrap());
    wait_until("its end", || !is_alive(pid));
    place.is_clear();
}

#[test]
fn killed_in_the_foreground() {
    let (place, origin) = (Place::new(), fine());
    let mount = place.in_foreground("s3://bucket", &origin.url(), &[]);
    let pid = mount.pid();
    signal("KILL", pid);
    assert_eq!(mount.end().code, None);
    settle(&place, pid, Use::Nobody, None, "killed in the foreground");
}
