//! One volume of an engine: from what it is to the mount that is served, and what can be changed meanwhile.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use flatout_ambient::Environment;
use flatout_engine::{Client, Config, OutageNews};
use flatout_mount::LastingMount;
use flatout_mounting::stats::MountStats;
use flatout_mounting::{
    Handover, MountLog, MountPlan, MountSession, MountedFiles, Shutdown, StandingMount, StatsFn,
    StatusEndpoints,
};
use flatout_settings::Settings;
use tonic::Code;

use super::indexes::{Build, Indexes, KeptIndex, Request};
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

impl Connected {
    pub fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// What all volumes of an engine share.
pub struct Serving {
    folder: NodeFolder,
    clients: Clients,
    indexes: Arc<Indexes>,
    log: Log,
}

/// A volume whose bucket was looked at, and that can be served.
pub struct Prepared {
    parts: Parts,
    plan: MountPlan,
    files: MountedFiles,
    note: Option<String>,
    index: Option<KeptIndex>,
}

/// What of a volume stays as long as it is served.
struct Parts {
    assignment: Assignment,
    connected: Arc<Connected>,
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
    index: Option<KeptIndex>,
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
        let (clients, indexes) = (Clients::new(environment)?, Indexes::new(folder.indexes()));
        Ok(Serving { folder: folder.clone(), clients, indexes, log })
    }

    /// Before the process ends.
    pub fn remove_key_files(&self) {
        self.clients.key_files.remove();
    }

    /// Lists the root of the bucket's folder, or sees to it that there is an index.
    ///
    /// # Errors
    /// The origin's refusal, or settings that make no sense.
    pub fn prepare(&self, assignment: Assignment) -> Result<Prepared, Failure> {
        let running = assignment.index.as_ref().and_then(|name| self.indexes.build(name));
        if let Some(running) = running {
            self.renew_build(&running, &assignment)?;
        }
        let (parts, mut plan) = self.parts(assignment, true)?;
        plan.mount_point = self.folder.mounts().join(&parts.assignment.key);
        if let Some(name) = &parts.assignment.index {
            let (volume, connected, log) =
                (&parts.assignment.volume, parts.connected.clone(), parts.log.clone());
            let index = self.indexes.ready(Request { name, volume, connected, log })?;
            let (files, note) = flatout_mounting::list_root(&parts.connected.client, &plan, None)?;
            return Ok(Prepared { parts, plan, files, note, index: Some(index) });
        }
        flatout_mounting::end_renames(&parts.connected.client, &plan, &parts.log);
        let (files, note) = flatout_mounting::list_root(&parts.connected.client, &plan, Some(&parts.log))?;
        Ok(Prepared { parts, plan, files, note, index: None })
    }

    /// Goes on with what another engine has served. Nothing is asked of the origin.
    ///
    /// # Errors
    /// `DataLoss`: that engine could not keep all that the kernel knows. What else fails may pass.
    pub fn go_on(&self, assignment: Assignment, mount: &LastingMount) -> Result<Prepared, Failure> {
        let (parts, mut plan) = self.parts(assignment, mount.is_image())?;
        let index = parts.assignment.index.as_ref().map(|name| {
            let gone = || Failure::new(Code::DataLoss, "its index is gone from this node");
            KeptIndex::open(&self.indexes.path(name)).ok_or_else(gone)
        });
        let index = index.transpose()?;
        if let Some(point) = mount.point() {
            plan.mount_point = point.to_owned();
        }
        let taken = flatout_mounting::take_over(&parts.connected.client, &plan, mount, &parts.log);
        let files = taken.map_err(|error| Failure::new(Code::DataLoss, Failure::from(error).message))?;
        Ok(Prepared { parts, plan, files, note: None, index })
    }

    /// A build of the volume's index goes on with these keys.
    fn renew_build(&self, build: &Build, assignment: &Assignment) -> Result<(), Failure> {
        let connected = &build.connected;
        let (_, keys) = self.clients.keys_of(assignment, &assignment.secrets, &connected.files)?;
        connected.keys.turn_to(keys);
        Ok(())
    }

    /// No pod wants the volume of this index any more.
    pub fn let_index_go(&self, name: &str) {
        self.indexes.let_go(name);
    }

    fn parts(&self, assignment: Assignment, is_image: bool) -> Result<(Parts, MountPlan), Failure> {
        let connected = Arc::new(self.clients.connect(&assignment)?);
        let settings = connected.settings.clone();
        let index = assignment.index.as_ref().map(|name| (self.indexes.path(name), is_image));
        let plan = plan::of(&assignment, settings, Path::new(""), Some(self.folder.state()), index)?;
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
        let Prepared { parts, mut plan, mut files, index, .. } = prepared;
        if index.is_some() && !takes_over && !mount.is_image() {
            // The node mounts no images.
            plan.serve_as_before(false);
            files = flatout_mounting::list_root(&parts.connected.client, &plan, None)?.0;
        }
        if let Some(point) = mount.point() {
            plan.mount_point = point.to_owned();
        }
        let kept = mount.try_clone().map_err(|error| Failure::internal("the descriptor", &error))?;
        if !takes_over {
            files.keep_in(&mount);
        }
        let none = StatusEndpoints::bind(&[], None).map_err(|error| Failure::internal("threads", &error))?;
        let standing = Some(StandingMount { mount, takes_over });
        let session = MountSession::start(plan, files, none, &parts.log, &Shutdown::default(), standing)?;
        session.clear_unfinished();
        let served = Served {
            assignment: parts.assignment.clone(),
            mount: kept,
            handover: session.handover(),
            stats: session.stats(),
            parts,
            index,
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
        let stats = (self.stats)();
        let source = match &self.index {
            // And not a file of this node.
            Some(_) => self.assignment.volume.source.clone(),
            None => stats.source.clone(),
        };
        MountStats { mount_point: self.assignment.volume_id.clone(), source, ..stats }
    }

    pub fn health(&self) -> Health {
        let outage = self.parts.outage.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let waits = self.handover.waits();
        let longest = waits.iter().max().copied().unwrap_or_default();
        let contents = self.index.as_ref().map(|index| index.contents);
        Health { outage, waiting: waits.len() as u64, waits_s: longest.as_secs(), contents }
    }
}
