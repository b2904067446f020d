//! The page that is generated from the tables.

use std::fmt::Write;
use std::path::Path;

use super::*;
use crate::foreign::described;

fn page() -> String {
    let mut page = "\
# Coming from other mounts: options of libfuse, s3fs, mountpoint-s3 and goofys

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
`nonempty`, `max_background`, `region`, `profile`, `retries`, `file-mode`, `dir-mode`,
`endpoint-url`, `no-sign-request`, `part-size`, `foreground`. [mount.md](mount.md) has all options,
[from-ossfs.md](from-ossfs.md) those of ossfs 2.0.

This page is generated from `crates/mounting/src/libfuse.rs`:
`FLATOUT_BLESS=1 cargo test -p flatout-mounting libfuse` writes it.
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
