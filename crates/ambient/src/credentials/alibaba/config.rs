//! `~/.aliyun/config.json`, the profiles of Alibaba Cloud's CLI.

use flatout_engine::credentials::Grant;
use serde_json::Value;

use super::super::{ProviderError, ProviderResult, failed, in_earnest, nothing, process};
use super::sts::AlibabaRole;
use super::{AlibabaChain, own_keys};
use crate::files::{at_home, read_text};

/// The CLI's profiles while one of them is resolved.
struct AlibabaProfiles<'a> {
    chain: &'a AlibabaChain<'a>,
    list: Vec<Value>,
    /// The way from the profile that was asked for, through `source_profile`.
    way: Vec<String>,
}

/// What the file says: the profiles, and the one that is current.
struct Configured {
    place: String,
    list: Vec<Value>,
    current: Option<String>,
}

impl AlibabaChain<'_> {
    /// Whether the CLI has a profile of that name; a file that cannot be read may have it, and says why when
    /// it is asked.
    pub(super) fn has_profile(&self, name: &str) -> bool {
        self.configured().map_or(true, |found| found.is_some_and(|found| named(&found.list, name).is_some()))
    }

    /// The keys of a profile: the one that is named, that of the environment, the current one.
    pub(super) fn profile(&self, wanted: Option<&str>) -> ProviderResult {
        if self.is_on("ALIBABA_CLOUD_CLI_PROFILE_DISABLED")? {
            return nothing("ALIBABA_CLOUD_CLI_PROFILE_DISABLED is set");
        }
        let of_environment = self.variable("ALIBABA_CLOUD_PROFILE")?;
        let wanted = wanted.map(str::to_owned).or(of_environment);
        let Some(found) = self.configured()? else {
            return match wanted {
                Some(name) => failed(format!("{name} is asked for, but ~/.aliyun/config.json is not there")),
                None => nothing("~/.aliyun/config.json is not there"),
            };
        };
        let name = wanted.clone().or(found.current).unwrap_or_else(|| "default".into());
        if named(&found.list, &name).is_none() {
            let why = format!("{name} is not in {}", found.place);
            return if wanted.is_some() { failed(why) } else { nothing(why) };
        }
        AlibabaProfiles { chain: self, list: found.list, way: Vec::new() }.keys(&name)
    }

    fn configured(&self) -> Result<Option<Configured>, ProviderError> {
        let path = self.variable("ALIBABA_CLOUD_CONFIG_FILE")?;
        let path = at_home(self.environment, path.as_deref().unwrap_or("~/.aliyun/config.json"));
        let Some(text) = read_text(&path)? else { return Ok(None) };
        let wrong = || format!("{}: this is not the JSON of aliyun's profiles", path.display());
        let file: Value = serde_json::from_str(&text).map_err(|_| wrong())?;
        let list = file.get("profiles").and_then(Value::as_array).ok_or_else(wrong)?.clone();
        let current = file.get("current").and_then(Value::as_str).filter(|name| !name.is_empty());
        Ok(Some(Configured { place: path.display().to_string(), list, current: current.map(str::to_owned) }))
    }
}

impl AlibabaProfiles<'_> {
    fn keys(&mut self, name: &str) -> ProviderResult {
        if self.way.iter().any(|before| before == name) {
            return failed(format!("source_profile goes in a circle: {} -> {name}", self.way.join(" -> ")));
        }
        self.way.push(name.to_owned());
        match named(&self.list, name).cloned() {
            Some(profile) => self.of_mode(name, &profile),
            None => failed(format!("source_profile names the profile {name}, which is not there")),
        }
    }

    fn of_mode(&mut self, name: &str, profile: &Value) -> ProviderResult {
        let lacking = |field: &str| ProviderError::Failed(format!("the profile {name} has no {field}"));
        let wanted = |field: &'static str| word(profile, field).ok_or_else(|| lacking(field));
        match word(profile, "mode").unwrap_or("AK") {
            "AK" if word(profile, "access_key_id").is_none() => {
                nothing(format!("the profile {name} has no keys"))
            }
            "AK" | "StsToken" => of_profile(name, profile),
            "RamRoleArn" => {
                let own = of_profile(name, profile)?;
                self.chain.assume(&role(profile, wanted("ram_role_arn")?), &own.credentials)
            }
            "ChainableRamRoleArn" => {
                let source = self.keys(wanted("source_profile")?).map_err(in_earnest)?;
                self.chain.assume(&role(profile, wanted("ram_role_arn")?), &source.credentials)
            }
            "EcsRamRole" => self.chain.instance(word(profile, "ram_role_name")).map_err(in_earnest),
            "RamRoleArnWithEcs" => {
                let own = self.chain.instance(word(profile, "ram_role_name")).map_err(in_earnest)?;
                self.chain.assume(&role(profile, wanted("ram_role_arn")?), &own.credentials)
            }
            "OIDC" => self.chain.assume_with_oidc(
                &role(profile, wanted("ram_role_arn")?),
                wanted("oidc_provider_arn")?,
                wanted("oidc_token_file")?,
            ),
            "CredentialsURI" => self.chain.ask_uri(wanted("credentials_uri")?),
            "External" => self.process(wanted("process_command")?),
            other => failed(format!(
                "the profile {name} is of mode {other}, which is not known here: make one of mode AK, StsToken, \
                 RamRoleArn, ChainableRamRoleArn, EcsRamRole, OIDC, CredentialsURI or External"
            )),
        }
    }

    /// The command prints a profile of its own.
    fn process(&self, line: &str) -> ProviderResult {
        let said = process::run(line, self.chain.environment)
            .map_err(|why| ProviderError::Failed(format!("process_command: {why}")))?;
        printed(&said)
    }
}

/// What a `process_command` prints.
pub(crate) fn printed(bytes: &[u8]) -> ProviderResult {
    let answer: Value = serde_json::from_slice(bytes)
        .map_err(|_| ProviderError::Failed("process_command: it did not print JSON".into()))?;
    own_keys(&answer).map_err(|lack| match in_earnest(lack) {
        ProviderError::Failed(why) | ProviderError::Nothing(why) => {
            ProviderError::Failed(format!("process_command: {why}"))
        }
    })
}

fn of_profile(name: &str, profile: &Value) -> ProviderResult {
    // The CLI keeps an Expiration of other modes in the same object; keys that are written down do not end.
    let keys = own_keys(profile).map_err(|lack| match lack {
        ProviderError::Failed(why) | ProviderError::Nothing(why) => {
            ProviderError::Failed(format!("the profile {name}: {why}"))
        }
    })?;
    Ok(Grant { expires: None, ..keys })
}

fn role<'a>(profile: &'a Value, arn: &'a str) -> AlibabaRole<'a> {
    AlibabaRole {
        arn,
        session: word(profile, "ram_session_name"),
        external_id: word(profile, "external_id"),
        policy: word(profile, "policy"),
        seconds: profile.get("expired_seconds").and_then(Value::as_u64).filter(|seconds| *seconds > 0),
        region: word(profile, "sts_region"),
    }
}

fn named<'a>(list: &'a [Value], name: &str) -> Option<&'a Value> {
    list.iter().find(|profile| word(profile, "name") == Some(name))
}

fn word<'a>(profile: &'a Value, field: &str) -> Option<&'a str> {
    profile.get(field).and_then(Value::as_str).filter(|word| !word.is_empty())
}
