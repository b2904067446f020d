//! `flatout cp` of one object: to a file, into a folder, into a pipe or a device, or to standard output.
//! Copies the other way are in `cp_upload`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use flatout_engine::{Client, Dialect, ErrorKind, Report, is_temporary_name};
use flatout_wire::location::Location;
use rustix::io::Errno;

use crate::args::Cp;
use crate::commands::copied::{AfterCopy, amount};
use crate::commands::{cp_between, cp_many, cp_several, cp_upload};
use crate::console::{Carries, Console};
use crate::download::{Download, TransferOutcome};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::limited::{self, Limited};
use crate::select::Source;
use crate::{origin, outages};

/// Where the object goes.
enum CopyTarget {
    Stdout,
    /// A pipe with a name or a character device, which takes bytes as they come.
    Stream(PathBuf),
    File(PathBuf),
}

impl CopyTarget {
    fn carries(&self) -> Carries {
        match self {
            CopyTarget::Stdout => Carries::Bytes,
            CopyTarget::Stream(_) | CopyTarget::File(_) => Carries::Lines,
        }
    }

    fn path(&self) -> Option<&Path> {
        match self {
            CopyTarget::Stdout => None,
            CopyTarget::Stream(path) | CopyTarget::File(path) => Some(path),
        }
    }
}

pub fn run(args: &Cp, console: &Console) -> Result<Exit, Failure> {
    match args.more.is_empty() {
        true => run_and(args, console, &|_, _| Ok(())),
        false => cp_several::run(args, console),
    }
}

/// Copies, and does what is to be done after a copy of one object.
pub fn run_and(args: &Cp, console: &Console, after: AfterCopy<'_>) -> Result<Exit, Failure> {
    if is_upload(args) {
        return cp_upload::run(args, console, after);
    }
    if cp_between::is_meant(args) {
        return cp_between::run(args, console, after);
    }
    refuse_what_comes_later(args)?;
    let location = origin::location("read", &args.source)?;
    refuse_wildcards(&args.target, &location)?;
    let client = origin::client(console, &args.knobs, &[Dialect::of(&location)])?;
    let to_stdout = is_stdout(&args.target);
    outages::tell(&client, console, if to_stdout { Carries::Bytes } else { Carries::Lines });
    if let Some(source) = many(args, &location, &client)? {
        let exit = cp_many::run(args, &source, &client, console);
        origin::remember_of(console, &client);
        return exit;
    }
    let version_id = args.version_id.as_deref();
    let source = origin::object_or_mark(&client, "read", &args.source, version_id)?;
    refuse_what_is_for_many(args, &source)?;
    let target = if to_stdout { CopyTarget::Stdout } else { target(&args.target, &source)? };
    refuse_a_temporary_name(&target)?;
    let exists = || target.path().is_some_and(|path| path.symlink_metadata().is_ok());
    if args.dry_run || args.no_clobber && exists() {
        return cp_many::without(args, &source, target.path().unwrap_or(Path::new("-")), console);
    }
    let (location, span) = (&source, args.range.as_ref());
    let made = match &target {
        CopyTarget::File(path) if args.target.ends_with('/') => make_folder(path)?,
        _ => Vec::new(),
    };
    let download = Download { client: &client, location, version_id, span, console };
    let mut outcome = match &target {
        CopyTarget::Stdout => download.to_stdout(),
        CopyTarget::Stream(path) => download.to_stream(path),
        CopyTarget::File(path) => download.to_file(path, args.no_clobber),
    };
    origin::remember_of(console, &client);
    if outcome.result.is_err() && console.line_of_run().is_none() {
        // One that holds something by now stays. Another line may be about to write there.
        made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
    if let Err(failure) = &mut outcome.result
        && failure.kind == ErrorKind::NotFound.name()
        && has_keys_below(&source, &client)
    {
        failure.hint =
            Some(format!("keys lie below {source}/: to copy that folder, `flatout cp -r {source}/ DIR`"));
    }
    report(console, &source, &target, &outcome, |done| after(&client, done))
}

/// The source as many objects, if it is that. Wildcards may be part of a key: an object that is called so
/// comes first.
fn many(args: &Cp, location: &Location, client: &Client) -> Result<Option<Source>, Failure> {
    let is_pattern = Source::is_pattern(location)
        && args.version_id.is_none()
        && (args.recursive || client.stat(location).is_err());
    if is_pattern {
        return Source::pattern(location, args.recursive);
    }
    match args.recursive {
        false => Ok(None),
        true => Source::folder(location).map(Some).ok_or_else(|| cp_many::no_listing("cp", location)),
    }
}

/// Whether what is no object is a folder.
fn has_keys_below(source: &Location, client: &Client) -> bool {
    let folder = Source::folder(source).filter(|_| source.bucket().is_some());
    let listing = folder.and_then(|folder| client.list(&folder.location, false).ok());
    listing.is_some_and(|mut listing| matches!(listing.next(), Some(Ok(_))))
}

fn refuse_what_is_for_many(args: &Cp, source: &Location) -> Result<(), Failure> {
    if args.filters.is_empty() {
        return Ok(());
    }
    let failure = Failure::usage(format!("cp: {source}: --include and --exclude choose among many objects"));
    Err(failure.with_hint("add -r to copy a folder"))
}

/// Whether a file, or what standard input brings, goes to an object.
fn is_upload(args: &Cp) -> bool {
    !args.source.contains("://") && args.target.contains("://")
}

fn refuse_what_comes_later(args: &Cp) -> Result<(), Failure> {
    if !args.stored_as.is_empty() {
        let failure = Failure::usage(format!(
            "cp: {}: options of an object are for uploads",
            origin::masked(&args.target)
        ));
        return Err(failure.with_hint("leave out --content-type and the like, or name a URL as the target"));
    }
    let is_url = |text: &str| text.contains("://");
    let (source, target) = (&args.source, origin::masked(&args.target));
    match (is_url(source), is_url(&args.target)) {
        (true, false) => Ok(()),
        (true, true) => match args.target.split_once("://") {
            Some((scheme, path)) if !["s3", "http", "https", "oss"].contains(&scheme) => {
                let why = format!("cp: {target}: a target is a path, without {scheme}://");
                Err(Failure::usage(why).with_hint(format!("write {}", origin::masked(path))))
            }
            _ => unreachable!("that is a copy from object to object"),
        },
        (false, true) => unreachable!("that is an upload"),
        (false, false) if origin::is_a_path(source) || Path::new(source).exists() => {
            let failure =
                Failure::usage(format!("cp: {source}: one side has to be a URL, and both are paths"));
            Err(failure.with_hint(
                "`flatout cp s3://BUCKET/KEY FILE` downloads, `flatout cp FILE s3://BUCKET/KEY` uploads; cp(1) copies \
                 files",
            ))
        }
        (false, false) => origin::location("read", source).map(drop),
    }
}

/// A shell leaves a pattern that matches nothing as it is: to make a file called `*` is not what anybody
/// means, unless the object is called so.
fn refuse_wildcards(typed: &str, source: &Location) -> Result<(), Failure> {
    if !typed.contains(['*', '?']) {
        return Ok(());
    }
    let path = Path::new(typed);
    let there = path.ancestors().find(|path| path.symlink_metadata().is_ok()).unwrap_or(Path::new(""));
    let new = path.strip_prefix(there).unwrap_or(path);
    let is_pattern = |name: &OsStr| name.to_str().is_some_and(|name| name.contains(['*', '?']));
    if !new.iter().any(is_pattern) || new.as_os_str() == source.name() {
        return Ok(());
    }
    let failure = Failure::usage(format!("cp: {typed}: a target is no pattern, and nothing is called so"));
    Err(failure.with_hint("name a file or a folder, without * and ?"))
}

/// Whether the target is standard output, under whichever of its names.
pub fn is_stdout(typed: &str) -> bool {
    typed == "-" || descriptor(Path::new(typed)).is_some_and(|number| number == "1")
}

/// A folder is one that exists, or whose path ends in '/'; the object's name is appended then.
fn target(typed: &str, source: &Location) -> Result<CopyTarget, Failure> {
    if typed.is_empty() {
        return Err(Failure::usage("cp: the target is empty")
            .with_hint("name a file or a folder; use - for standard output"));
    }
    let path = Path::new(typed);
    // Nothing is there: each look that is spared counts for a line of `flatout run`.
    if !typed.ends_with('/') && path.symlink_metadata().is_err() {
        return Ok(CopyTarget::File(path.to_path_buf()));
    }
    let kind = path.metadata().ok().map(|known| known.file_type());
    match kind {
        Some(kind) if kind.is_fifo() || kind.is_char_device() => return Ok(CopyTarget::Stream(path.into())),
        Some(kind) if kind.is_block_device() => {
            return Err(Failure::usage(format!("cp: {typed}: is a block device, and holds other data"))
                .with_hint("to overwrite it: `flatout cat URL | dd of=DEVICE bs=1M`"));
        }
        Some(kind) if kind.is_socket() => {
            return Err(Failure::usage(format!("cp: {typed}: is a socket"))
                .with_hint("name a file, a pipe, or - for standard output"));
        }
        _ => {}
    }
    if descriptor(path).is_some() {
        return Err(Failure::usage(format!(
            "cp: {typed}: leads to what is open already, and a copy makes a new file"
        ))
        .with_hint("use - for standard output"));
    }
    if !typed.ends_with('/') && !path.is_dir() {
        return Ok(CopyTarget::File(path.to_path_buf()));
    }
    // Who names a folder's mark and no file means what lies below it.
    if let Some((bucket, key)) = source.in_bucket().filter(|(_, key)| key.ends_with('/')) {
        return Err(origin::no_object("read", source, bucket, key));
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
        name => Ok(CopyTarget::File(path.join(name))),
    }
}

/// Makes the folder of a file whose target ends in '/', and returns what was made, innermost first.
fn make_folder(file: &Path) -> Result<Vec<PathBuf>, Failure> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let is_new = |folder: &&Path| !folder.as_os_str().is_empty() && folder.symlink_metadata().is_err();
    let new: Vec<PathBuf> = folder.ancestors().take_while(is_new).map(Path::to_path_buf).collect();
    let made = fs::create_dir_all(folder).map_err(|error| match error.kind() {
        // A file has the folder's name.
        io::ErrorKind::AlreadyExists => Errno::NOTDIR.into(),
        _ => error,
    });
    made.map_err(|error| Failure::local("make", folder.display(), &error))?;
    Ok(new)
}

/// The next `cp -r` into that folder would take it for what a killed run left, and remove it.
fn refuse_a_temporary_name(target: &CopyTarget) -> Result<(), Failure> {
    let CopyTarget::File(path) = target else { return Ok(()) };
    match path.file_name().and_then(OsStr::to_str).filter(|name| is_temporary_name(name)) {
        None => Ok(()),
        Some(name) => Err(Failure::usage(format!(
            "cp: {}: '{name}' has the form of our temporary files, which a later run clears",
            path.display()
        ))
        .with_hint("name the file otherwise: `flatout cp URL FILE`")),
    }
}

/// The number of the descriptor that the path leads to, as /dev/stdout, /dev/fd/N, /proc/self/fd/N or a link
/// to one of them: to put a file in the place of the link is not what anybody means.
fn descriptor(path: &Path) -> Option<OsString> {
    // Each of them is a link, however it is reached; what is no link spares the rest of this.
    if !path.symlink_metadata().is_ok_and(|found| found.is_symlink()) {
        return None;
    }
    let descriptors = Path::new("/proc/self/fd").canonicalize().ok()?;
    let mut path = path.to_path_buf();
    // As many links as the kernel follows; one that goes in a circle leads nowhere.
    for _ in 0..40 {
        let folder = path.parent().unwrap_or(Path::new("/")).to_path_buf();
        if folder.canonicalize().is_ok_and(|folder| folder == descriptors) {
            return path.file_name().map(OsStr::to_owned);
        }
        path = folder.join(path.read_link().ok()?);
    }
    None
}

/// Says what became of it: the object's event, the error if there is one, the summary.
fn report(
    console: &Console,
    source: &Location,
    target: &CopyTarget,
    outcome: &TransferOutcome,
    after: impl FnOnce(&Report) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let (carries, event) = (target.carries(), event(source, target, outcome));
    let mut exit = match (&outcome.result, target) {
        (Ok(done), CopyTarget::File(path) | CopyTarget::Stream(path)) => {
            warn_of_note(console, source, done);
            console.say(&sentence(source, path, done))?;
            limited::line(done.limited_by, done.seconds).map_or(Ok(()), |line| console.say(&line))?;
            Exit::Clean
        }
        (Ok(_), CopyTarget::Stdout) => Exit::Clean,
        (Err(failure), _) if failure.is_silent() => return Ok(failure.exit),
        (Err(failure), _) => failure.exit,
    };
    console.event(carries, &event)?;
    if let Err(failure) = &outcome.result {
        console.failure(carries, failure);
    }
    if let Ok(done) = &outcome.result
        && let Err(failure) = after(done)
    {
        console.failure(carries, &failure);
        exit = failure.exit;
    }
    let ok = u64::from(exit == Exit::Clean);
    console.count_bytes(event.bytes);
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

/// Says why what an earlier run had left was of no use.
fn warn_of_note(console: &Console, source: &Location, done: &Report) {
    if let Some(note) = &done.resume_note {
        console.warn(&format!("{source}: {note}"));
    }
}

/// The event of one object, whole or failed.
pub fn object_event(source: &Location, target: Option<&Path>, outcome: &TransferOutcome) -> events::Object {
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

fn event(source: &Location, target: &CopyTarget, outcome: &TransferOutcome) -> events::Object {
    object_event(source, target.path(), outcome)
}
