//! Keys that the place gives: the endpoint of a container (ECS, EKS pod identity), and the metadata of an
//! instance.

use std::net::IpAddr;

use flatout_engine::Patience;
use flatout_wire::endpoint::Scheme;
use flatout_wire::request::Method;

use super::super::answer::json_grant;
use super::super::{ProviderError, ProviderResult, failed, flaw, is_role, nothing, request, split};
use super::AwsChain;
use crate::files::{at_home, read_text};

const RELATIVE: &str = "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI";
const FULL: &str = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
const ECS: &str = "http://169.254.170.2";
/// The agents of ECS and EKS; a token for them must not be sent elsewhere in the clear.
const AGENTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];
const IMDS: &str = "http://169.254.169.254";
const IMDS_V6: &str = "http://[fd00:ec2::254]";
const ROLES: &str = "/latest/meta-data/iam/security-credentials/";
/// The longest that a session of IMDSv2 may last is six hours; one question needs seconds.
const SESSION_S: &str = "300";

impl AwsChain<'_> {
    /// The keys of the task or the pod.
    pub(super) fn container(&self) -> ProviderResult {
        let (relative, full) = (self.variable(RELATIVE)?, self.variable(FULL)?);
        let (url, below) = match (relative.as_deref(), full.as_deref()) {
            (Some(relative), _) => (ECS, relative),
            (None, Some(full)) => split(FULL, full)?,
            (None, None) => return nothing(format!("neither {RELATIVE} nor {FULL} is set")),
        };
        let mut request = request(Method::Get, url, below)?;
        let endpoint = &request.endpoint;
        let local = endpoint.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if endpoint.scheme == Scheme::Http
            && !(local || endpoint.host == "localhost" || AGENTS.contains(&endpoint.host.as_str()))
        {
            return failed(format!(
                "{FULL} leads to {endpoint}, and keys travel in the clear only to the agents"
            ));
        }
        if let Some(token) = self.container_token()? {
            request.set("authorization", token);
        }
        let reply = self.web.ask(request, "", Patience::SERVICE);
        let reply = reply.map_err(|error| ProviderError::Failed(error.to_string()))?;
        Ok(json_grant("the container's agent", &reply, &[])?)
    }

    /// The file is rotated by the kubelet: it is read each time, and comes before the variable.
    fn container_token(&self) -> Result<Option<String>, ProviderError> {
        const FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
        let token = match self.variable(FILE)? {
            None => self.variable("AWS_CONTAINER_AUTHORIZATION_TOKEN")?,
            Some(file) => {
                let path = at_home(self.environment, &file);
                let token = read_text(&path)?;
                Some(token.ok_or_else(|| format!("{}: there is no such file", path.display()))?)
            }
        };
        let token = token.map(|token| token.trim().to_owned());
        let unfit = |token: &str| token.contains(|c: char| c.is_control() || !c.is_ascii());
        match token.as_deref().is_some_and(unfit) {
            true => Err(ProviderError::Failed("the authorization token holds what no header can".into())),
            false => Ok(token),
        }
    }

    /// The keys of the instance's role, by IMDSv2.
    pub(super) fn instance(&self) -> ProviderResult {
        if self.is_on("AWS_EC2_METADATA_DISABLED")? {
            return nothing("AWS_EC2_METADATA_DISABLED is set");
        }
        let v6 = self.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE")?;
        let v6 = v6.is_some_and(|mode| mode.eq_ignore_ascii_case("ipv6"));
        let url = self.variable("AWS_EC2_METADATA_SERVICE_ENDPOINT")?;
        let url = url.unwrap_or_else(|| if v6 { IMDS_V6 } else { IMDS }.into());

        let mut session = request(Method::Put, &url, "/latest/api/token")?;
        session.set("x-aws-ec2-metadata-token-ttl-seconds", SESSION_S);
        let session = match self.web.ask(session, "", Patience::METADATA) {
            Err(silent) => return nothing(silent.to_string()),
            Ok(reply) if reply.status != 200 => {
                return nothing(format!("it gives no session ({}): is this an EC2 instance?", reply.status));
            }
            Ok(reply) => String::from_utf8_lossy(&reply.body).trim().to_owned(),
        };
        if session.is_empty() || flaw(&session).is_some() {
            return nothing("what it gives is no session: is this an EC2 instance?");
        }
        let ask = |below: &str| {
            let mut request = request(Method::Get, &url, below)?;
            request.set("x-aws-ec2-metadata-token", session.as_str());
            let reply = self.web.ask(request, "", Patience::METADATA);
            reply.map_err(|error| ProviderError::Failed(error.to_string()))
        };
        let roles = ask(ROLES)?;
        if roles.status != 200 {
            return nothing(format!("the instance has no role ({})", roles.status));
        }
        let roles = String::from_utf8_lossy(&roles.body).into_owned();
        let Some(role) = roles.lines().map(str::trim).find(|line| !line.is_empty()) else {
            return nothing("the instance has no role");
        };
        if !is_role(role) {
            return nothing("the instance metadata names a role that is no name: is this an EC2 instance?");
        }
        Ok(json_grant("the instance metadata", &ask(&format!("{ROLES}{role}"))?, &[])?)
    }
}
