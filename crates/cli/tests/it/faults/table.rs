//! The table: every fault of the wind tunnel, and what must be seen of it wherever the bytes land or come
//! from and whoever is asked. The rows here are those of downloads; those of uploads are in `uploads.rs`.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use flatout_server::{Fault, FaultKind, FaultPlan, Listen, Rates};

/// What is done: each is a command of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// `flatout cp URL FILE`, over an earlier file of that name.
    File,
    /// `flatout cat URL`.
    Stream,
    /// `flatout cp -r URL/ FOLDER`: an empty object, some small ones and one of several parts.
    Folder,
    /// `flatout bench peer --landing memory`.
    Memory,
    /// `flatout bench peer`.
    Nowhere,
    /// `flatout cp FILE URL`, of two parts.
    SendFile,
    /// `flatout cp - URL`, as much.
    SendStream,
    /// `flatout cp -r FOLDER URL/`: an empty file, small ones and one of two parts.
    SendFolder,
}

impl Work {
    /// Whether it is an upload.
    pub fn sends(self) -> bool {
        UPLOADS.contains(&self)
    }
}

pub const DOWNLOADS: [Work; 5] = [Work::File, Work::Stream, Work::Folder, Work::Memory, Work::Nowhere];

pub const UPLOADS: [Work; 3] = [Work::SendFile, Work::SendStream, Work::SendFolder];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    S3,
    Oss,
}

pub const DIALECTS: [Dialect; 2] = [Dialect::S3, Dialect::Oss];

/// What is to be seen in a cell. What each part met with is counted in the tunnel's log.
#[derive(Clone, Debug)]
pub enum Seen {
    /// Exit code 0 and the right bytes: each part is asked for once, and once more for each answer that was
    /// no good.
    Whole,
    /// Always this end. In a folder, objects that met with nothing land all the same.
    Fails(End),
    /// This end where chance has it that an answer is hit, and else the right bytes.
    WhenHit(End),
    /// There is nothing to see, and this is why.
    Nothing(&'static str),
}

/// How a run fails.
#[derive(Clone, Debug)]
pub struct End {
    pub exit: i32,
    /// How often that which was asked for most often was asked for.
    pub attempts: RangeInclusive<usize>,
    /// What the error says, in this order.
    pub says: &'static [&'static str],
}

/// What the endpoint's name stands for. An origin that has a bad address has a good one too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    One,
    /// The name has two addresses, the first of which takes no connection.
    DeadAndLive,
    /// The name has one address, which takes no connection.
    Dead,
    /// The name has two addresses, the first of which is slow.
    SlowAndLive,
}

impl Addresses {
    /// Where the origin listens, the bad address first; nothing is said of where it does without one.
    pub fn listen(self, port: u16) -> Vec<Listen> {
        let [bad, good] = [2, 1].map(|last| Listen::from(SocketAddr::from(([127, 0, 0, last], port))));
        match self {
            Addresses::One => Vec::new(),
            Addresses::DeadAndLive | Addresses::Dead => vec![Listen { dead: true, ..bad }, good],
            Addresses::SlowAndLive => vec![Listen { rate: Some(SLOW_ADDRESS), ..bad }, good],
        }
    }

    /// `--resolve` of the run, which asks `localhost` then.
    pub fn resolve(self, port: u16) -> Option<String> {
        match self {
            Addresses::One => None,
            Addresses::Dead => Some(format!("localhost:{port}:127.0.0.2")),
            Addresses::DeadAndLive | Addresses::SlowAndLive => {
                Some(format!("localhost:{port}:127.0.0.2,127.0.0.1"))
            }
        }
    }

    /// Whether a run that took so long has tried a dead address.
    pub fn have_tried_dead(self, took: Duration) -> bool {
        match self {
            Addresses::Dead => took >= DEAD,
            Addresses::DeadAndLive => took >= HEAD_START,
            Addresses::One | Addresses::SlowAndLive => false,
        }
    }
}

/// Where the keys come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    Variables,
    /// From a program that gives a new token each time.
    NewTokens,
    /// From a program that gives the same token each time.
    SameToken,
}

/// A fault and its cells.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: &'static str,
    /// Whom it concerns.
    pub works: &'static [Work],
    /// The fault, in a sentence.
    pub day: &'static str,
    /// The reaction of flatout.
    pub does: &'static str,
    pub fault_plan: FaultPlan,
    /// Of all connections together.
    pub total: Option<Rates>,
    pub addresses: Addresses,
    pub keys: Keys,
    /// `--retries` of the run.
    pub retries: u32,
    /// How many answers of the whole run, at most, that were good may be asked for once more.
    pub spare: usize,
    /// Settings in which the run differs from [`SETTINGS`].
    pub settings: &'static [&'static str],
    pub seen: fn(Work, Dialect) -> Seen,
}

/// What all runs are given.
pub const SETTINGS: [&str; 10] = [
    "--part-size",
    "128KiB",
    "--parallel",
    "4",
    "--stall-timeout",
    "10s",
    "--connect-timeout",
    "5s",
    "--outage-timeout",
    "0s",
];

/// Giving up by chance is as good as impossible: three in ten answers are bad, and 0.3^21 is 10^-11.
const MANY: u32 = 20;
/// Giving up is what is to be seen.
pub const FEW: u32 = 1;
/// What a part is asked for when every attempt is in vain: once, as often again as there are retries, and
/// once more where the first attempt was worth its while.
const IN_VAIN: RangeInclusive<usize> = 2..=3;
pub const ONCE: RangeInclusive<usize> = 1..=1;

/// Where a second of silence is a stall: a busy machine may be silent for as long.
pub const BUSY: usize = 2;
/// Bytes a second, of all connections to the address together.
const SLOW_ADDRESS: u64 = 256 << 10;
/// What connecting to a dead address takes at least: twice the row's timeout, or the head start that it has
/// where another is tried beside it.
const DEAD: Duration = Duration::from_secs(1);
const HEAD_START: Duration = Duration::from_millis(250);

const STALL: FaultKind = FaultKind::Stall(Duration::from_secs(60));
const SOME: f64 = 0.3;
const FEWER: f64 = 0.2;
pub const ALWAYS: f64 = 1.0;

impl Row {
    /// Fair weather.
    pub fn fair() -> Row {
        Row {
            name: "",
            works: &DOWNLOADS,
            day: "",
            does: "",
            fault_plan: FaultPlan::default(),
            total: None,
            addresses: Addresses::One,
            keys: Keys::Variables,
            retries: MANY,
            spare: 0,
            settings: &[],
            seen: |_, _| Seen::Whole,
        }
    }
}

/// A tunnel with one fault.
pub fn blows(chance: f64, kind: FaultKind) -> FaultPlan {
    FaultPlan { faults: vec![Fault { chance, kind }], ..FaultPlan::default() }
}

fn error(chance: f64, code: &str) -> FaultPlan {
    blows(chance, FaultKind::Error(code.parse().unwrap()))
}

pub fn end(exit: i32, attempts: RangeInclusive<usize>, says: &'static [&'static str]) -> End {
    End { exit, attempts, says }
}

/// All rows, in the page's order.
pub fn rows() -> Vec<Row> {
    [bodies(), refusals(), objects(), keys(), ways(), super::uploads::rows()].concat()
}

/// What happens to bodies on their way.
fn bodies() -> Vec<Row> {
    vec![
        Row {
            name: "stall",
            day: "Three responses in ten fall silent within the body.",
            does: "A body that is silent for several times the usual silence is requested again \
                   from where it stopped, on another connection: at most two in a shard and one in twenty \
                   parts. Beyond that, `--stall-timeout` without a byte is a stall: the connection is \
                   dropped, landed bytes stay, and the rest is requested again.",
            fault_plan: blows(SOME, STALL),
            spare: BUSY,
            settings: &["--stall-timeout", "1s"],
            ..Row::fair()
        },
        Row {
            name: "stall-always",
            day: "Every response falls silent within the body.",
            does: "A part fails after `--retries` attempts in a row that each landed less than 64 \
                   KiB.",
            fault_plan: blows(ALWAYS, STALL),
            retries: FEW,
            settings: &["--parallel", "16", "--stall-timeout", "1s"],
            seen: |_, _| {
                Seen::Fails(end(1, IN_VAIN, &["the connection broke: no byte came in time (tried "]))
            },
            ..Row::fair()
        },
        Row {
            name: "reset",
            day: "Three connections in ten are reset within the body.",
            does: "The rest of the part is requested on another connection.",
            fault_plan: blows(SOME, FaultKind::Reset),
            ..Row::fair()
        },
        Row {
            name: "reset-always",
            day: "Every connection is reset within the body.",
            does: "A part fails after `--retries` attempts in a row that each landed less than 64 \
                   KiB.",
            fault_plan: blows(ALWAYS, FaultKind::Reset),
            retries: FEW,
            seen: |_, _| {
                Seen::Fails(end(1, IN_VAIN, &["the connection broke: Connection reset by peer (tried "]))
            },
            ..Row::fair()
        },
        Row {
            name: "truncate",
            day: "Three bodies in ten end cleanly before their length is reached, as behind a proxy \
                  that lost its origin.",
            does: "Lengths are counted, so a short body is never taken for complete. The rest is \
                   requested again.",
            fault_plan: blows(SOME, FaultKind::Truncate),
            ..Row::fair()
        },
        Row {
            name: "truncate-always",
            day: "Every body ends before its length is reached.",
            does: "A part fails after `--retries` attempts in a row that each landed less than 64 \
                   KiB.",
            fault_plan: blows(ALWAYS, FaultKind::Truncate),
            retries: FEW,
            seen: |_, _| {
                Seen::Fails(end(
                    1,
                    IN_VAIN,
                    &["the origin closed the connection ", " bytes before the end of the body"],
                ))
            },
            ..Row::fair()
        },
        Row {
            name: "slow",
            day: "Every body is slow: a part takes longer than the stall timeout.",
            does: "A slow body is no stall. While bytes arrive, nothing fails and nothing is \
                   requested twice.",
            fault_plan: blows(ALWAYS, FaultKind::Slow(100 << 10)),
            spare: BUSY,
            settings: &["--parallel", "8", "--stall-timeout", "1s"],
            ..Row::fair()
        },
        Row {
            name: "wrong-range",
            day: "Three ranges in ten are answered with another range, as by a cache that mixes \
                  them up.",
            does: "Content-Range and length are compared with the request before a byte lands; the \
                   range is requested again.",
            fault_plan: blows(SOME, FaultKind::WrongRange),
            ..Row::fair()
        },
        Row {
            name: "wrong-range-always",
            day: "Every range is answered with another range.",
            does: "Nothing lands. With `-r`, objects that fit in one part are requested whole, and \
                   those are right.",
            fault_plan: blows(ALWAYS, FaultKind::WrongRange),
            retries: FEW,
            seen: |_, _| {
                Seen::Fails(end(1, 2..=2, &["the answer does not match the request: asked for bytes "]))
            },
            ..Row::fair()
        },
        Row {
            name: "flip",
            day: "Two bodies in ten have one wrong bit; lengths and checksums are those of the true \
                  bytes.",
            does: "The bytes are compared with the object's checksum: they never get the file's \
                   name, and are not requested again. Bytes in a pipe cannot be taken back; the exit code \
                   reports them. If the origin states no checksum of the whole, and for a range of an \
                   object, the flip cannot be detected: `verified: none` says so.",
            fault_plan: blows(FEWER, FaultKind::Flip),
            seen: |_, _| Seen::WhenHit(corrupt()),
            ..Row::fair()
        },
        Row {
            name: "flip-always",
            day: "Every body has one wrong bit.",
            does: "The object's checksum detects it, as above.",
            fault_plan: blows(ALWAYS, FaultKind::Flip),
            seen: |_, _| Seen::Fails(corrupt()),
            ..Row::fair()
        },
    ]
}

fn corrupt() -> End {
    end(1, ONCE, &["the bytes are not those of the origin: ", " is ", ", stated is "])
}

/// What an origin answers instead of the object.
fn refusals() -> Vec<Row> {
    vec![
        Row {
            name: "error-500",
            day: "Three requests in ten are answered with 500 InternalError.",
            does: "They are retried after a short backoff that doubles, with jitter.",
            fault_plan: error(SOME, "InternalError"),
            ..Row::fair()
        },
        Row {
            name: "error-500-always",
            day: "Every request is answered with 500 InternalError.",
            does: "A part, a HEAD and a page of a listing fail after `--retries` failures in a row.",
            fault_plan: error(ALWAYS, "InternalError"),
            retries: FEW,
            seen: |_, _| {
                Seen::Fails(end(1, 2..=2, &["the origin failed (500 InternalError: ", "(tried 2 times)"]))
            },
            ..Row::fair()
        },
        Row {
            name: "error-503",
            day: "Two requests in ten are answered with 503 SlowDown.",
            does: "They are retried after a longer backoff, without limit while other requests \
                   succeed.",
            fault_plan: error(FEWER, "SlowDown"),
            ..Row::fair()
        },
        Row {
            name: "error-503-always",
            day: "Every request is answered with 503 SlowDown.",
            does: "After `--retries` failures in a row, with nothing landing meanwhile, the \
                   transfer fails as throttled: exit code 6.",
            fault_plan: error(ALWAYS, "SlowDown"),
            retries: FEW,
            seen: |_, _| Seen::Fails(throttled()),
            ..Row::fair()
        },
        Row {
            name: "error-502",
            day: "Three requests in ten are answered with a bare 502, without a document, as by a \
                  proxy that does not reach its origin.",
            does: "The status alone decides: they are retried as after a 500.",
            fault_plan: error(SOME, "502"),
            ..Row::fair()
        },
        Row {
            name: "error-502-always",
            day: "Every request is answered with a bare 502.",
            does: "A part, a HEAD and a page of a listing fail after `--retries` failures in a row.",
            fault_plan: error(ALWAYS, "502"),
            retries: FEW,
            seen: |_, _| Seen::Fails(end(1, 2..=2, &["the origin failed (502", "(tried 2 times)"])),
            ..Row::fair()
        },
        Row {
            name: "error-429",
            day: "Two requests in ten are answered with 429 TooManyRequests.",
            does: "They are retried as after a 503.",
            fault_plan: error(FEWER, "429"),
            ..Row::fair()
        },
        Row {
            name: "error-429-always",
            day: "Every request is answered with 429 TooManyRequests.",
            does: "The transfer fails as throttled, as with 503.",
            fault_plan: error(ALWAYS, "429"),
            retries: FEW,
            seen: |_, _| Seen::Fails(end(6, 2..=2, &["the origin asks for less (429 TooManyRequests"])),
            ..Row::fair()
        },
        Row {
            name: "throttle",
            day: "The origin accepts four requests a second and answers the others with 503 \
                  SlowDown.",
            does: "Those wait and are retried; a part does not fail while other requests succeed.",
            fault_plan: FaultPlan { throttle: Some(4.0), ..FaultPlan::default() },
            settings: &["--parallel", "16"],
            ..Row::fair()
        },
        Row {
            name: "throttle-out",
            day: "The origin accepts hardly any request.",
            does: "The transfer fails as throttled, as with 503 always.",
            fault_plan: FaultPlan { throttle: Some(0.01), ..FaultPlan::default() },
            retries: FEW,
            seen: |_, dialect| {
                let says: &[_] = match dialect {
                    Dialect::S3 => &["the origin asks for less (503 SlowDown"],
                    Dialect::Oss => &["the origin asks for less (503 TotalQpsLimitExceeded"],
                };
                Seen::Fails(end(6, 2..=6, says))
            },
            ..Row::fair()
        },
        Row {
            name: "qos-delay",
            day: "The origin accepts four requests a second and tells the others how long they were \
                  held back.",
            does: "The retry waits for `x-oss-qos-delay-time`, as for `Retry-After`.",
            fault_plan: FaultPlan {
                throttle: Some(4.0),
                qos_delay: Some(Duration::from_millis(400)),
                ..FaultPlan::default()
            },
            settings: &["--parallel", "16"],
            seen: |_, dialect| match dialect {
                Dialect::Oss => Seen::Whole,
                Dialect::S3 => Seen::Nothing("the header is one of OSS"),
            },
            ..Row::fair()
        },
        Row {
            name: "error-403",
            day: "Two requests in ten are answered with 403 AccessDenied.",
            does: "A retry would bring the same, so the object fails at once. The HEAD that asks S3 \
                   for a checksum may be refused without harm: the object is complete, and `verified: \
                   none` says why.",
            fault_plan: error(FEWER, "AccessDenied"),
            seen: |_, _| Seen::WhenHit(denied()),
            ..Row::fair()
        },
        Row {
            name: "error-403-always",
            day: "Every request is answered with 403 AccessDenied.",
            does: "The first refusal ends the run, with a hint about keys and policy.",
            fault_plan: error(ALWAYS, "AccessDenied"),
            seen: |_, _| Seen::Fails(denied()),
            ..Row::fair()
        },
        Row {
            name: "error-404",
            day: "Two requests in ten are answered with 404 NoSuchKey, as when the object is \
                  deleted during the read.",
            does: "The object fails at once.",
            fault_plan: error(FEWER, "NoSuchKey"),
            seen: |_, _| Seen::WhenHit(missing()),
            ..Row::fair()
        },
        Row {
            name: "error-404-always",
            day: "Every request is answered with 404 NoSuchKey.",
            does: "The first refusal ends the run.",
            fault_plan: error(ALWAYS, "NoSuchKey"),
            seen: |_, _| Seen::Fails(missing()),
            ..Row::fair()
        },
    ]
}

pub fn throttled() -> End {
    end(6, 2..=2, &["the origin asks for less (503 SlowDown"])
}

pub fn denied() -> End {
    end(5, ONCE, &["access denied (403 AccessDenied"])
}

fn missing() -> End {
    end(1, ONCE, &["no such object (404 NoSuchKey"])
}

/// Objects that are not what they were.
fn objects() -> Vec<Row> {
    vec![Row {
        name: "replace",
        day: "After a few requests the object is replaced by another of the same length.",
        does: "Every range is pinned to the version of the first response, and every response is \
               compared with it: bytes of two versions are never mixed. Into a file or a folder, such an \
               object is read once more from the start. A stream fails, and the user restarts it.",
        // Of three parts.
        spare: 2,
        fault_plan: FaultPlan { replace_after: Some(3), ..FaultPlan::default() },
        seen: |work, _| match work {
            Work::File | Work::Folder => Seen::Whole,
            _ => Seen::Fails(end(1, ONCE, &["the object was replaced while it was read"])),
        },
        ..Row::fair()
    }]
}

/// Who asks, and when.
fn keys() -> Vec<Row> {
    // A part takes 0.64 s, the object four rounds of that: no token lasts for all of it.
    let slow = blows(ALWAYS, FaultKind::Slow(200 << 10));
    let expires = FaultPlan { expire_token: Some(Duration::from_millis(450)), ..slow };
    vec![
        Row {
            name: "expired-token",
            day: "The session token expires during the read; the provider of keys has new ones.",
            does: "Each time the provider is asked once. All parts wait for its answer, and each is \
                   retried with the new keys.",
            fault_plan: expires.clone(),
            keys: Keys::NewTokens,
            settings: &["--parallel", "2"],
            ..Row::fair()
        },
        Row {
            name: "expired-token-stays",
            day: "The session token expires during the read, and there is no newer one.",
            does: "The provider is asked once more; the same keys are not sent again.",
            fault_plan: expires,
            keys: Keys::SameToken,
            settings: &["--parallel", "2"],
            seen: |_, dialect| {
                Seen::Fails(end(
                    5,
                    ONCE,
                    match dialect {
                        Dialect::S3 => &["the keys have expired (", "ExpiredToken"],
                        Dialect::Oss => &["the keys have expired (", "SecurityTokenExpired"],
                    },
                ))
            },
            ..Row::fair()
        },
        Row {
            name: "clock-behind",
            day: "This machine's clock is an hour behind the origin's.",
            does: "The refusal is final, and the hint says by how much the clock is wrong.",
            fault_plan: FaultPlan { clock: 3_600, ..FaultPlan::default() },
            seen: |_, _| {
                Seen::Fails(skewed(&[
                    SKEWED,
                    "(403 RequestTimeTooSkewed",
                    "hint: the clock is",
                    "minutes behind",
                ]))
            },
            ..Row::fair()
        },
        Row {
            name: "clock-ahead",
            day: "This machine's clock is three hours ahead of the origin's.",
            does: "The refusal is final, and the hint says by how much the clock is wrong.",
            fault_plan: FaultPlan { clock: -3 * 3_600, ..FaultPlan::default() },
            seen: |_, _| {
                Seen::Fails(skewed(&[
                    SKEWED,
                    "(403 RequestTimeTooSkewed",
                    "hint: the clock is",
                    "hours ahead",
                ]))
            },
            ..Row::fair()
        },
    ]
}

pub const SKEWED: &str = "this machine's clock differs too much from the origin's";

pub fn skewed(says: &'static [&'static str]) -> End {
    end(5, ONCE, says)
}

/// The way to the origin.
fn ways() -> Vec<Row> {
    vec![
        Row {
            name: "rate-falls",
            day: "The origin's rate falls to a third in the middle of the transfer.",
            does: "Nothing: a slow origin is not a broken one.",
            total: Some(Rates { first: 1 << 20, then: vec![(Duration::from_millis(400), 341 << 10)] }),
            ..Row::fair()
        },
        Row {
            name: "dead-address",
            day: "The only address of the origin's name accepts no connection.",
            does: "After `--connect-timeout` the address fails, and is retried `--retries` times.",
            addresses: Addresses::Dead,
            retries: FEW,
            settings: &["--connect-timeout", "500ms"],
            seen: |_, _| Seen::Fails(end(1, 0..=0, &["cannot connect to ", "timed out (tried 2 times)"])),
            ..Row::fair()
        },
        Row {
            name: "dead-and-live-address",
            day: "One of the origin's two addresses accepts no connection.",
            does: "It costs a quarter of a second and no retry: then the other address is tried \
                   beside it. After its connect timeout the dead address gets no connections for 10 s, \
                   then one connection tries it again.",
            addresses: Addresses::DeadAndLive,
            retries: 0,
            settings: &["--connect-timeout", "10s"],
            ..Row::fair()
        },
        Row {
            name: "slow-and-live-address",
            day: "One of the origin's two addresses is slow.",
            does: "Both are used. If the connections of one address carry less than half of the \
                   others', it gets no connections for a while, and its bodies in flight continue on the \
                   other.",
            addresses: Addresses::SlowAndLive,
            ..Row::fair()
        },
    ]
}
