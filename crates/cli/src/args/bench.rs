//! The command line of `flatout bench`.

use std::path::PathBuf;

use clap::{Arg, Subcommand, ValueHint};

use super::size;
use crate::bench::{FloorShape, LandingKind};
use crate::help;
use crate::knobs::{Knobs, is_of_the_origin};

#[derive(Debug, Subcommand)]
pub enum Bench {
    /// Fetch one object, or many, again and again, each time in a process of its own, and report each run
    #[command(after_help = help::BENCH_GET)]
    Get(BenchGet),
    /// Send one file, or so many bytes, to an object again and again, each time in a process of its own, and
    /// report each run
    #[command(after_help = help::BENCH_PUT)]
    Put(BenchPut),
    /// See it work: an origin on this machine, one large object, and the floor beside it
    #[command(after_help = help::BENCH_DEMO, mut_args(hidden_where_ignored))]
    Demo(BenchDemo),
    /// Fetch one object by every combination of concurrency and part size, in turn, and name the fastest
    #[command(after_help = help::BENCH_SWEEP, mut_args(listed_where_swept))]
    Sweep(BenchSweep),
    /// One transfer in this process, for a lab that measures it from outside: 'ready' when everything is
    /// prepared, 'go' on standard input starts it, 'done BYTES' ends it
    #[command(hide = true)]
    Peer(BenchPeer),
}

#[derive(Debug, clap::Args)]
pub struct BenchGet {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH; with -r a folder, as
    /// s3://BUCKET[/FOLDER]
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub source: String,
    /// Everything below a folder of a bucket, listed before the clock starts; the landing is nowhere or
    /// file:DIR
    #[arg(long, short, conflicts_with = "parts")]
    pub recursive: bool,
    /// Where the bytes go: nowhere, memory (one buffer, touched before the clock starts), stream (a pipe that
    /// is read and dropped) or file:PATH (new each time, removed afterwards; a folder with -r)
    #[arg(long, value_name = "LANDING", default_value = "nowhere", value_hint = ValueHint::Other)]
    pub landing: LandingKind,
    /// How many runs; each starts with the pace that the one before found, so only the first can be cold
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = repeat)]
    pub repeat: u32,
    /// Take turns with the floor: plain loops that receive the same ranges into the same landing
    #[arg(long)]
    pub floor: bool,
    /// Write a CSV row for each part of each run: times in seconds since the run's start
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub parts: Option<PathBuf>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
#[command(allow_missing_positional = true)]
pub struct BenchPut {
    /// The file to send; --size in its place
    #[arg(value_name = "FILE", required_unless_present = "size", conflicts_with = "size")]
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// s3://BUCKET/KEY or oss://BUCKET/KEY: each run writes it anew, and it stays; one that no `flatout bench
    /// put` wrote is left alone
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub target: String,
    /// Send so many bytes of a pattern instead of a file
    #[arg(long, value_parser = size)]
    pub size: Option<u64>,
    /// How many runs; each starts with the pace that the one before found, so only the first can be cold
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = repeat)]
    pub repeat: u32,
    /// Take turns with the floor: plain loops that send the same parts, without checksums
    #[arg(long)]
    pub floor: bool,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct BenchSweep {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub source: String,
    /// Where the bytes go: nowhere, memory (one buffer, touched before the clock starts), stream (a pipe that
    /// is read and dropped) or file:PATH (new each time, removed afterwards)
    #[arg(long, value_name = "LANDING", default_value = "nowhere", value_hint = ValueHint::Other)]
    pub landing: LandingKind,
    /// How many runs of each combination
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = repeat)]
    pub repeat: u32,
    /// Write the figures, throughput over time and the course of all parts as one self-contained HTML page
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub report: Option<PathBuf>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct BenchPeer {
    /// s3://BUCKET/KEY, oss://BUCKET/KEY or http[s]://HOST[:PORT]/PATH; with -r a folder, as
    /// s3://BUCKET[/FOLDER]
    #[arg(value_name = "URL", value_hint = ValueHint::Url)]
    pub url: String,
    /// Send this file to the URL instead of fetching from it; it stays there
    #[arg(long, value_name = "FILE", conflicts_with_all = ["recursive", "landing", "check"])]
    pub send: Option<PathBuf>,
    /// Everything below a folder of a bucket
    #[arg(long, short)]
    pub recursive: bool,
    /// nowhere, memory (one buffer, touched before 'ready') or file:PATH (new; it stays)
    #[arg(long, value_name = "LANDING", default_value = "nowhere", value_hint = ValueHint::Other)]
    pub landing: LandingKind,
    /// The plain loop of this shape in flatout's place: recv:N:SIZE or epoll:N:SIZE, with --send send:N:SIZE
    /// or sendfile:N:SIZE; connections and bytes a call
    #[arg(long, value_name = "SHAPE")]
    pub floor: Option<FloorShape>,
    /// Show what was delivered: a file with the object's bytes, each at its offset; with -r a folder
    #[arg(long, value_name = "FILE")]
    pub check: Option<PathBuf>,
    #[command(flatten)]
    pub knobs: Knobs,
}

#[derive(Debug, clap::Args)]
pub struct BenchDemo {
    /// Size of the object
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size)]
    pub size: u64,
    #[command(flatten)]
    pub knobs: Knobs,
}

/// The demo brings its own origin: what says where another one is has no effect there.
fn hidden_where_ignored(arg: Arg) -> Arg {
    let ignored = is_of_the_origin(&arg);
    arg.hide(ignored)
}

/// A sweep goes through several values of what it varies, and takes them from nowhere but its command line.
fn listed_where_swept(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "parallel" => arg.value_delimiter(',').value_name("N,...").help(
            "Parts asked for at a time, one number after the other [default: 1, 2 and 4 times the cores, at least 4,8,16]",
        ),
        "part-size" => arg
            .value_delimiter(',')
            .value_name("SIZE,...")
            .help("Bytes asked for in one request, one size after the other [default: 2MiB,8MiB,32MiB]"),
        _ => arg,
    }
}

fn repeat(text: &str) -> Result<u32, String> {
    let within = text.parse().ok().filter(|count| (1..=10_000).contains(count));
    within.ok_or_else(|| "write a whole number from 1 to 10000".into())
}
