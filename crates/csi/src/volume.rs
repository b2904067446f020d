//! A volume as it is served: what lies where, with which settings, and whose keys. Secrets stand apart, and
//! are never shown.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a volume shows and how. It holds no secret, and two volumes that are equal here may be served by one
/// mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// `s3://BUCKET/PREFIX/` or `oss://BUCKET/PREFIX/`.
    pub source: String,
    /// Knobs by name, in their own units.
    pub knobs: Vec<(String, String)>,
    /// Options that mount(2) has a flag for.
    pub system: Vec<String>,
    /// The kernel does not compare modes and owners.
    pub no_permissions: bool,
    /// Nobody may write, whatever a pod asks for.
    pub read_only: bool,
    pub identity: Identity,
    /// It wants an engine of its own.
    pub is_isolated: bool,
    /// Its names come from an index. It is part of the volume's key only where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<VolumeIndex>,
}

/// Where the index of a volume comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeIndex {
    /// The node lists what lies under the source.
    Listed,
    /// An object that is one, by its URL.
    Object(String),
}

/// Whose keys a volume is read and written with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// Nobody's: requests are not signed.
    Anonymous,
    /// Those that the driver's own pods have: variables, roles of the node.
    Driver,
    /// Those of the volume's Secret, which may change at any time.
    Secret,
    /// A role of Alibaba Cloud, for a token of Kubernetes (RRSA).
    Rrsa {
        role: String,
        provider: String,
        session: Option<String>,
        /// The role that the first one assumes.
        then: Option<SecondRole>,
        token: TokenOf,
    },
    /// A role of AWS, for a token of Kubernetes (IRSA).
    Irsa { role: String, region: Option<String>, token: TokenOf },
    /// A role of the machine, at Alibaba Cloud.
    Machine { role: String },
    /// EKS Pod Identity: the node's agent knows the role.
    EksPod,
}

/// Whose service account a token is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TokenOf {
    /// The driver's own pods.
    Driver,
    /// The pod that uses the volume.
    Workload,
}

/// A role that is assumed with the keys of another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecondRole {
    pub role: String,
    pub external_id: Option<String>,
}

/// What must not be shown: keys of a Secret, and tokens of the workload by audience.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secrets {
    pub keys: Option<SecretKeys>,
    pub tokens: BTreeMap<String, String>,
}

/// A pair of keys, with a token where they are temporary.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretKeys {
    pub id: String,
    pub secret: String,
    pub token: Option<String>,
    /// When they end, as their source writes it.
    pub expiration: Option<String>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets")
    }
}

impl fmt::Debug for SecretKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKeys")
    }
}

impl Identity {
    /// Whether a mount can be made again from what is on disk.
    pub fn needs_secrets(&self) -> bool {
        match self {
            Identity::Anonymous | Identity::Driver | Identity::Machine { .. } => false,
            Identity::Secret | Identity::EksPod => true,
            Identity::Rrsa { token, .. } | Identity::Irsa { token, .. } => *token == TokenOf::Workload,
        }
    }

    /// This role for the token of the driver's own pod, in place of a workload's.
    pub fn of_driver(&self) -> Identity {
        match self.clone() {
            Identity::EksPod => Identity::Driver,
            Identity::Rrsa { role, provider, session, then, .. } => {
                Identity::Rrsa { role, provider, session, then, token: TokenOf::Driver }
            }
            Identity::Irsa { role, region, .. } => Identity::Irsa { role, region, token: TokenOf::Driver },
            same => same,
        }
    }

    /// Whether the keys are those of the driver's own pods, or of their node.
    pub fn is_of_driver(&self) -> bool {
        match self {
            Identity::Driver | Identity::Machine { .. } => true,
            Identity::Rrsa { token, .. } | Identity::Irsa { token, .. } => *token == TokenOf::Driver,
            Identity::Anonymous | Identity::Secret | Identity::EksPod => false,
        }
    }

    /// Whether the keys are those of the pod's service account.
    pub fn is_of_workload(&self) -> bool {
        match self {
            Identity::EksPod => true,
            Identity::Rrsa { token, .. } | Identity::Irsa { token, .. } => *token == TokenOf::Workload,
            _ => false,
        }
    }
}

impl Volume {
    /// The name of its mount: volumes of one handle share it where nothing tells them apart. `subject` is
    /// whose keys they are where that is the pod's service account.
    pub fn key(&self, volume_id: &str, subject: Option<&str>) -> String {
        let about = serde_json::to_vec(&(volume_id, self, subject)).expect("it is text");
        Sha256::digest(about).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> Volume {
        Volume {
            source: "s3://models/".into(),
            knobs: vec![("uid".into(), "0".into())],
            system: Vec::new(),
            no_permissions: false,
            read_only: false,
            identity: Identity::Secret,
            is_isolated: false,
            index: None,
        }
    }

    #[test]
    fn a_key_is_of_all_that_tells_mounts_apart() {
        let key = volume().key("models", None);
        assert_eq!(key, volume().key("models", None));
        assert_eq!(key.len(), 32);
        assert_ne!(key, volume().key("other", None));
        assert_ne!(key, volume().key("models", Some("default/trainer")));
        assert_ne!(key, Volume { read_only: true, ..volume() }.key("models", None));
        let of_index = Volume { index: Some(VolumeIndex::Listed), ..volume() };
        assert_ne!(key, of_index.key("models", None));
    }

    /// A node that is upgraded knows its volumes by their keys.
    #[test]
    fn a_volume_without_an_index_has_the_key_that_it_always_had() {
        let text = serde_json::to_string(&volume()).unwrap();
        assert!(text.ends_with(r#""is_isolated":false}"#), "{text}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let keys = SecretKeys {
            id: "LTAIVISIBLE".into(),
            secret: "VISIBLE".into(),
            token: Some("VISIBLE".into()),
            expiration: None,
        };
        let secrets = Secrets { keys: Some(keys.clone()), tokens: [("a".into(), "VISIBLE".into())].into() };
        assert!(!format!("{secrets:?} {keys:?}").contains("VISIBLE"));
    }
}
