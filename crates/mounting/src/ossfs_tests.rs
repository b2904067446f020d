//! The table against the options that need no row, and the page that is generated from it.

use std::fmt::Write;
use std::path::Path;

use super::*;
use crate::foreign::described;

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
# Coming from ossfs 2.0

Name the bucket and prefix as the source, and keep the options in `-o` or in fstab:

    # ossfs2 mount /mnt --oss_endpoint=oss-cn-hangzhou-internal.aliyuncs.com \\
    #     --oss_bucket=models --oss_bucket_prefix=llama/ --total_mem_limit=4294967296
    flatout mount oss://models/llama/ /mnt -o oss_endpoint=oss-cn-hangzhou-internal.aliyuncs.com -o total_mem_limit=4294967296

Keys come from the environment, `~/.aliyun/config.json`, `~/.ossutilconfig`, and roles of pods
(RRSA) and machines, in that order; `flatout config show` says which are used. They never come from
options, which every user of a machine can see.

The names of ossfs 2.0 keep its units. An option that means nothing here is refused by name with the
reason; if it has no default, an empty value is accepted. These are the same under the same name:
`ro`, `uid`, `gid`, `file_mode`, `dir_mode`, `allow_other` (there on by default, here off),
`default_permissions`, `close_to_open`, `nonempty`. [mount.md](mount.md) has all options.

This page is generated from `crates/mounting/src/ossfs.rs`:
`FLATOUT_BLESS=1 cargo test -p flatout-mounting ossfs` writes it.

| ossfs 2.0 | its default | here |
|---|---|---|
"
    .to_owned();
    for row in ROWS {
        let default = if row.default.is_empty() { "".into() } else { format!("`{}`", row.default) };
        let here = described(row.meaning);
        let _ = writeln!(page, "| `{}` | {default} | {here} |", row.name);
    }
    page
}

#[test]
fn the_page_is_what_the_table_says() {
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
