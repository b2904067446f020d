//! The role of an ECS instance, from its metadata, with a session as AWS's IMDSv2 has.

use flatout_engine::Patience;
use flatout_wire::request::Method;

use super::super::answer::json_grant;
use super::super::{ProviderError, ProviderResult, failed, flaw, is_role, nothing, request};
use super::AlibabaChain;

const METADATA: &str = "http://100.100.100.200";
const ROLES: &str = "/latest/meta-data/ram/security-credentials/";
const SESSION_S: &str = "180";

impl AlibabaChain<'_> {
    /// The keys of `role`, or of the role that the instance has.
    pub(super) fn instance(&self, role: Option<&str>) -> ProviderResult {
        if self.is_on("ALIBABA_CLOUD_ECS_METADATA_DISABLED")? {
            return nothing("ALIBABA_CLOUD_ECS_METADATA_DISABLED is set");
        }
        let url = self.variable("ALIBABA_CLOUD_ECS_METADATA_SERVICE_ENDPOINT")?;
        let url = url.unwrap_or_else(|| METADATA.into());
        let mut session = request(Method::Put, &url, "/latest/api/token")?;
        session.set("x-aliyun-ecs-metadata-token-ttl-seconds", SESSION_S);
        let session = match self.web.ask(session, "", Patience::METADATA) {
            Err(silent) => return nothing(silent.to_string()),
            Ok(reply) if reply.status != 200 => {
                return nothing(format!("it gives no session ({}): is this an ECS instance?", reply.status));
            }
            Ok(reply) => String::from_utf8_lossy(&reply.body).trim().to_owned(),
        };
        if session.is_empty() || flaw(&session).is_some() {
            return nothing("what it gives is no session: is this an ECS instance?");
        }
        let ask = |below: &str| {
            let mut request = request(Method::Get, &url, below)?;
            request.set("x-aliyun-ecs-metadata-token", session.as_str());
            let reply = self.web.ask(request, "", Patience::METADATA);
            reply.map_err(|error| ProviderError::Failed(error.to_string()))
        };
        let asked_for = role.map(str::to_owned).or(self.variable("ALIBABA_CLOUD_ECS_METADATA")?);
        let is_named = asked_for.is_some();
        let role = match asked_for {
            Some(role) => role,
            None => {
                let roles = ask(ROLES)?;
                if roles.status != 200 {
                    return nothing(format!("the instance has no role ({})", roles.status));
                }
                String::from_utf8_lossy(&roles.body).trim().to_owned()
            }
        };
        if role.is_empty() {
            return nothing("the instance has no role");
        }
        if !is_role(&role) {
            let why = "the name of the instance's role is no name";
            return if is_named { failed(why) } else { nothing(why) };
        }
        Ok(json_grant("the ECS metadata", &ask(&format!("{ROLES}{role}"))?, &[])?)
    }
}
