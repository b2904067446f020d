//! docs/settings.md, written from the table of knobs.

use std::fmt::Write;

use crate::kind::format_rate;
use crate::{Group, KNOBS, Kind, Knob, format_duration, format_size};

const PREFACE: &str = "\
# Settings

Every knob is a flag, an environment variable and a key of the config file, under the same name. A value comes from the
first of these that has one; `flatout config show` says each value and where it came from.

1. **flag**: `--region`.
2. **environment**: `FLATOUT_REGION`. One that is empty counts as not set.
3. **profile** of `~/.config/flatout/config.toml` (see below).
4. **found**: what other tools have set (see below), or what follows from another setting: AWS's endpoint from the
   region, the region from the endpoint's name.
5. **default**.

An unknown name is an error that says the nearest one, and a wrong value one that says where it stands.

Sizes take units: `K`, `Ki` and `KiB` are 1024 bytes, `KB` is 1000, and so on with `M`, `G`, `T`, `P`; a bare number is
bytes. A rate is a size and `/s`; one of requests a bare number, or with `/s`. Times need one of `ms`, `s`, `m`, `h`. A switch is on as a bare flag; elsewhere write
`true` or `false`.

This page is generated: change `crates/settings/src/knob.rs` and run `cargo xtask docs`.
";

const FILES: &str = r#"
## The config file

`~/.config/flatout/config.toml`, below `$XDG_CONFIG_HOME` where that is set, or the file that `FLATOUT_CONFIG` names;
`flatout config path` prints it. It is TOML: text in quotes, counts bare, switches `true` or `false`, an array of texts
for what may be given several times. The keys at the top are the default profile's, a table `[profile.NAME]` holds
those of another, which takes nothing from the default one.

```toml
part-size = "16MiB"
resolve = ["minio:9000:10.0.0.1", "minio:9000:10.0.0.2"]

[profile.minio]
endpoint-url = "http://minio:9000"
parallel = 32
```

`--profile` or `FLATOUT_PROFILE` chooses a profile of this file, of `~/.aws` and of `~/.aliyun`, whichever have it; one
that none has is an error. The file holds no keys and no tokens: those stay with AWS's and Alibaba Cloud's own.

## What is found

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

Without `--profile` and `FLATOUT_PROFILE`, `AWS_PROFILE` chooses the profile of AWS's files and `ALIBABA_CLOUD_PROFILE`
that of `~/.aliyun`, and so with a `--profile` that those files do not have. `AWS_CONFIG_FILE`,
`AWS_SHARED_CREDENTIALS_FILE`, `AWS_IGNORE_CONFIGURED_ENDPOINT_URLS` and `ALIBABA_CLOUD_CONFIG_FILE` mean what they mean
to AWS's and Alibaba Cloud's tools. `HTTP_PROXY` in upper case is not read where `REQUEST_METHOD` is set: there, under CGI, a
visitor's header becomes that variable.

What is AWS's serves `s3://` and what is Alibaba Cloud's serves `oss://`. The flags `--endpoint-url` and `--region` serve
both, weaker than `--oss-endpoint` and `--oss-region`. In variables and in config.toml the general `endpoint-url` and
`region` serve `oss://` only where no layer, what is found included, has an `oss-endpoint` or `oss-region`.
"#;

/// Above the table of the knobs that one command alone has.
const OF_A_MOUNT: &str = "\
Flags of `flatout mount` alone. They are options too, as all knobs are there: `-o attribute-lifetime=10s`, or with
underscores, in fstab ([mount.md](mount.md)).

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
