//! `flatout bench demo`: an origin on this machine, one large object, and the floor beside it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use flatout_settings::format_size;

use crate::args::BenchDemo;
use crate::bench::floor::{FloorCall, FloorShape};
use crate::bench::get::prepare;
use crate::bench::report::{Op, ratio, ratio_event, run_event};
use crate::bench::run::{Measurement, median};
use crate::bench::session::{BenchSession, SearchEffort};
use crate::bench::spec::{ChildWork, LandingKind, LocalEnd};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sys;

/// Alternating pairs behind each figure: the median of three stands where one run was disturbed.
const PAIRS: u32 = 3;

pub fn demo(args: &BenchDemo, console: &Console) -> Result<Exit, Failure> {
    let size = format_size(args.size);
    let object = format!("object-{size}");
    let armed = console.interrupt.arm();
    let origin = LocalOrigin::start(&format!("demo/{object}={}", args.size))?;
    let id = origin.process.id();
    armed.on_signal(move || sys::terminate(id));
    say(
        console,
        &format!(
            "An origin on this machine ({}) serves an object of {size}, made up as it is read.",
            origin.url
        ),
    )?;
    say(console, "Its bytes go nowhere: memory that was never touched would cost more than the transfer.")?;
    let knobs = args.knobs.clone().with("endpoint-url", &origin.url).with("no-sign-request", "true");
    // The environment's proxy would answer for an origin on another machine's loopback.
    let knobs = knobs.with("no-proxy", "*");
    let bench = prepare(&format!("s3://demo/{object}"), &knobs, LandingKind::Nowhere, console)?;
    let first = bench.repetition(ChildWork::Get)?;
    say(console, &format!("fetched: {size} in {:.2} s, verified: {}", first.seconds, first.verified))?;
    let runs = beside_the_floor(&bench, console)?;
    table(&runs, console)
}

/// Finds the floor, then alternates with it. Who goes first changes, as in `bench get`.
fn beside_the_floor(bench: &BenchSession, console: &Console) -> Result<Vec<(Op, Measurement)>, Failure> {
    say(console, "The floor is the best of ten plain loops around recv(2) and epoll; trying them ...")?;
    let shape = bench.best_shape(SearchEffort::Quick)?;
    say(console, &format!("The best here: {}.", described(shape)))?;
    say(console, &format!("Now {PAIRS} times each, flatout and that loop in turn; the medians count ..."))?;
    let mut runs = Vec::new();
    for number in 1..=PAIRS {
        let mut turns = [(Op::Get, ChildWork::Get), (Op::Floor(shape), ChildWork::Floor(shape))];
        turns.rotate_left(number as usize % 2);
        for (op, work) in turns {
            runs.push((op, bench.repetition(work)?));
        }
    }
    Ok(runs)
}

/// The small table and the two lines that a script may look for.
fn table(runs: &[(Op, Measurement)], console: &Console) -> Result<Exit, Failure> {
    let of = |wanted: fn(&Op) -> bool| -> Vec<&Measurement> {
        runs.iter().filter(|(op, _)| wanted(op)).map(|(_, run)| run).collect()
    };
    let gets = of(|op| *op == Op::Get);
    console.answer("")?;
    console.answer("             GiB/s  CPU s/GiB  RSS MiB")?;
    console.answer(&row("flatout", &gets))?;
    console.answer(&row("the floor", &of(|op| *op != Op::Get)))?;
    console.answer("")?;
    let verified = &gets[0].verified;
    let ratio = ratio(runs).expect("both ran");
    let end = LocalEnd::Landing(LandingKind::Nowhere);
    for (at, (op, run)) in runs.iter().enumerate() {
        run_event(console, *op, at as u32 / 2 + 1, &end, run)?;
    }
    ratio_event(console, &end, ratio)?;
    console.answer(&format!("verified: {verified}"))?;
    console.answer(&format!(
        "ratio to the floor: {:.2} of its throughput, {:.2} of its CPU",
        ratio.throughput, ratio.cpu
    ))?;
    match verified.starts_with("none") {
        false => Ok(Exit::Clean),
        true => Err(Failure {
            exit: Exit::Failed,
            kind: "corrupt".into(),
            message: format!("bench demo: the object was not verified: {verified}"),
            hint: Some("leave --no-verify out".into()),
        }),
    }
}

fn row(name: &str, runs: &[&Measurement]) -> String {
    let of = |figure: fn(&Measurement) -> f64| median(runs.iter().map(|run| figure(run)));
    let (rate, cpu, memory) =
        (of(Measurement::gib_per_s), of(Measurement::cpu_s_per_gib), of(|run| run.peak_rss_mib));
    format!("{name:11} {rate:6.2} {cpu:10.3} {memory:8.1}")
}

fn described(shape: FloorShape) -> String {
    let size = format_size(shape.call_bytes as u64);
    match (shape.call, shape.connections) {
        (FloorCall::Epoll, connections) => {
            format!("one epoll thread over {connections} connections, {size} a call")
        }
        (_, 1) => format!("one connection, {size} a call"),
        (_, connections) => format!("{connections} connections, a thread each, {size} a call"),
    }
}

fn say(console: &Console, line: &str) -> Result<(), Failure> {
    console.say(line)?;
    console.flush()
}

/// `flatout serve` as a child; it ends with this value, whatever happens.
struct LocalOrigin {
    process: Child,
    url: String,
}

impl LocalOrigin {
    fn start(synthetic: &str) -> Result<LocalOrigin, Failure> {
        let failed = |error: std::io::Error| Failure::local("bench", "the origin's process", &error);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["serve", "--synthetic", synthetic, "--no-auth", "--listen", "127.0.0.1:0"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        sys::die_with_parent(&mut command);
        let process = command.spawn().map_err(failed)?;
        let mut origin = LocalOrigin { process, url: String::new() };
        let output = origin.process.stdout.take().expect("its standard output is piped");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
        match line.trim_end().strip_prefix("listening on ") {
            Some(url) => origin.url = url.to_owned(),
            None => return Err(Failure::internal("bench demo: the origin's process did not start")),
        }
        Ok(origin)
    }
}

impl Drop for LocalOrigin {
    fn drop(&mut self) {
        // It may have ended by itself, on the same signal.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
