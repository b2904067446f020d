//! Reads for which there was no memory: whatever gives some back, they go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flatout_engine::Pieces;

use super::origin::{Origin, Reply, object, right};
use super::reads::{KIB, MIB, Scene};

/// A hang guard, no measure.
const PATIENCE: Duration = Duration::from_secs(30);
const SIZE: u64 = 64 * MIB;

/// It was fed only when another answer came.
#[test]
fn a_read_that_starved_goes_on_when_somebody_lets_go_of_answers() {
    let body = Arc::new(object(SIZE));
    let (served, goes) = (body.clone(), Arc::new(AtomicBool::new(false)));
    let may_go = goes.clone();
    let origin = Origin::start(move |asked| {
        // What begins behind the middle is answered when the test is over.
        let waits = asked.range(SIZE).is_some_and(|range| range.start >= SIZE / 2);
        while waits && !may_go.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Reply::Keep(right(asked, &served))
    });
    let scene = Scene::at(origin, body, |config| {
        config.settings.memory_bytes = 16 * MIB;
        config.settings.parallel = Some(4);
        config.settings.stall_timeout_ms = 600_000;
    });
    let read = |at: u64, bytes: u64| {
        let (tell, told) = mpsc::channel();
        let reading = scene.reader.read(at, bytes as usize, move |result| drop(tell.send(result)));
        (reading, told)
    };
    let held: Vec<Pieces> = (0..24)
        .map(|number| {
            let (_, told) = read(number * 7 % 24 * MIB, MIB);
            told.recv_timeout(PATIENCE).expect("an answer").expect("the bytes")
        })
        .collect();
    assert!(scene.client.memory_held() > 16 * MIB);
    let (first, first_told) = read(SIZE / 2, 64 * KIB);
    let (second, second_told) = read(29 * MIB, 64 * KIB);
    assert!(!first.is_over() && !second.is_over());
    assert!(second_told.try_recv().is_err(), "the first is past the limit, and the second waits");
    drop(held);
    let pieces = second_told.recv_timeout(PATIENCE).expect("there is memory now").expect("the bytes");
    assert!(pieces.slices().collect::<Vec<_>>().concat() == scene.body[29 << 20..][..64 << 10]);
    assert!(first_told.try_recv().is_err(), "nothing else was answered");
    goes.store(true, Ordering::SeqCst);
    first_told.recv_timeout(PATIENCE).expect("an answer").expect("the bytes");
}
