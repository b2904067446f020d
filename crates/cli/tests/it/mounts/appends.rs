//! Files of a mount that are appendable objects of OSS: what programs add is appended to them.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;

use super::Place;
use crate::objects::Buckets;
use crate::program::{run, wait_until};

/// As another client of the origin; the whole answer.
fn ask(origin: &Buckets, method: &str, query: &str, body: &[u8]) -> String {
    let url = origin.url();
    let host = url.trim_start_matches("http://");
    let mut socket = TcpStream::connect(host).unwrap();
    let head = format!(
        "{method} /bucket/log{query} HTTP/1.1\r\nhost: {host}\r\nx-oss-date: Fri, 27 Nov 2026 10:00:00 GMT\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

fn append(origin: &Buckets, at: usize, bytes: &[u8]) {
    ask(origin, "POST", &format!("?append&position={at}"), bytes);
}

fn stored(origin: &Buckets) -> Vec<u8> {
    fs::read(origin.root().join("bucket/log")).unwrap()
}

fn is_appendable(origin: &Buckets) -> bool {
    ask(origin, "HEAD", "", b"").to_ascii_lowercase().contains("x-oss-object-type: appendable")
}

fn mounted(origin: &Buckets) -> Place {
    let place = Place::new();
    let line =
        ["mount", "oss://bucket", &place.mnt_text(), "--oss-endpoint", &origin.url(), "--no-sign-request"];
    run(&mut place.flatout(&[&line[..], &["--attribute-lifetime", "0s"]].concat())).clean();
    place
}

fn log(place: &Place) -> File {
    OpenOptions::new().append(true).open(place.at("log")).unwrap()
}

#[test]
fn a_log_is_continued_and_stays_appendable() {
    let origin = Buckets::new(&[("bucket/there", b"there")]);
    append(&origin, 0, b"first\n");
    let place = mounted(&origin);
    let mut file = log(&place);
    let mut reader = File::open(place.at("log")).unwrap();
    file.write_all(b"second\n").unwrap();
    assert_eq!(stored(&origin), b"first\n");
    file.sync_all().unwrap();
    assert_eq!(stored(&origin), b"first\nsecond\n");
    file.write_all(b"third\n").unwrap();
    file.sync_all().unwrap();
    let mut lines = String::new();
    reader.read_to_string(&mut lines).unwrap();
    assert_eq!(lines, "first\nsecond\nthird\n");
    drop((file, reader));
    assert!(is_appendable(&origin));
    // More than is kept in memory; and by another open.
    let mut long = vec![b'.'; 3_500_000];
    long.push(b'\n');
    log(&place).write_all(&long).unwrap();
    assert!(stored(&origin) == [lines.as_bytes(), &long].concat());
    assert!(fs::read(place.at("log")).unwrap() == stored(&origin));
    // Another client goes on from there, and this mount from what that has added.
    append(&origin, stored(&origin).len(), b"theirs\n");
    log(&place).write_all(b"ours\n").unwrap();
    assert!(stored(&origin).ends_with(b".\ntheirs\nours\n") && is_appendable(&origin));
    // A new file is no such object.
    fs::write(place.at("log"), b"new").unwrap();
    log(&place).write_all(b"er").unwrap();
    assert_eq!((stored(&origin), is_appendable(&origin)), (b"newer".to_vec(), false));
    place.unmounted();
}

#[test]
fn an_append_of_another_client_meanwhile_is_an_error() {
    let origin = Buckets::new(&[("bucket/there", b"there")]);
    append(&origin, 0, b"first\n");
    let place = mounted(&origin);
    let mut file = log(&place);
    file.write_all(b"lost\n").unwrap();
    append(&origin, 6, b"theirs\n");
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(libc::ESTALE));
    assert_eq!(file.write_all(b"more\n").unwrap_err().raw_os_error(), Some(libc::ESTALE));
    drop(file);
    assert_eq!(stored(&origin), b"first\ntheirs\n");
    let said = place.log();
    assert!(said.contains("oss://bucket/log: another client has appended to it"), "{said}");
    // The kernel tells of a closed file after close(2), and until then the failed one is written to.
    wait_until("the failed one is gone", || log(&place).write_all(b"again\n").is_ok());
    assert_eq!(stored(&origin), b"first\ntheirs\nagain\n");
    place.unmounted();
}
