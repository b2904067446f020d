//! `flatout serve`: the development origin in the foreground, until a signal.

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
    // The origin's own errors name the address or the object.
    let origin =
        Origin::start(options(args)?).map_err(|error| Failure::local("serve", "cannot start", &error))?;
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
        auth: args.access_key.clone().zip(args.secret_key.clone()),
        latency: args.latency.unwrap_or_default(),
        per_connection: args.per_connection,
        total: args.total,
        sink: args.sink,
    })
}

fn store(args: &args::Store) -> Result<Store, Failure> {
    let Some(root) = &args.root else {
        return Ok(match args.synthetic.is_empty() {
            true => Store::Memory,
            false => Store::Synthetic(args.synthetic.clone()),
        });
    };
    match root.is_dir() {
        true => Ok(Store::Root(root.clone())),
        false => Err(Failure::usage(format!("serve: {}: is not a folder", root.display()))
            .with_hint("name an existing folder; each folder in it is a bucket")),
    }
}
