//! Requests on their way to an origin: each class keeps to what the origin takes of it, all keep to
//! `--request-rate`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cells::{Cell, Counted};
use crate::base::operation::{Class, Load};
use crate::base::time::now;
use flatout_policy::pace::WaitReason;
use flatout_policy::pace::bucket::Bucket;
use flatout_policy::pace::throttle::Throttle;

/// The requests to one origin.
pub(crate) struct Requests {
    /// By class.
    quotas: [Quota; Class::COUNT],
    /// `--request-rate`.
    rate: Option<Queue<Bucket>>,
}

/// What requests of one class are granted.
struct Quota {
    throttle: Queue<Throttle>,
    /// Until a verdict came, nobody waits in the queue.
    is_throttled: AtomicBool,
}

/// Something that gives out one after the other. Who is first waits for it; the others wait for him, in
/// order: all at once would ask for the same token.
struct Queue<T> {
    turn: tokio::sync::Mutex<()>,
    of: Mutex<T>,
}

impl<T> Queue<T> {
    fn new(of: T) -> Queue<T> {
        Queue { turn: tokio::sync::Mutex::new(()), of: Mutex::new(of) }
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_waited_for(&self) -> bool {
        self.turn.try_lock().is_err()
    }

    /// Waits until `take` gives something, which says how long to wait where it does not.
    async fn wait(&self, cell: &Cell, take: impl Fn(&mut T) -> Result<(), Duration>) {
        let mut waits: Option<Counted<'_>> = None;
        let _turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(_) => {
                waits = Some(cell.waiting(WaitReason::Requests));
                self.turn.lock().await
            }
        };
        loop {
            let taken = take(&mut self.lock());
            let Err(wait) = taken else { return };
            waits.get_or_insert_with(|| cell.waiting(WaitReason::Requests));
            tokio::time::sleep(wait).await;
        }
    }
}

impl Quota {
    fn new(now: Instant) -> Quota {
        Quota { throttle: Queue::new(Throttle::new(now)), is_throttled: AtomicBool::new(false) }
    }
}

impl Requests {
    /// `rate`: requests a second, of all classes together.
    pub(crate) fn new(rate: Option<u32>, now: Instant) -> Requests {
        let rate = rate.map(|rate| Queue::new(Bucket::new(f64::from(rate), now)));
        Requests { quotas: std::array::from_fn(|_| Quota::new(now)), rate }
    }

    fn quota(&self, class: Class) -> &Quota {
        &self.quotas[class as usize]
    }

    /// Waits until a request may leave; when that was.
    pub(crate) async fn start(&self, class: Class, cell: &Cell) -> Instant {
        let throttle = &self.quota(class).throttle;
        let is_throttled = self.quota(class).is_throttled.load(Ordering::Relaxed);
        if is_throttled || throttle.lock().start(now()).is_err() {
            throttle.wait(cell, |throttle| throttle.start(now())).await;
        }
        if let Some(rate) = &self.rate {
            rate.wait(cell, |rate| rate.take(1.0, now())).await;
        }
        now()
    }

    /// Whether requests of that class wait: another one would only make them wait longer.
    pub(crate) fn are_waiting(&self, class: Class) -> bool {
        self.quota(class).throttle.is_waited_for() || self.rate.as_ref().is_some_and(Queue::is_waited_for)
    }

    /// A request that left at `sent` was answered. True when that the load is too much is news.
    pub(crate) fn on_answer(&self, class: Class, sent: Instant, load: Load) -> bool {
        let quota = self.quota(class);
        let mut throttle = quota.throttle.lock();
        match load {
            Load::Fine => {
                throttle.on_answered(now());
                false
            }
            Load::TooMuch => {
                quota.is_throttled.store(true, Ordering::Relaxed);
                throttle.on_throttled(sent, now())
            }
        }
    }

    /// Requests with bytes of objects that the origin was found to take a second, once it refused some. A
    /// gate has one class of them.
    pub(crate) fn per_second_of_bytes(&self) -> Option<f64> {
        self.per_second(Class::Read).or_else(|| self.per_second(Class::Write))
    }

    /// Requests a second that the origin was found to take of a class, once it refused some.
    pub(crate) fn per_second(&self, class: Class) -> Option<f64> {
        self.quota(class).throttle.lock().per_second()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// In virtual time: how many requests `workers` send in ten seconds to an origin that refuses what is
    /// more than `limit` a second, what it is found to take, and whether some wait in the end.
    fn sent(workers: usize, rate: Option<u32>, limit: f64) -> (u32, f64, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build_local(Default::default())
            .expect("a runtime without a driver");
        runtime.block_on(async {
            let requests = Rc::new((Requests::new(rate, now()), Cell::default()));
            let count = Rc::new(std::cell::Cell::new(0));
            let origin = Rc::new(RefCell::new(Bucket::new(limit, now())));
            for _ in 0..workers {
                let (requests, count, origin) = (requests.clone(), count.clone(), origin.clone());
                tokio::task::spawn_local(async move {
                    loop {
                        let sent = requests.0.start(Class::Read, &requests.1).await;
                        count.set(count.get() + 1);
                        tokio::time::sleep(Duration::from_millis(10)).await;
                        let taken = origin.borrow_mut().take(1.0, now());
                        let load = if taken.is_ok() { Load::Fine } else { Load::TooMuch };
                        requests.0.on_answer(Class::Read, sent, load);
                    }
                });
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            let found = requests.0.per_second(Class::Read).unwrap_or(f64::INFINITY);
            (count.get(), found, requests.0.are_waiting(Class::Read))
        })
    }

    #[test]
    fn the_rate_is_kept_and_nobody_waits_without_one() {
        assert_eq!(sent(8, None, 1e6), (8_000, f64::INFINITY, false));
        assert_eq!(sent(1, Some(200), 1e6), (1_000, f64::INFINITY, false));
        let (count, _, waiting) = sent(64, Some(100), 1e6);
        assert!((990..=1_010).contains(&count) && waiting, "{count}");
        let (count, _, waiting) = sent(3, Some(7), 1e6);
        assert!((69..=72).contains(&count) && waiting, "{count}");
    }

    #[test]
    fn a_class_that_is_refused_slows_down_and_others_do_not() {
        let (count, per_second, _) = sent(8, None, 500.0);
        assert!((4_000..6_000).contains(&count), "{count} requests, of which the origin takes 5,000");
        assert!((400.0..600.0).contains(&per_second), "{per_second} a second, of which it takes 500");
        let requests = Requests::new(None, now());
        assert!(requests.on_answer(Class::List, now(), Load::TooMuch));
        assert!(requests.per_second(Class::Read).is_none() && requests.per_second(Class::List).is_some());
    }
}
