//! The keys of volumes: each has surroundings of its own, in which the chains of both clouds find what its
//! identity grants, and nothing else. Volumes of one identity share what a service has granted.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use flatout_ambient::Environment;
use flatout_engine::credentials::{Grant, Provider, Refused, Web};
use sha2::{Digest, Sha256};
use tonic::Code;

use crate::link::Failure;
use crate::volume::{Identity, Secrets, TokenOf, Volume};

/// Keys that were granted a moment ago are not asked for again by each volume.
const YOUNG: Duration = Duration::from_secs(60);
/// Keys that end sooner than this are asked for again by whoever comes.
const AHEAD_S: u64 = 600;

const KEY_FOLDER: &str = "flatout-keys-";

const AUDIENCE_ALIBABA: &str = "sts.aliyuncs.com";
const AUDIENCE_AWS: &str = "sts.amazonaws.com";
const AUDIENCE_EKS: &str = "pods.eks.amazonaws.com";
/// Where the agent of EKS Pod Identity answers on every node.
const EKS_AGENT: &str = "http://169.254.170.23/v1/credentials";

/// Variables by which identities are found; those of the engine's own pod are for volumes that say so.
const OF_IDENTITIES: [&str; 3] = ["AWS_", "ALIBABA_CLOUD_", "OSS_"];
/// Those that say how the machine's own role is found.
const OF_MACHINES: [&str; 1] = ["ALIBABA_CLOUD_ECS_METADATA_SERVICE"];
/// A role's variable, and those of its token.
const TOKENS_OF_ROLES: [(&str, &[&str]); 2] = [
    ("ALIBABA_CLOUD_ROLE_ARN", &["ALIBABA_CLOUD_OIDC_TOKEN_FILE", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN"]),
    ("AWS_ROLE_ARN", &["AWS_WEB_IDENTITY_TOKEN_FILE"]),
];
/// Variables of the engine's own pod that hold for every volume.
const OF_ROADS: [&str; 5] = ["_PROXY", "_proxy", "AWS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"];

/// A folder for the files of this process's volumes, which it keeps locked: what a killed process has left
/// is removed by the next one.
#[derive(Debug)]
pub struct KeyFolder {
    folder: tempfile::TempDir,
    _lock: File,
}

impl KeyFolder {
    /// # Errors
    /// The system's.
    pub fn new(temporary: &Path) -> io::Result<KeyFolder> {
        remove_abandoned(temporary);
        loop {
            let folder = tempfile::Builder::new().prefix(KEY_FOLDER).tempdir_in(temporary)?;
            let lock = File::open(folder.path())?;
            // Another process may have taken it for abandoned before it was locked.
            if lock.try_lock().is_ok() && folder.path().is_dir() {
                return Ok(KeyFolder { folder, _lock: lock });
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Before the process ends without dropping it.
    pub fn remove(&self) {
        let _ = fs::remove_dir_all(self.path());
    }
}

fn remove_abandoned(temporary: &Path) {
    for entry in fs::read_dir(temporary).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(KEY_FOLDER.as_bytes());
        // Not that of another user, nor what a link leads to.
        if is_ours
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
            && let Ok(folder) = File::open(entry.path())
            && folder.try_lock().is_ok()
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Files that hold what a volume's chain of keys reads. They are the engine's own, and go with the last
/// volume whose keys are found by them.
#[derive(Debug)]
pub struct KeyFiles(PathBuf);

impl KeyFiles {
    /// # Errors
    /// The system's.
    pub fn new(folder: &Path, name: &str) -> io::Result<KeyFiles> {
        let folder = folder.join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(KeyFiles(folder))
    }

    /// Whole at any moment.
    fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let (path, new) = (self.0.join(name), self.0.join(format!("{name}.new")));
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            return Ok(path);
        }
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&new, &path)?;
        Ok(path)
    }
}

impl Drop for KeyFiles {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The surroundings in which the keys of this volume are found.
///
/// # Errors
/// A file cannot be written, or nobody has given the token that the identity wants.
pub fn surroundings(
    volume: &Volume,
    secrets: &Secrets,
    files: &KeyFiles,
    own: &Environment,
) -> Result<Environment, Failure> {
    let is_oss = volume.source.starts_with("oss://");
    let name = |name: &OsString| name.to_str().map(str::to_owned).unwrap_or_default();
    let mut found: Environment = own
        .iter()
        .filter(|(variable, _)| {
            let variable = name(variable);
            OF_ROADS.iter().any(|road| variable.ends_with(road))
        })
        .map(|(variable, value)| (variable.clone(), value.clone()))
        .collect();
    let mut set = |name: &str, value: &str| drop(found.insert(name.into(), value.into()));
    // Nobody's home: what lies in the engine's own is not the volume's.
    set("HOME", &files.0.display().to_string());
    if !matches!(volume.identity, Identity::Driver | Identity::Machine { .. }) {
        // The machine's own role is not what this volume's identity names.
        set("AWS_EC2_METADATA_DISABLED", "true");
        set("ALIBABA_CLOUD_ECS_METADATA_DISABLED", "true");
    }
    let token = |audience: &str, of: TokenOf, (variable, value): (&str, &str)| match of {
        TokenOf::Workload => {
            let token = secrets.tokens.get(audience).filter(|token| !token.is_empty()).ok_or_else(|| {
                let why = format!(
                    "authenticationSource: pod: kubelet has given no token of the pod for {audience}: \
                     tokenRequests of the chart must name it"
                );
                Failure::new(Code::InvalidArgument, why)
            })?;
            let path = files.write(&format!("token.{audience}"), token).map_err(of_folder)?;
            Ok(path.display().to_string())
        }
        TokenOf::Driver => {
            let own = own.get(&OsString::from(variable)).and_then(|value| value.to_str());
            own.filter(|path| !path.is_empty()).map(str::to_owned).ok_or_else(|| {
                let why = format!(
                    "the driver has no token of its own for this role: install it with {value}=true, or write \
                     authenticationSource: pod for the role of the pod's service account"
                );
                Failure::new(Code::InvalidArgument, why)
            })
        }
    };
    match &volume.identity {
        Identity::Anonymous => {}
        Identity::Driver | Identity::Machine { .. } => {
            let prefixes = match volume.identity {
                Identity::Driver => &OF_IDENTITIES[..],
                _ => &OF_MACHINES[..],
            };
            let known = own.iter().filter(|(variable, _)| {
                let variable = name(variable);
                prefixes.iter().any(|prefix| variable.starts_with(prefix))
            });
            found.extend(known.map(|(variable, value)| (variable.clone(), value.clone())));
            if let Identity::Machine { role } = &volume.identity {
                found.insert("ALIBABA_CLOUD_ECS_METADATA".into(), role.into());
            }
            // A token without a role is there for volumes that name one.
            for (role, of_token) in TOKENS_OF_ROLES {
                if !found.contains_key(&OsString::from(role)) {
                    of_token.iter().for_each(|variable| drop(found.remove(&OsString::from(variable))));
                }
            }
        }
        Identity::Secret => {
            let Some(keys) = &secrets.keys else { return Ok(found) };
            let names = match is_oss {
                true => ["OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"],
                false => ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
            };
            for (name, value) in names.iter().zip([Some(&keys.id), Some(&keys.secret), keys.token.as_ref()]) {
                if let Some(value) = value {
                    set(name, value);
                }
            }
        }
        Identity::Rrsa { role, provider, session, then, token: of } => {
            let file = token(AUDIENCE_ALIBABA, *of, ("ALIBABA_CLOUD_OIDC_TOKEN_FILE", "alibaba.rrsa"))?;
            if let Some((region, is_internal)) = sts_of(volume) {
                set("ALIBABA_CLOUD_STS_REGION", &region);
                if is_internal {
                    set("ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED", "true");
                }
            }
            let own = |name: &str| own.get(&OsString::from(name)).and_then(|value| value.to_str());
            for name in ["ALIBABA_CLOUD_STS_ENDPOINT", "ALIBABA_CLOUD_VPC_ENDPOINT_ENABLED"] {
                if let Some(value) = own(name) {
                    set(name, value);
                }
            }
            let session = session.as_deref().unwrap_or("flatout-csi");
            let config = serde_json::json!({
                "current": if then.is_some() { "then" } else { "first" },
                "profiles": [
                    {
                        "name": "first",
                        "mode": "OIDC",
                        "ram_role_arn": role,
                        "oidc_provider_arn": provider,
                        "oidc_token_file": file,
                        "ram_session_name": session,
                    },
                    {
                        "name": "then",
                        "mode": "ChainableRamRoleArn",
                        "source_profile": "first",
                        "ram_role_arn": then.as_ref().map(|then| &then.role),
                        "external_id": then.as_ref().and_then(|then| then.external_id.as_ref()),
                        "ram_session_name": session,
                    },
                ],
            });
            let path = files.write("aliyun.json", &config.to_string()).map_err(of_folder)?;
            set("ALIBABA_CLOUD_CONFIG_FILE", &path.display().to_string());
        }
        Identity::Irsa { role, region, token: of } => {
            let file = token(AUDIENCE_AWS, *of, ("AWS_WEB_IDENTITY_TOKEN_FILE", "aws.irsa"))?;
            set("AWS_WEB_IDENTITY_TOKEN_FILE", &file);
            set("AWS_ROLE_ARN", role);
            set("AWS_ROLE_SESSION_NAME", "flatout-csi");
            for name in ["AWS_ENDPOINT_URL_STS", "AWS_REGION"] {
                if let Some(value) = own.get(&OsString::from(name)).and_then(|value| value.to_str()) {
                    set(name, value);
                }
            }
            if let Some(region) = region {
                set("AWS_REGION", region);
            }
        }
        Identity::EksPod => {
            let file = token(AUDIENCE_EKS, TokenOf::Workload, ("", ""))?;
            let agent = own.get(&OsString::from("AWS_CONTAINER_CREDENTIALS_FULL_URI"));
            let agent = agent.and_then(|agent| agent.to_str()).unwrap_or(EKS_AGENT);
            set("AWS_CONTAINER_CREDENTIALS_FULL_URI", agent);
            set("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &file);
        }
    }
    Ok(found)
}

pub fn of_folder(error: io::Error) -> Failure {
    Failure::internal("the folder of keys", &error)
}

/// The region whose STS is asked for an OSS volume, and whether from within its network: as its settings say,
/// else as its endpoint does, `oss-REGION[-internal].aliyuncs.com`.
fn sts_of(volume: &Volume) -> Option<(String, bool)> {
    let knob = |name: &str| {
        let found = volume.knobs.iter().rfind(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    };
    let host = knob("oss-endpoint").map(|url| url.rsplit("//").next().unwrap_or(url));
    let of_host = host.and_then(|host| host.strip_prefix("oss-")?.split_once(".aliyuncs.com"));
    let of_host = of_host.map(|(region, _)| match region.strip_suffix("-internal") {
        Some(region) => (region, true),
        None => (region, false),
    });
    let region = knob("oss-region").or(of_host.map(|(region, _)| region))?;
    Some((region.to_owned(), of_host.is_some_and(|(_, is_internal)| is_internal)))
}

/// The keys of one volume. What it asks can be changed while it is in use.
pub struct VolumeKeys {
    asks: Mutex<Arc<SharedKeys>>,
    /// The grant that this volume had last, by its number.
    had: Mutex<u64>,
}

/// The keys of one identity, for all volumes that have it.
pub struct SharedKeys {
    provider: Arc<dyn Provider>,
    /// What it reads.
    _files: Arc<KeyFiles>,
    granted: Mutex<Option<Granted>>,
}

#[derive(Clone)]
struct Granted {
    grant: Grant,
    number: u64,
    since: Instant,
}

/// The identities of an engine's volumes.
#[derive(Default)]
pub struct Identities(Mutex<HashMap<[u8; 32], Weak<SharedKeys>>>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Identities {
    /// Who has the keys of `identity`, which holds all that they are found by.
    pub fn shared(
        &self,
        identity: &impl serde::Serialize,
        provider: Arc<dyn Provider>,
        files: &Arc<KeyFiles>,
    ) -> Arc<SharedKeys> {
        let bytes = serde_json::to_vec(identity).expect("it is text");
        let name: [u8; 32] = Sha256::digest(bytes).into();
        let mut known = lock(&self.0);
        known.retain(|_, keys| keys.strong_count() > 0);
        if let Some(keys) = known.get(&name).and_then(Weak::upgrade) {
            return keys;
        }
        let keys = Arc::new(SharedKeys { provider, _files: files.clone(), granted: Mutex::new(None) });
        known.insert(name, Arc::downgrade(&keys));
        keys
    }
}

/// What tells an identity from others: of a role also the token, which names whose it is.
pub fn name_of(volume: &Volume, secrets: &Secrets) -> impl serde::Serialize + use<> {
    let is_oss = volume.source.starts_with("oss://");
    let tokens: BTreeMap<String, String> =
        if volume.identity.is_of_workload() { secrets.tokens.clone() } else { BTreeMap::new() };
    let keys = secrets.keys.clone().filter(|_| volume.identity == Identity::Secret);
    let region = volume.knobs.iter().find(|(name, _)| name == "oss-region").map(|(_, region)| region.clone());
    (is_oss, volume.identity.clone(), keys, tokens, region)
}

impl VolumeKeys {
    pub fn new(keys: Arc<SharedKeys>) -> VolumeKeys {
        VolumeKeys { asks: Mutex::new(keys), had: Mutex::new(0) }
    }

    /// From now on these are asked.
    pub fn turn_to(&self, keys: Arc<SharedKeys>) {
        *lock(&self.asks) = keys;
        *lock(&self.had) = 0;
    }
}

impl Provider for VolumeKeys {
    fn provide(&self, web: &Web) -> Result<Grant, Refused> {
        let keys = lock(&self.asks).clone();
        // The lock is released before the service is asked.
        let had = *lock(&self.had);
        let granted = keys.provide(had, web)?;
        *lock(&self.had) = granted.number;
        Ok(granted.grant)
    }
}

impl SharedKeys {
    /// The keys of now. Whoever has had these already wants newer ones.
    fn provide(&self, had: u64, web: &Web) -> Result<Granted, Refused> {
        // Others wait for the answer, and have it.
        let mut granted = lock(&self.granted);
        if let Some(known) = granted.as_ref() {
            let is_young = known.since.elapsed() < YOUNG;
            let lasts = known.grant.expires.is_none_or(|end| end > unix_seconds() + AHEAD_S);
            if lasts && (is_young || known.number != had) {
                return Ok(known.clone());
            }
        }
        let grant = self.provider.provide(web)?;
        let number = granted.as_ref().map_or(0, |known| known.number) + 1;
        let new = Granted { grant, number, since: Instant::now() };
        *granted = Some(new.clone());
        Ok(new)
    }
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl fmt::Debug for VolumeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VolumeKeys")
    }
}

impl fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKeys")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_has_left_goes_and_what_is_in_use_stays() {
        let temporary = tempfile::tempdir().unwrap();
        let left = temporary.path().join("flatout-keys-left");
        let other = temporary.path().join("other");
        for folder in [&left, &other] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("credentials"), "secret").unwrap();
        }
        let in_use = KeyFolder::new(temporary.path()).unwrap();
        assert!(!left.exists() && other.exists());
        let next = KeyFolder::new(temporary.path()).unwrap();
        assert!(in_use.path().exists() && next.path() != in_use.path());
        next.remove();
        drop((in_use, next));
        assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    }
}
