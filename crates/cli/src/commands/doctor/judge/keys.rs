//! What settings and keys mean.

use flatout_ambient::{Layer, SettingRow, Signer};
use flatout_settings::Settings;
use flatout_wire::time;

use crate::commands::doctor::finding::Finding;
use crate::commands::doctor::machine::Machine;
use crate::exit::Exit;

/// Keys that end sooner end during a large job, and somebody has to have new ones by then.
const SOON_S: u64 = 900;

/// A profile that was asked for and is not there.
pub fn profile(warning: &str) -> Finding {
    Finding::note("profile", warning.to_owned())
        .means("its region, endpoint and keys are not heeded")
        .advise("name a profile that is there, or unset the variable")
}

/// What is set or found, and what of it does not fit the machine. `rows` are masked.
pub fn settings(
    settings: &Settings,
    rows: &[SettingRow],
    notes: &[String],
    machine: &Machine,
) -> Vec<Finding> {
    let set: Vec<&SettingRow> =
        rows.iter().filter(|row| row.layer != Layer::Default && !row.values.is_empty()).collect();
    let found = match set.len() {
        0 => "all as by default".to_owned(),
        count => format!("{count} set or found"),
    };
    let mut all = Finding::good("settings", found);
    for row in set {
        let place = if row.place.is_empty() { row.layer.name() } else { row.place.as_str() };
        all.details.push(format!("{} {} ({place})", row.name, row.values.join(" ")));
        all = all.fact(row.name, Some(row.values.join(" ").into()));
    }
    let mut findings = vec![all];
    findings.extend(notes.iter().map(|note| {
        Finding::note("files", note.clone())
            .means("what it may say of endpoints, regions and keys is not heeded")
            .advise("mend or remove it")
    }));
    let cores = machine.usable_cores();
    if f64::from(settings.shards) > cores.ceil() && settings.shards > 2 {
        findings.push(
            Finding::note("shards", format!("{} for {cores:.1} cores", settings.shards))
                .means("threads that wait for a core make each other's connections wait")
                .advise(format!("--shards {:.0}", cores.ceil())),
        );
    }
    if !settings.verify {
        findings.push(
            Finding::note("checksums", "not compared")
                .means("wrong bytes are not noticed; comparing costs next to nothing")
                .advise("leave --no-verify away"),
        );
    }
    findings
}

/// Who has the keys of a dialect. `wanted` says that they are needed for what is asked; `now` is in seconds
/// since 1970.
pub fn keys(signer: &Signer, wanted: bool, settings: &Settings, now: u64) -> Finding {
    let topic = if signer.dialect == "oss" { "keys for oss" } else { "keys for s3" };
    let finding = match (&signer.provider, &signer.key) {
        (Some(provider), key) => {
            held(topic, provider, key.as_deref().unwrap_or_default(), signer.expires, now)
        }
        (None, _) => lacking(topic, signer, wanted && !settings.no_sign_request),
    };
    finding
        .fact("dialect", Some(signer.dialect.into()))
        .fact("provider", signer.provider.clone().map(Into::into))
        .fact("key", signer.key.clone().map(Into::into))
        .fact("expires", signer.expires.map(|end| time::format_iso_seconds(end).into()))
}

fn held(topic: &'static str, provider: &str, key: &str, expires: Option<u64>, now: u64) -> Finding {
    let end = expires.map_or(String::new(), |end| format!(", until {}", time::format_iso_seconds(end)));
    let found = format!("{provider} {key}{end}");
    match expires {
        Some(end) if end <= now => Finding::bad(topic, found)
            .means("they have ended: requests will be refused")
            .advise("get new ones, and check this machine's clock")
            .ending(Exit::Refused),
        Some(end) if end < now + SOON_S => Finding::note(topic, found)
            .means(format!(
                "they end in {} minutes; transfers ask for new ones by themselves",
                (end - now) / 60
            ))
            .advise("make sure that whoever gives them still does: aws sso login, a fresh token"),
        _ => Finding::good(topic, found),
    }
}

fn lacking(topic: &'static str, signer: &Signer, wanted: bool) -> Finding {
    let tried: Vec<String> =
        signer.note.as_deref().unwrap_or_default().split("; ").map(str::to_owned).collect();
    match (signer.failed, wanted) {
        (true, _) => Finding::bad(topic, "who was to give them failed")
            .details(tried)
            .means("requests cannot be signed, and are not sent")
            .advise("mend what failed, or --no-sign-request for public buckets")
            .ending(Exit::Refused),
        (false, true) => Finding::note(topic, "none")
            .details(tried)
            .means("requests leave unsigned: public buckets only")
            .advise("set the variables above, or --profile; flatout config show says what is found"),
        (false, false) => Finding::good(topic, "none").details(tried),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::Level::{self, Bad, Good, Note};

    const NOW: u64 = 1_800_000_000;

    fn signer(provider: Option<&str>, expires: Option<u64>, failed: bool) -> Signer {
        Signer {
            dialect: "s3",
            provider: provider.map(str::to_owned),
            key: provider.map(|_| "…MPLE".to_owned()),
            note: provider.is_none().then(|| "environment: nothing; profile dev: expired".to_owned()),
            expires,
            failed,
        }
    }

    #[track_caller]
    fn check(signer: &Signer, wanted: bool, level: Level, exit: Exit, says: &str) {
        let finding = keys(signer, wanted, &Settings::default(), NOW);
        assert_eq!((finding.level, finding.exit), (level, exit), "{finding:?}");
        assert!(format!("{finding:?}").contains(says), "{finding:?} lacks {says}");
    }

    #[test]
    fn keys_there_and_not() {
        check(&signer(Some("environment"), None, false), true, Good, Exit::Clean, "environment …MPLE");
        check(
            &signer(Some("sso"), Some(NOW + 7_200), false),
            true,
            Good,
            Exit::Clean,
            "until 2027-01-15T10:00:00Z",
        );
        check(&signer(Some("sso"), Some(NOW + 600), false), true, Note, Exit::Clean, "in 10 minutes");
        check(&signer(Some("sso"), Some(NOW), false), true, Bad, Exit::Refused, "they have ended");
        check(&signer(None, None, true), false, Bad, Exit::Refused, "profile dev: expired");
        check(&signer(None, None, false), true, Note, Exit::Clean, "environment: nothing");
        check(&signer(None, None, false), false, Good, Exit::Clean, "none");
        let public = Settings { no_sign_request: true, ..Settings::default() };
        assert_eq!(keys(&signer(None, None, false), true, &public, NOW).level, Good);
    }

    #[test]
    fn settings_that_do_not_fit() {
        let machine = Machine { cores: 4, allowed_cores: 4, ..Machine::default() };
        let row = |name, value: &str, layer| SettingRow {
            name,
            values: vec![value.into()],
            layer,
            place: "--x".into(),
        };
        let rows = [row("parallel", "32", Layer::Flag), row("retries", "5", Layer::Default)];
        let plain = settings(&Settings::default(), &rows, &[], &machine);
        assert_eq!((plain.len(), plain[0].found.as_str()), (1, "1 set or found"));
        assert_eq!(plain[0].details, ["parallel 32 (--x)"]);
        let odd = Settings { shards: 16, verify: false, ..Settings::default() };
        let findings = settings(&odd, &[], &["~/.aliyun/config.json:1: no JSON".into()], &machine);
        let topics: Vec<&str> = findings.iter().map(|finding| finding.topic).collect();
        assert_eq!(topics, ["settings", "files", "shards", "checksums"]);
        assert_eq!(findings[2].advice.as_deref(), Some("--shards 4"));
        assert!(findings[1..].iter().all(|finding| finding.level == Note));
    }
}
