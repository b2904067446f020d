//! Every option of ossfs 2.0: what it means here, or why it means nothing. docs/from-ossfs.md is written from
//! this table, and from that of `ossfs1.rs`.

use crate::foreign::OptionMeaning::{Idle, Is, Knob, MetricsPort, Refused, Same as Named};
use crate::foreign::ValueUnit::{Bytes, List, Milliseconds, PathStyle, Same, Seconds};
use crate::foreign::{ForeignOption, row};

pub const STORED: &str = "objects are stored as their bucket says: leave it out";
pub const SENT: &str =
    "how parts are sent follows the link: leave it out, or write part-size=SIZE, parallel=N";
const RENAMES: &str = "write rename-limit=0: then mv copies folders file by file";
const APPENDABLE: &str = "new objects are no appendable ones: leave it out";
pub const STAGING: &str = "the disk of staging=DIR is bounded by staging-size=SIZE: write that";
pub const DISK: &str = "there is no cache on disk yet: leave it out";
pub const FOUND: &str =
    "how much is fetched ahead follows what readers wait for, within memory=SIZE: leave it out";
pub const KEYS: &str = "keys in options are seen by everybody on the machine: set OSS_ACCESS_KEY_ID and OSS_ACCESS_KEY_SECRET, \
                    or name a profile of ~/.aliyun/config.json with profile=NAME";
const RENEWED: &str = "keys are renewed ahead of their end, as what gave them says: leave it out";
const INODES: &str = "names are bounded by memory=SIZE: leave it out";
const LOG: &str = "write log=FILE for another place; what goes wrong is in it, once each: leave the rest out";
const ACK: &str = "is of Alibaba Cloud's container service alone: leave it out";
const HDFS: &str = "is of OSS-HDFS, which is not read here";
const ONE_LIFETIME: &str = "names and attributes have one lifetime: write attribute-lifetime=TIME";

/// In the order of its documentation: mount, bucket, credentials, metadata, data cache, read, write,
/// resources, log. `ro`, `uid`, `gid`, `file_mode`, `allow_other`, `default_permissions`, `close_to_open` and
/// `nonempty` are the same here.
pub const ROWS: &[ForeignOption] = &[
    row("f", "false", Named("foreground")),
    row("d", "false", Is(&["false", "0"], LOG)),
    row("fuse_threads", "128", Knob("fuse-threads", Same)),
    row(
        "readdirplus",
        "true",
        Is(&["true", "1", "yes", "auto"], "a folder is read with what its listing tells: leave it out"),
    ),
    row(
        "ignore_fsync",
        "true",
        Is(&["true", "1", "false", "0"], "fsync publishes what was written: leave it out"),
    ),
    row(
        "enable_symlink",
        "false",
        Is(
            &["false", "0"],
            "write attributes=metadata: links are kept as ossfs 1.0 does, and not as OSS's own symbolic links",
        ),
    ),
    row(
        "enable_xattr",
        "false",
        Is(&["false", "0"], "is of OSS-HDFS there; attributes=metadata keeps extended attributes"),
    ),
    row("hdfs_set_owner_on_create", "false", Is(&["false", "0"], HDFS)),
    row("oss_hdfs_client_options", "", Refused(HDFS)),
    row("seq_read_detect_count", "3", Refused(FOUND)),
    row("allow_rename_dir", "true", Is(&["true", "1", "false", "0"], RENAMES)),
    row("rename_dir_limit", "2000000", Knob("rename-limit", Same)),
    row("rename_dir_concurrency", "128", Refused(SENT)),
    row(
        "allow_mark_dir_stale_recursively",
        "false",
        Is(&["false", "0"], "names below a renamed folder are looked up again: leave it out"),
    ),
    row("sync_upload", "true", Is(&["true", "1"], "close publishes what was written: leave it out")),
    row(
        "fuse_device_fd",
        "-1",
        Is(&["-1"], "write the descriptor as the mount point: `flatout mount oss://BUCKET /dev/fd/N`"),
    ),
    row("oss_endpoint", "", Knob("oss-endpoint", Same)),
    row("oss_region", "", Knob("oss-region", Same)),
    row("oss_bucket", "", Refused("the bucket is the source: write oss://BUCKET")),
    row("oss_bucket_prefix", "", Refused("the prefix is part of the source: write oss://BUCKET/PREFIX")),
    row(
        "auto_create_bucket",
        "false",
        Is(&["false", "0"], "make the bucket before: `flatout mb oss://BUCKET`"),
    ),
    row("agentic_bucket", "", Refused("the bucket is the source: write oss://BUCKET")),
    row("path_style", "false", Knob("addressing", PathStyle)),
    row(
        "enable_ipv6",
        "true",
        Is(
            &["true", "1"],
            "every address of a name is used: write bind=ADDR with an address of IPv4 to keep to those",
        ),
    ),
    row("bind_ips", "", Knob("bind", List)),
    row("http_proxy", "", Knob("proxy", Same)),
    row("oss_access_key_id", "", Refused(KEYS)),
    row("oss_access_key_secret", "", Refused(KEYS)),
    row(
        "ram_role",
        "",
        Is(
            &["auto", "true", ""],
            "the role of the machine is found by itself; ALIBABA_CLOUD_ECS_METADATA names another one",
        ),
    ),
    row(
        "credential_process",
        "",
        Refused(
            "a program that gives keys stands in a profile (mode External) of ~/.aliyun/config.json: profile=NAME",
        ),
    ),
    row("credential_refresh_interval", "0", Is(&["0"], RENEWED)),
    row("credential_refresh_backoff", "false", Refused(RENEWED)),
    row("attr_timeout", "60", Knob("attribute-lifetime", Seconds)),
    row("negative_timeout", "0", Knob("negative-lifetime", Seconds)),
    row("fuse_attr_timeout", "-1", Is(&["-1"], ONE_LIFETIME)),
    row("fuse_entry_timeout", "-1", Is(&["-1"], ONE_LIFETIME)),
    row(
        "kernel_readdir_cache_timeout",
        "0",
        Is(&["0"], "folders are remembered here: write attribute-lifetime=TIME"),
    ),
    row("oss_negative_cache_timeout", "0", Knob("negative-lifetime", Seconds)),
    row("oss_negative_cache_size", "10000", Refused(INODES)),
    row("max_inode_cache_count", "0", Refused(INODES)),
    row("inode_cache_eviction_threshold", "0", Refused(INODES)),
    row("inode_cache_eviction_interval_ms", "30000", Refused(INODES)),
    row("async_task_limit", "1000", Refused(INODES)),
    row("cache_type", "standard", Is(&["standard"], DISK)),
    row("memory_data_cache_size", "0", Is(&["0"], "what was read stays within memory=SIZE: write that")),
    row(
        "share_fd_read_buffer",
        "true",
        Is(&["true", "1"], "all readers of a file share what was fetched: leave it out"),
    ),
    row("disk_data_cache_dir", "", Refused(DISK)),
    row("disk_data_cache_size", "0", Is(&["0"], DISK)),
    row("disk_data_cache_io_engine", "psync", Refused(DISK)),
    row("libaio_vcpu_count", "4", Refused(DISK)),
    row("disk_available_space", "1G", Refused(DISK)),
    row("disk_data_cache_max_file_size", "-1", Refused(DISK)),
    row(
        "prefetch_concurrency",
        "256",
        Refused("how many requests bring most is found: write parallel=N to fix it"),
    ),
    row("prefetch_concurrency_per_file", "64", Refused(FOUND)),
    row("prefetch_chunk_size", "8388608", Refused(FOUND)),
    row("prefetch_chunks", "0", Is(&["0"], FOUND)),
    row("min_reserved_buffer_size_per_file", "1048576", Refused(FOUND)),
    row("upload_buffer_size", "8388608", Knob("part-size", Bytes)),
    row("upload_concurrency", "64", Refused(SENT)),
    row("upload_copy_concurrency", "64", Refused(SENT)),
    row("enable_appendable_object", "false", Is(&["false", "0"], APPENDABLE)),
    row("appendable_object_autoswitch_threshold", "0", Is(&["0"], APPENDABLE)),
    row("enable_crc64", "true", Is(&["true", "1"], "what is sent is verified: write no-verify not to")),
    row("temp_dir", "", Knob("staging", Same)),
    row("random_write_chunk_size", "2097152", Idle("changes are noted byte by byte")),
    row("random_write_max_file_size", "107374182400", Refused(STAGING)),
    row("temp_dir_free_bytes", "1073741824", Refused(STAGING)),
    row("temp_dir_free_percent", "0", Is(&["0"], STAGING)),
    row("set_mime_for_rename_dst", "false", Is(&["false", "0"], STORED)),
    row("total_mem_limit", "0", Knob("memory", Bytes)),
    row("total_rw_mem_ratio", "0.6", Refused("one memory=SIZE is for everything: leave it out")),
    row(
        "oss_vcpu_count",
        "8",
        Refused("write shards=N for the threads that own connections, or leave it out"),
    ),
    row("oss_request_timeout_ms", "60000", Knob("stall-timeout", Milliseconds)),
    row("max_list_ret_count", "100", Refused("a listing comes in pages of 1000: leave it out")),
    row("use_list_obj_v2", "true", Is(&["true", "1"], "listings are of version 2: leave it out")),
    row(
        "use_auth_cache",
        "false",
        Refused("one signature serves all ranges of an object anyway: leave it out"),
    ),
    row(
        "enable_transmission_control",
        "true",
        Is(&["true", "1"], "an origin that asks for less is asked less: leave it out"),
    ),
    row("tc_max_latency_threshold_us", "5000000", Refused("what an origin bears is found: leave it out")),
    row("log_dir", "/tmp/ossfs2/", Refused(LOG)),
    row("log_level", "info", Refused(LOG)),
    row("log_file_max_size", "67108864", Refused(LOG)),
    row("log_file_max_count", "8", Refused(LOG)),
    row("metrics_port", "0", MetricsPort),
    row("metrics_ip", "127.0.0.1", Is(&["127.0.0.1"], "write metrics=ADDR:PORT for another address")),
    row(
        "enable_admin_server",
        "true",
        Is(&["true", "1"], "`flatout top` asks a running mount by a socket of its own: leave it out"),
    ),
    row("enable_photon_logs", "false", Is(&["false", "0"], LOG)),
    row("skip_trim_options", "false", Refused("names are taken as they stand: leave it out")),
    row("use_metrics", "", Refused(ACK)),
    row("metrics_top", "", Refused(ACK)),
    row("rrsa_endpoint", "", Refused("roles of pods are found by the variables that ACK sets: leave it out")),
    row(
        "assume_role_arn",
        "",
        Refused(
            "a role to assume stands in a profile (mode RamRoleArn) of ~/.aliyun/config.json: profile=NAME",
        ),
    ),
    row(
        "assume_role_external_id",
        "",
        Refused(
            "a role to assume stands in a profile (mode RamRoleArn) of ~/.aliyun/config.json: profile=NAME",
        ),
    ),
    row("oss_sts_multi_conf_ak_file", "", Refused(ACK)),
    row("oss_sts_multi_conf_sk_file", "", Refused(ACK)),
    row("oss_sts_multi_conf_token_file", "", Refused(ACK)),
];

#[cfg(test)]
#[path = "ossfs_tests.rs"]
mod tests;
