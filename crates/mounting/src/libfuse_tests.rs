//! The page that is generated from the tables.

use std::fmt::Write;
use std::path::Path;

use super::*;
use crate::foreign::described;
use crate::options::names;
use crate::tables::row_of;
use crate::tables::tests::check_shown;

/// Every option of the help and the parser of s3fs 1.97 and of what came after it, without those of libfuse.
const OF_S3FS: &str = "
    ahbe_conf allow_other bucket bucket_size check_cache_dir_exist cipher_suites compat_dir
    complement_stat connect_timeout credlib credlib_opts curldbg dbglevel default_acl del_cache
    disable_negative_cache disable_noobj_cache ecs enable_content_md5 enable_negative_cache
    enable_noobj_cache enable_unsigned_payload endpoint ensure_diskfree fake_diskfree fd_page_size
    free_space_ratio gid hard_remove host iam_role ibm_iam_auth ibm_iam_endpoint imdsv1only
    insecure_logging instance_name ipresolve list_object_max_keys listobjectsv2 load_sse_c logfile
    max_dirty_data max_stat_cache_size max_thread_count mime mp_umask multipart_copy_size
    multipart_size multipart_threshold multireq_max no_check_certificate no_time_stamp_msg nocopyapi
    nodnscache nomixupload nomultipart nonempty norenameapi nosscache notsup_compat_dir noua noxmlns
    parallel_count parallel_upload passwd_file profile proxy proxy_cred_file public_bucket
    putheader_mp_threshold readwrite_timeout region requester_pays retries servicepath
    set_check_cache_sigusr1 sigv2 sigv4 singlepart_copy_limit ssl_client_cert ssl_verify_hostname
    stat_cache_expire stat_cache_interval_expire storage_class streamupload tmpdir uid umask
    update_parent_dir_stat url use_cache use_path_request_style use_rrs use_session_token use_sse
    use_wtf8 use_xattr
";

fn page() -> String {
    let mut page = "\
# Coming from other mounts: options of libfuse, s3fs, ossfs 1.0, mountpoint-s3 and goofys

This page has the options. [from-s3fs-fuse.md](from-s3fs-fuse.md) says what else differs from s3fs,
the mount, and [from-s3fs.md](from-s3fs.md) is about s3fs, the Python package.

Name the bucket and prefix as the source, and keep the options in `-o` or in fstab:

    # s3fs models:/llama /mnt -o url=https://minio:9000,use_path_request_style,umask=022,ro
    flatout mount s3://models/llama /mnt -o url=https://minio:9000,use_path_request_style,umask=022,ro

    # mount-s3 models /mnt --prefix llama/ --read-only --metadata-ttl 60 --region eu-central-1
    flatout mount s3://models/llama /mnt -o read-only,metadata-ttl=60,region=eu-central-1

Dashes and underscores are the same, and dashes in front are ignored. An option has one of three
results:

- It means something here: it sets the option that the table names.
- It has **no effect** and does no harm: it is accepted, and one line names all such options.
- It would be missed: it is **refused**, with the reason and what to write instead. If it has no
  default, an empty value is accepted.

These are the same under the same name: `ro`, `uid`, `gid`, `allow_other`, `default_permissions`,
`nonempty`, `max_background`, `region`, `profile`, `retries`, `proxy`, `file-mode`, `dir-mode`,
`endpoint-url`, `no-sign-request`, `part-size`, `foreground`. [mount.md](mount.md) has all options,
[from-ossfs.md](from-ossfs.md) those of ossfs 2.0, and of ossfs 1.0 what s3fs has not.

This page is generated from `crates/mounting/src/libfuse.rs`:
`FLATOUT_BLESS=1 cargo test -p flatout-mounting libfuse` writes it. Defaults of what s3fs and ossfs
1.0 share are those of s3fs.
"
    .to_owned();
    for table in TABLES {
        let _ = write!(page, "\n## {}\n\n| option | its default | here |\n|---|---|---|\n", table.title);
        for row in table.rows {
            let default = if row.default.is_empty() { "".into() } else { format!("`{}`", row.default) };
            let _ = writeln!(page, "| `{}` | {default} | {} |", row.name, described(row.meaning));
        }
    }
    page
}

#[test]
fn the_page_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-libfuse.md");
    if std::env::var_os("FLATOUT_BLESS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "FLATOUT_BLESS=1 cargo test -p flatout-mounting libfuse writes docs/from-libfuse.md"
    );
}

#[test]
fn every_option_of_s3fs_is_known_by_name() {
    for option in OF_S3FS.split_whitespace() {
        let is_ours = names().any(|name| name.replace('-', "_") == option);
        assert!(is_ours || row_of(option).is_some(), "{option}");
    }
}

#[test]
fn what_the_page_shows_is_understood() {
    check_shown(&page(), 2);
}
