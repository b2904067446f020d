//! The files of AWS's own tools, `~/.aws/config` and `~/.aws/credentials`, as tables of settings.
//!
//! Both are read as the SDKs read them (docs.aws.amazon.com, "Shared config and credentials files"): the
//! credentials file wins where both have a setting; `[profile x]`, `[sso-session x]` and `[services x]` in
//! the config file; settings under a setting, such as `s3 =` with an indented `endpoint_url`, are named
//! `s3.endpoint_url` here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use flatout_settings::nearest;

use crate::files::read_named;
use crate::ini;
use crate::place::Home;
use crate::{AmbientError, Environment, text};

/// One setting.
#[derive(Clone, Debug)]
pub(crate) struct ProfileSetting {
    pub(crate) value: String,
    /// `~/.aws/config:3`
    pub(crate) place: String,
}

/// Settings by name, in lower case.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProfileSettings(BTreeMap<String, ProfileSetting>);

impl ProfileSettings {
    /// A value; one that is empty counts as not there.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.setting(key).map(|setting| setting.value.as_str())
    }

    /// A value and its place; one that is empty counts as not there.
    pub(crate) fn setting(&self, key: &str) -> Option<&ProfileSetting> {
        self.0.get(key).filter(|setting| !setting.value.is_empty())
    }
}

/// What both files hold.
#[derive(Default)]
pub(crate) struct AwsFiles {
    profiles: BTreeMap<String, ProfileSettings>,
    sso_sessions: BTreeMap<String, ProfileSettings>,
    services: BTreeMap<String, ProfileSettings>,
    places: Vec<PathBuf>,
    ignores_endpoints: bool,
    /// Files that cannot be read, and why.
    unread: Vec<String>,
    /// Lines that are none, and why.
    syntax_errors: Vec<String>,
}

/// Which profile is meant, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChosenProfile {
    pub(crate) name: String,
    /// It was asked for by name, so it must exist.
    pub(crate) named: bool,
}

/// The profile of `AWS_PROFILE`, or `default`.
pub(crate) fn chosen(environment: &Environment) -> Result<ChosenProfile, AmbientError> {
    Ok(match asked_for(environment)? {
        Some((_, name)) => ChosenProfile { name, named: true },
        None => ChosenProfile { name: "default".into(), named: false },
    })
}

/// The variable that asks for a profile, and its name.
fn asked_for(environment: &Environment) -> Result<Option<(&'static str, String)>, AmbientError> {
    for variable in ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"] {
        if let Some(name) = text(environment, variable)? {
            return Ok(Some((variable, name)));
        }
    }
    Ok(None)
}

impl AwsFiles {
    /// Reads both files; one that is not there is empty, and of what cannot be read the rest counts: see
    /// [`AwsFiles::whole`].
    ///
    /// # Errors
    /// A variable that is no text.
    pub(crate) fn read(environment: &Environment) -> Result<AwsFiles, AmbientError> {
        let ignores_endpoints = ignores_endpoints(environment)?;
        let mut files = AwsFiles { ignores_endpoints, ..AwsFiles::default() };
        let home = Home::of(environment)?;
        if let Some(path) = home.named(environment, "AWS_CONFIG_FILE", ".aws/config")? {
            files.add(path, &home, AwsFiles::add_config);
        }
        if let Some(path) = home.named(environment, "AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")? {
            files.add(path, &home, AwsFiles::add_credentials);
        }
        Ok(files)
    }

    /// What is wrong with the files, in words.
    pub(crate) fn faults(&self) -> impl Iterator<Item = &String> {
        self.unread.iter().chain(&self.syntax_errors)
    }

    /// The files, where nothing is wrong with them: who looks for keys must not take others for an error in
    /// these.
    ///
    /// # Errors
    /// The first fault.
    pub(crate) fn whole(self) -> Result<AwsFiles, String> {
        let fault = self.faults().next().cloned();
        fault.map_or(Ok(self), Err)
    }

    /// The profile that was asked for by `--profile`, where these files have it; a file that cannot be read
    /// may.
    pub(crate) fn asked_for<'a>(&self, profile: Option<&'a str>) -> Option<&'a str> {
        profile.filter(|name| self.profiles.contains_key(*name) || !self.unread.is_empty())
    }

    /// The settings of a profile.
    pub(crate) fn profile(&self, name: &str) -> Option<&ProfileSettings> {
        self.profiles.get(name)
    }

    /// The names of all profiles.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.profiles.keys().map(String::as_str)
    }

    /// The profile that the environment asks for and no file has, where the keys beside it hide that: without
    /// them whoever asks for the profile's keys is told.
    ///
    /// # Errors
    /// A variable that is no text.
    pub(crate) fn missing(&self, environment: &Environment) -> Result<Option<String>, AmbientError> {
        let Some((variable, name)) = asked_for(environment)? else { return Ok(None) };
        let is_hidden = text(environment, "AWS_ACCESS_KEY_ID")?.is_some();
        if !is_hidden || !self.unread.is_empty() || self.profiles.contains_key(&name) {
            return Ok(None);
        }
        let meant = nearest(&name, self.names());
        let meant = meant.map_or(String::new(), |meant| format!(": did you mean '{meant}'?"));
        Ok(Some(format!(
            "{variable}: there is no profile '{name}', and the keys of AWS_ACCESS_KEY_ID are used without one{meant}"
        )))
    }

    /// The settings of `[sso-session NAME]`.
    pub(crate) fn sso_session(&self, name: &str) -> Option<&ProfileSettings> {
        self.sso_sessions.get(name)
    }

    /// Where a profile sends the calls of a service (`s3`, `sts`): the services section that it names, its
    /// own `s3.endpoint_url`, its general `endpoint_url`. The key's name comes with it.
    pub(crate) fn endpoint_url(&self, profile: &str, service: &str) -> Option<(String, &ProfileSetting)> {
        let profile = self.profiles.get(profile)?;
        let ignored = profile.get("ignore_configured_endpoint_urls");
        if self.ignores_endpoints || ignored.is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return None;
        }
        let own = format!("{service}.endpoint_url");
        let listed = profile.get("services").and_then(|name| self.services.get(name)?.setting(&own));
        match listed.or_else(|| profile.setting(&own)) {
            Some(special) => Some((own, special)),
            None => Some(("endpoint_url".into(), profile.setting("endpoint_url")?)),
        }
    }

    /// The files that were looked for, for messages.
    pub(crate) fn places(&self) -> String {
        let places: Vec<_> = self.places.iter().map(|path| path.display().to_string()).collect();
        places.join(" and ")
    }

    fn add(&mut self, path: PathBuf, home: &Home, sort_in: fn(&mut AwsFiles, &str, ProfileSettings)) {
        let file = home.short(&path);
        match read_named(&path, &file) {
            Err(why) => self.unread.push(why),
            Ok(None) => {}
            Ok(Some(text)) => {
                let (mut sections, syntax_error) = ini::parse(&text);
                // `[profile default]` is the default profile's other name, and with AWS the stronger.
                sections.sort_by_key(|section| section.name != "default");
                self.syntax_errors.extend(syntax_error.map(|syntax_error| {
                    format!("{file}: line {}: {}", syntax_error.line, syntax_error.what)
                }));
                for section in sections {
                    let at = |line: usize| format!("{file}:{line}");
                    let settings = section.entries.into_iter();
                    let settings = settings
                        .map(|entry| {
                            (entry.key, ProfileSetting { value: entry.value, place: at(entry.line) })
                        })
                        .collect();
                    sort_in(self, &section.name, ProfileSettings(settings));
                }
            }
        }
        self.places.push(path);
    }

    fn add_config(&mut self, title: &str, section: ProfileSettings) {
        let (table, name) = match title.split_once(' ') {
            None if title == "default" => (&mut self.profiles, title),
            Some(("profile", name)) => (&mut self.profiles, name),
            Some(("sso-session", name)) => (&mut self.sso_sessions, name),
            Some(("services", name)) => (&mut self.services, name),
            _ => return,
        };
        table.entry(name.to_owned()).or_default().0.extend(section.0);
    }

    fn add_credentials(&mut self, title: &str, section: ProfileSettings) {
        self.profiles.entry(title.to_owned()).or_default().0.extend(section.0);
    }
}

/// Whether AWS's own switch has every configured endpoint ignored.
pub(crate) fn ignores_endpoints(environment: &Environment) -> Result<bool, AmbientError> {
    let switch = text(environment, "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")?;
    Ok(switch.is_some_and(|value| value.eq_ignore_ascii_case("true")))
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
        AwsFiles::read(&environment.into()).unwrap().whole()
    }

    #[test]
    fn both_files_are_one_table() {
        let files =
            files(CONFIG, "[dev]\naws_access_key_id = AKIA\nregion=cn-north-1\n[default]\nregion = z\n")
                .unwrap();
        let check = |profile: &str, key: &str, expected: Option<&str>| {
            let found = files.profile(profile).and_then(|profile| profile.get(key));
            assert_eq!(found, expected, "{profile} {key}");
        };
        check("default", "region", Some("z"));
        check("dev", "region", Some("cn-north-1"));
        check("dev", "aws_access_key_id", Some("AKIA"));
        check("dev", "s3.addressing_style", Some("path"));
        check("dev", "addressing_style", None);
        check("two words", "region", Some("x"));
        check("preview", "cloudfront", None);
        assert_eq!(files.sso_session("corp").unwrap().get("sso_region"), Some("us-east-1"));
        let endpoint = |profile: &str, service: &str, expected: Option<&str>| {
            let found = files.endpoint_url(profile, service);
            assert_eq!(found.map(|(_, setting)| setting.value.as_str()), expected, "{profile} {service}");
        };
        endpoint("dev", "s3", Some("http://s3:1"));
        endpoint("dev", "sts", Some("http://sts:3"));
        endpoint("dev", "sso", Some("http://all:2"));
        endpoint("default", "s3", None);
        assert_eq!(files.names().collect::<Vec<_>>(), ["default", "dev", "two words"]);
    }

    #[test]
    fn one_profile_under_two_names() {
        let check = |config: &str, key: &str, expected: Option<&str>| {
            let files = files(config, "").unwrap();
            assert_eq!(files.profile("default").and_then(|profile| profile.get(key)), expected, "{config}");
        };
        check("[profile default]\nregion=a\n[default]\nregion=b\n", "region", Some("a"));
        check("[default]\nregion=b\n[profile default]\nregion=a\n", "region", Some("a"));
        check("[default]\nregion=b\n[profile default]\nx=a\n", "region", Some("b"));
        check("[default]\nregion=a\n[default]\nregion=b\n", "region", Some("b"));
        check("[profile  default]\nregion=a\n", "region", Some("a"));
        let endpoint = |value: &str| {
            let config =
                format!("[default]\nendpoint_url=http://h\nignore_configured_endpoint_urls={value}\n");
            files(&config, "").unwrap().endpoint_url("default", "sts").is_some()
        };
        assert_eq!(["true", "True", "false"].map(endpoint), [false, false, true]);
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
    fn a_profile_that_keys_hid_the_lack_of() {
        let check = |variables: &[(&str, &str)], expected: Option<&str>| {
            let files = files(CONFIG, "").unwrap();
            let environment = variables.iter().map(|(name, value)| (name.into(), value.into())).collect();
            let said = files.missing(&environment).unwrap();
            assert_eq!(said.is_some(), expected.is_some(), "{variables:?}: {said:?}");
            assert!(said.unwrap_or_default().contains(expected.unwrap_or_default()), "{variables:?}");
        };
        let key = ("AWS_ACCESS_KEY_ID", "AKIA");
        check(&[("AWS_PROFILE", "nope"), key], Some("AWS_PROFILE: there is no profile 'nope'"));
        check(&[("AWS_DEFAULT_PROFILE", "dve"), key], Some("AWS_DEFAULT_PROFILE: there is no profile 'dve'"));
        check(&[("AWS_PROFILE", "dve"), key], Some("did you mean 'dev'?"));
        check(&[("AWS_PROFILE", "dev"), key], None);
        check(&[("AWS_PROFILE", "nope")], None);
        check(&[key], None);
    }

    #[test]
    fn the_profile_is_that_of_the_environment() {
        let check = |table: &[(&str, &str)], name: &str, named: bool| {
            let table = table.iter().map(|(name, value)| (name.into(), value.into())).collect();
            assert_eq!(chosen(&table).unwrap(), ChosenProfile { name: name.into(), named });
        };
        check(&[], "default", false);
        check(&[("AWS_PROFILE", "")], "default", false);
        check(&[("AWS_PROFILE", "a"), ("AWS_DEFAULT_PROFILE", "b")], "a", true);
        check(&[("AWS_DEFAULT_PROFILE", "b")], "b", true);
    }
}
