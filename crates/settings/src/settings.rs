//! What is done with the values of all knobs.

use std::time::Duration;

use crate::{Clash, KNOBS, SettingError, Settings, format_size, knob, nearest};

impl Settings {
    /// How long an origin is waited for that was reached before: not at all where nothing is tried twice.
    pub fn outage_timeout(&self) -> Duration {
        match self.retries {
            0 => Duration::ZERO,
            _ => Duration::from_millis(self.outage_timeout_ms),
        }
    }

    /// Sets the knob of that name from what a user wrote. Empty text takes a text setting back. A repeatable
    /// knob gains a value with each call, so a caller with several sources sets it from the strongest only.
    ///
    /// # Errors
    /// No such knob (with the nearest name), text of another kind, out of bounds. Nothing is changed then.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), SettingError> {
        let Some(knob) = knob(name) else {
            let nearest = nearest(name, KNOBS.iter().map(|knob| knob.name));
            return Err(SettingError::Unknown { name: name.to_owned(), nearest });
        };
        (knob.set)(self, knob.read(text)?);
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
        assert_eq!((mount.uid, mount.gid, mount.file_mode, mount.folder_mode), (None, None, 0o644, 0o755));
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
