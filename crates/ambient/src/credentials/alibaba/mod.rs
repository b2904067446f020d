//! The providers of Alibaba Cloud: environment, files that rotate, RRSA, the CLI's profile, ossutil's file, a
//! URI, the role of an ECS instance.
//!
//! RRSA (OIDC) comes before the instance's role: on ACK every pod could have the node's role, and the one
//! that was given to the pod is the one that is meant.

mod config;
mod metadata;
mod sts;

pub(crate) use config::printed;

use std::fmt;

use flatout_engine::Patience;
use flatout_engine::credentials::{Grant, Provider, Refused, Web};
use flatout_wire::request::Method;
use flatout_wire::sign::Credentials;

use super::answer::{fit, grant, json_grant, time};
use super::{ProviderError, ProviderResult, failed, first, lasting, link, nothing, request, split};
use crate::files::{at_home, read_text};
use crate::ossutil::OssutilFile;
use crate::{Environment, keys, text};

const OWN: [&str; 3] = ["OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"];
const GENERAL: [&str; 3] =
    ["ALIBABA_CLOUD_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_SECRET", "ALIBABA_CLOUD_SECURITY_TOKEN"];
/// A folder of files that somebody rotates, named as the CSI driver names them for ossfs 2.
const FOLDER: &str = "OSS_CREDENTIALS_DIR";
const FILES: [&str; 4] = ["AccessKeyId", "AccessKeySecret", "SecurityToken", "Expiration"];
const URI: &str = "ALIBABA_CLOUD_CREDENTIALS_URI";

/// The chain of Alibaba Cloud's own tools. Files are read again each time.
pub(crate) struct AlibabaKeys {
    environment: Environment,
    profile: Option<String>,
}

impl AlibabaKeys {
    /// `profile` is the one that Flatout was told; it counts where the CLI has one of that name.
    pub(crate) fn new(environment: &Environment, profile: Option<&str>) -> AlibabaKeys {
        AlibabaKeys { environment: environment.clone(), profile: profile.map(str::to_owned) }
    }
}

/// The environment is full of secrets.
impl fmt::Debug for AlibabaKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlibabaKeys({:?})", self.profile)
    }
}

impl Provider for AlibabaKeys {
    fn provide(&self, web: &Web) -> Result<Grant, Refused> {
        let chain = AlibabaChain { environment: &self.environment, web };
        let named = self.profile.as_deref();
        let of_aliyun = named.filter(|name| chain.has_profile(name));
        let of_ossutil = named.filter(|name| chain.ossutil_has(name));
        let mut links = match (of_aliyun, of_ossutil) {
            (Some(name), _) => vec![link(format!("aliyun profile {name}"), || chain.profile(Some(name)))],
            (None, Some(name)) => {
                vec![link(format!("ossutil profile {name}"), || chain.ossutil(Some(name)))]
            }
            (None, None) => vec![
                link("environment", || chain.environment()),
                link("credentials folder", || chain.folder()),
                link("RRSA", || chain.rrsa()),
                link("aliyun profile", || chain.profile(None)),
                link("ossutil", || chain.ossutil(None)),
            ],
        };
        links.push(link("credentials URI", || chain.uri()));
        links.push(link("ECS RAM role", || chain.instance(None)));
        first(links)
    }
}

/// One question: what it is answered from.
struct AlibabaChain<'a> {
    environment: &'a Environment,
    web: &'a Web,
}

impl AlibabaChain<'_> {
    fn variable(&self, name: &str) -> Result<Option<String>, ProviderError> {
        Ok(text(self.environment, name)?)
    }

    fn is_on(&self, name: &str) -> Result<bool, ProviderError> {
        Ok(self.variable(name)?.is_some_and(|value| value.eq_ignore_ascii_case("true")))
    }

    fn environment(&self) -> ProviderResult {
        for names in [OWN, GENERAL] {
            if let Some(credentials) = keys::pair(self.environment, names)? {
                return lasting(credentials);
            }
        }
        nothing(format!("neither {} and {} nor {} and {} are set", OWN[0], OWN[1], GENERAL[0], GENERAL[1]))
    }

    /// Keys in files of their own. They are read until two reads agree: between two files somebody may have
    /// rotated them.
    fn folder(&self) -> ProviderResult {
        const READS_MAX: usize = 5;
        let Some(folder) = self.variable(FOLDER)? else { return nothing(format!("{FOLDER} is not set")) };
        let mut before = self.files(&folder)?;
        for _ in 0..READS_MAX {
            let now = self.files(&folder)?;
            if now == before {
                return self.of_files(&folder, now);
            }
            before = now;
        }
        failed(format!("{folder}: the files change faster than they can be read"))
    }

    fn files(&self, folder: &str) -> Result<[Option<String>; 4], ProviderError> {
        let mut read = [const { None }; 4];
        for (place, name) in read.iter_mut().zip(FILES) {
            let text = read_text(&at_home(self.environment, folder).join(name))?;
            *place = text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        }
        Ok(read)
    }

    fn of_files(&self, folder: &str, [access, secret, token, ends]: [Option<String>; 4]) -> ProviderResult {
        let wanted = |value: Option<String>, name: &str| {
            value.ok_or_else(|| {
                ProviderError::Failed(format!("{folder}/{name}: there is no such file, or nothing in it"))
            })
        };
        let credentials = Credentials {
            access_key: wanted(access, FILES[0])?,
            secret_key: wanted(secret, FILES[1])?,
            session_token: token,
        };
        fit(&credentials).map_err(|why| format!("{folder}: {why}"))?;
        let expires = match ends {
            None => None,
            Some(ends) => Some(time(&ends).ok_or_else(|| format!("{folder}/{}: this is no date", FILES[3]))?),
        };
        Ok(Grant { credentials, expires, provider: String::new() })
    }

    /// Whether ossutil's file has a profile of that name; one that cannot be read may.
    fn ossutil_has(&self, name: &str) -> bool {
        let file = OssutilFile::read(self.environment);
        file.map_or(true, |file| file.map_or(true, |file| file.is_some_and(|file| file.has(name))))
    }

    /// ossutil's own file, of version 1 and 2, where the keys stand in it.
    fn ossutil(&self, profile: Option<&str>) -> ProviderResult {
        let Some(file) = OssutilFile::read(self.environment)?? else {
            return nothing("~/.ossutilconfig is not there");
        };
        let name = &file.name;
        if let Some(syntax_error) = file.syntax_error {
            return failed(syntax_error);
        }
        let section = file.with(profile, "accesskeyid");
        let Some(section) = section.or_else(|| file.with(profile, "accesskeysecret")) else {
            return nothing(format!("{name} has no keys"));
        };
        let setting = |key: &str| {
            let value = section.get(key).map(|entry| entry.value.clone());
            value.filter(|value| !value.is_empty())
        };
        let (Some(access_key), Some(secret_key)) = (setting("accesskeyid"), setting("accesskeysecret"))
        else {
            return failed(format!("{name} has accessKeyID without accessKeySecret, or the other way round"));
        };
        let credentials = Credentials { access_key, secret_key, session_token: setting("ststoken") };
        fit(&credentials).map_err(|why| format!("{name}: {why}"))?;
        lasting(credentials)
    }

    fn uri(&self) -> ProviderResult {
        match self.variable(URI)? {
            None => nothing(format!("{URI} is not set")),
            Some(uri) => self.ask_uri(&uri),
        }
    }

    /// Whatever answers at that URL with keys in JSON.
    fn ask_uri(&self, uri: &str) -> ProviderResult {
        let (host, below) = split("the credentials URI", uri)?;
        let request = request(Method::Get, host, below)?;
        let reply = self.web.ask(request, "", Patience::SERVICE);
        let reply = reply.map_err(|error| ProviderError::Failed(error.to_string()))?;
        Ok(json_grant("the credentials URI", &reply, &[])?)
    }
}

/// Keys in a JSON object of a file.
fn own_keys(value: &serde_json::Value) -> ProviderResult {
    Ok(grant(value).map_err(|why| why.replace("the answer", "it"))?)
}
