//! One object into a measured landing: by the engine, and by the floor.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flatout_ambient::Ambient;
use flatout_engine::{Client, Dialect, Get, Landing, PartRecord, Report, Watch, stream};
use flatout_wire::endpoint::Scheme;
use flatout_wire::location::Location;
use flatout_wire::request::Request;
use rustix::fs::{FallocateFlags, fallocate};
use tokio_rustls::rustls::pki_types::ServerName;

use crate::bench::clock::{Elapsed, RunNotes, Stopwatch, run};
use crate::bench::drain::Drain;
use crate::bench::floor::{self, FloorJob, FloorShape, FloorSink, FloorTls};
use crate::bench::prepared::Prepared;
use crate::bench::ready_landing::ReadyLanding;
use crate::bench::run::{Measurement, PartTiming};
use crate::bench::spec::Spec;
use crate::console::Console;
use crate::download::start;
use crate::events::Tails;
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::{origin, sys};

/// What is measured.
pub struct ByEngine<'a> {
    spec: &'a Spec,
    console: &'a Console,
    client: Client,
    location: Location,
    target: ReadyLanding,
}

impl<'a> ByEngine<'a> {
    pub fn prepare(spec: &'a Spec, knobs: &Knobs, console: &'a Console) -> Result<ByEngine<'a>, Failure> {
        let location = origin::object("read", &spec.url)?;
        let client = origin::silent_client(knobs, &[Dialect::of(&location)])?;
        // How long the provider of keys takes is not measured.
        client.signed_get(&location)?;
        Ok(ByEngine { spec, console, client, location, target: ReadyLanding::new(spec)? })
    }

    fn land(&self, landing: Landing, mut clock: Stopwatch) -> Result<(Report, Elapsed), Failure> {
        let get = Get::new(self.location.clone(), landing).with_part_records();
        let (transfer, _armed) = start(&self.client, get, self.console)?;
        let watch = transfer.watch();
        clock.sample(move || watch.progress().landed_bytes);
        let report = transfer.wait()?;
        let elapsed = clock.stop(report.bytes);
        Ok((report, elapsed))
    }

    fn land_in(
        &self,
        buffer: &'static mut [u8],
        mut clock: Stopwatch,
    ) -> Result<(Report, &'static mut [u8], Elapsed), Failure> {
        let sampled = |watch: Watch| clock.sample(move || watch.progress().landed_bytes);
        let begin = |get| start(&self.client, get, self.console);
        let (report, buffer) = sys::get_into(buffer, &self.location, begin, sampled)?;
        let elapsed = clock.stop(report.bytes);
        Ok((report, buffer, elapsed))
    }

    /// As `flatout cat` does it.
    fn through(&self, mut pipe: File, mut clock: Stopwatch) -> Result<(Report, Elapsed), Failure> {
        let (writer, mut reader) = stream();
        let get = Get::new(self.location.clone(), Landing::Stream(writer)).with_part_records();
        let (transfer, _armed) = start(&self.client, get, self.console)?;
        let watch = transfer.watch();
        clock.sample(move || watch.progress().landed_bytes);
        while let Some(chunk) = reader.next() {
            pipe.write_all(chunk).map_err(|error| Failure::local("write", "the measured pipe", &error))?;
        }
        let report = transfer.wait()?;
        let elapsed = clock.stop(report.bytes);
        Ok((report, elapsed))
    }
}

impl Prepared for ByEngine<'_> {
    fn transfer(&mut self, clock: Stopwatch) -> Result<Measurement, Failure> {
        let (report, elapsed) = match mem::take(&mut self.target) {
            ReadyLanding::Nowhere => self.land(Landing::Nowhere, clock)?,
            ReadyLanding::File(path) => self.land(Landing::File(path), clock)?,
            ReadyLanding::Memory(buffer) => {
                let (report, buffer, elapsed) = self.land_in(buffer, clock)?;
                self.target = ReadyLanding::Memory(buffer);
                (report, elapsed)
            }
            ReadyLanding::Stream(drain, pipe) => {
                let outcome = self.through(pipe, clock)?;
                let drained = drain.finish();
                drained.map_err(|error| Failure::local("bench", "the process that drains", &error))?;
                outcome
            }
        };
        let words = RunNotes {
            retries: report.retries,
            tails: Tails::of(Some(&report)),
            connections: report.connections,
            shards: report.shards,
            verified: report.verified.to_string(),
            limited_by: report.limited_by,
        };
        origin::remember(&self.client);
        Ok(run(elapsed, report.parts.iter().map(row).collect(), self.spec, words))
    }

    fn memory(&self) -> Option<&[u8]> {
        self.target.memory()
    }
}

pub fn row(part: &PartRecord) -> PartTiming {
    PartTiming {
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

/// Parts of the floor where their size is open; docs/numbers.md has what other sizes cost.
const FLOOR_PART_BYTES: u64 = 8 << 20;

/// What it is held against.
pub struct ByFloor<'a> {
    spec: &'a Spec,
    shape: FloorShape,
    request: Request,
    tls: Option<FloorTls>,
    part_bytes: u64,
    target: ReadyLanding,
}

impl<'a> ByFloor<'a> {
    pub fn prepare(spec: &'a Spec, knobs: &Knobs, shape: FloorShape) -> Result<ByFloor<'a>, Failure> {
        let location = origin::object("read", &spec.url)?;
        let found = settings_of_the_floor(knobs, &location)?;
        let part_bytes = found.settings.part_bytes.unwrap_or(FLOOR_PART_BYTES);
        let ca_bundle = found.settings.ca_bundle.clone();
        let request = Client::new(found.into())?.signed_get(&location)?;
        let tls = tls_of_the_floor(&request, ca_bundle.as_deref())?;
        Ok(ByFloor { spec, shape, request, tls, part_bytes, target: ReadyLanding::new(spec)? })
    }

    fn job(&self, clock: &Stopwatch) -> FloorJob {
        FloorJob {
            request: self.request.clone(),
            tls: self.tls.clone(),
            etag: self.spec.etag.clone(),
            address: self.spec.address,
            bytes: self.spec.bytes,
            part_bytes: self.part_bytes,
            start: clock.start,
            landed_bytes: Arc::default(),
        }
    }
}

impl Prepared for ByFloor<'_> {
    fn transfer(&mut self, mut clock: Stopwatch) -> Result<Measurement, Failure> {
        let failed = |error: io::Error| Failure::local("floor", self.spec.address, &error);
        let job = self.job(&clock);
        let landed_bytes = job.landed_bytes.clone();
        let landed = move |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        clock.sample(move || landed(&landed_bytes));
        let (mut sink, drain) = sink(mem::take(&mut self.target), self.spec.bytes).map_err(failed)?;
        let rows = floor::fetch(&job, self.shape, &mut sink).map_err(failed)?;
        let elapsed = clock.stop(landed(&job.landed_bytes));
        match sink {
            FloorSink::Memory(buffer) => self.target = ReadyLanding::Memory(buffer),
            // A drain ends when its pipe is closed.
            other => drop(other),
        }
        drain.map_or(Ok(()), Drain::finish).map_err(failed)?;
        Ok(run(elapsed, rows, self.spec, RunNotes::of_the_floor(self.shape)))
    }

    fn memory(&self) -> Option<&[u8]> {
        self.target.memory()
    }
}

/// The floor's landing. A file is made and reserved while the clock runs, as the engine makes and reserves
/// its own.
fn sink(target: ReadyLanding, bytes: u64) -> io::Result<(FloorSink, Option<Drain>)> {
    Ok(match target {
        ReadyLanding::Nowhere => (FloorSink::Nowhere, None),
        ReadyLanding::Memory(buffer) => (FloorSink::Memory(buffer), None),
        ReadyLanding::Stream(drain, pipe) => (FloorSink::Pipe(pipe), Some(drain)),
        ReadyLanding::File(path) => {
            let file = OpenOptions::new().write(true).create_new(true).open(path)?;
            fallocate(&file, FallocateFlags::empty(), 0, bytes)?;
            (FloorSink::File(file), None)
        }
    })
}

/// The settings that the floor heeds, too.
pub fn settings_of_the_floor(knobs: &Knobs, location: &Location) -> Result<Ambient, Failure> {
    let found = flatout_ambient::gather(knobs.given())?;
    match found.settings.proxy {
        None => Ok(found),
        Some(_) => Err(Failure::usage(format!("floor: {location}: the floor knows no proxy"))
            .with_hint("leave out --floor, or the proxy")),
    }
}

/// What the engine would trust, and whom it would expect; none of a plain origin.
pub fn tls_of_the_floor(request: &Request, ca_bundle: Option<&str>) -> Result<Option<FloorTls>, Failure> {
    if request.endpoint.scheme == Scheme::Http {
        return Ok(None);
    }
    let config = flatout_engine::tls_config(ca_bundle)?;
    let name = ServerName::try_from(request.endpoint.host.clone())
        .map_err(|_| Failure::usage(format!("floor: {}: no name for a certificate", request.endpoint)))?;
    Ok(Some(FloorTls { config, name }))
}
