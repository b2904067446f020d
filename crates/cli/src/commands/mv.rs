//! `flatout mv`: a copy, then a look at it, then the end of its source.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use flatout_engine::{Client, Dialect, ErrorKind, Report};
use flatout_wire::location::Location;

use crate::args::{Cp, Mv};
use crate::commands::{cp, cp_between, cp_upload};
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::origin;
use crate::select::Source;
use crate::upload::unreadable;

pub fn run(args: &Mv, console: &Console) -> Result<Exit, Failure> {
    let moved = begin(args, console);
    // The copy speaks of itself as cp.
    moved.map_err(|failure| match failure.message.strip_prefix("cp: ") {
        Some(rest) => Failure { message: format!("mv: {rest}"), ..failure },
        None => failure,
    })
}

fn begin(args: &Mv, console: &Console) -> Result<Exit, Failure> {
    let copy = args.copy();
    if copy.source.contains("://") {
        let source = origin::object("move", &copy.source)?;
        if source.bucket().is_none() {
            let failure = Failure::usage(format!("mv: {source}: a plain URL cannot be deleted"));
            return Err(failure.with_hint("to copy it: `flatout cp URL FILE`"));
        }
        refuse_many(&copy, console)?;
        if cp_between::is_meant(&copy) {
            let target = cp_between::target(&copy.target, &source)?;
            refuse_itself(&source, &target)?;
            return cp::run_and(&copy, console, &|client, done| {
                confirm(client, &target, done)?;
                let copied = done.stat.as_ref().and_then(|stat| stat.version.etag.as_deref());
                delete_object(client, &source, copied, console)
            });
        }
        if !Path::new(&copy.target).is_dir() && is_no_file(&copy.target) {
            let failure = Failure::usage(format!("mv: {}: an object is moved to a file", copy.target));
            return Err(failure.with_hint("to copy it there: `flatout cp`"));
        }
        return cp::run_and(&copy, console, &|client, done| {
            settle_file(&copy.target, source.name(), done.bytes)?;
            delete_object(client, &source, done.version.etag.as_deref(), console)
        });
    }
    if !copy.target.contains("://") {
        let why = format!("mv: {}: one side has to be a URL, and both are paths", copy.source);
        return Err(
            Failure::usage(why).with_hint("mv(1) moves files; `flatout mv FILE s3://BUCKET/KEY` uploads one")
        );
    }
    if cp::is_stdout(&copy.source) || !look(&copy.source)?.is_file() {
        if Path::new(&copy.source).is_dir() {
            let failure = Failure::usage(format!("mv: {}: is a folder, and one file is moved", copy.source));
            return Err(failure.with_hint("copy it by `flatout cp -r`, then delete it by rm(1)"));
        }
        let failure = Failure::usage(format!("mv: {}: a file is wanted", copy.source));
        return Err(failure.with_hint("what a pipe or standard input brings is copied: `flatout cp - URL`"));
    }
    let before = look(&copy.source)?;
    let target = cp_upload::target_of_file(&copy.target, Path::new(&copy.source))?;
    cp::run_and(&copy, console, &|client, done| {
        confirm(client, &target, done)?;
        delete_file(&copy.source, &before, done.bytes, console)
    })
}

/// Whether there is something, and it is neither file nor folder; or it is a name of standard output.
fn is_no_file(typed: &str) -> bool {
    cp::is_stdout(typed) || Path::new(typed).metadata().is_ok_and(|found| !found.is_file() && !found.is_dir())
}

fn look(path: &str) -> Result<Metadata, Failure> {
    fs::metadata(path).map_err(|error| unreadable(path, &error))
}

/// One object is moved: a copy of many deletes none. Wildcards may be part of a key.
fn refuse_many(copy: &Cp, console: &Console) -> Result<(), Failure> {
    let source = origin::object("move", &copy.source)?;
    if !Source::is_pattern(&source) {
        return Ok(());
    }
    let client = origin::client(console, &copy.knobs, &[Dialect::of(&source)])?;
    if client.stat(&source).is_ok() {
        return Ok(());
    }
    let failure = Failure::usage(format!("mv: {source}: one object is moved, and * ? [ {{ may mean many"));
    Err(failure.with_hint("copy them by `flatout cp`, look, and delete them by `flatout rm`"))
}

/// S3 and OSS may be two doors to one object: its copy would replace it, and then it would be deleted.
fn refuse_itself(source: &Location, target: &Location) -> Result<(), Failure> {
    if source.scheme() == target.scheme() || source.in_bucket() != target.in_bucket() {
        return Ok(());
    }
    let why = format!("mv: {source} -> {target}: they may be one object, which would be lost");
    Err(Failure::usage(why)
        .with_hint("copy it by `flatout cp`, look at both, and delete one by `flatout rm`"))
}

/// Looks whether the object that was made is there, as it was made.
fn confirm(client: &Client, target: &Location, done: &Report) -> Result<(), Failure> {
    let kept = |why: String| Failure {
        exit: Exit::Failed,
        kind: ErrorKind::Changed.name().into(),
        message: format!("move: {target}: {why}: the source stays"),
        hint: Some("look at both, and move again".into()),
    };
    let found = match client.stat(target) {
        Ok(found) => found,
        Err(error) => {
            let failure = Failure::from(error);
            return Err(Failure {
                message: format!(
                    "move: the copy could not be confirmed, and the source stays: {}",
                    failure.message
                ),
                ..failure
            });
        }
    };
    if found.version.size != Some(done.bytes) {
        let size = found.version.size.map_or("unknown".to_owned(), |bytes| bytes.to_string());
        return Err(kept(format!("the copy has {} bytes, and its size there is {size}", done.bytes)));
    }
    if done.version.etag.is_none() || found.version.etag != done.version.etag {
        return Err(kept("the object there is not the copy, by its ETag".to_owned()));
    }
    Ok(())
}

/// Has the file on disk before its source goes: after a power cut it is there.
fn settle_file(typed: &str, name: &str, bytes: u64) -> Result<(), Failure> {
    let path = Path::new(typed);
    let path = if path.is_dir() { path.join(name) } else { path.to_path_buf() };
    let settled = fs::File::open(&path).and_then(|file| {
        file.sync_all()?;
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(file.metadata()?.len())
    });
    match settled {
        Ok(found) if found == bytes => Ok(()),
        Ok(_) => {
            let message = format!("move: {}: it was changed meanwhile: the source stays", path.display());
            let (exit, kind) = (Exit::Failed, ErrorKind::Changed.name().into());
            Err(Failure { exit, kind, message, hint: Some("move it again".into()) })
        }
        Err(error) => {
            let failure = Failure::local("write", path.display(), &error);
            Err(Failure { message: format!("move: the source stays: {}", failure.message), ..failure })
        }
    }
}

/// Deletes the source as long as it is what was copied.
fn delete_object(
    client: &Client,
    source: &Location,
    etag: Option<&str>,
    console: &Console,
) -> Result<(), Failure> {
    let deleted = match etag {
        Some(etag) => client.delete_if_match(source, etag).map_err(Failure::from),
        None => Err(Failure {
            exit: Exit::Failed,
            kind: ErrorKind::Unsupported.name().into(),
            message: format!("delete: {source}: it has no ETag, so that it may have been replaced"),
            hint: None,
        }),
    };
    deleted.map_err(|failure| Failure {
        message: format!("move: copied, but the source stays: {}", failure.message),
        hint: failure.hint.or_else(|| Some("the copy is whole: delete the source by `flatout rm`".into())),
        ..failure
    })?;
    tell(source.key(), &source.to_string(), console)
}

/// Deletes the file as long as it is what was sent.
fn delete_file(path: &str, before: &Metadata, bytes: u64, console: &Console) -> Result<(), Failure> {
    let now = look(path)?;
    let state = |of: &Metadata| (of.dev(), of.ino(), of.len(), of.mtime(), of.mtime_nsec());
    if state(before) != state(&now) || now.len() != bytes {
        let message = format!("move: {path}: it changed since it was sent: it stays, and so does the copy");
        let (exit, kind) = (Exit::Failed, ErrorKind::Changed.name().into());
        return Err(Failure { exit, kind, message, hint: Some("move it again".into()) });
    }
    fs::remove_file(path).map_err(|error| {
        let failure = Failure::local("delete", path, &error);
        Failure { message: format!("move: copied, but the source stays: {}", failure.message), ..failure }
    })?;
    tell(path, path, console)
}

fn tell(key: &str, source: &str, console: &Console) -> Result<(), Failure> {
    console.say(&format!("deleted {}", one_line(source)))?;
    console.event(
        Carries::Lines,
        &events::DeletedObject {
            action: "delete",
            status: "ok",
            key: key.to_owned(),
            source: source.to_owned(),
            version_id: None,
            bytes: None,
        },
    )
}
