//! How many attempts may be tried again in vain: a bucket of retries that good answers refill. Pure.
//!
//! Each part and each object has retries of its own; without a bound over all of them an origin that is dead would be
//! asked six times for each of a million objects. AWS's own clients bound them alike (500 tokens, 5 a retry).

/// More than all parts in flight need to see an origin through a bad moment.
const MOST: f64 = 500.0;

/// What a good answer gives back: at half of all requests failing the budget stays as it is.
const REFILL: f64 = 1.0;

/// The retries left of what is asked of an origin in one class.
#[derive(Debug)]
pub(crate) struct Budget(f64);

impl Default for Budget {
    fn default() -> Budget {
        Budget(MOST)
    }
}

impl Budget {
    pub(crate) fn on_success(&mut self) {
        self.0 = (self.0 + REFILL).min(MOST);
    }

    /// An attempt has failed that may be tried again: how many retries in a row it has, of the `retries_max` that it has
    /// where all is well. Once the budget is used up each still has one: the origin may be back.
    pub(crate) fn on_failure(&mut self, retries_max: u32) -> u32 {
        if self.0 < 1.0 {
            return retries_max.min(1);
        }
        self.0 -= 1.0;
        retries_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `things` of which each attempt fails but every `good`-th, with five retries: attempts for each of the last 100.
    fn attempts(things: u32, good: u32) -> f64 {
        let (mut budget, mut number, mut last) = (Budget::default(), 0, 0);
        for thing in 0..things {
            for attempt in 1.. {
                number += 1;
                last += u32::from(thing + 100 >= things);
                if u32::is_multiple_of(number, good) {
                    budget.on_success();
                    break;
                }
                if attempt > budget.on_failure(5) {
                    break;
                }
            }
        }
        f64::from(last) / 100.0
    }

    #[test]
    fn a_dead_origin_is_asked_twice_for_each_of_many_and_a_sick_one_as_often_as_it_takes() {
        let dead = [1, 10, 80].map(|things| attempts(things, 0));
        assert_eq!(dead, [0.06, 0.6, 4.8], "all have their retries");
        assert_eq!(attempts(10_000, 0), 2.0);
        assert_eq!(attempts(10_000, 1), 1.0);
        assert_eq!(attempts(10_000, 2), 2.0);
        assert!(attempts(10_000, 4) < 2.5, "three of four fail: one retry each, once the budget is used up");
        assert!(attempts(90, 4) > 3.0, "before that each is seen through");
    }

    #[test]
    fn without_retries_there_are_none() {
        let mut budget = Budget::default();
        assert!((0..2_000).all(|_| budget.on_failure(0) == 0));
    }
}
