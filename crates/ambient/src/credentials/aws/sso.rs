//! IAM Identity Center (SSO): the token that `aws sso login` left behind, turned into keys of a role.

use flatout_engine::Patience;
use flatout_wire::percent;
use flatout_wire::request::Method;
use serde_json::Value;
use sha1::{Digest, Sha1};

use super::super::answer::{json_grant, time};
use super::super::{ProviderError, ProviderResult, failed, flaw, request, unix_seconds};
use super::AwsChain;
use super::sts::amazon;
use crate::aws_profile::{AwsFiles, ProfileSettings};
use crate::files::{at_home, read_text};

impl AwsChain<'_> {
    /// The keys of a profile with `sso_session`, or with `sso_start_url` as before 2022.
    pub(super) fn sso(&self, files: &AwsFiles, name: &str, profile: &ProfileSettings) -> ProviderResult {
        let session = match profile.get("sso_session") {
            None => None,
            Some(session) => Some((
                session,
                files.sso_session(session).ok_or_else(|| {
                    ProviderError::Failed(format!("it names [sso-session {session}], which is not there"))
                })?,
            )),
        };
        let setting = |key: &str| {
            let found = session.and_then(|(_, session)| session.get(key)).or_else(|| profile.get(key));
            found
                .map(str::to_owned)
                .ok_or_else(|| ProviderError::Failed(format!("it has no {key}, which SSO needs")))
        };
        let cached_as = match session {
            Some((session, _)) => session.to_owned(),
            None => setting("sso_start_url")?,
        };
        let (region, account, role) =
            (setting("sso_region")?, setting("sso_account_id")?, setting("sso_role_name")?);
        let token = self.cached_token(&cached_as, name)?;

        let given = self.endpoint_of(&["AWS_ENDPOINT_URL_SSO", "AWS_ENDPOINT_URL"])?;
        let listed = files.endpoint_url(name, "sso").map(|(_, setting)| setting.value.clone());
        let url = given.or(listed).unwrap_or_else(|| amazon("portal.sso", &region));
        let mut below = "/federation/credentials?account_id=".to_owned();
        percent::encode_query(&account, &mut below);
        below.push_str("&role_name=");
        percent::encode_query(&role, &mut below);
        let mut request = request(Method::Get, &url, &below)?;
        request.set("x-amz-sso_bearer_token", token);
        let reply = self.web.ask(request, "", Patience::SERVICE);
        let reply = reply.map_err(|error| ProviderError::Failed(format!("SSO: {error}")))?;
        if reply.status == 401 {
            return failed(log_in("SSO does not accept the login any more", name));
        }
        Ok(json_grant("SSO", &reply, &["roleCredentials"])?)
    }

    /// The token of the login, where it still works.
    fn cached_token(&self, cached_as: &str, profile: &str) -> Result<String, ProviderError> {
        let hash: String = Sha1::digest(cached_as).iter().map(|byte| format!("{byte:02x}")).collect();
        let path = at_home(self.environment, &format!("~/.aws/sso/cache/{hash}.json"));
        let Some(text) = read_text(&path)? else {
            return Err(ProviderError::Failed(log_in("there is no SSO login", profile)));
        };
        let wrong =
            || ProviderError::Failed(log_in(&format!("{} holds no SSO login", path.display()), profile));
        let cached: Value = serde_json::from_str(&text).map_err(|_| wrong())?;
        let word = |name: &str| cached.get(name).and_then(Value::as_str);
        let (Some(token), Some(ends)) = (word("accessToken"), word("expiresAt").and_then(time)) else {
            return Err(wrong());
        };
        if flaw(token).is_some() {
            return Err(wrong());
        }
        match ends <= unix_seconds() {
            true => Err(ProviderError::Failed(log_in("the SSO login has expired", profile))),
            false => Ok(token.to_owned()),
        }
    }
}

fn log_in(why: &str, profile: &str) -> String {
    format!("{why}: run `aws sso login --profile {profile}`")
}
