//! `flatout config`: what is set, and which flag, variable or file says so.

use std::path::{Path, PathBuf};

use flatout_ambient::{SettingRow, Signer};
use flatout_settings::Kind;

use crate::args::ConfigShow;
use crate::console::{Carries, Console};
use crate::events::{self, SettingValue};
use crate::exit::Exit;
use crate::failure::{Failure, one_line};

/// What stands where there is no value.
const NOTHING: &str = "-";

pub fn show(args: &ConfigShow, console: &Console) -> Result<Exit, Failure> {
    let found = flatout_ambient::gather(args.knobs.given())?;
    for note in found.notes.iter().chain(found.warnings.iter().map(|(_, warning)| warning)) {
        console.warn(note);
    }
    let path = flatout_ambient::config_path()?;
    let (table, signers) = (found.table(), found.signers());
    for line in aligned(lines(&table, &signers, path.as_deref())) {
        console.answer(&one_line(&line))?;
    }
    for row in table {
        console.event(Carries::Lines, &setting(row))?;
    }
    for signer in signers {
        let Signer { dialect, provider, key, note, .. } = signer;
        console.event(Carries::Lines, &events::Credentials { dialect, provider, key, note })?;
    }
    console.event(Carries::Lines, &config(path))?;
    Ok(Exit::Clean)
}

pub fn path(console: &Console) -> Result<Exit, Failure> {
    let Some(path) = flatout_ambient::config_path()? else {
        let failure =
            Failure::usage("config: neither HOME nor XDG_CONFIG_HOME says where the config file is");
        return Err(failure.with_hint("set FLATOUT_CONFIG to the file's path"));
    };
    console.answer(&one_line(&path.display().to_string()))?;
    console.event(Carries::Lines, &config(Some(path)))?;
    Ok(Exit::Clean)
}

/// Name, value, and where it came from.
type Line = [String; 3];

fn lines(table: &[SettingRow], signers: &[Signer], path: Option<&Path>) -> Vec<Line> {
    let mut lines: Vec<Line> = table.iter().flat_map(setting_lines).collect();
    lines.extend(signers.iter().map(|signer| {
        let name = format!("credentials ({})", signer.dialect);
        match (&signer.provider, &signer.key) {
            (Some(provider), key) => [name, key.clone().unwrap_or_default(), provider.clone()],
            (None, _) => [name, NOTHING.to_owned(), signer.note.clone().unwrap_or_default()],
        }
    }));
    if let Some(path) = path {
        let state = if path.exists() { "read" } else { "not there" };
        lines.push(["config file".into(), path.display().to_string(), state.into()]);
    }
    lines
}

/// One for each value; what a setting has beyond the first stands below it without the name.
fn setting_lines(row: &SettingRow) -> Vec<Line> {
    let from = match row.place.as_str() {
        "" => row.layer.name().to_owned(),
        place => format!("{}: {place}", row.layer.name()),
    };
    let [first, more @ ..] = row.values.as_slice() else {
        return vec![[row.name.into(), NOTHING.into(), from]];
    };
    let more = more.iter().map(|value| [String::new(), shown(value), String::new()]);
    std::iter::once([row.name.into(), shown(first), from]).chain(more).collect()
}

/// A value that was set to nothing, to take a weaker layer's back, looks like none.
fn shown(value: &str) -> String {
    if value.is_empty() { NOTHING.into() } else { value.into() }
}

/// Columns as wide as their widest text; a very long value shifts its own line only.
fn aligned(lines: Vec<Line>) -> Vec<String> {
    const WIDEST: usize = 48;
    let width = |at: usize| {
        let widths = lines.iter().map(|line| line[at].chars().count()).filter(|width| *width <= WIDEST);
        widths.max().unwrap_or_default()
    };
    let (name, value) = (width(0), width(1));
    let line = |[a, b, c]: &Line| format!("{a:name$}  {b:value$}  {c}").trim_end().to_owned();
    lines.iter().map(line).collect()
}

/// A row as an event.
pub fn setting(row: SettingRow) -> events::Setting {
    let SettingRow { name, mut values, layer, place } = row;
    let many = flatout_settings::knob(name).is_some_and(|knob| knob.kind == Kind::Many);
    let value = match many {
        true => SettingValue::Many(values),
        false => SettingValue::One(values.pop()),
    };
    events::Setting { name, value, layer: layer.name(), place }
}

fn config(path: Option<PathBuf>) -> events::Config {
    let exists = path.as_deref().is_some_and(Path::exists);
    events::Config { path: path.map(|path| path.display().to_string()), exists }
}
