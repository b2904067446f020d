//! docs/settings.md, written from the table of knobs.

use std::fmt::Write;

use crate::kind::format_rate;
use crate::{Group, KNOBS, Kind, Knob, format_duration, format_size};

const PREFACE: &str = "\
# Settings

Set a value by flag, environment variable or config file, under the same name:

    flatout cp --part-size 16MiB s3://bucket/key .
    export FLATOUT_PART_SIZE=16MiB
    part-size = \"16MiB\"                # in ~/.config/flatout/config.toml

`flatout config show` prints each value and its source. If a setting has several values, the first
of these wins:

1. **flag**: `--region`.
2. **environment**: `FLATOUT_REGION`. An empty variable counts as not set.
3. **profile** of `~/.config/flatout/config.toml` (see below).
4. **found**: the settings of other tools (see below), or values that follow from another setting:
   AWS's endpoint from the region, the region from the endpoint's name.
5. **default**.

An unknown name is an error that suggests the nearest one. An error about a value names its source.

| Value | Written as |
|---|---|
| size | a number of bytes, or with a unit: `K`, `Ki` and `KiB` are 1024 bytes, `KB` is 1000; likewise `M`, `G`, `T`, `P` |
| rate | a size and `/s` |
| rate of requests | a number, alone or with `/s` |
| time | a number and one of `ms`, `s`, `m`, `h` |
| switch | the bare flag; elsewhere `true` or `false` |

This page is generated: change `crates/settings/src/knob.rs` and run `cargo xtask docs`.
";

const FILES: &str = r#"
## The config file

The file is `~/.config/flatout/config.toml`, below `$XDG_CONFIG_HOME` if that is set, or the file
that `FLATOUT_CONFIG` names. `flatout config path` prints its path.

It is TOML: text in quotes, counts bare, switches `true` or `false`, an array of texts for settings
that may be repeated. The keys at the top are the default profile. A table `[profile.NAME]` is
another profile, which inherits nothing from the default one.

```toml
part-size = "16MiB"
resolve = ["minio:9000:10.0.0.1", "minio:9000:10.0.0.2"]

[profile.minio]
endpoint-url = "http://minio:9000"
parallel = 32
```

`--profile` or `FLATOUT_PROFILE` selects the profile of this file, of `~/.aws` and of `~/.aliyun`,
whichever have it. A profile that none has is an error. The file holds no keys and no tokens: those
stay in AWS's and Alibaba Cloud's own files.

## Settings found in other tools

| Key | Variables, the first that is set | Then files |
|---|---|---|
| `endpoint-url` | `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `S3_ENDPOINT_URL` | `~/.aws/config`: `s3.endpoint_url` of the profile's `services`, its own `s3.endpoint_url`, `endpoint_url` |
| `region` | `AWS_REGION`, `AWS_DEFAULT_REGION` | `~/.aws/config`, `~/.aws/credentials`: `region` |
| `addressing` | | `~/.aws/config`: `s3.addressing_style` |
| `request-payer` | `AWS_REQUEST_PAYER` (`requester`) | |
| `ca-bundle` | `AWS_CA_BUNDLE` | `~/.aws/config`: `ca_bundle` |
| `oss-endpoint` | `OSS_ENDPOINT` | `~/.ossutilconfig`: `endpoint` |
| `oss-region` | `OSS_REGION`, `ALIBABA_CLOUD_REGION_ID`, `ALIBABA_CLOUD_REGION` | `~/.ossutilconfig`: `region`; `~/.aliyun/config.json`: `region_id` |
| `proxy` | `http_proxy`, `HTTP_PROXY` for http; `https_proxy`, `HTTPS_PROXY` for https; `all_proxy`, `ALL_PROXY` | |
| `no-proxy` | `no_proxy`, `NO_PROXY` | |
| `memory` | | `/proc/self/cgroup` and the least of `memory.max`, `memory.high`, `memory.limit_in_bytes` on the path that it names, else `MemTotal` of `/proc/meminfo`: a quarter of that, 256 MiB to 8 GiB |

Without `--profile` and `FLATOUT_PROFILE`, `AWS_PROFILE` selects the profile of AWS's files, and
`ALIBABA_CLOUD_PROFILE` that of `~/.aliyun`. They also do if those files lack the profile of
`--profile`.

`AWS_CONFIG_FILE`, `AWS_SHARED_CREDENTIALS_FILE`, `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS` and
`ALIBABA_CLOUD_CONFIG_FILE` work as in AWS's and Alibaba Cloud's tools. `HTTP_PROXY` in upper case
is ignored if `REQUEST_METHOD` is set: under CGI, a visitor's header becomes that variable.

AWS's settings apply to `s3://`, Alibaba Cloud's to `oss://`. The flags `--endpoint-url` and
`--region` apply to both, but `--oss-endpoint` and `--oss-region` win for `oss://`. In variables and
in config.toml, the general `endpoint-url` and `region` apply to `oss://` only if no layer, found
values included, has an `oss-endpoint` or `oss-region`.
"#;

/// Above the table of the knobs that one command alone has.
const OF_A_MOUNT: &str = "\
Flags of `flatout mount` alone. Like all settings they are also options:
`-o attribute-lifetime=10s`, or with underscores, in fstab ([mount.md](mount.md)).

";

/// The text of docs/settings.md: a table per group, in the order of [`KNOBS`].
pub fn markdown() -> String {
    let mut page = PREFACE.to_owned();
    for group in Group::ALL {
        let _ = write!(page, "\n## {}\n\n", group.title());
        if group == Group::Mount {
            page.push_str(OF_A_MOUNT);
        }
        page.push_str("| Flag | Environment | Key | Default | Takes | What it does |\n");
        page.push_str("|---|---|---|---|---|---|\n");
        for knob in KNOBS.iter().filter(|knob| knob.group == group) {
            page.push_str(&row(knob));
        }
    }
    page.push_str(FILES);
    page
}

fn row(knob: &Knob) -> String {
    let default = if knob.default.is_empty() { "none".to_owned() } else { format!("`{}`", knob.default) };
    let Knob { name, doc, .. } = knob;
    // A file that chose the profile would be read by the profile that it chooses.
    let key = if *name == "profile" { "none".to_owned() } else { format!("`{name}`") };
    let word = knob.word().map(|word| format!(", `{word}`")).unwrap_or_default();
    format!("| `--{name}` | `{}` | {key} | {default} | {}{word} | {doc} |\n", knob.env(), takes(knob.kind))
}

fn takes(kind: Kind) -> String {
    match kind {
        Kind::Size { min, max } => format!("{} to {}", format_size(min), format_size(max)),
        Kind::Count { min, max } => format!("{min} to {max}"),
        Kind::Rate { min, max } => format!("{} to {}", format_rate(min), format_rate(max)),
        Kind::Frequency { min, max } => format!("{min}/s to {max}/s"),
        Kind::Duration { min_ms, max_ms } => {
            format!("{} to {}", format_duration(min_ms), format_duration(max_ms))
        }
        Kind::Mode => "0 to 0777, in octal".to_owned(),
        Kind::Switch => "nothing".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Choice(choices) => {
            choices.iter().map(|choice| format!("`{choice}`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Many => "text, several times".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_knob_has_its_row() {
        let page = markdown();
        for knob in KNOBS {
            assert_eq!(page.matches(&format!("| `--{}` |", knob.name)).count(), 1, "{}", knob.name);
        }
        assert!(
            page.contains(
                "| `--part-size` | `FLATOUT_PART_SIZE` | `part-size` | `auto` | 1KiB to 4GiB, `auto` |"
            ),
            "{page}"
        );
    }
}
