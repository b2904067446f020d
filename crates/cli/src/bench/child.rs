//! The child's side of a repetition: prepare the landing, start the clock, fetch, stop the clock, answer.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flatout_engine::{Client, Get, PartRecord, Report, stream};
use flatout_wire::endpoint::Scheme;
use flatout_wire::location::Location;
use flatout_wire::request::Request;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::bench::drain::Drain;
use crate::bench::floor::{self, Ground, Job, Shape, Tls};
use crate::bench::many;
use crate::bench::origin_process::{OriginProcess, Watched};
use crate::bench::run::{Row, Run, ttfb_ms};
use crate::bench::samples::{Sampler, peak_gbit};
use crate::bench::spec::{Answer, Landing, Spec, Work};
use crate::console::Console;
use crate::download::start;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::{origin, sys};

/// The hidden command `__bench-child`: a spec on standard input, answers on standard output.
pub fn child(console: &Console) -> Result<Exit, Failure> {
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::local("read", "standard input", &error))?;
    let spec: Spec = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("bench child: {error}: this command is started by flatout bench"))
    })?;
    let (answer, exit) = match measure(&spec, console) {
        Ok(run) => (Answer::Done(Box::new(run)), Exit::Clean),
        Err(failure) => (Answer::Failed(failure.clone()), failure.exit),
    };
    let line = serde_json::to_string(&answer).expect("an answer is plain JSON");
    writeln!(io::stdout(), "{line}").map_err(|error| Failure::stdout(&error))?;
    Ok(exit)
}

fn measure(spec: &Spec, console: &Console) -> Result<Run, Failure> {
    let knobs = Knobs::from_pairs(&spec.knobs);
    let object = || origin::object("read", &spec.source);
    match spec.work {
        Work::Get => get(spec, &object()?, &knobs, console),
        Work::Floor(shape) => floor(spec, &object()?, &knobs, shape),
        Work::GetMany => many::measure(spec, &knobs, console),
        Work::FloorMany(shape) => many::measure_floor(spec, &knobs, shape),
    }
}

/// What is ready before the clock starts.
enum Prepared {
    Nowhere,
    Memory(&'static mut [u8]),
    Stream(Drain, File),
    /// Made by the run, removed by the parent.
    File(PathBuf),
}

impl Prepared {
    fn new(spec: &Spec) -> Result<Prepared, Failure> {
        Ok(match &spec.landing {
            Landing::Nowhere => Prepared::Nowhere,
            Landing::Memory => Prepared::Memory(touched(spec.bytes)?),
            Landing::Stream => {
                let (drain, pipe) = Drain::start()
                    .map_err(|error| Failure::local("bench", "the process that drains", &error))?;
                Prepared::Stream(drain, pipe)
            }
            Landing::File(path) => Prepared::File(path.clone()),
        })
    }
}

/// A buffer whose pages are all there. It is never given back: this process ends with the run.
fn touched(bytes: u64) -> Result<&'static mut [u8], Failure> {
    let refused = || Failure::local("bench", "memory", &io::Error::from_raw_os_error(libc::ENOMEM));
    let bytes = usize::try_from(bytes).map_err(|_| refused())?;
    let mut buffer: Vec<u8> = Vec::new();
    buffer.try_reserve_exact(bytes).map_err(|_| refused())?;
    // Ones, since zeros might come from the kernel's zero page without being touched.
    buffer.resize(bytes, 1);
    Ok(buffer.leak())
}

/// Everything that is read before and after the fetch.
pub struct Clock {
    cpu_seconds: f64,
    origin: Option<Watched>,
    pub start: Instant,
}

impl Clock {
    pub fn start(spec: &Spec) -> Clock {
        let origin = OriginProcess::of(spec.address).map(OriginProcess::watch);
        Clock { cpu_seconds: sys::cpu_seconds(), origin, start: Instant::now() }
    }

    pub fn stop(self, bytes: u64, sampler: Sampler) -> Elapsed {
        let seconds = self.start.elapsed().as_secs_f64();
        let cpu_seconds = sys::cpu_seconds() - self.cpu_seconds;
        let origin_busy = self.origin.and_then(|origin| origin.busy());
        let gbit_peak = peak_gbit(&sampler.finish(seconds, bytes));
        Elapsed { seconds, cpu_seconds, origin_busy, gbit_peak }
    }
}

/// What was read from it.
pub struct Elapsed {
    seconds: f64,
    cpu_seconds: f64,
    origin_busy: Option<f64>,
    gbit_peak: f64,
}

fn get(spec: &Spec, location: &Location, knobs: &Knobs, console: &Console) -> Result<Run, Failure> {
    let client = origin::client(knobs)?;
    // Whoever has the keys may take his time, and that is not what is measured.
    client.signed_get(location)?;
    let prepared = Prepared::new(spec)?;
    let clock = Clock::start(spec);
    let fetch = Fetch { spec, client: &client, location, console, clock };
    let (report, elapsed) = match prepared {
        Prepared::Nowhere => fetch.into_landing(flatout_engine::Landing::Nowhere)?,
        Prepared::Memory(buffer) => fetch.into_landing(sys::lend(buffer))?,
        Prepared::File(path) => fetch.into_landing(flatout_engine::Landing::File(path))?,
        Prepared::Stream(drain, pipe) => {
            let outcome = fetch.through(pipe)?;
            drain.finish().map_err(|error| Failure::local("bench", "the process that drains", &error))?;
            outcome
        }
    };
    let words = Words {
        retries: report.retries,
        connections: report.connections,
        shards: report.shards,
        verified: report.verified.to_string(),
    };
    Ok(run(report.bytes, elapsed, report.parts.iter().map(row).collect(), spec, words))
}

/// One fetch by the engine, with the clock running.
struct Fetch<'a> {
    spec: &'a Spec,
    client: &'a Client,
    location: &'a Location,
    console: &'a Console,
    clock: Clock,
}

impl Fetch<'_> {
    fn into_landing(self, landing: flatout_engine::Landing) -> Result<(Report, Elapsed), Failure> {
        let get = Get::new(self.location.clone(), landing).with_part_records();
        let (transfer, _armed) = start(self.client, get, self.console)?;
        let watch = transfer.watch();
        let sampler =
            Sampler::start(self.clock.start, self.spec.progress, move || watch.progress().landed_bytes);
        let report = transfer.wait()?;
        let elapsed = self.clock.stop(report.bytes, sampler);
        Ok((report, elapsed))
    }

    /// As `flatout cat` does it.
    fn through(self, mut pipe: File) -> Result<(Report, Elapsed), Failure> {
        let (writer, mut reader) = stream();
        let landing = flatout_engine::Landing::Stream(writer);
        let get = Get::new(self.location.clone(), landing).with_part_records();
        let (transfer, _armed) = start(self.client, get, self.console)?;
        let watch = transfer.watch();
        let sampler =
            Sampler::start(self.clock.start, self.spec.progress, move || watch.progress().landed_bytes);
        while let Some(chunk) = reader.next() {
            pipe.write_all(chunk).map_err(|error| Failure::local("write", "the measured pipe", &error))?;
        }
        let report = transfer.wait()?;
        let elapsed = self.clock.stop(report.bytes, sampler);
        Ok((report, elapsed))
    }
}

/// What was measured, of either side; the engine's and the floor's own words for the rest come from the caller.
pub fn run(bytes: u64, elapsed: Elapsed, rows: Vec<Row>, spec: &Spec, words: Words) -> Run {
    Run {
        bytes,
        objects: None,
        seconds: elapsed.seconds,
        gbit_peak: elapsed.gbit_peak,
        cpu_seconds: elapsed.cpu_seconds,
        peak_rss_mib: peak_rss_mib(),
        ttfb_ms_p50: ttfb_ms(&rows, 50.0),
        ttfb_ms_p99: ttfb_ms(&rows, 99.0),
        parts: rows.len() as u32,
        retries: words.retries,
        connections: words.connections,
        shards: words.shards,
        verified: words.verified,
        origin_busy: elapsed.origin_busy,
        rows: if spec.rows { rows } else { Vec::new() },
    }
}

/// What each side says of itself.
pub struct Words {
    pub retries: u32,
    pub connections: u32,
    pub shards: u32,
    pub verified: String,
}

fn row(part: &PartRecord) -> Row {
    Row {
        index: part.index,
        address: part.address.to_string(),
        connection: part.connection,
        start_s: part.start_s,
        first_byte_s: part.first_byte_s,
        end_s: part.end_s,
        bytes: part.bytes,
        attempts: part.attempts,
    }
}

fn floor(spec: &Spec, location: &Location, knobs: &Knobs, shape: Shape) -> Result<Run, Failure> {
    let failed = |error: io::Error| Failure::local("floor", spec.address, &error);
    let found = flatout_ambient::gather(knobs.given())?;
    if found.settings.proxy.is_some() {
        return Err(Failure::usage(format!("floor: {location}: the floor knows no proxy"))
            .with_hint("leave out --floor, or the proxy"));
    }
    let part_bytes = found.settings.part_bytes;
    let ca_bundle = found.settings.ca_bundle.clone();
    let request = Client::new(found.into())?.signed_get(location)?;
    let tls = match request.endpoint.scheme {
        Scheme::Http => None,
        Scheme::Https => Some(tls(&request, ca_bundle.as_deref())?),
    };
    let prepared = Prepared::new(spec)?;
    let clock = Clock::start(spec);
    let landed_bytes = Arc::new(AtomicU64::new(0));
    let counter = landed_bytes.clone();
    let sampler = Sampler::start(clock.start, spec.progress, move || counter.load(Ordering::Relaxed));
    let (etag, address, bytes, start) = (spec.etag.clone(), spec.address, spec.bytes, clock.start);
    let job = Job { request, tls, etag, address, bytes, part_bytes, start, landed_bytes };
    let (mut ground, drain) = ground(prepared, spec.bytes).map_err(failed)?;
    let rows = floor::fetch(&job, shape, &mut ground).map_err(failed)?;
    let elapsed = clock.stop(spec.bytes, sampler);
    drop(ground);
    drain.map_or(Ok(()), Drain::finish).map_err(failed)?;
    let words = Words {
        retries: 0,
        connections: shape.connections,
        shards: shape.shards(),
        verified: "none: the floor does not look at the bytes".into(),
    };
    Ok(run(spec.bytes, elapsed, rows, spec, words))
}

/// The floor's landing. A file is made and reserved while the clock runs, as the engine makes and reserves its own.
fn ground(prepared: Prepared, bytes: u64) -> io::Result<(Ground, Option<Drain>)> {
    Ok(match prepared {
        Prepared::Nowhere => (Ground::Nowhere, None),
        Prepared::Memory(buffer) => (Ground::Memory(buffer), None),
        Prepared::Stream(drain, pipe) => (Ground::Pipe(pipe), Some(drain)),
        Prepared::File(path) => {
            let file = OpenOptions::new().write(true).create_new(true).open(path)?;
            sys::reserve(&file, bytes)?;
            (Ground::File(file), None)
        }
    })
}

/// What the engine would trust, and whom it would expect.
fn tls(request: &Request, ca_bundle: Option<&str>) -> Result<Tls, Failure> {
    let config = flatout_engine::tls_config(ca_bundle)?;
    let name = ServerName::try_from(request.endpoint.host.clone())
        .map_err(|_| Failure::usage(format!("floor: {}: no name for a certificate", request.endpoint)))?;
    Ok(Tls { config, name })
}

/// `VmHWM` of this process in MiB; 0 where the kernel does not say.
fn peak_rss_mib() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}
