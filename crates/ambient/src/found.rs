//! What other tools have set: their variables first, then their files. Nothing here is an error of ours, except text
//! that is no text: a file that cannot be read or makes no sense counts as not there, and a note says so.
//!
//! `AWS_*` and `~/.aws` speak of S3 alone, `OSS_*`, `ALIBABA_CLOUD_*`, `~/.aliyun` and `~/.ossutilconfig` of OSS alone.

use crate::aws_profile::{self, AwsFiles, Setting};
use crate::files::read_named;
use crate::ossutil::OssutilFile;
use crate::place::Home;
use crate::{AmbientError, Environment, text};

/// A knob's value that somebody else's variable or file holds.
#[derive(Debug)]
pub(crate) struct Found {
    pub knob: &'static str,
    pub value: String,
    /// `AWS_REGION` or `~/.aws/config:3: region`.
    pub place: String,
}

/// Everything found, the stronger first.
#[derive(Debug, Default)]
pub(crate) struct Surroundings {
    pub found: Vec<Found>,
    /// The profiles of AWS's files, the configured and those that have keys.
    pub aws_profiles: Vec<String>,
    /// The profiles of Alibaba Cloud's files.
    pub alibaba_profiles: Vec<String>,
    /// What could not be read and why.
    pub notes: Vec<String>,
}

/// Variables that mean the same as a knob of ours, the first that is set wins. `S3_ENDPOINT_URL` is s5cmd's,
/// `AWS_REQUEST_PAYER` GDAL's and object_store's; the other `AWS_*` are AWS's, the service's own before the general one.
/// `no_proxy` is first in lower case, as with curl.
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

/// Looks everywhere. `profile` is the one asked for with `--profile` or `FLATOUT_PROFILE`; without it the others' own
/// variables choose theirs.
pub(crate) fn look(environment: &Environment, profile: Option<&str>) -> Result<Surroundings, AmbientError> {
    let mut look = Look { environment, home: Home::of(environment)?, seen: Surroundings::default() };
    look.variables()?;
    look.aws(profile)?;
    look.ossutil(profile)?;
    look.aliyun(profile)?;
    Ok(look.seen)
}

struct Look<'a> {
    environment: &'a Environment,
    home: Home,
    seen: Surroundings,
}

impl Look<'_> {
    fn variables(&mut self) -> Result<(), AmbientError> {
        let ignored = aws_profile::ignores_endpoints(self.environment)?;
        for (knob, names) in VARIABLES {
            for name in names.iter().filter(|name| !(ignored && name.starts_with("AWS_ENDPOINT_URL"))) {
                let Some(value) = text(self.environment, name)? else { continue };
                // The header's own value, which is what GDAL wants to see.
                let value = if value == "requester" { "true".to_owned() } else { value };
                self.seen.found.push(Found { knob, value, place: (*name).to_owned() });
            }
        }
        Ok(())
    }

    fn aws(&mut self, profile: Option<&str>) -> Result<(), AmbientError> {
        let files = AwsFiles::read(self.environment)?;
        self.seen.notes.extend(files.faults().map(|why| format!("{why}, passed over")));
        self.seen.aws_profiles.extend(files.names().map(str::to_owned));
        let name = match files.asked_for(profile) {
            Some(name) => name.to_owned(),
            None => aws_profile::chosen(self.environment)?.name,
        };
        let Some(settings) = files.profile(&name) else { return Ok(()) };
        let mut take = |knob, key: &str, setting: &Setting| {
            let place = format!("{}: {key}", setting.place);
            self.seen.found.push(Found { knob, value: setting.value.clone(), place });
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

    fn ossutil(&mut self, profile: Option<&str>) -> Result<(), AmbientError> {
        let file = match OssutilFile::read(self.environment)? {
            Ok(Some(file)) => file,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.seen.notes.push(format!("{why}, passed over"));
                return Ok(());
            }
        };
        self.seen.notes.extend(file.slip.iter().map(|why| format!("{why}, passed over")));
        self.seen.alibaba_profiles.extend(file.names().map(str::to_owned));
        for (knob, key) in [("oss-endpoint", "endpoint"), ("oss-region", "region")] {
            if let Some(entry) = file.with(profile, key).and_then(|section| section.get(key)) {
                let place = format!("{}:{}: {key}", file.name, entry.line);
                self.seen.found.push(Found { knob, value: entry.value.clone(), place });
            }
        }
        Ok(())
    }

    /// `~/.aliyun/config.json` of the aliyun command: a list of profiles and the name of the current one.
    fn aliyun(&mut self, profile: Option<&str>) -> Result<(), AmbientError> {
        let path = self.home.named(self.environment, "ALIBABA_CLOUD_CONFIG_FILE", ".aliyun/config.json")?;
        let Some(path) = path else { return Ok(()) };
        let file = self.home.short(&path);
        let text_of_it = match read_named(&path, &file) {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(()),
            Err(why) => {
                self.seen.notes.push(format!("{why}, passed over"));
                return Ok(());
            }
        };
        let parsed: serde_json::Value = match serde_json::from_str(&text_of_it) {
            Ok(parsed) => parsed,
            Err(error) => {
                let note = format!("{file}:{}: no JSON, passed over", error.line());
                self.seen.notes.push(note);
                return Ok(());
            }
        };
        let own = text(self.environment, "ALIBABA_CLOUD_PROFILE")?;
        let current = parsed["current"].as_str().filter(|name| !name.is_empty()).unwrap_or("default");
        let entries = || parsed["profiles"].as_array().into_iter().flatten();
        // As for the keys: a profile that this file does not have is another file's.
        let asked_for = profile.filter(|name| entries().any(|entry| entry["name"].as_str() == Some(name)));
        let name = asked_for.or(own.as_deref()).unwrap_or(current);
        for entry in entries() {
            let Some(its_name) = entry["name"].as_str() else { continue };
            self.seen.alibaba_profiles.push(its_name.to_owned());
            let region = entry["region_id"].as_str().filter(|region| !region.is_empty());
            if let (true, Some(region)) = (its_name == name, region) {
                let place = format!("{file}: {name}: region_id");
                self.seen.found.push(Found { knob: "oss-region", value: region.to_owned(), place });
            }
        }
        Ok(())
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
