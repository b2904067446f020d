//! Names as numbers: which characters names have at each position, and which name lies where between two.
//!
//! A name is a number in a mixed radix: each position has an alphabet, and a character's rank in it is the
//! digit. An alphabet is extended beyond the characters seen: after `0` to `3`, `4` to `9` are expected.

/// As many characters behind the prefix are looked at.
const POSITIONS_MAX: usize = 192;
/// As many characters beyond ASCII are kept of a position.
const OTHERS_MAX: usize = 64;
/// As far in front of the first difference a scale begins where its end is unknown: the next name may carry
/// into characters that were the same so far.
const CARRY_CHARS: usize = 12;
/// The largest number of a scale; sums of two stay within `u128`.
const VALUE_MAX: u128 = 1 << 110;

const DIGITS: u128 = 0x3ff << b'0';
const LOWER: u128 = 0x3ff_ffff << b'a';
const UPPER: u128 = 0x3ff_ffff << b'A';
const HEX_LOWER: u128 = 0x3f << b'a';
const HEX_UPPER: u128 = 0x3f << b'A';
const WORD: u128 = DIGITS | LOWER | UPPER;

/// A set of characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Alphabet {
    ascii: u128,
    /// The others, in order.
    others: Vec<char>,
}

impl Alphabet {
    fn add(&mut self, one: char) {
        if one.is_ascii() {
            self.ascii |= 1 << one as u32;
        } else if let Err(at) = self.others.binary_search(&one)
            && self.others.len() < OTHERS_MAX
        {
            self.others.insert(at, one);
        }
    }

    fn add_all(&mut self, other: &Alphabet) {
        self.ascii |= other.ascii;
        other.others.iter().for_each(|one| self.add(*one));
    }

    fn count(&self) -> u128 {
        u128::from(self.ascii.count_ones()) + self.others.len() as u128
    }

    /// How many characters are before this one, and at most the last one's.
    fn rank(&self, one: char) -> u128 {
        let before = match one.is_ascii() {
            true => u128::from((self.ascii & ((1 << one as u32) - 1)).count_ones()),
            false => {
                let others = self.others.partition_point(|other| *other < one);
                u128::from(self.ascii.count_ones()) + others as u128
            }
        };
        before.min(self.count().saturating_sub(1))
    }

    fn at(&self, rank: u128) -> Option<char> {
        let in_ascii = u128::from(self.ascii.count_ones());
        match rank < in_ascii {
            true => (0..128u8).filter(|one| self.ascii >> one & 1 == 1).nth(rank as usize).map(char::from),
            false => self.others.get((rank - in_ascii) as usize).copied(),
        }
    }
}

/// The characters that names have at each position behind the prefix of a listing.
#[derive(Clone, Debug, Default)]
pub(super) struct Alphabets(Vec<Alphabet>);

impl Alphabets {
    /// Learns what a name has behind its first `prefix_bytes` bytes.
    pub(super) fn learn(&mut self, name: &str, prefix_bytes: usize) {
        for (at, one) in behind(name, prefix_bytes).chars().take(POSITIONS_MAX).enumerate() {
            if at == self.0.len() {
                self.0.push(Alphabet::default());
            }
            self.0[at].add(one);
        }
    }

    pub(super) fn add_all(&mut self, others: &Alphabets) {
        self.0.resize(self.0.len().max(others.0.len()), Alphabet::default());
        self.0.iter_mut().zip(&others.0).for_each(|(one, other)| one.add_all(other));
    }

    /// Completes what a run of names has shown, of which `name` is one. The first position that varies may
    /// have more characters of its kinds, and so may those before it in the same word, a run of letters and
    /// digits; digits before it may count on. Whatever is behind has shown all that it has, since it has come
    /// round at least once.
    pub(super) fn complete(&mut self, name: &str) {
        let Some(varying) = self.0.iter().position(|seen| seen.count() > 1) else { return };
        let in_word = |one: &char| one.is_ascii_alphanumeric();
        let chars: Vec<char> = name.chars().take(varying + 1).collect();
        let word = chars.len() - chars.iter().rev().take_while(|one| in_word(one)).count();
        let rest = name.chars().skip(varying).take_while(in_word).count();
        let in_word = &self.0[word.min(varying)..(varying + rest).clamp(varying, self.0.len())];
        // Where words are of different lengths, what follows them shifts into them.
        let is_shifted = in_word.iter().any(|seen| seen.ascii & !WORD != 0 || !seen.others.is_empty());
        let all = in_word.iter().filter(|seen| seen.count() > 1);
        let seen = all.take(if is_shifted { 1 } else { in_word.len() });
        let seen = seen.fold(0, |all, seen| all | seen.ascii & WORD);
        let kinds = completed(seen);
        for (at, seen) in self.0.iter_mut().enumerate().take(varying + 1) {
            if at >= word && seen.ascii & kinds != 0 {
                seen.ascii |= kinds;
            } else if seen.ascii & DIGITS != 0 {
                seen.ascii |= DIGITS;
            }
        }
    }
}

/// All characters of the kinds that are among these: digits, hexadecimal digits, letters.
fn completed(seen: u128) -> u128 {
    let mut all = seen;
    if seen & DIGITS != 0 {
        all |= DIGITS;
    }
    for (letters, hex, other) in [(LOWER, HEX_LOWER, UPPER), (UPPER, HEX_UPPER, LOWER)] {
        let is_hex = seen & letters & !hex == 0 && seen & DIGITS != 0 && seen & other == 0;
        if seen & letters != 0 {
            all |= if is_hex { hex } else { letters };
        }
    }
    all
}

/// A numbering of the names between two.
#[derive(Debug)]
pub(super) struct Scale {
    /// What stands before the first position.
    start: String,
    alphabets: Vec<Alphabet>,
    /// What one step at each position is worth.
    weights: Vec<u128>,
    /// No name has this number, all have a smaller one.
    end: u128,
}

impl Scale {
    /// A numbering of the names behind `low`, which share a prefix of `prefix_bytes` bytes; of those up to
    /// `high`, where an end is known. `from` is a name before `low` that is to have a number of its own.
    pub(super) fn new(
        mut alphabets: Alphabets,
        prefix_bytes: usize,
        (from, low, high): (Option<&str>, &str, Option<&str>),
    ) -> Scale {
        [from, Some(low), high].iter().flatten().for_each(|name| alphabets.learn(name, prefix_bytes));
        let rest = behind(low, prefix_bytes);
        let shared =
            [from, high].into_iter().flatten().map(|name| shared_chars(rest, behind(name, prefix_bytes)));
        let shared = shared.min().unwrap_or(0);
        let skipped = if high.is_some() { shared } else { shared.saturating_sub(CARRY_CHARS) };
        let skipped_bytes = rest.char_indices().nth(skipped).map_or(rest.len(), |(at, _)| at);
        let start = low.get(..prefix_bytes.min(low.len()) + skipped_bytes).unwrap_or(low).to_owned();
        let mut end = 1u128;
        let mut kept = Vec::new();
        for one in alphabets.0.into_iter().skip(skipped) {
            let grown = end.saturating_mul(one.count().max(1));
            if grown > VALUE_MAX {
                break;
            }
            end = grown;
            kept.push(one);
        }
        let mut left = end;
        let weights = kept.iter().map(|one| {
            left /= one.count().max(1);
            left
        });
        Scale { start, weights: weights.collect(), alphabets: kept, end }
    }

    /// The number of a name; that of the first where it is before all.
    pub(super) fn number(&self, name: &str) -> u128 {
        let Some(rest) = name.strip_prefix(&self.start) else { return 0 };
        let positions = self.alphabets.iter().zip(&self.weights);
        positions.zip(rest.chars()).map(|((alphabet, weight), one)| alphabet.rank(one) * weight).sum()
    }

    /// How many numbers there are from this one on.
    pub(super) fn left(&self, number: u128) -> u128 {
        self.end.saturating_sub(number)
    }

    /// The name of a number, as short as it may be if the number may be too small by `slack`; none behind the
    /// end.
    pub(super) fn name(&self, number: u128, slack: u128) -> Option<String> {
        if number >= self.end {
            return None;
        }
        let (mut name, mut left) = (self.start.clone(), number);
        for (alphabet, weight) in self.alphabets.iter().zip(&self.weights) {
            if left <= slack {
                break;
            }
            name.push(alphabet.at(left / weight)?);
            left %= weight;
        }
        Some(name)
    }
}

/// What is behind the prefix; of a name that is shorter, nothing.
fn behind(name: &str, prefix_bytes: usize) -> &str {
    name.get(prefix_bytes..).unwrap_or_default()
}

fn shared_chars(one: &str, other: &str) -> usize {
    one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(names: &[&str], high: Option<&str>) -> Scale {
        let mut seen = Alphabets::default();
        names.iter().for_each(|name| seen.learn(name, 2));
        let low = names[names.len() - 1];
        seen.complete(&low[2..]);
        Scale::new(seen, 2, (Some(names[0]), low, high))
    }

    #[test]
    fn numbered_names_are_numbers() {
        let names: Vec<String> = (0..2_000).map(|number| format!("p/{number:07}")).collect();
        let scale = scale(&names.iter().map(String::as_str).collect::<Vec<_>>(), None);
        let distance = |one, other| scale.number(other) - scale.number(one);
        assert_eq!(distance("p/0000000", "p/0001000"), 1_000);
        assert_eq!(distance("p/0001999", "p/9999999"), 9_998_000);
        assert_eq!(scale.name(11_999, 0).as_deref(), Some("p/0011999"));
        assert_eq!(scale.name(12_345, 99).as_deref(), Some("p/00123"));
        assert_eq!(scale.name(10_000_000, 0), None);
    }

    #[test]
    fn alphabets_are_completed_by_their_kinds() {
        let check = |seen: &str, expected: &str| {
            let mask = |text: &str| text.bytes().fold(0u128, |all, one| all | 1 << one);
            assert_eq!(completed(mask(seen)), mask(expected), "{seen}");
        };
        check("12", "0123456789");
        check("1a", "0123456789abcdef");
        check("1F", "0123456789ABCDEF");
        check("ab", "abcdefghijklmnopqrstuvwxyz");
        check("0g", "0123456789abcdefghijklmnopqrstuvwxyz");
        check("", "");
    }

    #[test]
    fn words_that_never_vary_stay_as_they_are() {
        let scale = scale(&["p/users/2024/000.jpg", "p/users/2024/001.jpg"], None);
        // The year may go on, `users` and `jpg` do not.
        assert_eq!(scale.end, 10_000_000);
        let next = scale.number("p/users/2024/999.jpg") + 1;
        assert_eq!(scale.name(next, 0).as_deref(), Some("p/users/2025"));
    }

    #[test]
    fn what_has_come_round_is_known() {
        let names = ["p/dir000/file00000", "p/dir000/file00099", "p/dir001/file00000", "p/dir001/file00099"];
        let scale = scale(&names, None);
        assert_eq!(scale.number("p/dir002/file00000") - scale.number("p/dir001/file00000"), 4);
        assert_eq!(
            scale.name(scale.number("p/dir001/file00099") + 2, 0).as_deref(),
            Some("p/dir002/file00009")
        );
    }

    #[test]
    fn other_scripts_have_alphabets_too() {
        let scale = scale(&["p/ä0", "p/ä5", "p/ä9", "p/ö1", "p/ü1"], None);
        let names = ["p/ä0", "p/ä9", "p/ö5", "p/ü1"];
        assert!(names.windows(2).all(|pair| scale.number(pair[0]) < scale.number(pair[1])));
        assert_eq!(scale.name(scale.number("p/ö5"), 0).as_deref(), Some("p/ö5"));
    }

    #[test]
    fn a_known_end_leaves_out_what_is_shared() {
        let scale = scale(&["p/aaaa/bbbb/01", "p/aaaa/bbbb/05"], Some("p/aaaa/bbbb/09"));
        assert_eq!(scale.start, "p/aaaa/bbbb/0");
        assert_eq!(scale.number("p/aaaa/bbbb/09") - scale.number("p/aaaa/bbbb/05"), 4);
    }
}
