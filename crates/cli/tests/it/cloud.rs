//! A bucket in memory that fails when it is told to: enough of S3 and OSS for a sync, with pages of three
//! keys, so that listings break off between any two names.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};

use md5::{Digest, Md5};

use crate::raw::{Answer, Asked, Raw, Then};

/// Keys of a page.
const PAGE: usize = 3;

/// An object.
#[derive(Clone, Debug)]
pub struct Object {
    pub body: Vec<u8>,
    /// Last-Modified, in seconds since 1970.
    pub modified_s: i64,
    /// The time of the file that it was made of.
    pub mtime: Option<String>,
}

/// What is done to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error, and nothing done.
    Error,
    /// An error, and all done.
    LateError,
    /// Access is refused.
    Denied,
    /// There is too much to do.
    Busy,
    /// The body ends early, and the connection with it.
    Cut,
    /// Of a deletion: each second key is refused.
    Some,
}

type Faults = Box<dyn Fn(&Asked) -> Option<Fault> + Send + Sync>;

/// Objects by `bucket/key`, and the origin that serves them.
pub struct Cloud {
    pub raw: Raw,
    objects: Arc<Mutex<BTreeMap<String, Object>>>,
}

impl Cloud {
    /// `faults` is asked about each request before it is answered, and may wait.
    pub fn start(faults: impl Fn(&Asked) -> Option<Fault> + Send + Sync + 'static) -> Cloud {
        let objects = Arc::<Mutex<BTreeMap<String, Object>>>::default();
        let (served, faults): (_, Faults) = (objects.clone(), Box::new(faults));
        let raw = Raw::start(move |asked| {
            let fault = faults(asked);
            answer(&served, asked, fault)
        });
        Cloud { raw, objects }
    }

    pub fn objects(&self) -> MutexGuard<'_, BTreeMap<String, Object>> {
        self.objects.lock().unwrap()
    }

    /// What lies below this, such as `bucket/folder/`: names and contents.
    pub fn below(&self, prefix: &str) -> BTreeMap<String, Vec<u8>> {
        let named = |(name, object): (&String, &Object)| {
            Some((name.strip_prefix(prefix)?.to_owned(), object.body.clone()))
        };
        self.objects().iter().filter_map(named).collect()
    }

    pub fn put(&self, name: &str, body: &[u8], modified_s: i64) {
        let object = Object { body: body.to_vec(), modified_s, mtime: None };
        self.objects().insert(name.to_owned(), object);
    }
}

pub fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

fn answer(objects: &Mutex<BTreeMap<String, Object>>, asked: &Asked, fault: Option<Fault>) -> Answer {
    match fault {
        Some(Fault::Error) => return error(asked, "500 Internal Server Error", "InternalError"),
        Some(Fault::Busy) => return error(asked, "503 Service Unavailable", "SlowDown"),
        Some(Fault::Denied) => return error(asked, "403 Forbidden", "AccessDenied"),
        _ => {}
    }
    let answer = done(&mut objects.lock().unwrap(), asked, fault == Some(Fault::Some));
    match fault {
        Some(Fault::LateError) => error(asked, "500 Internal Server Error", "InternalError"),
        Some(Fault::Cut) => {
            let end = answer.bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let kept = end + (answer.bytes.len() - end) / 2;
            Answer { bytes: answer.bytes[..kept].to_vec(), then: Then::Close }
        }
        _ => answer,
    }
}

fn error(asked: &Asked, status: &str, code: &str) -> Answer {
    let body = format!("<Error><Code>{code}</Code><Message>m</Message></Error>");
    let body = if asked.method() == "HEAD" { "" } else { &body };
    Answer::new(status, &[("content-length", &body.len().to_string())], body.as_bytes())
}

fn done(objects: &mut BTreeMap<String, Object>, asked: &Asked, refuses_some: bool) -> Answer {
    let (path, query) = asked.target().split_once('?').unwrap_or((asked.target(), ""));
    let name = decoded(path.trim_start_matches('/'));
    match asked.method() {
        "GET" if query.contains("list-type=2") => list(objects, name.trim_end_matches('/'), query),
        "GET" | "HEAD" => match objects.get(&name) {
            Some(object) => read(asked, object),
            None => error(asked, "404 Not Found", "NoSuchKey"),
        },
        "POST" => delete(objects, name.trim_end_matches('/'), asked, refuses_some),
        "PUT" => {
            let (object, is_copy) =
                match asked.header("x-amz-copy-source").or(asked.header("x-oss-copy-source")) {
                    Some(from) => match objects.get(decoded(from).trim_start_matches('/')) {
                        Some(from) => (from.clone(), true),
                        None => return error(asked, "404 Not Found", "NoSuchKey"),
                    },
                    None => {
                        let mtime = asked.header("x-amz-meta-mtime").or(asked.header("x-oss-meta-mtime"));
                        let mtime = mtime.map(str::to_owned);
                        (Object { body: asked.body.clone(), modified_s: 0, mtime }, false)
                    }
                };
            let etag = etag(&object);
            objects.insert(name, Object { modified_s: now_s(), ..object });
            let body = format!("<CopyObjectResult><ETag>{etag}</ETag></CopyObjectResult>");
            let body = if is_copy { &body } else { "" };
            let headers = [("content-length", body.len().to_string()), ("etag", etag)];
            Answer::new(
                "200 OK",
                &headers.each_ref().map(|(name, value)| (*name, value.as_str())),
                body.as_bytes(),
            )
        }
        _ => error(asked, "405 Method Not Allowed", "MethodNotAllowed"),
    }
}

fn read(asked: &Asked, object: &Object) -> Answer {
    let etag = etag(object);
    if asked.header("if-match").is_some_and(|wanted| wanted != etag) {
        return error(asked, "412 Precondition Failed", "PreconditionFailed");
    }
    let size = object.body.len();
    let range = asked.range(size);
    let mut headers = vec![("etag", etag), ("last-modified", http_date(object.modified_s))];
    for name in ["x-amz-meta-mtime", "x-oss-meta-mtime"] {
        headers.extend(object.mtime.clone().map(|mtime| (name, mtime)));
    }
    headers.push(("content-length", range.len().to_string()));
    let is_range = asked.header("range").is_some();
    if is_range && range.is_empty() {
        return error(asked, "416 Requested Range Not Satisfiable", "InvalidRange");
    }
    if is_range {
        headers.push(("content-range", format!("bytes {}-{}/{size}", range.start, range.end - 1)));
    }
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let body = if asked.method() == "HEAD" { &[] } else { &object.body[range] };
    Answer::new(if is_range { "206 Partial Content" } else { "200 OK" }, &headers, body)
}

/// The token is the last key of the page before, in hexadecimal digits: OSS escapes tokens and S3 does not.
fn list(objects: &BTreeMap<String, Object>, bucket: &str, query: &str) -> Answer {
    let value = |wanted: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(name, _)| *name == wanted).map(|(_, value)| decoded(&value.replace('+', "%20")))
    };
    let prefix = value("prefix").unwrap_or_default();
    let of_token = |token: String| decoded(&token.as_bytes().chunks(2).fold(String::new(), escaped));
    let behind = value("continuation-token").map(of_token).or(value("start-after")).unwrap_or_default();
    let most = value("max-keys").and_then(|most| most.parse().ok()).unwrap_or(PAGE).min(PAGE);
    let in_bucket = |(name, object)| -> Option<(&str, &Object)> {
        let (of, key) = <String as AsRef<str>>::as_ref(name).split_once('/')?;
        (of == bucket && key.starts_with(prefix.as_str()) && *key > *behind).then_some((key, object))
    };
    let mut keys = objects.iter().filter_map(in_bucket);
    let mut body = "<ListBucketResult><EncodingType>url</EncodingType>".to_owned();
    let mut last = None;
    for (key, object) in keys.by_ref().take(most) {
        let (shown, size, etag, time) =
            (encoded(key), object.body.len(), etag(object), iso(object.modified_s));
        write!(body, "<Contents><Key>{shown}</Key><LastModified>{time}</LastModified>").unwrap();
        write!(body, "<ETag>{}</ETag><Size>{size}</Size></Contents>", etag.replace('"', "&quot;")).unwrap();
        last = Some(key);
    }
    let is_truncated = keys.next().is_some();
    write!(body, "<IsTruncated>{is_truncated}</IsTruncated>").unwrap();
    if let (true, Some(last)) = (is_truncated, last) {
        let token: String = last.bytes().map(|byte| format!("{byte:02x}")).collect();
        write!(body, "<NextContinuationToken>{token}</NextContinuationToken>").unwrap();
    }
    body += "</ListBucketResult>";
    Answer::new("200 OK", &[("content-length", &body.len().to_string())], body.as_bytes())
}

fn delete(objects: &mut BTreeMap<String, Object>, bucket: &str, asked: &Asked, refuses_some: bool) -> Answer {
    let wanted = String::from_utf8(asked.body.clone()).unwrap();
    let mut body = "<DeleteResult>".to_owned();
    for (at, rest) in wanted.split("<Key>").skip(1).enumerate() {
        let shown = rest.split_once("</Key>").unwrap().0;
        if refuses_some && at.is_multiple_of(2) {
            write!(body, "<Error><Key>{shown}</Key><Code>InternalError</Code><Message>m</Message></Error>")
                .unwrap();
            continue;
        }
        let key =
            shown.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
        objects.remove(&format!("{bucket}/{}", key.replace("&amp;", "&")));
        write!(body, "<Deleted><Key>{shown}</Key></Deleted>").unwrap();
    }
    body += "</DeleteResult>";
    Answer::new("200 OK", &[("content-length", &body.len().to_string())], body.as_bytes())
}

fn etag(object: &Object) -> String {
    let digest = Md5::digest(&object.body);
    digest.iter().fold("\"".to_owned(), |text, byte| format!("{text}{byte:02x}")) + "\""
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next().unwrap(), rest.next().unwrap()];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).unwrap()
}

/// The text, and two hexadecimal digits of another byte.
fn escaped(text: String, digits: &[u8]) -> String {
    text + "%" + std::str::from_utf8(digits).unwrap()
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |text, byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'/' => {
            text + &char::from(byte).to_string()
        }
        byte => text + &format!("%{byte:02X}"),
    })
}

/// Year, month, day, hour, minute, second (Howard Hinnant's days_from_civil, backwards).
fn civil(seconds: i64) -> [i64; 6] {
    let (days, rest) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) =
        (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    [year_of_era + era * 400 + i64::from(month <= 2), month, day, rest / 3_600, rest / 60 % 60, rest % 60]
}

fn iso(seconds: i64) -> String {
    let [year, month, day, hour, minute, second] = civil(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

fn http_date(seconds: i64) -> String {
    let [year, month, day, hour, minute, second] = civil(seconds);
    let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let weekday =
        ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][seconds.div_euclid(86_400).rem_euclid(7) as usize];
    let month = months[month as usize - 1];
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}
