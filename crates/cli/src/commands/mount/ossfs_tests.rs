//! The table against ossfs 2.0's list, our knobs, and the page that is written from it.

use std::fmt::Write;
use std::path::Path;

use super::*;

/// Those that are the same here, by their names; `dir_mode` too.
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

#[test]
fn every_row_names_a_knob_that_there_is() {
    for (at, row) in ROWS.iter().enumerate() {
        assert!(ROWS[..at].iter().all(|earlier| earlier.name != row.name), "{} twice", row.name);
        if let Meaning::Knob(knob, _) = row.meaning {
            assert!(flatout_settings::knob(knob).is_some(), "{}: there is no {knob}", row.name);
        }
        if let Meaning::Refused(why) | Meaning::Is(_, why) = row.meaning {
            assert!(!why.ends_with('.') && !why.contains('\n'), "{}", row.name);
        }
    }
}

/// The defaults of ossfs 2.0 that mean something here are taken, so that a list of all options is no wall.
#[test]
fn defaults_of_ossfs_are_taken_where_they_mean_something() {
    for row in ROWS.iter().filter(|row| !row.default.is_empty()) {
        match row.meaning {
            Meaning::Knob(knob, unit) => {
                for value in unit.read(Some(row.default)).unwrap() {
                    flatout_settings::Settings::default().set(knob, &value).unwrap();
                }
            }
            Meaning::Is(values, _) => assert!(values.contains(&row.default), "{}", row.name),
            _ => {}
        }
    }
}

fn page() -> String {
    let mut page = "\
# Coming from ossfs 2.0

`flatout mount oss://BUCKET/PREFIX /mnt` in place of `ossfs2 mount /mnt --oss_bucket=…`. In `-o`, and so in fstab, the names of
ossfs 2.0 are understood where they mean something here, with its units; what means nothing is refused by name, with the reason,
rather than taken and forgotten; what is refused and has no default may be stated with an empty value. The same here under the same name: `ro`, `uid`, `gid`, `file_mode`, `dir_mode`, `allow_other` (there
on by default, here off), `default_permissions`, `close_to_open`, `nonempty`. [mount.md](mount.md) has all of ours.

    # ossfs2 mount /mnt --oss_endpoint=oss-cn-hangzhou-internal.aliyuncs.com \\
    #     --oss_bucket=models --oss_bucket_prefix=llama/ --total_mem_limit=4294967296
    flatout mount oss://models/llama/ /mnt -o oss_endpoint=oss-cn-hangzhou-internal.aliyuncs.com -o total_mem_limit=4294967296

Keys: from the environment, `~/.aliyun/config.json`, `~/.ossutilconfig`, roles of pods (RRSA) and machines, found in that order
(`flatout config show` says which); never from options, which everybody on a machine sees.

This page is generated from `crates/cli/src/commands/mount/ossfs.rs`:
`FLATOUT_BLESS=1 cargo test -p flatout-cli ossfs` writes it anew.

| ossfs 2.0 | its default | here |
|---|---|---|
"
    .to_owned();
    for row in ROWS {
        let default = if row.default.is_empty() { "".into() } else { format!("`{}`", row.default) };
        let here = match row.meaning {
            Meaning::Knob(knob, unit) => {
                let unit = match unit {
                    Unit::Seconds => ", in seconds",
                    Unit::Milliseconds => ", in milliseconds",
                    Unit::Bytes => ", in bytes; 0 is `auto`",
                    Unit::PathStyle => ": `true` is `path`, `false` is `auto`",
                    Unit::List => ", one for each address",
                    Unit::Same => "",
                };
                format!("`{knob}`{unit}")
            }
            Meaning::Foreground => "`foreground`".into(),
            Meaning::MetricsPort => "`metrics=127.0.0.1:PORT`; 0 is none".into(),
            Meaning::Is(values, why) => format!("is `{}`; else refused: {why}", values[0]),
            Meaning::Refused(why) => format!("refused: {why}"),
        };
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
        "FLATOUT_BLESS=1 cargo test -p flatout-cli ossfs writes docs/from-ossfs.md anew"
    );
}

#[test]
fn what_is_the_same_is_no_row() {
    for name in SAME {
        assert!(row_of(name).is_none(), "{name}");
    }
}

#[test]
fn units_are_read() {
    let check =
        |unit: Unit, text: &str, expected: Result<&[&str], &str>| match (unit.read(Some(text)), expected) {
            (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{text}"),
            (Err(got), Err(expected)) => assert!(got.contains(expected), "{got}"),
            (got, expected) => panic!("{text}: {got:?}, not {expected:?}"),
        };
    check(Seconds, "60", Ok(&["60s"]));
    check(Seconds, "-1", Err("'-1' is no number: write seconds"));
    check(Seconds, "", Err("a value is missing: write seconds"));
    check(Milliseconds, "100", Ok(&["100ms"]));
    check(Bytes, "0", Ok(&["auto"]));
    check(Bytes, "1G", Ok(&["1G"]));
    check(PathStyle, "true", Ok(&["path"]));
    check(PathStyle, "False", Ok(&["auto"]));
    check(PathStyle, "maybe", Err("not a switch"));
    check(List, "10.0.0.1;10.0.0.2", Ok(&["10.0.0.1", "10.0.0.2"]));
}
