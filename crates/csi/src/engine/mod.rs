//! The process that serves: every volume of a node in one program without privileges. The plugin mounts, and
//! hands it the kernel's connections; it hands them back when it leaves.

mod indexes;
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
use flatout_mounting::{Handover, MetricsEndpoint};
use tonic::Code;

pub use self::parent::keep;
pub use self::volumes::Clients;
use self::volumes::{Prepared, Served, Serving};
use crate::Log;
use crate::link::{self, Answer, Failure, Health, NodeFolder, Question, Sender, ToEngine};
use crate::link::{ToPlugin, VERSION};

/// How often a plugin that is away is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// And one that does not take it, such as one of another version.
const UNWELCOME: Duration = Duration::from_secs(1);
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
    /// By the numbers of their mounts.
    prepared: HashMap<u64, Prepared>,
    served: HashMap<u64, Served>,
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
        let (mut was_away, mut was_unwelcome) = (false, false);
        loop {
            match UnixStream::connect(folder.socket()) {
                Ok(socket) => {
                    was_away = false;
                    let talked = self.converse(&socket);
                    let forgotten;
                    let was_welcome = {
                        let mut state = self.state();
                        state.plugin = None;
                        forgotten = std::mem::take(&mut state.prepared);
                        std::mem::take(&mut state.is_welcome)
                    };
                    drop(forgotten);
                    if was_welcome {
                        was_unwelcome = false;
                    } else if !std::mem::replace(&mut was_unwelcome, true) {
                        let why = talked.as_ref().err().map_or_else(String::new, flatout_engine::plain);
                        self.log.say(&format!("engine: the plugin does not take it: {why}"));
                    }
                    if let (true, Err(error)) = (was_welcome, &talked) {
                        self.log.say(&format!("engine: the plugin: {}", flatout_engine::plain(error)));
                    }
                    if !was_welcome {
                        // Its log says why.
                        thread::sleep(UNWELCOME);
                    }
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
            state.plugin = Some(sender.clone());
        }
        while let Some(message) = link::receive::<ToEngine>(socket)? {
            let mount = match &message {
                ToEngine::Ask { what: Question::Serve { .. } | Question::TakeOver(_), .. } => {
                    Some(LastingMount::receive(socket)?)
                }
                _ => None,
            };
            let (engine, plugin) = (self.clone(), sender.clone());
            // A bucket that answers late keeps no other volume waiting.
            thread::Builder::new()
                .name("volume".into())
                .spawn(move || engine.obey(message, mount, &plugin))?;
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

    /// `plugin` is the one that has said it.
    fn obey(self: &Arc<Engine>, message: ToEngine, mount: Option<LastingMount>, plugin: &Arc<Sender>) {
        match message {
            ToEngine::Welcome => {
                self.state().is_welcome = true;
                self.log.say("engine: connected with the node's plugin");
            }
            ToEngine::Refused { why } => {
                self.log.say(&format!("engine: {why}: this one ends"));
                std::process::exit(1);
            }
            ToEngine::Forget { number } => drop(self.state().prepared.remove(&number)),
            ToEngine::Renew { number, secrets } => self.renew(number, secrets),
            ToEngine::LetIndexGo { index } => self.serving.let_index_go(&index),
            ToEngine::Ask { question, what } => {
                let answer = self.answer(what, mount, plugin);
                // The next plugin learns from `Kept` what a dead one was not told.
                let _ = plugin.send(&ToPlugin::Answer { question, answer }, None);
            }
        }
    }

    fn answer(
        self: &Arc<Engine>,
        what: Question,
        mount: Option<LastingMount>,
        plugin: &Arc<Sender>,
    ) -> Result<Answer, Failure> {
        let no_mount = || Failure::new(Code::Aborted, "no mount came with it");
        match what {
            Question::Prepare(assignment) => {
                let (number, key) = (assignment.number, assignment.key.clone());
                let prepared = self.serving.prepare(*assignment)?;
                let note = prepared.note();
                // The plugin has given up earlier attempts at the same volume.
                let is_old =
                    |known: &u64, earlier: &mut Prepared| *known < number && earlier.assignment().key == key;
                let old: Vec<_> = {
                    let mut state = self.state();
                    let old = state.prepared.extract_if(is_old).collect();
                    state.prepared.insert(number, prepared);
                    old
                };
                drop(old);
                Ok(Answer::Prepared(note))
            }
            Question::Serve { number } => {
                let prepared = self.state().prepared.remove(&number);
                let prepared = prepared.ok_or_else(|| Failure::new(Code::Aborted, "it was not prepared"))?;
                self.serve(prepared, mount.ok_or_else(no_mount)?, false, plugin)
            }
            Question::TakeOver(assignment) => {
                let mount = mount.ok_or_else(no_mount)?;
                if self.state().served.contains_key(&assignment.number) {
                    return Ok(Answer::Serves);
                }
                let prepared = self.serving.go_on(*assignment, &mount)?;
                self.serve(prepared, mount, true, plugin)
            }
            Question::Look { number } => {
                let health = self.state().served.get(&number).map(Served::health);
                let none = || Health { outage: Some("it is not served".to_owned()), ..Health::default() };
                Ok(Answer::Looked(health.unwrap_or_else(none)))
            }
        }
    }

    fn serve(
        self: &Arc<Engine>,
        prepared: Prepared,
        mount: LastingMount,
        takes_over: bool,
        plugin: &Arc<Sender>,
    ) -> Result<Answer, Failure> {
        let number = prepared.assignment().number;
        let (served, mut session) = self.serving.serve(prepared, mount, takes_over)?;
        {
            let mut state = self.state();
            // A plugin that came meanwhile knows of all but this one.
            if let Some(now) = state.plugin.as_ref().filter(|now| !Arc::ptr_eq(now, plugin)) {
                let kept = ToPlugin::Kept(Box::new(served.assignment.clone()));
                let _ = now.send(&kept, Some(&served.mount));
            }
            state.served.insert(number, served);
        }
        let engine = self.clone();
        let ends = move || {
            let failure = session.wait().err().map(Failure::from);
            drop(session);
            let ended = engine.state().served.remove(&number);
            drop(ended);
            engine.tell(&ToPlugin::Ended { number, failure });
        };
        let session = thread::Builder::new().name("session".into()).spawn(ends);
        session.map(|_| Answer::Serves).map_err(|error| {
            let ended = self.state().served.remove(&number);
            drop(ended);
            Failure::internal("threads", &error)
        })
    }

    fn renew(&self, number: u64, secrets: crate::volume::Secrets) {
        let (volume_id, renewal) = {
            let mut state = self.state();
            let Some(served) = state.served.get_mut(&number) else { return };
            (served.assignment.volume_id.clone(), self.serving.renew(served, secrets))
        };
        match renewal {
            // Asks the service that grants them, if there is one.
            Ok(Some(client)) => client.ask(),
            Ok(None) => {}
            Err(failure) => self.log.say(&format!("{volume_id}: its keys: {}", failure.message)),
        }
    }

    /// Of all volumes, each by the name of its volume.
    fn stats(&self) -> Vec<flatout_mounting::stats::MountStats> {
        let state = self.state();
        let handles = |id: &str| state.served.values().filter(|one| one.assignment.volume_id == id).count();
        let of_one = |served: &Served| {
            let mut stats = served.stats();
            // Pods of other accounts or groups have mounts of their own.
            if handles(&served.assignment.volume_id) > 1 {
                stats.mount_point = format!("{}#{}", stats.mount_point, served.assignment.key);
            }
            stats
        };
        state.served.values().map(of_one).collect()
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
            // A bucket that does not answer would keep the others silent while it is waited for.
            let waits = |handover: &Handover| handover.waits().into_iter().any(|wait| wait > QUIET_WITHIN);
            if since.elapsed() <= self.drain && handovers.iter().any(|(_, handover)| waits(handover)) {
                thread::sleep(PAUSE);
                continue;
            }
            let mut paused = Vec::new();
            let busy = handovers.iter().find_map(|(volume, handover)| match handover.pause(QUIET_WITHIN) {
                Ok(()) => {
                    paused.push(handover);
                    None
                }
                Err(not_now) => Some((volume, not_now)),
            });
            // Without a plugin nobody would hold the mounts.
            let is_held = handovers.is_empty() || self.state().is_welcome;
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
