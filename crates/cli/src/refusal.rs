//! What clap refuses, said in the program's own form: one line, a hint, exit code 4.

mod s5cmd;

use std::error::Error;
use std::io::Write;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use flatout_settings::nearest;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::stdout::{self, Stdout};

/// Shows help where it was asked for, else the error.
pub fn show(refused: &clap::Error) -> Exit {
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match printed(refused) {
            Ok(()) => Exit::Clean,
            Err(failure) => {
                // `flatout --help | head -1` closes the pipe: nothing is wrong then.
                if !failure.is_silent() {
                    let _ = writeln!(std::io::stderr().lock(), "{failure}");
                }
                failure.exit
            }
        },
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = refused.print();
            Exit::Usage
        }
        _ => {
            let failure = failure(refused);
            if std::env::args_os().any(|argument| argument == "--json") {
                let event = crate::events::Error::from(&failure);
                let line = serde_json::to_string(&crate::events::Versioned::new(&event));
                // Where that is refused, standard error says it all the same.
                let _ = writeln!(Stdout, "{}", line.expect("events are maps with text for keys"));
            }
            let _ = writeln!(std::io::stderr().lock(), "{failure}");
            failure.exit
        }
    }
}

fn printed(help: &clap::Error) -> Result<(), Failure> {
    stdout::check()?;
    let printed = help.print().and_then(|()| std::io::stdout().flush());
    printed.map_err(|error| Failure::stdout(&error))
}

/// What clap found, in the words of the settings' own errors.
pub fn failure(refused: &clap::Error) -> Failure {
    let words = |kind| strings(refused, kind);
    let one = |kind| words(kind).join(" ");
    // The flag without the value that it takes.
    let flag = one(ContextKind::InvalidArg);
    let flag = flag.split(' ').next().unwrap_or_default();
    let value = one(ContextKind::InvalidValue);
    let what = match refused.kind() {
        ErrorKind::InvalidSubcommand => {
            format!("there is no command '{}'", one(ContextKind::InvalidSubcommand))
        }
        ErrorKind::UnknownArgument if flag.starts_with('-') => format!("there is no flag '{flag}' here"),
        ErrorKind::UnknownArgument => format!("'{}' is one argument too many", one(ContextKind::InvalidArg)),
        ErrorKind::MissingRequiredArgument => {
            format!("{} is missing", choices(&one(ContextKind::InvalidArg)))
        }
        ErrorKind::InvalidValue if value.is_empty() && flag.starts_with('[') => {
            format!("{flag} is empty: write one, or leave it out")
        }
        ErrorKind::InvalidValue if value.is_empty() && !flag.starts_with('-') => format!("{flag} is empty"),
        ErrorKind::InvalidValue if value.is_empty() => {
            format!("{flag}: a value is missing: write {}", one(ContextKind::InvalidArg))
        }
        ErrorKind::InvalidValue => {
            format!("{flag}: '{value}' is not one of {}", words(ContextKind::ValidValue).join(", "))
        }
        ErrorKind::InvalidUtf8 => match std::env::args_os().find(|argument| argument.to_str().is_none()) {
            Some(argument) => format!("'{}' is not UTF-8", argument.display()),
            None => "an argument is not UTF-8".to_owned(),
        },
        ErrorKind::ValueValidation => match refused.source() {
            Some(why) => format!("{flag}: '{value}': {why}"),
            None => format!("{flag}: '{value}' is no value for it"),
        },
        ErrorKind::ArgumentConflict => {
            let others = words(ContextKind::PriorArg);
            let others: Vec<&str> = others.iter().filter_map(|other| other.split(' ').next()).collect();
            format!("{flag} and {} exclude each other", others.join(", "))
        }
        _ => first_line(&refused.to_string()),
    };
    let failure = Failure::usage(format!("command line: {what}"));
    match hint(refused, &what) {
        Some(hint) => failure.with_hint(hint),
        None => failure,
    }
}

/// How other programs are told to take any certificate.
const NO_TLS_FLAGS: [&str; 4] =
    ["--no-verify-ssl", "--skip-verify-cert", "--no-check-certificate", "--insecure"];
const NO_TLS_HINT: &str =
    "no flag turns off the check of certificates; --ca-bundle FILE trusts a private one";

/// `--root <DIR> or --memory` of `<--root <DIR>|--memory>`.
fn choices(missing: &str) -> String {
    let group = missing.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
    group
        .filter(|group| group.starts_with("--"))
        .map_or(missing.to_owned(), |group| group.replace('|', " or "))
}

/// The nearest name; where the error does not say itself what to write, how the command is called.
fn hint(refused: &clap::Error, what: &str) -> Option<String> {
    let near = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand];
    let mut near: Vec<String> = near.iter().flat_map(|kind| strings(refused, *kind)).collect();
    // clap takes --if-none-match for what is meant by --frobnicate.
    let flag = strings(refused, ContextKind::InvalidArg).concat();
    let usage = strings(refused, ContextKind::Usage).concat();
    if refused.kind() == ErrorKind::UnknownArgument
        && let Some(hint) = s5cmd::hint(&flag, &usage)
    {
        return Some(hint);
    }
    near.retain(|name| name.strip_prefix("--").is_none_or(|name| nearest(&flag, [name]).is_some()));
    // What is nearest to it by its letters, --no-verify, is about checksums.
    if NO_TLS_FLAGS.contains(&flag.as_str()) {
        return Some(NO_TLS_HINT.to_owned());
    }
    // clap takes zsh for what is meant by tcsh.
    let (typed, values) =
        (strings(refused, ContextKind::InvalidValue), strings(refused, ContextKind::ValidValue));
    near.extend(nearest(&typed.concat(), values.iter().map(String::as_str)).map(str::to_owned));
    if !near.is_empty() {
        return Some(format!("did you mean '{}'?", near.join("' or '")));
    }
    if what.contains("write ") {
        return None;
    }
    let missing = strings(refused, ContextKind::InvalidArg);
    let usage = usage.trim_start_matches("Usage: ").trim();
    let command: Vec<&str> =
        usage.split_whitespace().take_while(|word| !word.starts_with(['-', '<', '['])).collect();
    Some(match (command.is_empty(), refused.kind()) {
        (true, _) => "`flatout --help`, or --help behind a command, shows what there is".to_owned(),
        // The usage that clap knows then lacks what was typed.
        (false, ErrorKind::MissingRequiredArgument) if missing.iter().all(|arg| arg.starts_with("--")) => {
            format!("add {}; `{} --help` explains it", missing.join(" "), command.join(" "))
        }
        (false, ErrorKind::MissingRequiredArgument) => {
            format!("{usage}; `{} --help` explains it", command.join(" "))
        }
        (false, _) => format!("`{} --help` shows what there is", command.join(" ")),
    })
}

fn strings(refused: &clap::Error, kind: ContextKind) -> Vec<String> {
    match refused.get(kind) {
        Some(ContextValue::String(one)) => vec![one.clone()],
        Some(ContextValue::Strings(many)) => many.clone(),
        Some(ContextValue::StyledStr(one)) => vec![one.to_string()],
        _ => Vec::new(),
    }
}

fn first_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn check(arguments: &[&str], expected: &[&str]) {
        let line = std::iter::once("flatout").chain(arguments.iter().copied());
        let refused = crate::args::Line::try_parse_from(line).unwrap_err();
        let shown = failure(&refused).to_string();
        for part in expected {
            assert!(shown.contains(part), "{shown:?} lacks {part:?}");
        }
        assert!(shown.lines().count() <= 2, "{shown}");
    }

    #[test]
    fn the_nearest_name_is_the_hint() {
        check(&["cp", "a", "b", "--paralel", "3"], &["'--paralel'", "hint:", "'--parallel'"]);
        check(&["serv"], &["'serv'", "'serve'"]);
        check(&["cp", "a", "b", "--frobnicate"], &["'--frobnicate'", "hint:"]);
        check(&["completions", "zhs"], &["'zhs' is not one of bash, ", "did you mean 'zsh'?"]);
    }

    /// The nearest flag, --no-verify, turns off another check.
    #[test]
    fn no_verify_was_taken_for_what_is_meant_by_no_verify_ssl() {
        for flag in NO_TLS_FLAGS {
            check(&["cp", "a", "b", flag], &[flag, "hint: no flag turns off", "--ca-bundle FILE"]);
        }
    }

    #[test]
    fn flags_of_s5cmd_are_told_by_what_does_the_like_here() {
        check(&["cp", "a", "b", "--flatten"], &["'--flatten'", "hint: s5cmd's --flatten"]);
        check(&["cp", "-n", "-s", "-u", "a", "b"], &["'-s'", "`flatout sync`"]);
        check(&["mv", "a", "b", "-c", "3"], &["'-c'", "--parallel"]);
        check(&["rm", "a", "--raw"], &["'--raw'", "wildcards"]);
        check(&["stat", "a", "-s"], &["hint: `flatout stat --help`"]);
    }

    #[test]
    fn zsh_was_taken_for_what_is_meant_by_tcsh() {
        check(&["completions", "tcsh"], &["'tcsh' is not one of bash, ", "hint: `flatout --help`"]);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        check(&["cp", "a"], &["<DST>"]);
        check(
            &["cp", "a", "b", "--part-size"],
            &["--part-size: a value is missing: write --part-size <SIZE>"],
        );
        check(
            &["serve", "--memory", "--access-key", "AK"],
            &["--secret-key <SK> is missing", "hint: add --secret-key <SK>; `flatout serve --help`"],
        );
        check(&["serve", "--no-auth"], &["--root", "--memory", "--synthetic"]);
        check(&["cp", "a", "b", "--range", "x"], &["--range"]);
        check(&["serve", "--memory", "--no-auth", "--total", "1GiB"], &["--total", "16MiB/s"]);
    }
}
