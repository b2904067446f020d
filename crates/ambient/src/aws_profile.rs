//! The files of AWS's own tools, `~/.aws/config` and `~/.aws/credentials`, as tables of settings.
//!
//! Both are read as the SDKs read them (docs.aws.amazon.com, "Shared config and credentials files"): the credentials file
//! wins where both have a setting; `[profile x]`, `[sso-session x]` and `[services x]` in the config file; settings under
//! a setting, such as `s3 =` with an indented `endpoint_url`, are named `s3.endpoint_url` here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::files::{at_home, read_text};
use crate::{AmbientError, Environment, text};

/// Settings by name, in lower case.
pub(crate) type Section = BTreeMap<String, String>;

/// What both files hold.
#[derive(Default)]
pub(crate) struct AwsFiles {
    profiles: BTreeMap<String, Section>,
    sso_sessions: BTreeMap<String, Section>,
    services: BTreeMap<String, Section>,
    places: Vec<PathBuf>,
}

/// Which profile is meant, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) name: String,
    /// Somebody asked for this one by name: it must be there.
    pub(crate) named: bool,
}

/// The profile of `AWS_PROFILE`, or `default`.
pub(crate) fn chosen(environment: &Environment) -> Result<Chosen, AmbientError> {
    for variable in ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"] {
        if let Some(name) = text(environment, variable)? {
            return Ok(Chosen { name, named: true });
        }
    }
    Ok(Chosen { name: "default".into(), named: false })
}

impl AwsFiles {
    /// Reads both files; one that is not there is empty.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, in words.
    pub(crate) fn read(environment: &Environment) -> Result<AwsFiles, String> {
        let mut files = AwsFiles::default();
        if let Some(path) = place(environment, "AWS_CONFIG_FILE", ".aws/config")? {
            files.add(&path, AwsFiles::add_config)?;
        }
        if let Some(path) = place(environment, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")? {
            files.add(&path, AwsFiles::add_credentials)?;
        }
        Ok(files)
    }

    /// The settings of a profile.
    pub(crate) fn profile(&self, name: &str) -> Option<&Section> {
        self.profiles.get(name)
    }

    /// The names of all profiles.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// The settings of `[sso-session NAME]`.
    pub(crate) fn sso_session(&self, name: &str) -> Option<&Section> {
        self.sso_sessions.get(name)
    }

    /// Where a profile sends the calls of a service (`s3`, `sts`): the services section that it names, its own
    /// `s3.endpoint_url`, its general `endpoint_url`.
    pub(crate) fn endpoint_url(&self, profile: &str, service: &str) -> Option<&str> {
        let profile = self.profiles.get(profile)?;
        if profile.get("ignore_configured_endpoint_urls").is_some_and(|value| value == "true") {
            return None;
        }
        let own = format!("{service}.endpoint_url");
        let listed = profile.get("services").and_then(|name| self.services.get(name)?.get(&own));
        listed.or_else(|| profile.get(&own)).or_else(|| profile.get("endpoint_url")).map(String::as_str)
    }

    /// The files that were looked for, for messages.
    pub(crate) fn places(&self) -> String {
        let places: Vec<_> = self.places.iter().map(|path| path.display().to_string()).collect();
        places.join(" and ")
    }

    fn add(&mut self, path: &Path, sort_in: fn(&mut AwsFiles, &str, Section)) -> Result<(), String> {
        self.places.push(path.to_owned());
        let Some(text) = read_text(path)? else { return Ok(()) };
        for (title, section) in parse(&text).map_err(|why| format!("{}: {why}", path.display()))? {
            sort_in(self, &title, section);
        }
        Ok(())
    }

    /// `[profile default]` and `[default]` are both taken; where both have a setting the later one stands.
    fn add_config(&mut self, title: &str, section: Section) {
        let (kind, name) = title.split_once([' ', '\t']).unwrap_or((title, ""));
        let name = name.trim().trim_matches(['"', '\'']);
        let (table, name) = match (kind, name) {
            ("default", "") => (&mut self.profiles, "default"),
            (_, "") => return,
            ("profile", name) => (&mut self.profiles, name),
            ("sso-session", name) => (&mut self.sso_sessions, name),
            ("services", name) => (&mut self.services, name),
            _ => return,
        };
        table.entry(name.to_owned()).or_default().extend(section);
    }

    fn add_credentials(&mut self, title: &str, section: Section) {
        self.profiles.entry(title.to_owned()).or_default().extend(section);
    }
}

fn place(environment: &Environment, variable: &str, below_home: &str) -> Result<Option<PathBuf>, String> {
    match text(environment, variable).map_err(|error| error.to_string())? {
        Some(path) => Ok(Some(at_home(environment, &path))),
        None => Ok(text(environment, "HOME")
            .map_err(|error| error.to_string())?
            .map(|home| Path::new(&home).join(below_home))),
    }
}

/// The sections of an INI file in their order. No value is quoted in an error: it may be a key.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, Section)>, String> {
    let mut sections: Vec<(String, Section)> = Vec::new();
    let mut parent = String::new();
    for (number, line) in text.lines().enumerate() {
        let wrong = |what: &str| format!("line {}: {what}", number + 1);
        let indented = line.starts_with([' ', '\t']);
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = line.strip_prefix('[') {
            let (title, _) = rest.split_once(']').ok_or_else(|| wrong("the section's ] is missing"))?;
            sections.push((title.trim().to_owned(), Section::new()));
            parent.clear();
            continue;
        }
        let (_, section) =
            sections.last_mut().ok_or_else(|| wrong("a setting stands before any [section]"))?;
        let Some((key, value)) = line.split_once('=') else {
            // A value that goes on in the next line: nothing that is read here does.
            if indented {
                continue;
            }
            return Err(wrong("neither a section nor NAME = VALUE"));
        };
        let (key, value) = (key.trim().to_ascii_lowercase(), without_comment(value).trim());
        match indented && !parent.is_empty() {
            true => drop(section.insert(format!("{parent}.{key}"), value.to_owned())),
            false => {
                parent = if value.is_empty() { key.clone() } else { String::new() };
                section.insert(key, value.to_owned());
            }
        }
    }
    Ok(sections)
}

/// A comment begins at white space and `#` or `;`.
fn without_comment(value: &str) -> &str {
    let starts = |pair: &[u8]| pair[0].is_ascii_whitespace() && matches!(pair[1], b'#' | b';');
    value.as_bytes().windows(2).position(starts).map_or(value, |at| &value[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "# a comment\n[default]\nregion = eu-west-1 ; here\n[profile dev]\nsso_session = corp\n\
        services = local\ns3 =\n  endpoint_url = http://s3:1\n  addressing_style = path\nendpoint_url=http://all:2\n\
        [sso-session corp]\nsso_region = us-east-1\n[services local]\nsts =\n\tendpoint_url = http://sts:3\n\
        [profile \"two words\"]\nregion=x\n[preview]\ncloudfront=true\n";

    fn files(config: &str, credentials: &str) -> Result<AwsFiles, String> {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.into_os_string()
        };
        let environment = [
            ("AWS_CONFIG_FILE".into(), write("config", config)),
            ("AWS_SHARED_CREDENTIALS_FILE".into(), write("credentials", credentials)),
        ];
        AwsFiles::read(&environment.into())
    }

    #[test]
    fn both_files_are_one_table() {
        let files =
            files(CONFIG, "[dev]\naws_access_key_id = AKIA\nregion=cn-north-1\n[default]\nregion = z\n")
                .unwrap();
        let check = |profile: &str, key: &str, expected: Option<&str>| {
            let found = files.profile(profile).and_then(|profile| profile.get(key)).map(String::as_str);
            assert_eq!(found, expected, "{profile} {key}");
        };
        check("default", "region", Some("z"));
        check("dev", "region", Some("cn-north-1"));
        check("dev", "aws_access_key_id", Some("AKIA"));
        check("dev", "s3.addressing_style", Some("path"));
        check("dev", "addressing_style", None);
        check("two words", "region", Some("x"));
        check("preview", "cloudfront", None);
        assert_eq!(files.sso_session("corp").unwrap()["sso_region"], "us-east-1");
        assert_eq!(files.endpoint_url("dev", "s3"), Some("http://s3:1"));
        assert_eq!(files.endpoint_url("dev", "sts"), Some("http://sts:3"));
        assert_eq!(files.endpoint_url("dev", "sso"), Some("http://all:2"));
        assert_eq!(files.endpoint_url("default", "s3"), None);
        assert_eq!(files.names().collect::<Vec<_>>(), ["default", "dev", "two words"]);
    }

    #[test]
    fn no_file_is_no_profile_and_a_wrong_one_is_said_without_its_values() {
        let nowhere = [("HOME".into(), "/nowhere".into())].into();
        let files_there = AwsFiles::read(&nowhere).unwrap();
        assert_eq!(files_there.names().count(), 0);
        assert_eq!(files_there.places(), "/nowhere/.aws/config and /nowhere/.aws/credentials");
        for (config, expected) in [
            ("[profile dev\nregion=s3cr3t", "line 1: the section's ] is missing"),
            ("aws_secret_access_key=s3cr3t", "line 1: a setting stands before any [section]"),
            ("[default]\n\ns3cr3t", "line 3: neither a section nor NAME = VALUE"),
        ] {
            let said = files(config, "").err().unwrap();
            assert!(said.ends_with(expected), "{said}");
            assert!(!said.contains("s3cr3t"), "{said}");
        }
    }

    #[test]
    fn the_profile_is_that_of_the_environment() {
        let check = |table: &[(&str, &str)], name: &str, named: bool| {
            let table = table.iter().map(|(name, value)| (name.into(), value.into())).collect();
            assert_eq!(chosen(&table).unwrap(), Chosen { name: name.into(), named });
        };
        check(&[], "default", false);
        check(&[("AWS_PROFILE", "")], "default", false);
        check(&[("AWS_PROFILE", "a"), ("AWS_DEFAULT_PROFILE", "b")], "a", true);
        check(&[("AWS_DEFAULT_PROFILE", "b")], "b", true);
    }
}
