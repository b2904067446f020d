//! `flatout serve`: the development origin in the foreground, until a signal.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc;

use flatout_engine::plain;
use flatout_server::{FaultPlan, Identity, Options, Origin, Store};

use crate::args::{self, Serve};
use crate::console::{Carries, Console};
use crate::events::{Listening, SinkCost};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::sys;
use crate::weather::Synthetic;

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
    warn_of_weather(&args.weather.fault_plan(), console);
    let tls = identity(args)?;
    let options = Options { tls: tls.as_ref().map(|tls| tls.identity.clone()), ..options(args)? };
    let origin = Origin::start(options).map_err(|error| refused(&error))?;
    if let Some((path, authority)) = tls.as_ref().and_then(|tls| tls.authority.as_ref()) {
        write_authority(path, authority)?;
    }
    for (address, listen) in origin.addresses().iter().zip(&args.listen) {
        let url = format!("{}://{address}", origin.scheme());
        if listen.dead {
            // Who takes the first line for an origin that is ready would wait for ever.
            console.warn(&format!("serve: bad weather on purpose: {url} never answers"));
            continue;
        }
        console.answer(&format!("listening on {url}"))?;
        console.event(Carries::Lines, &Listening { url })?;
    }
    console.flush()?;
    // An error means that the sender is gone, which it is not before `armed`.
    let _ = end.recv();
    let cost = SinkCost { bytes: origin.forgotten_bytes(), cpu_seconds: sys::cpu_seconds() };
    origin.stop().map_err(|error| Failure::local("serve", "log", &error))?;
    if args.sink {
        console.say(&cost.line())?;
        console.event(Carries::Lines, &cost)?;
        console.flush()?;
    }
    Ok(Exit::Clean)
}

/// As whom TLS is spoken, and what clients have to trust for it, where it was made for this run.
struct ServeTls<'a> {
    identity: Identity,
    authority: Option<(&'a Path, String)>,
}

fn identity(args: &Serve) -> Result<Option<ServeTls<'_>>, Failure> {
    let refused = |error: io::Error| Failure::usage(format!("serve: tls: {}", plain(&error)));
    if let Some(path) = &args.tls {
        refuse_other_files(path)?;
        let addresses: Vec<SocketAddr> = args.listen.iter().map(|listen| listen.address).collect();
        let (identity, authority) = Identity::for_this_run(&addresses).map_err(refused)?;
        return Ok(Some(ServeTls { identity, authority: Some((path, authority)) }));
    }
    let Some((certificate, key)) = args.tls_cert.as_ref().zip(args.tls_key.as_ref()) else { return Ok(None) };
    let identity = Identity::read(certificate, key).map_err(|error| {
        refused(error).with_hint("name two PEM files: the certificate with its chain, and its key")
    })?;
    Ok(Some(ServeTls { identity, authority: None }))
}

/// How the file of an earlier run is known, which may be replaced; PEM is read from its first BEGIN on.
const MARK: &str = "# The authority of one run of `flatout serve --tls`; of no use after it.\n";

fn refuse_other_files(path: &Path) -> Result<(), Failure> {
    match fs::read(path) {
        Ok(bytes) if !bytes.is_empty() && !bytes.starts_with(MARK.as_bytes()) => Err(Failure::usage(
            format!("serve: tls: {}: is there already, and not from an earlier run", path.display()),
        )
        .with_hint("name a new file; a certificate of your own goes with --tls-cert and --tls-key")),
        // What cannot be read is found out when it is written.
        _ => Ok(()),
    }
}

fn write_authority(path: &Path, authority: &str) -> Result<(), Failure> {
    fs::write(path, format!("{MARK}{authority}"))
        .map_err(|error| Failure::local("serve", path.display(), &error))
}

fn options(args: &Serve) -> Result<Options, Failure> {
    Ok(Options {
        listen: args.listen.clone(),
        store: store(&args.store)?,
        auth: auth(args)?,
        latency: args.latency.unwrap_or_default(),
        per_connection: args.per_connection,
        total: args.total.clone(),
        sink: args.sink,
        tls: None,
        fault_plan: args.weather.fault_plan(),
    })
}

/// A folder that is no bucket would only be missed. A root that cannot be read is the origin's error to tell.
fn warn_of_folders(root: &Path, console: &Console) {
    for folder in flatout_server::unservable(root).unwrap_or_default() {
        let folder = folder.display();
        console.warn(&format!("serve: {folder}: is not served: {}", flatout_server::BUCKET_RULE));
    }
}

/// Says which faults were asked for, so that they are not taken for real ones.
fn warn_of_weather(fault_plan: &FaultPlan, console: &Console) {
    if !fault_plan.is_still() {
        console.warn(&format!("serve: bad weather on purpose: {fault_plan}"));
    }
}

fn made_up(synthetic: &[Synthetic]) -> Store {
    let (mut objects, mut rows) = (Vec::new(), Vec::new());
    for one in synthetic.iter().cloned() {
        match one {
            Synthetic::One(bucket, key, bytes) => objects.push((bucket, key, bytes)),
            Synthetic::Row(row) => rows.push(row),
        }
    }
    Store::Synthetic(objects, rows)
}

/// An origin is open only to who says so.
fn auth(args: &Serve) -> Result<Option<(String, String)>, Failure> {
    let keys = args.access_key.clone().zip(args.secret_key.clone());
    match keys.is_some() || args.no_auth {
        true => Ok(keys),
        false => Err(Failure::usage("serve: neither a key nor --no-auth says who is let in")
            .with_hint("--no-auth, or --access-key and --secret-key")),
    }
}

/// The origin's own errors name the address or the object.
fn refused(error: &io::Error) -> Failure {
    let failure =
        Failure { message: format!("serve: {}", plain(error)), ..Failure::local("serve", "", error) };
    match error.kind() {
        io::ErrorKind::InvalidInput => Failure::usage(failure.message),
        io::ErrorKind::NotFound => failure.with_hint("create the folder first"),
        io::ErrorKind::AddrInUse => failure.with_hint("choose another port, or 0 for a free one"),
        _ => failure,
    }
}

fn store(args: &args::Store) -> Result<Store, Failure> {
    let Some(root) = &args.root else {
        return Ok(match args.synthetic.is_empty() {
            true => Store::Memory,
            false => made_up(&args.synthetic),
        });
    };
    match root.is_dir() {
        true => Ok(Store::Root(root.clone())),
        false => Err(Failure::usage(format!("serve: {}: is not a folder", root.display()))
            .with_hint("name an existing folder; each folder in it is a bucket")),
    }
}
