//! Tests: what was written is read, and what was not is never believed.

use proptest::prelude::*;

use super::*;
use crate::disk::journal::BLOCK_BYTES;

fn identity() -> DownloadIdentity {
    let version = Version {
        etag: Some("\"9b2cf5\"".into()),
        last_modified: Some("Sat, 21 Nov 2026 10:00:00 GMT".into()),
        size: Some(10 * BLOCK_BYTES + 5),
    };
    DownloadIdentity { location: "s3://models/llama".into(), version, range: 0..10 * BLOCK_BYTES + 5 }
}

fn block(number: u64, crc: u64) -> LandedBlock {
    LandedBlock { number, algorithm: Algorithm::ALL[number as usize % 4], crc }
}

fn journal(blocks: &[LandedBlock]) -> Vec<u8> {
    let mut bytes = head(&identity()).expect("short names");
    blocks.iter().for_each(|block| bytes.extend(record(block)));
    bytes
}

fn check(bytes: &[u8], expected: &[LandedBlock], damaged: usize) {
    let read = read(bytes).expect("a journal");
    assert_eq!(read.identity, identity());
    assert_eq!((&read.blocks[..], read.damaged), (expected, damaged));
}

#[test]
fn what_was_written_is_read() {
    let blocks = [block(0, 7), block(1, 8), block(2, 9), block(3, u64::MAX), block(10, 1)];
    check(&journal(&[]), &[], 0);
    check(&journal(&blocks), &blocks, 0);
    let bare = DownloadIdentity { version: Version::default(), range: 3..3, location: String::new() };
    assert_eq!(read(&head(&bare).expect("short names")).expect("a journal").identity, bare);
}

#[test]
fn blocks_come_in_order_and_the_later_record_counts() {
    let written = [block(3, 1), block(0, 2), block(3, 3), block(1, 4)];
    check(&journal(&written), &[block(0, 2), block(1, 4), block(3, 3)], 0);
}

#[test]
fn a_block_past_the_end_is_none() {
    check(&journal(&[block(10, 1), block(11, 1), block(u64::MAX, 1)]), &[block(10, 1)], 2);
}

#[test]
fn a_torn_record_counts_for_nothing_and_the_next_is_appended_in_its_place() {
    let whole = journal(&[block(0, 1)]);
    for torn in 1..RECORD_BYTES {
        let bytes = journal(&[block(0, 1), block(1, 2)]);
        let bytes = &bytes[..whole.len() + torn];
        check(bytes, &[block(0, 1)], 0);
        assert_eq!(read(bytes).expect("a journal").whole_bytes, whole.len() as u64);
    }
}

#[test]
fn a_damaged_record_counts_for_nothing_and_those_after_it_stay() {
    let mut bytes = journal(&[block(0, 1), block(1, 2), block(2, 3)]);
    let middle = bytes.len() - RECORD_BYTES - 3;
    bytes[middle] ^= 1;
    check(&bytes, &[block(0, 1), block(2, 3)], 1);
    // What a file system gives for what never reached the disk.
    let end = bytes.len();
    bytes[end - 2 * RECORD_BYTES..].fill(0);
    check(&bytes, &[block(0, 1)], 2);
}

#[test]
fn what_is_no_journal_is_none() {
    let good = journal(&[]);
    let mut other = good.clone();
    other[8] += 1;
    for (bytes, why) in [
        (&b""[..], Unreadable::NoJournal),
        (b"flatoutJ", Unreadable::NoJournal),
        (&[0; 4096], Unreadable::NoJournal),
        (&other, Unreadable::OtherFormat),
        (&good[..FRONT_BYTES], Unreadable::Damaged),
        (&good[..good.len() - 1], Unreadable::Damaged),
    ] {
        assert_eq!(read(bytes), Err(why));
    }
    let long = DownloadIdentity { location: "x".repeat(BODY_BYTES_MAX), ..identity() };
    assert_eq!(head(&long), None);
}

#[test]
fn another_object_version_or_range_is_of_no_use() {
    let ours = identity();
    let check = |change: fn(&mut DownloadIdentity), has_ranges: bool, why: &str| {
        let mut wanted = ours.clone();
        change(&mut wanted);
        let found = ours.difference(&wanted, has_ranges);
        assert!(found.contains(why), "{found}: {why}");
    };
    check(|wanted| wanted.location = "s3://models/other".into(), true, "it was s3://models/llama");
    check(|wanted| wanted.version.etag = Some("\"b\"".into()), true, "ETag was \"9b2cf5\", now \"b\"");
    check(|wanted| wanted.version.etag = Some("\"b\"".into()), false, "ETag was");
    check(|wanted| wanted.version.size = Some(3), true, "size was");
    check(|wanted| wanted.version.etag = None, true, "no longer tells its version");
    check(|wanted| wanted.range.start = 1, true, "another range");
    check(|wanted| wanted.range.start = 1, false, "sends no ranges");
    check(|wanted| wanted.version.last_modified = None, true, "no longer tells the same");
}

proptest! {
    /// A byte that is not what was written is found, wherever it is: a block is left out, or the whole is
    /// refused.
    #[test]
    fn no_damage_makes_a_block(
        numbers in prop::collection::vec(0u64..11, 0..20),
        at in any::<prop::sample::Index>(),
        change in 1u8..,
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let written: Vec<LandedBlock> = numbers.iter().map(|&number| block(number, number * 3)).collect();
        let mut bytes = journal(&written);
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len() + 1));
        }
        if let Ok(read) = read(&bytes) {
            prop_assert_eq!(read.identity, identity());
            prop_assert!(read.blocks.iter().all(|block| written.contains(block)), "{:?}", read.blocks);
            prop_assert!(read.damaged <= 1);
        }
    }

    /// Whatever is there instead of a journal, reading it ends.
    #[test]
    fn anything_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..300), begins_well: bool) {
        let mut journal = if begins_well { journal(&[]) } else { Vec::new() };
        journal.extend(bytes);
        if let Ok(read) = read(&journal) {
            prop_assert!(begins_well && read.whole_bytes as usize <= journal.len());
        }
    }
}
