//! Facts that the origin itself tells: what may be read, what there is to read, when its first byte comes,
//! how late it is.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use flatout_engine::{Client, Entry, ErrorKind, Get, Landing, Listed, Report};
use flatout_wire::location::Location;
use flatout_wire::range::Span;

use crate::exit;
use crate::failure::Failure;

/// What is read of an object to see that it can be, and when it comes.
const FIRST_BYTES: u64 = 64 << 10;
/// Longer than the waits that doctor sets together with their one repetition: what is slower than that is a
/// trickle.
const PATIENCE: Duration = Duration::from_secs(15);

/// What came of asking.
pub struct OriginProbe {
    /// What was asked: `read of s3://…`, `list of s3://…`.
    pub asked: String,
    /// What there is to read; `None` where the listing has nothing that can be.
    pub outcome: Result<Option<ProbedObject>, Failure>,
    /// How many keys the first page of the listing had, where there was one.
    pub listed: Option<usize>,
    /// By how many seconds the origin's clock is ahead of ours.
    pub clock_ahead_s: Option<i64>,
}

/// An object that can be read.
pub struct ProbedObject {
    pub location: Location,
    pub bytes: Option<u64>,
    /// From the call to the first byte, on a new connection.
    pub cold_s: Option<f64>,
    /// From the call to the first byte, on the connection that is open by then.
    pub warm_s: Option<f64>,
    /// Whether the origin answers ranges, or sends the whole whatever is asked for.
    pub serves_ranges: bool,
}

impl OriginProbe {
    /// Reads the first bytes of the object, or of the largest that the first page of the listing has.
    pub fn run(client: &Client, location: &Location) -> OriginProbe {
        let mut origin_probe = OriginProbe {
            asked: format!("read of {location}"),
            outcome: Ok(None),
            listed: None,
            clock_ahead_s: None,
        };
        let names_a_folder =
            location.in_bucket().is_some_and(|(_, key)| key.is_empty() || key.ends_with('/'));
        origin_probe.outcome = match names_a_folder {
            true => origin_probe.list(client, location),
            false => match open(client, location) {
                // What is no object may be the beginning of some keys.
                Err(missing) if is_missing(&missing) && location.in_bucket().is_some() => {
                    let mut instead = OriginProbe { asked: String::new(), outcome: Ok(None), ..origin_probe };
                    match instead.list(client, location) {
                        Ok(Some(object)) => {
                            origin_probe = instead;
                            Ok(Some(object))
                        }
                        Ok(None) | Err(_) => Err(missing),
                    }
                }
                opened => opened.map(Some),
            },
        };
        origin_probe.clock_ahead_s = client.origin_ahead_s();
        origin_probe
    }

    /// The largest object below a prefix that can be read. What is asked is told of as far as it came.
    fn list(&mut self, client: &Client, location: &Location) -> Result<Option<ProbedObject>, Failure> {
        self.asked = format!("list of {location}");
        let objects = list_first(client, location, PATIENCE)?;
        self.listed = Some(objects.len());
        let largest = objects.into_iter().filter(can_be_read).max_by_key(|listed| listed.size);
        let Some(location) = largest.and_then(|listed| location.with_key(listed.key)) else {
            return Ok(None);
        };
        let opened = open(client, &location).inspect_err(|_| self.asked = format!("read of {location}"));
        opened.map(Some)
    }
}

/// The objects on the first page of a listing.
fn list_first(client: &Client, location: &Location, patience: Duration) -> Result<Vec<Listed>, Failure> {
    let mut listing = client.list(location, true)?;
    let (page, arriving) = mpsc::channel();
    // A page that trickles in is no stall to the engine: a thread of its own waits for it, and may be left
    // behind.
    let waiting = thread::Builder::new().name("listing".to_owned());
    let started = waiting.spawn(move || {
        // Once it is late, the receiver is gone.
        let _ = page.send(listing.page());
    });
    started.map_err(|refused| Failure::local("list", location, &refused))?;
    match arriving.recv_timeout(patience) {
        Ok(entries) => Ok(entries?.into_iter().filter_map(object_of).collect()),
        Err(RecvTimeoutError::Timeout) => Err(late(format!("list: {location}: its first page"), patience)),
        Err(RecvTimeoutError::Disconnected) => {
            Err(Failure::internal(format!("list: {location}: the listing came to no end")))
        }
    }
}

fn object_of(entry: Entry) -> Option<Listed> {
    match entry {
        Entry::Object(listed) => Some(listed),
        Entry::Prefix(_) => None,
    }
}

/// `what` was waited for that long.
fn late(what: String, patience: Duration) -> Failure {
    Failure {
        exit: exit::of(ErrorKind::Timeout),
        kind: ErrorKind::Timeout.name().into(),
        message: format!("{what} did not arrive within {} seconds", patience.as_secs()),
        hint: None,
    }
}

fn is_missing(failure: &Failure) -> bool {
    failure.kind == ErrorKind::NotFound.name()
}

fn can_be_read(listed: &Listed) -> bool {
    let class = listed.storage_class.as_deref().unwrap_or_default().to_ascii_lowercase();
    listed.size > 0 && !["archive", "glacier"].iter().any(|cold| class.contains(cold))
}

fn open(client: &Client, location: &Location) -> Result<ProbedObject, Failure> {
    let mut object = ProbedObject {
        location: location.clone(),
        bytes: None,
        cold_s: None,
        warm_s: None,
        serves_ranges: true,
    };
    match read_first(client, location, 0) {
        Ok(report) => (object.bytes, object.cold_s) = (report.version.size, first_byte_s(&report)),
        // No range of an empty object can be had.
        Err(refused) => match client.stat(location) {
            Ok(stat) if stat.version.size == Some(0) => return Ok(ProbedObject { bytes: Some(0), ..object }),
            _ => return Err(refused),
        },
    }
    // From the second byte on: who knows no ranges cannot answer that.
    match read_first(client, location, 1) {
        Ok(report) => object.warm_s = first_byte_s(&report),
        Err(refused) if refused.kind == ErrorKind::Unsupported.name() => object.serves_ranges = false,
        // There is no second byte.
        Err(refused) if refused.kind == ErrorKind::Usage.name() => {}
        Err(refused) => return Err(refused),
    }
    Ok(object)
}

fn first_byte_s(report: &Report) -> Option<f64> {
    report.parts.first().map(|part| part.first_byte_s)
}

fn read_first(client: &Client, location: &Location, from: u64) -> Result<Report, Failure> {
    let get = Get::new(location.clone(), Landing::Nowhere).with_span(Span::Slice(from..FIRST_BYTES));
    let transfer = client.get(get.with_part_records())?;
    if !transfer.wait_timeout(PATIENCE) {
        return Err(late(format!("read: {location}: its first bytes"), PATIENCE));
    }
    Ok(transfer.wait()?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use flatout_engine::Config;
    use flatout_settings::Settings;

    use super::*;

    #[test]
    fn a_listing_that_trickles_in_is_given_up() {
        let origin = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", origin.local_addr().unwrap());
        let trickle = thread::spawn(move || {
            let (mut socket, _) = origin.accept().unwrap();
            let _ = socket.read(&mut [0; 4096]);
            let mut said = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            // Until the client is gone, and with it the connection.
            while said.is_ok() {
                thread::sleep(Duration::from_millis(5));
                said = socket.write_all(b" ");
            }
        });
        let settings = Settings { endpoint_url: Some(url), ..Settings::default() };
        let client = Client::new(Config { settings, ..Config::default() }).unwrap();
        let bucket = Location::parse("s3://bucket").unwrap();
        let failure = list_first(&client, &bucket, Duration::from_secs(1)).unwrap_err();
        assert_eq!(failure.message, "list: s3://bucket: its first page did not arrive within 1 seconds");
        assert_eq!(failure.kind, "timeout");
        drop(client);
        trickle.join().unwrap();
    }
}
