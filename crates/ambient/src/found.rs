//! What other tools have set: their variables first, then their files. Nothing here is an error of ours, except text
//! that is no text: a file that cannot be read or makes no sense counts as not there, and a note says so.
//!
//! `AWS_*` and `~/.aws` speak of S3 alone, `OSS_*`, `ALIBABA_CLOUD_*`, `~/.aliyun` and `~/.ossutilconfig` of OSS alone.

use std::io::ErrorKind;
use std::path::PathBuf;

use crate::ini::{self, Section};
use crate::place::{Home, reason};
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
    look.ossutil(profile);
    look.aliyun(profile)?;
    Ok(look.seen)
}

struct Look<'a> {
    environment: &'a Environment,
    home: Home,
    seen: Surroundings,
}

/// A file as it was read.
struct File {
    /// As people know it.
    name: String,
    text: String,
}

impl Look<'_> {
    fn variables(&mut self) -> Result<(), AmbientError> {
        let ignored = self.switch("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")?;
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
        let own = match text(self.environment, "AWS_PROFILE")? {
            None => text(self.environment, "AWS_DEFAULT_PROFILE")?,
            own => own,
        };
        let name = profile.or(own.as_deref()).unwrap_or("default");
        let config = self.ini(self.named("AWS_CONFIG_FILE", ".aws/config")?);
        let keys = self.ini(self.named("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")?);
        if let Some((_, sections)) = &config {
            let names = sections.iter().filter_map(|section| match section.name.as_str() {
                "default" => Some("default"),
                name => name.strip_prefix("profile "),
            });
            self.seen.aws_profiles.extend(names.map(str::to_owned));
        }
        if let Some((_, sections)) = &keys {
            self.seen.aws_profiles.extend(sections.iter().map(|section| section.name.clone()));
        }
        // With AWS the credentials file wins where both have a setting; a region is the only one that people keep there.
        if let Some((file, sections)) = &keys {
            self.take("region", file, sections, &[name.to_owned()], "region");
        }
        if let Some((file, sections)) = &config {
            // `[profile default]` is the default profile's other name, and with AWS the stronger.
            let own =
                [format!("profile {name}"), if name == "default" { name.into() } else { String::new() }];
            self.aws_endpoint(file, sections, &own)?;
            for (knob, key) in AWS_KEYS {
                self.take(knob, file, sections, &own, key);
            }
        }
        Ok(())
    }

    /// S3's own endpoint in the section that `services` names, then the profile's general one.
    fn aws_endpoint(&mut self, file: &str, sections: &[Section], own: &[String]) -> Result<(), AmbientError> {
        let ignored = get(sections, own, "ignore_configured_endpoint_urls");
        let ignored = ignored.is_some_and(|entry| entry.value.eq_ignore_ascii_case("true"));
        if ignored || self.switch("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")? {
            return Ok(());
        }
        if let Some(services) = get(sections, own, "services") {
            let services = format!("services {}", services.value);
            self.take("endpoint-url", file, sections, &[services], "s3.endpoint_url");
        }
        self.take("endpoint-url", file, sections, own, "endpoint_url");
        Ok(())
    }

    /// ossutil 1 writes `[Credentials]`, ossutil 2 `[default]` and `[profile NAME]`.
    fn ossutil(&mut self, profile: Option<&str>) {
        let Some((file, sections)) = self.ini(self.home.join(".ossutilconfig")) else { return };
        let profiles = sections.iter().filter_map(|section| section.name.strip_prefix("profile "));
        self.seen.alibaba_profiles.extend(profiles.map(str::to_owned));
        let own = match profile {
            None | Some("default") => ["default".into(), "Credentials".into()],
            Some(name) => [format!("profile {name}"), name.to_owned()],
        };
        self.take("oss-endpoint", &file, &sections, &own, "endpoint");
        self.take("oss-region", &file, &sections, &own, "region");
    }

    /// `~/.aliyun/config.json` of the aliyun command: a list of profiles and the name of the current one.
    fn aliyun(&mut self, profile: Option<&str>) -> Result<(), AmbientError> {
        let Some(file) = self.read(self.home.join(".aliyun/config.json")) else { return Ok(()) };
        let parsed: serde_json::Value = match serde_json::from_str(&file.text) {
            Ok(parsed) => parsed,
            Err(error) => {
                let note = format!("{}:{}: no JSON, passed over", file.name, error.line());
                self.seen.notes.push(note);
                return Ok(());
            }
        };
        let own = text(self.environment, "ALIBABA_CLOUD_PROFILE")?;
        let current = parsed["current"].as_str().unwrap_or("default");
        let name = profile.or(own.as_deref()).unwrap_or(current);
        for entry in parsed["profiles"].as_array().into_iter().flatten() {
            let Some(its_name) = entry["name"].as_str() else { continue };
            self.seen.alibaba_profiles.push(its_name.to_owned());
            let region = entry["region_id"].as_str().filter(|region| !region.is_empty());
            if let (true, Some(region)) = (its_name == name, region) {
                let place = format!("{}: {name}: region_id", file.name);
                self.seen.found.push(Found { knob: "oss-region", value: region.to_owned(), place });
            }
        }
        Ok(())
    }

    /// The value of `key` in the first of the sections that has it.
    fn take(&mut self, knob: &'static str, file: &str, sections: &[Section], own: &[String], key: &str) {
        let Some(entry) = get(sections, own, key).filter(|entry| !entry.value.is_empty()) else { return };
        let place = format!("{file}:{}: {key}", entry.line);
        self.seen.found.push(Found { knob, value: entry.value.clone(), place });
    }

    fn switch(&self, name: &str) -> Result<bool, AmbientError> {
        Ok(text(self.environment, name)?.is_some_and(|value| value.eq_ignore_ascii_case("true")))
    }

    /// The file that a variable names, else the one at its place below home.
    fn named(&self, variable: &str, below: &str) -> Result<Option<PathBuf>, AmbientError> {
        Ok(match text(self.environment, variable)? {
            Some(path) => Some(self.home.expand(&path)),
            None => self.home.join(below),
        })
    }

    fn ini(&mut self, path: Option<PathBuf>) -> Option<(String, Vec<Section>)> {
        let file = self.read(path)?;
        Some((file.name, ini::parse(&file.text)))
    }

    fn read(&mut self, path: Option<PathBuf>) -> Option<File> {
        let path = path?;
        let name = self.home.short(&path);
        match std::fs::read_to_string(&path) {
            Ok(text) => Some(File { name, text }),
            Err(error) => {
                if error.kind() != ErrorKind::NotFound {
                    self.seen.notes.push(format!("{name}: {}, passed over", reason(&error)));
                }
                None
            }
        }
    }
}

fn get<'a>(sections: &'a [Section], own: &[String], key: &str) -> Option<&'a ini::Entry> {
    own.iter().find_map(|name| sections.iter().rfind(|section| section.name == *name)?.get(key))
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
