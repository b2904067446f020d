//! `flatout completions`: what a shell has to know to complete the command line.

use clap::{Command, CommandFactory};

use crate::args::{Completions, Line};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::stdout;

/// The script, on standard output.
pub fn run(args: &Completions) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut shown(&Line::command()), "flatout", &mut script);
    let mut out = stdout::raw().map_err(|error| Failure::stdout(&error))?;
    stdout::write(&mut out, &script).map_err(|error| Failure::stdout(&error))?;
    Ok(Exit::Clean)
}

/// The commands without hidden ones and hidden flags: the generators would offer those.
fn shown(command: &Command) -> Command {
    let about = command.get_about().cloned().unwrap_or_default();
    let args = command.get_arguments().filter(|arg| !arg.is_hide_set());
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let made = Command::new(command.get_name().to_owned())
        .about(about)
        .allow_missing_positional(command.is_allow_missing_positional_set())
        .disable_help_subcommand(command.is_disable_help_subcommand_set())
        .args(args.cloned())
        .subcommands(commands.map(shown));
    match command.get_version() {
        Some(version) => made.version(version.to_owned()),
        None => made,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use clap_complete::Shell;

    #[test]
    fn every_shell_is_offered_all_that_is_not_hidden() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut shown(&Line::command()), "flatout", &mut script);
            let script = String::from_utf8(script).unwrap();
            for offered in ["sweep", "completions", "no-clobber", "no-progress"] {
                assert!(script.contains(offered), "{shell}: {offered} is not in it");
            }
            for knob in flatout_settings::KNOBS {
                assert!(script.contains(knob.name), "{shell}: {} is not in it", knob.name);
            }
            // Elvish's and PowerShell's complete no values.
            if matches!(shell, Shell::Bash | Shell::Zsh | Shell::Fish) {
                assert!(script.contains("virtual"), "{shell}: the values of --addressing are not in it");
            }
            for hidden in ["__bench-child", "__drain", "peer"] {
                assert!(!script.contains(&format!(" {hidden}")), "{shell}: {hidden} is in it");
                assert!(!script.contains(&format!("'{hidden}'")), "{shell}: {hidden} is in it");
            }
        }
    }
}
