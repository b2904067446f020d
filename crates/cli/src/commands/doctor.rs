//! `flatout doctor`: what stands between this machine and the speed of its link, and what to do about it.
//!
//! Facts are gathered apart from what they mean: `machine`, `nic`, `network_path`, `origin_probe` and
//! `speed_test` look, `judge` decides, `report` tells.

mod finding;
mod judge;
pub mod machine;
mod network_path;
mod nic;
mod origin_probe;
mod report;
mod speed_test;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use flatout_engine::{Client, Config, Dialect};
use flatout_settings::Settings;
use flatout_wire::location::Location;

use crate::args::Doctor;
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::origin;

use finding::Finding;
use machine::{Machine, WritableFolder};
use network_path::NetworkPath;
use origin_probe::OriginProbe;
use report::DoctorReport;
use speed_test::SpeedTest;

/// An origin that is dead is to be called so within seconds, whatever patience transfers are set to have.
const CONNECT_MS_MAX: u64 = 3_000;
const STALL_MS_MAX: u64 = 5_000;
const OUTAGE_MS_MAX: u64 = 2_000;
const RETRIES_MAX: u32 = 1;

pub fn run(args: &Doctor, console: &Console) -> Result<Exit, Failure> {
    if args.forget {
        return forget(console);
    }
    let location = args.url.as_deref().map(|url| origin::location("examine", url)).transpose()?;
    let found = flatout_ambient::gather(args.knobs.given())?;
    let dialects = location.as_ref().map(Dialect::of);
    let client = origin::client_of(hurried(found.config()), &found.table(), dialects.as_slice())?;
    let machine = Machine::look(Path::new("/"));
    let mut report = DoctorReport::new(console);
    report.section("machine", judge::machine(&machine, &found.settings))?;
    report.section("files", places().iter().map(judge::place).collect())?;
    let mut settings = judge::settings(&found.settings, &found.table(), &found.notes, &machine);
    settings.extend(found.warnings.iter().map(|(_, warning)| judge::profile(warning)));
    report.section("settings", settings)?;
    match &location {
        Some(location) => {
            report.section("keys", keys(&client, &found.settings, &[Dialect::of(location)]))?;
            examine(&mut report, &client, &found.settings, &machine, location)?;
        }
        None => {
            report.section("keys", keys(&client, &found.settings, &[Dialect::S3, Dialect::Oss]))?;
            report.section("endpoint", endpoints(&client, &found.settings, &machine))?;
        }
    }
    report.finish()
}

/// Removes what earlier runs have kept, and says so.
fn forget(console: &Console) -> Result<Exit, Failure> {
    let path = flatout_ambient::forget()
        .map_err(|error| Failure::local("forget", "the paces of origins", &error))?;
    let path = path.map(|path| path.display().to_string());
    console.answer(&match &path {
        Some(path) => format!("forgotten: {path}"),
        None => "nothing was remembered".to_owned(),
    })?;
    console.event(Carries::Lines, &events::Forgotten { path })?;
    Ok(Exit::Clean)
}

/// A client made from it waits no longer than a doctor's visit may last.
fn hurried(mut config: Config) -> Config {
    let settings = &mut config.settings;
    settings.connect_timeout_ms = settings.connect_timeout_ms.min(CONNECT_MS_MAX);
    settings.stall_timeout_ms = settings.stall_timeout_ms.min(STALL_MS_MAX);
    settings.outage_timeout_ms = settings.outage_timeout_ms.min(OUTAGE_MS_MAX);
    settings.retries = settings.retries.min(RETRIES_MAX);
    config
}

fn places() -> Vec<WritableFolder> {
    let root = Path::new("/");
    let here = PathBuf::from(".");
    let here = WritableFolder::look(root, "this folder", here.canonicalize().unwrap_or(here));
    vec![here, WritableFolder::look(root, "TMPDIR", flatout_ambient::temporary_folder())]
}

/// Asks who has keys. They are needed for what is asked for; where nothing is, one dialect's will do.
/// What follows is signed with what they gave: a process or a person is not asked twice.
fn keys(client: &Client, settings: &Settings, dialects: &[Dialect]) -> Vec<Finding> {
    let signers = flatout_ambient::signers_of(client, dialects);
    let nobody = signers.iter().all(|signer| signer.provider.is_none());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    signers.iter().map(|signer| judge::keys(signer, nobody, settings, now)).collect()
}

/// Where settings lead, by name alone: nothing is sent anywhere.
fn endpoints(client: &Client, settings: &Settings, machine: &Machine) -> Vec<Finding> {
    let paths = [Dialect::S3, Dialect::Oss].into_iter();
    // Without a region or an endpoint there is no way to OSS, and nothing wrong with that.
    let paths = paths.filter_map(|dialect| NetworkPath::by_name(client, settings, dialect).ok());
    let mut findings: Vec<Finding> = Vec::new();
    for finding in paths.flat_map(|path| judge::network_path(&path, machine, settings.parallel)) {
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}

/// The path to an origin, what it answers, and a second of reading from it; each only where what comes before
/// allows it.
fn examine(
    report: &mut DoctorReport<'_>,
    client: &Client,
    settings: &Settings,
    machine: &Machine,
    location: &Location,
) -> Result<(), Failure> {
    let path = NetworkPath::survey(client, settings, location)?;
    report.section("endpoint", judge::network_path(&path, machine, settings.parallel))?;
    if !path.is_open() {
        return Ok(());
    }
    let origin_probe = OriginProbe::run(client, location);
    report.section("origin", judge::origin_probe(&origin_probe, path.dialect, path.round_trip_s()))?;
    match &origin_probe.outcome {
        Ok(Some(object)) if object.bytes != Some(0) => {
            let speed_test = SpeedTest::run(client, settings, object);
            report.section("probe", judge::speed_test(&speed_test, &path, machine))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visit_is_hurried_but_never_slowed_down() {
        let check = |given: [u64; 3], expected: [u64; 3]| {
            let [connect_timeout_ms, stall_timeout_ms, retries] = given;
            let retries = u32::try_from(retries).unwrap();
            let settings = Settings { connect_timeout_ms, stall_timeout_ms, retries, ..Settings::default() };
            let hurried = hurried(Config { settings, ..Config::default() }).settings;
            let found = [hurried.connect_timeout_ms, hurried.stall_timeout_ms, hurried.retries.into()];
            assert_eq!(found, expected, "{given:?}");
        };
        check([60_000, 600_000, 100], [3_000, 5_000, 1]);
        check([300, 200, 0], [300, 200, 0]);
    }
}
