//! Signals: three that are heeded, and the one that cannot be.

use std::fs;

use super::super::folder::Folder;
use super::super::program::{shell, signal};
use super::*;

const HEEDED: [&str; 3] = ["INT", "TERM", "HUP"];

#[test]
fn a_signal_ends_one_object_in_good_order() {
    for phase in OF_ONE {
        for name in HEEDED {
            let (held, folder) = (Held::at(phase), Folder::new());
            let child = held.begin(held.cp(&folder.at("model")));
            signal(name, child.id());
            let stopped = end(child).refused(130, &["s3://b/object", "cancelled"]);
            assert_eq!(stopped.text(), "", "{phase:?} {name}");
            folder.is_untouched();
        }
    }
}

/// timeout(1) tells the program, and then the group that it is in.
#[test]
fn two_signals_at_once_are_one() {
    for phase in OF_ONE {
        let (held, folder) = (Held::at(phase), Folder::new());
        let child = held.begin(held.cp(&folder.at("model")));
        let pid = child.id();
        run(&mut shell(&format!("kill -TERM {pid}; kill -TERM {pid}"), &[])).clean();
        end(child).refused(130, &["s3://b/object", "cancelled"]);
        folder.is_untouched();
    }
}

#[test]
fn a_signal_ends_many_objects_in_good_order() {
    for phase in OF_MANY {
        for name in HEEDED {
            let (held, base) = (Held::at(phase), tempfile::tempdir().unwrap());
            let target = base.path().join("target");
            let child = held.begin(held.cp(target.to_str().unwrap()));
            wait_until("whole files", || landed(&target, phase));
            signal(name, child.id());
            let stopped = end(child);
            assert_eq!(stopped.code, Some(130), "{phase:?} {name}: {}", stopped.stderr);
            // Before a target is made there is nothing to end: nothing is said of that.
            if phase == Phase::Listing {
                assert!(!target.exists() && stopped.stderr.is_empty(), "{}", stopped.stderr);
                continue;
            }
            assert!(stopped.stderr.contains("interrupted"), "{phase:?} {name}: {}", stopped.stderr);
            assert_eq!(only_whole_files(&target), phase.landed(), "{phase:?} {name}");
        }
    }
}

/// Whether the files that come before the phase are there, under their names.
fn landed(target: &std::path::Path, phase: Phase) -> bool {
    phase.landed().iter().all(|name| target.join(name).exists())
}

#[test]
fn what_kill_9_leaves_of_one_object_is_cleared_by_the_next_run() {
    for phase in OF_ONE {
        for name in ["model", "new"] {
            let (held, folder) = (Held::at(phase), Folder::new());
            let earlier = fs::read(folder.path().join("model")).unwrap();
            let target = folder.at(name);
            let mut child = held.begin(held.cp(&target));
            let living = folder.names();
            assert_eq!(living.iter().filter(|name| is_temporary(name)).count(), 1, "{living:?}");
            // While its owner lives, another run leaves it alone.
            let other = Held::at(phase);
            other.go_on();
            run(&mut other.cp(&target)).clean();
            assert!(living.iter().all(|name| folder.path().join(name).exists()), "{:?}", folder.names());
            fs::write(folder.path().join("model"), &earlier).unwrap();

            child.kill().unwrap();
            assert_eq!(end(child).code, None, "by the signal");
            assert_eq!(fs::read(folder.path().join("model")).unwrap(), earlier, "{phase:?} {name}");
            again(&held, &target);
            assert_eq!(fs::read(&target).unwrap(), bytes(SIZE), "{phase:?} {name}");
            assert!(folder.names().iter().all(|name| !is_temporary(name)), "{:?}", folder.names());
        }
    }
}

#[test]
fn what_kill_9_leaves_of_many_is_cleared_by_the_next_run() {
    for phase in OF_MANY {
        let (held, base) = (Held::at(phase), tempfile::tempdir().unwrap());
        let target = base.path().join("target");
        let path = target.to_str().unwrap();
        let mut child = held.begin(held.cp(path));
        wait_until("whole files", || landed(&target, phase));
        child.kill().unwrap();
        end(child);
        if phase == Phase::Listing {
            assert!(!target.exists());
        } else {
            let (half, whole): (Vec<_>, Vec<_>) =
                files(&target).into_iter().partition(|path| is_temporary(path));
            assert_eq!(whole, phase.landed(), "{phase:?}");
            assert_eq!(half.len(), if phase == Phase::NextPage { 0 } else { phase.held() }, "{half:?}");
        }
        again(&held, path);
        assert_eq!(only_whole_files(&target), ["a", "d/b", "d/c", "e"], "{phase:?}");
    }
}

#[test]
fn a_copy_of_other_objects_clears_the_folders_that_it_writes_into() {
    let (held, target) = (Held::at(Phase::Amid), tempfile::tempdir().unwrap());
    let mut child = held.begin(held.cp(target.path().to_str().unwrap()));
    wait_until("whole files", || landed(target.path(), Phase::Amid));
    child.kill().unwrap();
    end(child);
    assert_eq!(files(target.path()).iter().filter(|path| is_temporary(path)).count(), 2);
    held.go_on();
    let others = ["--include", "a", "--exclude", "*"];
    run(held.cp(target.path().to_str().unwrap()).args(others)).clean();
    let left = files(target.path());
    assert_eq!(left.iter().filter(|path| path.starts_with("d/.")).count(), 2, "not its folder: {left:?}");
    run(held.cp(target.path().to_str().unwrap()).args(["--include", "d/c", "--exclude", "*"])).clean();
    assert!(files(target.path()).iter().all(|path| !is_temporary(path)));
}
