//! What the node's plugin and an engine tell each other, over the plugin's socket. Every message has a
//! length; a mount follows the message that names it, with its descriptors beside it.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use flatout_mount::LastingMount;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tonic::Code;

use crate::log::worded;
use crate::volume::{Secrets, Volume};

/// Of these messages. An engine of another version is not served, and says so.
pub const VERSION: u32 = 1;

/// A volume, for the engine that is to serve it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assignment {
    /// The name of the mount.
    pub key: String,
    /// Tells this mount from those before it under the same name: a later one has a higher number.
    pub number: u64,
    pub volume_id: String,
    pub volume: Volume,
    pub secrets: Secrets,
    /// Its share of the node's memory.
    pub memory_bytes: u64,
    /// The name of its index on this node, if it has one.
    #[serde(default)]
    pub index: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum ToEngine {
    /// The answer to `Hello`.
    Welcome,
    /// The other answer: another engine serves what this one has kept, and this one must end.
    Refused { why: String },
    /// It wants an answer of the same number.
    Ask { question: u64, what: Question },
    /// It was not mounted after all.
    Forget { number: u64 },
    /// Its keys may be others by now.
    Renew { number: u64, secrets: Secrets },
    /// No pod wants the volume of this index any more. Only engines that know of indexes are told.
    LetIndexGo { index: String },
}

/// What an engine is asked. Volumes are named by the numbers of their mounts.
#[derive(Debug, Serialize, Deserialize)]
pub enum Question {
    /// Look at the bucket, so that it can be served.
    Prepare(Box<Assignment>),
    /// Serve what was prepared. The mount comes next.
    Serve { number: u64 },
    /// Go on with what another engine has served. The mount comes next.
    TakeOver(Box<Assignment>),
    /// How is it?
    Look { number: u64 },
}

#[derive(Debug, Serialize, Deserialize)]
pub enum ToPlugin {
    /// The first message. So many volumes are served already, for a plugin that is gone: each is told by a
    /// `Kept`.
    Hello { version: u32, program: String, format: u32, kept: usize },
    /// One that is served already. The mount comes next.
    Kept(Box<Assignment>),
    /// To the question of that number.
    Answer { question: u64, answer: Result<Answer, Failure> },
    /// It was unmounted, or broke.
    Ended { number: u64, failure: Option<Failure> },
    /// No more volumes are taken: this engine ends as soon as nothing would be lost by that.
    Leaving,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    /// With a line to show about it.
    Prepared(Option<String>),
    Serves,
    Looked(Health),
}

/// How a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Why the bucket cannot be reached now.
    pub outage: Option<String>,
    /// Requests of the kernel that wait, and for how many seconds the oldest.
    pub waiting: u64,
    pub waits_s: u64,
    /// What it has, where an index tells.
    #[serde(default)]
    pub contents: Option<Contents>,
}

/// What an index counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    pub files: u64,
    pub folders: u64,
    pub bytes: u64,
}

/// Why something cannot be done, as the gRPC of CSI says it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failure {
    code: i32,
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code: code as i32, message: message.into() }
    }

    pub fn code(&self) -> Code {
        Code::from_i32(self.code)
    }

    pub fn internal(what: &str, error: &io::Error) -> Failure {
        Failure::new(Code::Internal, format!("{what}: {}", flatout_engine::plain(error)))
    }
}

impl From<Failure> for tonic::Status {
    fn from(failure: Failure) -> tonic::Status {
        tonic::Status::new(failure.code(), failure.message)
    }
}

impl From<flatout_engine::Error> for Failure {
    /// Codes that kubelet takes for an end are those of what does not pass by itself.
    fn from(error: flatout_engine::Error) -> Failure {
        use flatout_engine::ErrorKind as Kind;
        let code = match error.kind() {
            Kind::Usage | Kind::Unsupported => Code::InvalidArgument,
            Kind::NotFound => Code::NotFound,
            // What is missing is a permission as often as the right keys, and the origin does not say.
            Kind::Denied => Code::PermissionDenied,
            Kind::Untrusted => Code::FailedPrecondition,
            Kind::Throttled | Kind::Network | Kind::Timeout => Code::Unavailable,
            Kind::Cancelled => Code::Aborted,
            _ => Code::Internal,
        };
        let hint = error.hint().map(|hint| format!(" ({})", worded(hint))).unwrap_or_default();
        Failure::new(code, format!("{error}{hint}"))
    }
}

/// The end of a socket that many threads may write to.
#[derive(Debug)]
pub struct Sender(Mutex<UnixStream>);

impl Sender {
    /// # Errors
    /// The system's.
    pub fn of(socket: &UnixStream) -> io::Result<Sender> {
        Ok(Sender(Mutex::new(socket.try_clone()?)))
    }

    /// Sends a message, and the mount behind it.
    ///
    /// # Errors
    /// The other side is gone.
    pub fn send(&self, message: &impl Serialize, mount: Option<&LastingMount>) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let socket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        flatout_mount::send(&socket, &bytes, &[])?;
        mount.map_or(Ok(()), |mount| mount.send(&socket))
    }
}

/// Waits for the next message; `None` once the other side is gone.
///
/// # Errors
/// It is of another version (`InvalidData`), or the system's.
pub fn receive<M: DeserializeOwned>(socket: &UnixStream) -> io::Result<Option<M>> {
    match flatout_mount::receive(socket)? {
        Some((bytes, _)) => Ok(Some(serde_json::from_slice(&bytes)?)),
        None => Ok(None),
    }
}

/// What a plugin and the engines of its node share: a folder of the node.
#[derive(Clone, Debug)]
pub struct NodeFolder(PathBuf);

impl NodeFolder {
    pub fn new(folder: impl Into<PathBuf>) -> NodeFolder {
        NodeFolder(folder.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where volumes are mounted, each once.
    pub fn mounts(&self) -> PathBuf {
        self.0.join("mounts")
    }

    /// What is known of volumes, for a plugin that is started again; without secrets.
    pub fn records(&self) -> PathBuf {
        self.0.join("volumes")
    }

    /// What the node's engines see of this folder.
    pub fn engine(&self) -> PathBuf {
        self.0.join("engine")
    }

    /// What the engine of this volume alone sees, in the place of `engine`.
    pub fn alone(&self, key: &str) -> PathBuf {
        self.0.join("alone").join(key)
    }

    /// Where an engine finds the plugin.
    pub fn socket(&self) -> PathBuf {
        socket_in(&self.engine())
    }

    /// The indexes of volumes, which engines make.
    pub fn indexes(&self) -> PathBuf {
        self.state().join("indexes")
    }

    /// What an engine has begun at origins, for the next one.
    pub fn state(&self) -> PathBuf {
        state_in(&self.engine())
    }
}

/// Where the plugin listens, in a folder that an engine sees.
pub fn socket_in(folder: &Path) -> PathBuf {
    folder.join("plugin.sock")
}

/// The part of such a folder that the engine's user may write to.
pub fn state_in(folder: &Path) -> PathBuf {
    folder.join("state")
}

/// A number for a mount: higher than any before, also than those of a process before this one.
pub fn new_number() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    let next = |last: u64| Some(now.max(last + 1));
    LAST.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).map_or(now, |last| now.max(last + 1))
}
