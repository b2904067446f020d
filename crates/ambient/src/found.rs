//! What other tools have set: their variables first, then their files. Nothing here is an error of ours,
//! except text that is no text: a file that cannot be read or makes no sense counts as not there, and a note
//! says so.
//!
//! `AWS_*` and `~/.aws` speak of S3 alone, `OSS_*`, `ALIBABA_CLOUD_*`, `~/.aliyun` and `~/.ossutilconfig` of
//! OSS alone.

use flatout_engine::Dialect;

use crate::aws_profile::{self, AwsFiles, ProfileSetting};
use crate::files::read_named;
use crate::ossutil::OssutilFile;
use crate::place::Home;
use crate::{AmbientError, Environment, text};

/// A knob's value that somebody else's variable or file holds.
#[derive(Debug)]
pub(crate) struct FoundSetting {
    pub knob: &'static str,
    pub value: String,
    /// `AWS_REGION` or `~/.aws/config:3: region`.
    pub place: String,
}

/// Everything found, the stronger first.
#[derive(Debug, Default)]
pub(crate) struct Discovered {
    pub found: Vec<FoundSetting>,
    /// The profiles of AWS's files, the configured and those that have keys.
    pub aws_profiles: Vec<String>,
    /// The profiles of Alibaba Cloud's files.
    pub alibaba_profiles: Vec<String>,
    /// What could not be read and why.
    pub notes: Vec<String>,
    /// What is most likely not as it was meant, and for which dialect.
    pub warnings: Vec<(Dialect, String)>,
}

/// Variables that mean the same as a knob of ours, the first that is set wins. `S3_ENDPOINT_URL` is s5cmd's,
/// `AWS_REQUEST_PAYER` GDAL's and object_store's; the other `AWS_*` are AWS's, the service's own before the
/// general one. `no_proxy` is first in lower case, as with curl.
const VARIABLES: &[(&str, &[&str])] = &[
    ("endpoint-url", &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"]),
    ("region", &["AWS_REGION", "AWS_DEFAULT_REGION"]),
    ("ca-bundle", &["AWS_CA_BUNDLE"]),
    ("request-payer", &["AWS_REQUEST_PAYER"]),
    ("oss-endpoint", &["OSS_ENDPOINT"]),
    ("oss-region", &["OSS_REGION", "ALIBABA_CLOUD_REGION_ID", "ALIBABA_CLOUD_REGION"]),
    ("no-proxy", &["no_proxy", "NO_PROXY"]),
];

/// Keys of a profile of `~/.aws/config`; the endpoint has rules of its own.
const AWS_KEYS: &[(&str, &str)] =
    &[("region", "region"), ("ca-bundle", "ca_bundle"), ("addressing", "s3.addressing_style")];

/// Looks everywhere. `profile` is the one asked for with `--profile` or `FLATOUT_PROFILE`; without it the
/// others' own variables choose theirs.
pub(crate) fn look(environment: &Environment, profile: Option<&str>) -> Result<Discovered, AmbientError> {
    let mut search = Search { environment, home: Home::of(environment)?, discovered: Discovered::default() };
    search.variables()?;
    search.aws(profile)?;
    search.alibaba(profile)?;
    Ok(search.discovered)
}

struct Search<'a> {
    environment: &'a Environment,
    home: Home,
    discovered: Discovered,
}

impl Search<'_> {
    fn variables(&mut self) -> Result<(), AmbientError> {
        let ignored = aws_profile::ignores_endpoints(self.environment)?;
        for (knob, names) in VARIABLES {
            for name in names.iter().filter(|name| !(ignored && name.starts_with("AWS_ENDPOINT_URL"))) {
                let Some(value) = text(self.environment, name)? else { continue };
                // The header's own value, which is what GDAL wants to see.
                let value = if value == "requester" { "true".to_owned() } else { value };
                self.discovered.found.push(FoundSetting { knob, value, place: (*name).to_owned() });
            }
        }
        Ok(())
    }

    fn aws(&mut self, profile: Option<&str>) -> Result<(), AmbientError> {
        let files = AwsFiles::read(self.environment)?;
        self.discovered.notes.extend(files.faults().map(|why| format!("{why}, passed over")));
        self.discovered.aws_profiles.extend(files.names().map(str::to_owned));
        let name = match files.asked_for(profile) {
            Some(name) => name.to_owned(),
            None => {
                let missing = files.missing(self.environment)?;
                self.discovered.warnings.extend(missing.map(|said| (Dialect::S3, said)));
                aws_profile::chosen(self.environment)?.name
            }
        };
        let Some(settings) = files.profile(&name) else { return Ok(()) };
        let mut take = |knob, key: &str, setting: &ProfileSetting| {
            let place = format!("{}: {key}", setting.place);
            self.discovered.found.push(FoundSetting { knob, value: setting.value.clone(), place });
        };
        if let Some((key, setting)) = files.endpoint_url(&name, "s3") {
            take("endpoint-url", &key, setting);
        }
        for (knob, key) in AWS_KEYS {
            if let Some(setting) = settings.setting(key) {
                take(knob, key, setting);
            }
        }
        Ok(())
    }

    /// ossutil's file, then that of the aliyun command. A profile that one of them has is not the other's:
    /// its default is another account's. One that neither has is elsewhere, and each has its own choice, as
    /// for the keys.
    fn alibaba(&mut self, profile: Option<&str>) -> Result<(), AmbientError> {
        let ossutil = self.ossutil()?;
        let aliyun = self.aliyun()?;
        self.discovered
            .alibaba_profiles
            .extend(ossutil.iter().flat_map(OssutilFile::names).map(str::to_owned));
        self.discovered.alibaba_profiles.extend(aliyun.iter().flat_map(Aliyun::names).map(str::to_owned));
        let ossutil_has = |name: &str| ossutil.as_ref().is_some_and(|file| file.has(name));
        let aliyun_has =
            |name: &str| aliyun.as_ref().is_some_and(|file| file.names().any(|known| known == name));
        let asked_for = profile.filter(|name| ossutil_has(name) || aliyun_has(name));
        if asked_for.is_none()
            && let Some(name) = text(self.environment, "ALIBABA_CLOUD_PROFILE")?
            && !aliyun_has(&name)
            && let Some(variable) = oss_key(self.environment)?
        {
            let said = format!(
                "ALIBABA_CLOUD_PROFILE: there is no profile '{name}', and the keys of {variable} are used without one"
            );
            self.discovered.warnings.push((Dialect::Oss, said));
        }
        if let Some(file) = ossutil.as_ref().filter(|_| asked_for.is_none_or(ossutil_has)) {
            for (knob, key) in [("oss-endpoint", "endpoint"), ("oss-region", "region")] {
                if let Some(entry) = file.with(asked_for, key).and_then(|section| section.get(key)) {
                    let place = format!("{}:{}: {key}", file.name, entry.line);
                    self.discovered.found.push(FoundSetting { knob, value: entry.value.clone(), place });
                }
            }
        }
        if let Some(file) = aliyun.as_ref().filter(|_| asked_for.is_none_or(aliyun_has)) {
            let own = text(self.environment, "ALIBABA_CLOUD_PROFILE")?;
            let name = asked_for.or(own.as_deref()).unwrap_or(file.current());
            if let Some(region) = file.region(name) {
                let place = format!("{}: {name}: region_id", file.name);
                self.discovered.found.push(FoundSetting {
                    knob: "oss-region",
                    value: region.to_owned(),
                    place,
                });
            }
        }
        Ok(())
    }

    fn ossutil(&mut self) -> Result<Option<OssutilFile>, AmbientError> {
        let file = self.noted(OssutilFile::read(self.environment)?);
        let syntax_error = file.iter().filter_map(|file| file.syntax_error.as_ref());
        self.discovered.notes.extend(syntax_error.map(|why| format!("{why}, passed over")));
        Ok(file)
    }

    fn aliyun(&mut self) -> Result<Option<Aliyun>, AmbientError> {
        let path = self.home.named(self.environment, "ALIBABA_CLOUD_CONFIG_FILE", ".aliyun/config.json")?;
        let Some(path) = path else { return Ok(None) };
        let name = self.home.short(&path);
        let Some(text) = self.noted(read_named(&path, &name)) else { return Ok(None) };
        let parsed = serde_json::from_str(&text).map_err(|error| format!("{name}:{}: no JSON", error.line()));
        Ok(self.noted(parsed.map(Some)).map(|json| Aliyun { name, json }))
    }

    /// What was read; why it could not be is a note.
    fn noted<T>(&mut self, read: Result<Option<T>, String>) -> Option<T> {
        read.unwrap_or_else(|why| {
            self.discovered.notes.push(format!("{why}, passed over"));
            None
        })
    }
}

/// The variable that holds a key for OSS.
fn oss_key(environment: &Environment) -> Result<Option<&'static str>, AmbientError> {
    for variable in ["OSS_ACCESS_KEY_ID", "ALIBABA_CLOUD_ACCESS_KEY_ID"] {
        if text(environment, variable)?.is_some() {
            return Ok(Some(variable));
        }
    }
    Ok(None)
}

/// `~/.aliyun/config.json`: a list of profiles and the name of the current one.
struct Aliyun {
    /// As people know it.
    name: String,
    json: serde_json::Value,
}

impl Aliyun {
    fn profiles(&self) -> impl Iterator<Item = (&str, &serde_json::Value)> {
        let entries = self.json["profiles"].as_array().into_iter().flatten();
        entries.filter_map(|entry| Some((entry["name"].as_str()?, entry)))
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles().map(|(name, _)| name)
    }

    fn current(&self) -> &str {
        self.json["current"].as_str().filter(|name| !name.is_empty()).unwrap_or("default")
    }

    fn region(&self, profile: &str) -> Option<&str> {
        let (_, entry) = self.profiles().find(|(name, _)| *name == profile)?;
        entry["region_id"].as_str().filter(|region| !region.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_belongs_to_a_knob() {
        let names = VARIABLES.iter().map(|(knob, _)| knob).chain(AWS_KEYS.iter().map(|(knob, _)| knob));
        for name in names {
            assert!(flatout_settings::knob(name).is_some(), "{name}");
        }
    }
}
