//! Faults in the middle of a body.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use flatout_server::FaultKind;

use super::{DIALECTS, always, each_store, get, origin};

const SIZE: usize = 3_000_001;

/// The range `from..=last`, as a header.
fn range(from: usize, last: usize) -> String {
    format!("bytes={from}-{last}")
}

#[test]
fn a_reset_is_one_and_what_came_before_is_right() {
    each_store(SIZE, &always(FaultKind::Reset), |address, bytes| {
        for dialect in DIALECTS {
            let (answer, ended) = get(address, "/bucket/k", dialect);
            assert_eq!(ended, Some(ErrorKind::ConnectionReset));
            assert_eq!(answer.header("content-length"), Some(&*SIZE.to_string()));
            assert!(answer.body.len() < SIZE && bytes.starts_with(&answer.body));
        }
    });
}

#[test]
fn a_truncated_body_ends_in_good_order_and_too_early() {
    each_store(SIZE, &always(FaultKind::Truncate), |address, bytes| {
        for dialect in DIALECTS {
            let (answer, ended) = get(address, "/bucket/k", dialect);
            assert_eq!(ended, None);
            assert_eq!(answer.header("content-length"), Some(&*SIZE.to_string()));
            assert!(answer.body.len() < SIZE && bytes.starts_with(&answer.body));
        }
    });
}

#[test]
fn a_stalled_body_comes_whole_and_late() {
    let pause = Duration::from_millis(300);
    each_store(SIZE, &always(FaultKind::Stall(pause)), |address, bytes| {
        for dialect in DIALECTS {
            let start = Instant::now();
            let (answer, ended) = get(address, "/bucket/k", dialect);
            assert_eq!(ended, None);
            assert!(answer.body == bytes && start.elapsed() >= pause, "{:?}", start.elapsed());
        }
    });
}

#[test]
fn a_slow_body_comes_whole_at_its_rate() {
    each_store(SIZE, &always(FaultKind::Slow(2 * SIZE as u64)), |address, bytes| {
        for dialect in DIALECTS {
            let start = Instant::now();
            let (answer, _) = get(address, "/bucket/k", dialect);
            assert!(answer.body == bytes);
            assert!(start.elapsed() > Duration::from_millis(400), "{:?}", start.elapsed());
        }
    });
}

#[test]
fn one_bit_is_flipped_and_nothing_else_tells() {
    each_store(SIZE, &always(FaultKind::Flip), |address, bytes| {
        let (s3, oss) = (get(address, "/bucket/k", DIALECTS[0]).0, get(address, "/bucket/k", DIALECTS[1]).0);
        assert!(s3.body != oss.body, "the second attempt has another bit");
        assert_eq!(s3.header("x-amz-checksum-crc64nvme"), Some(&*crate::client::crc64nvme(bytes)));
        for answer in [s3, oss] {
            assert_eq!(answer.body.len(), bytes.len());
            let wrong: Vec<u8> = answer
                .body
                .iter()
                .zip(bytes)
                .map(|(came, meant)| came ^ meant)
                .filter(|bits| *bits != 0)
                .collect();
            assert!(wrong.len() == 1 && wrong[0].is_power_of_two(), "{wrong:?}");
        }
    });
}

#[test]
fn a_wrong_range_says_what_it_is_and_is_what_it_says() {
    each_store(SIZE, &always(FaultKind::WrongRange), |address, bytes| {
        for dialect in DIALECTS {
            for (asked, came) in [
                ((0, 999), 1000..2000),
                ((1_000_000, 1_999_999), 0..1_000_000),
                ((5, 9), 0..5),
                ((0, SIZE - 1), 1..SIZE),
            ] {
                let range = range(asked.0, asked.1);
                let (answer, ended) = get(address, "/bucket/k", &[dialect, &[("range", &range)]].concat());
                assert_eq!((answer.status, ended), (206, None));
                let says = format!("bytes {}-{}/{SIZE}", came.start, came.end - 1);
                assert_eq!(answer.header("content-range"), Some(&*says));
                assert!(answer.body == bytes[came], "{asked:?}");
            }
            // Who asks for no range gets none.
            assert!(get(address, "/bucket/k", dialect).0.body == bytes);
        }
    });
}

#[test]
fn the_same_seed_spoils_the_same_parts_in_any_order() {
    let part = SIZE / 50;
    let spoilt = |seed: u64, order: &dyn Fn(usize) -> usize| {
        let fault_plan = flatout_server::FaultPlan { seed, ..super::sometimes(0.3, FaultKind::Truncate) };
        let (origin, bytes) = origin(SIZE, fault_plan);
        let mut lengths = vec![0; 50];
        for number in (0..50).map(order) {
            let range = range(number * part, (number + 1) * part - 1);
            let (answer, _) = get(origin.addresses()[0], "/bucket/k", &[("range", &range)]);
            assert!(bytes[number * part..].starts_with(&answer.body));
            lengths[number] = answer.body.len();
        }
        lengths
    };
    let (forward, backward) = (spoilt(7, &|number| number), spoilt(7, &|number| 49 - number));
    assert_eq!(forward, backward);
    let short = forward.iter().filter(|length| **length < part).count();
    assert!((5..25).contains(&short), "{short}");
    assert_ne!(forward, spoilt(8, &|number| number));
}

#[test]
fn an_attempt_that_goes_on_where_one_stopped_counts_as_the_next_of_the_same() {
    // Two clients, an origin each: one keeps what came, the other starts afresh. They meet with the same
    // faults.
    let attempts = |keeps: bool| {
        let (origin, bytes) = origin(SIZE, super::sometimes(0.6, FaultKind::Reset));
        [1, 2, 3, 4, 5, 6].map(|before_end| {
            let (mut at, mut attempts) = (0, 1);
            loop {
                let range = range(at, SIZE - before_end);
                let (answer, ended) = get(origin.addresses()[0], "/bucket/k", &[("range", &range)]);
                assert!(bytes[at..].starts_with(&answer.body));
                if ended.is_none() {
                    return attempts;
                }
                attempts += 1;
                at += if keeps { answer.body.len() } else { 0 };
            }
        })
    };
    let (kept, afresh) = (attempts(true), attempts(false));
    assert_eq!(kept, afresh);
    assert!(kept.iter().any(|attempts| *attempts > 1));
}
