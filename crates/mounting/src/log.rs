//! Where a mount writes what goes wrong: to whatever its caller shows people, or to a file with times. What
//! goes wrong a thousand times a second is written a few times a minute.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use flatout_engine::Hint;
use flatout_wire::time;
use flatout_wire::words::one_line;

/// Lines of one kind in a [`WINDOW`]; further ones are only counted.
const LINES_MAX: u64 = 10;
const WINDOW: Duration = Duration::from_secs(60);

/// Takes lines from any thread.
pub struct MountLog {
    state: Mutex<LogState>,
    /// A hint in the words of the caller, whose users read the log.
    words: fn(&Hint) -> String,
}

/// Takes one line.
type LineWriter = Box<dyn FnMut(&str) + Send>;

struct LogState {
    writer: LineWriter,
    kinds: HashMap<&'static str, RecentLines>,
}

/// The lines of one kind in this window.
struct RecentLines {
    since: Instant,
    said: u64,
    swallowed: u64,
    /// What they were about.
    about: Vec<String>,
}

impl MountLog {
    /// Writes each line by `write`, on the thread that has something to say. `words` says a hint as the
    /// caller's users know settings and commands.
    pub fn new(write: impl FnMut(&str) + Send + 'static, words: fn(&Hint) -> String) -> MountLog {
        MountLog { state: Mutex::new(LogState { writer: Box::new(write), kinds: HashMap::new() }), words }
    }

    /// A hint in the words of the caller.
    pub(crate) fn worded(&self, hint: &Hint) -> String {
        (self.words)(hint)
    }

    /// From here on writes into this file, each line with its time.
    pub fn turn_to(&self, mut file: File) {
        self.state().writer = Box::new(move |line| {
            // A log that cannot be written to has nowhere to say so.
            let _ = writeln!(file, "{} {line}", now());
        });
    }

    /// Writes a line.
    pub fn say(&self, line: &str) {
        self.state().write(line);
    }

    /// Writes a line unless there were many of its `kind`, or one `about` the same thing: kernel and programs
    /// repeat requests that failed.
    pub fn say_limited(&self, kind: &'static str, about: &str, line: &str) {
        let mut state = self.state();
        let now = Instant::now();
        if state.was_said(kind, about, now) {
            return;
        }
        if let Some(before) = state.turn(kind, now) {
            if before > 0 {
                state.write(&format!("{kind}: {before} more like it were left out"));
            }
            state.write(line);
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, LogState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LogState {
    /// Whether a line about this was written in the window of its kind; notes it as written.
    fn was_said(&mut self, kind: &'static str, about: &str, now: Instant) -> bool {
        let known = self.kind(kind, now);
        let was_said = known.about.iter().any(|said| said == about);
        if !was_said && known.said < LINES_MAX {
            known.about.push(about.to_owned());
        }
        was_said
    }

    fn kind(&mut self, kind: &'static str, now: Instant) -> &mut RecentLines {
        let new = RecentLines { since: now, said: 0, swallowed: 0, about: Vec::new() };
        let known = self.kinds.entry(kind).or_insert(new);
        if now.duration_since(known.since) >= WINDOW {
            (known.since, known.said) = (now, 0);
            known.about.clear();
        }
        known
    }

    /// How many lines of this kind were left out since the last one; `None` if this one is left out too.
    fn turn(&mut self, kind: &'static str, now: Instant) -> Option<u64> {
        let known = self.kind(kind, now);
        if known.said >= LINES_MAX {
            known.swallowed += 1;
            return None;
        }
        known.said += 1;
        Some(std::mem::take(&mut known.swallowed))
    }

    fn write(&mut self, line: &str) {
        (self.writer)(&one_line(line));
    }
}

fn now() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    time::format_iso(now.as_secs()).replace(".000Z", &format!(".{:03}Z", now.subsec_millis()))
}

/// A file named after the mount point, in the first of `folders` that can be written to. `None` where none
/// can.
pub fn open_first_log(
    mount_point: &Path,
    folders: impl IntoIterator<Item = PathBuf>,
) -> Option<(PathBuf, File)> {
    let name = mount_point.display().to_string();
    let name: String = name.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
    let name = format!("mount-{}.log", name.trim_matches('-'));
    folders.into_iter().find_map(|folder| {
        let path = folder.join(&name);
        let file = open_log(&path).ok()?;
        Some((path, file))
    })
}

/// Opens a log to append to. Its folder is made, for this user alone.
///
/// # Errors
/// The kernel's own.
pub fn open_log(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_often_is_said_a_few_times() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/mount.log");
        let log = MountLog::new(|_| {}, |hint| format!("{hint:?}"));
        log.turn_to(open_log(&path).unwrap());
        for at in 0..100 {
            log.say_limited("read", &format!("file {at}"), &format!("read {at}"));
            log.say_limited("read", "file 0", "read 0 again");
        }
        log.say_limited("list", "folder", "list\n0");
        log.say("once");
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count() as u64, LINES_MAX + 2, "{text}");
        assert!(text.contains("Z read 9\n") && !text.contains("read 10"), "{text}");
        assert!(text.contains("list\\n0"), "{text}");
    }

    #[test]
    fn a_new_window_says_what_was_left_out() {
        let mut state = LogState { writer: Box::new(|_| {}), kinds: HashMap::new() };
        let start = Instant::now();
        let said = (0..15).filter_map(|_| state.turn("read", start)).count() as u64;
        assert_eq!(said, LINES_MAX);
        assert_eq!(state.turn("read", start + WINDOW), Some(15 - LINES_MAX));
        assert_eq!(state.turn("read", start + WINDOW), Some(0));
    }

    #[test]
    fn the_same_thing_is_said_once_in_a_window() {
        let mut state = LogState { writer: Box::new(|_| {}), kinds: HashMap::new() };
        let start = Instant::now();
        let mut was_said = |kind, about, now| state.was_said(kind, about, now);
        assert!(!was_said("read", "a", start) && !was_said("read", "b", start));
        assert!(was_said("read", "a", start) && was_said("read", "b", start));
        assert!(!was_said("list", "a", start), "another kind");
        assert!(!was_said("read", "a", start + WINDOW), "a new window");
    }
}
