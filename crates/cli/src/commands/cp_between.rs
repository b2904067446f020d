//! `flatout cp` from object to object: by the service itself where both are its own, else through this
//! machine.

use std::time::Instant;

use flatout_engine::{Client, Dialect, Report, ServerCopy};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};

use crate::args::Cp;
use crate::commands::copied::{AfterCopy, amount};
use crate::commands::cp_between_many;
use crate::commands::cp_through::{Switches, Through};
use crate::commands::cp_upload::{condition, is_there};
use crate::console::{Carries, Console};
use crate::download::{TransferOutcome, stoppable};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::progress::Bar;
use crate::select::Source;
use crate::stored_as::options;
use crate::{origin, outages};

/// Whether both sides are URLs of objects.
pub fn is_meant(args: &Cp) -> bool {
    let schemes = ["s3://", "oss://", "http://", "https://"];
    args.source.contains("://") && schemes.iter().any(|scheme| args.target.starts_with(scheme))
}

/// What is copied, where to, and how it is to be stored.
struct Between<'a> {
    client: &'a Client,
    from: &'a Location,
    to: &'a Location,
    options: ObjectOptions,
    condition: Condition,
    console: &'a Console,
}

pub fn run(args: &Cp, console: &Console, after: AfterCopy<'_>) -> Result<Exit, Failure> {
    refuse_what_is_for_others(args)?;
    if let Some(exit) = many(args, console)? {
        return Ok(exit);
    }
    refuse_filters(args)?;
    let from = origin::object("read", &args.source)?;
    let to = target(&args.target, &from)?;
    let (options, condition) =
        (options(&args.stored_as, None)?, condition(&args.stored_as, args.no_clobber)?);
    let client = origin::client(console, &args.knobs, &[Dialect::of(&from), Dialect::of(&to)])?;
    outages::tell(&client, console, Carries::Lines);
    // The origin may judge it again, but not all do.
    if args.no_clobber && is_there(&client, &to)? {
        return left_out(&from, &to, console);
    }
    if args.dry_run {
        console.answer(&format!("would copy {} -> {}", shown(&from), shown(&to)))?;
        console.event(Carries::Lines, &events::Object::of_copy(&from, &to, "planned"))?;
        let summary = events::Summary { action: "copy", objects: 1, ..Default::default() };
        console.event(Carries::Lines, &summary)?;
        return Ok(Exit::Clean);
    }
    let between = Between { client: &client, from: &from, to: &to, options, condition, console };
    let is_within = client.copies_within_service(&from, &to);
    let outcome = if is_within { between.within_service() } else { between.through_here() };
    origin::remember_of(console, &client);
    report(&from, &to, &outcome, console, |done| after(&client, done))
}

fn refuse_what_is_for_others(args: &Cp) -> Result<(), Failure> {
    let target = origin::masked(&args.target);
    if args.version_id.is_some() {
        let why = format!("cp: {target}: --version-id is for downloads: the newest version is copied");
        return Err(Failure::usage(why)
            .with_hint("for another one: `flatout cat --version-id ID URL | flatout pipe URL`"));
    }
    if args.range.is_some() {
        let why = format!("cp: {target}: --range is for downloads: a copy is of a whole object");
        return Err(
            Failure::usage(why).with_hint("for a part: `flatout cat --range RANGE URL | flatout pipe URL`")
        );
    }
    Ok(())
}

fn refuse_filters(args: &Cp) -> Result<(), Failure> {
    let target = origin::masked(&args.target);
    if !args.filters.is_empty() {
        let why = format!("cp: {target}: --include and --exclude choose among many objects");
        return Err(Failure::usage(why).with_hint("name one object, without them"));
    }
    Ok(())
}

/// Copies many objects, where that is meant. An object that is called like the pattern comes first.
fn many(args: &Cp, console: &Console) -> Result<Option<Exit>, Failure> {
    let from = origin::location("read", &args.source)?;
    let is_pattern = Source::is_pattern(&from);
    if !args.recursive && !is_pattern {
        return Ok(None);
    }
    let to = origin::location("copy", &args.target)?;
    let client = origin::client(console, &args.knobs, &[Dialect::of(&from), Dialect::of(&to)])?;
    outages::tell(&client, console, Carries::Lines);
    let source = match is_pattern && (args.recursive || client.stat(&from).is_err()) {
        true => Source::pattern(&from, args.recursive)?,
        false if args.recursive => Source::folder(&from),
        false => return Ok(None),
    };
    let Some(source) = source else {
        let failure = Failure::usage(format!("cp: {from}: plain HTTP has no listing"));
        return Err(failure.with_hint("for a bucket write s3://BUCKET/FOLDER and --endpoint-url"));
    };
    let exit = cp_between_many::run(args, source, &client, console);
    origin::remember_of(console, &client);
    exit.map(Some)
}

/// The object: a bucket, or a prefix that ends in '/', gets the source's name.
pub fn target(typed: &str, from: &Location) -> Result<Location, Failure> {
    let to = origin::location("copy", typed)?;
    let Some((_, key)) = to.in_bucket() else {
        let failure = Failure::usage(format!("copy: {to}: a plain URL cannot be written to"));
        return Err(failure.with_hint("name a bucket by s3:// or oss://"));
    };
    if !key.is_empty() && !key.ends_with('/') {
        return Ok(to);
    }
    let named = Some(from.name()).filter(|name| !name.is_empty());
    let named = named.and_then(|name| to.with_key(format!("{key}{name}")));
    named.ok_or_else(|| {
        let failure = Failure::usage(format!("copy: {to}: names no object, and the source has no name"));
        failure.with_hint("name the object: s3://BUCKET/KEY")
    })
}

impl Between<'_> {
    /// No byte of the object comes here.
    fn within_service(self) -> TransferOutcome {
        let begun = Instant::now();
        let bar = Bar::new(self.console, Carries::Lines, self.to.name());
        let copy = ServerCopy::new(self.from.clone(), self.to.clone());
        let copy = copy.with_options(self.options).on_condition(self.condition);
        let started = stoppable(self.console, || self.client.copy(copy));
        let mut outcome = TransferOutcome::after(started, begun, |transfer| {
            bar.follow(&transfer);
            Ok(transfer.wait()?)
        });
        outcome.fetched_bytes = 0;
        outcome
    }

    /// Every byte of the object comes here, and goes on.
    fn through_here(self) -> TransferOutcome {
        let begun = Instant::now();
        let (armed, switches) = (self.console.interrupt.arm(), Switches::default());
        let stopped = switches.clone();
        armed.on_signal(move || stopped.cancel());
        let through = Through { client: self.client, from: self.from, to: self.to, options: self.options };
        let started = through.start(self.condition, &switches);
        let passing = match started {
            Ok(passing) => passing,
            Err(error) => return TransferOutcome::of(Err(error.into())),
        };
        let bar =
            Bar::new(self.console, Carries::Lines, self.to.name()).follow_aside(passing.download.watch());
        let watch = passing.upload.watch();
        let result = passing.carry();
        drop(bar);
        TransferOutcome::seen(result.map_err(Failure::from), &watch, begun)
    }
}

fn left_out(from: &Location, to: &Location, console: &Console) -> Result<Exit, Failure> {
    let why = "an object of that name exists";
    console.say(&format!("{}: left as it is: {why}", shown(to)))?;
    let event =
        events::Object { reason: Some(why.to_owned()), ..events::Object::of_copy(from, to, "skipped") };
    console.event(Carries::Lines, &event)?;
    let summary = events::Summary { action: "copy", objects: 1, skipped: 1, ..Default::default() };
    console.event(Carries::Lines, &summary)?;
    Ok(Exit::Clean)
}

/// Says what became of it: the object's event, the error if there is one, the summary.
fn report(
    from: &Location,
    to: &Location,
    outcome: &TransferOutcome,
    console: &Console,
    after: impl FnOnce(&Report) -> Result<(), Failure>,
) -> Result<Exit, Failure> {
    let done = outcome.result.as_ref().ok();
    let mut exit = match &outcome.result {
        Ok(done) => {
            let amount = amount(done.bytes, 0, done.seconds);
            console.say(&format!(
                "{} -> {}: {amount}, verified: {}",
                shown(from),
                shown(to),
                done.verified
            ))?;
            Exit::Clean
        }
        Err(failure) => failure.exit,
    };
    let event = events::Object {
        bytes: done.map_or(0, |done| done.bytes),
        fetched: outcome.fetched_bytes,
        verified: done.map(|done| done.verified.to_string()),
        etag: done.and_then(|done| done.version.etag.clone()),
        seconds: outcome.seconds,
        retries: outcome.retries,
        ..events::Object::of_copy(from, to, if done.is_some() { "ok" } else { "failed" })
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
        action: "copy",
        objects: 1,
        ok,
        failed: 1 - ok,
        bytes: event.bytes,
        fetched: event.fetched,
        seconds: event.seconds,
        exit: exit.code(),
        ..Default::default()
    };
    console.event(Carries::Lines, &summary)?;
    Ok(exit)
}

fn shown(location: &Location) -> String {
    one_line(&location.to_string())
}
