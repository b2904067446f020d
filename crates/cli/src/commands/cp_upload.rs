//! `flatout cp` of one file, or of what standard input or a pipe brings, to an object; `flatout pipe`.

use std::ffi::OsStr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use flatout_engine::{Client, Dialect, Error, ErrorKind, Report};
use flatout_wire::location::Location;
use flatout_wire::object_options::Condition;

use crate::args::{Cp, Pipe};
use crate::commands::copied::{AfterCopy, amount};
use crate::commands::cp_upload_many;
use crate::console::{Carries, Console};
use crate::download::TransferOutcome;
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::knobs::Knobs;
use crate::limited::{self, Limited};
use crate::select::FilePattern;
use crate::stored_as::{StoredAs, content_type, options};
use crate::upload::{Upload, UploadSource, unreadable};
use crate::{origin, outages};

/// `flatout cp` with a URL as its target.
pub fn run(args: &Cp, console: &Console, after: AfterCopy<'_>) -> Result<Exit, Failure> {
    refuse_what_is_for_downloads(args)?;
    let pattern = FilePattern::of(&args.source, args.recursive)?;
    if args.recursive || pattern.is_some() {
        return cp_upload_many::run(args, pattern, console);
    }
    refuse_what_is_for_many(args)?;
    let source = source(&args.source)?;
    let target = target(&args.target, &source)?;
    let how = (args.no_clobber, args.dry_run);
    copy(&source, &target, &args.stored_as, how, &args.knobs, (console, after))
}

/// `flatout pipe`: what standard input brings, to an object.
pub fn pipe(args: &Pipe, console: &Console) -> Result<Exit, Failure> {
    let target = target(&args.target, &UploadSource::Stdin)?;
    let how = (args.no_clobber, false);
    copy(&UploadSource::Stdin, &target, &args.stored_as, how, &args.knobs, (console, &|_, _| Ok(())))
}

fn copy(
    source: &UploadSource,
    target: &Location,
    stored_as: &StoredAs,
    (no_clobber, dry_run): (bool, bool),
    knobs: &Knobs,
    (console, after): (&Console, AfterCopy<'_>),
) -> Result<Exit, Failure> {
    let by_source = || match source {
        UploadSource::File(path) => path.to_str().and_then(content_type),
        UploadSource::Stdin | UploadSource::Stream(_) => None,
    };
    let content_type = content_type(target.key()).or_else(by_source);
    let (options, condition) = (options(stored_as, content_type)?, condition(stored_as, no_clobber)?);
    let client = origin::client(console, knobs, &[Dialect::of(target)])?;
    outages::tell(&client, console, Carries::Lines);
    // The origin judges it again when the object is to appear; this spares sending what would be refused.
    // S3 denies a look at an absent object to keys that may not list.
    let looked = if no_clobber { is_there(&client, target) } else { Ok(false) };
    let is_there = match looked {
        Err(error) if error.kind() == ErrorKind::Denied && !dry_run => false,
        looked => looked?,
    };
    if is_there {
        return left_out(source, target, console);
    }
    if dry_run {
        let (from, to) = (one_line(&source.shown()), one_line(&target.to_string()));
        console.answer(&format!("would copy {from} -> {to}"))?;
        console.event(Carries::Lines, &events::Object::of_upload(source.shown(), target, "planned"))?;
        console
            .event(Carries::Lines, &events::Summary { action: "upload", objects: 1, ..Default::default() })?;
        return Ok(Exit::Clean);
    }
    let upload = Upload { client: &client, location: target, options, condition, console };
    let outcome = upload.run(source);
    origin::remember_of(console, &client);
    report(source, target, &outcome, console, |done| after(&client, done))
}

fn refuse_what_is_for_downloads(args: &Cp) -> Result<(), Failure> {
    let target = origin::masked(&args.target);
    if args.version_id.is_some() {
        let failure = Failure::usage(format!("cp: {target}: --version-id is for downloads"));
        return Err(failure.with_hint("leave it out: what is uploaded becomes the newest version"));
    }
    if args.range.is_some() {
        let failure =
            Failure::usage(format!("cp: {target}: --range is for downloads: an upload is of a whole file"));
        return Err(
            failure.with_hint("to send a part: `tail -c +FIRST FILE | head -c COUNT | flatout cp - URL`")
        );
    }
    Ok(())
}

fn refuse_what_is_for_many(args: &Cp) -> Result<(), Failure> {
    let target = origin::masked(&args.target);
    if !args.filters.is_empty() {
        let failure =
            Failure::usage(format!("cp: {target}: --include and --exclude choose among many files"));
        return Err(failure.with_hint("add -r to copy a folder"));
    }
    Ok(())
}

/// What is to be sent, and that it can be.
fn source(typed: &str) -> Result<UploadSource, Failure> {
    if typed == "-" || typed == "/dev/stdin" {
        return Ok(UploadSource::Stdin);
    }
    if typed.is_empty() {
        return Err(
            Failure::usage("cp: the source is empty").with_hint("name a file; use - for standard input")
        );
    }
    let path = Path::new(typed);
    let found = path.metadata().map_err(|error| unreadable(typed, &error))?;
    let kind = found.file_type();
    if kind.is_dir() {
        let failure = Failure::usage(format!("cp: {typed}: is a folder, and one file is wanted"));
        return Err(failure.with_hint("add -r to copy what lies below it"));
    }
    if kind.is_socket() || kind.is_block_device() {
        let what = if kind.is_socket() { "a socket" } else { "a block device" };
        let failure = Failure::usage(format!("cp: {typed}: is {what}, and a file is wanted"));
        return Err(failure.with_hint("send what it holds: `dd if=DEVICE bs=1M | flatout cp - URL`"));
    }
    Ok(match kind.is_file() {
        true => UploadSource::File(path.into()),
        false => UploadSource::Stream(path.into()),
    })
}

/// The object that a file goes to.
pub fn target_of_file(typed: &str, path: &Path) -> Result<Location, Failure> {
    target(typed, &UploadSource::File(path.into()))
}

/// The object: a bucket, or a prefix that ends in '/', gets the file's name.
fn target(typed: &str, source: &UploadSource) -> Result<Location, Failure> {
    let target = origin::location("upload", typed)?;
    let Some((_, key)) = target.in_bucket() else {
        let failure = Failure::usage(format!("upload: {target}: a plain URL cannot be written to"));
        return Err(
            failure.with_hint("name a bucket by s3:// or oss://, with --endpoint-url or --oss-endpoint")
        );
    };
    if !key.is_empty() && !key.ends_with('/') {
        return Ok(target);
    }
    let name = match source {
        UploadSource::File(path) => path.file_name().and_then(OsStr::to_str),
        UploadSource::Stdin | UploadSource::Stream(_) => None,
    };
    let named = name.and_then(|name| target.with_key(format!("{key}{name}")));
    named.ok_or_else(|| {
        let failure =
            Failure::usage(format!("upload: {target}: names no object, and there is no file name to use"));
        failure.with_hint("name the object: s3://BUCKET/KEY")
    })
}

pub fn condition(typed: &StoredAs, no_clobber: bool) -> Result<Condition, Failure> {
    match (&typed.if_match, no_clobber) {
        (Some(_), true) => {
            let failure = Failure::usage("--if-match wants an object that is there, and --no-clobber none");
            Err(failure.with_hint("leave one of them out"))
        }
        (Some(etag), false) => Ok(Condition::Matches(flatout_wire::head::quoted(etag).into_owned())),
        (None, true) => Ok(Condition::Absent),
        (None, false) => Ok(Condition::None),
    }
}

pub fn is_there(client: &Client, target: &Location) -> Result<bool, Error> {
    match client.stat(target) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn left_out(source: &UploadSource, target: &Location, console: &Console) -> Result<Exit, Failure> {
    let why = "an object of that name exists";
    console.say(&format!("{}: left as it is: {why}", one_line(&target.to_string())))?;
    let event = events::Object {
        reason: Some(why.to_owned()),
        ..events::Object::of_upload(source.shown(), target, "skipped")
    };
    console.event(Carries::Lines, &event)?;
    let summary = events::Summary { action: "upload", objects: 1, skipped: 1, ..Default::default() };
    console.event(Carries::Lines, &summary)?;
    Ok(Exit::Clean)
}

/// Says what became of it: the object's event, the error if there is one, the summary.
fn report(
    source: &UploadSource,
    target: &Location,
    outcome: &TransferOutcome,
    console: &Console,
    after: impl FnOnce(&Report) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let done = outcome.result.as_ref().ok();
    let mut exit = match &outcome.result {
        Ok(done) => {
            if let Some(note) = &done.resume_note {
                console.warn(&format!("{target}: {note}"));
            }
            console.say(&format!(
                "{} -> {}: {}, verified: {}",
                one_line(&source.shown()),
                one_line(&target.to_string()),
                amount(done.bytes, done.resumed_bytes, done.seconds),
                done.verified
            ))?;
            limited::line(done.limited_by, done.seconds).map_or(Ok(()), |line| console.say(&line))?;
            Exit::Clean
        }
        Err(failure) => failure.exit,
    };
    let event = events::Object {
        bytes: done.map_or(0, |done| done.bytes),
        fetched: outcome.fetched_bytes,
        resumed: done.map_or(0, |done| done.resumed_bytes),
        note: done.and_then(|done| done.resume_note.clone()),
        verified: done.map(|done| done.verified.to_string()),
        etag: done.and_then(|done| done.version.etag.clone()),
        seconds: outcome.seconds,
        retries: outcome.retries,
        tails: events::Tails::of(done),
        ..events::Object::of_upload(source.shown(), target, if done.is_some() { "ok" } else { "failed" })
    };
    console.event(Carries::Lines, &event)?;
    if let Err(failure) = &outcome.result {
        console.failure(Carries::Lines, failure);
    }
    if let Some(done) = done
        && let Err(failure) = after(done)
    {
        console.failure(Carries::Lines, &failure);
        exit = failure.exit;
    }
    let ok = u64::from(exit == Exit::Clean);
    console.count_bytes(event.bytes);
    let summary = events::Summary {
        action: "upload",
        objects: 1,
        ok,
        failed: 1 - ok,
        bytes: event.bytes,
        fetched: event.fetched,
        resumed: event.resumed,
        seconds: event.seconds,
        limited_by: done.and_then(|done| done.limited_by).map(Limited::from),
        exit: exit.code(),
        ..Default::default()
    };
    console.event(Carries::Lines, &summary)?;
    Ok(exit)
}
