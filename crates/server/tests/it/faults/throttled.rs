//! Requests and session tokens that are let in no longer.

use std::time::Duration;

use flatout_server::FaultPlan;

use super::{OSS, S3, origin};
use crate::client::send;

#[test]
fn too_many_requests_are_told_to_slow_down() {
    let fault_plan = FaultPlan {
        throttle: Some(0.001),
        qos_delay: Some(Duration::from_millis(250)),
        ..FaultPlan::default()
    };
    for (dialect, code) in [(S3, "SlowDown"), (OSS, "TotalQpsLimitExceeded")] {
        let (origin, bytes) = origin(100, fault_plan.clone());
        let address = origin.addresses()[0];
        assert_eq!(send(address, "GET", "/bucket/k", dialect, b"").expect(200).body, bytes);
        for method in ["GET", "PUT", "DELETE"] {
            let body = if method == "PUT" { vec![7; 3 << 20] } else { Vec::new() };
            let answer = send(address, method, "/bucket/k", dialect, &body).expect(503);
            assert_eq!(answer.xml("Code").as_deref(), Some(code));
            assert_eq!(answer.header("x-oss-qos-delay-time"), Some("250"));
        }
        send(address, "HEAD", "/bucket/k", dialect, b"").expect(503);
        // Listings are let in.
        send(address, "GET", "/bucket", dialect, b"").expect(200);
    }
}

#[test]
fn a_token_is_taken_for_a_while() {
    let fault_plan = FaultPlan { expire_token: Some(Duration::from_millis(400)), ..FaultPlan::default() };
    let (origin, _) = origin(100, fault_plan);
    let address = origin.addresses()[0];
    for (dialect, header, status, code) in [
        (S3, "x-amz-security-token", 400, "ExpiredToken"),
        (OSS, "x-oss-security-token", 403, "SecurityTokenExpired"),
    ] {
        let get =
            |token: &str| send(address, "GET", "/bucket/k", &[dialect, &[(header, token)]].concat(), b"");
        let old = format!("old-{code}");
        get(&old).expect(200);
        std::thread::sleep(Duration::from_millis(450));
        let refused = get(&old).expect(status);
        assert_eq!(refused.xml("Code").as_deref(), Some(code));
        get(&format!("new-{code}")).expect(200);
        send(address, "GET", "/bucket/k", dialect, b"").expect(200);
    }
}
