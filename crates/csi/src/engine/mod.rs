//! The process that serves: every volume of a node in one program without privileges. The plugin mounts, and
//! hands it the kernel's connections; it hands them back when it leaves.

mod keys;
mod parent;
mod volumes;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flatout_ambient::Environment;
use flatout_mount::LastingMount;
use flatout_mounting::MetricsEndpoint;
use tonic::Code;

pub use self::parent::keep;
pub use self::volumes::Clients;
use self::volumes::{Prepared, Served, Serving};
use crate::Log;
use crate::link::{self, Assignment, Failure, Health, NodeFolder, Sender, ToEngine, ToPlugin, VERSION};

/// How often a plugin that is away is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long requests may take that came before an engine leaves.
const QUIET_WITHIN: Duration = Duration::from_secs(2);
/// Between two attempts to leave.
const PAUSE: Duration = Duration::from_millis(100);

/// What an engine is told when it is started.
pub struct EngineOptions {
    pub folder: NodeFolder,
    /// Where metrics of all volumes can be fetched.
    pub metrics: Option<SocketAddr>,
    /// How long files that are being written are waited for when this engine is to end.
    pub drain: Duration,
    /// The surroundings of its pod, which hold for volumes that say so.
    pub environment: Environment,
}

/// An engine, and the volumes that it serves.
pub struct Engine {
    serving: Serving,
    state: Mutex<State>,
    drain: Duration,
    log: Log,
}

#[derive(Default)]
struct State {
    plugin: Option<Arc<Sender>>,
    prepared: HashMap<String, Prepared>,
    served: HashMap<String, Served>,
    is_leaving: bool,
    /// The plugin has answered.
    is_welcome: bool,
}

impl Engine {
    /// # Errors
    /// A folder cannot be made, or the port of the metrics is taken.
    pub fn new(options: EngineOptions, log: Log) -> Result<(Arc<Engine>, Option<MetricsEndpoint>), Failure> {
        let serving = Serving::new(&options.folder, options.environment, log.clone())?;
        let engine = Arc::new(Engine { serving, state: Mutex::default(), drain: options.drain, log });
        let shown = Arc::downgrade(&engine);
        let metrics = options.metrics.map(|address| {
            let asked = shown.clone();
            let stats = move || shown.upgrade().map_or_else(Vec::new, |engine| engine.stats());
            let is_ready = move || asked.upgrade().is_some_and(|engine| engine.is_ready());
            MetricsEndpoint::serve(address, stats, is_ready)
                .map_err(|error| Failure::internal(&format!("metrics: {address}"), &error))
        });
        Ok((engine, metrics.transpose()?))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves whatever the plugin of this node hands over. Does not return.
    pub fn run(self: &Arc<Engine>, folder: &NodeFolder) -> ! {
        let mut was_away = false;
        loop {
            match UnixStream::connect(folder.socket()) {
                Ok(socket) => {
                    was_away = false;
                    if let Err(error) = self.converse(&socket) {
                        self.log.say(&format!("engine: the plugin: {}", flatout_engine::plain(&error)));
                    }
                    let mut state = self.state();
                    (state.plugin, state.is_welcome) = (None, false);
                }
                Err(error) if !was_away => {
                    was_away = true;
                    let why = flatout_engine::plain(&error);
                    self.log.say(&format!("engine: waiting for the node's plugin: {why}"));
                }
                Err(_) => {}
            }
            thread::sleep(LOOK_AGAIN);
        }
    }

    fn converse(self: &Arc<Engine>, socket: &UnixStream) -> std::io::Result<()> {
        let sender = Arc::new(Sender::of(socket)?);
        {
            // Nothing begins or ends between what is told and what is so.
            let mut state = self.state();
            let (program, format) = (env!("CARGO_PKG_VERSION").to_owned(), LastingMount::FORMAT);
            let kept = state.served.len();
            sender.send(&ToPlugin::Hello { version: VERSION, program, format, kept }, None)?;
            for served in state.served.values() {
                sender.send(&ToPlugin::Kept(Box::new(served.assignment.clone())), Some(&served.mount))?;
            }
            if state.is_leaving {
                sender.send(&ToPlugin::Leaving, None)?;
            }
            state.plugin = Some(sender);
        }
        while let Some(message) = link::receive::<ToEngine>(socket)? {
            let mount = match &message {
                ToEngine::Serve { .. } | ToEngine::TakeOver(_) => Some(LastingMount::receive(socket)?),
                _ => None,
            };
            let engine = self.clone();
            // A bucket that answers late keeps no other volume waiting.
            thread::Builder::new().name("volume".into()).spawn(move || engine.obey(message, mount))?;
        }
        Ok(())
    }

    fn tell(&self, message: &ToPlugin) {
        let plugin = self.state().plugin.clone();
        if let Some(plugin) = plugin {
            // A plugin that is gone is told all there is when it comes back.
            let _ = plugin.send(message, None);
        }
    }

    fn obey(self: &Arc<Engine>, message: ToEngine, mount: Option<LastingMount>) {
        let said = match message {
            ToEngine::Welcome => {
                self.state().is_welcome = true;
                return self.log.say("engine: connected with the node's plugin");
            }
            ToEngine::Refused { why } => {
                self.log.say(&format!("engine: {why}: this one ends"));
                std::process::exit(1);
            }
            ToEngine::Prepare(assignment) => {
                let key = assignment.key.clone();
                self.prepare(*assignment).unwrap_or_else(|failure| ToPlugin::Failed { key, failure })
            }
            ToEngine::Serve { key } => {
                let prepared = self.state().prepared.remove(&key);
                match (prepared, mount) {
                    (Some(prepared), Some(mount)) => self.serve(prepared, mount, false),
                    _ => {
                        ToPlugin::Failed { key, failure: Failure::new(Code::Aborted, "it was not prepared") }
                    }
                }
            }
            ToEngine::TakeOver(assignment) => {
                let Some(mount) = mount else { return };
                let key = assignment.key.clone();
                if self.state().served.contains_key(&key) {
                    return self.tell(&ToPlugin::Serves { key });
                }
                match self.serving.go_on(*assignment, &mount) {
                    Ok(prepared) => self.serve(prepared, mount, true),
                    Err(failure) => ToPlugin::Failed { key, failure },
                }
            }
            ToEngine::Forget { key } => return drop(self.state().prepared.remove(&key)),
            ToEngine::Renew { key, secrets } => return self.renew(&key, secrets),
            ToEngine::Look { key } => {
                let health = self.state().served.get(&key).map(Served::health);
                let none = || Health { outage: Some("it is not served".to_owned()), ..Health::default() };
                ToPlugin::Looked { key, health: health.unwrap_or_else(none) }
            }
        };
        self.tell(&said);
    }

    fn prepare(&self, assignment: Assignment) -> Result<ToPlugin, Failure> {
        let key = assignment.key.clone();
        let prepared = self.serving.prepare(assignment)?;
        let note = prepared.note();
        self.state().prepared.insert(key.clone(), prepared);
        Ok(ToPlugin::Prepared { key, note })
    }

    fn serve(self: &Arc<Engine>, prepared: Prepared, mount: LastingMount, takes_over: bool) -> ToPlugin {
        let key = prepared.assignment().key.clone();
        match self.serving.serve(prepared, mount, takes_over) {
            Ok((served, mut session)) => {
                self.state().served.insert(key.clone(), served);
                let engine = self.clone();
                let ends = move |key: String| {
                    let failure = session.wait().err().map(Failure::from);
                    drop(session);
                    engine.state().served.remove(&key);
                    engine.tell(&ToPlugin::Ended { key, failure });
                };
                let ended = key.clone();
                match thread::Builder::new().name("session".into()).spawn(move || ends(ended)) {
                    Ok(_) => ToPlugin::Serves { key },
                    Err(error) => ToPlugin::Failed { key, failure: Failure::internal("threads", &error) },
                }
            }
            Err(failure) => ToPlugin::Failed { key, failure },
        }
    }

    fn renew(&self, key: &str, secrets: crate::volume::Secrets) {
        let renewal = {
            let mut state = self.state();
            let Some(served) = state.served.get_mut(key) else { return };
            self.serving.renew(served, secrets)
        };
        match renewal {
            // Asks the service that grants them, if there is one.
            Ok(Some(client)) => client.ask(),
            Ok(None) => {}
            Err(failure) => self.log.say(&format!("{key}: its keys: {}", failure.message)),
        }
    }

    /// Of all volumes, each by the name of its volume.
    fn stats(&self) -> Vec<flatout_mounting::stats::MountStats> {
        self.state().served.values().map(Served::stats).collect()
    }

    /// Nothing is unmounted, and no thread ends what it does.
    fn exit(&self) -> ! {
        self.serving.remove_key_files();
        std::process::exit(0);
    }

    /// Whether a plugin has taken it.
    pub fn is_ready(&self) -> bool {
        self.state().is_welcome
    }

    /// Leaves every mount to the next engine, once nothing is lost by that; ends the process. Files whose
    /// bytes are not all sent are waited for.
    pub fn leave(&self) -> ! {
        let since = Instant::now();
        self.state().is_leaving = true;
        self.tell(&ToPlugin::Leaving);
        loop {
            let handovers: Vec<_> = {
                let state = self.state();
                state
                    .served
                    .values()
                    .map(|served| (served.assignment.volume_id.clone(), served.handover()))
                    .collect()
            };
            let mut paused = Vec::new();
            let busy = handovers.iter().find_map(|(volume, handover)| match handover.pause(QUIET_WITHIN) {
                Ok(()) => {
                    paused.push(handover);
                    None
                }
                Err(not_now) => Some((volume, not_now)),
            });
            // Without a plugin nobody would hold the mounts.
            let is_held = handovers.is_empty() || self.state().plugin.is_some();
            match busy {
                None if is_held => {
                    self.log.say(&format!("engine: leaves {} volumes to the next", handovers.len()));
                    self.exit();
                }
                Some((volume, not_now)) if is_held && since.elapsed() > self.drain => {
                    let why = format!("{volume}: {not_now}");
                    self.log.say(&format!("engine: leaves although something is under way: {why}"));
                    self.exit();
                }
                _ => {}
            }
            paused.iter().for_each(|handover| handover.resume());
            thread::sleep(PAUSE);
        }
    }
}
