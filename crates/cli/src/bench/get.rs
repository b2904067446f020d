//! `flatout bench get`: repetitions in turn, each in a process of its own, floor and flatout side by side.

use std::fs::File;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use flatout_engine::{Client, Dialect, Get, Landing};
use flatout_wire::endpoint::Scheme;
use flatout_wire::location::Location;
use flatout_wire::range::Span;

use crate::args::BenchGet;
use crate::bench::many;
use crate::bench::report::{BenchReport, HEADER, Op};
use crate::bench::session::{BenchSession, SearchEffort};
use crate::bench::spec::{ChildWork, LandingKind, LocalEnd, Spec};
use crate::console::{Carries, Console};
use crate::download::start;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::origin;

pub fn get(args: &BenchGet, console: &Console) -> Result<Exit, Failure> {
    refuse_existing(&args.landing)?;
    if args.recursive {
        return many::get(args, console);
    }
    let parts = args.parts.as_deref().map(create).transpose()?;
    let bench = prepare(&args.source, &args.knobs, args.landing.clone(), console)?.with_rows(parts.is_some());
    let mut report = BenchReport::new(console, bench.spec().end.clone(), parts, HEADER)?;
    let floor = if args.floor { Some(bench.best_shape(SearchEffort::Thorough)?) } else { None };
    bench.take_turns(&mut report, Op::Get, floor, args.repeat)?;
    report.finish()?;
    Ok(Exit::Clean)
}

/// Asks for one byte, which tells size, version and address.
pub fn prepare<'a>(
    source: &str,
    knobs: &Knobs,
    landing: LandingKind,
    console: &'a Console,
) -> Result<BenchSession<'a>, Failure> {
    let location = origin::object("read", source)?;
    let client = origin::silent_client(knobs, &[Dialect::of(&location)])?;
    let probe = Get::new(location.clone(), Landing::Nowhere).with_span(Span::Slice(0..1)).with_part_records();
    let (transfer, armed) = start(&client, probe, console)?;
    let probed = transfer.wait().map_err(|error| match client.stat(&location) {
        // There is no first byte.
        Ok(stat) if stat.version.size == Some(0) => empty(&location),
        _ => error.into(),
    })?;
    drop(armed);
    let bytes = probed.version.size.filter(|bytes| *bytes > 0).ok_or_else(|| empty(&location))?;
    let address = match probed.parts.first() {
        Some(part) => part.address,
        None => address_of(&location)?,
    };
    let spec = Spec {
        url: source.to_owned(),
        knobs: knobs.pairs(),
        end: LocalEnd::Landing(landing),
        work: ChildWork::Get,
        bytes,
        etag: probed.version.etag.filter(|etag| etag.starts_with('"')),
        address,
        rows: false,
        progress: console.bar_wanted(Carries::Lines),
    };
    let tls = is_secure(&location, knobs)?;
    Ok(BenchSession::of(location.name().to_owned(), spec, tls, console))
}

/// Whether the object is read over TLS.
fn is_secure(location: &Location, knobs: &Knobs) -> Result<bool, Failure> {
    let found = flatout_ambient::gather(knobs.given())?;
    Ok(Client::new(found.into())?.signed_get(location)?.endpoint.scheme == Scheme::Https)
}

fn empty(location: &Location) -> Failure {
    Failure::usage(format!("bench: {location}: is empty or of unknown size"))
        .with_hint("name an object with bytes in it")
}

fn create(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| Failure::local("write", path.display(), &error))
}

/// A measurement makes its file new and removes it: it must not be somebody's.
pub fn refuse_existing(landing: &LandingKind) -> Result<(), Failure> {
    match landing {
        LandingKind::File(path) if path.symlink_metadata().is_ok() => {
            let failure = Failure::usage(format!("bench: {}: exists already", path.display()));
            Err(failure
                .with_hint("name a file that is not there: it is made new each time and removed afterwards"))
        }
        _ => Ok(()),
    }
}

/// For an engine that kept no record of the probe.
fn address_of(location: &Location) -> Result<SocketAddr, Failure> {
    let failure = || Failure::usage(format!("bench: {location}: its address is unknown"));
    let Location::Http { url } = location else { return Err(failure()) };
    let mut addresses =
        (url.endpoint.host.as_str(), url.endpoint.port).to_socket_addrs().map_err(|_| failure())?;
    addresses.next().ok_or_else(failure)
}
