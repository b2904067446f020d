//! `flatout bench get`: repetitions in turn, each in a process of its own, floor and flatout side by side.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use flatout_engine::{Client, Dialect, Get, Landing, Progress};
use flatout_wire::endpoint::Scheme;
use flatout_wire::location::Location;
use flatout_wire::range::Span;

use crate::args::BenchGet;
use crate::bench::floor::{FloorShape, shapes};
use crate::bench::many;
use crate::bench::report::{BenchReport, HEADER, Op};
use crate::bench::run::{Measurement, median};
use crate::bench::spec::{ChildMessage, ChildWork, LandingKind, Spec};
use crate::console::{Carries, Console};
use crate::download::start;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::progress::Bar;
use crate::{origin, sys};

pub fn get(args: &BenchGet, console: &Console) -> Result<Exit, Failure> {
    refuse_existing(&args.landing)?;
    if args.recursive {
        return many::get(args, console);
    }
    let parts = args.parts.as_deref().map(create).transpose()?;
    let bench = BenchSession::new(&args.source, &args.knobs, args.landing.clone(), console)?
        .with_rows(parts.is_some());
    let mut report = BenchReport::new(console, &args.landing, parts, HEADER)?;
    let shape = if args.floor { Some(bench.best_shape(SearchEffort::Thorough)?) } else { None };
    for number in 1..=args.repeat {
        // They take turns to go first, so that a drift of the machine favours neither.
        let mut turns = vec![(Op::Get, ChildWork::Get)];
        if let Some(shape) = shape {
            turns.insert(usize::from(number % 2 == 0), (Op::Floor(shape), ChildWork::Floor(shape)));
        }
        for (op, work) in turns {
            let run = bench.repetition(work)?;
            report.add(op, number, run)?;
        }
    }
    report.finish()?;
    Ok(Exit::Clean)
}

/// How much is spent on finding the best shape of the floor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SearchEffort {
    /// Each shape once.
    Quick,
    /// Each once, and the three fastest twice more.
    Thorough,
}

/// A measurement of one object: everything that its repetitions share.
pub struct BenchSession<'a> {
    console: &'a Console,
    name: String,
    spec: Spec,
    /// The floor has to speak it too.
    tls: bool,
}

impl<'a> BenchSession<'a> {
    /// Asks for one byte, which tells size, version and address.
    pub fn new(
        source: &str,
        knobs: &Knobs,
        landing: LandingKind,
        console: &'a Console,
    ) -> Result<BenchSession<'a>, Failure> {
        let location = origin::object("read", source)?;
        let client = origin::silent_client(knobs, &[Dialect::of(&location)])?;
        let probe =
            Get::new(location.clone(), Landing::Nowhere).with_span(Span::Slice(0..1)).with_part_records();
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
            source: source.to_owned(),
            knobs: knobs.pairs(),
            landing,
            work: ChildWork::Get,
            bytes,
            etag: probed.version.etag.filter(|etag| etag.starts_with('"')),
            address,
            rows: false,
            progress: console.bar_wanted(Carries::Lines),
        };
        let tls = is_secure(&location, knobs)?;
        Ok(BenchSession { console, name: location.name().to_owned(), spec, tls })
    }

    /// A measurement whose spec is there already.
    pub fn of(name: String, spec: Spec, console: &'a Console) -> BenchSession<'a> {
        // The floor of many knows no TLS, and says so itself.
        BenchSession { console, name, spec, tls: false }
    }

    /// What a repetition is told.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Whether the object is read over TLS.
    pub fn is_secure(&self) -> bool {
        self.tls
    }

    /// Whether each run brings a row for each part and its samples.
    pub fn with_rows(mut self, rows: bool) -> BenchSession<'a> {
        self.spec.rows = rows;
        self
    }

    /// A session for this object with other knobs, under a name for the bar.
    pub fn with_knobs(&self, name: String, knobs: &Knobs) -> BenchSession<'a> {
        let spec = Spec { knobs: knobs.pairs(), ..self.spec.clone() };
        BenchSession { console: self.console, name, spec, tls: self.tls }
    }

    /// The fastest shape on this machine, by the median of its runs.
    pub fn best_shape(&self, care: SearchEffort) -> Result<FloorShape, Failure> {
        let mut tried: Vec<(FloorShape, Vec<f64>)> = Vec::new();
        for shape in shapes(self.tls) {
            tried.push((shape, vec![self.repetition(ChildWork::Floor(shape))?.gib_per_s()]));
        }
        rank(&mut tried);
        if care == SearchEffort::Thorough {
            tried.truncate(3);
            for _ in 0..2 {
                for (shape, rates) in &mut tried {
                    rates.push(self.repetition(ChildWork::Floor(*shape))?.gib_per_s());
                }
            }
            rank(&mut tried);
        }
        Ok(tried[0].0)
    }

    /// One run in a process of its own.
    pub fn repetition(&self, work: ChildWork) -> Result<Measurement, Failure> {
        let name = match work {
            ChildWork::Get | ChildWork::GetMany => self.name.clone(),
            ChildWork::Floor(shape) | ChildWork::FloorMany(shape) => format!("floor: {shape}"),
        };
        let bar = Bar::new(self.console, Carries::Lines, &name);
        let failed = |error: std::io::Error| Failure::local("bench", "a child process", &error);
        let armed = self.console.interrupt.arm();
        // It goes after the child: a child that a signal ends removes nothing. [`refuse_existing`] made sure
        // that it is ours.
        let _removed = match &self.spec.landing {
            LandingKind::File(path) => Some(self.console.interrupt.temporary_files().register(path)),
            _ => None,
        };
        let mut child = spawn().map_err(failed)?;
        let id = child.id();
        armed.on_signal(move || sys::terminate(id));
        let spec = serde_json::to_vec(&Spec { work, ..self.spec.clone() }).expect("a spec is plain JSON");
        let mut input = child.stdin.take().expect("its standard input is piped");
        // A child that died at once says so by its missing answer.
        let _ = input.write_all(&spec);
        drop(input);
        let outcome = self.listen(&mut child, &bar);
        child.wait().map_err(failed)?;
        // A terminal tells both, and the child may have heard of it first.
        let child_was = matches!(&outcome, Err(failure) if failure.exit == Exit::Interrupted);
        if child_was || self.console.interrupt.raised() {
            return Err(Failure::interrupted(format!("bench: {}: interrupted", self.spec_source())));
        }
        outcome
    }

    fn listen(&self, child: &mut Child, bar: &Bar) -> Result<Measurement, Failure> {
        let output = child.stdout.take().expect("its standard output is piped");
        for line in BufReader::new(output).lines() {
            let line = line.map_err(|error| Failure::local("bench", "a child process", &error))?;
            match serde_json::from_str(&line) {
                Ok(ChildMessage::Progress(bytes)) => bar.show(&Progress {
                    landed_bytes: bytes,
                    fetched_bytes: bytes,
                    total_bytes: Some(self.spec.bytes),
                    ..Progress::default()
                }),
                Ok(ChildMessage::Done(run)) => return Ok(*run),
                Ok(ChildMessage::Failed(failure)) => return Err(failure),
                Err(_) => break,
            }
        }
        Err(Failure::internal(format!(
            "bench: {}: the child process ended without a result",
            self.spec_source()
        ))
        .with_hint("a large --landing memory may have met the machine's memory limit"))
    }

    fn spec_source(&self) -> String {
        origin::masked(&self.spec.source)
    }
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

fn rank(tried: &mut [(FloorShape, Vec<f64>)]) {
    let rate = |rates: &[f64]| median(rates.iter().copied());
    tried.sort_by(|(_, one), (_, other)| rate(other).total_cmp(&rate(one)));
}

fn spawn() -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("__bench-child").stdin(Stdio::piped()).stdout(Stdio::piped());
    sys::die_with_parent(&mut command);
    command.spawn()
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
