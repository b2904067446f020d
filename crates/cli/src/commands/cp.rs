//! `flatout cp` of one object: to a file, into a folder, or to standard output.

use std::path::{Path, PathBuf};

use flatout_engine::{Client, Dialect, Report};
use flatout_settings::format_size;
use flatout_wire::location::Location;

use crate::args::Cp;
use crate::commands::cp_many;
use crate::console::{Carries, Console};
use crate::download::{Download, Outcome};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::limited::{self, Limited};
use crate::origin;
use crate::select::Source;

/// Where the object goes.
enum Target {
    Stdout,
    File(PathBuf),
}

impl Target {
    fn carries(&self) -> Carries {
        match self {
            Target::Stdout => Carries::Bytes,
            Target::File(_) => Carries::Lines,
        }
    }
}

pub fn run(args: &Cp, console: &Console) -> Result<Exit, Failure> {
    refuse_what_comes_later(args)?;
    let location = origin::location("read", &args.source)?;
    let client = origin::client(&args.knobs, &[Dialect::of(&location)])?;
    if let Some(source) = many(args, &location, &client)? {
        let exit = cp_many::run(args, &source, &client, console);
        origin::remember(&client);
        return exit;
    }
    let source = origin::object("read", &args.source)?;
    refuse_what_is_for_many(args, &source)?;
    let target = target(&args.target, &source)?;
    if let Target::File(path) = &target
        && (args.dry_run || args.no_clobber && path.symlink_metadata().is_ok())
    {
        return cp_many::without(args, &source, path, console);
    }
    let download = Download { client: &client, location: &source, span: args.range.as_ref(), console };
    let outcome = match &target {
        Target::Stdout => download.to_stdout(),
        Target::File(path) => download.to_file(path, args.no_clobber),
    };
    origin::remember(&client);
    report(console, &source, &target, &outcome)
}

/// The source as many objects, if it is that. Wildcards may be part of a key: an object that is called so comes first.
fn many(args: &Cp, location: &Location, client: &Client) -> Result<Option<Source>, Failure> {
    let is_pattern = Source::is_pattern(location) && (args.recursive || client.stat(location).is_err());
    if is_pattern {
        return Source::pattern(location, args.recursive);
    }
    match args.recursive {
        false => Ok(None),
        true => Source::folder(location).map(Some).ok_or_else(|| cp_many::no_listing("cp", location)),
    }
}

fn refuse_what_is_for_many(args: &Cp, source: &Location) -> Result<(), Failure> {
    if args.filters.is_empty() {
        return Ok(());
    }
    let failure = Failure::usage(format!("cp: {source}: --include and --exclude choose among many objects"));
    Err(failure.with_hint("add -r to copy a folder"))
}

fn refuse_what_comes_later(args: &Cp) -> Result<(), Failure> {
    let is_url = |text: &str| text.contains("://");
    let (source, target) = (&args.source, origin::masked(&args.target));
    match (is_url(source), is_url(&args.target)) {
        (true, false) => Ok(()),
        (true, true) => match args.target.split_once("://") {
            Some((scheme, path)) if !["s3", "http", "https", "oss"].contains(&scheme) => {
                let why = format!("cp: {target}: a target is a path, without {scheme}://");
                Err(Failure::usage(why).with_hint(format!("write {}", origin::masked(path))))
            }
            _ => {
                let why = format!("cp: {target}: copies between buckets come in a later version");
                Err(Failure::usage(why).with_hint("copy to a file first"))
            }
        },
        (false, true) => {
            let failure = Failure::usage(format!("cp: {target}: uploads come in a later version"));
            Err(failure.with_hint("to download, name the object first: `flatout cp s3://BUCKET/KEY FILE`"))
        }
        (false, false) => origin::location("read", source).map(drop),
    }
}

/// A folder is one that exists, or whose path ends in '/'; the object's name is appended then.
fn target(typed: &str, source: &Location) -> Result<Target, Failure> {
    if typed == "-" {
        return Ok(Target::Stdout);
    }
    if typed.is_empty() {
        return Err(Failure::usage("cp: the target is empty")
            .with_hint("name a file or a folder; use - for standard output"));
    }
    let path = Path::new(typed);
    if leads_to_a_descriptor(path) {
        return Err(Failure::usage(format!(
            "cp: {typed}: leads to what is open already, and a copy makes a new file"
        ))
        .with_hint("use - for standard output"));
    }
    if !typed.ends_with('/') && !path.is_dir() {
        return Ok(Target::File(path.to_path_buf()));
    }
    match source.name() {
        // Anything else would leave the folder that was named.
        "" | "." | ".." => {
            Err(Failure::usage(format!("cp: {source}: has no name to use in the folder '{typed}'"))
                .with_hint("name the file as well"))
        }
        name if name.contains(['/', '\0']) => {
            Err(Failure::usage(format!("cp: {source}: its name cannot be that of a file"))
                .with_hint("name the file as well"))
        }
        name => Ok(Target::File(path.join(name))),
    }
}

/// Whether the path is /dev/stdout, /dev/fd/N, /proc/self/fd/N or a link to one: the engine's rename would put a file
/// in the place of the link, or fail with the kernel's word for that.
fn leads_to_a_descriptor(path: &Path) -> bool {
    let Ok(descriptors) = Path::new("/proc/self/fd").canonicalize() else { return false };
    let mut path = path.to_path_buf();
    // As many links as the kernel follows; one that goes in a circle leads nowhere.
    for _ in 0..40 {
        let folder = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        if folder.canonicalize().is_ok_and(|folder| folder == descriptors) {
            return true;
        }
        match path.read_link() {
            Ok(link) => path = folder.join(link),
            Err(_) => return false,
        }
    }
    false
}

/// Says what became of it: the object's event, the error if there is one, the summary.
fn report(console: &Console, source: &Location, target: &Target, outcome: &Outcome) -> Result<Exit, Failure> {
    let (carries, event) = (target.carries(), event(source, target, outcome));
    let exit = match (&outcome.result, target) {
        (Ok(done), Target::File(path)) => {
            warn_of_note(console, source, done);
            console.say(&sentence(source, path, done))?;
            limited::line(done.limited_by, done.seconds).map_or(Ok(()), |line| console.say(&line))?;
            Exit::Clean
        }
        (Ok(_), Target::Stdout) => Exit::Clean,
        (Err(failure), _) if failure.is_silent() => return Ok(failure.exit),
        (Err(failure), _) => failure.exit,
    };
    console.event(carries, &event)?;
    if let Err(failure) = &outcome.result {
        console.failure(carries, failure);
    }
    let ok = u64::from(outcome.result.is_ok());
    let summary = events::Summary {
        action: "download",
        objects: 1,
        ok,
        failed: 1 - ok,
        bytes: event.bytes,
        fetched: event.fetched,
        resumed: event.resumed,
        seconds: event.seconds,
        limited_by: outcome.result.as_ref().ok().and_then(|done| done.limited_by).map(Limited::from),
        exit: exit.code(),
        ..Default::default()
    };
    console.event(carries, &summary)?;
    Ok(exit)
}

fn sentence(source: &Location, path: &Path, done: &Report) -> String {
    format!(
        "{} -> {}: {}, verified: {}",
        one_line(&source.to_string()),
        one_line(&path.display().to_string()),
        amount(done.bytes, done.resumed_bytes, done.seconds),
        done.verified
    )
}

/// How much there is, how much of it an earlier run had left, and how fast the rest came.
pub fn amount(bytes: u64, resumed_bytes: u64, seconds: f64) -> String {
    let rate = if seconds > 0.0 { (bytes - resumed_bytes) as f64 / seconds } else { 0.0 };
    let resumed = match resumed_bytes {
        0 => String::new(),
        _ => format!(", resumed: {} of it", format_size(resumed_bytes)),
    };
    format!("{}{resumed} in {seconds:.2} s, {}/s", format_size(bytes), format_size(rate as u64))
}

/// Says why what an earlier run had left was of no use.
pub fn warn_of_note(console: &Console, source: &Location, done: &Report) {
    if let Some(note) = &done.resume_note {
        console.warn(&format!("{source}: {note}"));
    }
}

/// The event of one object, whole or failed.
pub fn object_event(source: &Location, target: Option<&Path>, outcome: &Outcome) -> events::Object {
    let done = outcome.result.as_ref().ok();
    events::Object {
        action: "download",
        status: if done.is_some() { "ok" } else { "failed" },
        key: source.key().to_owned(),
        source: source.to_string(),
        target: target.map(|path| path.display().to_string()),
        bytes: done.map_or(0, |done| done.bytes),
        fetched: outcome.fetched_bytes,
        resumed: done.map_or(0, |done| done.resumed_bytes),
        note: done.and_then(|done| done.resume_note.clone()),
        verified: done.map(|done| done.verified.to_string()),
        reason: None,
        etag: done.and_then(|done| done.version.etag.clone()),
        seconds: outcome.seconds,
        retries: outcome.retries,
        tails: events::Tails::of(done),
    }
}

fn event(source: &Location, target: &Target, outcome: &Outcome) -> events::Object {
    let path = match target {
        Target::Stdout => None,
        Target::File(path) => Some(path.as_path()),
    };
    object_event(source, path, outcome)
}
