//! A bucket of tokens that fills at a rate: bytes of `--bandwidth`, requests of `--request-rate`. Pure: time
//! is an argument.

use std::time::{Duration, Instant};

/// How much may be saved up while nothing is taken: enough for ticks and turns of a shard, too little for a
/// burst.
const SAVED: Duration = Duration::from_millis(50);

#[derive(Clone, Debug)]
pub struct Bucket {
    /// Tokens a second.
    rate: f64,
    tokens: f64,
    /// When `tokens` was true.
    filled: Instant,
}

impl Bucket {
    /// `rate` tokens a second, at least one in a thousand seconds; it starts full.
    pub fn new(rate: f64, now: Instant) -> Bucket {
        let mut bucket = Bucket { rate: 0.0, tokens: 0.0, filled: now };
        bucket.set_rate(rate, now);
        bucket.tokens = bucket.depth();
        bucket
    }

    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// Another rate from now on; what is saved stays, as far as it fits.
    pub fn set_rate(&mut self, rate: f64, now: Instant) {
        self.fill(now);
        self.rate = rate.max(0.001);
        self.tokens = self.tokens.min(self.depth());
    }

    /// Nothing is given out for so long.
    pub fn pause(&mut self, time: Duration, now: Instant) {
        self.fill(now);
        self.tokens = self.tokens.min(-self.rate * time.as_secs_f64());
    }

    /// Takes `amount`, or says after how long to ask again. More than the bucket holds is lent once it is
    /// full, so that the rate is kept whatever is asked for at once.
    pub fn take(&mut self, amount: f64, now: Instant) -> Result<(), Duration> {
        self.fill(now);
        let needed = amount.min(self.depth());
        if self.tokens >= needed {
            self.tokens -= amount;
            return Ok(());
        }
        Err(Duration::from_secs_f64((needed - self.tokens) / self.rate).max(Duration::from_micros(1)))
    }

    /// Takes `amount` at once, on credit if need be: how long until it is paid for, and the next should be
    /// taken.
    pub fn spend(&mut self, amount: f64, now: Instant) -> Duration {
        self.fill(now);
        self.tokens -= amount;
        Duration::from_secs_f64((-self.tokens / self.rate).max(0.0))
    }

    fn fill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled);
        self.tokens = (self.tokens + self.rate * elapsed.as_secs_f64()).min(self.depth());
        self.filled = self.filled.max(now);
    }

    fn depth(&self) -> f64 {
        (self.rate * SAVED.as_secs_f64()).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes `amount` again and again for ten seconds, waiting as told: how much in all.
    fn taken(rate: f64, amount: f64) -> f64 {
        let start = Instant::now();
        let mut bucket = Bucket::new(rate, start);
        let (mut now, mut all) = (start, 0.0);
        while now < start + Duration::from_secs(10) {
            match bucket.take(amount, now) {
                Ok(()) => all += amount,
                Err(wait) => now += wait,
            }
        }
        all
    }

    #[test]
    fn the_rate_is_kept_whatever_is_asked_for_at_once() {
        for (rate, amount) in [(1e9, 256e3), (1e6, 1.0e6), (500.0, 1.0), (2.0, 1.0), (0.5, 1.0), (1e6, 7e6)] {
            let (all, due) = (taken(rate, amount), rate * 10.0);
            assert!(all >= due * 0.99 - amount && all <= due * 1.01 + amount.max(1.0), "{rate}: {all}");
        }
    }

    #[test]
    fn what_is_spent_on_credit_is_paid_for_in_turn() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1000.0, start);
        let waits = [50.0, 100.0, 300.0].map(|amount| bucket.spend(amount, start).as_millis());
        assert_eq!(waits, [0, 100, 400]);
        assert_eq!(bucket.spend(0.0, start + Duration::from_millis(150)).as_millis(), 250);
        assert_eq!(bucket.spend(1.0, start + Duration::from_secs(9)), Duration::ZERO);
    }

    #[test]
    fn little_is_saved_up_and_a_pause_is_kept() {
        let start = Instant::now();
        let mut bucket = Bucket::new(1000.0, start);
        let later = start + Duration::from_secs(60);
        let free = (0..1000).take_while(|_| bucket.take(1.0, later).is_ok()).count();
        assert_eq!(free, 50);
        bucket.pause(Duration::from_millis(200), later);
        let wait = bucket.take(1.0, later).unwrap_err();
        assert!(wait > Duration::from_millis(200) && wait < Duration::from_millis(202), "{wait:?}");
    }

    #[test]
    fn a_rate_can_change_and_time_may_stand_still() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10.0, start);
        bucket.set_rate(1000.0, start);
        assert_eq!(bucket.rate(), 1000.0);
        let earlier = start.checked_sub(Duration::from_secs(1)).unwrap_or(start);
        while bucket.take(1.0, earlier).is_ok() {}
        assert!(bucket.take(1.0, start + Duration::from_millis(2)).is_ok());
    }
}
