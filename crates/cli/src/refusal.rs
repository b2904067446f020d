//! What clap refuses, said in the program's own form: one line, a hint, exit code 4.

use std::io::Write;

use clap::error::ErrorKind;

use crate::exit::Exit;
use crate::failure::Failure;

/// Shows help where it was asked for, else the error.
pub fn show(refused: &clap::Error) -> Exit {
    match refused.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // `flatout --help | head -1` closes the pipe: nothing is wrong then.
            let _ = refused.print();
            Exit::Clean
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = refused.print();
            Exit::Usage
        }
        _ => {
            let failure = failure(&refused.to_string());
            if std::env::args().any(|argument| argument == "--json") {
                let event = crate::events::Error::from(&failure);
                let line = serde_json::to_string(&crate::events::Versioned::new(&event));
                println!("{}", line.expect("events are maps with text for keys"));
            }
            let _ = writeln!(std::io::stderr().lock(), "{failure}");
            failure.exit
        }
    }
}

/// clap writes "error: WHAT", lines that belong to it, "tip: …" lines, then usage; the first and the tips are kept.
fn failure(text: &str) -> Failure {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let what: Vec<&str> = lines().take_while(|line| !is_aside(line)).collect();
    let tips: Vec<&str> = lines().filter_map(|line| line.strip_prefix("tip: ")).collect();
    let what = what.join(" ");
    let hint = match tips.is_empty() {
        true => "flatout --help, or --help after a command, shows what there is".to_owned(),
        false => tips.join("; "),
    };
    Failure::usage(format!("command line: {}", what.strip_prefix("error: ").unwrap_or(&what))).with_hint(hint)
}

fn is_aside(line: &str) -> bool {
    ["tip: ", "Usage: ", "For more information", "[possible values"]
        .iter()
        .any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn check(arguments: &[&str], expected: &[&str]) {
        let line = std::iter::once("flatout").chain(arguments.iter().copied());
        let refused = crate::args::Line::try_parse_from(line).unwrap_err();
        let shown = failure(&refused.to_string()).to_string();
        for part in expected {
            assert!(shown.contains(part), "{shown:?} lacks {part:?}");
        }
        assert_eq!(shown.lines().count(), 2, "{shown}");
    }

    #[test]
    fn the_nearest_name_is_the_hint() {
        check(&["cp", "a", "b", "--paralel", "3"], &["'--paralel'", "hint:", "'--parallel'"]);
        check(&["serv"], &["'serv'", "'serve'"]);
        check(&["cp", "a", "b", "--frobnicate"], &["'--frobnicate'", "hint:"]);
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        check(&["cp", "a"], &["<DST>"]);
        check(&["serve", "--no-auth"], &["--root", "--memory", "--synthetic"]);
        check(&["cp", "a", "b", "--range", "x"], &["--range"]);
        check(&["serve", "--memory", "--no-auth", "--total", "1GiB"], &["--total", "16MiB/s"]);
    }
}
