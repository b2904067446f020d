//! From what a volume says of itself to what is mounted: attributes, mount options, Secrets and what kubelet
//! adds. Whatever means nothing here is refused by name.

mod index;
mod secrets;
pub mod table;

#[cfg(test)]
#[path = "pages_tests.rs"]
mod pages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use flatout_mounting::MountOptions;
use flatout_settings::{KNOBS, Knob, Settings, nearest};
use flatout_wire::location::Location;

use self::table::{Field, Meaning};
use crate::volume::{Identity, SecondRole, Secrets, TokenOf, Volume};

/// What kubelet adds begins so, and what external-provisioner does.
const OF_KUBERNETES: [&str; 2] = ["csi.storage.k8s.io/", "storage.kubernetes.io/"];
const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";
/// By which a service account names its role: EKS's, ACK's.
const AWS_ROLE: &str = "eks.amazonaws.com/role-arn";
const ALIBABA_ROLE: &str = "pod-identity.alibabacloud.com/role-name";

const NO_PROFILE: &str = "an engine has no profiles: name a Secret (nodePublishSecretRef) or a role";
const NO_STAGING: &str = "an engine has no disk of its own: files of volumes are written from start to end";
const NO_ROLE: &str = "the pod's service account names no role in pod-identity.alibabacloud.com/role-name, or \
                       node.readServiceAccounts of the chart is false: write roleName, or roleArn and \
                       oidcProviderArn";
const NOT_OF_A_VOLUME: &str = "is of the driver, and not of a volume: leave it out";
const OTHER_KEYS: &str = "keys come from a Secret (nodePublishSecretRef) or a role: leave it out";
/// Options of other mounts whose remedy is not one for a volume.
const OF_DRIVER: &[(&str, &str)] = &[
    ("d", NOT_OF_A_VOLUME),
    ("log_level", NOT_OF_A_VOLUME),
    ("log_dir", NOT_OF_A_VOLUME),
    ("log-directory", NOT_OF_A_VOLUME),
    ("no-log", NOT_OF_A_VOLUME),
    ("log-metrics", NOT_OF_A_VOLUME),
    ("metrics_ip", NOT_OF_A_VOLUME),
    ("passwd_file", OTHER_KEYS),
    ("oss_access_key_id", OTHER_KEYS),
    ("oss_access_key_secret", OTHER_KEYS),
    ("ram_role", "write roleName among volumeAttributes"),
    ("assume_role_arn", "write assumeRoleArn among volumeAttributes"),
    ("oss_bucket_prefix", "write path among volumeAttributes"),
    ("prefix", "write path among volumeAttributes"),
];

/// What a volume says of itself.
#[derive(Clone, Debug, Default)]
pub struct VolumeRequest {
    /// `volume_context`, or the parameters of a storage class.
    pub attributes: HashMap<String, String>,
    pub secrets: HashMap<String, String>,
    /// The PV's `mountOptions`.
    pub mount_options: Vec<String>,
    pub fs_type: String,
    /// The pod's `fsGroup`.
    pub group: String,
    /// The access mode allows no writer.
    pub readers_only: bool,
    /// Nobody asks to write, whatever the access mode allows.
    pub is_read_only: bool,
    /// The annotations of the pod's service account, where [`needs_account`] says so.
    pub of_account: BTreeMap<String, String>,
}

/// What was read of it.
#[derive(Clone, Debug)]
pub struct ReadVolume {
    pub volume: Volume,
    pub secrets: Secrets,
    /// The part of the node's memory that it asks for.
    pub memory_bytes: Option<u64>,
    /// Of a storage class: the prefix itself is the volume, and none is made below it.
    pub is_shared_path: bool,
    pub pod: Pod,
    /// What is accepted, and may not do what its author wants.
    pub notes: Vec<String>,
}

/// The pod that a volume is published for, as far as kubelet says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    pub namespace: String,
    pub name: String,
    pub service_account: String,
    pub is_ephemeral: bool,
}

impl Pod {
    /// The service account, as Kubernetes names it.
    pub fn subject(&self) -> String {
        format!("{}/{}", self.namespace, self.service_account)
    }
}

/// What only the cluster's administrator knows.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The number of the account at Alibaba Cloud: a role that is named alone is this account's.
    pub alibaba_account: Option<String>,
    /// The cluster's id at Alibaba Cloud, which is part of the name of its provider of tokens.
    pub alibaba_cluster: Option<String>,
    /// Whoever may create a pod may use what the driver's own keys and roles open.
    pub inline_driver_keys: bool,
}

/// A key or a value that was refused. Displays as `KEY: why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttributeError(String);

impl fmt::Display for AttributeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AttributeError {}

fn refused(key: &str, why: impl fmt::Display) -> AttributeError {
    AttributeError(format!("{key}: {why}"))
}

/// Fields by what they are read into, and the knobs among the attributes.
struct Attributes {
    fields: BTreeMap<Field, (String, String)>,
    knobs: Vec<(&'static str, String)>,
    kubernetes: HashMap<String, String>,
}

impl Attributes {
    fn sort(given: &HashMap<String, String>) -> Result<Attributes, AttributeError> {
        let mut sorted =
            Attributes { fields: BTreeMap::new(), knobs: Vec::new(), kubernetes: HashMap::new() };
        let mut given: Vec<(&str, &str)> =
            given.iter().map(|(key, value)| (key.trim(), value.trim())).collect();
        given.sort_unstable();
        for (key, value) in given {
            if key.starts_with(OF_KUBERNETES[0]) && key.contains("secret-name") {
                return Err(refused(
                    key,
                    "is of storage classes: a PersistentVolume names nodePublishSecretRef",
                ));
            }
            if OF_KUBERNETES.iter().any(|prefix| key.starts_with(prefix)) {
                sorted.kubernetes.insert(key.to_owned(), value.to_owned());
                continue;
            }
            match table::find(key).map(|known| known.meaning) {
                Some(Meaning::Read(field, _)) => {
                    let same = sorted.fields.insert(field, (key.to_owned(), value.to_owned()));
                    if let Some((other, before)) = same.filter(|(_, before)| before != value) {
                        let why = match field {
                            // Keys are shown to nobody.
                            Field::KeyId | Field::KeySecret => format!("contradicts {other}"),
                            _ => format!("'{value}' contradicts {other}: '{before}'"),
                        };
                        return Err(refused(key, why));
                    }
                }
                Some(Meaning::Is(values, why)) => {
                    // An empty value is none.
                    if !value.is_empty() && !values.iter().any(|known| known.eq_ignore_ascii_case(value)) {
                        return Err(refused(key, why));
                    }
                }
                Some(Meaning::Refused(why)) => {
                    // It has no default, and none is chosen.
                    if !value.is_empty() {
                        return Err(refused(key, why));
                    }
                }
                None => match knob_of(key) {
                    Some(Knob { name: "staging" | "staging-size", .. }) => {
                        return Err(refused(key, NO_STAGING));
                    }
                    Some(Knob { name: "profile", .. }) => return Err(refused(key, NO_PROFILE)),
                    Some(_) if value.is_empty() => {}
                    Some(knob) => sorted.knobs.push((knob.name, value.to_owned())),
                    None => return Err(unknown(key)),
                },
            }
        }
        Ok(sorted)
    }

    /// Text that is there.
    fn get(&self, field: Field) -> Option<&str> {
        self.fields.get(&field).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    fn key(&self, field: Field) -> &str {
        self.fields.get(&field).map_or("volumeAttributes", |(key, _)| key)
    }

    fn refuse<T>(&self, field: Field, why: impl fmt::Display) -> Result<T, AttributeError> {
        Err(refused(self.key(field), why))
    }

    fn of_kubernetes(&self, name: &str) -> String {
        self.kubernetes.get(&format!("csi.storage.k8s.io/{name}")).cloned().unwrap_or_default()
    }
}

/// A knob by its name, also as Kubernetes writes names: `endpoint-url`, `endpointUrl`.
fn knob_of(key: &str) -> Option<&'static Knob> {
    let bare = |name: &str| name.replace(['-', '_'], "").to_ascii_lowercase();
    KNOBS.iter().find(|knob| bare(knob.name) == bare(key))
}

fn unknown(key: &str) -> AttributeError {
    let names = table::names().chain(KNOBS.iter().map(|knob| knob.name));
    match nearest(key, names) {
        Some(near) => refused(key, format!("is no attribute of a volume: did you mean {near}?")),
        None => refused(key, "is no attribute of a volume: docs/volume-attributes.md has them all"),
    }
}

/// Reads it.
///
/// # Errors
/// A key that nobody knows or that means nothing here, or a value that is wrong.
pub fn read(request: &VolumeRequest, cluster: &Cluster) -> Result<ReadVolume, AttributeError> {
    let given = Attributes::sort(&request.attributes)?;
    let pod = Pod {
        namespace: given.of_kubernetes("pod.namespace"),
        name: given.of_kubernetes("pod.name"),
        service_account: given.of_kubernetes("serviceAccount.name"),
        is_ephemeral: given.of_kubernetes("ephemeral") == "true",
    };
    let mut lists = options_of(&request.mount_options);
    let of_mountpoint = given.get(Field::BucketName).is_some();
    let folder = if of_mountpoint { take_prefix(&mut lists) } else { None };
    let other_opts = other_opts(&given)?;
    check_options("mountOptions", &lists)?;
    check_options(given.key(Field::OtherOpts), &other_opts)?;
    lists.extend(other_opts);
    let options = MountOptions::parse(&lists, true).map_err(|error| refused("mountOptions", error))?;
    let source = source(&given, folder.as_deref())?;
    let is_oss = source.scheme() == "oss";
    let mut knobs = Chosen::default();
    fuse_type(&given, &request.fs_type)?;
    if let Some(url) = given.get(Field::Url) {
        knobs.set(if is_oss { "oss-endpoint" } else { "endpoint-url" }, &endpoint(&given, url, &source)?);
    }
    if let Some(region) = given.get(Field::Region) {
        knobs.set(if is_oss { "oss-region" } else { "region" }, region);
    }
    match given.get(Field::SignatureVersion).map(str::to_ascii_lowercase).as_deref() {
        None => {}
        Some(version @ ("v1" | "v4")) => knobs.set("oss-signature", version),
        Some(other) => {
            return given.refuse(Field::SignatureVersion, format!("'{other}' is neither v1 nor v4"));
        }
    }
    for (field, knob) in [(Field::HttpsProxy, "proxy"), (Field::NoProxy, "no-proxy")] {
        if let Some(value) = given.get(field) {
            knobs.set(knob, value);
        }
    }
    given.knobs.iter().for_each(|(name, value)| knobs.add(name, value));
    options.knobs.iter().for_each(|(name, value)| knobs.add(name, value));
    if !request.group.is_empty() {
        if request.group.parse::<u32>().is_err() {
            return Err(refused("fsGroup", format!("'{}' is no number of a group", request.group)));
        }
        knobs.unless_set("gid", &request.group);
        knobs.unless_set("dir-mode", "0770");
        knobs.unless_set("file-mode", "0660");
    }
    // The engine's own user owns nothing that a pod may see.
    knobs.unless_set("uid", "0");
    knobs.unless_set("gid", "0");
    if knobs.get("allow-other") == Some("false") {
        return Err(refused("allow-other", "a pod's user is not the engine's: leave it out"));
    }
    knobs.set("allow-other", "true");
    let read_only = request.readers_only
        || options.system.iter().any(|option| option == "ro")
        || knobs.get("read-only").is_some_and(|value| value == "true");
    let about = index::About { source: &source, system: &options.system, pod: &pod };
    let index = index::of(&given, read_only || request.is_read_only, &about)?;
    let read_only = read_only || index.is_some();
    if read_only {
        knobs.set("read-only", "true");
    }
    let memory = knobs.take("memory");
    let mut settings = Settings::default();
    for (name, value) in &knobs.0 {
        settings.set(name, value).map_err(|wrong| AttributeError(wrong.to_string()))?;
    }
    let memory_bytes = match memory {
        Some(value) => {
            settings.set("memory", &value).map_err(|wrong| AttributeError(wrong.to_string()))?;
            Some(settings.memory_bytes)
        }
        None => None,
    };
    let secrets = secrets_of(&given, &request.secrets)?;
    let identity = identity(
        &given,
        (is_oss, settings.no_sign_request, secrets.keys.is_some()),
        cluster,
        &request.of_account,
        settings.region.as_deref(),
    )?;
    if pod.is_ephemeral {
        refuse_inline(&identity, &options.system, cluster)?;
    }
    let is_isolated = match given.get(Field::Isolation).map(str::to_ascii_lowercase).as_deref() {
        None | Some("shared") => false,
        Some("pod") => true,
        Some(other) => return given.refuse(Field::Isolation, format!("'{other}' is neither shared nor pod")),
    };
    let is_shared_path = match given.get(Field::VolumeAs).map(str::to_ascii_lowercase).as_deref() {
        None | Some("subpath") => false,
        Some("direct" | "sharepath") => true,
        Some(other) => {
            return given
                .refuse(Field::VolumeAs, format!("'{other}' is not served: write subpath or sharepath"));
        }
    };
    if given.get(Field::ReclaimPolicy).is_some_and(|policy| !policy.eq_ignore_ascii_case("retain")) {
        return given.refuse(Field::ReclaimPolicy, "only Retain is known: else leave it out");
    }
    let volume = Volume {
        source: source.to_string(),
        knobs: knobs.0,
        system: options.system,
        no_permissions: options.no_permissions,
        read_only,
        identity,
        is_isolated,
        index,
    };
    Ok(ReadVolume { volume, secrets, memory_bytes, is_shared_path, pod, notes: options.notes })
}

/// What of a volume may change while it is in use.
///
/// # Errors
/// Half a pair of keys, or no list of tokens.
pub fn read_secrets(request: &VolumeRequest) -> Result<Secrets, AttributeError> {
    secrets_of(&Attributes::sort(&request.attributes)?, &request.secrets)
}

fn secrets_of(given: &Attributes, secrets: &HashMap<String, String>) -> Result<Secrets, AttributeError> {
    let attributes = (given.get(Field::KeyId), given.get(Field::KeySecret));
    let keys = secrets::keys(secrets, attributes)?;
    let tokens = secrets::tokens(secrets.get(TOKENS).or_else(|| given.kubernetes.get(TOKENS)))?;
    Ok(Secrets { keys, tokens })
}

/// Whether the pod's service account may name the role: its namespace and its name.
pub fn needs_account(request: &VolumeRequest) -> Option<(String, String)> {
    let given = Attributes::sort(&request.attributes).ok()?;
    let is_of_pod = given.get(Field::AuthenticationSource)?.eq_ignore_ascii_case("pod");
    let names_role = [Field::RoleArn, Field::RoleName].iter().any(|field| given.get(*field).is_some());
    let account = (given.of_kubernetes("pod.namespace"), given.of_kubernetes("serviceAccount.name"));
    (is_of_pod && !names_role && !account.0.is_empty() && !account.1.is_empty()).then_some(account)
}

/// Knobs that were chosen; of several with one name all are kept, since some take several values.
#[derive(Default)]
struct Chosen(Vec<(String, String)>);

impl Chosen {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rfind(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn add(&mut self, name: &str, value: &str) {
        self.0.push((name.to_owned(), value.to_owned()));
    }

    fn set(&mut self, name: &str, value: &str) {
        self.0.retain(|(known, _)| known != name);
        self.add(name, value);
    }

    fn unless_set(&mut self, name: &str, value: &str) {
        if self.get(name).is_none() {
            self.add(name, value);
        }
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let value = self.get(name).map(str::to_owned);
        self.0.retain(|(known, _)| known != name);
        value
    }
}

/// Each list alone, so that an error says where the option stands.
fn check_options(key: &str, lists: &[String]) -> Result<(), AttributeError> {
    let options = MountOptions::parse(lists, true).map_err(|error| {
        let text = error.to_string();
        let name = text.trim_start_matches("-o ").split([':', '=', ' ']).next().unwrap_or_default();
        match OF_DRIVER.iter().find(|(known, _)| *known == name) {
            Some((_, why)) => refused(key, format!("-o {name}: {why}")),
            None => {
                let hint = error.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                refused(key, format!("{text}{hint}"))
            }
        }
    })?;
    let of_driver = [
        ("metrics", options.metrics.is_some()),
        ("log", options.log.is_some()),
        ("stats", options.stats.is_some()),
    ];
    if let Some((name, _)) = of_driver.iter().find(|(_, is_set)| *is_set) {
        return Err(refused(key, format!("-o {name}: {NOT_OF_A_VOLUME}")));
    }
    let unknown_here = [("profile", NO_PROFILE), ("staging", NO_STAGING), ("staging-size", NO_STAGING)];
    let is_set = |(name, _): &&(&str, &str)| options.knobs.iter().any(|(known, _)| known == name);
    match unknown_here.iter().find(is_set) {
        Some((name, why)) => Err(refused(key, format!("-o {name}: {why}"))),
        None => Ok(()),
    }
}

/// mountpoint's flag, which is a folder of the bucket that `bucketName` names.
fn take_prefix(lists: &mut Vec<String>) -> Option<String> {
    let mut folder = None;
    for list in lists.iter_mut() {
        let (of_folder, others): (Vec<&str>, _) =
            list.split(',').partition(|option| option.starts_with("prefix="));
        if let Some(option) = of_folder.last() {
            folder = option.strip_prefix("prefix=").map(str::to_owned);
            *list = others.join(",");
        }
    }
    lists.retain(|list| !list.is_empty());
    folder
}

fn source(given: &Attributes, folder: Option<&str>) -> Result<Location, AttributeError> {
    let path = match (given.get(Field::Path), folder) {
        (Some(path), Some(folder)) if path.trim_matches('/') != folder.trim_matches('/') => {
            return given.refuse(Field::Path, format!("'{path}' contradicts mountOptions: prefix {folder}"));
        }
        (path, folder) => path.or(folder).unwrap_or_default(),
    };
    let (field, typed) = match (
        given.get(Field::Source),
        given.get(Field::Bucket),
        given.get(Field::BucketName),
    ) {
        (Some(source), None, None) => (Field::Source, source.to_owned()),
        (None, Some(bucket), None) => (Field::Bucket, format!("oss://{bucket}")),
        (None, None, Some(bucket)) => (Field::BucketName, format!("s3://{bucket}")),
        (None, None, None) => {
            return Err(refused(
                "volumeAttributes",
                "no bucket is named: write source: s3://BUCKET or oss://BUCKET, bucket for OSS, or bucketName for S3",
            ));
        }
        _ => {
            return Err(refused(
                "volumeAttributes",
                "write one of source, bucket and bucketName, and not two",
            ));
        }
    };
    let wrong = |why: String| refused(given.key(field), why);
    let location = Location::parse(&typed).map_err(|error| wrong(error.to_string()))?;
    let Some((bucket, key)) = location.in_bucket() else {
        return Err(wrong(format!(
            "'{typed}' names no bucket: write s3://BUCKET/PREFIX or oss://BUCKET/PREFIX"
        )));
    };
    if field != Field::Source && (bucket.contains('/') || !key.is_empty()) {
        return Err(wrong(format!("'{typed}' is no bucket: its folder belongs into path")));
    }
    if bucket.is_empty() {
        return Err(wrong("no bucket is named".to_owned()));
    }
    let parts: Vec<&str> =
        [key, path].iter().map(|part| part.trim_matches('/')).filter(|part| !part.is_empty()).collect();
    let folder = if parts.is_empty() { String::new() } else { parts.join("/") + "/" };
    Ok(location.with_key(folder).expect("what is in a bucket takes another key"))
}

/// As ACK completes an endpoint, which refuses that of a bucket.
fn endpoint(given: &Attributes, url: &str, source: &Location) -> Result<String, AttributeError> {
    let scheme = if url.contains("-internal.aliyuncs.com") { "http" } else { "https" };
    let whole = if url.contains("://") { url.to_owned() } else { format!("{scheme}://{url}") };
    let host = whole.split_once("://").map_or("", |(_, rest)| rest);
    if host.starts_with(&format!("{}.", source.bucket().unwrap_or_default())) && host.contains("aliyuncs.com")
    {
        return given
            .refuse(Field::Url, format!("'{url}' is the address of a bucket: write that of its region"));
    }
    Ok(whole)
}

fn fuse_type(given: &Attributes, fs_type: &str) -> Result<(), AttributeError> {
    const KNOWN: [&str; 4] = ["flatout", "ossfs", "ossfs2", "fuse"];
    let of_attribute = given.get(Field::FuseType);
    // External-provisioner and csi-sanity name a file system of disks where nobody chose one.
    let is_no_choice = |kind: &&str| !["ext4", "xfs"].contains(kind);
    let kind = of_attribute.or(Some(fs_type).filter(|kind| !kind.is_empty()).filter(is_no_choice));
    match kind.map(str::to_ascii_lowercase) {
        Some(kind) if !KNOWN.contains(&kind.as_str()) => {
            let key = if of_attribute.is_some() { given.key(Field::FuseType) } else { "fsType" };
            Err(refused(key, format!("'{kind}' is none of {}", KNOWN.join(", "))))
        }
        _ => Ok(()),
    }
}

/// The PV's `mountOptions`. Those of mountpoint's driver are its flags: `--region us-west-2`, `prefix a/`.
fn options_of(given: &[String]) -> Vec<String> {
    let plain = |option: &String| {
        let option = option.trim().trim_start_matches("--");
        match option.split_once(char::is_whitespace) {
            Some((name, value)) if !name.contains(['=', ',']) => format!("{name}={}", value.trim()),
            _ => option.to_owned(),
        }
    };
    given.iter().map(plain).filter(|option| !option.is_empty()).collect()
}

/// `-o a -o b,c` or `-oa`; a word without `-o` is refused, as ACK does.
fn other_opts(given: &Attributes) -> Result<Vec<String>, AttributeError> {
    let text = given.get(Field::OtherOpts).unwrap_or_default();
    let mut lists = Vec::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next() {
        let list = match word.strip_prefix("-o") {
            Some("") => words.next().filter(|next| !next.starts_with('-')),
            attached => attached,
        };
        match list {
            Some(list) => lists.push(list.to_owned()),
            None => {
                return given.refuse(
                    Field::OtherOpts,
                    format!("'{word}' is no option: write -o NAME or -o NAME=VALUE"),
                );
            }
        }
    }
    Ok(lists)
}

fn identity(
    given: &Attributes,
    (is_oss, is_anonymous, has_keys): (bool, bool, bool),
    cluster: &Cluster,
    of_account: &BTreeMap<String, String>,
    region: Option<&str>,
) -> Result<Identity, AttributeError> {
    let of_workload = match given.get(Field::AuthenticationSource).map(str::to_ascii_lowercase).as_deref() {
        None | Some("driver") => false,
        Some("pod") => true,
        Some(other) => {
            return given.refuse(Field::AuthenticationSource, format!("'{other}' is neither driver nor pod"));
        }
    };
    let token = if of_workload { TokenOf::Workload } else { TokenOf::Driver };
    let auth_type = given.get(Field::AuthType).unwrap_or_default().to_ascii_lowercase();
    if of_workload && (has_keys || auth_type == "sts") {
        let other = if has_keys { "the keys of the Secret" } else { "authType: sts" };
        return given.refuse(Field::AuthenticationSource, format!("pod contradicts {other}: leave one out"));
    }
    if auth_type == "rrsa" && !is_oss {
        return given.refuse(Field::AuthType, "rrsa is of OSS: of S3 write roleArn");
    }
    let identity = match auth_type.as_str() {
        _ if is_anonymous => Identity::Anonymous,
        "public" => Identity::Anonymous,
        "rrsa" => rrsa(given, cluster, token, of_account)?,
        "csi-secret-store" => return given.refuse(Field::AuthType, "name a Secret: nodePublishSecretRef"),
        "agent-identity" => return given.refuse(Field::AuthType, "agents' identities are not known here"),
        "" | "sts" if has_keys => Identity::Secret,
        "" if of_workload && is_oss => rrsa(given, cluster, token, of_account)?,
        "" if of_workload => match given.get(Field::RoleArn).or(of_account.get(AWS_ROLE).map(String::as_str))
        {
            Some(role) => web_identity(given, role, token, region),
            None => Identity::EksPod,
        },
        "" if !is_oss && given.get(Field::RoleArn).is_some() => {
            web_identity(given, given.get(Field::RoleArn).unwrap_or_default(), token, region)
        }
        "" | "sts" => match given.get(Field::RoleName) {
            Some(role) => Identity::Machine { role: role.to_owned() },
            None => Identity::Driver,
        },
        other => {
            return given.refuse(
                Field::AuthType,
                format!("'{other}' is none of sts, rrsa, public; without it the keys of the Secret count"),
            );
        }
    };
    refuse_unused(given, &identity)?;
    Ok(identity)
}

/// Whoever may create a pod writes the attributes of its inline volumes; those of others are an
/// administrator's.
fn refuse_inline(identity: &Identity, system: &[String], cluster: &Cluster) -> Result<(), AttributeError> {
    if let Some(option) = system.iter().find(|option| ["suid", "dev"].contains(&option.as_str())) {
        return Err(refused("mount options", format!("{option} is for volumes of an administrator")));
    }
    match identity.is_of_driver() && !cluster.inline_driver_keys {
        true => Err(refused(
            "authType",
            "an inline volume brings keys of its own: name a Secret (nodePublishSecretRef), or write \
             authenticationSource: pod, or authType: public; node.inlineDriverKeys=true of the chart allows the \
             driver's keys to whoever may create a pod",
        )),
        false => Ok(()),
    }
}

/// A role that is named, and that nobody would assume.
fn refuse_unused(given: &Attributes, identity: &Identity) -> Result<(), AttributeError> {
    const ROLES: [Field; 6] = [
        Field::RoleName,
        Field::RoleArn,
        Field::OidcProviderArn,
        Field::AssumeRoleArn,
        Field::ExternalId,
        Field::StsRegion,
    ];
    let used: &[Field] = match identity {
        Identity::Rrsa { .. } => &ROLES[..5],
        Identity::Irsa { .. } => &[Field::RoleArn, Field::StsRegion],
        Identity::Machine { .. } => &[Field::RoleName],
        Identity::EksPod => &[Field::StsRegion],
        Identity::Anonymous | Identity::Driver | Identity::Secret => &[],
    };
    match ROLES.iter().find(|field| !used.contains(field) && given.get(**field).is_some()) {
        Some(field) => given.refuse(*field, "has no effect with this authType and this Secret: leave it out"),
        None => Ok(()),
    }
}

fn web_identity(given: &Attributes, role: &str, token: TokenOf, region: Option<&str>) -> Identity {
    let region = given.get(Field::StsRegion).or(region);
    Identity::Irsa { role: role.to_owned(), region: region.map(str::to_owned), token }
}

/// Both names or a role alone, which is one of the cluster's account.
fn rrsa(
    given: &Attributes,
    cluster: &Cluster,
    token: TokenOf,
    of_account: &BTreeMap<String, String>,
) -> Result<Identity, AttributeError> {
    let (role, provider) = match (given.get(Field::RoleArn), given.get(Field::OidcProviderArn)) {
        (Some(role), Some(provider)) => (role.to_owned(), provider.to_owned()),
        (Some(_), None) => return given.refuse(Field::RoleArn, "oidcProviderArn is wanted with it"),
        (None, Some(_)) => return given.refuse(Field::OidcProviderArn, "roleArn is wanted with it"),
        (None, None) => {
            let of_account = of_account.get(ALIBABA_ROLE).map(String::as_str);
            let Some(role) = given.get(Field::RoleName).or(of_account) else {
                return Err(match given.get(Field::AuthType) {
                    Some(_) => refused("authType", "rrsa wants roleArn and oidcProviderArn, or roleName"),
                    None => refused(given.key(Field::AuthenticationSource), NO_ROLE),
                });
            };
            if role.contains(':') {
                return given.refuse(
                    Field::RoleName,
                    format!("'{role}' is an ARN: write roleArn and oidcProviderArn"),
                );
            }
            match (&cluster.alibaba_account, &cluster.alibaba_cluster) {
                (Some(account), Some(id)) => (
                    format!("acs:ram::{account}:role/{role}"),
                    format!("acs:ram::{account}:oidc-provider/ack-rrsa-{id}"),
                ),
                _ => {
                    return given.refuse(
                        Field::RoleName,
                        "the driver does not know the account and the cluster: set alibaba.accountId and \
                         alibaba.clusterId of the chart, or write roleArn and oidcProviderArn",
                    );
                }
            }
        }
    };
    let external_id = given.get(Field::ExternalId).map(str::to_owned);
    let then = given.get(Field::AssumeRoleArn).map(|role| SecondRole { role: role.to_owned(), external_id });
    if then.is_none() && given.get(Field::ExternalId).is_some() {
        return given.refuse(Field::ExternalId, "assumeRoleArn is wanted with it");
    }
    Ok(Identity::Rrsa { role, provider, session: None, then, token })
}
