//! The table against the options that need no row, and the page that is generated from it and from that of
//! ossfs 1.0.

use std::fmt::Write;
use std::path::Path;

use super::*;
use crate::foreign::described;
use crate::ossfs1;
use crate::tables::tests::check_shown;

/// Options that are the same here under the same name.
const SAME: [&str; 9] = [
    "ro",
    "uid",
    "gid",
    "dir_mode",
    "file_mode",
    "allow_other",
    "default_permissions",
    "close_to_open",
    "nonempty",
];

fn page() -> String {
    let mut page = "\
# Coming from ossfs 2.0 and 1.0

Name the bucket and prefix as the source, and keep the options in `-o` or in fstab:

    # ossfs2 mount /mnt --oss_endpoint=oss-cn-hangzhou-internal.aliyuncs.com \\
    #     --oss_bucket=models --oss_bucket_prefix=llama/ --total_mem_limit=4294967296
    flatout mount oss://models/llama/ /mnt -o oss_endpoint=oss-cn-hangzhou-internal.aliyuncs.com -o total_mem_limit=4294967296

    # ossfs models:/llama /mnt -ourl=https://oss-cn-hangzhou-internal.aliyuncs.com -oro
    flatout mount oss://models/llama /mnt -o url=https://oss-cn-hangzhou-internal.aliyuncs.com -o ro

Keys come from the environment, `~/.aliyun/config.json`, `~/.ossutilconfig`, and roles of pods
(RRSA) and machines, in that order; `flatout config show` says which are used. They never come from
options, which every user of a machine can see, nor from `/etc/passwd-ossfs`.

The names of both versions keep their units. An option without effect is accepted, and one line
names it. One that would be missed is refused by name with the reason; if it has no default, an
empty value is accepted. [mount.md](mount.md) has all options.

This page is generated from `crates/mounting/src/ossfs.rs` and `ossfs1.rs`:
`FLATOUT_BLESS=1 cargo test -p flatout-mounting ossfs` writes it.

## ossfs 2.0

These are the same under the same name: `ro`, `uid`, `gid`, `file_mode`, `dir_mode`, `allow_other`
(there on by default, here off), `default_permissions`, `close_to_open`, `nonempty`.

| ossfs 2.0 | its default | here |
|---|---|---|
"
    .to_owned();
    write_rows(&mut page, ROWS);
    page.push_str(
        "
## ossfs 1.0

What is read goes through memory in each of its modes, and is prefetched by how it is read:

| Mode | There, a read goes through | Here |
|---|---|---|
| default | a file on the disk, in `tmpdir` or `use_cache` | memory, within `memory` |
| `direct_read` | memory, within `direct_read_prefetch_limit` | the same: that option sets `memory` |
| hybrid: `direct_read` and `direct_read_local_file_cache_size_mb` | the disk for the start of a file, memory for the rest | memory for all of it |

The default mode, with modes, owners and links, and with a disk for files that are written in any
order: `tmpdir` is `staging` here. Without either, a write elsewhere than at the end fails with
`EOPNOTSUPP`.

    # ossfs work /mnt -ourl=https://oss-cn-hangzhou-internal.aliyuncs.com \\
    #     -otmpdir=/data/tmp -oparallel_count=128 -omultipart_size=32 -oallow_other
    flatout mount oss://work /mnt -o url=https://oss-cn-hangzhou-internal.aliyuncs.com -o tmpdir=/data/tmp -o parallel_count=128 -o multipart_size=32 -o allow_other -o attributes=metadata

The direct mode, without a HEAD of each file (`readdir_optimize` is `attributes=ignore` here, and
making a link is `EOPNOTSUPP`):

    # ossfs models /mnt -ourl=https://oss-cn-hangzhou-internal.aliyuncs.com \\
    #     -odirect_read -odirect_read_prefetch_chunks=128 -oreaddir_optimize
    flatout mount oss://models /mnt -o url=https://oss-cn-hangzhou-internal.aliyuncs.com -o direct_read -o direct_read_prefetch_chunks=128 -o readdir_optimize

The hybrid mode:

    # ossfs models /mnt -ourl=https://oss-cn-hangzhou-internal.aliyuncs.com \\
    #     -odirect_read -odirect_read_local_file_cache_size_mb=5120 -odirect_read_backward_chunks=32
    flatout mount oss://models /mnt -o url=https://oss-cn-hangzhou-internal.aliyuncs.com -o direct_read -o direct_read_local_file_cache_size_mb=5120 -o direct_read_backward_chunks=32

A line of fstab:

    # work  /mnt  fuse.ossfs  _netdev,url=https://oss-cn-hangzhou.aliyuncs.com,allow_other  0 0
    oss://work  /mnt  flatout  _netdev,url=https://oss-cn-hangzhou.aliyuncs.com,allow_other,attributes=metadata,staging=/var/cache/flatout  0 0

ossfs 1.0 keeps modes, owners, times and links in the metadata of objects unless it has
`readdir_optimize`; a mount does so with `attributes=metadata` alone. Both read what the other has
written, links of `symlink_in_meta` included (tried with ossfs 1.91.10, both ways, with its own
signatures, options and styles of addresses). A link of this mount is a file to an ossfs that has
`readdir_optimize`, as any link without `symlink_in_meta` is.

These are the same under the same name: `ro`, `uid`, `gid`, `allow_other`, `nonempty`, `region`,
`retries`. `ram_role` and `credential_process` are in the table above. ossfs 1.0 is a fork of s3fs:
what both have is in [from-libfuse.md](from-libfuse.md#s3fs-and-ossfs-10), and what differs in
[from-s3fs-fuse.md](from-s3fs-fuse.md). Only ossfs 1.0 has these:

| ossfs 1.0 | its default | here |
|---|---|---|
",
    );
    write_rows(&mut page, ossfs1::ROWS);
    page
}

fn write_rows(page: &mut String, rows: &[ForeignOption]) {
    for row in rows {
        let default = if row.default.is_empty() { "".into() } else { format!("`{}`", row.default) };
        let here = described(row.meaning);
        let _ = writeln!(page, "| `{}` | {default} | {here} |", row.name);
    }
}

#[test]
fn the_page_is_what_the_tables_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/from-ossfs.md");
    if std::env::var_os("FLATOUT_BLESS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page(),
        "FLATOUT_BLESS=1 cargo test -p flatout-mounting ossfs writes docs/from-ossfs.md"
    );
}

#[test]
fn what_is_the_same_is_no_row() {
    for name in SAME {
        assert!(ROWS.iter().all(|row| row.name != name), "{name}");
    }
}

#[test]
fn what_the_page_shows_is_understood() {
    check_shown(&page(), 6);
}
