//! The table's rows of uploads.

use std::ops::RangeInclusive;
use std::time::Duration;

use flatout_server::{ErrorCode, Fault, FaultKind, FaultPlan, Rates, WriteFault, WriteStep};

use super::table::{
    ALWAYS, Addresses, BUSY, Dialect, End, FEW, Keys, ONCE, Row, SKEWED, Seen, UPLOADS, blows, denied, end,
    skewed, throttled,
};

/// An object of two parts takes four requests.
const OFTEN: f64 = 0.4;

/// One attempt more for each connection that was idle before: breaking it costs no retry.
const BROKEN: RangeInclusive<usize> = 2..=4;
/// An early answer may be lost with its connection.
const EARLY: RangeInclusive<usize> = 1..=4;

/// Fair weather.
fn fair() -> Row {
    Row { works: &UPLOADS, ..Row::fair() }
}

fn write(chance: f64, fault: WriteFault) -> FaultPlan {
    blows(chance, FaultKind::Write(fault))
}

fn code(code: &str) -> ErrorCode {
    code.parse().unwrap()
}

fn error(chance: f64, text: &str) -> FaultPlan {
    write(chance, WriteFault::Error(code(text), None))
}

/// All rows of uploads, in the page's order.
pub fn rows() -> Vec<Row> {
    [bodies(), refusals(), answers(), others()].concat()
}

/// What happens to bodies on their way.
fn bodies() -> Vec<Row> {
    let stall = WriteFault::Stall(Duration::from_secs(60));
    vec![
        Row {
            name: "put-stall",
            day: "The origin stops taking four bodies in ten.",
            does: "`--stall-timeout` without a byte taken, or without an answer, is a stall: the \
                   connection is dropped, and the part is sent again on another.",
            fault_plan: write(OFTEN, stall),
            spare: BUSY,
            settings: &["--stall-timeout", "1s"],
            ..fair()
        },
        Row {
            name: "put-stall-always",
            day: "The origin stops taking every body.",
            does: "A part fails after `--retries` failed attempts in a row. Each may be sent on a second \
                   connection, too. The upload is aborted.",
            fault_plan: write(ALWAYS, stall),
            retries: FEW,
            settings: &["--stall-timeout", "1s"],
            seen: |_, _| {
                Seen::Fails(end(1, 2..=4, &["the connection broke: no byte ", "in time (tried 2 times)"]))
            },
            ..fair()
        },
        Row {
            name: "put-reset",
            day: "Four connections in ten are reset within the body.",
            does: "The part, or the object of one request, is sent again on another connection.",
            fault_plan: write(OFTEN, WriteFault::Reset),
            ..fair()
        },
        Row {
            name: "put-reset-always",
            day: "Every connection is reset within the body.",
            does: "A part fails after `--retries` failed attempts in a row. The upload is aborted.",
            fault_plan: write(ALWAYS, WriteFault::Reset),
            retries: FEW,
            seen: |_, _| Seen::Fails(end(1, BROKEN, &["the connection broke: ", "(tried 2 times)"])),
            ..fair()
        },
        Row {
            name: "put-slow",
            day: "Every body is taken slowly.",
            does: "A slow origin is no stall. While bytes are taken, nothing is sent twice. An origin that answers \
                   later than `--stall-timeout` after it has taken the last byte is one.",
            fault_plan: write(ALWAYS, WriteFault::Slow(3 << 20)),
            spare: BUSY,
            settings: &["--stall-timeout", "5s"],
            ..fair()
        },
        Row {
            name: "put-flip",
            day: "Four bodies in ten arrive with one wrong bit.",
            does: "S3 compares the bytes with the checksum in the request and refuses them; OSS states its \
                   checksum, which is compared. Either way the part is sent again.",
            fault_plan: write(OFTEN, WriteFault::Flip),
            ..fair()
        },
        Row {
            name: "put-flip-always",
            day: "Every body arrives with one wrong bit.",
            does: "A part fails after `--retries` failed attempts in a row. S3 has no wrong object. OSS has \
                   stored an object of one request by the time its checksum is known: the object has the \
                   wrong bit, and the exit code says so.",
            fault_plan: write(ALWAYS, WriteFault::Flip),
            retries: FEW,
            seen: |_, dialect| {
                let says: &[_] = match dialect {
                    Dialect::S3 => {
                        &["the origin received other bytes than were sent (400 ", "(tried 2 times)"]
                    }
                    Dialect::Oss => {
                        &["the origin has another ", " than was sent: crc64xz is ", "(tried 2 times)"]
                    }
                };
                Seen::Fails(end(1, 2..=2 + for_the_trailer(dialect), says))
            },
            ..fair()
        },
    ]
}

/// At S3 the first part of a run is sent once more where its trailer may be why it was refused.
fn for_the_trailer(dialect: Dialect) -> usize {
    match dialect {
        Dialect::S3 => 1,
        Dialect::Oss => 0,
    }
}

/// What an origin answers instead of storing.
fn refusals() -> Vec<Row> {
    vec![
        Row {
            name: "put-error-500",
            day: "Four requests in ten are answered with 500 InternalError once their body was read.",
            does: "They are retried after a short backoff that doubles, with jitter.",
            fault_plan: error(OFTEN, "InternalError"),
            ..fair()
        },
        Row {
            name: "put-error-500-always",
            day: "Every request is answered with 500 InternalError.",
            does: "Each step of an upload fails after `--retries` failures in a row.",
            fault_plan: error(ALWAYS, "InternalError"),
            retries: FEW,
            seen: |_, _| {
                Seen::Fails(end(1, 2..=2, &["the origin failed (500 InternalError: ", "(tried 2 times)"]))
            },
            ..fair()
        },
        Row {
            name: "put-error-503",
            day: "Three requests in ten are answered with 503 SlowDown.",
            does: "They are retried after a longer backoff.",
            fault_plan: error(0.3, "SlowDown"),
            ..fair()
        },
        Row {
            name: "put-error-503-always",
            day: "Every request is answered with 503 SlowDown.",
            does: "After `--retries` failures in a row the upload fails as throttled: exit code 6.",
            fault_plan: error(ALWAYS, "SlowDown"),
            retries: FEW,
            seen: |_, _| Seen::Fails(throttled()),
            ..fair()
        },
        Row {
            name: "put-error-502",
            day: "Four requests in ten are answered with a bare 502, as by a proxy.",
            does: "The status alone decides: they are retried as after a 500.",
            fault_plan: error(OFTEN, "502"),
            ..fair()
        },
        Row {
            name: "put-early-error-503",
            day: "Three bodies in ten are answered with 503 SlowDown before they are read.",
            does: "The answer is heard while the body is sent. The rest of the body is not sent, and the \
                   connection is not used again.",
            fault_plan: write(0.3, WriteFault::EarlyError(code("SlowDown"))),
            ..fair()
        },
        Row {
            name: "put-early-error-403",
            day: "Every body is answered with 403 AccessDenied before it is read.",
            does: "The answer is heard while the body is sent, and it is final. The upload is aborted. Where the \
                   origin's reset of the connection swallows the answer, the body is sent once more.",
            fault_plan: write(ALWAYS, WriteFault::EarlyError(code("AccessDenied"))),
            seen: |_, _| Seen::Fails(End { attempts: EARLY, ..denied() }),
            ..fair()
        },
        Row {
            name: "put-error-403",
            day: "Two requests in ten are answered with 403 AccessDenied.",
            does: "A retry would bring the same, so the object fails at once and its parts are deleted. Where \
                   that is refused as well, the error says that they are left.",
            fault_plan: error(0.2, "AccessDenied"),
            seen: |_, dialect| Seen::WhenHit(End { attempts: 1..=1 + for_the_trailer(dialect), ..denied() }),
            ..fair()
        },
        Row {
            name: "put-part-and-abort-403",
            day: "Parts are answered with 403 AccessDenied, and so is the request to delete them.",
            does: "The error says that the parts are left. `flatout uploads` lists and deletes them.",
            fault_plan: FaultPlan {
                faults: [WriteStep::Part, WriteStep::Abort]
                    .map(|step| Fault {
                        chance: ALWAYS,
                        kind: FaultKind::Write(WriteFault::Error(code("AccessDenied"), Some(step))),
                    })
                    .to_vec(),
                ..FaultPlan::default()
            },
            seen: |_, dialect| {
                let says = &["access denied (403 AccessDenied", "parts that were sent could not be deleted"];
                Seen::Fails(end(5, 1..=1 + for_the_trailer(dialect), says))
            },
            ..fair()
        },
        Row {
            name: "put-full",
            day: "The origin's disk is full: every body is answered with 507.",
            does: "A retry would bring the same: the upload fails at once and is aborted.",
            fault_plan: write(ALWAYS, WriteFault::EarlyError(code("507"))),
            seen: |_, _| {
                Seen::Fails(end(
                    5,
                    EARLY,
                    &["the origin is full, or a quota is used up (507 XMinioStorageFull"],
                ))
            },
            ..fair()
        },
        Row {
            name: "put-quota",
            day: "A quota is used up: the completion, or the object of one request, is answered with 403 \
                  QuotaExceeded.",
            does: "The upload fails at once and is aborted.",
            fault_plan: FaultPlan {
                faults: [WriteStep::Put, WriteStep::Complete]
                    .map(|step| Fault {
                        chance: ALWAYS,
                        kind: FaultKind::Write(WriteFault::Error(code("QuotaExceeded"), Some(step))),
                    })
                    .to_vec(),
                ..FaultPlan::default()
            },
            seen: |_, _| {
                Seen::Fails(end(5, ONCE, &["the origin is full, or a quota is used up (403 QuotaExceeded"]))
            },
            ..fair()
        },
        Row {
            name: "put-throttle",
            day: "The origin accepts four requests a second and answers the others with 503 SlowDown.",
            does: "Those wait and are retried.",
            fault_plan: FaultPlan { throttle: Some(4.0), ..FaultPlan::default() },
            ..fair()
        },
    ]
}

/// What becomes of answers.
fn answers() -> Vec<Row> {
    vec![
        Row {
            name: "put-lost",
            day: "Four answers in ten are lost: the origin did what was asked, and the connection is reset.",
            does: "The request is sent again. Parts and objects are replaced by themselves. An upload whose \
                   beginning was not heard stays at the origin without parts; `flatout uploads` lists it.",
            fault_plan: write(OFTEN, WriteFault::Lost(None)),
            ..fair()
        },
        Row {
            name: "put-lost-complete",
            day: "Every answer to CompleteMultipartUpload is lost.",
            does: "It is asked for again; then the object itself is asked for, and its checksum tells that it \
                   is the one that was sent.",
            fault_plan: write(ALWAYS, WriteFault::Lost(Some(WriteStep::Complete))),
            retries: FEW,
            ..fair()
        },
        Row {
            name: "put-forgotten",
            day: "The answer to CompleteMultipartUpload is lost, and the next one says that there is no such \
                  upload.",
            does: "The object is asked for: its checksum tells that it is the one that was sent.",
            fault_plan: write(ALWAYS, WriteFault::Forgotten),
            ..fair()
        },
        Row {
            name: "put-hidden-error",
            day: "Four in ten answers to CompleteMultipartUpload have status 200 and a refusal in the body: \
                  InternalError.",
            does: "The body decides: it is retried as after a 500.",
            fault_plan: write(OFTEN, WriteFault::HiddenError(code("InternalError"))),
            ..fair()
        },
        Row {
            name: "put-hidden-error-always",
            day: "Every answer to CompleteMultipartUpload has status 200 and a refusal in the body: \
                  InternalError.",
            does: "The upload fails after `--retries` failures in a row, and is aborted.",
            fault_plan: write(ALWAYS, WriteFault::HiddenError(code("InternalError"))),
            retries: FEW,
            seen: |_, _| {
                Seen::Fails(end(1, 2..=2, &["the origin failed (200 InternalError: ", "(tried 2 times)"]))
            },
            ..fair()
        },
    ]
}

/// Keys, clocks and the way to the origin.
fn others() -> Vec<Row> {
    // A part takes 0.6 s: the token that began the upload is not there for its end.
    let slow = write(ALWAYS, WriteFault::Slow(8 << 20));
    let expires = FaultPlan { expire_token: Some(Duration::from_millis(450)), ..slow };
    vec![
        Row {
            name: "put-expired-token",
            day: "The session token expires during the upload; the provider of keys has new ones.",
            does: "The provider is asked once for each token, and the request is retried with the new keys.",
            fault_plan: expires.clone(),
            keys: Keys::NewTokens,
            ..fair()
        },
        Row {
            name: "put-expired-token-stays",
            day: "The session token expires during the upload, and there is no newer one.",
            does: "The provider is asked once more; the same keys are not sent again. The parts cannot be \
                   deleted either, and the error says that they are left.",
            fault_plan: expires,
            keys: Keys::SameToken,
            seen: |_, dialect| {
                let says: &[_] = match dialect {
                    Dialect::S3 => &["the keys have expired (", "ExpiredToken", "could not be deleted"],
                    Dialect::Oss => {
                        &["the keys have expired (", "SecurityTokenExpired", "could not be deleted"]
                    }
                };
                Seen::Fails(end(5, ONCE, says))
            },
            ..fair()
        },
        Row {
            name: "put-clock-behind",
            day: "This machine's clock is an hour behind the origin's.",
            does: "The refusal is final, and the hint says by how much the clock is wrong.",
            fault_plan: FaultPlan { clock: 3_600, ..FaultPlan::default() },
            seen: |_, _| {
                let says = &[SKEWED, "(403 RequestTimeTooSkewed", "hint: the clock is", "minutes behind"];
                Seen::Fails(skewed(says))
            },
            ..fair()
        },
        Row {
            name: "put-rate-falls",
            day: "The origin's rate falls to a third in the middle of the upload.",
            does: "Nothing: a slow origin is not a broken one.",
            total: Some(Rates { first: 8 << 20, then: vec![(Duration::from_millis(300), (8 << 20) / 3)] }),
            ..fair()
        },
        Row {
            name: "put-dead-address",
            day: "The only address of the origin's name accepts no connection.",
            does: "After `--connect-timeout` the address fails, and is retried `--retries` times.",
            addresses: Addresses::Dead,
            retries: FEW,
            settings: &["--connect-timeout", "500ms"],
            seen: |_, _| Seen::Fails(end(1, 0..=0, &["cannot connect to ", "timed out (tried 2 times)"])),
            ..fair()
        },
        Row {
            name: "put-dead-and-live-address",
            day: "One of the origin's two addresses accepts no connection.",
            does: "It costs a quarter of a second and no retry: then the other address is tried beside it.",
            addresses: Addresses::DeadAndLive,
            retries: 0,
            settings: &["--connect-timeout", "10s"],
            ..fair()
        },
    ]
}
