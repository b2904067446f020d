//! Keys of a profile: static, of a role that is assumed from other keys, of SSO, of a process.

use flatout_wire::sign::Credentials;

use super::super::answer::grant;
use super::super::{ProviderError, ProviderResult, failed, in_earnest, lasting, nothing, process};
use super::sts::AwsRole;
use super::{AwsChain, pair};
use crate::aws_profile::{AwsFiles, ChosenProfile, ProfileSettings};

/// The profiles of AWS's files while one of them is resolved.
struct AwsProfiles<'a> {
    chain: &'a AwsChain<'a>,
    files: AwsFiles,
    /// The way from the profile that was asked for, through `source_profile`.
    way: Vec<String>,
}

impl AwsChain<'_> {
    /// The keys of a profile.
    pub(super) fn profile(&self, chosen: &ChosenProfile) -> ProviderResult {
        let files = self.files()?;
        let name = &chosen.name;
        if files.profile(name).is_none() {
            let nearest = flatout_settings::nearest(name, files.names());
            let meant = nearest.map(|name| format!("; did you mean '{name}'?")).unwrap_or_default();
            let places = match files.places() {
                none if none.is_empty() => "HOME is not set".into(),
                places => format!("it is not in {places}"),
            };
            return match chosen.named {
                true => failed(format!("there is no such profile: {places}{meant}")),
                false => nothing(places),
            };
        }
        AwsProfiles { chain: self, files, way: Vec::new() }.keys(name)
    }
}

impl AwsProfiles<'_> {
    fn keys(&mut self, name: &str) -> ProviderResult {
        if self.way.iter().any(|before| before == name) {
            return failed(format!("source_profile goes in a circle: {} -> {name}", self.way.join(" -> ")));
        }
        self.way.push(name.to_owned());
        let profile = self.files.profile(name).cloned();
        let Some(profile) = profile else {
            return failed(format!("source_profile names the profile {name}, which is not there"));
        };
        // Of a profile that another one names as its source, keys that are written down come before its own
        // role.
        if self.way.len() > 1
            && let Some(own) = own_keys(&profile)?
        {
            return lasting(own);
        }
        if profile.get("role_arn").is_some() {
            return self.role(name, &profile);
        }
        if profile.get("sso_session").or(profile.get("sso_start_url")).is_some() {
            return self.chain.sso(&self.files, name, &profile);
        }
        if let Some(credentials) = own_keys(&profile)? {
            return lasting(credentials);
        }
        match profile.get("credential_process") {
            Some(line) => self.process(line),
            None if self.way.len() > 1 => {
                failed(format!("the profile {name} has no keys to assume the role with"))
            }
            None => nothing("it has no keys"),
        }
    }

    fn role(&mut self, name: &str, profile: &ProfileSettings) -> ProviderResult {
        let setting = |key: &str| profile.get(key);
        let role = AwsRole {
            arn: setting("role_arn").unwrap_or(""),
            session: setting("role_session_name"),
            external_id: setting("external_id"),
            seconds: setting("duration_seconds"),
        };
        let sts = self.chain.sts(Some((&self.files, name)))?;
        if let Some(file) = setting("web_identity_token_file") {
            return self.chain.assume_with_web_identity(&sts, &role, file);
        }
        if setting("mfa_serial").is_some() {
            return failed(format!(
                "its role asks for an MFA code (mfa_serial), and nobody is here to type it: \
                 run `aws configure export-credentials --profile {name} --format env` and set what it prints"
            ));
        }
        let source = match (setting("source_profile"), setting("credential_source")) {
            (Some(_), Some(_)) => {
                return failed("it has source_profile and credential_source: one is enough");
            }
            // A profile may be its own source: its keys, and the role on top.
            (Some(source), None) if source == name => match own_keys(profile)? {
                Some(credentials) => credentials,
                None => return failed("it is its own source_profile, but has no keys"),
            },
            (Some(source), None) => self.keys(source).map_err(in_earnest)?.credentials,
            (None, Some(source)) => self.source(source)?,
            (None, None) => {
                return failed(
                    "it has role_arn, but no source_profile, credential_source or web_identity_token_file",
                );
            }
        };
        self.chain.assume(&sts, &role, &source)
    }

    fn source(&self, named: &str) -> Result<Credentials, ProviderError> {
        let answer = match named {
            "Environment" => self.chain.environment(),
            "Ec2InstanceMetadata" => self.chain.instance(),
            "EcsContainer" => self.chain.container(),
            _ => failed("write Environment, Ec2InstanceMetadata or EcsContainer"),
        };
        let found = answer.map_err(in_earnest);
        found.map(|grant| grant.credentials).map_err(|lack| match lack {
            ProviderError::Failed(why) | ProviderError::Nothing(why) => {
                ProviderError::Failed(format!("credential_source {named}: {why}"))
            }
        })
    }

    fn process(&self, line: &str) -> ProviderResult {
        let said = process::run(line, self.chain.environment)
            .map_err(|why| ProviderError::Failed(format!("credential_process: {why}")))?;
        printed(&said)
    }
}

/// What a `credential_process` prints.
pub(crate) fn printed(bytes: &[u8]) -> ProviderResult {
    let wrong = |why: &str| ProviderError::Failed(format!("credential_process: {why}"));
    let answer: serde_json::Value =
        serde_json::from_slice(bytes).map_err(|_| wrong("it did not print JSON"))?;
    if answer.get("Version").and_then(serde_json::Value::as_u64) != Some(1) {
        return Err(wrong("it did not print Version 1"));
    }
    grant(&answer).map_err(|why| wrong(&why))
}

fn own_keys(profile: &ProfileSettings) -> Result<Option<Credentials>, ProviderError> {
    let setting = |key: &str| profile.get(key);
    pair(setting("aws_access_key_id"), setting("aws_secret_access_key"), setting("aws_session_token"))
}
