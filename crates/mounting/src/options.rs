//! Parses the options of `-o`: those of mount(8), every knob, and the names of libfuse, ossfs and others.
//! An unknown option is an error with the nearest name.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use flatout_settings::{KNOBS, Kind, Knob, Settings, nearest, parse_metrics_address};
use flatout_wire::words::masked;

use crate::foreign::{ForeignOption, OptionMeaning, without_mask};
use crate::tables::{page_of, row_of, rows};

/// The options of one mount.
#[derive(Debug, Default, PartialEq)]
pub struct MountOptions {
    /// Name and value of each knob, in the knob's own unit.
    pub knobs: Vec<(&'static str, String)>,
    /// Options that mount(2) has a flag for: `nosuid`.
    pub system: Vec<String>,
    /// The kernel does not check the permission bits.
    pub no_permissions: bool,
    pub foreground: bool,
    /// Another process keeps the mount if the one that serves it dies.
    pub supervise: bool,
    /// The mount point may hold files, which the mount covers.
    pub nonempty: bool,
    pub metrics: Option<SocketAddr>,
    pub log: Option<PathBuf>,
    pub stats: Option<PathBuf>,
    /// Lines to show: an option was accepted, and may not do what its author wants.
    pub notes: Vec<String>,
    /// The permission bits that a umask leaves, for files and folders without bits of their own.
    umask: Option<String>,
    /// Options of other mounts without effect here, and why.
    idle: Vec<(&'static str, &'static str)>,
}

/// An option that was refused. Displays as `-o OPTION: why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OptionError {
    message: String,
    /// What to write instead, if that is known.
    pub hint: Option<String>,
    /// No table has an option of this name.
    pub is_unknown: bool,
}

impl OptionError {
    fn new(message: String) -> OptionError {
        OptionError { message, hint: None, is_unknown: false }
    }
}

impl fmt::Display for OptionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for OptionError {}

/// An option that is no knob.
#[derive(Clone, Copy, PartialEq)]
enum Keyword {
    /// Passed to mount(2).
    System,
    /// For mount(8), systemd or people: there is nothing to do.
    Nothing,
    /// For mount(8), systemd or people, with a value.
    Remark,
    ReadOnly,
    Writable,
    Permissions,
    Foreground,
    Supervise,
    Nonempty,
    Metrics,
    Log,
    Stats,
    /// Unknown options are reported, not refused; `-s` of mount(8).
    Sloppy,
    Refused(&'static str),
}

use Keyword::{
    Foreground, Log, Metrics, Nonempty, Nothing, Permissions, ReadOnly, Refused, Remark, Sloppy, Stats,
    Supervise, System, Writable,
};

/// Options that mount(8) passes to every file system, options of FUSE, and ours that are no knobs.
const KEYWORDS: &[(&str, Keyword)] = &[
    ("ro", ReadOnly),
    ("rw", Writable),
    ("defaults", Nothing),
    ("auto", Nothing),
    ("noauto", Nothing),
    ("nofail", Nothing),
    ("_netdev", Nothing),
    ("user", Remark),
    ("users", Nothing),
    ("nouser", Nothing),
    ("owner", Nothing),
    ("group", Nothing),
    ("comment", Remark),
    ("loud", Nothing),
    ("silent", Nothing),
    ("uhelper", Remark),
    ("helper", Remark),
    ("lazytime", Nothing),
    ("nolazytime", Nothing),
    ("iversion", Nothing),
    ("noiversion", Nothing),
    ("mand", Nothing),
    ("nomand", Nothing),
    ("symfollow", Nothing),
    ("nosymfollow", Nothing),
    ("suid", System),
    ("nosuid", System),
    ("dev", System),
    ("nodev", System),
    ("exec", System),
    ("noexec", System),
    ("atime", Nothing),
    ("noatime", System),
    ("diratime", Nothing),
    ("nodiratime", System),
    ("relatime", System),
    ("norelatime", Nothing),
    ("strictatime", Nothing),
    ("nostrictatime", Nothing),
    ("sync", System),
    ("async", System),
    ("dirsync", System),
    ("default_permissions", Permissions),
    ("foreground", Foreground),
    ("supervise", Supervise),
    ("nonempty", Nonempty),
    ("metrics", Metrics),
    ("log", Log),
    ("stats", Stats),
    ("sloppy", Sloppy),
    ("remount", Refused("a mount cannot be changed while it stands: unmount it, and mount it anew")),
    ("bind", Refused("that is for folders: `mount --bind` of the mount point")),
];

impl MountOptions {
    /// Parses the list of every `-o` in turn. Two options that contradict each other are an error. With
    /// `last_counts` the last one counts, as for mount(8), which puts the options that are typed behind those
    /// of fstab.
    ///
    /// # Errors
    /// An unknown option, one that means nothing here, a wrong value, or a contradiction.
    pub fn parse(lists: &[String], last_counts: bool) -> Result<MountOptions, OptionError> {
        let options: Vec<(String, Option<String>)> = lists.iter().flat_map(|list| split(list)).collect();
        let is_sloppy = options.iter().any(|(name, _)| name == "sloppy");
        let is_read_only = options.iter().any(|(name, _)| name == "ro");
        let mut chosen = MountOptions::default();
        for (name, value) in &options {
            match chosen.take(name, value.as_deref(), is_read_only) {
                // A value that is wrong stays wrong.
                Err(error) if is_sloppy && error.is_unknown => chosen.notes.push(error.to_string()),
                taken => taken?,
            }
        }
        if !last_counts {
            check_decisions(&options)?;
        }
        chosen.settle();
        Ok(chosen)
    }
}

/// Refuses options that contradict each other.
fn check_decisions(options: &[(String, Option<String>)]) -> Result<(), OptionError> {
    let mut decided: Vec<(&str, MountOptions, String)> = Vec::new();
    for (name, value) in options {
        let Some(what) = find(name).and_then(|known| known.decides(value.as_deref())) else {
            continue;
        };
        let mut alone = MountOptions::default();
        alone.take(name, value.as_deref(), true)?;
        let typed = value.as_ref().map_or_else(|| name.clone(), |value| format!("{name}={}", masked(value)));
        match decided.iter().find(|(earlier, ..)| *earlier == what) {
            Some((_, same, _)) if same.says_the_same(&alone) => {}
            Some((.., earlier)) => {
                let contradicts = refused(&typed, &format!("contradicts {earlier}"));
                return Err(OptionError { hint: Some("leave one of them out".into()), ..contradicts });
            }
            None => decided.push((what, alone, typed)),
        }
    }
    Ok(())
}

/// The table that an option stands in.
enum OptionKind {
    Keyword(Keyword),
    Knob(&'static Knob),
    Foreign(&'static ForeignOption),
}

fn find(name: &str) -> Option<OptionKind> {
    if name.starts_with("x-") || name.starts_with("X-") {
        return Some(OptionKind::Keyword(Nothing));
    }
    // The knob of connections' local addresses has a name of mount(8)'s, which has no value.
    let word = || Some(OptionKind::Keyword(KEYWORDS.iter().find(|(word, _)| *word == name)?.1));
    let knob = || flatout_settings::knob(&name.replace('_', "-")).map(OptionKind::Knob);
    word().or_else(knob).or_else(|| row_of(name).map(OptionKind::Foreign))
}

impl OptionKind {
    /// The name of the one thing that it decides; options of several names may decide the same. Options of
    /// mount(8) are left out: they come in pairs of which the last counts, such as `user`, which implies
    /// `noexec`, and `exec` behind it.
    fn decides(&self, value: Option<&str>) -> Option<&'static str> {
        let one = |knob: &Knob| (knob.kind != Kind::Many).then_some(knob.name);
        match self {
            OptionKind::Knob(knob) => one(knob),
            OptionKind::Keyword(word) => match word {
                Permissions => Some("default_permissions"),
                Foreground => Some("foreground"),
                Supervise => Some("supervise"),
                Nonempty => Some("nonempty"),
                Metrics => Some("metrics"),
                Log => Some("log"),
                Stats => Some("stats"),
                _ => None,
            },
            OptionKind::Foreign(row) => match row.meaning {
                OptionMeaning::Sets(..) if is_off(value) => None,
                OptionMeaning::Knob(knob, _) | OptionMeaning::Sets(knob, _) | OptionMeaning::Mask(knob) => {
                    flatout_settings::knob(knob).and_then(one)
                }
                OptionMeaning::Same(name) => find(name).and_then(|known| known.decides(value)),
                OptionMeaning::Endpoint => Some("endpoint-url"),
                OptionMeaning::Umask => Some("umask"),
                OptionMeaning::MetricsPort => Some("metrics"),
                OptionMeaning::ZeroSets(knob, ..) if value == Some("0") => {
                    flatout_settings::knob(knob).and_then(one)
                }
                OptionMeaning::ZeroSets(..)
                | OptionMeaning::Is(..)
                | OptionMeaning::Idle(_)
                | OptionMeaning::Refused(_) => None,
            },
        }
    }
}

impl MountOptions {
    /// Compares the results of one option each by value: `1GiB` is `1024MiB`.
    fn says_the_same(&self, other: &MountOptions) -> bool {
        match (self.knobs.as_slice(), other.knobs.as_slice()) {
            ([(name, one)], [(_, other)]) => {
                let read = |value: &str| {
                    let mut settings = Settings::default();
                    settings.set(name, value).map(|()| settings)
                };
                read(one) == read(other)
            }
            _ => self == other,
        }
    }

    fn take(&mut self, name: &str, value: Option<&str>, is_read_only: bool) -> Result<(), OptionError> {
        match find(name) {
            Some(OptionKind::Keyword(Refused(_))) if name == "bind" && value.is_some() => {
                self.knob(name, flatout_settings::knob("bind").expect("bind is a knob"), value)
            }
            Some(OptionKind::Keyword(word)) => self.word(name, word, value, is_read_only),
            Some(OptionKind::Knob(knob)) => self.knob(name, knob, value),
            Some(OptionKind::Foreign(row)) => self.foreign(row, value, is_read_only),
            None => Err(unknown(name)),
        }
    }

    fn word(
        &mut self,
        name: &str,
        word: Keyword,
        value: Option<&str>,
        is_read_only: bool,
    ) -> Result<(), OptionError> {
        let wanted = |what: &str| {
            let missing = || refused(name, &format!("a value is missing: write {name}={what}"));
            value.filter(|value| !value.is_empty()).ok_or_else(missing)
        };
        if let (Nothing | Writable | System | Sloppy, Some(value)) = (word, value)
            && !name.starts_with("x-")
            && !name.starts_with("X-")
        {
            let typed = format!("{name}={value}");
            return Err(refused(&typed, &format!("{name} takes no value: write {name} alone")));
        }
        match word {
            System => self.system.push(name.to_owned()),
            Nothing | Remark => {}
            // As ossfs 2.0 writes it.
            ReadOnly if matches!(value, Some("false" | "0")) => {
                return self.word("rw", Writable, None, false);
            }
            ReadOnly if matches!(value, None | Some("true" | "1")) => {
                self.knobs.push(("read-only", "true".into()));
            }
            ReadOnly => return Err(refused(name, "takes no value: write ro alone")),
            Writable if is_read_only => {}
            Writable => self.knobs.push(("read-only", "false".into())),
            Permissions => self.no_permissions = !on(name, value)?,
            Foreground => self.foreground = on(name, value)?,
            Supervise => self.supervise = on(name, value)?,
            Nonempty => self.nonempty = on(name, value)?,
            Sloppy => {}
            Metrics => self.metrics = Some(address(name, wanted("HOST:PORT")?)?),
            Log => self.log = Some(wanted("FILE")?.into()),
            Stats => self.stats = Some(wanted("FILE")?.into()),
            Refused(why) => return Err(refused(name, why)),
        }
        Ok(())
    }

    fn knob(&mut self, name: &str, knob: &'static Knob, value: Option<&str>) -> Result<(), OptionError> {
        let value = match (knob.kind, value) {
            (Kind::Switch, None) => "true",
            (kind, None | Some("")) => {
                let what = kind.value_name().unwrap_or("true");
                return Err(refused(name, &format!("a value is missing: write {name}={what}")));
            }
            (_, Some(value)) => value,
        };
        match row_of(name).map(|row| (row.name, row.meaning)) {
            // Another mount has the name, too, and writes its number without a unit.
            Some((theirs, OptionMeaning::Knob(_, unit)))
                if theirs == name && value.bytes().all(|digit| digit.is_ascii_digit()) =>
            {
                let values = unit.read(Some(value)).map_err(|why| refused(name, &why))?;
                values.iter().try_for_each(|value| self.set(name, knob, value))
            }
            _ => self.set(name, knob, value),
        }
    }

    fn set(&mut self, typed: &str, knob: &'static Knob, value: &str) -> Result<(), OptionError> {
        // What is wrong is said of the option, not of a flag that nobody typed.
        Settings::default().set(knob.name, value).map_err(|wrong| {
            match typed.replace('_', "-") == knob.name {
                true => OptionError::new(format!("-o {wrong}")),
                false => refused(typed, &wrong.to_string()),
            }
        })?;
        self.knobs.push((knob.name, value.to_owned()));
        Ok(())
    }

    fn foreign(
        &mut self,
        row: &'static ForeignOption,
        value: Option<&str>,
        is_read_only: bool,
    ) -> Result<(), OptionError> {
        let name = row.name;
        let wrong = |why: String| refused(name, &why);
        let known = |knob| flatout_settings::knob(knob).expect("a test looks up every knob of the tables");
        match row.meaning {
            OptionMeaning::Knob(knob, unit) => {
                for value in unit.read(value).map_err(wrong)? {
                    self.set(name, known(knob), &value)?;
                }
            }
            OptionMeaning::Sets(..) if is_off(value) => {}
            OptionMeaning::Sets(knob, fixed) => self.set(name, known(knob), fixed)?,
            OptionMeaning::Same(ours) => self.take(ours, value, is_read_only)?,
            OptionMeaning::Endpoint => {
                let missing = || wrong("a value is missing: write a URL".to_owned());
                let url = value.filter(|url| !url.is_empty()).ok_or_else(missing)?;
                self.set(name, known("endpoint-url"), url)?;
                self.set(name, known("oss-endpoint"), url)?;
            }
            OptionMeaning::Umask => self.umask = Some(without_mask(value).map_err(wrong)?),
            OptionMeaning::Mask(knob) => self.set(name, known(knob), &without_mask(value).map_err(wrong)?)?,
            OptionMeaning::MetricsPort => {
                let port: u16 = value
                    .unwrap_or_default()
                    .parse()
                    .map_err(|_| refused(name, "write a port, 1 to 65535, or 0 for none"))?;
                self.metrics = (port > 0).then(|| SocketAddr::from(([127, 0, 0, 1], port)));
            }
            OptionMeaning::Is(fixed, why) => {
                let value = value.unwrap_or("true");
                if !fixed.iter().any(|fixed| fixed.eq_ignore_ascii_case(value)) {
                    return Err(refused(name, why));
                }
            }
            OptionMeaning::ZeroSets(knob, fixed, _) if value == Some("0") => {
                self.set(name, known(knob), fixed)?;
            }
            OptionMeaning::Idle(why) | OptionMeaning::ZeroSets(.., why) => self.idle.push((name, why)),
            // It has no default, and none is chosen.
            OptionMeaning::Refused(_) if row.default.is_empty() && value == Some("") => {}
            OptionMeaning::Refused(why) => return Err(refused(name, why)),
        }
        Ok(())
    }

    /// Decides what depends on all options.
    fn settle(&mut self) {
        if let Some(bits) = self.umask.take() {
            for name in ["file-mode", "dir-mode"] {
                if self.knobs.iter().all(|(knob, _)| *knob != name) {
                    self.knobs.push((name, bits.clone()));
                }
            }
        }
        let mut idle: Vec<(&str, &str)> = Vec::new();
        for (name, why) in self.idle.drain(..) {
            if idle.iter().all(|(earlier, _)| *earlier != name) {
                idle.push((name, why));
            }
        }
        match idle.as_slice() {
            [] => {}
            [(name, why)] => self.notes.push(format!("-o {name}: has no effect here: {why}")),
            many => {
                let names: Vec<&str> = many.iter().map(|(name, _)| *name).collect();
                let mut pages: Vec<&str> = names.iter().map(|name| page_of(name)).collect();
                pages.sort_unstable();
                pages.dedup();
                let say = if pages.len() == 1 { "says" } else { "say" };
                let (names, pages) = (names.join(", "), pages.join(" and "));
                self.notes.push(format!("-o {names}: have no effect here: {pages} {say} why of each"));
            }
        }
    }
}

/// Splits a list at its commas, except within quotes, as mount(8) does.
fn split(list: &str) -> Vec<(String, Option<String>)> {
    let mut pieces = vec![String::new()];
    let mut is_quoted = false;
    for character in list.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => pieces.push(String::new()),
            _ => pieces.last_mut().expect("there is always one").push(character),
        }
    }
    // goofys has its flags written with their dashes.
    let bare = |name: &str| name.trim().trim_start_matches("--").to_owned();
    let pair = |piece: String| match piece.split_once('=') {
        Some((name, value)) => (bare(name), Some(value.to_owned())),
        None => (bare(&piece), None),
    };
    pieces.into_iter().filter(|piece| !piece.trim().is_empty()).map(pair).collect()
}

/// Whether an option that may stand alone is turned off.
fn is_off(value: Option<&str>) -> bool {
    matches!(value, Some("false" | "0"))
}

/// The value of an option that may stand alone, or be `=false`.
fn on(name: &str, value: Option<&str>) -> Result<bool, OptionError> {
    match value.unwrap_or("true").to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(true),
        "false" | "0" | "no" | "off" => Ok(false),
        other => {
            Err(refused(name, &format!("'{other}' is not a switch: write {name} alone, or {name}=false")))
        }
    }
}

fn address(name: &str, text: &str) -> Result<SocketAddr, OptionError> {
    parse_metrics_address(text).map_err(|why| refused(name, &format!("'{text}': {why}")))
}

fn refused(option: &str, why: &str) -> OptionError {
    OptionError::new(format!("-o {option}: {why}"))
}

fn unknown(name: &str) -> OptionError {
    // Options of ours come first: of two that are as near, ours is meant.
    let near = nearest(name, names().chain(rows().map(|row| row.name)));
    let hint = near.map(|near| format!("did you mean '{near}'?"));
    OptionError { hint, is_unknown: true, ..refused(name, "is no option") }
}

/// The names of our own options.
pub fn names() -> impl Iterator<Item = &'static str> {
    KNOBS.iter().map(|knob| knob.name).chain(KEYWORDS.iter().map(|(word, _)| *word))
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
