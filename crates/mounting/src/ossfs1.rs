//! The options of ossfs 1.0 that s3fs, of which it is a fork, does not have: docs/from-ossfs.md is written
//! from this table, too. What it has of s3fs is in `libfuse.rs`, what it shares with ossfs 2.0 in `ossfs.rs`.

use crate::foreign::OptionMeaning::{Idle, Is, Knob, Refused, Sets};
use crate::foreign::ValueUnit::Mebibytes;
use crate::foreign::{ForeignOption, row};
use crate::libfuse::{IMDS, PARTS, VERSIONS};

const AHEAD: &str = "how much is fetched ahead follows what readers wait for, within memory=SIZE";
const TRAFFIC: &str = "write bandwidth=RATE, in bytes a second: it is of all requests together";

pub const ROWS: &[ForeignOption] = &[
    row(
        "direct_read",
        "",
        Is(&["true", "1"], "reading goes through memory, never a local disk: leave it out"),
    ),
    row("direct_read_chunk_size", "4", Idle(AHEAD)),
    row("direct_read_prefetch_chunks", "32", Idle(AHEAD)),
    row("direct_read_prefetch_thread", "64", Idle(AHEAD)),
    row("direct_read_prefetch_limit", "1024", Knob("memory", Mebibytes)),
    row("direct_read_backward_chunks", "1", Idle(AHEAD)),
    row(
        "direct_read_local_file_cache_size_mb",
        "0",
        Idle("the start of a file goes through memory as the rest does, and no disk is used"),
    ),
    row("readdir_optimize", "", Sets("attributes", "ignore")),
    row(
        "readdir_check_size",
        "0",
        Is(&["0"], "attributes=metadata sends a HEAD of each file, whatever its size: leave it out"),
    ),
    row(
        "symlink_in_meta",
        "",
        Refused("the content of a link's object is its target: leave it out, and write attributes=metadata"),
    ),
    row("noshallowcopyapi", "", Idle(PARTS)),
    row("upload_traffic_limit", "0", Is(&["0"], TRAFFIC)),
    row("download_traffic_limit", "0", Is(&["0"], TRAFFIC)),
    row("sigv1", "", Sets("oss-signature", "v1")),
    row(
        "cloudbox_id",
        "",
        Refused("the endpoint names the box: write oss-endpoint=ID.REGION.oss-cloudbox.aliyuncs.com"),
    ),
    row("disable_imdsv2", "", Refused(IMDS)),
    row("simulate_mtime_ns_with_crc64", "", Idle(VERSIONS)),
    row(
        "skip_clean_statcache_on_ro_flush",
        "",
        Idle("closing a file that was read forgets nothing: attribute-lifetime=TIME"),
    ),
];

#[cfg(test)]
#[path = "ossfs1_tests.rs"]
mod tests;
