//! Which commands a line of a run may be, and what `--dry-run` makes of them.

use crate::args::Command;
use crate::commands::cp::is_stdout;
use crate::failure::Failure;

/// Refuses commands that cannot share a run: those that run until they are stopped, and those that need
/// standard input or output.
pub fn check(command: &Command) -> Result<(), Failure> {
    let is_input = |typed: &str| typed == "-" || typed == "/dev/stdin";
    if let Some(path) = command.report() {
        let failure =
            Failure::usage(format!("run: --report {}: a line has no report of its own", path.display()));
        return Err(failure.with_hint("one of all lines: `flatout run FILE --report PATH`"));
    }
    match command {
        Command::Pipe(_) => Err(no_input("pipe")),
        Command::Cp(args) if is_input(&args.source) => Err(no_input("cp")),
        Command::Hash(args) if args.sources.iter().any(|source| is_input(source)) => Err(no_input("hash")),
        Command::Cat(_) => Err(no_output("cat")),
        Command::Cp(args) if is_stdout(&args.target) => Err(no_output("cp")),
        Command::Rb(args) if args.force && !args.yes => {
            let failure = Failure::usage("run: rb --force asks first, and a line cannot be asked");
            Err(failure.with_hint("--yes lets it"))
        }
        Command::Cp(_)
        | Command::Mv(_)
        | Command::Sync(_)
        | Command::Rm(_)
        | Command::Ls(_)
        | Command::Stat(_)
        | Command::Du(_)
        | Command::Mb(_)
        | Command::Rb(_)
        | Command::Presign(_)
        | Command::Hash(_)
        | Command::Uploads(_) => Ok(()),
        _ => {
            let failure = Failure::usage("run: this command is not for a line");
            Err(failure.with_hint(
                "lines may be cp, mv, sync, rm, ls, stat, du, mb, rb, presign, hash and uploads; run others by \
                 themselves",
            ))
        }
    }
}

/// Makes the command one that only says what it would do; false where it cannot, and is not to be run.
pub fn make_dry(command: &mut Command) -> bool {
    match command {
        Command::Cp(args) => args.dry_run = true,
        Command::Mv(args) => args.dry_run = true,
        Command::Sync(args) => args.dry_run = true,
        Command::Rm(args) => args.dry_run = true,
        Command::Mb(_) | Command::Rb(_) => return false,
        Command::Uploads(args) => return !args.abort,
        // These change nothing.
        _ => {}
    }
    true
}

fn no_input(command: &str) -> Failure {
    let failure = Failure::usage(format!("run: {command}: a line has no standard input"));
    failure.with_hint("name a file, or run it by itself")
}

fn no_output(command: &str) -> Failure {
    let why = format!("run: {command}: standard output has what the lines say, and no object's bytes");
    Failure::usage(why).with_hint("name a file, or run it by itself")
}
