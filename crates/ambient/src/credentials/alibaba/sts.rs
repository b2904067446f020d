//! Alibaba Cloud's Security Token Service: roles, assumed with keys or with the token of an OIDC provider
//! (RRSA).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use flatout_engine::Patience;
use flatout_wire::request::{Method, Request};
use flatout_wire::sign::Credentials;
use flatout_wire::time::format_iso_seconds;
use flatout_wire::{acs_sign, percent};

use super::super::answer::json_grant;
use super::super::{ProviderError, ProviderResult, failed, nothing, request, unix_seconds};
use super::AlibabaChain;
use crate::files::{at_home, read_text};

const VERSION: &str = "2015-04-01";
const ROLE: &str = "ALIBABA_CLOUD_ROLE_ARN";
const OIDC_PROVIDER: &str = "ALIBABA_CLOUD_OIDC_PROVIDER_ARN";
const OIDC_FILE: &str = "ALIBABA_CLOUD_OIDC_TOKEN_FILE";

/// The role that is asked for.
#[derive(Default)]
pub(super) struct AlibabaRole<'a> {
    pub(super) arn: &'a str,
    pub(super) session: Option<&'a str>,
    pub(super) external_id: Option<&'a str>,
    pub(super) policy: Option<&'a str>,
    pub(super) seconds: Option<u64>,
    /// The region of the service, where it is not the central one.
    pub(super) region: Option<&'a str>,
}

impl AlibabaChain<'_> {
    /// RRSA: the webhook of ACK sets these three variables in a pod.
    pub(super) fn rrsa(&self) -> ProviderResult {
        let found = (self.variable(ROLE)?, self.variable(OIDC_PROVIDER)?, self.variable(OIDC_FILE)?);
        match found {
            (Some(arn), Some(provider), Some(file)) => {
                let session = self.variable("ALIBABA_CLOUD_ROLE_SESSION_NAME")?;
                let role = AlibabaRole { arn: &arn, session: session.as_deref(), ..AlibabaRole::default() };
                self.assume_with_oidc(&role, &provider, &file)
            }
            (_, None, None) => nothing(format!("{OIDC_PROVIDER} and {OIDC_FILE} are not set")),
            _ => failed(format!(
                "{ROLE}, {OIDC_PROVIDER} and {OIDC_FILE} are wanted together, and one is not set"
            )),
        }
    }

    /// A role for whoever has the token in `file`, which somebody rotates: it is read each time.
    pub(super) fn assume_with_oidc(
        &self,
        role: &AlibabaRole<'_>,
        provider: &str,
        file: &str,
    ) -> ProviderResult {
        let path = at_home(self.environment, file);
        let token = match read_text(&path)? {
            Some(token) => token.trim().to_owned(),
            None => return failed(format!("{}: there is no such file", path.display())),
        };
        let body = form(role, &[("OIDCProviderArn", provider), ("OIDCToken", &token)]);
        // Not signed, so the action stands in the query as in every call of the older form.
        let query = format!(
            "/?Action=AssumeRoleWithOIDC&Format=JSON&Timestamp={}&Version={VERSION}",
            format_iso_seconds(unix_seconds()).replace(':', "%3A")
        );
        let request = self.to_sts(role, &query)?;
        self.ask_sts(request, body)
    }

    /// A role for whoever has these keys.
    pub(super) fn assume(&self, role: &AlibabaRole<'_>, with: &Credentials) -> ProviderResult {
        let body = form(role, &[]);
        let mut request = self.to_sts(role, "/")?;
        request.set("x-acs-action", "AssumeRole");
        request.set("x-acs-version", VERSION);
        acs_sign::sign(&mut request, body.as_bytes(), with, &nonce(), unix_seconds());
        self.ask_sts(request, body)
    }

    fn to_sts(&self, role: &AlibabaRole<'_>, below: &str) -> Result<Request, ProviderError> {
        let url = match self.variable("ALIBABA_CLOUD_STS_ENDPOINT")? {
            Some(given) if given.contains("://") => given.trim_end_matches('/').to_owned(),
            Some(given) => format!("https://{given}"),
            None => {
                let region = self.variable("ALIBABA_CLOUD_STS_REGION")?;
                let vpc = if self.is_on("ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED")? { "-vpc" } else { "" };
                match region.as_deref().or(role.region) {
                    Some(region) => format!("https://sts{vpc}.{region}.aliyuncs.com"),
                    None => "https://sts.aliyuncs.com".into(),
                }
            }
        };
        let mut request = request(Method::Post, &url, below)?;
        request.set("accept", "application/json");
        request.set("content-type", "application/x-www-form-urlencoded");
        Ok(request)
    }

    fn ask_sts(&self, request: Request, body: String) -> ProviderResult {
        let reply = self.web.ask(request, body, Patience::SERVICE);
        let reply = reply.map_err(|error| ProviderError::Failed(format!("STS: {error}")))?;
        Ok(json_grant("STS", &reply, &["Credentials"])?)
    }
}

fn form(role: &AlibabaRole<'_>, more: &[(&str, &str)]) -> String {
    let session = match role.session {
        Some(session) => session.to_owned(),
        None => format!("flatout-{}", unix_seconds()),
    };
    let seconds = role.seconds.map(|seconds| seconds.to_string());
    let own = [
        ("RoleArn", Some(role.arn)),
        ("RoleSessionName", Some(session.as_str())),
        ("DurationSeconds", seconds.as_deref()),
        ("ExternalId", role.external_id),
        ("Policy", role.policy),
    ];
    let own = own.iter().filter_map(|(name, value)| Some((*name, (*value)?)));
    let mut body = String::new();
    for (name, value) in own.chain(more.iter().copied()) {
        if !body.is_empty() {
            body.push('&');
        }
        body.push_str(name);
        body.push('=');
        percent::encode_query(value, &mut body);
    }
    body
}

/// Never the same twice: this process, this moment, this call.
fn nonce() -> String {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("{:x}-{now:x}-{:x}", std::process::id(), CALLS.fetch_add(1, Ordering::Relaxed))
}
