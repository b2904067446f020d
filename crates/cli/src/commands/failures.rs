//! What fails among many objects, and of the whole, and what is left out: said, counted by cause, and made an
//! exit code.

use std::io;

use flatout_engine::Error;

use crate::commands::repeats::{Repeats, Rest, grouped};
use crate::console::{Carries, Console};
use crate::events;
use crate::exit::Exit;
use crate::failure::Failure;

/// The failures of one run.
pub struct Failures<'a> {
    console: &'a Console,
    /// The command.
    verb: &'static str,
    exit: Exit,
    last_hint: Option<String>,
    /// With the object of each.
    repeats: Repeats<(String, Failure)>,
}

impl<'a> Failures<'a> {
    /// With `verbose` each is said; else people have the first of a kind, and at the end how many more there
    /// were, with the first names.
    pub fn new(console: &'a Console, verb: &'static str, verbose: bool) -> Failures<'a> {
        Failures { console, verb, exit: Exit::Clean, last_hint: None, repeats: Repeats::new(verbose) }
    }

    /// One object failed, which stops no other. That it cannot be asked for does not make the command line
    /// wrong, and that it was cancelled, as when the disk is full, is no signal's doing.
    pub fn of_object(&mut self, error: &Error) -> Result<(), Failure> {
        let failure = match Failure::from(error) {
            failure if matches!(failure.exit, Exit::Usage | Exit::Interrupted) => {
                Failure { exit: Exit::Failed, ..failure }
            }
            failure => failure,
        };
        self.exit = self.exit.max(failure.exit);
        let event = self.console.event(Carries::Lines, &events::Error::from(&failure));
        let reason = format!("{} {}", error.doing(), error.cause());
        if let Some((_, failure)) = self.repeats.take(&reason, (error.object().to_owned(), failure)) {
            self.show(failure);
        }
        event
    }

    /// A part of the whole could not be read. Those of a kind are said once, as those of objects are.
    pub fn of_part(&mut self, failure: Failure) -> Result<(), Failure> {
        self.exit = self.exit.max(failure.exit);
        let event = self.console.event(Carries::Lines, &events::Error::from(&failure));
        let (doing, rest) = failure.message.split_once(": ").unwrap_or(("", &failure.message));
        let (object, cause) = rest.rsplit_once(": ").unwrap_or(("", rest));
        let (reason, object) = (format!("{doing} {cause} {}", failure.kind), object.to_owned());
        if let Some((_, failure)) = self.repeats.take(&reason, (object, failure)) {
            self.show(failure);
        }
        event
    }

    /// The whole failed.
    pub fn of_all(&mut self, failure: &Failure) {
        self.exit = self.exit.max(failure.exit);
        // An event that cannot be written cannot be reported either.
        let _ = self.console.event(Carries::Lines, &events::Error::from(failure));
        self.show(failure.clone());
    }

    /// What was held back.
    pub fn tell_repeats(&mut self) {
        for rest in self.repeats.rest() {
            match rest {
                Rest::Few(few) => few.into_iter().for_each(|(_, failure)| self.show(failure)),
                Rest::Many(count, few) => {
                    let names: Vec<&str> = few.iter().map(|(name, _)| name.as_str()).collect();
                    let Some((first, failure)) = few.first() else { continue };
                    let message = more(count, &failure.message.replacen(first.as_str(), "…", 1), &names);
                    let message = format!("{}: {message}", self.verb);
                    self.show(Failure {
                        message,
                        hint: Some("--verbose says each".into()),
                        ..failure.clone()
                    });
                }
            }
        }
    }

    /// The worst of them.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// A hint that has just been given is not given again.
    fn show(&mut self, mut failure: Failure) {
        if failure.hint == self.last_hint {
            failure.hint = None;
        } else {
            self.last_hint.clone_from(&failure.hint);
        }
        self.console.failure_for_people(&failure);
    }
}

/// What was left out of one run, or is worth a word.
pub struct Warnings<'a> {
    console: &'a Console,
    /// With the object of each.
    repeats: Repeats<(String, String)>,
}

impl<'a> Warnings<'a> {
    /// As [`Failures::new`].
    pub fn new(console: &'a Console, verbose: bool) -> Warnings<'a> {
        Warnings { console, repeats: Repeats::new(verbose) }
    }

    /// Of an object, why, and the line that says both.
    pub fn of_object(&mut self, object: &str, why: &str, line: String) {
        if let Some((_, line)) = self.repeats.take(why, (object.to_owned(), line)) {
            self.console.warn(&line);
        }
    }

    /// What was held back.
    pub fn tell_repeats(&mut self) {
        for rest in self.repeats.rest() {
            match rest {
                Rest::Few(few) => few.iter().for_each(|(_, line)| self.console.warn(line)),
                Rest::Many(count, few) => {
                    let names: Vec<&str> = few.iter().map(|(name, _)| name.as_str()).collect();
                    let Some((first, line)) = few.first() else { continue };
                    let said = more(count, &line.replacen(first.as_str(), "…", 1), &names);
                    self.console.warn(&format!("{said} (--verbose says each)"));
                }
            }
        }
    }
}

/// `1,199 more: read: …: access denied (403): s3://b/x1, s3://b/x2, s3://b/x3, …`
fn more(count: u64, what: &str, names: &[&str]) -> String {
    format!("{} more: {what}: {}, …", grouped(count), names.join(", "))
}

/// How the system refused, where an error came from that.
pub fn refused_by_disk(error: &Error) -> Option<io::ErrorKind> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<io::Error>().map(io::Error::kind)
}

/// Whether the file system takes nothing more, from whatever object it comes.
pub fn is_full(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    matches!(kind, StorageFull | QuotaExceeded | ReadOnlyFilesystem)
}
