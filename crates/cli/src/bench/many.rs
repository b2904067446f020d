//! `flatout bench get -r`: many objects, listed before the clock starts, beside a plain loop over the same
//! ones.

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use flatout_engine::{Client, Dialect, Entry, Folder, Get, Landing, Wanted};
use flatout_wire::endpoint::Scheme;
use flatout_wire::location::Location;
use flatout_wire::range::Span;

use crate::args::BenchGet;
use crate::bench::clock::{RunNotes, Stopwatch, run};
use crate::bench::floor::{self, FloorShape, SHAPES_OF_MANY};

use crate::bench::prepared::Prepared;
use crate::bench::report::{BenchReport, HEADER_OF_MANY, Op};
use crate::bench::run::{Measurement, median};
use crate::bench::session::BenchSession;
use crate::bench::spec::{ChildWork, LandingKind, LocalEnd, Spec};
use crate::commands::cp_many::no_listing;
use crate::console::{Carries, Console};
use crate::download::start;
use crate::events::Tails;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::origin;
use crate::select::{FileName, FileNames, Source};

pub fn get(args: &BenchGet, console: &Console) -> Result<Exit, Failure> {
    let bench = prepare(&args.source, &args.knobs, &args.landing, console)?;
    let mut report = BenchReport::new(console, bench.spec().end.clone(), None, HEADER_OF_MANY)?;
    let floor = if args.floor { Some(best_shape(&bench)?) } else { None };
    bench.take_turns(&mut report, Op::Get, floor, args.repeat)?;
    report.finish()?;
    Ok(Exit::Clean)
}

/// Lists once, and asks for one byte of one object, which tells the address.
pub fn prepare<'a>(
    source: &str,
    knobs: &Knobs,
    landing: &LandingKind,
    console: &'a Console,
) -> Result<BenchSession<'a>, Failure> {
    if matches!(landing, LandingKind::Memory | LandingKind::Stream) {
        let failure = Failure::usage(format!("bench: many objects cannot land in {landing}"));
        return Err(failure.with_hint("--landing nowhere, or --landing file:DIR"));
    }
    let client = client(source, knobs)?;
    let wanted = list(source, &client)?;
    let bytes = wanted.iter().filter_map(|wanted| wanted.size).sum();
    let first = wanted.iter().find(|wanted| wanted.size > Some(0)).ok_or_else(|| {
        let why = format!("bench: {}: holds no object with bytes in it", origin::masked(source));
        Failure::not_found(why).with_hint("flatout ls -r shows what there is")
    })?;
    let probe =
        Get::new(first.location.clone(), Landing::Nowhere).with_span(Span::Slice(0..1)).with_part_records();
    let (transfer, _armed) = start(&client, probe, console)?;
    let probed = transfer.wait()?;
    let part = probed
        .parts
        .first()
        .ok_or_else(|| Failure::internal(format!("bench: {}: the probe has no record", first.location)))?;
    let spec = Spec {
        url: source.to_owned(),
        knobs: knobs.pairs(),
        end: LocalEnd::Landing(landing.clone()),
        work: ChildWork::GetMany,
        bytes,
        etag: None,
        address: part.address,
        rows: false,
        progress: console.bar_wanted(Carries::Lines),
    };
    // The floor of many knows no TLS, and says so itself.
    Ok(BenchSession::of(format!("{} objects", wanted.len()), spec, false, console))
}

/// The shape with the best median of three.
fn best_shape(bench: &BenchSession) -> Result<FloorShape, Failure> {
    let mut best: Option<(f64, FloorShape)> = None;
    for shape in SHAPES_OF_MANY {
        let mut rates = Vec::new();
        for _ in 0..3 {
            rates.push(bench.repetition(ChildWork::FloorMany(shape))?.gib_per_s());
        }
        let rate = median(rates);
        if best.is_none_or(|(known, _)| rate > known) {
            best = Some((rate, shape));
        }
    }
    Ok(best.expect("there is a shape").1)
}

fn client(source: &str, knobs: &Knobs) -> Result<Client, Failure> {
    origin::silent_client(knobs, &[Dialect::of(&origin::location("read", source)?)])
}

/// All objects below the source that can be files.
fn list(source: &str, client: &Client) -> Result<Vec<Wanted>, Failure> {
    let location = origin::location("read", source)?;
    let source = Source::folder(&location).ok_or_else(|| no_listing("bench", &location))?;
    let mut names = FileNames::new(source.folder_bytes, false);
    let mut wanted = Vec::new();
    for entry in client.list(&source.location, true)? {
        let Entry::Object(listed) = entry? else { continue };
        let FileName::File(name) = names.name(&listed.key) else { continue };
        let location: Option<Location> = source.location.with_key(listed.key);
        wanted.extend(location.map(|location| Wanted {
            location,
            size: Some(listed.size),
            name,
            keep_existing: false,
            modified_ns: None,
        }));
    }
    Ok(wanted)
}

/// What is measured.
pub struct ManyByEngine<'a> {
    spec: &'a Spec,
    console: &'a Console,
    client: Client,
    shards: u32,
    wanted: Vec<Wanted>,
}

impl<'a> ManyByEngine<'a> {
    pub fn prepare(spec: &'a Spec, knobs: &Knobs, console: &'a Console) -> Result<ManyByEngine<'a>, Failure> {
        // By a client of its own: the one that is measured starts cold.
        let wanted = list(&spec.url, &client(&spec.url, knobs)?)?;
        let shards = flatout_ambient::gather(knobs.given())?.settings.shards;
        let client = client(&spec.url, knobs)?;
        // Cold, but with the keys at hand: how long their provider takes is not measured.
        if let Some(first) = wanted.first() {
            client.signed_get(&first.location)?;
        }
        Ok(ManyByEngine { spec, console, client, shards, wanted })
    }
}

impl Prepared for ManyByEngine<'_> {
    fn transfer(&mut self, mut clock: Stopwatch) -> Result<Measurement, Failure> {
        let wanted = mem::take(&mut self.wanted);
        let objects = wanted.len() as u64;
        let armed = self.console.interrupt.arm();
        let folder = target(self.spec).map(|path| Folder::open(&path)).transpose()?;
        let source = origin::location("read", &self.spec.url)?;
        let mut many = self.client.get_many(&source, wanted.into_iter().map(Ok), folder)?;
        let watch = many.watch();
        armed.on_signal(move || watch.cancel());
        let watch = many.watch();
        clock.sample(move || watch.progress().landed_bytes);
        let (mut verified, mut retries) = (BTreeSet::new(), 0);
        while let Some(ended) = many.next(Duration::from_secs(1)) {
            for finished in ended {
                verified.insert(finished.result?.verified.to_string());
                retries += finished.retries;
            }
        }
        if let Some(outage) = many.incomplete() {
            return Err(outage.into());
        }
        let progress = many.progress();
        let elapsed = clock.stop(progress.landed_bytes);
        if progress.ok != objects {
            return Err(Failure::interrupted("bench: interrupted"));
        }
        origin::remember(&self.client);
        let verified = Vec::from_iter(verified).join(", ");
        let (tails, limited_by) = (Tails::default(), progress.mostly_limited_by);
        let (connections, shards) = (progress.connections, self.shards);
        let words = RunNotes { retries, tails, connections, shards, verified, limited_by };
        Ok(Measurement { objects: Some(objects), ..run(elapsed, Vec::new(), self.spec, words) })
    }
}

/// What it is held against.
pub struct ManyByFloor<'a> {
    spec: &'a Spec,
    shape: FloorShape,
    job: floor::many::ManyJob,
}

impl<'a> ManyByFloor<'a> {
    pub fn prepare(spec: &'a Spec, knobs: &Knobs, shape: FloorShape) -> Result<ManyByFloor<'a>, Failure> {
        let client = client(&spec.url, knobs)?;
        let objects = list(&spec.url, &client)?.into_iter().map(|wanted| request(&client, wanted));
        let objects = objects.collect::<Result<_, _>>()?;
        let folder = target(spec);
        let job =
            floor::many::ManyJob { objects, address: spec.address, folder, landed_bytes: Arc::default() };
        Ok(ManyByFloor { spec, shape, job })
    }
}

impl Prepared for ManyByFloor<'_> {
    fn transfer(&mut self, mut clock: Stopwatch) -> Result<Measurement, Failure> {
        let failed = |error: io::Error| Failure::local("floor", self.spec.address, &error);
        let landed_bytes = self.job.landed_bytes.clone();
        clock.sample(move || landed_bytes.load(Ordering::Relaxed));
        if let Some(folder) = &self.job.folder {
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        floor::many::fetch(&self.job, self.shape).map_err(failed)?;
        let elapsed = clock.stop(self.job.landed_bytes.load(Ordering::Relaxed));
        let words = RunNotes::of_the_floor(self.shape);
        let objects = Some(self.job.objects.len() as u64);
        Ok(Measurement { objects, ..run(elapsed, Vec::new(), self.spec, words) })
    }
}

fn request(client: &Client, wanted: Wanted) -> Result<floor::many::NamedRequest, Failure> {
    let signed = client.signed_get(&wanted.location)?;
    if signed.endpoint.scheme == Scheme::Https {
        let failure =
            Failure::usage(format!("floor: {}: the floor of many objects knows no TLS", wanted.location));
        return Err(failure.with_hint("leave out --floor"));
    }
    let mut request = Vec::new();
    signed.write_head(&mut request);
    Ok(floor::many::NamedRequest { request, name: wanted.name })
}

fn target(spec: &Spec) -> Option<PathBuf> {
    match &spec.end {
        LocalEnd::Landing(LandingKind::File(path)) => Some(path.clone()),
        _ => None,
    }
}
