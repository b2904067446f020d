//! Limits on access: requests a second, and the lifetime of session tokens.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use s3s::HttpResponse;

use super::FaultPlan;
use crate::front::Front;
use crate::oss::speaks_oss;

/// Where a session token stands: headers and query parameters of both dialects.
const TOKEN_NAMES: [&str; 3] = ["x-amz-security-token", "x-oss-security-token", "security-token"];

pub(super) struct AccessLimits {
    throttle: Option<Mutex<RequestBudget>>,
    qos_delay: Option<Duration>,
    token_life: Option<Duration>,
    /// When tokens were first used, by a hash that says nothing of them.
    tokens: Mutex<HashMap<u64, Instant>>,
    hasher: RandomState,
}

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitRefusal {
    Throttled,
    TokenExpired,
}

impl AccessLimits {
    pub(super) fn new(fault_plan: &FaultPlan, now: Instant) -> AccessLimits {
        AccessLimits {
            throttle: fault_plan.throttle.map(|rate| Mutex::new(RequestBudget::new(rate, now))),
            qos_delay: fault_plan.qos_delay,
            token_life: fault_plan.expire_token,
            tokens: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    /// Requests that are not for an object are not counted.
    pub(super) fn check(&self, head: &Parts, for_object: bool, now: Instant) -> Result<(), LimitRefusal> {
        if let Some(life) = self.token_life
            && let Some(token) = token(head)
        {
            let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            let first = *tokens.entry(self.hasher.hash_one(token)).or_insert(now);
            if now.saturating_duration_since(first) >= life {
                return Err(LimitRefusal::TokenExpired);
            }
        }
        match &self.throttle {
            Some(bucket) if for_object => {
                let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
                if bucket.take(now) { Ok(()) } else { Err(LimitRefusal::Throttled) }
            }
            _ => Ok(()),
        }
    }

    /// In the words of the dialect that the request is in.
    pub(super) fn refuse(&self, refused: LimitRefusal, front: &Front, head: &Parts) -> HttpResponse {
        let (status, code, why) = match (refused, speaks_oss(head)) {
            (LimitRefusal::Throttled, false) => (503, "SlowDown", "Please reduce your request rate."),
            (LimitRefusal::Throttled, true) => {
                (503, "TotalQpsLimitExceeded", "the requests a second are more than this origin lets in")
            }
            (LimitRefusal::TokenExpired, false) => (400, "ExpiredToken", "The provided token has expired."),
            (LimitRefusal::TokenExpired, true) => {
                (403, "SecurityTokenExpired", "the security token has expired")
            }
        };
        let status = StatusCode::from_u16(status).expect("ours are statuses");
        let mut response = front.refuse(head, status, Some(code), why);
        if let (LimitRefusal::Throttled, Some(delay)) = (refused, self.qos_delay) {
            let delay_ms = HeaderValue::from(delay.as_millis() as u64);
            response.headers_mut().insert("x-oss-qos-delay-time", delay_ms);
        }
        response
    }
}

impl LimitRefusal {
    /// As the log has it.
    pub(super) fn name(self) -> &'static str {
        match self {
            LimitRefusal::Throttled => "throttle",
            LimitRefusal::TokenExpired => "expire-token",
        }
    }
}

/// The session token of a request, as it stands there.
fn token(head: &Parts) -> Option<&[u8]> {
    let header = TOKEN_NAMES.iter().find_map(|name| head.headers.get(*name));
    header.map(HeaderValue::as_bytes).or_else(|| {
        let pairs = head.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        let is_token = |name: &str| TOKEN_NAMES.iter().any(|token| token.eq_ignore_ascii_case(name));
        pairs.into_iter().find(|(name, _)| is_token(name)).map(|(_, value)| value.as_bytes())
    })
}

/// A bucket of requests that may come at once: those of a second, and at least one.
struct RequestBudget {
    per_second: f64,
    left: f64,
    filled: Instant,
}

impl RequestBudget {
    fn new(per_second: f64, now: Instant) -> RequestBudget {
        RequestBudget { per_second, left: per_second.max(1.0), filled: now }
    }

    fn take(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.filled).as_secs_f64();
        self.left = (self.left + since * self.per_second).min(self.per_second.max(1.0));
        self.filled = self.filled.max(now);
        let let_in = self.left >= 1.0;
        self.left -= if let_in { 1.0 } else { 0.0 };
        let_in
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(target: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = hyper::Request::get(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn as_many_a_second_are_let_in_as_are_allowed() {
        for (per_second, asked_a_second, seconds, expected) in [
            // A second's worth is there from the start.
            (10.0, 1000, 1, 20),
            (10.0, 1000, 10, 110),
            (0.5, 1000, 10, 6),
            (10.0, 5, 10, 50),
            (1000.0, 100, 3, 300),
        ] {
            let start = Instant::now();
            let mut bucket = RequestBudget::new(per_second, start);
            let times = (0..seconds * asked_a_second)
                .map(|number| start + Duration::from_secs_f64(f64::from(number) / f64::from(asked_a_second)));
            let let_in = times.filter(|now| bucket.take(*now)).count();
            assert!(let_in.abs_diff(expected) <= 1, "{per_second}/s of {asked_a_second}/s: {let_in}");
        }
    }

    #[test]
    fn each_token_lives_from_its_first_use() {
        let fault_plan = FaultPlan { expire_token: Some(Duration::from_secs(10)), ..FaultPlan::default() };
        let start = Instant::now();
        let limits = AccessLimits::new(&fault_plan, start);
        let check = |after_s, head: &Parts, expected| {
            assert_eq!(limits.check(head, true, start + Duration::from_secs(after_s)), expected, "{head:?}");
        };
        let expired = Err(LimitRefusal::TokenExpired);
        for (at_s, head) in [
            (0, head("/b/k", &[("x-amz-security-token", "one")])),
            (100, head("/b/k", &[("x-oss-security-token", "two")])),
            (200, head("/b/k?X-Amz-Security-Token=three&x=y", &[])),
            (300, head("/b/k?x-oss-security-token=four", &[])),
            (400, head("/b/k?security-token=five", &[])),
        ] {
            check(at_s, &head, Ok(()));
            check(at_s + 9, &head, Ok(()));
            check(at_s + 10, &head, expired);
            check(at_s + 1000, &head, expired);
        }
        check(5000, &head("/b/k", &[]), Ok(()));
    }
}
