//! What fails among many objects, and of the whole: said, counted, and made an exit code.

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
    repeats: Repeats<Failure>,
}

impl<'a> Failures<'a> {
    /// With `verbose` each is said; else people have the first of a kind, and how many more there were.
    pub fn new(console: &'a Console, verb: &'static str, verbose: bool) -> Failures<'a> {
        Failures { console, verb, exit: Exit::Clean, last_hint: None, repeats: Repeats::new(verbose) }
    }

    /// One object failed, which stops no other.
    pub fn of_object(&mut self, error: &Error) -> Result<(), Failure> {
        let failure = match Failure::from(error) {
            // That one cannot be asked for does not make the command line wrong.
            failure if failure.exit == Exit::Usage => Failure { exit: Exit::Failed, ..failure },
            failure => failure,
        };
        self.exit = self.exit.max(failure.exit);
        let event = self.console.event(Carries::Lines, &events::Error::from(&failure));
        if let Some(failure) = self.repeats.take(&format!("{} {}", error.doing(), error.cause()), failure) {
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
                Rest::Few(failures) => failures.into_iter().for_each(|failure| self.show(failure)),
                Rest::Many(count, one) => self.show(Failure {
                    message: format!(
                        "{}: … and {} more like it, one of them: {}",
                        self.verb,
                        grouped(count),
                        one.message
                    ),
                    hint: Some("--verbose says each".into()),
                    ..one
                }),
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
