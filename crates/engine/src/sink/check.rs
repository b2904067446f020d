//! What an earlier run left, held against its journal before any of it is believed. Reads at the speed of the
//! disk, on threads of its own: no shard waits.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::verify::{Ledger, PartHash};
use crate::disk::journal::{BLOCK_BYTES, Journal, Kept, LandedBlock, block_range};

/// More threads read no faster from one disk, and hash 20 GB/s.
const THREADS_MAX: usize = 4;

/// Reads the journal's blocks and keeps those whose CRC is right; the ledger is told of them as of any part.
/// `on_block` hears how many bytes were looked at, good or not, and says whether to go on.
pub(crate) fn check(
    file: &File,
    journal: &Journal,
    ledger: &Ledger,
    on_block: &(impl Fn(u64) -> bool + Sync),
) -> Kept {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
    let share = journal.blocks.len().div_ceil(threads).max(1);
    let mut runs: Vec<Run> = std::thread::scope(|scope| {
        let readers: Vec<_> = journal
            .blocks
            .chunks(share)
            .map(|blocks| scope.spawn(move || good_runs(file, blocks, journal, ledger, on_block)))
            .collect();
        readers.into_iter().flat_map(|reader| reader.join().expect("a reader does not panic")).collect()
    });
    let start = journal.identity.range.start;
    let mut kept = Kept::default();
    let mut good_blocks = 0;
    for Run { range, hash } in runs.drain(..) {
        ledger.finish_part(start + range.start, &hash);
        kept.bytes += range.end - range.start;
        good_blocks += (range.end - range.start).div_ceil(BLOCK_BYTES) as usize;
        match kept.ranges.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => kept.ranges.push(range),
        }
    }
    kept.bad_blocks = journal.blocks.len() - good_blocks;
    kept
}

/// Good blocks one after the other.
struct Run {
    range: Range<u64>,
    hash: PartHash,
}

fn good_runs(
    file: &File,
    blocks: &[LandedBlock],
    journal: &Journal,
    ledger: &Ledger,
    on_block: &impl Fn(u64) -> bool,
) -> Vec<Run> {
    let (mut runs, mut buffer) = (Vec::<Run>::new(), vec![0; BLOCK_BYTES as usize]);
    for block in blocks {
        let range = block_range(block.number, journal.identity.bytes()).expect("the journal has no others");
        let bytes = &mut buffer[..(range.end - range.start) as usize];
        // What cannot be read is as good as not there.
        let is_good =
            file.read_exact_at(bytes, range.start).is_ok() && block.algorithm.of(bytes) == block.crc;
        if is_good {
            match runs.last_mut() {
                Some(run) if run.range.end == range.start => run.extend(range, bytes),
                _ => {
                    let mut run = Run { range: range.start..range.start, hash: ledger.start_part() };
                    run.extend(range, bytes);
                    runs.push(run);
                }
            }
        }
        if !on_block(if is_good { bytes.len() as u64 } else { 0 }) {
            break;
        }
    }
    runs
}

impl Run {
    fn extend(&mut self, range: Range<u64>, bytes: &[u8]) {
        self.range.end = range.end;
        self.hash.update(bytes);
    }
}

#[cfg(test)]
mod tests {
    use flatout_wire::checksum::Algorithm;

    use super::*;
    use crate::base::report::Verified;
    use crate::base::version::Version;
    use crate::disk::journal::DownloadIdentity;
    use crate::sink::verify::ExpectedChecksum;

    const TOTAL: u64 = 20 * BLOCK_BYTES + 4321;

    fn content() -> Vec<u8> {
        (0..TOTAL).map(|at| ((at * 7) >> 5) as u8).collect()
    }

    fn journal(numbers: impl Iterator<Item = u64>) -> Journal {
        let content = content();
        let blocks = numbers.map(|number| {
            let range = block_range(number, TOTAL).expect("a block");
            let algorithm = Algorithm::ALL[number as usize % 4];
            let crc = algorithm.of(&content[range.start as usize..range.end as usize]);
            LandedBlock { number, algorithm, crc }
        });
        let identity =
            DownloadIdentity { location: "x".into(), version: Version::default(), range: 100..100 + TOTAL };
        Journal { blocks: blocks.collect(), identity, whole_bytes: 0, damaged: 0 }
    }

    fn file(content: &[u8]) -> File {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(content, 0).expect("a write");
        file
    }

    /// What is kept and what is missing then, in blocks.
    fn check_of(content: &[u8], numbers: &[u64]) -> (Vec<Range<u64>>, usize, Vec<Range<u64>>) {
        let journal = journal(numbers.iter().copied());
        let kept = check(&file(content), &journal, &Ledger::default(), &|_| true);
        assert_eq!(kept.bytes, kept.ranges.iter().map(|range| range.end - range.start).sum::<u64>());
        let in_blocks = |range: &Range<u64>, start: u64| {
            (range.start - start) / BLOCK_BYTES..(range.end - start).div_ceil(BLOCK_BYTES)
        };
        let missing = kept.missing(&journal.identity.range);
        let missing = missing.iter().filter(|range| !range.is_empty()).map(|range| in_blocks(range, 100));
        (kept.ranges.iter().map(|range| in_blocks(range, 0)).collect(), kept.bad_blocks, missing.collect())
    }

    #[test]
    fn what_the_journal_names_and_the_disk_has_is_kept() {
        let content = content();
        let one = |range: Range<u64>| vec![range];
        assert_eq!(check_of(&content, &[]), (vec![], 0, one(0..21)));
        let all: Vec<u64> = (0..21).collect();
        assert_eq!(check_of(&content, &all), (one(0..21), 0, vec![]));
        let some = [0, 1, 2, 5, 6, 20];
        assert_eq!(check_of(&content, &some), (vec![0..3, 5..7, 20..21], 0, vec![3..5, 7..20]));
    }

    #[test]
    fn what_the_disk_does_not_have_as_it_was_is_missing() {
        let mut content = content();
        let all: Vec<u64> = (0..21).collect();
        content[5 * BLOCK_BYTES as usize + 7] ^= 1;
        // What was noted and never reached the disk.
        content[8 * BLOCK_BYTES as usize..][..BLOCK_BYTES as usize].fill(0);
        content.truncate(content.len() - 1);
        assert_eq!(check_of(&content, &all), (vec![0..5, 6..8, 9..20], 3, vec![5..6, 8..9, 20..21]));
    }

    #[test]
    fn what_is_kept_counts_for_the_whole_objects_checksum() {
        for algorithm in [Algorithm::Crc64Xz, Algorithm::Crc32c] {
            for is_right in [true, false] {
                let (content, ledger) = (content(), Ledger::default());
                let stated = algorithm.of(&content) ^ u64::from(!is_right);
                ledger.state(ExpectedChecksum::Whole(algorithm, stated));
                let journal = journal((0..21).filter(|number| ![3, 4, 20].contains(number)));
                let kept = check(&file(&content), &journal, &ledger, &|_| true);
                for missing in kept.missing(&journal.identity.range).iter().rev() {
                    let mut hash = ledger.start_part();
                    hash.update(&content[missing.start as usize - 100..missing.end as usize - 100]);
                    ledger.finish_part(missing.start, &hash);
                }
                assert_eq!(ledger.conclude().ok(), is_right.then_some(Verified::Whole(algorithm)));
            }
        }
    }

    #[test]
    fn it_stops_when_told() {
        let kept = check(&file(&content()), &journal(0..21), &Ledger::default(), &|_| false);
        assert!(kept.ranges.len() <= THREADS_MAX && kept.bytes <= THREADS_MAX as u64 * BLOCK_BYTES);
    }
}
