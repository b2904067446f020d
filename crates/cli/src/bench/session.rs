//! A measurement of one object, or of many: each run in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use flatout_engine::Progress;

use crate::bench::floor::{FloorShape, shapes_of_gets, shapes_of_puts};
use crate::bench::report::{BenchReport, Op};
use crate::bench::run::{Measurement, median};
use crate::bench::spec::{ChildMessage, ChildWork, LandingKind, LocalEnd, Spec};
use crate::console::{Carries, Console};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::knobs::Knobs;
use crate::progress::Bar;
use crate::{origin, sys};

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
    /// What `spec` says, under a name for the bar.
    pub fn of(name: String, spec: Spec, tls: bool, console: &'a Console) -> BenchSession<'a> {
        BenchSession { console, name, spec, tls }
    }

    /// What a repetition is told.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Whether the origin speaks TLS.
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
        for shape in self.shapes() {
            tried.push((shape, vec![self.repetition(self.spec.work.floor(shape))?.gib_per_s()]));
        }
        rank(&mut tried);
        if care == SearchEffort::Thorough {
            tried.truncate(3);
            for _ in 0..2 {
                for (shape, rates) in &mut tried {
                    rates.push(self.repetition(self.spec.work.floor(*shape))?.gib_per_s());
                }
            }
            rank(&mut tried);
        }
        Ok(tried[0].0)
    }

    fn shapes(&self) -> Vec<FloorShape> {
        match &self.spec.end {
            LocalEnd::Landing(_) => shapes_of_gets(self.tls),
            LocalEnd::Payload(payload) => shapes_of_puts(payload, self.tls),
        }
    }

    /// Runs what is measured, and where there is one the floor, so many times each, and reports every run.
    pub fn take_turns(
        &self,
        report: &mut BenchReport,
        measured: Op,
        floor: Option<FloorShape>,
        repeat: u32,
    ) -> Result<(), Failure> {
        for number in 1..=repeat {
            // They take turns to go first, so that a drift of the machine favours neither.
            let mut turns = vec![(measured, self.spec.work)];
            if let Some(shape) = floor {
                let turn = (Op::Floor(shape), self.spec.work.floor(shape));
                turns.insert(usize::from(number % 2 == 0), turn);
            }
            for (op, work) in turns {
                report.add(op, number, self.repetition(work)?)?;
            }
        }
        Ok(())
    }

    /// One run in a process of its own.
    pub fn repetition(&self, work: ChildWork) -> Result<Measurement, Failure> {
        let name = match work {
            ChildWork::Get | ChildWork::GetMany | ChildWork::Put => self.name.clone(),
            ChildWork::Floor(shape) | ChildWork::FloorMany(shape) | ChildWork::FloorPut(shape) => {
                format!("floor: {shape}")
            }
        };
        let bar = Bar::new(self.console, Carries::Lines, &name);
        let failed = |error: std::io::Error| Failure::local("bench", "a child process", &error);
        let armed = self.console.interrupt.arm();
        // It goes after the child: a child that a signal ends removes nothing. [`refuse_existing`] made sure
        // that it is ours.
        let _removed = match &self.spec.end {
            LocalEnd::Landing(LandingKind::File(path)) => {
                Some(self.console.interrupt.temporary_files().register(path))
            }
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
            return Err(Failure::interrupted(format!("bench: {}: interrupted", self.spec_url())));
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
            self.spec_url()
        ))
        .with_hint("a large --landing memory may have met the machine's memory limit"))
    }

    fn spec_url(&self) -> String {
        origin::masked(&self.spec.url)
    }
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
