//! `flatout version`, and with `--verbose` what a bug report has to say besides.

use std::fs;
use std::path::Path;

use flatout_ambient::{Layer, SettingRow};
use flatout_settings::format_size;

use crate::args;
use crate::commands::config::setting;
use crate::commands::doctor::machine::Machine;
use crate::console::{Carries, Console};
use crate::events::{self, Build, Version};
use crate::exit::Exit;
use crate::failure::{Failure, one_line};
use crate::sys;

pub fn run(args: &args::Version, console: &Console) -> Result<Exit, Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let build = args.verbose.then(build);
    console.answer(&format!("flatout {version}"))?;
    if let Some(build) = &build {
        for (name, value) in rows(build) {
            console.answer(&format!("{name:12}{}", one_line(&value)))?;
        }
    }
    console.event(Carries::Lines, &Version { program: "flatout", version, build })?;
    Ok(Exit::Clean)
}

fn build() -> Build {
    let machine = Machine::look(Path::new("/"));
    // Settings that are wrong are what the report may be about.
    let (settings, settings_error) = match flatout_ambient::gather(&[]) {
        Ok(found) => (found.table().into_iter().filter(is_set).map(setting).collect(), None),
        Err(wrong) => (Vec::new(), Some(wrong.to_string())),
    };
    Build {
        commit: option_env!("BUILD_COMMIT").filter(|commit| !commit.is_empty()),
        profile: env!("BUILD_PROFILE"),
        target: env!("BUILD_TARGET"),
        rustc: env!("BUILD_RUSTC"),
        libraries: env!("BUILD_LIBRARIES").split(", ").filter(|library| !library.is_empty()).collect(),
        c_library: sys::c_library(),
        kernel: machine.kernel,
        system: system(&fs::read_to_string("/etc/os-release").unwrap_or_default()),
        container: machine.container,
        cpu: machine.cpu,
        cores: machine.cores,
        allowed_cores: machine.allowed_cores,
        quota_cores: machine.quota_cores,
        memory_bytes: machine.memory_bytes,
        settings,
        settings_error,
    }
}

fn is_set(row: &SettingRow) -> bool {
    row.layer != Layer::Default && !row.values.is_empty()
}

/// `PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"`
fn system(release: &str) -> Option<String> {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

fn rows(build: &Build) -> Vec<(&'static str, String)> {
    let unknown = || "not recorded".to_owned();
    let some = |text: &str| if text.is_empty() { unknown() } else { text.to_owned() };
    let quota = build.quota_cores.map_or(String::new(), |quota| format!(", quota {quota:.1}"));
    let mut rows = vec![
        ("commit", build.commit.map_or_else(|| format!("{} in this build", unknown()), str::to_owned)),
        ("built", format!("{} for {} by {}", build.profile, build.target, some(build.rustc))),
        ("libraries", some(&build.libraries.join(", "))),
        ("C library", build.c_library.clone()),
        ("kernel", some(&build.kernel)),
        ("system", build.system.clone().unwrap_or_else(unknown)),
        ("container", build.container.unwrap_or("none seen").to_owned()),
        ("cpu", some(&build.cpu)),
        ("cores", format!("{} of {}{quota}", build.allowed_cores, build.cores)),
        ("memory", format_size(build.memory_bytes)),
    ];
    match (&build.settings_error, build.settings.as_slice()) {
        (Some(wrong), _) => rows.push(("settings", wrong.clone())),
        (None, []) => rows.push(("settings", "all as by default".to_owned())),
        (None, settings) => rows.extend(settings.iter().map(|setting| ("setting", shown(setting)))),
    }
    rows
}

fn shown(setting: &events::Setting) -> String {
    let value = match &setting.value {
        events::SettingValue::One(value) => value.clone().unwrap_or_default(),
        events::SettingValue::Many(values) => values.join(" "),
    };
    let place = if setting.place.is_empty() { setting.layer } else { setting.place.as_str() };
    format!("{} {value} ({place})", setting.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_has_a_pretty_name() {
        assert_eq!(system("ID=x\nPRETTY_NAME=\"A System 12\"\n").as_deref(), Some("A System 12"));
        assert_eq!(system(""), None);
    }
}
