//! The committed corpora: every file unchanged, and randomly mutated.

use std::fs;
use std::path::Path;

use flatout_properties::{ALLOWED, TARGETS};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

use super::{corpus_of, target};

/// Every clone contains all of it.
const CORPORA_BYTES_MAX: u64 = 200 << 10;

#[test]
fn every_file_holds() {
    for (name, target) in TARGETS {
        let files = corpus_of(name);
        assert!(files.len() >= 10, "{name}: {} files", files.len());
        for (file, bytes) in files {
            println!("{}", file.display());
            target(&bytes);
        }
    }
}

#[test]
fn corpora_are_small() {
    let files = TARGETS.iter().flat_map(|(name, _)| corpus_of(name));
    let bytes: u64 = files.map(|(_, bytes)| bytes.len() as u64).sum();
    assert!(bytes <= CORPORA_BYTES_MAX, "{bytes} bytes");
}

#[test]
fn every_target_has_its_main_and_no_other() {
    let mains = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/fuzz_targets");
    let mut mains: Vec<String> =
        fs::read_dir(mains).unwrap().map(|main| main.unwrap().file_name().into_string().unwrap()).collect();
    mains.sort();
    let wanted: Vec<String> = TARGETS.iter().map(|(name, _)| format!("{name}.rs")).collect();
    assert_eq!(mains, wanted);
}

/// A mutation of a file. Positions are fractions of its length.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Insert(Index, Vec<u8>),
    Remove(Index, usize),
    /// Repeats a piece at another position.
    Repeat(Index, Index, usize),
    /// Continues with another file, from a position in it.
    Splice(Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Change::Set(at, byte)),
        (any::<Index>(), word()).prop_map(|(at, word)| Change::Insert(at, word)),
        (any::<Index>(), 1usize..20).prop_map(|(at, bytes)| Change::Remove(at, bytes)),
        (any::<Index>(), any::<Index>(), 1usize..60)
            .prop_map(|(from, to, bytes)| Change::Repeat(from, to, bytes)),
        (any::<Index>(), any::<Index>(), any::<Index>())
            .prop_map(|(at, file, from)| Change::Splice(at, file, from)),
    ]
}

/// Bytes that often break parsers.
fn word() -> impl Strategy<Value = Vec<u8>> {
    let known: [&[u8]; 16] = [
        b"\r\n",
        b"\n",
        b"\r",
        b"\0",
        b" ",
        b"\t",
        b",",
        b";",
        b"0",
        b"18446744073709551615",
        b"ffffffffffffffff",
        b"@",
        b"%2F",
        b"\xc2\xa0",
        b"&#0;",
        b"://",
    ];
    prop_oneof![
        prop::sample::select(known.map(<[u8]>::to_vec).to_vec()),
        prop::collection::vec(any::<u8>(), 1..5),
    ]
}

fn changed(mut bytes: Vec<u8>, changes: &[Change], files: &[Vec<u8>]) -> Vec<u8> {
    for change in changes {
        let place = |at: &Index| at.index(bytes.len() + 1);
        match change {
            Change::Set(at, byte) => {
                let at = place(at);
                bytes.truncate(bytes.len().max(1));
                if let Some(old) = bytes.get_mut(at) {
                    *old = *byte;
                }
            }
            Change::Insert(at, word) => {
                let at = place(at);
                bytes.splice(at..at, word.iter().copied());
            }
            Change::Remove(at, count) => {
                let at = place(at);
                bytes.drain(at..bytes.len().min(at + count));
            }
            Change::Repeat(from, to, count) => {
                let (from, to) = (place(from), place(to));
                let piece = bytes[from..bytes.len().min(from + count)].to_vec();
                bytes.splice(to..to, piece);
            }
            Change::Splice(at, file, from) => {
                let (at, file) = (place(at), &files[file.index(files.len())]);
                bytes.truncate(at);
                bytes.extend_from_slice(&file[from.index(file.len() + 1)..]);
            }
        }
    }
    bytes
}

/// Runs one target over mutated files of its corpus and over random bytes.
fn holds(name: &str) {
    let files: Vec<Vec<u8>> = corpus_of(name).into_iter().map(|(_, bytes)| bytes).collect();
    let target = target(name);
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(400) });
    let of_corpus = (any::<Index>(), prop::collection::vec(change(), 1..6));
    let of_corpus = of_corpus
        .prop_map(|(file, changes)| changed(files[file.index(files.len())].clone(), &changes, &files));
    let any_bytes = prop::collection::vec(any::<u8>(), 0..200);
    let inputs = prop_oneof![7 => of_corpus, 1 => any_bytes];
    let ran = runner.run(&inputs, |bytes| {
        target(&bytes);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{name}: {error}"));
}

#[test]
fn chunked_holds() {
    holds("chunked");
}

#[test]
fn config_holds() {
    holds("config");
}

#[test]
fn credentials_holds() {
    holds("credentials");
}

#[test]
fn differential_holds() {
    holds("differential");
}

#[test]
fn documents_holds() {
    holds("documents");
}

#[test]
fn head_holds() {
    holds("head");
}

#[test]
fn indexes_holds() {
    holds("indexes");
}

#[test]
fn locations_holds() {
    holds("locations");
}

#[test]
fn ranges_holds() {
    holds("ranges");
}

#[test]
fn records_holds() {
    holds("records");
}

#[test]
fn requests_holds() {
    holds("requests");
}

#[test]
fn the_page_of_fuzzing_has_every_difference_that_is_meant() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fuzzing.md");
    let page = fs::read_to_string(page).unwrap();
    for allowed in ALLOWED {
        let row = format!("| {} | {} |", allowed.what, allowed.why);
        assert!(page.contains(&row), "docs/fuzzing.md lacks:\n{row}");
    }
    let rows = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| `") && line.contains("hyper"))
        .count();
    assert_eq!(rows, ALLOWED.len() + 1, "rows of hyper in docs/fuzzing.md, its heading included");
}
