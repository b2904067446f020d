//! `flatout bench put`: uploads in turn, each in a process of its own, floor and flatout side by side.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use flatout_engine::{Client, Dialect, ErrorKind};
use flatout_wire::endpoint::{Endpoint, Scheme};
use flatout_wire::location::Location;

use crate::args::BenchPut;
use crate::bench::report::{BenchReport, HEADER_OF_PUTS, Op};
use crate::bench::session::{BenchSession, SearchEffort};
use crate::bench::spec::{ChildWork, LocalEnd, Payload, Spec};
use crate::bench::upload::MARK;
use crate::console::{Carries, Console};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::origin;
use crate::upload::unreadable;

pub fn put(args: &BenchPut, console: &Console) -> Result<Exit, Failure> {
    let bench = prepare(args.file.as_deref(), args.size, &args.target, &args.knobs, console)?;
    let mut report = BenchReport::new(console, bench.spec().end.clone(), None, HEADER_OF_PUTS)?;
    let floor = if args.floor { Some(bench.best_shape(SearchEffort::Thorough)?) } else { None };
    bench.take_turns(&mut report, Op::Put, floor, args.repeat)?;
    report.finish()?;
    Ok(Exit::Clean)
}

/// Finds out what can be known before anything is sent.
pub fn prepare<'a>(
    file: Option<&Path>,
    size: Option<u64>,
    target: &str,
    knobs: &Knobs,
    console: &'a Console,
) -> Result<BenchSession<'a>, Failure> {
    let location = origin::object("upload", target)?;
    let (payload, bytes) = payload(file, size)?;
    // A run that is interrupted is to leave nothing, and none is to go on where another ended.
    let knobs = knobs.clone().with("no-resume", "true");
    let client = origin::silent_client(&knobs, &[Dialect::of(&location)])?;
    refuse_plain(&location)?;
    refuse_other_objects(&client, &location)?;
    let endpoint = client.way(&location)?.endpoint;
    let spec = Spec {
        url: target.to_owned(),
        knobs: knobs.pairs(),
        end: LocalEnd::Payload(payload),
        work: ChildWork::Put,
        bytes,
        etag: None,
        address: address_of(&endpoint)?,
        rows: false,
        progress: console.bar_wanted(Carries::Lines),
    };
    let tls = endpoint.scheme == Scheme::Https;
    Ok(BenchSession::of(location.name().to_owned(), spec, tls, console))
}

fn payload(file: Option<&Path>, size: Option<u64>) -> Result<(Payload, u64), Failure> {
    let (payload, bytes) = match file {
        None => (Payload::Synthetic, size.unwrap_or(0)),
        Some(path) => {
            let found = path.metadata().map_err(|error| unreadable(&path.display().to_string(), &error))?;
            if !found.is_file() {
                let failure = Failure::usage(format!("bench: {}: is no regular file", path.display()));
                return Err(failure.with_hint("name a file, or leave it out for --size"));
            }
            (Payload::File(path.to_owned()), found.len())
        }
    };
    if bytes == 0 {
        return Err(Failure::usage("bench: nothing to send").with_hint("name a file with bytes in it"));
    }
    Ok((payload, bytes))
}

fn refuse_plain(location: &Location) -> Result<(), Failure> {
    match location.in_bucket() {
        Some(_) => Ok(()),
        None => {
            let failure = Failure::usage(format!("upload: {location}: a plain URL cannot be written to"));
            Err(failure.with_hint("name a bucket by s3:// or oss://, with --endpoint-url or --oss-endpoint"))
        }
    }
}

/// Each run replaces the object. So it is absent before, or `bench put` wrote it.
fn refuse_other_objects(client: &Client, location: &Location) -> Result<(), Failure> {
    let found = match client.stat(location) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            let failure = Failure::from(error);
            let message = format!("bench: whether an object is there is not known: {}", failure.message);
            let allow =
                "keys that may not list get this for an object that is not there: allow s3:ListBucket";
            let hint = if failure.exit == Exit::Refused { Some(allow.into()) } else { failure.hint };
            return Err(Failure { message, hint, ..failure });
        }
    };
    if found.metadata.iter().any(|(name, _)| name == MARK) {
        return Ok(());
    }
    let failure =
        Failure::usage(format!("bench: {location}: exists already, and no `flatout bench put` wrote it"));
    Err(failure.with_hint("name an object that is not there: each run writes it anew, and it stays"))
}

fn address_of(endpoint: &Endpoint) -> Result<SocketAddr, Failure> {
    let failed = |error: &io::Error| Failure::local("bench", endpoint, error);
    let mut addresses = (endpoint.host.as_str(), endpoint.port).to_socket_addrs().map_err(|e| failed(&e))?;
    addresses.next().ok_or_else(|| failed(&io::Error::other("the name has no address")))
}
