//! Reads of objects whose format we know: what follows is there, in few requests, and nothing else is
//! fetched.

use std::sync::Arc;

use flatout_engine::Object;
use flatout_wire::location::Location;

use super::origin::{Origin, Reply, object};
use super::reads::{ETAG, KIB, MIB, Scene, right_whole};

/// A scene whose object has that extension.
fn scene(extension: &str, body: Vec<u8>) -> Scene {
    let (size, body) = (body.len() as u64, Arc::new(body));
    let served = body.clone();
    let origin = Origin::start(move |asked| Reply::Keep(right_whole(asked, &served)));
    let scene = Scene::at(origin, body, |_| {});
    let location = Location::parse(&format!("{}.{extension}", scene.origin.url())).expect("a good URL");
    let reader = scene
        .client
        .reader(Object { location, size, etag: Some(ETAG.into()), modified_s: None })
        .expect("an object");
    Scene { reader, ..scene }
}

/// Reads `header_bytes` as the kernel does, then some tensors of three mebibytes from `data` on.
fn check_tensors(scene: &Scene, header_bytes: u64, data: u64) {
    let tensor = 3 * MIB;
    for at in (0..header_bytes).step_by(128 << 10) {
        scene.read(at, (128 * KIB).min(header_bytes - at));
    }
    scene.amplification();
    let head = scene.stats();
    for number in [9, 5, 12, 7] {
        let start = data + number * tensor;
        scene.read(start, 128 * KIB);
        scene.amplification();
        for at in (128 * KIB..tensor).step_by(128 << 10) {
            scene.read(start + at, 128 * KIB);
        }
    }
    // One for each tensor; on a busy machine a read of the 96 may come before what was fetched ahead.
    let waits = scene.stats().waits - head.waits;
    assert!((4..=6).contains(&waits), "what follows is there: {waits} waits, {:?}", scene.stats());
    let (fetched, served) = (scene.stats().fetched_bytes - head.fetched_bytes, 4 * tensor);
    assert!(fetched <= served + served / 10, "{fetched} for {served}");
}

#[test]
fn tensors_are_fetched_ahead_wherever_they_begin_and_no_further() {
    let (tensor, count) = (3 * MIB, 16);
    let extents =
        (0..count).map(|at| format!(r#""t{at}":{{"data_offsets":[{},{}]}}"#, at * tensor, (at + 1) * tensor));
    let header = format!("{{{}}}", extents.collect::<Vec<_>>().join(","));
    let data = 8 + header.len() as u64;
    let mut body = object(data + count * tensor);
    body[..8].copy_from_slice(&(header.len() as u64).to_le_bytes());
    body[8..data as usize].copy_from_slice(header.as_bytes());
    check_tensors(&scene("safetensors", body), data, data);
}

#[test]
fn so_are_those_of_gguf_behind_a_header_longer_than_what_stays_of_it() {
    let (tensor, count, words) = (3 * MIB, 16_u64, 150_000_u64);
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let mut header =
        [b"GGUF".as_slice(), &3_u32.to_le_bytes(), &count.to_le_bytes(), &1_u64.to_le_bytes()].concat();
    header.extend(text("tokenizer.ggml.tokens"));
    header.extend([9_u32.to_le_bytes(), 8_u32.to_le_bytes()].concat());
    header.extend(words.to_le_bytes());
    (0..words).for_each(|word| header.extend(text(&format!("{word:030}"))));
    for at in 0..count {
        header.extend(text(&format!("t{at}")));
        header.extend([1_u32.to_le_bytes().as_slice(), &(tensor / 4).to_le_bytes(), &[0; 4]].concat());
        header.extend((at * tensor).to_le_bytes());
    }
    assert!(header.len() as u64 > 5 * MIB);
    let data = (header.len() as u64).next_multiple_of(32);
    let mut body = object(data + count * tensor);
    body[..header.len()].copy_from_slice(&header);
    check_tensors(&scene("gguf", body), header.len() as u64, data);
}

/// A table of contents before the last `end` bytes takes two requests, whoever cuts reading it how.
fn check_table(scene: &Scene, table_bytes: u64, end: u64) {
    let size = scene.body.len() as u64;
    scene.read(size - end, end);
    assert_eq!(scene.origin.asked().len(), 1, "{:?}", scene.stats());
    // Whole pages, as the kernel asks for them.
    let begin = (size - end - table_bytes) / 4096 * 4096;
    for at in (begin..size - end).step_by(128 << 10) {
        scene.read(at, (128 * KIB).min(size - end - at));
    }
    scene.amplification();
    assert_eq!(scene.origin.asked().len(), 2, "{:?}", scene.stats());
    assert_eq!(scene.stats().fetched_bytes, size - begin);
}

#[test]
fn a_footer_of_parquet_is_fetched_at_once() {
    let (mut body, footer) = (object(16 * MIB + 5), 3 * MIB + 7);
    let at = body.len() - 8;
    body[at..at + 4].copy_from_slice(&(footer as u32).to_le_bytes());
    body[at + 4..].copy_from_slice(b"PAR1");
    check_table(&scene("parquet", body), footer, 8);
}

#[test]
fn a_directory_of_zip_is_fetched_at_once() {
    let (mut body, directory) = (object(16 * MIB + 5), 3 * MIB + 7);
    let at = body.len() - 22;
    body[at..].fill(0);
    body[at..at + 4].copy_from_slice(b"PK\x05\x06");
    body[at + 12..at + 16].copy_from_slice(&(directory as u32).to_le_bytes());
    check_table(&scene("zip", body), directory, 22);
}

/// An archive of members of a mebibyte, stored as they are.
fn archive(members: u64) -> (Vec<u8>, Vec<u64>, u64) {
    let (mut body, mut directory, mut starts) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..members {
        let mut entry = vec![0; 46];
        entry[..4].copy_from_slice(b"PK\x01\x02");
        entry[42..].copy_from_slice(&(body.len() as u32).to_le_bytes());
        directory.extend(entry);
        starts.push(body.len() as u64);
        body.extend([b"PK\x03\x04".as_slice(), &[0; 26]].concat());
        body.extend(object(MIB));
    }
    let (at, bytes) = (body.len() as u64, directory.len() as u64);
    body.extend(directory);
    body.extend([b"PK\x05\x06".as_slice(), &[0; 8]].concat());
    body.extend([(bytes as u32).to_le_bytes(), (at as u32).to_le_bytes()].concat());
    body.extend([0; 2]);
    (body, starts, at)
}

/// The header, and then what it says follows: each member is a request, wherever it lies, the first one also.
#[test]
fn members_of_a_zip_are_a_request_each_and_no_more() {
    let (body, starts, directory) = archive(64);
    let size = body.len() as u64;
    let scene = scene("zip", body);
    scene.read(size - 22, 22);
    scene.read(directory, size - 22 - directory);
    assert_eq!(scene.origin.asked().len(), 1);
    scene.amplification();
    let (fetched, mut asked) = (scene.stats().fetched_bytes, 1);
    // More of them than patterns are followed at a time, and none behind the one before.
    let some = [7, 31, 3, 45, 0, 22, 60, 11, 29, 50, 2, 38, 16, 58, 5];
    for number in some {
        let start = starts[number];
        scene.read(start, 32 * KIB);
        scene.amplification();
        scene.read(start + 30, MIB);
        asked += 1;
        assert_eq!(scene.origin.asked().len(), asked, "member {number}: {:?}", scene.stats());
    }
    assert_eq!(scene.stats().fetched_bytes - fetched, some.len() as u64 * (MIB + 30));
}
