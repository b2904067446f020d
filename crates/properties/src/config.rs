//! Our own config file: what is taken means the same as flags, what is refused is said without a secret.

use std::fs;

use flatout_ambient::{Environment, Layer, gather_from};

use crate::secret::{SECRET, assert_hidden, names_one};

/// Knobs whose values may hold a password.
const URLS: [&str; 3] = ["endpoint-url", "oss-endpoint", "proxy"];

/// `bytes` are `config.toml`.
pub fn config(bytes: &[u8]) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let environment: Environment = [("FLATOUT_CONFIG".into(), file.path().into())].into();
    fs::write(file.path(), bytes).expect("a file");
    if let Ok(found) = gather_from(&[], &environment) {
        means_the_same_as_flags(&found);
    }
    let text = String::from_utf8_lossy(bytes);
    let hiding = planted(&text);
    fs::write(file.path(), &hiding).expect("a file");
    for profile in [None, Some("dev")] {
        let flags: Vec<_> = profile.iter().map(|name| ("profile", (*name).to_owned())).collect();
        let shown = match gather_from(&flags, &environment) {
            Err(error) => format!("{error} {error:?} {:?}", error.hint()),
            Ok(found) => format!("{found:?} {:?} {:?}", found.settings, found.table()),
        };
        assert_hidden(&shown, &hiding);
    }
}

fn means_the_same_as_flags(found: &flatout_ambient::Ambient) {
    let rows = found.table();
    let shown_whole = |value: &String| !value.contains("***") && !value.contains("?…");
    if !rows.iter().flat_map(|row| &row.values).all(shown_whole) {
        return;
    }
    let flags: Vec<(&str, String)> = rows
        .iter()
        .filter(|row| row.layer == Layer::Profile)
        .flat_map(|row| row.values.iter().map(|value| (row.name, value.clone())))
        .collect();
    let again = gather_from(&flags, &Environment::new()).expect("what was good in a file is good as flags");
    let mut settings = again.settings;
    // On the command line the general names speak of OSS too; in a file they do not, once OSS has a word of its own.
    let is_flag = |name: &str| flags.iter().any(|(given, _)| *given == name);
    if !is_flag("oss-endpoint") {
        settings.oss_endpoint.clone_from(&found.settings.oss_endpoint);
    }
    if !is_flag("oss-region") {
        settings.oss_region.clone_from(&found.settings.oss_region);
    }
    assert_eq!(settings, found.settings, "{flags:?}");
}

/// A secret as the value of every key that is called one, and as the password of every URL.
fn planted(text: &str) -> String {
    // A line within a longer string is no key and no value.
    if text.contains("\"\"\"") || text.contains("'''") {
        return text.to_owned();
    }
    text.lines().map(|line| format!("{}\n", planted_line(line))).collect()
}

fn planted_line(line: &str) -> String {
    let Some((key, value)) = line.split_once('=') else { return line.to_owned() };
    let name = key.rsplit('.').next().unwrap_or(key).trim();
    if names_one(name) {
        return format!("{key}= \"{SECRET}\"");
    }
    let (Some(scheme), true) = (value.find("://"), URLS.contains(&name)) else { return line.to_owned() };
    let (scheme, rest) = value.split_at(scheme + "://".len());
    match rest.split_once('@') {
        Some((user, host)) if !user.contains(['"', '\'']) => format!("{key}={scheme}{user}:{SECRET}@{host}"),
        _ => line.to_owned(),
    }
}
