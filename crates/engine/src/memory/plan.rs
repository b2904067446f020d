//! What `--memory` is spent on: how much of it is set aside for what every transfer needs, and how much is
//! left for what waits to be read. The weights are measured (docs/decisions/memory.md), and `tests/weights`
//! holds them against what the allocator gives.

use flatout_settings::{Settings, format_size};

use crate::base::error::{Error, ErrorKind, SETTINGS};
use crate::base::files::OpenFiles;
use crate::base::hint::{setting_to, text};
use flatout_policy::budget::LAST;
use flatout_policy::pace::LEVEL_MOST;
use flatout_policy::receive_size::RECEIVE_BYTES;

/// A shard's thread and runtime, without its scratch.
pub(crate) const SHARD_BYTES: u64 = 128 << 10;
/// Where a shard's connections over TLS seal and open their records, once it has any.
pub(crate) const TLS_SCRATCH_BYTES: usize = 128 << 10;
/// A connection in plain: its buffer for heads, what tokio keeps of it, and its worker's future.
pub(crate) const CONNECTION_BYTES: u64 = 28 << 10;
/// A connection over TLS: also its keys, a record that has not come whole, and the rest of one that has.
pub(crate) const TLS_CONNECTION_BYTES: u64 = 64 << 10;
/// An object that has begun: its requests, its file, its journal.
pub(crate) const OPEN_BYTES: u64 = 8 << 10;

/// Of the whole, what is set aside for names that are read ahead and for control answers, each: as much as
/// they take as a rule. Both may have more; less is left for parts then.
const SHARE_OF_CONTROL: u64 = 64;
/// Of the whole, what connections may take where nobody has said how many.
const SHARE_OF_CONNECTIONS: u64 = 8;
/// Of the whole, what names may hold at most, and a bound beyond which more would not make anything faster.
const SHARE_OF_NAMES: u64 = 16;
const NAMES_BYTES_MAX: u64 = 32 << 20;
/// Of the whole, the longest that one control answer may be. A page of a listing with 1,000 keys of 1 KiB,
/// escaped, is under 4 MiB, and most are a tenth of that.
const SHARE_OF_AN_ANSWER: u64 = 4;
const ANSWER_BYTES_MAX: u64 = 32 << 20;
/// Of the whole, what must be left for parts that wait to be read.
const SHARE_OF_PARTS: u64 = 4;
/// A stream is read ahead by this much even where few parts are in flight, if memory allows.
const WINDOW_BYTES: u64 = 64 << 20;
/// A stream is read ahead by this much at most where nobody has said how far: more was slower, since every
/// byte of it is memory that nobody had touched before (16 GiB from 512 connections of 4 MiB/s: 31 s with 5.4
/// GiB resident, 17 s with 0.45).
const WINDOW_BYTES_MAX: u64 = 1 << 30;

/// Requests that readers wait for, toward an origin: as many as seed 003's node has readers, twice.
const AWAITED_MOST: u32 = 2048;

/// How a client's memory is divided, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryPlan {
    pub(crate) limit: u64,
    /// Kept for what is charged.
    pub(crate) set_aside: u64,
    /// Names that may be read ahead.
    pub(crate) names: u64,
    /// The longest control answer.
    pub(crate) answer: u64,
    /// The most parts in flight toward an origin: as was said, or else as many as memory and open files
    /// allow.
    pub(crate) parallel_max: u32,
    /// Why no more.
    pub(crate) parallel_by: ParallelBy,
    /// The most requests in flight, with small ones that a reader waits for: each reader waits for one, and
    /// there may be more readers than parts that the link needs.
    pub(crate) awaited_max: u32,
    /// Open files that the landings of many objects may hold.
    pub(crate) landing_files: u64,
}

/// What says how many parts may be in flight at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParallelBy {
    /// `--parallel`.
    Setting,
    /// Connections would take more than their share of memory.
    Memory,
    /// Few files may be open.
    Files,
    /// [`LEVEL_MOST`].
    Level,
}

impl MemoryPlan {
    /// # Errors
    /// [`ErrorKind::Usage`] where that is too little for what is to be in flight, with the least that is
    /// enough.
    pub(crate) fn of(settings: &Settings, files: &OpenFiles) -> Result<MemoryPlan, Error> {
        let limit = settings.memory_bytes;
        let shards = u64::from(settings.shards) * ((RECEIVE_BYTES + TLS_SCRATCH_BYTES) as u64 + SHARD_BYTES);
        let each = TLS_CONNECTION_BYTES + OPEN_BYTES;
        let (parallel_max, parallel_by) = match settings.parallel {
            Some(parallel) if parallel > files.connections => (files.connections, ParallelBy::Files),
            Some(parallel) => (parallel, ParallelBy::Setting),
            None => most_in_flight(limit / SHARE_OF_CONNECTIONS / each, files.connections),
        };
        let awaited_max = match settings.parallel {
            Some(_) => parallel_max,
            None => {
                let by_memory = u32::try_from(limit / SHARE_OF_CONNECTIONS / each).unwrap_or(u32::MAX);
                AWAITED_MOST.min(files.connections).min(by_memory).max(parallel_max)
            }
        };
        let fixed = shards + u64::from(parallel_max) * each;
        let set_aside = fixed + 2 * (limit / SHARE_OF_CONTROL);
        if set_aside > limit - limit / SHARE_OF_PARTS {
            // Of 64 parts of the whole two are for control, and 16 for what waits to be read.
            let least = fixed * 64 / 46;
            let cause = format!(
                "{} is too little for {}{} shards",
                format_size(limit),
                settings
                    .parallel
                    .map_or(String::new(), |parallel| format!("{parallel} parts at a time and ")),
                settings.shards
            );
            // Rounded up, since that is what will be typed.
            let least = format!("{}MiB", least.div_ceil(1 << 20));
            let hint = [text("write "), setting_to("memory", least), text(" or more, or fewer of them")];
            return Err(Error::new(ErrorKind::Usage, cause).during(SETTINGS, "memory").with_hint(hint));
        }
        let names = (limit / SHARE_OF_NAMES).min(NAMES_BYTES_MAX);
        let answer = (limit / SHARE_OF_AN_ANSWER).min(ANSWER_BYTES_MAX);
        let landing_files = files.landings;
        Ok(MemoryPlan {
            limit,
            set_aside,
            names,
            answer,
            parallel_max,
            parallel_by,
            awaited_max,
            landing_files,
        })
    }

    /// What parts that wait to be read may hold, of all streams together.
    pub(crate) fn parts(&self) -> u64 {
        self.limit - self.set_aside
    }

    /// How far one stream may be read ahead: what others leave to one that has something.
    pub(crate) fn window_max(&self) -> u64 {
        self.parts() - self.limit / LAST
    }

    /// The limit of a window that no setting gives.
    pub(crate) fn window_unset_max(&self) -> u64 {
        self.window_max().min(WINDOW_BYTES_MAX)
    }

    /// How far one stream is read ahead where nobody has said: twice what is in flight, so that parts which
    /// overtake others keep no worker from the next.
    pub(crate) fn window(&self, parallel: u32, part_bytes: u64) -> u64 {
        let wanted = part_bytes.saturating_mul(2 * u64::from(parallel)).max(WINDOW_BYTES);
        wanted.min(self.window_unset_max())
    }
}

/// What so much memory and so many files allow, and which of the two it is that allows no more.
fn most_in_flight(by_memory: u64, by_files: u32) -> (u32, ParallelBy) {
    let by_memory = u32::try_from(by_memory).unwrap_or(u32::MAX).max(1);
    [(LEVEL_MOST, ParallelBy::Level), (by_files, ParallelBy::Files), (by_memory, ParallelBy::Memory)]
        .into_iter()
        .min_by_key(|(most, _)| *most)
        .unwrap_or((LEVEL_MOST, ParallelBy::Level))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(memory_bytes: u64, parallel: impl Into<Option<u32>>, shards: u32) -> Settings {
        Settings { memory_bytes, parallel: parallel.into(), shards, ..Settings::default() }
    }

    fn of(settings: &Settings) -> Result<MemoryPlan, Error> {
        MemoryPlan::of(settings, &OpenFiles::of(1 << 20, 3, settings.shards))
    }

    #[test]
    fn shares_add_up() {
        for (memory_mib, parallel, shards) in [(16, 8, 2), (256, 512, 16), (512, 8, 2), (8 << 10, 512, 64)] {
            let settings = settings(memory_mib << 20, parallel, shards);
            let plan = of(&settings).expect("enough");
            assert_eq!(plan.set_aside + plan.parts(), plan.limit, "{plan:?}");
            assert!(plan.parts() >= plan.limit / 4, "{plan:?}");
            assert!(plan.names <= NAMES_BYTES_MAX && plan.answer <= ANSWER_BYTES_MAX, "{plan:?}");
        }
    }

    #[test]
    fn too_little_says_how_much_is_enough() {
        for (parallel, shards) in [(4096, 2), (8, 256), (4096, 256), (400, 2)] {
            let error = of(&settings(16 << 20, parallel, shards)).expect_err("too little");
            let hint = error.hint().expect("a hint").to_string();
            let least: u64 = hint["write memory = ".len()..].split("MiB").next().unwrap().parse().unwrap();
            of(&settings(least << 20, parallel, shards)).expect("what was said is enough");
            of(&settings((least - 2) << 20, parallel, shards)).expect_err("and not much too much");
        }
    }

    #[test]
    fn the_scarcest_says_how_many_may_be_in_flight() {
        let check = |by_memory, by_files, most| assert_eq!(most_in_flight(by_memory, by_files), most);
        check(1 << 40, 1 << 20, (LEVEL_MOST, ParallelBy::Level));
        check(u64::from(LEVEL_MOST), LEVEL_MOST, (LEVEL_MOST, ParallelBy::Level));
        check(100, 200, (100, ParallelBy::Memory));
        check(200, 100, (100, ParallelBy::Files));
        check(0, 100, (1, ParallelBy::Memory));
        let plan = |parallel| of(&settings(16 << 20, parallel, 1)).expect("enough");
        assert_eq!((plan(Some(9)).parallel_max, plan(Some(9)).parallel_by), (9, ParallelBy::Setting));
        assert_eq!((plan(None).parallel_max, plan(None).parallel_by), (28, ParallelBy::Memory));
        assert_eq!((plan(Some(9)).awaited_max, plan(None).awaited_max), (9, 28));
        assert_eq!(of(&settings(2 << 30, None, 1)).expect("enough").awaited_max, AWAITED_MOST);
        let few = OpenFiles::of(64, 5, 1);
        let plan = |parallel| MemoryPlan::of(&settings(16 << 20, parallel, 1), &few).expect("enough");
        let by_files = (few.connections, ParallelBy::Files);
        assert_eq!((plan(Some(200)).parallel_max, plan(Some(200)).parallel_by), by_files);
        assert_eq!((plan(None).parallel_max, plan(None).parallel_by), by_files);
    }

    #[test]
    fn a_window_is_twice_what_is_in_flight_as_far_as_memory_goes() {
        let plan = of(&settings(512 << 20, 8, 2)).expect("enough");
        let window_mib = |parallel, part_mib: u64| plan.window(parallel, part_mib << 20) >> 20;
        assert_eq!([window_mib(8, 8), window_mib(8, 1), window_mib(1, 8)], [128, 64, 64]);
        assert_eq!(plan.window(512, 8 << 20), plan.window_max());
        let plan = of(&settings(8 << 30, 512, 2)).expect("enough");
        assert_eq!(plan.window(512, 8 << 20), WINDOW_BYTES_MAX);
    }
}
