//! The child's side of a repetition: a spec in; prepare, start the clock, transfer, stop the clock; the
//! answer out.

use std::io::{self, Read, Write};

use crate::bench::clock::Stopwatch;
use crate::bench::prepare::prepare;
use crate::bench::run::Measurement;
use crate::bench::spec::{ChildMessage, Spec};
use crate::console::Console;
use crate::exit::Exit;
use crate::failure::Failure;

/// The hidden command `__bench-child`: a spec on standard input, answers on standard output.
pub fn child(console: &Console) -> Result<Exit, Failure> {
    console.interrupt.be_patient();
    let mut text = String::new();
    io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::local("read", "standard input", &error))?;
    let spec: Spec = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("bench child: {error}: this command is started by flatout bench"))
    })?;
    let (answer, exit) = match measure(&spec, console) {
        Ok(run) => (ChildMessage::Done(Box::new(run)), Exit::Clean),
        Err(failure) => (ChildMessage::Failed(failure.clone()), failure.exit),
    };
    let line = serde_json::to_string(&answer).expect("an answer is plain JSON");
    writeln!(io::stdout(), "{line}").map_err(|error| Failure::stdout(&error))?;
    Ok(exit)
}

fn measure(spec: &Spec, console: &Console) -> Result<Measurement, Failure> {
    let mut prepared = prepare(spec, console)?;
    prepared.transfer(Stopwatch::start(spec))
}
