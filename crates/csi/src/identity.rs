//! The service that every plugin has: its name, what it can do, and whether it is well.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use crate::proto::identity_server::Identity;
use crate::proto::plugin_capability::{Service, Type, service};
use crate::proto::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    PluginCapability, ProbeRequest, ProbeResponse,
};

/// Who answers, and whether it is well: an error says what is wrong.
pub struct IdentityService {
    pub driver: String,
    pub probe: Arc<dyn Fn() -> Result<bool, Status> + Send + Sync>,
}

#[tonic::async_trait]
impl Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.driver.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: Default::default(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let has_controller = Type::Service(Service { r#type: service::Type::ControllerService as i32 });
        Ok(Response::new(GetPluginCapabilitiesResponse {
            capabilities: vec![PluginCapability { r#type: Some(has_controller) }],
        }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        let ready = (self.probe)()?;
        Ok(Response::new(ProbeResponse { ready: Some(ready) }))
    }
}
