//! `flatout csi`: the parts of the Kubernetes driver. What they say goes to standard error, line by line.

use std::future::Future;
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;

use flatout_csi::{Cluster, Controller, ControllerOptions, Engine, EngineOptions, Kubernetes, Log};
use flatout_csi::{NodeFolder, NodeOptions, Plugin, Socket};
use rustix::process::Signal;
use tokio::sync::Notify;

use crate::args::{CsiController, CsiEngine, CsiNode, CsiPlugin};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

const DOING: &str = "csi";

fn failed(failure: &flatout_csi::Failure) -> Failure {
    Failure::refused_now(format!("{DOING}: {}", failure.message))
}

fn socket(plugin: &CsiPlugin) -> Result<Socket, Failure> {
    Socket::parse(&plugin.endpoint).map_err(|why| Failure::usage(format!("{DOING}: --endpoint: {why}")))
}

fn cluster(plugin: &CsiPlugin) -> Cluster {
    Cluster {
        alibaba_account: plugin.alibaba_account.clone(),
        alibaba_cluster: plugin.alibaba_cluster.clone(),
        inline_driver_keys: false,
    }
}

/// Serves until a signal comes.
fn until_signal<F: Future<Output = std::io::Result<()>>>(
    console: &Console,
    socket: &Socket,
    serve: impl FnOnce(Pin<Box<dyn Future<Output = ()> + Send>>) -> F,
) -> Result<Exit, Failure> {
    let refused = |error: std::io::Error| Failure::local(DOING, socket.path().display(), &error);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
    let hears = Arc::new(Notify::new());
    let told = hears.clone();
    console.interrupt.handle(move |_| told.notify_one());
    let served = runtime.block_on(serve(Box::pin(async move { hears.notified().await })));
    // A call that blocks keeps nobody.
    runtime.shutdown_background();
    served.map_err(refused).map(|()| Exit::Clean)
}

/// The plugin of a node, until a signal. Mounts stay: its successor goes on with them.
pub fn node(args: &CsiNode, console: &Console) -> Result<Exit, Failure> {
    let socket = socket(&args.plugin)?;
    if args.volume_memory > args.memory {
        return Err(Failure::usage(format!(
            "{DOING}: --volume-memory is more than --memory, which is for all volumes"
        )));
    }
    // The kernel's list of mounts has no links.
    let folder = std::fs::create_dir_all(&args.folder).and_then(|()| args.folder.canonicalize());
    let folder = folder.map_err(|error| Failure::local(DOING, args.folder.display(), &error))?;
    let kubernetes = Kubernetes::of_pod(&flatout_ambient::environment(), &args.service_account);
    let kubernetes = kubernetes.map_err(|failure| failed(&failure))?;
    if args.engine_pods.is_some() && kubernetes.is_none() {
        let account = args.service_account.display();
        let why = format!("{DOING}: --engine-pods: {account} has no token, or this is no pod of Kubernetes");
        return Err(Failure::usage(why));
    }
    let options = NodeOptions {
        driver: args.plugin.driver_name.clone(),
        node: args.node_name.clone(),
        folder: NodeFolder::new(folder),
        engine_user: args.engine_user,
        memory_bytes: args.memory,
        volume_bytes: args.volume_memory,
        volumes_max: args.max_volumes,
        cluster: Cluster { inline_driver_keys: args.inline_driver_keys, ..cluster(&args.plugin) },
        kubernetes,
        ignores_accounts: args.ignore_service_accounts,
        no_images: args.no_images,
        engine_pods: args.engine_pods.clone(),
    };
    let plugin = Plugin::start(options, Log::new()).map_err(|failure| failed(&failure))?;
    until_signal(console, &socket, |end| flatout_csi::serve_node(&socket, plugin, end))
}

/// The controller, until a signal.
pub fn controller(args: &CsiController, console: &Console) -> Result<Exit, Failure> {
    let socket = socket(&args.plugin)?;
    let options = ControllerOptions {
        driver: args.plugin.driver_name.clone(),
        cluster: cluster(&args.plugin),
        environment: flatout_ambient::environment(),
    };
    let controller = Controller::new(options, Log::new()).map_err(|failure| failed(&failure))?;
    until_signal(console, &socket, |end| flatout_csi::serve_controller(&socket, controller, end))
}

/// An engine: a process that serves, and one that starts it again where it dies.
pub fn engine(args: &CsiEngine, console: &Console) -> Result<Exit, Failure> {
    let log = Log::new();
    if let Some(parent) = args.serves {
        return serves(args, parent, console, log);
    }
    let refused = |error: std::io::Error| Failure::local(DOING, "the engine", &error);
    let mut command = Command::new(std::env::current_exe().map_err(refused)?);
    command.args(std::env::args_os().skip(1)).arg(format!("--__serves={}", std::process::id()));
    // Signals of a terminal go to this process, which passes them on.
    command.process_group(0);
    let ended = flatout_csi::keep(command, &log, |on_signal| console.interrupt.handle(move |_| on_signal()));
    match ended.map_err(refused)? {
        status if status.success() => Ok(Exit::Clean),
        status => Err(Failure::refused_now(format!("{DOING}: the engine cannot live: {status}"))
            .with_hint("what it said before says why")),
    }
}

fn serves(args: &CsiEngine, parent: i32, console: &Console, log: Log) -> Result<Exit, Failure> {
    // Where the other process is killed, this one leaves, also where that was so before this line.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    if rustix::process::getppid().is_none_or(|now| now.as_raw_nonzero().get() != parent) {
        return Ok(Exit::Clean);
    }
    let folder = NodeFolder::new(&args.folder);
    let options = EngineOptions {
        folder: folder.clone(),
        metrics: args.metrics,
        drain: args.drain,
        environment: flatout_ambient::environment(),
    };
    let (engine, metrics) = Engine::new(options, log).map_err(|failure| failed(&failure))?;
    let leaves = engine.clone();
    console.interrupt.handle(move |count| {
        if count == 1 {
            leaves.leave();
        }
    });
    let _metrics = metrics;
    engine.run(&folder)
}
