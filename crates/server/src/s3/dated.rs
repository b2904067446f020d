//! Whether a signed request of S3 is of a time that a clock which is off takes. s3s knows only the machine's
//! clock.

use flatout_wire::time::{parse_amz, parse_http};
use hyper::header::{AUTHORIZATION, DATE};
use hyper::http::request::Parts;

/// How far a client's clock may be off.
const SKEW_S: u64 = 15 * 60;

/// The longest that a presigned URL of Signature Version 4 is good: a week.
const MAX_EXPIRES_S: u64 = 604_800;

/// Whether a presigned URL says that it is good for longer than it may be.
pub(crate) fn check_expiry(head: &Parts) -> Result<(), &'static str> {
    match parameter(head, "X-Amz-Expires").map(str::parse) {
        None | Some(Ok(0..=MAX_EXPIRES_S)) => Ok(()),
        Some(_) => Err("X-Amz-Expires goes from 0 to 604800 seconds, which is a week"),
    }
}

/// Why a request is of the wrong time: code and sentence.
pub(crate) type WrongTime = (&'static str, &'static str);

/// `now_s` are the Unix seconds of the origin's clock. What is not signed, or states no time, is right.
pub(crate) fn check(head: &Parts, now_s: u64) -> Result<(), WrongTime> {
    let header = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    if head.headers.contains_key(AUTHORIZATION) {
        let stated = header("x-amz-date").and_then(parse_amz).or_else(|| parse_http(header(DATE.as_str())?));
        return match stated {
            Some(signed_s) if signed_s.abs_diff(now_s) > SKEW_S => Err((
                "RequestTimeTooSkewed",
                "The difference between the request time and the current time is too large.",
            )),
            _ => Ok(()),
        };
    }
    let parameter = |name| parameter(head, name);
    let expires_s: Option<u64> =
        parameter("X-Amz-Expires").or_else(|| parameter("Expires")).and_then(|text| text.parse().ok());
    // Version 2 says only when a URL ends.
    let signed_s = parameter("X-Amz-Date").and_then(parse_amz);
    match (signed_s, expires_s) {
        (Some(signed_s), _) if signed_s > now_s.saturating_add(SKEW_S) => {
            Err(("AccessDenied", "Request is not valid yet"))
        }
        (signed_s, Some(expires_s)) if now_s > signed_s.unwrap_or(0).saturating_add(expires_s) => {
            Err(("AccessDenied", "Request has expired"))
        }
        _ => Ok(()),
    }
}

fn parameter<'a>(head: &'a Parts, name: &str) -> Option<&'a str> {
    let mut pairs = head.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_good_for_a_week_at_most() {
        for (target, good) in [
            ("/b/k", true),
            ("/b/k?X-Amz-Expires=604800", true),
            ("/b/k?X-Amz-Expires=604801", false),
            ("/b/k?x-amz-expires=-1", false),
            ("/b/k?X-Amz-Expires=soon", false),
        ] {
            let head = hyper::Request::get(target).body(()).unwrap().into_parts().0;
            assert_eq!(check_expiry(&head).is_ok(), good, "{target}");
        }
    }

    #[test]
    fn times_are_judged_by_the_clock_that_is_given() {
        let now_s = parse_amz("20261121T120000Z").unwrap();
        let skewed = Some("RequestTimeTooSkewed");
        let denied = Some("AccessDenied");
        let presigned = "/b/k?X-Amz-Date=20261121T110000Z&X-Amz-Expires=";
        for (target, date, expected) in [
            ("/b/k", "20261121T120000Z", None),
            ("/b/k", "20261121T114500Z", None),
            ("/b/k", "20261121T114459Z", skewed),
            ("/b/k", "20261121T121500Z", None),
            ("/b/k", "20261121T121501Z", skewed),
            ("/b/k", "yesterday", None),
            ("/b/k", "", None),
            (&format!("{presigned}3600"), "", None),
            (&format!("{presigned}3599"), "", denied),
            ("/b/k?X-Amz-Date=20261121T121500Z&X-Amz-Expires=1", "", None),
            ("/b/k?X-Amz-Date=20261121T121501Z&X-Amz-Expires=99999", "", denied),
            (&format!("/b/k?AWSAccessKeyId=a&Expires={now_s}"), "", None),
            (&format!("/b/k?AWSAccessKeyId=a&Expires={}", now_s - 1), "", denied),
        ] {
            let mut request = hyper::Request::get(target);
            if !date.is_empty() {
                request = request.header("authorization", "AWS4-HMAC-SHA256 x").header("x-amz-date", date);
            }
            let head = request.body(()).unwrap().into_parts().0;
            assert_eq!(check(&head, now_s).err().map(|(code, _)| code), expected, "{target} {date}");
        }
    }
}
