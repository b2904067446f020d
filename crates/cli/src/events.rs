//! The JSON events of schema v1, field for field as docs/json.md has them.

mod summaries;

use flatout_engine::Report;
use flatout_mount::MountHolder;
use flatout_settings::format_size;
use flatout_wire::location::Location;
use serde::{Deserialize, Serialize};

pub use self::summaries::{RunSummary, SyncSummary};
use crate::failure::Failure;
use crate::limited::Limited;

/// The version of the schema: it grows when a field changes its meaning or goes, not when one is added.
const VERSION: u32 = 1;

/// Puts the version in front of an event's own fields, and the line of `flatout run` behind them.
#[derive(Serialize)]
pub struct Versioned<'a, E> {
    v: u32,
    #[serde(flatten)]
    event: &'a E,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
}

impl<'a, E> Versioned<'a, E> {
    /// The event as it is written.
    pub fn new(event: &'a E) -> Versioned<'a, E> {
        Versioned::of_line(event, None)
    }

    /// The event as a line of `flatout run` writes it.
    pub fn of_line(event: &'a E, line: Option<u64>) -> Versioned<'a, E> {
        Versioned { v: VERSION, event, line }
    }
}

/// One object that was asked for, and what became of it.
#[derive(Serialize)]
#[serde(tag = "event", rename = "object")]
pub struct Object {
    pub action: &'static str,
    pub status: &'static str,
    pub key: String,
    pub source: String,
    /// Absent when the target is standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub bytes: u64,
    pub fetched: u64,
    pub resumed: u64,
    /// Why what an earlier run had left was not used, or not all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    pub verified: Option<String>,
    /// Why an object was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    pub seconds: f64,
    pub retries: u32,
    #[serde(flatten)]
    pub tails: Tails,
}

impl Object {
    /// Of a copy from object to object, of which nothing else is known.
    pub fn of_copy(from: &Location, to: &Location, status: &'static str) -> Object {
        Object::of_write("copy", from.to_string(), to, status)
    }

    /// Of an upload of which nothing else is known.
    pub fn of_upload(source: String, to: &Location, status: &'static str) -> Object {
        Object::of_write("upload", source, to, status)
    }

    fn of_write(action: &'static str, source: String, to: &Location, status: &'static str) -> Object {
        Object::of_sync(action, status, to.key().to_owned(), source, to.to_string())
    }

    /// Of a name that both trees of a sync may have, of which nothing else is known.
    pub fn of_sync(
        action: &'static str,
        status: &'static str,
        key: String,
        source: String,
        target: String,
    ) -> Object {
        Object {
            action,
            status,
            key,
            source,
            target: Some(target),
            bytes: 0,
            fetched: 0,
            resumed: 0,
            note: None,
            verified: None,
            reason: None,
            etag: None,
            seconds: 0.0,
            retries: 0,
            tails: Tails::default(),
        }
    }
}

/// What was done about parts that would have ended late, as the engine counts it.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Tails {
    pub hedged: u32,
    pub moved: u32,
    pub shared: u32,
    /// Bytes.
    pub duplicated: u64,
}

impl Tails {
    /// Those of a transfer that ended well; none of one that did not.
    pub fn of(report: Option<&Report>) -> Tails {
        let flatout_engine::Tails { hedged, moved, shared, duplicated_bytes } =
            report.map(|report| report.tails).unwrap_or_default();
        Tails { hedged, moved, shared, duplicated: duplicated_bytes }
    }
}

/// The last event of a run that moves bytes.
#[derive(Serialize, Default)]
#[serde(tag = "event", rename = "summary")]
pub struct Summary {
    pub action: &'static str,
    pub objects: u64,
    pub ok: u64,
    pub failed: u64,
    pub unchanged: u64,
    pub skipped: u64,
    pub bytes: u64,
    pub fetched: u64,
    pub resumed: u64,
    pub seconds: f64,
    /// Absent of a run that was over before somebody looked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited_by: Option<Limited>,
    pub exit: u8,
}

/// One object that was to be deleted.
#[derive(Serialize)]
#[serde(tag = "event", rename = "object")]
pub struct DeletedObject {
    pub action: &'static str,
    pub status: &'static str,
    pub key: String,
    pub source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version_id: Option<String>,
    /// Absent where the size is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// The last event of a run that deletes objects.
#[derive(Serialize, Default)]
#[serde(tag = "event", rename = "summary")]
pub struct DeleteSummary {
    pub action: &'static str,
    pub objects: u64,
    pub ok: u64,
    pub failed: u64,
    /// Asked for when an interrupt came.
    pub unknown: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub exit: u8,
}

/// A bucket that was made or deleted, or looked at.
#[derive(Serialize, Default)]
#[serde(tag = "event", rename = "bucket")]
pub struct Bucket {
    /// `make`, `delete` or `stat`.
    pub action: &'static str,
    pub status: &'static str,
    pub bucket: String,
    /// Where it lies, if the origin says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// What it held, where that was counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uploads: Option<u64>,
}

/// A presigned URL: the only event with a secret in it.
#[derive(Serialize)]
#[serde(tag = "event", rename = "presigned")]
pub struct Presigned {
    pub key: String,
    pub source: String,
    pub method: &'static str,
    pub url: String,
    pub expires_seconds: u64,
}

/// What lies below a prefix.
#[derive(Serialize)]
#[serde(tag = "event", rename = "usage")]
pub struct Usage {
    /// The prefix, or the pattern; empty for a bucket.
    pub key: String,
    pub source: String,
    pub objects: u64,
    pub bytes: u64,
}

/// The checksums of a file, or those that an origin states of an object.
#[derive(Serialize)]
#[serde(tag = "event", rename = "hash")]
pub struct Hash {
    pub source: String,
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    pub checksums: Vec<Checksum>,
}

/// An unfinished upload.
#[derive(Serialize)]
#[serde(tag = "event", rename = "upload")]
pub struct Upload {
    /// `unfinished`, `aborted` or `failed`.
    pub status: &'static str,
    pub key: String,
    pub source: String,
    pub upload_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun: Option<String>,
}

/// The last event of a look at uploads.
#[derive(Serialize, Default)]
#[serde(tag = "event", rename = "summary")]
pub struct UploadsSummary {
    pub action: &'static str,
    pub uploads: u64,
    pub aborted: u64,
    pub failed: u64,
    pub exit: u8,
}

/// One line of a listing.
#[derive(Serialize)]
#[serde(tag = "event", rename = "entry")]
pub struct Entry {
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The whole key or prefix, or the bucket's name; exact, control characters included.
    pub key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
}

/// The last event of a listing.
#[derive(Serialize, Default)]
#[serde(tag = "event", rename = "summary")]
pub struct ListSummary {
    pub action: &'static str,
    pub objects: u64,
    pub prefixes: u64,
    pub buckets: u64,
    pub bytes: u64,
    pub exit: u8,
}

/// What the origin says about an object.
#[derive(Serialize)]
#[serde(tag = "event", rename = "stat")]
pub struct Stat {
    pub key: String,
    pub source: String,
    pub bytes: Option<u64>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    pub content_type: Option<String>,
    pub storage_class: Option<String>,
    /// How an OSS object was made; absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_type: Option<String>,
    pub parts_count: Option<u32>,
    pub checksums: Vec<Checksum>,
    pub metadata: std::collections::BTreeMap<String, String>,
}

/// A checksum as the origin stated it.
#[derive(Serialize)]
pub struct Checksum {
    pub algorithm: &'static str,
    /// In the form of the algorithm's own header: base64, or decimal for crc64xz.
    pub value: String,
    /// Number of parts when the checksum is one of checksums; absent when it is of the whole object's bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub composite_of: Option<u32>,
}

/// What failed, in the words of standard error.
#[derive(Serialize)]
#[serde(tag = "event", rename = "error")]
pub struct Error<'a> {
    pub kind: &'a str,
    pub message: &'a str,
    pub hint: Option<&'a str>,
    pub exit: u8,
}

impl<'a> From<&'a Failure> for Error<'a> {
    fn from(failure: &'a Failure) -> Error<'a> {
        Error {
            kind: &failure.kind,
            message: &failure.message,
            hint: failure.hint.as_deref(),
            exit: failure.exit.code(),
        }
    }
}

/// An address that a development origin listens on.
#[derive(Serialize)]
#[serde(tag = "event", rename = "listening")]
pub struct Listening {
    pub url: String,
}

/// What a sink took, and what that cost.
#[derive(Serialize)]
#[serde(tag = "event", rename = "sink")]
pub struct SinkCost {
    pub bytes: u64,
    /// Of the whole process, user and system.
    pub cpu_seconds: f64,
}

impl SinkCost {
    /// In a line.
    pub fn line(&self) -> String {
        let gib = self.bytes as f64 / (1_u64 << 30) as f64;
        let each = if gib > 0.01 { format!(": {:.3} a GiB", self.cpu_seconds / gib) } else { String::new() };
        format!("took {} in {:.2} CPU seconds{each}", format_size(self.bytes), self.cpu_seconds)
    }
}

/// A mount that stands. In the background its process says so to the one that started it, in the same words.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename = "mounted")]
pub struct Mounted {
    pub source: String,
    pub mount_point: String,
    pub pid: u32,
    /// The process that keeps the mount if that one dies; absent without `--supervise`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervisor_pid: Option<u32>,
    /// Where what goes wrong is written; absent in the foreground.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Where numbers are to be had; absent where no socket could be made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// `http://ADDR:PORT/metrics`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<String>,
    /// What is to be said about the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// What `mount --dry-run` found that could be mounted.
#[derive(Serialize)]
#[serde(tag = "event", rename = "mountable")]
pub struct Mountable {
    pub source: String,
    pub mount_point: String,
    /// As of `mounted`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// A staged file that `mount --recover` has uploaded, or why it could not.
#[derive(Serialize)]
#[serde(tag = "event", rename = "recovered")]
pub struct Recovered {
    pub source: String,
    /// Below the source.
    pub path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A mount that was ended, or what was left of one.
#[derive(Serialize)]
#[serde(tag = "event", rename = "unmounted")]
pub struct Unmounted {
    pub mount_point: String,
    pub lazy: bool,
    /// The process that served it was gone already.
    pub stale: bool,
    /// Whom its process goes on for; absent where it has ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<HeldBy>,
}

/// One that keeps a mount from its end.
#[derive(Serialize)]
pub struct HeldBy {
    /// `mount`, `overlay`, `open` and others.
    pub by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// In words, for people.
    pub says: String,
}

impl From<&MountHolder> for HeldBy {
    fn from(holder: &MountHolder) -> HeldBy {
        let process = holder.process.as_ref();
        HeldBy {
            by: holder.kind.name(),
            pid: process.map(|process| process.pid),
            command: process.map(|process| process.command.clone()),
            path: holder.path.as_ref().map(|path| path.display().to_string()),
            says: holder.to_string(),
        }
    }
}

/// A mount that is not mounted here any more, and served for those who keep it.
#[derive(Serialize)]
#[serde(tag = "event", rename = "held_mount")]
pub struct HeldMount {
    pub source: String,
    /// Where it was.
    pub mount_point: String,
    pub pid: u32,
    pub held_by: Vec<HeldBy>,
}

/// A mount whose process has gone.
#[derive(Serialize)]
#[serde(tag = "event", rename = "dead_mount")]
pub struct DeadMount {
    pub source: String,
    pub mount_point: String,
    /// What to run to clear it.
    pub remedy: String,
}

/// A setting and where it came from.
#[derive(Serialize)]
#[serde(tag = "event", rename = "setting")]
pub struct Setting {
    pub name: &'static str,
    /// As written, secrets masked; `null` where nothing is set.
    pub value: SettingValue,
    pub layer: &'static str,
    /// The flag, the variable or the place in a file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub place: String,
}

/// A list for a setting that may be given several times.
#[derive(Serialize)]
#[serde(untagged)]
pub enum SettingValue {
    One(Option<String>),
    Many(Vec<String>),
}

/// What signs the requests of a dialect.
#[derive(Serialize)]
#[serde(tag = "event", rename = "credentials")]
pub struct Credentials {
    pub dialect: &'static str,
    /// `null` when requests leave unsigned.
    pub provider: Option<String>,
    /// The end of the access key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Why there is no provider.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The config file.
#[derive(Serialize)]
#[serde(tag = "event", rename = "config")]
pub struct Config {
    pub path: Option<String>,
    pub exists: bool,
}

/// One thing that a doctor looked at.
#[derive(Serialize)]
#[serde(tag = "event", rename = "finding")]
pub struct Finding<'a> {
    pub area: &'static str,
    pub topic: &'static str,
    /// `good`, `note` or `bad`.
    pub level: &'static str,
    pub found: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    pub details: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub means: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<&'a str>,
    /// Numbers and names behind the words.
    pub facts: &'a serde_json::Map<String, serde_json::Value>,
}

/// The last event of a doctor's visit.
#[derive(Serialize)]
#[serde(tag = "event", rename = "summary")]
pub struct DoctorSummary {
    pub action: &'static str,
    pub good: usize,
    pub notes: usize,
    pub bad: usize,
    pub exit: u8,
}

/// What `doctor --forget` removed.
#[derive(Serialize)]
#[serde(tag = "event", rename = "forgotten")]
pub struct Forgotten {
    /// `null` where nothing was remembered.
    pub path: Option<String>,
}

/// The program's version.
#[derive(Serialize)]
#[serde(tag = "event", rename = "version")]
pub struct Version {
    pub program: &'static str,
    pub version: &'static str,
    /// With `--verbose`.
    #[serde(flatten)]
    pub build: Option<Build>,
}

/// How the program was built, and where it runs.
#[derive(Serialize)]
pub struct Build {
    /// `null` where the build did not record it.
    pub commit: Option<&'static str>,
    pub profile: &'static str,
    pub target: &'static str,
    pub rustc: &'static str,
    /// `rustls 0.23.44`
    pub libraries: Vec<&'static str>,
    pub c_library: String,
    pub kernel: String,
    pub system: Option<String>,
    pub container: Option<&'static str>,
    pub cpu: String,
    pub cores: u32,
    pub allowed_cores: u32,
    pub quota_cores: Option<f64>,
    pub memory_bytes: u64,
    /// Those that are not as by default.
    pub settings: Vec<Setting>,
    /// Why they cannot be read.
    pub settings_error: Option<String>,
}

/// A manual page that was written.
#[derive(Serialize)]
#[serde(tag = "event", rename = "page")]
pub struct Written {
    pub path: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_opens_with_version_and_name() {
        let event = Listening { url: "http://127.0.0.1:1".into() };
        assert_eq!(
            serde_json::to_string(&Versioned::new(&event)).unwrap(),
            r#"{"v":1,"event":"listening","url":"http://127.0.0.1:1"}"#
        );
    }

    #[test]
    fn the_statistics_of_a_mount_are_of_the_same_schema() {
        let json = flatout_mounting::stats::MountStats::default().json();
        assert!(json.starts_with(&format!("{{\"v\":{VERSION},\"event\":\"mount_stats\",")), "{json}");
    }
}

/// An index that was built.
#[derive(Default, Serialize)]
#[serde(tag = "event", rename = "volume_built")]
pub struct VolumeBuilt {
    pub source: String,
    pub index: String,
    pub files: u64,
    /// The root included.
    pub folders: u64,
    /// Of all files.
    pub bytes: u64,
    pub index_bytes: u64,
    /// Keys that no file stands for.
    pub left_out: u64,
    pub seconds: f64,
    /// Beside the index before, of an update.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// Mounts that show the new index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounts: Option<u64>,
}

/// What an index has.
#[derive(Serialize)]
#[serde(tag = "event", rename = "volume_info")]
pub struct VolumeInfo {
    pub index: String,
    /// The file, which is in the cache folder where `index` is a URL.
    pub path: String,
    pub source: String,
    pub files: u64,
    pub folders: u64,
    pub bytes: u64,
    pub index_bytes: u64,
    pub metadata_bytes: u64,
    pub written: String,
}

/// An index that is as it was written.
#[derive(Default, Serialize)]
#[serde(tag = "event", rename = "volume_verified")]
pub struct VolumeVerified {
    pub index: String,
    pub files: u64,
    /// Beside what the origin lists, if it was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}
