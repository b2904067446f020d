//! Threads for calls that block: made as they are wanted, and no more than some, so that a thousand awaited calls are no thousand
//! threads.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What is called beyond that waits for one of them.
const THREADS_MOST: usize = 128;

/// One that has nothing to do ends after so long.
const IDLE: Duration = Duration::from_secs(5);

type Job = Box<dyn FnOnce() + Send>;

/// The threads of one engine. They end with it, as soon as they have nothing to do.
#[derive(Default)]
pub struct Callers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    crew: Mutex<Crew>,
    news: Condvar,
}

#[derive(Default)]
struct Crew {
    /// Not begun yet, in the order of asking.
    jobs: VecDeque<Job>,
    threads: usize,
    /// Of those, how many wait for a job; some perhaps have been woken for one.
    idle: usize,
    is_over: bool,
}

impl Callers {
    /// Has a thread call `job`; one that panics is dropped like any other.
    ///
    /// # Errors
    /// There is no thread, and none can be had: `job` is dropped uncalled.
    pub fn call(&self, job: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut crew = self.0.lock();
        crew.jobs.push_back(Box::new(job));
        if crew.idle >= crew.jobs.len() {
            self.0.news.notify_one();
            return Ok(());
        }
        if crew.threads == THREADS_MOST {
            return Ok(());
        }
        let shared = self.0.clone();
        let spawned = std::thread::Builder::new().name("flatout-call".into()).spawn(move || shared.work());
        match spawned {
            Ok(_) => crew.threads += 1,
            // It is the only one.
            Err(refused) if crew.threads == 0 => {
                let uncalled = crew.jobs.pop_back();
                drop(crew);
                drop(uncalled);
                return Err(refused);
            }
            Err(_) => {}
        }
        Ok(())
    }
}

impl Drop for Callers {
    fn drop(&mut self) {
        self.0.lock().is_over = true;
        self.0.news.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        let mut crew = self.lock();
        loop {
            if let Some(job) = crew.jobs.pop_front() {
                drop(crew);
                // Whoever waits for it learns from what it drops.
                let _ = catch_unwind(AssertUnwindSafe(job));
                crew = self.lock();
                continue;
            }
            if crew.is_over {
                break;
            }
            crew.idle += 1;
            let (woken, waited) = self.news.wait_timeout(crew, IDLE).unwrap_or_else(PoisonError::into_inner);
            crew = woken;
            crew.idle -= 1;
            if waited.timed_out() && crew.jobs.is_empty() {
                break;
            }
        }
        crew.threads -= 1;
    }

    fn lock(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::{Callers, THREADS_MOST};

    #[test]
    fn a_thousand_calls_are_no_thousand_threads() {
        let (callers, (tell, told), (go, gate)) =
            (Callers::default(), mpsc::channel(), mpsc::channel::<()>());
        let gate = std::sync::Arc::new(std::sync::Mutex::new(gate));
        for number in 0..1000 {
            let (tell, gate) = (tell.clone(), gate.clone());
            callers
                .call(move || {
                    let _ = gate.lock().unwrap().recv();
                    tell.send(number).unwrap();
                })
                .unwrap();
        }
        assert_eq!(callers.0.lock().threads, THREADS_MOST);
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        drop(go);
        let mut all: Vec<i32> =
            (0..1000).map(|_| told.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..1000));
    }

    #[test]
    fn one_after_the_other_is_one_thread_also_after_a_panic() {
        let callers = Callers::default();
        for number in 0..100 {
            let (tell, told) = mpsc::channel::<()>();
            callers
                .call(move || {
                    let _told = tell;
                    assert!(number != 50, "as a defect would");
                })
                .unwrap();
            assert!(told.recv().is_err());
            while callers.0.lock().idle == 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(callers.0.lock().threads, 1);
        let shared = callers.0.clone();
        drop(callers);
        while shared.lock().threads > 0 {
            std::thread::yield_now();
        }
    }
}
