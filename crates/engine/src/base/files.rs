//! How many files may be open at once: the process's limit (`ulimit -n`), divided among connections and what
//! landings hold.

use rustix::process::{Resource, getrlimit};

use crate::base::error::{Error, ErrorKind};

/// Of a shard: its epoll set, once more for who registers, and what wakes it.
const SHARD_FILES: u64 = 3;
/// What else a client has open for a while: a name being resolved, a listing's connection, a folder being
/// swept, files of keys and settings.
const OTHER_FILES: u64 = 11;
/// Of the whole, what folders kept open may be, and a bound beyond which more would not make anything faster:
/// a listing comes folder by folder, so few are in use at once.
const SHARE_OF_FOLDERS: u64 = 8;
const FOLDERS_MAX: u64 = 64;
/// A shard for each of so many files: with few of them threads are not what limits.
const FILES_A_SHARD: u64 = 8;

/// One transfer at a time by one or two shards: those, a listing, a connection, a file with its journal and
/// folder, and what is open for a while. By trying 11 are enough (a copy of a thousand objects, some of
/// several parts, 23 November 2026).
const LEAST: u64 = 16;
/// What there is no trouble with.
const ENOUGH: u64 = 64;

/// What a client may have open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFiles {
    /// Of the process.
    pub(crate) limit: u64,
    pub(crate) shards: u32,
    /// Toward an origin.
    pub(crate) connections: u32,
    /// Held by the landings of a get of many objects.
    pub(crate) landings: u64,
}

impl OpenFiles {
    /// As things stand in this process.
    ///
    /// # Errors
    /// There is no room for what the least of transfers opens.
    pub(crate) fn now(shards: u32) -> Result<OpenFiles, Error> {
        let (limit, open) = (limit(), open_now());
        check(limit, open)?;
        Ok(OpenFiles::of(limit, open, shards))
    }

    /// As many for connections as for landings: of each is one at least, whatever becomes of it.
    pub(crate) fn of(limit: u64, open: u64, shards: u32) -> OpenFiles {
        let shards = shards.min(u32::try_from(limit / FILES_A_SHARD).unwrap_or(u32::MAX).max(1));
        let others = open + u64::from(shards) * SHARD_FILES + OTHER_FILES + folders(limit);
        let half = limit.saturating_sub(others) / 2;
        OpenFiles {
            limit,
            shards,
            connections: u32::try_from(half).unwrap_or(u32::MAX).max(1),
            landings: half.max(1),
        }
    }
}

/// Found out only when a file is opened it would be a panic of the runtime's, or look like a fault of the
/// origin's.
fn check(limit: u64, open: u64) -> Result<(), Error> {
    if limit >= open.saturating_add(LEAST) {
        return Ok(());
    }
    let cause = format!(
        "this process may have {limit} files open (ulimit -n), of which {open} are, and needs {LEAST} more"
    );
    let error = Error::new(ErrorKind::LocalIo, cause).during("open", "files");
    Err(error.with_hint(format!("raise it to {} or more: `ulimit -n {0}`", (open + LEAST).max(ENOUGH))))
}

/// Whether an object may begin beside so many that hold files: each has its file and may have a folder of its
/// own, a large one has a journal and a connection for its checksum besides. One alone always may.
pub(crate) fn has_room(landings: u64, begun: usize, large: usize, is_large: bool) -> bool {
    let held = 2 * (begun as u64 + large as u64);
    let more = if is_large { 4 } else { 2 };
    begun == 0 || held + more <= landings
}

/// Folders that may be kept open beneath a target folder.
pub(crate) fn folders_max() -> usize {
    folders(limit()) as usize
}

fn folders(limit: u64) -> u64 {
    (limit / SHARE_OF_FOLDERS).clamp(1, FOLDERS_MAX)
}

fn limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// What this process has open already; a library is not alone in it.
fn open_now() -> u64 {
    // A seed of the simulation is to be the same run on every machine.
    let listed = if cfg!(test) { None } else { std::fs::read_dir("/proc/self/fd").ok() };
    // Standard input, output and error.
    listed.map_or(3, |entries| entries.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_open_is_divided_and_everybody_has_one() {
        for limit in [0, 10, 30, 40, 64, 256, 1024, 4096, 1 << 20, u64::MAX] {
            for (open, shards) in [(5, 2), (20, 16), (900, 2)] {
                let files = OpenFiles::of(limit, open, shards);
                let OpenFiles { connections, landings, shards, .. } = files;
                assert!(connections > 0 && landings > 0 && shards > 0, "{files:?}");
                let all = open
                    + u64::from(shards) * SHARD_FILES
                    + folders(limit)
                    + u64::from(connections)
                    + landings;
                assert!(connections == 1 || all + OTHER_FILES <= limit, "{files:?}");
            }
        }
        let check = |limit, open, connections| {
            assert_eq!(OpenFiles::of(limit, open, 2).connections, connections, "{limit}");
        };
        check(40, 5, 6);
        check(64, 5, 17);
        check(1024, 5, 469);
        check(1024, 900, 21);
    }

    #[test]
    fn a_limit_that_is_too_low_is_said_before_anything_is_opened() {
        assert!(super::check(u64::MAX, 5).is_ok() && super::check(5 + LEAST, 5).is_ok());
        let error = super::check(4 + LEAST, 5).expect_err("one is missing");
        assert_eq!(error.kind(), ErrorKind::LocalIo);
        assert_eq!(error.hint(), Some(&"raise it to 64 or more: `ulimit -n 64`".into()));
        assert!(
            super::check(1000, 990)
                .expect_err("few are free")
                .hint()
                .expect("a hint")
                .to_string()
                .contains("1006")
        );
    }

    #[test]
    fn objects_begin_while_there_is_room_for_one_more() {
        let most = |landings, is_large: bool| {
            let large = |begun| if is_large { begun } else { 0 };
            (0..100).take_while(|begun| has_room(landings, *begun, large(*begun), is_large)).count()
        };
        assert_eq!([1, 6, 17, 1 << 20].map(|landings| most(landings, false)), [1, 3, 8, 100]);
        assert_eq!([1, 6, 17, 1 << 20].map(|landings| most(landings, true)), [1, 1, 4, 100]);
    }
}
