//! The engines of this node: processes without privileges that come to the plugin's socket, and are asked to
//! serve volumes.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use flatout_mount::LastingMount;
use tonic::Code;

use crate::Log;
use crate::link::{self, Answer, Assignment, Failure, Question, Sender, ToEngine, ToPlugin, VERSION};

/// How long an engine may take to say what it has.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// More volumes than a node has pods.
const KEPT_MOST: usize = 4096;

/// What is to be done where engines come and go.
pub trait Volumes: Send + Sync + 'static {
    /// This engine serves these already. An error: it must not.
    ///
    /// # Errors
    /// Another engine serves one of them, or it is none of its own.
    fn adopt(&self, engine: &Arc<Engine>, kept: Vec<(Assignment, LastingMount)>) -> Result<(), String>;
    /// There is an engine for whatever has none.
    fn assign(&self);
    /// This engine is gone.
    fn orphan(&self, engine: u64);
    /// The mount of that number was unmounted, or broke.
    fn ended(&self, engine: u64, number: u64, failure: Option<Failure>);
}

/// An engine that is connected.
#[derive(Debug)]
pub struct Engine {
    /// Counts engines: a higher one came later.
    pub id: u64,
    /// The one volume that it serves; `None` for those of the node.
    only: Option<String>,
    sender: Sender,
    is_leaving: AtomicBool,
    /// By the numbers of their questions.
    waiting: Mutex<HashMap<u64, mpsc::Sender<Result<Answer, Failure>>>>,
    questions: AtomicU64,
}

/// Why a question has no good answer.
#[derive(Debug)]
pub enum Unanswered {
    /// The engine has died.
    Gone,
    /// It may still do what it was asked.
    Late(Duration),
    Refused(Failure),
}

impl From<Unanswered> for Failure {
    fn from(why: Unanswered) -> Failure {
        let unavailable = |why: String| Failure::new(Code::Unavailable, why);
        match why {
            Unanswered::Gone => unavailable("the engine died meanwhile: it is tried again".to_owned()),
            Unanswered::Late(waited) => {
                unavailable(format!("the engine does not answer within {} s", waited.as_secs()))
            }
            Unanswered::Refused(failure) => failure,
        }
    }
}

/// A socket on which the engine of one volume finds the plugin. Its folder goes with it.
#[derive(Debug)]
pub struct Door {
    folder: PathBuf,
    is_closed: Arc<AtomicBool>,
}

impl Drop for Door {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // Wakes whoever listens.
        let _ = UnixStream::connect(link::socket_in(&self.folder));
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// All that are connected.
#[derive(Debug, Default)]
pub struct Engines {
    connected: Mutex<Vec<Arc<Engine>>>,
    changed: Condvar,
    count: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Engine {
    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// The engine's own, that it is gone, or that it does not answer.
    pub fn ask(
        &self,
        what: Question,
        mount: Option<&LastingMount>,
        patience: Duration,
    ) -> Result<Answer, Unanswered> {
        let question = self.questions.fetch_add(1, Ordering::SeqCst);
        let (sender, answer) = mpsc::channel();
        lock(&self.waiting).insert(question, sender);
        let told = self.sender.send(&ToEngine::Ask { question, what }, mount);
        let answered =
            told.map_err(|_| Unanswered::Gone).and_then(|()| match answer.recv_timeout(patience) {
                Ok(answer) => answer.map_err(Unanswered::Refused),
                Err(mpsc::RecvTimeoutError::Timeout) => Err(Unanswered::Late(patience)),
                Err(mpsc::RecvTimeoutError::Disconnected) => Err(Unanswered::Gone),
            });
        lock(&self.waiting).remove(&question);
        answered
    }

    /// Says what wants no answer. An engine that is gone is seen elsewhere.
    pub fn tell(&self, message: &ToEngine) {
        let _ = self.sender.send(message, None);
    }

    /// Whether it may be asked to serve this volume of its own, or of the node.
    pub fn is_for(&self, only: Option<&str>) -> bool {
        self.only.as_deref() == only
    }

    fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::SeqCst)
    }

    fn answered(&self, question: u64, answer: Result<Answer, Failure>) {
        let waiting = lock(&self.waiting).remove(&question);
        if let Some(waiting) = waiting {
            // It may have waited for long enough.
            let _ = waiting.send(answer);
        }
    }
}

impl Engines {
    /// The one that came last of those that stay: of the node's, or of that volume's own.
    pub fn newest(&self, only: Option<&str>) -> Option<Arc<Engine>> {
        newest(&lock(&self.connected), only)
    }

    /// Tells all that may serve this volume of its own, or of the node.
    pub fn tell_all(&self, only: Option<&str>, message: &ToEngine) {
        let connected = lock(&self.connected).clone();
        connected.iter().filter(|engine| engine.is_for(only)).for_each(|engine| engine.tell(message));
    }

    pub fn get(&self, id: u64) -> Option<Arc<Engine>> {
        lock(&self.connected).iter().find(|engine| engine.id == id).cloned()
    }

    /// Waits for one.
    pub fn wait(&self, only: Option<&str>, patience: Duration) -> Option<Arc<Engine>> {
        let since = Instant::now();
        let mut connected = lock(&self.connected);
        loop {
            if let Some(engine) = newest(&connected, only) {
                return Some(engine);
            }
            let left = patience.checked_sub(since.elapsed())?;
            connected = self.changed.wait_timeout(connected, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Listens in this folder for engines of this user or of root, of the node or of one volume alone, until
    /// the door is dropped.
    ///
    /// # Errors
    /// The folder or the socket cannot be made.
    pub fn listen(
        self: &Arc<Engines>,
        folder: &Path,
        only: Option<&str>,
        user: u32,
        volumes: Arc<dyn Volumes>,
        log: &Log,
    ) -> io::Result<Door> {
        // The engine may come in. It changes names below `state` alone: elsewhere it could lead us to files
        // that are none of its own.
        for (own, mode, owner) in [(folder, 0o750, 0), (&link::state_in(folder), 0o700, user)] {
            DirBuilder::new().recursive(true).mode(mode).create(own)?;
            // It may have been there: kubelet makes folders that pods name.
            fs::set_permissions(own, Permissions::from_mode(mode))?;
            chown(own, Some(owner), Some(user))?;
        }
        let path = link::socket_in(folder);
        // Of a plugin that was here before.
        let _ = fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        chown(&path, Some(user), Some(user))?;
        let door = Door { folder: folder.to_owned(), is_closed: Arc::default() };
        let (engines, log, is_closed) = (self.clone(), log.clone(), door.is_closed.clone());
        let only = only.map(str::to_owned);
        let accept = move || {
            for stream in listener.incoming().flatten() {
                if is_closed.load(Ordering::SeqCst) {
                    return;
                }
                let peer = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.uid.as_raw());
                match peer {
                    Ok(uid) if uid == user || uid == 0 => {}
                    Ok(uid) => {
                        log.say(&format!("a process of user {uid} is no engine: engines are of user {user}"));
                        continue;
                    }
                    Err(_) => continue,
                }
                let (engines, volumes, log) = (engines.clone(), volumes.clone(), log.clone());
                let only = only.clone();
                // Without a thread the engine comes again.
                let _ = thread::Builder::new().name("engine".into()).spawn(move || {
                    if let Err(why) = engines.converse(&stream, only, &*volumes, &log) {
                        log.say(&format!("engine: {why}"));
                    }
                });
            }
        };
        thread::Builder::new().name("engines".into()).spawn(accept)?;
        Ok(door)
    }

    fn converse(
        &self,
        stream: &UnixStream,
        only: Option<String>,
        volumes: &dyn Volumes,
        log: &Log,
    ) -> Result<(), String> {
        let wrong = |error: io::Error| flatout_engine::plain(&error);
        stream.set_read_timeout(Some(HELLO_WITHIN)).map_err(wrong)?;
        let Some(ToPlugin::Hello { version, program, format, kept }) =
            link::receive(stream).map_err(wrong)?
        else {
            return Err("it did not say what it is".to_owned());
        };
        if (version, format) != (VERSION, LastingMount::FORMAT) {
            return Err(format!("Flatout {program} speaks another version of the plugin's language"));
        }
        if kept > KEPT_MOST {
            return Err(format!("it says that it serves {kept} volumes"));
        }
        let mut has = Vec::new();
        for _ in 0..kept {
            let Some(ToPlugin::Kept(assignment)) = link::receive(stream).map_err(wrong)? else {
                return Err("it did not say what it serves".to_owned());
            };
            has.push((*assignment, LastingMount::receive(stream).map_err(wrong)?));
        }
        stream.set_read_timeout(None).map_err(wrong)?;
        let engine = Arc::new(Engine {
            id: self.count.fetch_add(1, Ordering::SeqCst) + 1,
            only,
            sender: Sender::of(stream).map_err(wrong)?,
            is_leaving: AtomicBool::new(false),
            waiting: Mutex::default(),
            questions: AtomicU64::new(0),
        });
        let id = engine.id;
        if let Err(why) = volumes.adopt(&engine, has) {
            engine.tell(&ToEngine::Refused { why: why.clone() });
            return Err(why);
        }
        log.say(&format!("engine {id}: Flatout {program} is connected, and serves {kept} volumes"));
        engine.tell(&ToEngine::Welcome);
        lock(&self.connected).push(engine.clone());
        self.changed.notify_all();
        volumes.assign();
        let heard = self.hear(stream, &engine, volumes);
        lock(&self.connected).retain(|known| known.id != id);
        // Whoever waits for an answer learns that none comes.
        lock(&engine.waiting).clear();
        log.say(&format!("engine {id}: it is gone"));
        volumes.orphan(id);
        heard
    }

    fn hear(&self, stream: &UnixStream, engine: &Arc<Engine>, volumes: &dyn Volumes) -> Result<(), String> {
        let wrong = |error: io::Error| flatout_engine::plain(&error);
        loop {
            let Some(message) = link::receive::<ToPlugin>(stream).map_err(wrong)? else { return Ok(()) };
            match message {
                ToPlugin::Answer { question, answer } => engine.answered(question, answer),
                ToPlugin::Ended { number, failure } => volumes.ended(engine.id, number, failure),
                ToPlugin::Leaving => engine.is_leaving.store(true, Ordering::SeqCst),
                // What a plugin before has asked for.
                ToPlugin::Kept(assignment) => {
                    let mount = LastingMount::receive(stream).map_err(wrong)?;
                    volumes.adopt(engine, vec![(*assignment, mount)])?;
                }
                ToPlugin::Hello { .. } => return Err("it said twice what it is".to_owned()),
            }
        }
    }
}

fn newest(connected: &[Arc<Engine>], only: Option<&str>) -> Option<Arc<Engine>> {
    let stay = connected.iter().filter(|engine| engine.is_for(only) && !engine.is_leaving());
    stay.max_by_key(|engine| engine.id).cloned()
}
