//! A page of dirents as it is read: nothing in it is believed.

use crate::dirents::{DIRENT_BYTES, kind_of};
use crate::error::IndexError;
use crate::fields::{u16_at, u64_at};
use crate::inode::Kind;
use crate::names::{self, Unnamable};

/// The dirents and names of a page.
#[derive(Debug)]
pub struct Page {
    bytes: Vec<u8>,
    dirents: usize,
    /// Where the names begin: behind the dirents.
    names_at: usize,
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub struct Dirent<'a> {
    pub name: &'a [u8],
    pub nid: u64,
    pub kind: Kind,
}

const MALFORMED: IndexError =
    IndexError::Malformed { what: "a page of dirents has impossible offsets, types or names" };

/// A name in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    pub name: Vec<u8>,
    pub nid: u64,
    pub kind: Kind,
}

impl Entry {
    pub fn of(dirent: &Dirent<'_>) -> Entry {
        Entry { name: dirent.name.to_vec(), nid: dirent.nid, kind: dirent.kind }
    }
}

impl Page {
    pub fn new(bytes: Vec<u8>) -> Result<Page, IndexError> {
        let names_at = usize::from(u16_at(&bytes, 8));
        if names_at < DIRENT_BYTES || names_at % DIRENT_BYTES != 0 || names_at > bytes.len() {
            return Err(MALFORMED);
        }
        Ok(Page { bytes, dirents: names_at / DIRENT_BYTES, names_at })
    }

    /// Its entries, without the dots.
    pub fn entries(&self) -> Result<Vec<Entry>, IndexError> {
        let mut entries = Vec::with_capacity(self.len());
        for place in 0..self.len() {
            let dirent = self.dirent(place)?;
            if !dirent.is_dots() {
                entries.push(Entry::of(&dirent));
            }
        }
        Ok(entries)
    }

    /// At least one.
    pub fn len(&self) -> usize {
        self.dirents
    }

    pub fn dirent(&self, place: usize) -> Result<Dirent<'_>, IndexError> {
        let bytes = &self.bytes;
        let at = place * DIRENT_BYTES;
        let start = usize::from(u16_at(bytes, at + 8));
        let is_last = place + 1 >= self.dirents;
        let end = if is_last { bytes.len() } else { usize::from(u16_at(bytes, at + DIRENT_BYTES + 8)) };
        let mut name = bytes.get(start..end).ok_or(MALFORMED)?;
        if is_last && let Some(padding) = name.iter().position(|&byte| byte == 0) {
            name = &name[..padding];
        }
        if start < self.names_at || !is_name(name) {
            return Err(MALFORMED);
        }
        let kind = bytes.get(at + 10).and_then(|&byte| kind_of(byte)).ok_or(MALFORMED)?;
        Ok(Dirent { name, nid: u64_at(bytes, at), kind })
    }

    /// The number of entries that satisfy `is_before`, which must be true of a first part only.
    pub fn partition(
        &self,
        mut is_before: impl FnMut(Dirent<'_>) -> Result<bool, IndexError>,
    ) -> Result<usize, IndexError> {
        partition(self.len() as u64, |place| is_before(self.dirent(place as usize)?))
            .map(|place| place as usize)
    }
}

/// Whether a folder may have an entry of this name: the two dots are among them.
fn is_name(name: &[u8]) -> bool {
    matches!(names::check(name), Ok(()) | Err(Unnamable::Dots)) && !name.contains(&b'/')
}

impl Dirent<'_> {
    /// Whether it is the folder itself or its parent.
    pub fn is_dots(&self) -> bool {
        matches!(self.name, b"." | b"..")
    }
}

/// The number of `count` things that satisfy `is_before`, which must be true of a first part only.
pub fn partition(
    count: u64,
    is_before: impl FnMut(u64) -> Result<bool, IndexError>,
) -> Result<u64, IndexError> {
    partition_between(0, count, is_before)
}

/// Like [`partition`], and quick where the answer is near `guess`.
pub fn partition_near(
    count: u64,
    guess: u64,
    mut is_before: impl FnMut(u64) -> Result<bool, IndexError>,
) -> Result<u64, IndexError> {
    let (mut low, mut high) = (0, count);
    let (mut probe, mut step) = (guess, 1);
    // Away from the guess in growing steps, until the answer is between two probes.
    while low <= probe && probe < high {
        if is_before(probe)? {
            low = probe + 1;
            if probe < guess {
                break;
            }
            probe = probe.saturating_add(step);
        } else {
            high = probe;
            if probe > guess || probe < step {
                break;
            }
            probe -= step;
        }
        step *= 2;
    }
    partition_between(low, high, is_before)
}

fn partition_between(
    mut low: u64,
    mut high: u64,
    mut is_before: impl FnMut(u64) -> Result<bool, IndexError>,
) -> Result<u64, IndexError> {
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle)? { low = middle + 1 } else { high = middle }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::put;

    #[test]
    fn pages_that_are_none() {
        let page = |names: [&[u8]; 2], first_at: u16| {
            let mut bytes = vec![0; 24];
            let starts = [first_at, 24 + names[0].len() as u16];
            for (dirent, start) in starts.into_iter().enumerate() {
                put(&mut bytes, dirent * DIRENT_BYTES + 8, start.to_le_bytes());
                bytes[dirent * DIRENT_BYTES + 10] = 1;
            }
            names.iter().for_each(|name| bytes.extend_from_slice(name));
            let page = Page::new(bytes)?;
            (0..page.len()).try_for_each(|place| page.dirent(place).map(drop))
        };
        let (long, longest) = ([b'x'; 256], [b'x'; 255]);
        let table: [([&[u8]; 2], u16, bool); 12] = [
            ([b"a", b"b"], 24, true),
            ([b".", b".."], 24, true),
            ([b"a", &longest], 24, true),
            ([b"a", b"b\0\0"], 24, true),
            ([b"a", &long], 24, false),
            ([b"", b"b"], 24, false),
            ([b"a", b""], 24, false),
            ([b"a", b"\0"], 24, false),
            ([b"a\0c", b"b"], 24, false),
            ([b"a", b"b/c"], 24, false),
            ([b"a/", b"b"], 24, false),
            // Names begin behind whole dirents.
            ([b"a", b"b"], 25, false),
        ];
        for (names, first_at, is_one) in table {
            assert_eq!(page(names, first_at).is_ok(), is_one, "{names:?} from {first_at}");
        }
        // The name of the second begins among the dirents.
        let mut bytes = vec![0; 26];
        for (dirent, start) in [24_u16, 12].into_iter().enumerate() {
            put(&mut bytes, dirent * DIRENT_BYTES + 8, start.to_le_bytes());
            bytes[dirent * DIRENT_BYTES + 10] = 1;
        }
        bytes[12] = b'x';
        assert!(Page::new(bytes).unwrap().dirent(1).is_err());
    }

    #[test]
    fn guesses_lead_to_the_same_place() {
        for count in 0..20 {
            for (answer, guess) in (0..=count).flat_map(|answer| (0..25).map(move |guess| (answer, guess))) {
                let found = partition_near(count, guess, |at| Ok(at < answer)).unwrap();
                assert_eq!(found, answer, "of {count}, guessed {guess}");
            }
        }
        let mut probes = 0;
        let probe = |at: u64| {
            probes += 1;
            Ok(at < 500_003)
        };
        assert_eq!(partition_near(1_000_000, 500_000, probe).unwrap(), 500_003);
        assert!(probes <= 6, "{probes}");
    }
}
