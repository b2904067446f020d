//! Blocks from pieces: parts are hashed as they come, and a block may lie in several of them. Pure.

use std::collections::HashMap;

use flatout_wire::checksum::Algorithm;

use super::block_range;
use super::record::LandedBlock;
use crate::disk::journal::BLOCK_BYTES;

/// Of one part and within one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where it begins in the file.
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) algorithm: Algorithm,
    pub(crate) crc: u64,
}

/// Pieces of blocks that are not whole yet: one or two for each part on its way.
#[derive(Default)]
pub(crate) struct Blocks(HashMap<u64, Vec<Piece>>);

impl Blocks {
    /// A piece of a file of `total_bytes` has landed; the block that is whole with it. One whose pieces were
    /// hashed in different forms is left out: their CRCs do not combine.
    pub(crate) fn on_piece(&mut self, piece: Piece, total_bytes: u64) -> Option<LandedBlock> {
        let number = piece.start / BLOCK_BYTES;
        let whole = block_range(number, total_bytes)?;
        let block_bytes = whole.end - whole.start;
        if piece.bytes == block_bytes {
            return Some(LandedBlock { number, algorithm: piece.algorithm, crc: piece.crc });
        }
        let pieces = self.0.entry(number).or_default();
        pieces.push(piece);
        if pieces.iter().map(|piece| piece.bytes).sum::<u64>() < block_bytes {
            return None;
        }
        let mut pieces = self.0.remove(&number)?;
        pieces.sort_unstable_by_key(|piece| piece.start);
        let algorithm = piece.algorithm;
        let is_one_form = pieces.iter().all(|piece| piece.algorithm == algorithm);
        let combined = |crc, piece: &Piece| algorithm.combine(crc, piece.crc, piece.bytes);
        is_one_form.then(|| LandedBlock { number, algorithm, crc: pieces.iter().fold(0, combined) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRC: Algorithm = Algorithm::Crc64Nvme;

    fn content() -> Vec<u8> {
        (0..2 * BLOCK_BYTES + 1000).map(|at| ((at * 31) >> 3) as u8).collect()
    }

    fn piece(content: &[u8], start: u64, bytes: u64, algorithm: Algorithm) -> Piece {
        let crc = algorithm.of(&content[start as usize..(start + bytes) as usize]);
        Piece { start, bytes, algorithm, crc }
    }

    #[test]
    fn a_block_is_whole_with_its_last_piece_whichever_that_is() {
        let content = content();
        let (total, mut blocks) = (content.len() as u64, Blocks::default());
        let mut on = |start, bytes| {
            blocks.on_piece(piece(&content, start, bytes, CRC), total).map(|block| (block.number, block.crc))
        };
        let of = |start: u64, end: u64| CRC.of(&content[start as usize..end as usize]);
        assert_eq!(on(BLOCK_BYTES + 700_000, BLOCK_BYTES - 700_000), None);
        assert_eq!(on(0, BLOCK_BYTES), Some((0, of(0, BLOCK_BYTES))), "by itself");
        assert_eq!(on(BLOCK_BYTES, 300_000), None);
        assert_eq!(on(2 * BLOCK_BYTES, 1000), Some((2, of(2 * BLOCK_BYTES, total))), "the last is shorter");
        let whole = Some((1, of(BLOCK_BYTES, 2 * BLOCK_BYTES)));
        assert_eq!(on(BLOCK_BYTES + 300_000, 400_000), whole);
        assert!(blocks.0.is_empty());
    }

    #[test]
    fn forms_that_do_not_combine_make_no_block() {
        let content = content();
        let (total, mut blocks) = (content.len() as u64, Blocks::default());
        assert_eq!(blocks.on_piece(piece(&content, 0, 1000, CRC), total), None);
        let rest = piece(&content, 1000, BLOCK_BYTES - 1000, Algorithm::Crc32c);
        assert_eq!(blocks.on_piece(rest, total), None);
        assert!(blocks.0.is_empty());
    }
}
