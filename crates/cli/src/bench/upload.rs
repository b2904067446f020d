//! One upload that is measured: by the engine, and by the floor.

use std::fs::File;
use std::io;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatout_engine::{Client, Dialect, Put, Source};
use flatout_policy::upload::{PART_LEAST, part_bytes};
use flatout_wire::location::Location;
use flatout_wire::object_options::ObjectOptions;

use crate::bench::clock::{RunNotes, Stopwatch, run};
use crate::bench::floor::upload::{FloorBytes, OutgoingPart, UploadJob, send};
use crate::bench::floor::{FloorShape, FloorTls};
use crate::bench::one::{row, settings_of_the_floor, tls_of_the_floor};
use crate::bench::prepared::Prepared;
use crate::bench::run::Measurement;
use crate::bench::spec::{LocalEnd, Payload, Spec};
use crate::console::Console;
use crate::download::stoppable;
use crate::events::Tails;
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::signal::CancelOnSignal;
use crate::{origin, sys};

/// The metadata by which an object is known that a measurement wrote.
pub const MARK: &str = "flatout-bench";

/// Bytes that the floor sends again and again where there is no file, as the engine does.
const BLOCK_BYTES: usize = 1 << 20;

/// What is measured.
pub struct PutByEngine<'a> {
    spec: &'a Spec,
    console: &'a Console,
    client: Client,
    location: Location,
}

impl<'a> PutByEngine<'a> {
    pub fn prepare(spec: &'a Spec, knobs: &Knobs, console: &'a Console) -> Result<PutByEngine<'a>, Failure> {
        let location = origin::object("upload", &spec.url)?;
        let client = origin::silent_client(knobs, &[Dialect::of(&location)])?;
        // How long the provider of keys takes is not measured.
        client.signed_get(&location)?;
        Ok(PutByEngine { spec, console, client, location })
    }
}

impl Prepared for PutByEngine<'_> {
    fn transfer(&mut self, mut clock: Stopwatch) -> Result<Measurement, Failure> {
        let source = match payload(self.spec)? {
            Payload::File(path) => Source::File(path.clone()),
            Payload::Synthetic => Source::Synthetic(self.spec.bytes),
        };
        let put = Put::new(self.location.clone(), source).with_options(marked()).with_part_records();
        let (transfer, _armed) = stoppable(self.console, || self.client.put(put))?;
        let watch = transfer.watch();
        clock.sample(move || watch.progress().landed_bytes);
        let report = transfer.wait()?;
        let elapsed = clock.stop(report.bytes);
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
}

/// What it is held against: the same parts to the same URL, without checksums. The upload is begun before the
/// clock starts, and completed when it has stopped.
pub struct PutByFloor<'a> {
    spec: &'a Spec,
    shape: FloorShape,
    tls: Option<FloorTls>,
    parts: Vec<OutgoingPart>,
    bytes: Option<FloorBytes>,
    begun: BegunUpload,
    /// After what is aborted, so that no signal ends the process before.
    armed: CancelOnSignal,
}

impl<'a> PutByFloor<'a> {
    pub fn prepare(
        spec: &'a Spec,
        knobs: &Knobs,
        shape: FloorShape,
        console: &'a Console,
    ) -> Result<PutByFloor<'a>, Failure> {
        let location = origin::object("upload", &spec.url)?;
        let found = settings_of_the_floor(knobs, &location)?;
        let part_bytes = part_bytes(PART_LEAST, spec.bytes, found.settings.part_bytes).unwrap_or(spec.bytes);
        let ca_bundle = found.settings.ca_bundle.clone();
        let bytes = floor_bytes(payload(spec)?)?;
        let armed = console.interrupt.arm();
        let begun = BegunUpload::begin(Client::new(found.into())?, location)?;
        let (mut parts, mut tls) = (Vec::new(), None);
        for (number, start) in (1_u32..).zip((0..spec.bytes).step_by(part_bytes as usize)) {
            let range = start..(start + part_bytes).min(spec.bytes);
            let length = range.end - range.start;
            let request = begun.client.signed_part(&begun.location, &begun.id, number, length)?;
            if number == 1 {
                tls = tls_of_the_floor(&request, ca_bundle.as_deref())?;
            }
            let mut head = Vec::new();
            request.write_head(&mut head);
            parts.push(OutgoingPart { head, range });
        }
        Ok(PutByFloor { spec, shape, tls, parts, bytes: Some(bytes), begun, armed })
    }
}

impl Prepared for PutByFloor<'_> {
    fn transfer(&mut self, mut clock: Stopwatch) -> Result<Measurement, Failure> {
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = stopped.clone();
        self.armed.on_signal(move || stop.store(true, Ordering::Relaxed));
        let job = UploadJob {
            parts: mem::take(&mut self.parts),
            bytes: self.bytes.take().ok_or_else(|| Failure::internal("bench: the floor sends once"))?,
            address: self.spec.address,
            tls: self.tls.clone(),
            start: clock.start,
            sent_bytes: Arc::default(),
            stopped,
        };
        let sent_bytes = job.sent_bytes.clone();
        clock.sample(move || sent_bytes.load(Ordering::Relaxed));
        let sent = send(&job, self.shape).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => Failure::interrupted("bench: interrupted"),
            _ => Failure::local("floor", self.spec.address, &error),
        })?;
        let elapsed = clock.stop(job.sent_bytes.load(Ordering::Relaxed));
        let (rows, etags) = sent;
        self.begun.complete(etags, self.spec.bytes)?;
        Ok(run(elapsed, rows, self.spec, RunNotes::of_the_floor(self.shape)))
    }
}

/// An upload that is aborted when this is dropped, unless it was completed.
struct BegunUpload {
    client: Client,
    location: Location,
    id: String,
    is_completed: bool,
}

impl BegunUpload {
    fn begin(client: Client, location: Location) -> Result<BegunUpload, Failure> {
        let id = client.begin_parts(&location, marked())?;
        Ok(BegunUpload { client, location, id, is_completed: false })
    }

    fn complete(&mut self, etags: Vec<String>, bytes: u64) -> Result<(), Failure> {
        self.client.complete_parts(&self.location, &self.id, etags, bytes)?;
        self.is_completed = true;
        Ok(())
    }
}

impl Drop for BegunUpload {
    fn drop(&mut self) {
        if !self.is_completed {
            // Where that fails there is nothing more to be done about it.
            let _ = self.client.abort_parts(&self.location, &self.id);
        }
    }
}

fn marked() -> ObjectOptions {
    let metadata = vec![(MARK.to_owned(), "true".to_owned())];
    ObjectOptions { metadata, ..ObjectOptions::default() }
}

fn payload(spec: &Spec) -> Result<&Payload, Failure> {
    match &spec.end {
        LocalEnd::Payload(payload) => Ok(payload),
        LocalEnd::Landing(_) => Err(Failure::internal("bench: an upload has nothing to send")),
    }
}

/// A file with all its pages, so that no page fault is measured.
fn floor_bytes(payload: &Payload) -> Result<FloorBytes, Failure> {
    let Payload::File(path) = payload else {
        // No zeros: nothing on the way is to find them easy.
        let block = (0..BLOCK_BYTES as u64).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 13) as u8).collect();
        return Ok(FloorBytes::Repeated(block));
    };
    let failed = |error: io::Error| Failure::local("read", path.display(), &error);
    let file = File::open(path).map_err(failed)?;
    let mapped = sys::map_file(&file).map_err(failed)?;
    Ok(FloorBytes::File { file, mapped })
}
