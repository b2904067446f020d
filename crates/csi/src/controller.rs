//! The part of the driver that runs once: it makes a folder of a bucket for each volume, and deletes what it
//! has made.
//!
//! A folder is marked by the object of its own key, `PREFIX/NAME/`, whose metadata name the volume: every
//! tool takes that for an empty folder, and a mount does not show it. Without that mark nothing is deleted.

use std::collections::{BTreeSet, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use flatout_ambient::Environment;
use flatout_engine::{Client, Deletion, Entry, Error, ErrorKind, Put, Source, Stat};
use flatout_wire::location::Location;
use flatout_wire::object_options::{Condition, ObjectOptions};
use tonic::{Code, Request, Response, Status};

use crate::Log;
use crate::attributes::{self, Cluster, ReadVolume, VolumeRequest};
use crate::engine::Clients;
use crate::link::{Assignment, Failure, new_number};
use crate::node::mode_of;
use crate::proto::controller_server::Controller as ControllerRpc;
use crate::proto::controller_service_capability::{Rpc, Type, rpc};
use crate::proto::validate_volume_capabilities_response::Confirmed;
use crate::proto::volume_capability::{AccessType, access_mode::Mode};
use crate::proto::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, ControllerServiceCapability,
    CreateVolumeRequest, CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume, VolumeCapability,
};
use crate::volume::{Identity, Secrets};
use crate::volume_id::{OF_PLACES, VolumeId};

/// The metadata of a mark: the name that Kubernetes gave the volume.
const MARK: &str = "flatout-volume";
/// The metadata of a mark: the least bytes that were asked for, which nobody holds a bucket to.
const CAPACITY: &str = "flatout-capacity";
/// For one client at a time that does little.
const MEMORY_BYTES: u64 = 64 << 20;

/// What a controller is told when it is started.
pub struct ControllerOptions {
    pub driver: String,
    pub cluster: Cluster,
    /// The surroundings of its pod, whose keys are the driver's own.
    pub environment: Environment,
}

/// Makes volumes and deletes them.
pub struct Controller {
    options: ControllerOptions,
    clients: Clients,
    /// Volumes that something is done with now.
    busy: Mutex<BTreeSet<String>>,
    log: Log,
}

/// Nobody else does anything with this volume meanwhile.
struct Busy<'a>(&'a Controller, String);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

/// A volume that is to be made.
struct NewVolume {
    name: String,
    capacity: i64,
    read: ReadVolume,
    id: VolumeId,
    context: HashMap<String, String>,
}

impl Controller {
    /// # Errors
    /// A folder cannot be made.
    pub fn new(options: ControllerOptions, log: Log) -> Result<Controller, Failure> {
        let clients = Clients::new(options.environment.clone())?;
        Ok(Controller { options, clients, busy: Mutex::default(), log })
    }

    pub fn driver(&self) -> &str {
        &self.options.driver
    }

    fn busy(&self, name: &str) -> Result<Busy<'_>, Failure> {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        match busy.insert(name.to_owned()) {
            true => Ok(Busy(self, name.to_owned())),
            false => Err(Failure::new(Code::Aborted, format!("{name}: another call is under way"))),
        }
    }

    /// A client for the bucket, whose keys are those of the request.
    fn with_client<T>(
        &self,
        volume: crate::volume::Volume,
        secrets: Secrets,
        work: impl FnOnce(&Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let key = volume.key("controller", None);
        let assignment = Assignment {
            key,
            number: new_number(),
            volume_id: "controller".into(),
            volume,
            secrets,
            memory_bytes: MEMORY_BYTES,
            index: None,
        };
        let connected = self.clients.connect(&assignment)?;
        work(&connected.client)
    }

    fn create(&self, new: &NewVolume) -> Result<(), Failure> {
        let _busy = self.busy(&new.name)?;
        let folder = &new.id.folder;
        if new.id.stays {
            return Ok(());
        }
        self.with_client(new.read.volume.clone(), new.read.secrets.clone(), |client| {
            match look(client, folder)? {
                Some(mark) => return new.is_made_by(&mark),
                None if client.list(folder, true).and_then(|mut list| list.next().transpose())?.is_some() => {
                    return Err(Failure::new(
                        Code::AlreadyExists,
                        format!("{}: {folder}: it holds objects, and no volume was made there", new.name),
                    ));
                }
                None => {}
            }
            let metadata =
                vec![(MARK.to_owned(), new.name.clone()), (CAPACITY.to_owned(), new.capacity.to_string())];
            let options = ObjectOptions { metadata, ..ObjectOptions::default() };
            let put = Put::new(folder.clone(), Source::Memory(Arc::new(Vec::new())));
            let put = put.with_options(options).on_condition(Condition::Absent);
            let made = client.put(put).and_then(|transfer| transfer.wait());
            match made {
                Ok(_) => Ok(()),
                // Another controller was quicker: what it has made counts.
                Err(error) if error.kind() == ErrorKind::Changed => match look(client, folder)? {
                    Some(mark) => new.is_made_by(&mark),
                    None => Err(error.into()),
                },
                Err(error) => Err(error.into()),
            }
        })?;
        self.log.say(&format!("{}: made at {folder}", new.name));
        Ok(())
    }

    fn delete(&self, volume_id: &str, secrets: &HashMap<String, String>) -> Result<(), Failure> {
        let _busy = self.busy(volume_id)?;
        let Some(id) = VolumeId::parse(volume_id) else {
            self.log.say(&format!("{volume_id}: no volume that was made here: nothing is deleted"));
            return Ok(());
        };
        if id.stays {
            self.log.say(&format!("{volume_id}: it stays, as its storage class says"));
            return Ok(());
        }
        let (volume, secrets) = of_id(&id, secrets)?;
        self.with_client(volume, secrets, |client| {
            let Some(mark) = look(client, &id.folder)? else {
                self.log.say(&format!("{volume_id}: there is no such volume"));
                return Ok(());
            };
            if name_of(&mark).is_none() {
                return Err(Failure::new(
                    Code::FailedPrecondition,
                    format!(
                        "{volume_id}: {}: this folder was not made for a volume: it is not deleted; where it is \
                         to go, `flatout rm -r` deletes it",
                        id.folder
                    ),
                ));
            }
            let count = delete_below(client, &id.folder)?;
            // The last, so that what was broken off is found and goes on.
            client.delete(&id.folder, None)?;
            self.log.say(&format!("{volume_id}: deleted, with {count} objects"));
            Ok(())
        })
    }

    fn exists(&self, volume_id: &str, secrets: &HashMap<String, String>) -> Result<bool, Failure> {
        let Some(id) = VolumeId::parse(volume_id) else { return Ok(false) };
        let (volume, secrets) = of_id(&id, secrets)?;
        self.with_client(volume, secrets, |client| Ok(id.stays || look(client, &id.folder)?.is_some()))
    }
}

impl NewVolume {
    /// Whether the mark is of this very volume.
    fn is_made_by(&self, mark: &Stat) -> Result<(), Failure> {
        let folder = &self.id.folder;
        let value =
            |name: &str| mark.metadata.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        match (value(MARK), value(CAPACITY)) {
            (Some(name), _) if *name != self.name => Err(Failure::new(
                Code::AlreadyExists,
                format!("{}: {folder}: it was made for the volume {name}", self.name),
            )),
            (Some(_), Some(capacity)) if *capacity != self.capacity.to_string() => Err(Failure::new(
                Code::AlreadyExists,
                format!("{}: it was made for {capacity} bytes, and not for {}", self.name, self.capacity),
            )),
            (Some(_), _) => Ok(()),
            (None, _) => Err(Failure::new(
                Code::AlreadyExists,
                format!("{}: {folder}: there is such a folder, and no volume was made there", self.name),
            )),
        }
    }
}

/// The mark of a folder; `None` where there is none.
fn look(client: &Client, folder: &Location) -> Result<Option<Stat>, Error> {
    match client.stat(folder) {
        Ok(stat) => Ok(Some(stat)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn name_of(mark: &Stat) -> Option<&String> {
    mark.metadata.iter().find(|(name, _)| name == MARK).map(|(_, value)| value)
}

/// Deletes every object below the folder but its mark, and says how many there were.
fn delete_below(client: &Client, folder: &Location) -> Result<u64, Failure> {
    let (listing, mark) = (client.list(folder, true)?, folder.clone());
    let deletions = listing.filter_map(move |entry| match entry {
        Ok(Entry::Object(listed)) if listed.key == mark.key() => None,
        Ok(Entry::Object(listed)) => {
            let location = mark.with_key(listed.key).expect("what is in a bucket takes another key");
            Some(Ok(Deletion { location, bytes: listed.size }))
        }
        Ok(Entry::Prefix(_)) => None,
        Err(error) => Some(Err(error)),
    });
    let mut refused = None;
    let done = client.delete_many(deletions, &mut |deleted| {
        refused = refused.take().or_else(|| deleted.into_iter().find_map(|one| one.result.err()));
        ControlFlow::Continue(())
    })?;
    match done.incomplete.or(refused) {
        Some(error) => Err(error.into()),
        None if done.failed + done.unknown > 0 => Err(Failure::new(
            Code::Internal,
            format!("{folder}: {} objects could not be deleted", done.failed),
        )),
        None => Ok(done.deleted),
    }
}

/// A volume as its name says it, with the keys of the request.
fn of_id(
    id: &VolumeId,
    secrets: &HashMap<String, String>,
) -> Result<(crate::volume::Volume, Secrets), Failure> {
    let attributes = HashMap::from([("source".to_owned(), id.folder.to_string())]);
    let request = VolumeRequest { attributes, secrets: secrets.clone(), ..VolumeRequest::default() };
    let mut read = attributes::read(&request, &Cluster::default())
        .map_err(|error| Failure::new(Code::InvalidArgument, error.to_string()))?;
    read.volume.knobs.extend(id.knobs.iter().cloned());
    if let Some(identity) = &id.identity {
        read.volume.identity = identity.clone();
    }
    Ok((read.volume, read.secrets))
}

fn check_modes(capabilities: &[VolumeCapability]) -> Result<bool, Status> {
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("volume_capabilities is missing"));
    }
    let mut readers_only = true;
    for capability in capabilities {
        let (mode, _) = mode_of(Some(capability))?;
        readers_only &= matches!(mode, Mode::MultiNodeReaderOnly | Mode::SingleNodeReaderOnly);
    }
    Ok(readers_only)
}

fn new_volume(request: CreateVolumeRequest, cluster: &Cluster) -> Result<NewVolume, Status> {
    let name = request.name;
    if name.is_empty() {
        return Err(Status::invalid_argument("name is missing"));
    }
    if name.contains('/') || name == "." || name == ".." {
        return Err(Status::invalid_argument(format!("name: '{name}' is no name of a folder")));
    }
    let is_read_only = check_modes(&request.volume_capabilities)?;
    if request.volume_content_source.is_some() {
        return Err(Status::invalid_argument(format!(
            "{name}: volumes are not made of others: write no dataSource"
        )));
    }
    let capacity = request.capacity_range.map_or(0, |range| range.required_bytes);
    let mount = request.volume_capabilities.iter().find_map(|capability| match &capability.access_type {
        Some(AccessType::Mount(mount)) => Some(mount.clone()),
        _ => None,
    });
    let volume_request = VolumeRequest {
        attributes: request.parameters.clone(),
        secrets: request.secrets,
        mount_options: mount.map(|mount| mount.mount_flags).unwrap_or_default(),
        is_read_only,
        ..VolumeRequest::default()
    };
    let mut read = attributes::read(&volume_request, cluster)
        .map_err(|error| Status::invalid_argument(format!("{name}: {error}")))?;
    let shared = Location::parse(&read.volume.source)
        .map_err(|error| Status::invalid_argument(format!("{name}: {error}")))?;
    let key = format!("{}{name}/", shared.key());
    let own = shared.with_key(key).expect("what is in a bucket takes another key");
    if read.volume.index.is_some() && !read.is_shared_path {
        return Err(Status::invalid_argument(format!(
            "{name}: kind: a folder that is made for a volume has no files to index: write volumeAs: sharepath"
        )));
    }
    // There is no pod whose token it could be: the controller's own is asked for the same role.
    read.volume.identity = read.volume.identity.of_driver();
    let knobs = read.volume.knobs.iter().filter(|(name, _)| OF_PLACES.contains(&name.as_str()));
    let identity = Some(read.volume.identity.clone())
        .filter(|identity| !matches!(identity, Identity::Secret | Identity::Driver));
    let retains = request.parameters.iter().any(|(key, value)| {
        key.eq_ignore_ascii_case("csi.alibabacloud.com/reclaimPolicy") && !value.is_empty()
    });
    let id = VolumeId {
        folder: if read.is_shared_path { shared.clone() } else { own.clone() },
        knobs: knobs.cloned().collect(),
        identity,
        stays: read.is_shared_path || retains,
        name: read.is_shared_path.then(|| name.to_owned()),
    };
    // The node is told the folder itself, in place of what it was made of.
    let of_place =
        ["source", "bucket", "bucketname", "path", "volumeas", "csi.alibabacloud.com/reclaimpolicy"];
    let mut context: HashMap<String, String> = request
        .parameters
        .into_iter()
        .filter(|(key, _)| !of_place.contains(&key.to_ascii_lowercase().as_str()))
        .collect();
    read.volume.source = if read.is_shared_path { shared.to_string() } else { own.to_string() };
    context.insert("source".to_owned(), read.volume.source.clone());
    Ok(NewVolume { name, capacity, read, id, context })
}

/// The service of the controller.
pub struct ControllerService(Arc<Controller>);

impl ControllerService {
    pub fn new(controller: Controller) -> ControllerService {
        ControllerService(Arc::new(controller))
    }

    /// Does what blocks on a thread for it.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Controller) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Status> {
        let controller = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&controller)).await;
        done.map_err(|_| Status::internal("a defect: the call panicked"))?.map_err(Status::from)
    }
}

#[tonic::async_trait]
impl ControllerRpc for ControllerService {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let new = new_volume(request.into_inner(), &self.0.options.cluster)?;
        let (volume_id, volume_context) = (new.id.to_text(), new.context.clone());
        self.blocking(move |controller| controller.create(&new)).await?;
        // A bucket has no size: 0 says so.
        let volume = Volume {
            capacity_bytes: 0,
            volume_id,
            volume_context,
            content_source: None,
            accessible_topology: Vec::new(),
        };
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let DeleteVolumeRequest { volume_id, secrets } = request.into_inner();
        if volume_id.is_empty() {
            return Err(Status::invalid_argument("volume_id is missing"));
        }
        self.blocking(move |controller| controller.delete(&volume_id, &secrets)).await?;
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("volume_id is missing"));
        }
        check_modes(&request.volume_capabilities)?;
        let (id, secrets) = (request.volume_id.clone(), request.secrets);
        if !self.blocking(move |controller| controller.exists(&id, &secrets)).await? {
            return Err(Status::not_found(format!("{}: there is no such volume", request.volume_id)));
        }
        let confirmed = Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
        };
        Ok(Response::new(ValidateVolumeCapabilitiesResponse {
            confirmed: Some(confirmed),
            message: String::new(),
        }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let can = [rpc::Type::CreateDeleteVolume, rpc::Type::SingleNodeMultiWriter];
        let one = |kind: rpc::Type| ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind as i32 })),
        };
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities: can.map(one).to_vec() }))
    }
}
