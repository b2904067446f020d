//! Options of mounts made with libfuse, and those that s3fs, mountpoint-s3 and goofys have besides:
//! docs/from-libfuse.md is written from these tables.

use crate::foreign::OptionMeaning::{
    Endpoint, Idle, Is, Knob, Mask, Refused, Same as Named, Sets, Umask, ZeroSets,
};
use crate::foreign::ValueUnit::{Mebibytes, PathStyle, Same, Seconds, SecondsOrEver, Switch};
use crate::foreign::{ForeignOption, row};
use crate::ossfs::{DISK, FOUND, SENT, STAGING, STORED};

/// The options of one program.
pub struct ProgramOptions {
    #[allow(dead_code, reason = "the page is written by a test")]
    pub title: &'static str,
    pub rows: &'static [ForeignOption],
}

const REQUESTS: &str = "requests are as long as the kernel and this program agree upon: 1 MiB where it can";
pub const VERSIONS: &str =
    "the page cache is kept as long as the object has the version that was read, and no longer";
const NUMBERS: &str = "an inode number is a hash of the key, the same in every mount and after every restart";
const SPLICE: &str = "bytes go to the kernel from where they arrived";
const THREADS: &str = "write fuse-threads=N for how many threads take requests";
const AHEAD: &str = "write max-background=N for how many requests of reading ahead may wait";
const LOCKS: &str = "locks are the kernel's own";
const WRITES: &str = "the kernel passes each write on, and close and fsync publish the file";
const STACKED: &str = "there are no modules of libfuse here: leave it out";
const CONNECTION: &str =
    "comes from who mounts: leave it out; /dev/fd/N as mount point takes over a connection";
const LABELS: &str = "labels of SELinux are not passed on";
const BLOCKS: &str = "is of block devices: leave it out";
const LOG: &str = "what goes wrong is in the log: write log=FILE for another place";
const KEYS: &str = "keys come from the environment, a profile of ~/.aws or ~/.aliyun, or the role of the machine: write profile=NAME";
const ROLE: &str = "the role of the machine is found by itself";
const NAMES: &str = "names are bounded by memory=SIZE";
const SHOWN: &str = "folders are what listings show, with and without objects that stand for them";
const BUCKET: &str = "the bucket is the source: write s3://BUCKET/PREFIX";
const LISTED: &str = "a listing comes in pages of 1000";
const MISSING: &str = "names that are not there are remembered: negative-lifetime=TIME";
const PARALLEL: &str = "how many requests bring most is found: parallel=N fixes it";
pub const PARTS: &str =
    "how an object is sent and copied follows its size and the link: part-size=SIZE sets its parts";
const COPIES: &str =
    "the service copies objects for renames, appends and changes of attributes: leave it out where it can";
pub const IMDS: &str = "the metadata service of a machine is asked by its version 2: leave it out";

/// `allow_other`, `default_permissions`, `nonempty`, `uid`, `gid` and `max_background` are the same here.
pub const TABLES: &[ProgramOptions] = &[
    ProgramOptions { title: "libfuse 2 and 3", rows: LIBFUSE },
    ProgramOptions { title: "s3fs and ossfs 1.0", rows: S3FS },
    ProgramOptions { title: "mountpoint-s3", rows: MOUNTPOINT },
    ProgramOptions { title: "goofys", rows: GOOFYS },
];

const LIBFUSE: &[ForeignOption] = &[
    row("umask", "", Umask),
    row("fmask", "", Mask("file-mode")),
    row("dmask", "", Mask("dir-mode")),
    row("attr_timeout", "1.0", Knob("attribute-lifetime", Seconds)),
    row("entry_timeout", "1.0", Knob("attribute-lifetime", Seconds)),
    row("negative_timeout", "0.0", Knob("negative-lifetime", Seconds)),
    row("ac_attr_timeout", "1.0", Idle(VERSIONS)),
    row("kernel_cache", "", Idle(VERSIONS)),
    row("auto_cache", "", Idle(VERSIONS)),
    row("noauto_cache", "", Idle(VERSIONS)),
    row("auto_inval_data", "", Idle(VERSIONS)),
    row("no_auto_inval_data", "", Idle(VERSIONS)),
    row("explicit_inval_data", "", Idle(VERSIONS)),
    row("direct_io", "", Sets("direct-bytes", "1")),
    row("max_readahead", "", Knob("kernel-readahead", Same)),
    row("congestion_threshold", "", Idle(AHEAD)),
    row("async_read", "", Idle(AHEAD)),
    row("sync_read", "", Idle(AHEAD)),
    row("async_dio", "", Idle("direct reads do not wait for each other")),
    row("no_async_dio", "", Idle("direct reads do not wait for each other")),
    row("max_read", "", Idle(REQUESTS)),
    row("max_write", "", Idle(REQUESTS)),
    row("big_writes", "", Idle(REQUESTS)),
    row("large_read", "", Idle(REQUESTS)),
    row("max_threads", "10", Knob("fuse-threads", Same)),
    row("max_idle_threads", "", Idle(THREADS)),
    row("clone_fd", "", Idle(THREADS)),
    row("noclone_fd", "", Idle(THREADS)),
    row("io_uring", "", Idle(THREADS)),
    row("io_uring_q_depth", "", Idle(THREADS)),
    row("splice_read", "", Idle(SPLICE)),
    row("no_splice_read", "", Idle(SPLICE)),
    row("splice_write", "", Idle(SPLICE)),
    row("no_splice_write", "", Idle(SPLICE)),
    row("splice_move", "", Idle(SPLICE)),
    row("no_splice_move", "", Idle(SPLICE)),
    row(
        "readdirplus",
        "auto",
        Is(&["true", "1", "yes", "auto"], "a folder is read with what its listing tells: leave it out"),
    ),
    row("use_ino", "", Idle(NUMBERS)),
    row("readdir_ino", "", Idle(NUMBERS)),
    row("noforget", "", Idle(NUMBERS)),
    row("remember", "", Idle(NUMBERS)),
    row("intr", "", Idle("whoever waits for an origin can be interrupted and killed")),
    row("intr_signal", "", Idle("whoever waits for an origin can be interrupted and killed")),
    row("no_remote_lock", "", Idle(LOCKS)),
    row("no_remote_flock", "", Idle(LOCKS)),
    row("no_remote_posix_lock", "", Idle(LOCKS)),
    row("writeback_cache", "", Idle(WRITES)),
    row("no_writeback_cache", "", Idle(WRITES)),
    row("atomic_o_trunc", "", Idle(WRITES)),
    row("hard_remove", "", Idle("a file that is removed while it is open is hidden under no other name")),
    row("parallel_direct_writes", "", Idle(WRITES)),
    row("nopath", "", Idle("is for programs that are written with libfuse")),
    row("time_gran", "", Idle("times are as the origin, or the metadata of an object, tells them")),
    row("fsname", "", Idle("the source is shown by its URL")),
    row("subtype", "", Idle("the type is fuse.flatout")),
    row("debug", "", Idle(LOG)),
    row(
        "auto_unmount",
        "",
        Idle(
            "when its process dies programs get errors rather than an empty folder; `flatout umount`, or mounting anew, clears that",
        ),
    ),
    row(
        "allow_root",
        "",
        Refused("root alone cannot be let in: write allow_other, and permission bits that keep the rest out"),
    ),
    row("modules", "", Refused(STACKED)),
    row("subdir", "", Refused("the folder is part of the source: write s3://BUCKET/PREFIX")),
    row("rellinks", "", Refused("attributes=metadata shows links as they were made: leave it out")),
    row("norellinks", "", Idle("attributes=metadata shows links as they were made")),
    row("from_code", "", Refused(STACKED)),
    row("to_code", "", Refused(STACKED)),
    row("setuid", "", Refused("start it as that user: `sudo -u USER flatout mount …`")),
    row(
        "drop_privileges",
        "",
        Refused("mount first, and name /dev/fd/N as the mount point to a process without rights"),
    ),
    row("fd", "", Refused("write the descriptor as the mount point: `flatout mount s3://BUCKET /dev/fd/N`")),
    row("rootmode", "", Refused(CONNECTION)),
    row("user_id", "", Refused(CONNECTION)),
    row("group_id", "", Refused(CONNECTION)),
    row("blkdev", "", Refused(BLOCKS)),
    row("blksize", "", Refused(BLOCKS)),
    row("context", "", Refused(LABELS)),
    row("fscontext", "", Refused(LABELS)),
    row("defcontext", "", Refused(LABELS)),
    row("rootcontext", "", Refused(LABELS)),
];

/// Of s3fs 1.97 and of ossfs 1.0 (1.91.10), a fork of it; defaults are those of s3fs. What ossfs 1.0 has
/// beyond that is in `ossfs1.rs`. `retries`, `region`, `profile` and `proxy` are the same here.
const S3FS: &[ForeignOption] = &[
    row("bucket", "", Refused(BUCKET)),
    row("url", "https://s3.amazonaws.com", Endpoint),
    row("host", "https://s3.amazonaws.com", Endpoint),
    row("servicepath", "/", Is(&["/"], "the path is part of the address: write endpoint-url=URL")),
    row("endpoint", "us-east-1", Refused("write region=NAME for a region, endpoint-url=URL for an address")),
    row("use_path_request_style", "", Knob("addressing", PathStyle)),
    row("passwd_file", "", Refused(KEYS)),
    row("accessKeyId", "", Refused(KEYS)),
    row("secretAccessKey", "", Refused(KEYS)),
    row("public_bucket", "0", Knob("no-sign-request", Switch)),
    row("iam_role", "", Is(&["auto", "true"], "the role of the machine is found by itself: leave it out")),
    row("ecs", "", Idle(ROLE)),
    row("use_session_token", "", Idle("a session token is used where keys have one")),
    row("imdsv1only", "", Refused(IMDS)),
    row("ibm_iam_auth", "", Refused(KEYS)),
    row("ibm_iam_endpoint", "", Refused(KEYS)),
    row("credlib", "", Refused(KEYS)),
    row("credlib_opts", "", Refused(KEYS)),
    row("requester_pays", "", Knob("request-payer", Switch)),
    row("sigv4", "", Sets("oss-signature", "v4")),
    row("sigv2", "", Refused("requests are signed by version 4 alone: leave it out")),
    row("proxy_cred_file", "", Refused("write both into the address: proxy=http://USER:PASSWORD@HOST:PORT")),
    row(
        "ipresolve",
        "whatever",
        Is(&["whatever"], "every address of a name is used: write bind=ADDR with an address of that version"),
    ),
    row(
        "no_check_certificate",
        "",
        Refused("an origin is trusted by its certificate: write ca-bundle=FILE with its issuer's"),
    ),
    row(
        "ssl_verify_hostname",
        "2",
        Is(&["2", "1"], "an origin is trusted by its certificate and name: leave it out"),
    ),
    row("ssl_client_cert", "", Refused("no certificate is sent: keys sign every request")),
    row("cipher_suites", "", Refused("the cipher suites of TLS are fixed: leave it out")),
    row("nodnscache", "", Idle("a connection looks its name up when it is made")),
    row("nosscache", "", Idle("sessions of TLS are resumed where the origin allows it")),
    row("noua", "", Idle("requests name this program and its version")),
    row("connect_timeout", "300", Knob("connect-timeout", Seconds)),
    row("readwrite_timeout", "120", Knob("stall-timeout", Seconds)),
    row("stat_cache_expire", "900", Knob("attribute-lifetime", SecondsOrEver)),
    row("stat_cache_interval_expire", "900", Knob("attribute-lifetime", Seconds)),
    row("max_stat_cache_size", "100000", ZeroSets("attribute-lifetime", "0s", NAMES)),
    row("enable_negative_cache", "", Idle(MISSING)),
    row("enable_noobj_cache", "", Idle(MISSING)),
    row("disable_negative_cache", "", Sets("negative-lifetime", "0s")),
    row("disable_noobj_cache", "", Sets("negative-lifetime", "0s")),
    row("list_object_max_keys", "1000", Idle(LISTED)),
    row("listobjectsv2", "", Idle("listings are of version 2")),
    row("noxmlns", "", Idle("listings are read with and without a name space")),
    row(
        "compat_dir",
        "",
        Refused(
            "an object NAME_$folder$ is shown as a file, and a folder by what lies below it: leave it out",
        ),
    ),
    row("notsup_compat_dir", "", Idle(SHOWN)),
    row(
        "complement_stat",
        "",
        Idle("a file without attributes of its own has those of file-mode, dir-mode, uid and gid"),
    ),
    row("use_xattr", "", Sets("attributes", "metadata")),
    row("update_parent_dir_stat", "", Refused("a folder keeps its time when its files change: leave it out")),
    row("use_wtf8", "", Refused("keys are shown as they are: leave it out")),
    row(
        "mp_umask",
        "0000",
        Refused("the mount point is a folder as others: write dmask=BITS or dir-mode=BITS"),
    ),
    row("bucket_size", "", Refused("a bucket has no size: leave it out")),
    row("tmpdir", "/tmp", Knob("staging", Same)),
    row(
        "use_cache",
        "",
        Refused(
            "there is no cache on disk yet: leave it out; staging=DIR is for files that are written in any order",
        ),
    ),
    row("check_cache_dir_exist", "", Idle("there is no cache on disk yet")),
    row("del_cache", "", Idle("there is no cache on disk yet")),
    row(
        "set_check_cache_sigusr1",
        "",
        Refused("there is no cache on disk to check: SIGUSR1 writes the statistics to stats=FILE"),
    ),
    row("ensure_diskfree", "0", Is(&["0"], STAGING)),
    row("free_space_ratio", "10", Refused(STAGING)),
    row("fake_diskfree", "", Refused("is for tests of that program: leave it out")),
    row("max_dirty_data", "5120", Idle(PARTS)),
    row("multipart_size", "10", Knob("part-size", Mebibytes)),
    row("multipart_copy_size", "512", Idle(PARTS)),
    row("multipart_threshold", "25", Idle(PARTS)),
    row("putheader_mp_threshold", "", Idle(PARTS)),
    row("singlepart_copy_limit", "512", Idle(PARTS)),
    row("streamupload", "", Idle(PARTS)),
    row("nomultipart", "", Refused("a file that is longer than a part is sent in parts: leave it out")),
    row("nomixupload", "", Refused(COPIES)),
    row("nocopyapi", "", Refused(COPIES)),
    row("norenameapi", "", Refused(COPIES)),
    row("multireq_max", "20", Idle(PARALLEL)),
    row("parallel_count", "5", Idle(PARALLEL)),
    row("parallel_upload", "", Idle(PARALLEL)),
    row("max_thread_count", "10", Idle(PARALLEL)),
    row("fd_page_size", "", Idle("has no effect there either")),
    row("enable_content_md5", "", Idle("the origin compares a checksum of what is sent, or states its own")),
    row("enable_unsigned_payload", "", Idle("no signature is of the content, which a checksum proves")),
    row("default_acl", "private", Refused(STORED)),
    row("acl", "private", Refused(STORED)),
    row("storage_class", "standard", Refused(STORED)),
    row("use_rrs", "", Refused(STORED)),
    row("use_sse", "", Refused(STORED)),
    row("load_sse_c", "", Refused("objects under a key of the customer's cannot be read here")),
    row("ahbe_conf", "", Refused(STORED)),
    row("mime", "", Refused(STORED)),
    row("logfile", "", Named("log")),
    row("dbglevel", "crit", Idle(LOG)),
    row("curldbg", "", Idle(LOG)),
    row("f2", "", Idle(LOG)),
    row("insecure_logging", "", Idle(LOG)),
    row("no_time_stamp_msg", "", Idle("each line of a log file has its time")),
    row("instance_name", "", Idle("`flatout top` and the log's name tell mounts apart by their folders")),
];

const MOUNTPOINT: &[ForeignOption] = &[
    row("prefix", "", Refused("the prefix is part of the source: write s3://BUCKET/PREFIX")),
    row("metadata-ttl", "1", Knob("attribute-lifetime", Seconds)),
    row("negative-metadata-ttl", "1", Knob("negative-lifetime", Seconds)),
    row("max-threads", "16", Knob("fuse-threads", Same)),
    row("aws-max-attempts", "10", Refused("write retries=N: tries after the first")),
    row("force-path-style", "", Knob("addressing", PathStyle)),
    row("requester-pays", "", Knob("request-payer", Switch)),
    row(
        "auto-unmount",
        "",
        Idle(
            "when its process dies programs get errors rather than an empty folder; `flatout umount`, or mounting anew, clears that",
        ),
    ),
    row(
        "maximum-throughput-gbps",
        "",
        Refused("what link and origin bear is found: write bandwidth=RATE for less"),
    ),
    row("read-part-size", "8388608", Refused(FOUND)),
    row("cache", "", Refused(DISK)),
    row("cache-xz", "", Refused(DISK)),
    row("max-cache-size", "", Refused(DISK)),
    row(
        "dual-stack",
        "",
        Refused("every address of a name is used: write endpoint-url=URL for another name"),
    ),
    row("transfer-acceleration", "", Refused("write endpoint-url=URL for another name of the service")),
    row("expected-bucket-owner", "", Refused("the owner of a bucket is not compared")),
    row("bucket-type", "", Refused("only buckets for general use are known: leave it out")),
    row("log-directory", "", Refused("write log=FILE")),
    row("no-log", "", Refused("write log=/dev/null")),
    row("debug-crt", "", Idle(LOG)),
    row("log-metrics", "", Refused("write metrics=PORT for numbers, or look with `flatout top`")),
    row(
        "allow-delete",
        "",
        Idle("files can be removed and replaced: write read-only where they must not be"),
    ),
    row(
        "allow-overwrite",
        "",
        Idle("files can be removed and replaced: write read-only where they must not be"),
    ),
    row("incremental-upload", "", Refused(SENT)),
    row("write-part-size", "8388608", Refused(SENT)),
    row("upload-checksums", "crc32c", Refused(SENT)),
    row("sse", "", Refused(STORED)),
    row("sse-kms-key-id", "", Refused(STORED)),
];

const GOOFYS: &[ForeignOption] = &[
    row("stat-cache-ttl", "1m", Knob("attribute-lifetime", Same)),
    row("type-cache-ttl", "1m", Knob("attribute-lifetime", Same)),
    row("http-timeout", "30s", Knob("stall-timeout", Same)),
    row("subdomain", "", Sets("addressing", "virtual")),
    row("cheap", "", Idle("a listing is asked for rather than many names")),
    row("no-implicit-dir", "", Refused("folders are what listings show: leave it out")),
    row("use-content-type", "", Refused(STORED)),
    row("debug_fuse", "", Idle(LOG)),
    row("debug_s3", "", Idle(LOG)),
];

#[cfg(test)]
#[path = "libfuse_tests.rs"]
mod tests;
