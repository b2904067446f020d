//! Keys in files and in answers: what is taken can be sent, what is refused is said without any of it.

use std::fs;
use std::path::Path;

use flatout_ambient::answers::{json_keys, printed_keys, sts_keys};
use flatout_ambient::{Environment, gather_from};
use flatout_engine::credentials::Grant;
use serde_json::Value;

use crate::secret::{SECRET, assert_hidden, names_one};

/// No word for people is longer.
const WORDS_MAX: usize = 1000;
/// Profiles with one of these in them run programs or ask services: neither is a fuzzer's to do.
const REACHES_OUT: [&str; 4] = ["process", "role", "sso", "services"];

/// `bytes` are a file or an answer of any kind that holds keys.
pub fn credentials(bytes: &[u8]) {
    answers(bytes, &String::from_utf8_lossy(bytes));
    let json = serde_json::from_slice(bytes).ok().map(planted);
    if let Some(json) = &json {
        let text = json.to_string();
        answers(text.as_bytes(), &text);
    }
    let text = String::from_utf8_lossy(bytes);
    xml_answer(&text);
    let ini = planted_ini(&text);
    files(&ini, &json.map_or_else(|| text.clone().into_owned(), |json| json.to_string()));
}

fn answers(bytes: &[u8], text: &str) {
    for status in [200, 403] {
        is_keys_or_words(json_keys(status, bytes), text);
        is_keys_or_words(sts_keys(status, bytes), text);
    }
    for printed in printed_keys(bytes) {
        is_keys_or_words(printed, text);
    }
}

fn is_keys_or_words(answer: Result<Grant, String>, from: &str) {
    let said = format!("{answer:?}");
    match answer {
        Ok(Grant { credentials, .. }) => {
            let token = credentials.session_token.as_deref();
            for part in
                [Some(&*credentials.access_key), Some(&*credentials.secret_key), token].into_iter().flatten()
            {
                assert!(!part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic()), "{from:?}");
            }
        }
        Err(why) => assert!(!why.contains(char::is_control) && why.len() < 4 * WORDS_MAX, "{why:?}"),
    }
    assert_hidden(&said, from);
}

/// A secret in place of every word that is called one.
fn planted(json: Value) -> Value {
    match json {
        Value::Object(fields) => {
            let plant = |(name, value): (String, Value)| match value {
                Value::String(_) if names_one(&name) => (name, SECRET.into()),
                value => (name, planted(value)),
            };
            Value::Object(fields.into_iter().map(plant).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(planted).collect()),
        other => other,
    }
}

/// The same for `NAME = VALUE`.
fn planted_ini(text: &str) -> String {
    let plant = |line: &str| match line.split_once('=') {
        Some((name, _)) if names_one(name) && !name.trim_start().starts_with('[') => {
            format!("{name}={SECRET}\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(plant).collect()
}

fn xml_answer(text: &str) {
    let (access, rest) = text.split_once('\n').unwrap_or((text, ""));
    let xml = format!(
        "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>{access}</AccessKeyId><SecretAccessKey>\
         {SECRET}{rest}</SecretAccessKey></Credentials></AssumeRoleResult></AssumeRoleResponse>"
    );
    for status in [200, 403] {
        is_keys_or_words(sts_keys(status, xml.as_bytes()), &xml);
    }
}

/// Every tool's file, and all that people are shown of what follows from them.
fn files(ini: &str, json: &str) {
    let home = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = home.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    write(".ossutilconfig", ini);
    let table = [
        ("HOME", home.path()),
        ("AWS_CONFIG_FILE", &write("config", ini)),
        ("AWS_SHARED_CREDENTIALS_FILE", &write("credentials", ini)),
        ("ALIBABA_CLOUD_CONFIG_FILE", &write("aliyun", json)),
        ("AWS_EC2_METADATA_DISABLED", Path::new("true")),
        ("ALIBABA_CLOUD_ECS_METADATA_DISABLED", Path::new("true")),
        ("FLATOUT_CONFIG", &write("flatout", "")),
    ];
    let environment: Environment = table.iter().map(|(name, value)| (name.into(), value.into())).collect();
    for profile in [None, Some("dev")] {
        let flags: Vec<_> = profile.iter().map(|name| ("profile", (*name).to_owned())).collect();
        let shown = match gather_from(&flags, &environment) {
            Err(error) => format!("{error} {error:?} {:?}", error.hint()),
            Ok(found) => {
                let signers = if stays_here(ini, json) { found.signers() } else { Vec::new() };
                format!("{found:?} {:?} {signers:?}", found.table())
            }
        };
        assert_hidden(&shown, &format!("{ini}\n{json}"));
    }
}

/// Whether nobody else is asked for the keys.
fn stays_here(ini: &str, json: &str) -> bool {
    let lower = ini.to_ascii_lowercase();
    let written_down = |value: &Value| {
        let mode = value.get("mode");
        mode.is_none_or(|mode| matches!(mode.as_str(), Some("AK" | "StsToken")))
    };
    let json: Option<Value> = serde_json::from_str(json).ok();
    let profiles = json.as_ref().and_then(|json| json.get("profiles")).and_then(Value::as_array);
    !REACHES_OUT.iter().any(|word| lower.contains(word))
        && profiles.is_none_or(|list| list.iter().all(written_down))
}
