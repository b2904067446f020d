//! Versions of an origin that sends no ETags: what tells one from another then, and what is not shared.

use std::sync::{Arc, Mutex};

use flatout_engine::{Client, Config, ErrorKind, Object, Reader};
use flatout_wire::location::Location;
use flatout_wire::time::format_http;

use super::origin::{Asked, Origin, Reply};
use super::reads::{KIB, MIB, read};

const SIZE: u64 = 4 * MIB;

/// An origin of one object: its bytes are all one letter, and it was changed then.
struct Lab {
    client: Client,
    origin: Origin,
    stands: Arc<Mutex<(u8, u64)>>,
}

/// What it says of that beside the size.
#[derive(Clone, Copy, PartialEq)]
enum Tells {
    Time,
    /// Without its quotes.
    Etag,
    Nothing,
}

impl Lab {
    fn start(tells: Tells) -> Lab {
        let stands = Arc::new(Mutex::new((b'a', 100)));
        let now = stands.clone();
        let origin = Origin::start(move |asked| {
            let (letter, modified_s) = *now.lock().expect("no panic in the origin");
            Reply::Keep(answer(asked, letter, tells, modified_s))
        });
        let mut config = Config::default();
        config.settings.retries = 1;
        Lab { client: Client::new(config).expect("good settings"), origin, stands }
    }

    fn replace(&self, letter: u8, modified_s: u64) {
        *self.stands.lock().expect("no panic in the origin") = (letter, modified_s);
    }

    fn reader(&self, etag: Option<&str>, modified_s: Option<u64>) -> Reader {
        let location = Location::parse(&self.origin.url()).expect("a good URL");
        let object = Object { location, size: SIZE, etag: etag.map(String::from), modified_s };
        self.client.reader(object).expect("an object")
    }
}

fn answer(asked: &Asked, letter: u8, tells: Tells, modified_s: u64) -> Vec<u8> {
    let range = asked.range(SIZE).expect("the engine asks for ranges");
    let (first, last, bytes) = (range.start, range.end - 1, range.end - range.start);
    let told = match tells {
        Tells::Time => format!("last-modified: {}\r\n", format_http(modified_s)),
        Tells::Etag => format!("etag: {}\r\n", char::from(letter)),
        Tells::Nothing => String::new(),
    };
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\ncontent-range: bytes {first}-{last}/{SIZE}\r\ncontent-length: {bytes}\r\n{told}\r\n"
    );
    [head.as_bytes(), &vec![letter; bytes as usize]].concat()
}

/// A read from the start, which makes a lane: what it brought stays in memory.
fn first(reader: &Reader) -> Result<u8, ErrorKind> {
    read(reader, 0, 64 * KIB).map(|bytes| {
        assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a mixture");
        bytes[0]
    })
}

#[test]
fn a_new_version_is_not_read_from_the_memory_of_the_old_one() {
    for (tells, etag) in [(Tells::Time, None), (Tells::Time, Some("W/\"weak\"")), (Tells::Nothing, None)] {
        let lab = Lab::start(tells);
        let modified_s = |at| (tells == Tells::Time).then_some(at);
        let old = lab.reader(etag, modified_s(100));
        assert_eq!(first(&old), Ok(b'a'));
        lab.replace(b'b', 200);
        let new = lab.reader(etag, modified_s(200));
        assert_eq!(first(&new), Ok(b'b'), "{etag:?}");
        drop(old);
    }
}

#[test]
fn readers_of_one_version_share_it_by_its_time() {
    let lab = Lab::start(Tells::Time);
    let (one, other) = (lab.reader(None, Some(100)), lab.reader(None, Some(100)));
    assert_eq!([first(&one), first(&other)], [Ok(b'a'), Ok(b'a')]);
    assert_eq!(lab.client.reader_stats().hits, 1, "{:?}", lab.client.reader_stats());
}

#[test]
fn a_version_of_another_time_than_was_told_is_another() {
    let lab = Lab::start(Tells::Time);
    lab.replace(b'b', 200);
    assert_eq!(first(&lab.reader(None, Some(100))), Err(ErrorKind::Changed));
    assert_eq!(first(&lab.reader(None, Some(200))), Ok(b'b'));
}

/// Some servers leave the quotes out in one place and not in the other.
#[test]
fn quotes_make_no_version() {
    let lab = Lab::start(Tells::Etag);
    let reader = || lab.reader(Some("\"a\""), None);
    assert_eq!(first(&reader()), Ok(b'a'));
    lab.replace(b'b', 200);
    assert_eq!(first(&reader()), Err(ErrorKind::Changed));
}
