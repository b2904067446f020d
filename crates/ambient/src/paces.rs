//! What was found of origins, kept from run to run: one small file in the user's cache folder. It only makes
//! the next run quicker to find its speed, so nothing about it is ever an error: what cannot be read is as if
//! it were not there.
//!
//! ```text
//!   flatout pace 1
//!   read https://s3.eu-west-1.amazonaws.com:443 parallel=96 connection=71303168 part=16777216 when=1795220000
//! ```

use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use flatout_engine::{Direction, FoundPace};

use crate::credentials::unix_seconds;
use crate::files::read_text;
use crate::place::Home;
use crate::{Environment, text};

/// The first line; another version is another program's file.
const HEAD: &str = "flatout pace 1";

/// Origins that are kept, the newest: enough for anybody, and a few KiB.
const ORIGINS_MAX: usize = 100;

/// No origin is the same after that.
const KEPT_FOR_S: u64 = 90 * 24 * 3_600;

/// How far ahead of ours another machine's clock may be, where both have the same home.
const AHEAD_S: u64 = 3_600;

fn path(environment: &Environment) -> Option<PathBuf> {
    Some(cache_folder(environment)?.join("pace"))
}

/// Below `XDG_CACHE_HOME`, else below `~/.cache`; none where neither is known. A home that is not there is
/// not made: a service has none on purpose.
pub(crate) fn cache_folder(environment: &Environment) -> Option<PathBuf> {
    // The XDG specification has a relative path ignored.
    let base = text(environment, "XDG_CACHE_HOME").ok().flatten().map(PathBuf::from);
    let base = base.filter(|base| base.is_absolute());
    let home = Home::of(environment).ok()?;
    let below_home = || home.join(".cache").filter(|cache| cache.parent().is_some_and(Path::is_dir));
    Some(base.or_else(below_home)?.join("flatout"))
}

/// What earlier runs found.
pub(crate) fn recall(environment: &Environment) -> Vec<FoundPace> {
    let mut paces = path(environment).map(|path| read(&path)).unwrap_or_default();
    paces.retain(|pace| is_kept(pace, unix_seconds()));
    paces
}

/// Neither too old, nor of a time that has not come: a clock was wrong then, and nothing that is found would
/// be newer.
fn is_kept(pace: &FoundPace, now_s: u64) -> bool {
    (now_s.saturating_sub(KEPT_FOR_S)..=now_s + AHEAD_S).contains(&pace.when_s)
}

/// Keeps what this run found beside what others did.
pub(crate) fn remember(environment: &Environment, found: &[FoundPace]) {
    let Some(path) = path(environment).filter(|_| !found.is_empty()) else { return };
    let mut paces = read(&path);
    let of = |pace: &FoundPace| (pace.origin.clone(), pace.direction);
    paces.retain(|known| found.iter().all(|found| of(found) != of(known)));
    paces.extend_from_slice(found);
    // A full disk or a folder of somebody else's: the next run begins without it.
    let _ = write(&path, &written(paces, unix_seconds()));
}

/// Removes the file; its path where there was one.
///
/// # Errors
/// When it is there and cannot be removed.
pub(crate) fn forget(environment: &Environment) -> io::Result<Option<PathBuf>> {
    let Some(path) = path(environment) else { return Ok(None) };
    match fs::remove_file(&path) {
        Ok(()) => Ok(Some(path)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(io::Error::new(error.kind(), format!("{}: {error}", path.display()))),
    }
}

fn read(path: &Path) -> Vec<FoundPace> {
    // A pipe in its place would be waited for.
    if !fs::metadata(path).is_ok_and(|found| found.is_file()) {
        return Vec::new();
    }
    let Ok(Some(text)) = read_text(path) else { return Vec::new() };
    let mut lines = text.lines();
    if lines.next() != Some(HEAD) {
        return Vec::new();
    }
    lines.filter_map(pace).take(ORIGINS_MAX).collect()
}

/// A line that is not as we write it is left out.
fn pace(line: &str) -> Option<FoundPace> {
    let mut words = line.split_whitespace();
    let verb = words.next()?;
    let direction = [Direction::Read, Direction::Write].into_iter().find(|known| known.name() == verb)?;
    let origin = words.next()?.to_owned();
    let mut number = |name: &str| -> Option<u64> {
        let number = words.next()?.strip_prefix(name)?.strip_prefix('=')?.parse().ok()?;
        (number > 0).then_some(number)
    };
    let parallel = u32::try_from(number("parallel")?).ok()?;
    let (connection_bytes, part_bytes) = (number("connection")?, number("part")?);
    let when_s = number("when")?;
    Some(FoundPace { origin, direction, parallel, connection_bytes, part_bytes, when_s })
}

fn written(mut paces: Vec<FoundPace>, now_s: u64) -> String {
    paces.retain(|pace| is_kept(pace, now_s));
    paces.sort_by_key(|pace| std::cmp::Reverse(pace.when_s));
    let mut page = format!("{HEAD}\n");
    for pace in paces.iter().take(ORIGINS_MAX) {
        let FoundPace { origin, direction, parallel, connection_bytes, part_bytes, when_s } = pace;
        let verb = direction.name();
        // A line in memory takes everything.
        let _ = writeln!(
            page,
            "{verb} {origin} parallel={parallel} connection={connection_bytes} part={part_bytes} when={when_s}"
        );
    }
    page
}

/// Whole or not at all, whoever else writes it.
fn write(path: &Path, page: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    // In two containers with one home the same number may be two processes.
    let nanoseconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    let beside = folder.join(format!("pace.{}.{nanoseconds}", std::process::id()));
    let written = fs::write(&beside, page).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `after`: seconds after an hour ago.
    fn found(origin: &str, after: u64) -> FoundPace {
        let when_s = unix_seconds() / 3_600 * 3_600 - 3_600 + after;
        let (parallel, connection_bytes, part_bytes) = (12, 64 << 20, 8 << 20);
        let direction = Direction::Read;
        FoundPace { origin: origin.into(), direction, parallel, connection_bytes, part_bytes, when_s }
    }

    fn home(path: &Path) -> Environment {
        [("HOME".into(), path.into())].into()
    }

    #[test]
    fn what_one_run_found_the_next_one_knows() {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = home(folder.path());
        assert_eq!(recall(&environment), []);
        remember(&environment, &[found("http://a:1", 5), found("http://b:2", 5)]);
        remember(&environment, &[]);
        remember(&environment, &[FoundPace { parallel: 99, ..found("http://a:1", 7) }]);
        let writing = FoundPace { direction: Direction::Write, ..found("http://a:1", 8) };
        remember(&environment, std::slice::from_ref(&writing));
        let known = recall(&environment);
        let reading = FoundPace { parallel: 99, ..found("http://a:1", 7) };
        assert_eq!(
            known,
            [writing, reading, found("http://b:2", 5)],
            "one for each direction, the newest first"
        );
        let file = folder.path().join(".cache/flatout/pace");
        assert_eq!(fs::read_dir(file.parent().expect("a folder")).expect("it is there").count(), 1);
        assert_eq!(forget(&environment).expect("it goes"), Some(file));
        assert_eq!(forget(&environment).expect("it is gone"), None);
        assert_eq!(recall(&environment), []);
    }

    #[test]
    fn the_cache_folder_is_where_xdg_says() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut environment = home(Path::new("/nowhere"));
        environment.insert("XDG_CACHE_HOME".into(), folder.path().into());
        remember(&environment, &[found("http://a:1", 5)]);
        assert!(folder.path().join("flatout/pace").exists());
        // A home that is not there, one that cannot be written to, and none: nothing is kept, and nobody
        // complains.
        let absent = folder.path().join("absent");
        for environment in
            [home(&absent), home(Path::new("/proc")), home(Path::new("/dev/null")), Environment::new()]
        {
            remember(&environment, &[found("http://a:1", 5)]);
            assert_eq!(recall(&environment), []);
            assert_eq!(forget(&environment).expect("nothing to do"), None);
        }
        assert!(!absent.exists());
    }

    #[test]
    fn a_file_that_is_not_ours_is_ignored_and_written_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let environment = home(folder.path());
        let file = folder.path().join(".cache/flatout/pace");
        let good = format!(
            "read http://a:1 parallel=12 connection=67108864 part=8388608 when={}",
            unix_seconds() - 5
        );
        for (content, known) in [
            ("", 0),
            ("flatout pace 2\n", 0),
            (&format!("{HEAD}\n{good}\n"), 1),
            (
                &format!("{HEAD}\n{good}\nread http://b:1 parallel=x\n\nwrite http://c:1 parallel=1\n{good}"),
                2,
            ),
            // When its clock was wrong, and from long ago.
            (&format!("{HEAD}\n{good}0\n{}\n", &good[..good.len() - 1]), 0),
            (&format!("{HEAD}\n{}\n", good.replace("=12", "=0")), 0),
            (&format!("{HEAD}\n{}\n", good.replace("=12", "=99999999999")), 0),
            (&format!("\u{0}{HEAD}\n{good}\n"), 0),
        ] {
            fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
            fs::write(&file, content).expect("a file");
            assert_eq!(recall(&environment).len(), known, "{content:?}");
        }
        fs::write(&file, [0xff; 100]).expect("a file");
        assert_eq!(recall(&environment), []);
        remember(&environment, &[found("http://a:1", 5)]);
        assert_eq!(recall(&environment), [found("http://a:1", 5)]);
        fs::remove_file(&file).expect("it goes");
        fs::create_dir(&file).expect("a folder in its place");
        remember(&environment, &[found("http://a:1", 5)]);
        assert_eq!(recall(&environment), []);
        assert!(forget(&environment).is_err(), "said, as it was asked for");
    }

    #[test]
    fn the_file_stays_small_and_fresh() {
        let many: Vec<FoundPace> = (0..300).map(|n| found(&format!("http://h{n}:1"), 1_000 + n)).collect();
        let page = written(many, unix_seconds());
        assert_eq!(page.lines().count(), 1 + ORIGINS_MAX);
        assert!(page.len() < 16 << 10 && page.contains("http://h299:1") && !page.contains("http://h100:1"));
        let (now, mut old, mut odd) = (unix_seconds(), found("http://old:1", 1), found("http://odd:1", 1));
        (old.when_s, odd.when_s) = (now - KEPT_FOR_S - 1, now + 10 * AHEAD_S);
        let page = written(vec![found("http://new:1", 2), old, odd], now);
        assert_eq!(page.lines().count(), 2, "{page}");
        assert!(page.contains("http://new:1"), "{page}");
    }
}
