//! What each format says, and that nonsense says nothing.

use crate::safetensors::Safetensors;
use proptest::prelude::*;

use super::parser::TRIES;
use super::*;

const MIB: u64 = 1 << 20;

/// What is found of a file whose bytes are there up to each of `ends`, one after the other, and all in the
/// end.
fn study(name: &str, size: u64, there: impl Fn(Range<u64>) -> Vec<u8>, ends: &[u64]) -> Option<Hints> {
    let (mut study, mut found) = (LayoutParser::of(name, size)?, Hints::default());
    for end in ends.iter().copied().chain([size]) {
        while let Some((needs, most)) = study.wants(&(0..end)) {
            // What the shelf does, but for what is far behind.
            assert!(needs.start < needs.end && needs.end <= size, "{needs:?}");
            let is_there = needs.end <= end;
            let bytes = is_there.then(|| there(needs.start..most.min(end).max(needs.end)));
            if study.parse(bytes.as_deref(), &mut found) {
                return Some(found);
            }
            if !is_there {
                break;
            }
        }
    }
    None
}

/// What is found of a file that has these bytes, then zeroes.
fn of_head(name: &str, head: &[u8], size: u64, ends: &[u64]) -> Option<Hints> {
    let there = |range: Range<u64>| {
        let [from, to] = [range.start, range.end].map(|at| (at as usize).min(head.len()));
        let mut bytes = head[from..to].to_vec();
        bytes.resize((range.end - range.start) as usize, 0);
        bytes
    };
    study(name, size, there, ends)
}

/// The table found of a file that has zeroes, then these bytes.
fn of_tail(name: &str, tail: &[u8], size: u64) -> Option<Range<u64>> {
    let byte = |at: u64| (at + tail.len() as u64).checked_sub(size).map_or(0, |at| tail[at as usize]);
    study(name, size, |range| range.map(byte).collect(), &[]).and_then(|found| found.table)
}

#[test]
fn tensors_are_where_the_header_says() {
    let header = format!(
        r#"{{"__metadata__":{{"format":"pt"}},"b":{{"dtype":"F32","shape":[1],"data_offsets":[{}, {}]}},"a":{{"data_offsets" : [0,{}]}},"c":{{"data_offsets":[{},{}]}}}}"#,
        2 * MIB,
        5 * MIB,
        2 * MIB,
        5 * MIB,
        5 * MIB + 100
    );
    let data = 8 + header.len() as u64;
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    let extents = of_head("a.safetensors", &file, data + 5 * MIB, &[5, 100]).expect("all is there").extents;
    assert_eq!(extents.0, [data..data + 2 * MIB, data + 2 * MIB..data + 5 * MIB]);
    let read = |from: u64, bytes| extents.begun_by(&(data + from..data + from + bytes));
    assert_eq!(read(0, 4096), Some(data..data + 2 * MIB));
    assert_eq!(read(2 * MIB - 65_536, 131_072), Some(data + 2 * MIB..data + 5 * MIB), "around its start");
    assert_eq!([read(4096, 4096), read(2 * MIB + 1, 1), read(2 * MIB, 3 * MIB)], [None, None, None]);
    let begun = |bytes: u64, size| Safetensors::default().parse(&bytes.to_le_bytes(), size);
    assert_eq!(begun(300, 9 * MIB), Step::Needs(8..308));
    assert_eq!([begun(u64::MAX, 9 * MIB), begun(300, 300)], [Step::nothing(), Step::nothing()]);
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn pair(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [text(key), kind.to_le_bytes().to_vec(), value.to_vec()].concat()
}

fn array(kind: u32, count: u64, elements: &[u8]) -> Vec<u8> {
    [kind.to_le_bytes().as_slice(), &count.to_le_bytes(), elements].concat()
}

fn gguf(version: u32, pairs: &[Vec<u8>], tensors: &[(&str, u64)]) -> Vec<u8> {
    let counts = [tensors.len() as u64, pairs.len() as u64].map(u64::to_le_bytes).concat();
    let mut file = [b"GGUF".as_slice(), &version.to_le_bytes(), &counts].concat();
    file.extend(pairs.concat());
    for (number, (name, at)) in tensors.iter().enumerate() {
        file.extend(text(name));
        file.extend((number as u32 % 4 + 1).to_le_bytes());
        file.extend(vec![1; 8 * (number % 4 + 1)]);
        file.extend(12_u32.to_le_bytes());
        file.extend(at.to_le_bytes());
    }
    file
}

fn all_kinds() -> Vec<Vec<u8>> {
    let words = [text("one"), text(""), text(&"long".repeat(9999))].concat();
    let nested = array(9, 2, &[array(8, 3, &words), array(5, 2, &[7; 8])].concat());
    vec![
        pair("general.architecture", 8, &text("llama")),
        pair("is.general.alignment", 4, &99_u32.to_le_bytes()),
        pair("seventeen.letters", 4, &77_u32.to_le_bytes()),
        pair("general.alignment", 4, &4096_u32.to_le_bytes()),
        pair("u8", 0, &[1]),
        pair("u16", 2, &[1; 2]),
        pair("truth", 7, &[1]),
        pair("double", 12, &[1; 8]),
        pair("scores", 9, &array(6, 70_000, &[3; 280_000])),
        pair("words", 9, &array(8, 3, &words)),
        pair("none", 9, &array(8, 0, &[])),
        pair("nested", 9, &nested),
    ]
}

#[test]
fn tensors_of_gguf_reach_to_the_next() {
    let tensors = [("b", 4 * MIB), ("a", 0), ("norm", 3 * MIB), ("next", 3 * MIB + 4096)];
    for version in [2, 3] {
        let file = gguf(version, &all_kinds(), &tensors);
        let data = (file.len() as u64).next_multiple_of(4096);
        let found = of_head("x.GGUF", &file, data + 6 * MIB, &[1, 30, 5000, 300_000]).expect("all is there");
        let expected = [(0, 3 * MIB), (3 * MIB + 4096, 4 * MIB), (4 * MIB, 6 * MIB)];
        assert_eq!(
            found.extents.0,
            expected.map(|(from, to)| data + from..data + to),
            "but for what is short"
        );
    }
    let file = gguf(3, &[], &tensors);
    let found = of_head("x.gguf", &file, 9 * MIB, &[]).expect("all is there");
    assert_eq!(found.extents.0[0].start, (file.len() as u64).next_multiple_of(32));
}

#[test]
fn gguf_that_makes_no_sense_says_nothing() {
    let tensors = [("a", 0), ("b", MIB)];
    let deep = (0..9).fold(array(8, 0, &[]), |inner, _| array(9, 1, &inner));
    let mut dimensions = gguf(3, &[], &tensors);
    dimensions[24 + 9] = 200;
    let mut counts = gguf(3, &[], &tensors);
    counts[8..24].fill(255);
    let rows = [
        ("version 1", gguf(1, &[], &tensors)),
        ("big-endian", gguf(3_u32.swap_bytes(), &[], &tensors)),
        ("no magic", vec![0; 100]),
        ("arrays in arrays", gguf(3, &[pair("deep", 9, &deep)], &tensors)),
        ("a type of no kind", gguf(3, &[pair("odd", 13, &[])], &tensors)),
        ("no alignment", gguf(3, &[pair("general.alignment", 4, &[0; 4])], &tensors)),
        ("odd alignment", gguf(3, &[pair("general.alignment", 4, &[5; 4])], &tensors)),
        ("a string without end", gguf(3, &[pair("long", 8, &[255; 8])], &[])),
        ("an array without end", gguf(3, &[pair("long", 9, &array(12, u64::MAX / 2, &[]))], &tensors)),
        ("dimensions without end", dimensions),
        ("counts without end", counts),
    ];
    for (name, file) in rows {
        assert_eq!(of_head("x.gguf", &file, 40 * MIB, &[]), Some(Hints::default()), "{name}");
    }
}

fn zip_end(directory: u32, comment: &[u8]) -> Vec<u8> {
    let count = (comment.len() as u16).to_le_bytes();
    [b"PK\x05\x06".as_slice(), &[0; 8], &directory.to_le_bytes(), &[0; 4], &count, comment].concat()
}

fn large_zip_end(directory: u64, record_at: u64) -> Vec<u8> {
    let record = [b"PK\x06\x06".as_slice(), &[0; 36], &directory.to_le_bytes(), &[0; 8]].concat();
    let locator = [b"PK\x06\x07".as_slice(), &[0; 4], &record_at.to_le_bytes(), &[0; 4]].concat();
    [record, locator, zip_end(u32::MAX, b"")].concat()
}

#[test]
fn tables_are_where_the_tail_says() {
    let size = 9 * MIB;
    let parquet = |bytes: u32, magic: &[u8]| [&bytes.to_le_bytes(), magic].concat();
    let rows = [
        ("x.parquet", parquet(1000, b"PAR1"), Some(size - 1008)),
        ("x.parquet", parquet(1000, b"PARE"), Some(size - 1008)),
        ("x.parquet", parquet(1000, b"PAR2"), None),
        ("x.parquet", parquet(u32::MAX, b"PAR1"), None),
        ("x.parquet", parquet(size as u32, b"PAR1"), None),
        ("x.zip", zip_end(5000, b""), Some(size - 22 - 5000)),
        ("x.pt", zip_end(5000, b"PK\x05\x06 is no end"), Some(size - 22 - 14 - 5000)),
        ("x.npz", zip_end(5000, &[b'c'; 65_535]), Some(size - 22 - 65_535 - 5000)),
        ("x.zip", large_zip_end(70_000, size - 98), Some(size - 98 - 70_000)),
        ("x.zip", large_zip_end(70_000, size - 99), None),
        ("x.zip", large_zip_end(70_000, u64::MAX), None),
        ("x.zip", large_zip_end(u64::MAX, size - 98), None),
        ("x.zip", zip_end(u32::MAX, b""), None),
        ("x.zip", vec![b'P'; 70_000], None),
        ("x.bin", zip_end(5000, b""), None),
    ];
    for (name, tail, start) in rows {
        assert_eq!(of_tail(name, &tail, size), start.map(|start| start..size), "{name}");
    }
}

/// An entry of a central directory; a large one has what does not fit into its own fields behind another
/// field.
fn zip_entry(at: u64, is_large: bool) -> Vec<u8> {
    let mut entry = vec![0; 46];
    entry[..4].copy_from_slice(b"PK\x01\x02");
    let name = b"data/\xc3\xbc.bin";
    entry[28..30].copy_from_slice(&(name.len() as u16).to_le_bytes());
    entry[32..34].copy_from_slice(&3_u16.to_le_bytes());
    let mut fields = Vec::new();
    if is_large {
        [20, 42].into_iter().for_each(|at| entry[at..at + 4].fill(255));
        fields =
            [b"\x55\x54\x02\x00??\x01\x00\x10\x00".as_slice(), &(2 * MIB).to_le_bytes(), &at.to_le_bytes()]
                .concat();
    } else {
        entry[42..46].copy_from_slice(&(at as u32).to_le_bytes());
    }
    entry[30..32].copy_from_slice(&(fields.len() as u16).to_le_bytes());
    [&entry, name.as_slice(), &fields, b"any"].concat()
}

/// The last bytes of an archive of `size` bytes, in front of which stand `before` others: the directory and
/// its end.
fn zip_tail(starts: &[u64], is_large: bool, size: u64, before: u64) -> Vec<u8> {
    let directory = starts.iter().flat_map(|at| zip_entry(*at, is_large)).collect::<Vec<_>>();
    let bytes = directory.len() as u64;
    if !is_large {
        let mut end = zip_end(bytes as u32, b"");
        end[16..20].copy_from_slice(&((size - bytes - 22 - before) as u32).to_le_bytes());
        return [directory, end].concat();
    }
    let record_at = size - 98;
    let mut end = large_zip_end(bytes, record_at);
    end[48..56].copy_from_slice(&(record_at - bytes - before).to_le_bytes());
    [directory, end].concat()
}

#[test]
fn members_of_a_zip_go_to_the_next() {
    // In no order, and one of them short.
    let starts = [3 * MIB, 0, MIB, MIB + 1000];
    for (is_large, before) in [(false, 0), (true, 0), (false, 777)] {
        let size = 5 * MIB;
        let tail = zip_tail(&starts, is_large, size, before);
        let byte = |at: u64| (at + tail.len() as u64).checked_sub(size).map_or(0, |at| tail[at as usize]);
        let found =
            study("x.zip", size, |range| range.map(byte).collect(), &[size - 1]).expect("all is there");
        let directory = tail.len() as u64 - if is_large { 98 } else { 22 };
        let end = size - directory - before - if is_large { 98 } else { 22 };
        let expected = [(0, MIB), (MIB + 1000, 3 * MIB), (3 * MIB, end)];
        let expected = expected.map(|(from, to)| from + before..to + before);
        assert_eq!(found.extents.0[..2], expected[..2], "{is_large} {before}");
        // What is behind the directory may be counted to the last one.
        let last = &found.extents.0[2];
        assert!(
            last.start == expected[2].start
                && last.end >= expected[2].end
                && last.end < expected[2].end + 100
        );
        assert_eq!(found.table, Some(size - tail.len() as u64..size));
    }
    // A long one is a table and no more.
    let long = study(
        "x.zip",
        9 * MIB,
        |range| {
            let tail = zip_end(5 * MIB as u32, b"");
            range.map(|at| (at + 22).checked_sub(9 * MIB).map_or(0, |at| tail[at as usize])).collect()
        },
        &[],
    );
    assert_eq!(long.and_then(|found| found.table), Some(4 * MIB - 22..9 * MIB));
    // A directory that says that it begins behind where it does.
    let mut tail = zip_tail(&starts, false, 5 * MIB, 0);
    let at = tail.len() - 6;
    tail[at..at + 4].fill(255);
    let byte = |at: u64| (at + tail.len() as u64).checked_sub(5 * MIB).map_or(0, |at| tail[at as usize]);
    let found = study("x.zip", 5 * MIB, |range| range.map(byte).collect(), &[]).expect("all is there");
    assert_eq!(found.extents, Extents::default());
}

#[test]
fn what_is_never_there_is_not_looked_for_without_end() {
    let mut study = LayoutParser::of("x.gguf", MIB).expect("a format");
    let tries = (0..).take_while(|_| !study.parse(None, &mut Hints::default())).count();
    assert_eq!(tries, TRIES as usize - 1);
    assert!(LayoutParser::of("x.gguf", 5).is_none() && LayoutParser::of("x.parquet", 0).is_none());
}

/// Whatever the bytes are, ranges lie within the object.
fn check_within(found: Option<Hints>, size: u64) {
    let Hints { extents, table } = found.unwrap_or_default();
    let all = extents.0.into_iter().chain(table);
    all.for_each(|range| assert!(range.start < range.end && range.end <= size, "{range:?}"));
}

proptest! {
    #[test]
    fn nonsense_is_no_range_outside_the_object(header in "(\"data_offsets\":\\[|[0-9]{1,25}|,|\\]|x){0,40}") {
        let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        check_within(of_head("x.safetensors", &file, 9 * MIB, &[]), 9 * MIB);
    }

    #[test]
    fn bytes_of_any_kind_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..300), size in 300..MIB) {
        for name in ["x.safetensors", "x.gguf"] {
            check_within(of_head(name, &bytes, size, &[7, 100]), size);
        }
        for (name, end) in [("x.parquet", b"PAR1".as_slice()), ("x.zip", b""), ("x.zip", &zip_end(7, b""))] {
            let table = of_tail(name, &[&bytes, end].concat(), size + 30);
            check_within(Some(Hints { table, ..Hints::default() }), size + 30);
        }
    }

    /// The end of a good archive, with bytes of it replaced.
    #[test]
    fn a_damaged_zip_does_no_harm(
        damage in prop::collection::vec((0..200_usize, any::<u8>()), 0..6),
        is_large: bool,
    ) {
        let size = 5 * MIB;
        let mut tail = zip_tail(&[0, MIB, 3 * MIB], is_large, size, 0);
        damage.into_iter().for_each(|(at, byte)| tail[at] = byte);
        let byte = |at: u64| (at + tail.len() as u64).checked_sub(size).map_or(0, |at| tail[at as usize]);
        check_within(study("x.zip", size, |range| range.map(byte).collect(), &[]), size);
    }

    /// A good file, cut off or with bytes of it replaced, seen in pieces.
    #[test]
    fn a_damaged_gguf_does_no_harm(
        damage in prop::collection::vec((0..900_usize, any::<u8>()), 0..6),
        cut in 0..400_000_usize,
        ends in prop::collection::vec(0..400_000_u64, 0..6),
    ) {
        let mut file = gguf(3, &all_kinds(), &[("a", 0), ("b", MIB), ("c", u64::MAX)]);
        damage.into_iter().for_each(|(at, byte)| file[at] = byte);
        file.truncate(cut);
        check_within(of_head("x.gguf", &file, 3 * MIB, &ends), 3 * MIB);
    }

    /// In whatever pieces it is seen, it says the same.
    #[test]
    fn pieces_make_no_difference(mut ends in prop::collection::vec(0..450_000_u64, 0..30)) {
        ends.sort_unstable();
        let file = gguf(3, &all_kinds(), &[("a", 0), ("b", MIB)]);
        prop_assert_eq!(of_head("x.gguf", &file, 5 * MIB, &ends), of_head("x.gguf", &file, 5 * MIB, &[]));
    }
}
