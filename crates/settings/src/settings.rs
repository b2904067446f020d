//! The values of all knobs, as the engine and the faces use them.

use std::fmt;
use std::time::Duration;

use crate::knob::Value;
use crate::mount::MountSettings;
use crate::{Clash, Group, KNOBS, SettingError, format_size, knob, nearest};

/// One value for every knob. [`Settings::default`] holds the defaults of [`KNOBS`]; [`Settings::set`] is how text from
/// a flag, the environment or a file gets in; [`Settings::check`] comes after the last of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    pub endpoint_url: Option<String>,
    pub region: Option<String>,
    pub no_sign_request: bool,
    /// `auto`, `path` or `virtual`.
    pub addressing: String,
    pub oss_endpoint: Option<String>,
    pub oss_region: Option<String>,
    /// `v4` or `v1`.
    pub oss_signature: String,
    pub profile: Option<String>,
    pub request_payer: bool,
    /// A file of PEM certificates.
    pub ca_bundle: Option<String>,
    pub proxy: Option<String>,
    /// As in the variable `NO_PROXY`.
    pub no_proxy: Option<String>,
    /// Each `HOST[:PORT]:ADDR[,ADDR...]`, as given.
    pub resolve: Vec<String>,
    /// Each a local address or an interface.
    pub bind: Vec<String>,
    /// Parts in flight toward an origin; found where absent.
    pub parallel: Option<u32>,
    /// Found where absent.
    pub part_bytes: Option<u64>,
    pub shards: u32,
    /// Of a stream; `None` is as many as the pace needs and `memory_bytes` allows.
    pub window_bytes: Option<u64>,
    /// What the engine may hold in this process; 256 MiB where nobody has looked how much there is.
    pub memory_bytes: u64,
    /// Received a second at most.
    pub bandwidth_bytes: Option<u64>,
    /// Requests sent to an origin a second at most.
    pub request_rate: Option<u32>,
    pub connect_timeout_ms: u64,
    pub stall_timeout_ms: u64,
    /// How long an origin that has answered may be away; 0 counts each failure as one of `retries`.
    pub outage_timeout_ms: u64,
    pub retries: u32,
    /// Whether bytes are compared with the origin's checksum; the knob is its opposite, `no-verify`.
    pub verify: bool,
    /// Whether a large file goes on from what an earlier run left of it; the knob is its opposite, `no-resume`.
    pub resume: bool,
    /// Of a mount alone.
    pub mount: MountSettings,
}

/// Where `memory` is open and nobody has looked how much there is (docs/decisions/memory.md).
const MEMORY_UNSET_BYTES: u64 = 256 << 20;

/// All fields by name; an endpoint's or a proxy's URL that may hold a password is left out.
impl fmt::Debug for Settings {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every field is named, so that a new one cannot be forgotten.
        let Settings {
            endpoint_url,
            region,
            no_sign_request,
            addressing,
            oss_endpoint,
            oss_region,
            oss_signature,
            profile,
            request_payer,
            ca_bundle,
            proxy,
            no_proxy,
            resolve,
            bind,
            parallel,
            part_bytes,
            shards,
            window_bytes,
            memory_bytes,
            bandwidth_bytes,
            request_rate,
            connect_timeout_ms,
            stall_timeout_ms,
            outage_timeout_ms,
            retries,
            verify,
            resume,
            mount,
        } = self;
        let shown = |url: &Option<String>| {
            url.as_ref().map(|url| if url.contains('@') { "***".to_owned() } else { url.clone() })
        };
        out.debug_struct("Settings")
            .field("endpoint_url", &shown(endpoint_url))
            .field("region", region)
            .field("no_sign_request", no_sign_request)
            .field("addressing", addressing)
            .field("oss_endpoint", &shown(oss_endpoint))
            .field("oss_region", oss_region)
            .field("oss_signature", oss_signature)
            .field("profile", profile)
            .field("request_payer", request_payer)
            .field("ca_bundle", ca_bundle)
            .field("proxy", &shown(proxy))
            .field("no_proxy", no_proxy)
            .field("resolve", resolve)
            .field("bind", bind)
            .field("parallel", parallel)
            .field("part_bytes", part_bytes)
            .field("shards", shards)
            .field("window_bytes", window_bytes)
            .field("memory_bytes", memory_bytes)
            .field("bandwidth_bytes", bandwidth_bytes)
            .field("request_rate", request_rate)
            .field("connect_timeout_ms", connect_timeout_ms)
            .field("stall_timeout_ms", stall_timeout_ms)
            .field("outage_timeout_ms", outage_timeout_ms)
            .field("retries", retries)
            .field("verify", verify)
            .field("resume", resume)
            .field("mount", mount)
            .finish()
    }
}

impl Default for Settings {
    fn default() -> Settings {
        let mut settings = Settings {
            endpoint_url: None,
            region: None,
            no_sign_request: false,
            addressing: String::new(),
            oss_endpoint: None,
            oss_region: None,
            oss_signature: String::new(),
            profile: None,
            request_payer: false,
            ca_bundle: None,
            proxy: None,
            no_proxy: None,
            resolve: Vec::new(),
            bind: Vec::new(),
            parallel: None,
            part_bytes: None,
            shards: 0,
            window_bytes: None,
            memory_bytes: 0,
            bandwidth_bytes: None,
            request_rate: None,
            connect_timeout_ms: 0,
            stall_timeout_ms: 0,
            outage_timeout_ms: 0,
            retries: 0,
            verify: true,
            resume: true,
            mount: MountSettings::default(),
        };
        // The table is the only place where a default is written.
        for knob in KNOBS.iter().filter(|knob| !knob.default.is_empty()) {
            settings.set(knob.name, knob.default).expect("a test sets every default");
        }
        settings
    }
}

impl Settings {
    /// How long an origin is waited for that was reached before: not at all where nothing is tried twice.
    pub fn outage_timeout(&self) -> Duration {
        match self.retries {
            0 => Duration::ZERO,
            _ => Duration::from_millis(self.outage_timeout_ms),
        }
    }

    /// Sets the knob of that name from what a user wrote. Empty text takes a text setting back. A repeatable knob
    /// gains a value with each call, so whoever has several sources sets it from the strongest only.
    ///
    /// # Errors
    /// No such knob (with the nearest name), text of another kind, out of bounds. Nothing is changed then.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), SettingError> {
        let Some(knob) = knob(name) else {
            let nearest = nearest(name, KNOBS.iter().map(|knob| knob.name));
            return Err(SettingError::Unknown { name: name.to_owned(), nearest });
        };
        let value = knob.read(text)?;
        if knob.group == Group::Mount {
            self.mount.set(knob.name, &value);
            return Ok(());
        }
        match value {
            Value::Number(number) => self.set_number(knob.name, Some(number)),
            Value::Open => self.set_number(knob.name, None),
            Value::Switch(on) => self.set_switch(knob.name, on),
            Value::Text(text) => self.set_text(knob.name, text),
        }
        Ok(())
    }

    /// Whether the settings hold together; called once, after the last [`Settings::set`].
    ///
    /// # Errors
    /// Two settings that exclude each other, with what to write instead.
    pub fn check(&self) -> Result<(), SettingError> {
        let Some(window_bytes) = self.window_bytes else { return Ok(()) };
        let window = exact_size(window_bytes);
        // With less than two parts the reader and the network would take turns instead of working at once.
        if let Some(part_bytes) = self.part_bytes
            && window_bytes < part_bytes.saturating_mul(2)
        {
            let (part_size, least) = (exact_size(part_bytes), exact_size(part_bytes.saturating_mul(2)));
            return Err(SettingError::Together(Clash::BelowTwoParts { window, part_size, least }));
        }
        if window_bytes > self.memory_bytes {
            let memory = exact_size(self.memory_bytes);
            return Err(SettingError::Together(Clash::AboveMemory { window, memory }));
        }
        Ok(())
    }

    /// `None` for those that may be left open only.
    fn set_number(&mut self, name: &'static str, number: Option<u64>) {
        let count = |number| u32::try_from(number).expect("the bounds of every count fit in 32 bits");
        match (name, number) {
            ("parallel", number) => self.parallel = number.map(count),
            ("part-size", bytes) => self.part_bytes = bytes,
            ("window", bytes) => self.window_bytes = bytes,
            ("memory", bytes) => self.memory_bytes = bytes.unwrap_or(MEMORY_UNSET_BYTES),
            ("bandwidth", bytes) => self.bandwidth_bytes = bytes,
            ("request-rate", number) => self.request_rate = number.map(count),
            ("shards", Some(number)) => self.shards = count(number),
            ("retries", Some(number)) => self.retries = count(number),
            ("connect-timeout", Some(ms)) => self.connect_timeout_ms = ms,
            ("stall-timeout", Some(ms)) => self.stall_timeout_ms = ms,
            ("outage-timeout", Some(ms)) => self.outage_timeout_ms = ms,
            _ => unreachable!("a test sets every knob: {name} has no field"),
        }
    }

    fn set_switch(&mut self, name: &'static str, on: bool) {
        match name {
            "no-sign-request" => self.no_sign_request = on,
            "request-payer" => self.request_payer = on,
            "no-verify" => self.verify = !on,
            "no-resume" => self.resume = !on,
            _ => unreachable!("a test sets every knob: {name} has no field"),
        }
    }

    fn set_text(&mut self, name: &'static str, text: String) {
        match name {
            "endpoint-url" => self.endpoint_url = some(text),
            "region" => self.region = some(text),
            "addressing" => self.addressing = text,
            "oss-endpoint" => self.oss_endpoint = some(text),
            "oss-region" => self.oss_region = some(text),
            "oss-signature" => self.oss_signature = text,
            "profile" => self.profile = some(text),
            "ca-bundle" => self.ca_bundle = some(text),
            "proxy" => self.proxy = some(text),
            "no-proxy" => self.no_proxy = some(text),
            "resolve" => self.resolve.extend(some(text)),
            "bind" => self.bind.extend(some(text)),
            _ => unreachable!("a test sets every knob: {name} has no field"),
        }
    }
}

fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// With a unit where that loses nothing: `8MiB`, `8388609B`.
fn exact_size(bytes: u64) -> String {
    let text = format_size(bytes);
    if crate::parse_size(&text) == Ok(bytes) { text } else { format!("{bytes}B") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    /// Sets the knobs in turn; the field that should have changed, or the error, as text.
    #[track_caller]
    fn check(sets: &[(&str, &str)], want: &str) {
        let mut settings = Settings::default();
        let outcome = sets
            .iter()
            .try_for_each(|(name, text)| settings.set(name, text))
            .and_then(|()| settings.check())
            .map_or_else(|error| error.to_string(), |()| format!("{settings:?}"));
        assert!(outcome.contains(want), "{sets:?}\n gave {outcome}\n not {want}");
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let settings = Settings::default();
        assert_eq!((settings.parallel, settings.part_bytes), (None, None));
        assert_eq!((settings.shards, settings.window_bytes, settings.memory_bytes), (2, None, 256 << 20));
        assert_eq!((settings.bandwidth_bytes, settings.request_rate), (None, None));
        assert_eq!((settings.connect_timeout_ms, settings.stall_timeout_ms), (5_000, 20_000));
        assert_eq!((settings.outage_timeout_ms, settings.retries, settings.verify), (60_000, 10, true));
        assert_eq!((settings.addressing.as_str(), settings.no_sign_request), ("auto", false));
        assert_eq!((settings.endpoint_url.clone(), settings.region.clone()), (None, None));
        assert!(settings.resolve.is_empty());
        settings.check().unwrap();
        let mount = &settings.mount;
        assert_eq!((mount.attribute_lifetime_ms, mount.negative_lifetime_ms), (60_000, 5_000));
        assert_eq!((mount.read_ahead_bytes, mount.direct_bytes), (4 << 20, None));
        assert_eq!((mount.threads, mount.max_background), (None, 128));
        assert_eq!((mount.uid, mount.gid, mount.file_mode, mount.folder_mode), (None, None, 0o444, 0o555));
        assert_eq!((mount.close_to_open, mount.allow_other), (false, false));
    }

    #[test]
    fn every_knob_changes_something() {
        for knob in KNOBS {
            let text = match knob.kind {
                Kind::Size { max, .. } => max.to_string(),
                Kind::Count { max, .. } => max.to_string(),
                Kind::Mode => "0700".to_owned(),
                Kind::Rate { max, .. } | Kind::Frequency { max, .. } => format!("{max}/s"),
                Kind::Duration { max_ms, .. } => format!("{max_ms}ms"),
                Kind::Switch => "true".to_owned(),
                Kind::Choice(choices) => choices[choices.len() - 1].to_owned(),
                Kind::Text | Kind::Many => "x".to_owned(),
            };
            let mut settings = Settings::default();
            settings.set(knob.name, &text).unwrap();
            assert_ne!(settings, Settings::default(), "{}", knob.name);
        }
    }

    #[test]
    fn text_gets_in() {
        let table: &[(&str, &str, &str)] = &[
            ("endpoint-url", " http://127.0.0.1:9000 ", r#"endpoint_url: Some("http://127.0.0.1:9000")"#),
            ("region", "", "region: None"),
            ("no-sign-request", "1", "no_sign_request: true"),
            ("no-verify", "on", "verify: false"),
            ("no-verify", "False", "verify: true"),
            ("no-resume", "true", "resume: false"),
            ("addressing", "Path", r#"addressing: "path""#),
            ("parallel", " 16 ", "parallel: Some(16)"),
            ("part-size", "1M", "part_bytes: Some(1048576)"),
            ("window", "64M", "window_bytes: Some(67108864)"),
            ("memory", "1.5GiB", "memory_bytes: 1610612736"),
            ("memory", "Auto", "memory_bytes: 268435456"),
            ("bandwidth", "100MiB/s", "bandwidth_bytes: Some(104857600)"),
            ("request-rate", "500", "request_rate: Some(500)"),
            ("request-rate", " 50/s ", "request_rate: Some(50)"),
            ("connect-timeout", "250ms", "connect_timeout_ms: 250"),
            ("stall-timeout", "1m", "stall_timeout_ms: 60000"),
            ("outage-timeout", "2m", "outage_timeout_ms: 120000"),
            ("retries", "0", "retries: 0"),
            ("attribute-lifetime", "0s", "attribute_lifetime_ms: 0"),
            ("direct-bytes", "1GiB", "direct_bytes: Some(1073741824)"),
            ("direct-bytes", "never", "direct_bytes: None"),
            ("uid", "1000", "uid: Some(1000)"),
            ("file-mode", "640", "file_mode: 416"),
            ("dir-mode", "0o750", "folder_mode: 488"),
        ];
        for (name, text, want) in table {
            check(&[(name, text)], want);
        }
        check(
            &[("resolve", "a:127.0.0.1"), ("resolve", "b:80:::1")],
            r#"resolve: ["a:127.0.0.1", "b:80:::1"]"#,
        );
        check(&[("region", "x"), ("region", "")], "region: None");
        check(&[("parallel", "3"), ("parallel", "Auto")], "parallel: None");
        check(&[("bandwidth", "1M/s"), ("bandwidth", "unlimited")], "bandwidth_bytes: None");
    }

    #[test]
    fn a_password_in_a_url_is_not_shown() {
        for name in ["endpoint-url", "oss-endpoint", "proxy"] {
            let mut settings = Settings::default();
            settings.set(name, "http://me:s3cr3t@host").unwrap();
            assert!(!format!("{settings:?}").contains("s3cr3t"), "{name}");
        }
    }

    #[test]
    fn wrong_text_says_what_to_write() {
        let table: &[(&str, &str, &str)] = &[
            ("partsize", "1M", "unknown setting 'partsize': did you mean 'part-size'?"),
            ("colour", "1", "unknown setting 'colour'"),
            (
                "part-size",
                "8 blocks",
                "part-size: '8 blocks' is not a size: write bytes or a unit, as in 8MiB, 8M, 1.5GB, or auto",
            ),
            (
                "bandwidth",
                "8M",
                "bandwidth: '8M' is not a rate: write bytes a second, as in 100MiB/s, or unlimited",
            ),
            ("bandwidth", "1/s", "bandwidth: 1B/s is out of bounds: write 1KiB/s to 1TiB/s"),
            (
                "request-rate",
                "50/m",
                "request-rate: '50/m' is not a number a second: write 1/s to 1000000/s, or unlimited",
            ),
            ("request-rate", "0", "request-rate: 0/s is out of bounds: write 1/s to 1000000/s"),
            ("shards", "auto", "shards: 'auto' is not a whole number: write 1 to 256"),
            ("part-size", "1", "part-size: 1B is out of bounds: write 1KiB to 4GiB"),
            ("parallel", "0", "parallel: 0 is out of bounds: write 1 to 4096"),
            ("parallel", "many", "parallel: 'many' is not a whole number: write 1 to 4096, or auto"),
            ("parallel", "-1", "parallel: '-1' is not a whole number: write 1 to 4096, or auto"),
            (
                "connect-timeout",
                "5",
                "connect-timeout: '5' is not a duration: write a number with ms, s, m or h",
            ),
            ("stall-timeout", "2h", "stall-timeout: 2h is out of bounds: write 10ms to 1h"),
            ("addressing", "dns", "addressing: 'dns' is not one of auto, path, virtual"),
            ("dir-mode", "888", "dir-mode: '888' is not permission bits in octal: write 0 to 0777"),
            ("file-mode", "+44", "file-mode: '+44' is not permission bits in octal: write 0 to 0777"),
            ("file-mode", "1777", "file-mode: '1777' is not permission bits in octal: write 0 to 0777"),
            ("uid", "root", "uid: 'root' is not a whole number: write 0 to 4294967294, or auto"),
            ("no-verify", "maybe", "no-verify: 'maybe' is not a switch: write true or false"),
        ];
        for (name, text, want) in table {
            check(&[(name, text)], want);
        }
    }

    #[test]
    fn a_window_holds_two_parts_and_memory_holds_it() {
        let (window, memory) = (("window", "64M"), ("memory", "64M"));
        check(&[("part-size", "4G")], "part_bytes: Some(4294967296)");
        check(&[("window", "2KiB")], "window_bytes: Some(2048)");
        check(&[window, ("part-size", "32M")], "part_bytes: Some(33554432)");
        check(
            &[window, ("part-size", "33M")],
            "window 64MiB is too small for part-size 33MiB: write window 66MiB or more, or a smaller part-size",
        );
        check(
            &[("window", "16777215"), ("part-size", "8M")],
            "window 16777215B is too small for part-size 8MiB: write window 16MiB or more",
        );
        check(&[window, memory], "memory_bytes: 67108864");
        check(
            &[("window", "65M"), memory],
            "window 65MiB is more than memory 64MiB: write a smaller window, or memory 65MiB or more",
        );
    }

    #[test]
    fn a_promise_that_cannot_be_kept_is_none() {
        check(&[("memory", "1MiB")], "memory: 1MiB is out of bounds: write 16MiB to 1TiB");
    }

    #[test]
    fn a_refused_value_changes_nothing() {
        let mut settings = Settings::default();
        settings.set("parallel", "5000").unwrap_err();
        assert_eq!(settings, Settings::default());
    }
}
