//! The same bytes in pieces, as a network may bring them: where they are cut follows from the bytes themselves, so that
//! an input alone is enough to see a failure again.

/// Cuts in other places each time.
const WAYS: u64 = 3;
/// Byte by byte only up to here.
const CRUMBS_MAX: usize = 2 << 10;

/// Several ways to cut `bytes`: whole, byte by byte where that does not take for ever, and at chance places.
pub(crate) fn ways(bytes: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    let whole = std::iter::once(vec![bytes]);
    let crumbs = (bytes.len() <= CRUMBS_MAX).then(|| bytes.chunks(1).collect());
    whole.chain(crumbs).chain((0..WAYS).map(move |way| cut(bytes, way)))
}

/// Pieces of 1 byte to about 64; now and then a large one.
pub(crate) fn cut(bytes: &[u8], way: u64) -> Vec<&[u8]> {
    let mut chance = Chance::of(bytes, way);
    let (mut rest, mut pieces) = (bytes, Vec::new());
    while !rest.is_empty() {
        let longest = if chance.below(8) == 0 { 8192 } else { 64 };
        let (piece, behind) = rest.split_at(rest.len().min(1 + chance.below(longest)));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

/// Numbers that follow from bytes alone: FNV-1a for the seed, xorshift from there on.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(bytes: &[u8], way: u64) -> Chance {
        let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        Chance(bytes.iter().fold(0xcbf2_9ce4_8422_2325 ^ (way << 32), fold) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number under `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}
