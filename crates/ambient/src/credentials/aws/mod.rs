//! The providers of AWS: environment, web identity, profile, container, instance metadata.

mod metadata;
mod profile;
mod sso;
mod sts;

pub(crate) use profile::printed;

use std::fmt;

use flatout_engine::credentials::{Grant, Provider, Refused, Web};
use flatout_wire::sign::Credentials;

use super::answer::fit;
use super::{ProviderError, ProviderResult, first, lasting, link, nothing};
use crate::aws_profile::{self, AwsFiles, ChosenProfile};
use crate::{Environment, keys, text};

/// The chain of AWS's own tools. Files are read again each time, so that what rotates in them is found.
pub(crate) struct AwsKeys {
    environment: Environment,
    profile: Option<ChosenProfile>,
}

impl AwsKeys {
    /// `profile` is the one that Flatout was told; it counts where AWS's files have one of that name.
    pub(crate) fn new(environment: &Environment, profile: Option<&str>) -> AwsKeys {
        let profile = profile.map(|name| ChosenProfile { name: name.into(), named: true });
        AwsKeys { environment: environment.clone(), profile }
    }
}

/// The environment is full of secrets.
impl fmt::Debug for AwsKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AwsKeys({:?})", self.profile)
    }
}

impl Provider for AwsKeys {
    fn provide(&self, web: &Web) -> Result<Grant, Refused> {
        let chain = AwsChain { environment: &self.environment, web };
        // A profile that was asked for by a flag comes in place of the environment, as in AWS's tools.
        let named = self.profile.as_ref().filter(|chosen| chain.has_profile(&chosen.name));
        let mut links = match named {
            Some(chosen) => vec![link(format!("profile {}", chosen.name), || chain.profile(chosen))],
            None => vec![
                link("environment", || chain.environment()),
                link("web identity", || chain.web_identity()),
                link(chain.profile_title(), || chain.chosen_profile()),
            ],
        };
        links.push(link("container", || chain.container()));
        links.push(link("instance metadata", || chain.instance()));
        first(links)
    }
}

/// One question: what it is answered from.
struct AwsChain<'a> {
    environment: &'a Environment,
    web: &'a Web,
}

impl AwsChain<'_> {
    /// A variable, or `None`; one that is no text counts as wrong.
    fn variable(&self, name: &str) -> Result<Option<String>, ProviderError> {
        Ok(text(self.environment, name)?)
    }

    fn is_on(&self, name: &str) -> Result<bool, ProviderError> {
        Ok(self.variable(name)?.is_some_and(|value| value.eq_ignore_ascii_case("true")))
    }

    fn environment(&self) -> ProviderResult {
        let found = keys::find(self.environment)?;
        match found {
            Some(credentials) => lasting(credentials),
            None => nothing("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"),
        }
    }

    fn web_identity(&self) -> ProviderResult {
        const FILE: &str = "AWS_WEB_IDENTITY_TOKEN_FILE";
        let Some(file) = self.variable(FILE)? else { return nothing(format!("{FILE} is not set")) };
        let role = self.variable("AWS_ROLE_ARN")?;
        let role =
            role.ok_or_else(|| ProviderError::Failed(format!("{FILE} is set but AWS_ROLE_ARN is not")))?;
        let session = self.variable("AWS_ROLE_SESSION_NAME")?;
        let role = sts::AwsRole { arn: &role, session: session.as_deref(), ..sts::AwsRole::default() };
        self.assume_with_web_identity(&self.sts(None)?, &role, &file)
    }

    /// Whether that profile is the one to ask. Files that cannot be read may have it: asked, they say why,
    /// where the environment's keys would be others than those that were meant.
    fn has_profile(&self, name: &str) -> bool {
        AwsFiles::read(self.environment).map_or(true, |files| files.asked_for(Some(name)).is_some())
    }

    /// Where a call goes by the variables, unless AWS's own switch has them ignored.
    fn endpoint_of(&self, variables: &[&str]) -> Result<Option<String>, ProviderError> {
        if aws_profile::ignores_endpoints(self.environment)? {
            return Ok(None);
        }
        let mut set = variables.iter().map(|name| self.variable(name)).filter_map(Result::transpose);
        set.next().transpose()
    }

    /// The files of AWS's tools, where nothing is wrong with them.
    fn files(&self) -> Result<AwsFiles, ProviderError> {
        Ok(AwsFiles::read(self.environment)?.whole()?)
    }

    fn profile_title(&self) -> String {
        let chosen = aws_profile::chosen(self.environment);
        format!("profile {}", chosen.map_or("default".into(), |chosen| chosen.name))
    }

    fn chosen_profile(&self) -> ProviderResult {
        self.profile(&aws_profile::chosen(self.environment)?)
    }
}

/// Keys out of a file; the pair must be whole.
fn pair(
    access: Option<&str>,
    secret: Option<&str>,
    token: Option<&str>,
) -> Result<Option<Credentials>, ProviderError> {
    let given = |value: Option<&str>| value.map(str::to_owned);
    let half = |present: &str, missing: &str| {
        Err(ProviderError::Failed(format!("it has {present} but no {missing}")))
    };
    let (access_key, secret_key) = match (given(access), given(secret)) {
        (Some(access), Some(secret)) => (access, secret),
        (None, None) => return Ok(None),
        (Some(_), None) => return half("aws_access_key_id", "aws_secret_access_key"),
        (None, Some(_)) => return half("aws_secret_access_key", "aws_access_key_id"),
    };
    let credentials = Credentials { access_key, secret_key, session_token: given(token) };
    fit(&credentials).map_err(|why| ProviderError::Failed(format!("in it {why}")))?;
    Ok(Some(credentials))
}
