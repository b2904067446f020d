//! `flatout bench peer`: one transfer in this process, for a lab that measures it from outside.
//!
//! A line each way: `ready` when everything is prepared, `go` on standard input, `done BYTES` or `failed
//! REASON`; then the process waits for the end of its standard input, so that its figures can be read while
//! it lives.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::args::BenchPeer;
use crate::bench::clock::Stopwatch;
use crate::bench::floor::{FloorCall, FloorShape};
use crate::bench::get::{self, refuse_existing};
use crate::bench::many;
use crate::bench::prepare::prepare;
use crate::bench::put;
use crate::bench::spec::{ChildWork, LandingKind, Spec};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};

pub fn peer(args: &BenchPeer, console: &Console) -> Result<Exit, Failure> {
    serve(args, console).or_else(|failure| {
        tell(&format!("failed {}", one_line(&failure.message)))?;
        Err(failure)
    })
}

fn serve(args: &BenchPeer, console: &Console) -> Result<Exit, Failure> {
    let spec = spec(args, console)?;
    let mut prepared = prepare(&spec, console)?;
    tell("ready")?;
    await_go()?;
    let run = prepared.transfer(Stopwatch::unwatched())?;
    if let Some(check) = &args.check {
        show(check, &args.landing, prepared.memory())?;
    }
    // Before anything is let go of: the end of threads and connections is no part of the transfer.
    tell(&format!("done {}", run.bytes))?;
    io::copy(&mut io::stdin(), &mut io::sink()).map_err(|error| lost(&error))?;
    Ok(Exit::Clean)
}

/// The spec of a repetition. Standard output is the lab's: nobody there wants progress.
fn spec(args: &BenchPeer, console: &Console) -> Result<Spec, Failure> {
    let spec = match &args.send {
        Some(file) => spec_of_put(file, args, console)?,
        None => spec_of_get(args, console)?,
    };
    Ok(Spec { progress: false, ..spec })
}

fn spec_of_put(file: &Path, args: &BenchPeer, console: &Console) -> Result<Spec, Failure> {
    let bench = put::prepare(Some(file), None, &args.url, &args.knobs, console)?;
    let work = match args.floor {
        None => ChildWork::Put,
        Some(shape) => ChildWork::FloorPut(of_put(shape, bench.is_secure())?),
    };
    Ok(Spec { work, ..bench.spec().clone() })
}

/// With the bytes in the file of `--check` where they would have been dropped.
fn spec_of_get(args: &BenchPeer, console: &Console) -> Result<Spec, Failure> {
    let landing = match (&args.landing, &args.check) {
        (LandingKind::Stream, _) => return Err(no_stream()),
        (LandingKind::Nowhere, Some(check)) => LandingKind::File(check.clone()),
        (landing, _) => landing.clone(),
    };
    [&landing, &checked(args)].into_iter().try_for_each(refuse_taken)?;
    if let (LandingKind::File(landed), Some(check)) = (&args.landing, &args.check) {
        refuse_within(landed, check)?;
    }
    let bench = match args.recursive {
        true => many::prepare(&args.url, &args.knobs, &landing, console)?,
        false => get::prepare(&args.url, &args.knobs, landing, console)?,
    };
    let work = match (args.recursive, args.floor) {
        (false, None) => ChildWork::Get,
        (true, None) => ChildWork::GetMany,
        (false, Some(shape)) => ChildWork::Floor(of_one(shape, bench.is_secure())?),
        (true, Some(shape)) => ChildWork::FloorMany(of_many(shape)?),
    };
    Ok(Spec { work, ..bench.spec().clone() })
}

fn checked(args: &BenchPeer) -> LandingKind {
    args.check.clone().map_or(LandingKind::Nowhere, LandingKind::File)
}

/// What is there already might be somebody's; a folder without anything in it is not.
fn refuse_taken(landing: &LandingKind) -> Result<(), Failure> {
    match landing {
        LandingKind::File(path) if fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()) => {
            Ok(())
        }
        landing => refuse_existing(landing),
    }
}

/// A copy onto itself empties a file, and one into itself has no end.
fn refuse_within(landed: &Path, check: &Path) -> Result<(), Failure> {
    let (landed, check) = (resolved(landed), resolved(check));
    if !landed.starts_with(&check) && !check.starts_with(&landed) {
        return Ok(());
    }
    let failure = Failure::usage(format!("bench peer: {}: is where the bytes land, too", check.display()));
    Err(failure.with_hint("name another place for --check, or leave it out and read what landed"))
}

/// Where a path leads that need not be there yet, by way of the folders around it that are.
fn resolved(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let beside = || Some(resolved(path.parent()?).join(path.file_name()?));
    fs::canonicalize(&path).ok().or_else(beside).unwrap_or(path.clone())
}

fn of_one(shape: FloorShape, tls: bool) -> Result<FloorShape, Failure> {
    if shape.call.is_of_puts() {
        return Err(only_sends(shape));
    }
    if shape.call == FloorCall::Epoll && tls {
        return Err(no_epoll("over TLS"));
    }
    Ok(FloorShape { tls, ..shape })
}

fn of_many(shape: FloorShape) -> Result<FloorShape, Failure> {
    match shape.call {
        FloorCall::Recv => Ok(shape),
        FloorCall::Epoll => Err(no_epoll("of many objects")),
        FloorCall::Send | FloorCall::Sendfile => Err(only_sends(shape)),
    }
}

fn of_put(shape: FloorShape, tls: bool) -> Result<FloorShape, Failure> {
    let refused = match shape.call {
        FloorCall::Recv | FloorCall::Epoll => format!("floor: {shape} fetches, and this sends"),
        FloorCall::Sendfile if tls => "floor: sendfile(2) does not encrypt, and this is over TLS".to_owned(),
        FloorCall::Send | FloorCall::Sendfile => return Ok(FloorShape { tls, ..shape }),
    };
    Err(Failure::usage(refused).with_hint("--floor send:4:1MiB"))
}

fn only_sends(shape: FloorShape) -> Failure {
    let failure = Failure::usage(format!("floor: {shape} sends, and this fetches"));
    failure.with_hint("--floor recv:4:256KiB")
}

fn no_epoll(of: &str) -> Failure {
    let failure = Failure::usage(format!("floor: the floor {of} has a thread for each connection, no epoll"));
    failure.with_hint("--floor recv:4:256KiB")
}

fn no_stream() -> Failure {
    let failure = Failure::usage("bench peer: a stream needs a reader, and this is one process");
    failure.with_hint("--landing nowhere, memory or file:PATH")
}

/// Makes `check` show what was delivered. From nowhere it landed there by itself.
fn show(check: &Path, landing: &LandingKind, memory: Option<&[u8]>) -> Result<(), Failure> {
    let shown = match (landing, memory) {
        (LandingKind::File(path), _) => copy(path, check),
        (_, Some(bytes)) => fs::write(check, bytes),
        _ => Ok(()),
    };
    shown.map_err(|error| Failure::local("write", check.display(), &error))
}

/// A file, or a folder with all that is in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        return fs::copy(from, to).map(drop);
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn tell(line: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| Failure::stdout(&error))
}

fn await_go() -> Result<(), Failure> {
    let mut line = String::new();
    io::stdin().read_line(&mut line).map_err(|error| lost(&error))?;
    match line.trim_end() {
        "go" => Ok(()),
        other => {
            Err(Failure::usage(format!("bench peer: 'go' was awaited on standard input, not '{other}'")))
        }
    }
}

fn lost(error: &io::Error) -> Failure {
    Failure::local("read", "standard input", error)
}
