//! The options of ossfs 1.0: all are known by name, with its units, and its modes mean what they should.

use super::*;
use crate::options::{MountOptions, names};
use crate::tables::{page_of, row_of};

/// Every option of its help and of its parser, of version 1.91.10, without those of libfuse.
const OPTIONS: &str = "
    accessKeyId ahbe_conf allow_other bucket check_cache_dir_exist cipher_suites cloudbox_id
    complement_stat connect_timeout credential_process credlib credlib_opts curldbg dbglevel
    default_acl del_cache direct_read direct_read_backward_chunks direct_read_chunk_size
    direct_read_local_file_cache_size_mb direct_read_prefetch_chunks direct_read_prefetch_limit
    direct_read_prefetch_thread disable_imdsv2 disable_noobj_cache download_traffic_limit
    enable_content_md5 enable_unsigned_payload endpoint ensure_diskfree f2 fake_diskfree
    fd_page_size free_space_ratio gid host instance_name list_object_max_keys listobjectsv2 logfile
    max_dirty_data max_stat_cache_size mime mp_umask multipart_copy_size multipart_size
    multipart_threshold multireq_max no_check_certificate no_time_stamp_msg nocopyapi nodnscache
    nomixupload nomultipart nonempty norenameapi noshallowcopyapi nosscache notsup_compat_dir noua
    noxmlns parallel_count parallel_upload passwd_file public_bucket ram_role readdir_check_size
    readdir_optimize readwrite_timeout region requester_pays retries secretAccessKey servicepath
    set_check_cache_sigusr1 sigv1 sigv4 simulate_mtime_ns_with_crc64 singlepart_copy_limit
    skip_clean_statcache_on_ro_flush ssl_verify_hostname stat_cache_expire
    stat_cache_interval_expire storage_class symlink_in_meta tmpdir uid umask upload_traffic_limit
    url use_cache use_path_request_style use_session_token use_sse use_wtf8 use_xattr
";

#[track_caller]
fn taken(list: &str) -> MountOptions {
    MountOptions::parse(&[list.to_owned()], false).unwrap_or_else(|failure| panic!("{list}: {failure}"))
}

#[track_caller]
fn check_refused(list: &str, says: &[&str]) {
    let shown = MountOptions::parse(&[list.to_owned()], false).expect_err(list).to_string();
    for part in says {
        assert!(shown.contains(part), "{list}: {shown} lacks {part:?}");
    }
}

#[test]
fn every_option_is_known_by_name() {
    let all: Vec<&str> = OPTIONS.split_whitespace().collect();
    for option in &all {
        let is_ours = names().any(|name| name.replace('-', "_") == *option);
        assert!(is_ours || row_of(option).is_some(), "{option}");
    }
    for row in ROWS {
        assert!(all.contains(&row.name), "{} is no option of ossfs 1.0", row.name);
        assert_eq!(page_of(row.name), "docs/from-ossfs.md");
    }
}

/// What it reads through a local disk, memory, or first the one and then the other, is read here through
/// memory.
#[test]
fn its_three_modes_are_taken() {
    let check = |list: &str, knobs: &[(&'static str, &str)]| {
        let knobs: Vec<(&str, String)> =
            knobs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        assert_eq!(taken(list).knobs, knobs, "{list}");
    };
    check("tmpdir=/data/tmp,use_cache=,ensure_diskfree=0", &[("staging", "/data/tmp")]);
    check("direct_read,direct_read_prefetch_limit=1024", &[("memory", "1024MiB")]);
    check("direct_read,direct_read_chunk_size=32,direct_read_prefetch_chunks=128", &[]);
    check("direct_read,direct_read_local_file_cache_size_mb=5120,direct_read_backward_chunks=32", &[]);
    assert_eq!(taken("direct_read"), MountOptions::default());
    check_refused("direct_read=false", &["-o direct_read: ", "memory"]);
    check_refused("use_cache=/data/cache", &["no cache on disk", "staging=DIR"]);
    check_refused("ensure_diskfree=1024", &["staging-size=SIZE"]);
}

#[test]
fn its_units_are_kept() {
    let check = |list: &str, knob: &'static str, value: &str| {
        let chosen = taken(list);
        assert_eq!((chosen.knobs, chosen.notes), (vec![(knob, value.to_owned())], vec![]), "{list}");
    };
    check("multipart_size=32", "part-size", "32MiB");
    check("connect_timeout=300", "connect-timeout", "300s");
    check("connect_timeout=5s", "connect-timeout", "5s");
    check("readwrite_timeout=120", "stall-timeout", "120s");
    check("stat_cache_expire=-1", "attribute-lifetime", "31536000s");
    check("max_stat_cache_size=0", "attribute-lifetime", "0s");
    check("sigv1", "oss-signature", "v1");
    check("sigv4", "oss-signature", "v4");
    assert_eq!(taken("ram_role,upload_traffic_limit=0,readdir_check_size=0"), MountOptions::default());
    assert_eq!(taken("ram_role=auto"), MountOptions::default());
    check_refused("multipart_size=32M", &["-o multipart_size: '32M' is no number: write a number of MiB"]);
    check_refused("connect-timeout=300", &["'300' is not a duration"]);
    check_refused("stat_cache_interval_expire=-1", &["'-1' is no number"]);
    check_refused("download_traffic_limit=819200", &["bandwidth=RATE"]);
    check_refused("ram_role=other", &["role of the machine"]);
}

#[test]
fn a_cache_of_no_names_is_a_lifetime_of_none() {
    let said = taken("max_stat_cache_size=1000,stat_cache_expire=30");
    assert_eq!(said.knobs, [("attribute-lifetime", "30s".to_owned())]);
    assert!(said.notes[0].starts_with("-o max_stat_cache_size: has no effect here: names are"), "{said:?}");
    taken("max_stat_cache_size=0,stat_cache_expire=0");
    check_refused(
        "max_stat_cache_size=0,stat_cache_expire=30",
        &["stat_cache_expire=30: contradicts max_stat_cache_size=0"],
    );
}

/// There chmod(2) succeeds and does nothing, and extended attributes cannot be asked for as well.
#[test]
fn listings_without_heads_and_attributes_contradict_each_other() {
    assert_eq!(taken("readdir_optimize").knobs, [("attributes", "ignore".to_owned())]);
    assert_eq!(taken("use_xattr").knobs, [("attributes", "metadata".to_owned())]);
    assert_eq!(taken("use_xattr=1").knobs, [("attributes", "metadata".to_owned())]);
    assert_eq!(taken("use_xattr=0").knobs, []);
    assert_eq!(taken("use_xattr=0,attributes=metadata").knobs.len(), 1);
    taken("use_xattr,attributes=metadata");
    taken("readdir_optimize,attributes=ignore,use_xattr=0");
    check_refused(
        "readdir_optimize,attributes=metadata",
        &["-o attributes=metadata: contradicts readdir_optimize"],
    );
    check_refused("use_xattr,readdir_optimize", &["-o readdir_optimize: contradicts use_xattr"]);
    check_refused("readdir_check_size=4096", &["attributes=metadata"]);
    check_refused("symlink_in_meta", &["target", "attributes=metadata"]);
}

#[test]
fn what_has_no_effect_names_the_page_that_says_why() {
    let said = |list: &str| taken(list).notes.join("\n");
    let alone = said("direct_read_chunk_size=4,direct_read_prefetch_chunks=32");
    assert!(alone.ends_with("have no effect here: docs/from-ossfs.md says why of each"), "{alone}");
    let both = said("direct_read_chunk_size=4,parallel_count=128");
    assert!(both.ends_with("docs/from-libfuse.md and docs/from-ossfs.md say why of each"), "{both}");
}
