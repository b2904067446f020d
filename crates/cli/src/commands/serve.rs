//! `flatout serve`: the development origin in the foreground, until a signal.

use std::io;
use std::path::Path;
use std::sync::mpsc;

use flatout_server::{Options, Origin, Store};

use crate::args::{self, Serve};
use crate::console::{Carries, Console};
use crate::events::Listening;
use crate::exit::Exit;
use crate::failure::Failure;

/// A signal is how one ends a server: exit code 0.
pub fn run(args: &Serve, console: &Console) -> Result<Exit, Failure> {
    let (ended, end) = mpsc::channel();
    let armed = console.interrupt.arm();
    armed.on_signal(move || {
        // The receiver is gone only when the command has ended.
        let _ = ended.send(());
    });
    if let Some(root) = &args.store.root {
        warn_of_folders(root, console);
    }
    let origin = Origin::start(options(args)?).map_err(|error| refused(&error))?;
    for address in origin.addresses() {
        let url = format!("http://{address}");
        console.answer(&format!("listening on {url}"))?;
        console.event(Carries::Lines, &Listening { url })?;
    }
    console.flush()?;
    // An error means that the sender is gone, which it is not before `armed`.
    let _ = end.recv();
    origin.stop();
    Ok(Exit::Clean)
}

fn options(args: &Serve) -> Result<Options, Failure> {
    Ok(Options {
        listen: args.listen.clone(),
        store: store(&args.store)?,
        auth: auth(args)?,
        latency: args.latency.unwrap_or_default(),
        per_connection: args.per_connection,
        total: args.total,
        sink: args.sink,
    })
}

/// A folder that is no bucket would only be missed. A root that cannot be read is the origin's error to tell.
fn warn_of_folders(root: &Path, console: &Console) {
    for folder in flatout_server::unservable(root).unwrap_or_default() {
        let folder = folder.display();
        console.warn(&format!("serve: {folder}: is not served: {}", flatout_server::BUCKET_RULE));
    }
}

/// An origin is open only to who says so.
fn auth(args: &Serve) -> Result<Option<(String, String)>, Failure> {
    let keys = args.access_key.clone().zip(args.secret_key.clone());
    match keys.is_some() || args.no_auth {
        true => Ok(keys),
        false => Err(Failure::usage("serve: who is let in is not said")
            .with_hint("--no-auth, or --access-key and --secret-key")),
    }
}

/// The origin's own errors name the address or the object.
fn refused(error: &io::Error) -> Failure {
    let failure = Failure::local("serve", "cannot start", error);
    match error.kind() {
        io::ErrorKind::AddrInUse => failure.with_hint("choose another port, or 0 for a free one"),
        _ => failure,
    }
}

fn store(args: &args::Store) -> Result<Store, Failure> {
    let Some(root) = &args.root else {
        return Ok(match args.synthetic.is_empty() {
            true => Store::Memory,
            false => Store::Synthetic(args.synthetic.iter().flat_map(args::Synthetic::objects).collect()),
        });
    };
    match root.is_dir() {
        true => Ok(Store::Root(root.clone())),
        false => Err(Failure::usage(format!("serve: {}: is not a folder", root.display()))
            .with_hint("name an existing folder; each folder in it is a bucket")),
    }
}
