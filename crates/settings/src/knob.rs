//! The table of knobs, and what may be written for each.

use crate::{SettingError, format_duration, format_size, parse_duration, parse_size};

/// One thing that can be set.
#[derive(Debug)]
pub struct Knob {
    /// Kebab-case: the flag without its dashes and the key of the config file.
    pub name: &'static str,
    pub kind: Kind,
    /// As a user would write it; empty when there is none. Of a number it may be a word, which leaves the number open and
    /// may be written too: `auto`, `unlimited`.
    pub default: &'static str,
    /// One line for `--help` and docs/settings.md, without a full stop.
    pub doc: &'static str,
    pub group: Group,
}

/// What a knob takes. Bounds are inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Bytes.
    Size {
        min: u64,
        max: u64,
    },
    Count {
        min: u64,
        max: u64,
    },
    /// Bytes a second.
    Rate {
        min: u64,
        max: u64,
    },
    /// So many a second: `50`, or `50/s`.
    Frequency {
        min: u64,
        max: u64,
    },
    Duration {
        min_ms: u64,
        max_ms: u64,
    },
    /// Permission bits in octal, as chmod(1) takes them.
    Mode,
    /// On or off; a bare flag turns it on.
    Switch,
    Text,
    Choice(&'static [&'static str]),
    /// Text that may be given several times.
    Many,
}

/// What a knob is about: the headings of docs/settings.md and of `--help`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    Origin,
    Speed,
    Patience,
    Proof,
    Mount,
}

/// Every knob, in the order in which `--help` and docs/settings.md show them.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: "endpoint-url",
        kind: Kind::Text,
        default: "",
        doc: "Where S3 is spoken, as in http://127.0.0.1:9000; without it AWS's own endpoint of the region",
        group: Group::Origin,
    },
    Knob {
        name: "region",
        kind: Kind::Text,
        default: "",
        doc: "Region to sign for; without it that of the endpoint's name, else us-east-1",
        group: Group::Origin,
    },
    Knob {
        name: "no-sign-request",
        kind: Kind::Switch,
        default: "false",
        doc: "Ask without credentials, for public buckets",
        group: Group::Origin,
    },
    Knob {
        name: "addressing",
        kind: Kind::Choice(&["auto", "path", "virtual"]),
        default: "auto",
        doc: "Bucket in the path or in the host name; auto takes path for IP addresses and localhost",
        group: Group::Origin,
    },
    Knob {
        name: "oss-endpoint",
        kind: Kind::Text,
        default: "",
        doc: "Where OSS is spoken, as in oss-cn-hangzhou-internal.aliyuncs.com; without it the public one of the region",
        group: Group::Origin,
    },
    Knob {
        name: "oss-region",
        kind: Kind::Text,
        default: "",
        doc: "Region of Alibaba Cloud to sign for, as in cn-hangzhou; without it that of the endpoint's name",
        group: Group::Origin,
    },
    Knob {
        name: "oss-signature",
        kind: Kind::Choice(&["v4", "v1"]),
        default: "v4",
        doc: "Signature version for OSS; v1 is for old private clouds",
        group: Group::Origin,
    },
    Knob {
        name: "profile",
        kind: Kind::Text,
        default: "",
        doc: "Profile of ~/.config/flatout/config.toml, ~/.aws and ~/.aliyun to take settings and keys from",
        group: Group::Origin,
    },
    Knob {
        name: "request-payer",
        kind: Kind::Switch,
        default: "false",
        doc: "Agree to pay for requests to a bucket whose owner does not",
        group: Group::Origin,
    },
    Knob {
        name: "ca-bundle",
        kind: Kind::Text,
        default: "",
        doc: "PEM file of certificates to trust for TLS in place of the system's",
        group: Group::Origin,
    },
    Knob {
        name: "proxy",
        kind: Kind::Text,
        default: "",
        doc: "Proxy for every origin, as in http://proxy:3128, in place of HTTPS_PROXY and HTTP_PROXY",
        group: Group::Origin,
    },
    Knob {
        name: "no-proxy",
        kind: Kind::Text,
        default: "",
        doc: "Hosts, .suffixes, addresses and networks to reach without a proxy, with commas between; * is all",
        group: Group::Origin,
    },
    Knob {
        name: "resolve",
        kind: Kind::Many,
        default: "",
        doc: "HOST[:PORT]:ADDR[,ADDR...]: connect there instead of asking for the name's addresses, as curl does; may be given several times",
        group: Group::Origin,
    },
    Knob {
        name: "bind",
        kind: Kind::Many,
        default: "",
        doc: "Connect from this local address, or from those of this interface; may be given several times, and connections are spread over all",
        group: Group::Origin,
    },
    Knob {
        name: "parallel",
        kind: Kind::Count { min: 1, max: 4096 },
        default: "auto",
        doc: "Parts, or small objects, asked for at a time of an origin; auto finds how many bring most",
        group: Group::Speed,
    },
    Knob {
        name: "part-size",
        kind: Kind::Size { min: 1 << 10, max: 4 << 30 },
        default: "auto",
        doc: "Bytes asked for in one request; auto takes 1MiB to 64MiB, by how fast a connection is",
        group: Group::Speed,
    },
    Knob {
        name: "shards",
        kind: Kind::Count { min: 1, max: 256 },
        default: "2",
        doc: "Threads that own connections; more than the machine's cores do not help",
        group: Group::Speed,
    },
    Knob {
        name: "window",
        kind: Kind::Size { min: 2 << 10, max: 1 << 40 },
        default: "auto",
        doc: "Bytes that may wait to be read in order (cat, pipes), at least two parts; auto: as many as the pace needs and --memory allows, 1GiB at most",
        group: Group::Speed,
    },
    Knob {
        name: "memory",
        kind: Kind::Size { min: 16 << 20, max: 1 << 40 },
        default: "auto",
        doc: "Most memory to take, the caller's buffers and files left out; auto: a quarter of what the control group or else the machine has, from 256MiB to 8GiB",
        group: Group::Speed,
    },
    Knob {
        name: "bandwidth",
        kind: Kind::Rate { min: 1 << 10, max: 1 << 40 },
        default: "unlimited",
        doc: "Bytes received a second at most, over all transfers, as in 100MiB/s",
        group: Group::Speed,
    },
    Knob {
        name: "request-rate",
        kind: Kind::Frequency { min: 1, max: 1_000_000 },
        default: "unlimited",
        doc: "Requests sent to an origin a second at most, whatever they are for, as in 50/s",
        group: Group::Speed,
    },
    Knob {
        name: "connect-timeout",
        kind: Kind::Duration { min_ms: 1, max_ms: 600_000 },
        default: "5s",
        doc: "How long a connection may take to come about",
        group: Group::Patience,
    },
    Knob {
        name: "stall-timeout",
        kind: Kind::Duration { min_ms: 10, max_ms: 3_600_000 },
        default: "20s",
        doc: "Ask again when no byte has come for this long",
        group: Group::Patience,
    },
    Knob {
        name: "outage-timeout",
        kind: Kind::Duration { min_ms: 0, max_ms: 24 * 3_600_000 },
        default: "60s",
        doc: "How long to wait for an origin that is away (refused, reset, silent, 5xx); 10s at most if it has never answered",
        group: Group::Patience,
    },
    Knob {
        name: "retries",
        kind: Kind::Count { min: 0, max: 100 },
        default: "10",
        doc: "How often in a row to ask for a part again while the origin serves others; 0 tries nothing twice",
        group: Group::Patience,
    },
    Knob {
        name: "no-verify",
        kind: Kind::Switch,
        default: "false",
        doc: "Do not compare the bytes with the checksum that the origin states",
        group: Group::Proof,
    },
    Knob {
        name: "no-resume",
        kind: Kind::Switch,
        default: "false",
        doc: "Start large files over, and keep nothing of one that fails for the next run",
        group: Group::Proof,
    },
    Knob {
        name: "attribute-lifetime",
        kind: Kind::Duration { min_ms: 0, max_ms: 365 * 24 * 3_600_000 },
        default: "60s",
        doc: "How long what is known of a file or folder is taken for true before the origin is asked again",
        group: Group::Mount,
    },
    Knob {
        name: "negative-lifetime",
        kind: Kind::Duration { min_ms: 0, max_ms: 365 * 24 * 3_600_000 },
        default: "5s",
        doc: "How long a name that was not there is taken for missing",
        group: Group::Mount,
    },
    Knob {
        name: "close-to-open",
        kind: Kind::Switch,
        default: "false",
        doc: "Ask the origin at each open whether the object is still the same, whatever --attribute-lifetime says",
        group: Group::Mount,
    },
    Knob {
        name: "kernel-readahead",
        kind: Kind::Size { min: 0, max: 1 << 30 },
        default: "4MiB",
        doc: "What the kernel reads ahead of buffered readers, where this may be set (as root); 0 leaves it as it is",
        group: Group::Mount,
    },
    Knob {
        name: "direct-bytes",
        kind: Kind::Size { min: 1, max: 1 << 50 },
        default: "never",
        doc: "Files of so many bytes or more are read past the kernel's page cache, as with O_DIRECT",
        group: Group::Mount,
    },
    Knob {
        name: "fuse-threads",
        kind: Kind::Count { min: 1, max: 256 },
        default: "auto",
        doc: "Threads that take the kernel's requests; auto: as many as cores, from 2 to 8",
        group: Group::Mount,
    },
    Knob {
        name: "max-background",
        kind: Kind::Count { min: 1, max: 65_535 },
        default: "128",
        doc: "Requests of reading ahead that the kernel may have under way at a time",
        group: Group::Mount,
    },
    Knob {
        name: "uid",
        kind: Kind::Count { min: 0, max: 4_294_967_294 },
        default: "auto",
        doc: "Whose the files and folders are; auto: of who mounts",
        group: Group::Mount,
    },
    Knob {
        name: "gid",
        kind: Kind::Count { min: 0, max: 4_294_967_294 },
        default: "auto",
        doc: "Which group the files and folders belong to; auto: that of who mounts",
        group: Group::Mount,
    },
    Knob {
        name: "file-mode",
        kind: Kind::Mode,
        default: "0444",
        doc: "Permission bits of files, in octal",
        group: Group::Mount,
    },
    Knob {
        name: "dir-mode",
        kind: Kind::Mode,
        default: "0555",
        doc: "Permission bits of folders, in octal",
        group: Group::Mount,
    },
    Knob {
        name: "allow-other",
        kind: Kind::Switch,
        default: "false",
        doc: "Let other users in, by the permission bits; as a user it needs user_allow_other in /etc/fuse.conf",
        group: Group::Mount,
    },
];

/// The knob of that exact name.
pub fn knob(name: &str) -> Option<&'static Knob> {
    KNOBS.iter().find(|knob| knob.name == name)
}

impl Knob {
    /// `FLATOUT_` and the name in upper snake case.
    pub fn env(&self) -> String {
        format!("FLATOUT_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// The word that leaves a number open, where there is one.
    pub fn word(&self) -> Option<&'static str> {
        let is_number = matches!(
            self.kind,
            Kind::Size { .. }
                | Kind::Count { .. }
                | Kind::Rate { .. }
                | Kind::Frequency { .. }
                | Kind::Duration { .. }
        );
        Some(self.default).filter(|word| is_number && word.starts_with(|c: char| c.is_ascii_alphabetic()))
    }

    /// Reads what a user wrote, within the bounds.
    pub(crate) fn read(&'static self, text: &str) -> Result<Value, SettingError> {
        if self.word().is_some_and(|word| word.eq_ignore_ascii_case(text.trim())) {
            return Ok(Value::Open);
        }
        match self.kind {
            Kind::Size { min, max } => {
                let bytes = parse_size(text).map_err(|expected| self.wrong(text, expected))?;
                self.bounded(bytes, min, max, format_size)
            }
            Kind::Rate { min, max } => {
                let size = text.trim().strip_suffix("/s").ok_or("not a rate");
                let bytes = size.map_err(str::to_owned).and_then(parse_size);
                let expected = || "a rate: write bytes a second, as in 100MiB/s".to_owned();
                let bytes = bytes.map_err(|_| self.wrong(text, expected()))?;
                self.bounded(bytes, min, max, format_rate)
            }
            Kind::Count { min, max } => {
                let expected = || format!("a whole number: write {min} to {max}");
                let count = text.trim().parse().map_err(|_| self.wrong(text, expected()))?;
                self.bounded(count, min, max, |count| count.to_string())
            }
            Kind::Frequency { min, max } => {
                let expected = || format!("a number a second: write {min}/s to {max}/s");
                let number = text.trim();
                let number = number.strip_suffix("/s").unwrap_or(number).trim_end();
                let number = number.parse().map_err(|_| self.wrong(text, expected()))?;
                self.bounded(number, min, max, |number| format!("{number}/s"))
            }
            Kind::Duration { min_ms, max_ms } => {
                let ms = parse_duration(text).map_err(|expected| self.wrong(text, expected))?;
                self.bounded(ms, min_ms, max_ms, format_duration)
            }
            Kind::Mode => {
                let expected = || "permission bits in octal: write 0 to 0777".to_owned();
                let digits = text.trim();
                let digits = digits.strip_prefix("0o").unwrap_or(digits);
                // A sign would pass for a number.
                let all_digits = digits.bytes().all(|digit| digit.is_ascii_digit());
                let bits = u64::from_str_radix(digits, 8).ok().filter(|bits| all_digits && *bits <= 0o777);
                bits.map(Value::Number).ok_or_else(|| self.wrong(text, expected()))
            }
            Kind::Switch => self.switch(text),
            Kind::Choice(choices) => {
                match choices.iter().find(|choice| choice.eq_ignore_ascii_case(text.trim())) {
                    Some(choice) => Ok(Value::Text((*choice).to_owned())),
                    None => Err(self.wrong(text, format!("one of {}", choices.join(", ")))),
                }
            }
            Kind::Text | Kind::Many => Ok(Value::Text(text.trim().to_owned())),
        }
    }

    fn bounded(
        &self,
        number: u64,
        min: u64,
        max: u64,
        format: impl Fn(u64) -> String,
    ) -> Result<Value, SettingError> {
        if (min..=max).contains(&number) {
            return Ok(Value::Number(number));
        }
        let bounds = format!("{} to {}", format(min), format(max));
        Err(SettingError::Bounds { knob: self.name, value: format(number), bounds })
    }

    fn switch(&self, text: &str) -> Result<Value, SettingError> {
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok(Value::Switch(true)),
            "false" | "0" | "no" | "off" => Ok(Value::Switch(false)),
            _ => Err(self.wrong(text, "a switch: write true or false".to_owned())),
        }
    }

    fn wrong(&self, text: &str, expected: String) -> SettingError {
        let expected = match self.word() {
            Some(word) => format!("{expected}, or {word}"),
            None => expected,
        };
        SettingError::Value { knob: self.name, value: text.to_owned(), expected }
    }
}

impl Kind {
    /// The placeholder that `--help` shows for a value; None for a switch, which takes none.
    pub fn value_name(self) -> Option<&'static str> {
        match self {
            Kind::Size { .. } => Some("SIZE"),
            Kind::Count { .. } => Some("N"),
            Kind::Rate { .. } => Some("RATE"),
            Kind::Frequency { .. } => Some("N/s"),
            Kind::Duration { .. } => Some("TIME"),
            Kind::Mode => Some("MODE"),
            Kind::Switch => None,
            Kind::Text => Some("TEXT"),
            Kind::Choice(_) => Some("CHOICE"),
            Kind::Many => Some("TEXT"),
        }
    }
}

impl Group {
    /// In the order of docs/settings.md.
    pub const ALL: [Group; 5] = [Group::Origin, Group::Speed, Group::Patience, Group::Proof, Group::Mount];

    /// The heading.
    pub fn title(self) -> &'static str {
        match self {
            Group::Origin => "Origin",
            Group::Speed => "Speed",
            Group::Patience => "Patience",
            Group::Proof => "Proof",
            Group::Mount => "Mount",
        }
    }
}

/// `100MiB/s`
pub(crate) fn format_rate(bytes: u64) -> String {
    format!("{}/s", format_size(bytes))
}

/// A value of the right kind and within its bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// Bytes, a count, something a second or milliseconds.
    Number(u64),
    /// The word for no number.
    Open,
    Switch(bool),
    Text(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kebab_case_and_unique() {
        for (at, knob) in KNOBS.iter().enumerate() {
            assert!(knob.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", knob.name);
            assert!(KNOBS[..at].iter().all(|earlier| earlier.name != knob.name), "{} twice", knob.name);
        }
    }

    #[test]
    fn prose_is_one_line_without_a_full_stop() {
        for knob in KNOBS {
            assert!(!knob.doc.is_empty() && !knob.doc.contains(['\n', '|']), "{}", knob.name);
            assert!(!knob.doc.ends_with('.'), "{}", knob.name);
        }
    }

    #[test]
    fn defaults_are_within_their_bounds() {
        for knob in KNOBS.iter().filter(|knob| !knob.default.is_empty()) {
            knob.read(knob.default).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn the_environment_has_the_name_in_upper_snake() {
        assert_eq!(knob("part-size").unwrap().env(), "FLATOUT_PART_SIZE");
    }
}
