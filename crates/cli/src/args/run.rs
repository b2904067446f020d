//! The arguments of `flatout run`.

use std::path::PathBuf;

use clap::ValueHint;

use crate::knobs::Knobs;
use crate::report::ReportTo;

/// How many lines run at once where nothing is said: an object of a few KiB takes a round trip, and nothing
/// else of a line does.
const JOBS: u16 = 64;
/// Each has a thread.
const JOBS_MAX: u16 = 1024;

#[derive(Debug, clap::Args)]
pub struct Run {
    /// A file with a command in each line; - or nothing is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// How many lines run at once, at most
    #[arg(
        long,
        short,
        value_name = "N",
        alias = "numworkers",
        default_value_t = JOBS,
        value_parser = jobs
    )]
    pub jobs: u16,
    /// Begin no line after one has failed
    #[arg(long)]
    pub stop_on_error: bool,
    /// Only say what would be copied, moved, deleted and made, and change nothing
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub report: ReportTo,
    #[command(flatten)]
    pub knobs: Knobs,
}

fn jobs(text: &str) -> Result<u16, String> {
    let jobs = text.trim().parse().ok().filter(|jobs| (1..=JOBS_MAX).contains(jobs));
    jobs.ok_or_else(|| format!("write a number from 1 to {JOBS_MAX}"))
}
