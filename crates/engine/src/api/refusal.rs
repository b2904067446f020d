//! What an origin's refusal means to the caller: kind, sentence, remedy. One table.

use std::time::{Duration, Instant};

use flatout_wire::head::Head;
use flatout_wire::location::{HttpUrl, Location, LocationError};
use flatout_wire::request::Method;
use flatout_wire::verdict::{self, Reason, Refusal, Verdict};

use crate::base::error::{Error, ErrorKind};
use crate::base::hint::{Feature, Hint, Word, setting, setting_to, text};
use crate::base::operation::Load;
use crate::base::time::unix_seconds;
use flatout_policy::retry::Fault;

/// As many as browsers' older advice (RFC 2068 §10.3) and curl users live with.
pub(crate) const REDIRECTS_MAX: u32 = 5;
/// How often one request follows its bucket: the first answer may name the region, the second the place in
/// it.
pub(crate) const MOVES_MAX: u32 = 2;

/// Signatures are refused beyond it (S3 and OSS: RequestTimeTooSkewed).
const SKEW_REFUSED_S: u64 = 15 * 60;
const SET_THE_CLOCK: &str = "set the clock, for example with chrony or systemd-timesyncd";
pub(crate) const NAME_THE_FINAL_URL: &str = "name the final URL";
const START_AGAIN: &str = "start again to read the new version";

/// A failed attempt: whether to try again, and the error if not.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) fault: Fault,
    pub(crate) error: Error,
    /// The origin's own Retry-After.
    pub(crate) retry_after: Option<Duration>,
    /// The status of the answer, where there was one.
    pub(crate) status: Option<u16>,
    /// What the origin refused it for; `None` where it did not refuse for good.
    pub(crate) reason: Option<Reason>,
    /// When the attempt began, or brought its last byte; `None` where that is not known.
    pub(crate) since: Option<Instant>,
    /// The answer to an earlier attempt was lost: that attempt may have done what was asked.
    pub(crate) was_lost: bool,
}

impl Failure {
    /// Trying again may help.
    pub(crate) fn transient(error: Error) -> Failure {
        Failure {
            fault: Fault::Transient,
            error,
            retry_after: None,
            status: None,
            reason: None,
            since: None,
            was_lost: false,
        }
    }

    /// No address of the origin could be reached.
    pub(crate) fn to_connect(error: Error) -> Failure {
        let fault = if error.is_transient() { Fault::Unreached } else { Fault::Final };
        Failure { fault, ..Failure::transient(error) }
    }

    /// The origin was away for too long.
    pub(crate) fn outage(error: Error, waited: Duration) -> Failure {
        Failure { fault: Fault::Away, ..Failure::transient(error.after_outage(waited)) }
    }

    /// Trying again will not help.
    pub(crate) fn last(error: Error) -> Failure {
        Failure { fault: Fault::Final, ..Failure::transient(error) }
    }

    /// Whether the origin refuses since an object is there already: S3 says so with 412, OSS with 409. S3's
    /// 409 is of a writer at the same time.
    pub(crate) fn is_of_existing(&self) -> bool {
        self.status == Some(412) || self.reason == Some(Reason::Exists)
    }

    /// What the answer says about how much is asked; `None` where it is no sign of the origin's being well.
    pub(crate) fn load(&self) -> Option<Load> {
        match self.fault {
            Fault::Throttled => Some(Load::TooMuch),
            Fault::Final => Some(Load::Fine),
            Fault::Transient | Fault::Unreached | Fault::Unavailable | Fault::Away => None,
        }
    }

    /// Adds when the attempt began, or brought its last byte.
    #[must_use]
    pub(crate) fn since(self, began: Instant) -> Failure {
        Failure { since: self.since.max(Some(began)), ..self }
    }

    /// What is being read is gone: another version stands in its place.
    pub(crate) fn changed(difference: &str) -> Failure {
        let cause = format!("the object was replaced while it was read: {difference}");
        Failure::last(Error::new(ErrorKind::Changed, cause).with_hint(START_AGAIN))
    }

    /// The body was shorter than its head said.
    pub(crate) fn ended_early(missing_bytes: u64) -> Failure {
        let cause = format!("the body ended {missing_bytes} bytes early");
        Failure::transient(Error::new(ErrorKind::Network, cause))
    }

    /// Every redirect led to another.
    pub(crate) fn circle() -> Failure {
        let error = Error::new(ErrorKind::Network, "the origin redirects in a circle");
        Failure::last(error.with_hint(NAME_THE_FINAL_URL))
    }

    /// A redirect whose Location cannot be followed.
    pub(crate) fn redirected_to_no_url(why: &LocationError) -> Failure {
        let error = Error::new(ErrorKind::Network, format!("the origin redirects, and not to a URL: {why}"));
        Failure::last(error.with_hint(NAME_THE_FINAL_URL))
    }

    /// The failure that an answer with this head and body tells of; `None` when it tells of success.
    /// `note` says what the user should know of the keys, where that is more than that there are some.
    pub(crate) fn of_answer(
        head: &Head,
        body: &[u8],
        note: impl FnOnce() -> Option<Hint>,
    ) -> Option<Failure> {
        let verdict = judged(head, body);
        if verdict == Verdict::Done {
            return None;
        }
        let is_explained = !body.is_empty() || head.error_document.is_some();
        Some(Failure { status: Some(head.status), ..Failure::of_verdict(verdict, head, is_explained, note) })
    }

    /// The failure of one key of a deletion, by the code and message that the answer has for it.
    pub(crate) fn of_key(code: &str, message: &str) -> Failure {
        let none = Head::from_http(0, std::iter::empty());
        Failure::of_verdict(verdict::of_key(code, message), &none, true, || None)
    }

    fn of_verdict(
        verdict: Verdict,
        head: &Head,
        is_explained: bool,
        note: impl FnOnce() -> Option<Hint>,
    ) -> Failure {
        let retry_after =
            head.retry_after_s.map(Duration::from_secs).or(head.qos_delay_ms.map(Duration::from_millis));
        let (fault, refusal) = match verdict {
            Verdict::Done => unreachable!("what is done is no failure"),
            Verdict::Again(refusal) => (Fault::Transient, refusal),
            // MinIO says 60 s while it starts: what it means is found out by asking.
            Verdict::Later(refusal) if head.status == 503 && head.qos_delay_ms.is_none() => {
                (Fault::Unavailable, refusal)
            }
            Verdict::Later(refusal) if retry_after.is_none() => (Fault::Unavailable, refusal),
            Verdict::Later(refusal) => (Fault::Throttled, refusal),
            Verdict::Refused(refusal) => (Fault::Final, refusal),
        };
        let error = match fault {
            Fault::Throttled | Fault::Unavailable => {
                Error::new(ErrorKind::Throttled, sentence(&refusal, "the origin asks for less"))
                    .with_hint([text("try again later, or with a smaller "), setting("parallel")])
            }
            Fault::Transient | Fault::Unreached | Fault::Away => {
                Error::new(ErrorKind::Network, sentence(&refusal, "the origin failed"))
                    .with_hint("try again later; if it stays so, look at the origin")
            }
            Fault::Final => refused(&refusal, note(), head, is_explained),
        };
        let reason = (fault == Fault::Final).then(|| refusal.reason());
        Failure { fault, retry_after, reason, ..Failure::transient(error) }
    }
}

impl From<Error> for Failure {
    /// What the network did may be over a moment later; everything else stays as it is.
    fn from(error: Error) -> Failure {
        if error.is_transient() { Failure::transient(error) } else { Failure::last(error) }
    }
}

/// The verdict on an answer. A refused HEAD has no body: what its head says stands in.
fn judged(head: &Head, body: &[u8]) -> Verdict {
    let document = head.error_document.as_deref().filter(|_| body.is_empty()).unwrap_or(body);
    let with_head = |refusal: Refusal| Refusal {
        request_id: refusal.request_id.or_else(|| head.request_id.clone()),
        region: refusal.region.or_else(|| head.bucket_region.clone()),
        ec: refusal.ec.or_else(|| head.ec.clone()),
        ..refusal
    };
    match verdict::of(head.status, document) {
        Verdict::Done => Verdict::Done,
        Verdict::Again(refusal) => Verdict::Again(with_head(refusal)),
        Verdict::Later(refusal) => Verdict::Later(with_head(refusal)),
        Verdict::Refused(refusal) => Verdict::Refused(with_head(refusal)),
    }
}

/// Where a refused answer says that the bucket lies: the region, the URL that a redirect leads to, or both.
pub(crate) fn whereabouts(head: &Head, body: &[u8]) -> Option<(Option<String>, Option<HttpUrl>)> {
    let Verdict::Refused(refusal) = judged(head, body) else { return None };
    let region = match refusal.reason() {
        Reason::WrongRegion { region } => region,
        Reason::WrongEndpoint { .. } | Reason::Redirect => None,
        _ => return None,
    };
    let location = head.location.as_deref().and_then(|location| Location::parse(location).ok());
    let url = match location {
        Some(Location::Http { url }) if matches!(head.status, 301 | 307 | 308) => Some(url),
        _ => None,
    };
    Some((region, url))
}

/// Whether an answer refuses the keys for their age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyRejection {
    /// It does not.
    No,
    /// It may: the words also mean keys that never were, or there are no words.
    Possible,
    /// It says so.
    Certain,
}

/// Whether new keys may bring another answer. A refused HEAD has no body to say why: S3 answers an expired
/// token with 400.
pub(crate) fn key_rejection(head: &Head, body: &[u8], method: Method) -> KeyRejection {
    let Verdict::Refused(refusal) = judged(head, body) else { return KeyRejection::No };
    match refusal.code.as_str() {
        "ExpiredToken"
        | "InvalidToken"
        | "RequestExpired"
        | "SecurityTokenExpired"
        | "InvalidSecurityToken"
        | "TokenRefreshRequired" => KeyRejection::Certain,
        "InvalidAccessKeyId" => KeyRejection::Possible,
        _ if method == Method::Head && matches!(head.status, 400 | 401 | 403) => KeyRejection::Possible,
        _ => KeyRejection::No,
    }
}

/// A refusal that is not `is_explained` has nothing but its status: the refusal of a HEAD.
fn refused(refusal: &Refusal, note: Option<Hint>, head: &Head, is_explained: bool) -> Error {
    let skew = |least_s| head.date.and_then(|date| skew(unix_seconds(), date, least_s));
    // OSS alone numbers its errors, and has flags of its own.
    let is_oss = refusal.ec.is_some();
    let keys = match skew(SKEW_REFUSED_S).filter(|_| !is_explained) {
        Some(skew) => format!("the clock is {skew}, which may be why: {SET_THE_CLOCK}").into(),
        None => note.clone().unwrap_or("check that the keys are right and the policy allows it".into()),
    };
    let (kind, what, hint) = match refusal.reason() {
        Reason::NotFound => (
            ErrorKind::NotFound,
            "no such object",
            [text("check the key; "), Word::Feature(Feature::List), text(" shows what a bucket holds")]
                .into(),
        ),
        Reason::NoSuchBucket => (
            ErrorKind::NotFound,
            "no such bucket",
            Hint::from([
                text("check the bucket's name, the region and the endpoint; "),
                Word::Feature(Feature::ShowSettings),
                text(" has them"),
            ]),
        ),
        Reason::AccessDenied => (ErrorKind::Denied, "access denied", keys),
        Reason::BadCredentials => (ErrorKind::Denied, "the origin does not accept the keys", keys),
        Reason::ExpiredCredentials => (
            ErrorKind::Denied,
            "the keys have expired",
            note.unwrap_or_else(|| {
                let show = Word::Feature(Feature::ShowSettings);
                [text("renew them; "), show, text(" says where they come from")].into()
            }),
        ),
        Reason::ClockSkew => {
            let what = "this machine's clock differs too much from the origin's";
            let hint = match skew(2) {
                Some(skew) => format!("the clock is {skew}: {SET_THE_CLOCK}").into(),
                None => SET_THE_CLOCK.into(),
            };
            (ErrorKind::Denied, what, hint)
        }
        Reason::Changed => {
            (ErrorKind::Changed, "the object was replaced while it was read", START_AGAIN.into())
        }
        Reason::BadRange => {
            let hint = [Word::Feature(Feature::Stat), text(" tells its size")];
            (ErrorKind::Usage, "the object has no such range", hint.into())
        }
        Reason::WrongRegion { region } => {
            let name = if is_oss { "oss-region" } else { "region" };
            let hint = match region {
                Some(region) => [text("use "), setting_to(name, region)],
                None => [text("name its region with "), setting(name)],
            };
            (ErrorKind::Usage, "the bucket is in another region", hint.into())
        }
        Reason::WrongEndpoint { endpoint } => {
            let endpoint = match is_oss || endpoint.ends_with(".aliyuncs.com") {
                true => setting_to("oss-endpoint", endpoint),
                false => setting_to("endpoint-url", format!("https://{endpoint}")),
            };
            (ErrorKind::Usage, "the bucket is reached by another endpoint", [text("use "), endpoint].into())
        }
        Reason::WrongAddressing => (
            ErrorKind::Usage,
            "the origin wants the bucket in the host's name",
            [text("use "), setting_to("addressing", "virtual"), text(", and an endpoint that is a name")]
                .into(),
        ),
        Reason::Archived => (
            ErrorKind::Unsupported,
            "the object is archived",
            "restore it first, and wait until that is done".into(),
        ),
        Reason::Redirect => {
            let (what, hint) = redirected(head);
            (ErrorKind::Network, what, hint)
        }
        Reason::UploadGone => (
            ErrorKind::NotFound,
            "the upload no longer exists",
            "start it again: it was completed, aborted or tidied up meanwhile".into(),
        ),
        Reason::TooLarge => (
            ErrorKind::Usage,
            "the object or a part of it is too large for the origin",
            "S3 and OSS take at most 5 GiB in one request, and 10,000 parts of an object".into(),
        ),
        Reason::TooSmall => (
            ErrorKind::Usage,
            "a part is too small for the origin",
            "make the parts larger: S3 takes 5 MiB and more, OSS 100 KiB and more".into(),
        ),
        Reason::BadParts => {
            (ErrorKind::Network, "the origin has other parts than were uploaded", "upload it again".into())
        }
        Reason::Mismatch => (
            ErrorKind::Corrupt,
            "the origin received other bytes than were sent",
            "try again; if it stays so, look at the network and at this machine's memory".into(),
        ),
        Reason::Full => (
            ErrorKind::Denied,
            "the origin is full, or a quota is used up",
            "delete what is no longer needed, or raise the quota".into(),
        ),
        Reason::Exists => {
            (ErrorKind::Usage, "it exists already", "choose another name, or allow to overwrite it".into())
        }
        Reason::ExistsAndIsOurs => {
            (ErrorKind::Usage, "it exists already, and is yours", "use it, or choose another name".into())
        }
        Reason::NotEmpty => (
            ErrorKind::Usage,
            "the bucket is not empty",
            "delete its objects and unfinished uploads first".into(),
        ),
        Reason::BadKey => (
            ErrorKind::Usage,
            "the origin does not take this key",
            "choose a shorter or plainer one: S3 takes 1,024 bytes, OSS 1,023".into(),
        ),
        Reason::BadOptions => (
            ErrorKind::Usage,
            "the origin does not take an option of the object",
            "check metadata, tags, storage class, access list and encryption".into(),
        ),
        Reason::Unsupported => (
            ErrorKind::Unsupported,
            "the origin does not offer this",
            "check the URL and the options: not every origin offers all that S3 does".into(),
        ),
        Reason::Other if refusal.code == "InvalidBucketName" => {
            (ErrorKind::Usage, "this is no name of a bucket", "check the bucket's name".into())
        }
        Reason::Other => (
            ErrorKind::Network,
            "the origin refused",
            "check the URL, and that this is an origin of objects".into(),
        ),
    };
    let error = Error::new(kind, sentence(refusal, what)).with_hint(hint);
    match refusal.reason() {
        Reason::NoSuchBucket => error.in_no_bucket(),
        Reason::Full => error.in_full_origin(),
        _ => error,
    }
}

/// A redirect that is not followed. What it leads to may hold a signature: of its URL only the endpoint is
/// shown.
fn redirected(head: &Head) -> (&'static str, Hint) {
    let Some(location) = head.location.as_deref() else {
        return ("the origin redirects and does not say where", NAME_THE_FINAL_URL.into());
    };
    let hint = match Location::parse(location) {
        Ok(Location::Http { url }) => {
            let endpoint = setting_to("endpoint-url", url.endpoint.to_string());
            Hint::from([text("if you trust it: "), endpoint, text(", or its "), setting("region")])
        }
        _ => Hint::from([
            text("use the endpoint of the bucket's region, with "),
            setting("endpoint-url"),
            text(" or "),
            setting("region"),
        ]),
    };
    ("the origin redirects elsewhere", hint)
}

/// How far off this machine's clock is, by the date of the origin's answer; nothing where it is less than
/// `least_s`.
fn skew(now: u64, date: u64, least_s: u64) -> Option<String> {
    let direction = if now > date { "ahead" } else { "behind" };
    let words = match now.abs_diff(date) {
        seconds if seconds < least_s => return None,
        seconds @ 0..=119 => format!("{seconds} seconds"),
        seconds @ 120..=7_199 => format!("{} minutes", seconds / 60),
        seconds @ 7_200..=172_799 => format!("{} hours", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    };
    Some(format!("{words} {direction}"))
}

/// `what (404 NoSuchKey: The specified key does not exist, request 17A…)`
fn sentence(refusal: &Refusal, what: &str) -> String {
    // One key of many has no status of its own.
    let mut words = if refusal.status == 0 { String::new() } else { refusal.status.to_string() };
    if !refusal.code.is_empty() && !refusal.code_is_ours {
        words += &format!(" {}", refusal.code);
    }
    if !refusal.message.is_empty() && refusal.message != refusal.code {
        words += &format!(": {}", refusal.message.trim_end_matches('.'));
    }
    if let Some(ec) = &refusal.ec {
        words += &format!(", EC {ec}");
    }
    if let Some(request_id) = &refusal.request_id {
        words += &format!(", request {request_id}");
    }
    format!("{what} ({})", words.trim_start_matches([' ', ':', ',']))
}

pub(crate) fn is_redirect(status: u16) -> bool {
    matches!(status, 301 | 302 | 303 | 307 | 308)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origins_own_wait_is_kept() {
        let failure = |header: &str, value: &str| {
            let head = Head::from_http(503, [(header, value.as_bytes())].into_iter());
            Failure::of_answer(&head, b"", || None).expect("a failure").retry_after
        };
        assert_eq!(failure("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(failure("x-oss-qos-delay-time", "250"), Some(Duration::from_millis(250)));
        assert_eq!(failure("x", "y"), None);
    }

    #[test]
    fn a_refusal_without_a_word_names_a_clock_that_is_far_off() {
        let hint = |date: u64, body: &[u8]| {
            let mut head = Head::from_http(403, [].into_iter());
            head.date = Some(date);
            let failure = Failure::of_answer(&head, body, || None).expect("a failure");
            failure.error.hint().expect("a hint").to_string()
        };
        let now = unix_seconds();
        assert!(hint(now - 7_200, b"").contains("the clock is 2 hours ahead"), "{}", hint(now - 7_200, b""));
        assert!(hint(now - 60, b"").contains("check that the keys"));
        let explained = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>";
        assert!(hint(now - 7_200, explained).contains("check that the keys"), "the origin has its reason");
    }

    #[test]
    fn skews_in_words() {
        let rows = [
            (1_000_000, 1_000_000, None),
            (1_000_001, 1_000_000, None),
            (1_000_090, 1_000_000, Some("90 seconds ahead")),
            (1_000_000, 1_001_020, Some("17 minutes behind")),
            (1_010_000, 1_000_000, Some("2 hours ahead")),
            (0, 1_000_000, Some("11 days behind")),
        ];
        for (now, date, expected) in rows {
            assert_eq!(skew(now, date, 2).as_deref(), expected, "{now} {date}");
        }
    }
}
