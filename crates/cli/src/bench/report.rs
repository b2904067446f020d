//! What a measurement prints: a table row or a JSON line for each run, the ratio at the end, a CSV row for
//! each part.

use std::fs::File;
use std::io::{BufWriter, Write};

use serde::Serialize;

use crate::bench::floor::FloorShape;
use crate::bench::run::{Measurement, median};
use crate::bench::samples::MOMENT_S;
use crate::bench::spec::LocalEnd;
use crate::bench::sweep::Combination;
use crate::console::{Carries, Console};
use crate::events::Tails;
use crate::failure::Failure;
use crate::limited::Limited;

/// Who ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Get,
    Put,
    Floor(FloorShape),
    Sweep(Combination),
}

impl Op {
    fn name(self) -> &'static str {
        match self {
            Op::Get => "get",
            Op::Put => "put",
            Op::Floor(_) => "floor",
            Op::Sweep(_) => "sweep",
        }
    }

    /// Whether it is what is measured, and no floor.
    pub fn is_measured(self) -> bool {
        matches!(self, Op::Get | Op::Put)
    }

    fn shape(self) -> Option<String> {
        match self {
            Op::Floor(shape) => Some(shape.to_string()),
            Op::Get | Op::Put | Op::Sweep(_) => None,
        }
    }

    fn combination(self) -> Option<Combination> {
        match self {
            Op::Sweep(combination) => Some(combination),
            Op::Get | Op::Put | Op::Floor(_) => None,
        }
    }
}

/// Medians of flatout over medians of the floor.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    pub throughput: f64,
    pub cpu: f64,
    pub origin_busy: Option<f64>,
}

/// The runs so far, printed as they come.
pub struct BenchReport<'a> {
    console: &'a Console,
    end: LocalEnd,
    parts: Option<BufWriter<File>>,
    runs: Vec<(Op, Measurement)>,
}

/// The table of runs of one object.
pub const HEADER: &str =
    "run op       GiB/s  Gbit/s    peak  CPU s/GiB  RSS MiB  TTFB ms p50/p99  parts  conns  verified";
/// The table of uploads. A part has been stored when its answer is there.
pub const HEADER_OF_PUTS: &str =
    "run op       GiB/s  Gbit/s    peak  CPU s/GiB  RSS MiB  part ms p50/p99  parts  conns  verified";
/// The table of runs of many objects.
pub const HEADER_OF_MANY: &str =
    "run op     objects/s   GiB/s  CPU us/object  CPU s/GiB  RSS MiB  objects  conns  verified";
const CSV_HEADER: &str = "run,op,index,address,connection,start_s,first_byte_s,end_s,bytes,attempts";

impl<'a> BenchReport<'a> {
    pub fn new(
        console: &'a Console,
        end: LocalEnd,
        parts: Option<File>,
        header: &str,
    ) -> Result<BenchReport<'a>, Failure> {
        let mut report = BenchReport { console, end, parts: parts.map(BufWriter::new), runs: Vec::new() };
        report.write_parts(format_args!("{CSV_HEADER}"))?;
        console.answer(header)?;
        console.flush()?;
        Ok(report)
    }

    pub fn add(&mut self, op: Op, number: u32, mut run: Measurement) -> Result<(), Failure> {
        self.console.answer(&table_row(op, &number.to_string(), &run))?;
        run_event(self.console, op, number, &self.end, &run)?;
        self.console.flush()?;
        run.rows.sort_by(|one, other| one.end_s.total_cmp(&other.end_s));
        for row in &run.rows {
            let (start_s, first_byte_s, end_s) = (row.start_s, row.first_byte_s, row.end_s);
            let (index, address, connection) = (row.index, &row.address, row.connection);
            let (bytes, attempts, op) = (row.bytes, row.attempts, op.name());
            self.write_parts(format_args!(
                "{number},{op},{index},{address},{connection},{start_s:.6},{first_byte_s:.6},{end_s:.6},{bytes},{attempts}"
            ))?;
        }
        self.runs.push((op, run));
        Ok(())
    }

    /// The last lines: medians where there was more than one run, and the ratio where there is a floor.
    pub fn finish(mut self) -> Result<(), Failure> {
        if let Some(parts) = &mut self.parts {
            parts.flush().map_err(|error| Failure::local("write", "the file of --parts", &error))?;
        }
        for (op, median) in medians(&self.runs) {
            self.console.answer(&table_row(op, "med", &median))?;
            self.console.event(Carries::Lines, &MedianLine::new(op, &self.end, &median))?;
        }
        if let Some(line) = course(&self.runs) {
            self.console.answer(&line)?;
        }
        let Some(ratio) = ratio(&self.runs) else { return Ok(()) };
        let busy = ratio.origin_busy.map(|busy| format!(", the origin {:.0} % busy", busy * 100.0));
        self.console.answer(&format!(
            "ratio to the floor: {:.2} of its throughput, {:.2} of its CPU{}",
            ratio.throughput,
            ratio.cpu,
            busy.unwrap_or_default()
        ))?;
        ratio_event(self.console, &self.end, ratio)
    }

    fn write_parts(&mut self, line: std::fmt::Arguments) -> Result<(), Failure> {
        let Some(parts) = &mut self.parts else { return Ok(()) };
        writeln!(parts, "{line}").map_err(|error| Failure::local("write", "the file of --parts", &error))
    }
}

/// How soon flatout was at its speed, and what that was limited by: the medians, and the words of the last
/// run.
fn course(runs: &[(Op, Measurement)]) -> Option<String> {
    let measured = || runs.iter().filter(|(op, _)| op.is_measured()).map(|(_, run)| run);
    let last = measured().filter_map(|run| run.limited_by.as_ref()).next_back()?;
    let plateaus: Vec<f64> = measured().filter_map(|run| run.plateau_s).collect();
    let reached = match median(plateaus) {
        none if none.is_nan() => String::new(),
        soon if soon < MOMENT_S => format!("90 % of the plateau within {MOMENT_S} s; "),
        after => format!("90 % of the plateau after {after:.2} s; "),
    };
    Some(format!("{reached}limited by {}", last.says))
}

/// One run, with --json.
pub fn run_event(
    console: &Console,
    op: Op,
    number: u32,
    end: &LocalEnd,
    run: &Measurement,
) -> Result<(), Failure> {
    console.event(Carries::Lines, &RunLine::new(op, number, end, run))
}

/// The last line, with --json.
pub fn ratio_event(console: &Console, end: &LocalEnd, ratio: Ratio) -> Result<(), Failure> {
    let Ratio { throughput, cpu, origin_busy } = ratio;
    let end = EndFields::of(end);
    console.event(Carries::Lines, &RatioLine { op: "ratio", end, throughput, cpu, origin_busy })
}

/// `None` unless both ran.
pub fn ratio(runs: &[(Op, Measurement)]) -> Option<Ratio> {
    let measured = || runs.iter().filter(|(op, _)| op.is_measured()).map(|(_, run)| run);
    let floors = || runs.iter().filter(|(op, _)| !op.is_measured()).map(|(_, run)| run);
    if measured().next().is_none() || floors().next().is_none() {
        return None;
    }
    let busy: Vec<f64> = measured().filter_map(|run| run.origin_busy).collect();
    Some(Ratio {
        throughput: median(measured().map(Measurement::gib_per_s))
            / median(floors().map(Measurement::gib_per_s)),
        cpu: median(measured().map(Measurement::cpu_s_per_gib))
            / median(floors().map(Measurement::cpu_s_per_gib)),
        origin_busy: (!busy.is_empty()).then(|| median(busy)),
    })
}

/// What each side comes to, the measured one first; nothing of single runs.
fn medians(runs: &[(Op, Measurement)]) -> Vec<(Op, Measurement)> {
    let of = |is_measured: bool| {
        let side: Vec<&(Op, Measurement)> =
            runs.iter().filter(|(op, _)| op.is_measured() == is_measured).collect();
        let (op, last) = side.last().filter(|_| side.len() > 1)?;
        Some((*op, Measurement::median_of(side.iter().map(|(_, run)| run), last)))
    };
    [true, false].into_iter().filter_map(of).collect()
}

fn table_row(op: Op, number: &str, run: &Measurement) -> String {
    let verified = op.shape().unwrap_or_else(|| run.verified.clone());
    if let (Some(objects), Some(rate), Some(cpu_us)) =
        (run.objects, run.objects_per_s(), run.cpu_us_per_object())
    {
        let (gib_per_s, cpu_s, rss_mib) = (run.gib_per_s(), run.cpu_s_per_gib(), run.peak_rss_mib);
        return format!(
            "{number:>3} {:6} {rate:9.0} {gib_per_s:7.2} {cpu_us:14.1} {cpu_s:10.3} {rss_mib:8.1} {objects:8} {:6}  {verified}",
            op.name(),
            run.connections,
        );
    }
    let waits = format!("{:.1}/{:.1}", run.ttfb_ms_p50, run.ttfb_ms_p99);
    format!(
        "{number:>3} {:6} {:7.2} {:7.2} {:7.2} {:10.3} {:8.1} {waits:>16} {:6} {:6}  {verified}",
        op.name(),
        run.gib_per_s(),
        run.gbit_avg(),
        run.gbit_peak,
        run.cpu_s_per_gib(),
        run.peak_rss_mib,
        run.parts,
        run.connections,
    )
}

/// One run as docs/json.md has it.
#[derive(Serialize)]
#[serde(tag = "event", rename = "bench")]
struct RunLine<'a> {
    op: &'static str,
    run: u32,
    #[serde(flatten)]
    end: EndFields,
    #[serde(skip_serializing_if = "Option::is_none")]
    shape: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parallel: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part_bytes: Option<u64>,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_us_per_object: Option<f64>,
    seconds: f64,
    gib_per_s: f64,
    gbit_avg: f64,
    gbit_peak: f64,
    cpu_s_per_gib: f64,
    peak_rss_mib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttfb_ms: Option<Ttfb>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parts: Option<u32>,
    retries: u32,
    #[serde(flatten)]
    tails: Tails,
    connections: u32,
    shards: u32,
    verified: &'a str,
    origin_busy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    plateau_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limited_by: Option<&'a Limited>,
}

/// Where the bytes land, or come from.
#[derive(Serialize)]
struct EndFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    landing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

impl EndFields {
    fn of(end: &LocalEnd) -> EndFields {
        match end {
            LocalEnd::Landing(landing) => EndFields { landing: Some(landing.to_string()), source: None },
            LocalEnd::Payload(payload) => EndFields { landing: None, source: Some(payload.to_string()) },
        }
    }
}

#[derive(Serialize)]
struct Ttfb {
    p50: f64,
    p99: f64,
}

impl<'a> RunLine<'a> {
    fn new(op: Op, number: u32, end: &LocalEnd, run: &'a Measurement) -> RunLine<'a> {
        let one = run.objects.is_none();
        RunLine {
            op: op.name(),
            run: number,
            end: EndFields::of(end),
            shape: op.shape(),
            parallel: op.combination().map(|combination| combination.parallel),
            part_bytes: op.combination().map(|combination| combination.part_bytes),
            bytes: run.bytes,
            objects: run.objects,
            objects_per_s: run.objects_per_s(),
            cpu_us_per_object: run.cpu_us_per_object(),
            seconds: run.seconds,
            gib_per_s: run.gib_per_s(),
            gbit_avg: run.gbit_avg(),
            gbit_peak: run.gbit_peak,
            cpu_s_per_gib: run.cpu_s_per_gib(),
            peak_rss_mib: run.peak_rss_mib,
            // Nobody records the parts of many objects.
            ttfb_ms: one.then_some(Ttfb { p50: run.ttfb_ms_p50, p99: run.ttfb_ms_p99 }),
            parts: one.then_some(run.parts),
            retries: run.retries,
            tails: run.tails,
            connections: run.connections,
            shards: run.shards,
            verified: &run.verified,
            origin_busy: run.origin_busy,
            plateau_s: run.plateau_s,
            limited_by: run.limited_by.as_ref(),
        }
    }
}

#[derive(Serialize)]
#[serde(tag = "event", rename = "bench")]
struct RatioLine {
    op: &'static str,
    #[serde(flatten)]
    end: EndFields,
    throughput: f64,
    cpu: f64,
    origin_busy: Option<f64>,
}

/// The medians of one side, with --json.
#[derive(Serialize)]
#[serde(tag = "event", rename = "bench")]
struct MedianLine {
    op: &'static str,
    of: &'static str,
    #[serde(flatten)]
    end: EndFields,
    gib_per_s: f64,
    cpu_s_per_gib: f64,
    peak_rss_mib: f64,
}

impl MedianLine {
    fn new(op: Op, end: &LocalEnd, median: &Measurement) -> MedianLine {
        MedianLine {
            op: "median",
            of: op.name(),
            end: EndFields::of(end),
            gib_per_s: median.gib_per_s(),
            cpu_s_per_gib: median.cpu_s_per_gib(),
            peak_rss_mib: median.peak_rss_mib,
        }
    }
}
