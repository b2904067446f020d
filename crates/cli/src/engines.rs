//! Engines, made of settings: one for a command, or one for all lines of `flatout run` that have the same.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatout_ambient::SettingRow;
use flatout_engine::{Client, Config, Dialect};

use crate::failure::Failure;
use crate::hint;
use crate::knobs::Knobs;

/// Engines, by the flags that lines give. They start nothing before their first use.
pub struct Engines {
    /// The flags of `run` itself: those of a line are stronger.
    given: Vec<(&'static str, String)>,
    made: Mutex<Vec<Made>>,
}

/// An engine, and what it was made of.
struct Made {
    given: Vec<(&'static str, String)>,
    client: Arc<Client>,
    rows: Vec<SettingRow>,
    warnings: Vec<(Dialect, String)>,
    /// Settings of these dialects are right, and warnings of them are said.
    checked: Vec<Dialect>,
}

/// Lines may name any number of endpoints. Of more than this the one that was asked for longest ago is
/// forgotten; it ends with the last line that uses it.
const ENGINES_MAX: usize = 16;

impl Engines {
    pub fn new(knobs: &Knobs) -> Engines {
        Engines { given: knobs.given().to_vec(), made: Mutex::default() }
    }

    /// The engine for a line with these flags, which speaks these dialects; `warn` says what the user should
    /// know of it.
    pub fn client(
        &self,
        warn: &dyn Fn(&str),
        knobs: &Knobs,
        dialects: &[Dialect],
    ) -> Result<Arc<Client>, Failure> {
        let mut all = self.made();
        let place = all.iter().position(|made| self.is_made_of(made, knobs));
        let mut made = match place {
            Some(place) => all.remove(place),
            None => Made::new(&knobs.clone().behind(self.given.clone()), dialects, warn)?,
        };
        let told = made.tell(warn, dialects);
        let client = made.client.clone();
        if all.len() == ENGINES_MAX {
            remember(&all.remove(0).client);
        }
        all.push(made);
        told.map(|()| client)
    }

    /// Keeps for the next run what this one found of its origins.
    pub fn remember(&self) {
        self.made().iter().for_each(|made| remember(&made.client));
    }

    fn is_made_of(&self, made: &Made, knobs: &Knobs) -> bool {
        let (before, own) = made.given.split_at(self.given.len());
        before == self.given && own == knobs.given()
    }

    fn made(&self) -> MutexGuard<'_, Vec<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Made {
    fn new(knobs: &Knobs, dialects: &[Dialect], warn: &dyn Fn(&str)) -> Result<Made, Failure> {
        let found = flatout_ambient::gather(knobs.given())?;
        let (rows, warnings) = (found.table(), found.warnings.clone());
        let client = client_of(found.into(), &rows, dialects)?;
        if let Some(note) = client.note() {
            warn(&hint::worded(note));
        }
        Ok(Made {
            given: knobs.given().to_vec(),
            client: Arc::new(client),
            rows,
            warnings,
            checked: Vec::new(),
        })
    }

    /// Says what the user should know of these dialects, once.
    fn tell(&mut self, warn: &dyn Fn(&str), dialects: &[Dialect]) -> Result<(), Failure> {
        for dialect in dialects {
            if self.checked.contains(dialect) {
                continue;
            }
            check_dialects(&self.client, &self.rows, &[*dialect])?;
            self.checked.push(*dialect);
            for (_, warning) in self.warnings.iter().filter(|(of, _)| of == dialect) {
                warn(warning);
            }
        }
        Ok(())
    }
}

/// An engine with these settings and keys; `rows` say where the settings came from. Those of OSS that are
/// wrong are wrong only where `dialects` has OSS: they may be another program's.
pub fn client_of(config: Config, rows: &[SettingRow], dialects: &[Dialect]) -> Result<Client, Failure> {
    let client = Client::new(config).map_err(|error| wrong_setting(&error, rows))?;
    check_dialects(&client, rows, dialects)?;
    Ok(client)
}

fn check_dialects(client: &Client, rows: &[SettingRow], dialects: &[Dialect]) -> Result<(), Failure> {
    if dialects.contains(&Dialect::Oss)
        && let Err(error) = client.way_to_buckets(Dialect::Oss)
        && error.setting().is_some()
    {
        return Err(wrong_setting(&error, rows));
    }
    Ok(())
}

/// Keeps for the next run what this one found of its origins.
pub fn remember(client: &Client) {
    flatout_ambient::remember(&client.paces());
}

/// A setting is named by where its value came from: `--region`, `AWS_REGION`, a place in a file.
fn wrong_setting(error: &flatout_engine::Error, rows: &[SettingRow]) -> Failure {
    let failure = Failure::from(error);
    let name = match error.setting() {
        Some(name) => name,
        None if error.doing().is_empty() => {
            return Failure { message: format!("settings: {}", failure.message), ..failure };
        }
        None => return failure,
    };
    // The variables of proxies are rows of their own.
    let others = ["https-proxy", "http-proxy"].iter().filter(|_| name == "proxy");
    let names = std::iter::once(&name).chain(others);
    let row =
        names.filter_map(|name| rows.iter().find(|row| row.name == *name && !row.place.is_empty())).next();
    let place = row.map_or(name, |row| row.place.as_str());
    Failure { message: format!("settings: {place}: {}", error.cause()), ..failure }
}
