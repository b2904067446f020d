//! Memory that the engine makes: as long as what comes, given away when it is whole, and not before.

use std::sync::mpsc::channel;

use flatout_engine::{AllocatedBuffer, Client, Error, ErrorKind, Get, Landing, Report, Verified};
use flatout_wire::checksum::Algorithm;
use flatout_wire::range::Span;

use super::origin::{Asked, Origin, Reply, head_206, object, right};
use super::{PART, SIZE, config, location};

fn read(origin: &Origin, span: Span) -> (AllocatedBuffer, Result<Report, Error>) {
    let client = Client::new(config()).expect("good settings");
    let made = AllocatedBuffer::new();
    let get = Get::new(location(origin), Landing::Allocated(made.clone())).with_span(span);
    let report = client.get(get).expect("a start").wait();
    (made, report)
}

#[track_caller]
fn check(origin: &Origin, span: Span, expected: &[u8]) -> Report {
    let (made, report) = read(origin, span);
    let report = report.unwrap_or_else(|error| panic!("{error}"));
    let block = made.take().expect("it is whole");
    assert_eq!((block.len(), block.is_empty()), (expected.len(), expected.is_empty()));
    assert!(block.as_slice() == expected, "the bytes are right");
    let align = if block.len() < 256 << 10 { 64 } else { 4096 };
    assert_eq!(block.as_ptr().addr() % align, 0, "aligned");
    assert!(made.take().is_none(), "it is given once");
    report
}

#[test]
fn a_block_is_as_long_as_what_was_asked_for() {
    let body = object(SIZE);
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    for (span, expected) in [
        (Span::All, 0..SIZE),
        (Span::Slice(5..6), 5..6),
        (Span::Slice(PART - 1..3 * PART + 7), PART - 1..3 * PART + 7),
        (Span::From(99_000), 99_000..SIZE),
        (Span::Last(10), SIZE - 10..SIZE),
    ] {
        check(&origin, span, &body[expected.start as usize..expected.end as usize]);
    }
}

#[test]
fn one_stream_and_nothing_at_all_have_their_block_too() {
    let one = Origin::start(|_| {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {SIZE}\r\n\r\n");
        Reply::Keep([head.as_bytes(), &object(SIZE)].concat())
    });
    check(&one, Span::All, &object(SIZE));
    let empty = Origin::start(|asked| {
        let (status, size) = match asked.header("range") {
            Some(_) => ("416 No", "content-range: bytes */0\r\n"),
            None => ("200 OK", ""),
        };
        Reply::Keep(format!("HTTP/1.1 {status}\r\n{size}content-length: 0\r\n\r\n").into_bytes())
    });
    check(&empty, Span::All, b"");
}

#[test]
fn what_fails_before_the_first_answer_is_tried_again() {
    let origin = Origin::start(|asked| match asked.number {
        0 => Reply::Close(Vec::new()),
        1 => Reply::Keep(b"HTTP/1.1 503 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n".to_vec()),
        _ => Reply::Keep(right(asked, &object(SIZE))),
    });
    assert_eq!(check(&origin, Span::All, &object(SIZE)).retries, 2);
}

/// An answer that states the CRC of the right bytes, and sends these.
fn stating(asked: &Asked, body: &[u8]) -> Reply {
    let range = asked.range(SIZE).expect("the engine asks for ranges");
    let stated = Algorithm::Crc64Xz.encode(Algorithm::Crc64Xz.of(&object(SIZE)));
    let head = head_206(&range, SIZE, "\"v1\"");
    let head = head.replace("\r\n\r\n", &format!("\r\nx-oss-hash-crc64ecma: {stated}\r\n\r\n"));
    Reply::Keep([head.as_bytes(), &body[range.start as usize..range.end as usize]].concat())
}

#[test]
fn only_bytes_that_are_those_of_the_checksum_are_given_away() {
    let origin = Origin::start(|asked| stating(asked, &object(SIZE)));
    let report = check(&origin, Span::All, &object(SIZE));
    assert_eq!(report.verified, Verified::Whole(Algorithm::Crc64Xz));
    let origin = Origin::start(|asked| {
        let mut body = object(SIZE);
        body[70_000] ^= 1;
        stating(asked, &body)
    });
    let (made, report) = read(&origin, Span::All);
    assert_eq!(report.expect_err("a wrong byte").kind(), ErrorKind::Corrupt);
    assert!(made.take().is_none());
}

#[test]
fn a_length_that_nobody_tells_and_memory_that_nobody_has_are_said() {
    let chunked = Origin::start(|_| {
        let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        Reply::Close([head.as_slice(), b"3\r\nabc\r\n0\r\n\r\n"].concat())
    });
    let (made, report) = read(&chunked, Span::All);
    assert_eq!(report.expect_err("no length").kind(), ErrorKind::Unsupported);
    assert!(made.take().is_none());
    // Beyond what can be addressed, and beyond what any machine of ours has where the kernel looks at that.
    let overcommit = std::fs::read_to_string("/proc/sys/vm/overcommit_memory").unwrap_or_default();
    let looks = overcommit.trim() != "1";
    for (size, words) in [(1_u64 << 62, "4096PiB"), (1 << 46, "64TiB")] {
        if size < 1 << 47 && !looks {
            continue;
        }
        let huge = Origin::start(move |asked| {
            let range = asked.range(size).expect("a range");
            let bytes = vec![0; (range.end - range.start) as usize];
            Reply::Keep([head_206(&range, size, "\"v1\"").as_bytes(), &bytes].concat())
        });
        let (made, report) = read(&huge, Span::All);
        let error = report.expect_err("no memory");
        assert_eq!(error.kind(), ErrorKind::LocalIo);
        assert!(error.to_string().contains(&format!("cannot have {words} of memory")), "{error}");
        assert!(made.take().is_none());
    }
}

#[test]
fn what_runs_gives_nothing_away_and_two_of_one_do_not_meet() {
    let origin = Origin::start(|asked| Reply::Keep(right(asked, &object(SIZE))));
    let client = Client::new(config()).expect("good settings");
    let made = AllocatedBuffer::new();
    let (tell, told) = channel();
    let get = |span| {
        let tell = tell.clone();
        let get = Get::new(location(&origin), Landing::Allocated(made.clone())).with_span(span);
        client.get(get.on_end(move || tell.send(()).expect("it is waited for"))).expect("a start")
    };
    let transfers = [get(Span::All), get(Span::Slice(0..9))];
    for _ in 0..2 {
        told.recv().expect("it ends");
    }
    for transfer in transfers {
        transfer.wait().expect("it comes");
    }
    let block = made.take().expect("of the one that ended last");
    assert!([9, SIZE as usize].contains(&block.len()), "{block:?}");
    assert!(block.as_slice() == &object(SIZE)[..block.len()]);
    let silent = Origin::start(|asked| match asked.number {
        0 => Reply::Keep(right(asked, &object(SIZE))),
        _ => Reply::Hang(Vec::new()),
    });
    let running = client.get(Get::new(location(&silent), Landing::Allocated(made.clone()))).expect("a start");
    while running.progress().landed_bytes == 0 {
        assert!(!running.wait_timeout(std::time::Duration::from_millis(1)), "it waits for the second part");
    }
    assert!(made.take().is_none(), "the memory is still written to");
    running.cancel_switch().cancel();
    assert_eq!(running.wait().expect_err("cancelled").kind(), ErrorKind::Cancelled);
    assert!(made.take().is_none());
}

#[test]
fn what_was_made_is_the_callers_and_not_the_clients() {
    const LARGE: u64 = 32 << 20;
    let origin = Origin::start(|asked| {
        let range = asked.range(LARGE).expect("a range");
        let bytes = vec![7; (range.end - range.start) as usize];
        Reply::Keep([head_206(&range, LARGE, "\"v1\"").as_bytes(), &bytes].concat())
    });
    let mut config = config();
    (config.settings.part_bytes, config.settings.window_bytes) = (Some(4 << 20), None);
    let client = Client::new(config).expect("good settings");
    let made = AllocatedBuffer::new();
    let transfer =
        client.get(Get::new(location(&origin), Landing::Allocated(made.clone()))).expect("a start");
    transfer.wait().expect("it comes");
    let block = made.take().expect("it is whole");
    assert!(client.memory_held() < LARGE / 2, "{}", client.memory_held());
    drop(client);
    assert!(block.len() as u64 == LARGE && block.as_slice().iter().all(|byte| *byte == 7));
}
