//! Each provider against a service of the test's own, asked by a real engine; no variable of this process is
//! read.

mod alibaba;
mod aws;
mod service;

use std::path::Path;
use std::sync::{Arc, Mutex};

use flatout_engine::credentials::{Grant, Provider, Refused, Web};
use flatout_engine::{Client, Config};
use flatout_wire::time::format_iso_seconds;

use super::unix_seconds;
use crate::{Environment, gather_from};
use service::{Service, ServiceReply, ServiceRequest};

const SECRETS: [&str; 3] = ["s3cr3tkey", "t0kent0ken", "p4ssw0rd"];

/// Keeps what the provider said.
#[derive(Debug)]
struct Heard {
    provider: Arc<dyn Provider>,
    answer: Mutex<Option<Result<Grant, Refused>>>,
}

impl Provider for Heard {
    fn provide(&self, web: &Web) -> Result<Grant, Refused> {
        let answer = self.provider.provide(web);
        *self.answer.lock().unwrap() = Some(answer.clone());
        answer
    }
}

/// Which chain is asked.
#[derive(Clone, Copy, PartialEq)]
enum Cloud {
    Aws,
    Alibaba,
}

/// What a table has, with metadata off unless it says where metadata are.
fn environment(table: &[(&str, &str)]) -> Environment {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let off = [("AWS_EC2_METADATA_DISABLED", "true"), ("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true")];
    let mut environment: Environment =
        off.iter().chain(table).map(|(name, value)| (name.into(), value.into())).collect();
    environment.insert("PATH".into(), path);
    environment
}

/// What the chain says to an engine with these flags and variables.
fn ask(cloud: Cloud, flags: &[(&str, &str)], table: &[(&str, &str)]) -> Result<Grant, Refused> {
    let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let found = gather_from(&flags, &environment(table)).unwrap();
    let provider = match cloud {
        Cloud::Aws => found.aws_credentials,
        Cloud::Alibaba => found.oss_credentials,
    };
    let heard = Arc::new(Heard { provider, answer: Mutex::default() });
    let shown = format!("{heard:?}");
    let mut config = Config { aws_credentials: heard.clone(), ..Config::default() };
    // All else is the chain's matter, not the engine's.
    config.settings.outage_timeout_ms = found.settings.outage_timeout_ms;
    // Whether the engine takes the keys is not the provider's matter.
    let _ = Client::new(config).unwrap().aws_keys();
    let answer = heard.answer.lock().unwrap().take().unwrap();
    let said = format!("{shown} {answer:?} {}", answer.as_ref().err().cloned().unwrap_or_default());
    for secret in SECRETS {
        assert!(!said.contains(secret), "{said}");
    }
    answer
}

/// The keys, in short: access key, whether there is a token, and the seconds that are left to the next
/// hundred.
fn short(grant: &Grant) -> String {
    let keys = &grant.credentials;
    assert_eq!(keys.secret_key, SECRETS[0]);
    let token = keys.session_token.as_deref().map_or("no token", |token| {
        assert_eq!(token, SECRETS[1]);
        "token"
    });
    let left = grant.expires.map_or("stays".into(), |ends| {
        format!("{} s", (ends as i64 - unix_seconds() as i64 + 50).div_euclid(100) * 100)
    });
    format!("{} {token} {left}", keys.access_key)
}

#[track_caller]
fn check(cloud: Cloud, flags: &[(&str, &str)], table: &[(&str, &str)], expected: &str) {
    let answer = ask(cloud, flags, table);
    let said = match &answer {
        Ok(grant) => short(grant),
        Err(refused) => {
            let Some(last) = refused.0.last() else { return assert_eq!(refused.to_string(), expected) };
            format!("{} {}: {}", if last.failed { "failed" } else { "nothing" }, last.provider, last.why)
        }
    };
    assert!(said.contains(expected), "{table:?}\n said {said}\n not  {expected}\n of   {answer:?}");
}

/// A home with these files in it.
fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    home
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A time from now, as services write it.
fn within(seconds: i64) -> String {
    format_iso_seconds(unix_seconds().checked_add_signed(seconds).unwrap())
}

/// What any of the services says, and what comes of it: right, ended, broken, refused, gone.
fn bad_answers(says: impl Fn(&str) -> String) -> Vec<(u16, String, String)> {
    vec![
        (200, says(""), "has no AccessKeyId".into()),
        (200, "<html>p4ssw0rd".into(), "did not answer with".into()),
        (200, String::new(), "did not answer with".into()),
        (500, "p4ssw0rd".into(), "refused (500".into()),
        (404, String::new(), "refused (404".into()),
    ]
}
