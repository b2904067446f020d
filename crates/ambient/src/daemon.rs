//! Where a program that stays puts its sockets and its log, and whom it tells that it stands.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::place::Home;
use crate::{Environment, text};

/// Where sockets of running mounts are: below `XDG_RUNTIME_DIR`, then `/run`; for a user whom nobody gave
/// either, and for root where /run cannot be written to, below `/tmp` in a folder of their own. Last is what
/// `XDG_RUNTIME_DIR` is in a session of systemd's, for whoever looks from outside of it. The first that can
/// be made is used; who looks for mounts looks in all.
pub(crate) fn runtime_folders(environment: &Environment, uid: u32) -> Vec<PathBuf> {
    let own = absolute(environment, "XDG_RUNTIME_DIR").map(|base| base.join("flatout"));
    let systems = PathBuf::from("/run/flatout");
    let temporary = PathBuf::from(format!("/tmp/flatout-{uid}"));
    let session = PathBuf::from(format!("/run/user/{uid}/flatout"));
    let mut folders: Vec<PathBuf> = own.into_iter().chain([systems, temporary]).collect();
    if !folders.contains(&session) {
        folders.push(session);
    }
    folders
}

/// Where the log of what runs in the background goes: below `XDG_STATE_HOME`; else root's in `/var/log`, a
/// user's below `~/.local/state`. None where no home is known.
pub(crate) fn log_folder(environment: &Environment, uid: u32) -> Option<PathBuf> {
    let systems = (uid == 0).then(|| PathBuf::from("/var/log/flatout"));
    own_state(environment).or(systems).or_else(|| state_of_home(environment))
}

/// Where what outlives a run is kept: below `XDG_STATE_HOME`, else below `~/.local/state`. None where neither
/// is known; a home that is not there is not made.
pub(crate) fn state_folder(environment: &Environment) -> Option<PathBuf> {
    let is_there = |state: &PathBuf| state.ancestors().nth(3).is_some_and(Path::is_dir);
    own_state(environment).or_else(|| state_of_home(environment).filter(is_there))
}

fn own_state(environment: &Environment) -> Option<PathBuf> {
    Some(absolute(environment, "XDG_STATE_HOME")?.join("flatout"))
}

fn state_of_home(environment: &Environment) -> Option<PathBuf> {
    Some(Home::of(environment).ok()?.join(".local/state")?.join("flatout"))
}

/// The socket on which a service manager waits to hear that we stand; one that begins with `@` is abstract.
pub(crate) fn notify_socket(environment: &Environment) -> Option<OsString> {
    environment.get(std::ffi::OsStr::new("NOTIFY_SOCKET")).filter(|path| !path.is_empty()).cloned()
}

/// The XDG specification has a relative path ignored.
fn absolute(environment: &Environment, name: &str) -> Option<PathBuf> {
    let path = text(environment, name).ok().flatten().map(PathBuf::from)?;
    path.is_absolute().then_some(path)
}

/// Who runs this process.
pub(crate) fn uid() -> u32 {
    // Without /proc nobody is root here: what only root may use is then not tried.
    std::fs::metadata("/proc/self").map_or(u32::MAX, |process| process.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Environment {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn folders_follow_xdg_then_who_it_is() {
        let check = |pairs: &[(&str, &str)], uid, runtime: &[&str], log: Option<&str>| {
            let environment = variables(pairs);
            let folders: Vec<PathBuf> = runtime.iter().map(PathBuf::from).collect();
            assert_eq!(runtime_folders(&environment, uid), folders, "{pairs:?}");
            assert_eq!(log_folder(&environment, uid), log.map(PathBuf::from), "{pairs:?}");
        };
        let roots = ["/run/flatout", "/tmp/flatout-0", "/run/user/0/flatout"];
        let users = ["/run/flatout", "/tmp/flatout-7", "/run/user/7/flatout"];
        check(&[], 0, &roots, Some("/var/log/flatout"));
        check(&[], 7, &users, None);
        check(&[("HOME", "/h")], 7, &users, Some("/h/.local/state/flatout"));
        check(&[("HOME", "/root")], 0, &roots, Some("/var/log/flatout"));
        let xdg = [("XDG_RUNTIME_DIR", "/r"), ("XDG_STATE_HOME", "/s")];
        check(&xdg, 0, &[&["/r/flatout"], &roots[..]].concat(), Some("/s/flatout"));
        let session = [("XDG_RUNTIME_DIR", "/run/user/7")];
        check(&session, 7, &["/run/user/7/flatout", "/run/flatout", "/tmp/flatout-7"], None);
        check(&[("XDG_RUNTIME_DIR", "r"), ("XDG_STATE_HOME", "s")], 0, &roots, Some("/var/log/flatout"));
    }

    #[test]
    fn nobody_waits_where_no_socket_is_named() {
        assert_eq!(notify_socket(&variables(&[])), None);
        assert_eq!(notify_socket(&variables(&[("NOTIFY_SOCKET", "")])), None);
        assert_eq!(notify_socket(&variables(&[("NOTIFY_SOCKET", "@x")])), Some("@x".into()));
    }
}
