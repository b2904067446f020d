//! The `flatout` program: reads the command line, runs one command, maps its end to an exit code.

mod args;
mod bench;
mod commands;
mod console;
mod download;
mod engines;
mod events;
mod exit;
mod failure;
mod files;
mod hashing;
mod help;
mod hint;
mod knobs;
mod limited;
mod manual;
mod origin;
mod outages;
mod progress;
mod refusal;
mod report;
mod run_downloads;
mod select;
mod signal;
mod stdout;
mod stored_as;
mod sys;
mod temporary_files;
mod upload;
mod weather;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Bench, Command, Config, Csi, Line, Man};
use crate::console::{Carries, Console};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::report::Report;
use crate::signal::Interrupt;

fn main() -> ExitCode {
    stdout::keep_closed();
    files::raise_limit();
    let exit = match parsed() {
        Ok(line) => run(line),
        Err(refused) => refusal::show(&refused),
    };
    ExitCode::from(exit.code())
}

/// BlockingCall as mount.flatout, it is what mount(8) runs for file systems of type `flatout`.
fn parsed() -> Result<Line, clap::Error> {
    let arguments: Vec<_> = std::env::args_os().collect();
    match commands::mount::helper::command_line(&arguments) {
        Some(line) => Line::try_parse_from(line),
        None => Line::try_parse_from(arguments),
    }
}

fn run(line: Line) -> Exit {
    let interrupt = match Interrupt::listen() {
        Ok(interrupt) => interrupt,
        Err(error) => {
            eprintln!("{}", Failure::local("listen", "signals", &error));
            return Exit::Failed;
        }
    };
    let carries = carries(&line.command);
    let console = Console::new(interrupt, line.json, line.quiet, !line.no_progress);
    let report = match line.command.report().map(Report::create).transpose() {
        Ok(report) => report,
        Err(failure) => {
            console.failure(carries, &failure);
            return failure.exit;
        }
    };
    let console = console.reporting_to(report);
    // Before anything is asked for whose result could not be written.
    let ready = match line.json || answers(&line.command) {
        true => stdout::check(),
        false => {
            console.reports_only();
            Ok(())
        }
    };
    let outcome = ready.and_then(|()| dispatch(&line.command, &console));
    let outcome = outcome.and_then(|exit| console.flush().map(|()| console.exit(exit)));
    let exit = outcome.unwrap_or_else(|failure| {
        console.failure(carries, &failure);
        failure.exit
    });
    match console.report().map_or(Ok(()), Report::finish) {
        Ok(()) => exit,
        // What it would tell of is done all the same.
        Err(failure) => {
            console.warn(&format!("the report is not whole: {}", failure.message));
            exit.max(Exit::LeftOut)
        }
    }
}

fn dispatch(command: &Command, console: &Console) -> Result<Exit, Failure> {
    match command {
        Command::Cp(args) => commands::cp::run(args, console),
        Command::Pipe(args) => commands::cp_upload::pipe(args, console),
        Command::Cat(args) => commands::cat::run(args, console),
        Command::Ls(args) => commands::ls::run(args, console),
        Command::Stat(args) => commands::stat::run(args, console),
        Command::Mv(args) => commands::mv::run(args, console),
        Command::Sync(args) => commands::sync::run(args, console),
        Command::Rm(args) => commands::rm::run(args, console),
        Command::Mb(args) => commands::buckets::make(args, console),
        Command::Rb(args) => commands::buckets::remove(args, console),
        Command::Presign(args) => commands::presign::run(args, console),
        Command::Du(args) => commands::du::run(args, console),
        Command::Hash(args) => commands::hash::run(args, console),
        Command::Uploads(args) => commands::uploads::run(args, console),
        Command::Run(args) => commands::run::run(args, console),
        Command::Mount(args) => commands::mount::run(args, console),
        Command::Volume(args) => commands::volume::run(args, console),
        Command::Umount(args) => commands::umount::run(args, console),
        Command::Top(args) => commands::top::run(args, console),
        Command::Serve(args) => commands::serve::run(args, console),
        Command::Csi(Csi::Node(args)) => commands::csi::node(args, console),
        Command::Csi(Csi::Engine(args)) => commands::csi::engine(args, console),
        Command::Csi(Csi::Controller(args)) => commands::csi::controller(args, console),
        Command::Bench(Bench::Get(args)) => bench::get(args, console),
        Command::Bench(Bench::Put(args)) => bench::put(args, console),
        Command::Bench(Bench::Demo(args)) => bench::demo(args, console),
        Command::Bench(Bench::Sweep(args)) => bench::sweep(args, console),
        Command::Bench(Bench::Peer(args)) => bench::peer(args, console),
        Command::Config(Config::Show(args)) => commands::config::show(args, console),
        Command::Config(Config::Path) => commands::config::path(console),
        Command::Doctor(args) => commands::doctor::run(args, console),
        Command::Version(args) => commands::version::run(args, console),
        Command::Completions(args) => commands::completions::run(args),
        Command::Man(args) => commands::man::run(args, console),
        Command::BenchChild => bench::child(console),
        Command::Drain => bench::drain(),
        Command::ReadFiles(args) => bench::read_files(args, console),
    }
}

/// Whether standard output is what the command is for; others say there what they have done.
fn answers(command: &Command) -> bool {
    match command {
        Command::Cp(args) => args.dry_run || carries(command) == Carries::Bytes,
        Command::Mv(args) => args.dry_run,
        Command::Sync(args) => args.dry_run,
        Command::Rm(args) => args.dry_run,
        Command::Mb(_) | Command::Rb(_) => false,
        Command::Uploads(args) => !args.abort,
        Command::Man(args) => args.folder.is_none(),
        Command::Run(_) | Command::Mount(_) | Command::Umount(_) | Command::Csi(_) | Command::Drain => false,
        _ => true,
    }
}

/// Standard output is the object's when the object goes there.
fn carries(command: &Command) -> Carries {
    match command {
        Command::Cat(_) | Command::Completions(_) | Command::Man(Man { folder: None }) => Carries::Bytes,
        Command::Cp(args) if commands::cp::is_stdout(&args.target) => Carries::Bytes,
        _ => Carries::Lines,
    }
}
