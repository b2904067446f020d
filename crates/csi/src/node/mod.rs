//! The part of the driver that runs on every node: it answers kubelet.

mod alone;
mod binds;
mod engine_pods;
mod engines;
mod health;
mod indexes;
mod kubernetes;
mod plugin;
mod records;
mod takeover;
mod targets;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatout_tree::STATFS;
use tonic::{Code, Request, Response, Status};

pub use self::kubernetes::Kubernetes;
use self::plugin::Publish;
pub use self::plugin::{NodeOptions, Plugin};
use crate::attributes::VolumeRequest;
use crate::link::Failure;
use crate::proto::node_server::Node;
use crate::proto::node_service_capability::{Rpc, Type, rpc};
use crate::proto::volume_capability::AccessType;
use crate::proto::volume_capability::access_mode::Mode;
use crate::proto::{
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodeGetStorageHealthRequest, NodeGetStorageHealthResponse, NodeGetVolumeHealthRequest,
    NodeGetVolumeHealthResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeServiceCapability, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse, StorageHealthErrorType, VolumeCapability, VolumeHealth,
    VolumeHealthErrorType, VolumeUsage, node_get_storage_health_response, volume_health, volume_usage,
};

/// Requests that wait longer than this are said to.
const SLOW_S: u64 = 30;

/// The service of the node.
pub struct NodeService(Arc<Plugin>);

impl NodeService {
    pub fn new(plugin: Arc<Plugin>) -> NodeService {
        NodeService(plugin)
    }

    /// Does what blocks on a thread for it.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Plugin>) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Status> {
        let plugin = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&plugin)).await;
        done.map_err(|_| Status::internal("a defect: the call panicked"))?.map_err(Status::from)
    }
}

fn missing(field: &str) -> Status {
    Status::new(Code::InvalidArgument, format!("{field} is missing"))
}

/// What of a capability is a file system, and by whom it may be used.
pub fn mode_of(capability: Option<&VolumeCapability>) -> Result<(Mode, &VolumeCapability), Status> {
    let capability = capability.ok_or_else(|| missing("volume_capability"))?;
    let mode = capability.access_mode.as_ref().map(|mode| mode.mode);
    let mode = mode.and_then(|mode| Mode::try_from(mode).ok()).unwrap_or(Mode::Unknown);
    match (&capability.access_type, mode) {
        (Some(AccessType::Block(_)), _) => {
            Err(Status::invalid_argument("a bucket is no block device: write volumeMode: Filesystem"))
        }
        (None, _) => Err(missing("volume_capability.access_type")),
        (_, Mode::Unknown) => Err(missing("volume_capability.access_mode")),
        (_, mode) => Ok((mode, capability)),
    }
}

/// An absolute path of a request.
fn path(field: &str, text: &str) -> Result<PathBuf, Status> {
    match text {
        "" => Err(missing(field)),
        text if text.starts_with('/') => Ok(Path::new(text).components().collect()),
        text => Err(Status::invalid_argument(format!("{field}: '{text}' does not begin at the root"))),
    }
}

fn publish_of(request: NodePublishVolumeRequest) -> Result<Publish, Status> {
    if request.volume_id.is_empty() {
        return Err(missing("volume_id"));
    }
    let target = path("target_path", &request.target_path)?;
    let (mode, capability) = mode_of(request.volume_capability.as_ref())?;
    let mount = match &capability.access_type {
        Some(AccessType::Mount(mount)) => mount.clone(),
        _ => Default::default(),
    };
    let readers_only = matches!(mode, Mode::MultiNodeReaderOnly | Mode::SingleNodeReaderOnly);
    Ok(Publish {
        volume_id: request.volume_id,
        target,
        read_only: request.readonly,
        is_single: mode == Mode::SingleNodeSingleWriter,
        request: VolumeRequest {
            attributes: request.volume_context,
            secrets: request.secrets,
            mount_options: mount.mount_flags,
            fs_type: mount.fs_type,
            group: mount.volume_mount_group,
            readers_only,
            is_read_only: request.readonly,
            of_account: Default::default(),
        },
    })
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let publish = publish_of(request.into_inner())?;
        self.blocking(move |plugin| plugin.publish(&publish)).await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let NodeUnpublishVolumeRequest { volume_id, target_path } = request.into_inner();
        if volume_id.is_empty() {
            return Err(missing("volume_id"));
        }
        let target = path("target_path", &target_path)?;
        self.blocking(move |plugin| plugin.unpublish(&volume_id, &target)).await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    /// A bucket has no size: what df says of the mount is said, and the mount, which may hang, is not asked.
    /// The engine of an index knows that of its files.
    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let NodeGetVolumeStatsRequest { volume_id, volume_path, .. } = request.into_inner();
        if volume_id.is_empty() {
            return Err(missing("volume_id"));
        }
        if volume_path.is_empty() {
            return Err(missing("volume_path"));
        }
        if !self.0.knows(&volume_id, Path::new(&volume_path)) {
            return Err(Status::not_found(format!("{volume_id} is not published at {volume_path}")));
        }
        let asked = volume_id.clone();
        let contents = self.blocking(move |plugin| Ok(plugin.contents(&asked))).await?;
        let whole = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        // What an index has does not grow.
        let (bytes, inodes) = match contents {
            Some(contents) => (whole(contents.bytes), whole(contents.files + contents.folders)),
            None => (whole(STATFS.blocks * u64::from(STATFS.block_bytes)), whole(STATFS.files)),
        };
        let free = |all: i64| if contents.is_some() { 0 } else { all };
        let usage = |unit: volume_usage::Unit, all: i64| VolumeUsage {
            available: free(all),
            total: all,
            used: all - free(all),
            unit: unit as i32,
        };
        let usage = vec![usage(volume_usage::Unit::Bytes, bytes), usage(volume_usage::Unit::Inodes, inodes)];
        Ok(Response::new(NodeGetVolumeStatsResponse { usage }))
    }

    async fn node_get_volume_health(
        &self,
        request: Request<NodeGetVolumeHealthRequest>,
    ) -> Result<Response<NodeGetVolumeHealthResponse>, Status> {
        let NodeGetVolumeHealthRequest { volume_id, .. } = request.into_inner();
        if volume_id.is_empty() {
            return Err(missing("volume_id"));
        }
        let asked = volume_id.clone();
        let seen = self.blocking(move |plugin| Ok(plugin.health(&asked))).await?;
        let seen = seen.ok_or_else(|| Status::not_found(format!("{volume_id} is not on this node")))?;
        let entry = |status: VolumeHealthErrorType, reason: &str, message: String| {
            volume_health::VolumeHealthEntry { status: status as i32, reason: reason.to_owned(), message }
        };
        let mut health_statuses = Vec::new();
        for one in seen {
            match one {
                Err(why) => {
                    health_statuses.push(entry(VolumeHealthErrorType::Inaccessible, "NotServed", why));
                }
                Ok(health) => {
                    if let Some(outage) = health.outage {
                        let status = VolumeHealthErrorType::Inaccessible;
                        health_statuses.push(entry(status, "OriginUnreachable", outage));
                    } else if health.waits_s >= SLOW_S {
                        let waits =
                            format!("{} requests wait, the oldest for {} s", health.waiting, health.waits_s);
                        health_statuses.push(entry(VolumeHealthErrorType::Degraded, "RequestsWait", waits));
                    }
                }
            }
        }
        // Several mounts of one volume may say the same.
        health_statuses.dedup_by(|one, other| one.reason == other.reason);
        let volume_health = Some(VolumeHealth { volume_id, health_statuses });
        Ok(Response::new(NodeGetVolumeHealthResponse { volume_health }))
    }

    async fn node_get_storage_health(
        &self,
        _: Request<NodeGetStorageHealthRequest>,
    ) -> Result<Response<NodeGetStorageHealthResponse>, Status> {
        use node_get_storage_health_response::StorageBackendHealth;
        let no_engine = || StorageBackendHealth {
            status: StorageHealthErrorType::StorageUnreachable as i32,
            reason: "NoEngine".to_owned(),
            message: "no engine is connected on this node: look at the pods of flatout-csi-engine".to_owned(),
            volume_capability: None,
        };
        let backend_health = if self.0.has_engine() { Vec::new() } else { vec![no_engine()] };
        Ok(Response::new(NodeGetStorageHealthResponse { backend_health }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        let can = [
            rpc::Type::GetVolumeStats,
            rpc::Type::SingleNodeMultiWriter,
            rpc::Type::VolumeMountGroup,
            rpc::Type::GetVolumeHealth,
            rpc::Type::GetStorageHealth,
        ];
        let one =
            |kind: rpc::Type| NodeServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: kind as i32 })) };
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: can.map(one).to_vec() }))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.0.options().node.clone(),
            max_volumes_per_node: i64::try_from(self.0.volumes_max()).unwrap_or(i64::MAX),
            accessible_topology: None,
        }))
    }
}
