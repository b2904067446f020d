//! Every knob of `settings` as a flag, so that it is written down once; actions are clap derive (args.rs).

use std::ffi::OsStr;
use std::ops::Deref;

use clap::builder::{Command, PossibleValue, StringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Args, Error, FromArgMatches, ValueHint};
use flatout_settings::{Group, KNOBS, Kind, Knob};

/// The knobs given on the command line, by name, as typed; `ambient` reads them together with the
/// environment.
#[derive(Clone, Debug, Default)]
pub struct Knobs {
    given: Vec<(&'static str, String)>,
}

impl Knobs {
    /// Name and value of each, in the order of the table.
    pub fn given(&self) -> &[(&'static str, String)] {
        &self.given
    }

    /// These knobs with `name` fixed by the program, in place of what was typed.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Knobs {
        self.given.retain(|(given, _)| *given != name);
        let knob = flatout_settings::knob(name).expect("the program names only knobs that exist");
        self.given.push((knob.name, value.into()));
        self
    }

    /// These knobs with more before them, which are weaker than those that were typed.
    #[must_use]
    pub fn behind(mut self, mut weaker: Vec<(&'static str, String)>) -> Knobs {
        weaker.append(&mut self.given);
        Knobs { given: weaker }
    }

    /// As text, for a bench child.
    pub fn pairs(&self) -> Vec<(String, String)> {
        self.given.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
    }

    /// Back from text, as a bench child gets them from its parent; names that are no knobs are left out.
    pub fn from_pairs(pairs: &[(String, String)]) -> Knobs {
        let given = pairs
            .iter()
            .filter_map(|(name, value)| Some((flatout_settings::knob(name)?.name, value.clone())))
            .collect();
        Knobs { given }
    }
}

/// Those of a mount, too; dereferences to all of them together.
#[derive(Clone, Debug, Default)]
pub struct MountKnobs(Knobs);

impl From<Knobs> for MountKnobs {
    fn from(knobs: Knobs) -> MountKnobs {
        MountKnobs(knobs)
    }
}

impl Deref for MountKnobs {
    type Target = Knobs;

    fn deref(&self) -> &Knobs {
        &self.0
    }
}

impl Args for Knobs {
    fn augment_args(command: Command) -> Command {
        flags(command, is_of_every_command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Knobs::augment_args(command)
    }
}

impl FromArgMatches for Knobs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Knobs, Error> {
        given(matches, is_of_every_command)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Knobs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for MountKnobs {
    fn augment_args(command: Command) -> Command {
        // What a mount is about comes first.
        let command = flags(command, |knob| !is_of_every_command(knob));
        Knobs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        MountKnobs::augment_args(command)
    }
}

impl FromArgMatches for MountKnobs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<MountKnobs, Error> {
        given(matches, |_| true).map(MountKnobs)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = MountKnobs::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Those of a mount are flags of `mount` alone.
fn is_of_every_command(knob: &Knob) -> bool {
    knob.group != Group::Mount
}

fn flags(command: Command, wanted: impl Fn(&Knob) -> bool) -> Command {
    KNOBS.iter().filter(|knob| wanted(knob)).fold(command, |command, knob| command.arg(flag(knob)))
}

/// The values of the same knobs that were made `flags`: to ask clap for another is a panic.
fn given(matches: &ArgMatches, wanted: impl Fn(&Knob) -> bool) -> Result<Knobs, Error> {
    let given: Vec<_> = KNOBS
        .iter()
        .filter(|knob| wanted(knob))
        .flat_map(|knob| typed(knob, matches).into_iter().map(move |value| (knob.name, value)))
        .collect();
    match given.iter().find(|(name, value)| value.is_empty() && !MAY_BE_EMPTY.contains(name)) {
        Some((name, _)) => Err(empty(name)),
        None => Ok(Knobs { given }),
    }
}

/// The flag of a knob. Its value stays text here: `settings` alone knows what is valid, and says so in one
/// voice whether the value came from a flag or from the environment.
fn flag(knob: &'static Knob) -> Arg {
    let arg = Arg::new(knob.name).long(knob.name).help(help(knob)).help_heading(knob.group.title());
    let (value_name, hint) = value(knob);
    let valued = |arg: Arg| arg.value_name(value_name).value_hint(hint);
    match knob.kind {
        Kind::Switch => arg.action(ArgAction::SetTrue).overrides_with(knob.name),
        Kind::Many => valued(arg).action(ArgAction::Append),
        // The help names the choices; here they are for the completions.
        Kind::Choice(choices) => valued(arg)
            .overrides_with(knob.name)
            .value_parser(AnyTextOr { choices })
            .hide_possible_values(true),
        // So that it is settings that say what is wrong with -1.
        _ => valued(arg).action(ArgAction::Set).overrides_with(knob.name).allow_negative_numbers(true),
    }
}

/// Flags whose empty value says: none, whatever the environment has.
const MAY_BE_EMPTY: [&str; 2] = ["proxy", "no-proxy"];

/// `--endpoint-url "$UNSET"` is not to mean the endpoint of somebody else.
fn empty(name: &str) -> Error {
    let value_name = flatout_settings::knob(name).map_or("VALUE", |knob| value(knob).0);
    let mut refused = Error::new(ErrorKind::InvalidValue);
    refused.insert(ContextKind::InvalidArg, ContextValue::String(format!("--{name} <{value_name}>")));
    refused.insert(ContextKind::InvalidValue, ContextValue::String(String::new()));
    refused
}

/// Takes any text, and lets shells complete the choices.
#[derive(Clone)]
struct AnyTextOr {
    choices: &'static [&'static str],
}

impl TypedValueParser for AnyTextOr {
    type Value = String;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<String, Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.choices.iter().map(|choice| PossibleValue::new(*choice))))
    }
}

/// Whether the flag says where an origin is and how it is spoken to.
pub fn is_of_the_origin(arg: &Arg) -> bool {
    flatout_settings::knob(arg.get_id().as_str()).is_some_and(|knob| knob.group == Group::Origin)
}

fn typed(knob: &Knob, matches: &ArgMatches) -> Vec<String> {
    match knob.kind {
        Kind::Switch if matches.get_flag(knob.name) => vec!["true".to_owned()],
        Kind::Switch => Vec::new(),
        _ => matches.get_many::<String>(knob.name).into_iter().flatten().cloned().collect(),
    }
}

/// The line of prose, then choices, default and variable. The variable is named here and read by `ambient`,
/// not by clap.
fn help(knob: &Knob) -> String {
    let default = match knob.default {
        "" | "false" => String::new(),
        default => format!("default: {default}, "),
    };
    let choices = match knob.kind {
        Kind::Choice(choices) => format!("one of: {}, ", choices.join("|")),
        _ => String::new(),
    };
    format!("{} [{choices}{default}env: {}]", knob.doc, knob.env())
}

/// What stands for the value in the help, and how a shell may complete it.
fn value(knob: &Knob) -> (&'static str, ValueHint) {
    match knob.name {
        "endpoint-url" | "proxy" => ("URL", ValueHint::Url),
        "oss-endpoint" => ("HOST", ValueHint::Hostname),
        "no-proxy" => ("HOSTS", ValueHint::Hostname),
        "resolve" => ("HOST:ADDR", ValueHint::Hostname),
        "bind" => ("ADDR", ValueHint::Other),
        "region" | "oss-region" | "profile" => ("NAME", ValueHint::Other),
        "addressing" => ("STYLE", ValueHint::Other),
        "oss-signature" => ("VERSION", ValueHint::Other),
        "ca-bundle" => ("FILE", ValueHint::FilePath),
        _ => (knob.kind.value_name().unwrap_or("VALUE"), ValueHint::Other),
    }
}
