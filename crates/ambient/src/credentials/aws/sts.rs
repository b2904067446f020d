//! AWS's Security Token Service: roles, assumed with keys or with the token of an identity provider.

use flatout_engine::Patience;
use flatout_wire::percent;
use flatout_wire::request::{Method, Request};
use flatout_wire::sign::{Credentials, Signer};

use super::super::answer::sts_grant;
use super::super::{ProviderError, ProviderResult, failed, request, unix_seconds};
use super::AwsChain;
use crate::aws_profile::AwsFiles;
use crate::files::{at_home, read_text};

/// Where the service is, and the region that its requests are signed for.
pub(super) struct Sts {
    url: String,
    region: String,
}

/// The role that is asked for.
#[derive(Default)]
pub(super) struct AwsRole<'a> {
    pub(super) arn: &'a str,
    pub(super) session: Option<&'a str>,
    pub(super) external_id: Option<&'a str>,
    pub(super) seconds: Option<&'a str>,
}

impl AwsChain<'_> {
    /// The service of the region of the environment or of a profile: by name where one is given, else
    /// Amazon's.
    pub(super) fn sts(&self, profile: Option<(&AwsFiles, &str)>) -> Result<Sts, ProviderError> {
        let region = match self.variable("AWS_REGION")? {
            Some(region) => Some(region),
            None => self.variable("AWS_DEFAULT_REGION")?,
        };
        let of_profile =
            profile.and_then(|(files, name)| files.profile(name)?.get("region").map(str::to_owned));
        let region = region.or(of_profile);
        let listed = profile.and_then(|(files, name)| files.endpoint_url(name, "sts"));
        let listed = listed.map(|(_, setting)| setting.value.clone());
        let given = self.endpoint_of(&["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"])?;
        let url = given.or(listed).unwrap_or_else(|| match &region {
            Some(region) => amazon("sts", region),
            None => "https://sts.amazonaws.com".into(),
        });
        Ok(Sts { url, region: region.unwrap_or_else(|| "us-east-1".into()) })
    }

    /// A role for whoever has these keys.
    pub(super) fn assume(&self, sts: &Sts, role: &AwsRole<'_>, with: &Credentials) -> ProviderResult {
        let body = form("AssumeRole", role, &[("ExternalId", role.external_id)]);
        let mut request = sts.request()?;
        let signer = Signer::for_service(with.clone(), &sts.region, "sts");
        signer.sign_body(&mut request, body.as_bytes(), unix_seconds());
        self.ask_sts(request, body)
    }

    /// A role for whoever has the token in `file`, which somebody rotates: it is read each time.
    pub(super) fn assume_with_web_identity(
        &self,
        sts: &Sts,
        role: &AwsRole<'_>,
        file: &str,
    ) -> ProviderResult {
        let path = at_home(self.environment, file);
        let token = match read_text(&path)? {
            Some(token) => token.trim().to_owned(),
            None => return failed(format!("{}: there is no such file", path.display())),
        };
        let body = form("AssumeRoleWithWebIdentity", role, &[("WebIdentityToken", Some(&token))]);
        self.ask_sts(sts.request()?, body)
    }

    fn ask_sts(&self, request: Request, body: String) -> ProviderResult {
        let reply = self.web.ask(request, body, Patience::SERVICE);
        let reply = reply.map_err(|error| ProviderError::Failed(format!("STS: {error}")))?;
        Ok(sts_grant(&reply)?)
    }
}

impl Sts {
    fn request(&self) -> Result<Request, ProviderError> {
        let mut request = request(Method::Post, self.url.trim_end_matches('/'), "/")?;
        request.set("content-type", "application/x-www-form-urlencoded");
        Ok(request)
    }
}

/// Amazon's endpoint of a service in a region.
pub(super) fn amazon(service: &str, region: &str) -> String {
    let china = if region.starts_with("cn-") { ".cn" } else { "" };
    format!("https://{service}.{region}.amazonaws.com{china}")
}

/// A call as the Query API takes it (docs.aws.amazon.com, STS API reference).
fn form(action: &str, role: &AwsRole<'_>, more: &[(&str, Option<&str>)]) -> String {
    let session = match role.session {
        Some(session) => session.to_owned(),
        None => format!("flatout-{}", unix_seconds()),
    };
    let mut body = format!("Action={action}&Version=2011-06-15");
    let own = [
        ("RoleArn", Some(role.arn)),
        ("RoleSessionName", Some(session.as_str())),
        ("DurationSeconds", role.seconds),
    ];
    for (name, value) in own.iter().chain(more) {
        if let Some(value) = value {
            body.push_str(&format!("&{name}="));
            percent::encode_query(value, &mut body);
        }
    }
    body
}
