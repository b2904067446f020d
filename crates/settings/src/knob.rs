//! The table of knobs. A knob is one row of it, and nothing else.

use std::fmt;

use crate::Kind::{self, *};
use crate::kind::{Field, Value};

/// One thing that can be set.
#[derive(Debug)]
pub struct Knob {
    /// Kebab-case: the flag without its dashes and the key of the config file.
    pub name: &'static str,
    pub kind: Kind,
    /// As a user would write it; empty when there is none. Of a number it may be a word, which leaves the
    /// number open and may be written too: `auto`, `unlimited`.
    pub default: &'static str,
    /// One line for `--help` and docs/settings.md, without a full stop.
    pub doc: &'static str,
    pub group: Group,
    /// Puts a value of its kind and within its bounds into its field.
    pub(crate) set: fn(&mut Settings, Value),
}

/// What a knob is about: the headings of docs/settings.md and of `--help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Origin,
    Speed,
    Patience,
    Proof,
    Mount,
}

/// Makes of each row its [`Knob`] in [`KNOBS`] and its field of [`Settings`] or, for those of a mount,
/// [`MountSettings`].
///
/// A row is `field: type = "name", kind, "default", "doc"`. A default that is followed by `via f` gets into
/// the field by `f` instead of [`Field::set`].
macro_rules! knobs {
    (
        $($group:ident {
            $($(#[$about:meta])* $field:ident: $type:ty =
                $name:literal, $kind:expr, $default:literal $(via $set:path)?, $doc:literal;)*
        })*
        ;
        Mount {
            $($(#[$mount_about:meta])* $mount_field:ident: $mount_type:ty =
                $mount_name:literal, $mount_kind:expr, $mount_default:literal, $mount_doc:literal;)*
        }
    ) => {
        /// Every knob, in the order in which `--help` and docs/settings.md show them.
        pub const KNOBS: &[Knob] = &[
            $($(Knob {
                name: $name,
                kind: $kind,
                default: $default,
                doc: $doc,
                group: Group::$group,
                set: |settings, value| setter!($($set)?)(&mut settings.$field, value),
            },)*)*
            $(Knob {
                name: $mount_name,
                kind: $mount_kind,
                default: $mount_default,
                doc: $mount_doc,
                group: Group::Mount,
                set: |settings, value| settings.mount.$mount_field.set(value),
            },)*
        ];

        /// One value for every knob. [`Settings::default`] holds the defaults of [`KNOBS`]; [`Settings::set`]
        /// is how text from a flag, the environment or a file gets in; [`Settings::check`] comes after the
        /// last of them.
        #[derive(Clone, PartialEq, Eq)]
        pub struct Settings {
            $($($(#[$about])* pub $field: $type,)*)*
            /// Of a mount alone.
            pub mount: MountSettings,
        }

        /// A part of [`Settings`], set by the same call.
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        pub struct MountSettings {
            $($(#[$mount_about])* pub $mount_field: $mount_type,)*
        }

        impl Settings {
            /// Every field empty: the defaults of [`KNOBS`] are set afterwards.
            fn empty() -> Settings {
                Settings { $($($field: Default::default(),)*)* mount: MountSettings::default() }
            }
        }

        /// All fields by name. A value with an `@` is masked: it may be a URL with a password.
        impl fmt::Debug for Settings {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut fields = out.debug_struct("Settings");
                $($({
                    let text = format!("{:?}", self.$field);
                    let shown = if text.contains('@') { "***" } else { &text };
                    fields.field(stringify!($field), &format_args!("{shown}"));
                })*)*
                fields.field("mount", &self.mount).finish()
            }
        }
    };
}

macro_rules! setter {
    () => {
        Field::set
    };
    ($set:path) => {
        $set
    };
}

knobs! {
    Origin {
        endpoint_url: Option<String> = "endpoint-url", Text, "",
            "Where S3 is spoken, as in http://127.0.0.1:9000; without it AWS's own endpoint of the region";

        region: Option<String> = "region", Text, "",
            "Region to sign for; without it that of the endpoint's name, else us-east-1";

        no_sign_request: bool = "no-sign-request", Switch, "false",
            "Ask without credentials, for public buckets";

        /// `auto`, `path` or `virtual`.
        addressing: String = "addressing", Choice(&["auto", "path", "virtual"]), "auto",
            "Bucket in the path or in the host name; auto takes path for IP addresses and localhost";

        oss_endpoint: Option<String> = "oss-endpoint", Text, "",
            "Where OSS is spoken, as in oss-cn-hangzhou-internal.aliyuncs.com; without it the public one of \
             the region";

        oss_region: Option<String> = "oss-region", Text, "",
            "Region of Alibaba Cloud to sign for, as in cn-hangzhou; without it that of the endpoint's name";

        /// `v4` or `v1`.
        oss_signature: String = "oss-signature", Choice(&["v4", "v1"]), "v4",
            "Signature version for OSS; v1 is for old private clouds";

        profile: Option<String> = "profile", Text, "",
            "Profile of ~/.config/flatout/config.toml, ~/.aws and ~/.aliyun to take settings and keys from";

        request_payer: bool = "request-payer", Switch, "false",
            "Agree to pay for requests to a bucket whose owner does not";

        /// A file of PEM certificates.
        ca_bundle: Option<String> = "ca-bundle", Text, "",
            "PEM file of certificates to trust for TLS in place of the system's";

        proxy: Option<String> = "proxy", Text, "",
            "Proxy for every origin, as in http://proxy:3128, in place of HTTPS_PROXY and HTTP_PROXY, which \
             are not used for localhost, 127.0.0.1 and ::1";

        /// As in the variable `NO_PROXY`.
        no_proxy: Option<String> = "no-proxy", Text, "",
            "Hosts, .suffixes, addresses and networks to reach without a proxy, with commas between; * is all";

        /// Each `HOST[:PORT]:ADDR[,ADDR...]`, as given.
        resolve: Vec<String> = "resolve", Many, "",
            "HOST[:PORT]:ADDR[,ADDR...]: connect there instead of asking for the name's addresses, as curl \
             does; may be given several times";

        /// Each a local address or an interface.
        bind: Vec<String> = "bind", Many, "",
            "Connect from this local address, or from those of this interface; may be given several times, \
             and connections are spread over all";
    }
    Speed {
        /// Parts in flight toward an origin; found where absent.
        parallel: Option<u32> = "parallel", Count { min: 1, max: 4096 }, "auto",
            "Parts, or small objects, asked for at a time of an origin; auto finds how many bring most";

        /// Found where absent.
        part_bytes: Option<u64> = "part-size", Size { min: 1 << 10, max: 4 << 30 }, "auto",
            "Bytes asked for in one request; auto takes 1MiB to 64MiB, by how fast a connection is. \
             Of an upload the bytes of a part: at least 5MiB, and auto takes 8MiB or 16MiB";

        shards: u32 = "shards", Count { min: 1, max: 256 }, "2",
            "Threads that own connections; more than the machine's cores do not help";

        /// Of a stream; `None` is as many as the pace needs and `memory_bytes` allows.
        window_bytes: Option<u64> = "window", Size { min: 2 << 10, max: 1 << 40 }, "auto",
            "Bytes that may wait to be read in order (cat, pipes), at least two parts; auto: as many as the \
             pace needs and --memory allows, 1GiB at most";

        /// The most that the engine may hold in this process; 256 MiB where the machine's memory is unknown.
        memory_bytes: u64 = "memory", Size { min: 16 << 20, max: 1 << 40 }, "auto" via memory,
            "Maximum memory to use, not counting the caller's buffers and files; auto: a quarter of what the \
             control group or else the machine has, from 256MiB to 8GiB";

        /// Received and sent a second at most, together.
        bandwidth_bytes: Option<u64> = "bandwidth", Rate { min: 1 << 10, max: 1 << 40 }, "unlimited",
            "Bytes a second at most, received and sent together, over all transfers, as in 100MiB/s";

        /// Requests sent to an origin a second at most.
        request_rate: Option<u32> = "request-rate", Frequency { min: 1, max: 1_000_000 }, "unlimited",
            "Requests sent to an origin a second at most, whatever they are for, as in 50/s";
    }
    Patience {
        connect_timeout_ms: u64 = "connect-timeout", Duration { min_ms: 1, max_ms: 600_000 }, "5s",
            "Timeout for opening a connection. An origin that has never accepted one is given up after 10s in \
             total, or after the first timeout if that is longer";

        stall_timeout_ms: u64 = "stall-timeout", Duration { min_ms: 10, max_ms: 3_600_000 }, "20s",
            "Ask again when no byte has come for this long";

        /// How long an origin that has answered may be away; 0 counts each failure as one of `retries`.
        outage_timeout_ms: u64 = "outage-timeout", Duration { min_ms: 0, max_ms: 24 * 3_600_000 }, "60s",
            "How long to wait for an origin that is away (refused, reset, silent, 5xx); 10s at most if it has \
             never answered";

        retries: u32 = "retries", Count { min: 0, max: 100 }, "10",
            "How often in a row to ask for a part again while the origin serves others; 0 tries nothing twice";
    }
    Proof {
        /// Whether bytes are compared with the origin's checksum; the knob is its opposite, `no-verify`.
        verify: bool = "no-verify", Switch, "false" via not,
            "Do not compare the bytes with the checksum that the origin states";

        /// Whether a large file goes on from what an earlier run left of it; the knob is its opposite,
        /// `no-resume`.
        resume: bool = "no-resume", Switch, "false" via not,
            "Start large files over, and keep nothing of one that fails for the next run";
    }
    ;
    Mount {
        attribute_lifetime_ms: u64 = "attribute-lifetime", Duration { min_ms: 0, max_ms: 365 * 24 * 3_600_000 }, "60s",
            "How long what is known of a file or folder is taken for true before the origin is asked again";

        negative_lifetime_ms: u64 = "negative-lifetime", Duration { min_ms: 0, max_ms: 365 * 24 * 3_600_000 }, "5s",
            "How long a name that was not there is taken for missing";

        close_to_open: bool = "close-to-open", Switch, "false",
            "Ask the origin at each open whether the object is still the same, whatever --attribute-lifetime \
             says";

        /// What the kernel is to read ahead; 0 leaves it as it is.
        read_ahead_bytes: u64 = "kernel-readahead", Size { min: 0, max: 1 << 30 }, "4MiB",
            "What the kernel reads ahead of buffered readers, where this may be set (as root); 0 leaves it as \
             it is";

        /// Files at least so large are read past the page cache; `None` is none of them.
        direct_bytes: Option<u64> = "direct-bytes", Size { min: 1, max: 1 << 50 }, "never",
            "Files of so many bytes or more are read past the kernel's page cache, as with O_DIRECT";

        /// That take requests; `None` follows the cores.
        threads: Option<u32> = "fuse-threads", Count { min: 1, max: 256 }, "auto",
            "Threads that take the kernel's requests; auto: as many as cores, from 2 to 8";

        /// Requests of reading ahead under way in the kernel.
        max_background: u16 = "max-background", Count { min: 1, max: 65_535 }, "128",
            "Requests of reading ahead that the kernel may have under way at a time";

        /// `None` is who mounts.
        uid: Option<u32> = "uid", Count { min: 0, max: 4_294_967_294 }, "auto",
            "Whose the files and folders are; auto: of who mounts";

        /// `None` is the group of who mounts.
        gid: Option<u32> = "gid", Count { min: 0, max: 4_294_967_294 }, "auto",
            "Which group the files and folders belong to; auto: that of who mounts";

        read_only: bool = "read-only", Switch, "false",
            "Refuse whatever would write";

        folder_markers: bool = "folder-markers", Switch, "false",
            "Make an object NAME/ for each folder that is made, so that others see it while it is empty";

        /// Objects of a folder.
        rename_limit: u64 = "rename-limit", Count { min: 0, max: 10_000_000 }, "10000",
            "Rename a folder of up to so many objects, each of which is copied and deleted; mv(1) moves a larger \
             one file by file";

        /// A folder of a local disk.
        staging: Option<String> = "staging", Text, "",
            "A folder of a local disk, by which files can be written in any order: what was changed is kept in \
             it until the bucket has it";

        /// `None` is the disk's own limit.
        staging_bytes: Option<u64> = "staging-size", Size { min: 1 << 20, max: 1 << 50 }, "unlimited",
            "What all files together may take in the --staging folder; a write beyond it fails with ENOSPC";

        /// `refuse`, `ignore` or `metadata`.
        attributes: String = "attributes", Choice(&["refuse", "ignore", "metadata"]), "refuse",
            "What becomes of modes, owners and times, which no object has: refuse says so, ignore says that it is \
             done and does nothing, metadata keeps them, symbolic links and extended attributes as s3fs and \
             ossfs 1.0 do, for a HEAD of each file";

        /// Permission bits.
        file_mode: u32 = "file-mode", Mode, "0644",
            "Permission bits of files, in octal";

        /// Permission bits.
        folder_mode: u32 = "dir-mode", Mode, "0755",
            "Permission bits of folders, in octal";

        allow_other: bool = "allow-other", Switch, "false",
            "Let other users in, by the permission bits; as a user it needs user_allow_other in /etc/fuse.conf";
    }
}

/// The value of an open `memory` where the machine's memory is unknown (docs/decisions/memory.md).
const MEMORY_UNSET_BYTES: u64 = 256 << 20;

fn memory(bytes: &mut u64, value: Value) {
    *bytes = value.number().unwrap_or(MEMORY_UNSET_BYTES);
}

/// For a field that says the opposite of its knob.
fn not(is_so: &mut bool, value: Value) {
    is_so.set(value);
    *is_so = !*is_so;
}

impl Default for Settings {
    fn default() -> Settings {
        let mut settings = Settings::empty();
        // The table is the only place where a default is written.
        for knob in KNOBS.iter().filter(|knob| !knob.default.is_empty()) {
            settings.set(knob.name, knob.default).expect("a test sets every default");
        }
        settings
    }
}

/// The knob of that exact name.
pub fn knob(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|knob| knob.name == name)
}

impl Knob {
    /// `FLATOUT_` and the name in upper snake case.
    pub fn env(&self) -> String {
        format!("FLATOUT_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }
}

impl Group {
    /// In the order of docs/settings.md.
    pub const ALL: [Group; 5] = [Group::Origin, Group::Speed, Group::Patience, Group::Proof, Group::Mount];

    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Origin => "Origin",
            Group::Speed => "Speed",
            Group::Patience => "Patience",
            Group::Proof => "Proof",
            Group::Mount => "Mount",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kebab_case_and_unique() {
        for (at, knob) in KNOBS.iter().enumerate() {
            assert!(knob.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", knob.name);
            assert!(KNOBS[..at].iter().all(|earlier| earlier.name != knob.name), "{} twice", knob.name);
        }
    }

    #[test]
    fn prose_is_one_line_without_a_full_stop() {
        for knob in KNOBS {
            assert!(!knob.doc.is_empty() && !knob.doc.contains(['\n', '|']), "{}", knob.name);
            assert!(!knob.doc.ends_with('.'), "{}", knob.name);
        }
    }

    #[test]
    fn defaults_are_within_their_bounds() {
        for knob in KNOBS.iter().filter(|knob| !knob.default.is_empty()) {
            knob.read(knob.default).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn the_environment_has_the_name_in_upper_snake() {
        assert_eq!(knob("part-size").unwrap().env(), "FLATOUT_PART_SIZE");
    }
}
