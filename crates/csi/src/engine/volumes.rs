//! One volume of an engine: from what it is to the mount that is served, and what can be changed meanwhile.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use flatout_ambient::Environment;
use flatout_engine::{Client, Config, OutageNews};
use flatout_mount::LastingMount;
use flatout_mounting::stats::MountStats;
use flatout_mounting::{
    Handover, MountLog, MountPlan, MountSession, Shutdown, StandingMount, StatsFn, StatusEndpoints,
};
use flatout_settings::Settings;
use flatout_tree::Tree;
use tonic::Code;

use super::keys::{self, Identities, KeyFiles, KeyFolder, SharedKeys, VolumeKeys, of_folder};
use crate::Log;
use crate::link::{Assignment, Failure, Health, NodeFolder};
use crate::plan;
use crate::volume::Secrets;

/// Makes clients for volumes, each with its own settings and keys.
pub struct Clients {
    /// For files that the chains of keys read; not shared with anybody.
    key_files: KeyFolder,
    environment: Environment,
    identities: Identities,
}

/// A client for a volume, and what its keys need.
pub struct Connected {
    pub client: Arc<Client>,
    settings: Settings,
    keys: Arc<VolumeKeys>,
    files: Arc<KeyFiles>,
}

/// What all volumes of an engine share.
pub struct Serving {
    folder: NodeFolder,
    clients: Clients,
    log: Log,
}

/// A volume whose bucket was looked at, and that can be served.
pub struct Prepared {
    parts: Parts,
    plan: MountPlan,
    tree: Tree,
    note: Option<String>,
}

/// What of a volume stays as long as it is served.
struct Parts {
    assignment: Assignment,
    connected: Connected,
    log: Arc<MountLog>,
    outage: Arc<Mutex<Option<String>>>,
}

/// A volume that is served.
pub struct Served {
    pub assignment: Assignment,
    pub mount: LastingMount,
    handover: Handover,
    stats: StatsFn,
    parts: Parts,
}

/// Whoever has to ask for keys anew.
pub struct Renewal {
    client: Arc<Client>,
    is_oss: bool,
}

impl Renewal {
    /// Blocks. What it says is heard where requests fail.
    pub fn ask(self) {
        let _ = if self.is_oss { self.client.who_has_oss_keys() } else { self.client.who_has_aws_keys() };
    }
}

impl Clients {
    /// `environment` is that of the pod, whose keys are the driver's own.
    ///
    /// # Errors
    /// A folder cannot be made.
    pub fn new(environment: Environment) -> Result<Clients, Failure> {
        let key_files = KeyFolder::new(&std::env::temp_dir()).map_err(of_folder)?;
        Ok(Clients { key_files, environment, identities: Identities::default() })
    }

    /// # Errors
    /// Settings that make no sense, or a folder that cannot be written to.
    pub fn connect(&self, assignment: &Assignment) -> Result<Connected, Failure> {
        let name = format!("{}-{}", assignment.key, assignment.number);
        let files = Arc::new(KeyFiles::new(self.key_files.path(), &name).map_err(of_folder)?);
        let (found, keys) = self.keys_of(assignment, &assignment.secrets, &files)?;
        let (keys, settings) = (Arc::new(VolumeKeys::new(keys)), found.settings.clone());
        let config = Config { aws_credentials: keys.clone(), oss_credentials: keys.clone(), ..found.into() };
        Ok(Connected { client: Arc::new(Client::new(config)?), settings, keys, files })
    }

    /// Who has the keys of these secrets.
    fn keys_of(
        &self,
        assignment: &Assignment,
        secrets: &Secrets,
        files: &Arc<KeyFiles>,
    ) -> Result<(flatout_ambient::Ambient, Arc<SharedKeys>), Failure> {
        let volume = &assignment.volume;
        let surroundings = keys::surroundings(volume, secrets, files, &self.environment)?;
        let found = plan::gather(assignment, &surroundings)?;
        let is_oss = volume.source.starts_with("oss://");
        let provider = if is_oss { found.oss_credentials.clone() } else { found.aws_credentials.clone() };
        let shared = self.identities.shared(&keys::name_of(volume, secrets), provider, files);
        Ok((found, shared))
    }
}

impl Serving {
    /// # Errors
    /// A folder cannot be made.
    pub fn new(folder: &NodeFolder, environment: Environment, log: Log) -> Result<Serving, Failure> {
        Ok(Serving { folder: folder.clone(), clients: Clients::new(environment)?, log })
    }

    /// Before the process ends.
    pub fn remove_key_files(&self) {
        self.clients.key_files.remove();
    }

    /// Lists the root of the bucket's folder.
    ///
    /// # Errors
    /// The origin's refusal, or settings that make no sense.
    pub fn prepare(&self, assignment: Assignment) -> Result<Prepared, Failure> {
        let (parts, mut plan) = self.parts(assignment)?;
        plan.mount_point = self.folder.mounts().join(&parts.assignment.key);
        flatout_mounting::end_renames(&parts.connected.client, &plan, &parts.log);
        let (tree, note) = flatout_mounting::list_root(&parts.connected.client, &plan, Some(&parts.log))?;
        Ok(Prepared { parts, plan, tree, note })
    }

    /// Goes on with what another engine has served. Nothing is asked of the origin.
    ///
    /// # Errors
    /// `DataLoss`: that engine could not keep all that the kernel knows. What else fails may pass.
    pub fn go_on(&self, assignment: Assignment, mount: &LastingMount) -> Result<Prepared, Failure> {
        let (parts, mut plan) = self.parts(assignment)?;
        if let Some(point) = mount.point() {
            plan.mount_point = point.to_owned();
        }
        let taken = flatout_mounting::take_over(&parts.connected.client, &plan, mount, &parts.log);
        let tree = taken.map_err(|error| Failure::new(Code::DataLoss, Failure::from(error).message))?;
        Ok(Prepared { parts, plan, tree, note: None })
    }

    fn parts(&self, assignment: Assignment) -> Result<(Parts, MountPlan), Failure> {
        let connected = self.clients.connect(&assignment)?;
        let settings = connected.settings.clone();
        let plan = plan::of(&assignment, settings, Path::new(""), Some(self.folder.state()))?;
        let log = Arc::new(self.log.of(&assignment.volume_id));
        let outage = Arc::<Mutex<Option<String>>>::default();
        let (seen, told) = (outage.clone(), log.clone());
        // Without a thread for it the log lacks outages, and nothing else.
        let _ = connected.client.on_outages(move |news| {
            told.say(&news.to_string());
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            *seen = match news {
                OutageNews::Away { origin, why, .. } => Some(format!("{origin}: {why}")),
                OutageNews::Back { .. } => None,
            };
        });
        Ok((Parts { assignment, connected, log, outage }, plan))
    }

    /// Serves it by this mount.
    ///
    /// # Errors
    /// The system's.
    pub fn serve(
        &self,
        prepared: Prepared,
        mount: LastingMount,
        takes_over: bool,
    ) -> Result<(Served, MountSession), Failure> {
        let Prepared { parts, mut plan, tree, .. } = prepared;
        if let Some(point) = mount.point() {
            plan.mount_point = point.to_owned();
        }
        let kept = mount.try_clone().map_err(|error| Failure::internal("the descriptor", &error))?;
        if !takes_over {
            tree.keep_in(mount.table());
        }
        let none = StatusEndpoints::bind(&[], None).map_err(|error| Failure::internal("threads", &error))?;
        let standing = Some(StandingMount { mount, takes_over });
        let session = MountSession::start(plan, tree, none, &parts.log, &Shutdown::default(), standing)?;
        session.clear_unfinished();
        let served = Served {
            assignment: parts.assignment.clone(),
            mount: kept,
            handover: session.handover(),
            stats: session.stats(),
            parts,
        };
        Ok((served, session))
    }

    /// Takes other keys for a volume that is served; `None` where they are those that it has.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn renew(&self, served: &mut Served, secrets: Secrets) -> Result<Option<Renewal>, Failure> {
        if served.assignment.secrets == secrets {
            return Ok(None);
        }
        let connected = &served.parts.connected;
        let (_, keys) = self.clients.keys_of(&served.assignment, &secrets, &connected.files)?;
        connected.keys.turn_to(keys);
        let is_oss = served.assignment.volume.source.starts_with("oss://");
        let renewal = Renewal { client: connected.client.clone(), is_oss };
        served.assignment.secrets = secrets;
        Ok(Some(renewal))
    }
}

impl Prepared {
    pub fn assignment(&self) -> &Assignment {
        &self.parts.assignment
    }

    /// A line to show about it.
    pub fn note(&self) -> Option<String> {
        self.note.clone()
    }
}

impl Served {
    pub fn handover(&self) -> Handover {
        self.handover.clone()
    }

    /// Under the volume's own name.
    pub fn stats(&self) -> MountStats {
        MountStats { mount_point: self.assignment.volume_id.clone(), ..(self.stats)() }
    }

    pub fn health(&self) -> Health {
        let outage = self.parts.outage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let waits = self.handover.waits();
        let longest = waits.iter().max().copied().unwrap_or_default();
        Health { outage, waiting: waits.len() as u64, waits_s: longest.as_secs() }
    }
}
