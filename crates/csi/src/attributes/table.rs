//! The keys of volumes: ours, those of ACK's driver, those of mountpoint's. The pages volume-attributes,
//! from-ack-ossfs2 and from-mountpoint-csi of docs/ are made of these rows.

/// A key of `volumeAttributes`, of the parameters of a storage class, or of an inline volume.
#[derive(Debug)]
pub struct Key {
    /// As it is documented; it is found in any case.
    pub name: &'static str,
    pub meaning: Meaning,
}

/// What a key does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Is read, and what for.
    Read(Field, &'static str),
    /// States how it is here: these values are accepted, others are refused, and why.
    Is(&'static [&'static str], &'static str),
    /// Is of what this driver does not have; the end of a sentence.
    Refused(&'static str),
}

/// What a key is read into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    Source,
    Bucket,
    BucketName,
    Url,
    Path,
    FuseType,
    OtherOpts,
    Region,
    SignatureVersion,
    AuthType,
    AuthenticationSource,
    RoleName,
    RoleArn,
    OidcProviderArn,
    AssumeRoleArn,
    ExternalId,
    StsRegion,
    KeyId,
    KeySecret,
    HttpsProxy,
    NoProxy,
    VolumeAs,
    ReclaimPolicy,
    Isolation,
    Kind,
    Index,
}

/// Which driver's volumes a table is of.
#[derive(Debug)]
pub struct Table {
    pub title: &'static str,
    pub keys: &'static [Key],
}

const fn read(name: &'static str, field: Field, what: &'static str) -> Key {
    Key { name, meaning: Meaning::Read(field, what) }
}

const fn is(name: &'static str, values: &'static [&'static str], why: &'static str) -> Key {
    Key { name, meaning: Meaning::Is(values, why) }
}

const fn refused(name: &'static str, why: &'static str) -> Key {
    Key { name, meaning: Meaning::Refused(why) }
}

pub const TABLES: &[Table] = &[
    Table { title: "Flatout", keys: OWN },
    Table { title: "ACK", keys: ACK },
    Table { title: "mountpoint", keys: MOUNTPOINT },
];

const OWN: &[Key] = &[
    read("source", Field::Source, "the bucket or folder: s3://BUCKET/PREFIX or oss://BUCKET/PREFIX"),
    read(
        "isolation",
        Field::Isolation,
        "shared; pod, for an engine of its own: its pod takes `memory` and no part of the node's",
    ),
    read(
        "kind",
        Field::Kind,
        "bucket; index, for millions of small files that are only read: names come from an index, which the \
         node makes of one listing",
    ),
    read(
        "index",
        Field::Index,
        "of `kind: index`: an index that `flatout volume build` has made, which saves the listing: \
         s3://BUCKET/KEY, or a key of the same bucket",
    ),
];

const NO_FUSE_POD: &str =
    "there is no pod for each volume: leave it out; the chart's values place the engine";
const NO_CACHE: &str = "there is no cache on disk yet: leave it out";
const NO_SANDBOX: &str = "volumes of sandboxed containers are not served: use ACK's driver for these";
const RESOURCES: &str = "one engine serves all volumes of a node: write memory for this volume's share";
const NAMED: &str = "name the bucket itself: bucket";

const ACK: &[Key] = &[
    read("bucket", Field::Bucket, "the bucket, of OSS"),
    read(
        "url",
        Field::Url,
        "the endpoint; https where it names no scheme, http for an internal one. A public one stays public: \
         in a VPC write the internal one",
    ),
    read("path", Field::Path, "the folder in the bucket"),
    read("fuseType", Field::FuseType, "ossfs or ossfs2: their options are both understood"),
    read("otherOpts", Field::OtherOpts, "options of ossfs, ossfs2 and ours: -o a -o b,c"),
    read(
        "authType",
        Field::AuthType,
        "empty, sts, rrsa or public; csi-secret-store and agent-identity are refused",
    ),
    read("roleName", Field::RoleName, "the name of a role: of RAM with `authType: rrsa`, else the machine's"),
    read("ramRole", Field::RoleName, "as roleName"),
    read("roleArn", Field::RoleArn, "the role"),
    read("oidcProviderArn", Field::OidcProviderArn, "who vouches for tokens of the cluster"),
    read("assumeRoleArn", Field::AssumeRoleArn, "the role that the first one assumes"),
    read("externalId", Field::ExternalId, "what that role asks for"),
    read("region", Field::Region, "the region that requests are signed for"),
    read("sigVersion", Field::SignatureVersion, "v1 or v4"),
    read("akId", Field::KeyId, "better in a Secret: attributes are seen by whoever may read volumes"),
    read("akSecret", Field::KeySecret, "as akId"),
    read("volumeAs", Field::VolumeAs, "of a storage class: subpath, or sharepath for the path itself"),
    read("csi.alibabacloud.com/reclaimPolicy", Field::ReclaimPolicy, "of a storage class: Retain"),
    is("useSharedPath", &["true"], "pods of a node share the mount of a volume: leave it out"),
    is("direct", &["false"], NO_SANDBOX),
    is("encrypted", &["", "false"], "the bucket's own encryption decides: leave it out"),
    refused("kmsKeyId", "the bucket's own encryption decides: leave it out"),
    refused("serviceAccountName", "write authenticationSource: pod for the pod's own service account"),
    refused("secretProviderClass", "name a Secret: nodePublishSecretRef"),
    refused("secretRef", "name a Secret: nodePublishSecretRef"),
    refused("sandboxId", NO_SANDBOX),
    refused("credentialProviderName", NO_SANDBOX),
    refused("sandboxCredProviderName", NO_SANDBOX),
    refused("runtimeClass", NO_SANDBOX),
    refused("annotations", NO_SANDBOX),
    refused("encPasswd", NO_SANDBOX),
    is("overlay", &["false"], NO_SANDBOX),
    refused("metricsTop", "metrics are of whole volumes: leave it out"),
    refused("dnsPolicy", NO_FUSE_POD),
    refused("containerNetworkFileSystem", NAMED),
    refused("agenticBucket", NAMED),
    refused("bucketSpace", NAMED),
    refused("bucketSpacePrefix", NAMED),
];

const MOUNTPOINT: &[Key] = &[
    read("bucketName", Field::BucketName, "the bucket, of S3"),
    read("authenticationSource", Field::AuthenticationSource, "driver, or pod"),
    read("stsRegion", Field::StsRegion, "the region whose STS is asked"),
    read("mountpointEnv.HTTPS_PROXY", Field::HttpsProxy, "the proxy"),
    read("mountpointEnv.NO_PROXY", Field::NoProxy, "what is reached without it"),
    refused("cache", NO_CACHE),
    refused("cacheEmptyDirSizeLimit", NO_CACHE),
    refused("cacheEmptyDirMedium", NO_CACHE),
    refused("cacheEphemeralStorageClassName", NO_CACHE),
    refused("cacheEphemeralStorageResourceRequest", NO_CACHE),
    refused("mountpointPodServiceAccountName", NO_FUSE_POD),
    refused("mountpointContainerResourcesRequestsCpu", RESOURCES),
    refused("mountpointContainerResourcesRequestsMemory", RESOURCES),
    refused("mountpointContainerResourcesLimitsCpu", RESOURCES),
    refused("mountpointContainerResourcesLimitsMemory", RESOURCES),
];

/// The key of that name, in any case.
pub fn find(name: &str) -> Option<&'static Key> {
    TABLES.iter().flat_map(|table| table.keys).find(|key| key.name.eq_ignore_ascii_case(name))
}

/// Every name.
pub fn names() -> impl Iterator<Item = &'static str> {
    TABLES.iter().flat_map(|table| table.keys).map(|key| key.name)
}
