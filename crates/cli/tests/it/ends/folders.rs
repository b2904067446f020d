//! What others do to the target meanwhile: it vanishes, is shut, or becomes something else.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::super::folder::Folder;
use super::super::program::without_override;
use super::*;

#[test]
fn a_folder_that_vanishes_under_one_object() {
    for phase in OF_ONE {
        for name in ["model", "new"] {
            let (held, base) = (Held::at(phase), tempfile::tempdir().unwrap());
            let folder = base.path().join("folder");
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("model"), b"earlier").unwrap();
            let target = folder.join(name).to_str().unwrap().to_owned();
            let child = held.begin(held.cp(&target));
            fs::remove_dir_all(&folder).unwrap();
            held.go_on();
            end(child).refused(1, &[&target, "No such file or directory", "hint: create the folder first"]);
            assert_eq!(names(base.path()), [""; 0], "{phase:?}: nothing is made in its place");
        }
    }
}

#[test]
fn a_target_that_becomes_a_folder() {
    for phase in OF_ONE {
        let (held, folder) = (Held::at(phase), Folder::new());
        let target = folder.at("model");
        let child = held.begin(held.cp(&target));
        fs::remove_file(&target).unwrap();
        fs::create_dir(&target).unwrap();
        held.go_on();
        end(child).refused(1, &[&target, "the target is a folder", "hint:"]);
        assert_eq!(files(folder.path()), [""; 0], "{phase:?}");
        assert!(Path::new(&target).is_dir());
    }
}

#[test]
fn a_folder_that_is_shut_under_one_object() {
    for phase in OF_ONE {
        let (held, folder) = (Held::at(phase), Folder::new());
        let target = folder.at("model");
        let child = held.begin(without_override(held.cp(&target)));
        shut(folder.path(), true);
        held.go_on();
        let refused = end(child);
        shut(folder.path(), false);
        refused.refused(1, &[&target, "Permission denied", "hint: check the folder's permissions"]);
        // It could not be removed; it is dead, and the next run knows.
        assert_eq!(folder.names().iter().filter(|name| is_temporary(name)).count(), 1, "{phase:?}");
        assert_eq!(fs::read(&target).unwrap(), b"the earlier file");
        again(&held, &target);
        assert_eq!(folder.names(), ["model"], "{phase:?}");
    }
}

#[test]
fn a_folder_that_vanishes_under_many_objects() {
    for phase in [Phase::NextPage, Phase::Amid, Phase::NearEnd] {
        let (held, base) = (Held::at(phase), tempfile::tempdir().unwrap());
        let folder = base.path().join("folder");
        let child = held.begin(held.cp(folder.to_str().unwrap()));
        wait_until("whole files", || phase.landed().iter().all(|name| folder.join(name).exists()));
        remove(&folder);
        held.go_on();
        let ended = end(child);
        assert_eq!(ended.code, Some(1), "{phase:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("the folder is gone"), "{phase:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("hint:"), "{phase:?}: {}", ended.stderr);
        assert_eq!(names(base.path()), [""; 0], "{phase:?}: nothing is made in its place");
    }
}

/// As `rm -r` does; what is made in it meanwhile is removed as well.
fn remove(folder: &Path) {
    wait_until("an empty folder", || fs::remove_dir_all(folder).is_ok() || !folder.exists());
}

#[test]
fn a_folder_that_is_shut_under_many_objects() {
    for phase in [Phase::NextPage, Phase::Amid, Phase::NearEnd] {
        let (held, target) = (Held::at(phase), tempfile::tempdir().unwrap());
        let path = target.path().to_str().unwrap();
        let child = held.begin(without_override(held.cp(path)));
        wait_until("whole files", || phase.landed().iter().all(|name| target.path().join(name).exists()));
        let folders = [target.path().to_path_buf(), target.path().join("d")];
        folders.iter().for_each(|folder| shut(folder, true));
        held.go_on();
        let ended = end(child);
        folders.iter().for_each(|folder| shut(folder, false));
        assert_eq!(ended.code, Some(1), "{phase:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("Permission denied"), "{phase:?}: {}", ended.stderr);
        again(&held, path);
        assert_eq!(only_whole_files(target.path()), ["a", "d/b", "d/c", "e"], "{phase:?}");
    }
}

fn shut(folder: &Path, shut: bool) {
    let mode = if shut { 0o555 } else { 0o755 };
    fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_file_that_appears_meanwhile_stays_where_none_is_to_be_replaced() {
    for phase in OF_ONE {
        let (held, base) = (Held::at(phase), tempfile::tempdir().unwrap());
        let target = base.path().join("model");
        let mut copy = held.cp(target.to_str().unwrap());
        copy.arg("--no-clobber");
        let child = held.begin(copy);
        fs::write(&target, b"mine").unwrap();
        held.go_on();
        end(child)
            .refused(1, &[target.to_str().unwrap(), "appeared while this one was written", "--no-clobber"]);
        assert_eq!(
            (fs::read(&target).unwrap(), names(base.path())),
            (b"mine".to_vec(), vec!["model".to_owned()])
        );
    }
    let (held, base) = (Held::at(Phase::Amid), tempfile::tempdir().unwrap());
    let mut copy = held.cp(base.path().to_str().unwrap());
    copy.arg("-n");
    let child = held.begin(copy);
    wait_until("its folder", || base.path().join("d").exists());
    fs::write(base.path().join("d/b"), b"mine").unwrap();
    held.go_on();
    let ended = end(child);
    assert_eq!(ended.code, Some(1), "{}", ended.stderr);
    assert!(ended.stderr.contains("d/b: a file of that name appeared"), "{}", ended.stderr);
    assert_eq!(fs::read(base.path().join("d/b")).unwrap(), b"mine");
    assert_eq!(files(base.path()).len(), 4);
}
