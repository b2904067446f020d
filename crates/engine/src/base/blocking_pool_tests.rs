//! The blocking pool: as many threads as there are waits, up to a bound, and none when nobody waits.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::Duration;

use super::BlockingPool;

const NAME: &str = "blocking-test";
/// A hang guard.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn waits_run_side_by_side() {
    let pool = BlockingPool::of(NAME, 8, LONG);
    // Each waits for all the others.
    let barrier = Arc::new(Barrier::new(9));
    for _ in 0..8 {
        let barrier = barrier.clone();
        pool.run(move || {
            barrier.wait();
        });
    }
    barrier.wait();
    assert!(pool.close(LONG));
    assert_eq!(pool.threads(), 0);
}

#[test]
fn no_more_than_the_bound_run() {
    let pool = BlockingPool::of(NAME, 3, LONG);
    let (running, most, done) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), mpsc::channel());
    for _ in 0..50 {
        let (running, most, done) = (running.clone(), most.clone(), done.0.clone());
        pool.run(move || {
            most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
            std::thread::sleep(Duration::from_millis(1));
            running.fetch_sub(1, SeqCst);
            done.send(()).unwrap();
        });
    }
    for _ in 0..50 {
        done.1.recv_timeout(LONG).unwrap();
    }
    assert!((1..=3).contains(&most.load(SeqCst)));
    assert!(pool.threads() <= 3);
    pool.close(LONG);
}

#[test]
fn who_is_idle_leaves() {
    let pool = BlockingPool::of(NAME, 4, Duration::from_millis(1));
    pool.run(|| {});
    let start = std::time::Instant::now();
    while pool.threads() > 0 {
        assert!(start.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
    // And another comes when there is work again.
    let (tell, told) = mpsc::channel();
    pool.run(move || tell.send(()).unwrap());
    told.recv_timeout(LONG).unwrap();
    pool.close(LONG);
}

#[test]
fn a_panic_takes_no_thread_along() {
    let pool = BlockingPool::of(NAME, 1, LONG);
    pool.run(|| panic!("a test"));
    let (tell, told) = mpsc::channel();
    pool.run(move || tell.send(()).unwrap());
    told.recv_timeout(LONG).unwrap();
    pool.close(LONG);
}

#[test]
fn what_waits_at_the_end_is_dropped() {
    let pool = BlockingPool::of(NAME, 1, LONG);
    let (go, went) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    pool.run(move || {
        begin.send(()).unwrap();
        let _ = went.recv();
    });
    begun.recv_timeout(LONG).unwrap();
    let kept = Arc::new(());
    for _ in 0..5 {
        let kept = kept.clone();
        pool.run(move || drop(kept));
    }
    // The first one still waits for somebody.
    assert!(!pool.close(Duration::from_millis(1)));
    assert_eq!(Arc::strong_count(&kept), 1);
    let late = kept.clone();
    pool.run(move || drop(late));
    assert_eq!(Arc::strong_count(&kept), 1);
    drop(go);
    assert!(pool.close(LONG));
}

/// Found by the leak check of `make fuzz TARGET=requests`: a thread that had left was still there, with what
/// it held.
#[test]
fn who_has_left_is_gone_at_the_end() {
    struct Last(Arc<AtomicUsize>);
    impl Drop for Last {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_millis(50));
            self.0.fetch_add(1, SeqCst);
        }
    }
    thread_local!(static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) });
    let (pool, gone) = (BlockingPool::of(NAME, 4, LONG), Arc::new(AtomicUsize::new(0)));
    let barrier = Arc::new(Barrier::new(5));
    for _ in 0..4 {
        let (barrier, last) = (barrier.clone(), Last(gone.clone()));
        pool.run(move || {
            LAST.set(Some(last));
            barrier.wait();
        });
    }
    // What has not begun at the end never does.
    barrier.wait();
    assert!(pool.close(LONG));
    assert_eq!(gone.load(SeqCst), 4);
}

#[test]
fn what_nobody_waits_for_is_in_nobodys_way() {
    let pool = BlockingPool::of(NAME, 3, LONG);
    let (go, gate) = mpsc::channel::<()>();
    let (gate, begun) = (Arc::new(Mutex::new(gate)), Arc::new(AtomicUsize::new(0)));
    let wait = || {
        let (gate, begun) = (gate.clone(), begun.clone());
        move || {
            begun.fetch_add(1, SeqCst);
            let _ = gate.lock().unwrap().recv();
        }
    };
    let all: Vec<_> = (0..10).map(|_| pool.call(wait()).unwrap()).collect();
    while begun.load(SeqCst) < 3 {
        std::thread::yield_now();
    }
    // The last ones first, so that none takes the place of one that is lost.
    all.into_iter().rev().for_each(drop);
    let (tell, told) = mpsc::channel();
    let called = pool.call(move || tell.send(()).unwrap()).unwrap();
    told.recv_timeout(LONG).unwrap();
    // Those that had not begun never do.
    assert_eq!(begun.load(SeqCst), 3);
    drop((called, go));
    assert!(pool.close(LONG));
    assert_eq!(pool.0.state().lost, 0);
}
