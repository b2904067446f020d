//! Verification: part checksums, taken while the bytes are hot, combined into the object's own.
//!
//! OSS states its checksum with every answer, S3 in a HEAD that runs beside the data, never before it. Until
//! that answer is there each part is hashed in every form that an S3 origin may state (60 GB/s a core each,
//! docs/numbers.md); afterwards in the stated form only, or not at all.

use std::sync::{Mutex, OnceLock, PoisonError};

use flatout_wire::checksum::{Algorithm, Hasher, Powers};
use flatout_wire::head::{Checksum, Coverage};

use crate::base::error::{Error, ErrorKind};
use crate::base::report::Verified;
use crate::disk::journal::{BLOCK_BYTES, Piece};

/// The forms in which an S3 origin may state a whole object's checksum.
const CANDIDATES: [Algorithm; 3] = [Algorithm::Crc64Nvme, Algorithm::Crc32c, Algorithm::Crc32];

/// What the origin states about the whole object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpectedChecksum {
    Whole(Algorithm, u64),
    Nothing(&'static str),
}

impl ExpectedChecksum {
    /// The first checksum of the whole object that we can combine, or why there is none.
    pub(crate) fn of(checksums: &[Checksum]) -> ExpectedChecksum {
        let whole = checksums.iter().find(|checksum| matches!(checksum.kind, Coverage::Full));
        match whole {
            Some(checksum) => ExpectedChecksum::Whole(checksum.algorithm, checksum.value),
            None if checksums.is_empty() => ExpectedChecksum::Nothing("not stated by the origin"),
            None => ExpectedChecksum::Nothing("the stated checksum is composite"),
        }
    }

    /// What the answer to a range states about the whole: OSS always sends the object's CRC, S3 that of the
    /// range if any.
    pub(crate) fn of_range(checksums: &[Checksum]) -> Option<ExpectedChecksum> {
        let whole = checksums.iter().find(|checksum| checksum.algorithm == Algorithm::Crc64Xz)?;
        Some(ExpectedChecksum::Whole(whole.algorithm, whole.value))
    }
}

/// Sums are joined when there are so many: an object of a TiB has a hundred thousand parts and more.
const SUMS: usize = 256;

/// The checksums of a transfer's parts, wherever each begins and however long it is.
#[derive(Default)]
pub(crate) struct Ledger {
    statement: OnceLock<ExpectedChecksum>,
    /// Those that lie side by side are joined now and then.
    parts: Mutex<Vec<PartSum>>,
}

struct PartSum {
    /// Where it begins.
    start: u64,
    bytes: u64,
    sums: Vec<(Algorithm, u64)>,
}

impl Ledger {
    /// Notes what the origin states; the first statement stays.
    pub(crate) fn state(&self, statement: ExpectedChecksum) {
        // A second statement can only come from a second answer about the same version: it says the same.
        let _ = self.statement.set(statement);
    }

    pub(crate) fn is_expected(&self) -> bool {
        self.statement.get().is_some()
    }

    /// A hash for a part that is about to be received.
    pub(crate) fn start_part(&self) -> PartHash {
        let algorithms: &[Algorithm] = match self.statement.get() {
            None => &CANDIDATES,
            Some(ExpectedChecksum::Whole(algorithm, _)) => std::slice::from_ref(algorithm),
            Some(ExpectedChecksum::Nothing(_)) => &[],
        };
        let hashers = algorithms.iter().map(|&a| (a, Hasher::new(a))).collect();
        PartHash { bytes: 0, hashers, marks: None }
    }

    /// The part that begins at `start` is whole. Parts come in any order, and cover what is read once.
    pub(crate) fn finish_part(&self, start: u64, hash: &PartHash) {
        let sums = hash.hashers.iter().map(|(algorithm, hasher)| (*algorithm, hasher.value())).collect();
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.push(PartSum { start, bytes: hash.bytes, sums });
        // By twos, so that holes that stay for long cost nothing again and again.
        if parts.len() >= SUMS && parts.len().is_power_of_two() {
            join(&mut parts);
        }
    }

    /// Compares the combined parts with the statement, once every part is in.
    pub(crate) fn conclude(&self) -> Result<Verified, Error> {
        let (algorithm, stated) = match self.statement.get() {
            Some(ExpectedChecksum::Whole(algorithm, stated)) => (*algorithm, *stated),
            Some(ExpectedChecksum::Nothing(reason)) => return Ok(Verified::None(reason)),
            None => return Ok(Verified::None("not stated by the origin")),
        };
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.sort_unstable_by_key(|part| part.start);
        let Some(found) = combine(algorithm, &parts) else {
            return Ok(Verified::None("the origin stated its checksum too late"));
        };
        if found == stated {
            return Ok(Verified::Whole(algorithm));
        }
        let (stated, found) = (algorithm.encode(stated), algorithm.encode(found));
        let cause = format!(
            "the bytes are not those of the origin: {} is {found}, stated is {stated}",
            algorithm.name()
        );
        Err(Error::new(ErrorKind::Corrupt, cause)
            .with_hint("fetch it again; if it stays, the stored object is damaged"))
    }
}

/// Joins parts that lie side by side, in the forms that both were hashed in.
fn join(parts: &mut Vec<PartSum>) {
    parts.sort_unstable_by_key(|part| part.start);
    let mut powers: Vec<(Algorithm, Powers)> = Vec::new();
    parts.dedup_by(|part, before| {
        if before.start + before.bytes != part.start {
            return false;
        }
        before.sums.retain_mut(|(algorithm, sum)| {
            let Some((_, more)) = part.sums.iter().find(|(other, _)| other == algorithm) else {
                return false;
            };
            let at = powers.iter().position(|(known, _)| known == algorithm).unwrap_or_else(|| {
                powers.push((*algorithm, Powers::new(*algorithm)));
                powers.len() - 1
            });
            *sum = powers[at].1.combine(*sum, *more, part.bytes);
            true
        });
        before.bytes += part.bytes;
        true
    });
}

/// The combined checksum of all parts, in order; `None` when one was not hashed in this form.
fn combine(algorithm: Algorithm, parts: &[PartSum]) -> Option<u64> {
    let mut powers = Powers::new(algorithm);
    let mut whole = None;
    for part in parts {
        let (_, sum) = part.sums.iter().find(|(a, _)| *a == algorithm)?;
        // The first stands for itself: most objects have one part, and a combination costs more than its
        // hash.
        whole = Some(whole.map_or(*sum, |before| powers.combine(before, *sum, part.bytes)));
    }
    Some(whole.unwrap_or_else(|| algorithm.of(&[])))
}

/// The running checksums of one part; they go on over attempts, since a part is asked for again from where it
/// stopped.
pub(crate) struct PartHash {
    bytes: u64,
    hashers: Vec<(Algorithm, Hasher)>,
    marks: Option<Marks>,
}

/// Where the blocks of a journal end within a part, and what the first hash was there: the CRC of what lies
/// between two marks follows from the two, and nothing is hashed twice.
struct Marks {
    /// Where the part begins in its file.
    part_start: u64,
    /// How much of the part is in pieces already, and the hash up to there.
    reached: u64,
    value: u64,
    powers: Powers,
    pieces: Vec<Piece>,
}

impl PartHash {
    /// Hashes what comes next; with a journal it notes where blocks end.
    pub(crate) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let of_block = |marks: &Marks| BLOCK_BYTES - (marks.part_start + self.bytes) % BLOCK_BYTES;
            // Without a journal all is one block.
            let left = self.marks.as_ref().map_or(u64::MAX, of_block);
            let (now, later) = bytes.split_at(bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
            self.bytes += now.len() as u64;
            for (_, hasher) in &mut self.hashers {
                hasher.update(now);
            }
            if now.len() as u64 == left {
                self.cut();
            }
            bytes = later;
        }
    }

    /// A hash for a part that begins at `part_start` of a file with a journal. Where nothing is stated
    /// about the object its blocks are hashed all the same.
    #[must_use]
    pub(crate) fn for_journal(mut self, part_start: u64) -> PartHash {
        if self.hashers.is_empty() {
            self.hashers.push((CANDIDATES[0], Hasher::new(CANDIDATES[0])));
        }
        let powers = Powers::new(self.hashers[0].0);
        self.marks = Some(Marks { part_start, reached: 0, value: 0, powers, pieces: Vec::new() });
        self
    }

    /// The pieces of blocks that have been hashed to their end since the last call.
    pub(crate) fn take_pieces(&mut self) -> impl Iterator<Item = Piece> {
        let pieces = self.marks.as_mut().map(|marks| std::mem::take(&mut marks.pieces));
        pieces.unwrap_or_default().into_iter()
    }

    pub(crate) fn has_pieces(&self) -> bool {
        self.marks.as_ref().is_some_and(|marks| !marks.pieces.is_empty())
    }

    /// The part ends here, whether or not a block does.
    pub(crate) fn cut(&mut self) {
        let Some(marks) = &mut self.marks else { return };
        let bytes = self.bytes - marks.reached;
        if bytes == 0 {
            return;
        }
        let (algorithm, hasher) = &self.hashers[0];
        let value = hasher.value();
        marks.pieces.push(Piece {
            start: marks.part_start + marks.reached,
            bytes,
            algorithm: *algorithm,
            // A combination is its own inverse: what is known here is the whole and its first half.
            crc: marks.powers.combine(marks.value, value, bytes),
        });
        (marks.reached, marks.value) = (self.bytes, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatout_policy::plan::{Plan, Taken};

    const BODY: &[u8] = b"the quick brown fox jumps over the lazy dog";

    fn check(statement: ExpectedChecksum, late: bool, expected: Result<Verified, ErrorKind>) {
        let ledger = Ledger::default();
        if !late {
            ledger.state(statement);
        }
        // Of sizes that differ, and the last first.
        let mut plan = Plan::new(std::iter::once(0..BODY.len() as u64));
        let parts: Vec<_> = (1..).map_while(|number| plan.take(3 * number)).collect();
        for Taken { range, .. } in parts.into_iter().rev() {
            let part = &BODY[range.start as usize..range.end as usize];
            let mut hash = ledger.start_part();
            hash.update(&part[..part.len() / 2]);
            hash.update(&part[part.len() / 2..]);
            ledger.finish_part(range.start, &hash);
        }
        ledger.state(statement);
        assert_eq!(ledger.conclude().map_err(|error| error.kind()), expected, "{statement:?} late {late}");
    }

    #[test]
    fn parts_in_any_order_give_the_whole() {
        for algorithm in CANDIDATES {
            for late in [false, true] {
                check(
                    ExpectedChecksum::Whole(algorithm, algorithm.of(BODY)),
                    late,
                    Ok(Verified::Whole(algorithm)),
                );
                check(ExpectedChecksum::Whole(algorithm, 1), late, Err(ErrorKind::Corrupt));
            }
        }
        let xz = Algorithm::Crc64Xz;
        check(ExpectedChecksum::Whole(xz, xz.of(BODY)), false, Ok(Verified::Whole(xz)));
        let late = Verified::None("the origin stated its checksum too late");
        check(ExpectedChecksum::Whole(xz, xz.of(BODY)), true, Ok(late));
        check(ExpectedChecksum::Nothing("composite"), false, Ok(Verified::None("composite")));
    }

    #[test]
    fn sums_of_many_parts_are_joined_and_give_the_whole() {
        let content: Vec<u8> = (0..20_000_u32).map(|at| ((at * 7) >> 3) as u8).collect();
        let ends_right = |stated_at: usize, algorithm: Algorithm| {
            let ledger = Ledger::default();
            let mut order: Vec<usize> = (0..content.len() / 10).collect();
            // Some far ahead of the others, as parts come.
            order.chunks_mut(7).for_each(<[usize]>::reverse);
            order.rotate_left(3);
            let mut most = 0;
            for (at, part) in order.into_iter().enumerate() {
                if at == stated_at {
                    ledger.state(ExpectedChecksum::Whole(algorithm, algorithm.of(&content)));
                }
                let mut hash = ledger.start_part();
                hash.update(&content[part * 10..][..10]);
                ledger.finish_part(part as u64 * 10, &hash);
                most = most.max(ledger.parts.lock().expect("no panic").len());
            }
            assert!(most <= SUMS, "{most} sums were kept");
            ledger.conclude().ok()
        };
        for algorithm in CANDIDATES {
            for stated_at in [0, 1, 255, 700, 1_999] {
                assert_eq!(ends_right(stated_at, algorithm), Some(Verified::Whole(algorithm)), "{stated_at}");
            }
        }
    }

    #[test]
    fn pieces_of_blocks_are_hashed_once_and_are_right() {
        let content: Vec<u8> = (0..3 * BLOCK_BYTES + 77).map(|at| ((at * 13) >> 4) as u8).collect();
        let statements = [
            None,
            Some(ExpectedChecksum::Nothing("composite")),
            Some(ExpectedChecksum::Whole(Algorithm::Crc32, 1)),
        ];
        for (statement, form) in
            statements.into_iter().zip([Algorithm::Crc64Nvme, Algorithm::Crc64Nvme, Algorithm::Crc32])
        {
            let ledger = Ledger::default();
            statement.into_iter().for_each(|statement| ledger.state(statement));
            let start = BLOCK_BYTES / 3;
            let mut hash = ledger.start_part().for_journal(start);
            let mut pieces = Vec::new();
            for received in content[start as usize..].chunks(250_000) {
                hash.update(received);
                pieces.extend(hash.take_pieces());
            }
            hash.cut();
            assert!(hash.has_pieces());
            pieces.extend(hash.take_pieces());
            hash.cut();
            assert!(!hash.has_pieces(), "nothing is cut twice");
            let ends: Vec<u64> = pieces.iter().map(|piece| piece.start + piece.bytes).collect();
            assert_eq!(ends, [BLOCK_BYTES, 2 * BLOCK_BYTES, 3 * BLOCK_BYTES, content.len() as u64]);
            for Piece { start, bytes, algorithm, crc } in pieces {
                let of = &content[start as usize..(start + bytes) as usize];
                assert_eq!((algorithm, crc), (form, form.of(of)), "{start}");
            }
            let whole = hash.hashers[0].1.value();
            assert_eq!(whole, form.of(&content[start as usize..]), "the part's own");
        }
    }
}
